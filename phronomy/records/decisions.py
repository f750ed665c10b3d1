"""Approvals: what waits for a human, what a human may answer, and the record of what was decided."""

from collections.abc import Mapping
from datetime import datetime
from operator import not_
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, ValidationError

from phronomy.errors import InvalidDecision
from phronomy.foundation.json_text import JsonError, parse_exactly
from phronomy.records.approvers import Approvers, Vote
from phronomy.records.breakpoint_points import Point
from phronomy.records.principals import Recorded, Said
from phronomy.records.record import (
    EMPTY,
    NULL,
    Json,
    JsonObject,
    Metadata,
    OpenJson,
    OpenMetadata,
    OpenObject,
    Record,
    Text,
    Time,
    explain,
    is_empty,
    known_digest,
    no_metadata,
    reader_of,
)
from phronomy.records.triggers import Trigger

Gate = Literal["always", "predicate", "never"]
"""When a tool asks for approval: at every call, when its predicate says so, or never."""

Then = Literal["continue", "block", "block_tool", "end"]
"""What happens after a rejection.

`"continue"`: the model goes on. `"block"`: also, the same call is rejected for the rest of the run, and nobody is
asked. `"block_tool"`: also, every call of the same tool is. `"end"`: the run ends.
"""

DecisionKind = Literal["approve", "reject", "respond", "skip", "cancel", "expire", "supersede", "edit"]
"""The kind of a decision."""

AuditKind = DecisionKind | Literal["fork", "message", "restore", "unreadable"]
"""The kind of a record of the audit trail: a decision, a message, a branch that somebody started, or a line that cannot be read."""

PAST: Final[Mapping[DecisionKind, str]] = {
    "approve": "approved",
    "reject": "rejected",
    "respond": "responded",
    "skip": "skipped",
    "cancel": "cancelled",
    "expire": "expired",
    "supersede": "superseded",
    "edit": "edited",
}
"""How a call stands once a decision of this kind is taken on it."""

SAID: Final[Mapping[AuditKind, str]] = {
    **dict[AuditKind, str](PAST.items()),
    "respond": "answered",
    "fork": "forked",
    "message": "sent a message",
    "restore": "restored",
    "unreadable": "recorded, in a line that cannot be read",
}
"""What is said of a decision itself, or of another step of the trail: it was so, by somebody."""

OnExpiry = Literal["reject", "cancel", "stay"]
"""What happens if nobody decides in time.

`"reject"`: the call is settled as expired. `"cancel"`: the run is also cancelled. `"stay"`: the call stays pending, and
a human can still decide.
"""

Why = Literal["approval", "outcome_unknown", "failed", "question", "breakpoint"]
"""Why a human is asked.

`"approval"`: the call needs approval. `"outcome_unknown"`: its worker was lost while it ran. `"failed"`: it failed
after all attempts. `"question"`: its body asks by `interrupt`. `"breakpoint"`: somebody wants to look before the run
goes on.
"""


Permitted = Literal["approve", "edit", "reject", "respond"]
"""A kind of decision that a request can allow. `"edit"` is to approve other arguments than those that were shown."""


class Approve(Said):
    """Run the call. With `args`, run it with these arguments instead, after they are validated and checked again.

    `metadata` is data of your application, a JSON object of at most 16 KB, that is kept with the decision. The tool can
    read it (`ToolContext.decision`), and the model never does. It changes nothing of what is approved.
    """

    kind: Literal["approve"] = Field(default="approve", repr=False)
    args: OpenObject | None = Field(default=None, repr=False)
    metadata: OpenMetadata = Field(default_factory=no_metadata, repr=False, exclude_if=is_empty)


class Reject(Said):
    """Do not run the call. The model reads the `reason`, and `then` says what happens next.

    `metadata` is as that of `Approve`.
    """

    _holds_back: ClassVar[bool] = True

    kind: Literal["reject"] = Field(default="reject", repr=False)
    reason: Text | None = None
    then: Then = "continue"
    metadata: OpenMetadata = Field(default_factory=no_metadata, repr=False, exclude_if=is_empty)


class Respond(Said):
    """Do not run the call: `content` (text or any JSON value) is its result, given by a human.

    `metadata` is as that of `Approve`.
    """

    kind: Literal["respond"] = Field(default="respond", repr=False)
    content: OpenJson = Field(repr=False)
    metadata: OpenMetadata = Field(default_factory=no_metadata, repr=False, exclude_if=is_empty)


