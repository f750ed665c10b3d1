"""Debates: what the sides and the judge are told, who wins, and what becomes of failures, skips and stops.

Ids in docstrings are of Directive's behaviours (section 1.5) and weaknesses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from drivers import Driver
from pattern_scenes import hears, kinds, says
from pydantic import BaseModel
from stop_scenes import EVERY

from phronomy import AgentChanged, Approve, Breakpoint, GraphError, NodeFailed, Pattern, Skip, Step, Store, debate


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each driver, without and with a stream."""
    found: Driver = request.param
    return found


Heard = list[tuple[str, Any]]
"""Who was given what, in order."""


def side(name: str, heard: Heard, driver: Driver, *, fails: tuple[int, ...] = ()) -> Callable[[Any], Any]:
    """A side that proposes its name and the number of the round, and fails in some rounds."""

    def propose(value: Any) -> Any:
        heard.append((name, value))
        number = value["round"] if isinstance(value, dict) and "round" in value else 1
        if number in fails:
            raise LookupError(name)
        return f"{name}{number}"

    propose.__name__ = name
    return driver.function(propose)


def judging(said: Callable[[Any], Any], heard: Heard, driver: Driver) -> Callable[[Any], Any]:
    """A judge that says so."""

    def judge(value: Any) -> Any:
        heard.append(("judge", value))
        return said(value)

    return driver.function(judge)


def test_a_debate_goes_on_for_its_rounds_and_the_last_winner_is_the_output(driver: Driver, store: Store) -> None:
    """1.5: two rounds by default; the feedback is told in the next round."""
    heard: Heard = []
    said = {1: {"winner": "b", "feedback": "shorter"}, 2: {"winner": "a", "feedback": "unused"}}
    judge = judging(lambda value: said[value["round"]], heard, driver)
    pattern = debate(side("a", heard, driver), side("b", heard, driver), judge=judge, max_parallel=1, store=store)
    result = driver.invoke(pattern, {"q": 1})
    assert (result.output, pattern.state_of(result.checkpoint).winners) == ("a2", ("a",))
    assert [name for name, _ in heard] == ["a", "b", "judge", "a", "b", "judge"]
    assert heard[0][1] == heard[1][1] == {"q": 1}
    asked = heard[2][1]
    assert {name: asked[name] for name in ("task", "round", "rounds", "proposals")} == {
        "task": {"q": 1}, "round": 1, "rounds": 2, "proposals": {"a": "a1", "b": "b1"}
    }  # fmt: skip
    again = {"task": {"q": 1}, "round": 2, "winner": "b", "feedback": "shorter"}
    assert heard[3][1] == {**again, "yours": "a1", "others": {"b": "b1"}}
    assert heard[4][1] == {**again, "yours": "b1", "others": {"a": "a1"}}


class Verdict(BaseModel):
    """What a judge says in a form."""

    winner: str
    feedback: str = ""


def test_sides_and_judge_may_be_agents(driver: Driver, store: Store) -> None:
    """The judge's answer is JSON in text, or of its output type; the sides read what they are told as JSON."""
    told: list[str] = []
    sides = [hears(name, lambda asked, name=name: (told.append(asked), f"{name}!")[1]) for name in ("ann", "bob")]  # type: ignore[misc]
    for judge in (
        says("judge", 'I say {"winner": "bob", "feedback": "more"}.'),
        says("judge", '{"winner": "bob", "feedback": "more"}', output_type=Verdict),
    ):
        told.clear()
        assert driver.invoke(debate(sides, judge=judge, store=store), "go").output == "bob!"
        assert (told[0], json.loads(told[-1])["feedback"]) == ("go", "more")
    named = debate({"x": sides[0], "y": sides[1]}, judge=Step(says("x", '{"winner": "y"}')), rounds=1, store=store)
    assert (named.steps, driver.invoke(named, "go").output) == (("x", "y", "x_judge"), "bob!")


@pytest.mark.parametrize("said", ['{"winner": "c"}', "b is best", '{"winner": 2}', '{"winner": null}', "{", {}, 5])
def test_a_judge_that_names_no_proposal_has_named_the_first(driver: Driver, said: Any) -> None:
    """1.5: an unknown or unreadable winner is the first side."""
    heard: Heard = []
    sides = [side("a", heard, driver), side("b", heard, driver)]
    pattern = debate(sides, judge=judging(lambda value: said, heard, driver), rounds=1)
    result = driver.invoke(pattern, "go")
    assert (result.output, pattern.state_of(result.checkpoint).winners) == ("a1", ("a",))


def test_a_side_that_fails_stops_the_debate_or_keeps_its_proposal(driver: Driver, store: Store) -> None:
    heard: Heard = []
    judge = judging(lambda value: {"winner": "b"}, heard, driver)

    def made(fails: dict[str, tuple[int, ...]], how: Any) -> Pattern[Any]:
        sides = [side(name, heard, driver, fails=fails.get(name, ())) for name in "ab"]
        return debate(sides, judge=judge, on_error=how, store=store)

    with pytest.raises(NodeFailed) as raised:
        driver.invoke(made({"b": (2,)}, "fail"), "go")
    assert raised.value.failures.keys() == {"b"}
    assert driver.invoke(made({"b": (2,)}, "skip"), "go").output == "b1"
    assert heard[-1][1]["proposals"] == {"a": "a2", "b": "b1"}
    assert driver.invoke(made({"b": (1,)}, "skip"), "go").output == "b2"
    assert driver.invoke(made({"b": (1, 2)}, "skip"), "go").output == "a2"
    with pytest.raises(NodeFailed) as raised:
        driver.invoke(made({"a": (1,), "b": (1,)}, "skip"), "go")
    assert raised.value.failures.keys() == {"a", "b"}
    broken = debate([side("a", heard, driver), side("b", heard, driver)], judge=side("judge", [], driver, fails=(1,)))
    with pytest.raises(NodeFailed):
        driver.invoke(broken, "go")


