"""The style sheet, the script and the icon of the pages, each under a name with a hash of its content, so that it is kept for ever."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from phronomy.inbox.look.looks import Asset, asset
from phronomy.inbox.problems import Problem
from phronomy.inbox.routes import Route
from phronomy.inbox.security import FOR_EVER

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit

_TYPES: Final = {"inbox.css": "text/css", "inbox.js": "text/javascript", "icon.svg": "image/svg+xml"}


@cache
def assets() -> Mapping[str, Asset]:
    """The files, by their names in the source."""
    place = files("phronomy.inbox.pages") / "static"
    return {name: asset(name, media, (place / name).read_bytes()) for name, media in _TYPES.items()}


def asset_path(file: str | Asset) -> str:
    """The path of a file under the mount."""
    return f"/static/{file.name if isinstance(file, Asset) else assets()[file].name}"


async def static(visit: Visit) -> Response:
    """One of the files. Another hash than that of now is that of another release, and is not there."""
    for each in (*assets().values(), *visit.inbox.look.files):
        if each.name == visit.params["name"]:
            return Response(each.content, media_type=each.media, headers={"Cache-Control": FOR_EVER})
    raise Problem("not-found")


STATIC: Final = (
    Route(method="GET", path="/static/{name}", handler=static, public=True, summary="A file that the pages refer to"),
)
