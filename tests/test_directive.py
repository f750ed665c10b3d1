"""What Directive's breakpoints and approvals do, and get wrong, by the number of the behaviour (D1 to D30), of the weakness (W1 to
W16) or of the acceptance scenario (DIR-A01): the same is had here, or better, with each driver, streamed and not, on every store.

Its checkpoints and their store are in `test_directive_store.py`.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import logging
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE, Driver, outline, run
from stop_scenes import EVERY, Arrivals, Case, desk, elsewhere, holding, nested, stops_of, walk, works

from phronomy import (
    Agent,
    ApprovalExpired,
    Approve,
    Breakpoint,
    BreakpointContext,
    Breakpoints,
    BreakpointTimeout,
    CheckpointAlreadyResumed,
    ConfigurationError,
    GuardrailFailed,
    GuardrailRefused,
    Hold,
    Hooks,
    LimitExceeded,
    Limits,
    MemoryStore,
    Reject,
    RunBusy,
    Skip,
    SQLiteStore,
    Store,
    ThreadBusy,
    UnknownPending,
    match_breakpoint,
    tool,
)
from phronomy.graph import END, START, StateGraph
from phronomy.guardrails.guardrail import MaxLength, Refuse, Transform, guardrail
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.unmeasured

ROWS = (
    *(f"D{number}" for number in range(1, 31)),
    *(f"W{number}" for number in (*range(1, 12), 14, 15, 16)),
    *(f"DIR-A{number:02}" for number in (1, 2, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15, 18, 24)),
)
LEFT_OUT = {
    "D18": "what is on the timeline is in the tests of the timeline",
}
"""The rows without a test, and why."""

FILES = ("test_directive.py", "test_handoffs_stops.py", "test_patterns_stops.py", "test_directive_teams.py")
"""Where the tests of the rows are."""

RUN: list[Any] = ["pre_input_guardrails", "pre_agent_run", "pre_output_guardrails", "post_run"]
"""The four points of a run that the original has for one agent."""


def test_every_row_has_a_test_or_a_reason() -> None:
    """A row is met by a test whose docstring begins with its number."""
    told: set[str] = set()
    for file in FILES:
        for node in ast.parse(Path(__file__).with_name(file).read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                told |= set(re.findall(r"\b(?:DIR-A|D|W)\d+\b", (ast.get_docstring(node) or "").partition(":")[0]))
    assert told & set(ROWS) == set(ROWS) - set(LEFT_OUT)


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


def kinds(hold: Hold) -> list[str]:
    return [each.how for each in hold.settled]


# The points


def test_the_four_points(driver: Driver, store: Store) -> None:
    """D1, DIR-A01: breakpoints at all four, each let go on at once, are hit four times, in order."""
    hits: list[str] = []
    hold = Hold(on_breakpoint=lambda hit: hits.append(hit.type) or Approve())
    result = driver.invoke(desk(store), "go", breakpoints=[Breakpoint(point) for point in reversed(RUN)], hold=hold)
    assert (hits, result.output) == (RUN, "done")
    result, stood = walk(driver, desk(store), breakpoints=[Breakpoint(point) for point in RUN])
    assert (stood, result.output) == (RUN, "done")


def test_what_a_breakpoint_is(driver: Driver) -> None:
    """D2: a type, perhaps a predicate and a label; without a predicate it always stops the run."""
    agent = desk(None)
    always, never = Breakpoint("post_run", label="end"), Breakpoint("post_run", when=lambda here: False)
    for _ in range(2):
        paused = driver.invoke(agent, "go", breakpoints=[never, always]).checkpoint
        assert [item.label for item in paused.pending] == ["end"]
    assert driver.invoke(agent, "go", breakpoints=[never]).output == "done"


def test_the_first_match(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """D3, D4: the first that matches, in the order they are given; one that raises is no match, and that is told."""

    def broken(here: BreakpointContext) -> bool:
        raise LookupError("secret")

    stops = [Breakpoint("post_run", broken, "a"), Breakpoint("post_run", label="b"), Breakpoint("post_run", label="c")]
    result, stood = walk(driver, desk(None), breakpoints=stops)
    assert (stood, result.output) == (["post_run"], "done")
    [told] = {record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR}
    assert "when raised LookupError" in told
    assert "secret" not in told
    here = BreakpointContext(type="post_run", agent="desk")
    assert match_breakpoint(stops, here) is stops[1]
    assert match_breakpoint([], here) is match_breakpoint([Breakpoint("tool")], here) is None


def test_what_a_predicate_is_told(driver: Driver) -> None:
    """D5: who, what, where, and the input as it stands after earlier edits."""
    seen: list[BreakpointContext] = []

    def look(here: BreakpointContext) -> bool:
        seen.append(here)
        return False

    agent = desk(None)
    stops = [Breakpoint("pre_input_guardrails"), Breakpoint("post_run", when=look)]
    paused = driver.invoke(agent, "go", breakpoints=stops).checkpoint
    edit = {paused.pending[0].id: Approve(args={"input": "stay"})}
    assert driver.resume(agent, paused, decisions=edit, breakpoints=stops).output == "done"
    assert {(here.type, here.agent, here.input, here.pattern, here.handoff) for here in seen} == {
        ("post_run", "desk", "stay", None, None)
    }
    graph = works()
    driver.invoke(graph, {"n": 3}, breakpoints=[Breakpoint("pre_node", when=look, nodes=["b"])])
    assert seen[-1].state == {"n": 3, "log": ["a 3"]}


def test_what_a_stop_says(driver: Driver) -> None:
    """D6: id, type, agent, input, label, when it was asked; ids are unique beyond the process."""
    agent = desk(None)
    before = datetime.now(UTC)
    stops = [
        driver.invoke(agent, "go", breakpoints=[Breakpoint("pre_agent_run", label="look")]).checkpoint for _ in range(3)
    ]
    [hit] = agent.stopped_at(stops[0])
    assert (hit.type, hit.agent, hit.input, hit.label, hit.before) == ("pre_agent_run", "desk", "go", "look", True)
    assert before <= hit.requested_at <= datetime.now(UTC)
    ids = [agent.stopped_at(each)[0].id for each in stops]
    assert len(set(ids)) == 3
    assert all(re.fullmatch(r"pend_[0-9a-f]{24}", id) for id in ids)


def test_who_is_told_first(driver: Driver, store: Store) -> None:
    """D7: it is stored and listed, then hooks are told, then the handler is asked; an answer counts from the first on."""
    told: list[str] = []

    class Told(Hooks):
        def on_event(self, event: Any) -> None:
            if event.type == "approval_requested":
                assert [row.pending_id for row in store.pending_rows()] == [event.pending.id]
                assert [hit.id for hit in hold.pending] == [event.pending.id]
                told.append("hook")

    def handler(hit: Any) -> Approve:
        assert hit in hold.pending
        told.append("handler")
        return Approve()

    hold = Hold(on_breakpoint=handler)
    assert (
        driver.invoke(desk(store, hooks=[Told()]), "go", breakpoints=[Breakpoint("tool")], hold=hold).output == "done"
    )
    assert told == ["hook", "handler"]


def test_who_looks_on_changes_nothing(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """D8: what a hook or a handler raises is told, and the run stays where it is."""

    class Broken(Hooks):
        def on_event(self, event: Any) -> None:
            raise LookupError

    arrivals = Arrivals()

    def handler(hit: Any) -> None:
        arrivals(hit)
        raise LookupError

    hold = Hold(on_breakpoint=handler, timeout=PATIENCE)
    agent = desk(None, hooks=[Broken()])
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")], hold=hold)) as waits:
        hit = arrivals.next()
        assert (hold.pending, waits.done()) == ([hit], False)
        hold.resume_breakpoint(hit.id)
        assert waits.result(PATIENCE).output == "done"
    assert any("the handler of breakpoint" in record.getMessage() for record in caplog.records)


def test_another_input(driver: Driver, store: Store) -> None:
    """D9, D24, DIR-A02: an input that stands in, empty or not, is what guardrails and the model see, and nothing else."""
    seen: list[Any] = []

    @guardrail
    def look(value: Any) -> None:
        seen.append(value)

    for given in ("stay", ""):
        seen.clear()
        hold, arrivals = holding()
        model = ScriptedModel.by_turn(["done"])
        agent = Agent(name="desk", model=model, store=store, input_guardrails=[look])
        stop = [Breakpoint("pre_input_guardrails")]
        with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=stop, hold=hold)) as waits:  # noqa: B023
            hit = arrivals.next()
            assert (hold.pending, hold.settled) == ([hit], [])
            hold.resume_breakpoint(hit.id, input=given)
            result = waits.result(PATIENCE)
        assert (hold.pending, kinds(hold)) == ([], ["approved"])
        assert (seen, [message.text for message in model.requests[0].messages]) == ([given], [given])
        assert result.checkpoint.original_input == "go"


def test_a_skip_before_the_agent(driver: Driver, store: Store) -> None:
    """D10, W9: no output, nothing called, no tokens, no later stop; and the run has ended, so that it can be checkpointed."""
    model = ScriptedModel.by_turn([call("pay", {"n": 7}), "done"])
    agent = desk(store, model=model)
    stops = [Breakpoint("pre_agent_run"), Breakpoint("post_run")]
    paused = driver.invoke(agent, "go", breakpoints=stops).checkpoint
    result = driver.resume(agent, paused, decisions={paused.pending[0].id: Skip()}, breakpoints=stops)
    assert (result.status, result.output, result.usage.total_tokens, model.requests) == ("skipped", None, 0, [])
    assert agent.checkpoint(result.checkpoint, label="kept").label == "kept"


@pytest.mark.parametrize("point", ["pre_input_guardrails", "pre_agent_run", "pre_model_call"])
def test_a_run_that_is_skipped_at_its_input_leaves_no_message(driver: Driver, store: Store, point: Any) -> None:
    """D10: no messages; the next run of the thread is not asked what was skipped, and the record still says what it was."""
    looked: list[object] = []

    def look(value: object) -> None:
        looked.append(value)

    model = ScriptedModel(["one", "two"])
    agent = Agent(name="desk", model=model, store=store, input_guardrails=[guardrail(driver.function(look))])
    driver.invoke(agent, "first", thread_id="t")
    paused = driver.invoke(agent, "wrong", thread_id="t", breakpoints=[Breakpoint(point)]).checkpoint
    skipped = driver.resume(agent, paused, decisions={paused.pending[0].id: Skip()})
    assert (skipped.status, [said.text for said in skipped.messages]) == ("skipped", ["first", "one"])
    assert (skipped.checkpoint.input, store.load(skipped.checkpoint.id)) == ("wrong", skipped.checkpoint)
    assert driver.invoke(agent, "second", thread_id="t").output == "two"
    assert [said.text for said in model.requests[-1].messages] == ["first", "one", "second"]


def test_a_condition_sees_the_state_of_an_agent(driver: Driver, store: Store) -> None:
    """D5: what was said, what it cost and what is open; it is a copy, and the state of a graph stays what it was."""
    seen: list[Any] = []

    def look(context: BreakpointContext) -> bool:
        seen.append(context.state)
        context.state["messages"].clear()
        return False

    agent = desk(store, model=ScriptedModel.by_turn([call("pay", {"n": 7}), "done"]))
    stops = [
        Breakpoint("pre_tool_call", when=look),
        Breakpoint("post_run", when="len(state['messages']) == 4 and state['usage']['requests'] == 2"),
    ]
    paused = driver.invoke(agent, "go", breakpoints=stops).checkpoint
    (state,) = seen
    assert state["calls"] == [{"name": "pay"}]
    assert (state["usage"]["requests"], state["handoffs"], state["messages"]) == (1, [], [])
    assert [hit.type for hit in agent.stopped_at(paused)] == ["post_run"]
    assert [said.role for said in paused.messages] == ["user", "assistant", "tool", "assistant"]


def test_a_cancelled_stop(driver: Driver, store: Store) -> None:
    """D11, DIR-A04: cancelled, with the reason; nothing is retried, nothing goes elsewhere."""
    ran: list[str] = []

    def backup() -> str:
        """The other way."""
        ran.append("backup")
        return ""

    def work() -> str:
        """Work."""
        ran.append("work")
        return ""

    hard = tool(driver.function(work), retries=3, idempotent=True, fallback=(tool(driver.function(backup)),))
    model = ScriptedModel.by_turn([call("work"), "done"])
    agent = Agent(name="desk", model=model, tools=[hard], store=store)
    hold, arrivals = holding()
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")], hold=hold)) as waits:
        hold.cancel_breakpoint(arrivals.next().id, "not today")
        result = waits.result(PATIENCE)
    ending = result.checkpoint.ending
    assert (result.status, ending and ending.reason, ran, len(model.requests)) == ("cancelled", "not today", [], 1)
    assert (kinds(hold), store.pending_rows()) == (["cancelled"], [])


def test_time_runs_out(driver: Driver, store: Store) -> None:
    """D12, W2, DIR-A05: a typed timeout that names the id, after five minutes or as told, and nothing is left pending."""
    assert Hold().timeout == 300.0
    hold = Hold(timeout=0.05)
    with pytest.raises(BreakpointTimeout) as late:
        driver.invoke(desk(store, paid=(paid := [])), "go", breakpoints=[Breakpoint("tool")], hold=hold)
    [settled] = hold.settled
    assert late.value.pending_ids == (settled.hit.id,)
    assert settled.hit.id in str(late.value)
    assert late.value.result is not None
    ending = late.value.result.checkpoint.ending
    assert ending is not None
    assert ending.reason == "nobody answered a breakpoint within 0.05 s"
    assert (settled.how, hold.pending, store.pending_rows(), paid) == ("expired", [], [], [])


def test_the_caller_gives_up(store: Store) -> None:
    """D13, W3: a task that is cancelled while it waits is let go at once, and the run can be decided later."""
    hold, arrivals = holding(timeout=None)
    agent = desk(store, paid=(paid := []))

    async def main() -> None:
        task = asyncio.ensure_future(agent.ainvoke("go", breakpoints=[Breakpoint("tool")], hold=hold))
        hit = await asyncio.to_thread(arrivals.next)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (hold.pending, kinds(hold)) == ([], ["left"])
        assert (await agent.aresume(hit.checkpoint_id)).output == "done"

    run(main())
    assert paid == [7]


def test_history_is_bounded() -> None:
    """D14, DIR-A11: of 250 that were settled the newest 200 are kept; what waits is not bounded."""
    assert inspect.signature(Hold).parameters["history"].default == 200
    hold = Hold(on_breakpoint=lambda hit: Approve())
    agent = desk(None, *[call("pay", {"n": n}) for n in range(249)], "done", limits=Limits(turns=None))
    agent.invoke("go", breakpoints=[Breakpoint("tool"), Breakpoint("post_run")], hold=hold)
    assert [each.hit.args.get("n") for each in hold.settled] == [*range(50, 249), None]
    waits, arrivals = holding()
    agent = desk(None, [call("pay", {"n": n}) for n in range(210)], "done")
    with elsewhere(lambda: agent.invoke("go", breakpoints=[Breakpoint("tool")], hold=waits)) as done:
        first = arrivals.next()
        assert len(waits.pending) == 210
        agent.cancel(first.branch_id)
        assert done.result(PATIENCE).status == "cancelled"


def test_two_at_once(driver: Driver, store: Store) -> None:
    """D15, DIR-A08: two agents stand at stops; one goes on, the other is still listed, in a list that is a copy."""
    hold, arrivals = holding()
    one, other = desk(store, name="one"), desk(store, name="other")
    stop = [Breakpoint("pre_agent_run")]
    with (
        elsewhere(lambda: driver.invoke(one, "go", breakpoints=stop, hold=hold)) as first,
        elsewhere(lambda: driver.invoke(other, "go", breakpoints=stop, hold=hold)) as second,
    ):
        hits = {hit.agent: hit for hit in (arrivals.next(), arrivals.next())}
        hold.pending.clear()
        hold.resume_breakpoint(hits["one"].id)
        assert first.result(PATIENCE).output == "done"
        assert ([hit.agent for hit in hold.pending], second.done()) == (["other"], False)
        hold.resume_breakpoint(hits["other"].id)
        assert second.result(PATIENCE).output == "done"


def test_what_is_not_there_cannot_be_answered(driver: Driver, store: Store) -> None:
    """D16, D17, DIR-A09: an unknown or settled id is a typed error, histories stay, and the first answer counts."""
    hold, arrivals = holding()
    agent = desk(store, paid=(paid := []))
    stops = [Breakpoint("tool"), Breakpoint("post_run")]
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=stops, hold=hold)) as waits:
        first = arrivals.next()
        hold.resume_breakpoint(first.id, args={"n": 3})
        last = arrivals.next()
        for again in (
            lambda: hold.resume_breakpoint(first.id, args={"n": 4}),
            lambda: hold.cancel_breakpoint(first.id),
            lambda: hold.resume_breakpoint("nothing"),
        ):
            with pytest.raises(UnknownPending):
                again()
        with pytest.raises(CheckpointAlreadyResumed):
            agent.resume(first.checkpoint_id, decisions={first.id: Reject()})
        assert (kinds(hold), hold.pending) == (["approved"], [last])
        hold.resume_breakpoint(last.id)
        assert waits.result(PATIENCE).output == "done"
    assert paid == [3]


def test_no_breakpoints(driver: Driver) -> None:
    """D19: an empty list is an ordinary run."""
    straight = driver.invoke(desk(None), "go")
    for none in ([], (), Breakpoints()):
        result = driver.invoke(desk(None, breakpoints=none), "go", hold=Hold())
        assert (result.output, outline(result)) == ("done", outline(straight))
        assert result.checkpoint.step == straight.checkpoint.step


def test_the_end(driver: Driver, store: Store) -> None:
    """D22: the last stop lies before the end is recorded: to skip it gives no output, and the record says so as well."""
    agent = desk(store)
    stop = [Breakpoint("post_run")]
    paused = driver.invoke(agent, "go", thread_id="t", breakpoints=stop).checkpoint
    [hit] = agent.stopped_at(paused)
    assert (paused.status, hit.output, hit.before) == ("suspended", "done", False)
    result = driver.resume(agent, paused, decisions={paused.pending[0].id: Skip()})
    assert (result.status, result.output, result.checkpoint.output) == ("skipped", None, None)
    assert [branch.status for branch in store.branches()] == ["skipped"]


def test_a_skip_never_goes_round_guardrails(driver: Driver, store: Store) -> None:
    """D23: what output guardrails have not seen is given to nobody."""
    agent = desk(store, "a secret", output_guardrails=[MaxLength(1)])
    stop = [Breakpoint("pre_output_guardrails")]
    paused = driver.invoke(agent, "go", breakpoints=stop).checkpoint
    result = driver.resume(agent, paused, decisions={paused.pending[0].id: Skip()})
    assert (result.status, result.output, outline(result)) == ("skipped", None, ["user: go"])
    paused = driver.invoke(agent, "go", breakpoints=stop).checkpoint
    with pytest.raises(GuardrailRefused):
        driver.resume(agent, paused)


# Approvals


def test_nothing_is_approved_unasked(driver: Driver, store: Store) -> None:
    """D25: without a handler a call that needs an approval waits for one; nothing approves it by default."""
    agent = desk(store, requires_approval=True, paid=(paid := []))
    asked = driver.invoke(agent, "go")
    assert ([item.why for item in asked.checkpoint.pending], paid) == (["approval"], [])
    with pytest.raises(ConfigurationError):
        driver.invoke(desk(store, on_approval_required="yes"), "go")


def test_guardrails_come_before_the_approval(driver: Driver, store: Store) -> None:
    """D26: guardrails look at a call first; what they refuse is asked of nobody, and a stream tells of request and decision."""
    agent = desk(
        store, call("pay", {"n": 12345}), call("pay", {"n": 1}), "done", requires_approval=True,
        tool_guardrails=[MaxLength(9)], paid=(paid := []),
    )  # fmt: skip
    asked = driver.invoke(agent, "go")
    [item] = asked.checkpoint.pending
    assert (item.args, paid) == ({"n": 1}, [])
    assert outline(asked)[2].startswith("tool (rejected): A guardrail refused this call")
    types = [event.type for event in agent.stream(asked.checkpoint, approved=True)]
    assert types.index("decided") < types.index("tool_call_started")
    assert paid == [1]


def test_an_approval_lapses_or_is_rejected(driver: Driver) -> None:
    """D27: too late is typed, so is an unknown id, and a rejection carries its reason to the model."""
    now = [1_900_000_000.0]
    store = MemoryStore(clock=lambda: now[0])
    agent = desk(store, requires_approval=True, approval_timeout=300.0, paid=(paid := []))
    asked = driver.invoke(agent, "go").checkpoint
    with pytest.raises(UnknownPending):
        driver.resume(agent, asked, decisions={"nothing": Approve()})
    assert "Reason: no" in outline(driver.resume(agent, asked, approved=False, reason="no"))[2]
    asked = driver.invoke(agent, "go").checkpoint
    now[0] += 301
    with pytest.raises(ApprovalExpired):
        driver.resume(agent, asked, approved=True)
    assert paid == []


def test_an_approval_is_of_one_occurrence(driver: Driver, store: Store) -> None:
    """D28, W5: the model gives the same call id again and again; each is asked for under an id of its own, in each run."""
    same = call("pay", {"n": 7}, id="tool-X")
    agent = desk(store, same, same, "done", requires_approval=True, paid=(paid := []))
    first, other = driver.invoke(agent, "go").checkpoint, driver.invoke(agent, "go").checkpoint
    assert first.pending[0].id != other.pending[0].id
    second = driver.resume(agent, first, approved=True).checkpoint
    assert (second.status, paid) == ("suspended", [7])
    assert second.pending[0].id not in (first.pending[0].id, other.pending[0].id)
    with pytest.raises(UnknownPending):
        driver.resume(agent, other, decisions={first.pending[0].id: Approve()})
    assert driver.resume(agent, second, approved=False).output == "done"
    assert (store.load(other.id).status, paid) == ("suspended", [7])


def test_guardrails(driver: Driver, store: Store) -> None:
    """D29: an error is tried again, then fails closed; an input is transformed; a refusal is typed; a call's list replaces all."""
    tries: list[int] = []

    @guardrail(retries=2, retry_wait=0.0)
    def broken(value: Any) -> None:
        tries.append(1)
        raise ConnectionError

    @guardrail
    def lower(value: Any) -> Any:
        return Transform(value.lower())

    @guardrail(name="no-go")
    def refuse(value: Any) -> Any:
        return Refuse("That cannot be asked.", code="forbidden")

    model = ScriptedModel.by_turn(["done"])
    agent = Agent(name="desk", model=model, store=store, input_guardrails=[broken])
    with pytest.raises(GuardrailFailed):
        driver.invoke(agent, "GO")
    assert (len(tries), model.requests) == (3, [])
    assert driver.invoke(agent, "GO", input_guardrails=[lower]).output == "done"
    assert model.requests[-1].messages[0].text == "go"
    assert driver.invoke(agent, "GO", input_guardrails=[]).output == "done"
    with pytest.raises(GuardrailRefused) as refused:
        driver.invoke(agent, "GO", input_guardrails=[refuse])
    error = refused.value
    assert (error.stage, error.guardrail, error.code, error.user_message) == (
        "input",
        "no-go",
        "forbidden",
        "That cannot be asked.",
    )