def test_what_is_skipped_in_a_debate(driver: Driver, store: Store) -> None:
    """A side that is skipped keeps its proposal, or has none; without a verdict the winner before stays."""
    heard: Heard = []
    judge = judging(lambda value: {"winner": "b"}, heard, driver)
    pattern = debate([side("a", heard, driver), side("b", heard, driver)], judge=judge, store=store)
    stop = [Breakpoint("pre_pattern_step")]

    def play(skips: set[tuple[str, int]]) -> Any:
        result, seen = driver.invoke(pattern, "go", breakpoints=stop), dict.fromkeys(pattern.steps, 0)
        while result.suspended:
            answers: dict[str, Any] = {}
            for item in result.checkpoint.pending:
                seen[item.tool_name] += 1
                skip = (item.tool_name, seen[item.tool_name]) in skips
                answers[item.id] = Skip() if skip else Approve()
            result = driver.resume(pattern, result.checkpoint, decisions=answers, breakpoints=stop)
        return result.output

    assert play({("b", 2)}) == "b1"
    assert play({("b", 1), ("judge", 1)}) == "b2"
    assert play({("judge", 2)}) == "b2"
    assert play({("judge", 1), ("judge", 2)}) == "a2"


def test_a_checkpoint_of_a_debate_holds_the_newest_feedback(driver: Driver, store: Store) -> None:
    """W13, D47: the prompt in it is the one that the sides get; a fork of it keeps the old rounds, and repeats none."""
    heard: Heard = []
    judge = judging(lambda value: {"winner": "a", "feedback": f"round {value['round']}"}, heard, driver)
    make = lambda: debate(  # noqa: E731
        [side("a", heard, driver), side("b", heard, driver)], judge=judge, rounds=3, store=store, max_parallel=1
    )
    stop = [Breakpoint("pre_pattern_step", nodes=["a"], when="args['arg'] != 'go' and args['arg']['round'] == 3")]
    paused = driver.invoke(make(), "go", breakpoints=stop).checkpoint
    [item] = paused.pending
    assert item.args["arg"]["feedback"] == "round 2"
    assert make().state_of(paused).output == "a2", "a run that is given up here has come to this"
    before = len(heard)
    fork = driver.fork(make(), paused, rerun=True)
    for start in (paused, fork):
        del heard[before:]
        done = driver.resume(make(), start, approved=True)
        assert (done.output, [name for name, _ in heard[before:]]) == ("a3", ["a", "judge"])
    assert kinds(make(), done).count(("judge", "completed")) == 3


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda: debate(len, judge=len), "two sides or more"),
        (lambda: debate(judge=len), "has no steps"),
        (lambda: debate(len, len, judge=len, rounds=0), "above 0"),
        (lambda: debate(len, len, judge=len, rounds=float("inf")), "above 0"),  # type: ignore[arg-type]
        (lambda: debate(len, len, judge=3), "not int"),
        (lambda: debate(len, len, judge=len, on_error="weep"), "'fail', 'skip'"),  # type: ignore[arg-type]
        (lambda: debate(len, len, judge=len, speed=3), "no option speed"),  # type: ignore[call-arg]
    ],
)
def test_what_cannot_be_a_debate_is_refused(make: Any, wrong: str) -> None:
    """1.5: two sides or more, and one round or more, of a number that is finite."""
    with pytest.raises(GraphError, match=wrong):
        make()


@pytest.mark.parametrize(
    "said",
    ['{"winner": "b", "feedback": NaN}', '{"winner": "b", "score": 1e999}', '{"a":' * 70 + "1" + "}" * 70],
    ids=["nan", "infinite", "deep"],
)
def test_a_verdict_that_no_record_holds_names_no_winner(said: str) -> None:
    """1.5: the answer of a judge that cannot be read counts as none, and a resume would only read it again."""
    panel = debate({"a": says("a", "A"), "b": says("b", "B")}, judge=says("judge", said), rounds=1)
    result = panel.invoke("bees")
    assert result.output == "A"
    assert panel.state_of(result.checkpoint).winners == ("a",)


def test_a_side_that_was_added_is_drift_before_anything_is_decided(driver: Driver, store: Store) -> None:
    """D48: the judge that waits would get the place of the new side, and nothing could follow from it."""
    heard: Heard = []

    def made(*names: str) -> Pattern[Any]:
        judge = Step(judging(lambda value: {"winner": "b"}, heard, driver), requires_approval=True)
        return debate(*(side(name, heard, driver) for name in names), judge=judge, rounds=1, name="d", store=store)

    asked = driver.invoke(made("a", "b"), "go").checkpoint
    with pytest.raises(AgentChanged, match="step judge is open, where c is due"):
        driver.resume(made("a", "b", "c"), asked, approved=True)
    assert "judge" not in [name for name, _ in heard]
    assert driver.resume(made("a", "b"), asked, approved=True).output == "b1"
