"""Calls that the body of a tool makes of other tools: each passes its own gate, and a body that runs again finds what has settled."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from drivers import ASYNC, Driver
from places import Place
from tables import each
from typing_extensions import TypedDict

from phronomy import (
    Agent,
    Approval,
    Approve,
    Breakpoint,
    ExternalTool,
    Grant,
    MemoryStore,
    OutcomeUnknown,
    Principal,
    Reject,
    Respond,
    Tool,
    ToolCallError,
    ToolCallFailed,
    ToolCallRejected,
    ToolContext,
    interrupt,
    tool,
)
from phronomy.errors import (
    AgentChanged,
    AsyncRequired,
    CheckpointAlreadyResumed,
    CheckpointError,
    ConfigurationError,
    IllegalOutcome,
    InvalidDecision,
    LimitExceeded,
    NodeFailed,
    NotAnApprover,
    ToolDefinitionError,
)
from phronomy.events import replay
from phronomy.graph import END, START, StateGraph
from phronomy.guardrails.guardrail import RefusePatterns
from phronomy.records.calls import Advanced, Finished
from phronomy.records.messages import Usage
from phronomy.records.moves import Done
from phronomy.rules.body_calls import apply, plan
from phronomy.rules.limits import Limits
from phronomy.testing import ScriptedModel, call, say

pytestmark = pytest.mark.worlds(2)

HANDLE = call("handle", {"order_id": 7}, id="h")
ADA = Principal(id="ada", roles=("lead",))


class App:
    """An agent on a store, built anew for each process; `ran` is what the bodies did, in order."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.now = 1_700_000_000.0
        self.ran: list[str] = []
        self.keys: list[str] = []
        self.told: list[Any] = []
        self.gate: Any = True
        self.options: dict[str, Any] = {}

    def open(self) -> Any:
        return self.place.open(clock=lambda: self.now)

    def refund_tool(self) -> Any:
        @tool(requires_approval=self.gate, **self.options)
        def refund(order_id: int, amount: float = 1.0, context: ToolContext[Any] = None) -> dict[str, float]:  # type: ignore[assignment]
            """Refund an order."""
            self.ran.append(f"refund {order_id} {amount}")
            self.keys.append(context.idempotency_key)
            return {"refunded": amount}

        return refund

    def agent(
        self, *replies: Any, body: Any = None, calls: Any = None, tools: Any = (), **options: Any
    ) -> Agent[Any, Any]:
        """An agent with a tool `handle`, whose body makes the calls."""
        made = self.refund_tool()
        calls = (made,) if calls is None else (made, *calls)

        def handle(order_id: int, context: ToolContext[Any]) -> Any:
            """Handle an order."""
            self.ran.append("handle")
            return (body or self.refund_it)(context, order_id)

        options.setdefault("store", self.open())
        handling = options.pop("handling", {})
        own = tool(calls=[*calls], **handling)(handle)
        return Agent(name="desk", model=ScriptedModel([*replies]), tools=[own, *tools], **options)

    def refund_it(self, context: ToolContext[Any], order_id: int) -> Any:
        return context.call_tool("refund", {"order_id": order_id})

    def asked(self, *, body: Any = None, **options: Any) -> Any:
        """The checkpoint of a run whose body has made its call, which waits."""
        checkpoint = self.driver.invoke(self.agent(HANDLE, body=body, **options), "go", requester="carl").checkpoint
        assert checkpoint.status == "suspended"
        return checkpoint

    def resume(self, asked: Any, *replies: Any, body: Any = None, **options: Any) -> Any:
        made = {name: options.pop(name) for name in ("calls", "tools", "handling", "store") if name in options}
        made |= {name: options.pop(name) for name in [*options] if name.endswith(("guardrails", "policy"))}
        return self.driver.resume(self.agent(*(replies or ("Done.",)), body=body, **made), asked, **options)


@pytest.fixture
def app(driver: Driver, place: Place) -> App:
    return App(driver, place)


def results(result: Any) -> list[tuple[str | None, str]]:
    return [(message.settlement, message.text) for message in result.messages if message.role == "tool"]


# It waits, and runs


@pytest.mark.product
def test_a_call_of_a_body_waits_and_runs_once_when_it_is_approved(app: App) -> None:
    asked = app.asked()
    [pending] = asked.pending
    assert (pending.tool_name, pending.path, pending.args, pending.why) == (
        "refund", "1.0", {"order_id": 7, "amount": 1.0}, "approval",
    )  # fmt: skip
    assert (pending.agent, pending.requester, app.ran) == ("desk", Principal(id="carl"), ["handle"])
    assert [item.approval.id for item in app.open().pending()] == [pending.id]
    result = app.resume(asked, approved=True, by=ADA)
    assert (result.output, results(result)) == ("Done.", [("completed", '{"refunded":1.0}')])
    assert app.ran == ["handle", "handle", "refund 7 1.0"]
    assert [(record.pending_id, record.kind, record.by.id) for record in app.open().audit()] == [
        (pending.id, "approve", "ada")
    ]
    with pytest.raises(CheckpointAlreadyResumed):
        app.resume(asked, approved=True, by=ADA)


def test_a_call_that_needs_no_approval_runs_at_once(app: App) -> None:
    app.gate = False
    result = app.driver.invoke(app.agent(HANDLE, "Done."), "go")
    assert (result.output, app.ran) == ("Done.", ["handle", "refund 7 1.0"])
    assert result.checkpoint.nested == ()


