"""The table of a run: every state, every outcome that is legal in it, and every state that may follow.

The state of a run is its `phase`:

- `asking`: the model is to be asked; of a graph, that what comes next is to be found.
- `paused`: the model is to be asked, but somebody has stopped the run first.
- `acting`: calls are open. Then each of them has a state of its own, its status, and an outcome that concerns a call has to be legal
  for the call as well.
- `finishing`: the model has answered, or the run was ended from outside; the end is to be recorded.
- `ended`: nothing follows any more.

An outcome that is not in the table raises `IllegalOutcome`, and changes nothing. Where an outcome may lead to several states, what is
in it decides: the same `Decided` opens a gate, or ends the run. `docs/transitions.py` applies every outcome to specimens of every
state, and a test compares what comes of it with this table, both ways: no state follows that is not here, and none is here that never
follows.

Why a table, and not a check in each function. A worker that was frozen, a bearer with an edited text, and a bug in the engine all come
with an outcome at the wrong time. What may happen to them is decided here, in one place, and can be read on one page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from phronomy.records.calls import (
    Added,
    Advanced,
    Arrived,
    CallFailed,
    CallSettled,
    CallStarted,
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
    Replied,
    Returned,
    Voted,
    Withdrawn,
)
from phronomy.records.checkpoint import Checkpoint

Phase: TypeAlias = Literal["asking", "paused", "acting", "finishing", "ended"]
"""Where a run stands."""

Row: TypeAlias = Mapping[type[Outcome], tuple[str, ...]]
"""The outcomes that are legal in one state, and the states that may follow."""

TABLE: Final[Mapping[str, Row]] = {
    "asking": {
        Replied: ("acting", "finishing"),
        Added: ("asking",),
        Arrived: ("asking",),
        Narrowed: ("asking",),
        Guarded: ("asking", "finishing"),
        Halted: ("paused", "acting"),
        Interrupted: ("asking",),
        Ending: ("finishing",),
    },
    "paused": {
        # The model was asked before the stop was written, and the answer is paid for. It is kept, and nothing that it asks for begins.
        Replied: ("acting",),
        Added: ("paused",),
        Arrived: ("paused",),
        Narrowed: ("paused",),
        Decided: ("asking", "finishing"),
        Halted: ("paused", "acting"),
        Interrupted: ("paused",),
        Ending: ("finishing",),
    },
    "acting": {
        # These twelve concern a call, and have to be legal for it too. So a forged or late row about one call does nothing to another.
        Judged: ("acting", "asking", "finishing"),
        Deferred: ("acting",),
        Decided: ("acting", "asking", "finishing"),
        Voted: ("acting",),
        Reminded: ("acting",),
        CallStarted: ("acting",),
        CallSettled: ("acting", "asking", "finishing"),
        CallFailed: ("acting", "asking", "finishing"),
        CallUnknown: ("acting", "finishing"),
        CallWaits: ("acting", "finishing"),
        Withdrawn: ("acting", "finishing"),
        Returned: ("finishing",),
        Added: ("acting", "asking"),  # the model answers what was said, and not the result of a call
        Arrived: ("acting",),
        Narrowed: ("acting",),
        Guarded: ("acting",),
        Halted: ("acting",),
        Interrupted: ("acting", "finishing"),
        Ending: ("acting", "finishing"),
        Finished: ("ended",),  # of a refusal that ends the run while calls are open; none of them may have begun
    },
    "finishing": {
        OutputRefused: ("asking", "finishing"),
        Added: ("asking", "finishing"),  # it was sent before the end is stored, so the model answers it first
        Arrived: ("finishing",),
        Narrowed: ("finishing",),
        Guarded: ("finishing",),
        Halted: ("acting", "finishing"),
        Interrupted: ("finishing",),
        Ending: ("finishing",),
        Finished: ("ended",),
    },
    # A worker that was frozen, and writes after another has ended the run, is refused here even where the store lets its write pass.
    "ended": {},
    "call new": {Judged: ("call ready", "call asking", "call pending", "call settled")},
    "call asking": {Deferred: ("call pending",), Decided: ("call ready", "call settled")},
    "call pending": {
        # Pending still: it was for a run inside it.
        Decided: ("call pending", "call ready", "call asking", "call answered", "call settled"),
        Voted: ("call pending",),  # it takes more people
        Reminded: ("call pending",),
        Judged: ("call pending",),  # a decision that was taken around it did not follow, and it is asked about anew
    },
    # A human has answered where the agent's code was not. Whoever has that code checks the answer: it counts, or is asked for anew.
    "call answered": {
        Decided: ("call answered", "call ready", "call asking", "call settled"),
        Judged: ("call pending",),
        Voted: ("call answered", "call pending"),
        Reminded: ("call answered",),  # of what waits inside it
    },
    # What a run inside the call waits for may be decided one by one; after the first of them the call is ready again.
    "call ready": {
        # Its tool has changed, and reads it otherwise: it is judged anew, and asked about again.
        Judged: ("call ready", "call asking", "call pending", "call settled"),
        CallStarted: ("call started",),
        Decided: ("call ready",),
        Voted: ("call ready",),
        Reminded: ("call ready",),
    },
    "call started": {
        CallSettled: ("call settled",),
        CallFailed: ("call ready", "call new", "call pending", "call failed", "call settled"),
        CallUnknown: ("call pending", "call settled"),
        CallWaits: ("call nested", "call settled"),
        Withdrawn: ("call ready", "call settled"),
        Decided: ("call started",),  # for a run inside it, from another worker
        Voted: ("call started",),
        Reminded: ("call started",),
    },
    "call nested": {
        # Nested still: a wait goes on that ends with the last of its triggers.
        Decided: ("call nested", "call ready", "call settled"),
        Voted: ("call nested",),
        Reminded: ("call nested",),
    },
    "call failed": {Decided: ("call ready",)},
    "call settled": {Returned: ("call settled",)},  # all have settled, and its result is the answer of the run
}
"""The table of an agent's run, and of the calls of any run."""

