"""The orchestrator at its stops: breakpoints, approvals, holds; checkpoints and going back; other processes, and killed ones.

Ids in docstrings are of Directive's behaviours.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orchestrator_scenes
import pytest
from drivers import DRIVERS, Around, Driver, rows, run
from handoff_scenes import kept, to
from orchestrator_scenes import Desk, asked
from pattern_scenes import payer, says
from selection import scaled
from stop_scenes import OF_RUNS, elsewhere, holding, stops_of, walk
from test_cli_runs import place, said
from test_cli_runs import run as at_the_command_line

from phronomy import (
    AgentChanged,
    Approve,
    Breakpoint,
    BreakpointTimeout,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointError,
    ConfigurationError,
    Debugger,
    Hold,
    LocalState,
    Orchestrator,
    Reject,
    RunBusy,
    Skip,
    SQLiteStore,
    Store,
    StoreError,
    ThreadBusy,
    cli,
    parallel,
    sequential,
    tool,
)
from phronomy.observability.events import replay
from phronomy.stores.storeless_runs import HOMES
from phronomy.testing import call
from phronomy.testing.crash import sweep

__all__ = ["place", "said"]  # fixtures

# Breakpoints


def test_a_breakpoint_is_narrowed_to_agents_and_to_patterns(driver: Driver, store: Store) -> None:
    """W6, DIR-A12: a filter is one, for members, for agents inside patterns, and for patterns."""
    stop = [Breakpoint("pre_agent_run", agents=["bob"])]
    desk = Desk(store, driver=driver, breakpoints=stop)
    assert desk.ask("ann").output == "ann wrote"
    paused = desk.ask("bob")
    assert (stops_of(paused), paused.checkpoint.pending[0].agent) == (["pre_agent_run"], "bob")
    assert driver.resume(desk.team, paused.checkpoint).output == "bob wrote"
    steps: list[Any] = [Breakpoint("pre_pattern_step", patterns=["letters"])]
    assert stops_of(desk.ask("letter", breakpoints=steps)) == ["pre_pattern_step"]
    assert desk.ask("pair", breakpoints=steps).checkpoint.pending[0].why == "approval"
    inside = desk.ask("letter", breakpoints=[Breakpoint("pre_model_call", agents=["sender"])])
    assert (stops_of(inside), inside.checkpoint.pending[0].agent) == (["pre_model_call"], "sender")
    members = desk.ask("letter", breakpoints=[Breakpoint("pre_node", nodes=["letter"])])
    assert (stops_of(members), members.checkpoint.pending[0].agent) == (["pre_node"], "desk")
    for wrong in (Breakpoint("pre_agent_run", agents=["nobody"]), Breakpoint("pre_pattern_step", patterns=["letter"])):
        with pytest.raises(ConfigurationError, match="named"):
            desk.ask("ann", breakpoints=[wrong])


def test_a_step_of_a_pattern_is_skipped_and_its_input_passed_on(driver: Driver, store: Store) -> None:
    """DIR-A14, D21."""
    heard: list[Any] = []
    line = sequential(says("one", "x"), driver.function(lambda value: heard.append(value) or "done"), name="line")
    team = Orchestrator([says("a", "x")], patterns={"line": line}, store=store)
    stop: list[Any] = [Breakpoint("pre_pattern_step", nodes=["one"])]
    paused = driver.call(team, "run_pattern", "line", "the question", breakpoints=stop).checkpoint
    assert driver.resume(team, paused, decisions={paused.pending[0].id: Skip()}).output == "done"
    assert heard == ["the question"]


def test_a_handoff_that_is_skipped_is_not_made(driver: Driver, store: Store) -> None:
    """D20, DIR-A15: nothing is recorded, and the target never runs."""
    desk = Desk(store, driver=driver)
    triage = says("triage", to("billing"), "I help you myself.")
    team = Orchestrator([triage, desk.billing], handoffs=[("triage", "billing")], store=store)
    stop = [Breakpoint("pre_handoff", agents=["triage"])]
    paused = driver.call(team, "run", "hi", thread_id="t", breakpoints=stop)
    skipped = driver.resume(team, paused.checkpoint, decisions={paused.checkpoint.pending[0].id: Skip()})
    assert skipped.output == "I help you myself."
    state = team.local_state(skipped.checkpoint)
    assert (state.handoff_count, state.pending_handoffs, set(state.members)) == (0, (), {"triage"})


def test_two_members_of_a_pattern_are_paused_at_once_and_resumed_one_by_one(driver: Driver, store: Store) -> None:
    """DIR-A08, D15: at breakpoints and at approvals, only the one that is answered proceeds."""
    desk = Desk(store, driver=driver)
    stop = [Breakpoint("pre_agent_run", agents=["left", "right"])]
    paused = desk.ask("pair", breakpoints=stop).checkpoint
    ids = {item.agent: item.id for item in paused.pending}
    assert ids.keys() == {"left", "right"}
    after = driver.resume(desk.team, paused, decisions={ids["left"]: Approve()}, breakpoints=stop).checkpoint
    assert {(item.agent, item.why) for item in after.pending} == {("left", "approval"), ("right", "breakpoint")}
    with pytest.raises(CheckpointAlreadyResumed):
        driver.resume(desk.team, paused, decisions={ids["left"]: Approve()})
    after = driver.resume(desk.team, paused, decisions={ids["right"]: Approve()}, breakpoints=stop).checkpoint
    assert ([item.why for item in after.pending], desk.done) == (["approval"] * 2, [])
    left, right = sorted(after.pending, key=lambda item: item.agent or "")
    one = driver.resume(desk.team, after, decisions={left.id: Approve()})
    assert (one.checkpoint.pending[0].id, desk.done) == (right.id, ["left"])
    done = driver.resume(desk.team, after, decisions={right.id: Approve()})
    assert (done.output, desk.done) == ({"left": "left paid", "right": "right paid"}, ["left", "right"])


def test_what_a_member_is_asked_is_edited_where_it_stops(driver: Driver, store: Store) -> None:
    desk = Desk(store, driver=driver)
    paused = desk.run("old", breakpoints=[Breakpoint("pre_agent_run")]).checkpoint
    done = driver.resume(desk.team, paused, decisions={paused.pending[0].id: Approve(args={"input": "new"})})
    assert asked(desk.triage_model) == [["user: new"]]
    memory = desk.team.state_of(desk.settle(done).checkpoint).memory
    assert memory[0] == {"role": "user", "content": "new"}


def test_every_stop_of_a_run_is_walked_through(driver: Driver, store: Store) -> None:
    """D1: in this order, each once."""
    team = Orchestrator([says("a", "x")], store=store)
    points: list[Any] = ["pre_node", *OF_RUNS, "post_node"]
    result, stood = walk(driver, team, "hi", breakpoints=[Breakpoint(each) for each in points])
    assert (stood, result.output) == (["pre_node", *OF_RUNS, "post_node", "post_run"], "x")


# Holds


def test_on_breakpoint_may_answer_at_once(driver: Driver, store: Store) -> None:
    """W1, DIR-A07: an answer inside the notification is heard. A call may say that it does not hold, or bring its own."""
    seen: list[tuple[str, str]] = []

    def look(hit: Any) -> Approve:
        seen.append((hit.type, hit.agent))
        return Approve()

    stop: list[Any] = [Breakpoint("pre_agent_run"), Breakpoint("pre_pattern_step")]
    desk = Desk(store, driver=driver, breakpoints=stop, on_breakpoint=look)
    assert desk.ask("ann").output == "ann wrote"
    assert desk.ask("letter").checkpoint.pending_tool_name == "pay"
    assert seen == [
        ("pre_agent_run", "ann"),
        ("pre_pattern_step", "letters"),
        ("pre_agent_run", "draft"),
        ("pre_pattern_step", "letters"),
        ("pre_agent_run", "sender"),
    ]
    assert stops_of(desk.ask("ann", hold=None)) == ["pre_agent_run"]
    own: list[str] = []
    mine = Hold(on_breakpoint=lambda hit: own.append(hit.agent) or Skip())  # type: ignore[func-returns-value]
    assert (desk.ask("bob", hold=mine).status, own) == ("completed", ["bob"])

    async def streamed() -> list[str]:
        return [event.type async for event in desk.team.astream_member("bob", "hi")]

    types = run(streamed()) if driver.is_async else [event.type for event in desk.team.stream_member("bob", "hi")]
    assert types[-1] == "completed"


def test_two_that_are_held_are_let_go_one_by_one(driver: Driver, store: Store) -> None:
    """DIR-A08: pending shows the other."""
    hold, arrivals = holding()
    done: list[str] = []
    pair = parallel(says("left", "L"), says("right", "R"), name="pairs")
    team = Orchestrator([payer("x", done)], patterns={"pair": pair}, store=store, hold=hold)
    stop = [Breakpoint("pre_agent_run", agents=["left", "right"])]
    with elsewhere(lambda: driver.call(team, "run_pattern", "pair", "go", breakpoints=stop)) as held:
        hits = {hit.agent: hit for hit in (arrivals.next(), arrivals.next())}
        assert {hit.agent for hit in hold.pending} == {"left", "right"}
        hold.resume_breakpoint(hits["left"].id)
        assert {hit.agent for hit in hold.pending} <= {"right"}
        hold.resume_breakpoint(hits["right"].id)
        assert held.result().output == {"left": "L", "right": "R"}


def test_a_hold_that_nobody_answers_or_that_is_cancelled_ends_the_run(driver: Driver, store: Store) -> None:
    """DIR-A04, DIR-A05: pending is empty then, and nothing else ran."""
    desk = Desk(store, driver=driver, breakpoints=[Breakpoint("pre_agent_run")], hold=Hold(timeout=0.01))
    with pytest.raises(BreakpointTimeout) as late:
        desk.ask("ann", thread_id="t")
    assert (late.value.result.status, store.pending_rows()) == ("cancelled", [])
    hold, arrivals = holding()
    with elsewhere(lambda: desk.ask("ann", thread_id="t", hold=hold)) as held:
        hold.cancel_breakpoint(arrivals.next().id, "no more")
        ended = held.result()
    assert (ended.status, ended.checkpoint.ending.reason, hold.pending) == ("cancelled", "no more", [])
    assert desk.team.local_state(ended.checkpoint).members["ann"].status == "cancelled"


def test_what_steps_through_a_run_is_never_held(driver: Driver, store: Store) -> None:
    """A debugger and `step` look for themselves, whatever the team has a hold for."""
    desk = Desk(store, driver=driver, breakpoints=[Breakpoint("pre_agent_run")], on_breakpoint=lambda hit: None)
    debugger = Debugger(desk.team)
    run(debugger.astart("hi")) if driver.is_async else debugger.start("hi")
    run(debugger.ainto()) if driver.is_async else debugger.into()
    assert stops_of(debugger.checkpoint) == ["pre_agent_run"]
    result = driver.step(desk.team, "hi")
    while result.status == "running":
        result = driver.step(desk.team, result.checkpoint)
    assert stops_of(result) == ["pre_agent_run"]


# Checkpoints, and going back


def test_a_member_that_was_skipped_does_not_keep_the_team_busy(driver: Driver, store: Store) -> None:
    """W9."""
    desk = Desk(store, driver=driver)
    paused = desk.ask("ann", thread_id="t", breakpoints=[Breakpoint("pre_agent_run")]).checkpoint
    skipped = driver.resume(desk.team, paused, decisions={paused.pending[0].id: Skip()})
    kept_here = driver.call(desk.team, "checkpoint", skipped.run_id, label="after")
    state = desk.team.local_state(kept_here)
    assert (kept_here.label, state.status, state.members["ann"].status) == ("after", "completed", "skipped")


def test_while_a_member_works_the_team_is_busy(driver: Driver, store: Store) -> None:
    """DIR-A19, W16: neither a checkpoint nor going back, and nothing changes; afterwards both."""
    refused: list[str] = []

    def look() -> str:
        """Look."""
        [branch] = store.branches(thread_id="t")
        for method in ("checkpoint", "restore"):
            options = {"label": "now"} if method == "checkpoint" else {}
            with pytest.raises(RunBusy) as busy:
                getattr(team, method)(branch.head, **options)
            refused.append(busy.value.run_id)
        with pytest.raises(ThreadBusy):
            team.run("more", thread_id="t")
        return "looked"

    team = Orchestrator([says("a", call("look"), "ok", tools=[tool(driver.function(look))])], store=store)
    done = driver.call(team, "run", "hi", thread_id="t")
    assert (done.output, refused) == ("ok", [done.run_id] * 2)
    assert driver.call(team, "checkpoint", done.run_id, label="now").label == "now"
    assert driver.call(team, "restore", done.checkpoint).status == "completed"


def everything(state: LocalState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in LocalState.__dataclass_fields__}


@pytest.mark.parametrize("with_timeline", [True, False])
def test_going_back_brings_all_of_the_team_back(with_timeline: bool, driver: Driver, store: Store) -> None:
    """D37, D38: tokens, status, agents, handoffs, facts, memory and whose turn it is, with the timeline or without it."""
    desk = Desk(store, driver=driver)
    asks = desk.run("I paid twice.", thread_id="t", facts={"plan": "basic"})
    desk.settle(asks)
    desk.ask("writer", "one", thread_id="t")
    saved = driver.call(desk.team, "checkpoint", store.latest("t"), label="before")
    was = desk.team.local_state(saved)
    assert (was.status, was.tokens, was.runs, was.handoff_count, was.turns) == ("completed", 40, 2, 1, {"writer": 1})
    desk.ask("writer", "two", thread_id="t", facts={"plan": "gold"})
    desk.settle(desk.run("Again.", thread_id="t"))
    assert desk.team.local_state(store.latest("t")).tokens == 80  # type: ignore[arg-type]

    back = driver.call(desk.team, "restore", saved, restore_timeline=with_timeline)
    assert everything(desk.team.local_state(back)) == everything(was)
    assert everything(desk.team.local_state(back.branch_id)) == everything(was)
    begun = [event.type for event in replay(store, back.branch_id)]
    assert begun.count("run_started") == (0 if with_timeline else 1)
    assert desk.ask("writer", "three", thread_id="t").output == "bob wrote"
    last = desk.settle(desk.run("Third.", thread_id="t"))
    state = desk.team.local_state(last.checkpoint)
    assert (state.tokens, state.runs, state.handoff_count, state.turns) == (80, 4, 2, {"writer": 2})
    assert (state.facts, [each["content"] for each in state.memory if each["role"] == "user"]) == (
        {"plan": "basic"},
        ["I paid twice.", "one", "three", "Third."],
    )
    again = driver.call(desk.team, "restore", last.checkpoint, restore_timeline=False)
    assert everything(desk.team.local_state(again)) == everything(state)


@pytest.mark.parametrize("with_timeline", [True, False])
def test_a_run_that_waits_inside_a_member_is_gone_back_to(with_timeline: bool, driver: Driver, store: Store) -> None:
    """What waited waits again, under new ids; what is done after that is counted for whoever does it."""
    desk = Desk(store, driver=driver)
    asks = desk.run("I paid twice.", thread_id="t")
    was = desk.team.local_state(asks.checkpoint)
    desk.settle(asks)
    back = driver.call(desk.team, "restore", asks.checkpoint, restore_timeline=with_timeline)
    assert {item.id for item in back.pending}.isdisjoint(item.id for item in asks.checkpoint.pending)
    assert everything(desk.team.local_state(back)) == everything(was)
    ended = desk.settle(back)
    state = desk.team.local_state(ended.checkpoint)
    assert (ended.output, state.tokens, state.runs, state.handoff_count) == ("Refunded.", 30, 1, 1)
    assert {name: (each.status, each.runs, each.tokens) for name, each in state.members.items()} == {
        "triage": ("completed", 1, 10),
        "billing": ("completed", 1, 20),
    }
    letter = desk.ask("letter", "send", thread_id="p")
    desk.settle(letter)
    back = driver.call(desk.team, "restore", letter.checkpoint, restore_timeline=with_timeline)
    state = desk.team.local_state(desk.settle(back).checkpoint)
    assert {name: each.status for name, each in state.members.items()} == dict.fromkeys(
        ("letter", "draft", "sender"), "completed"
    )


def test_what_does_not_fit_is_not_gone_back_to(driver: Driver, store: Store) -> None:
    """D37: a typed error, and nothing has changed."""
    desk = Desk(store, driver=driver)
    asks = desk.ask("billing", thread_id="t").checkpoint
    alone = driver.invoke(says("x", "y", store=store), "hi").checkpoint
    pattern = driver.invoke(sequential(says("x", "y"), name="line", store=store), "hi").checkpoint
    renamed = Orchestrator({"bills": desk.billing}, store=store, name="desk")
    stranger = Orchestrator([desk.billing], store=store, name="other")
    before = rows(store)
    for team, given, error in (
        (desk.team, alone, CheckpointError),
        (desk.team, pattern, AgentChanged),
        (stranger, asks, AgentChanged),
        (renamed, asks, AgentChanged),
    ):
        for with_timeline in (True, False):
            with pytest.raises(error):
                driver.call(team, "restore", given, restore_timeline=with_timeline)
    for team in (stranger, renamed):
        with pytest.raises(AgentChanged):
            driver.resume(team, asks, approved=True)
    assert rows(store) == before
    assert "'billing'" in str(renamed.drift(asks).changed)
    assert (desk.settle(asks).output, desk.done) == ("Refunded.", ["billing"])


def test_an_end_is_gone_back_to_by_a_team_without_its_member(driver: Driver, store: Store) -> None:
    """D37: unknown agents of a checkpoint at rest are no obstacle; the drift is listed."""
    desk = Desk(store, driver=driver)
    done = desk.ask("ann", thread_id="t").checkpoint
    small = Orchestrator([desk.writers[1]], store=store, name="desk")
    assert small.drift(done).changed == ()
    assert "node 'ann' was removed" in small.drift(done).compatible
    back = driver.call(small, "restore", done)
    assert driver.call(small, "run", "go on", thread_id="t").output == "bob wrote"
    assert small.local_state(back).members["ann"].runs == 1


def test_going_back_is_one_write_or_none(driver: Driver, store: Store) -> None:
    """W16: where the store fails, all is as it was."""

    class Full(Around):
        def create(self, branch: Any, change: Any, *, exclusive: bool) -> None:
            raise StoreError("the disk is full")

    desk = Desk(store, driver=driver)
    done = desk.ask("ann", thread_id="t").checkpoint
    desk.ask("bob", thread_id="t")
    before = rows(store)
    team: Any = Desk(Full(store), driver=driver).team
    for with_timeline in (True, False):
        with pytest.raises(StoreError):
            driver.call(team, "restore", done, restore_timeline=with_timeline)
    assert rows(store) == before


def test_a_run_is_forked_in_the_middle_and_told_again(driver: Driver, store: Store) -> None:
    desk = Desk(store, driver=driver)
    asks = desk.run("I paid twice.", thread_id="t")
    fork = driver.fork(desk.team, asks.checkpoint)
    answer = {fork.pending[0].id: Reject(reason="no", then="end")}
    other = driver.resume(desk.team, fork, decisions=answer)
    assert (other.status, desk.done) == ("rejected", [])
    assert (desk.settle(asks).output, desk.done) == ("Refunded.", ["billing"])
    assert desk.team.local_state(other.checkpoint).members["billing"].status == "rejected"
    told = [event.type for event in replay(store, asks.run_id) if event.path]
    assert (told.count("handoff"), told.count("model_replied")) == (1, 3)


def test_what_a_bearer_brings_goes_on_inside_where_it_stood(driver: Driver) -> None:
    """Laws 4 and 9: resumed, restored or forked, what the members have said is not asked again."""
    text = Desk(None, driver=driver).run("I paid twice.", thread_id="t").checkpoint.model_dump_json()
    brought = Checkpoint.model_validate_json(text)
    for how in ("resume", "fork", "restore", "restore without its timeline"):
        HOMES.forget()  # another process
        desk = Desk(None, driver=driver)
        at = brought
        if how == "fork":
            at = driver.fork(desk.team, brought)
        elif how != "resume":
            at = driver.call(desk.team, "restore", brought, restore_timeline=how == "restore")
        assert (at.status, [part.speaker for part in at.nested]) == ("suspended", ["billing"]), how
        done = driver.resume(desk.team, at, approved=True)
        assert (done.output, desk.done, asked(desk.triage_model)) == ("Refunded.", ["billing"], []), how
        state = desk.team.local_state(done.checkpoint)
        assert (state.tokens, state.handoff_count, state.members["billing"].status) == (30, 1, "completed"), how


def test_what_a_bearer_brings_of_a_pattern_has_what_is_done_in_it(driver: Driver) -> None:
    """Law 4: one of two steps is through, and is not run again; the other waits."""
    desk = Desk(None, driver=driver)
    asks = desk.ask("pair").checkpoint
    left = next(item for item in asks.pending if item.agent == "left")
    half = driver.resume(desk.team, asks, decisions={left.id: Approve()}).checkpoint
    brought = Checkpoint.model_validate_json(half.model_dump_json())
    for how in ("resume", "fork", "restore"):
        HOMES.forget()  # another process
        fresh = Desk(None, driver=driver)
        at = brought if how == "resume" else driver.call(fresh.team, how, brought)
        assert [item.agent for item in at.pending] == ["right"]
        done = driver.resume(fresh.team, at, approved=True)
        assert (done.output, fresh.done) == ({"left": "left paid", "right": "right paid"}, ["right"])


def test_what_has_run_after_a_checkpoint_that_a_bearer_brings_is_not_run_again(driver: Driver) -> None:
    """Laws 4 and 5: one whose worker died in the middle of a call is resumed, which asks; it is not gone back to."""
    ran: list[str] = []

    class Died(BaseException):
        pass

    def team(*, dies: bool) -> Orchestrator[Any]:
        def look() -> str:
            """Look."""
            ran.append("look")
            return "seen"

        def pay() -> str:
            """Pay."""
            ran.append("pay")
            if dies:
                raise Died
            return "paid"

        calls = [[call("look"), call("pay")], "done"]
        tools = [tool(driver.function(look)), tool(driver.function(pay))]
        return Orchestrator([says("a", *calls, tools=tools, max_parallel=1)])

    first = team(dies=True)
    with pytest.raises(Died):
        driver.call(first, "run", "go")
    [branch] = first.store.branches()
    brought = Checkpoint.model_validate_json(first.store.head(branch.id)[1].model_dump_json())
    for with_timeline in (True, False):
        with pytest.raises(CheckpointError, match="resume it"):
            driver.call(team(dies=False), "restore", brought, restore_timeline=with_timeline)
    second = team(dies=False)
    asks = driver.resume(second, brought)
    assert ([item.why for item in asks.checkpoint.pending], ran) == (["outcome_unknown"], ["look", "pay"])


# Elsewhere


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_a_run_is_resumed_by_its_id_by_another_orchestrator(kind: str, driver: Driver, tmp_path: Path) -> None:
    """Law 9: all that is needed is in the store, whose clients share nothing."""
    with kept(kind, tmp_path) as store:
        desk = Desk(store, driver=driver)
        desk.ask("writer", thread_id="t")
        asks = desk.run("I paid twice.", thread_id="t")
        fresh = Desk(SQLiteStore(tmp_path / "runs.db") if kind == "sqlite" else store, driver=driver)
        done = driver.resume(fresh.team, asks.checkpoint.id, approved=True, by="olga")
        assert (done.output, desk.done, fresh.done) == ("Refunded.", [], ["billing"])
        state = driver.call(fresh.team, "local_state", done.run_id)
        assert (state.tokens, state.runs, state.handoff_count, state.turns) == (40, 2, 1, {"writer": 1})
        assert fresh.ask("writer", thread_id="t").output == "bob wrote"
        back = driver.call(fresh.team, "restore", asks.checkpoint.id, restore_timeline=False)
        assert fresh.team.local_state(back).tokens == 30


@pytest.mark.usefixtures("fresh_fork_server")
@pytest.mark.few(1)
@pytest.mark.parametrize("name", DRIVERS, ids=str)
def test_a_team_that_is_killed_anywhere_ends_as_one_that_was_not(name: Driver, tmp_path: Path) -> None:
    report = sweep(
        partial(orchestrator_scenes.play, driver=str(name)),
        store=f"sqlite:///{tmp_path}/runs.db?synchronous=normal",
        check=orchestrator_scenes.check,
        every=scaled(15, sweep=5),
    )
    assert report.kills > scaled(1, sweep=4)


# At the command line

APP = '''
from pathlib import Path

from phronomy import Agent, Orchestrator, tool
from phronomy.testing import ScriptedModel, call


@tool(requires_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    with Path("paid.txt").open("a") as file:
        file.write(f"{order}\\n")
    return f"order {order} is refunded"


def desk():
    triage = Agent(name="triage", model=ScriptedModel.by_turn([call("transfer_to_billing", {})]))
    billing = Agent(
        name="billing",
        model=ScriptedModel(lambda request: "Your money is on its way." if "refunded" in request.messages[-1].text
                            else call("refund", {"order": 7})),
        tools=[refund],
    )
    return Orchestrator([triage, billing], handoffs=[("triage", "billing")], name="desk")
'''


@pytest.fixture
def app(place: Path, said: Callable[[], str]) -> Any:
    """A module with a team in it, of which one run waits on thread t1."""
    (place / "team.py").write_text(APP)
    sys.modules.pop("team", None)
    sys.path.insert(0, os.getcwd())
    import team  # type: ignore[import-not-found]

    with SQLiteStore("runs.db") as store:
        desk = team.desk()
        desk.store = store
        waits = desk.run("I paid twice.", thread_id="t1").checkpoint
    said()
    return waits


def test_a_team_is_looked_at_and_decided_at_the_command_line(app: Any, said: Callable[[], str]) -> None:
    [item] = app.pending
    assert at_the_command_line("pending", "--json", app="team:desk") == cli.DONE
    assert [each["pending_id"] for each in json.loads(said())["items"]] == [item.id]
    assert at_the_command_line("show", app.run_id, app="team:desk") == cli.DONE
    assert "billing" in said()
    assert at_the_command_line("approve", item.id, "--yes", "--json", app="team:desk") == cli.DONE
    assert json.loads(said())["output"] == "Your money is on its way."
    assert Path("paid.txt").read_text() == "7\n"


def test_a_team_is_talked_to(app: Any, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is asked first; then the answer of each run is shown."""
    assert at_the_command_line("chat", "--thread", "t1", app="team:desk") == cli.PENDING
    assert "refund" in said()
    assert at_the_command_line("approve", app.pending[0].id, "--yes", "--json", app="team:desk") == cli.DONE
    said()
    typed = iter(["Again, please."])

    def ask(screen: Any, question: str, *, afresh: bool = False) -> str:
        answer = next(typed, None)
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr(cli.Screen, "ask", ask)
    (Path("team.py")).write_text(APP.replace('call("refund", {"order": 7})', '"Nothing to refund."'))
    sys.modules.pop("team", None)
    assert at_the_command_line("chat", "--thread", "t1", app="team:desk") == cli.DONE
    assert "Nothing to refund." in said()