class Skip(Said):
    """At a breakpoint: do not run the call or the node. At a stop between two steps, end the run as skipped."""

    kind: Literal["skip"] = Field(default="skip", repr=False)


class Defer(Said):
    """The answer of an approval handler that does not decide now: the run is suspended."""

    kind: Literal["defer"] = Field(default="defer", repr=False)


_MEMBERS: Final[Mapping[str, DecisionKind]] = {
    "args": "approve",
    "reason": "reject",
    "then": "reject",
    "content": "respond",
}
"""The kind of an answer by the members that it alone has. An answer without any is a skip."""


def _kind_of(given: Any) -> Any:
    """The kind of an answer, or of its JSON. The JSON of the first version has no `kind`, and is known by its members."""
    if not isinstance(given, Mapping):
        return getattr(given, "kind", None)
    # An object without members never approves: it was a skip, which runs nothing.
    return given["kind"] if "kind" in given else next((_MEMBERS[name] for name in given if name in _MEMBERS), "skip")


Answer: TypeAlias = Annotated[
    Annotated[Approve, Tag("approve")]
    | Annotated[Reject, Tag("reject")]
    | Annotated[Respond, Tag("respond")]
    | Annotated[Skip, Tag("skip")],
    Discriminator(
        _kind_of,
        custom_error_type="answer_kind",
        custom_error_message="kind is 'approve', 'reject', 'respond' or 'skip'",
    ),
]
"""The decisions that `resume(decisions=...)` takes. `answer.kind` says which one it is; `read_answer` reads its JSON."""


def read_answer(text: str | bytes) -> Answer:
    """Read an answer from the JSON that `answer.model_dump_json()` has made.

    JSON without `kind`, as earlier releases made it, is read by its members. Raises `InvalidDecision` for any other text,
    without the values in it.
    """
    try:
        answer: Answer = reader_of(Answer).validate_python(parse_exactly(text))
    except JsonError as error:
        raise InvalidDecision(f"this is no answer: {error}") from None
    except ValidationError as error:
        raise InvalidDecision(f"this is no answer: {explain(error, ())}") from None
    return answer


BREAKPOINT: Final = "breakpoint"
"""The source of what stands where a run stops between two steps, in place of a tool."""

EXTERNAL: Final = "external"
"""The source of a tool that is carried out elsewhere; a source that it was given besides follows, after a colon."""


def is_external(source: str) -> bool:
    """Whether this is the source of a tool that is carried out elsewhere."""
    return source.partition(":")[0] == EXTERNAL


class ToolIdentity(Record):
    """The identity of a tool, to which requests and decisions are bound.

    It has the path of the tool's agent, the source, the name, the hash of the schema, the gate and the risk. If the
    tool runs elsewhere, as a tool of an MCP server does, `endpoint` is where it runs, and `description_hash` is the
    SHA-256 of the description that it had at the time.
    """

    path: str = ""
    source: str = "local"
    name: Text
    schema_hash: str
    gate: Gate
    risk: Text | None = None
    endpoint: Text | None = Field(default=None, exclude_if=not_)  # the format of the first version has no such key
    description_hash: str | None = Field(default=None, exclude_if=not_)  # nor this one

    @property
    def external(self) -> bool:
        """Whether the tool is carried out elsewhere, so that it never runs here."""
        return is_external(self.source)


class ShownMessage(Record):
    """A message of the conversation, as the agent shows it to the person who decides.

    `role` says who wrote it. `text` is its text, and `tools` are the names of the tools that it calls, or whose result
    it is. It has no arguments of calls. If a tool redacts parameters, its results are hidden too.
    """

    role: Literal["user", "assistant", "tool"]
    text: Text = Field(default="", repr=False)
    tools: tuple[Text, ...] = Field(default=(), exclude_if=not_)


