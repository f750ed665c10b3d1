"""Structured output: the answer of a run as a value of a type, and not as text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from inspect import Signature
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from phronomy.errors import ConfigurationError
from phronomy.foundation.cached_property import cached
from phronomy.foundation.json_text import (
    JsonDict,
    JsonError,
    JsonText,
    JsonValue,
    canonical,
    parse,
    plain,
    plain_object,
)
from phronomy.foundation.quoting import quoted
from phronomy.tools.arguments import Form, Owner, brief
from phronomy.tools.parameters import Parameter

OutputMode: TypeAlias = Literal["schema", "prompt"]
"""How the model is told the output type: by `response_format` with a JSON Schema, or by text after the instructions."""

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
        if isinstance(hint, str | bytes | Mapping | Sequence):  # pydantic would quote it
            raise ConfigurationError(f"output_type is a type: {quoted(hint)} cannot be described to a model")
        try:
            self._adapter: TypeAdapter[object] = _adapter(hint)
            schema = self._adapter.json_schema()
        except Exception as error:  # pydantic raises many kinds here
            raise ConfigurationError(
                f"output_type {quoted(hint)} cannot be described to a model ({brief(error)}): use pydantic models,"
                " dataclasses, typed dicts, plain types, or unions of them"
            ) from error
        self.wrapped: bool = schema.get("type") != "object"
        if self.wrapped:
            definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
            schema = {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED], **definitions}
        self._schema = canonical(schema)

    def check(self, agent: str) -> None:
        """Refuse a type whose values JSON does not hold: the answer of the agent is stored as JSON, and read back.

        Raises `ConfigurationError`.
        """
        if not isinstance(self.hint, type) or not is_kept(self.hint):
            _form(f"agent {agent!r}", self.hint).check()

    def __repr__(self) -> str:
        return f"OutputType({self.hint!r:.100})"

    @property
    def schema(self) -> JsonDict:
        """The JSON Schema of what is asked for, as a fresh copy."""
        return plain_object(self._schema)

    @cached
    def name(self) -> str:
        """A name for the schema, in the letters that providers allow."""
        return re.sub(r"[^a-zA-Z0-9_-]", "_", getattr(self.hint, "__name__", None) or "answer")[:64]

    def value_schema(self, *, by_alias: bool = True) -> JsonDict:
        """The JSON Schema of the value itself."""
        return self._adapter.json_schema(by_alias=by_alias)

    def request_format(self) -> JsonDict:
        """The `response_format` that asks a chat-completions model for the type."""
        return {"type": "json_schema", "json_schema": {"name": self.name, "schema": self.schema}}

    def paragraph(self) -> str:
        """The paragraph that asks any model for the type, after its instructions."""
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
            said = self._adapter.validate_json(canonical(value))
            written = self._write(said)
            back = self._adapter.validate_json(written)
            # Where two readings of one text differ as well, the type has no equality that could tell.
            if self._write(back) != written or (back != said and back == self._adapter.validate_json(written)):
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

    def written(self, value: JsonText) -> JsonText:
        """The text that is read as this value."""
        return canonical({_WRAPPED: plain(value)}) if self.wrapped else value

    def value(self, text: str) -> Any:
        """The Python value of canonical JSON that `read` gave. Raises `InvalidOutput` if the type has changed since."""
        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            raise InvalidOutput(_explained(error)) from None

    def shown(self, stored: JsonText) -> JsonText:
        """The canonical JSON of all that the caller gets by what `read` gave: also of what the type computes.

        Raises `InvalidOutput` if there is none.
        """
        try:
            value = self._adapter.validate_json(stored)
            return canonical(parse(self._adapter.dump_json(value, by_alias=True, warnings=False)))  # no key twice
        except Exception as error:  # a computed field of the user's that broke
            raise InvalidOutput(f"what it computes could not be read ({type(error).__name__})") from None

    def taken(self, given: JsonText, shown: JsonText, stored: JsonText) -> JsonText:
        """The value to read where this was given in the place of what was shown, of which this is stored."""
        return given if shown == stored else canonical(_uncomputed(plain(given), plain(shown), plain(stored)))

    def _write(self, value: object) -> JsonText:
        return canonical(json.loads(self._adapter.dump_json(value, by_alias=True, round_trip=True, warnings=False)))


def _form(owner: str, hint: Any) -> Form:
    parameter = Parameter(_WRAPPED, hint, Signature.empty)
    return Form(Owner(owner, "output_type", ConfigurationError, "be stored"), (parameter,))


@lru_cache(maxsize=256)
def is_kept(hint: type) -> bool:
    """Say whether JSON holds the values of a class. Agents may be made anew for each request, and this takes 5 ms.

    False for a class that is not complete yet, too: then it is checked anew each time.
    """
    try:
        _form("an agent", hint).check()
    except ConfigurationError:
        return False
    return True


def _adapter(hint: Any) -> TypeAdapter[object]:
    try:
        return TypeAdapter(hint, config=ConfigDict(hide_input_in_errors=True, ser_json_inf_nan="constants"))
    except PydanticUserError:  # a type with a config of its own takes no other
        return TypeAdapter(hint)


def _uncomputed(given: JsonValue, shown: JsonValue, stored: JsonValue) -> JsonValue:
    """The given value without the fields that are shown and not stored: the type would refuse them, or keep them as its own."""
    if isinstance(given, dict) and isinstance(shown, dict) and isinstance(stored, dict):
        computed = shown.keys() - stored.keys()
        return {
            key: _uncomputed(value, shown.get(key), stored.get(key))
            for key, value in given.items()
            if key not in computed
        }
    if isinstance(given, list) and isinstance(shown, list) and isinstance(stored, list):
        pairs = list(zip(shown, stored, strict=False)) or [(None, None)]
        pairs += [pairs[-1]] * len(given)  # what was added is most likely as what stands there
        return [_uncomputed(value, *pair) for value, pair in zip(given, pairs, strict=False)]
    if isinstance(stored, str) and stored != shown:  # it is read from JSON in a text
        return canonical(given)
    return given


def is_same(given: JsonValue, read: JsonValue) -> bool:
    """Whether what was read says what was given, and nothing more: an empty default says nothing."""
    if isinstance(given, dict) and isinstance(read, dict):
        added = any(read[key] for key in read.keys() - given.keys())
        return not added and all(is_same(given[key], read[key]) for key in given.keys() & read.keys())
    if isinstance(given, list) and isinstance(read, list):
        return len(given) == len(read) and all(map(is_same, given, read))
    return bool(given == read) or str(given) == str(read)  # a decimal number is a text once it is read


def _explained(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'the answer'}: {item['msg']}" for item in found[:5])


def told(error: InvalidOutput) -> str:
    """The text that the model reads about an answer that is not of the type."""
    return f"That answer cannot be used: {error}. Answer again, with JSON alone that is valid by the schema."
