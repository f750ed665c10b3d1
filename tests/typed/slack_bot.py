"""Approvals and a bot in Slack."""

from __future__ import annotations

from typing import Any

from phronomy import Agent, Approval, MemoryStore, tool
from phronomy.chat import ChatApprovals, ChatBot, asgi
from phronomy.chat.slack import Slack
from phronomy.people import StoreDirectory
from phronomy.testing import ScriptedModel, call


@tool(requires_approval=Approval(by="finance", needed=2, title=lambda args: f"Refund order {args['order_id']}"))
def refund(order_id: int) -> str:
    """Refund an order."""
    return f"order {order_id} is refunded"


def main() -> None:
    store = MemoryStore()
    people = StoreDirectory(store)
    slack = Slack(signing_secret="s" * 32, bot_token="xoxb-1", base_url="http://127.0.0.1:9/api/")
    approvals = ChatApprovals(
        store, channels=[slack], directory=people, keys={"1": "k" * 32}, route="slack:C0000000001"
    )
    agent: Agent[Any, str] = Agent(
        name="desk",
        model=ScriptedModel.by_turn([call("refund", {"order_id": 7}), "Done."]),
        tools=[refund],
        store=store,
        announcements=[approvals],
    )
    bot = ChatBot(approvals, agent)
    print(callable(asgi(approvals)), type(bot).__name__)


if __name__ == "__main__":
    main()
