"""Views of runs of graphs for the command line: their nodes, their state, and the node that asks, at whatever depth."""

from __future__ import annotations

import json
from typing import Any

from phronomy.records.calls import Call
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import PendingApproval
from phronomy.stops.interrupt_points import AFTER


def channels(checkpoint: Checkpoint) -> dict[str, Any]:
    """The state of a run of a graph, by channel."""
    from phronomy.graph.state.joins import channels_in  # noqa: PLC0415  # as above

    found: object = json.loads(channels_in(checkpoint.json_text("state")))
    return found if isinstance(found, dict) else {}


def nodes(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    """Gives the nodes of the open wave with the status of each."""
    calls = (call for call in checkpoint.calls if not call.gate and not call.name.startswith(f"{AFTER}:"))
    return [(call.name, _stands(call)) for call in calls]


def _stands(call: Call) -> str:
    if call.result is not None:
        return call.result.kind
    if call.waiting:
        return "asks" if all(item.why == "question" for item in call.waiting) else "waits inside"
    if call.status in ("pending", "asking"):
        return {"approval": "waits for approval", "breakpoint": "stopped before"}.get(call.why or "", "waits for help")
    return {"new": "to be run", "answered": "to be run", "ready": "to be run", "started": "under way"}.get(
        call.status, call.status
    )


def place_of(checkpoint: Checkpoint, path: str) -> str:
    """The nodes and tools that lead to a run inside, outermost first."""
    parts = {part.path: part for part in checkpoint.nested}
    names: list[str] = []
    part: Checkpoint | None = checkpoint
    ids = path.split("/") if path else []
    for place, id in enumerate(ids):
        names.append(next((call.name for call in part.calls if call.id == id), id) if part is not None else id)
        part = parts.get("/".join(ids[: place + 1]))
    return " > ".join(names)


def heading(item: PendingApproval) -> str:
    """Gives the question of a pending approval in one line."""
    name = item.tool_name
    if item.why == "question":
        return f"Question from {name}"
    if item.external:
        return f"Result needed: {name} is carried out elsewhere"
    if item.why != "breakpoint":
        return f"Approval needed: {name}"
    label = f" ({item.label})" if item.label else ""
    if item.tool.source == "breakpoint" and item.point is None:
        return "Stopped from outside"
    if item.tool.source == "breakpoint":
        return f"Stopped at {name}{label}"
    if item.tool.source != AFTER:
        return f"Stopped before {name}{label}"
    return f"Stopped after {name}" if item.call_id.startswith(f"{AFTER}:") else "Stopped from outside"


def update_in(content: str) -> str:
    """Reads the update of a node from the text of its result."""
    try:
        told = json.loads(content)
    except ValueError:
        return content
    if isinstance(told, dict) and told.keys() == {"input", "output"}:  # of the member of a team
        return str(told["output"])
    return json.dumps(told["update"], ensure_ascii=False) if isinstance(told, dict) and "update" in told else content
