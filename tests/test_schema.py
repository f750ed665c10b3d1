"""Which types may stand in a tool's signature: what a human is shown is what the tool gets, in every process."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    FilePath,
    FutureDatetime,
    HttpUrl,
    ImportString,
    Json,
    PlainSerializer,
    SecretBytes,
    SecretStr,
    WithJsonSchema,
    computed_field,
)
from typing_extensions import TypedDict

from phronomy.errors import ToolDefinitionError
from phronomy.tools.context import InvalidArguments, ToolContext
from phronomy.tools.tool import FunctionTool, Tool, as_tool, tool


def context(**changes: Any) -> ToolContext[Any]:
    usual: dict[str, Any] = {"run_id": "run-1", "thread_id": "chat-7", "call_id": "call-1", "pending_id": None}
    usual |= {"tool_name": "refund", "idempotency_key": "key-1", "attempt": 1, "deps": None}
    return ToolContext(**(usual | changes))


def taking(*hints: Any, **options: Any) -> FunctionTool[Any, Any]:
    """A tool with one parameter for each hint: a, b, c, ..."""

    def body(**values: Any) -> Any:
        return values

    names = "abcdefgh"[: len(hints)]
    kind = inspect.Parameter.KEYWORD_ONLY
    named = [inspect.Parameter(name, kind, annotation=hint) for name, hint in zip(names, hints, strict=True)]
    body.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    return FunctionTool(body, **options)


def refused(definition: Callable[[], Any]) -> str:
    with pytest.raises(ToolDefinitionError) as caught:
        definition()
    return str(caught.value)


# Parameters and their hints


def test_a_parameter_that_a_model_cannot_fill_is_refused() -> None:
    def stars(*args: int) -> None: ...
    def named(**kwargs: int) -> None: ...
    def first(a: int, /) -> None: ...
    def private(_a: int) -> None: ...
    def bare(a) -> None: ...  # type: ignore[no-untyped-def]
    def two(a: ToolContext, b: Annotated[ToolContext[int], "second"]) -> None: ...
    def unknown(a: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821
    def wrong(a: 1 / 0) -> None: ...  # type: ignore[valid-type]
    def steps(a: int) -> Iterable[int]:
        yield a

    async def asteps(a: int) -> Any:
        yield a

    remedies = {stars: "name each parameter", named: "name each parameter", first: "take out the '/'"}
    remedies |= {private: "rename it", bare: "add one, such as 'a: str'", two: "'a' and 'b' both ask for the context"}
    remedies |= {unknown: "'Missing' of parameter 'a' cannot be resolved", wrong: "cannot be resolved"}
    remedies |= {steps: "is a generator", asteps: "is a generator"}
    for function, remedy in remedies.items():
        assert remedy in refused(functools.partial(as_tool, function))

    named.__signature__ = "none"  # type: ignore[attr-defined]
    assert "its signature cannot be read" in refused(lambda: as_tool(named))


def test_types_defined_where_the_tool_is_are_found() -> None:
    class Order(BaseModel):
        lines: list[int]

    class Span(Order): ...

    def factory() -> Tool:
        class Discount(BaseModel):
            cents: int

        def total(order: Span, discount: Discount) -> int:
            return sum(order.lines) - discount.cents + tax

        built = as_tool(total)
        tax = 7
        return built

    built = factory()
    assert built.call(built.bind('{"order":{"lines":[1,2]},"discount":{"cents":3}}'), context()) == 7


def test_a_type_that_went_with_its_function_is_found_only_if_the_tool_holds_it() -> None:
    def keeps() -> Callable[..., Any]:
        class Order(BaseModel): ...

        def look(order: Order) -> bool:
            return isinstance(order, Order)

        return look

    def loses() -> Callable[..., Any]:
        class Order(BaseModel): ...

        def look(order: Order) -> None: ...

        return look

    kept = as_tool(keeps())
    assert kept.call(kept.bind('{"order":{}}'), context()) is True
    assert "'Order' of parameter 'order' cannot be resolved" in refused(lambda: as_tool(loses()))


def test_parameters_may_have_names_that_mean_something_to_pydantic() -> None:
    @tool
    def odd(json: int, copy: int, model_config: int, cls: int, p0: int) -> list[int]:
        return [json, copy, model_config, cls, p0]

    text = odd.read('{"p0": 5, "json": 1, "copy": 2, "model_config": 3, "cls": 4}')
    assert text == '{"json":1,"copy":2,"model_config":3,"cls":4,"p0":5}'
    assert odd.call(odd.bind(text), context()) == [1, 2, 3, 4, 5]


def test_a_predicate_takes_the_context_by_need_or_by_name() -> None:
    def by_need(args: Any, anything: Any) -> bool:
        return anything.run_id == "run-1"

    def by_name(args: Any, ctx: Any = None) -> bool:
        return ctx is not None

    def neither(args: Any, limit: int = 5) -> bool:
        return limit == 5

    def any_number(*args: Any) -> bool:
        return len(args) == 1

    for predicate in (by_need, by_name, neither, any_number):
        assert taking(int, requires_approval=predicate).ask_gate({"a": 1}, context()) is True


# Types


class Colour(enum.Enum):
    RED = "red"
    ONE = 1


class Card(TypedDict):
    name: str


class Point(NamedTuple):
    x: int
    y: float


@dataclasses.dataclass
class Span:
    start: date
    days: int = 1


class Node(BaseModel):
    name: Annotated[str, Field(min_length=3, max_length=5)]
    children: list[Node] = []
    tags: set[str] = {"b", "a"}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def size(self) -> int:
        return len(self.children)


class Loop(BaseModel):
    """It can only be made of another one, so no sample of it can be."""

    within: Loop


class Hidden(BaseModel):
    model_config = ConfigDict(frozen=True)
    shown: int = 0
    kept: int = Field(default=0, exclude=True)


class Unlike:
    """Equal to nothing, and comparing it raises."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.text


