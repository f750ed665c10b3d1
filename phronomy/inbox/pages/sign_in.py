"""The pages of signing in and out: which ways there are, the one-time link, and where somebody is signed in."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from phronomy.inbox.auth.identity import SCOPES
from phronomy.inbox.auth.limits import address_of
from phronomy.inbox.auth.one_time_link import LinkState, OneTimeLink
from phronomy.inbox.auth.returning import HOME, return_path
from phronomy.inbox.pages.view import render
from phronomy.inbox.pages.words import MAY
from phronomy.inbox.problems import Problem
from phronomy.inbox.routes import Route

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit

_STATUS: Final[dict[LinkState, int]] = {
    "fresh": HTTPStatus.OK,
    "used": HTTPStatus.GONE,
    "expired": HTTPStatus.GONE,
    "wrong": HTTPStatus.NOT_FOUND,
}


async def login(visit: Visit) -> Response:
    """The ways to sign in, and for somebody who is signed in, the way on. If the login of an application is all, it leads there."""
    asked, link = visit.request.query_params, _link(visit)
    to, inbox = return_path(asked.get("to")), visit.inbox
    alone = inbox.login_url is not None and link is None and not inbox.sign_ins
    # Who has just signed out is not signed in again at once.
    if alone and visit.maybe is None and asked.get("said") != "out":
        return RedirectResponse(visit.login(to), HTTPStatus.SEE_OTHER)
    return render(
        visit,
        "login.html",
        to=to,
        link=link,
        signed_out=asked.get("said") == "out",
        ended=asked.get("said") == "ended",
        announced=asked.get("said") == "printed",
    )


async def logout(visit: Visit) -> Response:
    """End this session."""
    if visit.maybe is not None and visit.maybe.session is not None:
        await visit.inbox.sessions.end(visit.maybe.session)
    return _signed_out(visit)


async def me(visit: Visit) -> Response:
    """Who somebody is here, what they may do, and where they are signed in."""
    who = visit.identity
    sessions = await visit.inbox.sessions.of(who.principal.id, tenant=who.tenant) if who.session is not None else ()
    scopes = [MAY[each] for each in SCOPES if each in who.scopes]
    return render(visit, "me.html", sessions=sessions, scopes=scopes)


async def sign_out(visit: Visit) -> Response:
    """End a session of one's own, or all of them."""
    who, sessions, form = visit.identity, visit.inbox.sessions, visit.form()
    if who.session is None:
        raise Problem("refused", "You have no session here: sign out where you have signed in.")
    if form.get("everywhere") is not None:
        await sessions.end_all(who.principal.id, tenant=who.tenant)
        await sessions.end(who.session)
        return _signed_out(visit)
    key = form.needed("session")
    if key == who.session:
        await sessions.end(key)
        return _signed_out(visit)
    if all(each.key != key for each in await sessions.of(who.principal.id, tenant=who.tenant)):
        raise Problem("not-found", "You have no such session. Perhaps it is over already.")
    await sessions.end(key)
    return _see(visit, "/me")


async def start(visit: Visit) -> Response:
    """The page of a one-time link. It changes nothing: mail and chat programs open links, too."""
    link = _needed_link(visit)
    secret = visit.params["secret"]
    return _start_page(visit, link, await link.state(secret), secret)


async def spend(visit: Visit) -> Response:
    """Spend a one-time link, and begin a session."""
    link = _needed_link(visit)
    secret = visit.form().needed("secret")
    state = await link.spend(secret)
    if state != "fresh":
        await visit.inbox.limits.failures.count("link", address_of(visit.request))
        return _start_page(visit, link, state, "")
    sessions = visit.inbox.sessions
    replaces = visit.maybe.session if visit.maybe is not None else None
    # What they may do is said by the inbox at each request: a session of its owner leaves nothing out.
    cookie = await sessions.begin(link.principal, tenant=link.tenant, scopes=SCOPES, replaces=replaces)
    response = _see(visit, return_path(visit.form().get("to")))
    sessions.set_cookie(response, cookie)
    return response


async def announce(visit: Visit) -> Response:
    """Print a new one-time link in the terminal of the server, for somebody who can read it there."""
    link = _needed_link(visit)
    if link.announce is None:
        raise Problem("not-found")
    visit.inbox.limits.login(visit.request)
    to = return_path(visit.form().get("to")) if visit.body else HOME
    await link.announce_new(to)
    return _see(visit, "/login?said=printed" + ("" if to == HOME else f"&to={quote(to, safe='/')}"))


def _link(visit: Visit) -> OneTimeLink | None:
    return next((each for each in visit.inbox.auth if isinstance(each, OneTimeLink)), None)


def _needed_link(visit: Visit) -> OneTimeLink:
    if (found := _link(visit)) is None:
        raise Problem("not-found")
    return found


def _start_page(visit: Visit, link: OneTimeLink, state: LinkState, secret: str) -> Response:
    to = return_path(visit.request.query_params.get("to"))
    response = render(visit, "start.html", status=_STATUS[state], link=link, state=state, secret=secret, to=to)
    # The secret is in the path: no other page and no file learns it. Not no-referrer, with which the form's origin would be null.
    response.headers["Referrer-Policy"] = "strict-origin"
    return response


def _signed_out(visit: Visit) -> Response:
    response = _see(visit, "/login?said=out")
    visit.inbox.sessions.clear_cookie(response)
    return response


def _see(visit: Visit, path: str) -> Response:
    """Send a browser on to another page of the inbox."""
    return RedirectResponse(visit.url(path), HTTPStatus.SEE_OTHER)


SIGN_IN: Final[tuple[Route, ...]] = (
    Route(method="GET", path="/login", handler=login, public=True, page=True),
    Route(method="POST", path="/logout", handler=logout, public=True, page=True),
    Route(method="GET", path="/me", handler=me, page=True),
    Route(method="POST", path="/me/sign-out", handler=sign_out, page=True),
    Route(method="POST", path="/start", handler=spend, public=True, page=True),
    Route(method="POST", path="/start/new", handler=announce, public=True, page=True),
    Route(method="GET", path="/start/{secret}", handler=start, public=True, page=True),
)
"""The routes of signing in and out. Those under `/start` answer only where there is a `OneTimeLink`."""
