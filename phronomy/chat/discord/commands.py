"""The slash command of a Discord app: what people type to start a run. `phronomy discord commands` prints and registers it.

https://docs.discord.com/developers/interactions/application-commands
"""

from __future__ import annotations

from typing import Final

from phronomy.foundation.json_text import JsonDict

API: Final = "https://discord.com/api/v10"
"""The address of Discord's API."""

OPTION: Final = "text"
"""The name of the option that holds what was typed."""

_LONGEST: Final = 4_000


def command(*, name: str = "ask", description: str = "Ask the agent to do something") -> JsonDict:
    """The slash command with which somebody writes to the agent, as Discord's API takes it.

    `name` has 1 to 32 small letters, digits, `-` and `_`. `description` has 1 to 100 characters. The command works in servers
    to which the app was added, and in direct messages to its bot.
    """
    text: JsonDict = {
        "type": 3,  # a text
        "name": OPTION,
        "description": "What is to be done",
        "required": True,
        "max_length": _LONGEST,
    }
    return {
        "type": 1,  # a slash command
        "name": name,
        "description": description,
        "options": [text],
        "integration_types": [0],  # apps that are added to a server
        "contexts": [0, 1],  # in servers, and in direct messages to the bot
    }


def address(application_id: str, *, guild_id: str | None = None, base_url: str = API) -> str:
    """Where the command is registered: POST the command there, with the header `Authorization: Bot TOKEN`.

    A POST replaces the command of the same name. A PUT of a list would delete all other commands of the app. With `guild_id`, the
    command is of one server alone.
    """
    place = f"/guilds/{guild_id}" if guild_id is not None else ""
    return f"{base_url.rstrip('/')}/applications/{application_id}{place}/commands"
