"""`resume(..., write_to=)` and `invoke(..., on_pending="ignore")`: what Eino calls a write-to id and a forced new run."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from drivers import DRIVERS, STREAMED, SYNC, Around, Driver, decide_first, rows

from phronomy import (
    Agent,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointError,
    ConfigurationError,
    InvalidDecision,
    MemoryStore,
    NothingDecided,
    PhronomyError,
    Reject,
    Respond,
    StoreError,
    ThreadBusy,
    UnknownPending,
    interrupt,
    tool,
)
from phronomy.runs.finding.elsewhere import elsewhere
from phronomy.stores import Store
from phronomy.testing import ScriptedModel, call, say


class Shop:
    """A desk whose refunds need an approval, and what it has refunded."""

    def __init__(self, store: Store, driver: Driver) -> None:
        self.store = store
        self.driver = driver
        self.done: list[int] = []

        @tool(requires_approval=True)
        @driver.function
        def refund(order_id: int) -> str:
            """Refund an order."""
            self.done.append(order_id)
            return "refunded"

        both = say("", call("refund", {"order_id": 1}, id="c1"), call("refund", {"order_id": 2}, id="c2"))
        model = ScriptedModel.by_turn([both, "Done."])
        self.agent: Agent[Any, Any] = Agent(name="desk", model=model, tools=[refund], store=store)

    def ask(self, **options: Any) -> Checkpoint:
        return self.driver.invoke(self.agent, "Refund both", **options).checkpoint

    def resume(self, at: Checkpoint | str, **options: Any) -> Any:
        return self.driver.resume(self.agent, at, **options)


@pytest.fixture(params=[*DRIVERS, *STREAMED], ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


@pytest.fixture
def shop(store: Store, driver: Driver) -> Shop:
    return Shop(store, driver)


def test_the_run_goes_on_in_another_branch_and_the_checkpoint_is_as_it_was(shop: Shop) -> None:
    """E7, EIN-A20: it loads from A and writes to B; the decisions name what waits at A."""
    a = shop.ask()
    before = shop.store.lineage(branch_id=a.branch_id)
    first, second = a.pending

    b = shop.resume(a, decisions={first.id: Approve(), "c2": Reject(reason="no")}, write_to="B")

    assert (b.status, b.checkpoint.branch_id, b.checkpoint.run_id, shop.done) == ("completed", "B", a.run_id, [1])
    assert shop.store.head("B")[1] == b.checkpoint
    assert shop.store.lineage(branch_id=a.branch_id) == before
    assert shop.store.load(a.id).model_dump_json() == a.model_dump_json()
    assert [item.approval.id for item in shop.store.pending()] == [first.id, second.id]
    assert shop.resume(a, decisions={"c1": Reject(), "c2": Reject()}).status == "completed"
    assert shop.done == [1]


def test_the_new_stop_is_in_the_other_branch(shop: Shop) -> None:
    """EIN-A20: A is the same bytes, and B holds what still waits, under ids of its own."""
    a = shop.ask()
    b = shop.resume(a.id, decisions=decide_first(a), write_to="B").checkpoint
    (left,) = b.pending
    assert (left.call_id, left.id in {each.id for each in a.pending}, shop.done) == ("c2", False, [1])
    with pytest.raises(UnknownPending):
        shop.resume(b, decisions={a.pending[1].id: Approve()})
    assert shop.resume(b, approved=True).checkpoint.branch_id == "B"
    assert shop.done == [1, 2]
    assert shop.store.load(a.id) == a


def test_a_checkpoint_that_was_resumed_can_still_be_written_elsewhere(shop: Shop) -> None:
    """E7: what came of A's own branch is not part of it. A call that was settled there is not made again."""
    a = shop.ask()
    shop.resume(a, decisions={"c1": Approve(), "c2": Reject()})
    with pytest.raises(CheckpointAlreadyResumed):
        shop.resume(a, decisions={"c1": Approve(), "c2": Approve()})
    again = shop.resume(a, decisions={"c1": Approve(), "c2": Approve()}, write_to="B")
    assert (again.status, shop.done) == ("completed", [1, 2])


def test_a_decision_is_on_what_it_names_though_part_was_decided_since(shop: Shop) -> None:
    """Law 1: what waits at A is told apart by what is asked, and not by its place in a list that has become shorter."""
    a = shop.ask()
    first, second = a.pending
    shop.resume(a, decisions={first.id: Approve()})
    assert shop.done == [1]
    b = shop.resume(a.id, decisions={second.id: Approve(), first.id: Reject()}, write_to="B")
    assert (b.status, shop.done) == ("completed", [1, 2])
    assert [message.settlement for message in b.messages if message.role == "tool"] == ["rejected", "completed"]
    only = shop.resume(a.id, decisions={first.id: Reject()}, write_to="C")
    assert [item.call_id for item in only.checkpoint.pending] == ["c2"]


