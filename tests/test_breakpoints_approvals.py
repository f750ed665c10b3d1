"""A call that needs an approval and meets a breakpoint: to stop and look is one thing, and to approve of it another."""

from __future__ import annotations

from typing import Any

import pytest
from drivers import PATIENCE, Driver
from places import Place
from stop_scenes import EVERY, Case, desk, elsewhere, holding, nested, stops_of

from phronomy import (
    Agent,
    Approve,
    Breakpoint,
    BreakpointContext,
    Breakpoints,
    Debugger,
    Defer,
    Hold,
    MemoryStore,
    NothingDecided,
    Reject,
    Respond,
    Skip,
    tool,
)
from phronomy.graph import END, START, Graph, StateGraph
from phronomy.stops.breakpoints import trace
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.worlds(2)

ALL = [Breakpoint("*", label="look")]


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


class Handler:
    """A handler that answers so, and knows what it was asked."""

    def __init__(self, driver: Driver, answer: Any = True) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer = answer
        self.function = driver.function(self.decide)

    def decide(self, name: str, args: dict[str, Any]) -> Any:
        self.asked.append((name, args))
        return self.answer


def gated(driver: Driver, place: Place | None, handler: Handler, paid: list[int], **options: Any) -> Agent[Any, Any]:
    """An agent that asks its handler before it pays."""
    store = MemoryStore() if place is None else place.open()
    return desk(store, requires_approval=True, paid=paid, on_approval_required=handler.function, **options)


def whys(result: Any) -> list[tuple[str, str | None, str | None]]:
    """What waits: why, where, and under which label."""
    return [(item.why, item.point, item.label) for item in result.checkpoint.pending]


def decisions_of(result: Any) -> list[tuple[str, str | None]]:
    """What was decided, and through which channel."""
    return [(each.kind, each.channel) for each in result.checkpoint.decisions]


# Looking, and approving


@pytest.mark.parametrize("type", ["*", "approval", "tool"])
def test_the_run_stops_first_and_its_handler_is_asked_once_it_is_let_go(
    driver: Driver, place: Place, type: Any
) -> None:
    handler, paid = Handler(driver), list[int]()
    agent = gated(driver, place, handler, paid)
    stop = [Breakpoint(type, label="look")]
    stands = driver.invoke(agent, "go", breakpoints=stop)
    assert (whys(stands), handler.asked, paid) == ([("breakpoint", "pre_tool_call", "look")], [], [])
    [hit] = agent.stopped_at(stands.checkpoint)
    assert (hit.tool, hit.args, hit.asks, hit.next) == ("pay", {"n": 7}, True, ("run pay",))
    result = driver.resume(agent, stands.checkpoint, breakpoints=stop, channel="here")
    assert (result.output, handler.asked, paid) == ("done", [("pay", {"n": 7})], [7])
    assert decisions_of(result) == [("approve", "here"), ("approve", "handler")]
    trail = list(agent.store.audit())
    assert [(each.kind, each.channel, each.edited) for each in trail] == [
        ("approve", "here", False),
        ("approve", "handler", False),
    ]


def test_a_hold_lets_it_go_and_the_handler_is_asked_as_it_would_have_been(driver: Driver, place: Place) -> None:
    handler, paid = Handler(driver), list[int]()
    agent = gated(driver, place, handler, paid)
    hold, arrivals = holding()
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=ALL, hold=hold)) as waits:
        hit = arrivals.next()
        assert (hit.type, hit.tool, hit.asks, handler.asked) == ("pre_tool_call", "pay", True, [])
        driver.call(hold, "resume_breakpoint", hit.id)
        result = waits.result(PATIENCE)
    assert (result.status, handler.asked, paid) == ("completed", [("pay", {"n": 7})], [7])
    assert [each.how for each in hold.settled] == ["approved"]


