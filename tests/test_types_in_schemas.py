"""Types and defaults of parameters, and the JSON Schema that is made of them: one value has one verdict wherever it is judged."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Annotated, Any, NamedTuple, Optional

import pytest
from pydantic import Field
from pydantic_core import core_schema
from tables import each
from typing_extensions import Doc

from phronomy import Agent, Approve, MemoryStore, ToolDefinitionError, tool
from phronomy.foundation.json_text import canonical
from phronomy.testing import ScriptedModel, call
from phronomy.tools.context import InvalidArguments
from phronomy.tools.docstring import read_docstring
from phronomy.tools.json_schema.answers import misfit
from phronomy.tools.json_schema.arguments import SchemaArguments


def taking(hint: Any, *default: Any) -> Any:
    def take(x: Any) -> str:
        """Take it."""
        return repr(x)

    take.__annotations__ = {"x": hint, "return": str}
    take.__defaults__ = default
    return tool(take)


# The verdict


def by_call(made: Any, value: Any) -> bool:
    try:
        made.read(canonical({"x": value}))
    except InvalidArguments:
        return False
    return True


def by_server(made: Any, value: Any) -> bool:
    try:
        SchemaArguments("t", made.parameters).read(canonical({"x": value}))
    except ValueError:
        return False
    return True


@each(
    ("hint", "value", "fits"),
    [
        *(
            (Annotated[float, Field(multiple_of=0.01)], value, True)
            for value in (19.99, 20, 20.0, 0.07, -1.1, 0, 1e15, 4.35)
        ),
        *((Annotated[float, Field(multiple_of=0.01)], value, False) for value in (19.995, 0.001, -0.005)),
        *((Annotated[float, Field(multiple_of=0.1)], value, True) for value in (0.3, 0.7, 1.1, 199.9)),
        *((Annotated[float, Field(multiple_of=0.05)], value, value != 0.12) for value in (0.15, 0.35, 0.12)),
        (Annotated[int, Field(multiple_of=3)], 10**30, False),
        (Annotated[int, Field(multiple_of=3)], 3 * 10**30, True),
        (int, 1.0, True),
        (int, 1.5, False),
        (int, 10**30, True),
        (Annotated[float, Field(gt=0.1, lt=0.3)], 0.1, False),
        (Annotated[float, Field(gt=0.1, lt=0.3)], 0.2, True),
        (Annotated[float, Field(gt=0.1, lt=0.3)], 0.3, False),
        (Annotated[str, Field(min_length=2)], "\U0001f642", False),
        (Annotated[str, Field(max_length=1)], "\U0001f642", True),
        (Annotated[str, Field(pattern=r"^\d+$")], "\u0663", True),
        (tuple[int, str], [1, "a"], True),
        (tuple[int, str], ["a", 1], False),
        (tuple[int, str], [1, "a", 2], False),
    ],
)
def test_a_value_has_one_verdict_in_a_call_and_in_an_edit(hint: Any, value: Any, fits: bool) -> None:
    made = taking(hint)
    assert by_call(made, value) is fits
    assert (misfit({"x": value}, made.parameters, declared=True) is None) is fits
    assert by_server(made, value) is fits


def test_every_whole_cent_is_a_multiple_of_a_cent() -> None:
    schema: Any = {"multipleOf": 0.01}
    assert [cents for cents in range(1, 2_001) if misfit(cents / 100, schema) is not None] == []


def test_a_human_may_pay_what_a_model_may() -> None:
    @tool(requires_approval=True)
    def pay(amount: Annotated[float, Field(multiple_of=0.01)]) -> str:
        """Pay."""
        return f"paid {amount}"

    store = MemoryStore()
    model = ScriptedModel.by_turn([call("pay", {"amount": 20}), "Done."])
    agent = Agent(name="desk", model=model, tools=[pay], store=store)
    [item] = agent.invoke("Pay").checkpoint.pending
    store.decide(item.id, Approve(args={"amount": 19.99}), by="rita", digest=item.digest)
    [found] = agent.recover_all()
    assert found.result is not None and found.result.messages[2].text.endswith("paid 19.99")


# Defaults are Python values


class Third:
    """As the documents of pydantic show how a class of another package is annotated."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Third) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        steps: list[core_schema.CoreSchema] = [
            core_schema.int_schema(),
            core_schema.no_info_plain_validator_function(cls),
        ]
        number = core_schema.chain_schema(steps)
        return core_schema.json_or_python_schema(
            json_schema=number,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), number]),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value.number),
        )


