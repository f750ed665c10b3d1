"""Structured output: the answer of a run as a value of a type, and not as text."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from phronomy._json import JsonError, JsonText, JsonValue, canonical, parse, plain
from phronomy._schema import brief
from phronomy.errors import ConfigurationError

OutputMode: TypeAlias = Literal["schema", "prompt"]
"""How the model is told of the type: by `response_format` with a JSON Schema, or by a paragraph after the instructions."""

_FENCED = re.compile(r"```(?:json)?\s*\n(.*)\n\s*```", re.DOTALL | re.IGNORECASE)
_WRAPPED = "answer"


class InvalidOutput(ValueError):
    """The text is not of the type. The message is for the model."""


class OutputType:
    """A type that answers are read as: a pydantic model, a dataclass, a TypedDict, a union of them, or a plain type.

    A type whose JSON is no object is asked for as `{"answer": ...}`, since providers take only objects. Raises
    `ConfigurationError` for a type of which pydantic makes no JSON Schema.
    """

    def __init__(self, hint: Any) -> None:
        self.hint = hint
        try:
            self._adapter: TypeAdapter[Any] = _adapter(hint)
            schema = self._adapter.json_schema()
        except Exception as error:  # pydantic raises many kinds here
            raise ConfigurationError(
                f"output_type {hint!r:.100} cannot be described to a model ({brief(error)}): use pydantic models,"
                " dataclasses, typed dicts, plain types, or unions of them"
            ) from error
        self.wrapped = schema.get("type") != "object"
        if self.wrapped:
            definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
            schema = {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED], **definitions}
        self._schema = canonical(schema)

    def __repr__(self) -> str:
        return f"OutputType({self.hint!r:.100})"

    @property
    def schema(self) -> dict[str, JsonValue]:
        """The JSON Schema of what is asked for, as a fresh copy."""
        schema: dict[str, JsonValue] = plain(self._schema)
        return schema

    @cached_property
    def name(self) -> str:
        """A name for the schema, in the letters that providers allow."""
        return re.sub(r"[^a-zA-Z0-9_-]", "_", getattr(self.hint, "__name__", None) or "answer")[:64]

    def request_format(self) -> dict[str, JsonValue]:
        """What asks a chat-completions model for it, as `response_format`."""
        return {"type": "json_schema", "json_schema": {"name": self.name, "schema": self.schema}}

    def paragraph(self) -> str:
        """What asks any model for it, after its instructions."""
        return (
            "Give your final answer as JSON alone, with no text around it, that is valid by this JSON Schema:\n"
            f"{self._schema}"
        )

    def read(self, text: str) -> JsonText:
        """The canonical JSON of the answer in a text. Raises `InvalidOutput`, whose message holds no value of the answer."""
        fenced = _FENCED.fullmatch(text.strip())
        try:
            value = parse(fenced.group(1) if fenced else text)
            if self.wrapped:
                if not isinstance(value, dict) or list(value) != [_WRAPPED]:
                    raise InvalidOutput(f"it must be an object with the one key {_WRAPPED!r}")
                value = value[_WRAPPED]
            written = self._write(self._adapter.validate_json(canonical(value)))
            if self._write(self._adapter.validate_json(written)) != written:
                raise InvalidOutput("it changes when it is written as JSON and read back")
        except JsonError as error:
            raise InvalidOutput(f"it is not JSON: {error}") from None
        except ValidationError as error:
            raise InvalidOutput(_explained(error)) from None
        except InvalidOutput:
            raise
        except Exception as error:  # a validator of the user's that broke
            raise InvalidOutput(f"it could not be read ({type(error).__name__})") from None
        return written

    def value(self, text: str) -> Any:
        """The Python value of canonical JSON that `read` gave. Raises `InvalidOutput` if the type has changed since."""
        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            raise InvalidOutput(_explained(error)) from None

    def _write(self, value: Any) -> JsonText:
        return canonical(json.loads(self._adapter.dump_json(value, by_alias=True, round_trip=True, warnings=False)))


def _adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint, config=ConfigDict(hide_input_in_errors=True, ser_json_inf_nan="constants"))
    except PydanticUserError:  # a type with a config of its own takes no other
        return TypeAdapter(hint)


def _explained(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'the answer'}: {item['msg']}" for item in found[:5])


def told(error: InvalidOutput) -> str:
    """What the model reads of an answer that is not of the type."""
    return f"That answer cannot be used: {error}. Answer again, with JSON alone that is valid by the schema."