@pytest.mark.parametrize("way", ["trace", "event"])
def test_what_lets_every_stop_go_changes_nothing_of_a_run(driver: Driver, place: Place, way: str) -> None:
    """With every stop noted the run is as it is without: nothing is passed that needs an approval, and nothing waits for a human."""
    handler, paid = Handler(driver), list[int]()
    plain = driver.invoke(gated(driver, None, handler, paid), "go")
    agent = gated(driver, place, handler, paid)
    if way == "trace":
        hold = Hold(on_breakpoint=trace)
        traced = driver.invoke(agent, "go", breakpoints=ALL, hold=hold)
    else:
        event: Any = Switch.of(driver)
        hold = Hold(resume_event=event, timeout=PATIENCE)
        traced = driver.invoke(agent, "go", breakpoints=ALL, hold=hold)
    assert (traced.status, traced.messages, paid) == ("completed", plain.messages, [7, 7])
    assert handler.asked == [("pay", {"n": 7})] * 2
    assert [(each.hit.type, each.how) for each in hold.settled] == [("pre_tool_call", "approved")]
    assert [kind for kind, _ in decisions_of(traced)] == ["approve", "approve"]


class Switch:
    """An event that is set whenever anybody looks."""

    @classmethod
    def of(cls, driver: Driver) -> Any:
        """One of the kind that the driver waits for."""
        switch = cls()
        if driver.is_async:
            switch.wait = switch._await  # type: ignore[method-assign]
        return switch

    def is_set(self) -> bool:
        return True

    def clear(self) -> None:
        """It is set again at once."""

    def wait(self, timeout: float | None = None) -> Any:
        return True

    async def _await(self, timeout: float | None = None) -> Any:
        return True


@pytest.mark.parametrize("answer", ["false", "none", "reject", "defer", "edit", "end"])
def test_the_handler_answers_whatever_it_would_have_answered(driver: Driver, place: Place, answer: str) -> None:
    given = {
        "false": False,
        "none": None,
        "reject": Reject(reason="no"),
        "defer": Defer(),
        "edit": Approve(args={"n": 1}),
        "end": Reject(then="end"),
    }[answer]
    plain_paid, paid = list[int](), list[int]()
    plain = driver.invoke(gated(driver, None, Handler(driver, given), plain_paid), "go")
    agent = gated(driver, place, Handler(driver, given), paid)
    stands = driver.invoke(agent, "go", breakpoints=ALL)
    assert whys(stands) == [("breakpoint", "pre_tool_call", "look")]
    result = driver.resume(agent, stands.checkpoint, breakpoints=ALL)
    assert (result.status, result.messages, paid) == (plain.status, plain.messages, plain_paid)
    assert whys(result) == whys(plain)
    if result.suspended:
        assert (result.checkpoint.pending[0].args, whys(result)) == ({"n": 7}, [("approval", None, None)])
        with pytest.raises(NothingDecided):
            driver.resume(agent, result.checkpoint, breakpoints=ALL)
        assert driver.resume(agent, result.checkpoint, approved=True, breakpoints=ALL).output == "done"
        assert paid == [7]


@pytest.mark.parametrize("answer", ["skip", "reject", "respond"])
def test_what_is_not_let_go_asks_nobody(driver: Driver, answer: str) -> None:
    handler, paid = Handler(driver), list[int]()
    agent = gated(driver, None, handler, paid)
    stands = driver.invoke(agent, "go", breakpoints=ALL)
    given = {"skip": Skip(), "reject": Reject(), "respond": Respond(content="in cash")}[answer]
    result = driver.resume(agent, stands.checkpoint, decisions={stands.checkpoint.pending[0].id: given})
    assert (result.output, handler.asked, paid) == ("done", [], [])
    settled = [message.settlement for message in result.messages if message.role == "tool"]
    assert settled == [{"skip": "skipped", "reject": "rejected", "respond": "responded"}[answer]]


