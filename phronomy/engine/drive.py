"""The two loops that drive every run: plan, store, perform, fold in. They are alike once `async` and `await` are stripped.

Nothing is performed before the intent to do it is stored, and nobody hears of a checkpoint that is not. A checkpoint and the
intents that follow it are one write, unless the run is watched: whoever may stop at a checkpoint must find nothing begun. So are
a decision, the claim of whoever carries it out, and the intents that follow from it (`begin`). A loop that is left early (an error,
an interrupt, an abandoned iterator) leaves the store at what was last written; whoever holds the ledger lets it go. One that is
closed between an intent and the deed takes the intent back; one that is closed while calls run side by side waits for them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing

from phronomy.concurrency.aclosing import aclosing
from phronomy.concurrency.leaving import Left
from phronomy.concurrency.pieces import Heard, Piece
from phronomy.engine.judging.due import awaits_world, expiry, lapsed
from phronomy.engine.judging.judge import judge
from phronomy.engine.perform import aperform, intents_of, perform, reaches_out
from phronomy.engine.run import Asking, Moment, Runner
from phronomy.errors import NotAuthorized, RunFailed
from phronomy.models.base import DELTAS
from phronomy.records.calls import Judged, Outcome
from phronomy.records.moves import Consult, Done, Judge, Move, Run, Wait
from phronomy.stores.native import in_store

PASSING = (Asking, Piece, Heard, *DELTAS)
"""What comes of a move besides outcomes: it is given on, and nothing is kept of it."""


def steps(runner: Runner) -> Generator[Moment]:  # noqa: PLR0912  # one loop, read as one
    """Drive the run until it rests, and give what was stored once it is, and what passes meanwhile."""
    with taking_in(runner):
        while True:
            move, begun = next_move(runner)
            if isinstance(move, (Wait, Done)):
                # What it is about to wait for may be there already: an event that came early, a run that has ended meanwhile.
                if awaits_world(runner) and (came := lapsed(runner)):
                    runner.record_all(expiry(runner, came))
                    continue
                # A run that holds at a breakpoint waits in this very call, with its claim. So its write says that it is stored, and not
                # that anybody may take it.
                holding = runner.hold if runner.hold is not None and runner.hold.holds(runner) else None
                # Where somebody wrote first, nothing of ours is stored. What they wrote is folded in by now, and may be the decision
                # that this run was about to wait for: plan again.
                if not runner.commit(seal=runner.moved, stop=holding is None):
                    continue
                # Only now does anybody hear of it (law 8): a human who decides on what they were told finds it in the store, even if
                # this process dies in the next instant.
                yield runner.written
                if holding is None:
                    return
                runner.record_all(holding.stay(runner))
                continue
            if runner.breakpoints is not None and runner.stops_before(move):
                continue
            # What acts outside needs all before it stored, so that a crash in the middle of it finds out where it was. What does not
            # act may be done again for nothing, and waits for the next write: that is one write less for each verdict and each answer.
            if not begun and reaches_out(runner, move):
                # One who watches may leave at a checkpoint, and expects that nothing has begun behind it. For them the intents are a
                # write of their own; for all others they share that of the checkpoint, which halves the writes of a turn.
                # So it is where somebody is to be told of a request: a listener may take its time, and a crash in it must not leave
                # a call of which nobody knows whether it began.
                tells = runner.teller is not None and runner.teller.is_due(runner)
                apart = runner.dirty and (runner.watched or tells)
                intents = [] if apart else intents_of(runner, move)
                # With nothing to store, nothing is written. But the first write of a worker also takes the claim, so there is always
                # one before the first deed.
                if runner.has_news(intents):
                    if not runner.commit(seal=runner.dirty, intents=intents):
                        continue
                    try:
                        yield runner.written
                    except GeneratorExit:
                        # The stream was closed between the intent and the deed. If the intent stood, a human would be asked about a
                        # call that nobody ever began.
                        if intents:
                            runner.withdraw(intents)
                        raise
                    if runner.teller is not None and tells:
                        runner.teller.tell(runner)
                    if apart:
                        continue
            # From here on something may be under way that cannot be undone. A stream that is closed now is told so only once all that
            # runs has settled, or results would be lost that the log could have kept.
            left: GeneratorExit | None = None
            with closing(perform(runner, move, steps)) as outcomes:
                for outcome in outcomes:
                    if isinstance(outcome, PASSING):
                        yield outcome
                        continue
                    # Folded in at once, stored as soon as another call of the same reply is still running: that one may take an hour,
                    # and a crash in it must not take this result along. The last result waits for the checkpoint that it leads to.
                    runner.record(outcome)
                    if runner.in_flight:
                        while not runner.commit(seal=runner.seals_in_flight):
                            continue
                        try:
                            if left is None:
                                yield runner.written
                        except GeneratorExit as exit:
                            left = exit  # other calls are under way: what comes of them is waited for
            if left is not None:
                raise left


async def asteps(runner: Runner) -> AsyncGenerator[Moment]:  # noqa: PLR0912
    """As `steps`."""
    async with ataking_in(runner):
        while True:
            move, begun = next_move(runner)
            if isinstance(move, (Wait, Done)):
                if awaits_world(runner) and (came := await in_store(runner.ledger.store, lapsed, runner)):
                    runner.record_all(expiry(runner, came))
                    continue
                holding = runner.hold if runner.hold is not None and runner.hold.holds(runner) else None
                if not await runner.acommit(seal=runner.moved, stop=holding is None):
                    continue
                yield runner.written
                if holding is None:
                    return
                runner.record_all(await holding.astay(runner))
                continue
            if runner.breakpoints is not None and runner.stops_before(move):
                continue
            if not begun and reaches_out(runner, move):
                tells = runner.teller is not None and runner.teller.is_due(runner)
                apart = runner.dirty and (runner.watched or tells)
                intents = [] if apart else intents_of(runner, move)
                if runner.has_news(intents):
                    if not await runner.acommit(seal=runner.dirty, intents=intents):
                        continue
                    try:
                        yield runner.written
                    except GeneratorExit:
                        if intents:
                            await runner.awithdraw(intents)
                        raise
                    if runner.teller is not None and tells:
                        await runner.teller.atell(runner)
                    if apart:
                        continue
            left: GeneratorExit | None = None
            async with aclosing(aperform(runner, move, asteps)) as outcomes:
                async for outcome in outcomes:
                    if isinstance(outcome, PASSING):
                        yield outcome
                        continue
                    runner.record(outcome)
                    if runner.in_flight:
                        while not await runner.acommit(seal=runner.seals_in_flight):
                            continue
                        try:
                            if left is None:
                                yield runner.written
                        except GeneratorExit as exit:
                            left = exit  # other calls are under way: what comes of them is waited for
            if left is not None:
                raise left


def begin(runner: Runner) -> Sequence[Outcome]:
    """Take up the calls that are due, and give the intents to run them: they are stored with the claim on the run, in one write.

    None are, where somebody is to hear of the claim, or of a decision in it, before a call begins.
    """
    if not _begins_unheard(runner):
        return ()
    move, _ = next_move(runner)
    if not isinstance(move, Run) or not move.calls:
        return ()
    try:
        intents = intents_of(runner, move)
    except NotAuthorized:  # the loop says so, once it is stored what was decided
        return ()
    runner.begun = move
    return intents


def _begins_unheard(runner: Runner) -> bool:
    """Whether nobody is to hear of what is stored before a call begins."""
    spec = runner.spec
    return not (runner.watched or runner.breakpoints is not None or spec.hooks or spec.announcements)


def begin_anew(runner: Runner) -> Sequence[Outcome]:
    """As `begin`, for a run of which nothing is stored yet: they are stored with its input.

    None are, for an agent, whose model is asked first, and where user code has a say in it, or somebody is to be asked.
    """
    if runner.home.flow is None or not _begins_unheard(runner):
        return ()
    move, _ = next_move(runner)
    if not isinstance(move, Judge) or reaches_out(runner, move):
        return ()
    # The texts for the people who are to be asked are made by code of users as well, which may be async.
    if any(tool.gate != "never" for call in move.calls if (tool := runner.spec.tool(call)) is not None):
        return ()
    outcomes = [*judge(runner, move.calls)]
    if not all(isinstance(each, Judged) and {one.verdict for one in each.judgements} == {"run"} for each in outcomes):
        return ()
    runner.record_all(outcomes)
    return begin(runner)


def next_move(runner: Runner) -> tuple[Move, bool]:
    """What comes next, by all that is known, and whether the intents of it are stored already."""
    if runner.begun is not None:
        move, runner.begun = runner.begun, None
        return move, True
    # First what others wrote: a cancellation, a decision, a stop. So a run that was cancelled while its model was asked does not
    # begin the calls of the reply.
    runner.absorb()
    planned = runner.plan()
    # A call that its tool reads otherwise than it was shown is asked about again, and not run.
    if runner.shared.stale and isinstance(planned, Run) and (stale := runner.stale_in(planned.calls)):
        return Consult(calls=stale), False
    # Calls run here, and nothing else can begin now. The next of their results may change that.
    return (Run(calls=()) if isinstance(planned, Wait) and runner.is_at_work else planned), False


class taking_in(
    AbstractContextManager[None]
):  # made of a generator it costs four times as much, and each drive has one
    """What comes of the calls under way is on record before the run is left: others could have followed, so they may be several."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if isinstance(error, (RunFailed, Left, GeneratorExit)) and self._runner.is_at_work:
                take_in(self._runner)
        finally:
            if self._runner.crew is not None:
                self._runner.crew.leave()


class ataking_in(AbstractAsyncContextManager[None]):
    """As `taking_in`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if isinstance(error, (RunFailed, Left, GeneratorExit)) and self._runner.is_at_work:
                await atake_in(self._runner)
        finally:
            if self._runner.acrew is not None:
                await self._runner.acrew.leave()


def take_in(runner: Runner) -> None:
    """Wait for the calls that are under way, and store what comes of them."""
    assert runner.crew is not None, "they run in it"
    while runner.crew.is_busy:
        outcome = runner.crew.next()
        if not isinstance(outcome, PASSING):
            runner.record(outcome)
            while not runner.commit(seal=runner.seals_in_flight):
                continue


async def atake_in(runner: Runner) -> None:
    """As `take_in`."""
    assert runner.acrew is not None, "they run in it"
    while runner.acrew.is_busy:
        outcome = await runner.acrew.next()
        if not isinstance(outcome, PASSING):
            runner.record(outcome)
            while not await runner.acommit(seal=runner.seals_in_flight):
                continue
