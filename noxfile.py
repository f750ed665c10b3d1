"""Each chore is a session: `nox -j 2` runs those that must pass, `nox -s tests` one, `nox -s tests -- tests/test_gate.py` a part.

With `-j` those that leave a processor idle run side by side, and the tests by themselves.
"""

import os
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2026.10.20"  # for `-j`
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

# Much of the time goes by waiting for servers and other processes, so there are more workers than processors.
WORKERS = (f"--numprocesses={2 * (os.cpu_count() or 1)}", "--dist=worksteal")

# What each way through the demo must say.
DEMO = {"--yes": "approved", "--no": "rejected"}


def group(name: str) -> tuple[str, ...]:
    """The requirements of a dependency group."""
    return nox.project.dependency_groups(PROJECT, name)


@nox.session(allow_parallel=True)
def lint(session: nox.Session) -> None:
    """Check style and format."""
    session.install(*group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(allow_parallel=True)
def types(session: nox.Session) -> None:
    """Check types, with both checkers."""
    session.install("-e", ".", *group("types"))
    session.run("mypy")
    session.run("pyright", "--warnings", env={"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"})


@nox.session(allow_parallel=True)
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


@nox.session(allow_parallel=True)
def docs(session: nox.Session) -> None:
    """Build the site, strictly, and check that it loads nothing from elsewhere."""
    session.install("-e", ".", *group("docs"))
    session.run("python", "docs/build.py", str(Path(session.create_tmp()).resolve() / "site"))


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests: each once for each of its values, going round the drivers and stores."""
    install_tests(session)
    session.run("pytest", *(session.posargs or [*WORKERS, "--durations=20"]))


@nox.session(default=False)
def sweep(session: nox.Session) -> None:
    """Run every test with every driver on every store, every kill and race, and measure what they reach."""
    install_tests(session)
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", "--sweep", *WORKERS, "--durations=20")
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report")
    session.run("coverage", "report", f"--omit={CORE}", "--format=total")
    session.run("coverage", "report", f"--include={CORE}", "--fail-under=100")


@nox.session(default=False)
def mutants(session: nox.Session) -> None:
    """Break copies of the project by hand, and say which breaks the tests see."""
    install_tests(session)
    session.run("python", "tests/mutants.py", *(session.posargs or ["run"]))


def install_tests(session: nox.Session) -> None:
    """Install the project and what its tests need. What they start is compiled once, whatever the environment says."""
    session.install("-e", ".", *group("test"))
    session.env["PYTHONDONTWRITEBYTECODE"] = ""
