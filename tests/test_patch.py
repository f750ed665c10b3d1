"""The difference of two JSON texts: lean, exact to the byte, and refused where it is damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phronomy.foundation import json_text
from phronomy.foundation.json_text import JsonError, JsonText, canonical, parse
from phronomy.stores.log.text_patch import ObjectText, grow, patch, patched

keys = st.sampled_from(["a", "b", "log", 'q"\\', "é", "😀", ""]) | st.text(max_size=3)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from([1, 12, 1.5, "1", "12", "\n", '"', "\\"]),
    lambda some: st.lists(some, max_size=4) | st.dictionaries(keys, some, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(keys, values, max_size=5)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two values of which the second is the first, changed here and there; or any two."""
    old = draw(objects)
    new = {key: old[key] for key in draw(st.permutations(list(old)))} if draw(st.booleans()) else dict(old)
    for key in draw(st.lists(st.sampled_from([*old, "more", "b"]), max_size=4)):
        value = new.get(key)
        if isinstance(value, list) and draw(st.booleans()):
            new[key] = [*value, *draw(st.lists(values, max_size=3))]
        elif isinstance(value, dict) and draw(st.booleans()):
            new[key] = {**value, **draw(objects)}
        elif isinstance(value, str) and draw(st.booleans()):
            new[key] = value + draw(st.text(max_size=3))
        elif draw(st.booleans()):
            new.pop(key, None)
        else:
            new[key] = draw(values)
    return draw(st.sampled_from([(old, new), (new, old), (old, draw(values)), (draw(values), new)]))


@given(pairs(), st.booleans())
def test_a_patched_text_is_the_new_text(pair: tuple[Any, Any], known: bool) -> None:
    old, new = map(canonical, pair)
    if known:
        old, new = (ObjectText.read(text) if text[:1] == "{" else text for text in (old, new))
    difference = patch(old, new)
    assert patched(old, difference) == new
    assert canonical(parse(difference)) == difference
    assert len(difference) <= len(new) + 60
    # What was made of parts is what would be made of the whole.
    assert patched(canonical(pair[0]), JsonText(str(difference))) == new


@given(pairs(), st.data())
def test_a_damaged_patch_is_refused_or_gives_json_of_the_same_kind(pair: tuple[Any, Any], data: st.DataObject) -> None:
    old, new = map(canonical, pair)
    text = patch(old, new)
    place = data.draw(st.integers(0, len(text) - 1))
    put = data.draw(st.sampled_from(["", " ", ",", '"', "{", "]", "}", "0", ":", "a", "\\", "NaN", "é", "\ud800"]))
    damaged = text[:place] + put + text[place + data.draw(st.integers(0, 3)) :]
    try:
        found = patched(old, JsonText(damaged))
    except JsonError:
        return
    assert canonical(parse(found)) == found


@given(objects)
def test_the_members_of_an_object_are_found_and_put_together(value: dict[str, Any]) -> None:
    text = ObjectText.read(canonical(value))
    assert text == canonical(value)
    assert {key: json.loads(part) for key, part in text.members.items()} == value
    assert ObjectText.of(text.members) == text
    assert ObjectText.read(text) is text


def test_a_patch_says_only_what_is_new() -> None:
    old = {
        "log": ["a", "b"],
        "by": {"a": 1},
        "said": "Hel",
        "n": 1,
        "gone": [1],
        "same": {"big": ["so"] * 50},
        "last": 0,
    }
    new = {
        "last": 0,
        "log": ["a", "b", "c"],
        "by": {"a": 1, "b": 2},
        "said": "Hello",
        "n": 12,
        "same": old["same"],
        "x": None,
    }
    difference = patch(canonical(old), canonical(new))
    assert json.loads(difference) == {
        "set": {"n": 12, "x": None},
        "add": {"log": ["c"], "by": {"b": 2}, "said": "lo"},
        "drop": ["gone"],
        "order": ["last", "log", "by", "said", "n", "same", "x"],
    }
    assert patch(canonical(old), canonical(old)) == "{}"
    assert patched(canonical(old), JsonText("{}")) == canonical(old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([1], [12]),  # a longer number is another number
        ([1], [1.5]),
        ([1], [[1], 2]),
        ({"a": 1}, {"a": 12}),
        ([1, 2], [1]),
        ("ab", "aXb"),
        (1, 12),
        (None, []),
        ([], {}),
    ],
)
def test_what_did_not_just_grow_is_set(old: Any, new: Any) -> None:
    rest = {"rest": "of the state, which stays as it was"}
    difference = patch(canonical({"k": old, **rest}), canonical({"k": new, **rest}))
    assert json.loads(difference) == {"set": {"k": new}}


