"""Checkpoints on demand, and going back to one: `checkpoint(run, label=)` and `restore(checkpoint)`, of agents and graphs.

The rows are Directive's (D31 to D42, DIR-A19 to A22, and the weaknesses W9, W11 and W16); what its store does, and ours, is in
`test_directive_store.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from drivers import Around, Driver, open_kind, outline, rows
from redis_server import redis_url
from servers import postgres_schema, postgres_url

from phronomy import (
    Agent,
    AgentChanged,
    Announcements,
    Checkpoint,
    CheckpointEdited,
    CheckpointError,
    CheckpointNotFound,
    CheckpointUntrusted,
    ConfigurationError,
    MemoryStore,
    NodeFailed,
    PostgresStore,
    RedisStore,
    RunBusy,
    SQLiteStore,
    StateGraph,
    Store,
    StoreError,
    ThreadBusy,
    tool,
    validate_checkpoint,
)
from phronomy.engine.ledger import new_owner
from phronomy.observability.drawings.drawing import tree_mermaid
from phronomy.observability.events import replay
from phronomy.observability.timeline import timeline
from phronomy.records.decisions import Skip
from phronomy.stops.breakpoints import Breakpoint
from phronomy.stores.rows import Append, Branch
from phronomy.testing import ScriptedModel, call


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind. One whose server does not start fails the test."""
    if request.param == "postgres":
        with postgres_schema() as schema, PostgresStore(postgres_url(), schema=schema) as store:
            yield store
    elif request.param == "redis":
        with RedisStore(redis_url()) as store:
            yield store
    else:
        with open_kind(request.param, tmp_path) as store:
            yield store


def desk(store: Store | None, *script: Any, done: list[int] | None = None, **options: Any) -> Agent[Any, Any]:
    """An agent that refunds, once it may. `done` are the refunds that it has made."""

    @tool(requires_approval=True)
    def refund(order: int = 1042) -> str:
        """Refund."""
        if done is not None:
            done.append(order)
        return f"refunded {order}"

    model = ScriptedModel.by_turn([*(script or (call("refund"), "done"))])
    given = {"name": "desk", "tools": [refund], **options}
    return Agent(model=model, store=store, **given)


class State(TypedDict, total=False):
    said: str


def graph_of(store: Store, *, inside: Agent[Any, Any] | None = None, **options: Any) -> Any:
    """A graph that stops before its second node, or one with an agent in it."""
    graph = StateGraph(State, name="desk")
    if inside is not None:
        graph.add_node("ask", inside, input="said", output="said")
        graph.set_entry_point("ask")
        graph.set_finish_point("ask")
        return graph.compile(store=store, **options)
    graph.add_node("one", lambda state: {"said": f"{state['said']} one"})
    graph.add_node("two", lambda state: {"said": f"{state['said']} two"})
    graph.set_entry_point("one")
    graph.add_edge("one", "two")
    graph.set_finish_point("two")
    return graph.compile(store=store, interrupt_before=["two"], **options)


def taken(driver: Driver, agent: Any, run: Any, **options: Any) -> Checkpoint:
    found: Checkpoint = driver.call(agent, "checkpoint", run, **options)
    return found


def back(driver: Driver, agent: Any, checkpoint: Any, **options: Any) -> Checkpoint:
    found: Checkpoint = driver.call(agent, "restore", checkpoint, **options)
    return found


def everything(store: Store) -> list[Any]:
    """What the store holds: equal before and after means that nothing has happened."""
    branches = store.branches()
    return [branches, store.pending_rows(), *(store.lineage(branch_id=branch.id) for branch in branches)]


# Taking


def test_a_run_that_waits_is_taken_and_goes_on_waiting(everywhere: Store, driver: Driver) -> None:
    """D31: at rest there is a checkpoint, with a label if that is wanted, and nothing has to be switched on (W16)."""
    agent = desk(everywhere)
    waiting = driver.invoke(agent, "go", metadata={"ticket": 7}).checkpoint
    before = everything(everywhere)
    for run in (waiting, waiting.id, waiting.run_id):
        assert taken(driver, agent, run) == waiting
    assert everything(everywhere) == before

    named = taken(driver, agent, waiting.run_id, label="before the money")
    assert (named.label, named.parent_id, named.step) == ("before the money", waiting.id, waiting.step + 1)
    assert (named.status, named.pending, named.messages) == ("suspended", waiting.pending, waiting.messages)
    assert (
        named.evolve(**{name: waiting.__dict__[name] for name in ("id", "parent_id", "step", "label", "created_at")})
        == waiting
    )
    assert validate_checkpoint(named) == validate_checkpoint(named.model_dump_json()) == []  # D33, D36
    assert everywhere.load(named.id) == named == taken(driver, agent, waiting.run_id)
    assert [(info.id, info.label) for info in everywhere.list(labeled=True)] == [(named.id, "before the money")]
    assert [(item.approval, item.checkpoint_id) for item in everywhere.pending()] == [(waiting.pending[0], named.id)]

    assert driver.resume(agent, waiting, approved=True).output == "done"  # by the older checkpoint, too
    assert everywhere.load(named.id) == named


