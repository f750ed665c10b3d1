"""Approvals in chat apps: requests are posted where people are, and a click there decides, on servers of your own."""

from phronomy.chat.adapters import asgi, aws_lambda, wsgi
from phronomy.chat.approvals import ChatApprovals
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
    Pace,
    RateLimited,
    Submitted,
)
from phronomy.chat.http import HttpRequest, Refused, Response
from phronomy.chat.outbox import Outbox

__all__ = [
    "Button",
    "Card",
    "Channel",
    "ChannelError",
    "ChannelRefused",
    "ChatApprovals",
    "Click",
    "Field",
    "Form",
    "FormLimits",
    "HttpRequest",
    "Line",
    "Outbox",
    "Pace",
    "RateLimited",
    "Refused",
    "Response",
    "Submitted",
    "asgi",
    "aws_lambda",
    "wsgi",
]