Incomparable = Annotated[Any, AfterValidator(Unlike), PlainSerializer(str), WithJsonSchema({"type": "string"})]


@pytest.mark.parametrize(
    ("hint", "given_text", "shown"),
    [
        (int, '"5"', "5"),
        (float, "5", "5.0"),
        (bool, '"yes"', "true"),
        (Any, '{"a":[1,2.5,null]}', '{"a":[1,2.5,null]}'),
        (int | None, "null", "null"),
        (Literal["a", 3], "3", "3"),
        (Colour, '"red"', '"red"'),
        (dict[Colour, int], '{"red":"7"}', '{"red":7}'),
        (dict[int, str], '{"7":"x"}', '{"7":"x"}'),
        (set[int | str], '["b",10,"a",9,9]', '[9,10,"a","b"]'),
        (dict[str, list[set[str]]], '{"x":[["b","a"],[]]}', '{"x":[["a","b"],[]]}'),
        (tuple[int, str], '["1","x"]', '[1,"x"]'),
        (Point, '["1",2]', "[1,2.0]"),
        (Card, '{"name":"x"}', '{"name":"x"}'),
        (Span, '{"start":"2024-02-29"}', '{"start":"2024-02-29","days":1}'),
        (
            Node,
            '{"name":"abc","tags":["z","y"],"more":1}',
            '{"name":"abc","children":[],"tags":["y","z"]}',
        ),
        (datetime, "0", '"1970-01-01T00:00:00Z"'),
        (FutureDatetime, '"2999-01-01T00:00:00"', '"2999-01-01T00:00:00"'),
        (Decimal, "1.50", '"1.5"'),
        (timedelta, "90", '"PT1M30S"'),
        (UUID, '"0B9A8B4C-8C1E-4A57-9B1D-0C2F3A4B5C6D"', '"0b9a8b4c-8c1e-4a57-9b1d-0c2f3a4b5c6d"'),
        (HttpUrl, '"http://a.example"', '"http://a.example/"'),
        (bytes, '"\\u00ff"', '"ÿ"'),
        (Base64Bytes, '"/w=="', '"/w=="'),
        (Json[list[int]], '"[1, 2]"', '"[1,2]"'),
        (FilePath, json.dumps(sys.executable), json.dumps(sys.executable)),
        (Annotated[int, Field(ge=3, lt=9, multiple_of=2)], "4", "4"),
        (Annotated[str, Field(pattern="^[A-Z]")], '"Ab"', '"Ab"'),
        (Annotated[list[int], Field(min_length=2, max_length=3)], "[1,2]", "[1,2]"),
        (Annotated[str, Field(json_schema_extra={"examples": 5})], '"x"', '"x"'),
        (Annotated[Any, WithJsonSchema({"items": True, "type": "array"})], "[1]", "[1]"),
        (Annotated[Any, WithJsonSchema({"allOf": [{"type": "boolean"}]})], "true", "true"),
        (Incomparable, '"x"', '"x"'),
        (list[Loop], "[]", "[]"),
    ],
)
def test_a_human_is_shown_what_the_tool_will_get(hint: Any, given_text: str, shown: str) -> None:
    built = taking(hint)
    text = built.read(f'{{"a":{given_text}}}')
    assert text == f'{{"a":{shown}}}'
    assert built.read(text) == text


