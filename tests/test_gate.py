"""Laws 1 and 2: nothing gated runs without a recorded approval of exactly it, on whatever path it comes to the executor."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import pytest
from drivers import Driver, rows
from pydantic import AfterValidator

import phronomy
from phronomy import (
    Agent,
    ApprovalHandlerError,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    Defer,
    InvalidDecision,
    MemoryStore,
    NotAuthorized,
    Reject,
    Respond,
    Result,
    Tool,
    ToolContext,
    UnknownPending,
    tool,
)
from phronomy.engine import run_tools
from phronomy.engine.drive import asteps, steps
from phronomy.engine.run import Runner
from phronomy.foundation.json_text import JsonText
from phronomy.records.calls import Call, CallResult, CallStarted, Decided, Outcome
from phronomy.records.decisions import Decision, ToolIdentity, call_digest
from phronomy.rules import authorization
from phronomy.runs.driving import claim
from phronomy.runs.finding import lookup
from phronomy.testing import ScriptedModel, call

Fault = BaseException | type[BaseException]


class Shop:
    """Makes tools and agents for one driver, and writes down each body that is entered: its name and its arguments."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.ran: list[tuple[str, dict[str, Any]]] = []
        self.store = MemoryStore()

    def tool(self, name: str, *faults: Fault, **options: Any) -> Tool:
        """A tool of an order and an amount, whose first calls raise `faults`."""
        left = list(faults)

        def body(order: int, amount: int = 10) -> str:
            """Do it."""
            self.ran.append((name, {"order": order, "amount": amount}))
            if left:
                raise left.pop(0)
            return f"{name} {order} is done"

        return tool(name=name, **options)(self.driver.function(body))

    def agent(self, replies: list[Any], *tools: Any, **options: Any) -> Agent[Any, str]:
        """An agent in a process of its own, over the shop's store."""
        model = ScriptedModel.by_turn(replies)
        return Agent(name="clerk", model=model, tools=tools, store=self.store, **options)


@pytest.fixture
def shop(driver: Driver) -> Shop:
    return Shop(driver)


ONE = [call("pay", {"order": 1}), "end"]


# Every path to a tool's body. Each is driven until the run has ended.


def ungated(shop: Shop) -> Result[str]:
    return shop.driver.invoke(shop.agent(ONE, shop.tool("pay")), "go")


def plain_function(shop: Shop) -> Result[str]:
    def pay(order: int, amount: int = 10) -> str:
        shop.ran.append(("pay", {"order": order, "amount": amount}))
        return "paid"

    return shop.driver.invoke(shop.agent(ONE, shop.driver.function(pay)), "go")


def tool_class(shop: Shop) -> Result[str]:
    class Pay(Tool):
        name = "pay"
        requires_approval = True

        def execute(self, order: int, amount: int = 10) -> str:
            shop.ran.append(("pay", {"order": order, "amount": amount}))
            return "paid"

    agent = shop.agent(ONE, Pay)
    return shop.driver.resume(agent, shop.driver.invoke(agent, "go").checkpoint, approved=True)


def predicate_says_no_need(shop: Shop) -> Result[str]:
    return shop.driver.invoke(shop.agent(ONE, shop.tool("pay", requires_approval=lambda args: False)), "go")


def handler_approves(shop: Shop) -> Result[str]:
    handler = shop.driver.function(lambda name, args: True)
    return shop.driver.invoke(
        shop.agent(ONE, shop.tool("pay", requires_approval=True), on_approval_required=handler), "go"
    )


def handler_edits(shop: Shop) -> Result[str]:
    handler = shop.driver.function(lambda name, args: Approve(args={**args, "amount": 4}))
    return shop.driver.invoke(
        shop.agent(ONE, shop.tool("pay", requires_approval=True), on_approval_required=handler), "go"
    )


def handler_defers(shop: Shop) -> Result[str]:
    handler = shop.driver.function(lambda name, args: Defer())
    agent = shop.agent(ONE, shop.tool("pay", requires_approval=True), on_approval_required=handler)
    return shop.driver.resume(agent, shop.driver.invoke(agent, "go").checkpoint, approved=True)


def resume_approves(shop: Shop) -> Result[str]:
    agent = shop.agent(ONE, shop.tool("pay", requires_approval=True))
    return shop.driver.resume(agent, shop.driver.invoke(agent, "go").checkpoint, approved=True)


def resume_by_id(shop: Shop) -> Result[str]:
    agent = shop.agent(ONE, shop.tool("pay", requires_approval=True))
    return shop.driver.resume(agent, shop.driver.invoke(agent, "go").checkpoint.id, approved=True)


def resume_from_text(shop: Shop) -> Result[str]:
    agent = shop.agent(ONE, shop.tool("pay", requires_approval=True))
    text = shop.driver.invoke(agent, "go").checkpoint.model_dump_json()
    return shop.driver.resume(agent, Checkpoint.model_validate_json(text), approved=True)


