"""What the HTTP API gives: the models of its answers, as its description publishes them.

Arguments travel as their canonical text, beside a parsed copy for convenience: the text is what the digest covers, and what runs. Times
are ISO 8601 in UTC.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from phronomy.inbox.auth.identity import Scope
from phronomy.records.decisions import AuditKind, DecisionKind, OnExpiry, Then, Why
from phronomy.records.grants import GrantScope
from phronomy.records.messages import Settlement
from phronomy.stores.derived.requests import RequestStatus
from phronomy.stores.derived.standing import Way
from phronomy.stores.rows import BranchStatus

JsonAny: TypeAlias = Any
"""Any JSON value."""


class Given(BaseModel):
    """The base of what goes out."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, serialize_by_alias=True, validate_by_name=True)


class Person(Given):
    """A person or a program."""

    id: str
    name: str | None = None
    kind: Literal["human", "service"] = "human"
    roles: tuple[str, ...] = ()


class Me(Given):
    """Who is signed in, and what they may do in the inbox at all."""

    principal: Person
    tenant: str
    scopes: tuple[Scope, ...]
    via: str
    signed_in_at: datetime | None = None
    csrf: str | None = Field(
        default=None, description="The value of the header X-CSRF-Token; none for a token's bearer."
    )


class May(Given):
    """What this person may do about a request at this moment. `why_not` says why there are no answers.

    `said` says in words, for people, why there are none, or why they may not approve.

    It promises nothing: whether a decision counts is judged when it is made. `uncertain`: only the agent's code can tell.
    """

    answers: tuple[Way, ...]
    why_not: Literal["expired", "voted", "not_an_approver", "not_offered"] | None = None
    said: str | None = None
    uncertain: bool = False


class ToolOf(Given):
    """The tool that waits."""

    name: str
    source: str
    endpoint: str | None = None
    risk: str | None = None
    external: bool = False


class VoteOf(Given):
    """A vote that was cast. `metadata` are the data that were given with it; empty for somebody without the scope `read`."""

    kind: Literal["approve", "reject", "respond"]
    by: Person
    behalf_of: Person | None = None
    at: datetime
    channel: str | None = None
    reason: str | None = None
    metadata: dict[str, JsonAny] = Field(default_factory=dict, repr=False)


class Level(Given):
    """Who is asked at one level: the tool itself (an empty `of`) or the policy of an agent; and how the votes stand there."""

    of: str
    roles: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    predicates: tuple[str, ...] = ()
    not_requester: bool = False
    needed: int
    counted: int
    rejections: int
    rejected: int
    who: str | None = Field(default=None, description="Who may decide there now, in words.")


class RequestRow(Given):
    """A request in a list."""

    id: str
    digest: str
    title: str | None = None
    tool: ToolOf
    agent: str
    run_id: str
    branch_id: str
    thread_id: str | None = None
    label: str | None = None
    why: Why
    requester: Person | None = None
    requested_at: datetime
    expires_at: datetime | None = None
    on_expiry: OnExpiry
    args: str = Field(
        description="The arguments as canonical JSON text: what the digest covers, and what runs.", repr=False
    )
    votes: int
    may: May


class Unreadable(Given):
    """A stored row that cannot be read, so that it is not in its list: it is damaged, or was written by a later release."""

    kind: str
    id: str
    run_id: str | None = None
    branch_id: str | None = None
    detail: str


class RequestsPage(Given):
    """A page of requests. `next` is the cursor of the page after it; None at the end.

    `unreadable` are requests that cannot be read, so that nobody can decide them. They count for the limit of the page.
    """

    items: tuple[RequestRow, ...]
    next: str | None = None
    unreadable: tuple[Unreadable, ...] = ()


class Counted(Given):
    """How many requests wait. Counting stops at 1,000: `more` says that there are more, and `text` is then "1000+"."""

    count: int
    more: bool
    text: str


class DecisionOf(Given):
    """A decision that was made. `args` are the edited arguments as canonical JSON text, if they were edited.

    `metadata` are the data that were given with it. Both are left out for somebody without the scope `read`.
    """

    decision: DecisionKind
    by: Person | None = None
    behalf_of: Person | None = None
    at: datetime
    channel: str | None = None
    reason: str | None = None
    then: Then
    edited: bool
    args: str | None = Field(default=None, repr=False)
    grant: str | None = None
    metadata: dict[str, JsonAny] = Field(default_factory=dict, repr=False)


