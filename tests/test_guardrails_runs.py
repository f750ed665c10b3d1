"""Guardrails in runs: what they let through, change and refuse is so for everybody, whichever way the run goes on.

Told by both drivers, streamed and not. What a guardrail is, and how one is asked, is in `test_guardrails.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import MinLen
from drivers import ASYNC, PATIENCE, SYNC, Around, Driver, outline, rows, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from places import Place, place_of
from pydantic import BaseModel
from selection import scaled
from stop_scenes import EVERY
from test_canary import CARD, Own, Spy, spy

from phronomy import (
    Agent,
    AgentChanged,
    Announcements,
    ApprovalHandlerError,
    Approve,
    AsyncRequired,
    Breakpoint,
    Checkpoint,
    CheckpointAlreadyResumed,
    ConfigurationError,
    GuardrailFailed,
    GuardrailRefused,
    Hold,
    Hooks,
    InvalidDecision,
    MemoryStore,
    NodeFailed,
    OutputError,
    PhronomyError,
    Reject,
    Result,
    Skip,
    SQLiteStore,
    Store,
    ToolContext,
    tool,
)
from phronomy.concurrency import retries
from phronomy.foundation.json_text import canonical
from phronomy.graph import END, START, StateGraph
from phronomy.guardrails import verdict as guarding
from phronomy.guardrails.guardrail import (
    AllowedTools,
    Guardrail,
    GuardrailContext,
    MaxLength,
    Pass,
    RedactPatterns,
    Refuse,
    RefusePatterns,
    Transform,
    guardrail,
)
from phronomy.observability.events import replay
from phronomy.observability.timeline import timeline
from phronomy.testing import ScriptedModel, call, say
from phronomy.testing.crash import Scene, sweep

__all__ = ["spy"]  # a fixture

SECRET = "4111-secret"
BEFORE = Breakpoint("pre_output_guardrails")
"""Where an answer is stored that no guardrail has seen."""


@pytest.fixture(params=EVERY, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each of the two drivers, with a stream and without one."""
    found: Driver = request.param
    return found


def desk(store: Store | None, *replies: Any, **options: Any) -> Agent[Any, Any]:
    """An agent that keeps no place in its script; other processes go on with it."""
    options.setdefault("model", ScriptedModel.by_turn(list(replies or ["fine"])))
    return Agent(name=options.pop("name", "desk"), store=store, **options)


def refusal(act: Callable[[], Any]) -> GuardrailRefused:
    """The error of a run that a guardrail has ended, with its end."""
    with pytest.raises(GuardrailRefused) as caught:
        act()
    assert (caught.value.result.status, caught.value.result.output) == ("rejected", None)
    return caught.value


def failure(act: Callable[[], Any]) -> GuardrailFailed:
    """The error of a run that a guardrail failed in, which can be resumed."""
    with pytest.raises(GuardrailFailed) as caught:
        act()
    assert caught.value.run_id is not None
    return caught.value


def watched(driver: Driver, agent: Agent[Any, Any], at: Any, **options: Any) -> tuple[list[Any], Any]:
    """The events of a stream, and its result, or the error that it ends with."""
    found: list[Any] = []
    stream: Any = (agent.astream if driver.is_async else agent.stream)(at, **options)

    async def main() -> None:
        async for event in stream:
            found.append(event)

    try:
        if driver.is_async:
            run(main())
        else:
            for event in stream:
                found.append(event)
    except PhronomyError as error:
        return found, error
    return found, stream.result


class Seen(Hooks):
    """Keeps all that hooks are told."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.guardrails: list[Any] = []

    def on_event(self, event: Any) -> None:
        self.events.append(event)

    def on_guardrail(self, event: Any) -> None:
        self.guardrails.append(event)


class Told(Announcements):
    """Keeps all that the world is told."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_suspended(self, event: Any) -> None:
        self.events.append(event)

    on_decided = on_completed = on_rejected = on_cancelled = on_suspended


class Switch:
    """A guardrail for whatever it is given, that does as it is set to, and keeps what it looked at."""

    def __init__(self, driver: Driver, name: str = "switch", **options: Any) -> None:
        self.seen: list[Any] = []
        self.contexts: list[GuardrailContext[Any]] = []
        self.says: Callable[[Any], Any] = lambda value: None
        self.rail = guardrail(name=name, **options)(driver.function(self._look))

    def _look(self, value: Any, context: GuardrailContext[Any]) -> Any:
        self.seen.append(value)
        self.contexts.append(context)
        return self.says(value)


def fails(value: Any) -> Any:
    raise ConnectionError(f"away: {value}")


def said(store: Store, run_id: str) -> list[tuple[str, dict[str, str]]]:
    """What the record has of guardrails."""
    return [(event.stage, event.said) for event in replay(store, run_id) if event.type == "guardrail"]


# The input


def test_guardrails_are_asked_in_order_and_the_model_and_the_instructions_see_what_they_left(
    driver: Driver, store: Store
) -> None:
    log: list[Any] = []

    def first(text: str) -> None:
        log.append(("first", text))

    def second(text: str, context: GuardrailContext[Any]) -> Any:
        log.append(("second", text, context.stage, context.agent, context.tool_name, context.deps, context.path))
        log.append([message.text for message in context.messages])
        return Transform("hello [redacted]")

    def third(text: str) -> Any:
        log.append(("third", text))
        return Pass()

    def instructions(text: Any) -> str:
        return f"Asked: {text}"

    rails = [driver.function(each) for each in (first, second, third)]
    agent = desk(store, "fine", input_guardrails=rails, instructions=driver.function(instructions))
    result = driver.invoke(agent, f"hello {SECRET}", thread_id="t", deps=7)

    assert log == [
        ("first", f"hello {SECRET}"),
        ("second", f"hello {SECRET}", "input", "desk", None, 7, ""),
        [f"hello {SECRET}"],
        ("third", "hello [redacted]"),
    ]
    assert outline(result) == ["user: hello [redacted]", "assistant: fine"]
    [request] = agent.model.requests
    assert (request.system, request.messages[0].text) == ("Asked: hello [redacted]", "hello [redacted]")
    assert (result.checkpoint.original_input, result.checkpoint.input) == (f"hello {SECRET}", "hello [redacted]")
    assert said(store, result.run_id) == [("input", {"first": "passed", "second": "transformed", "third": "passed"})]
    driver.invoke(agent, "again", thread_id="t", input_guardrails=[])
    assert [message.text for message in agent.model.requests[-1].messages] == ["hello [redacted]", "fine", "again"]


@pytest.mark.parametrize(
    ("given", "made", "read"),
    [
        ({"q": SECRET}, {"q": "x"}, '{"q":"x"}'),
        ({"q": SECRET}, "as text", "as text"),
        ([{"type": "text", "text": SECRET}], [{"type": "text", "text": "x"}], [{"type": "text", "text": "x"}]),
        ("text", {"q": 5.0}, '{"q":5.0}'),
        ("text", "", ""),
    ],
)
def test_an_input_of_any_form_is_seen_as_it_was_given_and_changed_into_any_other(
    driver: Driver, store: Store, given: Any, made: Any, read: Any
) -> None:
    switch = Switch(driver)

    def says(value: Any) -> Any:
        if isinstance(value, dict | list):
            value.clear()  # its own copy
        return Transform(made)

    switch.says = says
    after = Switch(driver, "after")
    agent = desk(store, input_guardrails=[switch.rail, after.rail])
    result = driver.invoke(agent, given)
    assert after.seen == [made]
    assert result.checkpoint.original_input == given
    assert (result.checkpoint.input, agent.model.requests[0].messages[0].content) == (made, read)
    assert store.load(result.checkpoint.id).input == made


def test_a_refused_input_ends_the_run_and_nobody_goes_on_from_it(driver: Driver, store: Store) -> None:
    after = Switch(driver, "after")
    rails = [RefusePatterns(["secret"], "No secrets, please.", code="private"), after.rail]
    told, seen = Told(), Seen()
    agent = desk(store, input_guardrails=rails, announcements=[told], hooks=[seen])
    driver.invoke(agent, "hello", thread_id="t")
    after.seen.clear()

    error = refusal(lambda: driver.invoke(agent, f"it is {SECRET}", thread_id="t"))

    assert (error.stage, error.guardrail, error.code, error.user_message) == (
        "input",
        "refuse_patterns",
        "private",
        "No secrets, please.",
    )
    ended = error.result.checkpoint
    assert str(error) == f"guardrail 'refuse_patterns' refused the input of run {ended.run_id} (private)"
    assert (after.seen, len(agent.model.requests)) == ([], 1)
    assert outline(error.result) == ["user: hello", "assistant: fine"]
    assert (ended.original_input, ended.refusal and ended.refusal.then) == (f"it is {SECRET}", "end")
    assert store.load(ended.id) == ended
    assert [event.type for event in told.events] == ["completed", "rejected"]
    asked = seen.guardrails[-1]
    assert (asked.said, asked.code, asked.message) == (
        {"refuse_patterns": "refused"},
        "private",
        "No secrets, please.",
    )
    with pytest.raises(CheckpointAlreadyResumed) as over:
        driver.resume(agent, ended)
    assert over.value.result.status == "rejected"

    driver.invoke(agent, "bye", thread_id="t")
    assert [message.text for message in agent.model.requests[-1].messages] == ["hello", "fine", "bye"]


