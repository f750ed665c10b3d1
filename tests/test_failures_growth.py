"""What went wrong in other systems, 101 and 102: storage that grows with the square of a run, and chains that load otherwise."""

from __future__ import annotations

import os
from typing import Any

import pytest
from drivers import Driver
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from places import Place
from selection import scaled
from test_failures_once import pays
from test_failures_stores import Shop, bare

from phronomy import Agent, Approve, Checkpoint, InvalidDecision, Reject, Respond
from phronomy.testing import ScriptedModel, call

pytestmark = [pytest.mark.unmeasured, pytest.mark.worlds(1)]


@pytest.fixture
def desk(driver: Driver, place: Place) -> Shop:
    return Shop(driver, place)


def sizes(desk: Shop, turns: int) -> tuple[int, int]:
    """How many characters there are in the database after so many turns, and in the longest row."""
    look = desk.tool("look", requires_approval=False)
    script = [[call("look", {"order": n}), *pays(n)] for n in range(turns)]
    desk.script([*script, "end"], desk.tool("pay"), look)
    store = desk.store()
    before = len(desk.rows())
    agent = desk.agent(store=store)
    result = desk.driver.invoke(agent, "x" * 500, thread_id=f"t{turns}")
    while result.suspended:
        result = desk.driver.resume(agent, result.checkpoint, approved=True)
    assert (result.status, len(result.messages)) == ("completed", 3 * turns + 2)
    bodies = [len(entry.body) for entry in store.lineage(branch_id=result.checkpoint.branch_id).entries]
    return len(desk.rows()) - before, max(bodies[1:])


def test_storage_grows_with_the_conversation_in_every_store(desk: Shop) -> None:
    """Twice the turns are twice the rows, and no row is longer for standing later. field failure 101"""
    sizes(desk, 1)
    short, longest = sizes(desk, 12)
    long, longest_of_long = sizes(desk, 24)
    assert 1.8 < long / short < 2.2
    assert longest_of_long < longest * 1.1


EDITED = Approve(args={"order": 7, "amount": 3})
ANSWERS = st.sampled_from(
    [
        Approve(),
        EDITED,
        Reject(reason="no"),
        Reject(then="block"),
        Respond(content={"a": [1.0, None]}),
    ]
)
TURNS = st.lists(st.lists(st.sampled_from(["pay", "look"]), max_size=3), min_size=1, max_size=4)


def walk(driver: Driver, agent: Agent[Any, str], first: Checkpoint, answers: list[Any]) -> list[Checkpoint]:
    """Every boundary of a run from the first on, as the process that made it had it in hand."""
    found = [first]
    while (last := found[-1]).ended is None:
        decisions: dict[str, Any] = {}
        if last.pending:
            waits = last.pending[len(found) % len(last.pending)]
            decisions = {"decisions": {waits.id: answers[len(found) % len(answers)]}}
        try:
            found.append(driver.step(agent, last, **decisions).checkpoint)
        except InvalidDecision:  # an edit makes of it the very call that was refused for good
            found.append(driver.step(agent, last, decisions={waits.id: Reject()}).checkpoint)
    return found


@settings(
    max_examples=scaled(2, sweep=5),
    phases=scaled((Phase.generate,), sweep=(Phase.explicit, Phase.generate)),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(
    turns=[["pay", "pay"], ["pay", "look", "pay"], ["pay", "pay", "pay"], []],
    answers=[Reject(then="block"), Reject(then="block"), EDITED, EDITED],
    fork=37,
)
@given(turns=TURNS, answers=st.lists(ANSWERS, min_size=1, max_size=4), fork=st.integers(0, 50))
def test_any_chain_loads_equal_at_each_prefix(desk: Shop, turns: Any, answers: Any, fork: int) -> None:
    """Through turns, decisions, forks and the next run of a thread: what is loaded is what was sealed. field failure 102"""
    replies = [[call(name, {"order": n}) for n, name in enumerate(turn)] or "hm" for turn in turns]
    desk.script([], desk.tool("pay"), desk.tool("look", requires_approval=False))
    desk.model = ScriptedModel.by_turn([*replies, "end"])
    agent, thread = desk.agent(), os.urandom(6).hex()

    chain: list[Checkpoint] = []
    for text in ("go", "and more"):
        begun = desk.driver.step(agent, text, thread_id=thread).checkpoint
        chain += walk(desk.driver, agent, begun, answers)
    chains = [chain]
    place = fork % len(chain)
    if chain[place].ended is None:
        forked = desk.driver.fork(agent, chain[place])
        chains.append([*chain[: place + 1], *walk(desk.driver, agent, forked, answers)])

    store = desk.store()
    for each in chains:
        for place, checkpoint in enumerate(each):
            loaded = store.load(checkpoint.id)
            assert bare(loaded) == bare(checkpoint)
            assert bare(loaded).digest == bare(checkpoint).digest
            assert [bare(one) for one in store.history(checkpoint.id)] == [bare(one) for one in each[: place + 1]]
