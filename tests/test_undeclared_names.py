"""Names of arguments that nobody declared: the model is told, nothing runs, and no gate is passed by them.

A gate looks at the names that it knows. A server may read others: Go's `encoding/json` fills `amount` from `Amount`, and the last one
wins.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import raw_mcp
from drivers import DRIVERS, Driver
from pydantic import BaseModel, ConfigDict
from tables import each
from typing_extensions import TypedDict

from phronomy import (
    Agent,
    Approval,
    Approve,
    ExternalTool,
    InvalidDecision,
    MCPServer,
    MemoryStore,
    Respond,
    interrupt,
    tool,
)
from phronomy.foundation.json_text import canonical
from phronomy.testing import ScriptedModel, call
from phronomy.tools.arguments import Unfit
from phronomy.tools.context import InvalidArguments
from phronomy.tools.json_schema.answers import misfit
from phronomy.tools.json_schema.arguments import SchemaArguments

TEXT = {"type": "string"}


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def told_of(schema: dict[str, Any], args: Any) -> str:
    """The text for the model of arguments that do not fit; "" where they do."""
    try:
        SchemaArguments("t", schema).read(canonical(args))
    except Unfit as error:
        return error.told(frozenset())
    return ""


IF = {
    "if": {"properties": {"a": {"const": "q"}}, "required": ["a"]},
    "then": an_object(b=TEXT),
    "else": an_object(c=TEXT),
}
ONE_OF = {
    "type": "object",
    "oneOf": [
        {**an_object(kind={"const": 1}, x=TEXT), "required": ["kind"]},
        {**an_object(kind={"const": 2}, y=TEXT), "required": ["kind"]},
    ],
}
INNER = an_object(x=TEXT)
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
DRAFT_2019 = {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": True}

REFUSED: dict[str, tuple[Any, Any, str]] = {
    "at the top": (an_object(a=TEXT), {"a": "", "b": 1}, "they: undeclared names b (declared: a)"),
    "no parameters": (an_object(), {"b": 1}, "they: undeclared names b (declared: nothing)"),
    "nested": (an_object(a=INNER), {"a": {"y": 1}}, "a: undeclared names y (declared: x)"),
    "by a reference": (
        {**an_object(a={"$ref": "#/$defs/A"}), "$defs": {"A": INNER}},
        {"a": {"y": 1}},
        "a: undeclared names y (declared: x)",
    ),
    "by an anchor": (
        {**an_object(a={"$ref": "#A"}), "$defs": {"A": {**INNER, "$anchor": "A"}}},
        {"a": {"y": 1}},
        "a: undeclared names y (declared: x)",
    ),
    "by a dynamic reference": (
        an_object(a={"$dynamicRef": "#"}),
        {"a": {"a": {}, "y": 1}},
        "a: undeclared names y (declared: a)",
    ),
    "by a recursive reference": (
        {**DRAFT_2019, **an_object(a={"$recursiveRef": "#"})},
        {"a": {"y": 1}},
        "a: undeclared names y (declared: a)",
    ),
    "allOf": (
        {"type": "object", "allOf": [an_object(a=TEXT), an_object(b=TEXT)]},
        {"a": "", "c": ""},
        "they: undeclared names c (declared: a, b)",
    ),
    "the branch that it is not": (ONE_OF, {"kind": 1, "y": ""}, "they: undeclared names y (declared: kind, x)"),
    "anyOf with null": (
        an_object(a={"anyOf": [INNER, {"type": "null"}]}),
        {"a": {"y": 1}},
        "a: undeclared names y (declared: x)",
    ),
    "then": ({**an_object(a=TEXT), **IF}, {"a": "q", "c": ""}, "they: undeclared names c (declared: a, b)"),
    "else": ({**an_object(a=TEXT), **IF}, {"a": "r", "b": ""}, "they: undeclared names b (declared: a, c)"),
    "a dependent schema that does not apply": (
        {**an_object(a=TEXT), "dependentSchemas": {"a": an_object(b=TEXT)}},
        {"b": ""},
        "they: undeclared names b (declared: a)",
    ),
    "an older draft": (
        {**DRAFT_7, **an_object(a={"$ref": "#/definitions/A"}), "definitions": {"A": INNER}},
        {"a": {"y": 1}},
        "a: undeclared names y (declared: x)",
    ),
    "an item": (
        an_object(a={"type": "array", "items": INNER}),
        {"a": [{"x": ""}, {"X": ""}]},
        "a.1: undeclared names X (declared: x)",
    ),
    "an item by its place": (
        an_object(a={"type": "array", "prefixItems": [INNER], "items": an_object(y=TEXT)}),
        {"a": [{"x": ""}, {"x": ""}]},
        "a.1: undeclared names x (declared: y)",
    ),
    "an item by its place, in an older draft": (
        {**DRAFT_7, **an_object(a={"type": "array", "items": [INNER], "additionalItems": an_object(y=TEXT)})},
        {"a": [{"y": ""}, {"y": ""}]},
        "a.0: undeclared names y (declared: x)",
    ),
    "a member of a map": (
        {"type": "object", "additionalProperties": INNER},
        {"k": {"y": 1}},
        "k: undeclared names y (declared: x)",
    ),
    "a member by a pattern": (
        {**an_object(a=TEXT), "patternProperties": {"^k": INNER}},
        {"k1": {"y": 1}},
        "k1: undeclared names y (declared: x)",
    ),
    "no match of a pattern": (
        {**an_object(a=TEXT), "patternProperties": {"^x-": {}}},
        {"a": "", "x-1": 1, "A_B": 1},
        "they: undeclared names A_B (declared: a)",
    ),
    "no match, and required": (
        {**an_object(a=TEXT), "patternProperties": {"^x-": {}}, "required": ["b"]},
        {"b": 1, "c": 1},
        "they: undeclared names c (declared: a, b)",
    ),
    "patterns alone": (
        {"type": "object", "patternProperties": {"^x-": {}}},
        {"x-1": 1, "b": 1},
        "they: undeclared names b (declared: nothing)",
    ),
    "a pattern of another part": (
        {"type": "object", "allOf": [an_object(a=TEXT), {"patternProperties": {"^x-": {}}}]},
        {"x-1": 1, "b": 1},
        "they: undeclared names b (declared: a)",
    ),
    "a pattern of a branch": (
        {**an_object(a=TEXT), "anyOf": [{"patternProperties": {"^x-": {}}}, {"type": "null"}]},
        {"x-1": 1, "b": 1},
        "they: undeclared names b (declared: a)",
    ),
    "nested, with a pattern": (
        an_object(a={**INNER, "patternProperties": {"^x-": {}}}),
        {"a": {"x-1": 1, "X": 1}},
        "a: undeclared names X (declared: x)",
    ),
    "names that must look so": (
        {**an_object(a=TEXT), "propertyNames": {"pattern": "^[a-z]+$"}},
        {"b": 1},
        "they: undeclared names b (declared: a)",
    ),
    "an item of a list that contains such": (
        an_object(a={"type": "array", "contains": INNER}),
        {"a": [{"x": ""}, {"X": ""}]},
        "a.1: undeclared names X (declared: x)",
    ),
    "an item, beside those that it contains": (
        an_object(a={"type": "array", "items": INNER, "contains": an_object(k={"const": 1})}),
        {"a": [{"x": "", "k": 1}, {"x": "", "y": 1}]},
        "a.1: undeclared names y (declared: x, k)",
    ),
    "an item that is not contained, of a list that contains closed ones": (
        an_object(a={"type": "array", "contains": {**INNER, "required": ["x"], "additionalProperties": False}}),
        {"a": [{"x": ""}, {"X": ""}]},
        "a.1: undeclared names X (declared: x)",
    ),
    "closed by one part": (
        {"type": "object", "allOf": [{**an_object(a=INNER), "unevaluatedProperties": False}]},
        {"a": {"y": 1}},
        "a: undeclared names y (declared: x)",
    ),
    "only in what must not be": (
        {**an_object(a=TEXT), "not": an_object(b={"const": 1})},
        {"b": 2},
        "they: undeclared names b (declared: a)",
    ),
    "said by the schema": (
        {**an_object(a=TEXT), "additionalProperties": False},
        {"b": 1},
        "they: undeclared names b (declared: a)",
    ),
    "more is allowed, but no other case": (
        {**an_object(amount=TEXT), "additionalProperties": True},
        {"Amount": 5, "b": 1},
        "they: undeclared names Amount (declared: amount)",
    ),
    "a pattern, but no other case": (
        {**an_object(amount=TEXT), "patternProperties": {"^[A-Z]": {}}},
        {"AMOUNT": 5, "B": 1},
        "they: undeclared names AMOUNT (declared: amount)",
    ),
    "beside a reference, in an older draft": (
        {
            **DRAFT_7,
            **an_object(a={"$ref": "#/definitions/A", **an_object(y=TEXT), "additionalProperties": True}),
            "definitions": {"A": INNER},
        },
        {"a": {"y": 1}},
        "a: undeclared names y (declared: x)",
    ),
    "by a keyword of a later draft": (
        {**DRAFT_7, **an_object(a=TEXT), "dependentSchemas": {"a": an_object(b=TEXT)}, "unevaluatedProperties": True},
        {"a": "", "b": 1},
        "they: undeclared names b (declared: a)",
    ),
    "by a keyword of an older draft": (
        {**an_object(a=TEXT), "dependencies": {"a": an_object(b=TEXT)}},
        {"a": "", "b": 1},
        "they: undeclared names b (declared: a)",
    ),
}

ACCEPTED: dict[str, tuple[Any, Any]] = {
    "no properties at all": ({"type": "object"}, {"b": 1}),
    "more is allowed": ({**an_object(a=TEXT), "additionalProperties": True}, {"b": 1}),
    "more of a type is allowed": ({**an_object(a=TEXT), "additionalProperties": TEXT}, {"b": ""}),
    "more by unevaluatedProperties": ({**an_object(a=TEXT), "unevaluatedProperties": TEXT}, {"b": ""}),
    "patterns": ({**an_object(a=TEXT), "patternProperties": {"^k": {}}}, {"k1": 1}),
    "patterns alone": ({"type": "object", "patternProperties": {"^k": {}}}, {"k1": 1}),
    "patterns and more": (
        {**an_object(a=TEXT), "patternProperties": {"^k": {}}, "additionalProperties": True},
        {"b": 1},
    ),
    "an item as `items` or `contains` declares it": (
        an_object(a={"type": "array", "items": INNER, "contains": an_object(k={"const": 1})}),
        {"a": [{"x": "", "k": 1}, {"x": ""}, {"k": 2}]},
    ),
    "names of a list": ({"type": "object", "propertyNames": {"enum": ["b"]}}, {"b": 1}),
    "a part of it allows more": (
        {"type": "object", "allOf": [an_object(a=TEXT), {"additionalProperties": True}]},
        {"b": 1},
    ),
    "all of its parts together": (
        {"type": "object", "allOf": [an_object(a=TEXT), an_object(b=TEXT)]},
        {"a": "", "b": ""},
    ),
    "the branch that it is": (ONE_OF, {"kind": 2, "y": ""}),
    "then": ({**an_object(a=TEXT), **IF}, {"a": "q", "b": ""}),
    "a dependent schema": (
        {**an_object(a=TEXT), "dependentSchemas": {"a": an_object(b=TEXT)}},
        {"a": "", "b": ""},
    ),
    "a dependent schema of an older draft": (
        {**DRAFT_7, **an_object(a=TEXT), "dependencies": {"a": an_object(b=TEXT)}},
        {"a": "", "b": ""},
    ),
    "names that must be there together": (
        {**an_object(a=TEXT, b=TEXT), "dependentRequired": {"a": ["b"]}},
        {"a": "", "b": ""},
    ),
    "names that must be there together, in an older draft": (
        {**DRAFT_7, **an_object(a=TEXT, b=TEXT), "dependencies": {"a": ["b"]}},
        {"a": "", "b": ""},
    ),
    "names that must be there together, by a keyword of an older draft": (
        {**an_object(a=TEXT, b=TEXT), "dependencies": {"a": ["b"]}},
        {"a": ""},
    ),
    "required, and not described": ({**an_object(a=TEXT), "required": ["b"]}, {"b": 1}),
    "a free value": (an_object(a={}), {"a": {"b": 1}}),
    "items of any kind": (an_object(a={"type": "array"}), {"a": [{"b": 1}]}),
}

TWINS: dict[str, tuple[Any, Any, str]] = {
    "at the top": ({"type": "object"}, {"a": 1, "A": 2}, "they: names that differ in case alone: a, A"),
    "declared, both of them": (an_object(id={}, ID={}), {"id": 1, "ID": 2}, "they: names that differ in case alone: id, ID"),
    "required alone": ({"type": "object", "required": ["c"]}, {"c": 1, "C": 2}, "they: names that differ in case alone: c, C"),
    "in a free value": (an_object(a={}), {"a": [{"k": 1, "K": 2}]}, "a.0: names that differ in case alone: k, K"),
    "the sign of Kelvin": (an_object(a={}), {"a": {"k": 1, "\u212a": 2}}, "a: names that differ in case alone: k, \u212a"),
    "a long s": (an_object(a={}), {"a": {"sum": 1, "\u017fum": 2}}, "a: names that differ in case alone: sum, \u017fum"),
    "full width": (an_object(a={}), {"a": {"to": 1, "\uff34\uff2f": 2}}, "a: names that differ in case alone: to, \uff34\uff2f"),
    "sharp s": (an_object(a={}), {"a": {"stra\u00dfe": 1, "STRASSE": 2}}, "a: names that differ in case alone: stra\u00dfe, STRASSE"),
}  # fmt: skip


@each(
    ("schema", "args", "why"),
    [*REFUSED.values(), *TWINS.values()],
    ids=[*REFUSED, *(f"twins: {name}" for name in TWINS)],
)
def test_the_model_is_told_the_names_and_those_that_are_declared(schema: Any, args: Any, why: str) -> None:
    assert told_of(schema, args) == why


@each(("schema", "args"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_schema_that_lets_more_in_is_believed(schema: Any, args: Any) -> None:
    assert told_of(schema, args) == ""


@each(("schema", "args", "why"), REFUSED.values(), ids=REFUSED)
def test_an_edit_is_refused_by_the_same_names(schema: Any, args: Any, why: str) -> None:
    told = misfit(args, schema, declared=True)
    assert told is not None and told.endswith(why.partition(": ")[2])


def test_a_result_may_have_more_than_its_schema_declares() -> None:
    assert misfit({"a": "", "b": 1}, an_object(a=TEXT)) is None


@each(("schema", "args"), ACCEPTED.values(), ids=ACCEPTED)
def test_an_edit_is_accepted_with_the_same_names(schema: Any, args: Any) -> None:
    assert misfit(args, schema, declared=True) is None


# The whole of it: a server that reads names as Go does


PAY = raw_mcp.plain("pay", to={"type": "string"}, amount={"type": "number"})
FORGED = {"to": "ACME", "amount": 5, "Amount": 5000, "TO": "MALLORY"}


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    driver: Driver = request.param
    return driver


@pytest.mark.parametrize("gate", ["predicate", "policy", "grant"])
def test_no_gate_is_passed_by_a_name_that_it_does_not_know(driver: Driver, tmp_path: Path, gate: str) -> None:
    store, log = MemoryStore(), tmp_path / "log"
    small = Approval(standing={"small": lambda args: args["amount"] < 50})
    asked: Any = {"predicate": lambda args: args["amount"] > 50, "policy": False, "grant": small}[gate]
    policy: Any = {"pay": lambda args: args["amount"] > 50} if gate == "policy" else {}
    with MCPServer("bank", command=raw_mcp.command(tools=[PAY], log=str(log)), requires_approval=asked) as bank:
        model = ScriptedModel.by_turn([call("pay", FORGED), call("pay", {"to": "ACME", "amount": 5}), "Done."])
        agent = Agent(name="desk", model=model, tools=bank.tools(), store=store, approval_policy=policy)
        result = driver.invoke(agent, "go")
        told = [message for message in result.messages if message.role == "tool"]
        assert told[0].settlement == "invalid"
        assert "undeclared names Amount, TO (declared: to, amount)" in told[0].text
        if gate == "grant":  # without a grant, the small call waits too
            assert [item.args for item in result.checkpoint.pending] == [{"to": "ACME", "amount": 5}]
        else:
            assert [json.loads(line) for line in log.read_text().splitlines()] == [{"to": "ACME", "amount": 5}]


def test_no_gate_is_passed_by_another_case_where_more_names_are_allowed(driver: Driver, tmp_path: Path) -> None:
    log = tmp_path / "log"
    free = {**PAY, "inputSchema": {**PAY["inputSchema"], "required": ["to"], "additionalProperties": True}}
    with MCPServer(
        "bank",
        command=raw_mcp.command(tools=[free], log=str(log)),
        requires_approval=lambda args: args.get("amount", 0) > 50,
    ) as bank:
        model = ScriptedModel([call("pay", {"to": "ACME", "Amount": 5000}), "Done."])
        result = driver.invoke(Agent(name="desk", model=model, tools=bank.tools()), "go")
    [told] = [message for message in result.messages if message.role == "tool"]
    assert (told.settlement, log.exists()) == ("invalid", False)
    assert "undeclared names Amount (declared: to, amount)" in told.text


def test_a_schema_of_the_first_draft_is_told_of() -> None:
    """There, a member itself says that it is required."""
    schema = {"$schema": "http://json-schema.org/draft-03/schema#", **an_object(a={"required": True})}
    assert told_of(schema, {}) == "a: it is missing"
    assert misfit({}, schema, bounded=True) == "a does not fit 'required'"


def test_an_external_tool_declares_its_arguments_too() -> None:
    pick = ExternalTool(name="pick", parameters=an_object(seat=TEXT))
    with pytest.raises(InvalidArguments, match=r"they: undeclared names row \(declared: seat\)"):
        pick.read('{"seat": "4A", "row": 4}')


# Python tools: pydantic reads the names, and classes say themselves whether there may be more


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Plain(BaseModel):
    a: int


class Typed(TypedDict):
    a: int


@dataclass
class Data:
    a: int


def taking(kind: Any) -> Any:
    def take(x: Any) -> str:
        """Take it."""
        return repr(x)

    take.__annotations__["x"] = kind
    return tool(take)


@each(
    ("kind", "args", "read"),
    [
        (Plain, '{"x":{"a":1,"b":2}}', '{"x":{"a":1}}'),  # shown without it, and run without it
        (Typed, '{"x":{"a":1,"b":2}}', "x.b: Extra inputs are not permitted"),
        (Data, '{"x":{"a":1,"b":2}}', "x.b: Unexpected keyword argument"),
        (Open, '{"x":{"a":1,"b":2}}', '{"x":{"a":1,"b":2}}'),
        (Open, '{"x":{"a":1,"A":2}}', "x: names that differ in case alone: a, A"),
        (dict[str, Open], '{"x":{"k":{"a":1,"b":1,"B":2}}}', "x.k: names that differ in case alone: b, B"),
        (dict[str, int], '{"x":{"the":1,"The":2}}', '{"x":{"the":1,"The":2}}'),
    ],
)
def test_a_python_tool_reads_the_names_that_its_types_declare(kind: Any, args: str, read: str) -> None:
    made = taking(kind)
    try:
        told = str(made.read(args))
        assert made.read(told) == told
    except InvalidArguments as error:
        told = str(error).removeprefix("The arguments of take are not valid: ")
    assert told == read


def test_names_below_a_redacted_parameter_are_not_said() -> None:
    @tool(redact=["x"])
    def take(x: Open) -> str:
        """Take it."""
        return ""

    with pytest.raises(InvalidArguments, match=r"not valid: x: not valid \(names\)$"):
        take.read('{"x":{"a":1,"A":2}}')


def test_a_human_declares_no_arguments_either() -> None:
    @tool(requires_approval=True)
    def pay(order: Plain) -> str:
        """Pay."""
        return str(order)

    store = MemoryStore()
    agent = Agent(
        model=ScriptedModel([call("pay", {"order": {"a": 1}}), "Done."]), tools=[pay], store=store, name="desk"
    )
    [item] = agent.invoke("go").checkpoint.pending
    for args, why in (
        (
            {"order": {"a": 1}, "b": 2},
            r"the answer does not fit 'additionalProperties': undeclared names b \(declared: order\)",
        ),
        ({"order": {"a": 1, "b": 2}}, "order does not fit 'additionalProperties'. Nothing was decided"),
    ):
        with pytest.raises(InvalidDecision, match=why):
            store.decide(item.id, Approve(args=args), by="rita", digest=item.digest)
    assert store.pending()[0].approval == item


def test_an_answer_has_the_names_that_were_asked_for() -> None:
    @tool
    def ask() -> str:
        """Ask."""
        return str(interrupt("Which?", answer=Plain))

    store = MemoryStore()
    agent = Agent(model=ScriptedModel([call("ask", {}), "Done."]), tools=[ask], store=store, name="desk")
    [item] = agent.invoke("go").checkpoint.pending
    with pytest.raises(InvalidDecision, match=r"undeclared names b \(declared: a\)"):
        store.decide(item.id, Respond(content={"a": 1, "b": 2}), by="rita", digest=item.digest)
