"""The claim of a worker on a branch, and the log of that branch as far as the worker has seen it.

Many workers may open the same branch at the same time; only one may move it. What keeps them apart is in the store, not here:

- Each write names the length of the log that its writer has seen (`seq`). The store refuses it with `Behind` if somebody wrote since.
  So of two who decide the same approval, one is first, and the other reads what the first has written (law 3).
- The first write takes the claim: an owner, and a fence, which grows with each new owner. Each later write names the fence. A worker
  that was taken for dead, and was not, is refused with `LeaseLost`, however late it comes (law 5).
- A claim is good for the length of a lease. A thread of the store renews it. When a process dies nobody does, and the lease runs out:
  that is all that a crash does here. What was written stands, and `recover` goes on from it.

A lease that has run out takes nothing away by itself. The worker keeps the run until somebody else takes it; only then is it told.

Writes are guarded by the store. Entering a tool is not a write, so it has a guard of its own: `ensure_held` looks at the lease just
before, by two clocks. Without it, a worker that slept for an hour between the stored intent and the body would run a tool that another
worker has long asked a human about.

What the run and the runs nested in it know of each other is in `shared.py`.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final, NoReturn, TypeVar

from phronomy.concurrency.workers import running_loop, whole
from phronomy.engine.shared import Shared
from phronomy.errors import CheckpointNotFound, LeaseLost, StoreError
from phronomy.foundation.cached_property import cached
from phronomy.foundation.lazy_modules import asyncio
from phronomy.records.audit import audit_record, vote_on_new_request
from phronomy.records.calls import Decided, Ending, Outcome, Voted
from phronomy.records.chain import decision_on
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import PendingApproval
from phronomy.records.record import digest_of
from phronomy.stores.base import Store
from phronomy.stores.derived.kept_texts import Naming
from phronomy.stores.log.kept_members import digest_of_text
from phronomy.stores.log.log import audit_row, trail_row
from phronomy.stores.log.reading import read_entry
from phronomy.stores.log.row_delta import outcome_from
from phronomy.stores.native import in_store, on_loop
from phronomy.stores.rows import Append, AuditRow, Behind, Branch, BranchStatus, Claim, Entry, Lineage, PendingRow

_log = logging.getLogger("phronomy")

E = TypeVar("E", threading.Event, "asyncio.Event")

# A clock that nobody sets, and that goes on while the machine sleeps, where there is one: a laptop that was shut for an hour has lost
# its lease, and a monotonic clock that stood still meanwhile would not say so.
uptime: Final = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic

# Ten per cent is three seconds of the usual lease. It costs one renewal, where a pause or a slow machine has brought the worker
# close to the end; it spares the human a call that two workers are in.
MARGIN: Final = 0.1
"""The part of a lease at its end in which the store is asked before anything is entered: clocks differ, and to enter takes time."""


def new_owner() -> str:
    """A name for this worker, fresh for each claim: host, process, and random bits."""
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(8).hex()}"


def now(store: Store) -> datetime:
    """The time by the store's clock, in UTC."""
    return datetime.fromtimestamp(store.clock(), UTC)


def _changing(item: PendingApproval) -> tuple[object, ...]:
    """The parts of a request that may change while it waits."""
    return item.votes, item.reminded, item.approvers, item.digest, item.requested_at


