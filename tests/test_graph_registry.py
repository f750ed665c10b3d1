"""Values in untyped places: plain JSON, what is registered, and nothing else."""

from __future__ import annotations

import contextlib
import enum
import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, PrivateAttr, SecretStr

from phronomy.errors import CheckpointError, ConfigurationError, InvalidUpdate, RegistrationError, UnknownType
from phronomy.foundation.json_text import canonical, parse
from phronomy.graph import register_type
from phronomy.graph.state.registry import Registry
from phronomy.graph.state.state import StateSchema
from phronomy.graph.state.values import NotStorable


class Order(BaseModel):
    id: int
    due: date
    extra: Any = None
    _seen: bool = PrivateAttr(default=False)


class Rush(Order): ...


@dataclass
class Point:
    x: float
    y: float = 0.0
    tags: set[str] = field(default_factory=set)


class Colour(enum.Enum):
    RED = (255, 0, 0)
    BLUE = object()


class Mode(enum.Flag):
    READ = 1
    WRITE = 2


class Level(enum.IntEnum):
    LOW = 1


class Pair(NamedTuple):
    a: int
    b: int


class Secret(BaseModel):
    word: SecretStr


class Plain:
    pass


def known() -> Registry:
    registry = Registry()
    for cls in (Order, Point, Colour, Mode):
        registry.register(cls, f"test.{cls.__name__}")
    return registry


KNOWN = known()

