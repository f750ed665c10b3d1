"""A process that comes to a stop at each point there is, and one that goes on from there: `test_stops_killed.py` starts and kills it.

python stop_worker.py sync|async URL FOLDER stop|hold|resume|through
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from drivers import ASYNC, SYNC, Driver
from pydantic import BaseModel
from stop_scenes import OF_AGENTS

from phronomy import Agent, Breakpoint, Hold, PostgresStore, Result, SQLiteStore, Store, tool
from phronomy.graph import END, START, StateGraph, append
from phronomy.guardrails.guardrail import MaxLength
from phronomy.testing import ScriptedModel, call

OF_GRAPHS = ("pre_node", "post_node", "post_run")
PLACES = [("agent", point) for point in OF_AGENTS] + [("graph", point) for point in (*OF_GRAPHS, *OF_AGENTS[:-1])]


class Work(BaseModel):
    """What the graph gathers."""

    log: Annotated[list[str], append] = []


def agent_of(driver: Driver, store: Store, effect: Callable[[str], None], name: str = "desk") -> Agent[Any]:
    """An agent that uses two tools at once, then one, and answers; guardrails look at all of it."""

    def book(what: str) -> str:
        """Book it."""
        effect(f"{name} booked {what}")
        return f"{what} is booked"

    calls = [[call("book", {"what": "a"}), call("book", {"what": "b"})], call("book", {"what": "c"}), "All is booked."]
    guards: dict[str, Any] = {
        option: [MaxLength(1000)] for option in ("input_guardrails", "output_guardrails", "tool_guardrails")
    }
    return Agent(
        name=name, model=ScriptedModel.by_turn(calls), tools=[tool(driver.function(book))], store=store, **guards
    )


def graph_of(driver: Driver, store: Store, effect: Callable[[str], None]) -> Any:
    """Two nodes side by side, one of them an agent, and one after them."""

    def node(name: str) -> Any:
        def body(state: Work) -> dict[str, Any]:
            effect(f"did {name}")
            return {"log": [name]}

        return driver.function(body)

    graph = StateGraph(Work, name="works").add_node("a", node("a")).add_node("z", node("z"))
    graph.add_node(
        "desk", agent_of(driver, store, effect, "inner"), input=lambda state: "go", output=lambda said: {"log": [said]}
    )
    graph.add_edge(START, "a").add_edge(START, "desk").add_edge(("a", "desk"), "z").add_edge("z", END)
    return graph.compile(store=store)


def asked(kind: str) -> Any:
    """What a run of this kind is asked."""
    return "Book a, b and c." if kind == "agent" else {}


def told(result: Result[Any]) -> list[Any]:
    """What of an end does not depend on how often the run stopped on the way."""
    said = [[each.role, each.text, each.settlement] for each in result.messages]
    output = result.output.log if isinstance(result.output, Work) else result.output
    return [result.status, output, result.checkpoint.original_input, result.usage.requests, said]


def main(driver: Driver, url: str, folder: Path, form: str) -> None:
    """Come to every stop, in threads of their own, and wait to be killed; or go on from what is in the folder."""
    later = 1000.0 if form == "resume" else 0.0  # the lease of whoever was killed has run out
    place, _, schema = url.partition(" ")
    clock: dict[str, Any] = {"clock": lambda: time.time() + later}
    store: Store = PostgresStore(place, schema=schema, **clock) if schema else SQLiteStore(place, **clock)
    lock, begun = threading.Lock(), folder / "begun"

    def at(kind: str, point: str) -> Any:
        def effect(what: str) -> None:
            with lock, (folder / f"{kind}-{point}").open("a") as file:
                file.write(f"{what}\n")

        return agent_of(driver, store, effect) if kind == "agent" else graph_of(driver, store, effect)

    if form == "resume":
        for kind in ("agent", "graph"):
            driver.call(at(kind, "recovered"), "recover_all")
            left = driver.call(at(kind, "recovered"), "recover_all")  # what was held is noted as suspended, once
            assert left == [], left
        assert {branch.status for branch in store.branches()} == {"suspended", "completed"}
        ends: dict[str, Any] = {}
        for line in begun.read_text().splitlines():
            kind, point, id = line.split()
            result = driver.resume(at(kind, point), id)
            ends[f"{kind}-{point}"] = told(result)
        print(json.dumps(ends), flush=True)
        store.close()
        return

    def stopped(kind: str, point: str, id: str) -> None:
        with lock, begun.open("a") as file:
            file.write(f"{kind} {point} {id}\n")

    def run(kind: str, point: str) -> None:
        runs = at(kind, point)
        options: dict[str, Any] = {"breakpoints": [Breakpoint(point)]}  # type: ignore[arg-type]
        if form == "hold":
            said: list[str] = []

            def on_breakpoint(hit: Any) -> None:
                if not said:
                    said.append(hit.id)
                    stopped(kind, point, hit.checkpoint_id)

            options["hold"] = Hold(on_breakpoint=on_breakpoint)
        result = driver.invoke(runs, asked(kind), **options)
        if form == "hold":
            return
        assert result.status == "suspended", (kind, point, result.status)
        stopped(kind, point, result.checkpoint.id)

    if form == "through":
        ends = {kind: told(driver.invoke(at(kind, "through"), asked(kind))) for kind in ("agent", "graph")}
        print(json.dumps(ends), flush=True)
        store.close()
        return
    threads = [threading.Thread(target=run, args=place, daemon=True) for place in PLACES]
    for thread in threads:
        thread.start()
    while len(begun.read_text().splitlines() if begun.exists() else []) < len(PLACES):
        time.sleep(0.01)
    print("stopped", flush=True)
    sys.stdin.readline()  # killed here


if __name__ == "__main__":
    main({"sync": SYNC, "async": ASYNC}[sys.argv[1]], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
