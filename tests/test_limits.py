"""Limits hold for the whole logical run, over all its resumes, and a human's time is in none of them. Law 13."""

from __future__ import annotations

from typing import Any

import pytest
from drivers import Driver, decide_first, rows

from phronomy import (
    Agent,
    ConfigurationError,
    InvalidField,
    LimitExceeded,
    Limits,
    MemoryStore,
    ModelReply,
    ModelRequest,
    Tool,
    Usage,
    tool,
)
from phronomy.engine import clock
from phronomy.testing import ScriptedModel, call, say


def look(ran: list[int], *, gated: bool = False) -> Tool:
    @tool(name="look", requires_approval=gated)
    def body(n: int = 0) -> str:
        """Look."""
        ran.append(n)
        return f"saw {n}"

    return body


def spent(*args: Any, **usage: Any) -> Any:
    """A reply that has cost this much."""
    return say("more", *args, usage=Usage(requests=1, **usage))


class Case:
    """An agent whose limits can be raised: another one of the same name and script goes on with it."""

    def __init__(self, *script: Any, gated: bool = False) -> None:
        self.model = ScriptedModel(script)
        self.store = MemoryStore()
        self.ran: list[int] = []
        self.tool = look(self.ran, gated=gated)

    def agent(self, **limits: Any) -> Agent[Any, Any]:
        limit = Limits(**limits)
        return Agent(name="a", model=self.model, tools=[self.tool], store=self.store, limits=limit)


def test_turns_are_counted_over_resumes(driver: Driver) -> None:
    case = Case(call("look", {"n": 1}), call("look", {"n": 2}), "done", gated=True)
    result = driver.invoke(case.agent(turns=2), "go")
    result = driver.resume(case.agent(turns=2), result.checkpoint, approved=True)
    with pytest.raises(LimitExceeded) as reached:
        driver.resume(case.agent(turns=2), result.checkpoint, approved=True)
    error = reached.value
    assert (error.limit, error.maximum, error.used, case.ran) == ("turns", 2, 2, [1, 2])
    assert "reached the limit turns=2: it used 2" in str(error)
    assert error.checkpoint is not None
    assert driver.resume(case.agent(turns=3), error.checkpoint).output == "done"
    assert case.ran == [1, 2]


def test_calls_are_counted_before_they_run(driver: Driver) -> None:
    case = Case(call("look", {"n": 1}), [call("look", {"n": 2}), call("look", {"n": 3})], "done")
    with pytest.raises(LimitExceeded) as reached:
        driver.invoke(case.agent(tool_calls=2), "go")
    error = reached.value
    assert (error.limit, error.maximum, error.used, case.ran) == ("tool_calls", 2, 3, [1])
    assert error.checkpoint is not None
    assert [each.status for each in error.checkpoint.calls] == ["new", "new"]
    assert driver.resume(case.agent(tool_calls=3), error.checkpoint).output == "done"
    assert sorted(case.ran) == [1, 2, 3]


def test_no_calls_at_all_may_be_allowed(driver: Driver) -> None:
    case = Case(call("look"), "done")
    with pytest.raises(LimitExceeded, match="tool_calls=0"):
        driver.invoke(case.agent(tool_calls=0), "go")
    assert case.ran == []


@pytest.mark.parametrize(
    "script",
    [
        [call("look", '{"n":1}'), call("look", '{ "n": 1 }'), call("look", '{"n": 1}')],
        [[call("look", '{"n":1}'), call("look", '{"n":1}')], call("look", '{"n":1}')],
        [call("look", "{oops"), call("look", "{oops"), call("look", "{oops")],
    ],
    ids=["one by one", "side by side", "not JSON"],
)
def test_a_model_that_makes_the_same_call_again_and_again_is_stopped(driver: Driver, script: list[Any]) -> None:
    case = Case(*script, "done")
    with pytest.raises(LimitExceeded) as reached:
        driver.invoke(case.agent(equal_calls=2), "go")
    assert (reached.value.limit, reached.value.used) == ("equal_calls", 3)
    assert reached.value.checkpoint is not None
    assert driver.resume(case.agent(equal_calls=3), reached.value.checkpoint).output == "done"


def test_equal_calls_count_only_in_a_row_and_only_in_this_run(driver: Driver) -> None:
    one, two = call("look", {"n": 1}), call("look", {"n": 2})
    case = Case(one, two, one, two, one, "done", one, one, "done again")
    agent = case.agent(equal_calls=2)
    assert driver.invoke(agent, "go", thread_id="t").output == "done"
    assert driver.invoke(agent, "go", thread_id="t").output == "done again"


def test_tokens_are_summed_over_resumes(driver: Driver) -> None:
    case = Case(spent(call("look"), input_tokens=60, output_tokens=5), "done", gated=True)
    waiting = driver.invoke(case.agent(tokens=65), "go").checkpoint
    with pytest.raises(LimitExceeded) as reached:
        driver.resume(case.agent(tokens=65), waiting, approved=True)
    assert (reached.value.limit, reached.value.used, case.ran) == ("tokens", 65, [0])
    assert reached.value.checkpoint is not None
    assert driver.resume(case.agent(tokens=66), reached.value.checkpoint).output == "done"


