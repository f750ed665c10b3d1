"""From a Python signature to the JSON a model may send for it, and back.

`Arguments` reads and writes the arguments of one tool. What it cannot write and read back without loss is refused when
it is built: otherwise a human would be shown one thing and the tool would be given another.
"""

from __future__ import annotations

import builtins
import functools
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Final, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ImportString, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from phronomy.errors import ConfigurationError, ToolDefinitionError
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import (
    JsonDict,
    JsonText,
    JsonValue,
    canonical,
    clean,
    list_of,
    object_of,
    plain,
    plain_object,
    pointer_part,
)
from phronomy.tools.member_names import told_of_twins, twins_in
from phronomy.tools.parameters import Parameter
from phronomy.tools.samples import samples

_EXACT = (str, int, float, bool, type(None))
"""Types that JSON holds as they are: no sample is needed to see that they round trip."""

_DUNDER = re.compile(r"__.+__", re.DOTALL)


class Unfit(ValueError):
    """The arguments are valid for their types, yet cannot be used. The message holds no value of theirs."""

    def told(self, hidden: frozenset[str]) -> str:  # its message names no parameter
        """What is wrong, for the model; of the parameters in `hidden` no more than that something is."""
        return str(self)


class _SameNames(Unfit):
    """Two names of one object differ in case alone. `path` leads to it."""

    def __init__(self, path: Sequence[str | int], first: str, second: str) -> None:
        super().__init__(told_of_twins(first, second))
        self._path = [str(part)[:80] for part in path]

    def told(self, hidden: frozenset[str]) -> str:
        """As that of `Unfit`."""
        if self._path and self._path[0] in hidden:
            return f"{self._path[0]}: not valid (names)"
        return f"{'.'.join(self._path) or 'they'}: {self}"


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of parameters, and the words by which an error names it."""

    name: str
    part: str = "parameter"
    error: type[ConfigurationError] = ToolDefinitionError
    purpose: str = "be described to a model"


class Arguments:
    """Reads and writes the arguments of one tool. `schema` is the canonical text of their JSON Schema.

    Raises `ToolDefinitionError` for a parameter that has no JSON Schema, or whose values or default do not round trip.
    """

    come_from_elsewhere: ClassVar[bool] = False  # whether somebody else wrote the schema, who may mean it to take long

    def __init__(self, owner: str, parameters: Sequence[Parameter], descriptions: Mapping[str, str]) -> None:
        loose = [parameter for parameter in parameters if parameter.has_default or not is_exact(parameter.hint)]
        whose = Owner(f"tool {owner}")
        for parameter in loose:
            if not (_is_plain(parameter) and _round_trips(*_parts(parameter))):
                Form(whose, (parameter,)).check()
        # No code of anybody's reads these, so they read today as they did when they were shown.
        self._steady = not loose
        self._form = Form(whose, parameters)
        self.names: tuple[str, ...] = tuple(parameter.name for parameter in parameters)
        told = {each.name: each.told for each in parameters if each.told is not None}
        self.schema: JsonText = _described(self._form.schema_text, {**descriptions, **told})

    def read(self, given: JsonText) -> JsonText:
        """The canonical text of the validated, default-filled arguments in a canonical text.

        Raises pydantic's `ValidationError`, or `Unfit` where the text would not be read back as the same.
        """
        refuse_dunder_keys(given)
        if self._form.takes_more and (twins := next(twins_in(plain(given)), None)):
            raise _SameNames(*twins)
        text = self._form.write(self._form.load(given))
        if not self._steady and self._form.write(self._form.load(text)) != text:
            raise Unfit("they change when they are written as JSON and read back")
        return text

    def bind(self, text: str) -> dict[str, object]:
        """The Python values that canonical text stands for, made afresh. Raises pydantic's `ValidationError`."""
        return self._form.values(self._form.load(text))

    def bind_exactly(self, text: str) -> dict[str, object]:
        """As `bind`. Raises `Unfit` where the text is by now read as something else than what was shown."""
        loaded = self._form.load(text)
        if not self._steady and self._form.write(loaded) != text:
            raise Unfit("they are read as something else than before")
        return self._form.values(loaded)

    def write(self, values: Mapping[str, object]) -> JsonText:
        """The canonical text of Python values."""
        return self._form.write(self._form.filled(values))


