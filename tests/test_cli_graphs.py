"""The command line with graphs: what it shows of their runs, how it decides in them, and what it leaves to the app."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_cli_runs import place, said, told

from phronomy import Checkpoint, SQLiteStore, cli

__all__ = ["place", "said", "told"]  # fixtures

WORKS = '''
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel

from phronomy import Agent, tool
from phronomy.graph import END, START, Pause, StateGraph, append, interrupt
from phronomy.testing import ScriptedModel, call


class Trip(BaseModel):
    wish: str
    pin: str = "1234"
    log: Annotated[list[str], append] = []


def ran(name):
    with Path("ran.txt").open("a") as file:
        file.write(name + "\\n")


def look(state):
    ran("look")
    return {"log": [f"looked at {state.wish}"]}


def ask(state):
    days = interrupt("How many days?", key="days", answer=int)
    ran(f"ask {days}")
    return {"log": [f"{days} days"]}


def book(state):
    ran(f"book {state.wish}")
    return {"log": [f"booked {state.wish}"]}


def fails(state):
    ran("fails")
    if Path("down").exists():
        raise ConnectionError("the airline is down")
    return {"log": ["flew"]}


@tool(requires_approval=True, redact=["card"])
def pay(euros: int, card: str = "4711") -> str:
    """Pay."""
    ran(f"pay {euros}")
    return "paid"


async def async_look(state):
    return look(state)


def chain(name, **nodes):
    graph = StateGraph(Trip, name=name)
    for node, given in nodes.items():
        function, options = given if isinstance(given, tuple) else (given, {})
        graph.add_node(node, function, **options)
    for source, end in zip((START, *nodes), (*nodes, END)):
        graph.add_edge(source, end)
    return graph


def gated():
    return chain("trips", look=look, book=(book, {"requires_approval": True, "risk": "high"})).compile()


def asking():
    return chain("trips", look=look, ask=ask).compile()


def stopping():
    return chain("trips", look=look, book=book).compile(interrupt_before=["book"], interrupt_after=["book"])


def asynchronous():
    return chain("trips", look=async_look, book=(book, {"requires_approval": True})).compile()


def failing():
    return chain("trips", look=look, fails=fails).compile()


def deep():
    desk = Agent(name="desk", model=ScriptedModel.by_turn([call("pay", {"euros": 90}), "Paid."]), tools=[pay])
    inner = chain("inner", desk=(desk, {"input": "wish", "output": lambda answer: {"log": [answer]}})).compile()
    return chain("trips", inner=inner).compile()


compiled = gated()
builder = StateGraph(Trip)
'''
STORE = "sqlite:///runs.db"


@pytest.fixture(autouse=True)
def works(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Beside the desk, an app with graphs in it."""
    (place / "works.py").write_text(WORKS)
    monkeypatch.delitem(sys.modules, "works", raising=False)
    return place


