"""Builds the site: `python docs/build.py FOLDER` makes FOLDER/site, strictly, and checks that it loads nothing from elsewhere.

The pages are laid out as they lie in a checkout, so that a link leads to the same place here and there. Two things are made:
each example becomes a page with its code, and the reference is filled with every public name.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]

PROJECT = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
"""The pages beside the README."""

MODULES = ["phronomy", "phronomy.graph", "phronomy.testing"]
"""What the reference is of: every name in their `__all__`, once."""


def lay_out(folder: Path) -> None:
    """Write the pages of the site, and its settings, into `folder`."""
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copy(ROOT / "zensical.toml", _made(folder / "zensical.toml"))
    shutil.copy(ROOT / "LICENSE", _made(pages / "LICENSE.txt"))
    _made(pages / "index.md").write_text(as_on_site((ROOT / "README.md").read_text()))
    for source in [*(ROOT / name for name in PROJECT), *sorted((ROOT / "docs").glob("*.md"))]:
        _made(pages / source.relative_to(ROOT)).write_text(as_on_site(source.read_text()))
    with (pages / "docs" / "reference.md").open("a") as reference:
        reference.write(references())
    examples = sorted((ROOT / "examples").glob("*.py"))
    for example in examples:
        page = f"# {example.name}\n\n```python\n{example.read_text()}```\n"
        _made(pages / "examples" / f"{example.stem}.md").write_text(page)
    listed = "".join(f"- [{example.name}]({example.stem}.md)\n" for example in examples)
    (pages / "examples" / "index.md").write_text(f"# Examples\n\n{listed}")


def as_on_site(text: str) -> str:
    """A page with its links as the site has them: the README is its first page, and an example is a page."""
    text = re.sub(r"\]\(((?:\.\./)?)README\.md", r"](\1index.md", text)
    text = re.sub(r"\]\(((?:\.\./)?)LICENSE\)", r"](\1LICENSE.txt)", text)
    text = re.sub(r"\]\(((?:\.\./)?examples)\)", r"](\1/index.md)", text)
    return re.sub(r"\]\(((?:\.\./)?examples/\w+)\.py\)", r"](\1.md)", text)


def references() -> str:
    """The part of the reference that is made: every public name, by the module that it is imported from."""
    parts: list[str] = []
    for name in MODULES:
        module = import_module(name)
        found = [f"\n::: {home(module.__name__, each)}\n" for each in module.__all__]
        parts += [f"\n## {name}\n", *(each for each in found if each not in parts)]
    return "".join(parts)


def home(module: str, name: str) -> str:
    """Where a name that a module offers is written down, as a dotted path: imports are followed, those for type checkers too."""
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    for node in ast.walk(ast.parse(Path(spec.origin).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return home(node.module, name)
    return f"{module}.{name}"


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


class Loads(HTMLParser):
    """The addresses that a page loads, or says hello to, by itself; links that a reader may follow are not among them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        loads = given.get("src") or (given.get("href") if tag == "link" else None)
        if (
            loads is not None
            and re.match(r"(https?:)?//", loads)
            and given.get("rel") not in ("canonical", "next", "prev")
        ):
            self.found.append(loads)
        if "mermaid" in (given.get("class") or "").split():
            self.found.append("what draws a diagram")


def loads(text: str) -> list[str]:
    """What a page of HTML loads from elsewhere."""
    reader = Loads()
    reader.feed(text)
    return reader.found


def from_elsewhere(site: Path) -> list[str]:
    """Every page and style sheet that loads something from elsewhere, with what."""
    found = [
        f"{page.relative_to(site)}: {each}" for page in sorted(site.rglob("*.html")) for each in loads(page.read_text())
    ]
    for sheet in sorted(site.rglob("*.css")):
        found += [
            f"{sheet.relative_to(site)}: {each}"
            for each in re.findall(r"url\([\"']?((?:https?:)?//[^)]+)", sheet.read_text())
        ]
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    lay_out(folder)
    shutil.rmtree(folder / "site", ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--clean",
        "--strict",
        "--config-file",
        str(folder / "zensical.toml"),
    ]
    built = subprocess.run(command, check=False)  # noqa: S603  (this interpreter, and a folder that the caller names)
    if built.returncode != 0:
        sys.exit(built.returncode)
    if found := from_elsewhere(folder / "site"):
        sys.exit("The site loads from elsewhere:\n" + "\n".join(found))
    sys.stdout.write(f"{len(list((folder / 'site').rglob('*.html')))} pages in {folder / 'site'}\n")


if __name__ == "__main__":
    main()
