"""A worker process that can be killed at a given place, and the file beside the store that tells what it did."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import os
import signal
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from phronomy.errors import ConfigurationError, PhronomyError
from phronomy.foundation.dataclasses import dataclass
from phronomy.records.calls import CallStarted
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Answer, Approve, PendingApproval, Respond
from phronomy.stops.interrupts import Interrupt
from phronomy.stores import Store, open_store
from phronomy.stores.base import AsyncPrimitives
from phronomy.stores.log.row_delta import outcome_from
from phronomy.stores.rows import OPEN, Append, Branch
from phronomy.tools.context import ToolContext
from phronomy.tools.tool import Tool

if TYPE_CHECKING:
    from phronomy.agents.agent import Agent

RAISED: Final = 70
"""The exit code of a worker that raised."""

Opener: TypeAlias = str | Callable[[], Store]
Play: TypeAlias = "str | Callable[[Scene], Any]"


class Line(Protocol):
    """The connection by which a worker asks the process that started it to strike."""

    def send(self, obj: object, /) -> None:
        """Send an object to the other end."""
        ...

    def recv(self) -> object:
        """The next object from the other end; waits for it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Entered:
    """A tool body that was entered, as told outside of the store.

    `text` are the arguments as canonical JSON. `left` says that the body ended, `raised` that it raised, `result` is what the
    model would read of what it returned.
    """

    tool: str
    source: str
    schema_hash: str
    gate: str
    idempotent: bool
    text: str
    key: str
    pending_id: str | None
    run_id: str
    call_id: str
    attempt: int
    left: bool = False
    raised: bool = False
    result: str | None = field(default=None, repr=False)


class Witness:
    """An append-only file of what happened: each line is one write of its own, so that what is in it did happen."""

    def __init__(self, file: str) -> None:
        self._file = file

    def say(self, what: str, **facts: object) -> None:
        """Add a line."""
        line = json.dumps({"what": what, **facts}) + "\n"
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def lines(self, *whats: str) -> list[dict[str, Any]]:
        """The lines of these kinds, in order."""
        try:
            with open(self._file, encoding="utf-8") as file:
                found = [json.loads(line) for line in file]
        except FileNotFoundError:
            return []
        return [line for line in found if line["what"] in whats]

    def entered(self) -> list[Entered]:
        """The tool bodies that were entered, in order."""
        ends = {line["n"]: line for line in self.lines("left")}
        found = []
        for line in self.lines("entered"):
            facts = {key: value for key, value in line.items() if key not in ("what", "n")}
            end = ends.get(line["n"])
            if end is not None:
                facts |= {"left": True, "raised": end["raised"], "result": end["result"]}
            found.append(Entered(**facts))
        return found


class Fuse:
    """Counts the places that a process passes, and strikes at one of them: kills the process, or has `line` do what it does."""

    def __init__(self, at: int | None, witness: Witness, line: Line | None = None) -> None:
        self.passed: int = 0
        self._at = at
        self._witness = witness
        self._line = line
        self._lock = threading.Lock()

    def place(self, name: str) -> None:
        """Pass a place."""
        with self._lock:
            self.passed += 1
            if self.passed != self._at:
                return
            self._witness.say("struck", place=name, n=self.passed)
            if self._line is None:
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                self._line.send(None)
                self._line.recv()


# What is watched


def mine(store: Store, fuse: Fuse, witness: Witness) -> None:
    """Have each write of the store tell the witness, with a place before it is sent and one after it is stored."""
    kind: Any = type(store)

    class MinedNative:
        def __init__(self, inner: AsyncPrimitives) -> None:
            self._inner = inner
            self.lineage = inner.lineage

        async def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
            fuse.place("before create")
            await self._inner.create(branch, change, exclusive=exclusive)
            witness.say("wrote", **_facts(change, seq=change.seq + len(change.entries)))
            fuse.place("after create")

        async def append(self, change: Append) -> Branch:
            fuse.place("before append")
            branch = await self._inner.append(change)
            witness.say("wrote", **_facts(change, seq=branch.seq))
            fuse.place("after append")
            return branch

        async def release(self, *args: Any, **options: Any) -> None:
            fuse.place("before release")
            await self._inner.release(*args, **options)
            fuse.place("after release")

    class Mined(kind):  # type: ignore[misc]  # a class, and not wrapped methods: `for_tenant` copies the object
        @property
        def native(self) -> Any:
            inner = super().native
            return None if inner is None else MinedNative(inner)

        def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
            fuse.place("before create")
            super().create(branch, change, exclusive=exclusive)
            witness.say("wrote", **_facts(change, seq=change.seq + len(change.entries)))
            fuse.place("after create")

        def append(self, change: Append) -> Branch:
            fuse.place("before append")
            branch: Branch = super().append(change)
            witness.say("wrote", **_facts(change, seq=branch.seq))
            fuse.place("after append")
            return branch

        def release(self, *args: Any, **options: Any) -> None:
            fuse.place("before release")
            super().release(*args, **options)
            fuse.place("after release")

        def announced(self, branch_id: str, seq: int) -> None:
            fuse.place("before announced")
            super().announced(branch_id, seq)
            fuse.place("after announced")

        def remove(self, branches: Mapping[str, int], detached: Any) -> None:
            fuse.place("before remove")
            witness.say("removing", branches=list(branches))
            super().remove(branches, detached)
            fuse.place("after remove")

    object.__setattr__(store, "__class__", Mined)


