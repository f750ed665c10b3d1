"""The JSON Schema of an answer as the Messages API takes it. Pure.

The API refuses most keywords that limit a value, and objects that may have other members. So what it does not take is told to the model
in the description instead; the answer is judged by the whole type all the same, when it comes. A mapping with names of its own
(`dict[str, int]`) cannot be said in such a schema: it goes as it is, and the API refuses it.

What it takes: https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations.
"""

from __future__ import annotations

from typing import Final

from phronomy.foundation.json_text import JsonDict, JsonValue, list_of, object_of
from phronomy.models.formats.chat_completions import wire_json

_TAKEN: Final = frozenset(
    ("$ref", "additionalProperties", "const", "default", "description", "enum", "required", "title", "type")
)
_FORMATS: Final = frozenset(
    ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid")
)
_NAMED: Final = ("$defs", "properties")
_SEVERAL: Final = {"allOf": "allOf", "anyOf": "anyOf", "oneOf": "anyOf"}


def answer_schema(schema: JsonDict) -> JsonDict:
    """The schema with the keywords that the API takes. It says of each object that it has no other members."""
    found: JsonDict = {}
    told: JsonDict = {}
    for key, value in schema.items():
        if key in _NAMED:
            found[key] = {name: _of(inner) for name, inner in object_of(value).items()}
        elif key in _SEVERAL:
            found[_SEVERAL[key]] = [_of(inner) for inner in list_of(value)]
        elif key == "items":
            found[key] = _of(value)
        elif key in _TAKEN or (key == "format" and value in _FORMATS) or (key == "minItems" and value in (0, 1)):
            found[key] = value
        elif key != "discriminator":
            told[key] = value
    if found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    if told and "$ref" not in found:
        words = (str(found["description"]), wire_json(told)) if "description" in found else (wire_json(told),)
        found["description"] = " ".join(words)
    return found


def _of(value: JsonValue) -> JsonValue:
    return answer_schema(value) if isinstance(value, dict) else value
