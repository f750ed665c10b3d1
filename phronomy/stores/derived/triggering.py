"""Firing triggers with the store alone: events are sent to a run, and what has fired by itself is found.

An event fires a trigger by the same decision that a human makes on a question, in one write, so it fires one trigger once. Where none
waits for it yet, it is put into the log of the run, which keeps it until one does. Both writes name the length of the log: between the
look and the write, a run that begins to wait, or ends, has the sender look again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from phronomy.approvals.answers import check_key, misfit_of
from phronomy.errors import CheckpointError, CheckpointNotFound, ConfigurationError, InvalidDecision
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.ids import new_id
from phronomy.foundation.json_text import JsonError, JsonText, canonical, clean, parse
from phronomy.foundation.quoting import kept_id, quoted_id, quoted_name
from phronomy.records.calls import Arrived, Decided
from phronomy.records.chain import writers
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.records.principals import Principal
from phronomy.records.trigger_errors import NotASender, NotWaiting, TooManyEvents, TriggerFired, TriggerSuperseded
from phronomy.records.triggers import KeptEvent
from phronomy.rules.triggers import FIRED
from phronomy.rules.votes import names
from phronomy.stores.derived.changes import check_moved
from phronomy.stores.derived.deciding import decider, tell_of
from phronomy.stores.derived.listing import Waiting
from phronomy.stores.derived.people import as_known, as_met, check_known
from phronomy.stores.derived.room import MOST, has_place, size_of
from phronomy.stores.derived.voting import note_refusal
from phronomy.stores.derived.waits import check_in_time, firing, lost_to, waiting_on
from phronomy.stores.log.log import journal_entry
from phronomy.stores.rows import ENDED, Append, Behind, Branch, BranchFilter, Claim, holder_of

if TYPE_CHECKING:
    from phronomy.stores.base import Store

Early: TypeAlias = Literal["first", "always", "never"]
"""What becomes of an event that no trigger waits for: it is kept if none of its name has been there yet, or always, or never."""

LARGEST_KEPT: Final = 1_000_000
"""Characters that the events a run keeps for triggers to come have as JSON, all together: they are in each of its checkpoints."""

_EVENT: Final = "event"
"""The channel of a decision that an event makes, unless the sender names another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSent:
    """What became of an event that was sent: it has `fired` the trigger `pending_id`, or is `kept` until one waits for it.

    `id` is the id of the event, and `run_id` and `branch_id` say to what it was sent.
    """

    id: str
    status: Literal["fired", "kept"]
    run_id: str
    branch_id: str
    pending_id: str | None = None


# What both the sender and the worker ask


def may_send(store: Store, item: PendingApproval, by: Principal) -> bool:
    """Whether this principal is one of the senders of the event that is waited for. Raises `StoreError`."""
    senders = item.trigger.senders if item.trigger is not None else None
    # By the directory of the store, where that knows them: a role that was taken away an hour ago counts nowhere. And nobody may
    # where nobody is named, whatever a bearer has made of the record.
    if senders is None or not (senders.roles or senders.ids):
        return False
    who = as_known(store, by)
    return who is not None and names(senders, who)


def decision_by(item: PendingApproval, event: KeptEvent, at: datetime) -> Decision:
    """The decision that an event makes on the trigger that waits for it."""
    return Decision(
        pending_id=item.id,
        digest=item.digest,
        kind="respond",
        path=item.path,
        by=event.by,
        channel=event.channel or _EVENT,
        at=at,
        key=event.key,
        event=event.name,
        event_id=event.id,
    ).evolve(content=event.__dict__["content"])


def run_ended(store: Store, run_id: str) -> tuple[dict[str, Any], tuple[Principal | None, ...]] | None:
    """How a run, or the branch of a fork, has ended, as a `RunEnded`, and whose words its output is; None if it has not ended.

    Raises `StoreError`.
    """
    try:
        if (branch := _ended_branch(store, run_id)) is None:
            return None
        end = store.head(branch.id)[1] if branch.status == "completed" else None
    except CheckpointNotFound:
        return {"run_id": run_id, "status": "unknown"}, ()
    if end is None or end.output is None:
        return {"run_id": run_id, "status": branch.status, "output": None}, ()
    return {"run_id": run_id, "status": branch.status, "output": end.output}, writers(end)


def has_ended(store: Store, run_id: str) -> bool:
    """True if a run, or the branch of a fork, has ended or was deleted. Its log is not read."""
    try:
        return _ended_branch(store, run_id) is not None
    except CheckpointNotFound:
        return True
    # Nobody knows. Of the runs that wait for it, each waits on, and no other is kept from its turn.
    except CheckpointError:
        return False


