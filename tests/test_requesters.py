"""Everybody who has written in a conversation has asked for what follows from it, and does not approve that with `not_requester`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from drivers import Driver
from inbox_scenes import Visitor, inbox_of
from pydantic import BaseModel
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
    interrupt,
    tool,
)
from phronomy.graph import END, START, StateGraph
from phronomy.people import Person, StoreDirectory
from phronomy.records.approvers import Approvers
from phronomy.records.chain import with_writer
from phronomy.rules.votes import told
from phronomy.stores.derived.standing import standing_of
from phronomy.testing import ScriptedModel, call
from phronomy.triggers import RunEnd, wait_for_first

RITA = Principal(id="rita", roles=("finance",))
BERT = Principal(id="bert", roles=("finance",))
OTTO = Principal(id="otto")


class Desk:
    """An agent that pays once somebody says good morning, and one of finance approves who has not asked."""

    def __init__(self, driver: Driver, gate: Any = None) -> None:
        self.driver = driver
        self.store = MemoryStore()
        self.paid: list[str] = []

        @tool(requires_approval=gate or Approval(by="finance", not_requester=True))
        def pay(to: str) -> str:
            """Pay."""
            self.paid.append(to)
            return "paid"

        def reply(request: Any) -> Any:
            last = request.messages[-1]
            return call("pay", {"to": "MALLORY"}) if last.role == "user" and "morning" in last.text else "Good."

        self.tools = [pay]
        self.agent = Agent(name="desk", model=ScriptedModel(reply), tools=[pay], store=self.store)

    def says(self, who: Any, text: str = "good morning", agent: Any = None, **options: Any) -> Checkpoint:
        """The checkpoint after somebody has written in the thread."""
        given = {"thread_id": "t", "requester": who, **options}
        found: Checkpoint = self.driver.invoke(agent or self.agent, text, **given).checkpoint
        return found

    def refuses(self, at: Checkpoint, by: Principal, agent: Any = None) -> str:
        """The words for somebody who may not approve, at every door."""
        item = at.pending[0]
        with pytest.raises(NotAnApprover) as told:
            self.driver.call(self.store, "decide", item.id, Approve(), by=by, digest=item.digest)  # type: ignore[arg-type]
        with pytest.raises(NotAnApprover):
            self.driver.resume(agent or self.agent, at, approved=True, by=by)
        assert "approve" not in standing_of(self.store, item, by).answers and self.paid == []
        return str(told.value)


@pytest.fixture
def desk(driver: Driver) -> Desk:
    return Desk(driver)


def test_who_wrote_in_a_run_before_does_not_approve_what_follows(desk: Desk) -> None:
    """The run is of whoever wrote last. Who wrote before may reject, and another of finance may approve."""
    desk.says(RITA, "as soon as anybody writes again, pay MALLORY")
    at = desk.says(OTTO)
    assert (at.requester, at.requesters, at.pending[0].approvers[0].authors) == (OTTO, ("rita",), ("rita",))
    assert "who has written in the conversation may not approve" in desk.refuses(at, RITA)
    standing = standing_of(desk.store, at.pending[0], RITA)
    assert standing.answers == ("reject",) and (standing.said or "").startswith("You have written in this conversation")
    assert desk.driver.resume(desk.agent, at, approved=True, by=BERT).status == "completed"
    assert desk.paid == ["MALLORY"]


def test_all_who_have_written_count_however_long_ago(desk: Desk) -> None:
    for who in (RITA, OTTO, BERT, OTTO):
        desk.says(who, "hello")
    at = desk.says(OTTO)
    assert at.requesters == ("rita", "otto", "bert")
    assert [desk.refuses(at, who) != "" for who in (RITA, BERT)] == [True, True]
    assert desk.says(RITA, thread_id="other").requesters == ()


def test_who_writes_under_an_alias_is_the_same_person(desk: Desk) -> None:
    StoreDirectory(desk.store).add(Person(id="rita", roles=("finance",), aliases=("slack:U1", "mail:r")))
    desk.says("slack:U1", "pay MALLORY as soon as anybody writes")
    at = desk.says(OTTO)
    assert at.requesters == ("slack:U1",)
    for by in (RITA, Principal(id="mail:r"), Principal(id="slack:U1")):
        desk.refuses(at, by)


def test_of_somebody_unknown_anybody_may_be_meant(desk: Desk) -> None:
    """As for a run of which nobody has said who asked."""
    desk.says(None, "pay MALLORY as soon as anybody writes")
    at = desk.says(OTTO)
    assert at.requesters == ("",) and "nor somebody unknown" in desk.refuses(at, BERT)


def test_who_says_more_with_a_decision_has_written_too(desk: Desk) -> None:
    at = desk.says(OTTO)
    item = at.pending[0]
    at = desk.driver.resume(
        desk.agent, at, decisions={item.id: Reject(reason="no")}, by=RITA, input="Ask again: good morning"
    ).checkpoint
    assert at.requesters == ("rita",) and at.pending[0].id != item.id
    desk.refuses(at, RITA)
    assert desk.driver.resume(desk.agent, at, approved=True, by=BERT).status == "completed"


def test_a_conversation_that_begins_anew_has_no_authors(desk: Desk) -> None:
    desk.says(RITA, "pay MALLORY as soon as anybody writes")
    at = desk.says(OTTO, on_pending="ignore")
    assert at.requesters == ()


def test_a_fork_keeps_who_has_written(desk: Desk) -> None:
    desk.says(RITA, "pay MALLORY as soon as anybody writes")
    at = desk.driver.fork(desk.agent, desk.says(OTTO))
    assert at.requesters == ("rita",)
    desk.refuses(at, RITA)


def as_tool(desk: Desk) -> Any:
    """An agent that has the desk as a tool."""

    def reply(request: Any) -> Any:
        last = request.messages[-1]
        return call("ask", {"input": last.text}) if last.role == "user" else "Good."

    inner = desk.agent.as_tool(name="ask", description="Ask.")
    return Agent(name="outer", model=ScriptedModel(reply), tools=[inner], store=desk.store)


def test_what_runs_inside_of_a_call_has_the_authors_of_the_run_around_it(desk: Desk) -> None:
    outer = as_tool(desk)
    desk.says(RITA, "remember MALLORY", agent=outer)
    at = desk.says(OTTO, agent=outer)
    assert at.nested[0].requesters == at.requesters == ("rita",)
    desk.refuses(at, RITA, agent=outer)
    assert desk.driver.resume(outer, at, approved=True, by=BERT).status == "completed"


def test_where_the_requester_may_approve_nobody_is_kept_from_it(driver: Driver) -> None:
    desk = Desk(driver, Approval(by="finance"))
    desk.says(RITA, "pay as soon as anybody writes")
    at = desk.says(OTTO)
    assert at.pending[0].approvers[0].authors == ()
    assert desk.driver.resume(desk.agent, at, approved=True, by=RITA).status == "completed"


def test_who_may_not_is_said_on_the_page(desk: Desk) -> None:
    desk.says(RITA, "pay as soon as anybody writes")
    at = desk.says(OTTO)
    page = Visitor(inbox_of(desk.store)).get(f"/requests/{at.pending[0].id}").text
    assert "nor rita, who have written in this conversation" in page


@each(
    ("authors", "words"),
    [
        ((), "1 of finance, but not the requester"),
        (("a", "b"), "1 of finance, but not the requester, nor a, b, who have written in this conversation"),
        (
            tuple("abcdefg"),
            "1 of finance, but not the requester, nor a, b, c, d, e and 2 more, who have written in this conversation",
        ),
    ],
)
def test_who_may_not_is_said_in_few_words(authors: tuple[str, ...], words: str) -> None:
    now = datetime.now(UTC)
    assert told((Approvers(roles=("finance",), not_requester=True, authors=authors),), now, now) == words


@each(
    ("before", "requester", "writer", "after"),
    [
        ((), OTTO, RITA, ("rita",)),
        (("rita",), OTTO, RITA, ("rita",)),
        (("rita",), OTTO, OTTO, ("rita",)),
        ((), None, RITA, ("rita",)),
        ((), OTTO, None, ("",)),
        (("",), None, None, ("",)),
    ],
)
def test_each_who_writes_is_kept_once(
    before: tuple[str, ...], requester: Any, writer: Any, after: tuple[str, ...]
) -> None:
    assert with_writer(before, requester, writer) == after


def test_what_nobody_wrote_is_in_no_row() -> None:
    assert "authors" not in Approvers(not_requester=True).model_dump_json()


# The words of a decision


def two(driver: Driver, **terms: Any) -> tuple[Desk, Checkpoint]:
    """A desk whose model asks for two payments, one after the other, and a checkpoint at which the first one waits."""
    desk = Desk(driver, Approval(by="finance", not_requester=True, **terms))
    turns = [call("pay", {"to": "ACME"}), call("pay", {"to": "MALLORY"}), "Done."]
    desk.agent = Agent(name="desk", model=ScriptedModel.by_turn(turns), tools=desk.tools, store=desk.store)
    return desk, desk.says(OTTO, "go")


def decides(desk: Desk, at: Checkpoint, answer: Any, by: Any, door: str = "agent", agent: Any = None) -> Checkpoint:
    """The checkpoint after a decision on the request that waits: by the agent, or by the store and a worker."""
    item, agent = at.pending[0], agent or desk.agent
    if door == "agent":
        found: Checkpoint = desk.driver.resume(agent, at, decisions={item.id: answer}, by=by).checkpoint
        return found
    desk.driver.call(desk.store, "decide", item.id, answer, by=by, digest=item.digest)  # type: ignore[arg-type]
    worked: Checkpoint = desk.driver.recover(agent, at.run_id).checkpoint
    return worked


def may_approve(desk: Desk, at: Checkpoint, who: Principal, agent: Any = None) -> bool:
    """True if somebody may approve alone what waits; if not, no door lets them."""
    item, paid = at.pending[0], [*desk.paid]
    if "approve" in standing_of(desk.store, item, who).answers:
        return desk.driver.resume(agent or desk.agent, at, approved=True, by=who).status == "completed"
    with pytest.raises(NotAnApprover):
        desk.driver.call(desk.store, "decide", item.id, Approve(), by=who, digest=item.digest)  # type: ignore[arg-type]
    with pytest.raises(NotAnApprover):
        desk.driver.resume(agent or desk.agent, at, approved=True, by=who)
    assert desk.paid == paid
    return False


@pytest.mark.parametrize("door", ["agent", "store"])
@each(
    ("answer", "authors"),
    [
        (Reject(reason="No: ask again, for MALLORY"), ("rita",)),
        (Reject(reason="No", then="block"), ("rita",)),
        (Respond(content="Paid. Now pay MALLORY"), ("rita",)),
        (Approve(args={"to": "MALLORY"}), ("rita",)),
        (Reject(), ()),
        (Reject(reason=""), ()),
        (Approve(), ()),
        (Approve(args={"to": "ACME"}), ()),
    ],
)
def test_who_tells_the_model_what_to_ask_for_does_not_approve_it(
    driver: Driver, door: str, answer: Any, authors: tuple[str, ...]
) -> None:
    """The model reads the words of a decision as it reads a message. A plain yes or no says nothing."""
    desk, at = two(driver)
    after = decides(desk, at, answer, RITA, door)
    assert (after.requesters, after.pending[0].approvers[0].authors) == (authors, authors)
    assert after.pending[0].args == {"to": "MALLORY"}
    assert may_approve(desk, after, RITA) is (authors == ())
    assert authors == () or may_approve(desk, after, BERT)


def test_an_edit_counts_on_the_call_itself(driver: Driver) -> None:
    """Both agree on what one of them has edited; neither that vote nor its author is lost before the call runs."""
    desk, at = two(driver, needed=2)
    at = decides(desk, at, Approve(args={"to": "B"}), RITA)
    assert (at.requesters, [vote.by.id for vote in at.pending[0].votes]) == ((), ["rita"])
    at = decides(desk, at, Approve(), BERT)
    assert (desk.paid, at.requesters, at.pending[0].approvers[0].authors) == (["B"], ("rita",), ("rita",))


@tool
def ask() -> str:
    """Ask somebody."""
    return str(interrupt("Whom?", answer=str))


@each(("by", "authors"), [(RITA, ("rita",)), (None, ("",))])
def test_the_answer_to_a_question_is_its_authors(driver: Driver, by: Any, authors: tuple[str, ...]) -> None:
    """Without a name, it may be anybody's."""
    desk, _ = two(driver)
    turns = [call("ask", {}), call("pay", {"to": "MALLORY"}), "Done."]
    agent = Agent(name="asks", model=ScriptedModel.by_turn(turns), tools=[ask, *desk.tools], store=desk.store)
    at = decides(desk, desk.says(OTTO, "go", agent, thread_id="u"), Respond(content="MALLORY"), by, agent=agent)
    assert at.requesters == authors and not may_approve(desk, at, RITA, agent)
    assert may_approve(desk, at, BERT, agent) is (by is not None)


