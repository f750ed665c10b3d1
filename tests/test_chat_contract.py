"""The contract of channels, on each channel that there is."""

from __future__ import annotations

from typing import Any

from chat_scenes import RITA, Nobody

from phronomy.chat import Response
from phronomy.inbox import Inbox, MailLinks
from phronomy.testing.chat import (
    ChannelContract,
    Clock,
    FakeDiscord,
    FakeMail,
    FakeReceiver,
    FakeSlack,
    FakeTeams,
    FakeTelegram,
    MinimalPlatform,
    Platform,
    TalkingPlatform,
    TalksContract,
)


class TestMinimal(TalksContract):
    def make_platform(self, clock: Clock) -> TalkingPlatform:
        return MinimalPlatform(clock)


class TestSlack(TalksContract):
    def make_platform(self, clock: Clock) -> TalkingPlatform:
        return FakeSlack(clock, rates=True)


class TestTelegram(TalksContract):
    def make_platform(self, clock: Clock) -> TalkingPlatform:
        return FakeTelegram(clock, rates=True)


class TestTeams(TalksContract):
    def make_platform(self, clock: Clock) -> TalkingPlatform:
        return FakeTeams(clock, rates=True)


class TestWebhooks(ChannelContract):
    def make_platform(self, clock: Clock) -> Platform:
        return FakeReceiver(clock)

    def test_the_same_click_gets_the_same_form(self) -> None:
        """If the answer is lost, the same answer again gets the form."""
        item = self.asked(approvals := self.approvals())
        sent = self.platform.sign(self.message, "reason", RITA)
        first = approvals.handle("POST", sent.path, sent.headers, sent.body)
        again = approvals.handle("POST", sent.path, sent.headers, sent.body)
        assert first.status == 200 and b'"form"' in first.body and first.body == again.body
        assert self.trail(item) == []


class TestEmail(ChannelContract):
    def make_platform(self, clock: Clock) -> Platform:
        return FakeMail(
            clock, web=lambda approvals: Inbox(approvals.store, auth=Nobody(), links=MailLinks(approvals)), scans=True
        )

    def place_of(self, by: str) -> str:
        return self.platform.alias(by)


class TestDiscord(TalksContract):
    def make_platform(self, clock: Clock) -> TalkingPlatform:
        return FakeDiscord(clock, rates=True)

    def test_a_form_that_is_answered_too_late_is_not_opened(self) -> None:
        """A modal is the answer itself: if that comes too late, Discord tells the person, and nothing is decided."""
        item = self.asked(approvals := self.approvals())
        platform = self.platform
        assert isinstance(platform, FakeDiscord)

        class Slow:
            def handle(self, *request: Any) -> Response:
                platform.clock.move(4)
                return approvals.handle(*request)

        platform.connect(Slow())
        platform.click(self.message, "reason", RITA)
        assert platform.form(RITA) is None and len(platform.failed) == 1 and self.trail(item) == []
