"""Approvals in chat apps: requests are posted where people are, and a click there decides, on servers of your own."""

from typing import TYPE_CHECKING

from phronomy.chat.adapters import asgi, aws_lambda, wsgi
from phronomy.chat.approvals import ChatApprovals
from phronomy.chat.bot.bot import ChatBot
from phronomy.chat.channel import (
    Button,
    Card,
    Channel,
    ChannelError,
    ChannelRefused,
    Click,
    Field,
    Form,
    FormLimits,
    Line,
    Listener,
    Mention,
    Pace,
    PersonalChannel,
    RateLimited,
    ReachesPeople,
    Said,
    ShowsCards,
    Submitted,
    TalkingChannel,
    Viewed,
)
from phronomy.chat.http import HttpRequest, Refused, Response
from phronomy.chat.outbox import Outbox, Undelivered
from phronomy.foundation import lazy_names

__all__ = [
    "Button",
    "Card",
    "Channel",
    "ChannelError",
    "ChannelRefused",
    "ChatApprovals",
    "ChatBot",
    "Click",
    "Field",
    "Form",
    "FormLimits",
    "HttpRequest",
    "Line",
    "Listener",
    "Mention",
    "Outbox",
    "Pace",
    "PersonalChannel",
    "RateLimited",
    "ReachesPeople",
    "Refused",
    "Response",
    "Said",
    "ShowsCards",
    "Submitted",
    "TalkingChannel",
    "Undelivered",
    "Viewed",
    "asgi",
    "aws_lambda",
    "wsgi",
]

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> object:
        raise lazy_names.unknown(__name__, name)
