"""A message for a run that waits or works: stored at once, and read by the model with its next call."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from drivers import SYNC, Around, Driver, outline
from places import Place
from pydantic import BaseModel

from phronomy import (
    Agent,
    Approval,
    Approve,
    Breakpoint,
    Checkpoint,
    Hooks,
    Limits,
    MemoryStore,
    Orchestrator,
    Reject,
    Respond,
    SQLiteStore,
    tool,
)
from phronomy.cli import run as command
from phronomy.cli.words import login_name
from phronomy.errors import (
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    CheckpointUntrusted,
    ConfigurationError,
    GuardrailRefused,
    InvalidDecision,
    LimitExceeded,
    ModelError,
    NotAnApprover,
    StoreError,
    TooManyMessages,
)
from phronomy.events import Event, MessageAdded, replay
from phronomy.graph import END, START, StateGraph
from phronomy.guardrails.guardrail import Refuse, Transform, guardrail
from phronomy.people import Person, StoreDirectory
from phronomy.records.calls import Added
from phronomy.stores.derived import room, sending
from phronomy.stores.rows import Append, Behind, Branch
from phronomy.testing import ScriptedModel, call, say
from phronomy.timeline import timeline

pytestmark = pytest.mark.worlds(2)

TWO = say("", call("pay", {"who": "ann"}, id="a"), call("pay", {"who": "bo"}, id="b"))


class Job(BaseModel):
    """The state of a graph."""

    log: str = ""


def told(request: Any) -> str:
    """All that the model reads after its last reply."""
    last = max((place for place, message in enumerate(request.messages) if message.role == "assistant"), default=-1)
    return " | ".join(message.text for message in request.messages[last + 1 :])


@tool(requires_approval=True)
def gated() -> str:
    """Ask first."""
    return "done"


class Till:
    """Pays whom it is told to, each when somebody has approved it."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.paid: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def agent(self, *replies: Any, gate: Any = True, **options: Any) -> Agent[Any, str]:
        """The agent as a process of its own makes it."""

        def pay(who: str) -> str:
            """Pay somebody."""
            self.meanwhile()
            self.paid.append(who)
            return f"paid {who}"

        gated = tool(requires_approval=gate)(self.driver.function(pay))
        options = {"store": self.place.open(), **options}
        return Agent(name="till", model=ScriptedModel([*replies]), tools=[gated], **options)

    def send(self, at: Any, text: Any, **options: Any) -> Checkpoint:
        """Send a message, as a process of its own."""
        sent: Checkpoint = self.driver.call(self.agent(), "send", at, text, **options)
        return sent

    def now(self, text: str, **options: Any) -> None:
        """Send a message to the only run, from inside what runs here."""
        store = self.place.open()
        [branch] = store.branches()
        store.send(branch.id, text, **options)

    def refused(self, error: Any, at: Any, text: Any = "More", **options: Any) -> str:
        """The text of the error for a message that changes nothing."""
        before = self.place.lines()
        with pytest.raises(error) as refused:
            self.send(at, text, **options)
        assert self.place.lines() == before
        return str(refused.value)


@pytest.fixture
def till(driver: Driver, place: Place) -> Till:
    return Till(driver, place)


# Where it stands


@pytest.mark.product
def test_a_run_that_waits_goes_on_waiting_and_reads_it_after_the_results(till: Till) -> None:
    asked = till.driver.invoke(till.agent(TWO), "Pay both", requester="rita").checkpoint
    sent = till.send(asked, "Only small ones.", by="ann", channel="web", id="m1")
    till.send(asked.run_id, "And hurry.", by="bob")
    assert (sent.id, sent.pending, sent.status) == (asked.id, asked.pending, "suspended")
    assert [item.approval for item in till.place.open().pending()] == list(asked.pending)

    first = till.driver.resume(till.agent(), asked, decisions={"a": Approve()}, by="cid").checkpoint
    assert [each.message.text for each in first.added] == ["Only small ones.", "And hurry."]
    assert first.requesters == ("ann", "bob")
    result = till.driver.resume(till.agent(told), first, decisions={"b": Reject()}, by="cid")

    assert outline(result)[-4:-1] == [
        outline(result)[-4],
        "user: Only small ones.",
        "user: And hurry.",
    ]
    assert str(result.output).endswith("| Only small ones. | And hurry.")
    assert (till.paid, result.checkpoint.added, result.checkpoint.unread) == (["ann"], (), ())
    trail = [each for each in till.place.open().audit() if each.kind == "message"]
    assert [(each.by and each.by.id, each.channel, each.checkpoint_id) for each in trail] == [
        ("ann", "web", asked.id),
        ("bob", None, asked.id),
    ]
    assert trail[0].key == "m1"


