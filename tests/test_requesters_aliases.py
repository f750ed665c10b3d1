"""A requester is kept as the person whom the directory knew then: an alias that moves frees nobody, and keeps nobody else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from drivers import Driver
from tables import each

from phronomy import (
    Agent,
    Approval,
    Approve,
    Checkpoint,
    MemoryStore,
    NotAnApprover,
    Principal,
    Reject,
    Respond,
    tool,
)
from phronomy.people import Person, StoreDirectory
from phronomy.records.approvers import Approvers
from phronomy.records.chain import with_known
from phronomy.rules.votes import has_asked, is_requester
from phronomy.runs.finding import beginning
from phronomy.stores.derived.people import as_met, writers_of
from phronomy.stores.derived.standing import standing_of, who_may
from phronomy.testing import ScriptedModel, call

SLACK = "slack:U1"
OTTO = Principal(id="otto")


class Desk:
    """An agent that pays when somebody says so, and a directory in which rita and bert are of finance, and ada too."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.store = MemoryStore()
        self.people = StoreDirectory(self.store)
        for id in ("rita", "bert", "ada"):
            self.people.add(Person(id=id, roles=("finance",)))
        self.people.add_alias("rita", SLACK)

        @tool(requires_approval=Approval(by="finance", not_requester=True))
        def pay(to: str) -> str:
            """Pay."""
            return "paid"

        @tool(requires_approval=True)
        def look(at: str) -> str:
            """Look."""
            return f"saw {at}"

        def reply(request: Any) -> Any:
            last = request.messages[-1]
            if last.role == "user" and "look" in last.text:
                return call("look", {"at": "ACME"})
            return call("pay", {"to": "ACME"}) if "pay" in last.text else "Good."

        self.agent = Agent(name="desk", model=ScriptedModel(reply), tools=[pay, look], store=self.store)

    def says(self, who: Any, text: str, **options: Any) -> Checkpoint:
        found: Checkpoint = self.driver.invoke(self.agent, text, requester=who, **options).checkpoint
        return found

    def moves(self, to: str | None = "bert") -> None:
        """The alias of rita is somebody else's from now on, or nobody's."""
        self.people.add(Person(id="rita", roles=("finance",)), replace=True)
        if to is not None:
            self.people.add_alias(to, SLACK)

    def may_approve(self, at: Checkpoint, who: str) -> bool:
        """True if somebody may approve, by every door; nobody does, so that the next one can be asked."""
        item, by = at.pending[0], Principal(id=who)
        if "approve" in standing_of(self.store, item, by).answers:
            fork = self.driver.fork(self.agent, at)
            assert self.driver.resume(self.agent, fork, approved=True, by=by).status == "completed"
            return True
        with pytest.raises(NotAnApprover):
            self.driver.call(self.store, "decide", item.id, Approve(), by=by, digest=item.digest)  # type: ignore[arg-type]
        with pytest.raises(NotAnApprover):
            self.driver.resume(self.agent, at, approved=True, by=by)
        return False

    def allowed(self, at: Checkpoint) -> list[str]:
        """Who of the three may approve, and who comes under the alias."""
        return [who for who in ("rita", "bert", "ada", SLACK) if self.may_approve(at, who)]


@pytest.fixture
def desk(driver: Driver) -> Desk:
    return Desk(driver)


def asks(desk: Desk, who: Any) -> Checkpoint:
    """Somebody asks for the run."""
    return desk.says(who, "pay", thread_id="t")


def writes_before(desk: Desk, who: Any) -> Checkpoint:
    """Somebody writes in an earlier run of the thread."""
    desk.says(who, "hello", thread_id="t")
    return desk.says(OTTO, "pay", thread_id="t")


def says_more(desk: Desk, who: Any) -> Checkpoint:
    """Somebody says more with a decision."""
    at = desk.says(OTTO, "pay", thread_id="t")
    given = {at.pending[0].id: Reject()}
    return desk.driver.resume(desk.agent, at, decisions=given, by=who, input="pay").checkpoint


