"""Random votes and grants by random people, while roles, deputies and the time change, and processes end.

Each vote comes to what the model says, and each call passes by the grant that the model says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from approver_model import Cast, Count, Verdict, Voter
from approver_runs import DECIDED, IDS, SAID, SOME, WAYS, Runs, Tracked
from approver_scenes import ANSWERS, principal, verdict_of, waiting
from drivers import SYNC, Driver
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from selection import scaled

from phronomy import Approve, Principal, Respond


class Votes(Runs):
    """Votes on runs that wait, and what disturbs them."""

    def cast(
        self,
        tracked: Tracked,
        who: str,
        kind: Any,
        way: tuple[Driver, bool],
        answer: Any,
        content: Any,
        data: st.DataObject | None = None,
    ) -> Verdict:
        """Vote, and compare with the model: the verdict, and what is stored."""
        driver, alone = way
        item, at = tracked.item, self.till.now - tracked.asked_at
        voter = Voter(who, frozenset(SAID[who]))
        # Somebody whom the directory knows comes by an alias: they are the same person, with the roles that it says.
        said = principal(voter) if who not in self.staff.roles else Principal(id=f"slack:{who}", roles=("lead",))
        before = self.store.request(item.id)
        trail = len([*self.store.audit()])
        known = self.staff.known(voter)
        wanted = tracked.count.cast(voter, kind, at, content=content, alone=alone)
        given = {"by": said, "digest": item.digest, "channel": "handler"}
        found = verdict_of(
            lambda: driver.call(self.store if alone else self.agent, "decide", item.id, answer, **given),  # type: ignore[arg-type]
            lambda: waiting(self.store, item.id),
            kind,
        )
        if wanted == "to check":
            assert found == DECIDED[("approve", "reject", "respond").index(kind)], (found, wanted, who, kind, tracked)
            return self.checked(tracked, known, kind, at, content, data)
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
            self.go_on(tracked, "expired")
        if wanted in DECIDED:
            if wanted == "approved":
                self.allow(tracked.args)
            # A run that ends after this call may be left for later. One that calls again is carried on at once.
            if alone and tracked.run.left > 1:
                self.work()
            if not alone or tracked.run.left > 1:
                self.go_on(tracked, wanted)
            else:
                tracked.run.left = 0
        return wanted

    def checked(
        self, tracked: Tracked, voter: Voter, kind: Any, at: float, content: Any, data: st.DataObject | None
    ) -> Verdict:
        """A vote that only a function can judge is there, until a worker asks it; meanwhile other things happen."""
        was_listed, item = voter.id in self.staff.roles, tracked.item
        assert waiting(self.store, item.id) is None
        tracked.count.decided = "to check"
        for event in (
            data.draw(st.lists(st.sampled_from(["vote", "list", "unlist", "crash"]), max_size=2)) if data else ()
        ):
            if event == "vote":
                other = data.draw(st.sampled_from([each for each in IDS if each != voter.id]))
                assert self.cast(tracked, other, "approve", (SYNC, True), Approve(), None) == "late"
            elif event == "list":
                self.list_person(str(voter.id), data.draw(SOME))
            elif event == "unlist":
                self.unlist_person(str(voter.id))
            else:
                self.start()
        self.work()
        tracked.count.decided = None
        is_gone = was_listed and voter.id not in self.staff.roles
        verdict = "refused" if is_gone else tracked.count.cast(voter, kind, at, content=content)
        (line,) = [line for line in self.store.audit() if line.pending_id == item.id and line.checked]
        assert (line.refused, line.by and line.by.id) == (verdict in ("refused", "repeated"), voter.id), (line, verdict)
        if verdict in DECIDED:
            if verdict == "approved":
                self.allow(tracked.args)
            self.go_on(tracked, verdict)
            return "to check"
        again = [row.approval for row in self.store.pending() if row.branch_id == tracked.branch]
        (tracked.item,) = again
        assert tracked.item.id != item.id and tracked.item.requested_at == item.requested_at
        assert [vote.by.id for vote in tracked.item.votes] == [vote.by for vote in tracked.count.votes]
        return "to check"

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
        self.cast(tracked, who, kind, way, answer, content, data)

    @precondition(lambda self: self.waits())
    @rule(data=st.data(), who=st.sampled_from(IDS), way=WAYS)
    def edit(self, data: st.DataObject, who: str, way: tuple[Driver, bool]) -> None:
        """Somebody approves other arguments: the votes before are void, and theirs is the first on what it comes to."""
        tracked = data.draw(st.sampled_from(self.waits()))
        driver, alone = way
        self.amounts += 1
        args = {**tracked.args, "amount": 1000 + self.amounts}
        item, count = tracked.item, tracked.count
        at = self.till.now - tracked.asked_at
        before = self.store.request(item.id)
        votes, voter = [*count.votes], Voter(who, frozenset(SAID[who]))
        wanted = count.cast(voter, "approve", at, alone=alone)
        given = {"by": principal(voter), "digest": item.digest}
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
                self.go_on(tracked, "expired")
            return
        assert found == "approved", "the old request is decided, whatever it comes to"
        if alone:
            self.work()
            # The worker asks the functions as well, so it may be another of those for whom they can vote.
            count.votes[:], count.decided = votes, None
            wanted = count.cast(voter, "approve", at)
        again = [row.approval for row in self.store.pending() if row.branch_id == tracked.branch]
        if wanted in ("refused", "repeated"):
            (tracked.item,) = again
            assert tracked.item.id != item.id and tracked.item.args == tracked.args
            return
        own = count.votes[-1]
        count.votes[:] = votes
        count.decided = "approved"
        fresh = Count(
            count.levels, count.requester, staff=self.staff, args=args, wrote=count.wrote
        )  # it is asked anew, and so is its time
        mine = fresh.voice(voter, "approve", 0.0)
        own = mine if isinstance(mine, Cast) else replace(own, held=frozenset())
        fresh.votes.append(own)
        if fresh.comes_to(own, 0.0) is not None:
            self.allow(args)
            self.hear(tracked, own)
            self.go_on(tracked, "approved")
            return
        (new,) = again
        assert (new.id != item.id, new.args, [each.by.id for each in new.votes]) == (True, args, [who])
        self.track(new, args, tracked.run, [own], edited=True)

    @precondition(lambda self: self.waits())
    @rule(data=st.data(), what=st.sampled_from(["crash", "crash", "fork", "cancel"]))
    def disturb(self, data: st.DataObject, what: str) -> None:
        """The process ends; or somebody forks a run, or cancels it."""
        if what == "crash":
            self.start()
            self.work()
            return
        tracked = data.draw(st.sampled_from(self.waits()))
        if what == "fork" and tracked.run.left > 1:
            return
        (row,) = [row for row in self.store.pending() if row.approval.id == tracked.item.id]
        if what == "fork":
            (item,) = self.store.fork(row.checkpoint_id).pending
            assert item.id != tracked.item.id and item.votes == ()
            (forked,) = [each for each in self.store.pending() if each.approval.id == item.id]
            self.words[forked.branch_id] = self.words.get(tracked.branch, frozenset())
            self.track(forked.approval, tracked.args, replace(tracked.run), edited=tracked.edited)
        else:
            who, reason = data.draw(st.sampled_from([None, *IDS])), data.draw(st.sampled_from([None, "enough"]))
            self.agent.cancel(row.branch_id, reason=reason, by=who)
            self.known.remove(tracked)  # nothing is known of it any more
            if reason is not None:  # the next run of the thread reads it
                self.words[tracked.branch] = self.words.get(tracked.branch, frozenset()) | {who}

    @rule()
    def look(self) -> None:
        """Compare what is there with the model."""
        paid = Counter(repr(sorted(args.items())) for args in self.till.paid)
        assert paid <= self.allowed, (paid, self.allowed)
        self.look_at_grants()
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


TestVotes = machine(Votes, scaled(40, sweep=60))
TestSQLiteVotes = machine(SQLiteVotes, scaled(8, sweep=20))
TestPostgresVotes = machine(PostgresVotes, scaled(4, sweep=20))
TestRedisVotes = machine(RedisVotes, scaled(4, sweep=20))
