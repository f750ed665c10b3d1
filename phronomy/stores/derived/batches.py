"""Deciding several requests in one call, with the store alone: each by itself, or all of them in one write.

All or none is the compare-and-set of one decision, for several branches at once. Every request is read and checked, the decisions on
one branch become one change of it, and the store writes all changes or none. If it says that a branch has changed, nothing was
written, and everything is read and checked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Final

from phronomy.errors import AlreadyVoted, CheckpointNotFound, InvalidDecision, NotAnApprover, PhronomyError, StoreError
from phronomy.foundation.dataclasses import dataclass
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Answer
from phronomy.records.principals import Principal
from phronomy.stores.derived.changes import check_batch, check_moved
from phronomy.stores.derived.deciding import check_given, decide, decided_before, decider, propose, tell_of
from phronomy.stores.derived.requests import Request, request, waiting_with_branch
from phronomy.stores.derived.voting import is_repeated, note_refusal
from phronomy.stores.native import stands_for
from phronomy.stores.rows import Append, Behind, Branch, Claim

if TYPE_CHECKING:
    from phronomy.stores.base import Store

MOST: Final = 1000
"""Requests that are decided in one call, at most. Each is read by itself, and the write of all of them is one transaction."""

_LISTS: Final = tuple(each.name for each in fields(Append) if each.default == ())
"""The fields of a change that list what it writes. All of them, so that nothing is lost of whatever a decision comes to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer to one of several requests: `store.decide_all`.

    `digest` is that of the request which was shown, and `key` an idempotency key, as in `store.decide`. Raises
    `InvalidDecision` for what cannot be an answer.
    """

    pending_id: str
    digest: str
    answer: Answer = field(repr=False)
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.pending_id, str):
            raise InvalidDecision(f"the pending id is text, not {type(self.pending_id).__name__}")
        try:
            check_given(self.answer, self.digest, self.key)
        except InvalidDecision as error:
            raise InvalidDecision(f"{error} (pending {self.pending_id})", pending_id=self.pending_id) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDecision:
    """What came of one of several requests that were decided in one call.

    `request` is the request as it stands after the decision, or None if that was refused. Then `error` is the error that
    `store.decide` would have raised.
    """

    pending_id: str
    request: Request | None = None
    error: PhronomyError | None = None


def append_each(store: Store, changes: Sequence[Append]) -> list[Branch]:
    """`append_all` of a store that has no such primitive: one change is an `append`. Raises `StoreError` for several."""
    ordered = check_batch(changes)
    if len(ordered) > 1:
        raise _no_batches(store)
    return [store.append(change) for change in ordered]


def decide_all(
    store: Store, answers: Sequence[Answered], *, by: str | Principal, channel: str | None, all_or_none: bool
) -> list[BatchDecision]:
    """As `Store.decide_all`."""
    who = decider(by, channel)
    _check_batch(answers)
    if all_or_none:
        return _together(store, answers, by=who, channel=channel)
    return [_alone(store, each, by=who, channel=channel) for each in answers]


def _check_batch(answers: Sequence[Answered]) -> None:
    """Refuse a batch that is no list, is too long, or answers a request twice. Raises `InvalidDecision`."""
    if not isinstance(answers, Sequence) or isinstance(answers, str):
        raise InvalidDecision(
            f"decide_all takes a list of Answered(pending_id=..., ...), not {type(answers).__name__}: nothing was decided"
        )
    if len(answers) > MOST:
        raise InvalidDecision(
            f"{MOST:,} requests at most are decided in one call, not {len(answers):,}: nothing was decided. Make several calls"
        )
    seen: set[str] = set()
    for each in answers:
        if not isinstance(each, Answered):
            raise InvalidDecision(f"decide_all takes Answered(pending_id=..., ...), not {type(each).__name__}")
        if each.pending_id in seen:
            raise InvalidDecision(
                f"pending {each.pending_id} is answered twice in one call: nothing was decided",
                pending_id=each.pending_id,
            )
        seen.add(each.pending_id)


def _alone(store: Store, each: Answered, *, by: Principal, channel: str | None) -> BatchDecision:
    """What comes of one request that is decided by itself."""
    # Of a store that fails as well: to raise it would say nothing of those before it, which are decided.
    try:
        found = decide(store, each.pending_id, each.answer, by=by, digest=each.digest, channel=channel, key=each.key)
    except PhronomyError as error:
        return BatchDecision(pending_id=each.pending_id, error=error)
    return BatchDecision(pending_id=each.pending_id, request=found)


def _together(store: Store, answers: Sequence[Answered], *, by: Principal, channel: str | None) -> list[BatchDecision]:
    """What comes of requests that are decided all or none. Raises as `decide`, with nothing decided."""
    seen: set[tuple[str, int, Claim | None]] = set()
    while True:
        found, branches, changes = _checked(store, answers, by=by, channel=channel)
        try:
            _write(store, changes)
        except CheckpointNotFound:  # one was deleted a moment ago: what is left of it is in the trail
            continue
        except Behind as behind:
            check_moved(next((change for change in changes if change.branch_id == str(behind)), changes[0]), seen)
            continue
        for branch in branches:
            tell_of(store, branch)
        return [BatchDecision(pending_id=each.pending_id, request=found[each.pending_id]) for each in answers]


def _checked(
    store: Store, answers: Sequence[Answered], *, by: Principal, channel: str | None
) -> tuple[dict[str, Request], list[Branch], list[Append]]:
    """The requests as they are once all is written, the branches as they are before, and the changes that do it.

    Raises as `decide`, for the first request that is refused.
    """
    found: dict[str, Request] = {}
    branches: dict[str, Branch] = {}
    heads: dict[str, tuple[Branch, Checkpoint]] = {}
    changes: dict[str, Append] = {}
    for each in answers:
        waits = waiting_with_branch(store, each.pending_id)
        if waits is None:
            found[each.pending_id] = decided_before(store, each.pending_id, each.answer, by, each.digest, each.key)
            continue
        # All of a branch are decided on the branch as it was read first. If it has changed between two reads, the write finds
        # that out.
        waiting, branch = waits[0], branches.setdefault(waits[1].id, waits[1])
        try:
            proposal = propose(
                store,
                waiting,
                branch,
                each.answer,
                by=by,
                digest=each.digest,
                channel=channel,
                key=each.key,
                heads=heads,
            )
        except AlreadyVoted:
            if not is_repeated(store, each.pending_id, each.answer, each.digest, by, each.key):
                raise
            found[each.pending_id] = request(store, each.pending_id)
            continue
        except NotAnApprover as error:
            note_refusal(store, error, each.answer.kind, by, channel)
            raise
        found[each.pending_id] = proposal.found
        before = changes.get(branch.id)
        changes[branch.id] = proposal.change if before is None else _merged(before, proposal.change)
    return found, [*branches.values()], [*changes.values()]


def _merged(first: Append, second: Append) -> Append:
    """Two changes of one branch, both made for the same state of it, as one: it has the right and the place of the first.

    Raises `InvalidDecision` if the first decides what the second is about: one of two triggers of a wait.
    """
    if twice := set(first.closed).intersection(second.closed):
        raise InvalidDecision(
            f"pending {', '.join(sorted(twice))} is decided twice, since it is of a wait that another decision ends: nothing was"
            " decided. Decide one of them",
            pending_id=min(twice),
        )
    lists = {name: getattr(first, name) + getattr(second, name) for name in _LISTS}
    # A vote hands nothing over, and a decision beside it does.
    return replace(first, **lists, hands_over=first.hands_over or second.hands_over)


def _write(store: Store, changes: Sequence[Append]) -> None:
    """Write all changes or none. Raises as `append_all`."""
    if len(changes) <= 1:
        for change in changes:
            store.append(change)
    # Somebody may have put an `append` before the store's own, to encrypt what is written or to count it. The batch must not pass
    # that by.
    elif stands_for(store, "append_all", ("append",)):
        store.append_all(changes)
    else:
        raise _no_batches(store)


def _no_batches(store: Store) -> StoreError:
    """The error for a store that cannot write several changes at once."""
    return StoreError(
        f"{type(store).__name__} cannot write to several runs all or none: it was written for an earlier release, or its append"
        " was changed and its append_all was not. Nothing was written. Have it implement append_all, or decide the requests"
        " without all_or_none"
    )
