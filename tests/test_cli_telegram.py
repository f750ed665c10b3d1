"""`phronomy telegram`: the webhook of a bot, and invitations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from phronomy import SQLiteStore
from phronomy.chat.telegram import Invitations
from phronomy.cli import DONE, FAILED, MISUSED, run
from phronomy.people import Person, StoreDirectory
from phronomy.testing.chat import FakeTelegram
from phronomy.testing.chat.telegram import SECRET, TOKEN

URL = "https://example.org/chat/telegram"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTelegram]:
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", TOKEN)
    monkeypatch.setenv("TELEGRAM_SECRET_TOKEN", SECRET)
    with FakeTelegram() as telegram:
        yield telegram


def test_it_sets_and_deletes_the_webhook(fake: FakeTelegram, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["telegram", "webhook", "--url", URL, "--api", fake.base_url]) == DONE
    assert fake.webhook == {"url": URL, "secret_token": SECRET, "allowed_updates": ["message", "callback_query"]}
    assert run(["telegram", "webhook", "--delete", "--api", fake.base_url]) == DONE
    assert fake.webhook == {}
    said = capsys.readouterr()
    assert URL in said.out and TOKEN not in said.out + said.err and SECRET not in said.out + said.err


def test_what_telegram_refuses_is_told(fake: FakeTelegram, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["telegram", "webhook", "--url", "https://example.org:99/telegram", "--api", fake.base_url]) == FAILED
    assert "443, 80, 88 or 8443" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "unset"),
    [
        ([], ""),
        (["--url", "http://example.org/telegram"], ""),
        (["--url", URL, "--delete"], ""),
        (["--url", URL], "TELEGRAM_BOT_TOKEN"),
        (["--url", URL], "TELEGRAM_SECRET_TOKEN"),
        (["--url", URL, "--api", "example.org"], ""),
    ],
)
def test_wrong_options_are_refused(
    wrong: list[str], unset: str, fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(unset, raising=False)
    assert run(["telegram", "webhook", *wrong]) == MISUSED and fake.calls == []


def test_it_prints_a_link_that_counts_once(
    fake: FakeTelegram, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    people = StoreDirectory(store)
    people.add(Person(id="rita", name="Rita"))
    options = ["--store", f"sqlite:///{tmp_path / 'runs.db'}", "--api", fake.base_url]
    assert run(["telegram", "invite", "rita", "--until", "8h", *options]) == DONE
    link, said = capsys.readouterr().out.strip().splitlines()
    assert "counts once, until" in said
    assert run(["telegram", "invite", "rita", "--json", *options]) == DONE
    assert json.loads(capsys.readouterr().out)["link"] not in ("", link)
    found = fake.telegram.read(json.loads(fake.follow(link, "rita").body))
    response = Invitations(store).answer(fake.telegram, found)  # type: ignore[arg-type]
    assert response is not None and response.after is not None
    response.after()
    assert fake.told("rita") == ["You are known here as Rita now."]
    assert people.resolve(fake.alias("rita")) is not None


def test_it_invites_only_people_who_are_there_and_for_a_time(
    fake: FakeTelegram, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SQLiteStore(tmp_path / "runs.db")
    options = ["--store", f"sqlite:///{tmp_path / 'runs.db'}", "--api", fake.base_url]
    assert run(["telegram", "invite", "rita", *options]) == FAILED
    assert "add them first" in capsys.readouterr().err
    assert run(["telegram", "invite", "rita", "--until", "2020-01-01", *options]) == MISUSED


def test_alone_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["telegram"]) == DONE
    assert "invite" in capsys.readouterr().out
