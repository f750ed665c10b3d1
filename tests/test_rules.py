"""The rules, as transcripts: a state, an outcome, the whole of what changed. Nothing here stores, waits or runs anything."""

from __future__ import annotations

import runpy
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from tables import each

from phronomy.errors import IllegalOutcome, NotAuthorized
from phronomy.foundation.ids import new_id
from phronomy.records.calls import (
    Added,
    Arrived,
    CallFailed,
    CallResult,
    CallSettled,
    CallStarted,
    CallStatus,
    CallUnknown,
    CallWaits,
    Decided,
    Deferred,
    Ending,
    Finished,
    Guarded,
    Halted,
    Interrupted,
    Judged,
    Narrowed,
    Outcome,
    OutputRefused,
    Reminded,
    Returned,
    Voted,
    Withdrawn,
    gate_identity,
)
from phronomy.records.chain import begin, branch_off, is_asked_anew, seal
from phronomy.records.checkpoint import AgentRef, Checkpoint
from phronomy.records.decisions import PendingApproval, ToolIdentity, block_key, call_digest
from phronomy.records.messages import Message, ToolCall, Usage, unique_ids
from phronomy.records.moves import (
    AskModel,
    Consult,
    Done,
    Fail,
    Finish,
    Guard,
    Judge,
    ReadOutput,
    Return,
    Run,
    Stop,
    Wait,
)
from phronomy.rules.added_messages import closed, is_ending
from phronomy.rules.authorization import authorize, idempotency_key
from phronomy.rules.journal import folded
from phronomy.rules.limits import Limits
from phronomy.rules.table import TABLE, phase
from phronomy.rules.texts_for_model import BLOCKED, BLOCKED_TOOL, INTERRUPTED, passed_over
from phronomy.rules.transitions import (
    answering,
    apply,
    close_turn,
    current,
    finish_of,
    fold,
    plan,
    position_of,
)

SCRIPT = Path(__file__).parents[1] / "docs" / "transitions.py"
drawn = SimpleNamespace(**runpy.run_path(str(SCRIPT)))
AT, TOOL, INNER, DIGEST, QUESTION = drawn.AT, drawn.TOOL, drawn.INNER, drawn.DIGEST, drawn.QUESTION
call, state, reply, judged, decided, failed = (
    drawn.call,
    drawn.state,
    drawn.reply,
    drawn.judged,
    drawn.decided,
    drawn.failed,
)
FREE, ASKED = TOOL.evolve(gate="never"), TOOL.evolve(gate="predicate")
BOUNDS = SimpleNamespace(limits=Limits(turns=3), max_parallel=2, output_retries=None)


def statuses(now: Checkpoint) -> list[tuple[str, CallStatus]]:
    return [(each.id, each.status) for each in now.calls]


def told(now: Checkpoint) -> list[tuple[str | None, str]]:
    """What the model has been told of its calls: how each ended, and the text."""
    return [(message.settlement, message.text) for message in now.messages if message.role == "tool"]


def after(now: Checkpoint, *outcomes: Outcome) -> Checkpoint:
    for outcome in outcomes:
        now = apply(now, outcome)
    return now


def refuse(now: Checkpoint, outcome: Outcome, *names: str) -> IllegalOutcome:
    """The outcome is refused, the error names the state and the outcome, and nothing has changed."""
    before = now.model_dump_json()
    with pytest.raises(IllegalOutcome) as caught:
        apply(now, outcome)
    assert now.model_dump_json() == before
    assert caught.value.outcome == type(outcome).__name__
    assert type(outcome).__name__ in str(caught.value)
    assert caught.value.phase in str(caught.value)
    for name in names:
        assert name in str(caught.value)
    return caught.value


# The table


def test_the_page_shows_the_rules_as_they_are() -> None:
    assert drawn.PAGE.read_text() == drawn.page(), "out of date: run `python docs/transitions.py`"


def test_the_table_and_the_specimens_speak_of_every_state_and_every_outcome() -> None:
    assert (
        set(TABLE)
        == set(drawn.STATES)
        == {"asking", "paused", "acting", "finishing", "ended"} | {f"call {status}" for status in get_args(CallStatus)}
    )
    assert {type(outcome) for _, outcome in drawn.OUTCOMES} == set(get_args(Outcome))
    for name, specimens in drawn.STATES.items():
        for now in specimens:
            assert phase(now) == name.partition(" ")[0].replace("call", "acting")
            assert not now.calls or name in ("paused", f"call {now.calls[0].status}")


def test_what_the_table_allows_applies_and_nothing_else_does() -> None:
    """For a call, some are outcomes of the whole run, which the table lists under `acting`."""
    seen: dict[str, set[type]] = {name: set() for name in TABLE}
    for name, _, _, outcome in drawn.next_states():
        seen[name].add(type(outcome))
    whole = {Interrupted, Added, Arrived, Narrowed, Ending, Finished, Halted, Guarded}
    legal = {name: set(row) for name, row in TABLE.items()}
    assert {name: kinds - whole if name.startswith("call ") else kinds for name, kinds in seen.items()} == legal


def test_the_states_that_the_table_names_follow_and_no_others() -> None:
    seen: dict[tuple[str, type], set[str]] = {}
    for name, _, then, outcome in drawn.next_states():
        if type(outcome) in TABLE[name]:
            seen.setdefault((name, type(outcome)), set()).add(then)
    assert seen == {(name, kind): set(then) for name, row in TABLE.items() for kind, then in row.items()}


PAIRS = [
    pytest.param(name, now, outcome, id=f"{name}-{place}-{words}")
    for name, specimens in drawn.STATES.items()
    for place, now in enumerate(specimens)
    for words, outcome in drawn.OUTCOMES
]


@each(("name", "now", "outcome"), PAIRS)
def test_each_state_takes_an_outcome_or_names_both_and_stays(name: str, now: Checkpoint, outcome: Outcome) -> None:
    before = now.model_dump_json()
    legal = type(outcome) in TABLE[phase(now)]
    if isinstance(outcome, Finished):
        legal = legal and (not now.calls or (now.rejecting and now.calls[0].status != "started"))
        legal = legal and (not is_ending(now) or finish_of(now).status == outcome.status)
    elif isinstance(outcome, Guarded) and outcome.stage != "tool":
        legal = legal and (now.unguarded == outcome.stage or (now.unguarded, outcome.stage) == ("message", "input"))
    elif isinstance(outcome, Added):
        ends = now.ended is not None or is_ending(now)
        legal = legal and (closed(now) is None if outcome.id is None else not ends)
    elif isinstance(outcome, Returned):
        legal = legal and len(now.calls) == 1 and answering(now) is not None
    elif (
        legal
        and name.startswith("call ")
        and not isinstance(outcome, Interrupted | Ending | Halted | Guarded | Arrived | Narrowed)
    ):
        legal = type(outcome) in TABLE[name]
    if isinstance(outcome, Judged) and name in ("call answered", "call pending"):  # it is decided, or asked for anew
        legal = outcome.judgements[0].verdict == "pend" and not now.calls[0].gate
    if isinstance(outcome, Judged) and name == "call ready":  # what has begun keeps what it began with
        legal = now.calls[0].waiting == ()
    try:
        then = apply(now, outcome)
    except IllegalOutcome as error:
        assert error.outcome == type(outcome).__name__
        assert error.phase in (phase(now), name)
        assert error.phase in str(error)
        assert type(outcome).__name__ in str(error)
        # to another pending id, or of another kind of vote
        addressed = isinstance(outcome, Decided | Voted | Reminded) and type(outcome) in TABLE[name]
        assert not legal or addressed
    else:
        assert legal
        assert Checkpoint.model_validate_json(then.model_dump_json()) == then
    assert now.model_dump_json() == before


