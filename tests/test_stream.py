"""Streams: the same run, told as it happens; whoever leaves early loses pieces of replies and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from drivers import ASYNC, PATIENCE, SYNC, Driver, outline

from phronomy import (
    Agent,
    Approve,
    AsyncRequired,
    Checkpoint,
    CheckpointAlreadyResumed,
    ConfigurationError,
    Event,
    MemoryStore,
    ModelError,
    ModelReply,
    ModelRequest,
    Reject,
    Result,
    SQLiteStore,
    tool,
)
from phronomy.models.base import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from phronomy.observability.events import CheckpointSaved, event_from, replay
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, Branch
from phronomy.testing import ScriptedModel, call, say

LIVE = ("model_started", "text_delta", "reasoning_delta", "tool_call_delta", "failed")


class Pieces:
    """A scripted model that streams: its reasoning, its text by the word, and each call in two fragments."""

    name = "pieces"

    def __init__(self, *script: Any) -> None:
        self.inner = ScriptedModel(script)
        self.closed = 0

    def complete(self, request: ModelRequest) -> ModelReply:
        return self.inner.complete(request)

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        return await self.inner.acomplete(request)

    def stream(self, request: ModelRequest) -> Iterator[Delta | ModelReply]:
        reply = self.inner.complete(request)
        try:
            yield ReasoningDelta(text="hm")
            for word in reply.message.text.split():
                yield TextDelta(text=word)
            for index, asked in enumerate(reply.message.tool_calls):
                yield ToolCallDelta(index=index, id=asked.id, name=asked.name, arguments=asked.arguments[:3])
                yield ToolCallDelta(index=index, arguments=asked.arguments[3:])
            yield reply
        finally:
            self.closed += 1

    async def astream(self, request: ModelRequest) -> Any:
        for item in self.stream(request):
            await asyncio.sleep(0)
            yield item


class Desk:
    """An agent with a gated tool and a free one, and what they did."""

    def __init__(self, store: Store, *script: Any, pieces: bool = True, **options: Any) -> None:
        self.done: list[str] = []

        @tool(requires_approval=True)
        def refund(order_id: int) -> str:
            """Refund an order."""
            self.done.append(f"refund {order_id}")
            return f"refunded {order_id}"

        @tool
        def look_up(order_id: int) -> str:
            """Look an order up."""
            self.done.append(f"look_up {order_id}")
            return f"order {order_id}"

        model = Pieces(*script) if pieces else ScriptedModel(script)
        self.agent = Agent(name="desk", model=model, tools=[refund, look_up], store=store, **options)


def take(driver: Driver, agent: Agent[Any, Any], at: Any, **options: Any) -> tuple[list[Event], Result[Any]]:
    """The events of a stream to its end, and its result."""
    if not driver.is_async:
        stream = agent.stream(at, **options)
        return list(stream), stream.result

    async def run() -> tuple[list[Event], Result[Any]]:
        stream = agent.astream(at, **options)
        return [event async for event in stream], stream.result

    return asyncio.run(run())


def take_until(
    driver: Driver, agent: Agent[Any, Any], at: Any, enough: Callable[[Event], bool], **options: Any
) -> list[Event]:
    """The events of a stream that is left after the first that is enough."""
    found: list[Event] = []
    if not driver.is_async:
        with agent.stream(at, **options) as stream:
            for event in stream:
                found.append(event)
                if enough(event):
                    break
        return found

    async def run() -> None:
        async with agent.astream(at, **options) as stream:
            async for event in stream:
                found.append(event)
                if enough(event):
                    break

    asyncio.run(run())
    return found


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]


def test_a_run_is_told_from_its_beginning_to_where_it_waits_and_on_to_its_end(driver: Driver, store: Store) -> None:
    desk = Desk(store, say("On it.", call("look_up", {"order_id": 7}), call("refund", {"order_id": 7})), "It is done.")
    events, result = take(driver, desk.agent, "Refund 7", thread_id="t")
    assert types(events) == [
        "run_started",
        "checkpoint",
        "model_started",
        "reasoning_delta",
        "text_delta",
        "text_delta",
        "tool_call_delta",
        "tool_call_delta",
        "tool_call_delta",
        "tool_call_delta",
        "model_replied",
        "approval_requested",
        "checkpoint",
        "tool_call_started",
        "tool_call_settled",
        "checkpoint",
        "suspended",
    ]
    assert (result.status, desk.done) == ("suspended", ["look_up 7"])
    assert events[-1].checkpoint_id == result.checkpoint.id
    assert events[-1].pending == result.checkpoint.pending

    events, result = take(driver, desk.agent, result.checkpoint, approved=True, by="ann")
    assert types(events) == [
        "decided",
        "checkpoint",
        "tool_call_started",
        "tool_call_settled",
        "checkpoint",
        "model_started",
        "reasoning_delta",
        "text_delta",
        "text_delta",
        "text_delta",
        "model_replied",
        "checkpoint",
        "completed",
    ]
    assert (result.output, desk.done) == ("It is done.", ["look_up 7", "refund 7"])
    assert (events[0].decision.by.id, events[-1].output, {event.thread_id for event in events}) == (
        "ann",
        "It is done.",
        {"t"},
    )


def test_a_stream_has_the_same_gates_and_leaves_the_same_record_as_a_plain_call(driver: Driver, tmp_path: Path) -> None:
    script = [
        [call("look_up", {"order_id": 1}), call("refund", {"order_id": 2}), call("refund", {"order_id": 3})],
        [call("nothing"), call("refund", {"order_id": 4})],
        "done",
    ]
    ends = []
    for streamed in (True, False):
        desk = Desk(MemoryStore(), *script)
        result = take(driver, desk.agent, "go")[1] if streamed else driver.invoke(desk.agent, "go")
        while result.suspended:
            first, *others = result.checkpoint.pending
            chosen: dict[str, Any] = {first.id: Approve(args={"order_id": 9}), **{each.id: Reject() for each in others}}
            if streamed:
                result = take(driver, desk.agent, result.checkpoint, decisions=chosen)[1]
            else:
                result = driver.resume(desk.agent, result.checkpoint, decisions=chosen)
        ends.append(
            (outline(result), result.usage, desk.done, result.checkpoint.turn, len(result.checkpoint.decisions))
        )
    assert ends[0] == ends[1]
    assert ends[0][2] == ["look_up 1", "refund 9", "refund 9"]


def test_what_the_store_tells_again_is_what_was_told_with_the_same_ids(driver: Driver, store: Store) -> None:
    script = [[call("look_up", {"order_id": 1}), call("refund", {"order_id": 2}), call("nothing")], "well", "done"]
    desk = Desk(store, *script)
    told, result = take(driver, desk.agent, "go", thread_id="t")
    again, result = take(driver, desk.agent, result.checkpoint, approved=False, reason="no")
    next_run, _ = take(driver, desk.agent, "and now?", thread_id="t")
    kept = [event for event in told + again if event.type not in LIVE]
    found = list(replay(store, result.run_id))
    assert found == kept
    assert {event.type for event in found} >= {"run_started", "decided", "tool_call_settled", "completed"}
    settled = [(event.tool_name, event.kind) for event in found if event.type == "tool_call_settled"]
    assert settled == [("nothing", "invalid"), ("look_up", "completed"), ("refund", "rejected")]
    for place, event in enumerate(found):
        assert list(replay(store, result.run_id, after=event.id)) == found[place + 1 :]
    assert list(replay(store, next_run[0].run_id)) == [event for event in next_run if event.type not in LIVE]
    ids = [(event.seq, event.part) for event in told + again]
    assert ids == sorted(set(ids)), "ids grow, and none is given twice"


def test_a_resume_announces_nothing_again_and_a_reload_shows_what_is_left(driver: Driver, store: Store) -> None:
    """Of several that wait, each is asked about once, whoever resumes and however often. field failure 89"""
    desk = Desk(store, [call("refund", {"order_id": n}) for n in (1, 2, 3)], "done")
    first, result = take(driver, desk.agent, "go")
    waiting = [event.pending.id for event in first if event.type == "approval_requested"]
    assert waiting == [item.id for item in result.checkpoint.pending]
    later: list[Event] = []
    for pending_id, answer in zip(waiting, (Approve(), Reject(), Approve()), strict=True):
        events, result = take(driver, desk.agent, result.checkpoint, decisions={pending_id: answer})
        later += events
        assert [event.decision.pending_id for event in events if event.type == "decided"] == [pending_id]
        if result.suspended:
            assert [item.id for item in events[-1].pending] == [item.id for item in result.checkpoint.pending]
    assert not [event for event in later if event.type in ("approval_requested", "run_started")]
    settled = [event.call_id for event in later if event.type == "tool_call_settled"]
    assert (len(settled), len(set(settled)), desk.done) == (3, 3, ["refund 1", "refund 3"])


def test_a_page_that_lost_its_connection_between_two_pieces_gets_the_whole_reply(driver: Driver, store: Store) -> None:
    desk = Desk(store, "one two three")
    events, _ = take(driver, desk.agent, "go")
    lost_at = next(event for event in events if event.type == "text_delta")
    rest = list(replay(store, lost_at.branch_id, after=lost_at.id))
    assert types(rest) == ["model_replied", "checkpoint", "completed"]
    assert rest[0].text == "one two three"


@pytest.mark.parametrize("wrong", ["", "17", "x.y", "1.-1", "1.2.3"])
def test_an_id_that_is_none_is_refused(wrong: str) -> None:
    desk = Desk(MemoryStore(), "done")
    run_id = desk.agent.invoke("go").run_id
    with pytest.raises(ConfigurationError, match="no id of an event"):
        replay(desk.agent.store, run_id, after=wrong)


def test_events_travel_as_json(driver: Driver) -> None:
    desk = Desk(MemoryStore(), say("ok", call("refund", {"order_id": 2})), ModelError("away"))
    events, result = take(driver, desk.agent, "go")
    seen: list[Event] = []
    with pytest.raises(ModelError):
        take_until(driver, desk.agent, result.checkpoint, lambda event: seen.append(event) or False, approved=True)
    assert types(seen)[-1] == "failed"
    for event in events + seen:
        text = event.model_dump_json()
        assert event_from(text) == event
        assert f'"type":"{event.type}"' in text and '"version":1' in text
    for text in ("", "{}", '{"type":"unheard_of"}', "[]", '{"type":"text_delta","text":5}'):
        with pytest.raises(ConfigurationError, match="no event"):
            event_from(text)


def test_a_failure_is_told_and_then_raised_and_the_run_can_be_resumed(driver: Driver, store: Store) -> None:
    desk = Desk(store, call("look_up", {"order_id": 1}), ModelError("away"), "done")
    seen: list[Event] = []
    with pytest.raises(ModelError) as failed:
        take_until(driver, desk.agent, "go", lambda event: seen.append(event) or False)
    assert (seen[-1].type, seen[-1].error, seen[-1].message) == ("failed", "ModelError", "away")
    assert failed.value.checkpoint is not None
    assert seen[-1].checkpoint_id == failed.value.checkpoint.id
    assert store.branches()[0].status == "failed"
    events, result = take(driver, desk.agent, failed.value.checkpoint)
    assert (result.output, types(events)[0], desk.done) == ("done", "model_started", ["look_up 1"])


def test_the_events_of_a_refused_resume_are_none_and_nothing_has_happened(driver: Driver, store: Store) -> None:
    desk = Desk(store, call("refund", {"order_id": 1}), "done")
    _, waiting = take(driver, desk.agent, "go")
    take(driver, desk.agent, waiting.checkpoint, approved=True)
    with pytest.raises(CheckpointAlreadyResumed):
        take(driver, desk.agent, waiting.checkpoint, approved=True)
    assert desk.done == ["refund 1"]


# Leaving early

SCRIPT = [
    say("let me see", call("look_up", {"order_id": 1}), call("look_up", {"order_id": 2})),
    call("refund", {"order_id": 1}),
    "all done",
]
WHOLE = ["look_up 1", "look_up 2", "refund 1"]


@pytest.mark.parametrize("place", range(40))
def test_whoever_leaves_at_any_event_loses_no_state_and_runs_nothing_twice(
    driver: Driver, store: Store, place: int
) -> None:
    """Also between the intent to run a call and the call: nobody is asked about a call that was never begun."""
    desk = Desk(store)
    model = desk.agent.model
    assert isinstance(model, Pieces)
    model.inner = ScriptedModel.by_turn(SCRIPT)  # asked again, it says again what was left half said
    seen = 0

    def leave(event: Event) -> bool:
        nonlocal seen
        seen += 1
        return seen == place + 1

    head: Any = "go"
    options: dict[str, Any] = {}
    while seen <= place and not (isinstance(head, Checkpoint) and head.ended):
        take_until(driver, desk.agent, head, leave, **options)
        branch, head = store.head(store.branches()[0].id)
        assert branch.owner is None, "whoever leaves lets the run go"
        options = {"approved": True} if head.pending else {}
    while not head.ended:
        assert [item.why for item in head.pending] in ([], ["approval"])
        head = driver.resume(desk.agent, head, **options).checkpoint
        options = {"approved": True} if head.pending else {}
    assert sorted(desk.done) == WHOLE
    assert outline(head)[-1] == "assistant: all done"
    assert seen == place + 1 or seen > 30, "only the last places are beyond the end"


def test_whoever_leaves_while_calls_are_under_way_waits_for_them_all(driver: Driver, store: Store) -> None:
    told, done = threading.Event(), []

    @tool
    def work(n: int) -> str:
        """The first is quick; the others are not done before somebody has heard of it."""
        if n:
            assert told.wait(PATIENCE)
        done.append(n)
        return f"done {n}"

    agent = Agent(name="a", model=Pieces([call("work", {"n": n}) for n in range(4)], "end"), tools=[work], store=store)

    def leave(event: Event) -> bool:
        if event.type == "tool_call_settled":
            told.set()
        return told.is_set()

    take_until(driver, agent, "go", leave)
    head = store.load(store.branches()[0].head or "")
    assert sorted(done) == [0, 1, 2, 3]
    assert head.pending == ()
    result = driver.resume(agent, head)
    assert [message.text for message in result.messages if message.role == "tool"] == [f"done {n}" for n in range(4)]
    assert (result.output, len(done)) == ("end", 4)


def test_a_call_that_was_announced_and_not_begun_is_not_begun_and_not_unknown(driver: Driver, store: Store) -> None:
    desk = Desk(store, call("refund", {"order_id": 1}), "done")
    _, waiting = take(driver, desk.agent, "go")
    events = take_until(
        driver, desk.agent, waiting.checkpoint, lambda event: event.type == "tool_call_started", approved=True
    )
    assert (events[-1].attempt, desk.done) == (1, [])
    head = store.load(store.branches()[0].head or "")
    assert [item.type for item in head.journal] == ["started", "withdrawn"]
    assert head.pending == ()

    events, result = take(driver, desk.agent, head)
    assert [event.attempt for event in events if event.type == "tool_call_started"] == [1]
    assert (result.output, desk.done) == ("done", ["refund 1"])


def test_a_fork_of_a_run_that_withdrew_a_call_may_run_it(driver: Driver, store: Store) -> None:
    desk = Desk(store, call("refund", {"order_id": 1}), "done", "done")
    _, waiting = take(driver, desk.agent, "go")
    take_until(driver, desk.agent, waiting.checkpoint, lambda event: event.type == "tool_call_started", approved=True)
    fork = driver.fork(desk.agent, waiting.checkpoint)
    result = driver.resume(desk.agent, fork, approved=True)
    assert (result.output, desk.done) == ("done", ["refund 1"])


def test_a_store_that_is_away_when_the_intent_is_taken_back_leaves_it_to_a_human(driver: Driver) -> None:
    class Away(MemoryStore):
        away = False

        def append(self, change: Append) -> Branch:
            if self.away:
                raise ConnectionError("no route")
            return super().append(change)

    store = Away()
    desk = Desk(store, call("refund", {"order_id": 1}), "done")
    _, waiting = take(driver, desk.agent, "go")

    def leave(event: Event) -> bool:
        store.away = event.type == "tool_call_started"
        return store.away

    take_until(driver, desk.agent, waiting.checkpoint, leave, approved=True)
    store.away = False
    result = driver.recover(desk.agent, waiting.checkpoint.run_id)
    assert ([item.why for item in result.checkpoint.pending], desk.done) == (["outcome_unknown"], [])


def test_a_stream_that_is_left_closes_the_stream_of_the_model(driver: Driver) -> None:
    desk = Desk(MemoryStore(), "one two three four", "again")
    model = desk.agent.spec.model
    assert isinstance(model, Pieces)
    take_until(driver, desk.agent, "go", lambda event: event.type == "text_delta")
    assert model.closed == 1


def test_nothing_runs_before_the_first_event_is_asked_for(store: Store) -> None:
    desk = Desk(store, "done")
    stream = desk.agent.stream("go")
    with pytest.raises(ConfigurationError, match="not come to its end"):
        stream.result  # noqa: B018
    assert store.branches() == []
    stream.close()
    assert (list(stream), store.branches()) == ([], [])


def test_a_run_goes_no_further_than_the_events_that_were_taken(store: Store) -> None:
    desk = Desk(store, call("look_up", {"order_id": 1}), "done")
    with desk.agent.stream("go") as stream:
        for event in stream:
            if event.type == "tool_call_started":
                assert desk.done == []
            if isinstance(event, CheckpointSaved):
                assert store.load(event.checkpoint_id).journal == (), "nothing is begun at a checkpoint"
        assert stream.result.output == "done"
    assert desk.done == ["look_up 1"]


# What else may be streamed


def test_a_model_that_cannot_stream_is_asked_for_a_whole_reply(driver: Driver) -> None:
    desk = Desk(MemoryStore(), "done", pieces=False)
    agent = Agent(name="plain", model=_Plain(desk.agent.spec.model))
    events, result = take(driver, agent, "go")
    assert types(events) == ["run_started", "checkpoint", "model_started", "model_replied", "checkpoint", "completed"]
    assert result.output == "done"


class _Plain:
    """A model with nothing but the two methods of `Model`."""

    name = "plain"

    def __init__(self, inner: Any) -> None:
        self.complete, self.acomplete = inner.complete, inner.acomplete


def test_a_model_whose_stream_ends_without_a_reply_is_a_model_error(driver: Driver) -> None:
    class Cut(Pieces):
        def stream(self, request: ModelRequest) -> Iterator[Delta | ModelReply]:
            yield TextDelta(text="hal")

    agent = Agent(name="cut", model=Cut())
    with pytest.raises(ModelError, match="not with a ModelReply"):
        take(driver, agent, "go")
    assert agent.store.branches()[0].status == "failed"


def test_calls_side_by_side_are_told_as_they_settle(driver: Driver) -> None:
    second = threading.Event()

    @tool
    def slow() -> str:
        """Waits for the other."""
        assert second.wait(PATIENCE)
        return "slow"

    @tool
    def quick() -> str:
        """Does not wait."""
        return "quick"

    agent = Agent(name="both", model=Pieces([call("slow"), call("quick")], "done"), tools=[slow, quick])
    order = []

    def watch(event: Event) -> bool:
        if event.type == "tool_call_settled":
            order.append(event.tool_name)
            second.set()
        return False

    take_until(driver, agent, "go", watch)
    assert order == ["quick", "slow"]


def test_an_attempt_that_fails_is_told(driver: Driver) -> None:
    tries: list[int] = []

    @tool(retries=1, idempotent=True, retry_wait=0)
    def shaky() -> str:
        """Works the second time."""
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("shaken")
        return "ok"

    events, result = take(driver, Agent(name="a", model=Pieces(call("shaky"), "done"), tools=[shaky]), "go")
    told = [(event.type, event.tool_name) for event in events if event.type.startswith("tool_call_")]
    assert [each for each in told if each[0] != "tool_call_delta"] == [
        ("tool_call_started", "shaky"),
        ("tool_call_failed", "shaky"),
        ("tool_call_started", "shaky"),
        ("tool_call_settled", "shaky"),
    ]
    assert result.output == "done"


def test_an_async_tool_under_a_sync_stream_is_refused_when_it_is_asked_for() -> None:
    @tool
    async def later() -> str:
        """Later."""
        return "x"

    agent = Agent(name="a", model=Pieces("done"), tools=[later])
    with pytest.raises(AsyncRequired, match="astream"):
        agent.stream("go")


def test_a_stream_in_a_task_that_is_cancelled_lets_the_run_go(store: Store) -> None:
    started = asyncio.Event()

    class Hangs(Pieces):
        async def astream(self, request: ModelRequest) -> Any:
            yield TextDelta(text="well")
            started.set()
            await asyncio.Event().wait()

    agent = Agent(name="a", model=Hangs(), store=store)

    async def run() -> None:
        async def watch() -> None:
            async with agent.astream("go") as stream:
                async for _ in stream:
                    pass

        task = asyncio.create_task(watch())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert [(branch.owner, branch.status) for branch in store.branches()] == [(None, "failed")]


def test_a_decision_left_for_the_worker_that_holds_the_run_is_a_stream_of_nothing(tmp_path: Path) -> None:
    """Somebody else carries the run on, and tells of it: the result says so."""
    entered, leave = threading.Event(), threading.Event()

    @tool(requires_approval=True)
    def slow(n: int) -> str:
        """Takes until it may leave."""
        entered.set()
        assert leave.wait(PATIENCE)
        return f"slow {n}"

    with SQLiteStore(tmp_path / "runs.db") as store:
        agent = Agent(
            name="a",
            model=ScriptedModel([[call("slow", {"n": 1}), call("slow", {"n": 2})], "done"]),
            tools=[slow],
            store=store,
        )
        waiting = agent.invoke("go").checkpoint
        first, second = waiting.pending
        results: list[Result[Any]] = []
        worker = threading.Thread(target=lambda: results.append(agent.resume(waiting, decisions={first.id: Approve()})))
        worker.start()
        assert entered.wait(PATIENCE)
        stream = agent.stream(waiting, decisions={second.id: Approve()})
        assert (list(stream), stream.result.status) == ([], "running")
        leave.set()
        worker.join(PATIENCE)
        assert (results[0].output, results[0].status) == ("done", "completed")


@pytest.mark.parametrize("driver", [SYNC, ASYNC], ids=str)
def test_a_checkpoint_kept_as_text_can_be_streamed_from(driver: Driver) -> None:
    desk = Desk(MemoryStore(), call("refund", {"order_id": 1}), "done")
    _, waiting = take(driver, desk.agent, "go")
    other = Desk(MemoryStore(), "done", trust="bearer")
    kept = Checkpoint.model_validate_json(waiting.checkpoint.model_dump_json())
    events, result = take(driver, other.agent, kept, approved=True)
    assert types(events)[0] == "decided"
    assert (result.output, other.done) == ("done", ["refund 1"])
