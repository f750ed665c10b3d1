"""What a process does with a pattern, up to the place where it is killed: `test_patterns_stops.py` kills it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from crash_worker import DRIVERS, looked, make_tool
from pattern_scenes import bosses, says

from phronomy import DagNode, GoalNode, Pattern, Step, dag, debate, goal, race, sequential, supervisor
from phronomy.testing import call
from phronomy.testing.crash import Scene

OUTPUTS: dict[str, Any] = {
    "sequential": "<ann paid>",
    "dag": {"ann": "ann paid", "bob": "bob paid", "read": "read go"},
    "supervisor": "all done",
    "debate": "bob paid",
    "goal": {
        "achieved": True,
        "satisfaction": 1.0,
        "facts": {"ann": "ann paid", "bob": "bob paid", "input": "go"},
        "reason": None,
    },
}


def pattern_of(kind: str, scene: Scene, driver: str) -> Pattern[Any]:
    """A pattern of this kind in which ann pays, and in two of them bob."""

    def payer(name: str) -> Any:
        tools = [make_tool(f"pay_{name}", is_async=driver == "async", requires_approval=True)]
        return says(name, call(f"pay_{name}"), f"{name} paid", tools=tools)

    def text(value: Any) -> Any:
        return f"read {value}"

    def whole(value: Any) -> Any:
        return f"<{value}>" if isinstance(value, str) else value

    def node(body: Any) -> Step:
        return Step(DRIVERS[driver].function(body), idempotent=True)

    if kind == "sequential":
        return sequential(node(text), payer("ann"), node(whole), store=scene.store)
    if kind == "supervisor":
        return supervisor(bosses(("ann", "1"), ("bob", "2")), [payer("ann"), payer("bob")], store=scene.store)
    if kind == "debate":
        judge = node(lambda asked: {"winner": "bob", "feedback": "again"})
        return debate(payer("ann"), payer("bob"), judge=judge, rounds=1, store=scene.store)
    if kind == "goal":
        nodes = {
            "bob": GoalNode(payer("bob"), ["ann"], produces=["bob"]),
            "ann": GoalNode(payer("ann"), produces=["ann"]),
        }
        return goal(nodes, until=lambda facts: "bob" in facts, store=scene.store)
    if kind == "race":
        return race(payer("ann"), payer("bob"), store=scene.store)
    nodes = {
        "read": node(text),
        "ann": DagNode(payer("ann")),
        "bob": DagNode(payer("bob"), ["read"]),
        "join": DagNode(DRIVERS[driver].function(whole), ["ann", "bob", "read"], idempotent=True),
    }
    return dag(nodes, store=scene.store)


def play(scene: Scene, *, kind: str, driver: str) -> None:
    """Begin the run, if nobody has, and bring it to its end from wherever it stands."""
    pattern: Any = pattern_of(kind, scene, driver)
    if not scene.store.branches():
        DRIVERS[driver].invoke(pattern, "go", thread_id="t")
    if driver == "async":
        asyncio.run(scene.asettle(pattern, answers=partial(looked, scene)))
    else:
        scene.settle(pattern, answers=partial(looked, scene))


def check(kind: str, scene: Scene) -> None:
    """It ends as one that was never killed, and each payment was made once."""
    [branch] = scene.store.branches()
    _, head = scene.store.head(branch.id)
    assert (head.ended, head.output) == ("completed", OUTPUTS[kind])
    wanted = ["pay_ann"] if kind == "sequential" else ["pay_ann", "pay_bob"]
    assert sorted(each.tool for each in scene.entered if each.tool.startswith("pay")) == wanted


def check_race(scene: Scene) -> None:
    """One of the two has won, and nobody paid twice; the loser's approval waits for nobody."""
    [branch] = scene.store.branches()
    _, head = scene.store.head(branch.id)
    assert (head.ended, head.output in ("ann paid", "bob paid")) == ("completed", True)
    paid = [each.tool for each in scene.entered if each.tool.startswith("pay")]
    assert sorted(set(paid)) == sorted(paid) != []
    assert scene.store.pending_rows() == []
