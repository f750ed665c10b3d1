"""The objects that a command works on: the agent, its deps and its store, as the options name them, and the run of an id."""

from __future__ import annotations

import inspect
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncContextDecorator,
    ContextDecorator,
    contextmanager,
    nullcontext,
    redirect_stdout,
)
from dataclasses import field, replace
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from phronomy.agents.agent import Agent
from phronomy.approvals.answers import check_listed
from phronomy.cli.options import Here, Where
from phronomy.cli.screen import Screen
from phronomy.cli.words import PROGRESS, WrongUsage, was_decided
from phronomy.errors import (
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    ConfigurationError,
    Progress,
    StoreError,
    UnknownPending,
    UnreadableRow,
)
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import kept_id, quoted_id
from phronomy.records.audit import AuditRecord
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import SAID, PendingApproval
from phronomy.runs.finding.lookup import progress_of
from phronomy.runs.runs import Runs
from phronomy.stores import open_store
from phronomy.stores.base import Store
from phronomy.stores.derived import set_aside
from phronomy.stores.derived.kept_texts import kept_by
from phronomy.stores.derived.listing import Waiting, decision_on
from phronomy.stores.derived.requests import not_carried_out, request_decided
from phronomy.stores.memory import MemoryStore
from phronomy.stores.rows import Branch, PendingFilter


@dataclass(frozen=True, kw_only=True)
class Place:
    """An opened store, the agent or graph that works on it if one was named, its deps, and the options that name them all again."""

    store: Store
    agent: Runs[Any, Any] | None
    options: tuple[str, ...]
    deps: Any = field(default=None, repr=False)

    def command(self, *words: str) -> str:
        """A command line that does something else here."""
        return " ".join(("phronomy", *words, *self.options))

    @property
    def worker(self) -> Runs[Any, Any]:
        """The agent or graph, where there must be one."""
        assert self.agent is not None
        return self.agent


@contextmanager
def open_place(
    screen: Screen | None,
    where: Where | Here,
    *,
    makes: bool = False,
    makes_file: bool = False,
    decides: bool = False,
    agent: Runs[Any, object] | None = None,
) -> Iterator[Place]:
    """The place that the options name, or the environment does. That something is loaded is shown on `screen`.

    With `Here` it has an agent, and its deps, unless it only `decides`; with `makes` its store may be new, with `makes_file`
    its file of SQLite, and not one in memory. `agent` stands in
    for an app, and its runs are
    kept in a file of the user's if nothing else is said. Raises `WrongUsage`, `ConfigurationError`, `StoreError`.
    """
    runs = isinstance(where, Here)
    app, store, tenant = where.app, where.store, where.tenant
    deps = where.deps if isinstance(where, Here) else None
    given = [f"--app {shlex.quote(app)}"] if app else []
    given += [f"--deps {shlex.quote(deps)}"] if deps else []
    given += [f"--store {_mask_url(store)}"] if store else []
    given += [f"--tenant {shlex.quote(tenant)}"] if tenant is not None else []
    tenant = tenant if tenant is not None else os.environ.get("PHRONOMY_TENANT") or None
    url = store or os.environ.get("PHRONOMY_STORE") or None
    if agent is None:
        app = app or os.environ.get("PHRONOMY_APP") or None
        deps = (deps or os.environ.get("PHRONOMY_DEPS") or None) if runs else None
        if app is None and runs and not (decides and url):
            raise WrongUsage("give --app module:agent, or set PHRONOMY_APP: this takes the code of the agent")
        if app is None and url is None:
            raise WrongUsage("give --store URL or --app module:agent, or set PHRONOMY_STORE or PHRONOMY_APP")
        if app is not None:
            with _working(screen, f"Loading {app}"):
                agent = load_agent(app)
    elif url is None:
        url = own_store("chat.db")
    if url is None:
        assert agent is not None
        if isinstance(agent.store, MemoryStore) and not makes:
            what = "agent" if isinstance(agent, Agent) else "graph"
            raise WrongUsage(
                f"{what} {agent!r} keeps its runs in memory, where no other process sees them: give --store URL"
            )
        if tenant is not None:
            agent.store = agent.store.for_tenant(tenant)
        with bring_deps(screen, deps) as made:
            yield Place(store=agent.store, agent=agent, options=tuple(given), deps=made)
        return
    if not makes:
        _refuse_missing(url, makes=makes_file)
    with _opened_store(screen, url, tenant) as kept, bring_deps(screen, deps) as made:
        if agent is not None:
            agent.store = kept
        yield Place(store=kept, agent=agent, options=tuple(given), deps=made)


