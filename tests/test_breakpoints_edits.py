"""What is changed, left out, refused or branched at a breakpoint, on every driver and store."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from drivers import Driver, outline
from stop_scenes import EVERY, OF_AGENTS, OF_RUNS, desk, nested

from phronomy import (
    Agent,
    AgentChanged,
    ApprovalExpired,
    Approve,
    Breakpoint,
    Checkpoint,
    CheckpointAlreadyResumed,
    InvalidDecision,
    MemoryStore,
    NothingDecided,
    Respond,
    Skip,
    Store,
    UnknownPending,
    tool,
)
from phronomy.testing import ScriptedModel, call


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


# Editing


@pytest.mark.parametrize("point", ["pre_input_guardrails", "pre_agent_run", "pre_model_call"])
def test_another_input_is_what_the_model_reads_and_instructions_are_made_of(
    driver: Driver, store: Store, point: Any
) -> None:
    model = ScriptedModel.by_turn(["done"])

    def instructions(input: Any) -> str:
        return f"about {input}"

    agent = Agent(name="desk", model=model, store=store, instructions=driver.function(instructions))
    paused = driver.invoke(agent, "go", breakpoints=[Breakpoint(point)]).checkpoint
    id = paused.pending[0].id
    assert (paused.pending[0].args, agent.stopped_at(paused)[0].input) == ({"input": "go"}, "go")
    result = driver.resume(agent, paused, decisions={id: Approve(args={"input": "stay"})})
    [request] = model.requests
    assert request.system == "about stay"
    assert [(message.role, message.text) for message in request.messages] == [("user", "stay")]
    assert (result.output, result.checkpoint.original_input, result.checkpoint.input) == ("done", "go", "stay")


@pytest.mark.parametrize(
    "input", ["", {"who": "ann"}, [{"type": "text", "text": "hi"}]], ids=["empty", "object", "parts"]
)
def test_any_input_that_a_run_can_begin_with_may_stand_in(driver: Driver, input: Any) -> None:
    agent = desk(None, "done")
    paused = driver.invoke(agent, "go", breakpoints=[Breakpoint("pre_agent_run")]).checkpoint
    edited = driver.resume(agent, paused, decisions={paused.pending[0].id: Approve(args={"input": input})})
    straight = driver.invoke(desk(None, "done"), input)
    assert outline(edited) == outline(straight)
    assert edited.checkpoint.input == straight.checkpoint.input


@pytest.mark.parametrize(
    ("point", "args", "why"),
    [
        ("pre_agent_run", {"input": 5}, "input"),
        ("pre_agent_run", {"output": "x"}, "the input alone can be edited"),
        ("pre_agent_run", {"input": "x", "more": 1}, "the input alone"),
        ("pre_agent_run", {}, "the input alone"),
        ("post_run", {"input": "x"}, "where nothing can be edited any more: let it go on"),
        ("pre_output_guardrails", {"output": "x"}, "where nothing can be edited any more: let it go on"),
        ("post_tool_call", {"result": "x"}, "nothing"),
        ("pre_tool_call", {"n": "many"}, "cannot run"),
        ("pre_tool_call", {"m": 1}, "cannot run"),
    ],
)
def test_an_edit_that_cannot_be_is_refused_and_nothing_changes(driver: Driver, point: Any, args: Any, why: str) -> None:
    agent = desk(None)
    paused = driver.invoke(agent, "go", breakpoints=[Breakpoint(point)]).checkpoint
    with pytest.raises(InvalidDecision, match=why):
        driver.resume(agent, paused, decisions={paused.pending[0].id: Approve(args=args)})
    assert driver.resume(agent, paused).output == "done"


def test_arguments_are_edited_and_the_model_is_told(driver: Driver, store: Store) -> None:
    paid: list[int] = []
    agent = desk(store, paid=paid)
    paused = driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")]).checkpoint
    result = driver.resume(agent, paused, decisions={paused.pending[0].id: Approve(args={"n": 3})})
    assert paid == [3]
    assert "A human changed the arguments" in outline(result)[2]


def test_arguments_that_need_an_approval_since_the_edit_wait_for_one(driver: Driver, store: Store) -> None:
    paid: list[int] = []
    agent = desk(store, paid=paid, requires_approval=lambda args: args["n"] > 9, approval_timeout=60.0)
    paused = driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")]).checkpoint
    id = paused.pending[0].id
    asked = driver.resume(agent, paused, decisions={id: Approve(args={"n": 500})}).checkpoint
    [item] = asked.pending
    assert (item.why, item.args, item.id == id, paid) == ("approval", {"n": 500}, False, [])
    assert item.expires_at == item.requested_at + timedelta(seconds=60)
    with pytest.raises(NothingDecided):
        driver.resume(agent, asked)
    assert (driver.resume(agent, asked, approved=True).output, paid) == ("done", [500])


def test_arguments_in_a_run_inside_that_need_an_approval_since_the_edit_wait_for_one(
    driver: Driver, store: Store
) -> None:
    paid: list[int] = []
    agent = desk(None, paid=paid, requires_approval=lambda args: args["n"] > 9, approval_timeout=60.0)
    graph = nested(agent, store=store)
    paused = driver.invoke(graph, {}, breakpoints=[Breakpoint("tool")]).checkpoint
    asked = driver.resume(graph, paused, decisions={paused.pending[0].id: Approve(args={"n": 500})}).checkpoint
    [item] = asked.pending
    assert (item.why, item.args, item.path, paid) == ("approval", {"n": 500}, "1.0", [])
    assert item.expires_at == item.requested_at + timedelta(seconds=60)
    with pytest.raises(NothingDecided):
        driver.resume(graph, asked)
    assert (driver.resume(graph, asked, approved=True).output.log, paid) == (["done"], [500])


def test_a_gate_that_came_while_a_run_stood_at_a_breakpoint_is_not_passed_with_it(driver: Driver, store: Store) -> None:
    for gate in (True, lambda args: args["n"] > 5):
        paid: list[int] = []
        paused = driver.invoke(desk(store, breakpoints=[Breakpoint("tool")]), "go").checkpoint
        agent = desk(store, paid=paid, requires_approval=gate)
        asked = driver.resume(agent, paused).checkpoint
        assert ([item.why for item in asked.pending], paid) == (["approval"], [])
        with pytest.raises(NothingDecided):
            driver.resume(agent, asked)
        result = driver.resume(agent, asked, approved=True)
        assert (result.output, paid) == ("done", [7])
        assert not any("changed the arguments" in line for line in outline(result))


def test_a_gate_that_came_to_a_run_inside_is_not_passed_with_a_breakpoint(driver: Driver, store: Store) -> None:
    paid: list[int] = []
    paused = driver.invoke(nested(desk(None), store=store), {}, breakpoints=[Breakpoint("tool")]).checkpoint
    graph = nested(desk(None, paid=paid, requires_approval=True), store=store)
    asked = driver.resume(graph, paused).checkpoint
    assert ([item.why for item in asked.pending], paid) == (["approval"], [])
    assert (driver.resume(graph, asked, approved=True).output.log, paid) == (["done"], [7])


def test_drift_is_judged_before_a_breakpoint_is_passed(driver: Driver, store: Store) -> None:
    @tool
    def pay(m: str) -> str:
        """Pay otherwise."""
        return m

    paused = driver.invoke(desk(store, breakpoints=[Breakpoint("tool")]), "go").checkpoint
    for other in (desk(store, tools=[pay]), desk(store, tools=[]), desk(store, name="other")):
        with pytest.raises(AgentChanged):
            driver.resume(other, paused)
    assert driver.resume(desk(store), paused).output == "done"
    at_gate = driver.invoke(desk(store, breakpoints=[Breakpoint("pre_agent_run")]), "go").checkpoint
    assert driver.resume(desk(store, "changed", tools=[]), at_gate).output == "changed", "nothing there is of a tool"


# Skipping, rejecting, answering


@pytest.mark.parametrize("point", OF_RUNS)
def test_a_skip_between_two_moves_ends_the_run_there(driver: Driver, store: Store, point: Any) -> None:
    paid: list[int] = []
    model = ScriptedModel.by_turn([call("pay", {"n": 7}), "done"])
    agent = desk(store, model=model, paid=paid)
    every = [Breakpoint(name) for name in OF_RUNS[OF_RUNS.index(point) :]]
    paused = driver.invoke(agent, "go", thread_id="t", breakpoints=every).checkpoint
    asked = len(model.requests)
    result = driver.resume(agent, paused, decisions={paused.pending[0].id: Skip()}, breakpoints=every)
    assert (result.status, result.output, result.suspended) == ("skipped", None, False)
    assert len(model.requests) == asked, "and no later stop was come to"
    assert [decision.kind for decision in result.checkpoint.decisions] == ["skip"]
    with pytest.raises(CheckpointAlreadyResumed):
        driver.resume(agent, paused)
    [branch] = store.branches()
    assert branch.status == "skipped"
    assert driver.invoke(desk(store, "again"), "go on", thread_id="t").output == "again"


def test_a_skip_before_a_tool_leaves_it_out_and_the_model_is_told(driver: Driver, store: Store) -> None:
    paid: list[int] = []
    agent = desk(store, [call("pay", {"n": 1}), call("pay", {"n": 2})], "done", paid=paid)
    paused = driver.invoke(agent, "go", breakpoints=[Breakpoint("tool", when="args['n'] == 1")]).checkpoint
    result = driver.resume(agent, paused, decisions={paused.pending[0].id: Skip()})
    assert (result.output, paid) == ("done", [2])
    assert outline(result)[2].startswith("tool (skipped): ")


@pytest.mark.parametrize("point", ["post_tool_call"])
def test_what_has_run_cannot_be_skipped(driver: Driver, point: Any) -> None:
    agent = desk(None)
    paused = driver.invoke(agent, "go", breakpoints=[Breakpoint(point)]).checkpoint
    with pytest.raises(InvalidDecision, match="nothing is left to skip"):
        driver.resume(agent, paused, decisions={paused.pending[0].id: Skip()})
    assert driver.resume(agent, paused).output == "done"


def test_what_is_no_breakpoint_cannot_be_skipped(driver: Driver) -> None:
    agent = desk(None, requires_approval=True)
    for breakpoints in ([], [Breakpoint("tool")]):
        paused = driver.invoke(agent, "go", breakpoints=breakpoints).checkpoint
        with pytest.raises(InvalidDecision, match="is no breakpoint: reject it"):
            driver.resume(agent, paused, decisions={paused.pending[0].id: Skip()})


@pytest.mark.parametrize("point", OF_AGENTS)
def test_a_rejection_ends_the_run_at_a_stop_and_a_call_where_it_is_one(
    driver: Driver, store: Store, point: Any
) -> None:
    paid: list[int] = []
    agent = desk(store, paid=paid)
    paused = driver.invoke(agent, "go", breakpoints=[Breakpoint(point)]).checkpoint
    before = list(paid)
    result = driver.resume(agent, paused, approved=False, reason="no")
    assert paid == before
    if point == "pre_tool_call":
        assert (result.status, outline(result)[2]) == (
            "completed",
            "tool (rejected): A human rejected this call, so it was not run. Reason: no",
        )
    else:
        assert (result.status, result.output) == ("rejected", None)
    assert result.checkpoint.decisions[0].reason == "no"


def test_a_human_can_be_the_tool_but_not_the_run(driver: Driver) -> None:
    agent = desk(None, paid=(paid := []))
    paused = driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")]).checkpoint
    result = driver.resume(agent, paused, decisions={paused.pending[0].id: Respond(content="by hand")})
    assert (outline(result)[2], paid) == ("tool (responded): by hand", [])
    for point in ("pre_model_call", "post_tool_call", "post_run"):
        paused = driver.invoke(agent, "go", breakpoints=[Breakpoint(point)]).checkpoint
        with pytest.raises(InvalidDecision, match="nothing to answer"):
            driver.resume(agent, paused, decisions={paused.pending[0].id: Respond(content="x")})


def test_a_call_at_a_breakpoint_lapses_as_an_approval_does_and_a_stop_of_the_run_never() -> None:
    now = [1_900_000_000.0]
    for driver in EVERY:
        store = MemoryStore(clock=lambda: now[0])
        agent = desk(store, approval_timeout=60.0, paid=(paid := []))
        paused = driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")]).checkpoint
        gate = driver.invoke(agent, "go", breakpoints=[Breakpoint("pre_agent_run")]).checkpoint
        assert [bool(each.pending[0].expires_at) for each in (paused, gate)] == [True, False]
        now[0] += 61
        with pytest.raises(ApprovalExpired) as late:
            driver.resume(agent, paused, approved=True)
        assert late.value.result is not None
        assert (late.value.result.status, paid) == ("completed", [])
        assert driver.resume(agent, gate).output == "done"
        assert paid == [7]


def test_a_run_is_cancelled_at_a_stop(driver: Driver, store: Store) -> None:
    for point in OF_AGENTS:
        agent = desk(store)
        paused = driver.invoke(agent, "go", breakpoints=[Breakpoint(point)]).checkpoint
        result = driver.cancel(agent, paused, reason="enough")
        assert (result.status, result.checkpoint.pending) == ("cancelled", ())
        with pytest.raises(CheckpointAlreadyResumed):
            driver.resume(agent, paused)


def test_a_new_message_supersedes_a_run_at_a_stop(driver: Driver, store: Store) -> None:
    agent = desk(store, "done")
    driver.invoke(agent, "go", thread_id="t", breakpoints=[Breakpoint("pre_agent_run")])
    result = driver.invoke(agent, "go on", thread_id="t", on_pending="supersede")
    assert (result.status, sorted(branch.status for branch in store.branches())) == (
        "completed",
        ["completed", "superseded"],
    )


# Forks


@pytest.mark.parametrize("point", OF_AGENTS)
def test_a_fork_at_a_stop_stops_there_again_and_one_answer_never_passes_two_branches(
    driver: Driver, store: Store, point: Any
) -> None:
    agent = desk(store, paid=(paid := []))
    paused = driver.invoke(agent, "go", breakpoints=[Breakpoint(point)]).checkpoint
    early = driver.fork(agent, paused)
    done = driver.resume(agent, paused)
    late = driver.fork(agent, paused.id)
    ids = [each.pending[0].id for each in (paused, early, late)]
    assert (done.output, len(set(ids)), len(paid)) == ("done", 3, 1)
    assert [(item.why, item.point) for each in (early, late) for item in each.pending] == [("breakpoint", point)] * 2
    for fork, id in ((early, ids[0]), (late, ids[1])):
        with pytest.raises(UnknownPending, match=id):
            driver.resume(agent, fork, decisions={id: Approve()})
    for fork in (early, late):
        assert driver.resume(agent, fork).output == "done"
    assert len(paid) <= 3


def test_a_stop_is_taken_elsewhere_as_text_and_a_forged_one_is_refused(driver: Driver) -> None:
    paused = driver.invoke(desk(None), "go", breakpoints=[Breakpoint("post_tool_call")]).checkpoint
    text = paused.model_dump_json()
    agent = desk(None, paid=(paid := []))
    assert (driver.resume(agent, Checkpoint.model_validate_json(text)).output, paid) == ("done", [])
    asked = driver.invoke(desk(None, requires_approval=True), "go").checkpoint
    [pending] = asked.calls
    for forged in ({"gate": True}, {"gate": True, "status": "ready"}):
        with pytest.raises(ValueError, match="a gate waits at a breakpoint, and never runs"):
            type(pending).model_validate_json(json.dumps({**pending.model_dump(mode="json"), **forged}))
