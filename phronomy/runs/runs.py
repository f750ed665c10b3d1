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
from phronomy.records.calls import Input
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Answer, Approve, Principal, as_principal
from phronomy.records.result import Output, Result
from phronomy.records.validation import checked
from phronomy.runs import on_demand, recovery
from phronomy.runs.as_tool import AgentTool, AgentToolOptions
from phronomy.runs.driving import aclaim, aevents_of, aheld, claim, events_of, held
from phronomy.runs.dry_run import adry_run, dry_run
from phronomy.runs.finding import lookup, pending, results
from phronomy.runs.finding.decisions import Choice
from phronomy.runs.finding.drift import Drift, drift_of
from phronomy.runs.finding.lookup import Beginning
from phronomy.runs.options import CallOptions, OnPending
from phronomy.runs.recovery import Recovery
from phronomy.runs.stopping import Stopping
from phronomy.runs.stream import AsyncStream, Stream
from phronomy.runs.waiting import holding
from phronomy.stops.breakpoints import BreakpointHit
from phronomy.stores.base import Store
from phronomy.stores.derived import forking
from phronomy.stores.native import in_store
from phronomy.stores.rows import Branch
from phronomy.tools.tool import Deps

if TYPE_CHECKING:
    from phronomy.observability.events import Event

S = TypeVar("S", bound=Spec)


