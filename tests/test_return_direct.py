"""The result of a call as the answer of the run: no model is asked after it, and the thread goes on as after any answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from drivers import Driver
from places import Place
from pydantic import BaseModel, ConfigDict, Field, computed_field
from tables import each
from typing_extensions import TypedDict

from phronomy import Agent, Approve, ExternalTool, Image, Reject, Respond, Tool, tool
from phronomy.errors import ConfigurationError, GuardrailRefused, IllegalOutcome, OutputError, ToolDefinitionError
from phronomy.events import replay
from phronomy.graph import END, START, StateGraph
from phronomy.guardrails.guardrail import Pass, RedactPatterns, RefusePatterns, guardrail
from phronomy.records.calls import CallResult, Returned
from phronomy.rules.limits import Limits
from phronomy.rules.transitions import apply
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.worlds(2)


@tool(return_direct=True)
def quote(order_id: int) -> str:
    """Quote a price."""
    return f"Order {order_id} costs 49.90."


@tool(return_direct=True, requires_approval=True)
def refund(order_id: int) -> str:
    """Refund an order."""
    return f"Refunded {order_id}."


@tool
def look(order_id: int) -> str:
    """Look an order up."""
    return f"Order {order_id} is here."


class Refund(BaseModel):
    """A refund."""

    order_id: int
    amount: float = 1.5


class App:
    """An agent on a store, built anew for each process."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place

    def agent(self, *replies: Any, tools: Any = (quote,), **options: Any) -> Agent[Any, Any]:
        options.setdefault("store", self.place.open())
        return Agent(name="desk", model=ScriptedModel([*replies]), tools=[*tools], **options)


@pytest.fixture
def app(driver: Driver, place: Place) -> App:
    return App(driver, place)


def said(result: Any) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in result.messages]


QUOTE, REFUND = call("quote", {"order_id": 7}, id="q"), call("refund", {"order_id": 7}, id="r")
ASKED = [("user", "go"), ("assistant", "")]
PRICED = [*ASKED, ("tool", "Order 7 costs 49.90.")]


# The result is the answer


@pytest.mark.product
def test_the_result_ends_the_run_and_the_thread_goes_on(app: App) -> None:
    agent = app.agent(QUOTE, "You are welcome.")
    result = app.driver.invoke(agent, "go", thread_id="t")
    assert (result.status, result.output, result.checkpoint.turn) == ("completed", "Order 7 costs 49.90.", 1)
    assert said(result) == [*PRICED, ("assistant", "Order 7 costs 49.90.")]
    assert [message.returned for message in result.messages] == [False, False, False, True]
    # The next message stands behind an answer, as any provider wants it: the scripted model checks that.
    after = app.driver.invoke(agent, "Thank you.", thread_id="t")
    assert (after.output, said(after)[3:]) == (
        "You are welcome.",
        [("assistant", "Order 7 costs 49.90."), ("user", "Thank you."), ("assistant", "You are welcome.")],
    )
    kinds = [event.type for event in replay(app.place.open(), result.run_id)]
    assert (kinds.count("model_replied"), kinds.count("tool_call_settled"), kinds[-1]) == (1, 1, "completed")


class Quote(Tool):
    """Quote a price."""

    return_direct = True

    def execute(self, order_id: int) -> str:
        return f"Order {order_id} costs 49.90."


async def quote_later(order_id: int) -> str:
    """Quote a price."""
    return f"Order {order_id} costs 49.90."


def of_order(order_id: int) -> str:
    return str(order_id)


WAYS: dict[str, Callable[[], Any]] = {
    "class": Quote,
    "agent": lambda: Agent(name="inner", model=ScriptedModel(["Order 7 costs 49.90." for _ in range(3)])).as_tool(
        name="quote", input=of_order, return_direct=True
    ),
    "agent whose tool ends its run": lambda: Agent(name="inner", model=ScriptedModel([QUOTE]), tools=[quote]).as_tool(
        name="quote", input=of_order, return_direct=True
    ),
    "fallback": lambda: tool(fallback=[quote])(_broken),
    "long": lambda: tool(return_direct=True, max_result_size=5, name="quote")(quote.function),
}


