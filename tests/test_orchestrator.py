"""The orchestrator: members, pools and patterns in one run and one thread; what the thread keeps, and what each member is shown.

Stops, checkpoints and other processes are in `test_orchestrator_stops.py`; ids in docstrings are of Directive's behaviours.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from drivers import Driver, rows, run
from handoff_scenes import to
from orchestrator_scenes import Desk, asked
from pattern_scenes import hears, payer, says
from pydantic import BaseModel
from stop_scenes import Case

from phronomy import (
    Agent,
    Approve,
    AsyncRequired,
    Breakpoint,
    CheckpointError,
    CheckpointNotFound,
    ConfigurationError,
    Handoff,
    Hold,
    Hooks,
    LimitExceeded,
    Limits,
    LocalState,
    Memory,
    ModelConnectionError,
    NodeFailed,
    Orchestrator,
    Reject,
    Skip,
    SQLiteStore,
    Store,
    TeamState,
    ThreadBusy,
    round_robin,
    sequential,
    tool,
)
from phronomy.graph import END, START, StateGraph
from phronomy.guardrails.guardrail import RedactPatterns, RefusePatterns
from phronomy.testing import ScriptedModel, call

# Running


def test_the_entry_is_asked_and_may_hand_over(driver: Driver, store: Store) -> None:
    desk = Desk(store, driver=driver)
    result = desk.run("I paid twice.", thread_id="t")
    assert (result.status, desk.done) == ("suspended", [])
    [item] = result.checkpoint.pending
    assert (item.tool_name, item.args, item.agent, item.path) == ("pay", {"to": "billing"}, "billing", "2.0")
    result = driver.resume(desk.team, result.checkpoint, approved=True)
    assert (result.status, result.output, desk.done) == ("completed", "Refunded.", ["billing"])
    assert result.checkpoint.original_input == "I paid twice."
    assert store.load(result.checkpoint.id) == result.checkpoint
    assert desk.team.state_of(result.checkpoint) == TeamState(
        member="triage",
        input="I paid twice.",
        output="Refunded.",
        memory=[{"role": "user", "content": "I paid twice."}, {"role": "assistant", "content": "Refunded."}],
    )


def test_any_member_is_run_by_name_and_pools_take_turns(driver: Driver, store: Store) -> None:
    """D34: whose turn it is belongs to the thread, and survives a new orchestrator."""
    desk = Desk(store, driver=driver)
    assert desk.team.members == ("triage", "billing", "ann", "bob", "letter", "pair")
    assert desk.ask("bob").output == "bob wrote"
    heard = [desk.ask("writer", thread_id="t").output, Desk(store, driver=driver).ask("writer", thread_id="t").output]
    assert heard == ["ann wrote", "bob wrote"]
    last = desk.ask("writer", thread_id="t")
    assert (last.output, desk.team.local_state(last.checkpoint).turns) == ("ann wrote", {"writer": 3})
    assert desk.ask("writer", thread_id="other").output == "ann wrote"
    letter = desk.ask("letter", {"to": "Bob"})
    assert (letter.status, letter.checkpoint.pending[0].agent) == ("suspended", "sender")
    assert desk.settle(letter).output == "sender paid"


def test_streams_are_of_any_member_and_tell_of_what_is_inside(driver: Driver, store: Store) -> None:
    desk = Desk(store)

    def told(member: str | None) -> list[str]:
        async def main() -> list[str]:
            stream = desk.team.astream("hi") if member is None else desk.team.astream_member(member, "hi")
            return [event.type async for event in stream if event.path]

        if driver.is_async:
            found: list[str] = run(main())
            return found
        stream = desk.team.stream("hi") if member is None else desk.team.stream_member(member, "hi")
        return [event.type for event in stream if event.path]

    assert "handoff" in told(None)
    assert told("ann").count("model_replied") == 1
    assert "model_replied" in told("writer")
    assert "approval_requested" in told("letter")


def test_a_member_that_is_not_there_is_refused_and_nothing_is_done(driver: Driver, store: Store) -> None:
    desk = Desk(store, driver=driver)
    before = rows(store)
    for method, name in (
        ("run_agent", "letter"),
        ("run_agent", "nobody"),
        ("run_pattern", "ann"),
        ("run_pattern", "x"),
    ):
        with pytest.raises(ConfigurationError, match="Nothing was done"):
            driver.call(desk.team, method, name, "hi")
    with pytest.raises(ConfigurationError, match="there is no option"):
        desk.run("hi", colour="red")
    assert rows(store) == before


@pytest.mark.parametrize("bad", [5, None, float("nan"), object(), [], {1, 2}], ids=lambda value: type(value).__name__)
def test_what_cannot_be_asked_is_refused_before_anything_is_stored(bad: Any, driver: Driver, store: Store) -> None:
    """Law 15: otherwise a run that can never go on keeps the thread busy."""
    desk = Desk(store, driver=driver)
    before = rows(store)
    with pytest.raises(ConfigurationError):
        desk.ask("ann", bad, thread_id="t")
    with pytest.raises(ConfigurationError):
        desk.ask("ann", "hi", thread_id="t", facts={"at": object()})
    for none in ([1], [], "", 0):
        with pytest.raises(ConfigurationError):
            desk.ask("ann", "hi", thread_id="t", facts=none)
    with pytest.raises(ConfigurationError):
        desk.run("hi", thread_id="t", messages=[])
    assert rows(store) == before
    assert desk.ask("ann", thread_id="t").output == "ann wrote"


def test_mappings_models_and_parts_are_asked_and_kept(driver: Driver, store: Store) -> None:
    class Question(BaseModel):
        order: int

    echo = Agent(name="echo", model=ScriptedModel.by_turn(["ok"]))
    team = Orchestrator([echo], store=store)
    parts = [{"type": "text", "text": "look"}]
    for given in ({"order": 1}, Question(order=2), parts, "text"):
        result = driver.call(team, "run", given, thread_id="t")
    told = [each["content"] for each in team.state_of(result.checkpoint).memory if each["role"] == "user"]
    assert told == ['{"order":1}', '{"order":2}', parts, "text"]
    model: Any = echo.model
    assert [message.content for message in model.requests[-1].messages if message.role == "user"] == told


def test_the_output_of_a_typed_member_is_plain_json(driver: Driver, store: Store) -> None:
    class Bill(BaseModel):
        amount: int

    bill = says("bill", '{"amount": 7}', output_type=Bill)
    count = StateGraph(Case, name="count").add_node("n", lambda state: {"n": state.n + 1}).add_edge(START, "n")
    patterns = {"count": count.add_edge("n", END).compile(), "twice": sequential(lambda value: [value, value])}
    team = Orchestrator([bill], patterns=patterns, store=store)
    assert driver.call(team, "run", "hi").output == {"amount": 7}
    assert driver.call(team, "run_pattern", "count", {"n": 4}).output == {"n": 5, "log": []}
    assert driver.call(team, "run_pattern", "twice", 3).output == [3, 3]
    with pytest.raises(ConfigurationError, match="cannot begin with this input"):
        driver.call(team, "run_pattern", "count", "text")


# What the thread keeps


def test_each_agent_is_shown_what_was_asked_and_answered_in_the_thread(driver: Driver, store: Store) -> None:
    one, two = (hears(name, lambda said, name=name: f"{name} heard {said}") for name in ("one", "two"))  # type: ignore[misc]
    team = Orchestrator([one, two], patterns={"both": sequential(says("inner", "x"))}, store=store, entry="two")
    driver.call(team, "run_agent", "one", "a", thread_id="t")
    driver.call(team, "run_pattern", "both", "b", thread_id="t")
    driver.call(team, "run", "c", thread_id="t")
    driver.call(team, "run", "d", thread_id="other")
    assert asked(two.model) == [
        ["user: a", "assistant: one heard a", "user: b", "assistant: x", "user: c"],
        ["user: d"],
    ]


def test_memory_bounds_what_is_shown_and_an_agent_may_have_its_own(driver: Driver, store: Store) -> None:
    few, all_of_it = says("few", "ok"), says("all", "ok", memory=Memory(max_messages=100))
    team = Orchestrator([few, all_of_it], memory=Memory(max_messages=4), store=store)
    for number in range(6):
        result = driver.call(team, "run", f"q{number}", thread_id="t")
    driver.call(team, "run_agent", "all", "last", thread_id="t")
    assert max(len(shown) for shown in asked(few.model)) <= 4
    assert asked(few.model)[-1] == ["user: q4", "assistant: ok", "user: q5"]
    assert asked(all_of_it.model)[-1][-1] == "user: last"
    assert len(team.state_of(result.checkpoint).memory) == 12
    whole = Orchestrator([few], memory=None, store=store, name="whole")
    for number in range(5):
        driver.call(whole, "run", f"q{number}", thread_id="w")
    assert len(asked(few.model)[-1]) == 9


def test_memory_has_what_guardrails_left_of_the_input(driver: Driver, store: Store) -> None:
    """What a guardrail took out of an input, or refused, is not shown to a model in a later run."""
    guards = [RedactPatterns(["SECRET"]), RefusePatterns(["forbidden"])]
    one, two = says("one", "ok", input_guardrails=guards), says("two", "ok")
    inner = sequential(says("inner", "done", input_guardrails=guards))
    team = Orchestrator([one, two], patterns={"p": inner}, store=store)
    driver.call(team, "run", "my SECRET", thread_id="t")
    driver.call(team, "run_pattern", "p", "the SECRET", thread_id="t")
    refused = driver.call(team, "run", "forbidden", thread_id="t")
    assert refused.status == "rejected"
    driver.call(team, "run_agent", "two", "hi", thread_id="t")
    assert asked(two.model) == [
        [
            "user: my [redacted]",
            "assistant: ok",
            "user: (p was asked something that only its guardrails have seen)",
            "assistant: done",
            "user: hi",
        ]
    ]


def test_memory_keeps_no_question_without_its_answer(driver: Driver, store: Store) -> None:
    """Law 6: rejected, cancelled and skipped runs leave no half of an exchange behind."""
    desk = Desk(store, driver=driver)
    asks = desk.ask("billing", "reject me", thread_id="t")
    refusal = {asks.checkpoint.pending[0].id: Reject(then="end")}
    assert driver.resume(desk.team, asks.checkpoint, decisions=refusal).status == "rejected"
    asks = desk.ask("letter", "cancel me", thread_id="t")
    assert driver.cancel(desk.team, asks.checkpoint).status == "cancelled"
    stop = desk.ask("ann", "skip me", thread_id="t", breakpoints=[Breakpoint("pre_agent_run")])
    skipped = driver.resume(desk.team, stop.checkpoint, decisions={stop.checkpoint.pending[0].id: Skip()})
    assert (skipped.status, skipped.output) == ("completed", None)
    assert desk.team.state_of(skipped.checkpoint).memory == []
    last = desk.ask("ann", "answer me", thread_id="t")
    assert [each["content"] for each in desk.team.state_of(last.checkpoint).memory] == ["answer me", "ann wrote"]


def test_facts_are_merged_over_the_runs_of_a_thread(driver: Driver, store: Store) -> None:
    desk = Desk(store, driver=driver)
    desk.ask("ann", thread_id="t", facts={"plan": "basic", "age": 3})
    last = desk.ask("bob", thread_id="t", facts={"plan": "gold"})
    assert desk.team.local_state(last.checkpoint).facts == {"plan": "gold", "age": 3}
    assert desk.team.local_state(desk.ask("bob").checkpoint).facts == {}


def test_what_a_run_stores_does_not_grow_with_its_thread(tmp_path: Path) -> None:
    """Law 14: once the memory is full, each run of a thread stores as much as the one before."""
    with SQLiteStore(tmp_path / "runs.db") as store:
        team = Orchestrator([says("a", "x" * 100)], memory=Memory(max_messages=6), store=store)
        sizes = []
        for _ in range(40):
            team.run("q" * 100, thread_id="t", facts={"k": "v"})
            with closing(sqlite3.connect(store._file.path)) as database:
                sizes.append(database.execute("select sum(length(body)) from phronomy_log").fetchone()[0])
    grown = [after - before for before, after in pairwise(sizes)]
    # A message more in each would be 270 bytes a run; a slow machine has some more digits in what took how long.
    assert max(grown[10:]) - min(grown[10:]) < 200, grown


# Local state


def test_local_state_is_as_the_page_of_directive_lists_it(driver: Driver, store: Store) -> None:
    """D34: tokens and status of all, of each agent its own, handoffs made and pending, whose turn it is."""
    desk = Desk(store, driver=driver)
    stop = [Breakpoint("pre_handoff")]
    paused = desk.run("I paid twice.", thread_id="t", breakpoints=stop)
    state = desk.team.local_state(paused.checkpoint)
    [waits] = state.pending_handoffs
    assert (waits.source, waits.target, waits.pending_id) == ("triage", "billing", paused.checkpoint.pending[0].id)
    assert (state.status, state.tokens, state.handoff_count, state.runs) == ("suspended", 10, 0, 1)
    asks = driver.resume(desk.team, paused.checkpoint, decisions={waits.pending_id: Approve()})
    state = desk.team.local_state(paused.run_id)
    assert (state.status, state.tokens, state.handoff_count, state.pending_handoffs) == ("suspended", 20, 1, ())
    assert {name: (each.status, each.runs, each.tokens) for name, each in state.members.items()} == {
        "triage": ("completed", 1, 10),
        "billing": ("suspended", 1, 10),
    }
    desk.settle(asks)
    desk.ask("writer", "write", thread_id="t", facts={"plan": "gold"})
    state = driver.call(desk.team, "local_state", desk.ask("writer", "more", thread_id="t").run_id)
    assert (state.status, state.tokens, state.runs, state.turns) == ("completed", 50, 3, {"writer": 2})
    [made] = state.handoffs
    assert (made.source, made.target, made.run_id, made.pending_id) == ("triage", "billing", paused.run_id, None)
    ann, billing = state.members["ann"], state.members["billing"]
    assert (ann.status, ann.last_input, ann.last_output, ann.last_error) == ("completed", "write", "ann wrote", None)
    assert (billing.status, billing.last_output, billing.tokens) == ("completed", "Refunded.", 20)
    assert state.facts == {"plan": "gold"}
    assert len(state.memory) == 6


def test_local_state_tells_of_failures_ends_and_patterns(driver: Driver, store: Store) -> None:
    down = Agent(name="down", model=ScriptedModel([ModelConnectionError("no"), "up"]))
    desk = Desk(store, driver=driver)
    team = Orchestrator([down], patterns={"two": sequential(says("a", "x"), says("b", "y"))}, store=store, name="down")
    with pytest.raises(NodeFailed) as failed:
        driver.call(team, "run", "hi", thread_id="t")
    state = team.local_state(failed.value.run_id or "")
    assert (state.status, state.members["down"].status, state.members["down"].last_error) == (
        "failed", "failed", "ModelConnectionError"
    )  # fmt: skip
    assert driver.resume(team, failed.value.checkpoint or "").output == "up"
    done = driver.call(team, "run_pattern", "two", "hi", thread_id="t")
    state = team.local_state(done.checkpoint)
    assert {name: (each.status, each.runs) for name, each in state.members.items()} == {
        "down": ("completed", 1), "two": ("completed", 1), "a": ("completed", 1), "b": ("completed", 1)
    }  # fmt: skip
    assert state.members["two"].last_output == "y"
    asks = desk.ask("billing", thread_id="c")
    driver.cancel(desk.team, asks.checkpoint)
    state = desk.team.local_state(asks.run_id)
    assert (state.status, state.members["billing"].status) == ("cancelled", "cancelled")
    with pytest.raises(CheckpointError, match="is of 'down'"):
        desk.team.local_state(done.checkpoint)
    with pytest.raises(CheckpointNotFound):
        desk.team.local_state("run_none")
    with pytest.raises(CheckpointError):
        desk.team.local_state(driver.invoke(says("x", "y", store=store), "hi").checkpoint)
    assert isinstance(state, LocalState)


# People, failures, limits


def test_a_refusal_ends_the_run_and_nobody_else_does_the_work(driver: Driver, store: Store) -> None:
    """W4, DIR-A04: it is not retried, not rerouted to the others of a pool or a pattern, and asked once."""
    desk = Desk(store, driver=driver)
    for member in ("billing", "letter"):
        asks = desk.ask(member, thread_id=member)
        answer = {asks.checkpoint.pending[0].id: Reject(reason="never", then="end")}
        ended = driver.resume(desk.team, asks.checkpoint, decisions=answer)
        assert (ended.status, ended.checkpoint.pending) == ("rejected", ())
        assert desk.team.local_state(ended.checkpoint).status == "rejected"
    assert desk.done == []
    pool = Orchestrator([payer("p", desk.done), payer("q", desk.done)], pools={"any": ["p", "q"]}, store=store)
    asks = driver.call(pool, "run_agent", "any", "go", thread_id="x")
    ended = driver.resume(pool, asks.checkpoint, decisions={asks.checkpoint.pending[0].id: Reject(then="end")})
    assert (ended.status, desk.done, len(list(store.audit(run_id=ended.run_id)))) == ("rejected", [], 1)


def test_limits_and_gates_of_members_hold(driver: Driver, store: Store) -> None:
    bounded = says("bounded", call("look"), "x", tools=[tool(lambda: "seen", name="look")], limits=Limits(turns=1))
    team = Orchestrator([bounded], store=store)
    with pytest.raises((LimitExceeded, NodeFailed), match="turns"):
        driver.call(team, "run", "hi")
    strict = Orchestrator([says("a", call("look"), "x", tools=[tool(lambda: "seen", name="look")])], store=store,
                          approval_policy=["look"])  # fmt: skip
    assert driver.call(strict, "run", "hi").checkpoint.pending_tool_name == "look"
    assert strict.dry_run("a/look").verdict == "ask"


def test_hooks_hear_of_what_members_do(driver: Driver) -> None:
    class Heard(Hooks):
        def __init__(self) -> None:
            self.types: list[tuple[str, str]] = []

        def on_event(self, event: Any) -> None:
            self.types.append((event.path, event.type))

    heard = Heard()
    desk = Desk(None, driver=driver, hooks=[heard])
    desk.settle(desk.run())
    assert ("2.0", "handoff") in heard.types
    assert ("2.0", "approval_requested") in heard.types
    assert heard.types[-1] == ("", "completed")


def test_one_orchestrator_serves_many_threads(store: Store) -> None:
    """Law 16; a busy thread is refused, and superseded if asked."""
    desk = Desk(store)
    waits = [desk.ask("billing", thread_id=f"t{number}") for number in range(3)]
    with pytest.raises(ThreadBusy):
        desk.ask("ann", thread_id="t0")
    assert desk.ask("ann", thread_id="t0", on_pending="supersede").output == "ann wrote"
    for asks in waits[1:]:
        assert desk.settle(asks).output == "Refunded."
    assert desk.team.local_state(waits[0].run_id).members["billing"].status == "superseded"


# Being made


def agent(name: str = "a", **options: Any) -> Agent[Any, Any]:
    return says(name, "ok", **options)


@pytest.mark.parametrize(
    ("agents", "options", "why"),
    [
        ([], {}, "agents are instances"),
        ([Agent], {}, "agents are instances"),
        ([agent(), agent()], {}, "two agents are named 'a'"),
        ([agent("two words")], {}, "cannot name a member"),
        ([agent()], {"entry": "b"}, "no member 'b' to begin with"),
        ([agent()], {"entry": ["a"]}, "to begin with"),
        ([agent()], {"handoffs": [("a", "nobody")]}, "hands over to 'nobody'"),
        ([agent()], {"handoffs": [("b", "a")]}, "handoffs are pairs"),
        ([agent()], {"handoffs": 5}, "handoffs are pairs"),
        ([agent()], {"handoffs": [("a", "a")]}, "hands over to itself"),
        ([agent(), agent("b")], {"handoffs": [("a", "b"), ("a", "b")]}, "two handoffs to 'b'"),
        ([agent()], {"patterns": {"a": sequential(agent("b"))}}, "two members are named 'a'"),
        ([agent()], {"patterns": {"p": agent("b")}}, "is a pattern or a graph, not Agent"),
        ([agent()], {"patterns": [sequential(agent("b"))]}, "patterns are given by name"),
        ([agent()], {"patterns": {"p q": sequential(agent("b"))}}, "cannot name a pattern"),
        ([agent()], {"pools": {"any": ["b"]}}, "lists 'b'"),
        ([agent()], {"pools": {"any": []}}, "pool 'any'"),
        ([agent()], {"pools": {"a": ["a"]}}, "named like no member"),
        ([agent()], {"pools": {"p": ["a"]}, "patterns": {"p": sequential(agent("b"))}}, "named like no member"),
        ([agent()], {"pools": ["a"]}, "pools are given by name"),
        ([agent()], {"memory": 20}, "memory is a Memory"),
        ([agent()], {"hold": 3}, "hold is a Hold"),
        ([agent()], {"on_breakpoint": 3}, "on_breakpoint is a function"),
        ([agent()], {"on_breakpoint": print, "hold": Hold()}, "give on_breakpoint to the hold"),
        ([agent()], {"colour": "red"}, "there is no option colour"),
        ([agent()], {"store": 3}, "store is a Store"),
        ([agent()], {"name": ""}, "name of a graph"),
        ([agent()], {"breakpoints": [Breakpoint("pre_pattern_step")]}, "ever comes to pre_pattern_step"),
        ([agent()], {"breakpoints": [Breakpoint("pre_agent_run", agents=["b"])]}, "no agents named b"),
        ([agent(limits=3)], {}, "limits"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_does_not_fit_is_refused_when_it_is_made(agents: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Orchestrator(agents, **options)


def test_agents_stay_as_they_were_given(driver: Driver, store: Store) -> None:
    """They are copied, those beside the team that they hand over to as well: each runs by itself, and may be changed."""
    inside, outside = says("inside", to("outside"), "back"), says("outside", to("inside"), "x")
    inside.handoffs, outside.handoffs = [outside], [Handoff(inside)]
    team = Orchestrator({"front": inside}, store=store)
    assert driver.call(team, "run", "hi").output == "x"
    inside.instructions, outside.description = "changed", "changed"
    assert (inside.name, inside.handoffs, inside.memory, outside.handoffs[0].target) == (
        "inside",
        [outside],
        None,
        inside,
    )
    assert driver.invoke(inside, "hi").checkpoint.agent.name == "inside"
    again = Orchestrator([inside], store=store, name="again")
    assert again.members == ("inside",)
    with pytest.raises(ConfigurationError, match="compiled"):
        team.max_steps = 3
    other: Store = Desk(None).team.store
    team.store = other
    assert driver.call(team, "run", "hi").checkpoint is not None


def test_a_sync_call_refuses_what_is_async() -> None:
    async def slow() -> str:
        """Slow."""
        return "ok"

    team = Orchestrator([says("a", call("slow"), "ok", tools=[tool(slow)])])
    with pytest.raises(AsyncRequired):
        team.run("hi")
    assert run(team.arun("hi")).output == "ok"


# In other things


def test_a_team_is_a_tool_a_node_a_step_and_a_member(driver: Driver, store: Store) -> None:
    done: list[str] = []
    team = Orchestrator([payer("clerk", done)], name="clerks")
    chief = says("chief", call("clerks", {"input": "Pay."}), "The chief is done.", tools=[team.as_tool()], store=store)
    graph = StateGraph(Case, name="office").add_node(
        "team", team, input=lambda state: "go", output=lambda said: {"log": [said]}
    )
    office = graph.add_edge(START, "team").add_edge("team", END).compile(store=store)
    line = sequential(team, driver.function(lambda value: f"{value}!"), store=store)
    bigger = Orchestrator([says("x", "y")], patterns={"clerks": team}, store=store, entry="clerks")
    ends = []
    for whole, given in ((chief, "go"), (office, {}), (line, "go"), (bigger, "go")):
        asks = driver.invoke(whole, given)
        [item] = asks.checkpoint.pending
        assert (item.agent, item.tool_name) == ("clerk", "pay")
        ends.append(driver.resume(whole, asks.checkpoint, approved=True).output)
    assert ends == ["The chief is done.", Case(log=["clerk paid"]), "clerk paid!", "clerk paid"]
    assert done == ["clerk"] * 4


def test_a_round_robin_in_a_team_begins_anew_and_a_pool_does_not(driver: Driver, store: Store) -> None:
    turns = round_robin(says("l", "L"), says("r", "R"), rounds=1)
    team = Orchestrator(
        [says("a", "A"), says("b", "B")], patterns={"turns": turns}, pools={"ab": ["a", "b"]}, store=store
    )
    heard = [driver.call(team, "run_pattern", "turns", "x", thread_id="t").output for _ in range(2)]
    assert heard == ["R", "R"]
    assert [driver.call(team, "run_agent", "ab", "x", thread_id="t").output for _ in range(3)] == ["A", "B", "A"]
