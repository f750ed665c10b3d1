"""What type checkers make of a user's program: right ones pass, and each mistake is found."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import phronomy

pytestmark = pytest.mark.unmeasured

AS_IN_THE_DOCS = ("external_tool", "inbox_app", "refund_desk", "reviewed_graph", "rules", "slack_bot", "team")
"""Programs that use what a page shows, with the annotations of a user who has them checked."""

PROGRAMS = Path(__file__).parent / "typed"
PROJECT = str(Path(phronomy.__file__).parents[1])


def by_mypy(folder: Path) -> str:
    (folder / "mypy.ini").write_text("[mypy]\nstrict = true\n")
    command = ["-m", "mypy", "--follow-imports=silent", "--cache-dir", str(folder / "cache"), "--no-error-summary"]
    return output(command, folder, MYPYPATH=PROJECT)


def by_pyright(folder: Path) -> str:
    # What it would say of lines that are wrong already.
    beside = ("UnknownMemberType", "UnusedCoroutine", "UnusedExpression", "UnusedImport")
    config = {"typeCheckingMode": "strict", **{f"report{each}": False for each in beside}}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    return output(["-m", "pyright"], folder, PYTHONPATH=PROJECT, PYRIGHT_PYTHON_IGNORE_WARNINGS="1")


def output(command: list[str], folder: Path, **environment: str) -> str:
    """What a checker says of the programs, from a folder in which nothing else is set."""
    done = subprocess.run(
        [sys.executable, *command, *map(str, sorted(PROGRAMS.glob("*.py")))],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr  # the mistakes were found, and the checker did not break
    return done.stdout


@pytest.fixture(scope="module", params=[pytest.param(by_mypy, marks=pytest.mark.sweep), by_pyright])
def errors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """The errors that a type checker finds in each program, by line."""
    check: Callable[[Path], str] = request.param
    said = check(tmp_path_factory.mktemp("checked"))
    found: dict[str, dict[int, str]] = {}
    for path, line, text in re.findall(r"^\s*(\S+\.py):(\d+)(?::\d+)?(?: -|:) error: (.+)$", said, re.MULTILINE):
        assert Path(path).resolve().parent == PROGRAMS or PROGRAMS.name in path, f"{path}:{line}: {text}"
        found.setdefault(Path(path).name, {}).setdefault(int(line), text)
    return found


def test_a_right_program_passes_and_its_answers_have_their_types(errors: dict[str, dict[int, str]]) -> None:
    assert errors.get("answers.py") is None


def test_programs_as_the_docs_show_them_pass(errors: dict[str, dict[int, str]]) -> None:
    assert {name: errors.get(f"{name}.py") for name in AS_IN_THE_DOCS} == dict.fromkeys(AS_IN_THE_DOCS)


@pytest.mark.parametrize("name", AS_IN_THE_DOCS)
def test_programs_as_the_docs_show_them_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where they keep their files
    runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")


def test_each_mistake_is_an_error_and_nothing_else_is(errors: dict[str, dict[int, str]]) -> None:
    text = (PROGRAMS / "mistakes.py").read_text()
    marked = {number for number, line in enumerate(text.splitlines(), 1) if "# error: " in line}
    found = errors["mistakes.py"]
    assert found.keys() == marked, {line: found.get(line, "not found") for line in found.keys() ^ marked}


def test_the_right_program_runs() -> None:
    runpy.run_path(str(PROGRAMS / "answers.py"))
