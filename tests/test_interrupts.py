"""Asking from inside a tool: the body stops, a human answers, and it runs again from its beginning with the answer."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from drivers import ASYNC, PATIENCE, SYNC, Driver, rows, run
from loopback import loopback
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_serializer
from selection import scaled

from phronomy import (
    Agent,
    AgentChanged,
    ApprovalExpired,
    Approve,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointEdited,
    ConfigurationError,
    Hooks,
    InvalidDecision,
    MemoryStore,
    NothingDecided,
    Reject,
    Respond,
    Tool,
    ToolContext,
    UnknownPending,
    guardrail,
    interrupt,
    tool,
)
from phronomy.graph import END, START, StateGraph
from phronomy.observability.events import replay
from phronomy.records.checkpoint import decode
from phronomy.records.decisions import PendingApproval, call_digest
from phronomy.runs.wire import to_wire
from phronomy.stops.interrupts import asker_here, nobody_asks
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.testing.crash import Scene, sweep
from phronomy.tools.json_schema.answers import misfit


class Desk:
    """Makes tools and agents for one driver; the bodies write down in `said` what they do."""

    def __init__(self, driver: Driver, store: Store | None = None) -> None:
        self.driver = driver
        self.store = store if store is not None else MemoryStore()
        self.said: list[Any] = []

    def tool(self, body: Callable[..., Any], **options: Any) -> Tool:
        return tool(name=options.pop("name", body.__name__), **options)(self.driver.function(body))

    def sells(self, **options: Any) -> Tool:
        """A tool that asks whether to go on, and says the answer."""

        def sell(shares: int = 5) -> str:
            """Sell."""
            self.said.append("in")
            answer = interrupt({"sell": shares})
            self.said.append(answer)
            return f"sold {shares}: {answer}"

        return self.tool(sell, **options)

    def agent(self, *tools: Any, replies: Any = None, **options: Any) -> Agent[Any, Any]:
        """An agent whose model calls each tool once, all in one reply, and then says goodbye."""
        replies = replies or [[call(each.name) for each in tools], "bye"]
        options.setdefault("store", self.store)
        return Agent(name="desk", model=ScriptedModel.by_turn(replies), tools=tools, **options)

    def asked(self, agent: Agent[Any, Any], **options: Any) -> Checkpoint:
        """The checkpoint at which a run stops that must wait."""
        result = self.driver.invoke(agent, "go", **options)
        assert result.suspended, result
        return result.checkpoint

    def answer(self, agent: Agent[Any, Any], at: Checkpoint, answer: Any, **options: Any) -> Any:
        """What comes of answering the one thing that waits."""
        [item] = at.pending
        return self.driver.resume(agent, at, decisions={item.id: answer}, **options)


@pytest.fixture
def desk(driver: Driver, store: Store) -> Desk:
    return Desk(driver, store)


@pytest.fixture
def quick(driver: Driver) -> Desk:
    """A desk over memory, where it does not matter what keeps it."""
    return Desk(driver)


def told(at: Any) -> list[tuple[str | None, str]]:
    """How each call ended, and the text that the model reads."""
    return [(message.settlement, message.text) for message in at.messages if message.role == "tool"]


def refused(desk: Desk, agent: Agent[Any, Any], at: Checkpoint, answer: Any, error: type[Exception]) -> str:
    """The decision raises the error, and nothing has happened; the text of the error."""
    before, said = rows(desk.store), list(desk.said)
    with pytest.raises(error) as caught:
        desk.answer(agent, at, answer)
    assert (rows(desk.store), desk.said) == (before, said)
    return str(caught.value)


# Asking


def test_a_tool_asks_and_runs_again_from_its_beginning_with_the_answer(desk: Desk) -> None:
    agent = desk.agent(desk.sells())
    at = desk.asked(agent)
    [item] = at.pending
    assert (item.why, item.tool_name, item.path, item.call_id) == ("question", "sell", "", at.calls[0].call_id)
    assert item.args == {"key": "0", "payload": {"sell": 5}, "answer": None}
    assert item.digest == call_digest(item.tool, item.json_text("args"))
    assert (item.expires_at, at.status, desk.said) == (None, "suspended", ["in"])
    [row] = desk.store.pending()
    assert (row.approval, row.run_id) == (item, at.run_id)

    result = desk.answer(agent, at, Respond(content={"price": 3}), by="ann", channel="desk")
    assert (result.output, desk.said) == ("bye", ["in", "in", {"price": 3}])
    assert told(result) == [("completed", "sold 5: {'price': 3}")]
    [decision] = result.checkpoint.decisions
    assert (decision.pending_id, decision.kind, decision.content) == (item.id, "respond", {"price": 3})
    assert decision.digest == item.digest and decision.by is not None and decision.by.id == "ann"
    assert desk.store.pending() == []
    [record] = desk.store.audit()
    assert (record.pending_id, record.kind, record.tool_name, record.channel) == (item.id, "respond", "sell", "desk")


def test_it_is_asked_once_and_under_the_same_id_while_it_waits(desk: Desk) -> None:
    """Another call of the reply is decided meanwhile: the body that asks is left alone."""
    agent = desk.agent(desk.sells(), desk.tool(lambda: "done", name="gated", requires_approval=True))
    at = desk.asked(agent)
    question, gate = at.pending
    later = desk.driver.resume(agent, at, decisions={gate.id: Approve()}).checkpoint
    assert (later.pending, desk.said) == ((question,), ["in"])
    assert desk.driver.recover(agent, at.run_id).checkpoint.pending == (question,)
    with pytest.raises(NothingDecided):
        desk.driver.resume(agent, later)
    assert desk.said == ["in"]
    assert desk.answer(agent, later, Approve()).output == "bye"
    assert desk.said == ["in", "in", True]


def test_questions_are_asked_in_their_order_and_answered_ones_are_not_asked_again(desk: Desk) -> None:
    def talk() -> str:
        found = []
        for key in ("who", None, "how"):
            desk.said.append(f"ask {key}")
            found.append(interrupt(f"{key}?", key=key))
        return " ".join(found)

    agent = desk.agent(desk.tool(talk))
    at = desk.asked(agent)
    ids = []
    for key, answer in (("who", "you"), ("1", "and"), ("how", "so")):
        [item] = at.pending
        assert item.args["key"] == key
        ids.append(item.id)
        result = desk.answer(agent, at, Respond(content=answer))
        at = result.checkpoint
    assert told(result) == [("completed", "you and so")]
    assert desk.said == ["ask who", "ask who", "ask None"] + ["ask who", "ask None", "ask how"] * 2
    assert len(set(ids)) == 3
    assert [decision.pending_id for decision in at.decisions] == ids


def test_an_answer_counts_for_its_key_whatever_the_payload_is_by_then(quick: Desk) -> None:
    prices = iter([1, 2])

    def sell() -> str:
        return f"{interrupt({'price': next(prices)}, key='sell')}"

    agent = quick.agent(quick.tool(sell))
    result = quick.answer(agent, quick.asked(agent), Approve())
    assert told(result) == [("completed", "True")]


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (Approve(), True),
        (Respond(content=None), None),
        (Respond(content=False), False),
        (Respond(content=""), ""),
        (Respond(content=5.0), 5.0),
        (Respond(content=[{"a": None}]), [{"a": None}]),
    ],
    ids=repr,
)
def test_what_is_answered_is_what_the_body_gets(quick: Desk, answer: Any, value: Any) -> None:
    agent = quick.agent(quick.sells())
    result = quick.answer(agent, quick.asked(agent), answer)
    assert result.output == "bye"
    assert quick.said[2:] == [value] and type(quick.said[2]) is type(value)


def test_approved_answers_the_first_question(desk: Desk) -> None:
    agent = desk.agent(desk.sells())
    assert desk.driver.resume(agent, desk.asked(agent), approved=True).output == "bye"
    result = desk.driver.resume(agent, desk.asked(agent), approved=False, reason="not today")
    assert desk.said == ["in", "in", True, "in"]
    assert told(result) == [
        ("rejected", "This call asked a human before it was through. A human rejected this call, and it was left at that. "
         "Reason: not today")
    ]  # fmt: skip


# Not answering


@pytest.mark.parametrize("then", ["continue", "block", "block_tool", "end"])
def test_a_rejection_settles_the_call_and_the_body_does_not_run_again(desk: Desk, then: Any) -> None:
    agent = desk.agent(desk.sells(), replies=[call("sell"), call("sell"), "bye"])
    result = desk.answer(agent, desk.asked(agent), Reject(reason="no", then=then))
    settled = ("rejected", "This call asked a human before it was through. A human rejected this call, and it was left at "
               "that. Reason: no")  # fmt: skip
    assert told(result)[0] == settled
    if then == "continue":
        assert result.suspended and desk.said == ["in", "in"]
        return
    assert desk.said == ["in"]
    assert result.status == ("rejected" if then == "end" else "completed")
    blocked = ("rejected", "This exact call was rejected before and was not run. Do not ask for it again.")
    no_more = (
        "rejected",
        "This tool was rejected for the rest of this run, so the call was not run. Do not call the tool again.",
    )
    assert told(result)[1:] == {"block": [blocked], "block_tool": [no_more]}.get(then, [])


@pytest.mark.parametrize("on_expiry", ["reject", "cancel", "stay"])
def test_a_question_lapses_as_an_approval_does(driver: Driver, on_expiry: Any) -> None:
    now = [1_800_000_000.0]
    desk = Desk(driver, MemoryStore(clock=lambda: now[0]))
    agent = desk.agent(desk.sells(approval_timeout=60, on_expiry=on_expiry))
    at = desk.asked(agent)
    [item] = at.pending
    assert item.expires_at is not None and item.expires_at - item.requested_at == timedelta(seconds=60)
    now[0] += 61
    if on_expiry == "stay":
        assert desk.answer(agent, at, Approve()).output == "bye"
        return
    with pytest.raises(ApprovalExpired) as caught:
        desk.answer(agent, at, Approve())
    assert caught.value.result.status == ("completed" if on_expiry == "reject" else "cancelled")
    [(how, text)] = told(caught.value.result)
    assert how == "expired" and text.startswith("This call asked a human before it was through. Nobody decided")
    assert desk.said == ["in"]


def test_a_cancelled_or_superseded_run_says_that_the_call_had_begun(desk: Desk) -> None:
    agent = desk.agent(desk.sells(), replies=[call("sell"), "bye"])
    at = desk.asked(agent)
    result = desk.driver.cancel(agent, at, reason="enough")
    assert told(result) == [
        ("cancelled", "This call asked a human before it was through. The run was cancelled, and it was left at that. "
         "Reason: enough")
    ]  # fmt: skip
    with pytest.raises(CheckpointAlreadyResumed):
        desk.answer(agent, at, Approve())

    at = desk.asked(agent, thread_id="t")
    desk.driver.invoke(agent, "never mind", thread_id="t", on_pending="supersede")
    over = next(each for each in desk.store.branches() if each.id == at.branch_id)
    [(how, text), *_] = told(desk.store.load(over.head))
    assert (over.status, how) == ("superseded", "superseded")
    assert text.startswith("This call asked a human before it was through. A new message came")
    assert desk.said == ["in"] * 3, "the last is the new run's own"


def test_an_answered_call_that_is_cancelled_before_it_runs_again_is_not_said_to_have_not_run(desk: Desk) -> None:
    agent = desk.agent(desk.sells())
    at = desk.asked(agent)
    answered = desk.driver.step(agent, at, decisions={at.pending[0].id: Approve()})
    assert (answered.status, answered.checkpoint.pending, desk.said) == ("running", (), ["in"])
    [(how, text)] = told(desk.driver.cancel(agent, answered.checkpoint))
    assert (how, text) == ("cancelled", "The run was cancelled, and what this call had begun was left at that.")


# The type of the answer


class Order(BaseModel):
    """What a human fills in."""

    model_config = ConfigDict(strict=True)

    shares: int = Field(gt=0)
    on: date
    tags: tuple[str, ...] = ()


ANSWERS: list[Any] = [
    pytest.param(bool, Approve(), True, [Respond(content="s3cret"), Respond(content=1)], id="bool"),
    pytest.param(
        Literal["buy", "sell"], Respond(content="buy"), "buy", [Respond(content="s3cret"), Approve()], id="literal"
    ),
    pytest.param(
        Order,
        Respond(content={"shares": 2, "on": "2026-01-01", "tags": ["a"]}),
        Order(shares=2, on=date(2026, 1, 1), tags=("a",)),
        [
            Respond(content={"shares": 0, "on": "2026-01-01"}),
            Respond(content={"shares": 1, "on": "s3cret"}),
            Respond(content={"shares": "s3cret", "on": "2026-01-01"}),
            Respond(content="s3cret"),
            Approve(),
        ],
        id="model",
    ),
    pytest.param(
        datetime | None,
        Respond(content="2026-01-01T00:00:00Z"),
        datetime(2026, 1, 1, tzinfo=UTC),
        [Respond(content="s3cret"), Respond(content=5)],
        id="time",
    ),
    pytest.param(
        dict[str, list[int]], Respond(content={"a": [1]}), {"a": [1]}, [Respond(content={"a": ["s3cret"]})], id="dict"
    ),
]


@pytest.mark.parametrize(("type", "right", "value", "wrong"), ANSWERS)
def test_an_answer_of_another_type_is_refused_before_anything_is_consumed(
    quick: Desk, type: Any, right: Any, value: Any, wrong: list[Any]
) -> None:
    """E23."""

    def ask() -> str:
        quick.said.append(interrupt("well?", key="what", answer=type))
        return "done"

    agent = quick.agent(quick.tool(ask))
    at = quick.asked(agent)
    [item] = at.pending
    assert isinstance(item.args["answer"], dict)
    for answer in wrong:
        text = refused(quick, agent, at, answer, InvalidDecision)
        assert "'what'" in text and item.id in text
        assert "s3cret" not in text
    assert quick.answer(agent, at, right).output == "bye"
    assert quick.said == [value]


def test_a_rejection_needs_no_type(quick: Desk) -> None:
    agent = quick.agent(quick.tool(lambda: interrupt(answer=int), name="ask"))
    assert told(quick.answer(agent, quick.asked(agent), Reject()))[0][0] == "rejected"


def even(value: int) -> int:
    if value % 2:
        raise ValueError(f"{value} is odd")
    return value


def test_a_check_that_no_schema_tells_fails_the_call_without_quoting_the_answer(quick: Desk) -> None:
    """A schema is all that whoever decides has: the type itself is in the process that asked."""

    def ask() -> str:
        return f"{interrupt(answer=Annotated[int, AfterValidator(even)])}"

    agent = quick.agent(quick.tool(ask))
    at = quick.asked(agent)
    result = quick.answer(agent, at, Respond(content=4711))
    [(how, text)] = told(result)
    assert how == "failed" and text.startswith("InvalidDecision: the answer to question '0'") and "4711" not in text
    assert told(quick.answer(agent, quick.asked(agent), Respond(content=4))) == [("completed", "4")]


def test_a_question_has_no_arguments_to_edit(desk: Desk) -> None:
    agent = desk.agent(desk.sells())
    at = desk.asked(agent)
    text = refused(desk, agent, at, Approve(args={"key": "0", "payload": {"sell": 1}}), InvalidDecision)
    assert "answer it with Respond" in text
    assert desk.answer(agent, at, Approve()).output == "bye"


@pytest.mark.parametrize(
    ("value", "schema", "wrong"),
    [
        (1, {"type": "integer"}, None),
        (1, {"type": "nonsense"}, "cannot be read"),
        (1, 5, "cannot be read"),
        ("x", {"pattern": "("}, "cannot be read"),
        (1, {"$ref": "#"}, "cannot be read"),
        ("PT1H", {"format": "duration"}, None),
        ("an hour", {"format": "duration"}, "'format'"),
        ("12:00", {"format": "time"}, None),
        ("noon", {"format": "time"}, "'format'"),
        (5, {"format": "uuid"}, None),
        ("u", {"format": "uuid"}, "'format'"),
        ("u", {"format": "unheard-of"}, None),
        ([{"a": "s3cret"}], {"items": {"properties": {"a": {"type": "null"}}}}, "0.a does not fit 'type'"),
    ],
)
def test_what_of_a_schema_is_checked(value: Any, schema: Any, wrong: str | None) -> None:
    """A checkpoint from elsewhere may bring any schema; one that cannot be read fits no answer."""
    found = misfit(value, schema)
    assert found is None if wrong is None else (found is not None and wrong in found and "s3cret" not in found)


def test_nothing_is_fetched_for_a_schema_from_elsewhere() -> None:
    """Whoever brings a checkpoint must not have this process ask addresses that it chose."""
    visits: list[str] = []

    class Trap(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            visits.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with loopback(Trap) as (_, url):
        assert misfit(1, {"$ref": f"{url}/schema"}) == "the schema of the question cannot be read"
    assert visits == []


# What cannot be asked


def circle() -> Any:
    round_: list[Any] = []
    round_.append(round_)
    return round_


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "payload", [object(), float("nan"), circle(), deep(64), deep(5000), {1: object()}],
    ids=["object", "nan", "circle", "a level too deep", "deep", "inner"],
)  # fmt: skip
def test_a_payload_that_is_no_json_fails_the_call(quick: Desk, payload: Any) -> None:
    agent = quick.agent(quick.tool(lambda: interrupt(payload), name="ask"))
    result = quick.driver.invoke(agent, "go")
    [(how, text)] = told(result)
    assert how == "failed"
    assert text == "ConfigurationError: the payload of question '0' cannot be made JSON of, so nobody could be shown it"


def test_a_payload_is_shown_as_pydantic_writes_it(quick: Desk) -> None:
    payload = {"at": datetime(2026, 1, 1, tzinfo=UTC), "order": Order(shares=1, on=date(2026, 1, 1)), "text": "\ud800"}
    agent = quick.agent(quick.tool(lambda: interrupt(payload, key="\ud800"), name="ask"))
    at = quick.asked(agent)
    shown = {"at": "2026-01-01T00:00:00Z", "order": {"shares": 1, "on": "2026-01-01", "tags": []}, "text": "\ufffd"}
    assert at.pending[0].args == {"key": "\ufffd", "payload": shown, "answer": None}
    assert told(quick.answer(agent, at, Approve())) == [("completed", "true")]


@pytest.mark.parametrize("keys", [("a", "a"), ("",), (5,), ("0", None, "1"), ("\ud800", "\ufffd")], ids=repr)
def test_a_key_is_text_that_no_other_question_of_the_body_has(quick: Desk, keys: Any) -> None:
    def ask() -> str:
        return " ".join(f"{interrupt(key=key)}" for key in keys)

    agent = quick.agent(quick.tool(ask))
    result = quick.driver.invoke(agent, "go")
    while result.suspended:
        result = quick.answer(agent, result.checkpoint, Approve())
    [(how, text)] = told(result)
    assert how == "failed" and text.startswith("ConfigurationError: the key of a question is text that no other")


def test_a_type_without_a_schema_cannot_be_asked_for(quick: Desk) -> None:
    class Thing:
        """Nothing that pydantic knows."""

    types: list[Any] = [Thing, Callable[[], int]]
    while types:
        agent = quick.agent(quick.tool(lambda: interrupt(answer=types.pop()), name="ask"))
        [(how, text)] = told(quick.driver.invoke(agent, "go"))
        assert how == "failed" and "no JSON Schema can be made of" in text


def test_outside_of_a_tool_nobody_can_be_asked(quick: Desk) -> None:
    with pytest.raises(ConfigurationError, match="outside"):
        interrupt("anybody there?")
    with pytest.raises(ConfigurationError, match="outside"):
        tool(name="ask")(lambda: interrupt("anybody there?"))()  # called as the function that it is


def test_a_thread_of_the_bodys_own_is_outside(quick: Desk) -> None:
    caught: list[BaseException] = []

    def ask() -> str:
        def work() -> None:
            try:
                interrupt("here?")
            except BaseException as error:
                caught.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return "done"

    assert quick.driver.invoke(quick.agent(quick.tool(ask)), "go").output == "bye"
    assert [type(error) for error in caught] == [ConfigurationError]


@pytest.mark.parametrize("how", ["thread", "task"])
@pytest.mark.parametrize("answered", [False, True])
def test_what_the_body_left_behind_can_ask_nobody(how: str, answered: bool) -> None:
    """It is refused at once, whether or not the body asked the same and was answered."""
    driver = ASYNC if how == "task" else SYNC
    desk, leave = Desk(driver), threading.Event()
    left: list[Any] = []

    def later() -> None:
        assert leave.wait(PATIENCE)
        try:
            desk.said.append(interrupt("after all?", key="k"))
        except BaseException as error:
            desk.said.append((type(error), str(error)))

    def in_thread() -> str:
        if answered:
            interrupt("now?", key="k" if left else "other")
        left.append(threading.Thread(target=contextvars.copy_context().run, args=(later,)))
        left[-1].start()
        return "done"

    async def in_task() -> str:
        if answered:
            interrupt("now?", key="k" if left else "other")
        left.append(asyncio.ensure_future(asyncio.to_thread(later)))
        return "done"

    leaves = tool(name="leaves")(in_task if how == "task" else in_thread)
    agent = desk.agent(leaves)

    async def over() -> Any:
        result = await agent.ainvoke("go")
        if answered:
            result = await agent.aresume(result.checkpoint, approved=True)
        leave.set()
        await left[0]
        return result

    if how == "task":
        result = run(over())
    else:
        result = driver.invoke(agent, "go")
        if answered:
            result = driver.resume(agent, result.checkpoint, approved=True)
        leave.set()
        left[0].join(PATIENCE)
    assert (result.output, told(result)) == ("bye", [("completed", "done")])
    [(kind, text)] = desk.said
    assert kind is ConfigurationError and text == (
        "the body of 'leaves' has ended or was left, so it can ask and call nothing more: do that before it returns, and wait in it"
        " for its tasks and threads"
    )


def test_a_question_that_is_made_while_the_body_ends_is_refused_too(quick: Desk) -> None:
    """Its payload is still being made JSON of: whoever asks learns that nobody hears it."""
    begun, ended = threading.Event(), threading.Event()

    class Slow(BaseModel):
        @model_serializer
        def show(self) -> str:
            begun.set()
            assert ended.wait(PATIENCE)
            return "slow"

    def later() -> None:
        try:
            interrupt(Slow())
        except BaseException as error:
            quick.said.append(type(error))

    def leaves() -> str:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(later,))
        threads.append(thread)
        thread.start()
        assert begun.wait(PATIENCE)
        return "done"

    threads: list[threading.Thread] = []
    assert quick.driver.invoke(quick.agent(quick.tool(leaves)), "go").output == "bye"
    ended.set()
    threads[0].join(PATIENCE)
    assert quick.said == [ConfigurationError]


class Asks(Hooks):
    """Hooks that ask, wherever they are called, and note what comes of it."""

    def __init__(self, said: list[Any]) -> None:
        self.said = said

    def ask(self) -> None:
        try:
            self.said.append(interrupt("by a hook?", key="k"))
        except BaseException as error:
            self.said.append(type(error))

    def on_event(self, event: Any) -> None:
        self.ask()

    @contextmanager
    def running(self, branch_id: str, path: str, call_id: str) -> Iterator[None]:
        self.ask()
        try:
            yield
        finally:
            self.ask()


def test_a_hook_asks_nothing_in_the_name_of_the_body_that_it_is_around(quick: Desk) -> None:
    agent = quick.agent(quick.tool(lambda: f"{interrupt('ok?', key='k')}", name="sell"), hooks=[Asks(quick.said)])
    at = quick.asked(agent)
    assert [item.args["payload"] for item in at.pending] == ["ok?"]
    assert told(quick.answer(agent, at, Approve())) == [("completed", "True")]
    assert set(quick.said) == {ConfigurationError}


@pytest.mark.parametrize("by", ["invoke", "stream"])
@pytest.mark.parametrize("who", ["handler", "guardrail", "instructions", "hook"])
def test_what_a_run_within_a_body_calls_asks_nothing_in_its_name(driver: Driver, by: str, who: str) -> None:
    """The question would be put to those who decide the outer call, and its answer be an approval of the inner one."""
    desk, found = Desk(driver), []

    def ask(*_: Any) -> Any:
        try:
            found.append(interrupt("by another?", key="k"))
        except BaseException as error:
            found.append(type(error))
        return None

    options: dict[str, Any] = {
        "handler": {"on_approval_required": lambda name, args: ask() or False},
        "guardrail": {"input_guardrails": [guardrail(name="asks")(lambda text: ask())]},
        "instructions": {"instructions": lambda context: ask() or "Sell."},
        "hook": {"hooks": [Asks(found)]},
    }[who]
    inner = Desk(driver).agent(desk.tool(lambda: "sold", name="sell", requires_approval=who == "handler"), **options)

    def outer() -> str:
        if by == "invoke":
            output = inner.invoke("go").output
        else:
            with inner.stream("go") as events:
                for event in events:
                    if event.type == "run_started":
                        desk.said.append(interrupt("between events?", key="started"))
            output = events.result.output
        return f"{output} {interrupt('by the body?', key='k')}"

    async def aouter() -> str:
        if by == "invoke":
            output = (await inner.ainvoke("go")).output
        else:
            async with inner.astream("go") as events:
                async for event in events:
                    if event.type == "run_started":
                        desk.said.append(interrupt("between events?", key="started"))
            output = events.result.output
        return f"{output} {interrupt('by the body?', key='k')}"

    agent = desk.agent(tool(name="outer")(aouter if driver.is_async else outer))
    result, shown = driver.invoke(agent, "go"), []
    while result.suspended:
        shown += [item.args["payload"] for item in result.checkpoint.pending]
        result = desk.answer(agent, result.checkpoint, Approve())
    assert shown == [*(["between events?"] if by == "stream" else []), "by the body?"]
    assert told(result) == [("completed", "bye True")]
    assert set(found) == {ConfigurationError}


def test_what_the_garbage_collector_closes_in_another_context_says_nothing() -> None:
    """A coroutine whose loop was left, by Ctrl-C say, is closed wherever it is collected."""
    driving = nobody_asks()
    contextvars.copy_context().run(driving.__enter__)
    driving.__exit__(None, None, None)


def test_a_gate_that_asks_is_a_gate_that_raises(quick: Desk) -> None:
    """Then a human is asked, for approval."""
    agent = quick.agent(quick.sells(requires_approval=lambda args: interrupt("ok?")))
    [item] = quick.asked(agent).pending
    assert (item.why, quick.said) == ("approval", [])


def test_a_question_is_none_for_the_approval_handler(quick: Desk) -> None:
    """It answers whether a call may run; a question has an answer of its own."""
    seen: list[str] = []
    agent = quick.agent(quick.sells(), on_approval_required=lambda name, args: seen.append(name))
    at = quick.asked(agent)
    assert (at.pending[0].why, seen) == ("question", [])
    assert quick.answer(agent, at, Approve()).output == "bye"
    assert seen == []


# What bodies do


def test_what_a_body_catches_is_not_the_question(desk: Desk) -> None:
    def careful() -> str:
        try:
            return f"{interrupt('ok?')}"
        except Exception:
            return "swallowed"
        finally:
            desk.said.append("tidied up")

    agent = desk.agent(desk.tool(careful))
    at = desk.asked(agent)
    assert desk.said == ["tidied up"]
    assert told(desk.answer(agent, at, Approve())) == [("completed", "True")]


@pytest.mark.parametrize("options", [{}, {"timeout": 60}], ids=["plain", "timeout"])
@pytest.mark.parametrize(
    ("driver", "how"),
    [(SYNC, "sync"), *((ASYNC, how) for how in ("sync", "async", "to thread", "task group", "groups in groups"))],
    ids=str,
)
def test_every_kind_of_body_can_ask(driver: Driver, options: Any, how: str) -> None:
    said: list[Any] = []

    def sync() -> str:
        said.append("in")
        return f"{interrupt('ok?', key='k')}"

    async def body() -> str:
        return sync()

    async def to_thread() -> str:
        return await asyncio.to_thread(sync)

    async def group() -> str:
        async with asyncio.TaskGroup() as tasks:
            other = tasks.create_task(asyncio.sleep(0, "other"))
            task = tasks.create_task(body())
        return f"{other.result()} {task.result()}"

    async def groups() -> str:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(group())
        return task.result()

    bodies: dict[str, Any] = {
        "sync": sync,
        "async": body,
        "to thread": to_thread,
        "task group": group,
        "groups in groups": groups,
    }
    ask = tool(name="ask", **options)(bodies[how])
    agent: Any = Agent(model=ScriptedModel.by_turn([call("ask"), "bye"]), tools=[ask])
    at = driver.invoke(agent, "go").checkpoint
    assert ([item.args["key"] for item in at.pending], said) == (["k"], ["in"])
    result = driver.resume(agent, at, approved=True)
    assert (result.output, said) == ("bye", ["in", "in"])
    assert told(result) == [("completed", "other True" if "group" in how else "True")]


def swallowed(how: str) -> Any:
    """A body that asks, and keeps the question from whoever waits for it; or two, in tasks of its own."""

    def returns() -> str:
        try:
            interrupt("a", key="a")
        except BaseException:
            return "nobody was asked"
        return "asked"

    def finally_returns() -> str:
        answer = "nobody was asked"
        try:
            answer = "asked" if interrupt("a", key="a") else ""
        finally:
            return answer  # noqa: B012

    def raises() -> str:
        try:
            interrupt("a", key="a")
        except BaseException:
            raise ValueError("another error") from None
        return "asked"

    def suppressed() -> str:
        with suppress(BaseException):
            return str(interrupt("a", key="a"))
        return "nobody was asked"

    async def ask(name: str) -> Any:
        return interrupt(name, key=name)

    async def gather() -> str:
        found = await asyncio.gather(ask("a"), ask("b"), return_exceptions=True)
        return " ".join(map(str, found))

    async def wait() -> str:
        tasks = [asyncio.ensure_future(ask(name)) for name in ("a", "b")]
        done, _ = await asyncio.wait(tasks)
        return f"{len(done)} are done"

    bodies = {each.__name__: each for each in (returns, finally_returns, raises, suppressed, gather, wait)}
    return bodies[how]


SWALLOWED = [
    *((driver, how) for driver in (SYNC, ASYNC) for how in ("returns", "finally_returns", "raises", "suppressed")),
    *((ASYNC, how) for how in ("gather", "wait")),
]


@pytest.mark.parametrize("options", [{}, {"timeout": 60}, {"retries": 2, "idempotent": True}], ids=str)
@pytest.mark.parametrize(("driver", "how"), SWALLOWED, ids=str)
def test_a_question_that_the_body_swallows_is_asked_all_the_same(driver: Driver, options: Any, how: str) -> None:
    body = swallowed(how)
    ask = tool(name="ask", **options)(body if how in ("gather", "wait") else driver.function(body))
    agent: Any = Agent(model=ScriptedModel.by_turn([call("ask"), "bye"]), tools=[ask])
    result = driver.invoke(agent, "go")
    asked = []
    while result.status == "suspended":
        [item] = result.checkpoint.pending
        asked.append((item.why, item.args["payload"]))
        result = driver.resume(agent, result.checkpoint, decisions={item.id: Approve()})
    both = how in ("gather", "wait")
    assert asked == ([("question", "a"), ("question", "b")] if both else [("question", "a")])
    told_all = {"gather": "True True", "wait": "2 are done", "suppressed": "True"}
    assert told(result) == [("completed", told_all.get(how, "asked"))]


def test_nor_is_it_lost_in_a_node(driver: Driver) -> None:
    class State(BaseModel):
        said: str = ""

    body = swallowed("returns")
    node = driver.function(lambda state: {"said": body()})
    graph: Any = StateGraph(State).add_node("ask", node).add_edge(START, "ask").add_edge("ask", END).compile()
    result = driver.invoke(graph, {})
    [item] = result.checkpoint.pending
    assert (item.why, item.args["payload"]) == ("question", "a")
    assert driver.resume(graph, result.checkpoint, approved=True).output.said == "asked"


def test_a_body_that_overran_after_it_asked_has_an_unknown_outcome(driver: Driver) -> None:
    """It goes on, and may have done anything: that comes before its question."""
    over = threading.Event()

    def ask() -> str:
        with suppress(BaseException):
            interrupt("a")
        over.wait(PATIENCE)
        return "late"

    slow = tool(name="ask", timeout=0.05)(ask)
    agent: Any = Agent(model=ScriptedModel.by_turn([call("ask"), "bye"]), tools=[slow])
    result = driver.invoke(agent, "go")
    assert [item.why for item in result.checkpoint.pending] == ["outcome_unknown"]
    over.set()


def test_a_group_of_other_exceptions_fails_the_call() -> None:
    async def ask() -> str:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(0))
            raise ValueError("no")

    class Odd(BaseException):
        """Nothing that a tool should raise."""

    async def odd() -> str:
        raise BaseExceptionGroup("two", [Odd(), ValueError("no")])

    agent: Any = Agent(model=ScriptedModel.by_turn([call("ask"), "bye"]), tools=[tool(name="ask")(ask)])
    [(how, text)] = told(ASYNC.invoke(agent, "go"))
    assert how == "failed" and text.startswith("ExceptionGroup")
    agent = Agent(model=ScriptedModel.by_turn([call("odd"), "bye"]), tools=[tool(name="odd")(odd)])
    with pytest.raises(BaseExceptionGroup):
        ASYNC.invoke(agent, "go")


def test_a_body_in_a_run_of_its_own_asks_for_itself(quick: Desk) -> None:
    """The inner run is a plain value to the outer tool; its question is its own, not the outer tool's. E34."""
    inner = quick.agent(quick.sells(), store=MemoryStore())

    def outer() -> str:
        result = inner.invoke("go") if not quick.driver.is_async else run_in_thread(lambda: ASYNC.invoke(inner, "go"))
        mine = interrupt("mine?", key="0")
        return f"{result.status} {mine}"

    agent = quick.agent(quick.tool(outer))
    at = quick.asked(agent)
    assert [item.args["payload"] for item in at.pending] == ["mine?"]
    assert told(quick.answer(agent, at, Approve())) == [("completed", "suspended True")]


