"""Each chore is a session: `nox` runs all, `nox -s tests` one, `nox -s tests -- tests/test_agent.py` a part of one."""

import os
import shutil
from pathlib import Path

import nox

nox.options.sessions = ["lint", "types", "smoke", "docs", "tests"]
nox.options.error_on_missing_interpreters = True

PROJECT = nox.project.load_toml("pyproject.toml")

# The files whose every branch is tested: what they get wrong runs a tool twice, or without approval.
CORE = ",".join(
    f"phronomy/{name}.py"
    for name in (
        *("_rules", "_texts", "_chain", "_gate", "_drive", "_perform", "_nested"),
        *("_judge", "_guard", "_guarding", "_stops"),
        *("_answers", "_rows", "_shown", "interrupts", "checkpoint"),
    )
)

# What starts processes by the hundred, and what tells whole stories of what others test piece by piece, is not measured: that would
# take most of the time, and reaches nothing new.
UNMEASURED = sorted(
    str(path)
    for pattern in (
        *(
            "stories/test_*",
            "test_failures_[!o]*",
            "test_directive*",
            "test_uipath",
            "test_graph_eino",
            "test_*_article",
        ),
        *(
            "test_canary*",
            "test_cli_debug",
            "test_cli_terminal",
            "test_crash",
            "test_demo",
            "test_docs",
            "test_examples",
        ),
        *(
            "test_graph_machine",
            "test_graph_properties",
            "test_mcp",
            "test_site",
            "test_stops_killed",
            "test_store_races",
        ),
    )
    for path in Path("tests").glob(f"{pattern}.py")
)

# What is heavy and not always needed loads on use, never on `import phronomy`.
HEAVY = [
    *("aiohttp", "docstring_parser", "httpx", "httpx_sse", "jsonschema", "litellm", "mcp", "openai"),
    *("opentelemetry", "psycopg", "redis", "rich", "simpleeval", "sqlite3", "tenacity", "typer"),
]
LOADS_NOTHING_HEAVY = f"""
import sys, phronomy
heavy = sorted(set({HEAVY}) & set(sys.modules))
sys.exit(f"import phronomy loads {{', '.join(heavy)}}" if heavy else 0)
"""

# What each way through the demo must say.
DEMO = {"--yes": "approved", "--no": "rejected"}


def group(name: str) -> tuple[str, ...]:
    """The requirements of a dependency group."""
    return nox.project.dependency_groups(PROJECT, name)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format."""
    session.install(*group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types, with both checkers."""
    session.install("-e", ".", *group("types"))
    session.run("mypy")
    session.run("pyright", "--warnings", env={"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"})


@nox.session
def smoke(session: nox.Session) -> None:
    """Install the wheel where nothing else is, and use it as its first user does."""
    home = Path(session.create_tmp()).resolve() / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    session.run("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(home), ".")
    session.install(str(next(home.glob("phronomy-*.whl"))))
    session.run("python", "-I", "-c", LOADS_NOTHING_HEAVY)
    session.run("python", "-I", "-c", "from phronomy import *")  # every public name is there without the extras
    session.run("python", "benchmarks/import_cost.py")
    with session.chdir(home):
        for answer, word in DEMO.items():
            output = str(session.run("phronomy", "demo", answer, silent=True, env={"HOME": str(home)}))
            session.log(output)
            if word not in output.lower():
                session.error(f"phronomy demo {answer} must say {word!r}")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site, strictly, and check that it loads nothing from elsewhere."""
    session.install("-e", ".", *group("docs"))
    session.run("python", "docs/build.py", str(Path(session.create_tmp()).resolve() / "site"))


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests; without arguments, measure what they reach."""
    session.install("-e", ".", *group("test"))
    if session.posargs:
        session.run("pytest", *session.posargs)
        return
    session.run("coverage", "erase")
    # Most of the time goes by waiting for disks and servers, so there are more workers than processors.
    workers = f"--numprocesses={2 * (os.cpu_count() or 1)}"
    session.run("pytest", workers, *UNMEASURED)
    session.run("coverage", "run", "-m", "pytest", workers, *(f"--ignore={path}" for path in UNMEASURED))
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report")
    session.run("coverage", "report", f"--omit={CORE}", "--format=total")
    session.run("coverage", "report", f"--include={CORE}", "--fail-under=100")
