"""From one wave of nodes to the next: their updates reduced, what follows found, the next calls made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from phronomy.foundation.json_text import JsonText, canonical
from phronomy.foundation.quoting import quoted_name
from phronomy.graph.flow.inside import update_from
from phronomy.graph.flow.node import Inside
from phronomy.graph.flow.routes import Going, make_failure
from phronomy.graph.signals import END, START, Send
from phronomy.graph.state.joins import arrivals_in, channels_in, state_with
from phronomy.records.calls import NEW_CALL, Advanced, Call
from phronomy.records.chain import rejections_of
from phronomy.records.checkpoint import Checkpoint
from phronomy.stops import interrupt_points

if TYPE_CHECKING:
    from phronomy.graph.flow.spec import GraphSpec

AFTER: Final = f"{interrupt_points.AFTER}:"
"""How the name of an interrupt point begins, before that of the node which it stands after."""

_ADVANCED: Final[Advanced] = cast("Any", Advanced).model_construct()
"""A step to the next wave. What is put into it are its calls, and the canonical text of its state."""

_NO_GATES: Final[Mapping[str, str | None]] = {}
_NOT_REJECTED: Final[Mapping[str, tuple[str, ...]]] = {}


HALT: Final = f"{AFTER}*"
"""The name of the gate that somebody puts into a run from outside."""


def channels_of(state: Checkpoint) -> JsonText:
    """The values of the channels, in the state of a run."""
    return channels_in(state.__dict__["state"])


def calls_of(
    spec: GraphSpec,
    turn: int,
    channels: JsonText,
    going: Going,
    gates: Mapping[str, str | None] = _NO_GATES,
    rejected: Mapping[str, tuple[str, ...]] = _NOT_REJECTED,
) -> tuple[Call, ...]:
    """The calls of a wave: the gates that it waits behind, with why a node wants it, its nodes, its single runs.

    `rejected` has what was rejected before a node, by its name.
    """
    asked: list[tuple[str, str]] = [
        (f"{AFTER}{node}", canonical({} if why is None else {"reason": why})) for node, why in gates.items()
    ]
    asked += [(node, spec.write_args(node, channels)) for node in going.nodes]
    asked += [(send.node, send.arg) for send in going.sends]
    return tuple(
        NEW_CALL.evolve(
            id=f"{turn}.{place}",
            call_id=f"{name}-{turn}.{place}",
            name=name,
            arguments=arguments,
            rejected=rejected.get(name, ()),
        )
        for place, (name, arguments) in enumerate(asked)
    )


def is_at_start(state: Checkpoint) -> bool:
    """Whether nothing has been opened yet, unless to hold the run back: a route says where to begin."""
    return state.turn == 0 and all(call.gate or call.name == HALT for call in state.calls)


def names_of(state: Checkpoint) -> dict[str, str]:
    """Gives the name of each call of a wave by its id: its node's, with a number if the node runs several times.

    What stands at a breakpoint is called as the node that it stands after, or as the point.
    """
    runs: dict[str, list[str]] = {}
    for call in state.calls:
        if not call.gate:
            runs.setdefault(call.name, []).append(call.id)
    named = {
        id: name if len(ids) == 1 else f"{name}[{place}]" for name, ids in runs.items() for place, id in enumerate(ids)
    }
    return named | {call.id: _stands_at(call) for call in state.calls if call.gate}


def _stands_at(gate: Call) -> str:
    node = (gate.args or {}).get("node")
    return node if isinstance(node, str) else gate.name


class Advance:
    """The step from a wave in which every call has settled to the next one."""

    def __init__(self, spec: GraphSpec, state: Checkpoint) -> None:
        self._spec = spec
        self._state = state
        self._nodes = [call for call in state.calls if not call.name.startswith(AFTER)]

    @property
    def acts(self) -> bool:
        """Whether code of the user's has a say in it, so that what nodes gave is to be stored first."""
        spec = self._spec
        if spec.schema.has_user_code or spec.routes.is_routed(START):
            return True
        return any(
            spec.routes.is_routed(call.name) or isinstance(spec.tools.get(call.name), Inside) for call in self._nodes
        )

    def outcome(self, at: datetime) -> Advanced:
        """The outcome. Raises `RunFailed` for what code of the user's does."""
        told = [self._read_result(call) for call in self._nodes]
        targets: list[str | Send] = []
        if is_at_start(self._state):
            targets += self._spec.routes.after(START, self._as_begun)
        for call, gave in zip(self._nodes, told, strict=True):
            if (known := self._known(call, gave)) is not None:
                targets += known
            else:
                targets += self._spec.routes.after(_source_of(call, gave), partial(self._as_left, call, gave))
        return self._advanced(told, targets, at)

    async def aoutcome(self, at: datetime) -> Advanced:
        """As `outcome`."""
        told = [self._read_result(call) for call in self._nodes]
        targets: list[str | Send] = []
        if is_at_start(self._state):
            targets += await self._spec.routes.aafter(START, self._as_begun)
        for call, gave in zip(self._nodes, told, strict=True):
            if (known := self._known(call, gave)) is not None:
                targets += known
            else:
                targets += await self._spec.routes.aafter(_source_of(call, gave), partial(self._as_left, call, gave))
        return self._advanced(told, targets, at)

    def _read_result(self, call: Call) -> dict[str, object]:
        """Reads the result of a call: its update as text, and its signal, if it gave one."""
        assert call.result is not None
        node, kind, content = self._spec.tools.get(call.name), call.result.kind, call.result.content
        if kind == "completed" and isinstance(node, Inside):
            return {"update": update_from(self._spec, node, self._state, call, content)}
        if kind == "completed":
            told: dict[str, object] = json.loads(content)
            return {**told, "update": canonical(told["update"])}
        if kind == "responded":
            return {"update": self._spec.schema.update(call.name, json.loads(content))}
        if kind in ("failed", "invalid"):
            raise make_failure(call.name, content)
        if kind == "skipped":  # somebody left it out: its edges are followed
            return {"update": canonical({})}
        return {"update": canonical({}), "kind": kind}

    def _known(self, call: Call, gave: dict[str, Any]) -> list[str | Send] | None:
        """Gives the targets after a call if they do not depend on the edges of its node, else None."""
        if gave.get("kind") is not None:
            back = self._on_rejection(call, gave)
            return [] if back is None else [back]
        if gave.get("signal") == "abort":
            return []
        if gave.get("signal") != "replan" or (to := gave["to"]) is None:
            return None
        if unknown := [node for node in to if node != END and node not in self._spec.routes.nodes]:
            raise make_failure(call.name, f"it goes on at {quoted_name(unknown[0])}, which is no node of the graph")
        return list(to)

    def _as_begun(self) -> object:
        """The state that the run begins with."""
        return self._spec.schema.read(channels_of(self._state))

    def _as_left(self, call: Call, gave: dict[str, Any]) -> object:
        """The state as the node left it, without what its siblings gave."""
        schema = self._spec.schema
        return schema.read(schema.reduce(channels_of(self._state), [(call.name, gave["update"])]))

    def _advanced(self, told: Sequence[dict[str, Any]], targets: list[str | Send], at: datetime) -> Advanced:
        spec, state = self._spec, self._state
        given = list(zip(self._nodes, told, strict=True))
        channels = spec.schema.reduce(channels_of(state), [(call.name, gave["update"]) for call, gave in given])
        through = {call.name for call, gave in given if "kind" not in gave}
        along = {  # a join is one of the edges
            call.name for call, gave in given if "kind" not in gave and gave.get("signal") != "replan"
        }
        complete, waiting = spec.routes.joined(along, arrivals_in(state.__dict__["state"]))
        ended, reason = self._ended(told)
        if ended is not None:
            return Advanced(state=state_with(channels, waiting), status=ended, reason=reason, at=at)
        paused: dict[str, str | None] = {}
        for call, gave in given:
            if gave.get("signal") == "pause":  # several runs of one node may
                paused[call.name] = "; ".join(filter(None, (paused.get(call.name), gave["reason"]))) or None
        stopped = paused.keys() | (spec.stops_at.after & through)
        gates = {node: paused.get(node) for node in spec.routes.in_order(stopped)}
        calls = calls_of(
            spec, state.turn + 2, channels, spec.routes.going([*targets, *complete]), gates, self._rejected(given)
        )
        return _ADVANCED.evolve(state=state_with(channels, waiting), calls=calls, at=at)

    def _on_rejection(self, call: Call, gave: Mapping[str, object]) -> str | None:
        """Gives the node that follows a rejected or expired one. Nothing follows a cancelled one."""
        back: str | None = getattr(self._spec.tools.get(call.name), "on_rejection", None)
        return back if gave.get("kind") in ("rejected", "expired") else None

    def _rejected(self, given: Iterable[tuple[Call, Mapping[str, object]]]) -> dict[str, tuple[str, ...]]:
        """The pending ids of what was rejected or expired, by the node that follows it."""
        found: dict[str, tuple[str, ...]] = {}
        for call, gave in given:
            if (back := self._on_rejection(call, gave)) is not None:
                found[back] = (*found.get(back, ()), *[each.pending_id for each in rejections_of(self._state, call)])
        return found

    def _ended(self, told: Sequence[dict[str, Any]]) -> tuple[Any, str | None]:
        """Gives the end of the run and its reason, if a node aborted it or a human rejected a node without `on_rejection`."""
        for call, gave in zip(self._nodes, told, strict=True):
            if gave.get("signal") == "abort":
                return "cancelled", gave.get("reason") or f"node {call.name} gave the run up"
            kind = gave.get("kind")
            if kind is not None and self._on_rejection(call, gave) is None:
                return ("rejected", None) if kind == "rejected" else ("cancelled", f"node {call.name} is {kind}")
        return None, None


def _source_of(call: Call, gave: Mapping[str, object]) -> str:
    """From where to go on along the edges: after the node, or anew where the graph begins."""
    return START if gave.get("signal") == "replan" else call.name