class Outcome(Given):
    """The end of a call: its kind, and the text that the model reads; the text is null for somebody without the scope `read`."""

    kind: Settlement
    text: str | None


class Shown(Given):
    """A message of the conversation, as the agent shows it with its requests."""

    role: Literal["user", "assistant", "tool"]
    text: str
    tools: tuple[str, ...] = ()


class RequestFull(Given):
    """A request with everything that a person needs to decide it, and where it stands.

    `status` says whether it waits, and how far what was decided is. `args` is canonical JSON text, and `arguments` a parsed copy
    of it. `schema` is the JSON Schema of the arguments, where the store has it, and `result_schema` that of the result of an
    external tool.
    """

    id: str
    digest: str
    status: RequestStatus
    title: str | None = None
    context: str | None = None
    tool: ToolOf
    description: str | None = None
    args: str = Field(repr=False)
    arguments: dict[str, JsonAny] = Field(repr=False)
    schema_: dict[str, JsonAny] | None = Field(default=None, alias="schema")
    result_schema: dict[str, JsonAny] | None = None
    agent: str
    path: str
    run_id: str
    branch_id: str
    checkpoint_id: str
    thread_id: str | None = None
    label: str | None = None
    why: Why
    reason: str | None = None
    point: str | None = None
    breakpoint: str | None = None
    requester: Person | None = None
    requested_at: datetime
    expires_at: datetime | None = None
    on_expiry: OnExpiry
    conversation: tuple[Shown, ...] = ()
    policy: str | None = None
    levels: tuple[Level, ...] = ()
    votes: tuple[VoteOf, ...] = ()
    may: May
    decision: DecisionOf | None = None
    outcome: Outcome | None = None
    asked_again: str | None = Field(default=None, description="The id of the request that stands in its place.")
    set_aside: str | None = Field(
        default=None, description="Why a worker could not carry the decision out: an operator is needed."
    )
    run_status: BranchStatus


class DecisionView(Given):
    """How a request stands after a decision or a vote. `decision` is None as long as more people have to decide."""

    id: str
    digest: str
    status: RequestStatus
    decision: DecisionOf | None = None
    votes: tuple[VoteOf, ...] = ()
    levels: tuple[Level, ...] = ()
    outcome: Outcome | None = None
    asked_again: str | None = None
    set_aside: str | None = None
    run_status: BranchStatus


class KeyView(Given):
    """A decision by its idempotency key. `recorded` says whether the store has one under it; `decision` is None without its run."""

    recorded: bool
    decision: DecisionView | None = None


class FieldErrorOf(Given):
    """A place, as a JSON Pointer (RFC 6901), and what is wrong there."""

    pointer: str
    detail: str


class ChangeOf(Given):
    """A place that an edit changes: the canonical text before and after; None where there is nothing."""

    pointer: str
    before: str | None
    after: str | None


class Checked(Given):
    """What edited arguments come to. Nothing was changed. `by_tool`: the tool itself has read them."""

    valid: bool
    args: str = Field(repr=False)
    digest: str
    changes: tuple[ChangeOf, ...]
    errors: tuple[FieldErrorOf, ...] = ()
    by_tool: bool


class ProblemOf(Given):
    """What went wrong (RFC 9457). `type` is the address of a page that says what to do; each kind has members of its own."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow", frozen=True)

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None


class BatchResult(Given):
    """What came of one request of several."""

    id: str
    decision: DecisionView | None = None
    problem: ProblemOf | None = None


class BatchView(Given):
    """What came of each request, in the order in which they were sent."""

    results: tuple[BatchResult, ...]


class AuditRow(Given):
    """A record of the audit trail. It has no arguments and no results. `metadata` are the data that were given with a decision."""

    at: datetime
    kind: AuditKind
    by: Person | None = None
    behalf_of: Person | None = None
    channel: str | None = None
    reason: str | None = None
    run_id: str
    thread_id: str | None = None
    branch_id: str
    checkpoint_id: str
    agent: str
    path: str = ""
    pending_id: str | None = None
    tool_name: str | None = None
    why: Why | None = None
    digest: str | None = None
    ran_digest: str | None = None
    content_digest: str | None = None
    edited: bool = False
    checked: bool = False
    vote: bool = False
    refused: bool = False
    grant: str | None = None
    policy: str | None = None
    metadata: dict[str, JsonAny] = Field(default_factory=dict, repr=False)


class AuditPage(Given):
    """A page of the audit trail, oldest first."""

    items: tuple[AuditRow, ...]
    next: str | None = None


class Giver(Given):
    """One person's part in a grant."""

    person: Person
    at: datetime
    channel: str | None = None


