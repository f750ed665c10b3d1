"""A whole process of a desk in Slack: `python chat_server.py STORE BASE_URL`. It takes clicks and messages, works, and posts.

It says where it listens, and goes on until it is killed. What a process owns for a minute is owned for two seconds here, so that a test
need not wait for the minute.
"""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from chat_scenes import KEYS

import phronomy.chat.bot.bot
import phronomy.chat.outbox
from phronomy import Agent, open_store, tool
from phronomy.chat import ChatApprovals, ChatBot, Pace
from phronomy.chat.adapters import finish
from phronomy.chat.slack import Slack
from phronomy.people import StoreDirectory
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel
from phronomy.testing.chat import FakeSlack
from phronomy.testing.chat.slack import SECRET, TOKEN
from phronomy.testing.chat.talks import answer
from phronomy.workers import Worker

OWNED = 2.0


class Quick(Slack):
    """A Slack that takes a message each hundredth of a second, so that a test does not take minutes."""

    def pace(self, work: Any, to: str) -> Pace:
        return Pace(lane=f"{work}:{to}", seconds=0.01)


def clerk(store: Store, approvals: ChatApprovals) -> Agent[Any, str]:
    """Pays what it is told to, once somebody has approved, and else says what it was told."""

    @tool(requires_approval=True, idempotent=True)
    def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    return Agent(name="clerk", model=ScriptedModel(answer), tools=[pay], store=store, announcements=[approvals])


def serve(approvals: ChatApprovals) -> int:
    """Listen, and return the port."""

    class Web(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            response = approvals.handle("POST", self.path, dict(self.headers.items()), body)
            self.send_response(response.status)
            for name, value in {**response.headers, "content-length": str(len(response.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(response.body)
            self.wfile.flush()
            finish(response)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def main(url: str, base_url: str) -> None:
    """Work until somebody kills this process."""
    phronomy.chat.bot.bot._OWNED = phronomy.chat.outbox._OWNED = OWNED  # type: ignore[misc]
    store = open_store(url)
    store.lease = OWNED
    channel = Quick(signing_secret=SECRET, bot_token=TOKEN, team_id=FakeSlack.team, base_url=base_url)
    approvals = ChatApprovals(store, channels=[channel], directory=StoreDirectory(store), keys=KEYS)
    agent = clerk(store, approvals)
    bot = ChatBot(approvals, agent)
    sys.stdout.write(f"{serve(approvals)}\n")
    sys.stdout.flush()
    with approvals.start(poll=0.2), bot.start(poll=0.2):
        Worker(agent, poll=0.2).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
