"""Streams: a run as the events of it, one after the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Generic, Self

from phronomy.concurrency.aclosing import closed_if_dropped
from phronomy.errors import ConfigurationError
from phronomy.records.result import Output, Result
from phronomy.stops.interrupts import nobody_asks

if TYPE_CHECKING:
    from phronomy.observability.events import Event


class Stream(Generic[Output]):
    """The events of a run, as `agent.stream` returns them: iterate over them, then read `result`.

    The run starts when you take the first event, and goes on only as far as you take events. To leave early, call
    `close` or use the stream as a context manager. The run then stops at its last stored state, and `resume` continues
    it. Only pieces of an unfinished reply are lost.
    """

    def __init__(self, run: Callable[[list[Result[Output]]], Generator[Event]]) -> None:
        # A generator: nothing has run yet. A stream that is made and thrown away has begun no run.
        self._ended: list[Result[Output]] = []
        self._events = run(self._ended)

    @property
    def result(self) -> Result[Output]:
        """The result of the run. Raises `ConfigurationError` before the end of the stream."""
        return _result_in(self._ended)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        # Between two events code of the caller runs, perhaps in the body of a tool. What that asks belongs to that tool, and not to
        # the run that is streamed.
        with nobody_asks():
            return next(self._events)

    def close(self) -> None:
        """Stop the run at its last stored state, so that any worker can resume it."""
        with nobody_asks():
            self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class AsyncStream(Generic[Output]):
    """The async twin of `Stream`, as `agent.astream` returns it: use `async for`, `async with` and `aclose`."""

    def __init__(self, run: Callable[[list[Result[Output]]], AsyncGenerator[Event]]) -> None:
        self._ended: list[Result[Output]] = []
        self._events = run(self._ended)

    @property
    def result(self) -> Result[Output]:
        """The result of the run. Raises `ConfigurationError` before the end of the stream."""
        return _result_in(self._ended)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        with nobody_asks():
            return await closed_if_dropped(self._events.__anext__)

    async def aclose(self) -> None:
        """Stop the run at its last stored state, so that any worker can resume it."""
        with nobody_asks():
            await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()


def _result_in(ended: list[Result[Output]]) -> Result[Output]:
    if not ended:
        raise ConfigurationError("the stream has not come to its end, so there is no result yet")
    return ended[0]
