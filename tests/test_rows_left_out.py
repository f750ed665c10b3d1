"""A row and a journal leave out what other rows say, and both readers give them back as they were. Older rows leave out less."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from drivers import Driver
from hypothesis import given
from hypothesis import strategies as st
from places import Place

from phronomy import Agent, Checkpoint, MemoryStore, SQLiteStore, tool
from phronomy.errors import CheckpointError
from phronomy.foundation.json_text import canonical
from phronomy.records.calls import Call, CallResult, CallSettled, CallStarted, Outcome
from phronomy.records.checkpoint import AgentRef, result_message
from phronomy.records.decisions import ToolIdentity, call_digest
from phronomy.records.messages import Message, ToolCall
from phronomy.stores.derived.kept_texts import whole_lineage
from phronomy.stores.log import log
from phronomy.stores.log.log import items_of, journal_entry, last_of, replay, row_entry
from phronomy.stores.rows import Append, Branch, Entry
from phronomy.testing import ScriptedModel, call

CORPUS = Path(__file__).parent / "corpus"
AT = datetime(2026, 3, 1, tzinfo=UTC)
TOOL = ToolIdentity(name="look_up", schema_hash="0", gate="never")


def desk(store: Any, driver: Driver | None = None) -> Agent[Any, str]:
    """The agent that the frozen rows are of."""

    def look_up(order: int, part: str = "all") -> str:
        """Look an order up."""
        if order == 2:
            raise ValueError("no such order")
        return f"Order {order} is on its way."

    def find(name: str) -> str:
        """Find a customer."""
        return f"{name} has two orders."

    @tool(requires_approval=True)
    def pay(order: int) -> str:
        """Pay an order."""
        return "paid"

    first = [call("find", {"name": "Zoë"}), call("look_up", {"order": 2})]
    second = [call("look_up", {"order": 3, "part": "head"}), call("pay", {"order": 3}), call("find", {"name": "Li"})]
    model = ScriptedModel.by_turn([first, second, "Done."])
    return Agent(name="desk", model=model, tools=[look_up, find, pay], store=store, max_parallel=1)


@pytest.mark.parametrize("file", ["log-1-calls.jsonl", "log-2-calls.jsonl"])
def test_rows_of_either_form_are_read_as_they_were_written(file: str, driver: Driver, place: Place) -> None:
    """The files are never changed. The first has the rows of a release that left nothing out."""
    lines = [json.loads(line) for line in (CORPUS / file).read_text().splitlines()]
    run = Checkpoint.model_validate_json(next(each["checkpoint"] for each in lines if "checkpoint" in each))
    rows = [each for each in lines if "body" in each]
    entries = tuple(Entry(path="", body=each["body"], checkpoint_id=each["checkpoint_id"]) for each in rows)
    texts = tuple(each["text"] for each in lines if "text" in each)
    store = place.open(clock=lambda: 1_767_225_601.0)
    branch = Branch.of(run)
    begun = Append(branch_id=branch.id, seq=0, entries=entries, head=run.id, status="suspended", texts=texts)
    store.create(branch, begun, exclusive=False)
    assert store.load(run.id) == driver.call(store, "load", run.id) == run  # type: ignore[arg-type]
    history = store.history(run.id)
    assert [each.step for each in history] == [0, 1, 2, 3, 4]
    assert history[-1] == run
    assert [(each.id, each.status, each.args) for each in history[1].calls] == [
        ("1.0", "ready", {"name": "Zoë"}),
        ("1.1", "ready", {"order": 2, "part": "all"}),
    ]
    assert all(Checkpoint.model_validate_json(each.model_dump_json()) == each for each in history)
    assert driver.resume(desk(store), run.id, approved=True).output == "Done."


def test_a_call_that_nobody_decides_is_stored_once() -> None:
    store = MemoryStore()
    run = desk(store).invoke("Pay order 3").checkpoint
    entries = store.lineage(branch_id=run.branch_id).entries
    rows = [json.loads(entry.body) for entry in entries if entry.checkpoint_id is not None]
    assert [sorted(each) for each in rows[1]["calls"]] == [
        ["name", "status", "tool"],
        ["args", "name", "status", "tool"],  # a default was filled in
    ]
    pays = rows[3]["calls"][1]
    assert {"id", "call_id", "args", "digest"} <= pays.keys()
    assert [row.get("step") for row in rows] == [None] * 5
    journal = [json.loads(entry.body) for entry in entries if entry.checkpoint_id is None]
    # How long it took is left out where that is less than a millisecond, as it is on a machine that is not busy.
    assert [sorted(each.keys() - {"elapsed"}) for each in journal[:3]] == [
        ["id", "key", "type"],
        ["call_id", "id", "result", "type"],
        ["at", "id", "key", "type"],  # it began after the other had ended
    ]
    assert journal[1]["result"] == {"content": "Zoë has two orders."}


@pytest.mark.parametrize("way", ["recover", "resume", "fork"])
def test_what_a_predicate_let_pass_is_bound_to_its_digest_as_a_decision_is(
    way: str, driver: Driver, tmp_path: Path
) -> None:
    """Its arguments are changed in the row, to some that the predicate would ask about: nothing runs by that row."""
    paid: list[int] = []

    def look_up(order: int) -> str:
        """Look an order up."""
        raise KeyboardInterrupt

    def pay(amount: int) -> str:
        """Pay an order."""
        paid.append(amount)
        return "paid"

    def large(args: dict[str, Any]) -> bool:
        return bool(args["amount"] > 100)

    tools = [tool(driver.function(look_up)), tool(requires_approval=large)(driver.function(pay))]
    model = ScriptedModel.by_turn([[call("look_up", {"order": 1}), call("pay", {"amount": 5})], "Done."])
    store = SQLiteStore(tmp_path / "runs.db")
    agent = Agent(name="desk", model=model, tools=tools, store=store, max_parallel=1)
    with pytest.raises(KeyboardInterrupt):
        driver.invoke(agent, "Pay.")
    (branch,) = store.branches()
    asked = store.head(branch.id)[1]
    assert (asked.calls[1].status, asked.calls[1].args) == ("ready", {"amount": 5})
    with sqlite3.connect(tmp_path / "runs.db") as db:
        few, many = (json.dumps(canonical({"amount": amount})) for amount in (5, 5000))
        changed = db.execute(
            "UPDATE phronomy_log SET body = replace(body, ?, ?) WHERE instr(body, ?)",
            (f'"args":{few}', f'"args":{many}', f'"args":{few}'),
        )
        assert changed.rowcount == 1
    db.close()
    with pytest.raises(CheckpointError, match="the digest of a call is not that of its tool and arguments"):
        driver.call(agent, way, branch.id if way == "recover" else branch.head)
    assert paid == []


# Every form of a call


def first() -> Checkpoint:
    known: dict[str, Any] = {"run_id": "run1", "branch_id": "run1", "created_at": AT, "agent": AgentRef(name="a")}
    return Checkpoint(**known, id="c0", original_input="go")


def following(before: Checkpoint, **fields: Any) -> Checkpoint:
    step = before.step + 1
    at = AT + timedelta(seconds=step)
    return before.evolve(
        **{"id": f"c{step}", "parent_id": before.id, "step": step, "created_at": at, "label": None, **fields}
    )


def asked(*arguments: str, name: str = "look_up") -> Message:
    calls = [ToolCall(id=f"call_{place}", name=name, arguments=text) for place, text in enumerate(arguments)]
    return Message(role="assistant", tool_calls=tuple(calls))


def ready(place: int, given: Any, **fields: Any) -> Call:
    text = canonical(given)
    known = {"id": f"1.{place}", "call_id": f"call_{place}", "name": "look_up", "status": "ready", "tool": TOOL}
    return Call(**{**known, "args": text, "digest": call_digest(TOOL, text), **fields})


def entries_of(checkpoints: Sequence[Checkpoint]) -> list[Entry]:
    parents = [None, *checkpoints]
    return [row_entry(parent, child, {}) for parent, child in zip(parents, checkpoints, strict=False)]


SAID = [
    *('{"order":1}', '{"order": 1}', ' {"order":1}', '{"order":1.0}', '{"order":1,"order":1}', '{"order":2}', "{}"),
    *(
        '{"order":"\\ud800"}',
        '{"order":NaN}',
        "[1]",
        "",
        "{",
        "5",
        '{"a":' * 65 + "1" + "}" * 65,
        '{"order":"\\u00e9"}',
    ),
]
ARGS: list[Any] = [{"order": 1}, {"order": 1.0}, {}, {"order": "é"}, {"order": 1, "part": "all"}]
FIELDS: list[dict[str, Any]] = [
    *([{}] * 4),
    {"id": "other"},
    {"call_id": "other"},
    {"call_id": ""},
    {"name": "find"},
    {"attempt": 2},
    {"repeatable": True},
    {"reason": "again", "stopped": True},
    {"approved": "p", "pending_id": "p", "why": "approval", "requested_at": AT},
    {"pending_id": "p", "why": "breakpoint", "requested_at": AT},
    {"approved": "p", "edited": True},
    {"status": "pending", "pending_id": "p", "requested_at": AT},
    {"status": "started"},
    {"status": "settled", "result": CallResult(kind="completed", content="")},
    {"status": "new", "tool": None, "args": None, "digest": None, "arguments": "{"},
]


@given(
    st.lists(st.tuples(st.sampled_from(SAID), st.sampled_from(ARGS), st.sampled_from(FIELDS)), max_size=4),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["turn", "no turn", "no message", "a result behind it"]),
)
def test_each_call_is_read_back_as_it_was(
    drawn: list[tuple[str, Any, dict[str, Any]]], shuffled: bool, later: bool, kind: str
) -> None:
    calls = [ready(place, args, **fields) for place, (_, args, fields) in enumerate(drawn)]
    calls = [each.evolve(id=f"{each.id}{place}") if each.id == "other" else each for place, each in enumerate(calls)]
    said = asked(*[text for text, _, _ in drawn])
    behind = Message(role="user", content="and?")
    messages = {"no message": (), "a result behind it": (said, behind)}.get(kind, (said,))
    turn = {} if kind == "no turn" else {"turn": 1}
    checkpoints = [first()]
    checkpoints.append(
        following(checkpoints[-1], calls=tuple(calls[::-1] if shuffled else calls), messages=messages, **turn)
    )
    if later and calls:
        changed = (checkpoints[-1].calls[0].evolve(reason="changed"), *checkpoints[-1].calls[1:])
        checkpoints.append(following(checkpoints[-1], calls=changed))
    entries = entries_of(checkpoints)
    assert replay(entries) == checkpoints
    for upto, checkpoint in enumerate(checkpoints, 1):
        assert log._put_together(entries[:upto]) == checkpoint
        assert log._put_together(entries[:upto]).model_dump_json() == checkpoint.model_dump_json()
    for each, row in zip(drawn, json.loads(entries[1].body).get("calls", ()), strict=False):
        if not shuffled and not ({"approved", "pending_id"}.isdisjoint(each[2])):
            assert {"id", "call_id", "args", "digest"} <= row.keys(), "a decision is bound to these"


def test_the_digest_of_long_arguments_is_stored() -> None:
    """Whoever reads the row makes the digest once, to compare it."""
    one = first()
    text = canonical({"order": "x" * 2000})
    calls = (ready(0, {"order": "x" * 2000}), ready(1, {"order": 1}))
    two = following(one, messages=(asked(text, '{"order":1}'),), turn=1, calls=calls)
    entries = entries_of([one, two])
    assert [sorted(row) for row in json.loads(entries[1].body)["calls"]] == [
        ["digest", "name", "status", "tool"],
        ["name", "status", "tool"],
    ]
    assert log._put_together(entries) == replay(entries)[-1] == two


def test_a_row_that_its_worker_does_not_know_of_does_not_hide_a_key() -> None:
    """The write of a row was cut off, and is there: the next entry of that worker goes on from the journal before it."""
    one = first()
    two = following(one, created_at=AT)
    begun, ended = journaled(one, started(at=AT), settled())
    entries = [row_entry(None, one, {}), begun, row_entry(one, two, {}), ended]
    assert last_of(entries) == replay(entries)[-1] == two.evolve(journal=(settled(),))


def test_the_step_of_a_row_follows_from_the_row_before_it() -> None:
    one = first().evolve(step=5)
    two = following(one)
    same = following(two, step=two.step)
    other = following(same, step=40, id="c40")
    last = following(other)
    nextrun = last.evolve(id="n0", run_id="run2", branch_id="run2", step=0, parent_id=last.id)
    nextrow = following(nextrun, id="n1")
    of_no_steps = nextrow.evolve(id="m0", run_id="run3", branch_id="run3", parent_id=nextrow.id)
    checkpoints = [one, two, same, other, last, nextrun, nextrow, of_no_steps, following(of_no_steps, id="m1")]
    entries = entries_of(checkpoints)
    assert [json.loads(entry.body).get("step") for entry in entries] == [5, None, 6, 40, None, 0, None, None, None]
    assert replay(entries) == checkpoints
    assert [log._put_together(entries[:upto]) for upto in range(1, 10)] == checkpoints


# Journals


def started(id: str = "1.0", at: datetime = AT + timedelta(seconds=1), **fields: Any) -> CallStarted:
    return CallStarted(**{"id": id, "at": at, "key": f"key of {id}", **fields})


def settled(id: str = "1.0", key: str = "", kind: Any = "completed") -> CallSettled:
    result = CallResult(kind=kind, content='said "key":"x","kind":"failed"')
    return CallSettled(id=id, call_id=f"call {id}", key=key, result=result)


def journaled(row: Checkpoint, *outcomes: Outcome) -> list[Entry]:
    """The journal behind a row, as the write has it that begins with the row."""
    return [journal_entry(each, row.path, row) for each in outcomes]


JOURNALS: dict[str, tuple[list[Outcome], list[set[str]]]] = {
    "all of it": ([started(), settled()], [set(), set()]),
    "another attempt": ([started(), started(attempt=2), settled()], [set(), {"attempt"}, set()]),
    "another time": ([started(at=AT), settled()], [{"at"}, set()]),
    "a result that was reused": ([settled(key="k")], [{"key"}]),
    "several calls": (
        [started("1.0"), started("1.1"), settled("1.1"), settled("1.0", kind="failed")],
        [set(), set(), set(), {"kind"}],
    ),
}


@pytest.mark.parametrize("name", JOURNALS)
@pytest.mark.parametrize("path", ["", "1.0"])
def test_a_journal_is_read_back_as_it_was(name: str, path: str) -> None:
    outcomes, left = JOURNALS[name]
    one = first()
    two = following(one)
    entries = entries_of([one, two])
    behind = two
    if path:
        behind = one.evolve(id="i0", path=path, created_at=two.created_at)
        entries.append(row_entry(None, behind, {}))
    written = [*entries, *journaled(behind, *outcomes)]
    texts = [json.loads(entry.body) for entry in written[-len(outcomes) :]]
    found = [{*each, *each.get("result", ())} & {"at", "attempt", "key", "kind"} for each in texts]
    begun = [isinstance(each, CallStarted) for each in outcomes]
    assert [each - {"key"} if is_start else each for each, is_start in zip(found, begun, strict=True)] == left
    for together in (replay(written)[-1], log._put_together(written), last_of(written)):
        part = together.nested[0] if path else together
        assert part.journal == tuple(outcomes)
        assert part.evolve(journal=()) == behind
    assert [item for entry, item in items_of(written) if entry.checkpoint_id is None] == outcomes


def test_a_time_that_no_row_of_the_same_write_says_is_stored() -> None:
    one = first()
    assert "at" in json.loads(journal_entry(started(at=AT), "").body)
    assert "at" in json.loads(journal_entry(started(), "", one).body)
    assert "at" not in json.loads(journal_entry(started(at=AT), "", one).body)


def test_results_without_a_kind_are_those_of_calls_that_completed() -> None:
    """The row that follows refers to them, with images and without."""
    one = following(first(), messages=(asked("{}", "{}"),))
    image: Any = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    seen = CallSettled(
        **{"id": "1.1", "call_id": "call_1"},
        result=CallResult(kind="completed", content="[image/png, 3 bytes]", parts=image),
    )
    ends = {"1.0": settled(), "1.1": seen}
    told = [result_message(each.call_id, each.result) for each in ends.values()]
    two = following(one, messages=(*one.messages, *told))
    entries = [row_entry(None, one, {}), *journaled(one, *ends.values()), row_entry(one, two, ends)]
    assert ['"kind"' in entry.body for entry in entries] == [False] * 4
    assert log._put_together(entries) == replay(entries)[-1] == two


# Damage


def thin_log() -> list[Entry]:
    """A log that leaves out all that there is to leave out, and a call that is decided."""
    decided = ready(1, {"order": 2}, status="pending", pending_id="p", requested_at=AT)
    one = first()
    two = following(
        one, messages=(asked('{"order": 1}', '{"order": 2}'),), turn=1, calls=(ready(0, {"order": 1}), decided)
    )
    entries = entries_of([one, two])
    return [*entries, *journaled(two, started(), settled())]


def without(*path: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for name in path[:-1]:
            data = data[name]
        del data[path[-1]]

    return change


def put(value: Any, *path: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for name in path[:-1]:
            data = data[name]
        data[path[-1]] = value

    return change


DAMAGE: dict[str, tuple[int, Callable[[Any], None]]] = {
    "no message": (1, without("messages")),
    "no calls in the message": (1, without("messages", 0, "tool_calls")),
    "another tool in the message": (1, put("find", "messages", 0, "tool_calls", 0, "name")),
    "arguments that are none": (1, put("{", "messages", 0, "tool_calls", 0, "arguments")),
    "arguments in a list": (1, put("[1]", "messages", 0, "tool_calls", 0, "arguments")),
    "no turn": (1, without("turn")),
    "a turn that is none": (1, put("1", "turn")),
    "no tool": (1, without("calls", 0, "tool")),
    "another name": (1, put("find", "calls", 0, "name")),
    "no status": (1, without("calls", 0, "status")),
    "another status": (1, put("pending", "calls", 0, "status")),
    "an approval": (1, put("p", "calls", 0, "approved")),
    "a request": (1, put("p", "calls", 0, "pending_id")),
    "another digest": (1, put("0" * 64, "calls", 0, "digest")),
    "another field": (1, put("x", "calls", 0, "sum")),
    "the calls in another order": (1, lambda data: data["calls"].reverse()),
    "no id of what is decided": (1, without("calls", 1, "id")),
    "no id at the provider of what is decided": (1, without("calls", 1, "call_id")),
    "no arguments of what is decided": (1, without("calls", 1, "args")),
    "other arguments of what is decided": (1, put('{"order":1}', "calls", 1, "args")),
    "no digest of what is decided": (1, without("calls", 1, "digest")),
    "another digest of what is decided": (1, put("0" * 64, "calls", 1, "digest")),
    "no time of the row": (1, put(2, "created_at")),
    "another member in place of the time": (2, put("x", "ot")),
    "no end": (3, without("result")),
    "a kind that is none": (3, put("done", "result", "kind")),
    "no content": (3, without("result", "content")),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_to_a_member_is_a_checkpoint_error(name: str) -> None:
    entries = thin_log()
    assert last_of(entries) == replay(entries)[-1]
    place, change = DAMAGE[name]
    data = json.loads(entries[place].body)
    change(data)
    entries[place] = replace(entries[place], body=json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    for read in (last_of, replay):
        with pytest.raises(CheckpointError):
            read(entries)


def test_a_start_without_its_row_is_a_checkpoint_error() -> None:
    entries = thin_log()
    with pytest.raises(CheckpointError, match="no row to say when"):
        replay(entries[2:])
    damaged = replace(entries[2], body=None)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError):
        replay([*entries[:2], damaged])


@pytest.mark.parametrize("damaged", [False, True])
def test_the_key_of_a_result_is_that_of_its_start(damaged: bool, tmp_path: Path) -> None:
    """A fork finds the results of its siblings by their keys, and refuses a log that has a result without a start."""
    store = SQLiteStore(tmp_path / "runs.db")
    agent = desk(store)
    run = agent.invoke("Pay order 3").checkpoint
    if damaged:
        with sqlite3.connect(tmp_path / "runs.db") as db:
            found = db.execute(
                """UPDATE phronomy_log SET body = '{"type":"withdrawn","ids":[]}' WHERE body LIKE '%"started","id":"1.0"%'"""
            )
            assert found.rowcount == 1
    again = agent.fork(store.history(run.id)[1].id)
    if damaged:
        with pytest.raises(CheckpointError, match=r"an end of call 1\.0, and no start of it"):
            agent.resume(again)
        return
    resumed = agent.resume(again).checkpoint
    items = [item for _, item in items_of(whole_lineage(store, branch_id=resumed.branch_id).entries)]
    reused = [item for item in items if isinstance(item, CallSettled) and item.reused]
    assert [each.id for each in reused] == ["1.0", "2.0", "2.2"]
    assert all(each.key for each in reused), "a start in this branch has none"
