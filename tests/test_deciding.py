"""Deciding by what one has: a pending id, a run, a thread."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from drivers import SYNC, Around, Driver, decide_first, rows
from places import Place
from pydantic import BaseModel

from phronomy import Agent, Approve, Breakpoint, Checkpoint, MemoryStore, OutcomeUnknown, Reject, interrupt, tool
from phronomy.errors import (
    ApprovalExpired,
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    ConfigurationError,
    InvalidDecision,
    UnknownPending,
)
from phronomy.graph import END, START, StateGraph
from phronomy.records.decisions import PendingApproval, call_digest
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, Branch
from phronomy.testing import ScriptedModel, call, say

TWO = say("", call("pay", {"order": 1}, id="call_1"), call("pay", {"order": 2}, id="call_2"))


class Desk:
    """Pays orders, each when somebody has approved it."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.paid: list[int] = []
        self.now = 1_700_000_000.0

    def open(self) -> Store:
        """A store on the place, with the desk's clock."""
        return self.place.open(clock=lambda: self.now)

    def agent(self, *replies: Any, store: Store | None = None, more: Any = (), **options: Any) -> Agent[Any, str]:
        """The agent as a process of its own makes it."""

        def pay(order: int) -> str:
            """Pay an order."""
            self.paid.append(order)
            return f"paid {order}"

        gated = tool(requires_approval=True, approval_timeout=600.0)(self.driver.function(pay))
        model = ScriptedModel([*replies])
        return Agent(name="desk", model=model, tools=[gated, *more], store=store or self.open(), **options)

    def asked(self, agent: Agent[Any, str], **options: Any) -> Checkpoint:
        """A run that waits."""
        checkpoint: Checkpoint = self.driver.invoke(agent, "Pay", **options).checkpoint
        return checkpoint

    def decide(self, agent: Any, *given: Any, **options: Any) -> Any:
        return self.driver.call(agent, "decide", *given, **options)

    def approve_all(self, agent: Any, *given: Any, **options: Any) -> Any:
        return self.driver.call(agent, "approve_all", *given, **options)


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


# By the id of what waits


def test_a_pending_id_is_enough_to_decide_in_another_process(desk: Desk) -> None:
    asked = desk.asked(desk.agent(TWO))
    first, second = asked.pending

    result = desk.decide(desk.agent(), first.id, Approve(), by="ann", channel="mail", digest=first.digest)
    assert (result.status, desk.paid, [item.id for item in result.checkpoint.pending]) == (
        "suspended",
        [1],
        [second.id],
    )
    result = desk.decide(desk.agent("One is paid."), second.id, Reject(reason="twice"), by="bo")
    assert (result.output, desk.paid) == ("One is paid.", [1])

    trail = [
        (record.pending_id, record.kind, record.by.id, record.channel, record.digest, record.reason)
        for record in desk.open().audit()
        if record.by is not None
    ]
    assert trail == [
        (first.id, "approve", "ann", "mail", first.digest, None),
        (second.id, "reject", "bo", None, second.digest, "twice"),
    ]


def test_a_decision_that_is_of_another_digest_is_refused(desk: Desk) -> None:
    agent = desk.agent(TWO)
    first, second = desk.asked(agent).pending
    before = desk.place.lines()
    for wrong in (second.digest, first.digest[:12], "", 7):
        with pytest.raises(InvalidDecision) as refused:
            desk.decide(agent, first.id, Approve(), by="ann", digest=wrong)
        assert refused.value.pending_id in (first.id, None)
        assert desk.place.lines() == before
    assert desk.decide(agent, first.id, Approve(), digest=first.digest).status == "suspended"
    assert desk.paid == [1]


