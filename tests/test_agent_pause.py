"""Stopping a run of an agent from outside, whatever it is at: nothing new begins, and nothing that was done is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from drivers import Around, Driver, outline, rows
from places import Place
from pydantic import BaseModel

from phronomy import (
    Agent,
    Approve,
    Breakpoint,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointError,
    CheckpointNotFound,
    ConfigurationError,
    InvalidDecision,
    LimitExceeded,
    Limits,
    Reject,
    Respond,
    Result,
    Skip,
    sequential,
    tool,
)
from phronomy.graph import END, START, StateGraph
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, Branch
from phronomy.testing import ScriptedModel, call, say

TWO = say("", call("pay", {"order": 1}), call("pay", {"order": 2}))


class Desk:
    """Pays orders. What happens meanwhile, in another process as far as the store can tell, is said in `during`."""

    def __init__(self, driver: Driver, store: Store) -> None:
        self.driver = driver
        self.store = store
        self.paid: list[int] = []
        self.asked = 0
        self.during: dict[str, Callable[[], Any]] = {}
        self.told: list[Any] = []

    def agent(self, *replies: Any, gated: bool = False, **options: Any) -> Agent[Any, str]:
        left = [*replies]

        def pay(order: int) -> str:
            """Pay an order."""
            self.meanwhile(f"pay {order}")
            self.paid.append(order)
            return f"paid {order}"

        def reply(request: Any) -> Any:
            self.asked += 1
            self.meanwhile(f"model {self.asked}")
            return left.pop(0)

        tools = options.pop("tools", [tool(requires_approval=gated)(self.driver.function(pay))])
        return Agent(name="desk", model=ScriptedModel(reply), tools=tools, store=self.store, **options)

    def meanwhile(self, what: str) -> None:
        if (happens := self.during.pop(what, None)) is not None:
            self.told.append(happens())

    def pauses(self, agent: Any, **options: Any) -> Callable[[], str]:
        """The run of the thread is paused; how it stands then."""

        def pause() -> str:
            result: Result[Any] = agent.pause(self.store.current("chat").run_id, **options)
            return result.status

        return pause

    def invoke(self, agent: Any) -> Result[Any]:
        return self.driver.invoke(agent, "Pay", thread_id="chat")


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place.open())


def whys(checkpoint: Checkpoint) -> list[tuple[str, str | None]]:
    """Why it waits."""
    return [(item.why, item.reason) for item in checkpoint.pending]


def test_what_the_model_says_meanwhile_is_kept_and_nothing_of_it_begins(desk: Desk) -> None:
    agent = desk.agent(TWO, "Both.")
    desk.during["model 1"] = desk.pauses(agent, reason="wrong customer", by="ann")
    result = desk.invoke(agent)
    assert (desk.told, result.status, whys(result.checkpoint)) == (
        ["running"],
        "suspended",
        [("breakpoint", "wrong customer")],
    )
    assert (desk.paid, desk.asked, [len(message.tool_calls) for message in result.messages]) == ([], 1, [0, 2])
    assert result.checkpoint.usage.requests == 1

    result = desk.driver.resume(agent, result.checkpoint.id)
    assert (result.output, sorted(desk.paid), desk.asked) == ("Both.", [1, 2], 2)
    assert outline(result)[1] == "assistant:  [pay] [pay]"


def test_an_answer_meanwhile_is_the_end_once_it_may_go_on(desk: Desk) -> None:
    agent = desk.agent("Nothing to pay.")
    desk.during["model 1"] = desk.pauses(agent)
    waits = desk.invoke(agent).checkpoint
    assert (whys(waits), waits.ended, waits.messages[-1].text) == ([("breakpoint", None)], None, "Nothing to pay.")
    (hit,) = agent.stopped_at(waits)
    assert (hit.type, hit.tool, hit.next) == ("pause", None, ("end the run as completed",))
    assert (desk.driver.resume(agent, waits).output, desk.asked) == ("Nothing to pay.", 1)


def test_calls_that_run_are_waited_for_and_no_other_begins(desk: Desk) -> None:
    agent = desk.agent(TWO, "Both.", max_parallel=1)
    desk.during["pay 1"] = desk.pauses(agent, grace=0)
    waits = desk.invoke(agent).checkpoint
    assert (desk.told, desk.paid) == (["running"], [1])
    assert [call.status for call in waits.calls] == ["pending", "settled", "ready"]
    result = desk.driver.resume(agent, waits)
    assert (result.output, desk.paid, desk.asked) == ("Both.", [1, 2], 2)
    assert [message.settlement for message in result.messages] == [None, None, "completed", "completed", None]


def test_after_the_last_call_the_model_is_not_asked(desk: Desk) -> None:
    agent = desk.agent(TWO, "Both.", max_parallel=1)
    desk.during["pay 2"] = desk.pauses(agent)
    waits = desk.invoke(agent).checkpoint
    assert (desk.paid, desk.asked, whys(waits)) == ([1, 2], 1, [("breakpoint", None)])
    assert (desk.driver.resume(agent, waits).output, desk.paid, desk.asked) == ("Both.", [1, 2], 2)


def test_a_run_that_nobody_holds_is_paused_where_it_stands(desk: Desk) -> None:
    agent = desk.agent(TWO, "Both.")
    begun = desk.driver.step(agent, "Pay", thread_id="chat").checkpoint
    result = desk.driver.call(agent, "pause", begun, reason="wait", by="ann")
    assert (result.status, whys(result.checkpoint), desk.asked) == ("suspended", [("breakpoint", "wait")], 0)
    assert desk.store.pending()[0].approval == result.checkpoint.pending[0]
    before = rows(desk.store)
    assert desk.driver.call(agent, "pause", begun.run_id).checkpoint == result.checkpoint
    assert desk.driver.recover(agent, begun.run_id).status == "suspended"
    assert rows(desk.store) == before, "it waits already"

    stepped = desk.driver.step(agent, result.checkpoint, decisions={result.checkpoint.pending[0].id: Approve()})
    assert (stepped.status, desk.asked) == ("running", 0)
    again = desk.driver.call(agent, "pause", begun.run_id).checkpoint
    assert (desk.driver.resume(agent, again).output, sorted(desk.paid)) == ("Both.", [1, 2])


def test_what_is_approved_while_it_is_paused_runs_when_it_goes_on(desk: Desk) -> None:
    agent = desk.agent(TWO, "Both.", gated=True)
    desk.during["model 1"] = desk.pauses(agent)
    paused = desk.invoke(agent).checkpoint
    assert [item.why for item in paused.pending] == ["breakpoint", "approval", "approval"]
    waits = desk.driver.resume(agent, paused).checkpoint
    assert waits.pending == paused.pending[1:]

    more = desk.agent(TWO, "Both.", gated=True, max_parallel=1)
    desk.driver.cancel(agent, waits)
    waits = desk.invoke(more).checkpoint
    desk.during["pay 1"] = desk.pauses(more)
    paused = desk.driver.call(more, "approve_all", waits).checkpoint
    assert (desk.paid, [item.why for item in paused.pending]) == ([1], ["breakpoint"])
    assert (desk.driver.resume(more, paused).output, desk.paid) == ("Both.", [1, 2])


def test_an_approval_alone_does_not_let_it_go_on(desk: Desk) -> None:
    def look() -> str:
        """Look."""
        desk.meanwhile("look")
        return "seen"

    def ship() -> str:
        """Ship."""
        desk.paid.append(7)
        return "shipped"

    tools = [tool(desk.driver.function(look)), tool(requires_approval=True)(desk.driver.function(ship))]
    agent = desk.agent(say("", call("look"), call("ship")), "Over.", tools=tools)
    desk.during["look"] = desk.pauses(agent)
    paused = desk.invoke(agent).checkpoint
    assert sorted(item.why for item in paused.pending) == ["approval", "breakpoint"]
    approved = desk.driver.call(agent, "approve_all", paused).checkpoint
    assert ([item.why for item in approved.pending], desk.paid) == (["breakpoint"], [])
    assert (desk.driver.resume(agent, approved).output, desk.paid) == ("Over.", [7])


@pytest.mark.parametrize("how", ["rejected", "cancelled", "ended by another rejection"])
def test_a_run_that_is_paused_can_be_ended(desk: Desk, how: str) -> None:
    agent = desk.agent(TWO, gated=how == "ended by another rejection", max_parallel=1)
    if how == "ended by another rejection":
        waits = desk.invoke(agent).checkpoint
        desk.during["pay 1"] = desk.pauses(agent)
        first, second = waits.pending
        paused = desk.driver.resume(agent, waits, decisions={first.id: Approve()}).checkpoint
        assert [item.why for item in paused.pending] == ["breakpoint", "approval"]
        result = desk.driver.resume(agent, paused, decisions={second.id: Reject(then="end")})
        assert (result.status, desk.paid) == ("rejected", [1])
        return
    desk.during["model 1"] = desk.pauses(agent)
    paused = desk.invoke(agent).checkpoint
    if how == "cancelled":
        assert desk.driver.cancel(agent, paused).status == "cancelled"
    else:
        assert desk.driver.resume(agent, paused, approved=False).status == "rejected"
    assert (desk.paid, desk.store.pending()) == ([], [])


def test_what_can_be_no_answer_to_a_pause_is_refused(desk: Desk) -> None:
    agent = desk.agent(TWO)
    desk.during["model 1"] = desk.pauses(agent)
    paused = desk.invoke(agent).checkpoint
    before = rows(desk.store)
    for answer in (Skip(), Respond(content="no"), Approve(args={"input": "other"})):
        with pytest.raises(InvalidDecision):
            desk.driver.resume(agent, paused, decisions={paused.pending[0].id: answer})
    for wrong in ({"grace": -1}, {"grace": "soon"}):
        with pytest.raises(ConfigurationError):
            desk.driver.call(agent, "pause", paused, **wrong)
    with pytest.raises(InvalidDecision):
        desk.driver.call(agent, "pause", paused, reason=7)
    with pytest.raises(CheckpointNotFound):
        desk.driver.call(agent, "pause", "run_0")
    assert rows(desk.store) == before
    desk.driver.cancel(agent, paused)
    with pytest.raises(CheckpointAlreadyResumed):
        desk.driver.call(agent, "pause", paused)


def test_two_who_pause_it_stop_it_once(desk: Desk) -> None:
    agent = desk.agent(TWO, "Both.")
    pause = desk.pauses(agent)
    desk.during["model 1"] = lambda: [pause(), pause()]
    paused = desk.invoke(agent).checkpoint
    assert (desk.told, len(paused.pending)) == ([["running", "running"]], 1)
    assert desk.driver.resume(agent, paused).output == "Both."


def test_it_is_paused_at_a_breakpoint_as_well(desk: Desk) -> None:
    agent = desk.agent(TWO, "Both.", max_parallel=1, breakpoints=[Breakpoint("post_tool_call")])
    desk.during["pay 1"] = desk.pauses(agent)
    paused = desk.invoke(agent).checkpoint
    assert [item.point for item in paused.pending].count(None) == 1
    assert [item.why for item in paused.pending] == ["breakpoint", "breakpoint"]
    later = desk.driver.resume(agent, paused).checkpoint
    assert [item.point for item in later.pending] == ["post_tool_call"]
    assert (desk.driver.resume(agent, later).output, desk.paid) == ("Both.", [1, 2])


def test_a_worker_that_is_told_and_lost_leaves_the_run_paused(desk: Desk) -> None:
    """It writes no more once it was told: whoever recovers the run finds it stopped."""
    store = desk.store

    class Lost(Around):
        gone = False

        def append(self, change: Append) -> Branch:
            if self.gone:
                raise ConnectionError("the line is cut")
            return super().append(change)

        def release(self, claim: Any, status: Any = None) -> None:
            if self.gone:
                raise ConnectionError("the line is cut")
            super().release(claim, status)

    lost = Lost(store)
    desk.store = lost
    agent = desk.agent(TWO)
    desk.store = store
    other = desk.agent(TWO, "Both.")

    def told_then_lost() -> str:
        status = desk.pauses(other)()
        lost.gone = True
        return status

    desk.during["model 1"] = told_then_lost
    with pytest.raises(ConnectionError):
        desk.invoke(agent)
    (branch,) = store.branches()
    later = store.clock() + 60
    store.clock = lambda: later
    result = desk.driver.recover(other, branch.run_id)
    assert (desk.told, result.status, whys(result.checkpoint)) == (["running"], "suspended", [("breakpoint", None)])
    assert (desk.driver.resume(other, result.checkpoint).output, sorted(desk.paid)) == ("Both.", [1, 2])


class Job(BaseModel):
    log: str = ""


def test_what_runs_inside_stops_at_a_boundary_of_its_own(desk: Desk) -> None:
    """EIN-A16: an agent in a tool keeps what its model said, and begins none of it; a graph stops between its nodes."""
    clerk = desk.agent(TWO, "Both.")
    chief: Agent[Any, str] = Agent(
        name="chief",
        model=ScriptedModel([call("desk", {"input": "Pay"}), "Paid."]),
        tools=[clerk.as_tool()],
        store=desk.store,
    )
    desk.during["model 1"] = desk.pauses(chief)
    paused = desk.invoke(chief).checkpoint
    assert [(item.why, item.path) for item in paused.pending] == [("breakpoint", ""), ("breakpoint", "1.0")]
    assert (desk.paid, desk.asked) == ([], 1)
    result = desk.driver.resume(chief, paused)
    assert (result.output, sorted(desk.paid), desk.asked) == ("Paid.", [1, 2], 2)

    graph = StateGraph(Job, name="works")

    def first(state: Job) -> dict[str, str]:
        desk.meanwhile("first")
        return {"log": "first"}

    def last(state: Job) -> dict[str, str]:
        return {"log": f"{state.log}, last"}

    for name, body in (("first", first), ("last", last)):
        graph.add_node(name, desk.driver.function(body))
    for ends in ((START, "first"), ("first", "last"), ("last", END)):
        graph.add_edge(*ends)
    works: Any = graph.compile()

    def works_input(log: str) -> dict[str, str]:
        """Work."""
        return {"log": log}

    chief = Agent(
        name="chief",
        model=ScriptedModel([call("works", {"log": ""}), "Done."]),
        tools=[works.as_tool(input=works_input)],
        store=desk.store,
    )
    desk.during["first"] = desk.pauses(chief)
    paused = desk.invoke(chief).checkpoint
    assert [(item.why, item.path != "") for item in paused.pending] == [("breakpoint", False), ("breakpoint", True)]
    assert desk.driver.resume(chief, paused).output == "Done."


def test_an_agent_in_a_step_of_a_pattern_stops_at_its_next_boundary(desk: Desk) -> None:
    """EIN-A16: the pause of a pattern, in patterns of patterns too, reaches the agent that works."""
    pattern: Any = sequential(sequential(desk.agent(TWO, "Both."), name="inner"), store=desk.store)
    desk.during["model 1"] = desk.pauses(pattern, grace=0, reason="wrong customer")
    paused = desk.invoke(pattern).checkpoint
    assert [item.reason for item in paused.pending] == ["wrong customer"] * 3
    assert (desk.paid, desk.asked) == ([], 1)
    result = desk.driver.resume(pattern, paused)
    assert (result.output, sorted(desk.paid), desk.asked) == ("Both.", [1, 2], 2)


def test_only_its_own_kind_pauses_a_run_and_a_limit_still_holds(desk: Desk) -> None:
    agent = desk.agent(TWO, "Both.", limits=Limits(turns=1))
    begun = desk.driver.step(agent, "Pay", thread_id="chat").checkpoint
    graph = StateGraph(Job, name="works")
    graph.add_node("first", desk.driver.function(lambda state: None))
    graph.add_edge(START, "first")
    graph.add_edge("first", END)
    works: Any = graph.compile(store=desk.store)
    ended = desk.driver.invoke(works, {}).checkpoint
    for who, other in ((works, begun), (agent, ended)):
        with pytest.raises(CheckpointError, match="pause it with its own"):
            desk.driver.call(who, "pause", other)
    desk.during["model 1"] = desk.pauses(agent)
    paused = desk.driver.resume(agent, begun).checkpoint
    with pytest.raises(LimitExceeded):
        desk.driver.resume(agent, paused)
    assert sorted(desk.paid) == [1, 2]


def test_what_waits_for_something_else_than_was_shown_is_neither_paused_nor_cancelled(desk: Desk) -> None:
    """As a decision counts for what was shown. What still waits for the same is ended, however far its journal is."""
    agent = desk.agent(TWO, call("pay", {"order": 3}), "Done.", gated=True)
    shown = desk.invoke(agent).checkpoint
    first = {shown.pending[0].id: Approve()}
    desk.driver.resume(agent, shown, decisions=first, by="ann")
    for method in ("cancel", "pause"):
        for seen in (shown, "no checkpoint", desk.driver.invoke(desk.agent("Hello."), "Hi").checkpoint):
            before = rows(desk.store)
            with pytest.raises(InvalidDecision):
                desk.driver.call(agent, method, shown.run_id, by="ann", seen=seen)
            assert rows(desk.store) == before
    now = desk.store.head(shown.run_id)[1]
    assert desk.driver.call(agent, "pause", now, seen=now).status == "suspended"
    assert desk.driver.cancel(agent, now, seen=now).status == "cancelled"
    assert desk.paid == [1]
