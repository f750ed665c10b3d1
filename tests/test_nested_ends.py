"""How runs inside calls end with the run that they are in: by a human's refusal, by a limit, and with what they cost counted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from drivers import PATIENCE, Driver, decide_first
from nested_scenes import Firm
from places import Place
from pydantic import BaseModel
from stop_scenes import elsewhere

from phronomy import (
    Agent,
    Approve,
    Breakpoint,
    LimitExceeded,
    Limits,
    NodeFailed,
    Reject,
    Usage,
    tool,
)
from phronomy.graph import END, START, StateGraph
from phronomy.models.base import ModelRequest
from phronomy.teams.patterns import parallel, sequential
from phronomy.testing import ScriptedModel, call, say

NO = Reject(reason="not today", then="end")
BOTH = ["look left 0", "look right 0", "look root 0"]


class Lost(BaseException):
    """The worker is gone: nobody writes what became of the call."""


def costs(tokens: int, *calls: Any, text: str | None = None) -> Any:
    """A reply that cost so many tokens."""
    return say(text, *calls, usage=Usage(requests=1, input_tokens=tokens, cost=tokens / 1000))


class Box(BaseModel):
    text: str = ""


class Office:
    """Agents inside one another, each of which looks, and pays, which a human approves. The notes say what was done and asked."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.done: list[str] = []
        self.asked: list[str] = []
        self.before: dict[str, Callable[[], object]] = {}

    def agent(self, name: str, *replies: Any, tools: Any = (), **options: Any) -> Agent[Any, Any]:
        def noted(reply: Any) -> Any:
            def give(request: ModelRequest) -> Any:
                self.asked.append(name)
                return reply

            return give

        def pay(who: str) -> str:
            """Pay."""
            self.done.append(f"pay {who}")
            self.before.get(who, str)()
            return f"paid {who}"

        gated = tool(requires_approval=True)(self.driver.function(pay))
        model = ScriptedModel.by_turn([noted(reply) for reply in replies])
        return Agent(name=name, model=model, tools=[gated, *tools], **options)

    def payer(self, name: str, **options: Any) -> Agent[Any, Any]:
        """An agent that pays whoever it is named after."""
        return self.agent(name, costs(100, call("pay", {"who": name})), costs(100, text=f"{name} is paid"), **options)

    def chief(self, *inside: Any, **options: Any) -> Agent[Any, Any]:
        """The agent that asks all these, in one reply."""
        calls = [call(each.name, {"input": "go"}) for each in inside]
        tools = [each.as_tool() for each in inside]
        options = {"store": self.place.open(), **options}
        return self.agent("chief", costs(10, *calls), costs(10, text="all is done"), tools=tools, **options)


@pytest.fixture
def office(driver: Driver, place: Place) -> Office:
    return Office(driver, place)


# A human's refusal


def test_a_refusal_three_levels_down_ends_the_run_that_the_human_saw(driver: Driver, place: Place) -> None:
    """Nobody on the way up is asked what to do next, and what waits on the other side is asked no more."""
    desk = Firm(driver, place)
    first = desk.invoke()
    left, _ = first.checkpoint.pending
    ended = desk.resume(first.checkpoint, decisions={left.id: NO}, by="ann")
    assert (ended.status, ended.output, ended.checkpoint.pending) == ("rejected", None, ())
    told = [(message.settlement, message.text) for message in ended.messages if message.role == "tool"]
    assert [settlement for settlement, _ in told] == ["rejected", "cancelled", "completed"]
    assert "not today" in told[0][1]
    assert "not today" not in told[1][1]
    assert (desk.done, desk.store().pending_rows()) == (BOTH, [])
    trail = [(each.kind, each.by and each.by.id, each.path) for each in desk.store().audit(run_id=first.run_id)]
    assert trail == [("reject", "ann", left.path)]
    assert driver.call(desk.agent(), "recover_all") == []
    assert desk.done == BOTH


def test_one_that_is_decided_beside_it_is_not_begun(driver: Driver, place: Place) -> None:
    desk = Firm(driver, place)
    first = desk.invoke()
    left, right = first.checkpoint.pending
    ended = desk.resume(first.checkpoint, decisions={left.id: NO, right.id: Approve()})
    assert (ended.status, desk.done) == ("rejected", BOTH)


