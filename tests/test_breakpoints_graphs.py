"""Breakpoints of graphs, of runs inside runs, and of agents with guardrails, on every driver and store."""

from __future__ import annotations

from typing import Any

import pytest
from drivers import Driver, decide_first
from stop_scenes import EVERY, OF_AGENTS, Case, desk, nested, stops_of, walk, works

from phronomy import (
    Agent,
    Approve,
    AsyncRequired,
    Breakpoint,
    ConfigurationError,
    GuardrailRefused,
    InvalidDecision,
    Reject,
    Skip,
    Store,
    UnknownPending,
    tool,
)
from phronomy.graph import END, START, Abort, Graph, Send, StateGraph
from phronomy.guardrails.guardrail import MaxLength, RedactPatterns, RefusePatterns
from phronomy.testing import ScriptedModel, call


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


# Graphs


def test_a_graph_stops_before_and_after_its_nodes_and_at_its_end(driver: Driver, store: Store) -> None:
    graph = works(store=store)
    stops: list[Any] = ["pre_node", "post_node", "post_run"]
    result, stood = walk(driver, graph, {"n": 1}, breakpoints=[Breakpoint(point) for point in stops])
    assert (stood, result.output.log) == ([*stops[:2] * 3, "post_run"], ["a 1", "b 1", "c 1"])


def test_what_is_seen_at_a_node(driver: Driver, store: Store) -> None:
    graph = works(store=store)
    narrowed = [
        Breakpoint("pre_node", nodes=["b"], label="before"),
        Breakpoint("post_node", nodes=["c"], label="after"),
    ]
    paused = driver.invoke(graph, {"n": 1}, breakpoints=narrowed).checkpoint
    [hit] = graph.stopped_at(paused)
    assert (hit.type, hit.node, hit.tool, hit.label, hit.before, hit.agent) == (
        "pre_node",
        "b",
        None,
        "before",
        True,
        "works",
    )
    assert (hit.state, hit.stack, hit.path, hit.next) == ({"n": 1, "log": ["a 1"]}, ("works",), "", ("run b",))
    assert (hit.id, hit.checkpoint_id, hit.run_id, hit.branch_id) == (
        paused.pending[0].id,
        paused.id,
        paused.run_id,
        paused.branch_id,
    )
    assert hit.requested_at == paused.pending[0].requested_at
    paused = driver.resume(graph, paused, breakpoints=narrowed).checkpoint
    [hit] = graph.stopped_at(paused)
    assert (hit.type, hit.node, hit.label, hit.before) == ("post_node", "c", "after", False)
    assert (hit.state["log"], hit.next) == (["a 1", "b 1", "c 1"], ("end the run as completed",))
    assert driver.resume(graph, paused).output.log == ["a 1", "b 1", "c 1"]


def test_what_comes_next_is_told_at_each_stop(driver: Driver, store: Store) -> None:
    """U4."""
    guards: Any = {"input_guardrails": [MaxLength(99)], "output_guardrails": [MaxLength(99)]}
    agent = desk(store, call("pay", {"n": 7}), '{"n": 5}', output_type=Case, **guards)
    stops = [Breakpoint(point) for point in OF_AGENTS]
    result, told = driver.invoke(agent, "go", breakpoints=stops), {}
    while result.suspended:
        [hit] = agent.stopped_at(result.checkpoint)
        told[hit.type] = hit.next
        result = driver.resume(agent, result.checkpoint, breakpoints=stops)
    assert result.output.n == 5
    assert told == {
        "pre_input_guardrails": ("ask the guardrails about the input",),
        "pre_agent_run": ("ask the model",),
        "pre_model_call": ("ask the model",),
        "pre_tool_call": ("run pay",),
        "post_tool_call": ("ask the model",),
        "pre_output_guardrails": ("ask the guardrails about the output",),
        "post_run": ("end the run as completed",),
    }
    graph = works(store=store)
    for point, next in (("pre_node", "run a"), ("post_node", "run b")):
        paused = driver.invoke(graph, {}, breakpoints=[Breakpoint(point)]).checkpoint
        assert [hit.next for hit in graph.stopped_at(paused)] == [(next,)]


