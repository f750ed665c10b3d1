"""A call that the body gives up is never run: it runs only if the body makes it again, in the run of the body that goes on."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from drivers import ASYNC, Driver
from places import Place
from tables import each
from typing_extensions import TypedDict

from phronomy import (
    Agent,
    Approve,
    OutcomeUnknown,
    Reject,
    ToolCallError,
    ToolContext,
    interrupt,
    tool,
)
from phronomy.errors import ConfigurationError
from phronomy.graph import END, START, StateGraph
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.worlds(2)


class Desk:
    """An agent whose tool `order` runs another function each time, the last one from then on; `paid` is who was paid."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.paid: list[str] = []
        self.runs: list[Any] = []
        self.options: dict[str, Any] = {}
        self.more: list[Any] = []
        self.beside: list[Any] = []

        @tool(requires_approval=True)
        def pay(to: str) -> str:
            """Pay."""
            self.paid.append(to)
            return f"paid {to}"

        @tool
        def look() -> str:
            """Look."""
            return "looked"

        self.pay, self.look = pay, look

    def agent(self, *replies: Any) -> Agent[Any, Any]:
        @tool(calls=[self.pay, self.look, *self.more], **self.options)
        def order(context: ToolContext[Any]) -> Any:
            """Order."""
            body = self.runs.pop(0) if len(self.runs) > 1 else self.runs[0]
            return body(context)

        return Agent(name="desk", model=ScriptedModel([*replies]), tools=[order, *self.beside], store=self.place.open())

    def asked(self, *runs: Any) -> Any:
        """The checkpoint of the run, after the first of these runs of the body."""
        self.runs = [*runs]
        self.paid.clear()
        return self.driver.invoke(self.agent(call("order", id="o")), "go").checkpoint

    def approve(self, asked: Any, *to: str) -> Any:
        """The result once the payments to these are approved: of all that is asked, if none are named."""
        found = [item.id for item in asked.pending if not to or item.args.get("to") in to]
        return self.driver.resume(self.agent("Done."), asked, decisions={id: Approve() for id in found}, by="ada")


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


def paying(to: str, key: str | None = None) -> Any:
    return lambda context: context.call_tool("pay", {"to": to}, key=key)


def asking(context: ToolContext[Any]) -> Any:
    return interrupt("Sure?", answer=bool)


def waits_for(result: Any) -> list[Any]:
    assert result.status == "suspended"
    return [item.args.get("to") for item in result.checkpoint.pending]


def told(result: Any) -> list[str]:
    return [message.text for message in result.messages if message.role == "tool"]


def trying(*calls: Any) -> Any:
    """A body that makes the calls one after another, and goes on after one that is refused."""

    def body(context: ToolContext[Any]) -> list[Any]:
        found = []
        for made in calls:
            try:
                found.append(made(context))
            except (ToolCallError, ConfigurationError) as error:
                found.append(type(error).__name__)
        return found

    return body


# It waits for something else


@each(
    "instead, waiting",
    [
        (paying("OTHER", "OTHER"), "OTHER"),
        (paying("ACME", "again"), "ACME"),
        (trying(lambda context: context.call_tool("look"), paying("OTHER", "b")), "OTHER"),
        (asking, None),
    ],
)
@each("approved", [True, False])
def test_a_call_that_is_given_up_for_another_is_never_run(
    desk: Desk, instead: Any, waiting: Any, approved: bool
) -> None:
    first = desk.asked(paying("ACME", "ACME"), trying(instead))
    second = desk.approve(first)
    assert (waits_for(second), desk.paid) == ([waiting], [])
    [item] = second.checkpoint.pending
    decided = Approve() if approved else Reject()
    result = desk.driver.resume(desk.agent("Done."), second.checkpoint, decisions={item.id: decided})
    assert (result.output, desk.paid) == ("Done.", [waiting] if approved and waiting else [])


