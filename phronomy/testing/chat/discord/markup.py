"""Messages as people see them, and what Discord would act on in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

_ESCAPED: Final = re.compile(r"\\([^0-9A-Za-z\s])")
_OWN: Final = re.compile(r"\*\*|^-# |^> ", re.MULTILINE)
_TIME: Final = re.compile(r"<t:(\d{1,12}):f>")
_PLAIN: Final = "\ue000"
"""Stands for a character that a backslash has made plain."""
_ACTS: Final = re.compile(r"[*_~`|<>\[\]#@:\\]|^\s*[-+] |^\s*\d+\. |discord\.gg|www\.", re.MULTILINE)


def rendered(text: str) -> str:
    """A text without its markup: bold, small print and quotes alone are known here."""
    text = "".join(found if len(found) == 1 else found[1] for found in _tokens(text))
    return _TIME.sub(lambda found: f"{datetime.fromtimestamp(int(found[1]), UTC):%Y-%m-%d %H:%M} UTC", text)


def _tokens(text: str) -> Iterator[str]:
    """The characters of a text, escaped ones with their backslash, without the markup between them."""
    plain = _ESCAPED.sub(_PLAIN + _PLAIN, text)
    at = 0
    for own in [*_OWN.finditer(plain)]:
        yield from _pairs(text[at : own.start()])
        at = own.end()
    yield from _pairs(text[at:])


def _pairs(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        length = 2 if _ESCAPED.match(text, at) else 1
        yield text[at : at + length]
        at += length


def texts_in(message: dict[str, Any]) -> Iterator[str]:
    """All texts of a message in which Discord reads markup."""
    yield message.get("content") or ""
    for embed in message.get("embeds") or []:
        yield embed.get("title", "")
        yield embed.get("description", "")
        for field in embed.get("fields", []):
            yield field["name"]
            yield field["value"]


def seen(message: dict[str, Any]) -> str:
    """A message as people see it."""
    return "\n".join(rendered(text) for text in texts_in(message) if text)


def acted_on(message: dict[str, Any]) -> Iterator[str]:
    """Markup, mentions and links that Discord would act on. Bold that begins and ends in a line is no danger, nor is small print."""
    allowed = message.get("allowed_mentions") or {}
    users = allowed.get("users", [])
    if allowed not in ({"parse": []}, {"parse": [], "users": users}):
        yield "allowed_mentions"
    yield from (f"<@{each}>" for each in users)
    mentions = "|".join(map(re.escape, users))
    for text in texts_in(message):
        plain = _ESCAPED.sub(_PLAIN, text)
        plain = _TIME.sub("", re.sub(r"^-# |^> ", "", plain, flags=re.MULTILINE))
        plain = re.sub(r"\*\*[^*\n]*\*\*", "", plain)
        plain = re.sub(f"<@({mentions})>", "", plain) if users else plain
        yield from _ACTS.findall(plain)


def buttons_of(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The buttons of a message."""
    for row in message.get("components") or []:
        yield from row["components"]