@contextmanager
def _opened_store(screen: Screen | None, url: str, tenant: str | None) -> Iterator[Store]:
    with _working(screen, "Opening the store"):
        store = open_store(url)
    with store:
        yield store if tenant is None else store.for_tenant(tenant)


def _working(screen: Screen | None, what: str) -> AbstractContextManager[None]:
    return screen.working(what) if screen is not None else nullcontext()


def _refuse_missing(url: str, *, makes: bool) -> None:
    """Refuse a SQLite file that is not there, unless it `makes` one, or is another program's: a mistyped name would be an empty store.

    Raises `StoreError`.
    """
    from phronomy.stores.sql.sqlite import is_store  # noqa: PLC0415  # a database driver

    scheme, _, rest = url.partition(":///")
    path = Path(os.fsdecode(unquote_to_bytes(rest.partition("?")[0])))
    if scheme.lower() == "sqlite" and rest and not makes and not path.exists():
        raise StoreError(
            f"there is no file {path}: the first run makes it, such as one of `phronomy chat --app module:agent --store"
            f" {_mask_url(url)}`"
        )
    if scheme.lower() == "sqlite" and rest and path.is_file() and not is_store(path):
        raise StoreError(f"{path} is no store of phronomy's. Nothing was made in it")


def _mask_url(url: str) -> str:
    """The URL, where it cannot hold a password."""
    return shlex.quote(url) if url.lower().startswith(("sqlite:", "memory:")) else "URL"


# The agent


def load_agent(app: str) -> Runs[Any, object]:
    """The agent that `module:attribute` names: an `Agent`, a class of agents, a compiled graph, or a function that gives one.

    What the app prints on the way goes to standard error. Raises `WrongUsage` if it is not there, `ConfigurationError`.
    """
    with redirect_stdout(sys.stderr):
        return _made(app, load_object(app, "--app is module:agent"))


def load_object(place: str, form: str) -> object:
    """Imports the object that `module:attribute` names; modules of the current directory can be named. Raises `WrongUsage`."""
    module_name, _, attribute = place.partition(":")
    if not (module_name and attribute):
        raise WrongUsage(f"{form}, not {place!r}")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    found = _imported(module_name, attribute)
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise WrongUsage(f"module {module_name} has no {attribute!r}")
        found = getattr(found, name)
    return found


def _imported(name: str, attribute: str) -> object:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"; write {name.removesuffix('.py')}:{attribute}" if name.endswith(".py") else ""
            raise WrongUsage(f"there is no module {name}, in {os.getcwd()} or elsewhere{hint}") from None
        raise _broken(f"module {name} cannot be imported", error) from error
    except (Exception, SystemExit) as error:
        raise _broken(f"module {name} cannot be imported", error) from error


def _made(app: str, found: object) -> Runs[Any, object]:
    if isinstance(found, Runs):
        return found
    if not (inspect.isroutine(found) or (isinstance(found, type) and issubclass(found, Agent))):
        raise WrongUsage(
            f"{app} is a {type(found).__name__}: an Agent, a class of agents, a compiled graph or a function is needed"
        )
    made = _called(app, found, "no agent")
    if not isinstance(made, Runs):
        raise WrongUsage(f"{app} gives a {type(made).__name__}, and no Agent or compiled graph")
    return made


def _called(place: str, found: Any, nothing: str) -> Any:
    """Calls a function without parameters. A coroutine is closed and refused, since an object is needed here."""
    try:
        inspect.signature(found).bind()
    except TypeError:
        raise WrongUsage(f"{place} needs arguments: a function without parameters is needed") from None
    except ValueError:  # one of C, which tells nobody
        pass
    try:
        made = found()
    except (Exception, SystemExit) as error:
        raise _broken(f"{place} gives {nothing}", error) from error
    if inspect.iscoroutine(made):
        made.close()
    return made


