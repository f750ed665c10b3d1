"""Holding a run while it is driven: taking it, letting it go whatever happens, and telling whoever watches."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import (
    AbstractContextManager,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from phronomy.concurrency.aclosing import aclosing, acontextmanager
from phronomy.concurrency.pieces import Heard, Piece
from phronomy.concurrency.workers import in_same_loop, whole
from phronomy.engine.drive import asteps, begin, steps
from phronomy.engine.ledger import now
from phronomy.engine.run import Asking, Moment, Runner, Written, withdrawn
from phronomy.errors import RunFailed
from phronomy.models.base import Model, ModelReply, ModelRequest
from phronomy.models.settings import ModelSettings
from phronomy.observability import hooks
from phronomy.observability.announcements import aannounce, announce, hears_requests
from phronomy.observability.masking import Masking
from phronomy.records.calls import CallStarted, Interrupted
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.moves import Wait
from phronomy.records.result import Result
from phronomy.rules.reminders import next_due
from phronomy.runs.finding import results
from phronomy.stops.interrupts import nobody_asks
from phronomy.stores import dispatch
from phronomy.stores.log.log import journal_entry
from phronomy.stores.native import in_store
from phronomy.stores.rows import Append, Behind, BranchStatus, Claim, Held

if TYPE_CHECKING:
    from phronomy.observability.events import Event, Reader

_log = logging.getLogger("phronomy")


def claim(runner: Runner) -> bool:
    """Take the run, storing what was recorded on it in the same write. False if somebody was first: look again."""
    # Here, so that it is in the same write: a worker that recovers the run must not have the scopes that the caller took away.
    runner.narrow()
    try:
        # What was decided and the right to act on it are one write. With two, a crash in between would leave a decision that nobody
        # carries out, or a claim with nothing decided (law 3). What is begun by it follows in the same write.
        return runner.commit(seal=runner.dirty, intents=begin(runner))
    # Another worker has taken the run since it was opened. It is opened anew, so that it is seen what that worker did with it.
    except Held:
        return False
    except BaseException as error:
        leave(runner, error)
        raise


async def aclaim(runner: Runner) -> bool:
    """As `claim`."""
    runner.narrow()
    try:
        return await runner.acommit(seal=runner.dirty, intents=begin(runner))
    except Held:
        return False
    except GeneratorExit:  # garbage of a loop that was closed: nothing can be awaited here, and the lease runs out
        runner.ledger.drop()
        raise
    except BaseException as error:
        await aleave(runner, error)
        raise


class Watch:
    """Reads events off what a run does, and tells them to the agent's hooks and to the log. Does nothing if nobody listens."""

    def __init__(self, runner: Runner, *, streams: bool) -> None:
        self.first: list[Event] = []
        self.failure: Event | None = None  # the event of the failure that ended it
        self.is_driven: Callable[[], bool] = in_same_loop()
        self._hooks = runner.spec.hooks
        # Where nobody listens no event is made. Most runs have neither a hook nor a stream, and their writes are not read once more
        # for nothing.
        self._live = streams or bool(self._hooks) or _log.isEnabledFor(logging.INFO)
        self._lock = threading.Lock()
        self._begun = (runner.ledger.branch.id, runner.origin, runner.origin_seq)
        self._inner: Reader | None = None
        self._ledger = runner.ledger
        # A stream gives what happens inside calls in the order of the log, so it is collected where it is written. Hooks are called
        # where it happens, each in the thread of its call.
        if streams:
            runner.shared.heard = deque()
        if self._hooks:
            self._listen(runner)
        if self._live:
            # Events begin where the run stood before this call, so that what was decided with it is among them.
            base, seq = runner.origin, runner.origin_seq
            self._reader = _reader(runner.ledger.branch.id, None if runner.begins else base, seq=seq)
            # The first checkpoint was written before there was anybody to hear of it.
            if runner.begins:
                self.first += self._reader.checkpoint(seq, base)
                self._tell(self.first)
            self.first += self.hear(runner.written)

    def _listen(self, runner: Runner) -> None:
        """Have hooks told of what happens inside calls; of bodies and exchanges only where one of them wants that."""
        runner.shared.hear = self.hear_inside
        if any(type(each).running is not hooks.Hooks.running for each in self._hooks):
            runner.shared.surround = partial(hooks.around_call, self._hooks, runner.ledger.branch.id)
        if any(type(each).exchanged is not hooks.Hooks.exchanged for each in self._hooks):
            runner.shared.exchanged = self.exchanged

    def hear(self, moment: Moment) -> list[Event]:
        """The events in what the loop gave."""
        if not self._live:
            return []
        inside = list(self._inside(moment))
        if isinstance(moment, Heard):
            return inside
        if not isinstance(moment, Written | Asking):
            return [*inside, self._reader.piece(moment)]
        found = _read(self._reader, moment)
        self._tell(found)
        return inside + found

    def _inside(self, before: Moment) -> Iterator[Event]:
        """The events of what was heard from inside calls, as far as it was before this."""
        heard = self._ledger.shared.heard
        # The runs inside write side by side with the run itself. What they stored after this moment belongs behind it.
        while heard:
            moment = heard[0].moment
            if isinstance(before, Written) and isinstance(moment, Written) and moment.seq > before.seq:
                return
            path = heard.popleft().path
            if isinstance(moment, Written | Asking):
                yield from _read(self._reader, moment)
            elif not isinstance(moment, Heard):
                yield self._reader.piece(moment, path)

    def hear_inside(self, moment: Moment) -> None:
        """Tell hooks of what the runs inside calls did; of several at once, each in its own thread."""
        if not isinstance(moment, Written | Asking):
            return
        # Calls run side by side, each in its thread, and a reader counts the places in the log. Two readers: the one of the stream
        # must not wait for a hook.
        with self._lock:  # a reader of its own: the places of what the run itself gives stay in order
            if self._inner is None:
                branch_id, base, seq = self._begun
                self._inner = _reader(branch_id, base, seq=seq)
            found = _read(self._inner, moment)
        self._tell(found)

    def exchanged(self, path: str, model: Model, said: ModelRequest | ModelReply) -> None:
        """Tell hooks what a model is asked, with the settings that it adds, or what it replied."""
        for each in self._hooks:
            try:
                # As the provider gets it. What the model adds by itself is part of what it was asked.
                told = with_own_settings(model, said) if isinstance(said, ModelRequest) else said
                each.exchanged(self._ledger.branch.id, path, told)
            except Exception as error:
                hooks.raised(each, error, "on an exchange")

    def failed(self, error: BaseException) -> Event | None:
        """The event of a failure."""
        if not self._live:
            return None
        event = self._reader.failed(error)
        self._tell([event])
        return event

    def _tell(self, events: list[Event]) -> None:
        for event in events:
            # The ids alone. What was said, and with which arguments, is not for a log that many read.
            level = logging.INFO if event.type in _LOUD else logging.DEBUG
            _log.log(level, "run %s: %s (event %s of branch %s)", event.run_id, event.type, event.id, event.branch_id)
            for each in self._hooks:
                try:
                    hooks.tell(each, event)
                except Exception as error:  # whoever looks on must not change what happens
                    _log.error("hook %s raised %s on %s", type(each).__name__, type(error).__name__, event.type)