class Ledger:
    """The claim on a branch, and the log as far as this worker has seen it. The first write takes the claim."""

    def __init__(self, store: Store, branch: Branch, head: Checkpoint) -> None:
        self.store = store
        self.branch = branch
        self.shared: Shared = Shared(head)
        self.claim: Claim | None = None
        self.owner: str = new_owner()
        self.seq: int = branch.seq
        self.inbox: list[Outcome] = []  # what others wrote since, for the root to fold in
        # Each with what may become another one while it waits: then it is listed anew.
        self.open_ids: dict[str, object] = {item.id: _changing(item) for item in head.pending}
        self._listed: dict[str, object] = {}
        self.left: bool = False  # whether a decision of somebody else was left for this worker to carry out
        self.owes: bool = False  # whether this worker alone knows that
        # Whether the worker before it was lost: nobody was told what became of the run, but whoever carries it on.
        self.found_lost: bool = branch.status == "running" and (branch.owner is not None or bool(head.journal))
        self._told: set[str | None] = {decision.pending_id for decision in head.decisions}  # None: the run's end
        for outcome in head.journal:
            self.left_here(outcome)
        self._sent: set[str] = set()  # digests of the texts that were kept with the run's rows by this worker
        self._gone = False
        self._pid = os.getpid()
        # By the clock that nobody sets (the lease began when it was asked for, at the latest), and by the store's. The second is there
        # for the worker whose machine was asleep or whose process was frozen while other machines went on.
        self._holds_until = 0.0
        self._lease_until = math.inf
        self._bell: Callable[[], object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def checkpoint_id(self, path: str, step: int) -> str:
        """The id of the checkpoint that this worker seals at that step: no other worker makes it, and it asks for no random bits."""
        # If it were made of the branch and the step alone, two workers that are both at step 7 would name two checkpoints alike, and
        # the one that was refused may have been shown to somebody already.
        return f"ckpt_{digest_of(self.branch.id, self.owner, path, str(step))[:24]}"

    def _hold(self, claim: Claim) -> None:
        self.claim, self._loop = claim, running_loop()
        # From here on the lease is renewed beside whatever runs here: a tool, a model call, user code that does not return.
        self.store.keeper.hold(self)

    # Writing

    def change(
        self,
        entries: Iterable[Entry],
        sealed: Checkpoint | None = None,
        *,
        naming: Naming | None = None,
        status: BranchStatus | None = None,
        release: bool = False,
        audit: tuple[AuditRow, ...] = (),
        announce: bool = False,
    ) -> Append:
        """The write of these entries; `sealed` is the root checkpoint among them, if there is one; `naming` is what they name."""
        # A thread that was left behind by a timeout may come back hours later. It must not take the claim again that its run has
        # been without since.
        if self._is_gone:
            raise self._lost("this worker no longer holds run {}, so what it did since is not recorded")
        opened: list[PendingRow] = []
        naming = naming or self.naming()
        closed: set[str] = set()
        head = None
        if sealed is not None and sealed.path == "":
            # What is listed as pending changes in the same write as the checkpoint that says so. If it came later, a crash in between
            # would leave an approval that nobody finds; if it came first, one that cannot be decided (law 8).
            head, closed = sealed.id, set(self.open_ids)
            for item in sealed.pending:
                self._listed[item.id] = stands = _changing(item)
                # With a vote, say, it is listed anew: closed and opened in one write.
                if self.open_ids.get(item.id) == stands:
                    closed.remove(item.id)
                else:
                    opened.append(naming.request(item, self.branch, sealed.id))
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
            opened=tuple(opened),
            closed=tuple(closed),
            texts=(*naming.texts, *(self._texts() if opened else ())),
            audit=audit,
            announce=announce,
        )

    def naming(self) -> Naming:
        """What the next write may name."""
        return Naming(self.store, self._sent)

    def _texts(self) -> tuple[str, ...]:
        """The schemas to be kept beside new requests: those that this worker has not had kept for the run already."""
        return tuple([text for hash, text in self.shared.texts.items() if hash not in self._sent])

    def audited(self, state: Checkpoint, outcome: Decided | Ending) -> list[AuditRow]:
        """What the audit trail is to say of an outcome; nothing if it has been told, here or at the root."""
        # One decision is recorded in several chains: at the root, which takes it, and in each run that it is handed down to. It is
        # one line in the trail, by its pending id.
        what = outcome.decision.pending_id if isinstance(outcome, Decided) else None
        # One that was taken with the store alone is told a second time, once it is checked: only then is it known what runs by it.
        given = decision_on(state, what) if isinstance(outcome, Decided) else None
        if given is not None and not given.judged and isinstance(outcome, Decided):
            return [audit_row(state, outcome, self.shared.nested)]
        if what in self._told or (isinstance(outcome, Ending) and state.path):
            return []
        self._told.add(what)
        return [audit_row(state, outcome, self.shared.nested)]

    def audited_vote(self, state: Checkpoint, vote: Voted) -> list[AuditRow]:
        """What the audit trail is to say of a vote: told once, where it was cast, or where it was checked."""
        # An edit that was decided at the root, and is put to others inside, is in the trail as that decision.
        given = decision_on(state, vote.decision.pending_id)
        again = [trail_row(each) for each in vote_on_new_request(state, vote)]
        if given is None and vote.decision.pending_id in self._told:
            return again
        return [audit_row(state, vote, self.shared.nested), *again]

    def set_aside(self, state: Checkpoint, outcomes: Iterable[Outcome]) -> list[AuditRow]:
        """List the requests again whose decisions do not count, and return the lines of the audit trail about these decisions."""
        # The writer of the decision has taken the request off the list. It waits on, and others must find it.
        waiting = {item.id for item in state.pending}
        taken = [
            each for each in outcomes if isinstance(each, (Decided, Voted)) and each.decision.pending_id in waiting
        ]
        for each in taken:
            id = each.decision.pending_id
            self.open_ids.pop(id, None)
            self._told.discard(id)
            _log.warning("run %s: a decision on pending %s does not follow, so it does not count", state.run_id, id)
        records = [audit_record(state, each, self.shared.nested) for each in taken]
        return [trail_row(record.evolve(refused=True, ran_digest=None)) for record in records]

    def unaudited(self, rows: Iterable[AuditRow]) -> None:
        """Forget that these lines were written, so that their decisions are written again if they still apply."""
        self._told -= {row.pending_id for row in rows}

    def left_here(self, outcome: Outcome) -> None:
        """Note an outcome that another process wrote.

        That process writes the decision to the audit trail; this worker carries it out.
        """
        if isinstance(outcome, Decided):
            self._told.add(outcome.decision.pending_id)
            self.left = True

    def wrote(self, change: Append, branch: Branch, asked: float) -> None:
        """Take note of a write that is stored; `asked` is when it was begun."""
        self.seq = branch.seq
        # The lease began when it was asked for, at the latest. Counted from the answer, a slow network would make it longer here
        # than it is in the store.
        self._renewed(branch, asked)
        if self.claim is None:
            self._hold(Claim(branch_id=branch.id, run_id=branch.run_id, owner=self.owner, fence=branch.fence))
        self._sent.update(map(digest_of_text, change.texts))
        for pending_id in change.closed:
            self.open_ids.pop(pending_id, None)
        for row in change.opened:
            self.open_ids[row.pending_id] = self._listed.get(row.pending_id)
        # The store notes that something was left for a worker until a checkpoint shows it. From then on this worker alone knows
        # that it is still to be carried out, and says so when it leaves.
        self.owes = self.owes or (self.left and change.head is not None)  # the store forgets it with a checkpoint
        # The claim is given up by the write itself. To renew it after that would be to claim a run that somebody else may have by
        # now.
        if change.release:
            self.drop()

    def begins(self) -> None:
        """Take note that the first write of a run is about to be asked for: the lease that it takes counts from here."""
        self._holds_until = uptime() + self.store.lease
        self._lease_until = self.store.clock() + self.store.lease

    def began(self, change: Append) -> None:
        """Take note that the first write of a run is stored, which takes the claim."""
        self.seq = change.seq + len(change.entries)
        self._sent.update(map(digest_of_text, change.texts))
        self._hold(Claim(branch_id=self.branch.id, run_id=self.branch.run_id, owner=self.owner, fence=1))

    def write(self, make: Callable[[], Append], stored: Callable[[], None]) -> bool:
        """Store what `make` gives, and call `stored` before anybody writes again.

        False if somebody wrote first: then nothing is stored, and `inbox` holds what they wrote.
        """
        # Runs inside calls write side by side, each in its thread. What is to be written is made under the lock, since it names the
        # length of the log: made before, the second of two writes would be refused as if a stranger had been first.
        with self._lock:
            if written := self._write(make):
                stored()
            return written

    def _write(self, make: Callable[[], Append]) -> bool:
        change, asked = make(), uptime()
        try:
            branch = self.store.append(change)
        except Behind:
            self.catch_up()
            self._ensure_whole(change.seq)
            return False
        except CheckpointNotFound as error:
            self._not_there(error)
        self.wrote(change, branch, asked)
        return True

    @cached
    def _alock(self) -> asyncio.Lock:
        return asyncio.Lock()

    async def awrite(self, make: Callable[[], Append], stored: Callable[[], None]) -> bool:
        """As `write`."""
        async with self._alock:
            if written := await self._awrite(make):
                stored()
            return written

    async def _awrite(self, make: Callable[[], Append]) -> bool:
        change, asked = make(), uptime()
        try:
            branch = await on_loop(self.store).append(change)
        except Behind:
            await self.acatch_up()
            self._ensure_whole(change.seq)
            return False
        except CheckpointNotFound as error:
            self._not_there(error)
        self.wrote(change, branch, asked)
        return True

    def _not_there(self, error: CheckpointNotFound) -> NoReturn:
        """Raise what it means that the run is gone. One that is held is not deleted: the claim was lost first, and nobody said so."""
        if self.claim is None and not self._is_gone:
            raise error
        # The keeper, in its thread, may have heard of it a moment before and dropped the claim: it was held all the same.
        self.drop()
        told = (
            "run {} was taken over by another worker, and is deleted by now, so what this one did since is not recorded"
        )
        raise self._lost(told) from None

    # Hearing

    def catch_up(self) -> None:
        """Read what others wrote since this worker last looked."""
        try:
            self._hear(self.store.lineage(branch_id=self.branch.id))
        except CheckpointNotFound as error:
            self._not_there(error)

    async def acatch_up(self) -> None:
        """As `catch_up`."""
        try:
            self._hear(await on_loop(self.store).lineage(branch_id=self.branch.id))
        except CheckpointNotFound as error:
            self._not_there(error)

    def _hear(self, lineage: Lineage) -> None:
        missed = self._missed(lineage)
        self.seq = lineage.branch.seq
        self.inbox += missed
        self.shared.notice(missed)

    def _ensure_whole(self, written: int) -> None:
        """Return if the log has all that this worker has written, up to that entry. Raises `StoreError`."""
        # A database that went back to an earlier state, such as a standby that took over, has a hole there. What is written behind it
        # could never be read.
        if self.seq < written:
            self.drop()
            raise StoreError(
                f"run {self.branch.run_id} is at entry {self.seq} of branch {self.branch.id}, and this worker has written entry"
                f" {written}: the database has lost writes. Call recover to go on from what is left"
            )

    def _missed(self, lineage: Lineage) -> list[Outcome]:
        """What others wrote since. They write outcomes of the root alone: whoever has no claim may leave a decision, and no more."""
        late = [item for item in lineage.entries if item.branch_id == self.branch.id and item.seq > self.seq]
        return [
            read_entry(item, outcome_from, item.body) for item in late if item.checkpoint_id is None and item.path == ""
        ]

    @contextmanager
    def listening(self, heard: E) -> Iterator[E]:
        """Have the event set, from whatever thread, when there is something new in the log that others wrote."""
        is_async = not isinstance(heard, threading.Event)
        loop = asyncio.get_running_loop() if is_async else None
        self._bell = heard.set if loop is None else partial(loop.call_soon_threadsafe, heard.set)
        try:
            yield heard
        finally:
            self._bell = None

    def keep(self) -> None:
        """Renew the lease, and tell the calls that run if the run was cancelled meanwhile. The keeper calls this."""
        # The loop may let the run go at any moment: the claim is read once, and not looked at again.
        claim, asked = self.claim, uptime()
        if claim is None:
            return
        if self._loop is not None and self._loop.is_closed():
            # Nobody can drive the run any more, also where somebody still has its task: it is found as one whose worker died.
            self.drop()
            return
        try:
            branch = self.store.renew(claim)
        except LeaseLost:
            # Another worker has the run. Whatever runs here is told, so that it can stop; what it writes is refused anyway.
            self.drop()
            return
        self._renewed(branch, asked)
        if branch.seq > self.seq and (bell := self._bell) is not None:
            with suppress(RuntimeError):  # its loop is closed: nobody waits any more
                bell()
        # The loop, which may be in a tool for an hour, reads the log with its next write. What it missed stays in the log till then:
        # `seq` is not moved here, or the loop would never fold it in.
        if branch.seq > self.seq and self.shared.ending is None:
            self.shared.notice(self._missed(self.store.lineage(branch_id=self.branch.id)))

    def ensure_held(self) -> None:
        """Return if no other worker can have this run now: the last thing to be asked before a tool is entered. Raises `LeaseLost`.

        What is recorded says what this worker meant to do; a pause since then may have been longer than its lease.
        """
        # Most calls pay nothing here. The store is asked only where the lease may be over by either clock.
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
        if self.claim is None or self._is_gone:
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
        # Two clocks, since each misses something. The clock of the machine may be set back. The one that nobody sets knows nothing
        # of what others saw as the time when they took the run.
        margin = self.store.lease * MARGIN
        if self._is_gone or uptime() + margin >= self._holds_until:
            return True
        return self.store.clock() + margin >= self._lease_until

    def _renewed(self, branch: Branch, asked: float) -> None:
        self._holds_until = asked + self.store.lease
        self._lease_until = branch.lease_until

    def _not_held(self) -> LeaseLost:
        return self._lost(
            "run {} was taken over by another worker, so this one enters no tool of it any more: load the run to see how far it is"
        )

    def _lost(self, told: str) -> LeaseLost:
        if self._pid != os.getpid():
            told = (
                "this process was forked from the one that drives run {}, so nothing that it does here is recorded: a child"
                " that a tool forks ends by os._exit, or is made by `subprocess` or `multiprocessing`"
            )
        run_id = self.branch.run_id
        return LeaseLost(told.format(run_id), run_id=run_id, branch_id=self.branch.id)

    # Letting go

    @property
    def _is_gone(self) -> bool:
        """Whether this worker may do nothing for the run any more."""
        # A child that a tool forks has a copy of all this, and what ends it (`sys.exit`, an error) may come up to here. The run is
        # its parent's, which is still in the tool: the child writes nothing, enters nothing, and gives nothing up.
        return self._gone or self._pid != os.getpid()

    def drop(self) -> None:
        """Stop keeping the lease, and write no more: a thread that was left behind must not take the run again."""
        # First, and both at once: whoever writes from another thread in this instant is to see it. A Ctrl-C that came between the two
        # would leave a claim that is renewed and that nothing can be written by.
        self._gone, self.claim = True, None
        self.shared.lose()
        self.store.keeper.drop(self)

    def abandon(self, status: BranchStatus) -> None:
        """Give up the claim of a run that is not at a stop, so that nobody has to wait until the lease expires.

        An interrupted write may have taken the claim without our knowledge, so the store is asked.
        """
        # A claim that was lost is not released: the one in the store is of another worker now, and the fence keeps us from it, but
        # there is nothing to ask for.
        if not self._is_gone:
            claim = self.claim
            self.drop()
            release(self.store, self.branch.id, self.owner, claim, status)

    async def aabandon(self, status: BranchStatus) -> None:
        """As `abandon`."""
        if not self._is_gone:
            claim = self.claim
            self.drop()
            await whole(arelease(self.store, self.branch.id, self.owner, claim, status))


def release(store: Store, branch_id: str, owner: str, claim: Claim | None, status: BranchStatus) -> None:
    """Release a claim; where it is not known whether the owner has one, look."""
    # The first write was interrupted, and may have been stored all the same. The owner is a name of this claim alone, so what the
    # store says of it is about us.
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
