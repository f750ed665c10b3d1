"""The fake Telegram is true: python-telegram-bot works with it as with Telegram, and reads what it sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from telegram import (
    Bot,
    ForceReply,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    LinkPreviewOptions,
    MaybeInaccessibleMessage,
    Message,
    ReplyParameters,
    Update,
)
from telegram.constants import MessageEntityType, ParseMode
from telegram.error import BadRequest, Conflict, Forbidden, InvalidToken, RetryAfter
from telegram.ext import Application, CallbackQueryHandler, ContextTypes, MessageHandler, filters

from phronomy.testing.chat import Clock, FakeTelegram, Shown
from phronomy.testing.chat.telegram import SECRET, TOKEN
from phronomy.testing.chat.telegram.bot_server import GROUP

T = TypeVar("T")


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    with FakeTelegram(Clock(), rates=True) as telegram:
        yield telegram


def with_bot(fake: FakeTelegram, work: Callable[[Bot], Awaitable[T]], token: str = TOKEN) -> T:
    """What a bot of the library comes to."""

    async def run() -> T:
        async with Bot(token, base_url=f"{fake.base_url}/bot") as bot:
            return await work(bot)

    return asyncio.run(run())


BUTTONS = InlineKeyboardMarkup(
    [[InlineKeyboardButton("Approve", callback_data="a" * 45), InlineKeyboardButton("Open", url="https://x.example/")]]
)


def test_it_posts_edits_and_replies_as_forms(fake: FakeTelegram) -> None:
    async def work(bot: Bot) -> None:
        assert (await bot.get_me()).username == "refund_desk_bot"
        sent = await bot.send_message(
            GROUP, "<b>pay</b> <code>@rita</code>", parse_mode=ParseMode.HTML, reply_markup=BUTTONS
        )
        assert (sent.text, sent.chat.id, sent.reply_markup) == ("pay @rita", GROUP, BUTTONS)
        assert [(each.type, sent.parse_entity(each)) for each in sent.entities] == [
            (MessageEntityType.BOLD, "pay"),
            (MessageEntityType.CODE, "@rita"),
        ]
        edited = await bot.edit_message_text("done", chat_id=GROUP, message_id=sent.message_id)
        assert isinstance(edited, Message) and edited.text == "done" and edited.reply_markup is None
        with pytest.raises(BadRequest, match="Message is not modified"):
            await bot.edit_message_text("done", chat_id=GROUP, message_id=sent.message_id)
        await bot.edit_message_reply_markup(GROUP, sent.message_id, reply_markup=BUTTONS)
        reply = await bot.send_message(
            GROUP,
            "why?",
            reply_parameters=ReplyParameters(sent.message_id),
            reply_markup=ForceReply(selective=True, input_field_placeholder="Reason"),
            link_preview_options=LinkPreviewOptions(is_disabled=True),
        )
        assert reply.reply_to_message is not None and reply.reply_to_message.message_id == sent.message_id
        with pytest.raises(BadRequest, match="can't be edited"):
            await bot.edit_message_text("x", chat_id=GROUP, message_id=reply.message_id)

    with_bot(fake, work)
    [shown] = fake.messages()
    assert shown.buttons == {"approve": "a" * 45} and shown.link == "https://x.example/" and shown.edits == 2


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"text": "<b>", "parse_mode": "HTML"}, "Can't parse entities"),
        ({"text": "x" * 4_097}, "too long"),
        ({"text": "&lt; ", "parse_mode": "HTML", "chat_id": -5}, "Chat not found"),
        ({"text": " "}, "text is empty"),
        ({"reply_markup": InlineKeyboardMarkup([[InlineKeyboardButton("x", callback_data="ü" * 33)]])}, "data_invalid"),
        ({"reply_markup": InlineKeyboardMarkup([[InlineKeyboardButton("x", url="http://localhost/")]])}, "http url"),
        ({"reply_parameters": ReplyParameters(99)}, "replied not found"),
        ({"message_thread_id": 5}, "thread not found"),
    ],
)
def test_it_is_refused_as_telegram_refuses(fake: FakeTelegram, options: dict[str, Any], wrong: str) -> None:
    async def work(bot: Bot) -> None:
        with pytest.raises(BadRequest, match=f"(?i){wrong}"):
            await bot.send_message(**{"chat_id": GROUP, "text": "x", **options})

    with_bot(fake, work)


def test_nobody_hears_from_the_bot_before_start_and_a_group_not_too_often(
    fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTB_TIMEDELTA", "1")

    async def work(bot: Bot) -> None:
        with pytest.raises(Forbidden, match="can't initiate conversation"):
            await bot.send_message(fake.number("rita"), "Hello")
        fake.message("rita", "/start")
        await bot.send_message(fake.number("rita"), "Hello")
        for _ in range(20):
            await bot.send_message(GROUP, "Hello")
        with pytest.raises(RetryAfter) as limited:
            await bot.send_message(GROUP, "Hello")
        assert limited.value.retry_after == timedelta(minutes=1)

    with_bot(fake, work)
    assert fake.told("rita") == ["Hello"]


def test_a_click_is_answered_within_some_seconds(fake: FakeTelegram) -> None:
    fake.telegram.api.call("sendMessage", chat_id=GROUP, text="x", reply_markup=BUTTONS.to_dict())
    shown = fake.messages()[0]

    async def work(bot: Bot) -> None:
        update = Update.de_json(json.loads(fake.sign(shown, "approve", "rita").body), bot)
        query = update.callback_query
        assert query is not None and query.data == "a" * 45 and query.from_user.id == fake.number("rita")
        assert isinstance(query.message, Message) and query.message.chat.id == GROUP
        assert await query.answer("No.", show_alert=True)
        with pytest.raises(BadRequest, match=r"(?i)message_too_long"):
            await bot.answer_callback_query(query.id, "x" * 201)
        fake.clock.move(16)
        with pytest.raises(BadRequest, match="Query is too old"):
            await query.answer()
        old = Update.de_json(json.loads(fake.sign(shown, "approve", "rita", old=True).body), bot).callback_query
        assert old is not None and isinstance(old.message, MaybeInaccessibleMessage) and not old.message.is_accessible

    with_bot(fake, work)
    assert fake.told("rita") == ["No."]


def test_a_wrong_token_is_refused(fake: FakeTelegram) -> None:
    with pytest.raises(InvalidToken):
        with_bot(fake, lambda bot: bot.get_me(), token=TOKEN[:-1] + "x")


def test_updates_are_asked_for_or_sent(fake: FakeTelegram) -> None:
    """One of the two, and each until it is confirmed."""
    fake.queue(json.loads(fake.message("rita", "Hello @refund_desk_bot").body))

    async def work(bot: Bot) -> None:
        await bot.set_webhook("https://example.org/telegram", secret_token=SECRET, allowed_updates=["message"])
        assert fake.webhook["secret_token"] == SECRET and fake.webhook["allowed_updates"] == ["message"]
        with pytest.raises(Conflict, match="webhook is active"):
            await bot.get_updates()
        await bot.delete_webhook()
        for _ in range(2):
            [update] = await bot.get_updates()
        assert update.message is not None and update.message.text == "Hello @refund_desk_bot"
        assert update.message.parse_entities() == {update.message.entities[0]: "@refund_desk_bot"}
        assert await bot.get_updates(offset=update.update_id + 1) == () and fake.waiting == []
        with pytest.raises(BadRequest, match=r"(?i)an https url"):
            await bot.set_webhook("http://example.org/telegram")

    with_bot(fake, work)


def test_a_whole_bot_of_the_library_runs_on_it(fake: FakeTelegram) -> None:
    """It polls, takes a click, edits its message, asks for a reply, and gets that."""
    got: list[str] = []
    asked, heard = asyncio.Event(), asyncio.Event()

    async def clicked(update: Update, context: ContextTypes.DEFAULT_TYPE) -> None:
        query = update.callback_query
        assert query is not None and isinstance(query.message, Message)
        await query.answer()
        await query.edit_message_text("approved")
        await context.bot.send_message(query.from_user.id, "why?", reply_markup=ForceReply())
        asked.set()

    async def replied(update: Update, context: ContextTypes.DEFAULT_TYPE) -> None:
        message = update.message
        assert message is not None and message.reply_to_message is not None
        assert (
            message.reply_to_message.from_user is not None and message.reply_to_message.from_user.id == context.bot.id
        )
        got.append(message.text or "")
        heard.set()

    async def run() -> None:
        app = Application.builder().token(TOKEN).base_url(f"{fake.base_url}/bot").build()
        app.add_handler(CallbackQueryHandler(clicked))
        app.add_handler(MessageHandler(filters.REPLY, replied))
        async with app:
            assert app.updater is not None
            await app.updater.start_polling(timeout=1)
            await app.start()
            await app.bot.send_message(GROUP, "pay", reply_markup=BUTTONS)
            fake.message("rita", "/start")
            [shown] = fake.messages()
            fake.queue(json.loads(fake.sign(shown, "approve", "rita").body))
            await asyncio.wait_for(asked.wait(), 20)
            [edited] = fake.messages()
            assert edited == Shown(ref=shown.ref, text="approved", edits=1)
            chat, number = fake._prompts[fake.number("rita")]
            fake.queue(json.loads(fake.message("rita", "because", chat=chat, answers=number).body))
            await asyncio.wait_for(heard.wait(), 20)
            await app.updater.stop()
            await app.stop()

    asyncio.run(run())
    assert got == ["because"]
