"""What has failed for good, at a terminal: `phronomy outbox` and `phronomy webhooks`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from chat_scenes import approvals_of, asked, emptied, with_people
from test_cli_runs import STORE, place, said, told

from phronomy import SQLiteStore, cli
from phronomy.chat.webhooks.signature import key_of
from phronomy.testing.chat import Clock, FakeReceiver, FakeSlack

__all__ = ["place", "said", "told"]  # fixtures


def run(*line: str) -> int:
    return cli.run([*line, "--store", STORE])


@pytest.fixture
def receiver(place: object) -> Iterator[FakeReceiver]:
    with FakeReceiver(Clock()) as made:
        yield made


def failed(receiver: FakeReceiver, count: int = 2) -> list[str]:
    """The ids of requests whose events the endpoint takes no more."""
    with SQLiteStore("runs.db", clock=receiver.clock) as store:
        with_people(store, receiver)
        approvals = approvals_of(store, receiver)
        ids = []
        for order in range(count):
            ids.append(asked(approvals, store, order).id)
            receiver.script((410, {}))
            emptied(approvals, receiver.clock)
    return ids


def sent_now(receiver: FakeReceiver) -> int:
    """How many requests the endpoint has got, once all is sent that can be."""
    with SQLiteStore("runs.db", clock=receiver.clock) as store:
        emptied(approvals_of(store, receiver), receiver.clock)
    return len(receiver.messages())


def test_what_has_failed_is_listed_and_put_back(
    receiver: FakeReceiver, said: Callable[[], str], told: Callable[[], str]
) -> None:
    first, second = failed(receiver)
    assert run("webhooks") == cli.DONE
    shown = said()
    head, *rows = shown.splitlines()
    assert head.split() == ["REQUEST", "PLACE", "FAILED", "TRIES", "WHY"]
    assert [row.split()[:2] for row in rows] == [[first, "webhook:erp"], [second, "webhook:erp"]]
    assert rows[0].endswith("1      status 410: the endpoint takes this no more")
    assert run("outbox") == cli.DONE
    assert said() == shown
    for line in (["webhooks", "--channel", "other"], ["outbox", "--channel", "slack"]):
        assert run(*line) == cli.DONE
        assert said() == "Nothing has failed for good.\n"

    assert run("webhooks", "--json") == cli.DONE
    shown_json = said()
    item = json.loads(shown_json)["items"][0]
    assert item.pop("failed_at").startswith("2027-01-15T08:00:")
    assert json.loads(shown_json)["delayed"] == []
    assert item == {
        "pending_id": first,
        "place": "webhook:erp",
        "tries": 1,
        "why": "status 410: the endpoint takes this no more",
    }

    assert run("webhooks", "retry", second) == cli.DONE
    assert said().startswith("1 message put back into the outbox.")
    assert sent_now(receiver) == 1
    assert run("webhooks", "retry", first, second) == cli.MISUSED
    assert f"no message about {second} has failed; nothing was changed" in told()
    assert sent_now(receiver) == 1
    assert run("outbox", "retry", "--all", "--json") == cli.DONE
    assert [each["pending_id"] for each in json.loads(said())["items"]] == [first]
    assert sent_now(receiver) == 2
    assert run("webhooks", "--json") == cli.DONE
    assert json.loads(said()) == {"items": [], "delayed": []}


def test_what_is_refused_is_listed_with_its_next_try_which_is_brought_forward(
    place: object, said: Callable[[], str], told: Callable[[], str]
) -> None:
    with FakeSlack(Clock()) as slack:
        with SQLiteStore("runs.db", clock=slack.clock) as store:
            approvals = approvals_of(with_people(store, slack), slack)
            item = asked(approvals, store)
            slack.fail("refused")
            assert approvals.outbox.run_once().sent == 0
        assert run("outbox") == cli.DONE
        none, note, head, row = said().splitlines()
        assert (none, note) == (
            "Nothing has failed for good.",
            "These could not be sent yet, and are tried again:",
        )
        assert head.split() == ["REQUEST", "PLACE", "NEXT", "TRY", "TRIES", "WHY"]
        assert row.split()[:2] == [item.id, slack.place] and "chat.postMessage: " in row
        assert run("outbox", "--json") == cli.DONE
        [late] = json.loads(said())["delayed"]
        assert (late["pending_id"], late["place"], late["tries"]) == (item.id, slack.place, 1)
        assert late["next_at"].startswith("2027-01-15T08:05:")

        assert run("outbox", "retry", "pend_other") == cli.MISUSED
        assert "no message about pend_other has failed; nothing was changed" in told()
        assert run("outbox", "retry", item.id) == cli.DONE
        assert said().startswith("1 message put back into the outbox.")
        with SQLiteStore("runs.db", clock=slack.clock) as store:
            slack.clock.move(2)  # not the five minutes
            approvals = approvals_of(store, slack)
            done = approvals.outbox.run_once()
            assert (done.sent, approvals.outbox.run_once().left) == (1, 0)
        assert run("outbox", "--json") == cli.DONE
        assert json.loads(said()) == {"items": [], "delayed": []}


def test_who_is_to_be_tried_again_is_said(place: object, said: Callable[[], str], told: Callable[[], str]) -> None:
    with SQLiteStore("runs.db"):
        pass
    for line in (["retry"], ["retry", "pend_1", "--all"]):
        assert run("webhooks", *line) == cli.MISUSED
        assert "name the ids of requests, or give --all" in told()
    assert run("outbox", "retry", "--all") == cli.DONE
    assert said() == "No message has failed, so none was put back.\n"


@pytest.mark.parametrize(
    "line",
    [
        ("outbox", "--store", "sqlite:///other.db", "retry", "--all"),
        ("outbox", "--channel", "slack", "retry", "--all"),
        ("webhooks", "--channel=hooks", "retry", "--all"),
        ("webhooks", "--tenant", "acme", "retry", "--all"),
        ("outbox", "--json", "retry", "--all"),
        ("webhooks", "--debug", "secret"),
    ],
)
def test_an_option_before_the_command_is_refused_and_not_passed_over(
    receiver: FakeReceiver, told: Callable[[], str], line: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHRONOMY_STORE", STORE)
    failed(receiver, 1)
    assert cli.run([*line]) == cli.MISUSED
    option, named = line[1].partition("=")[0], next(each for each in line if each in ("retry", "secret"))
    assert f"{option} stands before {named}: write it after {named}" in told()
    assert sent_now(receiver) == 0


def test_a_secret_is_printed(said: Callable[[], str]) -> None:
    assert cli.run(["webhooks", "secret"]) == cli.DONE
    assert len(key_of(said().strip())) == 32
    for name in ("webhooks", "outbox"):
        assert cli.run([name, "--help"]) == cli.DONE
        assert "retry" in said()
