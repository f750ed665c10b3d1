"""What a misused checkpoint gets: another agent, a tool that is gone or changed, a gate that was loosened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from drivers import Driver, decide_first, outline, rows

from phronomy import (
    Agent,
    AgentChanged,
    Approval,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    NotAuthorized,
    Respond,
    ToolContext,
    tool,
)
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call

Done = list[tuple[Any, ...]]


def refund_tool(driver: Driver, done: Done, **options: Any) -> Any:
    def refund(order: int, amount: float = 5.0) -> str:
        """Refund an order."""
        done.append(("refund", order, amount))
        return "refunded"

    return tool(**{"requires_approval": True, **options})(driver.function(refund))


def narrowed_tool(driver: Driver, done: Done) -> Any:
    def refund(order: int) -> str:
        """Refund an order."""
        done.append(("narrowed", order))
        return "refunded"

    return tool(requires_approval=True)(driver.function(refund))


def widened_tool(driver: Driver, done: Done) -> Any:
    def refund(order: int, amount: float = 5.0, note: str = "none") -> str:
        """Refund an order, with a note."""
        done.append(("widened", order, amount, note))
        return "refunded"

    return tool(requires_approval=True)(driver.function(refund))


def retyped_tool(driver: Driver, done: Done) -> Any:
    def refund(order: str, amount: float = 5.0) -> str:
        """Refund an order."""
        done.append(("retyped", order, amount))
        return "refunded"

    return tool(requires_approval=True)(driver.function(refund))


def other_tool(driver: Driver, done: Done) -> Any:
    def look(order: int) -> str:
        """Look an order up."""
        done.append(("look", order))
        return "seen"

    return tool(driver.function(look))


def agent_with(tools: list[Any], store: Store, *, name: str = "clerk", **options: Any) -> Agent[Any, str]:
    model = options.pop("model", None) or ScriptedModel.by_turn([[call("refund", {"order": 1})], "done"])
    return Agent(name=name, model=model, tools=tools, store=store, **options)


def suspended(driver: Driver, store: Store, done: Done, **options: Any) -> tuple[Agent[Any, str], Checkpoint]:
    """The right agent, and its checkpoint with one pending refund."""
    agent = agent_with([refund_tool(driver, done, **options)], store)
    result = driver.invoke(agent, "go", thread_id="t")
    assert result.suspended
    return agent, result.checkpoint


Make = Callable[[Driver, Done], list[Any]]

CHANGES = [
    pytest.param({}, lambda driver, done: [], "is gone", id="tool-gone"),
    pytest.param({}, lambda driver, done: [other_tool(driver, done)], "is gone", id="another-tool"),
    pytest.param({}, lambda driver, done: [narrowed_tool(driver, done)], "no longer valid", id="parameter-gone"),
    pytest.param({}, lambda driver, done: [retyped_tool(driver, done)], "no longer valid", id="parameter-retyped"),
    pytest.param(
        {},
        lambda driver, done: [refund_tool(driver, done, source="elsewhere")],
        "is another one now",
        id="another-source",
    ),
    pytest.param(
        {},
        lambda driver, done: [refund_tool(driver, done, requires_approval=False)],
        "loosened from 'always' to 'never'",
        id="always-to-never",
    ),
    pytest.param(
        {},
        lambda driver, done: [refund_tool(driver, done, requires_approval=lambda args: True)],
        "loosened from 'always' to 'predicate'",
        id="always-to-predicate",
    ),
    pytest.param(
        {"requires_approval": lambda args: True},
        lambda driver, done: [refund_tool(driver, done, requires_approval=False)],
        "loosened from 'predicate' to 'never'",
        id="predicate-to-never",
    ),
    pytest.param(
        {},
        lambda driver, done: [refund_tool(driver, done, requires_approval=Approval(by="finance"))],
        "asks for certain people now",
        id="people-asked-for",
    ),
]


@pytest.mark.parametrize(("options", "make", "why"), CHANGES)
def test_a_checkpoint_whose_tool_is_gone_or_changed_is_refused_before_anything_is_consumed(
    driver: Driver, store: Store, options: dict[str, Any], make: Make, why: str
) -> None:
    """A checkpoint whose tool is gone, changed, or its gate loosened: refused, and the right agent can still resume.

    RBY-A12, field failure 108.
    """
    done: Done = []
    right, checkpoint = suspended(driver, store, done, **options)
    wrong = agent_with(make(driver, done), store)
    before = rows(store)

    for given in (checkpoint, checkpoint.id, Checkpoint.model_validate_json(checkpoint.model_dump_json())):
        with pytest.raises(AgentChanged, match="Nothing was consumed") as caught:
            driver.resume(wrong, given, approved=True, by="ann")
        assert why in str(caught.value)
        assert any(why in change for change in caught.value.changes)
        assert caught.value.checkpoint_id == checkpoint.id
    with pytest.raises(AgentChanged):
        driver.step(wrong, checkpoint, decisions={checkpoint.pending[0].id: Respond(content="x")})

    assert (rows(store), done) == (before, [])
    assert any(why in change for change in wrong.drift(checkpoint).changed)
    result = driver.resume(right, checkpoint, approved=True)
    assert (result.output, done) == ("done", [("refund", 1, 5.0)])


@pytest.mark.parametrize(("options", "make", "why"), CHANGES)
def test_a_checkpoint_whose_tool_is_gone_or_changed_can_be_rejected(
    driver: Driver, store: Store, options: dict[str, Any], make: Make, why: str
) -> None:
    """A checkpoint whose tool is gone, changed: a rejection runs nothing, so it needs nobody's leave."""
    done: Done = []
    _, checkpoint = suspended(driver, store, done, **options)
    wrong = agent_with(make(driver, done), store)
    assert why in str(wrong.drift(checkpoint).changed)
    result = driver.resume(wrong, checkpoint, approved=False, reason="no", by="ann")
    assert (result.output, done, result.messages[2].settlement) == ("done", [], "rejected")


