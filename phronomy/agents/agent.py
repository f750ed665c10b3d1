"""The agent: a model with instructions and tools, that stops where a human must decide, and goes on from there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast, overload

from typing_extensions import TypeForm, Unpack

from phronomy.agents.handler import Registers
from phronomy.agents.spec import AgentSpec, check_output, name_of
from phronomy.agents.team import spec_of
from phronomy.approvals.policy import ApprovalPolicy
from phronomy.conversation.instructions import Instructions
from phronomy.conversation.memory import Memory
from phronomy.conversation.output import OutputMode
from phronomy.conversation.review_messages import ReviewMessages
from phronomy.engine.spec import Handler
from phronomy.errors import ConfigurationError
from phronomy.foundation import spelling
from phronomy.guardrails.guardrail import as_guardrails
from phronomy.models.base import Model
from phronomy.models.by_name import as_model
from phronomy.models.settings import ModelSettings
from phronomy.observability.announcements import Announcements
from phronomy.observability.hooks import Hooks
from phronomy.records.decisions import OnExpiry
from phronomy.records.result import Output
from phronomy.rules.limits import Limits
from phronomy.runs.names import note_unnamed
from phronomy.runs.options import AgentOptions, CallOptions, Trust
from phronomy.runs.runs import Runs
from phronomy.stops.breakpoints import Breakpoint
from phronomy.stores.base import Store
from phronomy.stores.memory import MemoryStore
from phronomy.tools.context import Deps
from phronomy.tools.tool import ToolOptions

_OPTIONS: Final = {**AgentOptions.__annotations__, "output_type": "Any"}
"""The options of an agent by name, each with its type."""


class Agent(Runs[Deps, Output]):
    """A model with instructions and tools. Its runs stop when a human must decide.

    Make an agent with arguments, or as a class whose attributes are the defaults
    (`class Support(Agent): model = "..."`). An agent holds no state of any run, so one agent serves any number of
    threads and tasks. The configuration is checked when the agent first runs, and is fixed after that. A mistake in it
    is a `ConfigurationError`.
    """

    name: str = ""
    """The name of the agent in checkpoints and in the store. Default: the name of the class."""

    description: str = ""
    """What the agent is for. Agents that can call it or hand over to it are shown this text."""

    model: str | Model | None = None
    """The name of a model, such as `"openai/gpt-4o-mini"`, or a `Model`."""

    instructions: Instructions = None
    """The text that tells the model its task, a `PromptTemplate`, or a function of the input (and a context).

    Instructions are made from the original input of the run, before each model call.
    """

    tools: Sequence[Any] = ()
    """The tools of the agent: tools, tool classes, or plain functions."""

    handoffs: Sequence[Any] = ()
    """The agents to which this agent can hand over: agents, `Handoff`s, or names of agents that the run can reach."""

    max_handoffs: int = 20
    """The largest number of handoffs in a run. After that, the model is told to go on itself."""

    settings: ModelSettings | None = None
    """The settings of the model, such as its temperature."""

    store: Store = None  # type: ignore[assignment]  # an instance always has one
    """Where checkpoints are kept. Without a store, the checkpoints exist only in this process."""

    trust: Trust | None = None
    """Whether the agent accepts a checkpoint that its store does not know: only with `"bearer"`.

    Default: `"bearer"` for an agent without a store, `"store"` for an agent with one.
    """

    limits: Limits = Limits.model_construct()
    """The most that a run may use, over all its resumes. By default 100 model calls, and no other limit."""

    memory: Memory | None = None
    """How much of the conversation the model is shown. None: all of it."""

    max_parallel: int = 8
    """How many calls of a reply run at the same time."""

    output_type: TypeForm[Output] | None = None
    """The type of the answer: a pydantic model, a dataclass, a TypedDict, a union, or a plain type. None: text.

    With `Agent(output_type=Refund)`, type checkers know the type of `result.output`. In a class, name the type in the
    base too: `class Desk(Agent[Any, Refund]): output_type = Refund`.
    """

    output_mode: OutputMode = "schema"
    """How the model is told the output type.

    `"schema"`: by its `response_format`. `"prompt"`: by text after the instructions.
    """

    output_retries: int = 2
    """How many more answers a run allows after answers that do not fit the output type."""

    hooks: Sequence[Hooks] = ()
    """Objects that are called with the events of the agent's runs."""

    announcements: Sequence[Announcements] = ()
    """Objects that are called, at least once, with stored facts: a run waits, was decided, or has ended."""

    approval_timeout: float | None = None
    """The seconds that a human has to decide on a call, for tools that have no `approval_timeout`. None: no limit."""

    on_expiry: OnExpiry = "reject"
    """What happens if nobody decides in time, for tools that do not say.

    `"reject"`: the call is settled as expired. `"cancel"`: the run ends as well. `"stay"`: the call stays pending.
    """

    approval_policy: ApprovalPolicy = ()
    """The calls that need approval, besides those whose tools ask for it: names of tools, or a mapping to rules.

    The policy also holds in all nested runs.
    """

    review_messages: ReviewMessages = 0
    """The messages of the conversation that a human is shown with each request: the last ones (up to 50), or a function.

    The function gets all messages, and returns those to show. They are stored with each request, cut to 2,000
    characters each, without the arguments of calls, and without the results of tools that redact parameters.
    """

    breakpoints: Iterable[Breakpoint] = ()
    """Where runs stop so that somebody can look: a list, or a `Breakpoints` object that can change while runs go on."""

    input_guardrails: Sequence[Any] = ()
    """The guardrails that check the input before the model sees it, in this order.

    Each is a function with `@guardrail`, or an instance of `Guardrail`.
    """

    output_guardrails: Sequence[Any] = ()
    """The guardrails that check the answer before anybody else sees it."""

    tool_guardrails: Sequence[Any] = ()
    """The guardrails that check each tool call, after its arguments are validated and before a human is asked."""

    _spec: AgentSpec | None = None
    _handler: Handler | None = None
    _bearer: bool = False
    # The agent that calls on the class itself run, once there was one, and the options that it was made with.
    _own: ClassVar[dict[str, tuple[object, dict[str, object]]]]

    @overload
    def __init__(self, *, output_type: None = None, **options: Unpack[AgentOptions]) -> None: ...
    @overload
    def __init__(self, *, output_type: TypeForm[Output], **options: Unpack[AgentOptions]) -> None: ...
    def __init__(self, *given: Any, **options: Any) -> None:
        spelling.check_by_name(type(self).__name__, given, ("name", "model", "tools"), ConfigurationError)
        if unknown := options.keys() - _OPTIONS.keys():
            raise ConfigurationError(f"an agent has no option {spelling.told(unknown, _OPTIONS)}")
        self._handler = options.pop("on_approval_required", self._handler_of_class())
        self._spec = None
        for name, value in options.items():
            setattr(self, name, value)
        check_output(self)
        self._bearer = self.trust == "bearer" or (self.trust is None and self.store is None)
        self.store = self.store if self.store is not None else MemoryStore.of_agent()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _SPELT.check(cls)
        cls._own = {}

    @classmethod
    def _written(cls) -> dict[str, object]:
        """The options as they are written in the class now, or in those that it inherits from."""
        return {name: each for base in reversed(cls.__mro__) for name, each in vars(base).items() if name in _OPTIONS}

    def _handler_of_class(self) -> Handler | None:
        """The method of this name that a subclass has: what is asked, where nothing else is given."""
        written = type(self).on_approval_required is not Agent.on_approval_required
        return cast("Handler", self.on_approval_required) if written else None

    if not TYPE_CHECKING:  # a type checker refuses what is not declared

        def __setattr__(self, name: str, value: object) -> None:
            _SPELT.check_attribute(name, self, value)
            if getattr(self, "_spec", None) is not None:
                raise ConfigurationError(
                    f"agent {self.spec.name!r} has run, so its configuration is fixed: make another agent"
                )
            if (of := getattr(self, "_fixed_for", None)) is not None:
                raise ConfigurationError(
                    f"agent {name_of(self)!r} is part of the runs of {of!r}, so its configuration is fixed: make another agent"
                )
            of = getattr(self, "_copied_for", None)
            if of is not None and name in spelling.GATES_OF:
                raise ConfigurationError(
                    f"agent {name_of(self)!r} is copied into {of!r}, which would not hear of its {name}: set it before, or make another"
                    " agent"
                )
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name or type(self).__name__!r}>"

    if TYPE_CHECKING:  # a method of a subclass has other arguments
        on_approval_required: Registers
    else:

        def on_approval_required(self, handler: Handler) -> Self:
            """Set the approval handler, which answers at once about each call that needs approval. Returns the agent.

            The handler is called with the name of the tool and the arguments. If it returns True or `Approve`, the call
            runs. False, None or `Reject` rejects the call. `Defer` suspends the run. If the handler returns anything
            else, or raises, that is an `ApprovalHandlerError`, and nothing runs. A subclass can define a method of this
            name instead; that method is then the handler.
            """
            self._handler = handler
            return self

    @property
    def spec(self) -> AgentSpec:
        """The checked and fixed configuration. Raises `ConfigurationError` if it has a mistake."""
        if self._spec is None:
            spec = self._checked()
            object.__setattr__(self, "_spec", spec)
            if not self.name and type(self) is Agent:  # a subclass has the name that somebody gave the class
                note_unnamed("agent", spec.name, self.store)
            return spec
        return self._spec

    def _fix(self, of: str) -> None:
        """Change no more: runs of the agent named `of` may hand over to this one, and have read its configuration."""
        object.__setattr__(self, "_fixed_for", of)

    def _note_copy(self, of: str) -> None:
        """Change no gate any more: the team named `of` has a copy of the agent as it is."""
        object.__setattr__(self, "_copied_for", of)

    def _check_class(self) -> None:
        """Look at the class again, which may have been given more since it was made. Raises `ConfigurationError`."""
        _SPELT.check(type(self))

    def _checked(self) -> AgentSpec:
        if "_bearer" not in self.__dict__:
            raise ConfigurationError(
                f"{type(self).__name__} is not built: call super().__init__() in its __init__, which that of a dataclass does not"
            )
        return spec_of(self)

    def _for_call(self, options: CallOptions[Deps], method: str | None) -> tuple[AgentSpec, object]:
        spec = self.spec
        if unknown := options.keys() - CallOptions.__annotations__.keys():
            known = CallOptions.__annotations__
            raise ConfigurationError(f"there is no option {spelling.told(unknown, known)}: nothing was done")
        if foreign := options.keys() & {"interrupt_before", "interrupt_after", "update", "modify_state"}:
            raise ConfigurationError(
                f"agent {spec.name!r}: {', '.join(sorted(foreign))} is for graphs: nothing was done"
            )
        if (model := options.get("model")) is not None:
            spec = spec.changed(model=as_model(model))
        if (settings := options.get("settings")) is not None:
            if not isinstance(settings, ModelSettings):
                raise ConfigurationError(f"settings is a ModelSettings, not {type(settings).__name__}")
            spec = spec.asked_with(settings)
        if "input_guardrails" in options:
            spec = spec.changed(input_guardrails=as_guardrails("input_guardrails", options["input_guardrails"]))
        if "output_guardrails" in options:
            spec = spec.changed(output_guardrails=as_guardrails("output_guardrails", options["output_guardrails"]))
        if "tool_guardrails" in options:
            spec = spec.changed(tool_guardrails=as_guardrails("tool_guardrails", options["tool_guardrails"]))
        if method is not None and not method.startswith("a"):
            spec.refuse_async(method)
        return self._with_stops(spec, options, method), options.get("deps")


_SPELT: Final = spelling.Options(
    Agent,
    _OPTIONS,
    ConfigurationError,
    typed=AgentOptions,
    elsewhere=dict.fromkeys(ToolOptions.__annotations__.keys() - _OPTIONS.keys(), "that is an option of a tool."),
    closed=True,
)
