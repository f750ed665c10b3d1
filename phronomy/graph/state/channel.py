"""One channel of a state: its type and its reducer, read from a class, and its values, written and read as text."""

from __future__ import annotations

import ast
import functools
import inspect
import typing
from collections.abc import Sequence
from math import isfinite
from typing import Annotated, Any, Final, NotRequired, Required, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import ReadOnly, is_typeddict

from phronomy.errors import GraphError, PhronomyError
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import MAX_BYTES, JsonError, canonical, plain
from phronomy.graph.state.channels import STARTS, Reducer, kind_of, reducer_of
from phronomy.graph.state.registry import SLOT
from phronomy.graph.state.values import NotStorable, cleaned, exact, found_at, lost, slotted
from phronomy.tools.arguments import Form, Owner, brief, is_exact
from phronomy.tools.parameters import Parameter

_NOTHING: Final = inspect.Parameter.empty

_CONFIG: Final = (
    "arbitrary_types_allowed",
    "coerce_numbers_to_str",
    "json_encoders",
    "regex_engine",
    "revalidate_instances",
    "ser_json_bytes",
    "ser_json_temporal",
    "ser_json_timedelta",
    "str_max_length",
    "str_min_length",
    "str_strip_whitespace",
    "str_to_lower",
    "str_to_upper",
    "strict",
    "use_enum_values",
    "val_json_bytes",
    "val_temporal_unit",
)
"""What of a model's configuration says how its values are read and written."""


_WORD: Final = 2**63
_SHORT: Final = MAX_BYTES // 6 - 1
"""Characters of a string whose text is not over the limit, whatever they are: a control character is six of the text."""


def _alone(name: str, text: str) -> str:
    """The text of an object that holds this alone."""
    return "".join(("{", canonical(name), ":", text, "}"))


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel. `start` is what it begins with, as text (None: nothing); `required` is one that must be there to be read."""

    name: str
    hint: object
    reducer: Reducer
    form: Form
    start: str | None
    required: bool
    has_factory: bool
    plain: type[object] | None
    """The type, where it is one of JSON's own and nothing else is said of it: its values need no model to be written and read."""

    def begin(self) -> str | None:
        """Gives the first value of the channel, for a run that begins now."""
        return self._text(self.form.load("{}")) if self.has_factory else self.start

    def write(self, value: object) -> str:
        """The text of a value. Raises pydantic's `ValidationError`, or `NotStorable` where it would not be read back as the same."""
        if self._is_plain(value):
            return canonical(value)
        try:
            return self._written(value)
        except (NotStorable, ValidationError):
            again = cleaned(value)
            if again is value:
                raise
        return self._written(again)

    def _written(self, value: object) -> str:
        model = self.form.take({self.name: value})
        taken = self.form.values(model)[self.name]
        try:
            text = self._text(model)
            if exact(self.hint):
                return text
            differs = lost(taken, back := self.read(text), "")
            # Where two readings of one text differ as well, the type has no equality that could tell.
            if differs is not None and lost(back, self.read(text), "") != differs:
                raise NotStorable("what is there is lost when it is written and read back", differs, taken)
        except (NotStorable, PhronomyError):
            raise
        except Exception as error:
            cause = error.__cause__
            if isinstance(cause, NotStorable):
                raise NotStorable(cause.why, found_at(taken, cause.root, "") + cause.path, taken) from error
            why = brief(error) if isinstance(error, JsonError | ValidationError) else type(error).__name__
            raise NotStorable(f"it cannot be written and read back ({why})", "", taken) from error
        return text

    def read(self, text: str) -> Any:
        """The value of a text, made afresh. Raises pydantic's `ValidationError`, and `UnknownType`."""
        if self.plain is not None and self._is_plain(value := plain(text)):
            return value
        return self.form.values(self.form.load(_alone(self.name, text)))[self.name]

    def _is_plain(self, value: Any) -> bool:
        """Whether the value is of the plain type, and so its text is the value's own. What may be too long takes the long way."""
        kind = type(value)
        if kind is not self.plain:
            return False
        if kind is str:
            return len(value) < _SHORT
        return (kind is not float or isfinite(value)) and (kind is not int or -_WORD < value < _WORD)

    def _text(self, model: BaseModel) -> str:
        # As deep as it will stand in what a node gave, and in what a human is shown.
        text = canonical([self.form.dump(model)])
        return text[len(_alone(self.name, "")) : -2]


def of_model(graph: str, state: type) -> list[Channel]:
    """The channels of a pydantic model. Raises `GraphError`."""
    model = cast("type[BaseModel]", state)
    where = f"graph {graph}: the state {model.__name__}"
    try:
        model.model_rebuild(raise_errors=True)
    except Exception as error:
        raise GraphError(f"{where} is not whole: {brief(error)}") from error
    if issubclass(model, RootModel):
        raise GraphError(f"{where} is a root model, which has no fields; a field is a channel")
    told = model.__pydantic_decorators__
    if told.model_validators or told.field_validators or told.root_validators or told.validators:
        raise GraphError(
            f"{where} has validators of its own, but nodes write channel by channel: put them on the type of the channel, as in"
            " Annotated[int, AfterValidator(check)]"
        )
    if told.field_serializers or told.model_serializers:
        raise GraphError(
            f"{where} has serializers of its own: put them on the type of the channel, as in Annotated[...]"
        )
    if model.__private_attributes__ or model.model_config.get("extra") == "allow":
        raise GraphError(
            f"{where} has private attributes or takes extra fields, which no channel keeps: make each a field"
        )
    if model.model_post_init is not BaseModel.model_post_init:
        raise GraphError(f"{where} has a model_post_init, which would run at each reading: take it out")
    config = ConfigDict(**{key: value for key, value in model.model_config.items() if key in _CONFIG})  # type: ignore[typeddict-item]
    found = []
    for name, field in model.model_fields.items():
        default: object = field.default
        if field.default_factory is not None:
            if field.default_factory_takes_validated_data:
                raise GraphError(
                    f"{where}: the default of {name!r} is made of other fields, but channels begin one by one"
                )
            default = Field(default_factory=cast("Any", field.default_factory))
        elif default is PydanticUndefined:
            default = _NOTHING
        marks = (
            field.metadata
            if field.discriminator is None
            else [*field.metadata, Field(discriminator=field.discriminator)]
        )
        channel = _channel(where, name, field.annotation, marks, default, config, required=True)
        found.append(channel)
    return found


