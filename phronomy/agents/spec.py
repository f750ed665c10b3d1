"""An agent's configuration as the drivers see it: fixed, checked, resolved."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from types import FunctionType
from typing import Any, TypeVar, get_args

from phronomy.agents.handoffs import HandoffTool, filtered, why_no_handoff
from phronomy.approvals.policy import Handled, Rule, rules_of
from phronomy.conversation.direct_results import check_direct_results
from phronomy.conversation.input import read_history, read_input
from phronomy.conversation.instructions import CompiledInstructions, Instructions, compile_instructions
from phronomy.conversation.memory import Memory, facts_of
from phronomy.conversation.output import OutputMode, OutputType, is_kept
from phronomy.conversation.review_messages import ReviewMessages, check_review_messages, shown_messages
from phronomy.engine.spec import Handler, Holding, Nested, Spec
from phronomy.errors import AsyncRequired, ConfigurationError
from phronomy.foundation.cached_property import cached
from phronomy.foundation.checks import is_async, is_count, is_series, is_timeout
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.ids import findable
from phronomy.foundation.json_text import canonical
from phronomy.guardrails.guardrail import Guardrail, as_guardrails
from phronomy.models.base import Model
from phronomy.models.by_name import as_model
from phronomy.models.settings import ModelSettings
from phronomy.observability.announcements import Announcements
from phronomy.observability.hooks import Hooks
from phronomy.records.calls import Call, Outcome
from phronomy.records.checkpoint import AgentRef, Checkpoint, begun_with
from phronomy.records.decisions import OnExpiry, ShownMessage
from phronomy.records.messages import Message
from phronomy.records.moves import Move
from phronomy.records.record import digest_of
from phronomy.rules import transitions
from phronomy.rules.limits import Limits
from phronomy.runs.body_spec import run_inside, specs_inside
from phronomy.stops.breakpoints import Breakpoint
from phronomy.stores.base import Store
from phronomy.tools.tool import Tool, as_tool

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class AgentSpec:
    """The rules and the things of an agent."""

    kind: str = "agent"
    flow: None = None  # it has no nodes
    name: str
    model: Model
    settings: ModelSettings
    instructions: CompiledInstructions
    tools: Mapping[str, Tool]
    handler: Handled | None
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
    memory: Memory | None = None
    max_handoffs: int = 20
    review_messages: ReviewMessages = 0
    policy: tuple[Rule, ...] = ()
    scopes: frozenset[str] | None = None
    team: Mapping[str, AgentSpec] = field(default_factory=dict)
    routes: Mapping[tuple[str, str], HandoffTool] = field(default_factory=dict)

    @property
    def conversation(self) -> AgentSpec:
        """It asks its model."""
        return self

    @property
    def output_retries(self) -> int | None:
        """How often an answer that is not of the output type is asked for anew; None where any text will do."""
        return self.max_output_retries if self.output is not None else None

    def speaking(self, state: Checkpoint) -> AgentSpec:
        """The spec of the agent that has the conversation; its own where that agent is gone, which is drift."""
        return self.team.get(state.handoffs[-1].target, self) if state.handoffs else self

    def changed(self, **fields: Any) -> AgentSpec:
        """The spec with these fields, for whichever agent has the conversation."""
        return replace(self, **fields, team={name: replace(each, **fields) for name, each in self.team.items()})

    def asked_with(self, settings: ModelSettings) -> AgentSpec:
        """The spec with these settings over those that each agent has of its own."""
        team = {name: each.asked_with(settings) for name, each in self.team.items()}
        return replace(self, settings=self.settings.merged(settings), team=team)

    def refuses(self, state: Checkpoint, call: Call) -> str | None:
        """Why a handoff is not made now; None where it is, and for any other call."""
        return why_no_handoff(state, call, self.tool, self.max_handoffs)

    def seen(self, state: Checkpoint) -> tuple[Message, ...]:
        """The conversation, with what came before each handoff as its input filter leaves it. Raises `InputFilterFailed`."""
        view: tuple[Message, ...] = ()
        place = 0
        for made in state.handoffs:
            view += state.messages[place : made.said]
            place = made.said
            if (route := self.routes.get((made.source, made.target))) is not None:
                view = filtered(route, view, made.call)
        return (*view, *state.messages[place:]) if state.handoffs else state.messages

    def shown_for_review(self, state: Checkpoint, home: Spec) -> tuple[ShownMessage, ...]:
        """What the agent shows of the conversation to a human who decides on a call; `home` has all whose tools may be in it."""
        given = self.review_messages
        return shown_messages(given, state.messages, home) if given != 0 else ()

    def plan(self, state: Checkpoint) -> Move:
        """What comes next in this state."""
        return transitions.plan(state, self)

    def apply(self, state: Checkpoint, outcome: Outcome) -> Checkpoint:
        """The state after this outcome."""
        return transitions.apply(state, outcome)

    def tool(self, call: Call) -> Tool | None:
        """The tool that the model asked for, or the fallback that the call has reached."""
        asked = self.tools.get(call.name)
        if asked is None or call.fallback == 0:
            return asked
        return asked.fallback[call.fallback - 1] if call.fallback <= len(asked.fallback) else None

    def expiry(self, tool: Tool) -> tuple[float | None, OnExpiry]:
        """How long a human has to decide on a call of this tool, and what follows: as the tool says, or else the agent."""
        timeout = tool.approval_timeout if tool.approval_timeout is not None else self.approval_timeout
        return timeout, tool.on_expiry or self.on_expiry

    def nested(self, state: Checkpoint, call: Call) -> Nested | None:
        """The run inside a call of an agent or a graph that is a tool, or the run that the calls of a body are."""
        return run_inside(self, self.tool(call), call)

    def inside(self) -> Sequence[Spec]:
        """The specs of the agents and graphs that are tools."""
        return [*self.team.values(), *specs_inside(self, self._every_tool)]

    @cached_property
    def _every_tool(self) -> tuple[Tool, ...]:
        return tuple(tool for asked in self.tools.values() for tool in (asked, *asked.fallback))

    @cached_property
    def _async_parts(self) -> tuple[str, ...]:
        """What a sync method cannot use, in words. It is asked for by every call of the agent, and never changes."""
        found = [f"tool {tool.name!r}" for tool in self._every_tool if tool.is_async]
        found += [
            f"the approval predicate of tool {tool.name!r}" for tool in self._every_tool if tool.predicate_is_async
        ]
        found += [
            f"a text, a predicate or a condition of the approval of tool {tool.name!r}"
            for tool in self._every_tool
            if tool.review is not None and tool.review.is_async
        ]
        found += [f"the rule {rule.pattern!r} of the approval policy" for rule in self.policy if rule.is_async]
        if self.instructions.is_async:
            found.append("the instructions")
        if self.handler is not None and self.handler.is_async:
            found.append("the approval handler")
        if any(item.is_async for item in self.announcements):
            found.append("an announcement")
        guardrails = (*self.input_guardrails, *self.output_guardrails, *self.tool_guardrails)
        found += [f"guardrail {item.name!r}" for item in guardrails if item.is_async]
        return tuple(found)

    def lost(self, state: Checkpoint) -> Sequence[str]:
        """An agent counts on the tools of its open calls, the handoffs that were made, and guardrails for what they have yet to see.

        Those that the run began with have yet to see its answer, and each call that it comes to.
        """
        began, speaks = begun_with(state), self.speaking(state)
        if not began and state.unguarded is None and not state.handoffs:
            return ()
        ahead: dict[str, tuple[Sequence[Guardrail], str]] = {
            "input": (speaks.input_guardrails, "the input"),
            "output": (speaks.output_guardrails, "the output"),
            "tool": (speaks.tool_guardrails, "calls"),
        }
        later = ("input",) if began.get("input") and (state.added or state.unguarded == "message") else ()
        due = {state.unguarded, *later, *(stage for stage in ("output", "tool") if began.get(stage))}
        gone = [
            f"the handoff from {made.source!r} to {made.target!r}, by which the conversation went, is gone"
            for made in state.handoffs
            if (made.source, made.target) not in self.routes
        ]
        return gone + [
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

    @property
    def ref(self) -> AgentRef:
        """What a checkpoint notes of the agent."""
        return self._ref

    @cached
    def _ref(self) -> AgentRef:
        tools = {
            name: [
                *(tool.schema_hash, tool.gate, *(["external"] if tool.external else ())),
                *([sorted(tool.scopes)] if tool.scopes else ()),
                *(["return_direct"] if tool.return_direct else ()),
            ]
            for name, tool in self.tools.items()
        }
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
        if self.policy:
            facts["policy"] = [[rule.of, rule.pattern] for rule in self.policy]
        if self.memory is not None:
            facts["memory"] = facts_of(self.memory)
        if self.team:
            facts["team"] = {name: spec.ref.fingerprint for name, spec in self.team.items()}
        return AgentRef(name=self.name, fingerprint=facts)

    def refuse_async(self, method: str) -> None:
        """Raise `AsyncRequired` if a sync method would meet something async."""
        if found := self._async_parts:
            verb = "is" if len(found) == 1 else "are"
            raise AsyncRequired(
                f"{', '.join(found)} of agent {self.name!r} {verb} async: call a{method} instead of {method}"
            )
        for inner in self.inside():  # last: what these have of this agent is told of this agent
            inner.refuse_async(method)


def name_of(agent: Any) -> str:
    """What checkpoints know an agent by. Raises `ConfigurationError`."""
    name = agent.name or type(agent).__name__
    return findable("the name of an agent", name)


def joined(some: tuple[T, ...], more: tuple[T, ...]) -> tuple[T, ...]:
    """All of these, each once."""
    return (*some, *(each for each in more if not any(each is known for known in some)))


def _output_of(name: str, hint: Any) -> OutputType | None:
    """The type of the answers; None if they are text. Raises `ConfigurationError`."""
    if hint in (None, str):
        return None
    output = OutputType(hint)
    output.check(name)
    return output


def check_output(agent: Any) -> None:
    """Refuse an output type whose values JSON does not hold, as soon as the agent is made. Raises `ConfigurationError`.

    A class that cannot be described yet may be completed before the agent first runs.
    """
    hint = agent.output_type
    if hint in (None, str) or (isinstance(hint, type) and is_kept(hint)):
        return
    try:
        output = OutputType(hint)
    except ConfigurationError:
        return
    output.check(name_of(agent))


def bare_spec(agent: Any) -> AgentSpec:
    """The configuration of an agent by itself, checked. Raises `ConfigurationError`."""
    agent._check_class()
    name = name_of(agent)
    _check_options(name, agent)
    handler = handled(agent._handler)
    tools = tools_of(agent.tools)
    output = _output_of(name, agent.output_type)
    check_direct_results(name, tools.values(), output)
    return AgentSpec(
        name=name,
        model=as_model(agent.model),
        settings=agent.settings or ModelSettings(),
        instructions=compile_instructions(_instructions(agent)),
        tools=tools,
        handler=handler,
        limits=agent.limits,
        max_parallel=agent.max_parallel,
        output=output,
        output_mode=agent.output_mode,
        max_output_retries=agent.output_retries,
        hooks=_listed(agent, "hooks", Hooks),
        announcements=_listed(agent, "announcements", Announcements),
        approval_timeout=agent.approval_timeout,
        on_expiry=agent.on_expiry,
        input_guardrails=as_guardrails("input_guardrails", agent.input_guardrails),
        output_guardrails=as_guardrails("output_guardrails", agent.output_guardrails),
        tool_guardrails=as_guardrails("tool_guardrails", agent.tool_guardrails),
        memory=agent.memory,
        max_handoffs=agent.max_handoffs,
        review_messages=agent.review_messages,
        policy=rules_of(name, agent.approval_policy, handler),
    )


def _check_options(name: str, agent: Any) -> None:
    """Refuse options that no agent can have. Raises `ConfigurationError`."""
    if agent.model is None:
        raise ConfigurationError(f"agent {name!r} has no model")
    if not isinstance(agent.limits, Limits):
        raise ConfigurationError(f"agent {name!r}: limits is a Limits, not {type(agent.limits).__name__}")
    if agent.memory is not None and not isinstance(agent.memory, Memory):
        raise ConfigurationError(f"agent {name!r}: memory is a Memory or None, not {type(agent.memory).__name__}")
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
    if agent._handler is not None and not callable(agent._handler):
        raise ConfigurationError(f"agent {name!r}: the approval handler is not callable")
    if agent.output_mode not in ("schema", "prompt") or not is_count(agent.output_retries):
        raise ConfigurationError(f"agent {name!r}: output_mode is 'schema' or 'prompt', output_retries 0 or more")
    if not is_timeout(agent.approval_timeout) or agent.on_expiry not in get_args(OnExpiry):
        raise ConfigurationError(
            f"agent {name!r}: approval_timeout is seconds above 0 or None, on_expiry 'reject', 'cancel' or 'stay'"
        )
    if not isinstance(agent.description, str):
        raise ConfigurationError(f"agent {name!r}: description is text, not {type(agent.description).__name__}")
    if not is_count(agent.max_handoffs):
        raise ConfigurationError(f"agent {name!r}: max_handoffs is 0 or a whole number above it")
    check_review_messages(name, agent.review_messages)


def handled(handler: Handler | None) -> Handled | None:
    """The handler with how it is to be called."""
    return None if handler is None else Handled(handler, is_async(handler))


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
