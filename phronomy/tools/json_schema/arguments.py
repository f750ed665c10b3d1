"""Arguments as a JSON Schema from elsewhere describes them: validated, filled up with its defaults, never coerced, nothing fetched."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from jsonschema import SchemaError, ValidationError

from phronomy.errors import ToolDefinitionError
from phronomy.foundation.json_text import (
    MAX_DEPTH,
    JsonError,
    JsonText,
    JsonValue,
    canonical,
    list_of,
    object_of,
    plain,
    plain_object,
)
from phronomy.tools.arguments import Arguments, Unfit, refuse_dunder_keys
from phronomy.tools.json_schema.bounded import BoundedSchema, Unusable, budget, spend

_MOST: Final = 5
"""How many faults the model is told of at once."""


class Misfit(Unfit):
    """The arguments do not fit the schema. `faults` are where, by what keyword, and what is wanted, without values of theirs."""

    def __init__(self, faults: list[tuple[tuple[str, ...], str, str]]) -> None:
        super().__init__("they do not fit the schema")
        self.faults = faults

    def told(self, hidden: frozenset[str]) -> str:
        """As that of `Unfit`."""
        lines = [
            f"{path[0]}: not valid ({keyword})"
            if path and path[0] in hidden
            else f"{'.'.join(path) or 'they'}: {wanted}"
            for path, keyword, wanted in self.faults
        ]
        return "; ".join(dict.fromkeys(lines))


class SchemaArguments(Arguments):
    """The arguments of a tool whose JSON Schema is given. Raises `ToolDefinitionError` for one that cannot be used."""

    come_from_elsewhere = True

    def __init__(self, owner: str, schema: object) -> None:
        try:
            self._bounded = BoundedSchema(schema)
            self.schema: JsonText = self._bounded.text
            self._root = self._bounded.root
            if self._root.get("type") != "object":
                raise Unusable("it describes no object")
            with budget("", of="schema"):
                self._filled({}, self._root, 1)
        except SchemaError as error:
            where = ".".join(str(part)[:80] for part in error.absolute_path) or "it"
            raise _refused(owner, f"{where} does not fit {error.validator!r}") from None
        except (Unusable, JsonError, Unfit) as error:
            raise _refused(owner, str(error)) from None
        except Exception as error:
            raise _refused(owner, type(error).__name__) from None
        self.names: tuple[str, ...] = tuple(object_of(self._root.get("properties")))
        self._read: str | None = None

    def read(self, given: JsonText) -> JsonText:
        """The canonical text of the arguments, with defaults filled in. Raises `Unfit`."""
        refuse_dunder_keys(given)
        if given == self._read:  # it is read again at every step that a call takes
            return given
        try:
            with budget(given):
                filled = self._filled(plain(given), self._root, 1)
                faults = [_fault(error) for error in islice(self._bounded.errors(filled), _MOST)]
        except Unfit:
            raise
        except Exception as error:  # a schema that passes for one and yet cannot be applied
            raise Unfit(f"the schema of the tool cannot be applied to them ({type(error).__name__})") from None
        if faults:
            raise Misfit(faults)
        self._read = canonical(filled)
        return self._read

    def bind(self, text: str) -> dict[str, object]:
        """The values that canonical text stands for."""
        return {**plain_object(text)}

    def bind_exactly(self, text: str) -> dict[str, object]:
        """As `bind`. Raises `Unfit` where the text is by now read as something else than what was shown."""
        if self.read(JsonText(text)) != text:
            raise Unfit("they are read as something else than before")
        return self.bind(text)

    def write(self, values: Mapping[str, object]) -> JsonText:
        """The canonical text of values."""
        return canonical(values)

    def _filled(self, value: JsonValue, schema: JsonValue, depth: int) -> JsonValue:
        """The value with each default that is missing, as far as properties, items and references within the schema tell them.

        What is filled in is filled up itself, so that to do it again changes nothing.
        """
        spend()
        if depth > MAX_DEPTH:
            raise Unfit(f"with their defaults they are nested deeper than {MAX_DEPTH}")
        if not isinstance(schema, dict):
            return value
        if isinstance(reference := schema.get("$ref"), str):
            value = self._filled(value, self._bounded.at(reference), depth + 1)
        properties, items = schema.get("properties"), schema.get("items")
        if isinstance(value, dict) and isinstance(properties, dict):
            value = dict(value)
            for name, inner in properties.items():
                if name not in value and self._gives_default(inner):
                    value[name] = object_of(inner)["default"]
                if name in value:
                    value[name] = self._filled(value[name], inner, depth + 1)
        elif isinstance(value, list) and isinstance(items, dict) and "prefixItems" not in schema:
            value = [self._filled(each, items, depth + 1) for each in value]
        return value

    def _gives_default(self, schema: JsonValue) -> bool:
        """Whether there is a default that is valid itself: `{"type": "string", "default": null}` only means that it is optional."""
        if not isinstance(schema, dict) or "default" not in schema:
            return False
        fits: bool = self._bounded.validator.evolve(schema=schema).is_valid(schema["default"])
        return fits


def _refused(owner: str, why: str) -> ToolDefinitionError:
    return ToolDefinitionError(f"tool {owner}: the JSON Schema of its parameters cannot be used: {why}")


def _fault(error: ValidationError) -> tuple[tuple[str, ...], str, str]:
    """Where the arguments do not fit, by which keyword, and what of the schema says what is wanted."""
    keyword, wanted = str(error.validator), error.validator_value
    path = tuple(str(part)[:80] for part in error.absolute_path)
    if keyword == "required" and isinstance(error.instance, dict):
        missing = [str(name) for name in list_of(wanted) if name not in error.instance]
        return path, keyword, f"{', '.join(missing)[:200]} is missing"
    if keyword == "type":
        return path, keyword, f"{' or '.join(wanted) if isinstance(wanted, list) else wanted} is wanted"
    if keyword == "additionalProperties" and wanted is False:
        known = ", ".join(object_of(object_of(error.schema).get("properties")))
        return path, keyword, f"there is more than is known: {known[:200] or 'nothing'}"
    if isinstance(wanted, bool | int | float | str) or keyword in ("enum", "const"):
        return path, keyword, f"does not fit {keyword} {wanted!r:.200}"
    return path, keyword, f"does not fit {keyword}"
