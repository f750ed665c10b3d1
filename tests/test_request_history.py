"""What is told of each request: once, in order, and no other than what the store says of it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from drivers import PATIENCE, Driver, decide_first
from places import Place
from pydantic import AfterValidator
from request_laws import check_told
from stop_scenes import Case

from phronomy import (
    Agent,
    Announcements,
    Approve,
    Breakpoint,
    Checkpoint,
    Defer,
    Hold,
    OutcomeUnknown,
    Reject,
    Respond,
    Skip,
    interrupt,
    race,
    sequential,
    tool,
)
from phronomy.events import RequestChanged, event_from, replay
from phronomy.graph import END, START, StateGraph
from phronomy.stores.base import Store
from phronomy.stores.derived.kept_texts import whole_lineage
from phronomy.stores.derived.request_history import RequestHistory
from phronomy.testing import ScriptedModel, call, say
from phronomy.wire import to_wire

pytestmark = pytest.mark.worlds(2)

BOTH = say("", call("pay", {"order": 1}), call("pay", {"order": 2}))


def affordable(amount: float) -> float:
    """What no schema says: the desk has a thousand."""
    if amount > 1000:
        raise ValueError("the desk has no more than 1000")
    return amount


class Chat(Announcements):
    """Posts each request, and writes below it what becomes of it. It is away as often as it is asked to be."""

    def __init__(self) -> None:
        self.events: list[RequestChanged] = []
        self.runs: list[str] = []
        self.away = 0

    def on_request(self, event: RequestChanged) -> None:
        if self.away:
            self.away -= 1
            raise OSError("the chat is away")
        self.events.append(event)

    def on_suspended(self, event: Any) -> None:
        self.runs.append(event.type)

    def on_completed(self, event: Any) -> None:
        self.runs.append(event.type)

    @property
    def posts(self) -> list[list[str]]:
        """What was told of each request, in the order in which they were asked."""
        found: dict[str, list[str]] = {}
        for event in self.events:
            found.setdefault(event.request.id, []).append(event.what)
        return [*found.values()]

    def last(self, pending_id: str) -> RequestChanged:
        """What was last told of a request."""
        return [event for event in self.events if event.request.id == pending_id][-1]


class Desk:
    """Pays orders, each when somebody has approved it, and has a chat told of it."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.chat = Chat()
        self.paid: list[int] = []
        self.now = 1_700_000_000.0

    def open(self, **options: Any) -> Store:
        return self.place.open(clock=lambda: self.now, **options)

    def agent(self, *replies: Any, more: Sequence[Any] = (), **options: Any) -> Agent[Any, Any]:
        def pay(order: int, amount: Annotated[float, AfterValidator(affordable)] = 5.0) -> str:
            """Pay an order."""
            self.paid.append(order)
            return f"paid {order}"

        timed = {"approval_timeout": 600.0, "on_expiry": options.pop("on_expiry", "reject")}
        gated = tool(requires_approval=True, **timed)(self.driver.function(pay))
        model = ScriptedModel.by_turn([*(replies or (call("pay", {"order": 1}), "Done."))])
        options = {"announcements": [self.chat], "name": "desk", **options}
        return Agent(model=model, tools=[gated, *more], store=self.open(), **options)

    def asked(self, agent: Any, **options: Any) -> Checkpoint:
        checkpoint: Checkpoint = self.driver.invoke(agent, "Pay", **options).checkpoint
        assert checkpoint.status == "suspended"
        return checkpoint

    def decide(self, answer: Any, at: int = 0) -> str:
        """Somebody decides who has the store alone, and gives the id of the request."""
        store = self.open()
        shown = store.pending()[at].approval
        self.driver.call(store, "decide", shown.id, answer, by="rita", digest=shown.digest)  # type: ignore[arg-type]
        return shown.id

    def work(self, agent: Any) -> Any:
        """The next worker carries on what is left."""
        return [each.result for each in self.driver.call(agent, "recover_all")]


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


