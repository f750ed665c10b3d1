"""Handoffs that wait for a human, and runs that stop behind one: decided, edited, skipped, lapsed, forked, gone on with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from drivers import Driver, outline
from handoff_scenes import KINDS, Office, kept, to, went
from stop_scenes import EVERY, stops_of

from phronomy import (
    Agent,
    AgentChanged,
    Approve,
    Breakpoint,
    BreakpointContext,
    Checkpoint,
    ConfigurationError,
    Hold,
    Hooks,
    InvalidDecision,
    MemoryStore,
    Reject,
    Respond,
    Skip,
    Store,
    tool,
)
from phronomy.testing import ScriptedModel, call

OVER = "The conversation was handed over to"
GATED = {"requires_approval": True}


@pytest.fixture(params=EVERY, ids=str)
def each(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


@pytest.fixture(params=KINDS)
def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind."""
    with kept(request.param, tmp_path) as store:
        yield store


# Approvals


@pytest.mark.parametrize("answer", ["approve", "edit", "reject", "end", "respond", "cancel"])
def test_a_gated_handoff_is_made_as_it_was_approved_or_not_at_all(
    driver: Driver, everywhere: Store, answer: str
) -> None:
    way = {**GATED, "risk": "high"}
    office = Office(everywhere, to("billing", "Paid twice."), "done", driver=driver, way=way)
    waits = office.run()
    [item] = waits.checkpoint.pending
    assert (item.tool_name, item.agent, item.args, item.why) == (
        "transfer_to_billing",
        "triage",
        {"message": "Paid twice."},
        "approval",
    )
    assert (item.tool.source, item.tool.risk, waits.checkpoint.speaker) == ("handoff:billing", "high", "triage")
    assert [row.pending_id for row in everywhere.pending_rows()] == [item.id]
    answers: dict[str, Any] = {
        "approve": Approve(),
        "edit": Approve(args={"message": "Be kind."}),
        "reject": Reject(reason="It is late."),
        "end": Reject(then="end"),
        "respond": Respond(content="Billing has gone home."),
    }
    if answer == "cancel":
        result = driver.cancel(office.triage, waits.checkpoint, reason="no")
    else:
        result = office.resume(waits, answers[answer])
    told = {
        "approve": f"tool (completed): {OVER} billing.\nPaid twice.",
        "edit": "tool (completed): A human changed the arguments of this call to"
        f' {{"message":"Be kind."}} before it ran. Its result:\n{OVER} billing.\nBe kind.',
        "reject": "tool (rejected): A human rejected this call, so it was not run. Reason: It is late.",
        "respond": "tool (responded): Billing has gone home.",
    }
    status = {"end": "rejected", "cancel": "cancelled"}.get(answer, "completed")
    assert (result.status, went(result)) == (status, ["triage > billing"] if answer in ("approve", "edit") else [])
    assert office.asked[1:] == {"approve": ["billing"], "edit": ["billing"], "end": [], "cancel": []}.get(
        answer, ["triage"]
    )
    if answer in told:
        assert outline(result)[2] == told[answer]
    assert everywhere.load(result.checkpoint.id) == result.checkpoint
    assert everywhere.pending_rows() == []


def test_a_predicate_says_which_handoffs_wait(each: Driver) -> None:
    def asks(args: dict[str, Any]) -> bool:
        if args["message"] == "?":
            raise LookupError
        return "paid" in args["message"]

    for message, waits in (("paid", True), ("hello", False), ("?", True)):
        office = Office(
            None, to("billing", message), "done", driver=each, way={"requires_approval": each.function(asks)}
        )
        assert office.run().suspended is waits


def test_a_handoff_that_nobody_decides_lapses(driver: Driver) -> None:
    for on_expiry, status, asked in (("reject", "completed", ["triage"]), ("cancel", "cancelled", [])):
        now = [1_900_000_000.0]
        store = MemoryStore(clock=lambda: now[0])  # noqa: B023
        way = {**GATED, "approval_timeout": 60.0, "on_expiry": on_expiry}
        office = Office(store, to("billing"), "alone", driver=driver, way=way)
        waits = office.run()
        assert waits.checkpoint.pending[0].expires_at == waits.checkpoint.pending[0].requested_at + timedelta(
            seconds=60
        )
        now[0] += 61
        [done] = driver.call(office.triage, "recover_all")
        assert done.result is not None
        assert (done.result.status, went(done.result)) == (status, [])
        assert office.asked[1:] == asked