def test_the_list_of_a_call_stands_in_for_that_of_the_agent(driver: Driver, store: Store) -> None:
    refuse = RefusePatterns(["x"])
    agent = desk(store, "x", input_guardrails=[refuse], output_guardrails=[refuse])
    assert refusal(lambda: driver.invoke(agent, "x")).stage == "input"
    assert refusal(lambda: driver.invoke(agent, "x", input_guardrails=[])).stage == "output"
    assert driver.invoke(agent, "x", input_guardrails=(), output_guardrails=[MaxLength(5)]).output == "x"
    assert refusal(lambda: driver.invoke(agent, "yyyyyy", input_guardrails=[MaxLength(5)])).code == "too_long"
    before = rows(store)
    for wrong in (None, refuse, "max_length", [None], [refuse, refuse]):
        with pytest.raises(ConfigurationError, match="output_guardrails"):
            driver.invoke(agent, "y", output_guardrails=wrong)
    assert rows(store) == before


@pytest.mark.parametrize("made", [["a"], [], [{"text": "x"}], 5, None, True])
def test_an_input_that_no_run_can_begin_with_is_a_failure_of_whoever_made_it(
    driver: Driver, store: Store, made: Any
) -> None:
    switch = Switch(driver, "breaks")
    switch.says = lambda value: Transform(made)
    agent = desk(store, input_guardrails=[MaxLength(50), switch.rail, Switch(driver, "after").rail])
    error = failure(lambda: driver.invoke(agent, "go", thread_id="t"))
    assert (error.guardrail, error.stage, len(agent.model.requests)) == ("breaks", "input", 0)
    switch.says = lambda value: None
    assert error.checkpoint is not None
    assert driver.resume(agent, error.checkpoint).output == "fine"


def test_a_run_that_stopped_on_a_changed_input_goes_on_from_it_elsewhere(driver: Driver, place: Place) -> None:
    """Its instructions are made of the changed input, whoever resumes it, and it is not asked about again."""
    switch = Switch(driver)
    switch.says = lambda value: Transform("hello [redacted]")

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    def agent() -> Agent[Any, Any]:
        made = driver.function(lambda text: f"Asked: {text}")
        return desk(place.open(), call("pay"), "fine", tools=[pay], instructions=made, input_guardrails=[switch.rail])

    stopped = driver.invoke(agent(), f"hello {SECRET}").checkpoint
    again = agent()
    result = driver.resume(again, Checkpoint.model_validate_json(stopped.model_dump_json()), approved=True)
    assert (result.output, len(switch.seen)) == ("fine", 1)
    [request] = again.model.requests
    assert (request.system, request.messages[0].text) == ("Asked: hello [redacted]", "hello [redacted]")
    assert result.checkpoint.original_input == f"hello {SECRET}"


# The answer


def traces(driver: Driver, place: Place, answer: str, rails: Any, **options: Any) -> tuple[Any, str]:
    """A run that is streamed and one that is not, with everybody listening: what the stream ends with, and all they were told."""
    seen, told, store = Seen(), Told(), place.open()
    agent = desk(store, answer, output_guardrails=rails, hooks=[seen], announcements=[told], **options)
    events, end = watched(driver, agent, "go", thread_id="t")
    try:
        driver.invoke(agent, "again", thread_id="t")
    except GuardrailRefused as error:
        seen.events.append(error.result.checkpoint)
    heard = [*events, *seen.events, *told.events]
    for branch in store.branches():
        heard += [*replay(store, branch.id), *timeline(store, branch.id), *store.history(branch.head or "")]
    heard += [message for request in agent.model.requests for message in request.messages]
    assert len(heard) > 20
    return end, "\n".join(item.model_dump_json() if hasattr(item, "model_dump_json") else repr(item) for item in heard)


def test_a_refused_answer_goes_to_nobody(driver: Driver, place: Place) -> None:
    """No piece of it, no event, no record, no row, no next run; what it would have looked like is shown first."""
    answer = say(f"it is {SECRET}", provider={"reasoning_content": f"think {SECRET}"})
    end, heard = traces(driver, place, answer, [MaxLength(100)])
    assert isinstance(end, Result)
    assert heard.count(SECRET) > 10
    assert '"type":"text_delta"' not in heard
    before = place.text()
    assert SECRET in before

    with place_of(place.kind, place.folder / "other") as other:
        (place.folder / "other").mkdir()
        end, heard = traces(driver, other, answer, [RefusePatterns(["secret"], "Not that.")])
        assert isinstance(end, GuardrailRefused)
        assert (end.stage, end.user_message, end.result.output) == ("output", "Not that.", None)
        assert outline(end.result) == ["user: go"]
        assert '"guardrail"' in heard
        assert SECRET not in heard
        assert "model_replied" not in heard
        assert "Not that." in other.text()
        assert SECRET not in other.text()


def test_a_changed_answer_is_all_that_anybody_sees_of_it(driver: Driver, place: Place) -> None:
    """What the model put beside the text is left out with it."""
    answer = say(f"it is {SECRET}", provider={"reasoning_content": f"think {SECRET}"})
    end, heard = traces(driver, place, answer, [RedactPatterns(["4111-secret"])])
    assert (end.output, outline(end)) == ("it is [redacted]", ["user: go", "assistant: it is [redacted]"])
    assert heard.count("it is [redacted]") > 10
    assert SECRET not in heard
    assert SECRET not in place.text()


def test_an_answer_that_is_let_through_is_whole_and_without_guardrails_it_comes_in_pieces(
    driver: Driver, store: Store
) -> None:
    answer = say("a long answer of many pieces", provider={"reasoning_content": "hm"})
    kinds = []
    for rails in ([], [MaxLength(100)]):
        events, end = watched(driver, desk(store, answer), "go", output_guardrails=rails)
        kinds.append({event.type for event in events})
        assert end.output == "a long answer of many pieces"
        assert end.messages[-1].provider == {"reasoning_content": "hm"}
    assert kinds[0] - kinds[1] == {"text_delta", "reasoning_delta"}
    assert kinds[1] - kinds[0] == {"guardrail"}


def test_what_is_said_beside_calls_is_no_answer(driver: Driver, store: Store) -> None:
    look = tool(name="look")(driver.function(_look))
    switch = Switch(driver)
    agent = desk(store, say("I will look.", call("look")), "seen", tools=[look], output_guardrails=[switch.rail])
    assert driver.invoke(agent, "go").output == "seen"
    assert switch.seen == ["seen"]
    [context] = switch.contexts
    assert (context.stage, context.tool_name, [message.role for message in context.messages]) == (
        "output",
        None,
        ["user", "assistant", "tool", "assistant"],
    )


def _look() -> str:
    """Look."""
    return "seen"


class Answer(BaseModel):
    """A typed answer."""

    n: int


def test_a_typed_answer_is_read_and_looked_at_as_the_value_that_the_caller_gets(driver: Driver, store: Store) -> None:
    """What is no answer is looked at as text: the model is told of it."""
    switch = Switch(driver)
    agent = desk(store, output_type=Answer, output_retries=1, output_guardrails=[switch.rail])
    assert driver.invoke(agent, "go", model=ScriptedModel(["5?", '{"n": 5}'])).output == Answer(n=5)
    assert switch.seen == ["5?", {"n": 5}]

    switch.seen.clear()
    switch.says = lambda value: Transform('{"n": 9}') if isinstance(value, str) else None
    assert driver.invoke(agent, "go", model=ScriptedModel(["5?"])).output == Answer(n=9)

    assert switch.seen == ["5?", {"n": 9}], "what a guardrail made an answer of is looked at as one"

    switch.says = lambda value: Transform({"n": value["n"] + 1})
    assert driver.invoke(agent, "go", model=ScriptedModel(['{"n": 5}'])).output == Answer(n=6)

    switch.says = lambda value: Transform("nine")  # what it makes of the answer is no answer
    model = ScriptedModel(['{"n": 5}'] * 2)
    with pytest.raises(OutputError):
        driver.invoke(agent, "go", model=model)
    assert [message.text for message in model.requests[1].messages][1] == '"nine"'

    switch.says = lambda value: Refuse("no") if isinstance(value, dict) else None
    error = refusal(lambda: driver.invoke(agent, "go", thread_id="t", model=ScriptedModel(["5?", '{"n": 5}'])))
    assert [line.partition(":")[0] for line in outline(error.result)] == ["user", "assistant", "user"]
    switch.says = lambda text: None
    assert driver.invoke(agent, "go", thread_id="t", model=ScriptedModel(['{"n": 7}'])).output == Answer(n=7)


def test_a_guardrail_that_fails_lets_nothing_through_and_is_asked_again(driver: Driver, store: Store) -> None:
    """About the same answer: the model is not asked again, and what it said is told once it was let through."""
    switch, seen = Switch(driver), Seen()
    agent = desk(store, f"it is {SECRET}", output_guardrails=[switch.rail], hooks=[seen])
    for wrong in (fails, lambda value: True, lambda value: Refuse, lambda value: Transform({"n": 5})):
        switch.says = wrong
        error = failure(lambda: driver.invoke(agent, "go"))
        assert (error.guardrail, error.stage, "secret" in str(error)) == ("switch", "output", False)
        assert error.checkpoint is not None
        assert error.checkpoint.ended is None
        assert [branch.status for branch in store.branches(run_id=error.run_id)] == ["failed"]
        again = failure(lambda error=error: driver.resume(agent, error.checkpoint))  # type: ignore[misc]
        asked = len(agent.model.requests)
        assert "model_replied" not in [event.type for event in seen.events]
        switch.says = lambda value: Transform("it is gone")
        assert again.checkpoint is not None
        result = driver.resume(agent, again.checkpoint)
        assert (result.output, outline(result)) == ("it is gone", ["user: go", "assistant: it is gone"])
        assert len(agent.model.requests) == asked
        assert [event.text for event in seen.events if event.type == "model_replied"] == ["it is gone"]
        assert said(store, result.run_id) == [("output", {"switch": "transformed"})]
        seen.events.clear()


