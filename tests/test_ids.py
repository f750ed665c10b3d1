"""Texts that stores find by: every store takes the same, and what one could not take is refused before anything runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from drivers import DRIVERS, Driver, rows
from places import Place
from typing_extensions import TypedDict

from phronomy import END, START, Agent, Approve, ConfigurationError, Principal, StateGraph, ToolDefinitionError, tool
from phronomy.foundation.ids import LONGEST
from phronomy.testing import ScriptedModel, call

MIXED = "".join(hashlib.sha256(b"%d" % n).hexdigest() for n in range(50))
"""A text that a database cannot make shorter."""

TOO_LONG = [MIXED[: LONGEST + 1], "ü" * (LONGEST // 2) + "x", "x" * 3_000_000]
REFUSED = ["a\0b", "\0", *TOO_LONG]
WHY = r"at most 1,500 bytes in UTF-8, without NUL characters"

each = pytest.mark.parametrize


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


class State(TypedDict):
    paid: str


class Desk:
    """An agent over a store, that notes what runs."""

    def __init__(self, driver: Driver, place: Place, tenant: str = "", **options: Any) -> None:
        self.driver, self.store, self.ran = driver, place.open(tenant=tenant), list[str]()
        options.setdefault("name", "desk")
        paying = tool(requires_approval=True, risk=options.pop("risk", None))(driver.function(self.pay))
        self.model = ScriptedModel.by_turn([call("pay", {"to": "Ann"}), "Done."])
        self.agent: Agent[Any, str] = Agent(model=self.model, tools=[paying], store=self.store, **options)

    def pay(self, to: str) -> str:
        """Pay somebody."""
        self.ran.append(to)
        return f"paid {to}"

    def refuses(self, *acts: Callable[[], Any]) -> None:
        """Each is refused with one message, and nothing was asked, run or written."""
        before, asked = rows(self.store), len(self.model.requests)
        for act in acts:
            with pytest.raises(ConfigurationError, match=WHY) as caught:
                act()
            assert len(str(caught.value)) < 300 and "SHA-256" in str(caught.value)
        assert (rows(self.store), len(self.model.requests), self.ran) == (before, asked, [])


@each("text", REFUSED, ids=[f"{len(text)} characters" for text in REFUSED])
def test_what_no_store_could_find_by_is_refused_by_all(driver: Driver, place: Place, text: str) -> None:
    desk = Desk(driver, place)
    asked = driver.invoke(desk.agent, "Pay", thread_id="t").checkpoint
    desk.refuses(
        lambda: driver.invoke(desk.agent, "Pay", thread_id=text),
        lambda: driver.invoke(desk.agent, "Pay", label=text),
        lambda: driver.step(desk.agent, "Pay", thread_id=text),
        lambda: driver.fork(desk.agent, asked, label=text),
        lambda: driver.call(desk.agent, "checkpoint", asked, label=text),
        lambda: driver.invoke(Agent(name=text, model=desk.model, store=desk.store), "Pay"),
        lambda: (
            StateGraph(State)
            .add_node("one", lambda state: state)
            .add_edge(START, "one")
            .add_edge("one", END)
            .compile(name=text)
        ),
    )
    with pytest.raises(ToolDefinitionError, match=WHY):
        tool(risk=text)(desk.pay)
    assert driver.resume(desk.agent, asked, approved=True).status == "completed"


@each("text", [MIXED[:LONGEST], "\U00010000" * (LONGEST // 4), "\r\n\x1b\x7f", "a\ud800b"], ids=range(4))
def test_what_is_no_longer_than_that_is_taken_and_found_by_all(driver: Driver, place: Place, text: str) -> None:
    """Also beside the longest name of a tenant."""
    desk = Desk(driver, place, tenant="\U00010000" * 200, name=text, risk=text)
    asked = driver.invoke(desk.agent, "Pay", thread_id=text, label=text).checkpoint
    for wanted in ("thread_id", "label", "agent", "risk"):
        found = desk.store.pending(**{wanted: text})  # type: ignore[arg-type]
        assert [item.checkpoint_id for item in found] == [asked.id], wanted
    copy = driver.call(desk.agent, "checkpoint", driver.fork(desk.agent, asked, label=text), label=text)
    assert driver.resume(desk.agent, copy, approved=True).status == "completed"
    assert desk.ran == ["Ann"]


@each("text", ["a\0b", "a\ud800b", "x" * 3_000_000], ids=["NUL", "half", "long"])
def test_what_nothing_is_found_by_may_be_any_text(driver: Driver, place: Place, text: str) -> None:
    desk = Desk(driver, place)
    kept = text.replace("\ud800", "\ufffd")
    asked = driver.invoke(desk.agent, text, metadata={text: text}).checkpoint
    assert (asked.input, asked.metadata) == (kept, {kept: kept})
    edited = {asked.pending[0].id: Approve(args={"to": text})}
    result = driver.resume(desk.agent, asked, decisions=edited, by=text, channel=text)
    assert (result.status, desk.ran) == ("completed", [kept])
    assert list(desk.store.audit())[-1].by == Principal(id=kept)
    for unknown in (desk.store.branches(thread_id=text), desk.store.pending(label=text), desk.store.latest(text)):
        assert not unknown