def of_typed_dict(graph: str, state: Any) -> list[Channel]:
    """The channels of a `TypedDict`. Raises `GraphError`, also for what is neither that nor a model."""
    if not is_typeddict(state):
        shown = state.__name__ if isinstance(state, type) else f"a {type(state).__name__}"
        raise GraphError(f"graph {graph}: the state is {shown}; make it a pydantic model or a TypedDict")
    where = f"graph {graph}: the state {state.__name__}"
    try:
        hints = typing.get_type_hints(state, include_extras=True)
    except Exception as error:
        raise GraphError(f"{where} is not whole ({brief(error)}): define its types at the top of the module") from error
    found = []
    for name, hint in hints.items():
        required = False
        marks: list[object] = []
        while get_origin(hint) in _QUALIFIERS or get_origin(hint) is Annotated:
            if get_origin(hint) is Annotated:
                marks = [*get_args(hint)[1:], *marks]
            required = required or get_origin(hint) is Required
            hint = get_args(hint)[0]
        if name.startswith("_"):
            raise GraphError(f"{where}: the channel {name!r} begins with an underscore; rename it")
        found.append(_channel(where, name, hint, marks, _NOTHING, ConfigDict(), required=required))
    return found


_QUALIFIERS: Final = (Required, NotRequired, ReadOnly)


def _channel(
    where: str, name: str, hint: object, marks: Sequence[object], default: object, config: ConfigDict, *, required: bool
) -> Channel:
    reducer, rest = reducer_of(f"{where}: the channel {name!r}", hint, marks)
    hint = slotted(hint, SLOT)
    if rest:
        hint = Annotated[(hint, *rest)]
    literal = None if config or not _is_plain(hint) else _literal_of(default)
    form = _form(where, name, hint, default, config) if literal is None else _plain_form(where, name, hint, literal)
    if default is not _NOTHING:
        start: str | None = canonical(form.dump(form.load("{}"))[name])
    elif reducer.name in ("append", "merge"):
        start = "[]" if reducer.name == "append" else "{}"
    else:
        start = STARTS.get(kind_of(hint)) if reducer.name == "add" else None
        if start is not None:
            start = _start(form, name, start)
    kind = hint if is_exact(hint) and not config else None
    return Channel(
        name=name,
        hint=hint,
        reducer=reducer,
        form=form,
        start=start,
        required=required and start is None,
        has_factory=isinstance(default, FieldInfo),
        plain=kind if isinstance(kind, type) else None,
    )


def _form(where: str, name: str, hint: object, default: object, config: ConfigDict) -> Form:
    """The form of a channel, checked. Raises `GraphError`."""
    form = Form(Owner(where, "channel", GraphError, "be stored"), (Parameter(name, hint, default),), config)
    form.check()
    return form


@functools.lru_cache(maxsize=1024, typed=True)
def _plain_form(where: str, name: str, hint: object, literal: str) -> Form:
    """As `_form`, made once: it takes a millisecond, and a graph may be built anew for each request."""
    return _form(where, name, hint, ast.literal_eval(literal) if literal else _NOTHING, ConfigDict())


def _is_plain(hint: object) -> bool:
    """Whether the type means the same wherever it stands: one that JSON holds as it is, a list of such, or a dict of such by name.

    A union does not: equal ones may have their parts in different orders.
    """
    if get_origin(hint) is dict:
        key, value = get_args(hint)
        return key is str and _is_plain(value)
    return is_exact(hint) or (get_origin(hint) is list and _is_plain(get_args(hint)[0]))


def _literal_of(default: object) -> str | None:
    """The Python text of a default that such a type has: empty if there is none, None if the default is not plain."""
    if default is _NOTHING:
        return ""
    if type(default) in (list, dict):
        return None if default else repr(default)
    return repr(default) if is_exact(type(default)) and not (type(default) is float and not isfinite(default)) else None


def _start(form: Form, name: str, text: str) -> str | None:
    """Nought or nothing of the type, as it is written; None if the type does not hold it."""
    try:
        return canonical(form.dump(form.load(_alone(name, text)))[name])
    except ValidationError:
        return None


def explained(error: ValidationError) -> str:
    """Describes a validation error without its values, which the words of a user's validator may quote."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{path_of(each['loc'])}: "
        + ("a validator refused it" if each["type"] in ("value_error", "assertion_error") else each["msg"])
        for each in found[:5]
    )


def path_of(loc: tuple[int | str, ...]) -> str:
    """The place that pydantic names, as a path."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")
