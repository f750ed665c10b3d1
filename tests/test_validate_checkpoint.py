"""What is no checkpoint is told so, with every place and reason, and with nothing of what it holds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from drivers import decide_first
from hypothesis import given
from hypothesis import strategies as st

from phronomy import Agent, Checkpoint, CheckpointError, Problem, create_checkpoint_id, tool, validate_checkpoint
from phronomy.foundation.json_text import MAX_BYTES, MAX_DEPTH
from phronomy.records.checkpoint import _digest
from phronomy.testing import ScriptedModel, call

CANARY = "sk-canary-31337"
HOSTILE = ("__proto__", "constructor", "prototype", "toString", "valueOf", "hasOwnProperty", "__class__", "__init__")


@tool(requires_approval=True)
def pay(n: int, to: str = CANARY) -> str:
    """Pay."""
    return f"paid {n} {CANARY}"


def samples() -> dict[str, str]:
    """A checkpoint of every sort: running with a journal, suspended, with a nested run, forked, ended."""
    seen: list[Checkpoint] = []

    @tool
    def look() -> str:
        """Look."""
        seen.append(agent.store.head(agent.store.branches()[0].id)[1])
        return CANARY

    script = [[call("look"), call("pay", {"n": 1}), call("pay", {"n": 2})], f"done {CANARY}"]
    agent = Agent(name="clerk", model=ScriptedModel.by_turn(script), tools=[look, pay])
    asked = agent.invoke(CANARY, thread_id="t", metadata={"__proto__": {"constructor": CANARY}}).checkpoint
    fork = agent.fork(asked, label=CANARY)
    paid = agent.resume(asked, decisions=decide_first(asked), by="ann").checkpoint
    end = agent.resume(paid, approved=False, reason=CANARY).checkpoint
    found = {"running": seen[0], "suspended": asked, "forked": fork, "half decided": paid, "ended": end}
    found["outer"] = paid.evolve(nested=(seen[0].evolve(path="1.0"), asked.evolve(path="1.1")))
    return {name: checkpoint.model_dump_json() for name, checkpoint in found.items()}


TEXTS = samples()
SUSPENDED = TEXTS["suspended"]


def told(value: object) -> list[str]:
    return [str(problem) for problem in validate_checkpoint(value)]


def edited(edit: Callable[[Any], Any], text: str = SUSPENDED, *, sealed: bool = False) -> dict[str, Any]:
    """The dump after an edit, with the digest made anew or not."""
    data: dict[str, Any] = json.loads(text)
    edit(data)
    if sealed:
        data["digest"] = _digest(data)
    return data


def is_read(value: str | bytes) -> bool:
    try:
        Checkpoint.model_validate_json(value)
    except CheckpointError:
        return False
    return True


# A valid one


@pytest.mark.parametrize("name", TEXTS)
def test_a_checkpoint_is_valid_as_text_bytes_dict_and_record(name: str) -> None:
    text = TEXTS[name]
    record = Checkpoint.model_validate_json(text)
    for value in (text, text.encode(), bytearray(text.encode()), json.loads(text), record, record.model_dump()):
        assert validate_checkpoint(value) == []


def test_what_the_user_stored_may_hold_any_key() -> None:
    values = {key: {key: [{key: 1}]} for key in HOSTILE}
    model = ScriptedModel([CANARY])
    checkpoint = Agent(name="clerk", model=model).invoke({"input": values}, metadata=values).checkpoint
    assert checkpoint.metadata == values
    assert validate_checkpoint(checkpoint) == []


def test_a_document_that_another_tool_wrote_anew_is_valid() -> None:
    data = json.loads(SUSPENDED)
    assert validate_checkpoint(json.dumps(dict(reversed(data.items())), indent=2)) == []


# Places and reasons


def test_a_hostile_field_name_is_refused_at_every_depth() -> None:
    text = TEXTS["outer"]
    objects = [place for place, value in places(json.loads(text)) if isinstance(value, dict)]
    assert len(objects) > 40
    for place in objects:
        bad = dict.fromkeys(HOSTILE, CANARY)
        data = edited(lambda data, place=place, bad=bad: at(data, place).update(bad), text, sealed=True)
        assert {f"{dotted((*place, key))}: is an unknown field" for key in HOSTILE} <= set(told(data)), place
    for key in HOSTILE:
        alone = edited(lambda data, key=key: at(data, objects[-1]).update({key: 1}), text, sealed=True)
        assert not is_read(json.dumps(alone))
        assert told(alone)


def test_all_that_is_wrong_is_told_at_once() -> None:
    def edit(data: Any) -> None:
        data["step"] = CANARY
        del data["run_id"]
        data["messages"][1]["tool_calls"][0]["id"] = 7
        data["messages"][0]["role"] = CANARY
        data["calls"][1]["tool"]["gate"] = CANARY
        data["usage"]["cost"] = -1
        data["created_at"] = 1_700_000_000_000
        data["extra"] = {"a": CANARY}
        del data["digest"]
        data["pending"][0]["expires_at"] = CANARY

    assert sorted(told(edited(edit))) == [
        "calls.1.tool.gate: should be 'always', 'predicate' or 'never'",
        "created_at: should be a valid datetime",
        "digest: is missing",
        "extra: is an unknown field",
        "messages.0.role: should be 'user', 'assistant' or 'tool'",
        "messages.1.tool_calls.0.id: should be a valid string",
        "pending.0.expires_at: should be a valid datetime, invalid character in year",
        "run_id: is missing",
        "step: should be a valid integer",
        "usage.cost: should be greater than or equal to 0",
    ]


DISAGREES = "does not agree with the rest: the checkpoint was edited or damaged"


def test_derived_keys_that_disagree_are_each_told() -> None:
    assert told(edited(lambda data: data.update(digest="0" * 64))) == [f"digest: {DISAGREES}"]
    assert told(edited(lambda data: data.update(status="completed"))) == [f"status: {DISAGREES}"]
    assert told(edited(lambda data: data["pending"].pop())) == [f"pending: {DISAGREES}"]
    assert told(edited(lambda data: data["pending"][0].update(tool_name=CANARY))) == [
        "pending.0.tool_name: is an unknown field"
    ]
    assert told(edited(lambda data: data["pending"][0].update(args='{"n":3}'))) == [f"pending.0.args: {DISAGREES}"]
    assert told(edited(lambda data: data.update(status="running", label="x"))) == [
        f"status: {DISAGREES}",
        f"digest: {DISAGREES}",
    ]


def test_a_suspended_checkpoint_without_anything_pending_is_refused() -> None:
    def edit(data: Any) -> None:
        data["calls"], data["pending"] = [], []

    assert told(edited(edit, sealed=True)) == ["status: is suspended, and nothing is pending"]
    assert told(edited(lambda data: data.pop("pending"))) == ["pending: is missing"]


def test_an_edit_of_what_is_pending_is_noticed_even_under_a_new_digest() -> None:
    found = told(edited(lambda data: data["calls"][1].update(args='{"n":3,"to":"me"}'), sealed=True))
    assert found == ["calls.1: the digest of a call is not that of its tool and arguments"]


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (2, "is newer than 1, up to which this release reads: upgrade phronomy"),
        (10**30, "is newer than 1, up to which this release reads: upgrade phronomy"),
        (0, "should be 1"),
        (-1, "should be 1"),
        ("1", "is no whole number"),
        (1.0, "is no whole number"),
        (True, "is no whole number"),
        (None, "is no whole number"),
    ],
)
def test_another_version_is_refused(version: Any, reason: str) -> None:
    assert told(edited(lambda data: data.update(version=version))) == [f"version: {reason}"]


def test_a_missing_version_is_told_beside_the_rest() -> None:
    def edit(data: Any) -> None:
        del data["version"]
        data["step"] = "x"

    assert told(edited(edit)) == ["version: is missing", "step: should be a valid integer"]


NOT_KEPT = {
    "NaN": "holds what is not JSON",
    "Infinity": "holds what is not JSON",
    "-Infinity": "holds what is not JSON",
    "1e999": "holds JSON with a number that is out of range",
    "-1e999": "holds JSON with a number that is out of range",
    "9" * 5000: "not JSON: Exceeds the limit",
}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            SUSPENDED.replace('"role":"user"', f'"role":"{CANARY}","role":"user"'),
            "in which a key stands twice in one object",
        ),
        *((SUSPENDED.replace('"cost":null', f'"cost":{number}'), reason) for number, reason in NOT_KEPT.items()),
    ],
)
def test_a_text_that_no_record_could_hold_is_refused_in_one_sentence(text: str, reason: str) -> None:
    assert text != SUSPENDED and not is_read(text)
    (problem,) = validate_checkpoint(text)
    assert problem.path == "" and reason in problem.reason
    assert CANARY not in problem.reason


def test_json_inside_the_record_is_judged_and_not_quoted() -> None:
    bad = {
        f'{{"{CANARY}":1,"{CANARY}":2}}': "holds JSON in which a key stands twice in one object",
        "31337e999": "holds JSON with a number that is out of range",
        '{"a": 1}': "the JSON text is not in canonical form",
        "[" * 70 + "]" * 70: "nested deeper than 64 at character 64",
        "[1": "not JSON: Expecting ',' delimiter at character 2",
        "NaN": "holds what is not JSON",
    }
    for text, reason in bad.items():
        for place in (("messages", 0, "content"), ("metadata",), ("calls", 1, "args"), ("original_input",)):
            key: Any = place[-1]
            data = edited(
                lambda data, place=place, key=key, text=text: at(data, place[:-1]).update({key: text}), sealed=True
            )
            assert f"{dotted(place)}: {reason}" in told(data)
    assert told(edited(lambda data: data.update(metadata={"a": 1}))) == [
        "metadata: this field holds JSON as text, so its value must be a string"
    ]
    assert told(edited(lambda data: data.update(metadata="[]"))) == [
        "metadata: an object with string keys is needed here"
    ]


def test_the_journal_is_told_by_its_place_and_an_unknown_outcome_is_not_quoted() -> None:
    def edit(data: Any) -> None:
        started = data["journal"][0]
        data["journal"] = [{**started, "attempt": CANARY}, {**started, "type": CANARY}, {**started, CANARY[:2]: 1}, {}]

    assert told(edited(edit, TEXTS["running"])) == [
        "journal.0.attempt: should be a valid integer",
        "journal.1: is of an unknown type",
        "journal.2.sk: is an unknown field",
        "journal.3: has no type",
    ]


def test_a_run_inside_the_run_is_judged_as_deeply() -> None:
    def edit(data: Any) -> None:
        data["nested"][1]["messages"][1]["tool_calls"][0]["id"] = None
        data["nested"][1]["step"] = CANARY
        data["nested"][0]["version"] = 9
        data["turn"] = "x"

    assert sorted(told(edited(edit, TEXTS["outer"]))) == [
        "nested.0.version: is newer than 1, up to which this release reads: upgrade phronomy",
        "nested.1.messages.1.tool_calls.0.id: should be a valid string",
        "nested.1.step: should be a valid integer",
        "turn: should be a valid integer",
    ]
    assert told(edited(lambda data: data["nested"][1].update(label="x"), TEXTS["outer"])) == [
        f"nested.1.digest: {DISAGREES}"
    ]


def test_a_field_that_was_left_out_is_missing_even_where_it_has_a_default() -> None:
    def edit(data: Any) -> None:
        del data["label"], data["messages"][0]["provider"]
        data["messages"][1]["tool_calls"][0].pop("original_id")

    assert sorted(told(edited(edit)))[:3] == [
        "label: is missing",
        "messages.0.provider: is missing",
        "messages.1.tool_calls.0.original_id: is missing",
    ]


def test_a_value_written_otherwise_than_a_dump_does_is_told_with_its_place() -> None:
    data = edited(lambda data: data.update(created_at=data["created_at"].replace("Z", "+00:00")), sealed=True)
    assert told(data)[0] == "created_at: is not as a dump writes it"


NOT_EVEN_A_DOCUMENT: list[tuple[Any, str]] = [
    ("", "not JSON: Expecting value at character 0"),
    (b"\xff\xfe", "not UTF-8 at byte 0"),
    ("[]", "is no checkpoint: a JSON object is needed"),
    ("null", "is no checkpoint: a JSON object is needed"),
    (f'"{CANARY}"', "is no checkpoint: a JSON object is needed"),
    ("NaN", "holds what is not JSON"),
    ("[" * 100_000, f"nested deeper than {MAX_DEPTH} at character {MAX_DEPTH}"),
    ("[" * 100 + "]" * 100, f"nested deeper than {MAX_DEPTH} at character {MAX_DEPTH}"),
    (" " * (MAX_BYTES + 1), f"JSON text of {MAX_BYTES + 1} characters is over the limit of {MAX_BYTES}"),
    (None, "is text, bytes, a dict or a Checkpoint, not NoneType"),
    (5, "is text, bytes, a dict or a Checkpoint, not int"),
    ([], "is text, bytes, a dict or a Checkpoint, not list"),
    ({"a": object()}, "cannot be written as JSON"),
    ({"a": "\ud800"}, "cannot be written as JSON"),
    (Checkpoint.model_construct(id=CANARY, calls=CANARY), "cannot be written as JSON"),
]


@pytest.mark.parametrize(("value", "reason"), NOT_EVEN_A_DOCUMENT, ids=range(len(NOT_EVEN_A_DOCUMENT)))
def test_what_is_no_document_is_told_in_one_sentence(value: Any, reason: str) -> None:
    assert validate_checkpoint(value) == [Problem(path="", reason=reason)]
    assert str(validate_checkpoint(value)[0]) == f"checkpoint: {reason}"


def test_a_record_that_was_built_without_being_judged_is_judged() -> None:
    record = Checkpoint.model_validate_json(SUSPENDED)
    assert told(record.evolve(step=CANARY)) == ["step: should be a valid integer"]
    assert told(record.evolve(messages=(*record.messages, CANARY)))[0] == "messages.2: should be an object"

    assert told(Checkpoint.model_construct(id="ckpt_1")) == [
        f"{name}: is missing" for name in ("branch_id", "run_id", "created_at", "agent", "original_input")
    ]


def test_a_dict_that_holds_itself_is_no_checkpoint() -> None:
    data = json.loads(SUSPENDED)
    data["nested"] = [data]
    assert told(data) == ["checkpoint: cannot be written as JSON"]


def test_a_flood_of_problems_is_counted() -> None:
    found = validate_checkpoint(edited(lambda data: data.update({f"k{number}": 1 for number in range(5000)})))
    assert len(found) == 101
    assert str(found[-1]) == "checkpoint: has 4900 more problems"


def test_a_key_cannot_write_in_the_log() -> None:
    def edit(data: Any) -> None:
        data |= {"a\n\x1b[2J": 1, "k" * 500: 1, "": 1}

    assert told(edited(edit)) == [
        r"a\n\x1b[2J: is an unknown field",
        f"{'k' * 40}...: is an unknown field",
        '"": is an unknown field',
    ]


# The loader has the last word


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value in a document, with its path."""
    yield path, data
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def dotted(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


ODD: list[Any] = [
    *(
        None,
        True,
        0,
        1,
        -1,
        10**40,
        1.5,
        5.0,
        "",
        CANARY,
        "{}",
        "[]",
        "null",
        '""',
        "\ud800",
        '"\\ud800"',
        [],
        {},
        [[]],
    ),
    *({"a": {}}, "suspended", "completed", "pending", "settled", "2030-01-01T00:00:00Z", "2030-01-01 00:00:00+00:00"),
]


@st.composite
def mutations(draw: st.DrawFn) -> str:
    """The text of a checkpoint after up to three edits, by somebody who may know how to make the digest anew."""
    data = json.loads(TEXTS[draw(st.sampled_from(sorted(TEXTS)))])
    for _ in range(draw(st.integers(0, 3))):
        where = draw(st.sampled_from([path for path, _ in places(data)][1:] or [("version",)]))
        here, key = at(data, where[:-1]), where[-1]
        match draw(st.sampled_from(["delete", "odd", "add", "swap", "touch"])):
            case "delete" if not isinstance(here, dict) or key in here:
                del here[key]
            case "add" if isinstance(here, dict):
                here[draw(st.sampled_from([*HOSTILE, "id", "status", "args", "nested"]))] = deepcopy(
                    draw(st.sampled_from(ODD))
                )
            case "swap":
                here[key] = deepcopy(draw(st.sampled_from([value for _, value in places(data)])))
            case "touch" if isinstance(here[key], str):
                here[key] += draw(st.sampled_from([" ", "x", "}", "\ud800", "\x00"]))
            case _:
                here[key] = deepcopy(draw(st.sampled_from(ODD)))
    if draw(st.booleans()) and isinstance(data, dict):
        with suppress(UnicodeEncodeError):
            data["digest"] = _digest(data)
    return json.dumps(data, ensure_ascii=draw(st.booleans()))


@given(mutations())
def test_there_is_no_problem_exactly_where_the_loader_reads_the_text(text: str) -> None:
    found = validate_checkpoint(text)
    assert (found == []) is is_read(text)
    for problem in found:
        assert problem.reason
        assert problem.reason != "is refused by the loader"
        assert CANARY not in problem.reason
    assert len({problem.path for problem in found}) == len(found)


@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_the_same_holds_for_damaged_text(name: str, data: st.DataObject) -> None:
    text = TEXTS[name]
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    new = data.draw(
        st.sampled_from(["", "0", '"', "{", "}", "[", ",", "null", '"step":1,', "NaN", "1e999", "\ud800", "\\"])
    )
    damaged = text[:first] + new + text[last if data.draw(st.booleans()) else first :]
    found = validate_checkpoint(damaged)
    assert (found == []) is is_read(damaged)
    assert CANARY not in "".join(problem.reason for problem in found)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_it_is_it_is_no_checkpoint(value: Any) -> None:
    assert validate_checkpoint(value)
    assert validate_checkpoint(json.dumps(value))


def test_a_dict_is_judged_as_the_text_of_it_is() -> None:
    """What `model_validate` makes of a dict with a digest, and what is said of the dict, agree."""
    for data in (
        json.loads(SUSPENDED),
        edited(lambda data: data.update(step=7)),
        edited(lambda data: data.pop("label")),
    ):
        try:
            Checkpoint.model_validate(data)
        except CheckpointError:
            assert validate_checkpoint(data)
        else:
            assert validate_checkpoint(data) == []


# New ids


def test_a_new_id_is_of_the_form_of_those_of_runs_and_never_the_same() -> None:
    ids = [create_checkpoint_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    own = json.loads(SUSPENDED)["id"]
    assert all(re.fullmatch(r"ckpt_[0-9a-f]{24}", id) for id in (*ids, own))
    record = Checkpoint.model_validate_json(SUSPENDED).evolve(id=ids[0])
    assert validate_checkpoint(record) == []