def check(desk: Desk) -> None:
    """What was last told of each request is what the store says of it."""
    check_told(desk.open(), desk.chat.events)


# Each once, in order


def test_each_request_is_asked_once_however_many_wait_and_whoever_decides_one_by_one(desk: Desk) -> None:
    three = say("", *(call("pay", {"order": number}) for number in (1, 2, 3)))
    agent = desk.agent(three, "Done.")
    asked = desk.asked(agent, thread_id="t", label="friday")
    assert desk.chat.posts == [["asked"]] * 3
    first = desk.chat.events[0]
    assert (first.request, first.checkpoint_id, first.run_id) == (asked.pending[0], asked.id, asked.run_id)
    assert (first.agent, first.thread_id, first.label, first.path) == ("desk", "t", "friday", "")
    for item in asked.pending:
        desk.driver.resume(agent, asked, decisions={item.id: Approve()}, by="rita")
        desk.work(agent)
    assert desk.chat.posts == [["asked", "decided", "carried_out"]] * 3
    assert desk.chat.runs == ["suspended"] * 3 + ["completed"]
    keys = [event.key for event in desk.chat.events]
    assert len({*keys}) == len(keys) == 9
    assert keys[0] == f"{asked.pending[0].id}:asked"
    done = desk.chat.last(asked.pending[2].id)
    assert done.decision is not None and done.decision.by is not None
    assert (done.decision.by.id, done.result_kind) == ("rita", "completed")
    check(desk)


def test_it_is_told_that_a_request_is_decided_before_that_is_carried_out(desk: Desk) -> None:
    heard: list[list[list[str]]] = []

    def note(order: int) -> str:
        """Note an order."""
        heard.append(desk.chat.posts)
        return "noted"

    gated = tool(requires_approval=True)(desk.driver.function(note))
    agent = desk.agent(call("note", {"order": 1}), "Done.", more=[gated])
    desk.driver.resume(agent, desk.asked(agent), approved=True)
    assert heard == [[["asked", "decided"]]]


def test_what_was_decided_with_the_store_alone_is_told_once_by_the_worker_that_checks_it(desk: Desk) -> None:
    agent = desk.agent()
    desk.asked(agent)
    pending_id = desk.decide(Approve(args={"order": 7}))
    assert desk.chat.posts == [["asked"]]
    desk.work(agent)
    assert desk.chat.posts == [["asked", "decided", "carried_out"]]
    assert desk.chat.last(pending_id).decision is not None and desk.paid == [7]
    check(desk)


def test_an_edit_that_does_not_pass_names_the_request_in_its_place(desk: Desk) -> None:
    agent = desk.agent()
    desk.asked(agent)
    first = desk.decide(Approve(args={"order": 1, "amount": 5000}))
    desk.work(agent)
    (again,) = desk.open().pending()
    assert desk.chat.posts == [["asked", "decided", "failed"], ["asked"]]
    assert desk.chat.last(first).asked_again == again.approval.id == desk.chat.events[-1].request.id
    assert "no more than 1000" in (desk.chat.events[-1].request.reason or "")
    check(desk)
    desk.decide(Reject())
    desk.work(agent)
    assert desk.chat.posts == [["asked", "decided", "failed"], ["asked", "decided"]]
    check(desk)


def test_a_decision_that_is_left_for_a_live_worker_is_told_by_it(desk: Desk) -> None:
    """Of two calls of a reply one runs when the other is decided."""

    def slow(order: int) -> str:
        """Take a while."""
        (shown,) = desk.open().pending()
        desk.open().decide(shown.approval.id, Approve(), by="rita", digest=shown.approval.digest)
        return "slow"

    agent = desk.agent(
        say("", call("pay", {"order": 1}), call("slow", {"order": 2})), "Done.", more=[tool(desk.driver.function(slow))]
    )
    result = desk.driver.invoke(agent, "Pay")
    assert (result.status, desk.paid) == ("completed", [1])
    assert desk.chat.posts == [["asked", "decided", "carried_out"]]
    check(desk)