class _Generator(GenerateJsonSchema):
    def encode_default(self, dft: object) -> JsonValue:
        """The default in JSON, with sets in the same order in every process, as the hash of the schema must be."""
        shape = TypeAdapter(object).dump_python(dft, by_alias=self.by_alias)
        return _ordered(super().encode_default(dft), shape)

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Nothing: what matters of what pydantic warns about, such as a default that is not JSON, is refused here."""


class Form:
    """A pydantic model of some parameters, and its JSON. `config` adds to that of the model.

    Raises the error of the owner for a parameter that has no JSON Schema.
    """

    def __init__(self, owner: Owner, parameters: Sequence[Parameter], config: ConfigDict | None = None) -> None:
        self._owner, self._parameters = owner, parameters
        # Fields are numbered and the parameter's name is the alias, so that a parameter may be called `json` or `copy`.
        self._fields = {parameter.name: f"p{place}" for place, parameter in enumerate(parameters)}
        plain = not config and all(map(_is_plain, parameters))
        parts = (part for each in parameters for part in _parts(each)) if plain else ()
        try:
            self._model, schema = _plain_model(*parts) if plain else _model(parameters, config or {})
        except Exception as error:
            raise _refused(owner, parameters, error) from error
        self.schema_text: JsonText = schema
        self._has_sets = '"uniqueItems":true' in self.schema_text
        self.takes_more: bool = not plain and _takes_more(self._model.__pydantic_core_schema__)
        """True if a class in it keeps names that it does not declare."""

    def load(self, text: str) -> BaseModel:
        """The model that JSON text stands for. Raises pydantic's `ValidationError`."""
        return self._model.model_validate_json(text)

    def take(self, values: Mapping[str, object]) -> BaseModel:
        """The model of Python values, validated. Raises pydantic's `ValidationError`."""
        return self._model.model_validate(values)

    def values(self, loaded: BaseModel) -> dict[str, object]:
        """The Python values of a model, by parameter."""
        return {name: loaded.__dict__[field] for name, field in self._fields.items()}

    def filled(self, values: Mapping[str, object]) -> BaseModel:
        """The model of Python values, as they are."""
        loaded = self._model.model_construct()
        vars(loaded).update({self._fields[name]: value for name, value in values.items()})
        return loaded

    def write(self, loaded: BaseModel) -> JsonText:
        """The canonical text. Raises `Unfit` for a key such as `__class__`."""
        text = canonical(self.dump(loaded))
        refuse_dunder_keys(text)
        return text

    def dump(self, loaded: BaseModel) -> JsonDict:
        """The plain JSON value, whatever its keys are."""
        value: JsonDict = loaded.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
        if self._has_sets:
            shape = loaded.model_dump(mode="python", by_alias=True, round_trip=True, warnings=False)
            value = object_of(_ordered(value, shape))
        return value

    def check(self) -> None:
        """Refuse the one parameter of this form if its default, or a sample of its type, does not round trip."""
        (parameter,) = self._parameters
        error_type = self._owner.error
        refuse = f"{self._owner.name}: {self._owner.part} {parameter.name!r} of type {_type_name(parameter.hint)}"
        schema = plain_object(self.schema_text)
        if not schema.get("required"):
            try:
                loaded = self.load("{}")
            except Exception as error:
                raise error_type(f"{refuse} has a default that is not of that type: {brief(error)}") from error
            loss = self._loss(loaded)
            if loss:
                raise error_type(f"{refuse} has a default that does not survive JSON: {loss}; choose another")
        for sample in samples(object_of(schema["properties"])[parameter.name], object_of(schema.get("$defs"))):
            fitting = self._fitting(canonical({parameter.name: sample}))
            loss = self._loss(fitting) if fitting else None
            if loss:
                raise error_type(f"{refuse} does not survive JSON: {loss}; use a type that JSON can hold")

    def _fitting(self, text: str) -> BaseModel | None:
        try:
            return self.load(text)
        except Exception:  # no value of this type, or user code that met a value it did not expect
            return None

    def _loss(self, first: BaseModel) -> str | None:
        """The difference between the loaded value and the same value written and read back; None if there is none."""
        try:
            text = self.write(first)
            if self.write(first) != text:
                return "it can be read only once"
            second = self.load(text)
            if self.write(second) != text:
                return "it is written differently each time"
            # Where two readings of one text differ as well, the type has no equality that could tell.
            if _differ(first, second) and not _differ(second, self.load(text)):
                return "what is read back is not what was written"
        except Exception as error:
            return brief(error)
        return None