def test_each_label_is_a_checkpoint_of_its_own(store: Store, driver: Driver) -> None:
    """D41, D42: a second one takes nothing away from the first, and what was given out is not what is stored."""
    agent = desk(store)
    run_id = driver.invoke(agent, "go").run_id
    first, second, third = (taken(driver, agent, run_id, label=label) for label in ("a", "b", "a"))
    assert [(info.id, info.label) for info in store.list(labeled=True)] == [
        (first.id, "a"),
        (second.id, "b"),
        (third.id, "a"),
    ]
    assert [info.id for info in store.list(label="a")] == [first.id, third.id]
    assert [store.load(each.id) for each in (first, second, third)] == [first, second, third]
    assert (third.parent_id, second.parent_id) == (second.id, first.id)
    assert len(store.pending()) == 1


def test_a_run_that_stands_at_a_breakpoint_is_taken_and_survives_a_restart(tmp_path: Path, driver: Driver) -> None:
    """W11: in the original a run that is paused at a breakpoint cannot be checkpointed."""
    options: dict[str, Any] = {"breakpoints": [Breakpoint("pre_model_call", label="look")]}
    with SQLiteStore(tmp_path / "runs.db") as store:
        agent = desk(store, "done", **options)
        waiting = driver.invoke(agent, "go").checkpoint
        named = taken(driver, agent, waiting.run_id, label="paused")
        assert (named.pending, named.pending[0].point) == (waiting.pending, "pre_model_call")
    with SQLiteStore(tmp_path / "runs.db") as store:
        (info,) = store.list(label="paused")
        agent = desk(store, "done", **options)
        assert driver.resume(agent, info.id).output == "done"
        again = back(driver, agent, info.id)
        assert again.pending[0].id != named.pending[0].id
        assert (again.pending[0].point, again.pending[0].label) == ("pre_model_call", "look")
        assert driver.resume(agent, again).output == "done"


def test_a_run_that_was_skipped_is_at_rest(store: Store, driver: Driver) -> None:
    """W9: in the original, a skip before the agent leaves it running for ever, and the next checkpoint is refused."""
    agent = desk(store, "done", breakpoints=[Breakpoint("pre_agent_run")])
    waiting = driver.invoke(agent, "go").checkpoint
    ended = driver.resume(agent, waiting, decisions={waiting.pending[0].id: Skip()})
    assert ended.status == "skipped"
    assert taken(driver, agent, waiting.run_id) == ended.checkpoint
    named = taken(driver, agent, waiting.run_id, label="skipped")
    assert (named.status, named.label, named.messages) == ("skipped", "skipped", ended.messages)


def test_a_running_run_is_busy_and_once_it_has_ended_it_is_taken(everywhere: Store, driver: Driver) -> None:
    """DIR-A19, W16: while a worker holds the run, neither is done, and nothing changes."""
    seen: list[str] = []

    def work() -> str:
        """Work."""
        run_id = everywhere.branches()[0].id
        head = everywhere.head(run_id)[1]
        before = everything(everywhere)
        for act in (
            lambda: agent.checkpoint(run_id),
            lambda: agent.checkpoint(head, label="now"),
            lambda: agent.restore(head),
            lambda: agent.restore(everywhere.history(head.id)[0], restore_timeline=False),
        ):
            with pytest.raises(RunBusy) as busy:
                act()
            assert (busy.value.run_id, busy.value.owner) == (run_id, everywhere.branches()[0].owner)
        assert everything(everywhere) == before
        seen.append(head.id)
        return "worked"

    agent = desk(everywhere, call("work"), "done", tools=[tool(driver.function(work))])
    result = driver.invoke(agent, "go", thread_id="t")
    assert (result.output, len(seen)) == ("done", 1)
    named = taken(driver, agent, result.run_id, label="done")
    assert (named.status, named.label, named.messages) == ("completed", "done", result.messages)
    assert everywhere.load(result.checkpoint.id) == result.checkpoint