def test_what_others_leave_is_set_aside_where_it_does_not_follow_and_the_work_of_a_worker_is_not() -> None:
    now = state(call("pending"))
    wrong, other = decided("approve", digest="0" * 64), decided("approve", "nobody")
    assert folded(now, (wrong, other), apply) == (now, (wrong, other))
    assert current(now.evolve(journal=(wrong,))) == now
    with pytest.raises(IllegalOutcome):
        folded(now, (CallStarted(id="1.0", at=AT),), apply)


# A run


def test_a_run_from_its_input_to_its_answer() -> None:
    now = begin(
        None,
        id="c1",
        run_id="r",
        branch_id="r",
        thread_id="t",
        at=AT,
        agent=AgentRef(name="a"),
        original_input="go",
        messages=(Message(role="user", content="go"),),
    )
    assert (now.parent_id, now.step, now.status, phase(now), plan(now, BOUNDS)) == (
        None,
        0,
        "running",
        "asking",
        AskModel(),
    )

    asked = reply(*[ToolCall(id=id, name="refund", arguments="{}") for id in "abc"]).evolve(
        usage=Usage(requests=1, input_tokens=7), elapsed=40
    )
    now = apply(now, asked)
    assert statuses(now) == [("1.0", "new"), ("1.1", "new"), ("1.2", "new")]
    assert (now.turn, now.usage, now.elapsed) == (1, Usage(requests=1, input_tokens=7), 40)
    assert plan(now, BOUNDS) == Judge(calls=now.calls)

    now = after(now, judged("run", "1.0"), judged("run", "1.1"), judged("run", "1.2"))
    assert plan(now, BOUNDS) == Run(calls=now.calls[:2]), "no more side by side than the spec allows"

    now = after(now, CallStarted(id="1.0", attempt=1, at=AT), CallStarted(id="1.1", attempt=1, at=AT))
    now = apply(now, CallSettled(id="1.1", call_id="b", key="k", result=drawn.DONE, elapsed=2))
    assert statuses(now) == [("1.0", "started"), ("1.1", "settled"), ("1.2", "ready")]
    assert (now.elapsed, told(now)) == (42, [])
    assert plan(now, BOUNDS) == Run(calls=now.calls[2:])

    now = after(now, CallStarted(id="1.2", attempt=1, at=AT))
    assert plan(now, BOUNDS) == Wait(pending=(), running=(now.calls[0], now.calls[2]))
    now = after(now, CallSettled(id="1.2", call_id="c", key="k", result=drawn.DONE), failed("model"))
    assert (now.calls, phase(now)) == ((), "asking")
    assert told(now) == [("failed", "broken"), ("completed", "done"), ("completed", "done")], (
        "in the order of the calls"
    )

    now = apply(now, reply(text="gone"))
    assert plan(now, BOUNDS) == Finish(status="completed", output="gone")
    now = apply(now, Finished(status="completed", output="gone"))
    assert (now.status, now.output, plan(now, BOUNDS)) == ("completed", "gone", Done(status="completed"))


def test_the_next_run_of_a_thread_begins_from_the_end_of_the_last() -> None:
    parent = state(ended="completed")
    said = (*parent.messages, Message(role="assistant", content="gone"), Message(role="user", content="again"))
    now = begin(
        parent,
        id="c2",
        run_id="r2",
        branch_id="r2",
        thread_id="t",
        at=AT,
        agent=AgentRef(name="a"),
        original_input={"again": 1},
        messages=said,
        label="second",
        metadata={"by": "ann"},
    )
    assert (now.parent_id, now.messages, now.label, now.metadata) == ("ckpt", said, "second", {"by": "ann"})
    assert (now.step, now.turn, now.decisions, now.original_input) == (0, 0, (), {"again": 1})


def test_a_run_fails_at_its_limit_of_turns_and_only_when_the_model_is_to_be_asked() -> None:
    assert plan(state(turn=3), BOUNDS) == Fail(limit="turns", maximum=3, used=3)
    assert plan(state(turn=2), BOUNDS) == AskModel()
    assert (
        plan(state(turn=9), SimpleNamespace(limits=Limits(turns=None), max_parallel=1, output_retries=None))
        == AskModel()
    )
    assert plan(state(call("ready"), turn=3), BOUNDS) == Run(calls=(call("ready"),))


def test_empty_and_repeated_call_ids_are_replaced_and_kept_beside() -> None:
    """A provider pairs calls and results by id."""
    now = apply(state(), reply(ToolCall(id="call_2_0", name="x", arguments="{}")))
    now = after(now, judged("invalid"))
    twice = [ToolCall(id=id, name="x", arguments="{}") for id in ("", "call_2_0", "new", "new")]
    now = apply(now, reply(*twice))
    assert [(each.id, each.original_id) for each in now.messages[-1].tool_calls] == [
        ("call_2_0_", ""),
        ("call_2_1", "call_2_0"),
        ("new", None),
        ("call_2_3", "new"),
    ]
    assert [each.call_id for each in now.calls] == ["call_2_0_", "call_2_1", "new", "call_2_3"]


def test_a_call_id_that_could_be_the_id_of_a_request_is_replaced() -> None:
    """People decide by the ids of requests, so no call goes by one, also of a request that does not exist."""
    taken = new_id("pend")
    ids = (taken, "pend_1", f"x{taken}", f"{taken}\n", taken.upper(), new_id("pend"))
    now = apply(state(), reply(*[ToolCall(id=id, name="x", arguments="{}") for id in ids]))
    assert [(each.id, each.original_id) for each in now.messages[-1].tool_calls] == [
        ("call_1_0", taken),
        *[(id, None) for id in ids[1:5]],
        ("call_1_5", ids[5]),
    ]
    assert [each.call_id for each in now.calls] == ["call_1_0", *ids[1:5], "call_1_5"]
    asked = Message(role="assistant", tool_calls=(ToolCall(id=taken, name="x", arguments="{}"),))
    told = unique_ids([asked, Message(role="tool", content="1", tool_call_id=taken)])
    assert (told[0].tool_calls[0].id, told[1].tool_call_id) == ("call_0_0", "call_0_0")


def test_a_history_from_elsewhere_gets_unique_ids_in_calls_and_results_alike() -> None:
    asked = [ToolCall(id=id, name="x", arguments="{}") for id in ("a", "a", "")]
    results = [Message(role="tool", content=text, tool_call_id=id) for text, id in (("1", "a"), ("2", ""), ("3", "a"))]
    again = Message(role="assistant", tool_calls=(ToolCall(id="a", name="x", arguments="{}"),))
    last = Message(role="tool", content="4", tool_call_id="a")
    stray = Message(role="tool", content="5", tool_call_id="z")
    user = Message(role="user", content="go")
    told = unique_ids([user, Message(role="assistant", tool_calls=tuple(asked)), *results, again, last, stray])
    assert [call.id for message in told for call in message.tool_calls] == ["a", "call_1_1", "call_1_2", "call_5_0"]
    answered = [(message.text, message.tool_call_id) for message in told if message.role == "tool"]
    assert answered == [("1", "a"), ("2", "call_1_2"), ("3", "call_1_1"), ("4", "call_5_0"), ("5", "z")]


# Judging


def test_the_verdicts() -> None:
    now = state(*[call("new", f"1.{place}") for place in range(5)])
    now = after(
        now,
        judged("run", "1.0", repeatable=True),
        judged("ask", "1.1"),
        judged("pend", "1.2", reason="over the limit", expires_at=AT + timedelta(hours=1)),
        judged("reject", "1.3"),
        judged("invalid", "1.4", tool=None, args=None, digest=None),
    )
    assert [each.status for each in now.calls] == ["ready", "asking", "pending", "settled", "settled"]
    assert [each.arguments for each in now.calls] == [None] * 5
    assert (now.calls[0].repeatable, now.calls[0].pending_id) == (True, None)
    [item] = now.pending
    assert (item.id, item.why, item.reason, item.expires_at) == (
        "ask-1.2",
        "approval",
        "over the limit",
        AT + timedelta(hours=1),
    )
    assert (item.args, item.digest, item.call_id) == ({"amount": 5}, DIGEST, "call-1.2")
    assert plan(now, BOUNDS) == Consult(calls=(now.calls[1],))
    assert now.status == "suspended"