def test_a_request_is_told_before_other_calls_of_its_reply_run(desk: Desk) -> None:
    """They may take an hour. A listener that is lost meanwhile leaves no call of which nobody knows whether it began."""
    heard: list[list[list[str]]] = []

    def slow(order: int) -> str:
        """Take a while."""
        heard.append(desk.chat.posts)
        return "slow"

    replies = [say("", call("slow", {"order": 2}), call("pay", {"order": 1})), call("slow", {"order": 3}), "Done."]
    agent = desk.agent(*replies, more=[tool(desk.driver.function(slow))])

    class Gone(BaseException):
        """What ends a worker."""

    def leave(event: RequestChanged) -> None:
        raise Gone

    desk.chat.on_request = leave  # type: ignore[method-assign]
    with pytest.raises(Gone):
        desk.driver.invoke(agent, "Pay")
    assert heard == []
    del desk.chat.on_request
    (branch,) = desk.open().branches()
    result = desk.driver.recover(agent, branch.run_id)
    assert [item.tool_name for item in result.checkpoint.pending] == ["pay"]
    assert heard == [[["asked"]]]
    desk.driver.resume(agent, result.checkpoint, approved=True)
    assert heard[1:] == [[["asked", "decided"]]]
    check(desk)


def test_a_call_that_holds_has_its_stop_told(desk: Desk) -> None:
    heard: list[list[list[str]]] = []

    def answer(hit: Any) -> Any:
        heard.append(desk.chat.posts)
        return Approve()

    agent = desk.agent("Done.", breakpoints=[Breakpoint("pre_model_call")])
    hold = Hold(on_breakpoint=desk.driver.function(answer))
    result = desk.driver.invoke(agent, "Pay", hold=hold)
    assert (result.output, heard) == ("Done.", [[["asked"]]])
    assert desk.chat.posts == [["asked", "decided", "carried_out"]]
    check(desk)


def test_what_a_handler_answers_at_once_was_asked_of_nobody_and_what_it_leaves_is_asked(desk: Desk) -> None:
    agent = desk.agent(BOTH, "Done.")
    answers = iter([True, Defer()])
    agent.on_approval_required(desk.driver.function(lambda name, args: next(answers)))
    (item,) = desk.asked(agent).pending
    assert desk.chat.posts == [["asked"]] and desk.chat.events[0].request == item
    desk.driver.resume(agent, desk.open().pending()[0].checkpoint_id, approved=True)
    assert desk.chat.posts == [["asked", "decided", "carried_out"]] and len(desk.paid) == 2
    check(desk)


# What becomes of it

ENDS: list[Any] = [
    pytest.param(Approve(), ["asked", "decided", "carried_out"], "completed", id="approved"),
    pytest.param(Approve(args={"order": 2}), ["asked", "decided", "carried_out"], "completed", id="edited"),
    pytest.param(Respond(content="paid by hand"), ["asked", "decided", "carried_out"], "responded", id="responded"),
    pytest.param(Reject(), ["asked", "decided"], None, id="rejected"),
    pytest.param(Reject(then="end"), ["asked", "decided"], None, id="rejected, and the run ends"),
]


@pytest.mark.parametrize(("answer", "told", "kind"), ENDS)
@pytest.mark.parametrize("outside", [False, True], ids=["by the agent", "by the store"])
@pytest.mark.parametrize("nested", [False, True], ids=["outermost", "nested"])
def test_what_was_decided_and_what_came_of_it(
    desk: Desk, answer: Any, told: list[str], kind: str | None, outside: bool, nested: bool
) -> None:
    agent = desk.agent()
    if nested:
        agent = desk.agent(
            call("clerk", {"input": "Pay"}), "Done.", more=[desk.agent(name="clerk").as_tool(description="Pays.")]
        )
    asked = desk.asked(agent)
    (item,) = asked.pending
    assert bool(item.path) is nested
    if outside:
        desk.decide(answer)
        desk.work(agent)
    else:
        desk.driver.resume(agent, asked, decisions={item.id: answer}, by="rita")
    assert desk.chat.posts == [told]
    event = desk.chat.last(item.id)
    assert (event.result_kind, event.path, event.agent) == (kind, item.path, "desk")
    check(desk)


