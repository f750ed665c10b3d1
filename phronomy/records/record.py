"""`Record`, the base of everything that is stored, and the field types that keep JSON as text.

A field marked `Json` or `JsonObject` holds canonical JSON text; reading the attribute gives a fresh plain copy, so nobody can
change a record through what they read from it. A dump holds the text itself, as a string: other tools may parse and rewrite
the outer document without touching a byte of it.

Modules with many records have no `from __future__ import annotations`: pydantic would evaluate each annotation, a text then, by
itself, which is a tenth of what an import of phronomy takes.
"""

import hashlib
import inspect
from collections.abc import Iterable, Iterator, Mapping, Set
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self, TypeAlias, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticSerializationError, core_schema

from phronomy.errors import InvalidDecision, InvalidField
from phronomy.foundation.checks import texts_in
from phronomy.foundation.deferred_records import building, leave_if_told
from phronomy.foundation.json_text import JsonError, JsonText, JsonValue, canonical, clean, is_canonical, parse, plain


class _Clean:
    """Marks a string in which lone surrogates are replaced. JSON text is refused where it holds one, so nothing is called then."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = handler(source)
        return core_schema.json_or_python_schema(
            json_schema=text, python_schema=core_schema.no_info_after_validator_function(clean, text)
        )


Text: TypeAlias = Annotated[str, _Clean()]
"""A string, in which each lone half of a surrogate pair is replaced by U+FFFD."""


class Listed:
    """Marks a tuple of texts that a program may give as any series of texts, such as a list, but not as one text."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        texts = handler(source)
        return core_schema.json_or_python_schema(
            json_schema=texts, python_schema=core_schema.no_info_before_validator_function(self._read, texts)
        )

    def _read(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return value
        if (found := texts_in(value)) is None:
            raise ValueError("give a list or a tuple of texts, such as ['finance']")
        return tuple(sorted(found)) if isinstance(value, Set) else found


_FIRST: Final = datetime(1, 1, 2, tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 30, tzinfo=UTC)


class _Aware:
    """Marks a time with a zone, between the two ends.

    As `Annotated[AwareDatetime, Field(ge=..., le=...)]`, for which pydantic takes five times as long, for each field of each record.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.datetime_schema(tz_constraint="aware", ge=_FIRST, le=_LAST)


Time: TypeAlias = Annotated[datetime, _Aware()]
"""A time with a zone, a day from either end of what there is, so that it can be written in every zone."""


def is_absent(value: object) -> bool:
    """True if a field has nothing to write down."""
    return value is None


def later(at: datetime, **by: float) -> datetime:
    """The time so much later, as `timedelta` takes it; the last that a record holds, where that is too late for it."""
    try:
        return min(at + timedelta(**by), _LAST)
    except (OverflowError, ValueError):  # the latter is for what is no number
        return _LAST


def deadline(at: datetime, timeout: float | None) -> datetime | None:
    """When what is asked now lapses, by a timeout in seconds; None if there is none."""
    return None if timeout is None else later(at, seconds=timeout)


class _JsonField:
    """Marks a field whose value is kept as canonical JSON text."""

    def __init__(self, *, object_only: bool, as_text: bool = True) -> None:
        self.object_only = object_only
        self.as_text = as_text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        call = core_schema.no_info_plain_validator_function
        return core_schema.json_or_python_schema(
            json_schema=call(self._read_text if self.as_text else self._read),
            python_schema=call(self._read),
            serialization=core_schema.plain_serializer_function_ser_schema(str if self.as_text else plain),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        if self.as_text:
            return {"type": "string", "contentMediaType": "application/json"}
        return {"type": "object"} if self.object_only else {}

    def _read(self, value: Any) -> JsonText:
        """The text of a value."""
        return self._checked(canonical(value))

    def _read_text(self, value: Any) -> JsonText:
        """The text that stands in a JSON document, as a string."""
        if not isinstance(value, str):
            raise ValueError("this field holds JSON as text, so its value must be a string")
        if not is_canonical(value) and canonical(parse(value)) != value:
            raise JsonError("the JSON text is not in canonical form")
        return self._checked(JsonText(value))

    def _checked(self, text: JsonText) -> JsonText:
        if self.object_only and text[:1] != "{":
            raise ValueError("an object with string keys is needed here")
        return text


Json: TypeAlias = Annotated[Any, _JsonField(object_only=False)]
"""Any JSON value, kept as canonical text."""

JsonObject: TypeAlias = Annotated[dict[str, Any], _JsonField(object_only=True)]
"""A JSON object, kept as canonical text."""


OpenJson: TypeAlias = Annotated[Any, _JsonField(object_only=False, as_text=False)]
"""Any JSON value, for values that people send: a dump contains the value itself, and not its text."""

OpenObject: TypeAlias = Annotated[dict[str, Any], _JsonField(object_only=True, as_text=False)]
"""A JSON object, for values that people send: a dump contains the object itself, and not its text."""


class _HeldField(_JsonField):
    """Marks a field that is never written, and so is refused in what is read."""

    def _read_text(self, value: Any) -> JsonText:
        raise ValueError("this is kept by nobody: leave it out")


HeldObject: TypeAlias = Annotated[dict[str, Any], _HeldField(object_only=True)]
"""A JSON object that is held in this process alone. Its field is excluded from every dump, and refused in a text."""


EMPTY: Any = JsonText("{}")
"""The default of a `JsonObject` field."""

MOST_METADATA: Final = 16 * 1024
"""Bytes of the metadata of a decision, at most, as JSON in UTF-8."""


class _MetadataField(_JsonField):
    """Marks a small JSON object that an application keeps beside a decision. None is read as an empty one."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        found = super().__get_pydantic_json_schema__(schema, handler)
        # As pydantic writes it for a mapping: a generator of types takes an object that says nothing of its members for an empty one.
        return found if self.as_text else {**found, "additionalProperties": True}

    def _read(self, value: Any) -> JsonText:
        return super()._read({} if value is None else dict(value) if isinstance(value, Mapping) else value)

    def _checked(self, text: JsonText) -> JsonText:
        if (size := len(text.encode())) > MOST_METADATA:
            raise ValueError(
                f"it is {size:,} bytes of JSON, and at most {MOST_METADATA:,} are kept with a decision: keep the data elsewhere, and"
                " give its id"
            )
        return super()._checked(text)


Metadata: TypeAlias = Annotated[dict[str, Any], _MetadataField(object_only=True)]
"""Data that an application keeps beside a decision: a JSON object of at most 16 KB, kept as canonical text."""

OpenMetadata: TypeAlias = Annotated[dict[str, Any], _MetadataField(object_only=True, as_text=False)]
"""As `Metadata`, in what people send: a dump contains the object itself, and not its text."""


def no_metadata() -> Any:
    """The metadata of an answer that has none. As a plain default it would stand in the JSON schema, which has no form for it."""
    return EMPTY


def is_empty(text: str) -> bool:
    """True for the text of an empty object, which need not be written down."""
    return text == "{}"


NULL: Any = JsonText("null")
"""The default of a `Json` field."""


class _Plain:
    """Reads a JSON field as a fresh plain copy; a data descriptor, so it stands before the stored text."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, record: Any, owner: type | None = None) -> JsonValue:
        if record is None:
            raise AttributeError(self.name)
        try:
            text = record.__dict__[self.name]
        except KeyError:
            raise AttributeError(self.name) from None
        return None if text is None else plain(text)

    def __set__(self, record: Any, value: Any) -> None:
        raise AttributeError(f"{type(record).__name__} is frozen: make a new record instead of setting {self.name!r}")


# Each record is made past `__setattr__`, which refuses. Bound once, since `evolve` runs some fifty times in a short run.
_put_values, _put_fields_set, _put_extra, _put_private = (
    vars(BaseModel)[slot].__set__
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


class Record(BaseModel):  # noqa: PLW1641  # pydantic makes `__hash__` for each frozen class
    """The base of all stored values: frozen, keyword-only, strict, and valid once built."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_default=False,
        hide_input_in_errors=True,
        defer_build=True,  # when it is first used: most of them are used by none of a program's first steps
        protected_namespaces=(),  # pydantic would compare each field of each class with each of its methods
    )

    _fields_set: ClassVar[set[str]] = set()
    """The fields that count as set in a record made by `evolve`: all of them. Nobody changes this set."""

    json_fields: ClassVar[frozenset[str]] = frozenset()
    """The fields that keep JSON as text."""

    _refused_as: ClassVar[type[InvalidField | InvalidDecision]] = InvalidField
    """The error for a record with wrong values."""

    wire_adds: ClassVar[tuple[str, ...]] = ()
    """The properties that `to_wire` sends in addition to the fields."""

    wire_omits: ClassVar[tuple[str, ...]] = ("version",)
    """The fields that `to_wire` does not send, such as `version`: the sent form has a version of its own."""

    if not TYPE_CHECKING:  # a type checker knows the fields

        def __init__(self, /, *given: object, **fields: Any) -> None:
            """Make one of these fields. Raises `InvalidField`, or for what somebody decides `InvalidDecision`."""
            __tracebackhide__ = True
            if given:
                from phronomy.foundation import spelling  # noqa: PLC0415  # where nothing is misspelt, nothing is compared

                names = [name for name in type(self).model_fields if name not in ("version", "kind")]
                spelling.check_by_name(type(self).__name__, given, names, self._refused_as)
            try:
                if self.__pydantic_complete__:
                    self.__pydantic_validator__.validate_python(fields, self_instance=self)
                else:
                    # The first use too: pydantic's core makes what it needs once, and a child that is forked in the middle
                    # of that waits for good.
                    with building():
                        self.__pydantic_validator__.validate_python(fields, self_instance=self)
            except ValidationError as error:
                raise self._refused_as(f"{type(self).__name__}: {explain(error, type(self).model_fields)}") from None

        __init__.__signature__ = inspect.Signature(  # what is given by its place is refused, and so is in no signature
            [
                inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY),
                inspect.Parameter("fields", inspect.Parameter.VAR_KEYWORD),
            ]
        )
        __init__.__pydantic_base_init__ = True  # what is read from a text is made without it, as without pydantic's own

    @classmethod
    def model_rebuild(cls, **options: Any) -> bool | None:
        """Like pydantic's method, which pydantic calls when the class is first used.

        It ignores the variables of the caller. It builds the records in its fields first; otherwise pydantic would
        build their schema again for each class that has such a field.
        """
        with building():
            for each in _records_in([field.annotation for field in cls.model_fields.values()]):
                if each is not cls and not each.__pydantic_complete__:
                    each.model_rebuild()
            return super().model_rebuild(**{**options, "_parent_namespace_depth": 0})

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        type.__setattr__(cls, "_fields_set", set(cls.model_fields))
        found = [name for name, field in cls.__pydantic_fields__.items() if _holds_json(field)]
        type.__setattr__(cls, "json_fields", frozenset(found))
        for name in found:
            type.__setattr__(cls, name, _Plain(name))

    def evolve(self, **changes: Any) -> Self:
        """A copy of the record with these fields changed.

        As with `model_copy`, the values are not checked, so pass valid ones.
        """
        new = object.__new__(type(self))
        _put_values(new, {**self.__dict__, **changes})
        _put_fields_set(new, self._fields_set)
        _put_extra(new, None)
        _put_private(new, None)
        return new

    def __eq__(self, other: object) -> bool:
        """Whether the other is a record of the same class with the same values."""
        # Without pydantic's look at what a record never has. A dump that leaves out defaults compares each with its default, which
        # most of them are.
        if type(self) is not type(other):
            return NotImplemented
        return self is other or self.__dict__ == other.__dict__

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Like pydantic's method, but Ctrl-C during the dump raises `KeyboardInterrupt`."""
        try:
            return super().model_dump(**options)
        except PydanticSerializationError as error:
            leave_if_told(error)
            raise

    def model_dump_json(self, **options: Any) -> str:
        """Like pydantic's method, but Ctrl-C during the dump raises `KeyboardInterrupt`."""
        try:
            return self.__pydantic_serializer__.to_json(self, **options).decode()
        except PydanticSerializationError as error:
            leave_if_told(error)
            raise

    def json_text(self, field: str) -> str:
        """The canonical JSON text of a JSON field, as the record stores it."""
        text: str = self.__dict__[field]
        return text


