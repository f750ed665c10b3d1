"""The spans and metrics that telemetry makes of events, by OpenTelemetry's API. A process that has no `Telemetry` never loads this.

Names of attributes, spans and metrics are those of the semantic conventions for generative AI
(https://github.com/open-telemetry/semantic-conventions-genai, in development); what these do not know is under `phronomy.`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field
from functools import partial
from typing import Any, Final, TypeAlias

from opentelemetry import metrics, trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import clean
from phronomy.foundation.version import VERSION
from phronomy.models.base import ModelReply, ModelRequest
from phronomy.observability import genai
from phronomy.observability.events import (
    ApprovalRequested,
    Decided,
    Ended,
    Event,
    Failed,
    GuardrailsAsked,
    HandedOver,
    MessageAdded,
    ModelReplied,
    ModelStarted,
    RunStarted,
    Suspended,
    ToolCallFailed,
    ToolCallSettled,
    ToolCallStarted,
    Voted,
)
from phronomy.observability.masking import Masking
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import PendingApproval
from phronomy.records.messages import Usage

_Place: TypeAlias = Event | Checkpoint
"""What says which run it is of."""

_log = logging.getLogger("phronomy")

SCOPE: Final = "phronomy"
SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The latest released schema that knows these names: the conventions for generative AI have released none of their own yet."""
_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS: Final = tuple(4.0**power for power in range(14))
_WAITS: Final = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600)
"""Where the buckets of histograms end: as the conventions say, and for humans from a second to a week."""

_PROVIDERS: Final = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""What the conventions call a provider, by what stands before the name of a model, where that is another word."""

_TRACE: Final = TraceContextTextMapPropagator()
"""W3C trace context: `traceparent`, and `tracestate` where there is one."""

_REMEMBERED: Final = 10_000
"""Of how many runs that have not ended it is known where they stood, the latest; beyond, a resume has no link."""


def tracer(provider: trace.TracerProvider | None) -> Tracer:
    """The tracer of this library."""
    return trace.get_tracer(SCOPE, VERSION, provider, SCHEMA)


class Meters:
    """The instruments."""

    def __init__(self, provider: metrics.MeterProvider | None) -> None:
        meter = metrics.get_meter(SCOPE, VERSION, provider, SCHEMA)
        durations = {
            "chat": ("gen_ai.client.operation.duration", "GenAI operation duration."),
            "invoke_agent": ("gen_ai.invoke_agent.duration", "How long an agent worked in one go; no human's time."),
            "execute_tool": ("gen_ai.execute_tool.duration", "How long an attempt at a tool call took."),
        }
        self.durations: dict[str, metrics.Histogram] = {
            operation: meter.create_histogram(name, "s", told, explicit_bucket_boundaries_advisory=_SECONDS)
            for operation, (name, told) in durations.items()
        }
        self.tokens: metrics.Histogram = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self.pending: metrics.UpDownCounter = meter.create_up_down_counter(
            "phronomy.approvals.pending", "{approval}", "Approvals that wait for a human."
        )
        self.wait: metrics.Histogram = meter.create_histogram(
            "phronomy.approvals.wait",
            "s",
            "How long an approval waited for its decision.",
            explicit_bucket_boundaries_advisory=_WAITS,
        )
        self.decisions: metrics.Counter = meter.create_counter(
            "phronomy.approvals.decisions", "{decision}", "Decisions, by kind."
        )
        self.expired: metrics.Counter = meter.create_counter(
            "phronomy.approvals.expired", "{approval}", "Approvals that nobody decided in time."
        )


@dataclass(frozen=True)
class Shown:
    """Puts texts of a run into spans, as far as they may be exported."""

    content: bool
    redact: Callable[[str, Any], object] | None

    def put(self, span: Span, name: str, make: Callable[[], object]) -> None:
        """Set an attribute to a value, if that may be seen. It is made only then."""
        if not self.content or not span.is_recording():
            return
        try:
            value = make()
            if self.redact is not None:
                value = self.redact(name, value)
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        except Exception as error:  # what is not known to be fit to be seen stays here
            _log.error("%s raised %s, and is left out of the span", name, type(error).__name__)
            return
        if value is not None:
            span.set_attribute(name, clean(text))


@dataclass
class _Open:
    """A span that has not ended, and what its metrics are told by. `reason` is why a model stopped, where it said so."""

    span: Span
    operation: str
    facts: dict[str, str]
    reason: str | None = None
    began: float = field(default_factory=time.perf_counter)


class _Run:
    """The facts of a branch of a run and its open spans; none is open while the run waits.

    `agents` are who runs it, by path, `last` the span of its last drive and `note` the same as text, `waiting` what waits for a
    human, `decided` what did. Open are the drive and the runs nested in it, by path, replies by path, and attempts at calls; `inside`
    are the attempts by the path of the run that may be inside, and `outside` is what the drive is in. `masks` gives what hides the
    values that tools redact: all of them, as long as the tools are not known.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.agents: dict[str, str] = {}
        self.last: SpanContext | None = None
        self.waiting: dict[str, PendingApproval] = {}
        self.decided: set[str] = set()
        self.over = False
        self.note: dict[str, str] = {}
        self.masks: Callable[[], Masking] = partial(Masking, None)
        self.outside = Context()
        self.drives: dict[str, _Open] = {}
        self.chats: dict[str, _Open] = {}
        self.calls: dict[tuple[str, str], _Open] = {}
        self.inside: dict[str, _Open] = {}
        self.spent = Usage()