def _ended_branch(store: Store, run_id: str) -> Branch | None:
    """The branch of a run, or of a fork, if it has ended. Raises `CheckpointNotFound` if there is none."""
    branch = next((each for each in store.select_branches(BranchFilter(run_id=run_id)) if each.id == run_id), None)
    branch = branch or store.lineage(branch_id=run_id).branch
    return branch if branch.status in ENDED else None


# Sending


def send_event(
    store: Store,
    run_id: str,
    name: str,
    payload: object,
    *,
    by: str | Principal,
    channel: str | None,
    key: str | None,
    early: Early,
) -> EventSent:
    """As `Store.send_event`."""
    given = decider(by, channel).without_claims()
    check_known(store, given)
    # Under the id that was given. A worker may look at it later: by then the sender may have been removed.
    known = as_known(store, given)
    who = as_met(store, given.evolve(listed=known is not None and known.listed))
    event = _event(store, name, payload, who, channel, key)
    if early not in get_args(Early):
        raise ConfigurationError(f"early is 'first', 'always' or 'never', not {quoted_name(early)}")
    if not isinstance(run_id, str) or not run_id:
        raise CheckpointNotFound("a run is named by its id, which is text", id="")
    seen: set[tuple[str, int, Claim | None]] = set()
    while True:
        branch, head = store.head(_branch_id(store, clean(run_id)))
        mail = _Mail(head)
        if (sent := mail.repeated(event)) is not None:
            return _receipt(branch, *sent)
        if branch.status in ENDED:
            raise NotWaiting(
                f"run {branch.run_id} is {branch.status}, and waits for no event any more. Nothing was sent",
                run_id=branch.run_id,
                event=event.name,
            )
        # After the log: what was listed or decided since that is read, the write below is refused for.
        waiting = waiting_on(store, branch)
        found = _addressed(store, branch, waiting, event)
        if found is not None:
            at = max(event.at, found.approval.requested_at)
            decision = decision_by(found.approval, event, at)
            change = firing(store, branch, found, waiting, Decided(decision=decision))
        else:
            change = _keeps(store, branch, mail, event, early)
        try:
            store.append(change)
        except (Behind, CheckpointNotFound):
            check_moved(change, seen)
            continue
        tell_of(store, branch)
        return _receipt(branch, event.id, found.approval.id if found is not None else None)


def _event(store: Store, name: str, payload: object, by: Principal, channel: str | None, key: str | None) -> KeptEvent:
    """The event that is sent. Raises `InvalidDecision`."""
    check_key(key)
    if not isinstance(name, str) or not clean(name):
        raise InvalidDecision("the name of an event is text that is not empty")
    try:
        content = canonical(payload)
        parse(content)
    except (JsonError, ValueError, TypeError, RecursionError):
        raise InvalidDecision(f"the payload of event {quoted_name(name)} is no JSON value. Nothing was sent") from None
    facts: dict[str, Any] = {"id": new_id("evt"), "name": clean(name), "by": by, "channel": channel}
    at = datetime.fromtimestamp(store.clock(), UTC)
    event: KeptEvent = KeptEvent(**facts, key=clean(key) if key is not None else None, at=at)
    return event.evolve(content=JsonText(content))


def _branch_id(store: Store, run_id: str) -> str:
    """The branch that a run id, or the id of a fork's branch, names. Raises `CheckpointNotFound`."""
    try:
        return store.lineage(branch_id=run_id).branch.id
    except CheckpointNotFound:
        raise CheckpointNotFound(
            f"the store knows no run {quoted_id(run_id)}: nothing was sent. It may be of another store or tenant, or deleted",
            id=kept_id(run_id),
        ) from None


class _Mail:
    """The events of a run, at its head: those that it keeps, and the decisions that events have made."""

    def __init__(self, head: Checkpoint) -> None:
        arrived = [each.event for each in head.journal if isinstance(each, Arrived)]
        decided = [each.decision for each in head.journal if isinstance(each, Decided)]
        self.head = head
        self.decisions = [each for each in (*head.decisions, *decided) if each.event is not None]
        used = {each.event_id for each in self.decisions}
        self.kept = [each for each in (*head.events, *arrived) if each.id not in used]

    def repeated(self, event: KeptEvent) -> tuple[str, str | None] | None:
        """The id and the trigger of the very same event, if it was sent before. Raises `InvalidDecision` if it was another one."""
        if event.key is None:
            return None
        content = event.__dict__["content"]
        same: list[tuple[str, str | None, bool]] = [
            (each.id, None, each.__dict__["content"] == content)
            for each in self.kept
            if (each.name, each.key, each.by.id) == (event.name, event.key, event.by.id)
        ]
        same += [
            (each.event_id or each.pending_id, each.pending_id, each.__dict__["content"] == content)
            for each in self.decisions
            if each.by is not None and (each.event, each.key, each.by.id) == (event.name, event.key, event.by.id)
        ]
        if not same:
            return None
        id, pending_id, is_same = same[-1]
        if not is_same:
            raise InvalidDecision(
                f"another event {quoted_name(event.name)} was sent under the same key: nothing was sent",
                pending_id=pending_id,
            )
        return id, pending_id

    def last(self, name: str) -> Decision | None:
        """The last decision on a trigger that waited for an event of this name."""
        return next((each for each in reversed(self.decisions) if each.event == name), None)