# pydantic would evaluate the class variables again for each record. It knows their names by now, as with those of its own base.
Record.__annotations__.clear()


def _records_in(shapes: Iterable[Any]) -> Iterator[type[Record]]:
    """The classes of records in these annotations, at any depth."""
    for shape in shapes:
        if isinstance(shape, type) and issubclass(shape, Record):
            yield shape
        else:
            yield from _records_in(get_args(shape))


def _holds_json(field: FieldInfo) -> bool:
    # Asked for each field of each record, at import; so without `typing.get_args`, which takes as long as the rest of it.
    if field.metadata and _is_json(field.metadata):
        return True
    return any(_is_json(getattr(part, "__metadata__", ())) for part in getattr(field.annotation, "__args__", ()))


def _is_json(marks: Iterable[Any]) -> bool:
    return any(isinstance(mark, _JsonField) for mark in marks)


def explain(error: Exception, fields: Iterable[str] | None = None) -> str:
    """What is wrong and where, without any value: none belongs in an error. `fields` are those that there might be at the top."""
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = []
    for item in found[:3]:
        name = ".".join(str(part)[:80] for part in item["loc"])
        where = f"{name or 'checkpoint'}: " if name or fields is None else ""
        match item["type"]:
            case "union_tag_invalid":  # its text quotes the value
                told.append(f"{where}this is of an unknown type")
            case "extra_forbidden" if fields is not None and len(item["loc"]) == 1:
                from phronomy.foundation import spelling  # noqa: PLC0415  # where nothing is misspelt, nothing is compared

                known = list(fields)
                told.append(f"there is no field {spelling.told([name], known)}; there are {', '.join(known) or 'none'}")
            case _:
                told.append(f"{where}{item['msg'].removeprefix('Value error, ')}")
    return "; ".join(told) + (f" (and {len(found) - 3} more)" if len(found) > 3 else "")


@cache
def reader_of(shape: Any) -> TypeAdapter[Any]:
    """What reads values of this type, made when it is first needed: all records that it holds are built for it."""
    with building():
        return TypeAdapter(shape)


def digest_of(*parts: str) -> str:
    """The SHA-256, in hexadecimal, over the parts, each preceded by its length so that no two lists of parts collide."""
    return hashlib.sha256("".join([f"{len(part)}:{part}" for part in parts]).encode()).hexdigest()


_digests: Final = lru_cache(maxsize=64)(digest_of)


def known_digest(*parts: str) -> str:
    """As `digest_of`, for what is asked for several times in a row. The last part is the one that may be long."""
    # The parts are compared with those of before, character by character, so it is the digest of what is given. A long one is not
    # kept in memory.
    return _digests(*parts) if len(parts[-1]) <= 2000 else digest_of(*parts)
