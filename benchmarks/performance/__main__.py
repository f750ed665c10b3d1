"""What phronomy costs beside a hand-written floor and beside its peers: every row of `docs/performance.md`, in one run.

    python benchmarks/performance [--quick]                               phronomy and the floors, without peers
    python benchmarks/performance --rows warm,calls --sides floor,phronomy
    python benchmarks/performance --rows warm --against /path/to/checkout  this checkout beside another one, as `before`
    nox -s benchmarks [-- --quick]                                        with peers, each in an environment of its own; writes the page

It measures the checkout that it lies in. The sides are `floor` (httpx, json, sqlite3, one commit per step), `floor+claims`
(which takes a claim and stores intents, as phronomy does), `phronomy`, `before`, `floor+litellm`, `phronomy+litellm`, `langgraph`,
`openai-agents` and `pydantic-ai`; those with litellm are there if litellm is. A peer takes part if its interpreter is named:
`--python langgraph=/path/to/bin/python`. `--list` shows the rows. How it is measured: `harness.py`. The work: `side.py` and `work.py`.

To find where the time goes, profile a side by itself: `python -m cProfile -s tottime benchmarks/performance/worker.py phronomy URL
FOLDER once`, with the URL that `python benchmarks/performance/provider.py` prints.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from harness import Environment, Found, Row, Worker, measure
from provider import provider
from rows import CURVES, Curve, rows

ROOT: Final = Path(__file__).resolve().parents[2]
PEERS: Final = ("langgraph", "openai-agents", "pydantic-ai")
GROWN: Final = 5
"""Rounds of each size, as something grows: more than one, also in a quick run, since the least of them counts."""

VERSIONS: Final = """
import importlib.metadata as m, json, sys
print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))
"""


def environments(options: argparse.Namespace) -> list[Environment]:
    """The sides that take part."""
    named = dict(each.split("=", 1) for each in options.python)
    ours = [("floor", None), ("floor+claims", None), ("phronomy", ROOT)]
    if options.against is not None:
        ours.append(("before", options.against.resolve()))
    ours += [
        each
        for each in (("floor+litellm", None), ("phronomy+litellm", ROOT))
        if each[0] in named or find_spec("litellm")
    ]
    found = [Environment(name, named.get(name, sys.executable), tree=tree) for name, tree in ours]
    found += [Environment(name, named[name], peer=True) for name in PEERS if name in named]
    wanted = options.sides.split(",") if options.sides else [each.name for each in found]
    if unknown := set(wanted) - {each.name for each in found}:
        raise SystemExit(f"no side of these names takes part: {', '.join(sorted(unknown))}")
    return [each for each in found if each.name in wanted]


def shown(row: Row, value: float) -> str:
    """A figure with its unit."""
    if row.unit == "B":
        return f"{value / 1000:,.1f} KB"
    return f"{value:,.0f}/s" if row.unit == "/s" else f"{value:,.{3 if value < 1 else 1 if value > 10 else 2}f} ms"


def verdict(found: Found) -> str:
    """Whether the goal is met by phronomy."""
    row = found.row
    if row.goal is None or "phronomy" not in found.figures:
        return ""
    if row.absolute:
        return f"{'>=' if row.unit == '/s' else '<='} {shown(row, row.goal)}: {'met' if found.is_met() else 'not met'}"
    said = (
        f"<= x{bound} of {base}: {'met' if is_now <= bound else 'not met'}" for base, bound, is_now in found.goals()
    )
    return ", ".join(said)


def told(found: Found) -> None:
    """Print a row."""
    print(f"{found.row.key}: {found.row.title}   {verdict(found)}")
    for side in sorted(found.figures, key=list(found.figures).index):
        line = f"    {side:<18}{shown(found.row, found.median(side)):>12}"
        for base in ("floor", "floor+claims", "floor+litellm", "before"):
            if base in found.figures and base != side and comparable(side, base):
                middle, low, high = found.ratio(side, base)
                line += f"   x{middle:.2f} of {base} ({low:.2f} to {high:.2f})"
        print(line, flush=True)


def comparable(side: str, base: str) -> bool:
    """Whether a ratio of the two says something."""
    if base == "before":
        return side == "phronomy"
    return (
        base == "floor"
        or (side.endswith("+litellm") and base == "floor+litellm")
        or (base == "floor+claims" and not side.startswith("floor"))
    )


def grown(curve: Curve, worker: Worker, most: int) -> dict[int, float]:
    """The milliseconds of CPU at each size: the least of the rounds, which is the least disturbed."""
    figures: dict[int, float] = {}
    sizes = [size for size in curve.sizes if size <= most]
    for number in range(GROWN + 1):
        for size in sizes:
            extra = {"kind": "script"} if curve.method == "calls" else {}
            reading = worker.ask(curve.method, {curve.argument: size, **extra})
            assert reading is not None
            if number:
                figures[size] = min(figures.get(size, float("inf")), reading.cpu * 1000)
    return figures


def described(environment: Environment) -> dict[str, str]:
    """The versions of what is installed there."""
    found = subprocess.run([environment.python, "-c", VERSIONS], check=True, capture_output=True, text=True).stdout
    versions: dict[str, str] = json.loads(found)
    return versions


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything that is asked for."""
    waiting = options.waiting or (50_000 if options.quick else 1_000_000)
    wanted = [row for row in rows(waiting) if not options.rows or row.key in options.rows.split(",")]
    sides = environments(options)
    report: dict[str, Any] = {
        "note": f" {options.note}".rstrip(),
        "date": time.strftime("%-d %B %Y", time.gmtime()), "quick": options.quick, "waiting": waiting,
        "python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0],
        "versions": {each.name: described(each) for each in sides}, "rows": {}, "curves": {},
    }  # fmt: skip
    with provider() as url, tempfile.TemporaryDirectory() as folder:
        workers = [Worker(each, url, Path(folder) / each.name) for each in sides]
        try:
            for row in wanted:
                rounds = options.rounds or (row.quick if options.quick else row.rounds)
                for found in measure(row, workers, rounds, quick=options.quick):
                    told(found)
                    report["rows"][found.row.key] = found.figures
                kept(report, options.json)  # a long run that is ended early has what it has
            ours = next((each for each in workers if each.environment.name == "phronomy"), None)
            if ours is not None and (options.curves or not options.rows):
                for curve in CURVES:
                    figures = grown(curve, ours, waiting)
                    print(f"{curve.title}: " + ", ".join(f"{size:,}: {ms:.2f} ms" for size, ms in figures.items()))
                    report["curves"][curve.key] = figures
        finally:
            for worker in workers:
                worker.close()
    return report


def kept(report: dict[str, Any], place: Path | None) -> None:
    """Write the figures where they are wanted."""
    if place is not None:
        place.write_text(json.dumps(report, indent=1))


def main() -> int:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds, and 50,000 requests that wait, not 1,000,000"
    )
    parser.add_argument("--rows", default="", help="their keys, separated by commas")
    parser.add_argument("--sides", default="", help="their names, separated by commas")
    parser.add_argument("--rounds", type=int, help="so many rounds of each row")
    parser.add_argument("--waiting", type=int, help="so many requests that wait")
    parser.add_argument("--curves", action="store_true", help="also where rows are named: how the cost grows")
    parser.add_argument("--against", type=Path, help="another checkout, measured as `before`")
    parser.add_argument("--python", action="append", default=[], metavar="SIDE=PATH", help="the interpreter of a side")
    parser.add_argument("--json", type=Path, help="where the figures go, for `page.py`")
    parser.add_argument("--note", default="", help="a sentence about this run, for the page")
    parser.add_argument("--list", action="store_true", help="list the rows")
    options = parser.parse_args()
    if options.list:
        for row in rows(1_000_000):
            print(f"{row.key:<14}{row.title}")
        return 0
    kept(run(options), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
