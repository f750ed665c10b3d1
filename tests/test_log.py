"""A log is put together to its last checkpoint as it is read row by row, and damage in it is a typed error or a checkpoint."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selection import scaled

from phronomy import Agent, SQLiteStore, tool
from phronomy.errors import CheckpointError
from phronomy.foundation import json_text
from phronomy.foundation.json_text import canonical, is_canonical, parse
from phronomy.records.calls import Call, CallFailed, CallResult, CallSettled, CallStarted, Finished, Replied
from phronomy.records.checkpoint import AgentRef, Checkpoint, pending_of, result_message
from phronomy.records.decisions import Decision, ToolIdentity, call_digest
from phronomy.records.messages import Message, ToolCall, Usage
from phronomy.records.record import Record
from phronomy.stores.log import log
from phronomy.stores.log.kept_members import digest_of_text, named
from phronomy.stores.log.log import items_of, journal_entry, last_of, replay, row_entry, rows_of
from phronomy.stores.log.row_delta import outcome_from
from phronomy.stores.rows import Entry
from phronomy.testing import ScriptedModel, call

AT = datetime(2026, 3, 1, tzinfo=UTC)
PAY = ToolIdentity(name="pay", schema_hash="h" * 64, gate="always")
FINGERPRINT = {"tools": {"pay": ["h" * 64, "always"]}, "model": 'a "model"'}
TEXTS = ("", "plain", 'say "ref" and "ended":"x"', "Grüße, \u2028 \\ \x07", '{"type":"settled"}', "🜁" * 3)


class Writing:
    """A log as workers write it, with what is picked for it: turns, results, nested runs, edits, forks, the thread's next run."""

    def __init__(self, pick: Callable[[Sequence[Any]], Any]) -> None:
        self.pick = pick
        self.entries: list[Entry] = []
        self.tips: dict[str, Checkpoint] = {}
        self.settled: dict[str, dict[str, CallSettled]] = {}
        self.made = 0
        self.begin("run0", messages=(Message(role="user", content=self.text()),))

    def text(self) -> str:
        return self.pick(TEXTS)

    def begin(self, run_id: str, path: str = "", **fields: Any) -> None:
        before = self.tips.get(path) if path == "" else None
        first = Checkpoint(
            **{"id": self.id(), "run_id": run_id, "path": path, "created_at": AT},
            branch_id=self.tips[""].branch_id if path else run_id,
            **{
                "agent": AgentRef(name=self.text(), fingerprint=FINGERPRINT),
                "original_input": self.text(),
                "thread_id": "t",
            },
            **{"parent_id": before.id if before else None, "metadata": {"b": 1, "a": 5.0}},
            **fields,
        )
        if path == "":
            self.tips, self.settled = {}, {}
        self.write(before, first)

    def id(self) -> str:
        self.made += 1
        return f"c{self.made}"

    def write(self, before: Checkpoint | None, now: Checkpoint) -> None:
        self.entries.append(
            replace(row_entry(before, now, self.settled.pop(now.path, {})), branch_id=now.branch_id, seq=self.made)
        )
        self.tips[now.path] = now

    def seal(self, path: str, **changes: Any) -> None:
        before = self.tips[path]
        at = AT + timedelta(seconds=self.made)
        new = {"id": self.id(), "parent_id": before.id, "step": before.step + 1, "label": None, "created_at": at}
        self.write(before, before.evolve(**new | changes))

    def journal(self, path: str, outcome: Any) -> None:
        self.entries.append(journal_entry(outcome, path))
        if isinstance(outcome, CallSettled):
            self.settled.setdefault(path, {})[outcome.id] = outcome

    def step(self) -> None:
        path = self.pick(sorted(self.tips))
        kinds = ["turn"] * 3 + ["other", "cut", "nest", "end", "fork", "next", "decide", "label", "state", "state"]
        getattr(self, self.pick(kinds))(path)

    # What may happen

    def turn(self, path: str) -> None:
        """The model asks for calls, they run side by side, and their results are sealed."""
        tip = self.tips[path]
        number = tip.turn + 1
        ids = [f"{number}.{place}" for place in range(self.pick(range(4)))]
        asked = tuple(ToolCall(id=f"call{id}", name="pay", arguments=self.text()) for id in ids)
        content: Any = self.pick([None, self.text(), [{"type": "text", "text": self.text()}]])
        extra = self.pick([{}, {"thinking": [1.0, self.text()]}])
        said = Message(role="assistant", content=content, tool_calls=asked, provider=extra)
        ready = tuple(self.call(id, status="ready") for id in ids)
        usage = Usage(requests=number, input_tokens=7, cost=self.pick([None, 0.5]))
        self.seal(path, messages=(*tip.messages, said), turn=number, calls=ready, usage=usage)
        results = []
        for id in ids:
            self.journal(path, CallStarted(id=id, attempt=1, at=AT))
            result = CallResult(kind="completed", content=self.text())
            self.journal(path, CallSettled(id=id, call_id=f"call{id}", key="k", result=result, usage=usage))
            if self.pick((False, True)):
                result = result.evolve(content="another: edited since")
            results.append(result_message(f"call{id}", result))
        if ids and self.pick((False, True)):
            self.seal(path, messages=(*self.tips[path].messages, *results), calls=())

    def call(self, id: str, **fields: Any) -> Call:
        known = {"id": id, "call_id": f"call{id}", "name": "pay", "tool": PAY, "args": canonical({"amount": 5.0})}
        return Call(**{**known, "digest": call_digest(PAY, canonical({"amount": 5.0})), **fields})

    def other(self, path: str) -> None:
        self.journal(path, CallFailed(id="9.9", error=self.text(), next="model"))
        self.journal(path, Replied(message=Message(role="assistant", content=self.text())))

    def cut(self, path: str) -> None:
        tip = self.tips[path]
        keep = self.pick(range(len(tip.messages) + 1))
        self.seal(path, messages=tip.messages[:keep], decisions=tip.decisions[:keep])

    def nest(self, path: str) -> None:
        """A call stops for a run of its own, which may be another than the last at its place."""
        id = self.pick(["1.0", "1.1"])
        inner = f"{path}/{id}".lstrip("/")
        waits = self.call("5.0", status="pending", pending_id=f"p{self.made}", requested_at=AT)
        self.begin(self.tips[path].run_id, inner, calls=(waits,))
        if self.pick((False, True)):
            self.seal(path, calls=(self.call(id, status="nested", waiting=(pending_of(waits, inner),)),))

    def end(self, path: str) -> None:
        if self.pick((False, True)):
            self.journal(path, Finished(status="completed"))
        self.seal(path, ended="completed", output=canonical(self.text()))

    def fork(self, path: str) -> None:
        branch = f"branch{self.made}"
        for each in [inner for inner in self.tips if inner] + [""]:
            if each == "" or self.pick((False, True)):
                self.settled.pop(each, None)
                self.seal(each, branch_id=branch, salt=branch)

    def next(self, path: str) -> None:
        asked = Message(role="user", content=self.text())
        self.begin(f"run{self.made}", messages=(*self.tips[""].messages, asked))

    def decide(self, path: str) -> None:
        decision = Decision(pending_id=f"p{self.made}", digest="d", kind="approve", at=AT, args={"amount": 1})
        self.seal(path, decisions=(*self.tips[path].decisions, decision))

    def label(self, path: str) -> None:
        self.seal(path, label=self.text(), blocked=("d",), state=canonical({"note": self.text()}))

    def state(self, path: str) -> None:
        """The state grows, or changes in places, or is another."""
        state = self.tips[path].state or {}
        seen = {**state, "seen": [*state.get("seen", ()), self.text()], "ended": self.text()}
        self.seal(path, state=canonical(self.pick([seen, seen, {**seen, "note": [1.0]}, {"seen": []}, None])))