def test_settled_calls_return_their_results_and_do_not_run_again(app: App) -> None:
    def three(context: ToolContext[Any], order_id: int) -> Any:
        return [context.call_tool("refund", {"order_id": order_id + place})["refunded"] for place in range(3)]

    asked = app.asked(body=three)
    for place in range(3):
        assert [item.args["order_id"] for item in asked.pending] == [7 + place]
        result = app.resume(
            asked, body=three, decisions={asked.pending[0].id: Approve(args={"order_id": 7 + place, "amount": place})}
        )
        asked = result.checkpoint
    assert results(result) == [("completed", "[0.0,1.0,2.0]")]
    assert [each for each in app.ran if each != "handle"] == ["refund 7 0.0", "refund 8 1.0", "refund 9 2.0"]
    assert len(set(app.keys)) == 3


def test_the_value_is_the_same_before_and_after_a_stop(app: App) -> None:
    @tool
    def look(order_id: int) -> list[dict[str, Any]]:
        """Look."""
        return [{"id": order_id, "of": "5"}]

    def both(context: ToolContext[Any], order_id: int) -> Any:
        app.told.append(context.call_tool(look, {"order_id": order_id}, key="look"))
        return context.call_tool("refund", {"order_id": order_id}, key="refund")

    app.resume(app.asked(body=both, calls=[look]), body=both, calls=[look], approved=True)
    assert app.told == [[{"id": 7, "of": "5"}]] * 2


# The decisions of people


def tried(context: ToolContext[Any], order_id: int) -> str:
    try:
        return str(context.call_tool("refund", {"order_id": order_id}))
    except ToolCallError as error:
        return f"{type(error).__name__} {error.kind} {error.reason} {error.tool_name} {error.pending_id is not None}"


@each(
    "decided, told",
    [
        ({"approved": True}, "{'refunded': 1.0}"),
        ({"approved": False, "reason": "too late"}, "ToolCallRejected rejected too late refund True"),
        (Approve(args={"order_id": 8, "amount": 2.0}), "{'refunded': 2.0}"),
        (Respond(content={"by": "cheque"}), "{'by': 'cheque'}"),
        (Reject(then="block"), "ToolCallRejected rejected None refund True"),
    ],
)
def test_a_decision_comes_to_the_body(app: App, decided: Any, told: str) -> None:
    asked = app.asked(body=tried)
    options = decided if isinstance(decided, dict) else {"decisions": {asked.pending[0].id: decided}}
    assert results(app.resume(asked, body=tried, by="ada", **options)) == [("completed", told)]


def test_an_error_that_the_body_does_not_catch_is_told_to_the_model(app: App) -> None:
    [(kind, text)] = results(app.resume(app.asked(), approved=False, reason="no"))
    assert (kind, text.partition(":")[0]) == ("failed", "ToolCallRejected")


@each("then", ["block", "block_tool"])
def test_a_call_that_is_blocked_is_rejected_without_asking_again(app: App, then: Any) -> None:
    def twice(context: ToolContext[Any], order_id: int) -> Any:
        return [tried(context, order_id), tried(context, order_id)]

    asked = app.asked(body=twice)
    result = app.resume(asked, body=twice, decisions={asked.pending[0].id: Reject(then=then)})
    assert (result.output, "refund 7 1.0" in app.ran) == ("Done.", False)


def test_a_rejection_may_end_all(app: App) -> None:
    asked = app.asked(body=tried)
    result = app.resume(asked, body=tried, decisions={asked.pending[0].id: Reject(then="end")})
    assert (result.status, app.ran.count("refund 7 1.0")) == ("rejected", 0)


def test_a_call_expires(app: App) -> None:
    app.gate = Approval(expires=10)
    asked = app.asked(body=tried)
    app.now += 11
    assert results(app.resume(asked, body=tried)) == [("completed", "ToolCallExpired expired None refund True")]


def test_a_run_that_waits_in_a_body_can_be_cancelled(app: App) -> None:
    asked = app.asked()
    result = app.driver.call(app.agent(), "cancel", asked.run_id, reason="stop")
    assert (result.status, results(result)[0][0], app.open().pending()) == ("cancelled", "cancelled", [])


def test_a_decision_with_the_store_alone_is_carried_out_by_a_worker(app: App) -> None:
    asked = app.asked(body=tried)
    [pending] = asked.pending
    app.open().decide(pending.id, Approve(args={"order_id": 9, "amount": 3}), by=ADA, digest=pending.digest)
    result = app.driver.call(app.agent("Done.", body=tried), "recover", asked.run_id)
    assert (results(result), app.ran[-1]) == ([("completed", "{'refunded': 3.0}")], "refund 9 3.0")


def test_an_edit_that_is_not_valid_is_refused(app: App) -> None:
    asked = app.asked()
    with pytest.raises(InvalidDecision):
        app.resume(asked, decisions={asked.pending[0].id: Approve(args={"order_id": "seven"})})


def test_people_and_votes_count(app: App) -> None:
    app.gate = Approval(by="lead", needed=2, not_requester=True)
    asked = app.asked()
    with pytest.raises(NotAnApprover):
        app.resume(asked, approved=True, by=Principal(id="bob"))
    once = app.resume(asked, approved=True, by=ADA)
    assert (once.status, app.ran.count("refund 7 1.0")) == ("suspended", 0)
    twice = app.resume(once.checkpoint, approved=True, by=Principal(id="eve", roles=("lead",)))
    assert (twice.output, app.ran.count("refund 7 1.0")) == ("Done.", 1)


# Guardrails, policies and the rest that has a say


