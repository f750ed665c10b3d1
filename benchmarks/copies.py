"""What measurements on a server share: copies of a run that waits, each of which can be carried out, and the memory of a process."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from phronomy import Agent, MemoryStore, Store
from phronomy.stores import Append, Branch


class Runs:
    """Copies of a run that waits, each with an order of its own."""

    def __init__(self, payer: Callable[[Store], Agent[Any, str]]) -> None:
        store = MemoryStore()
        checkpoint = payer(store).invoke("Pay").checkpoint
        item = checkpoint.pending[0]
        (self.row,) = store.pending_rows()
        found = store.lineage(branch_id=checkpoint.run_id)
        self.branch, self.entries = found.branch, found.entries
        kept = (item.tool.schema_hash, item.description_hash)
        self.texts = tuple(text for digest in kept if digest and (text := store.kept_text(digest)) is not None)
        self.ids = {checkpoint.run_id, item.id} | {each.checkpoint_id for each in self.entries if each.checkpoint_id}

    def copy(self, number: int) -> tuple[Branch, Append]:
        """A run like it."""
        new = {old: f"{old.partition('_')[0]}_{number:012d}{old[-6:]}" for old in self.ids}

        def renamed(text: str | None) -> Any:
            for old, other in new.items():
                text = text.replace(old, other) if text is not None else None
            return text

        branch = replace(
            self.branch, id=renamed(self.branch.id), run_id=renamed(self.branch.run_id), seq=0, head=None,
            owner=None, fence=0, status="running",
        )  # fmt: skip
        entries = [
            replace(each, body=renamed(each.body), checkpoint_id=renamed(each.checkpoint_id), branch_id="", seq=0)
            for each in self.entries
        ]
        asked = replace(
            self.row, pending_id=renamed(self.row.pending_id), branch_id=branch.id, run_id=branch.run_id,
            checkpoint_id=renamed(self.row.checkpoint_id), body=renamed(self.row.body), n=0,
        )  # fmt: skip
        head = renamed(self.branch.head)
        texts = self.texts if number == 0 else ()
        change = Append(
            branch_id=branch.id,
            seq=0,
            entries=tuple(entries),
            head=head,
            status="suspended",
            opened=(asked,),
            texts=texts,
        )
        return branch, change


def resident(pid: int) -> int:
    """The memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
