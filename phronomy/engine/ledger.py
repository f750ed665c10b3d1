"""A worker's hold on one branch of a run: it writes the log in order, keeps the lease, and hears what others wrote.

One ledger serves the run and all runs nested in it. A crash here loses the lease to time and nothing else: what was written stands.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakSet

from phronomy.concurrency.leaving import Leave
from phronomy.concurrency.pieces import Inner
from phronomy.concurrency.superfluous import Wanted
from phronomy.concurrency.workers import whole
from phronomy.errors import CheckpointNotFound, LeaseLost
from phronomy.records.calls import CallResult, Decided, Ending, Halted, Outcome
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision
from phronomy.records.record import digest_of
from phronomy.stops.breakpoints import Breakpoint
from phronomy.stores.base import Store
from phronomy.stores.log.log import audit_row, pending_rows
from phronomy.stores.log.row_delta import outcome_from
from phronomy.stores.native import in_store, on_loop
from phronomy.stores.rows import Append, AuditRow, Behind, Branch, BranchStatus, Claim, Entry, Lineage, PendingRow

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", threading.Event, asyncio.Event)

_NOTHING: Final = nullcontext()

# A clock that nobody sets, and that goes on while the machine sleeps, where there is one.
uptime: Final = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic

MARGIN: Final = 0.1
"""The part of a lease at its end in which the store is asked before anything is entered: clocks differ, and to enter takes time."""


def _unheard(path: str, model: Any, said: Any) -> None:
    """Nobody looks on."""


def new_owner() -> str:
    """A name for this worker, fresh for each claim: host, process, and random bits."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"


def now(store: Store) -> datetime:
    """The time by the store's clock, in UTC."""
    return datetime.fromtimestamp(store.clock(), UTC)


