"""Where runs inside calls stop: what is decided from above, lost, forked, changed, looked at and broken off, and by whom.

What a delegation is, and what it comes to, is in `test_agent_tool.py`.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import nested_scenes
import pytest
from drivers import PATIENCE, Driver
from nested_scenes import BOTH, HOUR, Firm, asking, firm, passing, tools_of
from places import place_of
from selection import scaled

from phronomy import (
    Agent,
    AgentChanged,
    Approve,
    Breakpoint,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointError,
    CheckpointUntrusted,
    ConfigurationError,
    Hold,
    InvalidDecision,
    ModelError,
    NothingDecided,
    Reject,
    Respond,
    Skip,
    SQLiteStore,
    ThreadBusy,
    interrupt,
    tool,
    validate_checkpoint,
)
from phronomy.foundation.json_text import canonical
from phronomy.graph import END, START, StateGraph
from phronomy.records.decisions import call_digest
from phronomy.stores.base import Store
from phronomy.stores.storeless_runs import HOMES
from phronomy.testing import ScriptedModel, call, sweep

SEEN = ["look left 0", "look right 0", "look root 0"]
HERE = Path(__file__).parent


@pytest.fixture
def desk(driver: Driver, tmp_path: Path) -> Iterator[Firm]:
    """The firm over a SQLite file."""
    with place_of("sqlite", tmp_path) as place:
        yield Firm(driver, place)


def posted(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint after a trip as text."""
    return Checkpoint.model_validate_json(checkpoint.model_dump_json())


# Deciding


def ladder(desk: Firm, **options: Any) -> Callable[[Store | None], Agent[Any, Any]]:
    """Three agents, each of which pays and asks the next: approvals wait at every depth at once."""

    def draw(store: Store | None) -> Agent[Any, Any]:
        pay, _ = tools_of(desk.driver, desk.effect, **options)
        low: Any = Agent(name="low", model=passing([call("pay", {"who": "low"})]), tools=[pay])
        middle = asking(low, passing([call("low", {"input": "x"}), call("pay", {"who": "middle"})]), pay, name="middle")
        both = [call("middle", {"input": "x"}), call("pay", {"who": "top"})]
        return asking(middle, passing(both), pay, name="top", store=store)

    return draw


LADDER = ("low", "middle", "top")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("together", [True, False], ids=["at-once", "one-by-one"])
def test_approvals_of_all_depths_are_decided_in_any_order(desk: Firm, order: tuple[int, ...], together: bool) -> None:
    """By id, from the first checkpoint: each later one is applied at the head of the branch."""
    desk.draw = ladder(desk)
    stop = desk.invoke().checkpoint
    assert [(item.args["who"], item.path) for item in stop.pending] == [
        ("low", "1.0/1.0"),
        ("middle", "1.0"),
        ("top", ""),
    ]
    answers = [Approve(), Approve(args={"who": "middle", "amount": 5}), Respond(content="by hand")]
    decisions = {stop.pending[place].id: answers[place] for place in order}
    if together:
        result = desk.resume(stop, decisions=decisions)
    else:
        for pending_id, answer in decisions.items():
            result = desk.resume(stop, decisions={pending_id: answer})
    assert (result.status, desk.done) == ("completed", ["pay low 10", "pay middle 5"])
    assert result.messages[-2].text == "by hand"
    assert "paid low 10 & A human changed" in result.messages[-3].text
    desk.check_histories(result.checkpoint)


def test_each_is_decided_once_whoever_tries(desk: Firm) -> None:
    """What was decided stands, with who it was; what is malformed changes nothing, at any depth."""
    stop = desk.invoke().checkpoint
    left, right = stop.pending
    store = desk.place.open()
    before = desk.place.text()
    agent = desk.draw(store)
    for answer in (Approve(args={"who": 7}), Approve(args={"nobody": "x"}), Skip(), True, None):
        with pytest.raises(InvalidDecision):
            desk.driver.resume(agent, stop, decisions={left.id: Approve(), right.id: answer})
    with pytest.raises(NothingDecided):
        desk.driver.resume(agent, stop)
    assert (desk.place.text(), desk.done) == (before, SEEN)
    half = desk.resume(stop, decisions={left.id: Reject()}, by="ann").checkpoint
    for given in (stop, posted(stop), stop.id):
        with pytest.raises(CheckpointAlreadyResumed) as already:
            desk.resume(given, decisions={left.id: Approve()}, by="bob")
        assert (already.value.decision.by.id, already.value.progress) == ("ann", "suspended")  # type: ignore[union-attr]
    ended = desk.resume(half, approved=True)
    assert (ended.status, desk.done) == ("completed", [*SEEN, "pay right 10"])
    with pytest.raises(CheckpointAlreadyResumed) as already:
        desk.resume(stop, decisions={right.id: Reject()})
    assert already.value.progress == "ended"


