"""What is written to a store in tests of what is below it, and read back."""

from __future__ import annotations

from typing import Any

from phronomy.stores import Append, AuditRow, Branch, Claim, Entry, PendingRow, Store

MINE = Claim(branch_id="b1", run_id="b1", owner="me", fence=1)


def clock() -> float:
    return 1000.0


def row(id: str, parent: str | None = None, label: str | None = None, body: str = "{}") -> Entry:
    return Entry(path="", body=body, checkpoint_id=id, parent_id=parent, label=label)


def note(body: str) -> Entry:
    return Entry(path="", body=body)


def asked(id: str, at: float = 1.0, **fields: Any) -> PendingRow:
    places = {"branch_id": "", "run_id": "", "thread_id": None, "checkpoint_id": ""}
    rest = {"agent": "a", "tool_name": "t", "requested_at": at, "body": "{}"}
    return PendingRow(pending_id=id, **{**places, **rest, **fields})


def told(at: float, run: str = "b1") -> AuditRow:
    return AuditRow(at=at, run_id=run, thread_id=None, pending_id=None, body="{}")


def begin(store: Store, id: str = "b1", *, thread: str | None = None, exclusive: bool = False, **change: Any) -> None:
    branch = Branch(id=id, run_id=id, thread_id=thread, agent="clerk")
    first = {"entries": (row(f"{id}-0"),), "head": f"{id}-0", **change}
    store.create(branch, Append(branch_id=id, seq=0, **first), exclusive=exclusive)


def bodies(store: Store, id: str = "b1") -> list[str]:
    return [entry.body for entry in store.lineage(branch_id=id).entries][1:]