class Ledger:
    """The hold on a branch, and the log as far as this worker has seen it. The first write takes the claim.

    `reusable` are the results that calls of this run have in other branches, by idempotency key; `begun` are the keys of calls
    whose outcome in another branch nobody knows.
    """

    def __init__(
        self, store: Store, branch: Branch, head: Checkpoint, *, claim: Claim | None = None, asked: float = 0.0
    ) -> None:
        self.store = store
        self.branch = branch
        self.claim: Claim | None = None
        self.owner: str = claim.owner if claim is not None else new_owner()
        self.seq: int = branch.seq
        self.inbox: list[Outcome] = []
        self.ending: Ending | None = None
        self.halted: Halted | None = None
        self.breakpoints: Iterable[Breakpoint] = ()  # of the call that drives the run, for the runs inside it as well
        self.leave: Leave = Leave()
        self.over: Leave = Leave()  # for those who wait for a model: the run was ended, or this worker has it no longer
        self._leave_by = math.inf
        self.reusable: dict[str, CallResult] = {}
        self.surround: Callable[[str, str], AbstractContextManager[Any]] | None = None
        self.exchanged: Callable[[str, Any, Any], object] = (
            _unheard  # a path, the model there, what it is asked or replies
        )
        self.hear: Callable[[Any], object] | None = None  # what runs inside calls give
        self.heard: deque[Inner] | None = None  # the same, for whoever streams the run, in the order of the log
        self.begun: set[str] = set()
        self.refused: dict[str, Decision] = {}  # what a human refused for good, wherever in the run, by pending id
        self.ended_by: Decision | None = None  # what a human refused so that all of the run ends
        self.nested: dict[str, Checkpoint] = {part.path: part for part in head.nested}
        self.open_ids: set[str] = {item.id for item in head.pending}
        self.left: bool = False  # whether a decision of somebody else was left for it
        self.owes: bool = False  # whether it alone knows that
        # Whether the worker before it was lost: nobody was told what became of the run, but whoever carries it on.
        self.found_lost: bool = (
            claim is None and branch.status == "running" and (branch.owner is not None or bool(head.journal))
        )
        self._told: set[str | None] = {decision.pending_id for decision in head.decisions}  # None: the run's end
        for outcome in head.journal:
            self.left_here(outcome)
        self._signals: WeakSet[threading.Event] = WeakSet()
        self.wanted: Wanted = Wanted()
        self.driven: dict[str, Any] = {}  # the runners of runs inside calls, by path
        self._gone = False
        # By the clock that nobody sets (the lease began when it was asked for, at the latest), and by the store's.
        self._holds_until = asked + store.lease
        self._lease_until = math.inf
        self._bell: Callable[[], object] | None = None
        self._lock = threading.Lock()
        self._alock = asyncio.Lock()
        if claim is not None:
            self._hold(claim)

    def checkpoint_id(self, path: str, step: int) -> str:
        """The id of the checkpoint that this worker seals at that step: no other worker makes it, and it asks for no random bits."""
        return f"ckpt_{digest_of(self.branch.id, self.owner, path, str(step))[:24]}"

    def around(self, path: str, call_id: str) -> AbstractContextManager[Any]:
        """What whoever looks on puts around the body of a call."""
        return _NOTHING if self.surround is None else self.surround(path, call_id)

    def _hold(self, claim: Claim) -> None:
        self.claim = claim
        self.store.keeper.hold(self)

    # Writing

    def change(
        self,
        entries: Iterable[Entry],
        sealed: Checkpoint | None = None,
        *,
        status: BranchStatus | None = None,
        release: bool = False,
        audit: tuple[AuditRow, ...] = (),
        announce: bool = False,
    ) -> Append:
        """The write of these entries; `sealed` is the root checkpoint among them, if there is one."""
        if self._gone:
            raise LeaseLost(
                f"this worker no longer holds run {self.branch.run_id}, so what it did since is not recorded",
                run_id=self.branch.run_id,
                branch_id=self.branch.id,
            )
        opened: tuple[PendingRow, ...] = ()
        closed: tuple[str, ...] = ()
        head = None
        if sealed is not None and sealed.path == "":
            rows = pending_rows(sealed, self.branch.label)
            opened = tuple(row for row in rows if row.pending_id not in self.open_ids)
            closed = tuple(self.open_ids - {row.pending_id for row in rows})
            head = sealed.id
        return Append(
            branch_id=self.branch.id,
            seq=self.seq,
            entries=tuple(entries),
            claim=self.claim,
            take=self.owner if self.claim is None else None,
            lease=self.store.lease,
            release=release,
            head=head,
            status=status,
            opened=opened,
            closed=closed,
            audit=audit,
            announce=announce,
        )

    def audited(self, state: Checkpoint, outcome: Decided | Ending) -> list[AuditRow]:
        """What the audit trail is to say of an outcome; nothing if it has been told, here or at the root."""
        what = outcome.decision.pending_id if isinstance(outcome, Decided) else None
        if what in self._told or (isinstance(outcome, Ending) and state.path):
            return []
        self._told.add(what)
        return [audit_row(state, outcome, self.nested)]

    def unaudited(self, rows: Iterable[AuditRow]) -> None:
        """These lines are not written after all: what they tell of is to be said again, if it still applies."""
        self._told -= {row.pending_id for row in rows}

    def left_here(self, outcome: Outcome) -> None:
        """Somebody else wrote this. A decision is told to the audit trail by whoever takes it, and carried out by this worker."""
        if isinstance(outcome, Decided):
            self._told.add(outcome.decision.pending_id)
            self.left = True

    def wrote(self, change: Append, branch: Branch, asked: float) -> None:
        """Take note of a write that is stored; `asked` is when it was begun."""
        self.seq = branch.seq
        self._renewed(branch, asked)
        if self.claim is None:
            self._hold(Claim(branch_id=branch.id, run_id=branch.run_id, owner=self.owner, fence=branch.fence))
        self.open_ids = (self.open_ids - set(change.closed)) | {row.pending_id for row in change.opened}
        self.owes = self.owes or (self.left and change.head is not None)  # the store forgets it with a checkpoint
        if change.release:
            self.drop()

    def write(self, make: Callable[[], Append], stored: Callable[[], None]) -> bool:
        """Store what `make` gives, and call `stored` before anybody writes again.

        False if somebody wrote first: then nothing is stored, and `inbox` holds what they wrote.
        """
        with self._lock:
            if written := self._write(make):
                stored()
            return written

    def _write(self, make: Callable[[], Append]) -> bool:
        change, asked = make(), uptime()
        with self._still_there():
            try:
                branch = self.store.append(change)
            except Behind:
                self.catch_up()
                return False
        self.wrote(change, branch, asked)
        return True

    async def awrite(self, make: Callable[[], Append], stored: Callable[[], None]) -> bool:
        """As `write`. A cancellation meanwhile is raised once it is known what became of the write."""
        async with self._alock:
            if written := await whole(self._awrite(make)):
                stored()
            return written

    async def _awrite(self, make: Callable[[], Append]) -> bool:
        change, asked = make(), uptime()
        with self._still_there():
            try:
                branch = await on_loop(self.store).append(change)
            except Behind:
                await self.acatch_up()
                return False
        self.wrote(change, branch, asked)
        return True

    @contextmanager
    def _still_there(self) -> Iterator[None]:
        """A run is not deleted while it is held: of one that is gone, the claim was lost first, though nobody said so."""
        try:
            yield
        except CheckpointNotFound:
            if self.claim is None and not self._gone:
                raise
            # The keeper, in its thread, may have heard of it a moment before and dropped the claim: it was held all the same.
            self.drop()
            raise LeaseLost(
                f"run {self.branch.run_id} was taken over by another worker, and is deleted by now, so what this one did since"
                " is not recorded",
                run_id=self.branch.run_id,
                branch_id=self.branch.id,
            ) from None

    # Hearing

    def catch_up(self) -> None:
        """Read what others wrote since this worker last looked."""
        with self._still_there():
            self._hear(self.store.lineage(branch_id=self.branch.id))

    async def acatch_up(self) -> None:
        """As `catch_up`."""
        with self._still_there():
            self._hear(await on_loop(self.store).lineage(branch_id=self.branch.id))

    def _hear(self, lineage: Lineage) -> None:
        missed = self._missed(lineage)
        self.seq = lineage.branch.seq
        self.inbox += missed
        self._notice(missed)

    def _missed(self, lineage: Lineage) -> list[Outcome]:
        late = [item for item in lineage.entries if item.branch_id == self.branch.id and item.seq > self.seq]
        return [outcome_from(item.body) for item in late if item.checkpoint_id is None and item.path == ""]

    def _notice(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Ending):
                self.ending = outcome
                self._signal_all()
            elif isinstance(outcome, Decided) and outcome.decision.ends_all:
                self.end_by(outcome.decision)
            elif isinstance(outcome, Halted):
                self.halted = self.halted or outcome
                by = math.inf if outcome.grace is None else outcome.at.timestamp() + outcome.grace
                if (
                    outcome.grace is not None and by < self._leave_by
                ):  # of several, whoever is in more of a hurry counts
                    self._leave_by = by
                    self.leave.after(outcome.grace)

    def end_by(self, decision: Decision) -> None:
        """Take note of a refusal that ends all of the run: no model is waited for any more."""
        self.ended_by = decision
        self.over.now()

    def signal(self, path: str) -> threading.Event:
        """A new event for the call at a path, set when nobody waits for its result any more."""
        event = threading.Event()
        self._signals.add(event)
        self.wanted.hear(event, path)
        if self._gone or self.ending is not None:
            event.set()
        return event

    def _signal_all(self) -> None:
        self.over.now()
        for event in list(self._signals):
            event.set()

    @contextmanager
    def listening(self, heard: E) -> Iterator[E]:
        """Have the event set, from whatever thread, when there is something new in the log that others wrote."""
        is_async = isinstance(heard, asyncio.Event)
        loop = asyncio.get_running_loop() if is_async else None
        self._bell = heard.set if loop is None else partial(loop.call_soon_threadsafe, heard.set)
        try:
            yield heard
        finally:
            self._bell = None

    def keep(self) -> None:
        """Renew the lease, and tell the calls that run if the run was cancelled meanwhile. The keeper calls this."""
        claim, asked = self.claim, uptime()
        if claim is None:
            return
        try:
            branch = self.store.renew(claim)
        except LeaseLost:
            self.drop()
            return
        self._renewed(branch, asked)
        if branch.seq > self.seq and (bell := self._bell) is not None:
            with suppress(RuntimeError):  # its loop is closed: nobody waits any more
                bell()
        if branch.seq > self.seq and self.ending is None:
            self._notice(self._missed(self.store.lineage(branch_id=self.branch.id)))

    def ensure_held(self) -> None:
        """Return if no other worker can have this run now: the last thing to be asked before a tool is entered. Raises `LeaseLost`.

        What is recorded says what this worker meant to do; a pause since then may have been longer than its lease.
        """
        if self._may_be_over():
            claim, asked = self._claimed(), uptime()
            with self._dropped_if_lost():
                self._renewed(self.store.renew(claim), asked)

    async def aensure_held(self) -> None:
        """As `ensure_held`."""
        if self._may_be_over():
            claim, asked = self._claimed(), uptime()
            with self._dropped_if_lost():
                self._renewed(await in_store(self.store, self.store.renew, claim), asked)

    def _claimed(self) -> Claim:
        if self.claim is None:
            raise self._not_held()
        return self.claim

    @contextmanager
    def _dropped_if_lost(self) -> Iterator[None]:
        try:
            yield
        except LeaseLost:
            self.drop()
            raise self._not_held() from None

    def _may_be_over(self) -> bool:
        margin = self.store.lease * MARGIN
        if self._gone or uptime() + margin >= self._holds_until:
            return True
        return self.store.clock() + margin >= self._lease_until

    def _renewed(self, branch: Branch, asked: float) -> None:
        self._holds_until = asked + self.store.lease
        self._lease_until = branch.lease_until

    def _not_held(self) -> LeaseLost:
        return LeaseLost(
            f"run {self.branch.run_id} was taken over by another worker, so this one enters no tool of it any more:"
            " load the run to see how far it is",
            run_id=self.branch.run_id,
            branch_id=self.branch.id,
        )

    # Letting go

    def drop(self) -> None:
        """Stop keeping the lease, and write no more: a thread that was left behind must not take the run again."""
        self._gone = True
        self.leave.after(None)
        self._signal_all()
        self.store.keeper.drop(self)
        self.claim = None

    def abandon(self, status: BranchStatus) -> None:
        """Give the claim up with the run not at a stop, so that whoever resumes it need not wait for the lease to expire.

        A write that was interrupted may have taken the claim without our knowing: the store is asked then.
        """
        if not self._gone:
            claim = self.claim
            self.drop()
            release(self.store, self.branch.id, self.owner, claim, status)

    async def aabandon(self, status: BranchStatus) -> None:
        """As `abandon`."""
        if not self._gone:
            claim = self.claim
            self.drop()
            await whole(arelease(self.store, self.branch.id, self.owner, claim, status))


def release(store: Store, branch_id: str, owner: str, claim: Claim | None, status: BranchStatus) -> None:
    """Release a claim; where it is not known whether the owner has one, look."""
    if claim is None:
        branch = store.lineage(branch_id=branch_id).branch
        if branch.owner != owner:
            return
        claim = Claim(branch_id=branch_id, run_id=branch.run_id, owner=owner, fence=branch.fence)
    store.release(claim, status)


async def arelease(store: Store, branch_id: str, owner: str, claim: Claim | None, status: BranchStatus) -> None:
    """As `release`."""
    if claim is None:
        branch = (await on_loop(store).lineage(branch_id=branch_id)).branch
        if branch.owner != owner:
            return
        claim = Claim(branch_id=branch_id, run_id=branch.run_id, owner=owner, fence=branch.fence)
    await on_loop(store).release(claim, status)
