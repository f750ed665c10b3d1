"""A graph in which somebody reviews a draft, and a rejection leads back to the writer."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from phronomy import Approval, MemoryStore, Reject, Store, ToolContext
from phronomy.graph import END, START, Graph, StateGraph


class Letter(BaseModel):
    topic: str
    draft: str = ""
    sent: str = ""


def write(state: Letter, context: ToolContext[Any]) -> dict[str, str]:
    why = context.rejection.reason if context.rejection is not None else None
    return {"draft": f"On {state.topic}" + (f", {why}" if why else "")}


def send(state: Letter) -> dict[str, str]:
    return {"sent": state.draft}


def short(state: Letter) -> bool:
    return len(state.draft) < 20


def subject(state: Letter) -> str:
    return f"Send {state.draft!r}"


def make_graph(store: Store | None = None) -> Graph[Any, Letter]:
    return (
        StateGraph(Letter, name="letters")
        .add_node(write)
        .add_node(send, requires_approval=Approval(when=short, title=subject), on_rejection="write")
        .add_edge(START, "write")
        .add_edge("write", "send")
        .add_edge("send", END)
        .compile(store=store)
    )


def main() -> None:
    graph = make_graph(MemoryStore())
    first = graph.invoke({"topic": "Monday"}).checkpoint
    again = graph.resume(first, decisions={first.pending[0].id: Reject(reason="be polite")}, by="ada").checkpoint
    state = graph.state_of(again)
    assert isinstance(state, Letter)
    print(state.draft)
    done = graph.resume(again, approved=True, by="ada") if again.pending else None
    assert done is None or done.output is not None


if __name__ == "__main__":
    main()
