"""What a caller decides, and on what: pending ids, and the ids that a model has given to its calls."""

from __future__ import annotations

from typing import Any

import pytest
from drivers import Driver
from places import Place
from pydantic import BaseModel

from phronomy import Agent, Approve, Checkpoint, MemoryStore, Reject, Respond, tool
from phronomy.errors import CheckpointAlreadyResumed, DecisionError, InvalidDecision, UnknownPending
from phronomy.graph import END, START, StateGraph
from phronomy.testing import ScriptedModel, call, say


class Till:
    """Pays whom it is told to, each when somebody has approved it."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.paid: list[str] = []

    def agent(self, *replies: Any, name: str = "till", more: Any = (), **options: Any) -> Agent[Any, str]:
        """The agent as a process of its own makes it."""

        def pay(who: str) -> str:
            """Pay somebody."""
            self.paid.append(who)
            return f"paid {who}"

        gated = tool(requires_approval=True)(self.driver.function(pay))
        options.setdefault("store", self.place.open())
        return Agent(name=name, model=ScriptedModel([*replies]), tools=[gated, *more], **options)

    def asked(self, agent: Agent[Any, str], **options: Any) -> Checkpoint:
        """A run that waits."""
        checkpoint: Checkpoint = self.driver.invoke(agent, "Pay", **options).checkpoint
        assert checkpoint.status == "suspended"
        return checkpoint

    def refused(self, agent: Any, at: Checkpoint, error: type[DecisionError], decisions: Any) -> str:
        """What the error says, of a decision that changes nothing."""
        before = self.place.lines()
        with pytest.raises(error) as refused:
            self.driver.resume(agent, at, decisions=decisions)
        assert (self.place.lines(), self.paid) == (before, [])
        return str(refused.value)


@pytest.fixture
def till(driver: Driver, place: Place) -> Till:
    return Till(driver, place)


class Job(BaseModel):
    """What a graph works on."""

    log: str = ""


def pay(who: str, id: str | None = None) -> Any:
    return call("pay", {"who": who}, id=id)


# By the id of the call


@pytest.mark.product
def test_the_id_of_a_call_is_as_good_as_its_pending_id_in_another_process(till: Till) -> None:
    asked = till.asked(till.agent(say("", pay("ann", "toolu_a"), pay("bo", "toolu_b"), pay("cy", "toolu_c"))))
    ids = [item.id for item in asked.pending]

    some = {"toolu_b": Approve(args={"who": "bob"}), ids[0]: Reject()}
    result = till.driver.resume(till.agent(), asked, decisions=some, by="ada")
    assert (result.status, till.paid) == ("suspended", ["bob"])
    result = till.driver.resume(
        till.agent("Over."), asked.id, decisions={"toolu_c": Respond(content="by hand")}, by="ada"
    )

    assert (result.output, till.paid) == ("Over.", ["bob"])
    taken = [(each.pending_id, each.kind) for each in result.checkpoint.decisions]
    assert taken == [(ids[1], "approve"), (ids[0], "reject"), (ids[2], "respond")]
    told = {message.tool_call_id: message.settlement for message in result.messages[2:5]}
    assert told == {"toolu_a": "rejected", "toolu_b": "completed", "toolu_c": "responded"}


def test_both_ids_of_one_call_are_not_two_calls(till: Till) -> None:
    agent = till.agent(say("", pay("ann", "a"), pay("bo", "b")))
    asked = till.asked(agent)
    first = asked.pending[0].id
    for both in ({first: Reject(), "a": Approve()}, {"a": Approve(), first: Approve(), "b": Approve()}):
        told = till.refused(agent, asked, InvalidDecision, both)
        assert first in told and "call a" in told


def test_an_id_that_names_nothing_that_waits_is_unknown(till: Till) -> None:
    agent = till.agent(say("", call("nothing", id="none"), pay("ann", "a")), "Over.")
    asked = till.asked(agent)
    for wrong in ("none", "", "b", "A", 7):
        assert asked.pending[0].id in till.refused(agent, asked, UnknownPending, {wrong: Approve()})
    till.driver.resume(agent, asked, decisions={"a": Approve()}, by="ada")
    with pytest.raises(CheckpointAlreadyResumed, match="approved by ada"):
        till.driver.resume(agent, asked, decisions={"a": Reject()})


def test_in_a_stream_and_step_by_step_it_is_the_same(till: Till) -> None:
    agent = till.agent(say("", pay("ann", "a"), pay("bo", "b")), "Over.")
    asked = till.asked(agent)
    stepped = till.driver.step(agent, asked, decisions={"b": Approve()})
    assert (stepped.status, till.paid) == ("suspended", [])
    assert till.driver.watched(agent, asked, 1, decisions={"a": Approve()})
    result = till.driver.resume(agent, agent.store.head(asked.run_id)[1])
    assert (result.output, sorted(till.paid)) == ("Over.", ["ann", "bo"])


# A model that chooses ids of others


def test_a_call_that_asks_for_the_pending_id_of_another_has_an_id_of_its_own(till: Till) -> None:
    """The model of a run inside has found out what waits outside, and names its call so."""
    store = till.place.open()
    knows = lambda request: say("", pay("mallory", store.pending()[0].approval.id))  # noqa: E731
    outside = [say("", pay("ann", "a"), call("ask", {"input": "x"}, id="b")), "Over."]
    agent = till.agent(*outside, more=[inner(till, knows)], store=store)
    asked = till.asked(agent)
    first, second = asked.pending
    assert (first.call_id, second.call_id) == ("a", "call_1_0")

    left = till.driver.resume(agent, asked, decisions={first.id: Approve()}).checkpoint
    assert till.driver.resume(agent, left, decisions={second.id: Reject()}).output == "Over."
    assert till.paid == ["ann"]


def inner(till: Till, reply: Any) -> Any:
    """An agent as a tool, whose model replies so."""
    return till.agent(reply, "Told.", name="ask").as_tool()


def test_a_pending_id_that_is_also_the_id_of_another_call_is_refused(till: Till) -> None:
    agent = till.agent(say("", pay("ann", "a"), pay("mallory", "b")), store=MemoryStore(), trust="bearer")
    asked = till.asked(agent)
    first = asked.pending[0]
    calls = tuple(each.evolve(call_id=first.id) if each.call_id == "b" else each for each in asked.calls)
    said = asked.messages[-1]
    renamed = tuple(each.evolve(id=first.id) if each.id == "b" else each for each in said.tool_calls)
    messages = (*asked.messages[:-1], said.evolve(tool_calls=renamed))
    for update in ({"calls": calls, "messages": messages}, {"messages": messages}, {"calls": calls}):
        brought = asked.evolve(id="ckpt_other", run_id="run_other", branch_id="run_other", **update)
        bearer = till.agent(store=MemoryStore(), trust="bearer")
        told = till.refused(bearer, brought, InvalidDecision, {first.id: Approve()})
        assert first.id in told and "on a fork" in told


@pytest.mark.parametrize(
    ("ids", "wrong", "right"),
    [
        pytest.param(("a", "a"), "a", "call_1_1", id="twice"),
        pytest.param(("", "call_1_0"), "call_1_0", "call_1_1", id="the-name-of-a-replacement"),
        pytest.param(("b", "a", "a"), "a", "b", id="beside-others"),
    ],
)
def test_an_id_that_was_replaced_names_neither_call(till: Till, ids: Any, wrong: str, right: str) -> None:
    """Somebody has seen the second one under this id, and the first one has it now."""
    agent = till.agent(say("", *(pay(str(place), id) for place, id in enumerate(ids))))
    asked = till.asked(agent)

    told = till.refused(agent, asked, InvalidDecision, {wrong: Approve()})

    where = [item.id for item in asked.pending if item.call_id == right]
    meant = [item.id for item in asked.pending if item.call_id != "b"]
    assert [id in told for id in meant] == [True, True] and len(where) == 1
    result = till.driver.resume(agent, asked, decisions={right: Approve()})
    assert where[0] not in [item.id for item in result.checkpoint.pending] and len(till.paid) == 1


def test_an_id_of_an_earlier_turn_names_no_call_of_this_one(till: Till) -> None:
    agent = till.agent(say("", pay("ann", "a")), say("", pay("mallory", "a")), "Over.")
    asked = till.asked(agent)
    later = till.driver.resume(agent, asked, decisions={"a": Approve()}).checkpoint
    assert (later.pending[0].call_id, till.paid) == ("call_2_0", ["ann"])
    till.paid.clear()
    assert later.pending[0].id in till.refused(agent, later, InvalidDecision, {"a": Approve()})
    assert till.driver.resume(agent, later, decisions={"call_2_0": Approve()}).output == "Over."


def test_of_runs_inside_an_id_counts_where_it_is_of_one_call_alone(till: Till) -> None:
    def firm(*ids: str) -> tuple[Agent[Any, str], Checkpoint]:
        """An agent that pays by the first id, and asks another by the second, who pays by the third."""
        replies = [say("", pay("ann", ids[0]), call("ask", {"input": "x"}, id=ids[1])), "Over."]
        agent = till.agent(*replies, more=[inner(till, say("", pay("mallory", ids[2])))])
        return agent, till.asked(agent)

    agent, asked = firm("a", "b", "c")
    assert [(item.call_id, item.path) for item in asked.pending] == [("a", ""), ("c", "1.1")]
    result = till.driver.resume(agent, asked, decisions={"c": Approve()})
    assert (till.paid, [item.call_id for item in result.checkpoint.pending]) == (["mallory"], ["a"])
    till.paid.clear()

    agent, asked = firm("a", "b", "a")  # it takes the id of what waits outside
    told = till.refused(agent, asked, InvalidDecision, {"a": Approve()})
    assert all(item.id in told for item in asked.pending)

    agent, asked = firm("a", "b", "b")  # it takes the id of the call that it runs in
    told = till.refused(agent, asked, InvalidDecision, {"b": Approve()})
    assert [item.id in told for item in asked.pending] == [False, True]


def test_in_a_graph_the_calls_of_agents_have_ids_and_nodes_have_none(till: Till) -> None:
    def begin(state: Job) -> dict[str, Any]:
        return {"log": "begun"}

    builder = StateGraph(Job, name="works")
    builder.add_node("begin", till.driver.function(begin), requires_approval=True)
    builder.add_node("till", till.agent(say("", pay("ann", "a")), "Over."), input=lambda state: "Pay", output="log")
    builder.add_edge(START, "begin")
    builder.add_edge("begin", "till")
    builder.add_edge("till", END)
    graph: Any = builder.compile(store=till.place.open())
    at_node = till.driver.call(graph, "invoke", {}).checkpoint
    told = till.refused(graph, at_node, InvalidDecision, {at_node.pending[0].call_id: Approve()})
    assert at_node.pending[0].id in told
    at_call = till.driver.call(graph, "resume", at_node, approved=True).checkpoint
    assert [item.call_id for item in at_call.pending] == ["a"]
    till.driver.call(graph, "resume", at_call, decisions={"a": Approve()})
    assert till.paid == ["ann"]


def test_what_a_model_gives_as_an_id_is_not_quoted_unless_it_looks_like_one(till: Till) -> None:
    secret = "the card is 4242 4242" * 100
    agent = till.agent(say("", pay("ann", secret), pay("bo", secret)))
    told = till.refused(agent, till.asked(agent), InvalidDecision, {secret: Approve()})
    assert "4242 4242" not in told and "the card is" not in told
