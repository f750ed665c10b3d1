"""The debugger: each move ends where it should, no approval is passed by one, and what was left is picked up.

UiPath's list of what its breakpoints lack (Q11) is had here: stepping over and into, conditions and expressions, single tools,
changing the state, watches, the call stack. Its debugger (U9 to U14, UIP-A19) waits without end, ends as successful when it is
left, and has no stops where nothing is streamed: ours holds nothing, and stops every way of running alike.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE, SYNC, Driver, outline, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from selection import scaled
from test_structure import RENAMED, Stripped, tree_of

from phronomy import (
    Agent,
    AgentChanged,
    Approve,
    Breakpoint,
    BreakpointContext,
    Breakpoints,
    CheckpointAlreadyResumed,
    ConfigurationError,
    Debugger,
    GuardrailRefused,
    InvalidDecision,
    InvalidUpdate,
    ModelError,
    NothingDecided,
    PhronomyError,
    RunBusy,
    SQLiteStore,
    ThreadBusy,
    UnknownPending,
    tool,
)
from phronomy.debugger.debugger import Frame, Watched
from phronomy.graph import END, START, StateGraph
from phronomy.guardrails.guardrail import MaxLength
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call

LOOKS = [call("look_up", {"order_id": 1}), call("look_up", {"order_id": 2})]
REFUND = call("refund", {"order_id": 1, "amount": 50.0})


class Desk:
    """An agent that looks two orders up and refunds one, and what its tools have done."""

    def __init__(self, driver: Driver, store: Store | None = None, **options: Any) -> None:
        self.ran: list[str] = []
        self.driver = driver

        def look_up(order_id: int) -> str:
            """Look an order up."""
            self.ran.append(f"look_up {order_id}")
            return f"order {order_id} is paid"

        def refund(order_id: int, amount: float) -> str:
            """Refund an order."""
            self.ran.append(f"refund {order_id} {amount:g}")
            return f"{amount:g} euros"

        self.tools = [tool(driver.function(look_up)), tool(requires_approval=True)(driver.function(refund))]
        model = ScriptedModel.by_turn([LOOKS, REFUND, "Done."])
        kept = {"store": store} if store is not None else {}
        self.agent = Agent(name="desk", tools=self.tools, **{"model": model, **kept, **options})

    def debugger(self, **options: Any) -> Debugger[Any, Any]:
        return Debugger(self.agent, by="ada", **options)


@pytest.fixture
def desk(driver: Driver, store: Store) -> Desk:
    return Desk(driver, store)


class Case(BaseModel):
    question: str
    tries: int = 0
    answer: str = ""


def case_graph(driver: Driver, desk: Desk, clerk: Any = None) -> Any:
    """A graph of two nodes, of which the second is the clerk: an agent that looks one order up, unless it is another."""

    def sort(state: Case) -> dict[str, Any]:
        return {"tries": state.tries + 1}

    model = ScriptedModel.by_turn([call("look_up", {"order_id": 1}), "It is paid."])
    clerk = clerk or Agent(name="clerk", model=model, tools=desk.tools[:1])
    graph = StateGraph(Case, name="case").add_node("sort", driver.function(sort))
    graph = graph.add_node("ask", clerk, input="question", output="answer")
    return graph.add_edge(START, "sort").add_edge("sort", "ask").add_edge("ask", END).compile()


def stands(debugger: Debugger[Any, Any]) -> str:
    """Where the run stands: the call stack in one line, and in brackets how many more wait."""
    more = len(debugger.checkpoint.pending) - 1
    stack = " > ".join(f"{frame.agent} {frame.at}" for frame in debugger.where())
    return f"{stack} (+{more})" if more > 0 else stack


def goes(driver: Driver, debugger: Debugger[Any, Any], moves: str) -> list[str]:
    """Where the run stands after each of these moves."""
    places = []
    for move in moves.split():
        result = driver.call(debugger, move)
        assert move == "back" or result.checkpoint == debugger.checkpoint
        places.append(stands(debugger))
    return places


# Moving


def test_into_comes_to_every_place_where_something_lies_between(desk: Desk, driver: Driver) -> None:
    debugger = desk.debugger()
    result = driver.call(debugger, "start", "Refund order 1", metadata={"who": "carl"})
    assert (result.status, debugger.status, stands(debugger)) == ("suspended", "suspended", "desk pre_agent_run")
    assert debugger.checkpoint.metadata == {"who": "carl"}
    assert goes(driver, debugger, "into into into into into into") == [
        "desk pre_tool_call look_up (+1)",
        "desk post_tool_call look_up (+1)",
        "desk pre_tool_call look_up",
        "desk post_tool_call look_up",
        "desk pre_model_call",
        "desk approval refund",
    ]
    assert desk.ran == ["look_up 1", "look_up 2"]
    assert driver.call(debugger, "approve").status == "suspended"
    assert stands(debugger) == "desk post_tool_call refund"
    assert goes(driver, debugger, "into into into") == ["desk pre_model_call", "desk post_run", "desk completed"]
    assert debugger.checkpoint.output == "Done."
    assert desk.ran == ["look_up 1", "look_up 2", "refund 1 50"]
    unstopped = driver.invoke(Desk(driver).agent, "Refund order 1")
    assert outline(debugger.checkpoint)[:4] == outline(unstopped)[:4]
    assert {decision.channel for decision in debugger.checkpoint.decisions} == {"debugger"}
    assert {decision.by.id for decision in debugger.checkpoint.decisions if decision.by} == {"ada"}


def test_points_of_guardrails_are_places_where_there_are_guardrails(driver: Driver) -> None:
    places = ["desk pre_input_guardrails", "desk pre_agent_run", "desk pre_output_guardrails", "desk post_run"]
    for options, of_call in (
        ({"input_guardrails": [MaxLength(50)], "output_guardrails": [MaxLength(50)]}, {}),
        ({}, {"input_guardrails": [MaxLength(50)], "output_guardrails": [MaxLength(50)]}),
    ):
        debugger = Desk(driver, model=ScriptedModel.by_turn(["Hello."]), **options).debugger(**of_call)
        driver.call(debugger, "start", "Hello")
        assert [stands(debugger), *goes(driver, debugger, "into into into into")] == [*places, "desk completed"]
    guarded = Agent(name="clerk", model=ScriptedModel.by_turn(["Hello."]), input_guardrails=[MaxLength(50)])
    debugger = Debugger(case_graph(driver, Desk(driver), clerk=guarded))
    driver.call(debugger, "start", {"question": "Hello"})
    assert goes(driver, debugger, "step into into") == [
        "case pre_node ask",
        "case ask > clerk pre_input_guardrails",
        "case ask > clerk pre_agent_run",
    ]
    unguarded = Desk(driver, model=ScriptedModel(["Hello."]), input_guardrails=[MaxLength(50)]).debugger(
        input_guardrails=[]
    )
    driver.call(unguarded, "start", "Hello")
    assert stands(unguarded) == "desk pre_agent_run"


def test_over_takes_one_call_on_and_the_others_stay(desk: Desk, driver: Driver) -> None:
    """Q11: stepping over."""
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    driver.call(debugger, "over")
    first, second = debugger.hits
    assert (debugger.hit, debugger.pending, first.args, second.args) == (
        first,
        debugger.checkpoint.pending[0],
        {"order_id": 1},
        {"order_id": 2},
    )
    assert debugger.select(second.id).id == second.id
    assert goes(driver, debugger, "over") == ["desk post_tool_call look_up (+1)"]
    assert desk.ran == ["look_up 2"]
    assert first.id in [hit.id for hit in debugger.hits]
    assert debugger.hit is not None and debugger.hit.result == "order 2 is paid"
    assert goes(driver, debugger, "over") == ["desk pre_tool_call look_up"]
    assert (debugger.hit.id, desk.ran) == (first.id, ["look_up 2"])
    with pytest.raises(UnknownPending):
        debugger.select(second.id)


def test_step_takes_a_boundary_whole(desk: Desk, driver: Driver) -> None:
    """The model is asked, all calls of its reply run: a boundary each."""
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    places = goes(driver, debugger, "step step step")
    assert places == ["desk pre_tool_call look_up (+1)", "desk pre_model_call", "desk approval refund"]
    driver.call(debugger, "approve", go_on="step")
    assert goes(driver, debugger, "step step") == ["desk post_run", "desk completed"]


def test_in_a_graph_each_move_knows_what_is_inside(driver: Driver, desk: Desk) -> None:
    """Q11: stepping into and over, and the call stack."""
    debugger = Debugger(case_graph(driver, desk))
    driver.call(debugger, "start", {"question": "Is it paid?"})
    assert stands(debugger) == "case pre_node sort"
    assert goes(driver, debugger, "over over over over over") == [
        "case post_node sort (+1)",
        "case pre_node ask",
        "case post_node ask",
        "case post_run",
        "case completed",
    ]
    assert desk.ran == ["look_up 1"]

    driver.call(debugger, "start", {"question": "Is it paid?"})
    assert goes(driver, debugger, "step step step") == ["case pre_node ask", "case post_run", "case completed"]

    driver.call(debugger, "start", {"question": "Is it paid?"})
    assert goes(driver, debugger, "step into into") == [
        "case pre_node ask",
        "case ask > clerk pre_agent_run",
        "case ask > clerk pre_tool_call look_up",
    ]
    path = debugger.where()[-1].path
    assert debugger.where() == [Frame("case", "", "ask"), Frame("clerk", path, "pre_tool_call look_up")]
    assert debugger.hit is not None and (debugger.hit.path, debugger.hit.stack) == (path, ("case", "clerk"))
    assert goes(driver, debugger, "over step") == [
        "case ask > clerk post_tool_call look_up",
        "case ask > clerk pre_model_call",
    ]
    assert goes(driver, debugger, "out out") == ["case post_node ask", "case completed"]
    assert debugger.checkpoint.output == {"question": "Is it paid?", "tries": 1, "answer": "It is paid."}

    driver.call(debugger, "start", {"question": "Is it paid?"})
    places = [stands(debugger)]
    while debugger.status == "suspended":
        places += goes(driver, debugger, "into")
    assert places == [
        "case pre_node sort",
        "case post_node sort (+1)",
        "case pre_node ask",
        "case ask > clerk pre_agent_run",
        "case ask > clerk pre_tool_call look_up",
        "case ask > clerk post_tool_call look_up",
        "case ask > clerk pre_model_call",
        "case ask > clerk post_run",
        "case post_node ask",
        "case post_run",
        "case completed",
    ]


def test_a_move_in_a_run_inside_leaves_what_waits_beside_it(driver: Driver, desk: Desk) -> None:
    """Two nodes of a wave: the move goes into the second, and the first waits all the while."""
    model = ScriptedModel.by_turn([LOOKS, "Paid."])
    clerk = Agent(name="clerk", model=model, tools=desk.tools[:1])
    graph = StateGraph(Case, name="case").add_node("note", driver.function(lambda state: desk.ran.append("note")))
    graph = graph.add_node("ask", clerk, input="question", output="answer").add_edge(START, "note")
    debugger = Debugger(graph.add_edge(START, "ask").add_edge("note", END).add_edge("ask", END).compile())
    driver.call(debugger, "start", {"question": "Are they paid?"})
    note, ask = debugger.hits
    assert (note.node, ask.node, stands(debugger)) == ("note", "ask", "case pre_node note (+1)")
    debugger.select(ask.id)
    assert goes(driver, debugger, "into into step") == [
        "case ask > clerk pre_agent_run (+1)",
        "case ask > clerk pre_tool_call look_up (+2)",
        "case ask > clerk pre_model_call (+1)",
    ]
    driver.call(debugger, "back")
    assert stands(debugger) == "case pre_node note (+2)"  # after a fork all is new
    debugger.select(debugger.hits[1].id)
    assert goes(driver, debugger, "out") == ["case pre_node note"]
    assert sorted(desk.ran) == ["look_up 1", "look_up 2"]
    assert goes(driver, debugger, "step go") == ["case post_run", "case completed"]
    assert "note" in desk.ran


def test_go_stops_at_breakpoints_which_may_change_while_the_run_stands(desk: Desk, driver: Driver) -> None:
    """U10, Q11: conditions, single tools, and changes at a stop; a name that is not there is refused at once."""
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    looks = Breakpoint("tool", "args['order_id'] == 2", "the second", tools=["look_up"])
    debugger.breakpoints.add(looks)
    assert goes(driver, debugger, "go") == ["desk pre_tool_call look_up"]
    assert debugger.hit is not None and (debugger.hit.label, desk.ran) == ("the second", ["look_up 1"])
    with pytest.raises(ConfigurationError, match="has no tools named ship"):
        debugger.breakpoints.add(Breakpoint("tool", tools=["ship"]))
    debugger.breakpoints.remove(looks)
    driver.call(debugger, "run_to", Breakpoint("pre_model_call", "turn == 1"))
    assert stands(debugger) == "desk pre_model_call"
    assert goes(driver, debugger, "go") == ["desk approval refund"]
    with pytest.raises(ConfigurationError, match="go_on is one of into, over, out, step, go"):
        driver.call(debugger, "approve", go_on="far")
    driver.call(debugger, "reject", reason="Too much.", go_on="go")
    assert (debugger.status, debugger.checkpoint.output) == ("completed", "Done.")
    with pytest.raises(ConfigurationError, match="run_to takes a Breakpoint, not str"):
        driver.call(debugger, "run_to", "tool")


def test_go_passes_what_stepping_stopped_and_leaves_what_waits_at_a_breakpoint(desk: Desk, driver: Driver) -> None:
    debugger = desk.debugger(breakpoints=[Breakpoint("tool", "args['order_id'] == 2", tools=["look_up"])])
    driver.call(debugger, "start", "Refund order 1")
    driver.call(debugger, "into")
    first, second = debugger.hits
    assert (first.label, second.label) == ("(debugger)", None)
    debugger.select(first.id)
    assert goes(driver, debugger, "go") == ["desk pre_tool_call look_up"]
    assert ([hit.id for hit in debugger.hits], desk.ran) == ([second.id], ["look_up 1"])
    debugger.breakpoints.clear()
    assert goes(driver, debugger, "go") == ["desk approval refund"]

    driver.call(debugger, "start", "Refund order 1")
    assert goes(driver, debugger, "into go") == ["desk pre_tool_call look_up (+1)", "desk approval refund"]


def test_the_breakpoints_of_the_agent_are_taken_over_and_stay_its_own(driver: Driver, store: Store) -> None:
    own = Breakpoints([Breakpoint("post_tool_call", tools=["look_up"])])
    desk = Desk(driver, store, breakpoints=own)
    debugger = desk.debugger()
    assert list(debugger.breakpoints) == list(own)
    debugger.breakpoints.clear()
    assert len(own) == 1
    live = Breakpoints()
    debugger = desk.debugger(breakpoints=live)
    assert debugger.breakpoints is live
    driver.call(debugger, "start", "Refund order 1")
    assert goes(driver, debugger, "go") == ["desk approval refund"]


# Approvals


def test_no_move_passes_an_approval(desk: Desk, driver: Driver, store: Store) -> None:
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    driver.call(debugger, "go")
    assert debugger.hit is None and debugger.pending is not None
    assert (debugger.pending.why, debugger.pending.label) == ("approval", None)
    before = rows(store)
    for move in ("into", "over", "out", "step", "go"):
        with pytest.raises(NothingDecided, match="waits for a decision on refund, pending pend_") as refused:
            driver.call(debugger, move)
        assert refused.value.pending_ids == (debugger.pending.id,)
    with pytest.raises(NothingDecided):
        driver.call(debugger, "run_to", Breakpoint("post_run"))
    with pytest.raises(InvalidDecision, match="is no breakpoint: reject it"):
        driver.call(debugger, "skip")
    assert (rows(store), sorted(desk.ran)) == (before, ["look_up 1", "look_up 2"])
    driver.call(debugger, "respond", "paid in cash", go_on="go")
    assert debugger.status == "completed"
    assert [message.text for message in debugger.checkpoint.messages][-2] == "paid in cash"


def test_a_handler_is_asked_once_stepping_goes_on_from_what_it_shows(driver: Driver, store: Store) -> None:
    asked: list[str] = []

    def handler(name: str, args: dict[str, Any]) -> bool:
        asked.append(name)
        return True

    for pace, end in (("step", "desk pre_tool_call refund"), ("go", "desk completed")):
        desk = Desk(driver, store, on_approval_required=handler)
        debugger = desk.debugger()
        driver.call(debugger, "start", "Refund order 1")
        driver.call(debugger, "run_to", Breakpoint("pre_model_call", "turn == 1"))
        assert goes(driver, debugger, pace) == [end]
        assert ("refund 1 50" in desk.ran) == (pace == "go")
        if pace == "step":
            driver.call(debugger, "go")
        assert ("refund 1 50" in desk.ran, debugger.status) == (True, "completed")
    assert asked == ["refund", "refund"]


def test_what_waits_beside_an_approval_goes_on_without_it(driver: Driver, store: Store) -> None:
    both = ScriptedModel.by_turn([[REFUND, LOOKS[1]], "Done."])
    desk = Desk(driver, store, model=both)
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    assert goes(driver, debugger, "into") == ["desk pre_tool_call look_up (+1)"]
    assert goes(driver, debugger, "over over") == ["desk post_tool_call look_up (+1)", "desk approval refund"]
    assert desk.ran == ["look_up 2"]
    with pytest.raises(NothingDecided):
        driver.call(debugger, "step")
    driver.call(debugger, "approve", debugger.checkpoint.pending[0].id, go_on="go")
    assert (debugger.status, desk.ran) == ("completed", ["look_up 2", "refund 1 50"])


def test_a_call_a_node_and_a_run_are_skipped(desk: Desk, driver: Driver) -> None:
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    driver.call(debugger, "into")
    driver.call(debugger, "skip", go_on="step")
    assert desk.ran == []
    driver.call(debugger, "step")
    assert desk.ran == ["look_up 2"]
    kinds = [message.settlement for message in debugger.checkpoint.messages if message.role == "tool"]
    assert kinds == ["skipped", "completed"]
    driver.call(debugger, "skip")
    assert (debugger.status, debugger.checkpoint.output) == ("skipped", None)

    debugger = Debugger(case_graph(driver, desk))
    driver.call(debugger, "start", {"question": "Is it paid?"})
    driver.call(debugger, "skip", go_on="step")
    assert (stands(debugger), debugger.context.state["tries"]) == ("case pre_node ask", 0)


# Changing


def test_what_is_set_goes_with_the_move_that_passes_the_stop(desk: Desk, driver: Driver) -> None:
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    debugger.set(input="Refund order 2")
    assert debugger.edits == {"input": "Refund order 2"}
    assert debugger.context.input == "Refund order 1"
    driver.call(debugger, "into")
    assert (debugger.edits, debugger.context.input) == ({}, "Refund order 2")
    assert debugger.checkpoint.original_input == "Refund order 1"
    first, second = debugger.hits
    debugger.set(args={"order_id": 7})
    debugger.select(second.id)
    debugger.set(args={"order_id": 8})
    debugger.select(first.id)
    assert debugger.edits == {"args": {"order_id": 7}}
    driver.call(debugger, "over")
    assert desk.ran == ["look_up 7"]
    driver.call(debugger, "over")
    assert debugger.edits == {"args": {"order_id": 8}}
    driver.call(debugger, "step")
    assert desk.ran == ["look_up 7", "look_up 8"]
    driver.call(debugger, "go")
    debugger.set(args={"amount": 30})
    debugger.set(args={"order_id": 3})
    debugger.set(args={"amount": 20})
    assert debugger.edits == {"args": {"amount": 20, "order_id": 3}}
    driver.call(debugger, "approve", go_on="go")
    assert desk.ran[-1] == "refund 3 20"


def test_what_cannot_be_taken_is_refused_with_nothing_consumed_and_stays_set(
    desk: Desk, driver: Driver, store: Store
) -> None:
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    for wrong in ({"args": {"order_id": 3}}, {"state": {"x": 1}}, {"input": "a", "args": {}}):
        with pytest.raises(InvalidDecision):
            debugger.set(**wrong)
    driver.call(debugger, "into")
    with pytest.raises(InvalidDecision, match="before the model has seen it"):
        debugger.set(input="Refund order 2")
    before = rows(store)
    debugger.set(args={"order_id": "many"})
    for _ in range(2):
        with pytest.raises(InvalidDecision, match="cannot run"):
            driver.call(debugger, "over")
        assert (rows(store), desk.ran, debugger.edits) == (before, [], {"args": {"order_id": "many"}})
    with pytest.raises(InvalidDecision, match="goes with approve: unset it"):
        driver.call(debugger, "skip")
    debugger.set(args={"order_id": float("nan")})
    with pytest.raises(InvalidDecision, match="cannot be recorded"):
        driver.call(debugger, "over")
    with pytest.raises(InvalidDecision, match="cannot be recorded"):
        driver.call(debugger, "respond", float("nan"), debugger.hits[1].id)
    assert rows(store) == before
    debugger.unset()
    driver.call(debugger, "over")
    assert desk.ran == ["look_up 1"]


def test_the_state_of_a_graph_is_set(driver: Driver, desk: Desk) -> None:
    """Q11: changing the state."""
    debugger = Debugger(case_graph(driver, desk))
    driver.call(debugger, "start", {"question": "Is it paid?"})
    driver.call(debugger, "over")
    debugger.set(state={"tries": "many"})
    with pytest.raises(InvalidUpdate):
        driver.call(debugger, "over")
    assert stands(debugger) == "case post_node sort (+1)"
    debugger.set(state={"tries": 7})
    debugger.set(state={"question": "Is 1 paid?"})
    assert debugger.edits == {"state": {"tries": 7, "question": "Is 1 paid?"}}
    driver.call(debugger, "over")
    assert debugger.context.state == {"question": "Is 1 paid?", "tries": 7, "answer": ""}
    driver.call(debugger, "into")
    assert debugger.context.input == "Is 1 paid?"
    debugger.set(state={"tries": 8})  # from inside, too
    driver.call(debugger, "out")
    assert debugger.context.state["tries"] == 8


# Going back


def test_back_opens_a_branch_and_runs_nothing_twice(desk: Desk, driver: Driver, store: Store) -> None:
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    goes(driver, debugger, "step step")
    old = debugger.checkpoint
    assert goes(driver, debugger, "back") == ["desk pre_tool_call look_up (+1)"]
    assert debugger.checkpoint.branch_id != old.branch_id == old.run_id == debugger.checkpoint.run_id
    assert store.head(old.branch_id)[1] == old
    assert goes(driver, debugger, "step") == ["desk pre_model_call"]
    assert (sorted(desk.ran), outline(debugger.checkpoint)) == (["look_up 1", "look_up 2"], outline(old))
    driver.call(debugger, "back", rerun=True)
    driver.call(debugger, "step")
    assert sorted(desk.ran) == ["look_up 1", "look_up 1", "look_up 2", "look_up 2"]

    # From the end, over branches, to the very beginning.
    driver.call(debugger, "step")
    driver.call(debugger, "approve", go_on="go")
    assert debugger.status == "completed"
    assert goes(driver, debugger, "back back back back back back") == [
        "desk running",  # the refund has settled, and the model was not asked yet
        "desk approval refund",
        "desk pre_model_call",
        "desk pre_tool_call look_up (+1)",
        "desk pre_agent_run",
        "desk running",
    ]
    assert {each.by and each.by.id for each in store.audit() if each.kind == "fork"} == {"ada"}
    for n in (1, 0, True, "x"):
        with pytest.raises(ConfigurationError):
            driver.call(debugger, "back", n)
    assert goes(driver, debugger, "into") == ["desk pre_agent_run"]
    assert desk.ran.count("refund 1 50") == 1


def test_back_counts_the_places_where_the_run_stood(desk: Desk, driver: Driver) -> None:
    """Not the recording of a decision in between; but what else waited when one was done is such a place."""
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    places = [stands(debugger), *goes(driver, debugger, "over over over over over over")]
    driver.call(debugger, "approve")
    places += [stands(debugger), *goes(driver, debugger, "over over over")]
    assert len(places) == 11 and places[-1] == "desk completed"
    end = debugger.checkpoint
    for n in range(1, len(places)):
        driver.call(debugger, "attach", end)
        driver.call(debugger, "back", n)
        assert stands(debugger) == places[-1 - n], n
    assert desk.ran == ["look_up 1", "look_up 2", "refund 1 50"]


def test_back_stays_in_the_run(desk: Desk, driver: Driver) -> None:
    """The runs of a thread before it are others: what they did is not taken back with this one."""
    first = driver.invoke(Desk(driver, desk.agent.store, model=ScriptedModel(["Hello."])).agent, "Hi", thread_id="t1")
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1", thread_id="t1")
    assert len(desk.agent.store.history(debugger.checkpoint.id)) > 3 and first.status == "completed"
    with pytest.raises(ConfigurationError, match="no going back by 2: boundaries before this place: 1"):
        driver.call(debugger, "back", 2)


def test_back_into_a_run_inside_runs_there_only_what_has_not_run(driver: Driver, desk: Desk) -> None:
    debugger = Debugger(case_graph(driver, desk))
    driver.call(debugger, "start", {"question": "Is it paid?"})
    inside = "case ask > clerk pre_tool_call look_up"
    assert goes(driver, debugger, "step into into over out") == [
        "case pre_node ask",
        "case ask > clerk pre_agent_run",
        inside,
        "case ask > clerk post_tool_call look_up",
        "case post_node ask",
    ]
    assert goes(driver, debugger, "back back out") == [
        "case ask > clerk post_tool_call look_up",
        inside,
        "case post_node ask",
    ]
    assert desk.ran == ["look_up 1"]
    goes(driver, debugger, "back")
    debugger.set(args={"order_id": 2})
    assert goes(driver, debugger, "out go") == ["case post_node ask", "case completed"]
    assert desk.ran == ["look_up 1", "look_up 2"]


def test_what_stops_a_graph_otherwise_is_a_stop_too(driver: Driver, desk: Desk) -> None:
    debugger = Debugger(case_graph(driver, desk), interrupt_before=["ask"], interrupt_after=["sort"])
    driver.call(debugger, "start", {"question": "Is it paid?"})
    places = goes(driver, debugger, "go go go")
    assert [place.partition(" (")[0].split()[0] for place in places] == ["case"] * 3
    assert debugger.status == "completed"
    assert desk.ran == ["look_up 1"]


MOVES = st.lists(
    st.sampled_from(["into", "over", "out", "step", "go", "back", "approve", "select", "attach"]), max_size=25
)


@pytest.mark.parametrize("kind", ["agent", "graph"])
@settings(max_examples=scaled(10, sweep=40))
@given(moves=MOVES)
def test_whatever_is_done_a_run_ends_as_it_would_have_and_runs_nothing_twice(kind: str, moves: list[str]) -> None:
    """Any moves in any order: an approval is asked before each refund, and no call runs more than once."""
    desk = Desk(SYNC)
    agent: Any = desk.agent if kind == "agent" else case_graph(SYNC, desk, clerk=desk.agent)
    debugger = Debugger(agent)
    debugger.start("Refund order 1" if kind == "agent" else {"question": "Refund order 1"})
    for move in [*moves, *["into"] * 12, *["go", "approve"] * 3]:
        if move == "select" and debugger.checkpoint.pending:
            debugger.select(debugger.checkpoint.pending[-1].id)
        elif move == "attach":
            debugger.attach(debugger.checkpoint.branch_id)
        elif move == "back":
            with suppress(ConfigurationError):  # there is nothing before the beginning
                debugger.back()
        elif move == "approve" and debugger.pending is not None and debugger.pending.why == "approval":
            assert debugger.pending.tool_name == "refund"
            debugger.approve()
        elif move in ("into", "over", "out", "step", "go") and debugger.checkpoint.ended is None:
            refunds, asked = desk.ran.count("refund 1 50"), waits_for_refund(debugger)
            try:
                getattr(debugger, move)()
            except NothingDecided:
                assert asked
            assert desk.ran.count("refund 1 50") == refunds, f"{move} passed an approval"
    assert debugger.status == "completed"
    assert sorted(desk.ran) == ["look_up 1", "look_up 2", "refund 1 50"]
    twin = Desk(SYNC)
    plain: Any = twin.agent if kind == "agent" else case_graph(SYNC, twin, clerk=twin.agent)
    unstopped = plain.invoke("Refund order 1" if kind == "agent" else {"question": "Refund order 1"})
    unstopped = plain.resume(unstopped.checkpoint, approved=True)
    assert (debugger.checkpoint.output, outline(debugger.checkpoint)) == (
        unstopped.checkpoint.output,
        outline(unstopped),
    )


def waits_for_refund(debugger: Debugger[Any, Any]) -> bool:
    return any(item.why == "approval" for item in debugger.checkpoint.pending)


# Leaving, coming back, and others


LATER = """
import sys
from test_debugger import *

