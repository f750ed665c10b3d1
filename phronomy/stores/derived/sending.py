"""Sending a message to a run that waits or works: it is stored in one write, and whoever drives the run takes it up.

Nothing is claimed, nothing is run, and no agent's code is needed. A message is an entry of the log as a decision is: a worker that
holds the run finds it with its next write, which the store refuses for it, and plans anew. So it cannot record an end without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from phronomy.approvals.answers import check_key
from phronomy.errors import (
    CheckpointAlreadyResumed,
    ConfigurationError,
    IllegalOutcome,
    InvalidDecision,
    TooManyMessages,
)
from phronomy.foundation.ids import new_id
from phronomy.foundation.quoting import quoted_id
from phronomy.records.audit import message_record
from phronomy.records.calls import Added
from phronomy.records.checkpoint import Checkpoint, begun_with
from phronomy.records.messages import Message
from phronomy.records.principals import Principal, as_principal
from phronomy.records.record import digest_of
from phronomy.rules.transitions import apply, current
from phronomy.stores.derived.changes import check_moved
from phronomy.stores.derived.deciding import tell_of
from phronomy.stores.derived.people import admit
from phronomy.stores.derived.room import MOST, has_place, size_of
from phronomy.stores.log.log import journal_entry, pending_row, trail_row
from phronomy.stores.rows import ENDED, Append, Behind, Branch, Claim, holder_of

if TYPE_CHECKING:
    from phronomy.stores.base import Store

LARGEST_UNREAD: Final = 32_000_000
"""Characters that the messages of a run which its model has not read yet have as JSON, all together. They may have images."""


def send(
    store: Store,
    branch_id: str,
    message: Message,
    *,
    by: str | Principal | None,
    channel: str | None,
    id: str | None,
    guarded: bool = False,
) -> Checkpoint:
    """As `Store.send`. With `guarded`, input guardrails look at it also if the run began with none."""
    check_key(channel, "channel")
    check_key(id, "id")
    if _is_empty(message):
        raise InvalidDecision("the message is empty: nothing was sent")
    who = admit(store, as_principal(by))
    sent = Added(message=message, id=id if id is not None else new_id("msg"), by=who, at=_now(store))
    seen: set[tuple[str, int, Claim | None]] = set()
    while True:
        branch, head = store.head(branch_id)
        if id is not None and _is_stored(store, branch, sent):
            return head
        change = _change(store, branch, head, sent, channel, guarded)
        try:
            store.append(change)
        except Behind:
            check_moved(change, seen)
            continue
        tell_of(store, branch)
        return store.head(branch.id)[1]


def _is_empty(message: Message) -> bool:
    """True if a message says nothing: it has no text, and nothing but text."""
    parts = message.content
    return not message.text and (isinstance(parts, str) or all(part["type"] == "text" for part in parts))


def _now(store: Store) -> datetime:
    return datetime.fromtimestamp(store.clock(), UTC)


def _is_stored(store: Store, branch: Branch, sent: Added) -> bool:
    """True if this very message is stored already. Raises `InvalidDecision` if its id is that of another one."""
    # By the trail, which outlives the run, and is written with the message.
    for record in store.audit(run_id=branch.run_id):
        if (record.kind, record.branch_id, record.key) != ("message", branch.id, sent.id):
            continue
        first, second = ((each.by.id, each.by.kind) if each.by is not None else None for each in (record, sent))
        digest = digest_of(sent.message.json_text("content"))
        if (first, record.content_digest) != (second, digest):
            raise InvalidDecision(
                f"message {quoted_id(sent.id or '')} of run {branch.run_id} is another one: give this one an id of its own."
                " Nothing was sent"
            )
        return True
    return False


def _change(store: Store, branch: Branch, head: Checkpoint, sent: Added, channel: str | None, guarded: bool) -> Append:
    """The write: the message in the log of the branch, for whoever drives the run now or next."""
    if head.kind != "agent":
        raise ConfigurationError(
            f"run {branch.run_id} is of {head.kind} {head.agent.name!r}, which has no conversation to send a message to:"
            " decide what waits, or change its state with modify_state=. Nothing was sent"
        )
    state = current(head)
    sent = sent.evolve(guarded=guarded or bool(begun_with(state).get("input")), at=_now(store))
    try:
        after = apply(state, sent)
    except IllegalOutcome:
        ended = branch.status in ENDED or state.ended is not None
        raise CheckpointAlreadyResumed(
            f"run {branch.run_id} {'has ended' if ended else 'is ending'}, so nobody would read the message: begin a run with it on"
            " the same thread. Nothing was sent",
            checkpoint_id=head.id,
            progress="ended" if ended else "running" if branch.is_held(store.clock()) else "unknown",
        ) from None
    _check_room(branch, (*state.unread, *state.added), sent)
    # Where somebody who wrote may not approve, what waits is listed anew with them.
    known = {item.id: item for item in state.pending}
    listed = [item for item in after.pending if item != known.get(item.id)]
    return Append(
        branch_id=branch.id,
        seq=branch.seq,
        holder=holder_of(branch, store.clock()),
        hands_over=False,
        entries=(journal_entry(sent, ""),),
        closed=tuple(item.id for item in listed),
        opened=tuple(pending_row(item, branch, head.id, branch.label) for item in listed),
        audit=(trail_row(message_record(state, sent, channel)),),
    )


def _check_room(branch: Branch, kept: Sequence[Added], sent: Added) -> None:
    """Refuse a message if the model has so many left to read, or so many of its sender. Raises `TooManyMessages`."""
    sender = sent.by.id if sent.by is not None else None
    own = [each for each in kept if (each.by.id if each.by is not None else None) == sender]
    who = quoted_id(sender) if sender is not None else "nobody who has said a name"
    if not has_place(len(kept), len(own)):
        raise TooManyMessages(
            f"run {branch.run_id} has {len(kept)} messages that its model has not read yet, {len(own)} of them of {who}, and no sender"
            f" has more of the {MOST} places than are left for others: nothing was sent. Send it once the run has gone on"
        )
    if size_of((sent, *kept)) + size_of((sent, *own)) > LARGEST_UNREAD:
        raise TooManyMessages(
            f"the messages that the model of run {branch.run_id} has not read yet would have more than {LARGEST_UNREAD:,} characters"
            f" as JSON, or those of {who} more than are left for others: nothing was sent. Send a URL of what is large"
        )
