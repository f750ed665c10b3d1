"""The people who decide, at a terminal: `phronomy people`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from test_cli_runs import STORE, place, said

from phronomy import SQLiteStore, cli
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
    assert "Add, list and remove the people who decide." in said()
    assert cli.run(["people", "list"]) == cli.MISUSED
    with SQLiteStore("runs.db") as store:
        assert StoreDirectory(store).list() == ()
