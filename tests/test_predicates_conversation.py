"""Functions that gate a call are told of the conversation, of who asked for the run, and of what it has used."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from drivers import Driver
from places import Place
from tables import each

from phronomy import Agent, Approval, Grant, Principal, ToolContext, tool
from phronomy.errors import AsyncRequired, ConfigurationError, NotAnApprover
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.worlds(2)

ADA, BERT = Principal(id="ada", roles=("lead",)), Principal(id="bert")


class App:
    """An agent on a store, built anew for each process; `told` is what its functions were told."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.told: list[ToolContext[Any]] = []

    def agent(self, *replies: Any, gate: Any = False, **options: Any) -> Agent[Any, str]:
        @tool(requires_approval=gate)
        def pay(amount: int) -> str:
            """Pay."""
            return f"paid {amount}"

        options.setdefault("store", self.place.open())
        return Agent(name="desk", model=ScriptedModel([*replies]), tools=[pay], **options)

    def urgent(self, context: ToolContext[Any]) -> bool:
        """True if the user has said so."""
        self.told.append(context)
        return any("urgent" in message.text for message in context.messages if message.role == "user")


@pytest.fixture
def app(driver: Driver, place: Place) -> App:
    return App(driver, place)


PAY = call("pay", {"amount": 5}, id="p")


# The gate of a tool, and a policy


@each("where", ["tool", "approval", "policy", "policy with an approval"])
@each("kind", ["sync", "async"])
def test_a_gate_sees_the_conversation(app: App, where: str, kind: str) -> None:
    def asks(args: Any, context: ToolContext[Any]) -> bool:
        return app.urgent(context)

    async def asks_later(args: Any, context: ToolContext[Any]) -> bool:
        return app.urgent(context)

    if kind == "async" and not app.driver.is_async:
        return
    given: Any = asks if kind == "sync" else asks_later
    given = Approval(when=given) if "approval" in where else given
    options: dict[str, Any] = {"approval_policy": {"pay": given}} if "policy" in where else {"gate": given}
    for said, status in (("Pay.", "completed"), ("Pay, it is urgent.", "suspended")):
        agent = app.agent(PAY, "Done.", **options)
        result = app.driver.invoke(agent, said, requester="carl", thread_id=f"{where}-{kind}-{status}", deps={"d": 1})
        assert result.status == status
        context = app.told[-1]
        assert [(message.role, message.text) for message in context.messages] == [("user", said), ("assistant", "")]
        assert (context.thread_id, context.requester, context.deps) == (
            f"{where}-{kind}-{status}",
            Principal(id="carl"),
            {"d": 1},
        )
        assert context.usage.requests == 1


def test_what_it_said_is_kept(app: App) -> None:
    def asks(args: Any, context: ToolContext[Any]) -> bool:
        return app.urgent(context)

    asked = app.driver.invoke(app.agent(PAY, gate=asks), "It is urgent.").checkpoint
    seen = len(app.told)
    result = app.driver.resume(app.agent("Done.", gate=asks), asked, approved=True)
    assert (result.output, len(app.told)) == ("Done.", seen)


def test_it_sees_the_thread_before_and_a_body_does_too(app: App) -> None:
    seen: list[list[str]] = []

    @tool
    def look(context: ToolContext[Any]) -> str:
        """Look."""
        seen.append([message.text for message in context.messages])
        return "looked"

    agent = Agent(
        name="a", model=ScriptedModel(["Hello.", call("look"), "Done."]), tools=[look], store=app.place.open()
    )
    app.driver.invoke(agent, "Hi.", thread_id="t")
    app.driver.invoke(agent, "Look.", thread_id="t")
    assert seen == [["Hi.", "Hello.", "Look.", ""]]


