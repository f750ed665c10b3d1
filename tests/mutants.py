"""Breaks a copy of the project by hand, once in each of many places, and says which breaks the tests see.

    python tests/mutants.py list --seed 1 --count 60
    python tests/mutants.py run --seed 1 --count 60 -- --numprocesses=2
    python tests/mutants.py run --seed 1 --only 7,12 --together -- --sweep

A mutant is one small change of one file: a comparison turned, a condition negated, a statement or a keyword argument left
out, a number one higher. The same seed makes the same mutants of the same code. `run` has a copy of the project for each
of `--jobs`, runs pytest there until the first failure, and calls the mutant caught if a test fails or nothing comes within the time.
`--first` names test files that run before the others, because they find most. `--together` puts all the mutants into one
copy and runs every test: what then fails is looked at one by one, and nothing failing means that none is caught. To try many:
`--only-first --jobs 2` for all, then `--together` for those that are left.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parents[1]
GROUPS: dict[str, tuple[str, ...]] = {
    "rules": ("phronomy/rules/transitions.py",),
    "perform": ("phronomy/engine/perform.py", "phronomy/engine/ask_model.py", "phronomy/engine/run_tools.py"),
    "runner": ("phronomy/engine/run.py",),
    "judge": ("phronomy/engine/judging/judge.py", "phronomy/engine/judging/decide.py"),
    "session": ("phronomy/runs/finding/lookup.py", "phronomy/runs/opening.py"),
    "stores": ("phronomy/stores/**/*.py",),
}
"""The code whose mistakes cost most. Each group gives as many mutants as every other."""

FIRST = (
    *("test_rules", "test_gate", "test_drive", "test_recovery", "test_stores", "test_store_contract"),
    *("test_misbehaviour_decisions", "test_failures_once", "test_failures_stores", "test_limits"),
)
"""The tests that find most of these mistakes."""

TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True)
class Mutant:
    """A change of one place of a file: the text from `start` to `end`, in characters, becomes `new`."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}:{self.line}: {old[:70]}  ->  {new[:70]}"

    def apply(self, text: str) -> str:
        """The text of the file with the change."""
        assert text[self.start : self.end] == self.old, f"{self.file} has changed"
        return text[: self.start] + self.new + text[self.end :]


def changes(node: ast.AST) -> Iterator[ast.AST | str]:
    """What the node may be replaced by: another node, or a text."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in TURNED:
            yield ast.Compare(node.left, [TURNED[type(op)]()], node.comparators)
        case ast.BoolOp(op=op):
            yield ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp(op=ast.Add()):
            yield ast.BinOp(node.left, ast.Sub(), node.right)
        case ast.BinOp(op=ast.Sub()):
            yield ast.BinOp(node.left, ast.Add(), node.right)
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int()):
            yield ast.Constant(node.value + 1)
        case ast.Return(value=ast.expr()):
            yield "return None"
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign():
            yield "pass"
        case ast.Assign(targets=[ast.Attribute()]):
            yield "pass"
        case ast.Call(keywords=keywords):
            for place, keyword in enumerate(keywords):
                if keyword.arg is not None:
                    less = copy.copy(node)
                    less.keywords = [*keywords[:place], *keywords[place + 1 :]]
                    yield less
        case _:
            pass
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Compare | ast.BoolOp):
        negated = ast.UnaryOp(ast.Not(), node.test)
        yield ast.copy_location(ast.Expr(negated), node.test)


def code(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that act: neither annotations, nor docstrings, nor what only a type checker reads."""
    if isinstance(node, ast.JoinedStr):  # places within are not told truly
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases") or isinstance(node, ast.AnnAssign | ast.Assert):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child
                yield from code(child)


def mutants_of(file: str) -> list[Mutant]:
    """Every mutant of the file, in the order of its lines."""
    text = (ROOT / file).read_text()
    lines = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found = []
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    nodes = {id(node): node for function in functions for line in function.body for node in (line, *code(line))}
    for node in nodes.values():
        for change in changes(node):
            at = node
            if isinstance(change, ast.Expr):
                at, change = change, change.value
            new = change if isinstance(change, str) else ast.unparse(change)
            start, end = offset(at.lineno, at.col_offset), offset(at.end_lineno, at.end_col_offset)  # type: ignore[attr-defined]
            if not isinstance(change, str):
                new = f"({new})"
            found.append(Mutant(file, at.lineno, start, end, text[start:end], new))  # type: ignore[attr-defined]
    return sorted(set(found), key=lambda each: (each.start, each.end, each.new))


