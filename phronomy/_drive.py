"""The two loops that drive every run: plan, store, perform, fold in. They are alike once `async` and `await` are stripped.

Nothing is performed before the intent to do it is stored, and nobody hears of a checkpoint that is not. A checkpoint and the
intents that follow it are one write, unless the run is watched: whoever may stop at a checkpoint must find nothing begun. A
loop that is left early (an error, an interrupt, an abandoned iterator) leaves the store at what was last written; whoever holds
the ledger lets it go.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing

from phronomy._perform import aperform, intents_of, perform, reaches_out
from phronomy._runner import Runner
from phronomy.checkpoint import Checkpoint
from phronomy.types import Done, Wait


def steps(runner: Runner) -> Iterator[Checkpoint]:
    """Drive the run until it rests, and give each checkpoint once it is stored."""
    while True:
        runner.absorb()
        move = runner.spec.plan(runner.state)
        if isinstance(move, (Wait, Done)):
            seal = runner.moved
            if not runner.commit(seal=seal, stop=True):
                continue
            if seal:
                yield runner.base
            return
        if reaches_out(runner, move):
            seal = runner.dirty
            intents = [] if seal and runner.watched else intents_of(runner, move)
            if not runner.commit(seal=seal, intents=intents):
                continue
            if seal:
                yield runner.base
            if seal and runner.watched:
                continue
        with closing(perform(runner, move, steps)) as outcomes:
            for outcome in outcomes:
                runner.record(outcome)
                if runner.in_flight:
                    while not runner.commit(seal=False):
                        continue


async def asteps(runner: Runner) -> AsyncIterator[Checkpoint]:
    """As `steps`."""
    while True:
        runner.absorb()
        move = runner.spec.plan(runner.state)
        if isinstance(move, (Wait, Done)):
            seal = runner.moved
            if not await runner.acommit(seal=seal, stop=True):
                continue
            if seal:
                yield runner.base
            return
        if reaches_out(runner, move):
            seal = runner.dirty
            intents = [] if seal and runner.watched else intents_of(runner, move)
            if not await runner.acommit(seal=seal, intents=intents):
                continue
            if seal:
                yield runner.base
            if seal and runner.watched:
                continue
        async with aclosing(aperform(runner, move, asteps)) as outcomes:
            async for outcome in outcomes:
                runner.record(outcome)
                if runner.in_flight:
                    while not await runner.acommit(seal=False):
                        continue