def _reader(branch_id: str, base: Checkpoint | None, *, seq: int) -> Reader:
    from phronomy.observability.events import Reader  # noqa: PLC0415  # where nobody listens, nothing is read

    return Reader(branch_id, base, seq=seq)


def _read(reader: Reader, moment: Written | Asking) -> list[Event]:
    """The events in what was stored, or that the model is asked."""
    if isinstance(moment, Asking):
        return [reader.asking(moment.path, moment.model)]
    found: list[Event] = []
    for seq, item in enumerate(moment.items, moment.seq + 1):
        found += reader.read(seq, moment.path, item)
    return found


def with_own_settings(model: Model, request: ModelRequest) -> ModelRequest:
    """The request with the settings that the model adds to it by itself, where it tells of them."""
    own = getattr(model, "settings", None)
    return replace(request, settings=own.merged(request.settings)) if isinstance(own, ModelSettings) else request


_LOUD = ("run_started", "suspended", "completed", "rejected", "cancelled", "superseded", "skipped", "failed")


def driving(runner: Runner) -> AbstractContextManager[tuple[Mapping[str, str], ...]]:
    """The context managers of hooks around a drive. They yield the values for the metadata of its checkpoints."""
    watching = runner.spec.hooks
    if not watching:
        return _NOTHING
    masks = cache(partial(Masking, runner.spec))
    return hooks.Inside({each: partial(each._drives, runner.origin, masks) for each in watching})


