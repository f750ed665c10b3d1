"""JSON values in a few words of one line, as titles, headings and lists show them: the whole stands a click away.

What is shown may be anybody's words. Letters that are not what they look like are marked where the line is shown.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, Literal

from phronomy.foundation.json_text import JsonValue, canonical
from phronomy.foundation.json_tree import Node, first_members, read_tree

_BRIEF: Final = 60
"""Characters of a value."""

_BEGINNING: Final = 4_000
"""Characters of arguments that are read."""

_READ: Final = 1_000
"""Characters of a text that are read for one line."""

_WORDS: Final = frozenset({"yes", "no", "no value", "empty text", "not set"})
"""The words for values that are no text."""

_AMBIGUOUS: Final = re.compile(r"(?:-?[0-9][0-9.eE+-]*|true|false|null|[\[{].*)", re.ASCII | re.DOTALL)

_SHORT: Final = 200


def in_brief(text: str, secret: Collection[str] = (), most: int = 3) -> str:
    """The first few values of arguments in one line. Of a large text only the beginning is read."""
    if len(text) > _BEGINNING:
        begin = [
            f"{key}: {'hidden' if key in secret else value_in_brief(node) if node is not None else '…'}"
            for key, node in first_members(text[:_BEGINNING], most)
        ]
        return ", ".join([*begin, f"and more, {len(text):,} characters in all"])
    root = read_tree(text)
    if root.kind != "object":
        return value_in_brief(root)
    found = [f"{key}: {'hidden' if key in secret else value_in_brief(node)}" for key, _, node in root.members]
    more = f", and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def value_in_brief(node: Node) -> str:
    """A value in a few words. A text that could be read as a value of another type stands in quotation marks."""
    if node.kind == "text" and node.string:
        line = one_line(node.string)
        return f'"{line}"' if is_ambiguous(node.string) else line
    return words_of(node)


def plain_in_brief(value: JsonValue) -> str:
    """A plain value as a sentence has it: a text stands there as it is, in one line and cut."""
    if isinstance(value, str):
        return one_line(value) or "empty text"
    if isinstance(value, dict | list):  # it may be large, and is only counted
        return _counted("object" if isinstance(value, dict) else "list", len(value))
    return value_in_brief(read_tree(canonical(value)))


def words_of(node: Node) -> str:
    """A value that is no text, or an empty one, in words."""
    match node.kind:
        case "boolean":
            return "yes" if node.text == "true" else "no"
        case "null":
            return "no value"
        case "object" | "list":
            return _counted(node.kind, len(node.members))
        case "text":
            return "empty text"
        case "number":
            return node.text


def _counted(kind: Literal["object", "list"], count: int) -> str:
    noun = "member" if kind == "object" else "item"
    return f"{count:,} {noun}{'' if count == 1 else 's'}" if count else f"no {noun}s"


def one_line(text: str, most: int = _BRIEF) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(text[:_READ].split())
    return f"{line[:most]}…" if len(line) > most or len(text) > _READ else line


def is_ambiguous(text: str) -> bool:
    """True if the text could be read as a value of another type, or with a note of the reader's own behind it."""
    word = text.strip().casefold()
    return (
        _AMBIGUOUS.fullmatch(word) is not None or re.sub(r"\s*\(.*\)$", "", word[:_SHORT]) in _WORDS or word[:1] == '"'
    )
