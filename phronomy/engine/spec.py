"""What an engine needs of whatever it runs: the rules, and the capabilities that they plan to use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from phronomy.approvals.policy import Handled, Rule
from phronomy.conversation.instructions import CompiledInstructions
from phronomy.conversation.memory import Memory
from phronomy.conversation.output import OutputMode, OutputType
from phronomy.foundation.json_text import JsonText
from phronomy.guardrails.guardrail import Guardrail
from phronomy.models.base import Model
from phronomy.models.settings import ModelSettings
from phronomy.records.breakpoint_points import Point
from phronomy.records.calls import Call, Outcome
from phronomy.records.checkpoint import AgentRef, Checkpoint
from phronomy.records.decisions import OnExpiry, ShownMessage
from phronomy.records.messages import Message
from phronomy.records.moves import Move
from phronomy.records.principals import Principal
from phronomy.rules.limits import Limits
from phronomy.stops.breakpoints import Breakpoint
from phronomy.tools.tool import Tool

if TYPE_CHECKING:
    from phronomy.engine.run import Runner

Handler = Callable[[str, dict[str, Any]], Any]
"""An approval handler: a function of the name of the tool and a fresh copy of the validated arguments."""


class Spec(Protocol):
    """What a driver needs of whatever it runs: the rules, and the things that they plan to use.

    What only an agent has, or only a graph, is a capability, which is asked for where it is used.
    """

    @property
    def kind(self) -> str:
        """What is run: `agent` or `graph`; patterns and orchestrators are graphs."""
        ...

    @property
    def name(self) -> str:
        """The name of the agent or graph, by which its runs are found again."""
        ...

    @property
    def ref(self) -> AgentRef:
        """What its checkpoints note of it: its name, and what drift is judged by."""
        ...

    @property
    def conversation(self) -> Conversation | None:
        """What it asks a model with; None for a graph, which has no conversation."""
        ...

    @property
    def flow(self) -> Flow | None:
        """What it runs nodes by; None for an agent, which has none."""
        ...

    @property
    def limits(self) -> Limits:
        """What a run may use: turns, calls, tokens, cost, seconds."""
        ...

    @property
    def output(self) -> OutputType | None:
        """The type of the answer; None: any text is one."""
        ...

    @property
    def hooks(self) -> tuple[Any, ...]:
        """Objects whose methods are called with the events of a run, while it goes on."""
        ...

    @property
    def announcements(self) -> tuple[Any, ...]:
        """Objects whose methods are told of what is stored, at least once."""
        ...

    def expiry(self, tool: Tool) -> tuple[float | None, OnExpiry]:
        """How long, in seconds, a human has to decide on a call of this tool (None: for ever), and what follows."""
        ...

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that the model is shown, by name."""
        ...

    @property
    def handler(self) -> Handled | None:
        """Who is asked at once for an approval; None: the run suspends."""
        ...

    def speaking(self, state: Checkpoint) -> Spec:
        """The spec of the agent that has the conversation now: this one, unless there was a handoff."""
        ...

    def plan(self, state: Checkpoint) -> Move:
        """The next move from this state. Pure: the rules decide it."""
        ...

    def apply(self, state: Checkpoint, outcome: Outcome) -> Checkpoint:
        """The state after an outcome. Pure: the rules decide it."""
        ...

    def tool(self, call: Call) -> Tool | None:
        """The tool that the call is for now: the one that was asked for, or its fallback. None: there is none."""
        ...

    def nested(self, state: Checkpoint, call: Call) -> Nested | None:
        """The run inside the call, if there is one."""
        ...

    def lost(self, state: Checkpoint) -> Sequence[str]:
        """What the run counts on, beside its open calls, and is gone since it stopped, in words."""
        ...

    def refuse_async(self, method: str) -> None:
        """Refuse what a sync call cannot run. Raises `AsyncRequired`."""
        ...

    def first(self, input: Any, parent: Checkpoint | None, history: Any) -> Mapping[str, Any]:
        """The fields of the first checkpoint of a run with this input that starts from `parent`.

        Raises `ConfigurationError`.
        """
        ...

    @property
    def breakpoints(self) -> Iterable[Breakpoint]:
        """Where its runs are to stop."""
        ...

    @property
    def hold(self) -> Holding | None:
        """How a call waits at a breakpoint; None: it returns, and the run is suspended."""
        ...

    @property
    def policy(self) -> tuple[Rule, ...]:
        """The approval rules, in the order in which they are asked."""
        ...

    @property
    def input_guardrails(self) -> tuple[Guardrail, ...]:
        """The guardrails that look at what a user says."""
        ...

    @property
    def output_guardrails(self) -> tuple[Guardrail, ...]:
        """The guardrails that look at the answer."""
        ...

    @property
    def tool_guardrails(self) -> tuple[Guardrail, ...]:
        """The guardrails that look at the calls of its tools and at their results."""
        ...

    @property
    def scopes(self) -> frozenset[str] | None:
        """The scopes that the caller gives the runs; None: those that a run has."""
        ...

    def inside(self) -> Sequence[Spec]:
        """The specs of the runs that may be inside runs of this one."""
        ...


