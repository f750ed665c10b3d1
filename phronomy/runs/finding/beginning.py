"""Beginning a run: its first checkpoint, with the claim of the worker that drives it. Nothing here asks a model or runs a tool."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any, Final, TypeAlias

from phronomy.concurrency.workers import whole
from phronomy.conversation.input import History
from phronomy.engine.drive import begin_anew
from phronomy.engine.ledger import Ledger, now
from phronomy.engine.run import Runner
from phronomy.engine.spec import Spec
from phronomy.errors import CheckpointNotFound, ConfigurationError, InvalidDecision, PhronomyError, StoreError
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.ids import findable, new_id
from phronomy.foundation.json_text import JsonError
from phronomy.foundation.quoting import quoted_id
from phronomy.records import chain
from phronomy.records.calls import Input, Outcome
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.principals import Principal, as_principal
from phronomy.records.record import explain
from phronomy.records.scopes import scopes_at_begin
from phronomy.stores.base import Store
from phronomy.stores.derived.people import admit
from phronomy.stores.log.log import row_entry
from phronomy.stores.native import on_loop, reading
from phronomy.stores.rows import Append, Behind, Branch, Occupied


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """What a new run is begun with."""

    input: Input = field(repr=False)
    thread_id: str | None
    history: History | None
    metadata: Mapping[str, Any] | None
    label: str | None
    requester: str | Principal | None = None
    # A run that is begun once: under this id, if there is none yet, and left to whoever drives it.
    run_id: str | None = None
    # It is driven at once, by whoever begins it, and nobody hears of its input first.
    at_once: bool = False


class AlreadyBegun(Exception):
    """There is a run under the id that was given. Nothing was written."""


def requested_by(given: str | Principal | None) -> Principal | None:
    """Who asked for a run, as it is recorded. Raises `ConfigurationError`."""
    try:
        who = as_principal(given)
        return who.without_claims() if who is not None else None
    except InvalidDecision:
        raise ConfigurationError("requester is a Principal, or its id as text that is not empty") from None


@dataclass(frozen=True, kw_only=True)
class _Named:
    """What a run is begun with, checked: none of it changes however often the thread is looked at."""

    thread_id: str | None
    label: str | None
    requester: Principal | None
    scopes: tuple[str, ...]


LetGo: TypeAlias = Callable[[Runner], None]
"""Lets go of a run of which nobody knows whether its first write is stored."""

ALetGo: TypeAlias = Callable[[Runner], Awaitable[None]]
"""As `LetGo`."""


def begin(
    store: Store,
    spec: Spec,
    deps: object,
    beginning: Beginning,
    let_go: LetGo,
    *,
    afresh: bool = False,
) -> Runner:
    """A runner of a new run whose input is stored. With `afresh`, its thread is not looked at.

    `let_go` lets go of the run if the write is cut off, so that nobody knows whether it is stored.

    Raises `Occupied` if the thread is not free, `AlreadyBegun`, `ConfigurationError`.
    """
    named = _admitted(store, _named(spec, beginning), beginning)
    exclusive = named.thread_id is not None and not afresh
    # A thread is looked at without a lock, and the store refuses the first write if it has gone on since. Then it is looked at
    # again.
    looks = _Looks(named.thread_id)
    while True:
        try:
            parent = store.latest(named.thread_id) if named.thread_id is not None and not afresh else None
        except CheckpointNotFound:  # it was taken away between two looks
            parent = None
        looks.saw(parent)
        state = _first(store, spec, beginning, named, parent)
        try:
            return _create(store, spec, deps, parent, state, beginning, let_go, exclusive=exclusive)
        except (Behind, CheckpointNotFound):  # the thread's last end is another since we looked, or was taken away
            continue
        except (Occupied, StoreError):
            # The store refuses a second run of one id. It is what keeps the thread busy, or has ended already.
            if beginning.run_id is not None and store.branches(run_id=state.run_id) != []:
                raise AlreadyBegun(state.run_id) from None
            raise


async def abegin(
    store: Store,
    spec: Spec,
    deps: object,
    beginning: Beginning,
    let_go: ALetGo,
    *,
    afresh: bool = False,
) -> Runner:
    """As `begin`."""
    named = await reading(store, _admitted, store, _named(spec, beginning), beginning)
    exclusive = named.thread_id is not None and not afresh
    looks = _Looks(named.thread_id)
    while True:
        try:
            parent = (
                await reading(store, store.latest, named.thread_id)
                if named.thread_id is not None and not afresh
                else None
            )
        except CheckpointNotFound:  # it was taken away between two looks
            parent = None
        looks.saw(parent)
        state = _first(store, spec, beginning, named, parent)
        try:
            return await _acreate(store, spec, deps, parent, state, beginning, let_go, exclusive=exclusive)
        except (Behind, CheckpointNotFound):  # the thread's last end is another since we looked, or was taken away
            continue
        except (Occupied, StoreError):
            if beginning.run_id is not None and await reading(store, store.branches, run_id=state.run_id) != []:
                raise AlreadyBegun(state.run_id) from None
            raise


def check_is_no_id(store: Store, given: object) -> None:
    """Refuse an input that is the id of a checkpoint or a request of the store: a new run would say it to the model.

    Raises `ConfigurationError`.
    """
    if not isinstance(given, str) or (found := _AN_ID.fullmatch(given)) is None:
        return
    try:
        if found[1] == "ckpt":
            store.load(given)
        else:
            store.request(given)
    except PhronomyError:  # the store knows no such id: it is a text like any other
        return
    what = "checkpoint" if found[1] == "ckpt" else "request"
    raise ConfigurationError(
        f"the input {given} is the id of a {what} in this store: to go on from there, call resume, or give stream the"
        " checkpoint itself, as in stream(store.load(id))"
    )


_AN_ID: Final = re.compile(r"(ckpt|pend)_[0-9a-f]{24}")


def _named(spec: Spec, beginning: Beginning) -> _Named:
    """What a run is begun with. Raises `ConfigurationError`."""
    thread_id = beginning.thread_id
    if thread_id is not None:
        if not isinstance(thread_id, str) or not thread_id:
            raise ConfigurationError("a thread id is text that is not empty")
        # The thread is found again by exactly these characters, in every store.
        thread_id = findable("a thread id", thread_id)
    label = findable("a label", beginning.label) if beginning.label is not None else None
    if not isinstance(beginning.metadata, Mapping | None):
        raise ConfigurationError(f"metadata is a mapping, not {type(beginning.metadata).__name__}")
    requester = requested_by(beginning.requester)
    # Read before the principal is recorded: that has none.
    of_requester = beginning.requester.scopes if isinstance(beginning.requester, Principal) else None
    scopes = scopes_at_begin(spec.scopes, of_requester)
    return _Named(thread_id=thread_id, label=label, requester=requester, scopes=scopes)


def _admitted(store: Store, named: _Named, beginning: Beginning) -> _Named:
    """The run with its requester as a record has them. Raises `UnknownPerson`, and as `check_is_no_id`."""
    named = replace(named, requester=admit(store, named.requester))
    check_is_no_id(store, beginning.input)
    return named


def _first(store: Store, spec: Spec, beginning: Beginning, named: _Named, parent: Checkpoint | None) -> Checkpoint:
    """The first checkpoint of a run, behind the last end of its thread. Raises `ConfigurationError`."""
    run_id = beginning.run_id or new_id("run")
    try:
        first = spec.first(beginning.input, parent, beginning.history)
        return chain.begin(
            parent,
            id=new_id("ckpt"),
            run_id=run_id,
            branch_id=run_id,
            thread_id=named.thread_id,
            at=now(store),
            agent=spec.ref,
            kind=spec.kind,
            label=named.label,
            metadata=dict(beginning.metadata or {}),
            requester=named.requester,
            # Of everybody whose words the model reads. A conversation that begins anew has none of them.
            requesters=chain.with_writer(parent.requesters, named.requester, parent.requester) if parent else (),
            known=chain.with_known(parent.known, named.requester, parent.requester) if parent else (),
            scopes=named.scopes,
            **first,
        )
    except (JsonError, ValueError) as error:
        raise ConfigurationError(f"the run cannot begin: {explain(error)}") from None


_LEFT: Final = "nobody yet"
_MOMENT: Final = 1e-6
"""Who holds a run that is left to whoever drives it, and for how many seconds. None at all would be the store's own lease."""


