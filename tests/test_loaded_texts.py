"""An id names what was shown under it: `load` gives the same text, and the same digest, however far the run has gone since.

The last checkpoint of a branch is where the run stands: it comes with what has been journaled after it, so that a copy of it goes
on elsewhere without doing anything again.
"""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from drivers import DRIVERS, Driver
from places import Place

from phronomy import (
    END,
    START,
    Agent,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointEdited,
    LimitExceeded,
    Limits,
    Respond,
    StateGraph,
    interrupt,
    tool,
)
from phronomy.records.checkpoint import decode, encode
from phronomy.stores.log.log import as_sealed
from phronomy.testing import ScriptedModel, call, say


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


class Notes(TypedDict, total=False):
    answer: str


class Desk:
    """Pays orders: the second one dies with its worker, when it is told to."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver, self.place = driver, place
        self.paid: list[int] = []
        self.dies = False

    def agent(self, *, gated: bool = False, **options: Any) -> Agent[Any, str]:
        def pay(order: int) -> str:
            """Pay an order."""
            self.paid.append(order)
            if order == 2 and self.dies:
                self.dies = False
                raise KeyboardInterrupt
            return f"paid {order}"

        paying = tool(requires_approval=gated)(self.driver.function(pay))
        model = ScriptedModel.by_turn(
            [say("", call("pay", {"order": 1}, id="c1"), call("pay", {"order": 2}, id="c2")), "Done."]
        )
        made = {"store": self.place.open(), "max_parallel": 1, **options}
        return Agent(name="desk", model=model, tools=[paying], **made)

    def interrupted(self) -> Checkpoint:
        """The last checkpoint of a run whose worker was lost in the second call, as it was when it was sealed."""
        agent = self.agent()
        begun = self.driver.step(agent, "Pay both").checkpoint
        ready = self.driver.step(agent, begun).checkpoint
        self.dies = True
        with pytest.raises(KeyboardInterrupt):
            self.driver.call(agent, "step", ready)
        return ready


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


def test_the_text_of_each_step_is_the_same_ever_after(desk: Desk) -> None:
    agent = desk.agent(gated=True)
    result = desk.driver.step(agent, "Pay both")
    shown = [result.checkpoint]
    while result.status in ("running", "suspended"):
        answers = {item.id: Approve() for item in result.checkpoint.pending[:1]}
        result = desk.driver.step(agent, result.checkpoint, decisions=answers)
        shown.append(result.checkpoint)
    assert (result.status, desk.paid, len(shown) > 5) == ("completed", [1, 2], True)

    store = desk.place.open()
    for each in shown:
        found = store.load(each.id)
        assert (encode(found), found.digest) == (encode(each), each.digest)
        assert encode(store.history(each.id)[-1]) == encode(each)
        assert encode(store.locate(each.id)[1]) == encode(each)
    assert [[encode(one) for one in store.children(each.id)] for each in shown[:-1]] == [
        [encode(each)] for each in shown[1:]
    ]


def test_so_is_that_of_a_run_with_others_inside_it(desk: Desk) -> None:
    """Those inside are as they were then, too."""

    def ask(state: Notes) -> Notes:
        return {"answer": interrupt("Well?")}

    outer = (
        StateGraph(Notes, name="outer")
        .add_node("desk", desk.agent(gated=True, store=None), input=lambda state: "Pay both", output="answer")
        .add_node("ask", ask)
        .add_edge(START, "desk")
        .add_edge("desk", "ask")
        .add_edge("ask", END)
        .compile(store=desk.place.open())
    )
    result = desk.driver.invoke(outer, {})  # type: ignore[arg-type]
    shown = []
    while result.suspended:
        shown.append(result.checkpoint)
        item = result.checkpoint.pending[0]
        result = desk.driver.resume(
            outer,  # type: ignore[arg-type]
            result.checkpoint,
            decisions={item.id: Approve() if item.why == "approval" else Respond(content="yes")},
        )
    assert (result.status, len(shown), [bool(each.nested) for each in shown]) == ("completed", 3, [True, True, False])
    store = desk.place.open()
    for each in shown:
        assert encode(store.load(each.id)) == encode(each)


def test_the_last_has_what_was_journaled_after_it_and_its_sealed_copy_has_not(desk: Desk) -> None:
    ready = desk.interrupted()
    store = desk.place.open()
    found = store.load(ready.id)
    assert [outcome.type for outcome in found.journal] == ["started", "settled", "started"]
    assert (found.id, found.sealed(), found.sealed().digest) == (ready.id, ready, ready.digest)
    assert found.digest != ready.digest
    assert store.head(ready.branch_id)[1] == found == store.history(ready.id)[-1]

    agent = desk.agent()
    waiting = desk.driver.recover(agent, ready.run_id).checkpoint
    assert [item.why for item in waiting.pending] == ["outcome_unknown"]
    assert store.load(ready.id) == ready, "the branch has gone on: it is as it was sealed"


def test_a_copy_with_a_journal_goes_on_elsewhere_and_does_nothing_again(desk: Desk) -> None:
    ready = desk.interrupted()
    text = encode(desk.place.open().load(ready.id))
    elsewhere = desk.agent(store=None)
    waiting = desk.driver.recover(elsewhere, decode(text)).checkpoint
    assert (desk.paid, [item.why for item in waiting.pending]) == ([1, 2], ["outcome_unknown"])
    assert desk.driver.resume(elsewhere, waiting, approved=True).output == "Done."
    assert desk.paid == [1, 2, 2]


def test_a_copy_with_a_journal_is_still_known_when_the_run_has_gone_on(desk: Desk) -> None:
    """A text of an earlier time, whatever of the journal it has, is the stored one; an edited one is not."""
    ready = desk.interrupted()
    store = desk.place.open()
    whole = store.load(ready.id)
    agent = desk.agent()
    waiting = desk.driver.recover(agent, ready.run_id).checkpoint
    desk.driver.resume(agent, waiting, approved=True)
    for count in range(len(whole.journal) + 1):
        older = decode(encode(whole.evolve(journal=whole.journal[:count])))
        with pytest.raises(CheckpointAlreadyResumed):
            desk.driver.resume(agent, older)
        assert as_sealed(older) == ready
    edited = whole.evolve(journal=whole.journal[1:])
    with pytest.raises(CheckpointEdited):
        desk.driver.resume(agent, edited)
    assert desk.paid == [1, 2, 2]


def test_the_checkpoint_of_a_failure_is_whole(desk: Desk) -> None:
    """Its journal says what has run: whoever brings it elsewhere does not run that again."""
    agent = desk.agent(limits=Limits(tool_calls=1))
    with pytest.raises(LimitExceeded) as caught:
        desk.driver.invoke(agent, "Pay both")
    failed = caught.value.checkpoint
    assert failed is not None and failed == desk.place.open().load(failed.id)