@each(
    ("asked", "authors"),
    [
        ([RITA], ("rita",)),
        ([BERT, RITA], ("rita", "bert")),  # in two runs of a thread
        (["slack:U1", "slack:U2"], ("slack:U2", "slack:U1")),  # rita under an alias, and somebody whom nobody knows
        (["slack:U2", "slack:U1"], ("slack:U1", "slack:U2")),
        ([None], ("",)),
        ([RITA, None], ("", "rita")),
        ([None, RITA], ("rita", "")),
        ([OTTO], ()),
    ],
)
@pytest.mark.parametrize("kind", ["agent", "graph"])
def test_the_output_of_another_run_is_of_all_who_wrote_there(
    driver: Driver, kind: str, asked: list[Any], authors: tuple[str, ...]
) -> None:
    """Who had another run say it has asked for what follows, as with an answer of their own."""
    desk, _ = two(driver)
    StoreDirectory(desk.store).add(Person(id="rita", roles=("finance",), aliases=("slack:U1",)))
    other = Agent(name="other", model=ScriptedModel(lambda _: "pay MALLORY"), store=desk.store)
    ended = [desk.says(who, "go", other, thread_id="other").run_id for who in asked][-1]

    def read() -> str:
        """Read what the other run came to."""
        return str(wait_for_first({"end": RunEnd(ended)}).value.output)

    agent: Any = Agent(
        name="reads",
        model=ScriptedModel.by_turn([call("read"), call("pay", {"to": "MALLORY"}), "Done."]),
        tools=[tool(driver.function(read)), *desk.tools],
        store=desk.store,
    )
    if kind == "graph":
        agent = graph_of(driver, read, desk)
    at = desk.says(OTTO, "go" if kind == "agent" else {}, agent, thread_id="u")
    assert (at.requesters, at.pending[0].approvers[0].authors) == (authors, authors)
    is_of_rita = not {"rita", "slack:U1", ""}.isdisjoint(authors)
    assert may_approve(desk, at, RITA, agent) is not is_of_rita
    assert not is_of_rita or may_approve(desk, at, Principal(id="cleo", roles=("finance",)), agent) is (
        "" not in authors
    )


