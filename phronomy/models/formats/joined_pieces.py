"""The fields of a streamed reply put together of their pieces, each by its shape. Pure."""

from __future__ import annotations

from phronomy.foundation.json_text import JsonValue

_NAMES = ("format", "id", "index", "name", "object", "role", "type")
"""Strings that name something: repeated in the next chunk, they are the same again and no continuation."""

_THOUGHTS = ("thinking", "reasoning.text")
_LAST = 64
"""How many entries of a list come in pieces at the same time, at most."""


def joined(kept: JsonValue, new: JsonValue, key: str) -> JsonValue:
    """A field with its next piece."""
    if new is None or kept is None:
        return kept if new is None else new
    if isinstance(kept, str) and isinstance(new, str):
        return new if key in _NAMES and new else kept + new if key not in _NAMES else kept
    if isinstance(kept, dict) and isinstance(new, dict):
        return {**kept, **{name: joined(kept.get(name), value, name) for name, value in new.items()}}
    if isinstance(kept, list) and isinstance(new, list):
        return _extended(kept, new)
    return new


def _extended(kept: list[JsonValue], new: list[JsonValue]) -> list[JsonValue]:
    """A list with its next pieces: one that continues an entry by its index, or a thinking block, joins that."""
    found = list(kept)
    for piece in new:
        place = _continued(found, piece)
        if place is None:
            found.append(piece)
        else:
            found[place] = joined(found[place], piece, "")
    return found


def _continued(entries: list[JsonValue], piece: JsonValue) -> int | None:
    if not isinstance(piece, dict):
        return None
    index = piece.get("index")
    for place in reversed(range(max(0, len(entries) - _LAST), len(entries))):
        entry = entries[place]
        if not isinstance(entry, dict) or any(_differ(entry.get(key), piece.get(key)) for key in ("type", "id")):
            continue
        if isinstance(index, int) and entry.get("index") == index:
            return place
        # Thinking comes in pieces that have no index; its signature ends it.
        unsigned = piece.get("type") in _THOUGHTS and not entry.get("signature")
        if index is None and unsigned and place == len(entries) - 1:
            return place
    return None


def _differ(one: object, other: object) -> bool:
    """Say whether both are given and differ: two entries may have one index, and each its own id."""
    return one is not None and other is not None and one != other
