"""The rows of the table, and the curves of the plot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from harness import Row

FIGURE: Final[dict[str, Any]] = {"absolute": True}
"""The goal is of the figure itself, not of its ratio to the floor's."""

WHOLE: Final[dict[str, Any]] = {"lessens": False}
"""The round that warms up does as much as the others: it makes what they use."""

LONG: Final[dict[str, Any]] = {"quick_peers": 0}
"""Takes the peers minutes, so that a quick run leaves them out."""

FEW: Final[dict[str, Any]] = {"quick_peers": 1}
"""In a quick run the peers take part in one round."""


def rows(waiting: int) -> list[Row]:
    """The rows, with so many requests that wait in the full store."""
    http, script, graph = {"kind": "http"}, {"kind": "script"}, {"kind": "graph"}
    long, short, some = {"calls": 500}, {"calls": 10}, {"calls": 100}
    flight, full, many = {"runs": 200}, {"runs": waiting}, {"kind": "script", "runs": 200}
    stored = Row("bytes", "bytes at 500 calls", "calls", unit="B", goal=2.0)
    return [
        Row("cold", "import + first cycle", "cold", {}, 1, 11, 3, goal=2.5, litellm=True, peers=3, **FEW),
        Row("fresh", "cycle over HTTP, fresh objects", "fresh", http, 5, 21, 5, goal=2.5, litellm=True, **FEW),
        Row("warm", "cycle over HTTP, warm", "warm", http, 10, 21, 5, goal=2.0, litellm=True, **FEW),
        Row("in-process", "cycle in the process, warm", "warm", script, 10, 21, 5, goal=4.0, claims_goal=2.0, **FEW),
        Row(
            "calls", "500 automatic calls, then stop", "calls", script | long, 1, 7, 2,
            goal=2.0, peers=1, also=stored, **LONG,
        ),
        Row(
            "calls-http", "500 automatic calls over HTTP, then stop", "calls", http | long, 1, 7, 1, goal=2.0,
            peers=0,
        ),
        Row(
            "calls-100", "100 automatic calls over HTTP, then stop", "calls", http | some, 1, 7, 3, goal=2.0,
            litellm=True, peers=2, **LONG,
        ),
        Row("resume-500", "load + resume at 500 calls", "resumed", script | long, 1, 11, 3, goal=2.0, **WHOLE, **LONG),
        Row("resume-10", "load + resume at 10 calls", "resumed", script | short, 5, 21, 5, goal=2.0, **WHOLE, **FEW),
        Row(
            "resume-http", "load + resume at 500 calls, over HTTP", "resumed", http | long, 1, 7, 2,
            goal=2.0, litellm=True, **WHOLE, **LONG,
        ),
        Row(
            "in-flight", "200 in flight", "in_flight", flight, 1, 7, 1, "/s", 200, 300,
            litellm=True, peers=3, quick_peers=1, **FIGURE,
        ),
        Row("page", f"page of 50 of {waiting:,} waiting", "page", full, 20, 15, 5, goal=0.5, **FIGURE, **WHOLE),
        Row("count", f"`count()` of {waiting:,} waiting", "count", full, 5, 15, 5, goal=1.0, **FIGURE, **WHOLE),
        Row("graph-warm", "graph of 3 nodes with a question, warm", "warm", graph, 10, 21, 5, goal=4.0, **FIGURE),
        Row("graph-fresh", "graph of 3 nodes with a question, fresh", "fresh", graph, 5, 21, 5, goal=6.0, **FIGURE),
        Row("waiting", "bytes of a run that waits", "waiting", many, 1, 1, 1, "B", goal=2048, **FIGURE, **WHOLE),
    ]  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """How the cost of a checkpoint grows with one thing."""

    key: str
    title: str
    method: str
    argument: str
    sizes: tuple[int, ...]
    shape: str
    """What it is to be: `linear`, so that the cost of one stays the same, or `flat`."""


CURVES: Final = [
    Curve("messages", "to a stop, in a thread of so many messages", "in_thread", "messages", (10, 1_000, 2_000, 4_000), "linear"),
    Curve("calls", "a run of so many calls, to its stop", "calls", "calls", (10, 50, 200, 500), "linear"),
    Curve("nested", "so many nested runs, to the stop of all", "nested", "runs", (1, 10, 50, 200), "linear"),
    Curve("approvals", "a reply with so many gated calls, approved at once", "approvals", "calls", (10, 50, 200, 500), "linear"),
    Curve("waiting", "a cycle beside so many waiting runs", "beside", "runs", (100, 1_000, 10_000, 50_000), "flat"),
]  # fmt: skip
