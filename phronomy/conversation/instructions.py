"""Instructions: what the model is told before the conversation, made from the original input at each call of it."""

from __future__ import annotations

import inspect
import string
import types
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Generic, TypeAlias

from pydantic import BaseModel

from phronomy.errors import AsyncRequired, ConfigurationError, InstructionsError
from phronomy.foundation.checks import is_async
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, JsonValue, canonical, clean, plain
from phronomy.foundation.quoting import quoted
from phronomy.records.messages import Message
from phronomy.records.principals import Principal
from phronomy.records.record import digest_of
from phronomy.tools.context import Deps
from phronomy.tools.parameters import takes_context


class PromptTemplate:
    """A text with `{name}` fields for an input that is a mapping: `PromptTemplate("Answer in {language}")`.

    `defaults` has values for fields that the input does not have. A field is a plain name, so a template cannot read
    attributes of an object. For a brace, write `{{` or `}}`. Values that are not text are written as JSON. A text input
    fills `{input}`. Raises `ConfigurationError` if the template is not valid.
    """

    __slots__ = ("_defaults", "_parts", "_template")

    def __init__(self, template: str, *, defaults: Mapping[str, JsonValue] | None = None) -> None:
        if not isinstance(template, str):
            raise ConfigurationError(f"a prompt template is made from a text, not from {type(template).__name__}")
        if not isinstance(defaults, Mapping | None):
            raise ConfigurationError(f"the defaults of a prompt template are a mapping, not {type(defaults).__name__}")
        self._template = clean(template)
        self._parts = _parse(self._template)
        try:
            self._defaults = {name: _as_text(_copy(value)) for name, value in (defaults or {}).items()}
        except JsonError as error:
            raise ConfigurationError(f"a default of the prompt template is not JSON: {error}") from error
        unknown = [name for name in self._defaults if name not in self.fields]
        if unknown:
            has = list(self.fields)
            raise ConfigurationError(f"the prompt template has no field for the defaults {unknown}; it has {has}")

    @property
    def template(self) -> str:
        """The text of the template, with its fields."""
        return self._template

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields, each once, in their order."""
        return tuple(dict.fromkeys(name for _, name in self._parts if name is not None))

    def render(self, input: JsonValue) -> str:
        """Fill all fields, and return the text.

        Raises `InstructionsError` if a field has no value, or if the template has other fields than `{input}` and the
        input is not a mapping.
        """
        given = _fresh(input)
        if not isinstance(given, dict):
            if not set(self.fields) <= {"input"}:
                raise InstructionsError(
                    f"the prompt template has the fields {list(self.fields)}, so its input must be a mapping, not "
                    f"{type(given).__name__}; only a template whose one field is {{input}} takes it as it is"
                )
            given = {"input": given}
        values = {**self._defaults, **{name: _as_text(given[name]) for name in self.fields if name in given}}
        missing = [name for name in self.fields if name not in values]
        if missing:
            raise InstructionsError(f"the input has no value for the fields {missing} of the prompt template")
        return "".join(text + ("" if name is None else values[name]) for text, name in self._parts)

    def __repr__(self) -> str:
        return f"PromptTemplate({self.template!r})"

    def _fingerprint(self) -> str:
        return digest_of("template", self.template, canonical(dict(sorted(self._defaults.items()))))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InstructionsContext(Generic[Deps]):
    """What a function that makes instructions can read about the run.

    `messages` are the messages so far. `requester` is who asked for the run; None if nobody said. `facts` are the facts of
    the thread, if the agent works in an `Orchestrator`; else they are empty.
    """

    run_id: str
    thread_id: str | None
    deps: Deps = field(repr=False)
    messages: tuple[Message, ...] = field(repr=False)
    requester: Principal | None = None
    _store: Any = field(default=None, repr=False)
    facts: dict[str, Any] = field(default_factory=dict, repr=False)


Instructions: TypeAlias = str | PromptTemplate | Callable[..., object] | None
"""Text, a template, a function of the input (with or without a context, sync or async), or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledInstructions:
    """Instructions with everything decided that can be decided once. Made by `compile_instructions`.

    `fingerprint` is the same in every process as long as the text, or the code of the callable, is.
    """

    fingerprint: str
    is_async: bool = False
    _fixed: str | None = field(default=None, repr=False)
    _template: PromptTemplate | None = None
    _function: Callable[..., Any] | None = None
    _takes_context: bool = False

    def render(self, input: JsonValue, context: InstructionsContext[object]) -> str | None:
        """The instructions for this input, None if there are none.

        Raises `InstructionsError`, and `AsyncRequired` if they are made by an async function.
        """
        if self.is_async:
            raise AsyncRequired(f"the instructions {_name(self._function)} are async; use the agent's async methods")
        if self._function is None:
            return self._fixed if self._template is None else self._template.render(input)
        arguments = self._arguments(input, context)
        try:
            made = self._function(*arguments)
        except Exception as error:
            raise _raised(error) from error
        return _checked(made)

    async def arender(self, input: JsonValue, context: InstructionsContext[object]) -> str | None:
        """As `render`, for callables of both kinds."""
        if self._function is None or not self.is_async:
            return self.render(input, context)
        arguments = self._arguments(input, context)
        try:
            made = await self._function(*arguments)
        except Exception as error:
            raise _raised(error) from error
        return _checked(made)

    def _arguments(self, input: JsonValue, context: InstructionsContext[object]) -> tuple[object, ...]:
        given = _fresh(input)
        return (given, context) if self._takes_context else (given,)


