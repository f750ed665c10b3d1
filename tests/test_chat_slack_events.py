"""Messages to the bot in Slack: what is one, who has written it, and what the bot says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from chat_scenes import RITA, approvals_of, with_people
from hypothesis import given
from hypothesis import strategies as st

from phronomy import Agent, Approval, MemoryStore, tool
from phronomy.chat import ChatBot, HttpRequest, Refused, Response, Said
from phronomy.chat.slack import Slack, SocketMode, manifest
from phronomy.chat.slack.events import plain
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import Clock, FakeSlack
from phronomy.testing.chat.slack import APP_TOKEN, BOT, SECRET, TOKEN
from phronomy.testing.chat.slack_socket import FakeSocket

MENTION = {
    "token": "ZZZZZZWSxiZZZ2yIvs3peJ",
    "team_id": "T123ABC456",
    "api_app_id": "A123ABC456",
    "event": {
        "type": "app_mention",
        "user": "U123ABC456",
        "text": "What is the hour of the pearl, <@U0LAN0Z89>?",
        "ts": "1515449522.000016",
        "channel": "C123ABC456",
        "event_ts": "1515449522000016",
    },
    "type": "event_callback",
    "event_id": "Ev123ABC456",
    "event_time": 1515449522000016,
    "authed_users": ["U0LAN0Z89"],
}
"""The example of https://docs.slack.dev/reference/events/app_mention."""


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with FakeSlack(Clock()) as fake:
        yield fake


def channel(**options: Any) -> Slack:
    return Slack(signing_secret=SECRET, bot_token=TOKEN, **options)


def read(slack: FakeSlack, event: dict[str, Any], *, team: str | None = FakeSlack.team, **payload: Any) -> Any:
    """What the channel makes of an event."""
    body = json.dumps({**json.loads(slack.event(event).body), **payload}).encode()
    sent = slack.signed(body)
    headers = {name.lower(): value for name, value in sent.headers.items()} | {"content-type": "application/json"}
    request = HttpRequest(method="POST", path="/slack", headers=headers, body=body)
    return channel(team_id=team).receive(request, now=slack.clock.now)


def mention(**changes: Any) -> dict[str, Any]:
    event = {"type": "app_mention", "user": RITA, "team": FakeSlack.team, "channel": "C0000000001"}
    return {**event, "text": f"<@{BOT}> Hello", "ts": "1700000000.000100", **changes}


def test_the_example_of_the_documentation_is_a_message() -> None:
    said = channel().read_event(MENTION)
    assert isinstance(said, Said)
    assert (said.alias, said.delivery) == ("slack:U123ABC456", "Ev123ABC456")
    assert said.thread == "T123ABC456/C123ABC456/1515449522.000016" and said.to == "C123ABC456/1515449522.000016"
    assert said.text == "What is the hour of the pearl, @U0LAN0Z89?"
    assert "pearl" not in repr(said)


def test_a_thread_goes_on_where_it_began(slack: FakeSlack) -> None:
    said = read(slack, mention(thread_ts="1600000000.000001"))
    assert said.thread == f"{slack.team}/C0000000001/1600000000.000001" and said.text == "Hello"
    said = read(slack, mention(type="message", channel_type="im", channel="D0000000001", text="Hello"))
    assert said.thread == f"{slack.team}/D0000000001/1700000000.000100" and said.to == "D0000000001/1700000000.000100"


@pytest.mark.parametrize(
    "changes",
    [
        {"bot_id": "B1"},
        {"bot_profile": {"id": "B1"}},
        {"subtype": "message_changed"},
        {"subtype": "bot_message"},
        {"edited": {"user": RITA, "ts": "1700000001.000000"}},
        {"hidden": True},
        {"user": BOT},
        {"type": "message"},
        {"type": "message", "channel_type": "channel"},
        {"type": "reaction_added"},
    ],
    ids=str,
)
def test_what_is_no_message_to_the_bot_is_answered_and_does_nothing(slack: FakeSlack, changes: dict[str, Any]) -> None:
    assert read(slack, mention(**changes)) == Response()
    assert isinstance(read(slack, mention()), Said)


def test_an_event_without_a_user_does_nothing(slack: FakeSlack) -> None:
    event = mention()
    del event["user"]
    assert read(slack, event) == Response()


