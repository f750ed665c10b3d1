"""The state of a graph as JSON text: read from a class, validated channel by channel, and reduced without reading what did not change.

Channel values are the canonical text of one object, {channel: value}. What a wave adds to a long list is put behind the list's text.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from phronomy.errors import (
    ConflictingWrites,
    GraphError,
    InvalidUpdate,
    PhronomyError,
    ReducerFailed,
    StateError,
    StateIncomplete,
)
from phronomy.foundation.json_text import JsonError, JsonText, canonical
from phronomy.graph.signals import START
from phronomy.graph.state.channel import Channel, explained, of_model, of_typed_dict, path_of
from phronomy.graph.state.channels import Reducer, kind_of
from phronomy.graph.state.values import NotStorable
from phronomy.stores.log.text_patch import ObjectText, grow


class StateDict(dict[str, Any]):
    """The state of a `TypedDict` as a node gets it: a dict that knows what it was, so that it can be returned as a whole."""

    __slots__ = ("read_from",)

    read_from: Mapping[str, str]


class _ReadFields(set[str]):
    """The fields that are set in a model which a node gets; it knows what the model was."""

    read_from: Mapping[str, str]


class StateSchema:
    """The channels of a state class. `name` is that of the graph, for errors. Raises `GraphError` for a class that cannot be one."""

    def __init__(self, state: type, *, name: str) -> None:
        self.name = name
        self.state = state
        self._is_model = isinstance(state, type) and issubclass(state, BaseModel)
        found = of_model(name, state) if self._is_model else of_typed_dict(name, state)
        if not found:
            raise GraphError(f"graph {name}: the state {state.__name__} has no fields; a field is a channel")
        self.channels: Mapping[str, Channel] = {channel.name: channel for channel in found}
        self.names: tuple[str, ...] = tuple(self.channels)
        self.reducers: Mapping[str, Reducer] = {channel.name: channel.reducer for channel in found}
        self.has_user_code: bool = any(_calls_user_code(channel) for channel in found)

    def __repr__(self) -> str:
        return f"StateSchema({self.state.__name__})"

    def initial(self) -> JsonText:
        """The channel values before any write."""
        starts = {name: channel.begin() for name, channel in self.channels.items()}
        return self._object({name: text for name, text in starts.items() if text is not None})

    def starts(self) -> dict[str, object]:
        """Gives the first values of the channels as plain JSON, where they are the same in every run."""
        return {name: json.loads(each.start) for name, each in self.channels.items() if each.start is not None}

    def missing(self, values: JsonText) -> tuple[str, ...]:
        """The required channels that have no value."""
        return self._missing(self._members(values))

    def _missing(self, there: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(name for name, channel in self.channels.items() if channel.required and name not in there)

    # Writing

    def update(self, node: str | None, value: object) -> JsonText:
        """Validates an update by channel, and gives it as text: a node's, or (None, `START`) a caller's. Raises `InvalidUpdate`.

        `JsonText` is an update that is text already: see `accept`.
        """
        who = "the update" if node is None else "the input" if node == START else f"node {node!r}"
        node = None if node == START else node
        if value is None:
            return ObjectText.of({})
        if isinstance(value, JsonText):
            return self.accept(value, who=who, node=node)
        if (was := origin_of(value)) is not None:
            return self._changes(node, who, was, value)
        return self._object(self._written(node, who, self.by_channel(node, who, value, whole=False)))

    def dump(self, value: object) -> JsonText:
        """The channel values of a whole state that somebody's code has edited. Raises `InvalidUpdate`."""
        who = "the edited state"
        return self._object(self._in_order(self._written(None, who, self.by_channel(None, who, value, whole=True))))

    def accept(self, values: JsonText, *, who: str = "the edit", node: str | None = None) -> JsonText:
        """Channel values, or an update, that are text already: a human's edit of what was shown, or what a graph in a node has given.

        Validated and written anew. Values of registered types stay what they are, which as plain JSON would be taken for objects.
        Raises `InvalidUpdate`, and `UnknownType`.
        """
        given = self.by_channel(node, who, self._members(values), whole=True)
        written: dict[str, str] = {}
        for name, text in given.items():
            try:
                written[name] = self.channels[name].write(self.channels[name].read(text))
            except (NotStorable, ValidationError) as error:
                why = error.why if isinstance(error, NotStorable) else explained(error)
                told = f"graph {self.name}: {who} gave what is no value of the channel {name!r}: {why}"
                raise InvalidUpdate(told, node=node, channel=name) from None
        return self._object(self._in_order(written))

    def by_channel(self, node: str | None, who: str, value: object, *, whole: bool) -> dict[str, Any]:
        """The values in an update, or in a `whole` state, by channel; nothing is validated yet. Raises `InvalidUpdate`."""
        if self._is_model and type(value) is self.state:
            names = value.__dict__ if whole else cast("BaseModel", value).model_fields_set
            return {name: value.__dict__[name] for name in self.channels if name in names}
        if not isinstance(value, Mapping):
            kind = "another state" if isinstance(value, BaseModel) or is_dataclass(value) else "no update"
            raise InvalidUpdate(
                f"graph {self.name}: {who} gave a {type(value).__name__}, which is {kind}: give a dict of what changes, by channel"
                + (f", or a {self.state.__name__}" if self._is_model else ""),
                node=node,
            )
        for name in value:
            if name not in self.channels:
                known = ", ".join(self.names)
                shown = repr(name)[:80] if isinstance(name, str) else f"(a {type(name).__name__})"
                raise InvalidUpdate(
                    f"graph {self.name}: {who} wrote to {shown}, which is no channel: they are {known}",
                    node=node,
                    channel=name if isinstance(name, str) else None,
                )
        return dict(value)

    def _written(self, node: str | None, who: str, values: Mapping[str, object]) -> dict[str, str]:
        written: dict[str, str] = {}
        for name, value in values.items():
            try:
                written[name] = self.channels[name].write(value)
            except NotStorable as error:
                path = name + error.path
                told = f"graph {self.name}: {who} wrote what cannot be stored, at {path}: {error.why}"
                raise InvalidUpdate(told, node=node, channel=name, path=path) from error
            except ValidationError as error:
                told = f"graph {self.name}: {who} wrote what is no value of the channel {name!r}: {explained(error)}"
                raise InvalidUpdate(told, node=node, channel=name, path=path_of(error.errors()[0]["loc"])) from None
            except PhronomyError:
                raise
            except Exception as error:
                told = f"graph {self.name}: {who} wrote what a validator of {name!r} failed on ({type(error).__name__})"
                raise InvalidUpdate(told, node=node, channel=name) from error
        return written

    def _changes(self, node: str | None, who: str, was: Mapping[str, str], state: object) -> JsonText:
        """The update in a state that the node got, changed, and returned as a whole."""
        now = self._written(node, who, self.by_channel(node, who, state, whole=True))
        changed = {name: text for name, text in now.items() if was.get(name, self.channels[name].start) != text}
        gone = next((name for name in was if name in self.channels and name not in now), None)
        for name in [*([gone] if gone else ()), *changed]:
            reducer = self.channels[name].reducer
            if name == gone or reducer.name != "replace":
                raise InvalidUpdate(
                    f"graph {self.name}: {who} changed {name!r} in the state that it was given, but that channel takes what is new"
                    f" (its reducer is {reducer.label}): return {{{name!r}: ...}} with that alone",
                    node=node,
                    channel=name,
                )
        return self._object(changed)

    # Reducing

    def reduce(self, values: JsonText, updates: Sequence[tuple[str, JsonText]]) -> JsonText:
        """The channel values after a wave, of which the updates come in the order of its nodes, each with its node.

        Raises `ConflictingWrites`, `ReducerFailed`, and `InvalidUpdate` for a channel that is not of this state.
        """
        members = dict(self._members(values))
        writes: dict[str, list[tuple[str, str]]] = {}
        for node, update in updates:
            for name, text in self._members(update).items():
                writes.setdefault(name, []).append((node, text))
        for name, written in writes.items():
            channel = self.channels.get(name)
            if channel is None:
                told = f"graph {self.name}: node {written[0][0]!r} wrote to {name[:80]!r}, which is no channel of this state"
                raise InvalidUpdate(told, node=written[0][0], channel=name)
            members[name] = self._reduced(channel, members.get(name), written)
        return self._object(self._in_order(members))

    def _reduced(self, channel: Channel, old: str | None, written: list[tuple[str, str]]) -> str:
        if channel.reducer.name == "replace":
            if len(written) > 1:
                nodes = (written[0][0], written[1][0])
                raise ConflictingWrites(
                    f"graph {self.name}: {nodes[0]!r} and {nodes[1]!r} wrote to {channel.name!r} in one wave, and it holds one value:"
                    " give it a reducer, or let one of them write",
                    channel=channel.name,
                    nodes=nodes,
                )
            return written[0][1]
        texts = [text for _, text in written]
        if old is None:
            old = channel.start
        if channel.reducer.name == "append":
            return grow(old or "[]", _joined(texts))
        if channel.reducer.name == "merge":
            return _merged(old or "{}", texts)
        if channel.hint is str and channel.reducer.name == "add":
            for text in texts:
                old = text if old is None else grow(old, text)
            return old or '""'
        return self._folded(channel, old, texts)

    def _folded(self, channel: Channel, old: str | None, texts: list[str]) -> str:
        label = channel.reducer.label
        where = f"graph {self.name}: the reducer {label} of the channel {channel.name!r}"
        todo = texts if old is None else [old, *texts]
        value = self._read_channel(channel, todo[0])
        for text in todo[1:]:
            new = self._read_channel(channel, text)
            try:
                value = channel.reducer.function(value, new)
            except Exception as error:
                told = f"{where} raised {type(error).__name__}"
                raise ReducerFailed(told, channel=channel.name, reducer=label) from error
            if inspect.isawaitable(value):
                if inspect.iscoroutine(value):
                    value.close()
                raise ReducerFailed(
                    f"{where} gave something to await: make it a plain function", channel=channel.name, reducer=label
                )
        try:
            return channel.write(value)
        except (NotStorable, ValidationError) as error:
            why = error.why if isinstance(error, NotStorable) else explained(error)
            told = f"{where} gave what is no value of it: {why}"
            raise ReducerFailed(told, channel=channel.name, reducer=label) from None

    def _object(self, members: dict[str, str]) -> ObjectText:
        try:
            return ObjectText.of(members)
        except JsonError as error:
            raise StateError(f"graph {self.name}: the state cannot be kept: {error}") from None

    def _members(self, values: str) -> Mapping[str, str]:
        try:
            return ObjectText.read(values).members
        except JsonError as error:
            raise StateError(f"graph {self.name}: what is stored is no state: {error}") from None

    def _in_order(self, members: dict[str, str]) -> dict[str, str]:
        """The members in the order of the channels, so that equal states are equal texts."""
        known = {name: members[name] for name in self.channels if name in members}
        return known | members

    # Reading

    def whole(self, values: JsonText) -> JsonText:
        """The channel values as a state of this class has them: a channel that came since as it begins, and none that is gone."""
        members = self._members(values)
        known = {name: members.get(name, channel.start) for name, channel in self.channels.items()}
        return self._object({name: text for name, text in known.items() if text is not None})

    def read(self, values: JsonText) -> Any:
        """The state, made afresh. Raises `StateIncomplete`, `StateError` for what the class does not hold, and `UnknownType`."""
        members = self._members(values)
        missing = self._missing(members)
        if missing:
            raise StateIncomplete(
                f"graph {self.name}: the state was read before {', '.join(map(repr, missing))} had a value: give it with the input,"
                " let an earlier node write it, or give the field a default",
                channels=missing,
            )
        read: dict[str, object] = {}
        for name, channel in self.channels.items():
            member = members.get(name, channel.start)
            if member is not None:
                read[name] = self._read_channel(channel, member)
        if not self._is_model:
            state = StateDict(read)
            state.read_from = members
            return state
        return _model_of(cast("type[BaseModel]", self.state), read, members)

    def _read_channel(self, channel: Channel, text: str) -> object:
        try:
            return channel.read(text)
        except ValidationError as error:
            raise StateError(
                f"graph {self.name}: what is stored is no value of {channel.name!r}: {explained(error)}"
            ) from None


