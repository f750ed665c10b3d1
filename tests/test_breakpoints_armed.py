"""Breakpoints as they are armed: one that can never fire is refused with the reason, and one that is accepted fires."""

from __future__ import annotations

from typing import Any

import pytest
from drivers import Driver, rows
from handoff_scenes import Office, to, went
from pattern_scenes import says
from places import Place
from stop_scenes import EVERY, OF_AGENTS, desk, nested, stops_of, walk, works

from phronomy import (
    Agent,
    Breakpoint,
    BreakpointContext,
    Breakpoints,
    ConfigurationError,
    Debugger,
    InvalidDecision,
    MemoryStore,
    Skip,
    sequential,
    tool,
)
from phronomy.records.decisions import Approve
from phronomy.stops.breakpoints import BreakpointType
from phronomy.testing import ScriptedModel, call


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


# Where a conversation goes to an agent


def test_a_run_stops_where_an_agent_is_handed_the_conversation(driver: Driver, place: Place) -> None:
    office = Office(place.open(), to("billing", "Paid twice."), "done", driver=driver)
    stop = [Breakpoint("pre_agent_run", label="look", agents=["billing"])]
    waits = office.run(breakpoints=stop)
    assert (waits.status, stops_of(waits), went(waits)) == ("suspended", ["pre_agent_run"], ["triage > billing"])
    [hit] = office.triage.stopped_at(waits.checkpoint)
    assert (hit.type, hit.agent, hit.label, hit.before, hit.args, hit.next) == (
        "pre_agent_run",
        "billing",
        "look",
        True,
        {},
        ("ask the model",),
    )
    assert office.asked == ["triage"]
    with pytest.raises(InvalidDecision, match="where nothing can be edited any more"):
        office.resume(waits, Approve(args={"input": "Something else."}), breakpoints=stop)
    result = office.resume(waits.checkpoint.id, breakpoints=stop)
    assert (result.output, office.asked, result.checkpoint.original_input) == ("done", ["triage", "billing"], "Help.")


def test_an_agent_that_gets_the_conversation_back_is_asked_anew(driver: Driver) -> None:
    office = Office(None, to("billing"), to("triage"), "done", driver=driver)
    stood = []
    at = office.run(breakpoints=[Breakpoint("pre_agent_run")])
    while at.suspended:
        [item] = at.checkpoint.pending
        stood.append((item.point, item.agent, len(office.asked)))
        at = office.resume(at, breakpoints=[Breakpoint("pre_agent_run")])
    assert stood == [("pre_agent_run", "triage", 0), ("pre_agent_run", "billing", 1), ("pre_agent_run", "triage", 2)]
    assert (at.output, office.asked) == ("done", ["triage", "billing", "triage"])


def test_an_agent_that_has_the_conversation_is_not_stopped_there_again(driver: Driver) -> None:
    """It is asked three times in all, and stands at the point before the first: whatever it does, it keeps the conversation."""
    office = Office(None, to("billing"), call("nothing"), call("nothing"), "done", driver=driver)
    at = office.run(breakpoints=[Breakpoint("pre_agent_run", agents=["billing"])])
    assert stops_of(at) == ["pre_agent_run"]
    at = office.resume(at, breakpoints=[Breakpoint("pre_agent_run", agents=["billing"])])
    assert (at.status, office.asked) == ("completed", ["triage", "billing", "billing", "billing"])


def test_a_predicate_knows_who_handed_the_conversation_over(driver: Driver) -> None:
    seen: list[tuple[str, str, Any]] = []

    def look(here: BreakpointContext) -> bool:
        seen.append((here.type, here.agent, here.handoff))
        return False

    office = Office(None, to("billing"), call("nothing"), "done", driver=driver)
    points: list[Any] = ["pre_agent_run", "pre_model_call", "pre_handoff"]
    office.run(breakpoints=[Breakpoint(point, look) for point in points])
    way = ("triage", "billing")
    assert seen == [
        ("pre_agent_run", "triage", None),
        ("pre_model_call", "triage", None),
        ("pre_handoff", "triage", way),
        ("pre_agent_run", "billing", way),
        ("pre_model_call", "billing", way),
        ("pre_model_call", "billing", None),
    ]
    office = Office(None, to("billing"), "done", driver=driver)
    waits = office.run(breakpoints=[Breakpoint("pre_agent_run", "handoff == ('triage', 'billing')")])
    assert [item.agent for item in waits.checkpoint.pending] == ["billing"]