_NOTHING: Final = nullcontext(())


@contextmanager
def held(runner: Runner, *, streams: bool = False) -> Iterator[Watch]:
    """Let go of the run in any case, so that nobody has to wait for the lease. Settled calls are saved first.

    Between the events of a stream, code of the caller runs, which may ask questions. `Stream` then keeps them out of
    the run.
    """
    watch: Watch | None = None
    # The body of a tool or a node may drive another run. What is asked in that run is no question of this body, and must not come
    # out as one.
    with nullcontext() if streams else nobody_asks(), driving(runner) as runner.notes:
        try:
            watch = Watch(runner, streams=streams)
            # Before anything is carried out: whoever is told of decisions hears of an approval before its effect, and also if the
            # effect takes an hour.
            tell_world(runner)
            runner.teller = teller_of(runner)
            yield watch
        except BaseException as error:
            leave(runner, error)
            # After the run was let go: the checkpoint in the error is the one that the last write left, so that
            # `resume(error.checkpoint)` is what it says.
            tell(runner, error)
            if watch is not None and isinstance(error, Exception):
                watch.failure = watch.failed(error)
                tell_world(runner)
            raise
        # A run that came to rest has been let go by its last write. Then there is nothing to abandon; with `step` there is.
        runner.ledger.abandon("running")
        tell_world(runner)
        if times := times_of(runner):
            dispatch.at(runner.ledger.store.dispatch, runner.state.run_id, times)


@acontextmanager
async def aheld(runner: Runner, *, streams: bool = False) -> AsyncIterator[Watch]:
    """As `held`."""
    watch: Watch | None = None
    with nullcontext() if streams else nobody_asks(), driving(runner) as runner.notes:
        try:
            watch = Watch(runner, streams=streams)
            await atell_world(runner)
            runner.teller = teller_of(runner)
            yield watch
        except BaseException as error:
            if watch is not None and not watch.is_driven():
                # Garbage of a loop that was closed in the middle: nothing can be awaited here. The lease is renewed no more, so
                # that the run is found as one whose worker died.
                runner.ledger.drop()
                raise
            await aleave(runner, error)
            await in_store(runner.ledger.store, tell, runner, error)
            if watch is not None and isinstance(error, Exception):
                watch.failure = watch.failed(error)
                await atell_world(runner)
            raise
        await runner.ledger.aabandon("running")
        await atell_world(runner)
        if times := times_of(runner):
            await in_store(runner.ledger.store, dispatch.at, runner.ledger.store.dispatch, runner.state.run_id, times)


def driven(runner: Runner) -> Result[Any]:
    """Drive a run that was ended or paused from outside until it rests, and return its result.

    Methods that run tools contain these lines themselves, to save a frame between them and an exception of a tool.
    """
    with held(runner) as watch:
        for moment in steps(runner):
            watch.hear(moment)
    return results.answer_of(runner)


def events_of(runner: Runner) -> Generator[Event]:
    """Drive the run to where it rests, and give the events of it."""
    # A stream is read at the pace of whoever reads it. Each checkpoint must stand by itself, with nothing begun behind it.
    runner.watched = runner.streams = True
    watch: Watch | None = None
    try:
        with held(runner, streams=True) as watch:
            for event in watch.first:
                yield event
            with closing(steps(runner)) as moments:
                for moment in moments:
                    for event in watch.hear(moment):
                        try:
                            yield event
                        except GeneratorExit:
                            # From here on the run goes without an audience, to the next place where it can be left.
                            runner.streams = False
                            if isinstance(moment, Piece | Heard):  # its node runs: what comes of that is waited for
                                with suppress(Exception):  # a failure too: whoever resumes the run hears of it
                                    next(moments, None)
                            raise
    except Exception:
        # The failure is an event, and then an error: one who only reads events sees why there are no more. One who has left reads none.
        if watch is not None and watch.failure is not None and runner.streams:
            yield watch.failure
        raise


