"""Stories of what five such systems do in five ways: for each topic, the safe choice, and that this one makes it.

Every story is told by both drivers, on both stores. A topic stands in quotes in the docstring of its story.
"""

from __future__ import annotations

import ast
import asyncio
import copy
import inspect
import json
import pickle
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from drivers import DRIVERS, STORES, Driver, open_kind, outline, rows
from pydantic import AfterValidator
from refund_desk import REFUND, Desk

from phronomy import (
    Agent,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointEdited,
    CheckpointError,
    CheckpointNotFound,
    ConfigurationError,
    InvalidDecision,
    LeaseLost,
    LimitExceeded,
    Limits,
    MemoryStore,
    ModelError,
    NothingDecided,
    Reject,
    Respond,
    Result,
    SQLiteStore,
    StillNeeded,
    ThreadBusy,
    UnknownPending,
    tool,
)
from phronomy.foundation.json_text import MAX_BYTES
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.unmeasured

TOPICS = (
    "How a pause is returned",
    "Denial",
    "Unknown or stale id",
    "Second resume",
    "Consume and execute order",
    "Gate placement",
    "Order of guardrails and approval",
    "Parallel pauses",
    "Edits",
    "Input on resume",
    "Step and time budgets across a pause",
    "Timeouts",
    "Streaming",
    "Checkpoint immutability",
    "Retention",
    "Python hazards",
)

YEAR = 365 * 86_400.0


class Clock:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with open_kind(request.param, tmp_path, clock=clock) as opened:
        yield opened


def refused(store: Store, desk: Desk, act: Callable[[], Any], error: type[BaseException]) -> Any:
    """That `act` is refused with this error, and nothing has happened; the error."""
    before, done, asked = rows(store), list(desk.done), len(desk.model.requests)
    with pytest.raises(error) as caught:
        act()
    assert (rows(store), desk.done, len(desk.model.requests)) == (before, done, asked)
    return caught.value


def test_every_topic_has_a_story() -> None:
    """Each topic is named by a story that both drivers tell."""
    told: set[str] = set()
    for node in ast.parse(Path(__file__).read_text()).body:
        found = re.findall(r'Safe default "([^"]+)"', ast.get_docstring(node) or "") if is_test(node) else []
        assert not found or is_told_by_both(node)
        told.update(found)
    assert sorted(told) == sorted(TOPICS)


def is_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test_")


def is_told_by_both(node: Any) -> bool:
    return "driver" in {argument.arg for argument in node.args.args}


def test_a_pause_is_a_value(driver: Driver, store: Store) -> None:
    """Safe default "How a pause is returned": a value, from `invoke` and from `resume`; there is nothing to swallow."""
    swallowed: list[BaseException] = []
    desk = Desk(driver, store, [REFUND, REFUND, "done"])

    def careless_sync(again: bool) -> str:
        """Let the desk do it, whatever happens."""
        try:
            return told(desk.agent.invoke("go") if not again else desk.agent.resume(waiting(), approved=True))
        except BaseException as error:
            swallowed.append(error)
            return "swallowed"

    async def careless_async(again: bool) -> str:
        """Let the desk do it, whatever happens."""
        try:
            if not again:
                return told(await desk.agent.ainvoke("go"))
            return told(await desk.agent.aresume(waiting(), approved=True))
        except BaseException as error:
            swallowed.append(error)
            return "swallowed"

    def waiting() -> str:
        return store.pending()[0].checkpoint_id

    def told(result: Result[Any]) -> str:
        assert type(result) is Result
        return f"{result.status} at {result.checkpoint.id}"

    # Given a tool that catches everything, and in it another agent that pauses twice
    careless = tool(name="careless")(careless_async if driver.is_async else careless_sync)
    script = [call("careless", {"again": False}), call("careless", {"again": True}), "end"]
    outer = Agent(name="outer", model=ScriptedModel(script), tools=[careless], store=store)
    # When it runs
    result = driver.invoke(outer, "go")
    # Then both pauses have come back as values, and the second one still waits
    assert (result.status, result.output, swallowed) == ("completed", "end", [])
    first, second = (message.text for message in result.messages if message.role == "tool")
    assert first.startswith("suspended at ")
    assert second == f"suspended at {waiting()}" != first
    assert desk.done == [("refund", 1042, 5.0)]
    assert driver.resume(desk.agent, waiting(), approved=True).output == "done"