def test_stops_of_several_kinds_after_one_node_are_each_decided(driver: Driver, store: Store) -> None:
    graph = works(store=store)
    asked: Any = {"interrupt_after": ["b"], "breakpoints": [Breakpoint("post_node", nodes=["b"])]}
    paused = driver.invoke(graph, {"n": 1}, **asked).checkpoint
    assert [(hit.node, hit.next) for hit in graph.stopped_at(paused)] == [("b", ("go on along the edges",))] * 2
    first, second = (item.id for item in paused.pending)
    half = driver.resume(graph, paused, decisions={first: Approve()}, **asked).checkpoint
    assert ([item.id for item in half.pending], graph.state_of(half).log) == ([second], ["a 1", "b 1"])
    assert driver.resume(graph, half, **asked).output.log == ["a 1", "b 1", "c 1"]
    for id in (first, second):
        fork = driver.fork(graph, paused.id)
        rejected = driver.resume(graph, fork, decisions=decide_first(fork, Reject()))
        assert (rejected.status, id in [item.id for item in rejected.checkpoint.pending]) == ("rejected", False)


def test_what_has_not_given_anything_is_no_stop_after_a_node(driver: Driver, store: Store) -> None:
    def abort(state: Case) -> Abort:
        return Abort({"log": ["aborted"]}, reason="enough")

    graph = (
        StateGraph(Case)
        .add_node("note", driver.function(lambda state: {"log": ["noted"]}))
        .add_node("ask", driver.function(lambda state: {"log": ["asked"]}), requires_approval=True, on_rejection="stop")
        .add_node("stop", driver.function(abort))
        .add_edge(START, "note")
        .add_edge(START, "ask")
        .add_edge("note", END)
        .add_edge("ask", END)
        .add_edge("stop", END)
        .compile(store=store)
    )
    stop = [Breakpoint("post_node")]
    asked = driver.invoke(graph, {}, breakpoints=stop).checkpoint
    assert [item.why for item in asked.pending] == ["approval"]
    paused = driver.resume(graph, asked, approved=False, breakpoints=stop).checkpoint
    assert [hit.node for hit in graph.stopped_at(paused)] == ["note"]
    result = driver.resume(graph, paused, breakpoints=stop)
    assert (result.status, graph.state_of(result.checkpoint).log) == ("cancelled", ["noted", "aborted"])


def test_a_predicate_over_the_state(driver: Driver) -> None:
    graph = works(breakpoints=[Breakpoint("post_node", when="len(state['log']) == 2 and state['n'] > 0")])
    assert driver.invoke(graph, {"n": 0}).status == "completed"
    paused = driver.invoke(graph, {"n": 1}).checkpoint
    assert [hit.node for hit in graph.stopped_at(paused)] == ["b"]
    assert driver.resume(graph, paused).status == "completed"


def test_a_node_is_skipped_and_its_edges_are_followed(driver: Driver, store: Store) -> None:
    graph = works(store=store)
    paused = driver.invoke(graph, {"n": 1}, breakpoints=[Breakpoint("pre_node", nodes=["b"])]).checkpoint
    result = driver.resume(graph, paused, decisions={paused.pending[0].id: Skip()})
    assert (result.status, result.output.log) == ("completed", ["a 1", "c 1"])


def test_the_end_of_a_graph_is_skipped(driver: Driver, store: Store) -> None:
    graph = works(store=store)
    paused = driver.invoke(graph, {"n": 1}, breakpoints=[Breakpoint("post_run")]).checkpoint
    result = driver.resume(graph, paused, decisions={paused.pending[0].id: Skip()})
    assert (result.status, result.output) == ("skipped", None)
    assert graph.state_of(result.checkpoint).log == ["a 1", "b 1", "c 1"]


