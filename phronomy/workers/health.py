"""How a worker is, and what it counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from phronomy.foundation.dataclasses import dataclass
from phronomy.observability.telemetry import Telemetry
from phronomy.runs.runs import Runs

if TYPE_CHECKING:
    from phronomy.observability.otel_workers import WorkerMeters


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A run that failed again and again, and is tried only every few minutes until that is mended."""

    run_id: str
    branch_id: str
    agent: str
    tries: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a worker is: `worker.health()`.

    `status` is `"starting"` before the first look, `"ok"`, `"failing"` if the last look failed (the store cannot be reached, say),
    `"stopping"` or `"stopped"`. `is_ok` is what a health check should say: the status is `"starting"` or `"ok"`, and the worker
    has looked lately. `last_look` is how many seconds ago the last look succeeded, None if none has. `at_work` counts the runs that
    it drives now, `carried_out` the runs that were driven to where they rest, `failures` the tries that failed. `set_aside` are the
    runs that are left alone.
    """

    status: Literal["starting", "ok", "failing", "stopping", "stopped"]
    is_ok: bool
    last_look: float | None
    at_work: int
    carried_out: int
    failures: int
    set_aside: tuple[SetAside, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """Plain data for a health check that others can read: without the text of errors, which may quote anything."""
        aside = [
            {"run_id": each.run_id, "branch_id": each.branch_id, "agent": each.agent, "tries": each.tries}
            for each in self.set_aside
        ]
        return {
            "status": self.status,
            "is_ok": self.is_ok,
            "last_look": None if self.last_look is None else round(self.last_look, 3),
            "at_work": self.at_work,
            "carried_out": self.carried_out,
            "failures": self.failures,
            "set_aside": aside,
        }


class Measures:
    """What a worker counts of the agents that have the hook `Telemetry`, for the meter provider of that; of others nothing."""

    def __init__(self, agents: Iterable[Runs[Any, Any]]) -> None:
        self._meters: dict[str, WorkerMeters] = {}
        for agent in agents:
            telemetry = next((each for each in agent.spec.hooks if isinstance(each, Telemetry)), None)
            if telemetry is not None:
                self._meters[agent.spec.name] = telemetry._for_workers()

    def measures(self, agent: str) -> bool:
        """Whether anything is counted of this agent."""
        return agent in self._meters

    def carried_out(self, agent: str, status: str) -> None:
        """A run was driven to where it rests."""
        if (meters := self._meters.get(agent)) is not None:
            meters.carried_out(agent, status)

    def failed(self, agent: str, error: Exception) -> None:
        """A try has failed."""
        if (meters := self._meters.get(agent)) is not None:
            meters.failed(agent, type(error).__name__)

    def set_aside(self, agent: str, change: int) -> None:
        """One more run is set aside, or one fewer."""
        if (meters := self._meters.get(agent)) is not None:
            meters.set_aside(agent, change)

    def found(self, agent: str, count: int) -> None:
        """So many runs wait for a worker."""
        if (meters := self._meters.get(agent)) is not None:
            meters.found(agent, count)

    def begun(self, agent: str, delay: float) -> None:
        """A worker begins to carry out a decision that was taken so many seconds ago."""
        if (meters := self._meters.get(agent)) is not None:
            meters.begun(agent, delay)
