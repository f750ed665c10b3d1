"""A policy and a standing grant with predicates."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from phronomy import (
    Agent,
    Approval,
    Escalate,
    Grant,
    MemoryStore,
    PendingApproval,
    Principal,
    Reject,
    ToolContext,
    tool,
)
from phronomy.testing import ScriptedModel, call


def small(args: dict[str, Any]) -> bool:
    return bool(args["amount"] < 100)


def huge(args: Mapping[str, Any], context: ToolContext[Any]) -> bool | Reject:
    return Reject(reason="never so much") if args["amount"] > 1000 and len(context.messages) else False


async def odd(args: dict[str, Any]) -> bool:
    return bool(args["amount"] % 2)


def of_the_shop(principal: Principal, request: PendingApproval) -> bool:
    return request.args["order"] < 2000 and "shop" in principal.roles


LEAD = Escalate(after=3600, by="lead")


@tool(requires_approval=Approval(by=["lead", of_the_shop], standing={"small": small}, escalate=[LEAD], remind=600))
def refund(order: int, amount: float) -> str:
    """Refund an order, in euros."""
    return "refunded"


@tool
def look(amount: float) -> str:
    """Look."""
    return "seen"


def make_desk(store: MemoryStore) -> Agent[Any, str]:
    model = ScriptedModel.by_turn([call("refund", {"order": 7, "amount": 9.0}), "Done."])
    policy = {"refund": huge, "look": Approval(when=small)}
    return Agent(name="desk", model=model, tools=[refund, look], store=store, approval_policy=policy)


def main() -> None:
    store = MemoryStore()
    until = datetime.now(UTC) + timedelta(days=7)
    store.grant(
        Grant(agent="desk", tool="refund", condition="small", scope="tenant", until=until, uses=3),
        by=Principal(id="rita", roles=["lead"]),
    )
    print(make_desk(store).invoke("Refund order 7").output)
    Agent(approval_policy={"look": odd})


if __name__ == "__main__":
    main()
