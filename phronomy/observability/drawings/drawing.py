"""Drawings: the version tree of a run, and the shape of a graph, as Mermaid text or as SVG.

Nothing that was said is in a drawing: ids, names of tools and nodes, labels, and who decided what. Whatever it says is text there,
and can add nothing to the drawing; all of it is ASCII.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from phronomy.errors import ConfigurationError
from phronomy.foundation.quoting import quoted_name
from phronomy.observability.drawings.picture import Arrow, Box, Kind, Picture, mermaid
from phronomy.observability.drawings.svg import svg
from phronomy.observability.votes import Votes
from phronomy.records.decisions import SAID, Decision, PendingApproval, Why
from phronomy.records.principals import Principal
from phronomy.stores.derived.changes import not_found
from phronomy.stores.derived.kept_texts import kept_by
from phronomy.stores.log.log import replay

if TYPE_CHECKING:
    from phronomy.records.approvers import Vote
    from phronomy.records.calls import Call
    from phronomy.records.checkpoint import Checkpoint
    from phronomy.stores.base import Store
    from phronomy.stores.rows import Branch


Edge: TypeAlias = tuple[str, str, str | None, bool]
"""An edge of a graph: its source node, its target node, its label, and whether it depends on a condition."""

TERMINALS: Final[Mapping[str, str]] = {"__start__": "start", "__end__": "end"}
"""What stands in the boxes of a graph's beginning and end, which are no nodes."""

SEVERAL: Final = 4
"""Names in a row that are shown."""


def tree_mermaid(store: Store, run_id: str) -> str:
    """Draw the checkpoints of a run, with its forks, as a Mermaid flowchart.

    Raises `CheckpointNotFound` if the store does not know the run.
    """
    return mermaid(_tree(store, run_id))


def tree_svg(store: Store, run_id: str) -> str:
    """Draw the checkpoints of a run, with its forks, as SVG: a whole document, or an element of a page.

    Raises `CheckpointNotFound` if the store does not know the run.
    """
    return svg(_tree(store, run_id))


def flow_mermaid(
    nodes: Iterable[str],
    edges: Iterable[Edge],
    *,
    marked: Mapping[str, str] | None = None,
    noted: Mapping[str, str] | None = None,
) -> str:
    """Draw nodes and their edges as a Mermaid flowchart.

    An edge is `(source, target, label or None, conditional)`; conditional edges are dashed. `__start__` and `__end__`
    need not be among the nodes. `marked` has texts for nodes by name, such as "stopped before" or "failed", and `noted`
    texts about nodes at which no run has stopped, such as "needs approval". Raises `ConfigurationError` if an edge, a
    mark or a note names an unknown node.
    """
    return mermaid(_flow(nodes, edges, marked or {}, noted or {}))


def flow_svg(
    nodes: Iterable[str],
    edges: Iterable[Edge],
    *,
    marked: Mapping[str, str] | None = None,
    noted: Mapping[str, str] | None = None,
) -> str:
    """Draw nodes and their edges as SVG: a whole document, or an element of a page.

    The arguments are those of `flow_mermaid`.
    """
    return svg(_flow(nodes, edges, marked or {}, noted or {}))


def _flow(nodes: Iterable[str], edges: Iterable[Edge], marked: Mapping[str, str], noted: Mapping[str, str]) -> Picture:
    merged: dict[tuple[str, str, bool], list[str]] = {}
    edges = list(edges)
    if not all(isinstance(edge, tuple) and len(edge) == 4 for edge in edges):
        raise ConfigurationError("an edge is (source, target, label or None, conditional)")
    for source, target, label, conditional in edges:
        merged.setdefault((source, target, conditional), []).extend([label] if label else [])
    ends = {name for source, target, _ in merged for name in (source, target)}
    start, end = ([name] if name in ends else [] for name in TERMINALS)
    names = list(dict.fromkeys([*start, *nodes, *end]))
    if unknown := [name for name in (*ends, *marked, *noted) if name not in names]:
        raise ConfigurationError(f"there is no node {quoted_name(min(unknown))} to draw")
    places = {name: place for place, name in enumerate(names)}
    arrows = [
        Arrow(source=places[source], target=places[target], label=", ".join(labels), dashed=conditional)
        for (source, target, conditional), labels in merged.items()
    ]
    boxes = tuple(_node(name, marked.get(name), noted.get(name)) for name in names)
    return Picture(title="Graph", boxes=boxes, arrows=tuple(arrows))


