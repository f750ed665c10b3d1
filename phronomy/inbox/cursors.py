"""Cursors: the places of pages, as texts that nobody else can make, and that count for one list of one person alone.

A cursor holds a place in the store's form, and a tag over it: an HMAC that also covers whose it is, and of which list with which
filters and which order. One that was changed, made up, or taken from another list, person or tenant is refused: nothing is looked up
by it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from phronomy.foundation.json_text import JsonValue, canonical
from phronomy.inbox.auth.keys import derived
from phronomy.inbox.problems import Problem

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit

_PURPOSE: Final = "cursor"
_TAG: Final = 16
"""Bytes of a tag: it opens nothing that its holder may not see anyway, so half an HMAC is enough."""


class Cursors:
    """The cursors of one list, as one person asks for it. `filters` are those of the list, with its order."""

    def __init__(self, visit: Visit, name: str, filters: Mapping[str, JsonValue]) -> None:
        who = visit.identity.principal
        of: list[JsonValue] = [name, visit.store.tenant, who.kind, who.id, dict(sorted(filters.items()))]
        self._key = derived(visit.key, _PURPOSE)
        self._of = hashlib.sha256(canonical(of).encode()).digest()

    def made(self, place: str | None) -> str | None:
        """The cursor of a place; None for None."""
        if place is None:
            return None
        text = place.encode()
        return base64.urlsafe_b64encode(self._tag(text) + text).decode().rstrip("=")

    def read(self, cursor: str | None) -> str | None:
        """The place of a cursor; None for None. Raises `Problem` for one that is none of this list."""
        if cursor is None:
            return None
        try:
            given = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
            place = given[_TAG:].decode("utf-8")
        except ValueError:
            raise Problem("bad-cursor") from None
        # Encoded once more, as base64 has several texts for one value.
        if not hmac.compare_digest(given[:_TAG], self._tag(given[_TAG:])) or self.made(place) != cursor:
            raise Problem("bad-cursor")
        return place

    def _tag(self, place: bytes) -> bytes:
        return hmac.new(self._key, self._of + place, hashlib.sha256).digest()[:_TAG]