def test_cost_is_summed_and_what_is_not_known_counts_as_reached(driver: Driver) -> None:
    case = Case(spent(call("look"), cost=0.25), spent(call("look"), cost=0.5), "done")
    with pytest.raises(LimitExceeded) as reached:
        driver.invoke(case.agent(cost=0.75), "go")
    assert (reached.value.limit, reached.value.used) == ("cost", 0.75)
    assert reached.value.checkpoint is not None
    assert reached.value.checkpoint.usage.cost == 0.75

    case = Case(spent(call("look"), cost=0.25), spent(call("look")), "done")
    with pytest.raises(LimitExceeded, match="how much it used is not known") as reached:
        driver.invoke(case.agent(cost=100.0), "go")
    assert (reached.value.limit, reached.value.used, case.ran) == ("cost", None, [0, 0])
    assert reached.value.checkpoint is not None
    assert driver.resume(case.agent(), reached.value.checkpoint).output == "done"


def test_seconds_are_those_of_work_and_not_those_of_waiting(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "since", lambda started: 400)
    now = 1000.0
    case = Case(call("look"), "done", gated=True)
    case.store.clock = lambda: now
    waiting = driver.invoke(case.agent(seconds=0.8), "go").checkpoint
    now += 30 * 86_400
    with pytest.raises(LimitExceeded) as reached:
        driver.resume(case.agent(seconds=0.8), waiting, approved=True)
    assert (reached.value.limit, reached.value.used, case.ran) == ("seconds", 0.8, [0])
    assert reached.value.checkpoint is not None
    assert driver.resume(case.agent(seconds=0.9), reached.value.checkpoint).output == "done"


def test_no_call_is_begun_when_the_time_is_over(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "since", lambda started: 400)
    case = Case(call("look"), "done", gated=True)
    waiting = driver.invoke(case.agent(), "go").checkpoint
    with pytest.raises(LimitExceeded, match="seconds"):
        driver.resume(case.agent(seconds=0.4), waiting, approved=True)
    assert case.ran == []
    assert driver.recover(case.agent(seconds=1.0), waiting.run_id).output == "done"
    assert case.ran == [0]


def test_a_model_call_is_given_no_more_than_the_time_that_is_left(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "since", lambda started: 2000)
    case = Case(call("look"), "done")
    driver.invoke(case.agent(seconds=10), "go")
    assert [request.settings.timeout for request in case.model.requests] == [10, 6]


def test_a_limit_that_is_not_reached_changes_nothing(driver: Driver) -> None:
    case = Case(spent(call("look"), cost=0.1, input_tokens=5), spent(cost=0.1))
    limits = {"turns": 2, "tool_calls": 1, "equal_calls": 1, "tokens": 100, "cost": 1.0, "seconds": 3600.0}
    assert driver.invoke(case.agent(**limits), "go").output == "more"


@pytest.mark.parametrize(
    "wrong",
    [
        {"turns": 0},
        {"turns": "3"},
        {"tool_calls": -1},
        {"equal_calls": 0},
        {"tokens": 0},
        {"cost": -0.1},
        {"seconds": 0},
    ],
    ids=str,
)
def test_a_limit_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidField):
        Limits(**wrong)


def test_limits_are_limits() -> None:
    with pytest.raises(ConfigurationError, match="limits is a Limits, not dict"):
        Agent(model=ScriptedModel(["x"]), limits={"turns": 3}).invoke("go")  # type: ignore[typeddict-item]


def test_a_call_that_waits_is_left_alone_by_a_limit_of_the_calls_beside_it(driver: Driver) -> None:
    """What is pending can be decided, whatever else is used up."""
    case = Case([call("look", {"n": 1}), call("look", {"n": 2})], "done", gated=True)
    waiting = driver.invoke(case.agent(tool_calls=2, equal_calls=2), "go").checkpoint
    before = rows(case.store)
    assert len(waiting.pending) == 2
    result = driver.resume(case.agent(tool_calls=1), waiting, decisions=decide_first(waiting))
    assert (result.status, case.ran, rows(case.store) != before) == ("suspended", [1], True)


class Timed:
    """A model that says how it was asked."""

    name = "timed"

    def __init__(self) -> None:
        self.timeouts: list[float | None] = []

    def complete(self, request: ModelRequest) -> ModelReply:
        self.timeouts.append(request.settings.timeout)
        return ScriptedModel(["done"]).complete(request)

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        return self.complete(request)


def test_a_shorter_timeout_of_the_settings_stands(driver: Driver) -> None:
    from phronomy import ModelSettings

    model = Timed()
    agent = Agent(name="a", model=model, limits=Limits(seconds=10), settings=ModelSettings(timeout=1.5))
    driver.invoke(agent, "go")
    driver.invoke(agent, "go", settings=ModelSettings(timeout=99.0))
    assert model.timeouts == [1.5, 10]


def test_usage_counts_though_a_model_does_not_say_that_it_was_asked(driver: Driver) -> None:
    """A model of one's own may tell tokens and cost, and leave the number of requests at 0."""
    costs = Usage(input_tokens=60, output_tokens=40, cost=1.0)
    for limit in (Limits(tokens=250), Limits(cost=2.5)):
        inner = Agent(name="clerk", model=ScriptedModel.by_turn([say("Looked.", usage=costs)]), tools=[])
        outer = ScriptedModel([say("", call("ask", {"message": "?"}), usage=costs)] * 5)
        desk = Agent(name="desk", model=outer, tools=[inner.as_tool("ask", "Ask the clerk.")], limits=limit)
        with pytest.raises(LimitExceeded) as caught:
            driver.invoke(desk, "go")
        assert caught.value.checkpoint.usage.total_tokens == 300
        assert caught.value.checkpoint.usage.cost == 3.0
