"""Builds the site: `python docs/build.py FOLDER` makes FOLDER/site, strictly; its reference must be whole, it must load nothing
from elsewhere, and its search must find what people ask.

The pages are laid out as they lie in a checkout, so that a link leads to the same place here and there. Two things are made:
each example becomes a page with its code, and the reference, with every public name.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import reference
import search

from phronomy.drawing import flow_svg

ROOT = Path(__file__).parents[1]

PROJECT = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
"""The pages beside the README."""


def lay_out(folder: Path) -> None:
    """Write the pages of the site, and its settings, into `folder`."""
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copy(ROOT / "zensical.toml", _made(folder / "zensical.toml"))
    shutil.copy(ROOT / "LICENSE", _made(pages / "LICENSE.txt"))
    _made(pages / "index.md").write_text(as_on_site((ROOT / "README.md").read_text()))
    for source in [*(ROOT / name for name in PROJECT), *sorted((ROOT / "docs").glob("*.md"))]:
        page = _made(pages / source.relative_to(ROOT))
        page.write_text(drawn(page, as_on_site(source.read_text())))
    with (pages / "docs" / "reference.md").open("a") as listed:
        listed.write(reference.index())
    for name, text in reference.pages().items():
        _made(pages / "docs" / "reference" / f"{name}.md").write_text(text)
    shutil.copy(ROOT / "docs" / "site.css", pages / "site.css")
    shutil.copytree(ROOT / "docs" / "images", pages / "docs" / "images")
    home = ROOT / "examples"
    examples = {each.relative_to(home).with_suffix(""): each for each in sorted(home.rglob("*.py"))}
    for place, example in examples.items():
        page = f"# {example.name}\n\n```python\n{example.read_text()}```\n"
        _made(pages / "examples" / f"{place}.md").write_text(page)
    links = "".join(f"- [{place}.py]({place}.md): {line_of(example)}\n" for place, example in examples.items())
    (pages / "examples" / "index.md").write_text(f"# Examples\n\nEach is a program that runs by itself.\n\n{links}")
    (pages / "examples" / "deployment" / "files.md").write_text(files_to_copy(home / "deployment"))


LANGUAGES = {"Dockerfile": "dockerfile", ".yaml": "yaml", ".service": "ini"}


def files_to_copy(folder: Path) -> str:
    """The page of the files beside the example there, each with its text."""
    parts = ["# Files for a deployment\n", "They are of one small app, [`refunds.py`](refunds.md).\n"]
    for file in sorted(each for each in folder.iterdir() if each.is_file() and each.suffix != ".py"):
        language = LANGUAGES.get(file.suffix or file.name, "text")
        parts.append(f"## {file.name} {{ #{anchor(file.name)} }}\n\n```{language}\n{file.read_text()}```\n")
    return "\n".join(parts)


def anchor(name: str) -> str:
    """Where a file is on that page."""
    return re.sub(r"\W+", "-", name).strip("-").lower()


def line_of(example: Path) -> str:
    """What an example is about: the first line of its docstring."""
    return (ast.get_docstring(ast.parse(example.read_text())) or "").partition("\n")[0]


def as_on_site(text: str) -> str:
    """A page with its links as the site has them: the README is its first page, and an example is a page."""
    text = re.sub(r"\]\(((?:\.\./)?)README\.md", r"](\1index.md", text)
    text = re.sub(r"\]\(((?:\.\./)?)LICENSE\)", r"](\1LICENSE.txt)", text)
    text = re.sub(r"\]\(((?:\.\./)?examples)\)", r"](\1/index.md)", text)
    text = re.sub(r"\]\(((?:\.\./)?examples/[\w/]+)\.py\)", r"](\1.md)", text)
    deployment = r"\]\(((?:\.\./)?examples/deployment)/([\w.-]*)\)"
    return re.sub(
        deployment,
        lambda found: f"]({found[1]}/files.md#{anchor(found[2])})" if not found[2].endswith(".md") else found[0],
        text,
    )


PLAIN_ARROWS = re.compile(r"```mermaid\nflowchart TD\n((?: +\w+ --> \w+\n)+)```")


def drawn(page: Path, text: str) -> str:
    """The text of a page, with an SVG beside it in place of a drawing of plain arrows: a browser shows no Mermaid by itself, and
    what draws Mermaid would be loaded from elsewhere."""
    if not (found := PLAIN_ARROWS.search(text)):
        return text
    arrows = re.findall(r"(\w+) --> (\w+)", found[1])
    names = list(dict.fromkeys(name for arrow in arrows for name in arrow))
    page.with_suffix(".svg").write_text(flow_svg(names, [(source, target, None, False) for source, target in arrows]))
    return text.replace(found[0], f"![The drawing: which room imports from which]({page.stem}.svg){{ .drawing }}")


def finish(folder: Path) -> None:
    """Have each name in the reference lead to where it is told of, once all of them are told of."""
    paths = {name: folder / name / "index.html" for name in reference.PAGES}
    built = {name: path.read_text() for name, path in paths.items()}
    if missing := reference.missing(built):
        sys.exit("The reference does not tell of these; have they a docstring?\n" + "\n".join(missing))
    for name, text in reference.finished(built).items():
        paths[name].write_text(text)


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
    finish(folder / "site" / "docs" / "reference")
    if found := from_elsewhere(folder / "site"):
        sys.exit("The site loads from elsewhere:\n" + "\n".join(found))
    search.rearrange(folder / "site", (folder / "zensical.toml").read_text())
    if missed := search.unanswered(folder / "site"):
        sys.exit("The search does not find these:\n" + "\n".join(missed))
    sys.stdout.write(f"{len(list((folder / 'site').rglob('*.html')))} pages in {folder / 'site'}\n")


if __name__ == "__main__":
    main()
