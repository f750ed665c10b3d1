"""Approval policies: the strictest of all that have a say wins, at every depth, and a dry run says which that is."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from drivers import Driver

from phronomy import (
    Agent,
    AgentChanged,
    Approval,
    Approve,
    ConfigurationError,
    Defer,
    DryRun,
    NodeFailed,
    Reject,
    Store,
    Tool,
    ToolContext,
    tool,
)
from phronomy.errors import AsyncRequired
from phronomy.teams.patterns import sequential
from phronomy.testing import ScriptedModel, call

done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@tool
def refund(order: int, amount: float = 1.0) -> str:
    """Pays back."""
    done.append(f"refund {order} {amount}")
    return "paid"


@tool
def look_up(order: int) -> str:
    """Reads an order."""
    done.append(f"look_up {order}")
    return "an order"


@tool(requires_approval=True)
def wipe() -> str:
    """Wipes."""
    done.append("wipe")
    return "wiped"


def clerk(*calls: Any, **options: Any) -> Agent[Any, Any]:
    model = ScriptedModel.by_turn([*calls, "Done."])
    return Agent(name="clerk", model=model, tools=[refund, look_up, wipe], **options)


def desk(inner: Agent[Any, Any], **options: Any) -> Agent[Any, Any]:
    model = ScriptedModel.by_turn([call("clerk", {"input": "do it"}), "All done."])
    return Agent(name="desk", model=model, tools=[inner.as_tool()], **options)


BOTH = (call("refund", {"order": 7}), call("look_up", {"order": 7}))


def test_what_a_policy_names_is_asked_about_though_the_tool_does_not_ask(driver: Driver, store: Store) -> None:
    agent = clerk(list(BOTH), approval_policy=["refund"], store=store)
    result = driver.invoke(agent, "Hello")
    [item] = result.checkpoint.pending
    assert (item.tool_name, item.why, item.agent) == ("refund", "approval", "clerk")
    assert item.reason == "The approval policy of clerk (refund) asks for an approval."
    assert done == ["look_up 7"]
    result = driver.resume(agent, result.checkpoint, approved=True)
    assert (result.status, done) == ("completed", ["look_up 7", "refund 7 1.0"])


def test_a_rejected_one_never_runs(driver: Driver, store: Store) -> None:
    agent = clerk(list(BOTH), approval_policy=["re*"], store=store)
    result = driver.invoke(agent, "Hello")
    result = driver.resume(agent, result.checkpoint, approved=False)
    assert (result.status, done) == ("completed", ["look_up 7"])


def test_an_outer_policy_reaches_every_run_inside(driver: Driver, store: Store) -> None:
    boss = Agent(
        name="boss",
        model=ScriptedModel.by_turn([call("desk", {"input": "go"}), "Fine."]),
        tools=[desk(clerk(list(BOTH))).as_tool()],
        approval_policy={"refund": True},
        store=store,
    )
    result = driver.invoke(boss, "Hello")
    [item] = result.checkpoint.pending
    assert (item.path, item.agent, item.tool_name) == ("1.0/1.0", "clerk", "refund")
    assert item.reason == "The approval policy of boss (refund) asks for an approval."
    result = driver.resume(boss, result.checkpoint, approved=True)
    assert (result.status, done) == ("completed", ["look_up 7", "refund 7 1.0"])


def test_nothing_takes_back_what_another_level_asks(driver: Driver, store: Store) -> None:
    inner = clerk([call("wipe")], approval_policy={"wipe": False})
    agent = desk(inner, approval_policy={"wipe": False, "refund": lambda args: False}, store=store)
    result = driver.invoke(agent, "Hello")
    [item] = result.checkpoint.pending
    assert (item.tool_name, item.reason, done) == ("wipe", None, [])


def test_a_predicate_of_a_policy_sees_the_arguments_and_the_context(driver: Driver, store: Store) -> None:
    seen: list[Any] = []

    def large(args: Any, context: Any) -> bool:
        seen.append((dict(args), context.tool_name, context.deps))
        return bool(args["amount"] > 100)

    calls = [call("refund", {"order": 1, "amount": 50}), call("refund", {"order": 2, "amount": 500})]
    agent = desk(clerk(calls), approval_policy={"refund": large}, store=store)
    result = driver.invoke(agent, "Hello", deps="till")
    assert seen == [({"order": 1, "amount": 50.0}, "refund", "till"), ({"order": 2, "amount": 500.0}, "refund", "till")]
    assert [item.args["order"] for item in result.checkpoint.pending] == [2]
    assert done == ["refund 1 50.0"]


@pytest.mark.parametrize("answer", ["yes", None, 0, ZeroDivisionError()])
def test_a_predicate_that_fails_or_gives_nonsense_asks(driver: Driver, store: Store, answer: Any) -> None:
    def broken(args: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    agent = clerk([call("refund", {"order": 7})], approval_policy={"refund": broken}, store=store)
    result = driver.invoke(agent, "Hello")
    assert (result.status, done) == ("suspended", [])


def test_a_policy_that_rejects_is_stricter_than_one_that_asks(driver: Driver, store: Store) -> None:
    def never(args: Any) -> Reject:
        return Reject(reason="not on a Sunday")

    inner = clerk([call("wipe")], approval_policy={"wipe": True})
    agent = desk(inner, approval_policy={"wipe": never}, store=store)
    result = driver.invoke(agent, "Hello")
    assert (result.status, done) == ("completed", [])
    [told] = [m for m in inner.model.requests[-1].messages if m.role == "tool"]
    assert told.text == "A policy rejected this call, so it was not run. Reason: not on a Sunday"


def test_edited_arguments_are_judged_by_the_policies_anew(driver: Driver, store: Store) -> None:
    from phronomy import Approve, InvalidDecision

    def small(args: Any) -> bool | Reject:
        return Reject(reason="too much") if args["amount"] > 100 else True

    agent = desk(clerk([call("refund", {"order": 7})]), approval_policy={"refund": small}, store=store)
    result = driver.invoke(agent, "Hello")
    [item] = result.checkpoint.pending
    with pytest.raises(InvalidDecision, match="too much"):
        driver.resume(agent, result.checkpoint, decisions={item.id: Approve(args={"order": 7, "amount": 500})})
    result = driver.resume(agent, result.checkpoint, decisions={item.id: Approve(args={"order": 7, "amount": 5})})
    assert (result.status, done) == ("completed", ["refund 7 5.0"])


def test_the_policy_of_an_agent_that_was_handed_the_conversation_counts_with_that_of_the_run(
    driver: Driver, store: Store
) -> None:
    billing = Agent(
        name="billing",
        model=ScriptedModel.by_turn(["", [call("refund", {"order": 7}), call("look_up", {"order": 7})], "Done."]),
        tools=[refund, look_up],
        approval_policy=["look_up"],
    )
    triage = Agent(
        name="triage",
        model=ScriptedModel.by_turn([call("transfer_to_billing"), "never"]),
        handoffs=[billing],
        approval_policy=["refund"],
        store=store,
    )
    result = driver.invoke(triage, "Hello")
    told = {item.tool_name: item.reason for item in result.checkpoint.pending}
    assert told == {
        "refund": "The approval policy of triage (refund) asks for an approval.",
        "look_up": "The approval policy of billing (look_up) asks for an approval.",
    }
    assert done == []
    said = triage.dry_run("billing/refund", {"order": 7})
    assert said.decided_by == ("the approval policy of triage (refund)",)


def test_what_is_resumed_is_judged_by_the_policy_of_then(driver: Driver, store: Store) -> None:
    calls = [call("wipe")], [call("refund", {"order": 7})]
    result = driver.invoke(desk(clerk(*calls), store=store), "Hello")
    stricter = desk(clerk(*calls), approval_policy=["refund"], store=store)
    assert stricter.drift(result.checkpoint).compatible == ("the approval policy changed",)
    result = driver.resume(stricter, result.checkpoint, approved=True)
    assert ([item.tool_name for item in result.checkpoint.pending], done) == (["refund"], ["wipe"])


def test_a_call_that_was_judged_before_there_was_a_policy_does_not_run(driver: Driver, store: Store) -> None:
    calls = [call("refund", {"order": 7})]
    result = driver.step(clerk(calls, store=store), "Hello")
    while not result.checkpoint.calls:
        result = driver.step(clerk(calls, store=store), result.checkpoint)
    assert [each.status for each in result.checkpoint.calls] == ["ready"]
    stricter = clerk(calls, approval_policy=["refund"], store=store)
    with pytest.raises(AgentChanged, match=r"the approval policy of clerk \(refund\) is about tool 'refund' of a call"):
        driver.resume(stricter, result.checkpoint)
    assert done == []
    kept = clerk(calls, approval_policy={"look_up": True}, store=store)
    assert (driver.resume(kept, result.checkpoint).status, done) == ("completed", ["refund 7 1.0"])


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("refund", "is a mapping"),
        (7, "is a mapping"),
        ({"refund": "yes"}, "give exactly True, exactly False, a predicate, or an Approval"),
        ({"refund": lambda: True}, "must take"),
        ({"": True}, "is a mapping"),
        (
            {"refunds": True},
            r"is about no tool: those of 'clerk', and of what runs inside it, are look_up, refund, wipe",
        ),
    ],
)
def test_a_policy_that_says_nothing_is_refused(policy: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        clerk("Hi", approval_policy=policy).invoke("Hello")
    with pytest.raises(ConfigurationError, match=told):
        _ = clerk("Hi", approval_policy=policy).spec  # so it is checked without a run


def test_an_async_predicate_needs_an_async_call() -> None:
    async def slow(args: Any) -> bool:
        return False

    agent = desk(clerk([call("refund", {"order": 7})], approval_policy={"refund": slow}))
    with pytest.raises(AsyncRequired, match="the rule 'refund' of the approval policy of agent 'clerk' is async"):
        agent.invoke("Hello")
    with pytest.raises(AsyncRequired, match="approval policy of clerk"):
        agent.dry_run("clerk/refund", {"order": 7})


# Dry runs


def test_a_dry_run_says_which_rule_would_ask(driver: Driver) -> None:
    inner = clerk("Hi", approval_policy={"re*": lambda args: args["amount"] > 100})
    agent = desk(inner, approval_policy={"*": False, "refund": lambda args: args["order"] == 13})

    def says(path: str, args: Any = None) -> tuple[str, tuple[str, ...]]:
        said = driver.call(agent, "dry_run", path, args)
        assert isinstance(said, DryRun)
        return said.verdict, said.decided_by

    mine, outer = "the approval policy of clerk (re*)", "the approval policy of desk (refund)"
    assert says("clerk", {"input": "x"}) == ("run", ("tool clerk", "the approval policy of desk (*)"))
    assert says("clerk/wipe") == ("ask", ("tool wipe",))
    assert says("clerk/refund", {"order": 1, "amount": 500}) == ("ask", (mine,))
    assert says("clerk/refund", {"order": 13, "amount": 500}) == ("ask", (mine, outer))
    assert says("clerk/refund", {"order": 13}) == ("ask", (outer,))
    verdict, by = says("clerk/refund", {"order": 1})
    assert (verdict, by[0]) == ("run", "tool refund")
    assert (done, inner.model.requests) == ([], [])


def test_a_dry_run_shows_the_arguments_as_a_human_would_see_them() -> None:
    said = clerk("Hi").dry_run("refund", {"order": 7})
    assert (said.verdict, said.args) == ("run", {"order": 7, "amount": 1.0})
    assert "amount" not in repr(said)


def test_a_dry_run_of_arguments_that_the_tool_does_not_take_is_invalid() -> None:
    said = clerk("Hi").dry_run("refund", {"order": "seven"})
    assert (said.verdict, said.decided_by) == ("invalid", ())
    assert said.reason is not None
    assert "order" in said.reason


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("nothing", r"agent 'desk' has no tool 'nothing'; it has clerk"),
        ("clerk/nothing", r"agent 'clerk' has no tool 'nothing'"),
        ("nobody/refund", r"nothing to go into at 'nobody' of 'desk', on the way to 'nobody/refund'"),
    ],
)
def test_a_dry_run_of_what_is_not_there_is_refused(path: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        desk(clerk("Hi")).dry_run(path)


def test_what_the_dry_run_says_is_what_the_run_does(driver: Driver) -> None:
    cases: list[tuple[Tool, dict[str, Any]]] = [
        (refund, {"order": 1}),
        (refund, {"order": 2, "amount": 500}),
        (wipe, {}),
        (look_up, {"order": 3}),
    ]
    for each, args in cases:
        rules = {"refund": lambda args: args["amount"] > 100, "look_up": lambda args: Reject()}
        agent = desk(clerk([call(each.name, args)]), approval_policy=rules)
        verdict = agent.dry_run(f"clerk/{each.name}", args).verdict
        before = len(done)
        result = driver.invoke(agent, "Hello")
        ran = len(done) > before
        assert {"run": (True, "completed"), "ask": (False, "suspended"), "reject": (False, "completed")}[verdict] == (
            ran,
            result.status,
        )


# Handlers, each of its own level


def asked_of(agent: Agent[Any, Any], answer: Any, heard: list[Any], driver: Driver) -> Agent[Any, Any]:
    """The agent with a handler that gives this answer, and what it was asked."""

    def handler(name: str, args: dict[str, Any]) -> Any:
        heard.append((agent.name, name, args))
        return answer

    return agent.on_approval_required(driver.function(handler))


REFUND = {"order": 7, "amount": 1.0}


def around(kind: str, inner: Agent[Any, Any], store: Store, handler: Any = None) -> Any:
    """What asks about refunds, and has the agent inside: as a tool, behind a handoff, in a node, in a pattern."""
    policy = {"approval_policy": {"refund": True}, "store": store}
    if kind == "handoff":
        model = ScriptedModel.by_turn([call("transfer_to_clerk", {}), "All done."])
        made: Any = Agent(name="desk", model=model, handoffs=[inner], **policy)
    elif kind == "agent":
        made = desk(inner, **policy)
    else:
        options = {} if handler is None else {"on_approval_required": handler}
        return sequential(inner, lambda answer: answer, name="desk", **policy, **options)
    return made if handler is None else made.on_approval_required(handler)


FIRST = {"agent": [], "handoff": [""], "pattern": []}
"""What an agent inside replied before: of a handoff, it was the other agent that did."""

AROUND = pytest.mark.parametrize("kind", ["agent", "handoff", "pattern"])


@AROUND
def test_a_handler_inside_does_not_answer_for_a_policy_around_it(driver: Driver, store: Store, kind: str) -> None:
    heard: list[Any] = []
    inner = asked_of(clerk(*FIRST[kind], BOTH[0]), True, heard, driver)
    outer = around(kind, inner, store)
    result = driver.invoke(outer, "Hello")
    assert ([item.tool_name for item in result.checkpoint.pending], done, heard) == (["refund"], [], [])
    assert driver.resume(outer, result.checkpoint, approved=True).status == "completed"
    assert done == ["refund 7 1.0"]


@AROUND
def test_the_handler_of_whoever_has_the_policy_does(driver: Driver, store: Store, kind: str) -> None:
    heard: list[Any] = []
    inner = asked_of(clerk(*FIRST[kind], BOTH[0]), False, [], driver)

    def handler(name: str, args: dict[str, Any]) -> bool:
        heard.append((name, args))
        return True

    outer = around(kind, inner, store, driver.function(handler))
    assert driver.invoke(outer, "Hello").status == "completed"
    assert (heard, done) == ([("refund", REFUND)], ["refund 7 1.0"])


@pytest.mark.parametrize(
    ("inside", "outside", "status", "ran"),
    [
        (True, True, "completed", ["wipe"]),
        (Approve(), True, "completed", ["wipe"]),
        (True, False, "completed", []),
        (False, True, "completed", []),
        (True, Defer(), "suspended", []),
        (Defer(), True, "suspended", []),
        (Approve(args={}), True, "suspended", []),  # of several that are to agree, none edits
    ],
    ids=str,
)
def test_where_the_tool_asks_as_well_both_handlers_have_to_agree(
    driver: Driver, store: Store, inside: Any, outside: Any, status: str, ran: list[str]
) -> None:
    heard: list[Any] = []
    inner = asked_of(clerk(call("wipe", {})), inside, heard, driver)
    outer = asked_of(desk(inner, approval_policy=["wipe"], store=store), outside, heard, driver)
    result = driver.invoke(outer, "Hello")
    assert (result.status, done) == (status, ran)
    both = [("clerk", "wipe", {}), ("desk", "wipe", {})]
    assert heard == (both if inside in (True, Approve()) else both[:1])


def test_an_edit_by_a_handler_that_brings_a_policy_around_it_in_is_put_to_a_human(driver: Driver, store: Store) -> None:
    inner = clerk(call("pay", {"amount": 1}))
    paid: list[int] = []

    def pay(amount: int) -> str:
        """Pays."""
        paid.append(amount)
        return "paid"

    inner.tools = [tool(requires_approval=True)(driver.function(pay))]
    asked_of(inner, Approve(args={"amount": 5000}), [], driver)
    outer = desk(inner, approval_policy={"pay": lambda args: args["amount"] > 1000}, store=store)
    result = driver.invoke(outer, "Hello")
    [item] = result.checkpoint.pending
    assert (item.args, paid) == ({"amount": 1}, [])

    asked_of(inner := clerk(call("pay", {"amount": 1})), Approve(args={"amount": 50}), [], driver)
    inner.tools = [tool(requires_approval=True)(driver.function(pay))]
    outer = desk(inner, approval_policy={"pay": lambda args: args["amount"] > 1000}, store=store)
    assert driver.invoke(outer, "Hello").status == "completed"
    assert paid == [50]


def test_what_two_of_one_name_ask_both_have_to_answer(driver: Driver, store: Store) -> None:
    """A name does not tell which of them asked: each has to have a handler."""
    inner = asked_of(clerk(BOTH[0], approval_policy=["refund"]), True, [], driver)
    outer = desk(inner, approval_policy=["refund"], store=store)
    outer.name = "clerk"
    assert driver.invoke(outer, "Hello").status == "suspended"
    assert done == []


def test_a_policy_of_who_is_handed_the_conversation_is_answered_by_the_first_agent_where_it_has_no_handler(
    driver: Driver, store: Store
) -> None:
    """As what the gates of its tools ask is."""
    heard: list[Any] = []
    inner = clerk("", BOTH[0], approval_policy=["refund"])
    model = ScriptedModel.by_turn([call("transfer_to_clerk", {}), "All done."])
    outer = asked_of(Agent(name="desk", model=model, handoffs=[inner], store=store), True, heard, driver)
    assert driver.invoke(outer, "Hello").status == "completed"
    assert (heard, done) == ([("desk", "refund", REFUND)], ["refund 7 1.0"])

    done.clear()
    own = asked_of(clerk("", BOTH[0], approval_policy=["refund"]), False, heard, driver)
    outer = asked_of(Agent(name="desk", model=model, handoffs=[own], store=store), True, heard, driver)
    assert driver.invoke(outer, "Hello").status == "completed"
    assert (heard[1:], done) == ([("clerk", "refund", REFUND)], [])


# A tool that a policy gates, and a body that calls it like a function


def settling(body: Any, *, calls: Any = (), by_turn: bool = True, **options: Any) -> Agent[Any, Any]:
    """An agent with a tool of this body, and with the tool that a policy gates."""
    settle = tool(name="settle", calls=calls)(body)
    script = [call("settle", {"order": 7}), "Done."]
    model = ScriptedModel.by_turn(script) if by_turn else ScriptedModel(script)
    return Agent(name="clerk", description="Settles.", model=model, tools=[settle, refund, look_up], **options)


def plainly(order: int) -> str:
    """Settles."""
    return refund(order)


def by_execute(order: int) -> str:
    """Settles."""
    return refund.execute(order)


def by_its_function(order: int) -> str:
    """Settles."""
    return refund.function(order)


async def in_a_task(order: int) -> str:
    """Settles."""

    async def pay() -> str:
        return refund(order)

    return await asyncio.create_task(pay())


def in_a_thread(order: int) -> str:
    """Settles."""
    return asyncio.run(asyncio.to_thread(refund, order))


RULES: Final[tuple[Any, ...]] = (
    ["refund"],
    ["re*"],
    {"refund": True},
    {"*": lambda args: False},
    {"refund": Approval(by="finance", needed=2)},
    {"refund": Approval(when=lambda args: False)},
)


def settled(result: Any) -> tuple[str, bool]:
    """How the call of the body ended, and whether the body was told what to do instead."""
    said = [each for each in result.messages if each.settlement][-1]
    return said.settlement, "declare it (calls=[refund])" in said.text


def test_a_body_does_not_call_like_a_function_what_a_policy_gates(driver: Driver, store: Store) -> None:
    for policy in RULES:
        for body in (plainly, by_execute, in_a_thread, *([in_a_task] if driver.is_async else [])):
            agent = settling(body, approval_policy=policy, store=store)
            assert settled(driver.invoke(agent, "Hello")) == ("failed", True), (policy, body)
    assert done == []


def test_a_body_calls_like_a_function_what_no_policy_may_ask_about(driver: Driver, store: Store) -> None:
    for policy in ({}, ["look_up"], {"refund": False}, {"refund": Approval(when=False)}):
        agent = settling(plainly, approval_policy=policy, store=store)
        assert settled(driver.invoke(agent, "Hello")) == ("completed", False), policy
    agent = settling(by_its_function, approval_policy=["refund"], store=store)
    assert settled(driver.invoke(agent, "Hello")) == ("completed", False)
    assert refund(8) == "paid"  # outside of a body
    assert done == [*["refund 7 1.0"] * 5, "refund 8 1.0"]


def test_a_policy_around_gates_what_a_body_calls_like_a_function(driver: Driver, store: Store) -> None:
    boss = Agent(
        name="boss",
        model=ScriptedModel.by_turn([call("clerk", {"input": "go"}), "Fine."]),
        tools=[settling(plainly).as_tool()],
        approval_policy=["refund"],
        store=store,
    )
    driver.invoke(boss, "Hello")
    lines: Any = sequential({"settling": settling(plainly)}, name="line", approval_policy=["refund"], store=store)
    driver.invoke(lines, "Hello")
    hands = Agent(
        name="hands",
        model=ScriptedModel.by_turn([call("transfer_to_clerk", {"message": "go"})]),
        handoffs=[settling(plainly, by_turn=False)],
        approval_policy=["refund"],
        store=store,
    )
    assert settled(driver.invoke(hands, "Hello")) == ("failed", True)
    assert done == []


def test_a_policy_gates_what_the_bodies_of_a_graph_call_like_a_function(driver: Driver, store: Store) -> None:
    lines: Any = sequential(
        {"paying": lambda text: refund(7), "clerk": settling(plainly)},
        name="line",
        approval_policy=["refund"],
        store=store,
    )
    with pytest.raises(NodeFailed, match="paying failed: ConfigurationError: tool refund may need an approval"):
        driver.invoke(lines, "Hello")
    assert done == []


def test_a_tool_that_a_body_calls_does_not_call_like_a_function_either(driver: Driver, store: Store) -> None:
    @tool
    def inner(order: int) -> str:
        """Settles."""
        return refund(order)

    def outer(order: int, context: ToolContext[Any]) -> str:
        """Settles."""
        return str(context.call_tool("inner", {"order": order}))

    agent = settling(outer, calls=[inner], approval_policy=["refund"], store=store)
    [said] = [each for each in driver.invoke(agent, "Hello").messages if each.settlement]
    assert (said.settlement, done) == ("failed", [])
