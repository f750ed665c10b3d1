"""The inbox as one ASGI application: each request finds its route, its sender and its store, and each answer gets its headers.

It keeps nothing in memory that counts. Sessions, tokens and keys are small documents of the store, so that any number of processes
behind a proxy are one inbox, and whoever signs out is signed out everywhere.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route as Path
from starlette.routing import Router

from phronomy.errors import ConfigurationError
from phronomy.foundation.quoting import quoted
from phronomy.inbox import security
from phronomy.inbox.api.events import Watching
from phronomy.inbox.api.table import API
from phronomy.inbox.auth.api_tokens import PREFIX, bearer_of
from phronomy.inbox.auth.identity import Auth, Identity
from phronomy.inbox.auth.limits import Limits
from phronomy.inbox.auth.people import look_up
from phronomy.inbox.auth.proxy import TrustedProxy
from phronomy.inbox.auth.sessions import Sessions
from phronomy.inbox.observing import answered
from phronomy.inbox.pages.table import PAGES, problem_page
from phronomy.inbox.problems import Problem, problem_of
from phronomy.inbox.routes import Checks, Route, SignIn
from phronomy.inbox.site import MAX_BODY, ScopesOf, SignInLink, Site, Threads
from phronomy.inbox.visit import CutOff, Visit, body_of
from phronomy.observability.telemetry import Telemetry
from phronomy.records.principals import Principal
from phronomy.runs.runs import Runs
from phronomy.stores.base import Store

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Send
    from starlette.types import Scope as ASGIScope

    from phronomy.inbox.pages.deciding.mail_links import MailLinks

_log = logging.getLogger("phronomy")


class Inbox:
    """A web page and an HTTP API where people decide requests: an ASGI application.

    `store` is where the requests are: to list, show and decide them, no agent is needed. `agents` are agents or graphs of this
    process: with them, an edit is checked as the tool checks it, and runs can be started and cancelled. To carry decisions
    out, run a `Worker`. `auth` is who may come in: an `Auth`, or several; there is no inbox without one. Sessions and API tokens
    count beside it.

    `public_url` is the address under which people reach the inbox, such as `https://example.org/inbox`; without it, only browsers
    that say where a request comes from can sign in. Its path stands before all paths of pages and answers, also where a proxy takes
    it away. `login_url` is the login of your application, such as `/accounts/login/?next={to}`: who is not signed in is sent there,
    and `{to}` is the path to come back to; None: to the sign-in page of the inbox. `logout_url` is where your
    application signs people out, whom it has signed in: a link leads there. `trusted_hosts` are the host names, with ports,
    that it answers to; None: all, for a server behind a proxy that checks them. `scopes` says what a principal may do; the default
    is to `read` and `decide`. `title` stands on top of each page. `logo` is the path or the bytes of a PNG or an SVG of at most 256
    KiB, which stands beside it, and `color`, such as `#0d5c63`, is that of links and of the button that approves: white text on it,
    and text in it, has a contrast of at least 4.5; in dark it is lightened. `max_body` is the largest body in bytes. `sessions` are
    the sessions, if their times or their cookie are to be others; `limits` say how often somebody may try. `threads` says in which
    threads somebody may start runs: their `"own"`, in which nobody else has asked for one, or `"any"`. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        store: Store,
        agents: Runs[Any, Any] | Sequence[Runs[Any, Any]] = (),
        auth: Auth | Sequence[Auth] = (),
        *,
        public_url: str | None = None,
        login_url: str | None = None,
        logout_url: str | None = None,
        title: str = "Approvals",
        logo: str | FilePath | bytes | None = None,
        color: str | None = None,
        scopes: ScopesOf | None = None,
        trusted_hosts: Collection[str] | None = None,
        max_body: int = MAX_BODY,
        sessions: Sessions | None = None,
        limits: Limits | None = None,
        links: MailLinks | None = None,
        telemetry: Telemetry | None = None,
        threads: Threads = "own",
    ) -> None:
        if not isinstance(telemetry, Telemetry | None):
            raise ConfigurationError(f"Inbox: telemetry is a Telemetry, or None, not {quoted(telemetry)}")
        self._meters = None if telemetry is None else telemetry._for_inbox()
        self.site: Site = Site(
            store,
            agents,
            auth,
            public_url=public_url,
            login_url=login_url,
            logout_url=logout_url,
            title=title,
            logo=logo,
            color=color,
            scopes=scopes,
            trusted_hosts=trusted_hosts,
            max_body=max_body,
            sessions=sessions,
            limits=limits,
            threads=threads,
        )
        for each in self.site.auth:
            if isinstance(each, Checks):
                each.check_inbox(self.site)
        sign_ins: list[SignIn] = [each for each in self.site.auth if isinstance(each, SignIn)]
        self.site.sign_ins = tuple(SignInLink(each.label, each.start) for each in sign_ins)
        by_mail = links.routes() if links is not None else ()
        self.routes: tuple[Route, ...] = (
            *(*PAGES, *API, *by_mail),
            *(route for each in sign_ins for route in each.routes()),
        )
        self._router = Router(routes=_paths(self.routes, self._endpoint), redirect_slashes=False, default=self._nowhere)

    def __repr__(self) -> str:
        return f"Inbox({self.site.store!r})"

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI has it."""
        if scope["type"] == "lifespan":
            await _no_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:  # a WebSocket, say: there are none here
            await send({"type": "websocket.close", "code": 1003})

    def end_streams(self) -> None:
        """End all event streams of this process, and begin no more: call it when the server shuts down.

        A stream stays open as long as a browser shows a page, so a server that waits for open requests waits for it.
        Call it in the event loop that serves the inbox.
        """
        self.site.kept(Watching).close()

    async def identify(self, request: Request) -> Identity | None:
        """Who sends a request; None if nobody is known. Raises `Problem` for what is forged."""
        # Whoever else is known: a header that names people and is not of the proxy is an attempt, and is refused and noted.
        for proxy in self.site.auth:
            if isinstance(proxy, TrustedProxy):
                proxy.check(request)
        ways: tuple[Auth, ...] = (*self.site.auth, self.site.sessions)
        # Another scheme than Bearer is not for the inbox: a proxy that asks for a password passes it on.
        if (bearer := bearer_of(request)) is not None:
            if self.site.sessions.cookie in request.cookies:
                raise Problem("bad-request", "Send a token or a cookie, not both.")
            # Tokens of another issuer are for an auth of the application. What nobody knows is refused as one of ours.
            others = () if bearer.startswith(PREFIX) else self.site.auth
            ways = (*others, self.site.tokens)
        for each in ways:
            if (found := await each.identify(request)) is not None:
                if not isinstance(found, Identity):
                    raise ConfigurationError(
                        f"{type(each).__name__}: identify returns an Identity, or None, not {quoted(found)}"
                    )
                # Sessions and tokens have looked: they end with the person.
                own = each is self.site.sessions or each is self.site.tokens
                if not own and found.via in ("session", "token"):
                    # What comes with a token is not checked for the site that it is from: a cookie must not pass for one.
                    raise ConfigurationError(f"{type(each).__name__}: via is a name of its own, not {found.via!r}")
                who = found.principal if own else await look_up(self.site.store, found.tenant, found.principal)
                return None if who is None else self._allowed(found, who)
        return None

    def _allowed(self, found: Identity, principal: Principal) -> Identity:
        """The identity of the principal as the directory has them, with no more scopes than they have here."""
        scopes = frozenset(found.scopes) & self.site.scopes_of(principal)
        return Identity(
            principal=principal,
            tenant=found.tenant,
            scopes=scopes,
            via=found.via,
            session=found.session,
            signed_in_at=found.signed_in_at,
        )

    async def _answer(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        request = Request(scope, receive)
        nonce = secrets.token_urlsafe(16)
        scope["phronomy.nonce"] = nonce

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                for name, value in security.HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Content-Security-Policy", security.policy(nonce))
                headers.setdefault("Cache-Control", security.NOT_STORED)
                scope["phronomy.status"] = message["status"]
            await send(message)

        try:
            security.check_host(request, self.site.trusted_hosts)
            await self._router(scope, receive, with_headers)
        except Problem as problem:
            visit = scope.get("phronomy.visit") or Visit(request, self.site, None)
            response = await self._problem(problem, None, visit)
            await response(scope, receive, with_headers)
        finally:
            answered(scope, started, self._meters)

    async def _nowhere(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """What answers a path that is none. Raises `Problem`."""
        await self._known(Request(scope, receive), None)
        raise Problem("not-found")

    def _endpoint(self, by_method: Mapping[str, Route]) -> ASGIApp:
        """What answers the requests of one path."""

        async def endpoint(scope: ASGIScope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive)
            method = "GET" if request.method == "HEAD" else request.method
            route = by_method.get(method)
            if route is None:
                allowed = ", ".join(sorted({*by_method, *(["HEAD"] if "GET" in by_method else [])}))
                other = next(iter(by_method.values()))
                problem = Problem("wrong-method", headers={"Allow": allowed})
                response = await self._problem(problem, other, await self._known(request, other.path))
            else:
                response = await self._handled(request, route)
            # They went away, or may not have the rest: the answer has no end, and the server closes the connection.
            with suppress(ClientDisconnect, CutOff):
                await response(scope, receive, send)

        return endpoint

    async def _known(self, request: Request, place: str | None) -> Visit:
        """A request that no handler gets, with whoever sends it, if that can be said: the log and the page name them."""
        visit = Visit(request, self.site, place, self.identify)
        request.scope["phronomy.visit"] = visit
        with suppress(Exception):  # the address is wrong, whoever asks
            visit.key = await self.site.key()
            visit.maybe = await self.identify(request)
        return visit

    async def _handled(self, request: Request, route: Route) -> Response:
        """The answer of the route's handler, or of what kept it from being asked."""
        visit = Visit(request, self.site, route.path, self.identify)
        request.scope["phronomy.visit"] = visit
        try:
            visit.key = await self.site.key()
            visit.maybe = await visit.known()
            _check_route(route, visit)
            if not route.public and request.method not in security.UNSAFE:
                self.site.limits.read(visit.identity)
            if request.method in security.UNSAFE:
                visit.body = await body_of(request, self.site.max_body)
                # A body may take its time. Who sends it counts now, and not when its first byte came.
                visit.maybe = await visit.identify_again()
                _check_route(route, visit)
                self._check_sender(visit)
            return await route.handler(visit)
        except Exception as error:
            return await self._problem(problem_of(error), route, visit, error)

    def _check_sender(self, visit: Visit) -> None:
        """Refuse what another site had a browser send. A token is no cookie: no browser sends it by itself."""
        identity = visit.maybe
        if identity is not None and identity.via == "token":
            return
        try:
            security.check_same_origin(visit.request, self.site.origin, self.site.trusted_hosts)
        except Problem:
            advice = security.how_to_vouch(visit.request, self.site.origin)
            if advice is not None:
                _log.warning("a form was refused. %s", advice)
            raise
        if identity is not None:
            given = visit.request.headers.get("x-csrf-token")
            if given is None and visit.content_type == "application/x-www-form-urlencoded":
                given = visit.form().get("csrf")
            elif given is None:
                raise Problem("cross-site", security.NO_CSRF_HEADER)
            security.check_csrf(visit.key, identity, given, self.site.store.clock())

    async def _problem(
        self, problem: Problem, route: Route | None, visit: Visit, error: Exception | None = None
    ) -> Response:
        """What somebody is told about a problem: a page, the way to the sign-in page, or problem details."""
        log_id = secrets.token_hex(8)
        visit.request.scope["phronomy.problem"] = problem.type
        visit.request.scope["phronomy.log_id"] = log_id  # the line of the access log has it: by this id it is found
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _log.error("the inbox failed (id %s)", log_id, exc_info=error)
        if wants_page(visit.request, route):
            is_secret = route is not None and route.secret
            if problem.type == "not-signed-in" and visit.request.method in ("GET", "HEAD") and not is_secret:
                to = visit.request.scope["path"].removeprefix(visit.request.scope.get("root_path", ""))
                query = visit.request.scope.get("query_string", b"").decode("latin-1")
                said = "ended" if self.site.sessions.cookie in visit.request.cookies else None
                there = visit.login(to + (f"?{query}" if query else ""), said=said)
                return RedirectResponse(there, status_code=HTTPStatus.SEE_OTHER)
            response = await problem_page(visit, route, problem, log_id)
            if is_secret:
                response.headers["Referrer-Policy"] = "no-referrer"
        else:
            body = visit.told(problem, instance=log_id)
            response = JSONResponse(body, problem.status, media_type="application/problem+json")
        response.headers.update(problem.headers)
        return response


