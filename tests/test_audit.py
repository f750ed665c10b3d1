"""The audit trail: who decided what, when, through which channel, why, and the digests of what was shown and of what ran."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE, STORES, Driver, open_kind
from places import Place
from pydantic import BaseModel
from stop_scenes import Case, elsewhere, holding, works

from phronomy import Agent, AuditRecord, Breakpoint, Hold, Principal, Skip, tool
from phronomy.errors import CheckpointAlreadyResumed, InvalidDecision
from phronomy.graph import END, START, StateGraph
from phronomy.records.decisions import Approve, Reject, Respond, ToolIdentity, call_digest
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, AuditRow
from phronomy.testing import ScriptedModel, call, say


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_kind(request.param, tmp_path)


def desk(driver: Driver, store: Store, *replies: Any, **options: Any) -> Agent[Any, str]:
    def refund(order: int, card: str = "") -> str:
        """Refund an order."""
        return f"refunded {order}"

    gated = tool(requires_approval=True, risk="money", redact=["card"])(driver.function(refund))
    return Agent(name="desk", model=ScriptedModel([*replies]), tools=[gated], store=store, **options)


def refund(order: int, **args: Any) -> Any:
    return call("refund", {"order": order, **args}, id=f"call_{order}")


def test_a_decision_leaves_a_line_with_who_when_how_and_what_was_shown(driver: Driver, store: Store) -> None:
    agent = desk(driver, store, say("", refund(1042)), "Done.")
    suspended = driver.invoke(agent, "Refund 1042", thread_id="t-1")
    (asked,) = suspended.checkpoint.pending
    assert list(store.audit()) == []
    alice = Principal(id="u-7", name="Alice")
    driver.resume(agent, suspended.checkpoint, approved=True, by=alice, channel="slack")
    (line,) = store.audit()
    assert line == AuditRecord(
        at=line.at,
        kind="approve",
        by=alice,
        channel="slack",
        run_id=suspended.run_id,
        thread_id="t-1",
        branch_id=suspended.run_id,
        checkpoint_id=suspended.checkpoint.id,
        agent="desk",
        pending_id=asked.id,
        tool_name="refund",
        why="approval",
        digest=asked.digest,
        ran_digest=asked.digest,
    )


def test_each_kind_of_decision_is_told_apart(driver: Driver, store: Store) -> None:
    agent = desk(driver, store, say("", refund(1), refund(2), refund(3), refund(4)), "Done.")
    suspended = driver.invoke(agent, "Refund them")
    ids = [item.id for item in suspended.checkpoint.pending]
    decisions = {
        ids[0]: Approve(args={"order": 11}),
        ids[1]: Reject(reason="not ours"),
        ids[2]: Respond(content="it was refunded"),
        ids[3]: Approve(),
    }
    driver.resume(agent, suspended.checkpoint, decisions=decisions, by="bob")
    lines = [(line.pending_id, line.kind, line.edited, line.reason) for line in store.audit()]
    assert lines == [
        (ids[0], "approve", True, None),
        (ids[1], "reject", False, "not ours"),
        (ids[2], "respond", False, None),
        (ids[3], "approve", False, None),
    ]


def test_a_decision_that_lost_leaves_no_line(driver: Driver, store: Store) -> None:
    agent = desk(driver, store, say("", refund(1)), "Done.")
    suspended = driver.invoke(agent, "Refund 1")
    driver.resume(agent, suspended.checkpoint, approved=False, by="alice")
    with pytest.raises(CheckpointAlreadyResumed):
        driver.resume(agent, suspended.checkpoint, approved=True, by="mallory")
    assert [line.by.id for line in store.audit() if line.by is not None] == ["alice"]


def test_whoever_cancels_or_supersedes_is_in_it(driver: Driver, store: Store) -> None:
    agent = desk(driver, store, say("", refund(1)), say("", refund(2)), "Hello.")
    first = driver.invoke(agent, "Refund 1", thread_id="t-1")
    driver.cancel(agent, first.checkpoint, by="alice", reason="a mistake")
    driver.invoke(agent, "Refund 2", thread_id="t-1")
    driver.invoke(agent, "Never mind", thread_id="t-1", on_pending="supersede")
    lines = list(store.audit())
    assert [(line.kind, line.reason) for line in lines] == [("cancel", "a mistake"), ("supersede", None)]
    assert lines[0].by == Principal(id="alice") and lines[0].pending_id is None


def test_whoever_forks_or_goes_back_is_in_it(driver: Driver, store: Store) -> None:
    """With the checkpoint and the new branch, in the same write as the branch; also when all of it is deleted."""
    agent = desk(driver, store, say("", refund(1)), "Done.")
    asked = driver.invoke(agent, "Refund 1", thread_id="t-1").checkpoint
    with pytest.raises(InvalidDecision):
        driver.fork(agent, asked, by="")
    assert len(store.branches()) == 1 and list(store.audit()) == []
    rita = Principal(id="rita", claims={"token": "hush"}, roles=("lead",))
    forks = [driver.fork(agent, asked, by=rita, label="what if"), store.fork(asked.id, by="bot"), agent.fork(asked)]
    for each in (*forks, asked):
        driver.cancel(agent, each, by="otto")
    with pytest.raises(InvalidDecision):
        driver.call(agent, "restore", asked, by=7)
    back = driver.call(agent, "restore", asked, by="ada")
    lines = [line for line in store.audit(run_id=asked.run_id) if line.kind != "cancel"]
    assert [(line.kind, line.by, line.branch_id) for line in lines] == [
        ("fork", Principal(id="rita", roles=("lead",)), forks[0].branch_id),
        ("fork", Principal(id="bot"), forks[1].branch_id),
        ("fork", None, forks[2].branch_id),
        ("restore", Principal(id="ada"), back.branch_id),
    ]
    assert {(line.checkpoint_id, line.thread_id, line.agent, line.edited) for line in lines} == {
        (asked.id, "t-1", "desk", False)
    }
    assert "hush" not in lines[0].model_dump_json()
    driver.cancel(agent, back)
    assert store.delete(asked.run_id) and [each for each in store.audit() if each.kind != "cancel"] == lines


def test_a_fork_that_changes_the_state_of_a_graph_says_so(driver: Driver, store: Store) -> None:
    def pay(state: Case) -> dict[str, Any]:
        return {"log": ["paid"]}

    graph = StateGraph(Case, name="office").add_node("pay", driver.function(pay)).add_edge(START, "pay")
    flow = graph.add_edge("pay", END).compile(store=store, interrupt_before=["pay"])
    at = driver.invoke(flow, {"n": 1}).checkpoint
    driver.fork(flow, at, by="rita", update={"n": 2})
    driver.fork(flow, at, by="rita")
    assert [(line.kind, line.edited) for line in store.audit()] == [("fork", True), ("fork", False)]


def test_a_handler_is_in_it_too(driver: Driver, store: Store) -> None:
    handler = driver.function(lambda name, args: True)
    agent = desk(driver, store, say("", refund(1)), "Done.", on_approval_required=handler)
    driver.invoke(agent, "Refund 1")
    (line,) = store.audit()
    assert (line.kind, line.channel, line.tool_name) == ("approve", "handler", "refund")


def test_it_is_read_by_run_thread_pending_and_time_and_exported_as_json_lines(driver: Driver, store: Store) -> None:
    agent = desk(driver, store, say("", refund(1)), "Done.", say("", refund(2)), "Done.")
    runs = []
    for thread in ("a", "b"):
        suspended = driver.invoke(agent, "Refund", thread_id=thread)
        runs.append(suspended)
        driver.resume(agent, suspended.checkpoint, approved=True)
    everything = list(store.audit())
    assert [line.run_id for line in everything] == [run.run_id for run in runs]
    assert list(store.audit(run_id=runs[1].run_id)) == everything[1:]
    assert list(store.audit(thread_id="a")) == everything[:1]
    assert list(store.audit(pending_id=runs[1].checkpoint.pending[0].id)) == everything[1:]
    assert list(store.audit(since=everything[1].at.timestamp())) == everything[1:]
    assert list(store.audit(until=everything[0].at.timestamp())) == everything[:1]
    lines = [line.model_dump_json() for line in everything]
    assert [AuditRecord.model_validate_json(line) for line in lines] == everything
    assert all(json.loads(line)["version"] == 1 for line in lines)


def test_it_stays_when_the_run_is_taken_away(driver: Driver, store: Store) -> None:
    agent = desk(driver, store, say("", refund(1)), "Done.")
    suspended = driver.invoke(agent, "Refund 1")
    driver.resume(agent, suspended.checkpoint, approved=True)
    before = list(store.audit())
    assert store.clear() > 0
    assert store.branches() == [] and list(store.audit()) == before != []


def test_arguments_and_results_are_not_in_it(driver: Driver, store: Store) -> None:
    agent = desk(driver, store, say("", refund(1, card="canary-4711")), "Done.")
    suspended = driver.invoke(agent, "Refund 1")
    driver.resume(agent, suspended.checkpoint, approved=True)
    (line,) = store.audit()
    assert "canary-4711" not in line.model_dump_json() + repr(line)


# What ran


class Till:
    """Pays, and notes what it was given; whoever approves, or lets a run go on, is ada."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.store = place.open()
        self.ran: list[int] = []

        def pay(n: int, to: str = "ann") -> str:
            """Pay."""
            self.ran.append(n)
            return f"paid {n}"

        def broken(n: int, to: str = "ann") -> str:
            """Try to pay."""
            raise ConnectionError("down")

        self.pay = tool(requires_approval=True)(driver.function(pay))
        self.free = tool(driver.function(pay))
        self.broken = tool(requires_approval=True, fallback=(self.pay,))(driver.function(broken))

    def agent(self, *tools: Any, name: str = "till", **options: Any) -> Agent[Any, Any]:
        """An agent that pays 7."""
        model = ScriptedModel.by_turn([call(tools[0].name, {"n": 7}), "Done."])
        return Agent(name=name, model=model, tools=list(tools), store=self.store, **options)

    def digest(self, n: int, paid_by: Any = None, path: str = "") -> str:
        """The digest of a payment, made of nothing but what ran: the tool and its arguments."""
        return call_digest(
            (paid_by or self.pay).identity(path), json.dumps({"n": n, "to": "ann"}, separators=(",", ":"))
        )

    def decided(self, agent: Any, at: Any, answer: Any, **options: Any) -> Any:
        """The run, gone on with this answer to what waits."""
        [item] = at.checkpoint.pending
        return self.driver.resume(agent, at.checkpoint, decisions={item.id: answer}, by="ada", **options)


