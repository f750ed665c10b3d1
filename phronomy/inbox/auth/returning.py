"""The page that somebody comes back to after they have signed in: a path of the inbox, and never another site."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

HOME: Final = "/"

_MOST: Final = 2_000
_PLAIN: Final = re.compile(r"[!-\[\]-~]+", re.ASCII)  # printable ASCII without the space and the backslash


def return_path(text: str | None) -> str:
    """The path to come back to; `/` for anything that is no path of the inbox.

    It begins with one slash: browsers take `//host` and `/\\host` for another site. They drop tabs and line breaks, so there are
    none, and no part of the path leads upwards, out of where the inbox is mounted.
    """
    if text is None or len(text) > _MOST or _PLAIN.fullmatch(text) is None:
        return HOME
    if not text.startswith("/") or text.startswith("//"):
        return HOME
    path = re.split(r"[?#]", text, maxsplit=1)[0]
    return HOME if any(unquote(part) in (".", "..") for part in path.split("/")) else text
