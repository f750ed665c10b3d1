"""Discord as a channel: signatures, what it sends, modals, limits, and how it shows what models have written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from chat_scenes import OTTO, RITA, approvals_of, asked, emptied, with_people
from hypothesis import given, settings
from hypothesis import strategies as st

from phronomy import Agent, Approval, ConfigurationError, MemoryStore, tool
from phronomy.chat import (
    Button,
    Card,
    ChannelError,
    ChannelRefused,
    Click,
    HttpRequest,
    Line,
    RateLimited,
    Refused,
    Response,
    Said,
    Submitted,
)
from phronomy.chat.discord import Discord
from phronomy.chat.discord.markdown import escape, parts_of, size, unescape
from phronomy.chat.discord.messages import message_of, reply_of
from phronomy.chat.discord.signature import public_key, verify
from phronomy.foundation.suspicious_letters import escaped
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import Clock, FakeDiscord
from phronomy.testing.chat.discord import BOT_TOKEN, PUBLIC_KEY
from phronomy.testing.chat.discord.api import CHANNEL
from phronomy.testing.chat.discord.limits import Wrong, check_message
from phronomy.testing.chat.discord.markup import acted_on, rendered, seen

SIGNED = (
    "1695961a47c91a1ec033b819b7e87e3dbc583dd0cee6d1fd0216f58ac87b6228"
    "ae531ddbf91fb7bc28d7edf7f08604da16f54624f38a6bc0614e4dc13cd47f0f"
)
USER, DATA = "400000000000000001", "a" * 45


def discord_of(**options: Any) -> Discord:
    return Discord(**{"public_key": PUBLIC_KEY, "bot_token": BOT_TOKEN, **options})


@pytest.fixture
def fake() -> Iterator[FakeDiscord]:
    with FakeDiscord(Clock()) as made:
        yield made


# What comes in


def test_the_signature_of_a_fixed_key_is_right() -> None:
    """The first key of RFC 8032, section 7.1."""
    key = public_key(PUBLIC_KEY)
    headers = {"x-signature-timestamp": "1700000000", "x-signature-ed25519": SIGNED}
    for now in (1_700_000_000, 1_700_000_300, 1_699_999_700):
        verify(key, headers, b'{"type":1}', now=now)
    for now in (1_700_000_301, 1_699_999_699):
        with pytest.raises(Refused, match="too old") as refused:
            verify(key, headers, b'{"type":1}', now=now)
        assert refused.value.status == 401
    other = public_key("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    changed = {**headers, "x-signature-timestamp": "1700000001"}
    for wrong, given_headers, body in (
        (key, headers, b'{"type":1} '),
        (other, headers, b'{"type":1}'),
        (key, changed, b'{"type":1}'),
        (key, {**headers, "x-signature-ed25519": SIGNED[:-2]}, b'{"type":1}'),
        (key, {}, b'{"type":1}'),
    ):
        with pytest.raises(Refused, match="no signature") as refused:
            verify(wrong, given_headers, body, now=1_700_000_000)
        assert refused.value.status == 401


def test_discord_accepts_the_address_and_wrong_signatures_get_401(fake: FakeDiscord) -> None:
    approvals_of(MemoryStore(clock=fake.clock), fake)
    assert fake.is_accepted()


def received(payload: object, **options: Any) -> Any:
    """What a signed payload is taken for."""
    with FakeDiscord() as fake:
        sent = fake.signed(json.dumps(payload).encode())
    headers = {name.lower(): value for name, value in sent.headers.items()}
    request = HttpRequest(method="POST", path="/discord", headers=headers, body=sent.body)
    return discord_of(**options).receive(request, now=fake.clock.now)


def click(**changes: Any) -> dict[str, Any]:
    return {
        "type": 3,
        "id": "500000000000000001",
        "token": "t",
        "channel_id": CHANNEL,
        "member": {"user": {"id": USER, "username": "not-this"}, "nick": "nor this"},
        "message": {"id": "600000000000000001", "flags": 0, "embeds": []},
        "data": {"custom_id": f"phronomy:{DATA}", "component_type": 2},
        **changes,
    }


def form(*components: Any, **changes: Any) -> dict[str, Any]:
    data = {"custom_id": f"phronomy:{DATA}/1/2", "components": [*components]}
    return click(**{"type": 5, "data": data, **changes})


def test_a_person_is_known_by_their_id_in_a_server_and_in_a_direct_message() -> None:
    found = received(click())
    assert isinstance(found, Click) and (found.alias, found.data) == (f"discord:{USER}", DATA)
    assert (found.ref, found.delivery) == (f"{CHANNEL}/600000000000000001", "500000000000000001")
    direct = click(user={"id": "7"})
    del direct["member"]
    assert received(direct).alias == "discord:7"
    assert received(click(), name="discord-eu").alias == f"discord-eu:{USER}"


def test_the_fields_of_a_form_come_in_labels_or_in_rows() -> None:
    label = {"type": 18, "component": {"type": 4, "custom_id": "reason", "value": "no"}}
    row = {"type": 1, "components": [{"type": 4, "custom_id": "reason", "value": "no"}]}
    choice = {"type": 18, "component": {"type": 3, "custom_id": "fast", "values": ["true"]}}
    nothing = {"type": 18, "component": {"type": 3, "custom_id": "slow", "values": []}}
    for part in (label, row):
        found = received(form({"type": 10, "id": 1}, part, choice, nothing))
        assert isinstance(found, Submitted) and found.ref == "1/2"
        assert found.values == {"reason": "no", "fast": "true", "slow": ""}


@pytest.mark.parametrize(
    ("payload", "answer"),
    [
        ({"type": 1}, {"type": 1}),
        ({"type": 4, "data": {}}, {"type": 8, "data": {"choices": []}}),
        (click(data={"custom_id": "other"}), {"type": 6}),
        (click(type=5, data={"custom_id": "other", "components": []}), {"type": 6}),
    ],
)
def test_what_is_nothing_for_us_is_answered(payload: object, answer: object) -> None:
    found = received(payload)
    assert isinstance(found, Response) and json.loads(found.body) == answer
    assert found.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "payload",
    [
        {},
        [],
        7,
        "x",
        {"type": 6},
        {"type": True, "data": 7},
        {"type": 3},
        click(member=None),
        click(member={"user": {"id": "<@1>"}}),
        click(member={"user": {"id": 7}}),
        click(id=None),
        click(data={"custom_id": 7}),
        click(data={"custom_id": f"phronomy:{DATA}/../../x"}),
        click(message=None),
        form("x"),
        form(7),
        form({"component": {}}),
        form({"type": 1, "components": 7}),
        click(type=2, data={"options": [{"name": "text", "type": 3, "value": "x"}]}, channel_id="x"),
    ],
)
def test_what_makes_no_sense_is_refused(payload: object) -> None:
    with pytest.raises(Refused) as refused:
        received(payload)
    assert refused.value.status == 400


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "user", "id", "member", "data", "custom_id", "components", "component", "values"])
            | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
FUZZED = FakeDiscord(Clock())
FUZZED.close()


@settings(max_examples=300, deadline=None)
@given(
    body=st.binary(max_size=200)
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.builds(
        lambda changes, kind: json.dumps(click(type=kind, **changes)).encode(),
        st.dictionaries(st.sampled_from(["member", "user", "data", "message", "channel", "channel_id"]), json_values),
        st.integers(0, 6),
    )
    | st.builds(
        lambda parts, embeds, kind: json.dumps(
            click(
                type=kind,
                data={"custom_id": f"phronomy:{DATA}", "components": parts, "options": parts},
                message={"id": "1", "flags": 64, "embeds": embeds},
            )
        ).encode(),
        json_values,
        json_values | st.just([{"title": "What you wrote", "description": "{"}]),
        st.integers(2, 5),
    ),
    sealed=st.booleans(),
    headers=st.dictionaries(st.sampled_from(["X-Signature-Ed25519", "X-Signature-Timestamp"]), st.text(max_size=130)),
)
def test_any_bytes_get_an_answer_and_never_a_500(body: bytes, sealed: bool, headers: dict[str, str]) -> None:
    store = MemoryStore(clock=FUZZED.clock)
    sent = FUZZED.signed(body, **({} if sealed else {"seed": "01" * 32}))
    response = approvals_of(store, FUZZED).handle("POST", "/discord", {**sent.headers, **headers}, body)
    assert response.status < 500
    if not sealed:
        assert response.status == 401


@pytest.mark.parametrize(
    "wrong",
    [
        {"public_key": ""},
        {"public_key": "x" * 64},
        {"public_key": PUBLIC_KEY[:-1]},
        {"bot_token": ""},
        {"bot_token": "a\nb"},
        {"bot_token": "ü"},
        {"name": "Discord!"},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as error:
        discord_of(**wrong)
    assert BOT_TOKEN not in str(error.value)


# What is shown


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=200) | st.text(alphabet="\\*_~`|<>[]()#@:.+-! \n1adw/", max_size=60))
def test_escaped_text_is_shown_as_it_is_and_does_nothing(text: str) -> None:
    found = escape(text)
    assert unescape(found) == text and rendered(found) == text
    assert [*acted_on({"content": found, "allowed_mentions": {"parse": []}})] == []


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=300) | st.text(alphabet="*_ \n\U0001f600ab", max_size=300), most=st.integers(8, 60))
def test_a_long_text_is_split_and_nothing_is_lost(text: str, most: int) -> None:
    parts = [*parts_of(text, most)]
    assert all(0 < size(part) <= most for part in parts)
    # White space alone is cut, where a part begins and ends.
    assert "".join("".join(map(rendered, parts)).split()) == "".join(text.split())


def card(**changes: Any) -> Card:
    return Card(**{"title": "t", "state": "waits", "status": "s", "pending_id": "p", "mark": "m", **changes})


BUTTONS = tuple(
    Button(action=action, label=action, data=letter + "x" * 44)
    for action, letter in (
        ("approve", "a"),
        ("edit", "e"),
        ("respond", "p"),
        ("reject", "r"),
        ("reason", "n"),
        ("skip", "s"),
    )
)  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=400) | st.text(alphabet="*[]<@>`_|-# ", min_size=1, max_size=3_000))
def test_no_text_is_acted_on_and_every_message_fits(text: str) -> None:
    text = escaped(text)  # as it is in every card
    lines = tuple(Line(name=text[:80] or "n", value=text) for _ in range(8))
    shown = card(
        title=text or "t", status=text, lines=lines, notes=(text, text), buttons=BUTTONS, link="https://i.example"
    )
    message = message_of(shown)
    check_message(message)
    assert [*acted_on(message)] == []
    assert len([each for row in message["components"] for each in row["components"]]) == 7  # type: ignore[union-attr,index,call-overload,misc]
    reply = reply_of(shown, "1/2", "Now")
    check_message(reply)
    assert [*acted_on(reply)] == []


@pytest.mark.parametrize("link", ["http://localhost:8000/requests/1", "https://i.example/" + "x" * 500])
def test_an_address_that_is_no_button_is_shown(link: str) -> None:
    message = message_of(card(link=link, buttons=BUTTONS))
    check_message(message)
    assert f"Inbox: {link}" in seen(message) and "url" not in json.dumps(message["components"])


def test_a_request_that_is_long_in_every_way_fits_into_a_message(fake: FakeDiscord) -> None:
    store = with_people(MemoryStore(clock=fake.clock), fake)
    approvals = approvals_of(store, fake)
    names = [f"parameter_{number}_{'x' * 60}" for number in range(60)]
    space: dict[str, Any] = {}
    exec(f"def many({', '.join(f'{name}: str' for name in names)}) -> str: ...", space)
    gate = Approval(title="&" * 140, context="<" * 5_000, by=[f"role-{'y' * 50}-{n}" for n in range(40)])
    many = tool(requires_approval=gate)(space["many"])
    model = ScriptedModel([call("many", dict.fromkeys(names, "*" * 290)), "Done."])
    agent = Agent(name="a" * 200, model=model, tools=[many], store=store, announcements=[approvals])
    agent.invoke("go", requester="r" * 500)
    emptied(approvals, fake.clock)
    [shown] = fake.messages()
    assert "more do not fit into a message of Discord, see the inbox" in shown.text
    assert "Asked by" in shown.text and "digest " in shown.text and shown.link is not None
    assert {"respond", "reject", "reason"} == shown.buttons.keys() and fake.pings() == []


# What is sent


def test_errors_are_told_apart_and_quote_nothing(fake: FakeDiscord) -> None:
    channel = fake.channel
    ref = channel.post(CHANNEL, card(), key="k")
    [(method, path, body)] = fake.calls
    assert (method, path) == ("POST", f"/channels/{CHANNEL}/messages")
    assert body["allowed_mentions"] == {"parse": []} and body["enforce_nonce"] and len(body["nonce"]) <= 25
    troubles: list[tuple[Literal["down", "dropped"], str]] = [
        ("down", "status 503"),
        ("dropped", "RemoteProtocolError"),
    ]
    for trouble, said in troubles:
        fake.fail(trouble)
        with pytest.raises(ChannelError, match=said) as error:
            channel.update(ref, card())
        assert type(error.value) is ChannelError
    fake.fail("gone")
    with pytest.raises(ChannelRefused, match="code 10008") as refused:
        channel.update(ref, card())
    assert refused.value.gone
    with pytest.raises(ChannelRefused, match="code 10003"):
        channel.post("100000000000000009", card(), key="k")
    fake.fail("refused")
    with pytest.raises(ChannelRefused, match="code 50001") as refused:
        channel.update(ref, card())
    assert not refused.value.gone
    for place in ("", "../1", "general", "1/2"):
        with pytest.raises(ChannelRefused, match="no id of Discord"):
            channel.post(place, card(), key="k")
    wrong = discord_of(bot_token="another", base_url=fake.base_url)
    with pytest.raises(ChannelRefused, match="is this the token of the bot") as refused:
        wrong.post(CHANNEL, card(title="secret"), key="k")
    assert "another" not in str(refused.value) + repr(wrong) and "secret" not in str(refused.value)
    with pytest.raises(ChannelError, match="ConnectError"):
        discord_of(base_url="http://127.0.0.1:9").post(CHANNEL, card(), key="k")


def test_times_to_wait_are_heeded_and_nothing_is_sent_meanwhile(fake: FakeDiscord) -> None:
    channel = fake.channel
    ref = channel.post(CHANNEL, card(), key="k")
    fake.fail("limited")
    with pytest.raises(RateLimited) as limited:
        channel.update(ref, card())
    assert limited.value.seconds == 30
    calls = len(fake.calls)
    fake.clock.move(29.5)
    with pytest.raises(RateLimited) as limited:
        channel.update(ref, card())
    assert limited.value.seconds == 0.5 and len(fake.calls) == calls
    channel.post(CHANNEL, card(), key="other")  # another bucket
    fake.clock.move(0.5)
    channel.update(ref, card())


@pytest.mark.parametrize(
    ("answer", "seconds", "said"),
    [
        ((429, {"Retry-After": "7"}, "blocked by a proxy"), 7.0, "asks to wait"),
        ((429, {}, {"retry_after": 0.25, "global": False}), 0.25, "asks to wait"),
        ((429, {}, {"retry_after": float("nan")}), 1.0, "asks to wait"),
        ((429, {}, {"retry_after": 10.0**12}), 86_400.0, "asks to wait"),
        ((429, {}, [7]), 1.0, "asks to wait"),
        ((200, {}, "no JSON"), None, "without JSON"),
        ((200, {}, {"id": "../1"}), None, "no id of a message"),
        ((200, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset-After": "soon"}, {}), None, "no id of a message"),
        ((400, {}, {"code": 50035, "message": "t is secret"}), None, "does not take such a message"),
    ],
)
def test_answers_of_any_shape_are_understood(
    fake: FakeDiscord, monkeypatch: pytest.MonkeyPatch, answer: Any, seconds: float | None, said: str
) -> None:
    monkeypatch.setattr(fake.api, "answer", lambda *request: answer)
    with pytest.raises(ChannelError, match=said) as error:
        fake.channel.post(CHANNEL, card(), key="k")
    assert "secret" not in str(error.value) and getattr(error.value, "seconds", None) == seconds


def test_a_bucket_that_is_used_up_is_left_alone() -> None:
    with FakeDiscord(Clock(), rates=True) as fake:
        channel = fake.channel
        for number in range(5):
            channel.post(CHANNEL, card(), key=f"{number}")
        with pytest.raises(RateLimited) as limited:
            channel.post(CHANNEL, card(), key="5")
        assert limited.value.seconds == 5 and len(fake.calls) == 5
        # Another process does not know, and is told.
        other = discord_of(base_url=fake.base_url, clock=fake.clock)
        with pytest.raises(RateLimited) as limited:
            other.post(CHANNEL, card(), key="5")
        assert limited.value.seconds == 5 and len(fake.calls) == 6
        fake.clock.move(5)
        assert channel.post(CHANNEL, card(), key="5")


def test_the_limit_of_the_whole_bot_holds_everything() -> None:
    with FakeDiscord(Clock(), rates=True) as fake:
        fake.api._all = [fake.clock.now] * 50
        channel = fake.channel
        for _ in range(2):
            with pytest.raises(RateLimited) as limited:
                channel.post(CHANNEL, card(), key="k")
            assert limited.value.seconds == 1
        with pytest.raises(RateLimited):
            channel.update(f"{CHANNEL}/1", card())
        assert len(fake.calls) == 1
        fake.clock.move(1)
        assert channel.post(CHANNEL, card(), key="k")


def test_a_lost_answer_posts_once(fake: FakeDiscord) -> None:
    """Discord knows the post by its nonce."""
    fake.fail("dropped")
    with pytest.raises(ChannelError):
        fake.channel.post(CHANNEL, card(), key="k")
    ref = fake.channel.post(CHANNEL, card(), key="k")
    assert [shown.ref for shown in fake.messages()] == [ref]
    assert fake.channel.post(CHANNEL, card(), key="other") != ref


def test_when_discord_takes_no_more_edits_of_old_messages_a_reply_says_how_it_stands() -> None:
    clock = Clock()
    with FakeDiscord(clock, old_edits=0) as fake:
        store = with_people(MemoryStore(clock=clock), fake)
        approvals = approvals_of(store, fake)
        asked(approvals, store)
        emptied(approvals, clock)
        clock.move(3_601)
        [shown] = fake.messages()
        fake.click(shown, "approve", RITA)
        emptied(approvals, clock)
        [reply] = fake.reminders()
        assert "Now: refund" in reply and "approved by Rita" in reply
        # The buttons of the message stay, and say who was first.
        assert fake.messages()[0].buttons
        fake.click(shown, "reject", OTTO)
        assert "Somebody was first" in fake.told(OTTO)[0]


def test_a_place_keeps_to_its_pace() -> None:
    channel = discord_of()
    assert channel.pace("post", "1") == channel.pace("remind", "1") != channel.pace("post", "2")
    assert channel.pace("update", "1") != channel.pace("post", "1")


# Commands


def said(fake: FakeDiscord, text: str = "Refund 7", **options: Any) -> Any:
    sent = fake.command(text, RITA, **options)
    headers = {name.lower(): value for name, value in sent.headers.items()}
    request = HttpRequest(method="POST", path="/discord", headers=headers, body=sent.body)
    return fake.channel.receive(request, now=fake.clock.now)


@pytest.mark.parametrize(
    ("channel_type", "is_one"), [(0, False), (2, False), (1, True), (10, True), (11, True), (12, True)]
)
def test_a_command_is_a_message_to_the_bot(fake: FakeDiscord, channel_type: int, is_one: bool) -> None:
    """In a thread and in a direct message, all commands are one conversation; elsewhere each begins one."""
    place = fake.open(channel_type)
    first, second = said(fake, channel=place), said(fake, channel=place)
    assert isinstance(first, Said) and (first.alias, first.text, first.to) == (fake.alias(RITA), "Refund 7", place)
    assert (first.thread == second.thread == place) is is_one and first.delivery != second.delivery
    assert is_one or first.thread == f"{place}/{first.delivery}"


def test_a_place_may_be_a_thread(fake: FakeDiscord) -> None:
    thread = fake.open()
    ref = fake.channel.post(thread, card(), key="k")
    fake.channel.say(thread, "*" * fake.channel.say_limit, key="k")
    first, _ = fake.conversation(thread)
    assert first.ref == ref and fake.messages() == []


@pytest.mark.parametrize(
    "data",
    [
        {"name": "other", "type": 1},
        {"name": "ask", "type": 1, "options": [{"name": "other", "type": 3, "value": "x"}]},
        {"name": "About", "type": 2, "options": [{"name": "text", "type": 3, "value": "x"}]},
    ],
)
def test_another_command_is_not_known(data: object) -> None:
    found = received(click(type=2, data=data))
    assert isinstance(found, Response)
    answer = json.loads(found.body)
    assert answer["type"] == 4 and answer["data"]["flags"] == 64


def test_a_command_is_answered_with_what_was_asked_for(fake: FakeDiscord) -> None:
    approvals_of(MemoryStore(clock=fake.clock), fake)
    hostile = "*pay* @everyone\n<@1> [x](https://evil.example)"
    fake.deliver(fake.command(hostile, RITA))
    assert fake.quotes(CHANNEL) == [hostile] and fake.pings() == []
    fake.deliver(fake.command("*" * 4_000, RITA))
    assert fake.quotes(CHANNEL)[1] == "4,000 characters"
    found = fake.channel.acknowledge(said(fake), "You may not.")
    assert json.loads(found.body)["data"]["flags"] == 64


def test_a_long_text_is_said_in_parts_and_each_once(fake: FakeDiscord) -> None:
    text = "\n".join(f"line {number}: *{'x' * 90}* @everyone https://evil.example" for number in range(100))
    fake.fail("dropped")
    with pytest.raises(ChannelError):
        fake.channel.say(CHANNEL, text, key="k")
    first = fake.channel.say(CHANNEL, text, key="k")
    shown = fake.messages()
    assert shown[0].ref == first and len(shown) > 5 and fake.pings() == []
    assert "\n".join(each.text for each in shown) == text
    # Another process says it again, and Discord knows it.
    again = discord_of(base_url=fake.base_url, clock=fake.clock)
    assert again.say(CHANNEL, text, key="k") == first and len(fake.messages()) == len(shown)
    assert fake.channel.say(CHANNEL, " \n", key="other") and fake.messages()[-1].text == "(nothing)"


def test_what_is_said_goes_on_where_a_limit_has_stopped_it() -> None:
    with FakeDiscord(Clock(), rates=True) as fake:
        text = "\n".join("y" * 1_900 for _ in range(12))
        refs = []
        for _ in range(10):
            try:
                refs.append(fake.channel.say(CHANNEL, text, key="k"))
                break
            except RateLimited as limited:
                fake.clock.move(limited.seconds)
        assert refs == [fake.messages()[0].ref] and len(fake.messages()) == 12 == len(fake.calls)
        with pytest.raises(ChannelRefused):
            fake.channel.say("general", "x", key="k")


# The fake


def test_the_fake_refuses_what_discord_refuses() -> None:
    button = {"type": 2, "style": 1, "label": "b", "custom_id": "c"}
    row = {"type": 1, "components": [button]}
    for wrong in (
        {"content": "x" * 2_001},
        {"content": "\U0001f600" * 1_001},
        {"content": " "},
        {"content": "x", "nonce": "n" * 26},
        {"embeds": [{"description": "x" * 4_097}]},
        {"embeds": [{"description": "x" * 4_000}, {"description": "x" * 2_001}]},
        {"embeds": [{"title": "x" * 257}]},
        {"embeds": [{"description": "x"}] * 11},
        {"content": "x", "components": [row] * 6},
        {"content": "x", "components": [row, row]},
        {"content": "x", "components": [{"type": 1, "components": []}]},
        {"content": "x", "components": [{"type": 1, "components": [{**button, "label": "x" * 81}]}]},
        {"content": "x", "components": [{"type": 1, "components": [{**button, "custom_id": "x" * 101}]}]},
    ):
        with pytest.raises(Wrong):
            check_message(wrong)


def test_a_message_of_the_fake_is_seen_as_people_see_it() -> None:
    assert seen({"content": "**\\*a\\***", "embeds": [{"description": "-# small\n**b:** \\_"}]}) == "*a*\nsmall\nb: _"
