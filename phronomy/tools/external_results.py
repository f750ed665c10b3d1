"""External tools: what such a tool may be made with, and whether a result that comes back is what it was said to return."""

from __future__ import annotations

import dis
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from pydantic import TypeAdapter

from phronomy.errors import ConfigurationError, ToolDefinitionError
from phronomy.foundation.json_text import JsonDict, JsonText, JsonValue, canonical, plain, plain_object
from phronomy.records.decisions import EXTERNAL, is_external
from phronomy.tools.json_schema.typed import Mistyped, read_typed, shape_of

if TYPE_CHECKING:
    from phronomy.tools.tool import Tool

_NEVER_RUN = ("idempotent", "timeout", "retries", "retry_on", "fallback", "calls")
"""Options of a body, and there is none here."""


def as_declared(tool: Tool) -> None:
    """Have an external tool be one in every respect: its source says so, and it always waits. Raises `ToolDefinitionError`."""
    if not isinstance(tool.external, bool):
        raise ToolDefinitionError(f"tool {tool.name}: external must be True or False")
    if not tool.external:
        if is_external(tool.source):
            raise ToolDefinitionError(
                f"tool {tool.name}: the source {EXTERNAL!r} is that of tools with external=True; give another"
            )
        return
    if given := [option for option in _NEVER_RUN if getattr(tool, option)]:
        raise ToolDefinitionError(
            f"tool {tool.name} is external, so nothing here runs it: leave out what would be for a body, {', '.join(given)}"
        )
    if tool.on_failure != "model" or tool.requires_approval not in (False, True):
        raise ToolDefinitionError(
            f"tool {tool.name} is external: each of its calls waits for a result, so leave out on_failure, and a predicate in"
            " requires_approval; a policy, or a guardrail of calls, may reject a call"
        )
    answers = tool.review.answers if tool.review is not None else ()
    if answers and "respond" not in answers:
        raise ToolDefinitionError(
            f"tool {tool.name} is external: each of its calls waits for a result, so the answers of its Approval need 'respond'"
        )
    tool.requires_approval = True
    if not is_external(tool.source):
        tool.source = EXTERNAL if tool.source == "local" else f"{EXTERNAL}:{tool.source}"


def _nothing() -> None: ...


def _refusing() -> None:
    raise NotImplementedError


def _telling() -> None:
    raise NotImplementedError("elsewhere")


def _shape(body: Callable[..., object]) -> tuple[list[str], tuple[str, ...], bool]:
    """The instructions in the body of a function, the names that it uses, and whether it returns anything."""
    steps = list(dis.get_instructions(body))
    raises = any(each.opname == "RAISE_VARARGS" for each in steps)  # what it is told is no result
    gives = any("CONST" in each.opname and each.argval is not None for each in steps)
    return [each.opname for each in steps], body.__code__.co_names, gives and not raises


_EMPTY: Final = [_shape(each) for each in (_nothing, _refusing, _telling)]
"""Bodies with nothing in them: a type checker may want the second of a function that returns something."""


def check_body(name: str, body: Callable[..., object]) -> None:
    """Refuse a body with anything in it: it would never run. Raises `ToolDefinitionError`."""
    function = getattr(body, "__func__", body)
    if hasattr(function, "__code__") and _shape(function) not in _EMPTY:
        raise ToolDefinitionError(
            f"tool {name} is external, so its body would never run: write `...` there, or `raise NotImplementedError`, in a"
            " function that is not async"
        )


def returned(name: str, body: Callable[..., object]) -> JsonDict | None:
    """The JSON Schema of what the signature says that a call returns; None if it says nothing. Raises `ToolDefinitionError`."""
    try:
        hint = get_type_hints(body, include_extras=True).get("return", Any)
    except Exception as error:
        raise ToolDefinitionError(f"tool {name}: its return type cannot be read ({type(error).__name__})") from error
    return schema_of(name, hint)


def described(body: Callable[..., object], *, by_alias: bool) -> JsonDict | None:
    """The JSON Schema of what the signature says that a body returns; None if it says nothing that can be described."""
    try:
        hint = get_type_hints(body, include_extras=True).get("return", Any)
        return None if hint is Any else TypeAdapter(hint).json_schema(by_alias=by_alias, mode="serialization")
    except Exception:  # pydantic raises many kinds here
        return None


def schema_of(name: str, returns: Any) -> JsonDict | None:
    """The JSON Schema of a type; None for `Any`. Raises `ToolDefinitionError`."""
    if returns is Any:
        return None
    try:
        return TypeAdapter(returns).json_schema()
    except Exception:  # of what is no type, pydantic quotes the value
        raise ToolDefinitionError(f"tool {name}: no JSON Schema can be made of its return type") from None


def text_of(schema: JsonDict | None) -> JsonText | None:
    """The JSON Schema of a result as the text that a store keeps."""
    return None if schema is None else canonical(schema)


def as_returned(tool: Tool, content: JsonValue) -> JsonValue:
    """The result of an external tool. A text that does not fit is read as typed input, as a form reads it."""
    if not isinstance(content, str) or tool.result_schema_text is None or fault(tool, content) is None:
        return content
    schema = plain_object(tool.result_schema_text)
    try:
        return plain(read_typed(content, shape_of(schema, schema)))
    except Mistyped:
        return content


def fault(tool: Tool, content: JsonValue) -> str | None:
    """Why this is no result of an external tool; None if it is."""
    size = len(content) if isinstance(content, str) else len(canonical(content))
    if size > tool.max_result_size:
        return f"a result of {tool.name} has at most max_result_size={tool.max_result_size:,} characters, and this has {size:,}"
    if tool.result_schema_text is None:
        return None
    from phronomy.tools.json_schema.answers import misfit  # noqa: PLC0415  # it loads jsonschema

    wrong = misfit(content, plain(tool.result_schema_text), judge="python")
    return None if wrong is None else f"the result is not of the type that {tool.name} returns: {wrong}"


def not_here(name: str) -> ConfigurationError:
    """The error for whoever would run what does not run here."""
    return ConfigurationError(
        f"tool {name} is external: nothing here runs it. Its calls wait, and Respond(content=...) gives what came of them"
    )