@st.composite
def logs(draw: st.DrawFn, most: int = 12) -> list[Entry]:
    writing = Writing(lambda options: draw(st.sampled_from(options)))
    for _ in range(draw(st.integers(1, most))):
        writing.step()
    return writing.entries


@settings(deadline=None, max_examples=scaled(30, sweep=120))
@given(logs())
def test_a_log_is_put_together_as_it_is_read_row_by_row(entries: list[Entry]) -> None:
    for upto in range(1, len(entries) + 1):
        together = log._put_together(entries[:upto])
        one_by_one = replay(entries[:upto])[-1]
        assert together == one_by_one
        assert together.model_dump_json() == one_by_one.model_dump_json()
        assert last_of(entries[:upto]) == one_by_one


@settings(deadline=None, max_examples=scaled(30, sweep=120))
@given(logs())
def test_rows_that_name_what_the_store_keeps_say_the_same(entries: list[Entry]) -> None:
    """And so do those that name it after rows that do not, as an earlier release has written them."""
    texts: dict[str, str] = {}

    def naming(text: str) -> bool:
        texts[digest_of_text(text)] = text
        return True

    for place in (0, len(entries) // 2):
        less = [
            *entries[:place],
            *(replace(each, body=named(each.body, naming)) if each.checkpoint_id else each for each in entries[place:]),
        ]
        assert last_of(less, texts.__getitem__) == last_of(entries)
        assert replay(less, texts.__getitem__) == replay(entries)


def sample(seed: int) -> list[Entry]:
    """A log that always is the same for a seed."""
    writing = Writing(random.Random(seed).choice)
    for _ in range(8):
        writing.step()
    return writing.entries


# Damage


def damaged(body: str, chance: random.Random) -> str:
    """The text with some of it changed, moved, or gone."""
    place = chance.randrange(len(body))
    upto = min(len(body), place + chance.randint(1, 6))
    match chance.randrange(6):
        case 0:
            return body[:place] + chr(chance.randrange(1, 127)) + body[place + 1 :]
        case 1:
            return body[:place] + body[upto:]
        case 2:
            return body[:place] + body[place:upto] * 2 + body[upto:]
        case 3:
            old = chance.choice(["null", "[]", "{}", "true", '"ready"', "1", '"messages"', '"calls"', "id"])
            return body.replace(old, chance.choice(["NaN", "1e999", "-1", '"x"', "null", "[]", '"\\ud800"', "[[]]"]), 1)
        case 4:
            return (
                body[:place]
                + chance.choice(['"', "\\", "{", "}", "[", "]", ",", ":", "\x00", "\\u0041"])
                + body[place:]
            )
        case _:
            names = [
                "messages",
                "decisions",
                "cut",
                "state",
                "patch",
                "calls",
                "run_id",
                "agent",
                "content",
                "args",
                "version",
                "ended",
            ]
            return body.replace(f'"{chance.choice(names)}"', f'"{chance.choice(names)}"', 1)


def all_of(record: Record) -> Iterator[Any]:
    """Every field of a record, and of the records in it."""
    for name in type(record).model_fields:
        value = getattr(record, name)
        yield value
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, Record):
                yield from all_of(inner)


