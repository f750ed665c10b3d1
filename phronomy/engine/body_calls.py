"""Calls that the body of a tool makes of other tools: each passes its own gate, in a run inside the call of the body.

That run has a chain of its own, as that of an agent as a tool has. It is driven where the body stands. If a call waits for somebody,
the body is left by a signal, as by a question; it runs again from its beginning when somebody has decided, and finds the results of
the calls that it has made.

The async functions are the sync ones with `async` and `await`; a test compares them.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Collection, Coroutine, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Final, TypeVar

from phronomy.concurrency.aclosing import aclosing
from phronomy.concurrency.workers import running_loop, whole
from phronomy.engine.ledger import now
from phronomy.engine.nested import BodyRun, child_of, hand_down, is_of_above, nested_outcome, pass_on, refused_in
from phronomy.engine.run import Runner
from phronomy.engine.usage import spent
from phronomy.errors import (
    ConfigurationError,
    NodeFailed,
    RunFailed,
    ToolCallCancelled,
    ToolCallExpired,
    ToolCallFailed,
    ToolCallRejected,
)
from phronomy.foundation.cached_property import cached
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, JsonText, JsonValue, canonical, object_of
from phronomy.foundation.lazy_modules import asyncio
from phronomy.foundation.quoting import quoted_name
from phronomy.records.calls import (
    Advanced,
    Call,
    CallFailed,
    CallSettled,
    CallWaits,
    Finished,
    Outcome,
    place_of,
)
from phronomy.records.record import digest_of
from phronomy.rules.added_messages import is_ending
from phronomy.stops.interrupts import Asker, Interrupt, asker_here
from phronomy.tools.context import Named
from phronomy.tools.tool import Tool

T = TypeVar("T")

_KEY: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_ERRORS: Final = {
    "rejected": ToolCallRejected,
    "skipped": ToolCallRejected,
    "expired": ToolCallExpired,
    "cancelled": ToolCallCancelled,
    "superseded": ToolCallCancelled,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A call as the body makes it: the name of the tool, and the arguments as they were given."""

    asker: Asker
    key: str
    name: str
    text: JsonText
    digest: str
    """The digest of name and arguments: another call under the same key has another one."""


