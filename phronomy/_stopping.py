"""Ending and pausing a run from outside: the methods that agents and graphs share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic

from phronomy import _session
from phronomy._hold import driven
from phronomy._ledger import call as in_store
from phronomy._opening import Opening
from phronomy._options import CallOptions
from phronomy._runner import Spec
from phronomy.approvals import Principal
from phronomy.checkpoint import Checkpoint
from phronomy.errors import CheckpointError
from phronomy.result import Output, Result
from phronomy.tools import Deps


class Stopping(Opening, Generic[Deps, Output]):
    """The methods that stop runs which anybody may drive, in any process."""

    @abstractmethod
    def _for_call(self, options: CallOptions[Deps], method: str | None) -> tuple[Spec, Any]:
        """The configuration for one call of this method, and its deps. A sync method refuses what is async; None runs nothing."""

    def cancel(
        self,
        run: Checkpoint | str,
        *,
        reason: str | None = None,
        by: str | Principal | None = None,
    ) -> Result[Output]:
        """End a run: by checkpoint, checkpoint id, run id or branch id. Every open call is settled as cancelled.

        A run that another worker holds is told, and ends at its next boundary; the status of the result is then `running`. Raises
        `CheckpointAlreadyResumed` if the run has ended.
        """
        spec, deps = self._for_call({}, None)
        runner = self._act_on(spec, deps, run, _session.cancelling(self.store, reason, by))
        return runner if isinstance(runner, Result) else driven(runner)

    async def acancel(
        self,
        run: Checkpoint | str,
        *,
        reason: str | None = None,
        by: str | Principal | None = None,
    ) -> Result[Output]:
        """As `cancel`."""
        return await in_store(self.store, self.cancel, run, reason=reason, by=by)

    def pause(
        self,
        run: Checkpoint | str,
        *,
        grace: float | None = None,
        reason: str | None = None,
        by: str | Principal | None = None,
    ) -> Result[Output]:
        """Stop a run from outside, in any process: by checkpoint, checkpoint id, run id or branch id. `resume(checkpoint)` goes on.

        Nothing new begins. What the model is saying is waited for, and so are tools, and agents inside. Nodes that run, in graphs
        inside too, are waited for `grace` seconds at most, None: for as long as they take; what still runs then is left: an
        idempotent node runs again on resume, any other is put to a human as `outcome_unknown`. A run that another worker drives is
        told, and the status of the result is `running` then: `store.wait` waits for it. One that waits already is returned as it is.
        Raises `CheckpointAlreadyResumed` if the run has ended, and `CheckpointError` for a run of another kind.
        """
        spec, deps = self._for_call({}, None)
        home = self._store_of(run)
        branch, head = home.head(_session.branch_of(home, run, bearer=self._bearer))
        if head.kind != spec.kind:
            raise CheckpointError(
                f"run {branch.run_id} is of {head.kind} {head.agent.name!r}, and this is a {spec.kind}: pause it with its own"
            )
        runner = self._act_on(spec, deps, run, _session.halting(self.store, grace, reason, by))
        return runner if isinstance(runner, Result) else driven(runner)

    async def apause(
        self,
        run: Checkpoint | str,
        *,
        grace: float | None = None,
        reason: str | None = None,
        by: str | Principal | None = None,
    ) -> Result[Output]:
        """As `pause`."""
        return await in_store(self.store, self.pause, run, grace=grace, reason=reason, by=by)
