"""From a Python signature to the JSON a model may send for it, and back.

`Arguments` reads and writes the arguments of one tool. What it cannot write and read back without loss is refused when
it is built: otherwise a human would be shown one thing and the tool would be given another.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ImportString, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from phronomy.errors import ConfigurationError, ToolDefinitionError
from phronomy.foundation.json_text import JsonText, JsonValue, canonical

_EXACT = (str, int, float, bool, type(None))
"""Types that JSON holds as they are: no sample is needed to see that they round trip."""

_MOST = 24
"""How many samples are tried for one place of a schema."""

_DEEPEST = 8
"""How deep samples are made: types may hold themselves."""

_DUNDER = re.compile(r"__.+__", re.DOTALL)


class Unfit(ValueError):
    """The arguments are valid for their types, yet cannot be used. The message holds no value of theirs."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that the model fills. `default` is `inspect.Parameter.empty` where there is none."""

    name: str
    hint: Any
    default: Any

    @property
    def has_default(self) -> bool:
        """Whether the signature gives a value for it."""
        return self.default is not inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose parameters they are, and how an error says so."""

    name: str
    part: str = "parameter"
    error: type[ConfigurationError] = ToolDefinitionError
    purpose: str = "be described to a model"


def parameters_of(owner: str, body: Callable[..., Any], injected: type) -> tuple[tuple[Parameter, ...], str | None]:
    """The parameters that the model fills, and the name of the one annotated with `injected`, if there is one."""
    try:
        signature = inspect.signature(body)
    except (ValueError, TypeError, NameError) as error:
        raise ToolDefinitionError(f"tool {owner}: its signature cannot be read ({error}); write another") from error
    found: list[Parameter] = []
    context: str | None = None
    for parameter in signature.parameters.values():
        _refuse_shape(owner, parameter)
        hint = _resolve(owner, body, parameter)
        if not _is_injected(hint, injected):
            found.append(Parameter(parameter.name, hint, parameter.default))
        elif context is not None:
            both = f"{context!r} and {parameter.name!r}"
            raise ToolDefinitionError(f"tool {owner}: {both} both ask for the context; keep one")
        else:
            context = parameter.name
    return tuple(found), context


def takes_context(function: Callable[..., Any], what: str, first: str, error: type[ConfigurationError]) -> bool:
    """Whether the function takes the context as second argument: it needs two, or the second is named for it."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError) as fault:
        raise error(f"{what}: its signature cannot be read; wrap it in a function of ({first})") from fault
    places = [
        each
        for each in signature.parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    second = places[1] if len(places) > 1 else None
    takes = second is not None and (second.default is second.empty or second.name in ("context", "ctx"))
    try:
        signature.bind(*((first, second) if takes else (first,)))
    except TypeError as fault:
        raise error(f"{what} must take ({first}) or ({first}, context), but it takes {signature}") from fault
    return takes


def is_async_callable(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine, as far as its definition says."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _refuse_shape(owner: str, parameter: inspect.Parameter) -> None:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ToolDefinitionError(f"tool {owner}: {parameter} cannot be described to a model; name each parameter")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ToolDefinitionError(f"tool {owner}: parameter {name!r} is positional-only; take out the '/'")
    if name.startswith("_"):
        raise ToolDefinitionError(f"tool {owner}: parameter {name!r} begins with an underscore; rename it")
    if parameter.annotation is parameter.empty:
        raise ToolDefinitionError(
            f"tool {owner}: parameter {name!r} has no type hint; add one, such as '{name}: str'"
            + ("; for a method pass the bound one, as in tools=[desk.refund]" if name in ("self", "cls") else "")
        )


def _resolve(owner: str, body: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The type that the hint of the parameter means."""

    def holder() -> None: ...

    holder.__annotations__ = {parameter.name: parameter.annotation}
    function: Any = inspect.unwrap(getattr(body, "__func__", body))
    names = getattr(function, "__globals__", {})
    # Types defined in a function are no globals. Its frame still runs while a decorator or a constructor in it does.
    local = {**_defining_locals(function), **_closure(function)}
    try:
        return typing.get_type_hints(holder, names, local, include_extras=True)[parameter.name]
    except Exception as error:
        raise ToolDefinitionError(
            f"tool {owner}: the type hint {parameter.annotation!r} of parameter {parameter.name!r} cannot be resolved "
            f"({error}); import or define the type where the tool is defined, and not only for type checking"
        ) from error


def _closure(function: Any) -> dict[str, Any]:
    found = {}
    names = function.__code__.co_freevars if hasattr(function, "__code__") else ()
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _defining_locals(function: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    outer, nested, _ = getattr(function, "__qualname__", "").rpartition(".<locals>.")
    while nested:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and (frame.f_code.co_qualname, frame.f_code.co_filename) != (outer, file):
            frame = frame.f_back
        found = {**(frame.f_locals if frame else {}), **found}
        outer, nested, _ = outer.rpartition(".<locals>.")
    return found


def _is_injected(hint: Any, injected: type) -> bool:
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_injected(get_args(hint)[0], injected)
    if origin in (Union, types.UnionType):
        return any(_is_injected(part, injected) for part in get_args(hint))
    kind = origin or hint
    return isinstance(kind, type) and issubclass(kind, injected)


class Arguments:
    """Reads and writes the arguments of one tool. `schema` is the canonical text of their JSON Schema.

    Raises `ToolDefinitionError` for a parameter that has no JSON Schema, or whose values or default do not round trip.
    """

    come_from_elsewhere: ClassVar[bool] = False  # whether somebody else wrote the schema, who may mean it to take long

    def __init__(self, owner: str, parameters: Sequence[Parameter], descriptions: dict[str, str]) -> None:
        loose = [parameter for parameter in parameters if parameter.has_default or not is_exact(parameter.hint)]
        whose = Owner(f"tool {owner}")
        for parameter in loose:
            Form(whose, (parameter,)).check()
        # No code of anybody's reads these, so they read today as they did when they were shown.
        self._steady = not loose
        self._form = Form(whose, parameters)
        self.names: tuple[str, ...] = tuple(parameter.name for parameter in parameters)
        schema = self._form.schema
        for name in schema["properties"].keys() & descriptions.keys():
            schema["properties"][name].setdefault("description", descriptions[name])
        self.schema: JsonText = canonical(schema)

    def read(self, value: dict[str, JsonValue]) -> JsonText:
        """The canonical text of the validated, default-filled arguments.

        Raises pydantic's `ValidationError`, or `Unfit` where the text would not be read back as the same.
        """
        text = self._form.write(self._form.load(canonical(value)))
        if not self._steady and self._form.write(self._form.load(text)) != text:
            raise Unfit("they change when they are written as JSON and read back")
        return text

    def bind(self, text: str) -> dict[str, Any]:
        """The Python values that canonical text stands for, made afresh. Raises pydantic's `ValidationError`."""
        return self._form.values(self._form.load(text))

    def bind_exactly(self, text: str) -> dict[str, Any]:
        """As `bind`. Raises `Unfit` where the text is by now read as something else than what was shown."""
        loaded = self._form.load(text)
        if not self._steady and self._form.write(loaded) != text:
            raise Unfit("they are read as something else than before")
        return self._form.values(loaded)

    def write(self, values: dict[str, Any]) -> JsonText:
        """The canonical text of Python values."""
        return self._form.write(self._form.filled(values))


class _Generator(GenerateJsonSchema):
    def encode_default(self, dft: Any) -> Any:
        """The default in JSON, with sets in the same order in every process, as the hash of the schema must be."""
        shape = TypeAdapter(Any).dump_python(dft, by_alias=self.by_alias)
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
        parts = (part for each in parameters for part in (each.name, each.hint, each.default))
        try:
            self._model, schema = _plain_model(*parts) if plain else _model(parameters, config or {})
            self._has_sets = '"uniqueItems":true' in canonical(schema)
        except Exception as error:
            raise _refused(owner, parameters, error) from error
        self.schema: dict[str, Any] = copy.deepcopy(schema)  # whoever describes a parameter writes into it

    def load(self, text: str) -> BaseModel:
        """The model that JSON text stands for. Raises pydantic's `ValidationError`."""
        return self._model.model_validate_json(text)

    def take(self, values: dict[str, Any]) -> BaseModel:
        """The model of Python values, validated. Raises pydantic's `ValidationError`."""
        return self._model.model_validate(values)

    def values(self, loaded: BaseModel) -> dict[str, Any]:
        """The Python values of a model, by parameter."""
        return {name: loaded.__dict__[field] for name, field in self._fields.items()}

    def filled(self, values: dict[str, Any]) -> BaseModel:
        """The model of Python values, as they are."""
        loaded = self._model.model_construct()
        vars(loaded).update({self._fields[name]: value for name, value in values.items()})
        return loaded

    def write(self, loaded: BaseModel) -> JsonText:
        """The canonical text. Raises `Unfit` for a key such as `__class__`."""
        value = self.dump(loaded)
        refuse_dunder_keys(value)
        return canonical(value)

    def dump(self, loaded: BaseModel) -> dict[str, JsonValue]:
        """The plain JSON value, whatever its keys are."""
        value: dict[str, JsonValue] = loaded.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
        if self._has_sets:
            shape = loaded.model_dump(mode="python", by_alias=True, round_trip=True, warnings=False)
            value = _ordered(value, shape)
        return value

    def check(self) -> None:
        """Refuse the one parameter of this form if its default, or a sample of its type, does not round trip."""
        (parameter,) = self._parameters
        error_type = self._owner.error
        refuse = f"{self._owner.name}: {self._owner.part} {parameter.name!r} of type {_type_name(parameter.hint)}"
        if not self.schema.get("required"):
            try:
                loaded = self.load("{}")
            except Exception as error:
                raise error_type(f"{refuse} has a default that is not of that type: {brief(error)}") from error
            loss = self._loss(loaded)
            if loss:
                raise error_type(f"{refuse} has a default that does not survive JSON: {loss}; choose another")
        for sample in samples(self.schema["properties"][parameter.name], self.schema.get("$defs", {})):
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
        """What is lost when the loaded value is written and read back."""
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
    """Whether another of equal parts, of the same types, is the same. -0.0 is not 0.0."""
    return is_exact(parameter.hint) and (not parameter.has_default or type(parameter.default) in (str, int, bool))


@functools.lru_cache(maxsize=256, typed=True)
def _plain_model(*parts: Any) -> tuple[type[BaseModel], dict[str, Any]]:
    """As `_model`, made once: a model takes milliseconds, and tools may be made anew for each request."""
    return _model([Parameter(*parts[at : at + 3]) for at in range(0, len(parts), 3)], {})


def _model(parameters: Sequence[Parameter], own: ConfigDict) -> tuple[type[BaseModel], dict[str, Any]]:
    """The model and its JSON Schema."""
    fields: dict[str, Any] = {}
    for place, parameter in enumerate(parameters):
        name = parameter.name
        fixed: dict[str, Any] = {"alias": name, "validation_alias": name, "serialization_alias": name, "exclude": False}
        hint, default = parameter.hint, (parameter.default,) if parameter.has_default else ()
        if isinstance(parameter.default, FieldInfo):
            hint, default = Annotated[hint, parameter.default], ()
        fields[f"p{place}"] = (hint, Field(*default, validate_default=True, **fixed))
    # A number that JSON cannot hold is no valid number.
    config = ConfigDict(**{**own, "extra": "forbid", "allow_inf_nan": False, "hide_input_in_errors": True})
    model: type[BaseModel] = create_model("Arguments", __config__=config, **fields)
    schema = _tidy(model.model_json_schema(schema_generator=_Generator))
    if _imports(model.__pydantic_core_schema__):
        # It would import what the model wrote, before any gate has been asked.
        raise TypeError("ImportString imports while it is validated; take a str")
    schema.setdefault("properties", {})
    return model, schema


@functools.cache
def _importer() -> Any:
    """The function by which pydantic imports what an `ImportString` names."""
    known: Any = TypeAdapter(ImportString).core_schema
    return known["function"]["function"]


def _imports(schema: Any) -> bool:
    """Whether an `ImportString` is anywhere in a core schema."""
    importer = _importer()
    todo, seen = [schema], set()
    while todo:
        part = todo.pop()
        if part is importer:
            return True
        if isinstance(part, (dict, list, tuple)) and id(part) not in seen:
            seen.add(id(part))
            todo.extend(part.values() if isinstance(part, dict) else part)
    return False


def _refused(owner: Owner, parameters: Sequence[Parameter], error: Exception) -> ConfigurationError:
    """The error for a parameter of which pydantic makes no model or no JSON Schema."""
    named = ", ".join(f"{parameter.name!r} of type {_type_name(parameter.hint)}" for parameter in parameters)
    return owner.error(
        f"{owner.name}: {owner.part} {named} cannot {owner.purpose} ({brief(error)}); use plain types, "
        "pydantic models, dataclasses or typed dicts"
    )


def is_exact(hint: Any) -> bool:
    """Whether JSON holds every value of the type as it is."""
    return any(hint is kind for kind in _EXACT)


def brief(error: Exception) -> str:
    """The kind of error and the first line of what it says, for messages about definitions."""
    if isinstance(error, ValidationError):
        return "; ".join(each["msg"] for each in error.errors(include_url=False, include_input=False))
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")


def _differ(first: BaseModel, second: BaseModel) -> bool:
    try:
        return not first.__dict__ == second.__dict__  # noqa: SIM201 - a type may define one of the two only
    except Exception:
        return True


def refuse_dunder_keys(value: JsonValue) -> None:
    """Raise `Unfit` if an object in the value has a key such as `__class__`, to which some languages give a meaning."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            if any(map(_DUNDER.fullmatch, item)):
                raise Unfit("keys that begin and end with two underscores are not allowed")
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)


def _ordered(value: JsonValue, shape: Any) -> JsonValue:
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


def _holds_set(item: Any) -> bool:
    return isinstance(item, frozenset) or (isinstance(item, tuple) and any(_holds_set(part) for part in item))


def _sort_key(item: JsonValue) -> tuple[bool, float, str]:
    number = isinstance(item, int | float)
    return not number, item if number else 0, canonical(item)


_AS_GIVEN = ("default", "const", "enum", "examples", "example", "discriminator")
_NAMED = ("properties", "$defs", "patternProperties", "dependentSchemas")


def _tidy(node: Any) -> Any:
    """The schema without titles, which repeat the names."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    tidied: dict[str, Any] = {}
    for key, value in node.items():
        if key == "title":
            continue
        if key in _AS_GIVEN:
            tidied[key] = value
        elif key in _NAMED and isinstance(value, dict):
            tidied[key] = {name: _tidy(inner) for name, inner in value.items()}
        else:
            tidied[key] = _tidy(value)
    return tidied


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


def samples(schema: Any, defs: dict[str, Any], depth: int = 0) -> list[JsonValue]:
    """Values that may fit the schema, at most 24. Whoever asks validates each: what cannot be guessed goes untried."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return []
    given = schema.get("examples")
    found: list[JsonValue] = [*given] if isinstance(given, list) else []
    if "$ref" in schema:
        found += samples(defs.get(str(schema["$ref"]).rpartition("/")[2]), defs, depth + 1)
    elif "const" in schema:
        found.append(schema["const"])
    elif "enum" in schema:
        found += schema["enum"]
    elif "anyOf" in schema or "oneOf" in schema or "allOf" in schema:
        branches = schema.get("anyOf") or schema.get("oneOf") or schema["allOf"]
        found += _in_turn([samples(branch, defs, depth + 1) for branch in branches])
    else:
        found += _typed_samples(schema, defs, depth)
    return found[:_MOST]


def _typed_samples(schema: dict[str, Any], defs: dict[str, Any], depth: int) -> list[JsonValue]:
    kind = schema.get("type")
    if kind == "string":
        return _text_samples(schema)
    if kind in ("integer", "number"):
        return _number_samples(schema, _INTEGERS if kind == "integer" else _NUMBERS)
    if kind == "array":
        return _array_samples(schema, defs, depth)
    if kind == "object":
        return _object_samples(schema, defs, depth)
    usual: dict[Any, list[JsonValue]] = {"boolean": [True, False], "null": [None]}
    return usual.get(kind, [None, "a", 7, 0.25, True, ["a", 7], {"a": 7}])


def _text_samples(schema: dict[str, Any]) -> list[JsonValue]:
    if schema.get("contentMediaType") == "application/json":
        return [canonical(value) for value in (7, "a", [7], {"a": 7}, None, 0.25)]
    form = str(schema.get("format", ""))
    if form.startswith("uuid"):
        return list(_UUIDS)
    if form in _FORMATS:
        return list(_FORMATS[form])
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    return [(text + text[-1] * (least - len(text)))[:most] for text in _TEXTS]


def _number_samples(schema: dict[str, Any], usual: tuple[float, ...]) -> list[JsonValue]:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    found = [*usual]
    if low is not None:
        found += [low, low + 1]
    if high is not None:
        found += [high, high - 1]
    if low is not None and high is not None:
        found.append((low + high) / 2)
    step = schema.get("multipleOf")
    if step:
        found += [step, -(-(low or 0) // step) * step]
    return found


def _array_samples(schema: dict[str, Any], defs: dict[str, Any], depth: int) -> list[JsonValue]:
    first = [samples(part, defs, depth + 1) for part in schema.get("prefixItems", ())]
    if first:
        return [list(row) for row in _rows(first)]
    items = samples(schema.get("items", {}), defs, depth + 1)
    least, most = max(1, schema.get("minItems", 1)), schema.get("maxItems")
    rows = [[item] * least for item in items] if not schema.get("uniqueItems") else [[item] for item in items]
    return [items[:most], *rows, []]


def _object_samples(schema: dict[str, Any], defs: dict[str, Any], depth: int) -> list[JsonValue]:
    named = schema.get("properties", {})
    parts = {name: samples(part, defs, depth + 1) for name, part in named.items()}
    needed = schema.get("required", ())
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
