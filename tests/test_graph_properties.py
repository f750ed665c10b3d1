"""Random graphs: however often they stop, are killed, are moved and are forked, they end as the same graph that never stopped."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any

import pytest
from drivers import DRIVERS, Driver, run
from graph_maker import GraphPlan, Pick, World, build, builder, compiled, draw_graph, graphs, saying
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phronomy import Checkpoint, MemoryStore, NodeFailed, Store
from phronomy._rules import current
from phronomy.graph import Graph
from phronomy.graph._joins import channels_in

MAX_EFFECTS = 80
"""A graph that does more than that is left out: it is no other, only longer."""


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: Any) -> Driver:
    found: Driver = request.param
    return found


@dataclass(frozen=True)
class End:
    """What a run has come to: its status, its state at each turn, and what was done on the way."""

    status: str | None
    states: dict[int, str]
    effects: Counter[tuple[str, str]]


def reference(plan: GraphPlan, driver: Driver) -> End:
    """The end of a graph that never stops: gates and questions are answered at once, and there are no breakpoints."""
    world, store = World(immediate=True), MemoryStore()
    graph = build(plan, world, store=store, is_async=driver.is_async)
    result = driver.invoke(graph, {"total": 1})
    assert not result.checkpoint.pending
    return end_of(store, result.checkpoint, world)


def end_of(store: Store, last: Checkpoint, world: World) -> End:
    """What is known of a run that has ended. Along the way there is one line of checkpoints, and one state for each turn."""
    history = [each for each in store.history(last.id) if each.run_id == last.run_id]
    assert [each.parent_id for each in history[1:]] == [each.id for each in history[:-1]]
    states: dict[int, str] = {}
    for each in history:
        text = channels_in(each.json_text("state"))
        assert states.setdefault(each.turn, text) == text
    assert list(states) == list(range(min(states), max(states) + 1))
    return End(last.ended, states, world.effects)


def the_same(found: End, wanted: End, *, since: int = 0) -> None:
    """The same end, by the same states. A gate behind the last node makes a wave of its own, which changes nothing."""
    turns = sorted(found.states)
    assert found.status == wanted.status
    assert found.states[turns[-1]] == wanted.states[max(wanted.states)]
    assert {turn: found.states[turn] for turn in turns if turn <= max(wanted.states)} == {
        turn: state for turn, state in wanted.states.items() if turn >= turns[0]
    }
    assert found.effects == wanted.effects


class Journey:
    """One run of a plan, taken along in many processes: each has a graph of its own, and knows only what was stored or exported."""

    def __init__(self, plan: GraphPlan, driver: Driver, pick: Pick) -> None:
        self.plan, self.driver, self.pick = plan, driver, pick
        self.world = World()
        self.store: Store = MemoryStore()
        self.trust: str | None = None
        self.stops = self.moves = self.partial = self.failures = self.processes = 0
        self.builder = builder(plan, self.world, is_async=driver.is_async)
        self.apply = compiled(plan, self.world, self.builder).spec.apply

    def graph(self) -> Graph[Any, Any]:
        """The graph, as another process has it. To build it costs more than all that it does, so that is not done each time."""
        if self.pick(4) == 0:
            self.builder = builder(self.plan, self.world, is_async=self.driver.is_async)
        self.processes += 1
        options: Any = {"store": self.store} if self.trust is None else {"store": self.store, "trust": self.trust}
        return compiled(self.plan, self.world, self.builder, **options)

    def travel(self) -> End:
        """From the beginning to the end."""
        at = self.taken(lambda graph: self.go(graph, {"total": 1}))
        for _ in range(400):
            self.check(at)
            if at.ended:
                return end_of(self.store, at, self.world)
            at = self.further(at)
        raise AssertionError("the run does not end")

    def further(self, at: Checkpoint) -> Checkpoint:
        """Answer some of what waits, if anything does, and go on, in another process."""
        if at.journal and at.status != "failed":  # somebody left in the middle: what waits is not in the checkpoint yet
            place = self.moved(at)
            return self.taken(lambda graph: self.driver.recover(graph, place).checkpoint)
        self.stops += bool(at.pending)
        items = list(at.pending)
        for place in range(len(items) - 1, 0, -1):
            other = self.pick(place + 1)
            items[place], items[other] = items[other], items[place]
        some = items[: 1 + self.pick(len(items))] if items else []
        self.partial += len(some) < len(items)
        decisions = {item.id: saying(self.plan, self.world, at, item) for item in some}
        place, options = self.moved(at), {"decisions": decisions} if decisions else {}
        if decisions and all(item.why == "breakpoint" for item in items) and self.pick(2):
            some, options = items, {}
        self.world.allow(item.id for item in some)
        after = self.taken(lambda graph: self.go(graph, place, **options))
        left = {item.id for item in items} - {item.id for item in some}
        if not after.ended:
            assert left <= {item.id for item in after.pending}, "what was not answered waits under another id"
        return after

    def moved(self, at: Checkpoint) -> Checkpoint | str:
        """The checkpoint as it is handed on: itself, its id, its text; or its text alone, to where nobody knows it."""
        how = self.pick(4)
        if how == 0:
            return at
        if how == 1:
            return at.id
        text = at.model_dump_json()
        if how == 3 and self.pick(2):
            self.store, self.trust = MemoryStore(), "bearer"
            self.moves += 1
        return Checkpoint.model_validate_json(text)

    def go(self, graph: Graph[Any, Any], at: Any, **options: Any) -> Checkpoint:
        """Go on: to the next stop, by one step, or for as long as somebody watches."""
        how = self.pick(4)
        if how == 1 and not isinstance(at, str):
            return self.driver.step(graph, at, **options).checkpoint
        if how == 2 and not isinstance(at, str):
            return self.watched(graph, at, 1 + self.pick(6), options)
        if isinstance(at, dict):
            return self.driver.invoke(graph, at).checkpoint
        return self.driver.resume(graph, at, **options).checkpoint

    def watched(self, graph: Graph[Any, Any], at: Any, events: int, options: Any) -> Checkpoint:
        """Go on by a stream that is left after so many events."""
        if self.driver.is_async:

            async def watch() -> None:
                async with aclosing(graph.astream(at, **options)) as stream:
                    seen = 0
                    async for _ in stream:
                        seen += 1
                        if seen == events:
                            break

            run(watch())
        else:
            with closing(graph.stream(at, **options)) as stream:
                for _ in range(events):
                    if next(stream, None) is None:
                        break
        [branch] = self.store.branches()
        return self.store.head(branch.id)[1]

    def taken(self, act: Callable[[Graph[Any, Any]], Checkpoint]) -> Checkpoint:
        """Where the run stands after an act of a new process."""
        try:
            return act(self.graph())
        except NodeFailed as error:
            self.failures += 1
            assert error.checkpoint is not None
            return error.checkpoint

    def check(self, at: Checkpoint) -> None:
        """What holds at every stop."""
        state = current(at, self.apply)
        ids = [item.id for item in state.pending]
        assert len({*ids}) == len(ids)
        assert "outcome_unknown" not in {item.why for item in state.pending}
        [branch] = self.store.branches()
        if branch.status != "failed":
            assert sorted(item.approval.id for item in self.store.pending()) == sorted(ids)
        for part in (state, *at.nested):
            calls = part.calls
            if any(call.tool is not None and call.tool.source == "after" and call.result is None for call in calls):
                assert not [call.name for call in calls if call.status == "started"]


COUNTED: Counter[str] = Counter()


@given(plan=graphs(), data=st.data())
@settings(max_examples=150, suppress_health_check=list(HealthCheck), derandomize=True)
def journeys(driver: Driver, plan: GraphPlan, data: st.DataObject) -> None:
    wanted = reference(plan, driver)
    if wanted.effects.total() > MAX_EFFECTS:
        return
    journey = Journey(plan, driver, lambda count: data.draw(st.integers(0, count - 1)))
    found = journey.travel()
    journey.world.check()
    the_same(found, wanted)
