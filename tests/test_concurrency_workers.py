"""The threads that bodies run in: used again, never waited for by other work, and nothing of what they did is left in them."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from queue import SimpleQueue
from typing import Any, cast

import pytest
from drivers import PATIENCE, calls_ended

from phronomy.concurrency import workers
from phronomy.concurrency.leaving import Leave
from phronomy.concurrency.starting import start
from phronomy.concurrency.workers import _Threads, in_thread
from phronomy.stores.lease_keeper import Keeper


class Desk:
    """Threads of its own, and what came of the work."""

    def __init__(self) -> None:
        self.threads = _Threads()
        self.box: SimpleQueue[Any] = SimpleQueue()

    def begin(self, work: Callable[[], Any]) -> None:
        self.threads.do(work, self.box.put)

    def done(self, work: Callable[[], Any]) -> Any:
        self.begin(work)
        return self.box.get(timeout=PATIENCE)


def test_one_piece_of_work_after_another_is_done_in_the_same_thread() -> None:
    desk = Desk()
    first = desk.done(threading.current_thread)
    assert first is not threading.current_thread() and first.daemon
    assert [desk.done(threading.current_thread) for _ in range(3)] == [first] * 3


def test_work_that_does_not_come_back_holds_up_no_other() -> None:
    desk, go_on = Desk(), threading.Event()

    def hangs() -> bool:
        desk.box.put(threading.current_thread())
        return go_on.wait(PATIENCE)

    held = desk.done(hangs)
    others = [desk.done(threading.current_thread) for _ in range(2)]
    assert others[0] is others[1] is not held
    go_on.set()
    assert desk.box.get(timeout=PATIENCE) is True
    assert desk.done(threading.current_thread) is held  # it takes work again


def test_a_thread_that_nobody_needs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_LINGERS", 0.001)
    desk = Desk()
    thread = desk.done(threading.current_thread)
    thread.join(PATIENCE)
    assert not thread.is_alive() and desk.threads._idle == []
    assert desk.done(threading.current_thread) is not thread


def test_a_thread_that_is_taken_as_its_time_is_over_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_LINGERS", 0.001)
    over, given = threading.Event(), threading.Event()

    class Taken(list[Any]):
        def remove(self, _: object) -> None:
            over.set()
            if not given.is_set():  # once it has the work, let it end
                raise ValueError("it has been taken this moment")

    desk = Desk()
    desk.threads._idle = taken = Taken()
    thread = desk.done(threading.current_thread)
    assert over.wait(PATIENCE)
    taken.pop().take(threading.current_thread, desk.box.put)
    given.set()
    assert desk.box.get(timeout=PATIENCE) is thread
    thread.join(PATIENCE)
    assert not thread.is_alive()


_SEEN: ContextVar[str] = ContextVar("seen", default="nothing")


def test_each_work_has_the_context_variables_of_its_caller() -> None:
    def work() -> str:
        found = _SEEN.get()
        _SEEN.set("changed by the work")
        return found

    token = _SEEN.set("the caller's")
    assert in_thread(work, None) == "the caller's"
    _SEEN.reset(token)
    assert (in_thread(work, None), _SEEN.get()) == ("nothing", "nothing")


def test_nothing_of_the_work_is_kept() -> None:
    class Big:
        pass

    desk, big = Desk(), Big()
    kept = weakref.ref(big)
    assert desk.done(partial(isinstance, big, Big)) is True
    del big
    desk.done(int)
    assert kept() is None


def test_a_forked_child_does_not_hand_work_to_threads_of_its_parent() -> None:
    desk = Desk()
    thread = desk.done(threading.current_thread)
    desk.threads._pid = -1  # as in a child
    child = desk.done(threading.current_thread)
    assert child is not thread
    assert desk.done(threading.current_thread) is child


def test_a_delivery_that_fails_is_told_as_any_error_of_a_thread_and_the_thread_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: SimpleQueue[Any] = SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", told.put)
    desk = Desk()
    thread = desk.done(threading.current_thread)

    def fails(_: object) -> None:
        raise OSError("nobody there")

    desk.threads.do(int, fails)
    assert str(told.get(timeout=PATIENCE).exc_value) == "nobody there"
    assert desk.done(threading.current_thread) is thread


def test_an_idle_thread_is_no_call() -> None:
    in_thread(int, None)
    calls_ended()
    assert "phronomy-idle" in {thread.name for thread in threading.enumerate()}


@pytest.fixture
def interrupted_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The next wait of this thread for another one is interrupted once its lock is let go, before it is ready to take it back."""
    let_go, here = threading.Condition._release_save, threading.get_ident()  # type: ignore[attr-defined]

    def interrupted(condition: threading.Condition) -> object:
        state = let_go(condition)
        if threading.get_ident() == here:
            monkeypatch.undo()
            raise KeyboardInterrupt
        return state

    before = sys.getswitchinterval()
    sys.setswitchinterval(PATIENCE)  # this thread waits before the new one begins
    monkeypatch.setattr(threading.Condition, "_release_save", interrupted)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("interrupted_start")
@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(lambda: _Threads().do(int, lambda _: None), id="of-a-body"),
        pytest.param(lambda: Leave().after(PATIENCE), id="of-a-timer"),
        pytest.param(lambda: Keeper(PATIENCE).hold(cast("Any", Desk())), id="of-the-keeper-of-leases"),
    ],
)
def test_ctrl_c_while_a_thread_is_started_is_no_error_of_its_work(begin: Callable[[], object]) -> None:
    with pytest.raises(KeyboardInterrupt):
        begin()


def test_a_thread_that_cannot_be_started_says_so() -> None:
    thread = threading.Thread(target=int)
    start(thread)
    thread.join()
    with pytest.raises(RuntimeError, match="threads can only be started once"):
        start(thread)
