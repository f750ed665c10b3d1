"""The commands that list, compare and take away: filters, pages, the audit trail, tenants; what lapsed and what was left."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE
from inbox_scenes import desk
from redis_server import redis_url
from servers import postgres_url
from test_cli_runs import STORE, place, said, told

from phronomy import Approve, Checkpoint, MemoryStore, Result, RunBusy, SQLiteStore, cli, open_store
from phronomy.cli.apps import Place
from phronomy.cli.commands import recover
from phronomy.cli.commands.chat import Chat
from phronomy.cli.views import Mask
from phronomy.cli.words import WrongUsage, age, ahead, moment_of

__all__ = ["place", "said", "told"]  # fixtures

TILL = '''
import re
from pathlib import Path

from phronomy import Agent, Announcements, SQLiteStore, tool
from phronomy.testing import ScriptedModel, call


@tool(requires_approval=True, risk="high", approval_timeout=3600)
def refund(order_id: int) -> str:
    """Refund an order."""
    with Path("refunds.txt").open("a") as file:
        file.write(f"{order_id}\\n")
    return "refunded"


@tool(requires_approval=True)
def ship(order_id: int) -> str:
    """Ship an order."""
    return "shipped"


def reply(request):
    last = request.messages[-1]
    if last.role != "user":
        return f"Done: {last.settlement}."
    return [call(word, {"order_id": 7}) for word in re.findall("refund|ship", last.text)] or "Hello."


class Told(Announcements):
    def on_suspended(self, event):
        self.tell(event)

    def on_completed(self, event):
        self.tell(event)

    def tell(self, event):
        if Path("deaf").exists():
            raise RuntimeError
        print("telling")
        with Path("told.txt").open("a") as file:
            file.write(f"{event.type}\\n")


class Later(Told):
    async def on_completed(self, event):
        self.tell(event)


def make(*told):
    return Agent(name="till", model=ScriptedModel(reply), tools=[refund, ship], announcements=told)


def telling():
    return make(Told())


def later():
    return make(Later())


def keeping():
    agent = make()
    agent.store = SQLiteStore("runs.db", ttl=3600)
    return agent
'''

LONG_AGO = 10_000.0
"""Seconds: longer than anybody has to decide."""


@pytest.fixture(autouse=True)
def till(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "till.py").write_text(TILL)
    monkeypatch.delitem(sys.modules, "till", raising=False)
    monkeypatch.syspath_prepend(str(place))


def work(said: str, *, ago: float = 0.0, url: str = STORE, app: str = "make", **options: Any) -> Result[Any]:
    """A run of the till, begun so many seconds ago by another process, as far as the command line can tell."""
    till = import_module("till")
    with open_store(url) as store:
        store.clock = lambda: time.time() - ago
        agent = getattr(till, app)()
        agent.store = store.for_tenant(options.pop("tenant", ""))
        result: Result[Any] = agent.invoke(said, **options)
        return result


def begin(said: str, **options: Any) -> Checkpoint:
    return work(said, **options).checkpoint


def run(*line: str, app: str | None = None, store: str | None = STORE) -> int:
    sys.modules.pop("till", None)
    options = [*(["--app", app] if app else []), *(["--store", store] if store else [])]
    return cli.run([line[0], *options, *line[1:]])


def ids(text: str) -> list[str]:
    return [each["pending_id"] for each in json.loads(text)["items"]]


# What waits


def test_what_waits_is_found_by_any_of_its_facets(said: Callable[[], str]) -> None:
    old = begin("refund ship", thread_id="t1", label="vip", ago=LONG_AGO).pending
    new = begin("ship", thread_id="t2").pending
    refund, ship, other = (item.id for item in (*old, *new))
    for options, found in {
        "": [refund, ship, other],
        "--tool ship": [ship, other],
        "--risk high": [refund],
        "--label vip": [refund, ship],
        "--label vip --tool ship": [ship],
        "--agent till --thread t2": [other],
        "--agent desk": [],
        "--older-than 2h": [refund, ship],
        "--older-than 9999": [refund, ship],
        "--older-than 3d": [],
        "--newest": [other, ship, refund],
        "--newest --limit 1": [other],
    }.items():
        assert run("pending", "--json", *options.split()) == cli.DONE
        assert ids(said()) == found, options
    for options, count in {"": "3", "--tool ship": "2", "--older-than 150m --json": "2", "--run run_0": "0"}.items():
        assert run("pending", "--count", *options.split()) == cli.DONE
        assert said() == f"{count}\n", options


def test_risk_lapse_and_label_have_a_column_where_anything_has_them(said: Callable[[], str]) -> None:
    begin("ship", thread_id="t1")
    assert run("pending") == cli.DONE
    assert said().splitlines()[0].split() == ["PENDING", "ABOUT", "SINCE", "WHY", "AGENT", "THREAD"]
    begin("refund", thread_id="t2", label="vip")
    begin("refund", thread_id="t3", ago=LONG_AGO)
    assert run("pending") == cli.DONE
    heads, late, plain, soon = said().splitlines()
    assert heads.split() == ["PENDING", "ABOUT", "SINCE", "RISK", "LAPSES", "WHY", "AGENT", "THREAD", "LABEL"]
    assert re.search(r"  high  lapsed +approval .* -$", late)
    assert re.search(r"  - +- +approval .* -$", plain)
    assert re.search(r"  high  in 59 minutes  approval .* vip$", soon)


def test_each_page_says_how_to_see_the_next_one(said: Callable[[], str]) -> None:
    waiting = [begin("ship", thread_id=f"t {number}", label="a 'b'").pending[0].id for number in range(5)]
    seen: list[str] = []
    line = ["phronomy", "pending", "--tool=ship", "--label=a 'b'", "--limit=2", "--store", STORE]
    for _ in range(3):
        assert cli.run(line[1:]) == cli.DONE
        shown = said()
        seen += re.findall(r"^pend_\w+", shown, re.MULTILINE)
        rest = shown.partition("There are more:\n")[2]
        assert bool(rest) == (len(seen) < 5)
        line = shell_words(rest) or line
    assert seen == waiting
    assert run("pending", "--json", "--limit", "4") == cli.DONE
    page = json.loads(said())
    assert run("pending", "--json", "--after", page["next"]) == cli.DONE
    last = json.loads(said())
    assert [*(each["pending_id"] for each in page["items"]), last["items"][0]["pending_id"]] == waiting
    assert last["next"] is None


def shell_words(line: str) -> list[str]:
    """The words of a command line, as a shell reads it."""
    words = subprocess.run(["sh", "-c", f"printf '%s\\0' {line.strip()}"], check=True, capture_output=True, text=True)
    return words.stdout.split("\0")[:-1] if line else []


def test_a_url_that_may_hold_a_password_is_not_in_the_next_command_line(said: Callable[[], str]) -> None:
    url = redis_url()
    for _ in range(2):
        begin("ship", url=url)
    assert run("pending", "--limit", "1", store=url) == cli.DONE
    shown = said()
    assert "phronomy pending --limit=1 --after=" in shown and shown.endswith(" --store URL\n")
    assert "127.0.0.1" not in shown


# Checkpoints


def test_checkpoints_are_listed_filtered_and_paged(said: Callable[[], str]) -> None:
    first = begin("ship", thread_id="t1", label="vip")
    second = begin("Hi", thread_id="t2")
    assert run("list") == cli.DONE
    heads, *rows = said().splitlines()
    assert heads.split() == ["CHECKPOINT", "RUN", "THREAD", "AGENT", "AT", "LABEL"]
    assert [row.split()[0] for row in rows] == [first.parent_id, first.id, second.parent_id, second.id]
    assert rows[0].split()[1:4] + rows[0].split()[-1:] == [first.run_id, "t1", "till", "vip"]
    for options, found in {
        "--labeled": [first.parent_id],
        "--label vip": [first.parent_id],
        "--thread t2": [second.parent_id, second.id],
        f"--run {first.run_id} --agent till": [first.parent_id, first.id],
        "--agent desk": [],
    }.items():
        assert run("list", "--json", *options.split()) == cli.DONE
        page = json.loads(said())
        assert ([each["checkpoint_id"] for each in page["items"]], page["next"]) == (found, None), options
    assert run("list", "--json", "--limit", "3") == cli.DONE
    page = json.loads(said())
    assert page["items"][0] == {
        "checkpoint_id": first.parent_id,
        "run_id": first.run_id,
        "branch_id": first.run_id,
        "thread_id": "t1",
        "agent": "till",
        "label": "vip",
        "created_at": page["items"][0]["created_at"],
    }
    assert run("list", "--after", page["next"]) == cli.DONE
    assert said().splitlines()[1].startswith(second.id)
    assert run("list", "--agent", "desk") == cli.DONE
    assert said() == "No checkpoint is kept.\n"


def test_two_places_are_compared_without_what_was_said(said: Callable[[], str]) -> None:
    asked = begin("ship my secret thing")
    assert run("diff", str(asked.parent_id), asked.pending[0].id) == cli.DONE
    heading, *details = said().splitlines()
    assert heading.startswith(f"{asked.parent_id} -> {asked.id}: running ->")
    assert f"  pending {asked.pending[0].id} (ship) added" in details
    assert "  message 1 added (assistant)" in details
    assert run("diff", str(asked.parent_id), asked.id, "--json") == cli.DONE
    text = said()
    found = json.loads(text)
    assert (found["before_id"], found["after_id"], found["status"]) == (
        asked.parent_id,
        asked.id,
        ["running", "suspended"],
    )
    assert found["messages"] == [{"change": "added", "at": 1}]
    assert (found["pending"][0]["id"], found["usage"]["requests"]) == (asked.pending[0].id, 1)
    assert "secret thing" not in text and "order_id" not in text
    assert run("diff", asked.id, asked.run_id) == cli.DONE
    assert said() == f"{asked.id} -> {asked.id}: no difference\n"


# Who decided what


def test_the_trail_is_a_line_of_json_each_or_a_table(said: Callable[[], str]) -> None:
    first, second = begin("refund ship", thread_id="t1").pending
    other = begin("ship", thread_id="t2")
    assert run("reject", first.id, "--yes", "--by", "olga", "--reason", "too \x9b late", app="till:make") == cli.PENDING
    assert run("approve", second.id, "--yes", "--by", "rita", app="till:make") == cli.DONE
    assert run("approve", other.pending[0].id, "--yes", "--by", "rita", app="till:make") == cli.DONE
    said()
    assert run("audit") == cli.DONE
    text = said()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(each["kind"], each["by"]["id"], each["pending_id"]) for each in lines] == [
        ("reject", "olga", first.id),
        ("approve", "rita", second.id),
        ("approve", "rita", other.pending[0].id),
    ]
    assert (lines[0]["reason"], lines[0]["channel"], lines[0]["digest"]) == ("too \x9b late", "cli", first.digest)
    assert text.isascii() and "order_id" not in text
    for options, count in {
        f"--run {other.run_id}": 1,
        "--thread t1": 2,
        f"--pending {first.id}": 1,
        "--since 1h": 3,
        "--since 2020-01-01 --until 2020-01-01T12:00:00Z": 0,
        "--until 1h": 0,
    }.items():
        assert run("audit", *options.split()) == cli.DONE
        assert len(said().splitlines()) == count, options
    assert run("audit", "--table", "--thread", "t1") == cli.DONE
    heads, no, _ = said().splitlines()
    assert heads.split() == ["AT", "DECISION", "TOOL", "BY", "CHANNEL", "PENDING", "RUN", "REASON"]
    assert no.split()[3:7] == ["reject", "refund", "olga", "cli"] and no.endswith("too \\x9b late")
    assert run("audit", "--table", "--run", "run_0") == cli.DONE
    assert said() == "Nothing was decided.\n"


def test_the_table_of_the_trail_tells_an_edit_from_its_check(place: Path, said: Callable[[], str]) -> None:
    with SQLiteStore("runs.db") as store:
        agent = desk(store)
        (item,) = agent.invoke("Refund order 1").checkpoint.pending
        store.decide(item.id, Approve(args={"order": 2}), by="rita", digest=item.digest)
        agent.recover_all()
    assert run("audit", "--table") == cli.DONE
    _, first, second = said().splitlines()
    assert "approve, edited  " in first and "approve, edited, checked  " in second


def test_a_reader_of_the_trail_that_has_had_enough_is_no_error_message(place: Path) -> None:
    till = import_module("till")
    with SQLiteStore("runs.db") as store:
        agent = till.make()
        agent.store = store
        for number in range(30):
            agent.cancel(agent.invoke("ship", thread_id=f"t{number}").checkpoint, reason="long " * 1000)
    reader, writer = os.pipe()
    done = subprocess.Popen(
        [sys.executable, "-m", "phronomy", "audit", "--store", STORE], stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert os.read(reader, 10) == b'{"version"'
    os.close(reader)
    assert done.communicate(timeout=PATIENCE)[1] == b""
    assert done.returncode == cli.FAILED


def test_who_decided_is_found_however_long_ago_and_after_the_run_is_gone(
    told: Callable[[], str], said: Callable[[], str]
) -> None:
    (item,) = begin("ship").pending
    assert run("reject", item.id, "--yes", "--by", "olga", app="till:make") == cli.DONE
    for _ in range(120):
        begin("Hi")
    said()
    assert run("approve", item.id, "--yes", app="till:make") == cli.FAILED
    who = rf"phronomy: error: this was decided before: rejected by olga \(cli\) at {CLOCK}; the run has ended"
    assert re.fullmatch(who, told())
    assert run("prune", "--older-than", "0", "--yes") == cli.DONE
    said()
    assert run("approve", item.id, "--yes", app="till:make") == cli.FAILED
    gone = rf"phronomy: error: {item.id} was rejected by olga \(cli\) at {CLOCK}, and its run is not kept any more"
    assert re.fullmatch(gone, told())


CLOCK = r"\d\d:\d\d:\d\d UTC"


# Taking away


def test_what_goes_and_what_is_spared_is_said_before_anybody_is_asked(said: Callable[[], str]) -> None:
    begin("Hi", thread_id="t1", ago=LONG_AGO)
    begin("Hi again", thread_id="t1", ago=LONG_AGO)
    begin("Hi", thread_id="t2", label="kept", ago=LONG_AGO)
    begin("ship", thread_id="t3", ago=LONG_AGO)
    begin("Hi", thread_id="t4")
    assert run("prune", "--older-than", "2h") == cli.PENDING
    shown = " ".join(said().split())
    assert re.match(
        r"2 runs that ended before \S+ \S+ UTC can go\. Spared: what waits for a human, is worked on,", shown
    )
    assert "runs with a labeled checkpoint; the audit trail." in shown
    assert shown.endswith("Nothing was taken away.")
    assert threads() == {"t1", "t2", "t3", "t4"}
    assert run("prune", "--older-than", "2h", "--keep-last", "1", "--yes") == cli.DONE
    shown = " ".join(said().split())
    assert "1 run that ended before" in shown and "the last 1 run of each thread" in shown
    assert shown.endswith("2 checkpoints taken away.")
    assert threads() == {"t1", "t2", "t3", "t4"}
    assert run("prune", "--older-than", "2h", "--no-keep-labeled", "--yes", "--json") == cli.DONE
    assert json.loads(said()) == {"checkpoints": 4}
    assert threads() == {"t3", "t4"}
    assert run("prune", "--older-than", "2h") == cli.DONE
    assert said().startswith("0 runs that ended before")


def threads() -> set[str | None]:
    with SQLiteStore("runs.db") as store:
        return {each.thread_id for each in store.branches()}


# Tenants, and other databases


URLS: dict[str, Callable[[], str]] = {
    "sqlite": lambda: STORE,
    "postgresql": lambda: f"{postgres_url()}&schema=cli",
    "redis": redis_url,
}


@pytest.mark.parametrize("kind", URLS)
def test_a_command_sees_and_decides_what_is_its_tenants(
    kind: str, said: Callable[[], str], told: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = URLS[kind]()
    acme = begin("ship", url=place, tenant="acme")
    begin("refund", url=place, tenant="globex")
    assert run("pending", store=place) == cli.DONE
    assert said() == "Nothing waits for a decision.\n"
    assert run("pending", "--json", "--tenant", "acme", store=place) == cli.DONE
    assert ids(said()) == [acme.pending[0].id]
    assert run("show", acme.pending[0].id, "--tenant", "globex", store=place) == cli.FAILED
    assert f"no pending approval, checkpoint or run {acme.pending[0].id}" in told()
    monkeypatch.setenv("PHRONOMY_TENANT", "acme")
    assert run("approve", acme.pending[0].id, "--yes", "--json", app="till:make", store=place) == cli.DONE
    assert json.loads(said())["output"] == "Done: completed."
    assert run("audit", store=place) == cli.DONE
    assert len(said().splitlines()) == 1
    assert run("audit", "--tenant", "globex", store=place) == cli.DONE
    assert said() == ""


def test_how_to_go_on_names_the_tenant(said: Callable[[], str]) -> None:
    begin("refund ship", tenant="acme & co")
    assert run("approve", "pend_0", "--tenant", "acme & co", app="till:make") == cli.FAILED
    with SQLiteStore("runs.db") as store:
        first, second = store.for_tenant("acme & co").pending()
    said()
    assert run("reject", first.approval.id, "--yes", "--tenant", "acme & co", app="till:make") == cli.PENDING
    assert f"phronomy approve {second.approval.id} --app till:make --store {STORE} --tenant 'acme & co'\n" in said()


# What was decided


def test_what_was_decided_is_shown_by_the_id_that_the_trail_prints(said: Callable[[], str]) -> None:
    checkpoint = begin("ship")
    (item,) = checkpoint.pending
    assert run("reject", item.id, "--yes", "--by", "olga", "--reason", "no stock", app="till:make") == cli.DONE
    said()
    assert run("audit") == cli.DONE
    pending_id = json.loads(said())["pending_id"]
    how = rf"It was rejected by olga \(cli\) at {CLOCK}; the run has ended\."

    assert run("show", pending_id, app="till:make") == cli.DONE
    shown = said()
    assert re.search(rf"\nAsked: ship\n.*\n{how}\n  reason    no stock\n", shown, re.DOTALL)
    assert f"\n  pending   {item.id}\n  waited at {checkpoint.id}\n  run       {checkpoint.run_id}\n" in shown
    assert "Approval needed" not in shown
    assert run("show", pending_id, "--json") == cli.DONE
    found = json.loads(said())
    assert (found["checkpoint_id"], found["status"], found["pending"]) == (checkpoint.id, "suspended", [])
    decided = found["decided"]
    assert [decided[name] for name in ("pending_id", "kind", "channel", "reason", "digest")] == [
        *(item.id, "reject", "cli", "no stock", item.digest),
    ]
    assert decided["by"]["id"] == "olga"

    assert run("history", pending_id, "--ids") == cli.DONE
    lines = said().splitlines()
    assert (lines[-3].startswith(checkpoint.id), lines[-2]) == (True, "")
    assert re.fullmatch(how, lines[-1])
    assert run("history", pending_id, "--json") == cli.DONE
    assert [each["checkpoint_id"] for each in json.loads(said())][-1] == checkpoint.id
    assert run("timeline", pending_id, "--type", "approval_requested", "--ids") == cli.DONE
    assert item.id in said()
    assert run("diff", pending_id, checkpoint.run_id, "--json") == cli.DONE
    assert json.loads(said())["before_id"] == checkpoint.id


def test_of_what_a_handler_has_decided_the_end_of_its_run_is_shown(said: Callable[[], str]) -> None:
    with open_store(STORE) as store:
        till = import_module("till").make()
        till.store = store
        ended = till.on_approval_required(lambda name, args: False).invoke("ship").checkpoint
        (record,) = store.audit()
    assert run("show", record.pending_id or "") == cli.DONE
    shown = said()
    assert re.search(r"Asked: ship\b", shown)
    assert re.search(rf"\nIt was rejected \(handler\) at {CLOCK}; the run has ended\.\n", shown)
    assert "waited at" not in shown
    assert run("history", record.pending_id or "", "--json") == cli.DONE
    assert json.loads(said())[-1]["checkpoint_id"] == ended.id


# What lapsed


def test_a_decision_that_comes_too_late_is_told_with_what_the_run_has_come_to(
    told: Callable[[], str], said: Callable[[], str]
) -> None:
    late = begin("refund", ago=LONG_AGO)
    (item,) = late.pending
    assert run("show", item.id, app="till:make") == cli.DONE
    assert "; it has lapsed, and a decision comes too late\n  risk      high\n" in said()
    assert run("approve", item.id, "--yes", "--json", app="till:make") == cli.LAPSED
    assert told() == (
        f"phronomy: error: {item.id} lapsed before this decision came, so it did not count; the run is completed"
    )
    assert run("approve", item.id, "--yes", app="till:make") == cli.LAPSED
    assert re.fullmatch(
        rf"phronomy: error: nobody decided this in time: it lapsed at {CLOCK}; the run has ended", told()
    )
    assert not Path("refunds.txt").exists()
    assert run("show", item.id) == cli.DONE
    assert re.search(rf"\nAsked: refund\n.*\nIt lapsed at {CLOCK}; the run has ended\.\n", said(), re.DOTALL)


def test_a_late_decision_leaves_the_rest_to_be_decided(told: Callable[[], str], said: Callable[[], str]) -> None:
    refund, ship = begin("refund ship", ago=LONG_AGO).pending
    assert run("reject", refund.id, "--yes", "--json", app="till:make") == cli.LAPSED
    assert told().endswith(f"so it did not count; the run waits for a decision on {ship.id}")
    assert run("approve", ship.id, "--yes", app="till:make") == cli.DONE
    assert said().endswith("The run is completed.\n")


def test_recover_settles_what_lapsed(said: Callable[[], str], place: Path) -> None:
    late = begin("refund", thread_id="late", ago=LONG_AGO)
    begin("refund", thread_id="waits")
    assert run("recover", app="till:make") == cli.PENDING
    heads, row, last = said().splitlines()
    assert (heads.split(), row.split()) == (
        ["RUN", "AGENT", "THREAD", "STATUS"],
        [late.run_id, "till", "late", "suspended"],
    )
    assert last == "Nothing was carried on."
    assert run("recover", "--yes", "--json", app="till:make") == cli.DONE
    (document,) = json.loads(said())
    assert (document["run_id"], document["output"], document["error"]) == (late.run_id, "Done: expired.", None)
    assert run("recover", "--yes", app="till:make") == cli.DONE
    assert said() == "No run has lost its worker, and nothing that waits has lapsed.\n"
    assert not Path("refunds.txt").exists()


@pytest.mark.parametrize("app", ["telling", "later"])
def test_recover_announces_what_was_not_and_takes_away_what_is_too_old(
    app: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "deaf").touch()
    begin("Hi", ago=LONG_AGO, app="telling")
    begin("ship", app="telling")
    (place / "deaf").unlink()
    capsys.readouterr()
    assert run("recover", "--json", "--yes", app=f"till:{app}") == cli.DONE
    assert json.loads(capsys.readouterr().out) == []
    assert (place / "told.txt").read_text() == "completed\nsuspended\n"
    assert run("recover", "--yes", app=f"till:{app}") == cli.DONE
    assert (place / "told.txt").read_text() == "completed\nsuspended\n", "each is told once"
    assert "telling" not in capsys.readouterr().out
    assert len(runs()) == 2
    assert run("recover", "--yes", app="till:keeping", store=None) == cli.DONE
    assert [each.status for each in runs()] == ["suspended"]


def runs() -> list[Any]:
    with SQLiteStore("runs.db") as store:
        return store.branches()


def test_what_another_worker_has_taken_meanwhile_is_left_to_it(
    said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = begin("refund", ago=LONG_AGO)

    def taken(*_: Any, **__: Any) -> Any:
        raise RunBusy("held", run_id=late.run_id, owner="another")

    monkeypatch.setattr(recover, "carry_on", taken)
    assert run("recover", "--yes", "--json", app="till:make") == cli.DONE
    assert json.loads(said()) == []
    assert run("recover", late.run_id, "--yes", "--json", app="till:make") == cli.FAILED


def test_in_a_conversation_what_lapsed_is_settled_when_the_thread_is_picked_up(said: Callable[[], str]) -> None:
    begin("refund", thread_id="t1", ago=LONG_AGO)
    assert run("chat", "--thread", "t1", app="till:make") == cli.DONE
    assert "Done: expired." in said()


def test_what_lapses_while_somebody_thinks_is_told_and_the_conversation_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [1_800_000_000.0]
    store = MemoryStore(clock=lambda: now[0])
    agent = import_module("till").make()
    agent.store = store
    typed = iter(["refund", "a"])

    def ask(screen: cli.Screen, question: str, *, afresh: bool = False) -> str:
        if question.startswith("[a]pprove"):
            now[0] += LONG_AGO
        answer = next(typed, None)
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr(cli.Screen, "interactive", True)
    monkeypatch.setattr(cli.Screen, "ask", ask)
    place = Place(store=store, agent=agent, options=())
    mask = Mask(agent, reveal=False)
    chat = Chat(screen=cli.Screen(), place=place, mask=mask, thread_id="t", by="rita", scopes=(), again="phronomy chat")
    assert chat.run() == cli.DONE
    found = capsys.readouterr()
    assert re.search(
        r"^phronomy: error: pend_\w+ lapsed before this decision came, so it did not count; the run is completed$",
        found.err,
        re.MULTILINE,
    )
    assert "model     Done: expired." in found.out
    assert not Path("refunds.txt").exists()


# Words


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5s", 1.5), ("10m", 600), ("2h", 7200), ("3d", 259_200), ("0", 0)]
)
def test_an_age_has_a_unit(text: str, seconds: float) -> None:
    assert age(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "1w", "h", "1e9", "1 h", "\u0661h", "inf", "nan", "36501d"])
def test_what_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage, match="is no age"):
        age(text)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2h", 92_800.0),
        ("1970-01-02", 86_400.0),
        ("19700102", 86_400.0),
        ("1970-01-02T01:00:00Z", 90_000.0),
        ("1970-01-02 01:00:00+01:00", 86_400.0),
    ],
)
def test_a_time_is_a_date_or_an_age(text: str, at: float) -> None:
    assert moment_of(text, 100_000.0) == at


@pytest.mark.parametrize(
    ("seconds", "told"), [(-1, "over"), (0, "over"), (59, "in a moment"), (60, "in 1 minute"), (200_000, "in 2 days")]
)
def test_how_soon_something_lapses_is_said_in_the_largest_unit(seconds: float, told: str) -> None:
    assert ahead(seconds) == told


def test_a_file_of_another_program_is_refused_and_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other" / "other.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE notes (text TEXT)")
    before = path.read_bytes()
    assert cli.run(["pending", "--store", f"sqlite:///{path}"]) == cli.FAILED
    assert "other.db is no store of phronomy's. Nothing was made in it" in " ".join(capsys.readouterr().err.split())
    assert path.read_bytes() == before and [each.name for each in path.parent.iterdir()] == ["other.db"]
