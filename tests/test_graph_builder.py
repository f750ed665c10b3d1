"""Building a graph: what is checked when it is compiled, and what is said of it. And what a compiled graph keeps to."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import pytest
from drivers import PATIENCE, Driver, rows
from pydantic import BaseModel

from phronomy import Agent, Hooks, MemoryStore, tool
from phronomy.errors import AsyncRequired, ConfigurationError, GraphError, NodeFailed
from phronomy.graph import END, START, Graph, Send, StateGraph, add, append
from phronomy.testing import ScriptedModel


class Job(BaseModel):
    plan: str = ""
    log: Annotated[list[str], append] = []


class Other(BaseModel):
    x: int = 0


class Best(BaseModel):
    plan: Annotated[str, max] = ""


def nothing(state: Any) -> dict[str, Any]:
    return {}


async def later(state: Any) -> dict[str, Any]:
    return {}


async def ending(state: Any) -> str:
    return END


def hiding(state: Any) -> Any:
    """It gives a coroutine, and nothing in how it is written says so."""
    return later(state)


def nodes(*names: str, **options: Any) -> StateGraph[Job]:
    graph = StateGraph(Job, name="g")
    for name in names:
        graph.add_node(name, nothing, **options)
    return graph


def one(**options: Any) -> StateGraph[Job]:
    """A graph of one node."""
    return nodes("a", **options).add_edge(START, "a").add_edge("a", END)


def inner(state: type = Job) -> Graph[Any, Any]:
    return StateGraph(state, name="inner").add_node("n", nothing).add_edge(START, "n").add_edge("n", END).compile()


def desk() -> Agent[Any]:
    return Agent(name="desk", model=ScriptedModel(["hello"]))


def refused(build: Callable[[], Any]) -> str:
    with pytest.raises(GraphError) as caught:
        build()
    return str(caught.value)


# Edges


WRONG_EDGES: dict[str, tuple[Callable[[], StateGraph[Job]], str]] = {
    "nothing": (nodes, "graph 'g' has no beginning: add an edge from START"),
    "no-beginning": (
        lambda: nodes("a").add_edge("a", END),
        "graph 'g' has no beginning: add an edge from START",
    ),
    "unknown-target": (
        lambda: one().add_edge("a", "b"),
        "graph 'g': there is no node 'b'; the nodes are a",
    ),
    "unknown-source": (lambda: one().add_edge("b", "a"), "graph 'g': there is no node 'b'; the nodes are a"),
    "unknown-in-a-join": (
        lambda: one().add_edge(["a", "b"], END),
        "graph 'g': there is no node 'b'; the nodes are a",
    ),
    "from-END": (lambda: one().add_edge(END, "a"), "graph 'g': nothing goes on from END"),
    "to-START": (lambda: one().add_edge("a", START), "graph 'g': nothing leads to START: name the first node"),
    "START-in-a-join": (
        lambda: one().add_edge([START, "a"], END),
        "graph 'g': START is no part of a join: name the nodes that are waited for",
    ),
    "unreachable": (
        lambda: one().add_node("b", nothing).add_node("c", nothing).add_edge("b", "c").add_edge("c", END),
        "graph 'g': no way leads from START to b, c: add an edge, or leave them out",
    ),
    "a-join-that-waits-for-itself": (
        lambda: (
            nodes("a", "b", "c").add_edge(START, "a").add_edge(["a", "b"], "c").add_edge("c", "b").add_edge("c", END)
        ),
        "graph 'g': no way leads from START to b, c: add an edge, or leave them out",
    ),
    "no-way-to-END": (
        lambda: nodes("a").add_edge(START, "a"),
        "graph 'g': no way leads from 'a' to END: add an edge, or name the `destinations` of a Replan",
    ),
    "no-way-to-END-from-one": (
        lambda: one().add_node("b", nothing).add_edge("a", "b"),
        "graph 'g': no way leads from 'b' to END: add an edge, or name the `destinations` of a Replan",
    ),
    "round-and-round": (
        lambda: nodes("a", "b").add_edge(START, "a").add_edge("a", "b").add_edge("b", "a"),
        "graph 'g': no way leads from 'a' to END: add an edge, or name the `destinations` of a Replan",
    ),
    "rejected-to-nowhere": (
        lambda: one(on_rejection="b"),
        "graph 'g': there is no node 'b'; the nodes are a",
    ),
    "rejected-to-START": (
        lambda: one(on_rejection=START),
        "graph 'g': nothing leads to START: name the first node",
    ),
    "replanned-to-nowhere": (
        lambda: one(destinations=["b"]),
        "graph 'g': there is no node 'b'; the nodes are a",
    ),
    "routed-from-nowhere": (
        lambda: one().add_conditional_edges("b", nothing),
        "graph 'g': there is no node 'b'; the nodes are a",
    ),
    "routed-from-END": (
        lambda: one().add_conditional_edges(END, nothing),
        "graph 'g': nothing goes on from END",
    ),
    "routed-to-nowhere": (
        lambda: one().add_conditional_edges("a", nothing, {True: "b"}),
        "graph 'g': there is no node 'b'; the nodes are a",
    ),
    "sent-past-the-path-map": (
        lambda: nodes("a", "b").add_edge(START, "a").add_edge("b", END).add_conditional_edges("a", nothing, [END]),
        "graph 'g': no way leads from START to b: add an edge, or leave them out",
    ),
}


@pytest.mark.parametrize("case", WRONG_EDGES)
def test_a_way_that_cannot_be_gone_is_found_when_the_graph_is_compiled(case: str) -> None:
    build, said = WRONG_EDGES[case]
    graph = build()
    assert refused(graph.compile) == said


@pytest.mark.parametrize(
    ("add", "said"),
    [
        (lambda g: g.add_edge(START, "a"), "there is an edge from '__start__' to 'a' already"),
        (lambda g: g.add_edge(["a"], "b"), "a join into 'b' names several nodes, each once"),
        (lambda g: g.add_edge([], "b"), "a join into 'b' names several nodes, each once"),
        (lambda g: g.add_edge(["a", "b", "a"], "b"), "a join into 'b' names several nodes, each once"),
        (lambda g: g.add_edge([["a"], "b"], "b"), "a join into 'b' names several nodes, each once"),
        (
            lambda g: g.add_edge(["a", "b"], END).add_edge(["b", "a"], END),
            "there is a join of b, a into '__end__' already",
        ),
        (lambda g: g.add_edge(None, "a"), "an edge begins at START, a node or a list of nodes, not NoneType"),
        (lambda g: g.add_edge("a", ["b"]), "an edge leads to the name of a node or END, not to list"),
        (lambda g: g.add_conditional_edges(["a"], nothing), "a route follows START or a node, not list"),
        (lambda g: g.add_conditional_edges("a", "b"), "the route after 'a' is a function of the state, not str"),
        (
            lambda g: g.add_conditional_edges("a", lambda: END),
            "the route after 'a': the function must take (state) or (state, context), but it takes ()",
        ),
        (
            lambda g: g.add_conditional_edges("a", lambda state, config: END),
            "the route after 'a' is given the state and nothing else: take out its second parameter",
        ),
        (
            lambda g: g.add_conditional_edges("a", lambda state: (yield END)),
            "the route after 'a' is a generator: return the whole at the end",
        ),
    ],
)
def test_an_edge_that_is_none_is_refused_at_once(add: Callable[[StateGraph[Job]], Any], said: str) -> None:
    graph = nodes("a", "b").add_edge(START, "a")
    assert refused(lambda: add(graph)) == f"graph 'g': {said}"


@pytest.mark.parametrize(
    ("path_map", "said"),
    [
        ("b", "the route after 'a': path_map is a mapping to names of nodes, or a list of them"),
        (3, "the route after 'a': path_map is a mapping to names of nodes, or a list of them"),
        ({True: 3}, "the route after 'a' leads to names of nodes, not to int"),
        ([["b"]], "the route after 'a' leads to names of nodes, not to list"),
        ({}, "the route after 'a' leads nowhere: name a node or END in path_map"),
        ([], "the route after 'a' leads nowhere: name a node or END in path_map"),
        ([START, END], "nothing leads to START: name the first node"),
        (["a"], "no way leads from 'a' to END: add an edge, or name the `destinations` of a Replan"),
    ],
)
def test_a_path_map_leads_to_nodes(path_map: Any, said: str) -> None:
    graph = nodes("a").add_edge(START, "a").add_conditional_edges("a", nothing, path_map)
    assert refused(graph.compile) == f"graph 'g': {said}"


def test_a_graph_without_nodes_gives_back_what_it_began_with(driver: Driver) -> None:
    graph = StateGraph(Job).add_edge(START, END).compile()
    assert driver.invoke(graph, {"plan": "rest"}).output == Job(plan="rest")


# Routes


class Routing:
    def __call__(self, state: Job) -> Literal["b"]:
        return "b"

    def method(self, state: Job) -> Literal["b", "c"]:
        return "b"


def to_some(state: Job) -> list[Literal["b", "__end__"]] | Send:
    return ["b"]


async def to_some_later(state: Job) -> Sequence[Literal["c"]]:
    return ["c"]


def to_any(state: Job) -> str:
    return "b"


def unresolvable(state: Job) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    return "b"


@pytest.mark.parametrize(
    ("route", "targets"),
    [
        (to_some, ["b", END]),
        (to_some_later, ["c"]),
        (Routing(), ["b"]),
        (Routing().method, ["b", "c"]),
        (functools.partial(to_some), ["b", END]),
        (to_any, ["a", "b", "c", END]),
        (unresolvable, ["a", "b", "c", END]),
        (lambda state: "b", ["a", "b", "c", END]),
    ],
)
def test_a_route_leads_to_what_its_return_type_lists(route: Any, targets: list[str]) -> None:
    graph = nodes("a", "b", "c").add_edge(START, "a").add_edge("a", "b").add_edge("a", "c").add_edge("b", END)
    graph.add_edge("c", END).add_conditional_edges("a", route)
    (found,) = graph.compile().spec.routes.routes["a"]
    assert list(found.targets) == targets


@pytest.mark.parametrize(
    ("answer", "path_map", "ran"),
    [
        ("b", None, "b"),
        (END, None, ""),
        ([], None, ""),
        (["b", END], None, "b"),
        (["b", "b"], None, "b"),
        (("c", "b"), None, "bc"),
        (Send("b", "x"), None, "b"),
        ([Send("b", 1), "c", Send("b", 2)], None, "cbb"),
        (True, {True: "b", False: "c"}, "b"),
        (["x", "y"], {"x": "b", "y": "c"}, "bc"),
        ("b", ["b", "c"], "b"),
    ],
)
def test_what_a_route_may_answer(driver: Driver, answer: Any, path_map: Any, ran: str) -> None:
    done: list[str] = []

    def noted(name: str) -> Callable[[Any], Any]:
        return driver.function(lambda state: done.append(name))

    graph = StateGraph(Job).add_node("a", nothing).add_node("b", noted("b")).add_node("c", noted("c"))
    graph.add_edge(START, "a").add_edge("b", END).add_edge("c", END).add_edge("a", END)
    graph.add_conditional_edges("a", driver.function(lambda state: answer), path_map or ["b", "c", END])
    assert driver.invoke(graph.compile(max_parallel=1), {}).status == "completed"
    assert "".join(done) == ran


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("z", "its route answered with str 'z', which names no target of it: they are b, __end__"),
        (None, "its route answered with NoneType, which names no target of it: they are b, __end__"),
        ({"b"}, "its route answered with set, which names no target of it: they are b, __end__"),
        (Job(plan="s3cret"), "its route answered with Job, which names no target of it: they are b, __end__"),
        (Send("z"), "its route sends to 'z', which is no node of the graph"),
    ],
)
def test_a_wrong_answer_fails_the_run_and_can_be_mended(driver: Driver, answer: Any, said: str) -> None:
    ran: list[str] = []
    graph = nodes("b").add_node("a", lambda state: ran.append("a")).add_edge(START, "a").add_edge("b", END)
    answers = [answer, "b"]
    made = graph.add_conditional_edges("a", lambda state: answers.pop(0), ["b", END]).compile()
    with pytest.raises(NodeFailed) as caught:
        driver.invoke(made, {})
    assert caught.value.failures == {"a": said}
    assert str(caught.value) == f"node 'a': {said}; mend it and resume the checkpoint"
    assert caught.value.checkpoint is not None
    assert driver.resume(made, caught.value.checkpoint).status == "completed"
    assert ran == ["a"], "it was through before its route was asked"


# Nodes


@pytest.mark.parametrize("name", ["my node", "a.b", "prüfen", "a/b", "after:x", "*", "a\nb", "a" * 65, "", 3])
def test_the_name_of_a_node_is_that_of_a_tool(name: Any) -> None:
    said = refused(lambda: StateGraph(Job, name="g").add_node(name, nothing))
    assert said.startswith(f"graph 'g': {name!r} cannot name a node: ")
    assert said.endswith("give it 1 to 64 letters, digits, '_' and '-', as in add_node('name', function)")


def test_a_function_without_a_name_is_given_one() -> None:
    for function in (lambda state: {}, functools.partial(nothing), Routing()):
        assert "cannot name a node" in refused(lambda function=function: StateGraph(Job).add_node(function))  # type: ignore[misc]
    graph = StateGraph(Job).add_node(nothing).add_node(desk(), input="plan", output="log").add_node(inner())
    assert list(graph._nodes) == ["nothing", "desk", "inner"]


def test_names_are_taken_once_and_those_of_the_ends_never() -> None:
    assert refused(lambda: nodes("a", "a")) == "graph 'g': two nodes are named 'a': give one of them another name"
    for name in (START, END):
        assert refused(lambda name=name: nodes(name)) == f"graph 'g': {name!r} is no node: give the node another name"  # type: ignore[misc]


@tool
def a_tool(x: int) -> int:
    """A tool."""
    return x


@pytest.mark.parametrize("node", [None, "text", 3, StateGraph(Job), dict, a_tool])
def test_a_node_is_a_function_an_agent_or_a_compiled_graph(node: Any) -> None:
    kind = "dict" if node is dict else type(node).__name__
    said = refused(lambda: StateGraph(Job, name="g").add_node("a", node))
    assert said == f"graph 'g', node 'a' is a function of the state, an agent or a compiled graph, not {kind}"


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"retries": 1}, "retries need idempotent=True, or retry_on="),
    ({"retries": -1, "idempotent": True}, "retries must be 0 or a whole number above it, not -1"),
    ({"timeout": "x"}, "timeout must be a number of seconds above 0, or None, not 'x'"),
    ({"timeout": 0}, "timeout must be a number of seconds above 0, or None, not 0"),
    ({"approval_timeout": 0}, "approval_timeout must be a number of seconds above 0, or None, not 0"),
    ({"on_expiry": "never"}, "on_expiry must be 'reject', 'cancel' or 'stay'"),
    ({"on_failure": "model"}, "on_failure is 'stop' or 'human'"),
    ({"fallback": 3}, "its fallback is a function of the state, not int"),
    ({"fallback": [nothing, "b"]}, "its fallback is a function of the state, not str"),
    ({"retry_wait": -1}, "retry_wait must be a number of seconds, 0 or more, not -1"),
    ({"retry_on": ValueError}, "retry_on must be a tuple of exception classes"),
    ({"idempotent": "yes"}, "idempotent must be True or False, not 'yes'"),
    (
        {"risk": ""},
        "risk must be None, or a text, not empty, of at most 1,500 bytes in UTF-8, without NUL characters, not ''",
    ),
    (
        {"requires_approval": "yes"},
        "requires_approval is True, False, an Approval or a function; it is a function of the state",
    ),
    (
        {"requires_approval": None},
        "requires_approval is True, False, an Approval or a function; it is a function of the state",
    ),
    ({"requires_approval": lambda: True}, "but it takes ()"),
    ({"destinations": "a"}, "destinations is a list of names of nodes, as in destinations=['plan']"),
    ({"destinations": 3}, "destinations is a list of names of nodes, as in destinations=['plan']"),
    ({"on_rejection": 3}, "on_rejection is the name of a node, or END, not int"),
    ({"input": "plan"}, "input is for nodes that are agents or graphs"),
    ({"bogus": 1}, "there is no option bogus; there are requires_approval, "),
]


@pytest.mark.parametrize(("options", "said"), WRONG_OPTIONS, ids=[", ".join(options) for options, _ in WRONG_OPTIONS])
def test_an_option_that_a_node_cannot_have(options: dict[str, Any], said: str) -> None:
    text = refused(lambda: nodes("a", **options))
    assert text.startswith("graph 'g', node 'a': ")
    assert said in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "is an agent: say what it is asked and what becomes of its answer"),
        ({"input": "plan"}, "is an agent: say what it is asked and what becomes of its answer"),
        ({"input": "nowhere", "output": "log"}, "there is no channel 'nowhere'; the channels are plan, log"),
        (
            {"input": 3, "output": "log"},
            "input is the name of a channel, or a function; it is a function of the state, not int",
        ),
        ({"input": later, "output": "log"}, "input is async; make it a plain function"),
        ({"input": "plan", "output": lambda: {}}, "but it takes ()"),
        *(
            ({"input": "plan", "output": "log", option: value}, f"is a run of its own, and {option} is for functions")
            for option, value in {
                "idempotent": True,
                "retry_on": (OSError,),
                "fallback": nothing,
                "on_failure": "human",
                "destinations": ["a"],
            }.items()
        ),
    ],
)
def test_what_a_node_that_is_an_agent_needs(options: dict[str, Any], said: str) -> None:
    text = refused(lambda: StateGraph(Job, name="g").add_node("a", desk(), **options))
    assert text.startswith("graph 'g', node 'a'")
    assert said in text


def test_what_a_node_that_is_a_graph_needs() -> None:
    graph = StateGraph(Job, name="g")
    assert refused(lambda: graph.add_node("a", inner(Other))) == (
        "graph 'g', node 'a' is a graph that shares no channel with this one: give input and output"
    )
    assert "give both input and output, or neither" in refused(lambda: graph.add_node("a", inner(), input="plan"))
    best = StateGraph(Best, name="g")
    assert "shares channel 'plan', whose reducer is a function of yours" in refused(lambda: best.add_node("a", inner()))
    best.add_node("a", inner(), input=lambda state: {}, output=lambda state: {"plan": state.plan})
    assert list(best._nodes) == ["a"]


# Sync and async, decided once


class Nodes:
    def __call__(self, state: Any) -> dict[str, Any]:
        return {}

    async def later(self, state: Any) -> dict[str, Any]:
        return {}


class Awaited:
    async def __call__(self, state: Any) -> dict[str, Any]:
        return {}


def wrapped(*args: Any, **options: Any) -> dict[str, Any]:
    """What a decorator leaves that does not say what it wraps."""
    return nothing(*args, **options)


@pytest.mark.parametrize(
    ("function", "is_async", "takes_context"),
    [
        (nothing, False, False),
        (lambda state: {}, False, False),
        (lambda state, more=3: {}, False, False),
        (lambda state, ctx: {}, False, True),
        (lambda state, ctx=None: {}, False, True),
        (wrapped, False, False),
        (Nodes(), False, False),
        (Nodes().later, True, False),
        (Awaited(), True, False),
        (later, True, False),
        (functools.partial(later), True, False),
        (functools.partial(Awaited()), True, False),
        (functools.partial(lambda state, k: {}, k=3), False, False),
    ],
)
def test_whether_a_node_is_async_is_decided_when_it_is_added(
    function: Any, is_async: bool, takes_context: bool
) -> None:
    node: Any = StateGraph(Job).add_node("a", function)._nodes["a"]
    assert (node.is_async, node._takes_context) == (is_async, takes_context)


@pytest.mark.parametrize("function", [lambda: {}, lambda a, b, c: {}, lambda state, *, key: {}, lambda **options: {}])
def test_a_function_that_takes_something_else_is_refused(function: Any) -> None:
    said = refused(lambda: StateGraph(Job, name="g").add_node("a", function))
    assert said.startswith("graph 'g', node 'a': the function must take (state) or (state, context), but it takes (")


def refusing(part: str) -> tuple[Graph[Any, Any], str]:
    """A graph with something async in it, and how it is called."""
    graph = StateGraph(Job, name="g")
    options: dict[str, Any] = {}
    match part:
        case "node":
            graph.add_node("a", later)
        case "predicate":
            graph.add_node("a", nothing, requires_approval=later)
        case "predicate-object":
            graph.add_node("a", nothing, requires_approval=Awaited())
        case "fallback":
            graph.add_node("a", nothing, fallback=later)
        case "inside":
            deep = StateGraph(Job, name="deep").add_node("a", later).add_edge(START, "a").add_edge("a", END)
            graph.add_node("in", deep.compile())
        case "before-a-graph":
            graph.add_node("a", inner(), requires_approval=later)
        case "route":
            graph.add_node("a", nothing).add_conditional_edges("a", ending, [END])
        case "handler":
            graph.add_node("a", nothing)
            options["on_approval_required"] = later
    name = next(iter(graph._nodes))
    graph.add_edge(START, name).add_edge(name, END)
    told = {
        "inside": "node 'a' of graph 'deep'",
        "route": "the route after 'a' of graph 'g'",
        "handler": "the approval handler of graph 'g'",
    }
    return graph.compile(**options), told.get(part, "node 'a' of graph 'g'")


@pytest.mark.parametrize("method", ["invoke", "stream", "step", "resume", "recover", "recover_all"])
@pytest.mark.parametrize(
    "part", ["node", "predicate", "predicate-object", "fallback", "inside", "before-a-graph", "route", "handler"]
)
def test_a_sync_call_of_what_is_async_names_it_and_the_method_to_use(part: str, method: str) -> None:
    graph, told = refusing(part)
    with pytest.raises(AsyncRequired) as caught:
        getattr(graph, method)(*([] if method == "recover_all" else [{}]))
    assert str(caught.value) == f"{told} is async; use a{method}"
    assert graph.store.branches() == []
    assert asyncio.run(graph.ainvoke({})).status in ("completed", "suspended")


@pytest.mark.filterwarnings("error")
def test_a_plain_function_that_gives_a_coroutine_is_told_so(driver: Driver) -> None:
    graph = StateGraph(Job).add_node("a", hiding).add_edge(START, "a").add_edge("a", END).compile()
    with pytest.raises(
        NodeFailed, match="node 'a' gave something to await, as a plain function: declare it with 'async"
    ):
        driver.invoke(graph, {})
    routed = nodes("a").add_edge(START, "a").add_conditional_edges("a", hiding, [END]).compile()
    with pytest.raises(NodeFailed, match="its route answered with coroutine"):
        driver.invoke(routed, {})


# Compiling


WRONG_COMPILES: list[tuple[dict[str, Any], str]] = [
    ({"max_steps": 0}, "max_steps is a whole number above 0, or None"),
    ({"max_steps": True}, "max_steps is a whole number above 0, or None"),
    ({"max_parallel": 0}, "max_parallel is a whole number above 0"),
    ({"max_parallel": 2.0}, "max_parallel is a whole number above 0"),
    ({"hooks": 3}, "hooks are instances of Hooks, in a list"),
    ({"hooks": [3]}, "hooks are instances of Hooks, in a list"),
    ({"announcements": "x"}, "announcements are instances of Announcements, in a list"),
    ({"store": "sqlite:///x"}, "store is a Store, not str: open_store(url) opens one"),
    ({"interrupt_before": ["b"]}, "interrupt_before names 'b'; the nodes are a"),
    ({"interrupt_before": [["a"]]}, "interrupt_before names list; the nodes are a"),
    ({"interrupt_before": "a"}, "interrupt_before is a list of nodes, as in interrupt_before=['a']"),
    ({"interrupt_after": "*"}, "interrupt_after is a list of nodes, as in interrupt_after=['a']"),
    ({"interrupt_after": [END]}, "interrupt_after names '__end__'; the nodes are a"),
    ({"trust": "all"}, "trust is 'store' or 'bearer'"),
    ({"approval_timeout": "x"}, "approval_timeout is seconds above 0 or None, on_expiry 'reject', 'cancel' or 'stay'"),
    ({"on_expiry": ["x"]}, "approval_timeout is seconds above 0 or None, on_expiry 'reject', 'cancel' or 'stay'"),
    ({"on_approval_required": 3}, "the approval handler is not callable"),
    ({"checkpointer": 3}, "there is no option checkpointer (did you mean store?); there are name, store, "),
]


@pytest.mark.parametrize(("options", "said"), WRONG_COMPILES, ids=[", ".join(options) for options, _ in WRONG_COMPILES])
def test_an_option_that_a_graph_cannot_have(options: dict[str, Any], said: str) -> None:
    text = refused(lambda: one().compile(**options))
    assert text.startswith(f"graph 'g': {said}")


@pytest.mark.parametrize("name", ["", 3])
def test_the_name_of_a_graph_is_text(name: Any) -> None:
    if name == 3:
        assert refused(lambda: StateGraph(Job, name=name)).startswith("the name of a graph is text that is not empty")
    assert refused(lambda: one().compile(name=name)) == "the name of a graph is text that is not empty"


@pytest.mark.parametrize("state", [None, dict, Job(), 3, "Job"])
def test_a_state_is_a_model_or_a_typed_dict(state: Any) -> None:
    assert "make it a pydantic model or a TypedDict" in refused(lambda: StateGraph(state))


def test_a_compiled_graph_does_not_change_when_its_builder_does(driver: Driver) -> None:
    builder = one()
    graph = builder.compile()
    builder.add_node("b", nothing).add_edge("a", "b").add_edge("b", END).add_conditional_edges(
        "a", lambda s: "b", ["b"]
    )
    assert list(graph.spec.nodes) == ["a"]
    assert [(source, end) for source, end, _, _ in graph.spec.routes.drawn()] == [(START, "a"), ("a", END)]
    ended = driver.invoke(graph, {}).checkpoint
    assert ended.turn == 1
    both = driver.invoke(builder.compile(store=graph.store), {}).checkpoint
    assert both.turn == 2


def test_the_store_of_a_compiled_graph_is_exchanged_for_another_store_alone() -> None:
    graph, other = one().compile(), MemoryStore()
    before = graph.store
    with pytest.raises(GraphError, match="graph 'g': store is a Store, not str"):
        graph.store = "sqlite:///x"  # type: ignore[assignment]
    assert graph.store is before
    graph.store = other
    assert graph.store is other


@pytest.mark.parametrize("name", ["max_steps", "interrupt_before", "name", "hooks", "bogus"])
def test_a_compiled_graph_is_as_it_was_compiled(name: str) -> None:
    graph = one().compile()
    with pytest.raises(ConfigurationError, match=f"graph 'g' is compiled, so its {name} is fixed: compile another"):
        setattr(graph, name, 3)


# Calling


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("invoke", {"update": {"plan": "x"}}, "changes no state; resume does|only resume changes the state"),
        ("invoke", {"modify_state": nothing}, "changes no state; resume does|only resume changes the state"),
        ("step", {"update": {"plan": "x"}}, "only resume changes the state"),
        ("invoke", {"interrupt_before": ["b"]}, "interrupt_before names 'b'; the nodes are a"),
        ("invoke", {"interrupt_after": "a"}, "interrupt_after is a list of nodes, as in"),
        ("invoke", {"model": "gpt"}, "model is for agents: nothing was done"),
        ("invoke", {"bogus": 3}, "there is no option bogus: nothing was done"),
        ("invoke", {"messages": []}, "a graph begins with an update of its state, not with messages"),
    ],
)
def test_what_a_call_cannot_be_given_and_nothing_has_begun(
    driver: Driver, method: str, options: dict[str, Any], said: str
) -> None:
    """E35."""
    graph = one().compile()
    with pytest.raises(ConfigurationError, match=said):
        driver.call(graph, method, {}, **options)
    assert graph.store.branches() == []


def test_only_resume_and_its_likes_change_the_state(driver: Driver) -> None:
    graph = one().compile(interrupt_before=["a"])
    stop = driver.invoke(graph, {}).checkpoint
    before = rows(graph.store)
    for method in ("recover", "recover_all"):
        at = [stop] if method == "recover" else []
        with pytest.raises(ConfigurationError, match="changes no state"):
            driver.call(graph, method, *at, update={"plan": "x"})
    with pytest.raises(ConfigurationError, match="modify_state is a function of a path and a state"):
        driver.resume(graph, stop, modify_state=3)
    assert rows(graph.store) == before
    assert driver.resume(graph, stop, update={"plan": "x"}).output.plan == "x"


class Sum(BaseModel):
    own: int
    total: Annotated[int, add] = 0


def test_one_graph_serves_many_threads_and_tasks_at_once() -> None:
    """All of them are inside one node at the same time, each with a state of its own."""
    many = 12
    barrier = threading.Barrier(many)

    def meet(state: Sum) -> dict[str, int]:
        barrier.wait(PATIENCE)
        return {"total": state.own}

    def again(state: Sum) -> dict[str, int]:
        return {"total": state.own}

    graph = StateGraph(Sum).add_node(meet).add_node(again).add_edge(START, "meet").add_edge("meet", "again")
    made = graph.add_edge("again", END).compile(store=MemoryStore())
    found: dict[int, int] = {}

    def drive(own: int) -> None:
        found[own] = made.invoke({"own": own}).output.total

    threads = [threading.Thread(target=drive, args=(own,)) for own in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert found == {own: 2 * own for own in range(many)}

    async def drive_all() -> list[Any]:
        return await asyncio.gather(*(made.ainvoke({"own": own}) for own in range(many)))

    assert [result.output.total for result in asyncio.run(drive_all())] == [2 * own for own in range(many)]
    assert len(made.store.branches()) == 2 * many


def test_what_can_be_gone_through_only_once_is_kept(driver: Driver) -> None:
    def pieces(state: Job) -> Any:
        yield {"log": ["one"]}
        yield {"log": ["two"]}

    def failing(state: Job) -> Any:
        raise ConnectionError("no answer")

    def again(state: Job) -> Any:
        return {"log": ["again"]}

    graph = (
        StateGraph(Job)
        .add_node("a", pieces, streams=iter(["log"]))
        .add_node("b", failing, fallback=iter([again]))
        .add_node("c", nothing, destinations=iter([END]))
        .add_edge(START, "a")
        .add_edge(START, "b")
        .add_edge(iter(["a", "b"]), "c")
        .compile(interrupt_before=iter(["c"]), hooks=iter([Hooks()]))
    )
    for _ in range(2):
        stopped = driver.invoke(graph, {}).checkpoint
        assert [item.tool_name for item in stopped.pending] == ["c"]
        assert driver.resume(graph, stopped, interrupt_after=iter(["c"])).checkpoint.pending[0].tool_name == "c"
    assert len(graph.spec.hooks) == 1


@pytest.mark.parametrize("stops", [0, "", False])
def test_stops_that_are_no_list_of_nodes_are_refused_and_nothing_has_begun(driver: Driver, stops: Any) -> None:
    graph = one().compile()
    for option in ("interrupt_before", "interrupt_after"):
        with pytest.raises(GraphError, match=f"{option} is a list of nodes"):
            driver.invoke(graph, {}, **{option: stops})
    assert graph.store.count() == 0


def test_a_change_of_the_state_is_made_by_a_plain_function(driver: Driver) -> None:
    async def later(path: Any, state: Any) -> None:
        """Nobody would wait for it."""

    def pieces(path: Any, state: Any) -> Any:
        yield state

    graph = one().compile(interrupt_before=["a"])
    stopped = driver.invoke(graph, {}).checkpoint
    for wrong in (later, pieces):
        with pytest.raises(ConfigurationError, match="modify_state is async, or a generator"):
            driver.resume(graph, stopped, modify_state=wrong)
    assert driver.resume(graph, stopped).status == "completed"


@pytest.mark.parametrize("rerun", ["no", 1, None])
def test_whether_a_fork_runs_again_is_true_or_false(driver: Driver, rerun: Any) -> None:
    graph = one().compile(interrupt_before=["a"])
    stopped = driver.invoke(graph, {}).checkpoint
    with pytest.raises(ConfigurationError, match="rerun is True or False"):
        driver.fork(graph, stopped, rerun=rerun)
    assert len(graph.store.branches()) == 1


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


class Part(BaseModel):
    text: str = ""
    draft: str = ""
    log: Annotated[list[str], append] = []


def sending(*sent: Any) -> Graph[Any, Part]:
    """A graph that sends each of these to a graph in a node, with which it shares all channels."""
    inner = (
        StateGraph(Part, name="inner")
        .add_node("note", lambda part: {"log": [f"noted {part.text}"]})
        .add_edge(START, "note")
        .add_edge("note", END)
        .compile()
    )
    return (
        StateGraph(Part, name="outer")
        .add_node("inner", inner)
        .add_conditional_edges(START, lambda _: [Send("inner", each) for each in sent], ["inner"])
        .add_edge("inner", END)
        .compile()
    )


def test_a_graph_that_is_sent_something_gives_back_what_it_has_changed_and_nothing_else(driver: Driver) -> None:
    given = {"text": "all", "draft": "mine"}
    for sent, log in (
        ([{"text": "a"}, {"text": "b"}], ["noted a", "noted b"]),
        ([None, {}], ["noted ", "noted "]),
        ([{"log": ["x"]}], ["noted "]),
    ):
        output = driver.invoke(sending(*sent), given).output
        assert (output.text, output.draft, output.log) == ("all", "mine", log)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (Job(), "a value of type Job is not JSON; its model_dump(mode='json') is"),
        ({1}, "a value of type set is not JSON"),
        ({1: 2}, "an object key of type int is not a string"),
        (float("nan"), "nan is not a finite number"),
        (nested(64), "nested deeper than 64"),  # it stands one deeper in the arguments of the call
    ],
)
def test_what_is_sent_and_is_no_json_fails_the_run_where_its_route_is_named(
    driver: Driver, sent: Any, said: str
) -> None:
    answers = [sent, "mended"]
    graph = (
        StateGraph(Job, name="g")
        .add_node("a", lambda arg: {"log": [arg]})
        .add_node("first", nothing)
        .add_edge(START, "first")
        .add_conditional_edges("first", lambda _: [Send("a", answers.pop(0))], ["a"])
        .add_edge("a", END)
        .compile()
    )
    with pytest.raises(NodeFailed) as failed:
        driver.invoke(graph, {})
    assert (
        str(failed.value)
        == f"node 'first': its route sends to 'a' what is no JSON: {said}; mend it and resume the checkpoint"
    )
    assert driver.resume(graph, failed.value.checkpoint).output.log == ["mended"]
