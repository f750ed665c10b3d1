"""Schemas of MCP servers that are made to take for ever: each ends within its budget, and nothing runs.

No time is measured here. Without a budget each of these would take longer than anybody waits.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from drivers import Driver

from phronomy import Agent, ToolDefinitionError
from phronomy.foundation.json_text import canonical
from phronomy.testing import ScriptedModel, call
from phronomy.tools.arguments import Unfit
from phronomy.tools.json_schema.arguments import Misfit, SchemaArguments
from phronomy.tools.json_schema.bounded import BoundedSchema, ResultSchema, Unusable
from phronomy.tools.tool import Tool

pytest.importorskip("jsonschema")


def doubling(step: Any, last: Any) -> dict[str, Any]:
    """Definitions of which each is made of the next one, twice."""
    return {f"N{n}": step({"$ref": f"#/$defs/N{n + 1}"}) for n in range(28)} | {"N28": last}


SLOW: dict[str, Any] = {"type": "object", "properties": {"x": {"pattern": r"^(?:a{1,1000}){1,1000}$"}}}

TOO_LONG: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a pattern": (SLOW, {"x": "a" * 3000 + "!"}),
    "a pattern of names": (
        {"type": "object", "patternProperties": {r"^(?:a{1,1000}){1,1000}$": {}}},
        {"a" * 3000 + "!": 1},
    ),
    "a pattern of other names": (
        {"type": "object", "patternProperties": {r"^(?:a{1,1000}){1,1000}$": True}, "additionalProperties": False},
        {"a" * 3000 + "!": 1},
    ),
    "references": (
        {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/N0"}},
            "$defs": doubling(lambda next: {"allOf": [next, next]}, {"type": "string"}),
        },
        {"x": "y"},
    ),
    "what is unevaluated": (
        {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/N0", "unevaluatedProperties": False}},
            "$defs": doubling(lambda next: {"anyOf": [next, next]}, {"properties": {"y": {}}}),
        },
        {"x": {"y": 1}},
    ),
}


@pytest.mark.parametrize(("schema", "args"), TOO_LONG.values(), ids=TOO_LONG.keys())
def test_a_schema_that_takes_for_ever_is_given_up_and_nothing_is_read(schema: Any, args: Any) -> None:
    arguments = SchemaArguments("wipe", schema)
    with pytest.raises(Unfit, match=r"takes more time .* so they were not validated"):
        arguments.read(canonical(args))


def test_the_pattern_that_froze_the_process_is_answered_at_once() -> None:
    schema = {"type": "object", "properties": {"x": {"pattern": "^(a+)+$"}}}
    with pytest.raises(Misfit):
        SchemaArguments("wipe", schema).read(canonical({"x": "a" * 40 + "!"}))


def test_a_chain_of_references_without_an_end_is_given_up() -> None:
    chain = {f"N{n}": {"$ref": f"#/$defs/N{n + 1}"} for n in range(5000)} | {"N5000": {}}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/N0"}}, "$defs": chain}
    with pytest.raises((Unfit, ToolDefinitionError)):  # here, or on a slow machine when it is first read
        SchemaArguments("wipe", schema).read(canonical({"x": 1}))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (
            {
                "type": "object",
                "$ref": "#/$defs/N0",
                "$defs": doubling(
                    lambda next: {"properties": {n: next | {"default": {}} for n in "ab"}}, {"type": "object"}
                ),
            },
            "takes more time than it is given",
        ),
        ({"type": "object", "title": "x" * 200_001}, "more than 200000 are not read"),
        ({"type": "object", "properties": {"x": {"pattern": "a" * 5001}}}, "is too large"),
        ({"type": "object", "properties": {"x": {"pattern": "(?:(?:[ab]{1000}){1000}){1000}"}}}, "is too large"),
        ({"type": "object", "properties": {"x": {"pattern": "(?R)?a"}}}, "is none that can be used"),
        ({"type": "object", "properties": {"x": {"pattern": "(?i)a"}}}, "is none that can be used"),
        ({"type": "object", "patternProperties": {"(": {}}}, "is none that can be used"),
        ({"type": "object", "patternProperties": {"a": {}}, "unevaluatedProperties": False}, "is not supported"),
    ],
)
def test_a_schema_that_could_take_for_ever_when_it_is_listed_is_refused_then(schema: Any, why: str) -> None:
    with pytest.raises(ToolDefinitionError, match=f"cannot be used: .*{why}"):
        SchemaArguments("wipe", schema)


def test_what_a_tool_gives_back_is_checked_within_a_budget_too() -> None:
    ResultSchema({"type": "object", "required": ["x"]}).check({"x": 1})
    with pytest.raises(Unfit, match="does not fit"):
        ResultSchema({"type": "object", "required": ["x"]}).check({})
    with pytest.raises(Unfit, match="takes more time"):
        ResultSchema(TOO_LONG["a pattern"][0]).check(TOO_LONG["a pattern"][1])
    with pytest.raises(Unusable, match="describes no object"):
        BoundedSchema([])


def test_honest_schemas_are_applied_as_before() -> None:
    email = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
    schema = {
        "type": "object",
        "properties": {
            "to": {"type": "string", "pattern": email},
            "tags": {"type": "array", "uniqueItems": True},
        },
        "patternProperties": {"^x-": {"type": "integer"}},
        "additionalProperties": {"type": "boolean"},
    }
    arguments = SchemaArguments("mail", schema)
    good = {"to": "ada@example.org", "tags": [1, True, {"a": [1]}, "1"], "x-n": 5, "more": True}
    assert arguments.bind(arguments.read(canonical(good))) == good
    for bad in ({"to": "ada"}, {"tags": [1, 1.0]}, {"tags": [{"a": [1]}, {"a": [1]}]}, {"x-n": "5"}, {"more": 1}):
        with pytest.raises(Misfit):
            arguments.read(canonical(bad))
    with pytest.raises(Misfit):
        SchemaArguments("mail", schema | {"additionalProperties": False}).read(canonical({"more": True}))


class Wipe(Tool):
    """A tool whose schema is somebody else's."""

    ran: ClassVar[bool] = False

    def execute(self, x: str = "") -> str:
        """Wipe."""
        type(self).ran = True
        return "done"

    def _signature(self, body: Any, told: dict[str, str]) -> Any:
        return SchemaArguments("wipe", TOO_LONG["a pattern"][0]), None


def test_the_model_is_told_why_and_nothing_runs(driver: Driver) -> None:
    model = ScriptedModel([call("wipe", {"x": "a" * 3000 + "!"}), "bye"])
    result = driver.invoke(Agent(model=model, tools=[Wipe()]), "go")
    [message] = [message for message in result.messages if message.role == "tool"]
    assert message.settlement == "invalid" and "takes more time to match than it is given" in message.text
    assert not Wipe.ran


def test_an_event_loop_goes_on_meanwhile() -> None:
    async def main() -> int:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(turn())
        model = ScriptedModel([call("wipe", {"x": "a" * 3000 + "!"}), "bye"])
        seen: list[int] = []
        reading = SchemaArguments.read

        def read(self: Any, value: Any) -> Any:
            seen.append(turns)
            try:
                return reading(self, value)
            finally:
                seen.append(turns)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SchemaArguments, "read", read)
            await Agent(model=model, tools=[Wipe()]).ainvoke("go")
        beside.cancel()
        return seen[1] - seen[0]

    assert asyncio.run(main()) > 0