def resume_as_bearer(shop: Shop) -> Result[str]:
    text = shop.driver.invoke(
        shop.agent(ONE, shop.tool("pay", requires_approval=True)), "go"
    ).checkpoint.model_dump_json()
    shop.store = MemoryStore()  # another process, that has never seen the run
    agent = shop.agent(ONE, shop.tool("pay", requires_approval=True), trust="bearer")
    return shop.driver.resume(agent, Checkpoint.model_validate_json(text), approved=True)


def resume_edits(shop: Shop) -> Result[str]:
    agent = shop.agent(ONE, shop.tool("pay", requires_approval=True))
    checkpoint = shop.driver.invoke(agent, "go").checkpoint
    edit = {checkpoint.pending[0].id: Approve(args={"order": 2})}
    return shop.driver.resume(agent, checkpoint, decisions=edit)


def side_by_side(shop: Shop) -> Result[str]:
    replies = [[call("pay", {"order": 1}), call("look", {"order": 2}), call("pay", {"order": 3})], "end"]
    agent = shop.agent(replies, shop.tool("pay", requires_approval=True), shop.tool("look"))
    checkpoint = shop.driver.invoke(agent, "go").checkpoint
    return shop.driver.resume(agent, checkpoint, decisions={item.id: Approve() for item in checkpoint.pending})


def retried(shop: Shop) -> Result[str]:
    pay = shop.tool(
        "pay", OSError("down"), OSError("down"), requires_approval=True, retries=2, retry_on=[OSError], retry_wait=0
    )
    agent = shop.agent(ONE, pay)
    return shop.driver.resume(agent, shop.driver.invoke(agent, "go").checkpoint, approved=True)


def within_a_timeout(shop: Shop) -> Result[str]:
    agent = shop.agent(ONE, shop.tool("pay", requires_approval=True, timeout=60))
    return shop.driver.resume(agent, shop.driver.invoke(agent, "go").checkpoint, approved=True)


def ungated_fallback(shop: Shop) -> Result[str]:
    agent = shop.agent(ONE, shop.tool("pay", ValueError("no"), requires_approval=True, fallback=[shop.tool("wire")]))
    return shop.driver.resume(agent, shop.driver.invoke(agent, "go").checkpoint, approved=True)


def gated_fallback(shop: Shop) -> Result[str]:
    wire = shop.tool("wire", ValueError("no"), requires_approval=True)
    agent = shop.agent(
        ONE, shop.tool("pay", ValueError("no"), fallback=[wire, shop.tool("cash", requires_approval=True)])
    )
    result = shop.driver.resume(agent, shop.driver.invoke(agent, "go").checkpoint, approved=True)
    return shop.driver.resume(agent, result.checkpoint, approved=True)


def failed_and_tried_again_by_a_human(shop: Shop) -> Result[str]:
    agent = shop.agent(ONE, shop.tool("pay", ValueError("no"), on_failure="human"))
    return shop.driver.resume(agent, shop.driver.invoke(agent, "go").checkpoint, approved=True)


def recovered_idempotent(shop: Shop) -> Result[str]:
    agent = shop.agent(ONE, shop.tool("pay", KeyboardInterrupt(), requires_approval=True, idempotent=True))
    checkpoint = shop.driver.invoke(agent, "go").checkpoint
    with pytest.raises(KeyboardInterrupt):
        shop.driver.resume(agent, checkpoint, approved=True)
    return shop.driver.recover(agent, checkpoint)