def test_a_damaged_row_gives_a_checkpoint_that_can_be_read_or_a_checkpoint_error() -> None:
    chance = random.Random(11)
    outcomes = {"read": 0, "refused": 0}
    samples = [sample(seed) for seed in range(20)]
    many = scaled(600, sweep=3000)
    for _ in range(many):
        entries = list(chance.choice(samples))
        for _ in range(chance.randint(1, 2)):
            place = chance.randrange(len(entries))
            entries[place] = replace(entries[place], body=damaged(entries[place].body, chance))
        for read in (last_of, lambda found: replay(found)[-1]):
            try:
                found = read(entries)
            except CheckpointError:
                outcomes["refused"] += 1
                continue
            outcomes["read"] += 1
            assert len(list(all_of(found))) > 30
            assert all(isinstance(message.text, str) for message in found.messages)
            assert len(found.pending) >= 0
            assert Checkpoint.model_validate_json(found.model_dump_json()) == found
    assert min(outcomes.values()) > many / 6


def row(body: str, id: str = "c9", path: str = "") -> Entry:
    return Entry(path=path, body=body, checkpoint_id=id)


def test_rows_that_are_written_in_another_way_are_read_one_by_one() -> None:
    """What a person wrote by hand, with spaces or in another order, is no error; a body that is no text is."""
    entries = sample(3)
    spaced = [replace(entry, body=entry.body.replace('{"type":', '{ "type":', 1)) for entry in entries]
    assert spaced != entries
    assert last_of(spaced) == last_of(entries)
    with pytest.raises(CheckpointError):
        last_of([*entries, row(None)])  # type: ignore[arg-type]
    assert last_of([replace(entries[0], body=entries[0].body.encode())]) == last_of(entries[:1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('{"messages":[{"ref":"8.8"}]}', "refers to the result of call 8.8, which is not in the journal"),
        ('{"version":2}', "version: Input should be 1"),
        ('{"turn":1},{"turn":2}', "Invalid JSON"),
        ("[]", "Input should be an object"),
        ('{"patch":"{}"}', "the state of checkpoint c9 cannot be put together: the JSON text is not an object"),
        ('{"patch":"{}","state":"{}"}', "the row of checkpoint c9 says what changed in a state that is not there"),
        ('{"patch":{}}', "patch: Input should be a valid string"),
        ('{"turn":1,"sum":1}', "sum: Extra inputs are not permitted"),
        ('{"turn":"1"}', "turn: Input should be a valid integer"),
        ('{"messages":[{"role":"user","content":"no json"}]}', "not JSON"),
        ('{"messages":[{"role":"user","content":"\\"\\\\u0041\\""}]}', "not in canonical form"),
        ('{"messages":[{"role":"user","content":"5"}]}', "content is text, a list of content parts, or null"),
        ('{"run_id":5}', "run_id: Input should be a valid string"),
        ("{", "Invalid JSON"),
    ],
)
def test_the_error_for_a_row_says_what_is_wrong_with_it(body: str, why: str) -> None:
    first = sample(1)[:1]
    with pytest.raises(CheckpointError, match=rf"{why}.*\(checkpoint c9\)$"):
        last_of([*first, row(body)])
    with pytest.raises(CheckpointError, match="what it goes on from is missing"):
        last_of([row('{"turn":1}')])
    with pytest.raises(CheckpointError, match="the log holds no checkpoint"):
        last_of([])


