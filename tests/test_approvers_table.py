"""Every combination of a small scope of approvals, with short sequences of votes: each vote comes to what the plain model says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from approver_model import Count, Level, Step, Verdict, Voter, asking
from approver_scenes import START, Till, approval, carried_out, principal, vote, waiting
from selection import scaled

from phronomy import MemoryStore
from phronomy.errors import ConfigurationError

pytestmark = pytest.mark.unmeasured

ANN = Voter("ann", frozenset({"lead", "clerk"}))  # asks for the run
BOB = Voter("bob", frozenset({"lead"}))
CAT = Voter("cat", frozenset({"lead", "finance"}))
DAN = Voter("dan")  # named by the id
EVE = Voter("eve", frozenset({"leader", "Lead"}))  # has no role that is asked for
FAY = Voter("fay", frozenset({"boss"}))
GUS = Voter("gus", frozenset({"boss", "lead"}))
REQUESTER = "ann"

Cast = tuple[float, Voter, str]
"""A vote: seconds since the request, who, and how."""

SEQUENCES: dict[str, Sequence[Cast]] = {
    "approvals": [(1, each, "approve") for each in (EVE, ANN, BOB, BOB, DAN, CAT, FAY, GUS)],
    "rejections": [(1, each, "reject") for each in (EVE, ANN, BOB, BOB, DAN, CAT)],
    "mixed": [
        *((1, BOB, "approve"), (2, ANN, "reject"), (3, BOB, "reject"), (4, ANN, "approve")),
        *((5, DAN, "reject"), (6, CAT, "approve"), (7, GUS, "approve"), (8, FAY, "reject")),
    ],
    "escalated": [
        *((1, BOB, "approve"), (99.5, FAY, "approve"), (100, FAY, "approve"), (101, FAY, "reject")),
        *((102, CAT, "approve"), (103, DAN, "approve"), (104, GUS, "approve"), (105, ANN, "approve")),
    ],
    "late": [
        *((2, DAN, "approve"), (499.5, CAT, "reject"), (500, BOB, "approve")),
        *((501, ANN, "reject"), (502, GUS, "approve"), (503, FAY, "approve")),
    ],
    "answered": [
        *((1, EVE, "respond"), (2, BOB, "respond"), (3, CAT, "approve"), (4, GUS, "respond")),
        *((5, DAN, "respond"), (6, ANN, "respond")),
    ],
}

ROLES: dict[str, dict[str, frozenset[str]]] = {
    "anybody": {},
    "role": {"roles": frozenset({"lead"})},
    "id": {"ids": frozenset({"dan"})},
    "both": {"roles": frozenset({"lead"}), "ids": frozenset({"dan"})},
}
STEPS: dict[str, tuple[Step, ...]] = {
    "none": (),
    "added": (Step(100, roles=frozenset({"boss"})),),
    "added, one": (Step(100, roles=frozenset({"boss"}), needed=1),),
    "instead": (Step(100, roles=frozenset({"boss"}), instead=True),),
    "instead, one": (Step(100, ids=frozenset({"fay"}), instead=True, needed=1),),
    "twice": (
        Step(100, roles=frozenset({"boss"}), needed=2),
        Step(103.5, ids=frozenset({"gus"}), instead=True, needed=1),
    ),
}
EXPIRIES: dict[str, dict[str, Any]] = {
    "none": {},
    "reject": {"expires": 500.0, "on_expiry": "reject"},
    "cancel": {"expires": 500.0, "on_expiry": "cancel"},
    "stay": {"expires": 500.0, "on_expiry": "stay"},
}
ALLOWED: dict[str, tuple[str, ...] | None] = {"all": None, "approve or reject": ("approve", "reject")}

LEVELS = {
    f"{who}, {needed} of {rejections}{', not the requester' * not_requester}, {steps}": Level(
        **ROLES[who], needed=needed, rejections=rejections, not_requester=not_requester, steps=STEPS[steps]
    )
    for who, needed, rejections, not_requester, steps in product(ROLES, (1, 2, 3), (1, 2), (False, True), STEPS)
}
"""All that one level may ask for, by name."""

SECOND: dict[str, Level | None] = {
    "": None,
    "plain": Level(),
    "finance": Level(roles=frozenset({"finance"})),
    "two leads": Level(roles=frozenset({"lead"}), needed=2, rejections=2),
    "not the requester": Level(not_requester=True),
    "a boss later": Level(
        ids=frozenset({"dan"}), rejections=2, steps=(Step(50, roles=frozenset({"boss"}), instead=True),)
    ),
}
"""What the policy of the agent asks for besides."""


@dataclass(frozen=True)
class Case:
    """One combination."""

    asks: bool
    level: str
    second: str
    expiry: str
    answers: str
    sequence: str
    requested: bool

    def levels(self) -> tuple[Level, ...]:
        first = (LEVELS[self.level],) if self.asks else ()
        second = SECOND[self.second]
        return first + ((second,) if second is not None else ())


OTHERS = [*product((True, True, True, False), EXPIRIES, ALLOWED, (True, True, False))]
PRODUCT = [*product(LEVELS, SECOND, SEQUENCES)]
"""Every level with every other one, and each sequence of votes. The rest takes turns: the product of all is too much."""

PARTS = 8
APART = 7919
"""A prime, so that neighbours are of different levels, seconds and sequences."""


def picked(part: int, most: int) -> Iterator[Case]:
    """So many of a part of the cases, spread over all that there are."""
    for step in range(most):
        place = (step * PARTS + part) * APART % len(PRODUCT)
        level, second, sequence = PRODUCT[place]
        asks, expiry, answers, requested = OTHERS[(step * PARTS + part) * 31 % len(OTHERS)]
        yield Case(asks, level, second, expiry, answers, sequence, requested)


def check(case: Case) -> int:
    """Vote, and compare with the model after each vote; how many votes were cast."""
    till = Till()
    store = MemoryStore(clock=till.clock)
    options = {"answers": ALLOWED[case.answers], **EXPIRIES[case.expiry]}
    levels = case.levels()
    second = SECOND[case.second]
    try:
        gate = approval(LEVELS[case.level], when=case.asks, **options)
        policy = {} if second is None else {"pay": approval(second, **({} if case.asks else options))}
        agent = till.agent(store, gate, approval_policy=policy)
        agent.spec  # noqa: B018 - the policy is read here
    except ConfigurationError:
        assert not all(level.reachable() for level in (LEVELS[case.level], *levels)), case
        return 0
    assert LEVELS[case.level].reachable(), case
    result = agent.invoke("Pay", requester=REQUESTER if case.requested else None)
    if not levels:
        assert (result.status, len(till.paid)) == ("completed", 1), case
        return 0
    (item,) = result.checkpoint.pending
    asked = asking(*levels)
    assert len(item.approvers) == len(asked), case
    if not asked:  # anybody, alone: the votes are none, and this is what other tests are about
        assert vote(store, item, principal(BOB)) == "approved"
        carried_out(agent)
        assert (len(till.paid), store.request(item.id).decision.votes) == (1, ()), case
        return 1
    model = Count(
        asked,
        REQUESTER if case.requested else None,
        answers=None if case.answers == "all" else frozenset({"approve", "reject"}),
        expires=500.0 if case.expiry != "none" else None,
        stays=case.expiry == "stay",
    )
    for number, (at, voter, kind) in enumerate(SEQUENCES[case.sequence]):
        till.now = START + at
        before = store.request(item.id)
        trail = len([*store.audit()])
        content = "by hand" if kind == "respond" else None
        wanted: Verdict = model.cast(voter, kind, at, content=content)  # type: ignore[arg-type]
        found = vote(store, item, principal(voter), kind)
        assert found == wanted, (case, number, voter.id, kind, found, wanted)
        after = store.request(item.id)
        check_stored(case, model, wanted, before, after, [*store.audit()][trail:])
        assert till.paid == [], case
    check_end(case, model, till, store, agent, item.id)
    return len(SEQUENCES[case.sequence])


def check_stored(case: Case, model: Count, verdict: Verdict, before: Any, after: Any, trail: list[Any]) -> None:
    """What the store keeps of the vote."""
    votes = after.decision.votes if after.decision is not None else after.approval.votes
    kept = [(each.by.id, each.kind) for each in votes]
    assert kept == [(each.by, each.kind) for each in model.votes], (case, verdict, kept)
    if verdict in ("counted", "approved", "rejected", "responded"):
        (line,) = trail
        assert (line.vote, line.refused, line.by.id) == (verdict == "counted", False, votes[-1].by.id), case
        return
    assert after == before, (case, verdict)
    assert all(line.refused for line in trail), (case, verdict)
    assert len(trail) == (verdict == "refused"), (case, verdict, trail)


def check_end(case: Case, model: Count, till: Till, store: Any, agent: Any, pending_id: str) -> None:
    """What a worker makes of it: it pays once if enough people have approved, and never else."""
    till.now = START + 510
    carried_out(agent)
    carried_out(agent)
    assert till.paid == [{"order": 1, "amount": 5}] * (model.decided == "approved"), (case, model.decided)
    (branch,) = store.branches()
    if model.decided is not None:
        assert (branch.status, waiting(store, pending_id)) == ("completed", None), case
        return
    lapses = {"none": "suspended", "stay": "suspended", "reject": "completed", "cancel": "cancelled"}
    assert branch.status == lapses[case.expiry], (case, branch.status)


@pytest.mark.parametrize("part", range(PARTS))
def test_each_vote_comes_to_what_the_model_says(part: int) -> None:
    most = scaled(60, sweep=len(PRODUCT) // PARTS)
    assert sum(map(check, picked(part, most))) > most
