"""Forms in chats: each kind of field, values that nobody has touched, questions, and people who are asked later."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from chat_scenes import RITA, approvals_of, asked, desk, emptied, with_people
from pydantic import Field

from phronomy import Agent, Approval, Escalate, MemoryStore, interrupt, tool
from phronomy.chat import ChatApprovals
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import FakeSlack, MinimalPlatform, Platform

BEFORE: dict[str, Any] = {"size": 2, "note": "5", "kind": "gift", "fast": False, "extra": {"a": [1.0]}, "until": None}


@pytest.fixture(params=[MinimalPlatform, FakeSlack])
def platform(request: pytest.FixtureRequest) -> Any:
    made = request.param()
    yield made
    made.close()


def opened(platform: Platform, store: Store) -> ChatApprovals:
    """A form for an edit is open for Rita."""

    @tool(requires_approval=True)
    def ship(
        size: Annotated[int, Field(le=9)],
        note: str,
        kind: Literal["gift", "sale"],
        fast: bool,
        extra: dict[str, Any],
        until: str | None,
    ) -> str:
        """Ship it."""
        return f"{size} {note} {kind} {fast} {extra} {until}"

    approvals = approvals_of(store, platform)
    model = ScriptedModel.by_turn([call("ship", BEFORE), "Done."])
    Agent(name="dock", model=model, tools=[ship], store=store, announcements=[approvals]).invoke("go")
    emptied(approvals, platform.clock)
    platform.click(platform.messages()[0], "edit", RITA)
    return approvals


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({}, {}),
        ({"size": "7"}, {"size": 7}),
        ({"note": "7"}, {"note": "7"}),
        ({"note": ""}, {"note": ""}),
        ({"kind": "sale"}, {"kind": "sale"}),
        ({"fast": "true"}, {"fast": True}),
        ({"extra": '{"b": 2}'}, {"extra": {"b": 2}}),
        ({"until": "noon"}, {"until": "noon"}),
        ({"until": ""}, {}),
    ],
)
def test_each_value_comes_back_as_it_is_meant(
    platform: Platform, changes: dict[str, str], after: dict[str, Any]
) -> None:
    store = with_people(MemoryStore(clock=platform.clock), platform)
    opened(platform, store)
    form = platform.form(RITA)
    assert form == {
        f"arg:{name}": {"fast": "false", "note": "5", "kind": "gift"}.get(name, _json(BEFORE[name])) for name in BEFORE
    }
    item = store.pending()[0].approval
    assert platform.submit(RITA, {f"arg:{name}": value for name, value in changes.items()}) == {}
    decision = store.request(item.id).decision
    assert decision is not None
    assert decision.args == ({**BEFORE, **after} if after else None)


def _json(value: object) -> str:
    return {"2": "2", "None": "null"}.get(str(value), '{"a":[1.0]}')


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"size": "many"}, "size"),
        ({"size": "10"}, "size"),
        ({"size": "2.5"}, "size"),
        ({"size": ""}, "size"),
        ({"extra": "[1]"}, "extra"),
        ({"extra": "{"}, "extra"),
        ({"extra": '{"a": NaN}'}, "extra"),
    ],
)
def test_what_does_not_fit_is_said_at_the_field(platform: Platform, changes: dict[str, str], wrong: str) -> None:
    store = with_people(MemoryStore(clock=platform.clock), platform)
    opened(platform, store)
    found = platform.submit(RITA, {f"arg:{name}": value for name, value in changes.items()})
    assert found.keys() == {f"arg:{wrong}"} and len(store.pending()) == 1
    assert all(value not in text for value in changes.values() if len(value) > 3 for text in found.values())


def test_a_question_is_answered_in_the_type_that_it_wants(platform: Platform) -> None:
    @tool
    def count() -> str:
        """Count."""
        return f"{interrupt('How many?', answer=int)} boxes"

    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals = approvals_of(store, platform)
    model = ScriptedModel.by_turn([call("count", {}), "Done."])
    agent = Agent(name="dock", model=model, tools=[count], store=store, announcements=[approvals])
    item = agent.invoke("go").checkpoint.pending[0]
    emptied(approvals, platform.clock)
    [shown] = platform.messages()
    assert "waits for an answer" in shown.text and "How many?" in shown.text
    platform.click(shown, "respond", RITA)
    wrong = platform.submit(RITA, {"content": "a few"})
    assert wrong.keys() == {"content"} and store.request(item.id).status == "pending"
    assert platform.submit(RITA, {"content": "12"}) == {}
    decision = store.request(item.id).decision
    assert decision is not None and decision.content == 12
    agent.recover_all()
    emptied(approvals, platform.clock)
    assert "answered by Rita" in platform.messages()[0].text


def test_others_are_asked_when_a_request_escalates() -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)

    def route(event: Any) -> str:
        return "minimal:heads" if event.what == "escalated" else "minimal:room"

    gate = Approval(by="nobody", escalate=Escalate(after=60, by="lead"))
    approvals = approvals_of(store, platform, route=route)
    item = asked(approvals, store, gate=gate)
    emptied(approvals, platform.clock)
    assert len(platform.messages()) == 1
    platform.click(platform.messages()[0], "approve", RITA)
    assert len(platform.told(RITA)) == 1
    platform.clock.move(61)
    desk(approvals, store, gate).recover_all()
    emptied(approvals, platform.clock)
    [asked_next] = platform.conversation("heads")
    assert len(platform.messages()) == 1 and len(platform.reminders()) == 1
    platform.click(asked_next, "approve", RITA)
    assert store.request(item.id).status == "decided"
    emptied(approvals, platform.clock)
    assert all(shown.buttons == {} for shown in (*platform.messages(), *platform.conversation("heads")))
