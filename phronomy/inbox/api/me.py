"""Who is signed in, and what they may do in the inbox at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from phronomy.inbox.api import schemas
from phronomy.inbox.api.requests import BASE, answer, person_of
from phronomy.inbox.auth.identity import SCOPES
from phronomy.inbox.routes import Route

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit


async def me(visit: Visit) -> Response:
    """Who sends the request."""
    who = visit.identity
    return answer(
        schemas.Me(
            principal=person_of(who.principal),
            tenant=visit.store.tenant,
            scopes=tuple(each for each in SCOPES if each in who.scopes),
            via=who.via,
            signed_in_at=who.signed_in_at,
            # A token is no cookie: what its bearer sends needs no proof that it comes from our page.
            csrf=visit.csrf if who.via != "token" else None,
        )
    )


ME: Final = (
    Route(
        method="GET",
        path=f"{BASE}/me",
        handler=me,
        summary="Who you are, and what you may do",
        answer=schemas.Me,
    ),
)