def test_a_call_that_was_rejected_for_good_is_rejected_again_unasked() -> None:
    now = after(state(call("pending")), decided("reject", then="block"))
    assert now.blocked == (DIGEST,)
    now = after(now, reply(ToolCall(id="n", name="refund", arguments="{}")), judged("pend", "2.0"))
    assert told(now)[-1] == ("rejected", BLOCKED)
    assert now.pending == ()


def test_a_tool_that_was_rejected_for_good_is_rejected_again_whatever_the_arguments() -> None:
    now = after(state(call("pending")), decided("reject", then="block_tool"))
    assert now.blocked == (block_key(TOOL),)
    other = judged("pend", "2.0", args={"amount": 9}, digest=call_digest(TOOL, '{"amount":9}'))
    now = after(now, reply(ToolCall(id="n", name="refund", arguments="{}")), other)
    assert told(now)[-1] == ("rejected", BLOCKED_TOOL)
    assert now.pending == ()


def test_what_the_handler_defers_waits_for_a_human() -> None:
    now = state(call("asking"), call("asking", "1.1"))
    assert plan(now, BOUNDS) == Consult(calls=now.calls)
    now = apply(now, Deferred(pending_ids=("ask-1.1",)))
    assert statuses(now) == [("1.0", "asking"), ("1.1", "pending")]
    now = apply(now, Deferred(pending_ids=("ask-1.0",)))
    assert plan(now, BOUNDS) == Wait(pending=now.pending)
    assert [item.id for item in now.pending] == ["ask-1.0", "ask-1.1"]
    refuse(now, Deferred(pending_ids=("ask-1.0",)), "call pending")


# Deciding


@pytest.mark.parametrize(
    ("outcome", "settlement", "text"),
    [
        (decided("reject"), "rejected", "A human rejected this call, so it was not run."),
        (decided("reject", reason="no"), "rejected", "A human rejected this call, so it was not run. Reason: no"),
        (decided("respond", content="paid"), "responded", "paid"),
        (decided("respond", content={"paid": True}), "responded", '{"paid":true}'),
        (decided("expire"), "expired", "Nobody decided on this call in time, so it was not run."),
        (decided("cancel"), "cancelled", "This call was cancelled, so it was not run."),
        (
            decided("supersede"),
            "superseded",
            "This call was not run: a new message came before it was decided.",
        ),
    ],
)
def test_what_the_model_is_told_of_a_decision(outcome: Decided, settlement: str, text: str) -> None:
    """Law 12: these are different things to the model, and in the record."""
    now = apply(state(call("pending")), outcome)
    assert told(now) == [(settlement, text)]
    assert now.decisions == (outcome.decision,)
    assert plan(now, BOUNDS) == AskModel()
    refuse(now, outcome, "asking")


@pytest.mark.parametrize(
    ("outcome", "begun", "settlement", "text"),
    [
        (decided("approve"), False, "cancelled", "The run went on, or ended, without this call, so it was not run."),
        (
            decided("approve"),
            True,
            "failed",
            "This call was begun, and may have taken effect. The run went on, or ended, without this call, and it was left at that.",
        ),
        (
            decided("respond", content="paid"),
            False,
            "cancelled",
            "The run went on, or ended, without this call, so it was not run.",
        ),
        (
            decided("reject", reason="no"),
            False,
            "rejected",
            "A human rejected this call, so it was not run. Reason: no",
        ),
        (decided("cancel"), False, "cancelled", "This call was cancelled, so it was not run."),
    ],
)
def test_what_becomes_of_a_decided_call_that_the_run_never_looks_at_again(
    outcome: Decided, begun: bool, settlement: str, text: str
) -> None:
    assert passed_over(call("pending"), outcome.decision, begun=begun) == CallResult(kind=settlement, content=text)


def test_an_approval_lets_exactly_that_call_run() -> None:
    before = state(call("pending"), call("pending", "1.1"))
    now = apply(before, decided("approve"))
    assert statuses(now) == [("1.0", "ready"), ("1.1", "pending")]
    assert (now.calls[0].approved, now.calls[1].approved, now.calls[0].edited) == ("ask-1.0", None, False)
    assert plan(now, BOUNDS) == Run(calls=(now.calls[0],))
    authorize(now, now.calls[0], TOOL)
    with pytest.raises(NotAuthorized):
        authorize(now, now.calls[1], TOOL)
    refuse(now, decided("approve"), "nothing waits under ask-1.0")


def test_a_decision_is_bound_to_what_was_shown() -> None:
    other = decided("approve").decision.evolve(digest="f" * 64)
    error = refuse(state(call("pending")), Decided(decision=other), "digest")
    assert error.phase == "call pending"


def test_edited_arguments_are_what_runs() -> None:
    edited = {"amount": 3}
    digest = call_digest(TOOL, '{"amount":3}')
    outcome = Decided(
        decision=decided("approve", args=edited).decision,
        edited=judged("run", args=edited, digest=digest).judgements[0],
    )
    now = apply(state(call("pending")), outcome)
    assert (now.calls[0].args, now.calls[0].digest, now.calls[0].edited) == (edited, digest, True)
    authorize(now, now.calls[0], TOOL)
    now = after(
        now,
        CallStarted(id="1.0", attempt=1, at=AT),
        CallSettled(id="1.0", call_id="call-1.0", key="k", result=drawn.DONE),
    )
    [(_, text)] = told(now)
    assert '{"amount":3}' in text, "the model is told, or it would ask again"
    assert text.endswith("done")


def test_a_rejection_that_ends_the_run_settles_the_rest_when_nothing_runs_any_more() -> None:
    now = state(call("pending"), call("ready", "1.1"), call("started", "1.2"))
    now = apply(now, decided("reject", then="end"))
    assert [each.status for each in now.calls] == ["settled", "ready", "started"]
    refuse(now, Finished(status="rejected"), "calls are open")
    now = apply(now, CallSettled(id="1.2", call_id="call-1.2", key="k", result=drawn.DONE))
    assert plan(now, BOUNDS) == Finish(status="rejected"), "the call that is ready does not begin"
    now = apply(now, Finished(status="rejected"))
    assert [settlement for settlement, _ in told(now)] == ["rejected", "cancelled", "completed"]
    assert (now.status, now.calls, plan(now, BOUNDS)) == ("rejected", (), Done(status="rejected"))


def test_a_run_that_goes_on_is_not_finished_while_calls_are_open() -> None:
    refuse(state(call("ready")), Finished(status="completed"), "calls are open")


# Nested runs


OTHER = INNER.evolve(id="other")


def test_a_call_waits_for_the_run_inside_it_and_runs_on_when_that_was_decided() -> None:
    now = after(state(call("ready")), CallStarted(id="1.0", attempt=1, at=AT), CallWaits(id="1.0", pending=(INNER,)))
    assert (now.pending, now.status, plan(now, BOUNDS)) == ((INNER,), "suspended", Wait(pending=(INNER,)))
    now = apply(now, decided("approve", "inner"))
    assert (now.pending, statuses(now), plan(now, BOUNDS)) == ((), [("1.0", "ready")], Run(calls=now.calls))
    assert now.calls[0].approved is None, "the approval is for a call of the run inside"
    refuse(now, decided("approve", "inner"), "nothing waits under inner")


def test_several_approvals_of_one_nested_run_are_decided_in_one_go_or_while_it_is_driven() -> None:
    now = state(call("nested", waiting=(INNER, OTHER)))
    now = apply(now, decided("approve", "inner"))
    assert (statuses(now), now.pending) == ([("1.0", "ready")], (OTHER,))
    both = apply(now, decided("approve", "other"))
    assert (statuses(both), both.pending, len(both.decisions)) == ([("1.0", "ready")], (), 2)

    now = apply(now, CallStarted(id="1.0", attempt=2, at=AT))
    now = apply(now, decided("reject", "other"))
    assert (statuses(now), now.pending) == ([("1.0", "started")], ())
    now = apply(now, CallWaits(id="1.0", pending=(OTHER,)))
    assert (statuses(now), plan(now, BOUNDS)) == ([("1.0", "ready")], Run(calls=now.calls))


