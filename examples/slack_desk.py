"""A refund desk with approvals in Slack: one process that asks in a channel, takes the clicks, and carries them out.

    pip install 'phronomy[slack]' fastapi uvicorn
    phronomy slack manifest --url https://YOUR-ADDRESS/chat/slack        # make the app with it, see docs/chat-slack.md
    phronomy people add rita --name Rita --alias slack:U0123456789 --store sqlite:///slack.db
    python slack_desk.py "Please refund 20 euros for order 1042"

The environment has `SLACK_SIGNING_SECRET` and `SLACK_BOT_TOKEN` of the app, `SLACK_CHANNEL` such as `C0123456789`, and `CHAT_KEY`: 32
random bytes or more, always the same. `PORT` is where it listens, 8000 by default; have your HTTPS address lead there.

It can be killed at any moment. Started again, without a message, it goes on with what was asked, decided and not yet posted.
"""

from __future__ import annotations

import os
import sys
import threading

import uvicorn
from fastapi import FastAPI

from phronomy import Agent, open_store, tool
from phronomy.chat import ChatApprovals, asgi
from phronomy.chat.slack import Slack
from phronomy.people import StoreDirectory
from phronomy.workers import Worker

store = open_store(os.environ.get("PHRONOMY_STORE", "sqlite:///slack.db"))
slack = Slack(
    signing_secret=os.environ["SLACK_SIGNING_SECRET"],
    bot_token=os.environ["SLACK_BOT_TOKEN"],
    base_url=os.environ.get("SLACK_API", "https://slack.com/api/"),
)
approvals = ChatApprovals(
    store,
    channels=[slack],
    directory=StoreDirectory(store),
    keys={"1": os.environ["CHAT_KEY"]},
    route=f"slack:{os.environ['SLACK_CHANNEL']}",
)


@tool(requires_approval=True, approval_timeout=86_400)
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


agent = Agent(
    name="desk",
    model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
    instructions="You work at a refund desk. Refund what is asked for.",
    tools=[refund],
    store=store,
    announcements=[approvals],
)

web = FastAPI()
web.mount("/chat", asgi(approvals))  # Slack sends to /chat/slack

if __name__ == "__main__":
    if len(sys.argv) > 1:
        result = agent.invoke(sys.argv[1])
        print(f"{result.run_id} is {result.status}: {result.output or 'it waits for a click'}", flush=True)
    worker = Worker(agent)
    working = threading.Thread(target=worker.run)
    working.start()
    try:
        with approvals:  # sends what is to be posted
            uvicorn.run(web, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
    finally:
        worker.stop()
        working.join()
