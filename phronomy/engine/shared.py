"""What a run and all runs nested in it share while one worker drives them.

A run inside a call has a chain of its own, and a `Runner` of its own. But all of them are one run to a human: one claim covers
them, one refusal may end them all, and one Ctrl-C leaves them all. What is true of all at once is here, and nowhere else. It is known
to this process alone. After a crash the next worker reads from the log what of the run is here (refusals, ends, results, runs inside);
who looks on and who waits was of the process that is gone.

Several threads read and write this at the same time, where calls of one reply run side by side. Most attributes are set as a whole, or
are dicts of which single items are put and taken, or which are copied in one step before they are gone through. The time by which
to leave is changed in several steps, so it has a lock.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol

from phronomy.concurrency.leaving import Leave
from phronomy.concurrency.pieces import Inner
from phronomy.concurrency.superfluous import Signal, Wanted
from phronomy.models.base import Model, ModelReply, ModelRequest
from phronomy.records.calls import CallResult, Decided, Ending, Halted, Outcome
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision
from phronomy.stops.breakpoints import Breakpoint

_NOTHING: Final = nullcontext()


def _unheard(path: str, model: Model, said: ModelRequest | ModelReply) -> None:
    """Nobody looks on."""


class Driven(Protocol):
    """A run inside a call, as far as those around it look at it."""

    @property
    def state(self) -> Checkpoint:
        """Where it stands now."""
        ...

    @property
    def stored(self) -> Checkpoint:
        """The last stored state of the run. It is reported if the run fails or is left."""
        ...


class Shared:
    """What is known of a run as a whole, by the worker that drives it and the runs nested in it."""

    def __init__(self, head: Checkpoint) -> None:
        # The runs inside calls, by path: as they stood when they last stopped, and those that are driven now.
        self.nested: dict[str, Checkpoint] = {part.path: part for part in head.nested}
        self.driven: dict[str, Driven] = {}

        # What became of calls of this run in its other branches. A call that has a result there is not run again (law 4), and one that
        # was begun there, without an end, is put to a human (law 5). Both are by idempotency key: a call that differs has another.
        self.reusable: dict[str, CallResult] = {}
        self.begun: set[str] = set()

        # What a human refused for good, wherever in the run, by pending id: no agent of the run may ask for it again.
        self.refused: dict[str, Decision] = {}
        self.ended_by: Decision | None = None  # what a human refused so that all of the run ends

        # The places of calls that their tool reads otherwise than they were shown: they are asked about again before they run.
        self.stale: set[str] = set()

        # The schemas of tools that a human is asked about, by their hash: stored with the request, once for each tenant, so that
        # somebody who has the store alone can show a form, and edit.
        self.texts: dict[str, str] = {}

        # What others wrote to the log: the end of the run, or a stop of it. Runs inside learn of both here alone, since such an entry
        # is in the journal of the root.
        self.ending: Ending | None = None
        self.halted: Halted | None = None

        # Who waits for something, and is told that nobody needs it any more. `leave` is for those in a tool, when the grace of a stop
        # is over; `over` for those who wait for a model, when the run was ended, or this worker has lost it.
        self.wanted: Wanted = Wanted()
        self.leave: Leave = Leave()
        self.over: Leave = Leave()
        self._lock = threading.RLock()
        self._leave_by = math.inf

        # Who looks on: breakpoints of the call that drives the run, hooks around each body and at each exchange with a model, and the
        # stream, which takes what happens inside in the order of the log.
        self.breakpoints: Iterable[Breakpoint] = ()
        self.surround: Callable[[str, str], AbstractContextManager[object]] | None = None
        self.exchanged: Callable[[str, Model, ModelRequest | ModelReply], object] = _unheard
        self.hear: Callable[[Any], object] | None = None
        self.heard: deque[Inner] | None = None

    def around(self, path: str, call_id: str) -> AbstractContextManager[object]:
        """What hooks put around the body of a call."""
        return _NOTHING if self.surround is None else self.surround(path, call_id)

    def notice(self, outcomes: Iterable[Outcome]) -> None:
        """Take note of what others wrote, as far as it is about all of the run.

        The keeper's thread calls this too, in the middle of whatever runs: a tool can ask whether it is still needed long before the
        loop comes to read the log.
        """
        for outcome in outcomes:
            if isinstance(outcome, Ending):
                self.ending = outcome
                self.call_off()
            elif isinstance(outcome, Decided) and outcome.decision.ends_all:
                self.end_by(outcome.decision)
            elif isinstance(outcome, Halted):
                self.halted = self.halted or outcome
                self._leave_in(outcome)

    def _leave_in(self, halted: Halted) -> None:
        """Have what runs be left when the grace of a stop is over. Of several stops, the one in more of a hurry counts."""
        if halted.grace is None:
            return
        by = halted.at.timestamp() + halted.grace
        with self._lock:
            if by < self._leave_by:
                self._leave_by = by
                self.leave.after(halted.grace)

    def end_by(self, decision: Decision) -> None:
        """Take note of a refusal that ends all of the run: no model is waited for any more."""
        self.ended_by = decision
        self.over.now()

    def signal(self, path: str) -> Signal:
        """The signal for the call at a path, set when nobody waits for its result any more."""
        return Signal(self.wanted, path)

    def call_off(self) -> None:
        """Tell whatever runs that nobody waits for it: the run was ended."""
        self.wanted.dismiss_all()
        self.over.now()

    def lose(self) -> None:
        """Tell whatever runs that this worker has the run no longer. A stop of it is for the next worker to keep."""
        self.leave.after(None)
        self.call_off()
