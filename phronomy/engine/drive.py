"""The two loops that drive every run: plan, store, perform, fold in. They are alike once `async` and `await` are stripped.

Nothing is performed before the intent to do it is stored, and nobody hears of a checkpoint that is not. A checkpoint and the
intents that follow it are one write, unless the run is watched: whoever may stop at a checkpoint must find nothing begun. A
loop that is left early (an error, an interrupt, an abandoned iterator) leaves the store at what was last written; whoever holds
the ledger lets it go. One that is closed between an intent and the deed takes the intent back; one that is closed while calls run
side by side waits for them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import closing

from phronomy.concurrency.aclosing import aclosing
from phronomy.concurrency.pieces import Heard, Piece
from phronomy.engine.perform import aperform, intents_of, perform, reaches_out
from phronomy.engine.run import Asking, Moment, Runner
from phronomy.models.base import DELTAS
from phronomy.records.calls import Done, Wait

PASSING = (Asking, Piece, Heard, *DELTAS)
"""What comes of a move besides outcomes: it is given on, and nothing is kept of it."""


def steps(runner: Runner) -> Generator[Moment]:  # noqa: PLR0912  # one loop, read as one
    """Drive the run until it rests, and give what was stored once it is, and what passes meanwhile."""
    while True:
        runner.absorb()
        move = runner.plan()
        if isinstance(move, (Wait, Done)):
            holding = runner.hold if runner.hold is not None and runner.hold.holds(runner) else None
            if not runner.commit(seal=runner.moved, stop=holding is None):
                continue
            yield runner.written
            if holding is None:
                return
            runner.record_all(holding.stay(runner))
            continue
        if runner.breakpoints is not None and runner.stops_before(move):
            continue
        if reaches_out(runner, move):
            apart = runner.dirty and runner.watched
            intents = [] if apart else intents_of(runner, move)
            if runner.has_news(intents):
                if not runner.commit(seal=runner.dirty, intents=intents):
                    continue
                try:
                    yield runner.written
                except GeneratorExit:
                    if intents:
                        runner.withdraw(intents)
                    raise
                if apart:
                    continue
        left: GeneratorExit | None = None
        with closing(perform(runner, move, steps)) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome, PASSING):
                    yield outcome
                    continue
                runner.record(outcome)
                if runner.in_flight:
                    while not runner.commit(seal=False):
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
    while True:
        runner.absorb()
        move = runner.plan()
        if isinstance(move, (Wait, Done)):
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
        if reaches_out(runner, move):
            apart = runner.dirty and runner.watched
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
                    while not await runner.acommit(seal=False):
                        continue
                    try:
                        if left is None:
                            yield runner.written
                    except GeneratorExit as exit:
                        left = exit  # other calls are under way: what comes of them is waited for
        if left is not None:
            raise left
