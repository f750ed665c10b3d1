"""One chain of a run while it is driven: its spec, its state, and what of it is not stored yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from phronomy.approvals.policy import Rule
from phronomy.concurrency.crew import ACrew, Crew
from phronomy.concurrency.pieces import Heard, Inner, Piece
from phronomy.concurrency.workers import whole
from phronomy.engine.ledger import Ledger, now
from phronomy.engine.scopes import refused_calls
from phronomy.engine.shared import Shared
from phronomy.engine.spec import Holding, Spec, Telling
from phronomy.engine.stop_points import Armed, after_call, armed, before
from phronomy.engine.usage import over_above
from phronomy.errors import CheckpointError, IllegalOutcome
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.ids import new_id
from phronomy.foundation.json_text import JsonText, canonical, plain_object
from phronomy.models.base import Delta
from phronomy.records import chain
from phronomy.records.audit import refusals, votes_by_grant
from phronomy.records.calls import (
    Call,
    CallFailed,
    CallSettled,
    CallStarted,
    CallStatus,
    CallUnknown,
    CallWaits,
    Decided,
    Ending,
    Guarded,
    Judged,
    Narrowed,
    Outcome,
    Voted,
    Withdrawn,
    path_inside,
)
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision
from phronomy.records.messages import Message
from phronomy.records.moves import Move, Run
from phronomy.rules.added_messages import is_ending
from phronomy.rules.body_calls import KIND, made_alone
from phronomy.rules.journal import folded
from phronomy.rules.limits import is_bounding
from phronomy.rules.texts_for_model import ENDED
from phronomy.stores.log.log import as_sealed, journal_entry, row_entry, settled_in, trail_row
from phronomy.stores.rows import Append, AuditRow, Entry
from phronomy.tools.tool import Tool


class Written(NamedTuple):
    """What a write has stored at `path`, in order, from the entry after number `seq` on."""

    seq: int
    path: str
    items: tuple[Outcome | Checkpoint, ...]

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint among it, if there is one."""
        for item in self.items:
            if isinstance(item, Checkpoint):
                return item
        return None


@dataclass(frozen=True, slots=True)
class Asking:
    """The model is asked now, in the run at `path`."""

    path: str
    model: str


Moment: TypeAlias = Written | Asking | Delta | Piece | Heard
"""What the loops yield to the code that drives them: what was stored, and the pieces that pass."""


# A row supersedes the journal before it, so most of that need not be kept. Forks do need it: a fork from an earlier checkpoint
# looks for results, and for beginnings without an end, in the journals of the other branches (laws 4 and 5).
_KEPT = (CallStarted, CallSettled, CallFailed, CallUnknown, CallWaits, Withdrawn, Guarded)
"""What stays in the journal when a row is written: the results, for rows and forks to refer to, every attempt, with its end, and
what guardrails said."""


def _kept(outcome: Outcome) -> Outcome:
    """The outcome without what stands in the row that is written after it: of what waits, forks must know that it was a question."""
    if not isinstance(outcome, CallWaits):
        return outcome
    return outcome.evolve(pending=tuple(item for item in outcome.pending if item.why == "question"), note=None)