def test_a_label_spares_the_run_from_being_taken_away(store: Store, driver: Driver) -> None:
    """DIR-A22: of two old runs, the one that was labeled on demand stays."""
    agent = desk(store, "done")
    kept, gone = (driver.invoke(agent, "go").checkpoint for _ in range(2))
    named = taken(driver, agent, kept, label="keep")
    assert store.prune() == 2
    assert store.load(named.id) == named
    with pytest.raises(CheckpointNotFound):
        store.load(gone.id)


def test_what_has_settled_since_the_last_boundary_is_in_it(store: Store, driver: Driver) -> None:
    done: list[str] = []

    def note() -> str:
        """Note."""
        done.append("noted")
        return "noted"

    def send() -> str:
        """Send."""
        done.append("sent")
        if done.count("sent") == 1:
            raise ConnectionError
        return "sent"

    tools = [tool(driver.function(note)), tool(on_failure="stop", idempotent=True, retries=0)(driver.function(send))]
    agent = desk(store, [call("note"), call("send")], "done", tools=tools)
    with pytest.raises(NodeFailed) as failed:
        driver.invoke(agent, "go")
    named = taken(driver, agent, str(failed.value.run_id), label="half way")
    assert (store.branches()[0].status, named.journal) == ("failed", ())
    assert [call.status for call in named.calls] == ["settled", "failed"]
    again = back(driver, agent, named)
    for checkpoint in (named, again):
        assert driver.resume(agent, checkpoint).output == "done"
    assert done.count("noted") == 1
    assert done.count("sent") == 2


def test_a_run_whose_worker_was_lost_in_the_middle_of_a_call_is_to_be_recovered_first(driver: Driver) -> None:
    clock = [1_900_000_000.0]
    store = MemoryStore(clock=lambda: clock[0])

    def work() -> str:
        """Work, and never come back."""
        raise KeyboardInterrupt

    class Lost(Around):
        """A worker of it that dies says nothing any more."""

        def release(self, claim: Any, status: Any = None) -> None:
            """As if the process were gone."""

    agent = desk(Lost(store), call("work"), "done", tools=[tool(work)])
    with pytest.raises(KeyboardInterrupt):
        agent.invoke("go")
    agent = desk(store, call("work"), "done", tools=[tool(work)])
    run_id = store.branches()[0].id
    with pytest.raises(RunBusy):
        taken(driver, agent, run_id, label="lost")
    clock[0] += 100
    assert taken(driver, agent, run_id).id == store.branches()[0].head
    before = everything(store)
    with pytest.raises(CheckpointError, match="recover the run first"):
        taken(driver, agent, run_id, label="lost")
    assert everything(store) == before
    assert driver.recover(agent, run_id).suspended
    assert taken(driver, agent, run_id, label="found").pending[0].why == "outcome_unknown"


class Meanwhile(Around):
    """A store in which something happens just before the next write of this process."""

    happens: Callable[[], object] | None = None

    def _now(self) -> None:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()

    def append(self, change: Append) -> Branch:
        self._now()
        return super().append(change)

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        self._now()
        super().create(branch, change, exclusive=exclusive)


def test_who_decides_while_it_is_taken_is_first(store: Store, driver: Driver) -> None:
    here = Meanwhile(store)
    waiting = desk(store).invoke("go").checkpoint
    here.happens = lambda: desk(store).resume(waiting, approved=True)
    named = taken(driver, desk(here), waiting.run_id, label="late")
    assert (named.status, named.label) == ("completed", "late")
    assert store.pending() == []


def test_who_begins_to_work_while_it_is_taken_holds_it(store: Store, driver: Driver) -> None:
    here = Meanwhile(store)
    waiting = desk(store).invoke("go").checkpoint
    owner = new_owner()
    seq = store.branches()[0].seq
    here.happens = lambda: store.append(Append(branch_id=waiting.branch_id, seq=seq, take=owner))
    with pytest.raises(RunBusy) as busy:
        taken(driver, desk(here), waiting.run_id, label="late")
    assert busy.value.owner == owner
    assert store.list(labeled=True) == []


# Going back


