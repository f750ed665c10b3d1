"""Measuring: sides in processes of their own, rounds in which each takes its turn, and ratios within a round.

Counted is the CPU time of the side's process, so that neither the provider nor what else the machine does has a share. A busy machine
still slows everything that runs on it; so a figure is compared with the floor's of the same round, and the median of these ratios
counts. Beside it stands their spread: the lowest and the highest ratio without the outer fifth at each end.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
WORKER: Final = str(HERE / "worker.py")


@dataclass(frozen=True)
class Environment:
    """How the process of a side is started."""

    name: str
    python: str = sys.executable
    peer: bool = False
    tree: Path | None = None
    """A checkout whose phronomy it uses, in place of the installed one."""

    def command(self, url: str, folder: Path) -> list[str]:
        """The command of its worker."""
        return [self.python, WORKER, self.name, url, str(folder)]

    def variables(self) -> dict[str, str]:
        """Its environment. What libraries send home, or look up there, is switched off."""
        found = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENAI_API_KEY": "none",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "LANGSMITH_TRACING": "false",
        }
        found.pop("PYTHONPATH", None)
        if self.tree is not None:
            found["PYTHONPATH"] = str(self.tree)
        return found


@dataclass(frozen=True)
class Reading:
    """One measurement."""

    cpu: float
    wall: float
    value: float | None


class Worker:
    """A side in a process that lives as long as the measuring does."""

    def __init__(self, environment: Environment, url: str, folder: Path) -> None:
        self.environment, self.url, self.folder = environment, url, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[str] | None = None

    def ask(self, method: str, arguments: dict[str, Any], repeat: int = 1) -> Reading | None:
        """What the side's method takes, or None if the side has nothing of the kind."""
        if self._process is None:
            self._process = subprocess.Popen(
                self.environment.command(self.url, self.folder),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment.variables(),
            )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([method, arguments, repeat]), file=self._process.stdin, flush=True)
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"the worker of {self.environment.name} has ended: its own words are above")
        found = json.loads(line)
        return None if "absent" in found else Reading(**found)

    def cold(self, number: int) -> Reading:
        """A whole process that does one cycle, from its start to its end."""
        folder = self.folder / f"cold-{number}"
        folder.mkdir()
        process = subprocess.Popen(
            [*self.environment.command(self.url, folder), "once"], env=self.environment.variables()
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"the worker of {self.environment.name} has failed: its own words are above")
        return Reading(cpu=usage.ru_utime + usage.ru_stime, wall=0.0, value=usage.ru_maxrss / 1024)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()
            self._process = None


@dataclass(frozen=True)
class Row:
    """One row of the table: what is measured, how often, and on which sides."""

    key: str
    title: str
    method: str
    arguments: dict[str, Any] = field(default_factory=dict)
    repeat: int = 1
    rounds: int = 15
    quick: int = 5
    unit: str = "ms"
    """`ms` of CPU, `/s` (runs a second of CPU), or `B`, the side's own figure."""

    runs: int = 1
    """How many runs the work drives, where the unit is `/s`."""

    goal: float | None = None
    """The highest ratio to the floor, or the bound of the figure itself."""

    claims_goal: float | None = None
    """The highest ratio to the floor with claims, where there is such a goal as well."""

    absolute: bool = False
    """Whether the goal is of the figure itself."""

    litellm: bool = False
    """Whether it is measured with litellm as well."""

    lessens: bool = True
    """Whether the round that warms up does less."""

    peers: int | None = None
    """In how many of the rounds the peers take part, where they take long; by default in all."""

    quick_peers: int | None = None
    """The same in a quick run; by default as in another one. With 0 they do not take part."""

    also: Row | None = None
    """Another row, whose figure comes from the same measurement."""

    def figure(self, reading: Reading) -> float:
        """What the row shows of a measurement."""
        if self.unit == "ms":
            return reading.cpu * 1000
        if self.unit == "/s":
            return self.runs / reading.cpu
        assert reading.value is not None
        return reading.value


@dataclass
class Found:
    """What was measured for a row: the figures of each side, by round."""

    row: Row
    figures: dict[str, dict[int, float]]

    def median(self, side: str) -> float:
        """The figure of a side."""
        return statistics.median(self.figures[side].values())

    def is_met(self) -> bool:
        """Whether the figure of phronomy meets a goal that is of the figure itself."""
        goal, figure = self.row.goal, self.median("phronomy")
        return goal is None or (figure >= goal if self.row.unit == "/s" else figure <= goal)

    def goals(self) -> list[tuple[str, float, float]]:
        """Each goal that is a ratio and can be judged here: what it is a ratio to, how much it may be, and how much it is."""
        row = self.row
        bounds = (("floor", None if row.absolute else row.goal), ("floor+claims", row.claims_goal))
        return [
            (base, bound, self.ratio("phronomy", base)[0])
            for base, bound in bounds
            if bound is not None and {"phronomy", base} <= set(self.figures)
        ]

    def ratio(self, side: str, base: str = "floor") -> tuple[float, float, float]:
        """The median of the side's figures over those of another in the same round, and their spread."""
        other = self.figures[base]
        return spread([figure / other[number] for number, figure in self.figures[side].items()])


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """The median, and the lowest and the highest without the outer fifth at each end."""
    ordered = sorted(values)
    cut = len(ordered) // 5
    kept = ordered[cut : len(ordered) - cut]
    return statistics.median(ordered), kept[0], kept[-1]


def measure(row: Row, workers: Iterable[Worker], rounds: int, *, quick: bool = False) -> list[Found]:
    """Measure a row on each side that has it, in rounds that begin with another side each.

    A side's first measurement of a row warms it up, and does not count; where it takes long, it is shorter.
    """
    found = [Found(each, {}) for each in (row, row.also) if each is not None]
    peers = row.quick_peers if quick and row.quick_peers is not None else row.peers
    taking = [
        worker
        for worker in workers
        if (row.litellm or "litellm" not in worker.environment.name) and (peers != 0 or not worker.environment.peer)
    ]
    for number in range(rounds):
        for worker in list(taking):
            name = worker.environment.name
            if number == 0 and not warmed(row, worker):
                taking.remove(worker)
            elif peers is None or number < peers or not worker.environment.peer:
                reading = (
                    worker.cold(number) if row.method == "cold" else worker.ask(row.method, row.arguments, row.repeat)
                )
                assert reading is not None
                for each in found:
                    each.figures.setdefault(name, {})[number] = each.row.figure(reading)
        taking = taking[1:] + taking[:1]
    return found


def warmed(row: Row, worker: Worker) -> bool:
    """Whether the side has the row; it has done the work once then."""
    if row.method == "cold":
        return worker.cold(-1) is not None
    less = {name: min(value, 20) if isinstance(value, int) else value for name, value in row.arguments.items()}
    return worker.ask(row.method, less if row.lessens else row.arguments) is not None