class Brief(Record):
    """What a call stores of what a human is shown beside its arguments. `PendingApproval` describes the fields."""

    title: Text | None = Field(default=None, exclude_if=not_)
    context: Text | None = Field(default=None, repr=False, exclude_if=not_)
    answers: tuple[Permitted, ...] = Field(default=(), exclude_if=not_)
    description_hash: str | None = Field(default=None, exclude_if=not_)
    returns_hash: str | None = Field(default=None, exclude_if=not_)
    conversation: tuple[ShownMessage, ...] = Field(default=(), repr=False, exclude_if=not_)
    approvers: tuple[Approvers, ...] = Field(default=(), exclude_if=not_)
    policy: str | None = Field(default=None, exclude_if=not_)
    # Not shown: how long a human has if one of those who ask says so, that no handler may answer, that standing grants may.
    expires: float | None = Field(default=None, exclude_if=not_)
    on_expiry: OnExpiry | None = Field(default=None, exclude_if=not_)
    remind: tuple[float, ...] = Field(default=(), exclude_if=not_)
    humans_only: bool = Field(default=False, exclude_if=not_)
    standing: bool = Field(default=False, exclude_if=not_)


NO_BRIEF: Final[Brief] = Brief.model_construct()
"""That of a call for which nothing is shown beside its arguments."""


class PendingApproval(Record):
    """A request that waits for a human.

    `args` are the validated arguments, with defaults filled in: the call runs with exactly these. `id` is unique for
    this request. `digest` covers the tool's identity and the arguments, and a decision is bound to `id` and `digest`.
    At the time `expires_at` (None: never) the request expires, and `on_expiry` says what happens then. `agent` is the
    name of the agent or graph that asks; `path` is the path of its nested run, or empty for the outermost run. `point`
    and `label` are those of the breakpoint, if one stopped the run here.

    `title` and `context` are texts for the person who decides. `answers` are the kinds of decisions that the request
    allows; empty: all. `conversation` are the messages that the agent shows with its requests, and `requester` is who
    asked for the run. `description_hash` is the SHA-256 of the tool's description, which the store keeps once, and
    `returns_hash` that of the JSON Schema of the result, if the tool is carried out elsewhere and says what it returns.

    `approvers` are the requirements of those who ask: who may decide, and how many it takes; empty: anybody, alone.
    `votes` are the votes that were cast so far, and `policy` is the version of the approval policy: a hash.
    A reminder is announced so many seconds after the request as `remind` says, and `reminded` is how many reminders and
    escalations were announced. `trigger` is there if the request is a trigger of a wait: then `why` is `"question"`, and only
    one whose kind is `"answer"` asks a human.
    """

    wire_adds: ClassVar[tuple[str, ...]] = ("tool_name", "external")

    id: str
    call_id: Text
    tool: ToolIdentity
    args: JsonObject = Field(repr=False)
    digest: str
    path: str = ""
    agent: Text | None = None
    why: Why = "approval"
    reason: Text | None = None
    point: Point | None = None
    label: Text | None = None
    requested_at: Time
    expires_at: Time | None = None
    on_expiry: OnExpiry = "reject"
    # The format of the first version has none of these keys.
    title: Text | None = Field(default=None, exclude_if=not_)
    context: Text | None = Field(default=None, repr=False, exclude_if=not_)
    answers: tuple[Permitted, ...] = Field(default=(), exclude_if=not_)
    conversation: tuple[ShownMessage, ...] = Field(default=(), repr=False, exclude_if=not_)
    description_hash: str | None = Field(default=None, exclude_if=not_)
    returns_hash: str | None = Field(default=None, exclude_if=not_)
    requester: Recorded | None = Field(default=None, exclude_if=not_)
    approvers: tuple[Approvers, ...] = Field(default=(), exclude_if=not_)
    votes: tuple[Vote, ...] = Field(default=(), exclude_if=not_)
    policy: str | None = Field(default=None, exclude_if=not_)
    remind: tuple[float, ...] = Field(default=(), exclude_if=not_)
    reminded: int = Field(default=0, ge=0, exclude_if=not_)
    trigger: Trigger | None = Field(default=None, exclude_if=not_)

    def has_lapsed(self, now: datetime) -> bool:
        """Whether the request has expired at this time, so that a decision no longer counts."""
        return self.expires_at is not None and self.on_expiry != "stay" and now >= self.expires_at

    @property
    def tool_name(self) -> str:
        """The name of the tool that waits."""
        return self.tool.name

    @property
    def asks_human(self) -> bool:
        """Whether it waits for a human, and not for an event, a time or another run."""
        return self.trigger is None or self.trigger.kind == "answer"

    @property
    def between_steps(self) -> bool:
        """Whether it is a stop between two steps of the run, and no call: what is decided is whether, and how, the run goes on."""
        return self.tool.source == BREAKPOINT

    @property
    def external(self) -> bool:
        """Whether the call is carried out elsewhere: it waits for a `Respond`, and cannot be approved."""
        return self.tool.external and self.why != "breakpoint"


