"""Patterns of a JSON Schema: no schema and value make a check take for ever, and what is judged is judged as pydantic does."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from phronomy import Agent, Approval, Approve, MemoryStore, Principal, tool
from phronomy.errors import InvalidDecision
from phronomy.foundation.json_text import canonical
from phronomy.inbox import Identity
from phronomy.inbox.service import check_edit
from phronomy.testing import ScriptedModel, call
from phronomy.tools.json_schema import patterns
from phronomy.tools.json_schema.answers import misfit, misfits, validator_of
from phronomy.tools.json_schema.unique import all_different

CATASTROPHIC = [r"^(([a-z])+.)+[A-Z]([a-z])+$", r"^([a-zA-Z0-9]+[-_.]?)+@example\.com$", r"^(a+)+$", r"(a|a)*b"]
LONG = "a" * 20_000 + "!"


@pytest.fixture
def no_backtracking(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Python's engine refuses to search, and what it was asked stands here."""
    asked: list[str] = []

    def search(pattern: Any, *_: object) -> None:
        asked.append(str(pattern))
        raise AssertionError("Python's engine was asked")

    monkeypatch.setattr(re, "search", search)
    return asked


@pytest.mark.parametrize("pattern", CATASTROPHIC)
@pytest.mark.parametrize(
    ("shape", "value"),
    [
        ("value", lambda text: text),
        ("name", lambda text: {text: 1}),
        ("more", lambda text: {text: 1}),
        ("unevaluated", lambda text: {text: 1}),
        ("deeper", lambda text: [text]),
    ],
)
def test_no_pattern_backtracks(no_backtracking: list[str], pattern: str, shape: str, value: Any) -> None:
    schema = {
        "value": {"pattern": pattern},
        "name": {"patternProperties": {pattern: False}},
        "more": {"patternProperties": {pattern: True}, "additionalProperties": False},
        "unevaluated": {"patternProperties": {pattern: True}, "unevaluatedProperties": False},
        "deeper": {"items": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": pattern}},
    }[shape]
    misfit(value(LONG), schema)
    misfits(value(LONG), schema)
    assert no_backtracking == []


def test_an_edit_is_checked_without_python_s_engine(no_backtracking: list[str]) -> None:
    @tool(requires_approval=Approval())
    def mail(to: Annotated[str, Field(pattern=r"^([a-zA-Z0-9]+[-_.]?)+@example\.com$")]) -> str:
        """Mail it."""
        return to

    store = MemoryStore()
    model = ScriptedModel.by_turn([call("mail", {"to": "a@example.com"}), "Done."])
    Agent(name="desk", model=model, tools=[mail], store=store).invoke("go")
    (waiting,) = store.pending()
    item = waiting.approval
    given = {"to": LONG}
    check = asyncio.run(
        check_edit(
            store,
            Identity(principal=Principal(id="rita"), via="test"),
            item.id,
            digest=item.digest,
            text=canonical(given),
        )
    )
    assert [(each.pointer, each.detail) for each in check.errors] == [("/to", "pattern")]
    with pytest.raises(InvalidDecision) as refused:
        store.decide(item.id, Approve(args=given), by="ada", digest=item.digest)
    assert "to does not fit 'pattern'" in str(refused.value)
    assert len(store.pending()) == 1
    assert no_backtracking == []


@pytest.mark.parametrize("pattern", [r"b", r"^b", r"b$", r"^a?b+$", r"^\d{3}$", r"[^a]", "é|\\u00e9", r"^$"])
@pytest.mark.parametrize("text", ["", "b", "ab", "ba", "abb", "b\n", "123", "١٢٣", "é"])
def test_a_pattern_is_judged_as_the_type_judges_it(pattern: str, text: str) -> None:
    type_: TypeAdapter[Any] = TypeAdapter(Annotated[str, Field(pattern=pattern)])
    try:
        type_.validate_python(text)
        fits = True
    except ValidationError:
        fits = False
    assert (misfit(text, type_.json_schema()) is None) is fits


def test_what_pydantic_s_engine_does_not_know_is_left_to_whoever_takes_the_value() -> None:
    """A pattern with a look ahead, and one that is too large."""
    for pattern in (r"^(?!secret).*$", r"(\w{1000}){1000}"):
        assert misfit("secret", {"pattern": pattern}) is None
        assert misfit({"secret": 1}, {"patternProperties": {pattern: False}, "additionalProperties": False}) is None
    assert misfits("x", {"pattern": "("}) == [("", "the schema cannot be read")]


def test_too_much_work_is_left_to_whoever_takes_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MOST_STEPS", 3 * 2 * 10)
    assert patterns.matches_or_unjudged("a" * 6, "b" * 10) is False
    assert patterns.matches_or_unjudged("a" * 6, "b" * 11) is None
    assert patterns.matches_or_unjudged("a{9}", "b" * 2) is None


def test_one_s_own_schema_is_judged_by_python_s_engine_where_pydantic_s_does_not_know_it() -> None:
    schema: Any = {"pattern": r"^(?!secret).*$"}
    assert [wrong.validator for wrong in validator_of(schema).iter_errors("secret")] == ["pattern"]
    assert not list(validator_of(schema).iter_errors("open"))
    assert misfit("secret", schema, judge="python") is not None


def test_keywords_of_objects_and_lists_mean_the_same_as_before() -> None:
    schema = {"properties": {"a": {}}, "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}
    assert misfit({"a": 1, "x1": 2}, schema) is None
    assert misfits({"x1": "2"}, schema)[0][0] == "/x1"
    assert misfits({"b": 1}, schema) == [("", "additionalProperties")]
    assert misfits({"b": 1}, {"additionalProperties": {"type": "string"}}) == [("/b", "type: string is wanted")]


@pytest.mark.parametrize(
    ("values", "differ"),
    [
        ([1, True, "1", None], True),
        ([1, 1.0], False),
        ([[1], [1.0]], False),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ([{"a": 1}, {"a": True}], True),
        ([[], {}, "", 0, False], True),
    ],
)
def test_values_that_are_there_twice(values: Any, differ: bool) -> None:
    assert all_different(values) is differ
    assert (misfit(values, {"uniqueItems": True}) is None) is differ
    assert validator_of({"uniqueItems": True}).is_valid(values) is differ


@pytest.mark.parametrize("schema", [{"patternProperties": {"^a": False}}, {"additionalProperties": False}])
def test_what_is_said_of_members_concerns_objects_alone(schema: dict[str, Any]) -> None:
    assert misfits(5, schema) == []
    assert misfits({"a": 1}, schema) != []
