"""Addresses of mail: those that this channel writes to, and the alias by which a directory knows who is behind one.

The part before the `@` counts as it is written (RFC 5321, 2.3.11), and the domain in any case. An address is a dot-atom, `@` and a
domain. Quoted names and numbers in brackets are refused: they are rare, and each program reads them in its own way.
"""

from __future__ import annotations

import re
from typing import Final

from phronomy.foundation.dataclasses import dataclass

PREFIX: Final = "email:"
"""What the place and the alias of an address begin with."""

_ATOM: Final = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+")
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LOCAL: Final = 64
_DOMAIN: Final = 253
"""The most octets of the two parts: RFC 5321, 4.5.3.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address of mail: the part before the `@`, and the domain in small letters, as people write it and as servers do (IDNA)."""

    local: str
    domain: str
    ascii_domain: str

    @property
    def shown(self) -> str:
        """The address as people write it."""
        return f"{self.local}@{self.domain}"

    @property
    def on_the_wire(self) -> str:
        """The address as servers take it."""
        return f"{self.local}@{self.ascii_domain}"

    @property
    def needs_utf8(self) -> bool:
        """Whether only a server with SMTPUTF8 takes it (RFC 6531)."""
        return not self.local.isascii()


def address_of(text: str) -> Address:
    """Read an address. Raises `ValueError`, which does not quote it."""
    local, at, domain = text.rpartition("@")
    if not at or not _is_local(local):
        raise ValueError("no address of mail that this channel takes: a name without quotes, @, and a domain")
    domain = domain.lower()
    try:
        wire = domain if domain.isascii() else domain.encode("idna").decode("ascii")
        # Python has the rules of 2003, by which some letters become others: the mail would go to another domain.
        is_same = domain.isascii() or wire.encode("ascii").decode("idna") == domain
    except UnicodeError:
        raise ValueError("the domain of the address is none") from None
    if not is_same:
        raise ValueError("the domain of the address is read in two ways: write it in ASCII, as it begins with xn--")
    if len(wire) > _DOMAIN or not all(_LABEL.fullmatch(label) for label in wire.split(".")):
        raise ValueError("the domain of the address is none")
    return Address(local=local, domain=domain, ascii_domain=wire)


def alias_of(place: str) -> str:
    """The alias by which a directory knows who is asked at a place: the same, with the domain in small letters."""
    name, at, domain = place.rpartition("@")
    return f"{name}@{domain.lower()}" if at else place


def _is_local(local: str) -> bool:
    if len(local.encode("utf-8", "surrogatepass")) > _LOCAL:
        return False
    return all(_is_atom(each) for each in local.split("."))


def _is_atom(text: str) -> bool:
    if text.isascii():
        return _ATOM.fullmatch(text) is not None
    # Letters and digits of any script: no blank space, no marks that turn the direction, nothing that cannot be seen.
    return all(each.isalnum() or _ATOM.fullmatch(each) for each in text)
