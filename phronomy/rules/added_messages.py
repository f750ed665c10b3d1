"""What is said in a run beside the model's replies: what users say later on, and what guardrails and humans make of what was said.

A part of the rules: it changes run state, and nothing in it acts.
"""

from __future__ import annotations

from typing import Any

from phronomy.errors import IllegalOutcome
from phronomy.foundation.json_text import JsonText, canonical
from phronomy.records.calls import Added, Guarded
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.messages import Conversation
from phronomy.records.record import EMPTY


def is_ending(state: Checkpoint) -> bool:
    """Whether the run only waits for what is under way, and then ends."""
    return state.ending is not None or state.rejecting or state.skipping


def added(state: Checkpoint, outcome: Added, phase: str) -> Checkpoint:
    """The state of a run in which a user said more. It waits until the results that it must stand behind are there."""
    if (why := closed(state)) is not None:
        raise IllegalOutcome(phase, "Added", why)
    return state.evolve(added=(*state.added, outcome))


def closed(state: Checkpoint) -> str | None:
    """Why nothing more can be said to the agent where the run stands; None if it can."""
    if state.ended is not None or is_ending(state):
        return "it ends"
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
    while state.added and state.unguarded is None:
        first = state.added[0]
        messages = Conversation.of(state.messages).plus(first.message)
        state = state.evolve(messages=messages, added=state.added[1:], unguarded="message" if first.guarded else None)
    return state


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
        return state.evolve(messages=messages, unguarded=None, refusal=outcome.refusal, rejecting=True)
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
    return state.evolve(messages=messages, unguarded=None, added=())


def with_input(state: Checkpoint, value: JsonText) -> Checkpoint:
    """The state of a run that goes on from another input. What it was asked first is kept."""
    return _with_last(state.evolve(new_input=value), "user", _text(value))


def _text(value: JsonText) -> JsonText:
    """The content of a message that is given this input: a mapping is its text."""
    return canonical(str(value)) if value[:1] == "{" else value


def _with_last(state: Checkpoint, role: Any, content: Any) -> Checkpoint:
    said = state.messages[-1].evolve(role=role, content=content, provider=EMPTY)
    return state.evolve(messages=Conversation((*state.messages[:-1], said)))
