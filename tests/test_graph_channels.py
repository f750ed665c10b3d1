"""The state of a graph: what may be one, what nodes may return, and how it is folded in, on text."""

from __future__ import annotations

import functools
import json
import operator
import uuid
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NotRequired, Required

import pytest
from annotated_types import Ge, Le, MaxLen
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    RootModel,
    create_model,
    field_serializer,
    field_validator,
    model_validator,
)
from typing_extensions import Doc, TypedDict

from phronomy import Message
from phronomy.errors import (
    ConflictingWrites,
    GraphError,
    InvalidUpdate,
    ReducerFailed,
    RunFailed,
    StateError,
    StateIncomplete,
)
from phronomy.foundation import json_text
from phronomy.foundation.json_text import JsonText, canonical, parse
from phronomy.graph import add, append, merge, replace
from phronomy.graph.state.state import StateSchema
from phronomy.stores.log.text_patch import ObjectText, patch, patched


class Step(BaseModel):
    tool: str
    cost: float = 0.0


class Noted(BaseModel):
    name: str
    anything: Any = None
    _note: str = PrivateAttr(default="")


class Colour(Enum):
    RED = "red"


def longest(old: str, new: str) -> str:
    return max(old, new, key=len)


class Plan(BaseModel):
    topic: str
    steps: Annotated[list[Step], append] = []
    seen: Annotated[set[str], operator.or_] = set()
    notes: Annotated[list[Any], operator.add]
    by: Annotated[dict[str, int], merge]
    count: Annotated[int, add]
    spent: Annotated[Decimal, operator.add]
    said: Annotated[str, add]
    best: Annotated[str, longest] = ""
    noted: Noted | None = None
    found: Any = None


class Talk(TypedDict):
    topic: Required[str]
    joke: str
    log: Annotated[list[str], operator.add]
    more: NotRequired[Annotated[int, max]]


PLAN = StateSchema(Plan, name="research")
TALK = StateSchema(Talk, name="talk")


ARBITRARY = {"model_config": ConfigDict(arbitrary_types_allowed=True)}


def of(hint: Any, *default: Any) -> StateSchema:
    """A state with one channel, `x`."""
    name = f"One{uuid.uuid4().hex[:4]}"
    return StateSchema(
        type(
            name, (BaseModel,), {"__annotations__": {"x": hint}, **dict(zip("x", default, strict=False)), **ARBITRARY}
        ),
        name="g",
    )


def wave(schema: StateSchema, values: JsonText, *updates: Any) -> JsonText:
    """The values after a wave of nodes a, b, c, ..., of which each returned one of these."""
    return schema.reduce(
        values, [(node, schema.update(node, update)) for node, update in zip("abcdefgh", updates, strict=False)]
    )


def refused(what: Callable[[], Any]) -> str:
    with pytest.raises(GraphError) as caught:
        what()
    return str(caught.value)


def told(what: Callable[[], Any]) -> InvalidUpdate:
    with pytest.raises(InvalidUpdate) as caught:
        what()
    assert isinstance(caught.value, RunFailed)
    return caught.value


# What a channel begins with, and what it becomes


def test_a_run_begins_with_what_the_class_says() -> None:
    begun = PLAN.initial()
    assert json.loads(begun) == {
        **{"steps": [], "seen": [], "notes": [], "by": {}, "count": 0, "spent": "0", "said": ""},
        **{"best": "", "noted": None, "found": None},
    }
    assert PLAN.missing(begun) == ("topic",)
    assert PLAN.names == tuple(Plan.model_fields)
    assert {name: reducer.name for name, reducer in PLAN.reducers.items()} == {
        **{"topic": "replace", "steps": "append", "seen": "custom", "notes": "append", "by": "merge", "count": "add"},
        **{"spent": "add", "said": "add", "best": "custom", "noted": "replace", "found": "replace"},
    }
    assert json.loads(TALK.initial()) == {"log": []}


