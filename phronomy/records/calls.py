"""The vocabulary: calls, and the outcomes that drivers feed back.

An `Outcome` says what happened. The union is closed. Ids and times come in with outcomes; rules make none.
"""

from collections.abc import Sequence
from operator import not_
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from phronomy.records.approvers import Vote
from phronomy.records.breakpoint_points import Point
from phronomy.records.decisions import (
    BREAKPOINT,
    Brief,
    Decision,
    OnExpiry,
    PendingApproval,
    Then,
    ToolIdentity,
    Why,
    call_digest,
)
from phronomy.records.messages import NO_USAGE, Message, Settlement, Usage, told_text
from phronomy.records.principals import Recorded
from phronomy.records.record import EMPTY, NULL, Json, JsonObject, Record, Text, Time, is_absent
from phronomy.records.scopes import Scope
from phronomy.records.triggers import KeptEvent

Status = Literal["running", "suspended", "completed", "rejected", "cancelled", "superseded", "skipped"]
"""The status of a run in a checkpoint. The last five mean that the run has ended."""

End = Literal["completed", "rejected", "cancelled", "superseded", "skipped"]
"""The status of a run that has ended."""

Unguarded = Literal["input", "output", "message"]
"""The part that guardrails have not checked yet: the input, the answer, or a message sent with decisions."""

Looked = Literal["input", "output"]
"""Which guardrails look at it: what a user says is an input, whenever they say it."""

CallStatus = Literal["new", "asking", "pending", "answered", "ready", "started", "nested", "failed", "settled"]
"""Where a call stands: not judged · a handler is to be asked · a human is · a human has answered, and the answer is to be checked · may
run · running · what is in it waits · failed, and is run again when the run is resumed · done."""

Verdict = Literal["run", "ask", "pend", "reject", "invalid"]
"""What judging said: run it; ask the handler; a human must decide; settle it as rejected; it is no valid call."""


def is_nothing(usage: Usage) -> bool:
    """Whether this is the usage of what has asked no model."""
    return usage is NO_USAGE or usage == NO_USAGE


Next = Literal["retry", "fallback", "model", "human", "stop"]
"""What follows a failed attempt.

It is the same tool again, a fallback tool, the error to the model, a human, or the end of this drive.
"""


class Refusal(Record):
    """The refusal of a guardrail: `code` is for programs, and `message` is for the user."""

    stage: Literal["input", "output", "tool"]
    guardrail: Text
    code: Text
    message: Text = Field(repr=False)
    then: Then = "continue"


class HandedOver(Record):
    """A handoff from one agent to another: by the call `call`, after the first `said` messages."""

    source: Text
    target: Text
    call: str
    said: int = Field(ge=0)


class CallResult(Record):
    """The result of a call: how the call ended, and the text that the model reads.

    If the result has images, the model gets `parts`, which are content parts in the form of chat completions. `content`
    is then their text, with a note in place of each image. `answer` is the whole value, if it is to be the answer of the run.
    """

    kind: Settlement = "completed"
    content: Text = Field(repr=False)
    parts: Json | None = Field(
        default=None, repr=False, exclude_if=is_absent
    )  # the format of the first version has none
    answer: Json | None = Field(default=None, repr=False, exclude_if=is_absent)  # nor this

    @property
    def is_answer(self) -> bool:
        """True if the run ends with this result."""
        return self.__dict__["answer"] is not None

    @property
    def has_parts(self) -> bool:
        """Whether the result has more than text."""
        return self.__dict__["parts"] is not None

    @model_validator(mode="after")
    def _tells_its_parts(self) -> Self:
        if self.has_parts:
            parts: Any = self.parts
            if not (isinstance(parts, list) and told_text(parts) == self.content):
                raise ValueError("parts are content parts, and content is what they are as text")
        if self.is_answer and self.kind not in ("completed", "responded"):
            raise ValueError(f"a call that is {self.kind} has no answer for the run")
        return self


