"""The team of four, in a process of its own that a story starts: `python team_of_four.py sync|async URL FOLDER asks|bert|ann|carla`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from drivers import ASYNC, SYNC, Driver

from phronomy import Agent, Approve, Hooks, MCPServer, Orchestrator, PostgresStore, Reject, Respond, SQLiteStore, tool
from phronomy.testing import ScriptedModel, call

CARRIER = Path(__file__).with_name("carrier.py")
LATER = {"asks": 0, "bert": 10, "ann": 1000, "carla": 2000}
"""How many seconds have gone by when each comes: more than a lease between those that may find a dead worker's run."""

ORDER = {"order": 1042}
SCRIPTS: dict[str, list[Any]] = {
    "lead": [
        [call("cashier", {"input": "Refund order 1042."}), call("carrier", {"input": "Send order 1042 again."})],
        call("transfer_to_scribe", {"message": "Tell the customer."}),
    ],
    "cashier": [[call("refund", ORDER), call("refund", ORDER)], "The money is on its way."],
    "carrier": [call("ship", ORDER), "The parcel is on its way."],
    "scribe": ["", "", call("write", {"text": "All is on its way."}), "The customer knows."],
}


class Dies(Hooks):
    """Kills the process once a decision is stored, before anything is done about it."""

    def on_event(self, event: Any) -> None:
        if event.type == "decided":
            os.kill(os.getpid(), signal.SIGKILL)


def note(folder: Path, file: str, **what: Any) -> None:
    """Put a line where the story finds it, with one write."""
    out = os.open(folder / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(out, f"{json.dumps(what)}\n".encode())
    os.close(out)


def team_of(driver: Driver, store: Any, folder: Path, carrier: MCPServer, *hooks: Hooks) -> Orchestrator[Any]:
    """The lead asks the cashier and the carrier at once, and then hands over to the scribe."""

    def refund(order: int, amount: float = 49.9) -> str:
        """Refund an order."""
        note(folder, "done", tool="refund", order=order, amount=amount)
        return f"{amount:.2f} euros"

    def write(text: str) -> str:
        """Write to the customer."""
        note(folder, "done", tool="write", text=text)
        return "sent"

    def says(name: str) -> ScriptedModel:
        def reply(said: Any) -> Any:
            def heard(request: Any) -> Any:
                note(folder, "heard", agent=name, messages=[each.model_dump_json() for each in request.messages])
                return said

            return heard

        return ScriptedModel.by_turn([reply(each) for each in SCRIPTS[name]])

    def agent(name: str, *tools: Any) -> Agent[Any, Any]:
        return Agent(name=name, model=says(name), tools=tools)

    cashier = agent("cashier", tool(requires_approval=True)(driver.function(refund)))
    sender = agent("carrier", *carrier.tools())
    lead = agent("lead", cashier.as_tool(), sender.as_tool())
    scribe = agent("scribe", tool(driver.function(write)))
    return Orchestrator(
        [lead, cashier, sender, scribe], handoffs=[("lead", "scribe")], name="office", store=store, hooks=hooks
    )


def come(driver: Driver, team: Any, who: str) -> Any:
    """What this one does with the team."""
    if who == "asks":
        return driver.call(team, "run", "Order 1042 never came.", thread_id="customer-7")
    if who == "carla":
        [found] = driver.call(team, "recover_all")
        assert found.result is not None, found.error
        [item] = found.result.checkpoint.pending
        print(json.dumps([item.tool_name, item.why, item.agent, item.digest]), flush=True)
        seen = Respond(content="It is parcel 7.")
        return driver.resume(team, found.result.checkpoint, decisions={item.id: seen}, by="carla", channel="console")
    mine = [each for each in team.store.pending() if each.approval.tool_name == {"bert": "ship", "ann": "refund"}[who]]
    answers: list[Any] = [Approve(), Reject(reason="It is the same refund again.")]
    decisions = {each.approval.id: answer for each, answer in zip(mine, answers, strict=False)}
    channel = {"bert": "phone", "ann": "web"}[who]
    return driver.resume(team, mine[0].checkpoint_id, decisions=decisions, by=who, channel=channel)


def work(driver: Driver, url: str, folder: Path, who: str) -> None:
    """Do it, and say what came of it."""
    place, _, schema = url.partition(" ")
    clock: dict[str, Any] = {"clock": lambda: time.time() + LATER[who]}
    store: Any = PostgresStore(place, schema=schema, **clock) if schema else SQLiteStore(place, **clock)
    carrier = MCPServer("carrier", command=[sys.executable, str(CARRIER), str(folder)])
    with store, carrier:
        team = team_of(driver, store, folder, carrier, *([Dies()] if who == "ann" else []))
        result = come(driver, team, who)
        state = driver.call(team, "local_state", result.run_id)
        members = {name: each.status for name, each in state.members.items()}
        told = {"status": result.status, "output": result.output, "run": result.run_id, "members": members}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    work({"sync": SYNC, "async": ASYNC}[sys.argv[1]], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
