"""Telegram as a channel: the secret header, what it sends, prompts for replies, and how it shows what models have written."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from chat_scenes import OTTO, RITA, approvals_of, asked, emptied, with_people
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import loopback

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
from phronomy.chat.telegram import Telegram
from phronomy.chat.telegram.api import BotApi, BotRefused, _result
from phronomy.chat.telegram.markup import alert_of, defused, form_in, message_of, parts_of, size, takes_url
from phronomy.testing import ScriptedModel, call
from phronomy.testing.chat import Clock, FakeTelegram
from phronomy.testing.chat.telegram import SECRET, TOKEN
from phronomy.testing.chat.telegram.bot_server import BOT, GROUP
from phronomy.testing.chat.telegram.entities import CannotParse, read

USER = 5_000_000_007


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    with FakeTelegram(Clock()) as telegram:
        yield telegram


def telegram_of(**options: Any) -> Telegram:
    return Telegram(**{"bot_token": TOKEN, "secret_token": SECRET, "username": "refund_desk_bot", **options})


def received(update: object, *, secret: str = SECRET, **options: Any) -> Any:
    """What an update is taken for."""
    body = update if isinstance(update, bytes) else json.dumps(update).encode()
    headers = {"x-telegram-bot-api-secret-token": secret}
    request = HttpRequest(method="POST", path="/telegram", headers=headers, body=body)
    return telegram_of(**options).receive(request, now=1_800_000_000)


def click(**changes: Any) -> dict[str, Any]:
    query = {
        "id": "77",
        "from": {"id": USER, "is_bot": False, "first_name": "Rita"},
        "message": {"message_id": 5, "date": 1, "chat": {"id": GROUP, "type": "supergroup"}, "text": "t"},
        "data": "a" * 45,
    }
    return {"update_id": 9, "callback_query": {**query, **changes}}


def message(**changes: Any) -> dict[str, Any]:
    whole = {
        "message_id": 6,
        "date": 1,
        "chat": {"id": USER, "type": "private"},
        "from": {"id": USER, "is_bot": False},
        "text": "Hello",
    }
    return {"update_id": 9, "message": {**whole, **changes}}


GROUP_CHAT = {"id": GROUP, "type": "supergroup"}
PROMPT = "Reject: refund\nReply to this message with a text: Reason.\nForm reason: " + "n" * 45
MARKED = [{"type": "code", "offset": len(PROMPT) - 45, "length": 45}]


def prompt(**changes: Any) -> dict[str, Any]:
    return {"message_id": 5, "chat": GROUP_CHAT, "from": dict(BOT), "text": PROMPT, "entities": MARKED, **changes}


# What comes in


@pytest.mark.parametrize("secret", ["", "x", SECRET[:-1], SECRET + "x", SECRET.upper(), "ü", "\udcff"])
def test_without_the_secret_nothing_is_read(secret: str) -> None:
    with pytest.raises(Refused) as refused:
        received(click(), secret=secret)
    assert refused.value.status == 401


def test_without_a_secret_nothing_comes_over_http() -> None:
    for secret in ("", SECRET):
        with pytest.raises(Refused):
            received(click(), secret=secret, secret_token=None)


def test_the_proof_comes_before_the_body() -> None:
    with pytest.raises(Refused, match="not from Telegram"):
        received(b"\xff", secret="wrong")


def test_a_click_is_read() -> None:
    found = received(click())
    assert isinstance(found, Click)
    assert (found.alias, found.ref, found.delivery) == (f"telegram:{USER}", f"{GROUP}/5", "9")
    assert received(click(), name="tg-eu").alias == f"tg-eu:{USER}"
    # Telegram does not have this message any more, or it was sent by means of another chat.
    assert received(click(message={"message_id": 5, "date": 0, "chat": GROUP_CHAT})).ref == f"{GROUP}/5"
    assert received(click(message=None)).ref is None
    topic = {"message_id": 5, "chat": GROUP_CHAT, "message_thread_id": 42, "is_topic_message": True}
    assert received(click(message=topic)).ref == f"{GROUP}/5/42"
    assert received(click(message={**topic, "is_topic_message": False})).ref == f"{GROUP}/5"


@pytest.mark.parametrize(
    "update",
    [
        {"update_id": 9, "edited_message": {}},
        {"update_id": 9, "my_chat_member": {}},
        {"update_id": 9},
        click(data=None),
        message(**{"from": None}),
        message(**{"from": {"id": 1, "is_bot": True}}),
        message(text=None, sticker={}),
        message(chat=GROUP_CHAT),
        message(chat=GROUP_CHAT, text="@other", entities=[{"type": "mention", "offset": 0, "length": 6}]),
        message(chat=GROUP_CHAT, text="/start", entities=[{"type": "bot_command", "offset": 0, "length": 6}]),
    ],
)
def test_what_is_nothing_for_us_is_acknowledged(update: object) -> None:
    assert received(update) == Response()


@pytest.mark.parametrize(
    "update",
    [
        {},
        [],
        {"update_id": "9"},
        {"update_id": True},
        {"update_id": 9, "callback_query": None},
        {"update_id": 9, "message": []},
        click(**{"from": None}),
        click(**{"from": {"id": "7"}}),
        click(**{"from": {"id": 1.5}}),
        click(**{"from": {"id": 2**64}}),
        click(message={"message_id": 5}),
        click(message="m"),
        message(chat={}),
        message(entities=[{}], chat=GROUP_CHAT),
        message(entities=[{"type": "mention", "offset": "0", "length": 1}], chat=GROUP_CHAT),
        message(reply_to_message="m"),
        message(reply_to_message={"from": []}),
    ],
)
def test_what_makes_no_sense_is_refused(update: object) -> None:
    with pytest.raises(Refused) as refused:
        received(update)
    assert refused.value.status == 400


def test_a_message_to_the_bot_is_read() -> None:
    found = received(message())
    assert isinstance(found, Said)
    assert (found.alias, found.text, found.thread, found.to) == (f"telegram:{USER}", "Hello", str(USER), str(USER))
    mentioned = {"chat": GROUP_CHAT, "text": "\U0001f600 @Refund_Desk_Bot refund 7"}
    entities = [{"type": "mention", "offset": 3, "length": 16}]
    found = received(message(**mentioned, entities=entities))
    assert (found.to, found.text) == (str(GROUP), "\U0001f600  refund 7")
    assert received(message(**mentioned, entities=entities), username=None) == Response()
    asked_in = {"chat": GROUP_CHAT, "text": "/ask@refund_desk_bot", "message_thread_id": 42, "is_topic_message": True}
    found = received(message(**asked_in, entities=[{"type": "bot_command", "offset": 0, "length": 20}]))
    assert (found.thread, found.to, found.text) == (f"{GROUP}/42", f"{GROUP}/42", "/ask")
    # A reply to another message of the bot is written to it, too.
    assert isinstance(received(message(chat=GROUP_CHAT, reply_to_message=prompt(text="Done.", entities=[]))), Said)


def test_a_reply_to_a_prompt_of_our_own_bot_is_a_form() -> None:
    found = received(message(chat=GROUP_CHAT, text="too much", reply_to_message=prompt()))
    assert isinstance(found, Submitted)
    assert (found.data, found.values, found.ref) == ("n" * 45, {"reason": "too much"}, None)
    assert received(message(chat=GROUP_CHAT, text=None, reply_to_message=prompt())).values == {"reason": ""}


@pytest.mark.parametrize(
    "changes",
    [
        {"from": {**BOT, "id": 7000000002}},
        {"from": {"id": USER, "is_bot": False}},
        {"from": None},
        {"text": PROMPT + " "},
        {"text": PROMPT + "n"},
        {"entities": []},
        {"entities": [{**MARKED[0], "type": "pre"}]},
        {"entities": [{**MARKED[0], "offset": 0, "length": len(PROMPT)}]},
        {"entities": [{**MARKED[0], "offset": len(PROMPT) - 46}]},
    ],
)
def test_a_message_that_only_looks_like_a_prompt_is_none(changes: dict[str, Any]) -> None:
    """Of another bot, forwarded by a person, or a text of a model."""
    update = message(
        text="x", reply_to_message=prompt(**{name: value for name, value in changes.items() if value is not None})
    )
    if changes.get("from", 0) is None:
        del update["message"]["reply_to_message"]["from"]
    assert isinstance(received(update), Said)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["from", "id", "chat", "message", "text", "data", "entities", "reply_to_message", "is_bot"])
            | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(
    body=st.binary(max_size=200)
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.builds(
        lambda kind, value: json.dumps(kind(**value)).encode(),
        st.sampled_from([click, message]),
        st.dictionaries(
            st.sampled_from(["from", "message", "data", "chat", "text", "entities", "reply_to_message"]), json_values
        ),
    ),
    sealed=st.booleans(),
    header=st.text(max_size=40),
)
def test_any_bytes_get_an_answer_and_never_a_500(body: bytes, sealed: bool, header: str) -> None:
    class Only:
        """A platform that is its channel alone. Nobody listens at its address."""

        channel = telegram_of(base_url="http://127.0.0.1:9")
        place = f"telegram:{GROUP}"

        def connect(self, handler: object) -> None:
            pass

    approvals = approvals_of(MemoryStore(clock=Clock()), Only())  # type: ignore[arg-type]
    given = {"X-Telegram-Bot-Api-Secret-Token": SECRET if sealed else header}
    response = approvals.handle("POST", "/telegram", given, body)
    assert response.status < 500
    if not sealed and header != SECRET:
        assert response.status == 401


# What people do


def scene(fake: FakeTelegram, gate: Any = True, **options: Any) -> tuple[Any, MemoryStore, Any]:
    """A request that waits, and is posted."""
    store = MemoryStore(clock=fake.clock)
    with_people(store, fake)
    approvals = approvals_of(store, fake, **options)
    item = asked(approvals, store, gate=gate)
    emptied(approvals, fake.clock)
    return approvals, store, item


def test_a_click_is_answered_without_a_text_and_a_refusal_by_an_alert(fake: FakeTelegram) -> None:
    scene(fake)
    [shown] = fake.messages()
    fake.click(shown, "approve", RITA)
    fake.click(shown, "reject", OTTO)
    answers = [arguments for method, arguments in fake.calls if method == "answerCallbackQuery"]
    assert [each.keys() - {"callback_query_id"} for each in answers] == [set(), {"text", "show_alert"}]
    assert answers[1]["show_alert"] is True and "approved by Rita" in answers[1]["text"]
    assert fake.messages()[0].text.splitlines()[0] == "refund"


def test_a_click_that_telegram_has_given_up_on_counts(fake: FakeTelegram, caplog: pytest.LogCaptureFixture) -> None:
    """Its answer comes too late, and that is no failure."""
    _, store, item = scene(fake)
    sent = fake.sign(fake.messages()[0], "approve", RITA, old=True)
    fake.clock.move(60)
    assert fake.deliver(sent).status == 200 and store.request(item.id).status == "decided"
    assert fake.messages()[0].buttons == {} and caplog.records == []


def test_an_alert_that_cannot_be_shown_is_logged_and_the_message_is_edited(
    fake: FakeTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    scene(fake)
    fake.fail("down")
    fake.click(fake.messages()[0], "approve", RITA)
    assert "could not answer a click" in caplog.text and fake.messages()[0].buttons == {}


def test_a_handler_that_fails_gets_the_same_update_again(fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch) -> None:
    _, store, item = scene(fake)
    sent = fake.sign(fake.messages()[0], "approve", RITA)
    with monkeypatch.context() as patch:
        patch.setattr(store, "decide", lambda *args, **options: 1 / 0)
        assert fake.deliver(sent).status == 503
    assert fake.waiting == [json.loads(sent.body)["update_id"]]
    assert fake.redeliver() == [200] and fake.waiting == []
    assert [each.kind for each in store.audit(pending_id=item.id)] == ["approve"]


def test_a_prompt_leads_back_after_a_restart_and_from_anybody_who_may(fake: FakeTelegram) -> None:
    """Nothing is remembered: the reply brings the prompt back."""
    _, store, item = scene(fake)
    fake.click(fake.messages()[0], "reason", RITA)
    [asks] = [arguments for method, arguments in fake.calls if "force_reply" in (arguments.get("reply_markup") or {})]
    assert asks["reply_markup"]["selective"] is True and f"tg://user?id={fake.number(RITA)}" in asks["text"]
    key = fake._prompts[fake.number(RITA)]
    approvals_of(store, fake)
    fake.deliver(fake.message("stranger", "no", chat=GROUP, answers=key[1]))
    assert store.request(item.id).status == "pending"
    assert fake.told("stranger") == [] and "Press Start" in fake.reminders()[0]  # they have never written to the bot
    fake.deliver(fake.message(OTTO, "far too much", chat=GROUP, answers=key[1]))
    decision = store.request(item.id).decision
    assert decision is not None and (decision.reason, decision.by and decision.by.id) == ("far too much", "otto")
    assert fake.pings() == []


def test_an_answer_is_asked_for_in_a_prompt(fake: FakeTelegram) -> None:
    _, store, item = scene(fake, Approval(answers=["respond", "reject"]))
    assert {"respond", "reject", "reason"} == fake.messages()[0].buttons.keys()
    fake.click(fake.messages()[0], "respond", RITA)
    assert fake.submit(RITA, {"reply": "refunded by hand"}) == {}
    decision = store.request(item.id).decision
    assert decision is not None and (decision.kind, decision.content) == ("respond", "refunded by hand")


def test_what_is_told_about_a_reply_is_private(fake: FakeTelegram) -> None:
    """As a message in the chat with the bot, once they have pressed Start there."""
    _, _, _ = scene(fake)
    shown = fake.messages()[0]
    fake.deliver(fake.message(RITA, "/start"))
    fake.click(shown, "reason", RITA)
    fake.click(shown, "approve", OTTO)
    assert fake.submit(RITA, {"reply": "no"}) == {}
    [told] = fake.told(RITA)
    assert "Somebody was first: approved by Otto" in told and fake.reminders() == []


def test_a_reply_that_will_not_do_gets_a_new_prompt(fake: FakeTelegram, caplog: pytest.LogCaptureFixture) -> None:
    """Which asks the same person, says what is wrong, and leads to the same request."""
    _, store, item = scene(fake)
    fake.click(fake.messages()[0], "reason", RITA)
    wrong = fake.submit(RITA, {"reply": ""})["reply"]
    assert wrong.splitlines()[:2] == ["This was not recorded", "Say why."]
    asks = fake.calls[-1][1]
    assert asks["reply_markup"]["selective"] is True and f"tg://user?id={fake.number(RITA)}" in asks["text"]
    assert asks["reply_parameters"]["allow_sending_without_reply"] is True and fake.pings() == []
    assert fake.submit(RITA, {"reply": "too much"}) == {}
    decision = store.request(item.id).decision
    assert decision is not None and decision.reason == "too much" and caplog.records == []


def test_a_prompt_that_cannot_be_posted_is_logged(fake: FakeTelegram, caplog: pytest.LogCaptureFixture) -> None:
    _, store, item = scene(fake)
    shown = fake.messages()[0]
    fake.click(shown, "reason", RITA)
    fake.fail("down")
    fake.submit(RITA, {"reply": ""})
    assert "could not ask somebody once more" in caplog.text and store.request(item.id).status == "pending"
    fake.deliver(fake.message(RITA, "/start"))
    fake.click(shown, "reason", RITA)
    fake.click(shown, "approve", OTTO)
    fake.fail("down")
    fake.submit(RITA, {"reply": "no"})
    assert "could not tell somebody what came of a message" in caplog.text and fake.told(RITA) == []


def test_a_private_chat_is_a_place_too(fake: FakeTelegram) -> None:
    store = with_people(MemoryStore(clock=fake.clock), fake)
    approvals = approvals_of(store, fake, route=fake.alias(RITA))
    item = asked(approvals, store)
    assert approvals.outbox.run_once().sent == 0  # they have not pressed Start
    fake.deliver(fake.message(RITA, "/start"))
    fake.clock.move(301)
    emptied(approvals, fake.clock)
    [(key, found)] = fake._of_bot(fake.number(RITA))
    data = {
        each["callback_data"][0]: each["callback_data"]
        for row in found["reply_markup"]["inline_keyboard"]
        for each in row
        if "url" not in each
    }
    query = click(
        **{
            "from": {"id": fake.number(RITA)},
            "message": {"message_id": key[1], "chat": {"id": key[0]}},
            "data": data["n"],
        }
    )
    assert fake.deliver(fake.sent({"callback_query": query["callback_query"]})).status == 200
    [asks] = [arguments for _, arguments in fake.calls if "force_reply" in (arguments.get("reply_markup") or {})]
    assert asks["reply_markup"]["selective"] is False and "tg://user" not in asks["text"]
    assert fake.submit(RITA, {"reply": "no"}) == {} and store.request(item.id).status == "decided"


def test_a_topic_of_a_forum_is_a_place(fake: FakeTelegram) -> None:
    fake.topics.add(42)
    ref = fake.telegram.post(f"{GROUP}/42", card(), key="k")
    assert ref == f"{GROUP}/{ref.split('/')[1]}/42" and fake.calls[0][1]["message_thread_id"] == 42
    fake.telegram.remind(ref, card())
    assert fake.calls[1][1]["message_thread_id"] == 42 and len(fake.reminders()) == 1
    assert [each.ref for each in fake.conversation(f"{GROUP}/42")] == [ref] and fake.messages() == []
    fake.telegram.update(ref, card(title="new"))
    assert fake.conversation(f"{GROUP}/42")[0].edits == 1
    with pytest.raises(ChannelRefused, match="the topic is not there"):
        fake.telegram.post(f"{GROUP}/43", card(), key="k")


# What goes out


def card(**changes: Any) -> Card:
    return Card(**{"title": "t", "state": "waits", "status": "s", "pending_id": "p", "mark": "m", **changes})


def test_errors_are_told_apart(fake: FakeTelegram) -> None:
    channel = fake.telegram
    ref = channel.post(str(GROUP), card(), key="k")
    [(method, arguments)] = fake.calls
    assert method == "sendMessage" and arguments["link_preview_options"] == {"is_disabled": True}
    channel.update(ref, card())  # it says this already
    assert fake.messages()[0].edits == 0
    fake.fail("limited")
    with pytest.raises(RateLimited) as limited:
        channel.update(ref, card(title="new"))
    assert limited.value.seconds == 30
    for trouble in ("down", "dropped"):
        fake.fail(trouble)  # type: ignore[arg-type]
        with pytest.raises(ChannelError) as error:
            channel.update(ref, card(title=trouble))
        assert type(error.value) is ChannelError
    fake.fail("gone")
    with pytest.raises(ChannelRefused, match="the message is not there") as refused:
        channel.update(ref, card())
    assert refused.value.gone
    for to, why in (
        ("-100", "the chat is not there"),
        ("7", "has not pressed Start"),
        ("@group", "a place in Telegram"),
    ):
        with pytest.raises(ChannelRefused, match=why) as refused:
            channel.post(to, card(), key="k")
        assert not refused.value.gone
    fake._left = True
    with pytest.raises(ChannelRefused, match="removed from the chat"):
        channel.post(str(GROUP), card(), key="k")


@pytest.mark.parametrize("level", [logging.DEBUG])
def test_the_token_is_in_no_error_log_or_repr(fake: FakeTelegram, caplog: pytest.LogCaptureFixture, level: int) -> None:
    """The client of httpx2 would log the address of each request, in which the token stands."""
    caplog.set_level(level)
    wrong = TOKEN[:-3] + "xyz"
    channel = telegram_of(bot_token=wrong, base_url=fake.base_url)
    with pytest.raises(ChannelRefused, match="the token of the bot is wrong") as refused:
        channel.post(str(GROUP), card(), key="k")
    nobody = telegram_of(bot_token=wrong, base_url="http://127.0.0.1:9")
    with pytest.raises(ChannelError) as error:
        nobody.post(str(GROUP), card(), key="k")
    said = [str(refused.value), str(error.value), repr(channel), repr(channel.api), caplog.text]
    assert not [each for each in said if wrong[11:] in each or SECRET in each]
    assert error.value.__cause__ is None and error.value.__suppress_context__


def test_what_telegram_says_of_a_failure_is_not_quoted(fake: FakeTelegram) -> None:
    with pytest.raises(ChannelRefused) as refused:
        fake.telegram.api.call("sendMessage", chat_id=GROUP, text="<secret>", parse_mode="HTML")
    assert str(refused.value) == "sendMessage: the markup is wrong"


@pytest.mark.parametrize(
    ("status", "answer", "kind", "said"),
    [
        (200, b"<html>", ChannelError, "status 200"),
        (200, b"\xff", ChannelError, "status 200"),
        (200, b"[]", ChannelError, "status 200"),
        (200, b'{"ok": false}', ChannelRefused, "status 200"),
        (502, b'{"ok": false, "error_code": 502}', ChannelError, "status 502"),
        (404, b'{"ok": false, "description": "Not Found"}', ChannelRefused, "status 404"),
        (
            400,
            b'{"ok": false, "description": "Bad Request: group chat was upgraded to a supergroup chat",'
            b' "parameters": {"migrate_to_chat_id": -1001}}',
            ChannelRefused,
            "another id: route to telegram:-1001",
        ),
        (400, b'{"ok": false, "description": ["secret"]}', ChannelRefused, "status 400"),
    ],
)
def test_any_answer_of_telegram_is_understood(status: int, answer: bytes, kind: type, said: str) -> None:
    with pytest.raises(ChannelError, match=said) as error:
        _result("sendMessage", status, answer)
    assert type(error.value) in (kind, BotRefused) and issubclass(type(error.value), kind)


@pytest.mark.parametrize(
    ("parameters", "seconds"),
    [("{}", 1), ('{"retry_after": 7}', 7), ('{"retry_after": "7"}', 1), ('{"retry_after": 1e9}', 3_600), ("[]", 1)],
)
def test_telegram_says_how_long_to_wait(parameters: str, seconds: float) -> None:
    with pytest.raises(RateLimited) as limited:
        _result("sendMessage", 429, b'{"ok": false, "parameters": %s}' % parameters.encode())
    assert limited.value.seconds == seconds


def test_a_proxy_of_the_environment_is_used(fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, fake.base_url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    api = BotApi(TOKEN, "http://telegram.invalid")
    assert api.call("getMe")["username"] == "refund_desk_bot"
    api.close()


def test_what_is_sent_back_is_checked(fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake.telegram.api, "call", lambda method, **arguments: {"chat": {}})
    with pytest.raises(ChannelError, match="no message came back"):
        fake.telegram.post(str(GROUP), card(), key="k")
    with pytest.raises(ChannelError, match="no username"):
        fake.telegram.bot_username()
    with pytest.raises(ConfigurationError, match="anybody could send clicks"):
        telegram_of(secret_token=None).set_webhook("https://example.org/telegram")


def test_a_group_takes_twenty_messages_a_minute() -> None:
    clock = Clock()
    with FakeTelegram(clock, rates=True) as fake:
        for _ in range(20):
            fake.telegram.post(str(GROUP), card(), key="k")
        with pytest.raises(RateLimited) as limited:
            fake.telegram.post(str(GROUP), card(), key="k")
        assert limited.value.seconds == 60
        assert fake.telegram.pace("post", f"{GROUP}/42").seconds * 20 >= 60
        assert fake.telegram.pace("post", "7").seconds == 1
        lanes = {
            fake.telegram.pace(work, to).lane
            for work in ("post", "remind", "update")
            for to in (f"{GROUP}/42", f"{GROUP}", "7")
        }
        assert len(lanes) == 4


def test_thirty_requests_reach_a_group_without_one_refusal() -> None:
    clock = Clock()
    with FakeTelegram(clock, rates=True) as fake:
        store = with_people(MemoryStore(clock=clock), fake)
        approvals = approvals_of(store, fake, inbox_url=None)
        for order in range(30):
            asked(approvals, store, order)
        emptied(approvals, clock)
        assert len(fake.messages()) == 30 == sum(method == "sendMessage" for method, _ in fake.calls)


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(max_size=400)
    | st.lists(st.sampled_from(["@rita", "/pay", "evil.com", "<b>", "</pre>", "&lt;", " ", "\n", "#x", "$USD"])).map(
        "".join
    )
)
def test_no_text_is_acted_on(text: str) -> None:
    shown = card(
        title=text[:100] or "t", status=text or "s", lines=(Line(name=text[:80] or "n", value=text),), notes=(text, "n")
    )
    plain, entities = read(message_of(shown).html, is_html=True)
    assert {each["type"] for each in entities} <= {"code", "pre"} and size(plain) <= 4096
    for part in parts_of(text):
        said, entities = read(defused(part), is_html=True)
        assert said == part.strip() and {each["type"] for each in entities} <= {"code", "pre"}


@pytest.mark.parametrize(
    "live",
    [
        "@everyone",
        "(@rita)",
        "/start",
        "a/b",
        "http://x.y",
        "evil.com",
        "x@evil.com",
        "#tag",
        "$USD",
        "tg://resolve",
        "эvil.рф",
        "1.2.3.4",
    ],
)
def test_words_that_telegram_would_act_on_stand_in_code(live: str) -> None:
    assert defused(f"Pay {live} now: 3.50, then.") == f"Pay <code>{live}</code> now: 3.50, then."


def test_a_text_with_more_marks_than_telegram_takes_is_one_block() -> None:
    text = "@rita " * 200
    _, entities = read(defused(text), is_html=True)
    assert [each["type"] for each in entities] == ["pre"]


def test_a_long_text_is_said_in_several_messages(fake: FakeTelegram) -> None:
    text = "\n".join(f"line {number} @rita \U0001f600" for number in range(600))
    ref = fake.telegram.say(str(GROUP), text, key="k")
    shown = fake.messages()
    assert "\n".join(each.text for each in shown) == text and ref == shown[0].ref and len(shown) > 2
    assert fake.pings() == []
    with pytest.raises(ChannelRefused):
        fake.telegram.say("7", "Hello", key="k")
    assert fake.telegram.say(str(GROUP), " \udcff", key="k")


@settings(max_examples=100, deadline=None)
@given(text=st.text(alphabet="a \n\U0001f600", max_size=12_000), most=st.integers())
def test_nothing_is_lost_between_messages(text: str, most: int) -> None:
    parts = list(parts_of(text))
    assert "".join(parts) == text and all(size(each) <= 4_096 for each in parts)


def test_a_request_that_is_long_in_every_way_keeps_its_buttons_and_says_what_is_missing(fake: FakeTelegram) -> None:
    store = with_people(MemoryStore(clock=fake.clock), fake)
    approvals = approvals_of(store, fake)
    names = [f"parameter_{number}_{'x' * 60}" for number in range(60)]
    space: dict[str, Any] = {}
    exec(f"def many({', '.join(f'{name}: str' for name in names)}) -> str: ...", space)
    gate = Approval(title="&" * 140, context="<\U0001f600" * 1_000, by=[f"role-{'y' * 50}-{n}" for n in range(40)])
    many = tool(requires_approval=gate)(space["many"])
    model = ScriptedModel([call("many", dict.fromkeys(names, "\U0001f600" * 145)), "Done."])
    agent = Agent(name="a" * 200, model=model, tools=[many], store=store, announcements=[approvals])
    item = agent.invoke("go", requester="r" * 500).checkpoint.pending[0]
    emptied(approvals, fake.clock)
    [shown] = fake.messages()
    assert {
        "respond",
        "reject",
        "reason",
    } == shown.buttons.keys() and shown.link == f"https://inbox.example/requests/{item.id}"
    assert "more, which do not fit into a message. Open the request in the inbox." in shown.text
    assert item.digest[:12] in shown.text and size(shown.text) <= 4_096 and fake.pings() == []


@settings(max_examples=100, deadline=None)
@given(
    lines=st.lists(st.text(max_size=300), max_size=60),
    notes=st.lists(st.text(max_size=500), max_size=5),
    status=st.text(max_size=3_000),
    link=st.none() | st.just("https://inbox.example/requests/1") | st.just("http://localhost:8000/" + "x" * 3_000),
)
def test_every_card_fits_with_its_buttons(lines: list[str], notes: list[str], status: str, link: str | None) -> None:
    buttons = (Button(action="approve", label="Approve", data="a" * 45),)
    made = card(
        lines=tuple(Line(name="n", value=each) for each in lines),
        notes=tuple(notes),
        status=status,
        link=link,
        buttons=buttons,
    )
    found = message_of(made)
    plain, _ = read(found.html, is_html=True)
    assert 0 < size(plain) <= 4_096 and "callback_data" in json.dumps(found.markup)


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("https://inbox.example/requests/1", True),
        ("http://127.0.0.1:8000/requests/1", True),
        ("http://localhost:8000/requests/1", False),
        ("ftp://inbox.example", False),
        ("https://[", False),
    ],
)
def test_an_address_that_telegram_takes_for_no_button_stands_in_the_text(
    url: str, taken: bool, fake: FakeTelegram
) -> None:
    assert takes_url(url) is taken
    fake.telegram.post(str(GROUP), card(link=url), key="k")
    [shown] = fake.messages()
    assert (shown.link == url) is taken and (url in shown.text) is not taken


def test_a_link_that_telegram_refuses_does_not_keep_the_buttons_away(
    fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever rule Telegram has about addresses."""
    monkeypatch.setattr("phronomy.chat.telegram.markup.takes_url", lambda url: True)
    buttons = (Button(action="approve", label="Approve", data="a" * 45),)
    shown = card(link="http://localhost/requests/1", buttons=buttons)
    ref = fake.telegram.post(str(GROUP), shown, key="k")
    fake.telegram.update(ref, dataclasses.replace(shown, status="new"))
    [found] = fake.messages()
    assert (
        "http://localhost/requests/1" in found.text and "new" in found.text and found.buttons == {"approve": "a" * 45}
    )


