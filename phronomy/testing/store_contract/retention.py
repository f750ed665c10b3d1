"""Tests of a store: deleting runs, while the branches that were forked from them stay whole."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from phronomy.errors import CheckpointNotFound, StillNeeded, StoreError
from phronomy.foundation.json_text import canonical
from phronomy.records.calls import Call, CallResult, CallSettled
from phronomy.records.checkpoint import AgentRef, Checkpoint, pending_of
from phronomy.records.decisions import ToolIdentity, call_digest
from phronomy.records.messages import Message, ToolCall
from phronomy.stores.base import Store
from phronomy.stores.log.log import journal_entry, row_entry
from phronomy.stores.rows import Append, BranchFilter, CheckpointFilter
from phronomy.testing.scripted import call
from phronomy.testing.store_contract.base import StoreTests, begin, branch_of, everything, refused, row

PAY = call("pay", {"amount": 5.0})
LOOK = call("look", {"at": "it"})


def texts(store: Store, run_id: str) -> dict[str, str]:
    """The bytes of every checkpoint of a run, by id."""
    rows = store.select_checkpoints(CheckpointFilter(run_id=run_id))
    assert rows
    return {found.checkpoint_id: store.load(found.checkpoint_id).model_dump_json() for found in rows}


class RetentionTests(StoreTests):
    """Tests of which branches a deletion deletes, which stay, and how many it counts."""

    def ended(self, thread: str | None = None, label: str | None = None, at: float | None = None) -> str:
        """Make a run that has looked, has paid after an approval, and has ended. Return its id."""
        self.clock.now = self.clock.now if at is None else at
        agent = self.clerk(LOOK, PAY, "Paid.")
        waits = agent.invoke("Pay", thread_id=thread, label=label).checkpoint
        return str(agent.resume(waits, approved=True).run_id)

    def open(self, thread: str | None = None, label: str | None = None) -> Checkpoint:
        """Make a run that waits for a human."""
        waits: Checkpoint = self.clerk(PAY).invoke("Pay", thread_id=thread, label=label).checkpoint
        return waits

    def size(self, *run_ids: str) -> int:
        """The number of checkpoints of these runs."""
        return sum(len(self.store.list(run_id=run_id)) for run_id in run_ids)

    def runs(self) -> list[str]:
        """The ids of the runs in the store."""
        return list(dict.fromkeys(branch.run_id for branch in self.store.branches()))

    def test_a_run_that_has_ended_is_deleted_whole_by_its_id(self) -> None:
        """Its forks, its checkpoints, what waits; not the trail."""
        store = self.store
        gone, kept = self.ended("t"), self.ended("u")
        past = [info.id for info in store.list(run_id=gone)]
        fork = self.clerk("x").fork(past[1])
        assert store.delete("none") is store.delete("") is False
        with refused(StillNeeded) as needed:
            store.delete(gone)
        assert (needed.value.run_id, needed.value.branch_id) == (gone, fork.branch_id)
        self.clerk("x").cancel(fork)
        trail, rest = list(store.audit()), texts(store, kept)
        assert store.delete(gone) is True
        assert (self.runs(), list(store.audit()), texts(store, kept)) == ([kept], trail, rest)
        for id in past:
            with refused(CheckpointNotFound):
                self.reopened().load(id)
        assert store.latest("t") is None
        assert store.delete(gone) is store.delete(past[-1]) is store.delete(fork.branch_id) is False

    def test_a_branch_is_deleted_by_its_id_or_by_its_last_checkpoint(self) -> None:
        """And by no other of its checkpoints: what follows needs it."""
        store = self.store
        run_id = self.ended("t")
        past = [info.id for info in store.list(run_id=run_id)]
        forks = [self.clerk("x").cancel(self.clerk("x").fork(past[1])).checkpoint for _ in range(2)]
        before = everything(store)
        for id in (past[0], past[-2], forks[0].parent_id):
            for force in (False, True):
                with refused(StillNeeded) as needed:
                    store.delete(str(id), force=force)
                assert needed.value.run_id == run_id
        assert everything(store) == before
        assert store.delete(forks[0].branch_id) is True
        assert store.delete(forks[1].id) is True
        assert [branch.id for branch in store.branches(run_id=run_id)] == [run_id]
        assert [info.id for info in store.list(run_id=run_id)] == past

    def test_what_waits_is_deleted_by_force_alone(self) -> None:
        """Then nobody can decide it any more."""
        store = self.store
        waits = self.open("t")
        before = everything(store)
        with refused(StillNeeded) as needed:
            store.delete(waits.run_id)
        assert (needed.value.run_id, needed.value.branch_id) == (waits.run_id, waits.run_id)
        assert everything(store) == before
        assert store.delete(waits.run_id, force=True) is True
        assert store.pending() == [] and store.count() == 0
        with refused(CheckpointNotFound):
            self.clerk("x").resume(waits.id, approved=True)

    def test_what_a_worker_holds_is_not_deleted(self) -> None:
        """Not by force: False, and nothing has changed; it can be, once the lease is over."""
        store = self.store
        waits = self.open()
        store.append(Append(branch_id=waits.run_id, seq=branch_of(store, waits.run_id).seq, take="w", lease=5.0))
        before = everything(store)
        assert store.delete(waits.run_id, force=True) is False
        assert store.clear() == 0
        assert everything(store) == before
        self.clock.now += 5.0
        assert store.delete(waits.run_id, force=True) is True

    def test_clearing_takes_all_that_nobody_waits_for_or_works_on(self) -> None:
        """Labels or not; the number is that of checkpoints."""
        store = self.store
        gone = [self.ended("t"), self.ended(label="gold"), self.ended("u")]
        waits, count = self.open("u"), self.size(*gone)
        whole = texts(store, waits.run_id)
        begin(store, "running", row("r1"), head="r1")
        begin(store, "failed", row("r2"), head="r2", status="failed")
        assert store.clear() == count > 10
        assert self.runs() == [waits.run_id, "running", "failed"]
        assert texts(self.reopened(), waits.run_id) == whole
        assert store.clear() == 0

    def test_pruning_takes_what_ended_longer_ago(self) -> None:
        """Than that many seconds; not what ended just so long ago; a run with all its branches or not at all."""
        store = self.store
        one, two, three = (self.ended(at=1000.0 + number) for number in range(3))
        forked, fork_of = self.ended(at=1000.0), self.clerk("x")
        fork = fork_of.fork(store.list(run_id=forked)[1].id)
        self.clock.now = 1010.0
        assert store.prune(older_than=10.0) == 0
        count = self.size(one)
        assert store.prune(older_than=9.0) == count
        assert self.runs() == [two, three, forked]
        fork_of.cancel(fork)
        self.clock.now = 1015.0
        assert store.prune(older_than=14.0) == 0
        count = self.size(two, three)
        assert store.prune(older_than=5.0) == count
        assert self.runs() == [forked]
        count = self.size(forked)
        assert store.prune() == count
        assert self.runs() == []
        for wrong in (-1.0, float("nan"), float("inf")):
            with refused(StoreError):
                store.prune(older_than=wrong)
        bad: tuple[Any, ...] = (-1, 1.0, True, None)
        for wrong_last in bad:
            with refused(StoreError):
                store.prune(keep_last=wrong_last)

    def test_pruning_spares_labels_unless_told_not_to(self) -> None:
        """Any checkpoint of the run, that of a fork too."""
        store = self.store
        plain, gold, forked = self.ended(), self.ended(label="gold"), self.ended()
        agent = self.clerk("x")
        agent.cancel(agent.fork(store.list(run_id=forked)[1].id, label="fork"))
        count = self.size(plain)
        assert store.prune() == count
        assert self.runs() == [gold, forked]
        count = self.size(gold, forked)
        assert store.prune(keep_labeled=False) == count
        assert self.runs() == []

    def test_pruning_spares_the_last_runs_of_each_thread(self) -> None:
        """As many as that; a run without a thread is nobody's last."""
        store = self.store
        runs = [self.ended(thread) for thread in ("t", "u", "t", None, "t", "v")]
        assert store.prune(keep_last=2) > 0
        assert self.runs() == [runs[1], runs[2], runs[4], runs[5]]
        store.prune(keep_last=1)
        assert self.runs() == [runs[1], runs[4], runs[5]]
        waits = self.open("t")
        store.prune(keep_last=1)
        assert self.runs() == [runs[1], runs[5], waits.run_id]

    def test_a_run_stays_whole_when_those_before_it_in_its_thread_are_taken_away(self) -> None:
        """Byte for byte: loaded, listed, and carried on as if they were there."""
        store = self.store
        past = [self.ended("t") for _ in range(3)]
        waits = self.open("t", label="gold")
        before, history = texts(store, waits.run_id), store.history(waits.id)
        listed, waiting = store.list(run_id=waits.run_id), store.pending()
        assert [info.label for info in listed] == ["gold", None]
        for run_id in (past[1], past[0], past[2]):
            assert store.delete(run_id) is True
            for each in (store, self.reopened()):
                assert texts(each, waits.run_id) == before
                assert (each.list(run_id=waits.run_id), each.pending()) == (listed, waiting)
        own = [found for found in history if found.run_id == waits.run_id]
        assert store.history(waits.id) == own
        branch = branch_of(store, waits.run_id)
        assert (branch.parent_branch, branch.seq - branch.parent_seq > 0) == (None, True)
        result = self.clerk("Paid.").resume(waits.id, approved=True)
        assert result.output == "Paid."
        assert [message.role for message in result.messages].count("user") == 4
        again = self.clerk("Hello.").invoke("Again", thread_id="t")
        assert again.messages[: len(result.messages)] == result.messages

    def test_the_next_run_of_a_thread_stays_whole_when_it_went_on_from_a_fork(self) -> None:
        """The fork, and what it was a fork of, go together."""
        store = self.store
        first = self.ended("t")
        agent = self.clerk("Paid after all.", PAY)
        fork = agent.fork(next(info.id for info in store.list(run_id=first) if store.load(info.id).pending))
        self.clock.now += 1
        ended = agent.resume(fork, approved=True)
        assert store.latest("t") == ended.checkpoint
        waits = agent.invoke("Again", thread_id="t").checkpoint
        assert branch_of(store, waits.run_id).parent_branch == fork.branch_id
        before, count = texts(store, waits.run_id), self.size(first)
        assert store.clear() == count
        assert self.runs() == [waits.run_id]
        assert texts(self.reopened(), waits.run_id) == before

    def nested(self) -> tuple[Checkpoint, Checkpoint]:
        """Make a run with a nested agent that asks, and a fork of it that has gone further. Both wait."""
        identity = ToolIdentity(name="pay", schema_hash="h", gate="always")
        at = datetime(2026, 3, 1, tzinfo=UTC)
        where: dict[str, Any] = {"run_id": "r1", "branch_id": "r1", "created_at": at, "agent": AgentRef(name="clerk")}
        user = Message(role="user", content="Pay ☃")
        what: dict[str, Any] = {"tool": identity, "args": canonical({}), "digest": call_digest(identity, "{}")}
        asks: dict[str, Any] = {"name": "pay", "status": "pending", "pending_id": "p1", "requested_at": at}
        inner = Call(id="2.0", call_id="i1", **asks, **what)
        said = Message(role="assistant", content="", tool_calls=(ToolCall(id="o1", name="ask", arguments="{}"),))
        child = Checkpoint(id="n1", path="1.0", original_input="Pay", messages=(user,), calls=(inner,), **where)
        waiting = (pending_of(inner, "1.0"),)
        outer = Call(id="1.0", call_id="o1", name="ask", status="nested", waiting=waiting, **what)
        start = Checkpoint(id="c0", original_input="Pay", messages=(user,), **where)
        stop = start.evolve(id="c1", parent_id="c0", step=1, messages=(user, said), calls=(outer,))
        entries = (row_entry(None, start, {}), row_entry(None, child, {}), row_entry(start, stop, {}))
        begin(self.store, "r1", *entries, head="c1", status="suspended")
        fork = self.clerk("x").fork("c1")
        part = fork.nested[0]
        paid = CallResult(kind="completed", content="paid 5.0")
        settled = CallSettled(id="2.0", call_id="i1", key="k", result=paid, elapsed=1)
        further = part.evolve(id="n2", parent_id=part.id, step=part.step + 1, messages=(user, user))
        noted = canonical({"b": 5.0, "a": 1})
        last = fork.evolve(id="c2", parent_id=fork.id, step=fork.step + 1, nested=(), metadata=noted)
        sealed = fork.evolve(nested=(), journal=())
        branch = branch_of(self.store, fork.branch_id)
        entries = (row_entry(sealed, last, {}), journal_entry(settled, "1.0"), row_entry(part, further, {}))
        change = Append(branch_id=branch.id, seq=branch.seq, take="me", release=True, head="c2", entries=entries)
        self.store.append(change)
        return stop, self.store.load("c2")

    def test_a_fork_with_runs_nested_in_it_stays_whole_without_what_it_forked(self) -> None:
        """Byte for byte, the runs inside it too, and what is journaled in them."""
        store = self.store
        stop, last = self.nested()
        assert last.nested[0].messages[1:] and last.metadata == {"b": 5.0, "a": 1}
        own = [info.id for info in store.list() if info.branch_id == last.branch_id]
        before = {id: store.load(id).model_dump_json() for id in own}
        assert len(before) == 2
        with refused(StillNeeded):
            store.delete(stop.id)
        assert store.delete(stop.id, force=True) is True
        for each in (store, self.reopened()):
            assert {id: each.load(id).model_dump_json() for id in own} == before
            assert [info.id for info in each.list()] == own
        assert [branch.id for branch in store.select_branches(BranchFilter())] == [last.branch_id]
        again = self.clerk("x").fork(last.id)
        assert [part.path for part in again.nested] == ["1.0"]

    def test_recovering_takes_away_what_is_older_than_the_store_keeps(self, driver: str) -> None:
        """By the store's `ttl`, labels spared; without one, nothing goes."""
        old, gold = self.ended(), self.ended(label="gold")
        young = self.ended(at=1050.0)
        waits = self.open()
        self.clock.now = 1101.0
        assert self.drive(driver, self.clerk("x"), "recover_all") == []
        assert self.runs() == [old, gold, young, waits.run_id]
        self.store.ttl = 100.0
        assert self.drive(driver, self.clerk("x"), "recover_all") == []
        assert self.runs() == [gold, young, waits.run_id]
        if self.durable:
            keeps = self.opened(ttl=50.0)
            assert self.drive(driver, self.clerk("x", store=keeps), "recover_all") == []
            assert self.runs() == [gold, waits.run_id]
