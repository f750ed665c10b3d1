"""Scopes: the tools of a run depend on who asks for it. A tool whose scopes a run does not have is not there for it.

    python examples/scopes.py

Two people ask the same agent the same. The run of one has the scope to change invoices, that of the other only the scope
to read them: its model does not see the tool, and the call that it makes all the same is refused and noted in the audit
trail. Then a run is approved, and resumed by a process that gives it fewer scopes: an approval gives no scope. A
scripted model answers, so you need no key.
"""

from __future__ import annotations

from phronomy import Agent, MemoryStore, Principal, tool
from phronomy.testing import ScriptedModel, call

STORE = MemoryStore()
RITA = Principal(id="rita", scopes=("invoices:read", "invoices:write"))
OTTO = Principal(id="otto", scopes=("invoices:read",))


@tool(scopes=["invoices:read"])
def find_invoice(number: int) -> str:
    """Find an invoice."""
    return f"invoice {number}: 40 euros, open"


@tool(scopes=["invoices:write"], requires_approval=True)
def cancel_invoice(number: int) -> str:
    """Cancel an invoice."""
    print(f"(invoice {number} is cancelled)")
    return f"invoice {number} is cancelled"


def desk() -> Agent:
    """The agent, with a model that always wants to look first, and to cancel then."""
    model = ScriptedModel.by_turn(
        [call("find_invoice", {"number": 7}), call("cancel_invoice", {"number": 7}), "That is all I could do."]
    )
    return Agent(name="desk", model=model, tools=[find_invoice, cancel_invoice], store=STORE)


def main() -> None:
    ended = desk().invoke("Cancel invoice 7", requester=OTTO)
    print(f"otto: {ended.checkpoint.messages[-2].text}")

    waits = desk().invoke("Cancel invoice 7", requester=RITA)
    print(f"rita: {waits.checkpoint.pending_tool_name} waits for an approval")
    desk().resume(waits.checkpoint, approved=True, by="lead")

    waits = desk().invoke("Cancel invoice 7", requester=RITA)
    ended = desk().resume(waits.checkpoint, approved=True, by="lead", scopes=["invoices:read"])
    print(f"rita, with fewer scopes: {ended.checkpoint.messages[-2].text}")

    for record in STORE.audit():
        who = record.by.id if record.by is not None else record.channel
        print(f"audit: {record.kind} {record.tool_name} by {who}")


if __name__ == "__main__":
    main()