def test_nor_is_it_where_its_key_is_used_for_other_arguments(desk: Desk) -> None:
    first = desk.asked(
        paying("ACME", "a"), trying(paying("EVE", "a"), paying("OTHER", "b")), trying(paying("OTHER", "b"))
    )
    second = desk.approve(first)
    assert (waits_for(second), desk.paid) == (["OTHER"], [])
    assert (desk.approve(second.checkpoint).output, desk.paid) == ("Done.", ["OTHER"])


def test_nor_is_it_where_the_store_and_a_worker_decide_and_carry_out(desk: Desk) -> None:
    asked = desk.asked(paying("ACME", "a"), trying(paying("OTHER", "b")))
    result: Any = None
    for decided in (Approve(), Reject()):
        [item] = [each.approval for each in desk.place.open().pending()]
        desk.place.open().decide(item.id, decided, digest=item.digest, by="ada")
        result = desk.driver.call(desk.agent("Done."), "recover", asked.run_id)
        assert desk.paid == []
    assert told(result) == ['["ToolCallRejected"]']


def test_its_record_says_that_it_was_not_made_again(desk: Desk) -> None:
    second = desk.approve(desk.asked(paying("ACME", "a"), paying("OTHER", "b")))
    [inside] = second.checkpoint.nested
    [given_up, _] = inside.calls
    assert (given_up.id, given_up.status, given_up.result.kind) == ("a", "settled", "cancelled")
    assert given_up.result.content == "The body did not make this call again, so it was not run."


def test_a_call_that_nobody_has_decided_on_is_asked_about_no_more(desk: Desk) -> None:
    both = pooled(("ACME", "a"), ("OTHER", "b"))
    first = desk.asked(both, paying("OTHER", "b"), trying(paying("THIRD", "c")))
    assert sorted(item.args["to"] for item in first.pending) == ["ACME", "OTHER"]
    second = desk.approve(first, "OTHER")
    assert (second.output, desk.paid, desk.place.open().pending()) == ("Done.", ["OTHER"], [])


def test_a_call_that_is_made_again_after_all_is_asked_about_anew(desk: Desk) -> None:
    other, acme = paying("OTHER", "b"), paying("ACME", "a")
    first = desk.asked(acme, other, trying(other, acme))
    second = desk.approve(first)
    third = desk.approve(second.checkpoint)
    assert (waits_for(third), desk.paid) == (["ACME"], ["OTHER"])
    assert third.checkpoint.pending[0].id != first.pending[0].id
    result = desk.approve(third.checkpoint)
    assert (told(result), desk.paid) == (['["paid OTHER","paid ACME"]'], ["OTHER", "ACME"])


def test_it_may_be_given_up_time_and_again(desk: Desk) -> None:
    acme, other = paying("ACME", "a"), paying("OTHER", "b")
    result: Any = desk.approve(desk.asked(acme, other, acme, other, acme))
    for waiting in ("OTHER", "ACME", "OTHER"):
        assert waits_for(result) == [waiting]
        result = desk.approve(result.checkpoint)
    assert (waits_for(result), desk.paid) == (["ACME"], [])
    [inside] = result.checkpoint.nested
    assert [each.id for each in inside.calls] == ["a", "b", "a.2", "b.2", "a.3"]
    assert (desk.approve(result.checkpoint).output, desk.paid) == ("Done.", ["ACME"])


def test_a_key_is_free_for_other_arguments_once_its_call_is_given_up(desk: Desk) -> None:
    last = trying(paying("OTHER", "b"), paying("EVE", "a"))
    third = desk.approve(desk.approve(desk.asked(paying("ACME", "a"), paying("OTHER", "b"), last)).checkpoint)
    assert (waits_for(third), desk.paid) == (["EVE"], ["OTHER"])
    assert (desk.approve(third.checkpoint).output, desk.paid) == ("Done.", ["OTHER", "EVE"])


# It is made again


