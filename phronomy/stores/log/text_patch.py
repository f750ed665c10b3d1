"""The difference of two JSON objects, as text: what a row keeps of a state that another row has already.

A patch is canonical JSON itself, an object in which each part is left out when there is nothing to say:

    {"whole": new}                  the new text as it is, where a difference would be no shorter or one of the two is no object
    {"set": {key: value},           keys that are new, or have another value
     "add": {key: tail},            keys whose list, object or string only grew at its end
     "drop": [key],                 keys that are gone
     "order": [key]}                all keys, where those of the old object followed by the new ones are in another order

All work is on text, value by value: what did not change is never parsed, and what grew costs as much as a copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring
from typing import Final, Self

from phronomy.foundation import json_text
from phronomy.foundation.json_text import JsonError, JsonText, canonical, is_canonical, list_of, parse

_PARTS: Final = ("set", "add", "drop", "order")

# Numbers, true, false and null do not grow: `1` followed by `12` is another number, not a longer one.
_CLOSES: Final[Mapping[str, str]] = {"[": "]", "{": "}", '"': '"'}
"""What can grow, by its first character, and how it ends."""

_THERE: Final = "a patch adds a key that is there already"

# Says where a value ends, which is all that is wanted here. What it makes of the value is thrown away.
_read = json.JSONDecoder().raw_decode


# A text that is patched is patched again at the next step. Splitting it anew each time would cost a pass over the whole
# state; the members are what the last patch ended with.
class ObjectText(JsonText):
    """The canonical text of a JSON object that remembers the text of each of its values. `members` is not to be changed."""

    __slots__ = ("members",)

    members: dict[str, str]

    @classmethod
    def of(cls, members: dict[str, str]) -> Self:
        """The object of these members, in their order. Raises `JsonError` if it is over the limit of size."""
        text = cls._made(members)
        # A few patches of a few bytes each can add up to more than a record may hold. It is refused here, before a
        # checkpoint is made of it that nobody could write down.
        if len(text) > json_text.MAX_BYTES:
            raise JsonError(f"JSON text of {len(text)} characters is over the limit of {json_text.MAX_BYTES}")
        return text

    @classmethod
    def _made(cls, members: dict[str, str]) -> Self:
        pieces = ["{"]
        for key, value in members.items():
            pieces += (encode_basestring(key), ":", value, ",")
        if members:
            pieces.pop()
        text = cls("".join((*pieces, "}")))
        text.members = members
        return text

    @classmethod
    def read(cls, text: str) -> Self:
        """The same text, of which the members are known. Raises `JsonError` if it is not the canonical text of an object."""
        if isinstance(text, cls):
            return text
        read = cls._made(_split(text))
        # Put together again and compared. A text with a space in it would be split rightly, and come back without the
        # space: then the state would not be the one whose digest was approved.
        if read != text:
            raise JsonError("the JSON text is not in canonical form")
        return read


def patch(old: JsonText, new: JsonText) -> JsonText:
    """What `patched` makes `new` of, given `old`: both are canonical texts. It is hardly longer than `new`, however they differ."""
    # The state of a graph is an object. A list or a string is rare enough to be written whole.
    if old[:1] != "{" or new[:1] != "{":
        return ObjectText._made({"whole": new})
    before, after = ObjectText.read(old).members, ObjectText.read(new).members
    put: dict[str, str] = {}
    grown: dict[str, str] = {}
    for key, text in after.items():
        was = before.get(key)
        if was is None:
            put[key] = text
        # Values are compared as texts: equal texts are equal values, and 5 and 5.0 are two, as they are in a digest.
        elif was is not text and was != text:
            tail = _tail(was, text)
            if tail is None:
                put[key] = text
            else:
                grown[key] = tail
    gone = [key for key in before if key not in after]
    parts: dict[str, str] = {}
    if put:
        parts["set"] = ObjectText._made(put)
    if grown:
        parts["add"] = ObjectText._made(grown)
    if gone:
        parts["drop"] = _names(gone)
    # The order of keys is part of the text, and so of its digest. Mostly it follows from what was there and what is
    # new, and nothing is said.
    if _order(before, put, gone) != list(after):
        parts["order"] = _names(after)
    # A state that was replaced has a patch longer than itself. So a row is never much longer than what it stands for.
    if sum(map(len, parts.values())) >= len(new):
        return ObjectText._made({"whole": new})
    return ObjectText._made(parts)


def patched(old: JsonText, patch: JsonText) -> JsonText:
    """The text that `patch` was made for. Raises `JsonError` for what is no patch, or none of `old`."""
    return folded(old, [patch])


def folded(old: JsonText, patches: Iterable[str]) -> JsonText:
    """What `patched` makes of `old` with each of these in turn, for what it costs to read each of them once."""
    text, members = old, None
    for patch in patches:
        # Each patch is judged on its own, as if it were the only one: a wrong one in the middle of hundreds fails by
        # what is wrong with it, and is not hidden by a later one that sets the same key.
        parts = _read_parts(patch)
        if "whole" in parts:
            text, members = JsonText(parts["whole"]), None
            continue
        if members is None:
            # A copy: the text that it comes from may be shared by a checkpoint that somebody holds.
            members = dict[str, str | _Growing](ObjectText.read(text).members)
        members = _with_parts(members, parts)
    if members is None:
        return text
    return ObjectText.of({key: value if isinstance(value, str) else value.text() for key, value in members.items()})


def _read_parts(patch: str) -> dict[str, str]:
    parts = ObjectText.read(patch).members
    for text in parts.values():
        # Read and written once more: what a patch brings in becomes state without another look.
        if not is_canonical(text) and canonical(parse(text)) != text:
            raise JsonError("a part of the patch is not in canonical form")
    if list(parts) != ["whole"] and list(parts) != [name for name in _PARTS if name in parts]:
        raise JsonError(f"a patch has the parts {', '.join(_PARTS)}, each at most once and in this order, or a whole")
    return parts


def _with_parts(members: dict[str, str | _Growing], parts: Mapping[str, str]) -> dict[str, str | _Growing]:
    """The members with what the parts of a patch say; those given are changed."""
    put, grown = (ObjectText.read(parts[name]).members if name in parts else {} for name in ("set", "add"))
    gone = _read_names(parts, "drop")
    # A patch that was made by `patch` never does any of this. One that does is damaged, or was written by hand, and
    # what it means would hang on the order in which the parts are read.
    if not (put.keys().isdisjoint(grown) and put.keys().isdisjoint(gone) and grown.keys().isdisjoint(gone)):
        raise JsonError("a patch says two things of one key")
    if not (grown.keys() <= members.keys() and members.keys() >= set(gone)):
        raise JsonError("a patch changes a key that is not there")
    for key in gone:
        del members[key]
    members |= put
    for key, tail in grown.items():
        value = members[key]
        if isinstance(value, str):
            # A list that gets an item at each of a thousand steps would be copied a thousand times.
            value = members[key] = _Growing(value)
        value.add(tail)
    if "order" in parts:
        order = _read_names(parts, "order")
        if members.keys() != set(order):
            raise JsonError("the order of a patch is not that of its keys")
        members = {key: members[key] for key in order}
    return members


class _Growing:
    """A value that is put together when all that is added to it is there: doing so each time would copy it each time."""

    def __init__(self, text: str) -> None:
        self._texts = [text]
        self._keys: set[str] | None = None

    def add(self, tail: str) -> None:
        """As `grow`."""
        kind = _kind(self._texts[0], tail)
        if kind == "{" and len(self._texts) == 1:
            _refuse_repeated(self._texts[0], tail)
        elif kind == "{":
            # Kept from the second tail on: with one tail, which is the usual case, looking into the text is cheaper
            # than splitting it.
            self._keys = self._keys or {key for text in self._texts for key in _split(text)}
            added = ObjectText.read(tail).members.keys()
            if not added.isdisjoint(self._keys):
                raise JsonError(_THERE)
            self._keys |= added
        self._texts.append(tail)

    def text(self) -> str:
        """The value."""
        kind = self._texts[0][0]
        inside = ("" if kind == '"' else ",").join([text[1:-1] for text in self._texts if len(text) > 2])
        return f"{kind}{inside}{_CLOSES[kind]}"


def grow(text: str, tail: str) -> str:
    """The list with the items of the other behind its own; so of two objects, and of two strings.

    Raises `JsonError` if the two are not of one kind, or one key would stand twice.
    """
    kind, size = _kind(text, tail), len(text)
    if len(tail) == 2:
        return text
    if size == 2:
        return tail
    if kind == "{":
        _refuse_repeated(text, tail)
    comma = "" if kind == '"' else ","
    return "".join((text[:-1], comma, tail[1:]))


def _kind(text: str, tail: str) -> str:
    kind = text[:1]
    if kind not in _CLOSES or tail[:1] != kind:
        raise JsonError("only a list, an object or a string grows, by another of its kind")
    return kind


def _refuse_repeated(text: str, tail: str) -> None:
    added = ObjectText.read(tail).members
    # A key that stands nowhere in the text is not among its keys. Most are not, and then nothing is parsed.
    if any(f"{encode_basestring(key)}:" in text for key in added) and not added.keys().isdisjoint(_split(text)):
        raise JsonError(_THERE)


def _tail(old: str, new: str) -> str | None:
    """What `grow` makes `new` of, given `old`; None if it is not that."""
    # By the text alone. The two must be equal up to the last character of the old one, which closes it.
    kind, end = old[:1], len(old) - 1
    if kind not in _CLOSES or len(new) - 1 <= end or not new.startswith(old[:-1]):
        return None
    if kind == '"' or end == 1:
        return kind + new[end:]
    # A comma after what stood there before: an item ends where it ended, so all that follows is new items.
    return kind + new[end + 1 :] if new[end] == "," else None


def _order(before: Iterable[str], put: Iterable[str], gone: list[str]) -> list[str]:
    """The order of the keys that `patched` has without being told."""
    # Keys that are gone leave their place, new ones come last: that is what `_with_parts` does without being told.
    kept = dict.fromkeys(before)
    for key in gone:
        del kept[key]
    return list(kept | dict.fromkeys(put))


def _names(names: Iterable[str]) -> str:
    return f"[{','.join(map(encode_basestring, names))}]"


def _read_names(parts: Mapping[str, str], name: str) -> list[str]:
    if name not in parts:
        return []
    given = parse(parts[name])
    names = [each for each in list_of(given) if isinstance(each, str)]
    if not isinstance(given, list) or not len({*names}) == len(names) == len(given):
        raise JsonError(f"{name!r} of a patch is a list of keys, each once")
    return names


def _split(text: str) -> dict[str, str]:
    """The text of each value of an object, by key. Raises `JsonError` if it is none in canonical form, as far as is seen."""
    found: dict[str, str] = {}
    place, end = 1, len(text) - 1
    if text == "{}":
        return found
    if text[:1] != "{" or text[-1:] != "}":
        raise JsonError("the JSON text is not an object")
    try:
        while place < end:
            # No more than where each value ends is looked at. That the whole is canonical is seen by the caller, who
            # puts it together again and compares.
            key, start = _read(text, place)
            _, stop = _read(text, start + 1)
            if not isinstance(key, str) or key in found or text[start] != ":" or text[stop] not in ",}":
                raise JsonError("the JSON text is not in canonical form")
            found[key] = text[start + 1 : stop]
            place = stop + 1
    except JsonError:
        raise
    # A text that ends in the middle of a value, or is nested a thousand deep, is an error of the data and not of the
    # program.
    except (ValueError, IndexError, RecursionError) as error:
        raise JsonError(f"not JSON: {type(error).__name__}") from None
    return found
