"""`phronomy drift`: what becomes of waiting requests with new code. And how a request says that it waits for an operator."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from phronomy import Agent, Approve, Reject, SQLiteStore, cli, tool
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker

OLD = "order_id: int, amount: float"

APP = '''
from phronomy import Agent, tool
from phronomy.testing import ScriptedModel, call


@tool(requires_approval=True)
def refund({parameters}) -> str:
    """Refund an order."""
    return "refunded"


def make() -> Agent:
    model = ScriptedModel.by_turn([call("refund", {{"order_id": 1, "amount": 5.0}}), "Done."])
    return Agent(name="desk", model=model, tools=[{tools}])
'''


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of its own, from which apps are imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def begin() -> str:
    """A run of the old code that waits: the pending id."""

    @tool(requires_approval=True)
    def refund(order_id: int, amount: float) -> str:
        """Refund an order."""
        return "refunded"

    model = ScriptedModel.by_turn([call("refund", {"order_id": 1, "amount": 5.0}), "Done."])
    with SQLiteStore("runs.db") as store:
        asked = Agent(name="desk", model=model, tools=[refund], store=store).invoke("go").checkpoint
    return asked.pending[0].id


def decide(store: SQLiteStore, pending_id: str, answer: Approve | Reject) -> None:
    """Record a decision with the store alone, for a worker to carry out."""
    item = store.request(pending_id).approval
    assert store.decide(pending_id, answer, by="ada", digest=item.digest).status == "decided"


def set_aside(store: SQLiteStore) -> None:
    """Have a worker without the tool try it, until it sets the run aside."""
    model = ScriptedModel.by_turn([call("x"), "Done."])
    worker = Worker(Agent(name="desk", model=model, store=store), tries=1, retry_wait=0.001)
    asyncio.run(worker.once())
    assert worker.health().set_aside


@pytest.mark.parametrize(
    ("name", "parameters", "tools", "verdict", "said", "status"),
    [
        ("same", OLD, "refund", "goes_on", "goes on", cli.DONE),
        ("again", f'{OLD}, currency: str = "EUR"', "refund", "asked_again", "is asked again", cli.DONE),
        ("narrower", f"{OLD}, currency: str", "refund", "breaks", "would break", cli.FAILED),
        ("gone", OLD, "", "breaks", "would break", cli.FAILED),
    ],
)
def test_it_says_what_becomes_of_each_request(
    there: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    parameters: str,
    tools: str,
    verdict: str,
    said: str,
    status: int,
) -> None:
    pending_id = begin()
    (there / f"desk_{name}.py").write_text(APP.format(parameters=parameters, tools=tools))
    line = ("drift", "--app", f"desk_{name}:make", "--store", "sqlite:///runs.db")
    assert cli.run(line) == status
    printed = capsys.readouterr().out
    assert pending_id in printed and said in printed
    assert cli.run([*line, "--json"]) == status
    (found,) = json.loads(capsys.readouterr().out)["items"]
    assert (found["pending_id"], found["tool"], found["verdict"]) == (pending_id, "refund", verdict)
    assert bool(found["why"]) == (verdict != "goes_on")
    with SQLiteStore("runs.db") as store:
        assert [each.approval.id for each in store.pending()] == [pending_id]


@pytest.mark.parametrize("status", ["decided", "set_aside"])
@pytest.mark.parametrize(
    ("name", "parameters", "tools", "verdict", "exits"),
    [
        ("kept", OLD, "refund", "goes_on", cli.DONE),
        ("asks", f'{OLD}, currency: str = "EUR"', "refund", "asked_again", cli.DONE),
        ("needs", f"{OLD}, currency: str", "refund", "breaks", cli.FAILED),
        ("without", OLD, "", "breaks", cli.FAILED),
    ],
)
def test_it_judges_what_is_decided_and_waits_for_a_worker(
    there: Path,
    capsys: pytest.CaptureFixture[str],
    status: str,
    name: str,
    parameters: str,
    tools: str,
    verdict: str,
    exits: int,
) -> None:
    pending_id = begin()
    with SQLiteStore("runs.db") as store:
        decide(store, pending_id, Approve())
        if status == "set_aside":
            set_aside(store)
        assert store.request(pending_id).status == status
    (there / f"desk_{name}.py").write_text(APP.format(parameters=parameters, tools=tools))
    line = ("drift", "--app", f"desk_{name}:make", "--store", "sqlite:///runs.db")
    assert cli.run([*line, "--json"]) == exits
    (found,) = json.loads(capsys.readouterr().out)["items"]
    assert (found["pending_id"], found["tool"], found["status"], found["verdict"]) == (
        pending_id,
        "refund",
        status,
        verdict,
    )
    assert cli.run(line) == exits
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{pending_id} refund {status.replace('_', ' ')}" in printed
    with SQLiteStore("runs.db") as store:
        assert store.request(pending_id).status == status


def test_a_rejection_that_waits_for_a_worker_needs_no_tool(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pending_id = begin()
    with SQLiteStore("runs.db") as store:
        decide(store, pending_id, Reject(reason="no"))
    (there / "desk_bare.py").write_text(APP.format(parameters=OLD, tools=""))
    assert cli.run(("drift", "--app", "desk_bare:make", "--store", "sqlite:///runs.db", "--json")) == cli.DONE
    (found,) = json.loads(capsys.readouterr().out)["items"]
    assert (found["pending_id"], found["status"], found["verdict"]) == (pending_id, "decided", "goes_on")


def test_requests_of_another_name_are_an_error_unless_the_agent_is_named(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, decided = begin(), begin()
    with SQLiteStore("runs.db") as store:
        decide(store, decided, Approve())
    app = APP.format(parameters=OLD, tools="refund").replace('"desk"', '"counter"')
    (there / "desk_renamed.py").write_text(app)
    line = ("drift", "--app", "desk_renamed:make", "--store", "sqlite:///runs.db")
    assert cli.run(line) == cli.FAILED
    said = capsys.readouterr()
    assert (said.out, " ".join(said.err.split())) == (
        "",
        "2 requests of other agents (desk) are not checked: was 'counter' renamed? If other apps carry them out, give --agent counter",
    )
    assert cli.run([*line, "--json"]) == cli.FAILED
    assert json.loads(capsys.readouterr().out) == {"items": [], "unchecked": {"desk": 2}}
    # The store has several apps, and the others check theirs.
    assert cli.run([*line, "--agent", "counter"]) == cli.DONE
    assert "Nothing waits" in capsys.readouterr().out
    # The name that is deployed, in the pipeline: then a new name is found.
    assert cli.run([*line, "--agent", "desk", "--json"]) == cli.FAILED
    items = json.loads(capsys.readouterr().out)["items"]
    assert [(each["pending_id"], each["verdict"]) for each in items] == [(first, "breaks"), (decided, "breaks")]
    assert all("the agent was 'desk' and is 'counter'" in each["why"] for each in items)


def test_a_damaged_request_would_break_and_the_others_are_listed(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    well, hurt = begin(), begin()
    with closing(sqlite3.connect("runs.db")) as db, db:
        db.execute("UPDATE phronomy_pending SET body = 'x' WHERE pending_id = ?", (hurt,))
    (there / "desk_damaged.py").write_text(APP.format(parameters=OLD, tools="refund"))
    line = ("drift", "--app", "desk_damaged:make", "--store", "sqlite:///runs.db")
    assert cli.run(line) == cli.FAILED
    printed = capsys.readouterr()
    assert well in printed.out and f"pending {hurt}" in printed.err
    assert cli.run([*line, "--json"]) == cli.FAILED
    said = json.loads(capsys.readouterr().out)
    assert [each["pending_id"] for each in said["items"]] == [well]
    assert [each["id"] for each in said["unreadable"]] == [hurt]


def test_where_nothing_waits_it_says_so(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SQLiteStore("runs.db").close()
    (there / "desk_idle.py").write_text(APP.format(parameters=OLD, tools="refund"))
    assert cli.run(("drift", "--app", "desk_idle:make", "--store", "sqlite:///runs.db")) == cli.DONE
    assert "Nothing waits for a decision, or for a worker." in capsys.readouterr().out


def test_a_decision_that_is_set_aside_says_that_it_waits_for_an_operator(capsys: pytest.CaptureFixture[str]) -> None:
    pending_id = begin()
    why = "the agent has changed: tool 'refund' of a pending call is gone"
    with SQLiteStore("runs.db") as store:
        bare = Agent(name="desk", model=ScriptedModel.by_turn([call("x"), "Done."]), store=store)
        item = store.request(pending_id).approval
        assert store.decide(pending_id, Approve(), by="ada", digest=item.digest).status == "decided"
        worker = Worker(bare, tries=2, retry_wait=0.001)
        asyncio.run(worker.once())
        assert store.request(pending_id).status == "decided"
        while not worker.health().set_aside:
            asyncio.run(worker.carry_out(store.request(pending_id).run_id))
        shown = store.request(pending_id)
        assert (shown.status, shown.set_aside, shown.run_status) == ("set_aside", why, "failed")
        asyncio.run(Worker(bare, tries=1).once())  # another worker says it once more
        assert store.request(pending_id).set_aside == why
    assert cli.run(("show", pending_id, "--store", "sqlite:///runs.db")) == cli.DONE
    assert f"this waits for an operator: {why}" in " ".join(capsys.readouterr().out.split())
    with SQLiteStore("runs.db") as store:
        bare = Agent(name="desk", model=ScriptedModel.by_turn([call("x"), "Done."]), store=store)
        asyncio.run(Worker(bare, accept_changes=True).once())
        shown = store.request(pending_id)
        assert (shown.status, shown.set_aside) == ("settled", None)


@pytest.mark.parametrize(
    ("aside", "status", "left"),
    [
        (False, "the run waits: for another decision, or for a worker", "approved, waits for a worker"),
        (True, "this waits for an operator", "approved, set aside: waits for an operator"),
    ],
)
def test_what_is_decided_and_not_carried_out_is_told_wherever_one_looks(
    capsys: pytest.CaptureFixture[str], aside: bool, status: str, left: str
) -> None:
    pending_id = begin()
    with SQLiteStore("runs.db") as store:
        decide(store, pending_id, Approve())
        if aside:
            set_aside(store)
        found = store.request(pending_id)
    here = ("--store", "sqlite:///runs.db")
    shown = []
    for id in (pending_id, found.run_id, found.checkpoint_id):
        assert cli.run(("show", id, *here)) == cli.DONE
        shown.append(capsys.readouterr().out)
        assert cli.run(("show", id, "--json", *here)) == cli.DONE
        document = json.loads(capsys.readouterr().out)
        assert (document["pending"], document["decided"]["pending_id"]) == ([], pending_id)
    assert shown[0] == shown[1] == shown[2]
    assert status in " ".join(shown[0].split()) and "Approval needed" not in shown[0]
    assert cli.run(("runs", *here)) == cli.DONE
    assert f"  {left}  " in capsys.readouterr().out
    assert cli.run(("runs", "--json", *here)) == cli.DONE
    assert [each["left"] for each in json.loads(capsys.readouterr().out)["items"]] == [left]
    assert cli.run(("pending", *here)) == cli.DONE
    told = capsys.readouterr().out
    noted = " (1 set aside, for an operator)" if aside else ""
    assert f"1 decided, not carried out{noted}:" in told
    assert "phronomy work --app module:agent --store sqlite:///runs.db" in told


@pytest.mark.parametrize(
    ("line", "status", "why"),
    [
        ("approve pend_x --yes", cli.FAILED, "phronomy pending lists what waits"),
        ("show run_x", cli.FAILED, "phronomy runs all runs"),
        ("timeline chat-7", cli.MISUSED, "is a thread: phronomy runs --thread chat-7 lists its runs"),
        ("resume run_x", cli.MISUSED, "there is no command resume: did you mean approve, reject, respond or edit?"),
        ("decide run_x", cli.MISUSED, "there is no command decide: did you mean approve, reject, respond or edit?"),
        ("drift", cli.MISUSED, "this takes the code of the agent"),
    ],
)
def test_errors_speak_of_the_command_line(capsys: pytest.CaptureFixture[str], line: str, status: int, why: str) -> None:
    with SQLiteStore("runs.db") as store:
        Agent(name="desk", model=ScriptedModel(["Hello."]), store=store).invoke("go", thread_id="chat-7")
    assert cli.run((*line.split(), "--store", "sqlite:///runs.db")) == status
    said = capsys.readouterr().err
    assert why in said and "store." not in said


def test_a_worker_makes_a_new_file_and_a_command_that_reads_does_not(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (there / "desk_new.py").write_text(APP.format(parameters=OLD, tools="refund"))
    here = ("--app", "desk_new:make", "--store", "sqlite:///new.db")
    assert cli.run(("pending", *here)) == cli.FAILED
    assert "there is no file new.db" in capsys.readouterr().err and not Path("new.db").exists()
    assert cli.run(("work", "--once", *here)) == cli.DONE
    assert Path("new.db").exists()
    assert cli.run(("pending", *here)) == cli.DONE
    with socket.create_server(("127.0.0.1", 0)) as taken:
        served = ("serve", "--chat", "--port", str(taken.getsockname()[1]), *here[:3], "sqlite:///served.db")
        assert cli.run(served) == cli.MISUSED
    assert "nobody can listen" in capsys.readouterr().err and Path("served.db").exists()
    with closing(sqlite3.connect("foreign.db")) as db, db:
        db.execute("CREATE TABLE other (a)")
    assert cli.run(("work", "--once", *here[:3], "sqlite:///foreign.db")) == cli.FAILED
    assert "is no store of phronomy's" in capsys.readouterr().err
