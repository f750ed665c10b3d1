"""What is special to one store, or to none; what every store promises is in its published contract (`test_store_contract.py`)."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phronomy import Agent, Approve, tool
from phronomy.errors import CheckpointNotFound, CheckpointUntrusted, StoreError
from phronomy.stores import Append, Branch, Claim, Entry, MemoryStore, PendingFilter, SQLiteStore, Store
from phronomy.testing import ScriptedModel, call

MINE = Claim(branch_id="b1", run_id="b1", owner="me", fence=1)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    clock = lambda: 1000.0  # noqa: E731
    kinds = {
        "memory": lambda: MemoryStore(clock=clock),
        "sqlite": lambda: SQLiteStore(tmp_path / "runs.db", clock=clock, synchronous="OFF"),
    }
    with kinds[request.param]() as opened:
        yield opened


def begin(store: Store, id: str, *rows: str, **change: Any) -> None:
    entries = tuple(Entry(path="", body="{}", checkpoint_id=row) for row in rows)
    branch = Branch(id=id, run_id=id, thread_id=None, agent="clerk")
    store.create(branch, Append(branch_id=id, seq=0, entries=entries, **change), exclusive=False)


def bodies(store: Store, id: str) -> list[str]:
    return [entry.checkpoint_id or entry.body for entry in store.lineage(branch_id=id).entries]


# Calls within calls


def test_a_call_from_within_a_call_is_refused_and_the_outer_one_goes_on(store: Store) -> None:
    """As a signal handler makes it, or a generator that is collected in the middle of a write."""
    begin(store, "b1", "c1", take="me")
    plain, refused = store.clock, []
    inner = Append(branch_id="b1", seq=1, holder=MINE, entries=(Entry(path="", body="in"),))

    def clock() -> float:
        for ask in (lambda: store.append(inner), store.branches, store.for_tenant("other").branches):
            with pytest.raises(StoreError) as error:
                ask()
            refused.append(str(error.value))
        return plain()

    store.clock = clock
    store.append(Append(branch_id="b1", seq=1, entries=(Entry(path="", body="out"),), claim=MINE, lease=1.0))
    store.clock = plain
    assert len(refused) == 3
    assert "in the middle of another call" in refused[0]
    assert bodies(store, "b1") == ["c1", "out"]


# What any store is made with


@pytest.mark.parametrize("lease", [0, -1.0, math.inf, math.nan])
def test_a_lease_is_a_number_of_seconds(lease: float) -> None:
    with pytest.raises(StoreError, match="lease"):
        MemoryStore(lease=lease)


@pytest.mark.parametrize("ttl", [0, -1.0, math.inf, math.nan])
def test_a_ttl_is_a_number_of_seconds(ttl: float) -> None:
    with pytest.raises(StoreError, match="ttl"):
        MemoryStore(ttl=ttl)


# The memory store


@tool(requires_approval=True, risk="high")
def pay(amount: float) -> str:
    """Pay."""
    return f"paid {amount}"


def clerk(store: Store, *script: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(name="clerk", model=ScriptedModel(script), tools=[pay], store=store, **options)


def paid(store: Store, **options: Any) -> str:
    """A run that waited, was approved and has ended."""
    agent = clerk(store, call("pay", {"amount": 5.0}), "Paid.")
    return agent.resume(agent.invoke("Pay", **options).checkpoint, approved=True).run_id


def sizes(store: MemoryStore) -> dict[str, int]:
    """How much is in each of the store's books, but the trail, the texts that are kept once and the documents: they stay."""
    mine = store._mine
    return {name: len(book) for name, book in vars(mine).items() if name not in ("audit", "texts", "documents")}


