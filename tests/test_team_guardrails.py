"""Guardrails of a team and of a pattern: over every agent in it, at any depth, before the agent's own."""

from __future__ import annotations

from typing import Any

import pytest
from drivers import Driver
from handoff_scenes import to
from pattern_scenes import hears, payer, says
from pydantic import BaseModel

from phronomy import (
    Agent,
    AgentChanged,
    Approve,
    AsyncRequired,
    Breakpoint,
    ConfigurationError,
    GraphError,
    Guardrail,
    GuardrailRefused,
    NodeFailed,
    Orchestrator,
    Reject,
    Step,
    Store,
    Transform,
    guardrail,
    parallel,
    race,
    sequential,
    supervisor,
)
from phronomy.graph import END, START, StateGraph
from phronomy.guardrails.guardrail import AllowedTools, MaxLength, RedactPatterns, RefusePatterns
from phronomy.testing import call

DIGITS = RedactPatterns(["[0-9]+"], "#", name="digits")


def echo(name: str, heard: list[tuple[str, str]], **options: Any) -> Agent[Any, Any]:
    """An agent that says its name and what it was asked."""

    def answer(asked: str) -> str:
        heard.append((name, asked))
        return f"{name} {asked} 7"

    return hears(name, answer, **options)


class Office(BaseModel):
    """The state of a graph."""

    text: str = ""


def test_every_agent_of_a_team_is_looked_at(driver: Driver, store: Store) -> None:
    """D29: a member, one it hands over to, steps at any depth, an agent in a graph, and one behind a tool."""
    heard: list[tuple[str, str]] = []
    one, two = echo("one", heard), echo("two", heard)
    graph = (
        StateGraph(Office)
        .add_node("two", two, input="text", output="text")
        .add_edge(START, "two")
        .add_edge("two", END)
        .compile()
    )
    lead = says("lead", call("one", {"input": "of 5"}), "it is 9", tools=[one.as_tool()])
    desk = says("desk", to("two", "see 3"), handoffs=[two])
    deep = sequential(one, parallel(two, name="inner", merge=lambda found: found["two"]), name="deep")
    team = Orchestrator(
        [one, lead, desk],
        patterns={"deep": deep, "graph": graph},
        input_guardrails=[DIGITS],
        output_guardrails=[RedactPatterns(["7"], "seven", name="seven")],
        store=store,
    )
    assert driver.call(team, "run", "ask 1").output == "one ask # seven"
    assert driver.call(team, "run_pattern", "deep", "ask 2").output == "two one ask # seven seven"
    assert driver.call(team, "run_pattern", "graph", {"text": "ask 3"}).output == {"text": "two ask # seven"}
    assert driver.call(team, "run_agent", "lead", "ask 4").output == "it is 9"
    assert driver.call(team, "run_agent", "desk", "ask 5").output.endswith("seven")
    assert [asked for name, asked in heard][:4] == ["ask #", "ask #", "one ask # seven", "ask #"]
    assert heard[4] == ("one", "of #")
    assert driver.invoke(one, "ask 1").output == "one ask 1 7", "the agent itself is as it was"


def test_the_guardrails_of_a_team_come_before_those_of_an_agent(driver: Driver, store: Store) -> None:
    said: list[Any] = []

    def noting(name: str) -> Guardrail:
        @guardrail(name=name)
        def look(value: Any) -> Transform:
            said.append((name, value))
            return Transform(f"{value}{name}")

        return look

    agent = echo("a", [], input_guardrails=[noting("own")])
    inner = sequential(agent, name="inner", input_guardrails=[noting("inner")])
    outer = sequential(inner, name="outer", input_guardrails=[noting("outer")], store=store)
    assert driver.invoke(outer, "x").output == "a xouterinnerown 7"
    assert said == [("outer", "x"), ("inner", "xouter"), ("own", "xouterinner")]


def test_calls_of_tools_are_looked_at_before_anybody_is_asked(driver: Driver, store: Store) -> None:
    paid: list[str] = []
    pattern = parallel(payer("ann", paid), payer("bob", paid), tool_guardrails=[RefusePatterns(["bob"])], store=store)
    result = driver.invoke(pattern, "go")
    assert [item.args for item in result.checkpoint.pending] == [{"to": "ann"}]
    result = driver.resume(pattern, result.checkpoint, approved=True)
    assert (result.output, paid) == ({"ann": "ann paid", "bob": "bob paid"}, ["ann"])
    team = Orchestrator([payer("ann", paid)], tool_guardrails=[AllowedTools(["look"])], store=store)
    assert driver.call(team, "run", "go").status == "completed"
    assert paid == ["ann"]


def test_what_is_refused_stops_the_step_that_it_is_of(driver: Driver, store: Store) -> None:
    """As where the agent refuses itself; no other agent takes over the work of one whose input is refused."""
    heard: list[tuple[str, str]] = []
    short = MaxLength(5, name="short")
    team = Orchestrator(
        [echo("one", heard), echo("two", heard)], pools={"any": ["one", "two"]}, input_guardrails=[short]
    )
    own = Orchestrator([echo("one", heard, input_guardrails=[short])])
    ends: list[Any] = []
    for each, name in ((team, "any"), (own, "one")):
        try:
            ends.append(driver.call(each, "run_agent", name, "much too long").status)
        except (NodeFailed, GuardrailRefused) as error:
            ends.append((type(error), str(error).partition(":")[2].rpartition(";")[0]))
    assert (ends[0], heard) == (ends[1], [])


