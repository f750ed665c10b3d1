"""The story of a team: four agents, one of them behind MCP, two people asked at once, and two workers killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import team_of_four
from drivers import ASYNC, PATIENCE, SYNC, Driver
from servers import postgres_schema, postgres_url

import phronomy
from phronomy import Message, PostgresStore, SQLiteStore, Store
from phronomy.testing import check_history

pytestmark = pytest.mark.unmeasured

PATHS = os.pathsep.join([str(Path(phronomy.__file__).parents[1]), str(Path(__file__).parents[1])])
KILLED = -signal.SIGKILL


class Office:
    """Where the team works: a store that all workers open, and a folder in which everything that was done is counted."""

    def __init__(self, driver: Driver, url: str, store: Store, folder: Path) -> None:
        self.driver, self.url, self.store, self.folder = driver, url, store, folder

    def comes(self, who: str) -> tuple[int, list[Any]]:
        """How a process of its own ends in which this one works with the team, and what it says."""
        done = subprocess.run(
            [sys.executable, team_of_four.__file__, str(self.driver), self.url, str(self.folder), who],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, "PYTHONPATH": PATHS},
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def lines(self, file: str) -> list[Any]:
        """What was noted, in order."""
        return [json.loads(line) for line in (self.folder / file).read_text().splitlines()]

    def done(self) -> list[str]:
        """The tools whose bodies were entered."""
        return [each["tool"] for each in self.lines("done")] if (self.folder / "done").exists() else []

    def waits(self) -> list[tuple[str, str, str]]:
        """What the store says is waiting: the agent, the tool, and why."""
        items = [each.approval for each in self.store.pending()]
        return [(item.agent or "", item.tool_name, item.why) for item in items]

    def decided(self) -> list[tuple[Any, ...]]:
        """The audit trail: what, by whom, through which channel, and why."""
        return [(each.kind, each.tool_name, each.by and each.by.id, each.channel, each.reason) for each in self.trail()]

    def trail(self) -> list[phronomy.AuditRecord]:
        """The audit trail as it is."""
        return list(self.store.audit(thread_id="customer-7"))


def servers_left(folder: Path) -> list[int]:
    """The carriers that still run."""
    left = []
    for file in folder.glob("server-*"):
        pid = int(file.name.partition("-")[2])
        try:
            running = carrier_runs(psutil.Process(pid))
        except psutil.NoSuchProcess:
            running = False
        if running:
            left.append(pid)
    return left


def carrier_runs(process: psutil.Process) -> bool:
    return process.status() != psutil.STATUS_ZOMBIE and str(team_of_four.CARRIER) in process.cmdline()


@pytest.mark.sweep
@pytest.mark.parametrize(("driver", "kind"), [(SYNC, "sqlite"), (ASYNC, "postgres")], ids=["sqlite", "postgres"])
def test_a_team_of_four_is_killed_twice_and_each_tool_runs_once(driver: Driver, kind: str, tmp_path: Path) -> None:
    """Two approvals pend at once in two agents, and are decided out of order by people who never share a process."""
    with postgres_schema() as schema:
        if kind == "postgres":
            with PostgresStore(postgres_url(), schema=schema) as store:
                tell(Office(driver, f"{postgres_url()} {schema}", store, tmp_path))
        else:
            with SQLiteStore(tmp_path / "runs.db") as store:
                tell(Office(driver, str(tmp_path / "runs.db"), store, tmp_path))


def tell(office: Office) -> None:
    """The story."""
    # Given a lead who has asked the cashier and the carrier in one reply
    status, [asked] = office.comes("asks")
    # Then what both want to do waits, for different people, and nothing is done
    three = dict.fromkeys(["lead", "cashier", "carrier"], "suspended")
    assert (status, asked["status"], asked["members"]) == (0, "suspended", three)
    refund, ship = ("cashier", "refund", "approval"), ("carrier", "ship", "approval")
    assert sorted(office.waits()) == sorted([refund, refund, ship])
    assert office.done() == []
    digests = {each.approval.tool_name: each.approval.digest for each in office.store.pending()}

    # When bert lets the parcel go, which was asked for last, and his worker is killed while the server ships it
    assert office.comes("bert") == (KILLED, [])
    # Then it is shipped, nobody has heard so, and the money still waits
    assert (office.done(), office.waits()) == (["ship"], [refund, refund])
    bert = ("approve", "ship", "bert", "phone", None)
    assert office.decided() == [bert]

    # When ann decides on the money, and her worker is killed between that and the work
    assert office.comes("ann") == (KILLED, [])
    # Then both decisions stand, and nothing was done about them
    assert (office.done(), office.waits()) == (["ship"], [])
    ann = [
        ("approve", "refund", "ann", "web", None),
        ("reject", "refund", "ann", "web", "It is the same refund again."),
    ]
    assert office.decided() == [bert, *ann]

    # When another worker recovers what was left, and carla, who has looked, says what became of the parcel
    status, [unknown, ended] = office.comes("carla")
    # Then the run goes on to its end: the lead reads both answers, and hands over to the scribe, who writes
    assert unknown == ["ship", "outcome_unknown", "carrier", digests["ship"]]
    assert (status, ended["status"], ended["output"]) == (0, "completed", "The customer knows.")
    assert ended["run"] == asked["run"]
    assert ended["members"] == dict.fromkeys(["lead", "cashier", "carrier", "scribe"], "completed")
    # And each tool has run once, with nothing left to decide
    assert (office.done(), office.waits()) == (["ship", "refund", "write"], [])
    [branch] = office.store.branches()
    assert (branch.status, branch.owner, branch.run_id) == ("completed", None, asked["run"])

    # And the trail says who decided, through which channel, why, and on exactly what
    assert office.decided() == [bert, *ann, ("respond", "ship", "carla", "console", None)]
    trail = office.trail()
    assert [each.digest for each in trail] == [digests[str(each.tool_name)] for each in trail]
    assert {(each.tool_name, each.path, each.run_id) for each in trail} == {
        ("ship", "2.0/1.1", asked["run"]),
        ("refund", "2.0/1.0", asked["run"]),
    }
    # And every agent was shown a history that a provider takes, in which each call was settled as it was decided
    settled = {}
    for heard in office.lines("heard"):
        messages = [Message.model_validate_json(each) for each in heard["messages"]]
        check_history(messages)
        settled[heard["agent"]] = [each.settlement for each in messages if each.role == "tool"]
    assert settled == {
        "cashier": ["completed", "rejected"],
        "carrier": ["responded"],
        "lead": ["completed", "completed"],
        "scribe": ["completed", "completed", "completed", "completed"],
    }
    # And no server outlives its worker
    until = time.monotonic() + PATIENCE
    while left := servers_left(office.folder):
        assert time.monotonic() < until, left
        time.sleep(0.01)
    assert len(list(office.folder.glob("server-*"))) == 4