@pytest.fixture
def complained(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """What stands on standard error since the last look, whatever was printed."""
    return lambda: capsys.readouterr().err


def begin(name: str, **options: Any) -> Checkpoint:
    """A run that has stopped, begun by another process as far as the command line can tell."""
    sys.path.insert(0, os.getcwd())
    import works  # type: ignore[import-not-found]

    with SQLiteStore("runs.db") as kept:
        graph = getattr(works, name)()
        graph.store = kept
        result = graph.invoke({"wish": "Rome"}, thread_id="t1", **options)
        return result.checkpoint  # type: ignore[no-any-return]


def run(*line: str, app: str | None) -> int:
    options = [*(["--app", f"works:{app}"] if app else []), "--store", STORE]
    sys.modules.pop("works", None)
    return cli.run([*line, *options])


def ran() -> list[str]:
    path = Path("ran.txt")
    return path.read_text().splitlines() if path.exists() else []


def waiting() -> list[tuple[str, str]]:
    with SQLiteStore("runs.db") as store:
        return [(item.approval.tool_name, item.approval.why) for item in store.pending()]


# Looking


def test_show_tells_state_and_nodes_and_what_is_asked(said: Callable[[], str]) -> None:
    (item,) = begin("gated").pending
    for app in ("gated", "compiled"):
        assert run("show", item.id, app=app) == cli.DONE
        shown = said()
        assert shown.startswith(
            'State of graph trips\n  wish  text      "Rome"\n  pin   text      "1234"\n'
            '  log   list      ["looked at Rome"]\n  node      book: waits for approval\n'
        )
        assert "\nApproval needed: book\n" in shown
        assert re.search(r'state  object +\{"wish": "Rome", "pin": "1234", "log": \["looked at Rome"\]\}', shown)
        assert "  asked by  graph trips\n" in shown
        assert "  risk      high\n" in shown


def test_without_the_app_nothing_of_the_state_is_shown(said: Callable[[], str]) -> None:
    (item,) = begin("gated").pending
    for app in (None, "asking_of_another"):
        if app is not None:
            (Path("works.py")).write_text(WORKS + '\nasking_of_another = chain("other", look=look).compile()\n')
        assert run("show", item.id, app=app) == cli.DONE
        shown = said()
        assert not re.search(r"\b1234\b", shown) and "Rome" not in shown
        assert "  wish  secret    not shown\n" in shown
        assert "--reveal shows them" in shown
    assert run("show", item.id, "--reveal", app=None) == cli.DONE
    assert '  pin   text      "1234"\n' in said()


def test_a_question_a_breakpoint_and_a_stop_from_outside_are_called_that(said: Callable[[], str]) -> None:
    (item,) = begin("asking").pending
    assert run("show", item.id, app="asking") == cli.DONE
    shown = said()
    assert "\nQuestion from ask\n" in shown
    assert re.search(r'payload  text +"How many days\?"', shown)
    assert re.search(r'answer   object +\{"type": "integer"\}', shown)
    assert "  node      ask: asks\n" in shown
    stop = begin_other("stopping")
    assert run("show", stop.pending[0].id, app="stopping") == cli.DONE
    assert "\nStopped before book\n  (no arguments)\n" in said()
    assert run("approve", stop.pending[0].id, "--yes", app="stopping") == cli.PENDING
    said()
    with SQLiteStore("runs.db") as store:
        after = next(each for each in store.pending() if each.approval.tool_name == "book")
    assert run("show", after.approval.id, app="stopping") == cli.DONE
    assert "\nStopped after book\n  (no arguments)\n" in said()


def begin_other(name: str) -> Checkpoint:
    """Another run, on no thread."""
    import works

    with SQLiteStore("runs.db") as kept:
        graph = getattr(works, name)()
        graph.store = kept
        return graph.invoke({"wish": "Oslo"}).checkpoint  # type: ignore[no-any-return]


def test_what_is_asked_inside_is_shown_with_the_nodes_that_lead_there(said: Callable[[], str]) -> None:
    (item,) = begin("deep").pending
    assert run("show", item.id, app="deep") == cli.DONE
    shown = said()
    assert "  node      inner: waits inside\n" in shown
    assert "\nApproval needed: pay\n" in shown
    assert not re.search(r"\b4711\b", shown), "what the tool hides is hidden at any depth"
    assert re.search(r"euros +integer +90\n", shown), "and what it shows is shown"
    assert "  asked by  graph trips, in inner > desk\n" in shown


def test_for_machines_the_state_and_the_nodes_are_in_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    (item,) = begin("gated").pending
    capsys.readouterr()
    assert run("show", item.id, "--json", app="gated") == cli.DONE
    document = json.loads(capsys.readouterr().out)
    assert document["state"] == {"wish": "Rome", "pin": "1234", "log": ["looked at Rome"]}
    assert document["nodes"] == [{"name": "book", "status": "waits for approval"}]
    assert document["messages"] == []
    assert document["pending"][0]["args"]["state"]["wish"] == "Rome"
    assert run("show", item.id, "--json", app=None) == cli.DONE
    document = json.loads(capsys.readouterr().out)
    assert document["state"] == {"wish": "[redacted]", "pin": "[redacted]", "log": "[redacted]"}
    assert document["pending"][0]["args"] == {"state": "[redacted]"}


def test_pending_lists_why(said: Callable[[], str], capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("gated", "asking", "stopping", "deep"):
        begin(name) if name == "gated" else begin_other(name)
    said()
    assert run("pending", app=None) == cli.DONE
    lines = [line.split() for line in said().splitlines()]
    assert [(line[1], *[word for word in line if word in WHYS]) for line in lines[1:]] == [
        ("book", "approval"),
        ("ask", "question"),
        ("book", "breakpoint"),
        ("pay", "approval"),
    ]
    assert run("pending", "--count", "--tool", "ask", app=None) == cli.DONE
    assert said() == "1\n"


WHYS = ("approval", "question", "breakpoint")


def test_history_and_diff_of_a_graph(said: Callable[[], str]) -> None:
    checkpoint = begin("gated")
    assert run("history", checkpoint.id, app=None) == cli.DONE
    shown = said()
    assert shown.splitlines()[-1].split()[-2:] == ["suspended", "book"]
    with SQLiteStore("runs.db") as store:
        first = store.history(checkpoint.id)[0]
    assert run("diff", first.id, checkpoint.id, app=None) == cli.DONE
    assert "of the state" in said()
    for drawing in ("--mermaid", "--svg"):
        assert run("history", checkpoint.run_id, drawing, app=None) == cli.DONE
        assert "book" in said()


# Deciding


def test_a_gated_node_is_approved_and_the_run_goes_on_here(said: Callable[[], str]) -> None:
    (item,) = begin("gated").pending
    said()
    assert run("approve", item.id, "--yes", app="gated") == cli.DONE
    shown = said()
    assert '  node      runs book\n  node      book gave {"log": ["booked Rome"]}\n' in shown
    assert shown.endswith("The run is completed.\n")
    assert ran() == ["look", "book Rome"]


def test_an_async_graph_runs_in_an_event_loop(said: Callable[[], str]) -> None:
    sys.path.insert(0, os.getcwd())
    (item,) = begin("gated").pending
    said()
    assert run("approve", item.id, "--yes", app="asynchronous") == cli.DONE
    assert ran() == ["look", "book Rome"]


def test_a_gated_node_is_rejected(said: Callable[[], str]) -> None:
    (item,) = begin("gated").pending
    assert run("reject", item.id, "--yes", "--reason", "too far", app="gated") == cli.DONE
    assert said().endswith("The run is rejected.\n")
    assert ran() == ["look"]


def test_what_a_gated_node_is_given_is_edited_as_a_whole(
    said: Callable[[], str], complained: Callable[[], str]
) -> None:
    (item,) = begin("gated").pending
    assert run("edit", item.id, "--yes", "--args", '{"state": {"wish": "Bath"}}', app="gated") == cli.FAILED
    assert "Node book is given a whole state: pin, log is not in it" in complained()
    state = json.dumps({"state": {"wish": "Bath", "pin": "0", "log": []}})
    assert run("edit", item.id, "--yes", "--args", state, app="gated") == cli.DONE
    shown = said()
    assert "To be run: book\n" in shown
    assert ran() == ["look", "book Bath"]


def test_a_question_is_answered_and_a_wrong_answer_is_refused(
    said: Callable[[], str], complained: Callable[[], str]
) -> None:
    (item,) = begin("asking").pending
    assert run("respond", item.id, "three", "--yes", app="asking") == cli.FAILED
    assert item.id in complained()
    assert waiting() == [("ask", "question")]
    assert run("respond", item.id, "--json-content", "3", "--yes", app="asking") == cli.DONE
    assert 'ask gave {"log": ["3 days"]}' in said()
    assert ran() == ["look", "ask 3"]


def test_the_update_of_a_node_is_given_by_hand(said: Callable[[], str]) -> None:
    (item,) = begin("gated").pending
    assert run("respond", item.id, "--json-content", '{"log": ["by hand"]}', "--yes", app="gated") == cli.DONE
    assert ran() == ["look"]
    assert said().endswith("The run is completed.\n")


def test_a_breakpoint_is_let_go_on_by_approve_and_by_nothing_else(said: Callable[[], str]) -> None:
    stop = begin("stopping")
    said()
    assert run("recover", stop.run_id, "--yes", app="stopping") == cli.PENDING
    assert f"The run waits for 1 more:\n  book      phronomy approve {stop.pending[0].id} " in said()
    assert (ran(), waiting()) == (["look"], [("book", "breakpoint")]), "to go on is a decision, and nobody took it"
    assert run("approve", stop.pending[0].id, "--yes", app="stopping") == cli.PENDING
    assert (ran(), waiting()) == (["look", "book Rome"], [("book", "breakpoint")])
    with SQLiteStore("runs.db") as store:
        (after,) = store.pending()
    assert run("approve", after.approval.id, "--yes", "--by", "ada", app="stopping") == cli.DONE
    assert "The run is completed." in said()


def test_what_is_asked_inside_is_decided_from_outside(said: Callable[[], str]) -> None:
    (item,) = begin("deep").pending
    assert run("approve", item.id, "--yes", "--reveal", app="deep") == cli.DONE
    assert "The run is completed." in said()
    assert ran() == ["pay 90"]


def test_recover_runs_a_failed_node_again(said: Callable[[], str], complained: Callable[[], str]) -> None:
    Path("down").touch()
    with pytest.raises(Exception, match="the airline is down"):
        begin("failing")
    with SQLiteStore("runs.db") as store:
        (branch,) = store.branches()
    assert run("recover", branch.run_id, "--yes", app="failing") == cli.FAILED
    assert "fails failed: ConnectionError: the airline is down; resume the checkpoint to run it again" in complained()
    Path("down").unlink()
    said()
    assert run("recover", branch.run_id, "--yes", app="failing") == cli.DONE
    assert "fails gave" in said()
    assert ran() == ["look", "fails", "fails", "fails"]


# What is for agents, and what is no app


def test_chat_is_for_agents(told: Callable[[], str]) -> None:
    assert run("chat", app="gated") == cli.MISUSED
    shown = told()
    assert (
        "chat talks to agents, and <Graph 'trips', 2 nodes> is a graph: begin its runs in your app, and decide" in shown
    )
    assert "with pending, show, approve, reject, respond and edit" in shown


def test_a_builder_is_no_graph_yet_and_memory_is_no_store(told: Callable[[], str]) -> None:
    (item,) = begin("gated").pending
    assert run("show", item.id, app="builder") == cli.MISUSED
    assert "is a StateGraph: an Agent, a class of agents, a compiled graph or a function is needed" in told()
    assert cli.run(["show", item.id, "--app", "works:compiled"]) == cli.MISUSED
    assert "graph <Graph 'trips', 2 nodes> keeps its runs in memory" in told()


def test_a_graph_that_has_changed_is_refused_with_nothing_decided(complained: Callable[[], str]) -> None:
    (item,) = begin("gated").pending
    Path("works.py").write_text(WORKS.replace('"requires_approval": True, "risk"', '"risk"'))
    assert run("approve", item.id, "--yes", app="gated") == cli.FAILED
    assert "Nothing has happened (--accept-changes goes on all the same)" in complained()
    assert waiting() == [("book", "approval")]
