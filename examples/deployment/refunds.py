"""The app that the files of this folder deploy: a refund desk, and the inbox where its refunds are approved.

`phronomy work --app refunds:make_agent` and `phronomy serve --inbox refunds:make_inbox` run it, each with `PHRONOMY_STORE`. The other
settings are environment variables as well, and none of them has a default that would let strangers in.
"""

from __future__ import annotations

import os
from typing import Any

from phronomy import Agent, Approval, Principal, tool
from phronomy.inbox import OIDC, Inbox
from phronomy.stores import Store


@tool(requires_approval=Approval(by="finance", title="Refund"))
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


def make_agent(store: Store | None = None) -> Agent[Any, str]:
    """The agent, the same in each process. The command line gives it the store of `PHRONOMY_STORE`."""
    return Agent(
        name="refund desk",
        model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
        instructions="You work at a refund desk. Refund what is asked for.",
        tools=[refund],
        store=store,
    )


def scopes_of(principal: Principal) -> set[str]:
    """The scopes in the inbox: people read and decide, and programs with a token start runs as well."""
    return {"read", "decide", "start"} if principal.kind == "service" else {"read", "decide"}


def make_inbox(store: Store) -> Inbox:
    """The inbox: people sign in at the provider of the company, whose groups are their roles."""
    login = OIDC(
        issuer=os.environ["OIDC_ISSUER"],
        client_id=os.environ["OIDC_CLIENT_ID"],
        client_secret=os.environ["OIDC_CLIENT_SECRET"],
        roles="groups",
    )
    return Inbox(
        store,
        agents=make_agent(store),
        auth=login,
        public_url=os.environ["INBOX_URL"],
        scopes=scopes_of,
        title="Refund desk",
        trusted_hosts=os.environ["INBOX_HOSTS"].split(","),
    )
