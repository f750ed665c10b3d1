"""Forms from a JSON Schema: what nobody touches comes back byte for byte, and what is changed changes that alone."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_reader import Element, read

from phronomy.foundation.json_text import canonical, parse
from phronomy.foundation.json_tree import read_tree
from phronomy.inbox.pages.forms import fields
from phronomy.inbox.pages.forms.fields import MOST_CONTROLS, Field, form_of
from phronomy.inbox.pages.forms.filled import Filled, moved, read_form, refilled
from phronomy.inbox.pages.view import environment
from phronomy.inbox.visit import Form


def drawn(field: Field) -> Element:
    """The form as a browser has it."""
    template = environment().from_string('{% from "fields.html" import field %}<form>{{ field(it) }}</form>')
    return read(template.render(it=field)).one("form")


def sent(values: dict[str, str]) -> Form:
    """The values on their way through a browser and the server."""
    return Form(parse_qsl(urlencode(values), keep_blank_values=True, max_num_fields=200))


def filled(schema: Any, text: str | None, **changes: str | None) -> Filled:
    """What a form comes to once these fields are changed; `f_` stands for the pointer's `f/`."""
    field = form_of(schema, read_tree(text) if text is not None else None)
    return read_form(field, sent(drawn(field).filled(**{_pointer(name): value for name, value in changes.items()})))


def _pointer(name: str) -> str:
    return name.replace("__", "/")


# Schemas of the closed set, and of what lies beyond it, with values that fit them, and some that do not

keys = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
texts = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(
    ["\n", "\r\n", " a ", "\n\nb", "\x00", "</textarea>", "\u202e", "\t"]
)
integers = st.integers() | st.just(10**18 + 7)
numbers = st.floats(allow_nan=False, allow_infinity=False) | integers | st.just(5.0)
scalars: Any = st.one_of(
    st.tuples(st.just({"type": "string"}), texts),
    st.tuples(st.just({"type": "integer", "minimum": 0}), integers),
    st.tuples(st.just({"type": "number"}), numbers),
    st.tuples(st.just({"type": "boolean"}), st.booleans()),
    st.tuples(st.just({"type": "null"}), st.none()),
    st.tuples(st.just({"enum": ["a", "b", 3, None, ""]}), st.sampled_from(["a", "b", 3, None, "", "gone"])),
    st.tuples(st.just({"anyOf": [{"type": "string"}, {"type": "null"}]}), texts | st.none()),
    st.tuples(st.just({"type": ["integer", "null"]}), integers | st.none()),
    st.tuples(st.just({"anyOf": [{"type": "integer"}, {"type": "string"}]}), integers | texts),
    st.tuples(st.just({}), texts | numbers | st.none()),
    st.tuples(st.just({"type": "string"}), numbers),
    st.tuples(st.just({"$ref": "#/$defs/none"}), texts),
)


def lists(inside: Any) -> Any:
    return inside.flatmap(
        lambda pair: st.lists(st.just(pair[1]), max_size=3).map(
            lambda values: ({"type": "array", "items": pair[0]}, values)
        )
    )


def objects(inside: Any) -> Any:
    return st.dictionaries(keys, inside, max_size=4).flatmap(
        lambda members: st.sets(st.sampled_from(sorted(members)) if members else st.nothing()).map(
            lambda needed: (
                {
                    "type": "object",
                    "properties": {key: pair[0] for key, pair in members.items()},
                    "required": sorted(needed),
                },
                {key: pair[1] for key, pair in members.items()},
            )
        )
    )


cases = objects(st.recursive(scalars, lambda inside: lists(inside) | objects(inside), max_leaves=8))


@given(cases)
def test_a_form_that_nobody_touches_gives_the_same_text(case: tuple[dict[str, Any], Any]) -> None:
    schema, value = case
    text = canonical(value)
    assert filled(schema, text) == Filled(text, {})


