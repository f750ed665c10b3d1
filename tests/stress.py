"""Workers that are killed and stopped at random instants, and deciders who decide at once, judged by what their tools did.

    python tests/stress.py --seed 7 --stores sqlite,redis --kills 500 --deciders 50 --stops 60

Three parts, on each store. *Kills*: processes that begin runs, decide, recover, delete, are killed with SIGKILL, at instants that
know nothing of what they do; others go on. *Deciders*: five processes decide the five calls of one reply at the same moment, some
are killed meanwhile. *Stops*: processes are stopped with SIGSTOP for longer than their lease, and go on when others have taken their
runs. In the end everything is driven to rest, and `stress_judge` says what did not hold. Choices follow from the seed, instants do
not: they are the machine's.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import mmap
import os
import pickle
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from places import Place, place_of
from stress_judge import Judge, Violation
from stress_worker import PATIENCE, REST, Notes, Worker, World, fork, now

STORES = ("sqlite", "postgres", "redis")
LEASE = 1.0
A_ROUND = 25  # kills or stops, before all is driven to rest and judged


class Stress:
    """One store, the rounds on it, and what they came to."""

    def __init__(self, place: Place, folder: Path, seed: str, *, workers: int, pace: float, leaving: float) -> None:
        self.place = place
        self.folder = folder
        self.seed = seed
        self.workers = workers
        self.pace = pace
        self.leaving = leaving
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.found: list[tuple[str, Violation]] = []
        self._rounds = 0
        self._numbers = 0
        self._living: dict[int, int] = {}

    @contextmanager
    def round(self, *, lease: float = LEASE, **options: float) -> Iterator[World]:
        """A tenant of its own, with its own file of notes, which is judged afterwards."""
        self._rounds += 1
        name = f"{self.seed}/{self._rounds}"
        phase = mmap.mmap(-1, 1)
        notes = Notes(self.folder / f"notes {self._rounds}")
        world = World(self.place, f"round {self._rounds}", notes, phase, lease, **options)
        try:
            yield world
        finally:
            for pid in self._living:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            self._living.clear()
        self.judge(world, name)
        notes.path.unlink()

    def start(self, world: World, work: Callable[[Worker], object] = Worker.run) -> int:
        """A new worker."""
        self._numbers += 1
        number = self._numbers
        pid = fork(lambda: work(Worker(world, number, self.seed)), world.notes)
        self._living[pid] = number
        return pid

    def kill(self, world: World, pid: int) -> None:
        world.notes.add("kill", worker=self._living[pid], killed=pid)
        os.kill(pid, signal.SIGKILL)
        self.reap(pid)

    def reap(self, pid: int) -> None:
        os.waitpid(pid, 0)
        del self._living[pid]

    def wait(self, world: World, pids: list[int]) -> None:
        """Until they have ended, each by itself; of one that does not it is noted where it hangs, and it is killed."""
        until = now() + 1.5 * PATIENCE
        for pid in pids:
            while os.waitpid(pid, os.WNOHANG)[0] == 0:
                if now() > until:
                    os.kill(pid, signal.SIGUSR1)
                    time.sleep(0.5)
                    where = world.notes.path.with_suffix(".hangs").read_text()
                    world.notes.add("raised", act="worker", error="nothing, and hangs", trace=where)
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    break
                time.sleep(0.002)
            del self._living[pid]

    def judge(self, world: World, name: str) -> None:
        """In a process of its own: a store has threads, and who forks has none."""
        verdict = self.folder / "verdict"

        def work() -> None:
            store = world.open()
            judge = Judge(world, store)
            found = judge.judge()
            store.close()
            verdict.write_bytes(pickle.dumps((found, judge.counts)))

        verdict.unlink(missing_ok=True)
        _, status = os.waitpid(fork(work, world.notes), 0)
        if status:
            trace = [line["trace"] for line in world.notes.read() if line.get("act") == "worker"][-1]
            found, counts = [Violation("the judge cannot judge", trace)], Counter[str]()
        else:
            found, counts = pickle.loads(verdict.read_bytes())
        self.counts.update(counts)
        for each in found:
            self.found.append((name, each))
            print(f"\nVIOLATION, seed {name}, {self.place.kind}\n{each}", flush=True)

    def preload(self) -> None:
        """Have imported here what a worker imports in its first steps: a fork of this process begins with it."""
        names = self.folder / "names"
        world = World(self.place, "preload", Notes(self.folder / "notes"), mmap.mmap(-1, 1), LEASE)

        def work() -> None:
            worker = Worker(world, 0, self.seed)
            for worker.is_async in (False, True):
                worker.invoke(worker.shapes(), None)
                worker.settle()
            names.write_text("\n".join(sys.modules))

        os.waitpid(fork(work, world.notes), 0)
        for name in names.read_text().splitlines():
            if name not in sys.modules:
                with suppress(ImportError):
                    importlib.import_module(name)
        gc.collect()
        gc.freeze()

    # The three parts

    def kills(self, number: int) -> None:
        """So many workers are killed, each at a random instant; there is always another."""
        while number > 0:
            mine = min(number, A_ROUND)
            number -= mine
            with self.round(leaving=self.leaving) as world:
                for _ in range(self.workers):
                    self.start(world)
                for _ in range(mine):
                    time.sleep(self.random.uniform(0, 2 * self.pace))
                    self.kill(world, self.random.choice([*self._living]))
                    self.counts["kills"] += 1
                    self.start(world)
                world.phase[0] = REST
                self.wait(world, [*self._living])

    def stops(self, number: int) -> None:
        """So many times a worker is stopped for longer than its lease, and goes on."""
        while number > 0:
            mine = min(number, A_ROUND)
            number -= mine
            with self.round(stalls=0.06) as world:
                running = [self.start(world) for _ in range(self.workers)]
                stopped: list[tuple[float, float, int]] = []
                while mine or stopped:
                    if mine and len(running) > 2:
                        mine -= 1
                        self.counts["stops"] += 1
                        pid = running.pop(self.random.randrange(len(running)))
                        begins = now()
                        os.kill(pid, signal.SIGSTOP)
                        stopped.append((begins + world.lease + self.random.uniform(0.05, 0.8), begins, pid))
                        stopped.sort()
                    while stopped and stopped[0][0] < now():
                        _, begins, pid = stopped.pop(0)
                        world.notes.add("stop", **{"pid": pid, "begins": begins, "ends": now()})
                        os.kill(pid, signal.SIGCONT)
                        running.append(pid)
                    time.sleep(self.random.uniform(0, self.pace / 4))
                world.phase[0] = REST
                self.wait(world, [*self._living])

    def deciders(self, number: int, harmed: float) -> None:
        """So many rounds in which five decide at once; in some, one is killed, or one of two leaves. Then another recovers."""
        for _ in range(number):
            harm = self.random.choice(("kill", "leave")) if self.random.random() < harmed else None
            many, slow = (2, {"stalls": 0.06}) if harm == "leave" else (5, {})
            with self.round(lease=LEASE if harm else 30.0, **slow) as world:
                self.wait(world, [self.start(world, lambda worker, many=many: worker.invoke(["g" * many], None))])
                ready = mmap.mmap(-1, many)
                pids = [self.start(world, partial(Worker.one_of_all, place=n, ready=ready)) for n in range(many)]
                while bytes(ready) != b"\1" * many:
                    time.sleep(0.001)
                world.phase[0] = REST
                if harm == "kill":
                    time.sleep(self.random.uniform(0, 0.2))
                    self.kill(world, victim := self.random.choice(pids))
                    pids.remove(victim)
                self.wait(world, pids)
                self.counts[f"rounds of {many}{f', with a {harm}' if harm else ''}"] += 1
                if harm:
                    self.wait(world, [self.start(world, Worker.settle)])


def stress(kind: str, seed: str, options: Any) -> Stress:
    """All of it on one store."""
    with tempfile.TemporaryDirectory() as folder, place_of(kind, Path(folder)) as place:
        named = {"workers": options.workers, "pace": options.pace, "leaving": options.leaving}
        done = Stress(place, Path(folder), f"{seed}/{kind}", **named)
        begun = now()
        done.preload()
        for part, work in (
            ("kills", lambda: done.kills(options.kills)),
            ("deciders", lambda: done.deciders(options.deciders, options.harmed)),
            ("stops", lambda: done.stops(options.stops)),
        ):
            since = now()
            work()
            print(f"{kind}: {part} took {now() - since:.0f} s", flush=True)
        print(f"\n{kind}: {now() - begun:.0f} s, {len(done.found)} violations")
        for what, count in sorted(done.counts.items()) + sorted(
            Counter(f"violated: {each.law}" for _, each in done.found).items()
        ):
            print(f"    {count:7} {what}")
        sys.stdout.flush()
        return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", default=str(random.randrange(10**6)))
    parser.add_argument("--stores", default=",".join(STORES), help="some of sqlite, postgres and redis, with commas")
    parser.add_argument("--kills", type=int, default=500, help="on each store")
    parser.add_argument("--deciders", type=int, default=67, help="rounds of five on each store")
    parser.add_argument("--harmed", type=float, default=0.4, help="the part of these in which one is killed, or leaves")
    parser.add_argument("--stops", type=int, default=50, help="on each store")
    parser.add_argument("--workers", type=int, default=4, help="that live at the same time")
    parser.add_argument("--pace", type=float, default=0.2, help="seconds from kill to kill, on average")
    parser.add_argument(
        "--leaving", type=float, default=0.15, help="the part of all calls that are cancelled or interrupted"
    )
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    found = [each for kind in options.stores.split(",") for each in stress(kind, options.seed, options).found]
    print(f"\nseed {options.seed}: {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
