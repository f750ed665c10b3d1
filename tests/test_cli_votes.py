"""Votes on the command line: who may decide, what is missing, and that a vote that does not decide says so and is no error."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from test_cli_runs import STORE, said, told

from phronomy import Approve, PendingApproval, SQLiteStore, cli
from phronomy.people.directory import StoreDirectory
from phronomy.records.people import Person

__all__ = ["said", "told"]  # fixtures

APP = '''
from phronomy import Agent, Approval, tool
from phronomy.testing import ScriptedModel, call
from phronomy.tools.approvers import Escalate


def made(**terms):
    @tool(requires_approval=Approval(**terms))
    def pay(order: int) -> str:
        """Pay."""
        return f"paid {order}"

    model = ScriptedModel.by_turn([call("pay", {"order": 1042}), "Done."])
    return Agent(name="desk", model=model, tools=[pay])


def make():
    later = [Escalate(after=7200, by="board", needed=1)]
    return made(by="finance", needed=2, rejections=2, not_requester=True, escalate=later)


during = []  # what is done while `look` runs


def both():
    @tool(requires_approval=True)
    def look() -> str:
        """Look."""
        for each in during:
            each()
        return "seen"

    @tool(requires_approval=Approval(by="finance", needed=2))
    def pay(order: int) -> str:
        """Pay."""
        return f"paid {order}"

    model = ScriptedModel.by_turn([[call("look"), call("pay", {"order": 1042})], "Done."])
    return Agent(name="desk", model=model, tools=[look, pay])


def hostile():
    return made(by="fin\\u0430nce\\x1b[31m\\n  missing   0", needed=2)
'''


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory with an app in it, whose user is rita; she, ada and bob are in finance, and dora stands for bob."""
    for name in ("COLUMNS", "LINES", "PHRONOMY_APP", "PHRONOMY_DEPS", "PHRONOMY_STORE", "PHRONOMY_TENANT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "rita")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "payer.py").write_text(APP)
    monkeypatch.delitem(sys.modules, "payer", raising=False)
    with SQLiteStore("runs.db") as store:
        directory = StoreDirectory(store)
        for id in ("rita", "ada", "bob"):
            directory.add(Person(id=id, roles=("finance",)))
        directory.add(Person(id="dora"))
        directory.name_deputy("bob", "dora")
    return tmp_path


def begin(app: str = "make") -> PendingApproval:
    """A request that waits, as the app of another process has asked it."""
    import payer

    with SQLiteStore("runs.db") as store:
        agent = getattr(payer, app)()
        agent.store = store
        (item,) = agent.invoke("go", thread_id="t1", requester="carl").checkpoint.pending
        return item  # type: ignore[no-any-return]


def run(*line: str, app: str | None = "payer:make") -> int:
    return cli.run([line[0], *(["--app", app] if app else []), "--store", STORE, *line[1:]])


WITHOUT_APP = pytest.mark.parametrize("app", ["payer:make", None], ids=["app", "store"])


@WITHOUT_APP
def test_a_vote_is_recorded_and_the_last_one_decides(said: Callable[[], str], app: str | None) -> None:
    item = begin()
    assert run("approve", item.id, "--yes", "--reveal", "--by", "ada", app=app) == cli.VOTED == 5
    shown = said()
    told = shown[shown.index("The vote is recorded") :]
    assert re.fullmatch(
        r"The vote is recorded. The request waits for others:\n"
        r"  needs     2 of finance, but not the requester; 2 to reject\n"
        r"  later     from \S+ \S+ UTC: also board; it takes 1 then\n"
        r"  vote      approve by ada \(cli\), \S+ \S+ UTC\n"
        r"  missing   1 of 2\n"
        rf"  pending   {item.id}\n",
        told,
    )
    assert run("approve", item.id, "--yes", "--reveal", "--by", "bob", app=app) == cli.DONE
    assert re.search(r"It was approved by bob \(cli\) at", said())


@WITHOUT_APP
def test_who_may_not_vote_and_who_has_voted_is_told_in_a_line(told: Callable[[], str], app: str | None) -> None:
    item = begin()
    assert run("reject", item.id, "--yes", "--json", "--by", "carl", app=app) == cli.FAILED
    assert f"carl may not reject pending {item.id}: it takes 2 of finance, but not the requester" in told()
    assert run("reject", item.id, "--yes", "--json", "--by", "ada", app=app) == cli.VOTED


def test_a_person_votes_once_on_the_command_line(told: Callable[[], str], said: Callable[[], str]) -> None:
    item = begin()
    assert run("approve", item.id, "--yes", "--reveal", "--by", "ada") == cli.VOTED
    said()
    assert run("approve", item.id, "--yes", "--reveal", "--json", "--by", "ada") == cli.FAILED
    assert "has voted" in told()


def test_for_machines_the_document_says_that_it_was_a_vote(capsys: pytest.CaptureFixture[str]) -> None:
    item = begin()
    for app, by in (("payer:make", "ada"), (None, "dora")):
        assert run("reject", item.id, "--yes", "--json", "--by", by, "--reason", "too much", app=app) in (
            cli.VOTED,
            cli.DONE,
        )
    first, second = (json.loads(text) for text in re.split(r"(?<=\n})\n(?={)", capsys.readouterr().out))
    vote = first["vote"]
    assert (first["status"], first["decision"]) == ("suspended", None)
    assert (vote["kind"], vote["by"], vote["behalf_of"], vote["reason"], vote["pending_id"]) == (
        "reject", "ada", None, "too much", item.id,
    )  # fmt: skip
    assert [(each["missing"], each["rejected"], each["rejections"]) for each in vote["approvers"]] == [(2, 1, 2)]
    assert (second["status"], second["decision"]["by"], second["decision"]["behalf_of"]) == ("decided", "dora", "bob")
    assert [each["by"] for each in second["decision"]["votes"]] == ["ada", "dora"]
    assert "vote" not in second


@pytest.mark.parametrize("app", ["payer:both", None], ids=["app", "store"])
def test_a_vote_on_a_run_that_a_worker_drives_is_told_as_a_vote(said: Callable[[], str], app: str | None) -> None:
    import payer

    statuses: list[int] = []
    with SQLiteStore("runs.db") as store:
        agent = payer.both()
        agent.store = store
        waiting = agent.invoke("go").checkpoint
        look, pay = waiting.pending
        vote = ("approve", pay.id, "--yes", "--reveal", "--by", "ada")
        payer.during.append(lambda: statuses.append(run(*vote, app=app)))
        agent.resume(waiting, decisions={look.id: Approve()}, by="rita")
        assert statuses == [cli.VOTED]
        shown = said()
        assert "The vote is recorded. The request waits for others:\n" in shown and "  missing   1 of 2\n" in shown
        (row,) = store.pending()
        assert [each.by.id for each in row.approval.votes] == ["ada"]


@WITHOUT_APP
def test_an_edit_begins_the_votes_on_what_it_came_to(said: Callable[[], str], app: str | None) -> None:
    item = begin()
    assert run("approve", item.id, "--yes", "--reveal", "--by", "ada", app=app) == cli.VOTED
    said()
    assert run("edit", item.id, "--args", '{"order": 7}', "--yes", "--by", "bob") == cli.VOTED
    shown = said()
    with SQLiteStore("runs.db") as store:
        (row,) = store.pending()
    assert row.approval.id != item.id and f"  pending   {row.approval.id}\n" in shown
    assert re.search(r"\n  vote      approve by bob \(cli\), .*\n  missing   1 of 2\n", shown)


def test_what_waits_shows_who_may_decide_what_is_missing_and_until_when(said: Callable[[], str]) -> None:
    item = begin()
    assert run("pending") == cli.DONE
    assert re.search(r"MAY DECIDE +VOTES +ESCALATES +WHY .*\n.* finance +0 of 2 +in 1 hour +approval ", said())
    assert run("respond", item.id, "paid by hand", "--yes", "--by", "dora") == cli.VOTED
    assert "  vote      respond by dora for bob (cli), " in said()
    assert run("show", item.id) == cli.DONE
    assert re.search(
        r"  needs     2 of finance, but not the requester; 2 to reject\n  later     .*\n  vote .*\n  missing   1 of 2\n",
        said(),
    )
    assert run("show", item.id, "--json") == cli.DONE
    (pending,) = json.loads(said())["pending"]
    (level,) = pending["approvers"]
    assert (level["roles"], level["needed"], level["missing"], level["not_requester"]) == (["finance"], 2, 1, True)
    assert [(each["roles"], each["needed"]) for each in level["escalations"]] == [(["board"], 1)]
    assert [(each["kind"], each["by"], each["behalf_of"]) for each in pending["votes"]] == [("respond", "dora", "bob")]
    assert pending["policy"] == item.policy


def test_the_timeline_and_the_trail_show_votes(said: Callable[[], str]) -> None:
    item = begin()
    run("approve", item.id, "--yes", "--reveal", "--by", "dora", app=None)
    run("approve", item.id, "--yes", "--reveal", "--by", "carl", app=None)
    said()
    assert run("timeline", item.id, "--ids") == cli.DONE
    shown = said()
    assert re.search(
        rf" voted +desk +pay, approve, by dora, behalf_of bob, channel cli, missing tool 1, {item.id} ", shown
    )
    assert cli.run(["audit", "--store", STORE, "--table"]) == cli.DONE
    assert re.findall(r"UTC  (approve, \w+) +pay +(.*?)  +cli", said()) == [
        ("approve, vote", "dora for bob"),
        ("approve, refused", "carl"),
    ]


def test_a_diff_shows_votes(said: Callable[[], str]) -> None:
    item = begin()
    assert run("approve", item.id, "--yes", "--reveal", "--by", "ada") == cli.VOTED
    with SQLiteStore("runs.db") as store:
        (first, second) = store.history(store.pending()[0].checkpoint_id)[-2:]
    said()
    assert run("diff", first.id, second.id) == cli.DONE
    assert f"vote on {item.id} added: approve" in said()
    assert run("diff", first.id, second.id, "--json") == cli.DONE
    assert [(each["change"], each["by"]) for each in json.loads(said())["votes"]] == [("added", "ada")]


def test_names_of_roles_are_written_out_and_cannot_pass_for_another_line(said: Callable[[], str]) -> None:
    item = begin("hostile")
    assert run("show", item.id) == cli.DONE
    shown = said()
    assert "\x1b" not in shown and "\u0430" not in shown
    assert "fin\\u0430nce\\x1b[31m" in shown
    assert not re.search(r"^  missing", shown, re.MULTILINE)
    assert run("pending") == cli.DONE
    shown = said()
    assert "\x1b" not in shown and "\u0430" not in shown and len(shown.splitlines()) == 2


def test_the_debugger_shows_votes_and_goes_on_after_one(
    said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    item = begin()
    monkeypatch.setattr(sys, "stdin", io.StringIO("approve\napprove\ninfo\n"))
    assert run("debug", "--run", item.id, "--by", "ada") == cli.PENDING
    shown = said()
    assert "  missing   1 of 2\n" in shown
    assert f"error: ada has voted on pending {item.id} before" in shown
    assert "waits 1" in shown


def test_a_chat_says_that_the_vote_is_recorded_and_asks_nobody_twice(
    said: Callable[[], str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from phronomy.cli.screen import Screen

    answers = iter(["a"])
    monkeypatch.setattr(Screen, "interactive", property(lambda self: True))
    monkeypatch.setattr(Screen, "ask", lambda self, question, afresh=False: next(answers))
    begin()
    assert run("chat", "--thread", "t1", "--by", "ada") == cli.PENDING
    shown = capsys.readouterr()
    assert "The vote is recorded. The request waits for others:" in shown.out
    assert "You have voted on all that waits. It takes the votes of others." in shown.out
    assert "A decision is still pending." in shown.err