def test_what_a_nested_run_has_cost_is_part_of_what_the_run_has() -> None:
    now = state(call("started"), usage=Usage(requests=1, input_tokens=7), elapsed=40)
    cost = Usage(requests=2, input_tokens=3, output_tokens=5)
    settled = CallSettled(id="1.0", call_id="call-1.0", key="k", result=drawn.DONE, usage=cost, elapsed=2)
    now = apply(now, settled)
    assert (now.usage, now.elapsed) == (Usage(requests=3, input_tokens=10, output_tokens=5), 42)


# Questions


def test_a_body_asks_and_runs_again_from_its_beginning_with_the_answer() -> None:
    now = apply(state(call("ready")), CallStarted(id="1.0", attempt=1, at=AT))
    now = apply(now, CallWaits(id="1.0", pending=(QUESTION,), elapsed=3))
    assert (now.pending, now.status, now.elapsed) == ((QUESTION,), "suspended", 3)
    assert plan(now, BOUNDS) == Wait(pending=(QUESTION,))
    assert (now.calls[0].stopped, now.calls[0].attempt) == (True, 0), "to ask costs no attempt"
    answered = apply(now, decided("respond", "question", content="yes"))
    assert (answered.pending, statuses(answered), told(answered)) == ((), [("1.0", "ready")], [])
    assert answered.calls[0].approved is None, "an answer is no approval of the call"
    assert plan(answered, BOUNDS) == Run(calls=answered.calls)
    assert [decision.content for decision in answered.decisions] == ["yes"]
    refuse(answered, decided("approve", "question"), "nothing waits under question")


@pytest.mark.parametrize(
    ("kind", "settlement"),
    [("reject", "rejected"), ("expire", "expired"), ("cancel", "cancelled"), ("supersede", "superseded")],
)
def test_a_question_that_is_not_answered_settles_its_call(kind: str, settlement: str) -> None:
    now = apply(state(call("nested", waiting=(QUESTION,), stopped=True)), decided(kind, "question", reason="no"))
    [(how, text)] = told(now)
    assert how == settlement
    assert text.startswith("This call asked a human before it was through.")
    assert text.endswith("Reason: no")


@pytest.mark.parametrize(("then", "blocked"), [("block", (DIGEST,)), ("block_tool", (block_key(TOOL),)), ("end", ())])
def test_a_question_that_is_rejected_blocks_the_call_or_its_tool_or_ends_the_run(
    then: Any, blocked: tuple[str, ...]
) -> None:
    now = state(call("nested", waiting=(QUESTION,), stopped=True), call("ready", "1.1"))
    now = apply(now, decided("reject", "question", then=then))
    assert (now.blocked, now.rejecting) == (blocked, then == "end")


def test_an_answer_is_bound_to_the_question_that_was_shown() -> None:
    other = decided("respond", "question", content="yes").decision.evolve(digest="f" * 64)
    refuse(state(call("nested", waiting=(QUESTION,))), Decided(decision=other), "digest", "call nested")


def test_a_question_of_a_nested_run_is_that_runs_to_settle() -> None:
    """The call around it runs on, whatever the answer: the run inside settles the call that asked."""
    inside = QUESTION.evolve(path="1.0")
    now = apply(state(call("nested", waiting=(inside,), stopped=True)), decided("reject", "question"))
    assert (statuses(now), now.pending, told(now)) == ([("1.0", "ready")], (), [])
    assert plan(now, BOUNDS) == Run(calls=now.calls)


def test_a_fork_has_a_body_ask_anew() -> None:
    now = state(call("nested", waiting=(QUESTION,), stopped=True), call("nested", "1.1", stopped=True))
    inside = {"1.1": state(call("pending"), path="1.1")}
    forked = branch_off(now, id="f", branch_id="b", at=AT, salt="", ids={}, nested=inside)
    assert [(each.id, each.status, each.stopped) for each in forked.calls] == [
        ("1.0", "ready", True),
        ("1.1", "nested", True),
    ]
    assert forked.pending == inside["1.1"].pending


# Failures that stop the run


def test_a_call_that_fails_for_good_stops_the_run_once_its_siblings_are_through() -> None:
    now = state(call("started", attempt=1), call("started", "1.1"), call("ready", "1.2"))
    now = apply(now, failed("stop"))
    assert (now.calls[0].status, now.calls[0].why, now.calls[0].reason) == ("failed", "failed", "broken")
    assert plan(now, BOUNDS) == Run(calls=(now.calls[2],)), "what can run does"
    now = apply(now, CallStarted(id="1.2", attempt=1, at=AT))
    assert plan(now, BOUNDS) == Wait(pending=(), running=now.calls[1:])
    for place in ("1.1", "1.2"):
        now = apply(now, CallSettled(id=place, call_id=f"call-{place}", key="k", result=drawn.DONE))
    assert plan(now, BOUNDS) == Stop(calls=(now.calls[0],))
    assert (now.status, told(now)) == ("running", []), "the model hears nothing of it"
    now = apply(now, Interrupted(pending_ids={}, at=AT))
    assert [(each.status, each.attempt) for each in now.calls] == [("ready", 0), ("settled", 0), ("settled", 1)]
    assert plan(now, BOUNDS) == Run(calls=(now.calls[0],))


def test_a_run_waits_with_a_failed_call_while_a_human_is_asked_beside_it() -> None:
    now = state(call("failed"), call("pending", "1.1"))
    assert (plan(now, BOUNDS), now.status) == (Wait(pending=now.pending), "suspended")
    now = apply(now, decided("reject", "ask-1.1"))
    assert plan(now, BOUNDS) == Stop(calls=(now.calls[0],))
    refuse(now, decided("approve", "again"), "nothing waits under again")


def test_a_call_that_failed_while_something_in_it_waits_takes_the_decision() -> None:
    now = apply(state(call("failed", waiting=(INNER,), stopped=True)), decided("approve", "inner"))
    assert (statuses(now), now.pending, plan(now, BOUNDS)) == ([("1.0", "ready")], (), Run(calls=now.calls))


def test_an_intent_that_is_taken_back_was_no_attempt() -> None:
    now = apply(state(call("ready", attempt=1)), CallStarted(id="1.0", attempt=2, at=AT))
    now = apply(now, Withdrawn(ids=("1.0",)))
    assert (statuses(now), now.calls[0].attempt) == ([("1.0", "ready")], 1)


# Attempts


def test_a_failed_attempt_is_tried_again() -> None:
    now = apply(state(call("started", attempt=1, approved="ask-1.0", pending_id="ask-1.0")), failed("retry"))
    assert (statuses(now), now.calls[0].attempt, now.calls[0].approved) == ([("1.0", "ready")], 1, "ask-1.0")


def test_a_fallback_is_a_new_request_in_every_respect() -> None:
    """Law 1: approval of a tool never covers its fallback."""
    now = apply(state(call("started", attempt=1, approved="ask-1.0", pending_id="ask-1.0")), failed("fallback"))
    [again] = now.calls
    assert (again.status, again.arguments, again.fallback) == ("new", '{"amount":5}', 1)
    assert (again.tool, again.digest, again.approved, again.pending_id, again.attempt) == (None, None, None, None, 0)
    assert plan(now, BOUNDS) == Judge(calls=(again,))


@pytest.mark.parametrize(
    ("outcome", "why", "reason"),
    [
        (failed("human"), "failed", "broken"),
        (CallUnknown(id="1.0", reason="lost", pending_id="again", requested_at=AT), "outcome_unknown", "lost"),
    ],
)
def test_a_human_is_asked_anew_and_the_old_approval_is_used_up(outcome: Outcome, why: str, reason: str) -> None:
    now = apply(state(call("started", approved="ask-1.0", pending_id="ask-1.0")), outcome)
    [item] = now.pending
    assert (item.id, item.why, item.reason) == ("again", why, reason)
    assert now.calls[0].approved is None
    now = apply(now, decided("approve", "again"))
    authorize(now, now.calls[0], TOOL)


