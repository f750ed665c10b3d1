"""The people who decide, at a terminal: `phronomy people`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from test_cli_runs import STORE, place, said

from phronomy import SQLiteStore, cli
from phronomy.cli.words import login_name
from phronomy.people import StoreDirectory

__all__ = ["place", "said"]  # fixtures


def people(*line: str) -> int:
    return cli.run(["people", line[0], "--store", STORE, *line[1:]])


def test_people_are_added_listed_and_removed_at_a_terminal(
    said: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    def told() -> str:
        return capsys.readouterr().err

    assert (
        people("add", "rita", "--name", "Rita", "--role", "lead", "--role", "refunds", "--alias", "slack:U1")
        == cli.DONE
    )
    head = "PERSON  NAME  KIND   ROLES          ALIASES"
    assert said().splitlines() == [head, "rita    Rita  human  lead, refunds  slack:U1"]
    assert people("add", "bot", "--service", "--json") == cli.DONE
    assert json.loads(said()) == {"id": "bot", "name": None, "kind": "service", "roles": [], "aliases": []}
    assert people("add", "otto", "--alias", "slack:U1") == cli.FAILED
    assert told() == "phronomy: error: alias slack:U1 belongs to person rita already\n"
    assert people("add", "rita") == cli.FAILED
    assert told() == "phronomy: error: there is a person rita already\n"
    assert people("add", "rita", "--replace", "--role", "lead", "--alias", "slack:U2") == cli.DONE
    said()

    assert people("list") == cli.DONE
    assert said().splitlines()[1:] == ["bot     -     service  -      -", "rita    -     human    lead   slack:U2"]
    assert people("list", "--limit", "1") == cli.DONE
    assert said().splitlines()[-1] == f"More: phronomy people list --after bot --store {STORE}"
    assert people("list", "--limit", "1", "--after", "bot", "--json") == cli.DONE
    page = json.loads(said())
    assert ([each["id"] for each in page["items"]], page["next"]) == (["rita"], None)

    assert people("remove", "rita") == cli.PENDING
    assert said().endswith("Nobody was removed.\n")
    assert people("remove", "rita", "--yes") == cli.DONE
    assert said().endswith("The person was removed.\n")
    assert people("remove", "bot", "--yes", "--json") == cli.DONE
    assert json.loads(said())["id"] == "bot"
    assert people("list") == cli.DONE
    assert said() == "There is nobody.\n"
    told()

    for line, why in (
        (("remove", "rita", "--yes"), "there is no person 'rita' (phronomy people remove --help tells more)"),
        (("remove", "rita", "--json"), "--json asks nobody, so it goes with --yes"),
        (("add", ""), "Person: id: "),
        (("add",), "PERSON"),
        (("nonsense",), "nonsense"),
    ):
        assert people(*line) == cli.MISUSED
        assert why in told()
    assert cli.run(["people"]) == cli.DONE
    assert "Add, list and remove the people who decide, and their deputies." in said()
    assert cli.run(["people", "list"]) == cli.MISUSED
    with SQLiteStore("runs.db") as store:
        assert StoreDirectory(store).list() == ()


def test_deputies_are_named_listed_and_dismissed_at_a_terminal(
    said: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    def told() -> str:
        return capsys.readouterr().err

    for id in ("rita", "otto", "ann"):
        assert people("add", id) == cli.DONE
    said()
    assert people("deputies") == cli.DONE
    assert said() == "There are no deputies.\n"
    assert people("name-deputy", "rita", "otto", "--until", "2999-01-08", "--reason", "on leave") == cli.DONE
    lines = ["PERSON  DEPUTY  UNTIL                    REASON", "rita    otto    2999-01-08 00:00:00 UTC  on leave"]
    assert said().splitlines() == lines
    before = datetime.now(UTC)
    assert people("name-deputy", "ann", "otto", "--until", "14d", "--by", "boss", "--json") == cli.DONE
    named = json.loads(said())
    until = datetime.fromisoformat(named.pop("until")) - timedelta(days=14)
    at = datetime.fromisoformat(named.pop("at"))
    assert named == {"principal": "ann", "deputy": "otto", "reason": None, "by": "boss"}
    assert before <= until <= at <= datetime.now(UTC)
    assert people("name-deputy", "rita", "ann") == cli.DONE
    said()

    assert people("deputies", "rita") == cli.DONE
    found = said().splitlines()
    assert [line.split()[:3] for line in found[1:]] == [["rita", "ann", "-"], ["rita", "otto", "2999-01-08"]]
    assert people("deputies", "--json") == cli.DONE
    items = json.loads(said())["items"]
    assert [(each["principal"], each["deputy"]) for each in items] == [
        ("ann", "otto"),
        ("rita", "ann"),
        ("rita", "otto"),
    ]
    assert (items[1]["until"], items[2]["until"]) == (None, "2999-01-08T00:00:00+00:00")
    assert items[1]["by"] == login_name()

    assert people("dismiss-deputy", "rita", "otto") == cli.DONE
    assert said() == "The deputy was dismissed.\n"
    assert people("dismiss-deputy", "rita", "ann", "--json") == cli.DONE
    assert json.loads(said()) == {"principal": "rita", "deputy": "ann"}
    assert people("name-deputy", "rita", "nobody") == cli.FAILED
    assert told() == "phronomy: error: there is no person nobody: add them first\n"
    for line, why in (
        (("dismiss-deputy", "rita", "otto"), "'otto' is no deputy of 'rita'"),
        (("name-deputy", "rita", "rita"), "nobody is their own deputy"),
        (("name-deputy", "rita", "otto", "--until", "2001-01-08"), "until: this time is over already"),
        (("name-deputy", "rita", "otto", "--until", "soon"), "'soon' is no time"),
        (("name-deputy", "rita", "otto", "--until", "7"), "'7' is no time"),
        (("name-deputy", "rita", "otto", "--until", "9999-12-31T23:00:00-02:00"), "is too far away"),
        (("name-deputy", "rita", "otto", "--until", "0001-01-01T00:00:00+02:00"), "is too far away"),
        (("name-deputy", "rita", "otto", "--until", "9999-12-31T23:00:00"), "Deputy: until: "),
        (("name-deputy", "rita"), "DEPUTY"),
    ):
        assert people(*line) == cli.MISUSED, line
        assert why in told()
    with SQLiteStore("runs.db") as store:
        assert [each.deputy for each in StoreDirectory(store).deputies()] == ["otto"]


@pytest.mark.parametrize(
    ("alias", "hint"),
    [
        ("slack:U1", ""),
        ("slack:T0123:U1", ""),
        ("telegram:5000000007", ""),
        ("discord:400000000000000001", ""),
        ("teams:0e1d2c3b-0000-4000-8000-0000000000bb:7c0f3a52-0000-4000-8000-0000000000cc", ""),
        ("email:Rita@example.org", ""),
        ("webhook:erp:17", ""),
        ("U1", "'U1' is no id of a channel"),
        ("slak:U1", "There is no channel 'slak' unless you gave one this name"),
        ("slack:rita", "Nobody has the alias 'slack:rita': it looks like slack:U0123456789."),
        ("telegram:@rita", "it looks like telegram:5000000007"),
        ("teams:0E1D2C3B-0000-4000-8000-0000000000BB:7c0f3a52-0000-4000-8000-0000000000cc", "in small letters"),
        ("email:rita@Example.org", "with the domain in small letters"),
        ("email:Rita Smith <r@x>", "nothing around it"),
    ],
)
def test_an_alias_that_nobody_can_have_is_added_and_warned_of(
    alias: str, hint: str, place: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert people("add", "rita", "--alias", alias) == cli.DONE
    told = capsys.readouterr().err
    assert hint in told if hint else told == ""
