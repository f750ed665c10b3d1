"""Carrying a run on from here, and telling on the screen what happens in it as it happens."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any, TypeAlias

from phronomy.cli.apps import Place
from phronomy.cli.graphs import update_in
from phronomy.cli.screen import Flow, Screen, Spinner
from phronomy.cli.views import Mask, calls_in, cut
from phronomy.errors import AsyncRequired
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.result import Result
from phronomy.runs import recovery
from phronomy.runs.runs import Runs
from phronomy.stops.interrupt_points import AFTER

if TYPE_CHECKING:
    from phronomy.observability.events import Event

Hear: TypeAlias = "Callable[[Event], None]"


def drive(place: Place, at: str | Checkpoint, hear: Hear, **options: Any) -> Result[Any]:
    """Begin a run, or go on from a checkpoint, up to where it rests. An agent with anything async in it runs in an event loop."""
    options["deps"] = place.deps
    try:
        stream = place.worker.stream(at, **options)
    except AsyncRequired:
        return asyncio.run(_adrive(place.worker, at, hear, options))
    with stream:
        for event in stream:
            hear(event)
        return stream.result


def recover_from(place: Place, at: Checkpoint, **options: Any) -> Result[Any]:
    """Carry a run on to where it rests, without any decision."""
    options["deps"] = place.deps
    with redirect_stdout(sys.stderr):
        try:
            return place.worker.recover(at, **options)
        except AsyncRequired:
            return asyncio.run(place.worker.arecover(at, **options))


def tidy(place: Place, limit: int) -> None:
    """Make the announcements that were not made, and take away what is older than the store keeps."""
    spec = place.worker.spec
    with redirect_stdout(sys.stderr):
        if any(each.is_async for each in spec.announcements):
            asyncio.run(recovery.atidy(place.store, spec, limit))
        else:
            recovery.tidy(place.store, spec, limit)


async def _adrive(agent: Runs[Any, Any], at: str | Checkpoint, hear: Hear, options: dict[str, Any]) -> Result[Any]:
    async with agent.astream(at, **options) as stream:
        async for event in stream:
            hear(event)
        return stream.result


@contextmanager
def telling(screen: Screen, mask: Mask, *, machine: bool) -> Iterator[Hear]:
    """Gives the listener for `drive`. For a machine nothing is printed, and the output of tools goes to standard error."""
    with redirect_stdout(sys.stderr) if machine else nullcontext():
        if machine:
            yield _nothing
            return
        teller = Teller(screen, mask)
        try:
            yield teller.hear
        finally:
            teller.stop()


def _nothing(event: Event) -> None:
    """Tell nothing."""


class Teller:
    """Tells on a screen what a run does, as it does it."""

    def __init__(self, screen: Screen, mask: Mask) -> None:
        self._screen, self._mask = screen, mask
        self._spinner: Spinner = screen.spinner()
        self._reply: Flow | None = None
        self._names: dict[str, str] = {}
        self._running: list[str] = []
        self._spinner.start("The run goes on")

    def stop(self) -> None:
        """Leave the screen as it was before: whatever waits to be shown is shown, and nothing moves any more."""
        self._spinner.stop()
        self._end_reply()

    def hear(self, event: Event) -> None:
        """Tell one event."""
        if event.path or getattr(event, "tool_name", "").startswith(f"{AFTER}:"):
            return
        match event.type:
            case "model_started":
                self._spinner.start("The model is asked")
            case "text_delta":
                self._spinner.stop()
                if self._reply is None:
                    self._reply = self._screen.flowing("model", style="cyan")
                self._reply.write(event.text)
            case "model_replied":
                self._replied(event.message)
            case "tool_call_started":
                self._running.append(event.tool_name)
                again = "goes on with" if event.resumed else "runs"
                attempt = f", attempt {event.attempt}" if event.attempt > 1 else ""
                self._tell(self._mask.what, f"{again} {event.tool_name}{attempt}")
                self._spinner.start(f"Running {', '.join(self._running)}")
            case "tool_call_failed":
                self._settled(event.tool_name)
                self._tell(self._mask.what, f"{event.tool_name} failed: {cut(event.error)}")
            case "tool_call_settled":
                self._settled(event.tool_name)
                name = self._names.get(event.call_id, event.tool_name)
                told = cut(self._mask.result(name, event.content))
                if self._mask.what == "node":
                    told = f"{event.tool_name} gave {cut(update_in(event.content))}"
                self._tell(self._mask.what, told)
            case "suspended" | "completed" | "rejected" | "cancelled" | "superseded" | "skipped" | "failed":
                self.stop()
            case _:
                pass

    def _replied(self, message: Any) -> None:
        self._spinner.stop()
        if self._reply is None and (message.text or not message.tool_calls):
            self._screen.row("model", message.text, style="cyan")
        self._end_reply()
        self._names |= {call.id: call.name for call in message.tool_calls}
        for line in calls_in(message, self._mask):
            self._screen.row("model", line, style="cyan")

    def _settled(self, name: str) -> None:
        if name in self._running:
            self._running.remove(name)

    def _tell(self, label: str, text: str) -> None:
        self._spinner.stop()
        self._end_reply()
        self._screen.row(label, text, style="cyan")
        if self._running:
            self._spinner.start(f"Running {', '.join(self._running)}")

    def _end_reply(self) -> None:
        if self._reply is not None:
            self._reply.end()
            self._reply = None
