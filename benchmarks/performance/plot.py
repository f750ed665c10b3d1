"""Two drawings as SVG, by a few lines of our own: the ratios to the floor, and how the cost grows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Final

COLOURS: Final = ("#0b6e4f", "#c1121f", "#1d4e89", "#b5651d")
SHAPES: Final = ("circle", "square", "triangle", "diamond")
"""Each series has a shape of its own too, for who cannot tell the colours apart."""

TIMES: Final = "\N{MULTIPLICATION SIGN}"

INK, GRID, FONT = "#222222", "#d5d5d5", "font-family='system-ui, sans-serif'"


def text(x: float, y: float, said: str, anchor: str = "start", size: int = 12) -> str:
    """A line of text."""
    return f"<text x='{x:.0f}' y='{y:.0f}' text-anchor='{anchor}' font-size='{size}' fill='{INK}' {FONT}>{escape(said)}</text>"


def mark(x: float, y: float, series: int) -> str:
    """The mark of a series."""
    shape, colour, r = SHAPES[series], COLOURS[series], 5.0
    if shape == "circle":
        return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{r}' fill='{colour}'/>"
    corners = {
        "square": ((-r, -r), (r, -r), (r, r), (-r, r)),
        "triangle": ((0, -r - 1), (r + 1, r), (-r - 1, r)),
        "diamond": ((0, -r - 2), (r + 2, 0), (0, r + 2), (-r - 2, 0)),
    }[shape]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f"<polygon points='{points}' fill='{colour}'/>"


def line(x1: float, y1: float, x2: float, y2: float, colour: str = GRID, width: float = 1) -> str:
    """A line."""
    return f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{colour}' stroke-width='{width}'/>"


def drawing(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """The whole drawing, on white."""
    body = "\n".join(parts)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img' aria-label='{escape(title, quote=True)}'>\n"
        f"<rect width='{width}' height='{height}' fill='white'/>\n{body}\n</svg>\n"
    )


def ratios(rows: Sequence[str], series: Mapping[str, Mapping[str, float]], title: str) -> str:
    """The ratios of each series, a line a row, on a logarithmic axis. At 1 is the floor."""
    left, right, top, step = 290, 760, 64, 30
    values = [value for found in series.values() for value in found.values()] or [1.0]
    ticks = [
        tick
        for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
        if min(1.0, *values) / 2.5 < tick < max(values) * 2.5
    ]
    bottom = top + step * len(rows)

    def at(value: float) -> float:
        return left + (right - left) * math.log(value / ticks[0]) / math.log(ticks[-1] / ticks[0])

    parts = [text(20, 24, title, size=15)]
    for number, name in enumerate(series):
        parts += [mark(30 + 160 * number, 44, number), text(42 + 160 * number, 48, name)]
    for tick in ticks:
        parts += [
            line(at(tick), top, at(tick), bottom, INK if tick == 1 else GRID),
            text(at(tick), bottom + 18, f"{TIMES}{tick:g}", "middle"),
        ]
    for place, row in enumerate(rows):
        y = top + step * (place + 0.5)
        parts += [text(left - 14, y + 4, row, "end"), line(left, y, right, y, "#eeeeee")]
        parts += [mark(at(found[row]), y, number) for number, found in enumerate(series.values()) if row in found]
    return drawing(800, bottom + 32, title, parts)


def growth(curves: Sequence[tuple[str, str, Mapping[int, float]]], title: str) -> str:
    """A panel for each curve: its title, its verdict, and milliseconds by size, on axes from zero."""
    parts = [text(20, 24, title, size=15)]
    for place, (name, verdict, figures) in enumerate(curves):
        left, top = 70 + 390 * (place % 2), 72 + 220 * (place // 2)
        wide, high = 290, 130
        most_x, most_y = max(figures), max(figures.values()) * 1.15
        parts += [text(left - 40, top - 14, f"{name}: {verdict}", size=12)]
        for share in (0.0, 0.5, 1.0):
            y = top + high * (1 - share)
            parts += [line(left, y, left + wide, y), text(left - 6, y + 4, f"{most_y * share:.3g}", "end", 11)]
        places = [(left + wide * size / most_x, top + high * (1 - ms / most_y)) for size, ms in figures.items()]
        for (x1, y1), (x2, y2) in pairwise(places):
            parts.append(line(x1, y1, x2, y2, COLOURS[0], 2))
        parts += [mark(x, y, 0) for x, y in places]
        half = most_x // 2
        for size in (0, half, most_x):
            parts.append(text(left + wide * size / most_x, top + high + 18, f"{size:,}", "middle", 11))
        parts.append(text(left - 40, top + high + 18, "ms", size=11))
    return drawing(800, 72 + 220 * ((len(curves) + 1) // 2), title, parts)