@pytest.mark.parametrize(
    "body", ['{"type":"no type","note":"s3cret"}', '{"version":"s3cret"}', '"s3cret', "s3cret", b"s3cret"]
)
def test_an_error_for_an_entry_says_where_in_the_log_it_is_and_quotes_nothing(body: Any) -> None:
    entries = [replace(entry, branch_id="run0", seq=seq) for seq, entry in enumerate(sample(4), 1)]
    for place, entry in enumerate(entries):
        damaged = [*entries[:place], replace(entry, body=body), *entries[place + 1 :]]
        what = f"journal entry {entry.seq}" if entry.checkpoint_id is None else f"checkpoint {entry.checkpoint_id}"
        readers: list[Callable[[], object]] = [
            lambda damaged=damaged: replay(damaged),  # type: ignore[misc]
            lambda damaged=damaged: list(items_of(damaged)),  # type: ignore[misc]
            # Of a row that others follow, the last checkpoint may need nothing.
            lambda damaged=damaged, place=place: last_of(damaged[: place + 1]),  # type: ignore[misc]
        ]
        for read in readers:
            with pytest.raises(CheckpointError, match=rf"\({what} of branch run0\)$") as refused:
                read()
            assert "s3cret" not in str(refused.value)
    begun = [entry for entry in entries if entry.checkpoint_id is None]
    with pytest.raises(CheckpointError, match=r"^the log holds no checkpoint \(branch run0\)$"):
        replay(begun)
    for read_log in (replay, last_of):  # nothing in an empty log says whose it is
        with pytest.raises(CheckpointError, match=r"^the log holds no checkpoint \(branch run0\)$"):
            read_log([], branch_id="run0")


