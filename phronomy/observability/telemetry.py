"""Telemetry: spans and metrics of every run of an agent, by OpenTelemetry, with the names of its conventions for generative AI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from phronomy.errors import ConfigurationError
from phronomy.models.base import ModelReply, ModelRequest
from phronomy.observability.hooks import Hooks
from phronomy.records.checkpoint import Checkpoint

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from phronomy.observability.events import Event

Redact: TypeAlias = Callable[[str, Any], Any]
"""Called with the name of an attribute and a JSON value, a copy; returns what to export instead, None to leave it out."""


class Telemetry(Hooks):
    """Makes spans and metrics of runs: give an instance to `Agent(hooks=[...])`, and the same one to as many agents as you like.

    A drive (an invoke, a resume, a stream) is a span `invoke_agent`, in it are `chat` for each reply of the model and `execute_tool`
    for each attempt at a call. A run that stops for a human ends its span without an error; whoever resumes it begins a new one,
    which is linked to the last; with `traces="run"` it is in the first one's trace, below it, so that a run is one trace.
    `tracer_provider` and `meter_provider` are OpenTelemetry's global ones unless given.

    What was said, instructions, definitions of tools, arguments and results are left out. With `content=True` they are exported, but
    for the values of parameters that a tool redacts; `redact(name, value)` is asked about each first, and where it raises, the
    value is left out.

    Spans that tools make are in those of their calls. The trace context is in the metadata of checkpoints, under `traceparent`.

    Needs OpenTelemetry's API, and its SDK to export anything. Raises `ConfigurationError` without it: `pip install
    'phronomy[otel]'`.
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

    def on_event(self, event: Event) -> None:
        """Begin and end the spans that the event is of, and count it."""
        self._recorder.hear(event)

    def driving(self, at: Checkpoint) -> AbstractContextManager[Mapping[str, str] | None]:
        """Opens the span of a drive, which its checkpoints note, so that the next drive can link to it."""
        return self._recorder.driving(at)

    def _drives(self, at: Checkpoint, masks: Callable[[], Any]) -> AbstractContextManager[Mapping[str, str] | None]:
        self._recorder.masked(at.branch_id, masks)
        return self.driving(at)

    def exchanged(self, branch_id: str, path: str, said: ModelRequest | ModelReply) -> None:
        """The span of a reply says what the model was asked, and how."""
        self._recorder.exchanged(branch_id, path, said)

    def running(self, branch_id: str, path: str, call_id: str) -> AbstractContextManager[None]:
        """The span of an attempt at a call is the current one in its body."""
        return self._recorder.running(branch_id, path, call_id)
