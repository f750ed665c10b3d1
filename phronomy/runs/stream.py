"""Streams: a run as the events of it, one after the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Generic, Self

from phronomy.errors import ConfigurationError
from phronomy.records.result import Output, Result
from phronomy.stops.interrupts import nobody_asks

if TYPE_CHECKING:
    from phronomy.observability.events import Event


class Stream(Generic[Output]):
    """What `agent.stream` returns: iterate over it for the events, then read `result`.

    Nothing runs before the first event is asked for, and the run goes no further than the events that are taken. Leave early
    with `close`, or use it as a context manager: pieces of a reply are lost then, and nothing else. The run stands at what was
    stored, and `resume` goes on from there.
    """

    def __init__(self, run: Callable[[Stream[Output]], Generator[Event]]) -> None:
        # A generator: nothing has run yet. A stream that is made and thrown away has begun no run.
        self._events = run(self)
        self._result: Result[Output] | None = None

    @property
    def result(self) -> Result[Output]:
        """What the run has come to. Raises `ConfigurationError` while the stream has not come to its end."""
        return _ended(self._result)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        # Between two events code of the caller runs, perhaps in the body of a tool. What that asks belongs to that tool, and not to
        # the run that is streamed.
        with nobody_asks():
            return next(self._events)

    def close(self) -> None:
        """Leave the run where it is, and let it go."""
        with nobody_asks():
            self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class AsyncStream(Generic[Output]):
    """What `agent.astream` returns: as `Stream`, with `async for`, `async with` and `aclose`."""

    def __init__(self, run: Callable[[AsyncStream[Output]], AsyncGenerator[Event]]) -> None:
        self._events = run(self)
        self._result: Result[Output] | None = None

    @property
    def result(self) -> Result[Output]:
        """What the run has come to. Raises `ConfigurationError` while the stream has not come to its end."""
        return _ended(self._result)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        with nobody_asks():
            return await anext(self._events)

    async def aclose(self) -> None:
        """Leave the run where it is, and let it go."""
        with nobody_asks():
            await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()


def _ended(result: Result[Output] | None) -> Result[Output]:
    if result is None:
        raise ConfigurationError("the stream has not come to its end, so there is no result yet")
    return result
