"""What a user says beside a decision: part of the log, read by the model after the results of the calls."""

from __future__ import annotations

from typing import Any

import pytest
from drivers import Driver, decide_first, outline
from places import Place
from pydantic import BaseModel

from phronomy import Agent, Approve, Breakpoint, Checkpoint, Message, Reject, Respond, tool
from phronomy.errors import (
    AgentChanged,
    ApprovalExpired,
    CheckpointAlreadyResumed,
    ConfigurationError,
    DecisionError,
    GuardrailRefused,
    InvalidDecision,
    ModelError,
    NothingDecided,
    RunBusy,
)
from phronomy.graph import END, START, StateGraph
from phronomy.guardrails.guardrail import Refuse, Transform, guardrail
from phronomy.records.calls import Added
from phronomy.records.messages import Conversation
from phronomy.rules.added_messages import without_unguarded
from phronomy.testing import ScriptedModel, call, say

pytestmark = pytest.mark.worlds(2)


class Job(BaseModel):
    """What a graph works on."""

    log: str = ""


TWO = say("", call("pay", {"who": "ann"}, id="a"), call("pay", {"who": "bo"}, id="b"))


def told(request: Any) -> str:
    """All that the model reads after its calls."""
    last = max(place for place, message in enumerate(request.messages) if message.role == "assistant")
    return " | ".join(message.text for message in request.messages[last + 1 :])


