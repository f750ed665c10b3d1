"""A picture as SVG: boxes in layers, one below the other, on lanes that run straight down where they can.

The layout is our own, small, and always the same for the same picture. An arrow past several layers has a track, which all that
lead to the same box share; one against the flow runs up beside all boxes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Final
from unicodedata import east_asian_width

from phronomy.observability.drawings.picture import COLOURS, INK, WIDEST, Arrow, Box, Picture, on_one_line

CHAR: Final = 7.3
"""Pixels of a character in a line of a box; wide ones take two."""
LINE: Final = 17
PAD: Final = 12
SPACE: Final = 32
"""Between two lanes, and around the picture."""
GAP: Final = 48
"""Between two layers. Each label of an arrow there adds a `LINE`, so that none covers another."""
BEND: Final = 14
"""From a layer to where an arrow against the flow turns."""
LABEL: Final = 24
"""Characters of a label that are shown."""
TITLE: Final = 400

GREY: Final = "#57606a"


def svg(picture: Picture) -> str:
    """The picture as SVG, in ASCII, with its title and those of its boxes for who cannot see it: https://www.w3.org/TR/SVG2/

    If a box has an address, the picture is for a page: boxes are links, and classes stand beside the colours, so that the style sheet
    of the page can put others in their place.
    """
    text = "".join(f"{line}\n" for line in _elements(picture, Layout(picture)))
    return text.encode("ascii", "xmlcharrefreplace").decode()


# The layout


class Layout:
    """The layout of a picture: the layer and lane of each box and track, and their pixels."""

    def __init__(self, picture: Picture) -> None:
        order, back = _order(len(picture.boxes), picture.arrows)
        down = [arrow for arrow in picture.arrows if arrow not in back]
        self.layer: list[int] = _layers(order, down)
        self.lane: list[int]
        self.tracks: dict[tuple[int, int], int]
        self.lane, self.tracks = _lanes(self.layer, down)
        self.turns: dict[Arrow, int]
        self.rows: dict[Arrow, int]
        self.labels: Mapping[int, int]
        self.turns, turns = self._rows(arrow for arrow in picture.arrows if arrow in back)
        self.rows, self.labels = self._rows(arrow for arrow in down if arrow.label)
        self.sizes: list[tuple[float, float]] = [_size(box) for box in picture.boxes]
        wide, high = defaultdict[int, float](float), defaultdict[int, float](float)
        for (width, height), layer, lane in zip(self.sizes, self.layer, self.lane, strict=True):
            wide[lane], high[layer] = max(wide[lane], width), max(high[layer], height)
        self.centre: list[float] = []
        x = float(SPACE)
        for lane in range(1 + max([*self.lane, *self.tracks.values()], default=-1)):
            self.centre.append(x + wide[lane] / 2)
            x += wide[lane] + SPACE
        self.top: list[float] = []
        self.bottom: list[float] = []
        self.leave: list[float] = []
        y = float(GAP)
        for layer in range(1 + max(self.layer, default=-1)):
            self.top.append(y)
            self.bottom.append(y + high[layer])
            self.leave.append(y + high[layer] + LINE * turns[layer])
            y = self.leave[layer] + GAP + LINE * self.labels[layer]
        beside = dict.fromkeys(arrow.target for arrow in self.turns)
        self.beside: dict[int, float] = {target: x + place * SPACE / 2 for place, target in enumerate(beside)}
        ends = [self.label(arrow)[0] + _wide(arrow.label) / 2 for arrow in picture.arrows if arrow.label]
        self.width: float = max([x, *self.beside.values(), *ends]) + SPACE / 2
        self.height: float = y

    def _rows(self, arrows: Iterable[Arrow]) -> tuple[dict[Arrow, int], Mapping[int, int]]:
        """A row of its own for each of the arrows that leave the same layer, from 1 on, and how many there are below each layer."""
        rows: dict[Arrow, int] = {}
        counts: dict[int, int] = defaultdict(int)
        for arrow in arrows:
            counts[self.layer[arrow.source]] += 1
            rows[arrow] = counts[self.layer[arrow.source]]
        return rows, counts

    def frame(self, box: int) -> tuple[float, float, float, float]:
        """The left, top, width and height of a box."""
        width, height = self.sizes[box]
        layer = self.layer[box]
        middle = (self.top[layer] + self.bottom[layer]) / 2
        return self.centre[self.lane[box]] - width / 2, middle - height / 2, width, height

    def path(self, arrow: Arrow) -> str:
        """The way of an arrow, as the `d` of an SVG path."""
        source, target = self.layer[arrow.source], self.layer[arrow.target]
        x, end = self.centre[self.lane[arrow.source]], self.centre[self.lane[arrow.target]]
        _, top, _, height = self.frame(arrow.source)
        tip = self.frame(arrow.target)[1]
        way = f"M{_at(x)} {_at(top + height)}"
        if arrow in self.turns:
            turn, over = self.bottom[source] + LINE * self.turns[arrow], self.top[target] - BEND
            return f"{way}V{_at(turn)}H{_at(self.beside[arrow.target])}V{_at(over)}H{_at(end)}V{_at(tip)}"
        for layer in range(source, target):
            start, stop, to = self.leave[layer], self.top[layer + 1], self._next(arrow, layer)
            bend = (start + stop) / 2
            way += f"V{_at(start)}C{_at(x)} {_at(bend)} {_at(to)} {_at(bend)} {_at(to)} {_at(stop)}"
            x = to
        return f"{way}V{_at(tip)}"

    def _next(self, arrow: Arrow, layer: int) -> float:
        """Gives the place at which an arrow passes below a layer: its track, or its box."""
        return self.centre[self.tracks.get((arrow.target, layer + 1), self.lane[arrow.target])]

    def label(self, arrow: Arrow) -> tuple[float, float]:
        """The middle of the label of an arrow: on its way, in its own row."""
        layer = self.layer[arrow.source]
        x = self.centre[self.lane[arrow.source]]
        if arrow in self.turns:
            return x + PAD + _wide(arrow.label) / 2, self.bottom[layer] + LINE * self.turns[arrow]
        start, stop, to = self.leave[layer], self.top[layer + 1], self._next(arrow, layer)
        part = self.rows[arrow] / (self.labels[layer] + 1)
        bent, down = part**2 * (3 - 2 * part), 1.5 * part * (1 - part) + part**3  # of the curve in `path`
        return x + (to - x) * bent, start + (stop - start) * down


def _order(count: int, arrows: Sequence[Arrow]) -> tuple[list[int], set[Arrow]]:
    """Orders the boxes so that arrows lead forward, and gives the arrows left out for that: those that lead back."""
    leads: dict[int, list[Arrow]] = defaultdict(list)
    for arrow in arrows:
        leads[arrow.source].append(arrow)
    entered, left, back = set[int](), list[int](), set[Arrow]()
    open_now = set[int]()
    for root in range(count):
        path = [(root, iter(leads[root]))] if root not in entered else []
        entered.add(root)
        open_now.add(root)
        while path:
            box, rest = path[-1]
            following = next(rest, None)
            if following is None:
                path.pop()
                open_now.discard(box)
                left.append(box)
            elif following.target in open_now:
                back.add(following)
            elif following.target not in entered:
                entered.add(following.target)
                open_now.add(following.target)
                path.append((following.target, iter(leads[following.target])))
        open_now.discard(root)
    return left[::-1], back


def _layers(order: Sequence[int], down: Sequence[Arrow]) -> list[int]:
    """The layer of each box: below all that lead to it."""
    leads: dict[int, list[int]] = defaultdict(list)
    for arrow in down:
        leads[arrow.source].append(arrow.target)
    found = [0] * len(order)
    for box in order:
        for target in leads[box]:
            found[target] = max(found[target], found[box] + 1)
    return found


def _lanes(layer: Sequence[int], down: Sequence[Arrow]) -> tuple[list[int], dict[tuple[int, int], int]]:
    """The lane of each box, and of each track by its target and layer: that of what leads there, else the next free one."""
    into: dict[int, list[int]] = defaultdict(list)
    for arrow in down:
        into[arrow.target].append(arrow.source)
    boxes, begun = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for box, at in enumerate(layer):
        boxes[at].append(box)
        begun[min((layer[source] for source in into[box]), default=at) + 1].append(box)
    lanes = [0] * len(layer)
    tracks: dict[tuple[int, int], int] = {}
    running: dict[int, int] = {}  # the tracks of the layer above, by their target
    for at in range(1 + max(layer, default=-1)):
        above = {
            box: [lanes[source] for source in into[box] if layer[source] == at - 1] + [*_one(running.get(box))]
            for box in (*boxes[at], *begun[at])
        }
        running = {target: lane for target, lane in running.items() if layer[target] > at}
        taken = set(running.values())
        aside = []
        for box in boxes[at]:
            lanes[box] = min(above[box], default=0)
            if lanes[box] in taken:
                aside.append(box)
            taken.add(lanes[box])
        for box in aside:
            lanes[box] = _free(taken, lanes[box])
        for target in begun[at]:
            if layer[target] > at:
                running[target] = _free(taken, min(above[target], default=0))
        tracks |= {(target, at): lane for target, lane in running.items()}
    return lanes, tracks


def _one(lane: int | None) -> tuple[int, ...]:
    return () if lane is None else (lane,)


def _free(taken: set[int], lane: int) -> int:
    """The next lane from this one on that is not taken; it is then."""
    while lane in taken:
        lane += 1
    taken.add(lane)
    return lane


# The elements


def _elements(picture: Picture, layout: Layout) -> Iterator[str]:
    width, height = _at(layout.width), _at(layout.height)
    # An image has no links in it for whoever cannot see it, and a group has.
    role = "group" if any(box.href for box in picture.boxes) else "img"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="{role}"'
        ' font-family="ui-monospace, monospace" font-size="12">'
    )
    yield f"<title>{_text(picture.title, TITLE)}</title>"
    yield (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="90">'
        f'<path d="M0 0L8 4L0 8z" fill="{GREY}"/></marker></defs>'
    )
    yield f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    for arrow in picture.arrows:
        dashes = ' stroke-dasharray="5 4"' if arrow.dashed else ""
        yield f'<path d="{layout.path(arrow)}" fill="none" stroke="{GREY}"{dashes} marker-end="url(#tip)"/>'
    for place, box in enumerate(picture.boxes):
        yield from _box(box, *layout.frame(place))
    for arrow in picture.arrows:
        if not arrow.label:
            continue
        x, y = layout.label(arrow)
        halo = 'stroke="#ffffff" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
        text = _text(arrow.label, LABEL)
        yield f'<text x="{_at(x)}" y="{_at(y + 4)}" text-anchor="middle" fill="{INK}" {halo}>{text}</text>'
    yield "</svg>"


def _box(box: Box, left: float, top: float, width: float, height: float) -> Iterator[str]:
    fill, stroke = COLOURS[box.kind]
    look = f'fill="{fill}" stroke="{stroke}" stroke-width="{3 if box.here else 1}"'
    right, bottom, middle = left + width, top + height, top + height / 2
    if box.href:
        yield f'<a href="{escape(box.href)}" class="box {box.kind}{" here" if box.here else ""}">'
    yield f"<g><title>{_text(box.title or ' '.join(box.lines), TITLE)}</title>"
    if box.kind in ("stop", "partial"):
        corners = (
            *((left, middle), (left + PAD, top), (right - PAD, top)),
            *((right, middle), (right - PAD, bottom), (left + PAD, bottom)),
        )
        yield f'<polygon points="{" ".join(f"{_at(x)},{_at(y)}" for x, y in corners)}" {look}/>'
    else:
        round_ = {"decision": PAD, "over": height / 2}.get(box.kind, 2)
        yield f'<rect x="{_at(left)}" y="{_at(top)}" width="{_at(width)}" height="{_at(height)}" rx="{_at(round_)}" {look}/>'
    for row, line in enumerate(box.lines):
        x, y = left + width / 2, top + PAD / 2 + LINE * row + LINE * 0.75
        bold = ' font-weight="bold"' if row == 0 else ""
        yield f'<text x="{_at(x)}" y="{_at(y)}" text-anchor="middle" fill="{INK}"{bold}>{_text(line)}</text>'
    yield "</g></a>" if box.href else "</g>"


def _size(box: Box) -> tuple[float, float]:
    columns = max((_columns(on_one_line(line)) for line in box.lines), default=0)
    return columns * CHAR + 3 * PAD, LINE * len(box.lines) + PAD


def _wide(label: str) -> float:
    """The pixels that a label is wide."""
    return _columns(on_one_line(label, LABEL)) * CHAR


def _columns(text: str) -> int:
    """The columns of a text where all characters are as wide, or twice."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def _text(text: str, most: int = WIDEST) -> str:
    return escape(on_one_line(text, most))


def _at(number: float) -> str:
    return str(round(number))
