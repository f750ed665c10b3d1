"""The events of a run, as they happen or read off its log.

All but pieces of replies and of nodes are read off the store's log, so the same events can be read again later, with the same ids:
a page that lost its connection asks for those after the last it has seen (`replay`). `seq` is the place in the log of the branch that
the event was read off, `part` tells apart those of one place.
"""

from collections.abc import Iterator
from operator import not_
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, assert_never

from pydantic import Field, TypeAdapter, ValidationError

from phronomy.concurrency.pieces import Piece
from phronomy.errors import ConfigurationError, PhronomyError
from phronomy.foundation.json_text import clean
from phronomy.foundation.quoting import quoted_id
from phronomy.models.base import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from phronomy.observability.changes import (
    added_messages,
    call_facts,
    guardrails_said,
    is_copy,
    is_unknown,
    name_of,
    said,
    waits,
)
from phronomy.observability.decisions import LeftDecisions
from phronomy.observability.resumed import StoppedCalls
from phronomy.observability.votes import LevelVotes, Votes
from phronomy.records.approvers import Vote
from phronomy.records.calls import (
    Call,
    CallFailed,
    CallSettled,
    CallStarted,
    Guarded,
    Next,
    Outcome,
    Status,
    path_inside,
)
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.records.messages import NO_USAGE, Message, Settlement, Usage
from phronomy.records.principals import Recorded
from phronomy.records.record import NULL, Json, JsonObject, Record, Text, Time
from phronomy.stores.base import Store
from phronomy.stores.derived.kept_texts import whole_lineage
from phronomy.stores.derived.request_history import RequestFact
from phronomy.stores.log.log import items_of
from phronomy.stores.rows import Lineage


class _Event(Record):
    """The fields that every event has. `path` is the path of a nested run; it is empty for the outermost run."""

    wire_adds: ClassVar[tuple[str, ...]] = ("id",)

    version: Literal[1] = 1
    run_id: str
    branch_id: str
    thread_id: Text | None = None
    path: str = ""
    seq: int
    part: int = 0

    @property
    def id(self) -> str:
        """The place of the event in its branch, as text.

        Send it as the `id:` of a server-sent event, and pass it to `replay` as `after`.
        """
        return f"{self.seq}.{self.part}"

    @property
    def key(self) -> str:
        """An id of the event that is unique over all runs. It is the same each time the event is announced."""
        return f"{self.branch_id}:{self.id}"


class RunStarted(_Event):
    """A run has started, with this input."""

    type: Literal["run_started"] = "run_started"
    agent: Text
    input: Json = Field(default=NULL, repr=False)


class ModelStarted(_Event):
    """A model is asked. This event is not stored, so only a live stream has it."""

    type: Literal["model_started"] = "model_started"
    model: Text = ""


class TextPiece(_Event):
    """The next piece of the text of a reply. It is not stored, so only a live stream has it."""

    type: Literal["text_delta"] = "text_delta"
    text: Text


class ReasoningPiece(_Event):
    """The next piece of the visible reasoning of a model. It is not stored, so only a live stream has it."""

    type: Literal["reasoning_delta"] = "reasoning_delta"
    text: Text


class ToolCallPiece(_Event):
    """The next piece of a tool call: `index` is its place in the reply.

    It is not stored, so only a live stream has it.
    """

    type: Literal["tool_call_delta"] = "tool_call_delta"
    index: int
    call_id: Text
    tool_name: Text
    arguments: Text = Field(repr=False)


class ModelReplied(_Event):
    """The model has replied with this message. `usage` is the usage of the run so far, and `spent` that of this reply.

    `unknown` are the ids of calls of tools that do not exist; the names of such tools are the model's own text.
    """

    type: Literal["model_replied"] = "model_replied"
    message: Message
    usage: Usage
    spent: Usage = NO_USAGE
    unknown: tuple[Text, ...] = Field(default=(), exclude_if=not_)

    @property
    def text(self) -> str:
        """The text of the reply."""
        return self.message.text


class ApprovalRequested(_Event):
    """A call waits for a human. `pending` is the request to show; the decision is bound to it."""

    type: Literal["approval_requested"] = "approval_requested"
    pending: PendingApproval
    checkpoint_id: str


class Voted(_Event):
    """Somebody voted on a pending request, and it takes more votes: `levels` says how many at each level.

    The last vote has no such event: it is in the decision. `inside` is the path of the nested run that asks, if one does.
    """

    type: Literal["voted"] = "voted"
    pending_id: str
    tool_name: Text
    inside: str = ""
    vote: Vote
    levels: tuple[LevelVotes, ...]


