"""Who edits the state of a run has asked for what follows from it, as who gives a reason has, and does not approve that alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import pytest
from drivers import Driver
from tables import each

from phronomy import (
    END,
    START,
    Agent,
    Approval,
    Approve,
    Checkpoint,
    MemoryStore,
    NotAnApprover,
    Principal,
    StateGraph,
    tool,
)
from phronomy.stores.derived.standing import standing_of
from phronomy.testing import ScriptedModel, call

RITA = Principal(id="rita", roles=("finance",))
BERT = Principal(id="bert", roles=("finance",))
OTTO = Principal(id="otto")

GATE = Approval(by="finance", not_requester=True)


class Order(TypedDict, total=False):
    to: str
    said: str


class Office:
    """A graph that stops before it asks an agent to pay somebody, whom its state names."""

    def __init__(self, driver: Driver, *, inside: bool = False) -> None:
        self.driver = driver
        self.store = MemoryStore()
        self.paid: list[str] = []

        @tool(requires_approval=GATE)
        def pay(to: str) -> str:
            """Pay."""
            self.paid.append(to)
            return "paid"

        def reply(request: Any) -> Any:
            last = request.messages[-1]
            return call("pay", {"to": last.text}) if last.role == "user" else "Done."

        agent = Agent(name="desk", model=ScriptedModel(reply), tools=[pay])
        self.graph = self._around(agent, deep=inside)

    def _around(self, agent: Agent[Any, Any], *, deep: bool) -> Any:
        graph = StateGraph(Order, name="office").add_node("look", self.driver.function(lambda state: {}))
        graph.add_node("desk", agent, input=lambda state: state["to"], output=lambda said: {"said": str(said)})
        graph.add_edge(START, "look").add_edge("look", "desk").add_edge("desk", END)
        if not deep:
            return graph.compile(store=self.store, interrupt_before=["look"])
        house = StateGraph(Order, name="house").add_node("office", graph.compile(interrupt_before=["look"]))
        return house.add_edge(START, "office").add_edge("office", END).compile(store=self.store)

    def begun(self) -> Checkpoint:
        found: Checkpoint = self.driver.invoke(self.graph, {"to": "ACME"}, requester=OTTO).checkpoint
        return found

    def goes_on(self, at: Checkpoint, **options: Any) -> Checkpoint:
        found: Checkpoint = self.driver.resume(self.graph, at, approved=True, **options).checkpoint
        return found

    def may_approve(self, at: Checkpoint, who: Principal) -> bool:
        """True if somebody may approve the waiting request alone; if not, no door lets them."""
        item = at.pending[0]
        if "approve" in standing_of(self.store, item, who).answers:
            return bool(self.driver.resume(self.graph, at, approved=True, by=who).status == "completed")
        with pytest.raises(NotAnApprover):
            self.driver.call(self.store, "decide", item.id, Approve(), by=who, digest=item.digest)  # type: ignore[arg-type]
        with pytest.raises(NotAnApprover):
            self.driver.resume(self.graph, at, approved=True, by=who)
        assert self.paid == []
        return False


def to_mallory(path: tuple[str, ...], state: Any) -> None:
    state["to"] = "MALLORY"


def by_update(office: Office, by: Any) -> Checkpoint:
    return office.goes_on(office.begun(), update={"to": "MALLORY"}, by=by)


def by_function(office: Office, by: Any) -> Checkpoint:
    return office.goes_on(office.begun(), modify_state=to_mallory, by=by)


def by_fork(office: Office, by: Any) -> Checkpoint:
    fork = office.driver.call(office.graph, "fork", office.begun(), update={"to": "MALLORY"}, by=by)
    return office.goes_on(fork)


def by_a_fork_of_a_fork(office: Office, by: Any) -> Checkpoint:
    """A fork of a fork: the edit of the first one is in the second."""
    fork = office.driver.call(office.graph, "fork", office.begun(), update={"to": "MALLORY"}, by=by)
    return office.goes_on(office.driver.call(office.graph, "fork", fork, by="otto"))


WAYS = [by_update, by_function, by_fork, by_a_fork_of_a_fork]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@each(("by", "authors"), [(RITA, ("rita",)), ("rita", ("rita",)), (None, ("",))])
def test_who_edits_the_state_does_not_approve_what_follows(
    driver: Driver, way: Callable[[Office, Any], Checkpoint], by: Any, authors: tuple[str, ...]
) -> None:
    """By somebody of whom nobody knows, it may be anybody's edit."""
    office = Office(driver)
    at = way(office, by)
    assert (at.requesters, at.pending[0].approvers[0].authors) == (authors, authors)
    assert at.pending[0].args == {"to": "MALLORY"} and not office.may_approve(at, RITA)
    assert office.may_approve(at, BERT) is (by is not None)
    assert office.paid == (["MALLORY"] if by is not None else [])