class Decision(Record):
    """A decision about a pending approval: what was decided, by whom, when, and through which channel.

    It is bound to the pending id and to `digest`, the digest of what was shown. `args` are the edited and validated
    arguments. If the call passed a breakpoint and needs an approval next, `asks` is the pending id of that approval,
    and `asked_by` names who asks for it if an edit changed that. `judged` is False for a decision that was made with
    the store alone, until a worker with the agent's code has checked the edited arguments. `key` is the idempotency key
    of the decision, and `answer_digest` covers the answer that was given with it. `brief` is what a human is shown
    beside the edited arguments, if one is asked about them again.

    `votes` are all votes on the request, with the one of this decision last; there are none if anybody could decide
    alone. `behalf_of` is the person for whom a deputy decided, and `grant` the id of the standing grant that was used.
    `policy` is the version of the approval policy: a hash. `to_check` says that only the agent's code can tell whether
    this person may decide, so that the decision does not count yet. `event` is the name of the event that was waited for,
    and `event_id` the id of the event that fired the trigger. `blocks` is the key of what a rejection blocks for the rest of
    the run: a hash of the tool's source and name, and of the arguments if it blocks only this call. `metadata` is the
    data of the application that was given with the answer; that of the votes before it is in `votes`. If the `content` has the
    output of another run, `authors` are those who have written in the conversation of that run, with None for somebody of whom
    nobody knows.
    """

    pending_id: str
    digest: str
    kind: DecisionKind
    path: str = ""
    args: JsonObject | None = Field(default=None, repr=False)
    content: Json = Field(default=NULL, repr=False)
    reason: Text | None = None
    then: Then = "continue"
    asks: str | None = None
    asked_by: tuple[Text, ...] = Field(default=(), exclude_if=not_)  # as that of a call
    by: Recorded | None = None
    channel: Text | None = None
    at: Time
    judged: bool = Field(default=True, exclude_if=bool)  # nor has it this key
    key: Text | None = Field(default=None, exclude_if=not_)  # nor this one
    answer_digest: str | None = Field(default=None, exclude_if=not_)  # nor this
    brief: Brief | None = Field(default=None, exclude_if=lambda brief: brief is None)  # nor this
    # Nor these.
    votes: tuple[Vote, ...] = Field(default=(), exclude_if=not_)
    behalf_of: Recorded | None = Field(default=None, exclude_if=not_)
    grant: str | None = Field(default=None, exclude_if=not_)
    policy: str | None = Field(default=None, exclude_if=not_)
    to_check: bool = Field(default=False, exclude_if=not_)
    event: Text | None = Field(default=None, exclude_if=not_)
    event_id: str | None = Field(default=None, exclude_if=not_)
    blocks: str | None = Field(default=None, exclude_if=not_)
    metadata: Metadata = Field(default=EMPTY, repr=False, exclude_if=is_empty)
    authors: tuple[Recorded | None, ...] = Field(default=(), exclude_if=not_)

    @property
    def ends_all(self) -> bool:
        """Whether this rejection ends the run and all runs around it."""
        return self.kind == "reject" and self.then == "end" and not self.to_check


def metadata_of(answer: Answer) -> Any:
    """The data that was given with an answer, as the canonical text that records keep."""
    return EMPTY if isinstance(answer, Skip) else answer.__dict__["metadata"]


def call_digest(tool: ToolIdentity, args_text: str) -> str:
    """The digest that request, decision and journal share: over the tool's identity and the canonical argument text."""
    where = () if tool.endpoint is None else (tool.endpoint,)
    return known_digest(tool.path, tool.source, *where, tool.name, tool.schema_hash, args_text)


def block_key(tool: ToolIdentity, args_text: str | None = None) -> str:
    """The key of a tool that is blocked, or of one call of it: the same for all agents of a run, and for all schemas of the tool."""
    return known_digest(tool.source, tool.name, *(() if args_text is None else (args_text,)))


def blocked_by(then: Then, tool: ToolIdentity, args_text: str) -> str | None:
    """The key of what a rejection of a call blocks for the rest of the run; None if it blocks nothing."""
    if then == "block_tool":
        return block_key(tool)
    return block_key(tool, args_text) if then == "block" else None