def test_a_policy_of_the_agent_asks(app: App) -> None:
    app.gate = False
    policy = {"refund": True}
    asked = app.asked(approval_policy=policy)
    assert app.resume(asked, approved=True, approval_policy=policy).output == "Done."


def test_a_guardrail_refuses(app: App) -> None:
    result = app.driver.invoke(
        app.agent(HANDLE, "Done.", body=tried, tool_guardrails=[RefusePatterns(["amount"])]), "go"
    )
    assert results(result) == [("completed", "ToolCallRejected rejected None refund False")]


def test_a_handler_answers(app: App) -> None:
    agent = app.agent(HANDLE, "Done.")
    agent.on_approval_required(lambda name, args: app.told.append((name, args)) or True)
    assert app.driver.invoke(agent, "go").output == "Done."
    assert app.told == [("refund", {"order_id": 7, "amount": 1.0})]


def test_a_grant_lets_it_through(app: App) -> None:
    from datetime import UTC, datetime, timedelta

    app.gate = Approval(by="lead", standing=True)
    until = datetime.fromtimestamp(app.now, UTC) + timedelta(days=1)
    app.open().grant(Grant(agent="desk", tool="refund", scope="tenant", until=until), by=ADA)
    assert app.driver.invoke(app.agent(HANDLE, "Done."), "go").output == "Done."


def test_a_predicate_sees_the_conversation(app: App) -> None:
    app.gate = lambda args, context: any("careful" in message.text for message in context.messages)
    assert app.driver.invoke(app.agent(HANDLE, "Done."), "go").status == "completed"
    assert app.driver.invoke(app.agent(HANDLE, "Done."), "be careful").status == "suspended"


def test_a_dry_run_goes_into_a_body(app: App) -> None:
    agent = app.agent(approval_policy={"refund": True})
    assert agent.dry_run("handle/refund", {"order_id": 1}).verdict == "ask"


def test_scopes_count(app: App) -> None:
    app.options = {"scopes": ["pay"]}
    result = app.driver.invoke(app.agent(HANDLE, "Done.", body=tried), "go")
    assert results(result) == [("completed", "ToolCallFailed invalid None refund False")]
    assert app.driver.invoke(app.agent(HANDLE, "Done.", body=tried), "go", scopes=["pay"]).status == "suspended"


def test_retries_of_the_inner_tool(app: App) -> None:
    tries: list[int] = []

    @tool(idempotent=True, retries=2, retry_wait=0)
    def shaky() -> int:
        """Try."""
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError
        return len(tries)

    def body(context: ToolContext[Any], order_id: int) -> Any:
        return context.call_tool(shaky)

    assert results(app.driver.invoke(app.agent(HANDLE, "Done.", body=body, calls=[shaky]), "go")) == [
        ("completed", "3")
    ]


@tool
def breaks() -> str:
    """Break."""
    raise RuntimeError("broken")


def test_a_failure_of_the_inner_tool_comes_to_the_body(app: App) -> None:
    def body(context: ToolContext[Any], order_id: int) -> str:
        with pytest.raises(ToolCallFailed, match="broken"):
            context.call_tool(breaks)
        with pytest.raises(ToolCallFailed, match="not valid"):
            context.call_tool("refund", {"order": 1})
        return "went on"

    result = app.driver.invoke(app.agent(HANDLE, "Done.", body=body, calls=[breaks]), "go")
    assert results(result) == [("completed", "went on")]


def test_an_inner_tool_may_stop_the_run_and_a_resume_goes_on_there(app: App) -> None:
    app.gate = False
    tries: list[int] = []

    @tool(on_failure="stop")
    def once() -> str:
        """Fail once."""
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("broken")
        return "mended"

    def body(context: ToolContext[Any], order_id: int) -> Any:
        context.call_tool("refund", {"order_id": order_id})
        return context.call_tool(once)

    with pytest.raises(NodeFailed, match="broken") as failed:
        app.driver.invoke(app.agent(HANDLE, body=body, calls=[once]), "go")
    result = app.resume(failed.value.checkpoint, body=body, calls=[once])
    assert (results(result), app.ran.count("refund 7 1.0")) == ([("completed", "mended")], 1)


@each("point", ["pre_tool_call", "post_tool_call"])
def test_breakpoints_stop_at_calls_of_a_body(app: App, point: Any) -> None:
    app.gate, app.ran[:] = False, []
    options: dict[str, Any] = {"breakpoints": [Breakpoint(point, tools=["refund"])]}
    asked = app.driver.invoke(app.agent(HANDLE, **options), "go").checkpoint
    assert [(item.point, item.path) for item in asked.pending] == [(point, "1.0")]
    assert app.ran.count("refund 7 1.0") == (point == "post_tool_call")
    result = app.driver.resume(app.agent("Done.", **options), asked)
    assert (result.output, results(result), app.ran.count("refund 7 1.0")) == (
        "Done.",
        [("completed", '{"refunded":1.0}')],
        1,
    )


# The end of the run in the middle of a body


def test_a_handler_may_end_all_while_the_body_runs(app: App) -> None:
    agent = app.agent(HANDLE, body=tried)
    agent.on_approval_required(lambda name, args: Reject(then="end"))
    result = app.driver.invoke(agent, "go")
    assert (result.status, [each for each in app.ran if each != "handle"]) == ("rejected", [])