def _broken(order_id: int) -> str:
    """Quote a price."""
    raise RuntimeError


@each("way", WAYS)
def test_every_kind_of_tool_may_give_the_answer(app: App, way: str) -> None:
    made = WAYS[way]()
    result = app.driver.invoke(app.agent(call(made.name, {"order_id": 7}), tools=[made]), "go")
    assert (result.status, result.output) == ("completed", "Order 7 costs 49.90.")


def test_an_async_body_gives_the_answer(place: Place) -> None:
    from drivers import ASYNC

    agent = App(ASYNC, place).agent(call("quote_later", {"order_id": 7}), tools=[tool(return_direct=True)(quote_later)])
    assert ASYNC.invoke(agent, "go").output == "Order 7 costs 49.90."


def test_a_stream_ends_with_it(app: App) -> None:
    with app.agent(QUOTE).stream("go") as stream:
        kinds = [event.type for event in stream]
    assert (kinds[-1], stream.result.output, kinds.count("model_started")) == ("completed", "Order 7 costs 49.90.", 1)


# A human stands before it


def test_an_approved_call_ends_the_run(app: App) -> None:
    asked = app.driver.invoke(app.agent(REFUND, tools=[refund]), "go").checkpoint
    result = app.driver.resume(app.agent(tools=[refund]), asked, approved=True)
    assert (result.status, result.output) == ("completed", "Refunded 7.")


def test_an_edited_call_ends_the_run_with_its_bare_result(app: App) -> None:
    asked = app.driver.invoke(app.agent(REFUND, tools=[refund]), "go").checkpoint
    result = app.driver.resume(app.agent(tools=[refund]), asked, decisions={"r": Approve(args={"order_id": 8})})
    assert result.output == "Refunded 8."
    assert result.messages[2].text.startswith("A human changed the arguments")


@each("decided", [True, False], ids=["with the agent", "with the store alone"])
def test_what_a_human_responds_is_the_answer(app: App, decided: bool) -> None:
    asked = app.driver.invoke(app.agent(REFUND, tools=[refund]), "go").checkpoint
    pending = asked.pending[0]
    if decided:
        result = app.driver.resume(
            app.agent(tools=[refund]), asked, decisions={"r": Respond(content="Paid by cheque.")}
        )
    else:
        app.place.open().decide(pending.id, Respond(content="Paid by cheque."), by="ada", digest=pending.digest)
        result = app.driver.call(app.agent(tools=[refund]), "recover", asked.run_id)
    assert (result.status, result.output, result.messages[2].settlement) == (
        "completed",
        "Paid by cheque.",
        "responded",
    )


def test_the_result_of_an_external_call_is_the_answer(app: App) -> None:
    locate = ExternalTool(name="locate", returns=dict[str, float], return_direct=True)
    asked = app.driver.invoke(app.agent(call("locate", id="l"), tools=[locate]), "go").checkpoint
    result = app.driver.resume(app.agent(tools=[locate]), asked, decisions={"l": Respond(content={"lat": 47.0})})
    assert (result.output, result.messages[2].text) == ('{"lat":47.0}', '{"lat":47.0}')


def test_a_rejected_call_does_not_end_the_run(app: App) -> None:
    asked = app.driver.invoke(app.agent(REFUND, tools=[refund]), "go").checkpoint
    result = app.driver.resume(app.agent("As you wish.", tools=[refund]), asked, approved=False, reason="no")
    assert (result.output, result.messages[2].settlement) == ("As you wish.", "rejected")


# Where the model is told after all


@tool(return_direct=True)
def breaks() -> str:
    """Break."""
    raise RuntimeError("broken")


