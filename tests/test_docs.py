"""The README and the pages under `docs/` are true: their code runs and prints what they say, their links lead somewhere.

A block of Python is run as it stands, all blocks of a page in order and in one namespace, in an empty directory. What a
`print` prints is what the comment behind it says, or the comment on the lines below it. `openai/...` models reach a
loopback server: `clerk` answers there.
"""

from __future__ import annotations

import ast
import inspect
import io
import itertools
import re
import shlex
import sys
import threading
from asyncio import Runner
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tables import each

import phronomy
from phronomy import errors
from phronomy.cli import DONE, run
from phronomy.testing import ChatServer, ScriptedModel, call

pytestmark = pytest.mark.unmeasured

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GUARANTEES = ROOT / "docs" / "guarantees.md"

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def said(code: str) -> list[str]:
    """What the comments of a block say that it prints. Lines of a comment below a `print` are one line of output."""
    tree, lines, found = ast.parse(code), code.splitlines(), []
    prints = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"]
    for node in sorted(prints, key=lambda node: node.lineno):
        assert node.end_lineno is not None and node.end_col_offset is not None
        behind = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
        told = behind.removeprefix("  # ") or below(lines[node.end_lineno :], " " * node.col_offset + "# ")
        if told:
            found.append(told)
    return found


def below(lines: list[str], start: str) -> str:
    """The comment that the lines begin with, as one line."""
    return " ".join(
        line.removeprefix(start) for line in itertools.takewhile(lambda line: line.startswith(start), lines)
    )


def clerk(body: dict[str, Any]) -> Any:
    """The model behind the pages: asked for a refund it calls the tool, and then it says what the tool said."""
    last = body["messages"][-1]
    if last["role"] == "user":
        return call("refund", {"order_id": 1042, "amount": 49.9})
    return f"The desk says: {last['content']}"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A provider on the loopback interface, where litellm looks for one."""
    with ChatServer(clerk) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none-is-needed")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(
    page: Path, provider: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page")  # dataclasses and pydantic look their module up
    monkeypatch.setitem(sys.modules, "page", module)
    text = page.read_text()
    for block in BLOCK.finditer(text):
        code, before = block[1], text.count("\n", 0, block.start(1))
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile("\n" * before + code, str(page), "exec"), module.__dict__)
        assert printed.getvalue().splitlines() == said(code), f"{name_of(page)}, block at line {before + 1}"


@pytest.mark.parametrize("app", ["slack", "discord", "teams", "telegram", "webhooks", "email"])
def test_the_program_of_a_page_about_a_chat_can_be_restarted_and_run_twice(
    app: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands of the page come first, and its program is imported by each of its processes."""
    page = (ROOT / "docs" / f"chat-{app}.md").read_text()
    program, _, rest = page.partition("\nStart the web application")
    monkeypatch.chdir(tmp_path)
    for command in re.findall(r"^\$ phronomy (people add (?:.*\\\n)*.*)", program, re.MULTILINE):
        assert run([*shlex.split(command.replace("\\\n", "")), "--store", "sqlite:///runs.db"]) == DONE
    Path("desk.py").write_text("".join(BLOCK.findall(program)))
    assert "$ uvicorn desk:web" in rest and "$ phronomy work --app desk:agent" in rest
    desks = [started(tmp_path / "desk.py", name) for name in ("web", "web_again")]
    for desk in desks:
        with Runner() as loop:
            lifespan = desk.web.router.lifespan_context(desk.web)
            loop.run(lifespan.__aenter__())
            assert "phronomy-chat" in [thread.name for thread in threading.enumerate()]
            loop.run(lifespan.__aexit__(None, None, None))
    assert run(["work", "--app", "desk:agent", "--once"]) == DONE, capsys.readouterr().err
    for desk in [*desks, sys.modules["desk"]]:
        assert desk.people.get("rita") is not None
        desk.store.close()
        desk.fake.close()


def started(file: Path, name: str) -> Any:
    """The module of a program, as a process of its own would import it."""
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_with_code_are_run() -> None:
    """A fence that is written otherwise would be left out in silence."""
    for page in PAGES:
        # A program of a file stands under its name, and runs in the tests of the page.
        titled = re.findall(r'^```python title="\S+"$', page.read_text(), re.MULTILINE)
        assert not titled or page.name == "inbox-login.md"
        fences = re.findall(r"^ *```+ *(\S*)", page.read_text(), re.MULTILINE)
        code = [kind for kind in fences if kind.lower().startswith("py")]
        assert len(code) - len(titled) == len(BLOCK.findall(page.read_text()))
        assert set(fences) <= {"", "python", "text", "console", "mermaid"}, name_of(page)


