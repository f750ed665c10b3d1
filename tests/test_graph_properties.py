"""Random graphs: however often they stop, are killed, are moved and are forked, they end as the same graph that never stopped."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from drivers import DRIVERS, PATIENCE, Around, Driver, calls_ended, run
from graph_maker import Died, Fuse, GraphPlan, Pick, World, build, builder, compiled, draw_graph, graphs, saying, tally
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from selection import scaled

from phronomy import Checkpoint, MemoryStore, NodeFailed, Result, SQLiteStore, Store
from phronomy.graph import Graph
from phronomy.graph.flow.inside import update_from
from phronomy.graph.flow.node import Inside
from phronomy.graph.state.joins import channels_in
from phronomy.records.calls import CallSettled
from phronomy.rules import authorization
from phronomy.rules.transitions import current
from phronomy.stores.derived.kept_texts import whole_lineage
from phronomy.stores.log.log import rows_of
from phronomy.stores.log.row_delta import outcome_from
from phronomy.stores.rows import Append, Branch, Claim, Entry, Lineage

pytestmark = pytest.mark.unmeasured

FORKED = ["test_graph_properties"]

HOUR = 3600.0

MAX_EFFECTS = 80
"""A graph that does more than that is left out: it is no other, only longer."""


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
        self.counted: Counter[str] = Counter()
        self.builder = builder(plan, self.world, is_async=driver.is_async)
        self.apply = compiled(plan, self.world, self.builder).spec.apply

    def graph(self) -> Graph[Any, Any]:
        """The graph, as another process has it. To build it costs more than all that it does, so that is not done each time."""
        if self.pick(4) == 3:
            self.builder = builder(self.plan, self.world, is_async=self.driver.is_async)
        self.counted["processes"] += 1
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
        self.counted["stops"] += bool(at.pending)
        items = list(at.pending)
        for place in range(len(items) - 1, 0, -1):
            other = self.pick(place + 1)
            items[place], items[other] = items[other], items[place]
        some = items[: 1 + self.pick(len(items))] if items else []
        self.counted["stops answered in part"] += len(some) < len(items)
        decisions = {item.id: saying(self.plan, self.world, at, item) for item in some}
        place, options = self.moved(at), {"decisions": decisions} if decisions else {}
        if any(item.why == "breakpoint" for item in items) and self.pick(2):  # to go on answers these, and nothing else
            some, options = [item for item in items if item.why == "breakpoint"], {}
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
            self.counted["moves to another store"] += 1
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
            self.counted["failures"] += 1
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
                nodes = [call for call in calls if call.tool is None or call.tool.source != "after"]
                assert not [call.name for call in nodes if call.status in ("started", "nested", "failed")]
                assert not [call.name for call in nodes if call.result is not None and call.result.kind == "completed"]


PLANS = scaled(8, sweep=20)
"""So many graphs are drawn for each driver."""

REPLAYED, EVERY = scaled((3, 25), sweep=(6, 8))
"""So many graphs are replayed and forked; of the places of a graph that is killed, so many make one that is tried."""

LOST = scaled({"sync": (1114,), "async": (1157,)}, sweep={"sync": (1114,), "async": (994,)})
"""Seeds of graphs that are lost at every place: small, with most of what a graph may have, nested to depth 3."""

KILLED = scaled({"sync": (994,), "async": (563,)}, sweep={"sync": (1157,), "async": (1114,)})
"""Seeds of graphs that are killed."""

PLAN = st.one_of(graphs(), st.integers(0, 1_000_000).map(lambda seed: draw_graph(random.Random(seed).randrange)))
"""Graphs that shrink well, and graphs that are as large as they come."""


@pytest.mark.few(1)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_however_a_graph_stops_and_goes_on_it_ends_as_one_that_never_stopped(
    is_async: bool, record_property: Callable[[str, object], None]
) -> None:
    """EIN and CMP scenarios at random: breakpoints, gates, questions, signals and failures at any depth, answered in any order."""
    driver = DRIVERS[is_async]
    counted: Counter[str] = Counter()

    @settings(max_examples=PLANS, deadline=None, suppress_health_check=list(HealthCheck))
    @given(plan=PLAN, way=st.integers(0, 1_000_000))
    def journeys(plan: GraphPlan, way: int) -> None:
        wanted = reference(plan, driver)
        assume(wanted.effects.total() <= MAX_EFFECTS)
        journey = Journey(plan, driver, random.Random(way).randrange)
        the_same(journey.travel(), wanted)
        journey.world.check()
        counted.update(graphs=1, nodes=len(plan.all_nodes()), effects=wanted.effects.total(), **journey.counted)

    journeys()
    record_property("told", f"random graphs, {driver}: {', '.join(f'{n} {what}' for what, n in counted.items())}")
    assert counted["stops"] > PLANS


# Killed


class Mortal(Around):
    """A store that a process dies at: before a write, or after it. A dead process writes and reads nothing."""

    fuse = Fuse()

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        self.fuse.place()
        super().create(branch, change, exclusive=exclusive)
        self.fuse.place()

    def append(self, change: Append) -> Branch:
        self.fuse.place()
        branch = super().append(change)
        self.fuse.place()
        return branch

    def release(self, claim: Claim, status: Any = None) -> None:
        self.fuse.place()
        super().release(claim, status)
        self.fuse.place()

    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Lineage:
        if self.fuse.burnt:
            raise Died
        return super().lineage(checkpoint_id=checkpoint_id, branch_id=branch_id)


def carry_on(plan: GraphPlan, world: World, store: Store, graph: Graph[Any, Any], driver: Driver) -> End:
    """Take a run as far as it goes, from wherever it stands."""
    branches = store.branches()
    at = taken(lambda: driver.recover(graph, branches[0].run_id) if branches else driver.invoke(graph, {"total": 1}))
    return drive_on(plan, world, graph, driver, at)


def drive_on(plan: GraphPlan, world: World, graph: Graph[Any, Any], driver: Driver, at: Checkpoint) -> End:
    """Take a run to its end, with a human who looks before he answers."""
    while not at.ended:
        items = at.pending
        decisions = {item.id: saying(plan, world, at, item) for item in items[-2:]}
        world.allow(decisions)
        here = at.id
        at = taken(lambda: driver.resume(graph, here, decisions=decisions or None))  # noqa: B023
    return end_of(graph.store, at, world)


def taken(act: Callable[[], Result[Any]]) -> Checkpoint:
    """Where a run stands after an act."""
    try:
        return act().checkpoint
    except NodeFailed as error:
        assert error.checkpoint is not None
        return error.checkpoint


def seeded(seeds: Iterable[int], driver: Driver) -> Iterator[tuple[int, GraphPlan, End]]:
    """Plans of a handful of effects, and how they end."""
    for seed in seeds:
        plan = draw_graph(random.Random(seed).randrange)
        wanted = reference(plan, driver)
        if 2 <= wanted.effects.total() <= 20:
            yield seed, plan, wanted


@pytest.mark.sweep
@pytest.mark.parametrize("driver", DRIVERS, ids=str)
def test_a_graph_whose_process_is_lost_anywhere_ends_as_one_that_was_never_lost(
    driver: Driver, record_property: Callable[[str, object], None]
) -> None:
    """Before and after each write, and each effect, of each graph."""
    lost = found = 0
    for seed, plan, wanted in seeded(LOST[driver.name], driver):
        world = World()
        built = builder(plan, world, is_async=driver.is_async)
        for at in itertools.count(1):
            world.told, now = [], [1_700_000_000.0]
            store = MemoryStore(clock=lambda now=now: now[0])
            for fuse in (Fuse(at), Fuse()):
                here = Mortal(store)
                here.fuse = world.fuse = fuse
                graph = compiled(plan, world, built, store=here)
                with suppress(Died):
                    end = carry_on(plan, world, here, graph, driver)
                calls_ended()
                now[0] += HOUR
            the_same(end, wanted)
            world.check()
            if fuse.passed == 0:
                break
            lost += 1
        found += 1
        assert at > 10, seed
    record_property("told", f"lost graphs, {driver}: {found} graphs, {lost} places")
    assert found == len(LOST[driver.name])


class Killed(Mortal):
    """As `Mortal`, in a process of its own, over a file."""

    def __init__(self, folder: Path, fuse: Fuse, later: float) -> None:
        super().__init__(SQLiteStore(folder / "runs.db", clock=lambda: time.time() + later, synchronous="OFF"))
        self.fuse = fuse


def live(folder: str, seed: int, driver: Driver, kill_at: int | None, later: float) -> None:
    """What a process does with the graph of a seed, up to the place where it is killed."""
    place, fuse = Path(folder), Fuse(kill_at, kills=True)
    plan, world = draw_graph(random.Random(seed).randrange), World(file=place / "world", fuse=fuse)
    store = Killed(place, fuse, later)
    with closing(store.inner):
        carry_on(plan, world, store, build(plan, world, store=store, is_async=driver.is_async), driver)


@pytest.fixture(scope="module")
def processes() -> Any:
    return multiprocessing.get_context("forkserver")


@pytest.mark.few(1)
@pytest.mark.usefixtures("fresh_fork_server")
@pytest.mark.parametrize("driver", DRIVERS, ids=str)
def test_a_graph_whose_process_is_killed_ends_as_one_that_was_never_killed(
    processes: Any, tmp_path: Path, driver: Driver, record_property: Callable[[str, object], None]
) -> None:
    """SIGKILL, and another process that knows no more than the file of the store. A place is a write or an effect, before or after."""
    kills = 0
    for seed, plan, wanted in seeded(KILLED[driver.name], driver):
        for kill_at in range(1 + seed % EVERY, 10_000, EVERY):
            folder = tmp_path / f"{seed}-{kill_at}"
            folder.mkdir()
            process = processes.Process(target=live, args=(str(folder), seed, driver, kill_at, 0.0))
            process.start()
            process.join(PATIENCE)
            if process.exitcode == 0:
                break
            assert process.exitcode == -signal.SIGKILL
            kills += 1
            world, store = World(file=folder / "world"), Killed(folder, Fuse(), HOUR)
            with closing(store.inner):
                end = carry_on(plan, world, store, build(plan, world, store=store, is_async=driver.is_async), driver)
                the_same(end, wanted)
            world.check()
    record_property("told", f"killed graphs, {driver}: {len(KILLED[driver.name])} graphs, {kills} kills")
    assert kills > scaled(1, sweep=10)


# Replayed and forked


REDUCERS: dict[str, Callable[[Any, Any], Any]] = {
    "log": lambda old, new: old + new,
    "facts": lambda old, new: {**old, **new},
    "total": lambda old, new: old + new,
    "visits": tally,
    "best": max,
    "own": lambda old, new: new,
}
"""How each channel is reduced, told a second time."""


def reduced(state: dict[str, Any], update: dict[str, Any]) -> dict[str, Any]:
    """The state with an update."""
    return state | {name: REDUCERS[name.partition("_")[0]](state[name], value) for name, value in update.items()}


def rebuilt(spec: Any, entries: Sequence[Entry], path: str) -> Iterator[tuple[Checkpoint, dict[str, Any]]]:
    """Each checkpoint at a path, with the state that the updates of the log give, from the first on."""
    settled: dict[str, Any] = {}
    before: Checkpoint | None = None
    state: dict[str, Any] = {}
    rows = (row for row in rows_of(entries) if row.path == path)
    for entry in entries:
        if entry.path != path:
            continue
        if entry.checkpoint_id is None:
            outcome = outcome_from(entry.body)
            if isinstance(outcome, CallSettled):
                settled[outcome.id] = outcome.result
            continue
        row = next(rows)
        if before is None or row.turn == 0:
            state = reduced(json.loads(spec.schema.initial()), row.original_input)
        elif row.turn > before.turn:
            said = {decision.pending_id: decision for decision in row.decisions if decision.kind == "respond"}
            for call in before.calls:
                update: Any = {}
                if call.id in settled and settled[call.id].kind == "completed" and call.name in spec.nodes:
                    node, content = spec.nodes[call.name], settled[call.id].content
                    inner = isinstance(node, Inside)
                    update = json.loads(update_from(spec, node, before, call, content) if inner else content)
                    update = update if inner else update["update"]
                elif call.result is not None and call.result.kind == "completed" and call.name in spec.nodes:
                    raise AssertionError("a result that is not in the journal")
                elif call.pending_id in said:
                    update = said[call.pending_id].content
                state = reduced(state, update)
        before = row
        yield row, state


@pytest.mark.few(1)
@pytest.mark.parametrize("driver", DRIVERS, ids=str)
def test_a_run_is_rebuilt_from_its_log_and_its_forks_end_alike_and_repeat_nothing(
    driver: Driver, record_property: Callable[[str, object], None]
) -> None:
    counted: Counter[str] = Counter()
    for _, plan, wanted in islice(seeded(itertools.count(300), driver), REPLAYED):
        world, store = World(), MemoryStore()
        graph = build(plan, world, store=store, is_async=driver.is_async)
        the_same(end := carry_on(plan, world, store, graph, driver), wanted)
        [branch] = store.branches()
        entries = whole_lineage(store, branch_id=branch.id).entries

        checked = 0
        for path, spec in specs_of(graph.spec, entries):
            for row, state in rebuilt(spec, entries, path):
                assert json.loads(channels_in(row.json_text("state"))) == state
                checked += 1
        assert checked >= len(end.states)

        world.check()
        before = repr(entries)
        asking = {node.name for node in plan.all_nodes() if node.asks} | {
            f"{node.name}_ask" for node in plan.all_nodes() if "ask" in node.tools
        }
        for place in store.history(branch.head or ""):
            if place.ended:
                continue
            done = len(world.lines("act"))
            head = driver.fork(graph, place)
            hidden = waiting(place) - waiting(head)
            outer = [item.path for item in head.pending if item.why == "approval"]
            asked = [[path for path in outer if at != path and at.startswith(path)] for at, _, _ in hidden]
            assert all(asked), "a fork asks for all that was waited for, or for the approved call around it"
            assert {item.id for item in place.pending}.isdisjoint(item.id for item in head.pending)
            forked = drive_on(plan, world, graph, driver, head)
            again = world.lines("act")[done:]
            assert (forked.status, forked.states[max(forked.states)]) == (end.status, end.states[max(end.states)])
            # A question is asked anew in a fork, and who asks it runs with the new answer. Nothing else is done again.
            assert {line["name"] for line in again} <= asking
            settled = {
                authorization.idempotency_key(part, call)
                for part in (place, *place.nested)
                for call in part.calls
                if call.result is not None
            }
            assert settled.isdisjoint(line["key"] for line in again)
            assert len({line["key"] for line in again}) == len(again)
            counted["forks"] += 1
        assert world.lines("wrong") == []
        assert repr(whole_lineage(store, branch_id=branch.id).entries) == before
        counted.update(graphs=1, states=checked)
    record_property("told", f"replayed graphs, {driver}: {', '.join(f'{n} {what}' for what, n in counted.items())}")


def waiting(at: Checkpoint) -> Counter[tuple[str, str, str]]:
    """What waits, but for questions: they are asked anew."""
    return Counter((item.path, item.tool_name, item.why) for item in at.pending if item.why != "question")


def specs_of(spec: Any, entries: Sequence[Entry]) -> Iterator[tuple[str, Any]]:
    """The paths of the graphs in a log, with the rules of each."""
    names = {(row.path, call.id): call.name for row in rows_of(entries) for call in row.calls}
    for path in {row.path: None for row in rows_of(entries) if row.kind == "graph"}:
        here, found = spec, ""
        for id in path.split("/") if path else ():
            here = here.nodes[names[found, id]].inner.spec
            found = f"{found}/{id}".lstrip("/")
        yield path, here