@given(cases, st.data())
def test_a_changed_field_changes_that_alone(case: tuple[dict[str, Any], Any], data: st.DataObject) -> None:
    schema, value = case
    text = canonical(value)
    field = form_of(schema, read_tree(text))
    leaves = [
        each for each in field.all() if each.kind in ("line", "lines", "number", "integer") and each.node is not None
        and not each.is_null
    ]  # fmt: skip
    if not leaves:
        return
    one = data.draw(st.sampled_from(leaves))
    new: Any = data.draw(
        st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=9)
        if one.kind in ("line", "lines")
        else st.integers(-(10**20), 10**20)
    )
    found = read_form(field, sent(drawn(field).filled(**{one.name: str(new)})))
    expected = parse(text)
    at: Any = expected
    parts = [part.replace("~1", "/").replace("~0", "~") for part in one.pointer.split("/")[1:]]
    for part in parts[:-1]:
        at = at[int(part) if isinstance(at, list) else part]
    at[int(parts[-1]) if isinstance(at, list) else parts[-1]] = new
    assert found == Filled(canonical(expected), {})


# One by one

ORDER = {
    "type": "object",
    "properties": {
        "order": {"type": "integer"},
        "amount": {"type": "number", "minimum": 0},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "For the customer"},
        "fast": {"type": "boolean"},
        "to": {"enum": ["card", "bank"]},
        "lines": {"type": "array", "items": {"type": "string"}},
        "rest": {"anyOf": [{"type": "integer"}, {"type": "object"}]},
    },
    "required": ["order", "amount"],
}
TEXT = '{"order":1234567890123456789,"amount":5.0,"note":null,"fast":true,"to":"card","lines":["a","b"],"rest":"x"}'


@pytest.mark.parametrize(
    ("field", "typed", "old", "new"),
    [
        ("f__order", "1234567890123456790", "1234567890123456789", "1234567890123456790"),
        ("f__amount", "5", "5.0", "5"),
        ("f__amount", " 49.90 ", "5.0", "49.9"),
        ("f__fast", "1", "true", "false"),
        ("f__fast", "0", "", ""),
        ("f__to", "1", '"card"', '"bank"'),
        ("f__lines__0", "", '["a"', '[""'),
        ("f__lines__0", "x\r\ny", '["a"', '["x\\ny"'),
        ("f__lines__-", "c", '"b"]', '"b","c"]'),
        ("x__lines__0", "1", '["a","b"]', '["b"]'),
        ("f__rest", "7", '"rest":"x"', '"rest":7'),
        ("f__rest", '{"a": [1.0]}', '"rest":"x"', '"rest":{"a":[1.0]}'),
        ("f__rest", "", ',"rest":"x"', ""),
    ],
)
def test_what_is_typed_stands_in_the_text(field: str, typed: str, old: str, new: str) -> None:
    assert filled(ORDER, TEXT, **{field: typed}) == Filled(TEXT.replace(old, new) if old else TEXT, {})


def test_no_value_can_be_taken_back_and_given() -> None:
    assert filled(ORDER, TEXT, n__note=None).text == TEXT.replace('"note":null', '"note":""')
    assert filled(ORDER, TEXT, n__note=None, f__note="Sorry").text == TEXT.replace('"note":null', '"note":"Sorry"')
    sorry = TEXT.replace('"note":null', '"note":"Sorry"')
    assert filled(ORDER, sorry, n__note="1").text == TEXT


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("f__order", "12,5", "Write a whole number"),
        ("f__order", "12.0", "Write a whole number"),
        ("f__order", "", "A number is needed"),
        ("f__amount", "49,90", "with a point"),
        ("f__amount", "NaN", "with a point"),
        ("f__amount", "true", "with a point"),
        ("f__amount", "1e999", "with a point"),
        ("f__note", "Sorry", "No value"),
        ("f__to", "9", "Choose one"),
        ("f__rest", "{", "no JSON"),
        ("f__rest", '{"a":1,"a":2}', "no JSON"),
    ],
)
def test_what_is_no_value_is_told_at_its_field_and_kept(field: str, typed: str, said: str) -> None:
    name = _pointer(field)
    form = form_of(ORDER, read_tree(TEXT))
    given_back = sent(drawn(form).filled(**{name: typed}))
    found = read_form(form, given_back)
    assert [*found.errors] == [name[1:]] and said in found.errors[name[1:]]
    again = drawn(refilled(form, given_back, found.errors))
    assert again.filled()[name] == (typed if field != "f__to" else "")  # no browser offers it
    wrong = again.one(class_="wrong")
    assert said in wrong.text and wrong.all(name=name)[0].attributes["aria-invalid"] == "true"


