"""What a long-term store keeps: all entries of one principal in one namespace are the text of one small document."""

from contextlib import suppress
from datetime import datetime
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field

from phronomy.errors import UnreadableRow
from phronomy.foundation.suspicious_letters import shows_all
from phronomy.foundation.unreadable import unreadable_row
from phronomy.records.people import Id, id_hash
from phronomy.records.record import Record, Text, Time

LONG_TERM: Final = "long-term"
"""The kind of document that entries are kept as."""

KEPT_WRITES: Final = 64
"""How many writes a document knows by their idempotency keys, so that one that is replayed changes nothing."""


def _is_name(text: str) -> str:
    if not is_name(text):
        raise ValueError("a key or a namespace is 1 to 200 printable characters, without spaces around them")
    return text


def is_name(text: object) -> bool:
    """Whether it may be a key or a namespace: printable text without spaces around it, so that people see what it is."""
    return isinstance(text, str) and 0 < len(text) <= 200 and text == text.strip() and shows_all(text)


Name = Annotated[str, AfterValidator(_is_name)]
"""A key of an entry, or a namespace. Names are compared exactly."""


class Entry(Record):
    """A text that is kept of a principal, under a `key`.

    `at` is when it was written, `run_id` the run that wrote it, and `pending_id` the approval that let it; None if none
    was needed.
    """

    key: Name
    text: Text = Field(repr=False)
    at: Time
    run_id: Text
    pending_id: Text | None = None


class Entries(Record):
    """The entries of a principal in a namespace, the newest last, and the idempotency keys of the last writes."""

    version: Literal[1] = 1
    principal: Id
    namespace: Name
    entries: tuple[Entry, ...] = ()
    written: tuple[str, ...] = Field(default=(), max_length=KEPT_WRITES)

    def get(self, key: str) -> Entry | None:
        """The entry with this key."""
        return next((each for each in self.entries if each.key == key), None)

    def with_entry(self, entry: Entry, write: str) -> Self:
        """These and this entry, in place of the one with its key; unchanged if this write was made before."""
        if write in self.written:
            return self
        others = [each for each in self.entries if each.key != entry.key]
        return self.evolve(entries=(*others, entry), written=self._with(write))

    def without(self, key: str, write: str | None = None) -> Self:
        """These without the entry with this key; unchanged if this write was made before."""
        # A write that finds no entry is known too: made again, it would delete one that came later.
        if write in self.written if write is not None else self.get(key) is None:
            return self
        others = tuple(each for each in self.entries if each.key != key)
        return self.evolve(entries=others, written=self.written if write is None else self._with(write))

    def _with(self, write: str) -> tuple[str, ...]:
        return (*self.written, write)[-KEPT_WRITES:]


class Deleted(Record):
    """What is left of entries that were all deleted: the writes that were made, so that one that is replayed brings nothing back.

    It names nobody. The key of the document has hashes alone, and so have these.
    """

    version: Literal[1] = 1
    deleted: Literal[True] = True
    written: tuple[str, ...] = Field(default=(), max_length=KEPT_WRITES)


def entries_key(principal: str, namespace: str) -> str:
    """The key of the document with the entries of this principal in this namespace."""
    return entries_prefix(principal) + id_hash(namespace)


def entries_prefix(principal: str) -> str:
    """What the keys of all documents of a principal begin with, and those of nobody else."""
    # Hashes, as of deputies: no character of an id or a namespace can end the first half, and none can be mistaken for another.
    return id_hash(principal) + "/"


def read_entries(key: str, text: str) -> Entries | Deleted:
    """The entries in the document of this key. Raises `UnreadableRow` if the row is damaged, or of somebody else."""
    with suppress(ValueError):
        found = Entries.model_validate_json(text)
        if entries_key(found.principal, found.namespace) == key:
            return found
    with suppress(ValueError):
        return Deleted.model_validate_json(text)
    # Outside of both: their errors may quote what is in the row.
    raise unreadable_row(
        LONG_TERM, key, called="the long-term entries of document", then="; LongTermStore.delete_all deletes it"
    )


def left_of(key: str, text: str) -> Deleted | None:
    """What is left of the document of this key when its entries are deleted; None if they were deleted before."""
    try:
        found = read_entries(key, text)
    except UnreadableRow:  # damaged: nobody knows which writes were made
        return Deleted()
    return None if isinstance(found, Deleted) else Deleted(written=found.written)


def entry(key: str, text: str, *, at: datetime, run_id: str, pending_id: str | None) -> Entry:
    """An entry that a run writes. Raises `InvalidField`."""
    return Entry(key=key, text=text, at=at, run_id=run_id, pending_id=pending_id)