def _broken(what: str, error: BaseException) -> ConfigurationError:
    return ConfigurationError(f"{what}: {type(error).__name__}: {error} (--debug shows where)")


# Its deps


@contextmanager
def bring_deps(screen: Screen | None, place: str | None) -> Iterator[object]:
    """The deps that `module:function` gives: made once, for all that the command runs. Without a name, None.

    What a function of `contextlib.contextmanager` gives is entered, and left when the command is over. Raises as `load_agent`
    does.
    """
    if place is None:
        yield None
        return
    with _working(screen, f"Loading {place}"), redirect_stdout(sys.stderr):
        deps = _made_deps(place, load_object(place, "--deps is module:function"))
        manager = deps if isinstance(deps, ContextDecorator) and isinstance(deps, AbstractContextManager) else None
        if manager is not None:
            deps = _entered(place, manager)
    try:
        yield deps
    finally:
        if manager is not None:
            _leave(place, manager)


def _made_deps(place: str, found: object) -> object:
    if not (inspect.isroutine(found) or isinstance(found, type)):
        raise WrongUsage(f"{place} is a {type(found).__name__}: a function that gives the deps is needed")
    made = _called(place, found, "no deps")
    if inspect.iscoroutine(made) or inspect.isasyncgen(made) or isinstance(made, AsyncContextDecorator):
        raise WrongUsage(
            f"{place} is async, and deps are made before any event loop runs: make them in a plain function"
        )
    if inspect.isgenerator(made):
        raise WrongUsage(f"{place} is a generator: decorate it with contextlib.contextmanager")
    return made


def _entered(place: str, manager: AbstractContextManager[object]) -> object:
    try:
        return manager.__enter__()
    except (Exception, SystemExit) as error:
        raise _broken(f"{place} gives no deps", error) from error


def _leave(place: str, manager: AbstractContextManager[object]) -> None:
    """Leave what was entered. Neither what it returns nor what it raises hides an error of the command."""
    kind, error, trace = sys.exc_info()
    try:
        with redirect_stdout(sys.stderr):
            manager.__exit__(kind, error, trace)
    except Exception as failed:
        if error is None:
            raise _broken(f"{place} cannot be left", failed) from failed


# Files of our own


def data_directory(platform: str, environ: Mapping[str, str], home: Path) -> Path:
    """Gives the directory of a user's data: https://specifications.freedesktop.org/basedir-spec/latest/ and its likes."""
    if platform == "win32":
        given = environ.get("LOCALAPPDATA", "")
        return (Path(given) if given else home / "AppData" / "Local") / "phronomy"
    if platform == "darwin":
        return home / "Library" / "Application Support" / "phronomy"
    given = environ.get("XDG_DATA_HOME", "")
    return (Path(given) if given.startswith("/") else home / ".local" / "share") / "phronomy"  # relative: to be ignored


def own_file(name: str, option: str) -> Path:
    """A file in the user's data directory, which is made for its owner alone. Raises `StoreError`, `OSError`."""
    try:
        directory = data_directory(sys.platform, os.environ, Path.home())
    except RuntimeError:
        raise StoreError(f"this user has no home directory: give a file with --store {option}") from None
    for each in reversed((directory, *directory.parents)):  # `parents=True` would make those above for everybody
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)
    return directory / name


def own_store(name: str) -> str:
    """The URL of a store in the user's data directory."""
    return f"sqlite:///{quote(str(own_file(name, 'URL')))}"


def new_name(kind: str) -> str:
    """A name that nothing else has."""
    return f"{kind}-{os.urandom(4).hex()}"


# What an id means


@dataclass(frozen=True, kw_only=True)
class Found:
    """The object of an id: a checkpoint, its branch, and the pending approvals there that the id is about.

    Of a pending id that was decided it is where that waited, with the request and what the audit trail says; of what was answered
    before it waited, it is where the run stands.
    """

    branch: Branch
    checkpoint: Checkpoint
    pending: tuple[PendingApproval, ...]
    asked: PendingApproval | None = None
    decided: AuditRecord | None = None