def is_left(branch: Branch) -> bool:
    """Whether whoever has begun the run has left it to others, and none of them has driven it yet."""
    return branch.owner == _LEFT


def _create(
    store: Store,
    spec: Spec,
    deps: object,
    parent: Checkpoint | None,
    state: Checkpoint,
    beginning: Beginning,
    let_go: LetGo,
    *,
    exclusive: bool,
) -> Runner:
    origins = store.branches(run_id=parent.run_id) if parent is not None else []
    runner, branch, change, intents = _prepared(store, spec, deps, parent, state, beginning, origins)
    try:
        # The first row and the claim are one write. With two, a crash in between would leave a run that has begun, and of which
        # nobody knows that its worker is lost.
        store.create(branch, change, exclusive=exclusive)
        # Inside as well: nobody else lets go of the run yet, and a human would be asked about nodes that nobody entered.
        _begun(runner, change, intents)
    # It may have been written before the signal came. If it was, its thread would be busy until the lease is over.
    except BaseException as error:
        if not isinstance(error, Exception):
            with suppress(Exception):
                let_go(runner)
        raise
    return runner


async def _acreate(
    store: Store,
    spec: Spec,
    deps: object,
    parent: Checkpoint | None,
    state: Checkpoint,
    beginning: Beginning,
    let_go: ALetGo,
    *,
    exclusive: bool,
) -> Runner:
    """As `_create`."""
    origins = await reading(store, store.branches, run_id=parent.run_id) if parent is not None else []
    runner, branch, change, intents = _prepared(store, spec, deps, parent, state, beginning, origins)
    try:
        await whole(on_loop(store).create(branch, change, exclusive=exclusive))
        _begun(runner, change, intents)
    except GeneratorExit:  # garbage of a loop that was closed: nothing can be awaited here, and the lease runs out
        runner.ledger.drop()
        raise
    except BaseException as error:
        if not isinstance(error, Exception):
            with suppress(Exception):
                await whole(let_go(runner))
        raise
    return runner


