"""Reading an entry of a log: whatever is wrong with it, the error names the entry, and quotes nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from phronomy.errors import CheckpointError
from phronomy.foundation.quoting import quoted_id
from phronomy.stores.rows import Entry

P = ParamSpec("P")
T = TypeVar("T")


def read_entry(entry: Entry, read: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """What `read` makes of an entry. Raises `CheckpointError` as `read` does, with the place of the entry."""
    # Here, and not where something is found to be wrong: those places know the value, and few of them know whose it is.
    try:
        return read(*given, **named)
    except CheckpointError as error:
        raise CheckpointError(f"{error} ({_place_of(entry)})") from None


def _place_of(entry: Entry) -> str:
    """A row is found by its checkpoint, and an entry of the journal by its number in the log."""
    is_row = entry.checkpoint_id is not None
    what = f"checkpoint {quoted_id(entry.checkpoint_id)}" if is_row else f"journal entry {entry.seq}"
    # An entry that comes from no store is in no branch yet.
    return f"{what} of branch {quoted_id(entry.branch_id)}" if entry.branch_id else what
