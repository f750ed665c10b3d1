"""Names of members of JSON objects that some languages read as the same, since they ignore case."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import TypeAlias

from phronomy.foundation.json_text import JsonValue, clean

Twins: TypeAlias = tuple[tuple[str | int, ...], str, str]
"""The way to an object, and two of its names."""


def twins_in(value: JsonValue) -> Iterator[Twins]:
    """The names in each object of a value, at any depth, that are the same but for case and compatible forms."""
    todo: list[tuple[JsonValue, tuple[str | int, ...]]] = [(value, ())]
    while todo:
        item, path = todo.pop()
        if isinstance(item, list):
            todo.extend((inner, (*path, at)) for at, inner in enumerate(item))
        if not isinstance(item, dict):
            continue
        found: dict[str, str] = {}
        for name, inner in item.items():
            todo.append((inner, (*path, name)))
            if (first := found.setdefault(folded(name), name)) is not name:
                yield path, first, name


def told_of_twins(first: str, second: str) -> str:
    """The words of an error about two such names."""
    return f"names that differ in case alone: {clean(first)[:80]}, {clean(second)[:80]}"


def folded(name: str) -> str:
    """The name without case and compatible forms."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).casefold()
