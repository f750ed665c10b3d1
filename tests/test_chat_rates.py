"""Many requests on each platform at its rates, and two platforms in step."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from chat_scenes import PLATFORMS, RITA, approvals_of, asked, desk, emptied, with_people
from selection import scaled

from phronomy import MemoryStore
from phronomy.chat import Pace
from phronomy.chat.channel import Work
from phronomy.testing.chat import Clock

COUNT = scaled(100, sweep=500)
"""So many requests wait. By default 500 do in `test_chat_outbox`, on one platform: the time goes by the square of them."""

REQUESTS: dict[str, Callable[[Any], int]] = {
    "slack": lambda fake: len(fake.calls),
    "discord": lambda fake: len(fake.calls),
    "teams": lambda fake: len(fake.calls),
    "telegram": lambda fake: len(fake.calls),
    "email": lambda fake: len(fake.mails),
    "webhook": lambda fake: len(fake.got),
}
"""How many requests have come to a platform, also those that it has refused."""


@pytest.mark.few(3)
@pytest.mark.parametrize("name", PLATFORMS)
def test_many_requests_are_posted_at_the_pace_of_the_platform_each_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    with closing(PLATFORMS[name](clock, True)) as fake:
        own = fake.channel.pace

        def pace(work: Work, to: str) -> Pace:
            return replace(
                own(work, to), seconds=max(own(work, to).seconds, 1.0)
            )  # mail and webhooks set it themselves

        monkeypatch.setattr(fake.channel, "pace", pace)
        store = with_people(MemoryStore(clock=clock), fake)
        approvals = approvals_of(store, fake, digest_above=None)
        for order in range(COUNT):
            asked(approvals, store, order)
        begun, seconds = clock.now, pace("post", fake.place.partition(":")[2]).seconds
        emptied(approvals, clock, passes=COUNT + 100)
        assert (COUNT - 1) * seconds <= clock.now - begun <= (COUNT + 20) * seconds
        assert REQUESTS[name](fake) == COUNT  # none was refused for being too fast, and none was sent again
        vars(fake)["_handler" if name == "teams" else "_app"] = None  # people look at none of it by themselves
        found = [int(each) for shown in fake.messages() for each in re.findall(r"^order: (\d+)$", shown.text, re.M)]
        assert sorted(found) == [*range(COUNT)]


@pytest.mark.parametrize("name", [name for name in PLATFORMS if name != "slack"])
def test_slack_and_another_platform_stay_in_step(name: str) -> None:
    clock = Clock()
    with closing(PLATFORMS["slack"](clock, True)) as slack, closing(PLATFORMS[name](clock, True)) as other:
        store = with_people(MemoryStore(clock=clock), slack, other)
        approvals = approvals_of(store, slack, other)
        for first, second in ((slack, other), (other, slack)):
            asked(approvals, store)
            emptied(approvals, clock)
            here, there = first.messages()[-1], second.messages()[-1]
            assert first.click(here, "approve", RITA).status == 200
            emptied(approvals, clock)
            assert first.messages()[-1].buttons == {} and second.messages()[-1].buttons == {}
            assert f"approved by Rita, in {first.channel.name}" in second.messages()[-1].text
            second.click(there, "reject", RITA)
            assert "You were first" in second.told(RITA)[-1]
            desk(approvals, store).recover_all()
            emptied(approvals, clock)
            assert all("done" in platform.messages()[-1].text for platform in (slack, other))
        trail = [(each.by and each.by.id, each.kind, each.refused) for each in store.audit()]
        assert trail == [("rita", "approve", False)] * 2
