"""Draws the rooms in `architecture.md` from the code: `python docs/rooms.py`. A test fails while the page is out of date.

The order of the rooms is that of the import-linter contract in `pyproject.toml`, what each is for is the first sentence of its
docstring, and the arrows are its imports, those for type checkers included.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- drawn by docs/rooms.py -->\n", "<!-- end -->\n"


def rooms() -> list[str]:
    """The rooms, from the ground up."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers: list[str] = next(each["layers"] for each in contracts if each["type"] == "layers")
    return layers[::-1]


def files_of(room: str) -> list[Path]:
    """The modules of a room, its own first."""
    home = ROOT / "phronomy" / room
    return [home / "__init__.py", *sorted(home.rglob("*.py"))] if home.is_dir() else [home.with_suffix(".py")]


def purpose(room: str) -> str:
    """The first sentence of the docstring of a room, without the room's own name before it."""
    said = ast.get_docstring(ast.parse(files_of(room)[0].read_text())) or ""
    sentence = " ".join(said.split("\n\n")[0].split()).split(". ")[0].rstrip(".")
    name, _, rest = sentence.partition(": ")
    return rest[0].upper() + rest[1:] if name.lower().removeprefix("the ") == room else sentence


def imports() -> dict[str, set[str]]:
    """The rooms that each room imports from."""
    known = rooms()
    found: dict[str, set[str]] = {room: set() for room in known}
    for room in known:
        for path in files_of(room):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("phronomy"):
                    parts = node.module.split(".")[1:2] or [alias.name for alias in node.names]
                    found[room] |= {part for part in parts if part in found and part != room}
    return found


def drawn() -> Iterator[str]:
    """The lines of the drawing, and of the table below it."""
    order, arrows = rooms(), imports()
    reached: dict[str, set[str]] = {}  # what a room needs, straight or through others
    yield "```mermaid\nflowchart TD"
    for place, room in enumerate(order):
        lower = {each for each in arrows[room] if each in order[:place]}
        through = {far for near in lower for far in reached[near]}
        reached[room] = lower | through
        for near in sorted(lower - through, key=order.index, reverse=True):
            yield f"    {room} --> {near}"
    yield "```\n\n| room | what it is | files | imports from |\n|---|---|--:|---|"
    for room in reversed(order):
        below = ", ".join(f"`{each}`" for each in sorted(arrows[room], key=order.index, reverse=True))
        count = len({path for path in files_of(room) if path.name != "__init__.py"}) or 1
        yield f"| `{room}` | {purpose(room)} | {count} | {below or '-'} |"


def page() -> str:
    """The page, with the drawing as the code is now."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + "\n".join(drawn()) + "\n\n" + END + after


if __name__ == "__main__":
    PAGE.write_text(page())