def test_a_denial_is_told_to_the_model_and_never_tried_again(driver: Driver, store: Store) -> None:
    """Safe default "Denial": the caller says what follows; without a word the model reads it; no retry, no fallback."""
    done: list[str] = []

    def wire(amount: int) -> str:
        """Wire money."""
        done.append("wire")
        return "wired"

    def by_hand(amount: int) -> str:
        """Carry it there."""
        done.append("by hand")
        return "carried"

    gated = tool(
        requires_approval=True,
        idempotent=True,
        retries=3,
        retry_wait=0,
        fallback=[driver.function(by_hand)],
        on_failure="human",
    )(driver.function(wire))
    assert (Reject().then, Reject().reason) == ("continue", None)
    for answer, status, asked in (
        (Reject(), "completed", 2),
        (False, "completed", 2),
        (Reject(then="block"), "completed", 2),
        (Reject(then="end"), "rejected", 1),
    ):
        model = ScriptedModel([call("wire", {"amount": 7}), "Understood."])
        agent = Agent(name="desk", model=model, tools=[gated], store=store)
        checkpoint = driver.invoke(agent, "go").checkpoint
        chosen: dict[str, Any] = (
            {"approved": False} if answer is False else {"decisions": {checkpoint.pending[0].id: answer}}
        )

        result = driver.resume(agent, checkpoint, **chosen)

        assert (result.status, len(model.requests), done, store.pending()) == (status, asked, [], [])
        assert result.output == ("Understood." if status == "completed" else None)
        assert [message.settlement for message in result.messages if message.role == "tool"] == ["rejected"]


def test_an_id_that_is_unknown_or_stale_is_a_typed_error(driver: Driver, store: Store) -> None:
    """Safe default "Unknown or stale id": a typed error that names it, and not one byte of the store has changed."""
    desk = Desk(driver, store, [REFUND, call("refund", {"order": 2}), call("refund", {"order": 3}), "done"])
    first = driver.invoke(desk.agent, "go").checkpoint
    second = driver.resume(desk.agent, first, approved=True).checkpoint
    foreign = driver.invoke(desk.agent, "another").checkpoint
    stale, current = first.pending[0].id, second.pending[0].id

    for id in (stale, foreign.pending[0].id, "pend_unknown", "", current.upper(), f" {current}", first.id):
        for answer in (Approve(), Reject(), Respond(content="x")):
            for decisions in ({id: answer}, {id: answer, current: Approve()}, {current: Approve(), id: answer}):
                act = partial(driver.resume, desk.agent, second, decisions=decisions)
                assert refused(store, desk, act, UnknownPending).pending_id == id
    for options in ({"approved": True}, {"decisions": {stale: Approve()}}):
        act = partial(driver.resume, desk.agent, first, **options)
        assert refused(store, desk, act, CheckpointAlreadyResumed).pending_id == stale
    for id in ("ckpt_unknown", "run_unknown", "", second.id.upper(), "../runs", "%"):
        for method in ("resume", "recover", "cancel", "fork"):
            act = partial(driver.call, desk.agent, method, id)
            assert id in str(refused(store, desk, act, CheckpointNotFound))

    assert driver.resume(desk.agent, second, approved=True).output == "done"
    assert desk.done == [("refund", 1042, 5.0), ("refund", 2, 5.0)]
    assert [item.approval.id for item in store.pending()] == [foreign.pending[0].id]


