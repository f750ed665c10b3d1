"""Trying again after an exception. tenacity repeats and waits; the pause doubles, up to 5 seconds."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Final, TypeVar

from phronomy.foundation.lazy_modules import asyncio

T = TypeVar("T")

_LONGEST: Final = 5.0


def backoff(first: float, failures: int) -> float:
    """The seconds to wait after so many failures, 1 or more; `first` is the pause after the first."""
    return min(first * 2.0 ** min(failures - 1, 60), _LONGEST)


def tried(work: Callable[[], T], retries: int, first: float) -> T:
    """Do the work and return its result. After an exception it is tried again, at most so often; then that exception is raised."""
    if not retries:
        return work()
    tenacity, policy = _retrying(retries, first)
    found: T = tenacity.Retrying(**policy, sleep=time.sleep)(work)
    return found


async def atried(work: Callable[[], Awaitable[T]], retries: int, first: float) -> T:
    """As `tried`, for a function that is declared with `async def`."""
    if not retries:
        return await work()
    tenacity, policy = _retrying(retries, first)
    found: T = await tenacity.AsyncRetrying(**policy, sleep=asyncio.sleep)(work)
    return found


def _retrying(retries: int, first: float) -> tuple[ModuleType, dict[str, object]]:
    """tenacity, and what its two retriers are to do."""
    import tenacity  # noqa: PLC0415  # needed by retries alone

    return tenacity, {
        "stop": tenacity.stop_after_attempt(retries + 1),
        "retry": tenacity.retry_if_exception_type(Exception),  # an interrupt goes through
        "wait": lambda state: backoff(first, state.attempt_number),
        "reraise": True,
    }
