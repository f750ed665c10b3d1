"""Where a request stands, for the person who looks at it: one state, what it is called, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from phronomy.errors import PhronomyError
from phronomy.foundation.dataclasses import dataclass
from phronomy.inbox.pages.words import DECIDED, THEN, WHY_NOT
from phronomy.inbox.service import Shown
from phronomy.records.approvers import Vote
from phronomy.records.decisions import Decision, PendingApproval, Then
from phronomy.records.principals import Principal

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit

StateName: TypeAlias = Literal[
    "pending",
    "partly_voted",
    "voted",
    "may_not",
    "expired",
    "withdrawn",
    "recorded",
    "set_aside",
    "carrying_out",
    "done",
    "not_run",
    "failed",
    "unknown",
    "asked_again",
]
"""The states of a request. The first four wait; `recorded`, `set_aside` and `carrying_out` are on their way; the others are settled."""

Tone: TypeAlias = Literal["calm", "good", "warn", "bad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A state as it is shown. `title` is its sentence, `text` says more.

    `follows` says that something will happen without this person: the page looks again by itself. `next` is the id of the request that
    stands in its place.
    """

    name: StateName
    title: str
    text: str = ""
    tone: Tone = "calm"
    follows: bool = False
    next: str | None = None

    @property
    def waits(self) -> bool:
        """Whether the request still waits for a person."""
        return self.name in ("pending", "partly_voted", "voted", "may_not")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Who said what, for the line above the outcome. `mine`: the person who looks. `then` is what they chose to follow a no."""

    what: str
    mine: bool
    decision: Decision
    then: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteShown:
    """A vote as it is shown. `counts` says that it is for what is asked now."""

    vote: Vote
    mine: bool
    what: str
    counts: bool


def is_me(visit: Visit, who: Principal | None) -> bool:
    """Whether this is the person who looks."""
    me = visit.identity.principal
    return who is not None and (who.id, who.kind) == (me.id, me.kind)


def state_of(visit: Visit, shown: Shown, again: PendingApproval | None = None) -> State:
    """The state of a request; `again` is the request in its place, if there is one that can be read."""
    found = shown.request
    decision = found.decision
    match found.status:
        case "pending":
            return _waiting(visit, shown)
        case "expired":
            return _expired()
        case "asked_again":
            if again is not None and again.why == "outcome_unknown":
                return State(
                    name="unknown",
                    title="It is not known whether this took effect",
                    text="The worker that carried it out was lost. Look where it should have taken effect, then decide how to go on.",
                    tone="bad",
                    next=found.asked_again,
                )
            return State(
                name="asked_again",
                title="It is asked again",
                text=(again.reason or "") if again is not None else "",
                tone="warn",
                next=found.asked_again,
            )
        case "decided" if decision is not None and decision.kind in ("cancel", "supersede"):
            return _withdrawn()
        case "decided" if decision is not None and decision.kind == "expire":
            return _expired()
        case "decided":
            return _recorded(decision)
        case "set_aside":
            return State(
                name="set_aside",
                title="This waits for an operator",
                text=f"The decision is recorded, and could not be carried out: {found.set_aside}.",
                tone="warn",
                follows=True,
            )
        case "running":
            return State(name="carrying_out", title="It is being carried out", follows=True)
        case "settled":
            return _settled(shown)


def _waiting(visit: Visit, shown: Shown) -> State:
    standing = shown.standing
    if standing.why_not == "voted":
        return State(name="voted", title="Your vote is in", text="Others have to follow.", tone="good", follows=True)
    if not standing.answers:
        # Whom the request asks for is told once: below, with how the votes stand.
        asked = f"Asked for: {'; '.join(shown.who)}."
        text = (standing.said or "").removesuffix(asked).strip() or WHY_NOT[standing.why_not or "not_offered"]
        return State(name="may_not", title="You can read this, not decide it", text=text, follows=True)
    if not visit.may("decide"):
        text = "You are signed in to read. Ask whoever runs this server for the right to decide."
        return State(name="may_not", title="You can read this, not decide it", text=text, follows=True)
    if shown.request.approval.votes:
        return State(name="partly_voted", title="Others have voted", text="Yours is asked for as well.")
    return State(name="pending", title="It waits for a decision")


def _expired() -> State:
    return State(
        name="expired", title="The time to decide is over", text="Nobody decided. A clock never approves.", tone="warn"
    )


def _withdrawn() -> State:
    return State(
        name="withdrawn", title="This was withdrawn", text="Its run was cancelled, or went on without it.", tone="warn"
    )


def _recorded(decision: Decision | None) -> State:
    kind = decision.kind if decision is not None else "approve"
    if decision is not None and decision.to_check:
        text = "The agent's own code checks whether you may decide this. Until then it does not count."
        return State(name="recorded", title="It is recorded, and is checked", text=text, follows=True)
    ends = decision is not None and decision.then == "end"
    text = {
        "approve": "It waits for a worker to carry it out.",
        "reject": "Nothing will run, and the whole run ends here."
        if ends
        else "Nothing will run. The agent will be told.",
        "respond": "The agent will get this answer.",
        "skip": "The run will go on without it.",
    }.get(kind, "")
    return State(name="recorded", title="It is recorded", text=text, tone="good", follows=True)


def _settled(shown: Shown) -> State:
    result = shown.request.result
    kind = result.kind if result is not None else None
    match kind:
        case "completed":
            return State(name="done", title="It is done", tone="good")
        case "failed":
            return State(name="failed", title="It failed", text="It ran, and ended with an error.", tone="bad")
        case "invalid":
            return State(name="failed", title="It did not run", text="The values do not fit the tool.", tone="bad")
        case "expired":
            return _expired()
        case "cancelled" | "superseded":
            return _withdrawn()
        case "responded":
            return State(name="done", title="The agent got the answer", tone="good")
        case "rejected" if _then(shown) == "end":
            return State(name="not_run", title="Nothing ran, and the run ended here", tone="good")
        case "rejected":
            return State(name="not_run", title="Nothing ran. The agent was told", tone="good")
        case "skipped":
            return State(name="not_run", title="It was skipped", tone="good")
        case None:
            return State(name="done", title="The run went on", tone="good")


def _then(shown: Shown) -> Then | None:
    decision = shown.request.decision
    return decision.then if decision is not None and decision.kind == "reject" else None


def said_of(visit: Visit, shown: Shown) -> Said | None:
    """Who decided, and what; None if nobody has, or no person did."""
    decision = shown.request.decision
    if decision is None or decision.kind in ("expire", "cancel", "supersede"):
        return None
    edited = decision.kind == "approve" and decision.args is not None
    return Said(
        what="Approved with changes" if edited else DECIDED[decision.kind],
        mine=is_me(visit, decision.by),
        decision=decision,
        then=THEN[then] if (then := _then(shown)) is not None and not shown.request.approval.between_steps else "",
    )


def votes_shown(visit: Visit, item: PendingApproval, votes: tuple[Vote, ...]) -> list[VoteShown]:
    """The votes, oldest first."""
    return [
        VoteShown(
            vote=vote,
            mine=is_me(visit, vote.by),
            what={"approve": "approved", "reject": "rejected", "respond": "answered"}[vote.kind],
            counts=vote.kind != "approve" or vote.digest == item.digest,
        )
        for vote in votes
    ]


async def asked_again_as(visit: Visit, shown: Shown) -> PendingApproval | None:
    """The request that stands in the place of another; None if there is none, or it cannot be read."""
    if (id := shown.request.asked_again) is None:
        return None
    try:
        return (await visit.store.arequest(id)).approval
    except PhronomyError:
        return None
