"""Guardrails of a team: they look at what every agent in it is asked, answers and calls, at any depth, before the agent's own do."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from phronomy.agents.spec import AgentSpec, joined
from phronomy.engine.spec import Spec
from phronomy.foundation.cached_property import cached
from phronomy.foundation.dataclasses import dataclass
from phronomy.graph.flow.graph import GraphOptions
from phronomy.graph.flow.node import Inside
from phronomy.graph.flow.spec import GraphSpec
from phronomy.guardrails.guardrail import Guardrail, as_guardrails
from phronomy.records.checkpoint import AgentRef, Checkpoint
from phronomy.runs.as_tool import AgentTool
from phronomy.tools.tool import Tool

N = TypeVar("N")

GUARDRAILS: Final = ("input_guardrails", "output_guardrails", "tool_guardrails")


class TeamOptions(GraphOptions, total=False):
    """The options of a team or a pattern: those of a graph, and guardrails for all agents in it.

    They check what each agent is asked, what it answers, and its tool calls, before the agent's own guardrails. They
    also hold for agents inside patterns, graphs and tools of the team.
    """

    input_guardrails: Sequence[Any]
    output_guardrails: Sequence[Any]
    tool_guardrails: Sequence[Any]


class Rails(NamedTuple):
    """The guardrails of a team, for each of the three stages."""

    input: tuple[Guardrail, ...] = ()
    output: tuple[Guardrail, ...] = ()
    tool: tuple[Guardrail, ...] = ()

    @classmethod
    def taken(cls, options: MutableMapping[str, Any]) -> Rails:
        """The guardrails in the options of a team, out of which they are taken. Raises `ConfigurationError`."""
        return cls(*(as_guardrails(option, options.pop(option, ())) for option in GUARDRAILS))

    def missed_in(self, state: Checkpoint) -> list[str]:
        """The stages for which a run began with guardrails of the team, and for which there are none now."""
        # Agents that have not begun have noted nothing of what was to look at them: the team notes it for them.
        noted = state.agent.fingerprint.get("team_guardrails")
        began = noted if isinstance(noted, list) else ()  # of a bearer's text, it may be anything
        return [
            f"guardrails of {state.agent.name!r} were to look at {what} of its agents, and there are none"
            for what, there, names in zip(("inputs", "answers", "calls"), self, began, strict=False)
            if names and not there
        ]

    def over(self, nodes: Mapping[str, N]) -> dict[str, N]:
        """The nodes, with these guardrails over the runs inside them."""
        if not any(self):
            return dict(nodes)
        found: dict[str, Any] = {}
        for name, node in nodes.items():
            found[name] = _inner_guarded(node, self) if isinstance(node, Inside) else node
        return found


@dataclass(frozen=True, kw_only=True)
class TeamSpec(GraphSpec):
    """The rules of the runs of a graph that has guardrails for all agents in it."""

    rails: Rails = Rails()

    @property
    def ref(self) -> AgentRef:
        """As of a graph, with the names of the guardrails."""
        return self._guarded_ref

    @cached
    def _guarded_ref(self) -> AgentRef:
        if not any(self.rails):
            return self._ref
        facts = {**self._ref.fingerprint, "team_guardrails": [[item.name for item in some] for some in self.rails]}
        return AgentRef(name=self.name, fingerprint=facts)

    def lost(self, state: Checkpoint) -> list[str]:
        """As for a graph; and the guardrails that the run began with."""
        return [*self.rails.missed_in(state), *super().lost(state)]


class GuardedRuns:
    """An agent or a graph with the guardrails of a team over it. The one that was given stays as it is."""

    def __init__(self, inner: Any, rails: Rails) -> None:
        self._inner = inner
        self._rails = rails
        self._made: tuple[Spec | None, Spec | None] = (None, None)

    @property
    def spec(self) -> Spec:
        """The configuration, made anew only when that of the inner one is another."""
        own: Spec = self._inner.spec
        given, made = self._made
        if made is None or given is not own:
            made = _over(own, self._rails)
            self._made = own, made
        return made


def _inner_guarded(node: Any, rails: Rails) -> Any:
    """A copy of a node or a tool that has a run inside."""
    made = copy.copy(node)
    made.__dict__["inner"] = GuardedRuns(node.inner, rails)
    return made


def _over(spec: Spec, rails: Rails) -> Spec:
    if isinstance(spec, GraphSpec):
        return replace(spec, nodes=rails.over(spec.nodes))
    if not isinstance(spec, AgentSpec):
        return spec
    return replace(
        spec,
        input_guardrails=joined(rails.input, spec.input_guardrails),
        output_guardrails=joined(rails.output, spec.output_guardrails),
        tool_guardrails=joined(rails.tool, spec.tool_guardrails),
        tools={name: _tool_over(tool, rails) for name, tool in spec.tools.items()},
        team={name: made for name, each in spec.team.items() if isinstance(made := _over(each, rails), AgentSpec)},
    )


def _tool_over(tool: Tool, rails: Rails) -> Tool:
    """The tool, with the guardrails over the runs behind it and behind its fallbacks."""
    if isinstance(tool, AgentTool):
        return _inner_guarded(tool, rails)  # type: ignore[no-any-return]
    if any(isinstance(each, AgentTool) for each in tool.fallback):
        tool = copy.copy(tool)
        tool.__dict__["fallback"] = tuple(_tool_over(each, rails) for each in tool.fallback)
    return tool
