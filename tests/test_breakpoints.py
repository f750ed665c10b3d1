"""Breakpoints: a run stops where it was told to, shows what there is, and goes on as it was told, on every driver and store."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest
from drivers import Driver, outline
from pydantic import BaseModel
from stop_scenes import EVERY, desk, stops_of, walk

from phronomy import (
    Agent,
    AgentChanged,
    ApprovalExpired,
    Approve,
    AsyncRequired,
    Breakpoint,
    BreakpointContext,
    Breakpoints,
    Checkpoint,
    CheckpointAlreadyResumed,
    ConfigurationError,
    GuardrailRefused,
    InvalidDecision,
    LimitExceeded,
    Limits,
    MemoryStore,
    NothingDecided,
    Reject,
    Respond,
    Skip,
    Store,
    UnknownPending,
    match_breakpoint,
    tool,
)
from phronomy._expressions import Expression
from phronomy.graph import END, START, Abort, Graph, Send, StateGraph, append
from phronomy.guardrails import MaxLength, RedactPatterns, RefusePatterns
from phronomy.testing import ScriptedModel, call

OF_AGENTS: list[Any] = [
    "pre_input_guardrails",
    "pre_agent_run",
    "pre_model_call",
    "pre_tool_call",
    "post_tool_call",
    "pre_output_guardrails",
    "post_run",
]
OF_RUNS = [point for point in OF_AGENTS if "tool" not in point]


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


# Where


def test_a_run_stops_at_each_point_in_order_and_ends_as_it_would_have(driver: Driver, store: Store) -> None:
    agent = desk(store)
    result, stood = walk(driver, agent, breakpoints=[Breakpoint(point) for point in OF_AGENTS])
    assert stood == [
        "pre_input_guardrails",
        "pre_agent_run",
        "pre_model_call",
        "pre_tool_call",
        "post_tool_call",
        "pre_model_call",
        "pre_output_guardrails",
        "post_run",
    ]
    straight = driver.invoke(desk(MemoryStore()), "go")
    assert (result.status, result.output, outline(result)) == ("completed", "done", outline(straight))


@pytest.mark.parametrize("point", OF_AGENTS)
def test_nothing_behind_a_point_has_begun(driver: Driver, point: Any) -> None:
    paid: list[int] = []
    model = ScriptedModel.by_turn([call("pay", {"n": 7}), "done"])
    agent = desk(None, model=model, paid=paid)
    result = driver.invoke(agent, "go", breakpoints=[Breakpoint(point)])
    assert (result.status, stops_of(result)) == ("suspended", [point])
    asked = {"pre_tool_call": 1, "post_tool_call": 1, "pre_output_guardrails": 2, "post_run": 2}.get(point, 0)
    assert (len(model.requests), paid) == (asked, [7] if asked and point != "pre_tool_call" else [])
    assert driver.resume(agent, result.checkpoint).output == "done"


def test_a_loop_comes_to_its_stops_each_time_and_what_is_passed_does_not_grow(driver: Driver) -> None:
    agent = desk(None, *[call("pay", {"n": n}) for n in range(1, 13)], "done")
    points = ["pre_model_call", "pre_tool_call"]
    result, stood = walk(driver, agent, breakpoints=[Breakpoint(point) for point in points])
    assert stood == [*points * 12, "pre_model_call"]
    assert len(result.checkpoint.passed) <= 1


def test_the_first_that_matches_stops_the_run_once(driver: Driver) -> None:
    stops = [
        Breakpoint("post_run", label="another"),
        Breakpoint("tool", when=lambda here: False, label="never"),
        Breakpoint("pre_tool_call", tools=["pay"], label="first"),
        Breakpoint("*", label="second"),
        Breakpoint("pre_tool_call", label="third"),
    ]
    agent = desk(None, breakpoints=stops)
    result = driver.invoke(agent, "go")
    assert [item.label for item in result.checkpoint.pending] == ["first"]
    result = driver.resume(agent, result.checkpoint)
    assert [item.label for item in result.checkpoint.pending] == ["another"]
    assert driver.resume(agent, result.checkpoint).status == "completed"


@pytest.mark.parametrize(
    ("breakpoint", "stood"),
    [
        (Breakpoint("tool"), ["breakpoint", "breakpoint"]),
        (Breakpoint("approval"), ["approval"]),
        (Breakpoint("*"), ["breakpoint", "approval"]),
        (Breakpoint("tool", tools=["ship"]), ["breakpoint"]),
        (Breakpoint("approval", tools=["ship"]), []),
        (Breakpoint("tool", agents=["desk"], tools=["pay", "ship"]), ["breakpoint", "breakpoint"]),
    ],
    ids=str,
)
def test_the_shorthands(driver: Driver, breakpoint: Breakpoint, stood: list[str]) -> None:
    """An approval is asked for whether a breakpoint lies there or not: it only keeps the handler from answering first."""

    @tool
    def ship() -> str:
        """Ship."""
        return "shipped"

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    def handler(name: str, args: dict[str, Any]) -> bool:
        return True

    agent = Agent(
        name="desk",
        model=ScriptedModel.by_turn([call("ship"), call("pay"), "done"]),
        tools=[ship, pay],
        on_approval_required=handler,
        breakpoints=[breakpoint],
    )
    seen = []
    result = driver.invoke(agent, "go")
    while result.suspended:
        seen += [item.why for item in result.checkpoint.pending]
        result = driver.resume(agent, result.checkpoint, approved=True)
    # At `tool`, an approval that is asked for there waits as one.
    assert seen == (["breakpoint", "approval"] if len(stood) == 2 else stood)
    assert result.output == "done"


def test_one_of_ten_calls_side_by_side_stops_and_its_siblings_run(driver: Driver, store: Store) -> None:
    paid: list[int] = []
    agent = desk(store, [call("pay", {"n": n}) for n in range(10)], "done", paid=paid)
    result = driver.invoke(agent, "go", breakpoints=[Breakpoint("tool", when="args['n'] == 4")])
    assert (stops_of(result), sorted(paid)) == (["pre_tool_call"], [0, 1, 2, 3, 5, 6, 7, 8, 9])
    assert result.checkpoint.pending[0].args == {"n": 4}
    assert (driver.resume(agent, result.checkpoint).output, sorted(paid)) == ("done", list(range(10)))


def test_one_of_ten_calls_stops_after_it_has_run(driver: Driver, store: Store) -> None:
    paid: list[int] = []
    model = ScriptedModel.by_turn([[call("pay", {"n": n}) for n in range(10)], "done"])
    agent = desk(store, model=model, paid=paid)
    stop = Breakpoint("post_tool_call", when="result == 'paid 4'")
    result = driver.invoke(agent, "go", breakpoints=[stop])
    assert (stops_of(result), sorted(paid), len(model.requests)) == (["post_tool_call"], list(range(10)), 1)
    [hit] = agent.stopped_at(result.checkpoint)
    assert (hit.tool, hit.before, hit.args, hit.result) == ("pay", False, {"n": 4}, "paid 4")
    assert (driver.resume(agent, result.checkpoint).output, len(paid)) == ("done", 10)


def test_a_stop_is_made_once_though_somebody_else_writes_meanwhile() -> None:
    """What is recorded and not stored yet is recorded again after whatever came first."""
    at_work, go_on = threading.Event(), threading.Event()

    @tool
    def work() -> str:
        """Work."""
        at_work.set()
        assert go_on.wait(30)
        return "worked"

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(
        model=ScriptedModel.by_turn([[call("work"), call("pay")], "done"]),
        tools=[work, pay],
        breakpoints=[Breakpoint("post_tool_call", tools=["work"])],
    )
    begun: list[Any] = []
    thread = threading.Thread(target=lambda: begun.append(agent.invoke("go")))
    thread.start()
    assert at_work.wait(30)
    [branch] = agent.store.branches()
    waits = agent.store.head(branch.id)[1]
    assert agent.resume(waits, decisions={waits.pending[0].id: Reject()}).status == "running"
    go_on.set()
    thread.join()
    assert stops_of(begun[0]) == ["post_tool_call"]
    assert agent.resume(begun[0].checkpoint).output == "done"


def test_a_failed_call_stops_after_it_too_and_one_that_is_tried_again_does_not(driver: Driver) -> None:
    attempts: list[int] = []

    def flaky() -> str:
        """Try."""
        attempts.append(1)
        if len(attempts) < 3:
            raise ConnectionError("down")
        return "up"

    agent = Agent(
        model=ScriptedModel.by_turn([call("flaky"), call("flaky"), "done"]),
        tools=[tool(driver.function(flaky), retries=1, retry_wait=0, idempotent=True)],
        breakpoints=[Breakpoint("post_tool_call"), Breakpoint("tool")],
    )
    result, stood = walk(driver, agent)
    assert (stood, len(attempts), result.output) == (["pre_tool_call", "post_tool_call"] * 2, 3, "done")


def test_a_fallback_is_a_call_of_its_own(driver: Driver) -> None:
    def backup() -> str:
        """The other way."""
        return "by hand"

    def broken() -> str:
        """Break."""
        raise ConnectionError("down")

    agent = Agent(
        model=ScriptedModel.by_turn([call("broken"), "done"]),
        tools=[tool(driver.function(broken), fallback=(tool(driver.function(backup)),))],
        breakpoints=[Breakpoint("tool", tools=["backup"], label="backup")],
    )
    result = driver.invoke(agent, "go")
    assert [(item.tool_name, item.label) for item in result.checkpoint.pending] == [("backup", "backup")]
    assert driver.resume(agent, result.checkpoint).output == "done"


# When


def test_a_predicate_that_raises_is_no_match_is_told_and_quotes_nothing(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(here: BreakpointContext) -> bool:
        raise LookupError(f"secret {here.args}")

    stops = [
        Breakpoint("tool", when=broken, label="broken"),
        Breakpoint("tool", when="args['secret'] == 1", label="missing"),
        Breakpoint("tool", label="sound"),
    ]
    agent = desk(None, breakpoints=stops)
    with caplog.at_level(logging.ERROR, "phronomy"):
        result = driver.invoke(agent, "go")
    assert [item.label for item in result.checkpoint.pending] == ["sound"]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "LookupError" in told[0]
    assert "KeyError" in told[1]
    assert not any("secret 7" in line or "'n'" in line or "7" in line for line in told)
    assert all(record.exc_info is None for record in caplog.records)


def test_what_a_predicate_knows(driver: Driver) -> None:
    seen: list[BreakpointContext] = []

    def look(here: BreakpointContext) -> bool:
        seen.append(here)
        return False

    agent = desk(None, breakpoints=[Breakpoint(point, when=look) for point in OF_AGENTS])
    result = driver.invoke(agent, "go", thread_id="t")
    by_type = {here.type: here for here in seen}
    assert list(by_type) == OF_AGENTS
    for here in seen:
        assert (here.agent, here.input, here.state, here.path, here.thread_id) == ("desk", "go", None, "", "t")
        assert here.run_id == result.run_id
    before, after = by_type["pre_tool_call"], by_type["post_tool_call"]
    assert (before.tool, before.args, before.result, before.asks, before.turn) == ("pay", {"n": 7}, None, False, 1)
    assert (after.tool, after.args, after.result) == ("pay", {"n": 7}, "paid 7")
    assert (by_type["pre_model_call"].output, by_type["post_run"].output) == (None, "done")


def test_a_predicate_cannot_change_what_it_looks_at(driver: Driver) -> None:
    def meddle(here: BreakpointContext) -> bool:
        assert here.args is not None
        here.args["n"] = 1000
        return False

    paid: list[int] = []
    seen = Breakpoint("tool", when=lambda here: (here.args or {})["n"] == 7, label="seen")
    agent = desk(None, paid=paid, breakpoints=[Breakpoint("tool", when=meddle), seen])
    paused = driver.invoke(agent, "go").checkpoint
    assert [item.label for item in paused.pending] == ["seen"]
    driver.resume(agent, paused)
    assert paid == [7]


def test_a_predicate_is_asked_once_at_each_point_whoever_watches(driver: Driver, store: Store) -> None:
    asked: list[tuple[str, int]] = []

    def look(here: BreakpointContext) -> bool:
        asked.append((here.type, here.turn))
        return False

    stops = [Breakpoint(point, when=look) for point in OF_AGENTS]
    driver.invoke(desk(store), "go", breakpoints=stops)
    assert asked == [
        ("pre_input_guardrails", 0),
        ("pre_agent_run", 0),
        ("pre_model_call", 0),
        ("pre_tool_call", 1),
        ("post_tool_call", 1),
        ("pre_model_call", 1),
        ("pre_output_guardrails", 2),
        ("post_run", 2),
    ]


def test_whoever_reads_a_stream_stops_the_run_at_the_next_point(store: Store) -> None:
    live = Breakpoints([Breakpoint("post_run")])
    stream = desk(store, breakpoints=live).stream("go")
    for event in stream:
        if event.type == "tool_call_settled":
            live.replace([Breakpoint("pre_model_call")])
    assert stops_of(stream.result) == ["pre_model_call"]


def test_breakpoints_of_a_call_stand_in_for_those_of_the_agent(driver: Driver, store: Store) -> None:
    agent = desk(store, breakpoints=[Breakpoint("tool")])
    assert driver.invoke(agent, "go", breakpoints=[]).output == "done"
    assert stops_of(driver.invoke(agent, "go", breakpoints=[Breakpoint("post_run")])) == ["post_run"]
    assert stops_of(driver.invoke(agent, "go")) == ["pre_tool_call"]


def test_match_breakpoint_alone() -> None:
    here = BreakpointContext(type="pre_tool_call", agent="desk", tool="pay", args={"n": 7})
    no, first, second = Breakpoint("post_run"), Breakpoint("tool", label="a"), Breakpoint("*", label="b")
    assert match_breakpoint([], here) is None
    assert match_breakpoint([no], here) is None
    assert match_breakpoint([no, first, second], here) is first
    assert match_breakpoint(Breakpoints([no, second, first]), here) is second
    for narrowed, matches in (
        (Breakpoint("tool", agents=["desk"]), True),
        (Breakpoint("tool", agents=["other"]), False),
        (Breakpoint("tool", tools=["pay"]), True),
        (Breakpoint("tool", tools=["other"]), False),
        (Breakpoint("tool", nodes=["pay"]), False),
        (Breakpoint("tool", patterns=["pay"]), False),
        (Breakpoint("tool", when="args['n'] > 7"), False),
        (Breakpoint("tool", when="args['n'] >= 7 and tool == 'pay'"), True),
        (Breakpoint("approval"), False),
        (Breakpoint("handoff"), False),
    ):
        assert (match_breakpoint([narrowed], here) is narrowed) is matches, narrowed
    asks = BreakpointContext(type="pre_node", agent="desk", node="pay", asks=True)
    assert match_breakpoint([Breakpoint("tool"), Breakpoint("approval")], asks).type == "approval"


# Expressions

SEEN = {"args": {"amount": 500, "tags": ["a", "b"], "who": "Ann Lee"}, "tool": "refund", "state": None, "turn": 3}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("tool == 'refund' and args['amount'] > 100", True),
        ("tool in ('pay', 'refund') and not state", True),
        ("args['amount'] / 2 if turn > 2 else 0", 250.0),
        ("len(args['tags']) == 2 and 'a' in args['tags']", True),
        ("any(tag == 'b' for tag in args['tags'])", True),
        ("[tag for tag in args['tags'] if tag > 'a']", ["b"]),
        ("{'x': 1}['x'] + sum([1, 2]) - min(1, 2)", 3),
        ("args['who'].lower().startswith('ann')", True),
        ("args.get('missing') is None", True),
        ("sorted(args.keys())[0]", "amount"),
        ("args['who'][:3] == 'Ann'", True),
        ("round(2.567, 1) + abs(-1) + max([1, 2]) + int('3') + float('0.5')", 2.6 + 1 + 2 + 3 + 0.5),
        ("2 ** 10 % 100", 24),
        ("round(2.5)", 2),
        ("0 ** 2", 0),
        ("str(True) + str(bool(None)) + str(all([]))", "TrueFalseTrue"),
        ("(0.5).is_integer()", False),
    ],
)
def test_what_an_expression_can_say(text: str, value: Any) -> None:
    assert Expression(f" {text}\n", SEEN).value(SEEN) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("amount > 1", "there is no amount; the names are abs"),
        ("secrets", "there is no secrets"),
        ("__import__('os')", "__import__ is no function"),
        ("open('x')", "open is no function"),
        ("eval('1')", "eval is no function"),
        ("tool()", "tool is no function"),
        ("args['f'](1)", r"args\['f'\] is no function"),
        ("(lambda: 1)()", "is no function"),
        ("tool.__class__", "no method __class__"),
        ("().__class__.__bases__", "no method"),
        ("args.amount", r"no method amount; write \['amount'\]"),
        ("args.clear()", "no method clear"),
        ("args['tags'].append(1)", "no method append"),
        ("tool.format(1)", "no method format"),
        ("tool.center(9)", "no method center"),
        ("f'{tool:99}'", "no joinedstr"),
        ("await tool", "no await"),
        ("tool := 1", "is no expression"),
        ("max(*args)", "no starred"),
        ("tool = 1", "is no expression"),
        ("import os", "is no expression"),
        ("", "1 to 1000 characters"),
        ("   ", "1 to 1000 characters"),
        ("1" * 1001, "1 to 1000 characters"),
        ("1 +", "is no expression"),
        ("'" + "\0" + "'", "is no expression"),
        ("(" * 400 + ")" * 400, "is no expression"),
    ],
)
def test_what_is_no_expression_is_refused_when_it_is_written(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Expression(text, SEEN)
    with pytest.raises(ConfigurationError):
        Breakpoint("tool", when=text)


@pytest.mark.parametrize(
    "text",
    [
        "9 ** 9 ** 9",
        "10 ** -1000000000",
        "9 ** 3999",
        "'%999999999d' % 1",
        "1 << 999999999",
        "'a' * 1000000000",
        "1000000000 * [0]",
        "round(5, -999999999)",
        "sum([1 for a in args['who'] * 9 for b in args['who'] * 9 for c in args['who'] * 9])",
        "int('9' * 99999)",
        "args['missing']",
        "state['x']",
        "tool > 1",
        "-tool",
        "1 / 0",
    ],
)
def test_an_expression_that_cannot_be_worked_out_raises_and_takes_no_time(text: str) -> None:
    expression = Expression(text, SEEN)
    assert repr(expression) == f"Expression({text!r})"
    with pytest.raises(Exception):  # noqa: B017, PT011  # of many kinds: all that counts is that it comes to nothing
        expression.value(SEEN)
    here = BreakpointContext(type="pre_tool_call", agent="a", tool="refund", args=SEEN["args"])
    assert match_breakpoint([Breakpoint("tool", when=text)], here) is None


# Names


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: Breakpoint("pre_tool"),
            "there is no breakpoint of type 'pre_tool'; the types are pre_input_guardrails",
        ),
        (lambda: Breakpoint(None), "there is no breakpoint of type None"),
        (lambda: Breakpoint(["tool"]), "there is no breakpoint of type"),
        (lambda: Breakpoint("tool", when=5), "when is a function of the context"),
        (lambda: Breakpoint("tool", label=5), "label"),
        (lambda: Breakpoint("tool", tools="pay"), "tools are names, in a list"),
        (lambda: Breakpoint("tool", tools=[]), "tools are names"),
        (lambda: Breakpoint("tool", agents=[1]), "agents are names"),
        (lambda: Breakpoint("tool", nodes=[""]), "nodes are names"),
        (lambda: Breakpoint("tool", patterns=5), "patterns are names"),
        (lambda: Breakpoints("tool"), "breakpoints is a list of Breakpoint, not str"),
        (lambda: Breakpoints(["tool"]), r"breakpoints holds str; write Breakpoint\('pre_tool_call'\)"),
        (lambda: Breakpoints().add("tool"), "breakpoints holds str"),
        (lambda: Breakpoints().replace(5), "not int"),
    ],
)
def test_what_is_no_breakpoint_is_refused_when_it_is_made(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        make()


def test_an_async_predicate_is_refused() -> None:
    async def look(here: BreakpointContext) -> bool:
        return True

    with pytest.raises(ConfigurationError, match="plain function"):
        Breakpoint("tool", when=look)

    class Look:
        async def __call__(self, here: BreakpointContext) -> bool:
            return True

    with pytest.raises(ConfigurationError, match="plain function"):
        Breakpoint("tool", when=Look())


UNKNOWN = [
    (Breakpoint("tool", tools=["pya"]), "'desk' has no tools named pya; its tools are pay"),
    (Breakpoint("post_run", agents=["dusk"]), "has no agents named dusk; its agents are desk"),
    (Breakpoint("tool", nodes=["pay"]), "has no nodes named pay; its nodes are none"),
    (Breakpoint("tool", patterns=["p"]), "has no patterns named p"),
    (Breakpoint("pre_node"), "no run of 'desk' ever comes to pre_node"),
    (Breakpoint("post_node"), "ever comes to post_node"),
    (Breakpoint("handoff"), "ever comes to handoff"),
    (Breakpoint("pre_handoff"), "ever comes to pre_handoff"),
    (Breakpoint("pre_pattern_step"), "ever comes to pre_pattern_step"),
]


@pytest.mark.parametrize(("breakpoint", "why"), UNKNOWN, ids=[str(each) for each, _ in UNKNOWN])
def test_an_unknown_name_is_refused_when_it_is_armed_and_nothing_is_run(
    driver: Driver, breakpoint: Breakpoint, why: str
) -> None:
    sound = Breakpoint("post_run")
    with pytest.raises(ConfigurationError, match=why):
        driver.invoke(desk(None, breakpoints=[sound, breakpoint]), "go")
    agent = desk(None)
    with pytest.raises(ConfigurationError, match=why):
        driver.invoke(agent, "go", breakpoints=[breakpoint])
    assert agent.store.branches() == []


def test_an_unknown_name_is_refused_of_breakpoints_that_are_armed_with_nothing_changed(driver: Driver) -> None:
    live = Breakpoints([sound := Breakpoint("post_run")])
    wrong = Breakpoint("tool", tools=["pya"])
    agent = desk(None, breakpoints=live)
    assert stops_of(driver.invoke(agent, "go")) == ["post_run"]
    for change in (live.add, lambda item: live.replace([item])):
        with pytest.raises(ConfigurationError, match="pya"):
            change(wrong)
    assert (list(live), len(live), repr(live)) == ([sound], 1, "Breakpoints([Breakpoint('post_run')])")
    live.remove(wrong)
    live.remove(sound)
    assert list(live) == []
    assert driver.invoke(agent, "go").status == "completed"


def test_what_a_breakpoint_says_of_itself() -> None:
    assert repr(Breakpoint("tool")) == "Breakpoint('tool')"
    full = Breakpoint("*", "turn > 1", "look", agents=["b", "a"], tools=["t"], nodes=["n"], patterns=["p"])
    assert repr(full) == (
        "Breakpoint('*', when='turn > 1', label='look', agents=['a', 'b'], tools=['t'], nodes=['n'], patterns=['p'])"
    )
    assert repr(Breakpoint("tool", lambda here: True)) == "Breakpoint('tool', when=...)"


def test_breakpoints_may_change_while_a_run_is_paused_or_under_way(driver: Driver) -> None:
    live = Breakpoints([first := Breakpoint("pre_model_call")])
    agent = desk(None, breakpoints=live)
    paused = driver.invoke(agent, "go").checkpoint
    assert stops_of(paused) == ["pre_model_call"]
    live.remove(first)
    live.add(Breakpoint("post_run"))
    live.add(Breakpoint("pre_agent_run"))  # which lies behind it
    result = driver.resume(agent, paused)
    assert stops_of(result) == ["post_run"]
    live.clear()
    assert driver.resume(agent, result.checkpoint).status == "completed"

    def turn_off(here: BreakpointContext) -> bool:
        live.clear()
        return False

    live.replace([Breakpoint("pre_agent_run", when=turn_off), Breakpoint("tool")])
    assert driver.invoke(agent, "go").status == "completed"


# Going on


def test_no_answer_lets_breakpoints_go_on_and_approvals_never(driver: Driver, store: Store) -> None:
    paid: list[int] = []
    agent = desk(
        store,
        [call("pay", {"n": 1}), call("pay", {"n": 500})],
        "done",
        paid=paid,
        requires_approval=lambda args: args["n"] > 9,
    )
    paused = driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")]).checkpoint
    assert [(item.why, item.point) for item in paused.pending] == [
        ("breakpoint", "pre_tool_call"),
        ("approval", "pre_tool_call"),
    ]
    asked = driver.resume(agent, paused)
    assert (asked.status, [item.why for item in asked.checkpoint.pending], paid) == ("suspended", ["approval"], [1])
    with pytest.raises(NothingDecided):
        driver.resume(agent, asked.checkpoint)
    assert (driver.resume(agent, asked.checkpoint, approved=True).output, paid) == ("done", [1, 500])


def test_the_handler_is_not_asked_where_a_run_stops(driver: Driver) -> None:
    asked: list[str] = []

    def handler(name: str, args: dict[str, Any]) -> bool:
        asked.append(name)
        return True

    agent = desk(None, requires_approval=True, on_approval_required=driver.function(handler))
    assert driver.invoke(agent, "go").status == "completed"
    assert asked == ["pay"]
    paused = driver.invoke(agent, "go", breakpoints=[Breakpoint("approval", label="look")]).checkpoint
    [item] = paused.pending
    assert (item.why, item.point, item.label, asked) == ("approval", "pre_tool_call", "look", ["pay"])
    with pytest.raises(NothingDecided):
        driver.resume(agent, paused)
    assert driver.resume(agent, paused, approved=True).status == "completed"
    assert asked == ["pay"]


def test_another_agent_object_without_breakpoints_goes_on(driver: Driver, store: Store) -> None:
    paused = driver.invoke(desk(store, breakpoints=[Breakpoint("tool"), Breakpoint("post_run")]), "go").checkpoint
    assert driver.resume(desk(store), paused.id).output == "done"


def test_a_breakpoint_that_is_armed_on_resume_does_not_fire_where_the_run_has_been(
    driver: Driver, store: Store
) -> None:
    paused = driver.invoke(desk(store, breakpoints=[Breakpoint("pre_agent_run", label="a")]), "go").checkpoint
    every = [Breakpoint(point, label="b") for point in ("pre_input_guardrails", "pre_agent_run", "pre_model_call")]
    result = driver.resume(desk(store, breakpoints=every), paused)
    assert [(item.point, item.label) for item in result.checkpoint.pending] == [("pre_model_call", "b")]


def test_of_many_that_let_a_run_go_on_one_does(store: Store) -> None:
    paid: list[int] = []
    paused = desk(store, breakpoints=[Breakpoint("tool")]).invoke("go").checkpoint
    start, said = threading.Barrier(32), []

    def decide() -> None:
        agent = desk(store, paid=paid)
        start.wait()
        try:
            said.append(agent.resume(paused, decisions={paused.pending[0].id: Approve()}).status)
        except CheckpointAlreadyResumed as error:
            said.append(error.pending_id)

    threads = [threading.Thread(target=decide) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (said.count("completed"), said.count(paused.pending[0].id), paid) == (1, 31, [7])


def test_of_many_that_answer_a_stop_of_the_run_one_counts(store: Store) -> None:
    paused = desk(store, breakpoints=[Breakpoint("pre_agent_run")]).invoke("go").checkpoint
    start, said = threading.Barrier(32), []
    answers: list[Any] = [Approve(), Skip(), Reject(), Approve(args={"input": "stay"})] * 8

    def decide(answer: Any) -> None:
        agent = desk(store)
        start.wait()
        try:
            said.append(agent.resume(paused, decisions={paused.pending[0].id: answer}).status)
        except CheckpointAlreadyResumed:
            said.append("late")

    threads = [threading.Thread(target=decide, args=(answer,)) for answer in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said.count("late") == 31


def test_limits_count_no_stops(driver: Driver) -> None:
    limits = Limits(turns=2, tool_calls=1)
    agent = desk(None, limits=limits)
    result, stood = walk(driver, agent, breakpoints=[Breakpoint(point) for point in OF_AGENTS])
    assert (len(stood), result.status, result.checkpoint.turn, result.checkpoint.called) == (8, "completed", 2, 1)
    with pytest.raises(LimitExceeded):
        walk(driver, desk(None, limits=Limits(turns=1)), breakpoints=[Breakpoint("*")])


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
        ("post_run", {"input": "x"}, "nothing: the model has seen the input"),
        ("pre_output_guardrails", {"output": "x"}, "nothing: the model has seen the input"),
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


def nested(inner: Agent[Any, Any], **options: Any) -> Graph[Any, Any]:
    """A graph with an agent in its one node."""
    return (
        StateGraph(Case, name="office")
        .add_node("desk", inner, input=lambda state: "go", output=lambda said: {"log": [said]})
        .add_edge(START, "desk")
        .add_edge("desk", END)
        .compile(**options)
    )


class Case(BaseModel):
    """What a graph works on."""

    n: int = 0
    log: Annotated[list[str], append] = []


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


# Graphs


def works(**options: Any) -> Graph[Any, Case]:
    """Three nodes, one after the other."""

    def node(name: str) -> Callable[[Case], dict[str, Any]]:
        return lambda state: {"log": [f"{name} {state.n}"]}

    graph = StateGraph(Case, name="works")
    for name in "abc":
        graph.add_node(name, node(name))
    return graph.add_edge(START, "a").add_edge("a", "b").add_edge("b", "c").add_edge("c", END).compile(**options)


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
        rejected = driver.resume(graph, driver.fork(graph, paused.id), approved=False)
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
