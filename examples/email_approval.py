"""An approval by mail, all on this machine: a mail with links, the page that a link opens, and the refund that follows.

    pip install 'phronomy[inbox]' aiosmtpd uvicorn
    python email_approval.py

No key is needed, and no mail leaves the machine: the model says what is written here, and a mail server in this program prints what it
gets. Open a link of the mail in a browser, and press the button there. Ctrl-C stops it. `PORT` is where the page is, 8000 by default.

For real mails, name your own mail server in `Email`, and give `keys` 32 random bytes from your secrets, the same in all processes.
"""

from __future__ import annotations

import email
import os
import secrets
import socket
import threading
from email import policy
from typing import Any

import uvicorn
from aiosmtpd.controller import Controller

from phronomy import Agent, MemoryStore, Principal, tool
from phronomy.chat import ChatApprovals
from phronomy.chat.email import Email
from phronomy.inbox import Inbox, MailLinks, OneTimeLink
from phronomy.people import Person, StoreDirectory
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker


class Printer:
    """A mail server that prints the text of each mail."""

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """Take a mail."""
        mail = email.message_from_bytes(envelope.content, policy=policy.default)
        text = next(part.get_content() for part in mail.walk() if part.get_content_type() == "text/plain")
        print(f"--- To: {mail['To']}\n--- Subject: {mail['Subject']}\n{text}", flush=True)
        return "250 OK"


@tool(requires_approval=True, approval_timeout=86_400)
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


class Catcher(Controller):
    """A mail server on any port that is free."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        super().__init__(Printer(), hostname="127.0.0.1", port=self.listening.getsockname()[1])

    def _create_server(self) -> Any:
        return self.loop.create_server(self._factory_invoker, sock=self.listening)


def main() -> None:
    """Ask, send the mail, serve the page, and carry out what is decided."""
    listener = socket.create_server(("127.0.0.1", int(os.environ.get("PORT", "8000"))))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    catcher = Catcher()
    catcher.start()

    store = MemoryStore()
    people = StoreDirectory(store)
    people.add(Person(id="rita", name="Rita", aliases=("email:rita@example.org",)))
    approvals = ChatApprovals(
        store,
        channels=[Email(sender="Refund desk <desk@example.org>", inbox_url=url, host="127.0.0.1", port=catcher.port)],
        directory=people,
        keys={"1": secrets.token_bytes(32)},
        route="email:rita@example.org",
        inbox_url=url,
    )
    # For what a link is not enough for, people sign in to the inbox: here by a link that only this program could print.
    signing_in = OneTimeLink(store, Principal(id="rita", name="Rita"))
    inbox = Inbox(store, auth=signing_in, public_url=url, links=MailLinks(approvals))
    agent = Agent(
        name="desk",
        model=ScriptedModel.by_turn([call("refund", {"order_id": 1042, "amount": 20.0}), "The refund is on its way."]),
        tools=[refund],
        store=store,
        announcements=[approvals],
    )
    agent.invoke("Please refund 20 euros for order 1042")

    worker = Worker(agent)
    working = threading.Thread(target=worker.run)
    working.start()
    try:
        with approvals:  # sends what is to be sent
            # Without an access log: the path of a link is a secret.
            uvicorn.Server(uvicorn.Config(inbox, access_log=False)).run(sockets=[listener])
    finally:
        worker.stop()
        working.join()
        catcher.stop()


if __name__ == "__main__":
    main()