def _model_of(state: type[BaseModel], read: Mapping[str, object], was: Mapping[str, str]) -> BaseModel:
    fields = _ReadFields(read)
    fields.read_from = was
    model = state.__new__(state)
    for attribute, value in (
        ("__dict__", read),
        ("__pydantic_fields_set__", fields),
        ("__pydantic_extra__", None),
        ("__pydantic_private__", None),
    ):
        object.__setattr__(model, attribute, value)
    return model


def origin_of(value: object) -> Mapping[str, str] | None:
    """Gives the text from which a state was read; None for one that was made otherwise."""
    known = value if isinstance(value, StateDict) else getattr(value, "__pydantic_fields_set__", None)
    return getattr(known, "read_from", None) if isinstance(known, StateDict | _ReadFields) else None


def _joined(texts: list[str]) -> str:
    """The lists one behind the other."""
    return "[" + ",".join([text[1:-1] for text in texts if text != "[]"]) + "]"


def _merged(old: str, texts: list[str]) -> str:
    new: dict[str, str] = {}
    for text in texts:
        new |= ObjectText.read(text).members
    if not isinstance(old, ObjectText):
        added = ObjectText.of(new)
        if not any(f"{canonical(key)}:" in old for key in new):
            return grow(old, added)
    return ObjectText.of({**ObjectText.read(old).members, **new})


def _calls_user_code(channel: Channel) -> bool:
    """Whether reducing it runs a function or a method that is not Python's own."""
    name, hint = channel.reducer.name, kind_of(channel.hint)
    known = channel.hint is hint and getattr(hint, "__module__", "") in ("builtins", "decimal", "datetime")
    return name == "custom" or (name == "add" and not known)