def test_two_humans_at_once_decide_on_two_sides_and_one_of_each_wins(desk: Firm) -> None:
    """Six at the same moment, three a side, each with a firm of its own: every side pays once."""
    stop = desk.invoke().checkpoint
    desk.place.close()

    def decide(number: int) -> str:
        with SQLiteStore(desk.place.where) as store:
            agent = firm(desk.driver, desk.effect, store)
            try:
                answer = {stop.pending[number % 2].id: Approve()}
                return desk.driver.resume(agent, stop, decisions=answer, by=f"{number}").status
            except CheckpointAlreadyResumed:
                return "lost"

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(decide, range(6)))
    assert found.count("lost") == 4
    with desk.store() as store:
        head = store.head(stop.branch_id)[1]
    assert (head.status, desk.done) == ("completed", [*SEEN, "pay left 10", "pay right 10"])
    assert len(head.decisions) == 2
    desk.check_histories(head)


def test_a_decision_on_one_side_reaches_the_worker_that_is_busy_on_the_other(desk: Firm) -> None:
    """It is left for whoever holds the run, who carries it out; who decided does not wait for that."""
    entered, let_go = threading.Event(), threading.Event()
    told = desk.effect

    def effect(name: str, who: str, amount: int, ctx: Any) -> None:
        told(name, who, amount, ctx)
        if (name, who) == ("pay", "left"):
            entered.set()
            assert let_go.wait(PATIENCE)

    desk.effect = effect  # type: ignore[method-assign]
    stop = desk.invoke().checkpoint
    left, right = stop.pending
    desk.place.close()

    def resume(pending_id: str) -> Any:
        with SQLiteStore(desk.place.where) as store:
            agent = firm(desk.driver, desk.effect, store)
            return desk.driver.resume(agent, stop, decisions={pending_id: Approve()})

    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(resume, left.id)
        assert entered.wait(PATIENCE)
        handed = resume(right.id)
        let_go.set()
        ended = busy.result(PATIENCE)
    assert (handed.status, ended.status) == ("running", "completed")
    assert ended.output == "saw left & paid left 10 & saw right & paid right 10 & saw root"
    assert desk.done == [*SEEN, "pay left 10", "pay right 10"]


def test_what_a_tool_inside_asks_is_answered_from_above(desk: Firm) -> None:
    """A question names who asks, and where; its answer goes back into the body, which is run again for it alone."""

    def draw(store: Store | None) -> Agent[Any, Any]:
        def book() -> str:
            """Book it."""
            desk.effect("book", "x", 0, type("C", (), {"idempotency_key": "k"})())  # type: ignore[arg-type]
            return f"booked for {interrupt('How many?', key='n', answer=int)}"

        inner: Any = Agent(name="clerk", model=passing(call("book")), tools=[tool(book)])
        return asking(
            asking(inner, passing(call("clerk", {"input": "x"})), name="lead"),
            passing(call("lead", {"input": "x"})),
            name="top",
            store=store,
        )

    desk.draw = draw
    stop = posted(desk.invoke().checkpoint)
    [item] = stop.pending
    assert (item.why, item.agent, item.path) == ("question", "clerk", "1.0/1.0")
    with pytest.raises(InvalidDecision):
        desk.resume(stop, decisions={item.id: Respond(content="many")})
    result = desk.resume(stop, decisions={item.id: Respond(content=3)})
    assert (result.output, desk.done) == ("booked for 3", ["book x 0"] * 2)