def test_a_long_notice_says_where_to_read_on() -> None:
    assert alert_of("x" * 200) == "x" * 200
    for text in ("x" * 201, "\U0001f600" * 150):
        found = alert_of(text)
        assert size(found) <= 200 and found.endswith("... More: see the request in the inbox, or `phronomy show`.")


def test_no_card_is_taken_for_a_prompt(fake: FakeTelegram) -> None:
    """Whatever a model writes: even the whole text of a prompt."""
    notes = (PROMPT, "Form reason: " + "n" * 45, "x\nForm reason: " + "n" * 45)
    for number in range(3):
        fake.telegram.post(str(GROUP), card(notes=notes[: number + 1], title=PROMPT[:140]), key="k")
    fake.telegram.say(str(GROUP), PROMPT, key="k")
    fake.telegram.say(str(GROUP), "x\nForm reason: " + "@" * 45, key="k")
    assert [form_in(found) for _, found in fake._of_bot(GROUP)] == [None] * 5


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("<b>", "find end tag"), ("</b>", "Unexpected end tag"), ("a < b", "Unsupported start tag"), ("<x>y</x>", '"x"')],
)
def test_the_fake_refuses_wrong_markup(text: str, wrong: str) -> None:
    with pytest.raises(CannotParse, match=wrong):
        read(text, is_html=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bot_token": ""},
        {"bot_token": "x:" + "y" * 35},
        {"bot_token": None},
        {"secret_token": "short"},
        {"secret_token": "ü" * 20},
        {"username": "@bot"},
        {"name": "Telegram!"},
        {"base_url": "api.telegram.org"},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as error:
        telegram_of(**wrong)
    assert not [
        value for name, value in wrong.items() if name.endswith("token") and value and value in str(error.value)
    ]


def test_a_mention_that_cannot_be_known_without_a_username_is_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    mention = [{"type": "mention", "offset": 0, "length": 16}]
    mentioned = message(chat=GROUP_CHAT, text="@refund_desk_bot my own words", entities=mention)
    assert isinstance(telegram_of().read(mentioned), Said) and caplog.text == ""
    nameless = telegram_of(username=None)
    for each in (mentioned, mentioned):
        assert nameless.read(each) == Response()
    assert caplog.text.count("give the channel its username") == 1 and "my own words" not in caplog.text


class Upgraded(BaseHTTPRequestHandler):
    """The Bot API after a group, -4242, has become the supergroup -1001234567890."""

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server: Any = self.server
        server.sent.append((self.path.rpartition("/")[2], sent["chat_id"]))
        moved = sent["chat_id"] == -4242
        answer: dict[str, Any] = {
            "ok": True,
            "result": {"chat": {"id": -1001234567890}, "message_id": len(server.sent)},
        }
        if moved:
            answer = {
                "ok": False,
                "error_code": 400,
                "description": "Bad Request: group chat was upgraded to a supergroup chat",
                "parameters": {"migrate_to_chat_id": -1001234567890},
            }
        data = json.dumps(answer).encode()
        self.send_response(400 if moved else 200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def test_a_group_that_has_become_a_supergroup_is_written_to_there(caplog: pytest.LogCaptureFixture) -> None:
    """The log says its id once, and what was routed to the old one, a reminder and an edit of an old message included, goes on."""
    with loopback(Upgraded) as (server, url):
        server.sent = []  # type: ignore[attr-defined]
        channel = Telegram(bot_token="1:" + "A" * 35, secret_token="s" * 32, base_url=url)
        assert channel.say("-4242", "Hello", key="k") == "-1001234567890/2"
        assert channel.say("-4242", "Hello again", key="k") == "-1001234567890/3"
        with pytest.raises(BotRefused, match="another id: route to telegram:-1001234567890") as refused:
            channel.api.call("editMessageText", seconds=5, chat_id=-4242, message_id=7, text="t")
        assert (refused.value.gone, refused.value.moved_to) == (True, -1001234567890)  # an old message is not there
    assert [chat for _, chat in server.sent] == [-4242, -1001234567890, -1001234567890, -4242]  # type: ignore[attr-defined]
    (line,) = [each.getMessage() for each in caplog.records if "supergroup" in each.getMessage()]
    assert (
        line == "telegram: the group -4242 is a supergroup now, and messages go there. Route to telegram:-1001234567890"
    )


@pytest.mark.parametrize("moved", ['"secret"', "true", "1.5", "null", "{}", "99999999999999999999999"])
def test_what_is_no_id_of_a_chat_is_not_quoted(moved: str) -> None:
    with pytest.raises(BotRefused) as refused:
        _result("sendMessage", 400, b'{"ok": false, "parameters": {"migrate_to_chat_id": %s}}' % moved.encode())
    assert refused.value.moved_to is None and str(refused.value) == "sendMessage: status 400"