def test_a_wave_is_folded_in_by_the_reducers() -> None:
    first = {
        "topic": "kettles",
        "steps": [Step(tool="look")],
        "notes": [1],
        "by": {"a": 1, "b": 1},
        "count": 2,
        "said": "He",
    }
    second = {
        "steps": [{"tool": "buy", "cost": 2}],
        "notes": [],
        "by": {"b": 2, "c": 3},
        "count": -5,
        "said": "llo",
        "best": "so",
    }
    values = wave(
        PLAN, PLAN.initial(), first, second, None, {"best": "soon", "seen": {"b", "a"}, "spent": Decimal("1.10")}
    )
    assert json.loads(values) == {
        "topic": "kettles",
        "steps": [{"tool": "look", "cost": 0.0}, {"tool": "buy", "cost": 2.0}],
        "seen": ["a", "b"],
        "notes": [1],
        "by": {"a": 1, "b": 2, "c": 3},
        "count": -3,
        "spent": "1.10",
        "said": "Hello",
        "best": "soon",
        "noted": None,
        "found": None,
    }
    assert canonical(parse(values)) == values
    values = wave(PLAN, values, {"best": "no", "seen": ["c"], "spent": 2, "topic": "pans"}, {"by": {"a": 9}})
    state = PLAN.read(values)
    assert (state.best, state.seen, state.spent, state.topic) == ("soon", {"a", "b", "c"}, Decimal("3.10"), "pans")
    assert list(state.by.items()) == [("a", 9), ("b", 2), ("c", 3)]
    assert state.steps[1] == Step(tool="buy", cost=2)


def test_the_reducers_can_be_called() -> None:
    old, new = [1], [2]
    assert append(old, new) == [1, 2] and old == [1] and replace(1, 2) == 2 and add(1, 2) == 3
    assert merge({"a": {"x": 1}, "b": 1}, {"a": {"y": 2}}) == {"a": {"y": 2}, "b": 1}


def test_a_channel_without_a_value_takes_the_first_update_as_it_is() -> None:
    called = []

    def both(old: str, new: str) -> str:
        called.append((old, new))
        return old + new

    schema = of(Annotated[str, both])
    assert schema.missing(schema.initial()) == ("x",)
    values = wave(schema, schema.initial(), {"x": "a"})
    assert values == '{"x":"a"}' and called == []
    assert wave(schema, values, {"x": "b"}, {"x": "c"}) == '{"x":"abc"}'
    assert called == [("a", "b"), ("ab", "c")]
    assert wave(schema, schema.initial(), {"x": "b"}, {"x": "c"}) == '{"x":"bc"}'


def test_what_has_a_plus_can_be_added() -> None:
    for hint, begins, added in ((int, 0, 2), (float, 0.0, 0.5), (str, "", "b"), (Decimal, "0", "2")):
        schema = of(Annotated[hint, add])
        assert json.loads(schema.initial()) == {"x": begins} and not schema.has_user_code
        assert wave(schema, schema.initial(), {"x": added}) == canonical({"x": added})
    schema = of(Annotated[tuple[int, ...], operator.add])
    assert schema.initial() == "{}"
    assert wave(schema, schema.initial(), {"x": (1,)}, {"x": (2, 3)}) == '{"x":[1,2,3]}'
    assert of(Annotated[int, add, Ge(1)]).initial() == "{}"  # 0 is no value of it
    assert of(Annotated[list[int], operator.add]).reducers["x"].name == "append"
    assert of(Annotated[Sequence[int], operator.add]).reducers["x"].name == "append"
    assert of(Annotated[list[int], operator.concat]).reducers["x"].name == "append"
    assert of(Annotated[dict[str, int], operator.or_]).reducers["x"].name == "merge"
    assert of(Annotated[str, operator.concat]).reducers["x"].name == "add"


def test_the_sum_must_be_a_value_of_the_channel() -> None:
    schema = of(Annotated[int, add, Le(9)])
    says = r"add of the channel 'x' gave what is no value of it: x: Input should be less than"
    with pytest.raises(ReducerFailed, match=says) as caught:
        wave(schema, canonical({"x": 7}), {"x": 3})
    assert (caught.value.channel, caught.value.reducer) == ("x", "add")