def _node(name: str, mark: str | None, note: str | None) -> Box:
    kind: Kind = "over" if name in TERMINALS else "step"
    if mark is not None:
        kind = "failed" if mark.startswith("failed") else "stop"
    said = mark or note
    lines = (TERMINALS.get(name, name), *([said] if said else []))
    return Box(lines=lines, kind=kind, here=mark is not None)


# The tree of a run


def _tree(store: Store, run_id: str) -> Picture:
    known: dict[str, Checkpoint] = {}
    heads: dict[str | None, Branch] = {}
    for branch in store.branches(run_id=run_id):
        heads[branch.head] = branch
        for checkpoint in replay(store.lineage(branch_id=branch.id).entries, kept_by(store), branch_id=branch.id):
            if checkpoint.run_id == run_id:  # what a thread's run goes on from is not of it
                known.setdefault(checkpoint.id, checkpoint)
    if not known:
        raise not_found("run", run_id)
    places = {id: place for place, id in enumerate(known)}
    parents = {id: known.get(checkpoint.parent_id or "") for id, checkpoint in known.items()}
    return Picture(
        title=f"Run {run_id}",
        boxes=tuple(checkpoint_box(each, parents[each.id], heads.get(each.id)) for each in known.values()),
        arrows=tuple(
            Arrow(source=places[parent.id], target=places[id], dashed=parent.branch_id != known[id].branch_id)
            for id, parent in parents.items()
            if parent is not None
        ),
    )


def checkpoint_box(now: Checkpoint, parent: Checkpoint | None, head_of: Branch | None) -> Box:
    """Make the box of a checkpoint: its step, what happened since its `parent`, what is pending, its label and its id.

    `head_of` is the branch whose last checkpoint it is; None: it is no last one.
    """
    kind, happened = _happened(now, parent)
    failed = [call.name for call in now.calls if call.status == "failed"]
    if (failed and kind == "step") or (head_of is not None and head_of.status == "failed"):
        kind = "failed"
    votes = _votes(now, parent)
    lines = [
        f"{now.step}: {happened}",
        *votes,
        *_waiting(now.pending),
        *([f"failed: {_names(failed)}"] if failed else []),
    ]
    if now.label is not None:
        lines.append(f"label: {now.label}")
    if head_of is not None and now.ended is None:  # an end says so itself
        lines.append(f"now {head_of.status}")
    return Box(lines=(*lines, _short(now.id)), kind=kind, here=head_of is not None, title=", ".join([*lines, now.id]))


def _happened(now: Checkpoint, parent: Checkpoint | None) -> tuple[Kind, str]:
    """Describes the step that led to a checkpoint, and names its kind."""
    kind: Kind = "over" if now.ended is not None else "stop" if now.pending else "step"
    if parent is None:
        if now.step == 0:
            return kind, "input"
        return kind, f"goes on from {_short(now.parent_id)}" if now.parent_id else "taken in"
    if parent.branch_id != now.branch_id:
        return kind, "fork"
    told = _decided(now.decisions[len(parent.decisions) :], parent)
    if told and now.ended is None:
        kind = "partial" if now.pending else "decision"
    if now.turn > parent.turn:
        told.append(_turn(now))
    elif not told and (settled := _settled(now, parent)):
        told.append(f"settled: {_names(settled)}")
    if now.ended is not None:
        by = f" by {_who(now.ending.by)}" if now.ending is not None and now.ending.by is not None else ""
        told.append(f"{now.ended}{by}")
    return kind, ", ".join(told) or "went on"


def _settled(now: Checkpoint, parent: Checkpoint) -> list[str]:
    """The names of the calls that were open, and are not any more."""
    left = {call.id for call in now.calls if call.result is None}
    return [
        _name(call.name, parent)
        for call in parent.calls
        if call.result is None and call.id not in left and not _is_gate(call)
    ]