class Till:
    """Pays whom it is told to, each when somebody has approved it."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.paid: list[str] = []
        self.asked_with: list[Any] = []
        self.now = 1_700_000_000.0

    def open(self) -> Any:
        return self.place.open(clock=lambda: self.now)

    def agent(self, *replies: Any, more: Any = (), **options: Any) -> Agent[Any, str]:
        """The agent as a process of its own makes it."""

        def pay(who: str) -> str:
            """Pay somebody."""
            self.paid.append(who)
            return f"paid {who}"

        def instructions(input: Any) -> str:
            self.asked_with.append(input)
            return "Pay."

        gated = tool(requires_approval=True, approval_timeout=600.0)(self.driver.function(pay))
        options = {"store": self.open(), "instructions": self.driver.function(instructions), **options}
        return Agent(name="till", model=ScriptedModel([*replies]), tools=[gated, *more], **options)

    def asked(self, agent: Agent[Any, str], **options: Any) -> Checkpoint:
        """A run that waits."""
        checkpoint: Checkpoint = self.driver.invoke(agent, "Pay both", **options).checkpoint
        assert checkpoint.status == "suspended"
        return checkpoint

    def refused(self, error: Any, agent: Any, at: Any, **options: Any) -> str:
        """What the error says, of a resume that changes nothing."""
        before = self.place.lines()
        with pytest.raises(error) as refused:
            self.driver.resume(agent, at, **options)
        assert self.place.lines() == before
        return str(refused.value)


@pytest.fixture
def till(driver: Driver, place: Place) -> Till:
    return Till(driver, place)


# Where it stands


@pytest.mark.product
def test_it_stands_after_the_results_and_waits_for_those_that_are_undecided(till: Till) -> None:
    """Each step is taken by another process."""
    asked = till.asked(till.agent(TWO))
    first = till.driver.resume(
        till.agent(), asked, decisions={"a": Approve()}, input="And tell them so.", by="ada"
    ).checkpoint
    assert (till.paid, [item.call_id for item in first.pending]) == (["ann"], ["b"])
    assert (len(first.messages), [each.message.text for each in first.added]) == (2, ["And tell them so."])
    assert [each.by.id for each in first.added if each.by] == ["ada"]
    stored = till.open().load(first.id)
    assert (stored, Checkpoint.model_validate_json(first.model_dump_json())) == (first, first)

    result = till.driver.resume(
        till.agent(told), first, decisions={"b": Reject()}, input=[{"type": "text", "text": "Soon."}]
    )

    assert outline(result) == [
        "user: Pay both",
        "assistant:  [pay] [pay]",
        "tool (completed): paid ann",
        "tool (rejected): A human rejected this call, so it was not run.",
        "user: And tell them so.",
        "user: Soon.",
        "assistant: paid ann | A human rejected this call, so it was not run. | And tell them so. | Soon.",
    ]
    ended = result.checkpoint
    assert (ended.added, ended.original_input, set(till.asked_with)) == ((), "Pay both", {"Pay both"})


def test_decide_says_more_too(till: Till) -> None:
    agent = till.agent(say("", call("pay", {"who": "ann"})), told)
    [pending] = till.asked(agent).pending
    result = till.driver.call(agent, "decide", pending.id, Respond(content="by hand"), input={"note": 7})
    assert result.output == 'by hand | {"note":7}'


def test_a_stream_says_more_too(till: Till) -> None:
    agent = till.agent(TWO, told)
    asked = till.asked(agent)
    both = {"a": Approve(), "b": Approve()}
    assert till.driver.watched(agent, asked, 1, decisions=both, input="Thanks.")  # it leaves before a call has run
    result = till.driver.recover(agent, asked.run_id)
    assert (sorted(till.paid), result.output) == (["ann", "bo"], "paid ann | paid bo | Thanks.")


def test_whoever_reads_the_messages_sees_it_where_the_model_read_it(till: Till) -> None:
    """The request that went to the model, and the row that another process reads."""
    agent = till.agent(say("", call("pay", {"who": "ann"})), told)
    result = till.driver.resume(agent, till.asked(agent), approved=True, input="Thanks.")
    assert [message.role for message in agent.spec.model.requests[-1].messages] == ["user", "assistant", "tool", "user"]
    assert till.open().load(result.checkpoint.id).messages == result.messages


def test_where_nothing_waits_it_is_read_next(till: Till) -> None:
    """The model failed, and somebody says something before it is asked again."""
    agent = till.agent(say("", call("pay", {"who": "ann"})), ConnectionError("down"), told)
    asked = till.asked(agent)
    with pytest.raises(ModelError) as failed:
        till.driver.resume(agent, asked, approved=True)
    assert till.driver.resume(agent, failed.value.checkpoint, input="Still there?").output == "paid ann | Still there?"


def test_at_a_breakpoint_it_is_read_once_the_run_goes_on(till: Till) -> None:
    agent = till.agent(say("", call("pay", {"who": "ann"})), told, breakpoints=[Breakpoint("pre_model_call")])
    stopped = till.asked(agent)
    assert "has not answered yet" in till.refused(InvalidDecision, agent, stopped, input="More")
    asked = till.driver.resume(agent, stopped).checkpoint
    stopped = till.driver.resume(agent, asked, approved=True).checkpoint
    assert stopped.pending[0].point == "pre_model_call"
    assert till.driver.resume(agent, stopped, input="More").output == "paid ann | More"


def test_a_handoff_takes_it_along(till: Till) -> None:
    """It is for whoever has the conversation by then, and stops nothing that the handoff would not."""
    other: Agent[Any, str] = Agent(name="desk", model=ScriptedModel([told]), handoffs=[])
    wants = say("", call("pay", {"who": "ann"}, id="a"), call("transfer_to_desk", {}, id="t"))
    agent = till.agent(wants, handoffs=[other], breakpoints=[Breakpoint("pre_agent_run", agents=["desk"])])
    asked = till.asked(agent)
    stopped = till.driver.resume(agent, asked, decisions={"a": Approve()}, input="Hello?").checkpoint
    assert (stopped.speaker, stopped.pending[0].point) == ("desk", "pre_agent_run")
    assert stopped.messages[stopped.handoffs[-1].said].text == "Hello?"
    assert till.driver.resume(agent, stopped).output.endswith("Hello?")


# It is not lost


def test_a_fork_and_a_process_that_was_killed_have_it(till: Till) -> None:
    asked = till.asked(till.agent(TWO))
    first = till.driver.resume(till.agent(), asked, decisions={"a": Approve()}, input="And more.").checkpoint
    agent = till.agent(told, told)
    fork = till.driver.fork(agent, first)
    assert [each.message.text for each in fork.added] == ["And more."]
    assert till.driver.resume(agent, fork, approved=False).output.endswith("| And more.")
    assert till.driver.resume(agent, first, approved=True).output == "paid ann | paid bo | And more."
    assert till.driver.fork(agent, asked).added == ()


class Lost(BaseException):
    """The worker is gone."""


@pytest.mark.parametrize("lost", [False, True], ids=["it-lives", "it-is-lost"])
def test_a_worker_that_is_at_work_is_told(driver: Driver, place: Place, lost: bool) -> None:
    """While a call runs, somebody decides another one, and says more: the worker takes both up, or whoever comes after it."""
    till = Till(driver, place)
    told_of: list[Any] = []

    def slow() -> str:
        """Be slow."""
        [waits] = place_of_run.pending(run_id=run_id[0])
        told_of.append(
            desk.resume(waits.checkpoint_id, decisions={waits.approval.id: Approve()}, input="Hurry.").status
        )
        if lost:
            raise Lost
        return "slow"

    place_of_run = till.open()
    run_id: list[str] = []
    slow_tool = tool(requires_approval=True)(slow)
    wants = say("", call("pay", {"who": "ann"}, id="a"), call("slow", id="s"))
    desk = till.agent(more=[slow_tool], instructions=None) if not driver.is_async else sync_twin(till, slow_tool)
    agent = till.agent(wants, told, more=[slow_tool])
    asked = till.asked(agent)
    run_id.append(asked.run_id)
    if lost:
        with pytest.raises(Lost):
            driver.resume(agent, asked, decisions={"s": Approve()})
        waits = driver.recover(till.agent(more=[slow_tool]), asked.run_id).checkpoint
        assert ([item.why for item in waits.pending], len(waits.added)) == (["outcome_unknown"], 1)
        result = driver.resume(till.agent(told, more=[slow_tool]), waits, decisions={"s": Respond(content="slow")})
    else:
        result = driver.resume(agent, asked, decisions={"s": Approve()})
    assert told_of == ["running"]
    assert (result.output, till.paid) == ("paid ann | slow | Hurry.", ["ann"])


def sync_twin(till: Till, slow: Any) -> Agent[Any, str]:
    """The same agent, for a thread in which no loop runs."""
    return Till(Driver("sync", is_async=False), till.place).agent(more=[slow], instructions=None)


def test_a_run_that_ends_keeps_it_in_the_conversation(till: Till) -> None:
    agent = till.agent(TWO, told)
    first = till.driver.resume(
        agent, till.asked(agent, thread_id="chat"), decisions={"a": Approve()}, input="Stop there."
    ).checkpoint
    cancelled = till.driver.cancel(agent, first)
    assert [message.text for message in cancelled.messages if message.role == "user"] == ["Pay both", "Stop there."]
    result = till.driver.invoke(agent, "What is paid?", thread_id="chat")
    assert result.output.endswith("| Stop there. | What is paid?")


def test_a_rejection_that_ends_the_run_keeps_what_was_said_before(till: Till) -> None:
    three = say("", *(call("pay", {"who": who}, id=who) for who in ("ann", "bo", "cy")))
    agent = till.agent(three, told)
    first = till.driver.resume(agent, till.asked(agent), decisions={"ann": Approve()}, input="Not all.").checkpoint
    ended = till.driver.resume(agent, first, decisions={"bo": Reject(then="end")})
    assert (ended.status, till.paid) == ("rejected", ["ann"])
    assert [message.settlement for message in ended.messages] == [
        *(None, None),
        *("completed", "rejected", "cancelled"),
        None,
    ]
    assert (ended.messages[-1].text, ended.checkpoint.added) == ("Not all.", ())


# Who looks at it first


def guarded(till: Till, **options: Any) -> Agent[Any, str]:
    """An agent whose input is looked at, and which changes or refuses what it should not read."""

    @guardrail
    def polite(input: Any) -> Any:
        seen.append(input)
        if "card" in str(input):
            return Refuse("No cards here.", code="card")
        return Transform("[hidden]") if "secret" in str(input) else None

    seen: list[Any] = []
    till.seen = seen  # type: ignore[attr-defined]
    return till.agent(TWO, told, input_guardrails=[polite], **options)


def test_input_guardrails_look_at_each_before_the_model_does(till: Till) -> None:
    agent = guarded(till)
    asked = till.asked(agent)
    first = till.driver.resume(agent, asked, decisions={"a": Approve()}, input="The secret is 7.").checkpoint
    assert till.seen == ["Pay both"]  # type: ignore[attr-defined]
    result = till.driver.resume(agent, first, decisions={"b": Approve()}, input="Thanks.")
    assert till.seen == ["Pay both", "The secret is 7.", "Thanks."]  # type: ignore[attr-defined]
    assert result.output == "paid ann | paid bo | [hidden] | Thanks."
    ended = result.checkpoint
    assert (ended.original_input, ended.input, ended.unguarded) == ("Pay both", "Pay both", None)


def test_what_they_refuse_ends_the_run_and_is_no_part_of_the_conversation(till: Till) -> None:
    agent = guarded(till)
    both = {"a": Approve(), "b": Approve()}
    with pytest.raises(GuardrailRefused) as refused:
        till.driver.resume(agent, till.asked(agent), decisions=both, input="My card is 4242.")
    result = refused.value.result
    assert (result.status, refused.value.code, sorted(till.paid)) == ("rejected", "card", ["ann", "bo"])
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "tool"]


def test_what_they_have_not_seen_is_no_part_of_it_either(till: Till) -> None:
    agent = guarded(till)
    first = till.driver.resume(agent, till.asked(agent), decisions={"a": Approve()}, input="One.").checkpoint
    cancelled = till.driver.cancel(agent, first)
    assert [message.role for message in cancelled.messages] == ["user", "assistant", "tool", "tool"]
    assert (cancelled.checkpoint.added, cancelled.checkpoint.unguarded) == ((), None)


@pytest.mark.parametrize("point", ["pre_input_guardrails", "pre_output_guardrails"])
def test_a_run_that_ends_where_they_are_about_to_look_keeps_nothing_of_it(till: Till, point: Any) -> None:
    """And a breakpoint before the input is for what the run begins with, not for what is said later."""

    @guardrail
    def looks(value: Any) -> None:
        """Let all through."""

    agent = guarded(till, breakpoints=[Breakpoint(point)], output_guardrails=[looks])
    stopped = till.asked(agent)
    begins = point == "pre_input_guardrails"
    if not begins:
        stopped = till.driver.resume(
            agent, stopped, decisions={"a": Approve(), "b": Approve()}, input="And more."
        ).checkpoint
    assert [item.point for item in stopped.pending] == [point]
    cancelled = till.driver.cancel(agent, stopped)
    roles = [message.role for message in cancelled.messages]
    assert roles == ([] if begins else ["user", "assistant", "tool", "tool", "user"])
    if begins:
        stopped = till.driver.resume(agent, till.asked(agent)).checkpoint
        again = till.driver.resume(agent, stopped, decisions={"a": Approve(), "b": Approve()}, input="And more.")
        assert again.status == "completed" and again.output.endswith("| And more.")


def test_what_needs_no_look_behind_what_does_stays_when_a_run_ends(till: Till) -> None:
    """Another agent may have taken it, one without guardrails."""
    asked = till.asked(guarded(till))
    seen, unseen = (Message(role="user", content=text) for text in ("One.", "Two."))
    behind = Added(message=unseen, at=asked.created_at)
    state = asked.evolve(messages=Conversation((seen,)), unguarded="message", added=(behind,))
    ended = without_unguarded(state)
    assert ([each.text for each in ended.messages], ended.unguarded, ended.added) == (["Two."], None, ())


def test_an_agent_without_guardrails_does_not_go_on_with_what_they_were_to_see(till: Till) -> None:
    agent = guarded(till)
    first = till.driver.resume(agent, till.asked(agent), decisions={"a": Approve()}, input="One.").checkpoint
    told_so = till.refused(AgentChanged, till.agent(TWO, told), first, decisions={"b": Approve()})
    assert "guardrails were to look at the input" in told_so


# Where it makes no sense


def test_where_nobody_would_read_it_it_is_refused(till: Till) -> None:
    agent = till.agent(TWO, told)
    asked = till.asked(agent)
    for decisions in ({"a": Reject(then="end")}, {"b": Approve(), "a": Reject(then="end")}):
        assert "it ends" in till.refused(InvalidDecision, agent, asked, decisions=decisions, input="More")
    till.refused(NothingDecided, agent, asked, input="More")
    for wrong in (7, [], [1], b"x", object()):
        till.refused(ConfigurationError, agent, asked, decisions={"a": Approve()}, input=wrong)
    result = till.driver.resume(agent, asked, decisions={"a": Approve(), "b": Approve()})
    till.refused(CheckpointAlreadyResumed, agent, result.checkpoint, input="More")
    with pytest.raises(DecisionError):
        till.driver.watched(agent, "a new run", 1, input="More")  # type: ignore[arg-type]


def test_an_answer_that_is_there_is_not_taken_back(till: Till) -> None:
    agent = till.agent("All done.", breakpoints=[Breakpoint("post_run")])
    stopped = till.asked(agent)
    assert "it has its answer" in till.refused(InvalidDecision, agent, stopped, input="More")
    assert till.driver.resume(agent, stopped).output == "All done."


def test_a_decision_that_comes_too_late_takes_it_along_unless_the_run_is_over(till: Till) -> None:
    agent = till.agent(TWO, told)
    asked = till.asked(agent)
    till.now += 601
    with pytest.raises(ApprovalExpired) as late:
        till.driver.resume(agent, asked, decisions=decide_first(asked), input="Anyway.")
    assert (late.value.result.output.endswith("| Anyway."), till.paid) == (True, [])

    agent = till.agent(TWO, on_expiry="cancel")
    asked = till.asked(agent)
    till.now += 601
    with pytest.raises(ApprovalExpired) as late:
        till.driver.resume(agent, asked, decisions=decide_first(asked), input="Anyway.")
    assert (late.value.result.status, late.value.result.messages[-1].role) == ("cancelled", "tool")


def test_a_graph_has_no_conversation_to_say_more_in(till: Till) -> None:
    builder = StateGraph(Job, name="works")
    builder.add_node("till", till.agent(TWO, told), input=lambda state: "Pay", output="log")
    builder.add_edge(START, "till")
    builder.add_edge("till", END)
    works: Any = builder.compile(store=till.open())
    asked = till.driver.call(works, "invoke", {}).checkpoint
    assert "update=" in till.refused(ConfigurationError, works, asked, decisions={"a": Approve()}, input="More")


def test_while_the_model_may_be_under_way_it_is_not_taken(driver: Driver, place: Place) -> None:
    """It would answer without having read it."""
    till = Till(driver, place)
    tried: list[type] = []
    store = till.open()

    def answer(request: Any) -> str:
        other = Till(Driver("sync", is_async=False), place).agent(instructions=None)
        [branch] = store.branches()
        with pytest.raises(RunBusy):
            other.resume(store.head(branch.id)[1], input="Wait!")
        tried.append(RunBusy)
        return "Done."

    agent = till.agent(say("", call("pay", {"who": "ann"})), answer)
    result = till.driver.resume(agent, till.asked(agent), approved=True)
    assert (tried, result.output) == ([RunBusy], "Done.")