def test_equal_states_are_equal_texts() -> None:
    one = wave(PLAN, wave(PLAN, PLAN.initial(), {"found": 1}), {"topic": "a"})
    other = wave(PLAN, wave(PLAN, PLAN.initial(), {"topic": "a"}), {"found": 1})
    assert one == other


@dataclass
class Ledger:
    """What the state would be if plain Python values were reduced."""

    values: dict[str, Any]

    def take(self, update: Mapping[str, Any]) -> None:
        for name, new in update.items():
            function = {"log": operator.add, "by": operator.or_, "n": operator.add, "best": max, "last": replace}[name]
            self.values[name] = function(self.values[name], new)


words = st.text(max_size=3)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda some: st.lists(some, max_size=2) | st.dictionaries(words, some, max_size=2),
)
updates = st.fixed_dictionaries(
    {},
    optional={
        "log": st.lists(plain, max_size=3),
        "by": st.dictionaries(words, plain, max_size=3),
        "n": st.integers(),
        "best": st.integers(),
    },
)


class Small(BaseModel):
    log: Annotated[list[Any], append]
    by: Annotated[dict[str, Any], merge]
    n: Annotated[int, add]
    best: Annotated[int, max] = 0
    last: Any = None


SMALL = StateSchema(Small, name="small")


@given(st.lists(st.tuples(st.lists(updates, max_size=3), plain), max_size=5))
def test_texts_are_reduced_as_values_would_be_and_rows_give_them_back(
    waves: list[tuple[list[dict[str, Any]], Any]],
) -> None:
    ledger = Ledger({"log": [], "by": {}, "n": 0, "best": 0, "last": None})
    values = cold = row = SMALL.initial()
    for written, last in waves:
        given_updates = [*written, {"last": last}]
        for update in given_updates:
            ledger.take(update)
        new = wave(SMALL, values, *given_updates)
        # One that has read its text anew, and one that has put together what the rows hold, are as far.
        cold = wave(SMALL, JsonText(str(cold)), *given_updates)
        row = patched(row, JsonText(str(patch(values, new))))
        values = new
        assert values == cold == row == canonical(parse(values))
        assert json.loads(values) == ledger.values
    assert vars(SMALL.read(values)) == ledger.values


# Conflicts, and reducers that fail


@pytest.mark.parametrize("second", ["pans", "kettles"])
def test_two_writes_to_one_value_conflict_even_if_they_are_equal(second: str) -> None:
    values = PLAN.initial()
    before = str(values)
    with pytest.raises(ConflictingWrites, match="'a' and 'c' wrote to 'topic' in one wave") as caught:
        wave(PLAN, values, {"topic": "kettles"}, {"count": 1}, {"topic": second})
    assert (caught.value.channel, caught.value.nodes) == ("topic", ("a", "c"))
    assert "kettles" not in str(caught.value) and values == before
    with pytest.raises(ConflictingWrites, match="'a' and 'a'"):  # one node, run twice in a wave
        PLAN.reduce(values, [("a", PLAN.update("a", {"topic": "x"}))] * 2)


def test_a_reducer_that_raises_or_gives_something_else_is_named() -> None:
    def raises(old: int, new: int) -> int:
        raise KeyError("secret")

    def gives(old: int, new: int) -> Any:
        return "secret"

    for reducer, why in ((raises, "raised KeyError"), (gives, "gave what is no value of it")):
        schema = of(Annotated[int, reducer], 0)
        with pytest.raises(ReducerFailed, match=f"{reducer.__name__} of the channel 'x' {why}") as caught:
            wave(schema, schema.initial(), {"x": 1})
        assert caught.value.channel == "x" and caught.value.reducer.endswith(reducer.__name__)
        assert "secret" not in str(caught.value)


def test_a_reducer_is_given_copies() -> None:
    kept: list[Any] = []

    def grows(old: list[int], new: list[int]) -> list[int]:
        kept.append(old)
        old += new
        return old

    schema = of(Annotated[list[int], grows], [])
    first = wave(schema, schema.initial(), {"x": [1]})
    kept[0].append(99)
    assert wave(schema, first, {"x": [2]}) == '{"x":[1,2]}' and first == '{"x":[1]}'