class Decided(_Event):
    """A pending request was decided."""

    type: Literal["decided"] = "decided"
    decision: Decision


class ToolCallStarted(_Event):
    """A tool starts next, for the `attempt`-th time; or its call goes on in the same attempt, where it stopped (`resumed`).

    A call stops where its body asks or waits, or where its nested run does. To count calls or attempts, leave out what is
    `resumed`. `inside` is the path of the nested run in the call, if there is one.
    """

    type: Literal["tool_call_started"] = "tool_call_started"
    call_id: Text
    tool_name: Text
    attempt: int
    resumed: bool = False
    at: Time
    args: JsonObject | None = Field(default=None, repr=False)
    inside: str = ""


class NodePiece(_Event):
    """The next piece of the output of a node, by channel. It is not stored, so only a live stream has it.

    The output is complete when the call has settled. If the node is tried again, the pieces of the next `attempt` start
    again from the beginning.
    """

    type: Literal["node_piece"] = "node_piece"
    call_id: Text
    node: Text
    attempt: int
    update: JsonObject = Field(repr=False)


class ToolCallFailed(_Event):
    """An attempt of a call failed. `next` says what follows.

    It is the same tool again, a fallback, the error to the model, a human, or the end of this drive.
    """

    type: Literal["tool_call_failed"] = "tool_call_failed"
    call_id: Text
    tool_name: Text
    error: Text = Field(repr=False)
    next: Next


class ToolCallSettled(_Event):
    """A call has its result: `kind` says how the call ended, and `content` is the text that the model reads.

    `unknown` means that no tool has this name, which is then the model's own text.
    """

    type: Literal["tool_call_settled"] = "tool_call_settled"
    call_id: Text
    tool_name: Text
    kind: Settlement
    content: Text = Field(repr=False)
    unknown: bool = Field(default=False, exclude_if=not_)


class GuardrailsAsked(_Event):
    """Guardrails have checked the input, the answer, or the call `call_id`. `said` has the result of each, by name.

    `code` and `message` are those of the guardrail that refused, if one did.
    """

    type: Literal["guardrail"] = "guardrail"
    stage: Literal["input", "output", "tool"]
    said: dict[str, Literal["passed", "transformed", "refused"]]
    call_id: Text | None = None
    code: Text | None = None
    message: Text | None = Field(default=None, repr=False)


class MessageAdded(_Event):
    """A message that somebody sent to the run is in the conversation, and the model reads it next.

    `message_id` is the `id` of `agent.send`; None if the message came with a decision. `by` is who sent it, and `at` is when.
    """

    type: Literal["message_added"] = "message_added"
    message: Message
    message_id: Text | None = None
    by: Recorded | None = None
    at: Time


class HandedOver(_Event):
    """The conversation went from one agent to another, by the call with this id. The target is asked next."""

    type: Literal["handoff"] = "handoff"
    source: Text
    target: Text
    call_id: Text


class CheckpointSaved(_Event):
    """A checkpoint was stored."""

    type: Literal["checkpoint"] = "checkpoint"
    checkpoint_id: str
    step: int
    status: Status


class Suspended(_Event):
    """The run waits for a human: resume this checkpoint. This is the last event of a stream."""

    type: Literal["suspended"] = "suspended"
    checkpoint_id: str
    pending: tuple[PendingApproval, ...]


class Ended(_Event):
    """The run has ended; `type` says how. This is the last event of a stream."""

    type: Literal["completed", "rejected", "cancelled", "superseded", "skipped"]
    checkpoint_id: str
    output: Json = Field(default=NULL, repr=False)
    usage: Usage


class RequestChanged(_Event):
    """Something happened to one request. Only `Announcements.on_request` has this event: it is in no stream.

    `what` says what: it was `asked`, somebody `voted`, people are `reminded`, it is `escalated` to others, it was
    `decided`, `expired`, `withdrawn`, `carried_out`, or it has `failed`. `request` is the request as it was asked, with
    the votes so far. `path` is its path, and `checkpoint_id` the checkpoint of the outermost run that was the first to
    list it; `agent` and `label` are those of the outermost run.

    `vote` is the vote, if somebody voted, and `levels` says how many votes are missing. `decision` is the decision, if
    there is one. `result_kind` says how the call ended, if it has. `asked_again` is the id of the request that stands in
    its place, if a human is asked again about the same call.
    """

    wire_adds: ClassVar[tuple[str, ...]] = ("key",)

    type: Literal["request"] = "request"
    what: RequestFact
    request: PendingApproval
    checkpoint_id: str
    agent: Text
    label: Text | None = None
    vote: Vote | None = Field(default=None, exclude_if=not_)
    levels: tuple[LevelVotes, ...] = Field(default=(), exclude_if=not_)
    decision: Decision | None = None
    result_kind: Settlement | None = None
    asked_again: str | None = None

    @property
    def key(self) -> str:
        """The id of the request, and what happened: unique over all runs, and the same each time that it is announced."""
        told = f"{self.request.id}:{self.what}"
        if self.what in ("reminded", "escalated"):  # each of several has a number, as votes have
            return f"{told}:{self.request.reminded}"
        return told if self.vote is None else f"{told}:{len(self.request.votes)}"


