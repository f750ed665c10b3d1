"""Guardrails: what looks at an input, an answer or a tool call before it counts, and lets it pass, changes it or refuses it."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

from phronomy.errors import ConfigurationError
from phronomy.foundation import checks, spelling
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import (
    JsonDict,
    JsonError,
    JsonValue,
    canonical,
    objects_of,
    parse,
    plain_object,
)
from phronomy.foundation.quoting import HIDDEN, hidden, quoted, quoted_name
from phronomy.foundation.spelling import GivenFields
from phronomy.records.decisions import Then
from phronomy.records.messages import Message
from phronomy.tools.context import Deps
from phronomy.tools.parameters import takes_context

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

P = ParamSpec("P")
R = TypeVar("R")

Stage = Literal["input", "output", "tool"]
"""What a guardrail checks: the input of a run, its answer, or one tool call."""

STAGES: Final[tuple[Stage, ...]] = get_args(Stage)

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


# What a guardrail says


@dataclass(frozen=True, slots=True)
class Pass:
    """The value passes unchanged. A guardrail that returns None says the same."""


@dataclass(frozen=True, slots=True)
class Transform:
    """The value is replaced by this one: an input, the text of an answer, or all arguments of a tool as a mapping."""

    value: JsonValue = field(repr=False)


@dataclass(frozen=True, slots=True)
class Refuse(GivenFields):
    """The value is refused. A refused input or answer ends the run; a refused call does not run.

    `message` is for people, or for the model if a call is refused, so put nothing secret into it. `code` identifies the
    kind of refusal for programs. `then` is for calls. `"continue"`: the model goes on. `"block"`: also, the same call
    is refused for the rest of the run. `"block_tool"`: also, every call of the tool by this agent is. `"end"`: the run
    ends. Raises `ConfigurationError`.
    """

    message: str
    code: str = field(default="refused", kw_only=True)
    then: Then = field(default="continue", kw_only=True)

    def __post_init__(self) -> None:
        for option in ("message", "code"):
            value = getattr(self, option)
            if not isinstance(value, str) or not value.strip():
                raise ConfigurationError(f"Refuse: {option} is a text that is not empty")
        if self.then not in get_args(Then):
            raise ConfigurationError("Refuse: then is 'continue', 'block', 'block_tool' or 'end'")


Answer: TypeAlias = Pass | Transform | Refuse | None
"""The values that a guardrail may return. With any other value the run fails, so nothing passes by mistake."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuardrailContext(Generic[Deps]):
    """What a guardrail can read about the run. If a guardrail has a second parameter, it gets this context.

    `agent` is the name of the agent. `path` is the path of a nested run; it is empty for the outermost run. `tool_name`
    is set only for tool calls. `messages` are the messages so far, and `deps` are the objects from `invoke(deps=...)`.
    `facts` are the facts of the thread, if the agent works in an `Orchestrator`; else they are empty.
    """

    stage: Stage
    run_id: str
    thread_id: str | None
    agent: str
    path: str = ""
    tool_name: str | None = None
    deps: Deps = field(repr=False)
    messages: tuple[Message, ...] = field(default=(), repr=False)
    facts: dict[str, Any] = field(default_factory=dict, repr=False)


# Guardrails of yours


class GuardrailOptions(TypedDict, total=False):
    """The options of `@guardrail(...)`. The attributes of `Guardrail` with the same names describe them."""

    name: str
    retries: int
    retry_wait: float