def test_a_budget(driver: Driver, store: Store) -> None:
    """D30: a run that is over its limit stops, typed, before it spends more, and goes on once it may."""
    for wrong in (0, -1, 0.5):
        with pytest.raises(ValueError, match="tokens"):
            Limits(tokens=wrong)
    agent = desk(store, limits=Limits(turns=1))
    with pytest.raises(LimitExceeded) as over:
        driver.invoke(agent, "go")
    assert over.value.checkpoint is not None
    assert driver.resume(desk(store, limits=Limits(turns=2)), over.value.checkpoint).output == "done"


def test_a_rejection_is_asked_for_once(driver: Driver, store: Store) -> None:
    """W4, DIR-A18: with retries and a fallback, a human who rejects is asked exactly once, and nothing runs."""
    asked: list[str] = []

    def work() -> str:
        """Work."""
        raise AssertionError("it was rejected")

    def handler(name: str, args: dict[str, Any]) -> Reject:
        asked.append(name)
        return Reject(reason="no")

    hard = tool(
        driver.function(work),
        requires_approval=True,
        retries=3,
        idempotent=True,
        fallback=(tool(driver.function(work), name="backup"),),
    )
    model = ScriptedModel.by_turn([call("work"), "done"])
    agent = Agent(name="desk", model=model, tools=[hard], store=store, on_approval_required=handler)
    assert (driver.invoke(agent, "go").output, asked) == ("done", ["work"])
    agent = Agent(name="desk", model=model, tools=[hard], store=store, breakpoints=[Breakpoint("approval")])
    paused = driver.invoke(agent, "go").checkpoint
    assert driver.resume(agent, paused, approved=False).output == "done"


