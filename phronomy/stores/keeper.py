"""Keeps leases alive while their workers are busy."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Final, Protocol
from weakref import WeakSet

_LINGERS: Final = 1.0
"""For how many seconds at most a thread that has nothing to renew stays: another run of the store may begin."""


class Keepable(Protocol):
    """Something whose lease is to be renewed."""

    def keep(self) -> None:
        """Renew the lease."""
        ...


class Keeper:
    """Renews the leases of a store's live ledgers, from one thread that exists only while there is something to renew."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._begin()
        _KEEPERS.add(self)

    def _begin(self) -> None:
        """Begin anew. A forked child has none of its parent's threads and claims, and a lock may have been held by one of them."""
        self._ledgers: set[Keepable] = set()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None

    def hold(self, ledger: Keepable) -> None:
        """Keep this ledger's lease from now on."""
        with self._wake:
            self._ledgers.add(ledger)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="phronomy-lease", daemon=True)
                self._thread.start()

    def drop(self, ledger: Keepable) -> None:
        """Leave this ledger's lease alone from now on."""
        with self._wake:
            self._ledgers.discard(ledger)

    def poke(self) -> None:
        """Look at the live ledgers now: somebody in this process has cancelled a run."""
        for ledger in list(self._ledgers):
            ledger.keep()

    def _run(self) -> None:
        due = time.monotonic() + self._lease / 3
        while True:
            with self._wake:
                self._wake.wait(min(self._lease / 3, _LINGERS))
                if not self._ledgers:
                    self._thread = None
                    return
                ledgers = list(self._ledgers)
            if time.monotonic() + 0.001 < due:
                continue
            due = time.monotonic() + self._lease / 3
            for ledger in ledgers:
                with suppress(
                    Exception
                ):  # the store is away: the next round tries again, and expiry alone loses nothing
                    ledger.keep()


_KEEPERS: Final[WeakSet[Keeper]] = WeakSet()


def _after_fork() -> None:
    for keeper in list(_KEEPERS):
        keeper._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
