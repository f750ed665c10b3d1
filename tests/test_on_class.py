"""`Desk.invoke(...)`: the methods that run an agent, called on its class."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest
from drivers import ASYNC, DRIVERS, PATIENCE, STREAMED, SYNC, Driver

from phronomy import (
    Agent,
    AgentChanged,
    Approve,
    CheckpointAlreadyResumed,
    ConfigurationError,
    Graph,
    MemoryStore,
    UnknownPending,
    tool,
)
from phronomy.testing import ScriptedModel, call


def classes(driver: Driver) -> tuple[Any, Any, list[int]]:
    """A class of an agent, one that inherits from it, and what their tool has done."""
    done: list[int] = []

    @tool(requires_approval=True)
    @driver.function
    def refund(order_id: int) -> str:
        """Refund an order."""
        done.append(order_id)
        return "refunded"

    class Desk(Agent[Any, str]):
        model = ScriptedModel.by_turn([call("refund", {"order_id": 1042}), "Done."])
        tools = [refund]

    class LateDesk(Desk):
        """The same desk, at night."""

    return Desk, LateDesk, done


@pytest.fixture(params=[*DRIVERS, *STREAMED], ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


@pytest.mark.parametrize("option", ["approval_policy", "tools", "on_approval_required"])
@pytest.mark.parametrize("inherited", [False, True])
def test_an_option_that_is_set_after_the_first_call_is_no_gate_that_is_ignored(inherited: bool, option: str) -> None:
    """Fail closed: nothing runs until it is as it was, and an object made of the class has what is written there now."""
    desk, late, _ = classes(SYNC)
    SYNC.invoke(late, "Refund order 1042")
    changed = desk if inherited else late
    before = changed.__dict__.get(option, ...)
    setattr(changed, option, ["refund"] if option == "approval_policy" else lambda *_: None)
    for driver in DRIVERS:
        with pytest.raises(
            ConfigurationError, match=f"LateDesk has run, so its configuration is fixed, and {option} was"
        ):
            driver.invoke(late, "Refund order 1042")
    if option == "approval_policy":
        assert late().approval_policy == ["refund"]
    delattr(changed, option) if before is ... else setattr(changed, option, before)
    assert SYNC.invoke(late, "Refund order 1042").suspended


def test_a_class_runs_and_resumes_without_an_object(driver: Driver) -> None:
    """R11, RBY-A01, RBY-A02, B1: the class finds the run that it began, and the decision counts once."""
    desk, late, done = classes(driver)
    asked = driver.invoke(desk, "Refund order 1042", thread_id="t")
    assert (asked.status, asked.checkpoint.pending_tool_name, done) == ("suspended", "refund", [])
    with pytest.raises(AgentChanged):  # RBY-A13, B8
        driver.resume(late, asked.checkpoint, approved=True)
    assert driver.resume(desk, asked.checkpoint, approved=True).output == "Done."
    with pytest.raises(CheckpointAlreadyResumed):
        driver.resume(desk, asked.checkpoint, approved=False)
    again = driver.invoke(desk, "And again", thread_id="t")
    assert [message.role for message in again.messages].count("user") == 2, "the class has one store"
    assert done == [1042]


def test_the_id_of_a_checkpoint_is_enough_for_the_class() -> None:
    """R11: all that the class has begun is in one store."""
    desk, _, done = classes(SYNC)
    asked = desk.invoke("Refund").checkpoint
    assert desk.resume(asked.id, approved=True).output == "Done."
    assert done == [1042]
    with pytest.raises(UnknownPending):
        desk.resume(desk.invoke("Refund").checkpoint, decisions={asked.pending[0].id: Approve()})


def test_each_class_has_its_own_agent_and_an_object_is_another() -> None:
    desk, late, _ = classes(SYNC)
    store = MemoryStore()
    one = desk(store=store)
    assert [each.invoke("x").checkpoint.agent.name for each in (desk, late, one)] == ["Desk", "LateDesk", "Desk"]
    assert len(store.branches()) == 1
    assert desk.invoke(one, "x").status == "suspended", "as any method of a class, on an object of it"
    assert len(store.branches()) == 2
    assert (len(desk._own), len(late._own)) == (1, 1)


def test_threads_that_call_a_class_first_at_once_get_one_agent() -> None:
    desk, _, _ = classes(SYNC)
    start = threading.Barrier(8)
    found: list[str] = []

    def work() -> None:
        start.wait(PATIENCE)
        found.append(desk.invoke("x").run_id)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    ((own, _),) = desk._own.values()
    assert {branch.id for branch in own.store.branches()} == set(found)
    assert len(found) == 8


def test_a_class_that_cannot_make_an_agent_says_so() -> None:
    """A mistake is a typed error, and looking at a method makes nothing."""

    class Named(Agent[Any, str]):
        def __init__(self, customer: str) -> None:
            super().__init__(name=customer, model=ScriptedModel(["Hello."]))

    with pytest.raises(ConfigurationError, match=r"Named needs arguments to make an agent \(missing .*'customer'\)"):
        Named.invoke("x")
    assert Named("ann").invoke("x").output == "Hello."
    for kind in (Agent, Graph):
        with pytest.raises(ConfigurationError, match=f"^{kind.__name__} itself runs nothing"):
            kind.invoke("x")

    class Empty(Agent[Any, str]):
        pass

    assert inspect.signature(Empty.invoke) == inspect.signature(Empty().invoke.__func__)  # type: ignore[attr-defined]
    assert Empty.invoke.__doc__ == Empty().invoke.__doc__
    assert inspect.iscoroutinefunction(Empty.ainvoke)
    assert Empty._own == {}
    with pytest.raises(ConfigurationError, match="model"):
        Empty.invoke("x")


def test_a_subclass_can_add_to_a_method() -> None:
    """Its `super()` is the method as it was, and the class calls the new one on an object of its own."""

    class Loud(Agent[Any, str]):
        model = ScriptedModel.by_turn(["Hello."])

        def invoke(self, input: Any, **options: Any) -> Any:  # type: ignore[override]
            return super().invoke(str(input).upper(), **options)

    assert Loud().invoke("hello").messages[0].text == "HELLO"


def test_a_sync_class_tells_of_async_tools() -> None:
    desk, _, _ = classes(ASYNC)
    with pytest.raises(ConfigurationError, match="ainvoke"):
        desk.invoke("x")
