"""Goals: which nodes run with which facts, when the run ends, and what it says then.

Ids in docstrings are of Directive's behaviours (section 1.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from drivers import Driver
from pattern_scenes import kinds, says
from pydantic import BaseModel
from stop_scenes import EVERY

from phronomy import (
    Agent,
    Breakpoint,
    GoalNode,
    GraphError,
    ModelConnectionError,
    Pattern,
    Relaxation,
    Skip,
    Step,
    Store,
    goal,
)
from phronomy.testing import ScriptedModel

Ran = list[tuple[str, Any]]
"""Which nodes ran, and what each was given."""


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


def gives(name: str, ran: Ran, driver: Driver, *outputs: Any) -> Callable[[Any], Any]:
    """A node that gives these outputs, one after the other, and the last again; an exception is raised."""

    def body(value: Any) -> Any:
        ran.append((name, value))
        count = sum(each == name for each, _ in ran)
        said = outputs[min(count, len(outputs)) - 1]
        if isinstance(said, Exception):
            raise said
        return said

    body.__name__ = name
    return driver.function(body)


def done(facts: dict[str, Any]) -> bool:
    """The goal of most of these tests."""
    return facts.get("done") is True


def ends(pattern: Pattern[Any], driver: Driver, given: Any = None) -> tuple[Any, Any]:
    """Whether the goal was achieved, and why not."""
    output = driver.invoke(pattern, given).output
    return output["achieved"], output["reason"]


def test_nodes_run_when_their_facts_are_known_until_the_goal_is_achieved(driver: Driver, store: Store) -> None:
    """1.5: facts drive it; a fact that is null is not known; nodes that are ready run in one round."""
    ran: Ran = []
    nodes = {
        "last": GoalNode(gives("last", ran, driver, {"done": True}), ["b", "c"], produces=["done"]),
        "a": GoalNode(gives("a", ran, driver, 1), produces=["a"]),
        "b": GoalNode(gives("b", ran, driver, {"b": 2, "b2": None, "other": 9}), ["a"], produces=["b", "b2"]),
        "c": GoalNode(gives("c", ran, driver, {"c": [3]}), ["a", "given"], produces=["c"]),
        "never": GoalNode(gives("never", ran, driver, 1), ["b2"], produces=["never"]),
    }
    pattern = goal(nodes, until=done, store=store)
    result = driver.invoke(pattern, {"given": 0})
    facts = {"given": 0, "a": 1, "b": 2, "b2": None, "c": [3], "done": True}
    assert result.output == {"achieved": True, "satisfaction": 1.0, "facts": facts, "reason": None}
    assert ran[0] == ("a", {"given": 0})
    assert sorted(ran[1:3]) == [("b", {"a": 1}), ("c", {"a": 1, "given": 0})]
    assert ran[3:] == [("last", {"b": 2, "c": [3]})]
    assert pattern.state_of(result.checkpoint).noted["rounds"] == 3


class Price(BaseModel):
    """What an agent finds."""

    price: int


def test_agents_find_facts(driver: Driver, store: Store) -> None:
    """As text, as JSON in text where there are several, and as a model; what cannot be read is a failure."""
    nodes = {
        "title": GoalNode(says("title", "Bees"), produces=["title"]),
        "price": GoalNode(says("price", '{"price": 3}', output_type=Price), ["title"], produces=["price"]),
        "both": GoalNode(says("both", 'Here: {"x": 1, "y": 2}'), ["title"], produces=["x", "y"]),
        "bad": GoalNode(says("bad", "I do not know"), produces=["p", "q"]),
    }
    pattern = goal(nodes, until=lambda facts: {"price", "x", "y"} <= facts.keys(), store=store)
    result = driver.invoke(pattern, "bees")
    assert result.output["facts"] == {"input": "bees", "title": "Bees", "price": 3, "x": 1, "y": 2}


def test_a_goal_that_holds_at_once_runs_nothing(driver: Driver) -> None:
    ran: Ran = []
    pattern = goal({"a": GoalNode(gives("a", ran, driver, 1), produces=["a"])}, until=done)
    assert (ends(pattern, driver, {"done": True}), ran) == ((True, None), [])


def test_a_node_that_keeps_failing_is_left_out(driver: Driver, store: Store) -> None:
    """1.5: three failures in a row; a success begins the count anew."""
    ran: Ran = []
    flaky = GoalNode(gives("flaky", ran, driver, *[LookupError()] * 2, 1), produces=["a"])
    broken = GoalNode(gives("broken", ran, driver, LookupError("secret")), produces=["done"])
    pattern = goal({"flaky": flaky, "broken": broken}, until=done, store=store)
    result = driver.invoke(pattern, None)
    assert result.output["reason"].startswith("stalled")
    assert result.output["satisfaction"] == 0.5
    assert [name for name, _ in ran].count("flaky") == [name for name, _ in ran].count("broken") == 3
    assert [kind for step, kind in kinds(pattern, result) if step == "broken"] == ["failed"] * 3
    ran.clear()
    assert ends(goal({"broken": broken}, until=done, max_failures=1), driver)[0] is False
    assert len(ran) == 1


def test_a_node_runs_again_only_with_other_facts(driver: Driver, store: Store) -> None:
    """1.5: by the digest of what it is given."""
    ran: Ran = []
    nodes = {
        "x": GoalNode(gives("x", ran, driver, 1), produces=["x"]),
        "y": GoalNode(gives("y", ran, driver, 5), ["x"], produces=["y"]),
        "x_again": GoalNode(gives("x_again", ran, driver, {"x": 1, "z": 0}), ["y"], produces=["z", "extra"]),
        "w": GoalNode(gives("w", ran, driver, 2), ["z"], produces=["base"]),
        "of_base": GoalNode(gives("of_base", ran, driver, 0), ["base"], produces=["k"]),
    }
    pattern = goal(nodes, until=done, relax=[Relaxation(facts={"base": 2}), Relaxation(facts={"base": 3})], store=store)
    output = driver.invoke(pattern, None).output
    assert output["facts"] == {"input": None, "x": 1, "y": 5, "z": 0, "base": 3, "k": 0}
    assert [value for name, value in ran if name == "of_base"] == [{"base": 2}, {"base": 3}]
    assert len(ran) == 6, "the first relaxation changed nothing, so no node ran again"


def test_what_is_relaxed_in_order_when_no_node_can_run(driver: Driver, store: Store) -> None:
    """1.5: facts that are added, and nodes that may run again; after the last one the run has stalled."""
    ran: Ran = []
    nodes = {
        "a": GoalNode(gives("a", ran, driver, 1, 2), produces=["a"]),
        "bad": GoalNode(gives("bad", ran, driver, *[LookupError()] * 3, 7), produces=["bad"]),
        "b": GoalNode(gives("b", ran, driver, 0), ["key"], produces=["b"]),
    }
    tiers = [Relaxation(facts={"key": 1}), Relaxation(rerun=["a", "bad"])]
    pattern = goal(nodes, until=done, relax=tiers, store=store)
    output = driver.invoke(pattern, {"key": None}).output
    assert output["facts"] == {"key": 1, "a": 2, "bad": 7, "b": 0}
    assert (output["achieved"], output["reason"]) == (False, "stalled: no node can run with these facts")
    assert [name for name, _ in ran if name != "bad"] == ["a", "b", "a"]
    assert ends(goal(nodes, until=lambda facts: facts["key"], relax=tiers), driver, {"key": None}) == (True, None)


def test_who_runs_is_selected_from_those_that_are_ready(driver: Driver) -> None:
    """1.5: if nothing is selected, or nothing that is ready, all run."""
    for said, rounds in ((lambda ready, facts: ready[:1], 3), (lambda ready, facts: ["no", 3], 1), (None, 1)):
        ran: Ran = []
        ask = said or (lambda ready, facts: "c")
        nodes = {
            name: GoalNode(gives(name, ran, driver, 1), produces=[name], priority=n) for n, name in enumerate("abc")
        }
        pattern = goal(nodes, until=lambda facts: {*"abc"} <= facts.keys(), select=ask, max_parallel=1)
        result = driver.invoke(pattern, {})
        assert [name for name, _ in ran] == ["c", "b", "a"]
        assert pattern.state_of(result.checkpoint).noted["rounds"] == (rounds if said is not None else 2)


@pytest.mark.parametrize(
    ("said", "satisfied"), [(0.25, 0.25), (7, 1.0), (-3, 0.0), (float("nan"), 0.0), ("high", 0.0), (True, 0.0)]
)
def test_satisfaction_is_between_0_and_1(driver: Driver, said: Any, satisfied: float) -> None:
    """1.5: clamped, and 0 for what is no number; D50: it is the progress."""
    pattern = goal(
        {"a": GoalNode(driver.function(lambda value: 1), produces=["a"])}, until=done, satisfaction=lambda facts: said
    )
    result = driver.invoke(pattern, {})
    assert result.output["satisfaction"] == satisfied
    progress = pattern.progress(result.checkpoint)
    assert (progress.percentage, progress.units, progress.facts) == (100 * satisfied, 1, {"a": 1})


def test_a_goal_ends_with_the_reason_and_raises_nothing(driver: Driver, store: Store) -> None:
    """1.5: rounds, time, and functions of the user's that raise; all end as not achieved."""
    ran: Ran = []
    tick = {"a": GoalNode(gives("a", ran, driver, LookupError()), produces=["a"])}
    assert ends(goal(tick, until=done, max_rounds=2, store=store), driver) == (False, "max_rounds=2 is used up")
    assert len(ran) == 2

    def boom(*_: Any) -> Any:
        raise LookupError("secret")

    one = {"a": GoalNode(driver.function(lambda value: 1), produces=["a"])}
    pattern = goal(one, until=boom, satisfaction=boom, select=boom, store=store)
    result = driver.invoke(pattern, {})
    assert (result.output["achieved"], result.output["satisfaction"]) == (False, 0.0)
    assert pattern.state_of(result.checkpoint).noted["raised"] == {
        "until": "LookupError",
        "satisfaction": "LookupError",
    }
    changes = goal(one, until=lambda facts: facts.update(done=True), satisfaction=len)
    assert driver.invoke(changes, {}).output["facts"] == {"a": 1}


