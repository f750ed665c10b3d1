"""Agents and graphs as tools: what the model sees of them, how they begin, and what their ends and failures are to whoever calls.

What stops in them, and is decided, killed, forked or changed meanwhile, is in `test_agent_tool_stops.py`.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypedDict

import pytest
from drivers import ASYNC, PATIENCE, SYNC, Driver, outline
from nested_scenes import asking, passing, told
from pydantic import BaseModel

from phronomy import (
    Agent,
    Approve,
    AsyncRequired,
    ConfigurationError,
    LimitExceeded,
    Limits,
    ModelError,
    NodeFailed,
    Reject,
    Respond,
    ToolContext,
    ToolDefinitionError,
    tool,
)
from phronomy.graph import END, START, StateGraph
from phronomy.guardrails.guardrail import Refuse, Transform, guardrail
from phronomy.records.messages import Usage
from phronomy.runs.as_tool import AgentTool
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call, say


def echo(name: str = "echo", **options: Any) -> Agent[Any, Any]:
    """An agent that answers with what it was asked."""
    model = ScriptedModel.by_turn([lambda request: f"heard {request.messages[-1].text}"])
    return Agent(name=name, **{"model": model, **options})


def outer(*tools: Any, replies: Any, store: Store | None = None, **options: Any) -> Agent[Any, Any]:
    """An agent that makes these calls, and passes on what it was told."""
    return Agent(name="outer", model=passing(*replies), tools=tools, store=store, **options)


# What the model sees


class Trip(BaseModel):
    """Where to go."""

    to: str
    days: int = 3


def plan(trip: Trip, notes: list[str] | None = None) -> str:
    """Plan a trip.

    Args:
        trip: where to, and for how long
    """
    return f"{trip.to} for {trip.days}: {notes}"


def say_both(first: str, second: str = "") -> str:
    """Say both."""
    return f"{first} {second}"


def parameters_of(made: AgentTool) -> Any:
    """The JSON schema that the model is told."""
    return made.parameters


def test_a_model_is_told_a_name_what_it_is_for_and_one_text_to_fill_in() -> None:
    described = echo("Sales desk (EU)!", description="Sells.").as_tool()
    assert (described.name, described.description) == ("Sales_desk_EU_", "Sells.")
    parameters = parameters_of(described)
    assert list(parameters["properties"]) == parameters["required"] == ["input"]
    assert "nothing else of this conversation" in parameters["properties"]["input"]["description"]
    plain = echo().as_tool()
    assert (plain.name, plain.description) == ("echo", "Asks echo, and gives the answer.")
    given = echo(description="Sells.").as_tool("ask", "Say it.", requires_approval=True, risk="high")
    assert (given.name, given.description, given.gate, given.identity("").risk) == ("ask", "Say it.", "always", "high")
    assert (given.source, given.idempotent, isinstance(given, AgentTool)) == ("agent", True, True)


def test_the_parameters_of_input_are_what_it_fills_in() -> None:
    made = echo(description="Plans.").as_tool(input=plan)
    parameters = parameters_of(made)["properties"]
    assert list(parameters) == ["trip", "notes"]
    assert parameters["trip"]["description"] == "where to, and for how long"
    assert echo().as_tool(input=plan).description.strip() == "Plan a trip."
    assert echo().as_tool(input=plan).schema_hash != echo().as_tool().schema_hash
    of_class = echo().as_tool(input=Trip)
    assert (of_class.description, list(of_class.parameters["properties"])) == ("Where to go.", ["to", "days"])
    assert echo().as_tool(input=partial(say_both, second="y")).description == "Say both."


async def _async(input: str) -> str:
    return input


def _contextual(input: str, ctx: ToolContext[Any]) -> str:
    return input


class Job(TypedDict, total=False):
    topic: str
    text: str


def works(body: Any = None, **options: Any) -> Any:
    """A graph that makes a text of its topic."""

    def write(state: Job) -> Job:
        return {"text": f"all about {state.get('topic', '')}"}

    graph = StateGraph(Job, name="works").add_node("write", body or write, **options)
    return graph.add_edge(START, "write").add_edge("write", END).compile()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (partial(echo().as_tool, retries=3), "no option retries"),
        (partial(echo().as_tool, idempotent=False), "no option idempotent"),
        (partial(echo().as_tool, on_failure="human"), "on_failure is 'stop' or 'model'"),
        (partial(echo().as_tool, "not a name"), "not a name"),
        (partial(echo().as_tool, input=_async), "plain function"),
        (partial(echo().as_tool, input="text"), "plain function"),
        (partial(echo().as_tool, input=_contextual), "ToolContext"),
        (partial(echo().as_tool, input=lambda x: x), "x"),
        (partial(echo().as_tool, requires_approval="yes"), "requires_approval"),
        (partial(echo().as_tool, approval_timeout=-1), "approval_timeout"),
        (partial(echo().as_tool, redact=["secret"]), "secret"),
        (works().as_tool, "give input="),
        (Agent(name="empty").as_tool, "no model"),
    ],
    ids=[
        "retries",
        "idempotent",
        "on-failure",
        "name",
        "async-input",
        "no-function",
        "context",
        "no-types",
        "gate",
        "timeout",
        "redact",
        "graph",
        "no-model",
    ],
)
def test_what_cannot_be_a_tool_is_refused_when_it_is_made(make: Any, why: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make()
    assert why in str(refused.value)


def test_an_agent_cannot_be_inside_itself() -> None:
    first, second = echo("first"), echo("second")
    second.tools = [first.as_tool()]
    with pytest.raises(ConfigurationError, match="fixed"):
        first.tools = [second.as_tool()]
    with pytest.raises(ConfigurationError, match="fixed"):
        second.tools = [second.as_tool()]
    with pytest.raises(ToolDefinitionError):
        AgentTool(first, name="x", anything=1)
    with pytest.raises(ToolDefinitionError, match=r"as_tool\(\)"):
        outer(first, replies=["end"]).invoke("go")
    with pytest.raises(ConfigurationError, match="two tools are named 'first'"):
        outer(first.as_tool(), first.as_tool(), replies=["end"]).invoke("go")


# How it begins


def test_input_makes_what_the_run_is_asked(driver: Driver, store: Store) -> None:
    inner = echo()
    asks = call("echo", {"trip": {"to": "Oslo"}, "notes": ["warm"]})
    result = driver.invoke(outer(inner.as_tool(input=plan), replies=[asks], store=store), "go")
    assert (result.status, result.output) == ("completed", "heard Oslo for 3: ['warm']")
    [row] = [each for each in _rows(store, result) if each.path]
    assert (row.path, row.agent.name, row.original_input, row.run_id) == (
        "1.0",
        "echo",
        "Oslo for 3: ['warm']",
        result.run_id,
    )


def _rows(store: Store, result: Any) -> Any:
    from phronomy.stores.derived.kept_texts import whole_lineage
    from phronomy.stores.log.log import rows_of

    last = {row.path: row for row in rows_of(whole_lineage(store, branch_id=result.checkpoint.branch_id).entries)}
    return last.values()


def test_arguments_that_do_not_fit_are_told_to_the_model_and_nothing_begins(driver: Driver) -> None:
    inner = echo()
    wrong = [
        call("echo", {"trip": {}}),
        call("echo", {"trip": {"to": 3}}),
        call("echo", "{"),
        call("echo", {"trip": {"to": "x"}, "more": 1}),
    ]
    result = driver.invoke(outer(inner.as_tool(input=plan), replies=[wrong]), "go")
    assert result.status == "completed"
    results = [message for message in result.messages if message.role == "tool"]
    assert [message.settlement for message in results] == ["invalid"] * 4
    assert inner.model.requests == []  # type: ignore[union-attr]


@pytest.mark.parametrize("gives", [ValueError("secret"), object(), 7, [7]], ids=["raises", "object", "number", "list"])
def test_an_input_that_cannot_be_made_stops_the_run_until_it_is_mended(
    driver: Driver, store: Store, gives: Any
) -> None:
    mended: list[bool] = []

    def make(topic: str) -> Any:
        """Say the topic."""
        if mended:
            return topic
        if isinstance(gives, Exception):
            raise gives
        return gives

    def agent() -> Any:
        return outer(echo().as_tool(input=make), replies=[call("echo", {"topic": "tea"})], store=store)

    with pytest.raises(NodeFailed) as failed:
        driver.invoke(agent(), "go")
    assert "tool 'echo'" in str(failed.value.__cause__)
    assert "secret" not in f"{failed.value} {failed.value.__cause__}"
    with pytest.raises(NodeFailed):
        driver.resume(agent(), failed.value.checkpoint)
    mended.append(True)
    result = driver.resume(agent(), failed.value.checkpoint)
    assert (result.status, result.output) == ("completed", "heard tea")


def test_an_input_that_cannot_be_made_may_be_told_to_the_model(driver: Driver) -> None:
    def make(topic: str) -> str:
        raise ValueError("secret")

    result = driver.invoke(
        outer(echo().as_tool(input=make, on_failure="model"), replies=[call("echo", {"topic": "tea"})]), "go"
    )
    assert (result.status, result.output) == ("completed", "its input raised ValueError")


# What it comes to


def test_a_graph_is_a_tool_that_gives_its_state(driver: Driver, store: Store) -> None:
    def topic(topic: str) -> Job:
        """Write about a topic."""
        return {"topic": topic}

    agent = outer(works().as_tool(input=topic), replies=[call("works", {"topic": "tea"})], store=store)
    result = driver.invoke(agent, "go")
    assert result.output == '{"topic":"tea","text":"all about tea"}'


@pytest.mark.parametrize(
    ("answer", "says", "settlement"),
    [
        (Approve(), '{"topic":"tea","text":"all about tea"}', "completed"),
        (Respond(content={"text": "by hand"}), '{"topic":"tea","text":"by hand"}', "completed"),
        (Reject(reason="no tea"), "The run behind this call was rejected. Reason: no tea", "rejected"),
    ],
    ids=["approve", "respond", "reject"],
)
def test_a_node_of_a_graph_that_is_a_tool_may_need_an_approval(
    driver: Driver, store: Store, answer: Any, says: str, settlement: str
) -> None:
    def topic(topic: str) -> Job:
        return {"topic": topic}

    def agent() -> Any:
        made = works(requires_approval=True).as_tool(input=topic)
        return outer(made, replies=[call("works", {"topic": "tea"})], store=store)

    stop = driver.invoke(agent(), "go").checkpoint
    [item] = stop.pending
    assert (item.tool_name, item.tool.source, item.agent) == ("write", "node", "works")
    result = driver.resume(agent(), stop, decisions={item.id: answer})
    assert (result.status, result.output) == ("completed", says)
    assert result.messages[2].settlement == settlement


def test_an_agent_in_a_graph_in_an_agent_is_decided_at_the_top(driver: Driver, store: Store) -> None:
    done: list[str] = []

    def pay(who: str) -> str:
        """Pay."""
        done.append(who)
        return f"paid {who}"

    def agent() -> Any:
        gated = tool(requires_approval=True)(driver.function(pay))
        inner = Agent(name="inner", model=passing(lambda who: call("pay", {"who": who})), tools=[gated])
        graph = StateGraph(Job, name="works")
        graph.add_node("ask", inner, input=lambda state: state["topic"], output="text")
        made = graph.add_edge(START, "ask").add_edge("ask", END).compile().as_tool(input=topic)
        both = [call("works", {"topic": "a"}), call("works", {"topic": "b"})]
        return outer(made, replies=[both], store=store)

    def topic(topic: str) -> Job:
        return {"topic": topic}

    stop = driver.invoke(agent(), "go").checkpoint
    assert [(item.args["who"], item.agent, item.path.count("/")) for item in stop.pending] == [
        ("a", "inner", 1),
        ("b", "inner", 1),
    ]
    half = driver.resume(agent(), stop, decisions={stop.pending[1].id: Approve()}).checkpoint
    result = driver.resume(agent(), half, decisions={stop.pending[0].id: Approve(args={"who": "c"})})
    assert (result.status, done) == ("completed", ["b", "c"])
    assert '"text":"paid b"' in result.output


def test_an_answer_of_a_type_is_told_as_json_and_text_as_it_is(driver: Driver) -> None:
    typed = Agent(name="typed", model=ScriptedModel(['{"to": "Oslo"}']), output_type=Trip)
    listed = Agent(name="listed", model=ScriptedModel(["plain text"]))
    result = driver.invoke(
        outer(
            typed.as_tool(), listed.as_tool(), replies=[[call("typed", {"input": ""}), call("listed", {"input": "x"})]]
        ),
        "go",
    )
    assert result.output == '{"to":"Oslo","days":3} & plain text'


def test_an_answer_that_is_too_long_is_cut_as_that_of_any_tool(driver: Driver) -> None:
    long = Agent(name="long", model=ScriptedModel(["x" * 100_100]))
    result = driver.invoke(outer(long.as_tool(), replies=[call("long", {"input": "x"})]), "go")
    assert result.output.endswith("x\n[100 more characters were left out]")


def refuses(value: Any) -> Refuse:
    return Refuse("Not about money.", code="money")


@pytest.mark.parametrize("where", ["input_guardrails", "output_guardrails"])
def test_what_a_guardrail_inside_refuses_is_told_with_its_message(driver: Driver, where: str) -> None:
    inner = echo(**{where: [guardrail(refuses)]})
    result = driver.invoke(outer(inner.as_tool(), replies=[call("echo", {"input": "x"})]), "go")
    what = "input" if where == "input_guardrails" else "answer"
    assert result.status == "completed"
    assert result.output == f"The run behind this call was rejected. A guardrail refused its {what}. Not about money."
    assert [message.settlement for message in result.messages] == [None, None, "rejected", None]
    assert len(inner.model.requests) == (what == "answer")  # type: ignore[union-attr]


def test_guardrails_of_the_one_that_calls_see_what_it_asks_and_no_more(driver: Driver) -> None:
    """Those inside see what is said there; what a transform made of the question is what the run is asked."""
    seen: list[Any] = []

    @guardrail
    def shout(value: Any) -> Transform:
        seen.append(value)
        return Transform({"input": value["input"].upper()})

    inner = echo()
    agent = outer(inner.as_tool(), replies=[call("echo", {"input": "x"})], tool_guardrails=[shout])
    assert driver.invoke(agent, "go").output == "heard X"
    assert seen == [{"input": "x"}]


# Failures


def clerk(done: list[str], driver: Driver, *faults: Any, **options: Any) -> Agent[Any, Any]:
    """An agent that looks, and then says what it saw; its provider fails first where it is to answer."""
    left = list(faults)

    def look(what: str) -> str:
        """Look."""
        done.append(what)
        return f"saw {what}"

    def answer(request: Any) -> Any:
        return left.pop(0) if left else told(request)

    script = [say(None, call("look", {"what": "it"}), usage=Usage(requests=1, input_tokens=100)), answer]
    return Agent(name="clerk", model=ScriptedModel.by_turn(script), tools=[tool(driver.function(look))], **options)


ASK = say(None, call("clerk", {"input": "look"}), usage=Usage(requests=1, input_tokens=10))


def test_a_failure_inside_stops_the_run_and_a_resume_goes_on_inside(driver: Driver, store: Store) -> None:
    done: list[str] = []
    inner = clerk(done, driver, ModelError("down"), ModelError("down again"))
    agent = outer(inner.as_tool(), replies=[ASK], store=store)
    with pytest.raises(NodeFailed) as failed:
        driver.invoke(agent, "go")
    assert isinstance(failed.value.__cause__, ModelError)
    assert failed.value.failures == {"clerk": "ModelError: down"}
    with pytest.raises(NodeFailed):
        driver.resume(agent, failed.value.checkpoint)
    result = driver.recover(agent, failed.value.run_id)
    assert (result.status, result.output, done) == ("completed", "saw it", ["it"])
    assert (result.usage.requests, result.usage.input_tokens) == (4, 110)


def test_a_failure_inside_may_be_told_to_the_model_and_what_it_cost_counts(driver: Driver, store: Store) -> None:
    """The run inside is over; its tokens are in the sum that limits look at."""
    done: list[str] = []
    tools = [clerk(done, driver, ModelError("down")).as_tool(on_failure="model")]
    result = driver.invoke(outer(*tools, replies=[ASK], store=store), "go")
    assert (result.status, result.output, done) == ("completed", "ModelError: down", ["it"])
    assert result.messages[2].settlement == "failed"
    assert (result.usage.requests, result.usage.input_tokens) == (3, 110)
    tools = [clerk(done, driver, ModelError("down")).as_tool(on_failure="model")]
    with pytest.raises(LimitExceeded) as limit:
        driver.invoke(outer(*tools, replies=[ASK], limits=Limits(tokens=50)), "go")
    assert (limit.value.limit, limit.value.used) == ("tokens", 110)


def test_limits_are_of_each_run_and_tokens_of_all_inside(driver: Driver, store: Store) -> None:
    """Turns and calls inside are not those outside; tokens and time are. What reached a limit inside goes on there."""
    done: list[str] = []
    tight = outer(
        clerk(done, driver).as_tool(), replies=[ASK], store=store, limits=Limits(turns=2, tool_calls=1, tokens=200)
    )
    result = driver.invoke(tight, "go")
    assert (result.status, result.usage.requests, result.usage.input_tokens) == ("completed", 4, 110)

    def bounded(turns: int) -> Any:
        return outer(clerk(done, driver, limits=Limits(turns=turns)).as_tool(), replies=[ASK], store=store)

    with pytest.raises(NodeFailed) as failed:
        driver.invoke(bounded(1), "go")
    assert isinstance(failed.value.__cause__, LimitExceeded)
    result = driver.resume(bounded(2), failed.value.checkpoint)
    assert (result.status, result.output, done) == ("completed", "saw it", ["it", "it"])


def test_what_is_async_inside_is_refused_before_anything_is_run() -> None:
    async def slow(what: str) -> str:
        """Look."""
        raise AssertionError("it is never run")

    inner = Agent(name="deep", model=ScriptedModel([call("slow", {"what": "x"})]), tools=[tool(slow)])
    agent = asking(asking(inner, passing("x"), name="middle"), passing("x"), name="top")
    for method in ("invoke", "stream", "step", "resume", "recover"):
        with pytest.raises(AsyncRequired, match=r"tool 'slow' of agent 'deep' is async: call a"):
            getattr(agent, method)("go")
    assert agent.store.branches() == []
    assert agent.model.requests == inner.model.requests == []  # type: ignore[union-attr]


# The gate of the call itself


def test_a_call_of_an_agent_may_need_an_approval_and_what_is_approved_is_what_is_asked(
    driver: Driver, store: Store
) -> None:
    inner = echo()
    agent = outer(inner.as_tool(requires_approval=True), replies=[call("echo", {"input": "x"})], store=store)
    stop = driver.invoke(agent, "go").checkpoint
    [item] = stop.pending
    assert (item.tool_name, item.tool.source, item.path, item.agent, item.args) == (
        "echo",
        "agent",
        "",
        "outer",
        {"input": "x"},
    )
    assert inner.model.requests == []  # type: ignore[union-attr]
    fork = driver.fork(agent, stop)
    result = driver.resume(agent, stop, decisions={item.id: Approve(args={"input": "y"})})
    assert result.output.endswith("heard y")
    assert "A human changed the arguments" in result.output
    assert driver.resume(agent, fork, decisions={fork.pending[0].id: Reject(reason="no")}).output.endswith("no")
    assert len(inner.model.requests) == 1  # type: ignore[union-attr]


def test_a_predicate_asks_about_what_was_filled_in(driver: Driver, store: Store) -> None:
    def far(args: Any) -> bool:
        days: int = args["trip"].days
        return days > 7

    inner = echo().as_tool(input=plan, requires_approval=far)
    calls = [call("echo", {"trip": {"to": "Oslo", "days": days}}) for days in (7, 8)]
    stop = driver.invoke(outer(inner, replies=[calls], store=store), "go").checkpoint
    [item] = stop.pending
    assert item.args == {"trip": {"to": "Oslo", "days": 8}, "notes": None}
    assert [call.status for call in stop.calls] == ["settled", "pending"]


# One agent in many places


def test_one_agent_is_used_alone_twice_and_at_two_depths(driver: Driver, store: Store) -> None:
    shared = echo("shared", store=store)
    middle = asking(shared, passing(lambda who: call("shared", {"input": f"deep {who}"})), name="middle")
    calls = [call("one", {"input": "1"}), call("two", {"input": "2"}), call("middle", {"input": "3"})]
    agent = outer(shared.as_tool("one"), shared.as_tool("two"), middle.as_tool(), replies=[calls], store=store)
    result = driver.invoke(agent, "go")
    assert result.output == "heard 1 & heard 2 & heard deep 3"
    assert driver.invoke(shared, "alone").output == "heard alone"
    assert sorted(row.path for row in _rows(store, result)) == ["", "1.0", "1.1", "1.2", "1.2/1.0"]


def test_one_agent_serves_many_threads_at_once() -> None:
    """No state of a run is on it: what each thread is told is what it asked."""
    barrier = threading.Barrier(4)
    first: list[int] = []

    def meet(request: Any) -> str:
        if len(first) < 4:
            first.append(1)
            barrier.wait(PATIENCE)
        return f"heard {request.messages[-1].text}"

    shared = Agent(name="shared", model=ScriptedModel.by_turn([meet]))
    agent = outer(shared.as_tool(), replies=[lambda who: call("shared", {"input": who})])
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: agent.invoke(f"{n}").output, range(4)))
    assert results == [f"heard {n}" for n in range(4)]


# Watching


def test_a_stream_gives_what_invoke_gives(driver: Driver, store: Store) -> None:
    def agent() -> Any:
        return outer(echo().as_tool(), replies=[call("echo", {"input": "x"})], store=store)

    through = driver.invoke(agent(), "go")
    if driver is SYNC:
        stream = agent().stream("go")
        events = list(stream)
    else:
        stream = agent().astream("go")
        events = ASYNC.call(type("S", (), {"atake": lambda self: _taken(stream)})(), "take")
    assert outline(stream.result) == outline(through)
    assert stream.result.usage == through.usage
    assert events[-1].type == "completed"
    assert [event.path for event in events].count("") > 5


async def _taken(stream: Any) -> list[Any]:
    return [event async for event in stream]


def test_step_by_step_a_nested_run_is_one_step(driver: Driver, store: Store) -> None:
    def agent() -> Any:
        return outer(echo().as_tool(), replies=[call("echo", {"input": "x"})], store=store)

    result = driver.step(agent(), "go")
    steps = 0
    while result.status == "running":
        result = driver.step(agent(), result.checkpoint)
        steps += 1
    assert (result.status, result.output, steps) == ("completed", "heard x", 3)
