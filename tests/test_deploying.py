"""Deploying a change while runs wait: every kind of change, every kind of decision, every place where a call waits, every store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import pytest
from deploy_scenes import ASKED, DEPLOYS, PLACES, Deploy, Ran, clerk
from drivers import Driver, run
from places import Place
from pydantic import BaseModel, Field
from selection import scaled
from tables import each

from phronomy import (
    AgentChanged,
    Approval,
    Approve,
    Breakpoint,
    Checkpoint,
    CheckpointError,
    InvalidDecision,
    MemoryStore,
    Reject,
)
from phronomy.graph import END, START, StateGraph
from phronomy.records.decisions import Answer
from phronomy.stores.base import Store
from phronomy.stores.log.log import row_entry
from phronomy.workers import Worker

EDIT: Final = {"order_id": 2, "amount": 3.0}
"""Arguments that every version of the tool takes which takes the old ones."""

Decides = Callable[[Driver, Any, Checkpoint, Answer], Any]


@pytest.fixture
def store(place: Place) -> Store:
    """A store of each kind."""
    return place.open()


def resumed(driver: Driver, agent: Any, asked: Checkpoint, answer: Answer) -> Any:
    """The run after a decision of the agent."""
    return driver.resume(agent, asked, decisions={asked.pending[0].id: answer}, by="ada")


def worked(driver: Driver, agent: Any, asked: Checkpoint, answer: Answer) -> Any:
    """The run after a decision with the store alone, which a worker carries out."""
    item = asked.pending[0]
    agent.store.decide(item.id, answer, by="ada", digest=item.digest)
    [done] = run(Worker(agent).carry_out(asked.run_id))
    return done.result


COMPATIBLE: Final = (
    *("nothing", "description", "Args", "bound loosened", "default changed"),
    *("type widened", "approval tightened", "instructions"),
)
"""Changes after which what waits is still exactly what would run."""


@pytest.mark.parametrize("decides", [resumed, worked])
@pytest.mark.parametrize("where", PLACES)
@each("change", COMPATIBLE)
def test_an_edit_after_a_compatible_deploy_runs(
    driver: Driver, store: Store, where: Any, decides: Decides, change: str
) -> None:
    ran: Ran = []
    deploy = DEPLOYS[change]
    asked = driver.invoke(where(ran, deploy.before, store), "Refund it").checkpoint
    result = decides(driver, where(ran, deploy, store), asked, Approve(args=EDIT))
    assert (result.status, ran) == ("completed", [{**EDIT, "note": ran[0]["note"]}])
    assert store.head(asked.run_id)[1] == result.checkpoint
    assert store.request(asked.pending[0].id).status == "settled"


@pytest.mark.parametrize("where", PLACES)
@each("change", ("description", "Args", "bound loosened", "default changed", "type widened"))
def test_an_edit_with_votes_after_a_compatible_deploy_runs(
    driver: Driver, store: Store, where: Any, change: str
) -> None:
    ran: Ran = []
    two = Approval(needed=2)
    deploy = Deploy(version=DEPLOYS[change].version, gate=two, gate_before=two)
    asked = driver.invoke(where(ran, deploy.before, store), "Refund it").checkpoint
    new = where(ran, deploy, store)
    waits = resumed(driver, new, asked, Approve(args=EDIT))
    while waits.checkpoint.pending[0].id == asked.pending[0].id:  # inside, the vote is handed down first
        waits = driver.resume(new, waits.checkpoint)
    [item] = waits.checkpoint.pending
    assert item.id != asked.pending[0].id
    assert (ran, item.args, [vote.by.id for vote in item.votes]) == ([], {**EDIT, "note": item.args["note"]}, ["ada"])
    assert store.head(asked.run_id)[1].pending == (item,)
    result = driver.resume(new, waits.checkpoint, decisions={item.id: Approve()}, by="bert")
    assert (result.status, ran) == ("completed", [item.args])


AGAIN: Final = ("new optional parameter", "type changed")
"""Changes after which the tool would run with other arguments than those that were shown."""

NO_MORE: Final = (
    *("bound tightened", "new required parameter", "parameter removed", "parameter renamed"),
    *("type narrowed", "tool gone", "tool renamed"),
)
"""Changes after which what waits cannot run."""

LOOSER: Final = ("approval loosened", "agent renamed")
"""Other changes that somebody has to accept."""

EACH_WAY: Final = ("nothing", "type changed", "parameter removed", "tool gone", "approval loosened")
"""A change for each way in which the agent looks at what waits: the default, where nothing of the change is to count."""


@pytest.mark.parametrize("decides", [resumed, worked])
@pytest.mark.parametrize("where", PLACES)
@each("change", AGAIN)
def test_an_approval_of_what_is_read_otherwise_is_asked_for_again(
    driver: Driver, store: Store, where: Any, decides: Decides, change: str
) -> None:
    ran: Ran = []
    deploy = DEPLOYS[change]
    asked = driver.invoke(where(ran, deploy.before, store), "Refund it").checkpoint
    [old] = asked.pending
    new = where(ran, deploy, store)
    assert [len(each) for each in (new.drift(asked).changed, new.drift(asked).asked_again)] == [0, 1]
    result = decides(driver, new, asked, Approve())
    assert (result.status, ran) == ("suspended", [])
    # The person who approved is told, and the new request shows what would run now.
    shown = store.request(old.id)
    [again] = result.checkpoint.pending
    assert (shown.status, shown.asked_again, shown.decision and shown.decision.kind) == (
        "asked_again",
        again.id,
        "approve",
    )
    assert again.id != old.id and again.digest != old.digest
    assert (again.reason or "").startswith("The tool has changed since this was asked.")
    assert [each.approval.id for each in store.pending()] == [again.id]
    result = decides(driver, new, result.checkpoint, Approve())
    assert (result.status, ran) == ("completed", [again.args])


@pytest.mark.parametrize("decides", [resumed, worked])
@pytest.mark.parametrize("where", PLACES)
@each("change", scaled(EACH_WAY, sweep=(*COMPATIBLE, *AGAIN, *NO_MORE, "approval loosened")))
def test_a_rejection_needs_nothing_of_the_agent(
    driver: Driver, store: Store, where: Any, decides: Decides, change: str
) -> None:
    ran: Ran = []
    deploy = DEPLOYS[change]
    asked = driver.invoke(where(ran, deploy.before, store), "Refund it").checkpoint
    result = decides(driver, where(ran, deploy, store), asked, Reject(reason="no"))
    assert (result.status, ran) == ("completed", [])
    assert store.request(asked.pending[0].id).status == "settled"


@pytest.mark.parametrize("decides", [resumed, worked])
@pytest.mark.parametrize("where", [place for place in PLACES if place.__name__ in ("nested", "stepped")])
def test_a_rejection_in_a_nested_run_needs_no_agent_of_the_same_name(
    driver: Driver, store: Store, where: Any, decides: Decides
) -> None:
    ran: Ran = []
    deploy = DEPLOYS["agent renamed"]
    asked = driver.invoke(where(ran, deploy.before, store), "Refund it").checkpoint
    new = where(ran, deploy, store)
    with pytest.raises(AgentChanged, match="the agent was 'desk' and is 'counter'"):
        driver.resume(new, asked, approved=True)
    result = decides(driver, new, asked, Reject(reason="no"))
    assert (result.status, ran) == ("completed", [])


@pytest.mark.parametrize("where", PLACES)
@each("change", (*NO_MORE, *LOOSER))
def test_an_approval_of_what_cannot_run_is_refused_by_every_way(
    driver: Driver, store: Store, where: Any, change: str
) -> None:
    ran: Ran = []
    deploy = DEPLOYS[change]
    asked = driver.invoke(where(ran, deploy.before, store), "Refund it").checkpoint
    [item] = asked.pending
    new = where(ran, deploy, store)
    before = store.head(asked.run_id)
    with pytest.raises(AgentChanged, match="Nothing was consumed") as caught:
        driver.resume(new, asked, approved=True)
    assert (store.head(asked.run_id), ran) == (before, [])
    assert new.drift(asked).changed == caught.value.changes
    advises = "reject the call, give arguments that the tool takes" in str(caught.value)
    assert advises == (change in NO_MORE)
    # A decision with the store alone is kept until an agent comes that can carry it out.
    store.decide(item.id, Approve(), by="ada", digest=item.digest)
    if new.spec.name == asked.agent.name:
        [done] = run(Worker(new).carry_out(asked.run_id))
        assert isinstance(done.error, AgentChanged)
    assert ran == []
    [done] = run(Worker(where(ran, deploy.before, store)).carry_out(asked.run_id))
    assert (done.result.status, ran) == ("completed", [item.args])


OPTIONAL: Final = DEPLOYS["new optional parameter"]


def asked_again(store: Store, ran: Ran, old: str, result: Any) -> None:
    """The approval came to a new request, and nothing ran."""
    [item] = result.checkpoint.pending
    assert (result.status, ran, item.args["currency"], item.id != old) == ("suspended", [], "EUR", True)
    assert [each.approval.id for each in store.pending(run_id=result.checkpoint.run_id)].count(item.id) == 1


@pytest.mark.parametrize("where", PLACES)
@each("way", ("approve_all", "decide", "fork", "step"))
def test_every_way_to_approve_asks_again(driver: Driver, store: Store, where: Any, way: str) -> None:
    ran: Ran = []
    asked = driver.invoke(where(ran, OPTIONAL.before, store), "Refund it").checkpoint
    [item] = asked.pending
    new = where(ran, OPTIONAL, store)
    if way == "approve_all":
        result = driver.call(new, "approve_all", asked, by="ada")
    elif way == "decide":
        result = driver.call(new, "decide", item.id, Approve(), by="ada", digest=item.digest)
    elif way == "fork":
        result = driver.resume(new, driver.fork(new, asked), approved=True, by="ada")
    else:
        result = driver.step(new, asked, approved=True, by="ada")
        while result.status == "running":
            result = driver.step(new, result.checkpoint)
    asked_again(store, ran, item.id, result)
    assert driver.resume(new, result.checkpoint, approved=True).status == "completed"
    assert ran == [{**ASKED, "note": "none", "currency": "EUR"}]


@pytest.mark.parametrize("where", PLACES)
@each("change", scaled((*EACH_WAY, "agent renamed"), sweep=(*COMPATIBLE, *AGAIN, *NO_MORE, *LOOSER)))
def test_a_run_is_cancelled_or_superseded_after_any_deploy(
    driver: Driver, store: Store, where: Any, change: str
) -> None:
    ran: Ran = []
    deploy = DEPLOYS[change]
    for way in ("cancel", "supersede"):
        thread = f"{way} {change}"
        asked = driver.invoke(where(ran, deploy.before, store), "Refund it", thread_id=thread).checkpoint
        new = where(ran, deploy, store)
        if way == "cancel":
            assert driver.cancel(new, asked.run_id).status == "cancelled"
        else:
            driver.invoke(new, "Another", thread_id=thread, on_pending="supersede")
        assert store.head(asked.run_id)[1].ended == {"cancel": "cancelled", "supersede": "superseded"}[way]
    assert ran in ([], [{**ASKED, "note": "none"}])  # the new run asks nobody where the gate is gone


def test_votes_on_what_is_read_otherwise_begin_anew(driver: Driver, store: Store) -> None:
    ran: Ran = []
    two = Approval(needed=2)
    deploy = Deploy(version=OPTIONAL.version, gate=two, gate_before=two)
    asked = driver.invoke(PLACES[0](ran, deploy.before, store), "Refund it").checkpoint
    new = PLACES[0](ran, deploy, store)
    result = driver.resume(new, asked, approved=True, by="ada")
    assert [vote.by.id for vote in result.checkpoint.pending[0].votes] == ["ada"]
    result = driver.resume(new, result.checkpoint, approved=True, by="bert")
    asked_again(store, ran, asked.pending[0].id, result)
    for person in ("ada", "bert"):
        assert (ran, result.status) == ([], "suspended")
        result = driver.resume(new, result.checkpoint, approved=True, by=person)
    assert (result.status, len(ran)) == ("completed", 1)


def test_what_is_judged_anew_is_judged_by_all_that_judges_now(driver: Driver, store: Store) -> None:
    ran: Ran = []

    def one(gate: Any, **options: Any) -> Any:
        deploy = Deploy(version=OPTIONAL.version, gate=gate)
        return clerk(ran, deploy, store, **options)

    def asked(gate: Any = True) -> Checkpoint:
        return driver.invoke(PLACES[0](ran, Deploy(gate=gate), store), "Refund it").checkpoint

    # A gate that would let it run by now does not: a human approved of other arguments.
    at = asked(lambda args: True)
    asked_again(store, ran, at.pending[0].id, driver.resume(one(lambda args: False), at, approved=True))
    # A handler answers as for any call.
    result = driver.resume(one(True, on_approval_required=lambda name, args: True), asked(), approved=True)
    assert (result.status, [each["currency"] for each in ran]) == ("completed", ["EUR"])
    # A policy that rejects it now rejects it.
    ran.clear()
    result = driver.resume(one(True, approval_policy={"refund": lambda args: Reject()}), asked(), approved=True)
    assert (result.status, ran, result.messages[2].settlement) == ("completed", [], "rejected")


def test_a_call_that_needed_nobody_runs_as_the_tool_reads_it_now(driver: Driver, store: Store) -> None:
    ran: Ran = []
    result = driver.step(clerk(ran, Deploy(gate=False), store), "Refund it")
    while not result.checkpoint.calls or result.checkpoint.calls[0].status == "new":
        result = driver.step(clerk(ran, Deploy(gate=False), store), result.checkpoint)
    assert result.checkpoint.calls[0].status == "ready"
    result = driver.resume(clerk(ran, Deploy(version=OPTIONAL.version, gate=False), store), result.checkpoint)
    assert (result.status, [each["currency"] for each in ran]) == ("completed", ["EUR"])


class Page(BaseModel):
    """The state of a graph before a deploy."""

    draft: str = ""
    log: list[str] = []


class TonedPage(Page):
    """The state after it."""

    tone: str = "plain"


class Letter(BaseModel):
    """A value in a channel."""

    to: str


class Sealed(Letter):
    """It after a deploy."""

    seal: str = "red"


def press(ran: Ran, state: type[BaseModel], store: Store, *, gate: Any = True, **options: Any) -> Any:
    """A graph whose one node asks for approval, with the state."""

    def publish(page: Any) -> dict[str, object]:
        ran.append(page.model_dump())
        return {}

    graph: Any = StateGraph(state, name="press").add_node("publish", publish, requires_approval=gate)
    return graph.add_edge(START, "publish").add_edge("publish", END).compile(store=store, **options)


@pytest.mark.parametrize("decides", [resumed, worked])
@each(
    ("answer", "runs"),
    [
        (Approve(args={"state": {"draft": "b", "log": []}}), {"draft": "b", "log": [], "tone": "plain"}),
        (Approve(args={"state": {"draft": "b", "log": [], "tone": "loud"}}), {"draft": "b", "log": [], "tone": "loud"}),
        (Reject(), None),
    ],
)
def test_an_edit_of_a_node_that_waits_takes_a_state_with_a_new_channel(
    driver: Driver, store: Store, decides: Decides, answer: Answer, runs: dict[str, object] | None
) -> None:
    ran: Ran = []
    asked = driver.invoke(press(ran, Page, store), {"draft": "a"}).checkpoint
    new = press(ran, TonedPage, store)
    assert new.drift(asked).changed == ()
    result = decides(driver, new, asked, answer)
    assert (result.status, ran) == (("completed", [runs]) if runs else ("rejected", []))
    if runs:  # with all values in the record, those that were filled in too
        [decision] = [each for each in result.checkpoint.decisions if each.kind == "approve"]
        assert decision.args == {"state": runs}


class Counted(Page):
    """The state after another deploy: each list begins with an entry."""

    log: list[str] = ["none"]
    words: Annotated[int, Field(ge=0)] = 0


class OfLetters(BaseModel):
    """A state whose letters have no seal."""

    letters: list[Letter] = [Letter(to="ada")]


class OfSealed(BaseModel):
    """The same state, whose letters have one."""

    letters: list[Sealed] = [Sealed(to="ada")]


class Weighed(BaseModel):
    """A state with a weight."""

    grams: float = 1.0


class WeighedInGrams(BaseModel):
    """The same state, whose weight is a whole number."""

    grams: int = 1


def desk_around(ran: Ran, state: type[BaseModel], store: Store) -> Any:
    """The graph as a node of another."""
    inner = press(ran, state, MemoryStore())
    graph = StateGraph(Page, name="desk").add_node("press", inner, input=lambda page: {}, output=lambda page: {})
    return graph.add_edge(START, "press").add_edge("press", END).compile(store=store)


@pytest.mark.parametrize("decides", [resumed, worked])
@pytest.mark.parametrize("where", [press, desk_around])
@each(
    ("before", "after", "shows"),
    [
        (Page, TonedPage, {"draft": "", "log": [], "tone": "plain"}),
        (Page, Counted, {"draft": "", "log": [], "words": 0}),
        (OfLetters, OfSealed, {"letters": [{"to": "ada", "seal": "red"}]}),
        (Weighed, WeighedInGrams, {"grams": 1}),
    ],
)
def test_a_node_is_asked_again_with_values_that_nobody_was_shown(
    driver: Driver, store: Store, where: Any, decides: Decides, before: Any, after: Any, shows: Any
) -> None:
    ran: Ran = []
    asked = driver.invoke(where(ran, before, store), {}).checkpoint
    new = where(ran, after, store)
    assert [len(each) for each in (new.drift(asked).changed, new.drift(asked).asked_again)] == [0, 1]
    result = decides(driver, new, asked, Approve())
    [again] = result.checkpoint.pending
    assert (result.status, ran, again.args) == ("suspended", [], {"state": shows})
    shown = store.request(asked.pending[0].id)
    assert (shown.status, shown.asked_again) == ("asked_again", again.id)
    assert [len(each) for each in (new.drift(result.checkpoint).changed, new.drift(result.checkpoint).asked_again)] == [
        0,
        0,
    ]
    result = decides(driver, new, result.checkpoint, Approve())
    assert (result.status, ran) == ("completed", [shows])


def test_a_node_that_asks_nobody_goes_on_with_a_new_channel(driver: Driver, store: Store) -> None:
    ran: Ran = []
    asked = driver.invoke(press(ran, Page, store, gate=False, breakpoints=[Breakpoint("pre_node")]), {}).checkpoint
    new = press(ran, TonedPage, store, gate=False)
    assert (new.drift(asked).changed, new.drift(asked).asked_again) == ((), ())
    assert driver.resume(new, asked, approved=True).status == "completed"
    assert ran == [{"draft": "", "log": [], "tone": "plain"}]


def test_who_edits_a_state_leaves_nothing_out_that_was_shown(driver: Driver, store: Store) -> None:
    asked = driver.invoke(press([], Page, store), {"draft": "a"}).checkpoint
    with pytest.raises(InvalidDecision, match="log is not in it"):
        resumed(driver, press([], TonedPage, store), asked, Approve(args={"state": {"draft": "b"}}))


def test_a_change_beside_an_approval_is_warned_of(
    driver: Driver, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    ran: Ran = []
    graph = press(ran, Page, store)
    asked = driver.invoke(graph, {"draft": "a"}).checkpoint
    [item] = asked.pending
    result = driver.resume(graph, asked, decisions={item.id: Approve()}, update={"draft": "b"})
    assert (result.status, ran) == ("completed", [{"draft": "a", "log": []}])
    assert "node publish was approved with the state that was shown, and runs with that" in caplog.text
    assert item.id in caplog.text


def test_a_row_that_could_not_be_read_back_is_not_written(driver: Driver, store: Store) -> None:
    asked = driver.invoke(PLACES[0]([], Deploy(), store), "Refund it").checkpoint
    [waits] = asked.calls
    forged = asked.evolve(id="ckpt_next", calls=(waits.evolve(args='{"amount":500.0}'),))
    with pytest.raises(CheckpointError, match="ckpt_next could not be read back, so it was not written: call call_1"):
        row_entry(asked, forged, {})
    with pytest.raises(CheckpointError, match="the digest of a call"):
        row_entry(None, forged, {})
    assert row_entry(asked, asked.evolve(id="ckpt_next"), {}).checkpoint_id == "ckpt_next"
    assert ASKED.items() <= asked.pending[0].args.items()
