"""A run as OpenTelemetry spans: one span for each drive, and the second is linked to the first.

    pip install 'phronomy[otel]' opentelemetry-sdk
    OPENAI_API_KEY=... python examples/telemetry.py

The example prints each span when it ends. A real program would send them to a collector, with an exporter for OTLP. No span
contains the time of a human. `PHRONOMY_MODEL` names another model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from phronomy import Agent, Telemetry, tool


class Printed(SpanExporter):
    """Prints each span with its name and the status of the run."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            facts = dict(span.attributes or {})
            what = facts.get("gen_ai.tool.name") or facts.get("phronomy.run.status") or ""
            after = ", linked to what was before" if span.links else ""
            print(f"({facts['gen_ai.operation.name']} {what}{after})")
        return SpanExportResult.SUCCESS


@tool(requires_approval=True)
def refund(order_id: int, amount: float) -> str:
    """Pay an amount in euros back to the customer of an order."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Printed()))
    agent = Agent(
        name="refund desk",
        model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
        tools=[refund],
        hooks=[Telemetry(tracer_provider=provider)],
    )
    result = agent.invoke("Refund 49.90 euros for order 1042, please.")
    if result.status == "suspended":
        answer = input("Approve? [y/N] ")
        result = agent.resume(result.checkpoint, approved=answer.strip().lower() == "y")
    print(result.output)
    provider.shutdown()


if __name__ == "__main__":
    main()
