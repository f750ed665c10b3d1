"""The inbox in tests: one over a store, with people who are known by a header, and requests that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import httpx2
from starlette.requests import Request

from phronomy import Agent, MemoryStore, PendingApproval, Principal, tool
from phronomy.inbox import Identity, Inbox
from phronomy.inbox.auth.identity import SCOPES
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call

T = TypeVar("T")

ORIGIN = "https://inbox.example"
RITA = Principal(id="rita", name="Rita", roles=("lead",))
OTTO = Principal(id="otto", name="Otto", roles=("clerk",))

FOUR = frozenset({"read", "decide", "grant", "audit"})
"""What people may do in an inbox of these tests, unless it is said: all but starting and cancelling runs."""


class ByHeader:
    """An `Auth` that knows people by a header, as an application that the inbox is mounted into might."""

    def __init__(self, *people: Principal, tenant: str | None = None, scopes: Any = SCOPES) -> None:
        self.people = {each.id: each for each in people or (RITA, OTTO)}
        self.tenant = tenant
        self.scopes = scopes

    async def identify(self, request: Request) -> Identity | None:
        found = self.people.get(request.headers.get("x-user", ""))
        if found is None:
            return None
        return Identity(principal=found, tenant=self.tenant, scopes=self.scopes, via="header")


def desk(store: Store, gate: Any = True, name: str = "desk", **options: Any) -> Agent[Any, str]:
    """An agent whose refunds wait for a human."""

    @tool(requires_approval=gate, risk="high", **options)
    def refund(order: int, amount: float = 49.9, note: str = "") -> str:
        """Refund an order, in euros."""
        return f"order {order}: {amount} euros are on their way"

    model = ScriptedModel.by_turn([lambda request: call("refund", _args(request)), "Done."])
    return Agent(name=name, model=model, tools=[refund], store=store)


def _args(request: Any) -> dict[str, Any]:
    said = [message.text for message in request.messages if message.role == "user"][-1]
    return {"order": int(said.split()[-1])}


def asked(
    store: Store, order: int = 1042, gate: Any = True, *, requester: Any = "ann", **options: Any
) -> PendingApproval:
    """A request that waits."""
    checkpoint = desk(store, gate).invoke(f"Refund order {order}", requester=requester, **options).checkpoint
    return checkpoint.pending[0]


def run(work: Coroutine[Any, Any, T]) -> T:
    """What the work gives, in an event loop of its own."""
    return asyncio.run(work)


class Visitor:
    """Somebody with a client over an inbox: their requests come from its own pages, unless they say otherwise."""

    def __init__(self, inbox: Any, who: str | None = "rita", *, prefix: str = "", **headers: str) -> None:
        self.inbox = inbox
        self.prefix = prefix
        self.headers = {"sec-fetch-site": "same-origin", **headers}
        if who is not None:
            self.headers["x-user"] = who
        self.cookies: dict[str, str] = {}

    def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """The answer to one request."""

        async def send() -> httpx2.Response:
            transport = httpx2.ASGITransport(app=self.inbox, root_path=self.prefix, raise_app_exceptions=True)
            headers = {**self.headers, **options.pop("headers", {})}
            async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN, cookies=self.cookies) as client:
                answer = await client.request(method, self.prefix + path, headers=headers, **options)
                self.cookies = dict(client.cookies)
                return answer

        return run(send())

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx2.Response:
        return self.request("POST", path, **options)


def inbox_of(store: Store | None = None, **options: Any) -> Inbox:
    """An inbox over a store, whose people may also grant and audit."""
    given: dict[str, Any] = {"auth": ByHeader(), "public_url": ORIGIN, "scopes": lambda _: FOUR, **options}
    return Inbox(store if store is not None else MemoryStore(), **given)