def run_in_thread(work: Callable[[], Any]) -> Any:
    """What the work gives, from a thread that has no event loop."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


# Beside other calls


def test_two_of_three_calls_of_a_reply_ask_and_the_third_is_through(desk: Desk) -> None:
    """E24, E27."""

    def ask(name: str) -> Tool:
        def body() -> str:
            desk.said.append(name)
            return f"{name} {interrupt(name)}"

        return desk.tool(body, name=name)

    agent = desk.agent(ask("one"), desk.tool(lambda: "seen", name="look"), ask("two"))
    at = desk.asked(agent)
    first, second = at.pending
    assert [each.status for each in at.calls] == ["nested", "settled", "nested"]
    assert (first.args["payload"], second.args["payload"], sorted(desk.said)) == ("one", "two", ["one", "two"])
    assert first.id != second.id, "the same key, in two calls"

    result = desk.driver.resume(agent, at, decisions={second.id: Respond(content="2")})
    assert (result.checkpoint.pending, desk.said[2:]) == ((first,), ["two"])
    with pytest.raises(CheckpointAlreadyResumed) as caught:
        desk.driver.resume(agent, at, decisions={second.id: Respond(content="3")})
    assert caught.value.decision is not None and caught.value.decision.content == "2"
    result = desk.driver.resume(agent, at, decisions={first.id: Respond(content="1")})
    assert told(result) == [("completed", "one 1"), ("completed", "seen"), ("completed", "two 2")]
    assert desk.said[2:] == ["two", "one"]


def test_both_can_be_answered_at_once(desk: Desk) -> None:
    """E24."""
    agent = desk.agent(desk.sells(), desk.sells(name="again"))
    at = desk.asked(agent)
    one, two = at.pending
    result = desk.driver.resume(agent, at, decisions={one.id: Respond(content=1), two.id: Reject()})
    assert [how for how, _ in told(result)] == ["completed", "rejected"]
    assert desk.said == ["in", "in", "in", 1]


def test_a_gated_tool_is_approved_first_and_asks_then(desk: Desk) -> None:
    agent = desk.agent(desk.sells(requires_approval=True))
    at = desk.asked(agent)
    [gate] = at.pending
    assert (gate.why, desk.said) == ("approval", [])
    at = desk.answer(agent, at, Approve(args={"shares": 2})).checkpoint
    [item] = at.pending
    assert (item.why, item.args["payload"], desk.said) == ("question", {"sell": 2}, ["in"])
    result = desk.answer(agent, at, Respond(content="yes"))
    assert [decision.kind for decision in result.checkpoint.decisions] == ["approve", "respond"]
    assert "sold 2: yes" in told(result)[0][1], "the approval holds for the body that runs again"
    assert desk.said == ["in", "in", "yes"]


def test_a_decision_reaches_a_run_that_a_worker_holds(desk: Desk) -> None:
    """The other call of the reply still runs: the worker takes the answer up when that is through."""
    entered, go = threading.Event(), threading.Event()

    def slow() -> str:
        entered.set()
        assert go.wait(PATIENCE)
        return "late"

    agent = desk.agent(desk.sells(), tool(name="slow")(slow))
    at = desk.asked(desk.agent(desk.sells(), desk.tool(lambda: "x", name="slow", requires_approval=True)))
    question, gate = at.pending
    agent = desk.agent(desk.sells(), tool(name="slow", requires_approval=True)(slow))
    found: list[Any] = []
    worker = threading.Thread(
        target=lambda: found.append(desk.driver.resume(agent, at, decisions={gate.id: Approve()}))
    )
    worker.start()
    try:
        assert entered.wait(PATIENCE)
        handed = desk.driver.resume(agent, at, decisions={question.id: Respond(content="meanwhile")})
        assert (handed.status, desk.said) == ("running", ["in"])
    finally:
        go.set()
        worker.join()
    assert told(found[0]) == [("completed", "sold 5: meanwhile"), ("completed", "late")]
    assert desk.said == ["in", "in", "meanwhile"]


# Attempts


def test_to_ask_costs_no_retry_and_no_wait(quick: Desk) -> None:
    """With a wait that nobody would sit through: the body that was answered runs at once."""
    attempts: list[int] = []

    def flaky(ctx: ToolContext[Any]) -> str:
        attempts.append(ctx.attempt)
        interrupt("ok?")
        if len(attempts) == 2:
            raise OSError("once")
        return "done"

    agent = quick.agent(quick.tool(flaky, retries=1, retry_on=[OSError], retry_wait=0))
    at = quick.asked(agent)
    assert told(quick.answer(agent, at, Approve())) == [("completed", "done")]
    assert attempts == [1, 1, 2], "asked, answered and failed, and tried again without asking"


def test_a_fallback_asks_for_itself(quick: Desk) -> None:
    """An answer that one tool was given says nothing to another."""

    def first() -> str:
        quick.said.append(interrupt("first?"))
        raise OSError("down")

    def second() -> str:
        return f"second {interrupt('second?')}"

    agent = quick.agent(quick.tool(first, fallback=[quick.tool(second)]))
    at = quick.asked(agent)
    later = quick.answer(agent, at, Respond(content="for the first")).checkpoint
    [item] = later.pending
    assert (item.args["payload"], item.tool_name, item.id != at.pending[0].id) == ("second?", "second", True)
    assert told(quick.answer(agent, later, Respond(content=2))) == [("completed", "second 2")]
    assert quick.said == ["for the first"]


def test_the_work_before_a_question_is_work_of_the_run(quick: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 13: limits are sums over the record, and waiting is not in them."""
    now = [0.0]
    monkeypatch.setattr("phronomy.engine.clock.time.monotonic", lambda: now[0])

    def slow() -> str:
        now[0] += 2
        interrupt("ok?")
        return "done"

    agent = quick.agent(quick.tool(slow))
    at = quick.asked(agent)
    assert at.elapsed == 2000
    now[0] += 3600
    assert quick.answer(agent, at, Approve()).checkpoint.elapsed == 4000


