"""Keeps leases alive while their workers are busy.

A worker claims a branch for a lease of some seconds, and its tools may take minutes. A background thread of the store renews the
leases of all runs that the process drives. When the process dies the thread dies with it, the leases run out, and another worker may
recover the runs. A renewal that fails is tried again: the claim is lost only when another worker has taken it, and then the next
write of this one says so.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Final, Protocol
from weakref import WeakSet, ref

from phronomy.concurrency.starting import start

# Starting a thread costs more than a short run's whole work in a store, and runs often follow each other. Staying for
# ever would keep a store that nobody uses alive.
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
        # One thread for all runs of a store, not one for each: a thousand runs that wait for their tools need a
        # thousand renewals, and no thousand threads.
        self._lease = lease
        self._begin()
        _KEEPERS.add(self)

    def _begin(self) -> None:
        """Begin anew. A forked child has none of its parent's threads and claims, and a lock may have been held by one of them."""
        # By their ids, weakly: of a drive that was cut off where it could not let its run go (a second Ctrl-C, one between the claim
        # and the first step), nothing is left but its ledger. Renewed, the lease would keep everybody from the run as long as the
        # process lives. No `WeakSet`: it calls Python as a ledger goes, and a Ctrl-C that comes there is lost.
        self._ledgers: dict[int, ref[Keepable]] = {}
        # Made anew rather than released: in a child nobody is left who would release it. A plain lock, and no condition: a Ctrl-C
        # in the `__enter__` of one, which is Python, would leave it taken for good. Reentrant: a finalizer may drop a ledger anywhere.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    def hold(self, ledger: Keepable) -> None:
        """Keep this ledger's lease from now on."""
        with self._lock:
            self._ledgers[id(ledger)] = ref(ledger)
            # A daemon, so that a process can end in the middle of a run. Its lease then runs out, as after a crash. One that was cut
            # off as it was to start, or for which there was no room, never lived. While Python ends no thread starts, and `start`
            # would wait for it for ever: a run that a finalizer makes then has its first lease.
            if not sys.is_finalizing() and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._run, name="phronomy-lease", daemon=True)
                start(self._thread)

    def drop(self, ledger: Keepable) -> None:
        """Leave this ledger's lease alone from now on."""
        with self._lock:
            self._ledgers.pop(id(ledger), None)

    def poke(self) -> None:
        """Look at the live ledgers now: somebody in this process has cancelled a run, or decided."""
        # A renewal reads the branch, so it is also how a worker hears that its run was cancelled or handed a decision.
        # Without this it would hear at the next third of its lease.
        with self._lock:
            ledgers = self._living()
        # What was decided is stored, whatever comes of this: its worker reads it with its next write.
        _keep(ledgers)

    def _living(self) -> list[ref[Keepable]]:
        """What is left to renew; the others are forgotten."""
        for id, each in self._ledgers.copy().items():  # a finalizer may drop one meanwhile
            if each() is None:
                self._ledgers.pop(id, None)
        return [*self._ledgers.values()]

    def _run(self) -> None:
        # Three tries within a lease: one lost connection costs nothing. The monotonic clock, since a wall clock that is
        # set back would put the renewal off while other workers see the lease end.
        due = time.monotonic() + self._lease / 3
        never = (
            threading.Event()
        )  # no `time.sleep`: who has that return at once, for a test, would have this run without a pause
        while True:
            # Often enough to see that nothing is left to do; a `hold` in between is early enough at the next third.
            never.wait(min(self._lease / 3, _LINGERS))
            with self._lock:
                ledgers = self._living()
                if not ledgers:
                    # Under the lock, so that a `hold` that comes now either finds the ledger set filled in time, or
                    # starts another thread.
                    self._thread = None
                    return
            if time.monotonic() + 0.001 < due:
                continue
            due = time.monotonic() + self._lease / 3
            # Outside the lock: a renewal is a call of the store, which may take as long as its timeout, and `hold` and
            # `drop` stand on the way of every run.
            _keep(ledgers)  # the store may be away: the next round tries again, and expiry alone loses nothing


def _keep(ledgers: list[ref[Keepable]]) -> None:
    """Renew each lease. Whatever a renewal raises is for nobody to hear."""
    for each in ledgers:
        ledger = each()
        with suppress(Exception):
            if ledger is not None:
                ledger.keep()
        del ledger  # nothing holds it until the next round


_KEEPERS: Final[WeakSet[Keeper]] = WeakSet()


def _after_fork() -> None:
    # The runs that the parent drives are the parent's. A child that renewed them would keep the lease of a dead parent
    # alive, and nobody could recover its runs.
    for keeper in list(_KEEPERS):
        keeper._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
