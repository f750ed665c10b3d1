"""The agents that a conversation may go to from where a run begins, and the ways between them: found, checked and fixed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from phronomy.agents.handoffs import Handoff, HandoffTool, as_handoffs
from phronomy.agents.spec import AgentSpec, bare_spec, joined, name_of
from phronomy.approvals.policy import check_rules
from phronomy.engine.stop_points import checked as checked_breakpoints
from phronomy.engine.stop_points import specs_in
from phronomy.errors import ConfigurationError
from phronomy.foundation.json_text import clean
from phronomy.tools.tool import Tool


class Route(NamedTuple):
    """A way from one agent to another, by their names."""

    source: str
    target: str
    handoff: Handoff


def spec_of(agent: Any) -> AgentSpec:
    """The configuration of an agent, and of all that it may hand over to, checked. Raises `ConfigurationError`."""
    home = bare_spec(agent)
    agents = {home.name: agent}
    routes = list(_routes(home.name, agents))
    known = set(agents)
    for route in routes:
        if route.target not in known:
            there = ", ".join(sorted(known))
            raise ConfigurationError(
                f"agent {route.source!r} hands over to {route.target!r}, which is none of the agents that a run of {home.name!r}"
                f" can come to: {there}. Give the agent itself"
            )
        if route.target == route.source:
            raise ConfigurationError(f"agent {route.source!r} hands over to itself")
    spec = _with_team(home, agents, routes)
    for other in agents.values():
        if other is not agent:
            other._fix(home.name)
    return spec


def _routes(home: str, agents: dict[str, Any]) -> Iterator[Route]:
    """The ways from these agents, and from those that they lead to, which are added."""
    waiting = list(agents.items())
    while waiting:
        source, agent = waiting.pop(0)
        seen: set[str] = set()
        for handoff in as_handoffs(f"agent {source!r}", agent.handoffs):
            target = handoff.target
            if not isinstance(target, str):
                if isinstance(target, type) or not callable(getattr(target, "_fix", None)):
                    what = f"the class {target.__name__}" if isinstance(target, type) else f"a {type(target).__name__}"
                    raise ConfigurationError(
                        f"agent {source!r} hands over to {what}: a conversation goes to an agent, or to the name of one"
                    )
                name = name_of(target)
                if name not in agents:
                    waiting.append((name, target))
                if agents.setdefault(name, target) is not target:
                    raise ConfigurationError(
                        f"two agents that a run of {home!r} can come to are named {name!r}: give one of them another name"
                    )
                target = name
            target = clean(target)
            if target in seen:
                raise ConfigurationError(f"agent {source!r} has two handoffs to {target!r}")
            seen.add(target)
            yield Route(source, target, handoff)


def _with_team(home: AgentSpec, agents: Mapping[str, Any], routes: list[Route]) -> AgentSpec:
    specs = {name: home if name == home.name else bare_spec(agent) for name, agent in agents.items()}
    ways: dict[tuple[str, str], HandoffTool] = {}
    for route in routes:
        source = specs[route.source]
        tool = HandoffTool(route.handoff, route.target, agents[route.target].description)
        if tool.name in source.tools:
            raise ConfigurationError(
                f"agent {route.source!r}: the handoff to {route.target!r} and a tool are both named {tool.name!r};"
                " give Handoff(..., name=...) another"
            )
        tools: dict[str, Tool] = {**source.tools, tool.name: tool}
        specs[route.source] = replace(source, tools=tools)
        ways[route.source, route.target] = tool
    home = specs.pop(home.name)
    team = {name: _member(home, spec) for name, spec in specs.items()}
    for name, spec in team.items():
        team[name] = replace(spec, breakpoints=checked_breakpoints(agents[name].breakpoints, spec))
    whole = replace(home, team=team, routes=ways)
    for spec in (whole, *team.values()):
        check_rules(spec.policy, specs_in(spec))
    return replace(whole, breakpoints=checked_breakpoints(agents[home.name].breakpoints, whole))


def _member(home: AgentSpec, spec: AgentSpec) -> AgentSpec:
    """The spec of an agent in the runs of another agent, `home`.

    It has the limits, hooks, announcements and input guardrails of `home`, and the output and tool guardrails of both.
    """
    return replace(
        spec,
        limits=home.limits,
        max_handoffs=home.max_handoffs,
        hooks=home.hooks,
        announcements=home.announcements,
        handler=spec.handler or home.handler,
        policy=tuple(rule.handled_by(home.handler) for rule in spec.policy),
        input_guardrails=home.input_guardrails,
        output_guardrails=joined(home.output_guardrails, spec.output_guardrails),
        tool_guardrails=joined(home.tool_guardrails, spec.tool_guardrails),
    )