def test_a_checkpoint_of_another_agent_is_refused_before_anything_is_consumed(driver: Driver, store: Store) -> None:
    """A checkpoint of another agent, with a tool of the same name. RBY B8, RBY-A13"""
    done: Done = []
    right, checkpoint = suspended(driver, store, done)
    wrong = agent_with([refund_tool(driver, done)], store, name="thief")
    before = rows(store)

    with pytest.raises(AgentChanged, match="the agent was 'clerk' and is 'thief'"):
        driver.resume(wrong, checkpoint, approved=True)
    with pytest.raises(AgentChanged, match="the agent was 'clerk' and is 'thief'"):
        driver.resume(wrong, checkpoint.id, decisions={checkpoint.pending[0].id: Approve(args={"order": 2})})

    assert (rows(store), done) == (before, [])
    assert [item.checkpoint_id for item in store.pending()] == [checkpoint.id]
    assert driver.resume(right, checkpoint, approved=True).output == "done"
    assert done == [("refund", 1, 5.0)]


@pytest.mark.parametrize(
    "wrong", ["another-agent", "tool-gone", "another-source", "parameter-retyped", "gate-loosened"]
)
def test_an_interrupted_checkpoint_is_not_recovered_by_a_changed_agent(
    driver: Driver, store: Store, wrong: str
) -> None:
    """A checkpoint of another agent, or whose tool is gone or changed, with a call that may be run again: refused by
    `recover` and `resume` before anything is consumed, and carried on by the right agent under the same key.
    """
    done: Done = []
    keys: list[str] = []

    def refund(order: int, ctx: ToolContext[Any], amount: float = 5.0) -> str:
        """Refund an order."""
        keys.append(ctx.idempotency_key)
        if len(keys) == 2:
            raise KeyboardInterrupt
        return "refunded"

    def gated(**options: Any) -> Any:
        return tool(**{"requires_approval": True, "idempotent": True, **options})(driver.function(refund))

    model = ScriptedModel.by_turn([[call("refund", {"order": 1}), call("refund", {"order": 2})], "done"])
    right = agent_with([gated()], store, model=model)
    checkpoint = driver.invoke(right, "go", thread_id="t").checkpoint
    driver.resume(right, checkpoint, decisions=decide_first(checkpoint))
    with pytest.raises(KeyboardInterrupt):
        driver.resume(right, checkpoint, decisions={checkpoint.pending[1].id: Approve()})
    before = rows(store)
    changed = {
        "another-agent": agent_with([gated()], store, name="thief"),
        "tool-gone": agent_with([other_tool(driver, done)], store),
        "another-source": agent_with([gated(source="elsewhere")], store),
        "parameter-retyped": agent_with([retyped_tool(driver, done)], store),
        "gate-loosened": agent_with([gated(requires_approval=False)], store),
    }[wrong]

    for given in (checkpoint, checkpoint.id, checkpoint.run_id):
        with pytest.raises(AgentChanged, match="Nothing was consumed"):
            driver.recover(changed, given)
    with pytest.raises(AgentChanged, match="Nothing was consumed"):
        driver.resume(changed, store.head(checkpoint.branch_id)[1])

    assert (rows(store), len(keys), done) == (before, 2, [])
    assert driver.recover(right, checkpoint).output == "done"
    assert (len(keys), len(set(keys)), keys[1], done) == (3, 2, keys[2], [])


