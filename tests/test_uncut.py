"""Work that a cancellation does not cut off, awaited in the caller's own task: the cancellation is raised once the work is finished."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest

from phronomy.concurrency.workers import uncut, whole

WAYS: tuple[Callable[[Awaitable[Any]], Awaitable[Any]], ...] = (uncut, whole)
each_way = pytest.mark.parametrize("way", WAYS, ids=["uncut", "whole"])


async def waits(answers: list[asyncio.Future[int]], done: list[str]) -> int:
    total = 0
    for answer in answers:
        total += await answer
    done.append("finished")
    return total


def futures(number: int) -> list[asyncio.Future[int]]:
    return [asyncio.get_running_loop().create_future() for _ in range(number)]


@each_way
def test_the_result_is_given_whether_it_is_there_or_waited_for(way: Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
    async def main() -> None:
        there, later = futures(2)
        there.set_result(1)
        asyncio.get_running_loop().call_soon(later.set_result, 2)
        assert await way(waits([there, later], [])) == 3
        assert await way(waits([], [])) == 0
        assert await way(there) == 1

    asyncio.run(main())


@each_way
def test_an_error_is_raised_as_it_is(way: Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
    async def main() -> None:
        (answer,) = futures(1)
        asyncio.get_running_loop().call_soon(answer.set_exception, KeyError("k"))
        with pytest.raises(KeyError):
            await way(waits([answer], []))

    asyncio.run(main())


@each_way
@pytest.mark.parametrize("fails", [False, True])
def test_a_cancellation_is_raised_once_the_work_is_finished(
    way: Callable[[Awaitable[Any]], Awaitable[Any]], fails: bool
) -> None:
    async def main() -> None:
        first, second = answers = futures(2)
        done: list[str] = []

        async def work() -> int:
            return int(await way(waits(answers, done)))

        task = asyncio.ensure_future(work())
        for answer in (first, second):
            await asyncio.sleep(0)
            task.cancel()  # twice: neither cuts it off
            await asyncio.sleep(0)
            assert not task.done() and not answer.cancelled()
            if fails and answer is second:
                answer.set_exception(KeyError("k"))
            else:
                answer.set_result(1)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ([] if fails else ["finished"])

    asyncio.run(main())


def test_it_runs_in_the_task_of_its_caller_and_is_closed_with_it() -> None:
    seen: list[object] = []

    async def main() -> None:
        (answer,) = futures(1)

        async def work() -> None:
            seen.append(asyncio.current_task())
            try:
                await answer
            finally:
                seen.append("closed")

        async def caller() -> None:
            await uncut(work())

        task = asyncio.ensure_future(caller())
        await asyncio.sleep(0)
        assert seen == [task]
        left: Generator[Any, None, None] = caller().__await__()
        next(left)
        left.close()
        assert seen[2:] == ["closed"]
        answer.set_result(None)
        await task

    asyncio.run(main())
    assert seen[3:] == ["closed"]


def test_cancellations_that_come_again_and_again_leave_nothing_behind() -> None:
    async def main() -> None:
        (answer,) = futures(1)

        async def caller() -> None:
            await uncut(answer)

        task = asyncio.ensure_future(caller())
        for _ in range(50):  # as a scope of anyio does in each turn of the loop
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(answer._callbacks or ()) == 1
        answer.set_result(1)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