def test_in_a_nested_run_it_sees_the_conversation_of_that_run(app: App) -> None:
    def asks(args: Any, context: ToolContext[Any]) -> bool:
        return app.urgent(context)

    inner = app.agent(PAY, "Paid.", gate=asks)
    outer = Agent(
        name="outer", model=ScriptedModel([call("desk", {"input": "urgent"}), "Done."]), tools=[inner.as_tool()],
        store=app.place.open(),
    )  # fmt: skip
    asked = app.driver.invoke(outer, "Pay.").checkpoint
    assert [item.path for item in asked.pending] == ["1.0"]
    assert [message.text for message in app.told[-1].messages] == ["urgent", ""]


def test_nothing_of_the_conversation_is_in_a_repr(app: App) -> None:
    app.driver.invoke(app.agent(PAY, "Done.", gate=lambda args, context: app.urgent(context)), "the secret")
    assert "secret" not in repr(app.told)


def test_a_dry_run_has_no_conversation(app: App) -> None:
    agent = app.agent(gate=lambda args, context: app.urgent(context))
    assert agent.dry_run("pay", {"amount": 1}).verdict == "run"
    assert (app.told[-1].messages, app.told[-1].usage.requests) == ((), 0)


# Who may decide


def same_thread(who: Principal, request: Any, context: ToolContext[Any]) -> bool:
    return who.id in [message.text for message in context.messages]


def test_a_predicate_of_people_sees_the_conversation(app: App) -> None:
    approval = Approval(by=same_thread)
    asked = app.driver.invoke(app.agent(PAY, gate=approval), "ada").checkpoint
    agent = app.agent("Done.", gate=approval)
    with pytest.raises(NotAnApprover):
        app.driver.resume(agent, asked, approved=True, by=BERT)
    assert app.driver.resume(agent, asked, approved=True, by=ADA).output == "Done."


@each(
    "function",
    [
        lambda who, request: True,
        lambda who, request, context: context.run_id != "",
        lambda who, request, ctx=None: ctx is not None,
        lambda who, request, more=None: more is None,
        lambda *given: len(given) == 2,
    ],
)
def test_it_is_told_of_the_context_if_it_takes_one_more(app: App, function: Any) -> None:
    approval = Approval(by=function)
    asked = app.driver.invoke(app.agent(PAY, gate=approval), "go").checkpoint
    assert app.driver.resume(app.agent("Done.", gate=approval), asked, approved=True, by=ADA).output == "Done."


@each("function", [lambda who: True, lambda: True, lambda who, request, context, more: True])
def test_a_predicate_that_takes_something_else_is_refused_when_it_is_given(function: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"must take \(principal, request\) or \(principal, request, context\)"
    ):
        Approval(by=function)


def test_an_async_predicate_of_people_needs_the_async_methods(app: App) -> None:
    async def may(who: Principal, request: Any, context: ToolContext[Any]) -> bool:
        return same_thread(who, request, context)

    agent = app.agent(PAY, "Done.", gate=Approval(by=may))
    if not app.driver.is_async:
        with pytest.raises(AsyncRequired):
            app.driver.invoke(agent, "ada")
        return
    asked = app.driver.invoke(agent, "ada").checkpoint
    assert app.driver.resume(agent, asked, approved=True, by=ADA).output == "Done."


# Grants, and what a human is shown


def test_the_condition_of_a_grant_sees_the_conversation(app: App) -> None:
    approval = Approval(standing={"calm": lambda args, context: not app.urgent(context)})
    agent = app.agent(PAY, "Done.", PAY, gate=approval)
    until = datetime.now(UTC) + timedelta(days=1)
    grant = Grant(agent="desk", tool="pay", condition="calm", scope="tenant", until=until)
    app.place.open().grant(grant, by=ADA)
    assert app.driver.invoke(agent, "Pay.").status == "completed"
    assert app.driver.invoke(agent, "Pay, it is urgent.").status == "suspended"


def test_a_title_may_say_what_was_asked(app: App) -> None:
    approval = Approval(title=lambda args, context: f"For: {context.messages[0].text}")
    asked = app.driver.invoke(app.agent(PAY, gate=approval), "Pay the bill.").checkpoint
    assert asked.pending[0].title == "For: Pay the bill."