def test_a_lost_worker_leaves_what_can_be_repeated_and_what_must_be_asked() -> None:
    now = state(call("started", repeatable=True), call("started", "1.1"), call("ready", "1.2"), call("pending", "1.3"))
    refuse(now, Interrupted(pending_ids={"1.0": "x"}, at=AT), "1.1", "call started")
    now = apply(now, Interrupted(pending_ids={"1.1": "again"}, at=AT))
    assert statuses(now) == [("1.0", "ready"), ("1.1", "pending"), ("1.2", "ready"), ("1.3", "pending")]
    assert [(item.id, item.why, item.reason) for item in now.pending] == [
        ("again", "outcome_unknown", INTERRUPTED),
        ("ask-1.3", "approval", None),
    ]
    assert apply(state(), Interrupted(pending_ids={}, at=AT)) == state()


# Ending


@pytest.mark.parametrize("status", ["cancelled", "superseded"])
def test_an_ending_settles_what_has_not_started_and_says_what_it_was(status: Any) -> None:
    now = state(
        call("new"),
        call("asking", "1.1"),
        call("pending", "1.2"),
        call("pending", "1.3", why="outcome_unknown"),
        call("nested", "1.4"),
        call("settled", "1.5"),
    )
    now = apply(now, Ending(status=status, reason="enough", at=AT))
    assert [settlement for settlement, _ in told(now)] == [status] * 5 + ["completed"]
    texts = [text for _, text in told(now)]
    assert texts[3].startswith("Nobody knows whether this call took effect. ")
    assert "not run" not in texts[3]
    assert texts[0] == texts[1] == texts[2]
    assert texts[0].endswith("Reason: enough")
    assert (phase(now), plan(now, BOUNDS)) == ("finishing", Finish(status=status))
    assert apply(now, Finished(status=status)).status == status


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (call("pending", why="failed", reason="it broke.", attempt=1), "This call failed: it broke."),
        (call("pending", why="outcome_unknown", attempt=1), "Nobody knows whether this call took effect."),
        (call("ready", attempt=1), "may have taken effect"),
        (call("nested", stopped=True), "what this call had begun"),
        (call("nested", stopped=True, waiting=(QUESTION,)), "This call asked a human before it was through."),
        (call("ready", stopped=True), "what this call had begun"),
        (call("failed", reason="it broke."), "This call failed: it broke."),
        (call("ready", why="failed", reason="it broke."), "This call failed: it broke."),
    ],
    ids=["failed", "unknown", "begun", "nested", "asking", "answered", "stopped", "to be run again"],
)
def test_nobody_is_told_that_a_call_was_not_run_when_it_was_begun(left: Any, words: str) -> None:
    now = apply(state(left), Ending(status="cancelled", reason="enough", at=AT))
    [(settlement, text)] = told(now)
    assert settlement == "cancelled"
    assert words.lower() in text.lower()
    assert "not run" not in text
    assert text.endswith("Reason: enough")


def test_the_first_ending_counts() -> None:
    now = after(state(), Ending(status="cancelled", at=AT), Ending(status="superseded", at=AT))
    assert plan(now, BOUNDS) == Finish(status="cancelled")


@pytest.mark.parametrize(
    "outcome",
    [
        failed("retry"),
        failed("fallback"),
        failed("human"),
        failed("stop"),
        CallUnknown(id="1.0", reason="lost", pending_id="again", requested_at=AT),
        CallWaits(id="1.0", pending=(INNER,)),
        CallWaits(id="1.0", pending=(QUESTION,)),
        Interrupted(pending_ids={"1.0": "again"}, at=AT),
    ],
    ids=lambda outcome: f"{outcome.type}-{getattr(outcome, 'next', '')}",
)
@pytest.mark.parametrize("rejecting", [False, True], ids=["cancelled", "rejected"])
def test_a_run_that_is_to_end_begins_nothing_and_asks_nobody(outcome: Outcome, rejecting: bool) -> None:
    """A call ran when the run was ended: it is neither tried again nor put to a human afterwards."""
    if rejecting:
        now = apply(state(call("started"), call("pending", "1.1")), decided("reject", "ask-1.1", then="end"))
    else:
        now = apply(state(call("started")), Ending(status="cancelled", at=AT))
    assert now.calls[0].status == "started"
    now = apply(now, outcome)
    status = "rejected" if rejecting else "cancelled"
    assert plan(now, BOUNDS) == Finish(status=status)
    now = apply(now, Finished(status=status))
    assert (now.calls, now.pending, now.status) == ((), (), status)
    assert told(now)[0][0] == ("failed" if isinstance(outcome, CallFailed) else "cancelled")


# Stops, and guardrails

ANSWERED = drawn.ANSWERED
passed, guarded, gate = drawn.passed, drawn.guarded, drawn.gate


def halted(point: Any = "pre_model_call", turn: int = 0, **fields: Any) -> Halted:
    """The run stops at a point, where it shows its input."""
    given = {"pending_id": "halt", "key": f"{point}@{turn}", "args": {"input": "go"}, "at": AT, **fields}
    return Halted(point=point, **given)


def test_a_run_stops_between_two_moves_and_goes_on_where_it_was() -> None:
    stopped = apply(state(), halted(label="look"))
    [item] = stopped.pending
    assert (item.id, item.why, item.point, item.label, item.args) == (
        "halt",
        "breakpoint",
        "pre_model_call",
        "look",
        {"input": "go"},
    )
    assert (stopped.status, plan(stopped, BOUNDS)) == ("suspended", Wait(pending=(item,)))
    now = apply(stopped, passed("approve"))
    assert (now.calls, now.passed, plan(now, BOUNDS)) == ((), ("pre_model_call@0",), AskModel())
    assert now.messages == stopped.messages, "the model hears nothing of it"
    refuse(now, passed("approve"), "asking")


def test_a_stop_is_bound_to_what_was_shown() -> None:
    refuse(apply(state(), halted()), decided("approve", "halt"), "digest")
    refuse(apply(state(), halted(args={"input": "other"})), passed("approve"), "digest")


def test_a_call_that_is_let_go_on_is_asked_about_next_where_somebody_asks() -> None:
    """To let it go on is no approval: nothing runs before there is one, under an id of its own, with the whole time."""
    later = AT + timedelta(seconds=30)
    looked = judged("pend", why="breakpoint", asked_by=("",), expires_at=AT + timedelta(seconds=60))
    stands = apply(state(call("new")), looked)
    refuse(stands, decided("approve"), "call pending", "an approval comes next")
    goes_on = decided("approve", asks="next")
    now = apply(stands, goes_on.evolve(decision=goes_on.decision.evolve(at=later)))
    [asked] = now.calls
    assert (asked.status, asked.why, asked.pending_id, asked.requested_at) == ("asking", "approval", "next", later)
    assert (asked.expires_at, asked.asked_by, asked.approved) == (later + timedelta(seconds=60), ("",), None)
    now = apply(now, decided("approve", "next"))
    assert (now.calls[0].status, now.calls[0].approved) == ("ready", "next")
    free = after(state(call("new")), judged("pend", why="breakpoint"), decided("approve"))
    assert (free.calls[0].status, free.calls[0].approved) == ("ready", "ask-1.0")


def test_what_is_passed_is_kept_for_as_long_as_the_run_stands_there() -> None:
    now = state()
    for point in ("pre_input_guardrails", "pre_agent_run", "pre_model_call"):
        digest = call_digest(gate_identity("", point), '{"input":"go"}')
        now = after(now, halted(point), decided("approve", "halt", digest=digest))
    assert now.passed == ("pre_input_guardrails@0", "pre_agent_run@0", "pre_model_call@0")
    for turn in range(1, 12):
        now = after(now, reply(ToolCall(id="c", name="x", arguments="{}")), judged("invalid", f"{turn}.0"))
        now = after(now, halted(turn=turn), passed("approve"))
        assert now.passed == (f"pre_model_call@{turn}",), "it does not grow with the run"


