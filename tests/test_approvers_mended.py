"""Ways round the people whom a call takes, and ways to hold it up for ever, that were once open: each is closed, and stays so."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from approver_scenes import BOB, CAT, DAN, PAID, START, TWO, Desk, nested
from drivers import Driver
from places import Place

from phronomy import Approval, Approve, Escalate, Grant, PendingApproval, Principal, cli
from phronomy.errors import AlreadyVoted, InvalidDecision, NotAnApprover
from phronomy.people import Person
from phronomy.testing import call

pytestmark = pytest.mark.worlds(2)

LARGE = {"order": 1, "amount": 1000}
LARGER = {"order": 1, "amount": 2000}
GUS = Principal(id="gus", roles=("boss",))


def is_small(args: dict[str, Any]) -> bool:
    return bool(args.get("amount", 5) < 100)


def is_large(args: dict[str, Any]) -> bool:
    return not is_small(args)


def is_clerk(who: Principal, request: PendingApproval) -> bool:
    return who.id == "clerk"


def is_head(who: Principal, request: PendingApproval) -> bool:
    return who.id == "head"


def is_nobody(who: Principal, request: PendingApproval) -> bool:
    return False


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


@pytest.fixture(params=[False, True], ids=["agent", "store alone"])
def alone(request: pytest.FixtureRequest) -> bool:
    """Whether votes are cast with the store alone, and a worker does what is left."""
    found: bool = request.param
    return found


DEPTHS = pytest.mark.parametrize("depth", [0, 2], ids=["outermost", "nested"])


def asked(desk: Desk, gate: Any, policy: Any = None, *, depth: int = 0) -> PendingApproval:
    """A small payment that waits: the tool asks by `gate`, and the policy of its agent as well."""
    if depth:
        return nested(desk, gate, policy, depth=depth)
    return desk.asked(gate, **({} if policy is None else {"approval_policy": {"pay": policy}}))


def given(desk: Desk, item: PendingApproval, by: Any, args: dict[str, Any], *, alone: bool) -> None:
    """Somebody approves other arguments, and a worker does what there is to do."""
    door: Any = desk.store if alone else desk.made
    desk.driver.call(door, "decide", item.id, Approve(args=args), by=by, digest=item.digest)
    desk.work()


def edited(
    desk: Desk, item: PendingApproval, by: Any, args: dict[str, Any] = LARGE, *, alone: bool = False
) -> PendingApproval:
    """Somebody approves other arguments, which is not enough: the new request, which has their vote and no other."""
    given(desk, item, by, args, alone=alone)
    assert desk.paid == [], "nobody else has approved these arguments"
    (row,) = desk.store.pending()
    again = row.approval
    assert (again.id != item.id, again.args) == (True, args)
    assert [vote.by.id for vote in again.votes] == [by.id if isinstance(by, Principal) else by]
    return again


def people(desk: Desk, **roles: tuple[str, ...]) -> None:
    for id, held in roles.items():
        desk.directory.add(Person(id=id, roles=held))


# Edits


@DEPTHS
def test_an_edit_takes_no_predicate_to_another_level(desk: Desk, alone: bool, depth: int) -> None:
    """The predicate of the clerk's level held, at the first place. At the first place of the new request is another."""
    gate, policy = Approval(when=is_small, by=is_clerk), Approval(when=is_large, by=is_head)
    item = asked(desk, gate, policy, depth=depth)
    assert [level.predicates for level in item.approvers] == [("is_clerk",)]
    again = edited(desk, item, "clerk", alone=alone)
    assert [level.predicates for level in again.approvers] == [("is_head",)]
    assert [vote.levels for vote in again.votes] == [()]
    assert desk.vote(again, "clerk") != "approved" and desk.paid == []
    assert desk.vote(again, "head") == "approved"
    assert desk.paid == [LARGE]


