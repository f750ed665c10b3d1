"""Who a request of the inbox comes from, and the protocol of what tells it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, get_args

from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import texts_in
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import quoted, quoted_word
from phronomy.records.principals import Principal

if TYPE_CHECKING:
    from starlette.requests import Request

Scope: TypeAlias = Literal["read", "decide", "grant", "audit", "start", "cancel", "operate", "send"]
"""What somebody may do in the inbox at all. Whether they may decide a request is judged by its approval, besides."""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

DEFAULT_SCOPES: Final[frozenset[Scope]] = frozenset({"read", "decide"})
"""What everybody who is signed in may do, unless `Inbox(scopes=...)` says otherwise."""


def checked_scopes(given: object, whose: str) -> frozenset[Scope]:
    """The scopes in a series of their names. Raises `ConfigurationError` for an unknown one, and for one text, which is no series."""
    names = texts_in(given)
    known: frozenset[Scope] = frozenset(each for each in SCOPES if each in (names or ()))
    if names is None or len({*names}) != len(known):
        wrong = next((quoted_word(each) for each in names or () if each not in SCOPES), quoted(given))
        raise ConfigurationError(f"{whose} are some of {', '.join(SCOPES)}, in a list or a set, not {wrong}")
    return known


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a request comes from: the `principal`, and the `tenant` of the store that they see; None: that of the inbox's store.

    `scopes` are the most that they may do here: of these they have the ones that `Inbox(scopes=...)` gives them. `via` says how
    they were known: `"session"`, `"token"`, `"proxy"`, or the name of your own way. `session` is the key of their session, if it
    is one, and `signed_in_at` is when it began. Raises `ConfigurationError`.
    """

    principal: Principal
    tenant: str | None = None
    scopes: Collection[Scope] = frozenset(SCOPES)
    via: str
    session: str | None = None
    signed_in_at: datetime | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.principal, Principal):
            raise ConfigurationError(
                f"Identity: principal is a Principal, such as Principal(id='rita'), not {quoted(self.principal)}"
            )
        if not isinstance(self.via, str) or not self.via:
            raise ConfigurationError(f"Identity: via is a name of your own for the way, not {quoted(self.via)}")
        if not isinstance(self.tenant, str | None):
            raise ConfigurationError(f"Identity: tenant is the name of a tenant, or None, not {quoted(self.tenant)}")
        object.__setattr__(self, "scopes", checked_scopes(self.scopes, "Identity: scopes"))


class Auth(Protocol):
    """Tells who a request comes from. Yours may look into the session of your own web application."""

    async def identify(self, request: Request) -> Identity | None:
        """Return who sends the request; None if this way says nothing of it, so that the next way is asked.

        Raise `Problem` to refuse the request as a whole: for a forged header, say.
        """
        ...
