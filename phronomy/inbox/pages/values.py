"""Arguments and results, cut into pieces that a template shows as a list of names and values: all of each, and long ones folded.

They are read from canonical text, so that a number is shown by its own digits: 5.0 is not 5, and one of nineteen digits is not rounded.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal, TypeAlias

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.in_brief import is_ambiguous, words_of
from phronomy.foundation.json_tree import Node, read_tree
from phronomy.inbox.pages.letters import coded

ValueKind: TypeAlias = Literal["text", "number", "word", "none", "object", "list"]
"""How a value is shown."""

_LONG: Final = 600
"""Characters. A longer text is folded."""
_LINES: Final = 12
"""Lines. A text of more is folded."""
_HEAD: Final = 200
"""Characters of a folded text that are seen before it is opened."""
_ITEMS: Final = 20
"""A longer list, or an object of more members inside another one, is folded."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value as it is shown. `text` is what stands there, and `json` the text that it is written as.

    `note` says what does not meet the eye. `head` is the beginning of a text that is folded; `folded` says that something is. `members`
    are those of an object, each with its name, or of a list. `secret` says that its tool hides it from logs.
    """

    kind: ValueKind
    text: str
    json: str
    note: str = ""
    head: str = ""
    folded: bool = False
    secret: bool = False
    members: tuple[tuple[str, Value], ...] = ()


def values_of(text: str, secret: Collection[str] = ()) -> Value:
    """What a canonical text holds, as it is shown; `secret` are the names of members that their tool hides from logs."""
    return shown(read_tree(text), secret, outermost=True)


def shown(node: Node, secret: Collection[str] = (), *, outermost: bool = False) -> Value:
    """A value as it is shown."""
    match node.kind:
        case "text":
            return _text(node)
        case "number":
            return Value("number", node.text, node.text)
        case "boolean":
            return Value("word", words_of(node), node.text, note=node.text)
        case "null":
            return Value("none", words_of(node), node.text, note="null")
        case "object" | "list":
            members = tuple((key, _marked(shown(each), key in secret)) for key, _, each in node.members)
            folded = len(members) > _ITEMS and not outermost
            return Value(node.kind, words_of(node), node.text, folded=folded, members=members)


def _marked(value: Value, secret: bool) -> Value:
    if not secret:
        return value
    return Value(value.kind, value.text, value.json, value.note, value.head, value.folded, True, value.members)


def _text(node: Node) -> Value:
    text = node.string
    if not text:
        return Value("none", words_of(node), node.text)
    notes = []
    quoted = is_ambiguous(text)
    if quoted:
        notes.append("text")
    if text != text.strip():
        notes.append("begins or ends with blank space")
    folded = len(text) > _LONG or text.count("\n") >= _LINES
    if folded:
        notes.append(f"{len(text):,} characters")
    head = " ".join(text[:_HEAD].split()) if folded else ""
    return Value("text", f'"{text}"' if quoted else text, node.text, note=", ".join(notes), head=head, folded=folded)


def raw(text: str) -> str:
    """The canonical text with each letter that is not what it looks like as its code: JSON of the same value."""
    return coded(text)