def failing(desk: Desk, error: type[Exception], **options: Any) -> Any:
    def wire(order: int) -> str:
        """Pay by wire."""
        raise error("the line went dead")

    return tool(requires_approval=True, **options)(desk.driver.function(wire))


FAILURES: list[Any] = [
    pytest.param(ConnectionError, {"on_failure": "model"}, None, "failed", id="told to the model"),
    pytest.param(ConnectionError, {"on_failure": "human"}, "failed", None, id="put to a human"),
    pytest.param(OutcomeUnknown, {}, "outcome_unknown", None, id="of unknown outcome"),
]


@pytest.mark.parametrize(("error", "options", "why", "kind"), FAILURES)
@pytest.mark.parametrize("nested", [False, True], ids=["outermost", "nested"])
def test_a_call_that_fails_is_told_and_names_the_request_in_its_place(
    desk: Desk, error: Any, options: dict[str, Any], why: str | None, kind: str | None, nested: bool
) -> None:
    wire = failing(desk, error, **options)
    agent = desk.agent(call("wire", {"order": 1}), "Done.", more=[wire])
    if nested:
        inner = desk.agent(call("wire", {"order": 1}), "Done.", more=[wire], name="clerk")
        agent = desk.agent(call("clerk", {"input": "Pay"}), "Done.", more=[inner.as_tool(description="Pays.")])
    asked = desk.asked(agent)
    (item,) = asked.pending
    result = desk.driver.resume(agent, asked, approved=True)
    assert desk.chat.posts == [["asked", "decided", "failed"], *([["asked"]] if why else [])]
    event = desk.chat.last(item.id)
    again = [each.id for each in result.checkpoint.pending]
    assert ([event.asked_again] if why else [], event.result_kind) == (again, kind)
    check(desk)
    if why:
        assert desk.chat.events[-1].request.why == why
        desk.driver.resume(agent, result.checkpoint, decisions={again[0]: Respond(content="It was paid.")})
        assert desk.chat.posts[1] == ["asked", "decided", "carried_out"]
        check(desk)


@pytest.mark.parametrize("on_expiry", ["reject", "cancel", "stay"])
def test_what_nobody_decided_in_time_has_expired_once_it_is_settled(desk: Desk, on_expiry: str) -> None:
    agent = desk.agent(BOTH, "Done.", on_expiry=on_expiry)
    asked = desk.asked(agent)
    desk.decide(Approve())
    desk.now += 601
    desk.work(agent)
    first, second = desk.chat.posts
    assert second == ["asked"] if on_expiry == "stay" else ["asked", "expired"]
    assert first == ["asked", "decided", "withdrawn" if on_expiry == "cancel" else "carried_out"]
    check(desk)
    if on_expiry == "stay":
        desk.driver.resume(agent, asked.id, decisions={asked.pending[1].id: Approve()})
        assert desk.chat.posts[1] == ["asked", "decided", "carried_out"]


@pytest.mark.parametrize("how", ["cancelled", "superseded"])
@pytest.mark.parametrize("nested", [False, True], ids=["outermost", "nested"])
def test_what_waits_when_its_run_is_ended_is_withdrawn_also_where_it_was_decided(
    desk: Desk, how: str, nested: bool
) -> None:
    agent = desk.agent(BOTH, "Done.")
    if nested:
        inner = desk.agent(BOTH, "Done.", name="clerk")
        agent = desk.agent(call("clerk", {"input": "Pay"}), "Done.", more=[inner.as_tool(description="Pays.")])
    asked = desk.asked(agent, thread_id="t")
    desk.decide(Approve())
    if how == "cancelled":
        desk.driver.cancel(agent, asked.run_id)
    else:
        desk.driver.invoke(desk.agent("Hello."), "Hello?", thread_id="t", on_pending="supersede")
    desk.work(agent)
    assert desk.chat.posts == [["asked", "decided", "withdrawn"], ["asked", "withdrawn"]]
    assert desk.paid == []
    check(desk)