def drawn(seed: int, count: int) -> list[Mutant]:
    """So many mutants, drawn with this seed: as many of each group."""
    chance = random.Random(seed)
    taken: list[Mutant] = []
    for place, patterns in enumerate(GROUPS.values()):
        files = sorted(str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern))
        every = [each for file in files for each in mutants_of(file) if compiles(each)]
        taken += chance.sample(every, count // len(GROUPS) + (place < count % len(GROUPS)))
    return taken


def compiles(mutant: Mutant) -> bool:
    """Whether the changed file is Python at all."""
    try:
        compile(mutant.apply((ROOT / mutant.file).read_text()), mutant.file, "exec")
    except SyntaxError:
        return False
    return True


def copied(into: Path) -> Path:
    """A copy of the project."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().splitlines():
        if (ROOT / name).exists():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name)
    return into


@contextmanager
def broken(place: Path, mutants: Sequence[Mutant]) -> Iterator[None]:
    """The copy has these mutants in it."""
    files = {each.file: (place / each.file).read_text() for each in mutants}
    changed = dict(files)
    for mutant in sorted(mutants, key=lambda each: each.start, reverse=True):  # so that the places stay what they were
        changed[mutant.file] = mutant.apply(changed[mutant.file])
    try:
        written(place, changed)
        yield
    finally:
        written(place, files)


def written(place: Path, files: dict[str, str]) -> None:
    """Write the files anew. Python compiles a file again when its size or its second has changed: each gets a second of its own."""
    for name, text in files.items():
        path = place / name
        second = int(path.stat().st_mtime) + 1
        path.write_text(text)
        os.utime(path, (second, second))


def tested(into: Path, arguments: Sequence[str], seconds: float) -> tuple[bool, str]:
    """Whether all tests passed in time, and which failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", *arguments]
    env = {**os.environ, "PYTHONPATH": str(into), "PYTHONDONTWRITEBYTECODE": ""}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command, cwd=into, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return False, f"nothing within {seconds:.0f} s"
        said.seek(0)
        lines = said.read().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR", "SUBFAIL"))]
    return process.returncode == 0, "\n".join(failed) or (lines or [""])[-1]


def run(mutants: dict[int, Mutant], options: argparse.Namespace) -> int:
    """Try the mutants, each in a copy of its own or all in one; gives how many were not caught."""

    def tried(batch: list[int]) -> int:
        since = time.monotonic()
        place = copies.get()
        with broken(place, [mutants[number] for number in batch]):
            stop = [] if options.together else ["-x"]
            first = [] if options.together else [f"tests/{name}.py" for name in options.first]
            passed, said = tested(place, [*stop, *options.pytest, *first], options.seconds)
            if passed and first and not options.only_first:
                passed, said = tested(place, [*stop, *options.pytest], options.seconds)
        copies.put(place)
        lines = [f"{number:3} {'LEFT  ' if passed else 'caught'} {mutants[number]}" for number in batch]
        print("\n".join([*lines, f"    {time.monotonic() - since:.0f} s: {said}"]), flush=True)
        return len(batch) * passed

    batches = [list(mutants)] if options.together else [[number] for number in mutants]
    with tempfile.TemporaryDirectory(prefix="mutants-") as home, ThreadPoolExecutor(options.jobs) as pool:
        copies: Queue[Path] = Queue()  # a copy for each that are tried side by side: compiled once
        for number in range(options.jobs):
            copies.put(copied(Path(home) / str(number)))
        return sum(pool.map(tried, batches))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else None, epilog="What follows -- is told to pytest."
    )
    parser.add_argument("what", choices=["list", "run"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--only", default="", help="the numbers of the mutants to try, with commas between")
    parser.add_argument("--first", nargs="*", default=FIRST, help="test files to run first, without path and ending")
    parser.add_argument("--only-first", action="store_true", help="run no others")
    parser.add_argument("--together", action="store_true", help="all mutants in one copy, all tests")
    parser.add_argument("--jobs", type=int, default=1, help="how many mutants to try side by side")
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long one run of pytest may take")
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:end])
    options.pytest = given[end + 1 :]
    mutants = dict(enumerate(drawn(options.seed, options.count), 1))
    if options.only:
        mutants = {number: mutants[number] for number in map(int, options.only.split(","))}
    if options.what == "list":
        print("\n".join(f"{number:3} {each}" for number, each in mutants.items()))
        return 0
    left = run(mutants, options)
    print(f"{len(mutants) - left} of {len(mutants)} caught")
    return 0


if __name__ == "__main__":
    sys.exit(main())