@tool(return_direct=True)
def opaque() -> object:
    """Give nothing that is JSON."""
    return object()


TOLD: dict[str, Any] = {
    "failed": (call("breaks"), {}),
    "no JSON": (call("opaque"), {}),
    "invalid": (call("quote", {"order_id": "seven"}), {}),
    "rejected by a policy": (QUOTE, {"approval_policy": {"quote": lambda args: Reject()}}),
    "refused by a guardrail": (QUOTE, {"tool_guardrails": [RefusePatterns(["7"])]}),
}


@each("why", TOLD)
def test_a_call_that_gives_no_result_does_not_end_the_run(app: App, why: str) -> None:
    asked, options = TOLD[why]
    result = app.driver.invoke(app.agent(asked, "I cannot.", tools=[quote, breaks, opaque], **options), "go")
    assert (result.status, result.output) == ("completed", "I cannot.")


def test_a_message_that_comes_with_the_decision_is_answered_by_the_model(app: App) -> None:
    asked = app.driver.invoke(app.agent(REFUND, tools=[refund]), "go").checkpoint
    result = app.driver.resume(app.agent("And good bye.", tools=[refund]), asked, approved=True, input="Say good bye.")
    assert said(result)[2:] == [("tool", "Refunded 7."), ("user", "Say good bye."), ("assistant", "And good bye.")]


def test_a_handoff_beside_it_counts(app: App) -> None:
    other = Agent(name="other", model=ScriptedModel(["I am the other."]))
    agent = app.agent([QUOTE, call("hand_over_to_other")], handoffs=[other])
    names = [*agent.spec.tools]
    agent = app.agent([QUOTE, call(next(name for name in names if name != "quote"))], handoffs=[other])
    assert app.driver.invoke(agent, "go").output == "I am the other."


# Several calls in one reply


@each(
    "asked, output",
    [
        ([call("look", {"order_id": 1}), QUOTE], "Order 7 costs 49.90."),
        ([QUOTE, call("look", {"order_id": 1})], "Order 7 costs 49.90."),
        ([call("quote", {"order_id": 1}), call("quote", {"order_id": 2})], "Order 1 costs 49.90."),
        ([call("breaks"), QUOTE], "Order 7 costs 49.90."),
    ],
)
def test_all_calls_settle_and_the_first_that_has_a_result_gives_the_answer(app: App, asked: Any, output: str) -> None:
    result = app.driver.invoke(app.agent(asked, tools=[quote, look, breaks]), "go")
    assert (result.status, result.output) == ("completed", output)
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "tool", "assistant"]


def test_a_gated_call_beside_it_is_waited_for(app: App) -> None:
    gated = tool(requires_approval=True, name="look")(look.function)
    asked = app.driver.invoke(app.agent([QUOTE, call("look", {"order_id": 1}, id="l")], tools=[quote, gated]), "go")
    assert (asked.status, [item.tool_name for item in asked.checkpoint.pending]) == ("suspended", ["look"])
    result = app.driver.resume(app.agent(tools=[quote, gated]), asked.checkpoint, approved=False)
    assert (result.status, result.output) == ("completed", "Order 7 costs 49.90.")


def test_a_rejection_that_ends_the_run_ends_it_as_rejected(app: App) -> None:
    asked = app.driver.invoke(app.agent([QUOTE, REFUND], tools=[quote, refund]), "go").checkpoint
    result = app.driver.resume(app.agent(tools=[quote, refund]), asked, decisions={"r": Reject(then="end")})
    assert (result.status, result.output) == ("rejected", None)


def test_a_cancelled_run_is_cancelled(app: App) -> None:
    asked = app.driver.invoke(app.agent([QUOTE, REFUND], tools=[quote, refund]), "go").checkpoint
    assert app.driver.call(app.agent(tools=[quote, refund]), "cancel", asked.run_id).status == "cancelled"


# The value that leaves


