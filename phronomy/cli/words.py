"""The exit statuses of the command line, and its sentences about errors, decisions and times."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from phronomy.errors import AgentChanged, ApprovalExpired, CheckpointAlreadyResumed, PhronomyError, RequestExpired
from phronomy.foundation.durations import duration
from phronomy.records.approvers import Vote
from phronomy.records.audit import AuditRecord
from phronomy.records.decisions import SAID, Decision

DONE: Final = 0
FAILED: Final = 1
MISUSED: Final = 2
PENDING: Final = 3
LAPSED: Final = 4
VOTED: Final = 5
INTERRUPTED: Final = 130


_INBOX: Final = frozenset({"jinja2", "joserfc", "starlette", "uvicorn"})
"""What the extra `inbox` installs."""


class WrongUsage(Exception):
    """The command line contradicts itself, or names what cannot be meant."""


@contextmanager
def needs_inbox() -> Iterator[None]:
    """Say what to install, where what the inbox is made of is missing. Raises `WrongUsage`."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _INBOX:
            raise
        raise WrongUsage(f"this needs {name}: pip install 'phronomy[inbox]'") from None


def explained(error: Exception, command: str) -> str:
    """The error in one sentence."""
    if isinstance(error, CheckpointAlreadyResumed) and error.decision is not None:
        if error.decision.kind == "expire":
            return f"nobody decided this in time: it {who_decided(error.decision)}; {PROGRESS[error.progress]}"
        return f"this was decided before: {who_decided(error.decision)}; {PROGRESS[error.progress]}"
    if isinstance(error, ApprovalExpired):
        waits = ", ".join(item.id for item in error.result.checkpoint.pending) if error.result.suspended else ""
        told = f"waits for a decision on {waits}" if waits else f"is {error.result.status}"
        return f"{', '.join(error.pending_ids)} lapsed before this decision came, so it did not count; the run {told}"
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


def status_of(error: Exception) -> int:
    """Gives the exit status of the command line for an error."""
    decision = error.decision if isinstance(error, CheckpointAlreadyResumed) else None
    if isinstance(error, ApprovalExpired | RequestExpired) or (decision is not None and decision.kind == "expire"):
        return LAPSED
    return MISUSED if isinstance(error, WrongUsage) or getattr(error, "exit_code", None) == MISUSED else FAILED


def who_decided(decision: Decision | AuditRecord) -> str:
    """Describes a decision: what, by whom, and when."""
    at = f"{decision.at.astimezone(UTC):%H:%M:%S}"
    if decision.kind == "expire":
        return f"lapsed at {at} UTC"
    is_edited = decision.edited if isinstance(decision, AuditRecord) else decision.args is not None
    by = f" by {by_whom(decision)}" if decision.by is not None else ""
    channel = f" ({decision.channel})" if decision.channel else ""
    edited = ", with edited arguments," if is_edited else ""
    return f"{SAID[decision.kind]}{edited}{by}{channel} at {at} UTC"


def by_whom(decided: Decision | AuditRecord | Vote) -> str:
    """Names who decided or voted, and for whom."""
    if decided.by is None:
        return "somebody"
    behalf_of = decided.behalf_of
    instead = f" for {behalf_of.name or behalf_of.id}" if behalf_of is not None else ""
    return f"{decided.by.name or decided.by.id}{instead}"


def was_decided(decision: Decision | AuditRecord) -> str:
    """As `who_decided`, to stand behind what was decided."""
    return who_decided(decision) if decision.kind == "expire" else f"was {who_decided(decision)}"


PROGRESS: Final = {
    "running": "the run goes on",
    "suspended": "the run waits: for another decision, or for a worker",
    "ended": "the run has ended",
    "failed": "the run has stopped on a failure",
    "unknown": "the run was interrupted since",
}