def test_a_call_that_began_and_was_ended_with_its_run_has_failed(desk: Desk) -> None:
    """What was let go on in it may have had effects: it is not told to be withdrawn."""
    inner = desk.agent(name="clerk")
    outer = desk.agent(
        call("clerk", {"input": "Pay"}), "Done.", more=[inner.as_tool(description="Pays.", requires_approval=True)]
    )
    asked = desk.asked(outer)
    desk.driver.resume(outer, asked, approved=True)
    assert desk.chat.posts == [["asked", "decided"], ["asked"]]
    desk.driver.cancel(outer, asked.run_id)
    assert desk.chat.posts == [["asked", "decided", "failed"], ["asked", "withdrawn"]]
    assert desk.chat.last(asked.pending[0].id).result_kind == "cancelled"
    check(desk)


def test_a_call_that_is_run_again_when_the_run_is_resumed_has_not_failed_yet(desk: Desk) -> None:
    broken = [True]

    def wire(order: int) -> str:
        """Pay by wire."""
        if broken:
            raise ConnectionError("the bank is away")
        return "wired"

    gated = tool(requires_approval=True, on_failure="stop", idempotent=True)(desk.driver.function(wire))
    agent = desk.agent(call("wire", {"order": 1}), "Done.", more=[gated])
    asked = desk.asked(agent)
    with pytest.raises(Exception, match="the bank is away"):
        desk.driver.resume(agent, asked, approved=True)
    assert desk.chat.posts == [["asked", "decided"]]
    broken.clear()
    desk.driver.recover(agent, asked.run_id)
    assert desk.chat.posts == [["asked", "decided", "carried_out"]]
    check(desk)


@pytest.mark.parametrize("most", range(1, 7))
def test_a_call_that_was_taken_back_before_it_began_is_withdrawn_with_its_run(desk: Desk, most: int) -> None:
    """Whoever watches leaves after some event: before the call begins, or once it has run."""
    agent = desk.agent()
    asked = desk.asked(agent)
    desk.driver.watched(agent, asked, most, approved=True)
    if desk.open().branches()[0].status != "completed":
        desk.driver.cancel(agent, asked.run_id)
    assert desk.chat.posts == [["asked", "decided", "carried_out" if desk.paid else "withdrawn"]]
    check(desk)


def test_the_store_says_that_a_call_has_failed_while_the_one_beside_it_runs(desk: Desk) -> None:
    def slow(order: int) -> str:
        """Run until the other has failed."""
        until = time.monotonic() + PATIENCE
        while desk.open().request(first.id).status != "settled":
            assert time.monotonic() < until
            time.sleep(0.01)
        return "slow"

    wire = failing(desk, ConnectionError, on_failure="model")
    beside = tool(requires_approval=True)(slow)  # in a thread of its own, with either driver
    agent = desk.agent(say("", call("wire", {"order": 1}), call("slow", {"order": 2})), "Done.", more=[wire, beside])
    asked = desk.asked(agent)
    first, second = asked.pending
    desk.driver.resume(agent, asked, decisions={first.id: Approve(), second.id: Approve()})
    assert desk.chat.posts == [["asked", "decided", "failed"], ["asked", "decided", "carried_out"]]
    check(desk)


# Every kind of request


def test_a_breakpoint_is_a_request_and_so_is_the_approval_that_comes_next(desk: Desk) -> None:
    agent = desk.agent(breakpoints=[Breakpoint("pre_tool_call")])
    agent.on_approval_required(desk.driver.function(lambda name, args: Defer()))
    desk.asked(agent)
    first = desk.decide(Approve())
    desk.work(agent)
    assert desk.chat.posts == [["asked", "decided", "carried_out"], ["asked"]]
    assert desk.chat.last(first).asked_again == desk.open().pending()[0].approval.id
    check(desk)
    desk.decide(Approve())
    desk.work(agent)
    assert desk.chat.posts == [["asked", "decided", "carried_out"]] * 2 and desk.paid == [1]
    check(desk)


