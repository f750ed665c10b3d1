"""The state that a call of a graph was shown, kept in a row as what is other in it than in the state of that row.

A gated node is judged, and approved, by the whole state: its arguments hold it. A row has that state already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from phronomy.foundation.json_text import JsonError, JsonText
from phronomy.records.calls import Call
from phronomy.stores.log.text_patch import patch, patched

# So most rows are told apart by a search in their text, without being parsed. Wherever a user writes the same
# characters, they stand in a string, where each quote has a backslash before it.
MARK: Final = '"shown":'
"""The text by which a row with something left out is known. Inside a string of the row, the quotes would have backslashes."""

_BEGINS: Final = '{"state":'
_FIELDS: Final = ("args", "arguments")
_SHORT: Final = 200  # characters: below, nothing is gained


def thinned(calls: Sequence[Call], state: JsonText) -> tuple[tuple[Call, ...], dict[str, dict[str, str]]]:
    """The calls without the state that they were shown, and what `filled` puts it together from, by call id and field."""
    kept: list[Call] = []
    left: dict[str, dict[str, str]] = {}
    for call in calls:
        for field in _FIELDS:
            text = call.__dict__[field]
            # What is short is left as it is: the patch and its key would be longer.
            if text is None or len(text) < _SHORT or not text.startswith(_BEGINS):
                continue
            try:
                change = patch(state, JsonText(text[len(_BEGINS) : -1]))
            except JsonError:  # the model's text, of an edit that was not valid
                continue
            # A state that has changed so much since that a patch would hold all of it stays in the call.
            if not change.startswith('{"whole":'):
                left.setdefault(call.id, {})[field] = change
                call = call.evolve(**{field: JsonText("{}")})
        kept.append(call)
    return tuple(kept), left


def filled(body: str, state: str) -> str:
    """The text of a row with all that was left out of its calls. Raises `JsonError` for what does not fit."""
    try:
        data: dict[str, Any] = json.loads(body)
        # Nothing of a row is trusted here. A row that somebody changed can name calls that it does not have, or fields
        # that hold something: each of these fails, and none fills in what was never left out.
        left: Mapping[str, Mapping[str, str]] = data.pop("shown")
        calls = {call["id"]: call for call in data["calls"]}
        for id, fields in left.items():
            for field, change in fields.items():
                if field not in _FIELDS or calls[id][field] != "{}":
                    raise JsonError("nothing was left out there")
                calls[id][field] = f"{_BEGINS}{patched(JsonText(state), JsonText(change))}}}"
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise JsonError(f"what its calls were shown cannot be put together ({type(error).__name__})") from None
    # Made a row's text again, so that the same validation reads it as reads every other row.
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
