"""The stops of a graph, read off a checkpoint: before and after which nodes, what runs again, what is asked, at every depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from phronomy.errors import CheckpointError
from phronomy.foundation.dataclasses import dataclass
from phronomy.graph.flow.node import Inside
from phronomy.graph.flow.spec import GraphSpec
from phronomy.graph.flow.waves import AFTER, HALT, channels_of, names_of
from phronomy.graph.signals import END
from phronomy.records.calls import Call, Status, path_inside
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import PendingApproval, Why
from phronomy.rules import transitions
from phronomy.stops.interrupt_points import InterruptPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class StopItem:
    """A request in a stopped graph. `path` are the nodes that lead to it, from the outermost to its own node or tool.

    If a run stopped at a breakpoint of its own, the last name is that of the point, such as `post_run`.
    """

    path: tuple[str, ...]
    pending: PendingApproval


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStop:
    """The stop of a run of a graph.

    `state` is a fresh copy. `before` are the nodes that wait to run. `after` are the finished nodes after which the run
    stopped; if somebody paused the run, these are the finished nodes of the wave, whose updates are merged when the run
    goes on. `rerun` has the nodes whose bodies run again from the beginning, each with its input: nodes that ask a
    question, have failed, or whose outcome is unknown. `failures` has the reasons by node. `nested` has the stops of
    graphs in nodes; such a graph continues from its own stop, so it is not in `rerun`. `pending` are all requests, at
    any depth, in the order of the checkpoint. If several `Send`s run one node, its runs are named `node[0]`, `node[1]`
    and so on.
    """

    status: Status
    state: Any = field(repr=False)
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    rerun: Mapping[str, Any] = field(default_factory=dict, repr=False)
    failures: Mapping[str, str] = field(default_factory=dict)
    nested: Mapping[str, GraphStop] = field(default_factory=dict)
    pending: tuple[StopItem, ...] = ()


def stop_of(spec: GraphSpec, checkpoint: Checkpoint) -> GraphStop:
    """Reads the stop off a checkpoint of this graph. Raises `CheckpointError` for one that is of something else."""
    if not isinstance(checkpoint, Checkpoint) or checkpoint.kind != "graph":
        raise CheckpointError("this is no checkpoint of a graph")
    parts = {part.path: part for part in checkpoint.nested}
    return _stop(spec, checkpoint, parts)


def _stop(spec: GraphSpec, checkpoint: Checkpoint, parts: Mapping[str, Checkpoint]) -> GraphStop:
    state = transitions.current(checkpoint, spec.apply)
    names = names_of(state)
    open_calls = [call for call in state.calls if call.result is None]
    nodes = [call for call in open_calls if not _is_interrupt_point(call)]
    again = {names[call.id]: _input_of(spec, state, call) for call in nodes if _runs_again(spec, state, call)}
    nested: dict[str, GraphStop] = {}
    for call in nodes:
        node = spec.nodes.get(call.name)
        inner = parts.get(path_inside(state.path, call.id))
        if inner is not None and isinstance(node, Inside) and isinstance(node.inner.spec, GraphSpec):
            edited = node.inner.spec.edited_by(state.decisions, inner)
            nested[names[call.id]] = _stop(node.inner.spec, edited, parts)
    waits = [call for call in open_calls if call.status in ("pending", "asking", "answered", "ready", "new")]
    behind = [names[call.id] for call in waits if not _is_interrupt_point(call)]
    return GraphStop(
        status=state.status,
        state=spec.schema.read(channels_of(state)),
        before=tuple(name for name in behind if name not in again and name not in nested),
        after=tuple(dict.fromkeys(_after(spec, state, names, waits))),
        rerun=again,
        failures={
            names[call.id]: call.reason or "" for call in nodes if call.status == "failed" or call.why == "failed"
        },
        nested=nested,
        pending=tuple(_items(state, parts, ())),
    )


def _is_interrupt_point(call: Call) -> bool:
    """Whether the call is an interrupt point, and no node."""
    return call.gate or call.name.startswith(AFTER)


def _after(spec: GraphSpec, state: Checkpoint, names: Mapping[str, str], waits: Sequence[Call]) -> Iterator[str]:
    for call in waits:
        if call.name == HALT:
            done = [each for each in state.calls if each.result is not None and not _is_interrupt_point(each)]
            yield from (names[each.id] for each in done)
        elif call.gate:
            yield from filter(None, [spec.node_of(call)])
        elif call.name.startswith(AFTER):
            yield call.name.removeprefix(AFTER)


def marks_of(stop: GraphStop) -> dict[str, str]:
    """Gives the marks of the nodes in a drawing of the graph at this stop."""
    marks = dict.fromkeys(map(_node, stop.nested), "stopped inside")
    for item in stop.pending:
        first, *inside = item.path
        if item.pending.point == "post_run" and not inside:
            marks.setdefault(END, _MARKS["breakpoint"])
        elif inside or not _is_halt(item.pending):
            marks.setdefault(_node(first), "stopped inside" if inside else _MARKS[item.pending.why])
    return (
        marks
        | dict.fromkeys(map(_node, stop.after), "stopped after")
        | dict.fromkeys(map(_node, stop.failures), "failed")
    )


def _node(name: str) -> str:
    return name.partition("[")[0]


def _is_halt(item: PendingApproval) -> bool:
    """Whether somebody stopped the run from outside: then no node is the one that waits."""
    return item.tool.source == InterruptPoint.source and not item.call_id.startswith(AFTER)


_MARKS: Final[Mapping[Why, str]] = {
    "approval": "waits for approval",
    "breakpoint": "stopped before",
    "question": "asks",
    "outcome_unknown": "outcome unknown",
    "failed": "failed",
}


def _runs_again(spec: GraphSpec, state: Checkpoint, call: Call) -> bool:
    if call.status == "started" or isinstance(spec.nodes.get(call.name), Inside):
        return False
    asks = any(item.why == "question" and item.path == state.path for item in call.waiting)
    return (
        asks
        or call.status == "failed"
        or call.why in ("outcome_unknown", "failed")
        or (call.status == "ready" and (call.stopped or call.attempt > 0 or call.reason is not None))
    )


def _input_of(spec: GraphSpec, state: Checkpoint, call: Call) -> object:
    args = call.args or {}
    if "arg" in args:
        return args["arg"]
    return spec.schema.read(spec.shown_in(args, state))


def _items(state: Checkpoint, parts: Mapping[str, Checkpoint], place: tuple[str, ...]) -> Iterator[StopItem]:
    known = {item.id: item for item in state.pending}
    names = names_of(state)
    for call in state.calls:
        name = "operator" if call.name == HALT else names[call.id].removeprefix(AFTER)
        if call.status == "pending" and call.pending_id in known:
            yield StopItem(path=(*place, name), pending=known[call.pending_id])
        inner = parts.get(path_inside(state.path, call.id))
        inside = {item.pending.id: item for item in _items(inner, parts, (*place, name))} if inner is not None else {}
        for item in call.waiting:
            yield inside.get(item.id) or StopItem(path=(*place, name), pending=item)
