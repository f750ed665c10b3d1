"""Pages as a browser reads them: their text, their elements, and what each form would send."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

VOID = {"br", "circle", "hr", "img", "input", "link", "meta", "path", "rect"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    parent: Element | None = None
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text inside, with blank space as one."""
        return " ".join(self.whole.split())

    @property
    def whole(self) -> str:
        return "".join(each if isinstance(each, str) else each.whole for each in self.children)

    def all(self, tag: str | None = None, **wanted: Any) -> list[Element]:
        """The elements inside with this tag and these attributes; `class_` is one of the classes."""
        found = []
        for each in self.children:
            if isinstance(each, str):
                continue
            if (tag is None or each.tag == tag) and all(_has(each, name, value) for name, value in wanted.items()):
                found.append(each)
            found += each.all(tag, **wanted)
        return found

    def one(self, tag: str | None = None, **wanted: Any) -> Element:
        found = self.all(tag, **wanted)
        assert len(found) == 1, f"{len(found)} elements {tag} {wanted}"
        return found[0]

    def form(self, action: str, **fields: str) -> Element:
        """The form that goes there, and has these hidden fields."""
        found = [
            each
            for each in self.all("form")
            if each.attributes.get("action", "").partition("?")[0] == action
            and fields.items() <= dict(each.sent()).items()
        ]
        assert len(found) == 1, f"{len(found)} forms to {action} with {fields}"
        return found[0]

    def sent(self) -> list[tuple[str, str]]:
        """What a browser sends of this form, if nobody touches it: the fields in their order, with lines ended as browsers do."""
        found: list[tuple[str, str]] = []
        for each in self.all():
            name = each.attributes.get("name")
            if name is None or "disabled" in each.attributes:
                continue
            if each.tag == "input":
                kind = each.attributes.get("type", "text")
                if kind in ("checkbox", "radio") and "checked" not in each.attributes:
                    continue
                found.append((name, each.attributes.get("value", "on").replace("\r", "").replace("\n", "")))
            elif each.tag == "textarea":
                found.append((name, each.whole.removeprefix("\n").replace("\r\n", "\n").replace("\r", "\n")))
            elif each.tag == "select":
                options = each.all("option")
                chosen = [one for one in options if "selected" in one.attributes] or options[:1]
                found += [(name, one.attributes.get("value", one.text)) for one in chosen]
        ends = ("\r\n", "\n")
        return [(name.replace(*ends[::-1]), value.replace(*ends[::-1])) for name, value in found]

    def filled(self, **changes: str | None) -> dict[str, str]:
        """What the form sends once these fields are filled in; None takes one out."""
        sent = {**dict(self.sent()), **changes}
        return {name: value for name, value in sent.items() if value is not None}


def _has(element: Element, name: str, value: Any) -> bool:
    if name == "class_":
        return value in element.attributes.get("class", "").split()
    return element.attributes.get(name.replace("_", "-")) == value


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.here = self.root

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs}, self.here)
        self.here.children.append(element)
        if tag not in VOID:
            self.here = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.here.tag == tag and self.here.parent is not None, f"</{tag}> ends <{self.here.tag}>"
        self.here = self.here.parent

    def handle_data(self, data: str) -> None:
        self.here.children.append(data)


def read(html: str) -> Element:
    """The page. Fails for tags that do not match, so that nothing hides in what a browser would mend."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.here is reader.root, f"<{reader.here.tag}> is not ended"
    return reader.root
