"""A branch is of its own run: what the runs before it in the thread have left, under the same paths and ids, is not part of it.

A branch that was begun can always be read, listed, resumed and cancelled. What it asks for is carried out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import add
from typing import Annotated, Any, NotRequired, TypedDict

import pytest
from drivers import Driver
from places import Place

from phronomy import (
    Agent,
    Checkpoint,
    CheckpointError,
    MemoryStore,
    PendingApproval,
    Result,
    Store,
    interrupt,
    sequential,
    tool,
)
from phronomy.graph import END, START, StateGraph
from phronomy.records.calls import Decided
from phronomy.records.decisions import Approve, Decision, Respond
from phronomy.stores.derived import forking
from phronomy.stores.log.log import journal_entry
from phronomy.stores.rows import Append
from phronomy.testing import ScriptedModel, call


class Firm:
    """A desk that has a clerk pay, in a run inside its own; and somebody else with the same store."""

    def __init__(self, driver: Driver, store: Store, kind: str) -> None:
        self.driver, self.store = driver, store
        self.paid: list[int] = []

        def pay(order: int) -> str:
            """Pay for an order."""
            self.paid.append(order)
            return "paid"

        gated = tool(requires_approval=True)(driver.function(pay))
        model = ScriptedModel.by_turn([call("pay", {"order": 1}), "It is paid."])
        clerk: Any = Agent(name="clerk", tools=[gated], model=model)
        if kind == "pattern":
            self.desk: Any = sequential(clerk, name="desk", store=store)
        else:
            if kind == "deep":
                clerk = self._asks(clerk, "manager")
            if kind == "pattern in a tool":
                clerk = sequential(clerk, name="office")
            self.desk = self._asks(clerk, "desk", store=store)
        self.other: Any = Agent(name="other", store=store, model=ScriptedModel.by_turn(["Hello."]))

    def _asks(self, inner: Any, name: str, **options: Any) -> Any:
        model = ScriptedModel.by_turn([call("ask", {"input": "pay"}), "All is paid."])
        return Agent(name=name, tools=[inner.as_tool("ask", "Has it paid.")], model=model, **options)

    def until_rest(self, result: Result[Any]) -> Result[Any]:
        """Approve whatever is asked, until the run has ended."""
        while result.suspended:
            ids = {item.id: Approve() for item in result.checkpoint.pending}
            result = self.driver.resume(self.desk, result.checkpoint, decisions=ids)
        return result

    def can_be_read(self, branch_id: str) -> Checkpoint:
        """The head of a branch, found in every way in which it is looked for."""
        head = self.store.head(branch_id)[1]
        assert self.store.load(head.id) == head == self.store.history(head.id)[-1]
        assert {each.approval.id for each in self.store.pending(run_id=head.run_id) if each.branch_id == branch_id} == {
            item.id for item in head.pending
        }
        for each in head.pending:
            assert self.store.request(each.id).status == "pending"
        assert self.driver.call(self.other, "recover_all") == self.driver.call(self.desk, "recover_all") == []
        return head


def forks(firm: Firm, at: Checkpoint) -> Result[Any]:
    return firm.driver.resume(firm.desk, firm.can_be_read(firm.driver.fork(firm.desk, at).branch_id))


def forks_in_the_store(firm: Firm, at: Checkpoint) -> Result[Any]:
    return firm.driver.resume(firm.desk, firm.can_be_read(firm.store.fork(at.id).branch_id))


def writes_elsewhere(firm: Firm, at: Checkpoint) -> Result[Any]:
    return firm.driver.resume(firm.desk, at, write_to="elsewhere")


def restores(firm: Firm, at: Checkpoint) -> Result[Any]:
    restored = firm.driver.call(firm.desk, "restore", at)
    return firm.driver.resume(firm.desk, firm.can_be_read(restored.branch_id))


def restores_alone(firm: Firm, at: Checkpoint) -> Result[Any]:
    restored = firm.driver.call(firm.desk, "restore", at, restore_timeline=False)
    return firm.driver.resume(firm.desk, firm.can_be_read(restored.branch_id))


@pytest.mark.parametrize("kind", ["tool", "deep", "pattern", "pattern in a tool"])
@pytest.mark.parametrize(
    ("begun", "before"),
    [
        (forks, "superseded"),
        (forks, "ended"),
        (forks_in_the_store, "superseded"),
        (writes_elsewhere, "ended"),
        (restores, "superseded"),
        (restores_alone, "ended"),
    ],
)
def test_a_branch_from_before_a_run_inside_has_no_run_of_the_message_before(
    driver: Driver, place: Place, kind: str, begun: Callable[[Firm, Checkpoint], Result[Any]], before: str
) -> None:
    firm = Firm(driver, place.open(), kind)
    first = driver.invoke(firm.desk, "Pay", thread_id="t")
    if before == "ended":
        assert firm.until_rest(first).status == "completed"
    second = driver.invoke(firm.desk, "Pay again", thread_id="t", on_pending="supersede")
    (asked,) = second.checkpoint.pending
    at = next(each for each in firm.store.history(second.checkpoint.id)[::-1] if not each.pending)
    assert at.run_id == second.run_id
    driver.call(firm.desk, "cancel", second.run_id)  # else the thread is not free
    paid = len(firm.paid)

    result = begun(firm, at)
    (again,) = firm.can_be_read(result.checkpoint.branch_id).pending
    # The request is of this run, under an id that nobody knows, and is carried out once.
    assert (again.path, again.args) == (asked.path, asked.args)
    assert again.id not in (asked.id, first.checkpoint.pending[0].id)
    firm.store.decide(again.id, Approve(), by="ada", digest=again.digest)
    (done,) = driver.call(firm.desk, "recover_all")
    assert (done.error, done.result.status, len(firm.paid) - paid) == (None, "completed", 1)
    assert firm.store.request(again.id).status == "settled"


@pytest.mark.parametrize("kind", ["tool", "deep", "pattern", "pattern in a tool"])
def test_each_checkpoint_of_each_message_can_be_forked_and_its_forks_too(
    driver: Driver, place: Place, kind: str
) -> None:
    firm = Firm(driver, place.open(), kind)
    for input in ("Pay", "Pay again", "And again"):
        firm.until_rest(driver.invoke(firm.desk, input, thread_id="t"))
    for at in firm.store.history(firm.store.current("t").id):
        if at.ended is not None:
            continue
        fork = driver.fork(firm.desk, driver.fork(firm.desk, at))
        head = firm.can_be_read(fork.branch_id)
        assert head.run_id == at.run_id
        ended = firm.until_rest(Result(status=head.status, checkpoint=head)) if head.pending else None
        ended = ended or firm.until_rest(driver.resume(firm.desk, head))
        assert ended.status == "completed"


class Case(TypedDict):
    count: Annotated[int, add]
    seen: NotRequired[int]


def test_a_state_that_is_changed_before_a_graph_inside_began_is_what_that_begins_with(
    driver: Driver, place: Place
) -> None:
    """It began in the branch that is forked, but after the checkpoint: the new branch knows nothing of that."""

    def see(case: Case) -> dict[str, int]:
        interrupt("Go on?", key="go")
        return {"seen": case["count"]}

    inner = (
        StateGraph(Case, name="inner")
        .add_node("see", driver.function(see))
        .add_edge(START, "see")
        .add_edge("see", END)
        .compile()
    )
    made = StateGraph(Case, name="outer").add_node("inner", inner).add_edge(START, "inner").add_edge("inner", END)
    graph: Any = made.compile(store=place.open())
    waits = driver.invoke(graph, {"count": 1})
    for before in graph.store.history(waits.checkpoint.id):
        if before.pending:  # there it has begun
            continue
        asks = driver.resume(graph, driver.fork(graph, before, update={"count": 1}))
        (item,) = asks.checkpoint.pending
        ended = driver.resume(graph, asks.checkpoint, decisions={item.id: Respond(content="yes")})
        assert (ended.status, ended.output) == ("completed", {"count": 2, "seen": 2})


def test_a_result_is_found_again_though_a_call_of_that_id_asked_somebody_in_the_message_before(
    driver: Driver, place: Place
) -> None:
    """The answer to a question is not used in another branch; that of the message before is no matter here."""
    done: list[str] = []
    asks = [True]

    def act() -> str:
        """Act, and ask first if somebody is to be asked."""
        if asks:
            asks.clear()
            interrupt("Really?", key="really")
        done.append("act")
        return "done"

    model = ScriptedModel.by_turn([call("act"), "Said."])
    agent = Agent(name="desk", store=place.open(), tools=[tool(driver.function(act))], model=model)
    first = driver.invoke(agent, "Act", thread_id="t").checkpoint
    driver.resume(agent, first, decisions={first.pending[0].id: Respond(content="yes")})
    done.clear()
    second = driver.invoke(agent, "Act again", thread_id="t").checkpoint
    assert done == ["act"]
    at = next(each for each in agent.store.history(second.id) if each.run_id == second.run_id and each.calls)
    assert driver.resume(agent, driver.fork(agent, at)).status == "completed"
    assert done == ["act"]


def test_what_changed_after_a_checkpoint_is_no_reason_not_to_go_back_to_it(driver: Driver, place: Place) -> None:
    """The run inside has lost its tool. It began after the checkpoint, and begins anew in the branch."""

    def pay() -> str:
        """Pay."""
        return "paid"

    def note() -> str:
        """Note."""
        return "noted"

    def desk(*tools: Any) -> Any:
        clerk: Any = Agent(name="clerk", tools=tools, model=ScriptedModel.by_turn([call("pay"), "Said."]))
        given = [clerk.as_tool("ask", "Has it paid."), tool(driver.function(note))]
        model = ScriptedModel.by_turn([[call("ask", {"input": "pay"}), call("note")], "All is said."])
        return Agent(name="desk", store=store, tools=given, model=model)

    store = place.open()
    gated = tool(requires_approval=True)(driver.function(pay))
    waits = driver.invoke(desk(gated), "Pay", thread_id="t").checkpoint
    at = next(each for each in store.history(waits.id) if each.calls)
    driver.call(desk(gated), "cancel", waits.id)
    assert driver.resume(desk(), driver.call(desk(), "restore", at)).output == "All is said."


@pytest.mark.parametrize("door", ["fork", "restore"])
@pytest.mark.parametrize("wrong", ['{"step":7}', "{", '{"created_at":"2026-01-01T00:00:00Z"}'])
def test_a_branch_that_could_not_be_read_back_is_not_written(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, door: str, wrong: str
) -> None:
    firm = Firm(driver, MemoryStore(), "tool")
    ended = firm.until_rest(driver.invoke(firm.desk, "Pay")).checkpoint
    before = firm.store.branches()
    made = forking.row_entry
    monkeypatch.setattr(forking, "row_entry", lambda *given: replace(made(*given), body=wrong))
    with pytest.raises(CheckpointError):
        driver.call(firm.desk, door, ended.parent_id)
    assert firm.store.branches() == before


@pytest.mark.parametrize("lost", ["a decision", "a worker"])
def test_a_label_leaves_what_is_to_be_carried_out_to_be_found(driver: Driver, place: Place, lost: str) -> None:
    """A labeled checkpoint takes in what was recorded, and nobody would find by it that something is to be done."""
    store = place.open()
    now = [store.clock()]
    store.clock = lambda: now[0]
    firm = Firm(driver, store, "tool")
    waits = driver.invoke(firm.desk, "Pay").checkpoint
    (item,) = waits.pending
    if lost == "a decision":
        store.decide(item.id, Approve(), by="ada", digest=item.digest)
    else:  # it took the decision, and went before anything ran
        branch = store.branches()[0]
        entry = journal_entry(Decided(decision=decision_on(item)), "")
        store.append(
            Append(branch_id=branch.id, seq=branch.seq, take="w", entries=(entry,), status="running", closed=(item.id,))
        )
        now[0] += store.lease + 1
    with pytest.raises(CheckpointError, match="nobody has carried out yet: recover the run first"):
        driver.call(firm.desk, "checkpoint", waits.run_id, label="here")
    (done,) = driver.call(firm.desk, "recover_all")
    assert (done.error, done.result.status, firm.paid) == (None, "completed", [1])
    assert driver.call(firm.desk, "checkpoint", waits.run_id, label="here").label == "here"


def decision_on(item: PendingApproval) -> Decision:
    """An approval, as a worker notes it."""
    return Decision(pending_id=item.id, digest=item.digest, kind="approve", path=item.path, at=item.requested_at)
