"""Random votes by random people, while roles, deputies and the time change, and processes end: each comes to what the model says."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from approver_model import Cast, Count, Level, Staff, Step, Verdict, Voter, asking
from approver_scenes import ANSWERS, Till, approval, principal, verdict_of, waiting
from drivers import ASYNC, SYNC, Driver
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from places import place_of
from selection import scaled

from phronomy import Agent, Approve, Principal, Respond
from phronomy.people import Person, StoreDirectory
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
    instead=st.booleans(),
    needed=st.sampled_from([None, 1, 2]),
)
LEVEL = st.builds(
    Level,
    roles=SOME,
    ids=st.sampled_from([frozenset(), frozenset({"dan"}), frozenset({"eve", "bob"})]),
    needed=st.sampled_from([1, 2, 2, 3]),
    rejections=st.sampled_from([1, 2]),
    not_requester=st.booleans(),
    steps=st.one_of(st.just(()), STEP.map(lambda step: (step,))),
).filter(lambda level: level.reachable())

WAYS = st.sampled_from([(SYNC, True), (SYNC, False), (ASYNC, True), (ASYNC, False)])
"""How a vote is cast: by which driver, and whether with the store alone."""


def said_in(request: Any) -> int:
    """The number of the order that an agent was asked for."""
    return int([message.text for message in request.messages if message.role == "user"][-1])


@dataclass
class Tracked:
    """A request, as the model has it."""

    count: Count
    item: Any
    asked_at: float
    args: dict[str, Any]

    @property
    def open(self) -> bool:
        return self.count.decided is None


class Votes(RuleBasedStateMachine):
    """Runs that wait for people, in one store that several processes open."""

    kind = "memory"
    driver: Driver = SYNC

    @initialize(
        first=LEVEL,
        second=st.one_of(st.none(), LEVEL),
        requester=st.sampled_from(["ann", "ann", "bob", None]),
        expiry=st.sampled_from([None, None, "reject", "cancel", "stay"]),
        depth=st.sampled_from([0, 0, 1, 2]),
        listed=st.dictionaries(st.sampled_from(IDS), SOME, max_size=4),
        deputies=st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)), max_size=4),
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
    ) -> None:
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.place = self.stack.enter_context(place_of(self.kind, folder))
        self.till, self.staff = Till(), Staff()
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

    def start(self) -> None:
        """A process: its store, and its agent."""
        self.store = self.place.open(clock=self.till.clock)
        self.directory = StoreDirectory(self.store)
        lapse = {"expires": 500.0, "on_expiry": self.expiry} if self.expiry is not None else {}
        policy = {} if self.second is None else {"approval_policy": {"pay": approval(self.second)}}
        self.agent = Agent(
            name="desk",
            model=ScriptedModel.by_turn([lambda request: call("pay", {"order": said_in(request)}), "Done."]),
            tools=[self.till.tool(approval(self.first, **lapse))],
            **(policy if self.depth == 0 else {}),
        )
        for place in range(self.depth):
            inside, name = self.agent.as_tool(description="Pays."), self.agent.name
            reply = [lambda request, name=name: call(name, {"input": str(said_in(request))}), "Done."]
            options = policy if place == self.depth - 1 else {}
            self.agent = Agent(name=f"over{place}", model=ScriptedModel.by_turn(reply), tools=[inside], **options)
        self.agent.store = self.store

    def levels(self) -> tuple[Level, ...]:
        return asking(self.first, *(() if self.second is None else (self.second,)))

    def track(self, item: Any, args: dict[str, Any], votes: list[Cast] | None = None) -> Tracked:
        lapses = 500.0 if self.expiry is not None else None
        count = Count(
            self.levels(),
            self.requester,
            expires=lapses,
            stays=self.expiry == "stay",
            staff=self.staff,
            votes=votes or [],
        )
        found = Tracked(count, item, self.till.now, args)
        self.known.append(found)
        return found

    def waits(self) -> list[Tracked]:
        return [each for each in self.known if each.open]

    def allow(self, args: dict[str, Any]) -> None:
        self.allowed[repr(sorted(args.items()))] += 1

    @precondition(lambda self: len(self.waits()) < 3)
    @rule(driver=st.sampled_from([SYNC, ASYNC]))
    def ask(self, driver: Driver) -> None:
        """One more run."""
        self.orders += 1
        args = {"order": self.orders, "amount": 5}
        result = driver.invoke(self.agent, str(self.orders), requester=self.requester)
        (item,) = result.checkpoint.pending
        assert len(item.approvers) == len(self.levels())
        if self.levels():
            self.track(item, args)

    def cast(
        self, tracked: Tracked, who: str, kind: str, way: tuple[Driver, bool], answer: Any, content: Any
    ) -> Verdict:
        """Vote, and compare with the model: the verdict, and what is stored."""
        driver, alone = way
        item, at = tracked.item, self.till.now - tracked.asked_at
        voter = Voter(who, frozenset(SAID[who]))
        # Somebody whom the directory knows comes by an alias: they are the same person, with the roles that it says.
        said = principal(voter) if who not in self.staff.roles else Principal(id=f"slack:{who}", roles=("lead",))
        before = self.store.request(item.id)
        trail = len([*self.store.audit()])
        wanted = tracked.count.cast(voter, kind, at, content=content)  # type: ignore[arg-type]
        given = {"by": said, "digest": item.digest, "channel": "handler"}
        found = verdict_of(
            lambda: driver.call(self.store if alone else self.agent, "decide", item.id, answer, **given),  # type: ignore[arg-type]
            lambda: waiting(self.store, item.id),
            kind,
        )
        if tracked.count.decided == "expired" and wanted == "late":
            assert found in ("late", "expired")  # both say that it came too late
            return "late"
        assert found == wanted, (found, wanted, who, kind, at, tracked)
        lines = [line for line in [*self.store.audit()][trail:] if line.pending_id == item.id and not line.checked]
        after = self.store.request(item.id)
        if wanted in ("refused", "repeated"):
            assert after == before, "what was refused has changed something"
            assert [line.refused for line in lines] == [True] * (wanted == "refused")
        elif wanted in ("counted", "approved", "rejected", "responded"):
            (line,) = lines
            assert (line.kind, line.by.id, line.vote) == (kind, who, wanted == "counted"), (line, wanted)
        elif wanted == "expired" and not alone:  # with the agent, the run goes on from there
            tracked.count.decided = "expired"
        return wanted

    @precondition(lambda self: self.known)
    @rule(
        data=st.data(),
        who=st.sampled_from(IDS),
        kind=st.sampled_from(["approve", "approve", "approve", "reject", "respond", "otherwise"]),
        way=WAYS,
    )
    def vote(self, data: st.DataObject, who: str, kind: str, way: tuple[Driver, bool]) -> None:
        """Somebody votes on what waits, or once waited."""
        tracked = data.draw(st.sampled_from(self.waits() or self.known[-2:]))
        answer, content = ANSWERS.get(kind, Respond(content="another way")), None
        if kind in ("respond", "otherwise"):
            kind, content = "respond", answer.content
        verdict = self.cast(tracked, who, kind, way, answer, content)
        if verdict == "approved":
            self.allow(tracked.args)

    @precondition(lambda self: self.waits())
    @rule(data=st.data(), who=st.sampled_from(IDS), way=WAYS)
    def edit(self, data: st.DataObject, who: str, way: tuple[Driver, bool]) -> None:
        """Somebody approves other arguments: the votes before are void, and theirs is the first on what it comes to."""
        tracked = data.draw(st.sampled_from(self.waits()))
        driver, alone = way
        self.amounts += 1
        args = {**tracked.args, "amount": 100 + self.amounts}
        item, count = tracked.item, tracked.count
        at = self.till.now - tracked.asked_at
        before = self.store.request(item.id)
        votes = [*count.votes]
        wanted = count.cast(Voter(who, frozenset(SAID[who])), "approve", at)
        given = {"by": principal(Voter(who, frozenset(SAID[who]))), "digest": item.digest}
        found = verdict_of(
            lambda: driver.call(
                self.store if alone else self.agent,  # type: ignore[arg-type]
                "decide",
                item.id,
                Approve(args=args),
                **given,
            ),
            lambda: waiting(self.store, item.id),
            "approve",
        )
        if wanted in ("refused", "repeated", "expired"):
            assert found == wanted, (found, wanted, who)
            assert wanted == "expired" or self.store.request(item.id) == before
            if wanted == "expired" and not alone:
                count.decided = "expired"
            return
        assert found == "approved", "the old request is decided, whatever it comes to"
        own = count.votes[-1]
        count.votes[:] = votes
        count.decided = "approved"
        fresh = Count(count.levels, count.requester, staff=self.staff, votes=[own])
        enough = fresh.comes_to(own, 0.0) is not None  # it is asked anew, and so is the time of escalations
        if enough:
            self.allow(args)
        if alone:
            self.work()
        again = [row.approval for row in self.store.pending() if row.approval.args == args]
        assert len(again) == (not enough), (again, enough)
        if again:
            assert again[0].id != item.id and [each.by.id for each in again[0].votes] == [who]
            self.track(again[0], args, [own])

    @rule(driver=st.sampled_from([SYNC, ASYNC]))
    def work(self, driver: Driver = SYNC) -> None:
        """A worker does what there is to do, which is also to settle what has expired."""
        driver.call(self.agent, "recover_all")
        for each in self.waits():
            late = self.till.now - each.asked_at >= 500.0
            if late and self.expiry in ("reject", "cancel"):
                each.count.decided = "expired"

    @rule(seconds=st.sampled_from([1, 30, 61, 200, 500, -50]))
    def move(self, seconds: int) -> None:
        """The time goes on, or a clock is set back."""
        self.till.now += seconds

    @rule(id=st.sampled_from(IDS), roles=SOME)
    def add_person(self, id: str, roles: frozenset[str]) -> None:
        self.list_person(id, roles)

    def list_person(self, id: str, roles: frozenset[str]) -> None:
        """Somebody is in the directory from now on, with these roles, or has others there."""
        if any(id in each.count.used() for each in self.waits()):
            roles &= self.staff.known(
                Voter(id, frozenset(SAID[id]))
            ).roles  # see faults_found: roles that are given in between
        person = Person(id=id, roles=tuple(sorted(roles)), aliases=(f"slack:{id}",))
        self.directory.add(person, replace=True)
        self.staff.roles[id] = roles

    @rule(id=st.sampled_from(IDS))
    def unlist_person(self, id: str) -> None:
        """Somebody is removed from the directory, with all deputies."""
        if any(id in each.count.used() for each in self.waits()) and not SAID[id] <= self.staff.roles.get(
            id, frozenset()
        ):
            return  # as above: they would have the roles again that callers give
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

    @precondition(lambda self: self.waits())
    @rule(data=st.data(), what=st.sampled_from(["crash", "crash", "fork", "cancel"]))
    def disturb(self, data: st.DataObject, what: str) -> None:
        """The process ends; or somebody forks a run, or cancels it."""
        if what == "crash":
            self.start()
            self.work()
            return
        tracked = data.draw(st.sampled_from(self.waits()))
        (row,) = [row for row in self.store.pending() if row.approval.id == tracked.item.id]
        if what == "fork":
            (item,) = self.store.fork(row.checkpoint_id).pending
            assert item.id != tracked.item.id and item.votes == ()
            (listed,) = [each.approval for each in self.store.pending() if each.approval.id == item.id]
            self.track(listed, tracked.args)
        else:
            self.agent.cancel(row.branch_id, reason="enough")
            self.known.remove(tracked)  # nothing is known of it any more

    @rule()
    def look(self) -> None:
        """Compare what is there with the model."""
        paid = Counter(repr(sorted(args.items())) for args in self.till.paid)
        assert paid <= self.allowed, (paid, self.allowed)
        listed = {row.approval.id: row.approval for row in self.store.pending()}
        assert listed.keys() >= {each.item.id for each in self.waits()}
        for each in self.known:
            if each.open:
                assert [vote.by.id for vote in listed[each.item.id].votes] == [vote.by for vote in each.count.votes]
        for each in self.known:
            decision = self.store.request(each.item.id).decision if not each.open else None
            if (
                decision is not None
                and decision.votes
                and decision.digest == each.item.digest
                and decision.args is None
            ):
                assert [vote.by.id for vote in decision.votes] == [vote.by for vote in each.count.votes]

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            try:
                self.till.now += 1
                self.work()
                self.work()
                self.look()
                paid = Counter(repr(sorted(args.items())) for args in self.till.paid)
                assert paid == self.allowed, "what enough people have approved has not run"
            finally:
                self.stack.close()


class SQLiteVotes(Votes):
    kind = "sqlite"


class PostgresVotes(Votes):
    kind = "postgres"


class RedisVotes(Votes):
    kind = "redis"


def machine(votes: type[Votes], examples: int) -> Any:
    case = votes.TestCase
    case.settings = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    return case


TestVotes = machine(Votes, scaled(40, sweep=200))
TestSQLiteVotes = machine(SQLiteVotes, scaled(8, sweep=40))
TestPostgresVotes = machine(PostgresVotes, scaled(4, sweep=25))
TestRedisVotes = machine(RedisVotes, scaled(4, sweep=25))