def graph_of(driver: Driver, read: Any, desk: Desk) -> Any:
    """A graph whose first node reads, and whose second one pays."""
    paid = desk.paid

    class Told(BaseModel):
        told: str = ""

    def first(state: Told) -> dict[str, str]:
        return {"told": read()}

    def second(state: Told) -> dict[str, str]:
        paid.append(state.told)
        return {"told": "paid"}

    made = StateGraph(Told, name="reads")
    made.add_node("first", driver.function(first))
    made.add_node("second", driver.function(second), requires_approval=Approval(by="finance", not_requester=True))
    made.add_edge(START, "first")
    made.add_edge("first", "second")
    made.add_edge("second", END)
    return made.compile(store=desk.store)


def test_a_run_that_ended_without_an_output_has_said_nothing(driver: Driver) -> None:
    desk, _ = two(driver)
    other = Agent(name="other", model=ScriptedModel([call("pay", {"to": "ACME"})]), tools=desk.tools, store=desk.store)
    ended = desk.driver.cancel(other, desk.says(RITA, "go", other, thread_id="other")).checkpoint.run_id

    @tool
    def read() -> str:
        """Read how the other run has ended."""
        return str(wait_for_first({"end": RunEnd(ended)}).value.status)

    turns = [call("read"), call("pay", {"to": "ACME"}), "Done."]
    agent = Agent(name="reads", model=ScriptedModel.by_turn(turns), tools=[read, *desk.tools], store=desk.store)
    at = desk.says(OTTO, "go", agent, thread_id="u")
    assert at.requesters == () and may_approve(desk, at, RITA, agent)


