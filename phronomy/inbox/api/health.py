"""Health checks: whether the process answers, and whether it reaches its store. Neither says more to somebody without a login."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse, Response

from phronomy.inbox.problems import Problem
from phronomy.inbox.routes import Route

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit


async def live(visit: Visit) -> Response:
    """The process answers."""
    return JSONResponse({"status": "ok"})


async def ready(visit: Visit) -> Response:
    """The store can be read."""
    try:
        await visit.inbox.store.apending(limit=1)
    except Exception:
        raise Problem("unavailable", headers={"Retry-After": "1"}) from None
    return JSONResponse({"status": "ok"})


HEALTH: Final = (
    Route(method="GET", path="/healthz", handler=live, public=True, summary="Whether the process answers"),
    Route(
        method="GET",
        path="/readyz",
        handler=ready,
        public=True,
        summary="Whether the store can be read",
        problems=("unavailable",),
    ),
)