def test_whoever_reads_a_damaged_log_is_told_the_place(tmp_path: Path) -> None:
    """Arguments that are not canonical, in a row; and an entry of the journal that is none, in another branch of the run."""

    def pay(order: int) -> str:
        """Pay an order."""
        return "paid"

    def changed(statement: str) -> None:
        with closing(sqlite3.connect(tmp_path / "runs.db")) as db, db:
            assert db.execute(statement).rowcount == 1

    store = SQLiteStore(tmp_path / "runs.db")
    model = ScriptedModel.by_turn([call("pay", {"order": 1}), "Done."])
    agent = Agent(name="desk", model=model, tools=[tool(requires_approval=True)(pay)], store=store)
    asked = agent.invoke("Pay", thread_id="t").checkpoint
    fork = agent.fork(asked)
    agent.resume(asked, approved=True)
    changed('UPDATE phronomy_log SET body = \'{"type":"s3cret"}\' WHERE body LIKE \'{"type":"settled"%\'')
    with pytest.raises(CheckpointError, match=rf"\(journal entry \d+ of branch {asked.branch_id}\)$") as refused:
        agent.resume(fork, approved=True)
    assert "s3cret" not in str(refused.value)

    other = agent.invoke("Pay", thread_id="u").checkpoint
    spaced = "replace(body, '{\\\"order\\\":1}', '{\\\"order\\\": 1}')"
    changed(f"UPDATE phronomy_log SET body = {spaced} WHERE checkpoint_id = '{other.id}'")
    place = rf"not in canonical form \(checkpoint {other.id} of branch {other.branch_id}\)$"
    for read in (
        lambda: store.load(other.id),
        lambda: store.history(other.id),
        lambda: store.head(other.run_id),
        lambda: asyncio.run(store.aload(other.id)),
        lambda: agent.resume(other.id, approved=True),
        lambda: agent.recover(other.run_id),
        lambda: agent.fork(other.id),
    ):
        with pytest.raises(CheckpointError, match=place):
            read()


def test_a_first_row_without_all_that_it_needs_is_refused() -> None:
    (first,) = sample(1)[:1]
    silent = first.body.replace('"role":"user"', '"role":"assistant"', 1)  # its first message is no input
    for name in ("agent", "run_id", "created_at", "original_input"):
        assert f'"{name}":' in silent
        body = silent.replace(f'"{name}":', '"output":' if name == "original_input" else '"salt":', 1)
        with pytest.raises(CheckpointError):
            last_of([replace(first, body=body)])
    less = silent.replace('"original_input":', '"output":', 1)
    with pytest.raises(CheckpointError, match="what it goes on from is missing"):
        list(rows_of([replace(first, body=less)]))


@pytest.mark.parametrize("other", [{}, {"branch_id": "b"}, {"original_input": "more"}], ids=str)
def test_a_first_row_says_once_what_it_would_say_twice(other: dict[str, Any]) -> None:
    """The branch of a run has its id, and its first message is its input: only what is otherwise is in the row."""
    said = Message(role="user", content="go")
    fields: dict[str, Any] = {"branch_id": "run", "original_input": "go"} | other
    first = Checkpoint(id="c", run_id="run", created_at=AT, agent=AgentRef(name="a"), messages=(said,), **fields)
    entries = [row_entry(None, first, {}), journal_entry(CallStarted(id="1.0", attempt=1, at=AT), "")]
    assert [name for name in fields if f'"{name}":' in entries[0].body] == [*other]
    assert last_of(entries) == replay(entries)[-1] == first.evolve(journal=(outcome_from(entries[1].body),))


def test_what_a_later_row_replaced_is_not_looked_at() -> None:
    """A long conversation is read for what was said; the calls of its past turns have their results in it."""
    entries = sample(3)[:1]
    (begun,) = rows_of(entries)
    past = '{"calls":[{"id":"1.0"}],"messages":[{"role":"user","content":"\\"and?\\""}]}'
    log_of_one = [*entries, row(past, "c8"), row('{"calls":[],"turn":1}')]
    found = last_of(log_of_one)
    assert [message.text for message in found.messages[len(begun.messages) :]] == ["and?"]
    assert (found.calls, found.turn, found.parent_id) == ((), 1, "c8")
    with pytest.raises(CheckpointError):
        replay(log_of_one)
    with pytest.raises(CheckpointError):
        last_of(log_of_one[:2])


