"""What the browser tests look at: an agent whose calls wait for people, the store they are in, and the inbox over it, served.

`python shop.py FOLDER PORT PREFIX` serves the inbox. The tests have the same store open, in their own process: they ask, and carry out.
Both take the time from one file, so that a test says how late it is, and a picture is the same on every day.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.routing import Mount

from phronomy import Agent, Approval, Escalate, Principal, SQLiteStore, interrupt, tool
from phronomy.chat import ChatApprovals
from phronomy.chat.email import Email
from phronomy.inbox import Inbox, MailLinks
from phronomy.inbox.auth.one_time_link import OneTimeLink
from phronomy.inbox.auth.sessions import Sessions
from phronomy.people import StoreDirectory
from phronomy.testing import ScriptedModel, call
from phronomy.testing.scripted import say

BEGINS = 1_795_597_200.0
"""25 November 2026, 9:00 UTC: when each test begins."""

COOKIE = "phronomy-test"

PEOPLE = {
    each.id: each
    for each in (
        Principal(id="rita", name="Rita Okafor", roles=("lead", "finance")),
        Principal(id="otto", name="Otto Brandt", roles=("finance",)),
        Principal(id="mia", name="Mia Lindqvist", roles=("finance", "lead")),
        Principal(id="carl", name="Carl Fischer", roles=("clerk",)),
    )
}
HOUR = 3600.0


class Line(BaseModel):
    """A line of a bill."""

    text: str = Field(min_length=1)
    cents: int = Field(ge=0)


def _title(args: Any) -> str:
    return f"Refund order {args['order']}: {args['amount']:.2f} euros"


@tool(
    requires_approval=Approval(
        title=_title,
        context="The shop sends the money at once, and cannot take it back.",
        standing=True,
    ),
    risk="high",
)
def refund(
    order: Annotated[int, Field(description="The number on the bill.")],
    amount: Annotated[float, Field(gt=0, le=500, description="Euros, at most 500.")] = 49.9,
    reason: Literal["damaged", "late", "other"] = "damaged",
    notify: bool = True,
    note: str = "",
) -> str:
    """Send a customer the money for an order back."""
    return f"Order {order}: {amount:.2f} euros are on their way."


@tool(
    requires_approval=Approval(
        title="Pay a bill",
        by="finance",
        needed=2,
        not_requester=True,
        escalate=Escalate(after=12 * HOUR, by="lead"),
        expires=24 * HOUR,
    ),
    risk="high",
)
def pay(to: str, lines: list[Line], iban: str = "DE89 3704 0044 0532 0130 00") -> str:
    """Pay a bill by a transfer."""
    return f"{sum(each.cents for each in lines) / 100:.2f} euros paid to {to}."


@tool(requires_approval=Approval(title="Send a mail", answers=("approve", "edit", "reject", "respond")), risk="low")
def mail(to: list[str], subject: str, body: str) -> str:
    """Send a mail in the name of the shop."""
    return f"Sent to {len(to)}."


@tool(
    requires_approval=Approval(title="Close an account", expires=HOUR / 2, answers=("approve", "reject")), risk="high"
)
def close_account(customer: str) -> str:
    """Close the account of a customer, with all that is in it."""
    return f"The account of {customer} is closed."


@tool(requires_approval=Approval(title="Have a parcel collected"), risk="medium")
def collect(order: int) -> str:
    """Have a parcel collected from a customer."""
    raise ValueError(f"there is no parcel of order {order}")


@tool(requires_approval=True)
def note(text: str) -> str:
    """Write a note."""
    return "Written."


@tool
def ship(order: int) -> str:
    """Ship an order."""
    where = interrupt(f"Order {order} has two addresses. To which one is it sent?")
    return f"Order {order} is on its way to {where}."


def _wanted(request: Any) -> Any:
    said = [message.text for message in request.messages if message.role == "user"][-1]
    wanted = json.loads(said)
    return say(wanted["says"], *(call(name, args) for name, args in wanted["calls"]))


def clock_of(folder: Path) -> Any:
    """The time of a folder, which a test sets."""
    file = folder / "clock"
    return lambda: float(file.read_text())


def store_of(folder: Path) -> SQLiteStore:
    """The store in a folder."""
    return SQLiteStore(folder / "runs.db", clock=clock_of(folder), synchronous="OFF")


def _talks(request: Any) -> Any:
    last = request.messages[-1]
    if last.role == "tool":
        return last.text
    if last.text.startswith("Refund order"):
        return call("refund", {"order": int(last.text.split()[-1])})
    return f"I can refund orders. You said: {last.text}"


def clerk_of(store: SQLiteStore) -> Agent[Any, str]:
    """An agent that people talk to in the chat."""
    return Agent(name="clerk", model=ScriptedModel(_talks), tools=[refund], store=store)


def desk_of(store: SQLiteStore) -> Agent[Any, str]:
    """The agent. What it is told is a JSON text that says what its model says, and which calls it makes."""
    model = ScriptedModel.by_turn([_wanted, "It is done."])
    return Agent(name="desk", model=model, tools=[refund, pay, mail, close_account, collect, note, ship], store=store)


def sessions_of(store: SQLiteStore) -> Sessions:
    """The sessions, by a cookie that goes without TLS."""
    return Sessions(store, secure=False, cookie=COOKIE)


def link_of(store: SQLiteStore, folder: Path) -> OneTimeLink:
    """One-time links for Rita. In place of a terminal, a file has those that are printed."""

    def announce(path: str) -> None:
        with (folder / "links").open("a") as file:
            print(path, file=file)

    return OneTimeLink(store, PEOPLE["rita"], announce=announce)


def approvals_of(store: SQLiteStore) -> ChatApprovals:
    """Approvals by mail, whose links the inbox answers. No mail is sent."""
    channel = Email(sender="shop@example.org", inbox_url="http://127.0.0.1")
    return ChatApprovals(store, channels=[channel], directory=StoreDirectory(store), keys={"1": b"k" * 32})


def inbox_of(folder: Path, origin: str, prefix: str) -> Any:
    """The inbox over the store in a folder, mounted into another application if there is a prefix."""
    store = store_of(folder)
    inbox = Inbox(
        store,
        [clerk_of(store), desk_of(store)],
        auth=link_of(store, folder),
        public_url=origin + prefix,
        title="Shop approvals",
        scopes=lambda _: {"read", "decide", "grant", "audit", "start", "cancel", "operate"},
        trusted_hosts=[origin.removeprefix("http://")],
        sessions=sessions_of(store),
        links=MailLinks(approvals_of(store)),
    )
    return Starlette(routes=[Mount(prefix, app=inbox)]) if prefix else inbox


def main() -> None:
    """Serve until told to stop."""
    import uvicorn

    folder, port, prefix = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    app = inbox_of(folder, f"http://127.0.0.1:{port}", prefix)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", proxy_headers=False, timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