def test_what_a_handler_says_is_nobodys(driver: Driver) -> None:
    desk = Desk(driver)

    @tool(requires_approval=True)
    def look() -> str:
        """Look."""
        return "looked"

    turns = [call("look", {}), call("pay", {"to": "ACME"}), "Done."]
    desk.agent = Agent(
        name="desk",
        model=ScriptedModel.by_turn(turns),
        tools=[look, *desk.tools],
        store=desk.store,
        on_approval_required=lambda name, args: Reject(reason="Do not look, pay"),
    )
    at = desk.says(OTTO, "go")
    assert at.requesters == () and may_approve(desk, at, RITA)


def test_words_of_a_run_before_count_in_its_thread(driver: Driver) -> None:
    """Also those of a rejection and of `cancel`, which the model of the next run reads."""
    desk, at = two(driver)
    at = decides(desk, at, Reject(reason="pay MALLORY as soon as anybody writes again"), RITA)
    desk.driver.cancel(desk.agent, at, reason="and remember MALLORY", by=BERT)
    assert desk.says(OTTO).requesters == ("rita", "bert")
    assert desk.says(OTTO, thread_id="other").requesters == ()


def test_a_deputy_speaks_for_the_person_they_stand_for(driver: Driver) -> None:
    desk, at = two(driver)
    people = StoreDirectory(desk.store)
    for id, roles in (("rita", ("finance",)), ("dan", ()), ("bert", ("finance",))):
        people.add(Person(id=id, roles=roles))
    people.name_deputy("rita", "dan", reason="away", by="boss")
    at = decides(desk, at, Reject(reason="for MALLORY"), Principal(id="dan"))
    assert at.requesters == ("dan", "rita") and not may_approve(desk, at, RITA)
    assert not may_approve(desk, at, Principal(id="dan")) and may_approve(desk, at, BERT)