def test_after_a_node_nothing_is_left_to_skip_and_a_rejection_ends_the_run(driver: Driver) -> None:
    graph = works()
    paused = driver.invoke(graph, {"n": 1}, breakpoints=[Breakpoint("post_node", nodes=["b"])]).checkpoint
    with pytest.raises(InvalidDecision, match="nothing is left to skip"):
        driver.resume(graph, paused, decisions={paused.pending[0].id: Skip()})
    result = driver.resume(graph, paused, approved=False)
    assert (result.status, graph.state_of(result.checkpoint).log) == ("rejected", ["a 1", "b 1"])


def test_the_state_is_edited_at_a_stop(driver: Driver, store: Store) -> None:
    graph = works(store=store)
    for point, log in (("pre_node", ["a 1", "human", "b 9", "c 9"]), ("post_node", ["a 1", "b 1", "human", "c 9"])):
        stop = [Breakpoint(point, nodes=["b"])]
        paused = driver.invoke(graph, {"n": 1}, breakpoints=stop).checkpoint
        result = driver.resume(graph, paused, update={"n": 9, "log": ["human"]})
        assert (result.output.log, graph.state_of(paused).n) == (log, 1)


def test_a_node_that_may_need_an_approval_is_judged_by_the_state_that_was_edited_at_its_breakpoint(
    driver: Driver, store: Store
) -> None:
    """It is shown the state, and runs on what was shown: an edit of the state is one of that."""
    ran: list[int] = []

    def pay(state: Case) -> dict[str, Any]:
        ran.append(state.n)
        return {"log": [f"paid {state.n}"]}

    graph = (
        StateGraph(Case)
        .add_node(pay, requires_approval=lambda state: state.n > 9)
        .add_edge(START, "pay")
        .add_edge("pay", END)
        .compile(store=store)
    )
    stop = [Breakpoint("pre_node")]
    paused = driver.invoke(graph, {"n": 1}, breakpoints=stop).checkpoint
    assert [item.why for item in paused.pending] == ["breakpoint"]
    again: Any = {"breakpoints": stop, "interrupt_before": ["pay"]}
    assert driver.resume(graph, paused, update={"n": 5}, **again).output.log == ["paid 5"], "it stops there once"
    paused = driver.invoke(graph, {"n": 1}, breakpoints=stop).checkpoint
    asked = driver.resume(graph, paused, update={"n": 500}, **again).checkpoint
    assert ([item.why for item in asked.pending], ran) == (["approval"], [5])
    assert driver.resume(graph, asked, approved=True).output.log == ["paid 500"]


def test_one_of_several_runs_of_a_node_stops(driver: Driver) -> None:
    graph = (
        StateGraph(Case)
        .add_node("note", lambda arg: {"log": [arg]})
        .add_conditional_edges(START, lambda _: [Send("note", text) for text in "xyz"], ["note"])
        .add_edge("note", END)
        .compile()
    )
    paused = driver.invoke(graph, {}, breakpoints=[Breakpoint("pre_node", when="args['arg'] == 'y'")]).checkpoint
    assert [item.args for item in paused.pending] == [{"arg": "y"}]
    assert driver.resume(graph, paused).output.log == ["x", "y", "z"]


# Runs inside runs


def test_a_stop_in_an_agent_in_a_node(driver: Driver, store: Store) -> None:
    graph = nested(desk(None), store=store)
    for point in OF_AGENTS[:-1]:
        stop = [Breakpoint(point, agents=["desk"])]
        paused = driver.invoke(graph, {}, breakpoints=stop).checkpoint
        assert stops_of(paused) == [point]
        [hit] = graph.stopped_at(paused)
        assert (hit.agent, hit.stack, hit.path, hit.input) == ("desk", ("office", "desk"), "1.0", "go")
        result, stood = driver.resume(graph, paused), stops_of(paused)
        assert (result.output.log, stood) == (["done"], [point])


def test_a_filter_keeps_to_its_agents(driver: Driver, store: Store) -> None:
    graph = nested(desk(None), store=store)
    result, stood = walk(driver, graph, {}, breakpoints=[Breakpoint("post_run", agents=["office"])])
    assert (len(stood), result.output.log) == (1, ["done"])
    result, stood = walk(driver, graph, {}, breakpoints=[Breakpoint("post_run")])
    assert (len(stood), result.output.log) == (2, ["done"])
    with pytest.raises(ConfigurationError, match="its agents are desk, office"):
        driver.invoke(graph, {}, breakpoints=[Breakpoint("post_run", agents=["other"])])


