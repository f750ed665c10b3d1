"""What went wrong in other systems, 25 to 50: what ran twice, what was lost, and who was first."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE, Driver, calls_ended, outline
from pydantic import BaseModel
from test_failures_authority import Desk, posted, unchanged

from phronomy import (
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    Defer,
    LeaseLost,
    ModelError,
    ModelRequest,
    NothingDecided,
    Reject,
    Respond,
    RunBusy,
    SQLiteStore,
    ThreadBusy,
    ToolContext,
    UnknownPending,
    tool,
)
from phronomy.records.messages import Message
from phronomy.stores.rows import Append, Branch, Claim
from phronomy.testing import ScriptedModel, call, say

HOUR = 3600.0


@pytest.fixture
def desk(driver: Driver, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(driver, tmp_path)
    yield desk
    desk.close()


def pays(*orders: int) -> list[Any]:
    """The calls of one reply."""
    return [call("pay", {"order": order}) for order in orders]


def pay_once(request: ModelRequest) -> Any:
    """A provider that asks for the same at each turn, under the same id, and ends when it was answered."""
    return "end" if request.messages[-1].role == "tool" else call("pay", {"order": 1}, id="x")


# One decision, once


@pytest.mark.parametrize(
    "first", [Approve(), Approve(args={"order": 2}), Reject(), Reject(then="end"), Respond(content="x")]
)
def test_a_run_that_has_ended_is_not_decided_again(desk: Desk, first: Any) -> None:
    """The second decision is a typed error; what was rejected cannot be approved later. field failure 25"""
    desk.script([*pays(1), "end"], desk.tool("pay"))
    checkpoint = desk.invoke().checkpoint
    [item] = checkpoint.pending
    ended = desk.resume(checkpoint, decisions={item.id: first}, by="ann")
    done = list(desk.done)
    for given in (checkpoint, posted(checkpoint), checkpoint.id):
        for answer in (Approve(), Approve(args={"order": 3}), Reject(), Respond(content="y")):
            again = partial(desk.resume, given, decisions={item.id: answer}, by="bob")
            error = unchanged(desk, again, CheckpointAlreadyResumed)
            assert (error.checkpoint_id, error.pending_id, error.progress) == (checkpoint.id, item.id, "ended")
            assert (error.decision.by.id, error.decision.pending_id) == ("ann", item.id)
            assert error.result.checkpoint == ended.checkpoint
    unchanged(desk, partial(desk.resume, ended.checkpoint), CheckpointAlreadyResumed)
    unchanged(desk, partial(desk.cancel, checkpoint), CheckpointAlreadyResumed)
    assert desk.recover(checkpoint).checkpoint == ended.checkpoint
    assert desk.done == done


def test_an_interrupt_does_not_run_its_siblings_again(desk: Desk) -> None:
    """What settled is read from the journal, however often the run stops beside it. field failure 26"""
    look = desk.tool("look", requires_approval=False)
    calls = [call("look", {"order": 1}), *pays(2), call("look", {"order": 3}), *pays(4, 5), call("look", {"order": 6})]
    desk.script([calls, "end"], desk.tool("pay"), look)
    result = desk.invoke()
    assert sorted(desk.done) == ["look 1 10", "look 3 10", "look 6 10"]
    for order in (2, 4, 5):
        assert result.checkpoint.pending_tool_args == {"order": order, "amount": 10}
        result = desk.approve(posted(result.checkpoint))
        assert desk.done[3:] == [f"pay {each} 10" for each in (2, 4, 5) if each <= order]
    assert (result.status, len(desk.done), len(desk.model.requests)) == ("completed", 6, 2)
    told = [message.text for message in result.messages if message.role == "tool"]
    names = ("look", "pay", "look", "pay", "pay", "look")
    assert told == [f"{name} {n} is done" for n, name in enumerate(names, 1)]


def test_ten_equal_calls_have_ten_ids(desk: Desk) -> None:
    """Each occurrence is answered apart, though all that the provider sent is equal. field failure 27"""
    desk.script([[call("pay", {"order": 1}, id="x")] * 10, "end"], desk.tool("pay"))
    checkpoint = desk.invoke().checkpoint
    ids = [item.id for item in checkpoint.pending]
    assert len(set(ids)) == 10
    assert len({item.digest for item in checkpoint.pending}) == 1

    answers = {
        pending_id: Approve() if n in (3, 7) else Respond(content=f"answer {n}") for n, pending_id in enumerate(ids)
    }
    result = desk.resume(checkpoint, decisions=answers)

    assert (result.status, desk.done) == ("completed", ["pay 1 10"] * 2)
    told = [message.text for message in result.messages if message.role == "tool"]
    assert told == ["pay 1 is done" if n in (3, 7) else f"answer {n}" for n in range(10)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("at_once", [True, False], ids=["at-once", "one-by-one"])
def test_decisions_go_by_id_in_whatever_order(desk: Desk, order: tuple[int, ...], at_once: bool) -> None:
    """The order of answers means nothing; the id says which request is answered. field failure 28"""
    desk.script([pays(0, 1, 2), "end"], desk.tool("pay"))
    checkpoint = desk.invoke().checkpoint
    answers: list[Any] = [Approve(), Reject(reason="no"), Respond(content="by hand")]
    decisions = {checkpoint.pending[place].id: answers[place] for place in order}

    if at_once:
        result = desk.resume(checkpoint, decisions=decisions)
    else:
        for pending_id, answer in decisions.items():
            result = desk.resume(checkpoint, decisions={pending_id: answer})

    assert (result.status, desk.done) == ("completed", ["pay 0 10"])
    assert [message.settlement for message in result.messages[2:5]] == ["completed", "rejected", "responded"]
    paid, rejected, by_hand = (message.text for message in result.messages[2:5])
    assert (paid, by_hand) == ("pay 0 is done", "by hand")
    assert "was not run" in rejected
    assert rejected.endswith("Reason: no")


ANSWERS: tuple[Any, ...] = (Reject(then="end"), Approve(), Reject(), Respond(content="x"), Reject(then="block"))


@pytest.mark.parametrize("by", ["resume", "step", "handler"])
@pytest.mark.parametrize("other", ANSWERS, ids=repr)
@pytest.mark.parametrize("first", [True, False], ids=["end-first", "end-last"])
def test_decisions_taken_together_count_together(desk: Desk, by: str, other: Any, first: bool) -> None:
    """One of a set ends the run: the others are recorded all the same, in whatever order they came. field failure 28"""
    ending = Reject(reason="stop", then="end")
    answers = {1: ending, 2: other} if first else {1: other, 2: ending}
    desk.script([pays(1, 2), "end"], desk.tool("pay"))
    if by == "handler":
        if isinstance(other, Respond):
            return
        desk.options["on_approval_required"] = desk.driver.function(lambda name, args: answers[args["order"]])
        result = desk.invoke()
    else:
        checkpoint = desk.invoke().checkpoint
        decisions = {item.id: answers[item.args["order"]] for item in checkpoint.pending}
        result = (
            desk.resume(checkpoint, decisions=decisions)
            if by == "resume"
            else desk.step(checkpoint, decisions=decisions)
        )
        while result.status == "running":
            result = desk.step(result.checkpoint)

    assert (result.status, desk.done, desk.pending(), len(desk.model.requests)) == ("rejected", [], [], 1)
    assert len(result.checkpoint.decisions) == 2
    settled = [message.settlement for message in result.messages if message.role == "tool"]
    theirs = {"Approve": "cancelled", "Respond": "responded", "Reject": "rejected"}[type(other).__name__]
    assert settled == (["rejected", theirs] if first else [theirs, "rejected"])


@pytest.mark.parametrize("first", [True, False], ids=["end-first", "end-last"])
def test_a_handler_may_end_the_run_and_leave_the_rest_open(desk: Desk, first: bool) -> None:
    """What it deferred ends with the run, in whatever order it was asked. field failure 28"""
    ending = Reject(then="end")
    answers: dict[int, Any] = {1: ending, 2: Defer()} if first else {1: Defer(), 2: ending}
    handler = desk.driver.function(lambda name, args: answers[args["order"]])
    desk.script([pays(1, 2), "end"], desk.tool("pay"), on_approval_required=handler)

    result = desk.invoke()

    assert (result.status, desk.done, desk.pending()) == ("rejected", [], [])
    settled = [message.settlement for message in result.messages if message.role == "tool"]
    assert settled == (["rejected", "cancelled"] if first else ["cancelled", "rejected"])


def test_decisions_handed_to_a_busy_worker_count_together(desk: Desk) -> None:
    """Decided while the worker runs another call: it carries the whole set out, and the log stays readable. field failure 28"""

    def slow(order: int) -> str:
        """Do it."""
        pending = {item.args["order"]: item.id for item in checkpoint.pending}
        decisions = {pending[2]: Reject(then="end"), pending[3]: Respond(content="x"), pending[4]: Approve()}
        handed = desk.resume(checkpoint, decisions=decisions)
        desk.done.append(handed.status)
        desk.store().head(checkpoint.branch_id)
        unchanged(desk, partial(desk.resume, checkpoint, decisions=decisions), CheckpointAlreadyResumed)
        return "slow is done"

    slowly = tool(requires_approval=True, timeout=60)(slow)
    desk.script([[call("slow", {"order": 1}), *pays(2, 3, 4)], "end"], desk.tool("pay"), slowly)
    checkpoint = desk.invoke().checkpoint

    result = desk.decide(checkpoint, 0, Approve())

    assert (result.status, desk.done, desk.pending()) == ("rejected", ["running"], [])
    settled = [message.settlement for message in result.messages if message.role == "tool"]
    assert settled == ["completed", "rejected", "responded", "cancelled"]
    assert len(result.checkpoint.decisions) == 4


def test_a_loop_of_interrupts_replays_nothing(desk: Desk) -> None:
    """Round by round, each in another process: a body runs once, whatever rounds follow. field failure 29"""
    look = desk.tool("look", requires_approval=False)
    rounds = [[call("look", {"order": n}), *pays(n)] for n in range(8)]
    desk.script([*rounds, "end"], desk.tool("pay"), look)
    result = desk.invoke()
    for n in range(8):
        assert (result.status, desk.done[-1]) == ("suspended", f"look {n} 10")
        result = desk.approve(posted(result.checkpoint))
    assert (result.status, result.output) == ("completed", "end")
    assert desk.done == [f"{name} {n} 10" for n in range(8) for name in ("look", "pay")]
    assert len(desk.model.requests) == 9


def test_a_run_goes_on_only_when_it_can(desk: Desk) -> None:
    """With one of two decided, that one runs and nothing else happens: no model call, no second stop. field failure 30"""
    desk.script([pays(1, 2), "end"], desk.tool("pay"))
    first = desk.invoke().checkpoint

    result = desk.decide(first, 1, Approve())

    assert (result.status, desk.done, len(desk.model.requests)) == ("suspended", ["pay 2 10"], 1)
    assert [item.id for item in result.checkpoint.pending] == [first.pending[0].id] == desk.pending()
    assert result.messages == first.messages
    result = desk.decide(first, 0, Approve())
    assert (result.status, desk.done, len(desk.model.requests)) == ("completed", ["pay 2 10", "pay 1 10"], 2)


def test_a_fork_knows_nothing_of_what_was_decided_later(desk: Desk) -> None:
    """Time travel strips decisions made after the point, and leaves the other branch as it is. field failure 32"""
    desk.script([pays(1, 2), "end", "end again"], desk.tool("pay"))
    first = desk.invoke().checkpoint
    middle = desk.decide(first, 0, Approve()).checkpoint
    ended = desk.decide(first, 1, Reject(reason="no"))
    assert (ended.status, desk.done) == ("completed", ["pay 1 10"])

    early, late = desk.fork(first, label="what if"), desk.fork(middle)

    assert [item.args["order"] for item in early.pending] == [1, 2]
    assert [item.args["order"] for item in late.pending] == [2]
    assert (early.decisions, late.decisions) == ((), middle.decisions)
    ids = {item.id for item in (*first.pending, *early.pending, *late.pending)}
    assert len(ids) == 5
    for fork in (early, late):
        for item in first.pending:
            unchanged(desk, partial(desk.resume, fork, decisions={item.id: Approve()}), UnknownPending)
    result = desk.resume(early, decisions={early.pending[0].id: Reject(), early.pending[1].id: Approve()})
    assert (result.status, desk.done) == ("completed", ["pay 1 10", "pay 2 10"])
    assert [message.settlement for message in result.messages[2:4]] == ["rejected", "completed"]
    assert desk.recover(first).checkpoint == ended.checkpoint
    assert desk.pending() == [late.pending[0].id]
    assert desk.store().load(first.id).status == "suspended"


@pytest.mark.parametrize("rerun", [False, True], ids=["reuse", "rerun"])
def test_a_fork_has_no_approval_that_was_given_in_another_branch(desk: Desk, rerun: bool) -> None:
    """Forked between a decision and what it allowed, the call is asked for anew, under another id. field failure 32"""
    desk.script([pays(1, 2), "end", "end"], desk.tool("pay"))
    first = desk.invoke().checkpoint
    ended = desk.resume(first, decisions={item.id: Approve() for item in first.pending}).checkpoint
    assert sorted(desk.done) == ["pay 1 10", "pay 2 10"]
    between = [each for each in desk.store().history(ended.id) if each.calls and each.decisions]
    assert [[each.status for each in point.calls] for point in between] == [["ready", "ready"]]

    fork = desk.fork(between[0], rerun=rerun)

    assert fork.status == "suspended"
    assert [item.args["order"] for item in fork.pending] == [1, 2]
    assert not {item.id for item in fork.pending} & {item.id for item in first.pending}
    unchanged(desk, partial(desk.resume, fork), NothingDecided)
    unchanged(desk, partial(desk.step, fork), NothingDecided)
    assert desk.recover(fork).status == "suspended"
    for item in first.pending:
        unchanged(desk, partial(desk.resume, fork, decisions={item.id: Approve()}), UnknownPending)
    assert len(desk.done) == 2
    result = desk.resume(fork, decisions={fork.pending[0].id: Approve(), fork.pending[1].id: Reject()})
    assert result.status == "completed"
    assert desk.done[2:] == ["pay 1 10"] * rerun


def test_a_fork_reads_what_the_other_branch_has_settled(desk: Desk) -> None:
    """The same call approved on a fork gives the result it had, and is not run again unless asked to. field failure 29"""
    desk.script(pay_once, desk.tool("pay"))
    first = desk.invoke().checkpoint
    desk.approve(first)
    assert desk.done == ["pay 1 10"]

    same = desk.fork(first)
    assert same.pending[0].id != first.pending[0].id
    result = desk.approve(same)
    assert (result.status, result.messages[2].text, desk.done) == ("completed", "pay 1 is done", ["pay 1 10"])

    edited = desk.decide(desk.fork(first), 0, Approve(args={"order": 1, "amount": 3}))
    assert (edited.status, desk.done) == ("completed", ["pay 1 10", "pay 1 3"])

    again = desk.fork(first, rerun=True)
    assert desk.done == ["pay 1 10", "pay 1 3"]
    assert desk.approve(again).status == "completed"
    assert desk.done == ["pay 1 10", "pay 1 3", "pay 1 10"]


def test_a_call_that_failed_runs_again_in_a_fork(desk: Desk) -> None:
    """Only a result that a call has come to is read from the other branch. An error may be gone. field failure 29"""
    desk.script(pay_once, desk.tool("pay", ConnectionError("the bank is closed")))
    first = desk.invoke().checkpoint
    failed = desk.approve(first)
    assert (failed.messages[2].settlement, desk.done) == ("failed", ["pay 1 10"])

    again = desk.approve(desk.fork(first))

    assert (again.messages[2].text, desk.done) == ("pay 1 is done", ["pay 1 10", "pay 1 10"])


def test_another_answer_to_the_same_request_needs_a_fork(desk: Desk) -> None:
    """Answering again is refused, with the answer that counts; on a fork it is another request. field failure 33"""
    desk.script(pay_once, desk.tool("pay"))
    checkpoint = desk.invoke().checkpoint
    desk.decide(checkpoint, 0, Respond(content="first"))

    error = unchanged(desk, partial(desk.decide, checkpoint, 0, Respond(content="second")), CheckpointAlreadyResumed)

    assert error.decision.content == "first"
    fork = desk.fork(checkpoint)
    result = desk.decide(fork, 0, Respond(content="second"))
    assert (error.result.messages[2].text, result.messages[2].text) == ("first", "second")


def test_an_approved_tool_does_not_run_on_a_later_turn(desk: Desk) -> None:
    """Once settled, request and answer leave what can be acted on, for all later turns of the thread. field failure 34"""
    desk.script([*pays(1), "paid", "hello", call("look", {"order": 2}), "seen"], desk.tool("pay"))
    desk.tools += (desk.tool("look", requires_approval=False),)
    first = desk.invoke(thread_id="t").checkpoint
    paid = desk.approve(first)
    assert (paid.checkpoint.calls, paid.checkpoint.pending, desk.pending()) == ((), (), [])

    for text, output in (("hi", "hello"), ("look", "seen")):
        result = desk.invoke(text, thread_id="t")
        assert (result.status, result.output, result.checkpoint.decisions) == ("completed", output, ())
        unchanged(desk, partial(desk.approve, first), CheckpointAlreadyResumed)

    assert desk.done == ["pay 1 10", "look 2 10"]
    assert len(result.messages) == 4 + 2 + 4


def test_a_result_is_recorded_before_the_model_is_asked_again(desk: Desk) -> None:
    """The tool ran, then the model failed: going on returns the result, and a new click is told so. field failure 35"""
    stored: list[str] = []

    def down(request: Any) -> Any:
        [branch] = desk.store().branches()
        stored.append(desk.store().head(branch.id)[1].messages[-1].text)
        raise ModelError("the provider is down", status_code=503)

    desk.script([*pays(1), down, down, down, "end"], desk.tool("pay"))
    checkpoint = desk.invoke().checkpoint
    with pytest.raises(ModelError) as failed:
        desk.approve(checkpoint)
    assert failed.value.run_id == checkpoint.run_id

    error = unchanged(desk, partial(desk.approve, checkpoint), CheckpointAlreadyResumed)
    assert (error.progress, error.decision.kind) == ("failed", "approve")
    last = failed.value.checkpoint
    assert last is not None
    assert last.messages[-1].text == "pay 1 is done"
    for go_on in (desk.resume, desk.recover):
        with pytest.raises(ModelError):
            go_on(last)
    result = desk.resume(posted(last))

    assert (result.status, result.output, desk.done) == ("completed", "end", ["pay 1 10"])
    assert stored == ["pay 1 is done"] * 3


# Power cuts


class PowerCut(BaseException):
    """The process is gone."""


class Mains(SQLiteStore):
    """A store whose power is cut at the write that `strikes`, before or after it; nothing is written from then on."""

    strikes: Callable[[Append], bool]
    after: bool = False
    off: bool = False

    def append(self, change: Append) -> Branch:
        if self.off:
            raise PowerCut
        struck = type(self).strikes(change)
        if struck and not self.after:
            type(self).off = True
            raise PowerCut
        branch = super().append(change)
        if struck:
            type(self).off = True
            raise PowerCut
        return branch

    def release(self, claim: Claim, status: Any = None) -> None:
        if not self.off:
            super().release(claim, status)

    def renew(self, claim: Claim) -> Branch:
        if self.off:  # the thread that keeps leases ends with its process: here it is told to
            raise LeaseLost("the power is off", run_id=claim.run_id, branch_id=claim.branch_id)
        return super().renew(claim)


def cut(desk: Desk, strikes: Callable[[Append], bool], *, after: bool = False) -> type[Mains]:
    """Have the desk's next processes on a mains that is cut at the first write that `strikes`."""
    mains: type[Mains] = type("CutMains", (Mains,), {"strikes": staticmethod(strikes), "after": after})
    desk.opens = mains
    return mains