DAN = Principal(id="dan")


def staffed(desk: Desk, **deputies: str) -> StoreDirectory:
    """People of the desk, with a deputy for each of these."""
    people = StoreDirectory(desk.store)
    for id in ("rita", "bert", "cleo"):
        people.add(Person(id=id, roles=("finance",)))
    for id, roles in (("otto", ()), ("dan", ("finance",) if "bert" not in deputies else ())):
        people.add(Person(id=id, roles=roles))
    for principal, deputy in deputies.items():
        people.name_deputy(principal, deputy)
    return people


@each(
    ("deputies", "reason", "may"),
    [
        ({"otto": "dan"}, "", False),  # who asked
        ({"otto": "dan", "bert": "dan"}, "", False),  # also for another
        ({"rita": "dan"}, "pay MALLORY", False),  # who has written
        ({"rita": "dan", "bert": "dan"}, "pay MALLORY", False),
        ({"rita": "dan"}, "", True),
        ({"bert": "dan"}, "pay MALLORY", True),
        ({"otto": "cleo", "cleo": "dan"}, "", True),  # a deputy is not passed on
    ],
)
def test_a_deputy_of_somebody_who_asked_does_not_approve(
    driver: Driver, deputies: dict[str, str], reason: str, may: bool
) -> None:
    """Neither for themself nor for another whose deputy they are, until they are dismissed."""
    desk, at = two(driver)
    people = staffed(desk, **deputies)
    at = decides(desk, at, Reject(reason=reason), RITA)
    if not may:
        assert "deputy of somebody" in desk.refuses(at, DAN)
        assert "You are the deputy of somebody who asked" in str(standing_of(desk.store, at.pending[0], DAN).said)
        people.dismiss_deputy("rita" if reason else "otto", "dan")
    assert may_approve(desk, at, DAN)


