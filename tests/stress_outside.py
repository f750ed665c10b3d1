"""Runs that are decided with the store alone, while workers are killed, or many decide at once; judged by what their tools did.

    python tests/stress_outside.py kills --kind postgres --seed 7 --runs 2000 --kills 80
    python tests/stress_outside.py race --kind redis --seed 7 --runs 40

*Kills*: so many runs wait, and are decided. Four workers carry that out, each killed with SIGKILL at a random instant that knows
nothing of what it does, and another is started. A call that was begun, and that must not run twice, is put to a human, who looks
whether its effect is there. *Race*: sixteen people decide the five calls of a reply at the same moment, three or four each call, with
different answers, while four workers drive. Choices follow from the seed, instants do not: they are the machine's.

What was done is told by files, outside of the store: an effect is a file that is made once.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import mmap
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from drivers import PATIENCE
from places import Place, place_of
from stress_worker import Notes, fork, now

from phronomy import Agent, Approve, Reject, Respond, ToolContext, tool
from phronomy.errors import CheckpointAlreadyResumed
from phronomy.models.base import ModelRequest
from phronomy.stores.base import Store
from phronomy.stores.rows import OPEN
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker

FOLDER = "PHRONOMY_TESTS_OUTSIDE"
"""Where effects are, for an agent that `phronomy work` makes."""

LEASE = 4.0
"""Seconds. So long, since a machine that is busy must not make a worker look dead, and so short, as the last ones are waited for."""

WORKERS, DECIDERS, CALLS = 4, 16, 5
AHEAD = 150
"""Runs that are decided, and not carried out yet, at most."""


# The agent


class Effects:
    """What tools did, a file for each: made once, by whoever comes first. `begun` says which process is at it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = Notes(folder / "notes")

    def path(self, slot: str) -> Path:
        return self.folder / f"{slot}.effect"

    def begun(self, slot: str) -> bool:
        """Whether a process that lives is in the body of the call."""
        with suppress(FileNotFoundError, ValueError):
            return Path(f"/proc/{int((self.folder / f'{slot}.begun').read_text())}").exists()
        return False

    def make(self, slot: str, ctx: ToolContext[Any], **facts: Any) -> None:
        """Enter, take a moment, take effect, take another, and leave: a kill can come anywhere."""
        self.notes.add("enter", slot=slot, key=ctx.idempotency_key, **facts)
        (self.folder / f"{slot}.begun").write_text(str(os.getpid()))
        time.sleep(random.uniform(0, 0.004))
        with suppress(FileExistsError):
            os.close(os.open(self.path(slot), os.O_CREAT | os.O_EXCL))
            self.notes.add("effect", slot=slot)
        time.sleep(random.uniform(0, 0.004))


def make(store: Store | None = None) -> Agent[Any, str]:
    """The agent, as every process makes it: the user says which calls it is to make."""
    effects = Effects(Path(os.environ[FOLDER]))

    @tool(requires_approval=True)
    def pay(slot: str, ctx: ToolContext[Any], amount: int = 5) -> str:
        """Pay: not to be done twice."""
        effects.make(slot, ctx, amount=amount)
        return f"paid {amount} for {slot}"

    @tool(requires_approval=True, idempotent=True)
    def send(slot: str, ctx: ToolContext[Any]) -> str:
        """Send: may be done again."""
        effects.make(slot, ctx)
        return f"sent {slot}"

    def reply(request: ModelRequest) -> Any:
        said = request.messages[-1]
        if said.role != "user":
            return "Done."
        return [call(slot.partition("-")[0], {"slot": slot}, id=slot) for slot in said.text.split()]

    agent = Agent(name="desk", model=ScriptedModel(reply), tools=[pay, send])
    if store is not None:
        agent.store = store
    return agent


# The processes. The first of all has no store, and so no threads, and forks the others.


