"""What the bot says in a thread: the answer of a run, what else became of it, and that something waits.

All of it is plain text, which a channel escapes by the rules of its platform. What a platform would not show, or what turns the
direction of text, is written out. Nothing is cut silently: what is too long is said in parts, and the last part says where the rest is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from phronomy.foundation.json_text import canonical
from phronomy.foundation.suspicious_letters import escaped, written_out

if TYPE_CHECKING:
    from phronomy.records.checkpoint import Checkpoint
    from phronomy.stores.rows import BranchStatus

PARTS: Final = 10
"""So many messages at most for one answer."""

_TURNS: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that turn the direction of text. Others that cannot be seen stay: pictures are joined by them."""

_FILLERS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Characters that count as printable and show as nothing."""

FAILED: Final = "This did not work. It may be tried again. If you write once more, I go on without it."
QUEUED: Final = "I read this as soon as what waits above is decided."


def answer_of(status: BranchStatus, checkpoint: Checkpoint) -> str:
    """What is said of a run that has ended; empty if nothing is."""
    if status == "completed":
        output = checkpoint.output
        said = visible(output if isinstance(output, str) else str(canonical(output)))
        # Platforms refuse a message in which nothing is seen, and then the thread waits for it for hours.
        return said if any(_is_seen(char) for char in said) else "(The answer is empty.)"
    if status == "rejected" and checkpoint.refusal is not None:  # what a guardrail has for the user
        return visible(checkpoint.refusal.message) or "This was refused."
    ends = {"rejected": "rejected", "cancelled": "cancelled", "skipped": "ended"}
    return f"This was {ends[status]}. Nothing more follows." if status in ends else ""


def _is_seen(char: str) -> bool:
    return char.isprintable() and not char.isspace() and char not in _FILLERS


def waits_for(checkpoint: Checkpoint) -> str:
    """That a run waits, and for what."""
    names = dict.fromkeys(escaped(each.tool_name)[:80] for each in checkpoint.pending)
    said = ", ".join([*names][:10])
    return f"This waits for somebody to decide: {said}. The answer follows."


def visible(text: str) -> str:
    """The text as it can be posted anywhere: what nobody would see is written out, except for new lines and tabs."""
    return "".join(
        written_out(char)
        if char in _TURNS or (unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t")
        else char
        for char in text.replace("\r\n", "\n")
    )


def in_parts(text: str, longest: int, rest: str) -> list[str]:
    """The text in parts of at most so many characters, cut between lines or words if it can be. `rest` says where the rest is."""
    found: list[str] = []
    while text:
        if len(text) <= longest:
            return [*found, text]
        if len(found) == PARTS - 1:
            last = f"({len(text):,} more characters: {rest})"
            return [*found, last]
        part = _cut(text, longest)
        found.append(part.rstrip("\n") or part)
        text = text[len(part) :].lstrip("\n")
    return found


def _cut(text: str, longest: int) -> str:
    """The beginning of a text that is too long."""
    head = text[:longest]
    for border in ("\n\n", "\n", r"(?<=\S)\s"):
        places: Sequence[int] = [each.start() for each in re.finditer(border, head)]
        if places and places[-1] >= longest // 2:
            return head[: places[-1] + (0 if "\n" in border else 1)]
    return head
