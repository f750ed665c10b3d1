"""An inbox with something on each of its pages: what the tour of the pages looks at, and what the pictures show."""

from __future__ import annotations

from typing import Any

from shop import PEOPLE
from visitors import Desk

from phronomy import Approve

BILL = [{"text": "200 cups, white", "cents": 1_180_000}, {"text": "Freight", "cents": 94_900}]
LETTER = """Dear Mr Weber,

we are sorry that the cup arrived broken. Your money is on its way, and reaches you within two days.

Kind regards
The shop"""


def versions(desk: Desk, made: dict[str, Any]) -> None:
    """A run that stands at a breakpoint, long and with forks, whose labels are not what they look like."""
    made["stopped"] = stopped = desk.stop_before("ship", order=1047)
    found = desk.apart(desk.store.request, stopped.id)
    (first, second) = desk.apart(desk.store.history, found.checkpoint_id)
    made["begun"], made["asked"], made["stopped_run"] = first, second, found.branch_id
    for number in range(40):
        desk.pass_time(1)
        desk.apart(desk.agent.checkpoint, found.branch_id, label=f"look {number}")
    last = desk.apart(desk.store.head, found.branch_id)[1]
    desk.apart(desk.store.fork, last.parent_id, label="مراجعة \u202egnp.exe <b>bold</b>")
    fork = desk.apart(desk.store.fork, last.id, label="Without the note")
    desk.apart(desk.agent.cancel, fork.branch_id, reason="Not needed.", by=PEOPLE["otto"])
    made["last"] = last


def furnish(desk: Desk) -> dict[str, Any]:
    """Have requests of each kind wait and be decided. Returns what is asked, by what has become of it."""
    made: dict[str, Any] = {}
    made["expired"] = desk.ask("close_account", customer="Blue Door Ltd")
    desk.pass_time(3700)
    made["done"] = desk.ask("refund", order=1017, amount=12.5, reason="late", says="It came a week late.")
    desk.decide(made["done"], "otto")
    made["rejected"] = desk.ask("refund", order=1018, amount=480.0)
    desk.decide(made["rejected"], "mia", False)
    made["failed"] = desk.ask("collect", order=1019)
    desk.decide(made["failed"], "otto")
    desk.carry_out()
    made["paid"] = desk.ask("pay", to="Porcelain Works", lines=BILL)
    desk.decide(made["paid"], "otto")
    made["voted"] = desk.ask("pay", to="Box & Tape", lines=BILL[1:])
    desk.decide(made["voted"], "rita")
    made["waits"] = desk.ask(
        "refund",
        order=1042,
        says="The customer wrote that the cup arrived broken, with a photo. I would refund it in full.",
    )
    made["mail"] = desk.ask("mail", to=["a.weber@example.org"], subject="Your order 1042", body=LETTER)
    made["mail2"] = desk.ask("mail", to=["b.lang@example.org"], subject="Your order 1043", body=LETTER)
    made["soon"] = desk.ask("close_account", customer="Red Gate GmbH")
    made["question"] = desk.ask("ship", order=1043)
    made["first"], made["second"] = desk.ask_all([("refund", {"order": 1044}), ("refund", {"order": 1045})])
    made["deciding"] = desk.ask("refund", order=1046, amount=80.0)
    desk.decide(made["deciding"], "mia", Approve(args={"order": 1046, "amount": 40.0}))
    made["run"] = desk.apart(desk.store.request, made["done"].id).branch_id
    versions(desk, made)
    given = {"by": PEOPLE["otto"], "digest": made["mail"].digest, "channel": "chat"}
    desk.apart(
        desk.store.grant_like, made["mail"].id, **given, scope="principal", uses=10, reason="The same letter to all."
    )
    over = desk.apart(
        desk.store.grant_like, made["mail2"].id, **given | {"digest": made["mail2"].digest}, exactly=False
    )
    desk.apart(desk.store.revoke, over.id, by=PEOPLE["mia"], reason="Too many letters.")
    return made