def test_a_skip_ends_the_run_and_nothing_is_asked_or_run() -> None:
    for now in (state(), state(messages=ANSWERED), state(unguarded="input")):
        skipped = after(now, halted(), passed("skip"))
        assert (skipped.calls, phase(skipped), plan(skipped, BOUNDS)) == ((), "finishing", Finish(status="skipped"))
        ended = apply(skipped, Finished(status="skipped"))
        assert (ended.status, ended.output, plan(ended, BOUNDS)) == ("skipped", None, Done(status="skipped"))


@pytest.mark.parametrize(("kind", "status"), [("reject", "rejected"), ("expire", "cancelled"), ("cancel", "cancelled")])
def test_a_run_that_is_not_let_go_on_ends(kind: str, status: Any) -> None:
    now = after(state(), halted(), passed(kind))
    assert (now.calls, plan(now, BOUNDS)) == ((), Finish(status=status))
    if kind != "reject":
        assert now.ending is not None
        assert now.ending.reason == "nobody let it go on at pre_model_call in time"


def test_another_input_stands_in_for_the_first_which_is_kept() -> None:
    for given, text in (("stay", "stay"), ({"who": "ann"}, '{"who":"ann"}'), (["a"], None), ("", "")):
        now = after(state(), halted(), passed("approve", args={"input": given}))
        assert (now.original_input, now.input) == ("go", given)
        assert len(now.messages) == 1
        assert (now.messages[0].role, now.messages[0].content) == ("user", given if text is None else text)
        assert plan(now, BOUNDS) == AskModel()


def test_guardrails_are_asked_about_another_input_too() -> None:
    asks = judged("ask", tool=drawn.GATE, digest=drawn.SHOWN).judgements[0]
    now = after(state(), halted(), passed("approve", args={"input": "stay"}).evolve(edited=asks))
    assert (now.unguarded, now.input, plan(now, BOUNDS)) == ("input", "stay", Guard(stage="input"))


def test_a_run_that_nobody_lets_go_on_ends_with_the_first_stop_that_has_lapsed() -> None:
    now = state(at_breakpoint(), call("pending", "1.1"), call("nested", "1.2"))
    lapsed = decided("expire", digest=call_digest(ASKED, drawn.ARGS), then="end", reason="too late")
    now = apply(now, lapsed)
    assert [how for how, _ in told(now)] == ["expired", "cancelled", "cancelled"]
    assert (plan(now, BOUNDS), now.ending and now.ending.reason) == (Finish(status="cancelled"), "too late")
    refuse(now, lapsed, "finishing")
    inside = apply(state(call("nested")), decided("expire", "inner", then="end", reason="too late"))
    assert ([how for how, _ in told(inside)], plan(inside, BOUNDS)) == (["cancelled"], Finish(status="cancelled"))
    gone = after(state(), halted(), passed("expire", then="end", reason="too late"))
    assert (gone.ending and gone.ending.reason, plan(gone, BOUNDS)) == ("too late", Finish(status="cancelled"))


def test_where_a_run_stands_is_told_by_its_turn() -> None:
    assert [position_of(state(turn=turn), "post_run") for turn in (0, 12)] == ["post_run@0", "post_run@12"]


def test_siblings_run_on_beside_a_stop_after_a_call_and_the_model_waits_for_it() -> None:
    now = state(call("started"), call("ready", "1.1"), turn=1)
    now = after(now, halted("post_tool_call", 1, key="post_tool_call@1.0"))
    now = apply(now, CallSettled(id="1.0", call_id="call-1.0", key="k", result=drawn.DONE))
    assert statuses(now) == [("post_tool_call@1.0", "pending"), ("1.0", "settled"), ("1.1", "ready")]
    assert plan(now, BOUNDS) == Run(calls=(now.calls[2],))
    now = after(now, CallStarted(id="1.1", attempt=1, at=AT))
    now = apply(now, CallSettled(id="1.1", call_id="call-1.1", key="k", result=drawn.DONE))
    assert (plan(now, BOUNDS), told(now)) == (Wait(pending=now.pending), [])
    digest = call_digest(gate_identity("", "post_tool_call"), '{"input":"go"}')
    over = apply(now, decided("reject", "halt", digest=digest))
    assert (plan(over, BOUNDS), told(over)) == (Finish(status="rejected"), [("completed", "done")] * 2)
    now = apply(now, decided("approve", "halt", digest=digest))
    assert (plan(now, BOUNDS), told(now)) == (AskModel(), [("completed", "done")] * 2)


def test_a_run_that_is_to_end_stops_nowhere() -> None:
    for now in (state(ending=drawn.ENDING), state(skipping=True), state(rejecting=True)):
        assert apply(now, halted()) == now


def test_a_run_that_is_ended_at_a_stop_ends_there() -> None:
    now = after(state(), halted(), Ending(status="cancelled", reason="enough", at=AT))
    assert (now.calls, now.messages, plan(now, BOUNDS)) == ((), state().messages, Finish(status="cancelled"))


def at_breakpoint(**fields: Any) -> Any:
    """A call that waits at a breakpoint; its tool has a gate that had nothing against it."""
    facts = {"tool": ASKED, "digest": call_digest(ASKED, drawn.ARGS), "why": "breakpoint", "point": "pre_tool_call"}
    return call("pending", **{**facts, **fields})


def test_a_call_that_is_skipped_is_not_run_and_the_model_is_told() -> None:
    now = apply(state(at_breakpoint()), decided("skip", digest=call_digest(ASKED, drawn.ARGS)))
    [(how, text)] = told(now)
    assert (how, plan(now, BOUNDS)) == ("skipped", AskModel())
    assert "not run" in text


def test_a_call_that_is_edited_at_a_breakpoint_so_that_it_needs_an_approval_waits_for_one() -> None:
    edited = {"amount": 500}
    digest = call_digest(ASKED, '{"amount":500}')
    asks = judged("pend", tool=ASKED, args=edited, digest=digest, pending_id="again").judgements[0]
    decision = decided("approve", digest=call_digest(ASKED, drawn.ARGS), args=edited).decision
    now = apply(state(at_breakpoint()), Decided(decision=decision, edited=asks))
    [item] = now.pending
    assert (item.id, item.why, item.args, now.calls[0].approved) == ("again", "approval", edited, None)
    with pytest.raises(NotAuthorized):
        authorize(now.evolve(calls=(now.calls[0].evolve(status="ready"),)), now.calls[0], ASKED)
    now = apply(now, decided("approve", "again", digest=digest))
    assert (now.calls[0].approved, now.calls[0].edited, plan(now, BOUNDS)) == ("again", True, Run(calls=now.calls))
    authorize(now, now.calls[0], ASKED)


def test_to_let_a_call_go_on_is_not_to_approve_what_has_come_to_need_it() -> None:
    """Law 1: its tool was given a gate while it waited at a breakpoint."""
    free_ = {"tool": FREE, "digest": call_digest(FREE, drawn.ARGS)}
    now = apply(state(at_breakpoint(**free_)), decided("approve", digest=free_["digest"]))
    authorize(now, now.calls[0], FREE)
    for gate_ in ("always", "predicate"):
        with pytest.raises(NotAuthorized):
            authorize(now, now.calls[0], FREE.evolve(gate=gate_))


def test_guardrails_look_at_the_input_before_the_model_does() -> None:
    now = state(unguarded="input")
    assert plan(now, BOUNDS) == Guard(stage="input")
    let = apply(now, guarded("input"))
    assert (let, plan(let, BOUNDS)) == (state(), AskModel())
    refuse(let, guarded("input"), "no input waits for guardrails")
    changed = apply(now, guarded("input", "transformed", content="stay"))
    assert (changed.original_input, changed.input, changed.messages[-1].text) == ("go", "stay", "stay")
    refused = apply(now, guarded("input", "refused"))
    assert (refused.messages, refused.rejecting, refused.refusal) == ((), True, guarded("input", "refused").refusal)
    assert plan(refused, BOUNDS) == Finish(status="rejected")


