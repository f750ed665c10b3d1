"""Draws `transitions.md` from the rules: `python docs/transitions.py`. A test fails while the page is out of date.

Nothing in the page is typed in by hand: each outcome is applied to a specimen of each state, and what comes of it is drawn.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from phronomy.approvals import Decision, PendingApproval, Point, Principal, ToolIdentity, Vote, call_digest
from phronomy.checkpoint import AgentRef, Checkpoint
from phronomy.errors import IllegalOutcome
from phronomy.messages import Message, ToolCall
from phronomy.records.calls import gate_identity
from phronomy.rules.table import GRAPHS, TABLE, phase
from phronomy.rules.transitions import apply
from phronomy.triggers import KeptEvent, Trigger
from phronomy.types import (
    Added,
    Advanced,
    Arrived,
    Call,
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
    Judgement,
    Narrowed,
    Outcome,
    OutputRefused,
    Refusal,
    Reminded,
    Replied,
    Returned,
    Voted,
    Withdrawn,
)

PAGE = Path(__file__).with_name("transitions.md")

AT = datetime(2026, 1, 1, tzinfo=UTC)
TOOL = ToolIdentity(name="refund", schema_hash="0" * 64, gate="always")
ARGS = '{"amount":5}'
DIGEST = call_digest(TOOL, ARGS)
DONE = CallResult(kind="completed", content="done")
ANSWER = CallResult(kind="completed", content="done", answer="done")
INNER = PendingApproval(
    id="inner", call_id="i", tool=TOOL, args={"amount": 5}, digest=DIGEST, path="1.0", requested_at=AT
)
QUESTION = INNER.evolve(id="question", path="", why="question")
WAIT = QUESTION.evolve(trigger=Trigger(kind="event", wait="wait", wait_for="all", name="paid", event="payment"))
OTHER = QUESTION.evolve(id="other", trigger=Trigger(kind="time", wait="wait", wait_for="all", name="late", due_at=AT))
EVENT = KeptEvent(id="event", name="payment", content=5, by=Principal(id="bank"), at=AT)
GATE = gate_identity("", "pre_model_call")
SHOWN = call_digest(GATE, '{"input":"go"}')


def call(status: CallStatus, id: str = "1.0", **fields: Any) -> Call:
    """A call of this status, with what a call of that status has."""
    if status == "new":
        return Call(id=id, call_id=f"call-{id}", name="refund", arguments=ARGS, **fields)
    facts: dict[str, Any] = {"tool": TOOL, "args": {"amount": 5}, "digest": DIGEST, **fields}
    if status in ("asking", "pending", "answered"):
        facts = {"pending_id": f"ask-{id}", "requested_at": AT, "why": "approval", **facts}
    if status == "nested":
        facts = {"waiting": (INNER,), **facts}
    if status == "failed":
        facts = {"why": "failed", "reason": "broken", "attempt": 1, **facts}
    if status == "settled":
        facts = {"result": DONE, **facts}
    return Call(id=id, call_id=f"call-{id}", name="refund", status=status, **facts)


def gate(point: Point | None = "pre_model_call", **fields: Any) -> Call:
    """A stop of the run at a point, or from outside."""
    name = point or "operator"
    facts = {"name": name, "status": "pending", "gate": True, "tool": GATE, "args": {"input": "go"}, "digest": SHOWN}
    asked = {"pending_id": "halt", "requested_at": AT, "why": "breakpoint", "point": point}
    return Call(id=f"{name}@0", call_id=f"{name}@0", **{**facts, **asked, **fields})


def state(*calls: Call, **fields: Any) -> Checkpoint:
    """A run with these calls open; without any, the model is to be asked."""
    said = [Message(role="user", content="go")]
    if asked := tuple(ToolCall(id=each.call_id, name=each.name, arguments=ARGS) for each in calls if not each.gate):
        said.append(Message(role="assistant", content=None, tool_calls=asked))
    facts = {"messages": tuple(said), "calls": calls, "turn": 1 if asked else 0, **fields}
    return Checkpoint(
        id="ckpt", run_id="run", branch_id="run", created_at=AT, agent=AgentRef(name="a"), original_input="go", **facts
    )


def reply(*calls: ToolCall, text: str | None = None) -> Replied:
    """A reply of the model."""
    return Replied(message=Message(role="assistant", content=text, tool_calls=calls))


def judged(verdict: str, id: str = "1.0", **fields: Any) -> Judged:
    """The verdict on a call."""
    facts: dict[str, Any] = {"tool": TOOL, "args": {"amount": 5}, "digest": DIGEST, **fields}
    if verdict in ("ask", "pend"):
        facts = {"pending_id": f"ask-{id}", "requested_at": AT, **facts}
    if verdict in ("reject", "invalid"):
        facts = {"result": CallResult(kind="rejected" if verdict == "reject" else "invalid", content="no"), **facts}
    return Judged(judgements=(Judgement(id=id, verdict=verdict, **facts),))


def decided(kind: str, pending_id: str = "ask-1.0", **fields: Any) -> Decided:
    """A decision on what waits under a pending id."""
    return Decided(decision=Decision(pending_id=pending_id, kind=kind, at=AT, **{"digest": DIGEST, **fields}))


def voted(pending_id: str = "ask-1.0", *, again: bool = False) -> Voted:
    """A vote on what waits under a pending id; `again`: it was checked by a worker, so the request stands under a new id."""
    vote = Vote(kind="approve", digest=DIGEST, by=Principal(id="ada"), at=AT)
    decision = Decision(pending_id=pending_id, kind="approve", digest=DIGEST, at=AT, votes=(vote,))
    return Voted(decision=decision, request=judged("pend", pending_id="again").judgements[0] if again else None)


def passed(kind: str, **fields: Any) -> Decided:
    """A decision on a stop at a point."""
    return decided(kind, "halt", digest=SHOWN, **fields)


def guarded(stage: str, said: str = "passed", **fields: Any) -> Guarded:
    """What a guardrail said; `then` is for calls."""
    refusal = Refusal(stage=stage, guardrail="g", code="no", message="no", then=fields.pop("then", "continue"))
    return Guarded(stage=stage, said={"g": said}, refusal=refusal if said == "refused" else None, **fields)


def failed(next: str) -> CallFailed:
    """An attempt that failed."""
    request = {"pending_id": "again", "requested_at": AT} if next == "human" else {}
    return CallFailed(id="1.0", error="broken", next=next, **request)


GIVEN = Decision(pending_id="ask-1.0", kind="approve", at=AT, digest=DIGEST, args={"amount": 4}, judged=False)

ADDED = Added(message=Message(role="user", content="and more"), at=AT)

ENDING = Ending(status="cancelled", at=AT)

ANSWERED = (Message(role="user", content="go"), Message(role="assistant", content="gone"))

LATER = state(
    messages=(
        Message(role="user", content="go"),
        Message(role="assistant", content=None, tool_calls=(ToolCall(id="c", name="refund", arguments=ARGS),)),
        Message(role="tool", content="done", tool_call_id="c", settlement="completed"),
    ),
    turn=1,
)
SAID = LATER.evolve(messages=(*LATER.messages, ADDED.message), unguarded="message")

STATES = {
    "asking": [state(), state(unguarded="input"), LATER, SAID],
    "paused": [state(gate(None)), state(gate(None), turn=1)],
    "acting": [],  # the states of the calls, below
    "finishing": [
        state(messages=ANSWERED, turn=1),
        state(messages=ANSWERED, unguarded="output", turn=1),
        state(ending=ENDING),
        state(skipping=True),
        state(rejecting=True),
    ],
    "ended": [state(ended="completed")],
    "call new": [state(call("new"))],
    "call asking": [state(call("asking"))],
    "call pending": [
        state(call("pending")),
        state(call("pending", why="breakpoint", asked_by=("",))),
        state(call("pending", why="outcome_unknown", waiting=(INNER,))),
        state(gate()),
    ],
    "call answered": [
        state(call("answered"), decisions=(GIVEN,)),
        state(call("answered", why="breakpoint", asked_by=("",)), decisions=(GIVEN,)),
        state(call("answered"), decisions=(GIVEN.evolve(kind="respond"),)),
        state(call("answered", why="outcome_unknown", waiting=(INNER,)), decisions=(GIVEN,)),
    ],
    "call ready": [
        state(call("ready")),
        state(call("ready", waiting=(INNER,))),
        state(call("ready"), rejecting=True),
    ],
    "call started": [
        state(call("started")),
        state(call("started", repeatable=True)),
        state(call("started", waiting=(INNER,))),
        state(call("started"), ending=ENDING),
        state(call("started"), call("ready", "1.1")),
    ],
    "call nested": [
        state(call("nested")),
        state(call("nested", waiting=(QUESTION,))),
        state(call("nested", waiting=(WAIT, OTHER))),
    ],
    "call failed": [state(call("failed")), state(call("failed", waiting=(INNER,)))],
    "call settled": [state(call("settled"), call("ready", "1.1")), state(call("settled", result=ANSWER))],
}
"""Specimens of every state. Where a call is at stake it is the first."""

OUTCOMES: list[tuple[str, Outcome]] = [
    ("Replied with text", reply(text="gone")),
    ("Replied with calls", reply(ToolCall(id="c", name="refund", arguments=ARGS))),
    ("Judged: run", judged("run")),
    ("Judged: ask the handler", judged("ask")),
    ("Judged: a human must decide", judged("pend")),
    ("Judged: rejected", judged("reject")),
    ("Judged: rejected, and end the run", judged("reject", then="end")),
    ("Judged: invalid", judged("invalid")),
    ("Deferred", Deferred(pending_ids=("ask-1.0",))),
    ("Decided: approve", decided("approve")),
    (
        "Decided: approve other arguments, without the agent's code",
        decided("approve", args={"amount": 4}, judged=False),
    ),
    ("Decided: a breakpoint is passed, and the handler is asked", decided("approve", asks="next")),
    ("Decided: reject", decided("reject")),
    ("Decided: reject, and end the run", decided("reject", then="end")),
    ("Decided: respond", decided("respond", content="done")),
    ("Decided: cancel, expire or supersede", decided("expire")),
    ("Decided: skip", decided("skip")),
    ("Decided: the stop is passed", passed("approve")),
    ("Decided: the stop is passed, with another input", passed("approve", args={"input": "stay"})),
    ("Decided: the stop is skipped", passed("skip")),
    ("Decided: the stop is rejected", passed("reject")),
    ("Decided: the stop expires", passed("expire")),
    ("Decided, for a nested run", decided("approve", "inner")),
    ("Decided: a question is answered", decided("respond", "question", content="yes")),
    ("Decided: a question is rejected", decided("reject", "question")),
    ("Decided: a trigger has fired, and others of its wait have not", decided("respond", "other")),
    ("Voted", voted()),
    ("Voted, for a nested run", voted("inner")),
    ("Voted: an answer was checked, and takes more votes", voted(again=True)),
    ("Reminded", Reminded(pending_id="ask-1.0", what="reminded", step=0, at=AT)),
    ("Reminded, for a nested run", Reminded(pending_id="inner", what="escalated", step=0, at=AT)),
    ("CallStarted", CallStarted(id="1.0", attempt=1, at=AT)),
    ("Withdrawn", Withdrawn(ids=("1.0",))),
    ("CallSettled", CallSettled(id="1.0", call_id="call-1.0", key="k", result=DONE)),
    ("CallFailed: try again", failed("retry")),
    ("CallFailed: try the fallback", failed("fallback")),
    ("CallFailed: tell the model", failed("model")),
    ("CallFailed: ask a human", failed("human")),
    ("CallFailed: stop the run", failed("stop")),
    ("CallUnknown", CallUnknown(id="1.0", reason="lost", pending_id="again", requested_at=AT)),
    ("CallWaits", CallWaits(id="1.0", pending=(INNER,))),
    ("CallWaits, for an answer", CallWaits(id="1.0", pending=(QUESTION,))),
    ("Interrupted", Interrupted(pending_ids={"1.0": "again"}, at=AT)),
    ("Arrived", Arrived(event=EVENT)),
    ("Narrowed", Narrowed(scopes=())),
    ("Added", ADDED),
    ("Added, for guardrails to look at", ADDED.evolve(guarded=True)),
    ("Added, sent by itself", ADDED.evolve(id="msg")),
    ("Ending", ENDING),
    ("OutputRefused", OutputRefused(error="no")),
    ("Returned", Returned(id="1.0", text="done")),
    ("Returned, for guardrails to look at", Returned(id="1.0", text="done", guarded=True)),
    ("Advanced", Advanced(state={}, at=AT)),
    ("Halted from outside", Halted(pending_id="stop", at=AT)),
    ("Halted at a breakpoint", Halted(pending_id="stop", point="pre_model_call", key="pre_model_call@1", at=AT)),
    ("Guarded: the input passes", guarded("input")),
    ("Guarded: the input is changed", guarded("input", "transformed", content="stay")),
    ("Guarded: the input is refused", guarded("input", "refused")),
    ("Guarded: the reply passes", guarded("output")),
    ("Guarded: the reply is changed", guarded("output", "transformed", content="left")),
    ("Guarded: the reply is refused", guarded("output", "refused")),
    ("Guarded: a call passes", guarded("tool", id="1.0")),
    ("Guarded: a call is refused, and ends the run", guarded("tool", "refused", then="end", id="1.0")),
    ("Finished", Finished(status="completed", output="gone")),
    ("Finished: rejected", Finished(status="rejected")),
    ("Finished: cancelled", Finished(status="cancelled")),
    ("Finished: skipped", Finished(status="skipped")),
]
"""Every outcome, in the ways that it can turn out; those of calls are for the first call."""


def next_states() -> Iterator[tuple[str, str, str, Outcome]]:
    """Each state, an outcome that is legal there in words, the state that follows, and the outcome."""
    for name, specimens in STATES.items():
        for specimen in specimens:
            for words, outcome in OUTCOMES:
                try:
                    after = apply(specimen, outcome)
                except IllegalOutcome:
                    continue
                then = phase(after)
                if name.startswith("call "):
                    yield "acting", words, then, outcome
                    mine = next((each for each in after.calls if each.id == specimen.calls[0].id), None)
                    then = f"call {mine.status if mine is not None else 'settled'}"
                yield name, words, then, outcome


def rows(states: list[str]) -> list[str]:
    """A table of these states: what is legal, and what follows."""
    seen: dict[tuple[str, str], dict[str, None]] = {}
    for name, words, then, outcome in next_states():
        if type(outcome) in TABLE[name]:
            seen.setdefault((name, words), {})[then.removeprefix("call ")] = None
    lines = ["| state | outcome | then |", "|---|---|---|"]
    for name in states:
        mine = [(words, thens) for (state, words), thens in seen.items() if state == name]
        lines += [f"| {name.removeprefix('call ')} | {words} | {' or '.join(thens)} |" for words, thens in mine]
        lines += [f"| {name.removeprefix('call ')} | none | |"] * (not mine)
    return lines


def diagram(states: list[str]) -> list[str]:
    """The states and what leads from one to the next, as mermaid draws it."""
    arrows: dict[tuple[str, str], dict[str, None]] = {}
    for name, _, then, outcome in next_states():
        if name in states and name != then:
            arrows.setdefault((name, then), {})[type(outcome).__name__] = None
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {states[0].removeprefix('call ')}"]
    for (name, then), why in arrows.items():
        lines.append(f"    {name.removeprefix('call ')} --> {then.removeprefix('call ')}: {', '.join(why)}")
    return [*lines, f"    {states[-1].removeprefix('call ')} --> [*]", "```"]


def legal(states: list[str], table: Mapping[str, Container[type]] = TABLE) -> list[str]:
    """The table itself: a row for each outcome, a column for each state."""
    names = [name.removeprefix("call ") for name in states]
    lines = [f"| outcome | {' | '.join(names)} |", "|---|" + ":-:|" * len(names)]
    for kind in get_args(Outcome):
        if any(kind in table[name] for name in states):
            marks = ["●" if kind in table[name] else "" for name in states]
            lines.append(f"| {kind.__name__} | {' | '.join(marks)} |")
    return lines


def never(states: list[str]) -> list[str]:
    """The outcomes that are legal in none of these states."""
    return [f"`{kind.__name__}`" for kind in get_args(Outcome) if not any(kind in TABLE[name] for name in states)]


def page() -> str:
    """The whole page."""
    runs = [name for name in TABLE if not name.startswith("call ")]
    calls = [name for name in TABLE if name.startswith("call ")]
    lines = [
        "# Transitions",
        "",
        "This page is for people who work on the core, and for authors of stores. It shows which outcome is legal in which state,",
        "and which state follows. `python docs/transitions.py` makes the page from the rules. An illegal outcome raises",
        "`IllegalOutcome`, which names the outcome and the state, and changes nothing. Legal for [graphs](#a-graph) alone:",
        f"{', '.join(never(list(TABLE)))}.",
        "",
        "## A run",
        "",
        "| state | meaning |",
        "|---|---|",
        "| `asking` | the model is asked next |",
        "| `paused` | somebody stopped the run from outside, before or during a model call |",
        "| `acting` | calls of the last reply are open |",
        "| `finishing` | the end is recorded next |",
        "| `ended` | the run has ended |",
        "",
        *diagram(runs),
        "",
        *legal(runs),
        "",
        *rows(runs),
        "",
        "## A call",
        "",
        "In the state `acting`, an outcome about a call must also be legal in the state of that call. These three outcomes change all",
        "calls of a run at once, so the diagram has them too: `Interrupted` (the worker was lost, or a run with failed calls is",
        "resumed), `Ending` (the run was cancelled or superseded) and `Finished`. `Halted`, `Guarded` and `Added` change no call.",
        "The entry for a breakpoint between two steps (in the code, a gate) is a pending call that never runs. The decision",
        "settles the entry.",
        "",
        *diagram(calls),
        "",
        *legal(calls),
        "",
        *rows(calls),
        "",
        "## A graph",
        "",
        "A graph asks no model, so what a model says is legal in no state of it. It is `asking` where the nodes that come next are to",
        "be found, and `acting` as long as nodes of a wave are open, or have settled and are still to be read. `Advanced` says which",
        "nodes come next. `Decided` is there where somebody changes the state of the graph. Its nodes go the way of any call.",
        "",
        *legal(list(GRAPHS), GRAPHS),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