# Weaknesses


def test_an_answer_from_within_the_notification(driver: Driver, store: Store) -> None:
    """W1, DIR-A07: whoever is told of a stop answers it there and then, and the run goes on at once."""

    def handler(hit: Any) -> None:
        hold.resume_breakpoint(hit.id)

    hold = Hold(on_breakpoint=handler, timeout=PATIENCE)
    agent = desk(store, paid=(paid := []))
    assert driver.invoke(agent, "go", breakpoints=[Breakpoint("*"), Breakpoint("post_run")], hold=hold).output == "done"
    assert (paid, kinds(hold)) == ([7], ["approved", "approved"])


def test_filters(driver: Driver, store: Store) -> None:
    """W6, DIR-A12: a breakpoint for agent B stops B once and A never; one for what nobody is called is refused."""
    stops = Breakpoints([Breakpoint("pre_agent_run", agents=["b"])])
    inner = desk(None, name="b")
    graph = nested(inner, store=store)
    result, stood = walk(driver, graph, {}, breakpoints=stops)
    assert (stood, result.output.log) == (["pre_agent_run"], ["done"])
    other = nested(desk(None, name="a"), store=store)
    with pytest.raises(ConfigurationError, match="no agents named b"):
        driver.invoke(other, {}, breakpoints=[Breakpoint("pre_agent_run", agents=["b"])])
    with pytest.raises(ConfigurationError, match="no patterns named p"):
        driver.invoke(graph, {}, breakpoints=[Breakpoint("pre_agent_run", patterns=["p"])])