class Naps:
    """Stands in for the clock that guardrails wait by: nothing is slept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept: list[float] = []
        asleep = asyncio.sleep

        async def nap(seconds: float) -> None:
            self.slept.append(seconds)
            await asleep(0)

        monkeypatch.setattr(retries.time, "sleep", self.slept.append)
        monkeypatch.setattr(retries.asyncio, "sleep", lambda seconds: nap(seconds) if seconds else asleep(0))


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Naps:
    return Naps(monkeypatch)


@pytest.mark.parametrize("stage", ["input", "output", "tool"])
def test_a_guardrail_that_raises_is_asked_again_with_backoff_and_then_fails_closed(
    driver: Driver, naps: Naps, stage: str
) -> None:
    ran: list[int] = []

    @tool
    def pay(n: int = 1) -> str:
        """Pay."""
        ran.append(n)
        return "paid"

    switch = Switch(driver, retries=3, retry_wait=1.0)
    rails: dict[str, Any] = {f"{stage}_guardrails": [switch.rail]}
    agent = desk(MemoryStore(), call("pay", {"n": 1}), "fine", tools=[pay], **rails)
    switch.says = fails
    error = failure(lambda: driver.invoke(agent, "go"))
    assert "raised 4 times, in the end ConnectionError" in str(error)
    assert (naps.slept, len(switch.seen)) == ([1.0, 2.0, 4.0], 4)
    assert ran == ([1] if stage == "output" else [])
    answers = iter([fails, fails, lambda value: None])
    switch.says = lambda value: next(answers)(value)  # noqa: PLW0108  # another one for each
    assert error.checkpoint is not None
    assert driver.resume(agent, error.checkpoint).output == "fine"
    assert (naps.slept[3:], ran) == ([1.0, 2.0], [1])


# Calls of tools


class Till:
    """A desk with a till: what is looked at, asked, approved and run goes into a log, in order."""

    def __init__(self, driver: Driver, store: Store | None, n: Any = 7, **options: Any) -> None:
        self.driver = driver
        self.log: list[str] = []
        self.keys: list[tuple[str, ...]] = []
        self.switch = Switch(driver, "limit")
        function = driver.function

        def asks(args: dict[str, Any], context: ToolContext[Any]) -> bool:
            self.log.append(f"gate {args['n']}")
            self.keys.append((context.idempotency_key,))
            return bool(args["n"] < 1000)

        def pay(n: int, context: ToolContext[Any], note: str = "-") -> str:
            """Pay."""
            self.log.append(f"body {n} {note}")
            self.keys.append((context.idempotency_key,))
            return f"paid {n}"

        def look(args: dict[str, Any], context: GuardrailContext[Any]) -> Any:
            self.log.append(f"guardrail {args['n']!r} {args['note']}")
            return self.switch.says(args)

        self.pay = tool(requires_approval=function(asks))(function(pay))
        self.switch.rail = guardrail(name="limit")(function(look))
        replies = options.pop("replies", [call("pay", {"n": n}, id="c1"), "done"])
        options.setdefault("tools", [self.pay])
        self.agent = desk(store, *replies, tool_guardrails=[self.switch.rail], **options)


def less(args: dict[str, Any]) -> Any:
    """At most 50, in whole tens."""
    return Transform({**args, "n": min(args["n"], 50) // 10 * 10})


def test_validated_then_guarded_then_at_a_breakpoint_then_approved_and_what_is_shown_runs(
    driver: Driver, store: Store
) -> None:
    till = Till(driver, store, "77")
    till.switch.says = less
    at = [Breakpoint("pre_tool_call", when=lambda context: context.args == {"n": 50, "note": "-"})]
    stopped = driver.invoke(till.agent, "go", breakpoints=at).checkpoint
    assert till.log == ["guardrail 77 -", "gate 50"]
    [item] = stopped.pending
    assert (item.args, item.why, item.point) == ({"n": 50, "note": "-"}, "approval", "pre_tool_call")
    assert stopped.messages[-1].tool_calls[0].arguments == '{"n": "77"}'

    result = driver.resume(till.agent, stopped, approved=True)

    assert till.log == ["guardrail 77 -", "gate 50", "body 50 -"]
    assert len(set(till.keys)) == 1
    [decision] = result.checkpoint.decisions
    started = next(event for event in replay(store, result.run_id) if event.type == "tool_call_started")
    assert (decision.digest, started.args) == (item.digest, item.args)
    assert said(store, result.run_id) == [("tool", {"limit": "transformed"})]


def test_an_edit_is_judged_by_all_of_it_again_and_refused_where_a_guardrail_would_change_it(
    driver: Driver, store: Store
) -> None:
    till = Till(driver, store, 77)
    till.switch.says = less
    stopped = driver.invoke(till.agent, "go").checkpoint
    [item] = stopped.pending
    edit = lambda n: partial(driver.resume, till.agent, stopped, decisions={item.id: Approve(args={"n": n})})  # noqa: E731
    before = rows(store)
    till.log.clear()
    with pytest.raises(InvalidDecision, match=f"pending {item.id} would be changed by limit"):
        edit(45)()
    with pytest.raises(InvalidDecision, match="not valid"):
        edit("many")()
    till.switch.says = lambda args: Refuse("That is too much.") if args["n"] > 20 else None
    with pytest.raises(InvalidDecision, match="That is too much"):
        edit(30)()
    till.switch.says = fails
    assert failure(edit(10)).run_id == stopped.run_id
    assert rows(store) == before
    till.switch.says = less
    result = edit(20)()
    assert till.log == [
        "guardrail 45 -",
        "gate 40",
        *("guardrail 30 -", "guardrail 10 -"),
        *("guardrail 20 -", "gate 20", "body 20 -"),
    ]
    assert result.messages[2].text.endswith("paid 20")


@pytest.mark.parametrize("then", ["continue", "block", "block_tool", "end"])
def test_a_refused_call_does_not_run_and_says_what_follows(driver: Driver, store: Store, then: Any) -> None:
    again = [call("pay", {"n": 7}, id="c2"), call("pay", {"n": 8}, id="c3")]
    till = Till(driver, store, replies=[call("pay", {"n": 7}, id="c1"), again, "done"])
    refuses = [Refuse("Not 7.", code="seven", then=then)]
    till.switch.says = lambda args: refuses.pop() if refuses else None  # it changes its mind, which a block outlasts
    if then == "end":
        error = refusal(lambda: driver.invoke(till.agent, "go", thread_id="t"))
        assert (error.stage, error.code, error.guardrail, till.log) == ("tool", "seven", "limit", ["guardrail 7 -"])
        assert [message.settlement for message in error.result.messages] == [None, None, "rejected"]
        assert driver.invoke(till.agent, "go", thread_id="t").suspended
        return
    stopped = driver.invoke(till.agent, "go").checkpoint
    assert stopped.messages[2].text == "A guardrail refused this call, so it was not run. Not 7."
    if then == "block_tool":
        assert [message.settlement for message in stopped.messages if message.role == "tool"] == ["rejected"] * 3
        assert (stopped.status, till.log) == ("completed", ["guardrail 7 -"])
        return
    assert [item.args["n"] for item in stopped.pending] == ([8] if then == "block" else [7, 8])
    result = driver.resume(till.agent, stopped, decisions={item.id: Approve() for item in stopped.pending})
    kinds = [message.settlement for message in result.messages if message.role == "tool"]
    assert (result.status, kinds[0], kinds[2]) == ("completed", "rejected", "completed")
    assert kinds[1] == ("rejected" if then == "block" else "completed")
    assert sorted(till.log)[: len(stopped.pending)] == [f"body {item.args['n']} -" for item in stopped.pending]


def test_a_block_holds_whatever_other_guardrails_make_of_the_call(driver: Driver, store: Store) -> None:
    refuses = [Refuse("Not now.", then="block")]
    names: list[str] = []

    def second(args: dict[str, Any]) -> Any:
        names.append("second")
        return refuses.pop() if refuses else None

    till = Till(driver, store, replies=[call("pay", {"n": 77}, id="c1"), call("pay", {"n": 77}, id="c2"), "done"])
    till.switch.says = less
    rails = [till.switch.rail, driver.function(second)]
    result = driver.invoke(till.agent, "go", tool_guardrails=rails)
    assert [message.settlement for message in result.messages if message.role == "tool"] == ["rejected", "rejected"]
    assert (names, [line for line in till.log if "body" in line]) == (["second"], [])


def test_a_call_that_is_refused_for_good_ends_its_siblings_before_they_run(driver: Driver, store: Store) -> None:
    """Whatever the order: the first of them in the record is the one that is told."""
    both = [call("pay", {"n": 1}, id="c1"), call("pay", {"n": 7}, id="c2"), call("pay", {"n": 8}, id="c3")]
    till = Till(driver, store, replies=[both, "done"], max_parallel=3)
    till.switch.says = lambda args: Refuse(f"Not {args['n']}.", then="end") if args["n"] > 6 else None
    error = refusal(lambda: driver.invoke(till.agent, "go"))
    assert [line for line in till.log if "body" in line] == []
    assert [message.settlement for message in error.result.messages[2:]] == ["cancelled", "rejected", "rejected"]
    assert error.user_message in ("Not 7.", "Not 8.")


def test_if_one_call_cannot_be_judged_all_are_judged_anew(driver: Driver, store: Store) -> None:
    """A verdict of an attempt that failed is not half in the record: neither a refusal nor a pass of it counts later."""
    both = [call("pay", {"n": 1}, id="c1"), call("pay", {"n": 2000}, id="c2")]
    till = Till(driver, store, replies=[both, "done"])
    seen = Seen()

    def flaky(args: dict[str, Any]) -> Any:
        return Refuse("no", then="end") if args["n"] == 1 else fails(args)

    till.switch.says = flaky
    error = failure(lambda: driver.invoke(till.agent, "go", thread_id="t"))
    assert error.checkpoint is not None
    assert (error.checkpoint.journal, error.checkpoint.refusal) == ((), None)
    till.switch.says = lambda args: None
    stopped = driver.resume(till.agent, error.checkpoint)
    result = driver.resume(till.agent, stopped.checkpoint, approved=True)
    assert (result.status, result.checkpoint.refusal) == ("completed", None)
    assert said(store, result.run_id) == [("tool", {"limit": "passed"})] * 2
    assert seen.events == []


def test_a_handler_is_asked_about_what_guardrails_left_and_its_edits_are_looked_at(
    driver: Driver, store: Store
) -> None:
    asked: list[Any] = []
    answers: list[Any] = [True, Approve(args={"n": 20}), Approve(args={"n": 45})]

    def handler(name: str, args: dict[str, Any]) -> Any:
        asked.append(args["n"])
        return answers.pop(0)

    till = Till(driver, store, 77, on_approval_required=driver.function(handler))
    till.switch.says = less
    assert driver.invoke(till.agent, "go").messages[2].text == "paid 50"
    assert driver.invoke(till.agent, "go").messages[2].text.endswith("paid 20")
    with pytest.raises(ApprovalHandlerError, match="would be changed by limit"):
        driver.invoke(till.agent, "go")
    assert (asked, [line for line in till.log if "body" in line]) == ([50] * 3, ["body 50 -", "body 20 -"])


def test_a_fallback_is_guarded_as_what_it_is(driver: Driver, store: Store) -> None:
    ran: list[str] = []

    def wire(n: int) -> str:
        """Wire it."""
        raise ConnectionError

    def cash(n: int) -> str:
        """Pay in cash."""
        ran.append(f"cash {n}")
        return "paid in cash"

    names: list[Any] = []

    def look(args: dict[str, Any], context: GuardrailContext[Any]) -> Any:
        names.append((context.tool_name, args))
        return AllowedTools(["wire"]).check(args, context)

    made = tool(fallback=[tool(driver.function(cash))])(driver.function(wire))
    agent = desk(store, call("wire", {"n": 5}), "done", tools=[made], tool_guardrails=[driver.function(look)])
    result = driver.invoke(agent, "go")
    assert (names, ran) == ([("wire", {"n": 5}), ("cash", {"n": 5})], [])
    assert (result.messages[2].settlement, result.status) == ("rejected", "completed")
    assert driver.invoke(agent, "go", tool_guardrails=[]).messages[2].text == "paid in cash"


def test_what_a_guardrail_makes_of_arguments_is_validated_and_a_call_that_is_none_is_not_looked_at(
    driver: Driver, store: Store
) -> None:
    wrong = [call("pay", '{"n": '), call("pay", {"n": "x"}), call("nothing", {})]
    till = Till(driver, store, replies=[wrong, call("pay", {"n": 7}), "done"])
    till.switch.says = lambda args: Transform({"n": "many"})
    result = driver.invoke(till.agent, "go")
    assert till.log == ["guardrail 7 -"]
    assert [message.settlement for message in result.messages if message.role == "tool"] == ["invalid"] * 4
    till.switch.says = lambda args: Transform({"n": "2000", "note": "by guardrail"})
    assert driver.invoke(till.agent, "go").messages[6].text == "paid 2000"
    assert till.log[1:] == ["guardrail 7 -", "gate 2000", "body 2000 by guardrail"]
    for made in ([1], "text", None, 5):
        till.switch.says = lambda args, made=made: Transform(made)
        assert failure(lambda: driver.invoke(till.agent, "go")).stage == "tool"


# Whichever way the run goes on


def resumed(driver: Driver, agent: Agent[Any, Any], at: Checkpoint) -> Any:
    return driver.resume(agent, at)


def resumed_as_text(driver: Driver, agent: Agent[Any, Any], at: Checkpoint) -> Any:
    return driver.resume(agent, Checkpoint.model_validate_json(at.model_dump_json()))


def stepped(driver: Driver, agent: Agent[Any, Any], at: Checkpoint) -> Any:
    result = driver.step(agent, at, decisions={item.id: Approve() for item in at.pending})
    while result.status == "running":
        result = driver.step(agent, result.checkpoint)
    return result


def forked(driver: Driver, agent: Agent[Any, Any], at: Checkpoint) -> Any:
    return driver.resume(agent, driver.fork(agent, at))


def restored(driver: Driver, agent: Agent[Any, Any], at: Checkpoint) -> Any:
    driver.cancel(agent, at)
    return driver.resume(agent, driver.call(agent, "restore", at))


def labelled(driver: Driver, agent: Agent[Any, Any], at: Checkpoint) -> Any:
    return driver.resume(agent, driver.call(agent, "checkpoint", at, label="kept"))


def held(driver: Driver, agent: Agent[Any, Any], at: Checkpoint) -> Any:
    """The run comes there anew, and is held."""
    driver.cancel(agent, at)
    hold = Hold(on_breakpoint=lambda hit: Approve(), timeout=PATIENCE)
    point: Any = at.pending[0].point
    return driver.invoke(agent, at.original_input, thread_id=at.thread_id, breakpoints=[Breakpoint(point)], hold=hold)


def edited(driver: Driver, agent: Agent[Any, Any], at: Checkpoint) -> Any:
    """Where the input can still be edited."""
    given = {"input": f"other {SECRET}"} if at.turn == 0 else None
    return driver.resume(agent, at, decisions={at.pending[0].id: Approve(args=given)})


def named(way: Any) -> str:
    return way if isinstance(way, str) else str(way.__name__)


WAYS = (resumed, resumed_as_text, stepped, forked, restored, labelled, held, edited)


@pytest.mark.parametrize("way", WAYS, ids=named)
@pytest.mark.parametrize("stage", ["input", "output"])
def test_no_way_of_going_on_gets_past_a_guardrail(driver: Driver, store: Store, way: Any, stage: str) -> None:
    switch = Switch(driver)
    rails: dict[str, Any] = {f"{stage}_guardrails": [switch.rail]}
    agent = desk(store, f"it is {SECRET}" if stage == "output" else "fine", **rails)
    at = Breakpoint(f"pre_{stage}_guardrails")  # type: ignore[arg-type]
    driver.invoke(agent, "hello", thread_id="t", model=ScriptedModel(["hi"]))
    switch.seen.clear()
    stopped = driver.invoke(agent, f"ask {SECRET}", thread_id="t", breakpoints=[at]).checkpoint
    assert (stopped.unguarded, switch.seen, stopped.pending[0].point) == (stage, [], f"pre_{stage}_guardrails")
    switch.says = lambda value: Refuse("no") if "secret" in value else None

    error = refusal(lambda: way(driver, agent, stopped))

    assert len(switch.seen) == 1
    assert error.result.checkpoint.unguarded is None
    asked = [f"ask {SECRET}"] * (2 if way is held else 1)  # the first was cancelled
    assert [message.text for message in error.result.messages][2:] == ([] if stage == "input" else asked)
    if way is not forked:  # which leaves the thread with the run that it was forked from
        after = driver.invoke(agent, "bye", thread_id="t", model=ScriptedModel(["fine"]))
        assert after.status == "completed"
        assert f"it is {SECRET}" not in [message.text for message in after.messages]
    assert store.load(error.result.checkpoint.id).refusal is not None


@pytest.mark.parametrize("way", [*WAYS[:7], "skip", "reject", "cancel", "supersede"], ids=named)
@pytest.mark.parametrize("stage", ["input", "output"])
def test_what_no_guardrail_let_through_is_in_no_next_run(driver: Driver, store: Store, way: Any, stage: str) -> None:
    """D23 is bypassed elsewhere by a skip: here, it ends the run, and what was to be looked at is gone."""
    switch = Switch(driver)
    rails: dict[str, Any] = {f"{stage}_guardrails": [switch.rail]}
    agent = desk(store, f"it is {SECRET}" if stage == "output" else "fine", **rails)
    at = Breakpoint(f"pre_{stage}_guardrails")  # type: ignore[arg-type]
    stopped = driver.invoke(agent, f"ask {SECRET}", thread_id="t", breakpoints=[at]).checkpoint
    if callable(way):
        switch.says = lambda value: Transform("clean")
        result = way(driver, agent, stopped)
        assert (result.output, len(switch.seen)) == ("fine" if stage == "input" else "clean", 1)
    else:
        pending = stopped.pending[0].id
        if way in ("skip", "reject"):
            result = driver.resume(agent, stopped, decisions={pending: Skip() if way == "skip" else Reject()})
        elif way == "cancel":
            result = driver.cancel(agent, stopped)
        else:
            model = ScriptedModel(["fine"])
            rails = {"input_guardrails": [], "output_guardrails": []}
            driver.invoke(agent, "new", thread_id="t", on_pending="supersede", model=model, **rails)
            told = [message.text for message in model.requests[0].messages]
            assert told == ([] if stage == "input" else [f"ask {SECRET}"]) + ["new"]
            result = Result(status="superseded", checkpoint=store.load(store.head(stopped.run_id)[1].id))
        ends = {"skip": "skipped", "reject": "rejected", "cancel": "cancelled", "supersede": "superseded"}
        assert (result.status, result.output, switch.seen) == (ends[way], None, [])
    kept = [message.text for message in result.messages]
    assert f"it is {SECRET}" not in kept
    assert (f"ask {SECRET}" in kept) == (stage == "output")
    if way is forked:
        return
    model = ScriptedModel(["fine"])
    switch.says = lambda value: None
    driver.invoke(agent, "bye", thread_id="t", model=model)
    told = [message.text for message in model.requests[0].messages]
    assert f"it is {SECRET}" not in told
    assert (f"ask {SECRET}" in told) == (stage == "output")


@pytest.mark.parametrize("point", ["pre_input_guardrails", "pre_agent_run", "pre_model_call"])
def test_an_input_that_is_edited_is_looked_at_wherever_that_is_done(driver: Driver, store: Store, point: Any) -> None:
    switch = Switch(driver)
    agent = desk(store, input_guardrails=[switch.rail])
    stopped = driver.invoke(agent, "first", breakpoints=[Breakpoint(point)]).checkpoint
    known = [] if point == "pre_input_guardrails" else ["first"]
    assert switch.seen == known
    edit = {stopped.pending[0].id: Approve(args={"input": {"q": SECRET}})}

    switch.says = lambda value: Refuse("no")
    fork = driver.fork(agent, stopped)
    error = refusal(
        lambda: driver.resume(agent, fork, decisions={fork.pending[0].id: Approve(args={"input": {"q": SECRET}})})
    )
    assert (error.stage, error.result.messages, agent.model.requests) == ("input", (), [])
    switch.says = lambda value: Transform({**value, "q": "x"})
    result = driver.resume(agent, stopped, decisions=edit)
    assert switch.seen == [*known, {"q": SECRET}, {"q": SECRET}]
    assert (result.output, result.messages[0].text) == ("fine", '{"q":"x"}')
    assert (result.checkpoint.original_input, result.checkpoint.input) == ("first", {"q": "x"})


def test_a_model_is_not_asked_before_every_step_of_a_run_is_let_through(driver: Driver, store: Store) -> None:
    """One boundary after the other: the input is stored, looked at, answered, and the answer looked at."""
    heard, asked = Switch(driver, "heard"), Switch(driver, "asked")
    agent = desk(store, "fine", input_guardrails=[asked.rail], output_guardrails=[heard.rail])
    result, seen = driver.step(agent, "go"), []
    while result.status == "running":
        seen.append((asked.seen != [], len(agent.model.requests), heard.seen != [], result.checkpoint.unguarded))
        result = driver.step(agent, result.checkpoint)
    assert seen == [(False, 0, False, "input"), (True, 0, False, None)]
    assert (result.output, heard.seen) == ("fine", ["fine"])


# An agent without its guardrails


@pytest.mark.parametrize("stage", ["input", "output"])
def test_an_agent_that_lost_its_guardrails_does_not_go_on_with_what_they_have_yet_to_see(
    driver: Driver, store: Store, stage: Any
) -> None:
    switch = Switch(driver)
    option = f"{stage}_guardrails"
    agent = desk(store, "fine", **{option: [switch.rail]})
    at = Breakpoint(f"pre_{stage}_guardrails")  # type: ignore[arg-type]
    stopped = driver.invoke(agent, "go", breakpoints=[at]).checkpoint
    bare = desk(store, "fine")
    lost = f"guardrails were to look at the {stage}, and there are none"
    assert bare.drift(stopped).changed == (lost,)
    assert bare.drift(stopped).compatible == ("the guardrails changed",)
    before = rows(store)
    acts: list[Callable[[], Any]] = [
        lambda: driver.resume(bare, stopped),
        lambda: driver.resume(bare, stopped, decisions={stopped.pending[0].id: Approve()}),
        lambda: driver.resume(agent, stopped, **{option: []}),
        lambda: driver.step(bare, stopped, decisions={stopped.pending[0].id: Approve()}),
        lambda: driver.call(bare, "restore", stopped),
    ]
    for act in acts:
        with pytest.raises(AgentChanged) as changed:
            act()
        assert changed.value.changes == (lost,)
    assert rows(store) == before
    renamed = desk(store, "fine", **{option: [MaxLength(50)]})
    assert (renamed.drift(stopped).changed, renamed.drift(stopped).compatible) == ((), ("the guardrails changed",))

    switch.says = fails
    error = failure(lambda: driver.resume(agent, stopped))
    assert error.checkpoint is not None
    for act in (lambda: driver.recover(bare, stopped.run_id), lambda: driver.step(bare, error.checkpoint)):
        with pytest.raises(AgentChanged):
            act()
    [left] = driver.call(bare, "recover_all") or [None]
    assert left is None or isinstance(left.error, AgentChanged)
    assert driver.resume(bare, error.checkpoint, accept_changes=True).output == "fine"
    assert len(switch.seen) == 1


# While a guardrail looks


@pytest.mark.parametrize("then", ["pass", "refuse", "transform"])
@pytest.mark.parametrize("stage", ["input", "output", "tool"])
def test_a_run_that_is_cancelled_while_a_guardrail_looks_ends_as_cancelled(
    driver: Driver, store: Store, stage: str, then: str
) -> None:
    """Whatever the guardrail comes to say: no answer comes of it, and no model is asked."""
    switch = Switch(driver)
    ran: list[int] = []

    @tool
    def pay(n: int) -> str:
        """Pay."""
        ran.append(n)
        return "paid"

    rails: dict[str, Any] = {f"{stage}_guardrails": [switch.rail]}
    script = ScriptedModel.by_turn([call("pay", {"n": 1}), "fine"] if stage == "tool" else ["fine"])
    agent = desk(store, model=script, tools=[pay], **rails)
    other = desk(store, model=script, tools=[pay], **rails)

    def cancels(value: Any) -> Any:
        [branch] = store.branches()
        assert other.cancel(branch.id, reason="enough").status == "running"
        return {"pass": None, "refuse": Refuse("no", then="end"), "transform": Transform(value)}[then]

    switch.says = cancels
    result = driver.invoke(agent, "go", thread_id="t")
    assert (result.status, result.output, ran) == ("cancelled", None, [])
    assert len(script.requests) == (0 if stage == "input" else 1)
    assert "fine" not in [message.text for message in result.messages]
    assert store.load(result.checkpoint.id) == result.checkpoint
    [branch] = store.branches()
    assert (branch.status, [record.kind for record in store.audit()]) == ("cancelled", ["cancel"])


def test_a_run_that_is_cancelled_while_the_model_answers_has_no_answer(driver: Driver, store: Store) -> None:
    """Without any guardrail: the reply is not in the conversation, so it is no output either."""

    def reply(request: Any) -> str:
        [branch] = store.branches()
        other.cancel(branch.id)
        return "fine"

    other = desk(store)
    result = driver.invoke(desk(store, model=ScriptedModel([reply])), "go", thread_id="t")
    assert (result.status, result.output, outline(result)) == ("cancelled", None, ["user: go"])


@pytest.mark.parametrize("stage", ["input", "output"])
def test_a_task_that_is_cancelled_while_a_guardrail_looks_leaves_the_question_open(store: Store, stage: str) -> None:
    reached, asked = asyncio.Event(), []

    @guardrail(retries=3)
    async def hangs(value: Any) -> None:
        asked.append(value)
        reached.set()
        if len(asked) == 1:
            await asyncio.Event().wait()

    agent = desk(store, "fine", **{f"{stage}_guardrails": [hangs]})

    async def main() -> Result[Any]:
        task = asyncio.create_task(agent.ainvoke("go", thread_id="t"))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        [branch] = store.branches()
        assert branch.status == "failed"
        return await agent.aresume(branch.head or "")

    result = run(main())
    assert (result.output, asked) == ("fine", ["go" if stage == "input" else "fine"] * 2)
    assert said(store, result.run_id) == [(stage, {"hangs": "passed"})]


class Letter(BaseModel):
    """A typed answer with text inside."""

    said: str
    more: list[str] = []


@pytest.mark.parametrize(
    "written",
    [
        r'{"said": "\u0053ECRET"}',
        r'{"said": "SE\u0043RET", "more": []}',
        r'{"said": "fine", "more": ["\u0053\u0045CRET"]}',
        '```json\n{"said": "\\u0053ECRET"}\n```',
    ],
)
def test_no_spelling_of_json_brings_anything_past_a_guardrail(driver: Driver, store: Store, written: str) -> None:
    refusing = desk(store, written, output_type=Letter, output_guardrails=[RefusePatterns(["SECRET"])])
    refusal(lambda: driver.invoke(refusing, "go"))
    redacting = desk(store, written, output_type=Letter, output_guardrails=[RedactPatterns(["SECRET"])])
    result = driver.invoke(redacting, "go")
    assert "[redacted]" in (result.output.said, *result.output.more)
    assert "SECRET" not in json.dumps([plain_text(message.text) for message in result.messages])


def plain_text(text: str) -> Any:
    """The value in the text, if it is JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_a_line_end_in_a_value_is_one_to_a_guardrail(driver: Driver, store: Store) -> None:
    """And a value of a type that is no object is looked at by itself."""
    two_lines = RefusePatterns(["\n"])
    agent = desk(store, r'{"answer": "one\ntwo"}', output_type=Annotated[str, MinLen(1)], output_guardrails=[two_lines])
    refusal(lambda: driver.invoke(agent, "go"))
    seen = Switch(driver)
    listing = desk(store, r'{"answer": [1, 2]}', output_type=list[int], output_guardrails=[seen.rail])
    assert (driver.invoke(listing, "go").output, seen.seen) == ([1, 2], [[1, 2]])