def test_a_handler_that_fails_stops_the_run_and_is_asked_again(app: App) -> None:
    agent = app.agent(HANDLE, body=tried)
    agent.on_approval_required(lambda name, args: "yes")
    with pytest.raises(NodeFailed, match="ApprovalHandlerError") as failed:
        app.driver.invoke(agent, "go")
    asked = app.resume(failed.value.checkpoint, body=tried).checkpoint
    assert [item.tool_name for item in asked.pending] == ["refund"]


def test_a_run_that_is_cancelled_while_a_tool_of_the_body_runs_is_cancelled(app: App) -> None:
    @tool
    def stop(context: ToolContext[Any]) -> str:
        """Cancel the run."""
        Agent(name="desk", model=ScriptedModel([]), store=app.open()).cancel(context.run_id)
        return "stopped"

    def body(context: ToolContext[Any], order_id: int) -> Any:
        context.call_tool(stop)
        return context.call_tool("refund", {"order_id": order_id})

    result = app.driver.invoke(app.agent(HANDLE, body=body, calls=[stop]), "go")
    assert (result.status, app.ran) == ("cancelled", ["handle"])


def test_a_run_that_is_cancelled_by_the_body_after_its_calls_is_cancelled(app: App) -> None:
    app.gate = False

    def body(context: ToolContext[Any], order_id: int) -> Any:
        paid = context.call_tool("refund", {"order_id": order_id})
        Agent(name="desk", model=ScriptedModel([]), store=app.open()).cancel(context.run_id)
        return paid

    result = app.driver.invoke(app.agent(HANDLE, body=body), "go")
    assert (result.status, results(result)) == ("cancelled", [("completed", '{"refunded":1.0}')])


def test_a_body_that_swallows_a_failure_calls_nothing_more(app: App) -> None:
    @tool(on_failure="stop")
    def fails() -> str:
        """Fail."""
        raise RuntimeError("broken")

    def body(context: ToolContext[Any], order_id: int) -> Any:
        try:
            context.call_tool(fails)
        except BaseException:
            return context.call_tool("refund", {"order_id": order_id})

    app.gate = False
    with pytest.raises(NodeFailed, match="broken"):
        app.driver.invoke(app.agent(HANDLE, body=body, calls=[fails]), "go")
    assert app.ran == ["handle"]


def test_a_limit_of_the_run_around_is_its_own(app: App) -> None:
    inner = Agent(name="inner", model=ScriptedModel([say("In.", usage=Usage(input_tokens=5))])).as_tool()

    def body(context: ToolContext[Any], order_id: int) -> Any:
        return [context.call_tool("inner", {"input": "x"}, key=f"k{place}") for place in range(2)]

    with pytest.raises(LimitExceeded) as reached:
        app.driver.invoke(app.agent(HANDLE, body=body, calls=[inner], limits=Limits(tokens=5)), "go")
    assert (reached.value.limit, reached.value.path) == ("tokens", "")


def test_a_body_that_does_not_know_whether_it_took_effect_is_a_humans(app: App) -> None:
    app.gate = False

    def body(context: ToolContext[Any], order_id: int) -> Any:
        paid = context.call_tool("refund", {"order_id": order_id})
        if app.ran.count("handle") == 1:
            raise OutcomeUnknown
        return paid

    asked = app.driver.invoke(app.agent(HANDLE, body=body), "go").checkpoint
    assert [item.why for item in asked.pending] == ["outcome_unknown"]
    assert (app.resume(asked, body=body, approved=True).output, app.ran.count("refund 7 1.0")) == ("Done.", 1)


def test_a_sync_call_needs_tools_that_are_sync(app: App) -> None:
    @tool
    async def later() -> str:
        """Wait."""
        return "later"

    def body(context: ToolContext[Any], order_id: int) -> Any:
        return context.call_tool(later)

    agent = app.agent(HANDLE, "Done.", body=body, calls=[later])
    if not app.driver.is_async:
        with pytest.raises(AsyncRequired, match="later"):
            app.driver.invoke(agent, "go")
        return
    assert results(app.driver.invoke(agent, "go")) == [("completed", "later")]


def test_an_async_body_awaits_its_calls(place: Place) -> None:
    app = App(ASYNC, place)

    @tool(calls=[quiet])
    async def handle(order_id: int, context: ToolContext[Any]) -> Any:
        """Handle an order."""
        return context.call_tool(quiet, {"order_id": order_id})

    agent = Agent(name="desk", model=ScriptedModel([HANDLE, "Done."]), tools=[handle], store=app.open())
    [(kind, text)] = results(ASYNC.invoke(agent, "go"))
    assert (kind, "await acall_tool" in text) == ("failed", True)


def test_the_rules_of_the_calls_refuse_what_does_not_follow(app: App) -> None:
    [inside] = app.asked().nested
    more = Advanced(state={}, calls=(), at=inside.created_at)
    ended = inside.evolve(calls=(), ended="completed")
    assert plan(ended, app.agent().spec) == Done(status="completed")
    for state, outcome in (
        (inside, Finished(status="completed")),
        (ended, Finished(status="completed")),
        (inside.evolve(ended="cancelled"), more),
        (inside.evolve(rejecting=True), more),
    ):
        with pytest.raises(IllegalOutcome):
            apply(state, outcome)
    assert apply(ended, more).ended is None


# Other kinds of tools


def test_an_external_tool_is_answered(app: App) -> None:
    locate = ExternalTool(name="locate", returns=dict[str, float])

    def body(context: ToolContext[Any], order_id: int) -> Any:
        return context.call_tool(locate)["lat"]

    asked = app.asked(body=body, calls=[locate])
    assert asked.pending[0].external
    result = app.resume(
        asked, body=body, calls=[locate], decisions={asked.pending[0].id: Respond(content={"lat": 4.5})}
    )
    assert results(result) == [("completed", "4.5")]


