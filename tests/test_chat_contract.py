"""The contract of channels, on each channel that there is."""

from __future__ import annotations

from phronomy.testing.chat import ChannelContract, Clock, FakeSlack, MinimalPlatform, Platform


class TestMinimal(ChannelContract):
    def make_platform(self, clock: Clock) -> Platform:
        return MinimalPlatform(clock)


class TestSlack(ChannelContract):
    def make_platform(self, clock: Clock) -> Platform:
        return FakeSlack(clock, rates=True)
