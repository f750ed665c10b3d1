"""What Telegram makes of a text: the entities of its HTML, and the mentions, commands and links that it finds by itself.

https://core.telegram.org/bots/api#formatting-options. What it finds by itself is documented by the code of its library alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any, Final

from phronomy.errors import Portable

_TAGS: Final = {
    **dict.fromkeys(("b", "strong"), "bold"),
    **dict.fromkeys(("i", "em"), "italic"),
    **dict.fromkeys(("u", "ins"), "underline"),
    **dict.fromkeys(("s", "strike", "del"), "strikethrough"),
    **{"tg-spoiler": "spoiler", "blockquote": "blockquote", "code": "code", "pre": "pre", "a": "text_link"},
}
_TAG: Final = re.compile(r"<(/?)([a-zA-Z][a-zA-Z-]*)((?:\s[^<>]*)?)>")
_ENTITY: Final = re.compile(r"&(?:lt|gt|amp|quot|#\d{1,7}|#x[0-9a-fA-F]{1,6});")
_USER: Final = re.compile(r"tg://user\?id=(\d{1,19})")
_HREF: Final = re.compile(r"""\s*href\s*=\s*(?:"([^"]*)"|'([^']*)')\s*""")
_MOST: Final = 100

_FOUND: Final = (
    ("email", re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")),
    (
        "url",
        re.compile(
            r"\b(?:https?|ftp|ton|tg)://[^\s<>]+|(?<![\w@.])[\w-]+(?:\.[\w-]+)*\.[^\W\d_]{2,24}\b(?:/[^\s<>]*)?"
        ),
    ),
    ("mention", re.compile(r"\B@[a-zA-Z0-9_]{2,32}\b")),
    ("bot_command", re.compile(r"(?<![\w/<>])/[a-zA-Z0-9_]{1,64}(?:@[a-zA-Z0-9_]{3,32})?(?![\w/<>])")),
    ("hashtag", re.compile(r"(?<![\w\u200c])#(?=\w*[^\W\d_])\w{1,256}(?![\w#])")),
    ("cashtag", re.compile(r"(?<![$\w])\$[A-Z]{1,8}(?![$\w])")),
)


class CannotParse(Portable, Exception):
    """The markup is wrong. The text is what Telegram says."""


def size(text: str) -> int:
    """The units of UTF-16 of a text."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def read(text: str, *, is_html: bool) -> tuple[str, list[dict[str, Any]]]:
    """The text that people see, and its entities. Raises `CannotParse`."""
    plain, marked = _parsed(text) if is_html else (text, [])
    marked = [each for each in marked if plain[each[1] : each[2]].strip()][:_MOST]
    started = len(plain) - len(plain.lstrip())
    plain = plain.strip()
    marked = [
        (kind, max(a - started, 0), min(b - started, len(plain)), more)
        for kind, a, b, more in marked
        if b > started and a - started < len(plain)
    ]
    quiet = [each for each in marked if each[0] in ("code", "pre", "text_link", "text_mention")]
    for kind, a, b in _live(plain):
        if not any(a < end and start < b for _, start, end, _ in quiet):
            marked.append((kind, a, b, {}))
    marked.sort(key=lambda each: (each[1], -each[2]))
    return plain, [
        {"type": kind, "offset": size(plain[:a]), "length": size(plain[a:b]), **more} for kind, a, b, more in marked
    ]


def _live(text: str) -> Iterator[tuple[str, int, int]]:
    for kind, pattern in _FOUND:
        for found in pattern.finditer(text):
            yield kind, found.start(), found.end()


def _parsed(text: str) -> tuple[str, list[tuple[str, int, int, dict[str, Any]]]]:
    plain, at = "", 0
    opened: list[tuple[str, int, dict[str, Any]]] = []
    marked: list[tuple[str, int, int, dict[str, Any]]] = []
    while at < len(text):
        if text[at] != "<":
            entity = _ENTITY.match(text, at)
            plain += unescape(entity[0]) if entity else text[at]
            at = entity.end() if entity else at + 1
            continue
        where = f"at byte offset {len(text[:at].encode('utf-8', 'surrogatepass'))}"
        tag = _TAG.match(text, at)
        if tag is None:
            raise CannotParse(f'Unsupported start tag "{text[at + 1 : at + 9]}" {where}')
        ends, name, more = tag[1], tag[2].lower(), tag[3]
        if name not in _TAGS:
            raise CannotParse(f'Unsupported start tag "{name}" {where}')
        if not ends:
            opened.append((name, len(plain), _attributes(name, more)))
        elif not opened or opened[-1][0] != name:
            raise CannotParse(f'Unexpected end tag "{name}" {where}')
        else:
            _, start, given = opened.pop()
            kind = "text_mention" if "user" in given else _TAGS[name]
            marked.append((kind, start, len(plain), given))
        at = tag.end()
    if opened:
        raise CannotParse(f'Can\'t find end tag corresponding to start tag "{opened[-1][0]}"')
    return plain, marked


def _attributes(name: str, text: str) -> dict[str, Any]:
    found = _HREF.fullmatch(text) if name == "a" else None
    if found is None:
        return {}
    url = unescape(found[1] if found[1] is not None else found[2])
    user = _USER.fullmatch(url)
    return {"user": {"id": int(user[1]), "is_bot": False, "first_name": "?"}} if user else {"url": url}