def test_a_plain_refusal_is_told_to_the_agent_inside(office: Office) -> None:
    agent = office.chief(office.payer("ann"))
    waits = office.driver.invoke(agent, "go").checkpoint
    result = office.driver.resume(agent, waits, approved=False)
    assert (result.status, result.output, office.asked) == (
        "completed",
        "all is done",
        ["chief", "ann", "ann", "chief"],
    )


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_handler_inside_ends_all_that_is_around_it(office: Office, depth: int) -> None:
    """It is asked as a human would be."""
    inside = office.payer("ann", on_approval_required=lambda name, args: NO)
    for level in range(1, depth):
        ask = [costs(10, call(inside.name, {"input": "go"})), costs(10, text="done")]
        inside = office.agent(f"level {level}".replace(" ", "_"), *ask, tools=[inside.as_tool()])
    result = office.driver.invoke(office.chief(inside), "go")
    assert (result.status, result.output, office.done) == ("rejected", None, [])
    assert len(office.asked) == depth + 1
    assert result.usage.requests == depth + 1


def test_whoever_works_beside_it_stops_when_it_is_heard(office: Office) -> None:
    """A tool that was entered is waited for, and its agent asked no more."""
    entered, decided = threading.Event(), threading.Event()

    def holds() -> None:
        entered.set()
        assert decided.wait(PATIENCE)

    office.before["bob"] = holds
    agent = office.chief(office.payer("ann"), office.payer("bob"))
    waits = office.driver.invoke(agent, "go").checkpoint
    ann, bob = waits.pending
    with elsewhere(lambda: office.driver.resume(agent, waits, decisions={bob.id: Approve()})) as worker:
        assert entered.wait(PATIENCE)
        other = office.chief(office.payer("ann"), office.payer("bob"))
        handed = office.driver.resume(other, waits, decisions={ann.id: NO}, by="eve")
        assert handed.status == "running"
        decided.set()
        result = worker.result(PATIENCE)
    assert (result.status, office.done) == ("rejected", ["pay bob"])
    assert sorted(office.asked) == ["ann", "bob", "chief"]
    told = [message.settlement for message in result.messages if message.role == "tool"]
    assert told == ["rejected", "cancelled"]


def test_a_refusal_of_a_call_beside_ends_what_runs_inside_another(office: Office) -> None:
    """The agent that has the run has a request of its own."""
    entered, decided = threading.Event(), threading.Event()

    def holds() -> None:
        entered.set()
        assert decided.wait(PATIENCE)

    office.before["bob"] = holds

    def agent() -> Agent[Any, Any]:
        bob = office.payer("bob")
        first = costs(10, call("pay", {"who": "ann"}), call("bob", {"input": "go"}))
        return office.agent("chief", first, "done", tools=[bob.as_tool()], store=office.place.open())

    worker = agent()
    waits = office.driver.invoke(worker, "go").checkpoint
    ann, bob = waits.pending
    with elsewhere(lambda: office.driver.resume(worker, waits, decisions={bob.id: Approve()})) as running:
        assert entered.wait(PATIENCE)
        assert office.driver.resume(agent(), waits, decisions={ann.id: NO}).status == "running"
        decided.set()
        result = running.result(PATIENCE)
    assert (result.status, office.done, office.asked) == ("rejected", ["pay bob"], ["chief", "bob"])


@pytest.mark.parametrize("kind", ["graph", "sequential", "parallel", "graph in a graph"])
def test_graphs_and_patterns_end_as_agents_do(office: Office, kind: str) -> None:
    ann, bob = office.payer("ann"), office.payer("bob")
    store = office.place.open()

    def graph(node: Any, **options: Any) -> Any:
        plain = {"input": "text", "output": "text"} if isinstance(node, Agent) else {}
        drawn = StateGraph(Box, name="drawn").add_node("node", node, on_rejection="tell", **plain)
        drawn.add_node("tell", office.driver.function(lambda state: office.done.append("told")))
        drawn.add_edge(START, "node").add_edge("node", END).add_edge("tell", END)
        return drawn.compile(**options)

    runs: dict[str, Callable[[], Any]] = {
        "graph": lambda: graph(office.chief(ann), store=store),
        "sequential": lambda: sequential(ann, bob, store=store),
        "parallel": lambda: parallel(office.chief(ann), bob, store=store),
        "graph in a graph": lambda: graph(graph(ann), store=store),
    }
    run = runs[kind]()
    waits = office.driver.invoke(run, "go" if "graph" not in kind else {"text": "go"}).checkpoint
    first = waits.pending[0]
    ended = office.driver.resume(run, waits, decisions={first.id: NO})
    assert (ended.status, ended.output, office.done, store.pending_rows()) == ("rejected", None, [], [])


