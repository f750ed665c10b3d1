"""The manifest of the Slack app: what Slack asks for when an app is made. `phronomy slack manifest` prints it.

https://docs.slack.dev/reference/app-manifest
"""

from __future__ import annotations

from typing import Final

from phronomy.foundation.json_text import JsonDict, JsonValue

BOT_SCOPES: Final = ("app_mentions:read", "im:history")
BOT_EVENTS: Final = ("app_mention", "message.im")
"""What a bot may read, and the events that it gets: where it is mentioned, and what is written to it alone."""


def manifest(*, url: str | None = None, name: str = "Approvals", bot: bool = False) -> JsonDict:
    """The manifest of an app that posts requests and takes clicks; with `bot`, also one to which people write.

    `url` is the address to which Slack sends clicks, such as `https://example.org/chat/slack`; None for Socket Mode, which needs
    none. `name` has at most 35 characters.
    """
    interactivity: JsonDict = {"is_enabled": True}
    if url is not None:
        interactivity["request_url"] = url
    features: JsonDict = {"bot_user": {"display_name": name, "always_online": True}}
    scopes: list[JsonValue] = ["chat:write"]
    settings: JsonDict = {
        "interactivity": interactivity,
        "org_deploy_enabled": False,
        "socket_mode_enabled": url is None,
        "token_rotation_enabled": False,
    }
    if bot:
        scopes += BOT_SCOPES
        events: JsonDict = {"bot_events": [*BOT_EVENTS]}
        settings["event_subscriptions"] = {**({"request_url": url} if url is not None else {}), **events}
        # Without the tab nobody can write to the bot.
        features["app_home"] = {"messages_tab_enabled": True, "messages_tab_read_only_enabled": False}
    return {
        "display_information": {
            "name": name,
            "description": "Asks people before an agent acts",
        },
        "features": features,
        "oauth_config": {"scopes": {"bot": scopes}},
        "settings": settings,
    }