def test_a_breakpoint_whose_approval_a_handler_gives_is_carried_out_with_the_call(desk: Desk) -> None:
    agent = desk.agent(breakpoints=[Breakpoint("pre_tool_call")])
    agent.on_approval_required(desk.driver.function(lambda name, args: True))
    desk.asked(agent)
    pending_id = desk.decide(Approve())
    desk.work(agent)
    assert desk.chat.posts == [["asked", "decided", "carried_out"]] and desk.paid == [1]
    event = desk.chat.last(pending_id)
    assert (event.asked_again, event.result_kind) == (None, "completed")
    assert desk.open().request(pending_id).status == "settled"
    check(desk)


@pytest.mark.parametrize("point", ["pre_model_call", "pre_tool_call", "post_tool_call"])
@pytest.mark.parametrize("answer", [Approve(), Skip(), Reject()], ids=["let go on", "skipped", "rejected"])
def test_a_stop_is_told_as_any_other_request(desk: Desk, point: Any, answer: Any) -> None:
    @tool
    def note(text: str) -> str:
        """Write it down."""
        return f"noted {text}"

    replies = [call("note", {"text": "a"}), "Done."]
    agent = desk.agent(*replies, more=[note], breakpoints=[Breakpoint(point)])
    if point == "post_tool_call" and isinstance(answer, Skip):
        answer = Reject()
    asked = desk.asked(agent)
    desk.driver.resume(agent, asked, decisions={asked.pending[0].id: answer})
    went_on = ["carried_out"] if isinstance(answer, Approve) else []
    assert desk.chat.posts[0] == ["asked", "decided", *went_on]
    check(desk)


def test_each_question_of_a_body_is_told_and_carried_out_with_the_call_that_asks(desk: Desk) -> None:
    @tool
    def ask(order: int) -> str:
        """Ask how much, and where."""
        return f"{interrupt('How much?', key='a', answer=int)} at {interrupt('Where?', key='b')}"

    agent = desk.agent(call("ask", {"order": 1}), "Done.", more=[ask])
    asked = desk.asked(agent)
    result = desk.driver.resume(agent, asked, decisions={asked.pending[0].id: Respond(content=7)})
    assert desk.chat.posts == [["asked", "decided"], ["asked"]]
    check(desk)
    desk.driver.resume(agent, result.checkpoint, decisions={result.checkpoint.pending[0].id: Respond(content="here")})
    assert desk.chat.posts == [["asked", "decided", "carried_out"]] * 2
    assert desk.open().request(asked.pending[0].id).status == "settled"
    check(desk)


def test_an_external_call_is_told_and_asked_again_where_its_result_does_not_fit(desk: Desk) -> None:
    @tool(external=True)
    def scan(order: int) -> dict[str, int]:
        """Scan a parcel."""
        ...

    agent = desk.agent(call("scan", {"order": 1}), "Done.", more=[scan])
    desk.asked(agent)
    for content in ("heavy", {"grams": 500}):
        desk.decide(Respond(content=content))
        desk.work(agent)
        check(desk)
    assert desk.chat.posts == [["asked", "decided", "failed"], ["asked", "decided", "carried_out"]]


def works(desk: Desk) -> Any:
    """A graph of two nodes; a human is asked about the first."""

    def body(state: Case) -> dict[str, Any]:
        return {"n": state.n + 1}

    graph = StateGraph(Case, name="desk").add_node("a", desk.driver.function(body), requires_approval=True)
    graph.add_node("b", desk.driver.function(body)).add_edge(START, "a").add_edge("a", "b").add_edge("b", END)
    return graph.compile(store=desk.open(), announcements=[desk.chat])


