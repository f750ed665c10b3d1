"""Times for people. The server writes UTC and an age; the script of the pages writes the local time in their place."""

from __future__ import annotations

from datetime import UTC, datetime

from phronomy.foundation.durations import ago, duration


def iso_of(at: datetime) -> str:
    """A time as the attribute `datetime` has it."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def day_of(at: datetime) -> str:
    """A time with its day."""
    return f"{at.astimezone(UTC):%d %B %Y, %H:%M} UTC".lstrip("0")


def clock_of(at: datetime) -> str:
    """The time of day."""
    return f"{at.astimezone(UTC):%H:%M} UTC"


def since(at: datetime, now: float) -> str:
    """How long ago a time is."""
    return ago(now - at.timestamp())


def until(at: datetime, now: float) -> str:
    """How far ahead a time is."""
    left = at.timestamp() - now
    return "time is over" if left <= 0 else f"in {duration(left) or 'less than a minute'}"
