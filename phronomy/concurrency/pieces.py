"""Pieces of what a body gives, on their way to whoever watches the run while the body still runs.

They are handed on by a context variable, which threads and tasks inherit: so those of a run inside a call come as well. Nobody waits
for whoever watches: a slow one finds them queued.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any, Final, TypeAlias

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonText
from phronomy.records.calls import Call


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of what a call gives, as JSON text. `path` is that of the run it is of; `attempt` counts from 1."""

    path: str
    call_id: str
    name: str
    attempt: int
    text: JsonText = field(repr=False)


@dataclass(frozen=True, slots=True)
class Inner:
    """An event of the run at `path`, inside a call, on its way to the caller who watches: it stands in the ledger's list."""

    path: str
    moment: Any


@dataclass(frozen=True, slots=True)
class Heard:
    """Something from inside a call is in that list."""


Hear: TypeAlias = Callable[[Piece | Heard], None]
"""Where pieces go. It is called in the thread that the body runs in."""


class Piecewise:
    """The base of tools that can yield pieces while they run. `gives_pieces` says whether a tool does."""

    gives_pieces: bool = False


class Feed:
    """Takes the pieces of one attempt for as long as that is waited for."""

    def __init__(self, hear: Hear, path: str, call: Call) -> None:
        self._lock = threading.Lock()
        self._hear: Hear | None = hear
        self._path = path
        self._call = call

    def give(self, text: JsonText) -> None:
        """Hand a piece on. One that comes too late, from a thread that was left, is dropped."""
        call = self._call
        piece = Piece(self._path, call.call_id, call.name, call.attempt, text)
        with self._lock:
            if self._hear is not None:
                self._hear(piece)

    def close(self) -> None:
        """Take no more."""
        with self._lock:
            self._hear = None


_LISTENER: Final[ContextVar[tuple[object, Hear] | None]] = ContextVar("phronomy_listener", default=None)
_FEED: Final[ContextVar[Feed | None]] = ContextVar("phronomy_feed", default=None)


@contextmanager
def listening(owner: object | None, hear: Hear) -> Iterator[None]:
    """Send the pieces of bodies that begin in the block to `hear`, if they are of runs of this owner. None: nothing changes."""
    if owner is None:
        yield
        return
    before = _LISTENER.set((owner, hear))
    try:
        yield
    finally:
        _LISTENER.reset(before)


@contextmanager
def feeding(owner: object, path: str, call: Call) -> Iterator[None]:
    """The body of this call runs now, and may give pieces.

    A run that the body starts by itself is of another owner: what it gives is none of this one's.
    """
    listener = _LISTENER.get()
    feed = Feed(listener[1], path, call) if listener is not None and listener[0] is owner else None
    before = _FEED.set(feed)
    try:
        yield
    finally:
        _FEED.reset(before)
        if feed is not None:
            feed.close()


def told_on(owner: object) -> None:
    """Let whoever watches know that something of a run inside one of this owner's was heard."""
    listener = _LISTENER.get()
    if listener is not None and listener[0] is owner:
        listener[1](Heard())


def feed_here() -> Feed | None:
    """The feed that takes the pieces of the body that runs here; None if nobody watches."""
    return _FEED.get()
