"""Votes in tests: people, an agent that pays when enough of them have said so, and the word for what a vote came to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from approver_model import Level, Step, Verdict, Voter
from drivers import SYNC, Driver
from places import Place

from phronomy import Agent, Approval, Approve, Checkpoint, Escalate, Principal, Reject, Respond, tool
from phronomy.errors import (
    AlreadyVoted,
    ApprovalExpired,
    CheckpointAlreadyResumed,
    InvalidDecision,
    NotAnApprover,
    PhronomyError,
    RequestExpired,
)
from phronomy.people import StoreDirectory
from phronomy.records.decisions import PendingApproval
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call

START = 1_700_000_000.0

ANN = Principal(id="ann", roles=("lead",))  # asks for the run
BOB = Principal(id="bob", roles=("lead",))
CAT = Principal(id="cat", roles=("lead",))
DAN = Principal(id="dan", roles=("lead",))
EVE = Principal(id="eve", roles=("clerk",))
TWO = Approval(by="lead", needed=2)
PAID = {"order": 1, "amount": 5}

REFUSALS: Mapping[type[PhronomyError], Verdict] = {
    NotAnApprover: "refused",
    AlreadyVoted: "repeated",
    InvalidDecision: "not allowed",
    RequestExpired: "expired",
    ApprovalExpired: "expired",
    CheckpointAlreadyResumed: "late",
}
"""What each typed error says in the words of the model."""

ANSWERS: Mapping[str, Any] = {"approve": Approve(), "reject": Reject(), "respond": Respond(content="by hand")}
DECIDED: Mapping[str, Verdict] = {"approve": "approved", "reject": "rejected", "respond": "responded"}


def principal(voter: Voter) -> Principal:
    """Who votes, as a caller says it."""
    assert voter.id is not None
    return Principal(id=voter.id, roles=tuple(sorted(voter.roles)))


def is_fay(who: Principal, request: PendingApproval) -> bool:
    return who.id == "fay"


def is_trusted(who: Principal, request: PendingApproval) -> bool:
    return {"ann", "dan"} >= {who.id} and bool(request.args["amount"] < 100)


def is_boss(who: Principal, request: PendingApproval) -> bool:
    return {"eve": True, "bob": True}[who.id]  # of others it raises


def says_yes(who: Principal, request: PendingApproval) -> Any:
    return "yes"


def is_small(args: Mapping[str, Any]) -> bool:
    return bool(args["amount"] < 100)


def is_odd(args: Mapping[str, Any]) -> Any:
    return 1


def functions(names: Iterable[str]) -> list[Any]:
    """The predicates of these names, as an approval takes them."""
    known = {"is_fay": is_fay, "is_trusted": is_trusted, "is_boss": is_boss, "says_yes": says_yes}
    return [known[name] for name in sorted(names)]


def escalate(step: Step) -> Escalate:
    """The step, as a tool says it."""
    by = [*sorted(step.roles), *(Principal(id=id) for id in sorted(step.ids)), *functions(step.predicates)]
    return Escalate(after=step.after, by=by, instead=step.instead, needed=step.needed)


def approval(level: Level, **options: Any) -> Approval:
    """The level, as a tool or a policy says it."""
    by = [*sorted(level.roles), *(Principal(id=id) for id in sorted(level.ids)), *functions(level.predicates)]
    standing = {"no": False, "any": True, "conditions": {"small": is_small, "odd": is_odd}}[level.standing]
    return Approval(
        **({"by": by} if by else {}),
        standing=standing,
        needed=level.needed,
        rejections=level.rejections,
        not_requester=level.not_requester,
        escalate=[escalate(step) for step in level.steps],
        **options,
    )


@dataclass
class Till:
    """Keeps what was paid, and has a clock that is moved by hand."""

    paid: list[dict[str, Any]] = field(default_factory=list)
    now: float = START

    def clock(self) -> float:
        return self.now

    def tool(self, gate: Any, driver: Driver = SYNC, name: str = "pay", **options: Any) -> Any:
        """A tool that pays."""

        def pay(order: int = 1, amount: int = 5) -> str:
            """Pay an order."""
            self.paid.append({"order": order, "amount": amount})
            return f"paid {amount}"

        return tool(requires_approval=gate, name=name, **options)(driver.function(pay))

    def agent(self, store: Store, gate: Any, *, driver: Driver = SYNC, replies: Any = None, **options: Any) -> Any:
        """An agent that pays one order, and says so."""
        made: Agent[Any, str] = Agent(
            name="desk",
            model=ScriptedModel.by_turn([*(replies or [call("pay", {"order": 1}), "Done."])]),
            tools=[self.tool(gate, driver), *options.pop("more", ())],
            store=store,
            **options,
        )
        return made


def verdict_of(work: Callable[[], Any], pending: Callable[[], PendingApproval | None], kind: str) -> Verdict:
    """What a vote came to: the error that it raised, or whether the request still waits."""
    try:
        work()
    except tuple(REFUSALS) as error:
        return next(word for known, word in REFUSALS.items() if isinstance(error, known))
    return DECIDED[kind] if pending() is None else "counted"


def waiting(store: Store, pending_id: str) -> PendingApproval | None:
    """The request, as long as it waits."""
    found = [row.approval for row in store.pending() if row.approval.id == pending_id]
    return found[0] if found else None


def vote(
    store: Store, item: PendingApproval, by: Principal | str | None, kind: str = "approve", **options: Any
) -> Verdict:
    """Vote with the store alone, on the request as it was shown: what it comes to."""
    answer = options.pop("answer", None) or ANSWERS[kind]
    given: dict[str, Any] = {"by": by, "digest": item.digest, **options}
    return verdict_of(lambda: store.decide(item.id, answer, **given), lambda: waiting(store, item.id), kind)


def carried_out(agent: Any, driver: Driver = SYNC) -> None:
    """Let a worker do what there is to do."""
    with suppress(PhronomyError):
        driver.call(agent, "recover_all")


class Desk:
    """A till over a place for stores. Whoever votes does so with the agent, or with the store alone."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.till = Till()
        self.store = self.open()
        self.directory = StoreDirectory(self.store)
        self.made: Any = None

    @property
    def paid(self) -> list[dict[str, Any]]:
        return self.till.paid

    def open(self, **options: Any) -> Store:
        """The store, as another process opens it."""
        return self.place.open(clock=self.till.clock, **options)

    def agent(self, gate: Any = TWO, **options: Any) -> Any:
        """The agent, as another process makes it."""
        return self.till.agent(options.pop("store", None) or self.open(), gate, driver=self.driver, **options)

    def asked(self, gate: Any = TWO, *, requester: Any = "ann", **options: Any) -> PendingApproval:
        """A run that waits for one approval."""
        self.made = self.agent(gate, **options)
        asked: Checkpoint = self.driver.invoke(self.made, "Pay", requester=requester).checkpoint
        (item,) = asked.pending
        return item

    def request(self, item: PendingApproval) -> PendingApproval | None:
        return waiting(self.store, item.id)

    def vote(
        self, item: PendingApproval, by: Any, kind: str = "approve", *, alone: bool = False, **options: Any
    ) -> Verdict:
        """One vote, by the agent or with the store alone: what it comes to."""
        answer = options.pop("answer", None) or ANSWERS[kind]
        given = {"by": by, "digest": item.digest, **options}
        return verdict_of(
            lambda: self.driver.call(self.store if alone else self.made, "decide", item.id, answer, **given),  # type: ignore[arg-type]
            lambda: self.request(item),
            kind,
        )

    def voted(self, item: PendingApproval) -> list[str]:
        """Who has voted so far on what waits."""
        found = self.request(item)
        assert found is not None, "it is decided"
        return [each.by.id for each in found.votes]

    def work(self) -> None:
        """What the next worker does."""
        self.driver.call(self.made, "recover_all")

    def refused(self, item: PendingApproval, by: Any, kind: str = "approve", **options: Any) -> None:
        """Somebody tries both ways: neither changes anything, and the trail has each try."""
        for alone in (False, True):
            self.refused_once(item, by, kind, alone=alone, **options)

    def refused_once(self, item: PendingApproval, by: Any, kind: str = "approve", **options: Any) -> None:
        """Somebody tries: it changes nothing, and the trail has it."""
        before, trail = self.request(item), len([*self.store.audit()])
        branches = [(each.id, each.status, each.head) for each in self.store.branches()]
        assert self.vote(item, by, kind, **options) == "refused"
        assert self.request(item) == before and self.paid == []
        assert [(each.id, each.status, each.head) for each in self.store.branches()] == branches
        (line,) = [*self.store.audit()][trail:]
        who = by.id if isinstance(by, Principal) else by
        assert (line.refused, line.kind, line.by.id if line.by else None) == (True, kind, who)


