"""The words for people in chats whose answer does not count: a sentence for people, said once, without ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chat_scenes import OTTO, PLATFORMS, RITA, approvals_of, desk, emptied, with_people

from phronomy import Approval, MemoryStore
from phronomy.testing.chat import Clock, Platform

SOMEBODY_ELSE = "You asked for this, so somebody else has to approve it. Asked for: 1 of lead"


@pytest.mark.parametrize(
    "name", [name for name in PLATFORMS if name != "email"]
)  # its page says so before anybody presses
def test_who_asked_is_told_that_somebody_else_has_to_approve(name: str) -> None:
    make: Callable[..., Platform] = PLATFORMS[name]
    clock = Clock()
    with make(clock, False) as fake:  # type: ignore[attr-defined]
        store = with_people(MemoryStore(clock=clock), fake)
        approvals = approvals_of(store, fake)
        gate: Any = Approval(by="lead", not_requester=True)
        item = desk(approvals, store, gate).invoke("Refund order 7", requester=fake.alias(OTTO)).checkpoint.pending[0]
        emptied(approvals, clock)
        [shown] = fake.messages()
        fake.click(shown, "approve", OTTO)
        [told] = fake.told(OTTO)
        assert SOMEBODY_ELSE in told
        assert item.id not in told and "otto" not in told
        assert told.lower().count("nothing was decided") == 1
        if "edit" in shown.buttons and name != "webhook":  # whose receiver opens forms by itself
            fake.click(shown, "edit", OTTO)
            assert SOMEBODY_ELSE in fake.told(OTTO)[-1]
        fake.click(shown, "approve", RITA)
        assert store.request(item.id).status == "decided"