@pytest.mark.product
def test_a_message_that_comes_while_the_model_is_asked_stands_behind_its_reply(till: Till) -> None:
    """Of the first reply, of one with calls, and of the last: the run goes on, so that each is read."""

    def first(request: Any) -> Any:
        till.now("One.")
        till.now("Two.")
        return say("", call("pay", {"who": "ann"}, id="a"))

    def last(request: Any) -> str:
        assert told(request) == "paid ann | One. | Two."
        till.now("Three.")
        return "All done."

    result = till.driver.invoke(till.agent(first, last, told, gate=False), "Pay")
    assert result.output == "Three."
    assert outline(result)[-5:] == [
        "user: One.",
        "user: Two.",
        "assistant: All done.",
        "user: Three.",
        "assistant: Three.",
    ]


def test_a_message_that_comes_while_a_tool_runs_stands_behind_its_result(till: Till) -> None:
    till.meanwhile = lambda: till.now("Stop there.")
    result = till.driver.invoke(till.agent(say("", call("pay", {"who": "ann"}, id="a")), told, gate=False), "Pay")
    assert result.output == "paid ann | Stop there."


@pytest.mark.product
def test_an_answer_that_is_not_stored_yet_is_not_the_last_one(till: Till) -> None:
    """Guardrails look at it when the message comes; they look at the answer that ends the run as well."""
    looked: list[str] = []

    @guardrail
    def looks(value: Any) -> None:
        """Look at the answer."""
        if not looked:
            till.now("One more.")
        looked.append(str(value))

    result = till.driver.invoke(till.agent("All done.", told, output_guardrails=[looks]), "Pay")
    assert (result.output, looked) == ("One more.", ["All done.", "One more."])
    assert [message.text for message in result.messages] == ["Pay", "All done.", "One more.", "One more."]


def test_the_result_of_a_tool_that_would_be_the_answer_is_not_the_last_word(till: Till) -> None:
    @tool(return_direct=True)
    def look() -> str:
        """Look."""
        till.now("Say it in French.")
        return "bread"

    agent = Agent(model=ScriptedModel([say("", call("look", id="a")), told]), tools=[look], store=till.place.open())
    assert SYNC.invoke(agent, "Look").output == "bread | Say it in French."


@pytest.mark.parametrize("point", ["pre_model_call", "post_run"])
def test_at_a_breakpoint_it_waits_until_the_run_goes_on(till: Till, point: Any) -> None:
    agent = till.agent("All done.", told, breakpoints=[Breakpoint(point)])
    stopped = till.driver.invoke(agent, "Pay").checkpoint
    sent = till.send(stopped, "And more.")
    assert (sent.id, sent.pending) == (stopped.id, stopped.pending)
    result = till.driver.resume(agent, stopped)
    while result.suspended:
        result = till.driver.resume(agent, result.checkpoint)
    assert (result.output, [message.role for message in result.messages]) == (
        "And more.",
        ["user", "assistant", "user", "assistant"],
    )


def test_a_paused_run_reads_it_when_it_goes_on(till: Till) -> None:
    asked = till.driver.invoke(till.agent(TWO), "Pay both").checkpoint
    first = till.driver.resume(
        till.agent(told, breakpoints=[Breakpoint("pre_model_call")]), asked, decisions={"a": Reject(), "b": Reject()}
    ).checkpoint
    till.send(first, "Then let it be.")
    assert str(till.driver.resume(till.agent(told), first).output).endswith("| Then let it be.")


def test_a_run_whose_model_failed_reads_it_with_the_next_call(till: Till) -> None:
    def fail(request: Any) -> str:
        raise ValueError("away")

    asked = till.driver.invoke(till.agent(TWO), "Pay both", thread_id="t").checkpoint
    with pytest.raises(ModelError) as failed:
        till.driver.resume(till.agent(fail), asked, decisions={"a": Reject(), "b": Reject()})
    till.send(None, "Use the other one.", thread_id="t")
    assert failed.value.checkpoint is not None
    result = till.driver.resume(till.agent(told), failed.value.checkpoint)
    assert str(result.output).endswith("| Use the other one.")
    assert result.checkpoint.turn == 2


def test_a_limit_that_keeps_it_from_being_read_is_an_error(till: Till) -> None:
    """It is not lost in silence: the run has failed, and goes on with other limits."""

    def answer(request: Any) -> str:
        till.now("One more.")
        return "All done."

    with pytest.raises(LimitExceeded) as failed:
        till.driver.invoke(till.agent(answer, limits=Limits(turns=1)), "Pay")
    assert failed.value.checkpoint is not None
    assert till.driver.resume(till.agent(told), failed.value.checkpoint).output == "One more."


# News of a message


