"""The manifest of the Slack app: what Slack asks for when an app is made. `phronomy slack manifest` prints it.

https://docs.slack.dev/reference/app-manifest
"""

from __future__ import annotations

from phronomy.foundation.json_text import JsonDict


def manifest(*, url: str | None = None, name: str = "Approvals") -> JsonDict:
    """The manifest of an app that posts requests and takes clicks.

    `url` is the address to which Slack sends clicks, such as `https://example.org/chat/slack`; None for Socket Mode, which needs
    none. `name` has at most 35 characters.
    """
    interactivity: JsonDict = {"is_enabled": True}
    if url is not None:
        interactivity["request_url"] = url
    return {
        "display_information": {
            "name": name,
            "description": "Asks people before an agent acts",
        },
        "features": {"bot_user": {"display_name": name, "always_online": True}},
        "oauth_config": {"scopes": {"bot": ["chat:write"]}},
        "settings": {
            "interactivity": interactivity,
            "org_deploy_enabled": False,
            "socket_mode_enabled": url is None,
            "token_rotation_enabled": False,
        },
    }
