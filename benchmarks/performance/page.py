"""The measured part of `docs/performance.md`, and its drawings, from the figures of a run.

python benchmarks/performance/page.py FIGURES.json [OTHER.json ...]

With the figures of other runs, made one after another, a table shows how far the runs agree.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

from harness import Found, Row
from plot import TIMES, growth, ratios
from rows import CURVES, Curve, rows

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = DOCS / "performance.md"
MEASURED: Final = re.compile(r"(<!-- measured by nox -s benchmarks -->\n).*?(<!-- end -->)", re.DOTALL)
NAMES: Final = {"langgraph": "LangGraph", "openai-agents": "OpenAI Agents SDK", "pydantic-ai": "Pydantic AI"}
PACKAGES: Final = {
    "floor": ("httpx", "aiohttp"),
    "phronomy": ("pydantic", "httpx2", "aiohttp"),
    "phronomy+litellm": ("litellm", "openai"),
    "langgraph": ("langchain", "langchain-openai", "langgraph", "langgraph-checkpoint-sqlite"),
    "openai-agents": ("openai-agents", "openai"),
    "pydantic-ai": ("pydantic-ai-slim", "openai"),
}
STEADY: Final = 1.5
"""How much more one may cost at the largest size than at the middle ones, to count as linear, or in all, to count as flat."""


def shown(row: Row, value: float) -> str:
    """A figure with its unit."""
    if row.unit == "B":
        return f"{value / 1000:,.1f} KB"
    if row.unit == "/s":
        return f"{value:,.0f}/s"
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f} ms"


def times(spread: Sequence[float]) -> str:
    """A ratio with its spread."""
    middle, low, high = spread
    return f"{TIMES}{middle:.2f}" + (f" ({low:.2f} to {high:.2f})" if high - low >= 0.005 else "")


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table, its first column of words and the others of figures."""
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


def goal(found: Found) -> str:
    """The goals of a row, and whether each is met."""
    row = found.row
    if row.goal is None or "phronomy" not in found.figures:
        return ""
    if row.absolute:
        return f"{'≥' if row.unit == '/s' else '≤'} {shown(row, row.goal)}: {'met' if found.is_met() else 'not met'}"
    named = {"floor": "", "floor+claims": " of that with claims"}
    return "; ".join(
        f"≤ {TIMES}{bound:g}{named[base]}: {'met' if is_now <= bound else 'not met'}"
        for base, bound, is_now in found.goals()
    )


def ours(all_rows: Sequence[Found]) -> str:
    """phronomy beside the floors."""
    lines = []
    for found in all_rows:
        sides = found.figures
        if "phronomy" not in sides:
            continue
        floor = shown(found.row, found.median("floor")) if "floor" in sides else ""
        of = [times(found.ratio("phronomy", base)) if base in sides else "" for base in ("floor", "floor+claims")]
        lines.append([found.row.title, floor, shown(found.row, found.median("phronomy")), *of, goal(found)])
    return table(["", "floor", "phronomy", "of the floor", "of the floor with claims", "goal"], lines)


def judged(found: Found) -> str:
    """What the goal of a row is about: its figure, or its ratio to the floor's."""
    if found.row.absolute:
        return shown(found.row, found.median("phronomy"))
    return times(found.ratio("phronomy")[:1] * 3)


def again(runs: Sequence[Sequence[Found]]) -> str:
    """What the goals are about in each of these runs, the first of which is that of the other tables."""
    if len(runs) < 2:
        return ""
    lines = []
    for found in runs[0]:
        same = [each for run in runs for each in run if each.row.key == found.row.key]
        if found.row.goal is not None and all({"floor", "phronomy"} <= set(each.figures) for each in same):
            lines.append([found.row.title, *(judged(each) for each in same)])
    head = ["", *(f"run {number}" for number in range(1, len(runs) + 1))]
    return f"\n### In {len(runs)} runs, one after another\n\n{table(head, lines)}\n"


def better(row: Row, one: float, other: float) -> bool:
    """Whether the first figure is the better one."""
    return one > other if row.unit == "/s" else one < other


def peers(all_rows: Sequence[Found]) -> str:
    """phronomy beside its peers, and in which rows one of them is ahead."""
    taking = [side for side in NAMES if any(side in found.figures for found in all_rows)]
    lines, ahead = [], []
    for found in all_rows:
        sides = [side for side in ("phronomy", *taking) if side in found.figures]
        if len(sides) < 2 or "phronomy" not in sides:
            continue
        figures = {side: found.median(side) for side in sides}
        best = (max if found.row.unit == "/s" else min)(figures, key=lambda side: figures[side])
        ahead += [
            f"{NAMES[side]} in “{found.row.title}”"
            for side in sides[1:]
            if better(found.row, figures[side], figures["phronomy"])
        ]
        cells = [shown(found.row, figures[side]) if side in figures else "" for side in ("phronomy", *taking)]
        marked = ["phronomy", *taking].index(best)
        cells[marked] = f"**{cells[marked]}**"
        lines.append([found.row.title, *cells])
    said = (
        f"A peer is ahead of phronomy here: {'; '.join(ahead)}."
        if ahead
        else "In this run no peer is ahead in a row that it has."
    )
    return table(["", "phronomy", *(NAMES[side] for side in taking)], lines) + "\n\n" + said