class Failed(_Event):
    """The run stopped on a failure: resume the checkpoint. The stream raises the error next.

    Only a live stream has this event.
    """

    type: Literal["failed"] = "failed"
    error: Text
    message: Text
    checkpoint_id: str | None


Event: TypeAlias = (
    RunStarted
    | ModelStarted
    | TextPiece
    | ReasoningPiece
    | ToolCallPiece
    | ModelReplied
    | ApprovalRequested
    | Voted
    | Decided
    | ToolCallStarted
    | NodePiece
    | ToolCallFailed
    | ToolCallSettled
    | GuardrailsAsked
    | MessageAdded
    | HandedOver
    | CheckpointSaved
    | Suspended
    | Ended
    | Failed
)
"""An event of a stream. `event.type` says which one it is.

To send an event, use `to_wire(event)`. To store it, use `model_dump_json()`, and read it with `event_from`.
"""

_ANY: TypeAdapter[Event | RequestChanged] = TypeAdapter(Annotated[Event | RequestChanged, Field(discriminator="type")])


def event_from(text: str | bytes) -> Event | RequestChanged:
    """Read an event of a stream, or of an announcement, from its text. Raises `ConfigurationError` for any other text."""
    try:
        return _ANY.validate_json(text)
    except ValidationError as error:
        raise ConfigurationError(
            f"this is no event of version 1: {error.errors(include_input=False)[0]['msg']}"
        ) from None


