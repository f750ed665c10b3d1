"""An option that is misspelt is refused, and the one that was meant is named: a gate with a wrong name would be open."""

from __future__ import annotations

import copy
from typing import Annotated, Any, ClassVar, Optional

import pytest
from drivers import Driver
from pydantic import BaseModel
from tables import each

import phronomy
from phronomy import (
    Agent,
    Breakpoint,
    ConfigurationError,
    DagNode,
    Guardrail,
    Handoff,
    Hold,
    MCPServer,
    MemoryStore,
    Orchestrator,
    Pattern,
    Step,
    Store,
    Tool,
    ToolDefinitionError,
    guardrail,
    tool,
)
from phronomy.approvals.policy import ApprovalPolicy
from phronomy.foundation.spelling import near
from phronomy.graph import END, START, StateGraph
from phronomy.runs.options import AgentOptions
from phronomy.teams.patterns import sequential
from phronomy.testing import ScriptedModel, call
from phronomy.tools.tool import ToolOptions


@each(
    ("name", "meant"),
    [
        ("tool", "tools"),
        ("Tools", "tools"),
        ("aproval_policy", "approval_policy"),
        ("approvalPolicy", "approval_policy"),
        ("approval_policies", "approval_policy"),
        ("policy", "approval_policy"),
        ("guardrails", "tool_guardrails"),
        ("tool_guardrail", "tool_guardrails"),
        ("break_points", "breakpoints"),
        ("on_aproval_required", "on_approval_required"),
        ("limit", "limits"),
        ("instruction", "instructions"),
        ("refund_policy", None),
        ("greeting", None),
        ("order", None),
        ("clerk", None),
    ],
)
def test_what_is_near_an_option_of_an_agent(name: str, meant: str | None) -> None:
    assert near(name, AgentOptions.__annotations__) == meant
    if meant is None:
        return
    with pytest.raises(ConfigurationError, match=rf"class Desk: {name} is no option of Agent.*did you mean {meant}\?"):
        type("Desk", (Agent,), {name: ["x"]})
    with pytest.raises(ConfigurationError, match=rf"{name} \(did you mean {meant}\?\)"):
        Agent(**{name: ["x"]})
    with pytest.raises(ConfigurationError, match=f"did you mean {meant}"):
        setattr(Agent(), name, ["x"])


@each(
    ("name", "meant"),
    [
        ("require_approval", "requires_approval"),
        ("required_approval", "requires_approval"),
        ("requiresApproval", "requires_approval"),
        ("needs_approval", "requires_approval"),
        ("idempotant", "idempotent"),
        ("time_out", "timeout"),
        ("redacts", "redact"),
        ("on_expire", "on_expiry"),
        ("path", None),
        ("size", None),
    ],
)
def test_what_is_near_an_option_of_a_tool(name: str, meant: str | None) -> None:
    assert near(name, ToolOptions.__annotations__) == meant

    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    if meant is None:
        return
    with pytest.raises(ToolDefinitionError, match=rf"class Pay: {name} is no option of Tool.*did you mean {meant}\?"):
        type("Pay", (Tool,), {"execute": pay, name: True})
    with pytest.raises(ToolDefinitionError, match=rf"{name} \(did you mean {meant}\?\)"):
        tool(**{name: True})(pay)  # type: ignore[call-overload]


def test_a_method_a_mixin_and_an_annotation_alone_are_no_exception() -> None:
    class Mixin:
        require_approval = True

    with pytest.raises(ToolDefinitionError, match="class Mixin: require_approval"):
        type("Wipe", (Mixin, Tool), {})
    with pytest.raises(ToolDefinitionError, match="class Wipe: requires_aproval"):
        type("Wipe", (Tool,), {"requires_aproval": lambda self, args: True})
    with pytest.raises(ConfigurationError, match="class Desk: aproval_policy"):

        class Desk(Agent[Any, str]):
            aproval_policy: list[str]


def test_an_option_of_a_tool_in_an_agent_is_refused_and_the_other_way_round() -> None:
    with pytest.raises(
        ConfigurationError, match=r"requires_approval is no option of Agent.*that is an option of a tool"
    ):
        type("Desk", (Agent,), {"requires_approval": True})
    with pytest.raises(
        ToolDefinitionError, match=r"approval_policy is no option of Tool.*that is an option of an agent"
    ):
        type("Wipe", (Tool,), {"approval_policy": ["*"]})


def test_what_has_the_type_of_an_option_is_taken_for_one() -> None:
    with pytest.raises(ConfigurationError, match=r"class Desk: gates.*it has the type of an option"):

        class Desk(Agent[Any, str]):
            gates: ApprovalPolicy = ("pay",)


