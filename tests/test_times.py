"""Times in records have a zone, and can be written in every other: what cannot is refused where it comes in, by a typed error."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from drivers import DRIVERS, SYNC, Driver
from places import Place

from phronomy import Agent, Approve, Checkpoint, CheckpointError, ConfigurationError, MemoryStore, StoreError, tool
from phronomy.cli.words import time_of, who_decided
from phronomy.observability.drawings.drawing import tree_svg
from phronomy.observability.events import event_from, replay
from phronomy.observability.timeline import Timeline, timeline
from phronomy.records.calls import CallResult, CallSettled, CallStarted
from phronomy.records.checkpoint import encode
from phronomy.records.record import later
from phronomy.records.validation import validate_checkpoint
from phronomy.stores import Append, AuditRow, Branch
from phronomy.stores.log.log import as_sealed, journal_entry, pending_rows, row_entry
from phronomy.testing import ScriptedModel, call

AT = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)

ODD = (
    "0001-01-01T00:00:00",
    "2026-11-23T09:30:00",
    "9999-12-31T23:59:59",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-14:00",
)
"""Without a zone, or in a year that there is not in every zone."""


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


def desk(driver: Driver, store: Any = None, **options: Any) -> Agent[Any, str]:
    def pay(order: int) -> str:
        """Pay an order."""
        return "paid"

    gated = tool(requires_approval=True)(driver.function(pay))
    model = ScriptedModel.by_turn([call("pay", {"order": 1}), "Done."])
    return Agent(name="desk", model=model, tools=[gated], store=store or MemoryStore(), **options)


def asked() -> Checkpoint:
    """A checkpoint with every kind of time in it: of itself, a request, a decision, and what was journaled."""
    agent = desk(SYNC, approval_timeout=60)
    waiting = agent.invoke("Pay").checkpoint
    at = agent.resume(waiting, approved=True).checkpoint.decisions
    started = CallStarted(id=waiting.calls[0].id, attempt=1, key="k", at=AT)
    return waiting.evolve(decisions=at, journal=(started,))


WHERE = ("created_at", "requested_at", "expires_at", "decided", "journal")


def with_time(where: str, at: datetime) -> Checkpoint:
    """The checkpoint with another time in that place, put there by force."""
    found = asked()
    (waits,), (decision,), (started,) = found.calls, found.decisions, found.journal
    changes: dict[str, Any] = {
        "created_at": {"created_at": at},
        "requested_at": {"calls": (waits.evolve(requested_at=at),)},
        "expires_at": {"calls": (waits.evolve(expires_at=at),)},
        "decided": {"decisions": (decision.evolve(at=at),)},
        "journal": {"journal": (started.evolve(at=at),)},
    }
    return found.evolve(**changes[where])


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("where", WHERE)
def test_a_text_with_such_a_time_is_no_checkpoint(driver: Driver, where: str, odd: str) -> None:
    given = with_time(where, datetime.fromisoformat(odd))
    text = encode(given)
    for read in (
        lambda: Checkpoint.model_validate_json(text),
        lambda: Checkpoint.model_validate(json.loads(text)),
        lambda: MemoryStore().save(given),
        lambda: driver.resume(desk(driver, trust="bearer"), given, decisions={given.pending[0].id: Approve()}),
        lambda: desk(driver).stopped_at(given),
    ):
        with pytest.raises(CheckpointError, match=r"Input should (have timezone info|be (less|greater) than)"):
            read()
    assert "should" in str(validate_checkpoint(text)[0])


@pytest.mark.parametrize("edge", ["0001-01-02T00:00:00Z", "9999-12-29T22:59:59-01:00", "2026-11-23T09:30:00+14:00"])
@pytest.mark.parametrize("where", WHERE)
def test_any_other_time_is_one_and_does_everywhere(where: str, edge: str) -> None:
    at = datetime.fromisoformat(edge)
    given = with_time(where, at)
    assert Checkpoint.model_validate_json(encode(given)) == given
    store = MemoryStore()
    store.save(given)
    assert timeline(store, given.run_id).entries != () and [*replay(store, given.run_id)]
    assert tree_svg(store, given.run_id)
    assert [info.id for info in store.list()] == [given.id]
    assert time_of(at) == f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    assert f"{at.astimezone(UTC):%H:%M:%S} UTC" in who_decided(given.decisions[0].evolve(at=at))


@pytest.mark.parametrize("odd", ODD)
def test_a_row_with_such_a_time_is_a_typed_error(place: Place, odd: str) -> None:
    """Wherever it is read: a log, its journal, what is pending, the audit trail."""
    store, at = place.open(), datetime.fromisoformat(odd)
    for number, where in enumerate(("created_at", "journal", "pending", "audit")):
        given = as_sealed(asked()).evolve(run_id=f"b{number}", branch_id=f"b{number}")
        branch = Branch.of(given)
        row, journal = row_entry(None, given, {}), journal_entry(asked().journal[0], "")
        waits, *_ = pending_rows(given, None)
        line = AuditRow(at=1.0, run_id=branch.run_id, thread_id=None, pending_id=None, body=audit_text(AT.isoformat()))
        if where == "created_at":
            row = row_entry(None, given.evolve(created_at=at), {})
        elif where == "journal":
            journal = journal_entry(asked().journal[0].evolve(at=at), "")
        elif where == "pending":
            waits = replace(waits, body=given.pending[0].evolve(requested_at=at).model_dump_json())
        else:
            line = replace(line, body=audit_text(odd))
        change = Append(
            branch_id=branch.id,
            seq=0,
            entries=(replace(row, checkpoint_id=f"c{number}"), journal),
            head=f"c{number}",
            status="suspended",
            opened=(replace(waits, pending_id=f"p{number}"),),
            audit=(line,),
        )
        store.create(branch, change, exclusive=False)
    for read in (
        lambda: store.load("c0"),
        lambda: store.history("c0"),
        lambda: timeline(store, "b0"),
        lambda: [*replay(store, "b0")],
        lambda: tree_svg(store, "b0"),
        lambda: desk(SYNC, store).resume("c0", approved=True),
        lambda: store.load("c1"),
        lambda: timeline(store, "b1"),
        lambda: desk(SYNC, store).resume("c1", approved=True),
    ):
        with pytest.raises(CheckpointError):
            read()
    for listed in (store.list(run_id="b0"), store.pending(run_id="b2")):
        (damaged,) = listed.unreadable
        assert len(listed) == 0
        assert " cannot be read" in str(damaged)
    assert [line.kind for line in store.audit(run_id="b3")] == ["unreadable"]
    assert store.load("c3").created_at is not None


def audit_text(at: str) -> str:
    """A line of the audit trail."""
    known = {"run_id": "r", "branch_id": "b", "checkpoint_id": "c", "agent": "desk", "kind": "approve"}
    return json.dumps({"version": 1, "at": at, **known})


def test_what_is_told_of_a_run_has_such_times_alone() -> None:
    store = MemoryStore()
    agent = desk(SYNC, store)
    agent.resume(agent.invoke("Pay").checkpoint, approved=True)
    run_id = store.branches()[0].id
    (started,) = (event for event in replay(store, run_id) if event.type == "tool_call_started")
    for odd in ODD:
        with pytest.raises(ConfigurationError):
            event_from(started.model_dump_json().replace(started.model_dump(mode="json")["at"], odd))
        data = json.loads(timeline(store, run_id).export())
        data["entries"][0]["at"] = odd
        with pytest.raises(ConfigurationError, match="entry 0 of the timeline is malformed"):
            Timeline.load(json.dumps(data))


def test_a_call_that_took_longer_than_there_is_time_ends_the_timeline_late() -> None:
    given = asked()
    paid = CallResult(kind="completed", content="paid")
    result = CallSettled(id=given.calls[0].id, call_id="c", key="k", result=paid, elapsed=10**400)
    store = MemoryStore()
    store.save(given.evolve(journal=(*given.journal, result)))
    (entry,) = timeline(store, given.run_id).query("tool_settled")
    assert entry.at == later(AT, days=10**9) == datetime(9999, 12, 30, tzinfo=UTC)


def test_an_approval_that_may_wait_for_longer_than_there_is_time_waits_until_the_end_of_it(driver: Driver) -> None:
    agent = desk(driver, approval_timeout=1e300)
    waiting = driver.invoke(agent, "Pay").checkpoint
    assert waiting.pending[0].expires_at == datetime(9999, 12, 30, tzinfo=UTC)
    assert driver.resume(agent, waiting, approved=True).output == "Done."


def test_what_is_looked_for_has_a_zone_that_says_when() -> None:
    class Nowhere(tzinfo):
        """A zone that knows of no offset: a time in it has none."""

        def utcoffset(self, at: datetime | None) -> timedelta | None:
            return None

        dst = utcoffset

        def tzname(self, at: datetime | None) -> str | None:
            return None

    at = datetime(1, 1, 1, tzinfo=Nowhere())
    with pytest.raises(ConfigurationError, match="with a time zone"):
        Timeline(run_id="r", branch_id="b").query(since=at)
    with pytest.raises(StoreError, match="with a time zone"):
        MemoryStore().audit(since=at)
    early = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
    assert Timeline(run_id="r", branch_id="b").query(since=early) == ()
    assert [*MemoryStore().audit(since=early)] == []