def _turn(now: Checkpoint) -> str:
    names = _names(_name(call.name, now) for call in now.calls if not _is_gate(call))
    if now.kind == "graph":
        return f"next: {names}" if names else "no node left"
    return f"model asks for {names}" if names else "model replied"


def _is_gate(call: Call) -> bool:
    """Whether the call is an interrupt point, which does nothing but stop the run."""
    return call.gate or call.name.startswith(f"{_AFTER}:")


def _name(name: str, state: Checkpoint) -> str:
    """The name of a tool or node; one that the model made up is text of the model's."""
    return name if state.has_tool(name) else "no known tool"


def _votes(now: Checkpoint, parent: Checkpoint | None) -> list[str]:
    """A line for each vote since the checkpoint before, and after the last checkpoint."""
    votes = Votes(parent)
    cast = [*votes.sealed(now), *(each for outcome in now.journal for each in votes.journaled(outcome))]
    return [f"vote: {each.vote.kind} {each.item.tool_name} by {_voter(each.vote)}" for each in cast]


def _voter(vote: Vote) -> str:
    return _who(vote.by) if vote.behalf_of is None else f"{_who(vote.by)} for {_who(vote.behalf_of)}"


def _decided(decisions: Sequence[Decision], parent: Checkpoint) -> list[str]:
    names = {item.id: _stands(item)[1] for item in parent.pending}
    told: list[str] = []
    edited: Decision | None = None
    for each in decisions:
        # An edit between two steps is of the state, and its id is that of a checkpoint.
        name = names.get(each.pending_id, "state" if each.kind == "edit" else _short(each.pending_id))
        what, by = f"{name} {SAID[each.kind]}", f" by {_who(each.by)}" if each.by else ""
        if edited is not None and edited.by == each.by:
            told[-1] = f"state edited and {what}{by}"
        else:
            told.append(f"{what}{by}")
        edited = each if name == "state" and each.kind == "edit" else None
    return told


_WAITS: Final[Mapping[Why, str]] = {
    "approval": "waits for",
    "breakpoint": "stopped before",
    "question": "asked by",
    "outcome_unknown": "outcome unknown:",
    "failed": "failed:",
}


def _waiting(pending: Iterable[PendingApproval]) -> list[str]:
    """A line for each way to wait."""
    names: dict[str, list[str]] = {}
    for item in pending:
        how, name = _stands(item)
        names.setdefault(how, []).append(name + (f" in {item.path}" if item.path else ""))
    return [f"{how} {_names(those)}" for how, those in names.items()]


def _stands(item: PendingApproval) -> tuple[str, str]:
    """Describes the wait of a run: for what, and before or after which node."""
    if item.tool.source == _AFTER:
        return ("stopped after" if item.call_id.startswith(f"{_AFTER}:") else "stopped by"), item.tool_name
    if item.tool.source != "breakpoint":
        return _WAITS[item.why], item.tool_name
    behind = item.args.get(_BEHIND.get(item.tool_name, ""))
    return ("stopped after", behind) if isinstance(behind, str) else ("stopped at", item.tool_name)


_AFTER: Final = "after"
"""The source of what stands behind a node, and the beginning of its name."""

_BEHIND: Final[Mapping[str, str]] = {"post_node": "node", "post_tool_call": "tool"}
"""What stands at a breakpoint behind something, and where its name is."""


def _names(names: Iterable[str]) -> str:
    counts = Counter(names)
    told = [name if count == 1 else f"{count} x {name}" for name, count in counts.items()]
    return ", ".join(told if len(told) <= SEVERAL else [*told[: SEVERAL - 1], f"{len(told) - SEVERAL + 1} more"])


def _who(by: Principal) -> str:
    # A name is one's own choice, so that it may be that of somebody else.
    return f"{by.name} ({by.id})" if by.name and by.name != by.id else by.id


def _short(id: str) -> str:
    """The kind of an id and the first of what tells it from others: enough for people within one run."""
    return id[: id.find("_") + 9]
