"""A small part of the random walk over branches, the same each time: `python tests/branch_walk.py` goes further."""

from __future__ import annotations

from pathlib import Path

import pytest
from branch_walk import A_ROUND, KINDS, Walk, Wrong, walk
from drivers import STORES, open_kind

from phronomy.records.decisions import Approve
from phronomy.stores.base import Store


@pytest.mark.parametrize("kind", STORES)
def test_whatever_is_done_with_branches_they_can_be_read_and_ended(kind: str, tmp_path: Path) -> None:
    rounds = 1
    made = iter(range(rounds))

    def make() -> Store:
        folder = tmp_path / str(next(made))
        folder.mkdir()
        return open_kind(kind, folder)

    counts = walk("every day", rounds * A_ROUND, make)
    assert sum(count for name, count in counts.items() if " " not in name) == rounds * A_ROUND
    assert min(counts[each] for each in ("fork", "restore", "die", "decide", "message")) > 0


def test_the_walk_finds_a_branch_that_cannot_be_read_and_a_decision_that_is_lost() -> None:
    a_walk = Walk("judged")
    waits = a_walk.agents[KINDS[0]].invoke("Pay").checkpoint
    item = waits.pending[0]
    a_walk.store.decide(item.id, Approve(), by="ada", digest=item.digest)
    a_walk.decided[item.id] = "Approve"
    with pytest.raises(Wrong, match=f"request {item.id} was decided"):
        a_walk._check_decided()
    with pytest.raises(Wrong, match="branch b cannot be read"):
        a_walk.check("b")