def test_a_second_resume_hears_what_came_of_the_first(driver: Driver, store: Store) -> None:
    """Safe default "Second resume": an error with the first decision, how far it is, and its result once there is one."""
    heard: list[CheckpointAlreadyResumed] = []
    given: list[Checkpoint] = []

    def click(**options: Any) -> CheckpointAlreadyResumed:
        before = rows(store)
        with pytest.raises(CheckpointAlreadyResumed) as caught:
            rival.resume(given[0], by="bert", **options)
        assert rows(store) == before
        assert caught.value.decision is not None
        assert caught.value.decision.by is not None
        assert (caught.value.decision.kind, caught.value.decision.by.id) == ("approve", "ann")
        assert (caught.value.checkpoint_id, caught.value.pending_id) == (given[0].id, given[0].pending[0].id)
        return caught.value

    def pay(amount: int) -> str:
        """Pay."""
        heard.append(click(approved=True))
        return "paid"

    def never(amount: int) -> str:
        """Pay."""
        raise AssertionError("the second click has run it")

    gate = tool(requires_approval=True, name="pay")
    model = ScriptedModel([call("pay", {"amount": 1}), call("pay", {"amount": 2}), ModelError("down"), "done"])
    agent = Agent(name="desk", model=model, tools=[gate(driver.function(pay))], store=store)
    rival = Agent(name="desk", model=ScriptedModel([]), tools=[gate(never)], store=store)
    # While it runs
    given.append(driver.invoke(agent, "go").checkpoint)
    second = driver.resume(agent, given[0], approved=True, by="ann")
    assert [(error.progress, error.result) for error in heard] == [("running", None)]
    # When it waits for the next decision
    for options in (
        {"approved": True},
        {"approved": False},
        {"decisions": {given[0].pending[0].id: Respond(content=1)}},
    ):
        error = click(**options)
        assert (error.progress, error.result.checkpoint) == ("suspended", second.checkpoint)
    # When it has failed
    given[:] = [second.checkpoint]
    with pytest.raises(ModelError) as failed:
        driver.resume(agent, second.checkpoint, approved=True, by="ann")
    assert (click(approved=True).progress, click(approved=False).result) == ("failed", None)
    # When it has ended
    assert failed.value.checkpoint is not None
    ended = driver.resume(agent, failed.value.checkpoint)
    assert ended.output == "done"
    error = click(approved=True)
    assert (error.progress, error.result.checkpoint, len(heard)) == ("ended", ended.checkpoint, 2)


def test_a_decision_is_claimed_then_carried_out_then_committed(driver: Driver, store: Store, clock: Clock) -> None:
    """Safe default "Consume and execute order": claim with a lease, execute, commit; a claim that ran out in between is
    visible as an unknown outcome, and the one who lost it cannot commit."""
    seen: list[Any] = []
    taken: list[Result[Any]] = []

    def wire(amount: int) -> str:
        """Wire money."""
        (branch,) = store.branches()
        _, head = store.head(branch.id)
        seen.append((branch.owner is not None, branch.lease_until > clock.now, [each.kind for each in head.decisions]))
        seen.append([outcome.type for outcome in head.journal])
        clock.now += 3600
        taken.append(rescuer.recover(branch.id))
        return "wired"

    def again(amount: int) -> str:
        """Wire money."""
        raise AssertionError("nobody has said that it may run again")

    gate = tool(requires_approval=True, name="wire")
    model = ScriptedModel([call("wire", {"amount": 7})])
    agent = Agent(name="desk", model=model, tools=[gate(driver.function(wire))], store=store)
    rescuer = Agent(name="desk", model=ScriptedModel(["done"]), tools=[gate(again)], store=store)
    checkpoint = driver.invoke(agent, "go").checkpoint

    with pytest.raises(LeaseLost):
        driver.resume(agent, checkpoint, approved=True)

    assert seen == [(True, True, ["approve"]), ["started"]]
    (result,) = taken
    (item,) = result.checkpoint.pending
    assert (result.status, item.why, item.args) == ("suspended", "outcome_unknown", {"amount": 7})
    assert [waiting.approval.id for waiting in store.pending()] == [item.id]
    _, head = store.head(checkpoint.branch_id)
    assert [each.status for each in head.calls] == ["pending"]
    refusal = pytest.raises(CheckpointAlreadyResumed)
    with refusal:
        rescuer.resume(checkpoint, approved=True)
    result = rescuer.resume(result.checkpoint, decisions={item.id: Respond(content="the bank has it")})
    assert (result.output, result.messages[2].text) == ("done", "the bank has it")