def _is_plain(parameter: Parameter) -> bool:
    """Whether another of equal `_parts` is the same: its type and its default are of JSON's own types and of nobody's code."""
    return _shape(parameter.hint) is not None and (
        not parameter.has_default or type(parameter.default) in (str, int, float, bool, type(None))
    )


def _shape(hint: object) -> object | None:
    """What tells a plain hint from all others, where equality does not: `int | str` equals `str | int`, and has another schema."""
    if is_exact(hint):
        return hint
    parts = get_args(hint)
    match get_origin(hint):
        case typing.Literal:
            return (
                (typing.Literal, *((type(each), each) for each in parts))
                if all(type(each) in (str, int, bool, type(None)) for each in parts)
                else None
            )
        case typing.Union | types.UnionType | builtins.list as origin if parts:  # not a bare `typing.List`
            inner = tuple(map(_shape, parts))
            return None if None in inner else (origin, *inner)
        case _:
            return None


def _parts(parameter: Parameter) -> tuple[object, ...]:
    """What a plain parameter is made of. As text, 0.0 is not -0.0."""
    shown = repr(parameter.default) if parameter.has_default else None
    return parameter.name, parameter.hint, _shape(parameter.hint), parameter.default, shown


_LENGTH_OF_PARTS = 5


@functools.lru_cache(maxsize=256, typed=True)
def _plain_model(*parts: Any) -> tuple[type[BaseModel], JsonText]:
    """As `_model`, made once: a model takes milliseconds, and tools may be made anew for each request."""
    each = [parts[at : at + _LENGTH_OF_PARTS] for at in range(0, len(parts), _LENGTH_OF_PARTS)]
    return _model([Parameter(name, hint, default) for name, hint, _, default, _ in each], {})


@functools.lru_cache(maxsize=256, typed=True)
def _round_trips(*parts: Any) -> bool:
    """Whether `Form.check` lets a plain parameter pass. It is asked once; where it does not, the error names the owner."""
    name, hint, _, default, _ = parts
    try:
        Form(Owner("a tool"), (Parameter(name, hint, default),)).check()
    except ConfigurationError:
        return False
    return True


def _described(schema: JsonText, descriptions: Mapping[str, str]) -> JsonText:
    """The JSON Schema with the descriptions of parameters that have none."""
    if not descriptions:
        return schema
    told = plain_object(schema)
    for name, described in object_of(told["properties"]).items():
        if name in descriptions:
            object_of(described).setdefault("description", descriptions[name])
    return canonical(told)


def _model(parameters: Sequence[Parameter], own: ConfigDict) -> tuple[type[BaseModel], JsonText]:
    """The model and the canonical text of its JSON Schema."""
    # A number that JSON cannot hold is no valid number.
    config = ConfigDict(**{**own, "extra": "forbid", "allow_inf_nan": False, "hide_input_in_errors": True})
    fields: dict[str, Any] = {}
    for place, parameter in enumerate(parameters):
        name = parameter.name
        fixed: dict[str, Any] = {"alias": name, "validation_alias": name, "serialization_alias": name, "exclude": False}
        hint, default = parameter.hint, (parameter.default,) if parameter.has_default else ()
        if isinstance(parameter.default, FieldInfo):
            hint, default = Annotated[hint, parameter.default], ()
        of_python = (
            _default_of_python(hint, default, config) if parameter.has_default and not _is_plain(parameter) else ()
        )
        fields[f"p{place}"] = (hint, Field(*(of_python or default), validate_default=not of_python, **fixed))
    model: type[BaseModel] = create_model("Arguments", __config__=config, **fields)
    schema = object_of(_tidy(model.model_json_schema(schema_generator=_Generator)))
    if (unfillable := _unfillable(model.__pydantic_core_schema__)) is not None:
        raise TypeError(f"{unfillable}, which no JSON can hold")
    if _imports(model.__pydantic_core_schema__):
        # It would import what the model wrote, before any gate has been asked.
        raise TypeError("ImportString imports while it is validated; take a str")
    schema.setdefault("properties", {})
    return model, canonical(schema)


