"""The debugger: one run, taken from stop to stop, looked at, changed, and gone back in. Every stop is a checkpoint in the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, get_args

from typing_extensions import Unpack

from phronomy.conversation.input import History
from phronomy.debugger.stepping import CHANNEL, LABEL, Pace, past, stepping
from phronomy.engine.stop_points import checked, handed_to, is_inside, state_of_agent
from phronomy.errors import ConfigurationError, InvalidDecision, NothingDecided, PhronomyError, UnknownPending
from phronomy.foundation.json_text import plain_object
from phronomy.foundation.quoting import kept_id, quoted_id, quoted_word
from phronomy.records.calls import Input
from phronomy.records.chain import target_of
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Answer, Approve, PendingApproval, Reject, Respond, Skip, Then
from phronomy.records.principals import Principal
from phronomy.records.record import explain
from phronomy.records.result import Output, Result
from phronomy.runs.options import CallOptions, OnPending
from phronomy.runs.runs import Runs
from phronomy.stops.breakpoints import NAMES, Breakpoint, BreakpointContext, BreakpointHit, Breakpoints
from phronomy.stops.expressions import Expression
from phronomy.stores.native import in_store
from phronomy.tools.context import Deps


class Frame(NamedTuple):
    """One run in the call stack: its agent or graph, its path, and its present place.

    `path` is the path of a nested run; it is empty for the outermost run.
    """

    agent: str
    path: str
    at: str


class Watched(NamedTuple):
    """A watched expression and its value at the current stop. If the value cannot be computed, `error` says why."""

    expression: str
    value: Any
    error: str | None = None


class Debugger(Generic[Deps, Output]):
    """Steps through a run of an agent or a graph: `start` starts a run, and `attach` attaches to an existing one.

    Each stop is a checkpoint in the store of the agent, and no worker waits there. So another debugger can `attach` to
    the run at any time, in any process. These methods move on:

    - `into`: to the next point, also in a nested run
    - `over`: to the next point of this run, or of a run around it
    - `out`: to the next point of a run around this one
    - `step`: to the next boundary
    - `go` and `run_to`: to the next breakpoint, or to the end
    - `back`: to an earlier boundary

    None of them passes an approval, a question or a call of unknown outcome: decide these with `approve`, `reject` and
    `respond`. `set` changes values before the run goes on. Each move returns a `Result`, and raises what `resume`
    raises.

    `options` are the options of a call, and are used for every move. `breakpoints` among them replaces the agent's
    list; you can change them at any time as `debugger.breakpoints`. `by` says who decides. Use a debugger in one thread
    or task at a time. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        agent: Runs[Deps, Output],
        *,
        by: str | Principal | None = None,
        accept_changes: bool = False,
        **options: Unpack[CallOptions[Deps]],
    ) -> None:
        if not isinstance(agent, Runs):
            raise ConfigurationError(f"a debugger is for an agent or a compiled graph, not {type(agent).__name__}")
        if foreign := options.keys() & {"hold", "update", "modify_state"}:
            raise ConfigurationError(
                f"a debugger has no {', '.join(sorted(foreign))}: its runs suspend, and set changes what they go on with"
            )
        self.agent = agent
        given = options.pop("breakpoints", None)
        given = list(agent.spec.breakpoints) if given is None else given
        self.breakpoints: Breakpoints = given if isinstance(given, Breakpoints) else Breakpoints(given)
        """Where `go` and every other move stop. May be changed at any time."""
        checked(self.breakpoints, agent.spec, whole=True)
        self._call: dict[str, object] = {**options, "hold": None}  # a team may have one, for all of its calls
        self._by = by
        self._manner: dict[str, object] = {"by": by, "channel": CHANNEL, "accept_changes": accept_changes}
        self._watches: dict[str, Expression] = {}
        self._checkpoint: Checkpoint | None = None
        self._hits: tuple[BreakpointHit, ...] = ()
        self._current: str | None = None
        self._edits: dict[str, dict[str, object]] = {}
        self._update: Any = None

    def __repr__(self) -> str:
        at = f"at {self._checkpoint.id}" if self._checkpoint is not None else "not started"
        return f"<Debugger of {self.agent!r}, {at}>"

    # Beginning

    def start(
        self,
        input: Input,
        *,
        thread_id: str | None = None,
        messages: History | None = None,
        metadata: Mapping[str, Any] | None = None,
        label: str | None = None,
        on_pending: OnPending = "refuse",
    ) -> Result[Output]:
        """Start a run, and stop before anything has happened. The arguments are those of `invoke`."""
        begun: dict[str, Any] = {"thread_id": thread_id, "messages": messages, "metadata": metadata, "label": label}
        with self._noting_failures():
            result = self.agent.invoke(input, on_pending=on_pending, **begun, **self._stopping("into", ""))
        return self._arrived(result)

    async def astart(
        self,
        input: Input,
        *,
        thread_id: str | None = None,
        messages: History | None = None,
        metadata: Mapping[str, Any] | None = None,
        label: str | None = None,
        on_pending: OnPending = "refuse",
    ) -> Result[Output]:
        """The async twin of `start`."""
        begun: dict[str, Any] = {"thread_id": thread_id, "messages": messages, "metadata": metadata, "label": label}
        with self._noting_failures():
            result = await self.agent.ainvoke(input, on_pending=on_pending, **begun, **self._stopping("into", ""))
        return self._arrived(result)

    def attach(self, run: Checkpoint | str) -> Checkpoint:
        """Attach to a stored run at its newest checkpoint: by checkpoint, checkpoint id, run id or branch id.

        The run does not change. Raises `RunBusy` if a worker holds the run, and `CheckpointError`.
        """
        checkpoint = self.agent.checkpoint(run)
        return self._stand(checkpoint)

    async def aattach(self, run: Checkpoint | str) -> Checkpoint:
        """The async twin of `attach`."""
        checkpoint = await self.agent.acheckpoint(run)
        return self._stand(checkpoint)

    # Moving

    def into(self) -> Result[Output]:
        """Go on to the next point, also in a nested run."""
        return self._move("into")

    async def ainto(self) -> Result[Output]:
        """The async twin of `into`."""
        return await self._amove("into")

    def over(self) -> Result[Output]:
        """Go on to the next point of this run or of a run around it. A tool or a nested run counts as one step.

        If several calls wait, only the current stop moves on.
        """
        return self._move("over")

    async def aover(self) -> Result[Output]:
        """The async twin of `over`."""
        return await self._amove("over")

    def out(self) -> Result[Output]:
        """Go on to the next point of a run around this one. In the outermost run, this is the same as `go`."""
        return self._move("out")

    async def aout(self) -> Result[Output]:
        """The async twin of `out`."""
        return await self._amove("out")

    def step(self) -> Result[Output]:
        """Go on to the next boundary of this run: after the model's reply, all calls of a reply, or a wave."""
        return self._move("step")

    async def astep(self) -> Result[Output]:
        """The async twin of `step`."""
        return await self._amove("step")

    def go(self) -> Result[Output]:
        """Go on to the next breakpoint in `breakpoints`, or to the end.

        Calls that wait at such a breakpoint keep waiting.
        """
        return self._move("go")

    async def ago(self) -> Result[Output]:
        """The async twin of `go`."""
        return await self._amove("go")

    def run_to(self, breakpoint: Breakpoint) -> Result[Output]:
        """Go on like `go`, with one more breakpoint for this move only."""
        return self._move("go", to=breakpoint)

    async def arun_to(self, breakpoint: Breakpoint) -> Result[Output]:
        """The async twin of `run_to`."""
        return await self._amove("go", to=breakpoint)

    def back(self, n: int = 1, *, rerun: bool = False) -> Checkpoint:
        """Go back `n` boundaries, on a new branch. Return the first checkpoint of that branch.

        The boundaries can also be on the branch from which this branch was forked. The old branch does not change. A
        completed call does not run again: its result is used, unless you pass `rerun=True`. Requests that were decided
        after the boundary are asked again. Raises `ConfigurationError` if there are fewer than `n` boundaries.
        """
        store = self.agent.store
        earlier = past(n, store.history(self.checkpoint.id))
        forked = self.agent.fork(earlier, rerun=rerun, by=self._by)
        return self._stand(forked)

    async def aback(self, n: int = 1, *, rerun: bool = False) -> Checkpoint:
        """The async twin of `back`."""
        store = self.agent.store
        earlier = past(n, await in_store(store, store.history, self.checkpoint.id))
        forked = await self.agent.afork(earlier, rerun=rerun, by=self._by)
        return self._stand(forked)

    # Deciding

    def approve(self, id: str | None = None, *, go_on: Pace = "over") -> Result[Output]:
        """Run the waiting call, with the values that were `set`, and go on.

        Without an `id`: the call at the current stop.
        """
        return self._move(go_on, self._answer(id, Approve))

    async def aapprove(self, id: str | None = None, *, go_on: Pace = "over") -> Result[Output]:
        """The async twin of `approve`."""
        return await self._amove(go_on, self._answer(id, Approve))

    def reject(
        self, id: str | None = None, *, reason: str | None = None, then: Then = "continue", go_on: Pace = "over"
    ) -> Result[Output]:
        """Reject the waiting call, and go on. The model reads the `reason`.

        At a stop between two steps, this ends the run.
        """
        return self._move(go_on, self._answer(id, Reject, reason=reason, then=then))

    async def areject(
        self, id: str | None = None, *, reason: str | None = None, then: Then = "continue", go_on: Pace = "over"
    ) -> Result[Output]:
        """The async twin of `reject`."""
        return await self._amove(go_on, self._answer(id, Reject, reason=reason, then=then))

    def respond(self, content: object, id: str | None = None, *, go_on: Pace = "over") -> Result[Output]:
        """Give the result in place of the waiting call, and go on."""
        return self._move(go_on, self._answer(id, Respond, content=content))

    async def arespond(self, content: object, id: str | None = None, *, go_on: Pace = "over") -> Result[Output]:
        """The async twin of `respond`."""
        return await self._amove(go_on, self._answer(id, Respond, content=content))

    def skip(self, id: str | None = None, *, go_on: Pace = "over") -> Result[Output]:
        """Skip the call or the node at this stop, and go on. At a stop between two steps, the run ends as skipped."""
        return self._move(go_on, self._answer(id, Skip))

    async def askip(self, id: str | None = None, *, go_on: Pace = "over") -> Result[Output]:
        """The async twin of `skip`."""
        return await self._amove(go_on, self._answer(id, Skip))

    # Changing

    def set(self, *, input: object = None, args: Mapping[str, object] | None = None, state: Any = None) -> None:
        """Change values at the current stop. The next move that passes the stop applies the change.

        `input` replaces the input of the run, before the model has seen it. `args` replaces arguments of the call, by
        name. `state` is an update of the outermost graph's state, as a node returns it. If a change is not possible,
        the move refuses it, and nothing has happened; the change stays until you set another value or call `unset`.
        Raises `InvalidDecision` or `UnknownPending`.
        """
        if state is not None:
            if self.checkpoint.kind != "graph":
                raise InvalidDecision("an agent has no state to set: set its input, or the arguments of a call")
            merges = isinstance(state, Mapping) and isinstance(self._update, Mapping)
            self._update = {**self._update, **state} if merges else state
        if input is None and args is None:
            return
        item = self._named(None)
        is_gate = item.tool.source == "breakpoint"
        if input is not None and (args is not None or not is_gate or "input" not in item.args):
            raise InvalidDecision(
                "the input is set at a stop before the model has seen it, and alone", pending_id=item.id
            )
        if args is not None and (is_gate or not isinstance(args, Mapping)):
            raise InvalidDecision(
                "arguments are set by name, in a mapping, at a stop before a call", pending_id=item.id
            )
        was = self._edits.get(item.id, {})
        self._edits[item.id] = {"input": input} if args is None else {**was, **args}

    def unset(self) -> None:
        """Remove all changes that were set and not yet applied."""
        self._edits, self._update = {}, None

    @property
    def edits(self) -> dict[str, Any]:
        """The changes that were set at the current stop and not yet applied: `input` or `args`, and `state`."""
        found: dict[str, object] = {}
        if (item := self.pending) is not None and item.id in self._edits:
            edits = self._edits[item.id]
            found = dict(edits) if item.tool.source == "breakpoint" else {"args": dict(edits)}
        return found | ({"state": self._update} if self._update is not None else {})

    # Looking

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint at which the run has stopped. Raises `ConfigurationError` before `start` or `attach`."""
        if self._checkpoint is None:
            raise ConfigurationError("nothing is debugged yet: start a run, or attach to one")
        return self._checkpoint

    @property
    def status(self) -> str:
        """The status of the run: `suspended`, `running` (the run is between two stops), or an end."""
        return self.checkpoint.status

    @property
    def hits(self) -> list[BreakpointHit]:
        """The breakpoints at which the run waits. There are several if several calls wait."""
        return list(self._hits)

    @property
    def hit(self) -> BreakpointHit | None:
        """The breakpoint at the current stop.

        None if the run has ended, or waits for something other than a breakpoint.
        """
        return next((hit for hit in self._hits if hit.id == self._current), None)

    @property
    def pending(self) -> PendingApproval | None:
        """The request at the current stop: a breakpoint, or a request that no move passes, such as an approval."""
        if self._checkpoint is None:
            return None
        return next((item for item in self._checkpoint.pending if item.id == self._current), None)

    def select(self, id: str) -> PendingApproval:
        """Make another waiting request the current stop. Raises `UnknownPending`."""
        item = self._named(id)
        self._current = item.id
        return item

    def where(self) -> list[Frame]:
        """The call stack at the current stop, from the outermost run to the innermost."""
        path, parts = self._path(), self._parts()
        ids = path.split("/") if path else []
        frames = []
        for depth, id in enumerate(ids):
            outer = "/".join(ids[:depth])
            calls = parts[outer].calls if outer in parts else ()
            name = next((call.name for call in calls if call.id == id), id)
            frames.append(Frame(parts[outer].speaker if outer in parts else "", outer, name))
        return [*frames, Frame(self._part().speaker, path, self._at())]

    def watch(self, expression: str) -> Watched:
        """Compute an expression at each stop. It can use the names of `BreakpointContext`. Returns its present value.

        Raises `ConfigurationError` if the text is not an expression, or uses other names.
        """
        parsed = Expression(expression, NAMES)
        self._watches[parsed.text] = parsed
        return self._seen(parsed)

    def unwatch(self, expression: str) -> None:
        """Stop watching an expression. Raises `ConfigurationError` if it is not watched."""
        if self._watches.pop(expression.strip(), None) is None:
            raise ConfigurationError(
                f"{expression!r:.80} is not watched; these are: {', '.join(self._watches) or 'none'}"
            )

    @property
    def watches(self) -> list[Watched]:
        """The watched expressions, with their values at the current stop.

        If a value cannot be computed, it has an error instead.
        """
        return [self._seen(each) for each in self._watches.values()]

    def evaluate(self, expression: str) -> Watched:
        """Compute an expression once, at the current stop. Raises what `watch` raises."""
        return self._seen(Expression(expression, NAMES))

    @property
    def context(self) -> BreakpointContext:
        """The values that expressions and predicates can use at the current stop."""
        part, item, hit = self._part(), self.pending, self.hit
        graph, output = part.kind == "graph", part.output if isinstance(part.output, str) else None
        facts: dict[str, Any] = {"type": self.status, "output": output}
        if hit is not None:
            of_call = hit.tool is not None or hit.type == "pre_node"
            facts = {"type": hit.type, "tool": hit.tool, "node": hit.node, "result": hit.result, "output": hit.output}
            facts |= {"args": hit.args if of_call else None, "asks": hit.asks}
            if hit.type in ("pre_agent_run", "pre_model_call") and (made := handed_to(part)) is not None:
                facts["handoff"] = made.source, made.target
        elif item is not None:
            facts = {"type": item.point or item.why, "asks": item.why == "approval", "args": item.args}
            facts["node" if graph else "tool"] = item.tool_name
        if item is not None and (target := target_of(item.tool)) is not None:
            facts["handoff"] = part.speaker, target
        flow = self.agent.spec.flow
        told = flow.facts_in(self.checkpoint) if flow is not None else None
        return BreakpointContext(
            facts={} if told is None else plain_object(told),
            agent=part.speaker,
            input=part.input,
            state=flow.shown_state(part) if graph and flow is not None else state_of_agent(part),
            turn=part.turn,
            path=part.path,
            run_id=part.run_id,
            thread_id=part.thread_id,
            **facts,
        )

    # Inside

    def _move(
        self, pace: Pace, answers: Mapping[str, Answer] | None = None, to: Breakpoint | None = None
    ) -> Result[Output]:
        options = self._going(pace, answers, to)
        with self._noting_failures():
            result = self.agent.resume(self.checkpoint, **options)
        return self._arrived(result)

    async def _amove(
        self, pace: Pace, answers: Mapping[str, Answer] | None = None, to: Breakpoint | None = None
    ) -> Result[Output]:
        options = self._going(pace, answers, to)
        with self._noting_failures():
            result = await self.agent.aresume(self.checkpoint, **options)
        return self._arrived(result)

    def _going(self, pace: Pace, answers: Mapping[str, Answer] | None, to: Breakpoint | None) -> dict[str, Any]:
        """Makes the options of `resume`. Raises `NothingDecided` if all that waits is of a kind that no move passes."""
        if pace not in get_args(Pace):
            raise ConfigurationError(f"go_on is one of {', '.join(get_args(Pace))}, not {quoted_word(pace)}")
        if to is not None and not isinstance(to, Breakpoint):
            raise ConfigurationError(f"run_to takes a Breakpoint, not {type(to).__name__}")
        waiting = self.checkpoint.pending
        passed = dict(answers) if answers is not None else {id: self._approval(id) for id in self._passed(pace)}
        if waiting and not passed:
            asked = self._named(self._current) if self._current is not None else waiting[0]
            raise NothingDecided(
                f"run {self.checkpoint.run_id} waits for a decision on {asked.tool_name}, pending {asked.id}, which no move"
                " passes: approve, reject or respond, or select something else that waits",
                pending_ids=[asked.id],
            )
        options = self._stopping(pace, self._path(), to)
        if self._update is not None:
            options["update"] = self._update
        return {**options, **self._manner, "decisions": passed or None}

    def _passed(self, pace: Pace) -> Iterator[str]:
        """Gives the ids of the stops that a move passes."""
        path = self._path()
        for hit in self._hits:
            match pace:
                case "into" | "over":
                    passes = hit.id == self._current
                case "step" | "out":
                    passes = is_inside(hit.path, path)
                case _:
                    passes = hit.id == self._current or hit.label == LABEL
            if passes:
                yield hit.id

    def _stopping(self, pace: Pace, path: str, to: Breakpoint | None = None) -> dict[str, Any]:
        """The options of a call that stops where this move ends, and at the user's breakpoints."""
        stops = [*self.breakpoints, *([to] if to is not None else [])]
        return {**self._call, "breakpoints": [*stops, *stepping(pace, path, self.agent.spec, self._call)]}

    def _arrived(self, result: Result[Output]) -> Result[Output]:
        self._stand(result.checkpoint)
        return result

    @contextmanager
    def _noting_failures(self) -> Iterator[None]:
        """Takes the place of the run from the error that a move raises, if the error carries one."""
        try:
            yield
        except PhronomyError as error:
            result, checkpoint = getattr(error, "result", None), getattr(error, "checkpoint", None)
            if isinstance(result, Result):
                self._arrived(result)
            elif isinstance(checkpoint, Checkpoint):
                self._stand(checkpoint)
            raise

    def _stand(self, checkpoint: Checkpoint) -> Checkpoint:
        """Take this as the place, and what is new there as the current stop: breakpoints first, which a move passes."""
        known = {item.id for item in self._checkpoint.pending} if self._checkpoint is not None else set()
        self._hits = tuple(self.agent.stopped_at(checkpoint)) if checkpoint.pending else ()
        self._checkpoint = checkpoint
        hits = {hit.id for hit in self._hits}
        waits = sorted(checkpoint.pending, key=lambda item: (item.id in known, item.id not in hits))
        self._current = waits[0].id if waits else None
        self._edits = {item.id: self._edits[item.id] for item in waits if item.id in self._edits}
        self._update = None
        return checkpoint

    def _answer(self, id: str | None, kind: type[Answer], **fields: Any) -> dict[str, Answer]:
        """The decision on what waits under this id, or on the current stop. Raises `UnknownPending`, `InvalidDecision`."""
        item = self._named(id)
        if kind is Approve:
            return {item.id: self._approval(item.id)}
        if item.id in self._edits:
            raise InvalidDecision(f"what was set at pending {item.id} goes with approve: unset it", pending_id=item.id)
        try:
            return {item.id: kind(**fields)}
        except ValueError as error:
            raise InvalidDecision(f"the decision cannot be recorded: {explain(error)}", pending_id=item.id) from None

    def _approval(self, id: str) -> Approve:
        """The approval of a stop, with what was set there."""
        if (edits := self._edits.get(id)) is None:
            return Approve()
        item = self._named(id)
        try:
            return Approve(args=edits if item.tool.source == "breakpoint" else {**item.args, **edits})
        except ValueError as error:
            raise InvalidDecision(f"what was set cannot be recorded: {explain(error)}", pending_id=id) from None

    def _named(self, id: str | None) -> PendingApproval:
        wanted = self._current if id is None else id
        found = next((item for item in self.checkpoint.pending if item.id == wanted), None)
        if found is None:
            there = ", ".join(item.id for item in self.checkpoint.pending)
            under = f" under {quoted_id(wanted)}" if wanted is not None else ""
            raise UnknownPending(
                f"nothing waits here{under}" + (f"; pending: {there}" if there else ""),
                pending_id=kept_id(id or ""),
            )
        return found

    def _path(self) -> str:
        """Gives the path of the run that the current stop is in."""
        item = self.pending
        return item.path if item is not None else ""

    def _parts(self) -> dict[str, Checkpoint]:
        return {part.path: part for part in (self.checkpoint, *self.checkpoint.nested)}

    def _part(self) -> Checkpoint:
        """The run that the current stop is in."""
        return self._parts().get(self._path(), self.checkpoint)

    def _at(self) -> str:
        """Describes the place of the innermost run in a few words."""
        item, hit = self.pending, self.hit
        if item is None:
            return self.status
        if hit is not None:
            return f"{hit.type} {hit.tool or hit.node or ''}".rstrip()
        return f"{item.why} {item.tool_name}"

    def _seen(self, expression: Expression) -> Watched:
        try:
            context = self.context
            return Watched(expression.text, expression.value({name: getattr(context, name) for name in NAMES}))
        except Exception as error:  # of the expression, whatever it is: a watch is no reason to stop
            return Watched(expression.text, None, f"{type(error).__name__}: {error}")
