"""A worker that begins runs, decides with the store alone, carries that out, and writes what it is told of each request to a file.

python request_worker.py sync|async URL FILE: until nothing is left to be done. `test_requests_killed.py` kills it, and begins it anew.
"""

from __future__ import annotations

import os
import sys
from typing import Any
from zlib import crc32

from crash_worker import make_agent
from drivers import ASYNC, SYNC

from phronomy import Agent, Announcements, Approve, PhronomyError, Reject, Respond
from phronomy.events import RequestChanged
from phronomy.stores import open_store
from phronomy.stores.base import Store
from phronomy.stores.rows import BranchFilter
from phronomy.testing import call

RUNS = 4
READY = "ready"


class File(Announcements):
    """Writes each event as a line of a file: one write, so that a kill leaves the whole line or none."""

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def on_request(self, event: RequestChanged) -> None:
        os.write(self.file, (event.model_dump_json() + "\n").encode())


def office(store: Store, driver: str, told: Announcements) -> Agent[Any, str]:
    """Pays and ships, each when somebody has approved it, and has a clerk wire, who asks as well."""
    clerk = make_agent(store, [[call("wire"), call("look")], "wired"], driver=driver)
    replies = [[call("pay"), call("clerk", {"input": "go"}), call("look")], call("ship"), "done"]
    tools = [clerk.as_tool(name="clerk", description="Wires.")]
    return make_agent(store, replies, driver=driver, tools=tools, announcements=[told])


def answer(item: Any) -> Any:
    """What somebody says: one thing or another by the id of the request, and no edit that would be refused."""
    if item.why == "outcome_unknown":
        return Respond(content="done")
    return [Approve(), Approve(), Approve(args={"amount": 3}), Reject(), Respond(content="by hand")][
        crc32(item.id.encode()) % 5
    ]


def work(store: Store, agent: Agent[Any, str], driver: str) -> bool:
    """Do what there is to do now; whether anything is left."""
    acts = {"sync": SYNC, "async": ASYNC}[driver]
    begun = {branch.thread_id for branch in store.branches()}
    for name in [f"t{number}" for number in range(RUNS) if f"t{number}" not in begun]:
        acts.invoke(agent, "go", thread_id=name)
    for waiting in store.pending():
        try:
            store.decide(waiting.approval.id, answer(waiting.approval), by="ann", digest=waiting.approval.digest)
        except PhronomyError as error:  # whoever was killed had decided it
            print(type(error).__name__)
    acts.call(agent, "recover_all")
    open_runs = [branch for branch in store.branches() if branch.status != "completed"]
    return bool(open_runs or store.select_branches(BranchFilter(unannounced=True)))


def main(driver: str, url: str, path: str) -> None:
    """Work until nothing is left; say so before the first deed."""
    with open_store(url) as store:
        agent = office(store, driver, File(path))
        print(READY, flush=True)
        while work(store, agent, driver):
            continue


if __name__ == "__main__":
    main(*sys.argv[1:])
