"""The site and the pages that are no page of a noun: laid out whole, linked, sourced, and loading nothing from elsewhere.

That the site builds, strictly, is the `docs` session of nox: the tool that builds it is not among the requirements of the tests.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import pkgutil
import re
import runpy
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import phronomy

pytestmark = pytest.mark.unmeasured

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^()\s]+)\)")


def loaded(name: str) -> ModuleType:
    """A module of `docs`, which is a folder of programs and no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        patch.setitem(sys.modules, name, module)  # where its data classes look for it
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def build() -> ModuleType:
    return loaded("build")


@pytest.fixture(scope="module")
def reference(build: ModuleType) -> ModuleType:
    module: ModuleType = build.reference
    return module


@pytest.fixture(scope="module")
def pages(build: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of the site, laid out."""
    folder = tmp_path_factory.mktemp("site")
    build.lay_out(folder)
    assert (folder / "zensical.toml").read_text() == (ROOT / "zensical.toml").read_text()
    return folder / "pages"


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def named_in(nav: Any) -> list[str]:
    """The pages that a navigation names, in order."""
    if isinstance(nav, str):
        return [nav]
    if isinstance(nav, dict):
        return named_in(list(nav.values()))
    return [page for part in nav for page in named_in(part)]


def test_the_navigation_names_every_page_once(pages: Path) -> None:
    named = named_in(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    written = {page.relative_to(pages).as_posix() for page in pages.rglob("*.md")}
    assert len(named) == len(set(named))
    assert set(named) == written, "name it in zensical.toml, and in docs/index.md"


def test_each_example_is_listed_with_a_line_that_says_what_it_is(pages: Path) -> None:
    listed = re.findall(
        r"^- \[(\w+)\.py\]\(\1\.md\): .+\.$", (pages / "examples" / "index.md").read_text(), re.MULTILINE
    )
    assert listed == sorted(example.stem for example in (ROOT / "examples").glob("*.py"))


def test_every_link_of_the_laid_out_pages_leads_to_one_of_them(pages: Path) -> None:
    for page in pages.rglob("*.md"):
        for target in LINK.findall(without_code(page.read_text())):
            if not re.match(r"https?://|#", target):
                path = (page.parent / target.partition("#")[0]).resolve()
                assert path.is_file() and path.is_relative_to(pages), f"{page.relative_to(pages)} links to {target}"


def test_an_example_is_a_page_with_its_code(pages: Path) -> None:
    for example in (ROOT / "examples").glob("*.py"):
        assert f"```python\n{example.read_text()}```" in (pages / "examples" / f"{example.stem}.md").read_text()


def test_the_files_to_copy_are_one_page_with_an_anchor_for_each(pages: Path) -> None:
    text = (pages / "examples" / "deployment" / "files.md").read_text()
    for file in (ROOT / "examples" / "deployment").iterdir():
        assert file.is_dir() or file.suffix == ".py" or file.read_text() in text, file.name
    deployment = (pages / "docs" / "deployment.md").read_text()
    led = re.findall(r"\(\.\./examples/deployment/files\.md#([\w-]+)\)", deployment)
    assert sorted(led) == sorted(re.findall(r"^## \S+ \{ #([\w-]+) \}$", text, re.MULTILINE))


# The reference


def test_the_reference_has_every_public_name_once_and_where_it_is_written(pages: Path, reference: ModuleType) -> None:
    assert [page.stem for page in (pages / "docs" / "reference").iterdir() if page.stem not in reference.PAGES] == []
    paths = [
        path
        for page in reference.PAGES
        for path in re.findall(r"^::: (\S+)$", (pages / "docs" / "reference" / f"{page}.md").read_text(), re.MULTILINE)
    ]
    assert len(paths) == len(set(paths))
    public = {
        id(getattr(import_module(module), name))
        for module in reference.MODULES
        for name in import_module(module).__all__
    }
    told = {id(getattr(import_module(path.rpartition(".")[0]), path.rpartition(".")[2])) for path in paths}
    assert public <= told
    for path in paths:
        module, _, name = path.rpartition(".")
        tree = ast.parse(Path(str(import_module(module).__file__)).read_text())
        top = [*tree.body, *(inner for node in tree.body if isinstance(node, ast.If) for inner in node.body)]
        written = {node.name for node in top if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        written |= {
            target.id
            for node in top
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        written |= {
            node.target.id for node in top if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
        assert name in written, f"{path} is not written down there"


ALSO = ("phronomy.approvals", "phronomy.checkpoint", "phronomy.guardrails", "phronomy.messages", "phronomy.types")
"""Modules that offer names which the reference tells of elsewhere."""


def test_the_page_on_architecture_draws_the_rooms_as_they_are() -> None:
    drawn = runpy.run_path(str(DOCS / "rooms.py"))
    assert drawn["PAGE"].read_text() == drawn["page"](), "out of date: run `python docs/rooms.py`"
    told = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", drawn["PAGE"].read_text()))
    assert len(told) > 20
    package = Path(phronomy.__path__[0])
    assert [path for path in told if not (package / path.removeprefix("phronomy/")).exists()] == []


def test_the_reference_is_of_every_module_that_says_what_it_offers(reference: ModuleType) -> None:
    offering = {
        info.name
        for info in pkgutil.walk_packages(phronomy.__path__, "phronomy.")
        if "._" not in info.name
        and not info.name.startswith(("phronomy.cli", "phronomy.testing.", "phronomy.__main__"))
        if hasattr(import_module(info.name), "__all__")
    }
    assert {"phronomy", *offering} == {*reference.MODULES, *ALSO}
    versions = (DOCS / "versioning.md").read_text()
    assert [module for module in (*reference.MODULES, *ALSO) if f"`{module}`" not in versions] == []


def test_a_method_from_a_base_that_is_not_public_is_told_of_where_it_is_used(reference: ModuleType) -> None:
    wanted = {path for paths in reference.wanted().values() for path in paths}
    for owner in ("phronomy.agents.agent.Agent", "phronomy.graph.flow.graph.Graph"):
        assert {
            f"{owner}.{name}" for name in ("invoke", "ainvoke", "resume", "stream", "recover_all", "spec")
        } <= wanted
    assert "phronomy.graph.flow.graph.Graph.pause" in wanted
    assert "phronomy.teams.orchestrator.Orchestrator.run" in wanted
    assert "phronomy.teams.orchestrator.Orchestrator.invoke" not in wanted  # `Graph` tells of it
    assert not [path for path in wanted if ".test_" in path or path.rpartition(".")[2].startswith("__")]
    inherited = re.search(
        r"::: phronomy\.agents\.agent\.Agent\n    options:\n.*inherited_members: (.*)", reference.pages()["agent"]
    )
    assert inherited is not None and "ainvoke" in inherited[1]


def test_what_the_reference_does_not_tell_of_is_found(reference: ModuleType) -> None:
    wanted = reference.wanted()
    built = {page: "".join(f'<h3 id="{path}">x</h3>' for path in paths) for page, paths in wanted.items()}
    assert reference.missing(built) == []
    lost = 'id="phronomy.agents.agent.Agent.ainvoke"'
    assert lost in built["agent"]
    assert reference.missing(built | {"agent": built["agent"].replace(lost, "")}) == [
        "phronomy.agents.agent.Agent.ainvoke"
    ]


@pytest.mark.parametrize(
    ("here", "said", "led"),
    [
        ("phronomy.agents.agent.Agent.ainvoke", "invoke", "agent/#phronomy.agents.agent.Agent.invoke"),
        ("phronomy.agents.agent.Agent.ainvoke", "RunFailed", "errors/#phronomy.errors.RunFailed"),
        ("phronomy.agents.agent.Agent.invoke", "label", None),  # a parameter
        ("phronomy.agents.agent.Agent.invoke", "invoke", None),  # itself
        ("phronomy.agents.agent.Agent.invoke", "nothing", None),
        ("phronomy.teams.orchestrator.Orchestrator.run", "invoke", "graph/#phronomy.graph.flow.graph.Graph.invoke"),
        (
            "phronomy.graph.flow.graph.Graph",
            "StateGraph.compile",
            "graph/#phronomy.graph.flow.graph.StateGraph.compile",
        ),
        ("phronomy.graph.flow.graph.Graph", "StateGraph.nothing", None),
    ],
)
def test_a_name_in_a_docstring_leads_to_where_it_is_told_of(
    reference: ModuleType, here: str, said: str, led: str | None
) -> None:
    built = {page: "".join(f'<h3 id="{path}">x</h3>' for path in paths) for page, paths in reference.wanted().items()}
    text = f'<article><h4 id="{here}">x</h4><p>As <code>{said}</code>.</p><pre><code>{said}</code></pre>'
    finished = reference.finished(built | {"new": text})["new"]
    link = (
        f'<a class="autorefs autorefs-internal" href="../{led}"><code>{said}</code></a>'
        if led
        else f"<code>{said}</code>"
    )
    assert finished == text.replace(f"As <code>{said}</code>", f"As {link}")


@pytest.mark.parametrize(
    ("html", "left"),
    [
        (
            '<p class="doc doc-class-bases">Bases: <code><span title="phronomy.runs.runs.Runs">Runs</span></code></p>x',
            "x",
        ),
        ('<small class="doc doc-label doc-label-class-attribute"><code>class-attribute</code></small>x', "x"),
        (
            '<pre><code>store <span class="o">=</span> <span title="phronomy.agents.agent.Agent(self)">self</span>\n</code></pre>',
            "<pre><code>store\n</code></pre>",
        ),
    ],
)
def test_what_says_nothing_to_a_reader_is_left_out(reference: ModuleType, html: str, left: str) -> None:
    assert reference.finished({"new": f"<article>{html}"}) == {"new": f"<article>{left}"}


# The search


def entry(location: str, title: str, *path: str, level: int = 3, text: str = "<p>x</p>") -> dict[str, Any]:
    """A part of the index, as the tool writes it that builds the site."""
    return {"location": location, "title": title, "path": list(path), "level": level, "text": text, "tags": []}


def test_the_search_has_the_words_of_people_and_pages_before_the_reference(build: ModuleType) -> None:
    worker = "docs/reference/workers/#phronomy.workers.worker"
    tagged = "timeout <small><code>class-attribute</code></small>"
    index = [
        entry("docs/reference/agent/", "Agents", "Reference", "Agents", level=1, text=""),
        entry(f"{worker}.Worker", "Worker", "Reference", "Workers"),
        entry(f"{worker}.Worker.timeout", tagged, "Reference", "Workers", level=4),
        entry("docs/reference/graph/#phronomy.graph.flow.graph.StateGraph", "StateGraph", "Reference", "Graphs"),
        entry("docs/deployment/", "Deployment", "Running it", level=1),
        entry("docs/deployment/#leases", "Leases", "Running it", level=2),
    ]
    arranged = build.search.arranged(index, {"docs/deployment/": ["Docker, systemd"]})
    assert arranged == [
        entry("docs/deployment/", "Deployment", "Running it", "Docker, systemd", level=1),
        entry("docs/deployment/#leases", "Leases", "Running it", level=2),
        entry("docs/reference/agent/", "Reference", level=1, text="<p><code>Agents</code></p> "),
        entry(f"{worker}.Worker", "Reference", text="<p><code>Worker</code></p> <p>x</p>"),
        entry(f"{worker}.Worker.timeout", "Reference", level=4, text="<p><code>Worker.timeout</code></p> <p>x</p>"),
        entry("docs/reference/graph/#phronomy.graph.flow.graph.StateGraph", "StateGraph", "Reference"),
    ]
    with pytest.raises(ValueError, match="not there: docs/gone/"):
        build.search.arranged(index, {"docs/gone/": ["x"]})


def test_the_words_and_the_questions_of_the_search_are_of_pages_that_there_are(build: ModuleType, pages: Path) -> None:
    addresses = {re.sub(r"(index)?\.md$", "", page.relative_to(pages).as_posix()) + "/" for page in pages.rglob("*.md")}
    words = build.search.also_called((ROOT / "zensical.toml").read_text())
    assert set(words) <= addresses and {*build.search.QUESTIONS.values()} <= addresses
    assert len(build.search.QUESTIONS) >= 20


@pytest.mark.parametrize(("title", "found"), [("Docker", ["docs/deployment/"]), ("Leases", ["docs/other/"])])
def test_the_search_is_asked_as_a_browser_asks_it(
    build: ModuleType, tmp_path: Path, title: str, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here by a worker that answers with all that has the query as its title. That of the site is asked by `nox -s docs`."""
    workers = tmp_path / "assets" / "javascripts" / "workers"
    workers.mkdir(parents=True)
    (workers / "search.0.min.js").write_text(
        "let items; self.onmessage = ({data: {type, data}}) => {"
        "  if (type === 0) { items = data.items; self.postMessage({type: 1}); return; }"
        "  const ids = items.map((item, id) => ({id, title: item.title})).filter(item => item.title === data.input);"
        "  self.postMessage({type: 3, data: {items: ids}}); }"
    )
    index = [entry("docs/other/", "Leases"), entry("docs/deployment/", "Docker")]
    (tmp_path / "search.json").write_text(json.dumps({"config": {}, "items": index}))
    assert build.search.ask(tmp_path, [title]) == {title: found}
    monkeypatch.setattr(build.search, "QUESTIONS", {title: "docs/deployment/"})
    missed = [] if title == "Docker" else ["'Leases' does not find docs/deployment/, but docs/other/"]
    assert build.search.unanswered(tmp_path) == missed


# What the site loads


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ('<script src="https://cdn.example/x.js"></script>', ["https://cdn.example/x.js"]),
        ('<script src="//cdn.example/x.js"></script>', ["//cdn.example/x.js"]),
        ('<link rel="stylesheet" href="https://fonts.example/css">', ["https://fonts.example/css"]),
        ('<link rel="preconnect" href="https://fonts.example">', ["https://fonts.example"]),
        ('<img src="http://example/x.png">', ["http://example/x.png"]),
        ('<pre class="mermaid"><code></code></pre>', ["what draws a diagram"]),
        ('<link rel="canonical" href="https://example/page">', []),
        ('<a href="https://example/page">read</a> <script src="assets/x.js"></script>', []),
    ],
)
def test_what_a_page_loads_from_elsewhere_is_found(
    build: ModuleType, tmp_path: Path, html: str, found: list[str]
) -> None:
    (tmp_path / "index.html").write_text(html)
    assert build.from_elsewhere(tmp_path) == [f"index.html: {each}" for each in found]


