"""The options of an agent and of its calls, as types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypedDict

from phronomy.approvals.policy import ApprovalPolicy
from phronomy.conversation.instructions import Instructions
from phronomy.conversation.memory import Memory
from phronomy.conversation.output import OutputMode
from phronomy.engine.spec import Handler
from phronomy.models.base import Model, ModelSettings
from phronomy.observability.announcements import Announcements
from phronomy.observability.hooks import Hooks
from phronomy.records.decisions import OnExpiry
from phronomy.rules.limits import Limits
from phronomy.stops.breakpoints import Breakpoint, Hold
from phronomy.stores.base import Store
from phronomy.tools.tool import Deps

# Whose word counts for a checkpoint that a caller brings: only the row that the store wrote, or also the text of whoever holds it. An
# agent with a store believes the store alone, so an edited text can approve nothing (law 9).
Trust: TypeAlias = Literal["store", "bearer"]
# What the next message of a thread does to a run that has not ended. By default it gives nothing up: an approval that somebody thinks
# about must not be lost because the customer writes once more.
OnPending: TypeAlias = Literal["refuse", "supersede_failed", "supersede"]


# Type checkers alone read these two. While a program runs, an agent compares what it is given with its own attributes, and refuses a
# misspelt option: one that was silently ignored would be a gate that is open.
class AgentOptions(TypedDict, total=False):
    """What an agent is made with, beside its output type; the attributes of `Agent` of the same names say what each is for."""

    name: str
    description: str
    model: str | Model
    instructions: Instructions
    tools: Sequence[Any]
    handoffs: Sequence[Any]
    max_handoffs: int
    settings: ModelSettings
    store: Store
    trust: Trust
    limits: Limits
    memory: Memory | None
    max_parallel: int
    output_mode: OutputMode
    output_retries: int
    hooks: Sequence[Hooks]
    announcements: Sequence[Announcements]
    approval_timeout: float | None
    on_expiry: OnExpiry
    approval_policy: ApprovalPolicy
    on_approval_required: Handler
    breakpoints: Iterable[Breakpoint]
    input_guardrails: Sequence[Any]
    output_guardrails: Sequence[Any]
    tool_guardrails: Sequence[Any]


class CallOptions(TypedDict, Generic[Deps], total=False):
    """What one call may bring along. None of it goes into a record.

    `deps` is handed to tools, nodes and instructions; `model`, `settings`, `breakpoints` and the guardrails of an agent stand in for
    its own, for this call alone; breakpoints are for the runs inside it as well. With a `hold`, the call waits at them. The others are
    a graph's: nodes before or after which this call stops, and, of `resume`, what is changed in the state before it goes on.
    `update` is as a node returns it; `modify_state` is called with the path (names of nodes, `()` for the graph itself) and a
    copy of the state of each graph, outermost first; it changes the copy, or returns another.
    """

    deps: Deps
    breakpoints: Iterable[Breakpoint]
    hold: Hold | None
    input_guardrails: Sequence[Any]
    output_guardrails: Sequence[Any]
    tool_guardrails: Sequence[Any]
    model: str | Model
    settings: ModelSettings
    interrupt_before: Sequence[str]
    interrupt_after: Sequence[str]
    update: Any
    modify_state: Callable[[tuple[str, ...], Any], Any]