@each(
    "annotation",
    [
        ApprovalPolicy,
        Optional[ApprovalPolicy],  # noqa: UP045  # as users write it
        ApprovalPolicy | None,
        Annotated[ApprovalPolicy, "which calls ask"],
        list[ApprovalPolicy],
        Optional[phronomy.Limits],  # noqa: UP045
        "ApprovalPolicy | None",
    ],
)
def test_a_type_of_an_option_is_known_where_the_annotation_is_evaluated(annotation: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"class Desk: gates.*it has the type of an option"):
        type("Desk", (Agent,), {"__annotations__": {"gates": annotation}, "gates": ("pay",)})


def test_what_is_said_of_an_annotation_is_no_type() -> None:
    own = {
        "shelf": Annotated[str, "where the Store and its Limits are"],
        "rate": float | None,
        "spare": ClassVar[Store],
    }
    type("Desk", (Agent,), {"__annotations__": own, "shelf": "a", "rate": None, "spare": MemoryStore()})


def desk_with(**body: Any) -> type[Agent[Any, Any]]:
    return type("Desk", (Agent,), {"model": ScriptedModel(["Done."]), **body})


def wipe_with(**body: Any) -> type[Tool]:
    def execute(self: Any) -> str:
        """Wipe."""
        return "wiped"

    return type("Wipe", (Tool,), {"execute": execute, **body})


def test_what_is_set_on_a_class_after_its_body_is_looked_at_when_an_agent_first_runs(driver: Driver) -> None:
    class Mixin:
        pass

    base: Any = desk_with(model=ScriptedModel.by_turn(["Done."]))
    mixed: Any = type("Mixed", (Mixin, base), {})
    first: Any = mixed()
    driver.invoke(first, "x")
    owner: Any
    for owner in (base, Mixin):
        owner.aproval_policy = ["pay"]
        with pytest.raises(
            ConfigurationError, match=r"aproval_policy is no option of Agent.*did you mean approval_policy"
        ):
            driver.invoke(mixed(), "x")
        delattr(owner, "aproval_policy")
    driver.invoke(first, "x")  # its configuration is fixed

    class Late(base):  # type: ignore[valid-type, misc]
        def __init_subclass__(cls, **options: Any) -> None:
            super().__init_subclass__(**options)
            cls.aproval_policy = ["pay"]

    class Later(Late):
        pass

    with pytest.raises(ConfigurationError, match="class Later: aproval_policy"):
        driver.invoke(Later(), "x")


def test_what_is_set_on_a_class_of_tools_after_its_body_is_looked_at_when_one_is_built() -> None:
    wipe: Any = wipe_with()
    wipe()
    wipe.requires_aproval = True
    with pytest.raises(ToolDefinitionError, match=r"class Wipe: requires_aproval.*did you mean requires_approval"):
        wipe()


def test_an_option_in_a_mixin_behind_the_base_is_refused() -> None:
    """The default of the base comes first, so nothing would be asked."""
    gated: Any = type("Gated", (), {"approval_policy": ["pay"]})
    desk = desk_with()
    with pytest.raises(
        ConfigurationError, match=r"approval_policy of Gated would be ignored.*put Gated in front of it"
    ):
        type("Behind", (desk, gated), {})
    for option in ("tool_guardrails", "output_guardrails", "on_approval_required"):
        with pytest.raises(ConfigurationError, match=f"{option} of Mixin would be ignored"):
            type("Behind", (desk, type("Mixin", (), {option: ()})), {})
    with pytest.raises(ToolDefinitionError, match="requires_approval of Mixin would be ignored"):
        type("Behind", (wipe_with(), type("Mixin", (), {"requires_approval": True})), {})
    assert type("Front", (gated, desk), {})().approval_policy == ["pay"]
    assert type("Own", (desk, gated), {"approval_policy": ["wipe"]})().approval_policy == ["wipe"]  # its own word