def test_what_is_taken_away_leaves_nothing_in_memory() -> None:
    """No index grows with the runs that are gone."""
    store = MemoryStore()
    for thread in ("t", "u", "t"):
        run_id = paid(store, thread_id=thread, label="gold")
        fork = clerk(store, "x").fork(store.list(run_id=run_id)[1].id)
        clerk(store, "x").cancel(fork)
    assert (
        min(size for name, size in sizes(store).items() if name not in ("waiting", "order", "handed", "forgotten")) > 0
    )
    assert store.clear() > 0
    assert set(sizes(store).values()) == {0}
    waits = clerk(store, call("pay", {"amount": 5.0})).invoke("Pay", thread_id="t").run_id
    assert (sizes(store)["waiting"], sizes(store)["order"]) == (1, 7)
    (item,) = store.pending()
    store.decide(item.approval.id, Approve(), by="ann", digest=item.approval.digest)
    assert (sizes(store)["waiting"], sizes(store)["handed"]) == (0, 1)
    assert store.delete(waits, force=True)
    assert set(sizes(store).values()) == {0}


def test_what_was_decided_is_no_longer_in_the_lists() -> None:
    store = MemoryStore()
    for _ in range(3):
        paid(store)
    assert (sizes(store)["waiting"], sizes(store)["order"]) == (0, 0)


@pytest.mark.parametrize("most", [0, -1, True, 1.5, "3"])
def test_a_bound_is_a_whole_number_of_runs(most: Any) -> None:
    with pytest.raises(StoreError, match="max_runs"):
        MemoryStore(max_runs=most)


def test_beyond_its_bound_a_memory_store_lets_the_runs_go_that_ended_first() -> None:
    """First in, first out, and no more than is needed; what a thread goes on from stays readable where it is needed."""
    store = MemoryStore(max_runs=2)
    one, two, three = paid(store, thread_id="t"), paid(store, thread_id="u"), paid(store, thread_id="t")
    assert [branch.id for branch in store.branches()] == [two, three]
    assert [message.role for message in store.latest("t").messages].count("user") == 2  # type: ignore[union-attr]
    with pytest.raises(CheckpointNotFound):
        store.head(one)
    assert len(list(store.audit(run_id=one))) == 1


def test_a_hundred_ended_runs_are_kept_by_default_and_what_waits_beside_them() -> None:
    """D40: the default bound. D41: the run that is written goes before no other one does."""
    store = MemoryStore()
    waits = clerk(store, call("pay", {"amount": 5.0})).invoke("Pay").run_id
    agent = Agent(name="clerk", model=ScriptedModel.by_turn(["Paid."]), store=store)
    runs = [agent.invoke("Go").run_id for _ in range(103)]
    assert [branch.id for branch in store.branches()] == [waits, *runs[3:]]
    assert sizes(store)["ended"] == 100


def test_what_waits_is_never_let_go_even_beyond_the_bound() -> None:
    store = MemoryStore(max_runs=1)
    waits = [clerk(store, call("pay", {"amount": 5.0})).invoke("Pay").checkpoint for _ in range(3)]
    assert [store.load(each.id) for each in waits] == waits
    assert store.count() == 3
    for each in waits:
        assert clerk(store, "Paid.").resume(each, approved=True).output == "Paid."
    assert [branch.id for branch in store.branches()] == [waits[-1].run_id], "the newest stays, whatever the bound"


def test_a_run_with_a_fork_that_waits_stays_until_that_has_ended() -> None:
    """D40: the bound counts runs that have ended in all their branches."""
    store = MemoryStore(max_runs=1)
    agent = clerk(store, call("pay", {"amount": 5.0}), "Paid.", "Paid.")
    asked = agent.invoke("Pay").checkpoint
    fork = agent.fork(asked)
    agent.resume(asked, approved=True)
    later = [paid(store) for _ in range(3)][-1]
    assert {branch.id for branch in store.branches()} == {asked.run_id, fork.branch_id, later}
    agent.resume(fork, approved=True)
    assert {branch.id for branch in store.branches()} == {asked.run_id, fork.branch_id}
    newest = paid(store)
    assert [branch.id for branch in store.branches()] == [newest]