def test_what_stands_beside_an_answer_is_in_no_conversation(driver: Driver, store: Store) -> None:
    """Keys that the type ignores are no part of the value, so nobody looked at them."""
    rail = RefusePatterns(["SECRET"])
    agent = desk(store, '{"n": 5, "note": "SECRET"}', output_type=Answer, output_guardrails=[rail])
    result = driver.invoke(agent, "go", thread_id="t")
    assert result.output == Answer(n=5)
    assert [message.text for message in result.messages] == ["go", '{"n":5}']
    later = driver.invoke(agent, "again", thread_id="t")
    assert "SECRET" not in repr([message.text for message in later.messages[:3]])


# What is told


def test_what_is_replayed_is_what_was_heard_also_of_an_answer_that_waited(driver: Driver, store: Store) -> None:
    """One that guardrails let through, and that was then none of the output type, is told as well."""
    seen = Seen()
    rails: dict[str, Any] = {"input_guardrails": [MaxLength(50)], "output_guardrails": [MaxLength(50)]}
    agent = desk(store, model=ScriptedModel(["5?", '{"n": 5}']), output_type=Answer, hooks=[seen], **rails)
    result = driver.invoke(agent, "go", breakpoints=[BEFORE])
    stops = 0
    while result.suspended:
        assert not [event for event in seen.events if event.type == "model_replied"][stops:]
        stops += 1
        result = driver.resume(agent, result.checkpoint, breakpoints=[BEFORE])
    assert (result.output, stops) == (Answer(n=5), 2)
    live = [event for event in seen.events if event.type != "model_started"]
    assert live == list(replay(store, result.run_id))
    assert [event.text for event in live if event.type == "model_replied"] == ["5?", '{"n":5}']
    assert [event.said for event in seen.guardrails] == [{"max_length": "passed"}] * 3