class Conversation(Protocol):
    """What is only asked of an agent: its model, and what the model is shown."""

    @property
    def model(self) -> Model:
        """The model that is asked."""
        ...

    @property
    def settings(self) -> ModelSettings:
        """The settings of each request to the model."""
        ...

    @property
    def memory(self) -> Memory | None:
        """What is left out of the messages that the model gets; None: nothing is."""
        ...

    @property
    def output_mode(self) -> OutputMode:
        """How the model is asked for an answer of that type."""
        ...

    @property
    def instructions(self) -> CompiledInstructions:
        """The instructions, static and dynamic."""
        ...

    def refuses(self, state: Checkpoint, call: Call) -> str | None:
        """Why the call cannot be made now, whatever its arguments are, for the model to read; None if it can."""
        ...

    def seen(self, state: Checkpoint) -> tuple[Message, ...]:
        """The messages that the agent with the conversation is shown."""
        ...

    def shown_for_review(self, state: Checkpoint, home: Spec) -> tuple[ShownMessage, ...]:
        """The messages that a human who decides on a call is shown, in a run that began with `home`."""
        ...


class Flow(Protocol):
    """What is only asked of a graph: its state, its nodes, and where it stops between them."""

    def stops(self, state: Checkpoint, call: Call) -> bool:
        """Whether somebody wants to look before the call runs, though its gate lets it."""
        ...

    @property
    def is_eager(self) -> bool:
        """Whether calls may follow from some that have settled while others are open."""
        ...

    def over(self, state: Checkpoint) -> Mapping[str, str]:
        """The calls that are not wanted any more, whatever becomes of them, by id, and why."""
        ...

    def facts_in(self, state: Checkpoint) -> JsonText | None:
        """The facts of the team whose run it is; None if it is no team's."""
        ...

    def label_of(self, before: Checkpoint, after: Checkpoint) -> str | None:
        """The label of a checkpoint that follows another; None if it gets none."""
        ...

    def point_of(self, call: Call) -> Point | None:
        """Where a call is that `stops` speaks of."""
        ...

    def advance(self, state: Checkpoint, deps: object) -> Advancing:
        """What follows from open calls that have all settled. Only asked for where `plan` gives `Advance`."""
        ...

    def shown_state(self, state: Checkpoint) -> object:
        """A plain copy of the state."""
        ...

    def node_of(self, call: Call) -> str | None:
        """The node that a call runs, or stands after."""
        ...

    def edits(self, runner: Runner, at: datetime, by: Principal | None) -> Sequence[Outcome]:
        """The changes that the caller of a resume makes to the state."""
        ...


class Holding(Protocol):
    """How a call waits at a breakpoint, where it would otherwise return."""

    def holds(self, runner: Runner) -> bool:
        """Whether it waits where the run stands now."""
        ...

    def note(self, runner: Runner) -> None:
        """Take note of what is stored."""
        ...

    def stay(self, runner: Runner) -> Sequence[Outcome]:
        """Wait until there is something to go on with: what was said here. What others said is in the ledger's inbox."""
        ...

    async def astay(self, runner: Runner) -> Sequence[Outcome]:
        """As `stay`."""
        ...

    def left(self, runner: Runner) -> None:
        """Nobody waits any more."""
        ...


class Telling(Protocol):
    """How somebody is told of requests that wait while other calls of their reply run."""

    def is_due(self, runner: Runner) -> bool:
        """Whether there are such requests that nobody was told of."""
        ...

    def tell(self, runner: Runner) -> None:
        """Tell of what is stored."""
        ...

    async def atell(self, runner: Runner) -> None:
        """As `tell`."""
        ...


class Advancing(Protocol):
    """The work of `Advance`: it may call code of the user's, and raises `RunFailed` for what that raises."""

    @property
    def acts(self) -> bool:
        """Whether there is such code, so that all before it is to be stored first."""
        ...

    def outcome(self, at: datetime) -> Outcome:
        """Do the work, and give its outcome."""
        ...

    async def aoutcome(self, at: datetime) -> Outcome:
        """As `outcome`, in an event loop."""
        ...


def inside_of(spec: Spec, state: Checkpoint, call: Call) -> Nested | None:
    """The run that is in the place of a call; None if the call has a body, whatever that calls."""
    nested = spec.nested(state, call)
    return None if nested is None or nested.is_body else nested


class Nested(Protocol):
    """A run inside a call: its spec, and how it begins."""

    @property
    def is_body(self) -> bool:
        """True if the run is made of the calls of a body, which drives it; False if the run stands in the place of a body."""
        ...

    @property
    def spec(self) -> Spec:
        """The spec of the run inside."""
        ...

    def begin(self, parent: Checkpoint, path: str, at: datetime) -> Checkpoint:
        """The first checkpoint of the run inside."""
        ...
