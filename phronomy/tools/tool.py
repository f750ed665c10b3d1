"""Tools: what a model may call, when a human is asked first, and how a call is read, run and told."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import inspect
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Self, TypeAlias, TypedDict, cast, overload

from pydantic import ValidationError
from typing_extensions import TypeVar, Unpack

from phronomy.concurrency.workers import ToolCancelled
from phronomy.errors import AsyncRequired, ConfigurationError, ToolDefinitionError
from phronomy.foundation import checks, spelling
from phronomy.foundation.json_text import (
    JsonDict,
    JsonError,
    JsonText,
    JsonValue,
    canonical,
    canonical_form,
    clean,
    plain_object,
)
from phronomy.foundation.lazy_modules import asyncio
from phronomy.foundation.quoting import HIDDEN, quoted, quoted_name, without
from phronomy.records.calls import CallResult
from phronomy.records.decisions import Gate, OnExpiry, Reject, ToolIdentity
from phronomy.records.record import EMPTY
from phronomy.tools import external_results
from phronomy.tools.approval import Approval, ApprovalPredicate, Review, TitleOfArguments
from phronomy.tools.arguments import Arguments, Unfit, places_of
from phronomy.tools.context import BODY, InvalidArguments, Predicate, ToolContext
from phronomy.tools.docstring import read_docstring
from phronomy.tools.options import check_calls, check_failure_options, check_options, refused
from phronomy.tools.parameters import parameters_of
from phronomy.tools.results import cut, rendered, with_answer

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("phronomy")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


Requirement: TypeAlias = bool | Predicate | Approval
"""When a call needs approval: True, False, a predicate, or an `Approval`."""


class ToolOptions(TypedDict, total=False):
    """The options of `@tool(...)`. The attributes of `Tool` with the same names describe them."""

    name: str
    description: str
    requires_approval: Requirement
    idempotent: bool
    timeout: float | None
    retries: int
    retry_on: Sequence[type[Exception]]
    retry_wait: float
    fallback: Sequence[Tool | type[Tool] | Callable[..., object]]
    on_failure: Literal["model", "human", "stop"]
    redact: Iterable[str]
    max_result_size: int
    source: str
    approval_timeout: float | None
    on_expiry: OnExpiry | None
    risk: str | None
    external: bool
    scopes: Iterable[str]
    return_direct: bool
    calls: Sequence[Tool | type[Tool] | Callable[..., object]]


class Tool(checks.NoFunction):
    """A tool that a model may call. Subclass it and write `execute`; the model fills in the parameters of `execute`.

        class Wipe(Tool):
            name = "wipe"
            requires_approval = True

            def execute(self, path: str) -> str: ...

    A tool is checked when an instance is built, and cannot change after that. If a subclass has an `__init__`, it must
    call `super().__init__()`. Raises `ToolDefinitionError`.
    """

    name: str = ""
    """The name of the tool for the model: letters, digits, `_` and `-`, at most 64.

    Default: the name of the class or function.
    """

    description: str = ""
    """The description of the tool for the model. Default: from the docstring."""

    requires_approval: Requirement = False
    """Whether a human must approve a call: True (always), False (never), a predicate, or an `Approval`.

    An `Approval` also says what the human is shown and may answer; its `when` is what you read here afterwards. A
    predicate is a function of the arguments, or of the arguments and the context. In a class, write it as a method,
    or wrap the function in `staticmethod`.
    """

    idempotent: bool = False
    """Whether a call may run twice with the same idempotency key, and has the same effect as once."""

    timeout: float | None = None
    """The seconds that one attempt may take. None: no limit."""

    retries: int = 0
    """How many attempts may follow after the first one has failed."""

    retry_on: tuple[type[Exception], ...] = ()
    """The exceptions that the body raises only before it has any effect.

    Only these are retried, if the tool is not idempotent.
    """

    retry_wait: float = 0.1
    """The seconds before the first retry. Each later pause is twice as long, up to 5 seconds."""

    fallback: tuple[Tool, ...] = ()
    """The tools to try in order, with the same arguments, after all attempts have failed.

    Each has its own approval requirement.
    """

    on_failure: Literal["model", "human", "stop"] = "model"
    """What happens after all attempts have failed.

    `"model"`: the model reads the error. `"human"`: a human decides. `"stop"`: the run fails.
    """

    redact: frozenset[str] = frozenset()
    """The parameters whose values stay out of logs, traces, reprs and errors."""

    max_result_size: int = 100_000
    """How many characters of a result the model is given."""

    source: str = "local"
    """Where the tool comes from. It is part of the identity of the tool."""

    approval_timeout: float | None = None
    """The seconds that a human has to decide on a call. None: as the agent says."""

    on_expiry: OnExpiry | None = None
    """What happens if nobody decides in time. None: as the agent says.

    `"reject"`: the call is settled as expired. `"cancel"`: the run ends as well. `"stay"`: the call stays pending.
    """

    risk: str | None = None
    """How much is at stake, in your words.

    The person who decides sees it, and `store.pending(risk=...)` filters by it.
    """

    external: bool = False
    """Whether the tool is carried out elsewhere, such as on a page.

    Each call then waits for a `Respond`, and none runs here.
    """

    scopes: frozenset[str] = frozenset()
    """The scopes that a run needs for the tool. For a run without one of them, the tool is not there.

    The model of such a run does not see the tool, and a call of it is refused.
    """

    return_direct: bool = False
    """If True, the result of a call is the answer of the run, without another model call.

    A call that fails, or is rejected, does not end the run. A fallback says for itself whether its result is the answer.
    """

    calls: tuple[Tool, ...] = ()
    """The tools that the body may call through their gates, with `ToolContext.call_tool`."""

    is_async: bool
    """Whether `execute` is async."""

    may_be_left: bool = False
    """Whether a run that is paused from outside may leave this tool while it runs.

    A sync tool then runs in a thread of its own.
    """

    predicate_is_async: bool
    """Whether `requires_approval` is an async function."""

    review: Review | None
    """What a human is shown and may answer, if `requires_approval` was an `Approval`."""

    schema_text: str
    """The JSON Schema of the parameters as text, with its keys in order: what `schema_hash` covers, and what a store keeps."""

    schema_hash: str
    """The SHA-256 of the JSON Schema of the parameters, in hexadecimal. The order of keys does not change it."""

    result_schema_text: JsonText | None
    """The JSON Schema of the result of an external tool as text; None where any will do, and of other tools."""

    description_hash: str
    """The SHA-256 of the description, in hexadecimal: what requests name it by, and what a store keeps it under."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        _SPELT.check(cls)

    def __init__(self) -> None:
        _SPELT.check(type(self))  # it may have been given more since it was made
        body = self._target()
        where = f"function {getattr(body, '__name__', type(body).__name__)}"
        spelling.check_function(where, body, ToolDefinitionError, "@tool(...), or an attribute of the class")
        for option in ToolOptions.__annotations__:  # from here on a change of the class changes no tool that is in use
            if isinstance(getattr(type(self), option), property):
                raise ToolDefinitionError(f"{type(self).__name__}: {option} is a property; make it a plain attribute")
            object.__setattr__(self, option, getattr(self, option))  # an option is known: nothing is to be checked
        self.name = self.name or self._default_name()
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ToolDefinitionError(
                f"{quoted_name(self.name)} cannot name a tool; use 1 to 64 letters, digits, '_' and '-'"
            )
        check_options(self)
        check_failure_options(self)
        asked = self.requires_approval
        self.review = self._review_asked()
        external_results.as_declared(self)
        self._check_gate()
        self.fallback = tuple(self._fallback(each, asked) for each in self.fallback)
        self.calls = tuple(as_tool(each) for each in self.calls)
        check_calls(self)
        self._body = _checked_body(self.name, body)
        self.result_schema_text = external_results.text_of(self._result_schema(body)) if self.external else None
        self.is_async = _awaits(self.name, body)
        description, told = self._documentation(body)
        self.description = self.description or description
        self._arguments, self._context_name = self._signature(body, told)
        self._check_redact()
        if self.review is not None and isinstance(self.review.title, TitleOfArguments):
            self.review.title.check(self._arguments.names)
        self.fallback = tuple(each._redacting(self.redact) for each in self.fallback)
        self.schema_text, self.schema_hash = _sorted_and_hashed(self._arguments.schema)
        self.description_hash = hashlib.sha256(clean(self.description).encode()).hexdigest()
        self._identity = ToolIdentity(
            source=self.source, name=self.name, schema_hash=self.schema_hash, gate=self.gate, risk=self.risk
        )
        self._built = True

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Do the work of the tool.

        Write this method in a subclass, sync or async, with a type hint for each parameter.
        """
        raise NotImplementedError

    if not TYPE_CHECKING:  # a type checker refuses what is not declared

        def __setattr__(self, name: str, value: object) -> None:
            if name not in _SPELT.known and name[:1] != "_":  # a tool has thirty of these
                _SPELT.check_attribute(name, self, value)
            # The gate among them: changed here it would be asked for by some calls of a run and not by others.
            if name in _FIXED and self.__dict__.get("_built"):
                raise ConfigurationError(f"tool {self.name}: {name} is fixed once the tool is built; build another")
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, approval: {self.gate}>"

    # What it is

    @property
    def gate(self) -> Gate:
        """When the tool asks for approval: always, never, or when its predicate says so."""
        if isinstance(self.requires_approval, bool):
            return "always" if self.requires_approval else "never"
        return "predicate"

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, as a fresh copy."""
        return plain_object(self._arguments.schema)

    @property
    def asks(self) -> bool:
        """True if a call may need an approval, by the tool itself."""
        return self.gate != "never"

    def identity(self, path: str = "") -> ToolIdentity:
        """The identity of the tool, for an agent at `path` in the run."""
        return self._identity.evolve(path=path) if path else self._identity

    def definition(self) -> JsonDict:
        """The definition of the tool for the model, in the form of the chat-completions protocol."""
        told: JsonDict = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": told}

    # What a call passes through, in this order

    @property
    def reads_apart(self) -> bool:
        """Whether async code validates the arguments in a thread, because the schema comes from elsewhere."""
        return self._arguments.come_from_elsewhere

    def given_again(self, args: Mapping[str, Any]) -> Self:
        """Give the tool as it reads an edit of these arguments. Most read it as they read what a model sends."""
        return self

    def read(self, arguments: str) -> JsonText:
        """Validate the model's arguments, fill in the defaults, and return their canonical text.

        If you pass its result to it again, it returns the same text. Raises `InvalidArguments`.
        """
        try:
            text = canonical_form(arguments if arguments.strip() else "{}")
        except JsonError as error:
            raise self._invalid(self._why_invalid(error)) from None
        if text[:1] != "{" and text != "null":  # for a call without arguments, providers send nothing or null
            raise self._invalid("they must be a JSON object")
        try:
            return self._arguments.read(EMPTY if text == "null" else text)
        except Exception as error:
            if text == "null":
                raise self._invalid("they must be a JSON object") from None
            raise self._invalid(self._why_invalid(error), self._places(error, plain_object(text))) from None

    def bind(self, args_text: str) -> dict[str, object]:
        """Make the Python values for canonical arguments, new at each call. Raises `InvalidArguments`."""
        try:
            return self._arguments.bind_exactly(args_text)
        except Exception as error:
            raise self._invalid(self._why_invalid(error)) from None

    def ask_gate(self, values: Mapping[str, object], context: ToolContext[object]) -> bool | Reject:
        """Whether a human must approve a call with these arguments, or a `Reject` if nobody is to be asked.

        If the predicate raises, or returns anything but True, False or a `Reject`, a human must approve. Raises
        `AsyncRequired` if the predicate is async.
        """
        if self._predicate is None:
            return self.requires_approval is True
        return self._predicate.ask(functools.partial(self.shown, values), context)

    async def aask_gate(self, values: Mapping[str, object], context: ToolContext[object]) -> bool | Reject:
        """The async version of `ask_gate`. It takes sync and async predicates."""
        if self._predicate is None:
            return self.requires_approval is True
        return await self._predicate.aask(functools.partial(self.shown, values), context)

    def shown(self, values: Mapping[str, object]) -> Mapping[str, object]:
        """A copy of the arguments to show to people. Changes of the copy do not reach the body."""
        return MappingProxyType(self._arguments.bind(self._arguments.write(dict(values))))

    def shown_redacted(self, values: Mapping[str, object]) -> Mapping[str, object]:
        """As `shown`, with the values of redacted parameters hidden."""
        return MappingProxyType(self.redacted(self.shown(values)))

    def call(self, values: Mapping[str, object], context: ToolContext[object]) -> object:
        """Run the body in this thread. Raises what the body raises, and `AsyncRequired` if the body is async."""
        if self.external:
            raise external_results.not_here(self.name)
        if self.is_async:
            raise AsyncRequired(f"tool {self.name} is async; use the agent's async methods")
        try:
            result = self._body(**values, **self._injected(context))
        # The body's own doing: a cancellation of the run does not come this way.
        except asyncio.CancelledError as error:
            raise ToolCancelled(f"{self.name} was cancelled from within") from error
        if hasattr(type(result), "__await__"):  # the type is asked, not the result, which may be anything
            checks.close_unawaited(result)
            raise TypeError(f"tool {self.name} returned an awaitable from a sync function; declare it with 'async def'")
        return result

    async def acall(self, values: Mapping[str, object], context: ToolContext[object]) -> object:
        """Run an async body. Raises `ConfigurationError` if the body is sync, because it would block the event loop."""
        if not self.is_async:
            raise ConfigurationError(f"tool {self.name} is sync; run it with call, in a thread")
        return await self._body(**values, **self._injected(context))

    def render(self, value: object) -> CallResult:
        """Turn a result into the form that the model reads: text as it is, images as images, any other value as JSON.

        If a result is not JSON, or cannot be stored, the call is settled as failed, with a note that it did run.
        """
        return rendered(value, self.max_result_size)

    def with_answer(self, result: CallResult, value: object, *, exact: bool) -> CallResult:
        """The result with the whole value in it, as the answer of the run.

        With `exact`, the value is kept as the JSON from which its type reads it back.
        """
        return with_answer(result, value, exact=exact)

    def result_schema(self, *, by_alias: bool = True) -> JsonDict | None:
        """The JSON Schema of the results, by the signature or the declaration of the tool; None: nothing is said of them."""
        if self.external:
            return None if self.result_schema_text is None else plain_object(self.result_schema_text)
        return external_results.described(self._body, by_alias=by_alias)

    def check_response(self, content: JsonValue) -> None:
        """Check a result that a human gives in place of a call. Raises `InvalidArguments` if it is not valid."""
        if self.external and (wrong := external_results.fault(self, content)) is not None:
            raise InvalidArguments(wrong)

    def read_response(self, content: JsonValue) -> JsonValue:
        """A result as the tool returns it: typed text is read as a value of its type. Other text stays as it is."""
        return external_results.as_returned(self, content) if self.external else content

    # What others may see

    def redacted(self, args: Mapping[str, object]) -> dict[str, object]:
        """A copy of the arguments, in which the values of redacted parameters are hidden."""
        return {name: HIDDEN if name in self.redact else value for name, value in args.items()}

    def describe_error(self, error: BaseException, values: Mapping[str, object]) -> str:
        """The type and the text of an error, without the values of redacted parameters."""
        try:
            told = str(error)
        except Exception:
            told = ""
        told = without(told, self._secrets(values))
        kind = type(error).__name__
        return self._cut(clean(f"{kind}: {told}" if told else kind))

    # How it is made

    def _target(self) -> Callable[..., object]:
        if type(self).execute is Tool.execute:
            raise ToolDefinitionError(f"{type(self).__name__} has no execute; write one, or put @tool on a function")
        return self.execute

    def _default_name(self) -> str:
        return spelling.as_function(type(self).__name__)

    def _documentation(self, body: Callable[..., object]) -> tuple[str, dict[str, str]]:
        own = type(self).__mro__[: type(self).__mro__.index(Tool)]
        texts = [text for text in (*(each.__doc__ for each in own), body.__doc__) if text]
        read = [read_docstring(text) for text in texts]
        told = {name: text for _, each in reversed(read) for name, text in each.items()}
        return next((description for description, _ in read if description), ""), told

    def _signature(self, body: Callable[..., object], told: dict[str, str]) -> tuple[Arguments, str | None]:
        parameters, context_name = parameters_of(self.name, body, ToolContext)
        return Arguments(self.name, parameters, told), context_name

    def _result_schema(self, body: Callable[..., object]) -> JsonDict | None:
        """The JSON Schema of what is given as the result of a call that is carried out elsewhere; None: it may be any JSON value."""
        external_results.check_body(self.name, body)
        return external_results.returned(self.name, body)

    def _review_asked(self) -> Review | None:
        """What an `Approval` says beside when a human is asked; `requires_approval` is that alone from here on."""
        given = self.requires_approval
        if not isinstance(given, Approval):
            return None
        self.requires_approval = given.when
        return Review(given, f"the approval of tool {self.name}", ToolDefinitionError)

    def _check_gate(self) -> None:
        predicate: object = self.requires_approval
        # A function in a class body is a method if it takes self, else a plain predicate that must not be bound.
        if inspect.ismethod(predicate) and predicate.__self__ is self:
            names = list(inspect.signature(predicate.__func__).parameters)
            predicate = predicate if names[:1] == ["self"] else predicate.__func__
        self._predicate: ApprovalPredicate | None = None
        if predicate is not True and predicate is not False:
            if not callable(predicate):
                raise refused(
                    self,
                    "requires_approval",
                    "exactly True, exactly False, a function of the arguments, or an Approval",
                )
            what = f"the approval predicate of tool {self.name}"
            self._predicate = ApprovalPredicate(predicate, what, ToolDefinitionError)
        self.predicate_is_async = self._predicate is not None and self._predicate.is_async
        self.requires_approval = cast("bool | Predicate", predicate)

    def _fallback(self, source: Tool | type[Tool] | Callable[..., object], asked: Requirement) -> Tool:
        """The tool that stands in for this one. A plain function does the same work, so it needs the same approval."""
        if isinstance(source, Tool | type) or not checks.is_function(source) or self.gate == "never":
            return as_tool(source)
        return FunctionTool(source, requires_approval=asked if isinstance(asked, Approval) else self.requires_approval)

    def _redacting(self, names: frozenset[str]) -> Tool:
        """The tool as it stands in for one that redacts these parameters: it gets the same values, so it redacts them too."""
        if names <= self.redact:
            return self
        found = copy.copy(self)  # elsewhere it is what its author said
        # Also where it does not declare the parameter: a tool of a server may take more than it declares.
        object.__setattr__(found, "redact", self.redact | names)
        return found

    def _check_redact(self) -> None:
        if not checks.is_series(self.redact):
            raise refused(self, "redact", "a set of parameter names")
        unknown = [name for name in self.redact if name not in self._arguments.names]
        if unknown:
            wrong, known = ", ".join(map(quoted_name, unknown)), ", ".join(self._arguments.names) or "none"
            raise ToolDefinitionError(f"tool {self.name}: redact names {wrong}, but the parameters are: {known}")
        self.redact = frozenset(self.redact)

    # How it works

    def _invalid(self, why: str, places: Sequence[tuple[str, str]] = ()) -> InvalidArguments:
        return InvalidArguments(f"The arguments of {self.name} are not valid: {why}", places)

    def _places(self, error: Exception, value: JsonDict) -> list[tuple[str, str]]:
        return places_of(error, value, self.redact) if isinstance(error, ValidationError) else []

    def _why_invalid(self, error: Exception) -> str:
        """The fault of the arguments, for the model. Keys and users' own messages may show redacted values: those are left out."""
        if isinstance(error, JsonError) and self.redact:
            return "they are not strict JSON"
        if isinstance(error, Unfit | JsonError):
            return error.told(self.redact) if isinstance(error, Unfit) else str(error)
        if not isinstance(error, ValidationError):
            return f"they could not be read ({type(error).__name__})"
        told = []
        for each in error.errors(include_url=False, include_input=False, include_context=False):
            if each["loc"] and each["loc"][0] in self.redact:
                told.append(f"{each['loc'][0]}: not valid ({each['type']})")
            else:
                told.append(f"{'.'.join(str(part)[:80] for part in each['loc'])}: {each['msg']}")
        return clean("; ".join(told[:10]))

    def _injected(self, context: ToolContext[object]) -> dict[str, object]:
        return {self._context_name: context} if self._context_name else {}

    def _cut(self, text: str) -> str:
        return cut(text, self.max_result_size)

    def _secrets(self, values: Mapping[str, object]) -> set[str]:
        """The forms in which the values of redacted parameters may stand in a message."""
        found: set[str] = set()
        # As JSON has them, and as the body has them: a time, or bytes, are written otherwise there.
        forms: list[Mapping[str, object]] = [values]
        with contextlib.suppress(Exception):
            forms.append(self._arguments.bind(canonical(dict(values))))
        for form in forms:
            for name in self.redact & form.keys():
                found |= {str(form[name]), repr(form[name])}
        try:
            shown: Mapping[str, object] = plain_object(self._arguments.write(dict(values)))
        except Exception:
            shown = values
        for leaf in checks.leaves([shown[name] for name in self.redact & shown.keys()]):
            found |= {leaf, repr(leaf)[1:-1], json.dumps(leaf)[1:-1], json.dumps(leaf, ensure_ascii=False)[1:-1]}
        return found - {"", "None", "True", "False", "null", "true", "false"}


