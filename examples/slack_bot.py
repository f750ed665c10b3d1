"""A bot in Slack: people write to it, it answers in the thread, and asks there before it acts. One process does all of it.

    pip install 'phronomy[slack]' fastapi uvicorn
    phronomy slack manifest --bot --url https://YOUR-ADDRESS/chat/slack  # make the app with it, see docs/chat-slack.md
    phronomy people add rita --name Rita --role lead --alias slack:U0123456789 --store sqlite:///slack.db
    python slack_bot.py

Then write `@Approvals please refund 20 euros for order 1042` in a channel that the bot is in, or write to it alone. Whoever asks for a
refund does not approve it: somebody else with the role of a lead does.

The environment has `SLACK_SIGNING_SECRET` and `SLACK_BOT_TOKEN` of the app, and `CHAT_KEY`: 32 random bytes or more, always the same.
`PORT` is where it listens, 8000 by default; have your HTTPS address lead there.

It can be killed at any moment. Started again, it goes on with what was written, asked and decided, and is not answered yet.
"""

from __future__ import annotations

import os
import threading

import uvicorn
from fastapi import FastAPI

from phronomy import Agent, Approval, open_store, tool
from phronomy.chat import ChatApprovals, ChatBot, asgi
from phronomy.chat.slack import Slack
from phronomy.people import StoreDirectory
from phronomy.workers import Worker

store = open_store(os.environ.get("PHRONOMY_STORE", "sqlite:///slack.db"))
slack = Slack(
    signing_secret=os.environ["SLACK_SIGNING_SECRET"],
    bot_token=os.environ["SLACK_BOT_TOKEN"],
    base_url=os.environ.get("SLACK_API", "https://slack.com/api/"),
)
approvals = ChatApprovals(  # without a route, a request is posted into the thread of its run
    store,
    channels=[slack],
    directory=StoreDirectory(store),
    keys={"1": os.environ["CHAT_KEY"]},
)


@tool(requires_approval=Approval(by="lead", not_requester=True, expires=86_400))
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


agent = Agent(
    name="desk",
    model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
    instructions="You work at a refund desk. Refund what is asked for, and answer briefly.",
    tools=[refund],
    store=store,
    announcements=[approvals],
)
bot = ChatBot(approvals, agent)

web = FastAPI()
web.mount("/chat", asgi(approvals))  # Slack sends to /chat/slack

if __name__ == "__main__":
    worker = Worker(agent)
    working = threading.Thread(target=worker.run)
    working.start()
    try:
        with approvals, bot:  # posts what is asked, and says what comes of it
            uvicorn.run(web, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
    finally:
        worker.stop()
        working.join()