def test_where_nobody_but_a_human_answers_the_approval_is_the_stop(driver: Driver, place: Place) -> None:
    """Nobody is asked twice: whoever approves has looked."""
    agent = desk(place.open(), requires_approval=True, paid=(paid := []))
    stands = driver.invoke(agent, "go", breakpoints=ALL)
    assert (whys(stands), agent.stopped_at(stands.checkpoint)) == ([("approval", "pre_tool_call", "look")], [])
    with pytest.raises(NothingDecided):
        driver.resume(agent, stands.checkpoint, breakpoints=ALL)
    assert (driver.resume(agent, stands.checkpoint, approved=True, breakpoints=ALL).output, paid) == ("done", [7])


def test_a_run_that_is_let_go_where_there_is_no_handler_waits_for_a_human(driver: Driver, place: Place) -> None:
    """Another process has the agent without its handler: nothing is run that nobody has approved."""
    store, paid = place.open(), list[int]()
    agent = desk(store, requires_approval=True, paid=paid, on_approval_required=Handler(driver).function)
    stands = driver.invoke(agent, "go", breakpoints=ALL)
    bare = desk(store, requires_approval=True, paid=paid)
    asked = driver.resume(bare, stands.checkpoint)
    assert (whys(asked), paid) == ([("approval", None, None)], [])
    assert (driver.resume(bare, asked.checkpoint, approved=True).output, paid) == ("done", [7])


def test_a_fork_of_a_stop_asks_the_handler_for_itself(driver: Driver, place: Place) -> None:
    handler, paid = Handler(driver), list[int]()
    agent = gated(driver, place, handler, paid)
    stands = driver.invoke(agent, "go", breakpoints=ALL)
    fork = driver.fork(agent, stands.checkpoint)
    assert [item.why for item in fork.pending] == ["breakpoint"]
    assert (driver.resume(agent, fork).output, handler.asked, paid) == ("done", [("pay", {"n": 7})], [7])


def test_a_stop_that_lapses_asks_nobody_and_the_approval_after_one_has_its_whole_time(driver: Driver) -> None:
    now = [1_900_000_000.0]
    handler, paid = Handler(driver, Defer()), list[int]()
    store = MemoryStore(clock=lambda: now[0])
    agent = desk(
        store,
        requires_approval=True,
        paid=paid,
        approval_timeout=60.0,
        on_approval_required=handler.function,
    )
    stands = driver.invoke(agent, "go", breakpoints=ALL)
    now[0] += 50
    asked = driver.resume(agent, stands.checkpoint)
    [item] = asked.checkpoint.pending
    assert item.expires_at is not None
    assert (item.why, (item.expires_at - item.requested_at).total_seconds()) == ("approval", 60)
    assert item.requested_at.timestamp() == now[0]
    driver.invoke(agent, "go", breakpoints=ALL)
    now[0] += 61
    driver.call(agent, "recover_all")
    assert (len(handler.asked), paid) == (1, [])


# Edits


def careful(driver: Driver, store: Any, handler: Handler, paid: list[int], **options: Any) -> Agent[Any, Any]:
    """An agent that asks about payments above 10."""

    @tool(requires_approval=driver.function(lambda args: args["n"] > 10))
    def pay(n: int = 1) -> str:
        """Pay."""
        paid.append(n)
        return f"paid {n}"

    return desk(store, tools=[pay], on_approval_required=handler.function, **options)


@pytest.mark.parametrize(("shown", "edit", "asked"), [(7, 500, [500]), (70, 500, [500]), (70, 5, []), (70, 70, [70])])
def test_arguments_edited_at_the_stop_are_what_the_handler_is_asked_about(
    driver: Driver, place: Place, shown: int, edit: int, asked: list[int]
) -> None:
    handler, paid = Handler(driver), list[int]()
    agent = careful(driver, place.open(), handler, paid, model=pays(shown))
    stands = driver.invoke(agent, "go", breakpoints=ALL)
    [item] = stands.checkpoint.pending
    assert item.why == "breakpoint"
    result = driver.resume(
        agent, stands.checkpoint, decisions={item.id: Approve(args={"n": edit})}, breakpoints=ALL, by="ada"
    )
    assert (result.output, [args["n"] for _, args in handler.asked], paid) == ("done", asked, [edit])