def by_resume(till: Till) -> str:
    agent = till.agent(till.pay)
    till.decided(agent, till.driver.invoke(agent, "go"), Approve(args={"n": 5}))
    return till.digest(5)


def by_step(till: Till) -> str:
    agent = till.agent(till.pay)
    at = till.driver.invoke(agent, "go").checkpoint
    at = till.driver.step(agent, at, decisions={at.pending[0].id: Approve(args={"n": 5})}, by="ada").checkpoint
    till.driver.resume(agent, at)
    return till.digest(5)


def by_a_handler(till: Till) -> str:
    handler = till.driver.function(lambda name, args: Approve(args={"n": 5}))
    till.driver.invoke(till.agent(till.pay, on_approval_required=handler), "go")
    return till.digest(5)


def by_a_hold(till: Till) -> str:
    agent = till.agent(till.free)
    hold, arrivals = holding()
    with elsewhere(lambda: till.driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")], hold=hold)) as waits:
        till.driver.call(hold, "resume_breakpoint", arrivals.next().id, args={"n": 5}, by="ada")
        waits.result(PATIENCE)
    return till.digest(5, till.free)


def by_whoever_is_told_of_a_hold(till: Till) -> str:
    hold = Hold(on_breakpoint=till.driver.function(lambda hit: Approve(args={"n": 5})))
    till.driver.invoke(till.agent(till.free), "go", breakpoints=[Breakpoint("tool")], hold=hold)
    return till.digest(5, till.free)


def by_another_process_while_a_worker_holds_it(till: Till) -> str:
    agent = till.agent(till.free)
    hold, arrivals = holding()
    with elsewhere(lambda: till.driver.invoke(agent, "go", breakpoints=[Breakpoint("tool")], hold=hold)) as waits:
        hit = arrivals.next()
        answer = {hit.id: Approve(args={"n": 5})}
        assert till.driver.resume(agent, hit.checkpoint_id, decisions=answer, by="ada").status == "running"
        waits.result(PATIENCE)
    return till.digest(5, till.free)


def by_whoever_decides_on_a_run_inside(till: Till) -> str:
    front = Agent(
        name="front",
        model=ScriptedModel.by_turn([call("till", {"input": "go"}), "Over."]),
        tools=[till.agent(till.pay).as_tool()],
        store=till.store,
    )
    till.decided(front, till.driver.invoke(front, "go"), Approve(args={"n": 5}))
    return till.digest(5, path="1.0")


def by_whoever_approves_of_a_fallback(till: Till) -> str:
    """What was edited for one tool is shown again for the other: each line has what that decision let run."""
    agent = till.agent(till.broken)
    at = till.decided(agent, till.driver.invoke(agent, "go"), Approve(args={"n": 5}))
    [first] = till.store.audit()
    assert (first.tool_name, first.ran_digest) == ("broken", till.digest(5, till.broken))
    till.decided(agent, at, Approve())
    return till.digest(5)


def by_whoever_edits_at_a_breakpoint_what_then_needs_an_approval(till: Till) -> str:
    handler = till.driver.function(lambda name, args: True)
    agent = till.agent(till.pay, on_approval_required=handler)
    stop = [Breakpoint("tool")]
    at = till.driver.invoke(agent, "go", breakpoints=stop)
    till.decided(agent, at, Approve(args={"n": 5}), breakpoints=stop)
    looked, approved = till.store.audit()
    assert [(each.why, each.edited, each.channel) for each in (looked, approved)] == [
        ("breakpoint", True, None),
        ("approval", False, "handler"),
    ]
    assert looked.ran_digest == approved.digest == approved.ran_digest
    return till.digest(5)


DOORS = [
    by_resume,
    by_step,
    by_a_handler,
    by_a_hold,
    by_whoever_is_told_of_a_hold,
    by_another_process_while_a_worker_holds_it,
    by_whoever_decides_on_a_run_inside,
    by_whoever_approves_of_a_fallback,
    by_whoever_edits_at_a_breakpoint_what_then_needs_an_approval,
]


@pytest.mark.parametrize("door", DOORS, ids=[door.__name__ for door in DOORS])
def test_the_trail_alone_ties_what_ran_to_whoever_let_it(driver: Driver, place: Place, door: Any) -> None:
    till = Till(driver, place)
    ran = door(till)
    assert till.ran == [5]
    assert till.store.clear() > 0
    (*_, last) = till.store.audit()
    assert (last.kind, last.ran_digest) == ("approve", ran)
    assert any(line.edited and line.digest != line.ran_digest for line in till.store.audit())


def test_what_was_not_edited_ran_as_it_was_shown_and_what_did_not_run_has_no_digest_of_it(
    driver: Driver, place: Place
) -> None:
    till = Till(driver, place)
    agent = till.agent(till.pay)
    for answer in (Approve(), Reject()):
        till.decided(agent, driver.invoke(agent, "go"), answer)
    stop = [Breakpoint("tool")]
    free = till.agent(till.free)
    till.decided(free, driver.invoke(free, "go", breakpoints=stop), Skip(), breakpoints=stop)
    driver.cancel(agent, driver.invoke(agent, "go").checkpoint)
    shown = till.digest(7)
    assert [(line.kind, line.why, line.digest, line.ran_digest) for line in till.store.audit()] == [
        ("approve", "approval", shown, shown),
        ("reject", "approval", shown, None),
        ("skip", "breakpoint", till.digest(7, till.free), None),
        ("cancel", None, None, None),
    ]
    assert all(line.content_digest is None for line in till.store.audit())


@pytest.mark.parametrize("content", ["in cash", {"paid": 5, "by": "hand"}, None])
def test_an_answer_in_place_of_a_tool_leaves_the_digest_of_what_was_answered(
    driver: Driver, place: Place, content: Any
) -> None:
    till = Till(driver, place)
    agent = till.agent(till.pay)
    till.decided(agent, driver.invoke(agent, "go"), Respond(content=content))
    till.store.clear()
    (line,) = till.store.audit()
    text = json.dumps(content, separators=(",", ":"))
    told = hashlib.sha256(f"{len(text)}:{text}".encode()).hexdigest()
    assert (line.kind, line.by, line.ran_digest, line.content_digest) == ("respond", Principal(id="ada"), None, told)
    assert "cash" not in line.model_dump_json() and "hand" not in line.model_dump_json()


def test_an_input_that_was_edited_leaves_the_digest_of_what_the_run_went_on_with(driver: Driver, place: Place) -> None:
    till = Till(driver, place)
    agent = till.agent(till.free)
    stop = [Breakpoint("pre_agent_run")]
    for answer in (Approve(), Approve(args={"input": "stop"})):
        till.decided(agent, driver.invoke(agent, "go", breakpoints=stop), answer, breakpoints=stop)
    plain, edited = till.store.audit()
    assert (plain.edited, plain.ran_digest, edited.edited, edited.digest) == (False, plain.digest, True, plain.digest)
    gate = ToolIdentity(source="breakpoint", name="pre_agent_run", schema_hash="", gate="never")
    assert (plain.digest, edited.ran_digest) == (
        call_digest(gate, '{"input":"go"}'),
        call_digest(gate, '{"input":"stop"}'),
    )


def test_a_state_that_was_edited_leaves_its_digest(driver: Driver, place: Place) -> None:
    graph = works(store=place.open(), breakpoints=[Breakpoint("pre_node", nodes=["b"])])
    stands = driver.invoke(graph, {"n": 1})
    driver.resume(graph, stands.checkpoint, update={"n": 2}, by="ada")
    lines = {line.kind: line for line in graph.store.audit()}
    text = json.dumps({"n": 2, "log": ["a 1"]}, separators=(",", ":"))
    assert lines["edit"].digest == hashlib.sha256(f"{len(text)}:{text}".encode()).hexdigest()
    assert (lines["edit"].by, lines["approve"].why) == (Principal(id="ada"), "breakpoint")


def test_a_node_whose_state_was_edited_ran_with_what_the_trail_says(driver: Driver, place: Place) -> None:
    store, ran = place.open(), list[int]()

    def pay(state: Case) -> dict[str, Any]:
        ran.append(state.n)
        return {"log": ["paid"]}

    graph = (
        StateGraph(Case, name="office")
        .add_node("pay", driver.function(pay), requires_approval=True)
        .add_edge(START, "pay")
        .add_edge("pay", END)
        .compile(store=store)
    )
    stands = driver.invoke(graph, {"n": 1})
    [item] = stands.checkpoint.pending
    edited = {"state": {"n": 2, "log": []}}
    driver.resume(graph, stands.checkpoint, decisions={item.id: Approve(args=edited)}, by="ada")
    (line,) = store.audit()
    assert (ran, line.digest) == ([2], item.digest)
    assert line.ran_digest == call_digest(item.tool, json.dumps(edited, separators=(",", ":")))


def test_a_line_from_before_there_were_these_digests_is_read(place: Place) -> None:
    store = place.open()
    agent = Agent(name="desk", model=ScriptedModel(["Done."]), store=store)
    done = agent.invoke("go").checkpoint
    old = {
        "version": 1,
        "at": "2026-11-21T09:00:00Z",
        "kind": "approve",
        "run_id": done.run_id,
        "branch_id": done.run_id,
        "checkpoint_id": done.id,
        "agent": "desk",
        "path": "",
        "pending_id": "pend_1",
        "tool_name": "refund",
        "digest": "d" * 64,
        "edited": True,
    }
    branch = store.branches()[0]
    row = AuditRow(at=1.0, run_id=done.run_id, thread_id=None, pending_id="pend_1", body=json.dumps(old))
    store.append(Append(branch_id=branch.id, seq=branch.seq, take="me", release=True, audit=(row,)))
    (line,) = place.open().audit()
    assert (line.digest, line.edited, line.why, line.ran_digest, line.content_digest) == (
        "d" * 64,
        True,
        None,
        None,
        None,
    )


# Whose call it was


def inside(till: Till, *tools: Any, front: Any = None, **options: Any) -> Agent[Any, Any]:
    """An agent at the front, with the till as its tool."""
    return Agent(
        name="front",
        model=ScriptedModel.by_turn([call("till", {"input": "go"}), "Over."]),
        tools=[till.agent(*(tools or [till.pay]), **options).as_tool()],
        store=till.store,
        **(front or {}),
    )


def a_human(till: Till) -> None:
    agent = inside(till)
    till.decided(agent, till.driver.invoke(agent, "go"), Approve())


def a_human_by_the_id_alone(till: Till) -> None:
    agent = inside(till)
    till.driver.call(agent, "decide", till.driver.invoke(agent, "go").checkpoint.pending[0].id, Reject())


def a_human_who_approves_of_all(till: Till) -> None:
    agent = inside(till)
    till.driver.call(agent, "approve_all", till.driver.invoke(agent, "go").checkpoint)


def a_human_at_a_breakpoint(till: Till) -> None:
    agent, stop = inside(till, till.free), [Breakpoint("tool", tools=["pay"])]
    till.decided(agent, till.driver.invoke(agent, "go", breakpoints=stop), Approve(args={"n": 5}), breakpoints=stop)


def a_human_while_a_worker_holds_it(till: Till) -> None:
    agent = inside(till, till.free)
    hold, arrivals = holding()
    stop = [Breakpoint("tool", tools=["pay"])]
    with elsewhere(lambda: till.driver.invoke(agent, "go", breakpoints=stop, hold=hold)) as waits:
        hit = arrivals.next()
        till.driver.resume(agent, hit.checkpoint_id, decisions={hit.id: Approve()}, by="ada")
        waits.result(PATIENCE)


def a_hold(till: Till) -> None:
    hold = Hold(on_breakpoint=till.driver.function(lambda hit: Approve()))
    stop = [Breakpoint("tool", tools=["pay"])]
    till.driver.invoke(inside(till, till.free), "go", breakpoints=stop, hold=hold)


def the_handler_of_the_agent(till: Till) -> None:
    handler = till.driver.function(lambda name, args: True)
    till.driver.invoke(inside(till, on_approval_required=handler), "go")


def the_handler_of_a_policy_around_it(till: Till) -> None:
    handler = till.driver.function(lambda name, args: True)
    front = {"approval_policy": ["pay"], "on_approval_required": handler}
    till.driver.invoke(inside(till, till.free, front=front), "go")


def a_human_for_a_policy_around_it(till: Till) -> None:
    agent = inside(till, till.free, front={"approval_policy": ["pay"]})
    till.decided(agent, till.driver.invoke(agent, "go"), Approve())


def a_predicate_that_a_human_answers(till: Till) -> None:
    def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    agent = inside(till, tool(requires_approval=lambda args: True)(till.driver.function(pay)))
    till.decided(agent, till.driver.invoke(agent, "go"), Respond(content="in cash"))


def nobody_in_time(till: Till) -> None:
    agent = inside(till, approval_timeout=60)
    at = till.driver.invoke(agent, "go").checkpoint
    till.store.clock = lambda: at.created_at.timestamp() + 61  # type: ignore[method-assign]
    till.driver.call(agent, "recover_all")


def whoever_ends_the_run_by_it(till: Till) -> None:
    agent = inside(till)
    till.decided(agent, till.driver.invoke(agent, "go"), Reject(then="end"))


def a_human_after_a_handoff(till: Till) -> None:
    agent = handing(till)
    till.decided(agent, till.driver.invoke(agent, "go"), Approve())


def a_handler_after_a_handoff(till: Till) -> None:
    till.driver.invoke(handing(till, on_approval_required=till.driver.function(lambda name, args: True)), "go")


def handing(till: Till, **options: Any) -> Agent[Any, Any]:
    """An agent at the front that hands the conversation to the till."""
    model = ScriptedModel.by_turn([call("transfer_to_till"), "Over."])
    till_agent = Agent[Any, Any](
        name="till",
        model=ScriptedModel([call("pay", {"n": 7}), "Done."]),
        tools=[till.pay],
        store=till.store,
        **options,
    )
    return Agent(name="front", model=model, handoffs=[till_agent], store=till.store)


DECIDERS = [
    a_human,
    a_human_by_the_id_alone,
    a_human_who_approves_of_all,
    a_human_at_a_breakpoint,
    a_human_while_a_worker_holds_it,
    a_hold,
    the_handler_of_the_agent,
    the_handler_of_a_policy_around_it,
    a_human_for_a_policy_around_it,
    a_predicate_that_a_human_answers,
    nobody_in_time,
    whoever_ends_the_run_by_it,
    a_human_after_a_handoff,
    a_handler_after_a_handoff,
]


@pytest.mark.parametrize("decides", DECIDERS, ids=[each.__name__ for each in DECIDERS])
def test_whoever_decides_the_agent_is_the_one_whose_call_it_is(driver: Driver, place: Place, decides: Any) -> None:
    till = Till(driver, place)
    decides(till)
    (line,) = till.store.audit()
    path = "" if "handoff" in decides.__name__ else "1.0"
    assert (line.tool_name, line.agent, line.path) == ("pay", "till", path)


def test_an_edit_is_of_the_graph_whose_state_it_is_and_an_end_of_the_whole_run(driver: Driver, place: Place) -> None:
    class Said(BaseModel):
        said: str = ""

    def say_so(state: Said) -> dict[str, str]:
        return {"said": f"{state.said}!"}

    def louder(way: tuple[str, ...], state: Said) -> Said:
        return state.model_copy(update={"said": "loud"}) if way else state

    inner = StateGraph(Said, name="inner").add_node("say_so", driver.function(say_so), requires_approval=True)
    inner.add_edge(START, "say_so").add_edge("say_so", END)
    outer = StateGraph(Said, name="outer").add_node("inner", inner.compile()).add_edge(START, "inner")
    graph: Any = outer.add_edge("inner", END).compile(store=place.open())
    at = driver.invoke(graph, {"said": "hello"}).checkpoint
    at = driver.resume(graph, at, decisions={at.pending[0].id: Approve()}, modify_state=louder, by="ada").checkpoint
    driver.cancel(graph, driver.invoke(graph, {"said": "hello"}).checkpoint, by="ada")
    lines = [(line.kind, line.agent, line.path) for line in graph.store.audit()]
    assert lines == [("edit", "inner", "1.0"), ("approve", "inner", "1.0"), ("cancel", "outer", "")]