# Forks


def test_a_fork_asks_anew_under_an_id_of_its_own(desk: Desk) -> None:
    agent = desk.agent(desk.sells())
    at = desk.asked(agent)
    fork = desk.driver.fork(agent, at)
    assert (fork.pending, fork.calls[0].status) == ((), "ready")
    forked = desk.driver.resume(agent, fork).checkpoint
    [item] = forked.pending
    assert (item.args, item.id == at.pending[0].id) == (at.pending[0].args, False)
    with pytest.raises(UnknownPending):
        desk.driver.resume(agent, forked, decisions={at.pending[0].id: Approve()})
    assert told(desk.answer(agent, forked, Respond(content="there"))) == [("completed", "sold 5: there")]
    assert told(desk.answer(agent, at, Respond(content="here"))) == [("completed", "sold 5: here")]
    assert desk.said == ["in", "in", "in", "there", "in", "here"]


def test_a_fork_of_an_answered_question_has_no_answer(desk: Desk) -> None:
    agent = desk.agent(desk.sells())
    at = desk.asked(agent)
    answered = desk.driver.step(agent, at, decisions={at.pending[0].id: Respond(content="here")}).checkpoint
    forked = desk.driver.resume(agent, desk.driver.fork(agent, answered)).checkpoint
    assert len(forked.pending) == 1 and desk.said == ["in", "in"]