def pays(n: int) -> ScriptedModel:
    """A model that pays so much."""
    return ScriptedModel.by_turn([call("pay", {"n": n}), "done"])


# Runs inside


def payer(driver: Driver, handler: Handler | None, paid: list[int]) -> Agent[Any, Any]:
    """The agent in a node."""
    given: dict[str, Any] = {} if handler is None else {"on_approval_required": handler.function}
    return desk(None, requires_approval=True, paid=paid, **given)


@pytest.mark.parametrize("edit", [None, 5])
def test_the_handler_of_a_run_inside_is_asked_once_it_is_let_go(driver: Driver, place: Place, edit: int | None) -> None:
    handler, paid = Handler(driver), list[int]()
    graph = nested(payer(driver, handler, paid), store=place.open())
    stands = driver.invoke(graph, {}, breakpoints=ALL)
    assert (whys(stands), handler.asked) == ([("breakpoint", "pre_tool_call", "look")], [])
    answer = Approve() if edit is None else Approve(args={"n": edit})
    result = driver.resume(graph, stands.checkpoint, decisions={stands.checkpoint.pending[0].id: answer})
    assert (result.status, handler.asked, paid) == ("completed", [("pay", {"n": edit or 7})], [edit or 7])


def front(driver: Driver, store: Any, inner: Agent[Any, Any], handler: Handler | None) -> Agent[Any, Any]:
    """An agent around the one that pays: above 100 it asks as well."""
    return Agent(
        name="front",
        model=ScriptedModel.by_turn([call("desk", {"input": "go"}), "Over."]),
        tools=[inner.as_tool()],
        approval_policy={"pay": driver.function(lambda args: args["n"] > 100)},
        store=store,
        on_approval_required=None if handler is None else handler.function,
    )


@pytest.mark.parametrize(("edit", "asks_outside"), [(None, False), (70, False), (500, False), (500, True)])
def test_a_handler_inside_does_not_answer_for_the_policy_of_an_agent_around_it(
    driver: Driver, place: Place, edit: int | None, asks_outside: bool
) -> None:
    """Who asks is kept over the stop, and over an edit at it, though it is decided outside and carried out inside."""
    inside, outside, paid = Handler(driver), Handler(driver), list[int]()
    inner = careful(driver, None, inside, paid, model=pays(50))
    agent = front(driver, place.open(), inner, outside if asks_outside else None)
    stands = driver.invoke(agent, "go", breakpoints=ALL)
    stands = driver.resume(agent, stands.checkpoint, breakpoints=ALL)  # before the call of the agent inside
    [item] = stands.checkpoint.pending
    assert (item.why, item.path, item.tool_name) == ("breakpoint", "1.0", "pay")
    answer = Approve() if edit is None else Approve(args={"n": edit})
    result = driver.resume(agent, stands.checkpoint, decisions={item.id: answer}, breakpoints=ALL)
    if edit == 500 and not asks_outside:
        assert (whys(result), inside.asked, paid) == ([("approval", None, None)], [], [])
        result = driver.resume(agent, result.checkpoint, approved=True, breakpoints=ALL)
        assert (result.status, inside.asked, paid) == ("completed", [], [500])
        return
    ran = edit or 50
    assert (result.status, paid, inside.asked) == ("completed", [ran], [("pay", {"n": ran})])
    assert outside.asked == ([("pay", {"n": ran})] if asks_outside else [])


# Graphs


def desk_graph(driver: Driver, store: Any, handler: Handler | None, ran: list[int], **options: Any) -> Graph[Any, Case]:
    """A graph whose one node asks before it runs."""

    def pay(state: Case) -> dict[str, Any]:
        ran.append(state.n)
        return {"log": [f"paid {state.n}"]}

    graph = StateGraph(Case, name="office").add_node("pay", driver.function(pay), requires_approval=True)
    if handler is not None:
        options["on_approval_required"] = handler.function
    return graph.add_edge(START, "pay").add_edge("pay", END).compile(store=store, **options)


