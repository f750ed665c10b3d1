"""Runs that a worker has set aside: the reason, for people who decided and have the store alone.

The reason is a small document beside the run. It counts as long as nothing is written to the run, so a worker that carries the run on
need not delete it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from phronomy.errors import AgentChanged, PhronomyError
from phronomy.stores.documents import keeps_documents
from phronomy.stores.rows import Behind, Branch, Document

if TYPE_CHECKING:
    from phronomy.stores.base import Store

KIND: Final = "set-aside"
"""The kind of these documents; the key is the branch."""

_KEPT: Final = 30 * 86400.0
"""Seconds for which a document is kept. A worker writes it again at each of its tries."""


def note(store: Store, branch: Branch, error: PhronomyError) -> None:
    """Write down that the branch is set aside for this error, if the store keeps documents."""
    if not keeps_documents(store):
        return
    # The texts of other errors may quote anything, so they are told by their type alone.
    changed = f"the agent has changed: {'; '.join(error.changes)}" if isinstance(error, AgentChanged) else ""
    text = json.dumps({"seq": branch.seq, "why": changed or f"it failed ({type(error).__name__})"})
    before = store.get_document(KIND, branch.id)
    now = store.clock()
    if before is not None and before.text == text and (before.expires_at or 0.0) > now + _KEPT / 2:
        return
    document = before if before is not None else Document(kind=KIND, key=branch.id, text=text)
    with suppress(Behind):  # another worker has just said so
        store.put_document(replace(document, text=text, expires_at=now + _KEPT))


def reason(store: Store, branch: Branch) -> str | None:
    """Why the branch is set aside, in words; None if it is not, or somebody has written to it since."""
    if branch.status != "failed" or branch.handed is None or not keeps_documents(store):
        return None
    document = store.get_document(KIND, branch.id)
    try:
        told = json.loads(document.text) if document is not None else {}
        return str(told["why"]) if told["seq"] == branch.seq else None
    except (ValueError, KeyError, TypeError):
        return None
