"""A request that is answered before a checkpoint lists it, by a handler, a grant or an event that came early, can be looked up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from drivers import Driver
from inbox_api_scenes import api_of
from places import Place

from phronomy import (
    Agent,
    Approval,
    Approve,
    Breakpoint,
    CheckpointAlreadyResumed,
    Grant,
    Principal,
    Reject,
    Respond,
    ToolContext,
    tool,
)
from phronomy.errors import ApprovalHandlerError, UnknownPending
from phronomy.records.decisions import Decision
from phronomy.stores import Request
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.triggers import ExternalEvent, Question, RunEnd, Timer, wait_for_all, wait_for_first

pytestmark = pytest.mark.worlds(2)

RITA = Principal(id="rita", roles=("lead", "bank"))


class Desk:
    """Pays where somebody or something approves it, and looks its request up from the body."""

    def __init__(self, driver: Driver, store: Store) -> None:
        self.driver = driver
        self.store = store
        self.seen: list[Request] = []
        self.told: list[Decision | None] = []

    def agent(self, gate: Any = True, wait: Callable[[], object] | None = None, **options: Any) -> Agent[Any, str]:
        def pay(context: ToolContext[Any], order: int) -> str:
            """Pay an order."""
            self.told.append(context.decision)
            if context.pending_id is not None:
                self.seen.append(self.store.request(context.pending_id))
            return str(wait() if wait is not None else "paid")

        model = ScriptedModel.by_turn([call("pay", {"order": 1}), "Done."])
        gated = tool(requires_approval=gate)(self.driver.function(pay))
        return Agent(name="desk", model=model, tools=[gated], store=self.store, **options)

    def looked_up(self, pending_id: str) -> Request:
        """The request, as programs and people who come too late find it."""
        found = self.store.request(pending_id)
        for place in (self.store, self.agent()):
            with pytest.raises(CheckpointAlreadyResumed):
                self.driver.call(place, "decide", pending_id, Approve(), by="bob", digest=found.approval.digest)  # type: ignore[arg-type]
        return found

    def every_id(self) -> list[str]:
        """The ids of all requests that the trail, or a record, names."""
        audit = [record.pending_id for record in self.store.audit() if record.pending_id is not None]
        heads = [self.store.head(branch.id)[1] for branch in self.store.branches()]
        decided = [each for head in heads for each in head.decisions]
        named = [id for each in decided for id in (each.pending_id, each.asks) if id is not None]
        return list(dict.fromkeys([*audit, *named, *(each.approval.id for each in self.seen)]))

    def all_looked_up(self) -> list[Request]:
        return [self.looked_up(id) for id in self.every_id()]


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place.open())


HANDLED: list[Any] = [
    pytest.param(True, "approve", "completed", id="approved"),
    pytest.param(Approve(args={"order": 2}), "approve", "completed", id="edited"),
    pytest.param(False, "reject", "rejected", id="rejected"),
    pytest.param(Reject(reason="no", then="block"), "reject", "rejected", id="rejected for good"),
    pytest.param(Reject(then="end"), "reject", "rejected", id="rejected, and the run ends"),
]


@pytest.mark.parametrize("nested", [False, True], ids=["outermost", "nested"])
@pytest.mark.parametrize(("answer", "decided", "ended"), HANDLED)
def test_what_a_handler_answered(desk: Desk, answer: Any, decided: str, ended: str, nested: bool) -> None:
    agent = desk.agent()
    agent.on_approval_required(desk.driver.function(lambda name, args: answer))
    if nested:
        model = ScriptedModel.by_turn([call("desk", {"input": "Pay"}), "Done."])
        agent = Agent(name="outer", model=model, tools=[agent.as_tool(description="Pays.")], store=desk.store)
    desk.driver.invoke(agent, "Pay")
    (found,) = desk.all_looked_up()
    assert found.decision is not None and found.result is not None
    assert (found.status, found.decision.kind, found.result.kind) == ("settled", decided, ended)
    assert (found.decision.channel, found.approval.args, found.approval.agent) == ("handler", {"order": 1}, "desk")
    if decided == "approve":  # the body asks who approved it, while it runs
        (seen,) = desk.seen
        assert (seen.status, seen.decision) == ("running", found.decision)
        assert desk.told == [found.decision]


def test_what_a_grant_let_through(desk: Desk) -> None:
    until = datetime.now(UTC) + timedelta(days=1)
    desk.store.grant(Grant(agent="desk", tool="pay", scope="tenant", until=until), by=RITA)
    result = desk.driver.invoke(desk.agent(Approval(by="lead", standing=True)), "Pay")
    (found,) = desk.all_looked_up()
    assert result.status == "completed" and found.decision is not None
    shown = api_of(desk.store).read(f"/requests/{found.approval.id}")
    assert (shown["id"], shown["status"]) == (found.approval.id, "settled")
    assert (found.status, found.decision.channel, desk.seen[0].status) == ("settled", "grant", "running")
    assert desk.told == [found.decision]


def test_a_body_is_told_who_let_its_call_run(desk: Desk) -> None:
    """Nobody had to, or one of two did after the other, or somebody who edited the call."""
    desk.driver.invoke(desk.agent(gate=False), "Pay")
    votes = desk.agent(Approval(by="lead", needed=2))
    asked = desk.driver.invoke(votes, "Pay").checkpoint
    for who in ("ada", "bob"):
        desk.driver.resume(votes, asked, approved=True, by=Principal(id=who, roles=["lead"]))
    plain = desk.agent()
    asked = desk.driver.invoke(plain, "Pay").checkpoint
    edit = Approve(args={"order": 2})
    desk.driver.resume(plain, asked, decisions={asked.pending[0].id: edit}, by="ada", channel="chat")
    nobody, voted, edited = desk.told
    assert nobody is None and voted is not None and edited is not None
    assert [vote.by.id for vote in voted.votes] == ["ada", "bob"]
    assert (edited.by, edited.channel, edited.args) == (Principal(id="ada"), "chat", {"order": 2})
    assert [each.decision for each in desk.seen] == [voted, edited]


def test_what_came_early_or_was_due_and_the_triggers_that_lost(desk: Desk) -> None:
    """An event that came early, a time that had come, the end of a run that is not there."""

    def wait() -> str:
        first = wait_for_first(
            {"paid": ExternalEvent("payment", senders="bank"), "asked": Question("?"), "late": Timer(after=60)}
        )
        wait_for_all({"due": Timer(at=datetime(2020, 1, 1, tzinfo=UTC)), "gone": RunEnd("no such run")})
        return first.name

    agent = desk.agent(wait=wait)
    asked = desk.driver.invoke(agent, "Pay").checkpoint
    desk.store.send_event(asked.run_id, "payment", 1, by=RITA)
    result = desk.driver.resume(agent, asked, approved=True, by="ada")
    assert (result.status, result.messages[2].text) == ("completed", "paid")
    found = {
        each.approval.trigger.name if each.approval.trigger else "pay": (
            each.status,
            each.decision.kind if each.decision else None,
            each.decision.channel if each.decision else None,
        )
        for each in desk.all_looked_up()
    }
    assert found == {
        "pay": ("settled", "approve", None),
        "paid": ("settled", "respond", "event"),
        "asked": ("settled", "supersede", None),
        "late": ("settled", "supersede", None),
        "due": ("settled", "respond", "time"),
        "gone": ("settled", "respond", "run"),
    }


def test_the_approval_behind_a_breakpoint_and_the_one_that_was_edited_and_batched(desk: Desk) -> None:
    agent = desk.agent(breakpoints=[Breakpoint("pre_tool_call")])
    agent.on_approval_required(desk.driver.function(lambda name, args: True))
    stopped = desk.driver.invoke(agent, "Pay").checkpoint
    assert desk.driver.resume(agent, stopped, approved=True).status == "completed"
    stop, approval = desk.all_looked_up()
    assert (stop.approval.why, approval.approval.why, approval.status) == ("breakpoint", "approval", "settled")
    plain = desk.agent()
    several = [desk.driver.invoke(plain, "Pay").checkpoint for _ in range(4)]
    desk.driver.call(plain, "approve_all", several[0])
    for waits, answer in zip(several[1:], (Approve(args={"order": 2}), Respond(content="x"), Reject()), strict=True):
        desk.driver.resume(plain, waits, decisions={waits.pending[0].id: answer}, by="ada")
    kinds = [each.decision.kind for each in desk.all_looked_up()[2:] if each.decision is not None]
    assert kinds == ["approve", "approve", "respond", "reject"]


def test_what_a_handler_is_asked_about_is_no_request_until_a_human_is(desk: Desk) -> None:
    """The directory that the handler asks is down: nobody else can decide, until an agent without that handler asks a human."""
    agent = desk.agent()
    during: list[int] = []

    def fails(name: str, args: Any) -> bool:
        during.append(len(desk.store.pending()))
        raise OSError("the directory is down")

    agent.on_approval_required(desk.driver.function(fails))
    with pytest.raises(ApprovalHandlerError) as failed:
        desk.driver.invoke(agent, "Pay")
    left = failed.value.checkpoint
    assert left is not None
    assert (during, left.pending, left.calls[0].status) == ([0], (), "asking")
    id = left.calls[0].pending_id or ""
    with pytest.raises(UnknownPending):
        desk.store.request(id)
    with pytest.raises(UnknownPending):
        desk.driver.resume(agent, left, approved=True)
    waits = desk.driver.resume(desk.agent(), left)
    assert [item.id for item in waits.checkpoint.pending] == [id]
    assert desk.store.request(id).status == "pending"
    assert desk.driver.resume(desk.agent(), waits.checkpoint, approved=True).status == "completed"
    assert desk.looked_up(id).status == "settled"
