"""`phronomy slack`: the manifest of an app."""

from __future__ import annotations

import json

import pytest

from phronomy.chat.slack import manifest
from phronomy.cli import DONE, MISUSED, run

URL = "https://example.org/chat/slack"


def test_it_prints_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["slack", "manifest", "--url", URL, "--name", "Desk"]) == DONE
    assert json.loads(capsys.readouterr().out) == manifest(url=URL, name="Desk")
    assert run(["slack", "manifest", "--socket"]) == DONE
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert settings["socket_mode_enabled"] and settings["interactivity"] == {"is_enabled": True}
    assert run(["slack", "manifest", "--socket", "--bot"]) == DONE
    assert json.loads(capsys.readouterr().out) == manifest(bot=True)


@pytest.mark.parametrize(
    "wrong",
    [[], ["--url", "http://example.org/slack"], ["--url", URL, "--name", "n" * 36], ["--url", URL, "--name", ""]],
)
def test_wrong_options_are_refused(wrong: list[str]) -> None:
    assert run(["slack", "manifest", *wrong]) == MISUSED


def test_alone_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["slack"]) == DONE
    assert "manifest" in capsys.readouterr().out