def test_people_of_other_workspaces_have_their_own_aliases(slack: FakeSlack) -> None:
    assert read(slack, mention()).alias == f"slack:{RITA}"
    assert read(slack, mention(team="T0000000002")).alias == f"slack:T0000000002:{RITA}"
    assert read(slack, mention(user_team="T0000000002")).alias == f"slack:T0000000002:{RITA}"
    assert read(slack, mention(team="T0000000002"), team=None).alias == f"slack:T0000000002:{RITA}"


def test_who_cannot_be_told_from_another_is_refused(slack: FakeSlack) -> None:
    event = mention()
    del event["team"]
    assert read(slack, event).alias == f"slack:{RITA}"  # nobody else is in the channel
    with pytest.raises(Refused):
        read(slack, event, is_ext_shared_channel=True)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"<@{BOT}> Hello", "Hello"),
        (f"Hello <@{BOT}>", "Hello"),
        ("a &lt; b &amp;&amp; b &gt; c", "a < b && b > c"),
        ("&amp;lt;", "&lt;"),
        ("<@U0000000OTTO> and <@U0000000OTTO|otto>", "@U0000000OTTO and @otto"),
        ("<#C0000000001|general> <#C0000000001> <!here> <!subteam^S1|@leads>", "#general #C0000000001 @here @leads"),
        ("<https://example.org/?a=1&amp;b=2|example.org>", "https://example.org/?a=1&b=2"),
        ("<mailto:ann@example.org|ann@example.org>", "ann@example.org"),
        ("", ""),
    ],
)
def test_the_text_is_what_was_written(text: str, wanted: str) -> None:
    assert plain(text, BOT) == wanted


def test_without_an_id_of_the_bot_the_first_mention_is_the_bot() -> None:
    assert plain("<@U0LAN0Z89> ask <@U0LAN0Z89>", None) == "ask @U0LAN0Z89"


@pytest.mark.parametrize(
    "broken",
    [{"team_id": "not an id"}, {"team_id": None}, {"authorizations": [1]}, {"authorizations": 7}],
    ids=str,
)
def test_events_that_make_no_sense_are_refused(slack: FakeSlack, broken: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        read(slack, mention(), **broken)


@pytest.mark.parametrize("event", [None, [], 7, "message"], ids=str)
def test_what_is_no_event_is_refused(event: object) -> None:
    with pytest.raises(Refused):
        channel().read_event({**MENTION, "event": event})


@pytest.mark.parametrize("changes", [{"channel": "x"}, {"ts": "now"}, {"user": 7}, {"thread_ts": "1/2"}], ids=str)
def test_ids_that_are_none_are_refused(slack: FakeSlack, changes: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        read(slack, mention(**changes))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "user", "event", "ts", "text", "channel", "authorizations", "team_id", "user_id"]),
            each,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@given(
    event=json_values, payload=st.dictionaries(st.sampled_from(["team_id", "authorizations", "event_id"]), json_values)
)
def test_any_event_is_read_or_refused(event: Any, payload: dict[str, Any]) -> None:
    for given_event in (event, {**mention(), **event} if isinstance(event, dict) else event):
        try:
            found = channel().read_event({**MENTION, "event": given_event, **payload})
        except Refused as error:
            assert error.status == 400
        else:
            assert isinstance(found, Said | Response)


# With a bot


def bot_of(slack: FakeSlack, store: MemoryStore, *replies: Any) -> tuple[ChatBot, Agent[Any, str]]:
    approvals = approvals_of(store, slack, route=None)
    agent = Agent(name="clerk", model=ScriptedModel(replies), store=store, announcements=[approvals])
    return ChatBot(approvals, agent), agent


def test_slack_tries_again_until_it_is_stored(slack: FakeSlack) -> None:
    store = with_people(MemoryStore(clock=slack.clock), slack)
    bot, agent = bot_of(slack, store, "Good morning.")
    handle = bot.approvals.handle
    answers = iter([503, 503])

    class Down:
        def handle(self, *args: Any) -> Response:
            status = next(answers, None)
            return Response(status=status) if status is not None else handle(*args)

    slack.connect(Down())
    written = slack.write(RITA, "Hello", alone=True)
    assert slack.persist(written) == 3
    slack.clock.move(1)
    agent.recover_all()
    bot.run_once()
    assert [each.text for each in slack.conversation(written.thread)] == ["Good morning."]
    assert slack.persist(written) == 1 and len(store.branches()) == 1