def _facts(change: Append, *, seq: int) -> dict[str, object]:
    """Gives the facts of a write for the witness."""
    trail = [json.loads(row.body) for row in change.audit]
    decided = [[record.get("pending_id"), record["kind"]] for record in trail]
    return {"branch": change.branch_id, "seq": seq, "head": change.head, "decided": decided}


class _Bound(dict[str, Any]):
    """The values for a call, which remember the text that they were made of."""

    text: str


def watch_tools(fuse: Fuse, witness: Witness) -> None:
    """Have every tool body tell the witness, with a place before it is entered and one after it has ended. Holds for this process."""
    bind, call, acall = Tool.bind, Tool.call, Tool.acall
    numbers = itertools.count(1)

    def bound(self: Tool, args_text: str) -> dict[str, Any]:
        values = _Bound(bind(self, args_text))
        values.text = args_text
        return values

    @contextmanager
    def told(tool: Tool, values: Any, context: ToolContext[Any]) -> Iterator[list[Any]]:
        fuse.place(f"before {tool.name}")
        n = f"{os.getpid()}:{next(numbers)}"
        text = getattr(values, "text", "{}")  # nodes of graphs bind in a way of their own
        witness.say("entered", n=n, text=text, **_call_facts(tool, context))
        returned: list[Any] = []
        try:
            yield returned
        except (Exception, Interrupt):
            witness.say("left", n=n, raised=True, result=None)
            fuse.place(f"after {tool.name}")
            raise
        witness.say("left", n=n, raised=False, result=tool.render(returned[0]).content)
        fuse.place(f"after {tool.name}")

    def called(self: Tool, values: Any, context: ToolContext[Any]) -> Any:
        with told(self, values, context) as returned:
            returned.append(call(self, values, context))
        return returned[0]

    async def acalled(self: Tool, values: Any, context: ToolContext[Any]) -> Any:
        with told(self, values, context) as returned:
            returned.append(await acall(self, values, context))
        return returned[0]

    for name, function in (("bind", bound), ("call", called), ("acall", acalled)):
        setattr(Tool, name, function)


def _call_facts(tool: Tool, context: ToolContext[object]) -> dict[str, object]:
    return {
        "tool": tool.name,
        "source": tool.source,
        "schema_hash": tool.schema_hash,
        "gate": tool.gate,
        "idempotent": tool.idempotent,
        "key": context.idempotency_key,
        "pending_id": context.pending_id,
        "run_id": context.run_id,
        "call_id": context.call_id,
        "attempt": context.attempt,
    }


# What a scenario is given