def test_a_reducer_that_turns_out_async_is_refused_when_it_runs() -> None:
    async def later(old: int, new: int) -> int:
        return old

    def reducer(old: int, new: int) -> Any:
        return later(old, new)

    schema = of(Annotated[int, reducer], 0)
    with pytest.raises(ReducerFailed, match="something to await"):
        wave(schema, schema.initial(), {"x": 1})


def test_an_update_of_another_state_is_refused() -> None:
    with pytest.raises(InvalidUpdate, match="node 'old' wrote to 'gone', which is no channel"):
        TALK.reduce(TALK.initial(), [("old", canonical({"gone": 1}))])


# What a node returns


def test_what_a_node_returns_is_validated_by_channel() -> None:
    assert PLAN.update("look", None) == "{}"
    assert (
        PLAN.update("look", {"count": "3", "steps": ({"tool": "a"},)})
        == '{"count":3,"steps":[{"tool":"a","cost":0.0}]}'
    )
    assert PLAN.update("look", Plan(topic="a", count=2, notes=[], by={}, spent=Decimal(0), said="")) == (
        '{"topic":"a","notes":[],"by":{},"count":2,"spent":"0","said":""}'
    )
    assert PLAN.update("look", Plan.model_construct(topic="a")) == '{"topic":"a"}'


@pytest.mark.parametrize(
    ("value", "channel", "path", "says"),
    [
        (
            {"count": "secret"},
            "count",
            "count",
            "no value of the channel 'count': count: Input should be a valid integer",
        ),
        ({"steps": [{"tool": "a"}, {"cost": "secret"}]}, "steps", "steps[1].tool", "steps[1].tool: Field required"),
        ({"steps": {"tool": "secret"}}, "steps", "steps", "valid list"),
        ({"notes": "secret"}, "notes", "notes", "valid list"),
        ({"by": [1]}, "by", "by", "valid dictionary"),
        ({"topics": "secret"}, "topics", None, "wrote to 'topics', which is no channel: they are topic, steps"),
        ({7: "secret"}, None, None, "wrote to (a int), which is no channel"),
        ({"notes": [1, {"a": [Colour.RED]}]}, "notes", "notes[1].a[0]", "neither plain JSON nor of a registered type"),
        ({"found": float("nan")}, "found", "found", "no infinite number"),
        ({"noted": Noted(name="a", anything=datetime.now(UTC))}, "noted", "noted.anything", "what is there is lost"),
        (["secret"], None, None, "gave a list, which is no update: give a dict of what changes, by channel, or a Plan"),
        ("secret", None, None, "gave a str, which is no update"),
        (Step(tool="secret"), None, None, "gave a Step, which is another state"),
        (Ledger({}), None, None, "gave a Ledger, which is another state"),
    ],
)
def test_what_is_no_update_is_named_and_not_quoted(
    value: Any, channel: str | None, path: str | None, says: str
) -> None:
    error = told(lambda: PLAN.update("look", value))
    assert (error.node, error.channel, error.path) == ("look", channel, path)
    assert says in str(error) and "node 'look'" in str(error) and "secret" not in str(error)


def test_a_private_attribute_that_was_set_is_refused_with_its_path() -> None:
    note = Noted(name="a")
    assert PLAN.update("look", {"noted": note}) == '{"noted":{"name":"a","anything":null}}'
    note._note = "secret"
    error = told(lambda: PLAN.update("look", {"noted": note}))
    assert error.path == "noted._note" and "secret" not in str(error)


def test_a_subclass_that_would_lose_its_own_fields_is_refused() -> None:
    class Costly(Step):
        budget: int = 3

    error = told(lambda: PLAN.update("look", {"steps": [Step(tool="a"), Costly(tool="b")]}))
    assert error.path == "steps[1]"


