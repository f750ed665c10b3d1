"""Calls that continue where they stopped: their body asked or waited, or their nested run did. That begins no new attempt."""

from __future__ import annotations

from phronomy.records.calls import CallStarted, CallWaits, Outcome, Withdrawn
from phronomy.records.checkpoint import Checkpoint


class StoppedCalls:
    """The calls that have stopped and have not started again, by the log. `base` is the checkpoint that a reader begins at."""

    def __init__(self, base: Checkpoint | None) -> None:
        self._stopped: set[tuple[str, str]] = set()
        for part in (*base.nested, base) if base is not None else ():
            stopped = [call.id for call in part.calls if call.stopped and call.status in ("nested", "ready")]
            self._stopped.update((part.path, id) for id in stopped)

    def resumes(self, path: str, outcome: Outcome, row: Checkpoint | None) -> bool:
        """Take note of a journal entry, and say whether it is the start of a call that goes on. `row` is the checkpoint before it."""
        match outcome:
            case CallStarted() if (path, outcome.id) in self._stopped:
                self._stopped.discard((path, outcome.id))
                return True
            case CallWaits():
                self._stopped.add((path, outcome.id))
            case Withdrawn() if row is not None:  # it did not start: the next start continues it
                stopped = {call.id for call in row.calls if call.stopped}
                self._stopped.update((path, id) for id in outcome.ids if id in stopped)
            case _:
                pass
        return False

    def closed(self, path: str) -> None:
        """A turn of this run is over, and all its calls have their results."""
        self._stopped = {each for each in self._stopped if each[0] != path}
