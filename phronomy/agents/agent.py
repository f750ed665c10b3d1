"""The agent: a model with instructions and tools, that stops where a human must decide, and goes on from there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, cast, overload

from typing_extensions import TypeForm, Unpack

from phronomy.agents.handler import Registers
from phronomy.agents.spec import AgentSpec, name_of
from phronomy.agents.team import spec_of
from phronomy.approvals.policy import ApprovalPolicy
from phronomy.conversation.instructions import Instructions
from phronomy.conversation.memory import Memory
from phronomy.conversation.output import OutputMode
from phronomy.engine.spec import Handler
from phronomy.errors import ConfigurationError
from phronomy.foundation import spelling
from phronomy.guardrails.guardrail import as_guardrails
from phronomy.models.base import Model, ModelSettings
from phronomy.models.by_name import as_model
from phronomy.observability.announcements import Announcements
from phronomy.observability.hooks import Hooks
from phronomy.records.decisions import OnExpiry
from phronomy.records.result import Output
from phronomy.rules.limits import Limits
from phronomy.runs.options import AgentOptions, CallOptions, Trust
from phronomy.runs.runs import Runs
from phronomy.stops.breakpoints import Breakpoint
from phronomy.stores.base import Store
from phronomy.stores.memory import MemoryStore
from phronomy.tools.tool import Deps, ToolOptions

_OPTIONS: Final = {**AgentOptions.__annotations__, "output_type": "Any"}
"""The options of an agent by name, each with its type."""


class Agent(Runs[Deps, Output]):
    """A model with instructions and tools, that stops where a human must decide.

    Make one with arguments, or as a class whose attributes are the defaults (`class Support(Agent): model = "..."`). Nothing of a
    run is kept here: one agent serves any number of threads and tasks. Its configuration is fixed, and checked, once it first
    runs: errors in it are `ConfigurationError`.
    """

    name: str = ""
    """What checkpoints know the agent by: the class name, unless given."""

    description: str = ""
    """What the agent is for: told to the agents that may call it, or hand over to it."""

    model: str | Model | None = None
    """A name, such as `"openai/gpt-4o-mini"`, or a `Model`."""

    instructions: Instructions = None
    """Text, a `PromptTemplate`, or a callable of the input (and a context); made anew from the original input at each model call."""

    tools: Sequence[Any] = ()
    """Tools, tool classes, or plain functions."""

    handoffs: Sequence[Any] = ()
    """Who may be handed the conversation: agents, `Handoff`s to them, or names of agents that the run can come to."""

    max_handoffs: int = 20
    """How often a run may be handed over. After that the model is told that no more are made."""

    settings: ModelSettings | None = None
    """How the model is to be asked."""

    store: Store = None  # type: ignore[assignment]  # an instance always has one
    """Where checkpoints are kept. Without one they live in this process alone."""

    trust: Trust | None = None
    """Whether a checkpoint that the store has never seen is accepted: only with `"bearer"`, which is the default without a store."""

    limits: Limits = Limits.model_construct()
    """What one logical run may use, over all its resumes: by default 100 model calls, and no bound on anything else."""

    memory: Memory | None = None
    """How much of the conversation the model is shown. None: all of it."""

    max_parallel: int = 8
    """How many calls of one reply run side by side."""

    output_type: TypeForm[Output] | None = None
    """What the answer is to be: a pydantic model, a dataclass, a TypedDict, a union, a plain type. None: text.

    A type checker reads the type of the answer from it, `Agent(output_type=Refund)`; a class has it in its base as well,
    `class Desk(Agent[Any, Refund]): output_type = Refund`.
    """

    output_mode: OutputMode = "schema"
    """How the model is asked for it: by its `response_format` (`"schema"`), or in words after the instructions (`"prompt"`)."""

    output_retries: int = 2
    """How often in a run the model is told that its answer is not of the output type, and answers again."""

    hooks: Sequence[Hooks] = ()
    """Who hears of what happens in the agent's runs."""

    announcements: Sequence[Announcements] = ()
    """Who is told, at least once, of what is stored: that a run waits, was decided on, has ended."""

    approval_timeout: float | None = None
    """Seconds that a human has to decide on a call, where its tool does not say. None: for ever."""

    on_expiry: OnExpiry = "reject"
    """What follows when nobody decides in time: `"reject"` (the call is settled as expired), `"cancel"` (the run ends), `"stay"`."""

    approval_policy: ApprovalPolicy = ()
    """Which calls a human approves, here and in every run inside, beside those whose tools ask: names of tools, or a mapping."""

    breakpoints: Iterable[Breakpoint] = ()
    """Where runs stop, so that somebody can look: a list, or `Breakpoints` that may change while they are under way."""

    input_guardrails: Sequence[Any] = ()
    """What looks at the input before the model does: functions with `@guardrail`, or instances of `Guardrail`, asked in order."""

    output_guardrails: Sequence[Any] = ()
    """What looks at the answer before anybody else does."""

    tool_guardrails: Sequence[Any] = ()
    """What looks at each call of a tool, once its arguments are validated and before a human is asked."""

    _spec: AgentSpec | None = None
    _handler: Handler | None = None
    _bearer: bool = False

    @overload
    def __init__(self, *, output_type: None = None, **options: Unpack[AgentOptions]) -> None: ...
    @overload
    def __init__(self, *, output_type: TypeForm[Output], **options: Unpack[AgentOptions]) -> None: ...
    def __init__(self, **options: Any) -> None:
        if unknown := options.keys() - _OPTIONS.keys():
            raise ConfigurationError(f"an agent has no option {spelling.told(unknown, _OPTIONS)}")
        self._handler = options.pop("on_approval_required", self._handler_of_class())
        self._spec = None
        for name, value in options.items():
            setattr(self, name, value)
        self._bearer = self.trust == "bearer" or (self.trust is None and self.store is None)
        self.store = self.store if self.store is not None else MemoryStore.of_agent()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _SPELT.check(cls)

    def _handler_of_class(self) -> Handler | None:
        """The method of this name that a subclass has: what is asked, where nothing else is given."""
        written = type(self).on_approval_required is not Agent.on_approval_required
        return cast("Handler", self.on_approval_required) if written else None

    if not TYPE_CHECKING:  # a type checker refuses what is not declared

        def __setattr__(self, name: str, value: object) -> None:
            _SPELT.check_attribute(name, self)
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
            """Have `handler` asked, at once, about each call that needs approval; returns the agent.

            It is called with the tool's name and arguments. True or `Approve` runs the call; False, None or `Reject` rejects it;
            `Defer` suspends the run. Anything else, or an exception, is an `ApprovalHandlerError`, and nothing runs.
            A subclass may have a method of this name instead, which is then the handler.
            """
            self._handler = handler
            return self

    @property
    def spec(self) -> AgentSpec:
        """The configuration, checked and fixed. Raises `ConfigurationError`."""
        if self._spec is None:
            spec = self._checked()
            object.__setattr__(self, "_spec", spec)
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
)
