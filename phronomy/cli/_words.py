"""What the command line exits with, and how it says what went wrong and who decided what."""

from __future__ import annotations

import getpass
from datetime import datetime
from typing import Final

from phronomy.approvals import PAST, Decision
from phronomy.errors import AgentChanged, CheckpointAlreadyResumed, PhronomyError

DONE: Final = 0
FAILED: Final = 1
MISUSED: Final = 2
PENDING: Final = 3
INTERRUPTED: Final = 130


class WrongUsage(Exception):
    """The command line contradicts itself, or names what cannot be meant."""


def explained(error: Exception, command: str) -> str:
    """The error in one sentence."""
    if isinstance(error, CheckpointAlreadyResumed) and error.decision is not None:
        return f"this was decided before: {who_decided(error.decision)}; {PROGRESS[error.progress]}"
    if isinstance(error, AgentChanged):
        told = f"{str(error).partition(' Nothing was consumed')[0]} Nothing has happened"
        return told if command == "chat" else f"{told} (--accept-changes goes on all the same)"
    if isinstance(error, WrongUsage):
        return f"{error} ({' '.join(('phronomy', command)).strip()} --help tells more)"
    if (
        message := getattr(error, "format_message", None)
    ) is not None:  # the class is typer's or click's, by the release
        return f"{message()} (--help tells more)"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, PhronomyError):
        return f"{error}" + "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error} (--debug shows where)"


def who_decided(decision: Decision) -> str:
    """What was decided, by whom, and when."""
    by = f" by {decision.by.name or decision.by.id}" if decision.by is not None else ""
    channel = f" ({decision.channel})" if decision.channel else ""
    edited = ", with edited arguments," if decision.args is not None else ""
    return f"{PAST[decision.kind]}{edited}{by}{channel} at {decision.at:%H:%M:%S} UTC"


PROGRESS: Final = {
    "running": "the run goes on",
    "suspended": "the run waits for another decision",
    "ended": "the run has ended",
    "failed": "the run has stopped on a failure",
    "unknown": "the run was interrupted since",
}


def time_of(at: datetime) -> str:
    """A time, for people."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def ago(seconds: float) -> str:
    """How long ago something was, in the largest unit that fits."""
    for name, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"


def login_name() -> str:
    """Who sits here, as the system knows it."""
    try:
        return getpass.getuser()
    except Exception:  # a user id without a name: OSError, KeyError or ImportError, by release and platform
        return "somebody"