def test_an_edit_takes_no_predicate_to_a_level_that_others_leave_open(desk: Desk, alone: bool) -> None:
    policy = {"pay": Approval(when=is_small, by=is_clerk), "p*": Approval(when=is_large, by=is_head)}
    item = desk.asked(Approval(by="lead"), approval_policy=policy)
    again = edited(desk, item, "clerk", alone=alone)
    assert [(level.roles, level.predicates) for level in again.approvers] == [(("lead",), ()), ((), ("is_head",))]
    assert desk.vote(again, BOB) == "counted"
    assert (desk.paid, desk.voted(again)) == ([], ["clerk", "bob"])
    assert desk.vote(again, "head") == "approved"
    assert desk.paid == [LARGE]


@DEPTHS
@pytest.mark.parametrize("instead", [False, True], ids=["as well", "instead"])
def test_an_edit_begins_the_time_of_escalations_anew(desk: Desk, alone: bool, depth: int, instead: bool) -> None:
    gate = Approval(by="lead", needed=2, escalate=Escalate(after=100, by="boss", instead=instead, needed=1))
    item = asked(desk, gate, depth=depth)
    desk.till.now = START + 100
    again = edited(desk, item, GUS, alone=alone)
    assert again.requested_at == datetime.fromtimestamp(START + 100, UTC)
    desk.till.now = START + 199
    assert desk.vote(again, Principal(id="fay", roles=("boss",)), alone=alone) == "refused"
    assert desk.vote(again, BOB, alone=alone) == "counted"
    assert desk.vote(again, CAT, alone=alone) == "approved"
    desk.work()
    assert desk.paid == [LARGE]


@DEPTHS
def test_who_edits_late_is_one_of_the_number_that_it_takes_at_first(desk: Desk, alone: bool, depth: int) -> None:
    item = asked(desk, Approval(by="lead", needed=2, escalate=Escalate(after=100, by="boss", needed=1)), depth=depth)
    desk.till.now = START + 100
    again = edited(desk, item, BOB, alone=alone)
    assert desk.vote(again, BOB, alone=alone) == "repeated"
    assert desk.vote(again, CAT, alone=alone) == "approved"
    desk.work()
    assert desk.paid == [LARGE]


@DEPTHS
def test_who_asked_under_another_name_does_not_approve_what_they_edit(desk: Desk, alone: bool, depth: int) -> None:
    desk.directory.add(Person(id="annette", roles=("lead",), aliases=("ann",)))
    policy = Approval(when=is_large, by="lead", not_requester=True)
    item = asked(desk, Approval(when=is_small, by="lead"), policy, depth=depth)
    again = edited(desk, item, "annette", alone=alone)
    for name in ("annette", "ann"):
        assert [desk.vote(again, name, alone=each) for each in (False, True)] == ["refused", "refused"]
    assert desk.vote(again, BOB, alone=alone) == "approved"
    desk.work()
    assert desk.paid == [LARGE]


@DEPTHS
@pytest.mark.parametrize("change", ["removed", "role taken away"])
@pytest.mark.parametrize("args", [LARGE, {"order": 1, "amount": 6}], ids=["that takes two", "that takes nobody"])
def test_an_edit_of_somebody_who_is_removed_before_a_worker_looks(
    desk: Desk, depth: int, change: str, args: dict[str, Any]
) -> None:
    people(desk, bob=("lead",))
    item = asked(desk, Approval(when=lambda args: args.get("amount", 5) != 6, by="lead", needed=2), depth=depth)
    door: Any = desk.store
    desk.driver.call(door, "decide", item.id, Approve(args=args), by="bob", digest=item.digest)
    if change == "removed":
        desk.directory.remove("bob")
    else:
        desk.directory.add(Person(id="bob"), replace=True)
    desk.work()
    (row,) = desk.store.pending()
    again = row.approval
    assert (again.id != item.id, again.digest, again.votes, desk.paid) == (True, item.digest, (), [])
    assert [desk.vote(again, who) for who in (CAT, DAN)] == ["counted", "approved"]
    assert desk.paid == [PAID]