def test_what_is_said_is_plain_text_with_the_key_in_its_metadata(slack: FakeSlack) -> None:
    found = slack.channel
    assert isinstance(found, Slack)
    ref = found.say("C0000000001/1700000000.000100", "*<!here>* & \N{GRINNING FACE}\nnext", key="k1")
    assert ref.startswith("C0000000001/")
    [(method, sent)] = slack.calls
    assert method == "chat.postMessage" and sent["thread_ts"] == "1700000000.000100"
    assert sent["metadata"] == {"event_type": "phronomy_answer", "event_payload": {"key": "k1"}}
    assert sent["parse"] == "none" and not sent["unfurl_links"] and "&lt;!here&gt;" in sent["text"]
    assert slack.pings() == []
    assert [each.text for each in slack.conversation("C0000000001/1700000000.000100")] == [
        "*<!here>* & \N{GRINNING FACE}\nnext"
    ]
    longest = found.say_limit * "&"
    found.say("C0000000001", longest, key="k2")
    assert slack.messages()[-1].text == longest


def test_a_stranger_is_told_in_the_thread_in_which_they_wrote(slack: FakeSlack) -> None:
    store = with_people(MemoryStore(clock=slack.clock), slack)
    bot_of(slack, store)
    slack.deliver(slack.write("U0STRANGER1", "Hello", thread="C0000000001/1700000000.000100").sent)
    slack.deliver(slack.write("U0STRANGER1", "Hello").sent)
    told = [sent for method, sent in slack.calls if method == "chat.postEphemeral"]
    assert [each.get("thread_ts") for each in told] == ["1700000000.000100", None]
    assert len(slack.told("U0STRANGER1")) == 2 and store.branches() == []


def test_a_request_in_a_thread_is_edited_and_reminded_there(slack: FakeSlack) -> None:
    """Slack takes no reply to a reply: a reminder is one to the message that began the thread."""

    @tool(requires_approval=Approval(remind=[60]))
    def pay(amount: int) -> str:
        """Pay an amount."""
        return "paid"

    store = with_people(MemoryStore(clock=slack.clock), slack)
    approvals = approvals_of(store, slack, route=None)
    model = ScriptedModel.by_turn([call("pay", {"amount": 7}), "Done."])
    agent: Agent[Any, str] = Agent(name="clerk", model=model, tools=[pay], store=store, announcements=[approvals])
    bot = ChatBot(approvals, agent)
    written = slack.write(RITA, "Pay 7")
    slack.deliver(written.sent)
    for _ in range(2):
        slack.clock.move(61)
        agent.recover_all()
        approvals.outbox.run_once()
    shown, reminder = slack.conversation(written.thread)
    assert "Still waiting" in reminder.text and slack.reminders() == [reminder.text]
    slack.click(shown, "approve", RITA)
    assert slack.conversation(written.thread)[0].edits == 1  # by the one reference that there is
    [decided] = store.audit()
    assert decided.pending_id is not None
    [(_, post)] = [*approvals.posts.of(decided.pending_id)]
    assert post.refs == (f"{shown.ref}/{written.thread.partition('/')[2]}",)
    slack.clock.move(5)
    agent.recover_all()
    bot.run_once()
    assert slack.conversation(written.thread)[2].text == "Done."


def test_messages_come_over_the_socket(slack: FakeSlack) -> None:
    store = with_people(MemoryStore(clock=slack.clock), slack)
    bot, agent = bot_of(slack, store, "Good morning.")
    found = slack.channel
    assert isinstance(found, Slack)
    written = slack.write(RITA, "Hello")
    with FakeSocket(slack) as socket, SocketMode(bot.approvals, found, app_token=APP_TOKEN):
        assert socket.deliver(written.sent) == socket.deliver(written.sent) == {}
        assert socket.send({"type": "events_api", "payload": {"event": 7}}) == {}
    slack.clock.move(1)
    agent.recover_all()
    bot.run_once()
    assert [each.text for each in slack.conversation(written.thread)] == ["Good morning."]


def test_the_manifest_of_a_bot() -> None:
    with_bot: Any = manifest(url="https://example.org/chat/slack", bot=True)
    assert with_bot["oauth_config"]["scopes"]["bot"] == ["chat:write", "app_mentions:read", "im:history"]
    assert with_bot["settings"]["event_subscriptions"] == {
        "request_url": "https://example.org/chat/slack",
        "bot_events": ["app_mention", "message.im"],
    }
    assert with_bot["features"]["app_home"]["messages_tab_enabled"]
    over_socket: Any = manifest(bot=True)
    assert "request_url" not in over_socket["settings"]["event_subscriptions"]
    without: Any = manifest()
    assert "event_subscriptions" not in without["settings"] and "app_home" not in without["features"]
