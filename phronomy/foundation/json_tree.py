"""JSON text as a tree of pieces of it: a number is shown by its own digits, and a change of one value leaves all other bytes."""

from __future__ import annotations

import json
import re
from typing import Final, Literal, TypeAlias

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, JsonValue, parse

Kind: TypeAlias = Literal["object", "list", "text", "number", "boolean", "null"]
"""What a JSON value is."""

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_DECODER: Final = json.JSONDecoder()
_WORDS: Final[dict[str, Kind]] = {"true": "boolean", "false": "boolean", "null": "null"}


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a JSON text: its `kind`, and the text that it is written as.

    `string` is the value of a text. `members` are those of an object, each with its key, and the key as it is written; of a list, each
    with its place in place of the key.
    """

    kind: Kind
    text: str
    string: str = ""
    members: tuple[tuple[str, str, Node], ...] = ()

    def get(self, name: str) -> Node | None:
        """The member of an object, or of a list, by its key or its place; None if there is none."""
        return next((node for key, _, node in self.members if key == name), None)

    @property
    def value(self) -> JsonValue:
        """The plain value. Raises `JsonError` for what Python has no number for."""
        return self.string if self.kind == "text" else parse(self.text)


def read_tree(text: str) -> Node:
    """The tree of a JSON text. Raises `JsonError`."""
    parse(text)  # all that a record refuses is refused: depth, size, and a key that is there twice
    node, end = _read(text, _skip(text, 0))
    if _skip(text, end) != len(text):
        raise JsonError(f"not JSON: more follows at character {end}")
    return node


def first_members(text: str, most: int) -> list[tuple[str, Node | None]]:
    """The first members of the beginning of a canonical text of an object; the last one without a value, if it does not end there."""
    found: list[tuple[str, Node | None]] = []
    at = 1
    while len(found) < most and at < len(text) and text[0] == "{":
        try:
            key, end = _string(text, at)
        except (ValueError, IndexError):
            break
        node: Node | None = None
        try:
            node, at = _read(text, end + 1)
        except (ValueError, IndexError):
            at = len(text)
        found.append((key, node if at < len(text) else None))  # a number at the very end may go on behind it
        at += 1
    return found


def _read(text: str, at: int) -> tuple[Node, int]:
    sign = text[at]
    if sign == '"':
        string, end = _string(text, at)
        return Node("text", text[at:end], string), end
    if sign in "{[":
        return _read_members(text, at)
    for word, kind in _WORDS.items():
        if text.startswith(word, at):
            return Node(kind, word), at + len(word)
    number = _NUMBER.match(text, at)
    if number is None:
        raise JsonError(f"not JSON at character {at}")
    return Node("number", number[0]), number.end()


def _string(text: str, at: int) -> tuple[str, int]:
    value, end = _DECODER.raw_decode(text, at)
    return str(value), end


def _read_members(text: str, start: int) -> tuple[Node, int]:
    is_object = text[start] == "{"
    last = "}" if is_object else "]"
    members: list[tuple[str, str, Node]] = []
    at = _skip(text, start + 1)
    while text[at] != last:
        key, written = str(len(members)), ""
        if is_object:
            key, end = _string(text, at)
            written = text[at:end]
            at = _skip(text, _skip(text, end) + 1)
        node, at = _read(text, at)
        members.append((key, written, node))
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return Node("object" if is_object else "list", text[start : at + 1], members=tuple(members)), at + 1


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def key_text(key: str) -> str:
    """A key as canonical text writes it."""
    return json.dumps(key, ensure_ascii=False)