def test_an_agent_as_a_tool_is_called_and_what_it_asks_waits(app: App) -> None:
    def inner() -> Any:
        replies = [call("refund", {"order_id": 3}), "It is done."]
        own = Agent(name="inner", model=ScriptedModel(replies), tools=[app.refund_tool()])
        return own.as_tool()

    def body(context: ToolContext[Any], order_id: int) -> Any:
        return context.call_tool("inner", {"input": "refund"})

    made = inner()
    asked = app.asked(body=body, calls=[made])
    assert [item.path for item in asked.pending] == ["1.0/0"]
    result = app.resume(asked, body=body, calls=[made], approved=True)
    assert (results(result), app.ran.count("refund 3 1.0")) == ([("completed", "It is done.")], 1)


def test_a_tool_that_is_called_may_call_others_and_ask(app: App) -> None:
    refund = app.refund_tool()

    @tool(calls=[refund])
    def deeper(context: ToolContext[Any]) -> Any:
        """Go deeper."""
        sure = interrupt("Sure?", answer=bool)
        return [sure, context.call_tool(refund, {"order_id": 1})]

    def body(context: ToolContext[Any], order_id: int) -> Any:
        return context.call_tool(deeper)

    asked = app.asked(body=body, calls=[deeper])
    assert [(item.why, item.path) for item in asked.pending] == [("question", "1.0")]
    asked = app.resume(asked, body=body, calls=[deeper], approved=True).checkpoint
    assert [(item.tool_name, item.path) for item in asked.pending] == [("refund", "1.0/0")]
    result = app.resume(asked, body=body, calls=[deeper], approved=True)
    assert results(result) == [("completed", '[true,{"refunded":1.0}]')]


class Handler(Tool):
    """Handle an order."""

    def __init__(self, refund: Any) -> None:
        self.name = "handle"
        self.calls = (refund,)
        super().__init__()

    def execute(self, order_id: int, context: ToolContext[Any]) -> Any:
        return context.call_tool("refund", {"order_id": order_id})


def test_a_class_declares_calls_too_in_an_agent_inside_another(app: App) -> None:
    inner = Agent(name="inner", model=ScriptedModel([HANDLE, "In."]), tools=[Handler(app.refund_tool())])
    outer = Agent(
        name="outer",
        model=ScriptedModel([call("inner", {"input": "x"}), "Out."]),
        tools=[inner.as_tool()],
        store=app.open(),
    )
    asked = app.driver.invoke(outer, "go").checkpoint
    assert [item.path for item in asked.pending] == ["1.0/1.0"]
    assert app.driver.resume(outer, asked, approved=True).output == "Out."


def test_questions_of_the_body_itself_stand_beside(app: App) -> None:
    def body(context: ToolContext[Any], order_id: int) -> Any:
        paid = context.call_tool("refund", {"order_id": order_id})
        return [paid, interrupt("And a gift?", answer=bool)]

    asked = app.resume(app.asked(body=body), body=body, approved=True).checkpoint
    assert [(item.why, item.path) for item in asked.pending] == [("question", "")]
    result = app.resume(asked, body=body, approved=True)
    assert (results(result), app.ran.count("refund 7 1.0")) == ([("completed", '[{"refunded":1.0},true]')], 1)


# Side by side


def test_two_calls_of_one_reply_are_two_bodies(app: App) -> None:
    agent = app.agent([HANDLE, call("handle", {"order_id": 8})])
    asked = app.driver.invoke(agent, "go").checkpoint
    assert [(item.path, item.args["order_id"]) for item in asked.pending] == [("1.0", 7), ("1.1", 8)]
    answers = {item.id: Approve() for item in asked.pending}
    result = app.resume(asked, decisions=answers)
    assert sorted(each for each in app.ran if each != "handle") == ["refund 7 1.0", "refund 8 1.0"]
    assert (result.output, len(results(result))) == ("Done.", 2)


def test_one_of_two_bodies_is_decided_and_the_other_waits(app: App) -> None:
    asked = app.driver.invoke(app.agent([HANDLE, call("handle", {"order_id": 8})]), "go").checkpoint
    result = app.resume(asked, decisions={asked.pending[1].id: Approve()})
    assert ([item.path for item in result.checkpoint.pending], app.ran[-1]) == (["1.0"], "refund 8 1.0")
    assert app.resume(result.checkpoint, approved=False).output == "Done."


def test_a_body_that_calls_in_tasks_asks_for_all_of_them(place: Place) -> None:
    app = App(ASYNC, place)
    refund = app.refund_tool()

    @tool(calls=[refund])
    async def handle(order_id: int, context: ToolContext[Any]) -> Any:
        """Handle an order."""
        asked = (context.acall_tool(refund, {"order_id": order_id + more}, key=f"r{more}") for more in range(2))
        found = await asyncio.gather(*asked, return_exceptions=True)
        return [str(each) for each in found]

    def agent(*replies: Any) -> Agent[Any, Any]:
        return Agent(name="desk", model=ScriptedModel([*replies]), tools=[handle], store=app.open())

    asked = ASYNC.invoke(agent(HANDLE), "go").checkpoint
    assert [item.args["order_id"] for item in asked.pending] == [7, 8]
    [first, second] = asked.pending
    once = ASYNC.resume(agent(), asked, decisions={second.id: Approve()})
    assert (once.status, [item.id for item in once.checkpoint.pending], app.ran) == (
        "suspended",
        [first.id],
        ["refund 8 1.0"],
    )
    result = ASYNC.resume(agent("Done."), once.checkpoint, decisions={first.id: Approve()})
    assert (result.output, app.ran) == ("Done.", ["refund 8 1.0", "refund 7 1.0"])