def test_what_guardrails_looked_at_is_in_no_event_of_theirs(driver: Driver, store: Store) -> None:
    till = Till(driver, store, 77, input_guardrails=[RedactPatterns(["secret"])])
    till.switch.says = less
    stopped = driver.invoke(till.agent, f"pay {SECRET}").checkpoint
    result = driver.resume(till.agent, stopped, approved=True)
    found = [event for event in replay(store, result.run_id) if event.type == "guardrail"]
    assert [(event.stage, event.said, event.call_id, event.code) for event in found] == [
        ("input", {"redact_patterns": "transformed"}, None, None),
        ("tool", {"limit": "transformed"}, "c1", None),
    ]
    assert not any("secret" in event.model_dump_json() or '"n"' in event.model_dump_json() for event in found)


def test_a_run_that_is_recovered_and_refused_is_given_as_it_ended(driver: Driver, store: Store) -> None:
    """As one that somebody else has ended: whoever recovers a run has not asked for it."""
    switch = Switch(driver)
    agent = desk(store, f"it is {SECRET}", output_guardrails=[switch.rail])
    for recover in (lambda id: driver.recover(agent, id), lambda id: driver.call(agent, "recover_all")):
        switch.says = fails
        error = failure(lambda: driver.invoke(agent, "go"))
        switch.says = lambda value: Refuse("no")
        result = recover(error.run_id)
        if isinstance(result, list):  # a run that has failed is not abandoned: it is resumed
            assert result == []
            result = driver.recover(agent, error.run_id)
        assert (result.status, result.output, outline(result)) == ("rejected", None, ["user: go"])
        assert result.checkpoint.refusal is not None