@pytest.mark.parametrize("rerun", [False, True])
def test_a_fork_asks_anew_though_the_call_is_through_in_another_branch(desk: Desk, rerun: bool) -> None:
    """Another answer is another result: that of the first branch is none of this one. The key says whether it is the same call."""
    keys: set[str] = set()

    def sell(ctx: ToolContext[Any]) -> str:
        keys.add(ctx.idempotency_key)
        desk.said.append(interrupt("ok?"))
        return f"sold {desk.said[-1]}"

    agent = desk.agent(desk.tool(sell))
    at = desk.asked(agent)
    assert told(desk.answer(agent, at, Respond(content="here"))) == [("completed", "sold here")]
    forked = desk.driver.resume(agent, desk.driver.fork(agent, at, rerun=rerun)).checkpoint
    assert forked.pending[0].id != at.pending[0].id
    assert told(desk.answer(agent, forked, Respond(content="there"))) == [("completed", "sold there")]
    assert (desk.said, len(keys)) == (["here", "there"], 2 if rerun else 1)


def test_a_fork_from_before_the_call_asked_knows_that_it_only_waits_in_the_other_branch(desk: Desk) -> None:
    """It was begun there, and nobody has to be asked whether it took effect: it stopped to ask."""
    agent = desk.agent(desk.sells(requires_approval=True))
    gate = desk.asked(agent)
    at = desk.answer(agent, gate, Approve()).checkpoint
    forked = desk.answer(agent, desk.driver.fork(agent, gate), Approve()).checkpoint
    assert [item.why for item in (*at.pending, *forked.pending)] == ["question", "question"]
    assert told(desk.answer(agent, at, Respond(content="here"))) == [("completed", "sold 5: here")]
    assert told(desk.answer(agent, forked, Respond(content="there"))) == [("completed", "sold 5: there")]
    third = desk.answer(agent, desk.driver.fork(agent, gate), Approve()).checkpoint
    assert [item.why for item in third.pending] == ["question"], "what was answered there is no answer here"


