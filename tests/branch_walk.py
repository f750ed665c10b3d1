"""A random walk over the branches of threads: messages, forks, forks of forks, restores, decisions, deaths, deploys; judged as it goes.

    python tests/branch_walk.py --seed 7 --operations 50000

It goes in rounds, each on a store of its own. After each operation the branch that it made or changed is read in every way; at the end
of a round all of them are, then a worker carries out what was decided, and everything that is left is resumed or cancelled. So:

- each branch that was written can be loaded, listed, and resumed or cancelled;
- what is listed as pending is what the log says, and each request can be asked for by its id;
- each decision that was acknowledged is carried out, or its decider is told what came of it: its run has ended, or somebody is asked
  again;
- no call takes effect without an approval of its own, in all branches together: neither where it was let run before, nor where it has
  failed and is run again.

Choices follow from the seed alone, and the clock stands still but for deaths, so a walk that fails is walked again as it was.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from phronomy import Agent, Checkpoint, MemoryStore, ToolContext, parallel, sequential, tool
from phronomy.errors import NodeFailed, PhronomyError, UnknownPending
from phronomy.records.decisions import Answer, Approve, Reject
from phronomy.rules.transitions import current
from phronomy.stores.base import Store
from phronomy.stores.rows import ENDED, Branch
from phronomy.testing import ScriptedModel, call

A_ROUND = 60
"""Operations on one store."""

KINDS = ("plain", "inside", "deep", "sequential", "parallel", "team inside")
"""The kinds of agents that walk."""


class Gone(BaseException):
    """The worker is gone: nothing that it would still have done is done."""


class Wrong(AssertionError):
    """The promises that did not hold, and after which operations."""


class Walk:
    """A round: a store, an agent of each kind, and some threads of each."""

    def __init__(self, seed: str, store: Store | None = None) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 1_700_000_000.0
        self.store = store if store is not None else MemoryStore()
        self.store.clock = lambda: self.now
        self.dies = False
        self.fails = False
        self.deploys = 0
        self.entered: Counter[str | None] = Counter()
        self.decided: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.told: list[str] = []
        self.agents = {kind: self._agent(kind) for kind in KINDS}

    # The agents

    def _agent(self, kind: str) -> Any:
        """An agent of a kind, as the last deploy has it."""

        def pay(order: int, context: ToolContext[Any]) -> str:
            """Pay for an order."""
            if self.dies:
                self.dies = False
                raise Gone
            if self.fails:
                self.fails = False
                raise ConnectionError("the bank is away")
            self.entered[context.pending_id] += 1
            return "paid"

        def pay_with_note(order: int, context: ToolContext[Any], note: str = "") -> str:
            """Pay for an order, with a note."""
            return pay(order, context)

        changed = self.deploys % 2 == 1
        gated = tool(requires_approval=True, on_failure="stop", name="pay")(pay_with_note if changed else pay)

        def payer(name: str, calls: int = 1) -> Any:
            reply = [call("pay", {"order": number}) for number in range(1, calls + 1)]
            return Agent(name=name, tools=[gated], model=ScriptedModel.by_turn([reply, "It is paid."]))

        def asking(inner: Any, name: str, **options: Any) -> Any:
            model = ScriptedModel.by_turn([call("ask", {"input": "pay"}), "All is paid."])
            return Agent(name=name, tools=[inner.as_tool("ask", "Has it paid.")], model=model, **options)

        if kind == "plain":
            reply = [call("pay", {"order": 1}), call("pay", {"order": 2})]
            return Agent(name=kind, tools=[gated], store=self.store, model=ScriptedModel.by_turn([reply, "Paid."]))
        if kind == "inside":
            return asking(payer("clerk", 2), kind, store=self.store)
        if kind == "deep":
            return asking(asking(payer("clerk"), "manager"), kind, store=self.store)
        if kind == "team inside":
            return asking(parallel(payer("left"), payer("right"), name="office"), kind, store=self.store)
        team = sequential if kind == "sequential" else parallel
        return team(payer("first"), payer("second"), name=kind, store=self.store)

    # Operations

    def walk(self, operations: int) -> None:
        """Do so many operations, then have everything carried out. Raises `Wrong`."""
        ways = [self.message, self.decide, self.decide, self.fork, self.fork, self.restore, self.resume, self.step]
        ways += [self.cancel, self.recover, self.die, self.label, self.deploy, self.prune, self.elsewhere, self.fail]
        for _ in range(operations):
            way = self.random.choice(ways)
            self._do(way)
        self.finish()

    def _do(self, way: Callable[[], Checkpoint | None]) -> None:
        name = way.__name__
        self.counts[name] += 1
        try:
            made = way()
        except Gone:
            self.now += self.store.lease + 1
            self.told.append(f"{name}: the worker is gone")
            return
        # Refused, and nothing has changed: which errors there may be is for other tests to say.
        except PhronomyError as error:
            self.counts[f"{name} refused"] += 1
            self.told.append(f"{name}: {type(error).__name__}")
            return
        finally:
            self.dies = self.fails = False
        self.told.append(f"{name}: {made.branch_id if made is not None else '-'}")
        if made is not None:
            self.check(made.branch_id)

    def message(self) -> Checkpoint:
        kind = self.random.choice(KINDS)
        how = self.random.choice(("refuse", "supersede", "supersede", "ignore"))
        thread = f"{kind} {self.random.randrange(2)}"
        found: Checkpoint = self.agents[kind].invoke("Pay", thread_id=thread, on_pending=how).checkpoint
        return found

    def decide(self) -> None:
        page = self.store.pending()
        if page.unreadable:
            raise self.wrong(f"a request cannot be read: {page.unreadable[0]}")
        if not page:
            return
        item = self.random.choice(page).approval
        answers: list[Answer] = [Approve(), Approve(), Approve(), Reject(), Reject(then="end")]
        if not item.between_steps:
            answers.append(Approve(args={**item.args, "order": 7}))
        answer = self.random.choice(answers)
        self.store.decide(item.id, answer, by="ada", digest=item.digest)
        self.decided[item.id] = type(answer).__name__

    def fork(self) -> Checkpoint | None:
        at, agent = self._place()
        made: Checkpoint | None = agent.fork(at, rerun=self.random.random() < 0.5) if at is not None else None
        return made

    def elsewhere(self) -> Checkpoint | None:
        at, agent = self._place()
        if at is None:
            return None
        name = f"branch {self.random.randrange(10**9)}"
        made: Checkpoint = agent.resume(at, write_to=name, **({"approved": True} if at.pending else {})).checkpoint
        return made

    def restore(self) -> Checkpoint | None:
        at, agent = self._place()
        alone = self.random.random() < 0.3
        made: Checkpoint | None = agent.restore(at, restore_timeline=not alone) if at is not None else None
        return made

    def resume(self) -> Checkpoint | None:
        branch, agent = self._branch(ended=False)
        if branch is None:
            return None
        head = self.store.head(branch.id)[1]
        ids = {item.id: Approve() for item in head.pending if self.random.random() < 0.7}
        made: Checkpoint = agent.resume(head, **({"decisions": ids} if ids else {})).checkpoint
        return made

    def step(self) -> Checkpoint | None:
        branch, agent = self._branch(ended=False)
        made: Checkpoint | None = agent.step(self.store.head(branch.id)[1]).checkpoint if branch is not None else None
        return made

    def cancel(self) -> Checkpoint | None:
        branch, agent = self._branch(ended=False)
        made: Checkpoint | None = agent.cancel(branch.id).checkpoint if branch is not None else None
        return made

    def label(self) -> Checkpoint | None:
        branch, agent = self._branch()
        made: Checkpoint | None = agent.checkpoint(branch.id, label="kept") if branch is not None else None
        return made

    def recover(self) -> None:
        for done in self.agents[self.random.choice(KINDS)].recover_all():
            self._check_recovered(done)

    def die(self) -> None:
        """Approve what waits somewhere, by a worker that dies in the tool."""
        branch, agent = self._branch(ended=False)
        if branch is None:
            return
        head = self.store.head(branch.id)[1]
        self.dies = True
        agent.resume(head, **({"decisions": {each.id: Approve() for each in head.pending}} if head.pending else {}))

    def fail(self) -> Checkpoint | None:
        """Approve what waits somewhere, and have the tool fail: the run stops, and whoever goes on with it has the call run again."""
        self.fails = True
        return self.resume()

    def deploy(self) -> None:
        """Another release of one agent: its tool has another schema, or has the old one again."""
        self.deploys += 1
        kind = self.random.choice(KINDS)
        self.agents[kind] = self._agent(kind)

    def prune(self) -> None:
        if self.random.random() < 0.2:
            self.store.prune(keep_labeled=True, keep_last=1)

    def _branch(self, *, ended: bool | None = None) -> tuple[Branch | None, Any]:
        found = [each for each in self.store.branches() if ended is None or (each.status in ENDED) == ended]
        branch = self.random.choice(found) if found else None
        return branch, self.agents[branch.agent] if branch is not None else None

    def _place(self) -> tuple[Checkpoint | None, Any]:
        """Any checkpoint of the history of any branch, in every message of its thread."""
        branch, _ = self._branch()
        if branch is None or branch.head is None:
            return None, None
        at = self.random.choice(self.store.history(branch.head))
        return at, self.agents[at.agent.name]

    # The promises

    def wrong(self, what: str) -> Wrong:
        return Wrong(f"round {self.seed!r}: {what}; after {'; '.join(self.told[-12:])}")

    def check(self, branch_id: str) -> Checkpoint | None:
        """Read a branch in every way in which it is looked for."""
        try:
            branch, head = self.store.head(branch_id)
            history = self.store.history(head.id)
            if history[-1] != head or self.store.load(head.id) != head:
                raise self.wrong(f"branch {branch_id} is read otherwise by its history than by its id")
            listed = {
                row.pending_id for row in self.store.pending_rows(run_id=branch.run_id) if row.branch_id == branch.id
            }
            waits = {item.id for item in head.pending} if branch.handed is None else listed
            if branch.status == "suspended" and listed != waits:
                raise self.wrong(f"branch {branch_id} lists {listed}, and its log {waits}")
            for id in listed:
                if self.store.request(id).status not in ("pending", "expired"):
                    raise self.wrong(f"request {id} of branch {branch_id} is listed, and does not wait")
        except PhronomyError as error:
            raise self.wrong(f"branch {branch_id} cannot be read: {type(error).__name__}: {error}") from error
        return head

    def _check_recovered(self, done: Any) -> None:
        # An agent that was deployed anew may refuse: that is told, and the run stays as it is.
        if done.error is not None and type(done.error).__name__ != "AgentChanged":
            raise self.wrong(f"run {done.run_id} could not be carried on: {type(done.error).__name__}: {done.error}")

    def finish(self) -> None:
        """Look at everything, have it carried out, and end what is left."""
        for branch in self.store.branches():
            self.check(branch.id)
        self.now += self.store.lease + 1
        for agent in self.agents.values():
            for done in agent.recover_all(limit=100_000):
                self._check_recovered(done)
                if done.error is not None:
                    with suppress(NodeFailed):  # its tool reads the arguments otherwise by now: it is cancelled, below
                        agent.recover(done.branch_id, accept_changes=True)
        self._check_decided(stepped=True)
        for branch in self.store.branches():
            if branch.status not in ENDED:
                self._end(branch)
        self._check_decided()
        if left := [each.id for each in self.store.branches() if each.status not in ENDED]:
            raise self.wrong(f"these branches have not ended: {left}")
        if self.store.pending():
            raise self.wrong("something waits, though every branch has ended")
        self._check_approved()

    def _check_decided(self, *, stepped: bool = False) -> None:
        """Look what has become of each decision; with `stepped`, a run that has failed, or that somebody steps through, is left."""
        branches = {each.id: each for each in self.store.branches()}
        for id, answer in self.decided.items():
            with suppress(UnknownPending):  # its run was deleted, once it had ended
                found = self.store.request(id)
                branch = branches[found.branch_id]
                left = stepped and branch.owner is None and (branch.status == "running" or self._has_failed(branch))
                if found.status not in ("settled", "asked_again") and not left:
                    raise self.wrong(
                        f"request {id} was decided ({answer}), and is {found.status} though a worker came by"
                    )

    def _has_failed(self, branch: Branch) -> bool:
        """True if a call of the branch has failed, and runs again when somebody goes on with it."""
        head = self.store.head(branch.id)[1]
        return any(call.status == "failed" for part in (head, *head.nested) for call in current(part).calls)

    def _end(self, branch: Branch) -> None:
        """Resume a branch to its end, or cancel it."""
        agent = self.agents[branch.agent]
        try:
            if self.random.random() < 0.3:
                agent.cancel(branch.id)
                return
            for _ in range(20):
                head = self.store.head(branch.id)[1]
                if head.ended is not None:
                    return
                ids = {item.id: Approve() for item in head.pending}
                try:
                    agent.resume(head, accept_changes=True, **({"decisions": ids} if ids else {}))
                except NodeFailed:  # its tool reads the arguments otherwise by now
                    agent.cancel(branch.id)
        except PhronomyError as error:
            raise self.wrong(f"branch {branch.id} cannot be ended: {type(error).__name__}: {error}") from error

    def _check_approved(self) -> None:
        yes = {each.pending_id for each in self.store.audit() if each.kind == "approve" and not each.vote}
        for id, entered in self.entered.items():
            if entered > (id in yes):
                raise self.wrong(f"{entered} effects of request {id}, which was {'' if id in yes else 'not '}approved")


def walk(seed: str, operations: int, make: Callable[[], Store] = MemoryStore) -> Counter[str]:
    """Walk in rounds, and count what was done. Raises `Wrong`."""
    counts: Counter[str] = Counter()
    for number in range(0, operations, A_ROUND):
        a_round = Walk(f"{seed}/{number // A_ROUND}", make())
        a_round.walk(min(A_ROUND, operations - number))
        counts += a_round.counts
    return counts


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", default=str(random.randrange(10**6)))
    options.add_argument("--operations", type=int, default=5_000)
    given = options.parse_args()
    begun = time.monotonic()
    print(f"seed {given.seed}")
    try:
        counts = walk(given.seed, given.operations)
    except Wrong as wrong:
        print(wrong)
        return 1
    print(
        f"{given.operations} operations in {time.monotonic() - begun:.0f} s, and everything held: {dict(sorted(counts.items()))}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
