"""Messages in a run beside the model's replies: later ones of users and approvers, and their changes by guardrails and humans.

A part of the rules: it changes run state, and nothing in it acts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from phronomy.errors import IllegalOutcome
from phronomy.foundation.json_text import JsonText, canonical
from phronomy.records.calls import Added, Call, Guarded, Unguarded
from phronomy.records.chain import written_by
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision
from phronomy.records.messages import Conversation
from phronomy.records.principals import Principal
from phronomy.records.record import EMPTY

HANDLER: Final = "handler"
"""The channel of a decision that an approval handler took."""


def is_ending(state: Checkpoint) -> bool:
    """Whether the run only waits for what is under way, and then ends."""
    return state.ending is not None or state.rejecting or state.skipping


def added(state: Checkpoint, outcome: Added, phase: str) -> Checkpoint:
    """The state of a run in which a user said more. It waits until the results that it must stand behind are there."""
    # A message that was sent by itself may come at any time, whatever the run does then. An answer that is there was given without it.
    # If guardrails have yet to look at that, they do so first: it stays in the conversation.
    why = closed(state) if outcome.id is None else _over(state)
    if why is not None:
        raise IllegalOutcome(phase, "Added", why)
    return written_by(state, outcome.by).evolve(added=(*state.added, outcome))


def _over(state: Checkpoint) -> str | None:
    """Why nobody reads a message any more; None if somebody does."""
    return "it ends" if state.ended is not None or is_ending(state) else None


def with_authors(state: Checkpoint, decision: Decision, call: Call | None) -> Checkpoint:
    """The state with those whose words the model reads by a decision on this call: they have asked for what it asks next.

    Without a call, it is on the state of a graph.
    """
    for author in _authors_of(decision, call):
        state = written_by(state, author)
    return state


def _authors_of(decision: Decision, call: Call | None) -> Sequence[Principal | None]:
    """Who has given the words of a decision; None for somebody of whom nobody knows."""
    if decision.authors:
        return decision.authors
    # The model reads how the call was edited. Who did that has the first vote on what it became, and others may have approved of it.
    if decision.kind == "approve" and decision.__dict__["args"] is None:
        first = decision.votes[:1] if call is not None and call.edited else ()
        return [who for vote in first for who in (vote.by, vote.behalf_of) if who is not None]
    says = decision.kind in ("approve", "respond", "edit") or (decision.kind == "reject" and decision.reason)
    if not says or (decision.by is None and call is not None and _is_of_program(decision, call)):
        return []
    return [decision.by] if decision.behalf_of is None else [decision.by, decision.behalf_of]


def _is_of_program(decision: Decision, call: Call) -> bool:
    """True if no person need have given an answer: a handler, an event or a clock did, or a tool that is carried out elsewhere."""
    item = next((each for each in call.waiting if each.id == decision.pending_id), None)
    tool = call.tool if item is None else item.tool
    fired = item is not None and not item.asks_human
    return fired or decision.channel == HANDLER or (decision.kind == "respond" and tool is not None and tool.external)


def closed(state: Checkpoint) -> str | None:
    """Why nothing more can be said to the agent where the run stands; None if it can."""
    if (why := _over(state)) is not None:
        return why
    # Until then a human at a breakpoint can edit the input itself. There is one way to change what a run is asked, and it keeps the
    # original (law 11).
    if state.turn == 0:
        return "its model has not answered yet"
    answered = not state.messages or state.messages[-1].role == "assistant"
    # The answer is there, and is about to be recorded. What came after it would be answered by nobody, and stand at the end of the
    # thread for the next run to stumble over.
    return "it has its answer" if answered and all(call.gate for call in state.calls) else None


def said_on(state: Checkpoint) -> Checkpoint:
    """The state with what was said meanwhile in the conversation: up to the first message that guardrails have yet to look at."""
    # One at a time where guardrails look: each sees its own message as the last of the conversation, and what it refuses can be
    # taken out again without moving another.
    # Not before the first reply: until then the input is the last message, which a guardrail or a human may change.
    while state.added and state.unguarded is None and state.turn > 0:
        first = state.added[0]
        messages = Conversation.of(state.messages).plus(first.message)
        unguarded: Unguarded | None = "message" if first.guarded else None
        added, unread = state.added[1:], (*state.unread, first)
        state = state.evolve(messages=messages, added=added, unread=unread, unguarded=unguarded)
    return state


def before_reply(state: Checkpoint, read: int | None) -> Checkpoint:
    """The state as the model was shown it: messages that came while it was asked wait behind its reply."""
    late = min(len(state.messages) - read, len(state.unread)) if read is not None else 0
    if late <= 0:
        return state.evolve(unread=()) if state.unread else state
    messages = Conversation(state.messages[:-late])
    unguarded = None if state.unguarded == "message" else state.unguarded
    added = (*state.unread[-late:], *state.added)
    return state.evolve(messages=messages, added=added, unread=(), unguarded=unguarded)


def guarded(state: Checkpoint, outcome: Guarded, phase: str) -> Checkpoint:
    """What guardrails refuse is no part of the conversation that goes on. Of a call, the judgement says what becomes of it."""
    if outcome.stage == "tool":
        ends = outcome.refusal is not None and outcome.refusal.then == "end"
        return state.evolve(refusal=outcome.refusal) if ends else state
    looked = "input" if state.unguarded == "message" else state.unguarded
    # A row that says of the output what was said of the input would let an answer out that no guardrail has seen.
    if looked != outcome.stage:
        raise IllegalOutcome(phase, "Guarded", f"no {outcome.stage} waits for guardrails")
    # The message is taken out of the conversation, not only marked: the next run of the thread begins with these messages, and
    # would read it.
    if outcome.refusal is not None:
        messages = Conversation(state.messages[:-1])
        return state.evolve(messages=messages, unread=(), unguarded=None, refusal=outcome.refusal, rejecting=True)
    content, begins = outcome.__dict__["content"], state.unguarded == "input"
    state = state.evolve(unguarded=None)
    if content is None:
        return state
    if begins:
        return with_input(state, content)
    return _with_last(state, "assistant", content) if looked == "output" else _with_last(state, "user", _text(content))


def without_unguarded(state: Checkpoint) -> Checkpoint:
    """The state of a run that ends before its last message was heard: what guardrails have not seen is no part of the conversation.

    Neither is the input of a run that a human skipped before the model was asked.
    """
    messages = state.messages
    # A run can end, cancelled or failed, while guardrails have yet to look. Then nobody vouches for the last message (law 6). And a
    # human who skips a run takes back what it was asked: the next run of the thread would answer it otherwise.
    if state.unguarded is not None or (state.skipping and state.turn == 0):
        messages = Conversation(messages[:-1])
    if more := [each.message for each in state.added if not each.guarded]:
        messages = Conversation.of(messages).plus(*more)
    return state.evolve(messages=messages, unguarded=None, added=(), unread=())


def with_input(state: Checkpoint, value: JsonText) -> Checkpoint:
    """The state of a run that goes on from another input. What it was asked first is kept."""
    return _with_last(state.evolve(new_input=value), "user", _text(value))


def _text(value: JsonText) -> JsonText:
    """The content of a message that is given this input: a mapping is its text."""
    return canonical(str(value)) if value[:1] == "{" else value


def _with_last(state: Checkpoint, role: Any, content: Any) -> Checkpoint:
    said = state.messages[-1].evolve(role=role, content=content, provider=EMPTY)
    return state.evolve(messages=Conversation((*state.messages[:-1], said)))