NOTHING: Any = None


def lossy(value: float) -> float:
    return round(value, 2)


@pytest.mark.parametrize(
    ("hint", "why"),
    [
        (SecretStr, "not what was written"),
        (SecretBytes, "does not survive JSON"),
        (list[SecretStr | None], "not what was written"),
        (dict[str, SecretStr], "not what was written"),
        (Annotated[float, PlainSerializer(lossy)], "not what was written"),
        (Annotated[str, PlainSerializer(lambda v: v + "!")], "written differently each time"),
        (Annotated[str, PlainSerializer(lambda v: {"__class__": v})], "two underscores"),
        (Hidden, "not what was written"),
        (set[Hidden], "unhashable"),
        (frozenset[tuple[frozenset[int], int]], "a set within a set"),
        (Iterable[int], "read only once"),
        (Callable[[], int], "cannot be described"),
        (threading.Event, "cannot be described"),
    ],
)
def test_a_type_that_json_does_not_keep_is_refused(hint: Any, why: str) -> None:
    message = refused(lambda: taking(int, hint))
    assert why in message
    assert "parameter 'b' of type" in message


def test_defaults_are_held_to_the_same_rule() -> None:
    def bad_type(a: int = NOTHING) -> None: ...
    def lost(a: Annotated[float, PlainSerializer(lossy)] = 1.239) -> None: ...
    def infinite(a: float = math.inf) -> None: ...
    def looks_fine(a: Annotated[Any, PlainSerializer(repr)] = "x") -> None: ...

    assert "'a' of type int has a default that is not of that type: Input should be a valid" in refused(
        lambda: as_tool(bad_type)
    )
    assert "does not survive JSON" in refused(lambda: as_tool(lost))
    assert "'a' of type float cannot be described" in refused(lambda: as_tool(infinite))
    assert "has a default that does not survive JSON" in refused(lambda: as_tool(looks_fine))


def test_defaults_are_filled_in_and_never_shared() -> None:
    @tool
    def draw(
        *,
        points: list[int] = [1],  # noqa: B006
        colour: Colour = Colour.RED,
        width: int = Field(default=3, ge=1),
        unit: Annotated[str, Field(default="mm")] = "cm",
        tags: set[str] | None = {"b", "a"},  # noqa: B006
        node: Node = Node(name="abc"),  # noqa: B008
    ) -> None: ...

    text = draw.read("")
    assert text == draw.read("{}") == draw.read(" ")
    assert json.loads(text) == {
        "points": [1],
        "colour": "red",
        "width": 3,
        "unit": "cm",
        "tags": ["a", "b"],
        "node": {"name": "abc", "children": [], "tags": ["a", "b"]},
    }
    draw.bind(text)["points"].append(2)
    assert (draw.bind(text)["points"], draw.read("")) == ([1], text)


SAME_EVERYWHERE = """
from pydantic import BaseModel
from phronomy import tool
class Shelf(BaseModel):
    marks: dict[str, set[str | int]] = {"x": {"a", "b", "c", "d", 1, 2}}
@tool
def label(tags: set[str] | None = {"a", "b", "c", "d", "e"}, shelf: Shelf | None = None) -> None: ...
print(label.schema_hash, label.read(""))
print(label.read('{"tags": ["x", "w", "v", "u", "z", "y"], "shelf": {"marks": {"x": ["a", 2, 1]}}}'))
"""