# Another agent


def test_a_question_of_a_tool_that_is_gone_is_drift_before_anything_is_consumed(desk: Desk) -> None:
    agent = desk.agent(desk.sells())
    at = desk.asked(agent)
    other = desk.agent(desk.tool(lambda: "x", name="other"), replies=[call("sell"), "bye"])
    assert other.drift(at).changed == ("tool 'sell' of a pending call is gone",)
    text = refused(desk, other, at, Approve(), AgentChanged)
    assert "tool 'sell' of a pending call is gone" in text
    result = desk.answer(other, at, Approve(), accept_changes=True)
    assert told(result) == [("failed", "There is no tool named 'sell' any more. Nothing was run.")]


def test_a_tool_that_asks_must_still_take_its_arguments(desk: Desk) -> None:
    agent = desk.agent(desk.sells())
    at = desk.asked(agent)

    def sell(shares: Literal["many"]) -> str:
        return "sold"

    changed = desk.agent(desk.tool(sell), replies=[call("sell"), "bye"])
    assert "no longer valid" in refused(desk, changed, at, Approve(), AgentChanged)
    assert desk.answer(agent, at, Approve()).output == "bye"


# Elsewhere


def test_an_exported_question_is_answered_elsewhere(driver: Driver) -> None:
    here, there = Desk(driver), Desk(driver)
    text = here.asked(here.agent(here.sells())).model_dump_json()
    at = decode(text)
    assert at.pending[0].why == "question"
    result = there.answer(there.agent(there.sells(), trust="bearer"), at, Respond(content="from afar"))
    assert (here.said, there.said) == (["in"], ["in", "from afar"])
    assert told(result) == [("completed", "sold 5: from afar")]


