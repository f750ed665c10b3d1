"""Values to try a type with: what its JSON Schema allows, as far as that can be guessed."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from phronomy.foundation.json_text import JsonDict, JsonValue, canonical, list_of, object_of

_MOST = 24
"""How many samples are tried for one place of a schema."""

_DEEPEST = 8
"""How deep samples are made: types may hold themselves."""

_TEXTS = ("Añ b_Z9 ", "12.50", "a", "A1", "0", "2024-02-29", "0b9a8b4c-8c1e-4a57-9b1d-0c2f3a4b5c6d")
_INTEGERS = (1234567, 1, 0, -5)
_NUMBERS = (1234.56789, 0.25, 1, -5.5)

_FORMATS: dict[str, tuple[JsonValue, ...]] = {
    "date": ("2024-02-29", "2124-02-29"),
    "date-time": ("2024-02-29T12:34:56.789012+02:00", "2124-02-28T12:34:56.789012Z", "2024-02-29T12:34:56.789012"),
    "time": ("12:34:56.789012", "12:34:56.789012Z"),
    "duration": ("P1DT2H3M4.567S",),
    "uri": ("https://example.com/a?b=c", "file:///tmp/a", "ftp://example.com/a", "ws://example.com/a"),
    "multi-host-uri": ("postgres://user:word@example.com:5432/name", "redis://example.com:6379/0"),
    "email": ("a.user@example.com",),
    "name-email": ("A User <a.user@example.com>",),
    "ipv4": ("192.0.2.7",),
    "ipv4network": ("192.0.2.0/24",),
    "ipv4interface": ("192.0.2.7/24",),
    "ipv6": ("2001:db8::7",),
    "ipv6network": ("2001:db8::/32",),
    "ipv6interface": ("2001:db8::7/32",),
    "base64": ("aGVsbG8=", "YUdWc2JHOD0="),
    "base64url": ("aGVsbG8=",),
    "path": ("some/file.txt",),
    "file-path": (sys.executable,),
    "directory-path": ("/",),
    "regex": ("a+b",),
}
_UUIDS = tuple(f"0b9a8b4c-8c1e-{version}a57-9b1d-0c2f3a4b5c6d" for version in (4, 1, 3, 5, 6, 7, 8))


def samples(schema: object, defs: JsonDict, depth: int = 0) -> list[JsonValue]:
    """Values that may fit the schema, at most 24. Whoever asks validates each: what cannot be guessed goes untried."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return []
    found = [*list_of(schema.get("examples"))]
    if "$ref" in schema:
        found += samples(defs.get(str(schema["$ref"]).rpartition("/")[2]), defs, depth + 1)
    elif "const" in schema:
        found.append(schema["const"])
    elif "enum" in schema:
        found += list_of(schema["enum"])
    elif "anyOf" in schema or "oneOf" in schema or "allOf" in schema:
        branches = list_of(schema.get("anyOf") or schema.get("oneOf") or schema["allOf"])
        found += _in_turn([samples(branch, defs, depth + 1) for branch in branches])
    else:
        found += _typed_samples(schema, defs, depth)
    return found[:_MOST]


def _typed_samples(schema: JsonDict, defs: JsonDict, depth: int) -> list[JsonValue]:
    kind = schema.get("type")
    if kind == "string":
        return _text_samples(schema)
    if kind in ("integer", "number"):
        return _number_samples(schema, _INTEGERS if kind == "integer" else _NUMBERS)
    if kind == "array":
        return _array_samples(schema, defs, depth)
    if kind == "object":
        return _object_samples(schema, defs, depth)
    usual: dict[str, list[JsonValue]] = {"boolean": [True, False], "null": [None]}
    return usual.get(str(kind), [None, "a", 7, 0.25, True, ["a", 7], {"a": 7}])


def _text_samples(schema: JsonDict) -> list[JsonValue]:
    if schema.get("contentMediaType") == "application/json":
        return [canonical(value) for value in (7, "a", [7], {"a": 7}, None, 0.25)]
    form = str(schema.get("format", ""))
    if form.startswith("uuid"):
        return list(_UUIDS)
    if form in _FORMATS:
        return list(_FORMATS[form])
    least, most = _count(schema, "minLength") or 0, _count(schema, "maxLength")
    return [(text + text[-1] * (least - len(text)))[:most] for text in _TEXTS]


def _number_samples(schema: JsonDict, usual: tuple[float, ...]) -> list[JsonValue]:
    low, high = _number(schema, "minimum", "exclusiveMinimum"), _number(schema, "maximum", "exclusiveMaximum")
    found: list[JsonValue] = [*usual]
    if low is not None:
        found += [low, low + 1]
    if high is not None:
        found += [high, high - 1]
    if low is not None and high is not None:
        found.append((low + high) / 2)
    if step := _number(schema, "multipleOf"):
        found += [step, -(-(low or 0) // step) * step]
    return found


def _number(schema: JsonDict, *names: str) -> float | None:
    """The number that the schema has under the first of these names that is in it."""
    found = next((schema[name] for name in names if name in schema), None)
    return found if isinstance(found, int | float) else None


def _count(schema: JsonDict, name: str) -> int | None:
    found = schema.get(name)
    return found if isinstance(found, int) else None


def _array_samples(schema: JsonDict, defs: JsonDict, depth: int) -> list[JsonValue]:
    first = [samples(part, defs, depth + 1) for part in list_of(schema.get("prefixItems"))]
    if first:
        return [list(row) for row in _rows(first)]
    items = samples(schema.get("items", {}), defs, depth + 1)
    least, most = max(1, _count(schema, "minItems") or 1), _count(schema, "maxItems")
    rows: list[JsonValue] = (
        [[item] * least for item in items] if not schema.get("uniqueItems") else [[item] for item in items]
    )
    return [items[:most], *rows, []]


def _object_samples(schema: JsonDict, defs: JsonDict, depth: int) -> list[JsonValue]:
    named = object_of(schema.get("properties"))
    parts = {name: samples(part, defs, depth + 1) for name, part in named.items()}
    needed = [str(name) for name in list_of(schema.get("required"))]
    if any(not parts.get(name) for name in needed):
        return []
    known = {name: part for name, part in parts.items() if part}
    found: list[JsonValue] = [dict(zip(known, row, strict=True)) for row in _rows(list(known.values()))]
    if named:
        return [*found, {name: parts[name][0] for name in needed}]
    inner = samples(schema.get("additionalProperties", {}), defs, depth + 1) or [7]
    keys = samples(schema["propertyNames"], defs, depth + 1) if "propertyNames" in schema else []
    return [{str(key): inner[place % len(inner)]} for place, key in enumerate([*keys, *_TEXTS[1:], *_TEXTS[:1]])]


def _rows(columns: list[list[JsonValue]]) -> Iterator[list[JsonValue]]:
    """Rows in which every value of every column stands at least once; none if a column is empty."""
    for place in range(max((len(column) for column in columns), default=0) if all(columns) else 0):
        yield [column[place % len(column)] for column in columns]


def _in_turn(columns: list[list[JsonValue]]) -> list[JsonValue]:
    """The first of each, the second of each, and so on."""
    longest = max(map(len, columns), default=0)
    return [column[place] for place in range(longest) for column in columns if place < len(column)]
