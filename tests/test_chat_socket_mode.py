"""Slack over Socket Mode: Slack's own client, connected to the fake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chat_scenes import OTTO, RITA, approvals_of, asked, emptied, with_people

from phronomy import ConfigurationError, MemoryStore
from phronomy.chat.slack import Slack, SocketMode
from phronomy.testing.chat import Clock, FakeSlack
from phronomy.testing.chat.slack import APP_TOKEN
from phronomy.testing.chat.slack_socket import FakeSocket


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with FakeSlack(Clock()) as fake:
        yield fake


def test_a_click_and_a_form_come_over_the_socket(slack: FakeSlack) -> None:
    store = with_people(MemoryStore(clock=slack.clock), slack)
    approvals = approvals_of(store, slack)
    item = asked(approvals, store)
    emptied(approvals, slack.clock)
    [shown] = slack.messages()
    channel = slack.channel
    assert isinstance(channel, Slack)
    with FakeSocket(slack) as socket, SocketMode(approvals, channel, app_token=APP_TOKEN) as connection:
        assert "xapp" not in repr(connection)
        assert socket.send({"type": "events_api", "payload": {}}) == {}
        assert socket.send({"type": "interactive", "payload": {"type": "block_actions"}}) == {}
        assert socket.deliver(slack.sign(shown, "reason", RITA)) == {}
        assert slack.form(RITA) == {"reason": ""}
        view = slack._views[RITA]
        state = {"values": {"reason": {"value": {"type": "plain_text_input", "value": ""}}}}
        payload = {
            "type": "view_submission",
            "user": {"id": RITA, "team_id": slack.team},
            "team": {"id": slack.team},
            "view": {**view, "id": "V1", "state": state},
        }
        wrong = socket.send({"type": "interactive", "payload": payload, "accepts_response_payload": True})
        assert wrong == {"response_action": "errors", "errors": {"reason": "Say why."}}
        assert store.request(item.id).status == "pending"
        sent = slack.sign(shown, "approve", OTTO)
        assert socket.deliver(sent) == socket.deliver(sent) == {}
    assert [(each.by and each.by.id, each.kind) for each in store.audit(pending_id=item.id)] == [("otto", "approve")]


def test_it_needs_an_app_token(slack: FakeSlack) -> None:
    channel = slack.channel
    assert isinstance(channel, Slack)
    with pytest.raises(ConfigurationError):
        SocketMode(approvals_of(MemoryStore(), slack), channel, app_token="")