async def aevents_of(runner: Runner) -> AsyncGenerator[Event]:
    """As `events_of`."""
    runner.watched = runner.streams = True
    watch: Watch | None = None
    try:
        async with aheld(runner, streams=True) as watch:
            for event in watch.first:
                yield event
            async with aclosing(asteps(runner)) as moments:
                async for moment in moments:
                    for event in watch.hear(moment):
                        try:
                            yield event
                        except GeneratorExit:
                            runner.streams = False
                            if isinstance(moment, Piece | Heard):
                                with suppress(Exception):
                                    await anext(moments, None)
                            raise
    except Exception:
        if watch is not None and watch.failure is not None and runner.streams:
            yield watch.failure
        raise


def leave(runner: Runner, error: BaseException) -> None:
    """Let go of the run for this error, which matters more than what comes of that."""
    try:
        with suppress(Exception):
            # Ctrl-C and a cancelled task leave the run to somebody else. A failure does not: it is told to the caller, who resumes.
            let_go(runner, leaves=not isinstance(error, Exception))
    finally:
        # However far that came, as the store may be away, or another Ctrl-C may have come: the lease is renewed no more.
        runner.ledger.drop()


async def aleave(runner: Runner, error: BaseException) -> None:
    """As `leave`."""
    try:
        with suppress(Exception):
            await whole(alet_go(runner, leaves=not isinstance(error, Exception)))
    finally:
        runner.ledger.drop()


def let_go(runner: Runner, *, leaves: bool = False) -> None:
    """Save the settled calls, unless a write was interrupted (it may be stored already), and give up the claim.

    With `leaves`, the caller leaves the run. If this worker still owes the run something, the claim is kept until its
    lease expires, as if the worker had died.
    """
    # Nothing has come of the intents that were stored last. If they stood, a human would be asked about calls that nobody ever
    # entered.
    if runner.untouched and runner.ledger.claim is not None and not runner.writing:
        runner.withdraw(runner.untouched)
    # The loop may have been cut off just before it wrote that the run waits, or has ended. Whoever looks for what waits finds it by a
    # checkpoint, and an end that is in the journal alone is none for the thread and for those who wait for it. So one is made.
    while (runner.unsaved or rests(runner)) and not runner.writing and runner.ledger.claim is not None:
        if runner.commit(seal=rests(runner), stop=rests(runner)):
            break
    # The claim is not released: it runs out, and the run is found as one whose worker died. Released, it would look like one that
    # somebody steps through, and a decision would lie there for good.
    if owed := leaves and owes(runner):
        runner.ledger.drop()
    runner.ledger.abandon(left_as(runner, leaves=leaves and not owed))


async def alet_go(runner: Runner, *, leaves: bool = False) -> None:
    """As `let_go`."""
    if runner.untouched and runner.ledger.claim is not None and not runner.writing:
        await runner.awithdraw(runner.untouched)
    while (runner.unsaved or rests(runner)) and not runner.writing and runner.ledger.claim is not None:
        if await runner.acommit(seal=rests(runner), stop=rests(runner)):
            break
    if owed := leaves and owes(runner):
        runner.ledger.drop()
    await runner.ledger.aabandon(await in_store(runner.ledger.store, left_as, runner, leaves=leaves and not owed))


def owes(runner: Runner) -> bool:
    """Whether there is something to do about a decision that was left here, or about what a lost worker left; nobody else knows."""
    ledger = runner.ledger
    # The store knows of a decision that was left as long as no checkpoint shows it. After that only this worker does.
    knows = ledger.found_lost or ledger.owes or (runner.writing and ledger.left)
    return knows and not isinstance(runner.spec.plan(runner.state), Wait)


