"""The loops, where somebody else writes at the wrong moment: law 3's other half."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest
from drivers import ASYNC, PATIENCE, SYNC, Driver

from phronomy import Agent, Hooks, MemoryStore, ModelError, NotAuthorized, tool
from phronomy.concurrency import crew
from phronomy.engine import drive, run_tools
from phronomy.engine.drive import asteps, steps
from phronomy.engine.ledger import Ledger
from phronomy.engine.perform import aperform, perform
from phronomy.engine.run import Moment, Runner, Written
from phronomy.engine.superfluous.calls import found
from phronomy.graph import END, START, StateGraph, interrupt
from phronomy.records.calls import Call, Ending, Outcome
from phronomy.records.moves import Done, Wait
from phronomy.rules import authorization
from phronomy.runs import driving
from phronomy.runs.driving import let_go
from phronomy.runs.finding.beginning import Beginning, begin
from phronomy.stores.log.log import journal_entry
from phronomy.stores.log.row_delta import outcome_from
from phronomy.stores.rows import Append, Branch
from phronomy.testing import ScriptedModel, call

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Orders(TypedDict, total=False):
    """What the nodes of a graph share."""

    seen: str


class Meddling(MemoryStore):
    """A store in which somebody cancels the run just before the first write of its worker that `when` picks."""

    def __init__(self, when: Callable[[Append], bool]) -> None:
        super().__init__()
        self.when: Callable[[Append], bool] | None = when

    def append(self, change: Append) -> Branch:
        if self.when is not None and change.claim is not None and self.when(change):
            self.when = None
            ending = Ending(status="cancelled", reason="enough", at=NOW)
            super().append(
                Append(
                    branch_id=change.branch_id,
                    seq=change.seq,
                    holder=change.claim,
                    entries=(journal_entry(ending, ""),),
                )
            )
        return super().append(change)


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_run_that_is_cancelled_before_it_asks_the_model_does_not_ask(driver: Driver) -> None:
    store = Meddling(lambda change: any('"ref"' in entry.body for entry in change.entries))

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel([call("look"), "never said"])
    result = driver.invoke(Agent(model=model, store=store, tools=[look]), "go")
    assert (result.status, result.output, len(model.requests)) == ("cancelled", None, 1)
    assert store.load(result.checkpoint.id) == result.checkpoint


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_run_that_is_cancelled_while_its_calls_run_keeps_their_results(driver: Driver) -> None:
    """The result that met the cancellation is written after it, and the other one too; nothing more is begun."""
    store = Meddling(lambda change: any('"type":"settled"' in entry.body for entry in change.entries))
    both = threading.Barrier(2)

    @tool
    def left() -> str:
        """Go left."""
        both.wait(PATIENCE)
        return "left is done"

    @tool
    def right() -> str:
        """Go right."""
        both.wait(PATIENCE)
        return "right is done"

    model = ScriptedModel([[call("left"), call("right")], "never said"])
    result = driver.invoke(Agent(model=model, tools=[left, right], store=store), "go")
    assert (result.status, len(model.requests)) == ("cancelled", 1)
    told = [message.text for message in result.messages if message.role == "tool"]
    assert told == ["left is done", "right is done"]
    assert store.load(result.checkpoint.id) == result.checkpoint


def test_a_run_at_rest_has_nothing_to_perform() -> None:
    agent = Agent(model=ScriptedModel(["done"]))
    checkpoint = agent.invoke("go").checkpoint
    runner = Runner(agent.spec, Ledger(agent.store, Branch.of(checkpoint), checkpoint), checkpoint, deps=None)
    for move in (Wait(pending=()), Done(status="completed")):
        with pytest.raises(AssertionError):
            perform(runner, move, steps)
        with pytest.raises(AssertionError):
            aperform(runner, move, asteps)


class Mumbling:
    """A model that answers with something that is no reply."""

    name = "mumbling"

    def complete(self, request: Any) -> Any:
        return "hm"

    async def acomplete(self, request: Any) -> Any:
        return "hm"


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_model_that_gives_no_reply_is_a_model_error(driver: Driver) -> None:
    with pytest.raises(ModelError, match="answered with str, not with a ModelReply") as caught:
        driver.invoke(Agent(model=Mumbling()), "go")
    assert caught.value.checkpoint is not None
    assert caught.value.checkpoint.turn == 0


def test_a_partial_dump_carries_no_digest() -> None:
    """Only the whole can be read back, so a part does not pretend to be one."""
    checkpoint = Agent(model=ScriptedModel(["done"])).invoke("go").checkpoint
    assert "digest" not in checkpoint.model_dump(exclude={"messages"})
    assert set(checkpoint.model_dump(include={"id"})) == {"id"}


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_whoever_watches_a_run_finds_nothing_begun_at_any_checkpoint(is_async: bool) -> None:
    """At each checkpoint that is given, the store has it last: no intent follows it yet, so it is safe to stop there."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(model=ScriptedModel([call("look"), "done"]), tools=[look])
    beginning = Beginning(input="go", thread_id=None, history=None, metadata=None, label=None)
    runner = begin(agent.store, agent.spec, None, beginning, let_go)
    runner.watched = True
    seen: list[str] = []

    def note(moment: Moment) -> None:
        checkpoint = moment.checkpoint if isinstance(moment, Written) else None
        if checkpoint is None:
            return
        assert agent.store.load(checkpoint.id) == checkpoint
        seen.append(",".join(each.status for each in checkpoint.calls) or checkpoint.status)

    async def watch() -> None:
        async for moment in asteps(runner):
            note(moment)

    if is_async:
        asyncio.run(watch())
    else:
        for moment in steps(runner):
            note(moment)
    assert seen == ["ready", "running", "completed"]


