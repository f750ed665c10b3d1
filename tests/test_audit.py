"""The audit trail: who decided what, when, through which channel, why, and the digest of what was shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from drivers import STORES, Driver, open_kind

from phronomy import Agent, AuditRecord, Principal, tool
from phronomy.approvals import Approve, Reject, Respond
from phronomy.errors import CheckpointAlreadyResumed
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call, say


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_kind(request.param, tmp_path)


def desk(driver: Driver, store: Store, *replies: Any, **options: Any) -> Agent[Any, str]:
    def refund(order: int, card: str = "") -> str:
        """Refund an order."""
        return f"refunded {order}"

    gated = tool(requires_approval=True, risk="money", redact=["card"])(driver.function(refund))
    return Agent(name="desk", model=ScriptedModel([*replies]), tools=[gated], store=store, **options)


def refund(order: int, **args: Any) -> Any:
    return call("refund", {"order": order, **args}, id=f"call_{order}")


def test_a_decision_leaves_a_line_with_who_when_how_and_what_was_shown(driver: Driver, store: Store) -> None:
    agent = desk(driver, store, say("", refund(1042)), "Done.")
    suspended = driver.invoke(agent, "Refund 1042", thread_id="t-1")
    (asked,) = suspended.checkpoint.pending
    assert list(store.audit()) == []
    alice = Principal(id="u-7", name="Alice")
    driver.resume(agent, suspended.checkpoint, approved=True, by=alice, channel="slack")
    (line,) = store.audit()
    assert line == AuditRecord(
        at=line.at,
        kind="approve",
        by=alice,
        channel="slack",
        run_id=suspended.run_id,
        thread_id="t-1",
        branch_id=suspended.run_id,
        checkpoint_id=suspended.checkpoint.id,
        agent="desk",
        pending_id=asked.id,
        tool_name="refund",
        digest=asked.digest,
    )


def test_each_kind_of_decision_is_told_apart(driver: Driver, store: Store) -> None:
    agent = desk(driver, store, say("", refund(1), refund(2), refund(3), refund(4)), "Done.")
    suspended = driver.invoke(agent, "Refund them")
    ids = [item.id for item in suspended.checkpoint.pending]
    decisions = {
        ids[0]: Approve(args={"order": 11}),
        ids[1]: Reject(reason="not ours"),
        ids[2]: Respond(content="it was refunded"),
        ids[3]: Approve(),
    }
    driver.resume(agent, suspended.checkpoint, decisions=decisions, by="bob")
    lines = [(line.pending_id, line.kind, line.edited, line.reason) for line in store.audit()]
    assert lines == [
        (ids[0], "approve", True, None),
        (ids[1], "reject", False, "not ours"),
        (ids[2], "respond", False, None),
        (ids[3], "approve", False, None),
    ]


def test_a_decision_that_lost_leaves_no_line(driver: Driver, store: Store) -> None:
    agent = desk(driver, store, say("", refund(1)), "Done.")
    suspended = driver.invoke(agent, "Refund 1")
    driver.resume(agent, suspended.checkpoint, approved=False, by="alice")
    with pytest.raises(CheckpointAlreadyResumed):
        driver.resume(agent, suspended.checkpoint, approved=True, by="mallory")
    assert [line.by.id for line in store.audit() if line.by is not None] == ["alice"]


def test_whoever_cancels_or_supersedes_is_in_it(driver: Driver, store: Store) -> None:
    agent = desk(driver, store, say("", refund(1)), say("", refund(2)), "Hello.")
    first = driver.invoke(agent, "Refund 1", thread_id="t-1")
    driver.cancel(agent, first.checkpoint, by="alice", reason="a mistake")
    driver.invoke(agent, "Refund 2", thread_id="t-1")
    driver.invoke(agent, "Never mind", thread_id="t-1", on_pending="supersede")
    lines = list(store.audit())
    assert [(line.kind, line.reason) for line in lines] == [("cancel", "a mistake"), ("supersede", None)]
    assert lines[0].by == Principal(id="alice") and lines[0].pending_id is None


def test_a_handler_is_in_it_too(driver: Driver, store: Store) -> None:
    handler = driver.function(lambda name, args: True)
    agent = desk(driver, store, say("", refund(1)), "Done.", on_approval_required=handler)
    driver.invoke(agent, "Refund 1")
    (line,) = store.audit()
    assert (line.kind, line.channel, line.tool_name) == ("approve", "handler", "refund")


def test_it_is_read_by_run_thread_pending_and_time_and_exported_as_json_lines(driver: Driver, store: Store) -> None:
    agent = desk(driver, store, say("", refund(1)), "Done.", say("", refund(2)), "Done.")
    runs = []
    for thread in ("a", "b"):
        suspended = driver.invoke(agent, "Refund", thread_id=thread)
        runs.append(suspended)
        driver.resume(agent, suspended.checkpoint, approved=True)
    everything = list(store.audit())
    assert [line.run_id for line in everything] == [run.run_id for run in runs]
    assert list(store.audit(run_id=runs[1].run_id)) == everything[1:]
    assert list(store.audit(thread_id="a")) == everything[:1]
    assert list(store.audit(pending_id=runs[1].checkpoint.pending[0].id)) == everything[1:]
    assert list(store.audit(since=everything[1].at.timestamp())) == everything[1:]
    assert list(store.audit(until=everything[0].at.timestamp())) == everything[:1]
    lines = [line.model_dump_json() for line in everything]
    assert [AuditRecord.model_validate_json(line) for line in lines] == everything
    assert all(json.loads(line)["version"] == 1 for line in lines)


def test_it_stays_when_the_run_is_taken_away(driver: Driver, store: Store) -> None:
    agent = desk(driver, store, say("", refund(1)), "Done.")
    suspended = driver.invoke(agent, "Refund 1")
    driver.resume(agent, suspended.checkpoint, approved=True)
    before = list(store.audit())
    assert store.clear() > 0
    assert store.branches() == [] and list(store.audit()) == before != []


def test_arguments_and_results_are_not_in_it(driver: Driver, store: Store) -> None:
    agent = desk(driver, store, say("", refund(1, card="canary-4711")), "Done.")
    suspended = driver.invoke(agent, "Refund 1")
    driver.resume(agent, suspended.checkpoint, approved=True)
    (line,) = store.audit()
    assert "canary-4711" not in line.model_dump_json() + repr(line)