def test_the_words_of_a_validator_are_not_told() -> None:
    def check(value: str) -> str:
        if value == "fault":
            raise KeyError(value)
        raise ValueError(f"{value} is bad")

    schema = of(Annotated[str, AfterValidator(check)] | None)
    for value in ("secret", "fault"):
        error = told(lambda value=value: schema.update("n", {"x": value}))
        assert value not in str(error) and error.channel == "x"


def test_a_value_too_deep_or_too_large_is_refused_where_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: Any = 1
    for _ in range(json_text.MAX_DEPTH - 2):
        deep = [deep]
    update = PLAN.update("n", {"found": deep})
    assert parse(f'{{"update":{update}}}') == {"update": {"found": deep}}
    assert "nested deeper" in str(told(lambda: PLAN.update("n", {"found": [deep]})))

    values = PLAN.initial()
    monkeypatch.setattr(json_text, "MAX_BYTES", len(values) + 20)
    with pytest.raises(StateError, match=r"the state cannot be kept: .* over the limit"):
        PLAN.reduce(values, [("n", PLAN.update("n", {"notes": ["x" * 30]}))])


def test_a_value_that_holds_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    for schema, name in ((PLAN, "found"), (PLAN, "notes"), (of(list[list[Any]]), "x")):
        assert told(lambda schema=schema, name=name: schema.update("n", {name: ring})).channel == name


def test_lone_surrogates_are_replaced() -> None:
    assert PLAN.update("n", {"topic": "a\ud800", "found": {"\ud800": 1}}) == '{"topic":"a\ufffd","found":{"\ufffd":1}}'
    both = dict.fromkeys(["\ud800", "\ud801"])
    assert "two of its keys become one" in str(told(lambda: PLAN.update("n", {"found": [both]})))
    assert "two of its keys become one" in str(told(lambda: of(dict[str, None]).update("n", {"x": both})))
    assert PLAN.update("n", {"seen": {"\ud800"}, "found": [("\ud800",), {"a": "\ud800"}, 1]}) == (
        '{"seen":["\ufffd"],"found":[{"$type":"tuple","value":["\ufffd"]},{"a":"\ufffd"},1]}'
    )
    assert of(dict[str, list[str]]).update("n", {"x": {"\ud800": ["\ud801"]}}) == '{"x":{"\ufffd":["\ufffd"]}}'


# What a node gets


def test_what_a_node_gets_is_its_own() -> None:
    values = wave(PLAN, PLAN.initial(), {"topic": "a", "notes": [{"deep": [1]}]})
    before = str(values)
    one, other = PLAN.read(values), PLAN.read(values)
    assert isinstance(one, Plan) and one == other
    one.notes[0]["deep"].append(2)
    one.topic = "b"
    one.by["x"] = 1
    assert other.notes == [{"deep": [1]}] and other.by == {} and values == before
    assert PLAN.read(values) == other
    assert type(TALK.read(canonical({"topic": "a"}))).__mro__[1] is dict


def test_a_state_is_not_read_before_what_it_requires_is_there() -> None:
    with pytest.raises(StateIncomplete, match="before 'topic' had a value") as caught:
        PLAN.read(PLAN.initial())
    assert caught.value.channels == ("topic",)
    assert TALK.missing(TALK.initial()) == ("topic",)
    with pytest.raises(StateIncomplete):
        TALK.read(TALK.initial())
    assert TALK.read(wave(TALK, TALK.initial(), {"topic": "a"})) == {"topic": "a", "log": []}


def test_a_state_that_was_stored_before_a_field_was_added_is_read() -> None:
    old = canonical({"topic": "a", "gone": [1]})
    state = PLAN.read(old)
    assert state.topic == "a" and state.notes == [] and state.best == ""
    assert json.loads(wave(PLAN, old, {"count": 2}))["gone"] == [1]


@pytest.mark.parametrize("damaged", ["null", "[]", '{"topic": "a"}', "", '{"topic":"a","count":"x"}', '{"topic":1}'])
def test_what_is_no_state_is_a_typed_error(damaged: str) -> None:
    with pytest.raises(StateError):
        PLAN.read(JsonText(damaged))


