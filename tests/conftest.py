"""What all tests have: which of them run, what they share, both drivers, the stores that need no server, and what was counted."""

import contextlib
import gc
import importlib
import inspect
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from itertools import takewhile
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import shared
from drivers import DRIVERS, STORES, Driver, open_kind
from hypothesis import HealthCheck, settings
from selection import begin_sweep, chosen, rest, scaled, share

from phronomy import SQLiteStore
from phronomy.models import litellm
from phronomy.stores.base import Store

REPEATABLE: dict[str, Any] = (
    {"derandomize": True, "suppress_health_check": [HealthCheck.too_slow]} if os.environ.get("CI") == "true" else {}
)
"""Where nobody looks, the same examples are tried each time, at any speed of the machine; elsewhere others each time."""

LONG = (
    *(
        "test_stress_outside",
        "test_stress",
        "test_crash",
        "test_graph_properties",
        "test_store_races",
        "test_store_machine",
    ),
    *("test_properties", "test_reasoning_resumed", "test_a_team_of_four", "test_log"),
)
"""Files with tests that take long: they kill processes, or search."""


MEASURED = frozenset(Path(__file__).with_name("measured.txt").read_text().split())
"""Files whose tests, as they run by default, reach all of the core between them. `nox -s sweep` by itself measures all tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--sweep` runs every test in every world."""
    parser.addoption(
        "--sweep", action="store_true", help="run every test with every driver and store, and the long ones"
    )
    parser.addoption(
        "--rest", action="store_true", help="with --sweep: without what a run by default has done to the full"
    )
    parser.addoption(
        "--share", default="1/1", metavar="NUMBER/OF", help="with --rest: only this share of it, such as 2/4"
    )
    parser.addoption(
        "--measure-core",
        action="store_true",
        help="measure the tests alone that reach all of the core, the others at full speed",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[Any]:
    """The workers share out the files that are to be compiled: each would compile all of them, which takes longer than to read them.

    What the modules import is measured; what pytest makes of them is not. No garbage is collected meanwhile: most of what
    is made is kept, and to look at it again and again takes a quarter of the time.
    """
    gc.disable()
    try:
        worker = getattr(session.config, "workerinput", None)
        if worker is None or session.config.args != session.config.getini("testpaths"):
            return (yield)
        names = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py"))
        number, all_of_them = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
        import_each(names[number::all_of_them])
        shared.wait_for_all("compiled", all_of_them)
        import_each(names)
        with unmeasured():
            return (yield)
    finally:
        gc.enable()


def import_each(names: Iterable[str]) -> None:
    """Import these modules, as far as they can be: collection says what is wrong with the others."""
    for name in names:
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


@contextlib.contextmanager
def unmeasured() -> Iterator[None]:
    """What goes on meanwhile is not measured."""
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    if not type(tracer).__module__.startswith("coverage"):
        yield
        return
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    try:
        yield
    finally:
        threading.settrace(of_threads)  # type: ignore[arg-type]
        sys.settrace(tracer)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only the sweep runs, unless single tests were named."""
    items.sort(key=lambda item: item.path.stem not in LONG)  # begun first, or one of them runs alone in the end
    if config.getoption("sweep") and not config.getoption("rest"):
        return
    if any("::" in each for each in config.args):
        return
    kept = share(rest(items), *share_of(config)) if config.getoption("sweep") else chosen(items)
    left = set(items) - set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = kept


def share_of(config: pytest.Config) -> tuple[int, int]:
    """The number of the share that is wanted, and how many there are."""
    number, _, of = str(config.getoption("share")).partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise pytest.UsageError("--share is a number and how many there are, such as 2/4")
    return int(number), int(of)


def pytest_collection_finish() -> None:
    """What is there before the first test stays: no collection of garbage looks at it again, and many tests ask for one."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """What is marked `unmeasured` is not, nor is what `--measure-core` leaves out: they reach nothing that other tests do not."""
    left_out = item.config.getoption("measure_core") and item.path.stem not in MEASURED
    if not left_out and item.get_closest_marker("unmeasured") is None:
        return (yield)
    with unmeasured():
        return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Whoever begins the run makes what its workers share. How much is tried is known before a test is read."""
    if config.getoption("sweep"):
        begin_sweep()
    settings.register_profile("tests", deadline=None, max_examples=scaled(30, sweep=100), **REPEATABLE)
    settings.load_profile("tests")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shared.begin()
        if config.getoption("numprocesses", None):  # it only hands the tests out
            measuring = contextlib.ExitStack()
            measuring.enter_context(unmeasured())
            config.add_cleanup(measuring.close)
    if "PYTEST_XDIST_WORKER" in os.environ or not config.getoption("numprocesses", None):
        os.environ.pop("COVERAGE_PROCESS_CONFIG", None)  # the processes that tests start are not measured


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_is_heard() -> Iterator[None]:
    """Here, and in what a test starts: a shell has its background jobs ignore SIGINT, and they pass that on."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def nothing_waits_for_the_disk(request: pytest.FixtureRequest) -> Iterator[None]:
    """Files of SQLite are not flushed to the disk by default, unless the test is marked `durable`: no other cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("durable") is None:
            patch.setitem(SQLiteStore.__init__.__kwdefaults__, "synchronous", "OFF")
        yield


@pytest.fixture
def own_postgres() -> Iterator[Any]:
    """A PostgreSQL server that the test may kill."""
    from servers import own_server

    with own_server() as server:
        yield server


@pytest.fixture(scope="module")
def fresh_fork_server(request: pytest.FixtureRequest) -> None:
    """The next process to be forked comes from a new server, which has imported what the test's processes need: `FORKED` names files.

    One that runs already has imported what the first test needed: each process would import the rest for itself. On Python 3.11
    a server does not look where these tests are, and passes in silence over what it does not find.
    """
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    if (forked := getattr(request.module, "FORKED", None)) is not None:
        forkserver.set_forkserver_preload(forked)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
            forkserver.ensure_running()


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each of the two drivers."""
    found: Driver = request.param
    return found


@pytest.fixture(params=[*STORES, pytest.param("key-value", marks=pytest.mark.sweep)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind that needs no server."""
    with open_kind(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A place for stores of each kind."""
    from places import place_of

    with place_of(request.param, tmp_path) as found:
        yield found


@pytest.fixture(autouse=True)
def programs_of_a_test_end_with_it(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A module that a test wrote into its own directory is imported by no other test, whatever their order."""
    path, newest = [*sys.path], next(reversed(sys.modules))
    yield
    sys.path[:] = path
    # From the end: there are thousands, and few are new.
    for name in [*takewhile(lambda name: name != newest, reversed(sys.modules))]:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path_factory.getbasetemp())):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def nothing_loads_between_tests() -> Iterator[None]:
    """What a test has begun to import in the background is there when it ends.

    The filters of warnings belong to the process: an import that goes on while they are set anew for the next test may
    fail of a warning that neither of the two tests would have heard.
    """
    yield
    litellm._SOON.wait()