@each("page", PAGES, ids=name_of)
def test_no_line_of_code_is_wider_than_80_columns(page: Path) -> None:
    """A drawing is as wide as it is generated, and a line that a command prints as wide as that prints it."""
    for kind, block in re.findall(r"^```(\S*)(?: title=\S+)?\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        printed = kind == "console" and block.startswith("$ ")
        lines = [line for line in block.splitlines() if line.startswith("$ ") or not printed]
        assert kind == "mermaid" or "flowchart" in block or [line for line in lines if len(line) > 80] == []


@each("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if re.match(r"https?://|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.is_relative_to(ROOT), f"{name_of(page)} links out of the project: {target}"
        assert found.exists(), f"{name_of(page)} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(found), f"{name_of(page)} links to {target}, which has no such heading"


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = HEADING.findall(prose(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_linked_from_the_index() -> None:
    linked = LINK.findall((ROOT / "docs" / "index.md").read_text())
    missing = {page.name for page in PAGES if page.parent == ROOT / "docs"} - {*linked, "index.md"}
    assert not missing


@each("name", phronomy.__all__)
def test_every_public_name_is_in_the_docs(name: str) -> None:
    pages = "\n".join(page.read_text() for page in PAGES if page.parent == ROOT / "docs")
    assert re.search(rf"\b{name}\b", pages), f"no page under docs mentions {name}"


def test_the_error_tree_of_the_page_is_that_of_the_code() -> None:
    tree = tree_in(inspect.cleandoc(errors.__doc__ or ""))
    assert tree_in((ROOT / "docs" / "errors.md").read_text()) == [re.split(r"(?<=\w)  +", line)[0] for line in tree]
    assert parents(tree) == {
        name: value.__base__.__name__
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.PhronomyError)
    }


def tree_in(text: str) -> list[str]:
    """The lines of the tree in a text, without what stands around it."""
    lines = inspect.cleandoc("\n" + text).splitlines()
    first = next(n for n, line in enumerate(lines) if line.strip() == "PhronomyError")
    drawn = [line for line in lines[first + 1 :] if re.match(r" *[├└│]", line)]
    return ["PhronomyError", *(line.strip() for line in drawn)]


def parents(tree: list[str]) -> dict[str, str]:
    """The class over each class of a tree that is drawn four columns a level."""
    found, open_at = {tree[0]: "Exception"}, {0: tree[0]}
    for line in tree[1:]:
        name = re.search(r"\w+", line)
        assert name is not None
        level = name.start() // 4
        found[name[0]] = open_at[level - 1]
        open_at[level] = name[0]
    return found


def test_each_law_is_stated_with_its_limits_and_the_test_that_pins_it() -> None:
    laws = re.split(r"^## (\d+)\. ", GUARANTEES.read_text(), flags=re.MULTILINE)[1:]
    assert laws[::2] == [str(number) for number in range(1, 17)]
    for number, law in zip(laws[::2], laws[1::2], strict=True):
        stated = law.partition("\n## ")[0]
        for part in ("**Promise.**", "**How.**", "**Limits.**", "**Pinned by**"):
            assert part in stated, f"law {number} has no {part}"
        files = re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)`", stated.partition("**Pinned by**")[2])
        assert files, f"law {number} names no test"
        for file in files:
            assert (ROOT / file).exists(), f"law {number} names {file}, which is not there"


def test_the_customers_words_are_no_instructions_in_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What people copy first: the model is given the customer's text as the user's message, and as that alone."""
    desk, calls = BLOCK.findall((ROOT / "README.md").read_text())
    code = desk.replace('model="openai/gpt-4o-mini"', "model=model") + calls
    assert code != desk + calls
    model = ScriptedModel.by_turn([call("refund", {"order_id": 1042, "amount": 49.9}), "Done."])
    monkeypatch.chdir(tmp_path)
    with redirect_stdout(io.StringIO()):
        exec(code, {"model": model})
    assert {request.system for request in model.requests} == {"You work at a refund desk. Refund what is asked for."}
    assert {request.messages[0].text for request in model.requests} == {"Please refund 49.90 euros for order 1042"}


def test_the_readme_gives_the_two_commands_word_for_word() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert "pip install . && phronomy demo" in lines
    assert "pip install nox && nox -j 2" in lines
    assert "pip install nox && nox -j 2" in (ROOT / ".ci" / "run").read_text()
