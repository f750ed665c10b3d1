"""The two steps of a sign-in: a browser is sent to the provider, and comes back with a code, for which the provider says who it is.

Whatever fails on the way is a page with a reason of ours. The provider's own words are shown to nobody, and written into no log: they
may be somebody else's.
"""

from __future__ import annotations

import inspect
import logging
import re
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hmac import compare_digest
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode, urlsplit

from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from phronomy.errors import ConfigurationError, StoreError
from phronomy.foundation.checks import is_count, is_number, texts_in
from phronomy.foundation.json_text import JsonDict
from phronomy.foundation.quoting import quoted, quoted_name, quoted_word
from phronomy.inbox.auth.identity import SCOPES, Identity
from phronomy.inbox.auth.limits import address_of
from phronomy.inbox.auth.returning import return_path
from phronomy.inbox.oidc import attempts
from phronomy.inbox.oidc.attempts import Attempt
from phronomy.inbox.oidc.provider import Clock, Provider, is_safe_url
from phronomy.inbox.oidc.tokens import ALGORITHMS, UnknownKey, Wanted, claims_of
from phronomy.inbox.problems import Problem
from phronomy.inbox.routes import Route
from phronomy.records.principals import Principal

if TYPE_CHECKING:
    from starlette.requests import Request

    from phronomy.inbox.site import Site
    from phronomy.inbox.visit import Visit

_log = logging.getLogger("phronomy.inbox")

PrincipalOf: TypeAlias = "Callable[[Mapping[str, Any]], Principal | Awaitable[Principal | None] | None]"
"""Says whom the claims of an ID token mean; None: nobody who may come in. It may be async."""

TenantOf: TypeAlias = "Callable[[Mapping[str, Any]], str | Awaitable[str | None] | None]"
"""Says whose data the person of these claims sees; None: nobody's, and they may not come in. It may be async."""

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,29}")
_SHARED: Final = re.compile(
    r"https://[a-z0-9.-]*(?:microsoftonline|chinacloudapi)\.[a-z]+(?::443)?/+(common|organizations|consumers)(?:/|$)",
    re.IGNORECASE | re.ASCII,
)
_LONGEST_NAME: Final = 200
_MOST_ROLES: Final = 500

_REFUSALS: Final[Mapping[str, str]] = {
    "access_denied": "The provider did not let you in, or you have stopped it.",
    "login_required": "The provider wants you to sign in there first.",
    "interaction_required": "The provider wants to ask you something first.",
    "account_selection_required": "The provider wants you to choose an account first.",
    "consent_required": "The provider wants your consent first.",
    "temporarily_unavailable": "The provider is overloaded, or down for maintenance.",
    "server_error": "The provider has failed.",
}
"""What the errors of a provider mean (RFC 6749, section 4.1.2.1; OpenID Connect Core 1.0, section 3.1.2.6)."""


class StartQuery(BaseModel):
    """The parameters with which a sign-in begins."""

    to: str = "/"
    max_age: int | None = Field(default=None, ge=0, le=31_536_000)


class CallbackQuery(BaseModel):
    """The parameters with which a browser comes back from the provider."""

    state: str = Field(default="", max_length=200, repr=False)
    code: str = Field(default="", max_length=8_000)
    error: str | None = None
    iss: str | None = None


