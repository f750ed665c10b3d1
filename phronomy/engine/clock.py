"""The clock by which the work of a run is timed."""

from __future__ import annotations

import time


def monotonic() -> float:
    """Seconds, from no moment in particular."""
    return time.monotonic()


def since(started: float) -> int:
    """The milliseconds since `started`, which `monotonic` gave."""
    return round((monotonic() - started) * 1000)
