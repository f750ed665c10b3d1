"""What the tests of the orchestrator share: a desk of agents, the ways between them, a pattern and a pool, over any store."""

from __future__ import annotations

from functools import partial
from typing import Any

from crash_worker import DRIVERS as CRASH_DRIVERS
from crash_worker import looked, make_tool
from drivers import SYNC, Driver
from handoff_scenes import to
from pattern_scenes import payer, says

from phronomy import Agent, Checkpoint, Orchestrator, Result, Store, Usage, parallel, sequential
from phronomy.models.base import ModelRequest
from phronomy.testing import ScriptedModel, call, say
from phronomy.testing.crash import Scene

SPENT = Usage(requests=1, input_tokens=7, output_tokens=3)
"""What each reply of the desk costs: ten tokens."""


class Desk:
    """Triage hands over to billing, which refunds once it may; two writers take turns, a letter is drafted and sent, two are paid.

    What was done stands in `done`. The models keep no place in their scripts, so that another process goes on.
    """

    def __init__(self, store: Store | None, *, driver: Driver = SYNC, tool: Any = None, **options: Any) -> None:
        self.driver = driver
        self.done: list[str] = []
        self.triage_model = ScriptedModel.by_turn([say(None, to("billing", "Paid twice."), usage=SPENT)])
        self.triage = Agent(name="triage", model=self.triage_model, instructions="I am triage.")
        self.billing = payer("billing", self.done, description="For bills.")
        if tool is not None:
            self.billing.tools = [tool]
        pays = call("pay", {} if tool is not None else {"to": "billing"})

        def reply(request: ModelRequest) -> Any:
            last = request.messages[-1]
            paid = last.role == "tool" and "handed over" not in last.text
            return say("Refunded." if paid else None, *([] if paid else [pays]), usage=SPENT)

        self.billing.model = ScriptedModel(reply)
        self.writers = [says(name, say(f"{name} wrote", usage=SPENT)) for name in ("ann", "bob")]
        letter = sequential(says("draft", "a draft"), payer("sender", self.done), name="letters")
        pair = parallel(payer("left", self.done), payer("right", self.done), name="pairs")
        options.setdefault("patterns", {"letter": letter, "pair": pair})
        given = {"handoffs": [("triage", "billing")], "pools": {"writer": ["ann", "bob"]}, "name": "desk", **options}
        self.team: Orchestrator[Any] = Orchestrator([self.triage, self.billing, *self.writers], store=store, **given)

    def run(self, input: Any = "Help.", **options: Any) -> Result[Any]:
        """The entry, triage."""
        result: Result[Any] = self.driver.call(self.team, "run", input, **options)
        return result

    def ask(self, member: str, input: Any = "Help.", **options: Any) -> Result[Any]:
        """Any member, or a pool."""
        method = "run_pattern" if member in ("letter", "pair") else "run_agent"
        result: Result[Any] = self.driver.call(self.team, method, member, input, **options)
        return result

    def settle(self, at: Result[Any] | Checkpoint | str, **options: Any) -> Result[Any]:
        """Approve all that waits, until nothing does."""
        result = at if isinstance(at, Result) else self.driver.resume(self.team, at, approved=True, **options)
        while result.suspended:
            result = self.driver.resume(self.team, result.checkpoint, approved=True, **options)
        return result


def asked(model: Any) -> list[list[str]]:
    """What a model was shown at each call: who said what."""
    return [[f"{said.role}: {said.text}" for said in request.messages] for request in model.requests]


# What is killed


def play(scene: Scene, *, driver: str) -> None:
    """Two runs of a thread, each brought to its end from wherever it stands: a handoff with a gated call, then the next of a pool."""
    desk = Desk(
        scene.store, driver=CRASH_DRIVERS[driver], tool=make_tool("pay", is_async=False, requires_approval=True)
    )
    team: Any = desk.team
    for wanted in (1, 2):
        runs = {branch.run_id for branch in scene.store.branches()}
        if len(runs) < wanted:
            desk.run("Help.", thread_id="t") if wanted == 1 else desk.ask("writer", "Write.", thread_id="t")
        scene.settle(team, answers=partial(looked, scene))


def check(scene: Scene) -> None:
    """It ends as one that was never killed: one payment, one handoff, two runs, and the next turn is the other writer's."""
    team = Desk(scene.store).team
    last = scene.store.latest("t")
    assert last is not None
    state = team.local_state(last)
    assert [entered.tool for entered in scene.entered if entered.tool == "pay"] == ["pay"]
    assert (state.status, state.runs, state.handoff_count, state.turns) == ("completed", 2, 1, {"writer": 1})
    assert [each["content"] for each in state.memory] == ["Help.", "Refunded.", "Write.", "ann wrote"]
