"""The command that carries out what was decided elsewhere, until it is stopped: `phronomy work`."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import Annotated, Any

import typer

from phronomy.cli.apps import open_place
from phronomy.cli.options import Accept, Here, command
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE, FAILED, explained
from phronomy.runs.recovery import Recovery
from phronomy.workers.worker import Worker


@command
def work(
    screen: Screen,
    *,
    here: Here,
    once: Annotated[bool, typer.Option("--once", help="Carry out what there is to do now, and end.")] = False,
    poll: Annotated[
        float, typer.Option(help="Seconds between two looks into the store.", metavar="SECONDS", min=0.01)
    ] = 1.0,
    concurrency: Annotated[int, typer.Option(help="So many runs at the same time, at most.", metavar="N", min=1)] = 8,
    grace: Annotated[
        float, typer.Option(help="Seconds that runs have to come to rest when it is stopped.", metavar="SECONDS", min=0)
    ] = 30.0,
    accept_changes: Accept = False,
) -> int:
    """Carry out what was decided elsewhere, and recover what lost workers have left, until it is stopped.

    Start as many as you like, on any machines that reach the store. SIGTERM and Ctrl-C let what runs come to rest; a
    second Ctrl-C leaves it, and the next worker recovers it.
    """
    with open_place(screen, here) as place:
        agent = place.worker

        def heard(done: Recovery[Any]) -> None:
            """Tell what became of a run."""
            if done.error is not None:
                screen.complain(f"{done.run_id}: {explained(done.error, 'work')}")
            elif done.result is not None:
                screen.say(f"{done.run_id}: {done.result.status}")

        worker = Worker(
            agent, deps=place.deps, poll=poll, concurrency=concurrency, accept_changes=accept_changes, heard=heard
        )
        if once:
            return FAILED if any(each.error is not None for each in asyncio.run(worker.once())) else DONE
        screen.say(f"A worker for {agent.spec.name}. Ctrl-C stops it.", style="bold")
        asyncio.run(_until_stopped(worker, grace))
        health = worker.health()
        screen.say(
            f"Stopped. Runs carried out: {health.carried_out}; tries that failed: {health.failures}.", style="bold"
        )
        return DONE


async def _until_stopped(worker: Worker, grace: float) -> None:
    """Work until a signal says to stop; the second one cancels what still runs."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(worker.arun(grace=grace))
    told = 0

    def stop() -> None:
        nonlocal told
        told += 1
        worker.stop()
        if told > 1:
            task.cancel()

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop)
    with suppress(asyncio.CancelledError):
        await task
