"""Whether the options of a tool are what they may be. Each is a `ToolDefinitionError` that says what is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from phronomy.errors import ToolDefinitionError
from phronomy.foundation import checks
from phronomy.foundation.ids import LONGEST, is_findable
from phronomy.foundation.json_text import clean
from phronomy.foundation.quoting import quoted_word
from phronomy.records.decisions import OnExpiry
from phronomy.records.scopes import NEEDED, scopes_in

if TYPE_CHECKING:
    from phronomy.tools.tool import Tool


def refused(tool: Tool, option: str, needed: str) -> ToolDefinitionError:
    """The error for an option that is not what is needed."""
    return ToolDefinitionError(f"tool {tool.name}: {option} must be {needed}, not {quoted_word(getattr(tool, option))}")


def check_options(tool: Tool) -> None:
    """Refuse what no tool can have."""
    if not isinstance(tool.description, str):
        raise refused(tool, "description", "a text")
    if not isinstance(tool.source, str) or not tool.source or clean(tool.source) != tool.source:
        raise refused(tool, "source", "a text that is not empty, without lone surrogates")
    if not isinstance(tool.return_direct, bool):
        raise refused(tool, "return_direct", "True or False")
    if not isinstance(tool.idempotent, bool):
        raise refused(tool, "idempotent", "True or False")
    for option in ("timeout", "approval_timeout"):
        if not checks.is_timeout(getattr(tool, option)):
            raise refused(tool, option, "a number of seconds above 0, or None")
    if tool.on_expiry not in (None, *get_args(OnExpiry)):
        raise refused(tool, "on_expiry", "'reject', 'cancel' or 'stay', or None for what the agent says")
    if tool.risk is not None and not (isinstance(tool.risk, str) and tool.risk and is_findable(tool.risk)):
        raise refused(
            tool, "risk", f"None, or a text, not empty, of at most {LONGEST:,} bytes in UTF-8, without NUL characters"
        )
    if (scopes := scopes_in(tool.scopes)) is None:
        raise refused(tool, "scopes", NEEDED)
    tool.scopes = scopes
    if not checks.is_count(tool.max_result_size) or tool.max_result_size == 0:
        raise refused(tool, "max_result_size", "a number of characters above 0")


def check_failure_options(tool: Tool) -> None:
    """Refuse ways to deal with failures that would do the work twice, or are none."""
    if not checks.is_count(tool.retries):
        raise refused(tool, "retries", "0 or a whole number above it")
    if not checks.is_number(tool.retry_wait) or tool.retry_wait < 0:
        raise refused(tool, "retry_wait", "a number of seconds, 0 or more")
    if not checks.is_series(tool.retry_on) or not all(map(checks.is_exception_class, tool.retry_on)):
        raise refused(tool, "retry_on", "a tuple of exception classes")
    tool.retry_on = tuple(tool.retry_on)
    if tool.retries and not (tool.idempotent or tool.retry_on):
        raise ToolDefinitionError(
            f"tool {tool.name}: retries need idempotent=True, or retry_on= with the exceptions that the body "
            "raises before it has any effect; a retry could otherwise do the work twice"
        )
    if tool.on_failure not in ("model", "human", "stop"):
        raise refused(tool, "on_failure", "'model', 'human' or 'stop'")
    for option in ("fallback", "calls"):
        if not checks.is_series(getattr(tool, option)):
            raise refused(tool, option, "a tuple of tools")


def check_calls(tool: Tool) -> None:
    """Refuse tools that a body cannot call, and options that do not go with calls of a body."""
    names = [each.name for each in tool.calls]
    if len(set(names)) < len(names):
        raise ToolDefinitionError(f"tool {tool.name}: two of the tools in calls have one name")
    # A body that is left in the middle would go on calling, and a fallback would find what another tool has called.
    wrong = [option for option in ("timeout", "fallback", "may_be_left") if tool.calls and getattr(tool, option)]
    if wrong:
        raise ToolDefinitionError(
            f"tool {tool.name}: calls does not go with {', '.join(wrong)}: give that to the tools that it calls"
        )
