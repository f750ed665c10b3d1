"""The fake platforms refuse what is larger than their platforms take. For Discord and Telegram, the tests with libraries say so."""

from __future__ import annotations

import json
import smtplib
from collections.abc import Callable
from contextlib import closing
from typing import Any

import httpx
import pytest
from chat_scenes import PLATFORMS

from phronomy.chat import ChannelError
from phronomy.chat.webhooks.signature import key_of, sign
from phronomy.testing.chat import Clock
from phronomy.testing.chat.webhooks import SECRET


def in_slack(fake: Any, size: int) -> bool:
    """Whether the text of the blocks may have so many characters."""
    try:
        return bool(fake.channel.say(fake.place.partition(":")[2], "n" * size, key="k"))
    except ChannelError:
        return False


def in_teams(fake: Any, size: int) -> bool:
    """Whether a message may have so many bytes in UTF-16."""
    around = len(json.dumps({"type": "message", "text": "", "textFormat": "plain"}))
    try:
        return bool(fake.channel.say(fake.conversation_id, "n" * (size // 2 - around), key="k"))
    except ChannelError:
        return False


def in_a_mail(fake: Any, size: int) -> bool:
    """Whether a line may have so many bytes, with its end."""
    with smtplib.SMTP("127.0.0.1", fake.port) as client:
        try:
            client.sendmail("a@example.org", ["b@example.org"], "n" * (size - 2) + "\r\n")
        except smtplib.SMTPDataError:
            return False
    return True


def in_an_event(fake: Any, size: int) -> bool:
    """Whether a body may have so many bytes."""
    body = json.dumps({"type": "request.created", "data": ""}).encode()
    body = body[:-2] + b"n" * (size - len(body)) + body[-2:]
    headers = sign([key_of(SECRET)], "msg_1", int(fake.clock.now), body)
    return httpx.post(fake.url, headers=headers, content=body, trust_env=False).status_code == 204


@pytest.mark.parametrize(
    ("name", "fits", "largest"),
    [
        ("slack", in_slack, 13_200),
        ("teams", in_teams, 102_400),
        ("email", in_a_mail, 1_000),
        ("webhook", in_an_event, 19_999),
    ],
)
def test_a_message_that_is_too_large_is_refused(name: str, fits: Callable[[Any, int], bool], largest: int) -> None:
    with closing(PLATFORMS[name](Clock(), False)) as fake:
        assert fits(fake, largest - 2) and not fits(fake, largest + 2)
