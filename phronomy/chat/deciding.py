"""What a click comes to: who it was, whether it counts, and what they are told.

The decision is made by `Store.decide`, under a key that is the same for each click of the same person on the same request. So the same
answer, however often and through whichever message it comes, is recorded once and answered alike. What was sent twice by a platform
needs no other memory.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from phronomy.chat.cards import said_of
from phronomy.chat.channel import Action, moment
from phronomy.errors import (
    AlreadyVoted,
    CheckpointAlreadyResumed,
    InvalidDecision,
    NotAnApprover,
    RequestExpired,
    UnknownPending,
    UnreadableRow,
)
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.suspicious_letters import escaped
from phronomy.records.decisions import SAID, Answer, Approve, DecisionKind, Reject, Respond, Skip
from phronomy.records.principals import Principal
from phronomy.stores.derived.standing import Way, standing_of, tallies_of
from phronomy.stores.derived.voting import note_refusal

if TYPE_CHECKING:
    from phronomy.people import Directory
    from phronomy.stores.base import Store
    from phronomy.stores.derived.requests import Request
    from phronomy.tokens import Token

_log = logging.getLogger("phronomy")

KINDS: Final[Mapping[Action, DecisionKind]] = {
    "approve": "approve",
    "edit": "approve",
    "reject": "reject",
    "reason": "reject",
    "respond": "respond",
    "skip": "skip",
}
"""The kind of decision that each action leads to."""

WAYS: Final[Mapping[Action, Way]] = {
    "approve": "approve",
    "edit": "edit",
    "reject": "reject",
    "reason": "reject",
    "respond": "respond",
    "skip": "skip",
}
"""The way to answer that each action is."""

_OVER: Final = "This request is over: its run has ended, or was deleted."


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of an answer. `notice` is told to the person alone. `wrong` says that the answer itself is to be mended."""

    notice: str | None = None
    wrong: bool = False


def plain_answer(action: Action) -> Answer:
    """The answer of a button that opens no form."""
    return Approve() if action == "approve" else Skip() if action == "skip" else Reject()


def person_behind(directory: Directory, alias: str) -> Principal | None:
    """The principal whom a directory knows by this alias; None for nobody, and for an alias that it cannot look up.

    None too for somebody whose row cannot be read; the log names it.
    """
    try:
        return directory.resolve(alias) if len(alias) <= 500 else None
    except UnreadableRow as error:
        _log.warning("%s", error)
        return None


def refuse_stranger(store: Store, token: Token, action: Action, alias: str, channel: str) -> str:
    """Have the audit trail say that somebody unknown has clicked; returns what they are told."""
    who = Principal(id=alias[:500])
    error = NotAnApprover("nobody is known by this id", pending_id=token.pending_id, by=who.id)
    note_refusal(store, error, KINDS[action], who, channel)
    return f"Nothing was decided: nobody is known here as {escaped(alias[:100])}. Ask whoever runs this to add you."


def may_begin(store: Store, token: Token, action: Action, by: Principal, channel: str) -> Request | str:
    """The request for which somebody may open a form, or why they may not. A refusal is in the audit trail. Raises `StoreError`."""
    try:
        request = store.request(token.pending_id)
    except UnknownPending:
        return _OVER
    if request.status != "pending":
        return _standing_words(request, channel)
    if request.approval.digest != token.digest:
        return "Something else waits here by now. Nothing was decided: see the newer message."
    standing = standing_of(store, request.approval, by)
    if WAYS[action] in standing.answers:
        return request
    if standing.why_not == "voted":
        return "You have voted on this request already."
    if standing.why_not == "not_an_approver":
        error = NotAnApprover("may not decide", pending_id=token.pending_id, by=by.id)
        note_refusal(store, error, KINDS[action], by, channel)
        return f"You may not decide this request. {escaped(standing.said or '')[:400]}".strip()
    return escaped(standing.said)[:400] if standing.said else "This request does not take such an answer from you."


