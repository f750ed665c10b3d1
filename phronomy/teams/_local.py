"""What a team has done so far, read off the chain of its thread: nothing of it is stored twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from phronomy._chain import target_of
from phronomy._rows import outcome_from
from phronomy.checkpoint import Checkpoint
from phronomy.events import Event, Reader
from phronomy.messages import Usage
from phronomy.stores.log import rows_of
from phronomy.stores.rows import Lineage
from phronomy.types import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberState:
    """What an agent, a graph or a pattern of a team has done in a thread: `runs` counts them, `tokens` are of its own model calls.

    `status` and `last_...` are of the last run that it had a part in; `last_error` is the kind of what failed in it.
    """

    status: Status | None = None
    last_input: Any = field(default=None, repr=False)
    last_output: Any = field(default=None, repr=False)
    last_error: str | None = None
    runs: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffState:
    """A handoff: made, or `pending` under that id until somebody lets it be."""

    source: str
    target: str
    run_id: str
    pending_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalState:
    """Where a team stands in a thread.

    `tokens` are of all its runs, `status` is that of the last one. `members` are by name. `handoffs` were made, `pending_handoffs` wait
    for somebody. `turns` says how often each pool was asked, so who of it is next; `facts` and `memory` are what the thread keeps.
    """

    status: Status
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
        """How many handoffs were made."""
        return len(self.handoffs)


class _Told:
    """What the events of a thread come to."""

    def __init__(self) -> None:
        self.members: dict[str, MemberState] = {}
        self.handoffs: list[HandoffState] = []
        self.runs = 0
        self.used = Usage()
        self._at: dict[str, str] = {}
        """Who works at each path of the present run."""
        self._named: dict[str, str] = {}

    def hear(self, event: Event) -> None:
        """Take note of an event."""
        name = self._at.get(event.path, "")
        match event.type:
            case "run_started":
                self._began(event)
            case "tool_call_started" if event.path == "":
                self._named[event.inside] = event.tool_name
            case "model_replied":
                self.used += event.spent
                self._set(name, tokens=self._of(name).tokens + event.spent.total_tokens)
            case "handoff":
                made = HandoffState(source=event.source, target=event.target, run_id=event.run_id)
                self.handoffs.append(made)
                self._set(event.source, status="completed")
                self._at[event.path] = event.target
                again = self._of(event.target)
                self._set(event.target, status="running", last_error=None, runs=again.runs + 1)
            case "tool_call_failed":
                self._set(name, last_error=event.error.partition(":")[0])
            case "completed" | "rejected" | "cancelled" | "superseded" | "skipped":
                self._set(name, status=event.type, last_output=event.output)
            case "checkpoint":
                self._set(name, status=event.status)
            case _:
                pass

    def _began(self, event: Any) -> None:
        if event.path == "":
            self.runs += 1
            self._at, self._named = {}, {}
        name = self._named.get(event.path, event.agent)
        self._at[event.path] = name
        begun = {"last_input": event.input, "last_output": None, "last_error": None, "status": "running"}
        self._set(name, **begun, runs=self._of(name).runs + 1)

    def _of(self, name: str) -> MemberState:
        return self.members.get(name, MemberState())

    def _set(self, name: str, **facts: Any) -> None:
        if name:
            self.members[name] = replace(self._of(name), **facts)


def told_of(lineage: Lineage) -> _Told:
    """What happened in a thread, up to the head of this branch."""
    told = _Told()
    for event in _events(lineage):
        told.hear(event)
    return told


def _events(lineage: Lineage) -> Iterator[Event]:
    reader, rows = Reader(lineage.branch.id), rows_of(lineage.entries)
    for entry in lineage.entries:
        if entry.checkpoint_id is None:
            yield from reader.outcome(entry.seq, entry.path, outcome_from(entry.body))
        else:
            yield from reader.checkpoint(entry.seq, next(rows))


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
