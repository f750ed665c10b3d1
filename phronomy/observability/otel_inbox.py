"""What an inbox measures, by OpenTelemetry's API. A process that has no `Telemetry` never loads this.

The names are those of the conventions for HTTP servers. No attribute holds an id, a path with one, or who sent a request.
"""

from __future__ import annotations

from typing import Final

from opentelemetry import metrics

from phronomy.foundation.version import VERSION
from phronomy.observability.otel import SCHEMA, SCOPE

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The boundaries that the conventions advise."""


class InboxMeters:
    """The instruments of an inbox."""

    def __init__(self, provider: metrics.MeterProvider | None) -> None:
        meter = metrics.get_meter(SCOPE, VERSION, provider, SCHEMA)
        self._duration = meter.create_histogram(
            "http.server.request.duration",
            "s",
            "How long the inbox took to answer a request.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )

    def answered(
        self, method: str, route: str | None, status: int | None, scheme: str, problem: str | None, seconds: float
    ) -> None:
        """A request was answered."""
        found: dict[str, str | int] = {"http.request.method": method, "url.scheme": scheme}
        if route is not None:
            found["http.route"] = route
        if status is not None:
            found["http.response.status_code"] = status
        if problem is not None:
            found["error.type"] = problem
        self._duration.record(seconds, found)