_NO_GRAPH: Final = frozenset({Replied, Returned, Added, OutputRefused})
"""Outcomes that come from a model, or are said to one. A graph asks none: it goes on by what its nodes have made of its state."""

_OF_GRAPHS: Final[Mapping[str, frozenset[type[Outcome]]]] = {
    # No node is open: what comes next is found, or there is nothing more, or somebody changes the state of the graph.
    "asking": frozenset({Advanced, Decided, Finished}),
    # The nodes of a wave have all settled, and are still there to be read.
    "acting": frozenset({Advanced}),
    # The run was cancelled while this was worked out. It is kept, and the run ends all the same.
    "finishing": frozenset({Advanced, Decided}),
}

GRAPHS: Final[Mapping[str, frozenset[type[Outcome]]]] = {
    state: (frozenset(TABLE[state]) - _NO_GRAPH) | _OF_GRAPHS.get(state, frozenset())
    # A graph has no conversation, so it is never paused before a model call. A forged text can have one, and needs an answer too.
    for state in ("asking", "paused", "acting", "finishing", "ended")
}
"""What is legal in each state of a graph's run. Its calls are nodes, and go the way of any call; the rest follows from its edges."""


def phase(state: Checkpoint) -> Phase:
    """Where the run stands."""
    if state.ended:
        return "ended"
    if state.calls:
        # A stop from outside can stand alone, before the model was asked again. Then the run is paused rather than acting: when it
        # goes on, the model is next, and not a call.
        replied = not state.messages or state.messages[-1].role == "assistant"
        return "acting" if replied or not all(call.is_pause for call in state.calls) else "paused"
    if state.ending or state.rejecting or state.skipping or (state.messages and state.messages[-1].role == "assistant"):
        return "finishing"
    return "asking"
