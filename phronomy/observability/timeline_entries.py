"""The entries of a timeline, and the narrator that makes them of events, of a live run or of a stored one.

Entries are made from events alone, by the same code for both, so both number and name them alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Literal, get_args

from pydantic import Field, model_validator

from phronomy.observability.events import (
    ApprovalRequested,
    CheckpointSaved,
    Decided,
    Ended,
    Event,
    Failed,
    GuardrailsAsked,
    HandedOver,
    MessageAdded,
    ModelReplied,
    RunStarted,
    Suspended,
    ToolCallFailed,
    ToolCallSettled,
    ToolCallStarted,
    Voted,
)
from phronomy.records.approvers import Vote
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.records.messages import Usage
from phronomy.records.record import EMPTY, OpenObject, Record, Text, Time

EntryType = Literal[
    "run_started",
    "branched",
    "model_replied",
    "tool_started",
    "tool_failed",
    "tool_settled",
    "guardrail",
    "message_added",
    "handoff",
    "approval_requested",
    "voted",
    "decided",
    "breakpoint_hit",
    "breakpoint_resumed",
    "breakpoint_cancelled",
    "breakpoint_expired",
    "checkpoint",
    "suspended",
    "ended",
    "failed",
]
"""The types of timeline entries."""

TYPES: Final[tuple[str, ...]] = get_args(EntryType)

_CALL: Final = ("call_id", "tool")
_DECIDED: Final = ("pending_id", "kind", "by", "channel", "edited", "metadata")
_BREAKPOINT: Final = ("pending_id", "point", "label", "tool")
_USED: Final = ("requests", "input_tokens", "output_tokens")

FACTS: Final[Mapping[str, frozenset[str]]] = {
    "run_started": frozenset(),
    "branched": frozenset({"from", "label"}),
    "model_replied": frozenset({"tools", "unknown", "finish_reason", *_USED}),
    "tool_started": frozenset({*_CALL, "attempt", "resumed"}),
    "tool_failed": frozenset({*_CALL, "next"}),
    "tool_settled": frozenset({*_CALL, "unknown", "kind"}),
    "guardrail": frozenset({"stage", "said", "code", "call_id"}),
    "message_added": frozenset({"id", "by"}),
    "handoff": frozenset({"from", "to", "call_id"}),
    "approval_requested": frozenset({"pending_id", *_CALL, "why", "risk", "digest", "external"}),
    "voted": frozenset({"pending_id", "kind", "by", "behalf_of", "channel", "missing", "tool", "metadata"}),
    "decided": frozenset({*_DECIDED, "behalf_of", "tool"}),
    "breakpoint_hit": frozenset({*_BREAKPOINT, "call_id", "gate"}),
    "breakpoint_resumed": frozenset({*_BREAKPOINT, *_DECIDED, "skipped"}),
    "breakpoint_cancelled": frozenset({*_BREAKPOINT, *_DECIDED}),
    "breakpoint_expired": frozenset({*_BREAKPOINT, *_DECIDED}),
    "checkpoint": frozenset({"step", "status", "label"}),
    "suspended": frozenset({"pending_ids"}),
    "ended": frozenset({"status", *_USED}),
    "failed": frozenset({"error"}),
}
"""The facts that an entry of each type may have. None of them is anything that was said: no input, arguments, results or reasons,
and no name of a tool but of one that there is. `metadata` are the data that the application gave with a decision."""

_ENDS: Final = {"skip": "resumed", "approve": "resumed", "respond": "resumed", "edit": "resumed", "expire": "expired"}
"""What a decision makes of a breakpoint; any other cancels it."""

_GATES: Final = ("breakpoint", "after")
"""Sources of what stands in a run to be stopped at, and does nothing."""


class TimelineEntry(Record):
    """One thing that happened in a run, without any content.

    `id` counts from 0 along the history of the branch. `at` is in UTC. `branch_id` is the branch in which it happened;
    for an entry from before a fork, that is the parent branch. `agent` is the name of the agent or graph. `path` is the
    path of a nested run; it is empty for the outermost run. `checkpoint_id` is the checkpoint that records the entry;
    for an entry between two checkpoints, it is the earlier one. `event` is the id of the entry's event in its branch.
    `facts` are plain values by name.
    """

    id: int = Field(ge=0)
    type: EntryType
    at: Time
    run_id: str
    branch_id: str
    agent: Text | None = None
    path: str = ""
    checkpoint_id: str | None = None
    event: str = Field(pattern=r"^[0-9]{1,12}\.[0-9]{1,12}$")
    facts: OpenObject = EMPTY

    @model_validator(mode="after")
    def _knows_its_facts(self) -> TimelineEntry:
        unknown = self.facts.keys() - FACTS[self.type]
        if unknown:
            raise ValueError(f"a {self.type} has no such fact as it is given")
        return self

    @property
    def seq(self) -> int:
        """The number of the entry in the log of its branch."""
        return int(self.event.partition(".")[0])


class Narrator:
    """Tells entries from the events of a branch, in order. All that it knows is in the entries that it has told, or was given."""

    def __init__(self, told: Iterable[TimelineEntry] = ()) -> None:
        self.next_id: int = 0
        self._agents: dict[str, str | None] = {}
        self._tips: dict[str, str | None] = {}
        self._waits: dict[str, tuple[str, dict[str, Any]]] = {}  # breakpoints: the path of each, and what it is
        self._names: dict[str, str] = {}  # of tools, by pending id
        self._votes: set[tuple[str, str, str | None]] = set()
        self._decisions: set[str] = set()
        self._stopped: list[str] = []  # what the run last waited for
        self._gates: set[tuple[str, str]] = set()
        for entry in told:
            self._note(entry)

    def tip(self, path: str) -> str | None:
        """The last checkpoint of a path; before its first, that of the run."""
        return self._tips.get(path) or self._tips.get("")

    def named(self, path: str, agent: str) -> None:
        """Take note of whose run is at a path."""
        self._agents[path] = agent

    def tell(
        self, event: Event, *, at: datetime, checkpoint_id: str | None, branch_id: str, label: str | None = None
    ) -> list[TimelineEntry]:
        """The entries of an event; `at` is for one without a time of its own, `label` that of the checkpoint."""
        if isinstance(event, RunStarted):
            self._agents[event.path] = event.agent
        place: dict[str, Any] = {
            "path": _path_of(event),
            "checkpoint_id": checkpoint_id,
            "event": event.id,
            "branch_id": branch_id,
        }
        found = []
        for type, facts in list(self._facts(event, label)):
            found.append(self.add(type, at=_time_of(event) or at, run_id=event.run_id, facts=facts, **place))
        return found

    def add(self, type: EntryType, *, path: str, facts: Mapping[str, Any], **place: Any) -> TimelineEntry:
        """The next entry."""
        kept = {name: value for name, value in facts.items() if value is not None}
        entry = TimelineEntry(id=self.next_id, type=type, path=path, agent=self._agents.get(path), facts=kept, **place)
        self._note(entry)
        return entry

    def take(self, entry: TimelineEntry) -> TimelineEntry:
        """An entry that was told elsewhere, as the next one."""
        entry = entry.evolve(id=self.next_id)
        self._note(entry)
        return entry

    def _note(self, entry: TimelineEntry) -> None:
        self.next_id = entry.id + 1
        if entry.agent is not None:
            self._agents[entry.path] = entry.agent
        facts: dict[str, Any] = entry.facts
        match entry.type:
            case "suspended":
                self._stopped = facts["pending_ids"]
            case "checkpoint":
                self._tips[entry.path] = entry.checkpoint_id
            case "branched":
                self._waits.clear()
            case "approval_requested":
                self._names[facts["pending_id"]] = facts["tool"]
            case "handoff":
                self._agents[entry.path] = facts["to"]
            case "voted":
                self._votes.add((facts["pending_id"], facts["by"], facts.get("behalf_of")))
            case "decided":
                self._decisions.add(facts["pending_id"])
            case "breakpoint_hit":
                self._waits[facts["pending_id"]] = entry.path, {name: facts.get(name) for name in _BREAKPOINT}
                if facts.get("gate"):
                    self._gates.add((entry.path, facts["call_id"]))
            case "breakpoint_resumed" | "breakpoint_cancelled" | "breakpoint_expired":
                self._waits.pop(facts["pending_id"], None)
                self._decisions.add(facts["pending_id"])
            case _:
                pass

    def _facts(self, event: Event, label: str | None) -> Iterator[tuple[EntryType, dict[str, object]]]:
        match event:
            case RunStarted():
                yield "run_started", {}
            case ModelReplied():
                tools = [call.name for call in event.message.tool_calls if call.id not in event.unknown]
                unknown = [*event.unknown] or None
                facts = {"tools": tools, "unknown": unknown, "finish_reason": event.message.finish_reason}
                yield "model_replied", {**facts, **_used(event.usage)}
            case ToolCallStarted() | ToolCallFailed() | ToolCallSettled():
                yield from self._of_call(event)
            case ApprovalRequested() | Voted() | Decided():
                yield from self._of_request(event)
            case CheckpointSaved():
                yield "checkpoint", {"step": event.step, "status": event.status, "label": label}
            case Suspended():
                yield from self._suspended(event, is_copy=label is not None)
            case Ended():
                yield from self._ended(event)
            case Failed():
                yield "failed", {"error": event.error}
            case GuardrailsAsked():
                said = {"stage": event.stage, "said": event.said}
                yield "guardrail", {**said, "code": event.code, "call_id": event.call_id}
            case MessageAdded():
                yield "message_added", {"id": event.message_id, "by": event.by.id if event.by is not None else None}
            case HandedOver():
                yield "handoff", {"from": event.source, "to": event.target, "call_id": event.call_id}
            case _:
                pass

    def _of_request(self, event: ApprovalRequested | Voted | Decided) -> Iterator[tuple[EntryType, dict[str, object]]]:
        match event:
            case ApprovalRequested():
                yield _asked(event.pending)
            case Voted():
                if _voter(event) not in self._votes:
                    yield _voted(event)
            case Decided():
                if event.decision.pending_id not in self._decisions:  # a nested run records its own as well
                    yield self._decided(event.decision)

    def _of_call(
        self, event: ToolCallStarted | ToolCallFailed | ToolCallSettled
    ) -> Iterator[tuple[EntryType, dict[str, object]]]:
        named: dict[str, object] = {"call_id": event.call_id, "tool": event.tool_name}
        match event:
            case ToolCallStarted():
                resumed: dict[str, object] = {"resumed": True} if event.resumed else {}
                yield "tool_started", {**named, "attempt": event.attempt, **resumed}
            case ToolCallFailed():
                yield "tool_failed", {**named, "next": event.next}
            case ToolCallSettled():
                if event.unknown:
                    named = {"call_id": event.call_id, "unknown": True}
                if (event.path, event.call_id) not in self._gates:
                    yield "tool_settled", {**named, "kind": event.kind}

    def _suspended(self, event: Suspended, *, is_copy: bool) -> Iterator[tuple[EntryType, dict[str, object]]]:
        ids = [item.id for item in event.pending]
        if not is_copy or ids != self._stopped:  # one on demand waits for nothing else
            yield "suspended", {"pending_ids": ids}

    def _ended(self, event: Ended) -> Iterator[tuple[EntryType, dict[str, object]]]:
        for path, facts in self._waits.values():
            if f"{path}/".startswith(f"{event.path}/".lstrip("/")):  # nobody decided it: the run was ended
                yield "breakpoint_cancelled", {**facts, "kind": event.type}
        yield "ended", {"status": event.type, **_used(event.usage)}

    def _decided(self, decision: Decision) -> tuple[EntryType, dict[str, object]]:
        by = decision.by.id if decision.by is not None else None
        facts: dict[str, object] = {
            **{"pending_id": decision.pending_id, "kind": decision.kind, "by": by, "channel": decision.channel},
            "edited": decision.args is not None,
            **_metadata(decision),
        }
        if decision.pending_id not in self._waits:
            behalf_of = decision.behalf_of.id if decision.behalf_of is not None else None
            return "decided", {**facts, "behalf_of": behalf_of, "tool": self._names.get(decision.pending_id)}
        facts = {**self._waits[decision.pending_id][1], **facts}
        match _ENDS.get(decision.kind):
            case "resumed":
                return "breakpoint_resumed", {**facts, "skipped": decision.kind == "skip"}
            case "expired":
                return "breakpoint_expired", facts
            case _:
                return "breakpoint_cancelled", facts


def _asked(pending: PendingApproval) -> tuple[EntryType, dict[str, object]]:
    what = {"pending_id": pending.id, "call_id": pending.call_id, "tool": pending.tool_name}
    if pending.why == "breakpoint":
        gate = pending.tool.source in _GATES or None
        return "breakpoint_hit", {**what, "point": pending.point, "label": pending.label, "gate": gate}
    return "approval_requested", {
        **what,
        "why": pending.why,
        "risk": pending.tool.risk,
        "digest": pending.digest,
        "external": pending.external or None,
    }


def _voter(event: Voted) -> tuple[str, str, str | None]:
    """Whose vote it is, and on what: a person votes once on a request."""
    vote = event.vote
    return event.pending_id, vote.by.id, vote.behalf_of.id if vote.behalf_of is not None else None


def _voted(event: Voted) -> tuple[EntryType, dict[str, object]]:
    pending_id, by, behalf_of = _voter(event)
    who = {"by": by, "behalf_of": behalf_of, "channel": event.vote.channel}
    missing = {each.of or "tool": each.missing for each in event.levels}
    named = {"pending_id": pending_id, "kind": event.vote.kind, "tool": event.tool_name}
    return "voted", {**named, **who, "missing": missing, **_metadata(event.vote)}


def _metadata(given: Decision | Vote) -> dict[str, object]:
    return {"metadata": given.metadata} if given.metadata else {}


def _path_of(event: Event) -> str:
    """The path of the run that it is about. What is decided in a nested run is recorded around it."""
    match event:
        case Decided():
            return event.decision.path
        case Voted():
            return event.inside
        case _:
            return event.path


def _used(usage: Usage) -> dict[str, object]:
    return {name: getattr(usage, name) for name in _USED}


def _time_of(event: Event) -> datetime | None:
    """When it was, where the event itself says so."""
    match event:
        case ToolCallStarted() | MessageAdded():
            return event.at
        case ApprovalRequested():
            return event.pending.requested_at
        case Voted():
            return event.vote.at
        case Decided():
            return event.decision.at
        case _:
            return None
