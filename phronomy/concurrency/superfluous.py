"""Which calls under way are still wanted: others of their wave may have made them superfluous.

Whoever is in the middle of a tool is waited for, so that what it did is on record; a run whose model is asked is left. Nothing of this
is stored: what has become superfluous follows from the record, and so does what a worker does that goes on after a crash.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

from phronomy.concurrency.leaving import Leave

UNNEEDED: Final = "It was not needed any more: "
"""How the result of a call begins that others have made superfluous."""


class Signal:
    """Whether nobody waits for the result of one call any more. It is asked by a body that runs, and waits for nothing itself."""

    __slots__ = ("_path", "_said", "_wanted")

    def __init__(self, wanted: Wanted | None = None, path: str = "") -> None:
        self._wanted, self._path = wanted, path
        self._said = wanted is not None and wanted.why_not(path) is not None

    def set(self) -> None:
        """Nobody waits for it any more."""
        self._said = True

    def is_set(self) -> bool:
        """Whether it was set, or all of the run was called off, or the call dismissed."""
        return self._said or (self._wanted is not None and self._wanted.is_dismissed(self._path))


class Wanted:
    """The calls of a run that are under way, by path, and those of them that are not wanted any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over: dict[str, str] = {}
        self._busy: dict[str, set[str]] = {}
        self._leaves: dict[str, Leave] = {}
        self._dismissed: tuple[str, ...] = ()

    @property
    def asked(self) -> bool:
        """Whether any call is under way that may become superfluous."""
        return bool(self._leaves)

    def why_not(self, path: str) -> str | None:
        """Why what is at a path, or around it, is not wanted any more; None if it is."""
        if not self._over:
            return None
        with self._lock:
            return self._why_not(path)

    def _why_not(self, path: str) -> str | None:
        for over, why in self._over.items():
            if _is_inside(path, over):
                return why
        return None

    def begin(self, owner: str, paths: Iterable[str]) -> bool:
        """Take note, before it is stored, that the run `owner` is about to begin these calls, whose end is to be on record.

        False if the run is not wanted any more: then they are not to begin.
        """
        with self._lock:
            if self._why_not(owner) is not None:
                return False
            if self._leaves and (begun := set(paths)):
                self._busy[owner] = self._busy.get(owner, set()) | begun
        return True

    def stored(self, owner: str, running: Container[str]) -> None:
        """Take note that the end of all calls of the run `owner` is stored, but for those that are running."""
        if owner not in self._busy:
            return
        with self._lock:
            self._busy[owner] = {path for path in self._busy[owner] if path in running}
            if not self._busy[owner]:
                del self._busy[owner]
            left = [leave for path, leave in self._leaves.items() if path in self._over and not self._is_busy(path)]
        for leave in left:
            leave.now()

    def _is_busy(self, path: str) -> bool:
        return any(_is_inside(each, path) for begun in self._busy.values() for each in begun)

    @contextmanager
    def at_work(self, path: str, *, may_be_left: bool, also: Leave | None) -> Iterator[bool]:
        """While a call is under way; False if it is not to begin.

        One that may be left is left when it is dismissed, or `also` says so.
        """
        leave = Leave() if may_be_left else None
        with self._lock:
            wanted = self._why_not(path) is None
            if wanted and leave is not None:
                self._leaves[path] = leave
        try:
            with also.told(leave.now) if also is not None and leave is not None else nullcontext():
                yield wanted
        finally:
            with self._lock:
                if leave is not None and self._leaves.get(path) is leave:
                    del self._leaves[path]

    def leave(self, path: str) -> Leave | None:
        """The signal that the call at a path is left; None if it never is."""
        return self._leaves.get(path)

    def is_dismissed(self, path: str) -> bool:
        """Whether the call at a path was dismissed, or one around it, or all of them."""
        return any(_is_inside(path, over) for over in self._dismissed)

    def dismiss_all(self) -> None:
        """Say that none of the calls is wanted any more, though nobody leaves them."""
        with self._lock:
            self._dismissed = (*self._dismissed, "")

    def note(self, path: str, why: str) -> None:
        """Take note that what is inside the call at a path is not wanted any more, though nobody leaves it."""
        with self._lock:
            self._over.setdefault(path, why)

    def dismiss(self, path: str, why: str) -> None:
        """Say that the call at a path is not wanted any more."""
        with self._lock:
            if path in self._over:
                return
            self._over[path] = why
            self._dismissed = (*self._dismissed, path)
            leave = None if self._is_busy(path) else self._leaves.get(path)
        if leave is not None:
            leave.now()


def _is_inside(path: str, of: str) -> bool:
    """Whether a call is the one at this path, or inside it."""
    return not of or f"{path}/".startswith(f"{of}/")