class Reader:
    """Makes events from the writes of a branch, in order.

    It reads a live run while it is written, and a stored run afterwards. `base` is the checkpoint from which a live run
    starts, with its journal. Its events are not given again.
    """

    def __init__(self, branch_id: str, base: Checkpoint | None = None, *, seq: int = 0) -> None:
        self._branch_id = branch_id
        self._seq = seq
        self._part = 0
        self._made = (seq, -1)  # the place of the last event
        self._missed: list[int] = []  # the places since the last checkpoint at which others wrote
        self._before: dict[str, Checkpoint] = {}
        self._told: dict[str, set[str]] = {}
        self._unsaid: dict[str, Usage] = {}  # what replies cost that guardrails have not let through
        self._votes = Votes(base)
        self._left = LeftDecisions()
        self._stopped = StoppedCalls(base)
        if base is not None:
            for outcome in base.journal:
                self._left.journaled(outcome)
                if isinstance(outcome, CallStarted):
                    self._left.before(base, outcome.id)
            for part in (*base.nested, base):
                self._before[part.path] = part
                told = {item.id for item in part.journal if isinstance(item, CallSettled)}
                self._told[part.path] = told | {call.id for call in part.calls if call.result is not None}

    def read(self, seq: int, path: str, item: Checkpoint | Outcome) -> list[Event]:
        """Gives the events of an entry."""
        return self.checkpoint(seq, item) if isinstance(item, Checkpoint) else self.outcome(seq, path, item)

    def outcome(self, seq: int, path: str, outcome: Outcome) -> list[Event]:
        """Gives the events of a journal entry."""
        self._at(seq)
        before = self._before.get(path)
        resumed = self._stopped.resumes(path, outcome, before)
        match outcome:
            case CallStarted():
                call = next((call for call in before.calls if call.id == outcome.id), None) if before else None
                facts: dict[str, Any] = {"attempt": outcome.attempt, "at": outcome.at, **call_facts(before, outcome.id)}
                facts |= {"inside": path_inside(path, outcome.id), "args": call.__dict__["args"] if call else None}
                facts["resumed"] = resumed
                left = self._left.before(before, outcome.id) if path == "" else []
                decided = [self._make(Decided, path, decision=each) for each in left]
                return [*decided, self._make(ToolCallStarted, path, **facts)]
            case CallFailed():
                named = call_facts(before, outcome.id)
                return [self._make(ToolCallFailed, path, error=outcome.error, next=outcome.next, **named)]
            case CallSettled():
                self._told.setdefault(path, set()).add(outcome.id)
                named, result = call_facts(before, outcome.id), outcome.result
                facts = {**named, "kind": result.kind, "content": result.content}
                return [self._make(ToolCallSettled, path, unknown=is_unknown(named["tool_name"], before), **facts)]
            case Guarded():
                return [self._make(GuardrailsAsked, path, **guardrails_said(before, outcome))]
            case _:
                cast = self._votes.journaled(outcome) if path == "" else []
                if path == "":
                    self._left.journaled(outcome)
                return [self._make(Voted, path, **each.facts) for each in cast]

    def checkpoint(self, seq: int, now: Checkpoint) -> list[Event]:
        """Gives the events of a checkpoint that neither the one before it nor the journal between has given."""
        self._at(seq)
        voted = [*self._voted(seq, now)]
        before = self._before.get(now.path)
        if before is not None and before.run_id != now.run_id:
            before = None
        if before is None:  # the run before in the thread had calls of the same ids
            self._told.pop(now.path, None)
            self._unsaid.pop(now.path, None)
        found = [*voted, *self._begun(before, now), *self._decided(before, now), *self._said(before, now)]
        found += [*self._added(before, now), *self._handed_over(before, now), *self._asked(before, now)]
        found.append(self._make(CheckpointSaved, now.path, now, checkpoint_id=now.id, step=now.step, status=now.status))
        if now.ended is not None:
            facts = {"type": now.ended, "output": now.__dict__["output"], "usage": now.usage}
            found.append(self._make(Ended, now.path, now, checkpoint_id=now.id, **facts))
        elif now.path == "" and waits(now) and not is_copy(before, now):
            found.append(self._make(Suspended, now.path, now, checkpoint_id=now.id, pending=now.pending))
        self._before[now.path] = now
        if not now.calls:
            self._told.pop(now.path, None)
            self._stopped.closed(now.path)
        return found

    def piece(self, delta: Delta | Piece, at: str = "") -> Event:
        """A piece of a reply in the run at this path, or of what a node gives, after all that was written."""
        made: Event
        match delta:
            case TextDelta(text=text):
                made = self._make(TextPiece, at, text=text)
            case ReasoningDelta(text=text):
                made = self._make(ReasoningPiece, at, text=text)
            case ToolCallDelta(index=index, arguments=arguments):
                named = {"call_id": delta.id, "tool_name": delta.name}
                made = self._make(ToolCallPiece, at, index=index, arguments=arguments, **named)
            case Piece(path=path, text=text):
                named = {"call_id": delta.call_id, "node": delta.name}
                made = self._make(NodePiece, path, update=text, attempt=delta.attempt, **named)
            case unknown:
                assert_never(unknown)
        return made

    def asking(self, path: str, model: str) -> Event:
        """Gives the event that the model is asked now."""
        made: Event = self._make(ModelStarted, path, model=model)
        return made

    def failed(self, error: BaseException) -> Event:
        """Gives the event that the run stopped on this error."""
        last = self._before.get("")
        name, id = type(error).__name__, last.id if last is not None else None
        told = str(error) if isinstance(error, PhronomyError) else ""  # what others say may quote anything
        made: Event = self._make(Failed, "", error=name, message=told, checkpoint_id=id)
        return made

    def _begun(self, before: Checkpoint | None, now: Checkpoint) -> Iterator[Event]:
        if before is None:
            yield self._make(RunStarted, now.path, now, agent=now.agent.name, input=now.__dict__["original_input"])

    def _voted(self, seq: int, now: Checkpoint) -> Iterator[Event]:
        for each in self._votes.sealed(now) if now.path == "" else ():
            # Whoever drives a run is not told of what others wrote meanwhile. Their votes have the places that were left out, or the
            # next one after what was told since: the order of events never goes back.
            left_out = self._missed[each.place] if each.place < len(self._missed) else seq
            self._go(max(left_out, self._made[0]))
            yield self._make(Voted, now.path, now, **each.facts)
        self._go(seq)
        if now.path == "":
            self._missed.clear()

    def _decided(self, before: Checkpoint | None, now: Checkpoint) -> Iterator[Event]:
        known = {item.pending_id for item in before.decisions} if before is not None else set()
        if now.path == "":
            known |= self._left.sealed()
        for decision in now.decisions:
            if decision.pending_id not in known:
                yield self._make(Decided, now.path, now, decision=decision)

    def _said(self, before: Checkpoint | None, now: Checkpoint) -> Iterator[Event]:
        """Replies of the model, and calls that settled without being run, in the order of the conversation."""
        spent = now.usage.since(before.usage if before is not None else Usage())
        if now.unguarded == "output":
            self._unsaid[now.path] = spent
        elif spent.requests == 0:  # what guardrails have let through by now was paid for before
            spent = self._unsaid.pop(now.path, spent)
        before_calls = {call.call_id: call for call in (before.calls if before is not None else ())}
        for message in said(before, now):
            if message.role == "assistant" and not message.returned:
                unknown = tuple(call.id for call in message.tool_calls if is_unknown(call.name, before, now))
                facts = {"usage": now.usage, "spent": spent, "unknown": unknown}
                yield self._make(ModelReplied, now.path, now, message=message, **facts)
            elif message.tool_call_id is not None and message.settlement is not None:
                call = before_calls.get(message.tool_call_id)
                yield from self._settled(before, now, message.tool_call_id, call, message.settlement, message.text)
        for call in now.calls:  # those of the turn that is still open
            if call.result is not None and not call.gate:
                yield from self._settled(before, now, call.call_id, call, call.result.kind, call.result.content)

    def _settled(
        self,
        before: Checkpoint | None,
        now: Checkpoint,
        call_id: str,
        call: Call | None,
        kind: Settlement,
        content: str,
    ) -> Iterator[Event]:
        told = self._told.setdefault(now.path, set())
        id = call.id if call is not None else call_id
        if id not in told:
            told.add(id)
            name = call.name if call is not None else name_of(now, call_id)
            facts = {"call_id": call_id, "tool_name": name, "kind": kind, "content": content}
            yield self._make(ToolCallSettled, now.path, now, unknown=is_unknown(name, before, now), **facts)

    def _added(self, before: Checkpoint | None, now: Checkpoint) -> Iterator[Event]:
        for each in added_messages(before, now):
            facts = {"message": each.message, "message_id": each.id, "by": each.by, "at": each.at}
            yield self._make(MessageAdded, now.path, now, **facts)

    def _handed_over(self, before: Checkpoint | None, now: Checkpoint) -> Iterator[Event]:
        for made in now.handoffs[len(before.handoffs) :] if before is not None else ():
            call_id = call_facts(before, made.call)["call_id"]
            yield self._make(HandedOver, now.path, now, source=made.source, target=made.target, call_id=call_id)

    def _asked(self, before: Checkpoint | None, now: Checkpoint) -> Iterator[Event]:
        known = {item.id for item in before.pending} if before is not None else set()
        for item in now.pending:
            if item.id not in known and item.path == now.path:
                yield self._make(ApprovalRequested, now.path, now, pending=item, checkpoint_id=now.id)

    def _at(self, seq: int) -> None:
        if seq != self._seq:
            self._missed += range(self._seq + 1, seq)
        self._go(seq)

    def _go(self, seq: int) -> None:
        if seq != self._seq:
            self._seq, self._part = seq, self._made[1] + 1 if seq == self._made[0] else 0

    def _make(self, kind: Any, path: str, now: Checkpoint | None = None, /, **facts: Any) -> Any:
        of = now or self._before.get("") or self._before.get(path)
        assert of is not None, "a log begins with a checkpoint"
        place = {"branch_id": self._branch_id, "path": path, "seq": self._seq, "part": self._part}
        self._made = (self._seq, self._part)
        self._part += 1
        return kind(run_id=of.run_id, thread_id=of.thread_id, **place, **facts)


