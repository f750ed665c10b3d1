"""The record of a team's work in a thread, read off its checkpoints: nothing of it is stored twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from phronomy.foundation.dataclasses import dataclass
from phronomy.observability.events import Event, Reader
from phronomy.records.calls import Call
from phronomy.records.chain import target_of
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.messages import Usage
from phronomy.stores.log.log import items_of
from phronomy.stores.rows import Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberState:
    """The work of one agent, graph or pattern of a team in a thread.

    `runs` is the number of its runs, and `tokens` counts its own model calls. `status`, `last_input`, `last_output` and
    `last_error` belong to the last run in which it worked. `status` is `running`, `suspended`, `failed`, or an end.
    `last_error` is the type of the error.
    """

    status: str | None = None
    last_input: Any = field(default=None, repr=False)
    last_output: Any = field(default=None, repr=False)
    last_error: str | None = None
    runs: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffState:
    """A handoff of a team. If `pending_id` is set, it waits for a decision under this id. If not, it has been made."""

    source: str
    target: str
    run_id: str
    pending_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalState:
    """The state of a team in a thread.

    `tokens` counts all runs, and `status` is the status of the last run: `running`, `suspended`, `failed`, or an end.
    `members` has the members of the team and the agents inside them, by name. `handoffs` were made, and
    `pending_handoffs` wait for a decision. `turns` says how often each pool was called, which decides which of its
    agents is next. `facts` and `memory` are stored with the thread.
    """

    status: str
    tokens: int = 0
    runs: int = 0
    members: Mapping[str, MemberState] = field(default_factory=dict)
    handoffs: tuple[HandoffState, ...] = ()
    pending_handoffs: tuple[HandoffState, ...] = ()
    turns: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    memory: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def handoff_count(self) -> int:
        """The number of handoffs."""
        return len(self.handoffs)

    @property
    def past(self) -> Past:
        """The part that is computed from the log, to store it with a branch whose log was deleted."""
        return Past(tokens=self.tokens, runs=self.runs, members=dict(self.members), handoffs=list(self.handoffs))


@dataclass(frozen=True, kw_only=True)
class Past:
    """The work of a team in a thread before its log begins."""

    tokens: int = 0
    runs: int = 0
    members: dict[str, MemberState] = field(default_factory=dict)
    handoffs: list[HandoffState] = field(default_factory=list)


class Told:
    """Sums up the log of a thread, on top of the past before it."""

    def __init__(self, past: Past) -> None:
        self.members: dict[str, MemberState] = dict(past.members)
        self.handoffs: list[HandoffState] = list(past.handoffs)
        self.runs: int = past.runs
        self._tokens = past.tokens
        self._used = Usage()
        self._run_id = ""
        self._at: dict[str, str] = {}
        """Who works at each path of the present run."""
        self._named: dict[str, str] = {}

    @property
    def tokens(self) -> int:
        """The tokens that all members used."""
        return self._tokens + self._used.total_tokens

    def hear(self, event: Event) -> None:
        """Take note of an event."""
        self._enter(event.run_id)
        name = self._at.get(event.path, "")
        match event.type:
            case "run_started":
                self._began(event)
            case "tool_call_started" if event.path == "":
                self._named[event.inside or ""] = event.tool_name
                self._set(self._at.get(event.inside, event.tool_name), status="running")  # or who speaks by now
            case "tool_call_failed" if event.path == "":
                self._set(self._at.get(event.call_id, event.tool_name), status="failed", last_error=_kind(event.error))
            case "tool_call_failed":
                self._set(name, last_error=_kind(event.error))
            case "model_replied":
                self._used += event.spent
                self._set(name, tokens=self._of(name).tokens + event.spent.total_tokens)
            case "handoff":
                made = HandoffState(source=event.source, target=event.target, run_id=event.run_id)
                self.handoffs.append(made)
                self._set(event.source, status="completed")
                self._at[event.path] = event.target
                runs = self._of(event.target).runs + 1
                self._set(event.target, status="running", last_output=None, last_error=None, runs=runs)
            case "completed" | "rejected" | "cancelled" | "superseded" | "skipped" if event.path == "":
                for each in self._at.values():  # what was under way in it is over as well
                    if self._of(each).status in ("running", "suspended", "failed"):
                        self._set(each, status=event.type)
            case "completed" | "rejected" | "cancelled" | "superseded" | "skipped":
                self._set(name, status=event.type, last_output=event.output)
            case "checkpoint":
                self._set(name, status=event.status)
            case _:
                pass

    def join(self, part: Checkpoint, calls: Mapping[str, Call]) -> None:
        """Take note of who is under way in a run whose beginning is lost; `calls` are its own."""
        self._enter(part.run_id)
        if part.path:
            call = calls.get(part.path)
            self._at[part.path] = call.name if call is not None and part.kind == "graph" else part.speaker

    def brought(self, part: Checkpoint) -> None:
        """Take note of what a run has done before this log begins with it: it was brought in from elsewhere."""
        for made in part.handoffs:
            self.handoffs.append(HandoffState(source=made.source, target=made.target, run_id=part.run_id))
            self._set(made.source, status="completed")
            self._at[part.path] = made.target
            self._set(made.target, status=part.status, runs=self._of(made.target).runs + 1)
        if part.usage.total_tokens:
            self._used += part.usage
            if name := self._at.get(part.path):
                self._set(name, tokens=self._of(name).tokens + part.usage.total_tokens)

    def _began(self, event: Any) -> None:
        if event.path == "":
            self.runs += 1
            return
        name: str = self._named.get(event.path) or event.agent
        self._at[event.path] = name
        begun = {"last_input": event.input, "last_output": None, "last_error": None, "status": "running"}
        self._set(name, **begun, runs=self._of(name).runs + 1)

    def _enter(self, run_id: str) -> None:
        """Forget where agents worked if another run of the thread begins.

        Events of nested runs may come before its own.
        """
        if run_id != self._run_id:
            self._run_id, self._at, self._named = run_id, {}, {}

    def _of(self, name: str) -> MemberState:
        return self.members.get(name, MemberState())

    def _set(self, name: str, **facts: Any) -> None:
        if name:
            self.members[name] = replace(self._of(name), **facts)


def _kind(error: str) -> str:
    """The kind of what failed, of how it was told: `ModelConnectionError: ...`."""
    return error.partition(":")[0]


def told_of(lineage: Lineage, past: Past | None) -> Told:
    """Reads the work of a thread up to the head of this branch; the log begins with the end of the past, if there is one."""
    told, reader = Told(past or Past()), Reader(lineage.branch.id)
    lost: list[Checkpoint] | None = None if past is None else []
    known: set[tuple[str, str]] = set()
    for entry, row in items_of(lineage.entries):
        events = reader.read(entry.seq, entry.path, row)
        if not isinstance(row, Checkpoint):
            for event in events:
                told.hear(event)
            continue
        first = (row.run_id, row.path) not in known
        known.add((row.run_id, row.path))
        if lost is not None:
            lost.append(row)
            if row.path == "":
                for part in lost:
                    told.join(part, {call.id: call for call in row.calls})
                lost = None
            continue
        for event in events:
            told.hear(event)
        if first:
            told.brought(row)
    return told


def pending_handoffs(checkpoint: Checkpoint) -> tuple[HandoffState, ...]:
    """The handoffs that wait for somebody."""
    found = []
    for item in checkpoint.pending:
        target = target_of(item.tool)
        if target is not None:
            found.append(
                HandoffState(source=item.agent or "", target=target, run_id=checkpoint.run_id, pending_id=item.id)
            )
    return tuple(found)