def test_how_long_a_human_has_is_said_by_the_agent_that_asks(driver: Driver) -> None:
    """And whoever drives the runs of the first agent carries on those that another has."""
    now = [1_900_000_000.0]
    store = MemoryStore(clock=lambda: now[0])
    member = {"approval_timeout": 10.0, "on_expiry": "reject"}
    replies = [to("billing"), call("refund"), "It was too late."]
    office = Office(store, *replies, driver=driver, billing=member, triage={"on_expiry": "cancel"})
    waits = office.run()
    [item] = waits.checkpoint.pending
    assert (item.agent, item.expires_at) == ("billing", item.requested_at + timedelta(seconds=10))
    now[0] += 11
    [done] = driver.call(office.triage, "recover_all")
    assert done.result is not None
    assert (done.result.output, office.asked, office.done) == (
        "It was too late.",
        ["triage", "billing", "billing"],
        [],
    )


def test_the_handler_of_whoever_asks_is_asked_or_else_that_of_the_run(driver: Driver) -> None:
    asked: list[str] = []

    def handler(who: str) -> Any:
        def decide(name: str, args: dict[str, Any]) -> bool:
            asked.append(f"{who}: {name}")
            return True

        return {"on_approval_required": driver.function(decide)}

    replies = [to("billing"), call("refund"), to("refunds"), call("refund"), "done"]
    office = Office(None, *replies, driver=driver, way=GATED, triage=handler("triage"), refunds=handler("refunds"))
    assert office.run().output == "done"
    assert asked == ["triage: transfer_to_billing", "triage: refund", "refunds: refund"]


def test_the_policy_of_the_run_and_that_of_whoever_speaks_both_ask(driver: Driver) -> None:
    home, member = {"approval_policy": ["transfer_to_refunds"]}, {"approval_policy": ["look"]}
    replies = [[to("billing"), call("look")], [to("refunds"), call("look")], [call("look"), to("triage")], "done"]
    tools = {"tools": [tool(look)]}
    office = Office(None, *replies, driver=driver, triage={**home, **tools}, billing={**member, **tools}, refunds=tools)
    waits = office.run()
    assert [(item.tool_name, item.agent) for item in waits.checkpoint.pending] == [
        ("transfer_to_refunds", "billing"),
        ("look", "billing"),
    ]
    result = office.resume(waits, Approve(), Approve())
    assert (result.output, went(result)) == ("done", ["triage > billing", "billing > refunds", "refunds > triage"])


# Breakpoints


@pytest.mark.parametrize("type", ["pre_handoff", "handoff", "*"])
def test_a_run_stops_before_a_handoff_and_nothing_behind_it_has_begun(each: Driver, store: Store, type: Any) -> None:
    """D20: on the agent that hands over, before the handoff is recorded; an edit changes what the target receives."""
    office = Office(store, to("billing", "Paid twice."), "done", driver=each)
    stop = [Breakpoint(type, label="look")]
    waits = office.run(breakpoints=stop)
    [hit] = office.triage.stopped_at(waits.checkpoint)
    assert (hit.type, hit.agent, hit.tool, hit.label, hit.before) == (
        "pre_handoff",
        "triage",
        "transfer_to_billing",
        "look",
        True,
    )
    assert (hit.args, went(waits), office.asked, waits.checkpoint.pending[0].why) == (
        {"message": "Paid twice."},
        [],
        ["triage"],
        "breakpoint",
    )
    result = office.resume(waits, Approve(args={"message": "Be kind."}), breakpoints=stop)
    assert (result.output, went(result)) == ("done", ["triage > billing"])
    assert office.model.requests[-1].messages[-1].text.endswith(f"{OVER} billing.\nBe kind.")
    assert office.resume(office.run(breakpoints=stop), breakpoints=stop).output == "done"


def test_a_handoff_that_is_skipped_is_not_recorded_and_the_target_never_runs(each: Driver, everywhere: Store) -> None:
    """DIR-A15: and D20: the agent that would have handed over is told, and goes on."""
    office = Office(everywhere, to("billing"), "alone", driver=each)
    waits = office.run(breakpoints=[Breakpoint("pre_handoff")])
    result = office.resume(waits, Skip())
    assert (result.status, result.output, went(result)) == ("completed", "alone", [])
    assert office.asked == ["triage", "triage"]
    assert outline(result)[2].startswith("tool (skipped): ")
    stored = everywhere.load(result.checkpoint.id)
    assert (stored.handoffs, stored.speaker) == ((), "triage")


