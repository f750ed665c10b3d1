"""A value that a human types is the value that runs, the same on each surface, or it is plainly refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import pytest
from chat_scenes import PLATFORMS, RITA, approvals_of, emptied, with_people
from page_reader import read as read_page
from page_scenes import Pages
from pydantic import BaseModel, Field, RootModel
from selection import scaled
from tables import each

from phronomy import (
    Agent,
    Approval,
    Approve,
    ExternalTool,
    MemoryStore,
    PendingApproval,
    Respond,
    Tool,
    interrupt,
    tool,
)
from phronomy.cli.commands.decide import edit_in_place, typed_result
from phronomy.cli.views import Mask
from phronomy.errors import InvalidDecision
from phronomy.foundation.json_text import JsonError, canonical, parse, parse_exactly
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import Clock
from phronomy.tools.json_schema.arguments import SchemaArguments
from phronomy.tools.json_schema.typed import Mistyped, as_typed, labels_of, member_shape, read_typed, shape_of

REFUSED: Any = "(refused)"
BIG = "12345678901234567.89"
PI = "3.14159265358979323846264338327"

Speed = StrEnum("Speed", "SLOW FAST")
Sku = NewType("Sku", Annotated[str, Field(pattern=r"^[A-Z0-9]+$")])  # type: ignore[valid-newtype]


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Iban(RootModel[str]):
    pass


class Person(BaseModel):
    name: str
    age: int


# The type of a parameter, the value before, what is typed, and the canonical text of the value
READ: list[tuple[Any, Any, str, str]] = [
    (Decimal, "1.10", BIG, f'"{BIG}"'),
    (Decimal, "1.10", "2.000000000000000001", '"2.000000000000000001"'),
    (Decimal, "1.10", PI, f'"{PI}"'),
    (Decimal, "1.10", " 5 ", '"5"'),
    (Decimal, "1.10", "1,000.50", REFUSED),
    (Decimal, "1.10", "1.000,50", REFUSED),
    (Decimal, "1.10", "1 000", REFUSED),
    (Decimal, "1.10", "1e5", REFUSED),
    (Decimal, "1.10", "", REFUSED),
    (Decimal, "1.10", "\uff11\uff12", REFUSED),
    (Decimal, "1.10", "\u0663", REFUSED),
    (Decimal | None, None, "1.10", '"1.10"'),
    (Decimal | None, None, "", "null"),
    (Annotated[Decimal, Field(max_digits=10, decimal_places=2)], "1.10", "2.20", '"2.20"'),
    (float, 1.5, "2.5", "2.5"),
    (float, 1.5, "2.50", "2.5"),
    (float, 1.5, "3", "3"),
    (float, 1.5, BIG, REFUSED),
    (float, 1.5, "12345678901234567", REFUSED),
    (float, 1.5, "1,5", REFUSED),
    (float, 1.5, "1e400", REFUSED),
    (float, 1.5, "nan", REFUSED),
    (Annotated[float, Field(multiple_of=0.01)], 1.5, "19.99", "19.99"),
    (int, 1, "99999999999999999999999", "99999999999999999999999"),
    (int, 1, "2.0", REFUSED),
    (int, 1, "1_000", REFUSED),
    (int, 1, "007", REFUSED),
    (int, 1, "9" * 5_000, REFUSED),
    (int, 1, "\u0661", REFUSED),
    (int | None, 1, "", "null"),
    (int | float, 1, "12345678901234567", "12345678901234567"),
    (str, "a", "42", '"42"'),
    (str, "a", '"x"', '"\\"x\\""'),
    (str, "a", " b ", '" b "'),
    (str | None, "a", "42", '"42"'),
    (str | None, "a", "null", '"null"'),
    (str | None, "a", "", '""'),
    (str | None, None, "42", '"42"'),
    (int | str, "A17", "42", '"42"'),
    (int | str, "A17", "true", '"true"'),
    (int | str, 17, "42", "42"),
    (int | str, 17, "A42", '"A42"'),
    (int | str, 17, '"42"', '"42"'),
    (int | str, 17, "4.5", REFUSED),
    (str | bool, "yes", "true", '"true"'),
    (str | bool, True, "false", "false"),
    (str | bool, True, "False", REFUSED),
    (bool, True, "false", "false"),
    (bool, True, "no", REFUSED),
    (bool | None, True, "null", "null"),
    (Speed, "slow", "fast", '"fast"'),
    (Speed, "slow", '"fast"', '"fast"'),
    (Speed, "slow", "FAST", REFUSED),
    (Speed | None, "slow", "fast", '"fast"'),
    (Speed | None, "slow", "null", "null"),
    (Speed | None, None, "fast", '"fast"'),
    (Literal["a", "b"] | None, "a", "b", '"b"'),
    (Literal["1", 1], "1", "1", '"1"'),
    (Literal["1", 1, 2], 2, "1", "1"),
    (Literal["1", 1, 2], 2, '"1"', '"1"'),
    (Level, 1, "2", "2"),
    (Level, 1, "3", REFUSED),
    (Level | None, 1, "2", "2"),
    (Sku, "A1", "42", '"42"'),
    (Sku | None, "A1", "42", '"42"'),
    (Iban, "DE1", "42", '"42"'),
    (Iban | None, "DE1", "42", '"42"'),
    (date | None, "2026-11-29", "2026-11-30", '"2026-11-30"'),
    (datetime, "2026-11-29T00:00:00Z", "2026-11-30T00:00:00Z", '"2026-11-30T00:00:00Z"'),
    (UUID | None, "0b6f3c1e-5d2a-4b7e-9c48-1f2d3a4b5c6d", "1b6f3c1e-5d2a-4b7e-9c48-1f2d3a4b5c6d",
     '"1b6f3c1e-5d2a-4b7e-9c48-1f2d3a4b5c6d"'),
    (list[int], [1], "[1, 2]", "[1,2]"),
    (list[float], [1.0], f"[{BIG}]", REFUSED),
    (list[int], [1], "1", REFUSED),
    (list[int] | str, [1], "[2]", "[2]"),
    (list[int] | str, "a", "[2]", '"[2]"'),
    (dict[str, Any], {}, '{"a": 1.0}', '{"a":1.0}'),
    (dict[str, Any], {}, '{"a": 1, "a": 2}', REFUSED),
    (Person, {"name": "a", "age": 1}, '{"name": "b", "age": 2}', '{"name":"b","age":2}'),
    (Person | None, {"name": "a", "age": 1}, "null", "null"),
    (Any, "a", "42", '"42"'),
    (Any, 1, "42", "42"),
    (Any, 1, "a", REFUSED),
]  # fmt: skip


def tool_of(kind: Any, got: list[Any]) -> Any:
    """A tool with one parameter of this type, which says what it gets."""

    def take(value: Any) -> str:
        """Take it."""
        got.append(value)
        return "taken"

    take.__annotations__ = {"value": kind, "return": str}
    return tool(requires_approval=True)(take)


def read(kind: Any, before: Any, typed: str) -> str:
    made = tool_of(kind, [])
    shape = member_shape(made.parameters, "value")
    text = parse(made.read(canonical({"value": before})))["value"]  # type: ignore[index, call-overload]
    try:
        return read_typed(typed, shape, canonical(text))
    except Mistyped:
        return REFUSED  # type: ignore[no-any-return]


@each(("kind", "before", "typed", "value"), READ)
def test_a_typed_text_is_one_value(kind: Any, before: Any, typed: str, value: str) -> None:
    assert read(kind, before, typed) == value


@each(("kind", "before"), [(kind, before) for kind, before, _, _ in READ])
def test_an_untouched_value_stays_what_it_was(kind: Any, before: Any) -> None:
    text = canonical(before)
    assert read_typed(as_typed(text), member_shape(tool_of(kind, []).parameters, "value"), text) == text


# Schemas of servers

NESTED: Any = {
    "type": "object",
    "properties": {
        "deep": {"anyOf": [{"anyOf": [{"$ref": "#/$defs/name"}, {"type": "null"}]}, {"type": "null"}]},
        "both": {"allOf": [{"$ref": "#/$defs/name"}, {"enum": ["a", "b"]}]},
        "one": {"oneOf": [{"const": "a"}, {"const": 5}]},
        "round": {"$ref": "#/$defs/round"},
        "far": {"$ref": "https://example.org/schema"},
        "types": {"type": ["integer", "null"]},
        "limited": {"type": "number", "allOf": [{"type": "integer"}]},
        "coded": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]{3}-[0-9]{4}$"}]},
        "money": {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^-?\d+(\.\d+)?$"}]},
        "wrong": {"type": "string", "pattern": "("},
        "never": False,
        "many": {"enum": [f"{number}" for number in range(3_000)]},
    },
    "$defs": {"name": {"type": "string"}, "round": {"anyOf": [{"$ref": "#/$defs/round"}, {"type": "string"}]}},
}


@each(
    ("name", "before", "typed", "value"),
    [
        ("deep", '"a"', "5", '"5"'),
        ("deep", "null", "", "null"),
        ("both", '"a"', "b", '"b"'),
        ("both", '"a"', "c", REFUSED),
        ("one", '"a"', "5", "5"),
        ("round", '"a"', "5", '"5"'),
        ("far", '"a"', "5", '"5"'),
        ("types", "1", "5", "5"),
        ("types", "1", "a", REFUSED),
        ("limited", "1", "5", "5"),
        ("limited", "1", "5.5", REFUSED),
        ("coded", '"555-1234"', "555-9999", '"555-9999"'),
        ("money", '"1.10"', "1,000", REFUSED),
        ("money", "1.5", "2.5", "2.5"),
        ("money", "1.5", "2.50", '"2.50"'),
        ("money", "1.5", BIG, f'"{BIG}"'),
        ("wrong", '"a"', "5", '"5"'),
        ("never", '"a"', "5", '"5"'),
        ("many", '"1"', "2999", '"2999"'),
        ("not there", '"a"', "5", '"5"'),
    ],
)
def test_a_schema_is_followed_to_its_values(name: str, before: str, typed: str, value: str) -> None:
    try:
        assert read_typed(typed, member_shape(NESTED, name), before) == value
    except Mistyped:
        assert value is REFUSED


def test_a_schema_that_stands_for_millions_is_left() -> None:
    pair: Any = {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}
    assert not shape_of(pair, {"$defs": {"a": pair}}).kinds
    members: Any = {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}
    assert not member_shape(members, "a").kinds


def test_choices_are_told_apart() -> None:
    assert labels_of(['"a"', "1", '"1"', "null", '""']) == {
        "a": '"a"',
        "1": "1",
        '"1"': '"1"',
        "null": "null",
        '""': '""',
    }
    assert [*labels_of(['"1"', "1", r'"\"1\""']).values()] == ['"1"', "1", r'"\"1\""']


@each("text", [BIG, "1e-999999999999999999999", "0.1000000000000000000001", "[12345678901234567.5]"])
def test_a_number_that_would_be_rounded_is_refused(text: str) -> None:
    assert parse(text) is not None
    with pytest.raises(JsonError, match="rounded"):
        parse_exactly(text)


# The surfaces


class Surface:
    """A request for a call of a tool with one parameter, and somebody who edits it somewhere."""

    def __init__(self, kind: Any, before: Any, clock: Any = None) -> None:
        self.got: list[Any] = []
        self.store = MemoryStore(clock=clock or Clock())
        self.tool = tool_of(kind, self.got)
        self.args = {"value": before}

    def agent(self, *announced: Any) -> Agent[Any, str]:
        model = ScriptedModel.by_turn([call("take", self.args), "Done."])
        return Agent(name="desk", model=model, tools=[self.tool], store=self.store, announcements=[*announced])

    def came_to(self, agent: Agent[Any, str]) -> Any:
        """The value that the tool got; or that nothing ran, and it still waits."""
        agent.recover_all()
        assert self.got or self.store.pending()
        return repr(self.got[0]) if self.got else REFUSED


def submit(platform: Any, name: str, typed: str) -> None:
    """Send a form with this value, where the platform lets people choose it."""
    with suppress_unless_offered():
        platform.submit(RITA, {name: typed})


@contextmanager
def suppress_unless_offered() -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        if "a choice is one of the options" not in str(error):
            raise


def in_chat(name: str) -> Callable[[Any, Any, str], Any]:
    def edit(kind: Any, before: Any, typed: str) -> Any:
        clock = Clock()
        platform: Any = PLATFORMS[name](clock, False)
        surface = Surface(kind, before, clock)
        approvals = approvals_of(with_people(surface.store, platform), platform)
        agent = surface.agent(approvals)
        agent.invoke("go")
        emptied(approvals, clock)
        platform.click(platform.messages()[0], "edit", RITA)
        submit(platform, "arg:value", typed)
        found = surface.came_to(agent)
        platform.close()
        return found

    return edit


def on_page(knows_tool: bool) -> Callable[[Any, Any, str], Any]:
    def edit(kind: Any, before: Any, typed: str) -> Any:
        surface = Surface(kind, before)
        agent = surface.agent()
        options: dict[str, Any] = {"agents": agent} if knows_tool else {}
        pages = Pages(surface.store, **options)
        item = agent.invoke("go").checkpoint.pending[0]
        form = pages.form(item, "edit")
        [control] = [each for each in form.all() if each.attributes.get("name") == "f/value"]
        if control.tag == "select":
            keys = {option.text: option.attributes["value"] for option in control.all("option")}
            typed = keys.get({"true": "yes", "false": "no", "null": "no value"}.get(typed, typed), "no choice")
        nothing: dict[str, Any] = (
            {"n/value": None} if any(each.attributes.get("name") == "n/value" for each in form.all()) else {}
        )
        answer = pages.send(form, **{"f/value": typed}, **nothing)
        if answer.status_code != 200:
            return REFUSED
        review = _review(answer.text)
        pages.send(review)
        return surface.came_to(agent)

    return edit


def _review(html: str) -> Any:
    return next(each for each in read_page(html).all("form") if "confirmed" in each.filled())


class _Terminal:
    """A screen at which one answer is typed, and then Enter."""

    def __init__(self, typed: str) -> None:
        self.left = [typed]

    def ask(self, _: str) -> str:
        return self.left.pop() if self.left else ""

    def say(self, *_: Any, **__: Any) -> None:
        pass


def at_terminal(kind: Any, before: Any, typed: str) -> Any:
    surface = Surface(kind, before)
    agent = surface.agent()
    item = agent.invoke("go").checkpoint.pending[0]
    args = edit_in_place(_Terminal(typed), surface.tool, item.args)  # type: ignore[arg-type]
    if args == item.args and canonical(args) == item.json_text("args"):
        return REFUSED
    agent.decide(item.id, Approve(args=args))
    return surface.came_to(agent)


EDITS: dict[str, Callable[[Any, Any, str], Any]] = {
    **{name: in_chat(name) for name in ("slack", "discord", "teams", "webhook")},
    "page": on_page(False),
    "page with the agent": on_page(True),
    "terminal": at_terminal,
}


EDITED: list[tuple[Any, Any, str, Any]] = [
    (Decimal, "1.10", BIG, f"Decimal('{BIG}')"),
    (Decimal, "1.10", "1,000", REFUSED),
    (Decimal | None, None, "2.000000000000000001", "Decimal('2.000000000000000001')"),
    (float, 1.5, "2.5", "2.5"),
    (float, 1.5, BIG, REFUSED),
    (int, 1, "99999999999999999999", "99999999999999999999"),
    (int, 1, "1_000", REFUSED),
    (int | str, "A17", "42", "'42'"),
    (int | str, 17, "42", "42"),
    (str | bool, "yes", "true", "'true'"),
    (str | None, "a", "42", "'42'"),
    (str | None, "a", "true", "'true'"),
    (bool, True, "false", "False"),
    (Speed | None, "slow", "fast", repr(Speed.FAST)),
    (Level, 1, "2", repr(Level.HIGH)),
    (Sku | None, "A1", "42", "'42'"),
    (Iban | None, "DE1", "42", repr(Iban("42"))),
    (date | None, "2026-11-29", "2026-11-30", repr(date(2026, 11, 30))),
]


@pytest.mark.parametrize("surface", EDITS)
@each(("kind", "before", "typed", "got"), scaled(EDITED[1::2], sweep=EDITED))
def test_each_surface_reads_it_alike(surface: str, kind: Any, before: Any, typed: str, got: Any) -> None:
    assert EDITS[surface](kind, before, typed) == got


# Answers


def asking(kind: Any, store: Any, *announced: Any) -> Agent[Any, str]:
    """An agent that waits for the result of an external tool, of this type."""
    count = ExternalTool(name="count", description="Count.", returns=kind)
    model = ScriptedModel.by_turn([call("count", {}), "Done."])
    return Agent(name="desk", model=model, tools=[count], store=store, announcements=[*announced])


def told(agent: Agent[Any, str], store: Any) -> Any:
    """The result as the model has read it; or that it still waits."""
    agent.recover_all()
    messages = store.head(store.branches()[0].id)[1].messages
    found = [message.content for message in messages if message.role == "tool"]
    assert found or store.pending()
    return found[0] if found else REFUSED


def answered_in_chat(name: str) -> Callable[[Any, str], Any]:
    def answer(kind: Any, typed: str) -> Any:
        clock = Clock()
        platform: Any = PLATFORMS[name](clock, False)
        store = with_people(MemoryStore(clock=clock), platform)
        approvals = approvals_of(store, platform)
        agent = asking(kind, store, approvals)
        agent.invoke("go")
        emptied(approvals, clock)
        platform.click(platform.messages()[0], "respond", RITA)
        submit(platform, "reply" if name == "telegram" else "content", typed)
        platform.close()
        return told(agent, store)

    return answer


def answered_on_page(kind: Any, typed: str) -> Any:
    store = MemoryStore()
    agent, pages = asking(kind, store), Pages(store)
    form = pages.form(agent.invoke("go").checkpoint.pending[0], "respond")
    [control] = [each for each in form.all() if each.attributes.get("name") in ("f", "content")]
    if control.tag == "select":
        keys = {option.text: option.attributes["value"] for option in control.all("option")}
        typed = keys.get({"true": "yes", "false": "no"}.get(typed, typed), "no choice")
    pages.send(form, **{control.attributes["name"]: typed})
    return told(agent, store)


def answered_at_terminal(kind: Any, typed: str) -> Any:
    store = MemoryStore()
    agent = asking(kind, store)
    item = agent.invoke("go").checkpoint.pending[0]
    request: Any = SimpleNamespace(pending=item, place=SimpleNamespace(store=store), mask=Mask(None, reveal=False))
    try:
        agent.decide(item.id, typed_result(request, typed))
    except InvalidDecision:
        return REFUSED
    return told(agent, store)


ANSWERS: dict[str, Callable[[Any, str], Any]] = {
    **{name: answered_in_chat(name) for name in ("slack", "discord", "teams", "telegram", "webhook")},
    "page": answered_on_page,
    "terminal": answered_at_terminal,
}


RESULTS: list[tuple[Any, str, Any]] = [
    (int, "5", "5"),
    (int, "five", REFUSED),
    (float, BIG, REFUSED),
    (str, "5", "5"),
    (int | str, "5", "5"),
    (Decimal, BIG, BIG),
    (bool, "true", "true"),
    (Speed, "fast", "fast"),
    (Speed, "swift", REFUSED),
    (None, "5", "5"),
]


@pytest.mark.parametrize("surface", ANSWERS)
@each(("kind", "typed", "result"), scaled(RESULTS[::2], sweep=RESULTS))
def test_each_surface_takes_the_result_of_a_typed_tool(surface: str, kind: Any, typed: str, result: Any) -> None:
    assert ANSWERS[surface](kind, typed) == result


@each(
    ("kind", "typed", "answer"),
    [(int, "5", 5), (Decimal, BIG, Decimal(BIG)), (int | str, "5", "5"), (Speed, "fast", Speed.FAST)],
)
def test_a_question_takes_what_is_typed(kind: Any, typed: str, answer: Any) -> None:
    got: list[Any] = []

    @tool
    def count() -> str:
        """Count."""
        got.append(interrupt("How many?", answer=kind))
        return "counted"

    clock = Clock()
    platform: Any = PLATFORMS["telegram"](clock, False)
    store = with_people(MemoryStore(clock=clock), platform)
    approvals = approvals_of(store, platform)
    model = ScriptedModel.by_turn([call("count", {}), "Done."])
    agent = Agent(name="desk", model=model, tools=[count], store=store, announcements=[approvals])
    agent.invoke("go")
    emptied(approvals, clock)
    platform.click(platform.messages()[0], "respond", RITA)
    platform.submit(RITA, {"reply": typed})
    agent.recover_all()
    platform.close()
    assert got == [answer]


@each(
    ("content", "votes", "result"),
    [("5", 1, "5"), ("five", 1, REFUSED), ("5", 2, REFUSED)],
    ids=["a number as text", "no number", "of several who voted for the text"],
)
def test_a_worker_reads_a_text_whose_type_nobody_knew(content: str, votes: int, result: Any) -> None:
    store = MemoryStore()
    gate = Approval(needed=votes)

    @tool(external=True, requires_approval=gate)
    def count() -> int:
        """Count."""
        ...

    model = ScriptedModel.by_turn([call("count", {}), "Done."])
    agent: Agent[Any, str] = Agent(name="desk", model=model, tools=[count], store=store)
    item = agent.invoke("go").checkpoint.pending[0]
    for who in range(votes):
        store.decide(item.id, Respond(content=content), by=f"p{who}", digest=item.digest)
    assert told(agent, store) == result


def test_a_request_says_of_which_type_its_result_is() -> None:
    store = MemoryStore()
    item = asking(int, store).invoke("go").checkpoint.pending[0]
    assert store.request(item.id).result_schema == {"type": "integer"}
    older = item.evolve(returns_hash=None)
    assert PendingApproval.model_validate_json(older.model_dump_json()) == older
    assert "returns_hash" not in older.model_dump_json()


class Odd(Tool):
    """A tool as a server may declare it."""

    name = "odd"
    requires_approval = True

    def execute(self, **given: str) -> str:
        return f"{given}"

    def _signature(self, body: Any, told: Any) -> Any:
        return SchemaArguments("odd", {"type": "object", "properties": {"": {"type": "string"}}}), None


def test_a_parameter_without_a_name_has_a_field() -> None:
    clock = Clock()
    platform: Any = PLATFORMS["slack"](clock, False)
    store = with_people(MemoryStore(clock=clock), platform)
    approvals = approvals_of(store, platform)
    model = ScriptedModel.by_turn([call("odd", {"": "a"}), "Done."])
    Agent(name="desk", model=model, tools=[Odd()], store=store, announcements=[approvals]).invoke("go")
    emptied(approvals, clock)
    [shown] = platform.messages()
    assert "(no name)" in shown.text
    platform.click(shown, "edit", RITA)
    assert platform.form(RITA) == {"arg:": "a"}
    item = store.pending()[0].approval
    assert platform.submit(RITA, {"arg:": "b"}) == {}
    decision = store.request(item.id).decision
    assert decision is not None and decision.args == {"": "b"}