def test_a_state_may_be_returned_as_a_whole_and_says_what_changed() -> None:
    values = wave(PLAN, PLAN.initial(), {"topic": "a", "notes": [1], "found": {"n": 1}})
    state = PLAN.read(values)
    assert PLAN.update("n", state) == "{}"
    state.topic = "b"
    state.found["n"] = 2
    assert PLAN.update("n", state) == '{"topic":"b","found":{"n":2}}'
    assert PLAN.update("n", state.model_copy(update={"topic": "c"})) == '{"topic":"c","found":{"n":2}}'
    assert PLAN.update("n", deepcopy(state)) == PLAN.update("n", state)
    state.notes.append(2)
    error = told(lambda: PLAN.update("n", state))
    assert error.channel == "notes" and "return {'notes': ...} with that alone" in str(error)

    talk = TALK.read(wave(TALK, TALK.initial(), {"topic": "a", "log": ["x"]}))
    talk["joke"] = "b"
    assert TALK.update("n", talk) == '{"joke":"b"}'
    assert TALK.update("n", {**talk, "log": ["y"]}) == '{"topic":"a","log":["y"],"joke":"b"}'
    talk["log"] += ["y"]
    assert told(lambda: TALK.update("n", talk)).channel == "log"
    del talk["log"]
    assert told(lambda: TALK.update("n", talk)).channel == "log"


def test_an_edited_state_is_written_whole() -> None:
    values = wave(PLAN, PLAN.initial(), {"topic": "a", "notes": [1]})
    state = PLAN.read(values)
    assert PLAN.dump(state) == values
    state.notes = [2]
    state.count = 7
    edited = PLAN.dump(state)
    assert json.loads(edited) == {**json.loads(values), "notes": [2], "count": 7}
    assert PLAN.dump({"count": 7, "topic": "b"}) == '{"topic":"b","count":7}'
    assert TALK.dump({"log": [], "topic": "b"}) == '{"topic":"b","log":[]}'
    state.count = "many"  # type: ignore[assignment]
    error = told(lambda: PLAN.dump(state))
    assert (error.node, error.channel) == (None, "count")
    assert told(lambda: PLAN.dump({"counts": 1})).channel == "counts"
    assert "no update" in str(told(lambda: PLAN.dump(None)))


def test_a_state_that_a_human_edited_as_json_is_validated() -> None:
    shown = wave(PLAN, PLAN.initial(), {"topic": "a", "found": (1, 2)})
    assert PLAN.accept(shown) == shown
    assert PLAN.accept(canonical({"count": "3", "topic": "b"})) == '{"topic":"b","count":3}'
    assert told(lambda: PLAN.accept(canonical({"counts": 1}))).channel == "counts"
    assert told(lambda: PLAN.accept(canonical({"count": "secret"}))).channel == "count"
    assert told(lambda: PLAN.update("in", canonical({"found": {"$type": "tuple"}}))).node == "in"
    # Read as plain JSON, it is an object like any other; as text, it is the value that it stands for.
    assert PLAN.read(wave(PLAN, PLAN.initial(), shown)).found == (1, 2)
    assert PLAN.read(wave(PLAN, PLAN.initial(), json.loads(shown))).found == {"$type": "tuple", "value": [1, 2]}


def test_messages_may_stand_in_a_channel() -> None:
    schema = of(Annotated[list[Message], append])
    said = [Message(role="user", content="hello"), Message(role="assistant", content="there")]
    values = wave(schema, schema.initial(), {"x": said[:1]}, {"x": said[1:]})
    assert schema.read(values).x == said


# Which classes are states


class Whole(BaseModel):
    x: int

    @model_validator(mode="after")
    def check(self) -> Whole:
        return self


class Parts(BaseModel):
    x: int

    @field_validator("x")
    @classmethod
    def check(cls, value: int) -> int:
        return value


class Written(BaseModel):
    x: int

    @field_serializer("x")
    def write(self, value: int) -> str:
        return str(value)


