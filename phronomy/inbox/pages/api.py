"""The page about the API: its routes, what each needs, and its problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from phronomy.inbox.api.openapi import PARAMETER
from phronomy.inbox.api.table import API
from phronomy.inbox.pages.view import render
from phronomy.inbox.problems import TYPES
from phronomy.inbox.routes import Route

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit


async def api_page(visit: Visit) -> Response:
    """The page about the API."""
    routes = [(each, PARAMETER.sub(r"{\1}", each.path)) for each in API]
    return render(visit, "api.html", routes=routes, problems=TYPES)


API_PAGE: Final = (Route(method="GET", path="/api", handler=api_page, page=True),)