def test_the_time_of_a_goal_is_its_active_time(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.5: the time is looked at between two rounds, and begins no other."""
    now = [0.0]
    monkeypatch.setattr("phronomy.engine.clock.monotonic", lambda: now[0])

    def slow(value: Any) -> Any:
        now[0] += 200.0
        raise LookupError

    pattern = goal({"a": GoalNode(driver.function(slow), produces=["a"])}, until=done, max_failures=9)
    assert ends(pattern, driver) == (False, "timeout=300 s is over")
    assert now[0] == 400.0


def test_a_goal_goes_on_from_its_checkpoints(driver: Driver, store: Store) -> None:
    """D47: facts, failures, digests of inputs and metrics are in the checkpoint; each node runs once, whoever goes on."""
    ran: Ran = []
    down = gives("down", ran, driver, LookupError(), LookupError(), 4)

    def made() -> Pattern[Any]:
        nodes = {
            "a": GoalNode(gives("a", ran, driver, 1), produces=["a"]),
            "down": GoalNode(down, ["a"], produces=["d"]),
            "z": GoalNode(gives("z", ran, driver, {"done": True}), ["d"], produces=["done"]),
        }
        return goal(nodes, until=done, store=store)

    result = driver.step(made(), {})
    seen = [result.checkpoint]
    while result.status == "running":
        result = driver.step(made(), result.checkpoint)
        seen.append(result.checkpoint)
    assert (result.output["achieved"], [name for name, _ in ran]) == (True, ["a", "down", "down", "down", "z"])
    shares = [made().progress(checkpoint).percentage for checkpoint in seen[1:]]
    assert shares == sorted(shares)  # type: ignore[type-var]
    difference = made().diff(seen[1], seen[-1])
    assert (difference.turns, difference.completed, difference.added) == (5, ("a", "down", "z"), ("a", "d", "done"))
    for checkpoint in seen[1:-1]:
        before = len(ran)
        again = driver.resume(made(), driver.fork(made(), checkpoint))
        assert again.output == result.output
        assert "a" not in {name for name, _ in ran[before:]}, "what has completed before does not run again in a fork"


def test_a_skipped_node_finds_nothing(driver: Driver, store: Store) -> None:
    ran: Ran = []
    nodes = {"a": GoalNode(gives("a", ran, driver, 1), produces=["a"])}
    pattern = goal(nodes, until=done, store=store)
    paused = driver.invoke(pattern, {"x": 1}, breakpoints=[Breakpoint("pre_pattern_step")]).checkpoint
    result = driver.resume(pattern, paused, decisions={paused.pending[0].id: Skip()})
    assert (result.output["facts"], result.output["achieved"], ran) == ({"x": 1}, False, [])


@pytest.mark.parametrize(
    ("nodes", "options", "wrong"),
    [
        ({}, {}, "by name"),
        ({"a": Step(len)}, {}, "GoalNode, not Step"),
        ({"a": GoalNode(len, produces=[])}, {}, "names of facts"),
        ({"a": GoalNode(len, "x", produces=["a"])}, {}, "names of facts"),
        ({"a": GoalNode(len, produces=["a"], priority="high")}, {}, "priority"),  # type: ignore[arg-type]
        ({"a": GoalNode(len, ["x"], produces=["x"])}, {}, "in a circle: a"),
        ({"a": GoalNode(len, ["y"], produces=["x"]), "b": GoalNode(len, ["x"], produces=["y"])}, {}, "a circle: a, b"),
        ({"a": GoalNode(len, produces=["a"])}, {"until": None}, "until is a function"),
        ({"a": GoalNode(len, produces=["a"])}, {"max_rounds": 0}, "max_rounds"),
        ({"a": GoalNode(len, produces=["a"])}, {"max_failures": 1.5}, "max_failures"),
        ({"a": GoalNode(len, produces=["a"])}, {"timeout": 0}, "timeout"),
        ({"a": GoalNode(len, produces=["a"])}, {"select": 3}, "plain function"),
        ({"a": GoalNode(len, produces=["a"])}, {"relax": [3]}, "list of Relaxation"),
        ({"a": GoalNode(len, produces=["a"])}, {"relax": [Relaxation(rerun=["b"])]}, "lists 'b'"),
        ({"a": GoalNode(len, produces=["a"])}, {"relax": [Relaxation(facts={"b": object()})]}, "JSON, by name"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_goal_is_refused(nodes: Any, options: Any, wrong: str) -> None:
    """1.5: nodes that need each other's facts in a circle, among others."""
    with pytest.raises(GraphError, match=wrong):
        goal(nodes, **{"until": done, **options})


def test_a_model_that_is_down_is_a_failure_like_any_other(driver: Driver, store: Store) -> None:
    agent: Agent[Any, Any] = Agent(name="a", model=ScriptedModel([ModelConnectionError("down"), "up"]))
    pattern = goal({"a": GoalNode(agent, produces=["a"])}, until=lambda facts: "a" in facts, store=store)
    assert driver.invoke(pattern, {}).output["facts"] == {"a": "up"}


class Neither:
    """An answer that is neither true nor false."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


async def later(facts: object) -> bool:
    """A predicate that has to be awaited: what it returns would always count as true."""
    return False


@pytest.mark.parametrize(
    "until", [lambda facts: later(dict(facts)), lambda facts: Neither()], ids=["awaitable", "neither"]
)
def test_an_answer_that_is_neither_true_nor_false_counts_as_false(until: Callable[[dict[str, Any]], Any]) -> None:
    """1.5: as a function that raises."""
    pattern = goal({"one": GoalNode(lambda given: 1, produces=["x"])}, until=until)
    result = pattern.invoke({})
    assert not result.output["achieved"]
    assert pattern.state_of(result.checkpoint).noted["raised"].keys() == {"until"}


def test_a_selection_that_raises_while_it_is_read_selects_all() -> None:
    """1.5: `select` may return a generator."""

    def some(ready: list[str], facts: dict[str, Any]) -> Iterator[str]:
        yield ready[0]
        raise LookupError

    nodes = {name: GoalNode(lambda given: 1, produces=[name]) for name in ("x", "y")}
    pattern = goal(nodes, until=lambda facts: len(facts) == 2, select=lambda ready, facts: some(ready[:], facts))  # type: ignore[arg-type]
    result = pattern.invoke({})
    assert result.output["achieved"]
    assert pattern.state_of(result.checkpoint).noted["rounds"] == 1