class Call(Record):
    """A call of the open turn; or, with `gate`, a stop at a `point` of the run, which is decided but never runs.

    `id` is phronomy's own id: the turn and the place in it. It is the same in every branch of a run, so a call that is
    replayed from an earlier checkpoint keeps its idempotency key. `call_id` is the provider's id. `arguments` is the
    text that the model wrote; after validation, `args` has the arguments instead. `approved` is the pending id whose
    approval lets the call run.

    `waiting` has the requests of its nested run or its body. `stopped` says that the call has waited before, or that
    its nested run failed. `usage` is what the nested run has used, as far as this run knows, and `worked` the milliseconds
    that it had worked when the present attempt began. `point` and `label` belong
    to the breakpoint at which the call waits. `asked_by` names who asks for the approval. `note` is what the body
    stores for its next run when it asks a question; it is shown to nobody. `brief` is what a human is shown beside the
    arguments, while the call is open. `votes` are the votes on its request, as long as they do not decide
    it, and `reminded` is how many reminders and escalations of it were announced. `return_direct` says that its result is the
    answer of the run. `rejected` has the pending ids that were rejected, or expired, so that the node of the call
    follows (`on_rejection`); of a settled call, that of the question of its body by which it was.
    """

    wire_omits: ClassVar[tuple[str, ...]] = ("version", "note")

    id: str
    call_id: Text
    name: Text
    status: CallStatus = "new"
    arguments: Text | None = Field(default=None, repr=False)
    tool: ToolIdentity | None = None
    args: JsonObject | None = Field(default=None, repr=False)
    digest: str | None = None
    pending_id: str | None = None
    why: Why | None = None
    reason: Text | None = None
    point: Point | None = None
    label: Text | None = None
    gate: bool = False
    requested_at: Time | None = None
    expires_at: Time | None = None
    on_expiry: OnExpiry = "reject"
    approved: str | None = None
    edited: bool = False
    stopped: bool = False
    attempt: int = Field(default=0, ge=0)
    fallback: int = Field(default=0, ge=0)
    repeatable: bool = False
    waiting: tuple[PendingApproval, ...] = ()
    result: CallResult | None = None
    asked_by: tuple[Text, ...] = Field(default=(), exclude_if=not_)  # the format of the first version has no such key
    usage: Usage = Field(default=NO_USAGE, exclude_if=is_nothing)  # nor this one
    note: JsonObject | None = Field(default=None, repr=False, exclude_if=is_absent)  # nor this
    brief: Brief | None = Field(default=None, exclude_if=is_absent)  # nor this
    votes: tuple[Vote, ...] = Field(default=(), exclude_if=not_)  # nor this
    reminded: int = Field(default=0, ge=0, exclude_if=not_)  # nor this
    worked: int = Field(default=0, ge=0, exclude_if=not_)  # nor this
    return_direct: bool = Field(default=False, exclude_if=not_)  # nor this
    rejected: tuple[str, ...] = Field(default=(), exclude_if=not_)  # nor this

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        judged = self.tool is not None and self.args is not None and self.digest is not None
        if judged and self.digest != call_digest(self.tool, self.__dict__["args"]):  # type: ignore[arg-type]
            raise ValueError("the digest of a call is not that of its tool and arguments")
        if self.gate and (self.status not in ("pending", "settled") or not self.tool or self.tool.source != BREAKPOINT):
            raise ValueError("a gate waits at a breakpoint, and never runs")
        if self.status not in ("new", "settled") and not judged:
            raise ValueError(f"a call that is {self.status} has a tool, arguments and their digest")
        if self.status in ("asking", "pending", "answered") and not (self.pending_id and self.requested_at):
            raise ValueError(f"a call that is {self.status} has a pending id and the time of the request")
        if (self.status == "settled") != (self.result is not None):
            raise ValueError("a call has a result exactly when it has settled")
        return self

    def question(self, pending_id: str, path: str) -> PendingApproval | None:
        """What its own body asked under this id, in the run at `path`; None if it is something else, or of a run nested in it."""
        asked = (
            item for item in self.waiting if item.id == pending_id and item.why == "question" and item.path == path
        )
        return next(asked, None)

    @property
    def is_pause(self) -> bool:
        """Whether this is the stop of a paused run that has not been resumed."""
        return self.gate and self.point is None and self.status == "pending"


