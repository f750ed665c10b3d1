"""What a route of the inbox is. `app.py` has the one table of all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel

from phronomy.foundation.dataclasses import dataclass
from phronomy.inbox.auth.identity import Scope

if TYPE_CHECKING:
    from starlette.responses import Response

    from phronomy.inbox.site import Site
    from phronomy.inbox.visit import Visit

Handler: TypeAlias = "Callable[[Visit], Awaitable[Response]]"
"""Answers one request."""

Method: TypeAlias = Literal["GET", "POST", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method of a path, who may use it, and what it takes and gives.

    `scope` is what somebody needs who is signed in, of several each one; None: nothing more. With `public`, nobody need be signed in.
    A `page` is HTML: an error is a page, and whoever is not signed in is sent to the sign-in page. What is no page is of the API, and
    its errors are problem details.

    With `own`, whoever has all of these scopes may use it as well, for what they did themselves: the handler shows them no more.

    With `secret`, the path has a secret: no page that is shown there tells its address to the next one, the sign-in page included.

    `acts` says that it changes something by somebody's decision: the API demands an idempotency key for it. `query`, `body` and
    `answer` are the models of the API's description; `status` is that of a good answer, `media` its type, and `problems` are the
    names of the problems that it may answer with, besides those of every route.
    """

    method: Method
    path: str
    handler: Handler
    scope: Scope | tuple[Scope, ...] | None = None
    own: tuple[Scope, ...] = ()
    public: bool = False
    page: bool = False
    acts: bool = False
    secret: bool = False
    summary: str = ""
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    status: int = 200
    media: str = "application/json"
    problems: tuple[str, ...] = ()

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes that somebody needs, all of them."""
        match self.scope:
            case None:
                return ()
            case tuple():
                return self.scope
            case one:
                return (one,)


@runtime_checkable
class SignIn(Protocol):
    """A way to begin a session that is offered on the sign-in page: as "Sign in with {label}", a link to `start`.

    `start` is a path of the inbox; it gets `?to=/path`, the page to come back to. `routes` are those that it needs.
    """

    label: str
    start: str

    def routes(self) -> Sequence[Route]:
        """The routes that this way to sign in needs."""
        ...


@runtime_checkable
class Checks(Protocol):
    """An `Auth` that works in certain inboxes only, and says so when the inbox is made."""

    def check_inbox(self, site: Site) -> None:
        """Raise `ConfigurationError` if it cannot work in this inbox, with the remedy."""
        ...