def _prepared(
    store: Store,
    spec: Spec,
    deps: object,
    parent: Checkpoint | None,
    state: Checkpoint,
    beginning: Beginning,
    origins: Sequence[Branch],
) -> tuple[Runner, Branch, Append, Sequence[Outcome]]:
    """The runner of a new run, its branch, and its first write with the intents in it. The lease counts from here."""
    branch = _branch_of(state, parent, origins)
    runner = _runner(store, spec, deps, branch, state, beginning)
    change, intents = _change(runner, branch, parent, state, beginning)
    runner.ledger.begins()
    return runner, branch, change, intents


def _branch_of(state: Checkpoint, parent: Checkpoint | None, origins: Sequence[Branch]) -> Branch:
    """The branch of a new run, behind that of its parent, which is among the `origins`. Raises `Behind`."""
    if parent is None:
        return Branch.of(state)
    origin = next((item for item in origins if item.id == parent.branch_id), None)
    if origin is None:
        raise Behind(parent.branch_id)
    place = Branch.of(state, parent_branch=origin.id, parent_seq=origin.seq, seq=origin.seq)
    # The newest run of a thread is found by this time. A clock that was set back must not hide a run behind the one before it.
    return replace(place, changed_at=origin.changed_at)  # it is later, whatever the clock here says


def _runner(store: Store, spec: Spec, deps: object, branch: Branch, state: Checkpoint, beginning: Beginning) -> Runner:
    """The runner of a run whose first checkpoint is about to be stored."""
    ledger = Ledger(store, replace(branch, seq=branch.seq + 1, head=state.id), state)
    if beginning.run_id is not None:
        ledger.owner = _LEFT
    runner = Runner(spec, ledger, state, deps=deps)
    runner.begins = True
    # What became of a write that is cut off, the store is asked.
    runner.writing = True
    return runner


def _change(
    runner: Runner, branch: Branch, parent: Checkpoint | None, state: Checkpoint, beginning: Beginning
) -> tuple[Append, Sequence[Outcome]]:
    """The first write of a run, and the intents in it."""
    intents = begin_anew(runner) if beginning.at_once else ()
    naming = runner.ledger.naming()
    first = row_entry(parent, state, {}, naming)
    if intents:
        runner.untouched = tuple(intents)
        change = runner.prepare(seal=True, intents=intents)
        texts = (*naming.texts, *change.texts)
        return replace(change, seq=branch.seq, entries=(first, *change.entries), texts=texts), intents
    left, spec = beginning.run_id is not None, runner.spec
    change = Append(
        branch_id=branch.id,
        seq=branch.seq,
        entries=(first,),
        texts=tuple(naming.texts),
        take=runner.ledger.owner,
        lease=_MOMENT if left else runner.ledger.store.lease,
        head=state.id,
        status="running",
        announce=bool(spec.announcements),
    )
    return change, intents


def _begun(runner: Runner, change: Append, intents: Sequence[Outcome]) -> None:
    """Take note that the first write is stored."""
    runner.ledger.began(change)
    if intents:
        runner.wrote(intents)
    runner.writing = False


class _Looks:
    """How often a thread was looked at in vain."""

    def __init__(self, thread_id: str | None) -> None:
        self._thread_id = thread_id
        self._seen: str | None = ""
        self._idle = 0

    def saw(self, parent: Checkpoint | None) -> None:
        """Note the last end of the thread. Raises `StoreError` if it is the same again and again."""
        # Somebody was first, says the store. If nothing has changed after many looks, nobody was: without a bound this would go on
        # for ever.
        last = parent.id if parent is not None else None
        self._idle = self._idle + 1 if self._seen == last else 0
        if self._idle > IDLE:
            raise contradiction(self._thread_id)
        self._seen = last


IDLE: Final = 20
"""How often nothing may have changed though the store says that somebody was first: to be pruned in between takes a moment."""


def contradiction(thread_id: str | None) -> StoreError:
    """The error for a store that says again and again that somebody was first, and shows nobody."""
    return StoreError(
        f"thread {quoted_id(thread_id)}: the store says that another run has begun or ended there, and has none: what it holds"
        " contradicts itself, as that of a Redis does which takes keys away when memory is short. Nothing was begun"
    )