class Noting(MemoryStore):
    """A store that notes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[Append] = []

    def create(self, branch: Branch, change: Append, *, exclusive: bool) -> None:
        self.changes.append(change)
        super().create(branch, change, exclusive=exclusive)

    def append(self, change: Append) -> Branch:
        self.changes.append(change)
        return super().append(change)

    def kinds(self) -> list[list[str]]:
        """What each write has stored: `row`, or the type of the outcome."""
        return [
            ["row" if each.checkpoint_id else outcome_from(each.body).type for each in change.entries]
            for change in self.changes
        ]


def paying(driver: Driver, store: Noting, **options: Any) -> tuple[Agent[None, str], list[int]]:
    """An agent that pays once it is approved, and what it has paid."""
    paid: list[int] = []

    def pay(order: int) -> str:
        """Pay an order."""
        paid.append(order)
        return "paid"

    model = ScriptedModel.by_turn([call("pay", {"order": 1}), "Done."])
    tools = [tool(requires_approval=True)(driver.function(pay))]
    return Agent(name="clerk", model=model, tools=tools, store=store, **options), paid


class Listens(Hooks):
    """Hears of everything, and does nothing."""


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=["sync", "async"])
@pytest.mark.parametrize("listens", [False, True], ids=["alone", "heard"])
def test_a_decision_its_claim_and_the_intent_are_one_write_unless_somebody_hears_of_it_first(
    driver: Driver, listens: bool
) -> None:
    store = Noting()
    agent, paid = paying(driver, store, hooks=[Listens()] if listens else [])
    asked = driver.invoke(agent, "Pay").checkpoint
    store.changes.clear()
    assert (driver.resume(agent, asked, approved=True).output, paid) == ("Done.", [1])
    first = [["row"], ["started"]] if listens else [["row", "started"]]
    assert store.kinds() == [*first, ["settled", "row"], ["row"]]
    assert [change.take is not None for change in store.changes] == [True] + [False] * (len(store.changes) - 1)


def cut_off(patched: pytest.MonkeyPatch, act: Callable[[], object], *places: tuple[object, str, object]) -> None:
    """Leave in the middle of `act`: each place is an object, the name of what it has, and what raises in its stead."""
    with patched.context() as here:
        for place in places:
            here.setattr(*place)
        with pytest.raises(KeyboardInterrupt):
            act()


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_caller_who_leaves_between_the_claim_and_the_call_takes_the_intent_back(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked what became of a call that was never begun (law 5); whoever recovers the run makes it."""
    store = Noting()
    agent, paid = paying(driver, store)
    asked = driver.invoke(agent, "Pay").checkpoint

    def leave(_: Runner) -> None:
        raise KeyboardInterrupt

    cut_off(monkeypatch, partial(driver.resume, agent, asked, approved=True), (driving, "teller_of", leave))
    assert [each.type for each in store.head(asked.branch_id)[1].journal] == ["started", "withdrawn"]
    assert paid == []
    (found,) = driver.call(agent, "recover_all")
    assert (found.result.output, paid) == ("Done.", [1])


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=["sync", "async"])
@pytest.mark.parametrize("where", ["wrote", "admit", "ensure_held"])
def test_a_caller_who_leaves_before_a_body_is_entered_takes_the_intent_back(
    driver: Driver, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the first line of the body nothing has happened that a human would have to look into (law 5)."""
    store = Noting()
    agent, paid = paying(driver, store)
    asked = driver.invoke(agent, "Pay").checkpoint
    wrote = Runner.wrote

    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    def leave_after(runner: Runner, intents: Sequence[Outcome]) -> None:
        wrote(runner, intents)
        if intents:  # the write is stored, and the worker does not know it yet
            raise KeyboardInterrupt

    places: dict[str, list[tuple[object, str, object]]] = {
        "wrote": [(Runner, "wrote", leave_after)],
        "admit": [(run_tools, "admit", leave)],
        "ensure_held": [(Ledger, "ensure_held", leave), (Ledger, "aensure_held", leave)],
    }
    cut_off(monkeypatch, partial(driver.resume, agent, asked, approved=True), *places[where])
    assert [each.type for each in store.head(asked.branch_id)[1].journal] == ["started", "withdrawn"]
    assert paid == []
    (found,) = driver.call(agent, "recover_all")
    assert (found.result.output, paid) == ("Done.", [1])


next_move = drive.next_move


def leave_at_the_end(runner: Runner) -> Any:
    """Leave as the end of a run is known, and not stored yet."""
    if runner.state.ended is not None:
        raise KeyboardInterrupt
    return next_move(runner)


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=["sync", "async"])
@pytest.mark.parametrize(("way", "status"), [("resume", "completed"), ("cancel", "cancelled")])
def test_a_caller_who_leaves_just_before_the_end_is_stored_leaves_a_run_that_has_ended(
    driver: Driver, way: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half ended, it could neither go on nor end, and its thread would take no other run."""
    store = Noting()
    agent, paid = paying(driver, store)
    asked = driver.invoke(agent, "Pay", thread_id="chat").checkpoint
    options = {"approved": True} if way == "resume" else {}
    cut_off(monkeypatch, partial(driver.call, agent, way, asked, **options), (drive, "next_move", leave_at_the_end))
    branch, head = store.head(asked.branch_id)
    assert (branch.status, branch.owner, head.status, head.journal) == (status, None, status, ())
    assert driver.recover(agent, asked.run_id).status == status
    assert store.wait(asked.run_id, timeout=0).status == status
    assert paid == [1] * (way == "resume")
    assert driver.invoke(agent, "Pay", thread_id="chat").suspended


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=["sync", "async"])
def test_an_end_that_was_left_in_the_journal_is_stored_by_a_recovery(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So an earlier release left a run that was cut off there; nothing runs again."""
    store = Noting()
    agent, paid = paying(driver, store)
    asked = driver.invoke(agent, "Pay", thread_id="chat").checkpoint
    earlier = (driving, "rests", lambda _: False)
    resume = partial(driver.resume, agent, asked, approved=True)
    cut_off(monkeypatch, resume, (drive, "next_move", leave_at_the_end), earlier)
    branch, head = store.head(asked.branch_id)
    assert (branch.status, [each.type for each in head.journal][-1]) == ("failed", "finished")
    assert driver.recover(agent, asked.run_id).output == "Done."
    assert (store.head(asked.branch_id)[0].status, paid) == ("completed", [1])
    assert driver.invoke(agent, "Pay", thread_id="chat").suspended


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_caller_who_leaves_while_a_call_waits_to_be_tried_again_leaves_nothing_unknown(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt before has failed in a way that its tool knows, and the next one was not entered (law 5)."""
    store, tried = Noting(), list[int]()

    def pay(order: int) -> str:
        """Pay an order."""
        tried.append(order)
        if len(tried) == 1:
            raise ConnectionError
        return "paid"

    model = ScriptedModel.by_turn([call("pay", {"order": 1}), "Done."])
    pays = tool(requires_approval=True, retries=1, retry_on=(ConnectionError,))(driver.function(pay))
    agent = Agent(name="clerk", model=model, tools=[pays], store=store)
    asked = driver.invoke(agent, "Pay").checkpoint

    def leave(*_: object) -> float:
        raise KeyboardInterrupt

    cut_off(monkeypatch, partial(driver.resume, agent, asked, approved=True), (run_tools, "backoff", leave))
    assert tried == [1]
    (found,) = driver.call(agent, "recover_all")
    assert (found.result.output, tried) == ("Done.", [1, 1])


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=["sync", "async"])
def test_what_the_gate_refuses_after_a_decision_is_not_begun_with_the_claim(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision is stored, and then the error is raised; no log says that the call was begun (law 1)."""
    store = Noting()
    agent, paid = paying(driver, store)
    asked = driver.invoke(agent, "Pay").checkpoint
    store.changes.clear()
    monkeypatch.setattr(authorization, "refusal", lambda *_: "it is closed")
    with pytest.raises(NotAuthorized):
        driver.resume(agent, asked, approved=True)
    assert (store.kinds()[:1], paid) == ([["row"]], [])


def looking(driver: Driver, store: Noting, **options: Any) -> tuple[Any, list[str]]:
    """A graph of two nodes, the second of which asks, and the nodes whose bodies were entered."""
    entered: list[str] = []

    def look(_: Orders) -> dict[str, str]:
        entered.append("look")
        return {"seen": "an order"}

    def ask(_: Orders) -> dict[str, str]:
        entered.append("ask")
        return {"seen": interrupt("Which?")}

    graph = StateGraph(Orders, name="orders")
    graph.add_node("look", driver.function(look), **options).add_node("ask", driver.function(ask))
    graph.set_entry_point("look").add_edge("look", "ask").set_finish_point("ask")
    return graph.compile(store=store), entered


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("method", "options", "kinds"),
    [
        ("invoke", {}, [["row", "row", "started"]]),
        ("invoke", {"requires_approval": True}, [["row"], ["row"]]),
        ("invoke", {"requires_approval": lambda _: False}, [["row"], ["row", "started"]]),
        ("step", {}, [["row"]]),
    ],
    ids=["driven", "gated", "asks user code", "watched"],
)
def test_the_input_of_a_graph_and_the_intents_of_its_first_nodes_are_one_write_where_nobody_hears_of_it_first(
    driver: Driver, method: str, options: Any, kinds: list[list[str]]
) -> None:
    """What code of users says, and who looks at a checkpoint, finds the input stored, and nothing begun behind it."""
    store = Noting()
    graph, _ = looking(driver, store, **options)
    driver.call(graph, method, {})
    assert store.kinds()[: len(kinds)] == kinds


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=["sync", "async"])
@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "not stored"])
def test_a_caller_who_leaves_in_the_first_write_of_a_graph_takes_the_intents_back(
    driver: Driver, is_stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked what became of a node that was never entered (law 5); whoever resumes the run enters it."""
    store, create = Noting(), Noting.create
    graph, entered = looking(driver, store)

    def leave(self: Noting, *args: Any, **options: Any) -> None:
        if is_stored:
            create(self, *args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Noting, "create", leave)
        with pytest.raises(KeyboardInterrupt):
            driver.invoke(graph, {})
    assert entered == []
    if not is_stored:
        assert store.branches() == []
        return
    (branch,) = store.branches()
    assert (branch.owner, [each.type for each in store.head(branch.id)[1].journal]) == (None, ["started", "withdrawn"])
    assert (driver.resume(graph, branch.head or "").status, entered) == ("suspended", ["look", "ask"])


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=["sync", "async"])
@pytest.mark.parametrize("noted", ["began", "wrote"])
def test_a_caller_who_leaves_behind_the_first_write_of_a_graph_takes_the_intents_back(
    driver: Driver, noted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write has returned, and the worker is about to take note of it: nobody was entered (law 5)."""
    store = Noting()
    graph, entered = looking(driver, store)
    cls = Ledger if noted == "began" else Runner
    note = getattr(cls, noted)

    def leave(self: object, *args: object) -> None:
        note(self, *args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(cls, noted, leave)
        with pytest.raises(KeyboardInterrupt):
            driver.invoke(graph, {})
    (branch,) = store.branches()
    assert (branch.owner, [each.type for each in store.head(branch.id)[1].journal]) == (None, ["started", "withdrawn"])
    assert entered == []
    assert (driver.resume(graph, branch.head or "").status, entered) == ("suspended", ["look", "ask"])


def test_a_caller_who_leaves_while_calls_get_their_threads_takes_the_others_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A human is asked about the call that was handed to a thread, and not about those that nobody was handed (law 5)."""
    store, entered = Noting(), list[str]()

    def node(name: str) -> Callable[[Orders], None]:
        return lambda state: entered.append(name)

    builder = StateGraph(Orders)
    for name in ("one", "two", "three"):
        builder.add_node(name, node(name)).add_edge(START, name).add_edge(name, END)
    graph = builder.compile(store=store)

    def leave(*_: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(crew, "spawn", leave)
        with pytest.raises(KeyboardInterrupt):
            graph.invoke({})
    (branch,) = store.branches()
    assert (branch.owner, entered) == (None, [])
    (found,) = graph.recover_all()
    assert found.result is not None
    assert [(item.tool_name, item.why) for item in found.result.checkpoint.pending] == [("one", "outcome_unknown")]
    assert sorted(entered) == ["three", "two"]


def test_a_call_is_looked_up_in_one_state_while_calls_beside_it_end() -> None:
    """A stop after a call is a call of its own, before the others: whoever looked twice would find another call in the place."""

    class Moves:
        def __init__(self, *states: Any) -> None:
            self.states = list(states)

        @property
        def state(self) -> Any:
            return self.states.pop(0) if len(self.states) > 1 else self.states[0]

        def tool(self, call: Any) -> str:
            return str(call.name)

    calls = [Call(id=f"1.{place}", call_id=f"c{place}", name=name) for place, name in enumerate(("pay", "look"))]
    stop = Call(id="post_tool_call@1.0", call_id="", name="pay")
    runner: Any = Moves(*(SimpleNamespace(calls=each) for each in (calls, [stop, *calls])))
    call, name = found(runner, "1.1")
    assert (call.id, name) == ("1.1", "look")