def test_a_call_that_needs_no_approval_may_come_before_it(desk: Desk) -> None:
    def looking(context: ToolContext[Any]) -> Any:
        context.call_tool("look", key="look")
        assert desk.paid == []
        return context.call_tool("pay", {"to": "ACME"}, key="a")

    result = desk.approve(desk.asked(paying("ACME", "a"), looking))
    assert (told(result), desk.paid) == (["paid ACME"], ["ACME"])


def test_an_attempt_that_fails_before_it_leaves_it_to_the_next(desk: Desk) -> None:
    def failing(context: ToolContext[Any]) -> Any:
        raise ConnectionError

    desk.options = {"idempotent": True, "retries": 1, "retry_wait": 0}
    result = desk.approve(desk.asked(paying("ACME", "a"), failing, paying("ACME", "a")))
    assert (told(result), desk.paid) == (["paid ACME"], ["ACME"])


def test_a_body_that_fails_for_good_gives_it_up(desk: Desk) -> None:
    def failing(context: ToolContext[Any]) -> Any:
        raise ConnectionError

    result = desk.approve(desk.asked(paying("ACME", "a"), failing))
    assert (told(result), desk.paid) == (["ConnectionError"], [])


# Side by side


def pooled(*payments: tuple[str, str]) -> Any:
    """A body that makes the payments in threads, and waits for all of them."""

    def body(context: ToolContext[Any]) -> Any:
        with ThreadPoolExecutor() as pool:
            made = [
                pool.submit(contextvars.copy_context().run, context.call_tool, "pay", {"to": to}, key=key)
                for to, key in payments
            ]
        return [each.result() for each in made]

    return body


def test_threads_wait_at_once_and_one_that_is_approved_first_runs(desk: Desk) -> None:
    first = desk.asked(pooled(("ACME", "a"), ("OTHER", "b")))
    second = desk.approve(first, "OTHER")
    assert (waits_for(second), desk.paid) == (["ACME"], ["OTHER"])
    assert (desk.approve(second.checkpoint).output, desk.paid) == ("Done.", ["OTHER", "ACME"])


@each("earlier", ["ACME", "OTHER"])
def test_tasks_wait_at_once_and_one_that_is_approved_first_runs(place: Place, earlier: str) -> None:
    desk = Desk(ASYNC, place)

    @tool(calls=[desk.pay])
    async def order(context: ToolContext[Any]) -> Any:
        """Order."""
        asked = [context.acall_tool("pay", {"to": to}, key=to) for to in ("ACME", "OTHER")]
        return [str(each) for each in await asyncio.gather(*asked, return_exceptions=True)]

    def agent(*replies: Any) -> Agent[Any, Any]:
        return Agent(name="desk", model=ScriptedModel([*replies]), tools=[order], store=place.open())

    desk.agent = agent  # type: ignore[method-assign]
    desk.paid.clear()
    first = ASYNC.invoke(agent(call("order")), "go").checkpoint
    [later] = {"ACME", "OTHER"} - {earlier}
    second = desk.approve(first, earlier)
    assert (waits_for(second), desk.paid) == ([later], [earlier])
    assert (desk.approve(second.checkpoint).output, desk.paid) == ("Done.", [earlier, later])


def test_a_call_in_a_thread_that_the_body_left_is_given_up_with_the_body(desk: Desk) -> None:
    began, kept = threading.Event(), ThreadPoolExecutor()

    @tool
    def slow() -> str:
        """Take a while."""
        began.set()
        return "slow"

    def leaving(context: ToolContext[Any]) -> Any:
        kept.submit(contextvars.copy_context().run, context.call_tool, "slow", key="s")
        began.wait(10)
        return "left"

    desk.more = [slow]
    with kept:
        desk.runs = [leaving]
        result = desk.driver.invoke(desk.agent(call("order"), "Done."), "go")
    assert (result.output, told(result)) == ("Done.", ["left"])


# The run inside


