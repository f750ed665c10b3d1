"""Small documents that a store keeps beside the runs: people, tokens, and whatever else is found by a key and changes as a whole.

A document is written by compare-and-set: the writer says which version it has seen, and nothing is written if there is another by now.
No change covers two documents. What must not happen twice is therefore put into one document, and the write of it decides who is first.

Documents belong to a tenant, and to no run: deleting runs leaves them. One that has a time is gone when that is over.
"""

from __future__ import annotations

from typing import NoReturn

from phronomy.errors import StoreError
from phronomy.stores.native import apart, in_store
from phronomy.stores.rows import Document


class NoDocuments(StoreError):
    """The store keeps no documents."""


class Documents:
    """The part of every store that keeps small documents.

    A store that was written before there were documents does without these primitives: it works for runs, and raises
    `StoreError` where a document is needed.
    """

    blocking: bool = True
    reads_at_once: bool = False

    # Primitives

    def get_document(self, kind: str, key: str) -> Document | None:
        """Return the document of this kind and key, or None if there is none or its time is over."""
        self._has_none()

    def select_documents(self, kind: str, *, after: str | None = None, limit: int | None = None) -> list[Document]:
        """The documents of a kind whose key comes after `after`, in the order of their keys as UTF-8; at most `limit`."""
        self._has_none()

    def put_document(self, document: Document) -> Document:
        """Write a document, and return it with its new version.

        `document.version` is the version that the writer has seen: that of the document as it was read, or the empty
        text if there must be none. Raises `Behind` if that is no longer so; a document whose time is over is as good
        as none. Raises `StoreError` for a document that cannot be kept. Nothing was written then.
        """
        self._has_none()

    def delete_document(self, kind: str, key: str, *, version: str | None = None) -> None:
        """Delete a document. If there is none, nothing happens.

        Raises `Behind` if a `version` is given and the document has another one.
        """
        self._has_none()

    def expire_documents(self) -> None:
        """Delete the documents whose time is over. `recover_all`, workers and `prune` call this."""
        # A store without documents has none to delete, and recovery goes on.

    # For an event loop

    async def aget_document(self, kind: str, key: str) -> Document | None:
        """The async twin of `get_document`."""
        return await apart(self, self.get_document, kind, key)

    async def aselect_documents(
        self, kind: str, *, after: str | None = None, limit: int | None = None
    ) -> list[Document]:
        """The async twin of `select_documents`."""
        return await apart(self, self.select_documents, kind, after=after, limit=limit)

    async def aput_document(self, document: Document) -> Document:
        """The async twin of `put_document`."""
        return await in_store(self, self.put_document, document)

    async def adelete_document(self, kind: str, key: str, *, version: str | None = None) -> None:
        """The async twin of `delete_document`."""
        await in_store(self, self.delete_document, kind, key, version=version)

    def _has_none(self) -> NoReturn:
        raise NoDocuments(
            f"{type(self).__name__} keeps no small documents, such as people and tokens: it was written for an earlier"
            " release. Have it implement get_document, select_documents, put_document, delete_document and"
            " expire_documents, or keep them in another store, such as SQLiteStore"
        )


def keeps_documents(store: Documents) -> bool:
    """True if the store keeps small documents: a store that was written for an earlier release does not."""
    return type(store).select_documents is not Documents.select_documents