class World:
    """A store, and the processes that work on it."""

    def __init__(self, place: Place, folder: Path, seed: str) -> None:
        self.place = place
        self.effects = Effects(folder)
        self.notes = self.effects.notes
        self.seed = seed
        self.random = random.Random(seed)
        self.workers: dict[int, int] = {}
        self.started = 0
        self.counts: Counter[str] = Counter()

    def open(self) -> Store:
        return self.place.open(lease=LEASE)

    def child(self, work: Callable[[], object]) -> int:
        return fork(work, self.notes)

    def wait(self, *pids: int) -> None:
        for pid in pids:
            if os.waitpid(pid, 0)[1]:
                self.violation(f"process {pid} failed")

    def preload(self) -> None:
        """Have imported here what a worker imports: a fork of this process begins with it."""
        names = self.effects.folder / "names"

        def work() -> None:
            store = self.place.open(tenant="preload")
            make(store).invoke("")
            Worker(make(store))
            importlib.import_module("phronomy.cli")
            names.write_text("\n".join(sys.modules))

        self.wait(self.child(work))
        for name in names.read_text().splitlines():
            if name not in sys.modules:
                with suppress(ImportError):
                    importlib.import_module(name)
        gc.collect()
        gc.freeze()

    def start_worker(self) -> None:
        """One more worker: every other one is `phronomy work`, as at a command line."""
        self.started += 1
        number = self.started

        def command() -> None:
            random.seed(f"{self.seed}/{number}")
            joint = "&" if "?" in self.place.url else "?"
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            from phronomy.cli import main  # after the fork: half of the workers have no use for it

            store = f"{self.place.url}{joint}lease={LEASE}"
            sys.argv = ["phronomy", "work", "--app", f"{Path(__file__).stem}:make", "--store", store, "--poll", "0.2"]
            main()

        def loop() -> None:
            random.seed(f"{self.seed}/{number}")
            Worker(make(self.open()), poll=0.2).run()

        self.workers[self.child(command if number % 2 else loop)] = number

    def kill_one(self) -> None:
        pid = self.random.choice([*self.workers])
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        del self.workers[pid]

    def kill_all(self) -> None:
        while self.workers:
            self.kill_one()

    def violations(self) -> list[str]:
        """What does not hold, as the processes have noted it."""
        lines = self.notes.read()
        found = [line["what_is"] for line in lines if line["what"] == "violation"]
        return found + [line["trace"] for line in lines if line["what"] == "raised"]

    def violation(self, text: str) -> None:
        self.notes.add("violation", what_is=text)


# Kills


def fill(world: World, runs: int) -> None:
    """So many runs that wait, and are decided: with a call that must not run twice, one that may, or both.

    As fast as the workers are, and somewhat ahead of them.
    """
    store = world.open()
    agent = make(store)
    for number in range(runs):
        while number % 50 == 0 and len(store.decided()) > AHEAD:
            time.sleep(0.02)
        slots = [f"{name}-{number}" for name in (("pay",), ("send",), ("pay", "send"))[number % 3]]
        for item in agent.invoke(" ".join(slots)).checkpoint.pending:
            store.decide(item.id, Approve(), by="rita", digest=item.digest, key=item.id)
            world.notes.add("decided", slot=item.args["slot"])


def watch(world: World, runs: int) -> None:
    """The human: looks whether a call of which nobody knows took effect, until nothing is left to do."""
    store, until = world.open(), now() + PATIENCE
    while True:
        for waiting in store.pending(limit=200):
            item = waiting.approval
            slot = item.args["slot"]
            if item.why == "approval":
                continue  # it is decided in a moment; one that is asked for again would never be, and its run be stuck
            if item.why != "outcome_unknown" or item.tool_name != "pay":
                world.violation(f"{slot} was decided, and waits again: {item.why}")
            elif not world.effects.begun(slot):  # else its process may still pay: a lease that is over is no death
                there = world.effects.path(slot).exists()
                answer = Respond(content=f"paid 5 for {slot}") if there else Approve()
                store.decide(item.id, answer, by="olga", digest=item.digest)
                world.notes.add("looked", slot=slot, there=there)
        if now() > until or not store.decided(
            limit=1
        ):  # all branches are many: they are looked at when little is left to do
            branches = store.branches()
            left = [(each.run_id, each.status, each.owner) for each in branches if each.status in OPEN]
            if len(branches) == runs and not left:
                return
            if now() > until:
                world.violation(f"{len(left)} of {len(branches)} runs are stuck, such as {left[:5]}")
                return
        time.sleep(0.2)


