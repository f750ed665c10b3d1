"""One chain of a run while it is driven: its spec, its state, and what of it is not stored yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from phronomy.approvals.policy import Rule
from phronomy.concurrency.pieces import Heard, Inner, Piece
from phronomy.engine.ledger import Ledger, now
from phronomy.engine.spec import Holding, Spec
from phronomy.engine.stop_points import Armed, after_call, armed, before
from phronomy.engine.usage import over_above
from phronomy.errors import CheckpointError, IllegalOutcome
from phronomy.foundation.ids import new_id
from phronomy.foundation.json_text import canonical
from phronomy.models.base import Delta
from phronomy.records import chain
from phronomy.records.calls import (
    CallFailed,
    CallSettled,
    CallStarted,
    CallUnknown,
    CallWaits,
    Decided,
    Ending,
    Guarded,
    Move,
    Outcome,
    Withdrawn,
)
from phronomy.records.checkpoint import Checkpoint
from phronomy.rules.added_messages import is_ending
from phronomy.rules.limits import is_bounding
from phronomy.rules.texts_for_model import ENDED
from phronomy.stores.log.log import as_sealed, journal_entry, row_entry, settled_in
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
"""What the loops give to whoever drives them: what was stored, and what passes."""


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

    def __init__(
        self,
        spec: Spec,
        ledger: Ledger,
        base: Checkpoint,
        *,
        deps: Any,
        fresh: bool = False,
        within: Runner | None = None,
    ) -> None:
        self.home = spec
        self._around = within.policies if within is not None else ()
        self.bounds: tuple[Runner, ...] = () if within is None else within.bounds_inside
        self.ledger = ledger
        self.shared = ledger.shared
        self.deps = deps
        self.fresh: bool = fresh
        self.watched = False
        self.streams = False
        self.written: Written = Written(ledger.seq, base.path, ())
        self.begins = False
        self.origin: Checkpoint = base
        self.origin_seq: int = ledger.seq
        self.writing: bool = False
        self.base: Checkpoint = as_sealed(base) if base.journal or base.nested else base
        self.root: bool = base.path == ""  # whether this is the run itself, not one nested in it
        state = self.base
        try:
            for outcome in base.journal:
                state = spec.apply(state, outcome)
        except IllegalOutcome as error:
            raise CheckpointError(f"the journal of checkpoint {base.id} does not follow from it: {error}") from error
        self.stored: Checkpoint = state
        self.unsaved: list[Outcome] = []
        self._writing = self.written
        self.settled: dict[str, CallSettled] = settled_in(base.journal)
        self.dirty: bool = fresh
        self.audit: list[AuditRow] = []
        self.late: tuple[str, ...] = ()
        self.notes: tuple[Mapping[str, str], ...] = ()  # what hooks want whoever goes on to know
        self.raised: dict[str, Exception] = {}
        self.halted: bool = False
        self.timed_out: tuple[str, ...] = ()
        self.looked: object = None  # where no breakpoint has stopped it
        self.hold: Holding | None = spec.hold if self.root else None
        if self.root:
            self.shared.breakpoints = spec.breakpoints
        self.state: Checkpoint = state
        self._look()
        for each in (state, *(self.shared.nested.values() if self.root else ())):
            self._note_refusals(each)

    def _look(self) -> None:
        """Take note of who has the conversation, and of what that changes."""
        home = self.home
        self.spec: Spec = home.speaking(self.state)  # of whoever has the conversation now; `home` is that of the run
        # None: there are none, and never will be.
        self.breakpoints: Armed | None = armed(self.shared.breakpoints, home.breakpoints, self.spec.breakpoints)
        own = home.policy if self.spec is home else (*self.spec.policy, *home.policy)
        # The approval policies over the run, from the inside out: of who speaks, its own, those of the runs around it.
        self.policies: tuple[Rule, ...] = (*own, *self._around)
        self._definitions: tuple[dict[str, Any], ...] | None = None

    def _go_on_from(self, state: Checkpoint) -> None:
        """Stand at this state. A handoff in it changes who speaks, and so the spec that plans and folds."""
        handed_over = state.handoffs is not self.state.handoffs
        self.state = state
        if handed_over:
            self._look()

    def rules_about(self, tool: Tool) -> Sequence[Rule]:
        """The rules that have a say about a call of this tool. What a graph runs is gated by the options of its nodes."""
        if not self.policies or self.home.flow is not None:
            return ()
        return [rule for rule in self.policies if rule.covers(tool)]

    @property
    def bounds_inside(self) -> tuple[Runner, ...]:
        """The runs whose limits bound what the runs inside this one use: itself, and those around it."""
        return (self, *self.bounds) if is_bounding(self.home.limits) else self.bounds

    def plan(self) -> Move:
        """What comes next; a failure where that is more than a run around this one may use."""
        move = self.spec.plan(self.state)
        return over_above(self.bounds, move) or move if self.bounds else move

    @property
    def definitions(self) -> tuple[dict[str, Any], ...]:
        """What the model is told of the tools."""
        if self._definitions is None:
            self._definitions = tuple([tool.definition() for tool in self.spec.tools.values()])
        return self._definitions

    @property
    def in_flight(self) -> bool:
        """Whether a call of this chain is running now."""
        return "started" in {call.status for call in self.state.calls}

    @property
    def is_broken(self) -> bool:
        """Whether a call was left in the middle, or failed: it has to be dealt with before the run goes on."""
        return not {call.status for call in self.state.calls}.isdisjoint(("started", "failed"))

    @property
    def may_end(self) -> bool:
        """Whether it has not ended, and holds no call of which nobody knows what it did: a human is asked about that in any case."""
        if self.state.ended is not None or self.state.ending is not None:
            return False
        return "outcome_unknown" not in [item.why for item in self.state.pending]

    @property
    def moved(self) -> bool:
        """Whether anything has happened since the last checkpoint, stored or not."""
        return self.fresh or self.state is not self.base

    def has_news(self, intents: Sequence[Outcome]) -> bool:
        """Whether there is anything to store. Where there is not, the last write was just now, and took the claim."""
        return self.dirty or bool(self.unsaved) or bool(intents) or self.ledger.claim is None

    def path_in(self, id: str) -> str:
        """The path of what is inside a call."""
        return f"{self.state.path}/{id}".lstrip("/")

    def record(self, outcome: Outcome) -> None:
        """Fold an outcome into the state. It is stored with the next write."""
        if self.breakpoints is not None and (halted := after_call(self, outcome)) is not None:
            self.record(halted)
        turn_open = bool(self.state.calls)
        before = self.state
        self._go_on_from(self.spec.apply(before, outcome))
        if isinstance(outcome, (Decided, Ending)):
            self.audit += self.ledger.audited(before, outcome)
            self._note_refusals(self.state)
        self.unsaved.append(outcome)
        journaled = isinstance(outcome, (CallStarted, CallSettled, CallFailed))
        fails = "failed" in {call.status for call in self.state.calls}  # the error is to show how all calls stand
        if not journaled or fails or (turn_open and not self.state.calls):
            self.dirty = True
        flow = self.home.flow
        for id, why in flow.over(self.state).items() if flow is not None else ():
            self.dirty = True
            self.shared.wanted.dismiss(self.path_in(id), why)

    def _note_refusals(self, state: Checkpoint) -> None:
        """Take note of what a human refused for good: no agent of the run may do it."""
        for decision in state.decisions:
            if decision.kind == "reject" and decision.then == "block":
                self.shared.refused[decision.pending_id] = decision
            elif state.rejecting and decision.ends_all:
                self.shared.end_by(decision)

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
        if self.root:
            if self.ledger.inbox:
                self.rebase()
        elif self.shared.ending is not None and self.state.ending is None and self.state.ended is None:
            self.record(self.shared.ending)
        elif (decision := self.shared.ended_by) is not None and not (self.state.ended or is_ending(self.state)):
            if any(item.id == decision.pending_id for item in self.state.pending):
                self.record(Decided(decision=decision))
            else:
                self.record(Ending(status="cancelled", reason=ENDED, by=decision.by, at=decision.at))
        elif (why := self.shared.wanted.why_not(self.state.path)) is not None and self.may_end:
            self.record(Ending(status="cancelled", reason=why, at=now(self.ledger.store)))
        elif (halted := self.shared.halted) is not None and self.spec.flow is not None and not self.halted:
            self.halted = True
            with suppress(IllegalOutcome):
                self.record(halted.evolve(pending_id=new_id("pend")))

    def rebase(self) -> None:
        """Somebody wrote first: put what they wrote before what is not stored yet, and drop what no longer applies."""
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
            return
        self.ledger.left_here(outcome)
        self.dirty = True

    def prepare(self, *, seal: bool, intents: Sequence[Outcome] = (), stop: bool = False) -> Append:
        """The next write: what is not stored yet, as a new checkpoint if `seal`, and then the intents."""
        sealed: Checkpoint | None = None
        journal = self.unsaved
        if seal:
            journal = [_kept(outcome) for outcome in self.unsaved if isinstance(outcome, _KEPT)]
            sealed = self.state if self.fresh else self._sealed()
        items: list[Outcome | Checkpoint] = [*journal, *intents]
        if sealed is not None:
            items.insert(len(journal), sealed)
        entries: list[Entry] = []
        for item in items:
            if not isinstance(item, Checkpoint):
                entries.append(journal_entry(item, self.state.path))
            elif self.fresh:
                entries.append(row_entry(None, item, {}))
            else:
                entries.append(row_entry(self.base, item, {**self.settled, **settled_in(journal)}))
        release = stop and self.root
        status = (self.state.status if stop else "running") if self.root else None
        announce = bool(self.spec.announcements) and self.root
        change = self.ledger.change(
            entries, sealed, status=status, release=release, audit=tuple(self.audit), announce=announce
        )
        self._writing = Written(change.seq, self.state.path, tuple(items))
        return change

    def _sealed(self) -> Checkpoint:
        """The state as the next checkpoint of the chain."""
        id = self.ledger.checkpoint_id(self.state.path, self.state.step + 1)
        sealed = chain.seal(self.state, id=id, at=now(self.ledger.store))
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
        self.unsaved, self.audit = [], []
        for outcome in intents:
            self._go_on_from(self.spec.apply(self.state, outcome))
        self.stored = self.state
        if self.shared.wanted.asked:
            running = {self.path_in(call.id) for call in self.state.calls if call.status == "started"}
            self.shared.wanted.stored(self.state.path, running)
        if self.hold is not None:
            self.hold.note(self)

    def commit(self, *, seal: bool, intents: Sequence[Outcome] = (), stop: bool = False) -> bool:
        """Store what is not stored yet. False if somebody wrote first: then theirs is folded in, and the plan may differ."""
        self.writing = True
        stored = self.ledger.write(partial(self.prepare, seal=seal, intents=intents, stop=stop), self._heard)
        if stored:
            self.wrote(intents)
        else:
            self.rebase()
        self.writing = False
        return stored

    def _heard(self) -> None:
        """Tell whoever watches of a write inside a call, in the order of the log."""
        if self.shared.heard is not None and not self.root:
            self.shared.heard.append(Inner(self.state.path, self._writing))

    def withdraw(self, intents: Sequence[Outcome]) -> None:
        """Whoever drives the run leaves before the calls are begun whose intents were just stored: store that too."""
        self.record(Withdrawn(ids=tuple(intent.id for intent in intents if isinstance(intent, CallStarted))))
        with suppress(Exception):  # then the intents stand, and a human is asked what nobody needed to
            self.commit(seal=False)

    async def awithdraw(self, intents: Sequence[Outcome]) -> None:
        """As `withdraw`."""
        self.record(Withdrawn(ids=tuple(intent.id for intent in intents if isinstance(intent, CallStarted))))
        with suppress(Exception):
            await self.acommit(seal=False)

    async def acommit(self, *, seal: bool, intents: Sequence[Outcome] = (), stop: bool = False) -> bool:
        """As `commit`."""
        self.writing = True
        stored = await self.ledger.awrite(partial(self.prepare, seal=seal, intents=intents, stop=stop), self._heard)
        if stored:
            self.wrote(intents)
        else:
            self.rebase()
        self.writing = False
        return stored
