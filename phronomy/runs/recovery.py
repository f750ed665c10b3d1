"""Recovery: what lost workers left in a store, found and carried on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic

from phronomy.engine.spec import Spec
from phronomy.errors import CheckpointNotFound, ConfigurationError, PhronomyError, RunBusy
from phronomy.foundation.checks import is_count
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import quoted
from phronomy.observability.announcements import aannounce, announce
from phronomy.records.calls import Decided
from phronomy.records.result import Output, Result
from phronomy.stores.base import Store
from phronomy.stores.derived import reminders
from phronomy.stores.native import in_store
from phronomy.stores.rows import Branch, BranchFilter

if TYPE_CHECKING:
    from phronomy.runs.runs import Runs


@dataclass(frozen=True, kw_only=True)
class Recovery(Generic[Output]):
    """The outcome of one recovered run: its result, or the error with which it failed."""

    run_id: str
    branch_id: str
    result: Result[Output] | None = None
    error: PhronomyError | None = None


def check_limit(limit: object) -> None:
    """Refuse what is no number of runs. Raises `ConfigurationError`."""
    if not is_count(limit) or limit == 0:
        raise ConfigurationError(f"limit is a whole number, 1 or more, not {quoted(limit)}")


def found(store: Store, spec: Spec, limit: int) -> list[tuple[str, str]]:
    """The runs and branches of this agent whose worker is gone, or that wait for a decision that comes too late."""
    check_limit(limit)
    now = store.clock()
    left = abandoned(store, agent=spec.name)
    # What has lapsed is settled by whoever comes by. Nobody may come by for weeks, so recovery does.
    late = reminders.expired(store, now, limit, agent=spec.name)
    places = [(branch.run_id, branch.id) for branch in left[:limit]] + [(row.run_id, row.branch_id) for row in late]
    return list(dict.fromkeys(places))


def found_in(store: Store, run_id: str) -> list[Branch]:
    """The branches of one run that `found` would find, whichever agent it is of."""
    left = {branch.id for branch in abandoned(store, run_id=run_id)} | late_in(store, run_id, store.clock())
    return [branch for branch in store.branches(run_id=run_id) if branch.id in left]


def late_in(store: Store, run_id: str, now: float) -> set[str]:
    """The branches of a run in which a request has expired, or a trigger has fired by itself."""
    return {row.branch_id for row in reminders.expired(store, now, run=run_id)}


def decided_at(store: Store, branch_id: str) -> list[datetime]:
    """When the decisions on a branch were taken that no checkpoint shows yet: nobody has carried them out."""
    return [each.decision.at for each in store.head(branch_id)[1].journal if isinstance(each, Decided)]


def abandoned(store: Store, *, run_id: str | None = None, agent: str | None = None) -> list[Branch]:
    """The branches with unfinished work, of a run, of an agent or of all, whatever their status; those that cannot be read come last.

    Their worker is gone, or entries were left for a worker that had just given up its claim. Not among them are forks
    that nobody has driven yet, and runs that somebody drives by `step`.
    """
    # Two kinds of left work: a run whose lease is over, and a decision that was put into the log of a worker which had just let go.
    running, handed = let_go_of(store, store.clock(), run_id)
    # By the name of the agent: another one has other tools, and would take each of these runs for changed.
    left = {each.id: each for each in (*running, *handed) if agent is None or each.agent == agent}
    found = {each.id: each for each in handed if each.id in left}
    unread: dict[str, Branch] = {}
    # `running` with no owner and an empty journal is a run that somebody goes through step by step, or a fork that nobody has
    # driven. To carry it on would run what nobody asked for.
    for branch in left.values():
        if branch.owner is not None or branch.id in found:
            found[branch.id] = branch
            continue
        try:
            if store.head(branch.id)[1].journal:
                found[branch.id] = branch
        except CheckpointNotFound:  # deleted meanwhile
            continue
        # A row that cannot be read costs its own run, and never the others their turn. Whoever carries it on meets the error, and
        # tells it. It comes last, so that many of them leave room for the rest.
        except PhronomyError:
            unread[branch.id] = branch
    return [*(each for id, each in left.items() if id in found), *unread.values()]


def let_go_of(store: Store, now: float, run_id: str | None = None) -> tuple[list[Branch], list[Branch]]:
    """The branches, of a run or of all, that are running and held by nobody, and those in which something was left for somebody."""
    # The store compares with its own clock. By the clock of a worker that is a minute ahead, a lease would be over that is not.
    running = store.select_branches(BranchFilter(run_id=run_id, abandoned_at=now))
    handed = store.select_branches(BranchFilter(run_id=run_id, handed=True))
    return running, [each for each in handed if not each.is_held(now)]


def is_left(store: Store, place: tuple[str, str]) -> bool:
    """Whether nobody has continued the run since it was found."""
    run_id, branch_id = place
    # The same two questions as in `found`, asked of this run alone. A run that was carried on meanwhile, and has stopped anew, is
    # not to be taken up again here: it waits for somebody else, and nobody has left it.
    now = store.clock()
    running, handed = let_go_of(store, now, run_id)
    return branch_id in late_in(store, run_id, now) | {branch.id for branch in (*running, *handed)}


def carried_on(agent: Runs[Any, Output], place: tuple[str, str], options: Any) -> Recovery[Output] | None:
    """What became of a run that is carried on; None if another worker has it, or has carried it on meanwhile."""
    run_id, branch_id = place
    # The list may be minutes old, with many runs before this one. Two workers that sweep at once take turns by this, and by the
    # claim.
    if not is_left(agent.store, place):
        return None
    try:
        return Recovery(run_id=run_id, branch_id=branch_id, result=agent.recover(branch_id, **options))
    # Another worker was quicker. That is what was wanted.
    except RunBusy:
        return None
    # One run that cannot go on must not keep the others from it: its error is in the list.
    except PhronomyError as error:
        return Recovery(run_id=run_id, branch_id=branch_id, error=error)


async def acarried_on(agent: Runs[Any, Output], place: tuple[str, str], options: Any) -> Recovery[Output] | None:
    """As `carried_on`."""
    run_id, branch_id = place
    if not await in_store(agent.store, is_left, agent.store, place):
        return None
    try:
        return Recovery(run_id=run_id, branch_id=branch_id, result=await agent.arecover(branch_id, **options))
    except RunBusy:
        return None
    except PhronomyError as error:
        return Recovery(run_id=run_id, branch_id=branch_id, error=error)


def remind(store: Store, spec: Spec, limit: int) -> None:
    """Announce the reminders and escalations that are due, at once where nobody holds the run, else with what its worker announces."""
    check_limit(limit)
    for branch_id in reminders.remind(store, limit, agent=spec.name):
        if spec.announcements and not _is_held(store, branch_id):
            announce(store, branch_id, spec.announcements)


async def aremind(store: Store, spec: Spec, limit: int) -> None:
    """As `remind`."""
    check_limit(limit)
    for branch_id in await in_store(store, reminders.remind, store, limit, agent=spec.name):
        if spec.announcements and not await in_store(store, _is_held, store, branch_id):
            await aannounce(store, branch_id, spec.announcements)


def _is_held(store: Store, branch_id: str) -> bool:
    return store.lineage(branch_id=branch_id).branch.is_held(store.clock())


def tidy(store: Store, spec: Spec, limit: int) -> list[Recovery[Any]]:
    """Make the missing announcements, delete the runs that are older than the store's `ttl`, and documents that have expired.

    Returns the failures: branches of which nothing can be announced, since they cannot be read.
    """
    # After the runs were carried on, so that what they came to is told as well (law 8).
    failed: list[Recovery[Any]] = []
    for branch in unannounced(store, spec):
        if (error := announce(store, branch.id, spec.announcements)) is not None:
            failed.append(Recovery(run_id=branch.run_id, branch_id=branch.id, error=error))
        elif (limit := limit - 1) == 0:
            break
    # Last of all: what is deleted here can no longer be announced. With a ttl, the documents go as well.
    if store.ttl is not None:
        store.prune(older_than=store.ttl)
    else:
        store.expire_documents()
    return failed


async def atidy(store: Store, spec: Spec, limit: int) -> list[Recovery[Any]]:
    """As `tidy`."""
    failed: list[Recovery[Any]] = []
    for branch in await in_store(store, unannounced, store, spec):
        if (error := await aannounce(store, branch.id, spec.announcements)) is not None:
            failed.append(Recovery(run_id=branch.run_id, branch_id=branch.id, error=error))
        elif (limit := limit - 1) == 0:
            break
    if store.ttl is not None:
        await in_store(store, store.prune, older_than=store.ttl)
    else:
        await in_store(store, store.expire_documents)
    return failed


def with_failures(done: Iterable[Recovery[Any] | None], failed: Sequence[Recovery[Any]]) -> list[Recovery[Any]]:
    """The results of the runs that were carried on, then the failures of others."""
    found = [each for each in done if each is not None]
    known = {each.branch_id for each in found}
    return found + [each for each in failed if each.branch_id not in known]


def unannounced(store: Store, spec: Spec) -> list[Branch]:
    """The branches of this agent, held by nobody, of which not everything was announced."""
    if not spec.announcements:
        return []
    now = store.clock()
    # Whoever holds a branch announces what it writes there. To do it here as well would tell the same thing twice, out of order.
    branches = store.select_branches(BranchFilter(unannounced=True))
    return [each for each in branches if each.agent == spec.name and not each.is_held(now)]