def judge_kills(world: World, runs: int) -> None:
    """Every run has ended, and every effect is there once."""
    store, lines = world.open(), world.notes.read()
    branches = store.branches()
    ends = Counter(each.status for each in branches)
    if ends != {"completed": runs} or store.decided() or store.pending():
        world.violation(f"runs ended as {dict(ends)}, {len(store.decided())} decided, {len(store.pending())} pending")
    seen = {what: Counter(each["slot"] for each in lines if each["what"] == what) for what in ("effect", "decided")}
    entered = Counter(each["slot"] for each in lines if each["what"] == "enter")
    again = Counter(each["slot"] for each in lines if each["what"] == "looked" and not each["there"])
    keys: dict[str, set[str]] = {}
    for each in lines:
        if each["what"] == "enter":
            keys.setdefault(each["slot"], set()).add(each["key"])
    for slot in seen["decided"]:
        if not world.effects.path(slot).exists() or seen["effect"][slot] > 1:
            world.violation(f"{slot} took effect {seen['effect'][slot]} times")
        if slot.startswith("pay") and entered[slot] > 1 + again[slot]:
            world.violation(f"{slot} was entered {entered[slot]} times, and approved anew {again[slot]} times")
        if len(keys[slot]) != 1:
            world.violation(f"{slot} was called under {len(keys[slot])} idempotency keys")
    for branch in branches:
        head = store.head(branch.id)[1]
        told = Counter(message.tool_call_id for message in head.messages if message.role == "tool")
        if told != Counter(each.id for message in head.messages for each in message.tool_calls):
            world.violation(f"run {branch.run_id} does not have one result for each call")
    repeated = sum(count > 1 for count in entered.values())
    print(f"{sum(entered.values())} bodies entered, {repeated} calls more than once; a human looked {sum(again.values())}"
          f" times in vain, and {sum(each.get('there', False) for each in lines)} times found the effect", flush=True)  # fmt: skip


def kills(world: World, options: Any) -> None:
    """Kill workers at random instants until all is done."""
    filler = world.child(lambda: fill(world, options.runs))
    for _ in range(WORKERS):
        world.start_worker()
    human, killed = world.child(lambda: watch(world, options.runs)), 0
    while os.waitpid(human, os.WNOHANG)[0] == 0:
        time.sleep(world.random.uniform(0, 2 * options.pace))
        if killed < options.kills:
            killed += 1
            world.kill_one()
            world.start_worker()
    world.kill_all()
    world.wait(filler)
    print(f"{options.kind}, seed {options.seed}: {options.runs} runs, {killed} kills", flush=True)
    world.wait(world.child(lambda: judge_kills(world, options.runs)))


# The race


def ask(world: World, runs: int) -> None:
    """So many runs that wait for five decisions each."""
    agent = make(world.open())
    for number in range(runs):
        agent.invoke(" ".join(f"pay-{number}.{place}" for place in range(CALLS)))


class Decider:
    """One of many who decide: of each run the same call as two others. The first and the last are one person with two clicks."""

    def __init__(self, world: World, number: int, ready: Any, go: Any) -> None:
        self.world, self.number, self.ready, self.go = world, number, ready, go
        self.twin = number % (DECIDERS - 1) == 0
        self.by = "twin" if self.twin else f"person-{number}"
        self.random = random.Random(f"{world.seed}/decider {self.by}")

    def run(self, runs: int) -> None:
        try:
            self._run(runs)
        finally:
            self.ready[self.number] = 255  # the others do not wait for one that has failed

    def _run(self, runs: int) -> None:
        store = self.world.open()
        asked: dict[str, list[Any]] = {}
        for waiting in store.pending():
            asked.setdefault(waiting.run_id, []).append(waiting.approval)
        for turn, items in enumerate(asked.values()):
            item, answer = items[self.number % CALLS], self.answer()
            self.ready[self.number] = turn + 1
            while self.go[0] <= turn:
                time.sleep(0.001)
            self.decide(store, item, answer)
        assert len(asked) == runs

    def answer(self) -> Any:
        amount = 100 + self.number % (DECIDERS - 1)
        kinds = [
            *(Approve(), Approve(args={"amount": amount}), Reject(reason=f"no, says {self.by}")),
            Respond(content=f"by hand of {self.by}"),
        ]
        return self.random.choice(kinds)

    def decide(self, store: Store, item: Any, answer: Any) -> None:
        if isinstance(answer, Approve) and answer.args is not None:
            answer = Approve(args={**item.args, **answer.args})
        given = {"by": self.by, "digest": item.digest, "key": f"{self.by} {item.id}"}
        facts: dict[str, Any] = {"pending": item.id, "slot": item.args["slot"], "by": self.by}
        try:
            found = store.decide(item.id, answer, **given)
        except CheckpointAlreadyResumed as error:
            first = error.decision.by.id if error.decision is not None and error.decision.by is not None else None
            self.world.notes.add("lost", **facts, first=first, of=error.pending_id)
            return
        args = answer.args if isinstance(answer, Approve) else None
        said = getattr(answer, "content", None) or getattr(answer, "reason", None)
        self.world.notes.add("won", **facts, kind=type(answer).__name__, args=args, said=said)
        again = store.decide(item.id, answer, **given)
        by = again.decision.by.id if again.decision is not None and again.decision.by is not None else None
        if (again.approval, by) != (found.approval, self.by):
            self.world.violation(f"{item.id}: the same decision with the same key gave another answer")