class Private(BaseModel):
    x: int
    _y: int = 0


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: int


class After(BaseModel):
    x: int

    def model_post_init(self, context: Any) -> None: ...


class Made(BaseModel):
    x: int
    y: int = Field(default_factory=lambda data: data["x"])


class Empty(BaseModel): ...


class Under(TypedDict):
    _x: int


class Open(BaseModel):
    x: Unknown  # type: ignore[name-defined] # noqa: F821


class Missing(TypedDict):
    x: Unknown  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (Whole, "the state Whole has validators of its own"),
        (Parts, "has validators of its own"),
        (Written, "has serializers of its own"),
        (Private, "has private attributes"),
        (Extra, "takes extra fields"),
        (After, "has a model_post_init"),
        (Made, "the default of 'y' is made of other fields"),
        (Empty, "has no fields"),
        (RootModel[list[int]], "is a root model"),
        (Ledger, "the state is Ledger; make it a pydantic model or a TypedDict"),
        (dict, "the state is dict; make it"),
        ({"x": int}, "the state is a dict; make it"),
        (Under, "'_x' begins with an underscore"),
        (Missing, "is not whole (NameError"),
        (Open, "is not whole: PydanticUndefinedAnnotation"),
    ],
)
def test_what_cannot_be_a_state_is_refused(state: Any, says: str) -> None:
    assert says in refused(lambda: StateSchema(state, name="g"))


async def asynchronous(old: int, new: int) -> int:
    return old


class Callable1:
    def __call__(self, old: int, new: int) -> int:
        return old


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, old: int, new: int) -> int:
        return new


class Secretive:
    def __init__(self) -> None:
        self.x = 1


@pytest.mark.parametrize(
    ("hint", "says"),
    [
        (Annotated[list[int], append, operator.add], "'x' has several reducers, append and add"),
        (Annotated[list[int], append, append], "several reducers"),
        (Annotated[int, append], "its type must be a list"),
        (Annotated[str, append], "its type must be a list"),
        (Annotated[list[int] | None, append], "its type must be a list"),
        (Annotated[list[int], merge], "its type must be a dict"),
        (Annotated[list[int], append, MaxLen(3)], "put what limits it on its items"),
        (Annotated[dict[str, int], MaxLen(3), merge], "put what limits it on its items"),
        (Annotated[list[int], append] | None, "has its reducer inside its type"),
        (list[Annotated[int, add]], "has its reducer inside its type"),
        (Annotated[int, asynchronous], "is async"),
        (Annotated[int, lambda old: old], "must take (old, new)"),
        (Annotated[int, lambda old, new, more: old], "must take (old, new)"),
        (frozenset[frozenset[str]], "does not survive JSON"),
        (Secretive, "cannot be stored"),
        (Annotated[list[Secretive], append], "cannot be stored"),
    ],
)
def test_what_cannot_be_a_channel_is_refused(hint: Any, says: str) -> None:
    assert says in refused(lambda: of(hint))


def test_a_default_that_is_none_of_the_type_is_refused() -> None:
    assert "has a default that is not of that type" in refused(lambda: of(int, "many"))
    assert "does not survive JSON" in refused(lambda: of(Any, object()))


def test_any_function_of_two_may_be_a_reducer() -> None:
    for function in (
        max,
        operator.mul,
        functools.partial(lambda base, old, new: old, 1),
        Callable1(),
        Unhashable(),
        lambda old, new=1: old,
    ):
        assert of(Annotated[int, function]).reducers["x"].name == "custom"
    assert of(Annotated[int, Ge(0), max]).reducers["x"].name == "custom"
    assert of(Annotated[int, replace]).reducers["x"].name == of(Annotated[int, Ge(0)]).reducers["x"].name == "replace"
    assert "greater than" in str(told(lambda: of(Annotated[int, Ge(0), max]).update("n", {"x": -1})))


