"""Approvals in chat apps, in tests: requests that wait, and an outbox that is emptied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phronomy import Agent, PendingApproval, tool
from phronomy.chat import ChatApprovals
from phronomy.inbox import Identity, Inbox, MailLinks
from phronomy.people import Person, StoreDirectory
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import (
    Clock,
    FakeDiscord,
    FakeMail,
    FakeReceiver,
    FakeSlack,
    FakeTeams,
    FakeTelegram,
    Platform,
)

KEYS = {"k": b"k" * 32}
RITA, OTTO = "U0000000RITA", "U0000000OTTO"


class Nobody:
    """An `Auth` that knows nobody: people have their links alone."""

    async def identify(self, request: object) -> Identity | None:
        return None


def _web(approvals: ChatApprovals) -> Inbox:
    return Inbox(approvals.store, auth=Nobody(), links=MailLinks(approvals))


PLATFORMS: dict[str, Callable[[Clock, bool], Platform]] = {
    "slack": lambda clock, rates: FakeSlack(clock, rates=rates),
    "discord": lambda clock, rates: FakeDiscord(clock, rates=rates),
    "teams": lambda clock, rates: FakeTeams(clock, rates=rates),
    "telegram": lambda clock, rates: FakeTelegram(clock, rates=rates),
    "email": lambda clock, rates: FakeMail(clock, web=_web),
    "webhook": lambda clock, rates: FakeReceiver(clock),
}
"""A fake of each platform, by the name of its channel, with or without the limits of rates that it has."""


def with_people(store: Store, *platforms: Platform) -> Store:
    """The store, in which Rita and Otto are known on the platforms."""
    people = StoreDirectory(store)
    for id, by in (("rita", RITA), ("otto", OTTO)):
        aliases = tuple(platform.alias(by) for platform in platforms)
        people.add(Person(id=id, name=id.title(), roles=("lead",), aliases=aliases))
    return store


def approvals_of(store: Store, *platforms: Platform, **options: Any) -> ChatApprovals:
    """Approvals as a process makes them, connected to the platforms."""
    given: dict[str, Any] = {
        "channels": [platform.channel for platform in platforms],
        "directory": StoreDirectory(store),
        "keys": KEYS,
        "route": [platform.place for platform in platforms],
        "inbox_url": "https://inbox.example/",
        **options,
    }
    made = ChatApprovals(store, **given)
    for platform in platforms:
        platform.connect(made)
    return made


def desk(approvals: ChatApprovals, store: Store, gate: Any = True, effects: list[int] | None = None) -> Agent[Any, str]:
    """An agent whose refunds wait for a human."""

    @tool(requires_approval=gate)
    def refund(order: int, amount: float = 49.9) -> str:
        """Refund an order."""
        if effects is not None:
            effects.append(order)
        return f"order {order}: {amount} euros"

    model = ScriptedModel.by_turn([lambda request: call("refund", {"order": _order(request)}), "Done."])
    return Agent(name="desk", model=model, tools=[refund], store=store, announcements=[approvals])


def _order(request: Any) -> int:
    said = [message.text for message in request.messages if message.role == "user"][-1]
    return int(said.split()[-1])


def asked(approvals: ChatApprovals, store: Store, order: int = 7, gate: Any = True) -> PendingApproval:
    """A request that waits, and is not posted yet."""
    return desk(approvals, store, gate).invoke(f"Refund order {order}").checkpoint.pending[0]


def emptied(approvals: ChatApprovals, clock: Clock, *, passes: int = 1_000) -> int:
    """Have all be sent, with the clock moved to each time at which there is more; returns how many passes it took."""
    for count in range(1, passes + 1):
        done = approvals.outbox.run_once()
        if done.left == 0:
            return count
        assert done.due is not None
        clock.move(max(done.due - clock.now, 0.01))
    raise AssertionError("the outbox does not come to its end")