def rest(world: World) -> None:
    """Wait until every run has ended."""
    store, until = world.open(), now() + PATIENCE
    while left := [each.run_id for each in store.branches() if each.status in OPEN]:
        if now() > until:
            world.violation(f"{len(left)} runs are stuck, such as {left[:5]}")
            return
        time.sleep(0.05)


def judge_race(world: World, runs: int) -> None:
    """Of each call one decision counts, and it was carried out exactly as it was given."""
    store, lines = world.open(), world.notes.read()
    won: dict[str, dict[str, Any]] = {}
    for line in lines:
        first = won.setdefault(line["pending"], line) if line["what"] == "won" else None
        if first is not None and first["by"] != line["by"]:
            world.violation(f"both {first['by']} and {line['by']} decided {line['slot']}")
    if len(won) != runs * CALLS:
        world.violation(f"{len(won)} of {runs * CALLS} calls were decided")
    for line in lines:
        if line["what"] == "lost" and (line["first"], line["of"]) != (won[line["pending"]]["by"], line["pending"]):
            world.violation(f"{line['by']} was told that {line['first']} decided {line['slot']} first")
    entered: dict[str, list[int]] = {}
    for line in lines:
        if line["what"] == "enter":
            entered.setdefault(line["slot"], []).append(line["amount"])
    for pending, line in won.items():
        request = store.request(pending)
        run = entered.get(line["slot"], [])
        wanted = {
            "Approve": ("completed", [(line["args"] or {}).get("amount", 5)]),
            "Reject": ("rejected", []),
            "Respond": ("responded", []),
        }[line["kind"]]
        kind = request.result.kind if request.result is not None else None
        content = str(request.result.content) if request.result is not None else ""
        said = line["said"] or f"paid {wanted[1][0]} for {line['slot']}"
        trail = {record.by.id for record in store.audit(pending_id=pending) if record.by is not None}
        if (kind, run) != wanted or said not in content or trail != {line["by"]} or request.status != "settled":
            world.violation(f"{line} came to {kind} {content!r}, the body ran with {run}; in the trail is {trail}")
    ends = Counter(each.status for each in store.branches())
    if ends != {"completed": runs} or store.decided() or store.pending():
        world.violation(f"runs ended as {dict(ends)}, {len(store.decided())} decided, {len(store.pending())} pending")
    told = Counter(line["what"] for line in lines)
    print(f"{len(won)} calls: {told['won']} told that they decided, {told['lost']} that somebody was first", flush=True)


def race(world: World, options: Any) -> None:
    """Have all decide at the same moment, run after run."""
    world.wait(world.child(lambda: ask(world, options.runs)))
    for _ in range(WORKERS):
        world.start_worker()
    ready, go = [mmap.mmap(-1, DECIDERS), mmap.mmap(-1, 1)]
    deciders = [
        world.child(lambda number=number: Decider(world, number, ready, go).run(options.runs))  # type: ignore[misc]
        for number in range(DECIDERS)
    ]
    until = now() + PATIENCE
    for turn in range(1, options.runs + 1):
        while min(bytes(ready)) < turn and now() < until:
            time.sleep(0.001)
        go[0] = turn
    world.wait(*deciders)
    world.wait(world.child(lambda: rest(world)))
    world.kill_all()
    print(f"{options.kind}, seed {options.seed}: {options.runs} runs", flush=True)
    world.wait(world.child(lambda: judge_race(world, options.runs)))


def main() -> int:
    """Do one of the two on one kind of store, and print what does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["kills", "race"])
    parser.add_argument("--kind", choices=["sqlite", "postgres", "redis"], default="sqlite")
    parser.add_argument("--seed", default=str(random.randrange(10**6)))
    parser.add_argument("--runs", type=int, default=100, help="up to 250 for the race")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pace", type=float, default=0.3, help="seconds from kill to kill, on average")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))  # for `phronomy work`
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name, place_of(options.kind, Path(name)) as place:
        os.environ[FOLDER] = name
        world = World(place, Path(name), options.seed)
        world.preload()
        begun = now()
        {"kills": kills, "race": race}[options.what](world, options)
        found = world.violations()
        print(*(f"VIOLATION, seed {options.seed}: {each}" for each in found), sep="\n")
        print(f"{len(found)} violations, {now() - begun:.0f} s")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