class Guardrail:
    """A check of an input, an answer or a tool call. Subclass it and write `check`, or use `@guardrail` on a function.

        class NoCards(Guardrail):
            def check(self, value, context): ...

    A guardrail is checked when an instance is built, and cannot change after that. If a subclass has an `__init__`, it
    must call `super().__init__()`. Raises `ConfigurationError`.
    """

    _holds_back: ClassVar[bool] = True

    name: str = ""
    """The name in records and errors: letters, digits, `_` and `-`, at most 64.

    Default: from the class or the function.
    """

    retries: int = 0
    """How often the guardrail is called again after it has raised.

    After that the run fails, and the value has not passed.
    """

    retry_wait: float = 0.1
    """The seconds before the first retry. Each later pause is twice as long, up to 5 seconds."""

    stages: Sequence[Stage] = STAGES
    """The stages that the guardrail can check. In a list for another stage it is refused."""

    is_async: bool
    """Whether `check` is async."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        _SPELT.check(cls)

    def __init__(self) -> None:
        _SPELT.check(type(self))  # it may have been given more since it was made
        body = self._target()
        default = self._default_name()
        self.name = self.name or (spelling.as_function(default) if default[:1].isupper() else default)
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"{quoted_name(self.name)} cannot name a guardrail; give a name of 1 to 64 letters, digits, '_' and '-'"
            )
        self._check_options()
        what = f"guardrail {self.name}"
        if not callable(body) or isinstance(body, type):
            raise ConfigurationError(f"{what}: {quoted(body)} is not a function that is called with what to look at")
        inner = _innermost(body)
        if any(kind(each) for each in (inner, type(inner).__call__) for kind in _GENERATORS):
            raise ConfigurationError(f"{what} is a generator; return one Pass, Transform or Refuse")
        self._takes_context = takes_context(body, what, "value", ConfigurationError)
        if next(iter(inspect.signature(body).parameters), "") in ("self", "cls"):
            raise ConfigurationError(
                f"{what} is a method that is bound to nothing; pass the bound one, as in desk.check"
            )
        self.is_async = checks.is_async(inner)
        self._body: Callable[..., Any] = body
        self._built = True

    def check(self, *args: Any, **kwargs: Any) -> Any:
        """Check a value. Return a `Pass`, `Transform` or `Refuse`, or None if the value passes.

        Write this method in a subclass, sync or async, as `check(self, value)` or `check(self, value, context)`. The
        value is a copy: the input of the run, the text of the answer, or the arguments of the tool.
        """
        raise NotImplementedError

    if not TYPE_CHECKING:  # a type checker refuses what is not declared

        def __setattr__(self, name: str, value: object) -> None:
            _SPELT.check_attribute(name, self, value)
            if name in _FIXED and self.__dict__.get("_built"):
                raise ConfigurationError(f"guardrail {self.name}: {name} is fixed once it is built; build another")
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {getattr(self, 'name', '')!r}>"

    def _asked(self, value: JsonValue, context: GuardrailContext[object]) -> Answer | Awaitable[Answer]:
        """The answer of the guardrail, or the awaitable of it."""
        said: Answer | Awaitable[Answer] = self._body(value, context) if self._takes_context else self._body(value)
        return said

    def _target(self) -> Callable[..., object]:
        if type(self).check is Guardrail.check:
            raise ConfigurationError(
                f"{type(self).__name__} has no check method; write one, or put @guardrail on a function"
            )
        return self.check

    def _default_name(self) -> str:
        return type(self).__name__

    def _check_options(self) -> None:
        if not checks.is_count(self.retries):
            raise ConfigurationError(f"guardrail {self.name}: retries is 0 or a whole number above it")
        if not checks.is_number(self.retry_wait) or self.retry_wait < 0:
            raise ConfigurationError(f"guardrail {self.name}: retry_wait is a number of seconds, 0 or more")
        given = tuple(self.stages) if checks.is_series(self.stages) else ()
        if not given or not all(stage in STAGES for stage in given):
            raise ConfigurationError(f"guardrail {self.name}: stages are some of 'input', 'output' and 'tool'")
        self.retries, self.retry_wait = self.retries, self.retry_wait  # those of the class may change
        self.stages = given


_SPELT: Final = spelling.Options(
    Guardrail,
    {**GuardrailOptions.__annotations__, "stages": Sequence[Stage]},
    ConfigurationError,
    typed=GuardrailOptions,
)

_FIXED: Final = frozenset({"name", "retries", "retry_wait", "stages", "is_async", "check", "_body", "_takes_context"})

_GENERATORS: Final = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)


class FunctionGuardrail(Guardrail, Generic[P, R]):
    """A function as a guardrail. You can still call it like the function, for example in a test."""

    def __init__(self, function: Callable[P, R], /, **options: Unpack[GuardrailOptions]) -> None:
        spelling.check_options("a guardrail", options, GuardrailOptions.__annotations__, ConfigurationError)
        if not callable(function) or isinstance(function, type | Guardrail):
            raise ConfigurationError(
                f"{quoted(function)} cannot be made a guardrail: @guardrail goes on a function, and a class of guardrails is "
                "a subclass of Guardrail"
            )
        functools.update_wrapper(self, function, updated=())
        self.function = function
        for option, value in options.items():
            setattr(self, option, value)
        super().__init__()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def check(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return self.function(*args, **kwargs)

    def _target(self) -> Callable[..., object]:
        return self.function

    def _default_name(self) -> str:
        inner = _innermost(self.function)
        return str(getattr(inner, "__name__", type(inner).__name__))


@overload
def guardrail(function: Callable[P, R], /) -> FunctionGuardrail[P, R]: ...


@overload
def guardrail(**options: Unpack[GuardrailOptions]) -> Callable[[Callable[P, R]], FunctionGuardrail[P, R]]: ...


def guardrail(
    function: Callable[P, R] | None = None, /, **options: Unpack[GuardrailOptions]
) -> FunctionGuardrail[P, R] | Callable[[Callable[P, R]], FunctionGuardrail[P, R]]:
    """Make a function a guardrail: `@guardrail`, or `@guardrail(retries=2)` with options of `Guardrail`.

    The function takes the value, or the value and a `GuardrailContext`. It is sync or async. It returns a `Pass`,
    `Transform` or `Refuse`, or None if the value passes. Raises `ConfigurationError`.
    """
    if function is not None:
        return FunctionGuardrail(function, **options)
    return lambda function: FunctionGuardrail(function, **options)


def as_guardrails(option: str, given: object) -> tuple[Guardrail, ...]:
    """The guardrails in an option, `input_guardrails` say: instances, classes that need no arguments, or functions, in a list.

    Raises `ConfigurationError` for anything else, for two of one name, and for one that does not look at this.
    """
    if not checks.is_series(given):
        raise ConfigurationError(f"{option} is a list of guardrails, not {type(given).__name__}: write {option}=[...]")
    found: dict[str, Guardrail] = {}
    for item in given:
        each = _as_guardrail(option, item)
        if each.name in found:
            raise ConfigurationError(
                f"{option}: two guardrails are named {each.name!r}; give one of them another, as in name='...'"
            )
        if (stage := option.removesuffix("_guardrails")) not in each.stages:
            fitting = " or ".join(f"{stage}_guardrails" for stage in each.stages)
            raise ConfigurationError(
                f"{option}: guardrail {each.name!r} does not look at {stage}s; it goes into {fitting}"
            )
        found[each.name] = each
    return tuple(found.values())


def _as_guardrail(option: str, item: object) -> Guardrail:
    if isinstance(item, type) and issubclass(item, Guardrail):
        try:
            return _as_guardrail(option, item())
        except TypeError as error:
            raise ConfigurationError(f"{option}: {item.__name__} needs arguments; pass an instance") from error
    if isinstance(item, Guardrail):
        if "_built" not in item.__dict__:
            raise ConfigurationError(
                f"{option}: {type(item).__name__} is not built: call super().__init__() in its __init__"
            )
        return item
    if callable(item) and not isinstance(item, type):
        return FunctionGuardrail(item)
    raise ConfigurationError(
        f"{option}: {quoted(item)} is no guardrail; pass a Guardrail, or a function of what to look at"
    )


def _innermost(function: Callable[..., object]) -> Callable[..., object]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


# Guardrails that are there


class MaxLength(Guardrail):
    """Refuses a text with more than this number of characters. For other values, their compact JSON counts.

    The code of the refusal is `too_long`. Put it before slow guardrails and slow patterns. Raises `ConfigurationError`.
    """

    def __init__(
        self, characters: int, *, message: str | None = None, then: Then = "continue", name: str | None = None
    ) -> None:
        if not checks.is_count(characters) or characters == 0:
            raise ConfigurationError("MaxLength: characters is a whole number above 0")
        self._characters = characters
        self._refusal = Refuse(
            f"This is longer than {characters} characters." if message is None else message, code="too_long", then=then
        )
        _named(self, name)

    def check(self, value: JsonValue) -> Answer:
        """Refuse the value if it is too long."""
        text = value if isinstance(value, str) else canonical(value)
        return self._refusal if len(text) > self._characters else Pass()


class RedactPatterns(Guardrail):
    """Replaces every match of the regular expressions by `with_`.

    It looks at a text, or at all texts and numbers in any other value. Every pattern is matched against the original
    text. Overlapping matches are replaced together, once. Text inside an earlier replacement is not replaced again. If
    a key of an object matches, the value is refused, with the code `in_a_key`. A pattern is a text, or a result of
    `re.compile`. A slow pattern delays the run, so put a `MaxLength` before it. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        patterns: Sequence[str | re.Pattern[str]],
        with_: str = HIDDEN,
        *,
        then: Then = "continue",
        name: str | None = None,
    ) -> None:
        self._patterns = _compiled("RedactPatterns", patterns)
        if any(pattern.search("") for pattern in self._patterns):
            raise ConfigurationError(
                "RedactPatterns: a pattern that matches the empty text says nothing of what to hide"
            )
        if not isinstance(with_, str) or not with_:
            raise ConfigurationError("RedactPatterns: with_ is a text that is not empty")
        self._with = with_
        self._refusal = Refuse("A key of an object holds what must not be in it.", code="in_a_key", then=then)
        _named(self, name)

    def check(self, value: JsonValue, context: GuardrailContext[object]) -> Answer:
        """Replace the matches of the patterns."""
        try:
            parts = _parts(value, context)
            redacted = self._redacted(value) if parts is None else self._redacted_parts(parts)
        except _InKey:
            return self._refusal
        return Pass() if redacted == value else Transform(redacted)

    def _redacted_parts(self, parts: list[JsonDict]) -> JsonValue:
        return [
            {key: inner if key == "type" else self._redacted(inner) for key, inner in part.items()} for part in parts
        ]

    def _redacted(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return self._replaced(value)
        if isinstance(value, list):
            return [self._redacted(inner) for inner in value]
        if isinstance(value, dict):
            if any(self._replaced(key) != key for key in value):
                raise _InKey
            return {key: self._redacted(inner) for key, inner in value.items()}
        if value is None or isinstance(value, bool):
            return value
        number = canonical(value)
        replaced = self._replaced(number)
        return value if replaced == number else replaced

    def _replaced(self, text: str) -> str:
        spans = (match.span() for pattern in self._patterns for match in pattern.finditer(text))
        return hidden(text, spans, self._with)


class RefusePatterns(Guardrail):
    """Refuses a value if one of the regular expressions matches.

    It looks at a text, or at all keys, texts and numbers in any other value. A pattern is a text, or a result of
    `re.compile`. A slow pattern delays the run, so put a `MaxLength` before it. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        patterns: Sequence[str | re.Pattern[str]],
        message: str = "This holds what is not allowed here.",
        *,
        code: str = "refused",
        then: Then = "continue",
        name: str | None = None,
    ) -> None:
        self._patterns = _compiled("RefusePatterns", patterns)
        self._refusal = Refuse(message, code=code, then=then)
        _named(self, name)

    def check(self, value: JsonValue, context: GuardrailContext[object]) -> Answer:
        """Refuse the value if a pattern matches."""
        if (parts := _parts(value, context)) is not None:
            value = [inner for part in parts for key, inner in part.items() if key != "type"]
        found = any(pattern.search(text) for text in _texts(value) for pattern in self._patterns)
        return self._refusal if found else Pass()


class AllowedTools(Guardrail):
    """Refuses calls of all tools but these, with the code `tool_not_allowed`. Raises `ConfigurationError`."""

    stages: Sequence[Stage] = ("tool",)

    def __init__(self, names: Iterable[str], *, then: Then = "continue", name: str | None = None) -> None:
        listed = checks.texts_in(names)
        if listed is None or "" in listed:
            raise ConfigurationError("AllowedTools: names are the names of tools, in a list")
        self._names = frozenset(listed)
        self._refusal = Refuse("This tool is not allowed here.", code="tool_not_allowed", then=then)
        _named(self, name)

    def check(self, value: JsonValue, context: GuardrailContext[object]) -> Answer:
        """Refuse the call if its tool is not one of these."""
        return Pass() if context.tool_name in self._names else self._refusal


class JsonSchemaOutput(Guardrail):
    """Refuses an answer that is not JSON alone, or that does not fit this JSON Schema (2020-12, or the draft that `$schema` names).

    The code of the refusal is `not_by_schema`. Its message says where the answer does not fit, and quotes no value.
    `format` is checked for dates, times, durations and UUIDs. No reference is downloaded: a reference to another
    document fails the run. If the model should answer again, or you want a Python value, use `output_type`. Raises
    `ConfigurationError` for an invalid JSON Schema.
    """

    stages: Sequence[Stage] = ("output",)

    def __init__(self, schema: Mapping[str, object], *, message: str | None = None, name: str | None = None) -> None:
        if not isinstance(schema, Mapping):
            raise ConfigurationError(f"JsonSchemaOutput: the schema is a mapping, not {type(schema).__name__}")
        try:
            self._validator = _validator_of(plain_object(canonical(dict(schema))))
        except JsonError as error:
            raise ConfigurationError(f"JsonSchemaOutput: the schema is not JSON: {error}") from None
        self._refusal = Refuse("The answer is not as it must be." if message is None else message, code="not_by_schema")
        self._tells = message is None
        _named(self, name)

    def check(self, value: JsonValue) -> Answer:
        """Refuse the answer if it does not fit the schema."""
        try:
            answer = parse(value) if isinstance(value, str) else value
        except JsonError:
            return self._because("it is not JSON alone")
        wrong = next(self._validator.iter_errors(answer), None)
        if wrong is None:
            return Pass()
        where = ".".join(str(part)[:80] for part in wrong.absolute_path) or "it"
        return self._because(f"{where} does not fit {wrong.validator!r}")

    def _because(self, why: str) -> Refuse:
        if not self._tells:
            return self._refusal
        return Refuse(f"{self._refusal.message[:-1]}: {why}.", code=self._refusal.code)


class _InKey(Exception):
    """A match that would have to be replaced stands in a key of an object."""


def _named(shipped: Guardrail, name: str | None) -> None:
    """Build it, under this name or the one of its class."""
    if name is not None:
        shipped.name = name
    Guardrail.__init__(shipped)


def _compiled(owner: str, patterns: object) -> tuple[re.Pattern[str], ...]:
    given = tuple(patterns) if checks.is_series(patterns) else ()
    if not given:
        raise ConfigurationError(f"{owner}: patterns is a list of one regular expression or more")
    found: list[str | re.Pattern[str]] = []
    for each in given:
        if not isinstance(each, str) and not (isinstance(each, re.Pattern) and isinstance(each.pattern, str)):
            raise ConfigurationError(f"{owner}: a pattern is a text, or one that was compiled from a text")
        found.append(each)
    try:
        return tuple(re.compile(each) for each in found)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigurationError(f"{owner}: a pattern cannot be compiled: {error}") from error


def _parts(value: JsonValue, context: GuardrailContext[object]) -> list[JsonDict] | None:
    """The content parts of an input of them, whose keys and types are the protocol's and nobody's text; None for any other value."""
    parts = objects_of(value)
    return parts if context.stage == "input" else None


def _texts(value: JsonValue) -> Iterator[str]:
    """Every key, text and number in the value, as text."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif value is not None and not isinstance(value, bool):
        yield canonical(value)


def _validator_of(schema: JsonDict) -> Validator:
    """The validator of the schema, which fetches nothing. Raises `ConfigurationError` for what is no JSON Schema."""
    from jsonschema import SchemaError  # noqa: PLC0415  # slow to import, and seldom needed

    from phronomy.tools.json_schema.answers import draft_of, validator_of  # noqa: PLC0415

    try:
        draft_of(schema).check_schema(schema)
    except SchemaError as error:
        where = ".".join(map(str, error.absolute_path)) or "it"
        raise ConfigurationError(
            f"JsonSchemaOutput: the schema is none: {where} does not fit {error.validator!r}"
        ) from None
    return validator_of(schema)
