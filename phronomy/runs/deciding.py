"""Deciding what waits, by its pending id or for a whole run: the methods that agents and graphs share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from typing_extensions import Unpack

from phronomy.engine.drive import asteps, steps
from phronomy.errors import AlreadyVoted, CheckpointAlreadyResumed, RunBusy
from phronomy.records.calls import Input
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Answer, Approve
from phronomy.records.principals import Principal, as_principal
from phronomy.records.result import Output, Result
from phronomy.runs.driving import aheld, held
from phronomy.runs.finding import pending, results
from phronomy.runs.finding.decisions import Choice, check_choice, check_repeatable
from phronomy.runs.on_class import OnClass
from phronomy.runs.options import CallOptions
from phronomy.runs.stopping import Stopping
from phronomy.stores.native import in_store
from phronomy.tools.context import Deps


class Deciding(Stopping[Deps, Output]):
    """The methods that decide, and then continue the run."""

    @OnClass
    @abstractmethod
    def resume(
        self,
        checkpoint: Checkpoint | str,
        *,
        approved: bool | None = None,
        reason: str | None = None,
        decisions: Mapping[str, Answer] | None = None,
        input: Input | None = None,
        by: str | Principal | None = None,
        channel: str | None = None,
        accept_changes: bool = False,
        write_to: str | None = None,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """Continue a run with these decisions."""

    @OnClass
    @abstractmethod
    async def aresume(
        self,
        checkpoint: Checkpoint | str,
        *,
        approved: bool | None = None,
        reason: str | None = None,
        decisions: Mapping[str, Answer] | None = None,
        input: Input | None = None,
        by: str | Principal | None = None,
        channel: str | None = None,
        accept_changes: bool = False,
        write_to: str | None = None,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """The async twin of `resume`."""

    @abstractmethod
    def recover(
        self, run: Checkpoint | str, *, accept_changes: bool = False, **options: Unpack[CallOptions[Deps]]
    ) -> Result[Output]:
        """Continue a run whose worker is gone."""

    @abstractmethod
    async def arecover(
        self, run: Checkpoint | str, *, accept_changes: bool = False, **options: Unpack[CallOptions[Deps]]
    ) -> Result[Output]:
        """The async twin of `recover`."""

    def decide(
        self,
        pending_id: str,
        answer: Answer,
        *,
        input: Input | None = None,
        by: str | Principal | None = None,
        digest: str | None = None,
        channel: str | None = None,
        key: str | None = None,
        accept_changes: bool = False,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """Decide one pending approval by its id, in whichever run it waits, and continue that run as `resume` does.

        Pass the `digest` of the request that the human saw: then the approval is decided only if it still has this
        digest. `key` is an idempotency key: the same decision with the same key is recorded once, and the run is
        continued if nobody drives it. If another worker drives it, the status of the result is `running`. `input` is as
        in `resume`. Raises what `resume` raises. With nothing recorded, raises `UnknownPending` for an unknown id and
        `InvalidDecision` for another digest.
        """
        spec, deps = self._for_call(options, "decide")
        decided = {pending_id: answer}
        choice = Choice(None, None, decided, as_principal(by), channel, accept_changes, input, key)
        check_choice(choice)
        check_repeatable(choice)
        try:
            # Found by the id, then decided as any other. Between the two somebody may be first, and then it is
            # `CheckpointAlreadyResumed` as ever.
            listed = pending.asked_under(self.store, spec, pending_id, digest)
            # The list has shown it, and the log runs it: the two are compared, whether the caller names a digest or not.
            choice = replace(choice, listed=listed.approval)
            runner = self._open(spec, deps, listed.checkpoint_id, choice)
        except CheckpointAlreadyResumed as error:
            branch_id = pending.decided_before(self.store, pending_id, digest, choice, error)
            try:
                return self.recover(branch_id, accept_changes=accept_changes, **options)
            except RunBusy:
                return pending.under_way(self.store, branch_id)
        except AlreadyVoted as error:
            return pending.voted_before(self.store, pending_id, choice, error)
        if isinstance(runner, Result):
            return runner
        with held(runner) as watch:
            for moment in steps(runner):
                watch.hear(moment)
        return results.answer_of(runner)

    async def adecide(
        self,
        pending_id: str,
        answer: Answer,
        *,
        input: Input | None = None,
        by: str | Principal | None = None,
        digest: str | None = None,
        channel: str | None = None,
        key: str | None = None,
        accept_changes: bool = False,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """The async twin of `decide`."""
        spec, deps = self._for_call(options, "adecide")
        decided = {pending_id: answer}
        choice = Choice(None, None, decided, as_principal(by), channel, accept_changes, input, key)
        check_choice(choice)
        check_repeatable(choice)
        try:
            listed = await in_store(self.store, pending.asked_under, self.store, spec, pending_id, digest)
            choice = replace(choice, listed=listed.approval)
            runner = await self._aopen(spec, deps, listed.checkpoint_id, choice)
        except CheckpointAlreadyResumed as error:
            branch_id = await in_store(
                self.store, pending.decided_before, self.store, pending_id, digest, choice, error
            )
            try:
                return await self.arecover(branch_id, accept_changes=accept_changes, **options)
            except RunBusy:
                return await in_store(self.store, pending.under_way, self.store, branch_id)
        except AlreadyVoted as error:
            return await in_store(self.store, pending.voted_before, self.store, pending_id, choice, error)
        if isinstance(runner, Result):
            return runner
        async with aheld(runner) as watch:
            async for moment in asteps(runner):
                watch.hear(moment)
        return results.answer_of(runner)

    def approve_all(
        self,
        run: Checkpoint | str | None = None,
        *,
        thread_id: str | None = None,
        by: str | Principal | None = None,
        channel: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        accept_changes: bool = False,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """Approve all pending approvals of a run in one write, and continue the run.

        Name the run by a checkpoint, a checkpoint id, a run id, a branch id, or its `thread_id`. Questions,
        breakpoints, failed calls, calls of unknown outcome and expired requests stay pending. If somebody decides one
        of the approvals at the same moment, none is approved. `metadata`, a JSON object of at most 16 KB, is kept with
        each of the decisions. Raises what `resume` raises, and `UnknownPending` if there is nothing to approve.
        """
        home = self._store_of(run)
        at, waiting = pending.approvals_at(home, run, thread_id, bearer=self._bearer)
        # One write for all of them. If one was decided in that moment, none counts: what the caller saw is not what waits.
        decided = dict.fromkeys(waiting, _approval_with(metadata))
        return self.resume(at, decisions=decided, by=by, channel=channel, accept_changes=accept_changes, **options)

    async def aapprove_all(
        self,
        run: Checkpoint | str | None = None,
        *,
        thread_id: str | None = None,
        by: str | Principal | None = None,
        channel: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        accept_changes: bool = False,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """The async twin of `approve_all`."""
        home = self._store_of(run)
        at, waiting = await in_store(home, pending.approvals_at, home, run, thread_id, bearer=self._bearer)
        decided = dict.fromkeys(waiting, _approval_with(metadata))
        return await self.aresume(
            at, decisions=decided, by=by, channel=channel, accept_changes=accept_changes, **options
        )


def _approval_with(metadata: Any) -> Approve:
    return Approve(metadata=metadata)
