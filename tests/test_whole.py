"""Work that a cancellation does not cut off: the cancellation is raised once the work is finished."""

from __future__ import annotations

import asyncio

import pytest

from phronomy.concurrency.workers import whole


async def waits(answers: list[asyncio.Future[int]], done: list[str]) -> int:
    total = 0
    for answer in answers:
        total += await answer
    done.append("finished")
    return total


def futures(number: int) -> list[asyncio.Future[int]]:
    return [asyncio.get_running_loop().create_future() for _ in range(number)]


def test_the_result_is_given_whether_it_is_there_or_waited_for() -> None:
    async def main() -> None:
        there, later = futures(2)
        there.set_result(1)
        asyncio.get_running_loop().call_soon(later.set_result, 2)
        assert await whole(waits([there, later], [])) == 3
        assert await whole(waits([], [])) == 0
        assert await whole(there) == 1

    asyncio.run(main())


def test_an_error_is_raised_as_it_is() -> None:
    async def main() -> None:
        (answer,) = futures(1)
        asyncio.get_running_loop().call_soon(answer.set_exception, KeyError("k"))
        with pytest.raises(KeyError):
            await whole(waits([answer], []))

    asyncio.run(main())


@pytest.mark.parametrize("fails", [False, True])
def test_a_cancellation_is_raised_once_the_work_is_finished(fails: bool) -> None:
    async def main() -> None:
        first, second = answers = futures(2)
        done: list[str] = []

        async def work() -> int:
            return int(await whole(waits(answers, done)))

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


def test_a_loop_that_cancels_all_its_tasks_at_its_end_does_not_cut_it_off() -> None:
    done: list[str] = []

    async def main() -> None:
        (answer,) = futures(1)
        task = asyncio.ensure_future(whole(waits([answer], done)))
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task(), task}
        task.cancel()
        await asyncio.sleep(0)
        answer.set_result(1)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert done == ["finished"]