def forged(at: Checkpoint, **changes: Any) -> Checkpoint:
    """The checkpoint with other fields, sealed anew, as somebody can who has the text."""
    return decode(at.evolve(**changes).model_dump_json())


def test_what_was_asked_is_read_from_the_store_that_knows_it(desk: Desk) -> None:
    """Law 9: who brings a text with the type of the answer taken out of it brings an edited text."""
    agent = desk.agent(desk.tool(lambda: interrupt(answer=int), name="ask"))
    at = desk.asked(agent)
    other = forged(at, calls=(loosened(at),))
    assert other.pending[0].args["answer"] is None
    refused(desk, agent, other, Respond(content="s3cret"), CheckpointEdited)


def loosened(at: Checkpoint) -> Any:
    """The call that asks, with a question that any answer fits."""
    [waiting], [item] = at.calls, at.pending
    args = {**item.args, "answer": None}
    text = json.dumps(args, separators=(",", ":"))
    return waiting.evolve(
        waiting=(PendingApproval(**{**dict(item), "args": args, "digest": call_digest(item.tool, text)}),)
    )


@pytest.mark.parametrize("how", ["the question", "the answer"])
def test_a_forged_answer_never_comes_to_the_body_as_another_type(driver: Driver, how: str) -> None:
    """A bearer's text may say that anything was asked and answered; the body gets what it asks for, or fails."""
    here, there = Desk(driver), Desk(driver)

    def ask(desk: Desk) -> Tool:
        def body() -> str:
            desk.said.append(interrupt(answer=int, key="k"))
            return "done"

        return desk.tool(body, name="ask")

    agent = here.agent(ask(here))
    at = here.asked(agent)
    elsewhere = there.agent(ask(there), trust="bearer")
    if how == "the question":
        result = there.answer(elsewhere, forged(at, calls=(loosened(at),)), Respond(content="s3cret"))
    else:
        answered = here.driver.step(agent, at, decisions={at.pending[0].id: Respond(content=5)}).checkpoint
        decision = answered.decisions[0].model_copy(update={"content": '"s3cret"'})
        result = there.driver.resume(elsewhere, forged(answered, decisions=(decision,)))
    [(how_, text)] = told(result)
    assert how_ == "failed" and text.startswith("InvalidDecision") and "s3cret" not in text
    assert there.said == []


