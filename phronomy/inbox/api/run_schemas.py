"""What the HTTP API gives of the versions of a run, its checkpoints, and what could be done to it: the models of these answers."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from pydantic import Field

from phronomy.inbox.api.schemas import Given, MessagesView, Person
from phronomy.inbox.operating import What
from phronomy.observability.drawings.picture import Kind
from phronomy.records.decisions import DecisionKind
from phronomy.records.diff import Change
from phronomy.stores.rows import BranchStatus


class VersionOf(Given):
    """A checkpoint of a run in its version tree. `lines` say in words what happened there, and nothing that was said."""

    id: str
    parent_id: str | None = None
    branch_id: str
    step: int
    at: datetime
    label: str | None = None
    status: BranchStatus
    kind: Kind
    lines: tuple[str, ...]
    head: bool = Field(description="Whether it is the last checkpoint of its branch.")
    aside: bool = Field(description="Whether it is of a short fork that is shown beside the branch.")


class ForkOf(Given):
    """A branch that is not shown whole. `at` is the checkpoint where it leaves what is shown; None if that is not shown."""

    branch_id: str
    at: str | None = None
    label: str | None = None
    status: BranchStatus
    created_at: datetime
    goes_on: bool = Field(description="Whether it is the branch that what is shown was forked from.")


class VersionsView(Given):
    """A part of the versions of a run, along one branch, oldest first. `before` is what to ask for next; None at its beginning.

    `first` is the number of the first one, of `total`. `more` is the number of forks that are left out.
    """

    run_id: str
    branch_id: str
    items: tuple[VersionOf, ...]
    forks: tuple[ForkOf, ...]
    first: int
    total: int
    before: int | None = None
    more: int = 0


class OperationOf(Given):
    """What could be done to a run. `digest` is sent along when it is done; `why_not` says why it cannot be done now."""

    what: What
    request: str | None = None
    digest: str
    why_not: str | None = None
    changes: tuple[str, ...] = Field(default=(), description="How the agent has changed, where that is to be accepted.")


class OperationsView(Given):
    """What you could do to a run as it stands, by your scopes."""

    items: tuple[OperationOf, ...]


class EventView(Given):
    """What became of an event: it has `fired` the trigger `pending_id`, or is `kept` until one waits for it."""

    id: str
    status: Literal["fired", "kept"]
    run_id: str
    branch_id: str
    pending_id: str | None = None


class SentMessage(Given):
    """A message that is stored for a run. `id` is that of the event `message_added`; `status` is how the run stands."""

    id: str
    run_id: str
    branch_id: str
    status: BranchStatus


class CallState(Given):
    """A call of the open turn, and how it stands. `tool` is None if the model named a tool that there is none of."""

    tool: str | None = None
    status: str
    pending_id: str | None = None


class DecisionTold(Given):
    """A decision that was made up to a checkpoint."""

    kind: DecisionKind
    pending_id: str
    by: Person | None = None
    at: datetime
    channel: str | None = None


class NestedOf(Given):
    """A nested run that has stopped, by its path."""

    path: str
    agent: str
    status: BranchStatus
    step: int


class CheckpointView(VersionOf):
    """A checkpoint of a run.

    `state` is the state of a graph as canonical JSON text; None if there is none, or if this server does not have the graph, which
    `state_hidden` says. `conversation` is the end of what was said up to here, or the part before the message `before`.
    """

    run_id: str
    thread_id: str | None = None
    agent: str
    turn: int
    requester: Person | None = None
    input_tokens: int
    output_tokens: int
    state: str | None = Field(default=None, repr=False)
    state_hidden: bool
    calls: tuple[CallState, ...]
    decisions: tuple[DecisionTold, ...]
    nested: tuple[NestedOf, ...]
    conversation: MessagesView
    operations: tuple[OperationOf, ...]


DifferenceKind: TypeAlias = Literal[
    "message", "state", "call", "request", "vote", "decision", "nested", "metadata", "number"
]
"""What differs."""


class DifferenceOf(Given):
    """One thing that differs. `before` and `after` are None where there is nothing, and where `hidden` says that it may not be seen."""

    kind: DifferenceKind
    change: Change
    name: str
    before: str | None = Field(default=None, repr=False)
    after: str | None = Field(default=None, repr=False)
    hidden: bool = False


class DiffView(Given):
    """What two checkpoints differ in. `next` is the `first` of the rest; None at the end."""

    before: VersionOf
    after: VersionOf
    items: tuple[DifferenceOf, ...]
    total: int
    next: int | None = None
