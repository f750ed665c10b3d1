"""Defaults of a schema from elsewhere: a gate and a human see each value that the server would take for itself."""

from __future__ import annotations

from typing import Any

import pytest
from tables import each

from phronomy.foundation.json_text import JsonText, canonical, plain
from phronomy.tools.arguments import Unfit
from phronomy.tools.json_schema.arguments import SchemaArguments

pytest.importorskip("jsonschema")

AMOUNT: dict[str, Any] = {"type": "number", "default": 5000}
NONE: dict[str, Any] = {"type": "null"}


def schema(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"to": {"type": "string"}, **properties},
        "$defs": {"A": AMOUNT, "P": PAYMENT},
    }


PAYMENT: dict[str, Any] = {"type": "object", "properties": {"amount": AMOUNT, "note": {"type": "string"}}}
REFERENCE = {"$ref": "#/$defs/A"}
INNER = {"$ref": "#/$defs/P"}
BY_KIND = {
    "if": {"properties": {"kind": {"const": "big"}}, "required": ["kind"]},
    "then": {"properties": {"amount": AMOUNT}},
    "else": {"properties": {"amount": {"type": "number", "default": 5}}},
}

OLD = {"$schema": "http://json-schema.org/draft-07/schema#"}

FILLED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "a property": (schema(amount=AMOUNT), {}, {"amount": 5000}),
    "a reference": (schema(amount=REFERENCE), {}, {"amount": 5000}),
    "a reference of a reference": (
        schema(amount={"allOf": [{"$ref": "#/properties/b"}]}, b=REFERENCE),
        {"b": 1},
        {"b": 1, "amount": 5000},
    ),
    "all of": (schema(amount={"allOf": [{"type": "number"}, REFERENCE]}), {}, {"amount": 5000}),
    "any of": (schema(amount={"anyOf": [AMOUNT, NONE]}), {}, {"amount": 5000}),
    "one of": (schema(amount={"oneOf": [NONE, REFERENCE]}), {}, {"amount": 5000}),
    "a branch by a condition": (schema(amount={"if": {"type": "number"}, "then": AMOUNT}), {}, {"amount": 5000}),
    "its own first": (schema(amount={"default": 7, "anyOf": [AMOUNT, NONE]}), {}, {"amount": 7}),
    "its own null first": (schema(amount={"default": None, "anyOf": [AMOUNT, NONE]}), {}, {"amount": None}),
    "one that fits": (schema(amount={"maximum": 9, "anyOf": [AMOUNT, {"default": 8}]}), {}, {"amount": 8}),
    "null that does not fit": (schema(amount={"type": "number", "default": None}), {}, {}),
    "all of an object": ({"type": "object", "allOf": [schema(amount=AMOUNT)]}, {}, {"amount": 5000}),
    "any of an object": ({"type": "object", "anyOf": [{"required": ["x"]}, PAYMENT]}, {}, {"amount": 5000}),
    "one of an object": ({"type": "object", "oneOf": [PAYMENT, {"required": ["x"]}]}, {}, {"amount": 5000}),
    "then": (
        {"type": "object", "properties": {"kind": {}}, **BY_KIND},
        {"kind": "big"},
        {"kind": "big", "amount": 5000},
    ),
    "else": ({"type": "object", "properties": {"kind": {}}, **BY_KIND}, {"kind": "b"}, {"kind": "b", "amount": 5}),
    "then, of a default": (
        {"type": "object", "properties": {"kind": {"default": "big"}}, **BY_KIND},
        {},
        {"kind": "big", "amount": 5000},
    ),
    "an optional object": (schema(o={"anyOf": [INNER, NONE], "default": None}), {"o": {}}, {"o": {"amount": 5000}}),
    "an optional object that is missing": (schema(o={"anyOf": [INNER, NONE], "default": None}), {}, {"o": None}),
    "an item": (schema(l={"items": INNER}), {"l": [{}]}, {"l": [{"amount": 5000}]}),
    "a first item": (schema(l={"prefixItems": [INNER], "items": {}}), {"l": [{}, {}]}, {"l": [{"amount": 5000}, {}]}),
    "a later item": (schema(l={"prefixItems": [{}], "items": INNER}), {"l": [{}, {}]}, {"l": [{}, {"amount": 5000}]}),
    "a first item, in words of old": (
        {**OLD, **schema(l={"items": [INNER], "additionalItems": INNER})},
        {"l": [{}, {}]},
        {"l": [{"amount": 5000}, {"amount": 5000}]},
    ),
    "a name with a pattern": (
        schema(o={"patternProperties": {"^a": INNER}, "additionalProperties": {}}),
        {"o": {"a1": {}, "b": {}}},
        {"o": {"a1": {"amount": 5000}, "b": {}}},
    ),
    "a name that is there": (
        {**schema(), "dependentSchemas": {"to": PAYMENT}},
        {"to": "a"},
        {"to": "a", "amount": 5000},
    ),
    "a name that is there, in words of old": (
        {**OLD, **schema(), "dependencies": {"to": PAYMENT, "note": ["to"]}},
        {"to": "a"},
        {"to": "a", "amount": 5000},
    ),
    "an anchor": (
        schema(amount={"$ref": "#five"}, b={"$anchor": "five", "default": 5}),
        {"b": 1},
        {"b": 1, "amount": 5},
    ),
    "a dynamic reference": (schema(amount={"$dynamicRef": "#/$defs/A"}), {}, {"amount": 5000}),
    "a condition on a default of all of": (
        {
            "type": "object",
            "allOf": [{"properties": {"kind": {"default": "big"}}}],
            "properties": {"kind": {}},
            **BY_KIND,
        },
        {},
        {"kind": "big", "amount": 5000},
    ),
    "one reference twice": (schema(amount={"allOf": [REFERENCE, REFERENCE]}), {}, {"amount": 5000}),
    "what no other schema knows": (
        {**schema(), "unevaluatedProperties": PAYMENT},
        {"x": {}},
        {"x": {}},
    ),
    "another name": (
        {"type": "object", "additionalProperties": PAYMENT},
        {"a": {}, "b": {"amount": 1}},
        {"a": {"amount": 5000}, "b": {"amount": 1}},
    ),
}


@each(("described", "given", "filled"), FILLED.values(), ids=FILLED)
def test_a_default_is_filled_in(described: dict[str, Any], given: dict[str, Any], filled: dict[str, Any]) -> None:
    arguments = SchemaArguments("pay", described)
    text = arguments.read(JsonText(canonical(given)))
    assert plain(text) == filled
    assert SchemaArguments("pay", described).read(text) == text, "to fill it in again changes nothing"


UNFIT = {
    "another type": {"type": "number", "default": "5000"},
    "beyond a bound": {"type": "number", "maximum": 100, "default": 5000},
    "beyond a bound beside a reference": {"allOf": [REFERENCE], "maximum": 100},
    "in each branch": {
        "anyOf": [{"type": "number", "default": "a"}, {"type": "string", "default": 1, "maxLength": 0}],
        "maximum": 0,
    },
}


@each("amount", UNFIT.values(), ids=UNFIT)
def test_a_default_that_does_not_fit_needs_a_value(amount: dict[str, Any]) -> None:
    """The server may take it all the same, and nobody would see it."""
    arguments = SchemaArguments("pay", schema(amount=amount))
    with pytest.raises(Unfit, match="amount is missing, and its default does not fit its schema: give a value"):
        arguments.read(JsonText('{"to":"a"}'))
    assert plain(arguments.read(JsonText('{"amount":0,"to":"a"}'))) == {"amount": 0, "to": "a"}
