"""The options of an agent and of its calls, as types."""

# The names of the types are read as they stand here: an option that is spelt wrongly is known by its type.
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypedDict

from phronomy.approvals.policy import ApprovalPolicy
from phronomy.conversation.instructions import Instructions
from phronomy.conversation.memory import Memory
from phronomy.conversation.output import OutputMode
from phronomy.conversation.review_messages import ReviewMessages
from phronomy.engine.spec import Handler
from phronomy.models.base import Model
from phronomy.models.settings import ModelSettings
from phronomy.observability.announcements import Announcements
from phronomy.observability.hooks import Hooks
from phronomy.records.decisions import OnExpiry
from phronomy.rules.limits import Limits
from phronomy.stops.breakpoints import Breakpoint, Hold
from phronomy.stores.base import Store
from phronomy.tools.context import Deps

# Whose word counts for a checkpoint that a caller brings: only the row that the store wrote, or also the text of whoever holds it. An
# agent with a store believes the store alone, so an edited text can approve nothing (law 9).
Trust: TypeAlias = Literal["store", "bearer"]
# What the next message of a thread does to a run that has not ended. By default it gives nothing up: an approval that somebody thinks
# about must not be lost because the customer writes once more.
OnPending: TypeAlias = Literal["refuse", "supersede_failed", "supersede", "ignore"]


# Type checkers alone read these two. While a program runs, an agent compares what it is given with its own attributes, and refuses a
# misspelt option: one that was silently ignored would be a gate that is open.
class AgentOptions(TypedDict, total=False):
    """The options of an agent, besides its output type. The attributes of `Agent` with the same names describe them."""

    name: str
    description: str
    model: str | Model
    instructions: Instructions
    tools: Sequence[Any]
    handoffs: Sequence[Any]
    max_handoffs: int
    settings: ModelSettings | None
    store: Store | None
    trust: Trust | None
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
    review_messages: ReviewMessages
    on_approval_required: Handler
    breakpoints: Iterable[Breakpoint]
    input_guardrails: Sequence[Any]
    output_guardrails: Sequence[Any]
    tool_guardrails: Sequence[Any]


class CallOptions(TypedDict, Generic[Deps], total=False):
    """The options of one call, such as `invoke` or `resume`. None of them is stored, except for the scopes.

    `deps` is passed to tools, nodes and instructions. `model`, `settings`, `breakpoints` and the lists of guardrails
    replace the options of the agent for this call. The breakpoints also count in nested runs. With a `hold`, the call
    waits at breakpoints.

    `scopes` are those of the run. A new run keeps them; it has none without them, unless its requester has. A call
    that goes on with a run can only take scopes away, for good; without this option the run keeps those that it has.

    The other options are for graphs. `interrupt_before` and `interrupt_after` are the nodes before and after which this
    call stops. `update` and `modify_state` are for `resume`, and change the state before the run continues. `update` is
    an update of the state, as a node returns it. `modify_state` is a function that is called for each graph, from the
    outermost in. It takes a path (the names of nodes, `()` for the outermost graph) and a copy of the state. It changes
    the copy, or returns another state.
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
    scopes: Iterable[str]