@each(
    ("hint", "default", "text", "value"),
    [
        (Path, Path("out"), "out", Path("out")),
        (Path, "out", "out", Path("out")),
        (PurePath, PurePath("out"), "out", PurePath("out")),
        (list[Path], [Path("a"), Path("b")], ["a", "b"], [Path("a"), Path("b")]),
        (dict[str, Path], {"a": Path("b")}, {"a": "b"}, {"a": Path("b")}),
        (Path | None, Path("out"), "out", Path("out")),
        (Path | None, None, None, None),
        (Path, Field(default=Path("out")), "out", Path("out")),
        (Annotated[Path, Field(description="Where to.")], Path("out"), "out", Path("out")),
        (Third, Third(3), 3, Third(3)),
        (int, "5", 5, 5),
    ],
)
def test_a_default_is_a_python_value(hint: Any, default: Any, text: Any, value: Any) -> None:
    made = taking(hint, default)
    assert made.read("{}") == canonical({"x": text})
    assert made.read(made.read("{}")) == made.read("{}")
    assert made.bind(made.read("{}")) == {"x": value}


@each(("hint", "default"), [(Path, 5), (int, "five"), (list[Path], [5]), (Third, "three")])
def test_a_default_of_another_type_is_refused(hint: Any, default: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="has a default that is not of that type"):
        taking(hint, default)


def test_a_default_that_can_change_is_made_afresh() -> None:
    made = taking(list[Path], [Path("a")])
    first = made.bind(made.read("{}"))["x"]
    first.append(Path("b"))
    assert made.read("{}") == '{"x":["a"]}'


# Texts in hints


@each(
    ("hint", "described"),
    [
        (Annotated[int, "the number"], {"type": "integer", "description": "the number"}),
        (Annotated[int, Doc("the number\n")], {"type": "integer", "description": "the number"}),
        (Annotated[int, "the number", Field(ge=1)], {"type": "integer", "minimum": 1, "description": "the number"}),
        (Annotated[int, "one", Field(description="other")], {"type": "integer", "description": "other"}),
        (Annotated[int, ""], {"type": "integer"}),
        (Annotated[int, 5], {"type": "integer"}),
        (list[Annotated[int, "one"]], {"type": "array", "items": {"type": "integer", "description": "one"}}),
        (
            Annotated[list[Annotated[int, "one"]], "many"],
            {"type": "array", "items": {"type": "integer", "description": "one"}, "description": "many"},
        ),
        (
            Optional[Annotated[int, "one"]],  # noqa: UP045  # as a type checker wants it
            {"anyOf": [{"type": "integer", "description": "one"}, {"type": "null"}]},
        ),
        (
            dict[str, Annotated[int, "one"]],
            {"type": "object", "additionalProperties": {"type": "integer", "description": "one"}},
        ),
    ],
)
def test_a_text_in_annotated_is_the_description(hint: Any, described: Any) -> None:
    assert taking(hint).parameters["properties"]["x"] == described


def test_a_text_in_annotated_comes_before_the_docstring() -> None:
    @tool
    def find(x: Annotated[int, "from the hint"], y: int) -> str:
        """Find.

        :param x: from the docstring
        :param y: from the docstring
        """
        return ""

    told = {name: each["description"] for name, each in find.parameters["properties"].items()}
    assert told == {"x": "from the hint", "y": "from the docstring"}


def test_a_docstring_has_no_line_end_at_its_end() -> None:
    numpy = "Find.\n\nMore.\n\nParameters\n----------\nx : int\n    The number.\n"
    assert read_docstring(numpy) == ("Find.\n\nMore.", {"x": "The number."})
    assert read_docstring("Find.\n\n:param x: The number.\n") == ("Find.", {"x": "The number."})


# Arrays


class Point(NamedTuple):
    x: int
    y: str


def arrays_in(schema: Any) -> list[Any]:
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else []
    found = [schema] if isinstance(schema, dict) and schema.get("type") == "array" else []
    return found + [array for each in inner for array in arrays_in(each)]


@each(
    "hint",
    [
        tuple[int, str],
        tuple[int, int],
        tuple[()],
        tuple,
        tuple[int, ...],
        list,
        set,
        Point,
        list[tuple[int, str]],
        tuple[Point, int],
    ],
)
def test_every_array_has_items(hint: Any) -> None:
    found = arrays_in(taking(hint).parameters)
    assert found and all("items" in each for each in found)


def test_the_items_of_a_tuple_are_of_one_of_its_types() -> None:
    def items(hint: Any) -> Any:
        return taking(hint).parameters["properties"]["x"]["items"]

    assert items(tuple[int, str]) == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert items(tuple[int, int]) == {"type": "integer"}
    assert items(tuple[()]) == {}


# Types that no JSON can fill


@each(
    "hint",
    [
        type[int],
        list[type[int]],
        dict[tuple[int, int], int],
        dict[Point, int],
        dict[frozenset[int], int],
        dict[str, dict[None, int]],
    ],
)
def test_a_type_that_no_json_can_fill_is_refused(hint: Any) -> None:
    with pytest.raises(ToolDefinitionError, match=r"'x' of type .* which no JSON can hold"):
        taking(hint)


@each("hint", [dict[int, int], dict[str, int], dict[Path, int], dict[Any, int], dict[bool, int]])
def test_keys_that_are_texts_in_json_are_accepted(hint: Any) -> None:
    assert taking(hint).gate == "never"
