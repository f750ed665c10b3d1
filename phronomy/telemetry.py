"""Telemetry: spans and metrics of every run of an agent, by OpenTelemetry, with the names of its conventions for generative AI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeAlias

from phronomy.checkpoint import Checkpoint
from phronomy.errors import ConfigurationError
from phronomy.events import Event
from phronomy.hooks import Hooks

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

Redact: TypeAlias = Callable[[str, Any], Any]
"""Called with the name of an attribute and a JSON value, a copy; returns what to export instead, None to leave it out."""


class Telemetry(Hooks):
    """Makes spans and metrics of runs: give an instance to `Agent(hooks=[...])`, and the same one to as many agents as you like.

    A drive (an invoke, a resume, a stream) is a span `invoke_agent`, in it are `chat` for each reply of the model and `execute_tool`
    for each attempt at a call. A run that stops for a human ends its span without an error; whoever resumes it begins a new one,
    which is linked to the last. `tracer_provider` and `meter_provider` are OpenTelemetry's global ones unless given.

    What was said, arguments and results are left out. With `content=True` they are exported, those of parameters that a tool
    redacts too; `redact(name, value)` is asked about each first, and where it raises, the value is left out.

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
    ) -> None:
        if redact is not None and not callable(redact):
            raise ConfigurationError(f"redact is a function of a name and a value, not {type(redact).__name__}")
        try:
            from phronomy import _otel  # noqa: PLC0415  # a process without telemetry needs no package for it
        except ImportError:
            raise ConfigurationError("telemetry needs OpenTelemetry's API: pip install 'phronomy[otel]'") from None
        shown = _otel.Shown(content is True, redact)
        self._recorder = _otel.Recorder(_otel.tracer(tracer_provider), _otel.Meters(meter_provider), shown)

    def on_event(self, event: Event) -> None:
        """Begin and end the spans that the event is of, and count it."""
        self._recorder.hear(event)

    def driving(self, at: Checkpoint) -> AbstractContextManager[Mapping[str, str] | None]:
        """The span of a drive; it is noted in the checkpoints, for whoever goes on to link to."""
        return self._recorder.driving(at)

    def running(self, branch_id: str, path: str, call_id: str) -> AbstractContextManager[None]:
        """The span of an attempt at a call is the current one in its body."""
        return self._recorder.running(branch_id, path, call_id)
