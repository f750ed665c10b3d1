"""The spec of the calls of a body: the agent or graph whose body it is, with the tools that the body declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from phronomy.approvals.policy import Handled, Rule
from phronomy.engine.nested import BodyRun
from phronomy.engine.spec import Nested, Spec
from phronomy.errors import AsyncRequired
from phronomy.foundation.dataclasses import dataclass
from phronomy.guardrails.guardrail import Guardrail
from phronomy.records.calls import Call, Outcome
from phronomy.records.checkpoint import AgentRef, Checkpoint
from phronomy.records.decisions import OnExpiry
from phronomy.records.moves import Move
from phronomy.rules import body_calls
from phronomy.rules.limits import Limits
from phronomy.runs.as_tool import AgentTool, delegated
from phronomy.stops.breakpoints import Breakpoint
from phronomy.tools.tool import Tool

_UNBOUNDED = Limits(turns=None)


@dataclass(frozen=True, kw_only=True)
class BodySpec:
    """The rules and the things of the calls that the body of a tool, or of a node, makes."""

    outer: Spec
    of: Tool

    kind: str = body_calls.KIND
    conversation: None = None  # it asks no model
    flow: None = None  # and has no nodes
    output: None = None
    output_retries: None = None
    hold: None = None
    limits: Limits = _UNBOUNDED  # those of the run around it bound it
    max_parallel: int = 1
    policy: tuple[Rule, ...] = ()  # so do its policies
    input_guardrails: tuple[Guardrail, ...] = ()
    output_guardrails: tuple[Guardrail, ...] = ()

    @property
    def name(self) -> str:
        """The name of the agent or graph, by which people know who asks."""
        return self.outer.name

    @property
    def ref(self) -> AgentRef:
        """The note in its checkpoints: the name, and the tools."""
        tools = {name: [tool.schema_hash, tool.gate] for name, tool in self.tools.items()}
        return AgentRef(name=self.name, fingerprint={"tools": tools, "instructions": "", "model": ""})

    @property
    def hooks(self) -> tuple[Any, ...]:
        """The hooks of the agent or graph."""
        return self.outer.hooks

    @property
    def announcements(self) -> tuple[Any, ...]:
        """The announcements of the agent or graph."""
        return self.outer.announcements

    @property
    def handler(self) -> Handled | None:
        """The handler of the agent or graph: whoever calls a tool, it answers for it."""
        return self.outer.handler

    @property
    def tool_guardrails(self) -> tuple[Guardrail, ...]:
        """The guardrails that look at every call of the agent."""
        return self.outer.tool_guardrails

    @property
    def breakpoints(self) -> Iterable[Breakpoint]:
        """The breakpoints of the agent or graph."""
        return self.outer.breakpoints

    @property
    def scopes(self) -> frozenset[str] | None:
        """The scopes that a run has."""
        return self.outer.scopes

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that the body declares, by name."""
        return {tool.name: tool for tool in self.of.calls}

    def expiry(self, tool: Tool) -> tuple[float | None, OnExpiry]:
        """How long a human has to decide on a call, and what follows."""
        return self.outer.expiry(tool)

    def speaking(self, state: Checkpoint) -> BodySpec:
        """Itself: nothing is handed over in a body."""
        return self

    def plan(self, state: Checkpoint) -> Move:
        """The next move from this state."""
        return body_calls.plan(state, self)

    def apply(self, state: Checkpoint, outcome: Outcome) -> Checkpoint:
        """The state after this outcome."""
        return body_calls.apply(state, outcome)

    def tool(self, call: Call) -> Tool | None:
        """The tool that the body called, or the fallback that the call has reached."""
        asked = self.tools.get(call.name)
        if asked is None or call.fallback == 0:
            return asked
        return asked.fallback[call.fallback - 1] if call.fallback <= len(asked.fallback) else None

    def nested(self, state: Checkpoint, call: Call) -> Nested | None:
        """The run inside a call."""
        return run_inside(self, self.tool(call), call)

    def lost(self, state: Checkpoint) -> Sequence[str]:
        """It counts on the tools of its open calls alone."""
        return ()

    def refuse_async(self, method: str) -> None:
        """Raise `AsyncRequired` if a sync method would meet something async."""
        for tool in self._every_tool:
            review = tool.review is not None and tool.review.is_async
            if tool.is_async or tool.predicate_is_async or review:
                raise AsyncRequired(
                    f"tool {tool.name!r}, or its approval, which {self.of.name!r} of {self.name!r} calls, is async: call a{method}"
                    f" instead of {method}"
                )
        for inner in self.inside():
            inner.refuse_async(method)

    def first(self, input: Any, parent: Checkpoint | None, history: Any) -> Mapping[str, Any]:
        """The fields of its first checkpoint."""
        return {"original_input": self.of.name, "state": {}}

    def inside(self) -> Sequence[Spec]:
        """The specs of the agents and graphs that it may call, and of what the tools that it calls may call."""
        return specs_inside(self, self._every_tool)

    @property
    def _every_tool(self) -> tuple[Tool, ...]:
        return tuple(tool for asked in self.of.calls for tool in (asked, *asked.fallback))


def run_inside(spec: Spec, tool: Tool | None, call: Call) -> Nested | None:
    """The run inside a call of this tool: that of an agent or a graph, or that of the calls of its body."""
    if tool is not None and tool.calls:
        return BodyRun(spec=BodySpec(outer=spec, of=tool))
    return delegated(tool, call)


def specs_inside(spec: Spec, tools: Iterable[Tool]) -> list[Spec]:
    """The specs of the runs that calls of these tools may have inside."""
    found: list[Spec] = [BodySpec(outer=spec, of=tool) for tool in tools if tool.calls]
    return [*found, *(tool.inner.spec for tool in tools if isinstance(tool, AgentTool))]