def test_the_gate_stands_between_validation_and_the_body(driver: Driver, store: Store) -> None:
    """Safe default "Gate placement": arguments are validated, then the gate is asked, and only then is the body entered."""
    log: list[str] = []

    def watched(amount: int) -> int:
        log.append("validated")
        if amount < 0:
            raise ValueError("below 0")
        return amount

    def gate(args: Any) -> bool:
        log.append(f"gate {args['amount']!r}")
        return True

    def pay(amount: Annotated[int, AfterValidator(watched)]) -> str:
        """Pay."""
        log.append(f"body {amount!r}")
        return "paid"

    gated = tool(requires_approval=driver.function(gate))(driver.function(pay))
    log.clear()
    model = ScriptedModel([call("pay", {"amount": -1}), call("pay", '{"amount": "5"}'), "done"])
    agent = Agent(name="desk", model=model, tools=[gated], store=store)

    result = driver.invoke(agent, "go")

    assert result.suspended
    assert result.messages[2].settlement == "invalid"
    kinds = [line for line in log if line != "validated"]
    assert kinds == ["gate 5"]
    assert log[0] == "validated"
    assert log.index("gate 5") == len(log) - 1
    result = driver.resume(agent, result.checkpoint, approved=True)
    assert (result.output, [line for line in log if line != "validated"]) == ("done", ["gate 5", "body 5"])


def test_policy_comes_before_a_human_and_again_after_an_edit(driver: Driver, store: Store) -> None:
    """Safe default "Order of guardrails and approval": the tool's policy, then a human, then the edited arguments anew."""
    log: list[str] = []

    def policy(args: Any) -> Any:
        log.append(f"policy {args['order']}")
        return Reject(reason="not that one") if args["order"] > 100 else True

    def handler(name: str, args: Any) -> Any:
        log.append(f"human {args['order']}")
        return answers.pop(0)

    def refund(order: int) -> str:
        """Refund."""
        log.append(f"body {order}")
        return "refunded"

    answers: list[Any] = [Approve(args={"order": 6})]
    gated = tool(requires_approval=driver.function(policy))(driver.function(refund))
    desk = Desk(
        driver,
        store,
        [[call("refund", {"order": 101}), call("refund", {"order": 5})], call("refund", {"order": 7}), "done"],
        tools=[gated],
        on_approval_required=driver.function(handler),
    )
    first = driver.invoke(Agent(name="desk", model=desk.model, tools=[gated], store=store), "go").checkpoint
    assert log == ["policy 101", "policy 5"]
    assert [item.args for item in first.pending] == [{"order": 5}]
    # An edit is judged by the policy as well, and what it refuses is not consumed
    for args, error in (({"order": 102}, "not that one"), ({"order": "x"}, "order"), ({}, "order")):
        decisions = {first.pending[0].id: Approve(args=args)}
        act = partial(driver.resume, desk.agent, first, decisions=decisions)
        assert error in str(refused(store, desk, act, InvalidDecision))
    log.clear()

    result = driver.resume(desk.agent, first, decisions={first.pending[0].id: Approve(args={"order": 4})})

    assert result.output == "done"
    assert log == ["policy 4", "body 4", "policy 7", "human 7", "policy 6", "body 6"]


def test_parallel_pauses_are_a_set_that_is_answered_in_parts(driver: Driver, store: Store) -> None:
    """Safe default "Parallel pauses": all of them at once, answered one by one in any order; what is finished is kept."""
    replies = [[call("refund", {"order": n}) if n % 2 else call("look", {"order": n}) for n in range(6)], "done"]
    desk = Desk(driver, store, replies)
    first = result = driver.invoke(desk.agent, "go")
    asked = {item.args["order"]: item.id for item in first.checkpoint.pending}
    assert list(asked) == [1, 3, 5]
    assert sorted(desk.done) == [("look", 0), ("look", 2), ("look", 4)]

    for order, left in ((5, [1, 3]), (1, [3]), (3, [])):
        result = driver.resume(desk.agent, first.checkpoint, decisions={asked[order]: Approve()})
        assert [item.args["order"] for item in result.checkpoint.pending] == left
        assert len(desk.model.requests) == (1 if left else 2)

    assert (result.output, desk.done[3:]) == ("done", [("refund", n, 5.0) for n in (5, 1, 3)])
    assert [message.text for message in result.messages[2:8]] == [
        f"refunded {n}" if n % 2 else f"order {n}" for n in range(6)
    ]