class Runs(Stopping[Deps, Output]):
    """The methods that start, resume, watch, branch and end runs in a store."""

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """The configuration, checked and fixed. Raises `ConfigurationError`."""

    def _with_stops(self, spec: S, options: CallOptions[Deps], method: str | None) -> S:
        """The configuration with the breakpoints of this call, and how it waits at them."""
        changes: dict[str, Any] = {}
        if "breakpoints" in options:
            # Checked against the whole configuration, before anything runs (law 15).
            changes["breakpoints"] = checked_breakpoints(options["breakpoints"], spec, whole=True)
        if (hold := options.get("hold")) is not None:
            changes["hold"] = holding(hold, self, method, options)
        return replace(spec, **changes) if changes else spec  # type: ignore[type-var]

    # Running

    def invoke(
        self,
        input: Input,
        *,
        thread_id: str | None = None,
        messages: History | None = None,
        metadata: Mapping[str, Any] | None = None,
        label: str | None = None,
        on_pending: OnPending = "refuse",
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """Run until the agent has answered, or must wait for a human.

        With a `thread_id` that the store knows, the conversation goes on from the thread's latest end; `messages` stand in for that
        history. On a thread with a pending approval or an unfinished run, raises `ThreadBusy`; with `on_pending="supersede"` what
        is pending is settled as superseded first, with `"supersede_failed"` only if the run stopped on a failure. Raises `RunFailed`
        (a `ModelError`, say) with the last checkpoint to resume.
        """
        spec, deps = self._for_call(options, "invoke")
        beginning = Beginning(input=input, thread_id=thread_id, history=messages, metadata=metadata, label=label)
        runner = self._begin(spec, deps, beginning, on_pending)
        # These lines are in each method that runs tools, and not in one function: a frame less between the caller and what a tool
        # raises.
        with held(runner) as watch:
            for moment in steps(runner):
                watch.hear(moment)
        return results.answer_of(runner)

    async def ainvoke(
        self,
        input: Input,
        *,
        thread_id: str | None = None,
        messages: History | None = None,
        metadata: Mapping[str, Any] | None = None,
        label: str | None = None,
        on_pending: OnPending = "refuse",
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """As `invoke`."""
        spec, deps = self._for_call(options, "ainvoke")
        beginning = Beginning(input=input, thread_id=thread_id, history=messages, metadata=metadata, label=label)
        runner = await self._abegin(spec, deps, beginning, on_pending)
        async with aheld(runner) as watch:
            async for moment in asteps(runner):
                watch.hear(moment)
        return results.answer_of(runner)

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
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """Decide what a checkpoint waits for, and go on from there.

        `approved` decides its first pending call; `decisions` any number, by pending id, or by the id of a call where it names that
        call alone. With nothing pending, the run is continued. `input` is said to the agent beside that: the model reads it after the
        results of the calls. Of all that decide one pending approval, one wins; the others get `CheckpointAlreadyResumed`. Raises
        `DecisionError` or `CheckpointError` with nothing changed, `AgentChanged` if the agent is not the one that stopped (unless
        `accept_changes`), `RunBusy` if another worker holds the run and there is nothing to decide, and `RunFailed`.
        """
        spec, deps = self._for_call(options, "resume")
        choice = Choice(approved, reason, decisions, as_principal(by), channel, accept_changes, input)
        runner = self._open(spec, deps, checkpoint, choice)
        if isinstance(runner, Result):
            return runner
        with held(runner) as watch:
            for moment in steps(runner):
                watch.hear(moment)
        return results.answer_of(runner)

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
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """As `resume`."""
        spec, deps = self._for_call(options, "aresume")
        choice = Choice(approved, reason, decisions, as_principal(by), channel, accept_changes, input)
        runner = await self._aopen(spec, deps, checkpoint, choice)
        if isinstance(runner, Result):
            return runner
        async with aheld(runner) as watch:
            async for moment in asteps(runner):
                watch.hear(moment)
        return results.answer_of(runner)

    def decide(
        self,
        pending_id: str,
        answer: Answer,
        *,
        input: Input | None = None,
        by: str | Principal | None = None,
        digest: str | None = None,
        channel: str | None = None,
        accept_changes: bool = False,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """Decide the one pending approval of this id, wherever it waits, and go on from there, as `resume` does.

        With the `digest` of the request that somebody was shown, it is decided only if that is what waits. `input` is as in `resume`.
        Raises as `resume`, and with nothing recorded `UnknownPending` for an id that nobody knows, `InvalidDecision` for another
        digest.
        """
        # Found by the id, then decided as any other. Between the two somebody may be first, and then it is
        # `CheckpointAlreadyResumed` as ever.
        at = pending.asked_at(self.store, self.spec, pending_id, digest)
        decided = {pending_id: answer}
        return self.resume(
            at, decisions=decided, input=input, by=by, channel=channel, accept_changes=accept_changes, **options
        )

    async def adecide(
        self,
        pending_id: str,
        answer: Answer,
        *,
        input: Input | None = None,
        by: str | Principal | None = None,
        digest: str | None = None,
        channel: str | None = None,
        accept_changes: bool = False,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """As `decide`."""
        at = await in_store(self.store, pending.asked_at, self.store, self.spec, pending_id, digest)
        decided = {pending_id: answer}
        return await self.aresume(
            at, decisions=decided, input=input, by=by, channel=channel, accept_changes=accept_changes, **options
        )

    def approve_all(
        self,
        run: Checkpoint | str | None = None,
        *,
        thread_id: str | None = None,
        by: str | Principal | None = None,
        channel: str | None = None,
        accept_changes: bool = False,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """Approve every plain approval that waits now, in one write, and go on: of a checkpoint, a run, or the run of a thread.

        A run is named as for `cancel`. Questions, breakpoints, calls that failed or whose outcome is unknown, and what has lapsed, are
        left as they are. What was read is what is approved: if one of it is decided in that moment, nothing is. Raises as `resume`, and
        `UnknownPending` if there is no such approval.
        """
        home = self._store_of(run)
        at, waiting = pending.approvals_at(home, run, thread_id, bearer=self._bearer)
        # One write for all of them. If one was decided in that moment, none counts: what the caller saw is not what waits.
        decided = dict.fromkeys(waiting, Approve())
        return self.resume(at, decisions=decided, by=by, channel=channel, accept_changes=accept_changes, **options)

    async def aapprove_all(
        self,
        run: Checkpoint | str | None = None,
        *,
        thread_id: str | None = None,
        by: str | Principal | None = None,
        channel: str | None = None,
        accept_changes: bool = False,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """As `approve_all`."""
        home = self._store_of(run)
        at, waiting = await in_store(home, pending.approvals_at, home, run, thread_id, bearer=self._bearer)
        decided = dict.fromkeys(waiting, Approve())
        return await self.aresume(
            at, decisions=decided, by=by, channel=channel, accept_changes=accept_changes, **options
        )

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
        """Go one boundary further: from a checkpoint, or with an input, begin a run and stop at its first checkpoint.

        The status of the result is `running` where the run can go on; pass its checkpoint to `step` or `resume`. A pending approval is
        decided as in `resume`, and the decision is a boundary of its own. Raises as `invoke` and `resume` do.
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
        """As `step`."""
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

    def stream(
        self,
        at: Input | Checkpoint,
        *,
        thread_id: str | None = None,
        messages: History | None = None,
        metadata: Mapping[str, Any] | None = None,
        label: str | None = None,
        on_pending: OnPending = "refuse",
        approved: bool | None = None,
        reason: str | None = None,
        decisions: Mapping[str, Answer] | None = None,
        input: Input | None = None,
        by: str | Principal | None = None,
        channel: str | None = None,
        accept_changes: bool = False,
        **options: Unpack[CallOptions[Deps]],
    ) -> Stream[Output]:
        """Run as `invoke` does, or from a checkpoint as `resume` does, and give each event as it happens.

        The same gates, limits and results as without streaming. Waiting for a human ends the stream. A failure is an event, and is
        then raised. Nothing runs before the first event is asked for, which may raise whatever `invoke` or `resume` would.
        """
        spec, deps = self._for_call(options, "stream")
        beginning = Beginning(input=at, thread_id=thread_id, history=messages, metadata=metadata, label=label)
        choice = Choice(approved, reason, decisions, as_principal(by), channel, accept_changes, input)

        def run(stream: Stream[Output]) -> Generator[Event]:
            runner = self._start(spec, deps, at, beginning, on_pending, choice)
            # A decision that was handed to the worker which holds the run: there is nothing to drive here, and no event to give.
            if isinstance(runner, Result):
                stream._result = runner
                return
            # Closed whatever happens: a stream that is left open would keep the claim until the garbage collector comes.
            with closing(events_of(runner)) as events:
                for event in events:  # noqa: UP028  # as in the async twin
                    yield event
            stream._result = results.answer_of(runner)

        return Stream(run)

    def astream(
        self,
        at: Input | Checkpoint,
        *,
        thread_id: str | None = None,
        messages: History | None = None,
        metadata: Mapping[str, Any] | None = None,
        label: str | None = None,
        on_pending: OnPending = "refuse",
        approved: bool | None = None,
        reason: str | None = None,
        decisions: Mapping[str, Answer] | None = None,
        input: Input | None = None,
        by: str | Principal | None = None,
        channel: str | None = None,
        accept_changes: bool = False,
        **options: Unpack[CallOptions[Deps]],
    ) -> AsyncStream[Output]:
        """As `stream`."""
        spec, deps = self._for_call(options, "astream")
        beginning = Beginning(input=at, thread_id=thread_id, history=messages, metadata=metadata, label=label)
        choice = Choice(approved, reason, decisions, as_principal(by), channel, accept_changes, input)

        async def run(stream: AsyncStream[Output]) -> AsyncGenerator[Event]:
            runner = await self._astart(spec, deps, at, beginning, on_pending, choice)
            if isinstance(runner, Result):
                stream._result = runner
                return
            async with aclosing(aevents_of(runner)) as events:
                async for event in events:
                    yield event
            stream._result = results.answer_of(runner)

        return AsyncStream(run)

    def recover(
        self,
        run: Checkpoint | str,
        *,
        accept_changes: bool = False,
        **options: Unpack[CallOptions[Deps]],
    ) -> Result[Output]:
        """Carry on a run whose worker was lost: by checkpoint, checkpoint id, run id or branch id.

        A call that was under way is run again if its tool is idempotent, with the same idempotency key; any other waits for a human
        as `outcome_unknown`: approve runs it again, respond gives the result it had, reject gives it up. A run that waits or has
        ended is returned as it is. Raises `RunBusy` while the worker's lease has not expired.
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
        """As `recover`."""
        spec, deps = self._for_call(options, "arecover")
        home = self._store_of(run)
        branch_id = await in_store(home, lookup.branch_of, home, run, bearer=self._bearer)
        while True:
            opened = await in_store(home, lookup.open_head, home, spec, deps, branch_id)
            if lookup.at_rest(opened, accept_changes):
                return results.result_of(opened.runner, opened.head)
            if await aclaim(opened.runner):
                break
        async with aheld(opened.runner) as watch:
            async for moment in asteps(opened.runner):
                watch.hear(moment)
        return results.result_of(opened.runner)

    def recover_all(self, *, limit: int = 100, **options: Unpack[CallOptions[Deps]]) -> list[Recovery[Output]]:
        """Carry on what this agent's lost workers left, in one go: safe to call in every worker, at start and now and then.

        Runs that were decided and not resumed, or whose worker died, are carried on as `recover` does; approvals that nobody decided
        in time are settled as expired; announcements that were not made are made; runs older than the store's `ttl` are taken
        away. `limit`, 1 or more, bounds each. What another worker does meanwhile is left to it; what fails is in the list, and raises
        nothing.
        """
        spec, _ = self._for_call(options, "recover_all")
        # The list first, then the work: a run that stops anew while it is recovered is not taken up twice in one sweep.
        found = recovery.found(self.store, spec, limit)
        # One after the other, each to where it rests. What fails of one keeps no other from its turn.
        done = [recovery.carried_on(self, each, options) for each in found]
        recovery.tidy(self.store, spec, limit)
        return [each for each in done if each is not None]

    async def arecover_all(self, *, limit: int = 100, **options: Unpack[CallOptions[Deps]]) -> list[Recovery[Output]]:
        """As `recover_all`."""
        spec, _ = self._for_call(options, "arecover_all")
        found = await in_store(self.store, recovery.found, self.store, spec, limit)
        done = [await recovery.acarried_on(self, each, options) for each in found]
        await recovery.atidy(self.store, spec, limit)
        return [each for each in done if each is not None]

    # Being part of another

    def as_tool(
        self,
        name: str | None = None,
        description: str | None = None,
        *,
        input: Callable[..., Any] | None = None,
        **options: Unpack[AgentToolOptions],
    ) -> AgentTool:
        """A tool that runs this, for the tools of another agent: what it waits for is pending there, and decided there.

        `name` is what the model calls it (default: the agent's), `description` what it reads about it (default: the agent's). The model
        fills in a text, or the parameters of `input`, a function that makes the input of the run of them. Fixes the configuration, as
        a run does. Raises `ToolDefinitionError`, `ConfigurationError`.
        """
        return AgentTool(self, name=name, description=description, input=input, **options)

    def dry_run(self, tool: str, args: Mapping[str, Any] | None = None, *, deps: Deps | None = None) -> DryRun:
        """What would become of a call of a tool with these arguments, and which gate or policy says so. Nothing is run or recorded.

        A tool inside is named with its way, by names of tools, nodes and agents: `"clerk/refund"`. Guardrails and breakpoints are
        not asked. Raises `ConfigurationError` for a tool that is not there, `AsyncRequired` for a predicate that is async.
        """
        return dry_run(self.spec, tool, args or {}, deps)

    async def adry_run(self, tool: str, args: Mapping[str, Any] | None = None, *, deps: Deps | None = None) -> DryRun:
        """As `dry_run`."""
        return await adry_run(self.spec, tool, args or {}, deps)

    # Looking and branching

    def stopped_at(self, checkpoint: Checkpoint) -> list[BreakpointHit]:
        """What is seen at each breakpoint that a suspended run stands at: the run's own, and those of runs inside it.

        Nothing is read or changed in the store. Raises `CheckpointError` for what is no checkpoint.
        """
        checkpoint = checked(checkpoint)
        # A ledger that is never written to takes no claim: this only looks.
        ledger = Ledger(self.store, Branch.of(checkpoint), checkpoint)
        return hits_in(lookup.all_runners(Runner(self.spec, ledger, checkpoint, deps=None)))

    def fork(self, checkpoint: Checkpoint | str, *, label: str | None = None, rerun: bool = False) -> Checkpoint:
        """Open another branch of a run at a checkpoint, and return its first checkpoint; the old branch stays as it is.

        Decisions taken after that checkpoint are not in the branch, and an approval that was not used is asked for anew. A call
        that has completed in another branch, with the same arguments, is not run again there: its result is used; with `rerun` it
        is run, under another idempotency key. Raises `CheckpointError` for a checkpoint at which the run has ended.
        """
        home = self._store_of(checkpoint)
        # The stored checkpoint, not the copy that was given: a fork of an edited one would be a way around the edit check.
        _, given = lookup.known(home, checkpoint, bearer=self._bearer)
        return forking.fork(home, given, label=label, rerun=rerun)

    async def afork(self, checkpoint: Checkpoint | str, *, label: str | None = None, rerun: bool = False) -> Checkpoint:
        """As `fork`."""
        return await in_store(self.store, self.fork, checkpoint, label=label, rerun=rerun)

    def checkpoint(self, run: Checkpoint | str, *, label: str | None = None) -> Checkpoint:
        """The present state of a run at rest: by checkpoint, checkpoint id, run id or branch id. What waits there goes on waiting.

        With a label, the state is kept under it as a checkpoint of its own: the next of the chain, or the copy of an end. Raises
        `RunBusy` if a worker holds the run, and `CheckpointError` for a run of another kind, for one whose worker was lost in the
        middle of a call, and for a label on an end that its thread has gone on from.
        """
        # A label goes into the log under a claim, as any other write: two who label at once get two checkpoints, one after the other.
        return on_demand.checkpoint(self._store_of(run), self.spec, run, label=label, bearer=self._bearer)

    async def acheckpoint(self, run: Checkpoint | str, *, label: str | None = None) -> Checkpoint:
        """As `checkpoint`."""
        return await in_store(self.store, self.checkpoint, run, label=label)

    def restore(
        self, checkpoint: Checkpoint | str, *, restore_timeline: bool = True, accept_changes: bool = False
    ) -> Checkpoint:
        """Go back to a checkpoint, an end too: return the first checkpoint of a branch that goes on from there, ready to resume.

        What waited there waits again, under new ids. Its thread goes on from the branch; what came after stays as it is. The timeline
        of the branch begins with that of the old one up to there, or with `restore_timeline=False` at the checkpoint. All is
        judged first, then written at once. Raises `CheckpointError` for a checkpoint of another kind, `AgentChanged` (unless
        `accept_changes`), `RunBusy` if a worker holds the run or another of the thread, and `ThreadBusy` if one has not ended.
        """
        return on_demand.restore(
            self._store_of(checkpoint),
            self.spec,
            checkpoint,
            restore_timeline=restore_timeline,
            accept_changes=accept_changes,
            bearer=self._bearer,
            carry=self._carry,
        )

    def _carry(self, store: Store, given: Checkpoint, first: Checkpoint) -> Checkpoint:  # for those that read it
        """The first checkpoint of a branch without a past, with what is read off that otherwise: of most runs, nothing."""
        return first

    async def arestore(
        self, checkpoint: Checkpoint | str, *, restore_timeline: bool = True, accept_changes: bool = False
    ) -> Checkpoint:
        """As `restore`."""
        return await in_store(
            self.store, self.restore, checkpoint, restore_timeline=restore_timeline, accept_changes=accept_changes
        )

    def drift(self, checkpoint: Checkpoint) -> Drift:
        """How this agent differs from the one that made the checkpoint; nothing is read or changed in the store.

        Raises `CheckpointError` for what is no checkpoint.
        """
        checkpoint = checked(checkpoint)
        ledger = Ledger(self.store, Branch.of(checkpoint), checkpoint)
        return drift_of(checkpoint, self.spec, lookup.all_runners(Runner(self.spec, ledger, checkpoint, deps=None)))