def tower(store: Store | None, **options: Any) -> Graph[Any, Any]:
    """A graph with a graph with an agent in it."""
    return (
        StateGraph(Case, name="tower")
        .add_node("floor", nested(desk(None, **options)))
        .add_edge(START, "floor")
        .add_edge("floor", END)
        .compile(store=store)
    )


def test_a_stop_two_runs_down(driver: Driver, store: Store) -> None:
    paid: list[int] = []
    graph = tower(store, paid=paid)
    points = ["pre_node", "pre_agent_run", "pre_tool_call", "post_tool_call", "post_node", "post_run"]
    stops = [Breakpoint(point) for point in points]
    result, stood = driver.invoke(graph, {}, breakpoints=stops), []
    while result.suspended:
        [hit] = graph.stopped_at(result.checkpoint)
        stood.append((hit.type, *hit.stack[1:]))
        result = driver.resume(graph, result.checkpoint, breakpoints=stops)
    assert stood == [
        ("pre_node",),
        ("pre_node", "office"),
        ("pre_agent_run", "office", "desk"),
        ("pre_tool_call", "office", "desk"),
        ("post_tool_call", "office", "desk"),
        ("post_run", "office", "desk"),
        ("post_node", "office"),
        ("post_run", "office"),
        ("post_node",),
        ("post_run",),
    ]
    assert (result.output.log, paid) == (["done"], [7])


@pytest.mark.parametrize("point", OF_AGENTS)
def test_a_fork_at_a_stop_two_runs_down_stops_there_again(driver: Driver, store: Store, point: Any) -> None:
    graph = tower(store)
    stop = [Breakpoint(point, agents=["desk"])]
    paused = driver.invoke(graph, {}, breakpoints=stop).checkpoint
    done = driver.resume(graph, paused)
    forked = driver.fork(graph, paused.id)
    assert (done.output.log, stops_of(forked), forked.pending[0].id == paused.pending[0].id) == (
        ["done"],
        [point],
        False,
    )
    assert [hit.stack for hit in graph.stopped_at(forked)] == [("tower", "office", "desk")]
    with pytest.raises(UnknownPending):
        driver.resume(graph, forked, decisions={paused.pending[0].id: Approve()})
    assert driver.resume(graph, forked).output.log == ["done"]


def test_breakpoints_of_an_agent_hold_for_it_in_a_node_too(driver: Driver) -> None:
    inner = desk(None, breakpoints=[Breakpoint("tool", label="own")])
    graph = nested(inner, breakpoints=[Breakpoint("tool", when="args['n'] > 9", label="of the graph")])
    paused = driver.invoke(graph, {}).checkpoint
    assert [item.label for item in paused.pending] == ["own"]
    assert driver.resume(graph, paused).status == "completed"


def test_the_input_of_a_run_inside_is_edited_and_its_end_is_skipped(driver: Driver, store: Store) -> None:
    model = ScriptedModel.by_turn(["done"])
    graph = nested(Agent(name="desk", model=model), store=store)
    paused = driver.invoke(graph, {}, breakpoints=[Breakpoint("pre_agent_run")]).checkpoint
    id = paused.pending[0].id
    assert driver.resume(graph, paused, decisions={id: Approve(args={"input": "stay"})}).output.log == ["done"]
    assert [message.text for message in model.requests[-1].messages] == ["stay"]
    paused = driver.invoke(graph, {}, breakpoints=[Breakpoint("pre_agent_run")]).checkpoint
    result = driver.resume(graph, paused, decisions={paused.pending[0].id: Skip()})
    assert (result.status, result.output.log, len(model.requests)) == ("completed", [], 1)


# Guardrails

NO_SECRETS = {"input_guardrails": [RefusePatterns(["secret"], "no secrets"), RedactPatterns(["[0-9]+"])]}