class GrantView(Given):
    """A standing grant. `args` is canonical JSON text; None: any arguments, or you may not read. `etag` is what If-Match takes."""

    id: str
    etag: str = ""
    agent: str
    tool: str
    source: str
    endpoint: str | None = None
    args: str | None = Field(default=None, repr=False)
    condition: str | None = None
    scope: GrantScope
    run_id: str | None = None
    thread_id: str | None = None
    requester: str | None = None
    until: datetime | None = None
    uses: int | None = None
    uses_left: int | None = None
    count: int
    givers: tuple[Giver, ...]
    giver_count: int = Field(description="How many people give it. How many it takes, the approval of the tool says.")
    at: datetime | None = None
    reason: str | None = None
    revoked_by: Person | None = None
    revoked_at: datetime | None = None
    revoked_reason: str | None = None


class GrantsView(Given):
    """Standing grants, oldest first. `unreadable` are grants that cannot be read: they permit nothing."""

    items: tuple[GrantView, ...]
    unreadable: tuple[Unreadable, ...] = ()


class RunRow(Given):
    """A run, or a fork of one, and how it stands. `held`: a worker drives it at this moment."""

    id: str
    run_id: str
    thread_id: str | None = None
    agent: str
    label: str | None = None
    parent: str | None = None
    status: BranchStatus
    held: bool
    created_at: datetime
    changed_at: datetime
    waits_for: tuple[str, ...] = Field(default=(), description="The ids of the requests that wait in it.")
    title: str | None = Field(
        default=None, description="What the first of these requests is about: its title, or its tool."
    )
    words: str | None = Field(
        default=None,
        description="The first words of the input, which the user wrote: what guardrails let through, in one line and cut.",
    )
    requester: Person | None = None
    unreadable: str | None = Field(
        default=None,
        description="What is wrong with its rows, if they cannot be read: nobody can carry it on or decide in it until that is mended.",
    )


class RunsPage(Given):
    """A page of runs, newest first."""

    items: tuple[RunRow, ...]
    next: str | None = None


class RunFull(RunRow):
    """A run, and its last checkpoint."""

    checkpoint_id: str
    step: int
    messages: int
    output: JsonAny = Field(default=None, repr=False)
    can_cancel: bool = Field(description="Whether this server has its agent, and you may end the run.")


class TimelineEntryOf(Given):
    """One thing that happened in a run, without any content."""

    id: int
    type: str
    at: datetime
    branch_id: str
    agent: str | None = None
    path: str = ""
    checkpoint_id: str | None = None
    facts: dict[str, JsonAny] = Field(repr=False)


class TimelineView(Given):
    """The newest entries of a run's timeline, oldest first. `dropped` is the number of those before."""

    run_id: str
    branch_id: str
    dropped: int
    entries: tuple[TimelineEntryOf, ...]


class CallOf(Given):
    """The call of a tool in a message. Values that the tool hides read `[redacted]`."""

    id: str
    name: str
    arguments: str = Field(repr=False)


class MessageOf(Given):
    """A message of a conversation, by its number."""

    n: int
    role: Literal["user", "assistant", "tool"]
    text: str
    tool_calls: tuple[CallOf, ...] = ()
    tool_call_id: str | None = None
    settlement: Settlement | None = None


class MessagesView(Given):
    """A part of a conversation, oldest first. `before` is what to ask for next; None at its beginning."""

    items: tuple[MessageOf, ...]
    total: int
    before: int | None = None