def test_a_task_group_passes_the_stop_on(place: Place) -> None:
    app = App(ASYNC, place)
    refund = app.refund_tool()

    @tool(calls=[refund])
    async def handle(order_id: int, context: ToolContext[Any]) -> Any:
        """Handle an order."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(context.acall_tool(refund, {"order_id": order_id}))
        return task.result()

    agent = Agent(name="desk", model=ScriptedModel([HANDLE, "Done."]), tools=[handle], store=app.open())
    asked = ASYNC.invoke(agent, "go").checkpoint
    assert ASYNC.resume(agent, asked, approved=True).output == "Done."


def test_a_body_that_swallows_the_stop_waits_all_the_same(app: App) -> None:
    def body(context: ToolContext[Any], order_id: int) -> Any:
        try:
            return context.call_tool("refund", {"order_id": order_id})
        except BaseException:
            return "swallowed"

    assert results(app.resume(app.asked(body=body), body=body, approved=True)) == [("completed", '{"refunded":1.0}')]


def test_a_thread_of_the_body_that_has_its_context_may_call(app: App) -> None:
    app.gate = False

    def body(context: ToolContext[Any], order_id: int) -> Any:
        found: list[Any] = []
        own = contextvars.copy_context()
        thread = threading.Thread(
            target=lambda: found.append(own.run(context.call_tool, "refund", {"order_id": order_id}))
        )
        thread.start()
        thread.join()
        return found

    assert results(app.driver.invoke(app.agent(HANDLE, "Done.", body=body), "go")) == [
        ("completed", '[{"refunded":1.0}]')
    ]


# A body that runs again


def test_a_body_that_fails_afterwards_is_tried_again_without_a_second_call(app: App) -> None:
    app.gate = False
    tries: list[int] = []

    def body(context: ToolContext[Any], order_id: int) -> Any:
        paid = context.call_tool("refund", {"order_id": order_id})
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError
        return paid

    handling = {"idempotent": True, "retries": 1, "retry_wait": 0}
    result = app.driver.invoke(app.agent(HANDLE, "Done.", body=body, handling=handling), "go")
    assert (results(result)[0][0], app.ran.count("refund 7 1.0")) == ("completed", 1)


@each("other", [{"order_id": 8}, {"order_id": 7, "amount": 2.0}])
def test_a_body_that_calls_something_else_when_it_runs_again_is_refused(app: App, other: Any) -> None:
    def body(context: ToolContext[Any], order_id: int) -> Any:
        return context.call_tool("refund", {"order_id": 7} if app.ran.count("handle") == 1 else other)

    app.ran.clear()
    [(kind, text)] = results(app.resume(app.asked(body=body), body=body, approved=True))
    assert (kind, "give each call a key=" in text) == ("failed", True)
    assert [each for each in app.ran if each != "handle"] == []


def test_keys_tell_the_calls_apart_in_whatever_order(app: App) -> None:
    def body(context: ToolContext[Any], order_id: int) -> Any:
        places = (0, 1) if app.ran.count("handle") == 1 else (1, 0)
        return [context.call_tool("refund", {"order_id": place}, key=f"k{place}") for place in places]

    asked = app.resume(app.asked(body=body), body=body, approved=True).checkpoint
    asked = app.resume(asked, body=body, approved=True).checkpoint  # it waited without k0, so k0 is asked about anew
    assert [item.args["order_id"] for item in asked.pending] == [0]
    assert app.resume(asked, body=body, approved=True).output == "Done."
    assert [each for each in app.ran if each != "handle"] == ["refund 1 1.0", "refund 0 1.0"]


def test_a_fork_asks_again_and_reuses_what_has_settled(app: App) -> None:
    def body(context: ToolContext[Any], order_id: int) -> Any:
        return [context.call_tool("refund", {"order_id": place}) for place in range(2)]

    second = app.resume(app.asked(body=body), body=body, approved=True).checkpoint
    fork = app.open().load(app.open().fork(second.id).id)
    assert fork.pending[0].id != second.pending[0].id
    result = app.resume(fork, body=body, approved=True)
    assert (result.output, [each for each in app.ran if each != "handle"]) == (
        "Done.",
        ["refund 0 1.0", "refund 1 1.0"],
    )


@each("idempotent", [True, False])
def test_a_worker_that_is_lost_in_the_body_leaves_what_has_settled(app: App, idempotent: bool) -> None:
    app.gate, app.ran[:] = False, []

    def body(context: ToolContext[Any], order_id: int) -> Any:
        paid = context.call_tool("refund", {"order_id": order_id})
        if app.ran.count("handle") == 1:
            raise KeyboardInterrupt
        return paid

    handling = {"idempotent": idempotent}
    thread = f"t{idempotent}"
    with pytest.raises(KeyboardInterrupt):
        app.driver.invoke(app.agent(HANDLE, body=body, handling=handling), "go", thread_id=thread)
    [branch] = app.open().branches(thread_id=thread)
    again = app.driver.call(app.agent("Done.", body=body, handling=handling), "recover", branch.run_id)
    if not idempotent:  # whether the body took effect, nobody knows
        assert [item.why for item in again.checkpoint.pending] == ["outcome_unknown"]
        again = app.resume(again.checkpoint, body=body, handling=handling, approved=True)
    assert (results(again), app.ran.count("refund 7 1.0")) == ([("completed", '{"refunded":1.0}')], 1)


def test_what_was_called_is_not_cut_out(app: App) -> None:
    asked = app.asked().evolve(nested=())
    with pytest.raises(CheckpointError, match="missing"):
        app.driver.resume(app.agent("Done.", store=MemoryStore(), trust="bearer"), asked, approved=True)


def test_a_call_that_was_approved_and_is_not_made_again_is_not_run(app: App) -> None:
    def body(context: ToolContext[Any], order_id: int) -> Any:
        return "without" if app.ran.count("handle") > 1 else context.call_tool("refund", {"order_id": order_id})

    result = app.resume(app.asked(body=body), body=body, approved=True)
    assert (results(result), app.ran) == ([("completed", "without")], ["handle", "handle"])


def test_a_tool_that_is_declared_no_more_is_drift(app: App) -> None:
    asked = app.asked()

    @tool
    def handle(order_id: int) -> str:
        """Handle an order."""
        return "nothing"

    agent = Agent(name="desk", model=ScriptedModel([]), tools=[handle], store=app.open())
    with pytest.raises(AgentChanged):
        app.driver.resume(agent, asked, approved=True)


# The record of it


def test_a_stream_tells_of_the_calls_at_their_path(app: App) -> None:
    asked = app.asked()
    app.resume(asked, approved=True)
    told = [(event.type, event.path) for event in replay(app.open(), asked.run_id) if event.path == "1.0"]
    assert told[0] == ("run_started", "1.0")
    assert [kind for kind, _ in told if kind.startswith(("approval", "decided", "tool"))] == [
        "approval_requested", "decided", "tool_call_started", "tool_call_settled",
    ]  # fmt: skip
    assert told[-1] == ("completed", "1.0")


def test_a_live_stream_has_the_same_events(app: App) -> None:
    app.gate = False
    with app.agent(HANDLE, "Done.").stream("go") as stream:
        live = [(event.type, event.path) for event in stream if event.path == "1.0"]
    assert ("tool_call_settled", "1.0") in live


# Nodes


class State(TypedDict):
    order_id: int
    told: str


def test_a_node_calls_a_gated_tool(app: App) -> None:
    refund = app.refund_tool()

    def pay(state: State, context: ToolContext[Any]) -> dict[str, str]:
        app.ran.append("pay")
        return {"told": str(context.call_tool(refund, {"order_id": state["order_id"]}))}

    def graph() -> Any:
        made = StateGraph(State)
        made.add_node("pay", pay, calls=[refund])
        made.add_edge(START, "pay")
        made.add_edge("pay", END)
        return made.compile(name="graph", store=app.open(), approval_policy={"refund": True})

    asked = app.driver.invoke(graph(), {"order_id": 7}).checkpoint
    [pending] = asked.pending
    assert (pending.tool_name, pending.agent, pending.args["order_id"], app.ran) == ("refund", "graph", 7, ["pay"])
    result = app.driver.resume(graph(), asked, approved=True)
    assert (result.status, result.output["told"]) == ("completed", "{'refunded': 1.0}")
    assert app.ran == ["pay", "pay", "refund 7 1.0"]


@each("kind", ["rejected", "policy"])
def test_what_a_node_is_refused_fails_it_or_is_caught(app: App, kind: str) -> None:
    refund = app.refund_tool()

    def pay(state: State, context: ToolContext[Any]) -> dict[str, str]:
        try:
            return {"told": str(context.call_tool(refund, {"order_id": state["order_id"]}))}
        except ToolCallRejected as error:
            return {"told": f"rejected: {error.reason}"}

    made = StateGraph(State)
    made.add_node("pay", pay, calls=[refund])
    made.add_edge(START, "pay")
    made.add_edge("pay", END)
    policy = {"refund": lambda args: Reject(reason="never")} if kind == "policy" else {"refund": True}
    graph = made.compile(name="graph", store=app.open(), approval_policy=policy)
    result = app.driver.invoke(graph, {"order_id": 7})
    if kind == "rejected":
        result = app.driver.resume(graph, result.checkpoint, approved=False, reason="no")
    assert (result.output["told"].partition(":")[0], app.ran) == ("rejected", [])


# A gated tool that is called like a function


@each("gate", [True, lambda args: False, Approval(by="lead")])
@each("called", ["__call__", "execute"])
def test_a_gated_tool_is_not_called_like_a_function_in_a_body(app: App, gate: Any, called: str) -> None:
    app.gate = gate
    made = app.refund_tool()

    def body(context: ToolContext[Any], order_id: int) -> Any:
        return getattr(made, called)(order_id)

    [(kind, text)] = results(app.driver.invoke(app.agent(HANDLE, "Done.", body=body), "go"))
    assert (kind, "use context.call_tool('refund', ...)" in text) == ("failed", True)
    assert [each for each in app.ran if each != "handle"] == []


def test_a_tool_without_a_gate_and_a_function_outside_of_a_body_are_called_as_ever(app: App) -> None:
    def body(context: ToolContext[Any], order_id: int) -> Any:
        return quiet(order_id)

    assert results(app.driver.invoke(app.agent(HANDLE, "Done.", body=body), "go")) == [("completed", "8")]
    assert loud(1) == 2


@tool
def quiet(order_id: int) -> int:
    """Add one."""
    return order_id + 1


@tool(requires_approval=True)
def loud(order_id: int) -> int:
    """Add one."""
    return order_id + 1


# Refusals


@each(
    "wanted, why",
    [
        ("look", "none of the tools that it declares"),
        (breaks, "none of the tools that it declares"),
        (None, "none of the tools that it declares"),
    ],
)
def test_a_tool_that_is_not_declared_is_not_called(app: App, wanted: Any, why: str) -> None:
    def body(context: ToolContext[Any], order_id: int) -> Any:
        return context.call_tool(wanted)

    [(kind, text)] = results(app.driver.invoke(app.agent(HANDLE, "Done.", body=body), "go"))
    assert (kind, why in text) == ("failed", True)


@each(
    "options, why",
    [
        ({"key": ""}, "key is a text"),
        ({"key": "a/b"}, "key is a text"),
        ({"args": {"order_id": object()}}, "JSON values"),
        ({"args": [1]}, "JSON values"),
    ],
)
def test_what_is_no_call_is_refused(app: App, options: Any, why: str) -> None:
    def body(context: ToolContext[Any], order_id: int) -> Any:
        return context.call_tool("refund", options.get("args"), key=options.get("key"))

    [(kind, text)] = results(app.driver.invoke(app.agent(HANDLE, "Done.", body=body), "go"))
    assert (kind, why in text) == ("failed", True)


def test_a_key_counts_once(app: App) -> None:
    app.gate = False

    def body(context: ToolContext[Any], order_id: int) -> Any:
        return [context.call_tool("refund", {"order_id": 1}, key="a") for _ in range(2)]

    [(kind, text)] = results(app.driver.invoke(app.agent(HANDLE, "Done.", body=body), "go"))
    assert (kind, "two calls have the key 'a'" in text) == ("failed", True)


def test_a_call_after_the_body_is_refused(app: App) -> None:
    kept: list[ToolContext[Any]] = []
    app.gate = False

    def body(context: ToolContext[Any], order_id: int) -> Any:
        kept.append(context)
        return "through"

    app.driver.invoke(app.agent(HANDLE, "Done.", body=body), "go")
    with pytest.raises(ConfigurationError):
        kept[0].call_tool("refund", {"order_id": 1})
    assert "refund 1 1.0" not in app.ran


class Unread(Mapping[str, int]):
    """Arguments that are read only when somebody lets them be read."""

    def __init__(self) -> None:
        self.asked_for, self.given = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[str]:
        self.asked_for.set()
        assert self.given.wait(10)
        return iter(["order_id"])

    def __len__(self) -> int:
        return 1

    def __getitem__(self, name: str) -> int:
        return 1


@each("calls_before", [False, True])
def test_a_call_that_is_made_while_the_body_ends_runs_nothing(app: App, calls_before: bool) -> None:
    args, threads, errors = Unread(), list[threading.Thread](), list[ConfigurationError]()
    app.gate, app.ran = False, []

    @tool
    def wait() -> str:
        """Wait for the thread that the body has left."""
        args.given.set()
        threads[0].join(10)
        return "waited"

    def late(context: ToolContext[Any]) -> None:
        with pytest.raises(ConfigurationError, match="has ended or was left") as raised:
            context.call_tool("refund", args)
        errors.append(raised.value)

    def body(context: ToolContext[Any], order_id: int) -> Any:
        if calls_before:
            context.call_tool("refund", {"order_id": 5})
        threads.append(threading.Thread(target=contextvars.copy_context().run, args=(late, context)))
        threads[0].start()
        assert args.asked_for.wait(10)
        return "through"

    agent = app.agent(HANDLE, call("wait", id="w"), "Done.", body=body, tools=[wait])
    assert results(app.driver.invoke(agent, "go")) == [("completed", "through"), ("completed", "waited")]
    assert app.ran == (["handle", "refund 5 1.0"] if calls_before else ["handle"])
    assert len(errors) == 1


def test_a_tool_that_is_called_makes_no_calls_for_the_body_around_it(app: App) -> None:
    kept: list[ToolContext[Any]] = []
    app.gate = False

    @tool
    def inner() -> Any:
        """Call by the context of the body around it."""
        return kept[0].call_tool("refund", {"order_id": 1})

    def body(context: ToolContext[Any], order_id: int) -> Any:
        kept.append(context)
        return context.call_tool(inner)

    [(kind, text)] = results(app.driver.invoke(app.agent(HANDLE, "Done.", body=body, calls=[inner]), "go"))
    assert (kind, "call_tool is for the body" in text, app.ran) == ("failed", True, ["handle"])


def test_a_tool_that_declares_none_calls_none(app: App) -> None:
    @tool
    def alone(context: ToolContext[Any]) -> Any:
        """Alone."""
        return context.call_tool("refund")

    agent = Agent(name="a", model=ScriptedModel([call("alone"), "Done."]), tools=[alone], store=app.open())
    [(kind, text)] = results(app.driver.invoke(agent, "go"))
    assert (kind, "declares none: give it calls=[...]" in text) == ("failed", True)


@each(
    "options",
    [{"timeout": 1.0}, {"fallback": [breaks]}, {"calls": [breaks, breaks]}, {"calls": "breaks"}, {"calls": [3]}],
)
def test_options_that_do_not_go_together_are_refused(options: Any) -> None:
    with pytest.raises(ToolDefinitionError):
        tool(**{"calls": [breaks], **options})(_named)


def _named(context: ToolContext[Any]) -> str:
    """Nothing."""
    return ""