# Deputies


def test_a_refusal_names_the_deputy_who_has_voted_and_why_roles_do_not_count(desk: Desk) -> None:
    people(desk, rita=("lead",), otto=())
    desk.directory.name_deputy("rita", "otto")
    item = desk.asked(Approval(by="lead", needed=2))

    def told(who: Principal) -> str:
        with pytest.raises((AlreadyVoted, NotAnApprover)) as refused:
            desk.store.decide(item.id, Approve(), by=who, digest=item.digest)
        return str(refused.value)

    assert told(Principal(id="zoe")).endswith(
        ": it takes 2 of lead; they are not in the directory, and no role was passed with them. Nothing was decided"
    )
    assert told(Principal(id="zoe", roles=("clerk",))).endswith(": it takes 2 of lead. Nothing was decided")
    desk.directory.add(Person(id="zoe"))
    assert told(Principal(id="zoe", roles=("lead",))).endswith(
        "; the directory gives them no such role, and what it says counts, whatever roles are passed. Nothing was decided"
    )
    desk.store.decide(item.id, Approve(), by=Principal(id="otto"), digest=item.digest)
    assert told(Principal(id="rita")) == (
        f"otto has voted on pending {item.id} for rita, as their deputy, so rita cannot vote for the same person again:"
        " each person counts once"
    )
    assert told(Principal(id="otto")) == (
        f"otto has voted on pending {item.id} for rita, as their deputy, and counts once"
    )


def ended(desk: Desk, *, alone: bool) -> PendingApproval:
    """It takes rita and cat. Otto has voted for rita, whose leave has ended since, and cat has voted."""
    people(desk, rita=(), cat=(), otto=())
    desk.directory.name_deputy("rita", "otto", until=datetime.fromtimestamp(START, UTC) + timedelta(hours=1))
    item = desk.asked(Approval(by=[Principal(id="rita"), Principal(id="cat")], needed=2, rejections=1))
    assert desk.vote(item, "otto", alone=alone) == "counted"
    assert desk.vote(item, "rita", alone=alone) == "repeated", "as long as the vote of the deputy stands"
    desk.till.now += 7200
    assert desk.vote(item, "cat", alone=alone) == "counted"
    assert [desk.vote(item, who, alone=alone) for who in ("otto", "cat")] == ["refused", "repeated"]
    return item


@pytest.mark.parametrize(("kind", "verdict", "paid"), [("approve", "approved", [PAID]), ("reject", "rejected", [])])
def test_a_deputy_whose_time_ends_takes_nobodys_vote_away(
    desk: Desk, alone: bool, kind: str, verdict: str, paid: list[dict[str, Any]]
) -> None:
    item = ended(desk, alone=alone)
    assert desk.vote(item, "rita", kind, alone=alone) == verdict
    desk.work()
    assert (desk.paid, list(desk.store.pending())) == (paid, [])


def test_a_deputy_whose_time_ends_takes_nobodys_edit_away(desk: Desk, alone: bool) -> None:
    again = edited(desk, ended(desk, alone=alone), "rita", alone=alone)
    assert [desk.vote(again, who, alone=alone) for who in ("otto", "rita")] == ["refused", "repeated"]
    assert desk.vote(again, "cat", alone=alone) == "approved"
    desk.work()
    assert desk.paid == [LARGE]


# Trail


@DEPTHS
def test_the_trail_has_each_voter_of_what_was_edited(desk: Desk, alone: bool, depth: int) -> None:
    item = asked(desk, TWO, depth=depth)
    (row,) = desk.store.pending()
    again = edited(desk, edited(desk, item, BOB, alone=alone), CAT, LARGER, alone=alone)
    assert desk.vote(again, DAN, alone=alone) == "approved"
    desk.work()
    assert desk.paid == [LARGER]
    desk.store.delete(row.run_id)
    lines = [(line.by.id, line.vote, line.digest) for line in desk.store.audit(pending_id=again.id) if line.by]
    assert lines == [("cat", True, again.digest), ("dan", False, again.digest)]
    (ran,) = [line for line in desk.store.audit() if line.ran_digest]
    assert (ran.pending_id, ran.ran_digest) == (again.id, again.digest)
    assert {line.by.id for line in desk.store.audit(pending_id=item.id) if line.by} == {"bob"}


