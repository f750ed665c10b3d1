"""Where spans and metrics arrive in tests, and how they are read back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from phronomy import Telemetry


class Desk:
    """Where spans and metrics arrive. Several processes may share it: each has a `Telemetry` of its own."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def telemetry(self, **options: Any) -> Telemetry:
        return Telemetry(tracer_provider=self.traces, meter_provider=self.meters, **options)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """The spans that have ended, in the order in which they began."""
        found = [span for span in self.exporter.get_finished_spans() if span.name.startswith(name)]
        return sorted(found, key=lambda span: span.start_time or 0)

    def tree(self) -> list[str]:
        """Each span under its parent, with what went wrong; a link as the number of the trace that it leads to."""
        spans = self.spans()
        traces = {span.context.trace_id: 0 for span in spans}
        numbers = {trace_id: number for number, trace_id in enumerate(traces, 1)}

        def under(parent: int | None, depth: int) -> Iterator[str]:
            for span in spans:
                if (span.parent.span_id if span.parent else None) == parent:
                    error = f" !{facts(span)['error.type']}" if not span.status.is_unset else ""
                    links = "".join(f" -> {numbers[link.context.trace_id]}" for link in span.links)
                    yield f"{'  ' * depth}{span.name}{error}{links}"
                    yield from under(span.context.span_id, depth + 1)

        return list(under(None, 0))

    def metrics(self) -> dict[str, dict[tuple[Any, ...], Any]]:
        """What each instrument has counted, by the values of its attributes; of a histogram, how often and the sum."""
        data = self.reader.get_metrics_data()
        assert data is not None
        found: dict[str, dict[tuple[Any, ...], Any]] = {}
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            points: dict[tuple[Any, ...], Any] = {}
            for point in metric.data.data_points:
                values = tuple(value for _, value in sorted(dict(point.attributes or {}).items()))
                points[values] = point.value if hasattr(point, "value") else (point.count, point.sum)
            found[metric.name] = points
        return found


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def everything(desk: Desk) -> str:
    """All that was exported, as text."""
    spans = "".join(span.to_json() for span in desk.spans())
    data = desk.reader.get_metrics_data()
    return spans + (data.to_json() if data is not None else "")
