"""Keeps leases alive while their workers are busy."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Protocol


class Keepable(Protocol):
    """Something whose lease is to be renewed."""

    def keep(self) -> None: ...


class Keeper:
    """Renews the leases of a store's live ledgers, from one thread that exists only while there is something to renew."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._ledgers: set[Keepable] = set()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def hold(self, ledger: Keepable) -> None:
        """Keep this ledger's lease from now on."""
        with self._wake:
            if self._pid != os.getpid():  # a forked child has none of its parent's threads, and none of its claims
                self._ledgers, self._thread, self._pid = set(), None, os.getpid()
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
        while True:
            with self._wake:
                self._wake.wait(self._lease / 3)
                if not self._ledgers:
                    self._thread = None
                    return
                ledgers = list(self._ledgers)
            for ledger in ledgers:
                with suppress(
                    Exception
                ):  # the store is away: the next round tries again, and expiry alone loses nothing
                    ledger.keep()