def test_guardrails_look_at_it(app: App) -> None:
    result = app.driver.invoke(app.agent(QUOTE, output_guardrails=[RedactPatterns(["49.90"])]), "go")
    assert "49.90" not in result.output
    assert said(result)[-1] == ("assistant", result.output)


def test_guardrails_may_refuse_it(app: App) -> None:
    agent = app.agent(QUOTE, "Hello.", output_guardrails=[RefusePatterns(["49.90"])])
    with pytest.raises(GuardrailRefused):
        app.driver.invoke(agent, "go", thread_id="t")
    assert app.driver.invoke(agent, "Hi.", thread_id="t").output == "Hello."


class Charged(BaseModel):
    """A model that computes a field, and has an alias."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    amount: float = Field(alias="amountInEuros")

    @computed_field
    def cents(self) -> int:
        return round(self.amount * 100)


@dataclass
class Point:
    x: int


class Line(TypedDict):
    y: int


TYPED: dict[str, tuple[Any, Any]] = {
    "model": (Refund, Refund(order_id=7)),
    "model with a computed field": (Charged, Charged(amountInEuros=2.5)),
    "dataclass": (Point, Point(x=1)),
    "typed dict": (Line, Line(y=1)),
    "union": (Refund | Point, Point(x=1)),
    "int": (int, 5),
    "optional": (int | None, None),
    "list": (list[Refund], [Refund(order_id=1), Refund(order_id=2)]),
    "decimal": (Decimal, Decimal("1.50")),
}


@each("kind", TYPED)
def test_the_output_is_of_the_type(app: App, kind: str) -> None:
    hint, value = TYPED[kind]

    def give() -> Any:
        """Give it."""
        return value

    give.__annotations__["return"] = hint
    result = app.driver.invoke(app.agent(call("give"), tools=[tool(return_direct=True)(give)], output_type=hint), "go")
    assert (result.output, type(result.output)) == (value, type(value))


def test_a_result_that_is_not_of_the_type_is_told_to_the_model(app: App) -> None:
    @tool(return_direct=True)
    def give() -> dict[str, Any]:
        """Give something."""
        return {"order": 7}

    agent = app.agent(call("give"), '{"order_id": 7}', tools=[give], output_type=Refund)
    result = app.driver.invoke(agent, "go")
    assert (result.output, result.checkpoint.refused) == (Refund(order_id=7), 1)
    assert said(result)[4][1].startswith("That answer cannot be used: order_id")
    with pytest.raises(OutputError):
        app.driver.invoke(app.agent(call("give"), tools=[give], output_type=Refund, output_retries=0), "go")


def gives(hint: Any) -> Any:
    def give() -> Any:
        """Give something."""

    give.__annotations__["return"] = hint
    return tool(return_direct=True)(give)


@each(
    "given, wanted, fits",
    [
        (str, Refund, False),
        (None, Refund, False),
        (list[Refund], Refund, False),
        (Point, Refund, False),
        (Line | str, Refund, False),
        (dict[str, int], list[int], False),
        (Refund | None, Refund, True),
        (Refund, Refund, True),
        (dict[str, Any], Refund, True),
        (Any, Refund, True),
        (object, Refund, True),
        (Image, Refund, True),
        (Charged, Charged, True),
        (Decimal, float, True),
        (Point, Refund | Point, True),
        (bool, int, True),
        (list[int], tuple[int, ...], True),
    ],
)
def test_a_type_that_can_never_fit_is_refused(given: Any, wanted: Any, fits: bool) -> None:
    def make() -> object:
        return Agent(name="a", model=ScriptedModel([]), tools=[gives(given)], output_type=wanted).spec

    if fits:
        make()
        return
    with pytest.raises(ConfigurationError, match=r"'give'.*return_direct"):
        make()


def test_so_is_an_agent_or_an_external_tool_that_can_never_fit() -> None:
    inner = Agent(name="inner", model=ScriptedModel([]))
    typed = Agent(name="inner", model=ScriptedModel([]), output_type=Refund)
    external = ExternalTool(name="give", returns={"type": "array"}, return_direct=True)
    for wrong in (inner.as_tool(return_direct=True), external):
        with pytest.raises(ConfigurationError, match="return_direct"):
            Agent(name="a", model=ScriptedModel([]), tools=[wrong], output_type=Refund).spec  # noqa: B018
    for right in (typed.as_tool(return_direct=True), inner.as_tool(), ExternalTool(name="give", return_direct=True)):
        Agent(name="a", model=ScriptedModel([]), tools=[right], output_type=Refund).spec  # noqa: B018


def test_the_typed_answer_of_an_agent_is_that_of_the_outer_run(app: App) -> None:
    inner = Agent(name="inner", model=ScriptedModel(['{"order_id": 7}']), output_type=Refund)
    agent = app.agent(call("inner", {"input": "x"}), tools=[inner.as_tool(return_direct=True)], output_type=Refund)
    assert app.driver.invoke(agent, "go").output == Refund(order_id=7)


def test_a_graph_as_a_tool_gives_the_answer(app: App) -> None:
    class State(TypedDict):
        amount: float

    def state_of(amount: float) -> State:
        return {"amount": amount}

    graph = StateGraph(State)
    graph.add_node("double", lambda state: {"amount": state["amount"] * 2})
    graph.add_edge(START, "double")
    graph.add_edge("double", END)
    doubled = graph.compile(name="double").as_tool(input=state_of, return_direct=True)
    agent = app.agent(call("double", {"amount": 2.5}), tools=[doubled], output_type=State)
    assert app.driver.invoke(agent, "go").output == {"amount": 5.0}


def test_an_image_is_told_as_text(app: App) -> None:
    @tool(return_direct=True)
    def draw() -> list[object]:
        """Draw."""
        return ["Sales", Image(b"\x89PNG\r\n\x1a\n" + bytes(60), "image/png")]

    assert app.driver.invoke(app.agent(call("draw"), tools=[draw]), "go").output.startswith("Sales\n[image/png, ")


# The steps behind it


@guardrail(name="dies")
def dies_not(value: Any) -> Any:
    return Pass()


def test_a_crash_before_the_end_keeps_the_result(app: App) -> None:
    ran: list[int] = []

    @tool(return_direct=True, name="quote")
    def count(order_id: int) -> str:
        """Count."""
        ran.append(order_id)
        return "counted"

    @guardrail
    def dies(value: Any) -> Any:
        raise KeyboardInterrupt

    agent = app.agent(QUOTE, tools=[count], output_guardrails=[dies])
    with pytest.raises(KeyboardInterrupt):
        app.driver.invoke(agent, "go", thread_id="t")
    [run] = app.place.open().branches(thread_id="t")
    result = app.driver.call(app.agent(tools=[count], output_guardrails=[dies_not]), "recover", run.run_id)
    assert (result.output, ran) == ("counted", [7])


def test_limits_do_not_hold_up_what_is_there(app: App) -> None:
    agent = app.agent(QUOTE, limits=Limits(turns=1, tool_calls=1))
    assert app.driver.invoke(agent, "go").output == "Order 7 costs 49.90."


@each("given", [1, None, "yes"])
def test_the_option_is_exactly_true_or_false(given: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="return_direct must be True or False"):
        tool(return_direct=given)(quote.function)


def test_a_forged_end_is_refused(app: App) -> None:
    asked = app.driver.invoke(app.agent([QUOTE, REFUND], tools=[quote, refund]), "go").checkpoint
    for id in ("1.0", "1.1", "9.9"):
        with pytest.raises(IllegalOutcome):
            apply(asked, Returned(id=id, text="paid"))
    with pytest.raises(ValueError, match="no answer for the run"):
        CallResult(kind="rejected", content="no", answer="paid")