def test_going_back_asks_again_under_new_ids(everywhere: Store, driver: Driver) -> None:
    """D37, D38: the run is as it was: messages, tokens, what is pending; and it is the latest of its thread."""
    done: list[int] = []
    agent = desk(everywhere, done=done)
    waiting = driver.invoke(agent, "go", thread_id="t", metadata={"ticket": 7}).checkpoint
    named = taken(driver, agent, waiting.run_id, label="here")
    first = driver.resume(agent, waiting, approved=False)
    line = everywhere.history(first.checkpoint.id)

    again = back(driver, agent, named)
    assert (again.parent_id, again.run_id, again.thread_id) == (named.id, named.run_id, "t")
    assert (again.messages, again.usage, again.metadata) == (named.messages, named.usage, {"ticket": 7})
    asked, anew = named.pending[0], again.pending[0]
    assert anew.id != asked.id
    assert (anew.tool, anew.args, anew.digest) == (asked.tool, asked.args, asked.digest)
    assert [item.approval.id for item in everywhere.pending()] == [anew.id]
    assert everywhere.history(first.checkpoint.id) == line  # what came after stays as it is

    second = driver.resume(agent, again, approved=True)
    assert (done, second.output) == ([1042], "done")
    assert everywhere.latest("t") == second.checkpoint
    assert outline(first) != outline(second)
    assert taken(driver, agent, again.branch_id).messages == second.messages


def test_the_timeline_goes_back_as_well_unless_it_is_to_begin_anew(everywhere: Store, driver: Driver) -> None:
    """D37: `restore_timeline`."""
    agent = desk(everywhere)
    waiting = driver.invoke(agent, "go").checkpoint
    driver.resume(agent, waiting, approved=True)
    whole = timeline(everywhere, waiting.run_id)
    kept, anew = (back(driver, agent, waiting, restore_timeline=each) for each in (True, False))
    assert kept.evolve(id="", branch_id="", calls=(), created_at=None) == anew.evolve(
        id="", branch_id="", calls=(), created_at=None
    )
    with_past, without = (timeline(everywhere, each.branch_id) for each in (kept, anew))
    up_to = whole.fork_at(waiting).entries
    assert with_past.entries[: len(up_to)] == up_to
    types = ["branched", "approval_requested", "checkpoint", "suspended"]
    assert [entry.type for entry in with_past.entries[len(up_to) :]] == [entry.type for entry in without] == types
    assert without.entries[0].id == 0
    assert without.entries[0].facts == {"from": waiting.id}
    assert [checkpoint.id for checkpoint in everywhere.history(anew.id)] == [anew.id]
    assert {each.id for each in everywhere.children(waiting.id)} >= {kept.id, anew.id}
    for checkpoint in (kept, anew):
        assert driver.resume(agent, checkpoint, approved=False).status == "completed"


def test_a_graph_and_what_is_inside_it_go_back(everywhere: Store, driver: Driver) -> None:
    done: list[int] = []
    plain = graph_of(everywhere)
    waiting = driver.invoke(plain, {"said": "go"}).checkpoint
    named = taken(driver, plain, waiting, label="between")
    assert (named.kind, named.label, named.pending) == ("graph", "between", waiting.pending)
    for restore_timeline in (True, False):
        again = back(driver, plain, named, restore_timeline=restore_timeline)
        assert again.pending[0].id != named.pending[0].id
        assert driver.resume(plain, again).output == {"said": "go one two"}

    outer = graph_of(everywhere, inside=desk(None, done=done))
    inside = driver.invoke(outer, {"said": "go"}).checkpoint
    named = taken(driver, outer, inside.run_id, label="inside")
    assert (len(named.nested), named.pending) == (1, inside.pending)
    for restore_timeline in (True, False):
        again = back(driver, outer, named, restore_timeline=restore_timeline)
        assert again.nested[0].pending[0].id == again.pending[0].id != named.pending[0].id
        assert driver.resume(outer, again, approved=False).output == {"said": "done"}
    assert driver.resume(outer, named, approved=True).output == {"said": "done"}
    assert done == [1042]


def test_an_end_is_gone_back_to_and_its_thread_goes_on_from_there(everywhere: Store, driver: Driver) -> None:
    agent = desk(everywhere, "one")
    first = driver.invoke(agent, "first", thread_id="t").checkpoint
    named = taken(driver, agent, first.run_id, label="after the first")
    assert (named.ended, named.label, named.messages) == ("completed", "after the first", first.messages)
    assert everywhere.latest("t") == named
    driver.invoke(agent, "second", thread_id="t")

    again = back(driver, agent, named)
    assert (again.ended, again.output, again.messages) == ("completed", "one", first.messages)
    assert everywhere.latest("t") == again
    third = driver.invoke(agent, "third", thread_id="t")
    assert [message.text for message in third.messages if message.role == "user"] == ["first", "third"]