class Tampered(Around):
    """Somebody who knows how digests are made has changed the order of a request: in the list, in the log, or at its head alone."""

    def __init__(self, inner: Store, item: PendingApproval, where: str) -> None:
        super().__init__(inner)
        self.item = item
        self.where = where

    def select_pending(self, wanted: Any) -> Any:
        rows = super().select_pending(wanted)
        return [replace(row, body=self.forged(row.body)) for row in rows] if self.where == "list" else rows

    def lineage(self, *, checkpoint_id: str | None = None, branch_id: str | None = None) -> Any:
        found = super().lineage(checkpoint_id=checkpoint_id, branch_id=branch_id)
        if self.where == "list" or (self.where == "head" and branch_id is None):
            return found
        return replace(found, entries=[replace(entry, body=self.forged(entry.body)) for entry in found.entries])

    def forged(self, body: str) -> str:
        was, now = (f'{{"order":{order}}}' for order in (self.item.args["order"], 7))
        digests = [call_digest(self.item.tool, text) for text in (was, now)]
        return body.replace(*digests).replace(*[json.dumps(text)[1:-1] for text in (was, now)])


@pytest.mark.parametrize("where", ["list", "log"])
def test_what_is_listed_otherwise_than_it_would_run_is_not_decided(desk: Desk, where: str) -> None:
    """Law 2: the digest names what the human was shown, and that alone runs."""
    asked = desk.asked(desk.agent(TWO))
    first = asked.pending[0]
    tampered = Tampered(desk.open(), first, where)
    shown = tampered.pending()[0].approval
    assert (shown.args, shown.id) == ({"order": 7 if where == "list" else 1}, first.id)
    before = desk.place.lines()
    for digest in (shown.digest, None):
        with pytest.raises(InvalidDecision, match=f"does not show what would run at checkpoint {asked.id}") as refused:
            desk.decide(desk.agent(store=tampered), shown.id, Approve(), by="ann", digest=digest)
        assert refused.value.pending_id == shown.id
        assert (desk.place.lines(), desk.paid) == (before, [])
    assert desk.decide(desk.agent(), first.id, Approve(), digest=first.digest).status == "suspended"
    assert desk.paid == [1], "it still waited"


class Relabelled(Around):
    """Somebody has changed, in the list alone, what kind of request it is, what it says, or who may decide it."""

    def __init__(self, inner: Store, **changed: object) -> None:
        super().__init__(inner)
        self.changed = changed

    def select_pending(self, wanted: Any) -> Any:
        rows = super().select_pending(wanted)
        return [
            replace(row, body=json.dumps(json.loads(row.body) | self.changed, separators=(",", ":"))) for row in rows
        ]


@pytest.mark.parametrize(
    "changed",
    [
        {"why": "breakpoint"},
        {"why": "question"},
        {"why": "outcome_unknown"},
        {"title": "Look at an order"},
        {"context": "Nothing is paid."},
        {"reason": "It was looked at."},
        {"answers": ["respond"]},
        {"agent": "other"},
    ],
    ids=str,
)
def test_what_is_listed_as_another_kind_of_request_is_not_decided(desk: Desk, changed: dict[str, Any]) -> None:
    """Of the same tool and arguments, so of the same digest: passing a breakpoint approves of nothing, and this would."""
    asked = desk.asked(desk.agent(TWO))
    first, tampered, before = asked.pending[0], Relabelled(desk.open(), **changed), desk.place.lines()
    shown = tampered.pending()[0].approval
    assert (shown.id, shown.digest) == (first.id, first.digest) and shown != first
    ways: dict[str, Callable[[Any], Any]] = {
        "decide": lambda agent: desk.decide(agent, shown.id, Approve(), by="ann", digest=shown.digest),
        "approve_all": lambda agent: desk.approve_all(agent, asked.run_id, by="ann"),
    }
    for decides in ways.values():
        with pytest.raises(InvalidDecision, match=f"does not show what would run at checkpoint {asked.id}") as refused:
            decides(desk.agent(store=tampered))
        assert refused.value.pending_id == shown.id
        assert (desk.place.lines(), desk.paid) == (before, [])
    assert desk.decide(desk.agent(), first.id, Approve(), digest=first.digest).status == "suspended"
    assert desk.paid == [1], "it still waited"


