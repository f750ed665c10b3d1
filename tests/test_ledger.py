"""A worker's hold on a run, as the worker sees it."""

from __future__ import annotations

from datetime import UTC, datetime

from phronomy import MemoryStore
from phronomy.engine.ledger import Ledger
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
    signal = ledger.signal("1.0")

    inside = Ending(status="cancelled", reason="inside", at=AT)
    store.append(Append(branch_id="r1", seq=1, take="me", entries=(journal_entry(inside, "2.0"),), release=True))
    ledger.catch_up()
    assert (ledger.seq, ledger.inbox, ledger.ending, signal.is_set()) == (2, [], None, False)

    ending = Ending(status="cancelled", reason="enough", at=AT)
    store.append(Append(branch_id="r1", seq=2, take="me", entries=(journal_entry(ending, ""),), release=True))
    ledger.catch_up()
    assert (ledger.seq, ledger.inbox, ledger.ending, signal.is_set()) == (3, [ending], ending, True)
