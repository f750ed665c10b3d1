"""Votes and the record of them: sent again, cast by somebody whose roles change, refused by a predicate after they were recorded."""

from __future__ import annotations

from typing import Any

import pytest
from approver_scenes import BOB, CAT, EVE, PAID, Desk, nested
from drivers import Driver
from places import Place

from phronomy import Approval, Approve, Principal, Reject
from phronomy.people import Person
from phronomy.records.decisions import PendingApproval


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


def test_a_repeated_vote_under_its_key_returns_how_the_request_stands_after_it_was_decided(desk: Desk) -> None:
    """A vote that did not decide, sent again under its key once others have decided, is told `CheckpointAlreadyResumed`.

    `Store.decide` says: "the same decision with the same idempotency `key` is recorded once, and returns how the request stands". The
    vote was recorded, so a page that sends it again should not be told that it came too late.
    """
    item = desk.asked()
    assert desk.vote(item, BOB, key="b", alone=True) == "counted"
    assert desk.vote(item, CAT, key="c", alone=True) == "approved"
    store: Any = desk.store
    found = desk.driver.call(store, "decide", item.id, Approve(), by=BOB, digest=item.digest, key="b")
    assert found.status == "decided"
    assert desk.driver.call(desk.made, "decide", item.id, Approve(), by=BOB, key="b").status == "completed"


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("known", ["listed", "not listed"])
def test_a_role_that_was_given_between_two_votes_breaks_no_run(desk: Desk, known: str, alone: bool) -> None:
    """Somebody votes, and is given another role that a second level asks for; the next vote then destroys the run, or cannot be cast.

    `is_decisive` counts the first vote with the roles of now, so the store records a decision. Whoever reads the run counts with the
    roles that stand in the votes, and finds too few: `CheckpointError`, "the journal does not follow from it". Nothing waits any more,
    and the run can be neither resumed nor read. With the agent it is `IllegalOutcome`, and nobody can cast that vote.
    """
    if known == "listed":
        desk.directory.add(Person(id="bob", roles=("finance",)))
    item = desk.asked(Approval(by="lead"), approval_policy={"pay": Approval(by="finance")})
    assert desk.vote(item, Principal(id="bob", roles=("finance",)), alone=alone) == "counted"
    desk.directory.add(Person(id="bob", roles=("finance", "lead")), replace=True)
    assert desk.vote(item, Principal(id="cat", roles=("finance",)), alone=alone) in ("counted", "approved")
    desk.work()
    (branch,) = desk.store.branches()
    desk.store.head(branch.id)
    if desk.paid == []:
        assert desk.voted(item) == ["bob", "cat"]
        assert desk.vote(item, Principal(id="dan", roles=("lead",)), alone=alone) == "approved"
        desk.work()
    assert desk.paid == [PAID]


def owner(who: Principal, request: PendingApproval) -> bool:
    """Nobody but the owner."""
    return who.id == "owner"


@pytest.mark.parametrize("gate", [Approval(by=owner), Approval(by=owner, needed=2, rejections=2)], ids=["one", "two"])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_who_is_yet_to_be_accepted_by_a_predicate_ends_no_run(desk: Desk, depth: int, gate: Approval) -> None:
    """In a nested run, `Reject(then="end")` with the store alone ends the run, and all runs around it, before the predicate is asked.

    So anybody who can reach the store can end such a run, and one person can where it takes two rejections. At the top of a run
    (depth 0), and with `then="continue"` or `"block"`, a worker asks the predicate first, and the request waits on.
    """
    item = nested(desk, gate, depth=depth) if depth else desk.asked(gate)
    store: Any = desk.store
    desk.driver.call(store, "decide", item.id, Reject(then="end"), by=EVE, digest=item.digest)
    desk.work()
    assert [each.status for each in desk.store.branches()] == ["suspended"]
    assert len(desk.store.pending()) == 1


@pytest.mark.parametrize("kind", [Approve(), Reject()], ids=["approve", "reject"])
def test_a_vote_that_a_predicate_refuses_later_is_refused_in_the_trail(desk: Desk, kind: Any) -> None:
    """With the store alone, the trail has the vote as a decision of that person; that the worker refused it stands nowhere in it.

    `AuditRecord` says: "a record that is `refused` is of somebody who may not decide". Whoever reads the trail finds a rejection, or an
    approval, of somebody who could give none.
    """
    item = desk.asked(Approval(by=owner))
    store: Any = desk.store
    desk.driver.call(store, "decide", item.id, kind, by=EVE, digest=item.digest)
    desk.work()
    assert desk.paid == [] and len(desk.store.pending()) == 1
    assert any(line.refused for line in desk.store.audit(pending_id=item.id))