def recovered_unknown(shop: Shop) -> Result[str]:
    agent = shop.agent(ONE, shop.tool("pay", KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        shop.driver.invoke(agent, "go", thread_id="t")
    result = shop.driver.recover(agent, shop.store.branches(thread_id="t")[0].id)
    return shop.driver.resume(agent, result.checkpoint, approved=True)


def forked(shop: Shop) -> Result[str]:
    agent = shop.agent(ONE, shop.tool("pay", requires_approval=True))
    fork = shop.driver.fork(agent, shop.driver.invoke(agent, "go").checkpoint)
    return shop.driver.resume(agent, fork, approved=True)


def forked_to_run_again(shop: Shop) -> Result[str]:
    agent = shop.agent(ONE, shop.tool("pay", requires_approval=True))
    checkpoint = shop.driver.invoke(agent, "go").checkpoint
    shop.driver.resume(agent, checkpoint, approved=True)
    return shop.driver.resume(agent, shop.driver.fork(agent, checkpoint, rerun=True), approved=True)


def step_by_step(shop: Shop) -> Result[str]:
    replies = [call("look", {"order": 1}), call("pay", {"order": 2}), "end"]
    agent = shop.agent(replies, shop.tool("look"), shop.tool("pay", requires_approval=True))
    result = shop.driver.step(agent, "go")
    for _ in range(12):
        if result.status == "running":
            result = shop.driver.step(agent, result.checkpoint)
        elif result.suspended:
            assert result.checkpoint.pending_tool_name == "pay"
            result = shop.driver.step(agent, result.checkpoint, approved=True)
    return result


def second_turn_of_a_thread(shop: Shop) -> Result[str]:
    agent = shop.agent(ONE, shop.tool("pay", requires_approval=True))
    for _ in range(2):
        result = shop.driver.resume(agent, shop.driver.invoke(agent, "go", thread_id="t").checkpoint, approved=True)
    return result


PATHS: tuple[Callable[[Shop], Result[str]], ...] = (
    ungated,
    plain_function,
    tool_class,
    predicate_says_no_need,
    handler_approves,
    handler_edits,
    handler_defers,
    resume_approves,
    resume_by_id,
    resume_from_text,
    resume_as_bearer,
    resume_edits,
    side_by_side,
    retried,
    within_a_timeout,
    ungated_fallback,
    gated_fallback,
    failed_and_tried_again_by_a_human,
    recovered_idempotent,
    recovered_unknown,
    forked,
    forked_to_run_again,
    step_by_step,
    second_turn_of_a_thread,
)

every_path = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)


class Gate:
    """Stands before the gate: counts who passes, and lets nobody pass after the first `open_for`."""

    def __init__(self, open_for: int | None = None) -> None:
        self.open_for = open_for
        self.passed: list[tuple[str, dict[str, Any]]] = []
        self._authorize = authorization.authorize

    def __call__(self, state: Checkpoint, call: Call, identity: ToolIdentity) -> None:
        if self.open_for is not None and len(self.passed) >= self.open_for:
            raise NotAuthorized("closed", run_id=state.run_id, call_id=call.call_id)
        self._authorize(state, call, identity)
        self.passed.append((identity.name, dict(call.args or {})))


@every_path
def test_no_body_is_entered_that_did_not_pass_the_gate(shop: Shop, path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 1: whatever runs was let through, by name and arguments, as often as it ran."""
    gate = Gate()
    monkeypatch.setattr(authorization, "authorize", gate)

    result = path(shop)

    assert (result.status, result.output) == ("completed", "end")
    assert shop.ran
    assert sorted(map(str, shop.ran)) == sorted(map(str, gate.passed))


@every_path
def test_wherever_the_gate_closes_no_further_body_is_entered(
    driver: Driver, path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 1: no path goes around the gate, not even one that was let through before."""
    counted = Gate()
    monkeypatch.setattr(authorization, "authorize", counted)
    path(Shop(driver))
    assert counted.passed
    for open_for in range(len(counted.passed)):
        gate, shop = Gate(open_for), Shop(driver)
        gate._authorize = counted._authorize
        monkeypatch.setattr(authorization, "authorize", gate)
        with pytest.raises(NotAuthorized):
            path(shop)
        assert len(shop.ran) == open_for
        assert sorted(map(str, shop.ran)) == sorted(map(str, gate.passed))


def test_only_the_executors_call_a_tool() -> None:
    """Law 1: one function per driver enters a tool's body. A new way in would have to be added here, and to `PATHS`."""
    callers = set()
    for file in Path(phronomy.__file__).parent.rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                names = {
                    f"{node.value.id}.{node.attr}"
                    for node in ast.walk(function)
                    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
                }
                if names & {"tool.call", "tool.acall", "tool.execute", "tool.function", "tool._body"}:
                    callers.add(f"{file.name}:{function.name}")
    assert callers == {"run_tools.py:execute", "run_tools.py:aexecute"}


# Tampered state


def approved_runner(shop: Shop, *, status: str = "started") -> Runner:
    """A runner whose two calls of `pay` were asked for, and the first of which was approved."""
    agent = shop.agent(
        [[call("pay", {"order": 1}), call("pay", {"order": 2})], "end"], shop.tool("pay", requires_approval=True)
    )
    checkpoint = shop.driver.invoke(agent, "go").checkpoint
    runner = lookup.open_head(shop.store, agent.spec, None, checkpoint.branch_id).runner
    [item, _] = checkpoint.pending
    decision = Decision(pending_id=item.id, digest=item.digest, kind="approve", at=item.requested_at)
    runner.record(Decided(decision=decision))
    assert runner.state.calls[0].status == "ready"
    if status == "started":
        runner.record(CallStarted(id="1.0", attempt=1, at=checkpoint.created_at))
    assert [each.status for each in runner.state.calls] == [status, "pending"]
    return runner


def execute(shop: Shop, runner: Runner, id: str) -> Outcome:
    if shop.driver.is_async:
        return asyncio.run(run_tools.aexecute(runner, id, asteps))
    return run_tools.execute(runner, id, steps)


def changed(state: Checkpoint, **fields: Any) -> Checkpoint:
    """The state with the first call changed, without a word to its validators."""
    first, *others = state.calls
    return state.model_copy(update={"calls": (first.model_copy(update=fields), *others)})


def decided(state: Checkpoint, **fields: Any) -> Checkpoint:
    """The state with the decision changed."""
    return state.model_copy(update={"decisions": (state.decisions[0].model_copy(update=fields),)})


def with_args(state: Checkpoint, *, honest_digest: bool) -> Checkpoint:
    text = JsonText('{"order":1,"amount":1000}')
    call = state.calls[0]
    assert call.tool is not None
    return changed(state, args=text, **({"digest": call_digest(call.tool, text)} if honest_digest else {}))


def another_identity(state: Checkpoint, **fields: Any) -> Checkpoint:
    """The first call as one that was judged for another tool, digests and decision in accord."""
    first = state.calls[0]
    assert first.tool is not None
    identity = first.tool.model_copy(update=fields)
    digest = call_digest(identity, first.json_text("args"))
    return decided(changed(state, tool=identity, digest=digest), digest=digest)


def result(kind: str) -> CallResult:
    return CallResult(kind=kind, content="x")  # type: ignore[arg-type]


FORGERIES: Mapping[str, Callable[[Checkpoint], Checkpoint]] = {
    "approved-without-a-decision": lambda state: state.model_copy(update={"decisions": ()}),
    "decision-on-another-pending": lambda state: decided(state, pending_id=state.calls[1].pending_id),
    "decision-on-a-pending-of-another-run": lambda state: decided(state, pending_id="pend_of_another_run"),
    "approved-names-another-pending": lambda state: changed(state, approved=state.calls[1].pending_id),
    "both-ids-name-another-pending": lambda state: changed(
        state, approved=state.calls[1].pending_id, pending_id=state.calls[1].pending_id
    ),
    "approval-of-a-sibling-taken-over": lambda state: decided(
        changed(state, approved=state.calls[1].pending_id, pending_id=state.calls[1].pending_id),
        pending_id=state.calls[1].pending_id,
        digest=state.calls[1].digest,
    ),
    "asked-again-since": lambda state: changed(state, pending_id="pend_new"),
    "pending-id-gone": lambda state: changed(state, pending_id=None),
    "approval-gone": lambda state: changed(state, approved=None),
    "approval-and-pending-id-gone": lambda state: changed(state, approved=None, pending_id=None),
    "decision-with-another-digest": lambda state: decided(state, digest=state.calls[1].digest),
    "decision-with-an-empty-digest": lambda state: decided(state, digest=""),
    "call-with-another-digest": lambda state: changed(state, digest=state.calls[1].digest),
    "call-and-decision-with-another-digest": lambda state: decided(changed(state, digest="0" * 64), digest="0" * 64),
    "other-args-under-the-old-digest": lambda state: with_args(state, honest_digest=False),
    "other-args-with-their-own-digest": lambda state: with_args(state, honest_digest=True),
    "decision-edited-to-other-args": lambda state: decided(state, args=JsonText('{"order":1,"amount":1000}')),
    "decision-is-a-rejection": lambda state: decided(state, kind="reject"),
    "decision-is-a-response": lambda state: decided(state, kind="respond"),
    "decision-is-a-cancellation": lambda state: decided(state, kind="cancel"),
    "decision-has-expired": lambda state: decided(state, kind="expire"),
    "decision-was-superseded": lambda state: decided(state, kind="supersede"),
    "status-new": lambda state: changed(state, status="new"),
    "status-asking": lambda state: changed(state, status="asking"),
    "status-pending": lambda state: changed(state, status="pending"),
    "status-nested": lambda state: changed(state, status="nested"),
    "status-settled": lambda state: changed(state, status="settled", result=result("rejected")),
    "judged-for-no-tool": lambda state: changed(state, tool=None),
    "judged-without-args": lambda state: changed(state, args=None),
    "judged-for-a-tool-of-another-name": lambda state: another_identity(state, name="look"),
    "judged-for-a-tool-of-another-source": lambda state: another_identity(state, source="elsewhere"),
    "judged-for-a-tool-of-another-agent": lambda state: another_identity(state, path="1.0"),
    "said-to-need-no-approval": lambda state: changed(
        another_identity(state, gate="never"), approved=None, pending_id=None
    ),
    "let-go-on-at-a-breakpoint": lambda state: changed(state, why="breakpoint"),
    "let-go-on-at-a-breakpoint-where-a-policy-asks": lambda state: changed(
        another_identity(state, gate="never"), why="breakpoint", asked_by=("front",)
    ),
    "said-to-be-let-by-its-predicate": lambda state: changed(
        another_identity(state, gate="predicate"), approved=None, pending_id=None
    ),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
@pytest.mark.parametrize("status", ["ready", "started"])
def test_a_forged_state_gets_nothing_past_the_gate(shop: Shop, forge: Any, status: str) -> None:
    """Laws 1 and 2: the record must hold an approval of this pending id and of exactly these arguments."""
    runner = approved_runner(shop, status=status)
    identity = runner.spec.tools["pay"].identity()
    genuine = runner.state
    authorization.authorize(genuine, genuine.calls[0], identity)
    before = rows(shop.store)

    runner.state = forge(genuine)

    with pytest.raises(NotAuthorized) as refused:
        authorization.authorize(runner.state, runner.state.calls[0], identity)
    assert (refused.value.run_id, refused.value.call_id) == (genuine.run_id, "call_1")
    with pytest.raises(NotAuthorized):
        execute(shop, runner, "1.0")
    assert shop.ran == []
    assert rows(shop.store) == before

    runner.state = genuine
    assert claim(runner)
    execute(shop, runner, "1.0")
    assert shop.ran == [("pay", {"order": 1, "amount": 10})]


def test_a_call_that_is_not_in_the_state_is_refused(shop: Shop) -> None:
    """Law 1: only the record says what may run; a call from elsewhere, however whole it is, does not."""
    runner = approved_runner(shop)
    identity = runner.spec.tools["pay"].identity()
    first, second = runner.state.calls
    strangers = [
        first.model_copy(update={"id": "9.9"}),
        first.model_copy(update={"attempt": 7}),
        first.model_copy(update={"name": "look"}),
        second,
        second.model_copy(update={"status": "ready"}),
        second.model_copy(update={"status": "ready", "approved": first.approved}),
        second.model_copy(update={"status": "ready", "approved": first.approved, "pending_id": first.pending_id}),
    ]
    for stranger in strangers:
        with pytest.raises(NotAuthorized):
            authorization.authorize(runner.state, stranger, identity)
    with pytest.raises(NotAuthorized):
        authorization.authorize(runner.state.model_copy(update={"calls": ()}), first, identity)
    with pytest.raises(NotAuthorized):
        execute(shop, runner, "1.1")
    assert shop.ran == []


@pytest.mark.parametrize("tightened", [True, lambda args: True], ids=["always", "predicate"])
def test_a_gate_that_was_tightened_meanwhile_stops_a_call_that_was_judged_before(
    driver: Driver, shop: Shop, tightened: Any
) -> None:
    """Law 1: a call that needed nobody when it was judged does not run as one that would need somebody now."""
    agent = shop.agent(ONE, shop.tool("pay"))
    result = driver.step(agent, "go")
    while [each.status for each in result.checkpoint.calls] != ["ready"]:
        result = driver.step(agent, result.checkpoint)

    stricter = shop.agent(ONE, shop.tool("pay", requires_approval=tightened))
    with pytest.raises(NotAuthorized):
        driver.resume(stricter, result.checkpoint)

    assert shop.ran == []


def test_a_tightened_gate_does_not_take_an_approval_back(driver: Driver, shop: Shop) -> None:
    """Law 1: what a human approved runs, whether a predicate or the tool as a whole asked for it."""
    result = driver.invoke(shop.agent(ONE, shop.tool("pay", requires_approval=lambda args: True)), "go")

    result = driver.resume(shop.agent(ONE, shop.tool("pay", requires_approval=True)), result.checkpoint, approved=True)

    assert (result.status, shop.ran) == ("completed", [("pay", {"order": 1, "amount": 10})])


def test_arguments_that_read_otherwise_by_the_time_the_gate_is_asked_are_not_valid(driver: Driver, shop: Shop) -> None:
    """Law 2: neither a gate nor a human is shown what a later reading would not give."""
    reads: list[str] = []
    armed: list[bool] = []

    def drifting(value: str) -> str:
        if not armed:
            return value
        reads.append(value)
        return value if len(reads) <= 2 else f"{value}!"

    asked: list[Mapping[str, Any]] = []
    ran: list[str] = []

    def body(to: Annotated[str, AfterValidator(drifting)]) -> str:
        """Send."""
        ran.append(to)
        return "sent"

    send = tool(name="send", requires_approval=lambda args: bool(asked.append(args)))(driver.function(body))
    armed.append(True)
    result = driver.invoke(shop.agent([call("send", {"to": "ann"}), "done"], send), "go")
    told = next(message for message in result.messages if message.role == "tool")
    assert (told.settlement, asked, ran) == ("invalid", [], [])
    assert "they are read as something else than before" in told.text


# What a predicate answers


class Lies:
    """Is neither true nor false."""

    def __bool__(self) -> bool:
        raise AssertionError("nobody may ask this")

    def __repr__(self) -> str:
        return "Lies()"


class Falsy:
    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "Falsy()"


async def nothing() -> bool:
    return False


class Awaitable:
    def __await__(self) -> Iterator[None]:
        raise AssertionError("nobody may wait for this")


def raising(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


NO_ANSWER: Mapping[str, Callable[[], Any]] = {
    "True": lambda: True,
    "None": lambda: None,
    "0": lambda: 0,
    "1": lambda: 1,
    "0.0": lambda: 0.0,
    "false": lambda: "false",
    "False-text": lambda: "False",
    "no": lambda: "no",
    "empty-text": lambda: "",
    "bytes": lambda: b"",
    "empty-list": list,
    "empty-dict": dict,
    "empty-tuple": tuple,
    "falsy-object": Falsy,
    "object-that-lies": Lies,
    "NotImplemented": lambda: NotImplemented,
    "Ellipsis": lambda: ...,
    "bool-itself": lambda: bool,
    "Approve": Approve,
    "Approve-itself": lambda: Approve,
    "Reject-itself": lambda: Reject,
    "Defer": Defer,
    "Respond": lambda: Respond(content=False),
    "coroutine": nothing,
    "awaitable": Awaitable,
    "function": lambda: lambda: False,
    "generator": lambda: (False for _ in ()),
    "exception-as-value": lambda: ValueError("no"),
    "raises": raising(ValueError("down")),
    "raises-StopIteration": raising(StopIteration(False)),
    "raises-AssertionError": raising(AssertionError()),
    "raises-RecursionError": raising(RecursionError()),
    "raises-NotAuthorized": raising(NotAuthorized("x", run_id="", call_id="")),
}


@pytest.mark.parametrize("answer", NO_ANSWER.values(), ids=NO_ANSWER)
@pytest.mark.parametrize("kind", ["plain", "own-kind"])
def test_a_predicate_that_does_not_answer_false_means_ask(driver: Driver, shop: Shop, answer: Any, kind: str) -> None:
    """Law 1: exactly False runs a call unasked; whatever else a predicate answers, or raises, a human is asked."""

    def predicate(args: Mapping[str, Any]) -> Any:
        return answer()

    gate = driver.function(predicate) if kind == "own-kind" else predicate
    agent = shop.agent(ONE, shop.tool("pay", requires_approval=gate))

    result = driver.invoke(agent, "go")

    assert (result.status, shop.ran) == ("suspended", [])
    assert [(item.tool_name, item.args) for item in result.checkpoint.pending] == [("pay", {"order": 1, "amount": 10})]
    assert driver.resume(agent, result.checkpoint, approved=True).status == "completed"
    assert shop.ran == [("pay", {"order": 1, "amount": 10})]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_predicate_that_is_interrupted_lets_nothing_run(driver: Driver, shop: Shop, error: Any) -> None:
    """Law 1: an interrupt is no answer; the next attempt asks the predicate again."""
    answers: list[Any] = [error(), True]

    def predicate(args: Mapping[str, Any]) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    agent = shop.agent(ONE, shop.tool("pay", requires_approval=predicate))
    with pytest.raises(error):
        driver.invoke(agent, "go", thread_id="t")
    assert (shop.ran, shop.store.pending()) == ([], [])

    result = driver.recover(agent, shop.store.branches(thread_id="t")[0].id)
    assert (result.status, shop.ran) == ("suspended", [])


def test_a_predicate_cannot_change_what_it_is_shown(driver: Driver, shop: Shop) -> None:
    """Law 2: what the predicate saw is what the human sees and the tool gets, whatever the predicate tried."""

    def predicate(args: Mapping[str, Any]) -> Any:
        try:
            args["amount"] = 1  # type: ignore[index]
        except TypeError:
            return True
        return True

    agent = shop.agent(ONE, shop.tool("pay", requires_approval=predicate))
    result = driver.invoke(agent, "go")
    assert result.checkpoint.pending_tool_args == {"order": 1, "amount": 10}
    driver.resume(agent, result.checkpoint, approved=True)
    assert shop.ran == [("pay", {"order": 1, "amount": 10})]


# What a handler answers

NO_DECISION: Mapping[str, Callable[[], Any]] = {
    name: answer for name, answer in NO_ANSWER.items() if name not in ("True", "None", "Approve", "Defer")
}


@pytest.mark.parametrize("answer", NO_DECISION.values(), ids=NO_DECISION)
@pytest.mark.parametrize("place", [0, 1])
def test_a_handler_that_gives_no_decision_lets_nothing_run(driver: Driver, shop: Shop, answer: Any, place: int) -> None:
    """Law 1: True and Approve run; what is no decision is an error, and not even a sibling that was approved runs."""
    asked: list[int] = []

    def handler(name: str, args: dict[str, Any]) -> Any:
        asked.append(args["order"])
        return answer() if args["order"] == place else True

    replies = [[call("pay", {"order": 0}), call("pay", {"order": 1})], "end"]
    pay = shop.tool("pay", requires_approval=True)

    with pytest.raises(ApprovalHandlerError) as caught:
        driver.invoke(shop.agent(replies, pay, on_approval_required=handler), "go")

    assert asked == [0, 1][: place + 1]
    assert shop.ran == []
    assert caught.value.checkpoint is not None

    careful = shop.agent(replies, pay, on_approval_required=lambda name, args: Reject(reason="no"))
    result = driver.resume(careful, caught.value.checkpoint)
    assert (result.status, shop.ran) == ("completed", [])
    assert [message.settlement for message in result.messages[2:4]] == ["rejected", "rejected"]


@pytest.mark.parametrize(
    ("answer", "settlement"), [(False, "rejected"), (None, "rejected"), (Reject(), "rejected"), (True, "completed")]
)
def test_what_a_handler_can_answer(driver: Driver, shop: Shop, answer: Any, settlement: str) -> None:
    """Law 1: exactly True approves; False and None reject."""
    pay = shop.tool("pay", requires_approval=True)

    result = driver.invoke(shop.agent(ONE, pay, on_approval_required=driver.function(lambda name, args: answer)), "go")

    assert (result.status, result.messages[2].settlement) == ("completed", settlement)
    assert len(shop.ran) == (settlement == "completed")


def test_a_call_that_a_handler_was_to_decide_waits_for_a_human_where_there_is_none(driver: Driver, shop: Shop) -> None:
    """Law 1: the handler failed, and the agent that goes on has none: a human is asked, and nothing runs before."""
    pay = shop.tool("pay", requires_approval=True)
    with pytest.raises(ApprovalHandlerError) as caught:
        driver.invoke(shop.agent(ONE, pay, on_approval_required=lambda name, args: 1), "go")
    assert caught.value.checkpoint is not None

    agent = shop.agent(ONE, pay)
    result = driver.resume(agent, caught.value.checkpoint)

    assert (result.status, shop.ran) == ("suspended", [])
    assert [item.tool_name for item in result.checkpoint.pending] == ["pay"]
    assert driver.resume(agent, result.checkpoint, approved=True).status == "completed"
    assert shop.ran == [("pay", {"order": 1, "amount": 10})]


def test_what_a_handler_does_to_its_arguments_changes_nothing(driver: Driver, shop: Shop) -> None:
    """Law 2: the handler gets a copy; the tool gets what was validated."""

    def handler(name: str, args: dict[str, Any]) -> bool:
        args["amount"] = 1000
        args.clear()
        return True

    agent = shop.agent(ONE, shop.tool("pay", requires_approval=True), on_approval_required=handler)
    assert driver.invoke(agent, "go").status == "completed"
    assert shop.ran == [("pay", {"order": 1, "amount": 10})]


# What a human answers


@pytest.mark.parametrize(
    "approved",
    [1, 0, "true", "True", "yes", "", b"yes", [True], {"approved": True}, 1.0, Lies(), Approve(), Approve, ...],
    ids=repr,
)
def test_approved_takes_exactly_true_or_false(driver: Driver, shop: Shop, approved: Any) -> None:
    """Law 1: what only looks like a yes is refused, and what was pending still is."""
    agent = shop.agent(ONE, shop.tool("pay", requires_approval=True))
    checkpoint = driver.invoke(agent, "go").checkpoint
    before = rows(shop.store)

    for method in (driver.resume, driver.step):
        with pytest.raises(InvalidDecision):
            method(agent, checkpoint, approved=approved)

    assert (rows(shop.store), shop.ran) == (before, [])


@pytest.mark.parametrize(
    "decision",
    [None, True, False, 1, "approve", {}, {"kind": "approve"}, Approve, Reject, Defer(), [Approve()], Lies(), ...],
    ids=repr,
)
def test_a_decision_is_an_approve_a_reject_or_a_respond(driver: Driver, shop: Shop, decision: Any) -> None:
    """Law 1: anything else is refused, with the good decisions that came with it."""
    agent = shop.agent(
        [[call("pay", {"order": 1}), call("pay", {"order": 2})], "end"], shop.tool("pay", requires_approval=True)
    )
    checkpoint = driver.invoke(agent, "go").checkpoint
    first, second = (item.id for item in checkpoint.pending)
    before = rows(shop.store)

    for decisions in ({first: decision}, {first: Approve(), second: decision}):
        for method in (driver.resume, driver.step):
            with pytest.raises(InvalidDecision):
                method(agent, checkpoint, decisions=decisions)

    assert (rows(shop.store), shop.ran) == (before, [])


# Edits, fallbacks and retries


def test_an_edit_is_validated_gated_digested_and_told(driver: Driver, shop: Shop) -> None:
    """Law 2: the edited arguments are the ones that are validated, digested, recorded, run, and shown to the model."""
    judged: list[dict[str, Any]] = []

    def predicate(args: Mapping[str, Any]) -> Any:
        judged.append(dict(args))
        return Reject(reason="too much") if args["amount"] > 100 else True

    agent = shop.agent(ONE, shop.tool("pay", requires_approval=predicate))
    checkpoint = driver.invoke(agent, "go").checkpoint
    [item] = checkpoint.pending
    before = rows(shop.store)
    for args in ({}, {"order": "x"}, {"order": 1, "to": "me"}, {"order": 1, "amount": 101}, {"order": None}):
        with pytest.raises(InvalidDecision) as refused:
            driver.resume(agent, checkpoint, decisions={item.id: Approve(args=args)})
        assert refused.value.pending_id == item.id
        assert (rows(shop.store), shop.ran) == (before, [])

    result = driver.resume(agent, checkpoint, decisions={item.id: Approve(args={"amount": 7, "order": 5})})

    assert shop.ran == [("pay", {"order": 5, "amount": 7})]
    assert judged == [{"order": 1, "amount": 10}, {"order": 1, "amount": 101}, {"order": 5, "amount": 7}]
    [decision] = result.checkpoint.decisions
    assert (decision.pending_id, decision.digest, decision.kind) == (item.id, item.digest, "approve")
    assert decision.args == {"order": 5, "amount": 7}
    assert '{"order":5,"amount":7}' in result.messages[2].text
    assert result.messages[2].text.endswith("pay 5 is done")


def test_request_decision_and_call_have_one_digest(driver: Driver, shop: Shop) -> None:
    """Law 2: over the tool's identity and the text of the arguments; whatever differs in one of them differs in it."""
    replies = [
        [call("pay", {"order": 1}), call("pay", '{ "amount": 10, "order": 1 }'), call("wire", {"order": 1})],
        "end",
    ]
    agent = shop.agent(replies, shop.tool("pay", requires_approval=True), shop.tool("wire", requires_approval=True))

    checkpoint = driver.invoke(agent, "go").checkpoint

    first, same, other = checkpoint.pending
    assert first.digest == same.digest == call_digest(first.tool, first.json_text("args"))
    assert first.digest != other.digest
    assert first.id != same.id
    assert [each.digest for each in checkpoint.calls] == [item.digest for item in checkpoint.pending]
    result = driver.resume(agent, checkpoint, decisions={item.id: Approve() for item in checkpoint.pending})
    assert [each.digest for each in result.checkpoint.decisions] == [item.digest for item in checkpoint.pending]


def test_the_approval_of_a_tool_never_covers_its_fallback(driver: Driver, shop: Shop) -> None:
    """Law 1: each tool of a chain is asked for itself, under a new id, and a decision on one says nothing of the next."""
    cash = shop.tool("cash", requires_approval=lambda args: args["order"] == 1)
    wire = shop.tool("wire", ValueError("no"), requires_approval=True)
    agent = shop.agent(ONE, shop.tool("pay", ValueError("no"), requires_approval=True, fallback=[wire, cash]))

    first = driver.invoke(agent, "go").checkpoint
    second = driver.resume(agent, first, approved=True).checkpoint
    assert (shop.ran, second.pending_tool_name) == ([("pay", {"order": 1, "amount": 10})], "wire")
    with pytest.raises(UnknownPending):
        driver.resume(agent, second, decisions={first.pending[0].id: Approve()})
    with pytest.raises(CheckpointAlreadyResumed):
        driver.resume(agent, first, approved=True)
    third = driver.resume(agent, second, approved=True).checkpoint
    assert ([name for name, _ in shop.ran], third.pending_tool_name) == (["pay", "wire"], "cash")
    result = driver.resume(agent, third, approved=False, reason="enough")

    assert [name for name, _ in shop.ran] == ["pay", "wire"]
    assert result.messages[2].settlement == "rejected"
    ids = [checkpoint.pending[0].id for checkpoint in (first, second, third)]
    digests = [checkpoint.pending[0].digest for checkpoint in (first, second, third)]
    assert len(set(ids)) == len(set(digests)) == 3
    outcomes = [json.loads(entry.body) for entry in shop.store.lineage(branch_id=first.branch_id).entries]
    failures = [(each["next"], each["fallback"]) for each in outcomes if each.get("type") == "failed"]
    assert failures == [("fallback", "wire"), ("fallback", "cash")], "the record says what came next"


def test_a_fallback_cannot_be_called_by_its_name(driver: Driver, shop: Shop) -> None:
    """Law 1: what is not a tool of the agent is no tool to the model, wherever else the agent knows it from."""
    pay = shop.tool("pay", requires_approval=True, fallback=[shop.tool("wire")])

    result = driver.invoke(shop.agent([call("wire", {"order": 1}), "end"], pay), "go")

    assert (result.status, result.messages[2].settlement, shop.ran) == ("completed", "invalid", [])


def test_the_body_hears_under_which_approval_it_runs(driver: Driver, shop: Shop) -> None:
    """Law 1: the pending id in the context is that of the decision in the record; None where nobody was asked."""
    heard: list[str | None] = []

    def body(order: int, ctx: ToolContext[Any]) -> str:
        """Do it."""
        heard.append(ctx.pending_id)
        return "done"

    gated = tool(name="pay", requires_approval=True)(driver.function(body))
    free = tool(name="look")(driver.function(body))
    agent = shop.agent([[call("pay", {"order": 1}), call("look", {"order": 1})], "end"], gated, free)

    checkpoint = driver.invoke(agent, "go").checkpoint
    result = driver.resume(agent, checkpoint, approved=True)

    assert heard == [None, checkpoint.pending[0].id]
    assert result.checkpoint.decisions[0].pending_id == heard[1]