def find(store: Store, id: str) -> Found:
    """Finds the checkpoint of a pending id, a checkpoint id, a run id or a branch id. Raises `CheckpointNotFound`, `WrongUsage`."""
    rows = store.select_pending(PendingFilter(pending_id=id))
    if len(rows) > 1:
        places = ", ".join(row.checkpoint_id for row in rows)
        raise WrongUsage(f"{id} waits at several checkpoints: name one of {places}")
    if rows:
        branch, checkpoint = store.locate(rows[0].checkpoint_id)
        return Found(branch=branch, checkpoint=checkpoint, pending=(Waiting.of(rows[0], kept_by(store)).approval,))
    try:
        branch, checkpoint = store.locate(id)
    except CheckpointNotFound:
        try:
            branch, checkpoint = store.head(id)
        except CheckpointNotFound:
            return _decided(store, id)
    return Found(branch=branch, checkpoint=checkpoint, pending=as_listed(store, branch, checkpoint.pending))


def decided_there(store: Store, meant: Found) -> tuple[Found, list[Found]]:
    """The place with what still waits there, and what was decided there, each as its pending id would show it."""
    rows = {
        row.pending_id for row in store.pending_rows(run_id=meant.branch.run_id) if row.branch_id == meant.branch.id
    }
    records = {item.id: decision_on(store, item.id) for item in meant.pending if item.id not in rows}
    decided = [
        replace(meant, pending=(), asked=item, decided=record)
        for item in meant.pending
        if (record := records.get(item.id)) is not None and record.branch_id == meant.branch.id
    ]
    if not decided:
        return meant, []
    ids = {each.asked.id for each in decided if each.asked is not None}
    return replace(meant, pending=tuple(item for item in meant.pending if item.id not in ids)), decided


def as_listed(store: Store, branch: Branch, pending: Sequence[PendingApproval]) -> tuple[PendingApproval, ...]:
    """The requests of a checkpoint with the votes that were cast since, as the store lists them."""
    if not any(item.approvers for item in pending):
        return tuple(pending)
    rows = {row.pending_id: row for row in store.pending_rows(run_id=branch.run_id) if row.branch_id == branch.id}
    return tuple(Waiting.of(rows[item.id]).approval if item.id in rows else item for item in pending)


def _decided(store: Store, id: str) -> Found:
    """Finds the checkpoint of a pending id that was decided. Raises `CheckpointNotFound`."""
    if (record := decision_on(store, id)) is None:
        if store.branches(thread_id=id):
            raise WrongUsage(f"{quoted_id(id)} is a thread: phronomy runs --thread {shlex.quote(id)} lists its runs")
        raise CheckpointNotFound(
            f"the store knows no pending approval, checkpoint or run {quoted_id(id)}: phronomy pending lists what waits,"
            " and phronomy runs all runs",
            id=kept_id(id),
        )
    try:
        branch, head = store.head(record.branch_id)
    except CheckpointNotFound:
        raise CheckpointNotFound(f"{id} {was_decided(record)}, and its run is not kept any more", id=id) from None
    for checkpoint in reversed(store.history(head.id)):
        for item in checkpoint.pending:
            if item.id == id:
                return Found(branch=branch, checkpoint=checkpoint, pending=(), asked=item, decided=record)
    # A handler, a grant or an early event answered, and no checkpoint lists it.
    asked = request_decided(store, id, record).approval
    return Found(branch=branch, checkpoint=head, pending=(), asked=asked, decided=record)


def how_decided(meant: Found, store: Store) -> str:
    """Describes the decision on a pending approval and the status of its run, as the end of a sentence that names it."""
    assert meant.decided is not None
    if (why := set_aside.reason(store, meant.branch)) is not None:
        return f"{was_decided(meant.decided)}; this waits for an operator: {why}"
    return f"{was_decided(meant.decided)}; {PROGRESS[_progress(meant, store)]}"