@pytest.mark.parametrize(
    ("schema", "typed", "text"),
    [
        ({"type": "boolean"}, "0", "true"),
        ({"enum": ["yes", "later"]}, "1", '"later"'),
        ({"type": "string"}, "Tuesday", '"Tuesday"'),
        ({"type": "integer"}, "12", "12"),
        (None, '{"a": 1}', '{"a":1}'),
    ],
)
def test_an_answer_to_a_question_begins_with_nothing(schema: Any, typed: str, text: str) -> None:
    assert filled(schema, None, f=typed) == Filled(text, {})
    assert filled(schema, None).errors


def test_what_is_absent_stays_absent_until_it_is_given() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "object", "properties": {"c": {"type": "integer"}}}},
    }
    assert filled(schema, "{}").text == "{}"
    assert filled(schema, "{}", f__b__c="3").text == '{"b":{"c":3}}'
    assert filled(schema, "{}", f__a="x").text == '{"a":"x"}'


def test_too_many_fields_and_too_deep_ones_are_json() -> None:
    many = {str(place): place for place in range(MOST_CONTROLS + 1)}
    schema = {"type": "object", "properties": {key: {"type": "integer"} for key in many}}
    assert form_of(schema, read_tree(json.dumps(many))).kind == "raw"
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(5):
        deep = {"type": "object", "properties": {"a": deep}}
    text = '{"a":{"a":{"a":{"a":{"a":1}}}}}'
    kinds = [each.kind for each in form_of(deep, read_tree(text)).all()]
    assert kinds == ["object", "object", "object", "raw"]
    assert filled(deep, text, **{"f__a__a__a": '{"a":{"a":2}}'}).text == text.replace("1", "2")


def test_a_reference_that_leads_round_ends_in_json() -> None:
    schema = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}}
    assert [each.kind for each in form_of(schema, read_tree('{"n":{}}')).all()] == ["object", "object", "object", "raw"]
    assert form_of({"$ref": "#"}, None).kind == "raw"
    whole = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"$ref": "#"}}}
    drawn = sorted(each.pointer for each in form_of(whole, read_tree('{"n":{"name":"a"}}')).all())
    assert drawn == ["", "/n", "/n/n", "/n/n/n", "/n/n/name", "/n/name", "/name"]


def test_a_short_schema_that_would_draw_millions_of_fields_is_stopped_on_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"p{place}" for place in range(80)]
    node = {"type": "object", "properties": {name: {"$ref": "#/$defs/n"} for name in names}}
    again = {"$ref": "#/$defs/n", "$defs": {"n": node}}
    drawn: list[str] = []
    field = fields._field
    monkeypatch.setattr(fields, "_field", lambda *parts: drawn.append(parts[3]) or field(*parts))
    assert form_of(again, read_tree("{}")).kind == "raw"
    assert len(drawn) <= MOST_CONTROLS + 1
    drawn.clear()
    lists = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}
    assert form_of(lists, read_tree(json.dumps([[[]] * 80] * 80))).kind == "raw"
    assert len(drawn) <= MOST_CONTROLS + 1


@pytest.mark.parametrize(
    "repeated",
    [{"description": "x" * 2_000}, {"enum": ["x" * 50] * 50}, {"enum": list(range(2_000))}],
)
def test_a_text_that_a_schema_repeats_does_not_fill_the_page(repeated: dict[str, Any]) -> None:
    schema = {
        "type": "object",
        "properties": {str(place): {"$ref": "#/$defs/a"} for place in range(80)},
        "$defs": {"a": {"type": "string", **repeated}},
    }
    form = form_of(schema, read_tree("{}"))
    assert form.kind == "raw"
    schema["properties"] = {"a": {"$ref": "#/$defs/a"}}
    assert form_of(schema, read_tree("{}")).kind == "object"


def test_a_reference_that_leads_round_with_names_that_are_not_there_is_json() -> None:
    assert form_of({"$ref": "#/" + "a/" * 1_000}, None).kind == "raw"


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        (TEXT.replace('"note":null', '"note":"Sorry"').replace('"card"', '"bank"').replace("5.0", "7"), True),
        (TEXT.replace('"a","b"', '"b"'), False),
        (TEXT.replace('"card"', '"gold"'), False),
        (TEXT[:-1] + ',"more":1}', False),
    ],
)
def test_a_form_takes_the_values_of_another_text_if_it_has_the_same_fields(text: str, fits: bool) -> None:
    field = form_of(ORDER, read_tree(TEXT))
    found = moved(field, form_of(ORDER, read_tree(text)))
    assert (found is not None) is fits
    if found is not None:
        assert read_form(field, sent(drawn(found).filled())).text == text