def test_streams(store: Store) -> None:
    """W7, DIR-A13: the same stops, streamed or not, sync or async."""
    points = ["pre_input_guardrails", "pre_agent_run", "pre_model_call", "pre_tool_call", "post_tool_call", *RUN[2:]]
    stood = [walk(driver, desk(store), breakpoints=[Breakpoint(point) for point in points])[1] for driver in EVERY]
    assert len(stood[0]) == 8
    assert stood[1:] == stood[:1] * 3


def test_work_inside_work_stops_too(driver: Driver, store: Store) -> None:
    """W8: in an agent that is a node, the same stops are come to, and none of them breaks what is around it."""
    points: list[Any] = ["pre_agent_run", "pre_tool_call", "post_tool_call", "pre_output_guardrails"]
    stops = [Breakpoint("pre_node"), *(Breakpoint(point) for point in points)]
    result, stood = walk(driver, nested(desk(None), store=store), {}, breakpoints=stops)
    assert (stood, result.output.log) == (["pre_node", *points], ["done"])


def test_a_pause_is_no_work(driver: Driver, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """W10: no time of the run, and no place of another's, is used while one waits."""
    hours = [0]
    monkeypatch.setattr("phronomy.engine.clock.monotonic", lambda: time.monotonic() + 3600 * hours[0])
    hold, arrivals = holding()
    agent = desk(store, limits=Limits(seconds=30), max_parallel=1)
    begun = datetime.now(UTC)
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")], hold=hold)) as waits:
        hit = arrivals.next()
        second = driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")])
        assert stops_of(second) == ["pre_tool_call"]
        hours[0] += 1
        hold.resume_breakpoint(hit.id)
        result = waits.result(PATIENCE)
    assert result.output == "done"
    assert result.checkpoint.elapsed <= (datetime.now(UTC) - begun).total_seconds() * 1000


def test_a_pause_is_a_checkpoint(driver: Driver, tmp_path: Path) -> None:
    """W11, W15: a run that stands at a stop is in the store; another process opens it, decides once, and the record says who."""
    with SQLiteStore(tmp_path / "runs.db") as store:
        id = driver.invoke(desk(store), "go", breakpoints=[Breakpoint("tool")]).checkpoint.id
    with SQLiteStore(tmp_path / "runs.db") as store:
        [row] = store.pending_rows()
        paused = store.load(id)
        agent = desk(store, paid=(paid := []))
        result = driver.resume(agent, paused, decisions={row.pending_id: Approve()}, by="ann", channel="mail")
        assert (result.output, paid) == ("done", [7])
        with pytest.raises(CheckpointAlreadyResumed) as late:
            driver.resume(agent, paused, decisions={row.pending_id: Approve()}, by="bob")
        assert late.value.decision is not None
        assert late.value.decision.by is not None
        assert (late.value.decision.by.id, late.value.decision.channel, paid) == ("ann", "mail", [7])


def test_a_new_message_for_a_paused_run(driver: Driver, store: Store) -> None:
    """W14: a paused run does not go on by itself; a new message is refused, typed, or takes its place, as the caller says."""
    agent = desk(store, "done")
    paused = driver.invoke(agent, "go", thread_id="t", breakpoints=[Breakpoint("pre_agent_run")]).checkpoint
    with pytest.raises(ThreadBusy) as busy:
        driver.invoke(agent, "go on", thread_id="t")
    assert busy.value.pending_ids == (paused.pending[0].id,)
    assert driver.invoke(agent, "go on", thread_id="t", on_pending="supersede").output == "done"
    with pytest.raises(CheckpointAlreadyResumed):
        driver.resume(agent, paused)


def test_a_checkpoint_needs_no_debug_mode(driver: Driver, store: Store) -> None:
    """W16: it is there without being asked for; at work it is refused, and nothing is half done."""
    hold, arrivals = holding()
    agent = desk(store)
    with elsewhere(lambda: driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")], hold=hold)) as waits:
        hit = arrivals.next()
        for at_work in (lambda: agent.checkpoint(hit.branch_id), lambda: agent.restore(hit.checkpoint_id)):
            with pytest.raises(RunBusy):
                at_work()
        assert len(store.branches()) == 1
        hold.resume_breakpoint(hit.id)
        assert waits.result(PATIENCE).output == "done"
    restored = agent.restore(hit.checkpoint_id)
    assert stops_of(restored) == ["pre_tool_call"]
    assert driver.resume(agent, restored).output == "done"


def test_what_was_under_way_is_begun_again_and_what_waited_goes_on(driver: Driver, store: Store) -> None:
    """DIR-A24: the worker is lost while x runs and y waits: x is run again, y completes, and what follows sees both."""

    class Crash(BaseException):
        pass

    crashes = [True]

    def x(state: Case) -> dict[str, Any]:
        if crashes and crashes.pop():
            raise Crash
        return {"log": ["x"]}

    graph = (
        StateGraph(Case)
        .add_node("x", driver.function(x), idempotent=True)
        .add_node("y", driver.function(lambda state: {"log": ["y"]}))
        .add_node("merge", driver.function(lambda state: {"log": [f"merged {sorted(state.log)}"]}))
        .add_edge(START, "x")
        .add_edge(START, "y")
        .add_edge(("x", "y"), "merge")
        .add_edge("merge", END)
        .compile(store=store, breakpoints=[Breakpoint("pre_node", nodes=["y"])])
    )
    with pytest.raises(Crash):
        driver.invoke(graph, {})
    [branch] = store.branches()
    again = driver.recover(graph, branch.run_id)
    assert (stops_of(again), crashes) == (["pre_node"], [])
    assert driver.resume(graph, again.checkpoint).output.log == ["x", "y", "merged ['x', 'y']"]
