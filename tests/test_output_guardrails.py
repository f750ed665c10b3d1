"""Guardrails look at all of a typed answer: also at what its type computes, and adds, and reads from a text inside."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pydantic.dataclasses
import pytest
from drivers import Driver
from places import Place
from pydantic import BaseModel, ConfigDict, Json, RootModel, computed_field, model_validator
from stop_scenes import EVERY
from typing_extensions import TypedDict

from phronomy import Agent, GuardrailFailed, GuardrailRefused, OutputError
from phronomy.guardrails.guardrail import Pass, RedactPatterns, Refuse, RefusePatterns, Transform, guardrail
from phronomy.testing import ScriptedModel

CARD = "4111 1111 1111 1111"
REFUSED = RefusePatterns([CARD])
REDACTED = RedactPatterns([CARD])

each = pytest.mark.parametrize


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each of the two drivers, with a stream and without one."""
    found: Driver = request.param
    return found


class Paid(BaseModel):
    first: str
    last: str

    @computed_field
    def card(self) -> str:
        return f"{self.first} {self.last}"


class Strict(Paid):
    model_config = ConfigDict(extra="forbid")


class Open(Paid):
    model_config = ConfigDict(extra="allow")


class Holder(BaseModel):
    name: str
    paid: Strict
    more: list[Open] = []


@pydantic.dataclasses.dataclass
class Entry:
    first: str
    last: str

    @computed_field
    def card(self) -> str:
        return f"{self.first} {self.last}"


class Row(TypedDict):
    paid: Strict


class Joined(BaseModel):
    """It computes a field that is stored."""

    first: str
    last: str
    card: str = ""

    @model_validator(mode="after")
    def _joined(self) -> Joined:
        self.card = f"{self.first} {self.last}"
        return self


@dataclass
class Kept:
    inside: Json[Any]


PARTS: dict[str, Any] = {"first": "4111 1111", "last": "1111 1111"}
SEEN: dict[str, Any] = {**PARTS, "card": CARD}
OTHER: dict[str, Any] = {"first": "Ann", "last": "Lee"}

TYPES = [
    (Paid, PARTS, SEEN),
    (Strict, PARTS, SEEN),
    (Open, {**PARTS, "note": "x"}, {**PARTS, "note": "x", "card": CARD}),
    (Holder, {"name": "x", "paid": PARTS}, {"name": "x", "paid": SEEN, "more": []}),
    (
        Holder,
        {"name": "x", "paid": OTHER, "more": [PARTS]},
        {"name": "x", "paid": {**OTHER, "card": "Ann Lee"}, "more": [SEEN]},
    ),
    (Entry, PARTS, SEEN),
    (Row, {"paid": PARTS}, {"paid": SEEN}),
    (RootModel[Paid], {"answer": PARTS}, SEEN),
    (list[Paid], {"answer": [PARTS]}, [SEEN]),
    (Paid | int, {"answer": PARTS}, SEEN),
    (Joined, PARTS, SEEN),
]


def named(name: str) -> Callable[[Callable[[Any], Any]], Any]:
    return guardrail(name=name)


def asked(driver: Driver, hint: Any, answer: Any, *rails: Any, **options: Any) -> tuple[list[Any], Callable[[], Any]]:
    """What a guardrail in front sees, and what runs an agent that gives this answer."""
    seen: list[Any] = []
    agent: Agent[Any, Any] = Agent(
        name="desk",
        model=ScriptedModel([json.dumps(answer)] * 3),
        output_type=hint,
        output_guardrails=[named("seen")(seen.append), *rails],
        **options,
    )
    return seen, lambda: driver.invoke(agent, "go")


@each(("hint", "answer", "shown"), TYPES)
def test_what_a_type_computes_is_looked_at(driver: Driver, hint: Any, answer: Any, shown: Any) -> None:
    seen, run = asked(driver, hint, answer, REFUSED)
    with pytest.raises(GuardrailRefused):
        run()
    assert seen == [shown]


@each(("hint", "answer", "shown"), TYPES)
def test_what_was_redacted_does_not_come_back(driver: Driver, hint: Any, answer: Any, shown: Any) -> None:
    _, run = asked(driver, hint, answer, REDACTED)
    with pytest.raises(GuardrailFailed, match=r"'redact_patterns' changed what the output type makes") as caught:
        run()
    assert caught.value.guardrail == "redact_patterns" and CARD not in str(caught.value)


def test_a_computed_field_that_was_taken_out_does_not_come_back(driver: Driver) -> None:
    _, run = asked(driver, Paid, PARTS, named("bare")(lambda value: Transform(PARTS)))
    with pytest.raises(GuardrailFailed):
        run()


def test_what_follows_from_changed_fields_is_the_answer_if_it_was_looked_at(driver: Driver, place: Place) -> None:
    """Fields are changed with what is computed of them; what is computed is not kept as a field."""
    hide = RedactPatterns(["Lee"], "L.")
    for hint in (Strict, Open, Entry):
        seen, run = asked(driver, hint, OTHER, hide, store=place.open())
        result = run()
        assert seen == [{**OTHER, "card": "Ann Lee"}]
        assert (result.output, result.output.card) == (hint(first="Ann", last="L."), "Ann L.")
        assert json.loads(result.messages[-1].text) == result.checkpoint.output == {"first": "Ann", "last": "L."}
        assert result.checkpoint == place.open().load(result.checkpoint.id)

    seen, run = asked(driver, Holder, {"name": "Lee", "paid": OTHER, "more": [OTHER]}, hide)
    assert run().output == Holder(name="L.", paid=Strict(first="Ann", last="L."), more=[Open(first="Ann", last="L.")])


