"""The decisions that were taken with the store alone, and are told before what is carried out by them.

Such a decision is an entry of the journal, and a checkpoint shows it only later: the call that it approves may have run by then. So it
is told with the beginning of that call. A worker that was told of it while it drives the run writes a checkpoint first.
"""

from phronomy.records.calls import Call, Decided, Outcome
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision


class LeftDecisions:
    """The decisions in the journal of the outermost run since its last checkpoint, and which of them were told."""

    def __init__(self) -> None:
        self._left: list[Decision] = []
        self._told: set[str] = set()

    def journaled(self, outcome: Outcome) -> None:
        """Take note of a decision in the journal."""
        if isinstance(outcome, Decided):
            self._left.append(outcome.decision)

    def before(self, state: Checkpoint | None, call_id: str) -> list[Decision]:
        """The decisions to tell before a call begins: those on it, on what waits inside it, and on stops before it."""
        calls = state.calls if state is not None else ()
        ids = {id for call in calls if call.id == call_id or call.gate for id in _asked(call)}
        found = [each for each in self._left if each.pending_id in ids]
        self._left = [each for each in self._left if each.pending_id not in ids]
        self._told |= {each.pending_id for each in found}
        return found

    def sealed(self) -> set[str]:
        """The ids of the requests whose decisions were told before this checkpoint shows them."""
        told, self._told = self._told, set()
        self._left.clear()
        return told


def _asked(call: Call) -> set[str]:
    """The ids of the requests that a call waits for."""
    inside = {item.id for item in call.waiting}
    return inside if call.pending_id is None else inside | {call.pending_id}