def test_the_end_of_a_run_that_its_thread_has_gone_on_from_is_not_labeled(store: Store, driver: Driver) -> None:
    agent = desk(store, "one")
    first = driver.invoke(agent, "first", thread_id="t").checkpoint
    second = driver.invoke(agent, "second", thread_id="t").checkpoint
    before = everything(store)
    with pytest.raises(CheckpointError, match="thread t has gone on since"):
        taken(driver, agent, first, label="late")
    assert taken(driver, agent, first) == first
    assert everything(store) == before
    named = taken(driver, agent, second, label="in time")
    assert store.latest("t") == named
    waiting = driver.invoke(desk(store), "third", thread_id="t").checkpoint
    for label in ("late", "later"):
        with pytest.raises(CheckpointError, match="thread t has gone on since"):
            taken(driver, agent, named, label=label)
    assert store.pending(thread_id="t")[0].run_id == waiting.run_id


def test_what_was_gone_back_to_is_the_latest_whatever_the_clock_here_says(driver: Driver) -> None:
    now = [1_900_000_000.0]
    store = MemoryStore(clock=lambda: now[0])
    agent = desk(store, "one")
    first = driver.invoke(agent, "first", thread_id="t").checkpoint
    now[0] += 100
    driver.invoke(agent, "second", thread_id="t")
    now[0] -= 50
    assert back(driver, agent, first) == store.latest("t")


def test_a_thread_with_a_run_that_has_not_ended_is_not_gone_back_in(store: Store, driver: Driver) -> None:
    """W16: two lines of one conversation are never open at once; what waits is decided or cancelled first."""
    agent = desk(store)
    first = driver.invoke(agent, "go", thread_id="t").checkpoint
    ended = driver.resume(agent, first, approved=True).checkpoint
    second = driver.invoke(agent, "again", thread_id="t").checkpoint
    before = everything(store)
    for checkpoint in (first, ended, second):
        with pytest.raises(ThreadBusy, match="decide, resume or cancel it first") as busy:
            back(driver, agent, checkpoint)
        assert (busy.value.run_id, busy.value.pending_ids) == (second.run_id, (second.pending[0].id,))
    assert everything(store) == before
    driver.cancel(agent, second)
    again = back(driver, agent, first)
    assert driver.resume(agent, again, approved=True).checkpoint == store.latest("t")


def test_a_run_that_begins_meanwhile_is_first_and_nothing_was_gone_back_to(store: Store, driver: Driver) -> None:
    """W16: restore is atomic."""
    agent = desk(store, "one")
    first = driver.invoke(agent, "first", thread_id="t").checkpoint
    second = driver.invoke(agent, "second", thread_id="t").checkpoint
    here = Meanwhile(store)
    here.happens = lambda: agent.invoke("third", thread_id="t")
    with pytest.raises(ThreadBusy, match="is completed"):
        back(driver, desk(here, "one"), first)
    latest = store.latest("t")
    assert latest is not None
    assert [message.text for message in latest.messages if message.role == "user"] == ["first", "second", "third"]
    assert [branch.id for branch in store.branches(run_id=first.run_id)] == [first.run_id]
    assert second.run_id != latest.run_id


def test_a_run_that_goes_on_from_what_was_gone_back_to_at_once_is_no_other(store: Store, driver: Driver) -> None:
    class AtOnce(Around):
        def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
            super().create(branch, change, exclusive=exclusive)
            agent.invoke("third", thread_id="t")

    agent = desk(store, "one")
    first = driver.invoke(agent, "first", thread_id="t").checkpoint
    driver.invoke(agent, "second", thread_id="t")
    again = back(driver, desk(AtOnce(store), "one"), first)
    latest = store.latest("t")
    assert latest is not None and latest.run_id != again.run_id == first.run_id
    assert [message.text for message in latest.messages if message.role == "user"] == ["first", "third"]


def test_a_run_that_was_gone_back_to_is_drawn_and_taken_away_as_any(store: Store, driver: Driver) -> None:
    agent = desk(store)
    waiting = driver.invoke(agent, "go").checkpoint
    driver.cancel(agent, waiting)
    for restore_timeline in (True, False):
        again = back(driver, agent, waiting, restore_timeline=restore_timeline)
        assert again.id[:13] in tree_mermaid(store, waiting.run_id)
        driver.cancel(agent, again)
    kept = store.list()
    assert len(kept) == 10
    assert store.clear() == len(kept)
    assert store.branches() == []