fixed = st.builds(
    timezone,
    st.timedeltas(-timedelta(hours=23), timedelta(hours=23)).map(
        lambda gap: timedelta(minutes=gap // timedelta(minutes=1))
    ),
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
    | st.datetimes(timezones=st.none() | fixed).map(lambda at: at.replace(fold=0))
    | st.dates()
    | st.times().map(lambda at: at.replace(fold=0))
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False)
    | st.binary(max_size=4)
    | st.builds(Order, id=st.integers(), due=st.dates(), extra=st.text(max_size=2))
    | st.builds(Point, x=st.floats(-9, 9), tags=st.sets(st.text(max_size=2), max_size=3))
    | st.sampled_from([*Colour, Mode.READ, Mode.READ | Mode.WRITE, Mode(0)])
)
keys = st.text(max_size=3) | st.sampled_from(["$type", "value", "__class__"])
hashable = st.integers() | st.text(max_size=2) | st.dates() | st.tuples(st.integers(), st.booleans())
values = st.recursive(
    leaves,
    lambda some: (
        st.lists(some, max_size=3)
        | st.lists(some, max_size=3).map(tuple)
        | st.dictionaries(keys, some, max_size=3)
        | st.dictionaries(hashable, some, max_size=3)
        | st.sets(hashable, max_size=3)
        | st.frozensets(hashable, max_size=3)
    ),
    max_leaves=10,
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(map(repr, one)) == list(map(repr, other)) and all(map(same, one.values(), other.values()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(values)
def test_what_is_stored_comes_back_as_it_was(value: Any) -> None:
    text = canonical(KNOWN.encode(value))
    assert same(KNOWN.decode(parse(text)), value)
    assert canonical(KNOWN.encode(KNOWN.decode(parse(text)))) == text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(keys, some, max_size=4),
)


@given(json_values)
def test_plain_json_is_stored_as_it_is_unless_it_looks_like_an_envelope(value: Any) -> None:
    text = json.dumps(value)
    if '"$type"' not in text:
        assert KNOWN.encode(value) == value
    assert KNOWN.decode(KNOWN.encode(value)) == value


@given(json_values)
def test_any_json_is_read_or_refused_by_a_typed_error(value: Any) -> None:
    with contextlib.suppress(ValueError, UnknownType):
        read = KNOWN.decode(value)
        assert KNOWN.decode(KNOWN.encode(read)) == read


def test_how_values_are_stored() -> None:
    assert KNOWN.encode({"at": date(2024, 2, 29), "n": [1, (2,)]}) == {
        "at": {"$type": "date", "value": "2024-02-29"},
        "n": [1, {"$type": "tuple", "value": [2]}],
    }
    assert KNOWN.encode({"$type": "date", "value": "x"}) == {"$type": "dict", "value": {"$type": "date", "value": "x"}}
    assert KNOWN.encode({1: "a"}) == {"$type": "map", "value": [[1, "a"]]}
    assert KNOWN.encode(Order(id=1, due=date(2024, 1, 1))) == {
        "$type": "test.Order",
        "value": {"id": 1, "due": "2024-01-01", "extra": None},
    }
    assert KNOWN.encode({3, 1, 2}) == {"$type": "set", "value": [1, 2, 3]}
    assert KNOWN.encode(Colour.RED) == {"$type": "test.Colour", "value": "RED"}


def seen(order: Order) -> Order:
    order._seen = True
    return order


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), ""),
        ([1, {"a b": (Plain(),)}], "[1]['a b'][0]"),
        ({"when": datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Paris"))}, ".when"),
        ([time(2, 30, fold=1)], "[0]"),
        (Pair(1, 2), ""),
        (Level.LOW, ""),
        (Rush(id=1, due=date(2024, 1, 1)), ""),
        ([Order(id=1, due=date(2024, 1, 1), extra=date(2024, 1, 1))], "[0].extra"),
        ([seen(Order(id=1, due=date(2024, 1, 1)))], "[0]._seen"),
        ([Order.model_construct(id="many", due=None)], "[0]"),
        ({"a": {"b": float("inf")}}, ".a.b"),
        ({Plain(): 1}, ""),
        ([Decimal("NaN")], "[0]"),
        (b"x".join, ""),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_what_would_not_come_back_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(NotStorable) as caught:
        KNOWN.encode(value)
    assert caught.value.path == path and caught.value.root is value


def test_what_holds_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(NotStorable, match="nested deeper"):
        KNOWN.encode(ring)


@pytest.mark.parametrize(
    "stored",
    [
        {"$type": "date"},
        {"$type": "date", "value": "x"},
        {"$type": "date", "value": 1},
        {"$type": "date", "value": "2024-01-01", "more": 1},
        {"value": "2024-01-01", "$type": "date"},
        {"$type": 1, "value": 1},
        {"$type": "Decimal", "value": "x"},
        {"$type": "bytes", "value": "é"},
        {"$type": "timedelta", "value": [1, 2, 3, 4, 5, 6, 7, 8]},
        {"$type": "timedelta", "value": ["x"]},
        {"$type": "tuple", "value": {}},
        {"$type": "set", "value": [[1]]},
        {"$type": "map", "value": [[[1], 2]]},
        {"$type": "map", "value": [1]},
        {"$type": "dict", "value": []},
        {"$type": "test.Order", "value": {"id": "x"}},
        {"$type": "test.Colour", "value": "GREEN"},
        {"$type": "test.Colour", "value": []},
        {"$type": "test.Mode", "value": "x"},
    ],
)
def test_what_nobody_stored_is_refused(stored: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - it is pydantic's, or that of the class
        KNOWN.decode(stored)


def test_a_name_that_is_not_registered_is_a_typed_error() -> None:
    """E30."""
    with pytest.raises(UnknownType, match=r"'shop.Order', which is not registered here: call register_type") as caught:
        KNOWN.decode([{"$type": "shop.Order", "value": {}}])
    assert caught.value.name == "shop.Order" and isinstance(caught.value, CheckpointError)


def test_an_old_name_is_read_and_the_new_one_is_written() -> None:
    """E31."""
    registry = Registry()
    registry.register(Point, "geo.Point", aliases=["Point", "point"])
    assert registry.decode({"$type": "point", "value": {"x": 1}}) == Point(1)
    assert registry.encode(Point(1))["$type"] == "geo.Point"


def test_registrations_that_make_no_sense_are_refused_and_change_nothing() -> None:
    """E30."""

    class Local(BaseModel): ...

    registry = known()
    for cls, name, aliases, says in (
        (Order, "other", (), "Order is registered already, as 'test.Order'"),
        (Order, "test.Order", (), "registered already"),
        (date, "day", (), "neither a pydantic model"),
        (Rush, "test.Order", (), "'test.Order' is taken"),
        (Rush, "rush", ["test.Point"], "'test.Point' is taken"),
        (Rush, "datetime", (), "'datetime' is taken"),
        (Rush, "dict", (), "'dict' is taken"),
        (Rush, "rush", ["rush"], "given twice"),
        (Rush, "rush", "hurry", "a list of names"),
        (Rush, "", (), "not empty"),
        (Rush, 7, (), "not empty"),
        (Local, "local", (), "is defined in a function"),
        (Plain, "plain", (), "neither a pydantic model nor a dataclass nor an enum"),
        (int, "int", (), "neither a pydantic model"),
        (Secret, "secret", (), "does not survive JSON"),
        (Order(id=1, due=date(2024, 1, 1)), "order", (), "a class is registered, not a Order"),
        (list[int], "ints", (), "a class is registered"),
    ):
        with pytest.raises(RegistrationError, match=says) as caught:
            registry.register(cls, name, aliases)  # type: ignore[arg-type]
        assert isinstance(caught.value, ConfigurationError)
    registry.register(Rush, "rush")  # none of them has left anything


def test_one_of_many_threads_registers_a_class() -> None:
    registry, start, done = Registry(), threading.Barrier(8), []

    def register() -> None:
        start.wait()
        try:
            registry.register(Point, "Point")
        except RegistrationError:
            done.append("refused")
        else:
            done.append("registered")

    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == ["refused"] * 7 + ["registered"]
    assert registry.decode(registry.encode(Point(1))) == Point(1)


# In a state


class Found(BaseModel):
    results: list[Any]
    by: dict[str, Any] = {}
    one: Any = None
    pair: tuple[str, Any] | None = None
    bare: list = []  # type: ignore[type-arg]


FOUND = StateSchema(Found, name="g")


@dataclass
class Hit:
    text: str


def test_untyped_places_of_a_state_hold_what_is_registered() -> None:
    register_type(Hit, "test_graph_registry.Hit")
    value = {
        "results": [1, Hit("a"), {"when": datetime(2024, 1, 1, tzinfo=UTC)}],
        "by": {"a": UUID(int=1)},
        "one": {1: {2}},
        "pair": ("a", time(1, 2)),
        "bare": [b"x"],
    }
    values = FOUND.reduce(FOUND.initial(), [("n", FOUND.update("n", value))])
    state = FOUND.read(values)
    assert vars(state) == value
    assert FOUND.dump(state) == values
    again = FOUND.reduce(values, [("n", FOUND.update("n", {"one": None}))])
    assert FOUND.read(again).results == value["results"]


def test_what_is_not_registered_is_refused_with_its_path_in_the_state() -> None:
    for value, path in (
        ({"results": [1, 2, 3, {"when": Plain()}]}, "results[3].when"),
        ({"by": {"a": [Pair(1, 2)]}}, "by.a[0]"),
        ({"one": Level.LOW}, "one"),
        ({"pair": ("a", Plain())}, "pair[1]"),
        ({"bare": [[Plain]]}, "bare[0][0]"),
    ):
        with pytest.raises(InvalidUpdate, match="neither plain JSON nor of a registered type") as caught:
            FOUND.update("look", value)
        assert caught.value.path == path and path in str(caught.value)


def test_an_unknown_name_in_a_state_is_a_typed_error() -> None:
    with pytest.raises(UnknownType) as caught:
        FOUND.read(canonical({"results": [{"$type": "gone.Hit", "value": {}}]}))
    assert caught.value.name == "gone.Hit"