class OIDC:
    """Sign-in with an OpenID Connect provider: an `Auth` for `Inbox(auth=...)`. Needs `public_url`.

    `issuer` is the address of the provider, exactly as it writes it itself; what else has to be known is read from
    `{issuer}/.well-known/openid-configuration`. `client_id` and `client_secret` are what the provider gave you for this application;
    without a secret, the client is a public one. Register `{public_url}/auth/{name}/callback` there as the redirect URI.

    A person is (`iss`, `sub`), and never an e-mail: their id is `oidc:{issuer}#{sub}`, and their name is for people alone. Their
    roles are those in the claim named `roles`; without it they have none. With `principal`, your function makes the person out of
    the claims, or returns None for whoever may not come in. `tenant` says whose data they see; with None nobody's, and they may
    not come in. Claims are kept nowhere. `userinfo` asks the provider for more of them, where the ID token does not have them all.

    `label` is on the sign-in page: "Sign in with {label}". Several providers have a `name` each. `algorithms` may sign ID tokens.
    With `max_age`, people must have typed their password so many seconds ago at most. `leeway` are the seconds by which the
    provider's clock may differ, and `timeout` those for each request to it. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        *,
        issuer: str,
        client_id: str,
        client_secret: str | None = None,
        scopes: Sequence[str] = ("openid", "profile", "email"),
        principal: PrincipalOf | None = None,
        roles: str | None = None,
        tenant: TenantOf | None = None,
        userinfo: bool = False,
        label: str = "single sign-on",
        name: str = "oidc",
        algorithms: Sequence[str] = ("RS256", "PS256", "ES256"),
        max_age: int | None = None,
        leeway: float = 60.0,
        timeout: float = 10.0,
    ) -> None:
        _check_provider(issuer, client_id, client_secret)
        asked = texts_in(scopes)
        if asked is None or "openid" not in asked or any(not each or " " in each for each in asked):
            raise ConfigurationError('OIDC: scopes are names, and "openid" is one of them')
        allowed = texts_in(algorithms)
        if not allowed or not set(allowed) <= ALGORITHMS.keys():
            raise ConfigurationError(f"OIDC: algorithms are some of {', '.join(ALGORITHMS)}; nothing else is safe here")
        _check_functions(principal, roles, tenant)
        if not isinstance(label, str) or not label or not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"OIDC: label is text, and name is a short word for paths, such as oidc, not {quoted_word(name)}"
            )
        _check_seconds(max_age, leeway, timeout)
        self.label: str = label
        self.start: str = f"/auth/{name}/start"
        self.issuer: str = issuer
        self._callback = f"/auth/{name}/callback"
        self._client_id = client_id
        self._scope = " ".join(asked)
        self._algorithms = allowed
        self._principal_of = principal
        self._roles = roles
        self._tenant_of = tenant
        self._userinfo = userinfo
        self._max_age = max_age
        self._leeway = leeway
        self._provider = Provider(issuer, client_id, client_secret, timeout=timeout)

    def __repr__(self) -> str:
        return f"OIDC({self.issuer!r}, client_id={self._client_id!r})"

    async def identify(self, request: Request) -> Identity | None:
        """Nobody: whoever has signed in has a session, which counts by itself."""
        return None

    def routes(self) -> Sequence[Route]:
        """The way to the provider, and the way back."""
        problems = ("sign-in-failed", "provider-unavailable")
        return (
            Route(method="GET", path=self.start, handler=self._begin, public=True, page=True, problems=problems),
            Route(
                method="GET", path=self._callback, handler=self._come_back, public=True, page=True, problems=problems
            ),
        )

    def check_inbox(self, site: Site) -> None:
        """Refuse an inbox that people could not come back to, or whose session their browsers would not bring along.

        Raises `ConfigurationError`.
        """
        if site.public_url is None or not is_safe_url(site.public_url, loopback=True):
            raise ConfigurationError(
                "OIDC: Inbox(public_url=...) is needed, with https: the provider sends people back there."
                " On one's own machine, http://localhost and http://127.0.0.1 will do"
            )
        if site.sessions.secure and not site.public_url.startswith("https:"):
            raise ConfigurationError(
                f"OIDC: nobody could sign in at {site.public_url}: without TLS, clients drop the secure cookie of the"
                ' session. Give Inbox(sessions=Sessions(store, cookie="phronomy", secure=False))'
            )
        if site.sessions.same_site == "strict":
            raise ConfigurationError(
                "OIDC: people come back from the site of the provider, and with same_site='strict' browsers would not bring"
                " the cookie of the new session along. Leave same_site of the Sessions at 'lax'"
            )

    async def _begin(self, visit: Visit) -> Response:
        """Send a browser to the provider, with an attempt of its own."""
        visit.inbox.limits.login(visit.request)
        asked = visit.query(StartQuery)
        ages = [each for each in (asked.max_age, self._max_age) if each is not None]
        clock = visit.inbox.store.clock
        metadata = await self._provider.metadata(clock)
        now = clock()
        attempt = attempts.begin(
            self.start,
            self.issuer,
            self._client_id,
            to=return_path(asked.to),
            max_age=min(ages, default=None),  # what the settings demand can be made shorter, and no longer
            now=now,
        )
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._redirect_uri(visit),
            "scope": self._scope,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        if attempt.max_age is not None:
            query["max_age"] = str(attempt.max_age)
        there = metadata.authorization_endpoint
        joint = "&" if urlsplit(there).query else "?"
        response = RedirectResponse(f"{there.rstrip('?&')}{joint}{urlencode(query)}", HTTPStatus.SEE_OTHER)
        prefix = _cookie_prefix(visit)
        for name in attempts.superfluous(visit.request, prefix, visit.key, now):
            _forget(visit, response, name)
        _set_cookie(visit, response, attempts.cookie_of(prefix, attempt.state), attempts.seal(attempt, visit.key))
        return response

    async def _come_back(self, visit: Visit) -> Response:
        """Begin a session for whoever the provider says has come back."""
        query = visit.query(CallbackQuery)
        cookie = attempts.cookie_of(_cookie_prefix(visit), query.state)
        gone = Response()
        _forget(visit, gone, cookie)
        # The address of this page has the code in it: no page that is loaded next is told it.
        headers = {"Referrer-Policy": "no-referrer", "Set-Cookie": gone.headers["set-cookie"]}
        try:
            attempt = await self._attempt(visit, query.state, visit.request.cookies.get(cookie))
            principal, tenant = await self._person(visit, attempt, query)
        except Problem as problem:
            if problem.type == "sign-in-failed":
                await visit.inbox.limits.failures.count("login", address_of(visit.request))
            _log.warning("a sign-in at %s failed: %s", self.issuer, problem.detail)
            raise Problem(problem.type, problem.detail, headers={**problem.headers, **headers}) from None
        site = visit.inbox
        old = await site.sessions.identify(visit.request)
        secret = await site.sessions.begin(
            principal,
            tenant=tenant,
            scopes=SCOPES,  # what they may do is said by the inbox at each request
            replaces=None if old is None else old.session,
        )
        response = RedirectResponse(visit.url(attempt.to), HTTPStatus.SEE_OTHER, headers)
        site.sessions.set_cookie(response, secret)
        _log.info("%r has signed in at %s", principal.id, self.issuer)
        return response

    async def _attempt(self, visit: Visit, state: str, sealed: str | None) -> Attempt:
        """The attempt that the answer is for, which is used up by this. Raises `Problem`."""
        attempt = None if sealed is None else attempts.unseal(sealed, visit.key)
        if (
            attempt is None
            or not compare_digest(attempt.state.encode(), state.encode())
            or (attempt.way, attempt.issuer, attempt.client_id) != (self.start, self.issuer, self._client_id)
        ):
            # Cookies are of the host: whoever has begun under another name of this server has none here.
            raise Problem(
                "sign-in-failed",
                f"This browser has not begun this sign-in at {visit.inbox.public_url}, or has finished it before.",
            )
        if attempt.until <= visit.inbox.store.clock():
            raise Problem("sign-in-failed", "The attempt has taken more than ten minutes.")
        if not await attempts.use(visit.inbox.store, attempt):
            raise Problem("sign-in-failed", "This sign-in was finished before.")
        return attempt

    async def _person(self, visit: Visit, attempt: Attempt, query: CallbackQuery) -> tuple[Principal, str | None]:
        """Who has come back, and the tenant whose data they see. Raises `Problem`."""
        clock = visit.inbox.store.clock
        metadata = await self._provider.metadata(clock)
        # Before anything else of the answer is believed: it may be that of another provider, which wants our code (RFC 9207).
        if query.iss != self.issuer and (query.iss is not None or metadata.names_issuer):
            raise Problem("sign-in-failed", "The answer does not come from the provider that was asked.")
        if query.error is not None:
            raise Problem("sign-in-failed", _REFUSALS.get(query.error, "The provider did not sign you in."))
        if not query.code:
            raise Problem("sign-in-failed", "The provider gave no code.")
        tokens = await self._provider.exchange(
            query.code, verifier=attempt.verifier, redirect_uri=self._redirect_uri(visit), clock=clock
        )
        wanted = Wanted(
            issuer=self.issuer,
            client_id=self._client_id,
            nonce=attempt.nonce,
            max_age=attempt.max_age,
            now=clock(),
            leeway=self._leeway,
        )
        claims = await self._claims(tokens.id_token, wanted, clock)
        if self._userinfo:
            more = await self._provider.userinfo(tokens.access_token, str(claims["sub"]), clock)
            claims = {**more, **claims}  # what is signed goes first
        principal = await self._asked("principal", self._principal_of or self._by_default, claims)
        if principal is not None and not isinstance(principal, Principal):
            raise self._broken("principal", f"it returned {quoted(principal)}, and no Principal")
        tenant = None if self._tenant_of is None else await self._asked("tenant", self._tenant_of, claims)
        if tenant is not None and not isinstance(tenant, str):
            raise self._broken("tenant", f"it returned {quoted(tenant)}, and no text")
        # Nor does an empty text lead anywhere: a claim that is missing must not open the inbox's own store.
        if principal is None or (self._tenant_of is not None and not tenant):
            raise Problem("forbidden", "The provider knows you, but you have no access to this server.")
        try:
            visit.inbox.store_of(tenant)
        except StoreError:
            raise self._broken("tenant", "it returned a text that names no tenant") from None
        return principal, tenant

    async def _claims(self, token: str, wanted: Wanted, clock: Clock) -> JsonDict:
        """The claims of an ID token, checked; the provider's keys are read again if none that is known has signed it."""
        keys = await self._provider.keys(clock)
        try:
            return claims_of(token, keys, self._algorithms, wanted)
        except UnknownKey:
            keys = await self._provider.newer_keys(keys, clock)
        try:
            return claims_of(token, keys, self._algorithms, wanted)
        except UnknownKey:
            raise Problem(
                "sign-in-failed",
                "What the provider said about you is signed with a key that is not known. Try again in a minute.",
            ) from None

    def _by_default(self, claims: Mapping[str, Any]) -> Principal:
        """The person whom the claims name: by issuer and subject, as an e-mail may be given to somebody else one day."""
        names = (claims.get(each) for each in ("name", "preferred_username", "email"))
        name = next((each for each in names if isinstance(each, str) and each), None)
        return Principal(
            id=f"oidc:{self.issuer}#{claims['sub']}",
            name=None if name is None else name[:_LONGEST_NAME],
            roles=self._roles_in(claims),
        )

    def _roles_in(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        found = [] if self._roles is None else claims.get(self._roles, [])
        roles = texts_in([found] if isinstance(found, str) else found)
        if roles is None or len(roles) > _MOST_ROLES or not all(roles):
            raise Problem("sign-in-failed", "The provider names your roles in a way that this server cannot read.")
        return roles

    async def _asked(self, name: str, function: Callable[[Mapping[str, Any]], object], claims: JsonDict) -> object:
        """What a function of the settings says about the claims. Raises `Problem`, also if the function fails."""
        try:
            found = function(dict(claims))
            return await found if inspect.isawaitable(found) else found
        except Problem:
            raise
        except Exception as error:
            # Where it failed, and not with which words: they may quote what only the person may know.
            where = "".join(traceback.format_tb(error.__traceback__)[1:])
            raise self._broken(name, f"it raised {type(error).__name__}\n{where}") from None

    def _broken(self, name: str, why: str) -> Problem:
        _log.error("the function %s of %r failed: %s", name, self, why)
        return Problem("sign-in-failed", "This server cannot read what the provider said about you: its log has more.")

    def _redirect_uri(self, visit: Visit) -> str:
        return f"{visit.inbox.public_url}{self._callback}"


def _check_provider(issuer: str, client_id: str, client_secret: str | None) -> None:
    if not isinstance(issuer, str) or not is_safe_url(issuer, loopback=True) or "?" in issuer:
        raise ConfigurationError(
            "OIDC: issuer is the address of the provider, with https, such as https://login.example.org,"
            f" not {quoted(issuer)}"
        )
    # All companies of Entra ID, or all people: tokens of these addresses name another issuer, that of a company.
    if (shared := _SHARED.match(issuer)) is not None:
        raise ConfigurationError(
            f"OIDC: {shared[1]} stands for many companies, and is no issuer: put the id of your tenant in its place"
        )
    if not isinstance(client_id, str) or not client_id:
        raise ConfigurationError("OIDC: client_id is the id that the provider gave to this application")
    if client_secret is not None and (not isinstance(client_secret, str) or not client_secret):
        raise ConfigurationError("OIDC: client_secret is text, or None for a public client")


def _check_functions(principal: object, roles: object, tenant: object) -> None:
    if not (principal is None or callable(principal)) or not (tenant is None or callable(tenant)):
        raise ConfigurationError("OIDC: principal and tenant are functions of the claims")
    if roles is not None and (not isinstance(roles, str) or not roles):
        raise ConfigurationError(f"OIDC: roles is the name of a claim, not {quoted_name(roles)}")
    if roles is not None and principal is not None:
        raise ConfigurationError("OIDC: principal says which roles somebody has, so roles would count for nothing")


def _check_seconds(max_age: object, leeway: object, timeout: object) -> None:
    if not (max_age is None or is_count(max_age)):
        raise ConfigurationError(f"OIDC: max_age is a whole number of seconds, or None, not {quoted(max_age)}")
    if not is_number(leeway) or not 0 <= leeway <= 600:
        raise ConfigurationError(f"OIDC: leeway is 0 to 600 seconds, not {quoted(leeway)}")
    if not is_number(timeout) or timeout <= 0:
        raise ConfigurationError(f"OIDC: timeout is a number of seconds above 0, not {quoted(timeout)}")


def _is_secure(visit: Visit) -> bool:
    return visit.inbox.origin is not None and visit.inbox.origin.startswith("https:")


def _cookie_prefix(visit: Visit) -> str:
    """What the cookies of attempts begin with. Browsers take `__Host-` from this very host alone, and over TLS."""
    return "__Host-phronomy-login-" if _is_secure(visit) else "phronomy-login-"


def _set_cookie(visit: Visit, response: Response, name: str, value: str) -> None:
    # Lax: the browser comes back from another site, and brings it along.
    response.set_cookie(
        name, value, max_age=attempts.SECONDS, path="/", secure=_is_secure(visit), httponly=True, samesite="lax"
    )


def _forget(visit: Visit, response: Response, name: str) -> None:
    response.delete_cookie(name, path="/", secure=_is_secure(visit), httponly=True, samesite="lax")
