"""The rules of the run that the calls of a body are: each is judged, asked about, run and settled as a call of a model is.

No model is asked in it. The body makes the calls, and goes on with their results; so nothing follows when they have settled, and the
run ends when the body does.
"""

from __future__ import annotations

from collections.abc import Set

from phronomy.errors import IllegalOutcome
from phronomy.foundation.json_text import object_of
from phronomy.records.calls import Advanced, Finished, Outcome
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.moves import Done, Move, Wait
from phronomy.rules.added_messages import is_ending
from phronomy.rules.table import phase
from phronomy.rules.transitions import Rules, finish_of, fold, plan_calls, settle_unstarted

KIND = "calls"
"""The kind of such a run."""


def plan(state: Checkpoint, spec: Rules) -> Move:
    """The next move for the calls of a body. If no call is open, the run waits for the body."""
    if state.ended is not None:
        return Done(status=state.ended)
    if any(call.result is None for call in state.calls):
        return plan_calls(state, spec)
    return finish_of(state) if is_ending(state) else Wait(pending=())


def apply(state: Checkpoint, outcome: Outcome) -> Checkpoint:
    """The next state. Calls that have settled stay, since the body asks for their results again when it runs again."""
    if isinstance(outcome, Advanced):
        return _called(state, outcome)
    if isinstance(outcome, Finished) and outcome.status == "completed":
        if is_ending(state) or state.ended is not None or any(call.result is None for call in state.calls):
            raise IllegalOutcome(phase(state), "Finished", "calls of the body are open, or it was ended")
        return state.evolve(ended=outcome.status)
    return fold(state, outcome)


def made_alone(state: Checkpoint, made: Set[str]) -> Checkpoint:
    """The state as it is to be planned from: of the open calls, those alone that the body has made in its present run."""
    calls = tuple([call for call in state.calls if call.gate or call.result is not None or call.id in made])
    return state.evolve(calls=calls)


def _called(state: Checkpoint, outcome: Advanced) -> Checkpoint:
    # The worker may have been lost after the body had ended, and before that was written: then it runs again.
    if is_ending(state) or state.ended not in (None, "completed"):
        raise IllegalOutcome(phase(state), "Advanced", "the run ends")
    left = object_of(outcome.state)
    given_up = [id for id in object_of(state.state) if id not in left]
    state = settle_unstarted(state, "cancelled", "given up", given_up) if given_up else state
    calls, made = (*state.calls, *outcome.calls), outcome.__dict__["state"]
    return state.evolve(calls=calls, state=made, ended=None, called=state.called + len(outcome.calls))