def gives_a_reason(desk: Desk, who: Any) -> Checkpoint:
    """Somebody cancels with a reason, which the next run reads."""
    at = desk.says(OTTO, "pay", thread_id="t")
    desk.driver.cancel(desk.agent, at, reason="remember", by=who)
    return desk.says(OTTO, "pay", thread_id="t")


def at_the_agent(answer: Any) -> Any:
    def way(desk: Desk, who: Any) -> Checkpoint:
        at = desk.says(OTTO, "look", thread_id="t")
        given = {at.pending[0].id: answer}
        return desk.driver.resume(desk.agent, at, decisions=given, by=who).checkpoint

    return way


def at_the_store(answer: Any) -> Any:
    def way(desk: Desk, who: Any) -> Checkpoint:
        at = desk.says(OTTO, "look", thread_id="t")
        item = at.pending[0]
        desk.driver.call(desk.store, "decide", item.id, answer, by=who, digest=item.digest)  # type: ignore[arg-type]
        return desk.driver.recover(desk.agent, at.run_id).checkpoint

    return way


ANSWERS = [Reject(reason="pay"), Respond(content="pay"), Approve(args={"at": "pay"})]
WAYS = [
    asks,
    writes_before,
    says_more,
    gives_a_reason,
    *(door(answer) for door in (at_the_agent, at_the_store) for answer in ANSWERS),
]


@pytest.mark.parametrize("way", WAYS)
@each(
    ("to", "allowed"),
    [
        ("bert", ["bert", "ada", SLACK]),
        (None, ["bert", "ada"]),
    ],
)
def test_an_alias_that_moves_frees_nobody_and_keeps_nobody_else(
    driver: Driver, way: Any, to: str | None, allowed: list[str]
) -> None:
    """Before it moves, it is rita; afterwards, she has written all the same. Under an alias of nobody, she may come again."""
    desk = Desk(driver)
    at = way(desk, SLACK)
    assert desk.allowed(at) == ["bert", "ada"]
    desk.moves(to)
    assert desk.allowed(at) == allowed
    assert "slack" not in " ".join(who_may(desk.store, at.pending[0]))
    # Nor in what follows in the thread, which was begun under the same alias.
    desk.driver.cancel(desk.agent, at)
    later = desk.says(OTTO, "pay", thread_id="t")
    assert desk.allowed(later) == allowed


@each("to", ["bert", None])
def test_who_sends_a_message_under_an_alias_has_written(driver: Driver, to: str | None) -> None:
    desk = Desk(driver)
    at = desk.says(OTTO, "pay")
    desk.driver.call(desk.agent, "send", at, "more", by=SLACK)
    item = desk.store.request(at.pending[0].id).approval
    assert item.approvers[0].known == ((SLACK, "rita"),)
    desk.moves(to)
    with pytest.raises(NotAnApprover):
        desk.driver.resume(desk.agent, at, approved=True, by="rita")
    assert "approve" not in standing_of(desk.store, item, Principal(id="rita")).answers
    result = desk.driver.resume(desk.agent, at, approved=True, by="bert")
    assert result.status == "completed" and result.checkpoint.known == ((SLACK, "rita"),)


def test_both_count_who_have_written_under_one_alias(desk: Desk) -> None:
    desk.says(SLACK, "hello", thread_id="t")
    desk.moves()
    at = desk.says(SLACK, "pay", thread_id="t")
    assert (at.requester, at.requesters, at.known) == (Principal(id=SLACK), (), ((SLACK, "rita"),))
    assert at.requester is not None and at.requester.person == "bert"
    assert desk.allowed(at) == ["ada"]
    assert writers_of(desk.store, at) == {"rita", "bert"}


def test_who_gets_the_alias_as_an_id_has_not_written(desk: Desk) -> None:
    at = writes_before(desk, SLACK)
    desk.moves(None)
    desk.people.add(Person(id=SLACK, roles=("finance",)))
    assert desk.allowed(at) == ["bert", "ada", SLACK]