_SPELT = spelling.Options(Tool, ToolOptions.__annotations__, ToolDefinitionError, typed=ToolOptions, closed=True)

_FIXED = frozenset(
    {
        *(*ToolOptions.__annotations__, "is_async", "predicate_is_async", "review"),
        *("schema_hash", "schema_text", "result_schema_text", "description_hash", "_body", "_identity", "_predicate"),
    }
)


class FunctionTool(Tool, Generic[P, R]):
    """A function as a tool. You can still call it like the function, for example in a test.

    Inside the body of a tool or a node, a tool that may need an approval cannot be called like this (`ConfigurationError`): the
    body declares it in `calls`, and uses `ToolContext.call_tool`.
    """

    function: Callable[P, R]
    """The function itself."""

    def __init__(self, function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> None:
        spelling.check_options("a tool", options, ToolOptions.__annotations__, ToolDefinitionError)
        if not checks.is_function(function):
            raise ToolDefinitionError(f"{quoted(function)} is not a function; wrap it in one to make it a tool")
        if (found := checks.wrapped_tool(function)) is not None:
            raise ToolDefinitionError(
                f"{function.__name__} wraps {found!r}, whose options would not count: put @tool on the outermost function, with its"
                " options"
            )
        asks = options.get("requires_approval", False) is not False or options.get("external") or options.get("calls")
        declared = options.get("calls", ())
        declared = tuple(declared) if checks.is_series(declared) else ()
        if not asks and (found := checks.held_tool(function, declared)) is not None:
            raise ToolDefinitionError(
                f"{function.__name__} has {found!r} at hand, and would run it without the approval that it asks for: give this tool"
                " requires_approval too, declare it in calls=[...] and use context.call_tool, or call a plain function"
            )
        functools.update_wrapper(self, function, updated=())
        self.function = function
        for option, value in options.items():
            setattr(self, option, value)
        super().__init__()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.execute(*args, **kwargs)

    def execute(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        if self.external:
            raise external_results.not_here(self.name)
        # Who runs the body knows the policies: they are of the agents and graphs around it, and no matter of the tool.
        if (body := BODY.get()) is not None and (self.gate != "never" or body.gates(self)):
            raise ConfigurationError(
                f"tool {self.name} may need an approval, and a body that calls it like a function would run it without: declare it"
                f" (calls=[{self.name}]) and use context.call_tool({self.name!r}, ...). Its function alone is in .function"
            )
        return self.function(*args, **kwargs)

    def _target(self) -> Callable[..., object]:
        return self.function

    def _default_name(self) -> str:
        return self.function.__name__

    def _documentation(self, body: Callable[..., object]) -> tuple[str, dict[str, str]]:
        return read_docstring(body.__doc__ or "")


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a function a tool: `@tool`, or `@tool(requires_approval=True)` with any attribute of `Tool`.

    The name, the description and the JSON Schema come from the signature, the type hints and the docstring. Raises
    `ToolDefinitionError`.
    """
    if function is not None:
        return FunctionTool(function, **options)
    return lambda function: FunctionTool(function, **options)


def as_tool(source: Tool | type[Tool] | Callable[..., object]) -> Tool:
    """The tool that is meant: a tool is one, a `Tool` class is built, a function becomes one that needs no approval.

    Raises `ToolDefinitionError` for anything else.
    """
    if isinstance(source, Tool):
        if "_built" not in source.__dict__:
            raise ToolDefinitionError(f"{type(source).__name__} is not built: call super().__init__() in its __init__")
        return source
    if isinstance(source, type) and issubclass(source, Tool):
        try:
            return as_tool(source())
        except TypeError as error:
            raise ToolDefinitionError(f"{source.__name__} needs arguments to be built; pass an instance") from error
    if checks.is_function(source):
        return FunctionTool(source)
    of_run = ": its as_tool() gives one" if hasattr(source, "as_tool") else "; pass a function, a Tool, or a Tool class"
    raise ToolDefinitionError(f"{quoted(source)} is not a tool{of_run}")


@functools.lru_cache(maxsize=256)
def _sorted_and_hashed(schema: JsonText) -> tuple[str, str]:
    """The schema with its keys in order, and the hash of that, made once: tools may be made anew for each request."""
    text = json.dumps(plain_object(schema), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text, hashlib.sha256(text.encode()).hexdigest()


def _awaits(name: str, body: Callable[..., object]) -> bool:
    try:
        return checks.awaits(body)
    except ConfigurationError as error:
        raise ToolDefinitionError(f"tool {name}: {error}") from None


def _checked_body(name: str, body: Callable[..., object]) -> Callable[..., Any]:
    if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in checks.layers_of(body)):
        raise ToolDefinitionError(f"tool {name} is a generator; return the whole result instead of parts of it")
    return body