STOPS: list[dict[str, Any]] = [
    {"breakpoints": [Breakpoint("pre_node")]},
    {"breakpoints": [Breakpoint("approval")]},
    {"interrupt_before": ["pay"]},
]


@pytest.mark.parametrize("stop", STOPS, ids=str)
@pytest.mark.parametrize("edit", ["none", "args", "update", "skip"])
def test_the_handler_of_a_graph_is_asked_once_its_node_is_let_go(
    driver: Driver, place: Place, stop: dict[str, Any], edit: str
) -> None:
    handler, ran = Handler(driver), list[int]()
    graph = desk_graph(driver, place.open(), handler, ran)
    stands = driver.invoke(graph, {"n": 7}, **stop)
    assert (stands.status, stops_of(stands), handler.asked) == ("suspended", ["pre_node"], [])
    [item] = stands.checkpoint.pending
    assert (item.why, item.args["state"]["n"]) == ("breakpoint", 7)
    options: dict[str, Any] = {
        "none": {},
        "args": {"decisions": {item.id: Approve(args={"state": {"n": 8, "log": []}})}},
        "update": {"update": {"n": 9}},
        "skip": {"decisions": {item.id: Skip()}},
    }[edit]
    result = driver.resume(graph, stands.checkpoint, **options, **stop)
    shown = {"none": [7], "args": [8], "update": [9], "skip": []}[edit]
    assert (result.status, ran) == ("completed", shown)
    assert [args["state"]["n"] for _, args in handler.asked] == shown


# Looking at it


def test_a_debugger_stops_and_the_handler_is_asked_as_in_the_run(driver: Driver, place: Place) -> None:
    handler, paid = Handler(driver), list[int]()
    debugger: Any = Debugger(gated(driver, place, handler, paid))
    driver.call(debugger, "start", "go")
    driver.call(debugger, "step")
    assert (debugger.hit.type, debugger.hit.asks, debugger.context.asks, handler.asked) == (
        "pre_tool_call",
        True,
        True,
        [],
    )
    driver.call(debugger, "over")
    assert (debugger.hit.type, handler.asked, paid) == ("post_tool_call", [("pay", {"n": 7})], [7])


def test_a_predicate_knows_that_the_call_asks_and_is_asked_once(driver: Driver) -> None:
    seen: list[bool] = []

    def look(here: BreakpointContext) -> bool:
        seen.append(here.asks)
        return True

    handler, paid = Handler(driver), list[int]()
    agent = gated(driver, None, handler, paid)
    live = Breakpoints([Breakpoint("tool", look)])
    stands = driver.invoke(agent, "go", breakpoints=live)
    assert driver.resume(agent, stands.checkpoint, breakpoints=live).output == "done"
    assert (seen, paid) == ([True], [7])


def test_calls_side_by_side_each_wait_for_what_they_need(driver: Driver, place: Place) -> None:
    """Two calls stop; the handler answers for the one that is let go, and the other one still stands."""
    handler, paid = Handler(driver), list[int]()
    model = ScriptedModel.by_turn([[call("pay", {"n": 1}), call("pay", {"n": 2})], "done"])
    agent = gated(driver, place, handler, paid, model=model)
    stands = driver.invoke(agent, "go", breakpoints=ALL)
    first, second = stands.checkpoint.pending
    result = driver.resume(agent, stands.checkpoint, decisions={second.id: Approve()}, breakpoints=ALL)
    assert ([item.id for item in result.checkpoint.pending], paid) == ([first.id], [2])
    assert driver.resume(agent, result.checkpoint, breakpoints=ALL).output == "done"
    assert ([args["n"] for _, args in handler.asked], paid) == ([2, 1], [2, 1])