def test_what_was_changed_behind_the_checkpoint_that_was_shown_is_not_decided(desk: Desk) -> None:
    asked = desk.asked(desk.agent(TWO))
    first, second = asked.pending
    head = desk.decide(desk.agent(), first.id, Reject()).checkpoint
    before = desk.place.lines()
    for given in (asked, asked.id):
        agent = desk.agent(store=Tampered(desk.open(), second, "head"))
        with pytest.raises(InvalidDecision, match=f"does not show what would run at checkpoint {head.id}") as refused:
            desk.driver.resume(agent, given, decisions={second.id: Approve()})
        assert refused.value.pending_id == second.id
        assert (desk.place.lines(), desk.paid) == (before, [])
    assert desk.driver.resume(desk.agent("One."), asked, decisions={second.id: Approve()}).output == "One."
    assert desk.paid == [2]


def test_what_can_be_no_decision_is_refused(desk: Desk) -> None:
    agent = desk.agent(TWO)
    asked = desk.asked(agent)
    before = desk.place.lines()
    for pending_id in ("pend_0", asked.id, asked.run_id, ""):
        with pytest.raises(UnknownPending) as unknown:
            desk.decide(agent, pending_id, Approve())
        assert unknown.value.pending_id == pending_id
    for wrong in (asked.pending[0], asked, None):
        with pytest.raises(InvalidDecision):
            desk.decide(agent, wrong, Approve())
    with pytest.raises(InvalidDecision):
        desk.decide(agent, asked.pending[0].id, True)
    with pytest.raises(ConfigurationError, match="no option"):
        desk.decide(agent, asked.pending[0].id, Approve(), aproved=True)
    assert (desk.place.lines(), desk.paid) == (before, [])


@pytest.mark.product
def test_who_comes_second_is_told_who_was_first(desk: Desk) -> None:
    """R18."""
    agent = desk.agent(TWO, "Both.")
    first, second = desk.asked(agent).pending
    desk.decide(agent, first.id, Approve(), by="ann")
    with pytest.raises(CheckpointAlreadyResumed) as told:
        desk.decide(agent, first.id, Reject(), by="bo")
    assert (told.value.pending_id, told.value.progress) == (first.id, "suspended")
    assert (told.value.decision.kind, told.value.decision.by.id) == ("approve", "ann")  # type: ignore[union-attr]

    desk.decide(agent, second.id, Approve(), by="ann")
    with pytest.raises(CheckpointAlreadyResumed, match="approved by ann") as told:
        desk.decide(agent, first.id, Approve(), digest="of another", by="bo")
    assert (told.value.progress, told.value.result.output, desk.paid) == ("ended", "Both.", [1, 2])


class Between(Around):
    """Another process rejects the first call once what waits was read."""

    def __init__(self, desk: Desk, asked: Checkpoint) -> None:
        super().__init__(desk.open())
        self.other = Desk(SYNC, desk.place).agent()
        self.asked = asked

    def select_pending(self, wanted: Any) -> Any:
        found = super().select_pending(wanted)
        self.other.resume(self.asked, decisions=decide_first(self.asked, Reject()), by="bo")
        return found


def test_somebody_who_decides_between_the_look_and_the_write_is_first(desk: Desk) -> None:
    """R18, RBY-A17."""
    asked = desk.asked(desk.agent(TWO))
    with pytest.raises(CheckpointAlreadyResumed, match="rejected by bo"):
        desk.decide(desk.agent(store=Between(desk, asked)), asked.pending[0].id, Approve(), by="ann")
    assert (desk.paid, len(desk.open().pending())) == ([], 1)


def test_what_has_lapsed_is_not_decided(desk: Desk) -> None:
    agent = desk.agent(TWO, "Nobody came.")
    first, second = desk.asked(agent).pending
    desk.now += 601
    with pytest.raises(ApprovalExpired) as late:
        desk.decide(agent, first.id, Approve(), by="ann")
    assert (late.value.pending_ids, late.value.result.output, desk.paid) == ((first.id,), "Nobody came.", [])
    with pytest.raises(CheckpointAlreadyResumed) as told:
        desk.decide(agent, second.id, Approve(), by="ann")
    assert told.value.decision is not None
    assert told.value.decision.kind == "expire"


