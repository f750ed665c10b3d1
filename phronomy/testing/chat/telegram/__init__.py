"""A fake Telegram for tests."""

from phronomy.testing.chat.telegram.bot_server import SECRET, TOKEN
from phronomy.testing.chat.telegram.fake import FakeTelegram

__all__ = ["SECRET", "TOKEN", "FakeTelegram"]
