"""A desk before a deploy and after it: every kind of change of a tool that waits, and every place where its call may wait.

A version is a function that makes the tool anew, with a list into which its body notes what has run. The models of all agents answer by
turn, so an agent that is made anew goes on with a run of the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from phronomy import Agent, Breakpoint, sequential, tool
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call

Ran: TypeAlias = list[dict[str, object]]
Version: TypeAlias = Callable[[Ran], Callable[..., str]]

ASKED: Final = {"order_id": 7, "amount": 5.0}
"""The arguments that the model gives."""


def plain(ran: Ran) -> Callable[..., str]:
    """As it was before the deploy."""

    def refund(order_id: int, amount: Annotated[float, Field(le=100)], note: str = "none") -> str:
        """Refund an order."""
        ran.append({"order_id": order_id, "amount": amount, "note": note})
        return "refunded"

    return refund


def described(ran: Ran) -> Callable[..., str]:
    """Its description is another one."""
    refund = plain(ran)
    refund.__doc__ = "Pay the money for an order back."
    return refund


def documented(ran: Ran) -> Callable[..., str]:
    """Its parameters are described."""
    refund = plain(ran)
    refund.__doc__ = "Refund an order.\n\nArgs:\n    amount: In euros.\n"
    return refund


def loosened(ran: Ran) -> Callable[..., str]:
    """A bound allows more."""

    def refund(order_id: int, amount: Annotated[float, Field(le=1000)], note: str = "none") -> str:
        """Refund an order."""
        ran.append({"order_id": order_id, "amount": amount, "note": note})
        return "refunded"

    return refund


def tightened(ran: Ran) -> Callable[..., str]:
    """A bound allows less: not what waits."""

    def refund(order_id: int, amount: Annotated[float, Field(le=4)], note: str = "none") -> str:
        """Refund an order."""
        ran.append({"order_id": order_id, "amount": amount, "note": note})
        return "refunded"

    return refund


def defaulted(ran: Ran) -> Callable[..., str]:
    """A default is another one."""

    def refund(order_id: int, amount: Annotated[float, Field(le=100)], note: str = "nothing") -> str:
        """Refund an order."""
        ran.append({"order_id": order_id, "amount": amount, "note": note})
        return "refunded"

    return refund


def with_optional(ran: Ran) -> Callable[..., str]:
    """It has one more parameter, with a default."""

    def refund(
        order_id: int, amount: Annotated[float, Field(le=100)], note: str = "none", currency: str = "EUR"
    ) -> str:
        """Refund an order."""
        ran.append({"order_id": order_id, "amount": amount, "note": note, "currency": currency})
        return "refunded"

    return refund


def with_required(ran: Ran) -> Callable[..., str]:
    """It has one more parameter, without a default."""

    def refund(order_id: int, amount: float, currency: str, note: str = "none") -> str:
        """Refund an order."""
        ran.append({"order_id": order_id, "amount": amount, "note": note, "currency": currency})
        return "refunded"

    return refund


def without_note(ran: Ran) -> Callable[..., str]:
    """A parameter is gone."""

    def refund(order_id: int, amount: float) -> str:
        """Refund an order."""
        ran.append({"order_id": order_id, "amount": amount})
        return "refunded"

    return refund


def renamed(ran: Ran) -> Callable[..., str]:
    """A parameter has another name."""

    def refund(order_id: int, euros: float, note: str = "none") -> str:
        """Refund an order."""
        ran.append({"order_id": order_id, "euros": euros, "note": note})
        return "refunded"

    return refund


def widened(ran: Ran) -> Callable[..., str]:
    """A parameter takes more types."""

    def refund(order_id: int | str, amount: float, note: str | None = "none") -> str:
        """Refund an order."""
        ran.append({"order_id": order_id, "amount": amount, "note": note})
        return "refunded"

    return refund


def narrowed(ran: Ran) -> Callable[..., str]:
    """A parameter takes fewer values: not what waits."""

    def refund(order_id: Literal[1, 2, 3], amount: float, note: str = "none") -> str:
        """Refund an order."""
        ran.append({"order_id": order_id, "amount": amount, "note": note})
        return "refunded"

    return refund


def retyped(ran: Ran) -> Callable[..., str]:
    """The waiting call is read as another value."""

    def refund(order_id: int, amount: int, note: str = "none") -> str:
        """Refund an order."""
        ran.append({"order_id": order_id, "amount": amount, "note": note})
        return "refunded"

    return refund


@dataclass(frozen=True, kw_only=True)
class Deploy:
    """The tool and the agent after a change. `gate_before` is the gate of the tool before it."""

    version: Version = plain
    name: str = "refund"
    gate: Any = True
    gate_before: Any = True
    gone: bool = False
    agent: str = "desk"
    instructions: str | None = None

    @property
    def before(self) -> Deploy:
        """The desk before the change."""
        return Deploy(gate=self.gate_before)


DEPLOYS: Final[Mapping[str, Deploy]] = {
    "nothing": Deploy(),
    "description": Deploy(version=described),
    "Args": Deploy(version=documented),
    "bound loosened": Deploy(version=loosened),
    "bound tightened": Deploy(version=tightened),
    "default changed": Deploy(version=defaulted),
    "new optional parameter": Deploy(version=with_optional),
    "new required parameter": Deploy(version=with_required),
    "parameter removed": Deploy(version=without_note),
    "parameter renamed": Deploy(version=renamed),
    "type widened": Deploy(version=widened),
    "type narrowed": Deploy(version=narrowed),
    "type changed": Deploy(version=retyped),
    "tool gone": Deploy(gone=True),
    "tool renamed": Deploy(name="pay_back"),
    "approval loosened": Deploy(gate=False),
    "approval tightened": Deploy(gate_before=lambda args: True),
    "instructions": Deploy(instructions="Be brief."),
    "agent renamed": Deploy(agent="counter"),
}
"""Every kind of change."""


def clerk(ran: Ran, deploy: Deploy, store: Store | None, **options: Any) -> Agent[Any, str]:
    """The agent that calls the tool, after a deploy."""
    options = options if store is None else {**options, "store": store}
    gated = tool(name=deploy.name, requires_approval=deploy.gate)(deploy.version(ran))
    return Agent(
        name=deploy.agent,
        model=ScriptedModel.by_turn([call("refund", ASKED, id="call_1"), "Done."]),
        instructions=deploy.instructions,
        tools=[look, *([] if deploy.gone else [gated])],
        **options,
    )


@tool
def look() -> str:
    """Look around."""
    return "nothing"


def alone(ran: Ran, deploy: Deploy, store: Store) -> Any:
    """The agent by itself."""
    return clerk(ran, deploy, store)


def stopped(ran: Ran, deploy: Deploy, store: Store) -> Any:
    """The agent by itself, with a breakpoint before the call."""
    return clerk(ran, deploy, store, breakpoints=[Breakpoint("tool")])


def nested(ran: Ran, deploy: Deploy, store: Store) -> Any:
    """The agent as a tool of another one."""
    model = ScriptedModel.by_turn([call("ask", {"input": "Refund it"}, id="outer_1"), "All done."])
    return Agent(name="boss", model=model, tools=[clerk(ran, deploy, None).as_tool("ask")], store=store)


def stepped(ran: Ran, deploy: Deploy, store: Store) -> Any:
    """The agent as a step of a pattern."""
    return sequential({"refunding": clerk(ran, deploy, None)}, name="line", store=store)


PLACES: Final = (alone, stopped, nested, stepped)
"""Every place where the call waits."""
