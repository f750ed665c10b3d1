"""Chat approvals that are set up wrongly: each mistake is refused, or the log says what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chat_scenes import approvals_of, asked, desk, emptied, with_people
from test_cli_runs import STORE, place, said

from phronomy import ConfigurationError, MemoryStore, cli
from phronomy.chat import ChatBot
from phronomy.chat.slack import Slack
from phronomy.testing.chat import Clock, FakeSlack, MinimalPlatform
from phronomy.testing.chat.platform import delivered

__all__ = ["place", "said"]  # fixtures


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ("discord:1", "route has the place discord:1, and there is no channel discord: the channels are minimal"),
        ("Minimal:room", "there is no channel Minimal"),
        (["minimal:room", "slack:C1"], "there is no channel slack"),
        ("C0000000001", "such as slack:C0123456789, not C0000000001"),
        ("my secret words", r"not \(no id, but text of length 15\)"),
        (["minimal:"], "not minimal:"),
        (7, "a place, a list of places or None, not 7"),
        ([7], "not 7"),
    ],
)
def test_a_place_that_is_none_is_refused_at_once(route: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        approvals_of(MemoryStore(), MinimalPlatform(), route=route)


def raising(event: Any) -> str:
    raise KeyError(event.request.args["order"])


@pytest.mark.parametrize(
    ("route", "said"),
    [
        (lambda event: "C0000000001", "the route gives no place for pend_X: a place of a route is a channel"),
        (raising, "the route has raised KeyError for pend_X"),
    ],
)
def test_a_route_that_names_no_place_is_in_the_log(route: Any, said: str, caplog: pytest.LogCaptureFixture) -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    item = asked(approvals_of(store, platform, route=route), store)
    assert said.replace("pend_X", item.id) in caplog.text


def test_a_channel_that_is_nowhere_is_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals = approvals_of(store, platform, route=lambda event: "discord:1")
    asked(approvals, store)
    for _ in range(3):
        approvals.outbox.run_once()
        platform.clock.move(61)
    said = "no channel discord here: a message to it is left to a process that has this channel; the channels here are minimal"
    assert [record.getMessage() for record in caplog.records].count(said) == 1


def test_an_agent_with_another_store_is_in_the_log_and_posts_once_it_has_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    platform = MinimalPlatform()
    store, other = (with_people(MemoryStore(clock=platform.clock), platform) for _ in range(2))
    item = asked(approvals_of(other, platform), store)
    assert f"the agent of {store.request(item.id).run_id} has another store than these ChatApprovals" in caplog.text
    emptied(approvals_of(other, platform), platform.clock)
    assert platform.messages() == []


def test_the_log_says_why_a_message_could_not_be_sent_and_where(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with FakeSlack(clock) as slack:
        store = with_people(MemoryStore(clock=clock), slack)
        approvals = approvals_of(store, slack)
        item = asked(approvals, store)
        slack.fail("down", "refused")
        emptied(approvals, clock)
    assert f"slack could not post about {item.id} in {slack.place}: chat.postMessage: status 5" in caplog.text
    assert f"slack refuses to post about {item.id} in {slack.place}: chat.postMessage: " in caplog.text


def test_a_wrong_secret_is_in_the_log_and_not_for_each_request(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with FakeSlack(clock) as slack:
        approvals = approvals_of(with_people(MemoryStore(clock=clock), slack), slack)
        for seconds in (0, 299, 2):
            clock.move(seconds)
            sent = slack.write("U0000000RITA", "my own words").sent
            response = approvals.handle("POST", sent.path, {**sent.headers, "X-Slack-Signature": "v0=wrong"}, sent.body)
            assert response.status == 401
    hint = "slack has refused a request: no signature of Slack. If the platform has sent it, the set-up is wrong: check signing_secret"
    assert [record.getMessage() for record in caplog.records] == [hint, hint]
    assert "my own words" not in caplog.text


def test_a_message_to_a_bot_that_is_not_here_is_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    platform = MinimalPlatform()
    store = with_people(MemoryStore(clock=platform.clock), platform)
    approvals = approvals_of(store, platform, route=None)
    for _ in range(2):
        assert delivered(approvals, platform.write("U0000000RITA", "my own words").sent).status == 200
    assert caplog.text.count("this process has no ChatBot") == 1 and "my own words" not in caplog.text


def test_a_path_without_a_channel_is_answered_with_the_names_and_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    approvals = approvals_of(MemoryStore(), MinimalPlatform())
    for path in ("/chat/Minimal", "/chat", ""):
        response = approvals.handle("POST", path, {}, b"{}")
        assert (response.status, response.body) == (404, b"no channel has this path: it ends with one of minimal")
    assert caplog.text.count("a path that does not end with the name of a channel: minimal") == 1


@pytest.mark.parametrize(
    ("url", "is_wrong"),
    [
        ("https://example.org/chat/slack", False),
        ("https://example.org/chat/slack/", False),
        ("https://example.org/chat", True),
        ("https://example.org", True),
        ("https://slack", True),
    ],
)
def test_an_address_without_the_name_of_the_channel_is_warned_of(
    url: str, is_wrong: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["slack", "manifest", "--url", url]) == cli.DONE
    assert ("does not end with /slack" in capsys.readouterr().err) == is_wrong


def test_the_agent_of_a_bot_announces_to_the_approvals_of_the_bot() -> None:
    platform, store = MinimalPlatform(), MemoryStore()
    approvals, other = approvals_of(store, platform), approvals_of(store, platform)
    with pytest.raises(ConfigurationError, match="announcements"):
        ChatBot(approvals, desk(other, store))
    agent = desk(approvals, store)
    ChatBot(approvals, agent)
    agent.store = MemoryStore()  # nothing has run, so nothing is fixed yet


BOT = """
from chat_scenes import approvals_of, desk
from phronomy import open_store
from phronomy.chat import ChatBot
from phronomy.chat.slack import Slack
from phronomy.testing.chat import MinimalPlatform