def test_a_write_that_fails_leaves_what_was_there(store: Store, driver: Driver) -> None:
    """W16, D37: nothing is half applied."""

    def fail() -> None:
        raise StoreError("the disk is full")

    here = Meanwhile(store)
    waiting = desk(store).invoke("go").checkpoint
    before = rows(store)
    for act in (
        {"method": "checkpoint", "label": "x"},
        {"method": "restore"},
        {"method": "restore", "restore_timeline": False},
    ):
        here.happens = fail
        with pytest.raises(StoreError, match="the disk is full"):
            driver.call(desk(here), act.pop("method"), waiting, **act)
        assert rows(store) == before


# What is refused


def test_what_does_not_fit_is_refused_and_changes_nothing(everywhere: Store, driver: Driver) -> None:
    """D37: kinds must match; the original finds out after half of it was overwritten."""

    @tool
    def other() -> str:
        """Other."""
        return "other"

    waiting = desk(everywhere).invoke("go").checkpoint
    stopped = graph_of(everywhere).invoke({"said": "go"}).checkpoint
    before = everything(everywhere)
    for agent, checkpoint, kind in ((desk(everywhere), stopped, "graph"), (graph_of(everywhere), waiting, "agent")):
        for act in (
            lambda: back(driver, agent, checkpoint),  # noqa: B023
            lambda: back(driver, agent, checkpoint, accept_changes=True),  # noqa: B023
            lambda: taken(driver, agent, checkpoint),  # noqa: B023
            lambda: taken(driver, agent, checkpoint, label="x"),  # noqa: B023
        ):
            with pytest.raises(CheckpointError, match=f"is of {kind} 'desk', and this is a"):
                act()
    for agent in (desk(everywhere, name="another"), desk(everywhere, tools=[other])):
        with pytest.raises(AgentChanged) as changed:
            back(driver, agent, waiting)
        assert changed.value.changes
    assert everything(everywhere) == before
    assert back(driver, desk(everywhere, name="another"), waiting, accept_changes=True).pending


def test_what_is_no_checkpoint_of_this_store_is_refused(store: Store, driver: Driver) -> None:
    agent = desk(store)
    waiting = driver.invoke(agent, "go").checkpoint
    elsewhere = desk(MemoryStore()).invoke("go").checkpoint
    before = everything(store)
    wrong: list[tuple[Any, type[Exception]]] = [
        (waiting.evolve(step=7), CheckpointEdited),
        (elsewhere, CheckpointUntrusted),
        ("ckpt_0", CheckpointNotFound),
        (7, CheckpointError),
        (None, CheckpointError),
    ]
    for given, error in wrong:
        for method in ("checkpoint", "restore"):
            with pytest.raises(error):
                driver.call(agent, method, given)
    with pytest.raises(ConfigurationError, match="a label is text"):
        driver.call(agent, "checkpoint", waiting, label=7)
    with pytest.raises(ConfigurationError, match="restore_timeline is True or False"):
        driver.call(agent, "restore", waiting, restore_timeline="no")
    assert everything(store) == before


def test_a_checkpoint_that_a_bearer_brings_is_gone_back_to_in_one_write(driver: Driver) -> None:
    done: list[int] = []
    waiting = desk(MemoryStore()).invoke("go").checkpoint
    brought = Checkpoint.model_validate_json(waiting.model_dump_json())
    agent = desk(None, done=done)
    with pytest.raises(AgentChanged):
        back(driver, desk(agent.store, name="another", trust="bearer"), brought)
    assert agent.store.branches() == []
    again = back(driver, agent, brought)
    assert [branch.id for branch in agent.store.branches()] == [again.branch_id]
    assert len(agent.store.pending()) == 1
    assert driver.resume(agent, again, approved=True).output == "done"
    assert done == [1042]


def test_a_label_is_no_new_stop_to_whoever_is_told_of_stops(store: Store, driver: Driver) -> None:
    told: list[str] = []

    class Told(Announcements):
        def on_suspended(self, event: Any) -> None:
            told.append(event.checkpoint_id)

    agent = desk(store, announcements=[Told()])
    waiting = driver.invoke(agent, "go").checkpoint
    taken(driver, agent, waiting, label="here")
    assert [event.type for event in replay(store, waiting.run_id)][-2:] == ["suspended", "checkpoint"]
    driver.resume(agent, waiting, approved=True)
    assert told == [waiting.id]