def test_sets_are_written_alike_in_every_process() -> None:
    said = set()
    for seed in ("1", "2", "3"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", SAME_EVERYWHERE]
        said.add(subprocess.run(command, capture_output=True, check=True, text=True, env=environment).stdout)
    first, second = said.pop().splitlines()
    assert not said
    assert first.endswith(' {"tags":["a","b","c","d","e"],"shelf":null}')
    assert second == '{"tags":["u","v","w","x","y","z"],"shelf":{"marks":{"x":[1,2,"a"]}}}'


HINTS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers() | st.integers().map(str),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(),
    bool: st.booleans(),
    Any: st.recursive(
        st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    ),
    str | int | None: st.none() | st.integers() | st.text(),
    list[float]: st.lists(st.integers(-99, 99) | st.floats(-1e300, 1e300), max_size=4),
    set[int | str]: st.lists(st.integers() | st.text(max_size=3), max_size=6),
    dict[str, int]: st.dictionaries(st.text(max_size=3), st.integers(), max_size=4),
    dict[date, set[str]]: st.dictionaries(st.dates().map(str), st.lists(st.text(max_size=2), max_size=4), max_size=3),
    tuple[Colour, ...]: st.lists(st.sampled_from(["red", 1]), max_size=4),
    datetime: st.datetimes(timezones=st.none() | st.just(UTC)).map(datetime.isoformat) | st.integers(0, 2**40),
    time: st.times().map(time.isoformat),
    timedelta: st.integers(-(10**9), 10**9) | st.floats(-1e6, 1e6),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False).map(str) | st.floats(-1e9, 1e9),
    UUID: st.uuids().map(str),
    bytes: st.text(max_size=9),
    Span: st.fixed_dictionaries({"start": st.dates().map(str)}, optional={"days": st.integers()}),
    Node: st.fixed_dictionaries(
        {"name": st.text(min_size=3, max_size=5)}, optional={"tags": st.lists(st.text(max_size=2), max_size=5)}
    ),
}


@st.composite
def signatures(draw: st.DrawFn) -> tuple[list[Any], dict[str, Any]]:
    chosen = draw(st.lists(st.sampled_from(list(HINTS)), min_size=1, max_size=5))
    return chosen, {name: draw(HINTS[hint]) for name, hint in zip("abcdefgh", chosen, strict=False)}


@given(signatures())
def test_reading_binding_and_reading_again_end_where_they_began(drawn: tuple[list[Any], dict[str, Any]]) -> None:
    hints, arguments = drawn
    seen: list[Mapping[str, Any]] = []
    built = taking(*hints, requires_approval=lambda args: bool(seen.append(args)))
    text = built.read(json.dumps(arguments))
    values = built.bind(text)
    assert built.read(text) == text
    assert built.ask_gate(values, context()) is False
    assert dict(seen[0]) == values == built.bind(text)
    assert built.call(values, context()) == values


def test_a_nested_number_that_json_cannot_hold_is_refused_when_it_is_read() -> None:
    class Reading(BaseModel):
        level: float

    with pytest.raises(InvalidArguments, match="nan is not a finite number"):
        taking(Reading).read('{"a":{"level":"nan"}}')
    with pytest.raises(InvalidArguments, match="they are not strict JSON"):
        taking(Reading, redact={"a"}).read('{"a":{"level":"nan"}}')


def test_arguments_that_would_change_on_the_way_are_refused() -> None:
    def grows(value: str) -> str:
        return value + "!" if value == "rare" else value

    built = taking(Annotated[str, AfterValidator(grows), PlainSerializer(lambda v: v.removesuffix("!!"))])
    assert built.read('{"a":"usual"}') == '{"a":"usual"}'
    built = taking(Annotated[str, PlainSerializer(lambda v: v + "!" if "rare" in v else v)])
    with pytest.raises(InvalidArguments, match="they change when they are written as JSON and read back"):
        built.read('{"a":"rare"}')


class Plugin(BaseModel):
    hooks: list[ImportString]  # type: ignore[type-arg]


@pytest.mark.parametrize("hint", [ImportString, ImportString | None, Plugin, dict[str, Plugin]], ids=str)
def test_a_type_that_imports_what_the_model_wrote_is_refused(hint: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="ImportString imports while it is validated"):
        taking(hint)


def test_a_validator_that_breaks_is_no_reason_to_fail() -> None:
    def breaks(value: int) -> int:
        return value if value else 1 // value

    built = taking(Annotated[int, AfterValidator(breaks)])
    for attempt in (built.read, built.bind):
        with pytest.raises(InvalidArguments, match=r"could not be read \(ZeroDivisionError\)"):
            attempt('{"a":0}')


def test_tools_of_equal_parameters_share_nothing_that_differs() -> None:
    def told(order: int, soon: bool = True) -> None:
        """Pay.

        Args:
            order: The number of the order.
        """

    def bare(order: int, soon: bool = True) -> None:
        """Pay."""

    def number(order: int, soon: bool = 1) -> None:  # type: ignore[assignment]
        """Pay."""

    first, second, third = (tool(each).parameters["properties"] for each in (told, bare, number))
    assert first["order"] == {"type": "integer", "description": "The number of the order."}
    assert second["order"] == third["order"] == {"type": "integer"}
    assert [repr(each["soon"]["default"]) for each in (first, second, third)] == ["True", "True", "1"]
