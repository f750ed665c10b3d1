"""Gates where nobody looks at them: in a class, on a function, in the answer of a predicate. Each is refused, and nothing runs."""

from __future__ import annotations

import copy
import functools
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from drivers import DRIVERS, Driver
from pydantic import ValidationError
from pydantic.errors import PydanticUserError
from tables import each
from typing_extensions import TypedDict

from phronomy import (
    END,
    START,
    Agent,
    Approval,
    ConfigurationError,
    Escalate,
    Handoff,
    Limits,
    Memory,
    MemoryStore,
    Orchestrator,
    Reject,
    StateGraph,
    Tool,
    tool,
)
from phronomy.guardrails import Guardrail, Refuse
from phronomy.models import ModelSettings
from phronomy.stops.breakpoints import Breakpoint, Breakpoints
from phronomy.stops.triggers import ExternalEvent
from phronomy.testing import ScriptedModel, call


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    driver: Driver = request.param
    return driver


# An `Approval` as the answer of a predicate


class Total(TypedDict):
    total: int


def two_of_finance(_: Any) -> Any:
    return Approval(by="finance", needed=2, not_requester=True)


@each("place", ["tool", "policy", "when", "policy, when"])
def test_an_approval_as_an_answer_refuses_the_call(driver: Driver, place: str) -> None:
    """Nobody can approve it: whom it names would not be asked."""
    paid: list[int] = []
    asked = Approval(when=two_of_finance) if "when" in place else two_of_finance

    @tool(requires_approval=False if "policy" in place else asked)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    model = ScriptedModel.by_turn([call("pay", {"amount": 5}), "Done."])
    policy: Any = {"pay": asked} if "policy" in place else {}
    agent = Agent(name="desk", model=model, tools=[pay], store=MemoryStore(), approval_policy=policy)
    result = driver.invoke(agent, "go", requester="ann")
    (told,) = [message for message in result.messages if message.role == "tool"]
    assert (result.status, told.settlement, paid) == ("completed", "rejected", [])
    assert "returned an Approval, so the call is refused" in told.text


def test_an_approval_as_an_answer_refuses_the_node(driver: Driver) -> None:
    builder = StateGraph(Total)
    builder.add_node("pay", lambda state: {"total": 1}, requires_approval=two_of_finance)
    builder.add_edge(START, "pay")
    builder.add_edge("pay", END)
    graph: Any = builder.compile(store=MemoryStore())
    result = driver.invoke(graph, {"total": 0}, requester="ann")
    assert result.checkpoint.pending == () and result.status == "rejected"


@each("answer", [None, 0, 1, "no", Approval])
def test_any_other_answer_asks(answer: Any) -> None:
    @tool(requires_approval=lambda args: answer)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel.by_turn([call("pay", {"amount": 5}), "Done."])
    agent = Agent(name="desk", model=model, tools=[pay], store=MemoryStore())
    assert len(agent.invoke("go").checkpoint.pending) == 1


# Fields in the body of a class


FIELDS: list[tuple[Any, str, Any]] = [
    (Approval, "by", "finance"),
    (Approval, "needed", 2),
    (Approval, "not_requester", True),
    (Approval, "when", lambda self, args: True),
    (Approval, "need", 2),
    (Escalate, "by", "finance"),
    (Escalate, "instead", True),
    (Memory, "max_tokens", 10),
    (Refuse, "then", "stop"),
    (ExternalEvent, "senders", ["ann"]),
]


@each(("base", "name", "value"), FIELDS)
def test_a_field_in_the_body_of_a_class_is_refused(base: Any, name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"class Own: {name} .*ignored"):
        type("Own", (base,), {name: value})


def test_a_field_that_the_class_is_given_later_is_refused() -> None:
    class Finance(Approval):
        """Of the finance department."""

        _own = 3

    given = Finance(by="finance", needed=2)
    assert (given.by, given.needed) == ("finance", 2)
    assert copy.copy(given).needed == 2
    Finance.needed = 3
    with pytest.raises(ConfigurationError, match="class Finance: needed would be ignored here"):
        Finance(by="finance")


@each(("base", "name"), [(Limits, "turns"), (ModelSettings, "max_tokens")])
def test_a_field_of_a_record_is_refused_in_a_class_too(base: Any, name: str) -> None:
    with pytest.raises((PydanticUserError, ValidationError), match=name):
        type("Own", (base,), {name: 5})


# Gates on functions, and beside the options of a class


def marked(function: Any) -> Any:
    function.requires_approval = True
    return function


class Marked:
    requires_approval = True

    def __call__(self, state: Any) -> Any:
        return {"total": 1}


@each("how", ["node", "fallback", "partial", "a partial itself", "object", "wrapper"])
def test_a_gate_on_the_function_of_a_node_is_refused(how: str) -> None:
    def plain(state: Any) -> Any:
        return {"total": 1}

    def count(state: Any) -> Any:
        return {"total": 1}

    function: Any = {
        "partial": functools.partial(marked(count)),
        "a partial itself": functools.partial(marked(functools.partial(count))),
        "object": Marked(),
        "wrapper": functools.wraps(marked(count))(plain),
    }.get(how, marked(count))
    fallback = [function] if how == "fallback" else []
    builder = StateGraph(Total)
    with pytest.raises(ConfigurationError, match="has the attribute requires_approval, which would be ignored"):
        builder.add_node("pay", plain if fallback else function, fallback=fallback)