class Told(Hooks):
    """Notes the messages that come into a conversation, and what is told beside them."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.types: list[str] = []

    def on_event(self, event: Event) -> None:
        self.types.append(event.type)

    def on_message_added(self, event: MessageAdded) -> None:
        self.keys.append(event.key)


def while_it_waits(till: Till, told_to: Told) -> None:
    """The next drive finds the message and the decisions in the log, and asks the model."""
    asked = till.driver.invoke(till.agent(TWO, hooks=[told_to]), "Pay both").checkpoint
    till.send(asked, "One.", by="ann", id="m1")
    till.driver.resume(till.agent(told, hooks=[told_to]), asked, decisions={"a": Reject(), "b": Reject()})


def at_a_stop_that_is_decided_elsewhere(till: Till, told_to: Told) -> None:
    """The next drive has nothing to store before it asks the model, but the message."""
    stops = [Breakpoint("pre_model_call")]
    options: Any = {"gate": False, "breakpoints": stops, "hooks": [told_to]}
    first = till.driver.invoke(till.agent(TWO, told, **options), "Pay both").checkpoint
    asked = till.driver.resume(till.agent(TWO, **options), first).checkpoint
    [item] = asked.pending
    till.send(asked, "One.", by="ann", id="m1")
    till.place.open().decide(item.id, Approve(), by="bob", digest=item.digest)
    till.driver.recover(till.agent(told, hooks=[told_to]), asked.run_id)


def while_a_tool_runs(till: Till, told_to: Told) -> None:
    till.meanwhile = lambda: till.now("One.", by="ann", id="m1")
    till.driver.invoke(
        till.agent(say("", call("pay", {"who": "ann"}, id="a")), told, gate=False, hooks=[told_to]), "Pay"
    )


def while_the_model_is_asked(till: Till, told_to: Told) -> None:
    def answer(request: Any) -> str:
        till.now("One.", by="ann", id="m1")
        return "All done."

    till.driver.invoke(till.agent(answer, told, hooks=[told_to]), "Pay")


def beside_a_decision(till: Till, told_to: Told) -> None:
    asked = till.driver.invoke(till.agent(TWO, hooks=[told_to]), "Pay both").checkpoint
    both = {"a": Reject(), "b": Reject()}
    till.driver.resume(till.agent(told, hooks=[told_to]), asked, decisions=both, input="One.", by="ann")


WAYS = [
    while_it_waits,
    at_a_stop_that_is_decided_elsewhere,
    while_a_tool_runs,
    while_the_model_is_asked,
    beside_a_decision,
]


@pytest.mark.parametrize("comes", WAYS)
def test_it_is_told_once_before_the_model_reads_it(till: Till, comes: Callable[[Till, Told], None]) -> None:
    """The driver of the run hears of it; the log and the timeline have the same."""
    told_to = Told()
    comes(till, told_to)
    store = till.place.open()
    [branch] = store.branches()
    [event] = [each for each in replay(store, branch.id) if isinstance(each, MessageAdded)]
    id = None if comes is beside_a_decision else "m1"
    assert (event.message.text, event.message_id, event.by and event.by.id) == ("One.", id, "ann")
    assert told_to.keys == [event.key]
    assert told_to.types[told_to.types.index("message_added") :][:3] == ["message_added", "checkpoint", "model_started"]
    [entry] = timeline(store, branch.id).query("message_added")
    assert (entry.at, entry.event) == (event.at, event.id)
    assert entry.facts == {"by": "ann"} | ({} if id is None else {"id": id})


def test_of_several_each_is_told_once(till: Till) -> None:
    def answer(request: Any) -> str:
        till.now("One.")
        till.now("Two.", by="ann")
        return "Wait."

    def last(request: Any) -> str:
        till.now("Three.")
        return "All done."

    told_to = Told()
    till.driver.invoke(till.agent(answer, last, told, hooks=[told_to], input_guardrails=[polite]), "Pay")
    store = till.place.open()
    [branch] = store.branches()
    events = [each for each in replay(store, branch.id) if isinstance(each, MessageAdded)]
    assert [each.message.text for each in events] == ["One.", "Two.", "Three."]
    assert told_to.keys == [each.key for each in events]


# Who looks at it


@guardrail
def polite(value: Any) -> Any:
    """Refuse what is rude, and put stars where a name is."""
    if "fool" in str(value):
        return Refuse("No.", code="rude")
    return Transform(str(value).replace("ann", "***")) if "ann" in str(value) else None


@pytest.mark.parametrize("code", [True, False], ids=["agent", "store"])
def test_input_guardrails_look_at_each(till: Till, code: bool) -> None:
    def send(text: str) -> None:
        if code:
            till.driver.call(agent, "send", asked, text)
        else:
            till.place.open().send(asked.run_id, text)

    agent = till.agent(TWO, told, input_guardrails=[polite])
    asked = till.driver.invoke(agent, "Pay both").checkpoint
    send("Not ann.")
    send("Not bo.")
    result = till.driver.resume(agent, asked, decisions={"a": Reject(), "b": Reject()})
    assert str(result.output).endswith("| Not ***. | Not bo.")

    agent = till.agent(TWO, told, input_guardrails=[polite])
    asked = till.driver.invoke(agent, "Pay both").checkpoint
    send("You fool.")
    with pytest.raises(GuardrailRefused):
        till.driver.resume(agent, asked, decisions={"a": Reject(), "b": Reject()})
    assert "fool" not in str(till.place.open().head(asked.run_id)[1].messages)


def test_guardrails_look_at_one_that_came_while_the_model_was_asked(till: Till) -> None:
    def answer(request: Any) -> str:
        till.now("Ask ann.")
        till.now("Ask bo.")
        return "All done."

    result = till.driver.invoke(till.agent(answer, told, input_guardrails=[polite]), "Pay")
    assert result.output == "Ask ***. | Ask bo."


# Who wrote it


LEAD = Approval(not_requester=True)


def test_who_wrote_may_not_approve_what_waits_already(till: Till) -> None:
    agent = till.agent(TWO, told, gate=LEAD)
    asked = till.driver.invoke(agent, "Pay both", requester="rita").checkpoint
    [first, second] = asked.pending
    till.send(asked, "Pay bo first.", by="ann")
    store = till.place.open()
    for item in (first, second):
        with pytest.raises(NotAnApprover):
            store.decide(item.id, Approve(), by="ann", digest=item.digest)
        with pytest.raises(NotAnApprover):
            till.driver.resume(agent, asked, decisions={item.id: Approve()}, by="ann")
    assert [level.authors for each in store.pending() for level in each.approval.approvers] == [("ann",)] * 2
    store.decide(first.id, Approve(), by="cid", digest=first.digest)
    result = till.driver.resume(agent, asked, decisions={"b": Approve()}, by="cid")
    assert (result.status, sorted(till.paid)) == ("completed", ["ann", "bo"])


def test_who_wrote_under_an_alias_may_not_approve_and_others_may_approve_all(till: Till) -> None:
    """The requests are listed with who wrote, and are still those of the checkpoint that somebody was shown."""
    people = StoreDirectory(till.place.open())
    people.add(Person(id="ann", aliases=("slack:T1/U0ANN",)))
    agent = till.agent(TWO, told, gate=LEAD)
    asked = till.driver.invoke(agent, "Pay both", requester="rita").checkpoint
    till.send(asked, "Pay bo first.", by="slack:T1/U0ANN")
    with pytest.raises(NotAnApprover):
        till.driver.call(agent, "approve_all", asked, by="ann")
    result = till.driver.call(agent, "approve_all", asked, by="cid")
    assert (result.status, sorted(till.paid)) == ("completed", ["ann", "bo"])


def test_a_vote_that_was_cast_before_counts_no_more_and_an_approval_does(till: Till) -> None:
    agent = till.agent(TWO, told, gate=Approval(needed=2, not_requester=True))
    asked = till.driver.invoke(agent, "Pay both", requester="rita").checkpoint
    store = till.place.open()
    for item, people in zip(asked.pending, (["ann", "bob"], ["ann"]), strict=True):
        for by in people:
            store.decide(item.id, Approve(), by=by, digest=item.digest)
    till.send(asked, "Now.", by="ann")
    waits = till.driver.recover(agent, asked.run_id).checkpoint
    assert (till.paid, len(waits.pending)) == (["ann"], 1)
    for by in ("bob", "cid"):
        result = till.driver.resume(agent, waits, decisions={"b": Approve()}, by=by)
        waits = result.checkpoint
    assert (result.status, till.paid) == ("completed", ["ann", "bo"])


def test_a_message_of_nobody_may_be_anybodys(till: Till) -> None:
    agent = till.agent(TWO, gate=LEAD)
    asked = till.driver.invoke(agent, "Pay both", requester="rita").checkpoint
    till.send(asked, "Pay bo first.")
    with pytest.raises(NotAnApprover):
        till.driver.resume(agent, asked, decisions={"a": Approve()}, by="cid")


@pytest.mark.parametrize("before", [True, False], ids=["asked before", "asked after"])
def test_who_wrote_may_not_approve_what_waits_in_a_nested_run(till: Till, before: bool) -> None:
    """It is sent to the outermost run; where the inner one asks afterwards, it asks for others as well."""

    def inner_reply(request: Any) -> Any:
        if not before:
            till.now("Pay.", by="ann")
        return say("", call("pay", {"who": "bo"}, id="a"))

    inner = till.agent(inner_reply, told, gate=LEAD)
    outer = Agent(
        name="outer",
        model=ScriptedModel([say("", call("till", {"input": "go"}, id="o")), told]),
        tools=[inner.as_tool(name="till", description="Pays.")],
        store=till.place.open(),
    )
    asked = till.driver.invoke(outer, "Pay", requester="rita").checkpoint
    if before:
        till.driver.call(outer, "send", asked, "Pay.", by="ann")
    [item] = till.place.open().head(asked.run_id)[1].pending
    with pytest.raises(NotAnApprover):
        till.place.open().decide(item.id, Approve(), by="ann", digest=item.digest)
    with pytest.raises(NotAnApprover):
        till.driver.resume(outer, asked, decisions={item.id: Approve()}, by="ann")
    result = till.driver.resume(outer, asked, decisions={item.id: Approve()}, by="cid")
    assert (result.status, till.paid) == ("completed", ["bo"])
    assert str(result.output).endswith("| Pay.")


class Lost(BaseException):
    """A worker that is gone."""


@pytest.mark.parametrize("nested", [False, True], ids=["outermost", "nested"])
@pytest.mark.parametrize("error", [ValueError("no"), Lost()], ids=["failed", "outcome unknown"])
def test_who_wrote_while_a_call_ran_may_not_let_it_run_again(
    till: Till, nested: bool, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A human is asked about the call once more when it has failed, or when nobody knows what it did."""
    store = till.place.open()
    tries = [error]

    @tool(requires_approval=LEAD, on_failure="human")
    def wire() -> str:
        """Wire."""
        till.now("More.", by="ann")
        raise tries.pop()

    def agent(model: list[Any]) -> Agent[Any, str]:
        inner = Agent[Any, str](name="wirer", model=ScriptedModel([say("", call("wire", id="a"))]), tools=[wire])
        if not nested:
            return Agent(name="outer", model=ScriptedModel(model), tools=[wire], store=store)
        return Agent(
            name="outer", model=ScriptedModel(model), tools=[inner.as_tool(name="wire", description="W.")], store=store
        )

    args = {"input": "go"} if nested else {}
    asked = till.driver.invoke(agent([say("", call("wire", args, id="o"))]), "Wire", requester="rita").checkpoint
    with suppress(Lost):
        till.driver.resume(agent([]), asked, approved=True, by="cid")
    later = store.clock() + 3600
    monkeypatch.setattr(store, "clock", lambda: later)
    till.driver.recover(agent([]), asked.run_id) if isinstance(error, Lost) else None
    [item] = [each.approval for each in store.pending()]
    assert item.why == ("outcome_unknown" if isinstance(error, Lost) else "failed")
    assert [level.authors for level in item.approvers] == [("ann",)]
    for by in ("ann", "rita"):
        with pytest.raises(NotAnApprover):
            store.decide(item.id, Approve(), by=by, digest=item.digest)
    assert store.decide(item.id, Approve(), by="cid", digest=item.digest).status == "decided"