def time_of(at: datetime) -> str:
    """A time, for people."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


TIME: Final = "TIME UTC"
"""The head of a column of `times_of`."""


def times_of(moments: Sequence[datetime], *, whole: bool = False) -> list[str]:
    """The times of a list in UTC: of one day without the day, unless they are wanted whole."""
    found = [at.astimezone(UTC) for at in moments]
    alike = len({at.date() for at in found}) < 2 and not whole
    return [f"{at:%H:%M:%S}" if alike else f"{at:%Y-%m-%d %H:%M:%S}" for at in found]


def ahead(seconds: float) -> str:
    """Gives the time until a moment, in the largest unit that fits; "over" if it is past."""
    return "over" if seconds <= 0 else f"in {duration(seconds) or 'a moment'}"


_AGE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd]?)", re.ASCII)
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_LONGEST: Final = 36_500 * 86_400


def age(text: str) -> float:
    """The seconds in `90`, `10m`, `2h` or `3d`. Raises `WrongUsage`."""
    found = _AGE.fullmatch(text)
    if found is None or (seconds := float(found[1]) * _UNITS[found[2]]) > _LONGEST:
        raise WrongUsage(f"{text!r} is no age: write seconds, or 10m, 2h, 3d")
    return seconds


def moment_of(text: str, now: float, *, ahead: bool = False) -> float:
    """The time, in seconds since the epoch, that an age or an ISO 8601 date or time means. Raises `WrongUsage`.

    With `ahead`, an age is the time from now, and not since.
    """
    if (found := _AGE.fullmatch(text)) is not None and found[2]:
        return now + age(text) if ahead else now - age(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        span = "a time from now" if ahead else "an age"
        raise WrongUsage(f"{text!r} is no time: write 2026-11-21, 2026-11-21T15:00:00Z, or {span} such as 2h") from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def ahead_of(text: str, now: float) -> datetime:
    """The time that an ISO 8601 date or time means, or a duration from now such as `14d`. Raises `WrongUsage`."""
    at = moment_of(text, now, ahead=True)
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError):  # a day before the first year, or after the last, in UTC
        raise WrongUsage(f"{text!r} is too far away") from None


def login_name() -> str:
    """Gives the user's name, as the system knows it."""
    try:
        return getpass.getuser()
    except Exception:  # a user id without a name: OSError, KeyError or ImportError, by release and platform
        return "somebody"


def hint_of_path(url: str, channel: str) -> str | None:
    """What is probably wrong with the address to which a platform sends; None for nothing. A channel may have another name."""
    path = url.partition("://")[2].partition("?")[0].partition("/")[2]
    if path.rstrip("/").rpartition("/")[2] == channel:
        return None
    return f"The address does not end with /{channel}: its end is the name of the channel, {channel} unless you chose another."


_UUID: Final = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ALIASES: Final = {
    "discord": (r"\d+", "discord:400000000000000001"),
    "email": (
        r"[^\s<>@]+@[^\s<>@A-Z]+",
        "email:rita@example.org, with the domain in small letters and nothing around it",
    ),
    "slack": (r"([TE][A-Z0-9]+:)?[UW][A-Z0-9]+", "slack:U0123456789"),
    "teams": (f"{_UUID}:{_UUID}", "teams:TENANT:OBJECT-ID, two ids in small letters"),
    "telegram": (r"\d+", "telegram:5000000007"),
    "webhook": ("[^:]+:.+", "webhook:erp:17"),
}
"""What aliases look like in the channels of phronomy, and an example of each."""


def hint_of_alias(alias: str) -> str | None:
    """Why probably nobody is ever known by an alias; None if it looks right. A channel may have another name, or be your own."""
    channel, colon, rest = alias.partition(":")
    if not colon:
        return (
            f"{alias!r} is no id of a channel: an alias begins with the name of its channel, such as slack:U0123456789."
        )
    if channel not in _ALIASES:
        return f"There is no channel {channel!r} unless you gave one this name: phronomy's are {', '.join(_ALIASES)}."
    form, example = _ALIASES[channel]
    return None if re.fullmatch(form, rest) else f"Nobody has the alias {alias!r}: it looks like {example}."
