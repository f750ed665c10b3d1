"""Which tests run by default: each test with each of its values, sync and async, and on each store at least once.

A test may have two kinds of parameters: values (an input, a fault, a pattern), and its world (the driver, the store). The
full product of both is what `--sweep` runs. By default a test runs once for each combination of its values, and goes round
the diagonal of its worlds meanwhile: sync with memory, async with SQLite, then streamed with PostgreSQL and with Redis, as far
as the test has them and goes. What is named one by one (`pytest tests/test_gate.py::test_name`) always runs.

These marks say otherwise:

- `product`: it runs in every world by default as well, or in as many as `few` says. For claims, leases, forks and retention.
- `sweep`: the test, or the row, does not run by default at all.
- `few(n)`: n of its cases run. Both are for what starts processes, kills, or loads what is heavy.
- `worlds(n)`: it runs in n worlds, others than the next test. For whole stories, whose laws have tests of their own everywhere.

A test that counts (examples, racers, places to die at) says how many by `scaled`. `--sweep --rest` leaves out what a default run does
to the full. `--share 2/4` runs the second of four shares of what was chosen: each test is in one of them, by its name. The continuous
integration runs the tests, and then one share of the rest: which one, the commit says.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from zlib import crc32

import pytest
from drivers import Driver

WORLDS = ("sync", "async", "memory", "sqlite", "sqlite reopened", "postgres", "redis", "key-value")
"""Parameters that name a driver or a kind of store."""

T = TypeVar("T")
_SWEEP = "PHRONOMY_TESTS_SWEEP"


def begin_sweep() -> None:
    """Have this process, and those that it starts, do all of everything."""
    os.environ[_SWEEP] = "1"


def scaled(default: T, *, sweep: T) -> T:
    """How many there are to be: by default, and in the sweep."""
    return sweep if _SWEEP in os.environ else default


def chosen(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Those of the tests that run by default, in their order."""
    kept: list[pytest.Item] = []
    for _, group in groupby(items, key=lambda item: (item.parent, getattr(item, "originalname", item.name))):
        cases = [item for item in group if item.get_closest_marker("sweep") is None]
        if not any(item.get_closest_marker("product") for item in cases):
            cases = diagonal(cases, bound(cases, "worlds"))
        kept += spread(cases, bound(cases, "few"))
    return kept