def test_a_breakpoint_inside_ends_what_it_is_in_and_with_then_all(office: Office) -> None:
    for answer, status in ((Reject(), "completed"), (NO, "rejected")):
        agent = office.chief(office.payer("ann"))
        stop = [Breakpoint("pre_model_call", agents=["ann"])]
        waits = office.driver.invoke(agent, "go", breakpoints=stop).checkpoint
        result = office.driver.resume(agent, waits, decisions={waits.pending[0].id: answer})
        assert result.status == status


# What it cost


@pytest.mark.parametrize("how", ["cancel", "supersede", "refuse", "expire"])
def test_what_was_used_inside_counts_however_the_run_ends(office: Office, how: str) -> None:
    """Two levels of 100 and 10 tokens wait inside, when it ends."""
    options = {"approval_timeout": 1.0, "on_expiry": "cancel"} if how == "expire" else {}
    later = [0.0]
    store = office.place.open(clock=lambda: 1_700_000_000.0 + later[0])
    ann = office.payer("ann", **options)
    middle = office.agent("middle", costs(10, call("ann", {"input": "go"})), "done", tools=[ann.as_tool()])
    agent = office.chief(middle, store=store)
    driver = office.driver
    waits = driver.invoke(agent, "go", thread_id="t").checkpoint
    if how == "cancel":
        end = driver.cancel(agent, waits).checkpoint
    elif how == "supersede":
        driver.invoke(office.agent("chief", "hello", store=store), "again", thread_id="t", on_pending="supersede")
        [branch] = store.branches(run_id=waits.run_id)
        end = store.load(branch.head)
    elif how == "refuse":
        end = driver.resume(agent, waits, decisions={waits.pending[0].id: NO}).checkpoint
    else:
        later[0] = 60.0
        [recovered] = driver.call(agent, "recover_all")
        end = recovered.result.checkpoint
    assert (end.usage.requests, end.usage.input_tokens) == (3, 120)


def test_what_was_used_inside_counts_where_the_worker_was_lost(office: Office) -> None:
    """The agent inside was in the middle of its second payment, when its worker died; then the run is cancelled."""

    def dies() -> None:
        raise Lost

    office.before["eve"] = dies
    twice = [costs(100, call("pay", {"who": name})) for name in ("ann", "eve")]
    agent = office.chief(office.agent("inner", *twice, "done"))
    waits = office.driver.invoke(agent, "go").checkpoint
    waits = office.driver.resume(agent, waits, approved=True).checkpoint
    with pytest.raises(Lost):
        office.driver.resume(agent, waits, approved=True)
    end = office.driver.cancel(agent, waits.run_id).checkpoint
    assert (end.status, office.done) == ("cancelled", ["pay ann", "pay eve"])
    assert (end.usage.requests, end.usage.input_tokens) == (3, 210)


def test_what_was_used_counts_once_where_it_goes_on(office: Office) -> None:
    agent = office.chief(office.payer("ann"), office.payer("bob"))
    at = office.driver.invoke(agent, "go").checkpoint
    while at.pending:
        at = office.driver.resume(agent, at, decisions=decide_first(at)).checkpoint
    assert (at.usage.requests, at.usage.input_tokens) == (6, 420)


def test_a_run_that_failed_inside_and_is_given_up_counts(office: Office) -> None:
    failing = office.agent("inner", costs(100, call("pay", {"who": "ann"})), 5)
    agent = office.chief(failing)
    waits = office.driver.invoke(agent, "go").checkpoint
    with pytest.raises(NodeFailed) as failed:
        office.driver.resume(agent, waits, approved=True)
    end = office.driver.cancel(agent, failed.value.checkpoint).checkpoint
    assert (end.status, end.usage.input_tokens) == ("cancelled", 110)


