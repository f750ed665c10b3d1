"""How type checkers see `on_approval_required`: it registers a handler, and in a subclass a method of the name is the handler.

The two have different arguments, so as plain methods the second would be no override of the first. Nothing of this runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias, TypeVar, overload

from phronomy.engine.spec import Handler
from phronomy.records.decisions import Approve, Defer, Reject

Said: TypeAlias = bool | Approve | Reject | Defer | None
"""What a handler may answer."""


class Written(Protocol):
    """An agent whose class has the method."""

    def on_approval_required(self, name: str, args: dict[str, Any], /) -> Said | Awaitable[Said]:
        """Answer for a call."""


A = TypeVar("A")
W = TypeVar("W", bound=Written)  # not plain `Written`: mypy would take an agent of `Any` for both, and give up


class Registers(Protocol):
    """What `on_approval_required` is of an agent: what registers a handler, or the handler that its class has."""

    def __call__(self, agent: Any, name: str, args: dict[str, Any], /) -> object:
        """Answer for a call: what a method of the name takes."""

    @overload
    def __get__(self, agent: None, owner: type, /) -> Any: ...
    @overload
    def __get__(self, agent: W, owner: type[W] | None = None, /) -> Callable[..., object]: ...
    @overload
    def __get__(self, agent: A, owner: type[A] | None = None, /) -> Callable[[Handler], A]: ...