def test_guardrails_are_asked_again_about_what_the_type_made_of_theirs(driver: Driver) -> None:
    def short(value: Any) -> Any:
        return Transform({"first": "A", "last": "B"}) if value["first"] == "Ann" else Pass()

    seen, run = asked(driver, Paid, OTHER, short)
    assert run().output == Paid(first="A", last="B")
    assert seen == [{**OTHER, "card": "Ann Lee"}, {"first": "A", "last": "B", "card": "A B"}]

    strict = named("strict")(lambda value: Refuse("no") if value.get("card") == "A B" else None)
    seen, run = asked(driver, Joined, OTHER, short, strict)
    with pytest.raises(GuardrailRefused):
        run()
    assert [value["card"] for value in seen] == ["Ann Lee", "A B"]


class Priced(BaseModel):
    amount: Decimal
    rows: list[Paid] = []
    note: str | None = None
    kind: str = "sale"


@each(
    ("change", "asks"),
    [
        (lambda value: value | {"amount": 5.5}, 1),  # it is read as '5.5'
        (lambda value: {key: inner for key, inner in value.items() if key != "note"}, 1),  # it comes out as nothing
        (lambda value: value | {"unknown": 1}, 1),
        (lambda value: value | {"rows": [*value["rows"], {"first": "", "last": ""}][-1:]}, 2),
    ],
)
def test_a_change_that_says_the_same_counts(driver: Driver, change: Any, asks: int) -> None:
    once: list[int] = []

    def changes(value: Any) -> Any:
        once.append(1)
        return Transform(change(value)) if len(once) == 1 else None

    _, run = asked(driver, Priced, {"amount": "5.5", "rows": [OTHER]}, changes)
    assert (run().status, len(once)) == ("completed", asks)


def test_rows_may_be_added_and_taken_out(driver: Driver) -> None:
    """Also of a type that takes nothing it does not know."""
    ann, bob = ({"first": name, "last": ""} for name in ("Ann", "Bob"))

    def only(name: str) -> Any:
        return named("only")(lambda rows: Transform([row for row in rows if row["first"] == name]))

    _, run = asked(driver, list[Strict], {"answer": [ann, bob]}, only("Bob"))
    assert run().output == [Strict(**bob)]
    add = named("add")(lambda rows: Transform([*rows, {**bob, "card": "Bob "}] if len(rows) < 2 else rows))
    for hint in (Paid, Strict, Open):
        _, run = asked(driver, list[hint], {"answer": [ann]}, add)  # type: ignore[valid-type]
        assert run().output == [hint(**ann), hint(**bob)]
    _, run = asked(driver, list[Paid], {"answer": []}, add)
    assert run().output == [Paid(**bob)]


def test_a_field_that_stands_beside_one_of_its_name_is_no_answer(driver: Driver) -> None:
    """The caller would get both, and guardrails would see one."""
    seen, run = asked(driver, Open, {**OTHER, "card": CARD}, REFUSED, output_retries=0)
    with pytest.raises((OutputError, GuardrailRefused)):
        run()
    assert seen == [json.dumps({**OTHER, "card": CARD})]


def test_json_in_a_text_is_looked_at_as_what_the_caller_gets(driver: Driver) -> None:
    """And it is stored as a text as ever."""
    answer = {"inside": json.dumps({"card": CARD.replace("1", "\\u0031")}).replace("\\\\", "\\")}
    seen, run = asked(driver, Kept, answer, REFUSED)
    with pytest.raises(GuardrailRefused):
        run()
    assert seen == [{"inside": {"card": CARD}}]
    _, run = asked(driver, Kept, answer, REDACTED)
    result = run()
    assert (result.output, result.checkpoint.output) == (
        Kept({"card": "[redacted]"}),
        {"inside": '{"card":"[redacted]"}'},
    )


class Rate(BaseModel):
    of: int

    @computed_field
    def share(self) -> float:
        return 1 / self.of


def test_an_answer_that_cannot_be_shown_whole_is_none_while_guardrails_look(driver: Driver) -> None:
    seen, run = asked(driver, Rate, {"of": 0}, output_retries=1)
    with pytest.raises(OutputError):
        run()
    assert seen == ['{"of": 0}'] * 2
    free: Agent[Any, Any] = Agent(model=ScriptedModel(['{"of": 0}']), output_type=Rate)
    assert driver.invoke(free, "go").output == Rate(of=0)


def test_the_record_holds_what_it_held(driver: Driver, place: Place) -> None:
    """What is computed is computed again, and stored nowhere."""
    seen, run = asked(driver, Holder, {"name": "x", "paid": OTHER}, store=place.open())
    result = run()
    assert seen == [{"name": "x", "paid": {**OTHER, "card": "Ann Lee"}, "more": []}]
    assert result.checkpoint.output == {"name": "x", "paid": OTHER, "more": []}
    assert result.messages[-1].text == json.dumps(result.checkpoint.output, separators=(",", ":"))
