"""What a misbehaving approval handler gets: it raises, answers garbage, or changes what it is shown."""

from __future__ import annotations

from typing import Any

import pytest
from drivers import ASYNC, SYNC, Driver, rows
from tables import each

from phronomy import Agent, Approval, ApprovalHandlerError, Approve, AsyncRequired, Defer, Reject, Respond, tool
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call


def gated(driver: Driver, replies: list[Any], **options: Any) -> tuple[Agent[Any, str], list[str]]:
    """An agent with two gated tools, and what they did."""
    done: list[str] = []

    def pay(amount: int = 1) -> str:
        """Pay."""
        done.append(f"pay {amount}")
        return "paid"

    def wire(amount: int = 1) -> str:
        """Wire."""
        done.append(f"wire {amount}")
        return "wired"

    def look() -> str:
        """Look."""
        done.append("look")
        return "seen"

    tools = [tool(requires_approval=True)(driver.function(body)) for body in (pay, wire)]
    return Agent(model=ScriptedModel(replies), tools=[*tools, driver.function(look)], **options), done


def test_a_handler_that_raises_is_a_typed_failure_and_nothing_runs(driver: Driver, store: Store) -> None:
    """A handler that raises: nothing gated has run, and the checkpoint asks again."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def handler(name: str, args: dict[str, Any]) -> bool:
        asked.append((name, args))
        if len(asked) == 2:
            raise ConnectionError("the chat is down")
        return True

    replies = [[call("pay"), call("look"), call("wire", {"amount": 2})], "done"]
    agent, done = gated(driver, replies, store=store, on_approval_required=driver.function(handler))

    with pytest.raises(
        ApprovalHandlerError, match="raised ConnectionError when asked about wire; nothing was run"
    ) as caught:
        driver.invoke(agent, "go", thread_id="t")

    assert done == []
    assert asked == [("pay", {"amount": 1}), ("wire", {"amount": 2})]
    assert isinstance(caught.value.__cause__, ConnectionError)
    checkpoint = caught.value.checkpoint
    assert checkpoint is not None
    assert (checkpoint.run_id, checkpoint.decisions) == (caught.value.run_id, ())
    assert checkpoint == store.load(checkpoint.id)

    result = driver.resume(agent, checkpoint)
    assert (result.output, sorted(done), len(asked)) == ("done", ["look", "pay 1", "wire 2"], 4)


@pytest.mark.parametrize(
    "garbage",
    [
        1,
        0,
        "yes",
        "",
        "False",
        [],
        {"approved": True},
        frozenset(),
        Approve,
        Reject,
        Respond(content="x"),
        Defer,
        1.0,
        True.real,
    ],
    ids=repr,
)
def test_a_handler_that_answers_garbage_is_a_typed_failure_and_nothing_runs(driver: Driver, garbage: Any) -> None:
    """A handler that answers with anything but True, False, None, Approve, Reject or Defer. field failure 3, 11"""
    answers: list[Any] = [True, garbage, True, True]
    replies = [[call("pay"), call("wire")], "done"]
    agent, done = gated(driver, replies, on_approval_required=driver.function(lambda name, args: answers.pop(0)))

    with pytest.raises(
        ApprovalHandlerError, match="which is no decision when asked about wire; nothing was run"
    ) as caught:
        driver.invoke(agent, "go")

    assert done == []
    assert caught.value.checkpoint is not None
    assert driver.resume(agent, caught.value.checkpoint).output == "done"
    assert sorted(done) == ["pay 1", "wire 1"]


def test_a_handler_that_answers_with_bad_edits_is_a_typed_failure(driver: Driver, store: Store) -> None:
    """A handler that answers garbage: edited arguments that are not valid for the tool. Nothing runs."""
    answers: list[Any] = [Approve(args={"amount": "much"}), Approve(args={"amount": 3})]
    agent, done = gated(
        driver, [call("pay"), "done"], store=store, on_approval_required=driver.function(lambda *_: answers.pop(0))
    )

    with pytest.raises(ApprovalHandlerError, match="edited arguments") as caught:
        driver.invoke(agent, "go", thread_id="t")

    assert done == []
    assert caught.value.checkpoint is not None
    result = driver.resume(agent, caught.value.checkpoint)
    assert (result.output, done) == ("done", ["pay 3"])


@each(
    ("allowed", "answer", "told"),
    [
        (["reject"], True, "answered in a way that this request does not allow (pending "),
        (["reject"], Approve(), "answered in a way that this request does not allow (pending "),
        (["approve"], False, "answered in a way that this request does not allow (pending "),
        (["approve"], None, "answered in a way that this request does not allow (pending "),
        (["approve"], Reject(reason="no"), "answered in a way that this request does not allow (pending "),
        (["approve"], Approve(args={"amount": 3}), "edited the arguments so that they cannot run (pending "),
    ],
)
def test_a_handler_that_answers_against_the_request_is_told_so(
    driver: Driver, allowed: list[Any], answer: Any, told: str
) -> None:
    """A handler that answers with a kind of decision that the tool does not allow: the error says what it did."""
    done: list[int] = []

    def pay(amount: int = 1) -> str:
        """Pay."""
        done.append(amount)
        return "paid"

    gated_pay = tool(requires_approval=Approval(answers=allowed))(driver.function(pay))
    agent = Agent(
        name="desk",
        model=ScriptedModel([call("pay"), "done"]),
        tools=[gated_pay],
        on_approval_required=driver.function(lambda *_: answer),
    )
    with pytest.raises(ApprovalHandlerError) as caught:
        driver.invoke(agent, "go")
    assert str(caught.value).startswith(f"the approval handler {told}")
    assert done == []


def test_a_handler_that_gives_an_awaitable_from_a_sync_function_is_garbage(driver: Driver) -> None:
    """A handler that answers garbage: a coroutine is not True."""

    async def later() -> bool:
        return True

    agent, done = gated(driver, [call("pay"), "done"], on_approval_required=lambda name, args: later())

    with pytest.raises(ApprovalHandlerError, match="answered with coroutine"):
        driver.invoke(agent, "go")
    assert done == []


def test_an_async_handler_or_tool_under_a_sync_call_is_refused_before_anything_runs(store: Store) -> None:
    """A handler of the wrong kind: named with the remedy; the model is not asked and nothing is stored."""

    async def handler(name: str, args: dict[str, Any]) -> bool:
        return True

    agent, done = gated(SYNC, [call("pay"), "done"], store=store, on_approval_required=handler)

    before = rows(store)
    with pytest.raises(AsyncRequired, match="call ainvoke instead of invoke"):
        agent.invoke("go")
    assert (done, rows(store)) == ([], before)
    assert ASYNC.invoke(agent, "go").output == "done"


def test_a_handler_cannot_change_what_runs(driver: Driver) -> None:
    """A handler that misbehaves: it changes the arguments that it was shown, and the tool gets what was judged."""

    def handler(name: str, args: dict[str, Any]) -> bool:
        args["amount"] = 1_000_000
        return True

    agent, done = gated(driver, [call("pay", {"amount": 5}), "done"], on_approval_required=driver.function(handler))

    result = driver.invoke(agent, "go")

    assert (result.output, done) == ("done", ["pay 5"])