def test_memory_has_what_the_guardrails_of_a_team_left(driver: Driver, store: Store) -> None:
    heard: list[tuple[str, str]] = []
    one = echo("one", heard)
    team = Orchestrator([one], patterns={"p": sequential(one, name="p")}, input_guardrails=[DIGITS], store=store)
    driver.call(team, "run", "card 4111", thread_id="t")
    last = driver.call(team, "run_pattern", "p", "card 4222", thread_id="t")
    memory = team.state_of(last.checkpoint).memory
    assert [each["content"] for each in memory][::2] == [
        "card #",
        "(p was asked something that only its guardrails have seen)",
    ]
    assert "4111" not in str(memory) + str(heard) and "4222" not in str(memory) + str(heard)


def test_a_team_resumed_without_its_guardrails_is_refused(driver: Driver, store: Store) -> None:
    """Nobody else would look at what they have yet to see; and a rejection is one, with them or without."""
    paid: list[str] = []

    def made(**options: Any) -> Any:
        return sequential(payer("ann", paid), name="team", store=store, **options)

    rails = {"output_guardrails": [DIGITS]}
    asked = driver.invoke(made(**rails), "go").checkpoint
    with pytest.raises(AgentChanged, match="were to look at the output"):
        driver.resume(made(), asked, approved=True)
    assert paid == []
    end = {asked.pending[0].id: Reject(then="end")}
    assert driver.resume(made(**rails), asked, decisions=end).status == "rejected"


@pytest.mark.parametrize("stage", ["input_guardrails", "output_guardrails", "tool_guardrails"])
def test_agents_that_have_not_begun_are_not_begun_without_them(stage: str, driver: Driver, store: Store) -> None:
    """The team notes for them what was to look at them; a fork of it does not leave that behind."""
    heard: list[tuple[str, str]] = []

    def made(**options: Any) -> Any:
        gate = Step(driver.function(lambda text: text), requires_approval=True)
        return sequential({"gate": gate, "one": echo("one", heard)}, name="team", store=store, **options)

    guarded = made(**{stage: [MaxLength(9)]})
    asked = driver.invoke(guarded, "go").checkpoint
    other = driver.call(made(), "fork", asked)
    for checkpoint in (asked, other):
        with pytest.raises(AgentChanged, match="guardrails of 'team' were to look at"):
            driver.resume(made(), checkpoint, approved=True)
    assert heard == []
    assert driver.resume(guarded, asked, approved=True).output == "one go 7"


def test_the_input_of_a_step_is_edited_before_its_agent_is_looked_at(driver: Driver, store: Store) -> None:
    """A step is no call of a tool: its edited input is looked at as what the agent is asked."""
    heard: list[tuple[str, str]] = []
    rails: Any = {"input_guardrails": [DIGITS], "tool_guardrails": [DIGITS]}
    team = sequential(echo("one", heard), store=store, **rails)
    stop = driver.invoke(team, "go", breakpoints=[Breakpoint("pre_pattern_step")]).checkpoint
    edit = {stop.pending[0].id: Approve(args={"arg": "card 4111"})}
    assert driver.resume(team, stop, decisions=edit).output == "one card # 7"
    without = sequential(echo("one", heard), store=store)
    assert without.drift(stop).compatible == ("the guardrails of the team changed",)


def test_manager_and_losers_are_looked_at_too(driver: Driver, store: Store) -> None:
    heard: list[str] = []
    boss = hears("boss", lambda asked: (heard.append(asked), '{"answer": "x 1"}')[1])  # type: ignore[func-returns-value]
    pattern = supervisor(boss, [echo("a", [])], input_guardrails=[DIGITS], store=store)
    assert driver.invoke(pattern, "task 5").output == "x 1"
    assert "task #" in heard[0]
    assert driver.invoke(race(echo("a", []), output_guardrails=[DIGITS], store=store), "x").output == "a x #"


def test_what_cannot_be_guardrails_of_a_team_is_refused(driver: Driver) -> None:
    one = echo("one", [])

    @guardrail
    async def slow(value: Any) -> None:
        return None

    pattern = sequential(one, input_guardrails=[slow])
    with pytest.raises(AsyncRequired, match="slow"):
        pattern.invoke("x")
    for make in (sequential, lambda agent, **options: Orchestrator([agent], **options)):
        with pytest.raises(ConfigurationError):
            make(one, input_guardrails=[3])
        with pytest.raises(ConfigurationError):
            make(one, tool_guardrails=DIGITS)
    with pytest.raises(GraphError, match="input_guardrail"):
        sequential(one, input_guardrail=[DIGITS])  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="give it where one is made"):

        class Desk(Orchestrator[Any]):
            input_guardrails = [DIGITS]
