"""A worker whose agents run code that calls `sys.exit`: it is a failure of that run, and the worker goes on with the others."""

from __future__ import annotations

import signal
import sys
from typing import Any, Final

import pytest
from drivers import run
from places import Place

from phronomy import Agent, Approval, Approve, tool
from phronomy.errors import RunFailed
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker


@pytest.fixture
def store(place: Place) -> Store:
    """A store of each kind."""
    return place.open()


class Desk:
    """An agent that pays whom the user names; to pay "bad" calls `leave` at the place that is named."""

    is_async = False
    is_timed = False

    def __init__(self, store: Store, where: str, leave: Any = None) -> None:
        self.store = store
        self.where = where
        self.leave = leave or (lambda: sys.exit(2))
        self.paid: list[str] = []

    def at(self, where: str, to: str) -> None:
        """Leave, if this is the place."""
        if where == self.where and to == "bad":
            self.leave()

    def agent(self) -> Agent[Any, str]:
        """The agent as a process has it."""

        def body(to: str) -> str:
            """Pay."""
            self.at("body", to)
            self.paid.append(to)
            return "paid"

        async def abody(to: str) -> str:
            """Pay."""
            return body(to)

        def may(person: Any, request: Any) -> bool:
            self.at("predicate", request.args["to"])
            return True

        def reply(request: Any) -> Any:
            to = request.messages[0].text
            if request.messages[-1].role == "user":
                return [call("pay", {"to": to}), call("note", {"to": to})]
            self.at("model", to)
            return "Done."

        function = abody if self.is_async else body
        pay = tool(name="pay", requires_approval=Approval(by=may), timeout=600 if self.is_timed else None)(function)
        note = tool(name="note", requires_approval=True)(abody if self.is_async else body)
        return Agent(name="desk", model=ScriptedModel(reply), tools=[pay, note], store=self.store)

    def decided(self, *people: str) -> None:
        """Runs that wait to be carried out, with all that was asked approved."""
        for to in people:
            asked: Any = run(self.agent().ainvoke(to)).checkpoint
            for item in asked.pending:
                self.store.decide(item.id, Approve(), by="ada", digest=item.digest)


class AsyncDesk(Desk):
    """Its bodies are async."""

    is_async = True


class TimedDesk(Desk):
    """Its tool has a timeout."""

    is_timed = True


class AsyncTimedDesk(AsyncDesk):
    """Both."""

    is_timed = True


DESKS: Final = (Desk, AsyncDesk, TimedDesk, AsyncTimedDesk)


@pytest.mark.parametrize("where", ["body", "predicate", "model"])
@pytest.mark.parametrize("kind", DESKS)
def test_an_exit_is_a_failure_of_its_run_alone(store: Store, kind: type[Desk], where: str) -> None:
    desk = kind(store, where)
    desk.decided("bad", "good", "fine")
    # The run that fails does not end the worker, nor one that is started afterwards.
    worker = Worker(desk.agent(), tries=1, heard=lambda done: worker.stop())
    worker.run(grace=None)
    run(Worker(desk.agent(), tries=1).once())
    assert (desk.paid.count("good"), desk.paid.count("fine")) == (2, 2)


@pytest.mark.parametrize("kind", DESKS)
def test_a_body_that_exits_is_put_to_a_human(store: Store, kind: type[Desk]) -> None:
    desk = kind(store, "body")
    desk.decided("bad")
    [done] = run(Worker(desk.agent()).once())
    assert isinstance(done.error, RunFailed)
    assert "called sys.exit() or raised SystemExit" in str(done.error)
    assert (done.error.run_id, done.result) == (done.run_id, None)
    [done] = run(Worker(desk.agent()).once())
    assert {each.why for each in done.result.checkpoint.pending} == {"outcome_unknown"}
    assert desk.paid == []


def leave_by_signal(number: int, frame: object) -> None:
    """Leave the process, as a handler of a signal does."""
    sys.exit(7)


def by_signal() -> None:
    """A signal comes here."""
    leave_by_signal(15, None)


def by_ctrl_c() -> None:
    """Somebody presses Ctrl-C here."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("leave", "raised"), [(by_signal, SystemExit), (by_ctrl_c, KeyboardInterrupt)], ids=["signal", "ctrl-c"]
)
def test_a_signal_to_the_process_ends_the_worker(
    store: Store, monkeypatch: pytest.MonkeyPatch, leave: Any, raised: type[BaseException]
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda number: leave_by_signal if number == signal.SIGTERM else None)
    desk = AsyncDesk(store, "body", leave)
    desk.decided("bad")
    with pytest.raises(raised):
        run(Worker(desk.agent()).once())
    assert desk.paid == []