NEW_CALL: Final = Call.model_construct(id="", call_id="", name="")
"""A call as it begins, for `evolve`. What is put in has to be valid: to check thirty fields once more takes three times as long."""


def gate_identity(path: str, name: str) -> ToolIdentity:
    """What a decision on a gate is bound to."""
    return ToolIdentity(path=path, source=BREAKPOINT, name=name, schema_hash="", gate="never")


def path_inside(path: str, id: str) -> str:
    """The path of the run inside the call `id` of a run. The path of a run that is in no call is empty."""
    return f"{path}/{id}" if path else id


def place_of(calls: Sequence[Call], id: str) -> int | None:
    """Where the call of this id is; None if it is not among them. Its id says where it began, so that is looked at first."""
    if len(calls) == 1:  # as in most replies
        return 0 if calls[0].id == id else None
    place = id.rpartition(".")[2]
    if place.isdecimal() and len(place) < 9 and int(place) < len(calls) and calls[int(place)].id == id:
        return int(place)
    return next((number for number, call in enumerate(calls) if call.id == id), None)


# Outcomes


class Replied(Record):
    """The model replied. `elapsed` is how long it took, in milliseconds; `guarded` says that guardrails look at the end of the run.

    `read` is how many messages of the conversation there were when it was asked; None in old texts.
    """

    type: Literal["replied"] = "replied"
    message: Message
    usage: Usage = NO_USAGE
    elapsed: int = 0
    guarded: bool = False
    read: int | None = Field(default=None, ge=0, exclude_if=is_absent)


class Guarded(Record):
    """What guardrails said, by name: of the input, of the reply that is to end the run, or of the call `id`.

    `content` is what they made of it, None where it stays as it is.
    """

    type: Literal["guarded"] = "guarded"
    stage: Literal["input", "output", "tool"]
    said: dict[str, Literal["passed", "transformed", "refused"]]
    content: Json | None = Field(default=None, repr=False)
    refusal: Refusal | None = None
    id: str | None = None


class Judgement(Record):
    """What judging found for one call. `result` is there for `reject` and `invalid`, the request fields for `ask` and `pend`.

    `asked_by` names the agents and graphs whose policies ask, and is "" for the gate of the tool; if nothing is in it, that alone.
    """

    id: str
    verdict: Verdict
    tool: ToolIdentity | None = None
    args: JsonObject | None = Field(default=None, repr=False)
    digest: str | None = None
    repeatable: bool = False
    pending_id: str | None = None
    why: Why = "approval"
    reason: Text | None = None
    point: Point | None = None
    label: Text | None = None
    requested_at: Time | None = None
    expires_at: Time | None = None
    on_expiry: OnExpiry = "reject"
    then: Then = "continue"
    result: CallResult | None = None
    asked_by: tuple[Text, ...] = ()
    brief: Brief | None = Field(default=None, exclude_if=is_absent)
    return_direct: bool = Field(default=False, exclude_if=not_)


REQUEST: Final = (
    *("pending_id", "why", "reason", "point", "label"),
    *("requested_at", "expires_at", "on_expiry", "asked_by", "brief"),
)
"""The fields of a judgement, and of a call, that are the request to a human."""


class Judged(Record):
    """Calls were judged."""

    type: Literal["judged"] = "judged"
    judgements: tuple[Judgement, ...]


class Deferred(Record):
    """The handler left these calls to be decided later."""

    type: Literal["deferred"] = "deferred"
    pending_ids: tuple[str, ...]