def litellm(all_rows: Sequence[Found]) -> str:
    """phronomy with litellm beside litellm alone."""
    lines = []
    for found in all_rows:
        if {"floor+litellm", "phronomy+litellm"} <= set(found.figures):
            floor, here = (shown(found.row, found.median(side)) for side in ("floor+litellm", "phronomy+litellm"))
            spread = found.ratio("phronomy+litellm", "floor+litellm")
            wanted, met = (
                (f"≥ {TIMES}0.9", spread[0] >= 0.9) if found.row.unit == "/s" else (f"≤ {TIMES}1.25", spread[0] <= 1.25)
            )
            lines.append([found.row.title, floor, here, times(spread), f"{wanted}: {'met' if met else 'not met'}"])
    return table(["", "floor with litellm", "phronomy with litellm", "of that floor", "goal"], lines)


def verdict(curve: Curve, figures: dict[int, float]) -> tuple[str, float]:
    """What a curve is, and by which figure."""
    sizes = list(figures)
    first, last = sizes[0], sizes[-1]
    if curve.shape == "flat":
        factor = figures[last] / figures[first]
        return ("flat" if factor <= STEADY else "not flat"), factor
    # From size to size, so that what there is at any size is left out: what one more costs in the second half, over the first.
    middle = sizes[len(sizes) // 2]
    before = (figures[middle] - figures[first]) / (middle - first)
    after = (figures[last] - figures[middle]) / (last - middle)
    factor = after / before
    return ("linear" if factor <= STEADY else "more than linear"), factor


def curves(report: dict[str, Any]) -> tuple[str, list[tuple[str, str, dict[int, float]]]]:
    """The table of what grows, and what is drawn of it."""
    lines, drawn = [], []
    for curve in CURVES:
        if not (found := report["curves"].get(curve.key)):
            continue
        figures = {int(size): ms for size, ms in found.items()}
        what, factor = verdict(curve, figures)
        sizes = "; ".join(f"{size:,}" for size in figures)
        spent = "; ".join(f"{ms:.{1 if ms < 100 else 0}f}" for ms in figures.values())
        lines.append([curve.title, sizes, spent, f"{what} ({TIMES}{factor:.2f})"])
        drawn.append((curve.title, what, figures))
    return table(["CPU of", "sizes", "ms", ""], lines), drawn


def versions(report: dict[str, Any]) -> str:
    """What was installed on each side."""
    lines = []
    for side, packages in PACKAGES.items():
        if side in report["versions"]:
            found = report["versions"][side]
            lines.append([side, ", ".join(f"{each} {found[each]}" for each in packages if each in found)])
    return "\n".join(["| side | installed |", "|---|---|", *(f"| {side} | {what} |" for side, what in lines)])


def found_in(report: dict[str, Any], waiting: int) -> list[Found]:
    """The rows of a report, called as with so many requests that wait."""
    known = [each for row in rows(waiting) for each in (row, row.also) if each is not None]
    return [
        Found(row, {side: {int(n): value for n, value in by.items()} for side, by in report["rows"][row.key].items()})
        for row in known
        if row.key in report["rows"]
    ]


def write(report: dict[str, Any], others: Sequence[dict[str, Any]]) -> None:
    """Write the page and its drawings."""
    runs = [found_in(each, report["waiting"]) for each in (report, *others)]
    found = runs[0]
    series: dict[str, dict[str, float]] = {}
    for side, name in {"phronomy": "phronomy", **NAMES}.items():
        for each in found:
            if {side, "floor"} <= set(each.figures):
                ratio = each.ratio(side)[0]
                series.setdefault(name, {})[each.row.title.replace("`", "")] = (
                    1 / ratio if each.row.unit == "/s" else ratio
                )
    titles = [each.row.title.replace("`", "") for each in found if "floor" in each.figures]
    grows, drawn = curves(report)
    images = DOCS / "images"
    (images / "performance.svg").write_text(
        ratios(titles, series, "How many times the hand-written floor (CPU or bytes; 1 is the floor)")
    )
    (images / "performance-growth.svg").write_text(growth(drawn, "CPU of phronomy as things grow"))
    kind = "a quick run (`--quick`)" if report["quick"] else "a full run"
    busy = ", so read the ratios, not the milliseconds" if report["load"] > report["cores"] else ""
    measured = f"""
Measured on {report["date"]}, by {kind}: Python {report["python"]}, {report["cores"]} cores, SQLite in a file with
`synchronous=FULL`. The load of the machine was {report["load"]:.1f} as it began{busy}.{report["note"]}

{versions(report)}

### Beside the floor

{ours(found)}

![The ratios to the floor, row by row](images/performance.svg)
{again(runs)}
### Beside peers

{peers(found)}

### With litellm

{litellm(found)}

### What a checkpoint costs as things grow

{grows}

![CPU by the number of messages, calls, nested runs and waiting runs](images/performance-growth.svg)

"""
    page = PAGE.read_text()
    if not MEASURED.search(page):
        raise SystemExit(f"{PAGE} has no place for the figures")
    PAGE.write_text(MEASURED.sub(lambda place: place[1] + measured + place[2], page))


if __name__ == "__main__":
    report, *others = (json.loads(Path(each).read_text()) for each in sys.argv[1:])
    write(report, others)