CLIENTS_OF_LOOPS: dict[int, Any] = {}
"""What litellm made for event loops of tests, kept as long as they run: it opens such clients again, and leaves that open."""


@pytest.fixture(autouse=True)
def litellm_forgets(request: pytest.FixtureRequest, nothing_loads_between_tests: None) -> Iterator[None]:
    """What litellm keeps for a process, it keeps for a test: clients, and who listens.

    Of more than two hundred clients it drops some unclosed. What reads Gemini has a cache of its own listen, and litellm
    prepares itself for those who listen first: a function that a later test has listen would be told nothing.
    """
    yield
    if (known := sys.modules.get("litellm")) is None:
        return
    if (clients := vars(known).get("in_memory_llm_clients_cache")) is not None and clients.cache_dict:
        made = {id(each): each for each in clients.cache_dict.values() if inspect.iscoroutinefunction(each.close)}
        for name, client in [*clients.cache_dict.items()]:
            if id(client) not in made:
                client.close()
                clients.delete_cache(name)
        clients.max_size_in_memory = sys.maxsize
        CLIENTS_OF_LOOPS.update(made)
        if hasattr(request.module, "LiteLLMModel"):
            # What such a client opened anew, and left open, is no fault of a later test.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
                gc.freeze()  # so the next collection has little to look at
    for listeners in (
        known.input_callback,
        known.success_callback,
        known._async_success_callback,
        known.utils.callback_list,
    ):
        listeners.clear()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the tests counted: kills, faults, races."""
    told = [
        text for each in terminalreporter.getreports("passed") for name, text in each.user_properties if name == "told"
    ]
    if told:
        terminalreporter.section("counted")
        terminalreporter.write_line("\n".join(told))