def test_to_skip_an_agent_that_is_handed_the_conversation_ends_the_run(driver: Driver, place: Place) -> None:
    office = Office(place.open(), to("billing"), "never", driver=driver)
    waits = office.run(breakpoints=[Breakpoint("pre_agent_run", agents=["billing"])])
    result = office.resume(waits, Skip())
    assert (result.status, office.asked) == ("skipped", ["triage"])


def test_a_debugger_stops_once_where_an_agent_is_handed_the_conversation(driver: Driver) -> None:
    office = Office(None, to("billing"), "done", driver=driver)
    debugger: Any = Debugger(office.triage)
    stood = []
    at = driver.call(debugger, "start", "go")
    while at.suspended:
        stood.append((debugger.where()[-1].agent, debugger.where()[-1].at, debugger.context.handoff))
        at = driver.call(debugger, "into")
    assert stood == [
        ("triage", "pre_agent_run", None),
        ("triage", "pre_handoff transfer_to_billing", ("triage", "billing")),
        ("billing", "pre_agent_run", ("triage", "billing")),
        ("billing", "post_run", None),
    ]


# Where no run comes


def offices() -> Any:
    """An office, whose agents hand over; its agents are asked nothing."""
    return Office(None, "done").triage


def lines() -> Any:
    """A pattern of two agents, of which one has a tool."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    return sequential({"draft": says("ann", "a draft", tools=[look]), "check": says("bob", "checked")}, name="line")


NEVER: list[tuple[Any, Breakpoint, str]] = [
    (
        offices,
        Breakpoint("pre_input_guardrails", agents=["billing"]),
        "no run of 'triage' ever comes to pre_input_guardrails with agents billing: input guardrails are those of the agent that a run"
        " begins with, and look at nothing where another is handed the conversation; stop at pre_agent_run there",
    ),
    (
        offices,
        Breakpoint("pre_input_guardrails", agents=["triage", "refunds"]),
        "ever comes to pre_input_guardrails with agents refunds: input guardrails",
    ),
    (
        offices,
        Breakpoint("tool", tools=["transfer_to_billing"]),
        "'triage' ever comes to tool with tools transfer_to_billing",
    ),
    (offices, Breakpoint("pre_input_guardrails", tools=["look"]), "comes to pre_input_guardrails with tools look$"),
    (offices, Breakpoint("handoff", tools=["look"]), "ever comes to handoff with tools look"),
    (offices, Breakpoint("tool", agents=["billing"], tools=["look"]), "ever comes to tool with agents billing"),
    (offices, Breakpoint("post_tool_call", tools=["transfer_to_billing"]), "comes to post_tool_call with tools"),
    (offices, Breakpoint("post_run", tools=["refund"]), "'triage' ever comes to post_run with tools refund"),
    (lambda: desk(None, tools=[]), Breakpoint("tool"), "no run of 'desk' ever comes to tool$"),
    (lambda: desk(None, tools=[]), Breakpoint("approval"), "no run of 'desk' ever comes to approval$"),
    (lambda: desk(None), Breakpoint("approval"), "no run of 'desk' ever comes to approval$"),
    (lambda: desk(None), Breakpoint("approval", tools=["pay"]), "ever comes to approval$"),
    (lambda: nested(desk(None)), Breakpoint("approval"), "no run of 'office' ever comes to approval$"),
    (lambda: desk(None, tools=[]), Breakpoint("*"), r"no run of 'desk' ever comes to \*$"),
    (works, Breakpoint("approval"), "no run of 'works' ever comes to approval$"),
    (works, Breakpoint("*", nodes=["a"]), r"no run of 'works' ever comes to \*$"),
    (works, Breakpoint("post_run", nodes=["a"]), "ever comes to post_run with nodes a"),
    (lambda: nested(desk(None)), Breakpoint("pre_agent_run", agents=["office"]), "pre_agent_run with agents office"),
    (lambda: nested(desk(None)), Breakpoint("pre_node", agents=["desk"]), "comes to pre_node with agents desk"),
    (lambda: nested(desk(None)), Breakpoint("tool", nodes=["desk"]), "ever comes to tool with nodes desk"),
    (lines, Breakpoint("tool", patterns=["line"]), "ever comes to tool with patterns line"),
    (lines, Breakpoint("tool", agents=["bob"]), "ever comes to tool with agents bob"),
]


@pytest.mark.parametrize(("make", "breakpoint", "why"), NEVER, ids=[str(each) for _, each, _ in NEVER])
def test_a_breakpoint_that_can_never_fire_is_refused_when_it_is_armed(
    driver: Driver, make: Any, breakpoint: Breakpoint, why: str
) -> None:
    agent = make()
    with pytest.raises(ConfigurationError, match=why):
        driver.invoke(agent, "go", breakpoints=[breakpoint])
    assert agent.store.branches() == []
    live = Breakpoints([Breakpoint("post_run")])
    Debugger(agent, breakpoints=live)
    with pytest.raises(ConfigurationError, match=why):
        live.add(breakpoint)
    assert len(live) == 1


def test_an_agent_that_others_hand_over_to_may_be_the_one_that_a_run_begins_with() -> None:
    """Of its own breakpoints each can fire where it is called itself."""
    model = ScriptedModel.by_turn([to("billing"), "done"])
    stop = Breakpoint("pre_input_guardrails", agents=["billing"])
    billing = Agent(name="billing", model=model, breakpoints=[stop])
    triage = Agent(name="triage", model=model, handoffs=[billing])
    assert triage.invoke("Help.").status == "completed"
    assert stops_of(billing.invoke("Help.")) == ["pre_input_guardrails"]


# Where runs come


@pytest.mark.parametrize("point", OF_AGENTS)
def test_each_point_of_an_agent_that_is_handed_the_conversation_fires_or_is_refused(
    driver: Driver, point: BreakpointType
) -> None:
    office = Office(None, to("refunds"), call("refund"), "done", driver=driver)
    stop = [Breakpoint(point, agents=["refunds"])]
    if point == "pre_input_guardrails":
        with pytest.raises(ConfigurationError):
            office.run(breakpoints=stop)
        return
    at = office.run(breakpoints=stop)
    stood = [(item.point, item.agent) for item in at.checkpoint.pending]
    while at.suspended:
        at = office.resume(at, *[Approve() for _ in at.checkpoint.pending], breakpoints=stop)
        stood += [(item.point, item.agent) for item in at.checkpoint.pending]
    assert (point, "refunds") in stood


PLACES: list[tuple[Any, Breakpoint]] = [
    (lambda store: desk(store, approval_policy=["pay"]), Breakpoint("approval", tools=["pay"])),
    (lambda store: nested(desk(store, approval_policy=["pay"])), Breakpoint("approval", tools=["pay"])),
    (lambda store: nested(desk(store)), Breakpoint("*", agents=["desk"])),
    (lambda store: works(store=store), Breakpoint("post_node", nodes=["a", "b"], agents=["works"])),
    (lambda store: works(store=store), Breakpoint("post_run", agents=["works"])),
]


@pytest.mark.parametrize(("make", "breakpoint"), PLACES, ids=[str(each) for _, each in PLACES])
def test_what_some_run_may_come_to_is_armed(driver: Driver, make: Any, breakpoint: Breakpoint) -> None:
    """A run may stop there, whatever it comes to."""
    store = MemoryStore()
    agent = make(store)
    before = rows(store)
    Debugger(agent, breakpoints=[breakpoint])
    assert rows(store) == before
    given: Any = {} if agent.name in ("office", "works") else "go"
    assert driver.invoke(agent, given, breakpoints=[breakpoint]).status in ("completed", "suspended")


def test_an_agent_may_wait_for_approvals_that_the_policy_of_a_run_around_it_asks_for(driver: Driver) -> None:
    stop = Breakpoint("approval", label="look")
    assert driver.invoke(desk(None, breakpoints=[stop]), "go").status == "completed"
    around = nested(desk(None, breakpoints=[stop]), approval_policy=["pay"])
    assert stops_of(driver.invoke(around, {})) == ["pre_tool_call"]


def test_a_pattern_stops_before_each_of_its_steps(driver: Driver) -> None:
    stop = [Breakpoint("pre_pattern_step", patterns=["line"], nodes=["draft", "check"])]
    result, stood = walk(driver, lines(), "write", breakpoints=stop)
    assert (result.output, stood) == ("checked", ["pre_pattern_step"] * 2)


def test_a_fallback_is_a_tool_that_a_run_comes_to(driver: Driver) -> None:
    def backup() -> str:
        """The other way."""
        return "by hand"

    def broken() -> str:
        """Break."""
        raise ConnectionError("down")

    tools = [tool(driver.function(broken), fallback=(tool(driver.function(backup)),))]
    agent = Agent(name="desk", model=ScriptedModel.by_turn([call("broken"), "done"]), tools=tools)
    result, stood = walk(driver, agent, breakpoints=[Breakpoint("post_tool_call", tools=["backup"])])
    assert (result.output, stood) == ("done", ["post_tool_call"])