def _default_of_python(hint: Any, default: tuple[object, ...], config: ConfigDict) -> tuple[object, ...]:
    """The validated default, where it is a Python value that JSON has in another form, such as a Path; else nothing.

    A default that is not of the type in either form is left to the check that says so.
    """
    try:
        alone: Any = create_model("Default", __config__=config, p=(hint, Field(*default, validate_default=True)))
    except Exception:  # no type at all: the model of all parameters says so
        return ()
    with suppress(Exception):
        alone.model_validate_json("{}")
        return ()
    with suppress(Exception):
        return (vars(alone.model_validate({}))["p"],)
    return ()


@functools.cache
def _importer() -> object:
    """The function by which pydantic imports what an `ImportString` names."""
    known: Any = TypeAdapter(ImportString).core_schema
    return known["function"]["function"]


def _imports(schema: object) -> bool:
    """Whether an `ImportString` is anywhere in a core schema."""
    importer = _importer()
    return any(part is importer for part in _parts_of(schema))


_NO_KEYS: Final = {
    "dataclass",
    "dict",
    "frozenset",
    "is-subclass",
    "list",
    "model",
    "named-tuple",
    "none",
    "set",
    "tuple",
    "typed-dict",
}


def _unfillable(schema: object) -> str | None:
    """The part of a core schema that no JSON can fill: a class, or a key that is no text; None if there is none."""
    parts = [part for part in _parts_of(schema, without=_OF_PYTHON) if isinstance(part, dict)]
    named = {part["ref"]: part for part in parts if "ref" in part}
    for part in parts:
        if part.get("type") == "is-subclass":
            return "a class as a value"
        keys = part.get("keys_schema") if part.get("type") == "dict" else None
        keys = named.get(keys["schema_ref"]) if isinstance(keys, dict) and "schema_ref" in keys else keys
        if isinstance(keys, dict) and keys.get("type") in _NO_KEYS:
            return f"a key of type {keys['type']}"
    return None


_OF_PYTHON: Final = ("python_schema", "serialization")
"""Parts of a core schema that JSON does not come to."""


def _takes_more(schema: object) -> bool:
    """Say whether a class in a core schema keeps names that it does not declare."""
    names = ("extra_fields_behavior", "extra_behavior")
    return any(isinstance(part, dict) and "allow" in map(part.get, names) for part in _parts_of(schema))


def _parts_of(schema: object, without: Sequence[str] = ()) -> Iterator[object]:
    """A core schema, and everything in it, but what is under these names."""
    todo: list[object] = [schema]
    seen: set[int] = set()
    while todo:
        part = todo.pop()
        yield part
        if isinstance(part, (dict, list, tuple)) and id(part) not in seen:
            seen.add(id(part))
            todo.extend(
                part if not isinstance(part, dict) else (each for name, each in part.items() if name not in without)
            )


def _refused(owner: Owner, parameters: Sequence[Parameter], error: Exception) -> ConfigurationError:
    """The error for a parameter of which pydantic makes no model or no JSON Schema."""
    named = ", ".join(f"{parameter.name!r} of type {_type_name(parameter.hint)}" for parameter in parameters)
    return owner.error(
        f"{owner.name}: {owner.part} {named} cannot {owner.purpose} ({brief(error)}); use plain types, "
        "pydantic models, dataclasses or typed dicts"
    )


def is_exact(hint: object) -> bool:
    """Whether JSON holds every value of the type as it is."""
    return any(hint is kind for kind in _EXACT)


def brief(error: Exception) -> str:
    """The kind of error and the first line of what it says, for messages about definitions."""
    if isinstance(error, ValidationError):
        return "; ".join(each["msg"] for each in error.errors(include_url=False, include_input=False))
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _type_name(hint: object) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")


