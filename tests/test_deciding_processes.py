"""Three processes: one starts runs, one decides and cannot import the agent, and one carries out what was decided."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE
from places import Place, place_of

pytestmark = pytest.mark.unmeasured

APP = """
import sys
from typing import Annotated

from pydantic import AfterValidator

from phronomy import Agent, Approval, interrupt, open_store, tool
from phronomy.testing import ScriptedModel, call


def affordable(amount: float) -> float:
    if amount > 100:
        raise ValueError("no more than 100 euros")
    return amount


@tool(requires_approval=Approval(title=lambda args: f"Refund order {args['order_id']}"))
def refund(order_id: int, amount: Annotated[float, AfterValidator(affordable)] = 49.9) -> str:
    \"\"\"Refund an order.\"\"\"
    with open("refunds", "a") as file:
        file.write(f"{order_id} {amount}\\n")
    return f"order {order_id}: {amount} euros"


@tool
def ask(order_id: int) -> str:
    \"\"\"Ask the customer.\"\"\"
    return "they said " + interrupt("Which colour?", answer=str)


def make():
    calls = [call("refund", {"order_id": n}) for n in (1, 2, 3, 4)] + [call("ask", {"order_id": 5})]
    model = ScriptedModel.by_turn([calls, "Done."])
    return Agent(name="desk", model=model, tools=[refund, ask], store=open_store(sys.argv[-1]))
"""

BEGIN = """
import desk

result = desk.make().invoke("Refund them", requester="ada")
print(result.status, result.run_id)
"""

DECIDE = """
import importlib.util, json, sys

from phronomy import Approve, Reject, Respond, open_store
from phronomy.errors import CheckpointAlreadyResumed, InvalidDecision, UnknownPending

assert importlib.util.find_spec("desk") is None, "the agent must not be importable here"
store = open_store(sys.argv[-1])
listed = {row.approval.args.get("order_id", 5): row.approval for row in store.pending()}
shown = store.request(listed[1].id)
told = [sorted(listed), shown.approval.title, shown.approval.requester.id, shown.description, sorted(shown.schema["properties"])]


def decide(order, answer, **options):
    item = listed[order]
    given = {"by": "rita", "digest": item.digest, "channel": "page", **options}
    try:
        return store.decide(item.id, answer, **given).status
    except (CheckpointAlreadyResumed, InvalidDecision, UnknownPending) as error:
        return type(error).__name__


told.append([
    decide(1, Approve(), digest="0" * 64),
    decide(1, Approve(args={"order_id": 1, "amount": "much"})),
    decide(1, Approve(), key="once"),
    decide(1, Approve(), key="once"),
    decide(1, Reject(), key="once"),
    decide(2, Approve(args={"order_id": 2, "amount": 20})),
    decide(3, Approve(args={"order_id": 3, "amount": 2000})),
    decide(4, Reject(reason="no receipt")),
    decide(5, Respond(content=5)),
    decide(5, Respond(content="blue")),
])
print(json.dumps(told))
"""

AGAIN = """
import json, sys

from phronomy import Respond, open_store

store = open_store(sys.argv[-1])
(row,) = store.pending()
item = row.approval
store.decide(item.id, Respond(content="paid in cash"), by="rita", digest=item.digest)
print(json.dumps([item.args["order_id"], "no more than 100 euros" in item.reason]))
"""


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A store that several processes can reach."""
    with place_of(request.param, tmp_path) as found:
        yield found


def run(folder: Path, *line: str) -> str:
    """What another process prints."""
    done = subprocess.run(
        [sys.executable, *line], cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_who_cannot_import_the_agent_lists_shows_and_decides_and_a_worker_carries_it_out(
    place: Place, tmp_path: Path
) -> None:
    app, page = tmp_path / "app", tmp_path / "page"
    app.mkdir()
    page.mkdir()
    (app / "desk.py").write_text(APP)
    (app / "begin.py").write_text(BEGIN)
    (page / "decide.py").write_text(DECIDE)
    (page / "again.py").write_text(AGAIN)
    work = ("-m", "phronomy", "work", "--app", "desk:make", "--once", "--store", place.url)

    status, run_id = run(app, "begin.py", place.url).split()
    assert status == "suspended"
    told: Any = json.loads(run(page, "decide.py", place.url))
    assert told[:5] == [
        *([1, 2, 3, 4, 5], "Refund order 1", "ada", "Refund an order."),
        ["amount", "order_id"],
    ]
    assert told[5] == [
        *("InvalidDecision", "InvalidDecision", "decided", "decided", "CheckpointAlreadyResumed"),
        *("decided", "decided", "decided", "InvalidDecision", "decided"),
    ]
    assert not (app / "refunds").exists()

    run(app, *work)
    assert sorted((app / "refunds").read_text().splitlines()) == ["1 49.9", "2 20.0"]
    # The tool itself refuses the third: a human is asked again, and told why.
    assert json.loads(run(page, "again.py", place.url)) == [3, True]
    run(app, *work)
    assert sorted((app / "refunds").read_text().splitlines()) == ["1 49.9", "2 20.0"]
    with place.open() as store:
        branch, head = store.head(run_id)
        assert (branch.status, store.pending(), store.decided()) == ("completed", [], [])
        assert [message.text for message in head.messages if message.role == "tool"] == [
            "order 1: 49.9 euros",
            'A human changed the arguments of this call to {"order_id":2,"amount":20.0} before it ran. Its result:\n'
            "order 2: 20.0 euros",
            "paid in cash",
            "A human rejected this call, so it was not run. Reason: no receipt",
            "they said blue",
        ]
        by = {(line.kind, line.by.id if line.by else None, line.channel) for line in store.audit()}
        assert ("reject", "rita", "page") in by