def test_guardrails_look_at_a_reply_that_is_to_end_the_run_and_at_no_other() -> None:
    asked = reply(ToolCall(id="c", name="x", arguments="{}")).evolve(guarded=True)
    assert apply(state(), asked).unguarded is None
    now = apply(state(), reply(text="gone").evolve(guarded=True))
    assert (now.unguarded, plan(now, BOUNDS)) == ("output", Guard(stage="output"))
    refuse(now, guarded("input"), "no input waits for guardrails")
    assert plan(apply(now, guarded("output")), BOUNDS) == Finish(status="completed", output="gone")
    changed = apply(now, guarded("output", "transformed", content="left"))
    assert plan(changed, BOUNDS) == Finish(status="completed", output="left")
    refused = apply(now, guarded("output", "refused"))
    assert (refused.messages, plan(refused, BOUNDS)) == (state().messages, Finish(status="rejected"))


@pytest.mark.parametrize("unguarded", ["input", "output"])
@pytest.mark.parametrize("how", ["skip", "reject", "expire", "end"])
def test_what_guardrails_have_not_let_through_is_no_part_of_the_conversation_once_the_run_ends(
    unguarded: Any, how: str
) -> None:
    now = state(unguarded=unguarded, messages=ANSWERED[:1] if unguarded == "input" else ANSWERED)
    now = after(now, halted(), passed(how) if how != "end" else Ending(status="cancelled", at=AT))
    move = plan(now, BOUNDS)
    assert isinstance(move, Finish)
    now = apply(now, Finished(status=move.status))
    assert now.messages == (() if unguarded == "input" else ANSWERED[:1])


def test_an_answer_that_is_not_of_the_output_type_is_guarded_again_when_it_is_given_anew() -> None:
    typed = SimpleNamespace(limits=Limits(), max_parallel=1, output_retries=1)
    now = after(state(), reply(text="gone").evolve(guarded=True), guarded("output"))
    assert plan(now, typed) == ReadOutput(text="gone")
    now = apply(now, OutputRefused(error="no"))
    assert (plan(now, typed), now.refused) == (AskModel(), 1)
    assert plan(apply(now, reply(text="5").evolve(guarded=True)), typed) == Guard(stage="output")