def test_a_fork_by_another_agent_gives_it_nothing(driver: Driver, store: Store) -> None:
    """A checkpoint of another agent, forked: the fork is still the right agent's, and only that one can resume it."""
    done: Done = []
    right, checkpoint = suspended(driver, store, done)
    thief = agent_with([refund_tool(driver, done)], store, name="thief")

    fork = driver.fork(thief, checkpoint)

    assert (fork.agent, fork.status, done) == (checkpoint.agent, "suspended", [])
    before = rows(store)
    for options in ({"approved": True}, {"decisions": {fork.pending[0].id: Approve()}}):
        with pytest.raises(AgentChanged, match="the agent was 'clerk' and is 'thief'"):
            driver.resume(thief, fork, **options)
    assert (rows(store), done) == (before, [])
    assert driver.resume(right, fork, approved=True).output == "done"
    assert done == [("refund", 1, 5.0)]


def test_a_bearer_checkpoint_of_another_agent_is_refused_and_stays_usable(driver: Driver) -> None:
    """A checkpoint of another agent, carried as text with no store: refused, and the right agent resumes it."""
    done: Done = []
    first = Agent(name="clerk", model=ScriptedModel([call("refund", {"order": 1})]), tools=[refund_tool(driver, done)])
    text = driver.invoke(first, "go").checkpoint.model_dump_json()

    thief = Agent(name="thief", model=ScriptedModel(["stolen"]), tools=[refund_tool(driver, done)])
    gone = Agent(name="clerk", model=ScriptedModel(["stolen"]))
    loose = Agent(
        name="clerk", model=ScriptedModel(["stolen"]), tools=[refund_tool(driver, done, requires_approval=False)]
    )
    for wrong in (thief, gone, loose):
        for _ in range(2):
            with pytest.raises(AgentChanged):
                driver.resume(wrong, Checkpoint.model_validate_json(text), approved=True)
    assert done == []

    right = Agent(name="clerk", model=ScriptedModel(["done"]), tools=[refund_tool(driver, done)])
    assert driver.resume(right, Checkpoint.model_validate_json(text), approved=True).output == "done"
    assert done == [("refund", 1, 5.0)]
    with pytest.raises(CheckpointAlreadyResumed):
        driver.resume(right, Checkpoint.model_validate_json(text), approved=True)


def test_a_change_that_touches_nothing_pending_is_compatible_and_listed(driver: Driver, store: Store) -> None:
    """A checkpoint whose agent has other instructions, model and tools: it goes on, and `drift` says so. Law 10"""
    done: Done = []
    _, checkpoint = suspended(driver, store, done)
    model = ScriptedModel(["done"], name="another-model")
    tools = [refund_tool(driver, done), other_tool(driver, done)]
    changed = agent_with(tools, store, model=model, instructions="Be kind.")

    drift = changed.drift(checkpoint)
    assert drift.changed == ()
    assert set(drift.compatible) == {"the instructions changed", "the model changed", "tool 'look' was added"}

    result = driver.resume(changed, checkpoint, approved=True)
    assert (result.output, done, model.requests[0].system) == ("done", [("refund", 1, 5.0)], "Be kind.")


