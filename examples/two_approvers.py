"""A bank desk: payments above 10,000 euros need two people of finance, and never the person who asked.

    OPENAI_API_KEY=... python examples/two_approvers.py

After twelve hours, the head of finance may approve too, and after a day the request expires. The clock of the store is put forward
here, so nobody has to wait. The people are in the directory of the store: a decision names a person, and the directory says their
roles. `PHRONOMY_MODEL` names another model.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

from phronomy import Agent, AlreadyVoted, Approval, Approve, Escalate, MemoryStore, NotAnApprover, PendingApproval, tool
from phronomy.people import Person, StoreDirectory

HOUR = 3600


class Clock:
    """The time of the store, which can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@tool(
    requires_approval=Approval(
        when=lambda args: args["amount"] > 10_000,
        title=lambda args: f"Pay {args['amount']:,.0f} euros to {args['to']}",
        by="finance",
        needed=2,
        not_requester=True,
        escalate=Escalate(after=12 * HOUR, by="head of finance"),
        expires=24 * HOUR,
    )
)
def pay(to: str, amount: float) -> str:
    """Pay an amount, in euros."""
    return f"{amount:,.0f} euros are paid to {to}"


def make_desk(clock: Clock) -> Agent:
    store = MemoryStore(clock=clock)
    people = StoreDirectory(store)
    for name in ("ada", "bert", "otto"):
        people.add(Person(id=name, roles=("finance",)))
    people.add(Person(id="hanna", roles=("head of finance",)))
    return Agent(
        name="bank",
        model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
        instructions="You work at a bank. Make the payment that is asked for, with the tool.",
        tools=[pay],
        store=store,
    )


def ask(agent: Agent, amount: int) -> PendingApproval | None:
    """Otto asks for a payment: the request that waits, if one does."""
    result = agent.invoke(f"Please pay {amount} euros to ACME.", requester="otto")
    if not result.suspended:
        print(f"otto asks for {amount:,} euros: {result.output}")
        return None
    [request] = result.checkpoint.pending
    print(f"otto asks for {amount:,} euros. It waits: {request.title}")
    return request


def vote(agent: Agent, request: PendingApproval, who: str, channel: str) -> None:
    """Somebody approves, at the desk or by phone."""
    try:
        result = agent.decide(request.id, Approve(), by=who, digest=request.digest, channel=channel)
    except NotAnApprover:
        print(f"  {who} may not approve")
    except AlreadyVoted:
        print(f"  {who} has voted before, and counts once")
    else:
        print(f"  {who} approves by {channel}: {'it takes one more' if result.suspended else result.output}")


def main() -> None:
    clock = Clock()
    begin = datetime.fromtimestamp(clock(), UTC)
    agent = make_desk(clock)
    ask(agent, 900)

    if (request := ask(agent, 25_000)) is not None:
        vote(agent, request, "otto", "desk")
        vote(agent, request, "ada", "desk")
        vote(agent, request, "ada", "phone")
        vote(agent, request, "bert", "phone")

    if (request := ask(agent, 40_000)) is not None:
        vote(agent, request, "ada", "desk")
        vote(agent, request, "hanna", "phone")
        clock.ahead += 12 * HOUR
        print("  twelve hours pass")
        vote(agent, request, "hanna", "phone")

    if (request := ask(agent, 60_000)) is not None:
        vote(agent, request, "bert", "desk")
        clock.ahead += 24 * HOUR
        print("  a day passes")
        for recovery in agent.recover_all():
            if recovery.result is not None:
                print(f"  nobody else has approved in time: {recovery.result.output}")

    print("The audit trail:")
    for record in agent.store.audit():
        who = record.by.id if record.by else "nobody"
        how = "refused" if record.refused else "vote" if record.vote else "decision"
        hours = round((record.at - begin).total_seconds() / HOUR)
        print(f"  {hours:2} h  {who:6} {record.channel or '-':6} {record.kind:8} {how}")


if __name__ == "__main__":
    main()
