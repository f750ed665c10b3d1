"""The signals that a node may return instead of a plain update: which nodes follow, and whether any do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

START: Final = "__start__"
"""Where a graph begins: the source of its first edges."""

END: Final = "__end__"
"""Where a graph ends: the target of its last edges."""


@dataclass(frozen=True, slots=True)
class Send:
    """One run of `node` in the next wave, with `arg` in place of the state: any JSON value. A route may give any number."""

    node: str
    arg: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Continue:
    """Take the update, and go on along the edges, as a plain update does."""

    update: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Pause:
    """Take the update, and stop before anything that follows. `resume(checkpoint)` goes on."""

    update: Any = field(default=None, repr=False)
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    """Take the update, and end the run as cancelled, for this reason."""

    update: Any = field(default=None, repr=False)
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Replan:
    """Take the update, and go on at `to` (a node, several, or `END`) instead of along the edges. None: where the graph begins."""

    update: Any = field(default=None, repr=False)
    to: str | tuple[str, ...] | None = None
