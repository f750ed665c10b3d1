"""Where the library of an extra is missing, all of its names say in the same sentence what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROBE = """
import sys
missing, module, name = sys.argv[1:]
sys.modules[missing] = None  # as if it was not installed
try:
    getattr(__import__(module, fromlist=[name]), name)
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("missing", "module", "name", "extra"),
    [
        ("slack_sdk", "phronomy.chat.slack", "Slack", "slack"),
        ("slack_sdk", "phronomy.chat.slack", "SocketMode", "slack"),
        ("cryptography", "phronomy.chat.discord", "Discord", "discord"),
        ("discord", "phronomy.chat.discord", "Gateway", "discord-gateway"),
        ("joserfc", "phronomy.chat.teams", "Teams", "teams"),
        ("cryptography", "phronomy.chat.teams", "Teams", "teams"),
        ("cryptography", "phronomy.testing.chat", "FakeDiscord", "discord"),
        ("discord", "phronomy.testing.chat.discord", "FakeGateway", "discord-gateway"),
        ("cryptography", "phronomy.testing.chat", "FakeTeams", "teams"),
        ("standardwebhooks", "phronomy.testing.chat", "FakeReceiver", "webhooks"),
        ("jinja2", "phronomy.inbox", "Inbox", "inbox"),
    ],
)
def test_a_name_without_its_library_says_what_to_install(missing: str, module: str, name: str, extra: str) -> None:
    command = [sys.executable, "-c", PROBE, missing, module, name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{name} needs {missing}: pip install 'phronomy[{extra}]'\n", done.stderr