store = open_store("sqlite:///runs.db")
approvals = approvals_of(store, MinimalPlatform(), route=None)
agent = desk(approvals, store)
bot = ChatBot(approvals, agent)
"""


def test_a_program_with_a_bot_is_driven_by_the_command_line_with_a_store(place: Path) -> None:
    (place / "botapp.py").write_text(BOT)
    assert cli.run(["work", "--app", "botapp:agent", "--store", STORE, "--once"]) == cli.DONE


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"directory": None}, "directory is a Directory, such as StoreDirectory"),
        ({"keys": {}}, "keys is a mapping of ids to secrets"),
        ({"keys": None}, "keys is a mapping of ids to secrets"),
        ({"keys": b"k" * 32}, "keys is a mapping of ids to secrets"),
        ({"channels": MinimalPlatform().channel}, "channels is a list of channels"),
        ({"channels": None}, "channels is a list of channels"),
    ],
)
def test_an_option_of_another_kind_is_refused_by_its_name(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        approvals_of(MemoryStore(), MinimalPlatform(), **wrong)


SECRET, TOKEN = "0123456789abcdef", "xoxb-1-2-abc"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"signing_secret": TOKEN, "bot_token": SECRET}, "signing_secret is a token"),
        ({"bot_token": SECRET}, "bot_token begins with xoxb-"),
        ({"bot_token": "xapp-1-abc"}, "bot_token begins with xoxb-"),
        ({"team_id": "acme"}, "team_id is the id of a workspace"),
        ({"team_id": ""}, "team_id is the id of a workspace"),
    ],
)
def test_secrets_of_slack_in_each_others_place_are_refused_and_not_quoted(wrong: dict[str, str], said: str) -> None:
    right = {"signing_secret": SECRET, "bot_token": TOKEN, "team_id": "T0123456789"}
    Slack(**right)
    Slack(**{**right, "bot_token": f"xoxe.{TOKEN}"})
    with pytest.raises(ConfigurationError, match=said) as refused:
        Slack(**{**right, **wrong})
    assert SECRET not in str(refused.value) and "abc" not in str(refused.value)
