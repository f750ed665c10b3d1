"""The calls of a streamed reply, put together of the fragments that the provider sends of them. Pure.

By the protocol, a fragment names its call by an index, and the first fragment of a call has its id and its name. Endpoints
leave out the index, give every call the same one, leave out the ids, send a new id with each fragment, repeat the name, or
send it in pieces. The names of the tools that the model was offered tell a piece of a name from another call. Where two
readings are possible, the reply is refused: a call must never get the arguments of another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NoReturn

from phronomy.errors import ModelError
from phronomy.foundation.json_text import JsonDict, JsonError, object_of, parse, text_of
from phronomy.models.formats.joined_pieces import joined

_FAR: Final = 1_000  # an index is the place of a call


class StreamedCalls:
    """The calls of a reply, as far as it has come, in the form of the protocol.

    `tools` are the names of the tools that the model was offered.
    """

    def __init__(self, tools: Iterable[str] = ()) -> None:
        self._calls: list[JsonDict] = []
        self._tools = frozenset(tools)
        self._places: dict[int, int] = {}
        self._named: dict[str, int] = {}  # the first call of each id
        self._last_ids: list[str] = []
        self._repeated: set[int] = set()  # calls that may be no calls: the name of the call before was repeated
        self._renamed: set[int] = set()  # calls that may be several: their name was repeated within their arguments

    def add(self, fragment: JsonDict, *, beside: bool = False) -> int:
        """Add a fragment to its call, or begin a call with it, and return the place of the call.

        `beside` says that it is not the first in its list: without an index and an id, it is of another call than the one
        before it. Raises `ModelError` for a fragment of which it is not certain to which call it belongs.
        """
        index, call_id = _index(fragment), text_of(fragment.get("id"))
        name = text_of(object_of(fragment.get("function")).get("name"))
        place = self._place(index, call_id)
        if place is not None and beside and index is None and not call_id and name:
            place = None
        said = name
        if place is not None:
            known, same = text_of(self._function(place).get("name")), call_id != "" and call_id == self._id(place)
            other = bool(call_id and self._id(place)) and not same
            if other and name and name == known and self._may_be_one(place, index, fragment):
                _refuse()
            if name and known and (other or not (said := self._continued(place, name, same=same))):
                self._check_ids(place, call_id)
                if name == known and not call_id:
                    self._repeated.add(len(self._calls))
                place = None
        if place is None:
            self._calls.append({})
            self._last_ids.append("")
            place, said = len(self._calls) - 1, name
        if index is not None:
            self._places[index] = place
        self._join(place, fragment, call_id, said)
        return place

    def whole(self) -> list[JsonDict]:
        """The calls, once the stream has ended. Raises `ModelError` for one that may be the end of the call before it, or two calls."""
        if not all(self._has_arguments(place) for place in self._repeated):
            _refuse()
        if not all(_is_whole(self._function(place).get("arguments")) for place in self._renamed):
            _refuse()
        return self._calls

    def _place(self, index: int | None, call_id: str) -> int | None:
        """The place of the call that a fragment names; None if it begins one."""
        named = self._named.get(call_id)
        if index is None:
            return named if named is not None else len(self._calls) - 1 if self._calls else None
        place = self._places.get(index)
        if place is not None and named is not None and place != named and self._id(place):
            _refuse()
        return place

    def _continued(self, place: int, name: str, *, same: bool) -> str:
        """The name of a call with the name in its next fragment; empty if the fragment begins another call.

        `same` says that the fragment has the id of the call.
        """
        function = self._function(place)
        known, begun = text_of(function.get("name")), self._has_arguments(place)
        if name == known:
            if not same and not begun and not self._id(place):
                _refuse()  # once more, or the first of the calls has no arguments
            if not same and _is_whole(function.get("arguments")):
                return ""
            if begun and not same:
                self._renamed.add(place)
            return known
        grown = name.startswith(known)  # said again, with more of it
        piece = any(tool.startswith(known + name) for tool in self._tools)
        apart = known in self._tools and (begun or name in self._tools)
        if (apart and (same or (not begun and (grown or piece)))) or (grown and piece and not begun):
            _refuse()
        if apart or not (same or (not begun and (grown or piece))):
            return ""
        return name if grown else known + name

    def _may_be_one(self, place: int, index: int | None, fragment: JsonDict) -> bool:
        """True if a fragment with the name of a call may have its first arguments: some endpoints send a new id with each fragment."""
        gives = _is_given(object_of(fragment.get("function")).get("arguments"))
        return not self._has_arguments(place) and (index is not None or gives)

    def _check_ids(self, place: int, call_id: str) -> None:
        """Refuse a name that comes after fragments of another id, which may have been the arguments for it."""
        if self._last_ids[place] != self._id(place) and call_id in ("", self._last_ids[place]):
            _refuse()

    def _join(self, place: int, fragment: JsonDict, call_id: str, name: str) -> None:
        call = self._calls[place]
        if call_id and not self._id(place):
            self._named[call_id] = min(place, self._named.get(call_id, place))
        for key, value in fragment.items():
            if key == "function" or (key == "id" and self._id(place)) or key == "index":
                continue
            call[key] = joined(call.get(key), value, key)
        said = fragment.get("function")
        if not isinstance(said, dict | None):
            raise ModelError("the function of a tool call in the stream is not an object")
        kept, more = self._function(place), said or {}
        if not _may_follow(kept.get("arguments"), more.get("arguments")):
            _refuse()
        if said is not None:
            function = object_of(joined(kept, {**more, "name": None}, "function"))
            call["function"] = {**function, "name": name or kept.get("name")}
        if call_id:
            self._last_ids[place] = call_id

    def _has_arguments(self, place: int) -> bool:
        return _is_given(self._function(place).get("arguments"))

    def _function(self, place: int) -> JsonDict:
        return object_of(self._calls[place].get("function"))

    def _id(self, place: int) -> str:
        return text_of(self._calls[place].get("id"))


def _index(fragment: JsonDict) -> int | None:
    index = fragment.get("index")
    return index if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < _FAR else None


def _is_whole(arguments: object) -> bool:
    """Say whether the arguments of a call are complete."""
    try:
        return isinstance(arguments, dict) or isinstance(parse(arguments), dict)
    except JsonError:
        return False


def _may_follow(arguments: object, more: object) -> bool:
    """Say whether the second arguments may continue the first ones: only text comes in pieces."""
    return not (_is_given(arguments) and _is_given(more)) or (isinstance(arguments, str) and isinstance(more, str))


def _is_given(arguments: object) -> bool:
    return arguments not in (None, "")


def _refuse() -> NoReturn:
    raise ModelError("the tool calls in the stream cannot be told apart")