def test_a_question_of_another_run_is_none_of_this_one(desk: Desk) -> None:
    agent = desk.agent(desk.sells())
    one, other = desk.asked(agent), desk.asked(agent)
    assert one.pending[0].id != other.pending[0].id
    with pytest.raises(UnknownPending):
        desk.driver.resume(agent, one, decisions={other.pending[0].id: Approve()})


# Races and deaths


def test_of_eight_answers_one_wins(desk: Desk) -> None:
    agent = desk.agent(desk.sells())
    at = desk.asked(agent)
    gate, found = threading.Barrier(8), [None] * 8

    def decide(number: int) -> None:
        gate.wait()
        try:
            found[number] = desk.answer(agent, at, Respond(content=number))
        except CheckpointAlreadyResumed as error:
            found[number] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = [number for number, each in enumerate(found) if not isinstance(each, Exception)]
    assert desk.said == ["in", "in", winner]
    assert told(found[winner]) == [("completed", f"sold 5: {winner}")]
    lost = [each for each in found if isinstance(each, CheckpointAlreadyResumed)]
    assert len(lost) == 7
    assert {error.decision.content for error in lost if error.decision is not None} == {winner}


def asking(scene: Scene, *, driver: str, idempotent: bool) -> None:
    """A gated tool that asks twice, beside one that needs nobody, from wherever it stands to its end.

    Where nobody knows how far a body came it is run again: it has done nothing before it is through.
    """
    mine = {"sync": SYNC, "async": ASYNC}[driver]

    def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        return f"{interrupt('who?', key='who')} pays {interrupt('how much?', key='much', answer=int)}"

    def look() -> str:
        """Look."""
        return "seen"

    tools = [
        tool(requires_approval=True, idempotent=idempotent)(mine.function(pay)),
        tool(idempotent=idempotent)(mine.function(look)),
    ]
    agent = Agent[Any, str](
        name="desk", model=ScriptedModel.by_turn([[call("pay"), call("look")], "bye"]), tools=tools, store=scene.store
    )
    if not scene.store.branches():
        mine.invoke(agent, "go")

    def answers(at: Checkpoint) -> dict[str, Any]:
        said = {"who": Respond(content="ann"), "much": Respond(content=5)}
        return {item.id: said.get(item.args.get("key", ""), Approve()) for item in at.pending}

    if driver == "async":
        run(scene.asettle(agent, answers=answers))
    else:
        scene.settle(agent, answers=answers)


