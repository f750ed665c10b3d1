"""Breakpoints: a run stops where it was told to, shows what there is, and goes on as it was told, on every driver and store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from drivers import PATIENCE, Driver, outline
from stop_scenes import EVERY, OF_AGENTS, desk, stops_of, walk

from phronomy import (
    Agent,
    Approve,
    Breakpoint,
    BreakpointContext,
    Breakpoints,
    CheckpointAlreadyResumed,
    ConfigurationError,
    LimitExceeded,
    Limits,
    MemoryStore,
    NothingDecided,
    Reject,
    Skip,
    Store,
    match_breakpoint,
    tool,
)
from phronomy.stops.expressions import Expression
from phronomy.testing import ScriptedModel, call


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
        (Breakpoint("approval"), ["breakpoint"]),
        (Breakpoint("*"), ["breakpoint", "breakpoint"]),
        (Breakpoint("tool", tools=["ship"]), ["breakpoint"]),
        (Breakpoint("approval", tools=["ship"]), []),
        (Breakpoint("tool", agents=["desk"], tools=["pay", "ship"]), ["breakpoint", "breakpoint"]),
    ],
    ids=str,
)
def test_the_shorthands(driver: Driver, breakpoint: Breakpoint, stood: list[str]) -> None:
    """An approval is asked for whether a breakpoint lies there or not: it only stops the run before the handler answers."""

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
    assert (seen, result.output) == (stood, "done")


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
        assert go_on.wait(PATIENCE)
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
    assert at_work.wait(PATIENCE)
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
        assert (here.agent, here.input, here.path, here.thread_id) == ("desk", "go", "", "t")
        assert [*here.state] == ["messages", "usage", "calls", "handoffs"]
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


def test_several_expressions_look_at_the_same_call(driver: Driver, store: Store) -> None:
    """None of them sees what another made of it, and the first that holds counts."""
    stops = [
        Breakpoint("pre_tool_call", when="args['n'] > 9", label="large"),
        Breakpoint("pre_tool_call", when="args['n'] == 7 and tool == 'pay'", label="seven"),
        Breakpoint("pre_tool_call", when="args['n'] > 0", label="any"),
    ]
    asked = driver.invoke(desk(store, breakpoints=stops), "go")
    assert [(item.point, item.label) for item in asked.checkpoint.pending] == [("pre_tool_call", "seven")]


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
    """U1."""
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
    """U1."""
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