def test_a_failure_on_one_side_waits_for_nobody_and_is_tried_again_with_the_next_decision(desk: Firm) -> None:
    """Beside it somebody is asked: the run is suspended. A tool that failed inside, and asks what now, is answered from above."""
    faults: list[Exception] = [ModelError("down")]

    def draw(store: Store | None) -> Agent[Any, Any]:
        def flaky() -> str:
            """Try."""
            desk.effect("flaky", "x", len(desk.done), type("C", (), {"idempotency_key": "k"})())  # type: ignore[arg-type]
            if len(desk.done) == 1:
                raise ValueError("the bank is away")
            return "it worked"

        def shaky(request: Any) -> str:
            if faults:
                raise faults.pop()
            return "all is well"

        tries = tool(on_failure="human")(desk.driver.function(flaky))
        first: Any = Agent(name="first", model=ScriptedModel.by_turn([shaky]))
        second: Any = Agent(name="second", model=passing(call("flaky")), tools=[tries])
        both = [call("first", {"input": "x"}), call("second", {"input": "x"})]
        return Agent(name="top", model=passing(both), tools=[first.as_tool(), second.as_tool()], store=store)  # type: ignore[arg-type]

    desk.draw = draw
    stop = posted(desk.invoke().checkpoint)
    [item] = stop.pending
    assert (item.why, item.path, item.agent, item.reason) == (
        "failed", "1.1", "second", "ValueError: the bank is away",
    )  # fmt: skip
    result = desk.resume(stop, approved=True)
    assert (result.status, result.output) == ("completed", "all is well & it worked")
    assert len(desk.done) == 2


def test_an_agent_inside_that_hands_over_names_whoever_asks_then(desk: Firm) -> None:
    def draw(store: Store | None) -> Agent[Any, Any]:
        pay, _ = tools_of(desk.driver, desk.effect)
        second: Any = Agent(name="second", model=passing("unused", call("pay", {"who": "x"})), tools=[pay])
        first: Any = Agent(name="first", model=passing(call("transfer_to_second")), handoffs=[second])
        return asking(first, passing(call("first", {"input": "x"})), name="top", store=store)

    desk.draw = draw
    stop = posted(desk.invoke().checkpoint)
    assert [(item.path, item.agent) for item in stop.pending] == [("1.0", "second")]
    result = desk.resume(stop, approved=True)
    assert (result.status, desk.done) == ("completed", ["pay x 10"])


def test_a_handler_decides_for_the_agent_that_has_it_and_for_no_other(desk: Firm) -> None:
    asked: list[str] = []

    def draw(store: Store | None) -> Agent[Any, Any]:
        def handler(name: str, args: dict[str, Any]) -> bool:
            asked.append(args["who"])
            return True

        pay, _ = tools_of(desk.driver, desk.effect)
        low: Any = Agent(name="low", model=passing([call("pay", {"who": "low"})]), tools=[pay])
        both = [call("low", {"input": "x"}), call("pay", {"who": "top"})]
        return asking(low, passing(both), pay, name="top", store=store, on_approval_required=handler)

    desk.draw = draw
    stop = desk.invoke().checkpoint
    assert (asked, [item.agent for item in stop.pending]) == (["top"], ["low"])
    assert desk.decide(stop, {0: Approve()}).status == "completed"
    assert asked == ["top"]


# In time


def test_what_lapses_inside_may_end_the_run(desk: Firm) -> None:
    """`recover_all` finds it by the agent that was called, settles both sides, and ends the run where the tool says so."""
    desk.options = {"on_expiry": "cancel"}
    stop = desk.invoke().checkpoint
    desk.later = 2 * HOUR
    assert {item.expires_at is not None for item in stop.pending} == {True}
    [recovered] = desk.driver.call(desk.agent(), "recover_all")
    assert recovered.result.status == "cancelled"
    assert (desk.store().pending(), desk.done) == ([], SEEN)
    with pytest.raises(CheckpointAlreadyResumed):
        desk.resume(stop, decisions={stop.pending[0].id: Approve()})


def test_a_new_message_takes_the_place_of_what_waits_inside(desk: Firm) -> None:
    """Refused at first; then all that is open is settled as superseded, and the thread goes on with a valid history."""
    stop = desk.invoke(thread_id="t").checkpoint
    with pytest.raises(ThreadBusy) as busy:
        desk.invoke("and now?", thread_id="t")
    assert set(busy.value.pending_ids) == {item.id for item in stop.pending}
    result = desk.invoke("and now?", thread_id="t", on_pending="supersede")
    assert (result.status, len(result.checkpoint.pending)) == ("suspended", 2)
    told = [message.settlement for message in result.messages if message.role == "tool"]
    assert told == ["superseded", "superseded", "completed"]
    assert {item.path for item in result.checkpoint.pending} == {"1.0/1.0/1.0", "1.1/1.0/1.0"}
    assert not {item.id for item in result.checkpoint.pending} & {item.id for item in stop.pending}
    with pytest.raises(CheckpointAlreadyResumed):
        desk.resume(stop, decisions={stop.pending[0].id: Approve()})
    ended = desk.decide(result.checkpoint, {0: Approve(), 1: Approve()})
    assert (ended.status, desk.done.count("pay left 10")) == ("completed", 1)
    desk.check_histories(ended.checkpoint)