@pytest.mark.parametrize(
    "answer", [Approve(), Reject(), Respond(content={"n": 5})], ids=lambda each: type(each).__name__
)
def test_a_node_of_a_graph_is_told_as_a_call(desk: Desk, answer: Any) -> None:
    graph = works(desk)
    asked = desk.driver.invoke(graph, Case()).checkpoint
    desk.driver.resume(graph, asked, decisions={asked.pending[0].id: answer})
    assert desk.chat.posts == [["asked", "decided", *([] if isinstance(answer, Reject) else ["carried_out"])]]
    check(desk)


def test_the_steps_of_a_pattern_are_told_once_though_the_outer_run_lists_them_too(desk: Desk) -> None:
    scout = desk.agent(BOTH, "Found.", name="scout")
    editor = desk.agent(name="editor")
    pattern: Any = sequential(scout, editor, name="desk", store=desk.open(), announcements=[desk.chat])
    asked = desk.driver.invoke(pattern, "Pay").checkpoint
    assert desk.chat.posts == [["asked"]] * 2
    for answer in (Approve(), Reject(), Approve()):
        desk.decide(answer)
        (result,) = desk.work(pattern)
        check(desk)
    assert (result.status, desk.paid) == ("completed", [1, 1])
    done = ["asked", "decided", "carried_out"]
    assert desk.chat.posts == [done, ["asked", "decided"], done]
    assert {event.run_id for event in desk.chat.events} == {asked.run_id}


def test_what_a_run_does_without_is_withdrawn_while_the_run_goes_on(desk: Desk) -> None:
    """Of two agents in a race one has won: what the other asks is asked no more."""
    both: Any = race(desk.agent(name="scout"), desk.agent(name="quick"), name="both")
    editor = desk.agent(name="editor")
    pattern: Any = sequential(both, editor, name="desk", store=desk.open(), announcements=[desk.chat])
    desk.driver.invoke(pattern, "Pay")
    assert desk.chat.posts == [["asked"]] * 2
    desk.decide(Approve())
    (result,) = desk.work(pattern)
    assert result.status == "suspended"
    assert desk.chat.posts == [["asked", "decided", "carried_out"], ["asked", "withdrawn"], ["asked"]]
    check(desk)


# Branches


def test_a_fork_asks_anew_under_ids_of_its_own_and_both_are_told(desk: Desk) -> None:
    agent = desk.agent()
    asked = desk.asked(agent)
    forked = desk.open().fork(asked.id)
    assert forked.pending[0].id != asked.pending[0].id
    desk.work(agent)
    assert desk.chat.posts == [["asked"], ["asked"]]
    assert [event.branch_id for event in desk.chat.events] == [asked.branch_id, forked.branch_id]
    desk.driver.resume(agent, forked, approved=True)
    desk.driver.cancel(agent, asked)
    assert desk.chat.posts == [["asked", "withdrawn"], ["asked", "decided", "carried_out"]]
    check(desk)


def test_the_next_run_of_a_thread_is_told_by_itself(desk: Desk) -> None:
    """Their calls have the same ids."""
    agent = desk.agent()
    for _ in range(2):
        desk.driver.resume(agent, desk.asked(agent, thread_id="t"), approved=True)
    assert desk.chat.posts == [["asked", "decided", "carried_out"]] * 2
    assert len({event.key for event in desk.chat.events}) == 6


def test_who_begins_to_listen_later_is_told_what_happens_from_then_on_with_the_request(desk: Desk) -> None:
    asked = desk.asked(desk.agent(announcements=[]))
    agent = desk.agent()
    desk.work(agent)
    assert desk.chat.events == []
    desk.driver.resume(agent, asked, approved=True)
    assert desk.chat.posts == [["decided", "carried_out"]]
    assert desk.chat.events[0].request == asked.pending[0]


# At least once


