"""A fake mail platform: a mail server on the loopback interface, people who open links, and a scanner that opens them first."""

from phronomy.testing.chat.mail.platform import FakeMail

__all__ = ["FakeMail"]
