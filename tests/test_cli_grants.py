"""Standing grants at a terminal: `phronomy grant`, `phronomy grants` and `phronomy revoke`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from test_cli_runs import STORE, begin, place, said

from phronomy import SQLiteStore, cli

__all__ = ["place", "said"]  # fixtures


def phronomy(name: str, *line: str) -> int:
    return cli.run([name, "--store", STORE, *line])


def grant(*line: str) -> int:
    return phronomy("grant", "--agent", "desk", "--tool", "refund", *line)


def test_grants_are_given_listed_and_revoked_at_a_terminal(
    said: Callable[[], str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run = begin()
    said()
    assert phronomy("grants") == cli.DONE
    assert said() == "There are no grants.\n"
    assert (
        grant("--thread", "t1", "--args", '{"order_id": 1042, "token": "s3cret"}', "--uses", "3", "--json") == cli.DONE
    )
    one = json.loads(said())
    id = one.pop("id")
    assert isinstance(one.pop("at"), str) and one == {
        "agent": "desk", "tool": "refund", "source": "local", "endpoint": None, "exactly": True, "args": None,
        "condition": None, "scope": "thread", "run_id": None, "thread_id": "t1", "requester": None, "until": None,
        "uses": 3, "used": 0, "givers": ["rita"], "reason": None, "revoked_by": None,
    }  # fmt: skip
    assert grant("--run", run.run_id, "--by", "ann") == cli.DONE
    head, row = said().splitlines()
    assert head.split() == ["GRANT", "AGENT", "TOOL", "ARGUMENTS", "FOR", "UNTIL", "USES", "GIVEN", "BY"]
    assert row.split()[1:] == ["desk", "refund", "any", run.run_id, "-", "0", "ann"]
    assert grant("--requester", "max", "--condition", "small", "--until", "2090-01-02T03:04:05Z") == cli.DONE
    assert "small      requester max  2090-01-02 03:04:05 UTC  0     rita" in said()
    assert grant("--tenant-wide", "--until", "8h", "--reason", "rush", "--by", "ann", "--json") == cli.DONE
    wide = json.loads(said())
    assert (wide["scope"], wide["reason"], wide["givers"]) == ("tenant", "rush", ["ann"])
    with SQLiteStore("runs.db") as store:
        found = store.grants(agent="desk", tool="refund")
        assert found[0].args == {"order_id": 1042, "token": "s3cret"} and found[0].givers[0].channel == "cli"
        until, now = found[-1].until, store.clock()
        assert until is not None and 0 < until.timestamp() - now <= 8 * 3600
        assert store.use_grant(id, "pend_1") is not None

    assert phronomy("grants", "--tool", "refund", "--agent", "desk") == cli.DONE
    lines = said()
    assert len(lines.splitlines()) == 5 and "s3cret" not in lines and "exact      thread t1" in lines
    assert "1 of 3" in lines
    assert phronomy("grants", "--reveal") == cli.DONE
    assert '{"order_id":1042,"token":"s3cret"}' in said()
    assert phronomy("grants", "--tool", "other") == cli.DONE
    assert said() == "There are no grants.\n"
    assert phronomy("grants", "--reveal", "--json") == cli.DONE
    assert json.loads(said())["items"][0]["args"] == {"order_id": 1042, "token": "s3cret"}

    assert phronomy("revoke", id, "--reason", "fraud", "--by", "ann") == cli.DONE
    assert said() == "The grant was revoked.\n"
    assert phronomy("revoke", wide["id"], "--json") == cli.DONE
    assert json.loads(said()) == {"id": wide["id"], "revoked": True}
    assert phronomy("grants", "--all", "--json") == cli.DONE
    items = {each["id"]: each["revoked_by"] for each in json.loads(said())["items"]}
    assert (items[id], items[wide["id"]], len(items)) == ("ann", "rita", 4)
    assert phronomy("grants", "--all") == cli.DONE
    assert said().count("revoked") == 2
    capsys.readouterr()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ((), "one of --run, --thread, --requester and --tenant-wide"),
        (("--run", "r", "--thread", "t"), "one of --run, --thread, --requester and --tenant-wide"),
        (("--run", "r", "--tenant-wide"), "one of --run, --thread, --requester and --tenant-wide"),
        (("--tenant-wide",), "ends: give until, uses or both"),
        (("--tenant-wide", "--uses", "1001"), "Grant: uses: "),
        (("--tenant-wide", "--uses", "0"), "--uses"),
        (("--run", ""), "Grant: run_id: "),
        (("--run", "r", "--args", "[1]"), "--args is a JSON object"),
        (("--run", "r", "--args", "{"), "--args is a JSON object"),
        (("--run", "r", "--args", "{}", "--condition", "small"), "args or a condition, not both"),
        (("--run", "r", "--until", "soon"), "is no time"),
        (("--run", "r", "--by", ""), "--by names somebody"),
    ],
)
def test_a_grant_that_says_too_little_is_wrong_usage(
    line: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    SQLiteStore("runs.db").close()
    assert grant(*line) == cli.MISUSED
    assert why in capsys.readouterr().err
    with SQLiteStore("runs.db") as store:
        assert store.grants(all=True) == ()


def test_a_second_giver_signs_at_a_terminal(said: Callable[[], str], capsys: pytest.CaptureFixture[str]) -> None:
    begin()
    said()
    assert grant("--tenant-wide", "--uses", "2", "--by", "rita", "--json") == cli.DONE
    id = json.loads(said())["id"]
    assert phronomy("sign", id, "--by", "otto") == cli.DONE
    assert said() == "The grant has 2 givers.\n"
    assert phronomy("sign", id, "--by", "ann", "--json") == cli.DONE
    assert json.loads(said())["givers"] == ["rita", "otto", "ann"]
    assert phronomy("sign", id, "--by", "otto") != cli.DONE
    assert "each person counts once" in capsys.readouterr().err


def test_what_cannot_be_given_or_revoked_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    SQLiteStore("runs.db").close()
    assert grant("--run", "r", "--until", "2020-01-01") == cli.FAILED
    assert "is over: give a later one" in capsys.readouterr().err
    assert phronomy("revoke", "grant_0") == cli.MISUSED
    assert "there is no grant 'grant_0' that is not revoked" in capsys.readouterr().err
    assert phronomy("grant", "--tool", "refund", "--run", "r") == cli.MISUSED
    assert "--agent" in capsys.readouterr().err