# Limits


def greedy(office: Office, name: str = "greedy", turns: int = 40, **options: Any) -> Agent[Any, Any]:
    """An agent that uses 1,000 tokens, which are one dollar, a turn."""

    @tool
    def look() -> str:
        """Look."""
        office.done.append("look")
        return "seen"

    replies = [costs(1000, call("look"))] * turns
    return office.agent(name, *replies, costs(1000, text="enough"), tools=[look], **options)


@pytest.mark.parametrize(("limit", "most"), [("tokens", 2000), ("cost", 2.0)])
def test_a_limit_bounds_what_is_used_inside_while_it_is(office: Office, limit: str, most: float) -> None:
    """At the second thousand it stops; with a higher limit it goes on inside, where it stood."""
    bounded = office.chief(greedy(office, turns=4), limits=Limits(**{limit: most}))  # type: ignore[arg-type]
    with pytest.raises(LimitExceeded) as reached:
        office.driver.invoke(bounded, "go")
    assert (reached.value.limit, reached.value.maximum, reached.value.path) == (limit, most, "")
    assert reached.value.used == pytest.approx(2010 if limit == "tokens" else 2.01)
    assert (office.asked, office.done) == (["chief", "greedy", "greedy"], ["look"] * 2)
    patient = office.chief(greedy(office, turns=4))
    result = office.driver.resume(patient, reached.value.checkpoint)
    assert (result.output, office.done) == ("all is done", ["look"] * 4)
    assert (result.usage.requests, result.usage.input_tokens) == (7, 5020)


def test_a_limit_bounds_every_depth_and_what_runs_side_by_side(office: Office) -> None:
    def inner() -> Agent[Any, Any]:
        one, two = greedy(office, "one"), greedy(office, "two")
        calls = [call(name, {"input": "go"}) for name in ("one", "two")]
        return office.agent("middle", costs(10, *calls), "done", tools=[one.as_tool(), two.as_tool()])

    with pytest.raises(LimitExceeded) as reached:
        office.driver.invoke(office.chief(inner(), limits=Limits(tokens=6000)), "go")
    assert reached.value.path == ""
    assert 5 <= office.asked.count("one") + office.asked.count("two") <= 8


def test_a_limit_of_a_run_between_is_its_own_failure(office: Office) -> None:
    """The agent around it is told, as of any failure inside; what is inside the one that failed has not failed."""
    middle = office.agent(
        "middle",
        costs(10, call("greedy", {"input": "go"})),
        "done",
        tools=[greedy(office).as_tool(on_failure="model")],
        limits=Limits(tokens=3000),
    )
    with pytest.raises(NodeFailed) as failed:
        office.driver.invoke(office.chief(middle), "go")
    [why] = failed.value.failures.values()
    assert "tokens=3000" in why
    assert (office.asked.count("greedy"), office.asked.count("middle")) == (3, 1)
    patient = office.chief(
        office.agent(
            "middle",
            costs(10, call("greedy", {"input": "go"})),
            "done",
            tools=[greedy(office, turns=3).as_tool(on_failure="model")],
        )
    )
    result = office.driver.resume(patient, failed.value.checkpoint, accept_changes=True)
    assert (result.output, office.done) == ("all is done", ["look"] * 3)


def test_seconds_are_counted_inside_while_they_are_used(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each model call takes a second, by a clock that only they move; the time that is left bounds the last."""
    now = [0.0]
    given: list[float | None] = []
    monkeypatch.setattr("phronomy.engine.clock.time.monotonic", lambda: now[0])

    def slow(request: ModelRequest) -> Any:
        now[0] += 1.0
        given.append(request.settings.timeout)
        return say(None, call("look"))

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    inner = Agent(name="inner", model=ScriptedModel([slow] * 9), tools=[look])
    with pytest.raises(LimitExceeded) as reached:
        office.driver.invoke(office.chief(inner, limits=Limits(seconds=3)), "go")
    assert (reached.value.limit, reached.value.used, given) == ("seconds", 3.0, [3.0, 2.0, 1.0])