# Refusals


def test_a_message_of_one_id_is_stored_once(till: Till) -> None:
    asked = till.driver.invoke(till.agent(TWO), "Pay both").checkpoint
    for _ in range(2):
        till.send(asked, "More.", by="ann", id="m1")
    before = till.place.open().head(asked.run_id)[1]
    assert [each.id for each in before.journal if isinstance(each, Added)] == ["m1"]
    assert "message m1" in till.refused(InvalidDecision, asked, "Other.", by="ann", id="m1")
    till.refused(InvalidDecision, asked, "More.", by="bob", id="m1")
    result = till.driver.resume(till.agent(told), asked, decisions={"a": Reject(), "b": Reject()})
    assert str(result.output).endswith("| More.")
    till.send(asked, "More.", by="ann", id="m1")


def test_a_run_keeps_so_many_that_its_model_has_not_read(till: Till, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sender has more places than are left for others, and there is room again once the model has read them."""
    monkeypatch.setattr(room, "MOST", 10)
    asked = till.driver.invoke(till.agent(TWO), "Pay both").checkpoint
    for number in range(5):
        till.send(asked, "More.", by="ann", id=f"m{number}")
    error = till.refused(TooManyMessages, asked, by="ann")
    assert f"run {asked.run_id} has 5 messages that its model has not read yet, 5 of them of ann" in error
    assert till.send(asked, "More.", by="ann", id="m4").run_id == asked.run_id  # it is stored already
    till.send(asked, "More.")
    till.send(asked, "More.")
    assert "7 messages that its model has not read yet, 2 of them of nobody" in till.refused(TooManyMessages, asked)
    till.send(asked, "More.", by="bob")
    till.refused(TooManyMessages, asked, by="bob")
    till.send(asked, "More.", by="eve")
    till.refused(TooManyMessages, asked, by="zoe")
    result = till.driver.resume(till.agent(told, TWO, told), asked, decisions={"a": Reject(), "b": Reject()})
    assert str(result.output).count("More.") == 9


def test_one_that_was_read_leaves_its_place_to_another(till: Till, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST", 2)
    asked = till.driver.invoke(till.agent(TWO), "Pay both").checkpoint
    for _ in range(3):
        till.send(asked, "More.", by="ann")
        till.refused(TooManyMessages, asked, by="ann")
        again = till.agent(say("", call("pay", {"who": "ann"}), call("pay", {"who": "bo"})))
        decisions = {item.id: Reject() for item in asked.pending}
        asked = till.driver.resume(again, asked, decisions=decisions).checkpoint


def test_a_run_keeps_no_more_than_so_much_of_them(till: Till, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "LARGEST_UNREAD", 2_000)
    asked = till.driver.invoke(till.agent(TWO), "Pay both").checkpoint
    error = till.refused(TooManyMessages, asked, "x" * 1_000, by="ann")
    assert "would have more than 2,000 characters as JSON, or those of ann more than are left" in error
    till.send(asked, "x" * 500, by="ann")
    till.refused(TooManyMessages, asked, "x" * 500, by="ann")
    till.send(asked, "x" * 100, by="bob")


def test_a_run_that_is_over_takes_none(till: Till) -> None:
    asked = till.driver.invoke(till.agent(TWO), "Pay both").checkpoint
    till.driver.cancel(till.agent(), asked)
    error = till.refused(CheckpointAlreadyResumed, asked)
    assert "begin a run with it on the same thread" in error
    till.refused(CheckpointNotFound, "run_unknown")
    till.refused(CheckpointNotFound, None, thread_id="nobody")


def test_a_run_that_is_being_cancelled_takes_none(till: Till) -> None:
    refused: list[str] = []

    store = till.place.open()

    def stop() -> None:
        [branch] = store.branches()
        Till(SYNC, till.place).agent().cancel(branch.id)
        with pytest.raises(CheckpointAlreadyResumed) as error:
            store.send(branch.id, "More.")
        refused.append(error.value.progress)

    till.meanwhile = stop
    result = till.driver.invoke(till.agent(say("", call("pay", {"who": "ann"}, id="a")), gate=False), "Pay")
    assert (result.status, refused) == ("cancelled", ["running"])


@pytest.mark.parametrize("wrong", [7, [], [1], b"x", object(), None])
def test_what_is_no_message_is_refused(till: Till, wrong: Any) -> None:
    asked = till.driver.invoke(till.agent(TWO), "Pay both").checkpoint
    till.refused(ConfigurationError, asked, wrong)
    with pytest.raises(InvalidDecision):
        till.place.open().send(asked.run_id, wrong)
    for options in ({"id": ""}, {"id": 7}, {"channel": 7}, {"by": 7}):
        till.refused(InvalidDecision, asked, **options)
    for options in ({"id": "\ud800"}, {"id": "m\udfff1"}, {"channel": "\ud800"}):
        assert "lone surrogate" in till.refused(InvalidDecision, asked, **options)
    till.refused(ConfigurationError, None)
    till.refused(ConfigurationError, asked, thread_id="t")


@pytest.mark.parametrize("empty", ["", [{"type": "text", "text": ""}], [{"type": "text", "text": ""}] * 2])
def test_a_message_that_says_nothing_is_refused(till: Till, empty: Any) -> None:
    asked = till.driver.invoke(till.agent(TWO), "Pay both").checkpoint
    assert "the message is empty" in till.refused(InvalidDecision, asked, empty, by="ann")
    if empty == "":
        with pytest.raises(InvalidDecision, match="the message is empty"):
            till.place.open().send(asked.run_id, "")
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    for said in (" ", "\ud800", {}, [{"type": "text", "text": ""}, image]):
        till.send(asked, said, by="ann")


def test_an_id_that_nobody_knows_is_told_apart_from_that_of_a_run(till: Till) -> None:
    """A run takes a message by its id, and goes on from a checkpoint."""
    agent = till.agent(TWO)
    asked = till.driver.invoke(agent, "Pay both").checkpoint
    told = "the store knows no run, branch or checkpoint run_nope"
    assert told in till.refused(CheckpointNotFound, "run_nope")
    for act in ("cancel", "pause", "approve_all"):
        with pytest.raises(CheckpointNotFound, match=told):
            till.driver.call(agent, act, "run_nope")
    with pytest.raises(CheckpointNotFound, match="that is the id of a run; store"):
        till.driver.resume(agent, asked.run_id, approved=True)
    with pytest.raises(CheckpointNotFound, match="knows no checkpoint ckpt_nope"):
        till.driver.resume(agent, "ckpt_nope", approved=True)


def test_a_branch_of_the_checkpoint_that_is_returned_begins_without_the_message(till: Till) -> None:
    """It is stored behind that checkpoint: to go on from there takes it up, and a fork begins before it."""
    asked = till.driver.invoke(till.agent(TWO), "Pay both").checkpoint
    sent = till.send(asked, "More.", by="ann")
    no = {item.id: Reject() for item in sent.pending}
    fork = till.driver.fork(till.agent(), sent)
    apart = till.driver.resume(till.agent(told), fork, decisions={item.id: Reject() for item in fork.pending})
    assert "More." not in str(apart.output)
    assert str(till.driver.resume(till.agent(told), sent, decisions=no).output).endswith("| More.")


def test_a_graph_has_no_conversation_to_send_a_message_to(till: Till) -> None:
    builder = StateGraph(Job, name="works")
    builder.add_node("till", till.agent(TWO, told), input=lambda state: "Pay", output="log")
    builder.add_edge(START, "till")
    builder.add_edge("till", END)
    works: Any = builder.compile(store=till.place.open())
    asked = till.driver.call(works, "invoke", {}).checkpoint
    before = till.place.lines()
    with pytest.raises(ConfigurationError, match="graph 'works'"):
        till.driver.call(works, "send", asked, "More")
    assert till.place.lines() == before


def test_a_team_has_no_conversation_either_and_its_handoffs_have_one(till: Till) -> None:
    team: Any = Orchestrator([till.agent(TWO, told)], name="team", store=till.place.open())
    asked = till.driver.call(team, "run_agent", "till", "Pay").checkpoint
    with pytest.raises(ConfigurationError, match="graph 'team'"):
        till.driver.call(team, "send", asked, "More")

    desk = Agent[Any, str](
        name="desk",
        model=ScriptedModel([call("transfer_to_till")]),
        handoffs=[till.agent(TWO, told)],
        store=MemoryStore(),
    )
    waits = till.driver.invoke(desk, "Pay").checkpoint
    till.driver.call(desk, "send", waits, "More.", by="ann")
    result = till.driver.resume(desk, waits, decisions={"a": Approve(), "b": Reject()})
    assert str(result.output).endswith("| More.") and till.paid == ["ann"]


def test_a_run_inside_a_call_takes_none(till: Till) -> None:
    """Its checkpoint is a part of the outermost run: the message is sent to that one."""
    inner = till.agent(TWO, told)
    outer = Agent[Any, str](
        name="outer",
        model=ScriptedModel([say("", call("till", {"input": "go"}, id="o")), told]),
        tools=[inner.as_tool(name="till", description="Pays.")],
        store=till.place.open(),
    )
    asked = till.driver.invoke(outer, "Pay").checkpoint
    [inside] = asked.nested
    for at, error in ((inside, CheckpointUntrusted), (inside.id, CheckpointNotFound)):
        with pytest.raises(error):
            till.driver.call(outer, "send", at, "More.")


# At a terminal


def test_a_message_is_sent_at_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 0 for one that is stored, 1 for one that is refused, 2 for what is none."""
    url = f"sqlite:///{tmp_path}/runs.db?synchronous=off"
    with SQLiteStore(f"{tmp_path}/runs.db", synchronous="OFF") as store:
        agent = Agent(
            name="till", model=ScriptedModel([say("", call("gated", id="a")), told]), tools=[gated], store=store
        )
        asked = agent.invoke("Pay").checkpoint

        def send(*given: str, run: str = asked.run_id) -> tuple[int, str, str]:
            status = command(["message", run, *given, "--store", url])
            said = capsys.readouterr()
            return status, " ".join(said.out.split()), said.err

        told_so = f"Run {asked.run_id} has the message. The model reads it with its next call."
        assert send("One.", "--by", "ann", "--key", "k") == (0, told_so, "")
        status, said, _ = send("One.", "--by", "ann", "--key", "k", "--json")
        document = {"run_id": asked.run_id, "branch_id": asked.run_id, "status": "suspended"}
        assert (status, json.loads(said)) == (0, document)
        monkeypatch.setattr("sys.stdin", io.StringIO("Two."))
        assert send("-", run=asked.pending[0].id)[0] == 0
        for wrong in (("",), ("Three.", "--by", "")):
            assert send(*wrong)[0] == 2
        status, _, complaint = send("Other.", "--by", "ann", "--key", "k")
        assert status == 1 and "message k" in complaint
        assert send("Three.", run="run_unknown")[0] == 1
        assert (
            agent.resume(asked, approved=False).output == "A human rejected this call, so it was not run. | One. | Two."
        )
        status, _, complaint = send("Three.")
        assert status == 1 and "has ended" in complaint
        senders = [(each.by and each.by.id, each.channel) for each in store.audit() if each.kind == "message"]
        assert senders == [("ann", "cli"), (login_name(), "cli")]


# At random


@pytest.mark.parametrize("seed", range(6))
def test_each_message_is_read_once_and_in_order_whatever_happens_between(till: Till, seed: int) -> None:
    """Messages before each decision, while models and tools run, and workers that are lost at random."""
    dice, sent, read = random.Random(seed), [], []

    def send() -> None:
        for _ in range(dice.randrange(3)):
            sent.append(f"m{len(sent)}")
            till.now(sent[-1], by=dice.choice(["ann", "bob", None]))

    def reply(request: Any) -> Any:
        read[:] = [message.text for message in request.messages if message.role == "user"][1:]
        send() if len(sent) < 12 else None
        if dice.random() < 0.3:
            raise Lost
        if request.messages[-1].role == "user" and dice.random() < 0.5:
            return "Done."
        return TWO if len(request.messages) < 20 else "Done."

    till.meanwhile = send
    try:
        checkpoint = till.driver.invoke(till.agent(*[reply] * 30), "Pay").checkpoint
    except Lost:
        [branch] = till.place.open().branches()
        checkpoint = till.place.open().head(branch.id)[1]
    for _ in range(40):
        if checkpoint.ended:
            break
        try:
            if checkpoint.pending:
                send()
                answer = dice.choice([Approve(), Reject(), Respond(content="ok")])
                ids = {checkpoint.pending[0].id: answer}
                checkpoint = till.driver.resume(till.agent(*[reply] * 30), checkpoint, decisions=ids).checkpoint
            else:
                checkpoint = till.driver.resume(till.agent(*[reply] * 30), checkpoint).checkpoint
        except Lost:
            checkpoint = till.place.open().head(checkpoint.run_id)[1]
    assert checkpoint.ended == "completed"
    assert read == sent == [message.text for message in checkpoint.messages if message.role == "user"][1:]


class Between(Around):
    """Something happens before a message is left for whoever drives the run."""

    happens: Callable[[], object]

    def append(self, change: Append) -> Branch:
        if change.holder is not None:
            self.happens()
        return super().append(change)


def test_of_two_at_one_moment_both_are_stored(till: Till) -> None:
    asked = till.driver.invoke(till.agent(TWO), "Pay both").checkpoint
    store, others = Between(till.place.open()), ["One.", "Two."]
    store.happens = lambda: till.now(others.pop(0)) if others else None
    till.driver.call(till.agent(store=store), "send", asked, "Three.")
    journal = till.place.open().head(asked.run_id)[1].journal
    assert [each.message.text for each in journal if isinstance(each, Added)] == ["One.", "Two.", "Three."]


def test_one_message_that_two_send_at_one_moment_is_stored_once(till: Till) -> None:
    asked = till.driver.invoke(till.agent(TWO), "Pay both").checkpoint
    store, others = Between(till.place.open()), ["More."]
    store.happens = lambda: till.now(others.pop(), id="m1", by="ann") if others else None
    sent = till.driver.call(till.agent(store=store), "send", asked, "More.", id="m1", by="ann")
    assert [each.id for each in sent.journal if isinstance(each, Added)] == ["m1"]
    assert len([each for each in till.place.open().audit() if each.kind == "message"]) == 1


def test_a_store_that_contradicts_itself_is_an_error(till: Till) -> None:
    asked = till.driver.invoke(till.agent(TWO), "Pay both").checkpoint

    def refuse() -> None:
        raise Behind

    store = Between(till.place.open())
    store.happens = refuse
    with pytest.raises(StoreError, match="says that it has changed"):
        till.driver.call(till.agent(store=store), "send", asked, "More.")


def test_an_answer_that_guardrails_have_not_seen_stays_nowhere(till: Till) -> None:
    """A message that comes before they look lets no answer past them."""

    @guardrail
    def looks(value: Any) -> Any:
        """Refuse all."""
        return Refuse("No.", code="no")

    agent = till.agent("Secret.", output_guardrails=[looks], breakpoints=[Breakpoint("pre_output_guardrails")])
    for ends in ("cancelled", "refused"):
        stopped = till.driver.invoke(
            till.agent("Secret.", output_guardrails=[looks], breakpoints=[Breakpoint("pre_output_guardrails")]), "Pay"
        ).checkpoint
        till.send(stopped, "More.")
        if ends == "cancelled":
            till.driver.cancel(agent, stopped)
        else:
            with pytest.raises(GuardrailRefused):
                till.driver.resume(agent, stopped)
        ended = till.place.open().head(stopped.run_id)[1]
        assert [message.text for message in ended.messages] == ["Pay", "More."]