def test_what_a_handler_has_decided_is_decided(desk: Desk) -> None:
    agent = desk.agent(TWO, "None.").on_approval_required(desk.driver.function(lambda name, args: False))
    assert desk.driver.invoke(agent, "Pay").output == "None."
    first, *_ = [record.pending_id for record in agent.store.audit()]
    with pytest.raises(CheckpointAlreadyResumed) as told:
        desk.decide(agent, first, Approve())
    assert told.value.decision is not None
    assert (told.value.decision.kind, told.value.decision.channel, desk.paid) == ("reject", "handler", [])


def test_a_decision_on_a_run_that_was_taken_away_finds_none(desk: Desk) -> None:
    agent = desk.agent(TWO, "Both.")
    asked = desk.asked(agent)
    desk.approve_all(agent, asked)
    assert agent.store.delete(asked.run_id)
    with pytest.raises(CheckpointNotFound):
        desk.decide(agent, asked.pending[0].id, Approve())
    waits = desk.asked(desk.agent(TWO))
    desk.driver.cancel(agent, waits)
    with pytest.raises(UnknownPending, match="its run was ended"):
        desk.decide(agent, waits.pending[0].id, Approve())


def test_an_id_that_waits_in_two_branches_names_none(desk: Desk) -> None:
    """A text from elsewhere, taken in beside what came of the same run here."""
    agent = desk.agent(TWO)
    asked = desk.asked(agent)
    first, second = asked.pending
    other = MemoryStore(clock=lambda: desk.now)
    other.save(asked)
    here = desk.decide(agent, first.id, Approve()).checkpoint
    there = desk.driver.resume(desk.agent(store=other), asked.id, decisions={first.id: Reject()}).checkpoint
    agent.store.save(there)
    with pytest.raises(InvalidDecision, match="several checkpoints") as refused:
        desk.decide(agent, second.id, Approve())
    assert all(place.id in str(refused.value) for place in (here, there))
    assert desk.driver.resume(desk.agent("Both."), here.id, approved=True).output == "Both."
    assert desk.decide(desk.agent("Mine."), second.id, Approve()).output == "Mine."


def test_a_worker_that_holds_the_run_carries_it_out(desk: Desk) -> None:
    agent = desk.agent(TWO)
    asked = desk.asked(agent)
    store = desk.open()
    branch = store.head(asked.branch_id)[0]
    store.append(Append(branch_id=branch.id, seq=branch.seq, take="other", lease=60.0, status="running"))
    assert desk.decide(agent, asked.pending[0].id, Approve(), by="ann").status == "running"
    with pytest.raises(CheckpointAlreadyResumed) as told:
        desk.decide(agent, asked.pending[0].id, Approve(), by="bo")
    assert (told.value.progress, told.value.decision.by.id) == ("running", "ann")  # type: ignore[union-attr]
    assert desk.approve_all(agent, asked.run_id, by="ann").status == "running"
    with pytest.raises(UnknownPending):
        desk.approve_all(agent, asked.run_id, by="bo")
    assert desk.paid == []


class Job(BaseModel):
    log: str = ""


def test_what_waits_inside_is_decided_by_its_id(desk: Desk) -> None:
    """In an agent that is a tool, and in an agent that is a node of a graph."""
    clerk = desk.agent(TWO, "Both.", store=desk.open())
    chief: Agent[Any, str] = Agent(
        name="chief",
        model=ScriptedModel([call("desk", {"input": "Pay"}), "Paid."]),
        tools=[clerk.as_tool()],
        store=desk.open(),
    )
    asked = desk.asked(chief)
    assert [item.path != "" for item in asked.pending] == [True, True]
    first, _ = asked.pending
    assert desk.decide(chief, first.id, Approve(), digest=first.digest).status == "suspended"
    assert desk.approve_all(chief, asked).output == "Paid."
    assert sorted(desk.paid) == [1, 2]

    graph = StateGraph(Job, name="works")
    graph.add_node("clerk", desk.agent(TWO, "Both."), input=lambda state: "Pay", output="log")
    graph.add_edge(START, "clerk")
    graph.add_edge("clerk", END)
    works: Any = graph.compile(store=desk.open())
    asked = desk.driver.invoke(works, {}).checkpoint
    assert desk.decide(works, asked.pending[0].id, Approve()).status == "suspended"
    assert desk.approve_all(works, asked.run_id).output.log == "Both."


