"""Functions that say whether a human is asked about a call: checked once, and failing closed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from phronomy.errors import AsyncRequired, ConfigurationError
from phronomy.foundation import checks
from phronomy.records.decisions import Reject
from phronomy.tools.arguments import takes_context

Shown: TypeAlias = Callable[[], Mapping[str, object]]
"""Makes a copy of the arguments of a call, for a predicate alone: whatever it does to it, the body runs with what a human approved."""

_log = logging.getLogger("phronomy")


class ApprovalPredicate:
    """A predicate of the arguments, or of arguments and context. One that raises, or gives nonsense, means that a human is asked.

    `what` names it in errors and in the log. Raises the error given, for a signature that cannot be called.
    """

    def __init__(self, function: Callable[..., Any], what: str, error: type[ConfigurationError]) -> None:
        self._what = what
        self._function = function
        self._takes_context = takes_context(function, what, "args", error)
        self.is_async: bool = checks.is_async(function)

    def ask(self, shown: Shown, context: object) -> bool | Reject:
        """The answer of the predicate about a call. Raises `AsyncRequired` if it is async."""
        if self.is_async:
            raise AsyncRequired(f"{self._what} is async; use the agent's async methods")
        try:
            return self._answered(self._function(*self._given(shown, context)))
        except Exception as error:
            return self._asks(f"raised {type(error).__name__}")

    async def aask(self, shown: Shown, context: object) -> bool | Reject:
        """As `ask`, for predicates of both kinds."""
        if not self.is_async:
            return self.ask(shown, context)
        try:
            return self._answered(await self._function(*self._given(shown, context)))
        except Exception as error:
            return self._asks(f"raised {type(error).__name__}")

    def _given(self, shown: Shown, context: object) -> tuple[object, ...]:
        return (shown(), context) if self._takes_context else (shown(),)

    def _answered(self, answer: object) -> bool | Reject:
        if isinstance(answer, bool | Reject):
            return answer
        checks.close_unawaited(answer)
        return self._asks(f"answered with {type(answer).__name__}")

    def _asks(self, why: str) -> bool:
        _log.warning("%s %s, so a human is asked", self._what, why)
        return True
