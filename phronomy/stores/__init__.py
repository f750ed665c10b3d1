"""Stores: where checkpoints are kept, so that another process, on another day or machine, can resume the runs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlencode

from phronomy.errors import StoreError
from phronomy.foundation import lazy_names
from phronomy.records.audit import AuditRecord
from phronomy.stores.base import Store
from phronomy.stores.derived.batches import Answered, BatchDecision
from phronomy.stores.derived.listing import CheckpointInfo, Page, Waiting
from phronomy.stores.derived.requests import Request, RequestStatus
from phronomy.stores.dispatch import Dispatch, LocalDispatch
from phronomy.stores.memory import MemoryStore
from phronomy.stores.rows import (
    Append,
    AuditFilter,
    AuditRow,
    Behind,
    Branch,
    BranchFilter,
    BranchStatus,
    CheckpointFilter,
    CheckpointRow,
    Claim,
    Document,
    Entry,
    Held,
    Lineage,
    Occupied,
    PendingFilter,
    PendingRow,
)

if TYPE_CHECKING:
    from phronomy.stores.key_value.books import KeyValue
    from phronomy.stores.key_value.store import KeyValueStore
    from phronomy.stores.redis.store import RedisStore
    from phronomy.stores.sql.postgres import PostgresStore
    from phronomy.stores.sql.sqlite import SQLiteStore

__all__ = [
    "Answered",
    "Append",
    "AuditFilter",
    "AuditRecord",
    "AuditRow",
    "BatchDecision",
    "Behind",
    "Branch",
    "BranchFilter",
    "BranchStatus",
    "CheckpointFilter",
    "CheckpointInfo",
    "CheckpointRow",
    "Claim",
    "Dispatch",
    "Document",
    "Entry",
    "Held",
    "KeyValue",
    "KeyValueStore",
    "Lineage",
    "LocalDispatch",
    "MemoryStore",
    "Occupied",
    "Page",
    "PendingFilter",
    "PendingRow",
    "PostgresStore",
    "RedisStore",
    "Request",
    "RequestStatus",
    "SQLiteStore",
    "Store",
    "Waiting",
    "open_store",
]

_Known: TypeAlias = Mapping[str, Callable[[str], object]]
"""What reads the text of each option of a URL."""

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> type:
        # A database driver is loaded when its store is first used: a process without a store needs none. Each module is
        # written out: nothing in this package imports by a name that is made at run time.
        if name == "SQLiteStore":
            from phronomy.stores.sql.sqlite import SQLiteStore as found  # noqa: PLC0415
        elif name == "PostgresStore":
            from phronomy.stores.sql.postgres import PostgresStore as found  # noqa: PLC0415
        elif name == "RedisStore":
            from phronomy.stores.redis.store import RedisStore as found  # noqa: PLC0415
        elif name == "KeyValueStore":
            from phronomy.stores.key_value.store import KeyValueStore as found  # noqa: PLC0415
        elif name == "KeyValue":
            from phronomy.stores.key_value.books import KeyValue as found  # noqa: PLC0415
        else:
            raise lazy_names.unknown(__name__, name)
        return found


def open_store(url: str) -> Store:
    """Open the store that a URL names, such as `sqlite:///runs.db` or `postgresql://user:password@host:5432/database`.

    The forms are `memory://`, `sqlite:///relative.db`, `sqlite:////absolute.db`,
    `postgresql://user:password@host:5432/database` and `redis://user:password@host:6379/0` (`rediss://` with TLS). In a
    path, `?`, `#` and `%` are percent-encoded. Options follow a `?`, joined by `&`:

    - all: `lease` and `ttl` in seconds, and `tenant`; all but memory also `timeout` in seconds
    - SQLite: `synchronous`
    - PostgreSQL: `schema`, `setup` and `prepare_statements` (true or false), `min_size`, `max_size`, and the options of
      libpq
    - Redis: `prefix`, `require_persistence` (true or false), `max_connections`, and the options of redis-py whose names
      begin with `ssl_`

    Raises `StoreError` for an unknown scheme or option, and for a store that cannot be opened. No message contains the
    URL, because it may contain a password; a message may name a path, or the host and port of a server.
    """
    if not isinstance(url, str):
        raise StoreError(f"a store is named by a URL, which is text, not {type(url).__name__}")
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    known = ", ".join(f"{name}://" for name in _SCHEMES)
    # The URL is quoted in none of these messages: it may hold a password, and a message ends in a log.
    if not separator:
        raise StoreError(f"a store is named by a URL ({known}); for a SQLite file write sqlite:/// and then its path")
    # Schemes are compared in lower case, as URLs say; what comes after them is not touched.
    opener = _SCHEMES.get(scheme)
    if opener is None:
        raise StoreError(f"no store is known for {_shown(scheme)}://: the known ones are {known}")
    place, _, query = rest.partition("?")
    try:
        # Strict: a half-read query would drop `tenant=` or `lease=` in silence, and the store would work on somebody
        # else's data, or with another lease.
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise StoreError(f"what follows the ? of a {scheme}:// URL must be option=value, joined by &") from None
    options = dict(pairs)
    # Twice is refused and not taken as the last one: of two tenants neither can be meant for sure.
    if len(options) != len(pairs):
        raise StoreError(f"an option of the {scheme}:// URL is given twice")
    return opener(place, options)


def _open_memory(place: str, options: dict[str, str]) -> Store:
    if place:
        raise StoreError("a memory store has no name: write memory://")
    return MemoryStore(**_options("memory", options, _COMMON))


def _open_sqlite(place: str, options: dict[str, str]) -> Store:
    if not place.startswith("/") or place == "/":
        raise StoreError("a SQLite URL names a file and no host: sqlite:///relative.db or sqlite:////absolute.db")
    from phronomy.stores.sql.sqlite import SQLiteStore  # noqa: PLC0415

    # As bytes: a file name need not be UTF-8. The first slash belongs to the URL, so an absolute path has a second one.
    path = os.fsdecode(unquote_to_bytes(place[1:]))
    known = {**_COMMON, "synchronous": str.upper, "timeout": _seconds}
    return SQLiteStore(path, **_options("sqlite", options, known))


def _open_postgres(scheme: str, place: str, options: dict[str, str]) -> Store:
    from phronomy.stores.sql.postgres import PostgresStore  # noqa: PLC0415

    sizes: _Known = {"min_size": _count, "max_size": _count}
    switches: _Known = {"setup": _switch, "prepare_statements": _switch}
    known: _Known = {**_COMMON, "timeout": _seconds, "schema": str, **sizes, **switches}
    # What is not ours stays in the URL: libpq has its own words for hosts, certificates and connections. An unknown
    # name is then libpq's to refuse. It does so at the first connection, by name.
    own = _options(scheme, {name: text for name, text in options.items() if name in known}, known)
    passed = {name: text for name, text in options.items() if name not in known}
    return PostgresStore(f"{scheme}://{place}{'?' if passed else ''}{urlencode(passed, quote_via=quote)}", **own)


def _open_redis(scheme: str, place: str, options: dict[str, str]) -> Store:
    from phronomy.stores.redis.store import RedisStore  # noqa: PLC0415

    # What is the driver's stays in the URL: it has its own words for certificates and connections.
    passed = {name: text for name, text in options.items() if name.startswith("ssl_") or name == "max_connections"}
    known: _Known = {**_COMMON, **{"timeout": _seconds, "prefix": str, "require_persistence": _switch}}
    # Here an unknown name is refused at once: redis-py takes any, and passes it to the connection.
    own = _options(scheme, {name: text for name, text in options.items() if name not in passed}, known)
    return RedisStore(f"{scheme}://{place}?{urlencode(passed)}", **own)


def _options(scheme: str, given: dict[str, str], known: _Known) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name not in known:
            raise StoreError(
                f"{scheme}:// was given an option that is not known: the known ones are {', '.join(known)}"
            )
        try:
            # A value is never quoted, in no error: which of them is secret, only the driver knows.
            values[name] = known[name](text)
        except ValueError:
            raise StoreError(f"the option {name!r} of a {scheme}:// URL must be a number of seconds") from None
    return values


def _seconds(text: str) -> float:
    seconds = float(text)
    # `float` reads nan and inf. A lease of nan seconds would never be over, and never be held.
    if not math.isfinite(seconds):
        raise ValueError("not a number of seconds")
    return seconds


def _count(text: str) -> int:
    # `int` would read `1_0`, ` 1` and Arabic digits as well.
    if not (text.isascii() and text.isdigit()):
        raise StoreError("what is counted in the URL of a store is a whole number, 0 or more")
    return int(text)


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise StoreError("what is switched on or off in the URL of a store is true or false")
    return text == "true"


def _shown(scheme: str) -> str:
    """The scheme, if it looks like one."""
    # What stands before `://` may be a password, if somebody mistyped the URL.
    return scheme if scheme.replace("+", "").isalnum() and len(scheme) < 20 else "(a scheme)"


_COMMON: Final[_Known] = {"lease": _seconds, "ttl": _seconds, "tenant": str}

_SCHEMES: Final[Mapping[str, Callable[[str, dict[str, str]], Store]]] = {
    "memory": _open_memory,
    "sqlite": _open_sqlite,
    "postgres": partial(_open_postgres, "postgres"),
    "postgresql": partial(_open_postgres, "postgresql"),
    "redis": partial(_open_redis, "redis"),
    "rediss": partial(_open_redis, "rediss"),
}
