"""What the HTTP API takes: the models of its queries and bodies, as its description publishes them.

A body or a query with a member that is not here is refused, so that no misspelt filter shows everything.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from phronomy.records.decisions import Then
from phronomy.records.grants import MOST_USES, GrantScope
from phronomy.records.record import OpenMetadata, is_empty, no_metadata
from phronomy.stores.derived.standing import Way
from phronomy.stores.derived.triggering import Early
from phronomy.stores.rows import BranchStatus

LIMIT: Final = 50
MOST: Final = 200
"""Items of a page: unless another number is asked for, and at most."""

MOST_TOGETHER: Final = 100
"""Requests that are decided in one call, at most: each has been read by somebody."""

_Id: TypeAlias = Annotated[str, StringConstraints(max_length=1_500)]
_Text: TypeAlias = Annotated[str, StringConstraints(max_length=10_000)]
_Digest: TypeAlias = Annotated[str, StringConstraints(max_length=200)]
_Seconds: TypeAlias = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_Cursor: TypeAlias = Annotated[str, StringConstraints(max_length=2_000)]


class Taken(BaseModel):
    """The base of what comes in: nothing unknown, nothing that is changed afterwards."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


# Queries


class WaitingQuery(Taken):
    """Which waiting requests are wanted. Ages and times are in seconds.

    With `triggers`, also those that no person answers: they wait for an event, a time or the end of another run.
    """

    state: Literal["pending", "expired"] | None = None
    tool: _Id | None = None
    agent: _Id | None = None
    thread: _Id | None = None
    run: _Id | None = None
    risk: _Id | None = None
    label: _Id | None = None
    requester: _Id | None = None
    mine: bool = False
    older_than: _Seconds | None = None
    newer_than: _Seconds | None = None
    expires_within: _Seconds | None = None
    text: Annotated[str, StringConstraints(max_length=1_000)] | None = None
    triggers: bool = False


class RequestsQuery(WaitingQuery):
    """Which waiting requests are wanted, and which page of them."""

    order: Literal["oldest", "newest"] = "oldest"
    limit: Annotated[int, Field(ge=1, le=MOST)] = LIMIT
    cursor: _Cursor | None = None


class AuditQuery(Taken):
    """Which records of the audit trail are wanted, and which page of them. `since` and `until` are included."""

    run: _Id | None = None
    thread: _Id | None = None
    request: _Id | None = None
    since: datetime | None = None
    until: datetime | None = None
    format: Literal["json", "csv", "ndjson"] | None = None
    limit: Annotated[int, Field(ge=1, le=MOST)] = LIMIT
    cursor: _Cursor | None = None


class GrantsQuery(Taken):
    """Which standing grants are wanted. With `all`, also those of the last week that are revoked or have no uses left."""

    agent: _Id | None = None
    tool: _Id | None = None
    all: bool = False


class RunsQuery(Taken):
    """Which runs are wanted, newest first, and which page of them. `status` may be there several times."""

    thread: _Id | None = None
    agent: _Id | None = None
    status: tuple[BranchStatus, ...] = ()
    limit: Annotated[int, Field(ge=1, le=MOST)] = LIMIT
    cursor: _Cursor | None = None


class MessagesQuery(Taken):
    """Which part of a conversation is wanted: the `limit` messages before the message number `before`; None: the last ones."""

    before: Annotated[int, Field(ge=0, le=2**53)] | None = None
    limit: Annotated[int, Field(ge=1, le=MOST)] = LIMIT


class VersionsQuery(Taken):
    """Which part of the versions of a run is wanted: those before the checkpoint number `before`; None: the newest."""

    before: Annotated[int, Field(ge=0, le=2**53)] | None = None


class DiffQuery(Taken):
    """Which two checkpoints of a run are compared, and from which difference on, counted from 0."""

    before: _Id
    after: _Id
    first: Annotated[int, Field(ge=0, le=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=MOST)] = LIMIT


class TimelineQuery(Taken):
    """How many of the newest entries of a timeline are wanted."""

    limit: Annotated[int, Field(ge=1, le=2_000)] = MOST


class EventsQuery(Taken):
    """`after` is the id of the last event that was seen. The header `Last-Event-ID` goes before it."""

    after: Annotated[str, StringConstraints(max_length=200)] | None = None


