"""What every answer of the inbox says to browsers, and what every request is checked for before anything else.

The headers, and the reasons for each, are those of the documentation's page on the inbox. They were tried in a browser against stored
scripts and handlers.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from phronomy.errors import ConfigurationError
from phronomy.foundation.json_text import JsonValue, canonical
from phronomy.foundation.quoting import quoted
from phronomy.inbox.problems import Problem

if TYPE_CHECKING:
    from starlette.requests import Request

    from phronomy.inbox.auth.identity import Identity

_DAY: Final = 86_400.0
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~%-]+)+")

UNSAFE: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})

_POLICY: Final = (
    "default-src 'none'; script-src {own}; style-src {own}; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; object-src 'none'; "
    "require-trusted-types-for 'script'; trusted-types phronomy"
)

HEADERS: Final[Mapping[str, str]] = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with it a form says that its origin is null, and could not be told from one of another site.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
"""The headers of every answer, beside the content security policy."""

NOT_STORED: Final = "no-store"
FOR_EVER: Final = "public, max-age=31536000, immutable"


def policy(nonce: str | None) -> str:
    """The content security policy of an answer. With a nonce, only what carries it counts, and no other file of the origin.

    An inbox that is mounted into another application shares its origin with all files of that application.
    """
    own = "'self'" if nonce is None else f"'nonce-{nonce}'"
    return _POLICY.format(own=own)


def origin_of(url: str) -> str:
    """The origin of the address under which people reach the inbox. Raises `ConfigurationError`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ConfigurationError(
            f"public_url is the address of the inbox for people, such as https://example.org/inbox, not {quoted(url)}"
        )
    return f"{parts.scheme}://{parts.netloc.lower()}"


def path_of(url: str) -> str:
    """The path of the address under which people reach the inbox, or nothing. Raises `ConfigurationError`."""
    path = urlsplit(url).path.rstrip("/")
    # As it goes into headers and pages: printable ASCII, one slash before each part, and no part that leads upwards.
    if (path and _PATH.fullmatch(path) is None) or {".", ".."} & {*path.split("/")}:
        raise ConfigurationError(
            f"public_url has a path of letters, digits and -._~%, such as /inbox, not {quoted(path)}"
        )
    return path


def check_host(request: Request, trusted: Collection[str] | None) -> None:
    """Refuse a request under a name that is none of ours: another site could have its name lead here. Raises `Problem`."""
    hosts = request.headers.getlist("host")
    if len(hosts) != 1 or (trusted is not None and hosts[0].lower() not in trusted):
        raise Problem("wrong-host")


def check_same_origin(request: Request, origin: str | None, trusted: Collection[str] | None) -> None:
    """Refuse what a page of another site has sent, with the cookies of whoever looks at it. Raises `Problem`.

    Browsers say where a request comes from, in a header that no page can set. Older ones, and all of them where there is no HTTPS,
    say the origin alone. It is compared with the configured `origin`, or where there is none, with the `trusted` host that the
    request is sent to. A name that nobody has vouched for proves nothing: another site could have its name lead here. A request that
    says neither is refused.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site != "same-origin":
            raise Problem("cross-site")
        return
    given = request.headers.get("origin")
    if given is None:
        raise Problem("cross-site", _NO_ORIGIN)
    host = request.headers.get("host", "").lower()
    known = f"{request.url.scheme}://{host}" if origin is None and trusted is not None and host in trusted else origin
    if known is None or given.lower() != known:
        raise Problem("cross-site", how_to_vouch(request, origin) or "")


_NO_ORIGIN: Final = (
    "The request has neither of the headers Sec-Fetch-Site and Origin, which browsers send. A program sends an API token, and a test of"
    " a form sends Sec-Fetch-Site: same-origin."
)

_ADDRESS: Final = re.compile(r"https?://([a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(:[0-9]{1,5})?")


def how_to_vouch(request: Request, origin: str | None) -> str | None:
    """The setting that is missing, if a browser names as origin the very address that it sends to, and no more.

    It may still be the page of another site, whose name leads here. So this is advice for the page and the log, and nothing counts
    by it.
    """
    if request.headers.get("sec-fetch-site") is not None:
        return None
    given = request.headers.get("origin", "").lower()
    if _ADDRESS.fullmatch(given) is None or given.partition("://")[2] != request.headers.get("host", "").lower():
        return None
    if origin is not None:
        return f"This server knows itself as {origin}, and the form was sent to {given}: open the page there, or correct public_url."
    return (
        "Without HTTPS, browsers do not say which site a form is from, so the server has to know its address. If this is the one that"
        f' people use, set Inbox(public_url="{given}"), with the path of the inbox if it has one.'
    )


def csrf_token(key: bytes, identity: Identity, now: float) -> str:
    """The text that a form carries to show that it is from a page that this person was given, at the time `now`."""
    # Of the session, so that it ends with it. Whoever is known by a proxy has no session: theirs is of the person and the day.
    who = identity.principal
    of: list[JsonValue] = (
        ["session", identity.session]
        if identity.session is not None
        else ["person", identity.via, identity.tenant, who.kind, who.id, int(now // _DAY)]
    )
    return hmac.new(key, b"csrf\0" + canonical(of).encode(), hashlib.sha256).hexdigest()


NO_CSRF_HEADER: Final = (
    "A request without an API token needs the header X-CSRF-Token: GET /api/v1/me says its value, as csrf. One with a token, as"
    " Authorization: Bearer, needs none."
)
"""What somebody is told whose request has no token, is no form, and does not show that it is from a page of theirs."""


def check_csrf(key: bytes, identity: Identity, given: str | None, now: float) -> None:
    """Refuse a form that is of no page that this person was given, today or the day before. Raises `Problem`."""
    right = [csrf_token(key, identity, at) for at in (now, now - _DAY)]
    if given is None or not any(hmac.compare_digest(each.encode(), given.encode()) for each in right):
        raise Problem("cross-site", "The form is not from a page of yours: open the page again and send the form anew.")