class Scene:
    """The argument of a scenario, of its recovery and of its check. It has a store, and a record outside of the store.

    `recovering` says that another worker ran here before, and was killed or has ended.
    """

    def __init__(self, store: Store, witness: Witness, fuse: Fuse, *, recovering: bool) -> None:
        self.store = store
        self.recovering = recovering
        self._witness = witness
        self._fuse = fuse

    @property
    def entered(self) -> list[Entered]:
        """The tool bodies that have started so far, in any worker, in order. The list does not come from the store."""
        return self._witness.entered()

    @property
    def acts(self) -> list[dict[str, Any]]:
        """The facts that were passed to `act` so far, by any worker, in order."""
        return [line["facts"] for line in self._witness.lines("act")]

    def act(self, **facts: object) -> None:
        """Have an effect outside of the store: write a line of JSON to a file.

        A worker can be killed before and after it.
        """
        self._fuse.place("before an act")
        self._witness.say("act", facts=facts)
        self._fuse.place("after an act")

    def seen(self, checkpoint: Checkpoint, item: PendingApproval) -> Entered | None:
        """The last start of the body of a call that waits, or None if it never started.

        A human who looks would find the same.
        """
        entries = self.store.lineage(branch_id=checkpoint.branch_id).entries
        ids = {
            call.id for part in (checkpoint, *checkpoint.nested) for call in part.calls if call.pending_id == item.id
        }
        begun = [
            outcome_from(entry.body) for entry in entries if entry.checkpoint_id is None and entry.path == item.path
        ]
        keys = {outcome.key for outcome in begun if isinstance(outcome, CallStarted) and outcome.id in ids}
        mine = [each for each in self.entered if each.run_id == checkpoint.run_id]  # the log begins with runs before
        return next((each for each in reversed(mine) if each.key in keys), None)

    def answers(self, checkpoint: Checkpoint) -> dict[str, Answer]:
        """Answer each pending request as a careful human does.

        The answer is `Approve`, except for a call of unknown outcome whose body has started: that call gets its result,
        or a note that it has started.
        """
        found: dict[str, Answer] = {}
        for item in checkpoint.pending:
            seen = self.seen(checkpoint, item) if item.why == "outcome_unknown" else None
            if seen is None:
                found[item.id] = Approve()
            else:
                found[item.id] = Respond(content=f"{seen.tool} was entered" if seen.result is None else seen.result)
        return found

    def settle(
        self, agent: Agent[Any, object], *, answers: Callable[[Checkpoint], dict[str, Answer]] | None = None
    ) -> None:
        """Bring all runs of an agent to their end: recover them, and answer all requests with `answers`."""
        while True:
            for each in agent.recover_all():
                if each.error is not None:
                    raise each.error
            waiting = self._open(agent)
            if not waiting:
                return
            for checkpoint in waiting:
                agent.resume(checkpoint.id, decisions=(answers or self.answers)(checkpoint) or None)

    async def asettle(
        self, agent: Agent[Any, object], *, answers: Callable[[Checkpoint], dict[str, Answer]] | None = None
    ) -> None:
        """The async twin of `settle`."""
        while True:
            for each in await agent.arecover_all():
                if each.error is not None:
                    raise each.error
            waiting = self._open(agent)
            if not waiting:
                return
            for checkpoint in waiting:
                await agent.aresume(checkpoint.id, decisions=(answers or self.answers)(checkpoint) or None)

    def _open(self, agent: Agent[Any, object]) -> list[Checkpoint]:
        found = [each for each in self.store.branches() if each.status in OPEN and each.agent == agent.spec.name]
        return [self.store.head(each.id)[1] for each in found]


# The process


@dataclass(frozen=True, kw_only=True)
class Job:
    """The job of a worker process: play this, on the store of this tenant, and die at place `at` (None: nowhere).

    `later` is how many seconds the store's clock is ahead, so that leases of workers before have run out.
    """

    play: Play
    store: Opener
    tenant: str
    file: str
    at: int | None
    later: float
    recovering: bool


def opened(store: Opener) -> Store:
    """The store that a URL names, or that a function opens."""
    return open_store(store) if isinstance(store, str) else store()


def resolved(play: Play) -> Callable[[Scene], object]:
    """The function that is meant. Raises `ConfigurationError` for a name that names none."""
    if callable(play):
        return play
    module, _, name = play.partition(":")
    try:
        function: object = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        function = None
    if not callable(function):
        raise ConfigurationError(f"{play!r} names no function: write 'module:function'")
    return function


def work(job: Job, line: Line | None) -> None:
    """Runs the job of a worker process."""
    witness = Witness(job.file)
    fuse = Fuse(job.at, witness, line)
    try:
        watch_tools(fuse, witness)
        with opened(job.store) as whole:
            store = whole.for_tenant(job.tenant)
            clock = store.clock
            store.clock = lambda: clock() + job.later
            mine(store, fuse, witness)
            played: Any = resolved(job.play)
            scene = Scene(store, witness, fuse, recovering=job.recovering)
            if inspect.iscoroutinefunction(played):
                asyncio.run(_awaited(played(scene)))
            else:
                played(scene)
    except BaseException as error:
        told = "".join(traceback.format_exception(error))
        witness.say("raised", kind=type(error).__name__, typed=isinstance(error, PhronomyError), told=told)
        raise SystemExit(RAISED) from None
    witness.say("ended", places=fuse.passed)


async def _awaited(work: Awaitable[object]) -> None:
    await work