@pytest.mark.parametrize("point", ["pre_input_guardrails", "pre_agent_run", "pre_model_call"])
def test_guardrails_look_at_an_input_that_was_edited_before_and_behind_them(
    driver: Driver, store: Store, point: Any
) -> None:
    model = ScriptedModel.by_turn(["done"])
    agent = Agent(name="desk", model=model, store=store, **NO_SECRETS)
    stop = [Breakpoint(point)]
    paused = driver.invoke(agent, "go", breakpoints=stop).checkpoint
    with pytest.raises(GuardrailRefused) as refused:
        driver.resume(agent, paused, decisions={paused.pending[0].id: Approve(args={"input": "a secret"})})
    assert refused.value.result is not None
    assert (refused.value.stage, model.requests, refused.value.result.messages) == ("input", [], ())
    paused = driver.invoke(agent, "go", breakpoints=stop).checkpoint
    edit = {paused.pending[0].id: Approve(args={"input": "room 12"})}
    assert driver.resume(agent, paused, decisions=edit, breakpoints=stop).output == "done"
    assert [message.text for message in model.requests[-1].messages] == ["room [redacted]"]
    paused = driver.invoke(agent, "go", breakpoints=stop).checkpoint
    assert driver.resume(agent, paused).output == "done"
    assert [message.text for message in model.requests[-1].messages] == ["go"]


def test_guardrails_look_at_an_input_that_was_edited_in_a_run_inside(driver: Driver, store: Store) -> None:
    model = ScriptedModel.by_turn(["done"])
    graph = nested(Agent(name="desk", model=model, **NO_SECRETS), store=store)
    for given, heard in (("a secret", []), ("room 12", ["room [redacted]"])):
        paused = driver.invoke(graph, {}, breakpoints=[Breakpoint("pre_model_call")]).checkpoint
        driver.resume(graph, paused, decisions={paused.pending[0].id: Approve(args={"input": given})})
        assert [message.text for request in model.requests for message in request.messages] == heard


@pytest.mark.parametrize("answer", [Skip(), Reject()], ids=["skip", "reject"])
@pytest.mark.parametrize("point", ["pre_input_guardrails", "pre_output_guardrails"])
def test_what_guardrails_have_not_seen_is_not_in_the_conversation_that_goes_on(
    driver: Driver, store: Store, point: Any, answer: Any
) -> None:
    guards: Any = {**NO_SECRETS, "output_guardrails": [RefusePatterns(["secret"], "no secrets")]}
    model = ScriptedModel(["the secret", "fine"])
    agent = Agent(name="desk", model=model, store=store, **guards)
    stop = [Breakpoint(point)]
    asked = "a secret" if "input" in point else "go"
    paused = driver.invoke(agent, asked, thread_id="t", breakpoints=stop).checkpoint
    result = driver.resume(agent, paused, decisions={paused.pending[0].id: answer})
    assert (result.status, result.output) == ("skipped" if isinstance(answer, Skip) else "rejected", None)
    assert not any("secret" in message.text for message in result.messages)
    again = Agent(name="desk", model=(later := ScriptedModel(["fine"])), store=store, **guards)
    assert driver.invoke(again, "go on", thread_id="t").output == "fine"
    assert not any("secret" in message.text for message in later.requests[0].messages)


def test_guardrails_look_at_arguments_that_were_edited_at_a_stop(driver: Driver, store: Store) -> None:
    paid: list[int] = []
    agent = desk(store, paid=paid, tool_guardrails=[RefusePatterns(["13"], "no 13")])
    paused = driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")]).checkpoint
    id = paused.pending[0].id
    with pytest.raises(InvalidDecision):
        driver.resume(agent, paused, decisions={id: Approve(args={"n": 13})})
    driver.resume(agent, paused, decisions={id: Approve(args={"n": 12})})
    assert paid == [12]


# Sync and async


def test_a_sync_call_has_no_use_for_what_is_async_whatever_stops_it() -> None:
    async def work() -> str:
        """Work."""
        return "worked"

    agent = Agent(model=ScriptedModel([call("work")]), tools=[tool(work)], breakpoints=[Breakpoint("tool")])
    with pytest.raises(AsyncRequired):
        agent.invoke("go")