def nested(desk: Desk, gate: Any, *policies: Any, handlers: tuple[int, ...] = (), depth: int = 2) -> PendingApproval:
    """A clerk who pays, in a lead, in a director: `policies` are theirs, from the clerk out, and `handlers` say yes to all."""
    asked: list[str] = []

    def yes(name: str, args: dict[str, Any]) -> bool:
        asked.append(name)
        return True

    def options(place: int) -> dict[str, Any]:
        given: dict[str, Any] = {"on_approval_required": desk.driver.function(yes)} if place in handlers else {}
        if place < len(policies) and policies[place] is not None:
            given["approval_policy"] = {"pay": policies[place]}
        return given

    made: Any = Agent(
        name="clerk",
        model=ScriptedModel.by_turn([call("pay", {"order": 1}), "Paid."]),
        tools=[desk.till.tool(gate, desk.driver)],
        **options(0),
    )
    for place in range(1, depth + 1):
        model = ScriptedModel.by_turn([call(made.name, {"input": "pay"}), "Passed on."])
        inside = made.as_tool(description="Do it.")
        more = {"store": desk.open()} if place == depth else {}
        made = Agent(name=f"over{place}", model=model, tools=[inside], **options(place), **more)
    desk.made = made
    result = desk.driver.invoke(made, "Pay", requester="ann")
    assert asked == [] and desk.paid == [], "a handler has answered for people"
    (item,) = result.checkpoint.pending
    return item
