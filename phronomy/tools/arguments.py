"""From a Python signature to the JSON a model may send for it, and back.

`Arguments` reads and writes the arguments of one tool. What it cannot write and read back without loss is refused when
it is built: otherwise a human would be shown one thing and the tool would be given another.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

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
    object_of,
    plain,
    plain_object,
    pointer_part,
)
from phronomy.tools.samples import samples

_EXACT = (str, int, float, bool, type(None))
"""Types that JSON holds as they are: no sample is needed to see that they round trip."""

_DUNDER = re.compile(r"__.+__", re.DOTALL)


class Unfit(ValueError):
    """The arguments are valid for their types, yet cannot be used. The message holds no value of theirs."""

    def told(self, hidden: frozenset[str]) -> str:  # its message names no parameter
        """What is wrong, for the model; of the parameters in `hidden` no more than that something is."""
        return str(self)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that the model fills. `default` is `inspect.Parameter.empty` where there is none."""

    name: str
    hint: object
    default: object

    @property
    def has_default(self) -> bool:
        """Whether the signature gives a value for it."""
        return self.default is not inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of parameters, and the words by which an error names it."""

    name: str
    part: str = "parameter"
    error: type[ConfigurationError] = ToolDefinitionError
    purpose: str = "be described to a model"


def parameters_of(owner: str, body: Callable[..., object], injected: type) -> tuple[tuple[Parameter, ...], str | None]:
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


def takes_context(function: Callable[..., object], what: str, first: str, error: type[ConfigurationError]) -> bool:
    """Whether the function takes the context as second argument: it needs two, or the second is named for it."""
    if _takes_one(function):  # most do, and to read a signature takes long
        return False
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


def _takes_one(function: object) -> bool:
    """Whether this is seen at a glance to be a plain function of one positional parameter."""
    if type(function) is not types.FunctionType or function.__dict__:  # what wraps another has that in it
        return False
    code = function.__code__
    others = code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return code.co_argcount == 1 and not others


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


def _resolve(owner: str, body: Callable[..., object], parameter: inspect.Parameter) -> object:
    """The type that the hint of the parameter means."""
    function: Callable[..., object] = inspect.unwrap(getattr(body, "__func__", body))
    names = getattr(function, "__globals__", {})
    # Types defined in a function are no globals. Its frame still runs while a decorator or a constructor in it does.
    local = {**_defining_locals(function), **_closure(function)}
    hint = parameter.annotation
    if isinstance(hint, str):
        hint = next((each[hint] for each in (local, names, vars(builtins)) if hint in each), hint)
    if type(hint) is type:  # a plain class stands for itself, and most are: to evaluate one takes ten times as long
        return hint

    def holder() -> None: ...

    holder.__annotations__ = {parameter.name: parameter.annotation}
    try:
        hints: dict[str, object] = typing.get_type_hints(holder, names, local, include_extras=True)
        return hints[parameter.name]
    except Exception as error:
        raise ToolDefinitionError(
            f"tool {owner}: the type hint {parameter.annotation!r} of parameter {parameter.name!r} cannot be resolved "
            f"({error}); import or define the type where the tool is defined, and not only for type checking"
        ) from error


def _closure(function: Callable[..., object]) -> dict[str, object]:
    found: dict[str, object] = {}
    names = function.__code__.co_freevars if hasattr(function, "__code__") else ()
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _defining_locals(function: Callable[..., object]) -> dict[str, object]:
    found: dict[str, object] = {}
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    outer, nested, _ = getattr(function, "__qualname__", "").rpartition(".<locals>.")
    while nested:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and (frame.f_code.co_qualname, frame.f_code.co_filename) != (outer, file):
            frame = frame.f_back
        found = {**(frame.f_locals if frame else {}), **found}
        outer, nested, _ = outer.rpartition(".<locals>.")
    return found


def _is_injected(hint: object, injected: type) -> bool:
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
        self.schema: JsonText = _described(self._form.schema_text, descriptions)

    def read(self, given: JsonText) -> JsonText:
        """The canonical text of the validated, default-filled arguments in a canonical text.

        Raises pydantic's `ValidationError`, or `Unfit` where the text would not be read back as the same.
        """
        refuse_dunder_keys(given)
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
    schema = object_of(_tidy(model.model_json_schema(schema_generator=_Generator)))
    if _imports(model.__pydantic_core_schema__):
        # It would import what the model wrote, before any gate has been asked.
        raise TypeError("ImportString imports while it is validated; take a str")
    schema.setdefault("properties", {})
    return model, canonical(schema)


@functools.cache
def _importer() -> object:
    """The function by which pydantic imports what an `ImportString` names."""
    known: Any = TypeAdapter(ImportString).core_schema
    return known["function"]["function"]


def _imports(schema: object) -> bool:
    """Whether an `ImportString` is anywhere in a core schema."""
    importer = _importer()
    todo: list[object] = [schema]
    seen: set[int] = set()
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
    """The schema without titles, which repeat the names."""
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
    return tidied


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
