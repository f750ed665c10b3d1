"""Leases are kept alive while their workers are busy, and by nothing longer than that."""

from __future__ import annotations

import _thread
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

import pytest
from drivers import DRIVERS, PATIENCE, Driver, until

from phronomy import Agent, MemoryStore, parallel, tool
from phronomy.engine.run import Runner
from phronomy.engine.shared import Shared
from phronomy.models.base import ModelRequest
from phronomy.records.moves import Move
from phronomy.runs import driving
from phronomy.stores.lease_keeper import Keeper
from phronomy.stores.rows import Branch, Claim
from phronomy.testing import ScriptedModel, call


class Kept:
    """Something to keep: counts how often it was kept, and may fail each time."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.times = threading.Semaphore(0)

    def keep(self) -> None:
        self.times.release()
        if self.fault is not None:
            raise self.fault

    def wait(self, times: int) -> bool:
        return all(self.times.acquire(timeout=PATIENCE) for _ in range(times))


def ended(thread: threading.Thread | None) -> bool:
    assert thread is not None
    thread.join(PATIENCE)
    return not thread.is_alive()


def cut_off_everywhere(act: Callable[[], object], *, file: str = "") -> Iterator[None]:
    """Interrupt `act` as its first Python function begins, as the next one begins or ends, and so on up to its end.

    With a file, functions of that one alone count.
    """
    for last in range(10_000):
        left, before = last, sys.getprofile()

        def look(frame: FrameType, event: str, _arg: object) -> None:
            nonlocal left
            left -= event in ("call", "return") and frame.f_code.co_filename.endswith(file)
            if left < 0:
                raise KeyboardInterrupt

        sys.setprofile(look)
        try:
            act()
        except (KeyboardInterrupt, RuntimeError):  # of a condition that was interrupted
            is_done = False
        else:
            is_done = True
        finally:
            left = 10_000
            sys.setprofile(before)
        yield
        if is_done:
            return


def in_time(act: Callable[[], object]) -> bool:
    """Whether this comes to its end in another thread."""
    return ended(spawned(act))


def spawned(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def test_what_is_held_is_kept_again_and_again_until_it_is_dropped() -> None:
    keeper, one, two = Keeper(0.03), Kept(), Kept()
    keeper.hold(one)
    keeper.hold(two)
    assert one.wait(3) and two.wait(3)
    keeper.drop(one)
    assert two.wait(3)
    thread = keeper._thread
    keeper.drop(two)
    assert ended(thread) and keeper._thread is None
    keeper.hold(one)
    assert one.wait(2)
    keeper.drop(one)


def test_a_store_that_is_away_for_a_while_is_tried_again_and_keeps_no_other_from_its_turn() -> None:
    keeper, away, there = Keeper(0.03), Kept(ConnectionError("no route")), Kept()
    keeper.hold(away)
    keeper.hold(there)
    assert away.wait(3) and there.wait(3)
    keeper.drop(away)
    keeper.drop(there)


def test_a_poke_keeps_at_once() -> None:
    keeper, kept = Keeper(3600.0), Kept()
    keeper.hold(kept)
    keeper.poke()
    assert kept.times.acquire(blocking=False)
    keeper.drop(kept)


def test_what_nobody_drives_any_more_is_kept_no_more() -> None:
    keeper, left = Keeper(0.03), Kept()
    gone = threading.Event()
    weakref.finalize(left, gone.set)
    keeper.hold(left)
    assert left.wait(2)
    del left
    assert gone.wait(PATIENCE)
    assert ended(keeper._thread)


def test_a_thread_that_could_not_be_started_is_started_by_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, kept = Keeper(0.03), Kept()

    def no_room(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_room)
        with pytest.raises(RuntimeError):
            keeper.hold(kept)
    keeper.hold(kept)
    assert kept.wait(1)
    keeper.drop(kept)


def test_a_keeper_that_is_interrupted_anywhere_goes_on() -> None:
    """An interrupt may come between any two lines, also behind a lock that was taken and before the block that gives it back."""
    keeper, kept = Keeper(3600.0), Kept()

    def both() -> None:
        keeper.hold(kept)
        keeper.drop(kept)

    for _ in cut_off_everywhere(both):
        assert in_time(lambda: keeper.hold(kept)), "nothing waits for a lock that nobody gives back"
        keeper.drop(kept)


class Watched(MemoryStore):
    """A memory store that says when a lease was renewed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.renewed = threading.Event()

    def renew(self, claim: Claim) -> Branch:
        branch = super().renew(claim)
        self.renewed.set()
        return branch