def said_once(scene: Scene) -> None:
    """The answers are in the record once, and the conversation is that of a run which nobody killed."""
    [branch] = scene.store.branches()
    head = scene.store.head(branch.id)[1]
    assert told(head) == [("completed", "ann pays 5"), ("completed", "seen")]
    assert [decision.content for decision in head.decisions if decision.kind == "respond"] == ["ann", 5]
    assert len({decision.pending_id for decision in head.decisions}) == len(head.decisions) >= 3


@pytest.mark.usefixtures("fresh_fork_server")
@pytest.mark.few(1)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "not-idempotent"])
@pytest.mark.parametrize("driver", ["sync", "async"])
def test_a_worker_killed_anywhere_asks_the_same_under_the_same_id(
    driver: str, idempotent: bool, tmp_path: Path
) -> None:
    scenario = partial(asking, driver=driver, idempotent=idempotent)
    report = sweep(
        scenario, store=f"sqlite:///{tmp_path}/runs.db?synchronous=normal", check=said_once, every=scaled(4, sweep=1)
    )
    assert report.places >= 12
    assert report.kills >= scaled(3, sweep=report.places)
    assert report.broken == ()
    assert (report.unknown > 0) == (not idempotent)


def test_a_body_that_was_killed_before_it_asked_is_put_to_a_human_first(desk: Desk) -> None:
    """It is not idempotent, so nobody knows what it did until then; approved, it asks, under the id that it always has."""

    class Lost(BaseException):
        """The worker is gone."""

    lose = [Lost()]

    def sell() -> str:
        if lose:
            raise lose.pop()
        return f"{interrupt('ok?')}"

    agent = desk.agent(desk.tool(sell))
    with pytest.raises(Lost):
        desk.driver.invoke(agent, "go")
    [branch] = desk.store.branches()
    at = desk.driver.recover(agent, branch.id).checkpoint
    assert [item.why for item in at.pending] == ["outcome_unknown"]
    at = desk.answer(agent, at, Approve()).checkpoint
    assert [item.why for item in at.pending] == ["question"]
    assert told(desk.answer(agent, at, Approve())) == [("completed", "True")]


# Who looks on


def test_a_stream_tells_of_the_question_and_of_the_answer(desk: Desk) -> None:
    agent = desk.agent(desk.sells())

    def stream(at: Any, **options: Any) -> list[Any]:
        if not desk.driver.is_async:
            return list(agent.stream(at, **options))

        async def main() -> list[Any]:
            return [event async for event in agent.astream(at, **options)]

        found: list[Any] = run(main())
        return found

    events = stream("go")
    assert [event.type for event in events][-3:] == ["approval_requested", "checkpoint", "suspended"]
    [asked] = [event for event in events if event.type == "approval_requested"]
    assert (asked.pending.why, asked.pending.args["payload"]) == ("question", {"sell": 5})
    assert events[-1].pending == (asked.pending,)

    at = desk.store.load(events[-1].checkpoint_id)
    later = stream(at, decisions={asked.pending.id: Respond(content="yes")})
    types = [event.type for event in later]
    assert [types.count(each) for each in ("decided", "approval_requested", "tool_call_started", "tool_call_settled")] == [
        1, 0, 1, 1,
    ]  # fmt: skip
    assert types[-1] == "completed"
    stored = [event.type for event in replay(desk.store, at.branch_id)]
    assert [stored.count(each) for each in ("approval_requested", "decided", "tool_call_started")] == [1, 1, 2]


# What a body leaves for its next run


def test_a_body_leaves_itself_a_note_with_a_question_and_nobody_else_sees_it(driver: Driver, store: Store) -> None:
    """It is there when the body runs again, in any process, and gone when something else is asked. E23."""
    desk = Desk(driver, store)

    def book(city: str = "Graz") -> str:
        """Book."""
        asker = asker_here()
        assert asker is not None
        desk.said.append((asker.note, asker.is_answered("days"), asker.is_answered("way")))
        days = asker.ask("How long?", "days", int, {"left": "sesame"})
        return f"{days} {asker.ask('How?', 'way', None)}"

    agent = desk.agent(desk.tool(book))
    waiting = desk.asked(agent)
    text = waiting.model_dump_json()
    assert "sesame" in text and "sesame" not in repr(waiting) and "sesame" not in json.dumps(to_wire(waiting))
    assert "sesame" not in json.dumps(waiting.pending[0].args)
    assert '"note"' not in json.dumps(to_wire(waiting)["pending"])
    again = driver.resume(agent, waiting, decisions={waiting.pending[0].id: Respond(content=3)}).checkpoint
    assert "sesame" not in again.model_dump_json(), "it is written down while the question waits"
    result = driver.resume(agent, again, decisions={again.pending[0].id: Respond(content="by train")})
    assert [message.text for message in result.messages if message.role == "tool"] == ["3 by train"]
    assert desk.said == [(None, False, False), ({"left": "sesame"}, True, False), (None, True, True)]


def test_nobody_asks_outside_of_a_body() -> None:
    assert asker_here() is None


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ("2026-01-01", None),
        ("soon", "the answer does not fit 'format': 'date' is wanted"),
        ("a" * 3000, "the schema of the question cannot be read"),
    ],
)
def test_the_schema_of_a_stranger_has_so_much_time_and_no_more(value: str, wrong: str | None) -> None:
    slow = {"anyOf": [{"maxLength": 99}, {"pattern": "^(?:a{1,1000}){1,1000}!$"}], "format": "date"}
    assert misfit(value, slow, bounded=True) == wrong