def test_a_stop_before_a_handoff_is_rejected_answered_and_cancelled(each: Driver) -> None:
    for answer, status, asked in (
        (Reject(), "completed", 2),
        (Reject(then="end"), "rejected", 1),
        (Respond(content="They are out."), "completed", 2),
    ):
        office = Office(None, to("billing"), "alone", driver=each)
        result = office.resume(office.run(breakpoints=[Breakpoint("handoff")]), answer)
        assert (result.status, went(result), office.asked) == (status, [], ["triage"] * asked)
    office = Office(None, to("billing"), "alone", driver=each)
    hold = Hold(on_breakpoint=lambda hit: hold.cancel_breakpoint(hit.id, "not today"))
    result = office.run(breakpoints=[Breakpoint("handoff")], hold=hold)
    assert (result.status, went(result), office.asked) == ("cancelled", [], ["triage"])


@pytest.mark.parametrize(
    ("options", "stood"),
    [
        ({}, ["triage", "billing", "refunds"]),
        ({"agents": ["billing"]}, ["billing"]),
        ({"agents": ["triage", "refunds"]}, ["triage", "refunds"]),
        ({"tools": ["transfer_to_refunds"]}, ["billing"]),
        ({"when": "handoff[1] == 'triage'"}, ["refunds"]),
        ({"when": lambda here: here.handoff == ("billing", "refunds")}, ["billing"]),
        ({"when": "args['message'] == 'again'"}, ["refunds"]),
    ],
    ids=["any", "source", "either", "tool", "text", "function", "args"],
)
def test_which_handoffs_a_breakpoint_is_for(driver: Driver, options: dict[str, Any], stood: list[str]) -> None:
    office = Office(None, to("billing"), to("refunds"), to("triage", "again"), "done", driver=driver)
    found = []
    stops = [Breakpoint("pre_handoff", **options)]
    result = office.run(breakpoints=stops)
    while result.suspended:
        assert stops_of(result) == ["pre_handoff"]
        found += [hit.agent for hit in office.triage.stopped_at(result.checkpoint)]
        result = office.resume(result, breakpoints=stops)
    assert (found, result.output) == (stood, "done")


def test_what_a_predicate_is_told_of_a_handoff(driver: Driver) -> None:
    """D5: who hands over to whom, before it is done and before the target is asked for the first time."""
    seen: list[BreakpointContext] = []

    def look(here: BreakpointContext) -> bool:
        seen.append(here)
        return False

    office = Office(None, to("billing"), call("look"), "done", driver=driver, billing={"tools": []})
    office.run(breakpoints=[Breakpoint("*", look), Breakpoint("pre_model_call", look)])
    assert [(here.type, here.agent, here.handoff, here.tool) for here in seen] == [
        ("pre_model_call", "triage", None, None),
        ("pre_handoff", "triage", ("triage", "billing"), "transfer_to_billing"),
        ("pre_model_call", "billing", ("triage", "billing"), None),
        ("pre_model_call", "billing", None, None),
    ]


def test_breakpoints_of_a_member_and_of_the_run_both_count(driver: Driver) -> None:
    """And those of an agent that hands nothing over, or to nobody of that name, are refused."""
    home = {"breakpoints": [Breakpoint("pre_handoff", agents=["billing"])]}
    member = {"breakpoints": [Breakpoint("pre_model_call"), Breakpoint("handoff", label="mine")]}
    office = Office(None, to("billing"), to("refunds"), "done", driver=driver, triage=home, billing=member)
    result, stood = office.run(), []
    while result.suspended:
        stood += [(item.point, item.agent, item.label) for item in result.checkpoint.pending]
        result = office.resume(result)
    assert stood == [("pre_model_call", "billing", None), ("pre_handoff", "billing", None)]
    alone = Agent(name="alone", model=ScriptedModel([]))
    for type in ("pre_handoff", "handoff"):
        with pytest.raises(ConfigurationError, match="no run of 'alone' ever comes to"):
            driver.invoke(alone, "go", breakpoints=[Breakpoint(type)])
    with pytest.raises(ConfigurationError, match="has no agents named nobody"):
        office.run(breakpoints=[Breakpoint("pre_handoff", agents=["nobody"])])


def test_a_gated_handoff_stops_first_and_the_handler_is_asked_once_it_is_let_go(driver: Driver) -> None:
    asked: list[str] = []

    def handler(name: str, args: dict[str, Any]) -> bool:
        asked.append(name)
        return True

    answers = {"on_approval_required": driver.function(handler)}
    for stop in (Breakpoint("approval", tools=["transfer_to_billing"]), Breakpoint("handoff"), Breakpoint("*")):
        office = Office(None, to("billing"), "done", driver=driver, way=GATED, triage=answers)
        waits = office.run(breakpoints=[stop])
        assert [(item.why, item.point) for item in waits.checkpoint.pending] == [("breakpoint", "pre_handoff")]
        assert (went(office.resume(waits)), asked.pop(), asked) == (["triage > billing"], "transfer_to_billing", [])
        office = Office(None, to("billing"), "done", driver=driver, way=GATED)
        waits = office.run(breakpoints=[stop])
        assert [(item.why, item.point) for item in waits.checkpoint.pending] == [("approval", "pre_handoff")]
        with pytest.raises(InvalidDecision):
            office.resume(waits, Skip())
        assert went(office.resume(waits, Approve())) == ["triage > billing"]


