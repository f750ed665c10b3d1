"""A store in which rows are damaged: what it hands out in their place, as a database does that was edited, restored or written anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from drivers import Around

from phronomy.stores.base import Store
from phronomy.stores.rows import Document, Lineage

DAMAGE: dict[str, Callable[[Any], Any]] = {
    "cut off": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "no object": lambda text: "[]",
    "bytes": lambda text: b"\xff\xfe",
    "null": lambda text: None,
    "a number": lambda text: 7,
    "another row": lambda text: '{"a":1}',
    "of a later release": lambda text: f'{{"later":1,{text[1:]}',
    "another version": lambda text: f'{{"version":99,{text[1:]}',
}
"""The damage of the text of a row."""


class Damaged(Around):
    """A store that damages the rows whose id, or whose branch, run or key, is among `ids`."""

    def __init__(self, inner: Store, how: str = "cut off") -> None:
        super().__init__(inner)
        self.ids: set[Any] = set()
        self.how = how

    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        found = super().lineage(checkpoint_id=checkpoint_id, branch_id=branch_id)
        return replace(
            found, entries=tuple(self._seen(each, each.branch_id, each.checkpoint_id) for each in found.entries)
        )

    def select_pending(self, wanted: Any) -> list[Any]:
        return [self._seen(each, each.pending_id) for each in super().select_pending(wanted)]

    def select_checkpoints(self, wanted: Any) -> list[Any]:
        return [self._seen(each, each.checkpoint_id) for each in super().select_checkpoints(wanted)]

    def select_audit(self, wanted: Any) -> list[Any]:
        return [self._seen(each, each.n) for each in super().select_audit(wanted)]

    def get_document(self, kind: str, key: str) -> Document | None:
        found = super().get_document(kind, key)
        return None if found is None else self._seen(found, (kind, key))

    def select_documents(self, kind: str, *, after: str | None = None, limit: int | None = None) -> list[Document]:
        return [self._seen(each, (kind, each.key)) for each in super().select_documents(kind, after=after, limit=limit)]

    def _seen(self, row: Any, *ids: Any) -> Any:
        if self.ids.isdisjoint(ids):
            return row
        name = "text" if isinstance(row, Document) else "body"
        return replace(row, **{name: DAMAGE[self.how](getattr(row, name))})
