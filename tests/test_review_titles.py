"""A title names arguments in braces, and shows their values as lists show arguments."""

from __future__ import annotations

import logging
from typing import Any, TypedDict

import pytest
from drivers import Driver
from places import Place
from pydantic import BaseModel
from tables import each

from phronomy import (
    END,
    START,
    Agent,
    Approval,
    Approve,
    ConfigurationError,
    GraphError,
    Principal,
    StateGraph,
    ToolDefinitionError,
    tool,
)
from phronomy.graph import Send
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.worlds(2)


class Address(BaseModel):
    """Where something goes."""

    city: str
    code: int | None = None


def ship(order_id: str, to: Address, amount: float = 5.0, gifts: tuple[str, ...] = (), fast: bool = False) -> str:
    """Ship an order."""
    return f"shipped {order_id} to {to.city}"


ARGS: dict[str, Any] = {"order_id": "1042", "to": {"city": "Bonn"}, "gifts": ["pen", "cup"]}


class Desk:
    """Ships orders, each when somebody has approved it."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver, self.store = driver, place.open()

    def agent(self, asks: Any, args: Any = None, *, policy: Any = None, **options: Any) -> Agent[Any, str]:
        model = ScriptedModel.by_turn([call("ship", {**ARGS, **(args or {})}), "Done."])
        tools = [tool(requires_approval=asks, **options)(self.driver.function(ship))]
        return Agent(name="desk", model=model, tools=tools, store=self.store, approval_policy=policy or {})

    def asked(self, agent: Any) -> Any:
        return self.driver.invoke(agent, "go").checkpoint

    def title(self) -> str | None:
        (waiting,) = self.store.pending(newest=True, limit=1)
        return waiting.approval.title


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


@each(
    ("title", "args", "shown"),
    [
        ("Ship order {order_id}", {}, "Ship order 1042"),
        ("{order_id} for {amount}, {fast}", {}, "1042 for 5.0, no"),
        ("To {to.city} ({to.code})", {}, "To Bonn (no value)"),
        ("To {to.street.name}", {}, "To no value"),
        ("With {gifts} to {to}", {}, "With 2 items to 2 members"),
        ("{{order_id}} {order_id} }}{{", {}, "{order_id} 1042 }{"),
        ("{{plain}}", {}, "{plain}"),
        ("{order_id}!", {"order_id": "a\n\tb  c"}, "a b c!"),
        ("{order_id}!", {"order_id": " "}, "empty text!"),
        ("{order_id}!", {"order_id": "x" * 61}, f"{'x' * 60}…!"),
        ("{order_id}!", {"order_id": "{amount}"}, "{amount}!"),
        ("{order_id}" * 4, {"order_id": "x" * 60}, f"{'x' * 199}…"),
    ],
)
def test_names_in_braces_stand_for_values(title: str, args: Any, shown: str, desk: Desk) -> None:
    desk.asked(desk.agent(Approval(title=title), args))
    assert desk.title() == shown


def test_a_value_that_the_tool_redacts_is_hidden_with_all_that_is_in_it(desk: Desk) -> None:
    agent = desk.agent(Approval(title="Ship {order_id} to {to.city}"), redact={"to", "order_id"})
    desk.asked(agent)
    assert desk.title() == "Ship [redacted] to [redacted]"


@each(
    ("title", "told"),
    [
        ("Ship {order}", "names order (did you mean order_id?) in braces; the arguments are: order_id, to, amount"),
        ("Ship {city}", "the arguments are: order_id, to, amount, gifts, fast"),
        ("Ship {", "write {{ or }} for a brace"),
        ("Ship }", "write {{ or }} for a brace"),
        ("Ship {}", "is no name of an argument"),
        ("Ship {0}", "is no name of an argument"),
        ("Ship {to[city]}", "is no name of an argument"),
        ("Ship {to..city}", "is no name of an argument"),
        ("Ship {amount:.2f}", "without a format; for more, title takes a function"),
        ("Ship {amount!r}", "without a format"),
    ],
)
def test_a_title_is_refused_when_the_tool_is_made(title: str, told: str) -> None:
    with pytest.raises(ToolDefinitionError) as refused:
        tool(requires_approval=Approval(title=title))(ship)
    assert isinstance(refused.value, ConfigurationError)
    assert "the title of the approval of tool ship" in str(refused.value) and told in str(refused.value)


def test_an_edit_changes_the_title_of_what_will_run(desk: Desk) -> None:
    agent = desk.agent(Approval(title="Ship {order_id}", needed=2))
    asked = desk.asked(agent)
    answer = Approve(args={**ARGS, "order_id": "7"})
    result = desk.driver.resume(agent, asked, decisions={asked.pending[0].id: answer}, by=Principal(id="ada"))
    assert result.status == "suspended"
    assert desk.title() == "Ship 7"


def test_the_title_of_a_policy_is_left_out_where_the_call_has_no_such_argument(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    agent = desk.agent(False, policy={"ship": Approval(title="Refund {refund_id}")})
    with caplog.at_level(logging.WARNING, "phronomy"):
        desk.asked(agent)
    assert desk.title() is None
    assert "names an argument that the call does not have, so a human is asked without it" in caplog.text


def test_the_title_of_a_policy_is_filled_in(desk: Desk) -> None:
    desk.asked(desk.agent(False, policy={"ship": Approval(title="Ship {order_id}")}))
    assert desk.title() == "Ship 1042"


class State(TypedDict, total=False):
    """The state of a graph that ships."""

    order: str
    to: dict[str, str]
    note: str


def graph(title: str, *, sends: bool = False) -> Any:
    """A graph whose node waits under this title."""
    builder = StateGraph(State, name="shipping")
    builder.add_node("look", lambda state: {})
    builder.add_node("ship", lambda state: {}, requires_approval=Approval(title=title))
    builder.add_edge(START, "look")
    if sends:
        builder.add_conditional_edges("look", lambda state: [Send("ship", {"order": "sent"})], ["ship"])
    else:
        builder.add_edge("look", "ship")
    builder.add_edge("ship", END)
    return builder


@each(
    ("title", "sends", "shown"),
    [
        ("Ship {order} to {to.city}, {note}", False, "Ship 7 to Bonn, no value"),
        ("{{Ship}}", False, "{Ship}"),
        ("Ship {order}", True, "Ship sent"),
    ],
)
def test_the_title_of_a_node_names_channels(title: str, sends: bool, shown: str, desk: Desk) -> None:
    made = graph(title, sends=sends).compile(store=desk.store)
    desk.driver.invoke(made, {"order": "7", "to": {"city": "Bonn"}})
    assert desk.title() == shown


def test_a_title_of_a_node_that_names_no_channel_is_refused() -> None:
    with pytest.raises(
        GraphError, match="the title of the approval of node 'ship' names city in braces; the channels are"
    ):
        graph("Ship {city}").compile()