def decide(store: Store, token: Token, answer: Answer, by: Principal, channel: str) -> Verdict:
    """Record an answer, and say what came of it. Raises `StoreError`."""
    key = "chat:" + hashlib.sha256(f"{token.pending_id}\n{by.id}".encode("utf-8", "surrogatepass")).hexdigest()[:40]
    try:
        request = store.decide(token.pending_id, answer, by=by, digest=token.digest, channel=channel, key=key)
    except NotAnApprover:
        return Verdict(notice=_refused(store, token, by))
    except AlreadyVoted:
        return _voted_before(store, token, answer, by)
    except CheckpointAlreadyResumed as error:
        first = error.decision
        if first is None or first.by is None:
            return Verdict(notice=f"Nothing was decided: {_OVER}")
        if first.by.id == by.id and first.kind == _kind(answer) and _is_plain(answer) and first.args is None:
            return Verdict()
        if first.by.id == by.id:
            return Verdict(notice=f"You were first: {said_of(first, channel)}. What you sent now changes nothing.")
        return Verdict(notice=f"Somebody was first: {said_of(first, channel)}. Your answer changes nothing.")
    except RequestExpired:
        return Verdict(notice="Nothing was decided: the time of this request is over.")
    except UnknownPending:
        return Verdict(notice=_OVER)
    except InvalidDecision as error:
        return _invalid(store, token, error)
    if request.status == "pending":
        return Verdict(notice=f"Your vote counts: {_stands(store, request)}.")
    return Verdict()


def _refused(store: Store, token: Token, by: Principal) -> str:
    """The answer to somebody whose decision does not count."""
    try:
        said = standing_of(store, store.request(token.pending_id).approval, by).said
    except UnknownPending:
        return _OVER
    return f"Nothing was decided. {escaped(said or 'You may not decide this request.')[:400]}"


def _voted_before(store: Store, token: Token, answer: Answer, by: Principal) -> Verdict:
    """The same vote again is told what it was told; another one, that votes stay."""
    try:
        request = store.request(token.pending_id)
    except UnknownPending:
        return Verdict(notice=_OVER)
    mine = next((vote for vote in request.approval.votes if by.id in (vote.by.id, vote.person.id)), None)
    if mine is not None and mine.by.id == by.id and mine.kind == _kind(answer):
        return Verdict(notice=f"Your vote counts: {_stands(store, request)}.")
    said = f"{SAID[mine.kind]}, {moment(mine.at)}" if mine is not None else "voted"
    who = "You have" if mine is None or mine.by.id == by.id else f"{escaped(mine.by.name or mine.by.id)[:80]} has"
    return Verdict(notice=f"{who} {said}. A vote cannot be changed.")


def _invalid(store: Store, token: Token, error: InvalidDecision) -> Verdict:
    try:
        now = store.request(token.pending_id).approval.digest
    except UnknownPending:
        return Verdict(notice=_OVER)
    if now != token.digest:
        return Verdict(notice="Something else waits here by now. Nothing was decided: see the newer message.")
    # The error is for programs, which know requests by their ids. Some of them say themselves that nothing was decided.
    said = str(error).replace(f"pending {token.pending_id}", "this request")
    told = said if "othing was decided" in said else f"Nothing was decided: {said}"
    return Verdict(notice=f"{told[:1].upper()}{escaped(told[1:])[:600]}", wrong=True)


def _standing_words(request: Request, channel: str) -> str:
    if request.decision is not None and request.decision.by is not None:
        return f"This request is decided: {said_of(request.decision, channel)}."
    return "Nothing was decided: the time of this request is over." if request.status == "expired" else _OVER


def _stands(store: Store, request: Request) -> str:
    return ", ".join(f"{each.counted} of {each.needed}" for each in tallies_of(store, request.approval))


def _kind(answer: Answer) -> DecisionKind:
    match answer:
        case Approve():
            return "approve"
        case Reject():
            return "reject"
        case Respond():
            return "respond"
        case Skip():
            return "skip"


def _is_plain(answer: Answer) -> bool:
    """Whether an answer says nothing beside its kind, so that two of them are the same."""
    return isinstance(answer, Skip) or (isinstance(answer, Approve) and answer.args is None) or answer == Reject()