class Runner:
    """One chain of a run being driven: its spec, its state, and what of it is not stored yet."""

    untouched: tuple[Outcome, ...] = ()
    """Intents that are stored, or about to be, of calls that were not entered: whoever leaves takes them back."""
    made: Set[str] | None = None
    """The calls that the body has made in its present run, by id; None, if this is no run of the calls of a body."""
    _known_statuses: tuple[tuple[Call, ...], Set[CallStatus]] = (), frozenset()
    """The calls that were looked at last, and how they stood."""

    def __init__(
        self,
        spec: Spec,
        ledger: Ledger,
        base: Checkpoint,
        *,
        deps: object,
        fresh: bool = False,
        within: Runner | None = None,
    ) -> None:
        # `home` is the agent that the run began with, whose limits, policies and rules of handoffs hold for all of it. `spec`, in
        # `_look`, is the agent that has the conversation now.
        self.home = spec
        self._within = within
        self._around = within.policies if within is not None else ()
        self.hides_input: bool = within is not None and _hides_input(within, base.path)
        self.bounds: tuple[Runner, ...] = () if within is None else within.bounds_inside
        self.ledger = ledger
        self.shared: Shared = ledger.shared
        self.deps = deps
        self.fresh: bool = fresh
        self.watched = False
        self.streams = False
        self.written: Written = Written(ledger.seq, base.path, ())
        self.begins = False
        # A move whose intents are stored with the claim, and which is to be performed next.
        self.begun: Run | None = None
        self.origin: Checkpoint = base
        self.origin_seq: int = ledger.seq
        self.writing: bool = False
        # Three states: `base` is the last checkpoint, which the next row is a delta to; `stored` is that with what is in the
        # journal, so where a crash would leave the run; `state` is that with `unsaved`, so what this worker knows.
        self.base: Checkpoint = as_sealed(base) if base.journal or base.nested else base
        self.root: bool = base.path == ""  # whether this is the run itself, not one nested in it
        try:
            # The journal is folded as it was when it was written. One that does not fit was forged, or cut: to skip what does not
            # fit would skip a beginning, and run its call twice.
            state, aside = folded(self.base, base.journal, spec.apply)
        except IllegalOutcome as error:
            raise CheckpointError(f"the journal of checkpoint {base.id} does not follow from it: {error}") from error
        self.stored: Checkpoint = state
        self.unsaved: list[Outcome] = []
        self._writing = self.written
        self.settled: dict[str, CallSettled] = settled_in(base.journal)
        # A message that came into the conversation is in a checkpoint before the model reads it: there it is told.
        self.dirty: bool = fresh or bool(aside) or state.unread != self.base.unread
        self.audit: list[AuditRow] = []
        # Lines about decisions of others that do not count. They stay until they are written, whoever writes first.
        self.aside: list[AuditRow] = ledger.set_aside(state, aside) if aside else []
        self.late: tuple[str, ...] = ()
        self.again: dict[
            str, Runner
        ] = {}  # the runs inside calls that have failed, and are to go on in another attempt
        self.crew: Crew[Outcome] | None = None  # the calls under way, where more may begin meanwhile
        self.acrew: ACrew[Outcome] | None = None
        self.timeout: float | None = None
        self.since: int = 0
        self.notes: tuple[Mapping[str, str], ...] = ()  # what hooks want whoever goes on to know
        self.raised: dict[str, Exception] = {}
        self.halted: bool = False
        self.timed_out: tuple[str, ...] = ()
        self.looked: object = None  # where no breakpoint has stopped it
        # Only the root can hold: a run inside a call is not returned from, so the root waits for it.
        self.hold: Holding | None = spec.hold if self.root else None
        self.teller: Telling | None = None
        if self.root:
            self.shared.breakpoints = spec.breakpoints
        self.state: Checkpoint = state
        # What the run has, and no more than whoever drives it gives, nor than a run around it has.
        given = spec.scopes if within is None else within.scopes
        self.scopes: frozenset[str] = frozenset(state.scopes) if given is None else given.intersection(state.scopes)
        self._look()
        # Refusals bind the whole run, those from before a crash too. They are in the decisions of each chain, and read from there:
        # nothing else would survive a process.
        for each in (state, *(self.shared.nested.values() if self.root else ())):
            self._note_refusals(each, each.decisions)

    def _look(self) -> None:
        """Take note of who has the conversation, and of what that changes."""
        home = self.home
        self.spec: Spec = home.speaking(self.state)  # of whoever has the conversation now; `home` is that of the run
        # None: there are none until the conversation goes to another agent, when all this is looked up anew.
        self.breakpoints: Armed | None = armed(self.shared.breakpoints, home.breakpoints, self.spec.breakpoints)
        own = home.policy if self.spec is home else (*self.spec.policy, *home.policy)
        # The approval policies over the run, from the inside out: of who speaks, its own, those of the runs around it.
        self.policies: tuple[Rule, ...] = (*own, *self._around)
        self._definitions: tuple[dict[str, Any], ...] | None = None

    def _go_on_from(self, state: Checkpoint) -> None:
        """Stand at this state. A handoff in it changes who speaks, and so the spec that plans and folds."""
        # Identity is enough: a state that is evolved keeps the very tuple. One that is read from a row has another, and then
        # looking again does no harm.
        handed_over = state.handoffs is not self.state.handoffs
        self.state = state
        if handed_over:
            self._look()

    @property
    def facts_text(self) -> JsonText | None:
        """The facts of the team that the run belongs to, the innermost of several; None if there is none."""
        own = self.home.flow.facts_in(self.state) if self.home.flow is not None else None
        return own if own is not None or self._within is None else self._within.facts_text

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation: for what a body calls, that of the run around it."""
        if self._within is not None and self.home.kind == KIND:
            return self._within.messages
        return self.state.messages

    @property
    def facts(self) -> dict[str, Any]:
        """The facts as a fresh dict; empty if there is no team."""
        text = self.facts_text
        return {} if text is None else plain_object(text)

    def rules_about(self, call: Call, tool: Tool) -> Sequence[Rule]:
        """The rules that have a say about a call, which has come to this tool: those of a tool cover what stands in for it.

        What a graph runs is gated by the options of its nodes.
        """
        # The node of a graph is gated where it is put into the graph. A policy with a pattern for tools that happened to fit the
        # name of a node would gate what it was not written for.
        if not self.policies or self.home.flow is not None:
            return ()
        asked = self.spec.tools.get(call.name, tool) if call.fallback else tool
        return [rule for rule in self.policies if rule.covers(tool) or rule.covers(asked)]

    def gates(self, tool: Tool) -> bool:
        """True if an approval policy may ask about calls of this tool: a body cannot call it like a function."""
        return any(rule.may_ask and rule.covers(tool) for rule in self.policies)

    @property
    def bounds_inside(self) -> tuple[Runner, ...]:
        """The runs whose limits bound what the runs inside this one use: itself, and those around it."""
        return (self, *self.bounds) if is_bounding(self.home.limits) or self.timeout is not None else self.bounds

    def work_within(self, tool: Tool | None, call: Call) -> None:
        """Hold to the timeout of the call that this run is inside, from where the present attempt began (law 13)."""
        self.timeout, self.since = tool.timeout if tool is not None else None, call.worked

    def plan(self) -> Move:
        """What comes next; a failure where that is more than a run around this one, or an attempt at its call, may use."""
        move = self.spec.plan(self.state if self.made is None else made_alone(self.state, self.made))
        around = self.bounds if self.timeout is None else (self, *self.bounds)
        return over_above(around, move) or move if around else move

    @property
    def definitions(self) -> tuple[dict[str, Any], ...]:
        """What the model is told of the tools."""
        if self._definitions is None:
            self._definitions = tuple([tool.definition() for tool in self.tools.values()])
        return self._definitions

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that are there for the run: those whose scopes it has."""
        return {name: tool for name, tool in self.spec.tools.items() if tool.scopes <= self.scopes}

    def tool(self, call: Call) -> Tool | None:
        """The tool that a call is for now; None if there is none, or none for a run of these scopes."""
        tool = self.spec.tool(call)
        return tool if tool is not None and tool.scopes <= self.scopes else None

    @property
    def is_at_work(self) -> bool:
        """Whether calls are under way here, besides which more may begin."""
        return any(crew is not None and crew.is_busy for crew in (self.crew, self.acrew))

    @property
    def seals_in_flight(self) -> bool:
        """Whether a checkpoint follows though calls run: what has begun meanwhile is read there by those who have no spec."""
        return self.dirty and self.home.flow is not None and self.home.flow.is_eager

    @property
    def in_flight(self) -> bool:
        """Whether a call of this chain is running now."""
        return "started" in self._statuses

    @property
    def is_broken(self) -> bool:
        """Whether a call was left in the middle, or failed: it has to be dealt with before the run goes on."""
        return bool(self._statuses & {"started", "failed"})

    @property
    def _statuses(self) -> Set[CallStatus]:
        """How the calls stand. This is asked for after every result, and there may be hundreds of calls."""
        calls, known = self._known_statuses
        if calls is not self.state.calls:
            calls, known = self._known_statuses = self.state.calls, {call.status for call in self.state.calls}
        return known

    @property
    def may_end(self) -> bool:
        """Whether it has not ended, and holds no call of which nobody knows what it did: a human is asked about that in any case."""
        if self.state.ended is not None or self.state.ending is not None:
            return False
        return "outcome_unknown" not in [item.why for item in self.state.pending]

    @property
    def moved(self) -> bool:
        """Whether anything has happened since the last checkpoint, stored or not."""
        return self.dirty or self.state is not self.base

    def has_news(self, intents: Sequence[Outcome]) -> bool:
        """Whether there is anything to store. Where there is not, the last write was just now, and took the claim."""
        return self.dirty or bool(self.unsaved) or bool(intents) or self.ledger.claim is None

    def path_in(self, id: str) -> str:
        """The path of what is inside a call."""
        return path_inside(self.state.path, id)

    def stale_in(self, calls: Sequence[Call]) -> tuple[Call, ...]:
        """The calls among these whose tool now reads their arguments as others than were shown."""
        return tuple([call for call in calls if self.path_in(call.id) in self.shared.stale])

    def record(self, outcome: Outcome) -> None:
        """Fold an outcome into the state. It is stored with the next write."""
        # The stop is recorded before the result, so no state lies between the two in which the next step is due: a crash there
        # would go past the breakpoint.
        if self.breakpoints is not None and (halted := after_call(self, outcome)) is not None:
            self.record(halted)
        turn_open = bool(self.state.calls)
        # The audit line is made with the state before the outcome: there the request still stands that was decided.
        before, spec = self.state, self.spec  # a handoff changes the latter
        self._go_on_from(spec.apply(before, outcome))
        if isinstance(outcome, (Decided, Ending)):
            told = self.ledger.audited(before, outcome)
            if told and isinstance(outcome, Decided) and outcome.decision.grant is not None:
                self.audit += [trail_row(each) for each in votes_by_grant(before, outcome.decision)]
            self.audit += told
            if isinstance(outcome, Decided):
                self._note_refusals(self.state, [outcome.decision])
        elif isinstance(outcome, Voted):
            self.audit += self.ledger.audited_vote(before, outcome)
        elif isinstance(outcome, Judged):
            self.audit += [trail_row(each) for each in refusals(before, outcome)]
        if isinstance(outcome, (Judged, CallFailed)):
            refused = refused_calls(spec, self.scopes, before, outcome, self.ledger.store)
            self.audit += [trail_row(each) for each in refused]
        # After the fold, which raises if the outcome is not legal. What is refused must not come into the log by the next write.
        self.unsaved.append(outcome)
        # What is only journaled needs no checkpoint yet (law 7). A failure does: it goes out to the caller, with a checkpoint that
        # shows how all calls stand.
        if (
            not isinstance(outcome, (CallStarted, CallSettled, CallFailed))
            or (turn_open and not self.state.calls)
            or "failed" in self._statuses
        ):
            self.dirty = True
        flow = self.home.flow
        for id, why in flow.over(self.state).items() if flow is not None else ():
            self.dirty = True
            # Told at once, in this thread: the call that has become superfluous may be in the middle of a model call that costs by
            # the second.
            self.shared.wanted.dismiss(self.path_in(id), why)

    def _note_refusals(self, state: Checkpoint, decisions: Iterable[Decision]) -> None:
        """Take note of what a human refused for good by these decisions: no agent of the run may do it."""
        for decision in decisions:
            if decision.kind == "reject" and decision.then in ("block", "block_tool") and not decision.to_check:
                self.shared.refused[decision.pending_id] = decision
            elif state.rejecting and decision.ends_all:
                self.shared.end_by(decision)

    def narrow(self) -> None:
        """Record that whoever drives the run takes scopes away, if so: whoever goes on with it after them has no more."""
        if not self.scopes.issuperset(self.state.scopes) and self.state.ended is None:
            self.record(Narrowed(scopes=tuple(sorted(self.scopes))))

    def stops_before(self, move: Move) -> bool:
        """Whether a breakpoint is before this move. The stop is recorded then."""
        if (halted := before(self, move)) is None:
            return False
        self.record(halted)
        return True

    def record_all(self, outcomes: Iterable[Outcome]) -> None:
        """Fold in several outcomes."""
        for outcome in outcomes:
            self.record(outcome)

    def absorb(self) -> None:
        """Fold in what others have written, as far as it still applies. A run that ends takes the runs nested in it along."""
        # Only the root reads the log of others. A run inside hears of it through what is shared, and writes it down in its own
        # chain too, so that its checkpoint alone says why it ended.
        if self.root:
            if self.ledger.inbox:
                self.rebase()
        elif self.shared.ending is not None and self.state.ending is None and self.state.ended is None:
            self.record(self.shared.ending)
        # The refusal may have been of something in this very run: then it is decided here as well. Any other run of the tree is
        # cancelled by it.
        elif (decision := self.shared.ended_by) is not None and not (self.state.ended or is_ending(self.state)):
            if any(item.id == decision.pending_id for item in self.state.pending):
                self.record(Decided(decision=decision))
            else:
                self.record(Ending(status="cancelled", reason=ENDED, by=decision.by, at=decision.at))
        # A call of which nobody knows what it did keeps a superfluous run alive. A human is asked in any case (law 5), and must
        # find it.
        elif (why := self.shared.wanted.why_not(self.state.path)) is not None and self.may_end:
            self.record(Ending(status="cancelled", reason=why, at=now(self.ledger.store)))
        # Runs inside stop at a boundary of their own, as the root does: graphs between their nodes, agents before the model is asked
        # or calls begin. Whoever pauses a team means all of it.
        elif (halted := self.shared.halted) is not None and not self.halted:
            self.halted = True
            # It may have ended by the same write.
            with suppress(IllegalOutcome):
                self.record(halted.evolve(pending_id=new_id("pend")))

    def rebase(self) -> None:
        """Somebody wrote first: put what they wrote before what is not stored yet, and drop what no longer applies."""
        # Our lines of the audit trail go with the write that was refused. If an outcome still applies, `record` makes its line
        # anew; if it does not, nobody did what it would tell of.
        self.ledger.unaudited(self.audit)
        ours, self.unsaved, self.audit = self.unsaved, [], []
        self._go_on_from(self.stored)
        if self.root:
            while self.ledger.inbox:
                self._fold(self.ledger.inbox.pop(0))
            self.stored = self.state
        for outcome in ours:
            try:
                self.record(outcome)
            except IllegalOutcome:
                continue

    def _fold(self, outcome: Outcome) -> None:
        try:
            self._go_on_from(self.spec.apply(self.state, outcome))
        except IllegalOutcome:
            aside = self.ledger.set_aside(self.state, [outcome])
            self.aside += aside
            self.dirty = self.dirty or bool(aside)
            return
        # Whoever wrote a decision has told the audit trail of it in the same write. This worker only carries it out, and must not
        # tell of it twice.
        self.ledger.left_here(outcome)
        self.dirty = True

    def prepare(self, *, seal: bool, intents: Sequence[Outcome] = (), stop: bool = False) -> Append:
        """The next write: what is not stored yet, as a new checkpoint if `seal`, and then the intents."""
        sealed: Checkpoint | None = None
        journal = self.unsaved
        if seal:
            # The results stay in the journal beside the row, and the row refers to them: each is stored once (law 14), and is found
            # by forks.
            journal = [_kept(outcome) for outcome in self.unsaved if isinstance(outcome, _KEPT)]
            sealed = self.state if self.fresh else self._sealed(intents)
        items: list[Outcome | Checkpoint] = [*journal, *intents]
        if sealed is not None:
            items.insert(len(journal), sealed)
        entries: list[Entry] = []
        naming = self.ledger.naming()
        # In the order of what happened: what has settled, the checkpoint that follows from it, and what begins after that. Whoever
        # replays the log folds them in this order.
        row: Checkpoint | None = None
        for item in items:
            if not isinstance(item, Checkpoint):
                entries.append(journal_entry(item, self.state.path, row))
                continue
            row = item
            if self.fresh:
                entries.append(row_entry(None, row, {}, naming))
            else:
                entries.append(row_entry(self.base, row, {**self.settled, **settled_in(journal)}, naming))
        # The run is let go with the write that says where it rests. Between two writes another worker could find it held by a
        # process that has left, and the decider of its approval would have to wait for a lease.
        release = stop and self.root
        # Runs inside calls are rows in the same log, and have no status in the list of runs.
        status = (self.state.status if stop else "running") if self.root else None
        announce = bool(self.spec.announcements) and self.root
        change = self.ledger.change(
            entries,
            sealed,
            naming=naming,
            status=status,
            release=release,
            audit=(*self.aside, *self.audit),
            announce=announce,
        )
        self._writing = Written(change.seq, self.state.path, tuple(items))
        return change

    def _sealed(self, intents: Sequence[Outcome]) -> Checkpoint:
        """The state as the next checkpoint of the chain. It is not younger than what begins after it, by these intents."""
        id = self.ledger.checkpoint_id(self.state.path, self.state.step + 1)
        at = next((intent.at for intent in intents if isinstance(intent, CallStarted)), None) or now(self.ledger.store)
        sealed = chain.seal(self.state, id=id, at=at)
        # Lists find checkpoints of the outermost run alone: a run inside has none that could be gone on with by itself.
        flow = self.home.flow if self.root else None
        if flow is not None and (label := flow.label_of(self.base, sealed)) is not None:
            sealed = sealed.evolve(label=label)
        for note in self.notes:
            sealed = sealed.evolve(metadata=canonical({**sealed.metadata, **note}))
        return sealed

    def wrote(self, intents: Sequence[Outcome]) -> None:
        """Take note that the write is stored: the intents hold from here on."""
        self.written = self._writing
        sealed = self.written.checkpoint
        if sealed is not None:
            self.base = sealed
            self._go_on_from(sealed)
            self.settled, self.dirty, self.fresh = {}, False, False
        elif self.unsaved:
            self.settled = {**self.settled, **settled_in(self.unsaved)}
        self.unsaved, self.audit, self.aside = [], [], []
        # The intents hold once they are stored, not before. If the write was refused, no call has begun, and the state must not say
        # so.
        for outcome in intents:
            self._go_on_from(self.spec.apply(self.state, outcome))
        self.stored = self.state
        # Calls that others have made superfluous are left only once the end of those is stored: a crash in between would find
        # neither a winner nor the ones it beat.
        if self.shared.wanted.asked:
            running = {self.path_in(call.id) for call in self.state.calls if call.status == "started"}
            self.shared.wanted.stored(self.state.path, running)
        if self.hold is not None:
            self.hold.note(self)

    def commit(self, *, seal: bool, intents: Sequence[Outcome] = (), stop: bool = False) -> bool:
        """Store what is not stored yet. False if somebody wrote first: then theirs is folded in, and the plan may differ."""
        return self._commit(seal, intents, stop)

    def _commit(self, seal: bool, intents: Sequence[Outcome], stop: bool) -> bool:
        # If this is cut off by Ctrl-C, the write may be there or not. `writing` stays True then, and whoever lets go of the run
        # asks the store instead of writing again.
        self.writing = True
        self.untouched = tuple(intents) or self.untouched
        stored = self.ledger.write(partial(self.prepare, seal=seal, intents=intents, stop=stop), self._heard)
        if stored:
            self.wrote(intents)
        else:
            self.untouched = ()
            self.rebase()
        self.writing = False
        return stored

    def _heard(self) -> None:
        """Tell the watchers of a write inside a call, in the order of the log."""
        if self.shared.heard is not None and not self.root:
            self.shared.heard.append(Inner(self.state.path, self._writing))

    def enters(self, id: str) -> None:
        """A call is entered, or handed to a thread that enters it whenever it likes: nobody takes its intent back any more."""
        # Nothing is written where it is not among them: a call in a thread must not put back what was handed over meanwhile.
        if any(isinstance(intent, CallStarted) and intent.id == id for intent in self.untouched):
            self.untouched = tuple(
                [each for each in self.untouched if not (isinstance(each, CallStarted) and each.id == id)]
            )

    def withdraw(self, intents: Sequence[Outcome]) -> None:
        """Whoever drives the run leaves before the calls are begun whose intents were just stored: store that too."""
        self.untouched = ()
        self.record(withdrawn(intents))
        # Whoever leaves has an exception of their own on the way, which must not be replaced.
        with suppress(Exception):  # then the intents stand, and a human is asked what nobody needed to
            self.commit(seal=False)

    async def awithdraw(self, intents: Sequence[Outcome]) -> None:
        """As `withdraw`."""
        self.untouched = ()
        self.record(withdrawn(intents))
        with suppress(Exception):
            await self.acommit(seal=False)

    async def acommit(self, *, seal: bool, intents: Sequence[Outcome] = (), stop: bool = False) -> bool:
        """As `commit`. A cancellation meanwhile is raised once it is known, and noted, what became of the write."""
        return await whole(self._acommit(seal, intents, stop))

    async def _acommit(self, seal: bool, intents: Sequence[Outcome], stop: bool) -> bool:
        self.writing = True
        self.untouched = tuple(intents) or self.untouched
        stored = await self.ledger.awrite(partial(self.prepare, seal=seal, intents=intents, stop=stop), self._heard)
        if stored:
            self.wrote(intents)
        else:
            self.untouched = ()
            self.rebase()
        self.writing = False
        return stored


def withdrawn(intents: Sequence[Outcome]) -> Withdrawn:
    """The outcome that takes back the intents to run calls: none was begun."""
    return Withdrawn(ids=tuple(intent.id for intent in intents if isinstance(intent, CallStarted)))


def _hides_input(within: Runner, path: str) -> bool:
    """Whether the input of the run inside a call is not for everybody's eyes: a tool around it redacts what it is made of."""
    call = next((each for each in within.state.calls if within.path_in(each.id) == path), None)
    tool = within.spec.tool(call) if call is not None else None
    return within.hides_input or tool is None or bool(tool.redact)