def test_an_edit_is_a_new_checkpoint_after_the_old_one(driver: Driver, store: Store) -> None:
    """Safe default "Edits": an edit is recorded in a new checkpoint that goes on from the old one, which stays as it is."""
    desk = Desk(driver, store, [REFUND, "done"])
    original = driver.invoke(desk.agent, "go").checkpoint
    text, stored = original.model_dump_json(), store.load(original.id).model_dump_json()

    edit = {original.pending[0].id: Approve(args={"order": 7})}
    result = driver.resume(desk.agent, original, decisions=edit, by="ann")

    assert desk.done == [("refund", 7, 5.0)]
    chain = store.history(result.checkpoint.id)
    (edited,) = [each for each in chain if each.parent_id == original.id]
    assert (edited.id != original.id, edited.branch_id, edited.step) == (True, original.branch_id, original.step + 1)
    assert [each.args for each in edited.calls] == [{"order": 7, "amount": 5.0}]
    assert [(each.args, each.digest) for each in edited.decisions] == [
        ({"order": 7, "amount": 5.0}, original.pending[0].digest)
    ]
    assert edited.calls[0].digest != original.calls[0].digest
    assert (original.model_dump_json(), store.load(original.id).model_dump_json()) == (text, stored)
    assert edited.messages == original.messages
    assert result.messages[1].tool_calls[0].arguments == '{"order": 1042}'


def test_a_resume_takes_no_other_input(driver: Driver, store: Store) -> None:
    """Safe default "Input on resume": the run keeps its own. More is said with a decision; alone, a new message is a new run."""
    desk = Desk(driver, store, [REFUND, "done"], instructions=lambda given: f"for {given}")
    checkpoint = driver.invoke(desk.agent, "Refund order 1042", thread_id="t").checkpoint

    for method, takes in (("resume", {"input"}), ("recover", set()), ("step", set())):
        named = inspect.signature(getattr(desk.agent, f"a{method}" if driver.is_async else method)).parameters
        assert {"input", "message", "messages", "content", "state", "metadata"} & set(named) == takes
        refused(store, desk, partial(driver.call, desk.agent, method, checkpoint, "Refund all"), TypeError)
    refused(store, desk, partial(driver.resume, desk.agent, checkpoint, input="Refund all"), NothingDecided)
    refused(store, desk, partial(driver.invoke, desk.agent, "Refund all", thread_id="t"), ThreadBusy)

    result = driver.resume(desk.agent, checkpoint, approved=True)
    assert [message.text for message in result.messages if message.role == "user"] == ["Refund order 1042"]
    assert {request.system for request in desk.model.requests} == {"for Refund order 1042"}


