"""An approval is of one effect: each branch from a checkpoint asks anew about the calls that were approved and have not settled."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from drivers import Driver
from inbox_api_scenes import api_of, problem
from page_scenes import Pages
from places import Place
from pydantic import BaseModel
from tables import each

from phronomy import (
    Agent,
    Approval,
    Approve,
    Checkpoint,
    Defer,
    Grant,
    InvalidDecision,
    MemoryStore,
    NodeFailed,
    NotAnApprover,
    NothingDecided,
    Principal,
    Reject,
    Respond,
    Result,
    Store,
    ToolContext,
    interrupt,
    tool,
)
from phronomy.graph import END, START, StateGraph
from phronomy.inbox.auth.identity import SCOPES
from phronomy.testing import ScriptedModel, call
from phronomy.triggers import Question, Timer, wait_for_first

NUMBERS = count(1)
PEOPLE = (Principal(id="ada", roles=("finance",)), Principal(id="bert", roles=("finance",)))
BANK = ConnectionError("the bank is away")

GATES: dict[str, bool | Approval] = {
    "a human": True,
    "votes": Approval(by="finance", needed=2, not_requester=True),
    "a grant": Approval(standing=True),
    "a handler": True,
}
"""The gate of the payment, by who approves of it."""


class State(BaseModel):
    to: str = "ACME"
    done: str = ""


class Bank:
    """A bank whose payment was approved and has not settled: `paid` is its effect, and `yes` counts the approvals of it."""

    def __init__(self, driver: Driver, store: Store, kind: str, who: str = "a human") -> None:
        self.driver, self.store, self.kind, self.who = driver, store, kind, who
        self.name = f"bank {next(NUMBERS)}"
        self.paid: list[str] = []
        self.broken = [True]
        self.yes = 0
        self.app = self._made()
        self.parent = self._stopped()

    # The call

    def pay(self, to: str) -> str:
        """Pay, as the kind of the call has it."""
        if self.kind.endswith("fails") and self.broken:
            self.broken.clear()
            raise BANK
        if self.kind.endswith("asks"):
            interrupt("From which account?", answer=str)
        if self.kind == "waits":
            wait_for_first({"go": Question("Go?", answer=str), "late": Timer(after=99_999)})
        self.paid.append(to)
        return "paid"

    def told(self, request: Any) -> str:
        """The answer of the clerk, who has paid without a tool if it waited for something else."""
        if self.kind == "agent waits":
            self.paid.append("ACME")
        return "Paid."

    def _made(self) -> Any:
        gate = GATES[self.who]
        gated: Any

        def pay(to: str) -> str:
            """Pay."""
            return self.pay(to)

        @tool(requires_approval=True)
        def look(x: int) -> str:
            """Look."""
            return "seen"

        if self.kind.startswith("node"):

            def node(state: State) -> dict[str, str]:
                return {"done": self.pay(state.to)}

            made = StateGraph(State, name=self.name).add_node("pay", node, requires_approval=gate)
            return made.add_edge(START, "pay").add_edge("pay", END).compile(store=self.store)
        if self.kind == "calls":

            def looks(to: str, context: ToolContext[Any]) -> str:
                """Pay."""
                context.call_tool("look", {"x": 1})
                return self.pay(to)

            gated = tool(name="pay", requires_approval=gate, calls=[look])(looks)
        elif self.kind.startswith("agent"):
            inner = [call("look", {"x": 1})] if self.kind == "agent waits" else [call("send", {"to": "ACME"})]
            send = tool(name="send", on_failure="stop")(pay)
            model = ScriptedModel.by_turn([*inner, self.told])
            clerk: Any = Agent(name="clerk", model=model, tools=[look, send])
            gated = clerk.as_tool("pay", "Has it paid.", requires_approval=gate)
        else:
            gated = tool(requires_approval=gate, on_failure="stop")(pay)
        arguments = {"input": "ACME"} if self.kind.startswith("agent") else {"to": "ACME"}
        reply = [call("pay", arguments)] + ([call("look", {"x": 1})] if self.kind.startswith("sibling") else [])
        if self.kind.startswith("deep"):
            office: Any = Agent(name="office", model=ScriptedModel.by_turn([reply, "Paid."]), tools=[gated])
            gated, reply = office.as_tool("ask", "Asks."), [call("ask", {"input": "pay"})]
        agent: Any = Agent(
            name=self.name, model=ScriptedModel.by_turn([reply, "Done."]), tools=[gated, look], store=self.store
        )
        if self.who == "a handler":
            once = [True]
            agent = agent.on_approval_required(lambda name, args: once.pop() if name == "pay" and once else Defer())
        return agent

    def _stopped(self) -> Checkpoint:
        """The run, where the payment was approved and has not settled."""
        if self.who == "a grant":
            self.store.grant(Grant(agent=self.name, tool="pay", scope="tenant", uses=1), by="ada")
        given: Any = {} if self.kind.startswith("node") else "Pay"
        try:
            at = self.driver.invoke(self.app, given, requester="otto", thread_id=self.name).checkpoint
            if self.who in ("a human", "votes"):
                return self.allow(at).checkpoint
        except NodeFailed as error:
            assert error.checkpoint is not None
            at = error.checkpoint
        self.yes += self.who in ("a grant", "a handler")
        return at

    # Decisions

    def asked(self, at: Checkpoint) -> list[str]:
        return [item.id for item in at.pending if item.tool_name == "pay" and item.why in ("approval", "failed")]

    def allow(self, at: Checkpoint) -> Result[Any]:
        """Approve of the payment, by all who have to."""
        [id] = self.asked(at)
        self.yes += 1
        result: Result[Any] = Result(status=at.status, checkpoint=at)
        try:
            for person in PEOPLE if self.who == "votes" else PEOPLE[:1]:
                result = self.driver.resume(self.app, at, decisions={id: Approve()}, by=person)
        except NodeFailed as error:
            assert error.checkpoint is not None
            return Result(status="running", checkpoint=error.checkpoint)
        return result

    def answer(self, at: Checkpoint) -> Result[Any]:
        """Answer everything else that waits, by somebody who may approve of no payment, until nothing else does."""
        result: Result[Any] = Result(status=at.status, checkpoint=at)
        if not at.pending and at.ended is None:
            result = self.driver.resume(self.app, at)
        while result.suspended and not self.asked(result.checkpoint):
            items = [item for item in result.checkpoint.pending if not item.trigger or item.asks_human]
            given = {each.id: Respond(content="main") if each.why == "question" else Approve() for each in items}
            result = self.driver.resume(self.app, result.checkpoint, decisions=given, by="mallory")
        return result

    def asks_again(self, at: Checkpoint, *, pays: bool = True) -> None:
        """Nothing but an approval of its own has the branch pay, and then it pays once: never, where another branch has its result."""
        before = list(self.paid)
        assert self.asked(at), "it asks about the payment"
        if len(at.pending) == 1:
            with pytest.raises(NothingDecided):
                self.driver.resume(self.app, at)
        if self.who == "votes":
            with pytest.raises(NotAnApprover):
                self.driver.resume(self.app, at, decisions={self.asked(at)[0]: Approve()}, by="mallory")
        assert self.paid == before
        ended = self.answer(self.allow(at).checkpoint)
        assert (ended.status, self.paid[len(before) :]) == ("completed", ["ACME"] * pays)


KINDS = (
    *("fails", "asks", "waits", "calls"),
    *("agent waits", "agent fails"),
    *("deep fails", "deep asks"),
    *("sibling fails", "sibling asks"),
    *("node fails", "node asks"),
)
"""How the payment has not settled: in an agent, inside a gated agent, in a run inside, beside a call that waits, in a graph."""


def forks(bank: Bank, at: Checkpoint) -> Checkpoint:
    return bank.driver.fork(bank.app, at, by="mallory")


def forks_to_rerun(bank: Bank, at: Checkpoint) -> Checkpoint:
    return bank.driver.fork(bank.app, at, rerun=True)


def forks_twice(bank: Bank, at: Checkpoint) -> Checkpoint:
    return bank.driver.fork(bank.app, bank.driver.fork(bank.app, at), rerun=True)


def forks_in_the_store(bank: Bank, at: Checkpoint) -> Checkpoint:
    return bank.store.fork(at.id)


def writes_elsewhere(bank: Bank, at: Checkpoint) -> Checkpoint:
    result = bank.driver.resume(bank.app, at, write_to=f"branch {next(NUMBERS)}")
    assert result.suspended
    return result.checkpoint


FORKS = (forks, forks_to_rerun, forks_twice, forks_in_the_store, writes_elsewhere)


@pytest.mark.parametrize("begun", FORKS)
def test_a_branch_asks_anew_about_a_call_that_was_approved_and_has_not_settled(
    driver: Driver, place: Place, begun: Callable[[Bank, Checkpoint], Checkpoint]
) -> None:
    @each("kind", KINDS)
    def each_of_them(kind: str) -> None:
        bank = Bank(driver, place.open(), kind)
        assert (bank.paid, bank.yes) == ([], 1)
        # A call that completes has its result in all branches, unless they run it anew, or its body asks.
        found = kind.endswith("fails") and begun not in (forks_to_rerun, forks_twice)
        for number in range(2):
            bank.asks_again(begun(bank, bank.parent), pays=number == 0 or not found)
        # The run itself has its approval still.
        assert bank.answer(bank.parent).status == "completed"
        assert (len(bank.paid), bank.yes) == (1 if found else 3, 3)

    each_of_them()


@pytest.mark.parametrize("ended", ["cancelled", "completed"])
@pytest.mark.parametrize("whole", [True, False], ids=["with its past", "alone"])
def test_going_back_asks_anew_however_the_run_ended(driver: Driver, place: Place, whole: bool, ended: str) -> None:
    @each("kind", KINDS)
    def each_of_them(kind: str) -> None:
        bank = Bank(driver, place.open(), kind)
        if ended == "cancelled":
            driver.cancel(bank.app, bank.parent, by="boss", reason="Stop this payment.")
        else:
            assert bank.answer(bank.parent).status == "completed"
        for _ in range(2):
            found = kind.endswith("fails") and bank.paid != []
            bank.asks_again(driver.call(bank.app, "restore", bank.parent, restore_timeline=whole), pays=not found)
        assert len(bank.paid) <= bank.yes

    each_of_them()


@pytest.mark.parametrize("who", GATES)
def test_it_is_asked_anew_whoever_has_approved_it(driver: Driver, place: Place, who: str) -> None:
    @each("kind", [kind for kind in KINDS[:6] if not (who == "a handler" and kind == "agent waits")])
    def each_of_them(kind: str) -> None:
        bank = Bank(driver, place.open(), kind, who)
        if who == "a grant":
            [grant] = [each for each in bank.store.grants(all=True) if each.agent == bank.name]
            bank.store.revoke(grant.id, by="ada", reason="No more.")
        for begun in (forks, forks_to_rerun):
            bank.asks_again(begun(bank, bank.parent))
        assert (len(bank.paid), bank.yes) == (2, 3)

    each_of_them()


def goes_on(bank: Bank, at: Checkpoint) -> list[str]:
    """The payments that an approval, and the answer to what is asked behind it, lead to in a branch."""
    before = len(bank.paid)
    assert bank.answer(bank.allow(at).checkpoint).status == "completed"
    return bank.paid[before:]


@pytest.mark.parametrize("kind", ["node fails", "node asks"])
def test_a_fork_with_another_state_asks_about_the_node_as_it_will_run(driver: Driver, place: Place, kind: str) -> None:
    bank = Bank(driver, place.open(), kind, "votes")
    for to in ("MALLORY", "ACME"):
        fork = driver.fork(bank.app, bank.parent, update={"to": to}, by="mallory")
        [item] = fork.pending
        assert item.args["state"]["to"] == to
        with pytest.raises(NotAnApprover):
            driver.resume(bank.app, fork, decisions={item.id: Approve()}, by="mallory")
        assert goes_on(bank, fork) == [to]


def test_a_fork_with_another_state_shows_the_state_with_which_the_run_inside_goes_on(
    driver: Driver, place: Place
) -> None:
    paid: list[str] = []

    def pay(state: State) -> dict[str, str]:
        interrupt("From which account?", answer=str)
        paid.append(state.to)
        return {"done": "paid"}

    office = StateGraph(State, name="office").add_node("pay", pay).add_edge(START, "pay").add_edge("pay", END).compile()
    made = StateGraph(State, name="bank").add_node("pay", office, requires_approval=True)
    graph: Any = made.add_edge(START, "pay").add_edge("pay", END).compile(store=place.open())
    asks = driver.resume(graph, driver.invoke(graph, {}).checkpoint, approved=True).checkpoint
    fork = driver.fork(graph, asks, update={"to": "MALLORY"})
    assert [item.args["state"]["to"] for item in fork.pending] == ["ACME"]
    [question] = driver.resume(graph, fork, approved=True).checkpoint.pending
    assert paid == []
    head = graph.store.head(fork.branch_id)[1]
    assert driver.resume(graph, head, decisions={question.id: Respond(content="main")}).status == "completed"
    assert paid == ["ACME"]


@pytest.mark.parametrize("by", ["its tool", "a policy", "a policy around"])
@pytest.mark.parametrize("kind", ["fails", "asks"])
def test_a_predicate_is_asked_anew_about_a_call_that_it_let_run(
    driver: Driver, place: Place, kind: str, by: str
) -> None:
    paid: list[str] = []
    broken, asks = [True], [False]

    def pay(to: str) -> str:
        """Pay."""
        if kind == "asks":
            interrupt("From which account?", answer=str)
        elif broken:
            broken.clear()
            raise BANK
        paid.append(to)
        return "paid"

    def doubts(args: Any) -> bool:
        return asks[0]

    own = by == "its tool"
    gated = tool(requires_approval=doubts if own else False, on_failure="stop")(pay)
    model = ScriptedModel.by_turn([call("pay", {"to": "ACME"}), "Done."])
    policy: Any = {} if own else {"approval_policy": {"pa*": doubts}}
    if by == "a policy around":
        office: Any = Agent(name="office", model=model, tools=[gated])
        gated, model = office.as_tool("ask", "Asks."), ScriptedModel.by_turn([call("ask", {"input": "pay"}), "Done."])
    agent: Any = Agent(name="bank", model=model, tools=[gated], store=place.open(), **policy)
    try:
        at = driver.invoke(agent, "Pay").checkpoint
    except NodeFailed as error:
        assert error.checkpoint is not None
        at = error.checkpoint
    free = driver.resume(agent, driver.fork(agent, at, rerun=True))
    assert [item.why for item in free.checkpoint.pending] == (["question"] if kind == "asks" else [])
    before = list(paid)
    asks[0] = True
    asked = driver.resume(agent, driver.fork(agent, at, rerun=True)).checkpoint
    assert ([item.why for item in asked.pending], paid) == (["approval"], before)
    ended = driver.resume(agent, asked, approved=True)
    if kind == "asks":
        [question] = ended.checkpoint.pending
        ended = driver.resume(agent, ended.checkpoint, decisions={question.id: Respond(content="main")})
    assert (ended.status, paid) == ("completed", [*before, "ACME"])


def test_elsewhere_a_decision_inside_a_call_waits_until_that_is_approved_again(driver: Driver, place: Place) -> None:
    bank = Bank(driver, place.open(), "agent waits")
    [inside] = bank.parent.pending
    for given in ({"approved": True}, {"decisions": {inside.id: Reject()}}):
        with pytest.raises(InvalidDecision, match="is to be approved again") as refused:
            driver.resume(bank.app, bank.parent, write_to="elsewhere", **given)
        assert (refused.value.pending_id, bank.paid) == (inside.id, [])
    assert len(bank.store.branches(run_id=bank.parent.run_id)) == 1
    bank.asks_again(writes_elsewhere(bank, bank.parent))


def test_a_request_that_is_asked_anew_can_be_refused_or_answered_by_a_human(driver: Driver, place: Place) -> None:
    @each(("kind", "answer"), [(kind, answer) for kind in KINDS[:6] for answer in (Reject(), Respond(content="paid"))])
    def each_of_them(kind: str, answer: Any) -> None:
        bank = Bank(driver, place.open(), kind)
        fork = forks(bank, bank.parent)
        ended = driver.resume(bank.app, fork, decisions={bank.asked(fork)[0]: answer})
        assert (ended.status, bank.paid) == ("completed", [])

    each_of_them()


def test_it_is_asked_anew_with_the_whole_time_and_all_attempts(driver: Driver, place: Place) -> None:
    now = [1_800_000_000.0]
    store = place.open(clock=lambda: now[0])
    tries: list[int] = []

    @tool(requires_approval=Approval(), on_failure="stop", idempotent=True, retries=1)
    def pay(context: ToolContext[Any]) -> str:
        """Pay."""
        tries.append(context.attempt)
        raise BANK

    model = ScriptedModel.by_turn([call("pay"), "Done."])
    agent: Any = Agent(name="bank", model=model, tools=[pay], store=store, approval_timeout=60)
    asked = driver.invoke(agent, "Pay").checkpoint
    for _ in range(2):
        with pytest.raises(NodeFailed) as failed:
            driver.resume(agent, asked, approved=True)
        assert tries == [1, 2]
        tries.clear()
        now[0] += 3_600
        assert failed.value.checkpoint is not None
        asked = driver.fork(agent, failed.value.checkpoint)
        [item] = asked.pending
        assert item.expires_at is not None
        assert (item.requested_at.timestamp(), item.expires_at.timestamp()) == (now[0], now[0] + 60)
        assert (item.why, "the bank is away" in (item.reason or "")) == ("failed", True)


def test_who_operates_runs_pays_nothing_by_the_approval_of_others(driver: Driver) -> None:
    """In the inbox: they fork the failed payment and go back to it, but the branch waits for the people that it takes."""
    bank = Bank(driver, MemoryStore(), "fails", "votes")
    at = bank.parent
    api = api_of(bank.store, agents=bank.app)
    path = f"/runs/{at.run_id}/checkpoints/{at.id}"
    told = Pages(bank.store, agents=bank.app, scopes=lambda _: SCOPES).page(f"{path}/fork").text
    assert "was approved and has not completed, is asked again" in told and "by itself" not in told
    [fork] = [each for each in api.read(path)["operations"] if each["what"] == "fork"]
    made = api.send(f"{path}/fork", {"digest": fork["digest"], "rerun": True}).json()
    head = bank.store.head(made["id"])[1]
    assert (made["status"], bank.asked(head)) == ("suspended", [head.pending[0].id])
    offered = {each["what"]: each["why_not"] for each in api.read(f"/runs/{made['id']}/operations")["items"]}
    assert "step" not in offered and offered["pause"] is not None
    assert problem(api.decide(head.pending[0], "approve")) == (403, "not-an-approver")
    driver.cancel(bank.app, at)
    driver.cancel(bank.app, head)
    [back] = [each for each in api.read(path)["operations"] if each["what"] == "restore"]
    restored = api.send(f"{path}/restore", {"digest": back["digest"]}).json()
    assert (restored["status"], bank.paid) == ("suspended", [])
    bank.asks_again(bank.store.head(restored["id"])[1])
