"""The command that carries out what was decided elsewhere, until it is stopped: `phronomy work`."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Annotated, Any

import typer

from phronomy.cli.apps import Place, open_place
from phronomy.cli.options import Accept, Here, command
from phronomy.cli.screen import Screen
from phronomy.cli.words import DONE, FAILED, WrongUsage, explained
from phronomy.errors import StoreError
from phronomy.runs.recovery import Recovery
from phronomy.stores.memory import MemoryStore
from phronomy.workers.endpoint import HealthEndpoint
from phronomy.workers.worker import Worker


@command
def work(
    screen: Screen,
    *,
    here: Here,
    once: Annotated[bool, typer.Option("--once", help="Carry out what there is to do now, and end.")] = False,
    poll: Annotated[
        float, typer.Option(help="Seconds between two looks into the store.", metavar="SECONDS", min=0.01, max=86_400)
    ] = 1.0,
    concurrency: Annotated[int, typer.Option(help="So many runs at the same time, at most.", metavar="N", min=1)] = 8,
    grace: Annotated[
        float, typer.Option(help="Seconds that runs have to come to rest when it is stopped.", metavar="SECONDS", min=0)
    ] = 30.0,
    accept_changes: Accept = False,
    health: Annotated[
        str | None,
        typer.Option(
            help="Answer health checks at http://HOST:PORT/health. HOST is 127.0.0.1 by default.", metavar="[HOST:]PORT"
        ),
    ] = None,
) -> int:
    """Carry out what was decided elsewhere, and recover what lost workers have left, until it is stopped.

    Start as many as you like, on any machines that reach the store. SIGTERM and Ctrl-C let what runs come to rest; a
    second one leaves it, and the next worker recovers it.
    """
    if once and health is not None:
        raise WrongUsage("--once ends at once, and answers no health checks: leave --health out")
    at = None if health is None else address(health)
    with open_place(screen, here, makes_file=True) as place:
        agent = place.worker
        if isinstance(place.store, MemoryStore):
            raise WrongUsage(
                "what is in memory no other process sees, so there is nothing to carry out: give --store URL"
            )

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
            found = asyncio.run(worker.once())
            if not found:
                screen.say(f"Nothing is to be done for {agent.spec.name}.")
            return FAILED if any(each.error is not None for each in found) else DONE
        with answering(screen, worker, at):
            asyncio.run(
                _until_stopped(worker, grace, lambda: greet(screen, place), partial(leave, screen, worker, grace))
            )
        done = worker.health()
        screen.say(f"Stopped. Runs carried out: {done.carried_out}; tries that failed: {done.failures}.", style="bold")
        return DONE


def greet(screen: Screen, place: Place) -> None:
    """Say who works, and of what it leaves to others: a worker of the wrong app would do nothing, without a word."""
    name = place.worker.spec.name
    screen.say(f"A worker for {name}. Ctrl-C stops it.", style="bold")
    try:
        others = sorted({each.agent for each in place.store.decided()} - {name})
    except StoreError as error:  # a database may start later than its workers
        screen.complain(
            f"The store cannot be read: {explained(error, 'work').rstrip('.')}. The worker tries again until it can."
        )
        return
    if others:
        screen.say(f"Not for it, as they are of other agents: decided runs of {', '.join(others)}.")


def leave(screen: Screen, worker: Worker, grace: float) -> None:
    """Say what is waited for, to somebody who has just said that they want to leave."""
    if (at_work := worker.health().at_work) > 0:
        runs = "1 run is" if at_work == 1 else f"{at_work} runs are"
        screen.say(f"Stopping. {runs} under way, and may take {grace:g} s; once more leaves what runs.", style="bold")


def address(text: str) -> tuple[str, int]:
    """The host and the port in `8080`, `localhost:8080` or `[::1]:8080`. Raises `WrongUsage`."""
    found = re.fullmatch(r"(?:(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):)?([0-9]{1,5})", text, re.ASCII)
    if found is None or int(found[2]) > 65_535:
        raise WrongUsage(f"{text!r} is no address: write a port, such as 8080, or HOST:PORT")
    return (found[1] or "127.0.0.1").strip("[]"), int(found[2])


@contextmanager
def answering(screen: Screen, worker: Worker, at: tuple[str, int] | None) -> Iterator[None]:
    """Answer health checks there meanwhile. Raises `WrongUsage` if nobody can be listened to there."""
    if at is None:
        yield
        return
    try:
        endpoint = HealthEndpoint(worker.health, *at)
    except OSError as error:
        why = (error.strerror or type(error).__name__).partition(" (")[0]  # Python adds the address
        raise WrongUsage(f"nobody can listen on {':'.join(map(str, at))}: {why}") from None
    screen.say(f"Health: {endpoint.url}")
    try:
        yield
    finally:
        endpoint.close()


async def _until_stopped(
    worker: Worker, grace: float, ready: Callable[[], object], leaving: Callable[[], object]
) -> None:
    """Work until a signal says to stop; the second one cancels what still runs.

    Calls `ready` once signals are heard, and `leaving` at the first of them.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(worker.arun(grace=grace))
    told = 0

    def stop() -> None:
        nonlocal told
        told += 1
        worker.stop()
        if told > 1:
            task.cancel()
        else:
            leaving()

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop)
    ready()
    with suppress(asyncio.CancelledError):
        await task
