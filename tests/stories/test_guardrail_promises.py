"""Stories of guardrails, as Directive promises them and where it fails to keep that.

D29: they are retried on their own error, then fail closed; an input may be changed; a failure is typed; the list of a call stands
in for the defaults, and an empty one disables. D23 is what a skip does there: the answer goes out, and the guardrails are bypassed.
Every story is told by both drivers, streamed and not, on both stores.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from drivers import Driver, outline, rows
from refund_desk import Desk
from stop_scenes import EVERY

from phronomy import (
    Agent,
    AgentChanged,
    Approve,
    Breakpoint,
    GuardrailFailed,
    GuardrailRefused,
    InvalidDecision,
    Skip,
)
from phronomy.guardrails.guardrail import MaxLength, RedactPatterns, Refuse, RefusePatterns, Transform, guardrail
from phronomy.observability.events import replay
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.unmeasured

CARD = "4111 1111 1111 1111"
HIDE = RedactPatterns([r"\b\d{4}(?: \d{4}){3}\b"])
REFUND = call("refund", {"order": 1042, "amount": 80.0}, id="call_9")


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    return request.param  # type: ignore[no-any-return]


def test_every_promise_has_a_story() -> None:
    """Each promise is named by a story that every driver tells."""
    told: set[str] = set()
    for node in ast.parse(Path(__file__).read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found = re.findall(r"\bD\d\d\b|\bW\d+\b", ast.get_docstring(node) or "")
            assert not found or "driver" in {argument.arg for argument in node.args.args}
            told.update(found)
    assert told == {"D23", "D26", "D29", "W7"}


def at_most_50(args: dict[str, Any]) -> Transform | None:
    return Transform({**args, "amount": 50.0}) if args["amount"] > 50 else None


def test_a_card_number_reaches_neither_the_model_nor_the_next_run(driver: Driver, store: Store) -> None:
    """D29: an input guardrail may change the input; the original is kept."""
    # Given a desk that hides card numbers
    desk = Desk(driver, store, ["Noted.", "Hello again."], input_guardrails=[HIDE])
    # When somebody writes theirs
    result = driver.invoke(desk.agent, f"My card is {CARD}", thread_id="ann")
    # Then the model reads none, and what was written is kept with the run
    assert outline(result) == ["user: My card is [redacted]", "assistant: Noted."]
    assert result.checkpoint.original_input == f"My card is {CARD}"
    # And the conversation goes on without it
    driver.invoke(desk.agent, "Hello", thread_id="ann")
    assert [message.text for message in desk.model.requests[1].messages] == [
        "My card is [redacted]",
        "Noted.",
        "Hello",
    ]


def test_a_question_that_is_not_allowed_is_refused_with_words_for_who_asked(driver: Driver, store: Store) -> None:
    """D29: a typed error with a code, the guardrail and a message for the user; the list of a call stands in for the defaults."""
    # Given a desk that gives no legal advice
    no_advice = RefusePatterns([r"(?i)\bsue\b"], "We cannot help with legal questions.", code="legal", name="no_advice")
    desk = Desk(driver, store, ["Of course."], input_guardrails=[no_advice])
    # When somebody asks for some
    with pytest.raises(GuardrailRefused) as refused:
        driver.invoke(desk.agent, "Can I sue you?", thread_id="ann")
    # Then no model is asked, and the error has what a program and a user need
    assert (refused.value.code, refused.value.guardrail, refused.value.stage) == ("legal", "no_advice", "input")
    assert refused.value.user_message == "We cannot help with legal questions."
    assert (refused.value.result.status, desk.model.requests) == ("rejected", [])
    # And an empty list lets the same question through, on a thread that is free
    assert driver.invoke(desk.agent, "Can I sue you?", thread_id="ann", input_guardrails=[]).output == "Of course."


def test_an_answer_that_must_not_go_out_goes_out_nowhere(driver: Driver, store: Store) -> None:
    """D23, W7: neither a stream nor a skip nor whoever lets the run go on gets past the guardrails of the answer."""
    # Given an answer that a guardrail refuses, and a run that stops before it is looked at
    leak = f"The card on file is {CARD}."
    refuse = RefusePatterns([CARD], "I cannot tell you that.")
    desk = Desk(driver, store, [leak] * 3, output_guardrails=[refuse])
    at = [Breakpoint("pre_output_guardrails")]
    # When somebody skips that
    stopped = driver.invoke(desk.agent, "Which card?", thread_id="ann", breakpoints=at).checkpoint
    skipped = driver.resume(desk.agent, stopped, decisions={stopped.pending[0].id: Skip()})
    # Then the run ends there, with no answer
    assert (skipped.status, skipped.output, outline(skipped)) == ("skipped", None, ["user: Which card?"])
    # When somebody lets it go on, or nobody stops it
    stopped = driver.invoke(desk.agent, "Which card?", thread_id="bob", breakpoints=at).checkpoint
    for act in (
        lambda: driver.resume(desk.agent, stopped),
        lambda: driver.invoke(desk.agent, "Which card?", thread_id="cid"),
    ):
        with pytest.raises(GuardrailRefused, match="refused the output") as refused:
            act()
        # Then it is refused, and in no conversation, output or event
        assert (refused.value.result.output, outline(refused.value.result)) == (None, ["user: Which card?"])
        told = [event.model_dump_json() for event in replay(store, refused.value.result.run_id)]
        assert not any(CARD in text for text in told)


def test_guardrails_come_before_the_human_and_again_after_an_edit(driver: Driver, store: Store) -> None:
    """D26: the guardrails of the call, then the approval; what the human edits is looked at in the same way."""
    # Given a desk whose refunds are at most 50 euros, and need an approval
    desk = Desk(driver, store, [REFUND, "done"], tool_guardrails=[driver.function(at_most_50)])
    # When the model wants 80
    stopped = driver.invoke(desk.agent, "Refund order 1042").checkpoint
    # Then the human is shown 50
    [item] = stopped.pending
    assert item.args == {"order": 1042, "amount": 50.0}
    # And cannot make it more, which changes nothing
    before = rows(store)
    with pytest.raises(InvalidDecision, match="would be changed by at_most_50"):
        driver.resume(desk.agent, stopped, decisions={item.id: Approve(args={"order": 1042, "amount": 90.0})})
    assert (rows(store), desk.done) == (before, [])
    # But may make it less
    result = driver.resume(desk.agent, stopped, decisions={item.id: Approve(args={"order": 1042, "amount": 20.0})})
    assert (result.output, desk.done) == ("done", [("refund", 1042, 20.0)])


def test_a_guardrail_that_is_out_of_order_lets_nothing_through(driver: Driver, store: Store) -> None:
    """D29: retried on its own error, then a typed failure; the run is not lost, and goes on once the guardrail works."""
    # Given a guardrail whose service is away
    away, asked = [True], []

    def moderated(text: str) -> Refuse | None:
        asked.append(text)
        if away[0]:
            raise ConnectionError("the service is away")
        return None

    rail = guardrail(retries=2, retry_wait=0)(driver.function(moderated))
    desk = Desk(driver, store, ["Hello."], output_guardrails=[rail])
    # When the desk answers
    with pytest.raises(GuardrailFailed) as failed:
        driver.invoke(desk.agent, "Hello")
    # Then the answer is kept back after three attempts
    assert (failed.value.guardrail, failed.value.stage, asked) == ("moderated", "output", ["Hello."] * 3)
    # And goes out once the service is back: the model is not asked for it again
    away[0] = False
    assert failed.value.checkpoint is not None
    assert driver.resume(desk.agent, failed.value.checkpoint).output == "Hello."
    assert len(desk.model.requests) == 1


def test_a_release_without_the_guardrail_does_not_send_what_it_has_not_seen(driver: Driver, store: Store) -> None:
    """An answer that waits for its guardrails is no answer for an agent that has none."""
    # Given a run that stopped before its answer was looked at
    desk = Desk(driver, store, ["Hello."], output_guardrails=[MaxLength(100)])
    stopped = driver.invoke(desk.agent, "Hello", breakpoints=[Breakpoint("pre_output_guardrails")]).checkpoint
    # When a release without guardrails goes on with it
    release: Agent[Any, str] = Agent(name="desk", model=ScriptedModel([]), tools=desk.agent.tools, store=store)
    with pytest.raises(AgentChanged) as changed:
        driver.resume(release, stopped)
    # Then it is told why not, and nothing has happened
    assert changed.value.changes == ("guardrails were to look at the output, and there are none",)
    assert driver.resume(desk.agent, stopped).output == "Hello."
