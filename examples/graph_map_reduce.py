"""Map and reduce: nodes read invoices in parallel, and another node sums them up. One invoice cannot be read, and waits for you.

    python examples/graph_map_reduce.py

The others have finished by then. Their results are stored, and none is read again. You need no model.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel

from phronomy import Respond
from phronomy.graph import END, START, Send, StateGraph, add, append, interrupt


class Books(BaseModel):
    invoices: list[str] = []
    total: Annotated[float, add]
    read: Annotated[list[str], append]


def each(state: Books) -> list[Send]:
    return [Send("read", invoice) for invoice in state.invoices]


def read(invoice: str) -> dict[str, Any]:
    name, _, amount = invoice.partition(": ")
    if amount == "?":
        euros: float = interrupt(f"How much is {name}?", answer=float)
    else:
        print(f"({name} is read)")
        euros = float(amount)
    return {"total": euros, "read": [f"{name}, {euros:.2f}"]}


def close(state: Books) -> dict[str, Any]:
    return {"read": [f"all {len(state.read)}, {state.total:.2f}"]}


graph = (
    StateGraph(Books)
    .add_node(read, idempotent=True)
    .add_node(close)
    .add_conditional_edges(START, each, ["read"])
    .add_edge("read", "close")
    .add_edge("close", END)
    .compile(max_parallel=1)
)


def main() -> None:
    result = graph.invoke({"invoices": ["March: 12.50", "April: ?", "May: 20"]})
    while result.suspended:
        print(f"{len(result.checkpoint.pending)} waits.")
        pending = result.checkpoint.pending[0]
        answer = Respond(content=float(input(f"{pending.args['payload']} ")))
        result = graph.resume(result.checkpoint, decisions={pending.id: answer}, by="terminal")
    if result.output is not None:
        print("\n".join(result.output.read))


if __name__ == "__main__":
    main()
