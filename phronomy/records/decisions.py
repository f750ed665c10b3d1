"""Approvals: what waits for a human, what a human may answer, and the record of what was decided."""

from collections.abc import Mapping
from datetime import datetime
from operator import not_
from typing import ClassVar, Final, Literal, TypeAlias

from pydantic import Field

from phronomy.errors import InvalidDecision, InvalidField
from phronomy.foundation.json_text import clean
from phronomy.records.breakpoint_points import Point
from phronomy.records.record import NULL, Json, JsonObject, OpenJson, OpenObject, Record, Text, Time, digest_of

Gate = Literal["always", "predicate", "never"]
"""When a tool asks for approval: on every call, as its predicate says, or never."""

Then = Literal["continue", "block", "end"]
"""What follows a rejection: the model goes on; it goes on and the same call is rejected unasked; or the run ends."""

DecisionKind = Literal["approve", "reject", "respond", "skip", "cancel", "expire", "supersede", "edit"]
"""What was decided."""

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

SAID: Final[Mapping[DecisionKind, str]] = {**PAST, "respond": "answered"}
"""What is said of a decision itself: it was so, by somebody."""

OnExpiry = Literal["reject", "cancel", "stay"]
"""What happens when nobody decides in time: the call is settled as expired; so, and the run is cancelled; it may still be decided."""

Why = Literal["approval", "outcome_unknown", "failed", "question", "breakpoint"]
"""Why a human is asked: the gate; a call whose worker was lost in the middle; a call that failed for good; a body that asks
something by `interrupt`; somebody wants to look before it goes on."""


class _Said(Record):
    """What somebody says when a decision is made."""

    _refused_as: ClassVar[type[InvalidField | InvalidDecision]] = InvalidDecision


class Principal(_Said):
    """Somebody who decides.

    `id` is yours, stable; `name` is for people; `kind` tells a human from a service account.
    """

    id: Text = Field(min_length=1)
    name: Text | None = None
    kind: Literal["human", "service"] = "human"


class Approve(_Said):
    """Run the call; with `args`, run it with these arguments instead, which are validated and gated anew."""

    args: OpenObject | None = Field(default=None, repr=False)


class Reject(_Said):
    """Do not run the call. `reason` goes to the model, `then` says what follows."""

    reason: Text | None = None
    then: Then = "continue"


class Respond(_Said):
    """Do not run the call: the human is the tool, and `content` (text or any JSON value) is the result."""

    content: OpenJson = Field(repr=False)


class Skip(_Said):
    """At a breakpoint: leave out what comes next. A call or node is not run; before a model call, or at the end, the run ends so."""


class Defer(_Said):
    """A handler's way to say: not now. The run suspends."""


Answer: TypeAlias = Approve | Reject | Respond | Skip
"""What `resume(decisions=...)` takes for each pending id."""


EXTERNAL: Final = "external"
"""The source of a tool that is carried out elsewhere; a source that it was given besides follows, after a colon."""


def is_external(source: str) -> bool:
    """Whether this is the source of a tool that is carried out elsewhere."""
    return source.partition(":")[0] == EXTERNAL


class ToolIdentity(Record):
    """Which tool exactly: the agent's path, its source, its name, the hash of its schema, its gate and its risk.

    `endpoint` is where a tool that is somebody else's runs, and `description_hash` the SHA-256 of what they said of it then.
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
        """Whether it is carried out elsewhere: nothing here may run it."""
        return is_external(self.source)


class PendingApproval(Record):
    """A call that waits for a human. `args` are validated and default-filled: what is shown is what will run.

    `id` is unique for this occurrence; `digest` covers the tool's identity and the arguments, and a decision is bound to both.
    `expires_at` is when the request lapses (None: never), and `on_expiry` what happens then. `path` names the nested run that asks,
    empty for the run itself; `agent` is the name of the agent or graph that asks. `point` and `label` are of the breakpoint, where it
    is one.
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

    def has_lapsed(self, now: datetime) -> bool:
        """Whether it is too late at this time for a decision to count."""
        return self.expires_at is not None and self.on_expiry != "stay" and now >= self.expires_at

    @property
    def tool_name(self) -> str:
        """The name of the tool that waits."""
        return self.tool.name

    @property
    def external(self) -> bool:
        """Whether the call is carried out elsewhere: it waits for a `Respond` with what came of it, and nothing approves it."""
        return self.tool.external and self.why != "breakpoint"


class Decision(Record):
    """What was decided on a pending approval, by whom, when, and through which channel.

    It is bound to the pending id and to `digest`, which is of what was shown. `args` are the edited arguments, validated. `asks` is
    the pending id of the approval that a call which was let go on at a breakpoint needs, and `asked_by` names who asks for it, where an
    edit has changed that, as in a judgement.
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
    by: Principal | None = None
    channel: Text | None = None
    at: Time

    @property
    def ends_all(self) -> bool:
        """Whether it is a refusal that ends the run, and every run that it is inside of."""
        return self.kind == "reject" and self.then == "end"


def call_digest(tool: ToolIdentity, args_text: str) -> str:
    """The digest that request, decision and journal share: over the tool's identity and the canonical argument text."""
    where = () if tool.endpoint is None else (tool.endpoint,)
    return digest_of(tool.path, tool.source, *where, tool.name, tool.schema_hash, args_text)


def as_principal(by: str | Principal | None) -> Principal | None:
    """The principal meant by `by`: itself, or one whose id is the text. Raises `InvalidDecision`."""
    if by is None or isinstance(by, Principal):
        return by
    if not isinstance(by, str) or not by:
        raise InvalidDecision("by is a Principal, or its id as text that is not empty")
    return Principal(id=clean(by))