class Decided(Record):
    """A pending approval was decided. `edited` is the new judgement where the arguments were edited."""

    type: Literal["decided"] = "decided"
    decision: Decision
    edited: Judgement | None = None


class Voted(Record):
    """Somebody voted on a pending approval, and it takes more votes. `decision` is what they decided, with all votes so far.

    `request` is the request that stands in place of the old one: the arguments were edited, or the vote was checked by a worker.
    """

    type: Literal["voted"] = "voted"
    decision: Decision
    request: Judgement | None = Field(default=None, exclude_if=is_absent)


ReminderKind = Literal["reminded", "escalated"]
"""What is announced of a request that still waits: a reminder, or that others may decide as well from now on."""


class Reminded(Record):
    """A reminder, or an escalation, of a request is announced. `step` counts those of the request, from 0."""

    type: Literal["reminded"] = "reminded"
    pending_id: str
    path: str = ""
    what: ReminderKind
    step: int = Field(ge=0)
    at: Time


class Arrived(Record):
    """An event arrived before anything waited for it."""

    type: Literal["arrived"] = "arrived"
    event: KeptEvent


class Narrowed(Record):
    """Whoever goes on with the run takes scopes away: from here on it has none but these, and never more than it had."""

    type: Literal["narrowed"] = "narrowed"
    scopes: tuple[Scope, ...]


class CallStarted(Record):
    """A call is about to run: the intent, saved before the body is entered.

    In the journal `at` is None where it is the time of the checkpoint before it.
    """

    type: Literal["started"] = "started"
    id: str
    attempt: int = 1
    at: Time | None = None
    key: str = ""


class Withdrawn(Record):
    """Calls whose start is stored, but which did not start, or may safely start again: the driver left before."""

    type: Literal["withdrawn"] = "withdrawn"
    ids: tuple[str, ...]
    reason: Text | None = None


class CallSettled(Record):
    """A call ended with this result; `usage` is what a nested run cost.

    `reused` says that it is the result of the same call in another branch, `then` whether a human who refused something in the
    nested run ended all that is around it as well. The idempotency key is that of its start; `key` is there where it had none.
    `refusals` are decisions of the nested run that block calls or tools in all of the run, and that were taken in it alone.
    """

    type: Literal["settled"] = "settled"
    id: str
    call_id: Text
    key: str = ""
    result: CallResult
    elapsed: int = 0
    usage: Usage = NO_USAGE
    reused: bool = False
    then: Literal["continue", "end"] = Field(default="continue", exclude_if="continue".__eq__)
    refusals: tuple[Decision, ...] = Field(default=(), exclude_if=not_)


class CallFailed(Record):
    """An attempt failed. `next` says what follows; `fallback` names the tool for it; the request fields serve `human`.

    `elapsed` is in milliseconds. `inside` says that a run inside the call has stopped, and is to go on; `usage` is what it has cost,
    and `worked` the milliseconds that it has worked.
    """

    type: Literal["failed"] = "failed"
    id: str
    error: Text = Field(repr=False)
    next: Next
    elapsed: int = 0
    inside: bool = False
    fallback: str | None = None
    pending_id: str | None = None
    requested_at: Time | None = None
    usage: Usage = Field(default=NO_USAGE, exclude_if=is_nothing)
    worked: int = Field(default=0, ge=0, exclude_if=not_)


class CallUnknown(Record):
    """Nobody knows whether the call took effect. It goes to a human under a new pending id."""

    type: Literal["unknown"] = "unknown"
    id: str
    reason: Text
    elapsed: int = 0
    pending_id: str
    requested_at: Time


class CallWaits(Record):
    """The nested run behind a call has stopped for these approvals, or its body for the answers to these questions.

    `elapsed` is how long the body worked until then, in milliseconds, `usage` what the nested run has cost. `note` is what the body
    leaves for its next run.
    """

    wire_omits: ClassVar[tuple[str, ...]] = ("version", "note")

    type: Literal["waits"] = "waits"
    id: str
    pending: tuple[PendingApproval, ...]
    elapsed: int = 0
    usage: Usage = Field(default=NO_USAGE, exclude_if=is_nothing)
    note: JsonObject | None = Field(default=None, repr=False, exclude_if=is_absent)