@each(
    "name",
    ["requires_approval", "timeout", "on_failure", "risk", "idempotent", "redact", "fallback", "requires_aproval"],
)
def test_an_option_of_a_tool_is_refused_on_an_agent_wherever_it_is_written(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is an option of a tool"):
        desk_with(**{name: True})
    with pytest.raises(ConfigurationError, match=rf"Desk has no option {name}.*is an option of a tool"):
        setattr(desk_with()(), name, True)


@each("name", ["tool_guardrails", "breakpoints", "approval_policy", "aproval_policy"])
def test_a_gate_of_an_agent_is_refused_on_a_tool(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match=r"is an option of an agent"):
        wipe_with(**{name: ()})
    with pytest.raises(ToolDefinitionError, match=rf"Wipe has no option {name}.*is an option of an agent"):
        setattr(wipe_with()(), name, ())


def test_what_is_made_of_the_options_is_not_overridden() -> None:
    for name, value in {"gate": "never", "schema_hash": "0", "parameters": {}, "predicate_is_async": False}.items():
        with pytest.raises(ToolDefinitionError, match=f"class Wipe: {name} is no option of Tool, which makes it"):
            wipe_with(**{name: value, "requires_approval": True})
    with pytest.raises(ConfigurationError, match="class Desk: spec is no option of Agent"):
        desk_with(spec=None)


def test_a_gate_on_a_function_that_becomes_a_tool_is_refused() -> None:
    def pay() -> str:
        """Pay."""
        return "paid"

    for name in ("requires_approval", "requires_aproval"):
        setattr(pay, name, True)
        with pytest.raises(ToolDefinitionError, match=rf"has the attribute {name}, which would be ignored.*@tool"):
            tool(pay)
        delattr(pay, name)
    pay.price = 3  # type: ignore[attr-defined]
    assert tool(pay).gate == "never"


def test_what_is_the_classs_own_is_said_to_be() -> None:
    """By an underscore, or by an annotation as a ClassVar; what is near nothing needs neither."""

    class Desk(Agent[Any, str]):
        _tool = "hammer"
        policy: ClassVar[str] = "no refunds on Sundays"
        spare: ClassVar[Store] = MemoryStore()
        greeting = "Good morning"
        opening_hours: tuple[int, int] = (9, 17)

        def greet(self) -> str:
            return self.greeting

    desk = Desk()
    desk.greeting = "Good evening"
    assert (desk.greet(), desk.policy) == ("Good evening", "no refunds on Sundays")

    class Saw(Tool):
        length = 3

        def __init__(self, teeth: int) -> None:
            self.teeth = teeth
            super().__init__()

        def execute(self) -> str:
            """Saw."""
            return f"{self.length} {self.teeth}"

    assert Saw(5).execute() == "3 5"


def test_every_constructor_names_the_option_that_was_meant() -> None:
    class Job(BaseModel):
        said: str = ""

    def step(text: str) -> str:
        return text

    def check(value: str) -> None: ...

    agent: Any = Agent(name="a", model=ScriptedModel(["x"]))
    wrong: list[Any] = [
        lambda: guardrail(retrys=1)(check),  # type: ignore[call-overload]
        lambda: StateGraph(Job).add_node("a", step, require_approval=True),  # type: ignore[call-arg]
        lambda: StateGraph(Job).add_node("a", step).add_edge(START, "a").add_edge("a", END).compile(aproval_policy=[]),  # type: ignore[call-arg]
        lambda: sequential(step, step, aproval_policy=[]),  # type: ignore[call-arg]
        lambda: phronomy.Orchestrator([agent], aproval_policy=[]),  # type: ignore[call-arg]
        lambda: agent.as_tool(approval_timeot=3),
        lambda: agent.invoke("x", breakpoint=[]),
    ]
    meant = ["retries", "requires_approval", *["approval_policy"] * 3, "approval_timeout", "breakpoints"]
    for make, option in zip(wrong, meant, strict=True):
        with pytest.raises(ConfigurationError, match=rf"\(did you mean {option}\?\)"):
            make()


def test_a_handler_that_is_a_method_of_the_class_is_heard(driver: Driver) -> None:
    asked: list[Any] = []

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    class Desk(Agent[Any, str]):
        tools = (pay,)
        limit_of_a_day = 10

        def on_approval_required(self, name: str, args: dict[str, Any]) -> bool:
            asked.append((name, args))
            return bool(args["amount"] < self.limit_of_a_day)

    def replies() -> ScriptedModel:
        return ScriptedModel([[call("pay", {"amount": 5}), call("pay", {"amount": 50})], "Done."])

    result = driver.invoke(Desk(model=replies()), "Pay")
    assert asked == [("pay", {"amount": 5}), ("pay", {"amount": 50})]
    assert [message.settlement for message in result.messages if message.role == "tool"] == ["completed", "rejected"]

    class Late(Desk):
        async def on_approval_required(self, name: str, args: dict[str, Any]) -> bool:
            return True

    late = Late(model=replies())
    if not driver.is_async:
        with pytest.raises(phronomy.AsyncRequired, match="the approval handler"):
            driver.invoke(late, "Pay")
        return
    result = driver.invoke(late, "Pay")
    assert [message.settlement for message in result.messages if message.role == "tool"] == ["completed"] * 2


def test_a_handler_that_is_given_stands_before_the_method_of_the_class(driver: Driver) -> None:
    class Desk(Agent[Any, str]):
        def on_approval_required(self, name: str, args: dict[str, Any]) -> bool:
            raise AssertionError("never asked")

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    desk = Desk(model=ScriptedModel([call("pay"), "Done."]), tools=[pay], on_approval_required=lambda *_: False)
    assert driver.invoke(desk, "Pay").messages[2].settlement == "rejected"


def clerk() -> Agent[Any, str]:
    return Agent(name="clerk", model=ScriptedModel(["Done."]))


def twice(text: str) -> str:
    return text * 2


class Job(BaseModel):
    said: str = ""


GIVEN: list[tuple[Any, Any]] = [
    (Handoff, lambda kind: kind(clerk())),
    (Step, lambda kind: kind(twice)),
    (DagNode, lambda kind: kind(twice)),
    (Hold, lambda kind: kind()),
    (Breakpoint, lambda kind: kind("pre_tool_call")),
    (MCPServer, lambda kind: kind("desk", url="http://localhost:9")),
    (StateGraph, lambda kind: kind(Job)),
]
"""Classes that take their options where one is made, each with how."""


@each(("base", "make"), GIVEN)
def test_a_gate_is_heard_where_one_is_made_and_refused_elsewhere(base: Any, make: Any) -> None:
    """On an instance, in the body of a subclass, on the class after its body, in a mixin: nobody would look at it there."""
    for name in ("requires_approval", "requires_aproval", "approval_policy", "aproval_policy", "tool_guardrails"):
        with pytest.raises(ConfigurationError, match=rf"\b{name}\b.*would be ignored"):
            setattr(make(base), name, True)
        with pytest.raises(ConfigurationError, match=rf"class Own: {name} "):
            type("Own", (base,), {name: True})
        with pytest.raises(ConfigurationError, match=rf"class Mixin: {name} "):
            type("Own", (type("Mixin", (), {name: True}), base), {})
        own: Any = type("Own", (base,), {})
        make(own)
        setattr(own, name, True)
        with pytest.raises(ConfigurationError, match=rf"class Own: {name} "):
            make(own)
        with pytest.raises(ConfigurationError, match=rf"\b{name}\b.*would be ignored"):
            setattr(make(type("Own", (base,), {})), name, True)
    own = type(
        "Own", (base,), {"_requires_approval": True, "colour": "red", "__annotations__": {"policy": "ClassVar[str]"}}
    )
    made = make(own)
    made.shade = "dark"
    assert (made.colour, made.shade) == ("red", "dark")


@each(
    ("base", "name", "says"),
    [
        (Handoff, "requires_approval", r"as in Handoff\(\.\.\., requires_approval=\.\.\.\)"),
        (Handoff, "input_filters", r"did you mean input_filter\?"),
        (Handoff, "input_filter", r"as in Handoff"),
        (Handoff, "gate", r"write those"),
        (Step, "requires_approval", r"as in Step\("),
        (Step, "on_failures", r"did you mean on_failure\?"),
        (DagNode, "needs", r"as in DagNode\("),
        (DagNode, "need", r"did you mean needs\?"),
        (DagNode, "when", r"as in DagNode\("),
        (Hold, "timeout", r"as in Hold\("),
        (Hold, "time_out", r"did you mean timeout\?"),
        (Breakpoint, "agents", r"as in Breakpoint\("),
        (Breakpoint, "tool", r"did you mean tools\?"),
        (MCPServer, "exclude", r"as in MCPServer\("),
        (MCPServer, "redacts", r"did you mean redact\?"),
        (StateGraph, "approval_policy", r"as in compile\(approval_policy=\.\.\.\)"),
        (StateGraph, "on_aproval_required", r"did you mean on_approval_required\?"),
    ],
)
def test_an_option_in_a_body_that_nobody_reads_says_where_it_goes(base: Any, name: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"class Own: {name} .*{says}"):
        type("Own", (base,), {name: ()})


@each(
    ("make", "says"),
    [
        (
            lambda: Handoff("x", requires_aproval=True),
            r"Handoff has no option requires_aproval: did you mean requires_approval\?",
        ),
        (lambda: Hold(time_out=3), r"Hold has no option time_out: did you mean timeout\?"),
        (lambda: Breakpoint("tool", tool=["x"]), r"Breakpoint has no option tool: did you mean tools\?"),
        (lambda: MCPServer("x", colour="red"), r"MCPServer has no option colour: it has name, command, env"),
        (lambda: StateGraph(Job, approval_policy=[]), r"StateGraph has no option approval_policy: give it to compile"),
        (lambda: StateGraph(Job, aproval_policy=[]), r"did you mean approval_policy\?"),
    ],
)
def test_an_option_that_is_none_is_refused_where_one_is_made(make: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        make()


def test_a_constructor_of_yours_takes_what_it_takes() -> None:
    class Slow(Hold):
        def __init__(self, *, colour: str) -> None:
            super().__init__(timeout=5)
            self.colour = colour

    assert (Slow(colour="red").colour, Slow(colour="red").timeout) == ("red", 5)
    for bad in ({}, {"color": "red"}):
        with pytest.raises(TypeError):
            Slow(**bad)  # type: ignore[arg-type]


def test_what_one_has_may_be_set_and_its_methods_overridden() -> None:
    hold = Hold()
    hold.timeout = 5
    assert copy.copy(hold.__class__(timeout=3)).timeout == 3

    class Small(MCPServer):
        def tools(self) -> list[Any]:
            return []

    assert Small("desk", url="http://localhost:9").tools() == []


@each("name", ["aproval_policy", "requires_approval", "policy"])
def test_what_is_no_option_of_a_team_is_refused_in_its_class(name: str) -> None:
    for base in (Orchestrator, Pattern, phronomy.Graph):
        with pytest.raises(ConfigurationError, match=rf"class Own: {name} is no option of (Orchestrator|Graph)"):
            type("Own", (base,), {name: ["pay"]})
    own: Any = type("Own", (Orchestrator,), {})
    setattr(own, name, ["pay"])
    with pytest.raises(ConfigurationError, match=rf"class Own: {name} is no option of Orchestrator"):
        own([clerk()])

    def early(self: Any) -> None:
        setattr(self, name, ["pay"])

    with pytest.raises(ConfigurationError, match=rf"Early has no option {name}"):
        type("Early", (Orchestrator,), {"__init__": early})()  # type: ignore[call-arg]


def test_an_argument_of_a_team_in_the_body_of_its_class_is_refused() -> None:
    for name in ("handoffs", "memory", "hold", "on_breakpoint", "entry", "tool_guardrails"):
        with pytest.raises(
            ConfigurationError, match=rf"class Own: {name} would be ignored here: give it.*as in Orchestrator\("
        ):
            type("Own", (Orchestrator,), {name: None})
    for base in (Pattern, phronomy.Graph):
        with pytest.raises(ConfigurationError, match="tool_guardrails is no option of Graph"):
            type("Own", (base,), {"tool_guardrails": []})


def test_the_options_in_the_class_of_a_team_are_heard(driver: Driver, store: Store) -> None:
    asked: list[str] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    home = store

    class Desk(Orchestrator[Any]):
        name = "desk"
        store = home
        approval_policy = ("pay",)
        approval_timeout = 60.0

        def on_approval_required(self, name: str, args: dict[str, Any]) -> Any:
            asked.append(name)
            return phronomy.Defer()

    teller = Agent(name="teller", model=ScriptedModel([call("pay", {"amount": 3}), "Paid."]), tools=[pay])
    desk = Desk([teller])
    result: Any = driver.call(desk, "run", "Pay 3")
    assert (result.status, asked, desk.name, desk.store is home) == ("suspended", ["pay"], "desk", True)
    assert result.checkpoint.pending[0].expires_at is not None
    assert result.checkpoint.agent.name == "desk"


def test_what_may_be_a_misspelt_option_of_a_guardrail_is_refused() -> None:
    def check(self: Any, value: Any) -> None: ...

    for name in ("retry_waits", "stage", "requires_approval", "input_guardrail"):
        with pytest.raises(ConfigurationError, match=f"class Looks: {name} is no option of Guardrail"):
            type("Looks", (Guardrail,), {"check": check, name: 1})
        looks: Any = type("Looks", (Guardrail,), {"check": check})
        with pytest.raises(ConfigurationError, match=f"Looks has no option {name}"):
            setattr(looks(), name, 1)
        setattr(looks, name, 1)
        with pytest.raises(ConfigurationError, match=f"class Looks: {name} is no option of Guardrail"):
            looks()


def test_a_gate_of_an_agent_that_a_team_has_copied_is_refused() -> None:
    agent = clerk()
    Orchestrator([agent])
    agent.instructions = "Be brief."
    for name in ("approval_policy", "tool_guardrails", "breakpoints"):
        with pytest.raises(ConfigurationError, match=f"agent 'clerk' is copied into 'team'.*{name}"):
            setattr(agent, name, ["pay"])
    assert Orchestrator([agent], name="other").members == ("clerk",)
