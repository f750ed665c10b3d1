"""For tests of approvals in chat apps: fake platforms, and the contract of channels."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from phronomy.foundation import lazy_names
from phronomy.testing.chat.platform import Clock, Platform, Sent, Shown, TalkingPlatform, Written

if TYPE_CHECKING:
    from phronomy.testing.chat.contract import ChannelContract
    from phronomy.testing.chat.discord.fake import FakeDiscord
    from phronomy.testing.chat.mail import FakeMail
    from phronomy.testing.chat.minimal import MinimalChannel, MinimalPlatform
    from phronomy.testing.chat.slack import FakeSlack
    from phronomy.testing.chat.talks import TalksContract
    from phronomy.testing.chat.teams import FakeTeams
    from phronomy.testing.chat.telegram import FakeTelegram
    from phronomy.testing.chat.webhooks import FakeReceiver

__all__ = [
    "ChannelContract",
    "Clock",
    "FakeDiscord",
    "FakeMail",
    "FakeReceiver",
    "FakeSlack",
    "FakeTeams",
    "FakeTelegram",
    "MinimalChannel",
    "MinimalPlatform",
    "Platform",
    "Sent",
    "Shown",
    "TalkingPlatform",
    "TalksContract",
    "Written",
]

_LAZY = {
    "ChannelContract": ".contract",
    "FakeDiscord": ".discord.fake",
    "FakeMail": ".mail",
    "FakeReceiver": ".webhooks",
    "FakeSlack": ".slack",
    "FakeTeams": ".teams",
    "FakeTelegram": ".telegram",
    "MinimalChannel": ".minimal",
    "MinimalPlatform": ".minimal",
    "TalksContract": ".talks",
}
_EXTRAS = {
    "FakeDiscord": {"cryptography": "discord"},
    "FakeReceiver": {"standardwebhooks": "webhooks"},
    "FakeTeams": {"cryptography": "teams"},
}

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> object:
        part = f"{__name__}{_LAZY.get(name, '')}"
        if name.endswith("Contract") and part not in sys.modules and (pytest := sys.modules.get("pytest")) is not None:
            # An assertion that fails then shows its values, as in a test file.
            pytest.register_assert_rewrite(part)
        return lazy_names.load(__name__, name, _LAZY, _EXTRAS.get(name))
