"""Labels of a pattern's checkpoints; ids in docstrings are of Directive's behaviours."""

from __future__ import annotations

from typing import Any

import pytest
from drivers import Driver
from orchestrator_scenes import SPENT
from pattern_scenes import bosses, plain, says

from phronomy import (
    ConfigurationError,
    DagNode,
    GoalNode,
    GraphError,
    LabelContext,
    Labels,
    Pattern,
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
)
from phronomy.testing import say


def labels(store: Store, **wanted: Any) -> list[str | None]:
    """The labels of checkpoints in the store, the oldest first."""
    return [info.label for info in store.list(labeled=True, **wanted)]


def patterns(driver: Driver, store: Store, given: Labels) -> dict[str, Pattern[Any]]:
    """A pattern of each kind, with four units or so."""
    step = plain("a", [], driver)
    critic = driver.function(lambda value: {"passed": False})
    judge = driver.function(lambda value: {})
    options: Any = {"store": store, "labels": given, "name": "p"}
    nodes: dict[str, Any] = {"a": step, "b": step, "c": DagNode(step, ["a", "b"]), "d": DagNode(step, ["c"])}
    chain = {
        f"f{n}": GoalNode(driver.function(lambda value, n=n: n), [f"f{n - 1}"] if n else [], produces=[f"f{n}"])  # type: ignore[misc]
        for n in range(4)
    }
    return {
        "sequential": sequential(step, step, step, step, **options),
        "round_robin": round_robin(step, step, rounds=2, **options),
        "supervisor": supervisor(bosses(*[("a", "1")] * 4), {"a": step}, **options),
        "reflect": reflect(step, critic, max_rounds=4, **options),
        "debate": debate({"a": step, "b": step}, judge=judge, rounds=4, **options),
        "dag": dag(nodes, **options),
        "goal": goal(chain, until=lambda facts: "f3" in facts, **options),
    }


UNITS = {
    "round_robin": "step",
    "sequential": "step",
    "supervisor": "round",
    "debate": "round",
    "goal": "round",
    "reflect": "iter",
}


@pytest.mark.parametrize("kind", [*UNITS, "dag"])
def test_each_kind_counts_its_units_from_the_first(driver: Driver, kind: str, store: Store) -> None:
    """D44, D45, D46: the first unit counts in all of them; of nodes that finish together, all have finished."""
    driver.invoke(patterns(driver, store, Labels(every=1))[kind], "x")
    wanted = [f"p:{UNITS[kind]}-{n}" for n in (1, 2, 3, 4)] if kind != "dag" else ["p:node-2", "p:node-3", "p:node-4"]
    assert labels(store) == wanted
    driver.invoke(patterns(driver, store, Labels(every=3, prefix="q"))[kind], "x")
    assert labels(store)[len(wanted) :] == [f"q:{UNITS.get(kind, 'node')}-3"]


def test_the_default_is_every_fifth(driver: Driver, store: Store) -> None:
    """D44, D46: five steps have one label."""
    driver.invoke(sequential([plain("a", [], driver)] * 5, labels=Labels(), store=store), "x")
    assert labels(store) == ["sequential:step-5"]
    driver.invoke(sequential([plain("a", [], driver)] * 5, store=store), "x")
    assert len(labels(store)) == 1


def test_a_labeled_checkpoint_is_found_and_forked(driver: Driver, store: Store) -> None:
    """D47, D49: it is a checkpoint like any other, and what is done in it is not done again."""
    log: list[str] = []
    pattern = sequential(*(plain(name, log, driver) for name in "abcd"), labels=Labels(every=2), name="p", store=store)
    result = driver.invoke(pattern, "x")
    [found] = store.list(label="p:step-2")
    log.clear()
    fork = driver.fork(pattern, found.id, rerun=True)
    assert (driver.resume(pattern, fork).output, log) == (result.output, ["c", "d"])
    assert labels(store, run_id=result.run_id).count("p:step-4") == 2


