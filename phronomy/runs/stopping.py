"""Ending and pausing a run from outside, and sending messages to it: the methods that agents and graphs share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic

from phronomy.conversation.input import read_input
from phronomy.engine.spec import Spec
from phronomy.errors import CheckpointError, ConfigurationError
from phronomy.records.calls import Input
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.principals import Principal
from phronomy.records.result import Output, Result
from phronomy.runs.driving import driven
from phronomy.runs.finding import lookup
from phronomy.runs.opening import Opening
from phronomy.runs.options import CallOptions
from phronomy.stores.derived import sending
from phronomy.stores.native import in_store
from phronomy.tools.context import Deps


class Stopping(Opening, Generic[Deps, Output]):
    """The methods that stop runs from outside, whichever process drives them."""

    @abstractmethod
    def _for_call(self, options: CallOptions[Deps], method: str | None) -> tuple[Spec, object]:
        """The configuration for one call of this method, and its deps. A sync method refuses what is async; None runs nothing."""

    def cancel(
        self,
        run: Checkpoint | str,
        *,
        reason: str | None = None,
        by: str | Principal | None = None,
        seen: Checkpoint | None = None,
    ) -> Result[Output]:
        """End a run: by checkpoint, checkpoint id, run id or branch id. Every open call is settled as cancelled.

        If another worker holds the run, that worker ends it at its next boundary, and the status of the result is
        `running`. Raises `CheckpointAlreadyResumed` if the run has ended. `seen` is a checkpoint of the run that somebody
        was shown: if the run waits for other requests by now, nothing is done, and it raises `InvalidDecision`.
        """
        spec, deps = self._for_call({}, None)
        # No tool runs by this: open calls are settled, and the end is recorded. So it works without the deps, and with an agent
        # that has changed.
        runner = self._act_on(spec, deps, run, lookup.cancelling(self.store, reason, by), seen=seen)
        return runner if isinstance(runner, Result) else driven(runner)

    async def acancel(
        self,
        run: Checkpoint | str,
        *,
        reason: str | None = None,
        by: str | Principal | None = None,
        seen: Checkpoint | None = None,
    ) -> Result[Output]:
        """The async twin of `cancel`."""
        # In a thread: a store that waits for its server must not hold up everything else on the loop.
        return await in_store(self.store, self.cancel, run, reason=reason, by=by, seen=seen)

    def send(
        self,
        run: Checkpoint | str | None,
        message: Input,
        *,
        thread_id: str | None = None,
        by: str | Principal | None = None,
        channel: str | None = None,
        id: str | None = None,
    ) -> Checkpoint:
        """Send a message to a run that waits or works; the model reads it with its next call, after the results of open calls.

        Name the run by a checkpoint, a checkpoint id, a run id, a branch id, or its `thread_id`, and None. The message is stored
        at once, and drives nothing. It decides nothing: what waits goes on waiting, and whoever wrote counts as one who
        asked for the run (`not_requester`). If the run is about to finish, the model is asked again. Input guardrails look
        at the message first. A message that is sent again with the same `id` is stored once. Returns the
        checkpoint where the run stands. The message is stored behind that checkpoint, as a decision is: if you resume
        it, the model reads the message, but a `fork`, `restore` or `write_to` of it begins without.

        Raises `CheckpointAlreadyResumed` if the run has ended or is ending, `InvalidDecision` if the message is empty or
        the `id` is that of another message, `TooManyMessages` if the model has 100 messages to read, of one sender 50, and
        `ConfigurationError` for the run of a graph or team.
        """
        spec, _ = self._for_call({}, None)
        said = read_input(message)[1]
        home = self._store_of(run)
        if (run is None) == (thread_id is None):
            raise ConfigurationError("send takes a checkpoint or a run, or else a thread_id: nothing was sent")
        here = run if run is not None else home.current(thread_id or "")
        branch_id = lookup.branch_of(home, here, bearer=self._bearer)
        return sending.send(home, branch_id, said, by=by, channel=channel, id=id, guarded=bool(spec.input_guardrails))

    async def asend(
        self,
        run: Checkpoint | str | None,
        message: Input,
        *,
        thread_id: str | None = None,
        by: str | Principal | None = None,
        channel: str | None = None,
        id: str | None = None,
    ) -> Checkpoint:
        """The async twin of `send`."""
        return await in_store(self.store, self.send, run, message, thread_id=thread_id, by=by, channel=channel, id=id)

    def pause(
        self,
        run: Checkpoint | str,
        *,
        grace: float | None = None,
        reason: str | None = None,
        by: str | Principal | None = None,
        seen: Checkpoint | None = None,
    ) -> Result[Output]:
        """Stop a run from outside, so that `resume(checkpoint)` can continue it later.

        Name the run by a checkpoint, a checkpoint id, a run id or a branch id. Nothing new starts, also in nested
        agents and graphs: each stops at its next boundary. The run finishes the model calls and the tool calls that are
        under way. It waits at most `grace` seconds for running nodes, also in nested graphs (None: no limit). It does
        not wait for a node that still runs after that: an idempotent node runs again on resume, and any other node
        waits for a human as `outcome_unknown`.

        If another worker drives the run, that worker pauses it, and the status of the result is `running`; use
        `store.wait` to wait for it. A run that already waits is returned unchanged. Raises `CheckpointAlreadyResumed`
        if the run has ended, and `CheckpointError` for a run of another kind. `seen` is as for `cancel`.
        """
        spec, deps = self._for_call({}, None)
        home = self._store_of(run)
        # Read before anything is written: a pause of the wrong run must leave no trace in it (law 15).
        # A graph leaves nodes that run, and an agent waits for its tools: a run is stopped by its own rules, or not at all.
        branch, head = home.head(lookup.branch_of(home, run, bearer=self._bearer))
        if head.kind != spec.kind:
            raise CheckpointError(
                f"run {branch.run_id} is of {head.kind} {head.agent.name!r}, and this is a {spec.kind}: pause it with its own"
            )
        runner = self._act_on(spec, deps, run, lookup.halting(self.store, grace, reason, by), seen=seen)
        return runner if isinstance(runner, Result) else driven(runner)

    async def apause(
        self,
        run: Checkpoint | str,
        *,
        grace: float | None = None,
        reason: str | None = None,
        by: str | Principal | None = None,
        seen: Checkpoint | None = None,
    ) -> Result[Output]:
        """The async twin of `pause`."""
        return await in_store(self.store, self.pause, run, grace=grace, reason=reason, by=by, seen=seen)
