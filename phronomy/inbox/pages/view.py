"""Templates: each page is made of one, with everything escaped that comes from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from phronomy.foundation.dataclasses import dataclass
from phronomy.inbox.pages.assets import asset_path
from phronomy.inbox.pages.letters import boxes_of_a_page, coded, lettered
from phronomy.inbox.pages.times import clock_of, day_of, iso_of, since, until
from phronomy.inbox.pages.words import called

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit

_P = ParamSpec("_P")
_T = TypeVar("_T")

_LARGE: Final = 10_000
"""Characters of arguments from which a page is made in a thread."""


@dataclass(frozen=True, slots=True)
class Place:
    """A page that the header of each page leads to: its path, its name, and the scopes of which somebody needs one to see it."""

    path: str
    name: str
    scopes: tuple[str, ...]


NAVIGATION: Final[tuple[Place, ...]] = (
    Place("/", "Waiting", ("read",)),
    Place("/chat", "Chat", ("start",)),
    Place("/runs", "Runs", ("read",)),
    Place("/history", "History", ("audit", "decide")),
    Place("/grants", "Grants", ("grant",)),
)
"""The pages that the header leads to, in order."""


@cache
def environment() -> Environment:
    """The templates, all with autoescape, whatever they are called."""
    made = Environment(
        loader=PackageLoader("phronomy.inbox.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        lettered=lettered, coded=coded, iso=iso_of, day=day_of, clock=clock_of, called=called, since=since, until=until
    )
    made.globals.update(asset_path=asset_path, navigation=NAVIGATION)
    return made


def render(
    visit: Visit, template: str, parts: Mapping[str, object] | None = None, *, status: int = 200, **more: object
) -> Response:
    """The page of a template. Each has the `visit`, and `now`: seconds since the epoch, by the clock of the store."""
    given = {"visit": visit, "now": visit.inbox.store.clock(), **(parts or {}), **more}
    with boxes_of_a_page():
        return HTMLResponse(environment().get_template(template).render(given), status)


async def aside(large: int, work: Callable[_P, _T], *args: _P.args, **more: _P.kwargs) -> _T:
    """The work for a page, in a thread if it shows so many characters that others would wait for it."""
    return await asyncio.to_thread(work, *args, **more) if large > _LARGE else work(*args, **more)