def test_what_follows_an_event_that_could_not_be_told_waits_and_keeps_its_key(desk: Desk) -> None:
    desk.chat.away = 1
    agent = desk.agent(BOTH, "Done.")
    asked = desk.asked(agent)
    assert desk.chat.events == [] and desk.chat.runs == []
    desk.chat.away = 2
    desk.work(agent)
    desk.work(agent)
    assert desk.chat.events == []
    told: list[str] = []
    fail_once = iter([False, True])

    def on_request(event: RequestChanged) -> None:
        if next(fail_once, False):
            raise OSError("the chat is away")
        told.append(event.key)

    desk.chat.on_request = on_request  # type: ignore[method-assign]
    desk.work(agent)
    desk.driver.resume(agent, asked, decisions=decide_first(asked))
    first, second = (item.id for item in asked.pending)
    # Both are of one entry of the log: the first is told again, under the same key.
    assert told[:3] == [f"{first}:asked", f"{first}:asked", f"{second}:asked"]
    assert [key for key in dict.fromkeys(told) if key.startswith(first)] == [
        f"{first}:{what}" for what in ("asked", "decided", "carried_out")
    ]


def test_a_log_is_not_read_for_requests_where_nobody_listens_to_them(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Runs(Announcements):
        def __init__(self) -> None:
            self.told: list[str] = []

        def on_suspended(self, event: Any) -> None:
            self.told.append(event.type)

    def fail(*_: Any) -> None:
        raise AssertionError("the log is read for requests")

    monkeypatch.setattr(RequestHistory, "read", fail)
    runs = Runs()
    desk.asked(desk.agent(announcements=[runs]))
    assert runs.told == ["suspended"]
    desk.asked(desk.agent())
    assert desk.chat.events == []


def test_an_entry_costs_what_is_open_and_not_what_was(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run of many turns, each with a request, every call is looked at a fixed number of times."""
    looked = [0]
    follow = RequestHistory._follow

    def counted(self: RequestHistory, *given: Any) -> None:
        looked[0] += 1
        follow(self, *given)

    monkeypatch.setattr(RequestHistory, "_follow", counted)

    def looks(turns: int) -> float:
        agent = desk.agent(*[call("pay", {"order": number}) for number in range(turns)], "Done.", announcements=[])
        result = desk.driver.invoke(agent, "Pay")
        while result.suspended:
            result = desk.driver.resume(agent, result.checkpoint, approved=True)
        looked[0], history = 0, RequestHistory()
        from phronomy.stores.log.log import items_of

        for entry, item in items_of(whole_lineage(desk.open(), branch_id=result.checkpoint.branch_id).entries):
            history.read(entry.path, item)
        assert [each.status for each in history.requests.values()] == ["settled"] * turns
        return looked[0] / turns

    assert looks(4) == looks(12)


# The event


def test_the_event_is_plain_data_and_is_read_back_and_no_stream_has_it(desk: Desk) -> None:
    agent = desk.agent()
    asked = desk.asked(agent)
    desk.driver.resume(agent, asked, approved=True, by="rita")
    for event in desk.chat.events:
        assert event_from(event.model_dump_json()) == event
        sent = json.loads(json.dumps(to_wire(event)))
        assert (sent["type"], sent["what"], sent["key"]) == ("request", event.what, event.key)
        assert sent["request"]["id"] == asked.pending[0].id
        assert sent["request"]["args"] == {"order": 1, "amount": 5.0}
    hidden = to_wire(desk.chat.events[0], redact=Agent(model=ScriptedModel([])))
    assert "1" not in json.dumps(hidden["request"]["args"])  # type: ignore[index,call-overload]
    assert "request" not in {event.type for event in replay(desk.open(), asked.run_id)}


def test_async_methods_are_awaited(desk: Desk) -> None:
    class Later(Announcements):
        def __init__(self) -> None:
            self.told: list[str] = []

        async def on_request(self, event: RequestChanged) -> None:
            self.told.append(event.what)

    later = Later()
    assert later.is_async
    if desk.driver.is_async:
        desk.asked(desk.agent(announcements=[later]))
        assert later.told == ["asked"]
