"""Where somebody signs in, and the page that they come back to: a path of the inbox, and never another site."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from phronomy.errors import ConfigurationError
from phronomy.foundation.quoting import quoted

HOME: Final = "/"

TO: Final = "{to}"
"""The mark in the address of a login for the page to come back to."""

_MOST: Final = 2_000
_PLAIN: Final = re.compile(r"[!-\[\]-~]+", re.ASCII)  # printable ASCII without the space and the backslash


def return_path(text: str | None) -> str:
    """The path to come back to; `/` for anything that is no path of the inbox.

    It begins with one slash: browsers take `//host` and `/\\host` for another site. They drop tabs and line breaks, so there are
    none, and no part of the path leads upwards, out of where the inbox is mounted.
    """
    if text is None or len(text) > _MOST or _PLAIN.fullmatch(text) is None:
        return HOME
    if not text.startswith("/") or text.startswith("//"):
        return HOME
    path = re.split(r"[?#]", text, maxsplit=1)[0]
    return HOME if any(unquote(part) in (".", "..") for part in path.split("/")) else text


_EXAMPLES: Final = {
    "login_url": f"it is the login of your application, such as '/accounts/login/?next={TO}'",
    "logout_url": "it is where your application signs people out, such as '/accounts/logout/'",
}
"""The options that are addresses of an application, each with what it is."""


def check_app_url(url: object, option: str) -> str:
    """The address of an application's own login or logout, as it was given. Raises `ConfigurationError`.

    It is a path of the same origin, or an address of http or https. Where the browser is sent is settled by what stands before the
    first `?` or `#`, so `{to}` stands behind it.
    """
    given = url if isinstance(url, str) else ""
    place = re.split(r"[?#]", given, maxsplit=1)[0]
    if why := _wrong_in(given, place, given.removeprefix(place)):
        raise ConfigurationError(f"Inbox: {option} {why}: {_EXAMPLES[option]}, not {quoted(url)}")
    return given


def _wrong_in(url: str, place: str, rest: str) -> str:
    """The fault in the address of a login or logout; empty: none."""
    if len(url) > _MOST or _PLAIN.fullmatch(url) is None:
        return "is a text of letters, digits and signs of ASCII, without spaces and backslashes"
    if not place.startswith("/"):
        try:
            parts = urlsplit(place)
            named = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
        except ValueError:  # brackets that are no address, say
            named = False
        if not named:
            return "begins with one slash, or with https:// and a host"
    elif place.startswith("//"):
        return "begins with one slash, or with https:// and a host"
    if {"{", "}"} & {*place, *rest.replace(TO, "")}:
        return f"has {TO} behind the ? or the #, and no other braces"
    return ""


def app_address(url: str, to: str) -> str:
    """The address of an application's own login or logout; `to` is the path to come back to, as browsers see it."""
    return url.replace(TO, quote(to, safe=""))