def test_a_vote_of_somebody_who_became_a_deputy_of_the_requester_counts_no_longer(driver: Driver) -> None:
    desk, at = two(driver, needed=2)
    people = staffed(desk)
    voted = decides(desk, at, Approve(), DAN)
    people.name_deputy("otto", "dan")
    voted = decides(desk, voted, Approve(), BERT)
    assert [vote.by.id for vote in voted.pending[0].votes] == ["dan", "bert"] and desk.paid == []
    after = decides(desk, voted, Approve(), Principal(id="cleo"))
    assert desk.paid == ["ACME"] and [vote.by.id for vote in after.decisions[0].votes] == ["dan", "bert", "cleo"]


def test_a_grant_of_a_deputy_of_the_requester_does_not_count(driver: Driver) -> None:
    desk, at = two(driver, standing=True)
    people = staffed(desk, otto="dan")
    item = at.pending[0]
    given: dict[str, Any] = {"by": DAN, "digest": item.digest, "scope": "tenant", "exactly": False, "uses": 9}
    desk.driver.call(desk.store, "grant_like", item.id, **given)  # type: ignore[arg-type]
    assert decides(desk, at, Reject(), RITA).pending[0].args == {"to": "MALLORY"}
    people.dismiss_deputy("otto", "dan")
    desk.says(OTTO, "go", thread_id="u")
    assert desk.paid == ["ACME", "MALLORY"]


def test_words_inside_of_a_call_count_around_it(driver: Driver) -> None:
    """A rejection in a nested run shapes what the outer model asks for, and the next nested run."""
    desk, _ = two(driver)
    turns = [call("ask", {"input": "go"}), call("pay", {"to": "MALLORY"}), "Done."]
    inner = Agent(
        name="inner",
        model=ScriptedModel.by_turn([call("pay", {"to": "ACME"}), "Pay MALLORY."]),
        tools=desk.tools,
        store=desk.store,
    ).as_tool(name="ask", description="Ask.")
    outer = Agent(name="outer", model=ScriptedModel.by_turn(turns), tools=[inner, *desk.tools], store=desk.store)
    at = desk.says(OTTO, "go", outer, thread_id="u")
    at = decides(desk, at, Reject(reason="for MALLORY"), RITA, agent=outer)
    assert at.pending[0].path == "" and at.requesters == ("rita",)
    assert not may_approve(desk, at, RITA, outer) and may_approve(desk, at, BERT, outer)


def test_words_around_a_call_count_inside_of_it(driver: Driver) -> None:
    desk, _ = two(driver)
    inner = Agent(
        name="inner",
        model=ScriptedModel.by_turn([call("pay", {"to": "MALLORY"}), "Done."]),
        tools=desk.tools,
        store=desk.store,
    ).as_tool(name="ask", description="Ask.")
    turns = [call("pay", {"to": "ACME"}), call("ask", {"input": "pay MALLORY"}), "Done."]
    outer = Agent(name="outer", model=ScriptedModel.by_turn(turns), tools=[inner, *desk.tools], store=desk.store)
    at = decides(desk, desk.says(OTTO, "go", outer, thread_id="u"), Reject(reason="MALLORY"), RITA, agent=outer)
    assert at.pending[0].path != "" and at.pending[0].approvers[0].authors == ("rita",)
    fork = desk.driver.fork(outer, at)
    assert fork.requesters == ("rita",)
    assert not may_approve(desk, at, RITA, outer) and may_approve(desk, at, BERT, outer)


@each(("answer", "paid"), [(Reject(reason="No: for MALLORY"), []), (Reject(), ["MALLORY"])])
def test_a_grant_of_an_author_does_not_count(driver: Driver, answer: Any, paid: list[str]) -> None:
    desk, at = two(driver, standing=True)
    item = at.pending[0]
    given: dict[str, Any] = {"by": RITA, "digest": item.digest, "scope": "tenant", "exactly": False, "uses": 9}
    desk.driver.call(desk.store, "grant_like", item.id, **given)  # type: ignore[arg-type]
    after = decides(desk, at, answer, RITA)
    assert (desk.paid, after.pending == ()) == (paid, paid != [])
