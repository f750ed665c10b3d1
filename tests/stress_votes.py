"""Many processes vote on the same requests, each of which takes three of five people, while workers are killed.

    python tests/stress_votes.py --kind postgres --seed 7 --voters 32 --requests 200 --kills 40

Each request waits in a run of its own. Voters go over all of them, each as one person after the other: five who may approve, each of
them in several processes, and three who may not. Most have the store alone, and every fourth has the agent, and so carries out what it
decides. Four workers carry out the rest, each killed with SIGKILL at a random instant and replaced. A call that was begun, and of which
nobody knows the outcome, asks for three people again: they look whether its effect is there.

What was done is told by files, outside of the store: an effect is a file that is made once. Choices follow from the seed, instants do
not: they are the machine's.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from drivers import PATIENCE
from places import place_of
from stress_outside import FOLDER, LEASE, WORKERS, Effects, World
from stress_worker import now

from phronomy import Agent, Approval, Approve, Principal, Respond, ToolContext, tool
from phronomy.errors import AlreadyVoted, CheckpointAlreadyResumed, LeaseLost, NotAnApprover, RunBusy
from phronomy.models.base import ModelRequest
from phronomy.stores.base import Store
from phronomy.stores.rows import OPEN
from phronomy.testing import ScriptedModel, call
from phronomy.workers import Worker

NEEDED = 3
RIGHT = [Principal(id=f"right-{number}", roles=("lead",)) for number in range(4)] + [Principal(id="named")]
WRONG = [
    Principal(id="wrong-0"),
    Principal(id="wrong-1", roles=("leader",)),
    Principal(id="wrong-2", roles=("clerk", "Lead")),
]
EVERYBODY = [*RIGHT, *WRONG]

TOLD = {NotAnApprover: "not an approver", AlreadyVoted: "voted before", CheckpointAlreadyResumed: "decided before"}


def make(store: Store | None = None) -> Agent[Any, str]:
    """The agent, as every process makes it: the user says which call it is to make."""
    effects = Effects(Path(os.environ[FOLDER]))

    @tool(requires_approval=Approval(by=["lead", Principal(id="named")], needed=NEEDED))
    def pay(slot: str, ctx: ToolContext[Any]) -> str:
        """Pay: not to be done twice."""
        effects.make(slot, ctx)
        return f"paid {slot}"

    def reply(request: ModelRequest) -> Any:
        said = request.messages[-1]
        return call("pay", {"slot": said.text}, id=said.text) if said.role == "user" else "Done."

    agent = Agent(name="desk", model=ScriptedModel(reply), tools=[pay])
    if store is not None:
        agent.store = store
    return agent


class Votes(World):
    """A store, and the processes that vote and work on it."""

    def preload(self) -> None:
        names = self.effects.folder / "names"

        def work() -> None:
            store = self.place.open(tenant="preload")
            agent = make(store)
            (item,) = agent.invoke("pay-0").checkpoint.pending
            with suppress(NotAnApprover):
                store.decide(item.id, Approve(), by=WRONG[0], digest=item.digest)
            Worker(agent)
            names.write_text("\n".join(sys.modules))

        self.wait(self.child(work))
        for name in names.read_text().splitlines():
            if name not in sys.modules:
                with suppress(ImportError):
                    importlib.import_module(name)
        gc.collect()
        gc.freeze()

    def start_worker(self) -> None:
        self.started += 1
        number = self.started

        def loop() -> None:
            random.seed(f"{self.seed}/{number}")
            Worker(make(self.open()), poll=0.2).run()

        self.workers[self.child(loop)] = number


def ask(world: Votes, requests: int) -> None:
    """So many runs that wait, each for one decision."""
    agent = make(world.open())
    for number in range(requests):
        (item,) = agent.invoke(f"pay-{number}", requester="ann").checkpoint.pending
        world.notes.add("asked", id=item.id)


class Voter:
    """One process that votes on each request as so many people."""

    def __init__(self, world: Votes, number: int, people: int) -> None:
        self.world, self.number, self.people = world, number, people
        self.random = random.Random(f"{world.seed}/voter {number}")
        self.with_agent = number % 4 == 3

    def run(self) -> None:
        store = self.world.open()
        agent = make(store)
        items = [store.request(line["id"]).approval for line in self.world.notes.read() if line["what"] == "asked"]
        for place, item in enumerate(items):
            for each in range(self.people):
                who = EVERYBODY[(self.number * self.people + each + place) % len(EVERYBODY)]
                self.vote(store, agent, item, who)
            time.sleep(self.random.uniform(0, 0.004))

    def vote(self, store: Store, agent: Agent[Any, str], item: Any, who: Principal) -> None:
        facts = {"pending": item.id, "slot": item.args["slot"], "by": who.id, "voter": self.number}
        given: dict[str, Any] = {"by": who, "digest": item.digest}
        until = now() + PATIENCE
        while now() < until:
            try:
                if self.with_agent:
                    agent.decide(item.id, Approve(), **given)
                else:
                    store.decide(item.id, Approve(), **given)
            except (NotAnApprover, AlreadyVoted, CheckpointAlreadyResumed) as error:
                self.world.notes.add(TOLD[type(error)], **facts)
            except RunBusy:  # the agent has to hold the run for it, and somebody else does
                time.sleep(0.01)
                continue
            except LeaseLost as error:
                # What it was to carry out was taken over. The vote is in the record, or it is not: the next try says so.
                self.world.notes.add("lease lost", **facts, error=str(error))
                continue
            else:
                self.world.notes.add("counted", **facts)
            return
        self.world.violation(f"{facts} could not vote")


def watch(world: Votes, requests: int) -> None:
    """Three people look whether a call of which nobody knows took effect, until nothing is left to do."""
    store, until = world.open(), now() + PATIENCE
    while True:
        for waiting in store.pending(limit=1000):
            item = waiting.approval
            slot = item.args["slot"]
            if item.why == "approval":
                continue  # it takes more votes, which are on the way
            if item.why != "outcome_unknown":
                world.violation(f"{slot} was approved, and waits again: {item.why}")
            elif item.votes or len(item.approvers) != 1:
                world.violation(
                    f"{slot} is asked about again with {len(item.votes)} votes, of {len(item.approvers)} levels"
                )
            elif not world.effects.begun(slot):
                there = world.effects.path(slot).exists()
                answer: Any = Respond(content=f"paid {slot}") if there else Approve()
                for who in RIGHT[:NEEDED]:
                    store.decide(item.id, answer, by=who, digest=item.digest)
                world.notes.add("looked", slot=slot, there=there)
        branches = store.branches()
        left = [(each.run_id, each.status, each.owner) for each in branches if each.status in OPEN]
        if len(branches) == requests and not left:
            return
        if now() > until:
            world.violation(f"{len(left)} of {len(branches)} runs are stuck, such as {left[:5]}")
            return
        time.sleep(0.2)


def judge(world: Votes, requests: int) -> None:
    """Each request was decided by exactly three who may, and its call took effect once."""
    store, lines = world.open(), world.notes.read()
    told: dict[str, dict[str, list[str]]] = {}
    for line in lines:
        if "pending" in line:
            told.setdefault(line["pending"], {}).setdefault(line["what"], []).append(line["by"])
    names = {slot: {each.id for each in people} for slot, people in (("right", RIGHT), ("wrong", WRONG))}
    if len(told) != requests:
        world.violation(f"{len(told)} of {requests} requests were voted on")
    for pending, said in told.items():
        found = store.request(pending)
        counted = sorted(said.get("counted", []))
        assert found.decision is not None
        votes = [each.by.id for each in found.decision.votes]
        unsure = len(said.get("lease lost", []))
        if len(votes) != NEEDED or len(set(votes)) != NEEDED or not set(votes) <= names["right"]:
            world.violation(f"{pending} was decided by {votes}")
        if counted != sorted(votes) and not unsure:
            world.violation(f"{pending} was decided by {votes}, and {counted} were told that they count")
        if not set(said.get("not an approver", [])) <= names["wrong"]:
            world.violation(f"{pending}: refused were {said['not an approver']}")
        if not set(said.get("voted before", [])) <= set(votes):
            world.violation(
                f"{pending}: {said['voted before']} were told that they have voted, and the votes are {votes}"
            )
        trail = Counter((line.refused, line.vote) for line in store.audit(pending_id=pending))
        refused = trail.pop((True, False), 0)
        if trail != {(False, True): NEEDED - 1, (False, False): 1} or refused > len(said.get("not an approver", [])):
            world.violation(f"{pending}: the trail has {dict(trail)}, and {refused} who were refused")
    entered = Counter(line["slot"] for line in lines if line["what"] == "enter")
    effect = Counter(line["slot"] for line in lines if line["what"] == "effect")
    again = Counter(line["slot"] for line in lines if line["what"] == "looked" and not line["there"])
    for number in range(requests):
        slot = f"pay-{number}"
        # A worker that is killed after the effect, and before the note of it, has left the file.
        if not world.effects.path(slot).exists() or effect[slot] > 1:
            world.violation(f"{slot} took effect {effect[slot]} times")
        if entered[slot] > 1 + again[slot]:
            world.violation(f"{slot} was entered {entered[slot]} times, and approved anew {again[slot]} times")
    ends = Counter(each.status for each in store.branches())
    if ends != {"completed": requests} or store.decided() or store.pending():
        world.violation(f"runs ended as {dict(ends)}, {len(store.decided())} decided, {len(store.pending())} pending")
    whats = Counter(line["what"] for line in lines)
    print(f"{sum(whats[each] for each in ('counted', *TOLD.values()))} votes: {whats['counted']} counted, "
          + ", ".join(f"{whats[each]} told {each}" for each in TOLD.values())
          + f"; {sum(entered.values())} bodies entered, three people looked {whats['looked']} times", flush=True)  # fmt: skip


def votes(world: Votes, options: Any) -> None:
    """Have all vote, and kill workers at random instants until all is done."""
    world.wait(world.child(lambda: ask(world, options.requests)))
    for _ in range(WORKERS):
        world.start_worker()
    people = max(1, 2 * len(EVERYBODY) // options.voters)
    begun = now()
    voters = [
        world.child(lambda number=number: Voter(world, number, people).run())  # type: ignore[misc]
        for number in range(options.voters)
    ]
    human, killed = world.child(lambda: watch(world, options.requests)), 0
    while os.waitpid(human, os.WNOHANG)[0] == 0:
        time.sleep(world.random.uniform(0, 2 * options.pace))
        if killed < options.kills:
            killed += 1
            world.kill_one()
            world.start_worker()
    world.wait(*voters)
    took = now() - begun
    world.kill_all()
    print(
        f"{options.kind}, seed {options.seed}: {options.voters} voters, {options.requests} requests, {killed} kills,"
        f" {took:.0f} s",
        flush=True,
    )
    world.wait(world.child(lambda: judge(world, options.requests)))


def main() -> int:
    """Vote on one kind of store, and print what does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", choices=["sqlite", "postgres", "redis"], default="sqlite")
    parser.add_argument("--seed", default=str(random.randrange(10**6)))
    parser.add_argument("--voters", type=int, default=32)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--pace", type=float, default=0.3, help="seconds from kill to kill, on average")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name, place_of(options.kind, Path(name)) as place:
        os.environ[FOLDER] = name
        world = Votes(place, Path(name), options.seed)
        world.preload()
        votes(world, options)
        found = world.violations()
        print(*(f"VIOLATION, seed {options.seed}: {each}" for each in found), sep="\n")
        print(f"{len(found)} violations, lease {LEASE:.0f} s", flush=True)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