# Bodies


class DecisionBody(Taken):
    """A decision about a request. `digest` is that of the request as it was shown.

    `edit` needs `args`, the whole of the new arguments as JSON text. `reject` may have a `reason` and `then`. `respond` needs
    `content`, any JSON value: the result in place of the call's. `metadata`, an object of at most 16 KB, is kept with the decision,
    and changes nothing; only `skip` has none.
    """

    answer: Way
    digest: _Digest
    args: str | None = Field(default=None, repr=False)
    reason: _Text | None = None
    then: Then = "continue"
    content: Any = Field(default=None, repr=False)
    metadata: OpenMetadata = Field(default_factory=no_metadata, repr=False, exclude_if=is_empty)


class CheckBody(Taken):
    """Edited arguments, as JSON text, and the digest of the request as it was shown."""

    digest: _Digest
    args: str = Field(repr=False)


class BatchItem(Taken):
    """A request of several that are decided together, with the digest that was shown."""

    id: _Id
    digest: _Digest


class BatchBody(Taken):
    """An answer to several requests. With `atomic`, all are decided or none. `metadata` is kept with each decision."""

    answer: Literal["approve", "reject"]
    requests: Annotated[tuple[BatchItem, ...], Field(min_length=1, max_length=MOST_TOGETHER)]
    reason: _Text | None = None
    then: Then = "continue"
    metadata: OpenMetadata = Field(default_factory=no_metadata, repr=False, exclude_if=is_empty)
    atomic: bool = False


class GrantBody(Taken):
    """A standing grant for calls like the one that a request shows. The request itself is not decided.

    With `exactly`, it covers the arguments of the request alone; otherwise any arguments, or those for which the predicate named
    `condition` is true. Except for one run, it ends: at the time `until`, or after so many `uses`.
    """

    request: _Id
    digest: _Digest
    scope: GrantScope = "run"
    exactly: bool = True
    condition: _Id | None = None
    until: datetime | None = None
    uses: Annotated[int, Field(ge=1, le=MOST_USES)] | None = None
    reason: _Text | None = None


class StartBody(Taken):
    """A run to start: the agent by its name, and its input."""

    agent: _Id
    input: Annotated[str, StringConstraints(min_length=1, max_length=1_000_000)] = Field(repr=False)
    thread: Annotated[str, StringConstraints(min_length=1, max_length=1_500)] | None = None
    label: Annotated[str, StringConstraints(min_length=1, max_length=1_500)] | None = None


class MessageBody(Taken):
    """A message to a run that waits or works."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=1_000_000)] = Field(repr=False)


class CancelBody(Taken):
    """Why a run is ended."""

    reason: _Text | None = None


class EventBody(Taken):
    """An event from outside: its name, and its payload, any JSON value.

    `early` says what becomes of it if nothing waits for it yet: `first` keeps it if no trigger for such an event was there before,
    `always` keeps it also after that, and `never` refuses it.
    """

    name: Annotated[str, StringConstraints(min_length=1, max_length=1_500)]
    payload: Any = Field(default=None, repr=False)
    early: Early = "first"


class PauseBody(Taken):
    """Why a run is paused, and the digest of the operation as it was shown."""

    digest: _Digest
    reason: _Text | None = None


class ForkBody(Taken):
    """A fork at a checkpoint, and the digest of the operation as it was shown. With `rerun`, calls that have completed run again."""

    digest: _Digest
    label: Annotated[str, StringConstraints(min_length=1, max_length=1_500)] | None = None
    rerun: bool = False


class RestoreBody(Taken):
    """Going back to a checkpoint, and the digest of the operation as it was shown.

    With `accept_changes`, also where the agent has changed in a way that concerns what waits there.
    """

    digest: _Digest
    accept_changes: bool = False


StepPace: TypeAlias = Literal["step", "into", "over", "out"]
"""Where the next stop of a step is."""


class StepBody(Taken):
    """A step from the breakpoint `request`, and the digest of the operation as it was shown. `pace` says where the next stop is.

    `step`: at the next boundary. `into`: at the next point, also of a nested run. `over`: at the next point of this run, or of one
    around it. `out`: at the next point of a run around it.
    """

    request: _Id
    digest: _Digest
    pace: StepPace = "step"