def test_an_edit_inside_of_a_node_counts_at_every_level(driver: Driver) -> None:
    office = Office(driver, inside=True)
    at = by_function(office, RITA)
    assert [at.requesters, *(part.requesters for part in at.nested)] == [("rita",)] * (1 + len(at.nested))
    assert at.pending[0].args == {"to": "MALLORY"} and not office.may_approve(at, RITA)
    assert office.may_approve(at, BERT)


@each(("update", "by"), [({}, RITA), ({"to": "ACME"}, RITA), ({}, None)])
def test_an_edit_that_changes_nothing_is_nobodys(driver: Driver, update: dict[str, Any], by: Any) -> None:
    office = Office(driver)
    at = office.goes_on(office.begun(), update=update, by=by)
    assert at.requesters == () and office.may_approve(at, RITA)


def test_a_node_that_waits_with_an_edited_state_has_its_editor_as_an_author(driver: Driver) -> None:
    """A fork asks anew for what waits, with the state that its author gave it."""
    paid: list[str] = []
    graph = StateGraph(Order, name="office")
    graph.add_node("pay", driver.function(lambda state: paid.append(state["to"])), requires_approval=GATE)
    flow: Any = graph.add_edge(START, "pay").add_edge("pay", END).compile(store=MemoryStore())
    at = driver.invoke(flow, {"to": "ACME"}, requester=OTTO).checkpoint
    fork = driver.call(flow, "fork", at, update={"to": "MALLORY"}, by=RITA)
    assert fork.pending[0].args["state"]["to"] == "MALLORY"
    assert fork.pending[0].approvers[0].authors == ("rita",)
    with pytest.raises(NotAnApprover):
        driver.resume(flow, fork, approved=True, by=RITA)
    assert paid == [] and driver.resume(flow, fork, approved=True, by=BERT).status == "completed"
    assert paid == ["MALLORY"]
    assert driver.call(flow, "fork", at, by=RITA).pending[0].approvers[0].authors == ()


@each(("by", "authors"), [(RITA, ("rita",)), (None, ("",))])
def test_the_reason_of_a_cancellation_is_somebodys(driver: Driver, by: Any, authors: tuple[str, ...]) -> None:
    """The model of the next run of the thread reads it. Without a reason nothing is said."""
    turns = [call("pay", {"to": "ACME"}), call("pay", {"to": "MALLORY"}), call("pay", {"to": "ACME"})]

    @tool(requires_approval=GATE)
    def pay(to: str) -> str:
        """Pay."""
        return "paid"

    agent = Agent(name="desk", model=ScriptedModel.by_turn(turns), tools=[pay], store=MemoryStore())
    for reason, wrote in (("remember MALLORY", authors), (None, ())):
        given = {"thread_id": f"t-{reason}", "requester": OTTO}
        driver.cancel(agent, driver.invoke(agent, "go", **given).checkpoint, reason=reason, by=by)
        assert driver.invoke(agent, "go", **given).checkpoint.requesters == wrote


def test_messages_of_another_run_come_without_their_authors(driver: Driver) -> None:
    """As the documentation says: a message does not say who wrote it. The authors of the thread are counted all the same."""
    agent = Agent(name="desk", model=ScriptedModel(["Good.", "Good.", "Good."]), store=MemoryStore())
    first = driver.invoke(agent, "pay MALLORY", requester=RITA, thread_id="t").checkpoint
    other = driver.invoke(agent, "go", messages=first.messages, requester=OTTO).checkpoint
    assert other.requesters == ()
    same = driver.invoke(agent, "go", messages=first.messages, requester=OTTO, thread_id="t").checkpoint
    assert same.requesters == ("rita",)
