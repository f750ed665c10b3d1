"""Stores: where checkpoints are kept, so that another process, day or machine can go on from them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from phronomy.errors import StoreError
from phronomy.stores.base import (
    Append,
    Behind,
    Branch,
    BranchStatus,
    Claim,
    Entry,
    Held,
    Lineage,
    Occupied,
    PendingRow,
    Store,
    Waiting,
)
from phronomy.stores.memory import MemoryStore

if TYPE_CHECKING:
    from phronomy.stores.sqlite import SQLiteStore

__all__ = [
    "Append",
    "Behind",
    "Branch",
    "BranchStatus",
    "Claim",
    "Entry",
    "Held",
    "Lineage",
    "MemoryStore",
    "Occupied",
    "PendingRow",
    "SQLiteStore",
    "Store",
    "Waiting",
    "open_store",
]


def __getattr__(name: str) -> Any:
    # A database driver is loaded when its store is first used: a process without a store needs none.
    if name == "SQLiteStore":
        from phronomy.stores.sqlite import SQLiteStore  # noqa: PLC0415

        return SQLiteStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open_store(url: str) -> Store:
    """Open the store that a URL names: `memory://`, `sqlite:///relative.db` or `sqlite:////absolute.db`.

    `?lease=` (seconds) can follow each, `&timeout=` (seconds) and `&synchronous=` that of SQLite; a `?`, `#` or `%` in
    a path is percent-encoded. Raises `StoreError` for another scheme or option, and for what cannot be opened. The URL
    is never in a message, since it may hold a password; a path may be.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    known = ", ".join(f"{name}://" for name in _SCHEMES)
    if not separator:
        raise StoreError(f"a store is named by a URL ({known}); for a SQLite file write sqlite:/// and then its path")
    opener = _SCHEMES.get(scheme)
    if opener is None:
        raise StoreError(f"no store is known for {_shown(scheme)}://: the known ones are {known}")
    place, _, query = rest.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise StoreError(f"what follows the ? of a {scheme}:// URL must be option=value, joined by &") from None
    options = dict(pairs)
    if len(options) != len(pairs):
        raise StoreError(f"an option of the {scheme}:// URL is given twice")
    return opener(place, options)


def _open_memory(place: str, options: dict[str, str]) -> Store:
    if place:
        raise StoreError("a memory store has no name: write memory://")
    return MemoryStore(**_options("memory", options, {"lease": _seconds}))


def _open_sqlite(place: str, options: dict[str, str]) -> Store:
    if not place.startswith("/") or place == "/":
        raise StoreError("a SQLite URL names a file and no host: sqlite:///relative.db or sqlite:////absolute.db")
    from phronomy.stores.sqlite import SQLiteStore  # noqa: PLC0415

    path = os.fsdecode(unquote_to_bytes(place[1:]))
    known = {"lease": _seconds, "synchronous": str.upper, "timeout": _seconds}
    return SQLiteStore(path, **_options("sqlite", options, known))


_SCHEMES: Final[Mapping[str, Callable[[str, dict[str, str]], Store]]] = {"memory": _open_memory, "sqlite": _open_sqlite}


def _options(scheme: str, given: dict[str, str], known: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name not in known:
            raise StoreError(
                f"{scheme}:// was given an option that is not known: the known ones are {', '.join(known)}"
            )
        try:
            values[name] = known[name](text)
        except ValueError:
            raise StoreError(f"the option {name!r} of a {scheme}:// URL must be a number of seconds") from None
    return values


def _seconds(text: str) -> float:
    seconds = float(text)
    if not math.isfinite(seconds):
        raise ValueError("not a number of seconds")
    return seconds


def _shown(scheme: str) -> str:
    """The scheme, if it looks like one."""
    return scheme if scheme.replace("+", "").isalnum() and len(scheme) < 20 else "(a scheme)"