store = SQLiteStore(sys.argv[1])
desk = Desk(SYNC, store)
debugger = desk.debugger()
debugger.attach(sys.argv[2])
places = [stands(debugger), *goes(SYNC, debugger, "into into into into")]
debugger.approve(go_on="go")
print(json.dumps([places, debugger.status, debugger.checkpoint.output, desk.ran, debugger.checkpoint.run_id]))
store.close()
"""


@pytest.mark.few(1)
def test_what_was_left_is_picked_up_next_week_in_another_process(tmp_path: Path, driver: Driver) -> None:
    file = tmp_path / "runs.db"
    with SQLiteStore(file) as store:
        desk = Desk(driver, store)
        debugger = desk.debugger()
        driver.call(debugger, "start", "Refund order 1")
        assert goes(driver, debugger, "into into") == [
            "desk pre_tool_call look_up (+1)",
            "desk post_tool_call look_up (+1)",
        ]
        branch_id, run_id = debugger.checkpoint.branch_id, debugger.checkpoint.run_id
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", LATER, str(file), branch_id],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={"PYTHONPATH": f"{folder.parent}:{folder}"},
    )
    assert done.returncode == 0, done.stderr
    places, status, output, ran, its_run = json.loads(done.stdout)
    assert places == [
        "desk post_tool_call look_up (+1)",
        "desk pre_tool_call look_up",
        "desk post_tool_call look_up",
        "desk pre_model_call",
        "desk approval refund",
    ]
    assert (status, output, ran, its_run) == ("completed", "Done.", ["look_up 2", "refund 1 50"], run_id)
    assert desk.ran == ["look_up 1"]


def test_nothing_is_held_while_it_stands_and_no_worker_carries_it_on(desk: Desk, driver: Driver, store: Store) -> None:
    """U9, U11: whoever debugs may go away at any stop; the run is suspended, not ended, and nothing of it runs."""
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    driver.call(debugger, "into")
    (branch,) = store.branches()
    assert (branch.status, branch.is_held(store.clock())) == ("suspended", False)
    assert driver.call(desk.agent, "recover_all") == []
    assert driver.recover(desk.agent, branch.run_id).checkpoint.id == debugger.checkpoint.id


def test_a_run_that_others_have_carried_on_is_found_where_it_is(desk: Desk, driver: Driver, store: Store) -> None:
    debugger, other = desk.debugger(), desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    driver.call(other, "attach", debugger.checkpoint.run_id)
    driver.call(other, "go")
    with pytest.raises(CheckpointAlreadyResumed):
        driver.call(debugger, "into")
    assert stands(debugger) == "desk approval refund"
    driver.call(debugger, "reject", go_on="go")
    with pytest.raises(CheckpointAlreadyResumed, match="was decided before"):
        driver.call(other, "approve")
    assert (other.status, stands(other)) == ("completed", "desk completed")
    for move in ("into", "go"):
        with pytest.raises(CheckpointAlreadyResumed, match="has ended"):
            driver.call(other, move)
    assert "refund 1 50" not in desk.ran


def test_without_a_debugger_nothing_waits(desk: Desk, driver: Driver) -> None:
    """U14, UIP-A19: what a debugger adds, it adds to its own runs alone."""
    debugger = desk.debugger(breakpoints=[Breakpoint("*")])
    driver.call(debugger, "start", "Refund order 1")
    other = driver.invoke(desk.agent, "Refund order 1")
    assert [item.tool_name for item in other.checkpoint.pending] == ["refund"]
    assert driver.resume(desk.agent, other.checkpoint, approved=True).status == "completed"
    assert stands(debugger) == "desk pre_agent_run"


def test_an_agent_that_has_changed_goes_on_only_if_that_is_accepted(driver: Driver, store: Store) -> None:
    desk = Desk(driver, store)
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    driver.call(debugger, "go")
    other = Agent(name="desk", model=desk.agent.model, tools=desk.tools[:1], store=store)
    for accepts in (False, True):
        debugger = Debugger(other, accept_changes=accepts)
        driver.call(debugger, "attach", store.branches()[0].id)
        if accepts:
            assert driver.call(debugger, "approve", go_on="go").status == "completed"
        else:
            with pytest.raises(AgentChanged):
                driver.call(debugger, "approve")


def test_a_rejection_asks_for_nothing_of_an_agent_that_has_changed(driver: Driver, store: Store) -> None:
    desk = Desk(driver, store)
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    driver.call(debugger, "go")
    debugger = Debugger(Agent(name="desk", model=desk.agent.model, tools=desk.tools[:1], store=store))
    driver.call(debugger, "attach", store.branches()[0].id)
    assert driver.call(debugger, "reject", go_on="go").status == "completed"


def test_a_run_that_cannot_begin_leaves_the_debugger_where_it_is(desk: Desk, driver: Driver) -> None:
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1", thread_id="t1")
    driver.call(debugger, "into")
    place = debugger.checkpoint
    debugger.set(args={"order_id": 7})
    with pytest.raises(ThreadBusy):
        driver.call(debugger, "start", "Refund order 1", thread_id="t1")
    assert (debugger.checkpoint, debugger.edits) == (place, {"args": {"order_id": 7}})
    driver.call(debugger, "start", "Refund order 1", thread_id="t1", on_pending="supersede")
    assert (stands(debugger), debugger.edits) == ("desk pre_agent_run", {})


def test_a_failure_leaves_the_run_where_the_next_move_tries_again(driver: Driver, store: Store) -> None:
    """U13."""
    model = ScriptedModel([ModelError("the provider is down"), "Hello."])
    debugger = Desk(driver, store, model=model).debugger()
    driver.call(debugger, "start", "Hello")
    with pytest.raises(ModelError):
        driver.call(debugger, "into")
    assert (debugger.status, debugger.pending) == ("running", None)
    assert goes(driver, debugger, "into") == ["desk post_run"]


def test_a_guardrail_that_refuses_ends_the_run_there(driver: Driver, store: Store) -> None:
    debugger = Desk(driver, store, input_guardrails=[MaxLength(3)]).debugger()
    driver.call(debugger, "start", "Hello")
    with pytest.raises(GuardrailRefused):
        driver.call(debugger, "into")
    assert (debugger.status, debugger.hits) == ("rejected", [])


def test_a_run_that_a_worker_holds_is_left_alone(tmp_path: Path) -> None:
    """The tool that looks is inside the run, so the run is held while it looks."""
    with SQLiteStore(tmp_path / "runs.db") as store:
        seen: list[str] = []

        @tool
        def look() -> str:
            """Try to debug what runs."""
            (branch,) = store.branches()
            with pytest.raises(RunBusy) as busy:
                Debugger(agent).attach(branch.id)
            seen.append(busy.value.run_id)
            return "seen"

        agent = Agent(name="desk", model=ScriptedModel([call("look"), "Done."]), tools=[look], store=store)
        assert seen == [] and agent.invoke("go").run_id in seen


# Looking


def test_watches_are_worked_out_at_each_stop_and_never_raise(desk: Desk, driver: Driver) -> None:
    """Q11: watches and expressions."""
    debugger = desk.debugger()
    first = debugger.watch("args['order_id'] * 10")
    assert (first.value, first.error) == (
        None,
        "ConfigurationError: nothing is debugged yet: start a run, or attach to one",
    )
    driver.call(debugger, "start", "Refund order 1")
    assert debugger.watch("turn") == Watched("turn", 0)
    (wrong, right) = debugger.watches
    assert wrong.value is None and wrong.error is not None and wrong.error.startswith("TypeError: ")
    assert right == Watched("turn", 0)
    driver.call(debugger, "into")
    assert debugger.watches == [Watched("args['order_id'] * 10", 10), Watched("turn", 1)]
    assert debugger.evaluate("tool + '!'") == Watched("tool + '!'", "look_up!")
    debugger.unwatch("turn")
    assert [each.expression for each in debugger.watches] == ["args['order_id'] * 10"]
    for wrong_text in ("args[", "amount > 1", "__import__('os')"):
        with pytest.raises(ConfigurationError):
            debugger.watch(wrong_text)
        with pytest.raises(ConfigurationError):
            debugger.evaluate(wrong_text)
    with pytest.raises(ConfigurationError, match="is not watched; these are: args"):
        debugger.unwatch("turn")
    assert len(debugger.watches) == 1


def test_what_is_seen_at_a_stop_is_what_predicates_see_there(desk: Desk, driver: Driver) -> None:
    seen: list[BreakpointContext] = []

    def watching(context: BreakpointContext) -> bool:
        seen.append(context)
        return False

    points: list[Any] = ["pre_agent_run", "pre_model_call", "pre_tool_call", "post_tool_call", "post_run", "approval"]
    debugger = desk.debugger(breakpoints=[Breakpoint(point, watching) for point in points])
    driver.call(debugger, "start", "Refund order 1", thread_id="t1")
    compared = 0
    while debugger.status == "suspended":
        assert debugger.context in seen
        compared += 1
        driver.call(debugger, "approve" if debugger.hit is None else "into")
    assert compared == 10
    assert (debugger.context.type, debugger.context.output) == ("completed", "Done.")

    seen.clear()
    debugger = Debugger(case_graph(driver, desk), breakpoints=[Breakpoint("pre_node", watching)])
    driver.call(debugger, "start", {"question": "Is it paid?"})
    assert debugger.context in seen


def test_what_is_not_begun_or_not_there_is_said(desk: Desk, driver: Driver) -> None:
    debugger = desk.debugger()
    assert repr(debugger) == "<Debugger of <Agent 'desk'>, not started>"
    for look in (debugger.where, lambda: debugger.checkpoint, lambda: debugger.status, lambda: debugger.context):
        with pytest.raises(ConfigurationError, match="start a run, or attach to one"):
            look()
    assert (debugger.hits, debugger.hit, debugger.pending, debugger.edits) == ([], None, None, {})
    for act in ("into", "over", "out", "step", "go", "back", "approve", "reject", "skip"):
        with pytest.raises(ConfigurationError, match="start a run, or attach to one"):
            driver.call(debugger, act)
    with pytest.raises(PhronomyError):
        driver.call(debugger, "attach", "run_nonsense")
    driver.call(debugger, "start", "Refund order 1")
    place = debugger.checkpoint
    with pytest.raises(PhronomyError):
        driver.call(debugger, "attach", "run_nonsense")
    with pytest.raises(UnknownPending):
        driver.call(debugger, "approve", "pend_nonsense")
    assert debugger.checkpoint == place
    for wrong in ({"hold": None}, {"update": {}}, {"modify_state": None}):
        with pytest.raises(ConfigurationError, match="a debugger has no"):
            desk.debugger(**wrong)
    with pytest.raises(ConfigurationError, match="for an agent or a compiled graph, not str"):
        Debugger("desk")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="no run of 'desk' ever comes to pre_node"):
        desk.debugger(breakpoints=[Breakpoint("pre_node")])


def test_a_decision_taken_elsewhere_on_another_stop_does_not_hold_it_up(desk: Desk, driver: Driver) -> None:
    debugger = desk.debugger()
    driver.call(debugger, "start", "Refund order 1")
    driver.call(debugger, "into")
    first, second = debugger.hits
    driver.resume(desk.agent, debugger.checkpoint, decisions={second.id: Approve()})
    driver.call(debugger, "over")
    assert sorted(desk.ran) == ["look_up 1", "look_up 2"]
    assert stands(debugger) == "desk post_tool_call look_up"
    assert first.id not in [hit.id for hit in debugger.hits]


def test_the_methods_and_their_twins_are_alike() -> None:
    (tree,) = [node for node in tree_of("phronomy.debugger.debugger").body if getattr(node, "name", "") == "Debugger"]
    assert isinstance(tree, ast.ClassDef)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    methods = {node.name: node for node in tree.body if isinstance(node, kinds)}
    twins = {
        name: f"_{name[2:]}" if name.startswith("_") else name[1:]
        for name in methods
        if isinstance(methods[name], ast.AsyncFunctionDef)
    }
    assert len(twins) == 14 and set(twins.values()) <= methods.keys()
    beside = {"ainvoke": "invoke", "aresume": "resume", "afork": "fork", "acheckpoint": "checkpoint"}
    for mine, theirs in twins.items():
        strip = Stripped(RENAMED | beside | twins)
        is_async, is_sync = (
            ast.unparse(ast.fix_missing_locations(strip.visit(methods[name]))) for name in (mine, theirs)
        )
        assert is_async == is_sync, mine