def _check_route(route: Route, visit: Visit) -> None:
    """Refuse somebody who may not use a route. Raises `Problem`."""
    _check_way(route, visit.maybe)
    if route.public:
        return
    identity = visit.identity  # raises if there is none
    for_own = bool(route.own) and frozenset(route.own) <= frozenset(identity.scopes)
    for each in route.scopes:
        if each not in identity.scopes and not for_own:
            raise Problem("forbidden", f"You need the scope {each}.", scope=each)


def _check_way(route: Route, identity: Identity | None) -> None:
    """Refuse a token on a page: pages are for people, and what is done there is noted as done by one. Raises `Problem`."""
    if identity is None or identity.via != "token" or not route.page or route.path.startswith("/problems/"):
        return
    raise Problem("forbidden", "A token is for the API, under /api/v1. Pages are for people who have signed in.")


def wants_page(request: Request, route: Route | None) -> bool:
    """Whether somebody who meets a problem is to see a page: on a page's path, or elsewhere if they look with a browser."""
    if route is not None:
        return route.page
    return "text/html" in request.headers.get("accept", "")


def _paths(routes: Sequence[Route], endpoint: Callable[[Mapping[str, Route]], ASGIApp]) -> list[Path]:
    """A route of Starlette's for each path, in the order of the table."""
    found: dict[str, dict[str, Route]] = {}
    for route in routes:
        if route.method in (methods := found.setdefault(route.path, {})):
            raise ConfigurationError(f"Inbox: two routes answer {route.method} {route.path}")
        methods[route.method] = route
    paths = []
    for text, methods in found.items():
        path = Path(text, _unused)
        path.app, path.methods = endpoint(methods), None  # each method is looked up by us, and a wrong one is a problem
        paths.append(path)
    return paths


async def _unused(request: Request) -> Response:
    raise NotImplementedError


async def _no_lifespan(receive: Receive, send: Send) -> None:
    """Say that nothing has to be begun or ended."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def mounted(inbox: ASGIApp, at: str, beside: ASGIApp) -> ASGIApp:
    """An ASGI application that has the inbox under the path `at`, and another application everywhere else.

    For applications that cannot mount one themselves, such as Django's `get_asgi_application()`. Starlette and FastAPI can:
    `app.mount("/approvals", inbox)`. Raises `ConfigurationError` if `at` is no path such as `/approvals`.
    """
    if not at.startswith("/") or at.endswith("/") or "//" in at:
        raise ConfigurationError(f"mounted: at is a path, such as /approvals, not {quoted(at)}")

    async def dispatch(scope: ASGIScope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", ""))
        if scope["type"] == "http" and (path == at or path.startswith(at + "/")):
            inside = {**scope, "root_path": scope.get("root_path", "") + at}
            if path == at:
                inside["path"] = at + "/"
            await inbox(inside, receive, send)
        else:
            await beside(scope, receive, send)

    return dispatch