def test_what_is_async_is_refused_before_anything_is_stored(store: Store) -> None:
    """Also inside a graph; and one that says it is sync, and is not, fails the run."""

    @guardrail
    async def waits(value: Any) -> None: ...

    def lies(value: Any) -> Any:
        return waits(value)

    for option in ("input_guardrails", "output_guardrails", "tool_guardrails"):
        rails: dict[str, Any] = {option: [waits]}
        for method in ("invoke", "stream", "step"):
            with pytest.raises(AsyncRequired, match="guardrail 'waits' of agent 'desk' is async"):
                getattr(desk(store), method)("go", **rails)
        with pytest.raises(AsyncRequired):
            works(SYNC, store, desk(None, **rails)).invoke({"q": "go"})
    assert store.branches() == []
    error = failure(lambda: desk(store, input_guardrails=[lies]).invoke("go"))
    assert "returned an awaitable from a sync function" in str(error)
    with pytest.raises(AsyncRequired, match="is async, and nobody awaited it"):
        guarding.check([waits], canonical("go"), _context())


def _context() -> GuardrailContext[Any]:
    return GuardrailContext(stage="input", run_id="run-1", thread_id=None, agent="desk", deps=None)


# Inside a graph


class Work(BaseModel):
    """What the graph gathers."""

    q: str = ""
    a: str = "-"


def works(driver: Driver, store: Store, inner: Agent[Any, Any], *, back: bool = False) -> Any:
    """A graph with an agent in a node, and perhaps a node to go on at when that is rejected."""
    options: dict[str, Any] = {"on_rejection": "sorry"} if back else {}
    graph = StateGraph(Work, name="works").add_node("ask", inner, input="q", output="a", **options)
    graph.add_edge(START, "ask").add_edge("ask", END)
    if back:
        graph.add_node("sorry", driver.function(lambda state: {"a": "sorry"})).add_edge("sorry", END)
    return graph.compile(store=store)


@pytest.mark.parametrize("back", [False, True], ids=["ends", "goes-on"])
@pytest.mark.parametrize("stage", ["input", "output", "tool"])
def test_an_agent_in_a_graph_that_is_refused_is_a_node_that_was_rejected(
    driver: Driver, store: Store, stage: str, back: bool
) -> None:
    """The graph goes on at its `on_rejection`, or ends as rejected, and raises nothing; what was refused is nowhere in it."""
    switch = Switch(driver)
    switch.says = lambda value: Refuse("no", then="end")

    @tool
    def pay(secret: str) -> str:
        """Pay."""
        raise AssertionError

    replies = [call("pay", {"secret": SECRET}), "done"] if stage == "tool" else [f"it is {SECRET}"]
    inner = desk(None, *replies, name="inner", tools=[pay], **{f"{stage}_guardrails": [switch.rail]})
    graph = works(driver, store, inner, back=back)
    result = driver.invoke(graph, {"q": "go"})
    assert result.status == ("completed" if back else "rejected")
    assert result.output == (Work(q="go", a="sorry") if back else None)
    assert (len(switch.seen), [context.path for context in switch.contexts]) == (1, ["1.0"])
    told = [event for event in replay(store, result.run_id) if event.type == "guardrail"]
    assert [(event.path, event.stage, event.code) for event in told] == [("1.0", stage, "refused")]
    if stage == "output":
        assert SECRET not in rows(store)


def test_the_guardrails_of_an_agent_in_a_graph_change_what_it_is_asked_runs_and_answers(
    driver: Driver, store: Store
) -> None:
    paid: list[str] = []

    @tool(requires_approval=True)
    def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        return "paid"

    def clean(value: Any) -> Any:
        return json.loads(json.dumps(value).replace(SECRET, "x"))

    switch = Switch(driver)
    switch.says = lambda value: Transform(clean(value))
    rails: dict[str, Any] = {f"{stage}_guardrails": [switch.rail] for stage in ("input", "output", "tool")}
    inner = desk(None, call("pay", {"to": SECRET}), f"it is {SECRET}", name="inner", tools=[pay], **rails)
    graph = works(driver, store, inner)
    at = [Breakpoint("pre_output_guardrails")]
    stopped = driver.invoke(graph, {"q": f"to {SECRET}"}, breakpoints=at).checkpoint
    [item] = stopped.pending
    assert (item.args, item.path) == ({"to": "x"}, "1.0")
    with pytest.raises(InvalidDecision, match="would be changed by switch"):
        driver.resume(graph, stopped, decisions={item.id: Approve(args={"to": f"{SECRET}!"})})
    stopped = driver.resume(graph, stopped, breakpoints=at, approved=True).checkpoint
    assert (stopped.pending[0].point, stopped.nested[0].unguarded, paid) == ("pre_output_guardrails", "output", ["x"])

    bare = works(driver, store, desk(None, name="inner", tools=[pay]))
    with pytest.raises(AgentChanged, match="guardrails were to look at the output, and there are none"):
        driver.resume(bare, stopped)
    result = driver.resume(graph, stopped)
    assert (result.output, [context.stage for context in switch.contexts]) == (
        Work(q=f"to {SECRET}", a="it is x"),
        ["input", "tool", "tool", "output"],
    )
    assert [request.messages[0].text for request in inner.model.requests] == ["to x", "to x"]


