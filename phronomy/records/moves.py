"""The moves that rules plan: what a driver is to do next. The union is closed."""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonValue
from phronomy.records.calls import Call, End, Looked
from phronomy.records.decisions import PendingApproval

# Moves. They are never stored, so they are plain dataclasses.


@dataclass(frozen=True, slots=True, kw_only=True)
class AskModel:
    """Ask the model for the next message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Ask the guardrails about the input, or about the reply that is to end the run."""

    stage: Looked


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Validate the arguments of these calls and ask their gates."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consult:
    """Ask the synchronous approval handler about these calls."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Run these calls, side by side. Each has been judged, and approved where it had to be."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """End the run so."""

    status: End
    output: JsonValue = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOutput:
    """Read the output that was asked for from the reply that ends the run."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """Make the answer of the run of the result of this call. All calls of the reply have settled."""

    call: Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Stop with a failure: a limit of the run is reached. Nothing is recorded but that it failed.

    `used` is how much of it the run has used, None where that is not known; `path` is that of the run whose limit it is, None for
    the run itself.
    """

    limit: str
    maximum: float
    used: float | None
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """Every open call has settled: have the spec say what follows from that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Stop with a failure: these calls failed, and are run again when the run is resumed."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing can be done until these are decided, or until calls that run elsewhere have settled."""

    pending: tuple[PendingApproval, ...]
    running: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The run has ended."""

    status: End


Move: TypeAlias = (
    AskModel | Guard | Judge | Consult | Run | Return | ReadOutput | Advance | Finish | Fail | Stop | Wait | Done
)