def test_the_result_of_a_call_is_the_last_word_once_all_have_settled() -> None:
    answer = CallResult(kind="completed", content="done", answer="done")
    now = state(call("settled", result=answer), call("started", "1.1"))
    assert plan(now, BOUNDS) == Wait(pending=(), running=now.calls[1:])
    refuse(now, Returned(id="1.0", text="done"))
    now = after(now, CallSettled(id="1.1", call_id="call-1.1", key="k", result=answer))
    assert plan(now, BOUNDS) == Return(call=now.calls[0]), "the first of them"
    for illegal in (Returned(id="1.1", text="done"), Finished(status="completed", output="done")):
        refuse(now, illegal)
    now = apply(now, Returned(id="1.0", text="done"))
    assert [message.role for message in now.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert plan(now, BOUNDS) == Finish(status="completed", output="done")


def test_a_call_that_guardrails_refuse_for_good_ends_the_run_and_says_why() -> None:
    now = apply(state(call("new")), guarded("tool", "refused", then="continue", id="1.0"))
    assert now == state(call("new")), "the judgement says what becomes of it"
    now = apply(now, guarded("tool", "refused", then="end", id="1.0"))
    assert now.refusal is not None
    now = apply(now, judged("reject", then="end"))
    assert (plan(now, BOUNDS), told(now)) == (Finish(status="rejected"), [("rejected", "no")])


# What else is pure


def test_a_turn_closes_when_its_last_call_has_settled() -> None:
    open_ = state(call("settled"), call("ready", "1.1"))
    assert close_turn(open_) is open_
    assert close_turn(state()) == state()
    closed = close_turn(state(call("settled"), call("settled", "1.1")))
    assert (closed.calls, len(told(closed))) == ((), 2)


def test_an_outcome_for_a_call_that_is_not_there_is_refused() -> None:
    refuse(state(call("ready")), CallStarted(id="7.7", attempt=1, at=AT), "acting", "7.7")
    refuse(state(call("ready")), Judged(judgements=judged("run", "1.1").judgements), "acting", "1.1")


def test_what_an_agent_never_does_is_refused_in_every_state() -> None:
    """A state goes on by itself in a graph; an agent's goes on by what its model says."""
    never = [outcome for _, outcome in drawn.OUTCOMES if not any(type(outcome) in legal for legal in TABLE.values())]
    assert {type(outcome).__name__ for outcome in never} == {"Advanced"}
    for now in (state(), state(call("ready")), state(call("failed")), state(call("settled"), call("settled", "1.1"))):
        for outcome in never:
            refuse(now, outcome, phase(now))
    refuse(state(), decided("edit", "ckpt"), "asking")
    refuse(state(call("ready")), decided("edit", "ckpt"), "nothing waits under ckpt")


def test_settled_calls_are_left_as_they_are_where_the_rules_are_those_of_another() -> None:
    """Another rule set takes calls from here, and says itself what follows once all have settled."""
    now = state(call("started"))
    done = CallSettled(id="1.0", call_id="call-1.0", key="k", result=drawn.DONE)
    folded = fold(now, done)
    assert ([(each.id, each.status) for each in folded.calls], told(folded)) == ([("1.0", "settled")], [])
    assert close_turn(folded) == apply(now, done)
    assert told(apply(now, done)) == [("completed", "done")]


def test_a_checkpoint_with_a_journal_is_brought_up_to_date() -> None:
    started = CallStarted(id="1.0", attempt=1, at=AT)
    settled = CallSettled(id="1.0", call_id="call-1.0", key="k", result=drawn.DONE)
    sealed = state(call("ready"))
    assert current(sealed) is sealed
    journaled = sealed.evolve(journal=(started, settled))
    assert current(journaled) == after(sealed, started, settled)
    assert plan(journaled, BOUNDS) == AskModel()
    assert current(journaled, lambda now, outcome: now) == sealed


def test_a_seal_goes_on_from_the_last_checkpoint() -> None:
    now = seal(state(label="here", step=4), id="next", at=AT + timedelta(seconds=1))
    assert (now.id, now.parent_id, now.step, now.label) == ("next", "ckpt", 5, None)
    assert now.created_at == AT + timedelta(seconds=1)


def test_a_key_is_that_of_the_call_and_changes_with_nothing_else() -> None:
    now = state(call("ready"))
    key = idempotency_key(now, now.calls[0])
    assert len(key) == 32
    assert idempotency_key(now.evolve(id="other", branch_id="other", step=9), call("started", attempt=3)) == key
    assert idempotency_key(now, call("new"), DIGEST) == key
    others = [
        idempotency_key(now.evolve(run_id="r2"), now.calls[0]),
        idempotency_key(now.evolve(path="1.0"), now.calls[0]),
        idempotency_key(now.evolve(salt="s"), now.calls[0]),
        idempotency_key(now, call("ready", "1.1")),
        idempotency_key(now, call("new")),
    ]
    assert len({key, *others}) == 6


def test_the_key_of_a_node_is_that_of_all_it_sees() -> None:
    one, other = (state(call("ready"), kind="graph", state={"n": n}) for n in (1, 2))
    keys = [idempotency_key(now, now.calls[0]) for now in (one, one.evolve(step=9), other)]
    assert keys[0] == keys[1] != keys[2]


# The gate

APPROVED = {"approved": "ask-1.0", "pending_id": "ask-1.0"}


def free(**fields: Any) -> Any:
    """A ready call of a tool without a gate."""
    return call("ready", tool=FREE, digest=call_digest(FREE, drawn.ARGS), **fields)


def forged(now: Any) -> Checkpoint:
    """A state with a call in it that no record would be built of."""
    return state(free()).evolve(calls=(now,))


def test_a_call_without_a_gate_runs_and_an_approved_one_does() -> None:
    authorize(state(now := free()), now, FREE)
    done = apply(state(call("pending")), decided("approve"))
    authorize(done, done.calls[0], TOOL)
    started = apply(done, CallStarted(id="1.0", attempt=1, at=AT))
    authorize(started, started.calls[0], TOOL)


@pytest.mark.parametrize(
    ("now", "tool", "why"),
    [
        pytest.param(state(call("pending")), TOOL, "it is pending", id="pending"),
        pytest.param(state(call("settled"), call("ready", "1.1")), TOOL, "it is settled", id="settled"),
        pytest.param(state(call("ready")), TOOL, "none is recorded", id="never asked"),
        pytest.param(state(free()), TOOL, "none is recorded", id="gate tightened since"),
        pytest.param(state(free()), TOOL.evolve(gate="predicate"), "given a gate after", id="gate added since"),
        pytest.param(state(free(pending_id="ask-1.0")), FREE, "none is recorded", id="asked, and not approved"),
        pytest.param(state(free()), FREE.evolve(name="wipe"), "another tool", id="another name"),
        pytest.param(state(free()), FREE.evolve(source="mcp"), "another tool", id="another source"),
        pytest.param(state(free()), FREE.evolve(path="2.0"), "another tool", id="another agent"),
        pytest.param(forged(free().evolve(args=None)), FREE, "another tool", id="no arguments"),
        pytest.param(
            forged(free().evolve(digest="f" * 64)), FREE, "not the ones that were judged", id="another digest"
        ),
        pytest.param(state(call("ready", **APPROVED)), TOOL, "no recorded approval", id="approval made up"),
        pytest.param(
            state(call("ready", approved="ask-1.0", pending_id="ask-2"), decisions=(decided("approve").decision,)),
            TOOL,
            "no recorded approval",
            id="approval of another occurrence",
        ),
        pytest.param(
            state(call("ready", **APPROVED), decisions=(decided("reject").decision,)),
            TOOL,
            "no recorded approval",
            id="rejected",
        ),
        pytest.param(
            state(call("ready", **APPROVED), decisions=(decided("approve", args={"amount": 3}).decision,)),
            TOOL,
            "no recorded approval",
            id="other arguments were approved",
        ),
        pytest.param(
            state(call("ready", **APPROVED), decisions=(decided("approve").decision.evolve(digest="f" * 64),)),
            TOOL,
            "no recorded approval",
            id="something else was shown",
        ),
    ],
)
def test_the_gate_lets_nothing_else_run(now: Checkpoint, tool: ToolIdentity, why: str) -> None:
    """Law 1."""
    with pytest.raises(NotAuthorized, match=why) as caught:
        authorize(now, now.calls[0], tool)
    assert (caught.value.run_id, caught.value.call_id) == ("run", "call-1.0")


def test_the_gate_knows_only_calls_of_the_state() -> None:
    with pytest.raises(NotAuthorized, match="not a call of this run"):
        authorize(state(call("ready", "1.1")), free(), FREE)


# Forking


def test_a_fork_asks_anew_for_what_was_approved_and_has_not_run() -> None:
    """One approval never runs two branches."""
    before = apply(state(call("pending"), call("pending", "1.1"), call("settled", "1.2")), decided("approve"))
    now = branch_off(
        before,
        id="fork",
        branch_id="b2",
        at=AT + timedelta(days=1),
        salt="s",
        ids={"1.0": "new-0", "1.1": "new-1"},
        nested={},
    )
    assert (now.id, now.parent_id, now.branch_id, now.salt, now.step) == ("fork", "ckpt", "b2", "s", 1)
    assert [(item.id, item.requested_at) for item in now.pending] == [
        ("new-0", AT + timedelta(days=1)),
        ("new-1", AT + timedelta(days=1)),
    ]
    assert statuses(now) == [("1.0", "pending"), ("1.1", "pending"), ("1.2", "settled")]
    with pytest.raises(NotAuthorized):
        authorize(now, now.calls[0], TOOL)


@pytest.mark.parametrize(
    ("status", "fields", "becomes"),
    [
        ("ready", {"approved": "yes"}, "pending"),
        ("started", {"approved": "yes", "attempt": 1}, "pending"),
        ("failed", {"approved": "yes"}, "pending"),
        ("nested", {"approved": "yes"}, "pending"),
        ("settled", {"approved": "yes"}, "settled"),
        # To let a run go on at a breakpoint approves of nothing.
        ("ready", {"approved": "go", "why": "breakpoint"}, "pending"),
        ("nested", {"approved": "go", "why": "breakpoint", "tool": FREE}, "ready"),
        # A call that a predicate has let run is judged anew. A call about which nobody is ever asked is not.
        ("ready", {"tool": ASKED}, "new"),
        ("failed", {"tool": ASKED}, "new"),
        ("nested", {"tool": ASKED, "waiting": (QUESTION,)}, "new"),
        ("started", {"tool": ASKED, "attempt": 1}, "started"),
        ("failed", {"tool": FREE}, "failed"),
        ("ready", {"tool": FREE}, "ready"),
    ],
)
def test_a_fork_keeps_no_approval_of_a_call_that_has_not_settled(
    status: CallStatus, fields: dict[str, Any], becomes: str
) -> None:
    tool = fields.get("tool", TOOL)
    digest = call_digest(tool, drawn.ARGS)
    of = call(status, digest=digest, pending_id=fields.get("approved"), requested_at=AT, **fields)
    assert is_asked_anew(of) == (becomes == "pending")
    yes = decided("approve", of.approved or "yes").decision
    ids = {of.id: "again"} if is_asked_anew(of) else {}
    before, others = state(of, decisions=(yes,)), {"branch_id": "b2", "at": AT, "salt": "", "ids": ids, "nested": {}}
    fork = branch_off(before, id="fork", **others)
    [now] = fork.calls
    [under_policy] = branch_off(before, id="fork", **others, policies=("pay", "re*")).calls
    assert under_policy.status == ("new" if becomes in ("failed", "ready") else becomes)
    assert (now.status, now.waiting) == (becomes, ())
    if becomes == "pending":
        assert (now.pending_id, now.approved, fork.decisions) == ("again", None, ())
        assert now.attempt == (0 if status == "failed" else of.attempt)
    if becomes == "new":
        assert (now.arguments, now.tool, now.args, now.pending_id, now.attempt) == (drawn.ARGS, None, None, None, 0)


def test_a_fork_forgets_what_was_decided_for_a_nested_run_and_not_told_yet() -> None:
    told = decided("approve", "inner", path="1.0")
    before = apply(state(call("nested", waiting=(INNER, OTHER)), call("started", "1.1")), told)
    asks = PendingApproval(**{**vars(INNER), "id": "fresh", "args": {"amount": 5}})
    inside = SimpleNamespace(pending=(asks,))
    facts: dict[str, Any] = {"id": "fork", "branch_id": "b2", "at": AT, "salt": "", "ids": {}}
    now = branch_off(before, **facts, nested={"1.0": inside})
    assert (statuses(now)[0], now.pending, now.decisions) == (("1.0", "nested"), (asks,), ())
    now = branch_off(before, **facts, nested={"1.0": SimpleNamespace(pending=())})
    assert (statuses(now)[0], now.pending, now.decisions) == (("1.0", "ready"), (), ())


def test_a_failed_result_is_told_as_it_is() -> None:
    result = CallResult(kind="failed", content="it broke")
    now = apply(state(call("started")), CallSettled(id="1.0", call_id="call-1.0", key="k", result=result))
    assert told(now) == [("failed", "it broke")]
    assert isinstance(failed("model"), CallFailed)
