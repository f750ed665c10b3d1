"""The signals that a node may return instead of a plain update: which nodes follow, and whether any do."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

from phronomy.foundation.dataclasses import dataclass

START: Final = "__start__"
"""The start of a graph: the source of its first edges."""

END: Final = "__end__"
"""The end of a graph: the target of its last edges."""


@dataclass(frozen=True, slots=True)
class Send:
    """Run `node` once in the next wave, with `arg` (any JSON value) in place of the state.

    A route can return any number.
    """

    node: str
    arg: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Continue:
    """Merge the update, and follow the edges, as after a plain update."""

    update: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Pause:
    """Merge the update, and stop before the next wave. `resume(checkpoint)` continues."""

    update: Any = field(default=None, repr=False)
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    """Merge the update, and end the run as cancelled, with this reason."""

    update: Any = field(default=None, repr=False)
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Replan:
    """Merge the update, and go on at `to` (a node, several nodes, or `END`), whatever the edges say.

    If `to` is None, the run goes on at the start of the graph.
    """

    update: Any = field(default=None, repr=False)
    to: str | tuple[str, ...] | None = None
