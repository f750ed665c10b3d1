"""The state of a graph's run as text: the values of its channels, and beside them what has arrived at joins that still wait.

Where somebody edits the state while a graph in a node is under way, what that graph was given is kept beside them as well: what it
has changed is told by that at its end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from phronomy.errors import CheckpointError
from phronomy.foundation.json_text import JsonText, canonical
from phronomy.stores.log.text_patch import ObjectText

_JOINS: Final = "__joins__"
_GIVEN: Final = "__given__"
_MARKS: Final = (f'{{"{_JOINS}":', f'{{"{_GIVEN}":')


def channels_in(state: str) -> JsonText:
    """The values of the channels."""
    if not state.startswith(_MARKS):
        return state if isinstance(state, JsonText) else JsonText(state)
    members = ObjectText.read(state).members
    return ObjectText.of({name: text for name, text in members.items() if name not in (_JOINS, _GIVEN)})


def arrivals_in(state: str) -> dict[str, list[str]]:
    """The nodes that have arrived at each join that waits for others."""
    found: dict[str, list[str]] = _beside(state, _JOINS, list)
    return found


def given_in(state: str) -> dict[str, dict[str, object]]:
    """Gives the channels that graphs in nodes began with before the state was edited, by call."""
    found: dict[str, dict[str, Any]] = _beside(state, _GIVEN, dict)
    return found


def _beside(state: str, name: str, kind: type) -> Any:
    """Reads an entry beside the channels. Raises `CheckpointError` for one of another form than is written here."""
    if not state.startswith(_MARKS):
        return {}
    found = json.loads(state).get(name, {})
    if not isinstance(found, dict) or not all(isinstance(each, kind) for each in found.values()):
        raise CheckpointError(f"the state of the checkpoint has something else under {name} than a graph puts there")
    return found


def state_with(
    channels: JsonText, arrived: Mapping[str, list[str]], given: Mapping[str, Mapping[str, object]] | None = None
) -> JsonText:
    """The state with these values of the channels, these arrivals, and this that was given."""
    beside = {name: dict(value) for name, value in ((_JOINS, arrived), (_GIVEN, given)) if value}
    if not beside:
        return channels
    return ObjectText.of({**ObjectText.read(canonical(beside)).members, **ObjectText.read(channels).members})