# Branches


def test_a_fork_asks_anew_at_every_depth_and_uses_what_is_settled(desk: Firm) -> None:
    stop = desk.invoke().checkpoint
    half = desk.decide(stop, {0: Approve()}).checkpoint
    ended = desk.decide(half, {0: Approve()})
    for origin, waits in ((stop, 2), (half, 1)):
        fork = desk.driver.fork(desk.agent(), origin)
        assert (len(fork.pending), fork.decisions) == (waits, ())
        assert not {item.id for item in fork.pending} & {item.id for item in stop.pending}
        again = desk.resume(fork, decisions={item.id: Approve() for item in fork.pending})
        assert (again.status, again.output) == ("completed", ended.output)
    assert desk.done == [*SEEN, "pay left 10", "pay right 10"]
    first = desk.store().history(stop.id)[0]
    assert desk.resume(desk.driver.fork(desk.agent(), first)).output == ended.output
    assert desk.done == [*SEEN, "pay left 10", "pay right 10"]


def test_what_is_to_run_anew_does_so_inside_as_well(desk: Firm) -> None:
    """From before the delegation, and from where it waits: with approvals of its own, under other keys."""
    stop = desk.invoke().checkpoint
    ended = desk.decide(stop, {0: Approve(), 1: Approve()})
    assert ended.status == "completed"
    once = len(desk.lines)
    first = desk.store().history(stop.id)[0]
    fresh = desk.driver.fork(desk.agent(), first, rerun=True)
    again = desk.resume(fresh).checkpoint
    assert len(again.pending) == 2
    assert desk.decide(again, {0: Approve(), 1: Approve()}).status == "completed"
    assert desk.done == sorted([*SEEN, "pay left 10", "pay right 10"] * 2)
    waits = desk.driver.fork(desk.agent(), stop, rerun=True)
    assert desk.decide(waits, {0: Approve(), 1: Approve()}).status == "completed"
    assert len(desk.lines) == 2 * once + 2
    assert len({line.rpartition(" ")[2] for line in desk.lines}) == len(desk.lines)


def test_back_to_a_checkpoint_where_runs_wait_inside(desk: Firm) -> None:
    """A label keeps it; going back asks again, under new ids, and does not do again what was done."""
    stop = desk.invoke(thread_id="t").checkpoint
    kept = desk.driver.call(desk.agent(), "checkpoint", stop, label="before")
    assert (kept.label, [item.id for item in kept.pending]) == ("before", [item.id for item in stop.pending])
    half = desk.decide(kept, {0: Approve()}).checkpoint
    assert desk.decide(half, {0: Reject()}).status == "completed"
    back = desk.driver.call(desk.agent(), "restore", kept.id)
    assert (len(back.pending), back.thread_id) == (2, "t")
    result = desk.decide(back, {0: Approve(), 1: Approve()})
    assert result.output == "saw left & paid left 10 & saw right & paid right 10 & saw root"
    assert desk.done == [*SEEN, "pay left 10", "pay right 10"]


# Drift


class Job(TypedDict, total=False):
    text: str


def begins(input: str) -> Job:
    return {"text": input}


def firm_of(desk: Firm, *, clerk: str = "clerk", gate: Any = True, tools: bool = True, lead: str = "lead") -> Any:
    """A firm of three in which something is other than it was."""

    def draw(store: Store | None) -> Agent[Any, Any]:
        pay, look = tools_of(desk.driver, desk.effect, requires_approval=gate)
        works = passing([call("pay", {"who": "x"})])
        low: Any = Agent(name=clerk, model=works, tools=[pay] if tools else [look])
        middle: Any = Agent(name=lead, model=passing(call("clerk", {"input": "x"})), tools=[low.as_tool("clerk")])
        return Agent(
            name="top", model=passing(call("lead", {"input": "x"})), tools=[middle.as_tool("lead")], store=store
        )

    return draw


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"clerk": "other"}, r"at 1\.0/1\.0 the agent was 'clerk' and is 'other'"),
        ({"lead": "other"}, r"at 1\.0 the agent was 'lead' and is 'other'"),
        ({"gate": False}, r"the gate of tool 'pay' was loosened"),
        ({"tools": False}, r"tool 'pay' of a pending call is gone"),
    ],
    ids=str,
)
def test_what_has_changed_inside_is_judged_before_anything_is_consumed(
    desk: Firm, changes: dict[str, Any], why: str
) -> None:
    desk.draw = firm_of(desk)
    stop = desk.invoke().checkpoint
    before = desk.place.text()
    desk.draw = firm_of(desk, **changes)
    agent = desk.draw(desk.place.open())
    with pytest.raises(AgentChanged, match=why):
        desk.driver.resume(agent, stop, approved=True)
    assert agent.drift(stop).changed
    assert (desk.place.text(), desk.done) == (before, [])
    if changes.get("tools", True):
        assert desk.driver.resume(agent, stop, approved=True, accept_changes=True).status == "completed"
        assert desk.done == ["pay x 10"]


