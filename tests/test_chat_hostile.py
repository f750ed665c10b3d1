"""Chats under attack: answers that are not those of the platform, places that stop, and texts that are meant to hide something."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from chat_scenes import RITA, approvals_of, asked, emptied, with_people
from loopback import loopback

from phronomy import Agent, MemoryStore
from phronomy.chat import Button, Card, Channel, ChannelError, RateLimited
from phronomy.chat.bot.speech import answer_of
from phronomy.chat.cards import card_of, title_of
from phronomy.chat.discord import Discord
from phronomy.chat.http import limited
from phronomy.chat.slack import Slack
from phronomy.chat.teams import Cloud, Teams
from phronomy.chat.telegram import Telegram
from phronomy.foundation.json_text import canonical
from phronomy.foundation.suspicious_letters import escaped
from phronomy.testing import ScriptedModel
from phronomy.testing.chat import MinimalPlatform

ID = "0e1d2c3b-0000-4000-8000-0000000000bb"
CARD = Card(title="refund", state="waits", status="waits for approval")
TOKEN = b'{"access_token": "secret", "expires_in": 3600}'


@contextmanager
def platform_that_answers(status: int, headers: dict[str, str], body: bytes) -> Iterator[tuple[str, list[Any]]]:
    """A server that gives the same answer to everything but the question for a token; its address, and the paths asked for."""
    asked_for: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            asked_for.append((self.path, self.headers.get("authorization")))
            is_login = "oauth2" in self.path
            said = TOKEN if is_login else body
            self.send_response(200 if is_login else status)
            for name, value in {**({} if is_login else headers), "content-length": str(len(said))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_PATCH = answer  # names of the base

        def log_message(self, *given: object) -> None:  # type: ignore[override]
            """Say nothing."""

    with loopback(Handler) as (_, url):
        yield url, asked_for


def channels_at(url: str) -> list[tuple[Channel, str, str]]:
    """Each channel that calls an API, with a place and a message there."""
    cloud = Cloud(login_url=url, metadata_url=f"{url}/metadata")
    teams = Teams(app_id=ID, app_password="p", tenant_id=ID, service_url=f"{url}/teams/", cloud=cloud)
    return [
        (Slack(signing_secret="s", bot_token="xoxb-1", base_url=f"{url}/api/"), "C1", "C1/1.1"),
        (Discord(public_key="ab" * 32, bot_token="t", base_url=url), "123", "123/456"),
        (Telegram(bot_token=f"7000000001:{'A' * 35}", secret_token="s" * 20, base_url=url), "-1", "-1/4"),
        (teams, "19:a@thread.tacv2", "19:a@thread.tacv2/17"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Please sign in</html>",
        b"[1]",
        b"null",
        b'"x"',
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"ok": true, "result": NaN}',
    ],
)
def test_what_is_no_answer_of_the_platform_is_no_message(body: bytes) -> None:
    with platform_that_answers(200, {"content-type": "application/json"}, body) as (url, _):
        for channel, place, _ref in channels_at(url):
            with pytest.raises(ChannelError):
                channel.post(place, CARD, key="k")


@pytest.mark.parametrize("body", [b"<html>Please sign in</html>", b"[1]", b"[" * 100_000])
def test_what_is_no_answer_of_the_platform_is_no_edit(body: bytes) -> None:
    with platform_that_answers(200, {"content-type": "application/json"}, body) as (url, _):
        for channel, _place, ref in channels_at(url):
            with pytest.raises(ChannelError):
                channel.update(ref, CARD)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed_so_no_token_goes_elsewhere(status: int) -> None:
    with platform_that_answers(200, {}, b'{"ok": true}') as (elsewhere, followed):
        with platform_that_answers(status, {"location": f"{elsewhere}/x"}, b"") as (url, _):
            for channel, place, ref in channels_at(url):
                with pytest.raises(ChannelError):
                    channel.post(place, CARD, key="k")
                with pytest.raises(ChannelError):
                    channel.update(ref, CARD)
        assert followed == []


@pytest.mark.parametrize("given", ["\u00b2", "9" * 400, "-5", "nan", "1e999", "99999999"])
def test_a_platform_that_asks_to_wait_for_ever_is_asked_again_after_a_day(given: str) -> None:
    body = b'{"ok": false, "retry_after": 1%s, "parameters": {"retry_after": 1%s}}' % (b"0" * 400, b"0" * 400)
    with platform_that_answers(429, {"retry-after": given, "content-type": "application/json"}, body) as (url, _):
        for channel, place, _ref in channels_at(url):
            with pytest.raises(RateLimited) as caught:
                channel.post(place, CARD, key="k")
            assert 0 < caught.value.seconds <= 86_400


@pytest.mark.parametrize(
    ("given", "taken"), [(float("inf"), 86_400.0), (float("nan"), 86_400.0), (-1.0, 0.0), (5.0, 5.0)]
)
def test_a_place_is_not_silent_for_ever(given: float, taken: float) -> None:
    assert RateLimited("wait", seconds=given).seconds == taken


def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    with platform_that_answers(200, {"content-type": "application/json"}, b" " * 40_000_000) as (url, _):
        for channel, place, _ref in channels_at(url):
            with pytest.raises(ChannelError):
                channel.post(place, CARD, key="k")


def test_an_answer_that_comes_byte_by_byte_is_not_waited_for() -> None:
    read: list[bytes] = []

    def slowly() -> Iterator[bytes]:
        while True:
            read.append(b" ")
            yield b" "

    with pytest.raises(OSError, match="too slow"):
        limited(slowly(), most=1_000, seconds=-1)
    assert len(read) == 1
    with pytest.raises(OSError, match="too large"):
        limited(slowly(), most=10, seconds=60)
    assert limited(iter([b"a", b"b"]), most=2, seconds=60) == b"ab"


@pytest.mark.parametrize("letter", ["a", "r", "s"])
def test_what_a_button_carries_decides_nothing_as_a_form(letter: str) -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals = approvals_of(store, platform)
    asked(approvals, store)
    emptied(approvals, platform.clock)
    [shown] = platform.messages()
    data = letter + shown.buttons["approve"][1:]
    values = {"arg:order": "8", "arg:amount": "49.9"}
    sent = platform._signed({"kind": "form", "user": RITA, "data": data, "ref": shown.ref, "values": values})
    platform.deliver(sent)
    assert store.decided() == [] and len(store.pending()) == 1


@pytest.mark.parametrize("title", ["\u202e" * 30, "x" * 139, "y" * 2_000_000, "\u00e9" * 2_000_000, "Pay 9"])
@pytest.mark.parametrize("name", ["refund", "refund_" + "x" * 60, "refund_" + "x" * 130])
def test_no_title_is_left_out_and_none_takes_long(name: str, title: str) -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals = approvals_of(store, platform)
    item = asked(approvals, store)
    item = item.evolve(tool_name=name, title=title)
    request = store.request(item.id)

    begun = time.process_time()
    card = card_of(replace(request, approval=item), channel="minimal")
    assert time.process_time() - begun < 1.0
    assert len(title_of(item)) <= 140
    told = " ".join([card.title, *card.notes])

    assert (escaped(title) if len(title) < 1_000 else "2,000,000 characters") in told


@pytest.mark.parametrize(
    ("args", "whole"),
    [
        ({"order": 7}, True),
        ({"": 7}, True),
        ({"n" * 80: 7}, True),
        ({"n" * 81: 7}, False),
        ({"\u202e" * 14: 7}, False),
        ({"n" * 80 + "1": 7, "n" * 80 + "2": 7}, False),
        ({"note": "n" * 301}, False),
    ],
)
def test_what_is_cut_is_not_approved_there_be_it_a_name_or_a_value(args: Any, whole: bool) -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    item = asked(approvals_of(store, platform), store)
    buttons = (Button(action="approve", label="Approve", data="a"), Button(action="reject", label="Reject", data="r"))
    request = replace(store.request(item.id), approval=item.evolve(args=canonical(args)))
    card = card_of(request, channel="minimal", buttons=buttons)
    assert (card.whole, [each.action for each in card.buttons]) == (whole, ["approve", "reject"][not whole :])


@pytest.mark.parametrize("text", ["", " \n\t ", "\u200b" * 10, "\u2060", "\u3164", "\u00ad", "\u200d\u2800 "])
def test_an_answer_in_which_nothing_is_seen_is_said_to_be_empty(text: str) -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    result = Agent(name="desk", model=ScriptedModel.by_turn([text]), store=store).invoke("Hello")
    assert answer_of("completed", result.checkpoint) == "(The answer is empty.)"
    assert answer_of("completed", result.checkpoint.evolve(output=canonical("\u200bYes"))) == "\u200bYes"
