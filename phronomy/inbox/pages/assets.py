"""The style sheet, the script and the icon of the pages, each under a name with a hash of its content, so that it is kept for ever."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from phronomy.foundation.dataclasses import dataclass
from phronomy.inbox.problems import Problem
from phronomy.inbox.routes import Route
from phronomy.inbox.security import FOR_EVER

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit

_TYPES: Final = {"inbox.css": "text/css", "inbox.js": "text/javascript", "icon.svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages refer to: the name in its address, its type and its bytes."""

    name: str
    media: str
    content: bytes = field(repr=False)


@cache
def assets() -> Mapping[str, Asset]:
    """The files, by their names in the source."""
    found = {}
    for name, media in _TYPES.items():
        content = (files("phronomy.inbox.pages") / "static" / name).read_bytes()
        stem, _, end = name.rpartition(".")
        found[name] = Asset(f"{stem}-{hashlib.sha256(content).hexdigest()[:16]}.{end}", media, content)
    return found


def asset_path(name: str) -> str:
    """The path of a file under the mount."""
    return f"/static/{assets()[name].name}"


async def static(visit: Visit) -> Response:
    """One of the files. Another hash than that of now is that of another release, and is not there."""
    for each in assets().values():
        if each.name == visit.params["name"]:
            return Response(each.content, media_type=each.media, headers={"Cache-Control": FOR_EVER})
    raise Problem("not-found")


STATIC: Final = (
    Route(method="GET", path="/static/{name}", handler=static, public=True, summary="A file that the pages refer to"),
)
