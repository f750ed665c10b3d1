"""Scopes: which tools are there for a run, and what becomes of a call of one that is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from drivers import SYNC, Around, Driver
from hypothesis import given
from hypothesis import strategies as st
from places import Place
from pydantic import BaseModel

from phronomy import (
    Agent,
    Approve,
    AuditRecord,
    Checkpoint,
    CheckpointError,
    ConfigurationError,
    Handoff,
    InvalidDecision,
    MCPServer,
    ModelError,
    Principal,
    RunBusy,
    StoreError,
    Tool,
    ToolContext,
    ToolDefinitionError,
    tool,
)
from phronomy.graph import END, START, StateGraph
from phronomy.mcp.session import Listed
from phronomy.records.scopes import scopes_at_begin
from phronomy.stores.rows import Append, Branch, Claim
from phronomy.testing import ScriptedModel, call

READ, WRITE = "invoices:read", "invoices:write"


@dataclass
class Office:
    """A place, a driver, and what tools did."""

    place: Place
    driver: Driver
    done: list[str] = field(default_factory=list)

    def tools(self, **of_pay: Any) -> list[Tool]:
        """A tool that needs no scope, one that needs a scope, and one that needs two and an approval."""

        @tool
        def greet() -> str:
            self.done.append("greet")
            return "hello"

        @tool(scopes=[READ])
        def look(ctx: ToolContext) -> str:
            self.done.append(f"look with {' '.join(sorted(ctx.scopes))}")
            return "3 invoices"

        @tool(scopes=[READ, WRITE], **{"requires_approval": True, **of_pay})
        def pay(amount: int) -> str:
            self.done.append(f"pay {amount}")
            return "paid"

        return [greet, look, pay]

    def agent(self, *script: Any, name: str = "clerk", **options: Any) -> Agent:
        self.model = ScriptedModel(script)
        made = {"tools": self.tools(), "store": self.place.open(), **options}
        return Agent(name=name, model=self.model, **made)

    def seen(self) -> list[str]:
        """The tools that the model was shown last."""
        return [each["function"]["name"] for each in self.model.requests[-1].tools]

    def refused(self) -> list[AuditRecord]:
        """What the trail says of calls that scopes refused."""
        return [each for each in self.place.open().audit() if each.channel == "scopes"]

    def told(self, checkpoint: Checkpoint) -> list[str]:
        """What the model read of its calls."""
        return [each.text for each in checkpoint.messages if each.role == "tool"]


class Job(BaseModel):
    plan: str = ""
    said: str = ""


@pytest.fixture
def office(place: Place, driver: Driver) -> Office:
    return Office(place, driver)


PAY = call("pay", {"amount": 5})
NOWHERE = Place("memory", Path(), "")


@pytest.mark.parametrize(
    ("given", "there"),
    [
        ({}, ["greet"]),
        ({"scopes": []}, ["greet"]),
        ({"scopes": [READ]}, ["greet", "look"]),
        ({"scopes": [WRITE]}, ["greet"]),
        ({"scopes": (WRITE, READ, "other")}, ["greet", "look", "pay"]),
        ({"requester": Principal(id="ann", scopes=(READ,))}, ["greet", "look"]),
        ({"requester": Principal(id="ann", scopes=(READ,)), "scopes": [READ, WRITE]}, ["greet", "look"]),
        ({"requester": Principal(id="ann"), "scopes": [READ]}, ["greet", "look"]),
        ({"requester": Principal(id="ann", scopes=()), "scopes": [READ]}, ["greet"]),
        ({"requester": "ann"}, ["greet"]),
    ],
)
def test_a_run_has_the_tools_whose_scopes_it_has(given: dict[str, Any], there: list[str]) -> None:
    """The scopes of the call and of the requester both bound the run; nobody gave any: it has none."""
    office = Office(NOWHERE, SYNC)
    office.agent("done").invoke("Go", **given)
    assert office.seen() == there


def test_a_call_of_a_tool_that_is_not_there_is_refused_and_audited(office: Office) -> None:
    """Of C12 and R15: the model reads what it would read of a name that it made up, and the trail names the scope."""
    agent = office.agent([PAY, call("nothing", {})], "so be it")
    result = office.driver.invoke(agent, "Pay 5", requester="ann", scopes=[READ])
    assert result.status == "completed" and office.done == []
    told = office.told(result.checkpoint)
    assert (
        told[0].replace("'pay'", "'nothing'")
        == told[1]
        == "There is no tool named 'nothing'. The tools are: greet, look."
    )
    [line] = office.refused()
    assert (line.kind, line.tool_name, line.agent, line.by, line.pending_id) == ("reject", "pay", "clerk", None, None)
    assert line.reason == "the run does not have invoices:write" and line.run_id == result.checkpoint.run_id
    assert "5" not in line.model_dump_json(include={"reason", "tool_name"})


def test_an_approval_gives_no_scope(office: Office) -> None:
    """Let through with the scopes, and resumed in another process with fewer: the call is refused, told and audited."""
    stopped = office.driver.invoke(office.agent(PAY, "paid?"), "Pay 5", scopes=[READ, WRITE])
    assert stopped.suspended and stopped.checkpoint.scopes == (READ, WRITE)
    other = office.agent("it was not paid")
    ended = office.driver.resume(other, stopped.checkpoint.id, approved=True, by="bob", scopes=[READ])
    assert (ended.status, ended.output, office.done) == ("completed", "it was not paid", [])
    assert office.seen() == ["greet", "look"]
    assert "no tool named 'pay'" in office.told(ended.checkpoint)[0]
    [line] = office.refused()
    assert (line.tool_name, line.reason) == ("pay", "the run does not have invoices:write")
    # The approval is in the trail too: both are true.
    assert ("approve", "bob") in [(each.kind, each.by and each.by.id) for each in office.place.open().audit()]


def test_a_resume_gives_no_scope_that_the_run_does_not_have(office: Office) -> None:
    """What is recorded when the run begins is the most: not the resume, and not the decider, gives more."""
    stopped = office.driver.invoke(
        office.agent(PAY, "paid"), "Pay 5", requester=Principal(id="ann", scopes=(READ, WRITE))
    )
    boss = Principal(id="boss", scopes=("admin",))
    ended = office.driver.resume(office.agent("done"), stopped.checkpoint.id, approved=True, by=boss)
    assert (ended.output, office.done) == ("done", ["pay 5"])
    stopped = office.driver.invoke(office.agent(call("look", {}), "done"), "Look", scopes=["other"])
    assert office.done == ["pay 5"] and stopped.checkpoint.scopes == ("other",)
    ask = office.agent(call("ask", {}), tools=[tool(requires_approval=True, name="ask")(lambda: "yes")])
    stopped = office.driver.invoke(ask, "Ask", scopes=["other"])
    again = office.agent(call("look", {}), "done", tools=[*ask.tools, *office.tools()])
    ended = office.driver.resume(
        again, stopped.checkpoint.id, approved=True, by=Principal(id="boss", scopes=(READ,)), scopes=[READ, "other"]
    )
    assert ended.output == "done" and office.done == ["pay 5"] and office.seen() == ["ask", "greet"]


@pytest.mark.few(2)
def test_a_decision_that_takes_scopes_is_for_no_other_worker(office: Office) -> None:
    """The worker that has the run would carry it out with the scopes that the caller has taken away."""
    refused: list[RunBusy] = []

    @tool(requires_approval=True)
    def slow(ctx: ToolContext) -> str:
        other = office.agent(tools=tools)
        [item] = [each for each in waits.pending if each.tool_name == "pay"]
        with pytest.raises(RunBusy) as caught:
            other.decide(item.id, Approve(), by="lead", scopes=[READ])
        refused.append(caught.value)
        assert other.decide(item.id, Approve(), by="lead", scopes=[READ, WRITE]).status == "running"
        return "slow"

    tools = [slow, *office.tools()]
    agent = office.agent([call("slow"), PAY], "done", tools=tools)
    waits = office.driver.invoke(agent, "x", scopes=[READ, WRITE]).checkpoint
    [item] = [each for each in waits.pending if each.tool_name == "slow"]
    ended = office.driver.call(agent, "decide", item.id, Approve(), by="ann")
    assert ended.status == "completed" and office.done == ["pay 5"]
    assert [each.run_id for each in refused] == [waits.run_id]


class Dying(Around):
    """A store as a worker sees it that dies after its first write."""

    wrote = False

    def append(self, change: Append) -> Branch:
        self.alive()
        self.wrote = True
        return super().append(change)

    def release(self, claim: Claim, status: Any = None) -> None:
        self.alive()
        super().release(claim, status)

    def alive(self) -> None:
        if self.wrote:
            raise StoreError("the worker is gone")


@pytest.mark.few(2)
def test_scopes_that_a_resume_takes_away_stay_away_if_its_worker_dies(office: Office) -> None:
    """Stored with the decision, in the write that takes the run: whoever recovers the run has no more."""
    stopped = office.driver.invoke(office.agent(PAY, "paid?"), "Pay 5", scopes=[READ, WRITE])
    dying = office.agent("never", store=Dying(office.place.open()))
    with pytest.raises(StoreError):
        office.driver.resume(dying, stopped.checkpoint.id, approved=True, scopes=[READ])
    store = office.place.open()
    branch, head = store.head(stopped.run_id)
    assert (branch.status, head.scopes, head.messages[-1].role) == ("running", (READ,), "assistant")
    clock = store.clock
    store.clock = lambda: clock() + 3600
    other = office.agent("it was not paid", store=store)
    [found] = office.driver.call(other, "recover_all")
    assert [item.why for item in found.result.checkpoint.pending] == ["outcome_unknown"]
    # Run it again, says a human who knows no better.
    done = office.driver.resume(other, found.result.checkpoint.id, approved=True)
    assert done.output == "it was not paid" and office.done == [] and office.seen() == ["greet", "look"]
    assert [each.tool_name for each in office.refused()] == ["pay"]


@pytest.mark.few(2)
def test_scopes_that_were_taken_away_are_not_there_for_the_next_resume(office: Office) -> None:
    """Also after a failure, and by a recovery: a run has fewer scopes as time goes on, never more. Older checkpoints keep theirs."""
    stopped = office.driver.invoke(office.agent(PAY, "paid?"), "Pay 5", scopes=[READ, WRITE])
    with pytest.raises(ModelError):
        office.driver.resume(office.agent(ModelError("down")), stopped.checkpoint, approved=True, scopes=[READ])
    agent = office.agent([call("look"), call("pay", {"amount": 6})], "so be it")
    ended = office.driver.call(agent, "recover", stopped.run_id)
    assert ended.output == "so be it" and office.done == [f"look with {READ}"] and ended.checkpoint.scopes == (READ,)
    assert [each.tool_name for each in office.refused()] == ["pay", "pay"]
    assert office.driver.fork(agent, stopped.checkpoint).scopes == (READ, WRITE)
    # A run that waits is left as it is: nobody goes on with it.
    waits = office.driver.invoke(office.agent(PAY, "paid"), "Pay 5", scopes=[READ, WRITE])
    same = office.driver.call(office.agent("never"), "recover", waits.run_id, scopes=[])
    assert same.checkpoint == waits.checkpoint


@pytest.mark.few(2)
def test_a_run_inside_has_no_more_than_the_run_around_it(office: Office) -> None:
    """An agent as a tool, and what it asks for: the same scopes, also where the resume has fewer."""
    store = office.place.open()
    inner = Agent(name="payer", model=ScriptedModel.by_turn([PAY, "inner done"]), tools=office.tools(), store=store)
    outer = office.agent(call("payer", {"input": "Pay"}), "done", tools=[inner.as_tool()])
    ended = office.driver.invoke(outer, "Go", scopes=[READ])
    assert ended.status == "completed" and office.done == []
    assert [(each.agent, each.path, each.tool_name) for each in office.refused()] == [("payer", "1.0", "pay")]
    outer = office.agent(call("payer", {"input": "Pay"}), "done", tools=[inner.as_tool()])
    stopped = office.driver.invoke(outer, "Go", scopes=[READ, WRITE])
    [item] = stopped.checkpoint.pending
    ended = office.driver.resume(outer, stopped.checkpoint, decisions={item.id: Approve()}, scopes=[READ])
    assert ended.output == "done" and office.done == [] and len(office.refused()) == 2


@pytest.mark.few(2)
def test_an_agent_as_a_tool_may_need_a_scope(office: Office) -> None:
    inner = Agent(name="payer", model=ScriptedModel(["never"]), store=office.place.open())
    outer = office.agent(call("payer", {"input": "Pay"}), "done", tools=[inner.as_tool(scopes=["pay"])])
    assert office.driver.invoke(outer, "Go").output == "done"
    assert [each.tool_name for each in office.refused()] == ["payer"]


@pytest.mark.few(2)
def test_a_handoff_may_need_a_scope_and_gives_none(office: Office) -> None:
    """The target of a handoff sees the tools of the same run, and a handoff that needs a scope is a tool as any."""
    payer = Agent(name="payer", model=ScriptedModel([PAY, "not paid"]), tools=office.tools())
    desk = office.agent(call("transfer_to_payer", {}), "unused", tools=[], handoffs=[payer])
    ended = office.driver.invoke(desk, "Pay", scopes=[READ])
    assert (ended.output, office.done) == ("not paid", [])
    assert [(each.agent, each.tool_name) for each in office.refused()] == [("payer", "pay")]
    payer = Agent(name="payer", model=ScriptedModel(["never"]))
    desk = office.agent(
        call("transfer_to_payer", {}), "I stay", tools=[], handoffs=[Handoff(payer, scopes=["billing"])]
    )
    assert office.driver.invoke(desk, "Pay", scopes=[READ]).output == "I stay"
    assert [each.tool_name for each in office.refused()] == ["pay", "transfer_to_payer"]


@pytest.mark.few(2)
def test_an_agent_in_a_graph_has_the_scopes_of_the_graph(office: Office) -> None:
    inner = office.agent(PAY, call("look", {}), "done", name="payer")
    graph = StateGraph(Job, name="flow").add_node("payer", inner, input="plan", output="said")
    flow: Any = graph.add_edge(START, "payer").add_edge("payer", END).compile(store=office.place.open())
    ended = office.driver.invoke(flow, {"plan": "Pay"}, scopes=[READ])
    assert ended.status == "completed" and office.done == [f"look with {READ}"]
    assert [each.tool_name for each in office.refused()] == ["pay"]


@pytest.mark.few(2)
def test_a_fallback_whose_scope_is_missing_does_not_run(office: Office) -> None:
    @tool(scopes=["admin"])
    def by_hand() -> str:
        office.done.append("by hand")
        return "done by hand"

    @tool(fallback=[by_hand])
    def machine() -> str:
        raise RuntimeError("out of order")

    ended = office.driver.invoke(office.agent(call("machine", {}), "so be it", tools=[machine]), "Go")
    assert office.done == [] and office.told(ended.checkpoint) == ["RuntimeError: out of order"]
    ended = office.driver.invoke(office.agent(call("machine", {}), "done", tools=[machine]), "Go", scopes=["admin"])
    assert office.done == ["by hand"]


@pytest.mark.few(2)
def test_a_fork_has_the_scopes_of_its_run(office: Office) -> None:
    stopped = office.driver.invoke(office.agent(PAY, "paid"), "Pay 5", scopes=[READ, WRITE])
    forked = office.driver.fork(office.agent("done"), stopped.checkpoint)
    assert forked.scopes == (READ, WRITE)
    office.driver.resume(office.agent("done"), forked, approved=True, scopes=[])
    assert office.done == []
    # A refusal for want of a scope is no result that another branch takes over.
    office.driver.resume(office.agent("done"), stopped.checkpoint, approved=True)
    assert office.done == ["pay 5"]


SECRET = "s3cr3t"


def test_scopes_of_a_principal_are_for_this_process_alone() -> None:
    ann = Principal(id="ann", scopes=(READ,), claims={"token": SECRET})
    again = Principal.model_validate_json(ann.model_dump_json())
    assert again == ann and again.scopes is None and READ not in f"{ann!r} {ann.model_dump()}"
    with pytest.raises(ValueError, match="kept by nobody"):
        Principal.model_validate_json('{"id": "ann", "scopes": ["invoices:read"]}')
    assert ann.without_claims().scopes is None and Principal(id="ann").without_claims().scopes is None


@pytest.mark.parametrize(
    "scopes",
    ["admin", None, [""], ["a b"], ['a"b'], ["a\\b"], ["\u0430"], ["a\n"], ["a\0"], ["x" * 201], [1], {"a": 1}, 5],
)
def test_what_is_no_scope_is_refused(scopes: Any) -> None:
    """One text is no list, and look-alike letters are no letters: a Cyrillic letter is no letter of ASCII."""
    with pytest.raises(ToolDefinitionError, match="scopes must be a list of names"):
        tool(name="x", scopes=scopes)(lambda: "x")
    agent = Agent(name="a", model=ScriptedModel(["never"]))
    with pytest.raises(ConfigurationError, match="scopes is a list of names"):
        agent.invoke("Go", scopes=scopes)
    if isinstance(scopes, list):
        with pytest.raises(InvalidDecision):
            Principal(id="ann", scopes=(*scopes,))


def test_a_checkpoint_with_scopes_that_are_none_is_refused() -> None:
    made = Agent(name="a", model=ScriptedModel(["done"])).invoke("Go", scopes=[READ]).checkpoint
    assert Checkpoint.model_validate_json(made.model_dump_json()).scopes == (READ,)
    with pytest.raises(CheckpointError):
        Checkpoint.model_validate_json(made.model_dump_json().replace(READ, "two words"))


NAMES = st.frozensets(st.sampled_from(["a", "b", "c", "d"]))


@given(st.none() | NAMES, st.none() | NAMES)
def test_a_run_never_begins_with_more_than_anybody_gave(of_call: Any, of_requester: Any) -> None:
    found = frozenset(scopes_at_begin(of_call, None if of_requester is None else tuple(of_requester)))
    for each in (of_call, of_requester):
        assert each is None or found <= each
    assert found == frozenset() or of_call is not None or of_requester is not None


class Shelf(MCPServer):
    """A server that lists its tools without being started."""

    def _listed(self) -> dict[str, Listed]:
        schema: Any = {"type": "object"}
        names = ("read", "write", "wipe")
        return {name: Listed(name=name, description="", schema=schema, annotations={}) for name in names}


def shelf(scopes: Any) -> Shelf:
    return Shelf("shelf", command=["never"], requires_approval=False, scopes=scopes)


def test_tools_of_an_mcp_server_need_scopes() -> None:
    """All the same, or each its own; a tool that a mapping does not name is left out, since nobody has said who may have it."""
    assert {each.name: each.scopes for each in shelf(()).tools()} == dict.fromkeys(
        ["read", "write", "wipe"], frozenset()
    )
    assert {each.scopes for each in shelf(["files"]).tools()} == {frozenset({"files"})}
    some = shelf({"read": [], "write": ["files"]})
    assert {each.name: each.scopes for each in some.tools()} == {"read": frozenset(), "write": {"files"}}
    rest = shelf({"read": [], "*": ["files"]})
    assert [len(each.scopes) for each in rest.tools()] == [0, 1, 1]
    office = Office(NOWHERE, SYNC)
    ended = office.agent(call("write", {}), "so be it", tools=some.tools()).invoke("Go")
    assert "no tool named 'write'. The tools are: read." in office.told(ended.checkpoint)[0]
    for wrong in ("files", {"read": "files"}, {"read": None}, {1: []}, [""]):
        with pytest.raises(ConfigurationError, match="scopes is a list of names"):
            shelf(wrong)
    with pytest.raises(ConfigurationError, match="scopes names 'reed'"):
        shelf({"reed": [], "*": []}).tools()
