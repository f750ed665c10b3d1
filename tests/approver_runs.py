"""A state machine of runs that ask for approvals and pass by grants, while people, deputies, grants and the time change.

Each call passes by the grant that the model says, or is tracked as a request that waits.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from approver_model import Cast, Count, Level, Staff, Step, Verdict, Voter, asking
from approver_scenes import Till, approval, principal
from drivers import ASYNC, SYNC, Driver
from grant_model import Grants, Standing, Wanted
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from places import place_of

from phronomy import Agent, Grant, GrantRefused
from phronomy.engine.judging import grants as module
from phronomy.errors import RequestExpired
from phronomy.people import Person, StoreDirectory
from phronomy.stores.rows import ENDED
from phronomy.testing import ScriptedModel, call

ROLES = ("lead", "finance", "boss")
IDS = ("ann", "bob", "cat", "dan", "eve", "fay")
SAID = {
    "ann": {"lead"},
    "bob": {"lead"},
    "cat": {"lead", "finance"},
    "dan": {"finance"},
    "eve": {"leader"},
    "fay": {"boss"},
}
"""The roles that callers give them, whoever they are by the directory."""

SOME = st.frozensets(st.sampled_from(ROLES), max_size=2)
STEP = st.builds(
    Step,
    after=st.sampled_from([60.0, 200.0]),
    roles=st.just(frozenset({"boss"})),
    predicates=st.sampled_from([frozenset(), frozenset(), frozenset({"is_boss"})]),
    instead=st.booleans(),
    needed=st.sampled_from([None, 1, 2]),
)
STANDING = st.sampled_from(["no", "any", "any", "conditions"])
LEVEL = st.one_of(
    st.builds(
        Level,
        roles=st.sampled_from([frozenset(), frozenset({"lead"})]),
        needed=st.sampled_from([1, 2]),
        standing=STANDING,
    ),
    st.builds(
        Level,
        roles=SOME,
        ids=st.sampled_from([frozenset(), frozenset({"dan"}), frozenset({"eve", "bob"})]),
        predicates=st.sampled_from(
            [frozenset(), frozenset(), *(frozenset({each}) for each in ("is_fay", "is_trusted", "says_yes"))]
        ),
        needed=st.sampled_from([1, 2, 2, 3]),
        rejections=st.sampled_from([1, 2]),
        not_requester=st.booleans(),
        steps=st.one_of(st.just(()), STEP.map(lambda step: (step,))),
        standing=STANDING,
    ),
).filter(lambda level: level.reachable())

TERMS = st.fixed_dictionaries(
    {
        "givers": st.lists(
            st.tuples(st.sampled_from(IDS), st.sampled_from([False, False, True])), min_size=1, max_size=6
        ),
        "what": st.sampled_from(
            [*["any"] * 6, "args", "small", "small", "odd", "unknown", "other tool", "other agent"]
        ),
        "limits": st.sampled_from([(None, 1), (None, 2), (60.0, None), (1000.0, None), (1000.0, 3), (300.0, 3)]),
    }
).flatmap(
    lambda terms: st.sampled_from(
        [*[("tenant", None)] * 4, ("thread", "t1"), ("principal", "ann"), ("principal", "bob")]
    ).map(lambda scope: {**terms, "scope": scope[0], "whose": scope[1]})
)
"""What a grant that somebody writes says: who gives it, some of them by an alias, what for, and how long."""

BETWEEN = st.sampled_from([None, "", "", "", "revoke", "give", "later", "sooner"])
"""What happens between the death of a process, which has used a grant, and the one that carries its run on; None: it does not die."""

WAYS = st.sampled_from([(SYNC, True), (SYNC, False), (ASYNC, True), (ASYNC, False)])
"""How a vote is cast: by which driver, and whether with the store alone."""


DECIDED = ("approved", "rejected", "responded")


def reply(request: Any) -> Any:
    """What the agent does that was asked for an order, an amount and a number of calls: it calls as often, and ends."""
    since = [message.role for message in request.messages][::-1].index("user")
    order, amount, calls = (int(each) for each in request.messages[-1 - since].text.split())
    made = sum(message.role == "assistant" for message in request.messages[len(request.messages) - since :])
    return call("pay", {"order": order, "amount": amount}) if made < calls else "Done."


class Died(BaseException):
    """As if the process had been killed."""


@dataclass(eq=False)
class Run:
    """A run, as the model has it: what it calls, and how many calls are left."""

    id: str
    thread: str | None
    args: dict[str, Any]
    left: int

    @property
    def text(self) -> str:
        return f"{self.args['order']} {self.args['amount']} {self.left}"


@dataclass
class Tracked:
    """A request, as the model has it."""

    count: Count
    item: Any
    branch: str
    asked_at: float
    args: dict[str, Any]
    run: Run
    edited: bool = False

    @property
    def open(self) -> bool:
        return self.count.decided is None


class Runs(RuleBasedStateMachine):
    """Runs that ask for people or pass by grants, in one store that several processes open."""

    kind = "memory"
    driver: Driver = SYNC

    @initialize(
        first=LEVEL,
        second=st.one_of(st.none(), LEVEL),
        requester=st.sampled_from(["ann", "ann", "bob", None]),
        expiry=st.sampled_from([None, None, "reject", "cancel", "stay"]),
        depth=st.sampled_from([0, 0, 1, 2]),
        listed=st.one_of(st.just({}), st.dictionaries(st.sampled_from(IDS), SOME, min_size=3, max_size=6)),
        deputies=st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)), max_size=4),
        given=st.lists(TERMS, max_size=4),
    )
    def begin(
        self,
        first: Level,
        second: Level | None,
        requester: Any,
        expiry: Any,
        depth: int,
        listed: dict[str, frozenset[str]],
        deputies: list[tuple[str, str]],
        given: list[dict[str, Any]],
    ) -> None:
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.place = self.stack.enter_context(place_of(self.kind, folder))
        self.till, self.staff = Till(), Staff()
        self.grants = Grants(self.staff)
        self.granted = 0
        self.words: dict[str, frozenset[str | None]] = {}  # who gave words that the model has read, by branch
        self.first, self.second, self.requester, self.expiry = first, second, requester, expiry
        self.depth = depth
        self.known: list[Tracked] = []
        self.allowed: Counter[str] = Counter()
        self.orders = self.amounts = 0
        self.trail: Counter[tuple[str, bool, bool]] = Counter()
        self.start()
        for id, roles in listed.items():
            self.list_person(id, roles)
        for whose, deputy in deputies:
            self.deputise(whose, deputy, False)
        for terms in given:
            self.give_one(**terms)
            self.till.now += 1

    def start(self) -> None:
        """A process: its store, and its agent."""
        self.store = self.place.open(clock=self.till.clock)
        self.directory = StoreDirectory(self.store)
        lapse = {"expires": 500.0, "on_expiry": self.expiry} if self.expiry is not None else {}
        policy = {} if self.second is None else {"approval_policy": {"pay": approval(self.second)}}
        self.agent = Agent(
            name="desk",
            model=ScriptedModel.by_turn([reply] * 3),
            tools=[self.till.tool(approval(self.first, **lapse))],
            **(policy if self.depth == 0 else {}),
        )
        for place in range(self.depth):
            inside, name = self.agent.as_tool(description="Pays."), self.agent.name
            passes_on = [lambda request, name=name: call(name, {"input": request.messages[-1].text}), "Done."]
            options = policy if place == self.depth - 1 else {}
            self.agent = Agent(name=f"over{place}", model=ScriptedModel.by_turn(passes_on), tools=[inside], **options)
        self.agent.store = self.store

    def ask_all(self) -> tuple[Level, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)

    def levels(self) -> tuple[Level, ...]:
        return asking(*self.ask_all())

    def track(
        self, item: Any, args: dict[str, Any], run: Run, votes: list[Cast] | None = None, *, edited: bool = False
    ) -> Tracked:
        lapses = 500.0 if self.expiry is not None else None
        (row,) = [row for row in self.store.pending() if row.approval.id == item.id]
        count = Count(
            self.levels(),
            self.requester,
            expires=lapses,
            stays=self.expiry == "stay",
            staff=self.staff,
            votes=votes or [],
            args=args,
            wrote=self.words.get(row.branch_id, frozenset()),
        )
        found = Tracked(count, item, row.branch_id, self.till.now, args, run, edited)
        self.known.append(found)
        return found

    def pass_on(self, run: Run, waited: float = 0.0, *, request: object = None) -> None:
        """Follow a run that was carried on: each of its calls has passed by a grant, or waits for people."""
        while run.left:
            request = request or object()
            passing = self.grants.passing(self.wanted(run, request), self.ask_all(), self.till.now, waited)
            lines = [line for line in self.store.audit() if line.grant is not None][self.granted :]
            if not passing:
                assert not lines, (lines, "nothing lets this call through")
                items = [row.approval for row in self.store.pending() if row.run_id == run.id]
                (item,) = [each for each in items if each.id not in {known.item.id for known in self.known}]
                assert len(item.approvers) == len(self.levels())
                if not self.levels():
                    return  # anybody may decide it, and nobody does
                tracked = self.track(item, run.args, run)
                tracked.asked_at -= waited
                return
            assert lines, (passing, "a grant lets this call through")
            grant, votes = next((each for each in passing if each[0].id == lines[0].grant), (None, []))
            assert grant is not None, (lines[0], passing)
            said = [(vote.people[-1].id, vote.people[0].id) for vote in votes]
            by = said or [(grant.givers[-1].id,) * 2]
            lines = lines[: len(by)]
            found = [(line.by.id, (line.behalf_of or line.by).id) for line in lines if line.by]
            assert found == by, (found, by, grant)
            assert [line.vote for line in lines] == [True] * (len(by) - 1) + [False]
            assert {(line.grant, line.channel, line.run_id) for line in lines} == {(grant.id, "grant", run.id)}
            self.granted += len(lines)
            grant.use(request)
            self.allow(run.args)
            run.left -= 1
            request, waited = None, 0.0
        assert not [line for line in self.store.audit() if line.grant is not None][self.granted :], "a use too many"

    def wanted(self, run: Run, request: object) -> Wanted:
        return Wanted(
            request, "desk", "pay", run.args, run.id, run.thread, self.requester, self.words.get(run.id, frozenset())
        )

    def go_on(self, tracked: Tracked, verdict: Verdict) -> None:
        """Follow the run of a request that was decided, and was carried on since."""
        if verdict == "responded" or (verdict == "approved" and tracked.edited):
            self.hear(tracked, tracked.count.votes[-1 if verdict == "responded" else 0])
        if verdict in DECIDED or verdict == "expired":
            tracked.run.left -= 1
            if verdict == "expired" and self.expiry == "cancel":
                tracked.run.left = 0
            self.pass_on(tracked.run)

    def hear(self, tracked: Tracked, vote: Cast) -> None:
        """The model reads the words of this vote, so its people have written in the conversation from now on."""
        self.words[tracked.branch] = self.words.get(tracked.branch, frozenset()) | {each.id for each in vote.people}

    def waits(self) -> list[Tracked]:
        return [each for each in self.known if each.open]

    def allow(self, args: dict[str, Any]) -> None:
        self.allowed[repr(sorted(args.items()))] += 1

    def new_run(self, thread: str | None, amount: int, calls: int) -> Run:
        if not self.levels() or any(each.run.left > 1 for each in self.waits()):
            calls = 1  # of two that go on at once, nobody says which uses a grant first
        if thread is not None and any(each.status not in ENDED for each in self.store.branches(thread_id=thread)):
            thread = None  # a thread has one run at a time
        self.orders += 1
        return Run("", thread, {"order": self.orders, "amount": amount}, calls)

    def invoked(self, run: Run, driver: Driver) -> None:
        """A run begins, with the newest agent."""
        before = {branch.run_id for branch in self.store.branches()}
        earlier = self.store.latest(run.thread) if run.thread else None
        given = {"requester": self.requester, **({"thread_id": run.thread} if run.thread else {})}
        with suppress(Died):
            driver.invoke(self.agent, run.text, **given)
        (run.id,) = {branch.run_id for branch in self.store.branches()} - before
        if earlier is not None:
            self.words[run.id] = self.words.get(earlier.branch_id, frozenset())

    @precondition(lambda self: len(self.waits()) < 3)
    @rule(
        driver=st.sampled_from([SYNC, ASYNC]),
        thread=st.sampled_from([None, "t1", "t2"]),
        amount=st.sampled_from([5, 5, 500]),
        calls=st.sampled_from([1, 1, 2]),
        again=st.lists(BETWEEN, max_size=2),
    )
    def ask(self, driver: Driver, thread: str | None, amount: int, calls: int, again: list[str | None]) -> None:
        """One more run; with a grant that lets its calls through, some more, of which processes may die."""
        self.ask_once(driver, thread, amount, calls)
        for between in again:
            if not self.waits() and self.grants.counting(self.till.now):
                if between is None:
                    self.ask_once(driver, thread, amount, 1)
                else:
                    self.die_once(driver, thread, between)

    def ask_once(self, driver: Driver, thread: str | None, amount: int, calls: int) -> None:
        run = self.new_run(thread, amount, calls)
        self.invoked(run, driver)
        self.pass_on(run)

    @precondition(lambda self: len(self.waits()) < 3 and self.grants.given)
    @rule(
        driver=st.sampled_from([SYNC, ASYNC]),
        thread=st.sampled_from([None, "t1"]),
        between=BETWEEN.filter(lambda each: each is not None),
    )
    def die(self, driver: Driver, thread: str | None, between: str) -> None:
        """A process ends right after a call has used a grant, and another one carries the run on."""
        self.die_once(driver, thread, between)

    def die_once(self, driver: Driver, thread: str | None, between: str) -> None:
        run, request = self.new_run(thread, 5, 1), object()
        with patch.object(module, "decision_by", side_effect=Died):
            self.invoked(run, driver)
        expected = self.grants.passing(self.wanted(run, request), self.ask_all(), self.till.now)
        if not expected:
            self.pass_on(run)
            return
        if any(each.scope == "run" for each, _ in expected):
            raise AssertionError("no grant was given for this run")
        counts = {each.id: each.count for each in self.store.grants(all=True)}
        (grant,) = [each for each, _ in expected if counts[each.id] > each.count]
        grant.use(request)
        asked_at = self.till.now
        if between == "revoke":
            self.revoke_one(grant)
        elif between == "give":
            self.give_one([("bob", False), ("cat", False)], "tenant", None, "any", (None, 2))
        else:
            self.move({"later": 61, "sooner": -50}.get(between, 0))
        self.start()
        driver.recover(self.agent, run.id)
        self.pass_on(run, max(0.0, self.till.now - asked_at), request=request)

    @rule(driver=st.sampled_from([SYNC, ASYNC]))
    def work(self, driver: Driver = SYNC) -> None:
        """A worker does what there is to do, which is also to settle what has expired."""
        driver.call(self.agent, "recover_all")
        for each in self.waits():
            late = self.till.now - each.asked_at >= 500.0
            if late and self.expiry in ("reject", "cancel"):
                each.count.decided = "expired"
                self.go_on(each, "expired")

    @rule(seconds=st.sampled_from([1, 30, 61, 200, 500, -50]))
    def move(self, seconds: int) -> None:
        """The time goes on, or a clock is set back."""
        over = [each for each in self.grants.given if each.is_over(self.till.now)]
        self.till.now += seconds
        if seconds < 0:  # a grant stays until it is over: after that, it may be gone
            kept = {each.id for each in self.store.grants(all=True)}
            gone = [each for each in over if not each.is_over(self.till.now) and each.id not in kept]
            self.grants.given = [each for each in self.grants.given if each not in gone]

    @rule(id=st.sampled_from(IDS), roles=SOME)
    def add_person(self, id: str, roles: frozenset[str]) -> None:
        self.list_person(id, roles)

    def list_person(self, id: str, roles: frozenset[str]) -> None:
        """Somebody is in the directory from now on, with these roles, or has others there."""
        person = Person(id=id, roles=tuple(sorted(roles)), aliases=(f"slack:{id}",))
        self.directory.add(person, replace=True)
        self.staff.roles[id] = roles

    @rule(id=st.sampled_from(IDS))
    def unlist_person(self, id: str) -> None:
        """Somebody is removed from the directory, with all deputies."""
        assert self.directory.remove(id) == (id in self.staff.roles)
        self.staff.roles.pop(id, None)
        self.staff.deputies = {pair for pair in self.staff.deputies if id not in pair}

    @rule(whose=st.sampled_from(IDS), deputy=st.sampled_from(IDS), dismissed=st.booleans())
    def change_deputy(self, whose: str, deputy: str, dismissed: bool) -> None:
        self.deputise(whose, deputy, dismissed)

    def deputise(self, whose: str, deputy: str, dismissed: bool) -> None:
        """Somebody stands for another from now on, or does not any more."""
        if dismissed:
            assert self.directory.dismiss_deputy(whose, deputy) == ((whose, deputy) in self.staff.deputies)
            self.staff.deputies.discard((whose, deputy))
        elif whose != deputy and {whose, deputy} <= self.staff.roles.keys():
            self.directory.name_deputy(whose, deputy)
            self.staff.deputies.add((whose, deputy))

    # Grants

    @rule(terms=TERMS)
    def give(self, terms: dict[str, Any]) -> None:
        """Somebody gives a grant that they write themself, and others sign it."""
        self.give_one(**terms)

    def give_one(self, givers: list[tuple[str, bool]], scope: Any, whose: str | None, what: str, limits: Any) -> None:
        until, uses = limits
        made = Standing(
            "",
            self.till.now,
            scope,
            whose,
            agent="clerk" if what == "other agent" else "desk",
            tool="refund" if what == "other tool" else "pay",
            args={"order": self.orders + 1, "amount": 5} if what == "args" else None,
            condition=what if what in ("small", "odd", "unknown") else None,
            until=None if until is None else self.till.now + until,
            uses=uses,
        )
        grant = Grant(
            agent=made.agent,
            tool=made.tool,
            scope=scope,
            args=made.args,  # type: ignore[arg-type]
            condition=made.condition,
            until=None if made.until is None else datetime.fromtimestamp(made.until, UTC),
            uses=uses,
            thread_id=whose if scope == "thread" else None,
            requester=whose if scope == "principal" else None,
        )
        first, *others = [self.giver(*each) for each in givers]
        made.givers.append(first)
        self.grants.note(made, first)
        made.id = self.store.grant(grant, by=principal(first)).id
        self.grants.given.append(made)
        for each in others:
            self.sign_one(made, each)

    def giver(self, id: str, alias: bool = False) -> Voter:
        return Voter(f"slack:{id}" if alias else id, frozenset(SAID[id]))

    @precondition(lambda self: self.waits())
    @rule(data=st.data(), by=st.sampled_from(IDS), scope=st.sampled_from(["run", "run", "thread", "principal"]))
    def give_like(self, data: st.DataObject, by: str, scope: Any) -> None:
        """Somebody gives a grant like a request that they were shown."""
        tracked = data.draw(st.sampled_from(self.waits()))
        exactly, uses = data.draw(st.booleans()), data.draw(st.sampled_from([1, 2]))
        item, run, giver = tracked.item, tracked.run, self.giver(by)
        whose = {"run": run.id, "thread": run.thread, "principal": self.requester}[scope]
        options = {"scope": scope, "exactly": exactly, "uses": uses, "digest": item.digest, "by": principal(giver)}
        late = self.expiry in ("reject", "cancel") and self.till.now - tracked.asked_at >= 500.0
        try:
            made = self.store.grant_like(item.id, **options)
        except RequestExpired:
            assert late
        except GrantRefused:
            assert whose is None
        else:
            assert not late and whose is not None
            args = tracked.args if exactly else None
            given = Standing(made.id, self.till.now, scope, whose, args=args, uses=uses, givers=[giver])
            self.grants.note(given, giver)
            self.grants.given.append(given)

    @precondition(lambda self: self.grants.given)
    @rule(
        data=st.data(), by=st.sampled_from(IDS), what=st.sampled_from(["sign", "sign", "revoke"]), alias=st.booleans()
    )
    def change_grant(self, data: st.DataObject, by: str, what: str, alias: bool) -> None:
        """Somebody signs a grant, or revokes it."""
        grant = data.draw(st.sampled_from(self.grants.given))
        if what == "sign":
            self.sign_one(grant, self.giver(by, alias))
        else:
            self.revoke_one(grant)

    def sign_one(self, grant: Standing, giver: Voter) -> None:
        if grant.sign(giver, self.till.now):
            self.grants.note(grant, giver)
            assert len(self.store.sign_grant(grant.id, by=principal(giver)).givers) == len(grant.givers)
            return
        with pytest.raises(GrantRefused):
            self.store.sign_grant(grant.id, by=principal(giver))

    def revoke_one(self, grant: Standing) -> None:
        if not grant.is_over(self.till.now):  # one whose time is over may be gone
            assert self.store.revoke(grant.id, by="boss") == (not grant.revoked)
            grant.revoked = True

    def look_at_grants(self) -> None:
        """The grants that count, and how often each was used."""
        now = self.till.now
        listed = self.store.grants(agent="desk", tool="pay")
        wanted = [each for each in self.grants.counting(now) if (each.agent, each.tool) == ("desk", "pay")]
        assert {each.id for each in listed} == {each.id for each in wanted}
        assert [each.at.timestamp() for each in listed if each.at] == [each.at for each in wanted]
        kept = {each.id: each for each in self.store.grants(all=True)}
        for each in self.grants.given:
            if not each.is_over(now):
                found = kept[each.id]
                assert (found.count, found.revoked is not None) == (each.count, each.revoked)
                assert len(found.used) == (each.count if each.uses is not None else 0)
                assert [giver.principal.id for giver in found.givers] == [giver.id for giver in each.givers]
