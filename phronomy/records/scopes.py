"""Scopes: names of permissions. A tool that needs scopes is there only for the runs that have all of them."""

import re
from typing import Annotated, Final, TypeAlias

from pydantic import StringConstraints

from phronomy.foundation.checks import texts_in

_TOKEN: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")

# As OAuth 2.0 has them (RFC 6749, section 3.3). In a longer alphabet two scopes could look alike and differ.
Scope: TypeAlias = Annotated[str, StringConstraints(pattern=f"^{_TOKEN.pattern}$")]
"""The name of a scope: 1 to 200 printable characters of ASCII without spaces, double quotes and backslashes."""

NEEDED: Final = "a list of names of 1 to 200 printable ASCII characters, without spaces, double quotes and backslashes"
"""What is needed where scopes are given, for an error."""


def scopes_in(given: object) -> frozenset[str] | None:
    """The scopes in a series of their names; None for any other value, such as one text."""
    names = texts_in(given)
    return frozenset(names) if names is not None and all(map(_TOKEN.fullmatch, names)) else None


def scopes_at_begin(given: frozenset[str] | None, requester: tuple[str, ...] | None) -> tuple[str, ...]:
    """The scopes that a run begins with: those of the call, and none that its requester has not. Nobody gave any: there are none."""
    known = [frozenset(each) for each in (given, requester) if each is not None]
    return tuple(sorted(frozenset.intersection(*known))) if known else ()