# Several calls in one reply


def test_the_second_handoff_of_a_reply_is_not_made_though_the_first_is_rejected(each: Driver) -> None:
    replies = [[to("billing"), to("refunds")], to("refunds"), "done"]
    office = Office(None, *replies, driver=each, way=GATED)
    waits = office.run()
    assert [item.tool_name for item in waits.checkpoint.pending] == ["transfer_to_billing"]
    result = office.resume(waits, Reject())
    assert (went(result), office.asked) == (["triage > refunds"], ["triage", "triage", "refunds"])


def test_a_call_that_waits_beside_a_handoff_is_decided_before_the_target_is_asked(each: Driver, store: Store) -> None:
    pays = {"tools": [tool(requires_approval=True)(refund)]}
    for answer, status, asked in (
        (Approve(), "completed", 1),
        (Reject(), "completed", 1),
        (Reject(then="end"), "rejected", 0),
    ):
        office = Office(store, [to("billing"), call("refund")], "done", driver=each, triage=pays)
        waits = office.run()
        assert [(item.tool_name, item.agent) for item in waits.checkpoint.pending] == [("refund", "triage")]
        assert (went(waits), waits.checkpoint.speaker) == ([], "triage")
        result = office.resume(waits.checkpoint.id, decisions={waits.checkpoint.pending[0].id: answer})
        assert (result.status, office.asked[1:]) == (status, ["billing"] * asked)
        assert store.load(result.checkpoint.id) == result.checkpoint


def refund() -> str:
    """Pay it back."""
    return "paid back"


def look() -> str:
    """Look it up."""
    return "paid twice"


# Behind a handoff


def test_a_run_that_waits_behind_a_handoff_goes_on_with_the_one_that_asked(each: Driver, everywhere: Store) -> None:
    replies = [to("billing"), call("refund", {"order": 7}), "done"]
    waits = Office(everywhere, *replies, driver=each).run()
    assert [(item.tool_name, item.agent) for item in waits.checkpoint.pending] == [("refund", "billing")]
    again = Office(everywhere, *replies, driver=each)
    result = again.resume(waits.checkpoint.id, decisions={waits.checkpoint.pending[0].id: Approve()})
    assert (result.output, again.asked, again.done) == ("done", ["billing"], ["refund 7"])


def test_instructions_of_the_target_are_made_of_what_the_run_was_asked(driver: Driver) -> None:
    """Law 11: each time anew, on a resume as well, whatever the conversation has come to."""
    asked: list[Any] = []

    def instructions(input: Any) -> str:
        asked.append(input)
        return f"I am billing for {input['name']}."

    member = {"instructions": driver.function(instructions)}
    office = Office(None, to("billing", "x"), call("refund"), "done", driver=driver, billing=member)
    waits = office.run({"name": "ada"})
    assert asked == [{"name": "ada"}]
    text = waits.checkpoint.model_dump_json()
    assert office.resume(Checkpoint.model_validate_json(text), Approve()).output == "done"
    assert asked == [{"name": "ada"}] * 2


def test_the_next_run_of_a_thread_begins_with_the_agent_that_is_called(each: Driver, everywhere: Store) -> None:
    office = Office(everywhere, to("billing"), "done", driver=each)
    first = office.run("one", thread_id="t")
    second = office.run("two", thread_id="t")
    assert office.asked == ["triage", "billing"] * 2
    assert (len(first.messages), len(second.messages)) == (4, 8)
    assert [(made.call, made.said) for made in second.checkpoint.handoffs] == [("1.0", 7)]
    assert everywhere.load(second.checkpoint.id) == second.checkpoint
    office.model = Office(everywhere, "short").model
    third = Office(everywhere, "short", driver=each).run("three", thread_id="t")
    assert (third.output, third.checkpoint.handoffs, third.checkpoint.speaker) == ("short", (), "triage")
    assert everywhere.load(third.checkpoint.id) == third.checkpoint


