"""Nodes that give their update piece by piece: which channels may come so, and what the pieces come to.

A node that is a generator yields partial updates. It is drained within its call, and its update is the concatenation of what it
yielded: so a checkpoint holds whole values only, and a stop, a crash or a resume never shows half of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic_core import to_jsonable_python

from phronomy.concurrency.pieces import feed_here
from phronomy.errors import GraphError, InvalidUpdate
from phronomy.foundation.checks import is_series
from phronomy.foundation.json_text import JsonError, JsonText, canonical
from phronomy.foundation.quoting import quoted_name
from phronomy.graph.signals import Abort, Continue, Pause, Replan
from phronomy.graph.state.state import StateSchema, origin_of
from phronomy.graph.state.streams import Unmergeable, kind_of_pieces, kind_or_none, merged


def streams_of(name: str, given: Any, schema: StateSchema, *, yields: bool) -> Mapping[str, type[Any]]:
    """The channels that a node gives in pieces, if it `yields`, each with the class that these are merged by. Raises `GraphError`."""
    given = () if given is None else given
    if not is_series(given) or not all(isinstance(channel, str) for channel in given):
        raise GraphError(f"node {name!r}: streams is a list of channels")
    if not yields:
        if given:
            raise GraphError(
                f"node {name!r} has streams, but its function returns its update: make it a generator, which yields pieces"
            )
        return {}
    if not given:
        shown = next((each for each in schema.names if kind_or_none(schema.channels[each].hint)), "answer")
        raise GraphError(
            f"node {name!r} is a generator: name the channels that it gives in pieces, as in"
            f" add_node({name!r}, function, streams=({shown!r},)), or return the whole update"
        )
    found: dict[str, type[Any]] = {}
    for channel in given:
        if channel not in schema.names:
            raise GraphError(
                f"node {name!r}: streams names {quoted_name(channel)}; the channels are {', '.join(schema.names)}"
            )
        try:
            found[channel] = kind_of_pieces(schema.channels[channel].hint)
        except Unmergeable as error:
            raise GraphError(
                f"node {name!r}: pieces of the channel {channel!r} cannot be put together: {error.why}; take it out of streams and"
                " yield it once, or say how by register_concat(cls, function)"
            ) from None
    return found


class Gathering:
    """Collects the pieces of one call of a node, hands them to listeners, and merges them into one update."""

    def __init__(self, node: str, schema: StateSchema, streams: Mapping[str, type[object]]) -> None:
        self._node = node
        self._schema = schema
        self._streams = streams
        self._parts: dict[str, list[object]] = {}
        self._signal: Any = None
        self._feed = feed_here()

    def take(self, piece: object) -> None:
        """Take what the node yielded. Raises `InvalidUpdate`."""
        if self._signal is not None:
            raise self._invalid(f"gave a piece after {type(self._signal).__name__}, which is the last")
        update = piece
        if isinstance(piece, Continue | Pause | Abort | Replan):
            self._signal, update = piece, piece.update
        if origin_of(update) is not None:
            raise self._invalid("gave the state that it was given as a piece: yield a dict of what is new, by channel")
        if update is None:
            return
        values = self._schema.by_channel(self._node, f"node {self._node!r}", update, whole=False)
        for name, value in values.items():
            self._add(name, value)
        if self._feed is not None and values and (text := _write_piece(values)) is not None:
            self._feed.give(text)

    def _add(self, name: str, value: Any) -> None:
        parts, kind = self._parts.setdefault(name, []), self._streams.get(name)
        if kind is None and parts:
            raise self._invalid(
                f"gave the channel {name!r} a second time: name it in streams= to have its pieces put together", name
            )
        if kind is not None and value is not None and not isinstance(value, _TAKEN.get(kind, kind)):
            raise self._invalid(
                f"gave a {type(value).__name__} as a piece of {name!r}, which is a {kind.__name__}", name
            )
        parts.append(_copy(list(value) if kind is list and isinstance(value, tuple) else value))

    def whole(self, returned: object = None) -> Any:
        """Merges the pieces into the return value of a function: the update, in its signal if it has one. Raises `InvalidUpdate`."""
        if returned is not None:
            raise self._invalid("returned a value, which nobody would see: a generator yields its last piece as well")
        update = {name: self._merged(name, parts) for name, parts in self._parts.items()}
        return update if self._signal is None else replace(self._signal, update=update)

    def _merged(self, name: str, parts: Sequence[object]) -> object:
        try:
            return merged(parts) if name in self._streams else parts[0]
        except Unmergeable as error:
            path = name + error.path
            raise self._invalid(
                f"gave pieces that do not become one value, at {path}: {error.why}", name, path
            ) from None
        except Exception as error:
            why = f"gave pieces of {name!r} whose concat raised {type(error).__name__}"
            raise self._invalid(why, name) from error

    def _invalid(self, why: str, channel: str | None = None, path: str | None = None) -> InvalidUpdate:
        told = f"graph {self._schema.name}: node {self._node!r} {why}"
        return InvalidUpdate(told, node=self._node, channel=channel, path=path or channel)


_TAKEN: Final[Mapping[type[Any], Any]] = {list: (list, tuple), dict: Mapping}


def _copy(value: object) -> object:
    """A value as it is now, whatever the node does to its lists and dicts afterwards."""
    if type(value) is list:
        return [_copy(item) for item in value]
    return {key: _copy(inner) for key, inner in value.items()} if type(value) is dict else value


def _write_piece(values: Mapping[str, object]) -> JsonText | None:
    """Gives the piece as JSON text for listeners, with null for values without a JSON form: the update is checked as a whole."""
    try:
        return canonical(
            to_jsonable_python(dict(values), bytes_mode="base64", inf_nan_mode="strings", fallback=_no_form)
        )
    except (JsonError, ValueError, TypeError, RecursionError):
        return None


def _no_form(_: object) -> None:
    """Stands in, as null, for a value without a JSON form."""