def left_as(runner: Runner, *, leaves: bool) -> BranchStatus:
    """How a run stands that nobody drives any more. One that was left at a breakpoint waits there.

    What became of a write that was interrupted, the store says. A run that is `running` with nothing under way is one that is gone
    through step by step: nobody would look for it. So where the caller `leaves` what was decided and has not run yet, that is noted.
    """
    if runner.hold is not None:
        runner.hold.left(runner)
    # Something runs, or ran when this process was told to go. Whoever recovers the run deals with it (law 5).
    ids = {intent.id for intent in runner.untouched if isinstance(intent, CallStarted)}
    if any(call.status == "started" and call.id not in ids for call in runner.state.calls):
        return "running"
    # Nothing is uncertain: what is known here is what is stored.
    if not runner.writing and not (leaves and is_due(runner, runner.state)):
        return "suspended" if waits(runner) else "failed"
    # Either the last write was cut off, and is there or not, or a decision is left undone. Both are judged by what the store has,
    # and not by what this process believes.
    store = runner.ledger.store
    # One read answers both questions: whether the write is there, and whether somebody else has gone on from it.
    branch, head = store.head(runner.ledger.branch.id)
    owner = runner.ledger.owner
    # The write that was cut off is there, and nothing has come of the intents in it.
    intents = runner.untouched if branch.owner == owner else ()
    if head.journal and (not intents or head.journal[-len(intents) :] != intents):
        return "running"
    stands = head.sealed()
    due = leaves and is_due(runner, stands) and branch.owner == owner
    if head.journal or due:
        claim = Claim(branch_id=branch.id, run_id=branch.run_id, owner=owner, fence=branch.fence)
        # An entry that changes nothing. With it the run has a journal, and a run with a journal is one that `recover_all` looks
        # for.
        said = withdrawn(intents) if head.journal else Interrupted(pending_ids={}, at=now(store))
        note = (journal_entry(said, ""),)
        with suppress(Behind):  # what somebody else decided is found by itself
            store.append(Append(branch_id=branch.id, seq=branch.seq, claim=claim, entries=note, lease=store.lease))
    if due:
        return "running"
    return "suspended" if stands.pending and isinstance(runner.spec.plan(stands), Wait) else "failed"


def is_due(runner: Runner, state: Checkpoint) -> bool:
    """Whether a call is to run, or to go on, by what somebody decided, and has not begun."""
    # Approved, or gone on with inside, and not begun. A call that is ready because it needs no approval is planned by whoever
    # resumes.
    decided = any(call.status == "ready" and (call.approved is not None or call.stopped) for call in state.calls)
    return decided and not isinstance(runner.spec.plan(state), Wait)


def waits(runner: Runner) -> bool:
    """Whether nothing of a run is under way, and it can only wait for a human."""
    if runner.in_flight or not runner.state.pending:
        return False
    return isinstance(runner.spec.plan(runner.state), Wait)


def rests(runner: Runner) -> bool:
    """Whether a run has come to rest, and no checkpoint shows it yet."""
    return runner.moved and (waits(runner) or runner.state.ended is not None)


class Teller:
    """Makes the announcements of requests that wait while other calls of their reply run: nobody has to wait for those calls."""

    def __init__(self, runner: Runner) -> None:
        self._told = {item.id for item in runner.state.pending}

    def is_due(self, runner: Runner) -> bool:
        """Whether there are requests that were not announced."""
        return not self._told.issuperset(item.id for item in runner.state.pending)

    def tell(self, runner: Runner) -> None:
        """Announce what is stored."""
        self._told.update(item.id for item in runner.state.pending)
        tell_world(runner)

    async def atell(self, runner: Runner) -> None:
        """As `tell`."""
        self._told.update(item.id for item in runner.state.pending)
        await atell_world(runner)


def teller_of(runner: Runner) -> Teller | None:
    """What announces requests while other calls run; None if nobody listens to single requests."""
    return Teller(runner) if hears_requests(runner.spec.announcements) else None


def tell_world(runner: Runner) -> None:
    """Make the announcements of what is stored: of a decision before it is carried out, of a stop once the run was let go."""
    if runner.spec.announcements:
        announce(runner.ledger.store, runner.ledger.branch.id, runner.spec.announcements)


async def atell_world(runner: Runner) -> None:
    """As `tell_world`."""
    if runner.spec.announcements:
        await aannounce(runner.ledger.store, runner.ledger.branch.id, runner.spec.announcements)


def times_of(runner: Runner) -> list[float]:
    """When something is to be done about the requests that the run waits for, in seconds: they expire, or a reminder is due."""
    times = [next_due(item) for item in runner.state.pending]
    return [each.timestamp() for each in times if each is not None]


def tell(runner: Runner, error: BaseException) -> None:
    """Put the last checkpoint, with what was journaled after it, and the run's id into the error of a failed run."""
    # Only ours carry a checkpoint. What a user raised through us, such as KeyboardInterrupt, goes on as it is.
    if isinstance(error, RunFailed):
        error.run_id = runner.state.run_id
        error.checkpoint = results.result_of(runner).checkpoint
        with suppress(Exception):  # the store may be what failed
            error.checkpoint = runner.ledger.store.whole(runner.base.id)[1]
