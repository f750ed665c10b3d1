"""Whatever is done to the run of a graph, in whatever order: it answers or refuses by a typed error, and nothing comes apart."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from drivers import ASYNC, SYNC, Driver
from graph_maker import GraphPlan, World, builder, compiled, draw_graph, saying, state_of
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from selection import scaled

from phronomy import (
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointError,
    InvalidDecision,
    LeaseLost,
    MemoryStore,
    NothingDecided,
    Reject,
    Respond,
    RunBusy,
    RunFailed,
    StoreError,
    ThreadBusy,
    UnknownPending,
)
from phronomy.graph import StateGraph
from phronomy.records.checkpoint import decode, encode
from phronomy.rules.transitions import current
from phronomy.stores.rows import ENDED, OPEN, Append, Branch

pytestmark = pytest.mark.unmeasured

HOUR = 3600.0

REFUSED = (CheckpointAlreadyResumed, NothingDecided, UnknownPending, InvalidDecision)
"""What a decision is refused by, with nothing done."""

FAILED = (RunFailed, StoreError, LeaseLost)
"""What a run fails by, and can be carried on after."""


def plans() -> list[GraphPlan]:
    """Graphs of a handful of nodes, each of which stops somewhere."""
    found: list[GraphPlan] = []
    for seed in range(2000):
        plan = draw_graph(random.Random(seed).randrange)
        nodes = plan.all_nodes()
        if 3 <= len(nodes) <= 6 and any(node.asks or node.gate != "never" for node in nodes):
            found.append(plan)
    wanted = (
        lambda plan: any(node.inner for node in plan.nodes),
        lambda plan: any(node.kind == "agent" and node.tools for node in plan.nodes),
        lambda plan: any(route.kind == "send" for route in plan.routes),
        lambda plan: any(route.kind == "loop" for route in plan.routes),
        lambda plan: any(node.fails for node in plan.nodes),
        lambda plan: any(node.signal for node in plan.nodes),
        lambda plan: plan.joins,
        lambda plan: plan.before and plan.after,
    )
    return [[plan for plan in found if has(plan)][number] for has in wanted for number in (0, 1)]


PLANS = plans()


class Lossy(MemoryStore):
    """A store whose next write may fail before it is made, or after it: then only the answer is lost."""

    fault: str | None = None

    def append(self, change: Append) -> Branch:
        fault, self.fault = self.fault, None
        if fault == "before":
            raise StoreError("the disk is full")
        branch = super().append(change)
        if fault == "after":
            raise StoreError("the answer was lost")
        return branch


class Life(RuleBasedStateMachine):
    """One thread of runs of a graph, with everything that can happen to it."""

    driver: Driver = SYNC

    @initialize(plan=st.sampled_from(PLANS))
    def begin(self, plan: GraphPlan) -> None:
        self.plan = plan
        self.now = 1_700_000_000.0
        self.world = World()
        self.store = Lossy(clock=lambda: self.now)
        self.known: list[Checkpoint] = []
        self.another_process()

    @rule()
    def another_process(self) -> None:
        """Nothing is left but what the store has, and what was exported."""
        built: StateGraph[Any] = builder(self.plan, self.world, is_async=self.driver.is_async)
        self.graph = compiled(self.plan, self.world, built, store=self.store)
        self.known = [decode(encode(checkpoint)) for checkpoint in self.known]

    def do(self, method: str, *args: Any, **options: Any) -> Any:
        """Call the method, and note the checkpoint. What may go wrong comes back; whatever else is raised is a defect."""
        try:
            result = self.driver.call(self.graph, method, *args, **options)
        except FAILED as error:
            if isinstance(error, RunFailed) and error.checkpoint is not None:
                self.known.append(error.checkpoint)
            return error
        except RunBusy as error:
            self.now += HOUR
            return error
        self.known.append(result if isinstance(result, Checkpoint) else result.checkpoint)
        return result

    def heads(self) -> list[Checkpoint]:
        """Where the runs stand that have not ended."""
        return [self.store.head(branch.id)[1] for branch in self.store.branches() if branch.status in OPEN]

    @precondition(lambda self: not self.heads() or len(self.known) % 5 == 0)
    @rule(on_pending=st.sampled_from(["refuse", "supersede_failed", "supersede"]), stepwise=st.booleans())
    def say(self, on_pending: Any, stepwise: bool) -> None:
        busy = [branch for branch in self.store.branches(thread_id="t") if branch.status in OPEN]
        options: dict[str, Any] = {} if stepwise else {"on_pending": on_pending}
        try:
            self.do("step" if stepwise else "invoke", {"total": 1}, thread_id="t", **options)
        except ThreadBusy as error:
            may = [] if stepwise or on_pending == "refuse" else OPEN if on_pending == "supersede" else ["failed"]
            assert error.run_id in {branch.run_id for branch in busy}
            assert any(branch.status not in may for branch in busy)

    @precondition(lambda self: self.heads())
    @rule(data=st.data(), method=st.sampled_from(["resume", "resume", "step"]))
    def go_on(self, data: st.DataObject, method: str) -> None:
        """Answer all that a run waits for, as its plan says."""
        at = data.draw(st.sampled_from(self.heads()))
        decisions = {item.id: saying(self.plan, self.world, at, item) for item in at.pending}
        self.world.allow(decisions)
        with suppress(
            CheckpointAlreadyResumed, NothingDecided
        ):  # what is in its journal was decided, or is not sealed yet
            self.do(method, at, **({"decisions": decisions} if decisions else {}))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), method=st.sampled_from(["resume", "resume", "resume", "step"]))
    def decide(self, data: st.DataObject, method: str) -> None:
        """Decide some of what a checkpoint, fresh or stale, waits for; perhaps change the state as well."""
        checkpoint = data.draw(st.sampled_from(self.heads() or self.known) | st.sampled_from(self.known[-4:]))
        decisions = {item.id: answer for item in checkpoint.pending if (answer := self.answer(data, item)) is not None}
        self.world.allow(id for id, answer in decisions.items() if isinstance(answer, Approve))
        if not decisions:
            self.world.allow(item.id for item in checkpoint.pending if item.why == "breakpoint")
        options: dict[str, Any] = {"decisions": decisions} if decisions else {}
        if method == "resume" and data.draw(st.integers(0, 4)) == 0:
            options |= data.draw(st.sampled_from(self.changes()))
        place = checkpoint if method == "step" else data.draw(st.sampled_from([checkpoint, checkpoint.id]))
        before = self.world.effects
        try:
            self.do(method, place, **options)
        except REFUSED:
            assert self.world.effects == before, "a refused decision has run something"

    def answer(self, data: st.DataObject, item: Any) -> Any:
        """Anything that a human may say, fitting or not."""
        match data.draw(st.sampled_from(["approve", "approve", "approve", "reject", "end", "respond", "skip"])):
            case "approve":
                return Approve()
            case "reject":
                return Reject(reason="no")
            case "end":
                return Reject(then="end")
            case "respond":
                return Respond(content=data.draw(st.sampled_from([5, "by hand", {"log": ["by hand"], "total": 3}])))
            case _:
                return None

    def changes(self) -> list[dict[str, Any]]:
        """What whoever resumes a run may change in its state."""

        def modify(path: tuple[str, ...], state: Any) -> Any:
            return state_of(self.plan)() if path == () and state.total > 50 else None

        return [{"update": {"total": 10}}, {"update": {"total": "x"}}, {"modify_state": modify}]

    @precondition(lambda self: self.store.branches())
    @rule(data=st.data(), method=st.sampled_from(["recover", "recover", "recover", "cancel"]))
    def act_on_a_branch(self, data: st.DataObject, method: str) -> None:
        branch = data.draw(st.sampled_from(self.store.branches()))
        place = data.draw(st.sampled_from([branch.id, branch.head]))
        try:
            self.do(method, place)
        except CheckpointAlreadyResumed:
            assert method == "cancel" and branch.status in ENDED

    @precondition(lambda self: self.known and len(self.store.branches()) < 5)
    @rule(data=st.data(), rerun=st.booleans())
    def fork(self, data: st.DataObject, rerun: bool) -> None:
        checkpoint = data.draw(st.sampled_from(self.known))
        before = {branch.id: repr(self.store.lineage(branch_id=branch.id)) for branch in self.store.branches()}
        try:
            self.do("fork", checkpoint.id, rerun=rerun)
        except CheckpointError:
            assert checkpoint.ended
        assert before == {id: repr(self.store.lineage(branch_id=id)) for id in before}, "a fork changed another branch"

    @rule(fault=st.sampled_from([None, None, "before", "after"]))
    def lose_a_write(self, fault: str | None) -> None:
        self.store.fault = fault

    @invariant()
    def nothing_comes_apart(self) -> None:
        if not hasattr(self, "graph"):
            return
        assert self.world.lines("wrong") == []
        asked: Counter[str] = Counter()
        for branch in self.store.branches():
            _, head = self.store.head(branch.id)
            state = current(head, self.graph.spec.apply)
            assert branch.head == head.id == self.store.history(head.id)[-1].id
            ids = sorted(item.id for item in state.pending)
            assert len({*ids}) == len(ids)
            if branch.owner is None and branch.status in ("suspended", *ENDED):
                assert branch.status == state.status == head.status
                listed = [
                    item.approval.id for item in self.store.pending(run_id=branch.run_id) if item.branch_id == branch.id
                ]
                assert sorted(listed) == ids
            if state.ended:
                assert ids == []
            asked.update(ids)
        assert [id for id, count in asked.items() if count > 1] == [], "one id waits in two branches"
        thread = [branch for branch in self.store.branches(thread_id="t") if branch.id == branch.run_id]
        assert sum(branch.status in OPEN for branch in thread) <= 1, "two runs of a thread are open"


class AsyncLife(Life):
    driver = ASYNC


def machine(life: type[Life], examples: int) -> Any:
    case = life.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return case


TestLife = machine(Life, scaled(5, sweep=25))
TestAsyncLife = machine(AsyncLife, scaled(5, sweep=25))
