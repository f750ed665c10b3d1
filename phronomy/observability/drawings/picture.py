"""A picture of boxes and arrows, and its text as a Mermaid flowchart: the text in a box can neither end it nor add to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from phronomy.foundation.dataclasses import dataclass

Kind: TypeAlias = Literal["step", "stop", "decision", "partial", "over", "failed"]
"""What a box stands for; `partial` is a decision after which others are still waited for."""

WIDEST: Final = 48
"""Characters of a line in a box that are shown."""

COLOURS: Final[Mapping[Kind, tuple[str, str]]] = {
    "step": ("#ffffff", "#57606a"),
    "stop": ("#fff3cd", "#9a6700"),
    "decision": ("#ddf4ff", "#0969da"),
    "partial": ("#ddf4ff", "#0969da"),
    "over": ("#eaeef2", "#57606a"),
    "failed": ("#ffebe9", "#cf222e"),
}
"""Fill and stroke of a box. No colour says what the text does not."""

INK: Final = "#1b1f24"


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A box: its lines of text, the kind of thing it is, and whether a run is there now.

    `title` says it in full, where the medium has room for it. `href` is the address that it leads to, in a picture for a page.
    """

    lines: tuple[str, ...]
    kind: Kind = "step"
    here: bool = False
    title: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """An arrow between two boxes, by their places in the picture."""

    source: int
    target: int
    label: str = ""
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Boxes in the order in which they were met, and the arrows between them."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def on_one_line(text: str, most: int = WIDEST) -> str:
    """The text on one line, without what does not show, cut where it is longer than that."""
    visible = "".join(char if char.isprintable() or char.isspace() else "\ufffd" for char in text)
    line = " ".join(visible.split())
    return line if len(line) <= most else f"{line[: most - 1]}\u2026"


# Everything but these may mean something to Mermaid, or to the Markdown in its labels, and is written as its number. So is all
# that is not ASCII: the text is the same in whatever encoding it is printed.
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9 ,:_-]|(?<![A-Za-z0-9])[_-]|[_-](?![A-Za-z0-9])")
_TITLE: Final = re.compile(r"[^A-Za-z0-9 ,_-]")

_FRAMES: Final[Mapping[Kind, tuple[str, str]]] = {
    "step": ("[", "]"),
    "stop": ("{{", "}}"),
    "decision": ("(", ")"),
    "partial": ("{{", "}}"),
    "over": ("([", "])"),
    "failed": ("[", "]"),
}


def mermaid(picture: Picture) -> str:
    """The picture as a Mermaid flowchart, in ASCII: https://mermaid.js.org/syntax/flowchart.html"""
    return "".join(f"{line}\n" for line in _statements(picture))


def _statements(picture: Picture) -> Iterator[str]:
    yield "flowchart TD"
    yield f"    accTitle: {_TITLE.sub('?', on_one_line(picture.title))}"
    for place, box in enumerate(picture.boxes):
        opens, closes = _FRAMES[box.kind]
        yield f"    n{place}{opens}{_quoted(box.lines)}{closes}"
    for arrow in picture.arrows:
        line = "-.->" if arrow.dashed else "-->"
        label = f"|{_quoted([arrow.label])}|" if arrow.label else ""
        yield f"    n{arrow.source} {line}{label} n{arrow.target}"
    for kind, (fill, stroke) in COLOURS.items():
        if kind != "step":
            yield from _styled(kind, f"fill:{fill},stroke:{stroke},color:{INK}", picture.boxes, kind)
    yield from _styled("here", "stroke-width:3px", picture.boxes, None)


def _styled(name: str, style: str, boxes: Sequence[Box], kind: Kind | None) -> Iterator[str]:
    places = [place for place, box in enumerate(boxes) if (box.here if kind is None else box.kind == kind)]
    if places:
        yield f"    classDef {name} {style}"
        yield f"    class {','.join(f'n{place}' for place in places)} {name}"


def _quoted(lines: Iterable[str]) -> str:
    safe = [_UNSAFE.sub(lambda found: f"#{ord(found[0])};", on_one_line(line)) for line in lines]
    return f'"{"<br/>".join(safe) or "#160;"}"'  # nothing between quotes is no text for Mermaid