class Inner:
    requires_approval = True


class Misspelt:
    requires_aproval = True


BODIES: dict[str, tuple[dict[str, Any], str]] = {
    "a class in it": ({"Config": Inner}, "requires_approval in its class Inner would be ignored"),
    "a class in it, misspelt": ({"Meta": Misspelt}, "requires_aproval in its class Misspelt would be ignored"),
    "two underscores": ({"_Own__requires_approval": True}, "did you mean requires_approval"),
    "two underscores on both sides": ({"__requires_approval__": True}, "did you mean requires_approval"),
}


@each(("body", "why"), BODIES.values(), ids=BODIES)
def test_a_gate_in_another_place_of_a_class_is_refused(body: dict[str, Any], why: str) -> None:
    for base in (Tool, Agent):
        with pytest.raises(ConfigurationError, match=f"class Own: .*{why}"):
            type("Own", (base,), dict(body))


# Gates under a name of another kind


class NoCards(Guardrail):
    def check(self, value: Any) -> None:
        """Let it pass."""


IN_ITSELF: list[Any] = []
IN_ITSELF.append(IN_ITSELF)

GATES: dict[str, Any] = {
    "an Approval": Approval(by="finance", needed=2),
    "its class": Approval,
    "a partial": functools.partial(Approval, by="finance"),
    "a Reject": Reject(reason="never"),
    "an Escalate": Escalate(after=60, by="head"),
    "a Breakpoint": Breakpoint("pre_tool_call"),
    "Breakpoints": Breakpoints([Breakpoint("pre_tool_call")]),
    "a guardrail": NoCards(),
    "a tuple": (Approval(),),
    "a mapping": {1: [Approval()]},
    "a fixed mapping": MappingProxyType({"wipe": Approval()}),
}


@each("gate", GATES.values(), ids=GATES)
@each("base", [Tool, Agent, Orchestrator, Handoff])
def test_a_gate_as_the_value_of_another_name_is_refused(base: Any, gate: Any) -> None:
    """It can be meant for nothing else, whatever the name is."""
    for name in ("rule", "on_call", "wipe"):
        with pytest.raises(ConfigurationError, match=f"class Own: {name} is no option .*has a gate as its value"):
            type("Own", (base,), {name: gate})
    type("Own", (base,), {"_rule": gate})
    type("Own", (base,), {"rule": gate, "__annotations__": {"rule": ClassVar[Any]}})


@each(
    ("base", "gate"), [(Guardrail, Approval()), (Breakpoint, Approval()), (Approval, [Escalate(after=60, by="head")])]
)
def test_a_gate_of_another_kind_in_the_class_of_a_gate_is_refused(base: Any, gate: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"class Own: rule is no option .*has a gate as its value"):
        type("Own", (base,), {"rule": gate})


def test_a_guardrail_may_be_made_of_others() -> None:
    class Both(NoCards):
        first = NoCards()

        def __init__(self) -> None:
            super().__init__()
            self.others = [NoCards()]

    assert len(Both().others) == 1


@each("gate", GATES.values(), ids=GATES)
def test_a_gate_on_an_instance_or_a_function_is_refused(gate: Any) -> None:
    def count(state: Any) -> Any:
        """Count."""
        return {"total": 1}

    agent: Any = Agent(name="desk", model=ScriptedModel(["Done."]))
    with pytest.raises(ConfigurationError, match="Agent has no option rule, and it would be ignored: it has a gate"):
        agent.rule = gate
    count.rule = gate  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="has the attribute rule, which would be ignored"):
        StateGraph(Total).add_node("count", count)
    with pytest.raises(ConfigurationError, match="has the attribute rule, which would be ignored"):
        tool(count)
    with pytest.raises(ConfigurationError, match="rule in its class Config would be ignored"):
        type("Own", (Tool,), {"Config": type("Config", (), {"rule": gate})})


TEXTS = {
    "confirmation": "required",
    "confirm": "always",
    "permission": "ask",
    "is_gated": "always",
    "hitl": "wipe",
    "ask_human": "yes",
    "human_in_the_loop": "on",
}


@each(("name", "value"), TEXTS.items(), ids=TEXTS)
@each("base", [Tool, Agent])
def test_a_text_that_says_that_a_human_is_asked_is_refused(base: Any, name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"class Own: {name} is no option .*has the form of a gate"):
        type("Own", (base,), {name: value})


@each("base", [Tool, Agent])
def test_other_attributes_are_of_the_class(base: Any) -> None:
    own: dict[str, Any] = {
        "Strict": type("Inner", (NoCards,), {}),
        "region": "EU",
        "human_name": "Rita",
        "sizes": (1, 2),
        "owner": None,
        "nested": IN_ITSELF,
    }
    made = type("Own", (base,), own)
    assert {name: getattr(made, name) for name in own} == own


def test_a_gate_on_the_method_of_a_tool_is_refused() -> None:
    class Pay(Tool):
        @marked
        def execute(self, amount: int) -> str:
            """Pay."""
            return "paid"

    with pytest.raises(ConfigurationError, match="execute has the attribute requires_approval, which would be ignored"):
        Pay()


def test_a_class_in_a_tool_may_have_names_of_its_own() -> None:
    class Pay(Tool):
        class Row:
            amount: ClassVar[int] = 1

        def execute(self, amount: int) -> str:
            """Pay."""
            return "paid"

    assert Pay().gate == "never"
