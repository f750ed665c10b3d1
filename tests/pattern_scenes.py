"""What the tests of patterns share: agents that pay, and one pattern of each kind in the middle of which a human is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from drivers import Driver

from phronomy import (
    Agent,
    DagNode,
    GoalNode,
    Pattern,
    Result,
    Store,
    dag,
    debate,
    goal,
    parallel,
    race,
    reflect,
    round_robin,
    sequential,
    supervisor,
    tool,
)
from phronomy.models.base import ModelRequest
from phronomy.testing import ScriptedModel, call


def says(name: str, *replies: Any, **options: Any) -> Agent[Any, Any]:
    """An agent that answers so, whatever it is asked, each time from the top."""
    return Agent(name=name, model=ScriptedModel.by_turn(list(replies)), **options)


def hears(name: str, answer: Callable[[str], Any], **options: Any) -> Agent[Any, Any]:
    """An agent whose answer is a function of what it is asked."""

    def reply(request: ModelRequest) -> Any:
        return answer(next(said.text for said in reversed(request.messages) if said.role == "user"))

    return Agent(name=name, model=ScriptedModel(reply), **options)


def payer(name: str, paid: list[str], **options: Any) -> Agent[Any, Any]:
    """An agent that pays, for which it needs an approval, and then says so."""

    @tool(requires_approval=True)
    def pay(to: str) -> str:
        """Pay somebody."""
        paid.append(to)
        return f"{to} is paid"

    return says(name, call("pay", {"to": name}), f"{name} paid", tools=[pay], **options)


def bosses(*orders: tuple[str, str], answer: str = "all done") -> Agent[Any, Any]:
    """A manager that gives these orders, one after the other, and then the answer."""

    def decide(asked: str) -> str:
        done = len(json.loads(asked)["done"])
        if done == len(orders):
            return json.dumps({"answer": answer})
        return json.dumps({"worker": orders[done][0], "instruction": orders[done][1]})

    return hears("boss", decide)


def plain(name: str, log: list[str], driver: Driver) -> Callable[[Any], Any]:
    """A function as a step: it notes that it ran, and adds its name."""

    def body(value: Any) -> Any:
        log.append(name)
        return f"{value}+{name}" if isinstance(value, str) else {"from": name, "got": value}

    body.__name__ = name
    return driver.function(body)


class Scene(NamedTuple):
    """A pattern that stops for approvals: who pays in it, in what order (of those at once, any), and what it comes to."""

    make: Callable[[Driver, Store | None, list[str]], Pattern[Any]]
    pays: tuple[tuple[str, ...], ...]
    output: Any


def _sequential(driver: Driver, store: Store | None, paid: list[str]) -> Pattern[Any]:
    return sequential(plain("plan", paid, driver), payer("ann", paid), plain("file", paid, driver), **_in(store))


def _parallel(driver: Driver, store: Store | None, paid: list[str]) -> Pattern[Any]:
    return parallel(payer("ann", paid), payer("bob", paid), plain("note", paid, driver), **_in(store))


def _supervisor(driver: Driver, store: Store | None, paid: list[str]) -> Pattern[Any]:
    boss = bosses(("ann", "pay"), ("note", "it"), ("bob", "pay"))
    return supervisor(boss, [payer("ann", paid), payer("bob", paid), plain("note", paid, driver)], **_in(store))


def _round_robin(driver: Driver, store: Store | None, paid: list[str]) -> Pattern[Any]:
    return round_robin(payer("ann", paid), plain("note", paid, driver), rounds=2, **_in(store))


def _dag(driver: Driver, store: Store | None, paid: list[str]) -> Pattern[Any]:
    nodes = {
        "read": plain("read", paid, driver),
        "ann": DagNode(payer("ann", paid), ["read"]),
        "bob": DagNode(payer("bob", paid), ["read"]),
        "join": DagNode(plain("join", paid, driver), ["ann", "bob"]),
    }
    return dag(nodes, **_in(store))


def _reflect(driver: Driver, store: Store | None, paid: list[str]) -> Pattern[Any]:
    def critic(asked: Any) -> Any:
        paid.append("critic")
        return {"passed": paid.count("critic") > 1, "feedback": "again"}

    return reflect(payer("ann", paid), driver.function(critic), max_rounds=3, **_in(store))


def _race(driver: Driver, store: Store | None, paid: list[str]) -> Pattern[Any]:
    return race(payer("ann", paid), payer("bob", paid), **_in(store))


def _debate(driver: Driver, store: Store | None, paid: list[str]) -> Pattern[Any]:
    def judge(asked: Any) -> Any:
        paid.append("judge")
        return {"winner": "bob", "feedback": "again"}

    return debate(payer("ann", paid), payer("bob", paid), judge=driver.function(judge), **_in(store))


def _goal(driver: Driver, store: Store | None, paid: list[str]) -> Pattern[Any]:
    nodes = {
        "bob": GoalNode(payer("bob", paid), ["plan", "first"], produces=["done"]),
        "ann": GoalNode(payer("ann", paid), ["plan"], produces=["first"]),
        "plan": GoalNode(plain("plan", paid, driver), produces=["plan"]),
    }
    return goal(nodes, until=lambda facts: "done" in facts, **_in(store))


def _in(store: Store | None) -> dict[str, Any]:
    return {"name": "team"} if store is None else {"name": "team", "store": store}


SCENES: dict[str, Scene] = {
    "sequential": Scene(_sequential, (("ann",),), "ann paid+file"),
    "parallel": Scene(_parallel, (("ann", "bob"),), {"ann": "ann paid", "bob": "bob paid", "note": "go+note"}),
    "supervisor": Scene(_supervisor, (("ann",), ("bob",)), "all done"),
    "round_robin": Scene(_round_robin, (("ann",), ("ann",)), "ann paid+note"),
    "dag": Scene(_dag, (("ann", "bob"),), {"from": "join", "got": {"ann": "ann paid", "bob": "bob paid"}}),
    "reflect": Scene(_reflect, (("ann",), ("ann",)), "ann paid"),
    "debate": Scene(_debate, (("ann", "bob"), ("ann", "bob")), "bob paid"),
    "goal": Scene(
        _goal,
        (("ann",), ("bob",)),
        {
            "achieved": True,
            "satisfaction": 1.0,
            "facts": {"input": "go", "plan": "go+plan", "first": "ann paid", "done": "bob paid"},
            "reason": None,
        },
    ),
    "race": Scene(_race, (("ann", "bob"),), "ann paid"),
}


def waits(result: Result[Any]) -> list[str]:
    """Whom a suspended run is to pay, in the order of what is pending."""
    return [item.args["to"] for item in result.checkpoint.pending]


def kinds(pattern: Pattern[Any], result: Result[Any]) -> list[tuple[str, str]]:
    """What became of each step, in order."""
    return [(turn["step"], turn["kind"]) for turn in pattern.state_of(result.checkpoint).turns]