def test_budgets_go_on_where_they_were_and_a_pause_costs_nothing(
    driver: Driver, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Safe default "Step and time budgets across a pause": steps and time are kept over it; the pause is in neither."""
    real, put_forward = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: real() + put_forward[0])

    def pay(amount: int) -> str:
        """Pay, in a minute."""
        put_forward[0] += 60
        return "paid"

    gated = tool(requires_approval=True, timeout=None)(driver.function(pay))
    model = ScriptedModel([call("pay", {"amount": n}) for n in range(9)])
    agent = Agent(name="desk", model=model, tools=[gated], store=store, limits=Limits(turns=3))
    result = driver.invoke(agent, "go")
    for turn in (1, 2):
        clock.now, put_forward[0] = clock.now + YEAR, put_forward[0] + YEAR
        result = driver.resume(agent, result.checkpoint, approved=True)
        assert (result.status, result.checkpoint.turn) == ("suspended", turn + 1)
        assert 60_000 * turn <= result.checkpoint.elapsed < 60_000 * turn + 30_000

    with pytest.raises(LimitExceeded) as reached:
        driver.resume(agent, result.checkpoint, approved=True)

    assert (reached.value.limit, reached.value.maximum, len(model.requests)) == ("turns", 3, 3)
    assert reached.value.checkpoint is not None
    assert 180_000 <= reached.value.checkpoint.elapsed < 210_000


def test_a_pause_has_no_timeout(driver: Driver, store: Store, clock: Clock) -> None:
    """Safe default "Timeouts": none on a pause; ten years later it waits as it did, and nothing was decided meanwhile."""
    desk = Desk(driver, store, [REFUND, "done"])
    checkpoint = driver.invoke(desk.agent, "go", thread_id="t").checkpoint
    before = rows(store)
    assert [item.expires_at for item in checkpoint.pending] == [None]

    clock.now += 10 * YEAR

    assert driver.recover(desk.agent, checkpoint).checkpoint == checkpoint
    assert store.load(checkpoint.id) == checkpoint
    assert ([item.approval for item in store.pending()], rows(store)) == ([*checkpoint.pending], before)
    refused(store, desk, partial(driver.invoke, desk.agent, "hello?", thread_id="t"), ThreadBusy)
    result = driver.resume(desk.agent, checkpoint, approved=True)
    assert (result.output, desk.done) == ("done", [("refund", 1042, 5.0)])
    assert (result.checkpoint.decisions[0].at - checkpoint.pending[0].requested_at).days == 3650


def streamed(driver: Driver, agent: Agent[Any, Any], at: Any, **options: Any) -> Result[Any]:
    """The result of `agent.stream`, or of its twin, taken to its end."""
    if not driver.is_async:
        stream = agent.stream(at, **options)
        for _ in stream:
            pass
        return stream.result

    async def taken() -> Result[Any]:
        stream = agent.astream(at, **options)
        async for _ in stream:
            pass
        return stream.result

    return asyncio.run(taken())


def test_a_stream_stops_where_the_run_would(driver: Driver, store: Store) -> None:
    """Safe default "Streaming": the same gates, refusals and record as without it; the end of a stream may be a pause."""
    script = [[call("look", {"order": 1}), call("refund", {"order": 2}), call("refund", {"order": 3})], REFUND, "done"]
    records = []
    for way in (driver.invoke, partial(streamed, driver)):
        go_on = driver.resume if way == driver.invoke else way
        desk = Desk(driver, store, script)
        first = way(desk.agent, "go")
        assert (first.status, first.output, desk.done) == ("suspended", None, [("look", 1)])
        one, two = first.checkpoint.pending
        refused(
            store, desk, partial(go_on, desk.agent, first.checkpoint, decisions={"pend_x": Approve()}), UnknownPending
        )
        second = go_on(desk.agent, first.checkpoint, decisions={one.id: Reject(reason="no"), two.id: Approve()})
        assert (second.status, desk.done[1:]) == ("suspended", [("refund", 3, 5.0)])
        late = partial(go_on, desk.agent, first.checkpoint, decisions={one.id: Approve()})
        refused(store, desk, late, CheckpointAlreadyResumed)
        last = go_on(desk.agent, second.checkpoint, approved=True)
        history = store.history(last.checkpoint.id)
        shapes = [(each.status, each.step, [item.status for item in each.calls]) for each in history]
        records.append((outline(last), shapes, desk.done, [each.kind for each in last.checkpoint.decisions]))

    assert records[0] == records[1]
    assert records[0][2] == [("look", 1), ("refund", 3, 5.0), ("refund", 1042, 5.0)]


def test_a_checkpoint_cannot_be_changed(driver: Driver, store: Store) -> None:
    """Safe default "Checkpoint immutability": frozen all the way down, one text for one content, and a hash over all. U7."""
    desk = Desk(driver, store, [REFUND, "done"])
    given = {"list": [1, {"deep": [2]}]}
    checkpoint = driver.invoke(desk.agent, given, metadata=given, thread_id="t").checkpoint
    text = checkpoint.model_dump_json()

    records: list[Any] = [checkpoint, checkpoint.agent, checkpoint.usage]
    records += [*checkpoint.messages, *checkpoint.messages[1].tool_calls, *checkpoint.calls, *checkpoint.pending]
    records += [checkpoint.calls[0].tool, checkpoint.pending[0].tool]
    for record in records:
        for field in type(record).model_fields:
            for act in (partial(setattr, record, field, None), partial(delattr, record, field)):
                with pytest.raises((AttributeError, ValueError)):
                    act()
    for handed in (checkpoint.original_input, checkpoint.metadata):
        handed["list"][1]["deep"].append("changed")
        handed["new"] = 1
    checkpoint.pending[0].args["order"] = 7
    assert checkpoint.model_dump_json() == text == copy.deepcopy(checkpoint).model_dump_json()
    assert hash(checkpoint.messages) == hash(Checkpoint.model_validate_json(text).messages)
    for other in (
        Checkpoint.model_validate_json(text),
        store.load(checkpoint.id),
        pickle.loads(pickle.dumps(checkpoint)),
    ):
        assert (other.model_dump_json(), other.digest) == (text, json.loads(text)["digest"])
    for place, value in (("label", "x"), ("step", 9), ("thread_id", "u"), ("metadata", "{}")):
        with pytest.raises(CheckpointError):
            Checkpoint.model_validate_json(json.dumps({**json.loads(text), place: value}))
        changed = checkpoint.model_copy(update={place: value})
        assert changed.digest != checkpoint.digest
        refused(store, desk, partial(driver.resume, desk.agent, changed, approved=True), CheckpointEdited)
    assert driver.resume(desk.agent, checkpoint, approved=True).output == "done"


def test_what_waits_is_never_thrown_out(driver: Driver, store: Store, clock: Clock) -> None:
    """Safe default "Retention": what is pending is not evicted by later runs and does not lapse.

    Nothing is deleted, but for runs that have ended, in memory: there the last hundred are kept.
    """
    desk = Desk(driver, store, [REFUND, *["hello"] * 250, "done"])
    checkpoint = driver.invoke(desk.agent, "go", thread_id="t").checkpoint
    if isinstance(store, SQLiteStore):
        store._file.ready().execute("PRAGMA synchronous = OFF")  # many runs, and no power cut among them
    for number in range(250):
        clock.now += 86_400
        assert driver.invoke(desk.agent, "hi", thread_id=f"thread {number % 50}").output == "hello"

    assert len(store.branches()) == (101 if isinstance(store, MemoryStore) else 251)
    assert [item.approval for item in store.pending()] == [*checkpoint.pending]
    assert store.load(checkpoint.id) == checkpoint
    assert len(store.history(checkpoint.id)) == checkpoint.step + 1
    assert driver.resume(desk.agent, checkpoint.id, approved=True).output == "done"


def test_what_is_taken_away_on_request_is_never_what_waits(driver: Driver, store: Store, clock: Clock) -> None:
    """Safe default "Retention": pruning and clearing spare what a human is still to decide."""
    desk = Desk(driver, store, [REFUND, "hello", "done"])
    checkpoint = driver.invoke(desk.agent, "go", thread_id="t").checkpoint
    driver.invoke(desk.agent, "hi")
    clock.now += 86_400
    assert store.prune(older_than=0, keep_labeled=False) > 0
    assert store.clear() == 0
    assert [branch.run_id for branch in store.branches()] == [checkpoint.run_id]
    with pytest.raises(StillNeeded, match="suspended"):
        store.delete(checkpoint.run_id)
    assert driver.resume(desk.agent, checkpoint.id, approved=True).output == "done"


REVIVED: list[str] = []


class Bomb:
    """Would be noticed if anything revived it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (REVIVED.append, ("by pickle",))


TAGGED: tuple[Any, ...] = (
    {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "true"}},
    {"py/object": "os.system", "py/reduce": [{"py/type": "os.system"}]},
    {"$type": "System.Diagnostics.Process", "__type__": "Bomb"},
    {"__class__": "Bomb", "__reduce__": ["os.system", ["true"]], "__proto__": {"admin": True}},
    "!!python/object/apply:os.system [true]",
    "cos\nsystem\n(S'true'\ntR.",
)
"""What other codecs would have brought to life."""


