"""Results that are the answer of a run: whether they can be of the type that the answer must have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from phronomy.conversation.output import OutputType
from phronomy.errors import ConfigurationError
from phronomy.foundation.json_text import JsonDict, JsonValue, list_of, object_of
from phronomy.tools.json_schema.typed import schema_at
from phronomy.tools.tool import Tool

_KINDS: Final = {"object": "object", "array": "array", "null": "null", "string": "scalar"}
_DEEPEST: Final = 20
"""How many references are followed: a schema may refer to itself."""


def check_direct_results(agent: str, tools: Iterable[Tool], output: OutputType | None) -> None:
    """Refuse a tool with `return_direct` whose results can never be of the output type. Raises `ConfigurationError`.

    Only schemas that exclude each other are refused. Every other result is checked when it is there.
    """
    if output is None:
        return
    for tool in (each for asked in tools for each in (asked, *asked.fallback) if each.return_direct):
        pairs = [(tool.result_schema(by_alias=each), output.value_schema(by_alias=each)) for each in (True, False)]
        if not any(returned is None or may_fit(returned, wanted) for returned, wanted in pairs):
            raise ConfigurationError(
                f"agent {agent!r}: the result of tool {tool.name!r} is to be the answer (return_direct=True), and what it returns can"
                " never be of the output_type: have it return that type, or leave return_direct out"
            )


def may_fit(given: JsonDict, wanted: JsonDict) -> bool:
    """Say whether a value of the first schema may fit the second one, by their types and the names of their fields."""
    return any(_meet(one, other) for one in _branches(given, given) for other in _branches(wanted, wanted))


def _branches(schema: JsonValue, root: JsonDict, depth: int = 0) -> list[JsonDict]:
    """The schemas of which one holds, with references followed."""
    found = object_of(schema)
    if depth > _DEEPEST:
        return [{}]
    if isinstance(ref := found.get("$ref"), str):
        return _branches(schema_at(root, ref), root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(some := found.get(key), list):
            return [each for one in some for each in _branches(one, root, depth + 1)]
    return [found]


def _meet(given: JsonDict, wanted: JsonDict) -> bool:
    kinds = _kinds(given) & _kinds(wanted)
    if kinds != {"object"}:
        return bool(kinds)
    # The JSON of a model or a typed dict has these names alone, unless its schema allows more.
    closed = "properties" in given and given.get("additionalProperties") in (None, False)
    return not closed or set(list_of(wanted.get("required"))) <= object_of(given.get("properties")).keys()


def _kinds(schema: JsonDict) -> frozenset[str]:
    """The kinds of values that the schema lets pass: all, if it does not say. A text may be read as a number, or as a time."""
    said = schema.get("type")
    types = [said] if isinstance(said, str) else list_of(said) or [*_KINDS]
    return frozenset(_KINDS.get(str(each), "scalar") for each in types)