def test_a_condition_sees_the_unit(driver: Driver, store: Store) -> None:
    """D44: kind, number, facts and satisfaction; one that raises gives no label, and the run goes on."""
    seen: list[LabelContext] = []

    def look(here: LabelContext) -> bool:
        seen.append(here)
        here.facts.clear()
        return here.number == 2

    nodes = {
        "a": GoalNode(driver.function(lambda value: 1), produces=["a"]),
        "b": GoalNode(driver.function(lambda value: 2), ["a"], produces=["b"]),
    }
    pattern = goal(nodes, until=lambda facts: "b" in facts, labels=Labels(every=1, when=look), name="g", store=store)
    assert driver.invoke(pattern, {}).output["facts"] == {"a": 1, "b": 2}
    assert labels(store) == ["g:round-2"]
    assert [(here.pattern, here.unit, here.number, here.satisfaction) for here in seen] == [
        ("goal", "round", 1, 0.5),
        ("goal", "round", 2, 1.0),
    ]

    def boom(here: LabelContext) -> bool:
        raise LookupError

    broken = sequential(plain("a", [], driver), labels=Labels(every=1, when=boom), store=store)
    assert driver.invoke(broken, "x").output == "x+a"
    assert labels(store) == ["g:round-2"]


def test_only_the_outermost_pattern_labels(driver: Driver, store: Store) -> None:
    inner = sequential(plain("a", [], driver), name="inner", labels=Labels(every=1))
    outer = sequential(inner, says("b", "B"), name="outer", labels=Labels(every=1), store=store)
    driver.invoke(outer, "x")
    assert labels(store) == ["outer:step-1", "outer:step-2"]


def test_what_came_between_two_checkpoints(driver: Driver, store: Store) -> None:
    """D50: steps and tokens, nodes that completed, facts; the time that is left; another kind is an error."""
    step = plain("c", [], driver)
    pattern = dag(
        {"a": says("a", say("A", usage=SPENT)), "b": says("b", say("B", usage=SPENT)), "c": DagNode(step, ["a", "b"])},
        store=store,
    )
    result = driver.invoke(pattern, "x")
    history = store.history(result.checkpoint.id)
    difference = pattern.diff(history[0], history[-1])
    assert (difference.turns, difference.completed) == (3, ("a", "b", "c"))
    assert difference.tokens == result.checkpoint.usage.total_tokens == 20
    half = next(each for each in history if pattern.progress(each).done == 2)
    elapsed = half.evolve(elapsed=3000)
    assert (pattern.progress(elapsed).seconds_left, pattern.progress(elapsed).units) == (1.5, 2)
    assert pattern.progress(history[0]).seconds_left is None
    other = sequential(step, store=store)
    ended = driver.invoke(other, "x").checkpoint
    with pytest.raises(Exception, match="of another kind: sequential"):
        pattern.diff(history[0], ended)

    facts = {"a": GoalNode(driver.function(lambda value: {"a": 1, "x": 2}), produces=["a", "x"])}
    finder = goal(facts, until=lambda found: "a" in found, store=store)
    history = store.history(driver.invoke(finder, {"x": 1, "y": 0}).checkpoint.id)
    difference = finder.diff(history[0], history[-1])
    assert (difference.added, difference.removed, difference.changed) == (("a",), (), ("x",))
    assert finder.diff(history[-1], history[0]).removed == ("a",)


@pytest.mark.parametrize(
    ("make", "error", "wrong"),
    [
        (lambda: Labels(every=0), ConfigurationError, "above 0"),
        (lambda: Labels(prefix=""), ConfigurationError, "prefix"),
        (lambda: Labels(when=3), ConfigurationError, "plain function"),  # type: ignore[arg-type]
        (lambda: sequential(len, labels=5), GraphError, "Labels or None, not int"),  # type: ignore[arg-type]
        (lambda: sequential(len, labels=Labels(prefix="x" * 9000)), ConfigurationError, "bytes"),
        (lambda: parallel(len, labels=Labels()), GraphError, "one wave"),  # type: ignore[call-arg]
        (lambda: race(len, labels=Labels()), GraphError, "one wave"),  # type: ignore[call-arg]
    ],
)
def test_what_cannot_be_labels_is_refused(make: Any, error: type[Exception], wrong: str) -> None:
    """D51: a race and parallel steps have no units."""
    with pytest.raises(error, match=wrong):
        make()
