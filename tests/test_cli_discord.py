"""`phronomy discord`: the slash command of an app."""

from __future__ import annotations

import json

import pytest

from phronomy.chat.discord import command
from phronomy.cli import DONE, FAILED, MISUSED, run
from phronomy.testing.chat import FakeDiscord
from phronomy.testing.chat.discord import APPLICATION_ID, BOT_TOKEN

ID = ["--application-id", APPLICATION_ID]


def test_it_prints_the_request_that_registers_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["discord", "commands", *ID, "--name", "refund"]) == DONE
    found = json.loads(capsys.readouterr().out)
    url = f"https://discord.com/api/v10/applications/{APPLICATION_ID}/commands"
    assert found == {"method": "POST", "url": url, "body": command(name="refund")}
    assert run(["discord", "commands", *ID, "--guild-id", "3"]) == DONE
    assert json.loads(capsys.readouterr().out)["url"].endswith(f"/applications/{APPLICATION_ID}/guilds/3/commands")


def test_it_registers_the_command_and_leaves_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeDiscord() as fake:
        fake.api.commands["other"] = {"name": "other"}
        monkeypatch.setattr("phronomy.cli.commands.discord.API", fake.base_url)
        assert run(["discord", "commands", *ID, "--register"]) == MISUSED
        monkeypatch.setenv("DISCORD_BOT_TOKEN", "wrong-token")
        assert run(["discord", "commands", *ID, "--register"]) == FAILED
        told = capsys.readouterr()
        assert "401" in told.err and "wrong-token" not in told.err + told.out
        monkeypatch.setenv("DISCORD_BOT_TOKEN", BOT_TOKEN)
        for _ in range(2):
            assert run(["discord", "commands", *ID, "--register"]) == DONE
        assert sorted(fake.api.commands) == ["ask", "other"]
        found = json.JSONDecoder().raw_decode(capsys.readouterr().out)[0]
        assert found["name"] == "ask" and found["id"].isdigit()


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["--application-id", "../1"],
        [*ID, "--guild-id", "x"],
        [*ID, "--name", "With Space"],
        [*ID, "--name", "n" * 33],
        [*ID, "--description", ""],
        [*ID, "--description", "d" * 101],
    ],
)
def test_wrong_options_are_refused(wrong: list[str]) -> None:
    assert run(["discord", "commands", *wrong]) == MISUSED


def test_alone_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["discord"]) == DONE
    assert "commands" in capsys.readouterr().out