def test_nothing_that_python_would_act_on_is_acted_on(driver: Driver, store: Store) -> None:
    """Safe default "Python hazards": dunder keys, pickles, class paths, NaN, repeated and non-string keys, depth, size."""
    deep: Any = 1
    for _ in range(70):
        deep = [deep]
    hostile: list[Any] = [float("nan"), float("-inf"), {1: "x"}, {None: "x"}, {("a",): 1}, deep, Bomb(), {"x": {1, 2}}]
    saved: list[Any] = []

    def save(data: Any) -> str:
        """Save anything."""
        saved.append(data)
        return "saved"

    gated = tool(requires_approval=True)(driver.function(save))
    desk = Desk(driver, store, [call("save", {"data": TAGGED[-2:]}), "done"], tools=[gated])
    # In what a run is begun with
    for value in hostile:
        act = partial(driver.invoke, desk.agent, "go", metadata={"value": value})
        refused(store, desk, act, ConfigurationError)
    # In what the model writes: an error result, and nobody is asked
    written = {
        '{"data": {"__class__": 1}}': "two underscores",
        '{"data": [{"a": {"__reduce__": []}}]}': "two underscores",
        '{"data": NaN}': "NaN is not JSON",
        '{"data": 1e999}': "out of range",
        '{"data": {"a": 1, "a": 2}}': "stands twice",
        '{"data": ' + "[" * 1000: "nested deeper",
        pickle.dumps(Bomb(), 0).decode(): "not JSON",
    }
    broken = Desk(driver, store, [[call("save", text) for text in written], "done"], tools=[gated])
    told = [message for message in driver.invoke(broken.agent, "go").messages if message.role == "tool"]
    for message, why in zip(told, written.values(), strict=True):
        assert (message.settlement, why in message.text) == ("invalid", True)
    # In a decision
    checkpoint = driver.invoke(desk.agent, {"tagged": TAGGED}, metadata={"tagged": TAGGED}).checkpoint
    (item,) = checkpoint.pending
    for data in ({"__class__": "Bomb"}, [{"a": {"__init__": {}}}]):
        act = partial(driver.resume, desk.agent, checkpoint, decisions={item.id: Approve(args={"data": data})})
        assert "two underscores" in str(refused(store, desk, act, InvalidDecision))
    for value in hostile:
        for make in (lambda value: Approve(args={"data": value}), lambda value: Respond(content=value)):
            with pytest.raises(ValueError, match=r"JSON|nested deeper|not a string|finite"):
                make(value)
    # In the text of a checkpoint
    text = checkpoint.model_dump_json()
    assert text.count('"step":') == 1
    for bad, why in (
        (text.replace('"step":', '"__class__":"Bomb","step":'), "__class__"),
        (text.replace('"step":', '"step":NaN,"x":'), "NaN is not JSON"),
        (text.replace('"step":', '"step":1,"step":'), "stands twice"),
        (text.replace('"step":', '"more":' + "[" * 70 + "]" * 70 + ',"step":'), "nested deeper"),
        (text + " " * MAX_BYTES, "over the limit"),
        (pickle.dumps(Bomb()), "not UTF-8"),
        (pickle.dumps(Bomb(), 0), "not JSON"),
        (pickle.dumps(checkpoint), "not UTF-8"),
    ):
        with pytest.raises(CheckpointError, match=why):
            Checkpoint.model_validate_json(bad)

    again = Checkpoint.model_validate_json(text)
    assert again.original_input == again.metadata == {"tagged": json.loads(json.dumps(TAGGED))}
    result = driver.resume(desk.agent, again, decisions={item.id: Respond(content={"tagged": TAGGED})})
    assert (result.output, saved, REVIVED) == ("done", [], [])
    assert json.loads(result.messages[2].text) == {"tagged": json.loads(json.dumps(TAGGED))}
