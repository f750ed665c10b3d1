"""Tests of a store: what is built on its primitives, with runs of an agent in it."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from phronomy.errors import CheckpointError, CheckpointNotFound, StoreError, WaitTimeout
from phronomy.records.audit import AuditRecord
from phronomy.records.checkpoint import AgentRef, Checkpoint
from phronomy.records.decisions import Approve, PendingApproval
from phronomy.records.messages import Message
from phronomy.records.result import Result
from phronomy.stores.derived.listing import Page, Waiting
from phronomy.stores.log.log import row_entry
from phronomy.stores.memory import MemoryStore
from phronomy.stores.rows import Append, AuditFilter
from phronomy.testing.scripted import call
from phronomy.testing.store_contract.base import (
    StoreTests,
    asked,
    begin,
    beside,
    branch_of,
    end,
    everything,
    line,
    refused,
    row,
    together,
)

PAY = call("pay", {"amount": 5.0, "to": "Zoë\u2028\x00"}, id="c1")
LOOK = call("look", {"at": "☃\n"}, id="c2")
T = TypeVar("T")

BAD_LIMITS: tuple[Any, ...] = (0, -1, True, 1.0, "3")
BAD_CURSORS: tuple[Any, ...] = (
    *("", "x", "WyJwIiwx", "é", "\ud800", "W10", "bnVsbA", "W1tbW1tb", 7, b"x", "next", "=" * 9),
)


def text(checkpoint: Checkpoint) -> str:
    """The bytes of a checkpoint."""
    return checkpoint.model_dump_json()


def sealed(id: str, **fields: Any) -> Checkpoint:
    """A checkpoint of run r1, made by hand."""
    said = Message(role="user", content="hello")
    first = {"branch_id": "r1", "run_id": "r1", "created_at": datetime(2026, 3, 1, tzinfo=UTC)}
    return Checkpoint(
        id=id, agent=AgentRef(name="clerk"), **{**first, "original_input": "hello", "messages": (said,), **fields}
    )


def pages(ask: Callable[..., Page[T]], limit: int, **given: object) -> list[T]:
    """The items of all pages put together."""
    found: list[T] = []
    after = None
    while True:
        page = ask(limit=limit, after=after, **given)
        assert len(page) == limit or (page.next is None and len(page) <= limit)
        assert not any(each in found for each in page), "a page begins with what the one before it held"
        found += page
        if page.next is None:
            return found
        after = page.next


class LoadTests(StoreTests):
    """Tests that checkpoints are loaded as they were stored, by any store object over the same data."""

    def paid(self, **options: Any) -> Result[Any]:
        """Make a run that has looked, has paid after an approval, and has ended."""
        agent = self.clerk([LOOK, PAY], "Paid.")
        waits = agent.invoke("Pay Zoë 5.0", **options)
        assert waits.suspended
        result: Result[Any] = agent.resume(waits.checkpoint, approved=True, by="ann", channel="web")
        assert result.output == "Paid."
        return result

    def test_each_checkpoint_of_a_run_is_loaded_as_it_was_sealed(self) -> None:
        """Byte for byte: what the run gave at each step is what another object loads."""
        agent = self.clerk([LOOK, PAY], "Paid.")
        result = agent.step("Pay Zoë 5.0", thread_id="t")
        made = [result.checkpoint]
        while result.status in ("running", "suspended"):
            approved = True if result.suspended else None
            result = agent.step(result.checkpoint, approved=approved)
            made.append(result.checkpoint)
        assert len(made) > 4
        again = self.reopened()
        for checkpoint in made:
            loaded = again.load(checkpoint.id)
            assert text(loaded.evolve(journal=(), nested=())) == text(checkpoint.evolve(journal=(), nested=()))
            branch, located = again.locate(checkpoint.id)
            assert (text(located), branch.id, branch.head) == (text(loaded), result.run_id, made[-1].id)
        past = again.history(made[-1].id)
        assert [found.id for found in past] == [checkpoint.id for checkpoint in made]
        assert [found.parent_id for found in past] == [None, *(checkpoint.id for checkpoint in made[:-1])]
        assert [text(found) for found in again.history(made[2].id)[:2]] == [text(found) for found in past[:2]]
        assert [found.id for found in again.history(made[2].id)] == [checkpoint.id for checkpoint in made[:3]]
        for found, next_one in itertools.pairwise(past):
            assert [child.id for child in again.children(found.id)] == [next_one.id]
        assert again.children(made[-1].id) == []
        assert text(again.head(result.run_id)[1]) == text(again.load(made[-1].id))

    def test_values_keep_their_bytes(self) -> None:
        """5.0 stays 5.0 and 1e22 what it was, keys stay in their order, text stays text."""
        metadata = {"z": 5.0, "a": 1e22, "ü": [0.1 + 0.2, 5, True, None, "☃\x00\t\u2028"], "": {"b": 1, "a": -0.0}}
        result = self.paid(metadata=metadata, label="gold", thread_id="t")
        for store in (self.store, self.reopened()):
            found = store.load(result.checkpoint.id)
            assert json.dumps(found.metadata) == json.dumps(metadata)
            assert found.messages[1].tool_calls[1].arguments == PAY.arguments
            assert [message.content for message in found.messages[2:4]] == ["seen ☃\n", "paid 5.0"]
            assert text(found) == text(result.checkpoint)
            assert Checkpoint.model_validate_json(text(found)) == result.checkpoint

    def test_the_latest_of_a_thread_is_the_last_checkpoint_of_the_branch_that_ended_last(self) -> None:
        """Not of one that was begun later, nor of one that has not ended."""
        store = self.store
        assert store.latest("t") is None
        one = self.paid(thread_id="t")
        assert text(store.latest("t") or one.checkpoint) == text(one.checkpoint)
        self.clock.now = 1001.0
        two = self.paid(thread_id="t")
        first, second = (self.reopened().history(each.checkpoint.id) for each in (one, two))
        assert second[: len(first)] == first and {each.run_id for each in second[len(first) :]} == {two.run_id}
        latest = store.latest("t")
        assert latest is not None and text(latest) == text(two.checkpoint)
        fork = self.clerk("x").fork(store.history(one.checkpoint.id)[2].id)
        assert store.latest("t") == latest and store.latest("u") is None
        self.clock.now = 1002.0
        ended = self.clerk("Done.").cancel(fork.id)
        assert store.latest("t") == ended.checkpoint
        assert store.head(one.run_id)[1] == one.checkpoint

    def test_the_trail_says_who_has_started_a_branch(self) -> None:
        """At which checkpoint, and after the branch is deleted as well."""
        waits = self.clerk(PAY).invoke("Pay").checkpoint
        fork = self.store.fork(waits.id, by="rita")
        found = [each for each in self.reopened().audit(run_id=waits.run_id) if each.kind == "fork"]
        assert [(each.by and each.by.id, each.branch_id, each.checkpoint_id) for each in found] == [
            ("rita", fork.branch_id, waits.id)
        ]
        assert self.store.delete(fork.branch_id, force=True) and [*self.store.audit()] == found

    def test_a_log_that_does_not_lead_anywhere_is_told_apart_from_a_missing_one(self) -> None:
        """`CheckpointError`, not what is in it."""
        begin(self.store, "b1", row("c1", body='{"secret'))
        for ask in (self.store.load, self.store.history, self.store.locate):
            with refused(CheckpointError) as caught:
                ask("c1")
            assert not isinstance(caught.value, CheckpointNotFound)
            assert "secret" not in str(caught.value)

    def test_a_checkpoint_from_elsewhere_is_taken_in_as_a_branch_of_its_own(self) -> None:
        """With what waits in it and is nested in it; a second time changes nothing."""
        store, elsewhere = self.store, MemoryStore(clock=self.clock)
        waits = self.clerk([PAY, LOOK], store=elsewhere).invoke("Pay", thread_id="t").checkpoint
        inner = waits.evolve(id="n0", path="1.0", messages=waits.messages[:1])
        bearer = waits.evolve(nested=(inner,), journal=())
        store.save(bearer)
        assert text(self.reopened().load(waits.id)) == text(bearer)
        branch = branch_of(store, waits.run_id)
        assert (branch.status, branch.head, branch.owner, branch.seq) == ("suspended", waits.id, None, 2)
        assert [found.approval.id for found in store.pending(run_id=waits.run_id)] == [waits.pending[0].id]
        before = everything(store)
        store.save(bearer)
        assert everything(store) == before

        other = waits.evolve(id="other", calls=(), label=None)
        store.save(other)
        assert branch_of(store, "other").status == "failed"
        assert [branch.id for branch in store.branches(run_id=waits.run_id)] == [waits.run_id, "other"]
        assert text(store.load("other")) == text(other)
        paid = self.clerk("Paid.").resume(waits.id, approved=True, accept_changes=True)  # nothing runs inside its tools
        assert paid.output == "Paid."


class ListTests(StoreTests):
    """Tests of pages, of the audit trail, and of waiting for a run."""

    def waits(self) -> list[Waiting]:
        """Make nine runs that wait, three at the same time, and return them as they are listed."""
        for number in range(9):
            self.clock.now = 1000.0 + number // 3
            agent = self.clerk(PAY, name=("clerk", "other")[number % 2])
            agent.invoke("Pay", thread_id=f"t{number}", label=("gold", "☃", None)[number % 3])
        self.clock.now = 1010.0
        found = self.store.pending()
        assert found.next is None and len(found) == 9
        return found

    def test_what_waits_is_listed_with_all_that_is_needed_to_decide_it(self) -> None:
        """By each thing that is said of it, by age, either way round, and counted."""
        store = self.store
        found = self.waits()
        assert [each.thread_id for each in found] == [f"t{number}" for number in range(9)]
        first = found[0]
        assert first == Waiting(
            approval=store.load(first.checkpoint_id).pending[0],
            checkpoint_id=branch_of(store, first.run_id).head or "",
            run_id=first.run_id,
            branch_id=first.run_id,
            thread_id="t0",
            agent="clerk",
            label="gold",
        )
        asks: list[tuple[dict[str, Any], list[int]]] = [
            ({"agent": "other"}, [1, 3, 5, 7]),
            ({"label": "☃"}, [1, 4, 7]),
            ({"label": "gold", "agent": "clerk"}, [0, 6]),
            ({"tool": "pay", "risk": "high", "thread_id": "t8"}, [8]),
            ({"run_id": found[4].run_id}, [4]),
            ({"tool": "look"}, []),
            ({"older_than": 9.0}, [0, 1, 2, 3, 4, 5]),
            ({"older_than": 9.5}, [0, 1, 2]),
            ({"newer_than": 9.0}, [3, 4, 5, 6, 7, 8]),
            ({"newer_than": 9.0, "older_than": 9.0}, [3, 4, 5]),
            ({"newer_than": 8.5, "agent": "other"}, [7]),
        ]
        for asked_for, numbers in asks:
            expected = [found[number] for number in numbers]
            assert store.pending(**asked_for) == expected, asked_for
            assert store.pending(**asked_for, newest=True) == expected[::-1]
            assert store.count(**asked_for) == len(numbers)
        assert store.count() == 9

    def test_pages_of_what_waits_are_whole_and_not_disturbed_by_decisions(self) -> None:
        """Whatever is decided between two of them, before or behind the place."""
        store = self.store
        found = self.waits()
        for newest in (False, True):
            whole = found[::-1] if newest else found
            for limit in (1, 2, 3, 9, 10):
                assert pages(store.pending, limit, newest=newest) == whole
        assert pages(store.pending, 1, agent="other") == [found[number] for number in (1, 3, 5, 7)]
        first = store.pending(limit=4)
        for number in (0, 3, 4, 8):
            self.clerk(name=found[number].agent).cancel(found[number].run_id)
        rest = store.pending(limit=4, after=first.next)
        assert (rest, rest.next) == ([found[5], found[6], found[7]], None)

    def test_a_limit_or_a_cursor_that_is_none_is_refused(self) -> None:
        """Whatever somebody puts into a URL; the cursor of another list is none either."""
        store = self.store
        self.waits()
        asks: tuple[Callable[..., Page[Any]], ...] = (store.pending, store.list)
        for ask in asks:
            for limit in BAD_LIMITS:
                with refused(StoreError):
                    ask(limit=limit)
            for after in BAD_CURSORS:
                with refused(StoreError):
                    ask(after=after)
        here, there = store.pending(limit=1).next, store.list(limit=1).next
        with refused(StoreError):
            store.pending(after=there)
        with refused(StoreError):
            store.list(after=here)
        odd = ('["c", 1.0, 3]', '["p", 3]', '["x", 1.0, 3]', '["p", NaN, 1]', '["p", 1e999, 1]', '{"p": 1}')
        for forged in (*odd, '["p", 1.0, true]', f'["p", 1.0, {2**70}]', f'["c", {2**70}]', f'["c", -{2**70}]'):
            made = base64.urlsafe_b64encode(forged.encode()).decode().rstrip("=")
            for ask in asks:
                with refused(StoreError):
                    ask(after=made)

    def test_checkpoints_are_listed_in_pages(self) -> None:
        """By run, thread, agent and label, with when and where each was made."""
        store = self.store
        found = self.waits()
        kept = store.list()
        assert [each.id for each in kept if each.branch_id == found[3].run_id] == [
            each.id for each in store.history(found[3].checkpoint_id)
        ]
        for info in kept[::5]:
            whole = store.load(info.id)
            assert info.agent == whole.agent.name
            for name in ("label", "created_at", "run_id", "branch_id", "thread_id"):
                assert getattr(info, name) == getattr(whole, name), name
        for limit in (1, 4, 100):
            wants: tuple[dict[str, Any], ...] = ({}, {"agent": "other"}, {"labeled": True})
            for given in wants:
                assert pages(store.list, limit, **given) == store.list(**given)
        assert {each.label for each in store.list(labeled=True)} == {"gold", "☃"}
        assert {each.thread_id for each in store.list(label="gold")} == {"t0", "t3", "t6"}
        assert {each.run_id for each in store.list(thread_id="t1")} == {found[1].run_id}
        assert store.list(run_id="none") == []

    def test_the_trail_is_read_however_long_it_is(self) -> None:
        """Each line once, in order, with every filter."""
        store = self.store
        agent = self.clerk([PAY, LOOK], "Paid.")
        waits = agent.invoke("Pay", thread_id="t").checkpoint
        agent.resume(waits, approved=True, by="ann", channel="web")
        (record,) = store.audit()
        assert (record.pending_id, record.kind, record.thread_id) == (waits.pending[0].id, "approve", "t")
        copies = [record.model_copy(update={"pending_id": f"p{number}"}) for number in range(1203)]
        lines = tuple(
            line(float(number), record.run_id, "t" if number % 2 else None, copy.pending_id, copy.model_dump_json())
            for number, copy in enumerate(copies)
        )
        begin(store, "b1", audit=lines)
        assert list(store.audit()) == [record, *copies]
        assert list(store.audit(thread_id="t")) == [record, *copies[1::2]]
        assert list(store.audit(pending_id="p7")) == copies[7:8]
        assert list(store.audit(since=5.0, until=600.0)) == copies[5:601]
        assert AuditRecord.model_validate_json(record.model_dump_json()) == record

    def test_what_is_damaged_is_named_and_not_quoted(self) -> None:
        """A request, a line of the trail, a checkpoint."""
        store = self.store
        bad = '{"secret'
        begin(store, "b1", row("c1", body=bad), opened=(asked("p1", body=bad),), audit=(line(1.0, body=bad),))
        waiting, kept, trail = store.pending(), store.list(), list(store.audit())
        assert (waiting, kept, [each.kind for each in trail]) == ([], [], ["unreadable"])
        told = [*map(str, (*waiting.unreadable, *kept.unreadable)), str(trail[0].reason)]
        assert all("damaged" in each and "secret" not in each for each in told)
        assert "p1" in told[0] and "c1" in told[1]
        assert [found.n for found in store.select_audit(AuditFilter())] == [store.select_audit(AuditFilter())[0].n]

    def look(self, driver: str, run_id: str, **options: Any) -> Checkpoint:
        """Call `wait`, or its async twin `await_`."""
        if driver == "sync":
            return self.store.wait(run_id, **options)
        return self.run(self.store.await_(run_id, **options))

    def test_waiting_for_a_run_ends_when_it_has_ended(self, driver: str) -> None:
        """However it ends; being suspended or failed counts if that is asked for."""
        store = self.store
        waits = self.clerk(PAY).invoke("Pay").checkpoint
        with refused(WaitTimeout) as late:
            self.look(driver, waits.run_id, timeout=0)
        assert (late.value.run_id, late.value.status) == (waits.run_id, "suspended")
        assert self.look(driver, waits.run_id, timeout=0, stops=True) == store.load(waits.id)
        fork = self.clerk("x").fork(waits)
        store.decide(waits.pending[0].id, Approve(), by="rita", digest=waits.pending[0].digest)
        with refused(WaitTimeout) as decided:  # it waits for a worker, and no longer for a human
            self.look(driver, waits.run_id, timeout=0, stops=True)
        assert "left for a worker" in str(decided.value)
        ended = self.clerk("Paid.").recover(waits.run_id).checkpoint
        assert self.look(driver, waits.run_id, timeout=0) == ended
        with refused(WaitTimeout):
            self.look(driver, fork.branch_id, timeout=0)
        assert self.look(driver, fork.branch_id, stops=True).branch_id == fork.branch_id
        begin(store, "b1", row_entry(None, sealed("c1"), {}), head="c1", run="r1", status="failed")
        with refused(WaitTimeout):
            self.look(driver, "b1", timeout=0)
        assert self.look(driver, "b1", stops=True).id == "c1"
        with refused(CheckpointNotFound) as gone:
            self.look(driver, "none", timeout=0)
        assert gone.value.id == "none"
        for wrong in (-1.0, float("nan")):
            with refused(StoreError):
                self.look(driver, waits.run_id, timeout=wrong)

    def test_waiting_for_a_run_that_somebody_else_ends(self) -> None:
        """In another thread, and in another task: the event loop goes on meanwhile."""
        one, two, three = (self.clerk(PAY).invoke("Pay").run_id for _ in range(3))
        other = self.reopened()
        with beside(lambda: self.clerk(store=other).cancel(one)):
            assert self.store.wait(one, timeout=60).ended == "cancelled"
        found, ended = self.run(together(self.store.await_(two, timeout=60), self.clerk().acancel(two)))
        assert found == ended.checkpoint
        with beside(lambda: other.delete(three, force=True)), refused(CheckpointNotFound):
            self.store.wait(three, timeout=60)

    def test_a_request_says_what_is_in_its_record(self) -> None:
        """And is found by it."""
        waits = self.clerk(PAY, approval_timeout=30.0).invoke("Pay", thread_id="t").checkpoint
        (found,) = self.store.pending_rows()
        approval = PendingApproval.model_validate_json(found.body)
        assert approval == waits.pending[0]
        assert (found.requested_at, found.expires_at, found.risk) == (1000.0, 1030.0, "high")
        assert (found.tool_name, found.agent, found.label) == ("pay", "clerk", None)
        seq = branch_of(self.store, waits.run_id).seq
        end_ = Append(branch_id=waits.run_id, seq=seq, take="me", release=True, closed=(found.pending_id,))
        self.store.append(end_)
        assert self.store.pending_rows() == []
        end(self.store, waits.run_id, "cancelled")
        assert self.store.latest("t") is not None