@pytest.mark.parametrize("instead", ["gone", "plain", "graph"])
def test_a_delegation_that_is_none_any_more_is_a_change(desk: Firm, instead: str) -> None:
    """The run inside has nobody to go on with; a function of the same name does not take it over."""
    desk.draw = firm_of(desk)
    stop = desk.invoke().checkpoint
    before = desk.place.text()

    def lead(input: str) -> str:
        """Take over."""
        raise AssertionError("it is no run")

    graph: Any = StateGraph(Job, name="lead").add_node("work", lambda state: {}).add_edge(START, "work")
    as_graph = graph.add_edge("work", END).compile().as_tool(input=begins)
    tools = {"plain": [tool(lead)], "graph": [as_graph], "gone": []}[instead]
    agent: Any = Agent(name="top", model=passing(call("lead", {"input": "x"})), tools=tools, store=desk.place.open())
    with pytest.raises(AgentChanged, match="lead"):
        desk.driver.resume(agent, stop, approved=True)
    with pytest.raises(CheckpointError):
        desk.driver.resume(agent, stop, approved=True, accept_changes=True)
    assert (desk.place.text(), desk.done) == (before, [])
    assert desk.driver.cancel(agent, stop).status == "cancelled"


# Looking


def test_a_breakpoint_inside_stops_the_run_where_an_agent_is_named(desk: Firm) -> None:
    """Among three agents, before what one of them does; to let it go on there is not to approve of anything."""
    desk.draw = ladder(desk)
    with pytest.raises(ConfigurationError, match="no agents named nobody"):
        desk.invoke(breakpoints=[Breakpoint("pre_model_call", agents=["nobody"])])
    stops = [Breakpoint("pre_model_call", agents=["low", "middle"])]
    result = desk.invoke(breakpoints=stops)
    seen = []
    while breaks := [item for item in result.checkpoint.pending if item.why == "breakpoint"]:
        seen.append((breaks[0].path, breaks[0].agent, breaks[0].point))
        result = desk.resume(posted(result.checkpoint), decisions={breaks[0].id: Approve()}, breakpoints=stops)
        assert desk.done == []
    low, middle = ("1.0/1.0", "low", "pre_model_call"), ("1.0", "middle", "pre_model_call")
    assert seen == [middle, low]
    assert [item.why for item in result.checkpoint.pending] == ["approval"] * 3
    assert desk.decide(result.checkpoint, dict.fromkeys(range(3), Approve())).status == "completed"
    assert desk.done == [f"pay {who} 10" for who in LADDER]


def test_a_call_may_wait_at_a_breakpoint_inside(desk: Firm) -> None:
    desk.draw = ladder(desk, requires_approval=False)
    hits: list[tuple[str, str]] = []

    def on_breakpoint(hit: Any) -> Any:
        hits.append((hit.path, hit.agent))
        return Approve()

    hold = Hold(on_breakpoint=on_breakpoint)
    result = desk.invoke(breakpoints=[Breakpoint("post_run", agents=["low"])], hold=hold)
    assert (result.status, hits) == ("completed", [("1.0/1.0", "low")])


# Text, and who may bring it


def test_the_text_of_a_checkpoint_holds_all_that_waits_inside(desk: Firm) -> None:
    """Anybody's text is judged; a store that was set up takes none that it does not know, unless it trusts the bearer."""
    stop = desk.driver.invoke(desk.draw(None), "go").checkpoint
    text = stop.model_dump_json()
    assert validate_checkpoint(text) == []
    assert sorted(part.path for part in stop.nested) == sorted(
        path for n in (0, 1) for path in (f"1.{n}", f"1.{n}/1.0", f"1.{n}/1.0/1.0")
    )
    assert validate_checkpoint(text.replace('"pay"', '"wire"', 1))
    with pytest.raises(CheckpointUntrusted):
        desk.resume(posted(stop), approved=True)
    with pytest.raises(CheckpointError):
        Checkpoint.model_validate_json(text.replace("left", "lefT", 1))

    def draw(store: Store | None) -> Agent[Any, Any]:
        agent = firm(desk.driver, desk.effect, None)
        agent.store, agent._bearer = store or agent.store, True
        return agent

    desk.draw = draw
    result = desk.decide(posted(stop), {0: Approve(), 1: Reject()})
    assert (result.status, desk.done) == ("completed", [*SEEN, "pay left 10"])