# All that waits


class Wanted(Around):
    """Notes each write that holds a decision: what kinds of entries are in it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.decided: list[int] = []

    def append(self, change: Append) -> Branch:
        decided = [row for row in change.audit if row.pending_id is not None]
        self.decided += [len(decided)] if decided else []
        return super().append(change)


def test_all_that_waits_is_approved_in_one_write(desk: Desk) -> None:
    for number, place in enumerate(("run", "checkpoint", "id", "thread"), 1):
        store = Wanted(desk.open())
        agent = desk.agent(TWO, "Both.", store=store)
        thread = f"chat-{number}"
        asked = desk.asked(agent, thread_id=thread)
        at = {"run": (asked.run_id,), "checkpoint": (asked,), "id": (asked.id,), "thread": ()}[place]
        named = {"thread_id": thread} if place == "thread" else {}
        result = desk.approve_all(agent, *at, by="ann", channel="desk", **named)
        assert (result.output, sorted(desk.paid), store.decided) == ("Both.", [1, 2], [2])
        taken = [
            (each.pending_id, each.kind, each.digest, each.by.id) for each in result.checkpoint.decisions if each.by
        ]
        assert taken == [(item.id, "approve", item.digest, "ann") for item in asked.pending]
        desk.paid.clear()


def test_what_is_no_plain_approval_is_left(desk: Desk) -> None:
    """A question, a breakpoint, a call that failed, and one of which nobody knows what it did."""
    once: set[str] = set()

    def ask() -> str:
        """Ask."""
        return str(interrupt("Which?"))

    def fail() -> str:
        """Fail."""
        if "fail" in once:
            return "mended"
        once.add("fail")
        raise ValueError("no")

    def lose() -> str:
        """Lose the line."""
        if "lose" in once:
            return "found"
        once.add("lose")
        raise OutcomeUnknown("the line went dead")

    def look() -> str:
        """Look."""
        return "seen"

    more = [
        tool(desk.driver.function(ask)),
        tool(on_failure="human")(desk.driver.function(fail)),
        tool(desk.driver.function(lose)),
        tool(desk.driver.function(look)),
    ]
    wants = [call("pay", {"order": 1}), call("ask"), call("fail"), call("lose"), call("look")]
    agent = desk.agent(say("", *wants), "Over.", more=more, breakpoints=[Breakpoint("tool", tools=["look"])])
    asked = desk.asked(agent)
    whys = [item.why for item in asked.pending]
    assert sorted(whys) == ["approval", "breakpoint", "failed", "outcome_unknown", "question"]

    result = desk.approve_all(agent, asked.run_id, by="ann")
    assert (result.status, desk.paid) == ("suspended", [1])
    assert [item.why for item in result.checkpoint.pending] == [why for why in whys if why != "approval"]
    before = desk.place.lines()
    with pytest.raises(UnknownPending) as refused:
        desk.approve_all(agent, asked.run_id, by="ann")
    assert all(item.id in str(refused.value) for item in result.checkpoint.pending)
    assert desk.place.lines() == before


def test_of_a_checkpoint_what_it_shows_is_approved_and_of_a_run_what_waits_now(desk: Desk) -> None:
    third = say("", call("pay", {"order": 3}))
    agent = desk.agent(TWO, third, "All.")
    asked = desk.asked(agent)
    assert [item.args["order"] for item in desk.approve_all(agent, asked).checkpoint.pending] == [3]
    with pytest.raises(UnknownPending, match="no approval waits at checkpoint"):
        desk.approve_all(agent, asked)
    with pytest.raises(UnknownPending):
        desk.approve_all(agent, asked.id)
    assert (desk.approve_all(agent, asked.run_id).output, desk.paid[2:]) == ("All.", [3])
    with pytest.raises(UnknownPending):
        desk.approve_all(agent, asked.run_id)


def test_what_has_lapsed_is_not_among_what_waits(desk: Desk) -> None:
    def ship(order: int) -> str:
        """Ship an order."""
        desk.paid.append(-order)
        return f"shipped {order}"

    more = [tool(requires_approval=True)(desk.driver.function(ship))]
    wants = say("", call("pay", {"order": 1}), call("ship", {"order": 1}))
    agent = desk.agent(wants, "One.", TWO, more=more)
    asked = desk.asked(agent)
    desk.now += 601
    assert (desk.approve_all(agent, asked, by="ann").output, desk.paid) == ("One.", [-1])
    waits = desk.asked(agent)
    desk.now += 601
    before = desk.place.lines()
    with pytest.raises(UnknownPending):
        desk.approve_all(agent, waits)
    assert desk.place.lines() == before


def test_if_one_is_decided_meanwhile_none_is_approved(desk: Desk) -> None:
    asked = desk.asked(desk.agent(TWO))

    with pytest.raises(CheckpointAlreadyResumed, match="rejected by bo"):
        desk.approve_all(desk.agent(store=Between(desk, asked)), asked.run_id, by="ann")
    assert (desk.paid, len(desk.open().pending())) == ([], 1)


def test_one_place_is_meant(desk: Desk) -> None:
    agent = desk.agent()
    for given, named in (((), {}), (("run_0",), {"thread_id": "chat"})):
        with pytest.raises(ConfigurationError, match="approve_all takes"):
            desk.approve_all(agent, *given, **named)
    for given, named in ((("run_0",), {}), ((), {"thread_id": "chat"})):
        with pytest.raises(CheckpointNotFound):
            desk.approve_all(agent, *given, **named)


def test_a_bearer_brings_what_is_to_be_approved(driver: Driver, place: Place) -> None:
    desk = Desk(driver, place)
    text = desk.asked(desk.agent(TWO, store=MemoryStore())).model_dump_json()
    brought = Checkpoint.model_validate_json(text)
    agent = desk.agent("Both.", trust="bearer")
    assert (desk.approve_all(agent, brought, by="ann").output, sorted(desk.paid)) == ("Both.", [1, 2])


# Where a thread stands


def test_a_thread_stands_where_its_open_run_does_or_where_the_last_has_ended(desk: Desk) -> None:
    store = desk.open()
    agent = desk.agent(TWO, "Both.", TWO, store=store)
    with pytest.raises(CheckpointNotFound) as unknown:
        store.current("chat")
    assert unknown.value.id == "chat"
    asked = desk.asked(agent, thread_id="chat")
    assert store.current("chat") == asked
    ended = desk.approve_all(agent, thread_id="chat").checkpoint
    assert store.current("chat") == ended == store.latest("chat")
    again = desk.asked(agent, thread_id="chat")
    assert store.current("chat") == again
    fork = desk.driver.fork(agent, again)
    assert (store.current("chat").branch_id, store.latest("chat")) == (fork.branch_id, ended)
    assert rows(store)


def test_what_is_no_id_is_not_quoted(driver: Driver) -> None:
    """Somebody passes the text of a checkpoint, or what a user has typed."""
    agent = Agent(model=ScriptedModel([]), store=MemoryStore())
    for text in ("the card is 4242 4242", "x" * 100_000, '{"version": 1, "messages": ["the card is 4242"]}'):
        with pytest.raises(UnknownPending) as unknown:
            driver.call(agent, "decide", text, Approve())
        assert text not in str(unknown.value)
        assert len(str(unknown.value)) < 300
