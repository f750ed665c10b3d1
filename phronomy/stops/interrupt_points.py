"""Interrupt points: what a graph calls behind a node where it is to stop. It asks whether to go on, and does nothing itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar, Final

from phronomy.foundation.json_text import JsonText, JsonValue, canonical, plain_object
from phronomy.tools.arguments import Arguments
from phronomy.tools.context import InvalidArguments
from phronomy.tools.tool import Tool

AFTER: Final = "after"
"""The source of an interrupt point, as a tool, and the first part of the ids of its calls."""


_NONE: Final = JsonText("{}")


class LeanTool(Tool):
    """A tool whose arguments are left out where they say nothing: most calls of a graph's give none."""

    _known: ClassVar[dict[str, tuple[Arguments, str | None]]] = {}

    def _signature(self, body: Callable[..., object], told: dict[str, str]) -> tuple[Arguments, str | None]:
        # All of a kind have one signature, and a graph has many nodes.
        kind = body.__qualname__
        if kind not in self._known:
            self._known[kind] = super()._signature(body, {})
        return self._known[kind]

    def read(self, arguments: str) -> JsonText:
        """The text of the arguments that are given. Raises `InvalidArguments`."""
        if arguments == _NONE:
            return _NONE  # every argument has a default, which says nothing: most calls of a graph are read so, several times
        whole, given = plain_object(super().read(arguments)), plain_object(arguments or "{}")
        return canonical({name: value for name, value in whole.items() if name in given})

    def bind(self, args_text: str) -> dict[str, object]:
        """The arguments that are given; the others are left to their defaults."""
        return {**plain_object(args_text)}


class InterruptPoint(LeanTool):
    """Stands between a node that is finished and what follows. It does nothing, once somebody has let it."""

    source = AFTER
    idempotent = True

    def __init__(self, node: str) -> None:
        self.name = node
        super().__init__()

    def execute(self, reason: str | None = None) -> str:
        """Go on."""
        return "{}"

    def check_response(self, content: JsonValue) -> None:
        """Refuse a result: it asks whether to go on, and nothing else. Raises `InvalidArguments`."""
        raise InvalidArguments(f"It waits after node {self.name}, which is through: approve it to go on, or reject it.")


@lru_cache(maxsize=1024)
def interrupt_point(node: str) -> InterruptPoint:
    """The interrupt point behind a node, made once: a tool takes long to check, and is fixed once it is built."""
    return InterruptPoint(node)
