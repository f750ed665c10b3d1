"""Where a graph stands: what it stopped before and after, what runs again, what a human is asked, at every depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from phronomy import _rules
from phronomy.approvals import PendingApproval, Why
from phronomy.checkpoint import Checkpoint
from phronomy.errors import CheckpointError
from phronomy.graph._node import Inside
from phronomy.graph._spec import GraphSpec
from phronomy.graph._waves import AFTER, HALT, channels_of
from phronomy.types import Call, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class StopItem:
    """One thing that a human is asked: `path` are the nodes that lead to it, outermost first, its own node or tool last."""

    path: tuple[str, ...]
    pending: PendingApproval


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStop:
    """Where a run of a graph stands.

    `state` is a fresh copy. `before` are the nodes that wait to run, `after` those that are through and hold back what follows,
    `rerun` the nodes whose body runs again, from its beginning, with what each is given: those that ask something, that
    failed, or whose outcome nobody knows. `failures` is what went wrong, by node. `nested` are the stops of graphs in nodes.
    `pending` is all that a human is asked, at any depth, in the order of the checkpoint.
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
    """Where a checkpoint of this graph stands. Raises `CheckpointError` for one that is of something else."""
    if not isinstance(checkpoint, Checkpoint) or checkpoint.kind != "graph":
        raise CheckpointError("this is no checkpoint of a graph")
    parts = {part.path: part for part in checkpoint.nested}
    return _stop(spec, checkpoint, parts)


def _stop(spec: GraphSpec, checkpoint: Checkpoint, parts: Mapping[str, Checkpoint]) -> GraphStop:
    state = _rules.current(checkpoint, spec.apply)
    open_calls = [call for call in state.calls if call.result is None]
    again = {call.name: _given(spec, state, call) for call in open_calls if _runs_again(call)}
    nested: dict[str, GraphStop] = {}
    for call in open_calls:
        node = spec.nodes.get(call.name)
        inner = parts.get(f"{state.path}/{call.id}".lstrip("/"))
        if inner is not None and isinstance(node, Inside) and isinstance(node.inner.spec, GraphSpec):
            nested[call.name] = _stop(node.inner.spec, inner, parts)
    waits = [call for call in open_calls if call.status in ("pending", "asking", "ready", "new")]
    return GraphStop(
        status=state.status,
        state=spec.schema.read(channels_of(state)),
        before=tuple(call.name for call in waits if not call.name.startswith(AFTER) and call.name not in again),
        after=tuple(
            call.name.removeprefix(AFTER) for call in waits if call.name.startswith(AFTER) and call.name != HALT
        ),
        rerun=again,
        failures={
            call.name: call.reason or "" for call in open_calls if call.status == "failed" or call.why == "failed"
        },
        nested=nested,
        pending=tuple(_items(state, parts, ())),
    )


def marks_of(stop: GraphStop) -> dict[str, str]:
    """What a drawing of the graph says of its nodes, where the run stands so."""
    marks = dict.fromkeys(stop.nested, "stopped inside")
    for item in stop.pending:
        node = item.path[0]
        marks.setdefault(node, _MARKS[item.pending.why] if len(item.path) == 1 else "stopped inside")
    marks |= dict.fromkeys(stop.after, "stopped after") | dict.fromkeys(stop.failures, "failed")
    marks.pop("operator", None)
    return marks


_MARKS: Final[Mapping[Why, str]] = {
    "approval": "waits for approval",
    "breakpoint": "stopped before",
    "question": "asks",
    "outcome_unknown": "outcome unknown",
    "failed": "failed",
}


def _runs_again(call: Call) -> bool:
    if call.name.startswith(AFTER) or call.status == "started":
        return False
    asks = any(item.why == "question" for item in call.waiting)
    return (
        asks
        or call.status == "failed"
        or call.why in ("outcome_unknown", "failed")
        or (call.status == "ready" and (call.attempt > 0 or call.reason is not None))
    )


def _given(spec: GraphSpec, state: Checkpoint, call: Call) -> Any:
    args = call.args or {}
    if "arg" in args:
        return args["arg"]
    return spec.schema.read(spec.shown_in(args, state))


def _items(state: Checkpoint, parts: Mapping[str, Checkpoint], place: tuple[str, ...]) -> Iterator[StopItem]:
    known = {item.id: item for item in state.pending}
    for call in state.calls:
        name = "operator" if call.name == HALT else call.name.removeprefix(AFTER)
        if call.status == "pending" and call.pending_id in known:
            yield StopItem(path=(*place, name), pending=known[call.pending_id])
        inner = parts.get(f"{state.path}/{call.id}".lstrip("/"))
        inside = {item.pending.id: item for item in _items(inner, parts, (*place, name))} if inner is not None else {}
        for item in call.waiting:
            yield inside.get(item.id) or StopItem(path=(*place, name), pending=item)
