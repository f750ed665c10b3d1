"""The facts of a team where its agents work: in tools, gates, instructions, guardrails and conditions of breakpoints."""

from __future__ import annotations

from typing import Any

from drivers import Driver
from pattern_scenes import says
from pydantic import BaseModel

from phronomy import (
    Agent,
    Approval,
    Approve,
    Breakpoint,
    BreakpointContext,
    Debugger,
    Orchestrator,
    Store,
    ToolContext,
    Transform,
    guardrail,
    parallel,
    sequential,
    to_wire,
    tool,
)
from phronomy.conversation.instructions import InstructionsContext
from phronomy.graph import END, START, StateGraph
from phronomy.guardrails.guardrail import GuardrailContext
from phronomy.models.base import ModelRequest
from phronomy.testing import ScriptedModel, call

GOLD: dict[str, Any] = {"plan": "gold", "limit": [1, 2]}


class Clerk:
    """An agent that pays, and notes in `seen` which facts each part of it has read; each part tries to change them."""

    def __init__(self, driver: Driver, **options: Any) -> None:
        self.seen: list[tuple[str, Any]] = []

        def read(where: str, facts: dict[str, Any]) -> None:
            self.seen.append((where, {**facts}))
            facts["plan"] = "changed"

        def pay(ctx: ToolContext[Any], to: str) -> str:
            """Pay somebody."""
            read("tool", ctx.facts)
            return "paid"

        def needs(args: Any, ctx: ToolContext[Any]) -> bool:
            read("gate", ctx.facts)
            return ctx.facts.get("plan") != "gold"

        def title(args: Any, ctx: ToolContext[Any]) -> str:
            return f"for {ctx.facts.get('plan')}"

        def instructions(input: Any, ctx: InstructionsContext[Any]) -> str:
            read("instructions", ctx.facts)
            return "Pay."

        @guardrail
        def look(value: Any, ctx: GuardrailContext[Any]) -> Transform | None:
            read("guardrail", ctx.facts)
            return None

        gate = Approval(when=driver.function(needs), title=title)
        self.agent: Agent[Any, Any] = Agent(
            name="clerk",
            model=ScriptedModel.by_turn([call("pay", {"to": "ann"}), "done"]),
            tools=[tool(requires_approval=gate)(driver.function(pay))],
            instructions=driver.function(instructions),
            input_guardrails=[look],
            **options,
        )

    @property
    def read(self) -> dict[str, list[Any]]:
        """The facts that each part has read, every time."""
        return {where: [facts for each, facts in self.seen if each == where] for where, _ in self.seen}


def test_the_facts_of_a_thread_are_read_where_its_agents_work(driver: Driver, store: Store) -> None:
    """In the member that runs, in a pattern inside it, and in an agent behind a tool: each gets a copy."""
    clerk = Clerk(driver)
    lead = says("lead", call("clerk", {"input": "pay"}), "done", tools=[clerk.agent.as_tool()])
    chain = sequential(parallel(clerk.agent, name="both"), name="chain")
    team = Orchestrator([clerk.agent, lead], patterns={"chain": chain}, store=store)
    for method, name in (("run_agent", "clerk"), ("run_agent", "lead"), ("run_pattern", "chain")):
        clerk.seen.clear()
        result = driver.call(team, method, name, "go", facts=GOLD, thread_id=name)
        assert result.status == "completed"
        expected = {"guardrail": [GOLD], "instructions": [GOLD, GOLD], "gate": [GOLD], "tool": [GOLD]}
        assert clerk.read == expected
    later = driver.call(team, "run_agent", "clerk", "go", facts={"plan": "iron"}, thread_id="clerk")
    assert later.suspended
    assert clerk.seen[-1] == ("gate", {**GOLD, "plan": "iron"})
    [item] = later.checkpoint.pending
    assert item.title == "for iron"


