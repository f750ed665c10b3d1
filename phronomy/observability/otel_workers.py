"""What workers count, by OpenTelemetry's API. A process that has no `Telemetry` never loads this.

The conventions know no workers, so the names are under `phronomy.`. No attribute holds an id or an argument.
"""

from __future__ import annotations

from typing import Final

from opentelemetry import metrics

from phronomy.foundation.version import VERSION
from phronomy.observability.otel import SCHEMA, SCOPE

_DELAYS: Final = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600)
"""Seconds: from a worker that is woken at once to one that was away for an hour."""


class WorkerMeters:
    """The instruments of workers."""

    def __init__(self, provider: metrics.MeterProvider | None) -> None:
        meter = metrics.get_meter(SCOPE, VERSION, provider, SCHEMA)
        self._runs = meter.create_counter(
            "phronomy.worker.runs", "{run}", "Runs that a worker drove to where they rest."
        )
        self._failures = meter.create_counter("phronomy.worker.failures", "{try}", "Tries of a worker that failed.")
        self._aside = meter.create_up_down_counter(
            "phronomy.worker.set_aside", "{run}", "Runs that a worker has set aside."
        )
        self._backlog = meter.create_gauge(
            "phronomy.worker.backlog",
            "{run}",
            "Runs that wait for a worker, as the last look into the store found them.",
        )
        self._delay = meter.create_histogram(
            "phronomy.worker.start_delay",
            "s",
            "How long a decision waited until a worker began to carry it out.",
            explicit_bucket_boundaries_advisory=_DELAYS,
        )

    def carried_out(self, agent: str, status: str) -> None:
        """A run was driven to where it rests."""
        self._runs.add(1, {"gen_ai.agent.name": agent, "phronomy.run.status": status})

    def failed(self, agent: str, error: str) -> None:
        """A try has failed with an error of this type."""
        self._failures.add(1, {"gen_ai.agent.name": agent, "error.type": error})

    def set_aside(self, agent: str, change: int) -> None:
        """So many more runs are set aside, or fewer."""
        self._aside.add(change, {"gen_ai.agent.name": agent})

    def found(self, agent: str, count: int) -> None:
        """So many runs wait for a worker."""
        self._backlog.set(count, {"gen_ai.agent.name": agent})

    def begun(self, agent: str, delay: float) -> None:
        """A worker begins to carry out a decision that was taken so many seconds ago."""
        self._delay.record(max(delay, 0.0), {"gen_ai.agent.name": agent})