def edited(stop: Checkpoint, what: str) -> Checkpoint:
    """A text that is whole by itself, put together by whoever brings it."""
    if what == "shown":  # what waits is shown with other arguments than it stands with
        call, item = stop.calls[0], stop.pending[0]
        args: Any = canonical({"who": "a good cause", "amount": 1})
        other = item.evolve(args=args, digest=call_digest(item.tool, args))
        stop = stop.evolve(calls=(call.evolve(waiting=(other,)), *stop.calls[1:]))
    elif what == "of another run":
        stop = stop.evolve(nested=tuple(part.evolve(run_id="run_other") for part in stop.nested))
    else:
        stop = stop.evolve(nested=tuple(part.evolve(path=part.path.replace("1.0", "")) for part in stop.nested))
    return posted(stop)


@pytest.mark.parametrize("what", ["shown", "of another run", "elsewhere"])
def test_a_text_that_was_put_together_is_refused_and_nothing_taken_in(desk: Firm, what: str) -> None:
    """Even of a bearer: what is shown for a run inside is what stands in it, and it is a run of this one."""
    stop = edited(desk.driver.invoke(desk.draw(None), "go").checkpoint, what)
    HOMES.forget()  # it is brought to another process
    agent = desk.draw(None)
    with pytest.raises(CheckpointError):
        desk.driver.resume(agent, stop, decisions={stop.pending[0].id: Approve()})
    assert (agent.store.branches(), desk.done) == ([], SEEN)


# Killed


@pytest.mark.parametrize("how", ["die", "die-idempotent"])
def test_a_worker_that_is_killed_in_the_middle_of_a_tool_inside(desk: Firm, how: str) -> None:
    """Nobody knows whether it paid, so a human is asked, at the root, about the call at its path; where it may, it pays with the
    same key."""
    desk.options = {"idempotent": how == "die-idempotent"}
    stop = desk.invoke().checkpoint
    desk.place.close()
    program = [sys.executable, nested_scenes.__file__, str(desk.driver), desk.place.url, str(desk.place.folder)]
    killed = subprocess.run(
        [*program, how, stop.id, stop.pending[0].id], check=False, capture_output=True, cwd=HERE.parent
    )
    assert killed.returncode == -9, killed.stderr
    assert desk.done == [*SEEN, "pay left 10"]
    desk.later = HOUR / 2
    recovered = desk.recover(stop).checkpoint
    waits = {item.args["who"]: (item.why, item.path, item.agent) for item in recovered.pending}
    asked = {"right": ("approval", "1.1/1.0/1.0", "clerk")}
    if how == "die-idempotent":
        assert waits == asked
        assert len(desk.lines) == 5
        assert desk.lines[3] == desk.lines[4]
        result = desk.decide(recovered, {0: Approve()})
        assert result.status == "completed"
        return
    assert waits == {"left": ("outcome_unknown", "1.0/1.0/1.0", "clerk"), **asked}
    answers = [Respond(content="it was paid"), Approve()]
    result = desk.decide(posted(recovered), dict(enumerate(answers)))
    assert result.output == "saw left & it was paid & saw right & paid right 10 & saw root"
    assert desk.done == [*SEEN, "pay left 10", "pay right 10"]


@pytest.mark.usefixtures("fresh_fork_server")
@pytest.mark.few(1)
def test_a_worker_killed_at_any_write_loses_nothing_inside(driver: Driver, tmp_path: Path) -> None:
    """Two runs inside, side by side with a payment; whoever recovers is killed as well."""
    url = f"sqlite:///{tmp_path}/runs.db?synchronous=normal"
    scenario = partial(nested_scenes.delegated, driver=str(driver))
    report = sweep(scenario, store=url, every=scaled(16, sweep=4), deaths=scaled(1, sweep=2))
    assert report.kills >= report.places // scaled(16, sweep=4)
    assert report.places >= 48
    assert BOTH