def test_a_gate_that_was_tightened_is_compatible(driver: Driver, store: Store) -> None:
    """A checkpoint whose tool's gate was tightened: what waits is still asked for, so it goes on."""
    done: Done = []
    _, checkpoint = suspended(driver, store, done, requires_approval=lambda args: True)
    strict = agent_with([refund_tool(driver, done, requires_approval=True)], store)

    result = driver.resume(strict, checkpoint, approved=True)

    assert (result.output, done) == ("done", [("refund", 1, 5.0)])


def test_a_gate_that_was_tightened_is_not_passed_by_a_call_judged_before(driver: Driver, store: Store) -> None:
    """A checkpoint whose call was judged before its tool was gated: it does not run unapproved, and is not consumed."""
    done: Done = []
    loose = agent_with([refund_tool(driver, done, requires_approval=False)], store)
    result = driver.step(loose, "go")
    while not result.checkpoint.calls or result.checkpoint.calls[0].status == "new":
        result = driver.step(loose, result.checkpoint)
    assert (result.status, done, result.checkpoint.calls[0].status) == ("running", [], "ready")

    strict = agent_with([refund_tool(driver, done)], store)
    for _ in range(2):
        with pytest.raises(NotAuthorized, match="needs an approval, and none is recorded"):
            driver.resume(strict, result.checkpoint)
        assert done == []

    result = driver.resume(loose, result.checkpoint)
    assert (result.status, result.output, done) == ("completed", "done", [("refund", 1, 5.0)])


def test_one_changed_tool_stops_the_decision_on_another(driver: Driver, store: Store) -> None:
    """A checkpoint whose tool is gone, beside one whose tool is there: nothing of it is decided by a changed agent."""
    done: Done = []

    def pay(amount: int) -> str:
        """Pay."""
        done.append(("pay", amount))
        return "paid"

    pay_tool = tool(requires_approval=True)(driver.function(pay))
    model = ScriptedModel.by_turn([[call("refund", {"order": 1}), call("pay", {"amount": 2})], "done"])
    right = agent_with([refund_tool(driver, done), pay_tool], store, model=model)
    checkpoint = driver.invoke(right, "go").checkpoint
    before = rows(store)

    wrong = agent_with([pay_tool], store, model=model)
    with pytest.raises(AgentChanged, match="'refund' of a pending call is gone"):
        driver.resume(wrong, checkpoint, decisions={checkpoint.pending[1].id: Approve()})

    assert (rows(store), done) == (before, [])
    answers = {item.id: Approve() for item in checkpoint.pending}
    assert driver.resume(right, checkpoint, decisions=answers).output == "done"
    assert sorted(done) == [("pay", 2), ("refund", 1, 5.0)]


def test_a_change_that_the_caller_accepts_still_runs_nothing_unapproved(driver: Driver, store: Store) -> None:
    """A checkpoint whose tool is gone, accepted: the model is told that there is no such tool any more. RBY R8"""
    done: Done = []
    _, checkpoint = suspended(driver, store, done)
    wrong = agent_with([other_tool(driver, done)], store, name="heir")

    result = driver.resume(wrong, checkpoint, approved=True, accept_changes=True)

    assert (result.output, done) == ("done", [])
    assert outline(result)[2] == "tool (failed): There is no tool named 'refund' any more. Nothing was run."


def test_args_that_are_no_longer_valid_do_not_run_even_if_the_caller_accepts(driver: Driver, store: Store) -> None:
    """A checkpoint whose tool has changed, accepted: args that it cannot take reach no body; the model is told."""
    done: Done = []
    _, checkpoint = suspended(driver, store, done)
    narrowed = agent_with([narrowed_tool(driver, done)], store)

    result = driver.resume(narrowed, checkpoint, approved=True, accept_changes=True)

    assert (result.output, done) == ("done", [])
    assert result.messages[2].settlement == "failed"
    assert "not valid" in result.messages[2].text