def test_facts_are_read_after_a_stop_in_another_process(driver: Driver, store: Store) -> None:
    """They are in the checkpoint; those of another thread are not seen."""
    clerk = Clerk(driver)

    def team() -> Any:
        return Orchestrator([clerk.agent], store=store)

    driver.call(team(), "run", "go", facts=GOLD, thread_id="other")
    asked = driver.call(team(), "run", "go", facts={"plan": "tin"}, thread_id="t").checkpoint
    clerk.seen.clear()
    assert driver.resume(team(), asked.id, approved=True).output == "done"
    assert clerk.read == {"tool": [{"plan": "tin"}], "instructions": [{"plan": "tin"}]}


def test_an_agent_alone_has_no_facts(driver: Driver, store: Store) -> None:
    clerk = Clerk(driver, store=store)
    asked = driver.invoke(clerk.agent, "go")
    assert asked.suspended
    driver.resume(clerk.agent, asked.checkpoint, approved=True)
    assert {where: facts[0] for where, facts in clerk.read.items()} == {where: {} for where in clerk.read}


def test_the_condition_of_a_breakpoint_reads_facts(driver: Driver, store: Store) -> None:
    """As a function and as an expression, at every depth; in the debugger as well; on the wire they are hidden."""
    seen: list[BreakpointContext] = []
    inner = Clerk(driver).agent
    team = Orchestrator([inner], patterns={"chain": sequential(inner, name="chain")}, store=store)

    def look(here: BreakpointContext) -> bool:
        seen.append(here)
        return False

    stops = [Breakpoint("*", when=look), Breakpoint("tool", when="facts['plan'] == 'gold' and facts.get('x') is None")]
    paused = driver.call(team, "run_pattern", "chain", "go", facts=GOLD, breakpoints=stops)
    [item] = paused.checkpoint.pending
    assert (item.point, seen[0].facts) == ("pre_tool_call", GOLD)
    assert to_wire(seen[0])["facts"] == GOLD
    assert to_wire(seen[0], redact=inner)["facts"] != GOLD
    assert "gold" not in repr(seen[0])
    if not driver.is_async:
        debugger = Debugger(team)
        debugger.attach(paused.checkpoint)
        assert debugger.context.facts == GOLD
    assert driver.resume(team, paused.checkpoint, decisions={item.id: Approve()}, breakpoints=stops).output == "done"
    other = driver.call(team, "run_pattern", "chain", "go", facts={"plan": "gold", "x": 1}, breakpoints=stops)
    assert other.status == "completed"


class Office(BaseModel):
    """The state of a graph."""

    text: str = ""


def test_a_node_reads_the_facts_of_the_innermost_team(driver: Driver, store: Store) -> None:
    heard: list[Any] = []

    def node(state: Office, ctx: ToolContext[Any]) -> dict[str, str]:
        heard.append(ctx.facts)
        return {"text": "x"}

    graph = StateGraph(Office).add_node("node", driver.function(node)).add_edge(START, "node").add_edge("node", END)
    inner = Orchestrator([says("a", "A")], patterns={"office": graph.compile()}, entry="office", name="inner")
    outer = Orchestrator(
        [says("b", "B")], patterns={"inner": inner, "office": graph.compile()}, store=store, name="outer"
    )
    driver.call(outer, "run_pattern", "inner", {"text": ""}, facts=GOLD)
    driver.call(outer, "run_pattern", "office", {"text": ""}, facts=GOLD)
    assert heard == [{}, GOLD]


def test_facts_that_a_resume_changes_are_read_from_there_on(driver: Driver, store: Store) -> None:
    def reply(request: ModelRequest) -> str:
        return request.system or ""

    def instructions(input: Any, ctx: InstructionsContext[Any]) -> str:
        return str(ctx.facts["plan"])

    agent: Agent[Any, Any] = Agent(name="a", model=ScriptedModel(reply), instructions=driver.function(instructions))
    team = Orchestrator([agent], store=store)
    paused = driver.call(team, "run", "go", facts=GOLD, breakpoints=[Breakpoint("pre_node")]).checkpoint
    result = driver.resume(team, paused, approved=True, update={"facts": {"plan": "silver"}})
    assert result.output == "silver"
