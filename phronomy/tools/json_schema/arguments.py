"""Arguments as a JSON Schema from elsewhere describes them: validated, filled up with its defaults, never coerced, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from typing import Any, Final

from jsonschema import SchemaError, ValidationError
from referencing.exceptions import Unresolvable

from phronomy.errors import ToolDefinitionError
from phronomy.foundation.json_text import (
    MAX_DEPTH,
    JsonDict,
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
from phronomy.tools.json_schema.applied import (
    always,
    any_of,
    as_read,
    below,
    by_condition,
    for_item,
    for_member,
    one_of,
)
from phronomy.tools.json_schema.bounded import BoundedSchema, Unusable, budget, matches_in_time, spend
from phronomy.tools.json_schema.undeclared import is_of_names, same_but_for_case

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


class _NoDefault(Unfit):
    """A value is missing whose default cannot be filled in."""


_IN_PLACE: Final = ((always, None), (by_condition, None), (any_of, 1), (one_of, 1))
"""The finders of schemas that apply to a value itself, each with how many of them tell its defaults. Each sees those of the others."""

_UNKNOWN: Final = frozenset({"unevaluatedItems", "unevaluatedProperties"})
"""Keywords for what no other schema knows. What that is, is not known before all is filled in."""

_MADE_OF_OTHERS: Final = (dict, list)
"""Nothing is missing in any other value, and most values are others."""


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
            with budget("", of="schema"), suppress(_NoDefault):  # a call may give the value
                self._filled({}, self._bounded.validator, 1)
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
                filled = self._filled(plain(given), self._bounded.validator, 1)
                faults = [_fault(error) for error in islice(self._bounded.errors(filled), _MOST)]
                faults = faults or [_fault(error) for error in islice(self._strange(filled), _MOST)]
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

    def _strange(self, value: JsonValue) -> Iterator[ValidationError]:
        """The names in a valid value that the server may take for others than a gate and a human do."""
        return chain(self._bounded.undeclared(value), same_but_for_case(value))

    def _filled(self, value: JsonValue, validator: Any, depth: int) -> JsonValue:
        """The value with each default that is missing: what a gate and a human see is what the server gets.

        Of branches, it is the first that fits the value. What is filled in is filled up itself, so that to do it again changes
        nothing. Raises `Unfit`.
        """
        _go_deeper(depth)
        if not isinstance(validator.schema, dict):
            return value
        read = as_read(validator)
        if not _UNKNOWN.isdisjoint(read.schema):
            read = read.evolve(schema={name: each for name, each in read.schema.items() if name not in _UNKNOWN})
        if isinstance(value, dict):
            value = self._filled_object(value, read, depth)
        elif isinstance(value, list):
            value = [
                self._filled_by(each, for_item(read, at), depth) if isinstance(each, _MADE_OF_OTHERS) else each
                for at, each in enumerate(value)
            ]
        for find, most in _IN_PLACE:
            value = self._filled_by(value, islice(find(read, value), most), depth)
        return value

    def _filled_by(self, value: JsonValue, validators: Iterable[Any], depth: int) -> JsonValue:
        for each in validators:
            value = self._filled(value, each, depth + 1)
        return value

    def _filled_object(self, given: JsonDict, read: Any, depth: int) -> JsonDict:
        value = dict(given)
        for name, inner in object_of(read.schema.get("properties")).items():
            if name not in value:
                wanted = below(read, inner)
                found = list(_defaults(wanted, depth + 1, set()))
                fit = [each for each in found if wanted.is_valid(each)]
                if found and not fit:
                    raise _NoDefault(f"{name[:80]} is missing, and its default does not fit its schema: give a value")
                if fit:
                    value[name] = fit[0]
        for name, each in value.items():
            if isinstance(each, _MADE_OF_OTHERS):
                value[name] = self._filled_by(each, for_member(read, name, matches_in_time), depth)
        return value


def _defaults(validator: Any, depth: int, seen: set[int]) -> Iterator[JsonValue]:
    """The defaults that a schema has for a missing value: its own first, then those of references and branches.

    None is left out where it does not fit: `{"type": "string", "default": null}` only means that the value is optional.
    `seen` are the schemas that were looked at: each has its defaults once.
    """
    _go_deeper(depth)
    schema = validator.schema
    if not isinstance(schema, dict) or id(schema) in seen:
        return
    seen.add(id(schema))
    if "default" in schema and (schema["default"] is not None or validator.is_valid(None)):
        yield schema["default"]
    read = as_read(validator)
    branches = [each for keyword in ("anyOf", "oneOf") for each in list_of(read.schema.get(keyword))]
    branches += [read.schema[keyword] for keyword in ("then", "else") if keyword in read.schema]
    with suppress(Unresolvable):  # a reference that leads nowhere leads to no default
        for inner in chain(always(read), (below(read, each) for each in branches)):
            yield from _defaults(inner, depth + 1, seen)


def _go_deeper(depth: int) -> None:
    spend()
    if depth > MAX_DEPTH:
        raise Unfit(f"with their defaults they are nested deeper than {MAX_DEPTH}")


def _refused(owner: str, why: str) -> ToolDefinitionError:
    return ToolDefinitionError(f"tool {owner}: the JSON Schema of its parameters cannot be used: {why}")


def _fault(error: ValidationError) -> tuple[tuple[str, ...], str, str]:
    """Where the arguments do not fit, by which keyword, and what of the schema says what is wanted."""
    keyword, wanted = str(error.validator), error.validator_value
    path = tuple(str(part)[:80] for part in error.absolute_path)
    if keyword == "required" and isinstance(error.instance, dict):
        missing = [str(name) for name in list_of(wanted) if name not in error.instance]
        return path, keyword, f"{', '.join(missing)[:200] or 'it'} is missing"
    if keyword == "type":
        return path, keyword, f"{' or '.join(wanted) if isinstance(wanted, list) else wanted} is wanted"
    if is_of_names(error):
        return path, keyword, error.message
    if isinstance(wanted, bool | int | float | str) or keyword in ("enum", "const"):
        return path, keyword, f"does not fit {keyword} {wanted!r:.200}"
    return path, keyword, f"does not fit {keyword}"