@pytest.mark.parametrize("driver", DRIVERS, ids=str)
def test_a_tool_that_takes_longer_than_the_lease_keeps_its_run(driver: Driver) -> None:
    store = Watched(lease=0.06)

    @tool
    def slow() -> str:
        """Takes several leases."""
        for _ in range(3):
            store.renewed.clear()
            assert store.renewed.wait(PATIENCE)
        return "done at last"

    agent = Agent(name="clerk", model=ScriptedModel([call("slow"), "good"]), tools=[slow], store=store)
    result = driver.invoke(agent, "go")
    assert (result.output, [message.text for message in result.messages if message.role == "tool"]) == (
        "good",
        ["done at last"],
    )
    branch = store.branches()[0]
    assert (branch.fence, branch.owner, branch.status) == (1, None, "completed")


LEFT = {
    "before the first step": ("invoke", ["nobody_asks"]),
    "before the first step of a resume": ("resume", ["nobody_asks"]),
    "a second time, as the run is let go": ("invoke", ["watched", "let_go", "alet_go"]),
}


@pytest.mark.parametrize("driver", DRIVERS, ids=str)
@pytest.mark.parametrize("where", LEFT)
def test_a_run_that_was_cut_off_where_it_could_not_be_let_go_is_recovered_once_its_lease_is_over(
    driver: Driver, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process lives on, and drives other runs. field failure 3"""
    now = [1000.0]
    store, paid = MemoryStore(lease=30.0, clock=lambda: now[0]), list[int]()
    kept: list[BaseException] = []

    def pay(order: int) -> str:
        """Pay an order."""
        paid.append(order)
        return "paid"

    pays = tool(requires_approval=True)(driver.function(pay))
    model = ScriptedModel.by_turn([call("pay", {"order": 1}), "Done."])
    agent = Agent(name="clerk", model=model, tools=[pays], store=store)
    method, names = LEFT[where]
    asked = driver.invoke(agent, "Pay.").checkpoint if method == "resume" else None

    def leave(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        for name in names:
            patched.setattr(driving, name, leave) if name != "watched" else patched.setattr(
                driving.Watch, "hear", leave
            )
        try:
            driver.invoke(agent, "Pay.") if asked is None else driver.resume(agent, asked, approved=True)
        except KeyboardInterrupt as error:
            kept.append(error)
        else:
            raise AssertionError("it was cut off")
    if "let_go" not in names:
        kept.clear()  # its traceback leads to all that the run was driven with, as where somebody logs it
        gc.collect()  # a loop keeps its tasks in a circle
    assert not store.keeper._living()
    (branch,) = store.branches()
    assert (branch.status, branch.owner is None) == ("running", False)
    now[0] += 31.0
    result = driver.recover(agent, branch.id)
    assert (result.status, paid) == ("suspended", [])


def test_a_second_interrupt_while_a_run_is_given_up_leaves_nothing_that_renews_its_lease_or_works_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of runs side by side inside it: their threads cannot be stopped, and learn that the run is given up as they write."""
    now, asked, answered, inside = [1000.0], list[str](), threading.Event(), list[threading.Thread]()
    store = MemoryStore(lease=30.0, clock=lambda: now[0])
    both = threading.Barrier(2, timeout=PATIENCE)
    lose, plan = Shared.lose, Runner.plan

    def slow(request: ModelRequest) -> str:
        asked.append("model")
        if len(asked) <= 2:
            if both.wait() == 0:
                _thread.interrupt_main()
            answered.wait(PATIENCE)
        return "hello"

    def lose_and_leave(shared: Shared) -> NoReturn:
        monkeypatch.setattr(Shared, "lose", lose)
        lose(shared)
        raise KeyboardInterrupt

    def noted(runner: Runner) -> Move:
        if threading.current_thread() not in inside and not runner.root:
            inside.append(threading.current_thread())
        return plan(runner)

    monkeypatch.setattr(Shared, "lose", lose_and_leave)
    monkeypatch.setattr(Runner, "plan", noted)
    one, other = (Agent(name=name, model=ScriptedModel.by_turn([slow])) for name in ("one", "other"))
    pair: Any = parallel(one, other, name="pair", store=store)
    with pytest.raises(KeyboardInterrupt):
        pair.invoke("go")
    (branch,) = store.branches()
    now[0] += 1.0
    store.keeper.poke()
    assert store.branches() == [branch] and branch.owner is not None, "it is renewed no more"
    answered.set()
    until(lambda: len(inside) == 2 and all(each.name == "phronomy-idle" for each in inside))
    now[0] += 30.0
    assert (pair.recover(branch.id).status, len(asked)) == ("completed", 4)
