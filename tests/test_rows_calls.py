"""A row says which calls of a turn changed, where most did not, and they come back as they were: read either way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phronomy import Agent, MemoryStore, tool
from phronomy.errors import CheckpointError
from phronomy.foundation.ids import new_id
from phronomy.records.calls import Call, CallResult, CallSettled
from phronomy.records.checkpoint import AgentRef, Checkpoint
from phronomy.records.decisions import ToolIdentity
from phronomy.records.messages import told_text
from phronomy.stores import Entry
from phronomy.stores.log import log
from phronomy.stores.log.log import last_of, replay, row_entry
from phronomy.testing import ScriptedModel, call

TOOL = ToolIdentity(name="n", schema_hash="0", gate="never")
AT = datetime(2026, 3, 1, tzinfo=UTC)
IMAGE: Any = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]


def made(number: int, **fields: Any) -> Call:
    ended = {"status": "settled", "tool": TOOL, "args": {}} if "result" in fields else {}
    return Call(id=f"1.{number}", call_id=f"call_{number}", name="n", **ended, **fields)


def result(text: str, *, image: bool = False) -> CallResult:
    return CallResult(kind="completed", content=told_text(IMAGE) if image else text, parts=IMAGE if image else None)


def first(*calls: Call, **fields: Any) -> Checkpoint:
    known = {"run_id": "run1", "branch_id": "run1", "created_at": AT, "agent": AgentRef(name="a")}
    return Checkpoint(**known, id=new_id("ckpt"), original_input="go", calls=calls, **fields)


def following(before: Checkpoint, *calls: Call) -> Checkpoint:
    return before.evolve(id=new_id("ckpt"), parent_id=before.id, step=before.step + 1, calls=calls)


def entries_of(checkpoints: Sequence[Checkpoint]) -> list[Entry]:
    parents = [None, *checkpoints]
    return [row_entry(parent, child, {}) for parent, child in zip(parents, checkpoints, strict=False)]


def damaged(entry: Entry, **fields: Any) -> Entry:
    row = json.loads(entry.body)
    return replace(entry, body=json.dumps({**row, **fields}, separators=(",", ":")))


some_calls = st.lists(st.integers(0, 6), unique=True, max_size=6)
some_fields = st.sampled_from(
    [{}, {"arguments": '{"a":1}'}, {"attempt": 2}, {"result": result("done")}, {"result": result("seen", image=True)}]
)


@st.composite
def turns(draw: st.DrawFn) -> list[Checkpoint]:
    """Calls that change, a few or all of them, come, go, and stand in another order."""
    found = [first(*[made(number) for number in draw(some_calls)])]
    for _ in range(draw(st.integers(1, 7))):
        calls = found[-1].calls
        match draw(st.sampled_from(["change", "change", "change", "new", "order", "same"])):
            case "change":
                at = draw(st.sets(st.integers(0, 6), max_size=3))
                calls = tuple(
                    made(int(each.id[2:]), **draw(some_fields)) if place in at else each
                    for place, each in enumerate(calls)
                )
            case "new":
                calls = tuple(made(number) for number in draw(some_calls))
            case "order":
                calls = tuple(draw(st.permutations(calls)))
        found.append(following(found[-1], *calls))
    return found


@given(turns())
def test_both_readers_give_the_calls_as_they_were(checkpoints: list[Checkpoint]) -> None:
    entries = entries_of(checkpoints)
    assert replay(entries) == checkpoints
    for upto, checkpoint in enumerate(checkpoints, 1):
        assert last_of(entries[:upto]) == checkpoint
        assert last_of(entries[:upto]).model_dump_json() == checkpoint.model_dump_json()
    assert [entry.body for entry in entries_of(replay(entries))] == [entry.body for entry in entries]


def test_a_row_holds_the_calls_that_changed() -> None:
    calls = [made(number) for number in range(6)]
    one = first(*calls)
    two = following(one, *calls[:5], made(5, attempt=2))
    three = following(two, *[made(number, attempt=3) for number in range(4)], *two.calls[4:])
    entries = entries_of([one, two, three])
    rows = [json.loads(entry.body) for entry in entries]
    assert [len(row.get("calls", ())) for row in rows] == [6, 0, 6], "where most changed, all are written"
    assert [each["id"] for each in rows[1]["changed"]] == ["1.5"]
    assert log._put_together(entries[:2]) == two  # without going through the rows one after another
    assert log._put_together(entries) == three


def test_an_image_of_a_call_that_changed_is_stored_once() -> None:
    calls = [made(number) for number in range(4)]
    one = first(*calls)
    seen = result("seen", image=True)
    two = following(one, *calls[:3], made(3, result=seen))
    journal = {"1.3": CallSettled(id="1.3", call_id="call_3", key="k", result=seen)}
    told = log.journal_entry(journal["1.3"], "")
    three = following(two, made(0, attempt=2), *two.calls[1:])
    four = following(three, *three.calls[:3], made(3, attempt=2, result=seen))
    rows = [
        row_entry(None, one, {}),
        told,
        row_entry(one, two, journal),
        row_entry(two, three, {}),
        row_entry(three, four, {}),
    ]
    assert ["AAAA" in row.body for row in rows] == [False, True, False, False, False]
    for upto, checkpoint in ((3, two), (4, three), (5, four)):
        assert last_of(rows[:upto]) == checkpoint == replay(rows[:upto])[-1]
    with pytest.raises(ValueError, match="results of its calls are in other rows"):
        log._put_together(rows[:4])  # the row with the image does not say everything of its calls


def test_a_row_whose_changed_calls_are_not_there_is_a_checkpoint_error() -> None:
    calls = [made(number) for number in range(4)]
    one = first(*calls)
    two = following(one, *calls[:3], made(3, attempt=2))
    begun, changed = entries_of([one, two])
    row = json.loads(changed.body)
    stranger = [{**row["changed"][0], "id": "9.9"}]
    without = json.loads(begun.body)
    del without["calls"]
    for wrong, says in (
        ([begun, damaged(changed, changed=stranger)], "the calls of checkpoint .* cannot be put together"),
        ([begun, damaged(changed, calls=row["changed"])], "what changed in calls that are not there"),
        ([replace(begun, body=json.dumps(without)), changed], "the calls of checkpoint .* cannot be put together"),
        ([changed], "what changed in calls that are not there"),
        ([begun, damaged(changed, changed=[{**row["changed"][0], "status": "no status"}])], "cannot be read"),
        ([begun, damaged(changed, changed=[7])], "cannot be read"),
    ):
        for read in (replay, last_of):
            with pytest.raises(CheckpointError, match=says):
                read(wrong)


def test_what_many_runs_inside_a_turn_store_is_linear_in_their_number() -> None:
    """Each of them stops for an approval, one after the other, and each stop is a checkpoint of the run around them."""

    @tool(requires_approval=True)
    def refund(order: int) -> str:
        """Refund an order."""
        return f"{order} refunded"

    def stored(runs: int) -> int:
        inner = Agent(name="clerk", model=ScriptedModel([call("refund", {"order": 1})] * runs), tools=[refund])
        many = ScriptedModel([[call("clerk", {"input": "go"})] * runs])
        outer = Agent(name="head", model=many, tools=[inner.as_tool()], store=MemoryStore(), max_parallel=1)
        found = outer.invoke("go")
        assert len(found.checkpoint.pending) == runs
        return sum(len(entry.body) for entry in outer.store.lineage(checkpoint_id=found.checkpoint.id).entries)

    assert stored(40) < 4.2 * stored(10)
