"""Mails and pages as people read them: the text, the links, the forms, and what a mail program would act on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from email.message import EmailMessage
from html.parser import HTMLParser
from typing import Final

from phronomy.foundation.dataclasses import dataclass

_TAGS: Final = frozenset(
    ("a", "body", "br", "h1", "head", "html", "meta", "p", "span", "strong", "table", "td", "th", "title", "tr")
)
_LINKED: Final = re.compile(r"https?://\S|\bwww\.\S|\S@\S")
"""What mail programs make links of in the text of an element."""


@dataclass(slots=True, kw_only=True)
class PageForm:
    """A form of a page: where it goes, and its fields with what they begin with."""

    action: str
    fields: dict[str, str] = field(default_factory=dict)


class Page(HTMLParser):
    """A page: the text of its main part, what stands in the element `notice`, and its forms."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.main: str = ""
        self.notice: str = ""
        self.forms: list[PageForm] = []
        self._stack: list[tuple[str, str]] = []
        self._field: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """As `HTMLParser.handle_starttag`."""
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(PageForm(action=given["action"]))
        if self.forms and "name" in given and tag in ("input", "textarea"):
            self.forms[-1].fields[given["name"]] = given.get("value", "")
        if tag not in ("input", "meta", "link", "br", "path", "circle"):
            self._stack.append((tag, given.get("id", "")))

    def handle_endtag(self, tag: str) -> None:
        """As `HTMLParser.handle_endtag`."""
        while self._stack and self._stack.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        """As `HTMLParser.handle_data`."""
        if any(id == "main" for _, id in self._stack):
            self.main += data
        if any(id == "notice" for _, id in self._stack):
            self.notice += data

    def form(self, answer: str) -> PageForm | None:
        """The form that gives this answer; None if there is none."""
        return next((each for each in self.forms if each.fields.get("answer") == answer), None)


class _Html(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.acted_on: list[str] = []
        self._inside: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _TAGS:
            self.acted_on.append(f"<{tag}>")
        self._inside.append(tag)
        for name, value in attrs:
            if name == "href" and tag == "a":
                self.links.append(value or "")
            elif name not in ("charset", "lang", "scope", "style"):
                self.acted_on.append(f"{name}={value}")

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "title" not in self._inside:
            self.acted_on += _LINKED.findall(data)


def text_of(mail: EmailMessage) -> str:
    """The text part."""
    part = mail.get_body(preferencelist=("plain",))
    assert part is not None, "a mail has a text part"
    return str(part.get_content())


def links_of(mail: EmailMessage) -> list[str]:
    """The links of the HTML part."""
    return _read(mail).links


def acted_on(mail: EmailMessage, known: tuple[str, ...]) -> Iterator[str]:
    """What a mail program acts on: links that lead elsewhere than to `known`, elements that load, and texts that look like links."""
    found = _read(mail)
    yield from found.acted_on
    yield from (link for link in found.links if not link.startswith(known))


def _read(mail: EmailMessage) -> _Html:
    part = mail.get_body(preferencelist=("html",))
    assert part is not None, "a mail has an HTML part"
    return _Html(str(part.get_content()))
