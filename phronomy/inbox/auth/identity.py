"""Who a request of the inbox comes from, and the protocol of what tells it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, get_args

from phronomy.foundation.dataclasses import dataclass
from phronomy.records.principals import Principal

if TYPE_CHECKING:
    from starlette.requests import Request

Scope: TypeAlias = Literal["read", "decide", "grant", "audit", "start", "cancel", "operate", "send"]
"""What somebody may do in the inbox at all. Whether they may decide a request is judged by its approval, besides."""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

DEFAULT_SCOPES: Final[frozenset[Scope]] = frozenset({"read", "decide"})
"""What everybody who is signed in may do, unless `Inbox(scopes=...)` says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a request comes from: the `principal`, and the `tenant` of the store that they see; None: that of the inbox's store.

    `scopes` are the most that they may do here: of these they have the ones that `Inbox(scopes=...)` gives them. `via` says how
    they were known: `"session"`, `"token"`, `"proxy"`, or the name of your own way. `session` is the key of their session, if it
    is one, and `signed_in_at` is when it began.
    """

    principal: Principal
    tenant: str | None = None
    scopes: Collection[Scope] = frozenset(SCOPES)
    via: str
    session: str | None = None
    signed_in_at: datetime | None = None


class Auth(Protocol):
    """Tells who a request comes from. Yours may look into the session of your own web application."""

    async def identify(self, request: Request) -> Identity | None:
        """Return who sends the request; None if this way says nothing of it, so that the next way is asked.

        Raise `Problem` to refuse the request as a whole: for a forged header, say.
        """
        ...