def test_the_trail_has_each_giver_of_a_grant(desk: Desk) -> None:
    item = desk.asked(Approval(by="lead", needed=2, standing=True))
    (row,) = desk.store.pending()
    assert desk.vote(item, BOB, "reject") == "rejected"
    desk.store.delete(row.run_id)
    grant = desk.store.grant(Grant(agent="desk", tool="pay", scope="tenant", uses=1), by=BOB)
    desk.store.sign_grant(grant.id, by=CAT)
    result = desk.driver.invoke(desk.made, "Pay", requester="ann")
    assert (result.status, desk.paid) == ("completed", [PAID])
    desk.store.delete(result.checkpoint.run_id)
    lines = [line for line in desk.store.audit() if line.run_id == result.checkpoint.run_id]
    assert [(line.by.id, line.vote) for line in lines if line.by] == [("bob", True), ("cat", False)]
    assert {(line.channel, line.grant) for line in lines} == {("grant", grant.id)}


# Counting


@pytest.mark.parametrize("later", [is_head, is_clerk], ids=["another", "the same"])
def test_a_predicate_that_others_have_replaced_counts_no_longer(desk: Desk, alone: bool, later: Any) -> None:
    """The clerk was accepted by a function. An escalation puts other people in their place."""
    step = Escalate(after=100, by=[later, "boss"], instead=True, needed=2)
    item = desk.asked(Approval(by=is_clerk, needed=3, escalate=step))
    assert desk.vote(item, "clerk") == "counted"
    desk.till.now += 100
    assert desk.vote(item, GUS, alone=alone) == "counted"
    desk.work()
    assert desk.paid == []
    (row,) = desk.store.pending()
    assert desk.vote(row.approval, Principal(id="fay", roles=("boss",)), alone=alone) == "approved"
    desk.work()
    assert desk.paid == [PAID]


@DEPTHS
def test_a_role_that_was_taken_away_is_not_made_up_for_by_one_that_was_given(
    desk: Desk, alone: bool, depth: int
) -> None:
    """It takes a lead. When they voted, bob was one; when the last vote comes, cat is one."""
    people(desk, bob=("lead",), cat=("boss",), dan=("boss",))
    item = asked(desk, Approval(by="lead"), Approval(by=["lead", "boss"], needed=3), depth=depth)
    assert [desk.vote(item, who, alone=alone) for who in ("bob", "cat")] == ["counted", "counted"]
    for who, role in {"bob": "boss", "cat": "lead"}.items():
        desk.directory.add(Person(id=who, roles=(role,)), replace=True)
    assert desk.vote(item, "dan", alone=alone) == "counted"
    desk.work()
    assert desk.paid == []
    assert desk.vote(item, Principal(id="fay", roles=("lead",)), alone=alone) == "approved"
    desk.work()
    assert desk.paid == [PAID]


# Grants


def test_of_several_grants_the_oldest_is_used(desk: Desk) -> None:
    given = []
    for _ in range(6):
        given.append(desk.store.grant(Grant(agent="desk", tool="pay", scope="tenant", uses=1), by=BOB).id)
        desk.till.now += 1
    desk.made = desk.agent(Approval(by="lead", standing=True))
    for place in range(6):
        assert desk.driver.invoke(desk.made, "Pay", requester="ann").status == "completed"
        assert [each.id for each in desk.store.grants()] == given[place + 1 :]
    assert [line.grant for line in desk.store.audit()] == given


# Holding up


