"""What a human refuses for good is done by no agent of the run: not again, not by another one, not after a restart."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from drivers import Driver
from pydantic import Field
from tables import each

from phronomy import Agent, Approve, InvalidDecision, MemoryStore, Reject, Store, ToolCallError, ToolContext, tool
from phronomy.testing import ScriptedModel, call
from phronomy.tools.tool import Tool

done: list[int] = []
BLOCK = Reject(reason="never", then="block")
BLOCK_TOOL = Reject(reason="never", then="block_tool")
SAME = "This exact call was rejected before and was not run. Do not ask for it again."
NO_MORE = "This tool was rejected for the rest of this run, so the call was not run. Do not call the tool again."
REFUSALS: Any = [
    pytest.param(BLOCK, {"order": 7}, SAME, id="block"),
    pytest.param(BLOCK_TOOL, {"order": 7}, NO_MORE, id="block_tool"),
    pytest.param(BLOCK_TOOL, {"order": 8}, NO_MORE, id="block_tool, other arguments"),
    pytest.param(BLOCK_TOOL, {"order": "all"}, NO_MORE, id="block_tool, no valid arguments"),
]


@tool(requires_approval=True)
def refund(order: int) -> str:
    """Pays back."""
    done.append(order)
    return "paid"


@tool(requires_approval=True)
def mail(text: str) -> str:
    """Sends a mail."""
    return "sent"


def team(store: Store, *replies: Any, second: Any = None, trust: Any = None, **options: Any) -> Agent[Any, Any]:
    """A manager with two clerks, both of whom may refund."""
    clerks = [
        Agent(name="ann", model=ScriptedModel.by_turn([call("refund", {"order": 7}), "Ann is done."]), tools=[refund]),
        Agent(
            name="bob",
            model=ScriptedModel.by_turn([*(second or [call("refund", {"order": 7})]), "Bob is done."]),
            tools=[refund],
            **options,
        ),
    ]
    model = ScriptedModel.by_turn([*(replies or (call("ann", {"input": "x"}), call("bob", {"input": "x"}))), "Fine."])
    return Agent(name="desk", model=model, tools=[mail, *(each.as_tool() for each in clerks)], store=store, trust=trust)


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


def settled(agent: Agent[Any, Any], name: str) -> list[tuple[str | None, str]]:
    clerk = agent.spec.tools[name].inner  # type: ignore[attr-defined]
    return [(m.settlement, m.text) for m in clerk.model.requests[-1].messages if m.role == "tool"]


@pytest.mark.parametrize(("refusal", "args", "told"), REFUSALS)
def test_another_agent_does_not_do_it_either(
    driver: Driver, store: Store, refusal: Reject, args: dict[str, Any], told: str
) -> None:
    result = driver.invoke(team(store), "Hello")
    agent = team(store, second=[call("refund", args)])  # as in another process
    [item] = result.checkpoint.pending
    result = driver.resume(agent, result.checkpoint.id, decisions={item.id: refusal})
    assert (result.status, done) == ("completed", [])
    assert settled(agent, "bob") == [("rejected", told)]


def test_arguments_that_are_not_valid_are_told_so_where_others_were_refused(driver: Driver, store: Store) -> None:
    agent = team(store, second=[call("refund", {"order": "all"})])
    asked = driver.invoke(agent, "Hello").checkpoint
    assert driver.resume(agent, asked, decisions={asked.pending[0].id: BLOCK}).status == "completed"
    [(settlement, told)] = settled(agent, "bob")
    assert (settlement, "The arguments are not valid" in told, done) == ("invalid", True, [])


@pytest.mark.parametrize(("refusal", "args", "told"), REFUSALS)
def test_so_it_is_if_it_was_decided_with_the_store_alone(
    driver: Driver, store: Store, refusal: Reject, args: dict[str, Any], told: str
) -> None:
    at = driver.invoke(team(store), "Hello").checkpoint
    [item] = at.pending
    store.decide(item.id, refusal, by="ada", digest=item.digest)
    agent = team(store, second=[call("refund", args)])
    assert driver.recover(agent, at.run_id).status == "completed"
    assert (settled(agent, "bob"), done) == ([("rejected", told)], [])


def desk(store: Store, *replies: Any, refund: Tool = refund, **options: Any) -> Agent[Any, Any]:
    """An agent that may refund, and send mails."""
    return Agent(
        name="desk", model=ScriptedModel.by_turn([*replies, "Fine."]), tools=[refund, mail], store=store, **options
    )


def results(result: Any) -> list[tuple[str | None, str]]:
    return [(message.settlement, message.text) for message in result.messages if message.role == "tool"]


def test_a_tool_that_was_refused_is_not_asked_about_again_and_another_tool_is(driver: Driver, store: Store) -> None:
    agent = desk(store, call("refund", {"order": 7}), [call("refund", {"order": 8}), call("mail", {"text": "x"})])
    at = driver.invoke(agent, "Hello").checkpoint
    result = driver.resume(agent, at, decisions={at.pending[0].id: BLOCK_TOOL})
    assert [item.tool_name for item in result.checkpoint.pending] == ["mail"]
    result = driver.resume(agent, result.checkpoint, approved=True)
    assert results(result)[1:] == [("rejected", NO_MORE), ("completed", "sent")]
    assert (result.status, done) == ("completed", [])


def test_calls_of_the_refused_tool_that_wait_already_stay_pending(driver: Driver, store: Store) -> None:
    agent = desk(store, [call("refund", {"order": order}) for order in (7, 8, 9)])
    at = driver.invoke(agent, "Hello").checkpoint
    result = driver.resume(agent, at, decisions={at.pending[0].id: BLOCK_TOOL})
    assert [item.args["order"] for item in result.checkpoint.pending] == [8, 9]
    edit = {result.checkpoint.pending[0].id: Approve(args={"order": 1})}
    with pytest.raises(InvalidDecision, match="cannot run: This tool was rejected for the rest of this run"):
        driver.resume(agent, result.checkpoint, decisions=edit)
    yes = {item.id: Approve() for item in result.checkpoint.pending}
    result = driver.resume(agent, result.checkpoint, decisions=yes)
    assert (result.status, sorted(done)) == ("completed", [8, 9])


def test_an_agent_that_is_a_tool_is_not_called_again(driver: Driver, store: Store) -> None:
    ann = Agent(name="ann", model=ScriptedModel.by_turn(["Ann is done."]))
    model = ScriptedModel.by_turn([call("ann", {"input": "x"}), call("ann", {"input": "y"}), "Fine."])
    agent = Agent(name="desk", model=model, tools=[ann.as_tool(requires_approval=True)], store=store)
    at = driver.invoke(agent, "Hello").checkpoint
    result = driver.resume(agent, at, decisions={at.pending[0].id: BLOCK_TOOL})
    assert (result.status, [kind for kind, _ in results(result)]) == ("completed", ["rejected", "rejected"])
    assert results(result)[1][1] == NO_MORE


class FromServer(Tool):
    """A tool as that of a server: its source names the server."""

    name = "refund"
    requires_approval = True

    def __init__(self, server: str) -> None:
        self.source = f"mcp:{server}"
        super().__init__()

    def execute(self, order: int) -> str:
        """Pays back."""
        done.append(order)
        return "paid"


def test_a_tool_is_the_same_by_its_source_and_name(driver: Driver, store: Store) -> None:
    """A tool of the same name on another server is another tool."""
    for source, waits in (("a", []), ("b", [8])):
        clerks = [
            Agent(
                name=name,
                model=ScriptedModel.by_turn([call("refund", {"order": order}), "Done."]),
                tools=[FromServer(server)],
            )
            for name, order, server in (("ann", 7, "a"), ("bob", 8, source))
        ]
        model = ScriptedModel.by_turn([call("ann", {"input": "x"}), call("bob", {"input": "x"}), "Fine."])
        agent = Agent(name="desk", model=model, tools=[each.as_tool() for each in clerks], store=store)
        at = driver.invoke(agent, "Hello").checkpoint
        result = driver.resume(agent, at, decisions={at.pending[0].id: BLOCK_TOOL})
        assert ([item.args["order"] for item in result.checkpoint.pending], done) == (waits, [])


def changed() -> Tool:
    @tool(name="refund", requires_approval=True)
    def other(order: Annotated[int, Field(description="The number of the order.")]) -> str:
        """Pays back an order."""
        done.append(order)
        return "paid"

    return other


@pytest.mark.parametrize(("refusal", "args", "told"), REFUSALS[:3])
def test_a_new_schema_of_the_tool_does_not_lift_it(
    driver: Driver, store: Store, refusal: Reject, args: dict[str, Any], told: str
) -> None:
    replies = call("refund", {"order": 7}), call("mail", {"text": "x"}), call("refund", args)
    at = driver.invoke(desk(store, *replies), "Hello").checkpoint
    at = driver.resume(desk(store, *replies), at, decisions={at.pending[0].id: refusal}).checkpoint
    result = driver.resume(desk(store, *replies, refund=changed()), at, approved=True)
    assert (result.status, results(result)[-1], done) == ("completed", ("rejected", told), [])


@each("refusal, order", [(BLOCK, 7), (BLOCK_TOOL, 8)])
def test_a_fork_has_it_if_the_decision_is_before_the_checkpoint(driver: Driver, refusal: Reject, order: int) -> None:
    store = MemoryStore()
    replies = call("refund", {"order": 7}), call("mail", {"text": "x"}), call("refund", {"order": order})
    agent = desk(store, *replies)
    before = driver.invoke(agent, "Hello").checkpoint
    after = driver.resume(agent, before, decisions={before.pending[0].id: refusal}).checkpoint
    later = driver.resume(agent, driver.fork(agent, after), approved=True)
    assert (later.status, [kind for kind, _ in results(later)]) == ("completed", ["rejected", "completed", "rejected"])
    forked = driver.fork(agent, before)
    at = driver.resume(agent, forked, approved=False).checkpoint
    at = driver.resume(agent, at, approved=True).checkpoint
    assert [item.args for item in at.pending] == [{"order": order}]


@each("refusal, order", [(BLOCK, 7), (BLOCK_TOOL, 8)])
def test_going_back_before_the_decision_takes_it_back(driver: Driver, refusal: Reject, order: int) -> None:
    store = MemoryStore()
    agent = desk(store, call("refund", {"order": 7}), call("mail", {"text": "x"}), call("refund", {"order": order}))
    before = driver.invoke(agent, "Hello").checkpoint
    driver.resume(agent, before, decisions={before.pending[0].id: refusal})
    at = driver.resume(agent, driver.call(agent, "restore", before), approved=False).checkpoint
    at = driver.resume(agent, at, approved=True).checkpoint
    assert [item.args for item in at.pending] == [{"order": order}]


def test_with_other_arguments_it_is_another_call(driver: Driver, store: Store) -> None:
    agent = team(store, second=[call("refund", {"order": 8})])
    result = driver.invoke(agent, "Hello")
    [item] = result.checkpoint.pending
    result = driver.resume(agent, result.checkpoint, decisions={item.id: BLOCK})
    [item] = result.checkpoint.pending
    assert (item.agent, item.args, done) == ("bob", {"order": 8}, [])
    with pytest.raises(InvalidDecision, match="cannot run"):
        driver.resume(agent, result.checkpoint, decisions={item.id: Approve(args={"order": 7})})
    result = driver.resume(agent, result.checkpoint, approved=True)
    assert (result.status, done) == ("completed", [8])


def test_a_plain_rejection_leaves_others_to_ask_for_themselves(driver: Driver, store: Store) -> None:
    agent = team(store)
    result = driver.invoke(agent, "Hello")
    result = driver.resume(agent, result.checkpoint, approved=False)
    [item] = result.checkpoint.pending
    assert (item.agent, done) == ("bob", [])


@each("refusal, order, told", [(BLOCK, 7, SAME), (BLOCK_TOOL, 8, NO_MORE)])
def test_what_a_handler_inside_refused_is_refused_around_it_too(
    driver: Driver, refusal: Reject, order: int, told: str
) -> None:
    both = [call("bob", {"input": "x"}), call("ann", {"input": "x"})]
    asks = [call("refund", {"order": order})]
    agent = team(MemoryStore(), *both, second=asks, on_approval_required=lambda name, args: refusal)
    result = driver.invoke(agent, "Hello")
    assert (result.status, done) == ("completed", [])
    assert settled(agent, "ann") == [("rejected", told)]


@each("refusal, order, told", [(BLOCK, 7, SAME), (BLOCK_TOOL, 8, NO_MORE)])
def test_what_a_handler_inside_refused_outlasts_the_agent_and_the_process(
    driver: Driver, refusal: Reject, order: int, told: str
) -> None:
    store = MemoryStore()
    replies = call("bob", {"input": "x"}), call("mail", {"text": "x"}), call("ann", {"input": "x"})
    asks = [call("refund", {"order": order})]
    options: Any = {"second": asks, "on_approval_required": lambda name, args: refusal}
    at = driver.invoke(team(store, *replies, **options), "Hello").checkpoint
    agent = team(store, *replies, **options)  # as in another process
    result = driver.resume(agent, at.id, approved=True)
    assert (result.status, settled(agent, "ann"), done) == ("completed", [("rejected", told)], [])


@each("refusal, order, told", [(BLOCK, 7, SAME), (BLOCK_TOOL, 8, NO_MORE)])
def test_so_does_a_refusal_of_a_call_of_a_body(driver: Driver, refusal: Reject, order: int, told: str) -> None:
    @tool(calls=[refund])
    def settle(order: int, context: ToolContext[Any]) -> str:
        """Refunds an order."""
        try:
            return str(context.call_tool("refund", {"order": order}))
        except ToolCallError as error:
            return error.kind

    def built() -> Agent[Any, Any]:
        tools = [settle] if not driver.is_async else [asettle]
        bob = Agent(
            name="bob",
            model=ScriptedModel.by_turn([call(tools[0].name, {"order": 7}), "Bob is done."]),
            tools=tools,
            on_approval_required=lambda name, args: refusal,
        )
        ann = Agent(
            name="ann",
            model=ScriptedModel.by_turn([call("refund", {"order": order}), "Ann is done."]),
            tools=[refund],
        )
        steps = call("bob", {"input": "x"}), call("mail", {"text": "x"}), call("ann", {"input": "x"})
        model = ScriptedModel.by_turn([*steps, "Fine."])
        return Agent(name="desk", model=model, tools=[mail, bob.as_tool(), ann.as_tool()], store=store)

    @tool(calls=[refund])
    async def asettle(order: int, context: ToolContext[Any]) -> str:
        """Refunds an order."""
        try:
            return str(await context.acall_tool("refund", {"order": order}))
        except ToolCallError as error:
            return error.kind

    store = MemoryStore()
    at = driver.invoke(built(), "Hello").checkpoint
    agent = built()  # as in another process
    result = driver.resume(agent, at.id, approved=True)
    assert (result.status, settled(agent, "ann"), done) == ("completed", [("rejected", told)], [])


@each("second, asked", [(7, []), (8, [{"order": 8}])])
def test_a_decision_of_an_earlier_version_is_known_by_its_digest(driver: Driver, second: int, asked: Any) -> None:
    """It has no key of what it blocks."""
    replies = call("ann", {"input": "x"}), call("mail", {"text": "x"}), call("bob", {"input": "x"})
    asks = [call("refund", {"order": second})]
    first, agent = (team(MemoryStore(), *replies, second=asks, trust="bearer") for _ in range(2))
    at = driver.invoke(first, "Hello").checkpoint
    at = driver.resume(first, at, decisions={at.pending[0].id: BLOCK}).checkpoint
    older = at.evolve(decisions=tuple(each.evolve(blocks=None) for each in at.decisions))
    result = driver.resume(agent, older, approved=True)
    assert ([item.args for item in result.checkpoint.pending], done) == (asked, [])