class BodyCalls:
    """Makes the calls of one body, and knows those that it has made."""

    def __init__(self, runner: Runner, call: Call, tool: Tool, inside: BodyRun, drive: Any) -> None:
        self._runner = runner
        self._call = call
        self._tool = tool
        self._inside = inside
        self._drive = drive
        self._child: Runner | None = None
        self._before = 0  # the time that the run inside had worked before this attempt, in milliseconds
        self._made: dict[str, str] = {}  # what the body has called in its present run: the digests, by key
        self._error: BaseException | None = None
        # Calls may be cut off once whoever drives the run of the body is cancelled. A body in a thread cannot cancel its calls: whoever
        # does that ends the loop.
        self._may_be_cut = not tool.is_async
        self._lock = threading.Lock()
        # A sync body is in a thread, where the loop waits for it: its calls are made in the loop.
        self._loop: asyncio.AbstractEventLoop | None = running_loop() if inspect.isasyncgenfunction(drive) else None
        # It has called before, so what it has called is in the record: without that it would all be called once more.
        if runner.shared.nested.get(runner.path_in(call.id)) is not None:
            self._child = self._opened()

    @cached
    def _alock(self) -> asyncio.Lock:
        return asyncio.Lock()

    # The questions of the body

    def call(self, tool: str | Named, args: Mapping[str, Any] | None, key: str | None) -> JsonValue:
        """The result of a call."""
        asked = self._asked(tool, args, key)
        return self._given(asked) if self._loop is None else _in_loop(self._loop, self._agiven(asked))

    async def acall(self, tool: str | Named, args: Mapping[str, Any] | None, key: str | None) -> JsonValue:
        """As `call`."""
        asked = self._asked(tool, args, key)
        return await self._agiven(asked)

    def _given(self, asked: _Asked) -> JsonValue:
        """The result of the call, once it has settled."""
        child, id = self._driven(asked)
        return self._result(asked, child, id)

    async def _agiven(self, asked: _Asked) -> JsonValue:
        """As `_given`."""
        child, id = await self._uncut(asked)
        return self._result(asked, child, id)

    async def _uncut(self, asked: _Asked) -> tuple[Runner, str]:
        """As `_adriven`, whatever the body does meanwhile.

        A timeout of the body, or a task group in which another call was rejected or waits, does not cut a call off: nobody would know
        what it did. It comes to its end first, or waits, and then the body is left.
        """
        driven = asyncio.ensure_future(self._adriven(asked))
        try:
            return await whole(driven, lambda: not self._may_be_cut)
        except asyncio.CancelledError:
            if driven.done() and not driven.cancelled() and self._waits(*driven.result()):
                raise asked.asker.noted(Interrupt(asked.key, ())) from None
            raise

    def _driven(self, asked: _Asked) -> tuple[Runner, str]:
        """The run inside, driven until the call has settled or waits, and the id of the call in it."""
        with self._lock:
            child, id = self._with_call(asked)
            if self._error is None and _is_open(child, id):
                with self._noting_errors():  # noqa: SIM117
                    with closing(self._drive(child)) as moments:
                        for moment in moments:
                            pass_on(child.shared, child.state.path, moment)
        return child, id

    async def _adriven(self, asked: _Asked) -> tuple[Runner, str]:
        """As `_driven`."""
        async with self._alock:
            child, id = self._with_call(asked)
            if self._error is None and _is_open(child, id):
                with self._noting_errors():
                    async with aclosing(self._drive(child)) as moments:
                        async for moment in moments:
                            pass_on(child.shared, child.state.path, moment)
        return child, id

    @contextmanager
    def _noting_errors(self) -> Iterator[None]:
        """Note what stops the run inside. It stops the run around it too, whatever the body makes of it."""
        try:
            yield
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise

    def leave(self) -> None:
        """Let the calls be cut off: whoever drives the run of the body was cancelled."""
        self._may_be_cut = True

    def _asked(self, tool: str | Named, args: Mapping[str, Any] | None, key: str | None) -> _Asked:
        """The call that the body makes. Raises `ConfigurationError`."""
        name: object = tool.name if isinstance(tool, Tool) else tool
        asker = asker_here()
        declared = self._inside.spec.tools.get(name) if isinstance(name, str) else None
        if declared is None or (isinstance(tool, Tool) and declared is not tool):
            known = ", ".join(sorted(self._inside.spec.tools))
            raise ConfigurationError(
                f"tool {self._tool.name} calls {quoted_name(name)}, which is none of the tools that it declares ({known}): add it"
                " to calls=[...]"
            )
        # The body of an inner tool that has got hold of this context would wait here for itself.
        if asker is None or not asker.is_of(self._runner.state, self._call):
            raise ConfigurationError(
                f"tool {self._tool.name}: call_tool is for the body, and for the tasks and threads that inherit its context"
            )
        asker.check_heard()
        try:
            text = canonical(dict(args or {}))
        except (JsonError, TypeError, ValueError):
            raise ConfigurationError(
                f"tool {self._tool.name}: the arguments for {name} are a mapping of JSON values by name"
            ) from None
        digest = digest_of(declared.name, text)
        with self._lock:
            if key is not None and not (isinstance(key, str) and _KEY.fullmatch(key)):
                raise ConfigurationError(
                    f"tool {self._tool.name}: key is a text of 1 to 64 letters, digits, '_' and '-', not {quoted_name(key)}"
                )
            key = str(len(self._made)) if key is None else key
            if key in self._made:
                raise ConfigurationError(f"tool {self._tool.name}: two calls have the key {key!r}; give each its own")
            self._made[key] = digest
        return _Asked(asker=asker, key=key, name=declared.name, text=text, digest=digest)

    def _opened(self) -> Runner:
        child = child_of(self._runner, self._call, self._inside)
        child.streams = self._runner.streams
        child.made = frozenset()
        hand_down(self._runner, child)
        self._before = spent(child.shared, child.state).elapsed
        return child

    def _with_call(self, asked: _Asked) -> tuple[Runner, str]:
        """The run inside with this call in it, and its id there. Raises `ConfigurationError` if another call had the key before."""
        asked.asker.check_heard()  # under the lock: the body may have ended, and been concluded, since the call was read
        child = self._child = self._child or self._opened()
        known, key = object_of(child.state.state), asked.key
        id = next((id for id in known if _key_of(id) == key), None)
        if id is not None and known[id] != asked.digest:
            raise ConfigurationError(
                f"tool {self._tool.name} ran again, and its call {key!r} was of another tool or of other arguments before: give"
                " each call a key=, and arguments that do not change from one run of the body to the next"
            )
        if id is None:
            # The body may have given up calls of this key before. This one is another, and is asked about anew.
            before = sum(_key_of(each.id) == key and not each.gate for each in child.state.calls)
            id = f"{key}.{before + 1}" if before else key
            if child.state.ended in (None, "completed") and self._error is None:
                call = Call(
                    id=id,
                    call_id=f"{self._call.call_id}.{id}",
                    name=asked.name,
                    arguments=asked.text,
                    return_direct=True,
                )
                child.record(Advanced(state={**known, id: asked.digest}, calls=(call,), at=now(child.ledger.store)))
        child.made = self._made_in(child)
        return child, id

    def _made_in(self, child: Runner) -> frozenset[str]:
        """The ids of the calls that the body has made in its present run, as they were made before. Nothing else may run."""
        known = object_of(child.state.state)
        return frozenset(id for id, digest in known.items() if self._made.get(_key_of(id)) == digest)

    def _result(self, asked: _Asked, child: Runner, id: str) -> JsonValue:
        if self._waits(child, id):  # the body is left, and `conclude` tells what became of it
            raise asked.asker.noted(Interrupt(asked.key, ()))
        call = _call_in(child, id)
        assert call is not None and call.result is not None, "it does not wait"
        result = call.result
        if result.is_answer:
            return result.answer
        error = _ERRORS.get(result.kind, ToolCallFailed)
        decided = [each for each in child.state.decisions if each.pending_id == call.pending_id]
        raise error(
            f"the call of {call.name} by {self._tool.name} gave no result: {result.content}",
            tool_name=call.name,
            kind=result.kind,
            pending_id=call.pending_id,
            reason=decided[-1].reason if decided else None,
        )

    def _waits(self, child: Runner, id: str) -> bool:
        """True if a call waits, or the run inside stands at a breakpoint, is over, or stopped at an error."""
        call = _call_in(child, id)
        return call is None or call.result is None or _stands(child) or self._is_over

    @property
    def _is_over(self) -> bool:
        assert self._child is not None
        return self._error is not None or self._child.state.ended not in (None, "completed")

    # The end of the call whose body it is

    def conclude(self, outcome: Outcome) -> Outcome:
        """The outcome of the call, with what became of the calls in it; `outcome` is that of the body alone."""
        with self._lock:  # a task or a thread that the body left may be at work still
            self._store(self._given_up(outcome))
            ended = self._concluded(outcome)
            closed = self._closed(ended)
            self._store(closed)
            _name_as_stored(closed)
        return ended

    async def aconclude(self, outcome: Outcome) -> Outcome:
        """As `conclude`."""
        async with self._alock:  # a task or a thread that the body left may be at work still
            await self._astore(self._given_up(outcome))
            ended = self._concluded(outcome)
            closed = self._closed(ended)
            await self._astore(closed)
            _name_as_stored(closed)
        return ended

    def _store(self, changed: Runner | None) -> None:
        """Store what has changed in the run inside."""
        while changed is not None and not changed.commit(seal=True):
            continue

    async def _astore(self, changed: Runner | None) -> None:
        """As `_store`."""
        while changed is not None and not await changed.acommit(seal=True):
            continue

    def _given_up(self, outcome: Outcome) -> Runner | None:
        """The run inside, if the body has given up calls in it, or left it with news that is not stored."""
        child = self._child
        if child is None:
            return None
        given_up = self._is_left(child, outcome) and give_up(child, self._made_in(child))
        # Nobody else could find news that were recorded when the body was cancelled, and are not stored.
        return child if given_up or (self._error is None and child.dirty) else None

    def _closed(self, ended: Outcome) -> Runner | None:
        """The run inside, if it has ended with the body."""
        child = self._child
        if child is None or not _is_over(ended) or child.state.ended is not None or is_ending(child.state):
            return None
        close(child)
        return child

    def _is_left(self, child: Runner, outcome: Outcome) -> bool:
        """True if the body waits or has ended. After a failure or a pause it runs again, and may make its calls then."""
        goes_on = self._error is None and child.state.ended is None and not is_ending(child.state)
        return goes_on and not _stands(child) and (isinstance(outcome, CallWaits) or _is_over(outcome))

    def _concluded(self, outcome: Outcome) -> Outcome:
        child, call = self._child, self._call
        if child is None:
            return outcome
        runner, shared, path = self._runner, child.shared, child.state.path
        if isinstance(self._error, RunFailed):
            return self._failed(child, self._error)
        if self._error is not None:
            raise self._error
        if child.state.ended not in (None, "completed"):
            return nested_outcome(runner, call, self._tool, child)
        shared.nested[path] = child.state
        used = spent(shared, child.state)
        elapsed: int = getattr(outcome, "elapsed", 0)
        own = max(elapsed - (used.elapsed - self._before), 0)  # the run inside counts what it has worked by itself
        if child.state.pending or isinstance(outcome, CallWaits):
            questions = outcome.pending if isinstance(outcome, CallWaits) else ()
            left = object_of(outcome.note if isinstance(outcome, CallWaits) else None) or object_of(call.note)
            kept: Any = canonical(
                {**(left if left.get("digest") == call.digest else {}), "digest": call.digest, "called": True}
            )
            pending = (*questions, *child.state.pending)
            return CallWaits(id=call.id, pending=pending, elapsed=own, usage=used.usage, note=kept)
        if isinstance(outcome, CallSettled):
            known = {"elapsed": own + used.elapsed, "usage": used.usage}
            return outcome.evolve(**known, refusals=refused_in(runner, child))
        if isinstance(outcome, CallFailed):
            return outcome.evolve(elapsed=own, usage=used.usage, inside=True)
        return outcome

    def _failed(self, child: Runner, error: RunFailed) -> CallFailed:
        """The failure of a run inside: the outer run stops too, and a resume goes on inside."""
        if is_of_above(error, child):
            raise error
        child.shared.nested[child.state.path] = child.stored
        told = f"{type(error).__name__}: {error}"
        if isinstance(error, NodeFailed):
            told = "; ".join(f"{name} in it failed: {why}" for name, why in error.failures.items())
        self._runner.raised[self._call.id] = error
        used = spent(child.shared, child.state)
        return CallFailed(id=self._call.id, error=told, next="stop", inside=True, usage=used.usage, worked=used.elapsed)


