"""A worker's hold on a run, as the worker sees it."""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime

import pytest

from phronomy import CheckpointNotFound, LeaseLost, MemoryStore
from phronomy.concurrency.superfluous import Signal
from phronomy.engine.ledger import Ledger
from phronomy.engine.shared import Shared
from phronomy.records.calls import Ending
from phronomy.records.checkpoint import AgentRef, Checkpoint
from phronomy.stores.log.log import journal_entry, row_entry
from phronomy.stores.rows import Append, Branch

AT = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_worker_hears_what_others_wrote_of_the_run_and_not_what_is_of_a_run_inside() -> None:
    store = MemoryStore()
    head = Checkpoint(
        id="c1", run_id="r1", branch_id="r1", created_at=AT, agent=AgentRef(name="clerk"), original_input="hi"
    )
    branch = Branch.of(head)
    store.create(branch, Append(branch_id="r1", seq=0, entries=(row_entry(None, head, {}),)), exclusive=False)
    ledger = Ledger(store, store.branches()[0], head)
    signal = ledger.shared.signal("1.0")

    inside = Ending(status="cancelled", reason="inside", at=AT)
    store.append(Append(branch_id="r1", seq=1, take="me", entries=(journal_entry(inside, "2.0"),), release=True))
    ledger.catch_up()
    assert (ledger.seq, ledger.inbox, ledger.shared.ending, signal.is_set()) == (2, [], None, False)

    ending = Ending(status="cancelled", reason="enough", at=AT)
    store.append(Append(branch_id="r1", seq=2, take="me", entries=(journal_entry(ending, ""),), release=True))
    ledger.catch_up()
    assert (ledger.seq, ledger.inbox, ledger.shared.ending, signal.is_set()) == (3, [ending], ending, True)


def test_a_worker_whose_run_was_taken_over_and_deleted_hears_that_it_lost_it() -> None:
    """Not that the store knows no such run: what this worker was told to do may stand in the audit trail."""
    store = MemoryStore()
    head = Checkpoint(
        id="c1", run_id="r1", branch_id="r1", created_at=AT, agent=AgentRef(name="clerk"), original_input="hi"
    )
    row = Append(branch_id="r1", seq=0, entries=(row_entry(None, head, {}),))
    store.create(Branch.of(head), row, exclusive=False)
    never_held = Ledger(store, store.branches()[0], head)
    ledger = Ledger(store, store.branches()[0], head)
    ending = Ending(status="cancelled", reason="enough", at=AT)
    assert ledger.write(lambda: ledger.change([journal_entry(ending, "")]), lambda: None)
    claim = ledger.claim
    assert claim is not None
    store.release(claim, "failed")
    store.delete("r1", force=True)

    with pytest.raises(LeaseLost, match="taken over by another worker, and is deleted by now"):
        ledger.catch_up()
    with pytest.raises(LeaseLost, match="taken over by another worker, and is deleted by now"):
        ledger.catch_up()
    with pytest.raises(CheckpointNotFound):
        never_held.catch_up()


def test_whatever_runs_is_called_off_while_other_calls_begin() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that threads change in the middle of whatever takes several steps
    try:
        for _ in range(60):
            shared = Shared(
                Checkpoint(
                    id="c1", run_id="r1", branch_id="r1", created_at=AT, agent=AgentRef(name="a"), original_input="hi"
                )
            )
            made = [[shared.signal(f"{turn}.0") for turn in range(200)]]
            begins = threading.Barrier(3)

            def add(shared: Shared, begins: threading.Barrier, made: list[list[Signal]]) -> None:
                begins.wait()
                made.append([shared.signal(f"{turn}.1") for turn in range(200)])

            threads = [threading.Thread(target=add, args=(shared, begins, made)) for _ in range(2)]
            for thread in threads:
                thread.start()
            begins.wait()
            shared.call_off()
            for thread in threads:
                thread.join()
            assert all(signal.is_set() for signals in made for signal in signals)
    finally:
        sys.setswitchinterval(before)
