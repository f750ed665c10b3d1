"""What misbehaviour gets: the list of it, and that each line is met by a test that names it, through both drivers."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tables import each

LINES = (
    "arguments that are not JSON, not an object, or cut by the length limit",
    "a missing, extra or wrongly typed argument",
    "args with dunder keys, NaN or a depth of a thousand",
    "an unknown tool",
    "two calls with one id, or with an empty one",
    "the same id again in a later turn",
    "the same id again in another run",
    "ten parallel calls",
    "text beside tool calls",
    "an empty reply",
    "a huge result",
    "lone surrogates",
    "a tool that raises",
    "a tool that hangs",
    "a tool that returns what is not JSON",
    "a tool that catches every Exception around a nested agent",
    "a handler that raises",
    "Ctrl-C in the model call",
    "Ctrl-C in a tool",
    "Ctrl-C in a save",
    "a checkpoint of another agent",
    "a checkpoint whose tool is gone, changed",
    "checkpoint text edited anywhere, with or without a recomputed digest",
)

ASYNC_ALONE = tuple(f"task cancellation in {place}" for place in ("the model call", "a tool", "a save", "a handler"))
"""There are no tasks to cancel in a sync run."""


@cache
def told() -> list[tuple[str, set[str]]]:
    """The docstring of each test of misbehaviour, and the names of its parameters and of what it uses."""
    found = []
    for path in sorted(Path(__file__).parent.glob("test_misbehaviour_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                used = {argument.arg for argument in node.args.args}
                used |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
                found.append((" ".join((ast.get_docstring(node) or "").split()).lower(), used))
    return found


@each("line", LINES)
def test_each_line_is_met_by_a_test_of_both_drivers(line: str) -> None:
    assert [used for words, used in told() if line.lower() in words and "driver" in used]


@each("line", ASYNC_ALONE)
def test_each_way_to_cancel_a_task_is_met_by_a_test(line: str) -> None:
    assert [used for words, used in told() if line in words and "asyncio" in used]