@pytest.mark.parametrize(("old", "new"), [([], [1]), ({}, {"a": 1}), ("", "a"), ("\\", "\\n"), ([[]], [[], 1])])
def test_what_grew_from_nothing_grew(old: Any, new: Any) -> None:
    rest = {"rest": "of the state, which stays as it was"}
    difference = patch(canonical({"k": old, **rest}), canonical({"k": new, **rest}))
    assert list(json.loads(difference)) == ["add"]
    assert patched(canonical({"k": old, **rest}), difference) == canonical({"k": new, **rest})


def test_what_is_no_object_is_written_whole() -> None:
    for old, new in (([1], [1, 2]), ({}, None), (None, {"a": 1}), ({"a": 1}, {"b": 1})):
        assert json.loads(patch(canonical(old), canonical(new))) == {"whole": new}


OLD = '{"a":[1],"m":{"x":1,"y":{"z":2}},"s":"t","n":1}'


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        ("", "not an object"),
        ("[]", "not an object"),
        ('{"whole":1,"set":{}}', "has the parts"),
        ('{"sets":{}}', "has the parts"),
        ('{"add":{"a":[2]},"set":{"n":2}}', "has the parts"),
        ('{"set":{},"set":{}}', "canonical"),
        ('{"set": {}}', "not JSON"),
        ('{"set":{"n": 2}}', "canonical"),
        ('{"set":{"n":1.50}}', "canonical"),
        ('{"set":{"n":NaN}}', "NaN"),
        ('{"set":{"n":2,"n":3}}', "stands twice"),
        ('{"set":{"n":2},}', "canonical"),
        ('{"set":{"n":2},"drop"}', "not JSON"),
        ('{"set":{"n":2}', "not JSON"),
        ('{"set":[1]}', "not an object"),
        ('{"add":{"a":{"b":1}}}', "of its kind"),
        ('{"add":{"n":1}}', "of its kind"),
        ('{"add":{"m":{"x":2}}}', "there already"),
        ('{"add":{"b":[2]}}', "not there"),
        ('{"drop":["b"]}', "not there"),
        ('{"drop":["a","a"]}', "each once"),
        ('{"drop":"a"}', "each once"),
        ('{"drop":[["a"]]}', "each once"),
        ('{"set":{"a":1},"add":{"a":[2]}}', "two things"),
        ('{"set":{"a":1},"drop":["a"]}', "two things"),
        ('{"order":["a","m","s"]}', "the order"),
        ('{"order":["a","m","s","n","b"]}', "the order"),
    ],
)
def test_a_patch_that_makes_no_sense_is_refused(damaged: str, why: str) -> None:
    with pytest.raises(JsonError, match=why):
        patched(JsonText(OLD), JsonText(damaged))


def test_a_patch_of_another_text_is_refused() -> None:
    with pytest.raises(JsonError, match="not an object"):
        patched(JsonText("[1]"), JsonText('{"set":{"a":1}}'))
    with pytest.raises(JsonError, match="not JSON"):
        patched(JsonText('{"a": 1}'), JsonText('{"set":{"a":1}}'))


def test_a_key_that_stands_deeper_may_be_added() -> None:
    assert json.loads(patched(JsonText(OLD), JsonText('{"add":{"m":{"z":3}}}')))["m"] == {"x": 1, "y": {"z": 2}, "z": 3}


def test_a_text_grows_by_another_of_its_kind() -> None:
    for one, other, both in (
        ("[1]", "[2]", "[1,2]"),
        ("[]", "[2]", "[2]"),
        ("[1]", "[]", "[1]"),
        ('"a"', '"b"', '"ab"'),
    ):
        assert grow(JsonText(one), JsonText(other)) == both


def test_the_limit_of_size_holds_for_what_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    old = canonical({"log": ["x" * 400]})
    difference = patch(old, canonical({"log": ["x" * 400, "y" * 200]}))
    monkeypatch.setattr(json_text, "MAX_BYTES", 500)
    with pytest.raises(JsonError, match="over the limit"):
        patched(old, difference)
    monkeypatch.setattr(json_text, "MAX_BYTES", len(old))
    assert patched(canonical({}), patch(canonical({}), old)) == old  # a whole is a little longer than what it holds


def test_a_state_as_deep_as_is_allowed_can_be_patched() -> None:
    deep: Any = 1
    for _ in range(json_text.MAX_DEPTH - 1):
        deep = [deep]
    old, new = canonical({"a": 1, "b": 1}), canonical({"a": deep, "b": 1})
    assert patched(old, patch(old, new)) == new
    assert patched(new, patch(new, old)) == old
