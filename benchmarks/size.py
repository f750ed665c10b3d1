"""How large the code is, room by room: lines of code, comments for 100 lines, and how often a type is `Any`.

    python benchmarks/size.py [TREE ...]

Each TREE is a checkout, by default this one: give two to see one beside the other. Lines of code are those that hold some: neither
docstrings nor imports, comments or blank lines. Comments are lines with one, those for checkers and linters left out.
"""

import ast
import io
import re
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

THIS = Path(__file__).parent.parent
FOR_TOOLS = re.compile(r"#\s*(type: ignore|noqa|pragma|pyright)")
NOT_CODE = frozenset({
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
})  # fmt: skip


@dataclass
class Size:
    """What is counted of some files, added up."""

    lines: int = 0
    code: int = 0
    comments: int = 0
    any_types: int = 0

    def add(self, other: "Size") -> None:
        """Count these files as well."""
        self.lines += other.lines
        self.code += other.code
        self.comments += other.comments
        self.any_types += other.any_types

    def row(self, name: str) -> str:
        """The figures, as a line of the table."""
        lines = max(self.lines, 1)
        per = f"{100 * self.comments / lines:10.1f}{100 * self.any_types / lines:10.2f}"
        return f"{name:<16}{self.lines:8}{self.code:8}{self.comments:10}{self.any_types:8}{per}"


def size_of(path: Path) -> Size:
    """The size of one module."""
    text = path.read_text()
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    held = {line for each in tokens if each.type not in NOT_CODE for line in range(each.start[0], each.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        told = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if told or isinstance(node, ast.Import | ast.ImportFrom):
            held -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
    return Size(
        lines=text.count("\n"),
        code=len(held),
        comments=sum(each.type == tokenize.COMMENT and not FOR_TOOLS.match(each.string) for each in tokens),
        any_types=sum(each.type == tokenize.NAME and each.string == "Any" for each in tokens),
    )


def main() -> None:
    for tree in map(Path, sys.argv[1:] or [THIS]):
        rooms: dict[str, Size] = {}
        for path in sorted((tree / "phronomy").rglob("*.py")):
            inside = path.relative_to(tree / "phronomy").parts
            rooms.setdefault(inside[0] if len(inside) > 1 else "(top)", Size()).add(size_of(path))
        whole = Size()
        print(f"\n{tree.resolve()}")
        print(f"{'room':<16}{'lines':>8}{'code':>8}{'comments':>10}{'Any':>8}{'per 100':>10}{'Any/100':>10}")
        for name, size in rooms.items():
            whole.add(size)
            print(size.row(name))
        print(whole.row("all"))


if __name__ == "__main__":
    main()