def test_words_for_people_may_stand_beside_a_reducer() -> None:
    class Told(TypedDict):
        log: Annotated[list[str], "what was done", operator.add]
        by: Annotated[dict[str, int], merge, Field(description="how often"), Doc("by tool")]

    schema = StateSchema(Told, name="g")
    assert [reducer.name for reducer in schema.reducers.values()] == ["append", "merge"]
    assert wave(schema, schema.initial(), {"log": ["a"], "by": {"b": 1}}) == '{"log":["a"],"by":{"b":1}}'
    assert "on its items" in refused(lambda: of(Annotated[list[int], append, Field(max_length=3)]))


def test_whether_reducing_runs_code_of_the_users_is_known() -> None:
    assert PLAN.has_user_code and not SMALL.has_user_code is SMALL.reducers["best"].name == "custom"
    assert not of(Annotated[list[Step], append]).has_user_code
    assert not of(Step).has_user_code
    assert of(Annotated[int, add, Ge(0)]).has_user_code


def test_defaults_are_made_anew_for_each_run() -> None:
    class Made(BaseModel):
        id: str = Field(default_factory=lambda: uuid.uuid4().hex)
        tags: list[str] = []

    schema = StateSchema(Made, name="g")
    one, other = json.loads(schema.initial()), json.loads(schema.initial())
    assert one["id"] != other["id"] and one["tags"] == []


def test_field_options_count() -> None:
    class Options(BaseModel):
        model_config = ConfigDict(str_strip_whitespace=True, frozen=True)
        said: str = Field(alias="Said", max_length=3, default="")
        hidden: int = Field(default=1, exclude=True)
        log: Annotated[list[str], append] = Field(default_factory=list, description="What was done.")

    schema = StateSchema(Options, name="g")
    values = wave(schema, schema.initial(), {"said": " ab ", "hidden": 2, "log": [" c "]})
    assert values == '{"said":"ab","hidden":2,"log":["c"]}'
    state = schema.read(values)
    assert (state.said, state.hidden, state.log) == ("ab", 2, ["c"])
    assert told(lambda: schema.update("n", {"said": "abcd"})).channel == "said"


def test_a_schema_is_shown_by_the_name_of_its_class() -> None:
    assert repr(PLAN) == "StateSchema(Plan)"


def test_what_was_reduced_remembers_its_parts() -> None:
    values = wave(PLAN, PLAN.initial(), {"topic": "a", "notes": [1]})
    assert isinstance(values, ObjectText)
    assert ObjectText.read(values) is values
    assert PLAN.reduce(values, []) == values


def test_states_that_look_alike_keep_what_each_of_them_says() -> None:
    """Channels of plain types are prepared once for all states of a name: what tells two of them apart must be in the key."""
    defaults = (0, 0.0, -0.0, False, 1, 1.0, True, "", "0", "None", None)
    kinds = (int, float, bool, str, list[int], list[float], dict[str, int], dict[str, float], int | str, str | int)
    for _ in range(2):
        for kind in kinds:
            channel = StateSchema(create_model("Alike", x=(kind, ...)), name="alike").channels["x"]
            assert (
                channel.required
                and channel.form.schema_text
                == StateSchema(create_model("Other", x=(kind, ...)), name="other").channels["x"].form.schema_text
            )
        for default in defaults:
            kind = type(default)
            channel = StateSchema(create_model("Alike", x=(kind, default)), name="alike").channels["x"]
            assert channel.start == canonical(default) and repr(channel.read(channel.start)) == repr(default)


def test_a_default_that_is_changed_after_a_graph_was_built_counts_for_the_next() -> None:
    kept: list[int] = []
    for wanted in ("[]", "[1]"):
        state = create_model("Kept", x=(list[int], kept))
        assert StateSchema(state, name="kept").initial() == f'{{"x":{wanted}}}'
        kept.append(1)


def test_a_plain_channel_that_is_refused_is_refused_each_time() -> None:
    state = create_model("Wrong", x=(float, float("inf")))
    told = []
    for name in ("first", "second", "second"):
        with pytest.raises(GraphError) as refused:
            StateSchema(state, name=name)
        told.append(str(refused.value).partition(":")[0])
    assert told == ["graph first", "graph second", "graph second"]
