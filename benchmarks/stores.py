"""What a store costs as it fills: lists, loads, resumes and claims, in a full store beside one of 10,000 checkpoints.

SQLite in a file, and a real PostgreSQL server from a wheel. Each is filled with suspended runs of ten checkpoints, one pending
approval each; what is printed are ratios of medians, the full store over the small one, measured in interleaved rounds in one
process. What one run costs as it grows: `performance`, in this folder.

    python benchmarks/stores.py [--full] [--only sqlite|postgres]

By default the full store holds 100,000 checkpoints, with `--full` 1,000,000 of which 100,000 runs wait. Exits with status 1 if a
ratio is over its bound.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from phronomy import Agent, MemoryStore, SQLiteStore, Store, tool
from phronomy.stores import Append, Branch, Entry, PendingRow
from phronomy.testing import ScriptedModel, call, say

SMALL, QUICK, FULL = 1_000, 10_000, 100_000
"""Runs that wait in a store; each has `STEPS` checkpoints."""

STEPS: Final = 10
CLAIMS: Final = 10_000
MAX_RATIO, MAX_CLAIM = 2.0, 1.2
ROUNDS: Final = 60
TOOLS, AGENTS = ("refund", "wipe", "mail"), ("desk", "ops")
NAMES: Final = ("run", "ckpt", "pend")


# Filling


@tool
def look_up(order_id: int) -> str:
    """Look up an order."""
    return f"order {order_id} was delivered"


@tool(requires_approval=True)
def refund(order_id: int) -> str:
    """Refund an order."""
    return f"refunded {order_id}"


def agent(store: Store, *replies: Any) -> Agent[Any, str]:
    """The agent whose runs wait."""
    return Agent(name="desk", model=ScriptedModel([*replies]), tools=[look_up, refund], store=store)


class Template:
    """A suspended run of `STEPS` checkpoints, of which any number of copies can be made."""

    def __init__(self) -> None:
        store = MemoryStore()
        looks = [say("", call("look_up", {"order_id": n})) for n in range((STEPS - 2) // 2)]
        result = agent(store, *looks, say("", call("refund", {"order_id": 1042}))).invoke("Refund the last one.")
        self.branch, self.entries = store.lineage(branch_id=result.run_id).branch, []
        (self.pending,) = store.pending_rows()
        for entry in store.lineage(branch_id=result.run_id).entries:
            self.entries.append(entry)
        self.texts = tuple(filter(None, [store.kept_text(result.checkpoint.pending[0].tool.schema_hash)]))
        self.ids = {result.run_id: "run", self.pending.pending_id: "pend"}
        self.ids |= {entry.checkpoint_id: "ckpt" for entry in self.entries if entry.checkpoint_id}

    def copy(self, number: int) -> tuple[Branch, Append]:
        """A run like it, under ids of its own, asked for at another time by another agent for another tool."""
        new = {old: f"{kind}_{number:08d}{old[-6:]}" for old, kind in self.ids.items()}

        def renamed(text: str) -> str:
            for old, other in new.items():
                text = text.replace(old, other)
            return text

        branch = replace(
            self.branch, id=renamed(self.branch.id), run_id=renamed(self.branch.run_id), thread_id=f"thread-{number}",
            label=f"label-{number % 1000}", seq=0, head=None, owner=None, fence=0, agent=AGENTS[number % 2], status="running",
        )  # fmt: skip
        entries = [
            Entry(path="", body=renamed(each.body), checkpoint_id=renamed(each.checkpoint_id or "") or None)
            for each in self.entries
        ]
        asked = PendingRow(
            pending_id=renamed(self.pending.pending_id), branch_id=branch.id, run_id=branch.run_id,
            thread_id=branch.thread_id, agent=branch.agent, tool_name=TOOLS[number % 3], label=branch.label,
            risk="high" if number % 10 == 0 else None, checkpoint_id="", requested_at=1_700_000_000.0 + number,
            body=renamed(self.pending.body),
        )  # fmt: skip
        head = entries[-1].checkpoint_id
        change = Append(
            branch_id=branch.id, seq=0, entries=tuple(entries), head=head, status="suspended", opened=(asked,)
        )
        return branch, change


class Filled:
    """A store with that many runs that wait."""

    def __init__(self, store: Store, template: Template, runs: int) -> None:
        self.store = store
        self.heads: list[str] = []
        started = time.monotonic()
        for number in range(runs):
            branch, change = template.copy(number)
            store.create(branch, change, exclusive=False)
            self.heads.append(change.head or "")
        self.unresumed = [head for number, head in enumerate(self.heads) if AGENTS[number % 2] == "desk"]
        random.Random(7).shuffle(self.unresumed)
        print(
            f"  {runs * STEPS:>9,} checkpoints, {runs:,} pending: filled in {time.monotonic() - started:.0f} s",
            flush=True,
        )


@contextmanager
def opened(kind: str, name: str, folder: Path) -> Iterator[Store]:
    """An empty store of this kind."""
    if kind == "sqlite":
        with SQLiteStore(folder / f"{name}.db", synchronous="NORMAL") as store:
            yield store
        return
    from servers import postgres_schema, postgres_url  # noqa: PLC0415  # needs the extra

    from phronomy import PostgresStore  # noqa: PLC0415

    with postgres_schema() as schema, PostgresStore(postgres_url(), schema=schema) as store:
        yield store


# Measuring


def ratio(small: Callable[[], Any], full: Callable[[], Any], rounds: int = ROUNDS) -> tuple[float, float]:
    """The median milliseconds of both, by interleaved rounds."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for side, work in enumerate((small, full)):
            started = time.perf_counter()
            work()
            spent[side].append(time.perf_counter() - started)
    return statistics.median(spent[0]) * 1000, statistics.median(spent[1]) * 1000


