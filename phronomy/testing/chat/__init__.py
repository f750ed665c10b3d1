"""For tests of approvals in chat apps: fake platforms, and the contract of channels."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from phronomy.foundation import lazy_names
from phronomy.testing.chat.platform import Clock, Platform, Sent, Shown

if TYPE_CHECKING:
    from phronomy.testing.chat.contract import ChannelContract
    from phronomy.testing.chat.minimal import MinimalChannel, MinimalPlatform
    from phronomy.testing.chat.slack import FakeSlack

__all__ = ["ChannelContract", "Clock", "FakeSlack", "MinimalChannel", "MinimalPlatform", "Platform", "Sent", "Shown"]

_LAZY = {
    "ChannelContract": ".contract",
    "FakeSlack": ".slack",
    "MinimalChannel": ".minimal",
    "MinimalPlatform": ".minimal",
}

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> object:
        part = f"{__name__}.contract"
        if name == "ChannelContract" and part not in sys.modules and (pytest := sys.modules.get("pytest")) is not None:
            # An assertion that fails then shows its values, as in a test file.
            pytest.register_assert_rewrite(part)
        return lazy_names.load(__name__, name, _LAZY)