def rest(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Those of all tests that have not been run to the full by a run of those that run by default: for a sweep right after it."""
    does_more = scaled_names(item.path for item in items)
    done = {item for item in chosen(items) if top_name(item) not in does_more[item.path]}
    return [item for item in items if item not in done]


def share(items: Iterable[pytest.Item], number: int, of: int) -> list[pytest.Item]:
    """The share of the tests that has this number, from 1 to `of`: each test is in one, whatever other tests there are."""
    return [item for item in items if crc32(item.nodeid.encode()) % of == number - 1]


def top_name(item: pytest.Item) -> str:
    """The name in its file under which a test stands: of its function, or of the class that it is in."""
    return item.nodeid.split("::")[1].partition("[")[0]


Name: TypeAlias = tuple[Path, str]
"""A name at the top of a file."""

SCALED: Name = (Path(__file__), "scaled")


def scaled_names(paths: Iterable[Path]) -> Mapping[Path, frozenset[str]]:
    """The names in these files that may do more in the sweep: what they use counts by `scaled`, or hypothesis searches it."""
    uses: dict[Name, set[Name]] = {}
    seen, left = {SCALED[0]}, list(paths)
    while left:
        if (path := left.pop()) not in seen:
            seen.add(path)
            mine = names_in(path)
            uses |= mine
            left += {file for used in mine.values() for file, _ in used if file != HYPOTHESIS}
    found = {SCALED, *(name for used in uses.values() for name in used if name[0] == HYPOTHESIS)}
    while more := {name for name, used in uses.items() if name not in found and used & found}:
        found |= more
    # A mark of the file, and a fixture that each of its tests has, concern all of it.
    return {
        path: frozenset(name for of, name in uses if of == path and {(path, name), (path, ALL)} & found)
        for path in seen
    }


FILES = {path.stem: path for path in Path(__file__).parent.glob("*.py")}
"""The files of tests, and of what helps them, by name."""

HYPOTHESIS = Path("hypothesis")
ALL = "pytestmark"
WHOLE = "*"


def names_in(path: Path) -> dict[Name, set[Name]]:
    """The names at the top of a file, each with those that it uses, there and in other files."""
    tree = ast.parse(path.read_text())
    known: dict[str, Name] = {}
    made: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            known |= imported(node)
        for name in names_of(node):
            made.setdefault(name, set()).update(used_in(node))
    known |= {name: (path, name) for name in made}
    uses = {(path, name): {known[each] for each in used if each in known} for name, used in made.items()}
    # A file that is imported whole, or begun as a program by its name, is used whole.
    for name, used in made.items():
        uses[path, name] |= {(FILES[each], WHOLE) for each in used & FILES.keys() if FILES[each] != path}
    return uses | {(path, WHOLE): {known[name] for name in made}}


def imported(node: ast.Import | ast.ImportFrom) -> dict[str, Name]:
    """What the names that a statement imports stand for, as far as it is of a file of tests, or of hypothesis."""
    found: dict[str, Name] = {}
    for alias in node.names:
        module = node.module if isinstance(node, ast.ImportFrom) else alias.name
        file = HYPOTHESIS if str(module).partition(".")[0] == "hypothesis" else FILES.get(str(module))
        if file is not None:
            found[alias.asname or alias.name] = (file, alias.name if isinstance(node, ast.ImportFrom) else WHOLE)
    return found


def names_of(node: ast.stmt) -> set[str]:
    """The names that a statement gives something to."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        for_all = any("autouse=True" in ast.unparse(each) for each in node.decorator_list)
        return {node.name, ALL} if for_all else {node.name}
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def used_in(node: ast.AST) -> set[str]:
    """The names that stand in a statement: also those of fixtures, which are parameters or texts, and of files."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            found.add(each.id)
        elif isinstance(each, ast.arg):
            found.add(each.arg)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            found.add(each.value.removesuffix(".py"))
    return {name for name in found if name.isidentifier()}


def bound(cases: Sequence[pytest.Item], name: str) -> int | None:
    """The number that a mark of this name gives, if the test has one."""
    found = cases[0].get_closest_marker(name) if cases else None
    return found.args[0] if found else None


def spread(cases: list[pytest.Item], most: int | None) -> list[pytest.Item]:
    """At most so many of the cases, as far apart as can be; where they begin differs from test to test."""
    if most is None or len(cases) <= most:
        return cases
    apart = len(cases) // most | 1  # sync and async take turns
    begin = crc32(cases[0].nodeid.encode())
    places = dict.fromkeys((begin + step * apart) % len(cases) for step in range(len(cases) * apart))
    taken = sorted([*places][:most])
    return [cases[place] for place in taken]


def diagonal(cases: Sequence[pytest.Item], most: int | None) -> list[pytest.Item]:
    """The cases of one test with each of its values once or more, and each part of its worlds once or more, or `most` of them."""
    if len(cases) < 2:
        return list(cases)
    given = [parameters(case) for case in cases]
    names = [name for name in given[0] if all(is_world(each.get(name)) for each in given)]
    found = {(values(each, names), worlds(each, names)): case for each, case in zip(given, cases, strict=True)}
    rows = list(dict.fromkeys(row for row, _ in found))
    axes = [list(dict.fromkeys(axis)) for axis in zip(*(world for _, world in found), strict=True)]
    kept = set()
    required = [[part for part in axis if not part.endswith("-streamed")] for axis in axes]
    begin = 0
    if most is not None and most < max([0, *map(len, required)]):
        begin, required = crc32(cases[0].nodeid.encode()), [axis[:most] for axis in required]
    for step in range(max([len(rows), *map(len, required)])):
        row, world = rows[step % len(rows)], tuple(axis[(begin + step) % len(axis)] for axis in axes)
        if (row, world) not in found:  # the test is not given every combination
            world = next(other for known, other in found if known == row)
        kept.add((row, world))
    for place, axis in enumerate(required if begin == 0 else ()):
        for part in axis:
            if all(world[place] != part for _, world in kept):
                kept.add(next(key for key in found if key[1][place] == part))
    return [case for key, case in found.items() if key in kept]


def parameters(case: pytest.Item) -> dict[str, Any]:
    """The parameters of the case, by name."""
    callspec = getattr(case, "callspec", None)
    return {} if callspec is None else callspec.params


def is_world(value: object) -> bool:
    """Whether the parameter is a driver or a store."""
    return isinstance(value, Driver) or (isinstance(value, str) and value in WORLDS)


def values(given: dict[str, Any], besides: Sequence[str]) -> tuple[object, ...]:
    """The other parameters. They need not be hashable: the object is what counts."""
    return tuple((name, id(value)) for name, value in given.items() if name not in besides)


def worlds(given: dict[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """The driver and the store."""
    return tuple(str(given[name]) for name in names)