def walks(filled: Filled, **wanted: Any) -> Callable[[], Any]:
    """Reads a page of 50 somewhere in the list, another one each time."""
    places: list[str | None] = [None]
    turn = itertools.count()

    def page() -> None:
        found = filled.store.pending(limit=50, after=places[next(turn) % len(places)], **wanted)
        assert found
        if found.next is not None and len(places) < 20:
            places.append(found.next)

    return page


def loads(filled: Filled) -> Callable[[], Any]:
    """Loads a checkpoint, another one each time."""
    ids = random.Random(3).sample(filled.heads, min(len(filled.heads), 500))
    turn = itertools.count()
    return lambda: filled.store.load(ids[next(turn) % len(ids)])


def resumes(filled: Filled) -> Callable[[], Any]:
    """Approves a pending call and drives the run to its end, another one each time."""
    worker = agent(filled.store, *["Done."] * 10_000)

    def resume() -> None:
        assert worker.resume(filled.unresumed.pop(), approved=True, accept_changes=True).output == "Done."

    return resume


def claims(store: Store, template: Template, runs: int) -> tuple[float, float]:
    """The median milliseconds of a claim around the 100th and around the last."""
    spent = []
    for number in range(runs, runs + CLAIMS):
        branch, change = template.copy(number)
        store.create(branch, change, exclusive=False)
        started = time.perf_counter()
        store.append(Append(branch_id=branch.id, seq=len(change.entries), take="me", status="running"))
        spent.append(time.perf_counter() - started)
    return statistics.median(spent[:200]) * 1000, statistics.median(spent[-200:]) * 1000


class Judge:
    """Prints each figure beside its bound."""

    def __init__(self) -> None:
        self.held = True

    def __call__(self, what: str, before: float, after: float, bound: float, unit: str = "ms") -> None:
        found = after / before
        self.held = self.held and found <= bound
        note = "" if found <= bound else "   OVER"
        print(f"  {what:<34} {before:>9.3f} {unit} {after:>9.3f} {unit} {found:>6.2f} {bound:>5}{note}", flush=True)


def measure(kind: str, runs: int, judge: Judge) -> None:
    """A full store beside a small one."""
    print(f"{kind}: {SMALL * STEPS:,} checkpoints beside {runs * STEPS:,}")
    template = Template()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stores = [stack.enter_context(opened(kind, name, Path(folder))) for name in ("small", "full")]
        small, full = Filled(stores[0], template, SMALL), Filled(stores[1], template, runs)
        if kind == "postgres":
            from servers import postgres  # noqa: PLC0415

            postgres().psql("ANALYZE")  # as the server does by itself, minutes later
        filters: dict[str, dict[str, Any]] = {
            "page of 50 pending": {},
            "page of one agent": {"agent": "ops"},
            "page of one tool and agent": {"agent": "ops", "tool": "mail"},
            "page of one risk": {"risk": "high"},
            "newest first": {"newest": True},
        }
        for what, wanted in filters.items():
            judge(what, *ratio(walks(small, **wanted), walks(full, **wanted)), MAX_RATIO)
        judge("load", *ratio(loads(small), loads(full)), MAX_RATIO)
        judge("resume, to the end", *ratio(resumes(small), resumes(full)), MAX_RATIO)
        judge("100th claim, and 10,000th", *claims(stores[1], template, runs), MAX_CLAIM)


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="1,000,000 checkpoints, 100,000 pending (many minutes)")
    parser.add_argument("--only", choices=["sqlite", "postgres"], help="one of the databases")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    judge = Judge()
    for kind in [options.only] if options.only else ["sqlite", "postgres"]:
        measure(kind, FULL if options.full else QUICK, judge)
    print("all bounds held" if judge.held else "NOT all bounds held")
    return 0 if judge.held else 1


if __name__ == "__main__":
    sys.exit(main())
