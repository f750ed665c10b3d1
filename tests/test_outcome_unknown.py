"""A body that cannot tell whether it took effect says so, and a human is asked; a model that loads slowly begins meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from drivers import Driver

from phronomy import Agent, OutcomeUnknown, Respond, Store, tool
from phronomy.testing import ScriptedModel, call


@pytest.mark.parametrize("answer", ["it ran", "run it again"])
def test_who_cannot_tell_has_a_human_asked(driver: Driver, store: Store, answer: str) -> None:
    tried: list[int] = []

    @tool(redact={"card"})
    def pay(card: str) -> str:
        """Pay."""
        tried.append(len(tried))
        if len(tried) == 1:
            raise OutcomeUnknown(f"the line went dead, with {card} on it")
        return "paid"

    agent = Agent(model=ScriptedModel.by_turn([call("pay", {"card": "4711"}), "Done."]), tools=[pay], store=store)
    result = driver.invoke(agent, "go")
    [item] = result.checkpoint.pending
    assert (item.why, item.reason) == (
        "outcome_unknown",
        "OutcomeUnknown: the line went dead, with [redacted] on it",
    )
    if answer == "it ran":
        result = driver.resume(agent, result.checkpoint, decisions={item.id: Respond(content="It is paid.")})
    else:
        result = driver.resume(agent, result.checkpoint, approved=True)
    assert (result.status, len(tried)) == ("completed", 1 if answer == "it ran" else 2)


def test_of_what_may_run_twice_nobody_is_asked(driver: Driver, store: Store) -> None:
    keys: list[str] = []

    @tool(idempotent=True, retries=1, retry_wait=0)
    def pay() -> str:
        """Pay."""
        keys.append("tried")
        if len(keys) == 1:
            raise OutcomeUnknown("the line went dead")
        return "paid"

    agent = Agent(model=ScriptedModel.by_turn([call("pay"), "Done."]), tools=[pay], store=store)
    assert (driver.invoke(agent, "go").status, len(keys)) == ("completed", 2)


def test_a_model_prepares_while_the_calls_run_before_it_is_asked(driver: Driver, store: Store) -> None:
    told: list[str] = []

    class Slow(ScriptedModel):
        def prepare(self) -> None:
            told.append("prepares")

    @tool
    def look() -> str:
        """Look."""
        told.append("looks")
        return "seen"

    agent: Agent[Any, Any] = Agent(model=Slow([call("look"), "Done."]), tools=[look], store=store)
    assert (driver.invoke(agent, "go").output, told) == ("Done.", ["prepares", "looks"])
