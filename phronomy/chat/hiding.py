"""Values that `hide` names are shown in no chat: members of arguments at every depth, and texts that may quote their values.

A name is that of a parameter, of a member inside one, or of a channel of a graph; `payment.iban` is `iban` inside `payment` alone.
A model writes the names of members that no schema fixes. So names that somebody may take for one are one: case, compatible forms,
accents and letters that look alike make no difference, nor do white space and characters that cannot be seen.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Collection, Iterator
from typing import Final

from phronomy.foundation.checks import leaves
from phronomy.foundation.in_brief import one_line
from phronomy.foundation.json_text import JsonValue, canonical, object_of
from phronomy.foundation.lookalikes import LOOKALIKES
from phronomy.foundation.quoting import HIDDEN, quoted_name, without
from phronomy.foundation.spelling import near, told
from phronomy.foundation.suspicious_letters import shows_all
from phronomy.records.decisions import PendingApproval
from phronomy.stores.derived.requests import Request
from phronomy.tools.member_names import folded

_log = logging.getLogger("phronomy")

_MOST: Final = 500
"""Names that are looked at in a request, to tell a misspelt one."""
_GUESSED: Final = 3
"""Characters of a hidden value by which it is known at the end of a text that was cut."""
_MANY: Final = 20
"""Requests after which a name that none of them has is told."""


class Hiding:
    """The names in `hide`, and what follows from them."""

    def __init__(self, names: Collection[str]) -> None:
        self.names: frozenset[str] = frozenset(names)
        self._parts = frozenset(tuple(_parts(each)) for each in names)
        self._unmet = {_folded(each): each for each in names}
        self._noted: set[str] = set()

    def is_hidden(self, item: PendingApproval) -> bool:
        """True if a request has something that is hidden, or a reason that may quote something that is."""
        return self._has_hidden(item) or self.is_untold(item)

    def is_untold(self, item: PendingApproval) -> bool:
        """True if the reason of a request may quote a value that is hidden.

        It may be the error of the call, or of an edit that did not fit, and quote a value in a form that nothing finds, or one that
        the request does not have. A node that failed was given the state, and the request about it has no state unless the
        node asks for approval.
        """
        if not self._parts or item.reason is None:
            return False
        return self._has_hidden(item) or item.tool.source == "node" or not item.args

    def _has_hidden(self, item: PendingApproval) -> bool:
        return bool(self._parts) and any(self._hides(way) for way, _ in _members(item.args))

    def view(self, value: JsonValue, note: str, way: tuple[str, ...] = ()) -> JsonValue:
        """A copy of a value, in which the note stands for each member that is hidden."""
        if not self._parts:
            return value
        if isinstance(value, dict):
            inside = {key: (*way, *_parts(key)) for key in value}
            return {
                key: note if self._hides(inside[key]) else self.view(each, note, inside[key])
                for key, each in value.items()
            }
        return [self.view(each, note, way) for each in value] if isinstance(value, list) else value

    def text(self, text: str, *values: JsonValue) -> str:
        """A text that may quote values, without those of them that are hidden."""
        secret: set[str] = set()
        for way, each in (member for value in values for member in _members(value)) if self._parts else ():
            if self._hides(way):
                for leaf in leaves([each]):
                    brief = one_line(leaf).removesuffix("…")  # as titles quote it
                    secret |= {leaf, repr(leaf)[1:-1], canonical(leaf)[1:-1], brief}
        secret -= {"", "None", "True", "False", "null", "true", "false"}
        return _without_end(without(text, secret), secret)

    def note(self, request: Request) -> None:
        """Warn, once, of each name that no request has: at the first one that has a similar name, or after many."""
        if not self._unmet:
            return
        known = sorted(_names_in(request))
        met = {_folded(each) for each in known}
        self._noted.add(request.approval.id)
        for name, given in [*self._unmet.items()]:
            if name in met:
                self._unmet.pop(name, None)
                continue
            is_wrong = len(self._noted) >= _MANY or near(given, known, 0.7) is not None
            # Taken out first, so that of several threads one tells it.
            if is_wrong and self._unmet.pop(name, None) is not None:
                said = quoted_name(told([given], known))
                _log.warning("hide names %s, which no request has had so far, so that it hides nothing", said)

    def _hides(self, way: tuple[str, ...]) -> bool:
        return any(way[-len(each) :] == each for each in self._parts)


_ALIKE: Final = {ord(char): looks for looks, chars in LOOKALIKES.items() if looks.isalnum() for char in chars}
"""For each character that looks like a letter or a digit of ASCII, that one."""

NOTHING_HIDDEN: Final = Hiding(())
"""Hides nothing."""


def _parts(key: str) -> list[str]:
    """A key may be a path itself, as that of a channel is."""
    return _folded(key).split(".")


def _folded(name: str) -> str:
    """The name as it is compared."""
    alike = name if name.isascii() else unicodedata.normalize("NFD", folded(name.translate(_ALIKE)))
    return "".join(char for char in alike.lower() if _counts(char))


def _counts(char: str) -> bool:
    return shows_all(char) and not char.isspace() and not unicodedata.combining(char)


def _members(value: JsonValue, way: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], JsonValue]]:
    """All members inside a value, each with the names that lead to it."""
    todo: list[tuple[tuple[str, ...], JsonValue]] = [(way, value)]
    while todo:
        way, one = todo.pop()
        if isinstance(one, dict):
            for key, each in one.items():
                inside = (*way, *_parts(key))
                yield inside, each
                todo.append((inside, each))
        elif isinstance(one, list):
            todo += [(way, each) for each in one]


def _names_in(request: Request) -> set[str]:
    """The names that a request has: those of its arguments, and those that its schema declares."""
    ways = [way for way, _ in _members(request.approval.args)]
    found = {".".join(way[at:]) for way in ways[:_MOST] for at in range(len(way))}
    todo: list[JsonValue] = [request.schema]
    while todo and len(found) < _MOST:
        one = todo.pop()
        if isinstance(one, dict):
            found |= {*object_of(one.get("properties"))}
            todo += one.values()
        elif isinstance(one, list):
            todo += one
    return found


def _without_end(text: str, secret: Collection[str]) -> str:
    """A text that was cut, without the beginning of a secret at its end."""
    if not text.endswith("…"):
        return text
    body = text[:-1]
    for each in sorted(secret, key=len, reverse=True):
        for length in range(min(len(each), len(body)), _GUESSED - 1, -1):
            if body.endswith(each[:length]):
                return f"{body[:-length]}{HIDDEN}…"
    return text
