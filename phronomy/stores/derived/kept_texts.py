"""Texts that a store keeps once: reading them, and the rows that name them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from phronomy.errors import CheckpointError
from phronomy.stores.log.kept_members import (
    Texts,
    digest_of_text,
    digests_in,
    named_request,
    with_all,
)
from phronomy.stores.log.log import pending_row, request_text
from phronomy.stores.native import on_loop, reading
from phronomy.stores.rows import Branch, Lineage, PendingRow

if TYPE_CHECKING:
    from phronomy.records.decisions import PendingApproval
    from phronomy.stores.base import Store

_TEXTS: Final = 500
"""Texts that a store object remembers: as many as there are tools in use, and some."""
_LONG: Final = 20_000
"""Characters of the longest text that is remembered."""
_SEEN: Final = 2_000
"""Digests that a store object remembers as seen."""


def kept_text(store: Store, digest: str | None) -> str | None:
    """The text that is kept under this SHA-256; None if none is, and for what is kept there and has another."""
    if not digest:
        return None
    # What is kept under a SHA-256 is never another text, and is never deleted: once read, it need not be asked for again.
    text = store.read_texts.get((store.tenant, digest))
    return _read(store, digest, store.kept_text(digest)) if text is None else text


def _read(store: Store, digest: str, text: object) -> str | None:
    # A database that was damaged or changed may hand out anything. It would be told of a tool, to whoever decides.
    if not isinstance(text, str) or digest_of_text(text) != digest:
        return None
    if len(text) <= _LONG:
        if len(store.read_texts) >= _TEXTS:
            store.read_texts.clear()
        store.read_texts[store.tenant, digest] = text
    return text


def kept_by(store: Store, read: Mapping[str, str | None] | None = None) -> Texts:
    """Gives the texts that rows of the store name; `read` are those that were read before."""
    known = dict(read or {})  # the rows of a page name one and the same text

    def kept(digest: str) -> str:
        if digest not in known:
            known[digest] = kept_text(store, digest)
        # A row would say something else of its agent or its tool.
        if (text := known[digest]) is None:
            raise CheckpointError(
                f"a stored row refers to the text {digest}, which is missing from the store, or damaged"
            )
        return text

    return kept


def whole_lineage(store: Store, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
    """As `Store.lineage`, for whoever reads the rows apart from the store: they hold all that they name."""
    lineage, kept = store.lineage(checkpoint_id=checkpoint_id, branch_id=branch_id), kept_by(store)
    return replace(lineage, entries=tuple(with_all(entry, kept) for entry in lineage.entries))


async def alineage(
    store: Store, *, checkpoint_id: str | None = None, branch_id: str | None = None
) -> tuple[Lineage, Texts]:
    """As `Store.lineage`, with the texts that its rows name: nothing blocks the event loop when they are asked for."""
    lineage = await on_loop(store).lineage(checkpoint_id=checkpoint_id, branch_id=branch_id)
    # A body that is no text is damage, and whoever reads the log says so.
    named = digests_in(entry.body for entry in lineage.entries if isinstance(entry.body, str))
    read: dict[str, str | None] = {}
    for digest in named:
        if (text := store.read_texts.get((store.tenant, digest))) is None:
            text = _read(store, digest, await reading(store, store.kept_text, digest))
        read[digest] = text
    return lineage, kept_by(store, read)


class Naming:
    """What a write may name of kept texts. `texts` are those that are to be kept by it.

    `sent` are the digests of those that were kept by an earlier write of the same run. Each run has its texts kept itself, though
    another one may have: somebody may have emptied the store in between, and what a run names must not be missing from it.
    """

    def __init__(self, store: Store, sent: Container[str] = ()) -> None:
        self._seen, self._tenant, self._sent = store.seen_texts, store.tenant, sent
        self.texts: list[str] = []

    def __call__(self, text: str) -> bool:
        """Whether a row may name the text."""
        digest = digest_of_text(text)
        if digest in self._sent:
            return True
        # An agent that is made anew for each request is never seen twice. Its texts would stay when its runs are deleted.
        if (self._tenant, digest) not in self._seen:
            if len(self._seen) >= _SEEN:
                self._seen.clear()
            self._seen.add((self._tenant, digest))
            return False
        if text not in self.texts:
            self.texts.append(text)
        return True

    def request(self, item: PendingApproval, branch: Branch, checkpoint_id: str) -> PendingRow:
        """As `pending_row`, with names in place of what is kept."""
        body = named_request(request_text(item), item, branch.agent, self)
        return pending_row(item, branch, checkpoint_id, branch.label, body)
