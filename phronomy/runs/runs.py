"""What runs, stops and goes on: the methods that agents and graphs share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import Unpack

from phronomy.approvals.policy import DryRun
from phronomy.concurrency.aclosing import aclosing
from phronomy.conversation.input import History
from phronomy.engine.drive import asteps, steps
from phronomy.engine.ledger import Ledger
from phronomy.engine.run import Runner, Written
from phronomy.engine.spec import Spec
from phronomy.engine.stop_points import checked as checked_breakpoints
from phronomy.engine.stop_points import hits_in
from phronomy.errors import ConfigurationError
from phronomy.foundation.spelling import no_attribute
from phronomy.records.calls import Input
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Answer
from phronomy.records.principals import Principal, as_principal
from phronomy.records.result import Output, Result
from phronomy.records.scopes import NEEDED, scopes_in
from phronomy.records.validation import checked
from phronomy.runs import on_demand, recovery
from phronomy.runs.as_tool import AgentTool, AgentToolOptions
from phronomy.runs.deciding import Deciding
from phronomy.runs.driving import aclaim, aevents_of, aheld, claim, events_of, held
from phronomy.runs.finding import lookup, results
from phronomy.runs.finding.beginning import Beginning
from phronomy.runs.finding.decisions import Choice
from phronomy.runs.finding.drift import Drift, drift_of
from phronomy.runs.finding.dry_run import adry_run, dry_run
from phronomy.runs.on_class import OnClass
from phronomy.runs.options import CallOptions, OnPending
from phronomy.runs.recovery import Recovery
from phronomy.runs.stream import AsyncStream, Stream
from phronomy.runs.waiting import holding
from phronomy.stops.breakpoints import BreakpointHit
from phronomy.stores.base import Store
from phronomy.stores.derived import forking
from phronomy.stores.native import in_store, reading
from phronomy.stores.rows import Branch
from phronomy.tools.context import Deps

if TYPE_CHECKING:
    from phronomy.observability.events import Event

S = TypeVar("S", bound=Spec)


class Runs(Deciding[Deps, Output]):
    """The methods that start, resume, watch, fork and end runs in a store."""

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """The checked and fixed configuration. Raises `ConfigurationError` if it has a mistake."""

    if not TYPE_CHECKING:  # a type checker refuses what is not declared

        def __getattr__(self, name: str) -> object:
            raise no_attribute(self, name)

    def _with_stops(self, spec: S, options: CallOptions[Deps], method: str | None) -> S:
        """The configuration with the breakpoints of this call, how it waits at them, and its scopes."""
        changes: dict[str, Any] = {}
        if "breakpoints" in options:
            # Checked against the whole configuration, before anything runs (law 15).
            changes["breakpoints"] = checked_breakpoints(options["breakpoints"], spec, whole=True)
        if (hold := options.get("hold")) is not None:
            changes["hold"] = holding(hold, self, method, options)
        if "scopes" in options:
            changes["scopes"] = scopes_in(options["scopes"])
            if changes["scopes"] is None:
                raise ConfigurationError(f"scopes is {NEEDED}: nothing was done")
        return replace(spec, **changes) if changes else spec  # type: ignore[type-var]

    # Running

    @OnClass
    def invoke(
        self,
        input: Input,
        *,
        thread_id: str | None = None,
        messages: History | None = None,
        metadata: Mapping[str, Any] | None = None,
        label: str | None = None,
        requester: str | Principal | None = None,
        on_pending: OnPending = "refuse",
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """Run the agent until it has answered, or until a human must decide.

        With a `thread_id` that the store knows, the run starts with the messages of the latest ended run of the thread;
        `messages` replaces them. `metadata` and `label` are stored with the run, and so is the `requester`, the person
        or program that asked for it; whoever decides sees them. Raises `ThreadBusy` if the thread has
        a run that has not ended. `on_pending="supersede"` supersedes that run first; `"supersede_failed"` does so only
        if it stopped on a failure. `"ignore"` starts without any of the thread's messages, beside a run that has not
        ended: the thread is not read. Raises `RunFailed` or a subclass, such as `ModelError`, if the run fails: resume the
        checkpoint of the error.
        """
        spec, deps = self._for_call(options, "invoke")
        beginning = Beginning(
            input=input,
            thread_id=thread_id,
            history=messages,
            metadata=metadata,
            label=label,
            requester=requester,
            at_once=True,
        )
        runner = self._begin(spec, deps, beginning, on_pending)
        # These lines are in each method that runs tools, and not in one function: a frame less between the caller and what a tool
        # raises.
        with held(runner) as watch:
            for moment in steps(runner):
                watch.hear(moment)
        return results.answer_of(runner)

    @OnClass
    async def ainvoke(
        self,
        input: Input,
        *,
        thread_id: str | None = None,
        messages: History | None = None,
        metadata: Mapping[str, Any] | None = None,
        label: str | None = None,
        requester: str | Principal | None = None,
        on_pending: OnPending = "refuse",
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """The async twin of `invoke`."""
        spec, deps = self._for_call(options, "ainvoke")
        beginning = Beginning(
            input=input,
            thread_id=thread_id,
            history=messages,
            metadata=metadata,
            label=label,
            requester=requester,
            at_once=True,
        )
        runner = await self._abegin(spec, deps, beginning, on_pending)
        async with aheld(runner) as watch:
            async for moment in asteps(runner):
                watch.hear(moment)
        return results.answer_of(runner)

    @OnClass
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
        """Continue a run from a checkpoint, or from the id of a checkpoint, with the decisions that it waits for.

        `approved` decides the only request that people answer; if there are more, nothing is decided (`NothingDecided`).
        `decisions` decides any number of requests, by pending id, or by the id of a call if only one call has it. If
        nothing is pending, no decision is needed. `input` is a message for the agent; the model reads it after the
        results of the calls. With `write_to`, the id of a new branch, the run goes on
        in that branch, as in a fork, and the checkpoint's own branch does not change. If several people decide the same
        approval, one wins, and the others get `CheckpointAlreadyResumed`. Raises `DecisionError` or `CheckpointError`, with nothing
        changed; `AgentChanged` if the agent has changed, unless `accept_changes`; `RunBusy` if nothing is decided and
        another worker holds the run; `RunFailed`.
        """
        spec, deps = self._for_call(options, "resume")
        choice = Choice(
            approved, reason, decisions, as_principal(by), channel, accept_changes, input, write_to=write_to
        )
        runner = self._open(spec, deps, checkpoint, choice)
        if isinstance(runner, Result):
            return runner
        with held(runner) as watch:
            for moment in steps(runner):
                watch.hear(moment)
        return results.answer_of(runner)

    @OnClass
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
        spec, deps = self._for_call(options, "aresume")
        choice = Choice(
            approved, reason, decisions, as_principal(by), channel, accept_changes, input, write_to=write_to
        )
        runner = await self._aopen(spec, deps, checkpoint, choice)
        if isinstance(runner, Result):
            return runner
        async with aheld(runner) as watch:
            async for moment in asteps(runner):
                watch.hear(moment)
        return results.answer_of(runner)

    def step(
        self,
        at: Input | Checkpoint,
        *,
        thread_id: str | None = None,
        approved: bool | None = None,
        reason: str | None = None,
        decisions: Mapping[str, Answer] | None = None,
        by: str | Principal | None = None,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """Run from a checkpoint to the next boundary, or start a run and stop at its first checkpoint.

        If the status of the result is `running`, pass its checkpoint to `step` or `resume`. Decide pending approvals as
        in `resume`; the decision is a boundary of its own. Raises what `invoke` and `resume` raise.
        """
        spec, deps = self._for_call(options, "step")
        choice = Choice(approved, reason, decisions, as_principal(by), None, False)
        beginning = Beginning(input=at, thread_id=thread_id, history=None, metadata=None, label=None)
        runner = self._start(spec, deps, at, beginning, "refuse", choice)
        if isinstance(runner, Result):
            return runner
        with held(runner) as watch:
            runner.watched = True
            # A decision is a boundary of its own: whoever steps sees it recorded before anything follows from it.
            if isinstance(at, Checkpoint) and not choice.decides:
                with closing(steps(runner)) as moments:
                    for moment in moments:
                        watch.hear(moment)
                        if isinstance(moment, Written) and moment.checkpoint is not None:
                            break
        return results.answer_of(runner)

    async def astep(
        self,
        at: Input | Checkpoint,
        *,
        thread_id: str | None = None,
        approved: bool | None = None,
        reason: str | None = None,
        decisions: Mapping[str, Answer] | None = None,
        by: str | Principal | None = None,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """The async twin of `step`."""
        spec, deps = self._for_call(options, "astep")
        choice = Choice(approved, reason, decisions, as_principal(by), None, False)
        beginning = Beginning(input=at, thread_id=thread_id, history=None, metadata=None, label=None)
        runner = await self._astart(spec, deps, at, beginning, "refuse", choice)
        if isinstance(runner, Result):
            return runner
        async with aheld(runner) as watch:
            runner.watched = True
            if isinstance(at, Checkpoint) and not choice.decides:
                async with aclosing(asteps(runner)) as moments:
                    async for moment in moments:
                        watch.hear(moment)
                        if isinstance(moment, Written) and moment.checkpoint is not None:
                            break
        return results.answer_of(runner)

    @OnClass
    def stream(
        self,
        at: Input | Checkpoint,
        *,
        thread_id: str | None = None,
        messages: History | None = None,
        metadata: Mapping[str, Any] | None = None,
        label: str | None = None,
        requester: str | Principal | None = None,
        on_pending: OnPending = "refuse",
        approved: bool | None = None,
        reason: str | None = None,
        decisions: Mapping[str, Answer] | None = None,
        input: Input | None = None,
        by: str | Principal | None = None,
        channel: str | None = None,
        accept_changes: bool = False,
        write_to: str | None = None,
        **options: Unpack[CallOptions[Deps]],
    ) -> Stream[Output]:
        """Run as `invoke` does, or from a checkpoint as `resume` does, and yield each event as it happens.

        Approvals, limits and results are the same as without a stream. If the run waits for a human, the stream ends.
        If the run fails, the stream yields an event and then raises. Nothing runs before you take the first event.
        Taking the first event can raise what `invoke` or `resume` raises.
        """
        spec, deps = self._for_call(options, "stream")
        beginning = Beginning(
            input=at, thread_id=thread_id, history=messages, metadata=metadata, label=label, requester=requester
        )
        choice = Choice(
            approved, reason, decisions, as_principal(by), channel, accept_changes, input, write_to=write_to
        )

        def run(ended: list[Result[Output]]) -> Generator[Event]:
            runner = self._start(spec, deps, at, beginning, on_pending, choice)
            # A decision that was handed to the worker which holds the run: there is nothing to drive here, and no event to give.
            if isinstance(runner, Result):
                ended.append(runner)
                return
            # Closed whatever happens: a stream that is left open would keep the claim until the garbage collector comes.
            with closing(events_of(runner)) as events:
                for event in events:  # noqa: UP028  # as in the async twin
                    yield event
            ended.append(results.answer_of(runner))

        return Stream(run)

    @OnClass
    def astream(
        self,
        at: Input | Checkpoint,
        *,
        thread_id: str | None = None,
        messages: History | None = None,
        metadata: Mapping[str, Any] | None = None,
        label: str | None = None,
        requester: str | Principal | None = None,
        on_pending: OnPending = "refuse",
        approved: bool | None = None,
        reason: str | None = None,
        decisions: Mapping[str, Answer] | None = None,
        input: Input | None = None,
        by: str | Principal | None = None,
        channel: str | None = None,
        accept_changes: bool = False,
        write_to: str | None = None,
        **options: Unpack[CallOptions[Deps]],
    ) -> AsyncStream[Output]:
        """The async twin of `stream`."""
        spec, deps = self._for_call(options, "astream")
        beginning = Beginning(
            input=at, thread_id=thread_id, history=messages, metadata=metadata, label=label, requester=requester
        )
        choice = Choice(
            approved, reason, decisions, as_principal(by), channel, accept_changes, input, write_to=write_to
        )

        async def run(ended: list[Result[Output]]) -> AsyncGenerator[Event]:
            runner = await self._astart(spec, deps, at, beginning, on_pending, choice)
            if isinstance(runner, Result):
                ended.append(runner)
                return
            async with aclosing(aevents_of(runner)) as events:
                async for event in events:
                    yield event
            ended.append(results.answer_of(runner))

        return AsyncStream(run)

    def recover(
        self,
        run: Checkpoint | str,
        *,
        accept_changes: bool = False,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """Continue a run whose worker died: by checkpoint, checkpoint id, run id or branch id.

        If a call was running, its tool decides. An idempotent tool runs again, with the same idempotency key. A call of
        any other tool waits for a human as `outcome_unknown`: `Approve` runs it again, `Respond` gives its result, and
        `Reject` gives it up. A run that waits or has ended is returned unchanged. Raises `RunBusy` while the lease of
        the worker has not expired.
        """
        spec, deps = self._for_call(options, "recover")
        home = self._store_of(run)
        # Without any decision. Nothing is approved by it, however long the run has waited.
        branch_id = lookup.branch_of(home, run, bearer=self._bearer)
        while True:
            # In a loop: between looking and taking, somebody may be first. Then it is looked at again what there is to do.
            opened = lookup.open_head(home, spec, deps, branch_id)
            if lookup.at_rest(opened, accept_changes):
                return results.result_of(opened.runner, opened.head)
            if claim(opened.runner):
                break
        with held(opened.runner) as watch:
            for moment in steps(opened.runner):
                watch.hear(moment)
        return results.result_of(opened.runner)

    async def arecover(
        self,
        run: Checkpoint | str,
        *,
        accept_changes: bool = False,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """The async twin of `recover`."""
        spec, deps = self._for_call(options, "arecover")
        home = self._store_of(run)
        # What a bearer brings is taken in, so this may write. To look first, and then to write in a thread, would judge it twice.
        branch_id = await in_store(home, lookup.branch_of, home, run, bearer=self._bearer)
        while True:
            opened = await reading(home, lookup.open_head, home, spec, deps, branch_id)
            if lookup.at_rest(opened, accept_changes):
                return results.result_of(opened.runner, opened.head)
            if await aclaim(opened.runner):
                break
        async with aheld(opened.runner) as watch:
            async for moment in asteps(opened.runner):
                watch.hear(moment)
        return results.result_of(opened.runner)

    def recover_all(self, *, limit: int = 100, **options: Unpack[CallOptions[Deps]]) -> list[Recovery[Output]]:
        """Continue all runs of this agent whose workers died. Call it in every worker, at start and regularly.

        It continues runs whose worker or caller is gone, as `recover` does. It settles approvals that have expired,
        makes missing announcements, and deletes runs that are older than the store's `ttl`. `limit` (1 or more) is the
        largest number of each kind. Runs of other workers are left alone. A run that fails, or that cannot be read, is in
        the list with its error, and nothing is raised.
        """
        spec, _ = self._for_call(options, "recover_all")
        # The list first, then the work: a run that stops anew while it is recovered is not taken up twice in one sweep.
        recovery.remind(self.store, spec, limit)
        found = recovery.found(self.store, spec, limit)
        # One after the other, each to where it rests. What fails of one keeps no other from its turn.
        done = [recovery.carried_on(self, each, options) for each in found]
        return recovery.with_failures(done, recovery.tidy(self.store, spec, limit))

    async def arecover_all(self, *, limit: int = 100, **options: Unpack[CallOptions[Deps]]) -> list[Recovery[Output]]:
        """The async twin of `recover_all`."""
        spec, _ = self._for_call(options, "arecover_all")
        await recovery.aremind(self.store, spec, limit)
        found = await in_store(self.store, recovery.found, self.store, spec, limit)
        done = [await recovery.acarried_on(self, each, options) for each in found]
        return recovery.with_failures(done, await recovery.atidy(self.store, spec, limit))

    # Being part of another

    def as_tool(
        self,
        name: str | None = None,
        description: str | None = None,
        *,
        input: Callable[..., Any] | None = None,
        **options: Unpack[AgentToolOptions],
    ) -> AgentTool:
        """Make a tool of this agent or graph, for another agent. Each call of the tool is a nested run.

        `name` and `description` are for the model; they default to those of the agent. The model fills in one text.
        With `input`, a function that makes the input of the run, the model fills in the parameters of that function.
        Requests of the nested run are pending in the outer run, and are decided there. This call fixes the
        configuration. Raises `ToolDefinitionError` or `ConfigurationError`.
        """
        return AgentTool(self, name=name, description=description, input=input, **options)

    def dry_run(self, tool: str, args: Mapping[str, Any] | None = None, *, deps: Deps | None = None) -> DryRun:
        """Tell what would happen to a tool call with these arguments, and which rule decides. Nothing is run.

        Name a tool of a nested run by its path of tools, nodes and agents, such as `"clerk/refund"`. Nothing is
        recorded, and guardrails and breakpoints are not asked. Raises `ConfigurationError` for an unknown tool, and
        `AsyncRequired` if a predicate is async.
        """
        return dry_run(self.spec, tool, args or {}, deps)

    async def adry_run(self, tool: str, args: Mapping[str, Any] | None = None, *, deps: Deps | None = None) -> DryRun:
        """The async twin of `dry_run`."""
        return await adry_run(self.spec, tool, args or {}, deps)

    # Looking and branching

    def stopped_at(self, checkpoint: Checkpoint) -> list[BreakpointHit]:
        """Describe each breakpoint at which a suspended run waits, also in its nested runs.

        The store is neither read nor changed. Raises `CheckpointError` if the argument is not a checkpoint.
        """
        checkpoint = checked(checkpoint)
        # A ledger that is never written to takes no claim: this only looks.
        ledger = Ledger(self.store, Branch.of(checkpoint), checkpoint)
        return hits_in(lookup.all_runners(Runner(self.spec, ledger, checkpoint, deps=None)))

    def fork(
        self,
        checkpoint: Checkpoint | str,
        *,
        label: str | None = None,
        rerun: bool = False,
        by: str | Principal | None = None,
    ) -> Checkpoint:
        """Start a new branch of a run at a checkpoint, and return its first checkpoint. The old branch does not change.

        The new branch has no decisions that were made after the checkpoint. A call that was approved and has not settled
        needs a new approval. If a call with the same arguments has completed in another branch, its result is used; a
        call that failed runs again. With `rerun` a call that has completed runs again too, with another idempotency key.
        The audit trail says who has forked the run: `by`. Raises `CheckpointError` if the run has ended at the checkpoint.
        """
        home = self._store_of(checkpoint)
        # The stored checkpoint, not the copy that was given: a fork of an edited one would be a way around the edit check.
        _, given = lookup.known(home, checkpoint, bearer=self._bearer)
        return forking.fork(home, given, label=label, rerun=rerun, by=by)

    async def afork(
        self,
        checkpoint: Checkpoint | str,
        *,
        label: str | None = None,
        rerun: bool = False,
        by: str | Principal | None = None,
    ) -> Checkpoint:
        """The async twin of `fork`."""
        return await in_store(self.store, self.fork, checkpoint, label=label, rerun=rerun, by=by)

    def checkpoint(self, run: Checkpoint | str, *, label: str | None = None) -> Checkpoint:
        """Return the present state of a run that no worker drives: by checkpoint, checkpoint id, run id or branch id.

        Pending requests stay pending. With a `label`, the state is stored under it as a new checkpoint: the next of the
        chain, or a copy of the end. Raises `RunBusy` if a worker holds the run. Raises `CheckpointError` for a run of
        another kind. With a label, also for a run in which something is left to be carried out, such as a decision or the
        call of a lost worker, and for the end of a run after which the thread has gone on.
        """
        # A label goes into the log under a claim, as any other write: two who label at once get two checkpoints, one after the other.
        return on_demand.checkpoint(self._store_of(run), self.spec, run, label=label, bearer=self._bearer)

    async def acheckpoint(self, run: Checkpoint | str, *, label: str | None = None) -> Checkpoint:
        """The async twin of `checkpoint`."""
        return await in_store(self.store, self.checkpoint, run, label=label)

    def restore(
        self,
        checkpoint: Checkpoint | str,
        *,
        restore_timeline: bool = True,
        accept_changes: bool = False,
        by: str | Principal | None = None,
    ) -> Checkpoint:
        """Go back to a checkpoint, also to the end of a run. Return the first checkpoint of a new branch from there.

        Pending requests are pending again, with new ids, and a call that was approved and has not settled needs a new
        approval. The thread goes on from the new branch, and the old branch does not change. The timeline of the new
        branch includes the old one up to the checkpoint, unless `restore_timeline=False`. The audit trail says who has
        gone back: `by`. All is checked first, then written at once. Raises `CheckpointError` for a checkpoint of another
        kind, `AgentChanged` unless `accept_changes`, `RunBusy` if a worker holds this run or another one of the thread,
        and `ThreadBusy` if a run of the thread has not ended.
        """
        return on_demand.restore(
            self._store_of(checkpoint),
            self.spec,
            checkpoint,
            restore_timeline=restore_timeline,
            accept_changes=accept_changes,
            by=by,
            bearer=self._bearer,
            carry=self._carry,
        )

    def _carry(self, store: Store, given: Checkpoint, first: Checkpoint) -> Checkpoint:  # for those that read it
        """The first checkpoint of a branch without a past, with what is read off that otherwise: of most runs, nothing."""
        return first

    async def arestore(
        self,
        checkpoint: Checkpoint | str,
        *,
        restore_timeline: bool = True,
        accept_changes: bool = False,
        by: str | Principal | None = None,
    ) -> Checkpoint:
        """The async twin of `restore`."""
        return await in_store(
            self.store,
            self.restore,
            checkpoint,
            restore_timeline=restore_timeline,
            accept_changes=accept_changes,
            by=by,
        )

    def drift(self, checkpoint: Checkpoint) -> Drift:
        """List how this agent differs from the agent that made the checkpoint. The store is neither read nor changed.

        Raises `CheckpointError` if the argument is not a checkpoint.
        """
        checkpoint = checked(checkpoint)
        ledger = Ledger(self.store, Branch.of(checkpoint), checkpoint)
        return drift_of(checkpoint, self.spec, lookup.open_runners(Runner(self.spec, ledger, checkpoint, deps=None)))