class Recorder:
    """Hears events, and keeps the spans that they begin until others end them.

    A run that stands still has no open span. Those of a process that dies are not exported.
    """

    def __init__(self, tracer: Tracer, meters: Meters, shown: Shown, *, one_trace: bool) -> None:
        self._tracer = tracer
        self._one_trace = one_trace
        self._meters = meters
        self._shown = shown
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    def hear(self, event: Event) -> None:
        """Take note of an event."""
        run = self._run(event.branch_id)
        with run.lock:
            if isinstance(event, RunStarted):
                self._started(run, event)
            self._drive(run, event)
            self._heard(run, event)

    def exchanged(self, branch_id: str, path: str, said: ModelRequest | ModelReply) -> None:
        """Take note of what a model is asked, or replied."""
        run = self._run(branch_id)
        with run.lock:
            if (opened := run.chats.get(path)) is None:
                return
            if isinstance(said, ModelReply):
                opened.span.set_attributes(genai.facts_of(said))
                opened.reason = said.finish_reason
                return
            opened.span.set_attributes(genai.settings_of(said.settings))
            if (system := said.system) is not None:
                self._shown.put(opened.span, "gen_ai.system_instructions", lambda: genai.instructions(system))
            messages, tools = said.messages, said.tools
            self._shown.put(opened.span, "gen_ai.input.messages", lambda: genai.conversation(messages, run.masks()))
            if tools:
                self._shown.put(opened.span, "gen_ai.tool.definitions", lambda: genai.definitions(tools))

    def masked(self, branch_id: str, masks: Callable[[], Masking]) -> None:
        """Hide what the tools of a run redact."""
        run = self._run(branch_id)
        with run.lock:
            run.masks = masks

    @contextmanager
    def driving(self, at: Checkpoint) -> Iterator[Mapping[str, str]]:
        """Opens the span of a drive that begins at this checkpoint, and gives the metadata that the next checkpoints keep."""
        run = self._run(at.branch_id)
        with run.lock:
            run.agents = {part.path: part.speaker for part in (*at.nested, at)}
            run.waiting = {item.id: item for item in at.pending}
            run.decided = {decision.pending_id for part in (*at.nested, at) for decision in part.decisions}
            noted = {name: text for name in _TRACE.fields if isinstance(text := at.metadata.get(name), str)}
            before = trace.get_current_span(_TRACE.extract(noted, Context())).get_span_context()
            if before.is_valid:  # else this process may know: a drive that failed at once has left no checkpoint
                run.last = before
            self._drive(run, at)
        status, error = "running", None
        try:
            yield run.note
        except GeneratorExit:  # whoever watched has left, which is no error
            raise
        except BaseException as raised:
            status, error = "failed", type(raised).__name__
            raise
        finally:
            with run.lock:
                self._rest(run, status, error)
            if run.over:
                with self._lock:
                    self._runs.pop(at.branch_id, None)

    def running(self, branch_id: str, path: str, call_id: str) -> AbstractContextManager[Any]:
        """The span of the attempt at a call is the current one."""
        run = self._run(branch_id)
        with run.lock:
            opened = run.calls.get((path, call_id))
        if opened is None:
            return nullcontext()
        return trace.use_span(opened.span, record_exception=False, set_status_on_exception=False)

    def _run(self, branch_id: str) -> _Run:
        with self._lock:
            run = self._runs.setdefault(branch_id, _Run())
            self._runs.move_to_end(branch_id)
            if len(self._runs) > _REMEMBERED:
                self._runs.popitem(last=False)
        return run

    def _heard(self, run: _Run, event: Event) -> None:  # noqa: PLR0912  # a branch for each event, read as one
        match event:
            case ModelStarted():
                self._asked(run, event)
            case ModelReplied():
                self._replied(run, event)
            case ToolCallStarted() | ToolCallFailed() | ToolCallSettled():
                self._called(run, event)
            case GuardrailsAsked():
                self._guarded(run, event)
            case MessageAdded():
                self._drive(run, event).span.add_event("phronomy.message_added")
            case HandedOver():
                self._handed_over(run, event)
            case ApprovalRequested():
                self._waits(run, event)
            case Voted():
                self._voted(run, event)
            case Decided():
                self._decided(run, event)
            case Suspended():
                self._suspended(run, event)
            case Ended():
                self._ended(run, event)
            case Failed():
                self._rest(run, "failed", event.error)
            case _:
                pass

    # Runs

    def _started(self, run: _Run, event: RunStarted) -> None:
        run.agents[event.path] = event.agent
        opened = self._drive(run, event)
        self._shown.put(opened.span, "gen_ai.input.messages", lambda: [genai.text_message("user", _text(event.input))])

    def _drive(self, run: _Run, event: _Place) -> _Open:
        """The span of the drive, or of the nested run, that an event is of; it begins with the first event of it."""
        opened = run.drives.get(event.path)
        if opened is None:
            links = []
            if event.path == "":
                run.outside, run.spent = get_current(), Usage()
                links = [Link(run.last)] if run.last is not None else []
            agent = run.agents.get(event.path)
            facts = {} if agent is None else {"gen_ai.agent.name": agent}
            outer = run.outside if event.path == "" else self._around(run, event)
            if event.path == "" and self._one_trace and run.last is not None:
                links = _to_another(trace.get_current_span(outer).get_span_context(), run.last)
                outer = trace.set_span_in_context(NonRecordingSpan(run.last), outer)
            opened = run.drives[event.path] = self._open("invoke_agent", agent, facts, event, outer, links=links)
            if event.path == "" and (context := opened.span.get_span_context()).is_valid:
                if not self._one_trace or run.last is None:
                    run.last = context
                run.note.clear()
                _TRACE.inject(run.note, trace.set_span_in_context(NonRecordingSpan(run.last)))
        return opened

    def _around(self, run: _Run, event: _Place) -> Context:
        """Gives the span around a nested run: that of its call, or else of the nearest run around it that has one."""
        if (call := run.inside.get(event.path)) is not None:
            return trace.set_span_in_context(call.span, run.outside)
        path = event.path.rpartition("/")[0]
        while path and path not in run.drives:
            path = path.rpartition("/")[0]
        return self._inside(run, event.model_copy(update={"path": path}))

    def _handed_over(self, run: _Run, event: HandedOver) -> None:
        """The drive goes on: it is that of the agent that it began with. What the other one does in it says so."""
        facts = {"phronomy.handoff.from": event.source, "phronomy.handoff.to": event.target}
        self._drive(run, event).span.add_event("phronomy.handoff", facts)
        run.agents[event.path] = event.target

    def _speaks(self, run: _Run, event: _Place, opened: _Open) -> None:
        """A span of another agent than its drive names that agent."""
        agent = run.agents.get(event.path)
        if agent is not None and agent != run.drives[event.path].facts.get("gen_ai.agent.name"):
            opened.span.set_attribute("gen_ai.agent.name", agent)

    def _inside(self, run: _Run, event: _Place) -> Context:
        return trace.set_span_in_context(self._drive(run, event).span, run.outside)

    def _suspended(self, run: _Run, event: Suspended) -> None:
        waiting = [item.id for item in event.pending]
        run.drives[""].span.add_event("phronomy.suspended", {"phronomy.pending.ids": waiting})
        self._rest(run, "suspended")

    def _ended(self, run: _Run, event: Ended) -> None:
        opened = run.drives[event.path]
        if event.json_text("output") != "null":
            self._shown.put(
                opened.span, "gen_ai.output.messages", lambda: [genai.text_message("assistant", _text(event.output))]
            )
        if event.path:
            opened.span.set_attribute("phronomy.run.status", event.type)
            self._close(run.drives.pop(event.path))
            return
        self._meters.pending.add(-len(run.waiting))
        run.waiting.clear()
        run.over = True
        self._rest(run, event.type)

    def _rest(self, run: _Run, status: str, error: str | None = None) -> None:
        """End the drive, and whatever is open in it."""
        for path, call_id in list(run.calls):
            self._end_attempt(run, path, call_id, error, status)
        run.inside.clear()
        for path in sorted({*run.chats, *run.drives}, reverse=True):
            self._close(run.chats.pop(path, None), error)
            if (opened := run.drives.pop(path, None)) is not None:
                used = {} if path else genai.used(run.spent)
                opened.span.set_attributes({"phronomy.run.status": status, **used})
                self._close(opened, error)

    def _end_attempt(self, run: _Run, path: str, call_id: str, error: str | None, status: str = "failed") -> None:
        """End an attempt at a call, and what is open in it."""
        opened = run.calls.pop((path, call_id), None)
        if opened is None:
            return
        inside = next((inside for inside, call in run.inside.items() if call is opened), "")
        for within, inner in list(run.calls):
            if within == inside:
                self._end_attempt(run, within, inner, error, status)
        self._close(run.chats.pop(inside, None), error)
        if (drive := run.drives.pop(inside, None)) is not None:
            drive.span.set_attribute("phronomy.run.status", status)
            self._close(drive, error)
        self._close(opened, error)

    # The model

    def _asked(self, run: _Run, event: ModelStarted) -> None:
        self._close(run.chats.pop(event.path, None))
        name, facts = model_of(event.model)
        opened = self._open("chat", name, facts, event, self._inside(run, event), kind=SpanKind.CLIENT)
        self._speaks(run, event, opened)
        run.chats[event.path] = opened

    def _replied(self, run: _Run, event: ModelReplied) -> None:
        opened = run.chats.pop(event.path, None)
        if opened is None:
            return
        self._shown.put(
            opened.span,
            "gen_ai.output.messages",
            lambda: [genai.answer(event.message, run.masks(), opened.reason)],
        )
        used = genai.used(event.spent)
        opened.span.set_attributes(used)
        for kind in ("input", "output") if used else ():
            number = used[f"gen_ai.usage.{kind}_tokens"]
            self._meters.tokens.record(number, {**opened.facts, "gen_ai.token.type": kind})
        run.spent += event.spent
        self._close(opened)

    # Calls

    def _called(self, run: _Run, event: ToolCallStarted | ToolCallFailed | ToolCallSettled) -> None:
        match event:
            case ToolCallStarted():
                self._entered(run, event)
            case ToolCallFailed():
                self._end_attempt(run, event.path, event.call_id, kind_of(event.error))
            case ToolCallSettled():
                self._settled(run, event)

    def _entered(self, run: _Run, event: ToolCallStarted) -> None:
        key = event.path, event.call_id
        self._close(run.calls.pop(key, None))
        facts = {"gen_ai.tool.name": event.tool_name, "gen_ai.tool.type": "function"}
        opened = self._open("execute_tool", event.tool_name, facts, event, self._inside(run, event))
        opened.span.set_attribute("gen_ai.tool.call.id", event.call_id)
        opened.span.set_attribute("phronomy.tool.attempt", event.attempt)
        if event.resumed:
            opened.span.set_attribute("phronomy.tool.resumed", True)
        self._speaks(run, event, opened)
        self._shown.put(opened.span, "gen_ai.tool.call.arguments", lambda: _arguments(event, run.masks()))
        run.calls[key] = run.inside[event.inside] = opened

    def _settled(self, run: _Run, event: ToolCallSettled) -> None:
        opened = run.calls.pop((event.path, event.call_id), None)
        if opened is None:  # it never ran, or its last attempt has failed
            return
        opened.span.set_attribute("phronomy.tool.settlement", event.kind)
        self._shown.put(
            opened.span, "gen_ai.tool.call.result", lambda: run.masks().result(event.tool_name, event.content)
        )
        self._close(opened, "_OTHER" if event.kind in ("failed", "invalid") else None)

    # Guardrails and approvals

    def _guarded(self, run: _Run, event: GuardrailsAsked) -> None:
        facts = {f"phronomy.guardrail.{verdict}": _those(event.said, verdict) for verdict in set(event.said.values())}
        code = {} if event.code is None else {"phronomy.guardrail.code": event.code}
        run.drives[event.path].span.add_event(
            "phronomy.guardrail", {"phronomy.guardrail.stage": event.stage, **facts, **code}
        )

    def _waits(self, run: _Run, event: ApprovalRequested) -> None:
        item = event.pending
        if item.id in run.waiting:
            return
        run.waiting[item.id] = item
        self._meters.pending.add(1)
        facts: dict[str, Any] = {"gen_ai.tool.name": item.tool_name, "phronomy.pending.id": item.id}
        facts["phronomy.pending.why"] = item.why
        facts |= {"phronomy.pending.external": True} if item.external else {}
        run.drives[event.path].span.add_event("phronomy.approval_requested", facts)
        opened = run.calls.pop((event.path, item.call_id), None)
        self._close(opened, item.why if item.why in ("outcome_unknown", "failed") else None)

    def _voted(self, run: _Run, event: Voted) -> None:
        facts: dict[str, Any] = {"gen_ai.tool.name": event.tool_name, "phronomy.pending.id": event.pending_id}
        facts["phronomy.vote.kind"] = event.vote.kind
        facts["phronomy.vote.missing"] = sum(each.missing for each in event.levels)
        run.drives[event.path].span.add_event("phronomy.voted", facts)

    def _decided(self, run: _Run, event: Decided) -> None:
        decision = event.decision
        if decision.pending_id in run.decided:  # the run around it was told the same
            return
        run.decided.add(decision.pending_id)
        facts = {"phronomy.decision.kind": decision.kind}
        item = run.waiting.pop(decision.pending_id, None)
        tool = {} if item is None else {"gen_ai.tool.name": item.tool_name, "phronomy.pending.why": item.why}
        run.drives[event.path].span.add_event(
            "phronomy.decided", {**facts, **tool, "phronomy.pending.id": decision.pending_id}
        )
        self._meters.decisions.add(1, facts)
        if decision.kind == "expire":
            self._meters.expired.add(1)
        if item is not None:  # what a handler answers at once has not waited
            self._meters.pending.add(-1)
            self._meters.wait.record(max((decision.at - item.requested_at).total_seconds(), 0), {**facts, **tool})

    # Spans

    def _open(
        self,
        operation: str,
        name: str | None,
        facts: dict[str, str],
        event: _Place,
        context: Context,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        links: list[Link] | None = None,
    ) -> _Open:
        facts = {"gen_ai.operation.name": operation, **facts}
        named = {"phronomy.run.id": event.run_id, "phronomy.branch.id": event.branch_id}
        if event.path:
            named["phronomy.run.path"] = event.path
        if event.thread_id is not None:
            named["gen_ai.conversation.id"] = event.thread_id
        title = operation if name is None else f"{operation} {name}"
        span = self._tracer.start_span(title, context, kind, {**facts, **named}, links)
        return _Open(span, operation, facts)

    def _close(self, opened: _Open | None, error: str | None = None) -> None:
        if opened is None:
            return
        facts = opened.facts
        if error is not None:  # its type alone: what an error says may quote anything
            facts = {**facts, "error.type": error}
            opened.span.set_attribute("error.type", error)
            opened.span.set_status(Status(StatusCode.ERROR))
        opened.span.end()
        self._meters.durations[opened.operation].record(time.perf_counter() - opened.began, facts)


def model_of(name: str) -> tuple[str, dict[str, str]]:
    """Gives the name of a model and its attributes: the part before the slash, as in `openai/gpt-4o`, is the provider."""
    provider, slash, model = name.partition("/")
    if not (provider and slash and model):
        return name, {"gen_ai.request.model": name}
    return model, {"gen_ai.request.model": model, "gen_ai.provider.name": _PROVIDERS.get(provider, provider)}


def kind_of(error: str) -> str:
    """The type in what is told of an error, `_OTHER` if it begins with none."""
    kind = error.partition(":")[0]
    return kind if kind.isidentifier() and len(kind) <= 80 else "_OTHER"


def _those(said: Mapping[str, str], verdict: str) -> list[str]:
    return [name for name, each in said.items() if each == verdict]


def _to_another(caller: SpanContext, within: SpanContext) -> list[Link]:
    """A link to the caller's span, if that is of another trace."""
    return [Link(caller)] if caller.is_valid and caller.trace_id != within.trace_id else []


def _arguments(event: ToolCallStarted, masks: Masking) -> dict[str, object] | None:
    """The arguments of a call as they may be seen."""
    args = event.args
    return None if args is None else masks.args(args, masks.named(event.tool_name))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
