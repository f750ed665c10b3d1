"""Several requests decided in one call, with the store alone: each by itself, or all of them or none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from drivers import PATIENCE, Around, Driver
from stop_scenes import elsewhere
from test_deciding_outside import RITA, Desk, desk  # noqa: F401  # the fixture is used by its name

from phronomy import Approve, Checkpoint, MemoryStore, Reject, tool
from phronomy.errors import (
    CheckpointAlreadyResumed,
    InvalidDecision,
    PhronomyError,
    RequestExpired,
    StoreError,
    UnknownPending,
)
from phronomy.records.decisions import PendingApproval
from phronomy.stores import Answered, BatchDecision
from phronomy.stores.base import Store
from phronomy.stores.batches import Batches
from phronomy.stores.rows import Append, Behind, Branch
from phronomy.testing import call, say
from phronomy.testing.store_contract.base import race

UNKNOWN = Answered(pending_id="pend_0", digest="0", answer=Approve())


def answered(item: PendingApproval, answer: Any = None, **fields: Any) -> Answered:
    """An answer to what somebody was shown."""
    return Answered(**{"pending_id": item.id, "digest": item.digest, "answer": answer or Approve(), **fields})


def decide_all(desk: Desk, answers: Sequence[Answered], *, store: Store | None = None, **options: Any) -> Any:  # noqa: F811
    """What comes of decisions of somebody who has nothing but the store."""
    return desk.driver.call(store or desk.open(), "decide_all", answers, **{"by": RITA, **options})  # type: ignore[arg-type]


def waiting(desk: Desk, *counts: int) -> list[Checkpoint]:  # noqa: F811
    """Runs that each wait for so many payments: of order 10 and 11 in the first run, of 20 and 21 in the second."""
    found = []
    for run, count in enumerate(counts, 1):
        calls = [call("pay", {"order": 10 * run + number}) for number in range(count)]
        found.append(desk.asked(desk.agent(say("", *calls), "Done.")))
    return found


def statuses(desk: Desk, items: Sequence[PendingApproval]) -> list[str]:  # noqa: F811
    """Where the requests stand."""
    return [desk.request(item.id).status for item in items]


def refused(desk: Desk, error: type[Exception], match: str, *answers: Any, **options: Any) -> Any:  # noqa: F811
    """Nothing is decided: all that the store holds is as before. The error."""
    before = desk.place.lines()
    with pytest.raises(error, match=match) as caught:
        decide_all(desk, answers, **options)
    assert desk.place.lines() == before
    return caught.value


# Each by itself


def test_each_is_decided_by_itself_and_those_that_are_refused_stop_no_other(desk: Desk) -> None:  # noqa: F811
    first, second, third = waiting(desk, 1, 1, 2)
    items = [*first.pending, *second.pending, *third.pending]
    answers = [answered(items[2], Reject(reason="too late")), answered(items[1], digest="0" * 64), UNKNOWN]
    found = decide_all(desk, [*answers, answered(items[0])], channel="page")
    assert [each.pending_id for each in found] == [items[2].id, items[1].id, "pend_0", items[0].id]
    assert [each.request.status if each.request else type(each.error) for each in found] == [
        "decided",
        InvalidDecision,
        UnknownPending,
        "decided",
    ]
    assert [each.error is None for each in found] == [True, False, False, True]
    assert (found[1].error.pending_id, found[2].error.pending_id) == (items[1].id, "pend_0")
    assert found[0].request == desk.request(items[2].id)
    assert statuses(desk, items) == ["decided", "pending", "decided", "pending"]
    lines = [(line.pending_id, line.kind, line.by, line.channel) for line in desk.open().audit()]
    assert lines == [(items[2].id, "reject", RITA, "page"), (items[0].id, "approve", RITA, "page")]

    results = desk.carried_out(desk.agent())
    assert sorted(result.status for result in results) == ["completed", "suspended"]
    assert desk.paid == [(10, 5.0)]
    assert statuses(desk, items) == ["settled", "pending", "settled", "pending"]


def test_a_store_that_fails_for_one_does_not_hide_what_was_decided_before(desk: Desk) -> None:  # noqa: F811
    class Failing(Around):
        """A store whose second write does not arrive."""

        written = 0

        def append(self, change: Append) -> Branch:
            self.written += 1
            if self.written == 2:
                raise StoreError("the server is away")
            return super().append(change)

    items = [*waiting(desk, 3)[0].pending]
    found = decide_all(desk, [answered(item) for item in items], store=Failing(desk.open()))
    assert [type(each.error) for each in found] == [type(None), StoreError, type(None)]
    assert statuses(desk, items) == ["decided", "pending", "decided"]


# All or none


def test_all_of_several_runs_and_of_one_run_are_decided_in_one_write(desk: Desk) -> None:  # noqa: F811
    first, second, third = waiting(desk, 2, 1, 1)
    items = [*first.pending, *second.pending, *third.pending]
    answers = [answered(items[1], Approve(args={"order": 7, "amount": 2})), answered(items[2]), answered(items[0])]
    writes: list[list[str]] = []

    class Watched(Around):
        """A store that notes what is written together."""

        def append_all(self, changes: Sequence[Append]) -> list[Branch]:
            writes.append([change.branch_id for change in changes])
            return super().append_all(changes)

    found = decide_all(desk, answers, all_or_none=True, store=Watched(desk.open()), channel="page")
    assert writes == [[first.branch_id, second.branch_id]]
    assert [each.pending_id for each in found] == [items[1].id, items[2].id, items[0].id]
    assert [each.error for each in found] == [None] * 3
    assert [each.request for each in found] == [desk.request(items[at].id) for at in (1, 2, 0)]
    assert statuses(desk, items) == ["decided", "decided", "decided", "pending"]
    assert {line.pending_id: (line.by, line.channel, line.edited) for line in desk.open().audit()} == {
        items[0].id: (RITA, "page", False),
        items[1].id: (RITA, "page", True),
        items[2].id: (RITA, "page", False),
    }
    assert len([*desk.open().audit()]) == 3
    assert {branch.id for branch in desk.open().decided()} == {first.branch_id, second.branch_id}

    results = desk.carried_out(desk.agent())
    assert [result.status for result in results] == ["completed", "completed"]
    assert sorted(desk.paid) == [(7, 2.0), (10, 5.0), (20, 5.0)]
    assert statuses(desk, items) == ["settled", "settled", "settled", "pending"]


def test_an_end_of_a_run_beside_an_approval_of_it_is_carried_out_as_two_decisions_are(desk: Desk) -> None:  # noqa: F811
    """In one write, or one after the other: the run ends in the same way."""
    outcomes = []
    for together in (True, False):
        (asked,) = waiting(desk, 2)
        answers = [answered(asked.pending[0]), answered(asked.pending[1], Reject(then="end"))]
        decide_all(desk, answers, all_or_none=together)
        (result,) = desk.carried_out(desk.agent())
        outcomes.append((result.status, statuses(desk, asked.pending), list(desk.paid)))
        desk.paid.clear()
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == "rejected"


def test_if_one_is_refused_nothing_is_decided_and_the_error_names_it(desk: Desk) -> None:  # noqa: F811
    first, second = waiting(desk, 2, 2)
    (one, two), (three, four) = first.pending, second.pending
    desk.decide(Approve(), at=3)
    good = [answered(one), answered(three)]

    def refuse(error: type[Exception], match: str, bad: Answered) -> None:
        for answers in ([bad, *good], [*good, bad]):
            assert refused(desk, error, match, *answers, all_or_none=True).pending_id == bad.pending_id

    refuse(InvalidDecision, "not the one that the decision was given for", answered(two, digest="0" * 64))
    refuse(UnknownPending, "nothing waits under", UNKNOWN)
    refuse(InvalidDecision, "do not fit the schema", answered(two, Approve(args={"order": "x"})))
    refuse(CheckpointAlreadyResumed, "was decided before", answered(four, Reject()))
    two_bad = [answered(two, digest="0" * 64), UNKNOWN]
    error = refused(desk, PhronomyError, "nothing was decided", good[0], *two_bad, all_or_none=True)
    assert error.pending_id == two.id, "that which comes first"
    desk.now += 700.0
    refused(desk, RequestExpired, "had lapsed", *good, all_or_none=True)
    assert [line.pending_id for line in desk.open().audit()] == [four.id]


def test_what_is_malformed_is_refused_as_a_whole_in_either_way(desk: Desk) -> None:  # noqa: F811
    (item,) = waiting(desk, 1)[0].pending
    good = answered(item)
    for options in ({}, {"all_or_none": True}):
        assert decide_all(desk, [], **options) == []
        error = refused(desk, InvalidDecision, "is answered twice in one call", good, UNKNOWN, good, **options)
        assert error.pending_id == item.id
        many = [answered(item, pending_id=f"pend_{number}") for number in range(1001)]
        refused(desk, InvalidDecision, "1,000 requests at most are decided in one call, not 1,001", *many, **options)
        refused(desk, InvalidDecision, "by says who decides", good, by=None, **options)
        refused(desk, InvalidDecision, "channel is text, not int", good, channel=7, **options)
        refused(desk, InvalidDecision, "decide_all takes Answered", good, item.id, **options)
        for given in (None, good, item.id, {item.id: good}, iter([good])):
            with pytest.raises(InvalidDecision, match="decide_all takes a list of Answered"):
                decide_all(desk, given, **options)  # type: ignore[arg-type]
    found = decide_all(desk, [answered(item, pending_id=f"pend_{number}") for number in range(1000)])
    assert {type(each.error) for each in found} == {UnknownPending}


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"digest": None}, r"the digest is text, not NoneType \(pending pend_0\)"),
        ({"answer": "yes"}, "the answer is Approve, Reject, Respond or Skip, not str"),
        ({"key": ""}, "key is text that is not empty"),
        ({"pending_id": 7}, "the pending id is text, not int"),
    ],
)
def test_an_answer_that_is_none_cannot_be_made(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidDecision, match=match) as caught:
        Answered(**{"pending_id": "pend_0", "digest": "0", "answer": Approve(), **fields})
    assert caught.value.pending_id == (None if "pending_id" in fields else "pend_0")


def test_neither_what_is_answered_nor_a_key_is_shown() -> None:
    """Both may be secret: an answer has arguments, and a key may be guessed from another."""
    made = Answered(pending_id="pend_0", digest="0", answer=Approve(args={"card": "4111"}), key="k-123")
    assert repr(made) == "Answered(pending_id='pend_0', digest='0')"


# Sent twice


def test_a_batch_that_is_sent_twice_under_keys_is_recorded_once(desk: Desk) -> None:  # noqa: F811
    first, second = waiting(desk, 2, 1)
    items = [*first.pending, *second.pending]
    answers = [answered(item, Reject(reason="late"), key=f"form-{at}") for at, item in enumerate(items)]
    found = decide_all(desk, answers, all_or_none=True)
    recorded = desk.place.lines()
    for together in (True, False):
        again = decide_all(desk, answers, all_or_none=together)
        assert again == found
        assert desk.place.lines() == recorded
    other = [*answers[:2], answered(items[2], Approve(), key="form-2")]
    error = refused(desk, CheckpointAlreadyResumed, "rejected by rita", *other, all_or_none=True)
    assert error.pending_id == items[2].id
    desk.carried_out(desk.agent())
    again = decide_all(desk, answers, all_or_none=True)
    assert [each.request.status for each in again] == ["settled"] * 3
    assert len([*desk.open().audit()]) == 3


def test_of_a_batch_of_which_a_part_is_recorded_under_its_key_the_rest_is_recorded(desk: Desk) -> None:  # noqa: F811
    first, second = waiting(desk, 2, 1)
    items = [*first.pending, *second.pending]
    answers = [answered(item, key="once") for item in items]
    decide_all(desk, answers[1:2])
    refused(
        desk, InvalidDecision, "has the digest", *answers[1:], answered(items[0], digest="0" * 64), all_or_none=True
    )
    found = decide_all(desk, answers, all_or_none=True)
    assert [each.request.status for each in found] == ["decided"] * 3
    assert sorted(line.pending_id for line in desk.open().audit()) == sorted(item.id for item in items)


# What comes between


class Meanwhile(Around):
    """A store in which something happens just before a batch is written."""

    def __init__(self, inner: Store, *happens: Callable[[], object]) -> None:
        super().__init__(inner)
        self.happens = [*happens]

    def append_all(self, changes: Sequence[Append]) -> list[Branch]:
        if self.happens:
            self.happens.pop(0)()
        return super().append_all(changes)


def at_once(store: Store, item: PendingApproval, answer: Any = None) -> None:
    """A decision of another in the middle of a call: in this thread, whichever driver is at work."""
    store.decide(item.id, answer or Approve(), by="otto", digest=item.digest)


def test_what_is_written_to_one_of_the_runs_meanwhile_is_read_and_all_is_recorded_after_it(desk: Desk) -> None:  # noqa: F811
    first, second = waiting(desk, 2, 2)
    (one, two), (three, four) = first.pending, second.pending
    store = desk.open()
    slow = Meanwhile(desk.open(), lambda: at_once(store, two), lambda: at_once(store, four))
    decide_all(desk, [answered(one), answered(three)], all_or_none=True, store=slow)
    assert slow.happens == []
    assert statuses(desk, [one, two, three, four]) == ["decided"] * 4
    assert [line.by.id for line in store.audit()] == ["otto", "otto", "rita", "rita"]
    desk.carried_out(desk.agent())
    assert sorted(desk.paid) == [(10, 5.0), (11, 5.0), (20, 5.0), (21, 5.0)]


def test_if_another_decides_one_of_them_first_none_of_the_others_is_decided(desk: Desk) -> None:  # noqa: F811
    first, second = waiting(desk, 2, 1)
    items = [*first.pending, *second.pending]
    store = desk.open()
    slow = Meanwhile(desk.open(), lambda: at_once(store, items[1], Reject()))
    with pytest.raises(CheckpointAlreadyResumed, match="rejected by otto") as caught:
        decide_all(desk, [answered(item) for item in items], all_or_none=True, store=slow)
    assert caught.value.pending_id == items[1].id
    assert statuses(desk, items) == ["pending", "decided", "pending"]
    assert [line.pending_id for line in store.audit()] == [items[1].id]


def test_if_one_of_the_runs_is_deleted_meanwhile_none_is_decided(desk: Desk) -> None:  # noqa: F811
    first, second = waiting(desk, 1, 1)
    store = desk.open()
    slow = Meanwhile(desk.open(), lambda: store.delete(first.run_id, force=True))
    with pytest.raises(UnknownPending) as caught:
        decide_all(desk, [answered(second.pending[0]), answered(first.pending[0])], all_or_none=True, store=slow)
    assert caught.value.pending_id == first.pending[0].id
    assert [*store.audit()] == []
    assert statuses(desk, second.pending) == ["pending"]


def test_a_store_that_contradicts_itself_is_not_asked_for_ever(desk: Desk) -> None:  # noqa: F811
    class Contrary(Around):
        """A store that always says that a branch has changed."""

        def append_all(self, changes: Sequence[Append]) -> list[Branch]:
            raise Behind(said or changes[1].branch_id)

    first, second = waiting(desk, 1, 1)
    answers = [answered(first.pending[0]), answered(second.pending[0])]
    for said in ("", "another branch"):
        changed = first.branch_id if said else second.branch_id
        match = f"branch {changed} is the same as before, and the store says that it has changed"
        refused(desk, StoreError, match, *answers, all_or_none=True, store=Contrary(desk.open()))


def test_what_changes_between_two_reads_of_one_run_is_found_out_by_the_write(desk: Desk) -> None:  # noqa: F811
    """The second request is read after somebody has written to the run: the first was read before."""
    (asked,) = waiting(desk, 3)
    one, two, three = asked.pending
    store = desk.open()

    class Slow(Around):
        """A store in which another decides while a batch is read."""

        reads = 0

        def select_pending(self, wanted: Any) -> list[Any]:
            self.reads += 1
            if self.reads == 3:  # the first read of the second request
                at_once(store, three)
            return super().select_pending(wanted)

    slow = Slow(desk.open())
    decide_all(desk, [answered(one), answered(two)], all_or_none=True, store=slow)
    assert slow.reads == 8, "all was read twice"
    assert [line.pending_id for line in store.audit()] == [three.id, one.id, two.id]
    desk.carried_out(desk.agent())
    assert sorted(desk.paid) == [(10, 5.0), (11, 5.0), (12, 5.0)]


def test_of_two_batches_at_the_same_moment_one_is_decided_and_nothing_of_the_other(desk: Desk) -> None:  # noqa: F811
    runs = waiting(desk, 2, 1, 2)
    items = [item for run in runs for item in run.pending]
    orders = [items, items[::-1], items[1:4], items[2:]]
    stores = [desk.open() for _ in orders]

    def batch(at: int) -> list[BatchDecision]:
        answers = [answered(item, Reject(reason=f"batch {at}")) for item in orders[at]]
        made: list[BatchDecision] = decide_all(desk, answers, all_or_none=True, store=stores[at], by=f"p{at}")
        return made

    found = race([lambda at=at: batch(at) for at in range(len(orders))])  # type: ignore[misc]
    assert {type(each) for each in found if isinstance(each, Exception)} == {CheckpointAlreadyResumed}
    by = {line.pending_id: line.by.id for line in desk.open().audit()}
    assert len([*desk.open().audit()]) == len(by)
    won = [at for at, each in enumerate(found) if not isinstance(each, Exception)]
    assert sorted(by) == sorted({item.id for at in won for item in orders[at]})
    assert all(by[item.id] == f"p{at}" for at in won for item in orders[at])
    assert won != []


def test_a_batch_of_all_or_none_and_one_of_each_by_itself_decide_each_request_once(desk: Desk) -> None:  # noqa: F811
    items = [item for run in waiting(desk, 2, 2) for item in run.pending]
    stores = [desk.open(), desk.open()]

    def batch(at: int) -> list[BatchDecision]:
        answers = [answered(item) for item in items[:: 1 if at else -1]]
        made: list[BatchDecision] = decide_all(desk, answers, all_or_none=not at, store=stores[at], by=f"p{at}")
        return made

    together, singly = race([lambda at=at: batch(at) for at in range(2)])  # type: ignore[misc]
    assert not isinstance(singly, Exception)
    by = [line.by.id for line in desk.open().audit()]
    assert len(by) == 4
    assert by.count("p0") == (0 if isinstance(together, Exception) else 4)
    assert by.count("p1") == sum(each.error is None for each in singly)
    desk.carried_out(desk.agent())
    assert sorted(desk.paid) == [(10, 5.0), (11, 5.0), (20, 5.0), (21, 5.0)]


# Who is told


def test_each_run_is_told_to_the_dispatch_once_it_is_decided(desk: Desk) -> None:  # noqa: F811
    class Told:
        """Notes which runs it is told."""

        def __init__(self) -> None:
            self.runs: list[str] = []

        def wake(self, run_id: str) -> None:
            self.runs.append(run_id)

        def at(self, time: Any, run_id: str) -> None: ...

    first, second = waiting(desk, 2, 1)
    items = [*first.pending, *second.pending]
    told, store = Told(), Around(desk.open())
    store.dispatch = told
    with pytest.raises(UnknownPending):
        decide_all(desk, [answered(items[0]), UNKNOWN], all_or_none=True, store=store)
    assert told.runs == []
    decide_all(desk, [answered(item) for item in items], all_or_none=True, store=store)
    assert sorted(told.runs) == sorted([first.run_id, second.run_id])


def test_a_worker_that_holds_one_of_the_runs_hears_of_it(desk: Desk) -> None:  # noqa: F811
    entered, go_on = threading.Event(), threading.Event()

    @tool(requires_approval=True)
    def ship(order: int) -> str:
        """Ship an order."""
        entered.set()
        assert go_on.wait(PATIENCE)
        return f"shipped {order}"

    agent = desk.agent(say("", call("ship", {"order": 1}), call("pay", {"order": 2})), "Done.", more=[ship])
    asked, (other,) = desk.asked(agent), waiting(desk, 1)
    shipped, paid = asked.pending
    with elsewhere(lambda: desk.driver.resume(agent, asked, decisions={shipped.id: Approve()})) as worker:
        assert entered.wait(PATIENCE)
        found = decide_all(desk, [answered(paid), answered(other.pending[0])], all_or_none=True)
        assert [each.request.run_status for each in found] == ["running", "suspended"]
        assert [branch.id for branch in desk.open().decided()] == [other.branch_id]
        go_on.set()
        assert worker.result().status == "completed"
    assert desk.paid == [(2, 5.0)]
    desk.carried_out(desk.agent())
    assert desk.paid == [(2, 5.0), (10, 5.0)]


# Stores of others


class Earlier(Around):
    """A store that was written before there were batches."""

    append_all = Batches.append_all


class Counting(Around):
    """A store that puts something before each write, and was written before there were batches."""

    writes = 0

    def append(self, change: Append) -> Branch:
        self.writes += 1
        return super().append(change)


@pytest.mark.parametrize("kind", [Earlier, Counting])
def test_a_store_without_the_primitive_decides_one_run_all_or_none_and_several_one_by_one(
    desk: Desk,  # noqa: F811
    kind: type[Around],
) -> None:
    """Whatever is put before `append` is not passed by."""
    first, second = waiting(desk, 2, 2)
    store = kind(desk.open())
    both = [answered(first.pending[0]), answered(second.pending[0])]
    refused(desk, StoreError, f"{kind.__name__} cannot write to several runs", *both, all_or_none=True, store=store)
    decide_all(desk, [answered(item) for item in first.pending], all_or_none=True, store=store)
    decide_all(desk, [answered(item) for item in second.pending], store=store)
    assert desk.open().pending() == []
    assert getattr(store, "writes", 3) == 3


def test_a_batch_of_one_is_an_append_in_a_store_without_the_primitive(desk: Desk) -> None:  # noqa: F811
    (asked,), store = waiting(desk, 1), Earlier(desk.open())
    branch = store.branches()[0]
    (item,) = asked.pending
    slow = Watcher(desk.open())
    decide_all(desk, [answered(item)], all_or_none=True, store=slow)
    (change,) = slow.changes
    assert change.branch_id == branch.id
    assert store.append_all([]) == []
    with pytest.raises(Behind, match=branch.id):
        store.append_all([change])
    assert store.append_all([change_of(change, store.branches()[0].seq)]) == store.branches()
    with pytest.raises(StoreError, match="Have it implement append_all"):
        store.append_all([change, change_of(change, 1, branch_id="b2")])


class Watcher(Around):
    """A store that notes each write."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.changes: list[Append] = []

    def append(self, change: Append) -> Branch:
        self.changes.append(change)
        return super().append(change)


def change_of(change: Append, seq: int, **fields: Any) -> Append:
    """The same change for another place."""
    return Append(**{name: getattr(change, name) for name in change.__slots__} | {"seq": seq, "audit": ()} | fields)


def test_the_async_twin_takes_what_the_sync_one_takes(driver: Driver) -> None:
    """A `decide_all` that a subclass has written anew is called by the twin as well."""

    class Own(Around):
        """A store with a way of its own."""

        def decide_all(self, answers: Any, **options: Any) -> Any:
            return ["own", options["all_or_none"]]

    store: Any = Own(MemoryStore())
    assert driver.call(store, "decide_all", [], by="rita", all_or_none=True) == ["own", True]