def replay(store: Store, branch_id: str, *, after: str | None = None) -> Iterator[Event]:
    """Read the stored events of a branch, oldest first.

    With `after`, the id of an event, it reads only the later events. `branch_id` is the id of a run or of a fork.
    Raises `CheckpointNotFound`, and `ConfigurationError` if `after` is not the id of an event.
    """
    if not isinstance(branch_id, str):
        raise ConfigurationError(f"events are those of the id of a branch, as text, not of {type(branch_id).__name__}")
    lineage = whole_lineage(store, branch_id=clean(branch_id))
    last = _place(after)
    return (event for event in events_of(lineage) if (event.seq, event.part) > last)


def events_of(lineage: Lineage) -> Iterator[Event]:
    """Gives the events of a branch, without those of its parents' logs."""
    reader = Reader(lineage.branch.id)
    for entry, item in items_of(lineage.entries):
        found = reader.read(entry.seq, entry.path, item)
        if entry.branch_id == lineage.branch.id:
            yield from found


def _place(after: str | None) -> tuple[int, int]:
    if after is None:
        return (-1, -1)
    seq, _, part = after.partition(".")
    if not (seq.isdecimal() and part.isdecimal()):
        raise ConfigurationError(f"{quoted_id(after)} is no id of an event: they look like '17.0'")
    return int(seq), int(part)