def test_a_skip_inside_a_graph_gives_nothing_that_no_guardrail_has_seen(driver: Driver, store: Store) -> None:
    switch = Switch(driver)
    inner = desk(None, f"it is {SECRET}", name="inner", output_guardrails=[switch.rail])
    graph = works(driver, store, inner)
    stopped = driver.invoke(graph, {"q": "go"}, breakpoints=[BEFORE]).checkpoint
    result = driver.resume(graph, stopped, decisions={stopped.pending[0].id: Skip()})
    assert (result.status, result.output, switch.seen) == ("completed", Work(q="go"), [])


def test_an_input_that_is_edited_inside_a_graph_is_looked_at(driver: Driver, store: Store) -> None:
    switch = Switch(driver)
    inner = desk(None, "fine", name="inner", input_guardrails=[switch.rail])
    graph = works(driver, store, inner)
    stopped = driver.invoke(graph, {"q": "go"}, breakpoints=[Breakpoint("pre_model_call")]).checkpoint
    switch.says = lambda text: Refuse("no") if "secret" in text else None
    edit = {stopped.pending[0].id: Approve(args={"input": SECRET})}
    result = driver.resume(graph, stopped, decisions=edit)
    assert (result.status, switch.seen, inner.model.requests) == ("rejected", ["go", SECRET], [])


def test_a_guardrail_that_fails_inside_a_graph_fails_its_node_and_is_asked_again(driver: Driver, store: Store) -> None:
    switch = Switch(driver)
    switch.says = fails
    inner = desk(None, f"it is {SECRET}", name="inner", output_guardrails=[switch.rail])
    graph = works(driver, store, inner)
    with pytest.raises(NodeFailed, match="ask failed: GuardrailFailed: output guardrail 'switch' of 'inner'") as caught:
        driver.invoke(graph, {"q": "go"})
    assert isinstance(caught.value.__cause__, GuardrailFailed)
    assert "secret" not in str(caught.value)
    assert caught.value.checkpoint is not None
    switch.says = lambda text: Transform("clean")
    assert driver.resume(graph, caught.value.checkpoint).output == Work(q="go", a="clean")


def test_a_graph_takes_no_guardrails_of_its_own(driver: Driver, store: Store) -> None:
    graph = works(driver, store, desk(None, name="inner"))
    for option in ("input_guardrails", "output_guardrails", "tool_guardrails"):
        with pytest.raises(ConfigurationError, match=f"{option} is for agents"):
            driver.invoke(graph, {"q": "go"}, **{option: []})
    assert store.branches() == []


# Held


def test_what_is_said_in_a_hold_is_looked_at(driver: Driver, store: Store) -> None:
    """A handler's edit that a guardrail would change is none: what somebody else has said meanwhile counts."""
    till = Till(driver, store, 77)
    till.switch.says = less
    agent = desk(store, call("pay", {"n": 77}), "done", tools=[_pay_plainly], tool_guardrails=[till.switch.rail])
    shown: list[Any] = []

    def handler(hit: Any) -> Any:
        shown.append(hit.args)
        if driver.is_async:
            return Approve(args={"n": 40})
        hold.resume_breakpoint(hit.id, args={"n": 40})
        return Approve(args={"n": 45})

    hold = Hold(on_breakpoint=handler, timeout=PATIENCE)
    result = driver.invoke(agent, "go", breakpoints=[Breakpoint("pre_tool_call")], hold=hold)
    assert (shown, result.messages[2].text.splitlines()[-1]) == ([{"n": 50, "note": "-"}], "paid 40")


@tool(name="pay")
def _pay_plainly(n: int, note: str = "-") -> str:
    """Pay."""
    return f"paid {n}"


@pytest.mark.parametrize("stage", ["input", "tool"])
def test_nobody_edits_what_the_guardrails_of_the_run_do_not_look_at(driver: Driver, store: Store, stage: str) -> None:
    """Guardrails of a call are not those of whoever decides elsewhere: what they have not looked at counts for nothing."""
    switch = Switch(driver)
    agent = desk(store, call("pay", {"n": 7}), "done", tools=[_pay_plainly])
    rails: dict[str, Any] = {f"{stage}_guardrails": [switch.rail]}
    at = Breakpoint("pre_tool_call" if stage == "tool" else "pre_agent_run")
    edits = {"n": 5000} if stage == "tool" else {"input": SECRET}
    stopped = driver.invoke(agent, "go", breakpoints=[at], **rails).checkpoint
    [item] = stopped.pending
    edit = {item.id: Approve(args=edits)}
    switch.says = lambda value: Refuse("no") if value in (edits, {**edits, "note": "-"}, SECRET) else None
    before = rows(store)
    for options in ({}, {f"{stage}_guardrails": [MaxLength(9)]}):
        with pytest.raises(
            InvalidDecision, match=f"cannot be edited without {stage} guardrail switch, with which the run"
        ):
            driver.resume(agent, stopped, decisions=edit, accept_changes=True, **options)
    assert rows(store) == before
    with pytest.raises((InvalidDecision, GuardrailRefused)):
        driver.resume(agent, stopped, decisions=edit, **rails)

    def elsewhere(hit: Any) -> Any:
        with pytest.raises(InvalidDecision, match="cannot be edited without"):
            SYNC.resume(agent, hit.checkpoint_id, decisions={hit.id: Approve(args=edits)}, accept_changes=True)
        return Approve()

    hold = Hold(on_breakpoint=elsewhere, timeout=PATIENCE)
    result = driver.invoke(agent, "go", breakpoints=[at], hold=hold, **rails)
    assert (result.status, result.messages[0].text, result.messages[2].text) == ("completed", "go", "paid 7")


# Nothing is told that must not be


def test_what_guardrails_look_at_is_in_no_log_repr_or_error(driver: Driver, spy: Spy) -> None:
    switch = Switch(driver)

    @tool
    def pay(card: str) -> str:
        """Pay."""
        return "paid"

    def answers() -> Iterator[Any]:
        yield from (lambda value: None, Transform, lambda value: Refuse("no", then="end"))
        yield from (bad, lambda value: {"card": CARD}, lambda value: Transform(object()), lambda value: CARD)

    def bad(value: Any) -> Any:
        raise Own(CARD)

    class Sees(Hooks):
        def on_guardrail(self, event: Any) -> None:
            spy.see(event)

    ends = []
    for option in ("input_guardrails", "output_guardrails", "tool_guardrails"):
        for says in answers():
            switch.says = says
            agent = desk(None, call("pay", {"card": CARD}), f"it is {CARD}", tools=[pay], hooks=[Sees()])
            spy.see(agent, agent.spec, switch.rail)
            try:
                ends.append(spy.see(driver.invoke(agent, f"my {CARD}", deps=CARD, **{option: [switch.rail]})).status)
            except PhronomyError as error:
                spy.failed(error)
                ends.append(type(error).__name__)
            spy.see(switch.contexts[-1], *agent.store.branches(), agent.store.head(agent.store.branches()[0].id))
            spy.see(*replay(agent.store, agent.store.branches()[0].id))
    assert ends == ["completed", "completed", "GuardrailRefused", *["GuardrailFailed"] * 4] * 3
    assert len(spy.seen) > 500
    assert spy.leaks() == []


# Whatever the guardrails say

TEXTS = st.text("ab", max_size=3)
SAYS = st.one_of(st.none(), st.builds(Pass), st.builds(Transform, TEXTS), st.builds(Refuse, st.just("no")))
SAYS_OF_CALLS = st.one_of(
    st.none(),
    st.builds(lambda n: Transform({"n": n}), st.integers(0, 3)),
    st.builds(Refuse, st.just("no"), then=st.sampled_from(["continue", "block", "block_tool", "end"])),
)


def rails_of(driver: Driver, answers: list[Any], asynchronous: list[bool]) -> list[Guardrail]:
    """Guardrails that say this, one after the other; of the async driver, some of them are async."""
    made = []
    for number, (answer, is_async) in enumerate(zip(answers, asynchronous, strict=False)):
        function = driver.function if is_async else lambda body: body
        made.append(guardrail(name=f"g{number}")(function(lambda value, answer=answer: answer)))
    return made


def folded(value: Any, answers: list[Any]) -> tuple[Any, Refuse | None]:
    """What is left of a value, and the refusal."""
    for answer in answers:
        if isinstance(answer, Refuse):
            return value, answer
        value = answer.value if isinstance(answer, Transform) else value
    return value, None


