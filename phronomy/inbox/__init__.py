"""The inbox: a web page and an HTTP API where people decide. A server needs `pip install 'phronomy[inbox]'`; a client does not."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phronomy.inbox.app import Inbox, mounted
    from phronomy.inbox.auth.api_tokens import ApiTokens
    from phronomy.inbox.auth.identity import Auth, Identity
    from phronomy.inbox.auth.limits import Limits
    from phronomy.inbox.auth.one_time_link import OneTimeLink
    from phronomy.inbox.auth.proxy import TrustedProxy
    from phronomy.inbox.auth.sessions import Sessions
    from phronomy.inbox.client.asks import InboxEvent
    from phronomy.inbox.client.clients import AsyncInboxClient, InboxClient
    from phronomy.inbox.oidc.sign_in import OIDC
    from phronomy.inbox.pages.deciding.mail_links import MailLinks
    from phronomy.inbox.problems import Problem

# Each loads its module on use: a program with the client alone has no web framework.
_LAZY = {
    "ApiTokens": "phronomy.inbox.auth.api_tokens",
    "AsyncInboxClient": "phronomy.inbox.client.clients",
    "Auth": "phronomy.inbox.auth.identity",
    "Identity": "phronomy.inbox.auth.identity",
    "Inbox": "phronomy.inbox.app",
    "InboxClient": "phronomy.inbox.client.clients",
    "InboxEvent": "phronomy.inbox.client.asks",
    "Limits": "phronomy.inbox.auth.limits",
    "MailLinks": "phronomy.inbox.pages.deciding.mail_links",
    "OIDC": "phronomy.inbox.oidc.sign_in",
    "OneTimeLink": "phronomy.inbox.auth.one_time_link",
    "Problem": "phronomy.inbox.problems",
    "Sessions": "phronomy.inbox.auth.sessions",
    "TrustedProxy": "phronomy.inbox.auth.proxy",
    "mounted": "phronomy.inbox.app",
}

if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> Any:
        from phronomy.foundation import lazy_names  # noqa: PLC0415  # what is imported above is public

        return lazy_names.load(__name__, name, _LAZY, dict.fromkeys(("jinja2", "joserfc", "starlette"), "inbox"))


__all__ = [
    "OIDC",
    "ApiTokens",
    "AsyncInboxClient",
    "Auth",
    "Identity",
    "Inbox",
    "InboxClient",
    "InboxEvent",
    "Limits",
    "MailLinks",
    "OneTimeLink",
    "Problem",
    "Sessions",
    "TrustedProxy",
    "mounted",
]
