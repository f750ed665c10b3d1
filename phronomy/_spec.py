"""An agent's configuration as the drivers see it: fixed, checked, resolved."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from phronomy import _rules
from phronomy._runner import Handler, Nested
from phronomy.checkpoint import AgentRef, Checkpoint
from phronomy.errors import AsyncRequired, ConfigurationError
from phronomy.instructions import CompiledInstructions
from phronomy.models.base import Model, ModelSettings
from phronomy.tools import Tool, as_tool
from phronomy.types import Call, Move, Outcome


@dataclass(frozen=True, kw_only=True)
class AgentSpec:
    """The rules and the things of an agent."""

    kind: str = "agent"
    name: str
    model: Model
    settings: ModelSettings
    instructions: CompiledInstructions
    tools: Mapping[str, Tool]
    handler: Handler | None
    handler_is_async: bool
    max_turns: int | None
    max_parallel: int

    def plan(self, state: Checkpoint) -> Move:
        """What comes next in this state."""
        return _rules.plan(state, self)

    def apply(self, state: Checkpoint, outcome: Outcome) -> Checkpoint:
        """The state after this outcome."""
        return _rules.apply(state, outcome)

    def tool(self, call: Call) -> Tool | None:
        """The tool that was asked for, or the fallback that it has come to."""
        asked = self.tools.get(call.name)
        if asked is None or call.fallback == 0:
            return asked
        return asked.fallback[call.fallback - 1] if call.fallback <= len(asked.fallback) else None

    def nested(self, state: Checkpoint, call: Call) -> Nested | None:
        """No run is nested in a call of an agent."""
        return None

    @property
    def ref(self) -> AgentRef:
        """What a checkpoint notes of the agent."""
        tools = {name: [tool.schema_hash, tool.gate] for name, tool in self.tools.items()}
        facts = {"tools": tools, "instructions": self.instructions.fingerprint, "model": self.model.name}
        return AgentRef(name=self.name, fingerprint=facts)

    def refuse_async(self, method: str) -> None:
        """Raise `AsyncRequired` if a sync method would meet something async."""
        everything = [tool for asked in self.tools.values() for tool in (asked, *asked.fallback)]
        found = [f"tool {tool.name!r}" for tool in everything if tool.is_async]
        found += [f"the approval predicate of tool {tool.name!r}" for tool in everything if tool.predicate_is_async]
        if self.instructions.is_async:
            found.append("the instructions")
        if self.handler_is_async:
            found.append("the approval handler")
        if found:
            verb = "is" if len(found) == 1 else "are"
            raise AsyncRequired(
                f"{', '.join(found)} of agent {self.name!r} {verb} async: call a{method} instead of {method}"
            )


def tools_of(sources: Sequence[Any]) -> dict[str, Tool]:
    """The tools by name. Raises `ConfigurationError` for two of one name."""
    tools: dict[str, Tool] = {}
    for source in sources:
        tool = as_tool(source)
        if tool.name in tools:
            raise ConfigurationError(f"two tools are named {tool.name!r}: give one of them another name")
        tools[tool.name] = tool
    return tools


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling the function gives something to await; decided from how it was written."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return inspect.iscoroutinefunction(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
