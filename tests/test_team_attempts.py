"""Retries and timeouts of steps of patterns and of members of a team; ids in docstrings are of Directive's behaviours.

What an attempt is, and how long, is in `test_graph_attempts.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from drivers import Driver
from pattern_scenes import payer

from phronomy import (
    Agent,
    Approve,
    ConfigurationError,
    GoalNode,
    ModelConnectionError,
    NodeFailed,
    Orchestrator,
    Reject,
    Result,
    Step,
    Store,
    debate,
    goal,
    sequential,
)
from phronomy.testing import ScriptedModel

Make = Callable[[Any, Store, dict[str, Any]], tuple[Any, Callable[[Driver], Result[Any]]]]
"""Makes an app in which an agent works with these options, and what runs it."""


def _step(agent: Any, store: Store, options: dict[str, Any]) -> Any:
    pattern = sequential(Step(agent, **options), str.strip, name="p", store=store)
    return pattern, lambda driver: driver.invoke(pattern, "go")


def _side(agent: Any, store: Store, options: dict[str, Any]) -> Any:
    pattern = debate(Step(agent, **options), str.upper, judge=lambda given: {}, rounds=1, name="p", store=store)
    return pattern, lambda driver: driver.invoke(pattern, "go")


def _member(agent: Any, store: Store, options: dict[str, Any]) -> Any:
    team = Orchestrator([Step(agent, **options)], store=store)
    return team, lambda driver: driver.call(team, "run", "go")


def _pattern(agent: Any, store: Store, options: dict[str, Any]) -> Any:
    other = Agent(name="other", model=ScriptedModel([]))
    line = Step(sequential(agent, name="line"), **options)
    team = Orchestrator({"other": other}, patterns={"line": line}, store=store)
    return team, lambda driver: driver.call(team, "run_pattern", "line", "go")


MAKES: dict[str, Make] = {"step": _step, "side": _side, "member": _member, "pattern": _pattern}


def failing(times: int) -> Agent[Any, Any]:
    """An agent whose model is down so often."""
    return Agent(name="a", model=ScriptedModel([ModelConnectionError("down")] * times + ["up"]))


@pytest.mark.parametrize("kind", MAKES)
def test_a_step_that_fails_goes_on_in_another_attempt(driver: Driver, store: Store, kind: str) -> None:
    app, start = MAKES[kind](failing(2), store, {"retries": 2, "retry_wait": 0})
    assert start(driver).output == "up"
    app, start = MAKES[kind](failing(3), store, {"retries": 2, "retry_wait": 0})
    with pytest.raises(NodeFailed) as raised:
        start(driver)
    assert driver.resume(app, raised.value.checkpoint).output == "up"


@pytest.mark.parametrize("kind", MAKES)
def test_what_a_human_refuses_is_not_tried_again(driver: Driver, store: Store, kind: str) -> None:
    """W4, DIR-A18, DIR-A04: with three retries there is one request, and nobody else does the work."""
    paid: list[str] = []
    app, start = MAKES[kind](payer("ann", paid), store, {"retries": 3, "retry_wait": 0})
    asked = start(driver).checkpoint
    [item] = asked.pending
    ended = driver.resume(app, asked, decisions={item.id: Reject(reason="no", then="end")})
    assert (ended.status, ended.checkpoint.pending, paid) == ("rejected", (), [])
    assert len(list(store.audit(run_id=ended.run_id))) == 1
    asked = start(driver).checkpoint
    assert driver.cancel(app, asked, reason="enough").status == "cancelled"
    assert (store.pending_rows(), paid) == ([], [])
    asked = start(driver).checkpoint
    assert driver.resume(app, asked, decisions={asked.pending[0].id: Approve()}).output == "ann paid"


def test_a_pattern_that_goes_on_without_a_failed_step_tries_it_again_first(driver: Driver, store: Store) -> None:
    lax = sequential(Step(failing(1), retries=1, retry_wait=0), on_error="skip", store=store)
    assert driver.invoke(lax, "go").output == "up"
    gone = sequential(Step(failing(2), retries=1, retry_wait=0), str.upper, on_error="skip", store=store)
    assert driver.invoke(gone, "go").output == "GO"
    node = GoalNode(failing(3), produces=["a"], retries=1, retry_wait=0)
    finder = goal({"a": node}, until=lambda facts: "a" in facts, store=store)
    result = driver.invoke(finder, {})
    assert (result.output["facts"], finder.state_of(result.checkpoint).noted["rounds"]) == ({"a": "up"}, 2)


def test_a_timeout_is_of_one_attempt(driver: Driver, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """W10: of its work alone; a human who takes a day takes nothing of it."""
    monkeypatch.setattr("phronomy.engine.clock.since", lambda started: 400)
    now = [1000.0]
    store.clock = lambda: now[0]
    for kind in ("step", "member"):
        paid: list[str] = []
        app, start = MAKES[kind](payer("ann", paid), store, {"timeout": 1.3})
        asked = start(driver).checkpoint
        now[0] += 86_400
        assert driver.resume(app, asked, approved=True).output == "ann paid"
        app, start = MAKES[kind](payer("ann", paid), store, {"timeout": 0.5})
        asked = start(driver).checkpoint
        with pytest.raises(NodeFailed, match=r"timeout=0\.5"):
            driver.resume(app, asked, approved=True)
        assert paid == ["ann", "ann"]


@pytest.mark.parametrize("options", [{"retrys": 1}, {"requires_approval": True}, {"transform": len}, {"retries": -1}])
def test_what_a_member_cannot_be_given_is_refused(options: Any) -> None:
    agent = failing(0)
    for make in (
        lambda: Orchestrator([Step(agent, **options)]),
        lambda: Orchestrator({"a": Step(agent, **options)}),
        lambda: Orchestrator([agent], patterns={"p": Step(sequential(agent), **options)}),
    ):
        with pytest.raises(ConfigurationError):
            make()