def _differ(first: BaseModel, second: BaseModel) -> bool:
    try:
        return not first.__dict__ == second.__dict__  # noqa: SIM201 - a type may define one of the two only
    except Exception:
        return True


def refuse_dunder_keys(text: JsonText) -> None:
    """Raise `Unfit` if an object in the text has a key such as `__class__`, to which some languages give a meaning."""
    if '"__' not in text:  # an underscore is never escaped in canonical text
        return
    todo: list[JsonValue] = [plain(text)]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            if any(map(_DUNDER.fullmatch, item)):
                raise Unfit("keys that begin and end with two underscores are not allowed")
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)


def _ordered(value: JsonValue, shape: object) -> JsonValue:
    """The JSON of `shape` with what was a set in order: the order of a set differs from process to process."""
    if isinstance(shape, set | frozenset) and isinstance(value, list):
        if any(_holds_set(item) for item in shape):
            raise Unfit("a set within a set has no stable order in JSON")
        return sorted(value, key=_sort_key)
    if isinstance(shape, dict) and isinstance(value, dict) and len(shape) == len(value):
        return {key: _ordered(inner, part) for (key, inner), part in zip(value.items(), shape.values(), strict=True)}
    if isinstance(shape, Sequence) and isinstance(value, list) and len(shape) == len(value):
        return [_ordered(inner, part) for inner, part in zip(value, shape, strict=True)]
    return value


def _holds_set(item: object) -> bool:
    return isinstance(item, frozenset) or (isinstance(item, tuple) and any(_holds_set(part) for part in item))


def _sort_key(item: JsonValue) -> tuple[bool, float, str]:
    number = item if isinstance(item, int | float) else None
    return number is None, number or 0, canonical(item)


_AS_GIVEN = ("default", "const", "enum", "examples", "example", "discriminator")
_NAMED = ("properties", "$defs", "patternProperties", "dependentSchemas")


def _tidy(node: JsonValue) -> JsonValue:
    """The schema without titles, which repeat the names, and with `items` in each array."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    tidied: JsonDict = {}
    for key, value in node.items():
        if key == "title":
            continue
        if key in _AS_GIVEN:
            tidied[key] = value
        elif key in _NAMED and isinstance(value, dict):
            tidied[key] = {name: _tidy(inner) for name, inner in value.items()}
        else:
            tidied[key] = _tidy(value)
    if tidied.get("type") == "array" and "items" not in tidied:
        tidied["items"] = _any_of(list_of(tidied.get("prefixItems")))
    return tidied


def _any_of(schemas: Sequence[JsonValue]) -> JsonValue:
    """A schema for what fits one of these. There are providers that refuse an array without `items`, as a tuple has none."""
    kinds: list[JsonValue] = []
    for each in schemas:
        kinds += [each] if each not in kinds else []
    return {"anyOf": kinds} if len(kinds) > 1 else kinds[0] if kinds else {}


def places_of(error: ValidationError, value: JsonDict, hidden: frozenset[str]) -> list[tuple[str, str]]:
    """What is wrong with these arguments where, for people: each a JSON Pointer, and a sentence.

    Of the parameters in `hidden` it says no more than that something is.
    """
    found: list[tuple[str, str]] = []
    for each in error.errors(include_url=False, include_input=False, include_context=False):
        pointer = _pointer_to(each["loc"], value, missing=each["type"] == "missing")
        secret = bool(each["loc"]) and each["loc"][0] in hidden
        told = f"not valid ({each['type']})" if secret else _without_prefix(each["msg"])
        found.append((pointer, clean(told)))
    return found[:10]


def _pointer_to(loc: Sequence[int | str], value: JsonValue, *, missing: bool) -> str:
    """The place in the value that a `loc` of pydantic names. It names the types that were tried, too: those are no places."""
    pointer = ""
    for place, part in enumerate(loc):
        absent = missing and place == len(loc) - 1
        if isinstance(value, dict) and (part in value or absent):
            value = value.get(str(part))
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            continue
        pointer += f"/{pointer_part(part)}"
    return pointer


def _without_prefix(message: str) -> str:
    for prefix in ("Value error, ", "Assertion failed, "):
        message = message.removeprefix(prefix)
    return message[:1].upper() + message[1:]