class Interrupted(Record):
    """The worker that ran these calls is gone. Repeatable ones run again; `pending_ids` are for the others, by call id.

    `usages` are what the runs inside calls have cost, by call id.
    """

    type: Literal["interrupted"] = "interrupted"
    pending_ids: dict[str, str]
    at: Time
    usages: dict[str, Usage] = Field(default={}, exclude_if=not_)


class Added(Record):
    """Somebody said more to the agent, with their decisions: it is in the conversation once the calls of the turn have settled.

    `guarded` says that guardrails look at it before the model does. A message that was sent by itself has an `id`, and is taken at any
    time before the run ends.
    """

    type: Literal["added"] = "added"
    message: Message
    guarded: bool = False
    id: Text | None = Field(default=None, exclude_if=is_absent)
    by: Recorded | None = None
    at: Time


class Ending(Record):
    """A record that somebody cancelled or superseded the run.

    Calls that have not started are settled in the same way. `unnamed` says that somebody has given the reason who said no name.
    """

    type: Literal["ending"] = "ending"
    status: Literal["cancelled", "superseded"]
    reason: Text | None = None
    by: Recorded | None = None
    unnamed: bool = Field(default=False, exclude_if=not_)
    at: Time


class Halted(Record):
    """The run stops: what has not begun waits under this pending id until it may go on.

    At a breakpoint, `point` says where, `key` tells the occasion from others of its kind, and `args` is what is shown. Without one,
    somebody stops the run from outside: what runs is waited for during `grace` seconds, None for as long as it takes, and then left.
    """

    type: Literal["halted"] = "halted"
    pending_id: str
    point: Point | None = None
    label: Text | None = None
    key: str = ""
    args: JsonObject = Field(default=EMPTY, repr=False)
    grace: float | None = None
    reason: Text | None = None
    by: Recorded | None = None
    at: Time


class OutputRefused(Record):
    """The reply that was to end the run is not of the output type. The model is told, and answers again."""

    type: Literal["output_refused"] = "output_refused"
    error: Text = Field(repr=False)


class Returned(Record):
    """The result of the call `id` is the answer of the run: this text. `guarded` says that guardrails look at it first."""

    type: Literal["returned"] = "returned"
    id: str
    text: Text = Field(repr=False)
    guarded: bool = False


class Advanced(Record):
    """What follows from calls that have settled: the state of the run, and the calls that it opens.

    `status` is how the run is to end, if it is. `settled` are the ids of the calls that it follows from, where others are still
    open; None: from all.
    """

    type: Literal["advanced"] = "advanced"
    state: Json = Field(repr=False)
    calls: tuple[Call, ...] = ()
    status: Literal["rejected", "cancelled"] | None = None
    reason: Text | None = None
    at: Time
    settled: tuple[str, ...] | None = Field(default=None, exclude_if=is_absent)


class Finished(Record):
    """The run ended."""

    type: Literal["finished"] = "finished"
    status: End
    output: Json = Field(default=NULL, repr=False)


Outcome: TypeAlias = (
    Replied
    | Judged
    | Deferred
    | Decided
    | Voted
    | Reminded
    | Arrived
    | Narrowed
    | CallStarted
    | Withdrawn
    | CallSettled
    | CallFailed
    | CallUnknown
    | CallWaits
    | Interrupted
    | Added
    | Ending
    | Halted
    | Guarded
    | OutputRefused
    | Returned
    | Advanced
    | Finished
)

AnyOutcome: TypeAlias = Annotated[Outcome, Field(discriminator="type")]
"""An outcome as it is read back from text."""

Input: TypeAlias = Any
"""The input of a run: text, a mapping, a pydantic model, or a list of content parts."""
