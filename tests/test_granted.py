"""Standing grants at a call: which calls they let through, which they do not, and what the record and the trail say of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from approver_scenes import ANN, BOB, CAT, EVE, PAID, START, Desk
from drivers import Driver
from places import Place

from phronomy import Agent, Approval, Approve, AsyncRequired, Breakpoint, Grant, MemoryStore, Principal, tool
from phronomy.engine.judging import grants as module
from phronomy.errors import ApprovalHandlerError
from phronomy.people import Person, StoreDirectory
from phronomy.records.decisions import Decision
from phronomy.testing import ScriptedModel, call
from phronomy.testing.store_contract.base import race

NOW = datetime.fromtimestamp(START, UTC)
DAY = timedelta(days=1)
OPEN = Approval(standing=True)
LEADS = Approval(by="lead", standing=True)
TWO = Approval(by="lead", needed=2, standing=True)
PAY: dict[str, Any] = {"agent": "desk", "tool": "pay", "scope": "tenant", "until": NOW + DAY}


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


def give(desk: Desk, *givers: Principal, **terms: Any) -> Grant:
    """A standing grant of these people: by bob, if nobody is named."""
    first, *others = givers or (BOB,)
    made: Grant = desk.driver.call(desk.store, "grant", Grant(**{**PAY, **terms}), by=first, channel="web")  # type: ignore[arg-type]
    for each in others:
        made = desk.driver.call(desk.store, "sign_grant", made.id, by=each)  # type: ignore[arg-type]
    return made


def status(desk: Desk, gate: Any = LEADS, **options: Any) -> str:
    """How a run that wants to pay stands in the end, or where it stops."""
    given = {name: options.pop(name) for name in ("thread_id", "requester") if name in options}
    desk.made = desk.agent(gate, **options)
    return str(desk.driver.invoke(desk.made, "Pay", **{"requester": "ann", **given}).status)


def passes(desk: Desk, gate: Any = LEADS, **options: Any) -> bool:
    """Whether a call passes; it is paid if and only if it does."""
    before = len(desk.paid)
    found = status(desk, gate, **options)
    assert found in ("completed", "suspended")
    assert len(desk.paid) - before == (found == "completed")
    return found == "completed"


def uses(desk: Desk, grant: Grant) -> int:
    """How often a grant was used."""
    return next(each.count for each in desk.store.grants(all=True) if each.id == grant.id)


def decisions(desk: Desk) -> list[Decision]:
    """The decisions of the newest run."""
    branch = desk.store.branches()[-1]
    return [*desk.store.head(branch.id)[1].decisions] if branch.head else []


# What is let through


def test_the_decision_names_the_grant_and_those_who_gave_it(desk: Desk) -> None:
    assert not passes(desk, TWO)
    grant = give(desk, BOB, CAT)
    assert passes(desk, TWO)
    (line,) = [each for each in desk.store.audit() if not each.vote]
    assert (line.kind, line.channel, line.grant, line.by and line.by.id) == ("approve", "grant", grant.id, "cat")
    assert line.ran_digest == line.digest and line.policy is not None and not line.refused
    run_id = line.run_id
    (decision,) = desk.store.head(run_id)[1].decisions
    assert (decision.grant, decision.channel, decision.by and decision.by.id) == (grant.id, "grant", "cat")
    assert [(each.by.id, each.grant, each.kind) for each in decision.votes] == [
        ("bob", grant.id, "approve"),
        ("cat", grant.id, "approve"),
    ]
    assert (uses(desk, grant), desk.paid) == (1, [PAID])


@pytest.mark.parametrize(
    ("terms", "gate", "expected"),
    [
        ({}, OPEN, True),
        ({}, LEADS, True),
        ({}, True, False),
        ({}, Approval(by="lead"), False),
        ({}, Approval(by="chair", standing=True), False),
        ({}, TWO, False),
        ({}, Approval(answers=["approve", "reject"], standing=True), True),
        ({}, Approval(answers=["reject"], standing=True), False),
        ({}, Approval(answers=["edit", "reject", "respond"], standing=True), False),
        ({"args": {"order": 1, "amount": 5}}, LEADS, True),
        ({"args": {"order": 1}}, LEADS, False),
        ({"args": {"order": 2, "amount": 5}}, LEADS, False),
        ({"tool": "refund"}, LEADS, False),
        ({"agent": "clerk"}, LEADS, False),
        ({"source": "mcp:bank", "endpoint": "https://bank.example.org"}, LEADS, False),
        ({"source": "mcp:bank"}, LEADS, False),
        ({"schema_hash": "0" * 64}, LEADS, False),
        ({"scope": "thread", "thread_id": "t"}, LEADS, True),
        ({"scope": "thread", "thread_id": "other"}, LEADS, False),
        ({"scope": "principal", "requester": "ann"}, LEADS, True),
        ({"scope": "principal", "requester": "bob"}, LEADS, False),
        ({"scope": "run", "run_id": "run_0"}, LEADS, False),
    ],
)
def test_a_call_passes_only_by_a_grant_that_covers_it(
    desk: Desk, terms: dict[str, Any], gate: Any, expected: bool
) -> None:
    grant = give(desk, **terms)
    assert passes(desk, gate, thread_id="t") is expected
    assert uses(desk, grant) == expected


def test_a_giver_who_was_removed_from_the_directory_counts_no_longer(desk: Desk) -> None:
    """Whatever roles they were given by the caller when they gave it."""
    desk.directory.add(Person(id="bob", roles=("lead",)))
    grant = give(desk, BOB)
    assert grant.givers[0].listed and passes(desk)
    desk.directory.remove("bob")
    assert not passes(desk)
    desk.directory.add(Person(id="bob", roles=("lead",)))
    assert passes(desk)
    desk.directory.add(Person(id="bob", roles=()), replace=True)
    assert not passes(desk)


def test_a_grant_like_a_request_is_for_the_rest_of_its_run(desk: Desk) -> None:
    """The request itself is not decided by it; the same call later in the run passes, and in another run it does not."""
    replies = [call("pay", {"order": 1}), call("pay", {"order": 1}), call("pay", {"order": 2}), "Done."]
    item = desk.asked(LEADS, replies=replies)
    desk.driver.call(desk.store, "grant_like", item.id, digest=item.digest, by=BOB)  # type: ignore[arg-type]
    desk.work()
    assert desk.request(item) is not None and desk.paid == []
    assert desk.vote(item, BOB) == "approved" or desk.paid
    assert [each["order"] for each in desk.paid] == [1, 1], "the third has other arguments"
    assert not passes(desk, LEADS)


def test_a_grant_ends_with_its_time_its_uses_and_when_it_is_revoked(desk: Desk) -> None:
    grant = give(desk, until=NOW + timedelta(seconds=10), uses=2)
    assert passes(desk) and uses(desk, grant) == 1
    desk.till.now += 10
    assert not passes(desk)
    desk.till.now -= 10
    assert passes(desk) and not passes(desk)
    assert uses(desk, grant) == 2
    second = give(desk)
    assert passes(desk)
    desk.store.revoke(second.id, by="cat")
    assert not passes(desk)
    assert uses(desk, second) == 1


def test_a_schema_that_changes_is_another_tool(desk: Desk) -> None:
    item = desk.asked(LEADS)
    give(desk, schema_hash=item.tool.schema_hash)
    assert passes(desk)
    agent = desk.agent(LEADS)

    def pay(order: int, amount: int = 5, note: str = "") -> str:
        """Pay an order."""
        desk.paid.append({"order": order, "amount": amount})
        return "paid"

    changed: Any = Agent(
        name="desk",
        model=ScriptedModel.by_turn([call("pay", {"order": 1}), "Done."]),
        tools=[tool(requires_approval=LEADS)(desk.driver.function(pay))],
        store=agent.store,
    )
    assert desk.driver.invoke(changed, "Pay", requester="ann").status == "suspended"


# By people


def test_a_grant_gives_nobody_more_than_its_givers_have(desk: Desk) -> None:
    """As they are now: with the roles of this moment, and never for who asked for the run."""
    own = Approval(by="lead", not_requester=True, standing=True)
    grant = give(desk, ANN)
    assert not passes(desk, own)
    assert passes(desk, own, requester="bob")
    assert not passes(desk, own, requester=None)
    give(desk, EVE)
    assert not passes(desk, own)
    assert uses(desk, grant) == 1
    # Who signs it later counts too.
    desk.store.sign_grant(grant.id, by=BOB)
    assert passes(desk, own)


def test_a_role_that_was_taken_away_counts_for_no_grant(desk: Desk) -> None:
    desk.directory.add(Person(id="bob", roles=("lead",)))
    give(desk, BOB)
    assert passes(desk)
    change_roles(desk, "bob", "clerk")
    assert not passes(desk)
    change_roles(desk, "bob", "lead")
    assert passes(desk)


def change_roles(desk: Desk, who: str, *roles: str) -> None:
    """Give somebody other roles."""
    directory = StoreDirectory(desk.store)
    directory.remove(who)
    directory.add(Person(id=who, roles=roles))


def test_a_deputy_gives_a_grant_for_whom_they_stand_in(desk: Desk) -> None:
    """As long as they do; with that person, they have one voice."""
    for who in ("bob", "cat"):
        desk.directory.add(Person(id=who, roles=("lead",)))
    desk.directory.add(Person(id="eve"))
    desk.directory.name_deputy("bob", "eve", reason="on leave", by="boss")
    give(desk, EVE, BOB)
    assert passes(desk) and not passes(desk, TWO)
    line = next(each for each in desk.store.audit() if not each.vote)
    assert (line.by and line.by.id, line.behalf_of and line.behalf_of.id) == ("eve", "bob")
    give(desk, EVE, CAT)
    assert passes(desk, TWO)


def test_a_policy_that_says_nothing_of_grants_asks_people(desk: Desk) -> None:
    give(desk)
    assert not passes(desk, LEADS, approval_policy={"pay": True})
    assert not passes(desk, LEADS, approval_policy={"pay": Approval(by="lead")})
    assert not passes(desk, True, approval_policy={"pay": LEADS})
    assert passes(desk, LEADS, approval_policy={"pay": LEADS})
    assert not passes(desk, LEADS, approval_policy={"pay": TWO})
    assert passes(desk, False, approval_policy={"pay": LEADS})


# By a condition


def small(args: Any) -> bool:
    return bool(args["amount"] < 50)


def test_a_condition_holds_for_the_arguments_at_each_level_that_knows_it(desk: Desk) -> None:
    small_only = Approval(by="lead", standing={"small": desk.driver.function(small)})
    large_only = Approval(by="lead", standing={"small": lambda args: args["amount"] > 50, "other": lambda args: True})
    grant = give(desk, condition="small")
    assert passes(desk, small_only)
    assert not passes(desk, small_only, replies=[call("pay", {"order": 1, "amount": 50}), "Done."])
    assert not passes(desk, LEADS), "nobody knows it"
    assert not passes(desk, Approval(by="lead", standing={"tiny": small})), "nor by this name"
    assert passes(desk, LEADS, approval_policy={"pay": small_only})
    assert passes(desk, small_only, approval_policy={"pay": LEADS})
    assert not passes(desk, small_only, approval_policy={"pay": large_only})
    assert uses(desk, grant) == 3


@pytest.mark.parametrize("said", [1, "yes", None, ZeroDivisionError()])
def test_a_condition_that_does_not_say_true_covers_nothing(desk: Desk, said: Any) -> None:
    def odd(args: Any) -> Any:
        if isinstance(said, Exception):
            raise said
        return said

    give(desk, condition="odd")
    assert not passes(desk, Approval(standing={"odd": desk.driver.function(odd)}))


def test_a_condition_cannot_change_the_arguments(desk: Desk) -> None:
    """One that tries has raised, and covers nothing."""

    def greedy(args: Any) -> bool:
        args["amount"] = 1_000_000
        return True

    give(desk, condition="greedy")
    assert not passes(desk, Approval(standing={"greedy": desk.driver.function(greedy)}))
    (item,) = [row.approval for row in desk.store.pending()]
    assert item.args == PAID


def test_an_async_condition_needs_the_async_methods() -> None:
    async def later(args: Any) -> bool:
        return True

    desk_store = MemoryStore()

    @tool(requires_approval=Approval(standing={"later": later}))
    def pay(order: int) -> str:
        """Pay."""
        raise AssertionError

    agent = Agent(name="desk", model=ScriptedModel([call("pay", {"order": 1})]), tools=[pay], store=desk_store)
    with pytest.raises(AsyncRequired):
        agent.invoke("Pay")


# Around it


def test_an_agent_inside_has_grants_by_its_own_name(desk: Desk) -> None:
    def stands() -> str:
        clerk: Any = Agent(
            name="clerk",
            model=ScriptedModel.by_turn([call("pay", {"order": 1}), "Paid."]),
            tools=[desk.till.tool(LEADS, desk.driver)],
        )
        made: Any = Agent(
            name="desk",
            model=ScriptedModel.by_turn([call("clerk", {"input": "pay"}), "Passed on."]),
            tools=[clerk.as_tool(description="Pay.")],
            store=desk.open(),
        )
        return str(desk.driver.invoke(made, "Pay", requester="ann").status)

    give(desk)
    assert (stands(), desk.paid) == ("suspended", [])
    grant = give(desk, agent="clerk")
    assert (stands(), desk.paid, uses(desk, grant)) == ("completed", [PAID], 1)


def test_a_breakpoint_stops_first_and_an_edit_there_is_what_is_judged(desk: Desk) -> None:
    give(desk, args={"order": 1, "amount": 5})
    for args, stands in ((None, "completed"), ({"order": 1, "amount": 9}, "suspended")):
        before = len(desk.paid)
        desk.made = desk.agent(LEADS, breakpoints=[Breakpoint("pre_tool_call", tools=["pay"])])
        result = desk.driver.invoke(desk.made, "Pay", requester="ann")
        (stop,) = result.checkpoint.pending
        assert stop.why == "breakpoint" and len(desk.paid) == before
        answer = Approve(args=args) if args else Approve()
        assert desk.driver.call(desk.made, "decide", stop.id, answer, by=BOB).status == stands
        assert len(desk.paid) - before == (stands == "completed")


def test_a_human_who_edits_is_not_overruled_by_a_grant(desk: Desk) -> None:
    """The request waits for the others with the arguments of the edit, though a grant covers these: a vote is by people."""
    item = desk.asked(TWO)
    grant = give(desk, BOB, CAT)
    assert desk.vote(item, BOB, answer=Approve(args={"order": 1, "amount": 9})) == "approved"
    assert desk.paid in ([], [{"order": 1, "amount": 9}])
    assert uses(desk, grant) == len(desk.paid)


def test_a_grant_counts_before_a_handler_is_asked(desk: Desk) -> None:
    asked: list[str] = []

    def refuses(name: str, args: Any) -> bool:
        asked.append(name)
        return False

    grant = give(desk)
    assert passes(desk, OPEN, on_approval_required=desk.driver.function(refuses))
    assert (asked, uses(desk, grant)) == ([], 1)


def test_of_two_calls_of_a_reply_one_use_lets_one_pass(desk: Desk) -> None:
    grant = give(desk, until=None, uses=1)
    assert status(desk, replies=[[call("pay", {"order": 1}), call("pay", {"order": 2})], "Done."]) == "suspended"
    assert ([each["order"] for each in desk.paid], uses(desk, grant)) == ([1], 1)
    (left,) = [row.approval for row in desk.store.pending()]
    assert left.args == {"order": 2, "amount": 5}
    assert desk.vote(left, CAT) == "approved" and len(desk.paid) == 2


def test_of_many_runs_as_many_pass_as_there_are_uses(desk: Desk) -> None:
    grant = give(desk, until=None, uses=3)
    agents = [desk.agent(LEADS) for _ in range(6)]
    found = race([lambda each=each: desk.driver.invoke(each, "Pay", requester="ann").status for each in agents])  # type: ignore[misc]
    assert sorted(map(str, found)) == ["completed"] * 3 + ["suspended"] * 3
    assert (len(desk.paid), uses(desk, grant)) == (3, 3)


class Lost(BaseException):
    """As if the process had been killed."""


@pytest.mark.parametrize(("most", "counted"), [(1, 1), (2, 1), (None, 2)])
def test_a_crash_after_the_use_and_before_the_decision_spends_no_other_use(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, most: int | None, counted: int
) -> None:
    """The use is kept under the id of the request, which finds it again, also the last. Where uses are not limited, it counts twice."""
    grant = give(desk, uses=most)
    real = module.decision_by

    def lost(*given: Any) -> Any:
        raise Lost

    monkeypatch.setattr(module, "decision_by", lost)
    desk.made = desk.agent(LEADS)
    with pytest.raises(Lost):
        desk.driver.invoke(desk.made, "Pay", requester="ann")
    assert (desk.paid, uses(desk, grant)) == ([], 1)
    monkeypatch.setattr(module, "decision_by", real)
    give(desk, uses=5)  # it is not taken in place of the first
    (branch,) = desk.store.branches()
    done = desk.driver.recover(desk.made, branch.run_id)
    assert (done.status, desk.paid) == ("completed", [PAID])
    if most is not None:
        (decision,) = desk.store.head(branch.id)[1].decisions
        assert (decision.grant, uses(desk, grant)) == (grant.id, counted)
    # The use is that of this request, and of no other.
    assert sum(each.count for each in desk.store.grants(all=True)) == counted


def test_a_use_does_not_outlive_its_grant(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Revoked after the crash, it lets nothing through, though the request had used it."""
    grant = give(desk, until=None, uses=1)

    def lost(*given: Any) -> Any:
        raise Lost

    with monkeypatch.context() as patch:
        patch.setattr(module, "decision_by", lost)
        desk.made = desk.agent(LEADS)
        with pytest.raises(Lost):
            desk.driver.invoke(desk.made, "Pay", requester="ann")
    desk.store.revoke(grant.id, by="cat")
    (branch,) = desk.store.branches()
    assert desk.driver.recover(desk.made, branch.run_id).status == "suspended"
    assert desk.paid == []


def test_a_handler_that_raises_beside_a_grant_loses_no_use(desk: Desk) -> None:
    """Nothing of the reply is recorded then; when it is judged again, the call has the use that it had."""
    faults = [OSError()]
    asked: list[str] = []

    def away(name: str, args: Any) -> bool:
        asked.append(name)
        if faults:
            raise faults.pop()
        return True

    grant = give(desk, until=None, uses=1)
    other = desk.till.tool(True, desk.driver, name="refund")
    replies = [[call("pay", {"order": 1}), call("refund", {"order": 2})], "Done."]
    desk.made = desk.agent(OPEN, replies=replies, more=[other], on_approval_required=desk.driver.function(away))
    with pytest.raises(ApprovalHandlerError) as failed:
        desk.driver.invoke(desk.made, "Pay", requester="ann")
    assert (desk.paid, uses(desk, grant)) == ([], 1)
    assert failed.value.checkpoint is not None
    assert desk.driver.resume(desk.made, failed.value.checkpoint).status == "completed"
    assert (sorted(each["order"] for each in desk.paid), uses(desk, grant)) == ([1, 2], 1)
    assert asked == ["refund", "refund"]
