"""Standing grants: calls of a tool that people have let through before they are made, for a scope, a time and a number of uses.

Versions of the record, one sentence each: 1. The first.
"""

from collections.abc import Mapping
from operator import not_
from typing import Annotated, Final, Literal, Self, TypeAlias, assert_never

from pydantic import Field, model_validator

from phronomy.records.decisions import ToolIdentity
from phronomy.records.principals import Recorded
from phronomy.records.record import JsonObject, Record, Text, Time

GrantScope: TypeAlias = Literal["run", "thread", "principal", "tenant"]
"""What a grant is for: one run, the runs of a thread, the runs that a principal has asked for, or all runs of the tenant."""

MOST_USES: Final = 1_000
"""The most uses that a grant can be limited to: the id of each request that used it is kept."""

_Name: TypeAlias = Annotated[Text, Field(min_length=1)]

NEEDED: Final[Mapping[str, str]] = {"run": "run_id", "thread": "thread_id", "principal": "requester"}
"""The field that each scope needs; that of the whole tenant needs none."""


class Given(Record):
    """One person's part in a grant: who gave it, when, and through which channel. `behalf_of` is who it was given for.

    `listed` says that the giver was found in the directory of the store: their part counts as long as they are.
    """

    principal: Recorded
    at: Time
    channel: Text | None = None
    behalf_of: Recorded | None = None
    listed: bool = Field(default=False, exclude_if=not_)


class Revoked(Record):
    """The end of a grant: who revoked it, when and why."""

    principal: Recorded
    at: Time
    reason: Text | None = None


class Grant(Record):
    """A standing grant: it lets calls of a tool through without asking a human each time.

    `agent` is the name of the agent that calls the tool named `tool`. `source` and `endpoint` are those of the
    `ToolIdentity`: a grant for a local tool does not cover a tool of an MCP server with the same name. With
    `schema_hash`, it covers the tool only as long as its schema is this one.

    With `args`, it covers only these arguments, as a request shows them: validated, with defaults, in the same order.
    With `condition`, it covers the arguments for which the predicate of this name, registered with the tool's approval,
    returns True. With neither, it covers any arguments.

    `scope` says which runs it covers: `"run"` needs `run_id`, `"thread"` needs `thread_id`, `"principal"` needs
    `requester` (the id of the principal who asked for the run; for an alias, the store keeps the id of the person), and
    `"tenant"` needs none of them. It counts until the time `until`, and for `uses` calls (1 to 1,000). Except for the scope
    `"run"`, one of the two is required.

    The store sets the other fields. `givers` are the people who gave it. `count` is how often it was used; if `uses` is
    given, `used` holds the ids of the requests that used it. `at` is when it was made. `revoked` is there once it is
    revoked. Raises `InvalidField`.
    """

    version: Literal[1] = 1
    id: str = ""
    agent: _Name
    tool: _Name
    source: Text = "local"
    endpoint: Text | None = None
    schema_hash: str | None = None
    args: JsonObject | None = Field(default=None, repr=False)
    condition: _Name | None = None
    scope: GrantScope
    run_id: _Name | None = None
    thread_id: _Name | None = None
    requester: _Name | None = None
    until: Time | None = None
    uses: int | None = Field(default=None, ge=1, le=MOST_USES)
    givers: tuple[Given, ...] = ()
    used: tuple[str, ...] = ()
    count: int = Field(default=0, ge=0)
    at: Time | None = None
    reason: Text | None = None
    revoked: Revoked | None = Field(default=None, exclude_if=not_)

    @model_validator(mode="after")
    def _limited(self) -> Self:
        """Refuse a grant that says too little, or two things at once."""
        if self.__dict__["args"] is not None and self.condition is not None:
            raise ValueError("a grant has args or a condition, not both")
        needed = NEEDED.get(self.scope)
        for name in NEEDED.values():
            if (getattr(self, name) is not None) != (name == needed):
                wanted = f"{needed} and no other id" if needed is not None else "no run_id, thread_id or requester"
                raise ValueError(f"a grant with the scope {self.scope} has {wanted}")
        if self.scope != "run" and self.until is None and self.uses is None:
            raise ValueError(f"a grant with the scope {self.scope} ends: give until, uses or both")
        if len(set(self.used)) != (self.count if self.uses is not None else 0) or len(self.used) != len(set(self.used)):
            raise ValueError("a grant with uses names each request that used it once, and counts them")
        if self.uses is not None and self.count > self.uses:
            raise ValueError("a grant was not used more often than it may be")
        return self

    @property
    def uses_left(self) -> int | None:
        """How many more calls the grant lets through; None if their number is not limited."""
        return self.uses - self.count if self.uses is not None else None


def is_spent(grant: Grant) -> bool:
    """Whether all uses of a grant are used up."""
    return grant.uses_left == 0


def covers(
    grant: Grant,
    *,
    agent: str,
    tool: ToolIdentity,
    args_text: str,
    run_id: str,
    thread_id: str | None,
    requester_id: str | None,
) -> bool:
    """Whether a grant is for this call, by all but its condition, its time and its uses. `args_text` is canonical.

    A grant that was revoked covers nothing.
    """
    return (
        grant.revoked is None
        and (grant.agent, grant.tool, grant.source, grant.endpoint) == (agent, tool.name, tool.source, tool.endpoint)
        and grant.schema_hash in (None, tool.schema_hash)
        and grant.__dict__["args"] in (None, args_text)
        and _is_in_scope(grant, run_id, thread_id, requester_id)
    )


def _is_in_scope(grant: Grant, run_id: str, thread_id: str | None, requester_id: str | None) -> bool:
    match grant.scope:
        case "run":
            return grant.run_id == run_id
        case "thread":
            return grant.thread_id == thread_id
        case "principal":
            return grant.requester == requester_id
        case "tenant":
            return True
        case unknown:
            assert_never(unknown)
