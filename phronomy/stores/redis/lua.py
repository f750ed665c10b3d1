"""The Lua scripts of the Redis store, from the files in `lua`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Final, Literal

from phronomy.foundation.dataclasses import dataclass
from phronomy.stores.rows import ENDED, OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script: its text, and the digest that Redis knows it by. `writes` says whether it changes anything."""

    text: bytes
    sha: str
    writes: bool


def _part(name: str) -> str:
    # From the package and not from the path of this file: it may be imported out of a zip.
    return files("phronomy.stores").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def _set(name: str, values: Sequence[str]) -> str:
    return f"local {name} = {{{', '.join(f'{value} = true' for value in values)}}}\n"


def _script(name: str, *, of: Literal["runs", "changes", "documents"] = "runs", writes: bool = False) -> Script:
    # Each script is sent whole, with what it shares with the others in front: Redis has no imports, and functions that
    # are loaded into the server would be one more thing that a restart can lose, and two releases can disagree about.
    parts = [_part("common")]
    if of == "documents":
        parts.append(_part("documents"))
    elif writes:
        parts += [_set("OPEN", OPEN), _set("ENDED", ENDED), _part("write")]
    if of == "changes":
        parts.append(_part("change"))
    text = "\n".join([*parts, _part(name)]).encode()
    # The digest is sent in its place from the second call on. It is of the very text, so another release has other
    # scripts beside these.
    return Script(text=text, sha=hashlib.sha1(text, usedforsecurity=False).hexdigest(), writes=writes)


CREATE: Final = _script("create", writes=True)
APPEND: Final = _script("append", of="changes", writes=True)
APPEND_ALL: Final = _script("append_all", of="changes", writes=True)
RENEW: Final = _script("renew", writes=True)
RELEASE: Final = _script("release", writes=True)
ANNOUNCED: Final = _script("announced", writes=True)
REMOVE: Final = _script("remove", writes=True)
LINEAGE: Final = _script("lineage")
CHILDREN: Final = _script("children")
BRANCHES: Final = _script("branches")
PENDING: Final = _script("pending")
CHECKPOINTS: Final = _script("checkpoints")
AUDIT: Final = _script("audit")
KEPT: Final = _script("kept")
DOCUMENT: Final = _script("document", of="documents")
SELECT_DOCUMENTS: Final = _script("select_documents", of="documents")
PUT_DOCUMENT: Final = _script("put_document", of="documents", writes=True)
DROP_DOCUMENT: Final = _script("drop_document", of="documents", writes=True)
EXPIRE_DOCUMENTS: Final = _script("expire_documents", of="documents", writes=True)
