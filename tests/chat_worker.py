"""One process of approvals in Slack: `python chat_worker.py DATABASE BASE_URL WHAT`, which asks, takes a click, or carries out.

Each may be killed where the last word of the command says, by a signal that no process can handle.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from chat_scenes import KEYS

from phronomy import Agent, SQLiteStore, tool
from phronomy.chat import Card, ChatApprovals
from phronomy.chat.slack import Slack
from phronomy.people import StoreDirectory
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import FakeSlack
from phronomy.testing.chat.slack import SECRET, TOKEN


def kill() -> NoReturn:
    """Be gone, at once."""
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


class Killed(Slack):
    """A Slack whose process is killed as soon as a message is posted, before anybody has noted that."""

    def post(self, to: str, card: Card, *, key: str) -> str:
        super().post(to, card, key=key)
        kill()


def main(database: str, base_url: str, what: str, place: str = "") -> None:
    """Do one thing."""
    store = SQLiteStore(database)
    kind = Killed if place == "posted" else Slack
    channel = kind(signing_secret=SECRET, bot_token=TOKEN, team_id=FakeSlack.team, base_url=base_url)
    approvals = ChatApprovals(
        store, channels=[channel], directory=StoreDirectory(store), keys=KEYS, route=FakeSlack.place
    )

    @tool(requires_approval=True)
    def refund(order: int) -> str:
        """Refund an order."""
        with Path(f"{database}.effects").open("a") as effects:
            effects.write(f"{order}\n")
        return "refunded"

    model = ScriptedModel.by_turn([call("refund", {"order": 7}), "Done."])
    agent: Agent[Any, str] = Agent(name="desk", model=model, tools=[refund], store=store, announcements=[approvals])
    if what == "ask":
        agent.invoke("Refund order 7")
        if place == "noted":
            kill()
        approvals.outbox.run_once()
    elif what == "click":
        sent = json.loads(sys.stdin.read())
        response = approvals.handle("POST", sent["path"], sent["headers"], base64.b64decode(sent["body"]))
        sys.stdout.write(f"{response.status}\n")
        if place == "acknowledged":
            kill()
        if response.after is not None:
            response.after()
    else:
        agent.recover_all()
        # As often as it takes: Slack takes one message of a place a second, and the process before may have sent one just now.
        while (due := approvals.outbox.run_once().due) is not None:
            time.sleep(max(due - store.clock(), 0.0))


if __name__ == "__main__":
    main(*sys.argv[1:])