@settings(max_examples=scaled(15, sweep=60), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(SAYS, max_size=3),
    st.lists(SAYS_OF_CALLS, max_size=3),
    st.lists(SAYS, max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_all_ways_of_running_come_to_the_same(
    inputs: list[Any], calls: list[Any], outputs: list[Any], asynchronous: list[bool]
) -> None:
    """And to what a fold over what the guardrails say comes to."""
    found = []
    for driver in EVERY:
        ran: list[int] = []

        def pay(n: int, context: ToolContext[Any]) -> str:
            """Pay."""
            context.deps.append(n)
            return f"paid {n}"

        store = MemoryStore()
        agent = desk(
            store,
            call("pay", {"n": 9}),
            "answer",
            tools=[tool(pay)],
            input_guardrails=rails_of(driver, inputs, asynchronous),
            tool_guardrails=rails_of(driver, calls, asynchronous),
            output_guardrails=rails_of(driver, outputs, asynchronous),
        )
        stage = None
        try:
            result = driver.invoke(agent, "question", deps=ran)
        except GuardrailRefused as error:
            result, stage = error.result, error.stage
        told = said(store, result.run_id)
        found.append((result.status, result.output, stage, ran, len(agent.model.requests), outline(result), told))

    assert found == [found[0]] * 4
    asked, no_input = folded("question", inputs)
    args, no_call = folded({"n": 9}, calls)
    answer, no_output = folded("answer", outputs)
    status, output, stage, ran, requests, lines, _ = found[0]
    if no_input is not None:
        assert (status, output, stage, ran, requests, lines) == ("rejected", None, "input", [], 0, [])
        return
    assert (lines[0], ran) == (f"user: {asked}", [] if no_call is not None else [args["n"]])
    if no_call is not None and no_call.then == "end":
        assert (status, output, stage, requests) == ("rejected", None, "tool", 1)
    elif no_output is not None:
        assert (status, output, stage, requests, "answer" in "".join(lines)) == ("rejected", None, "output", 2, False)
    else:
        assert (status, output, stage, requests) == ("completed", answer, None, 2)


# Killed anywhere


def guarded_till(scene: Scene, driver: Driver) -> Agent[Any, Any]:
    """An agent of a process that dies: what guardrails look at is told outside of the store, with a place to die around it."""

    def look_at_input(text: str) -> Any:
        scene.act(stage="input")
        return Transform(text.replace("secret", "[redacted]"))

    def look_at_call(args: dict[str, Any]) -> Any:
        scene.act(stage="tool")
        return Transform({"n": min(args["n"], 5)})

    def look_at_answer(text: str, context: GuardrailContext[Any]) -> Any:
        asked = [message.text for message in context.messages if message.role == "user"][-1]
        scene.act(stage="output", asked=asked)
        return Refuse("no") if "leak" in asked else Transform(text.replace("secret", "[redacted]"))

    def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    rails = {
        f"{stage}_guardrails": [driver.function(each)]
        for stage, each in (("input", look_at_input), ("output", look_at_answer), ("tool", look_at_call))
    }
    made = tool(requires_approval=True)(driver.function(pay))
    replies = [call("pay", {"n": 77}), "it is secret"]
    instructions = driver.function(lambda text: f"Asked: {text}")
    return desk(scene.store, *replies, tools=[made], instructions=instructions, **rails)


def ordered(scene: Scene) -> None:
    agent = guarded_till(scene, SYNC)
    result = agent.invoke("my secret", thread_id="t", breakpoints=[BEFORE])
    while result.suspended:
        result = agent.resume(result.checkpoint.id, decisions=scene.answers(result.checkpoint), breakpoints=[BEFORE])
    result = agent.invoke("leak secret", thread_id="t")
    with pytest.raises(GuardrailRefused):
        agent.resume(result.checkpoint.id, decisions=scene.answers(result.checkpoint))


async def aordered(scene: Scene) -> None:
    agent = guarded_till(scene, ASYNC)
    result = await agent.ainvoke("my secret", thread_id="t", breakpoints=[BEFORE])
    while result.suspended:
        result = await agent.aresume(
            result.checkpoint.id, decisions=scene.answers(result.checkpoint), breakpoints=[BEFORE]
        )
    result = await agent.ainvoke("leak secret", thread_id="t")
    with pytest.raises(GuardrailRefused):
        await agent.aresume(result.checkpoint.id, decisions=scene.answers(result.checkpoint))


def gone_on(scene: Scene) -> None:
    try:
        scene.settle(guarded_till(scene, SYNC))
    except GuardrailRefused:
        scene.settle(guarded_till(scene, SYNC))


async def agone_on(scene: Scene) -> None:
    try:
        await scene.asettle(guarded_till(scene, ASYNC))
    except GuardrailRefused:
        await scene.asettle(guarded_till(scene, ASYNC))


def guarded_whole(scene: Scene) -> None:
    """Every run that is there was looked at in every stage, and what is left of it is what guardrails left."""
    runs = [scene.store.head(branch.id)[1] for branch in scene.store.branches()]
    for last in runs:
        leaks = "leak" in last.original_input
        assert (last.status, last.unguarded) == ("rejected" if leaks else "completed", None)
        assert last.output == (None if leaks else "it is [redacted]")
        assert "secret" not in "".join(message.text for message in last.messages)
        assert {"stage": "output", "asked": last.input} in scene.acts
        assert last.input == last.original_input.replace("secret", "[redacted]")
    told = [message.text for last in runs for message in last.messages if message.role == "assistant"]
    assert set(told) <= {"", "it is [redacted]"}
    assert {each.text for each in scene.entered} <= {'{"n":5}'}


@pytest.mark.usefixtures("fresh_fork_server")
@pytest.mark.parametrize(
    ("scenario", "recover"),
    [
        pytest.param(ordered, gone_on, id="sync"),
        pytest.param(aordered, agone_on, id="async", marks=pytest.mark.sweep),
    ],
)
def test_a_verdict_that_was_lost_with_its_process_is_asked_for_again(
    scenario: Any, recover: Any, tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    store = partial(SQLiteStore, str(tmp_path / "runs.db"), synchronous="OFF")
    every = scaled(6, sweep=1)
    report = sweep(scenario, recover=recover, store=store, check=guarded_whole, every=every)
    record_property("told", str(report))
    assert report.places > 40
    assert report.kills >= report.places // every


def test_an_answer_and_calls_that_are_still_to_come_need_guardrails_too(driver: Driver, store: Store) -> None:
    """Whichever stop it is resumed from; what was looked at already needs none."""
    switch = Switch(driver)
    gated = tool(name="pay", requires_approval=True)(_pay_plainly.function)
    for stage in ("input", "output", "tool"):
        rails: dict[str, Any] = {f"{stage}_guardrails": [switch.rail]}
        agent = desk(store, call("pay", {"n": 7}), "done", tools=[gated])
        stopped = driver.invoke(agent, "go", **rails).checkpoint
        if stage == "input":
            assert (agent.drift(stopped).changed, agent.drift(stopped).compatible) == ((), ("the guardrails changed",))
        else:
            what = {"output": "the output", "tool": "calls"}[stage]
            with pytest.raises(AgentChanged, match=f"guardrails were to look at {what}, and there are none"):
                driver.resume(agent, stopped, approved=True)
        assert driver.resume(agent, stopped, approved=True, **rails).output == "done"


def test_a_call_that_a_guardrail_failed_to_judge_is_not_judged_without_it(driver: Driver, store: Store) -> None:
    till = Till(driver, store, 2000)
    till.switch.says = fails
    error = failure(lambda: driver.invoke(till.agent, "go"))
    assert error.checkpoint is not None
    with pytest.raises(AgentChanged, match="guardrails were to look at calls, and there are none"):
        driver.resume(till.agent, error.checkpoint, tool_guardrails=[])
    assert [line for line in till.log if "body" in line] == []


def test_what_is_said_through_a_hold_is_judged_by_the_guardrails_and_deps_of_its_call(
    driver: Driver, store: Store
) -> None:
    switch = Switch(driver)
    switch.says = lambda args: Refuse("no") if args["n"] > switch.contexts[-1].deps else None
    agent = desk(store, call("pay", {"n": 7}), "done", tools=[_pay_plainly])
    told: list[str] = []

    async def asaid(hit: Any) -> None:
        for n in (51, 50):
            try:
                await hold.aresume_breakpoint(hit.id, args={"n": n})
            except InvalidDecision as error:
                told.append(str(error))

    def said_so(hit: Any) -> None:
        for n in (51, 50):
            try:
                hold.resume_breakpoint(hit.id, args={"n": n})
            except InvalidDecision as error:
                told.append(str(error))

    hold = Hold(on_breakpoint=asaid if driver.is_async else said_so, timeout=PATIENCE)
    options: dict[str, Any] = {"tool_guardrails": [switch.rail], "deps": 50, "hold": hold}
    result = driver.invoke(agent, "go", breakpoints=[Breakpoint("pre_tool_call")], **options)
    assert result.messages[2].text.splitlines()[-1] == "paid 50"
    assert [text.rpartition(". ")[2] for text in told] == ["no"]


@pytest.mark.parametrize("kind", ["agent", "graph"])
def test_a_run_that_is_cancelled_just_before_its_end_is_written_ends_as_cancelled(
    driver: Driver, store: Store, kind: str
) -> None:
    class Late(Around):
        def append(self, change: Any) -> Any:
            if change.status == "completed":
                assert made(self.inner).cancel(self.inner.branches()[0].id).status == "running"
            return self.inner.append(change)

    def made(store: Store) -> Any:
        inner = desk(store if kind == "agent" else None, "fine")
        return inner if kind == "agent" else works(driver, store, inner)

    result = driver.invoke(made(Late(store)), "go" if kind == "agent" else {"q": "go"})
    assert (result.status, result.output, store.branches()[0].status) == ("cancelled", None, "cancelled")