@pytest.mark.parametrize("name", ["ann", "slack:U1"])
@pytest.mark.parametrize("edit", [None, LARGE], ids=["as shown", "edited"])
def test_who_asked_holds_up_nothing_that_a_predicate_is_to_judge(
    desk: Desk, name: str, edit: dict[str, Any] | None
) -> None:
    """With the store alone no predicate can be asked, but who asked may not approve whatever it says: nothing is left to check."""
    desk.directory.add(Person(id="ann", aliases=("slack:U1",)))
    item = desk.asked(Approval(by=["lead", is_nobody], needed=2, not_requester=True, expires=100))
    for now in (START, START + 90):
        desk.till.now = now
        options: dict[str, Any] = {} if edit is None else {"answer": Approve(args=edit)}
        assert desk.vote(item, name, alone=True, **options) == "refused"
        assert desk.vote(item, name, alone=True, kind="respond") == "refused"
        desk.work()
        assert (desk.voted(item), desk.paid) == ([], [])
    assert [(line.by.id, line.refused) for line in desk.store.audit() if line.by] == [(name, True)] * 4
    desk.till.now = START + 100
    assert desk.vote(item, BOB, alone=True) == "expired"
    desk.work()
    assert (list(desk.store.pending()), desk.paid) == ([], [])


def test_who_asked_may_still_reject_what_a_predicate_is_to_judge(desk: Desk) -> None:
    item = desk.asked(Approval(by=is_clerk, not_requester=True))
    assert desk.vote(item, "ann", "reject", alone=True) == "rejected"
    desk.work()
    assert desk.paid == []


@pytest.mark.parametrize("how", ["approved", "decisions"])
def test_a_vote_that_does_not_decide_says_nothing_to_the_model(desk: Desk, how: str) -> None:
    heard: list[list[str]] = []

    def reply(request: Any) -> Any:
        heard.append([message.text for message in request.messages if message.role == "user"])
        return "Done." if heard[-1][-1] == "Be quick." else call("pay", {"order": 1})

    item = desk.asked(replies=[reply])
    (row,) = desk.store.pending()

    def say(by: Principal, **options: Any) -> Any:
        answer = {"approved": True} if how == "approved" else {"decisions": {item.id: Approve()}}
        return desk.driver.resume(desk.made, row.checkpoint_id, by=by, **answer, **options)

    before = [each.head for each in desk.store.branches()]
    with pytest.raises(InvalidDecision, match="vote without input"):
        say(BOB, input="Pay the other one too.")
    assert (desk.request(item), [each.head for each in desk.store.branches()]) == (item, before)
    assert [line for line in desk.store.audit() if not line.refused] == []
    assert say(BOB).status == "suspended"
    assert say(CAT, input="Be quick.").status == "completed"
    assert (heard, desk.paid) == ([["Pay"], ["Pay", "Be quick."]], [PAID])


# Command line


@pytest.mark.parametrize("names", ["request", "run", "checkpoint"])
def test_show_has_the_votes_that_were_cast(
    driver: Driver, tmp_path: Path, capsys: pytest.CaptureFixture[str], alone: bool, names: str
) -> None:
    desk = Desk(driver, Place("sqlite", tmp_path, str(tmp_path / "runs.db")))
    item = desk.asked()
    assert desk.vote(item, BOB, alone=alone) == "counted"
    (row,) = desk.store.pending()
    id = {"request": item.id, "run": row.run_id, "checkpoint": row.checkpoint_id}[names]
    assert cli.run(["show", id, "--store", desk.place.url]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:4] for line in lines if line[:1] in (["vote"], ["missing"])] == [
        ["vote", "approve", "by", "bob,"],
        ["missing", "1", "of", "2"],
    ]
    assert cli.run(["show", id, "--json", "--store", desk.place.url]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["pending"]
    assert [vote["by"] for vote in shown["votes"]] == ["bob"]
    assert [level["counted"] for level in shown["approvers"]] == [1]


# What cannot be