def compile_instructions(instructions: Instructions) -> CompiledInstructions:
    """Check the instructions and decide how they are made. Raises `ConfigurationError` for what cannot be used so."""
    if instructions is None:
        return CompiledInstructions(fingerprint=digest_of("none"))
    if isinstance(instructions, str):
        text = clean(instructions)
        return CompiledInstructions(fingerprint=digest_of("text", text), _fixed=text)
    if isinstance(instructions, PromptTemplate):
        return CompiledInstructions(fingerprint=instructions._fingerprint(), _template=instructions)
    if not callable(instructions) or isinstance(instructions, type):
        raise ConfigurationError(
            f"instructions are a text, a PromptTemplate, a function or None, not {quoted(instructions)}"
        )
    if inspect.isgeneratorfunction(instructions) or inspect.isasyncgenfunction(instructions):
        raise ConfigurationError(f"the instructions {_name(instructions)} are a generator; return the whole text")
    what = f"the instructions {_name(instructions)}"
    return CompiledInstructions(
        fingerprint=_fingerprint(instructions),
        is_async=is_async(instructions),
        _function=instructions,
        _takes_context=takes_context(instructions, what, "input", ConfigurationError),
    )


def _parse(template: str) -> tuple[tuple[str, str | None], ...]:
    """The pieces of the template: text, and the field that follows it."""
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigurationError(
            f"the prompt template is malformed: {error}; write {{{{ and }}}} for braces"
        ) from error
    for _, name, spec, conversion in pieces:
        if name is not None and (not name.isidentifier() or spec or conversion):
            written = f"{{{name}{'!' + conversion if conversion else ''}{':' + spec if spec else ''}}}"
            raise ConfigurationError(
                f"the prompt template has {written}, but a field is a bare name such as {{customer}}; "
                "put the value itself into the input, and write {{ and }} for braces"
            )
    return tuple((text, name) for text, name, _, _ in pieces)


def _copy(value: JsonValue) -> JsonValue:
    return plain(canonical(value))


def _fresh(input: JsonValue) -> JsonValue:
    """A plain copy of the input that nobody else holds."""
    try:
        return _copy(input.model_dump(mode="json") if isinstance(input, BaseModel) else input)
    except JsonError as error:
        raise InstructionsError(f"the input is not JSON: {error}") from error


def _as_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else canonical(value)


def _raised(error: Exception) -> InstructionsError:
    return InstructionsError(f"the instructions raised {type(error).__name__}")


def _checked(made: object) -> str | None:
    if made is None:
        return None
    if isinstance(made, str):
        return clean(made)
    if inspect.iscoroutine(made):
        made.close()
        raise InstructionsError("the instructions gave a coroutine from a sync function; declare it with 'async def'")
    raise InstructionsError(f"the instructions must be a text or None, not {type(made).__name__}")


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _fingerprint(given: Callable[..., object]) -> str:
    function: Callable[..., object] = inspect.unwrap(
        getattr(given, "func", given)
    )  # the function in a partial or under a decorator
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    module = str(getattr(function, "__module__", ""))
    return digest_of("callable", module, _name(function), _code_digest(code) if code else "")


def _code_digest(code: types.CodeType) -> str:
    """A digest of what the code does: no addresses, file names or lines, so that it is the same in every process."""
    constants = [_constant(value) for value in code.co_consts]
    return digest_of(code.co_code.hex(), *code.co_names, *constants)


def _constant(value: object) -> str:
    if isinstance(value, types.CodeType):
        return _code_digest(value)
    if isinstance(value, tuple | frozenset):
        inner = [_constant(item) for item in value]
        return digest_of(type(value).__name__, *(sorted(inner) if isinstance(value, frozenset) else inner))
    return repr(value)