def test_a_run_inside_that_is_given_up_goes_on_no_more(desk: Desk) -> None:
    def inner() -> Any:
        replies: list[Any] = [call("pay", {"to": "INNER"}), "In."]
        return Agent(name="inner", model=ScriptedModel.by_turn(replies), tools=[desk.pay]).as_tool()

    def asking_inner(context: ToolContext[Any]) -> Any:
        return context.call_tool("inner", {"input": "pay"}, key="i")

    desk.more = [inner()]
    other = paying("OTHER", "b")
    second = desk.approve(desk.asked(asking_inner, other, trying(other, asking_inner)))
    assert (waits_for(second), desk.paid) == (["OTHER"], [])
    third = desk.approve(second.checkpoint)
    assert (waits_for(third), desk.paid) == (["INNER"], ["OTHER"])
    assert (desk.approve(third.checkpoint).output, desk.paid) == ("Done.", ["OTHER", "INNER"])


def test_a_call_that_may_have_taken_effect_is_not_given_up(desk: Desk) -> None:
    @tool
    def risky() -> str:
        """Do it, perhaps."""
        desk.paid.append("risky")
        raise OutcomeUnknown

    desk.more = [risky]
    first = desk.asked(lambda context: [context.call_tool("risky", key="r"), interrupt("?")], paying("OTHER", "b"))
    assert [item.why for item in first.pending] == ["outcome_unknown"]
    assert desk.driver.resume(desk.agent("Done."), first, approved=True).status == "suspended"
    assert desk.paid == ["risky"]


# Nodes


class State(TypedDict):
    told: str


def test_a_node_gives_up_a_call_too(desk: Desk) -> None:
    desk.runs = [paying("ACME", "a"), paying("OTHER", "b")]

    def work(state: State, context: ToolContext[Any]) -> dict[str, str]:
        return {"told": (desk.runs.pop(0) if len(desk.runs) > 1 else desk.runs[0])(context)}

    def graph() -> Any:
        made = StateGraph(State)
        made.add_node("work", work, calls=[desk.pay])
        made.add_edge(START, "work")
        made.add_edge("work", END)
        return made.compile(name="graph", store=desk.place.open())

    first = desk.driver.invoke(graph(), {"told": ""}).checkpoint
    second = desk.driver.resume(graph(), first, approved=True)
    assert (waits_for(second), desk.paid) == (["OTHER"], [])
    result: Any = desk.driver.resume(graph(), second.checkpoint, approved=True)
    assert (result.output["told"], desk.paid) == ("paid OTHER", ["OTHER"])


# Its request, once the call around it is over


def ended(desk: Desk, asked: Any) -> None:
    """Another call of the same reply is rejected, and the run with it."""
    [other, inside] = sorted(asked.pending, key=lambda item: bool(item.path))
    decisions = {inside.id: Approve(), other.id: Reject(then="end")}
    assert desk.driver.resume(desk.agent("Done."), asked, decisions=decisions, by="ada").status == "rejected"


def cancelled(desk: Desk, asked: Any) -> None:
    """It is approved for a worker that has not come to it when the run is cancelled."""
    [inside] = [item for item in asked.pending if item.path]
    store = desk.place.open()
    store.decide(inside.id, Approve(), digest=inside.digest, by="ada")
    desk.driver.call(desk.agent("Done."), "cancel", asked.run_id, by="otto")


@each("end", [ended, cancelled])
def test_the_request_of_an_approved_call_that_never_ran_says_that_it_was_cancelled(desk: Desk, end: Any) -> None:
    desk.runs, desk.beside = [paying("ACME", "a")], [desk.pay]
    asked = desk.driver.invoke(desk.agent([call("order", id="o"), call("pay", {"to": "X"}, id="p")]), "go").checkpoint
    [inside] = [item for item in asked.pending if item.path]
    end(desk, asked)
    shown = desk.place.open().request(inside.id)
    assert (shown.status, shown.decision.kind, desk.paid) == ("settled", "approve", [])
    assert shown.result.kind == "cancelled"