def give_up(child: Runner, made: Collection[str]) -> bool:
    """Give up the open calls that are not among those made, approved or not; say whether there were any.

    A call that may have taken effect is kept: a human is asked about it in any case.
    """
    unknown = [each.id for each in child.state.calls if each.status == "pending" and each.why == "outcome_unknown"]
    gone = {each.id for each in child.state.calls if each.result is None} - {*made, *unknown}
    if gone:
        left = {id: digest for id, digest in object_of(child.state.state).items() if id not in gone}
        child.record(Advanced(state=left, at=now(child.ledger.store)))
    return bool(gone)


def close(child: Runner) -> None:
    """End the run inside with the body. Calls that are still open were made in a task or a thread that the body did not wait for."""
    give_up(child, ())
    child.record(Finished(status="completed"))


def _name_as_stored(closed: Runner | None) -> None:
    """Have the checkpoint that the caller is given name the run inside as it is stored."""
    if closed is not None:
        closed.shared.nested[closed.state.path] = closed.state


def _is_over(outcome: Outcome) -> bool:
    """True if the body has ended, and does not run again."""
    return isinstance(outcome, CallSettled) or (isinstance(outcome, CallFailed) and outcome.next == "model")


def _stands(child: Runner) -> bool:
    """True if the run inside was paused, or stands at a breakpoint behind a call."""
    return any(each.gate and each.status == "pending" for each in child.state.calls)


def _key_of(id: str) -> str:
    """The key of a call, by its id: a key has no dot in it."""
    return id.partition(".")[0]


def _call_in(child: Runner, id: str) -> Call | None:
    """The call of this id; None if the run inside ended before it was made."""
    place = place_of(child.state.calls, id)
    return None if place is None else child.state.calls[place]


def _is_open(child: Runner, id: str) -> bool:
    """True if the run inside is to be driven for this call."""
    call = _call_in(child, id)
    return child.state.ended is None and (call is None or call.result is None)


def _in_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Do the work in the event loop, for a sync body in a thread, and return its result."""
    if running_loop() is loop:
        work.close()
        raise ConfigurationError("call_tool would hold up the event loop: await acall_tool in an async body")
    return asyncio.run_coroutine_threadsafe(work, loop).result()
