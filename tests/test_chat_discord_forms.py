"""Forms of Discord: what they begin with, what is wrong with them, and what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from chat_scenes import OTTO, RITA, approvals_of, emptied, with_people

from phronomy import Agent, MemoryStore, tool
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import Clock, FakeDiscord


@pytest.fixture
def fake() -> Iterator[FakeDiscord]:
    with FakeDiscord(Clock()) as made:
        yield made


def desk(fake: FakeDiscord, space: str, **args: Any) -> tuple[MemoryStore, Any]:
    """A request for a call of a tool with these parameters, and its message."""
    store = MemoryStore(clock=fake.clock)
    with_people(store, fake)
    approvals = approvals_of(store, fake, approve_unseen=True)
    made: dict[str, Any] = {"Literal": Literal}
    exec(f"def pay({space}) -> str: ...", made)
    pay = tool(requires_approval=True)(made["pay"])
    model = ScriptedModel([call("pay", args), "Done."])
    Agent(name="desk", model=model, tools=[pay], store=store, announcements=[approvals]).invoke("go")
    emptied(approvals, fake.clock)
    [shown] = fake.messages()
    return store, shown


@pytest.mark.parametrize("rows", [False, True])
def test_what_was_written_is_there_when_a_form_with_errors_is_opened_again(fake: FakeDiscord, rows: bool) -> None:
    space = "to: str, note: str, amount: float, speed: Literal['fast', 'slow']"
    store, shown = desk(fake, space, to="ACME", note="two\nlines ", amount=49.9, speed="slow")
    fake.click(shown, "edit", RITA)
    asked_for = {"arg:to": "ACME", "arg:note": "two\nlines ", "arg:amount": "49.9", "arg:speed": "slow"}
    assert fake.form(RITA) == asked_for
    wrong = {"arg:to": "*Otto* <@1>\n  ", "arg:amount": "a lot", "arg:speed": "fast"}
    assert fake.submit(RITA, wrong, rows=rows).keys() == {"arg:amount"}
    assert fake.form(RITA) == {**asked_for, **wrong}
    assert "Nothing was decided" in fake.told(RITA)[0] and fake.pings() == []
    # The message about the first errors is the one about the next, and then the one that all is well.
    assert fake.submit(RITA, {"arg:amount": "[]"}).keys() == {"arg:amount"}
    assert len(fake.told(RITA)) == 1
    assert fake.submit(RITA, {"arg:amount": "20"}, rows=rows) == {}
    assert len(fake.told(RITA)) == 1 and "Taken" in fake.told(RITA)[0]
    [record] = store.audit()
    decision = store.request(record.pending_id or "").decision
    assert decision is not None and decision.args == {
        "to": "*Otto* <@1>\n  ",
        "note": "two\nlines ",
        "amount": 20,
        "speed": "fast",
    }
    assert fake.messages()[0].buttons == {}


def test_what_was_written_is_forgotten_if_it_is_too_long(fake: FakeDiscord) -> None:
    _, shown = desk(fake, "note: str, amount: float", note="n", amount=49.9)
    fake.click(shown, "edit", RITA)
    assert fake.submit(RITA, {"arg:note": "*" * 3_000, "arg:amount": "a lot"}).keys() == {"arg:amount"}
    assert fake.form(RITA) == {"arg:note": "n", "arg:amount": "49.9"}


def test_five_fields_fit_and_six_do_not(fake: FakeDiscord) -> None:
    _, shown = desk(fake, "a: int, b: int, c: int, d: int, e: int", a=1, b=2, c=3, d=4, e=5)
    fake.click(shown, "edit", RITA)
    assert len(fake.form(RITA) or {}) == 5
    assert fake.submit(RITA, {}) == {}


@pytest.mark.parametrize(
    ("space", "args"),
    [
        ("a: int, b: int, c: int, d: int, e: int, f: int", dict.fromkeys("abcdef", 1)),
        (f"{'x' * 46}: int", {"x" * 46: 1}),
        ("note: str", {"note": "n" * 4_001}),
        ("note: str", {"note": "\U0001f600" * 2_001}),
    ],
)
def test_what_does_not_fit_a_form_is_told(fake: FakeDiscord, space: str, args: dict[str, Any]) -> None:
    _, shown = desk(fake, space, **args)
    fake.click(shown, "edit", RITA)
    assert fake.form(RITA) is None and "does not fit into a form" in fake.told(RITA)[0]


def test_a_form_that_comes_too_late_says_who_was_first(fake: FakeDiscord) -> None:
    store, shown = desk(fake, "note: str", note="n")
    fake.click(shown, "reason", RITA)
    fake.click(shown, "approve", OTTO)
    assert fake.submit(RITA, {"reason": "no"}) == {}
    assert "Somebody was first: approved by Otto" in fake.told(RITA)[0]
    assert len(list(store.audit())) == 1


def test_a_click_in_a_direct_message_counts(fake: FakeDiscord) -> None:
    store, shown = desk(fake, "note: str", note="n")
    fake.deliver(fake.sign(shown, "approve", RITA, direct=True))
    assert [each.kind for each in store.audit()] == ["approve"]