def test_a_fork_goes_on_with_whoever_had_the_conversation_there(driver: Driver, everywhere: Store) -> None:
    replies = [to("billing"), call("refund"), "done"]
    office = Office(everywhere, *replies, driver=driver, way=GATED)
    asks = office.run()
    behind = office.resume(asks, Approve())
    assert office.resume(behind, Approve()).output == "done"
    other = driver.fork(office.triage, behind.checkpoint)
    assert (other.speaker, [item.agent for item in other.pending]) == ("billing", ["billing"])
    assert other.pending[0].id != behind.checkpoint.pending[0].id
    result = office.resume(other, Reject())
    assert (went(result), office.done) == (["triage > billing"], ["refund 1"])
    before = driver.fork(office.triage, asks.checkpoint)
    assert (before.speaker, went(before), [item.agent for item in before.pending]) == ("triage", [], ["triage"])
    assert went(office.resume(before, Reject())) == []
    back = driver.call(office.triage, "restore", behind.checkpoint)
    assert (back.speaker, went(back)) == ("billing", ["triage > billing"])
    kept_as = driver.call(office.triage, "checkpoint", back, label="kept")
    assert (kept_as.speaker, kept_as.label) == ("billing", "kept")
    assert everywhere.load(kept_as.id) == kept_as


# Drift


def test_a_run_whose_speaker_or_way_is_gone_is_refused_before_anything_is_consumed(driver: Driver) -> None:
    store = MemoryStore()
    waits = Office(store, to("billing"), call("refund"), "done", driver=driver).run()
    model = ScriptedModel.by_turn(["x", "x", "done"])
    refunds = Agent(name="refunds", model=model)
    billing = Agent(name="billing", model=model, handoffs=[], tools=[tool(requires_approval=True)(refund)])
    gone = Agent(name="triage", model=model, handoffs=[refunds], store=store)
    loosened = Agent(name="billing", model=model, tools=[refund])
    for other, why in (
        (gone, "the handoff from 'triage' to 'billing', by which the conversation went, is gone"),
        (Agent(name="billing", model=model, store=store), "the agent was 'triage' and is 'billing'"),
        (Agent(name="triage", model=model, handoffs=[loosened], store=store), "was loosened from 'always' to 'never'"),
    ):
        with pytest.raises(AgentChanged, match=why):
            driver.resume(other, waits.checkpoint, approved=True)
    assert [row.pending_id for row in store.pending_rows()] == [waits.checkpoint.pending[0].id]
    mended = Agent(name="triage", model=model, handoffs=[refunds, billing], store=store)
    compatible = mended.drift(waits.checkpoint).compatible
    assert "agent 'billing': the instructions changed" in compatible
    assert "agent 'billing': tool 'transfer_to_refunds' was removed" in compatible
    assert mended.drift(waits.checkpoint).changed == (
        "the arguments of a pending call are no longer valid for tool 'refund' (order)",
    )
    fewer = Office(store, "x", "x", "done", driver=driver, refunds={"handoffs": []})
    assert fewer.triage.drift(waits.checkpoint).compatible == (
        "agent 'refunds': tool 'transfer_to_billing' was removed",
        "agent 'refunds': tool 'transfer_to_triage' was removed",
    )
    assert fewer.resume(waits, Approve()).output == "done"


def test_guardrails_of_a_member_that_are_gone_since_the_run_began_are_missed(driver: Driver) -> None:
    from phronomy.guardrails.guardrail import MaxLength

    store = MemoryStore()
    replies = [to("billing"), call("refund"), "done"]
    guarded = {"tool_guardrails": [MaxLength(100)], "output_guardrails": [MaxLength(100)]}
    waits = Office(store, *replies, driver=driver, billing=guarded).run()
    with pytest.raises(AgentChanged, match="guardrails were to look at the output, and there are none"):
        Office(store, *replies, driver=driver).resume(waits, Approve())
    with pytest.raises(InvalidDecision, match="without tool guardrail"):
        Office(store, *replies, driver=driver).resume(waits, Approve(args={"order": 2}), accept_changes=True)
    assert Office(store, *replies, driver=driver, billing=guarded).resume(waits, Approve()).output == "done"


# Inside others


def test_hooks_are_those_of_the_run(driver: Driver) -> None:
    heard: list[str] = []

    class Ears(Hooks):
        def __init__(self, name: str) -> None:
            self.name = name

        def on_handoff(self, event: Any) -> None:
            heard.append(f"{self.name}: {event.source} > {event.target}")

    mine, others = {"hooks": [Ears("triage")]}, {"hooks": [Ears("billing")]}
    Office(None, to("billing"), to("refunds"), "done", driver=driver, triage=mine, billing=others).run()
    assert heard == ["triage: triage > billing", "triage: billing > refunds"]