def test_a_guest_is_whoever_has_the_alias_now(desk: Desk) -> None:
    """Nobody was known by it when they wrote: of all people, who has it now may be meant."""
    at = desk.says("slack:U9", "pay")
    desk.people.add_alias("ada", "slack:U9")
    assert at.requester is not None and at.requester.person is None
    assert desk.allowed(at) == ["rita", "bert", SLACK]


def test_rows_of_before_have_aliases_alone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read, and an alias is looked up when somebody decides."""
    with monkeypatch.context() as before:
        before.setattr(beginning, "admit", lambda store, who: who)
        at = writes_before(desk, SLACK)
    assert (at.requesters, at.known, at.pending[0].approvers[0].known) == ((SLACK,), (), ())
    assert not {"known", "person"} & set(re.findall(r"[a-z]+", at.model_dump_json()))
    assert desk.allowed(at) == ["bert", "ada"] and writers_of(desk.store, at) == {"rita", "otto"}
    desk.moves()
    assert desk.allowed(at) == ["rita", "ada"] and writers_of(desk.store, at) == {"bert", "otto"}


def test_what_is_nested_has_the_people_of_the_run_around_it(desk: Desk) -> None:
    inner = desk.agent.as_tool(name="ask", description="Ask.")

    def reply(request: Any) -> Any:
        last = request.messages[-1]
        return call("ask", {"input": last.text}) if last.role == "user" else "Good."

    outer = Agent(name="outer", model=ScriptedModel(reply), tools=[inner], store=desk.store)
    desk.driver.invoke(outer, "hello", requester=SLACK, thread_id="t")
    at = desk.driver.invoke(outer, "pay", requester=OTTO, thread_id="t").checkpoint
    assert at.nested[0].known == at.known == ((SLACK, "rita"),)
    desk.moves()
    with pytest.raises(NotAnApprover):
        desk.driver.resume(outer, at, approved=True, by="rita")
    assert desk.driver.resume(outer, at, approved=True, by="bert").status == "completed"


def test_what_is_kept_is_in_no_comparison_and_no_wire(desk: Desk) -> None:
    known = as_met(desk.store, Principal(id=SLACK, person="mallory"))
    assert known.person == "rita" and known == Principal(id=SLACK) and hash(known) == hash(Principal(id=SLACK))
    assert as_met(desk.store, Principal(id="rita", person="mallory")).person is None
    assert as_met(desk.store, None) is None
    assert "person" not in Principal(id="rita").model_dump_json()


RITA, BERT = Principal(id=SLACK, person="rita"), Principal(id=SLACK, person="bert")


@each(
    ("known", "requester", "writer", "after"),
    [
        ((), OTTO, RITA, ((SLACK, "rita"),)),
        (((SLACK, "rita"),), OTTO, RITA, ((SLACK, "rita"),)),
        (((SLACK, "rita"),), OTTO, BERT, ((SLACK, "rita"), (SLACK, "bert"))),
        ((), RITA, RITA, ()),
        ((), RITA, BERT, ((SLACK, "bert"),)),
        ((), None, None, ()),
        ((), OTTO, OTTO, ()),
    ],
)
def test_each_alias_is_kept_once_for_each_person(known: Any, requester: Any, writer: Any, after: Any) -> None:
    assert with_known(known, requester, writer) == after


@each(
    ("vote", "asked"),
    [("rita", True), (SLACK, False), ("bert", True), ("ada", False), ("otto", True)],
)
def test_the_gate_counts_people_without_the_directory(vote: str, asked: bool) -> None:
    """By the record alone: of an alias, the person who had it then."""
    level = Approvers(not_requester=True, authors=(SLACK, "bert"), known=((SLACK, "rita"),))
    assert has_asked(level, {vote}, OTTO) is asked
    assert is_requester({"rita"}, RITA) and not is_requester({SLACK}, RITA)
