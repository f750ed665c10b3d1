"""Views of runs: documents for machines, and prints on the screen, with secrets masked in both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from phronomy.approvals.answers import answers_to
from phronomy.cli.apps import Found, how_decided
from phronomy.cli.graphs import channels, heading, nodes, place_of
from phronomy.cli.screen import Screen
from phronomy.cli.votes import approvers_view, rows_of, told, vote_view
from phronomy.cli.words import by_whom, time_of
from phronomy.foundation.durations import ago
from phronomy.foundation.quoting import HIDDEN
from phronomy.observability.masking import Masking
from phronomy.records.audit import AuditRecord
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.records.diff import CheckpointDiff
from phronomy.records.messages import Message, told_text
from phronomy.runs.runs import Runs
from phronomy.stores.base import Store
from phronomy.stores.derived.listing import CheckpointInfo, Waiting
from phronomy.stores.rows import Branch
from phronomy.tools.tool import Tool

TAIL: Final = 6
"""Messages of a conversation that are shown."""
LONGEST: Final = 2_000
"""Characters that are shown of one message. What is to be approved can always be read whole."""


class Mask(Masking):
    """Hides what the command line may not show: nothing with `reveal`. Without the app it knows no tool."""

    def __init__(self, agent: Runs[Any, object] | None, *, reveal: bool) -> None:
        super().__init__(agent.spec if agent is not None else None)
        self._reveal = reveal
        self._unknown = "without --app" if agent is None else "with tools other than the app's"
        self.what = "node" if agent is not None and agent.spec.flow is not None else "tool"

    def state(self, checkpoint: Checkpoint) -> dict[str, Any] | None:
        """The state of a run of a graph as it may be seen: hidden, unless the app is that graph. None: it has none."""
        if checkpoint.kind != "graph":
            return None
        found = channels(checkpoint)
        return found if self._reveal or self.is_of(checkpoint) else dict.fromkeys(found, HIDDEN)

    def why(self, item: PendingApproval) -> str:
        """Why arguments of it are masked, and what to do about it."""
        known = self.tool(item) is not None
        return (
            "--reveal shows what is masked"
            if known
            else (f"{self._unknown} it is not known which arguments are secret, so all are masked; --reveal shows them")
        )

    def masked(self, args: Mapping[str, object], tool: Tool | None) -> set[str]:
        return set() if self._reveal else super().masked(args, tool)

    def is_open(self, tool: Tool | None) -> bool:
        return self._reveal or super().is_open(tool)


# For machines


def pending_view(item: PendingApproval, where: Waiting | Checkpoint, mask: Mask, now: float) -> dict[str, object]:
    """A pending approval. `masked` names the arguments whose values are hidden."""
    checkpoint_id, agent = (
        (where.id, where.agent.name) if isinstance(where, Checkpoint) else (where.checkpoint_id, where.agent)
    )
    return {
        "pending_id": item.id,
        "checkpoint_id": checkpoint_id,
        "run_id": where.run_id,
        "branch_id": where.branch_id,
        "thread_id": where.thread_id,
        "agent": agent,
        "path": item.path,
        "tool_name": item.tool_name,
        "call_id": item.call_id,
        "args": mask.asked(item),
        "masked": sorted(mask.masked_in(item)),
        "digest": item.digest,
        "why": item.why,
        "point": item.point,
        "breakpoint": item.label,
        "reason": item.reason,
        "requested_at": moment(item.requested_at),
        "expires_at": moment(item.expires_at) if item.expires_at is not None else None,
        "on_expiry": item.on_expiry,
        "risk": item.tool.risk,
        "endpoint": item.tool.endpoint,
        "external": item.external,
        "title": item.title,
        "context": item.context,
        "answers": list(answers_to(item)),
        "requester": item.requester.id if item.requester is not None else None,
        "approvers": approvers_view(item, now),
        "votes": [vote_view(vote) for vote in item.votes],
        "policy": item.policy,
        "trigger": item.trigger.model_dump(mode="json") if item.trigger is not None else None,
        "conversation": [
            {"role": each.role, "text": each.text, "tools": list(each.tools)} for each in item.conversation
        ],
    }


def decision_view(decision: Decision) -> dict[str, object]:
    """A decision: who took it, when and how. What it put in is not in here."""
    return {
        "pending_id": decision.pending_id,
        "kind": decision.kind,
        "by": decision.by.id if decision.by is not None else None,
        "behalf_of": decision.behalf_of.id if decision.behalf_of is not None else None,
        "channel": decision.channel,
        "at": moment(decision.at),
        "reason": decision.reason,
        "then": decision.then,
        "edited": decision.args is not None,
        "digest": decision.digest,
        "votes": [vote_view(vote) for vote in decision.votes],
        "policy": decision.policy,
    }


def message_view(message: Message, names: Mapping[str, str], mask: Mask) -> dict[str, Any]:
    """A message. `names` are those of the tools, by call id."""
    calls = [
        {"id": each.id, "name": each.name, "arguments": mask.arguments(each.name, each.arguments)}
        for each in message.tool_calls
    ]
    text = message.text if message.role == "assistant" else told_text(message.content)
    if message.tool_call_id is not None:
        text = mask.result(names.get(message.tool_call_id, ""), text)
    return {
        "role": message.role,
        "text": text,
        "tool_calls": calls,
        "tool_call_id": message.tool_call_id,
        "settlement": message.settlement,
    }


def run_view(meant: Found, mask: Mask, now: float, before: Sequence[Found] = ()) -> dict[str, object]:
    """A run at a checkpoint, with what waits there, what was decided there `before`, and the tail of its conversation."""
    checkpoint = meant.checkpoint
    names = names_of(checkpoint)
    state = mask.state(checkpoint)
    decided = {} if meant.decided is None else {"decided": _record_view(meant.decided)}
    records = [_record_view(each.decided) for each in before if each.decided is not None]
    of_graph = {"state": state, "nodes": [{"name": name, "status": how} for name, how in nodes(checkpoint)]}
    return {
        **({} if state is None else of_graph),
        "run_id": checkpoint.run_id,
        "branch_id": meant.branch.id,
        "thread_id": checkpoint.thread_id,
        "agent": checkpoint.agent.name,
        "checkpoint_id": checkpoint.id,
        "step": checkpoint.step,
        "status": meant.branch.status if meant.branch.head == checkpoint.id else checkpoint.status,
        "created_at": moment(checkpoint.created_at),
        "pending": [pending_view(item, checkpoint, mask, now) for item in meant.pending],
        "decisions": [decision_view(each) for each in checkpoint.decisions],
        "messages": [message_view(each, names, mask) for each in checkpoint.messages[-TAIL:]],
        "earlier_messages": max(len(checkpoint.messages) - TAIL, 0),
        **(
            {"added": [message_view(each.message, names, mask) for each in checkpoint.added]}
            if checkpoint.added
            else {}
        ),
        **decided,
        **({"decided_before": records} if records else {}),
    }


def _record_view(record: AuditRecord) -> dict[str, object]:
    return record.model_dump(mode="json", exclude={"version"})


def checkpoint_view(checkpoint: Checkpoint) -> dict[str, object]:
    """A checkpoint of a history."""
    return {
        "checkpoint_id": checkpoint.id,
        "parent_id": checkpoint.parent_id,
        "run_id": checkpoint.run_id,
        "branch_id": checkpoint.branch_id,
        "step": checkpoint.step,
        "status": checkpoint.status,
        "label": checkpoint.label,
        "created_at": moment(checkpoint.created_at),
        "messages": len(checkpoint.messages),
        "pending_ids": [item.id for item in checkpoint.pending],
    }


def info_view(info: CheckpointInfo) -> dict[str, object]:
    """A checkpoint of a list."""
    return {
        "checkpoint_id": info.id,
        "run_id": info.run_id,
        "branch_id": info.branch_id,
        "thread_id": info.thread_id,
        "agent": info.agent,
        "label": info.label,
        "created_at": moment(info.created_at),
    }


def diff_view(found: CheckpointDiff) -> dict[str, object]:
    """A difference between two checkpoints, without what was said."""
    numbers = {"before_id", "after_id", "differs", "status", "calls", "pending", "usage", "steps", "turns", "elapsed"}
    return {
        **found.model_dump(mode="json", include=numbers),
        "messages": [{"change": each.change, "at": each.at} for each in found.messages],
        "votes": [
            {"change": each.change, "pending_id": each.pending_id, **vote_view(each.vote)} for each in found.votes
        ],
        "decisions": [{"change": each.change, **decision_view(each.decision)} for each in found.decisions],
        "nested": [{"change": each.change, "path": each.path} for each in found.nested],
    }


def told_about(item: PendingApproval | None, args: str, words: str | None, waits: int = 1) -> str:
    """The subject of a run, in a cell: the waiting request, with its arguments in brief, and the first words of the user in quotes."""
    title = (item.title or item.tool_name) if item is not None else None
    more = f" (and {waits - 1} more)" if waits > 1 else ""
    said = f'"{words}"' if words else None
    return ": ".join(filter(None, (title and f"{title}{more}", args))) or said or "-"


def branch_view(branch: Branch) -> dict[str, object]:
    """Gives a branch and its status as a document."""
    return {
        "run_id": branch.run_id,
        "branch_id": branch.id,
        "thread_id": branch.thread_id,
        "agent": branch.agent,
        "checkpoint_id": branch.head,
        "status": branch.status,
    }


def moment(at: datetime) -> str:
    """A time as ISO 8601, in UTC."""
    return at.astimezone(UTC).isoformat()


def names_of(checkpoint: Checkpoint) -> dict[str, str]:
    """The names of the tools that were called, by call id."""
    return {call.id: call.name for message in checkpoint.messages for call in message.tool_calls}


# For people


def show_request(screen: Screen, item: PendingApproval, checkpoint: Checkpoint, mask: Mask, now: float) -> None:
    """Prints a pending approval: the tool first, then every argument as the tool would get it, then who asks and since when."""
    _show_call(screen, heading(item), item, mask)
    for label, text in (("title", item.title), ("context", item.context)):
        if text is not None:
            screen.row(label, text)
    if item.why not in ("approval", "question", "breakpoint") or (item.reason and item.why != "approval"):
        screen.row("why", item.reason or item.why, style="yellow")
    elif item.reason:
        screen.row("why", item.reason)
    nested = f", in {place_of(checkpoint, item.path)}" if item.path else ""
    inner = f" ({item.agent})" if item.agent and nested and not nested.endswith(f" {item.agent}") else ""
    screen.place("asked by", f"{checkpoint.kind} {checkpoint.speaker}{nested}{inner}")
    if item.requester is not None:
        screen.place("requester", item.requester.name or item.requester.id)
    for label, text in rows_of(item, now):
        screen.row(label, text)
    if item.answers:
        screen.place("answers", ", ".join(item.answers))
    screen.place("since", f"{time_of(item.requested_at)} ({ago(now - item.requested_at.timestamp())})")
    if item.expires_at is not None:
        lapsed = item.has_lapsed(datetime.fromtimestamp(now, UTC))
        late = "; it has lapsed, and a decision comes too late" if lapsed else ""
        screen.place("expires", f"{time_of(item.expires_at)}{late}")
    if item.tool.risk is not None:
        screen.place("risk", item.tool.risk)
    if item.tool.endpoint is not None:
        screen.place("runs at", f"{item.tool.endpoint} ({item.tool.source})")
    screen.place("pending", item.id)
    for label, value in (
        ("waits at", checkpoint.id),
        ("run", checkpoint.run_id),
        ("thread", checkpoint.thread_id),
        ("digest", item.digest),
    ):
        if value is not None:
            screen.aside(label, value)


def _show_call(screen: Screen, head: str, item: PendingApproval, mask: Mask) -> None:
    screen.say(head, style="bold yellow")
    masked = mask.masked_in(item)
    show_args(screen, item.args, masked)
    if masked:
        screen.say(f"({mask.why(item)})")


def show_args(
    screen: Screen, args: Mapping[str, object], masked: set[str], was: Mapping[str, object] | None = None
) -> None:
    """Arguments, each with its type; beside those that differ, what they were."""
    columns = max((len(name) for name in args), default=0)
    for name, value in args.items():
        note = "" if was is None or (name in was and was[name] == value) else "changed"
        if name in masked:
            screen.hidden(name, columns=columns, note=note)
            continue
        if note and was is not None and name in was:
            note = f"changed; the model asked for {json.dumps(was[name], ensure_ascii=False)}"
        screen.value(name, value, columns=columns, note=note)
    if not args:
        screen.say("  (no arguments)")


def show_tail(screen: Screen, checkpoint: Checkpoint, mask: Mask) -> None:
    """The last messages of the conversation."""
    earlier = len(checkpoint.messages) - TAIL
    if earlier > 0:
        screen.row("", f"({earlier} earlier messages)")
    names = names_of(checkpoint)
    for message in checkpoint.messages[-TAIL:]:
        show_message(screen, message, names, mask)
    for each in checkpoint.added:
        by = f", from {each.by.name or each.by.id}" if each.by is not None else ""
        screen.row("to come", f"user{by}: {cut(told_text(each.message.content))}", style="cyan")


def show_message(screen: Screen, message: Message, names: Mapping[str, str], mask: Mask) -> None:
    """One message, and the calls in it."""
    view = message_view(message, names, mask)
    who = {"user": "user", "assistant": "model", "tool": "tool"}[message.role]
    if view["text"] or not message.tool_calls:
        screen.row(who, cut(view["text"]), style="cyan")
    for line in calls_in(message, mask):
        screen.row(who, line, style="cyan")


def calls_in(message: Message, mask: Mask) -> Iterator[str]:
    """Gives the tool calls of a message."""
    for each in message.tool_calls:
        yield cut(f"calls {each.name} {mask.arguments(each.name, each.arguments)}")


def cut(text: str, longest: int = LONGEST) -> str:
    """The text, or its beginning and how much is missing."""
    return text if len(text) <= longest else f"{text[:longest]} ... ({len(text) - longest:,} more characters)"


def show_graph(screen: Screen, checkpoint: Checkpoint, mask: Mask) -> None:
    """The state of a run of a graph, and how the nodes of its open wave stand; nothing for any other run."""
    state = mask.state(checkpoint)
    if state is None:
        return
    screen.say(f"State of graph {checkpoint.agent.name}", style="bold")
    show_args(screen, state, {name for name, value in state.items() if value == HIDDEN})
    for name, how in nodes(checkpoint):
        screen.row("node", f"{name}: {how}", style="cyan")


def show_run(screen: Screen, meant: Found, mask: Mask, store: Store, before: Sequence[Found] = ()) -> None:
    """A run at a checkpoint: what waits there, what was decided there `before`, and the tail of the conversation."""
    checkpoint = meant.checkpoint
    show_tail(screen, checkpoint, mask)
    show_graph(screen, checkpoint, mask)
    for decision in checkpoint.decisions:
        for vote in decision.votes[:-1]:
            screen.row("vote", told(vote))
        reason = f": {decision.reason}" if decision.reason else ""
        screen.row("decided", f"{decision.kind} by {by_whom(decision)}, {time_of(decision.at)}{reason}")
    screen.say()
    for each in before:
        show_decided(screen, each, mask, store)
        if each is not before[-1] or meant.pending:
            screen.say()
    if meant.decided is not None:
        show_decided(screen, meant, mask, store)
    elif not (meant.pending or before):
        screen.say(f"Nothing waits here: the run is {run_view(meant, mask, store.clock())['status']}.", style="bold")
        screen.place("run", checkpoint.run_id)
        screen.place("waits at" if checkpoint.ended is None else "ended at", checkpoint.id)
    for item in meant.pending:
        show_request(screen, item, checkpoint, mask, store.clock())
        if item is not meant.pending[-1]:
            screen.say()


def show_decided(screen: Screen, meant: Found, mask: Mask, store: Store) -> None:
    """Prints the decision on the pending approval of an id: what was asked, who answered, and where."""
    record, item = meant.decided, meant.asked
    assert record is not None
    if item is not None:
        _show_call(screen, f"Asked: {item.tool_name}", item, mask)
    screen.say(f"It {how_decided(meant, store)}.", style="bold")
    if record.reason is not None:
        screen.row("reason", record.reason)
    for label, value in (
        ("pending", record.pending_id),
        ("waited at", meant.checkpoint.id if item in meant.checkpoint.pending else None),
        ("run", record.run_id),
        ("thread", record.thread_id),
        ("digest", record.digest),
    ):
        if value is not None:
            screen.place(label, value)