def test_a_question_is_asked_anew_and_a_yes_to_it_approves_nothing_else(shop: Shop) -> None:
    """Law 1, E7: `approved` is of what is first at A. The branch asks the question again, and is answered itself."""

    @tool
    @shop.driver.function
    def ask() -> str:
        """Ask."""
        return str(interrupt("Is it sunny?", answer=str))

    shop.agent.tools = [*shop.agent.tools, ask]
    shop.agent.model = ScriptedModel.by_turn(
        [say("", call("ask", id="c0"), call("refund", {"order_id": 1}, id="c1")), "Done."]
    )
    a = shop.ask()
    question, payment = a.pending
    before = rows(shop.store)
    named: tuple[dict[str, Any], ...] = ({question.id: Respond(content="x")}, {"c0": Respond(content="x")})
    for given in ({"decisions": each} for each in named):
        with pytest.raises(InvalidDecision, match="asks it anew") as caught:
            shop.resume(a, write_to="B", **given)
        assert (caught.value.pending_id, shop.done, rows(shop.store)) == (question.id, [], before)
    for approved in (True, False):
        with pytest.raises(NothingDecided, match="2 wait at checkpoint") as several:
            shop.resume(a, write_to="B", approved=approved)
        assert (several.value.pending_ids, rows(shop.store)) == ((question.id, payment.id), before)
    b = shop.resume(a, decisions={payment.id: Approve()}, write_to="B").checkpoint
    (again,) = b.pending
    assert (again.why, again.id == question.id, shop.done) == ("question", False, [1])
    assert shop.resume(b, decisions={again.id: Respond(content="yes")}).status == "completed"


def test_a_branch_that_was_left_before_it_was_decided_is_gone_on_with(shop: Shop) -> None:
    """E7: a process was killed between the write of the branch and that of the decisions. Who resumes again is not refused."""
    a = shop.ask()
    elsewhere(shop.store, a, "B", bearer=False).written(shop.store)
    other = shop.ask()
    with pytest.raises(StoreError):
        shop.resume(other, decisions=decide_first(other), write_to="B")
    with pytest.raises(StoreError):
        shop.resume(a, decisions=decide_first(a), write_to=shop.agent.fork(a, rerun=True).branch_id)
    assert shop.resume(a, decisions={"c1": Approve(), "c2": Reject()}, write_to="B").checkpoint.branch_id == "B"
    with pytest.raises(StoreError):
        shop.resume(a, decisions={"c1": Approve(), "c2": Reject()}, write_to="B")
    assert (shop.done, len(shop.store.branches(run_id=a.run_id))) == ([1], 3)


def test_what_is_refused_leaves_no_branch(shop: Shop) -> None:
    """E7, EIN-A12, EIN-A13: a wrong decision, an end, and an id that cannot be a branch's change nothing."""
    a = shop.ask()
    end = shop.resume(shop.ask(), decisions={"c1": Reject(), "c2": Reject()}).checkpoint
    shop.resume(a, decisions={"c1": Reject(), "c2": Reject()}, write_to="taken")
    before = rows(shop.store)
    refusals: tuple[tuple[type[PhronomyError], Any, dict[str, Any]], ...] = (
        (UnknownPending, a, {"decisions": {"pend_none": Approve()}, "write_to": "B"}),
        (InvalidDecision, a, {"decisions": {"c1": Approve(args={"order_id": "x"})}, "write_to": "B"}),
        (InvalidDecision, a, {"decisions": {"c1": True}, "write_to": "B"}),
        (NothingDecided, a, {"write_to": "B"}),
        (NothingDecided, a, {"approved": True, "write_to": "B"}),
        (StoreError, a, {"decisions": decide_first(a), "write_to": "taken"}),
        (StoreError, a, {"decisions": decide_first(a), "write_to": a.run_id}),
        (CheckpointError, end, {"write_to": "B"}),
        (ConfigurationError, a, {"approved": True, "write_to": ""}),
        (ConfigurationError, a, {"approved": True, "write_to": 5}),
        (ConfigurationError, a, {"approved": True, "write_to": "x" * 2000}),
    )
    for kind, at, options in refusals:
        with pytest.raises(kind):
            shop.resume(at, **options)
        assert rows(shop.store) == before, options
    assert shop.done == []


def test_a_new_run_has_no_branch_to_write_to() -> None:
    """E6: the id of a run's own is in its result; a stream is refused as `invoke` is."""
    shop = Shop(MemoryStore(), SYNC)
    with pytest.raises(InvalidDecision, match="write_to="):
        list(shop.agent.stream("Go", write_to="B"))
    with pytest.raises(ConfigurationError, match="write_to"):
        shop.agent.invoke("Go", write_to="B")  # type: ignore[call-arg]
    assert shop.store.branches() == []


class Unread(Around):
    """A store that refuses to be read while `closed`."""

    closed = False


def _unread(name: str) -> Any:
    def read(self: Unread, *args: Any, **options: Any) -> Any:
        assert not self.closed, f"{name} was read"
        return getattr(self.inner, name)(*args, **options)

    return read


for _name in ("lineage", "select_branches", "select_pending", "select_checkpoints", "child_ids"):
    setattr(Unread, _name, _unread(_name))


def test_a_forced_new_run_reads_nothing_of_its_thread(store: Store, driver: Driver) -> None:
    """E7, EIN-A21: in any order of arguments; what waits stays, and the thread goes on from the run that ends last."""
    around = Unread(store)
    shop = Shop(around, driver)
    waits = shop.ask(thread_id="t")
    with pytest.raises(ThreadBusy):
        shop.ask(thread_id="t")
    around.closed = True
    new = [
        shop.ask(**options)
        for options in ({"thread_id": "t", "on_pending": "ignore"}, {"on_pending": "ignore", "thread_id": "t"})
    ]
    around.closed = False
    assert [(each.turn, each.thread_id, [message.role for message in each.messages]) for each in new] == [
        (waits.turn, "t", ["user", "assistant"])
    ] * 2
    assert store.load(waits.id) == waits
    reject: Any = partial(shop.resume, decisions={"c1": Reject(), "c2": Reject()})
    for each in (*new, waits):
        reject(each)
    last = store.latest("t")
    assert last is not None and last.run_id == waits.run_id
    assert sum(message.role == "user" for message in shop.ask(thread_id="t").messages) == 2