def counted(at: int) -> Callable[[Append], bool]:
    """Strikes at write number `at`."""
    numbers = itertools.count()
    return lambda change: next(numbers) == at


def restored(desk: Desk) -> None:
    """The power is back, so much later that every lease has expired."""
    calls_ended()
    desk.opens, desk.later = SQLiteStore, desk.later + HOUR


def keyed(desk: Desk, name: str, **options: Any) -> Any:
    """A tool that hands its idempotency key to the service behind it, which does each thing once."""

    def body(order: int, ctx: ToolContext[Any]) -> str:
        """Do it."""
        desk.done.append(f"{name} {order}")
        if (key := f"{name} {order} {ctx.idempotency_key}") not in desk.keys:
            desk.keys.append(key)
        return f"{name} {order} is done"

    return tool(name=name, **options)(desk.driver.function(body))


def careful(desk: Desk, result: Any) -> Any:
    """Go on as a careful human does: approve, and where nobody knows, look whether it was done."""
    while result.suspended:
        answers: dict[str, Any] = {}
        for item in result.checkpoint.pending:
            line = f"{item.tool_name} {item.args['order']}"
            unknown = item.why == "outcome_unknown" and line in desk.done
            answers[item.id] = Respond(content=f"{line} is done") if unknown else Approve()
        result = desk.resume(result.checkpoint, decisions=answers)
    return result


