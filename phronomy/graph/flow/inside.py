"""Runs inside nodes: an agent, or another graph, begun with what the node may see, and what the graph takes from its end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from phronomy.conversation.output import InvalidOutput
from phronomy.engine.nested import begun
from phronomy.engine.spec import Spec
from phronomy.errors import NodeFailed, PhronomyError
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonText, canonical
from phronomy.graph.flow.node import Inside
from phronomy.graph.flow.routes import make_failure
from phronomy.graph.state.joins import given_in
from phronomy.records.calls import Call
from phronomy.records.checkpoint import Checkpoint

if TYPE_CHECKING:
    from phronomy.graph.flow.spec import GraphSpec


@dataclass(frozen=True, kw_only=True)
class Within:
    """The run inside a node, begun with what the node is given."""

    outer: GraphSpec
    node: Inside
    call: Call
    is_body: bool = False

    @property
    def spec(self) -> Spec:
        """Its configuration."""
        spec: Spec = self.node.inner.spec
        return spec

    def begin(self, parent: Checkpoint, path: str, at: datetime) -> Checkpoint:
        """Its first checkpoint. Raises `NodeFailed` for an input that it cannot begin with."""
        spec = self.spec
        try:
            given = given_to(self.outer, self.node, parent, self.call)
            if spec.flow is not None and self.node.into is None and "arg" not in (self.call.args or {}):
                given = canonical(given)  # values of registered types, as text: see `StateSchema.accept`
            history = None
            if self.node.history is not None:
                history = self.node.history(self.outer.schema.read(self.outer.shown_in(self.call.args or {}, parent)))
            first = spec.first(given, None, history)
        except NodeFailed:
            raise
        except PhronomyError as error:
            raise make_failure(self.node.name, f"the run inside cannot begin: {error}") from error
        except Exception as error:
            raise make_failure(self.node.name, f"its input raised {type(error).__name__}") from error
        return begun(spec, parent, path, at, first)


def given_to(spec: GraphSpec, node: Inside, state: Checkpoint, call: Call) -> object:
    """The input of the run inside a node: what a `Send` brought, or what the node takes of the state."""
    args = call.args or {}
    channels = spec.shown_in(args, state)
    if "arg" in args:
        value = args["arg"]
        return node.into(value) if callable(node.into) else value
    if callable(node.into):
        return node.into(spec.schema.read(channels))
    values: dict[str, object] = json.loads(channels)
    if isinstance(node.into, str):
        values = json.loads(spec.schema.whole(channels))
        if node.into not in values:
            raise make_failure(node.name, f"the channel {node.into!r}, which is its input, has no value yet")
        return values[node.into]
    return shared(spec, node, values)


def shared(spec: GraphSpec, node: Inside, values: Mapping[str, object]) -> dict[str, object]:
    """Of these values of channels, those that a graph in a node shares with the graph around it."""
    return {name: values[name] for name in node.inner.spec.schema.names if name in values and name in spec.schema.names}


def begun_with(spec: GraphSpec, state: Checkpoint, id: str) -> Any:
    """Gives the channels that the graph in this call's node began with: those from before an edit of the state, if there was one."""
    call = next(call for call in state.calls if call.id == id)
    node = spec.nodes[call.name]
    assert isinstance(node, Inside)
    before = given_in(state.__dict__["state"]).get(id)
    return given_to(spec, node, state, call) if before is None else before


def update_from(spec: GraphSpec, node: Inside, state: Checkpoint, call: Call, content: str) -> JsonText:
    """The update that the end of the run inside a node is. Raises `NodeFailed`, `InvalidUpdate`."""
    inner = node.inner.spec
    asked: object = None
    if node.keeps_input:
        try:
            told: dict[str, Any] = json.loads(content)
            asked, content = told["input"], told["output"]
        except (ValueError, TypeError, KeyError) as error:  # a bearer may bring anything
            raise make_failure(node.name, "its result does not say what it was asked") from error
    if inner.flow is not None and inner.takes_value:
        value: Any = inner.output.value(content)
    elif inner.flow is not None:
        value = inner.schema.read(JsonText(content)) if callable(node.out) else json.loads(content)
    else:
        try:
            value = content if inner.output is None else inner.output.value(content)
        except InvalidOutput as error:  # whoever the conversation was handed to gives something else
            raise make_failure(
                node.name, f"its output is not of the output type of agent {inner.name!r}: {error}"
            ) from error
    if callable(node.out):
        try:
            value = node.out((asked, value) if node.keeps_input else value)
        except Exception as error:
            raise make_failure(node.name, f"its output raised {type(error).__name__}") from error
        return spec.schema.update(node.name, value)
    if isinstance(node.out, str):
        return spec.schema.update(node.name, {node.out: value})
    given = begun_with(spec, state, call.id)
    if "arg" in (call.args or {}):  # of what was not sent to it, it has changed what is not as it began
        given = inner.schema.starts() | (given or {})
    # As text: read as plain JSON, values of registered types would be taken for objects.
    return spec.schema.update(node.name, canonical(_changed(spec, node, given, value)))


def _changed(spec: GraphSpec, node: Inside, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, object]:
    """Gives the update of the shared channels that the graph in a node has made."""
    found: dict[str, object] = {}
    for name, value in after.items():
        if name not in spec.schema.names:
            continue
        old, missing = before.get(name), name not in before
        if not missing and old == value:
            continue
        match spec.schema.reducers[name].name:
            case "append":
                found[name] = value[len(old) :] if old and value[: len(old)] == old else value
            case "merge":
                found[name] = {
                    key: item for key, item in value.items() if not old or key not in old or old[key] != item
                }
            case "add":
                found[name] = _added(spec, node, name, None if missing else canonical(old), canonical(value))
            case _:
                found[name] = value
    return found


def _added(spec: GraphSpec, node: Inside, name: str, before: str | None, after: str) -> object:
    """Gives the update that makes the new value of a channel out of the old one. Raises `NodeFailed` if there is none."""
    channel = spec.schema.channels[name]
    value = channel.read(after)
    old = None if before is None else channel.read(before)
    if old is None:
        return json.loads(after)
    if isinstance(value, str):
        return value[len(old) :] if value.startswith(old) else value
    try:
        return json.loads(channel.write(value - old))
    except Exception as error:
        why = f"what the graph inside added to channel {name!r} cannot be told; give input and output"
        raise make_failure(node.name, why) from error
