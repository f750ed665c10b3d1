"""Text for where Discord reads markup: escaped, measured and split.

A backslash makes any punctuation plain. Escaped are all characters that begin markup, a mention, an emoji, a list or a link: without
its colon a link is no link, and without its dot an invitation is none. https://docs.discord.com/developers/reference#message-formatting
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_ACTIVE: Final = re.compile(r"[\\*_~`|<>\[\]#@:.+-]")
_ESCAPED: Final = re.compile(r"\\([\\*_~`|<>\[\]#@:.+-])")


def escape(text: str) -> str:
    """The text, so that nothing in it acts. A half of a surrogate pair, which no JSON of Discord may have, becomes U+FFFD."""
    return _ACTIVE.sub(r"\\\g<0>", text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def unescape(text: str) -> str:
    """The text that was escaped."""
    return _ESCAPED.sub(r"\1", text)


def size(text: str) -> int:
    """The length of a text, as the strictest of Discord's clients counts: in units of UTF-16."""
    return len(text) + sum(char > "\uffff" for char in text)


def parts_of(text: str, most: int) -> Iterator[str]:
    """The text escaped, in parts of at most so many characters: split at the ends of lines and words where that is possible."""
    start = 0
    while start < len(text):
        end, room = start, most
        while end < len(text) and (room := room - size(escape(text[end]))) >= 0:
            end += 1
        if end < len(text):
            half = start + (end - start) // 2
            newline, space = text.rfind("\n", half, end), text.rfind(" ", half, end)
            end = newline if newline > start else space if space > start else end
        # Discord cuts white space off both ends, and refuses a message of nothing else.
        if part := text[start:end].strip():
            yield escape(part)
        start = end