def test_what_a_style_sheet_loads_from_elsewhere_is_found(build: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(
        "@import url('https://x.example/a.css'); b { background: url(data:image/png;base64,AA) }"
    )
    assert build.from_elsewhere(tmp_path) == ["a.css: https://x.example/a.css'"]


def test_each_threat_says_what_holds_which_test_pins_it_and_what_does_not() -> None:
    page = (DOCS / "threat-model.md").read_text()
    sections = re.split(r"^## (.+)$", page, flags=re.MULTILINE)[1:]
    threats = {
        title: text
        for title, text in zip(sections[::2], sections[1::2], strict=True)
        if re.search(r"\*\*\w+ can\*\*", text)
    }
    assert threats and len(threats) == page.count("**Pinned by**") == page.count("**What it does not do.**")
    for title, text in threats.items():
        places = [
            text.find(part) for part in (" can**", "**What holds.**", "**Pinned by**", "**What it does not do.**")
        ]
        assert -1 < places[0] < places[1] < places[2] < places[3], title
        pinned = re.findall(r"`(tests/\w+\.py)`", text[places[2] : places[3]])
        assert pinned, title
        for file in pinned:
            assert (ROOT / file).exists(), f"{title} names {file}, which is not there"


def test_the_comparison_is_dated_and_each_of_its_sources_is_listed_and_used() -> None:
    text, _, sources = (DOCS / "comparison.md").read_text().partition("\n## Sources\n")
    listed = re.findall(r"^- (\w+): \[[^]]+\]\(https://\S+\)", sources, re.MULTILINE)
    assert len(listed) == len(set(listed)) == len(re.findall(r"^- ", sources, re.MULTILINE))
    assert set(re.findall(r"\[\[(\w+)\]\]\(#sources\)", text)) == set(listed)
    assert re.search(r"^As of \d+ [A-Z]\w+ 20\d\d,", text, re.MULTILINE)


def test_the_changelog_is_kept() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    heads = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert heads[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", head) for head in heads[1:])
    assert len(heads) == 1 or heads[1].startswith(f"[{phronomy.__version__}]")
    parts = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert parts and set(parts) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_what_troubleshooting_quotes_is_said_by_the_code() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    symptoms = re.findall(r"^\| (.+?) \|", page, re.MULTILINE)[2:]
    quoted = {text for each in symptoms for text in re.findall("`([^`]+)`", each) if not text.startswith("phronomy ")}
    package = [file.read_text() for file in Path(phronomy.__path__[0]).rglob("*.py")]
    assert len(symptoms) > 10 and len(quoted) > 5
    assert [text for text in quoted if not any(text in source for source in package)] == []


def test_contributing_names_the_chores_that_there_are() -> None:
    tree = ast.parse((ROOT / "noxfile.py").read_text())
    sessions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list}
    told = re.findall(r"`nox -s (\w+)", (ROOT / "CONTRIBUTING.md").read_text())
    assert set(told) == sessions
