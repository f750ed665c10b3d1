"""An agent's configuration as the drivers see it: fixed, checked, resolved."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from types import FunctionType
from typing import Any, TypeVar, get_args

from phronomy import _rules
from phronomy._checks import is_count, is_series, is_timeout
from phronomy._guarding import begun_with
from phronomy._input import read_history, read_input
from phronomy._json import canonical
from phronomy._record import digest_of
from phronomy._runner import Advancing, Handler, Holding, Nested, Runner, Spec
from phronomy._stops import checked as checked_breakpoints
from phronomy.announcements import Announcements
from phronomy.approvals import OnExpiry, Point, Principal
from phronomy.breakpoints import Breakpoint
from phronomy.checkpoint import AgentRef, Checkpoint
from phronomy.errors import AsyncRequired, ConfigurationError
from phronomy.guardrails import Guardrail, as_guardrails
from phronomy.hooks import Hooks
from phronomy.instructions import CompiledInstructions, Instructions, compile_instructions
from phronomy.limits import Limits
from phronomy.models.base import Model, ModelSettings, as_model
from phronomy.output import OutputMode, OutputType
from phronomy.stores.base import Store
from phronomy.tools import Tool, as_tool
from phronomy.types import Call, Move, Outcome

T = TypeVar("T")


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
    limits: Limits
    max_parallel: int
    output: OutputType | None
    output_mode: OutputMode
    max_output_retries: int
    hooks: tuple[Hooks, ...]
    announcements: tuple[Announcements, ...]
    approval_timeout: float | None
    on_expiry: OnExpiry
    breakpoints: Iterable[Breakpoint] = ()
    hold: Holding | None = None
    input_guardrails: tuple[Guardrail, ...] = ()
    output_guardrails: tuple[Guardrail, ...] = ()
    tool_guardrails: tuple[Guardrail, ...] = ()

    @property
    def output_retries(self) -> int | None:
        """How often an answer that is not of the output type is asked for anew; None where any text will do."""
        return self.max_output_retries if self.output is not None else None

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

    def expiry(self, tool: Tool) -> tuple[float | None, OnExpiry]:
        """How long a human has to decide on a call of this tool, and what follows: as the tool says, or else the agent."""
        timeout = tool.approval_timeout if tool.approval_timeout is not None else self.approval_timeout
        return timeout, tool.on_expiry or self.on_expiry

    def nested(self, state: Checkpoint, call: Call) -> Nested | None:
        """No run is nested in a call of an agent."""
        return None

    def stops(self, state: Checkpoint, call: Call) -> bool:
        """Nobody wants to look before a call of an agent."""
        return False

    def point_of(self, call: Call) -> Point | None:
        """An agent stops nowhere by itself."""
        return None

    def inside(self) -> Sequence[Spec]:
        """No runs are inside those of an agent."""
        return ()

    def shown_state(self, state: Checkpoint) -> Any:
        """An agent has no state beside the conversation."""
        return None

    def node_of(self, call: Call) -> str | None:
        """An agent has no nodes."""
        return None

    def advance(self, state: Checkpoint, deps: Any) -> Advancing:
        """The rules of an agent plan no such move."""
        raise AssertionError("an agent goes on by asking its model")

    def lost(self, state: Checkpoint) -> Sequence[str]:
        """An agent counts on the tools of its open calls, and on guardrails for what they have yet to let through.

        Those that the run began with have yet to see its answer, and each call that it comes to.
        """
        began = begun_with(state)
        ahead: dict[str, tuple[Any, str]] = {
            "input": (self.input_guardrails, "the input"),
            "output": (self.output_guardrails, "the output"),
            "tool": (self.tool_guardrails, "calls"),
        }
        due = {state.unguarded, *(stage for stage in ("output", "tool") if began.get(stage))}
        return [
            f"guardrails were to look at {what}, and there are none"
            for stage, (there, what) in ahead.items()
            if stage in due and not there
        ]

    def first(self, input: Any, parent: Checkpoint | None, history: Any) -> Mapping[str, Any]:
        """The conversation that a run of this input begins with."""
        original, said = read_input(input)
        before = parent.messages if parent is not None else ()
        if history is not None:
            before = read_history(history)
        unguarded = "input" if self.input_guardrails else None
        return {"original_input": original, "messages": (*before, said), "unguarded": unguarded}

    def edits(self, runner: Runner, at: datetime, by: Principal | None) -> Sequence[Outcome]:
        """A run of an agent is not edited."""
        return ()

    @property
    def ref(self) -> AgentRef:
        """What a checkpoint notes of the agent."""
        return self._ref

    @cached_property
    def _ref(self) -> AgentRef:
        tools = {name: [tool.schema_hash, tool.gate] for name, tool in self.tools.items()}
        facts: dict[str, Any] = {
            "tools": tools,
            "instructions": self.instructions.fingerprint,
            "model": self.model.name,
        }
        if self.output is not None:
            facts["output"] = digest_of(canonical(self.output.schema))
        rails = (self.input_guardrails, self.output_guardrails, self.tool_guardrails)
        if any(rails):
            facts["guardrails"] = [[item.name for item in some] for some in rails]
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
        if any(item.is_async for item in self.announcements):
            found.append("an announcement")
        guardrails = (*self.input_guardrails, *self.output_guardrails, *self.tool_guardrails)
        found += [f"guardrail {item.name!r}" for item in guardrails if item.is_async]
        if found:
            verb = "is" if len(found) == 1 else "are"
            raise AsyncRequired(
                f"{', '.join(found)} of agent {self.name!r} {verb} async: call a{method} instead of {method}"
            )


def spec_of(agent: Any) -> AgentSpec:
    """The configuration of an agent, checked. Raises `ConfigurationError`."""
    name = agent.name or type(agent).__name__
    handler = agent._handler
    if agent.model is None:
        raise ConfigurationError(f"agent {name!r} has no model")
    if not isinstance(agent.limits, Limits):
        raise ConfigurationError(f"agent {name!r}: limits is a Limits, not {type(agent.limits).__name__}")
    if agent.settings is not None and not isinstance(agent.settings, ModelSettings):
        raise ConfigurationError(f"agent {name!r}: settings is a ModelSettings, not {type(agent.settings).__name__}")
    if not isinstance(agent.store, Store):
        raise ConfigurationError(
            f"agent {name!r}: store is a Store, not {type(agent.store).__name__}: open_store(url) opens one"
        )
    if not is_count(agent.max_parallel) or agent.max_parallel == 0:
        raise ConfigurationError(f"agent {name!r}: max_parallel is a whole number above 0")
    if agent.trust not in (None, "store", "bearer"):
        raise ConfigurationError(f"agent {name!r}: trust is 'store' or 'bearer'")
    if handler is not None and not callable(handler):
        raise ConfigurationError(f"agent {name!r}: the approval handler is not callable")
    if agent.output_mode not in ("schema", "prompt") or not is_count(agent.output_retries):
        raise ConfigurationError(f"agent {name!r}: output_mode is 'schema' or 'prompt', output_retries 0 or more")
    if not is_timeout(agent.approval_timeout) or agent.on_expiry not in get_args(OnExpiry):
        raise ConfigurationError(
            f"agent {name!r}: approval_timeout is seconds above 0 or None, on_expiry 'reject', 'cancel' or 'stay'"
        )
    spec = AgentSpec(
        name=name,
        model=as_model(agent.model),
        settings=agent.settings or ModelSettings(),
        instructions=compile_instructions(_instructions(agent)),
        tools=tools_of(agent.tools),
        handler=handler,
        handler_is_async=handler is not None and is_async(handler),
        limits=agent.limits,
        max_parallel=agent.max_parallel,
        output=OutputType(agent.output_type) if agent.output_type not in (None, str) else None,
        output_mode=agent.output_mode,
        max_output_retries=agent.output_retries,
        hooks=_listed(agent, "hooks", Hooks),
        announcements=_listed(agent, "announcements", Announcements),
        approval_timeout=agent.approval_timeout,
        on_expiry=agent.on_expiry,
        input_guardrails=as_guardrails("input_guardrails", agent.input_guardrails),
        output_guardrails=as_guardrails("output_guardrails", agent.output_guardrails),
        tool_guardrails=as_guardrails("tool_guardrails", agent.tool_guardrails),
    )
    return replace(spec, breakpoints=checked_breakpoints(agent.breakpoints, spec))


def _listed(agent: Any, option: str, kind: type[T]) -> tuple[T, ...]:
    """What is in an option that lists instances of this class. Raises `ConfigurationError`."""
    given = getattr(agent, option)
    listed = tuple(given) if is_series(given) else None
    if listed is None or not all(isinstance(item, kind) for item in listed):
        raise ConfigurationError(
            f"agent {agent.name or type(agent).__name__!r}: {option} are instances of {kind.__name__}, in a list"
        )
    return listed


def _instructions(agent: Any) -> Instructions:
    """The instructions; a function in a class body is one of the input, unless its first parameter is `self`."""
    written = inspect.getattr_static(agent, "instructions")
    if isinstance(written, FunctionType) and next(iter(inspect.signature(written).parameters), "") != "self":
        return written
    found: Instructions = agent.instructions
    return found


def tools_of(sources: Sequence[Any]) -> dict[str, Tool]:
    """The tools by name. Raises `ConfigurationError` for two of one name."""
    if not is_series(sources):
        raise ConfigurationError(f"tools is a list of tools, not {type(sources).__name__}: write tools=[...]")
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