def test_a_text_of_a_run_that_was_let_go_is_accepted_from_nobody() -> None:
    """Law 3: the decision in it counted, and nobody knows that any more but the store that deleted the run."""
    store = MemoryStore(max_runs=1)
    agent = clerk(store, call("pay", {"amount": 5.0}), "Paid.", trust="bearer")
    asked = agent.invoke("Pay").checkpoint
    agent.resume(asked, approved=True)
    for _ in range(2):
        paid(store)
    with pytest.raises(CheckpointUntrusted, match="has ended, and the memory store has deleted it"):
        agent.resume(asked, approved=True)
    with pytest.raises(CheckpointUntrusted):
        agent.fork(asked)
    assert clerk(MemoryStore(), "Paid.", trust="bearer").resume(asked, approved=True).output == "Paid."


def test_that_a_conversation_was_forgotten_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore(max_runs=1)
    for _ in range(2):
        paid(store, thread_id="t")
    assert caplog.messages == [], "the thread has a later run"
    for _ in range(3):
        paid(store)
    assert [message.partition(",")[0] for message in caplog.messages] == [
        "a memory store keeps the last 1 runs that have ended"
    ]


def test_labels_are_spared_by_the_bound_if_that_is_said() -> None:
    store = MemoryStore(max_runs=1, keep_labeled=True)
    gold, plain, newest = paid(store, label="gold"), paid(store), paid(store)
    assert [branch.id for branch in store.branches()] == [gold, newest]
    with pytest.raises(CheckpointNotFound):
        store.head(plain)


def test_each_tenant_has_the_bound_for_itself() -> None:
    store = MemoryStore(max_runs=1)
    other = store.for_tenant("other")
    mine, theirs = paid(store), paid(other)
    assert ([branch.id for branch in store.branches()], [branch.id for branch in other.branches()]) == (
        [mine],
        [theirs],
    )


def test_a_memory_store_belongs_to_the_tenant_that_it_names() -> None:
    store = MemoryStore()
    moved = copy.copy(store)
    moved.tenant = "other"
    theirs = paid(moved)
    assert [branch.id for branch in store.for_tenant("other").branches()] == [theirs]
    assert store.branches() == []


def test_an_option_that_a_list_does_not_have_is_refused_by_the_name_of_the_method() -> None:
    store: Any = MemoryStore()
    for method, wrong, meant in (
        ("pending", "tol", "tool"),
        ("count", "treadd_id", "thread_id"),
        ("list", "labl", "label"),
        ("audit", "pendin_id", "pending_id"),
        ("aaudit", "untill", "until"),
    ):
        with pytest.raises(TypeError, match=rf"^Store\.{method} has no option {wrong} \(did you mean {meant}\?\)"):
            getattr(store, method)(**{wrong: "x"})
    with pytest.raises(TypeError, match=r"^Store\.list has no option store"):
        store.list(store=store)


def test_two_memory_stores_know_nothing_of_each_other() -> None:
    one, two = MemoryStore(), MemoryStore()
    begin(one, "b1", "c1")
    assert two.branches() == two.for_tenant("").branches() == []
    assert one.for_tenant("").branches() == one.branches() != []


def test_what_a_memory_store_hands_out_is_not_what_it_goes_on_writing() -> None:
    """A lineage that was read stays as it was, and so does a filter's mapping."""
    store = MemoryStore(clock=lambda: 1000.0)
    begin(store, "b1", "c1", take="me")
    before = store.lineage(branch_id="b1")
    facets = {"tool": "pay"}
    wanted = PendingFilter(facets=facets)
    store.append(Append(branch_id="b1", seq=1, entries=(Entry(path="", body="j"),), claim=MINE))
    assert [entry.checkpoint_id for entry in before.entries] == ["c1"]
    assert store.lineage(branch_id="b1") == dataclasses.replace(
        before,
        branch=dataclasses.replace(before.branch, seq=2),
        entries=(*before.entries, Entry(path="", body="j", branch_id="b1", seq=2)),
    )
    assert store.select_pending(wanted) == [] and facets == {"tool": "pay"}
