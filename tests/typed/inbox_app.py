"""The inbox in an application that has a login of its own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request

from phronomy import Agent, MemoryStore, Principal, Store
from phronomy.inbox import Auth, Identity, Inbox
from phronomy.people import Person, StoreDirectory
from phronomy.testing import ScriptedModel

GROUPS = {"ada": ["finance", "lead"]}


class OurLogin:
    """Whom the session of the application knows."""

    async def identify(self, request: Request) -> Identity | None:
        user = request.headers.get("x-user")
        return (
            None
            if user is None
            else Identity(principal=Principal(id=f"app:{user}", roles=GROUPS.get(user, [])), via="app")
        )


def scopes_of(principal: Principal) -> Collection[str]:
    return ["read", "decide", "audit"] if "lead" in principal.roles else ["read", "decide"]


def make_app(store: Store) -> Starlette:
    desk: Agent[Any, str] = Agent(name="desk", model=ScriptedModel(["Done."]), store=store)
    auth: Auth = OurLogin()
    inbox = Inbox(store, auth=auth, login_url="/login?next={to}", scopes=scopes_of, agents=[desk])
    web = Starlette()
    web.mount("/approvals", inbox)
    return web


def main() -> None:
    store = MemoryStore()
    StoreDirectory(store).add(Person(id="ada", roles=["finance"], aliases=["app:ada"]))
    print(type(make_app(store)).__name__)


if __name__ == "__main__":
    main()
