"""What waits inside agents that are tools, at the command line: listed, shown and decided where the run was begun."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from test_cli_runs import place, run, said

from phronomy import Checkpoint, SQLiteStore, cli

__all__ = ["place", "said"]  # fixtures

APP = '''
from pathlib import Path

from phronomy import Agent, tool
from phronomy.testing import ScriptedModel, call


def pays(place, **options):
    @tool(requires_approval=True, **options)
    def pay(who: str, token: str = "s3cret") -> str:
        """Pay somebody."""
        with Path("paid.txt").open("a") as file:
            file.write(f"{place} {who}\\n")
        return f"{place} paid {who}"

    return pay


def make():
    asks = [[call("pay", {"who": "bob"})], "The clerk is done."]
    clerk = Agent(name="clerk", model=ScriptedModel.by_turn(asks), tools=[pays("clerk", redact=["token"])])
    both = [call("clerk", {"input": "Pay bob."}), call("pay", {"who": "ann"})]
    desk = ScriptedModel.by_turn([both, "The desk is done."])
    return Agent(name="desk", model=desk, tools=[clerk.as_tool(), pays("desk")])
'''


@pytest.fixture
def begun(place: Path, said: Callable[[], str]) -> Checkpoint:
    """A run that waits at two depths, begun elsewhere."""
    (place / "desk.py").write_text(APP)
    sys.modules.pop("desk", None)
    sys.path.insert(0, os.getcwd())
    import desk

    with SQLiteStore("runs.db") as store:
        agent = desk.make()
        agent.store = store
        checkpoint: Checkpoint = agent.invoke("Pay both.").checkpoint
    said()
    return checkpoint


def paid() -> list[str]:
    """What was paid, in order."""
    return Path("paid.txt").read_text().splitlines() if Path("paid.txt").exists() else []


def test_what_waits_inside_is_listed_and_shown_with_its_place(begun: Checkpoint, said: Callable[[], str]) -> None:
    inner, outer = begun.pending
    assert run("pending", "--json") == cli.DONE
    listed = json.loads(said())["items"]
    assert {each["pending_id"]: each["path"] for each in listed} == {inner.id: "1.0", outer.id: ""}
    assert run("show", begun.run_id) == cli.DONE
    shown = said()
    assert "agent desk, in clerk\n" in shown
    assert (inner.id in shown, outer.id in shown) == (True, True)


def test_what_one_of_two_tools_of_a_name_hides_is_hidden_of_both(begun: Checkpoint, said: Callable[[], str]) -> None:
    """The clerk's tool hides the token, the desk's of the same name and parameters does not: which is asked cannot be told apart."""
    for command in (("pending",), ("pending", "--json"), ("show", begun.run_id), ("show", begun.run_id, "--json")):
        assert run(*command) == cli.DONE
        assert "s3cret" not in said()
    assert run("show", begun.run_id, "--reveal") == cli.DONE
    assert "s3cret" in said()


def test_it_is_decided_by_its_id_and_the_run_goes_on(begun: Checkpoint, said: Callable[[], str]) -> None:
    inner, outer = begun.pending
    assert run("approve", inner.id, "--yes", "--reveal", "--json", "--by", "olga") == cli.PENDING
    document = json.loads(said())
    assert (document["decision"]["by"], [each["pending_id"] for each in document["pending"]]) == ("olga", [outer.id])
    assert paid() == ["clerk bob"]
    assert run("reject", outer.id, "--yes", "--json", "--reason", "not ann") == cli.DONE
    assert json.loads(said())["output"] == "The desk is done."
    assert paid() == ["clerk bob"]
