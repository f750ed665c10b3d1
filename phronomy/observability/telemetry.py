"""Telemetry: spans and metrics of every run of an agent, by OpenTelemetry, with the names of its conventions for generative AI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import check_no_tool
from phronomy.models.base import ModelReply, ModelRequest
from phronomy.observability.hooks import Hooks
from phronomy.records.checkpoint import Checkpoint

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from phronomy.observability.events import Event
    from phronomy.observability.otel_inbox import InboxMeters
    from phronomy.observability.otel_workers import WorkerMeters

Redact: TypeAlias = Callable[[str, Any], Any]
"""A function of the name of an attribute and a copy of its JSON value.

It returns the value to export, or None to export nothing.
"""


class Telemetry(Hooks):
    """A hook that makes OpenTelemetry spans and metrics of runs: pass it to `Agent(hooks=[...])`. Agents can share it.

    A drive of a run (an invoke, a resume, a stream) is a span `invoke_agent`. Inside it, each reply of the model is a
    span `chat`, and each attempt of a call is a span `execute_tool`. When a run stops for a human, its span ends
    without an error. The next drive starts a new span with a link to the last one. With `traces="run"`, each later span
    of a run is instead a child of its first span, so that a run is one trace. Without `tracer_provider` and
    `meter_provider`, the global ones of OpenTelemetry are used.

    Messages, instructions, definitions of tools, arguments and results are not exported by default. With `content=True`
    they are, except the values of parameters that a tool redacts. `redact(name, value)` is then called with each, and
    returns the value to export. If it raises, the value is not exported.

    Spans that a tool makes are children of the span of its call. The metadata of checkpoints have the trace context, as
    `traceparent`.

    Telemetry needs OpenTelemetry's API, and its SDK to export. Raises `ConfigurationError` without the API:
    `pip install 'phronomy[otel]'`.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        content: bool = False,
        redact: Redact | None = None,
        traces: Literal["drive", "run"] = "drive",
    ) -> None:
        if traces not in ("drive", "run"):
            raise ConfigurationError("traces is 'drive', one for each drive of a run, or 'run', one for all of them")
        if redact is not None and not callable(redact):
            raise ConfigurationError(f"redact is a function of a name and a value, not {type(redact).__name__}")
        check_no_tool(redact)
        try:
            from phronomy.observability import otel  # noqa: PLC0415  # a process without telemetry needs no package for it
        except ImportError:
            raise ConfigurationError("telemetry needs OpenTelemetry's API: pip install 'phronomy[otel]'") from None
        for name, given, makes in (
            ("tracer_provider", tracer_provider, "get_tracer"),
            ("meter_provider", meter_provider, "get_meter"),
        ):
            if given is not None and not hasattr(given, makes):
                raise ConfigurationError(f"{name} is one of OpenTelemetry's, or None, not {type(given).__name__}")
        shown = otel.Shown(content is True, redact)
        spans, meters = otel.tracer(tracer_provider), otel.Meters(meter_provider)
        self._recorder = otel.Recorder(spans, meters, shown, one_trace=traces == "run")
        self._meter_provider = meter_provider
        self._of_workers: WorkerMeters | None = None

    def on_event(self, event: Event) -> None:
        """Start and end the spans that belong to the event, and count it."""
        self._recorder.hear(event)

    def driving(self, at: Checkpoint) -> AbstractContextManager[Mapping[str, str] | None]:
        """Start the span of a drive.

        The checkpoints store its trace context, so that the next drive can have a link to it.
        """
        return self._recorder.driving(at)

    def _for_workers(self) -> WorkerMeters:
        """The instruments of the workers of an agent that has this hook: made for the first of them."""
        if self._of_workers is None:
            from phronomy.observability.otel_workers import WorkerMeters  # noqa: PLC0415  # most processes have no worker

            self._of_workers = WorkerMeters(self._meter_provider)
        return self._of_workers

    def _for_inbox(self) -> InboxMeters:
        """The instruments of an inbox that has this hook."""
        from phronomy.observability.otel_inbox import InboxMeters  # noqa: PLC0415  # as above

        return InboxMeters(self._meter_provider)

    def _drives(self, at: Checkpoint, masks: Callable[[], Any]) -> AbstractContextManager[Mapping[str, str] | None]:
        self._recorder.masked(at.branch_id, masks)
        return self.driving(at)

    def exchanged(self, branch_id: str, path: str, said: ModelRequest | ModelReply) -> None:
        """Record the request to the model, and its settings, in the span of the reply."""
        self._recorder.exchanged(branch_id, path, said)

    def running(self, branch_id: str, path: str, call_id: str) -> AbstractContextManager[None]:
        """Make the span of the attempt the current span in the body of the call."""
        return self._recorder.running(branch_id, path, call_id)