def test_nested_runs_count_while_they_live_or_their_call_waits() -> None:
    """One that ended is over even if its last row does not say so; while its call is open it is kept."""
    writing = Writing(random.Random(1).choice)
    writing.begin("run0", "1.0")
    writing.begin("run0", "1.1")
    writing.seal("1.0", ended="completed")
    assert [part.path for part in last_of(writing.entries).nested] == ["1.1"]
    writing.seal("1.0", label="after the end")
    assert [part.path for part in last_of(writing.entries).nested] == ["1.1"]
    writing.seal("", calls=(writing.call("1.0", status="ready"),))
    assert [(part.path, part.label) for part in last_of(writing.entries).nested] == [
        ("1.0", "after the end"),
        ("1.1", None),
    ]
    writing.seal("", calls=())
    writing.seal("1.1", ended="completed")
    assert (
        last_of([*writing.entries, row("no json", path="1.0"), row('{"ended":"completed"}', path="1.0")]).nested == ()
    )


# Canonical text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_canonical_text_of_a_string_is_seen_at_a_glance(value: str) -> None:
    text = canonical(value)
    assert is_canonical(text)
    assert Message.model_validate_json(Message(role="user", content=value).model_dump_json()).content == value
    assert not is_canonical(text + " ")
    assert not is_canonical(text[:-1])
    assert not is_canonical(text + '"')


@pytest.mark.parametrize(
    "text",
    [
        *("5", "5.0", "-1", "true", "null", "{}", '["a"]', '{"b":[1.5],"a":{"c":null}}', '"[["', '{"":""}', '{"a":0}'),
        *('{"a":"[{","b":true}', '{"a":"a","b":"a","c":-10}', '{"a":"x,",":b":1,"b":null}', f'{{"a":{"1" * 30}}}'),
        "{" + ",".join(f'"{key}":{key}' for key in range(100)) + "}",
    ],
)
def test_canonical_text_of_any_value_is_seen_at_a_glance(text: str) -> None:
    assert is_canonical(text)
    assert canonical(parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", '"\\u0041"', '"\\/"', '"\\ud800"', '"\ud800"', '"\t"', '"a"b"', '"a","b"'),
        *("NaN", "[NaN]", "1e400", '{"a":-1e999}', "-0", "1E2", "05", "5 ", "[1, 2]", '{"a": 1}', "{} {}"),
        *('{"a":-0}', '{"a":05}', '{"a":1,}', '{"a":1 }', '{"a":"\t"}', '{"a":"\\u0041"}', '{"a":1,"b":"\ud800"}'),
        *('{"a":"x,",":b":1,":b":2}', '{"a":1,"b":1,"a":1}', '{"a":1}{"b":1}', '{"a":nul}', '{"a":"b":1}', "{1:1}"),
        *('{"a":1,"a":1}', '{"a":{"b":1,"b":2}}', '{"\\u0061":1}', '["\\ud800"]', '{"\ud800":1}'),
        *("[" * 65 + "]" * 65, "1" * 5000, "nul", "[1,]", "{'a':1}"),
    ],
)
def test_text_that_is_not_canonical_is_looked_at_longer(text: str) -> None:
    assert not is_canonical(text)


PARTS = [
    '"',
    '"a"',
    '"b"',
    '"a":1',
    ',"b":"a"',
    ":",
    ",",
    "{",
    "}",
    "[",
    "]",
    "0",
    "1",
    "-",
    ".5",
    "true",
    " ",
    "\\",
    "\t",
    "é",
]


@given(st.lists(st.sampled_from(PARTS), max_size=8), st.booleans())
def test_what_is_seen_at_a_glance_is_written_as_it_was_read(parts: list[str], is_object: bool) -> None:
    text = "".join(["{", *parts, "}"] if is_object else parts)
    if is_canonical(text):
        assert canonical(parse(text)) == text


def test_text_over_the_limit_is_looked_at_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "MAX_BYTES", 6)
    assert is_canonical('"1234"')
    assert not is_canonical('"12345"')


def test_a_lone_surrogate_is_replaced_in_python_and_refused_in_json() -> None:
    asked = ToolCall(id="\ud800", name="é\udfff", arguments="x")
    assert (asked.id, asked.name) == ("\ufffd", "é\ufffd")
    with pytest.raises(CheckpointError):
        outcome_from('{"type":"failed","id":"1.0","error":"\\ud800","next":"model"}')
    assert outcome_from('{"type":"failed","id":"1.0","error":"\\ud83d\\ude00","next":"model"}').error == "😀"  # type: ignore[union-attr]
