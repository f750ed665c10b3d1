"""Slack as a channel: signatures, what it sends, modals, and how it shows what models have written."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from chat_scenes import RITA, approvals_of, asked, emptied, with_people
from hypothesis import given, settings
from hypothesis import strategies as st

from phronomy import Agent, Approval, ConfigurationError, MemoryStore, tool
from phronomy.chat import Card, ChannelError, ChannelRefused, Click, HttpRequest, Line, RateLimited, Refused, Response
from phronomy.chat.slack import Slack, manifest
from phronomy.chat.slack.signature import sign, verify
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import Clock, FakeSlack
from phronomy.testing.chat.slack import SECRET

PUBLISHED = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
    b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
SIGNED = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"


def slack_of(**options: Any) -> Slack:
    return Slack(**{"signing_secret": SECRET, "bot_token": "xoxb-1", **options})


def test_the_signature_that_slack_publishes_is_right() -> None:
    headers = {"x-slack-request-timestamp": "1531420618", "x-slack-signature": SIGNED}
    for now in (1531420618, 1531420618 + 300, 1531420618 - 300):
        verify(SECRET, headers, PUBLISHED, now=now)
    for now in (1531420618 + 301, 1531420618 - 301):
        with pytest.raises(Refused, match="too old"):
            verify(SECRET, headers, PUBLISHED, now=now)
    for secret, body in ((SECRET, PUBLISHED + b" "), ("other", PUBLISHED)):
        with pytest.raises(Refused, match="no signature"):
            verify(secret, headers, body, now=1531420618)


def received(body: bytes, kind: str = "application/x-www-form-urlencoded", **options: Any) -> Any:
    """What a signed body is taken for."""
    headers = {
        "content-type": kind,
        "x-slack-request-timestamp": "1800000000",
        "x-slack-signature": sign(SECRET, "1800000000", body),
    }
    request = HttpRequest(method="POST", path="/slack", headers=headers, body=body)
    return slack_of(**options).receive(request, now=1_800_000_000)


def form(payload: object) -> bytes:
    return urlencode({"payload": json.dumps(payload)}).encode()


def click(**changes: Any) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "type": "block_actions",
        "user": {"id": "U1RITA", "team_id": "T1", "username": "not-this"},
        "team": {"id": "T1"},
        "container": {"channel_id": "C1", "message_ts": "1.2"},
        "trigger_id": "t",
        "actions": [{"action_id": "phronomy:approve", "value": "a" * 45, "action_ts": "3.4"}],
    }
    return {**payload, **changes}


def test_slack_is_told_that_the_address_is_ours() -> None:
    answer = received(b'{"type":"url_verification","challenge":"c"}', "application/json; charset=utf-8")
    assert (answer.status, answer.body) == (200, b"c")
    assert received(b"ssl_check=1&token=x") == Response()


@pytest.mark.parametrize(
    ("options", "user", "alias"),
    [
        ({}, {"id": "U1RITA", "team_id": "T1"}, "slack:U1RITA"),
        ({}, {"id": "U1RITA", "team_id": "T2"}, "slack:T2:U1RITA"),
        ({"team_id": "T1"}, {"id": "U1RITA", "team_id": "T1"}, "slack:U1RITA"),
        ({"team_id": "T2"}, {"id": "U1RITA", "team_id": "T1"}, "slack:T1:U1RITA"),
        ({"name": "slack-eu"}, {"id": "U1RITA", "team_id": "T1"}, "slack-eu:U1RITA"),
    ],
)
def test_people_of_other_workspaces_are_others(options: dict[str, Any], user: dict[str, str], alias: str) -> None:
    found = received(form(click(user=user)), **options)
    assert isinstance(found, Click) and (found.alias, found.ref) == (alias, "C1/1.2")


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "view_closed"},
        {"type": "shortcut"},
        click(actions=[{"action_id": "other:approve", "value": "x"}]),
        click(actions=[{"action_id": "phronomy:open", "type": "button"}]),
        {"type": "view_submission", "user": {"id": "U1"}, "view": {"callback_id": "other"}},
    ],
)
def test_what_is_nothing_for_us_is_acknowledged(payload: object) -> None:
    assert received(form(payload)) == Response()


@pytest.mark.parametrize(
    "payload",
    [
        {},
        [],
        {"type": "block_actions"},
        click(actions=[]),
        click(actions=None),
        click(user={"id": "<@U1>"}),
        click(user={"id": 7}),
        click(user=None),
        click(container=None),
        {"type": "view_submission", "user": {"id": "U1"}, "view": {"callback_id": "phronomy:form"}},
        {
            "type": "view_submission",
            "user": {"id": "U1"},
            "view": {"callback_id": "phronomy:form", "id": "V", "private_metadata": "[]", "state": {"values": {}}},
        },
    ],
)
def test_what_makes_no_sense_is_refused(payload: object) -> None:
    with pytest.raises(Refused) as refused:
        received(form(payload))
    assert refused.value.status == 400


def test_without_a_workspace_nobody_is_known_where_it_is_set() -> None:
    with pytest.raises(Refused):
        received(form(click(user={"id": "U1RITA"})), team_id="T1")


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "user", "id", "team", "actions", "view", "value", "action_id", "state", "values"])
            | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    body=st.binary(max_size=200)
    | json_values.map(form)
    | st.builds(
        lambda value: form(click(**value)),
        st.dictionaries(st.sampled_from(["user", "actions", "team", "container"]), json_values),
    ),
    kind=st.sampled_from(["application/x-www-form-urlencoded", "application/json", ""]),
    sealed=st.booleans(),
    headers=st.dictionaries(st.sampled_from(["X-Slack-Signature", "X-Slack-Request-Timestamp"]), st.text(max_size=40)),
)
def test_any_bytes_get_an_answer_and_never_a_500(body: bytes, kind: str, sealed: bool, headers: dict[str, str]) -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    made = {
        "Content-Type": kind,
        "X-Slack-Request-Timestamp": str(int(clock.now)),
        "X-Slack-Signature": sign(SECRET, str(int(clock.now)), body) if sealed else "v0=00",
        **headers,
    }
    with_channel = approvals_of(store, _Only())
    response = with_channel.handle("POST", "/slack", made, body)
    assert response.status < 500
    if not sealed:
        assert response.status == 401


class _Only:
    """A platform that is its channel alone."""

    def __init__(self) -> None:
        self.channel = slack_of()
        self.place = "slack:C1"

    def connect(self, handler: object) -> None:
        pass


def card(**changes: Any) -> Card:
    return Card(**{"title": "t", "state": "waits", "status": "s", "pending_id": "p", "mark": "m", **changes})


def test_the_sdk_talks_to_the_fake_and_errors_are_told_apart() -> None:
    with FakeSlack() as slack:
        channel = slack.channel
        ref = channel.post("C0000000001", card(), key="k")
        [(method, arguments)] = slack.calls
        assert method == "chat.postMessage" and arguments["unfurl_links"] is False and arguments["parse"] == "none"
        assert arguments["metadata"]["event_payload"] == {"pending_id": "p", "key": "k"}
        slack.fail("limited")
        with pytest.raises(RateLimited) as limited:
            channel.update(ref, card())
        assert limited.value.seconds == 30
        for trouble in ("down", "dropped"):
            slack.fail(trouble)  # type: ignore[arg-type]
            with pytest.raises(ChannelError) as error:
                channel.update(ref, card())
            assert type(error.value) is ChannelError
        slack.fail("gone")
        with pytest.raises(ChannelRefused) as refused:
            channel.update(ref, card())
        assert refused.value.gone
        with pytest.raises(ChannelRefused, match="channel_not_found") as refused:
            channel.post("C0000000002", card(), key="k")
        assert not refused.value.gone
        # One call each: the SDK tries nothing again that the outbox does not know of.
        assert len(slack.calls) == 6


def test_a_wrong_token_is_refused_and_not_quoted() -> None:
    with FakeSlack() as slack:
        wrong = slack_of(bot_token="xoxb-wrong", base_url=slack.base_url)
        with pytest.raises(ChannelRefused, match="invalid_auth") as error:
            wrong.post("C0000000001", card(), key="k")
        assert "xoxb" not in str(error.value) and "xoxb" not in repr(wrong) and SECRET not in repr(wrong)


def test_a_place_may_be_a_thread() -> None:
    with FakeSlack() as slack:
        slack.channel.post("C0000000001/1700000000.000100", card(), key="k")
        assert slack.calls[0][1]["thread_ts"] == "1700000000.000100"


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=400))
def test_no_text_is_acted_on(text: str) -> None:
    from phronomy.chat.slack.blocks import message_of
    from phronomy.testing.chat.slack import _acted_on, _check_message

    shown = card(title=text[:100] or "t", status=text, lines=(Line(name=text[:80] or "n", value=text),), notes=(text,))
    message = message_of(shown)
    _check_message(message)
    assert [*_acted_on({**message, "parse": "none"})] == []


def test_a_request_that_is_long_in_every_way_fits_into_a_message() -> None:
    clock = Clock()
    with FakeSlack(clock) as slack:
        store = with_people(MemoryStore(clock=clock), slack)
        approvals = approvals_of(store, slack)
        names = [f"parameter_{number}_{'x' * 60}" for number in range(60)]
        space: dict[str, Any] = {}
        exec(f"def many({', '.join(f'{name}: str' for name in names)}) -> str: ...", space)
        gate = Approval(title="&" * 140, context="<" * 5_000, by=[f"role-{'y' * 50}-{n}" for n in range(40)])
        many = tool(requires_approval=gate)(space["many"])
        given = call("many", dict.fromkeys(names, "&" * 290))
        model = ScriptedModel([given, "Done."])
        agent = Agent(name="a" * 200, model=model, tools=[many], store=store, announcements=[approvals])
        agent.invoke("go", requester="r" * 500)
        emptied(approvals, clock)
        [shown] = slack.messages()
        assert "more: " in shown.text and "characters, SHA-256 " in shown.text and len(shown.text) < 8_000
        assert slack.pings() == []


def test_a_trigger_lives_three_seconds_and_works_once() -> None:
    clock = Clock()
    with FakeSlack(clock) as slack:
        store = with_people(MemoryStore(clock=clock), slack)
        approvals = approvals_of(store, slack)
        asked(approvals, store)
        emptied(approvals, clock)
        [shown] = slack.messages()
        sent = slack.sign(shown, "reason", RITA)
        assert slack.deliver(sent).status == 200 and slack.form(RITA) == {"reason": ""}
        slack.deliver(sent)
        assert "Press the button again" in slack.told(RITA)[0]
        late = slack.sign(shown, "reason", RITA)
        clock.move(4)
        slack.deliver(late)
        assert len(slack.told(RITA)) == 2


def test_a_form_that_comes_too_late_says_who_was_first() -> None:
    clock = Clock()
    with FakeSlack(clock) as slack:
        store = with_people(MemoryStore(clock=clock), slack)
        approvals = approvals_of(store, slack)
        item = asked(approvals, store)
        emptied(approvals, clock)
        [shown] = slack.messages()
        slack.click(shown, "reason", RITA)
        slack.click(shown, "approve", "U0000000OTTO")
        assert slack.submit(RITA, {"reason": "no"}) == {}
        assert "Somebody was first: approved by Otto" in slack.told(RITA)[0]
        assert len(list(store.audit(pending_id=item.id))) == 1


def test_the_manifest_asks_for_no_more_than_it_needs() -> None:
    found = manifest(url="https://example.org/chat/slack", name="Desk")
    assert found["oauth_config"] == {"scopes": {"bot": ["chat:write"]}}
    assert found["settings"]["interactivity"] == {  # type: ignore[index,call-overload]
        "is_enabled": True,
        "request_url": "https://example.org/chat/slack",
    }


@pytest.mark.parametrize("wrong", [{"signing_secret": ""}, {"bot_token": ""}, {"name": "Slack!"}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        slack_of(**wrong)