def _addressed(store: Store, branch: Branch, waiting: list[Waiting], event: KeptEvent) -> Waiting | None:
    """What waits for this event, and longest; None if nothing does.

    Raises `NotASender`, `InvalidDecision` if the payload does not fit, and `TriggerSuperseded` if its time is over.
    """
    every = [each.approval for each in waiting]
    named = [each for each in waiting if (of := each.approval.trigger) is not None and of.event == event.name]
    if not named:
        return None
    mine = [each for each in named if may_send(store, each.approval, event.by)]
    if not mine:
        item = named[0].approval
        error = NotASender(
            f"{quoted_id(event.by.id)} may not send event {quoted_name(event.name)} to run {branch.run_id}: the trigger"
            f" {item.id} names other senders. Nothing was sent",
            pending_id=item.id,
            by=event.by.id,
        )
        note_refusal(store, error, "respond", event.by, event.channel or _EVENT)
        raise error
    in_time = [each for each in mine if lost_to(each.approval, every, event.at) is None]
    if not in_time:
        check_in_time(mine[0], waiting, event.at)
    misfits = [misfit_of(each.approval, event.content) for each in in_time]
    if None not in misfits:
        raise InvalidDecision(
            f"the payload of event {quoted_name(event.name)} does not fit what {in_time[0].approval.id} waits for: {misfits[0]}."
            " Nothing was sent",
            pending_id=in_time[0].approval.id,
        )
    return in_time[misfits.index(None)]


def _keeps(store: Store, branch: Branch, mail: _Mail, event: KeptEvent, early: Early) -> Append:
    """The write that keeps an event for a trigger to come.

    Raises `NotWaiting`, `TriggerFired`, `TriggerSuperseded`, `TooManyEvents`.
    """
    of = f"event {quoted_name(event.name)} of run {branch.run_id}"
    if early == "never":
        raise NotWaiting(f"nothing waits for {of} now. Nothing was sent", run_id=branch.run_id, event=event.name)
    if early == "first" and (last := mail.last(event.name)) is not None:
        error = TriggerFired if last.kind in FIRED else TriggerSuperseded
        was = "has fired before" if last.kind in FIRED else f"is over: {last.reason or last.kind}"
        raise error(
            f"the trigger {last.pending_id} for {of} {was}. Nothing was sent: early='always' keeps an event for the next one",
            checkpoint_id=mail.head.id,
            pending_id=last.pending_id,
            decision=last,
        )
    _check_room(branch, mail, event, of)
    return Append(
        branch_id=branch.id,
        seq=branch.seq,
        holder=holder_of(branch, store.clock()),
        hands_over=False,
        entries=(journal_entry(Arrived(event=event), ""),),
    )


def _check_room(branch: Branch, mail: _Mail, event: KeptEvent, of: str) -> None:
    """Refuse an event if the run keeps no more, or no more of its sender. Raises `TooManyEvents`."""
    # Who may send an event is known once something waits for it, so strangers come here too. Nobody has more than is left for others.
    own = [each for each in mail.kept if each.by.id == event.by.id]
    if not has_place(len(mail.kept), len(own)):
        raise TooManyEvents(
            f"run {branch.run_id} keeps {len(mail.kept)} events that nothing waits for yet, {len(own)} of them of"
            f" {quoted_id(event.by.id)}, and no sender has more of the {MOST} places than are left for others: {of} was not sent"
        )
    if size_of((event, *mail.kept)) + size_of((event, *own)) > LARGEST_KEPT:
        raise TooManyEvents(
            f"the events that run {branch.run_id} keeps would have more than {LARGEST_KEPT:,} characters as JSON, or those of"
            f" {quoted_id(event.by.id)} more than are left for others: {of} was not sent. Send what names a large payload, such as its"
            " URL"
        )


def _receipt(branch: Branch, id: str, pending_id: str | None) -> EventSent:
    status: Literal["fired", "kept"] = "kept" if pending_id is None else "fired"
    return EventSent(id=id, status=status, run_id=branch.run_id, branch_id=branch.id, pending_id=pending_id)