@pytest.mark.few(5)
@pytest.mark.parametrize("after", [False, True], ids=["before-the-write", "after-it"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
def test_cut_off_at_each_write_a_run_does_everything_once(desk: Desk, after: bool, idempotent: bool) -> None:
    """Per-call journal and key: whatever the power cut, no effect is doubled and none is lost. field failure 36

    Intended, settled and unknown are three states, and unknown is put to a human. field failure 50
    """
    replies = [
        [call("look", {"order": 1}), *pays(2), call("look", {"order": 3})],
        [*pays(4), call("look", {"order": 5})],
        "end",
    ]
    path, cuts, ends = desk.path, 0, set()
    desk.tools = (
        keyed(desk, "pay", requires_approval=True, idempotent=idempotent),
        keyed(desk, "look", idempotent=idempotent),
    )
    for at in itertools.count():
        desk.path = path.with_name(f"{at}.db")
        desk.done, desk.keys, desk.model = [], [], ScriptedModel.by_turn(replies)
        mains = cut(desk, counted(at), after=after)
        try:
            result = careful(desk, desk.invoke(thread_id="t"))
        except PowerCut:
            cuts += 1
            restored(desk)
            [branch] = desk.store().branches(thread_id="t")
            result = careful(desk, desk.recover(branch.id))
        assert result.status == "completed"
        assert sorted(set(desk.done)) == ["look 1", "look 3", "look 5", "pay 2", "pay 4"]
        assert len(desk.keys) == 5
        if not idempotent:
            assert len(desk.done) == 5
        ends.add("\n".join(line.split(": ", 1)[1] for line in outline(result)))
        if not mains.off:
            break
    assert cuts > 8
    assert len(ends) == 1


def test_a_started_call_of_a_lost_worker_is_never_blindly_run_again(desk: Desk) -> None:
    """The intent was stored and the result was not: nobody runs it before a human has said so. field failure 50"""
    desk.script([*pays(1), "end"], keyed(desk, "pay", requires_approval=True))
    checkpoint = desk.invoke().checkpoint
    cut(desk, lambda change: bool(desk.done))
    with pytest.raises(PowerCut):
        desk.approve(checkpoint)
    assert desk.done == ["pay 1"]

    desk.opens = SQLiteStore
    unchanged(desk, partial(desk.recover, checkpoint), RunBusy)
    restored(desk)
    unchanged(desk, partial(desk.approve, checkpoint), CheckpointAlreadyResumed)
    result = desk.recover(checkpoint)
    assert (result.status, desk.done) == ("suspended", ["pay 1"])
    [item] = result.checkpoint.pending
    assert (item.why, item.tool_name, item.args) == ("outcome_unknown", "pay", {"order": 1})
    assert item.id != checkpoint.pending[0].id
    for _ in range(3):
        again = desk.recover(checkpoint)
        assert (again.checkpoint.pending, desk.done, desk.pending()) == ((item,), ["pay 1"], [item.id])
    result = desk.approve(result.checkpoint)
    assert (result.status, desk.done, len(desk.keys)) == ("completed", ["pay 1", "pay 1"], 1)


@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
@pytest.mark.parametrize("gated", [False, True], ids=["free", "gated"])
def test_a_fork_does_not_blindly_run_what_was_begun_in_another_branch(
    desk: Desk, idempotent: bool, gated: bool
) -> None:
    """Its outcome there is unknown: here too a human is asked, unless it may be repeated under its key. field failure 50"""
    desk.script([], keyed(desk, "pay", requires_approval=gated, idempotent=idempotent))
    desk.model = ScriptedModel.by_turn([*pays(1), "end"])
    cut(desk, lambda change: bool(desk.done))
    with pytest.raises(PowerCut):
        careful(desk, desk.invoke(thread_id="t"))
    assert desk.done == ["pay 1"]
    restored(desk)
    [branch] = desk.store().branches(thread_id="t")

    for point in desk.store().history(branch.head or ""):
        fork = desk.fork(point)
        result = desk.approve(fork) if fork.pending else desk.resume(fork)
        while result.suspended and result.checkpoint.pending[0].why == "approval":
            result = desk.approve(result.checkpoint)
        if idempotent:
            assert (result.status, len(desk.keys)) == ("completed", 1)
            continue
        assert (result.status, desk.done) == ("suspended", ["pay 1"])
        [item] = result.checkpoint.pending
        assert item.why == "outcome_unknown"
        result = desk.decide(result.checkpoint, 0, Respond(content="it was paid"))
        assert (result.status, result.messages[2].text, desk.done) == ("completed", "it was paid", ["pay 1"])


def test_the_open_calls_of_a_turn_are_kept_as_a_whole(desk: Desk) -> None:
    """Two of three parallel calls were recorded when the power was cut: each is where it was. field failure 45"""
    met = threading.Barrier(3)

    def look(order: int) -> str:
        """Look."""
        desk.done.append(f"look {order}")
        met.wait(PATIENCE)
        return f"look {order} is done"

    desk.script([[call("look", {"order": n}) for n in range(3)], "end"], tool(timeout=60)(look))
    settled = itertools.count()
    cut(
        desk,
        lambda change: any('"type":"settled"' in entry.body for entry in change.entries) and next(settled) == 1,
        after=True,
    )
    with pytest.raises(PowerCut):
        desk.invoke(thread_id="t")
    assert sorted(desk.done) == ["look 0", "look 1", "look 2"]

    restored(desk)
    [branch] = desk.store().branches(thread_id="t")
    result = desk.recover(branch.id)

    statuses = [each.status for each in result.checkpoint.calls]
    assert sorted(statuses) == ["pending", "settled", "settled"]
    [item] = result.checkpoint.pending
    assert item.why == "outcome_unknown"
    result = desk.decide(result.checkpoint, 0, Respond(content=f"look {item.args['order']} is done"))
    assert (result.status, len(desk.done)) == ("completed", 3)
    assert [message.text for message in result.messages[2:5]] == [f"look {n} is done" for n in range(3)]


# Requests


def test_one_call_has_one_request_whoever_else_was_asked(desk: Desk) -> None:
    """Gate, handler, failure and loss may all ask about a call, and each takes the place of the last. field failure 37"""
    asked: list[str] = []

    def handler(name: str, args: dict[str, Any]) -> Any:
        asked.append(name)
        return Defer()

    desk.script(
        [*pays(1), "end"],
        desk.tool(
            "pay", ValueError("no"), KeyboardInterrupt(), requires_approval=lambda args: True, on_failure="human"
        ),
        on_approval_required=desk.driver.function(handler),
    )
    first = desk.invoke().checkpoint
    second = desk.approve(first).checkpoint
    with pytest.raises(KeyboardInterrupt):
        desk.approve(second)
    third = desk.recover(second).checkpoint

    requests = [checkpoint.pending for checkpoint in (first, second, third)]
    assert [len(pending) for pending in requests] == [1, 1, 1]
    assert [item.why for pending in requests for item in pending] == ["approval", "failed", "outcome_unknown"]
    assert len({item.id for pending in requests for item in pending}) == 3
    assert (asked, desk.pending()) == (["pay"], [third.pending[0].id])
    for old in (first, second):
        unchanged(desk, partial(desk.approve, old), CheckpointAlreadyResumed)
    assert desk.approve(third).status == "completed"
    assert desk.done == ["pay 1 10"] * 3


def test_what_comes_twice_is_taken_in_once(desk: Desk) -> None:
    """A call id that a provider repeats fails no run, and saving a checkpoint again changes nothing. field failure 38"""
    equal = call("look", {"order": 1}, id="x")
    look = desk.tool("look", requires_approval=False)
    desk.script([[equal, equal], [equal, call("pay", {"order": 2}, id="x")], "end"], desk.tool("pay"), look)

    checkpoint = desk.invoke().checkpoint

    assert desk.done == ["look 1 10"] * 3
    ids = [each.id for message in checkpoint.messages for each in message.tool_calls]
    assert len(set(ids)) == 4
    assert {each.original_id for message in checkpoint.messages for each in message.tool_calls} == {None, "x"}
    before = desk.rows()
    for _ in range(3):
        desk.store().save(posted(checkpoint))
    assert desk.rows() == before
    assert desk.approve(checkpoint).status == "completed"
    assert desk.done == [*["look 1 10"] * 3, "pay 2 10"]


def test_new_messages_make_no_new_requests_while_one_waits(desk: Desk) -> None:
    """A turn on a thread that waits is refused with what it waits for; no second request comes of it. field failure 39"""
    desk.script([*pays(1), *pays(1), "end"], desk.tool("pay"))
    checkpoint = desk.invoke(thread_id="t").checkpoint
    for text in ("pay order 1", "please", "hello?"):
        error = unchanged(desk, partial(desk.invoke, text, thread_id="t"), ThreadBusy)
        assert (error.thread_id, error.run_id, error.checkpoint_id) == ("t", checkpoint.run_id, checkpoint.id)
        assert error.pending_ids == (checkpoint.pending[0].id,)
    assert desk.pending() == [checkpoint.pending[0].id]

    result = desk.invoke("never mind, pay again", thread_id="t", on_pending="supersede")

    assert (result.status, desk.done) == ("suspended", [])
    assert desk.pending() == [result.checkpoint.pending[0].id] != [checkpoint.pending[0].id]
    unchanged(desk, partial(desk.approve, checkpoint), CheckpointAlreadyResumed)
    assert desk.approve(result.checkpoint).status == "completed"
    assert desk.done == ["pay 1 10"]


def test_whoever_hears_of_a_request_finds_it_stored(desk: Desk) -> None:
    """Persist, then announce: to the handler, the tool, the model and the caller. field failure 40"""
    heard: list[Any] = []

    def head() -> Checkpoint:
        [branch] = desk.store().branches()
        return desk.store().head(branch.id)[1]

    def handler(name: str, args: dict[str, Any]) -> Any:
        [asking] = head().calls
        heard.append((asking.status, asking.args, bool(asking.pending_id)))
        return Defer()

    def pay(order: int, ctx: ToolContext[Any]) -> str:
        """Pay."""
        found = head()
        [started] = [outcome for outcome in found.journal if outcome.type == "started"]
        [decision] = found.decisions
        heard.append((started.id, decision.kind, ctx.pending_id == decision.pending_id))
        return "paid"

    def model(request: Any) -> Any:
        heard.append(head().messages[-1].text)
        return "end"

    gated = tool(requires_approval=True)(desk.driver.function(pay))
    desk.script([*pays(1), model], gated, on_approval_required=desk.driver.function(handler))
    result = desk.invoke()
    assert heard == [("asking", {"order": 1}, True)]
    assert desk.pending() == [result.checkpoint.pending[0].id]
    assert desk.store().load(result.checkpoint.id) == result.checkpoint

    desk.approve(result.checkpoint)

    assert heard[1:] == [("1.0", "approve", True), "paid"]


@pytest.mark.parametrize("after", [False, True], ids=["before-the-write", "after-it"])
def test_a_request_that_could_not_be_stored_is_not_announced(desk: Desk, after: bool) -> None:
    """The caller gets an error and no checkpoint to approve; what is listed is what is stored. field failure 40"""
    desk.script(pay_once, desk.tool("pay"))
    cut(desk, lambda change: bool(change.opened), after=after)
    with pytest.raises(PowerCut):
        desk.invoke(thread_id="t")
    restored(desk)
    assert len(desk.pending()) == after

    [branch] = desk.store().branches(thread_id="t")
    result = desk.recover(branch.id)

    assert desk.pending() == [item.id for item in result.checkpoint.pending]
    assert desk.approve(result.checkpoint).status == "completed"
    assert desk.done == ["pay 1 10"]


def test_two_parallel_calls_of_one_tool_are_two_requests(desk: Desk) -> None:
    """They are resumed one after the other, from any of the checkpoints, and the provider agrees. field failure 42"""
    desk.script([pays(1, 1), pays(2, 2), "end"], desk.tool("pay"))
    result = desk.invoke()
    for round in (1, 2):
        first = result.checkpoint
        assert [item.tool_name for item in first.pending] == ["pay", "pay"]
        result = desk.decide(first, 1, Approve())
        assert [item.id for item in result.checkpoint.pending] == [first.pending[0].id]
        result = desk.decide(first if round == 1 else result.checkpoint, 0, Approve())
        assert desk.done == ["pay 1 10", "pay 1 10", "pay 2 10", "pay 2 10"][: 2 * round]
    assert (result.status, result.output) == ("completed", "end")


def test_each_request_owns_its_payload(desk: Desk) -> None:
    """All are listed, everywhere, each with its own arguments, and its answer runs with those. field failure 43"""
    desk.script([[call("pay", {"order": n, "amount": 100 + n}) for n in range(5)], "end"], desk.tool("pay"))
    checkpoint = posted(desk.invoke().checkpoint)
    shown = [{"order": n, "amount": 100 + n} for n in range(5)]
    assert [item.args for item in checkpoint.pending] == shown
    listed = desk.store().pending()
    assert [item.approval.args for item in listed] == shown
    assert [item.approval for item in listed] == list(checkpoint.pending)
    assert {item.checkpoint_id for item in listed} == {checkpoint.id}

    for place in (3, 0, 4):
        item = listed[place]
        desk.resume(item.checkpoint_id, decisions={item.approval.id: Approve()})

    assert desk.done == ["pay 3 103", "pay 0 100", "pay 4 104"]
    assert [item.approval.args for item in desk.store().pending()] == [shown[1], shown[2]]


def test_results_are_written_as_they_settle(desk: Desk) -> None:
    """Resumed one by one, each in a process that dies after it, no result is lost. field failure 44"""
    look = desk.tool("look", requires_approval=False)
    desk.script([[*pays(0, 1), call("look", {"order": 9}), *pays(2)], "end"], desk.tool("pay"), look)
    first = desk.invoke().checkpoint
    for place in (1, 2):
        desk.decide(first, place, Approve())
        stored = desk.store().head(first.branch_id)[1]
        settled = {each.id: each.result.content for each in stored.calls if each.result is not None}
        assert settled["1.2"] == "look 9 is done"
        assert len(settled) == place + 1
    result = desk.decide(first, 0, Approve())
    assert result.status == "completed"
    assert [message.text for message in result.messages[2:6]] == [
        "pay 0 is done",
        "pay 1 is done",
        "look 9 is done",
        "pay 2 is done",
    ]


# Races


def at_once(acts: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each act gives or raises, all begun at the same moment in threads of their own."""
    gate, found = threading.Barrier(len(acts)), [None] * len(acts)

    def run(place: int) -> None:
        gate.wait()
        try:
            found[place] = acts[place]()
        except Exception as error:
            found[place] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_of_simultaneous_clicks_one_counts(desk: Desk) -> None:
    """Eight people click at once, half of them "no": one decision is recorded, and the others hear which. field failure 46"""
    desk.script(pay_once, desk.tool("pay"))
    for _ in range(4):
        desk.done.clear()
        checkpoint = desk.invoke().checkpoint
        agents = [desk.agent() for _ in range(8)]
        clicks = [
            partial(desk.driver.resume, agent, posted(checkpoint), approved=n % 2 == 0, by=f"person {n}")
            for n, agent in enumerate(agents)
        ]

        found = at_once(clicks)

        losers = [each for each in found if isinstance(each, CheckpointAlreadyResumed)]
        [winner] = [each for each in found if not isinstance(each, Exception)]
        assert (len(losers), winner.status) == (7, "completed")
        [decision] = winner.checkpoint.decisions
        assert {error.decision for error in losers} == {decision}
        assert decision.by is not None
        assert (decision.kind == "approve") == (int(decision.by.id.split()[1]) % 2 == 0)
        assert desk.done == ["pay 1 10"] * (decision.kind == "approve")


def test_of_simultaneous_clicks_on_one_agent_one_counts(desk: Desk) -> None:
    """The same in one process, on one agent object that serves all threads. field failure 46"""
    desk.script(pay_once, desk.tool("pay"))
    agent = desk.agent()
    checkpoint = desk.driver.invoke(agent, "go").checkpoint

    found = at_once([partial(desk.driver.resume, agent, checkpoint.id, approved=True, by=str(n)) for n in range(12)])

    assert sum(isinstance(each, CheckpointAlreadyResumed) for each in found) == 11
    assert desk.done == ["pay 1 10"]
    assert len(desk.store().head(checkpoint.branch_id)[1].decisions) == 1


# Aliasing


def reachable(value: Any, seen: set[int]) -> Iterator[Any]:
    """Everything that can be read from a value by its public attributes and items."""
    if value is None or isinstance(value, (str, bytes, int, float, datetime, type)):
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value
    if isinstance(value, BaseModel):
        parts = [getattr(value, name) for name in type(value).model_fields]
        properties = [name for name, kind in vars(type(value)).items() if isinstance(kind, property)]
        parts += [getattr(value, name) for name in properties if not name.startswith("_")]
    elif isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = list(value)
    else:
        parts = [getattr(value, name) for name in dir(value) if not name.startswith("_")]
    for part in parts:
        if not callable(part):
            yield from reachable(part, seen)


def vandalise(root: Any) -> int:
    """Change everything that can be changed in whatever can be reached from `root`; how much it was."""
    kept = list(reachable(root, set()))
    count = 0
    for value in kept:
        if isinstance(value, dict):
            value.clear()
            value["vandal"] = True
            count += 1
        elif isinstance(value, list):
            value[:] = ["vandal"]
            count += 1
        elif isinstance(value, set):
            value.clear()
            count += 1
        elif isinstance(value, BaseModel):
            for name in type(value).model_fields:
                with pytest.raises((ValueError, AttributeError)):
                    setattr(value, name, None)
    return count


def test_nothing_that_can_be_reached_from_a_result_changes_a_run(desk: Desk) -> None:
    """Results, checkpoints, requests, messages and errors hand out copies; resuming makes a new one. field failure 47"""

    def note(tags: list[str], more: dict[str, Any]) -> Any:
        """Note."""
        seen.append((list(tags), dict(more)))
        tags.append("vandal")
        more.clear()
        return kept

    seen: list[Any] = []
    kept: dict[str, Any] = {"tags": ["a"]}
    gated = tool(requires_approval=True)(desk.driver.function(note))
    ask = say(None, call("note", {"tags": ["a"], "more": {"b": [1]}}), provider={"blob": {"sig": ["x"]}})
    desk.script([ask, ask, "end"], gated)
    given = [{"type": "text", "text": "go"}]
    metadata = {"user": {"id": 7}}
    history = [
        Message(role="user", content=[{"type": "text", "text": "before"}]),
        Message(role="assistant", content="ok"),
    ]

    result = desk.invoke(given, thread_id="t", metadata=metadata, messages=history)
    given.clear()
    metadata["user"].clear()
    history.clear()
    text, stored = result.checkpoint.model_dump_json(), desk.rows()
    assert vandalise(result) > 10
    for thing in (
        desk.store().load(result.checkpoint.id),
        desk.store().pending(),
        desk.store().history(result.checkpoint.id),
    ):
        vandalise(thing)
    vandalise(desk.model.requests[0].messages)
    assert (result.checkpoint.model_dump_json(), desk.rows()) == (text, stored)
    assert desk.store().load(result.checkpoint.id).model_dump_json() == text
    assert result.checkpoint.metadata == {"user": {"id": 7}}

    edit = {"tags": ["c"], "more": {"d": [2]}}
    answer = Approve(args=edit)
    edit.clear()
    vandalise(answer)
    second = desk.decide(result.checkpoint, 0, answer)
    kept["tags"].append("vandal")
    assert seen == [(["c"], {"d": [2]})]
    assert result.checkpoint.model_dump_json() == text
    assert second.messages[4].text.endswith('{"tags":["a"]}')
    vandalise(second)
    vandalise(desk.model.requests[1].messages)
    content: dict[str, Any] = {"by": ["hand"]}
    response = Respond(content=content)
    content["by"].append("vandal")
    third = desk.decide(second.checkpoint, 0, response)
    assert (third.status, third.messages[6].text) == ("completed", '{"by":["hand"]}')
    error = unchanged(desk, partial(desk.approve, second.checkpoint), CheckpointAlreadyResumed)
    vandalise(error.decision)
    vandalise(error.result)
    assert error.decision.content == {"by": ["hand"]}
    assert third.messages[3].provider == {"blob": {"sig": ["x"]}}
    assert result.checkpoint.model_dump_json() == text


def test_each_attempt_gets_arguments_of_its_own(desk: Desk) -> None:
    """What a body, a handler or a predicate does to its arguments is not what the next one gets. field failure 47"""
    seen: list[list[int]] = []

    def note(numbers: list[int]) -> str:
        """Note."""
        seen.append(list(numbers))
        numbers.append(99)
        if len(seen) < 3:
            raise OSError("down")
        return "noted"

    def look(args: Any) -> bool:
        args["numbers"].append(98)
        return True

    def handler(name: str, args: dict[str, Any]) -> bool:
        args["numbers"].append(97)
        return True

    gated = tool(requires_approval=desk.driver.function(look), idempotent=True, retries=5, retry_wait=0.0)(
        desk.driver.function(note)
    )
    desk.script([call("note", {"numbers": [1]}), "end"], gated, on_approval_required=desk.driver.function(handler))
    assert desk.invoke().status == "completed"
    assert seen == [[1], [1], [1]]


# Where state is kept


def test_no_state_is_kept_in_the_process(desk: Desk) -> None:
    """Runs with equal provider fields, on one agent object at once, end each as it was decided. field failure 48"""
    ran: list[str] = []

    def pay(order: int, ctx: ToolContext[Any]) -> str:
        """Pay."""
        ran.append(ctx.deps)
        return f"paid for {ctx.deps}"

    gated = tool(requires_approval=True)(desk.driver.function(pay))
    desk.script(pay_once, gated)
    agent = desk.agent()
    names = [f"customer {n}" for n in range(8)]
    begun = at_once([partial(desk.driver.invoke, agent, "go", thread_id=name, deps=name) for name in names])
    assert [each.status for each in begun] == ["suspended"] * 8
    assert ran == []
    assert len({each.checkpoint.pending[0].id for each in begun}) == 8
    assert len({each.checkpoint.pending[0].digest for each in begun}) == 1

    ended = at_once(
        [
            partial(
                desk.driver.resume,
                agent,
                each.checkpoint,
                approved=n % 2 == 0,
                reason=None if n % 2 == 0 else name,
                deps=name,
            )
            for n, (each, name) in enumerate(zip(begun, names, strict=True))
        ]
    )

    assert sorted(ran) == names[::2]
    for n, (each, name) in enumerate(zip(ended, names, strict=True)):
        assert (each.status, each.thread_id) == ("completed", name)
        assert each.messages[2].text.endswith(name)
        assert len(each.checkpoint.decisions) == 1
        assert each.messages[2].settlement == ("completed" if n % 2 == 0 else "rejected")


def test_every_entry_point_leaves_a_checkpoint(desk: Desk) -> None:
    """At the input, at each reply, at each decision, and when the calls have settled: all can be replayed. field failure 49"""
    look = desk.tool("look", requires_approval=False)
    desk.script([call("look", {"order": 1}), pays(2, 3), "end"], desk.tool("pay"), look)
    first = desk.invoke("please", metadata={"a": 1}, label="begun").checkpoint
    second = desk.decide(first, 0, Reject(reason="no")).checkpoint
    last = desk.decide(first, 1, Approve()).checkpoint

    history = desk.store().history(last.id)

    assert [each.step for each in history] == list(range(len(history)))
    assert [each.parent_id for each in history] == [None, *[each.id for each in history[:-1]]]
    begun = history[0]
    assert (begun.original_input, begun.label, begun.metadata, outline(begun)) == (
        "please",
        "begun",
        {"a": 1},
        ["user: please"],
    )
    seen = [
        (each.status, len(each.messages), [item.status for item in each.calls], len(each.decisions)) for each in history
    ]
    for place in (
        ("running", 2, ["ready"], 0),  # the model replied, and the call was judged
        ("running", 3, [], 0),  # its calls have settled
        ("suspended", 4, ["pending", "pending"], 0),
        ("suspended", 4, ["settled", "pending"], 1),  # a decision
        ("running", 4, ["settled", "ready"], 2),  # another, before what it allows is run
        ("running", 6, [], 2),
        ("completed", 7, [], 2),
    ):
        assert place in seen
    assert {first.id, second.id, last.id} <= {each.id for each in history}
    for each in history:
        assert posted(each) == each == desk.store().load(each.id).model_copy(update={"journal": ()})
    for each in history[:-1]:
        assert desk.fork(each).messages == each.messages
