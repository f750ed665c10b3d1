"""Makes `behaviours.md` from `behaviours.toml` and the tests: `python docs/behaviours.py`. A test fails while the page is out of date.

A test shows a row if its docstring names it, such as D21, EIN E4 or DIR-A14.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "behaviours.md"
ROWS = ROOT / "docs" / "behaviours.toml"

NAMED = re.compile(r"\b(?:(?:DIR|EIN|RBY|CMP|UIP)-A\d\d|(?:EIN-)?[DWEVRBCPUQ]\d{1,2})\b")
KINDS = {"does": "What it does", "weak": "Where it is weak", "must": "Scenarios"}
MOST = 3
"""Tests that are named for a row, at most."""

BEFORE = """# What other systems do

This page lists what five other systems promise, do and get wrong, row by row, and what phronomy does about each. It is for
people who know one of them, and for people who want to see on what the design rests. The
[comparison](comparison.md) has frameworks of today, with sources.

A row of "Where it is weak" says what is wrong there, and its test shows that it is right here. A scenario with a star
is one that the original fails. The last column says which tests show the behaviour, by their names and files under
`tests/`, and why phronomy chooses otherwise where it does.

The rows were noted when each system was looked at, and those systems go on: they may do better today. `python
docs/behaviours.py` makes this page from the tests.
"""


def systems() -> list[dict[str, Any]]:
    """The systems, each with its rows by their kind."""
    found: list[dict[str, Any]] = tomllib.loads(ROWS.read_text())["systems"]
    return found


def rows() -> dict[str, dict[str, str]]:
    """All rows, by their ids."""
    return {row["id"]: row for system in systems() for kind in KINDS for row in system[kind]}


@cache
def tests() -> dict[str, list[tuple[str, str]]]:
    """The tests that name each row: the file and the name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
                continue
            for id in dict.fromkeys(NAMED.findall(ast.get_docstring(node) or "")):
                found.setdefault(id.removeprefix("EIN-") if "-A" not in id else id, []).append((path.name, node.name))
    return found


def told(row: dict[str, str], shown: list[tuple[str, str]]) -> str:
    """What phronomy does about a row."""
    said = [row["otherwise"]] if "otherwise" in row else []
    said += [f"*{name.removeprefix('test_').replace('_', ' ')}* (`{file}`)" for file, name in shown[:MOST]]
    if len(shown) > MOST:
        said.append(f"and {len(shown) - MOST} more")
    return "; ".join(said) if "otherwise" not in row else " ".join([said[0], "; ".join(said[1:])]).strip()


def page() -> str:
    """The page, as the rows and the tests are now."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    shown = tests()
    yield BEFORE
    for system in systems():
        yield f"## {system['name']}\n\n{system['about'][0].upper()}{system['about'][1:]}."
        for kind, title in KINDS.items():
            yield f"\n### {title} ({system['name']})\n\n| row | {system['name']} | phronomy |\n|---|---|---|"
            for row in system[kind]:
                yield f"| {row['id']} | {_cell(row['text'])} | {told(row, shown.get(row['id'], []))} |"
        yield ""


def _cell(text: str) -> str:
    """A text as it stands in a table, whatever it has that Markdown would read as its own."""
    parts = text.split("`")
    for n in range(0, len(parts), 2):  # those outside of code
        parts[n] = re.sub(r"([\[\]*_<>|])", r"\\\1", parts[n])
    return "`".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