def told_left(store: Store, branch: Branch) -> str | None:
    """How a branch stands whose requests are decided and not carried out, such as "approved, waits for a worker"; None for another."""
    if branch.handed is None or branch.is_held(store.clock()):
        return None
    decided = [each.decision for each in not_carried_out(store, branch) if each.decision is not None]
    if not decided:
        return None
    said = SAID[decided[0].kind] if len(decided) == 1 else f"{len(decided)} decided"
    if set_aside.reason(store, branch) is not None:
        return f"{said}, set aside: waits for an operator"
    return f"{said}, {'waits' if len(decided) == 1 else 'wait'} for a worker"


def _progress(meant: Found, store: Store) -> Progress:
    return progress_of(meant.branch, live=meant.branch.is_held(store.clock()))


def find_pending(store: Store, id: str) -> tuple[Checkpoint, PendingApproval]:
    """The one pending approval that an id means, and the checkpoint that it waits at.

    Raises as `find` does, `WrongUsage` if there are several, `UnknownPending` if nothing waits, `CheckpointAlreadyResumed` for a
    pending id that was decided, and `InvalidDecision` for a request that is listed otherwise than it stands at the checkpoint.
    """
    meant = find(store, id)
    if meant.decided is not None:
        decisions = store.head(meant.branch.id)[1].decisions
        raise CheckpointAlreadyResumed(
            f"{id} {how_decided(meant, store)}",
            checkpoint_id=meant.checkpoint.id,
            pending_id=id,
            decision=next((each for each in decisions if each.pending_id == id), None),
            progress=_progress(meant, store),
        )
    checkpoint, items = meant.checkpoint, meant.pending
    if id == meant.checkpoint.run_id and id != meant.checkpoint.id:  # every branch of the run
        rows = store.pending_rows(run_id=id)
        if len(rows) > 1:
            raise _several(id, [row.pending_id for row in rows])
        if rows:
            return find_pending(store, rows[0].pending_id)
        items = ()
    if len(items) > 1:
        waiting = {row.pending_id for row in store.pending_rows(run_id=checkpoint.run_id)}
        items = tuple(item for item in items if item.id in waiting) or items
        if len(items) > 1:
            raise _several(id, [item.id for item in items])
    if not items:
        raise UnknownPending(f"nothing waits for a decision at {id}: the run is {meant.branch.status}", pending_id=id)
    check_found(meant)
    return checkpoint, items[0]


def check_found(meant: Found) -> None:
    """Refuse to show a request that is listed otherwise than it waits. Raises `InvalidDecision`."""
    check_listed(meant.pending, meant.checkpoint.pending, meant.checkpoint.id)


def _several(id: str, pending_ids: list[str]) -> WrongUsage:
    return WrongUsage(f"{id} waits for {len(pending_ids)} decisions: name one of {', '.join(pending_ids)}")


def say_more(screen: Screen, place: Place, command: str, given: Mapping[str, object], after: str | None) -> None:
    """Say how to see the page that follows, if there is one."""
    if after is None:
        return
    screen.say()
    screen.say("There are more:", style="bold")
    screen.place("", place.command(command, *_options({**given, "after": after})))


def say_unreadable(screen: Screen, unreadable: Sequence[UnreadableRow]) -> None:
    """Say on standard error which rows are not in a list, since they cannot be read."""
    if unreadable:
        screen.complain(f"Not listed, as {'it' if len(unreadable) == 1 else 'they'} cannot be read:")
    for each in unreadable:
        screen.complain(f"  {each}")


def unreadable_view(unreadable: Sequence[UnreadableRow]) -> dict[str, object]:
    """The rows that a list cannot have, as a member of its document; nothing if there are none."""
    found = [
        {"kind": each.kind, "id": each.id, "run_id": each.run_id, "branch_id": each.branch_id, "detail": str(each)}
        for each in unreadable
    ]
    return {"unreadable": found} if found else {}


def _options(given: Mapping[str, object]) -> Iterator[str]:
    """The options as they are typed."""
    for name, value in given.items():
        option = f"--{name.removesuffix('_id').replace('_', '-')}"
        if value is True:
            yield option
        elif value not in (None, False):
            yield f"{option}={shlex.quote(str(value))}"
