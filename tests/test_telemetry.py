"""Telemetry: what a run looks like as spans and metrics, read back from OpenTelemetry's own SDK, which keeps them in memory."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from drivers import DRIVERS, PATIENCE, STREAMED, SYNC, Driver, decide_first, open_kind, run
from opentelemetry import trace
from opentelemetry.trace import SpanKind
from pydantic import BaseModel
from spans import Desk, everything, facts

from phronomy import (
    END,
    START,
    Agent,
    Approve,
    Breakpoint,
    Checkpoint,
    ConfigurationError,
    GuardrailRefused,
    Hold,
    Hooks,
    MaxLength,
    MemoryStore,
    ModelError,
    NodeFailed,
    Refuse,
    Respond,
    StateGraph,
    Telemetry,
    Usage,
    guardrail,
    interrupt,
    tool,
)
from phronomy.observability.otel import kind_of, model_of
from phronomy.testing import ScriptedModel, call, say

EVERY = (*DRIVERS, *STREAMED)


@pytest.fixture(params=EVERY, ids=str)
def each(request: pytest.FixtureRequest) -> Driver:
    """Each driver, streamed and not."""
    found: Driver = request.param
    return found


@pytest.fixture
def desk() -> Desk:
    return Desk()


def clerk(*script: Any, tools: list[Any] | None = None, model: str = "acme/clerk-1", **options: Any) -> Agent[Any, Any]:
    @tool(requires_approval=True)
    def refund(card: str) -> str:
        """Refund."""
        return f"refunded to {card}"

    @tool
    def look(order: int) -> str:
        """Look an order up."""
        return f"order {order}"

    return Agent(
        name="clerk",
        model=ScriptedModel(script, name=model),
        tools=[refund, look] if tools is None else tools,
        **options,
    )


REFUND = say(None, call("refund", {"card": "canary"}), usage=Usage(requests=1, input_tokens=30, output_tokens=5))


# Spans


def test_a_run_is_a_span_with_its_replies_and_calls_in_it(each: Driver, desk: Desk) -> None:
    asks = say(None, call("look", {"order": 7}), usage=Usage(requests=1, input_tokens=30, output_tokens=5))
    says = say("It is on its way.", usage=Usage(requests=1, input_tokens=50, output_tokens=8))
    result = each.invoke(clerk(asks, says, hooks=[desk.telemetry()]), "Where is 7?", thread_id="t-1")
    assert result.output == "It is on its way."
    assert desk.tree() == ["invoke_agent clerk", "  chat clerk-1", "  execute_tool look", "  chat clerk-1"]

    agent, first, looked, second = desk.spans()
    place = {
        "gen_ai.conversation.id": "t-1",
        "phronomy.run.id": result.checkpoint.run_id,
        "phronomy.branch.id": result.checkpoint.branch_id,
    }
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "clerk-1", "gen_ai.provider.name": "acme", **place}
    reason = "gen_ai.response.finish_reasons"
    assert facts(agent) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "clerk",
        "gen_ai.usage.input_tokens": 80,
        "gen_ai.usage.output_tokens": 13,
        "phronomy.run.status": "completed",
        **place,
    }
    used = {"gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 5}
    assert facts(first) == {**chat, **used, reason: ("tool_calls",)}
    used = {"gen_ai.usage.input_tokens": 50, "gen_ai.usage.output_tokens": 8}
    assert facts(second) == {**chat, **used, reason: ("stop",)}
    assert facts(looked) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1",
        "phronomy.tool.attempt": 1,
        "phronomy.tool.settlement": "completed",
        **place,
    }
    assert [span.kind for span in desk.spans()] == [
        SpanKind.INTERNAL,
        SpanKind.CLIENT,
        SpanKind.INTERNAL,
        SpanKind.CLIENT,
    ]


def test_calls_side_by_side_are_siblings(each: Driver, desk: Desk) -> None:
    each.invoke(clerk([call("look", {"order": 1}), call("look", {"order": 2})], "both", hooks=[desk.telemetry()]), "go")
    tree = ["invoke_agent clerk", "  chat clerk-1", "  execute_tool look", "  execute_tool look", "  chat clerk-1"]
    assert desk.tree() == tree
    assert {facts(span)["gen_ai.tool.call.id"] for span in desk.spans("execute_tool")} == {"call_1", "call_2"}


def test_a_pause_is_no_error_and_whoever_resumes_links_to_what_was_before(
    each: Driver, desk: Desk, tmp_path: Path
) -> None:
    with open_kind("sqlite", tmp_path) as store:
        waiting = each.invoke(clerk(REFUND, store=store, hooks=[desk.telemetry()]), "refund me").checkpoint
    assert desk.tree() == ["invoke_agent clerk", "  chat clerk-1"]
    assert facts(desk.spans()[0])["phronomy.run.status"] == "suspended"
    assert [event.name for event in desk.spans()[0].events] == ["phronomy.approval_requested", "phronomy.suspended"]

    with open_kind("sqlite", tmp_path) as store:  # as another process would
        later = clerk("done", store=store, hooks=[desk.telemetry()])
        assert each.resume(later, store.load(waiting.id), approved=True).output == "done"
    assert desk.tree() == [
        "invoke_agent clerk",
        "  chat clerk-1",
        "invoke_agent clerk -> 1",
        "  execute_tool refund",
        "  chat clerk-1",
    ]
    before, after = desk.spans("invoke_agent")
    assert after.links[0].context.span_id == before.context.span_id
    assert after.start_time is not None and before.end_time is not None and before.end_time <= after.start_time
    assert [event.name for event in after.events] == ["phronomy.decided"]
    assert facts(after)["phronomy.run.status"] == "completed"
    assert "gen_ai.usage.input_tokens" not in facts(after)  # what the first drive used is not the second's


def test_a_drive_that_failed_at_once_is_linked_to_in_the_same_process(each: Driver, desk: Desk) -> None:
    agent = clerk(ModelError("away"), "done", hooks=[desk.telemetry()])
    with pytest.raises(ModelError) as failed:
        each.invoke(agent, "go")
    assert failed.value.checkpoint is not None
    assert each.resume(agent, failed.value.checkpoint).output == "done"
    assert desk.tree() == [
        "invoke_agent clerk !ModelError",
        "  chat clerk-1 !ModelError",
        "invoke_agent clerk -> 1",
        "  chat clerk-1",
    ]


def test_each_of_two_forks_is_linked_to_the_drive_that_it_was_forked_from(driver: Driver, desk: Desk) -> None:
    store = MemoryStore()
    waiting = driver.invoke(clerk(REFUND, store=store, hooks=[desk.telemetry()]), "go").checkpoint
    agent = clerk("one", "two", store=store, hooks=[desk.telemetry()])
    for _ in range(2):
        driver.resume(agent, driver.fork(agent, waiting), approved=False)
    assert [line for line in desk.tree() if line.startswith("invoke")] == [
        "invoke_agent clerk",
        "invoke_agent clerk -> 1",
        "invoke_agent clerk -> 1",
    ]


def test_the_trace_context_stands_in_the_checkpoint_beside_what_the_caller_put_there(
    driver: Driver, desk: Desk
) -> None:
    agent = clerk(REFUND, hooks=[desk.telemetry()])
    waiting = driver.invoke(agent, "go", metadata={"desk": 4}).checkpoint
    context = desk.spans("invoke_agent")[0].context
    told = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert waiting.metadata == {"desk": 4, "traceparent": told}
    assert Checkpoint.model_validate_json(waiting.model_dump_json()) == waiting
    assert agent.store.load(waiting.id) == waiting


def test_metadata_that_is_no_trace_context_is_no_link(driver: Driver, desk: Desk) -> None:
    store = MemoryStore()
    waiting = driver.invoke(clerk(REFUND, store=store), "go", metadata={"traceparent": ["nonsense"]}).checkpoint
    driver.resume(clerk("done", store=store, hooks=[desk.telemetry()]), waiting, approved=False)
    assert desk.tree() == ["invoke_agent clerk", "  chat clerk-1"]


def test_each_attempt_is_a_span_and_only_what_failed_is_an_error(each: Driver, desk: Desk) -> None:
    tries: list[int] = []

    @tool(retries=1, idempotent=True, retry_wait=0)
    def shaky() -> str:
        """Works the second time."""
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("canary-secret")
        return "ok"

    @tool
    def broken() -> str:
        """Fails."""
        raise LookupError("canary-secret")

    agent = clerk([call("shaky"), call("broken")], "done", tools=[shaky, broken], hooks=[desk.telemetry()])
    each.invoke(agent, "go")
    assert sorted(desk.tree()) == sorted(
        [
            "invoke_agent clerk",
            "  chat clerk-1",
            "  execute_tool shaky !ConnectionError",
            "  execute_tool broken !LookupError",
            "  execute_tool shaky",
            "  chat clerk-1",
        ]
    )
    assert "canary" not in everything(desk)


def test_a_failure_is_told_by_its_type_alone(each: Driver, desk: Desk) -> None:
    class Away(Exception):
        pass

    def reply(request: Any) -> Any:
        raise Away("canary-secret")

    with pytest.raises(ModelError):
        each.invoke(clerk(reply, hooks=[desk.telemetry()]), "go")
    assert desk.tree() == ["invoke_agent clerk !ModelError", "  chat clerk-1 !ModelError"]
    assert [span.status.description for span in desk.spans()] == [None, None]
    assert [span.events for span in desk.spans()] == [(), ()]
    assert "canary" not in everything(desk)


def test_a_call_that_holds_at_a_breakpoint_has_no_span_that_waits(driver: Driver, desk: Desk) -> None:
    stops = [Breakpoint("pre_tool_call")]
    agent = clerk(call("look", {"order": 7}), "done", breakpoints=stops, hooks=[desk.telemetry()])
    hold = Hold(on_breakpoint=lambda hit: Approve())
    assert driver.invoke(agent, "go", hold=hold).output == "done"
    assert desk.tree() == [
        "invoke_agent clerk",
        "  chat clerk-1",
        "invoke_agent clerk -> 1",
        "  execute_tool look",
        "  chat clerk-1",
    ]
    assert [facts(span)["phronomy.run.status"] for span in desk.spans("invoke_agent")] == ["suspended", "completed"]


def test_what_guardrails_said_is_on_the_drive_without_what_they_saw(each: Driver, desk: Desk) -> None:
    @guardrail
    def polite(value: Any) -> Any:
        """Refuses."""
        return Refuse("no canary here", code="rude") if "canary" in value else None

    agent = clerk(
        call("look", {"order": 7}), "fine", input_guardrails=[MaxLength(20), polite], hooks=[desk.telemetry()]
    )
    assert each.invoke(agent, "hello").output == "fine"
    with pytest.raises(GuardrailRefused):
        each.invoke(agent, "canary")
    passed, refused = [event for span in desk.spans() for event in span.events if event.name == "phronomy.guardrail"]
    assert dict(passed.attributes or {}) == {
        "phronomy.guardrail.stage": "input",
        "phronomy.guardrail.passed": ("max_length", "polite"),
    }
    assert dict(refused.attributes or {}) == {
        "phronomy.guardrail.stage": "input",
        "phronomy.guardrail.passed": ("max_length",),
        "phronomy.guardrail.refused": ("polite",),
        "phronomy.guardrail.code": "rude",
    }
    assert "canary" not in everything(desk)


def test_that_a_message_was_added_is_on_the_drive_without_what_it_says(each: Driver, desk: Desk) -> None:
    def answer(request: Any) -> str:
        store.send(store.branches()[0].id, "a canary", by="ann")
        return "wait"

    store = MemoryStore()
    assert each.invoke(clerk(answer, "fine", store=store, hooks=[desk.telemetry()]), "hello").output == "fine"
    [added] = [event for span in desk.spans() for event in span.events if event.name == "phronomy.message_added"]
    assert not added.attributes
    assert "canary" not in everything(desk)


def test_a_question_ends_the_attempt_without_an_error(each: Driver, desk: Desk) -> None:
    @tool(idempotent=True)
    def ask() -> str:
        """Ask."""
        return f"told: {interrupt('why?')}"

    store = MemoryStore()
    agent = clerk(call("ask"), "done", tools=[ask], store=store, hooks=[desk.telemetry()])
    waiting = each.invoke(agent, "go").checkpoint
    each.resume(agent, waiting, decisions={waiting.pending[0].id: Respond(content="so")})
    assert desk.tree() == [
        "invoke_agent clerk",
        "  chat clerk-1",
        "  execute_tool ask",
        "invoke_agent clerk -> 1",
        "  execute_tool ask",
        "  chat clerk-1",
    ]


def test_a_call_of_which_nobody_knows_the_outcome_is_an_error_of_that_kind(driver: Driver, desk: Desk) -> None:
    import threading

    over = threading.Event()

    @tool(timeout=0.01)
    def slow() -> str:
        """Wait."""
        over.wait(PATIENCE)
        return "late"

    waiting = driver.invoke(clerk(call("slow"), tools=[slow], hooks=[desk.telemetry()]), "go").checkpoint
    over.set()
    assert [item.why for item in waiting.pending] == ["outcome_unknown"]
    assert desk.tree() == ["invoke_agent clerk", "  chat clerk-1", "  execute_tool slow !outcome_unknown"]


class House(BaseModel):
    """What comes of two clerks."""

    left: str = ""
    right: str = ""


def test_what_runs_inside_a_call_is_inside_its_span(each: Driver, desk: Desk) -> None:
    """A graph with two agents side by side, one of which stops for a human, and is resumed with another telemetry."""
    store = MemoryStore()
    left, right = ScriptedModel([REFUND, "left"], name="l"), ScriptedModel(["right"], name="r")

    def house() -> Any:
        built = StateGraph(House, name="house")
        built.add_node("one", Agent(name="lefty", model=left, tools=clerk().tools), input=asked, output="left")
        built.add_node("two", Agent(name="righty", model=right), input=asked, output="right")
        for node in ("one", "two"):
            built.add_edge(START, node).add_edge(node, END)
        return built.compile(store=store, hooks=[desk.telemetry()])

    def asked(state: House) -> str:
        return "go"

    waiting = each.invoke(house(), {}).checkpoint
    first = desk.tree()
    assert first[0] == "invoke_agent house"
    assert set(branches(first)) == {
        ("  execute_tool one", "    invoke_agent lefty", "      chat l"),
        ("  execute_tool two", "    invoke_agent righty", "      chat r"),
    }
    paths = {span.name: facts(span).get("phronomy.run.path", "") for span in desk.spans("invoke_agent")}
    assert paths["invoke_agent house"] == ""
    assert paths["invoke_agent lefty"] != paths["invoke_agent righty"] != ""
    assert desk.metrics()["phronomy.approvals.pending"] == {(): 1}

    assert each.resume(house(), waiting, approved=True).output == House(left="left", right="right")
    after = desk.tree()[len(first) :]
    assert after == [
        "invoke_agent house -> 1",
        "  execute_tool one",
        "    invoke_agent lefty",
        "      execute_tool refund",
        "      chat l",
    ]
    assert desk.metrics()["phronomy.approvals.pending"] == {(): 0}
    assert sum(desk.metrics()["phronomy.approvals.decisions"].values()) == 1


def test_a_failure_inside_is_one_in_all_that_is_around_it(each: Driver, desk: Desk) -> None:
    inner = Agent(name="inner", model=ScriptedModel([ModelError("away")], name="i"))
    built = StateGraph(House, name="house").add_node("one", inner, input=lambda state: "go", output="left")
    graph = built.add_edge(START, "one").add_edge("one", END).compile(hooks=[desk.telemetry()])
    with pytest.raises(NodeFailed):
        each.invoke(graph, {})
    assert [line.strip() for line in desk.tree()] == [
        "invoke_agent house !NodeFailed",
        "execute_tool one !ModelError",
        "invoke_agent inner !ModelError",
        "chat i !ModelError",
    ]


def branches(tree: list[str]) -> Iterator[tuple[str, ...]]:
    """What is under each line that is indented once."""
    found: list[str] = []
    for line in tree[1:]:
        if found and not line.startswith("    "):
            yield tuple(found)
            found = []
        found.append(line)
    yield tuple(found)


def test_each_step_is_a_drive(driver: Driver, desk: Desk) -> None:
    agent = clerk(call("look", {"order": 1}), "done", hooks=[desk.telemetry()])
    result = driver.step(agent, "go")
    while result.status == "running":
        result = driver.step(agent, result.checkpoint)
    drives = desk.spans("invoke_agent")
    assert [facts(span)["phronomy.run.status"] for span in drives] == ["running"] * (len(drives) - 1) + ["completed"]
    assert len(drives) > 2
    assert [line for line in desk.tree() if not line.startswith("invoke")] == [
        "  chat clerk-1",
        "  execute_tool look",
        "  chat clerk-1",
    ]
    assert [bool(span.links) for span in drives[2:]] == [True] * (len(drives) - 2)


def test_a_stream_that_is_left_ends_its_spans_without_an_error(desk: Desk) -> None:
    agent = clerk(call("look", {"order": 1}), "done", hooks=[desk.telemetry()])
    with closing(agent.stream("go")) as events:
        next(event for event in events if event.type == "model_replied")
    assert desk.tree() == ["invoke_agent clerk", "  chat clerk-1"]

    async def leaves() -> None:
        async with aclosing(agent.astream("go")) as events:
            async for event in events:
                if event.type == "model_started":
                    break

    desk.exporter.clear()
    run(leaves())
    assert desk.tree() == ["invoke_agent clerk", "  chat clerk-1"]
    assert facts(desk.spans()[0])["phronomy.run.status"] == "running"


def test_an_interrupt_from_the_keyboard_ends_all_spans(driver: Driver, desk: Desk) -> None:
    @tool
    def stops() -> str:
        """Stop."""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        driver.invoke(clerk(call("stops"), tools=[stops], hooks=[desk.telemetry()]), "go")
    assert desk.tree() == [
        "invoke_agent clerk !KeyboardInterrupt",
        "  chat clerk-1",
        "  execute_tool stops !KeyboardInterrupt",
    ]


# Where it runs


def test_spans_that_a_tool_makes_are_in_the_one_of_its_call(each: Driver, desk: Desk) -> None:
    def body(order: int) -> str:
        """Look an order up."""
        with desk.traces.get_tracer("mine").start_as_current_span(f"select {order}"):
            return "found"

    look = tool(name="look")(each.function(body))
    timed = tool(name="timed", timeout=30.0)(each.function(body))
    calls = [call("look", {"order": 1}), call("timed", {"order": 2})]
    agent = clerk(calls, call("look", {"order": 3}), "done", tools=[look, timed], hooks=[desk.telemetry()])
    with desk.traces.get_tracer("mine").start_as_current_span("request"):
        outer = trace.get_current_span()
        each.invoke(agent, "go")
        assert trace.get_current_span() is outer
    parents = {span.context.span_id: span.name for span in desk.spans()}
    found = {span.name: parents[span.parent.span_id] for span in desk.spans("select") if span.parent}
    assert found == {"select 1": "execute_tool look", "select 2": "execute_tool timed", "select 3": "execute_tool look"}
    assert desk.tree()[:2] == ["request", "  invoke_agent clerk"]


def test_the_manager_of_a_hook_that_raises_changes_nothing(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Hooks):
        def __init__(self, *, entering: bool) -> None:
            self.entering = entering

        @contextmanager
        def breaks(self) -> Iterator[None]:
            if self.entering:
                raise ValueError("canary-secret")
            yield
            raise ValueError("canary-secret")

        def driving(self, at: Checkpoint) -> Any:
            return self.breaks()

        def running(self, branch_id: str, path: str, call_id: str) -> Any:
            return self.breaks()

    hooks = [Broken(entering=True), Broken(entering=False)]
    assert driver.invoke(clerk(call("look", {"order": 1}), "done", hooks=hooks), "go").output == "done"
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [
        "hook Broken raised ValueError on entering",
        "hook Broken raised ValueError on entering",
        "hook Broken raised ValueError on leaving",
        "hook Broken raised ValueError on leaving",
    ]


# What was said


def secrets_in(each: Driver, desk: Desk, **options: Any) -> str:
    """All that is exported of a run with a secret in its input, its arguments, its results, its answer, and an edit."""

    @tool(requires_approval=True)
    def pay(card: str) -> str:
        """Pay."""
        return f"paid with {card}"

    model = ScriptedModel([call("pay", {"card": "canary-asked"}), "Your card canary-said is charged."], name="clerk-1")
    agent = Agent(name="clerk", model=model, tools=[pay], hooks=[desk.telemetry(**options)])
    waiting = each.invoke(agent, "My card is canary-input").checkpoint
    edited = Approve(args={"card": "canary-edited"})
    each.resume(agent, waiting, decisions={waiting.pending[0].id: edited}, by="canary-by", channel="canary-channel")
    return everything(desk)


def test_nothing_that_was_said_is_exported_unless_somebody_asks_for_it(each: Driver, desk: Desk) -> None:
    assert "canary" not in secrets_in(each, desk)
    assert "canary-input" in secrets_in(each, desk, content=True)


def test_what_was_said_is_exported_on_demand_in_the_form_of_the_conventions(each: Driver, desk: Desk) -> None:
    told = secrets_in(each, desk, content=True)
    assert "canary-by" not in told and "canary-channel" not in told
    _, _, _, paid, _ = desk.spans()
    content = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.arguments")
    found = [{name: json.loads(facts(span)[name]) for name in content if name in facts(span)} for span in desk.spans()]
    asked = {"role": "user", "parts": [{"type": "text", "content": "My card is canary-input"}]}
    answer = {"type": "text", "content": "Your card canary-said is charged."}
    wanted = {"type": "tool_call", "id": "call_1", "name": "pay", "arguments": {"card": "canary-asked"}}
    changed = 'A human changed the arguments of this call to {"card":"canary-edited"} before it ran. Its result:\n'
    told_of = facts(paid)["gen_ai.tool.call.result"]
    settled = {"type": "tool_call_response", "id": "call_1", "response": f"{changed}paid with canary-edited"}
    assert found == [
        {content[0]: [asked]},
        {content[0]: [asked], content[1]: [{"role": "assistant", "parts": [wanted], "finish_reason": "tool_call"}]},
        {content[1]: [{"role": "assistant", "parts": [answer]}]},
        {content[2]: {"card": "canary-edited"}},
        {
            content[0]: [asked, {"role": "assistant", "parts": [wanted]}, {"role": "tool", "parts": [settled]}],
            content[1]: [{"role": "assistant", "parts": [answer], "finish_reason": "stop"}],
        },
    ]
    assert "paid with canary-edited" in told_of


def test_what_is_exported_goes_through_redact_first(each: Driver, desk: Desk) -> None:
    names: list[str] = []

    def redact(name: str, value: Any) -> Any:
        names.append(name)
        return None if name == "gen_ai.tool.call.result" else json.loads(json.dumps(value).replace("canary", "...."))

    told = secrets_in(each, desk, content=True, redact=redact)
    assert "canary" not in told and "....-edited" in told
    assert "gen_ai.tool.call.result" in names and "gen_ai.tool.call.result" not in told


def test_a_redact_that_raises_lets_nothing_through(each: Driver, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    def redact(name: str, value: Any) -> Any:
        raise ValueError(str(value))

    assert "canary" not in secrets_in(each, desk, content=True, redact=redact)
    assert len(desk.spans()) == 5
    assert "gen_ai.tool.call.arguments raised ValueError, and is left out of the span" in caplog.text
    assert "canary" not in caplog.text


def test_only_true_opts_in(desk: Desk) -> None:
    content: Any = "no"
    assert "canary" not in secrets_in(SYNC, desk, content=content)


# Metrics


def test_what_waits_is_counted_until_it_is_decided_wherever_that_is(each: Driver, desk: Desk) -> None:
    now = [1_000_000.0]
    store = MemoryStore(clock=lambda: now[0])
    waiting = each.invoke(clerk(REFUND, store=store, hooks=[desk.telemetry()]), "go").checkpoint
    assert desk.metrics()["phronomy.approvals.pending"] == {(): 1}
    now[0] += 90.0
    each.resume(clerk("done", store=store, hooks=[desk.telemetry()]), waiting, approved=True)
    found = desk.metrics()
    assert found["phronomy.approvals.pending"] == {(): 0}
    assert found["phronomy.approvals.wait"] == {("refund", "approve", "approval"): (1, 90.0)}
    assert found["phronomy.approvals.decisions"] == {("approve",): 1}
    assert "phronomy.approvals.expired" not in found


def test_an_approval_that_lapsed_is_a_decision_of_its_own_kind(each: Driver, desk: Desk) -> None:
    now = [1_000_000.0]
    store = MemoryStore(clock=lambda: now[0])
    options: Any = {"store": store, "approval_timeout": 60.0, "hooks": [desk.telemetry()]}
    waiting = each.invoke(clerk(REFUND, **options), "go").checkpoint
    now[0] += 61.0
    clerk("done", **options).recover_all()
    assert store.load(waiting.id).pending
    found = desk.metrics()
    assert found["phronomy.approvals.pending"] == {(): 0}
    assert found["phronomy.approvals.decisions"] == {("expire",): 1}
    assert found["phronomy.approvals.expired"] == {(): 1}


def test_what_a_cancelled_run_waited_for_waits_no_more(driver: Driver, desk: Desk) -> None:
    store = MemoryStore()
    asks = [call("refund", {"card": "1"}), call("refund", {"card": "2"})]
    waiting = driver.invoke(clerk(asks, store=store, hooks=[desk.telemetry()]), "go").checkpoint
    assert desk.metrics()["phronomy.approvals.pending"] == {(): 2}
    driver.cancel(clerk(store=store, hooks=[desk.telemetry()]), waiting)
    assert desk.metrics()["phronomy.approvals.pending"] == {(): 0}
    assert facts(desk.spans("invoke_agent")[-1])["phronomy.run.status"] == "cancelled"


def test_one_of_two_is_decided_and_the_other_still_waits(driver: Driver, desk: Desk) -> None:
    store = MemoryStore()
    asks = [call("refund", {"card": "1"}), call("refund", {"card": "2"})]
    waiting = driver.invoke(clerk(asks, store=store, hooks=[desk.telemetry()]), "go").checkpoint
    driver.resume(clerk(store=store, hooks=[desk.telemetry()]), waiting, decisions=decide_first(waiting))
    assert desk.metrics()["phronomy.approvals.pending"] == {(): 1}


def test_what_a_handler_decides_at_once_never_waits(each: Driver, desk: Desk) -> None:
    agent = clerk(REFUND, "done", on_approval_required=lambda name, args: True, hooks=[desk.telemetry()])
    each.invoke(agent, "go")
    found = desk.metrics()
    assert found["phronomy.approvals.decisions"] == {("approve",): 1}
    assert found.get("phronomy.approvals.pending", {(): 0}) == {(): 0}
    assert "phronomy.approvals.wait" not in found


def test_tokens_and_durations_are_those_of_the_conventions(each: Driver, desk: Desk) -> None:
    with pytest.raises(ModelError):
        each.invoke(
            clerk(REFUND, ModelError("away"), on_approval_required=lambda name, args: True, hooks=[desk.telemetry()]),
            "go",
        )
    found = desk.metrics()
    assert found["gen_ai.client.token.usage"] == {
        ("chat", "acme", "clerk-1", "input"): (1, 30),
        ("chat", "acme", "clerk-1", "output"): (1, 5),
    }
    assert {key: count for key, (count, _) in found["gen_ai.client.operation.duration"].items()} == {
        ("chat", "acme", "clerk-1"): 1,
        ("ModelError", "chat", "acme", "clerk-1"): 1,
    }
    assert list(found["gen_ai.execute_tool.duration"]) == [("execute_tool", "refund", "function")]
    assert list(found["gen_ai.invoke_agent.duration"]) == [("ModelError", "clerk", "invoke_agent")]


# Names


@pytest.mark.parametrize(
    ("name", "model", "provider"),
    [
        ("gpt-4o", "gpt-4o", None),
        ("openai/gpt-4o", "gpt-4o", "openai"),
        ("bedrock/us.amazon/nova", "us.amazon/nova", "aws.bedrock"),
        ("acme/", "acme/", None),
        ("/x", "/x", None),
    ],
)
def test_what_stands_before_a_model_is_its_provider(name: str, model: str, provider: str | None) -> None:
    said = {} if provider is None else {"gen_ai.provider.name": provider}
    assert model_of(name) == (model, {"gen_ai.request.model": model, **said})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("LookupError: canary", "LookupError"),
        ("LookupError", "LookupError"),
        ("There is no tool named 'x' any more. Nothing was run.", "_OTHER"),
        ("one in it failed: ModelError: away", "_OTHER"),
        ("", "_OTHER"),
    ],
)
def test_of_an_error_only_its_type_is_told(error: str, kind: str) -> None:
    assert kind_of(error) == kind


# Without it


def test_without_the_package_it_says_what_to_install_and_nothing_else_needs_it() -> None:
    script = """
import sys
sys.modules["opentelemetry"] = None
from phronomy import *
from phronomy.testing import ScriptedModel
assert Agent(model=ScriptedModel(["hi"])).invoke("x").output == "hi"
try:
    Telemetry()
except ConfigurationError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "telemetry needs OpenTelemetry's API: pip install 'phronomy[otel]'"


def test_a_run_without_telemetry_loads_nothing_of_it() -> None:
    script = """
import sys
from phronomy import Agent
from phronomy.testing import ScriptedModel
Agent(model=ScriptedModel(["hi"])).invoke("x")
print(sorted(name for name in sys.modules if "telemetry" in name or "observability.otel" in name))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_redact_is_a_function() -> None:
    wrong: Any = "card"
    with pytest.raises(ConfigurationError, match="redact is a function of a name and a value, not str"):
        Telemetry(redact=wrong)


def test_without_an_sdk_nothing_is_exported_and_nothing_fails(each: Driver) -> None:
    agent = clerk(REFUND, "done", hooks=[Telemetry(content=True)])
    waiting = each.invoke(agent, "go").checkpoint
    assert waiting.metadata == {}
    assert each.resume(agent, waiting, approved=True).output == "done"
