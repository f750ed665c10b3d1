"""What went wrong in other systems, 67 to 91: histories that providers refuse, and what a model was told."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drivers import ASYNC, DRIVERS, STREAMED, SYNC, Driver, outline
from test_failures_authority import Desk, posted, unchanged

from phronomy import (
    Agent,
    Approve,
    CheckpointAlreadyResumed,
    CheckpointEdited,
    ConfigurationError,
    LimitExceeded,
    Limits,
    Message,
    ModelError,
    ModelReply,
    ModelRequest,
    NothingDecided,
    Reject,
    Respond,
    Result,
    ThreadBusy,
    ToolContext,
    UnknownPending,
    tool,
)
from phronomy.foundation.json_text import JsonText
from phronomy.models.formats.chat_completions import reply_from, wire_message
from phronomy.records.calls import CallResult
from phronomy.records.messages import ToolCall
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call, check_history, say

pytestmark = pytest.mark.unmeasured


@pytest.fixture(params=(*DRIVERS, *STREAMED), ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def desk(driver: Driver, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(driver, tmp_path)
    yield desk
    desk.close()


def pays(*orders: int) -> list[Any]:
    """The calls of one reply."""
    return [call("pay", {"order": order}) for order in orders]


def pay_once(request: ModelRequest) -> Any:
    """A provider that asks for the same at each turn, under the same id, and ends when it was answered."""
    return "end" if request.messages[-1].role == "tool" else call("pay", {"order": 1}, id="x")


def answered(messages: Sequence[Message]) -> dict[str, list[str]]:
    """How each call was answered, by its id: once, or the history is none."""
    made = [each.id for message in messages for each in message.tool_calls]
    answers: dict[str, list[str]] = {call_id: [] for call_id in made}
    for message in messages:
        if message.role == "tool":
            answers[message.tool_call_id or ""].append(f"{message.settlement}: {message.text}")
    return answers


def not_run(text: str, kind: str, reason: str = "") -> bool:
    """Whether the answer is of this kind, says that the call was not run, and gives the reason, if there was one."""
    return text.startswith(f"{kind}: ") and "was not run" in text and text.endswith(reason)


# What the provider is sent


def test_every_output_of_a_mixed_reply_is_sent_once(desk: Desk) -> None:
    """Gated and ungated calls of one reply, settled at different times: each output is sent once. field failure 67"""
    look = desk.tool("look", requires_approval=False)
    calls = [call("look", {"order": 1}), *pays(2), call("look", {"order": 3}), *pays(4)]
    desk.script([calls, "end"], desk.tool("pay"), look)
    checkpoint = desk.invoke().checkpoint
    assert len(desk.model.requests) == 1
    checkpoint = desk.decide(checkpoint, 1, Reject()).checkpoint
    assert len(desk.model.requests) == 1

    desk.decide(checkpoint, 0, Approve())

    _, request = desk.model.requests
    assert [message.role for message in request.messages] == ["user", "assistant", "tool", "tool", "tool", "tool"]
    assert list(answered(request.messages).values()) == [
        ["completed: look 1 is done"],
        ["completed: pay 2 is done"],
        ["completed: look 3 is done"],
        [answered(request.messages)["call_4"][0]],
    ]
    assert not_run(answered(request.messages)["call_4"][0], "rejected")


def test_an_approval_round_trip_restores_nothing_twice(desk: Desk) -> None:
    """Over rounds, processes and texts, each call has exactly one result before the next request. field failure 68"""
    desk.script([pays(1, 2), [*pays(3), call("nothing", {})], pays(4), "end", "later"], desk.tool("pay"))
    result = desk.invoke(thread_id="t")
    while result.suspended:
        result = desk.approve(posted(desk.store().load(result.checkpoint.id)))
    result = desk.invoke("and?", thread_id="t")

    assert (result.status, result.output) == ("completed", "later")
    for request in desk.model.requests:
        assert all(len(found) == 1 for found in answered(request.messages).values())
    assert len(answered(result.messages)) == 5
    assert [message.role for message in result.messages].count("assistant") == 5


def test_each_request_goes_on_from_the_one_before(desk: Desk) -> None:
    """Nothing that was sent is taken back or sent anew: what follows is what is new. field failure 70"""
    desk.script([pays(1, 2), pays(3), "end", "later"], desk.tool("pay"))
    result = desk.invoke(thread_id="t")
    for answer in (Approve(), Reject(reason="no"), Respond(content="by hand")):
        result = desk.decide(result.checkpoint, 0, answer)
    desk.invoke("and?", thread_id="t")

    seen = [request.messages for request in desk.model.requests]
    for before, after in itertools.pairwise(seen):
        assert after[: len(before)] == before
        assert after[len(before)].role == "assistant"
    assert [len(messages) for messages in seen] == [1, 4, 6, 8]
    assert desk.pending() == []


def test_the_same_tool_under_the_same_id_runs_each_time_it_is_approved(desk: Desk) -> None:
    """A reused id makes no call vanish: each is asked for, runs, and is answered under an id of its own. field failure 71"""
    same = call("pay", {"order": 1}, id="x")
    desk.script([same, [same, same], "end", same, "end"], desk.tool("pay"))
    result = desk.invoke(thread_id="t")
    while result.suspended:
        result = desk.approve(result.checkpoint)
    result = desk.invoke("again", thread_id="t")
    while result.suspended:
        result = desk.approve(result.checkpoint)

    assert (result.status, desk.done) == ("completed", ["pay 1 10"] * 4)
    assert list(answered(result.messages).values()) == [["completed: pay 1 is done"]] * 4
    made = [each for message in result.messages for each in message.tool_calls]
    assert [each.original_id for each in made] == [None, "x", "x", "x"]


# What the provider keeps beside its text


class WireModel:
    """A provider on the chat-completions wire: gives its replies as the very bodies it would send, and keeps what it gets."""

    name = "wire"

    def __init__(self, replies: Sequence[dict[str, Any]]) -> None:
        self.replies = list(replies)
        self.got: list[list[str]] = []

    def complete(self, request: ModelRequest) -> ModelReply:
        check_history(request.messages)
        self.got.append([json.dumps(wire_message(message), ensure_ascii=False) for message in request.messages])
        return reply_from(json.loads(json.dumps(self.replies.pop(0))))

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        return self.complete(request)


def wire_call(id: str, arguments: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "pay", "arguments": arguments}, **more}


SIGNATURE = "CpMBAVSoXO4+/==\u2028\u00e9\U0001f600\\n\\u0000 \" ' \t" + "Zm9v" * 2000

BLOBS: dict[str, dict[str, Any]] = {
    "unknown-provider-data": {
        "role": "assistant",
        "content": None,
        "tool_calls": [wire_call("a", '{ "order":1 }', providerData={"z": 1, "a": {"approval_id": "x"}}, index=0)],
        "providerData": {"z": [1.0, 1e3, 10**20, -0.5, None, True], "a": "", "m": {}},
        "refusal": None,
    },
    "gemini-thought-signature": {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            wire_call("a", '{"order":1}', extra_content={"google": {"thought_signature": SIGNATURE}}),
            wire_call("b", '{"order":2}'),
        ],
    },
    "paired-reasoning-items": {
        "role": "assistant",
        "content": "I will pay.",
        "tool_calls": [wire_call("a", '{"order":1}')],
        "reasoning_details": [
            {"type": "reasoning.encrypted", "data": SIGNATURE, "id": "rs_1", "format": "v1", "index": 0},
            {"type": "reasoning.summary", "summary": "", "id": "rs_2", "index": 1},
        ],
    },
    "anthropic-thinking-blocks": {
        "role": "assistant",
        "content": None,
        "tool_calls": [wire_call("a", '{"order":1}')],
        "reasoning_content": "Let me think.\r\n ",
        "thinking_blocks": [
            {"type": "thinking", "thinking": "Let me think.\r\n ", "signature": SIGNATURE},
            {"type": "redacted_thinking", "data": SIGNATURE[::-1]},
        ],
    },
}


def whole(message: dict[str, Any]) -> str:
    """The message as text, without what says nothing."""
    said = {key: value for key, value in message.items() if value not in (None, "")}
    return json.dumps(said, ensure_ascii=False, sort_keys=True)


@pytest.mark.parametrize("reply", BLOBS.values(), ids=BLOBS)
@pytest.mark.parametrize("decision", [Approve(), Approve(args={"order": 9}), Reject(), Respond(content="x")], ids=repr)
def test_what_a_provider_keeps_with_us_comes_back_to_the_byte(desk: Desk, reply: dict[str, Any], decision: Any) -> None:
    """Through SQLite, text, processes, decisions, forks and later turns: unknown fields (field failure 72), Gemini's
    thought signatures (field failure 77), reasoning items that go with calls (field failure 78) and Anthropic's thinking
    blocks (field failure 79) are sent back as they came, in their place and order.
    """
    end = {"role": "assistant", "content": "end", "annotations": [{"b": 1, "a": 2}]}
    wire = WireModel([reply, reply, end, end, end])
    desk.script([], desk.tool("pay"), model=wire)
    result = desk.invoke(thread_id="t")
    first = result.checkpoint
    while result.suspended:
        result = desk.decide(posted(desk.store().load(result.checkpoint.id)), 0, decision)
    assert desk.invoke("later", thread_id="t").status == "completed"
    fork = desk.fork(first)
    assert desk.resume(fork, decisions={item.id: Respond(content="y") for item in fork.pending}).status == "completed"

    for messages in wire.got[1:]:
        back = json.loads(messages[1])
        assert whole(back) == whole(reply)
        for key, value in reply.items():
            if key not in ("role", "content", "tool_calls", "refusal"):
                assert json.dumps(back[key]) == json.dumps(value)
        for mine, theirs in zip(back["tool_calls"], reply["tool_calls"], strict=True):
            assert list(mine) == list(theirs)
            assert mine["function"]["arguments"] == theirs["function"]["arguments"]
    again = json.loads(wire.got[2][2 + len(reply["tool_calls"])])
    for mine, theirs in zip(again["tool_calls"], reply["tool_calls"], strict=True):
        assert mine["id"] != theirs["id"]
        assert json.dumps({**mine, "id": ""}) == json.dumps({**theirs, "id": ""})


# Faults


@pytest.mark.parametrize("status", [400, 429, 503, None])
def test_a_fault_of_the_provider_poisons_nothing(desk: Desk, status: int | None) -> None:
    """The request is made once, the checkpoint stays as it was, and going on sends a valid history. field failure 73"""
    fault = ModelError("refused", status_code=status)
    desk.script([pays(1), fault, fault, pays(2), fault, "end"], desk.tool("pay"))
    checkpoint = desk.invoke(thread_id="t").checkpoint
    with pytest.raises(ModelError) as failed:
        desk.approve(checkpoint)
    assert len(desk.model.requests) == 2
    assert failed.value.checkpoint is not None
    at = failed.value.checkpoint.id
    with pytest.raises(ModelError) as failed:
        desk.resume(at)
    assert failed.value.checkpoint is not None
    assert (failed.value.checkpoint.id, len(desk.model.requests)) == (at, 3)
    result = desk.resume(at)
    with pytest.raises(ModelError):
        desk.approve(result.checkpoint)
    result = desk.recover(result.checkpoint)

    assert (result.status, desk.done) == ("completed", ["pay 1 10", "pay 2 10"])
    assert [len(request.messages) for request in desk.model.requests] == [1, 3, 3, 3, 5, 5]
    assert all(len(found) == 1 for found in answered(result.messages).values())


ASKED: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "x", "type": "function", "function": {"name": "pay", "arguments": "{}"}}],
}
TOLD = {"role": "tool", "tool_call_id": "x", "content": "paid"}


@pytest.mark.parametrize(
    "history",
    [
        [ASKED],
        [ASKED, {"role": "user", "content": "and?"}],
        [ASKED, TOLD, TOLD],
        [TOLD],
        [ASKED, {**TOLD, "tool_call_id": "y"}],
        [TOLD, ASKED],
        [ASKED, ASKED, TOLD],
        [{"role": "user", "content": "a"}, ASKED, {"role": "assistant", "content": "b"}, TOLD],
    ],
)
def test_a_history_that_no_provider_takes_is_refused_before_it_is_sent(desk: Desk, history: list[Any]) -> None:
    """A lost, doubled or misplaced result is found at the door, and nothing is begun. field failure 73"""
    desk.script(["end"], desk.tool("pay"))
    unchanged(desk, partial(desk.invoke, messages=history), ConfigurationError)


def test_a_call_id_that_stands_twice_in_a_given_history_is_replaced(desk: Desk) -> None:
    """In the call and in its result, with the original kept, so that the provider takes it. field failure 73"""
    calls = [{**ASKED["tool_calls"][0], "id": id} for id in ("x", "", "")]
    more = {**ASKED, "tool_calls": calls}
    results = [{**TOLD, "tool_call_id": id, "content": text} for id, text in (("", "two"), ("x", "one"), ("", "three"))]
    desk.script([call("pay", {"order": 1}, id="x"), "end"], desk.tool("pay"))

    result = desk.invoke(messages=[ASKED, TOLD, more, *results])

    assert result.suspended
    [request] = desk.model.requests
    check_history(request.messages)
    made = [each for message in request.messages for each in message.tool_calls]
    assert [each.original_id for each in made] == [None, "x", "", ""]
    assert [text for [text] in answered(request.messages).values()] == [
        f"None: {n}" for n in ("paid", "one", "two", "three")
    ]
    assert desk.approve(result.checkpoint).status == "completed"


@pytest.mark.parametrize("moment", ["pending", "in-the-tool", "after-a-crash", "model-fault", "failed"])
def test_a_cancelled_run_leaves_no_orphans(desk: Desk, moment: str) -> None:
    """Whenever it is cancelled, each open call is settled, and the thread can go on. field failure 74"""

    def body(order: int, ctx: ToolContext[Any]) -> str:
        """Do it."""
        desk.done.append(f"slow {order}")
        if moment == "in-the-tool":
            handed = desk.agent(slow).cancel(ctx.run_id, reason="enough")
            assert handed.status == "running"
        elif moment == "after-a-crash":
            raise KeyboardInterrupt
        elif moment == "failed":
            raise ValueError("no such order")
        return "slow is done"

    slow = tool(name="slow", timeout=60, on_failure="human")(body)
    desk.script([[*pays(1), call("slow", {"order": 2}), call("nothing", {})], "hello"], desk.tool("pay"), slow)
    if moment == "model-fault":
        desk.model = ScriptedModel([[call("nothing", {})], ModelError("down"), "hello"])
        with pytest.raises(ModelError):
            desk.invoke(thread_id="t")
    elif moment == "after-a-crash":
        with pytest.raises(KeyboardInterrupt):
            desk.invoke(thread_id="t")
    else:
        result = desk.invoke(thread_id="t")
    [branch] = desk.store().branches(thread_id="t")
    if moment == "in-the-tool":
        assert result.status == "cancelled"
    else:
        result = desk.cancel(branch.id, reason="enough")

    assert (result.status, result.checkpoint.calls, desk.pending()) == ("cancelled", (), [])
    check_history(result.messages)
    found = [text for [text] in answered(result.messages).values()]
    if moment != "model-fault":
        assert not_run(found[0], "cancelled", "enough")
        assert found[2].startswith("invalid: ")
    slow_told = {
        "pending": "completed: slow is done",
        "in-the-tool": "completed: slow is done",
        "after-a-crash": "Nobody knows whether this call took effect",
        "failed": "ValueError: no such order",
    }
    assert slow_told.get(moment, "") in "".join(found[1:2])
    assert "was not run" not in "".join(found[1:2])
    unchanged(desk, partial(desk.cancel, branch.id), CheckpointAlreadyResumed)
    after = desk.invoke("hello?", thread_id="t")
    assert (after.status, after.output) == ("completed", "hello")
    assert desk.done == ["slow 2"] * (moment != "model-fault")


@pytest.mark.parametrize(
    "options",
    [{"idempotent": True, "retries": 5, "retry_wait": 0}, {"on_failure": "human"}, {"fallback": True}, {}],
    ids=["retries", "on-failure-human", "fallback", "plain"],
)
def test_what_fails_after_the_run_was_cancelled_is_not_tried_again(desk: Desk, options: dict[str, Any]) -> None:
    """A cancelled run ends with its calls settled: no retry, no fallback, no new request. field failure 74

    Its requests are closed with it. field failure 75
    """
    others = (
        {**options, "fallback": [desk.tool("standby", requires_approval=False)]} if "fallback" in options else options
    )

    def body(order: int, ctx: ToolContext[Any]) -> str:
        """Do it."""
        desk.done.append("tried")
        if desk.done == ["tried"]:
            desk.agent(slow).cancel(ctx.run_id)
        raise ValueError("too late")

    slow = tool(name="slow", timeout=60, **others)(body)
    desk.script([call("slow", {"order": 1}), "hello"], slow)

    result = desk.invoke(thread_id="t")

    assert (result.status, result.checkpoint.pending, desk.done) == ("cancelled", (), ["tried"])
    assert list(answered(result.messages).values()) == [["failed: ValueError: too late"]]
    assert desk.pending() == []
    assert desk.invoke("hello?", thread_id="t").output == "hello"


def test_what_was_lost_after_the_run_was_cancelled_keeps_nobody_waiting(desk: Desk) -> None:
    """Cancelled, then the worker died in the call: the run ends, and the model reads the truth. field failure 75"""

    def body(order: int, ctx: ToolContext[Any]) -> str:
        """Do it."""
        desk.done.append("tried")
        desk.agent(slow).cancel(ctx.run_id)
        raise KeyboardInterrupt

    slow = tool(name="slow", timeout=60)(body)
    desk.script([call("slow", {"order": 1}), "hello"], slow)
    with pytest.raises(KeyboardInterrupt):
        desk.invoke(thread_id="t")
    [branch] = desk.store().branches(thread_id="t")

    result = desk.recover(branch.id)

    assert (result.status, result.checkpoint.pending, desk.pending()) == ("cancelled", (), [])
    [[told]] = answered(result.messages).values()
    assert told.startswith("cancelled: Nobody knows whether this call took effect")
    assert "was not run" not in told
    assert (desk.invoke("hello?", thread_id="t").output, desk.done) == ("hello", ["tried"])


def test_a_cancelled_run_takes_its_requests_along(desk: Desk) -> None:
    """No request outlives its run: it is not listed, cannot be decided, and does not block the thread. field failure 75"""
    desk.script([pays(1, 2), "hello"], desk.tool("pay"))
    checkpoint = desk.invoke(thread_id="t").checkpoint
    assert desk.pending() == [item.id for item in checkpoint.pending]

    result = desk.cancel(checkpoint, reason="changed my mind", by="ann")

    assert (result.status, result.output, desk.pending()) == ("cancelled", None, [])
    told = [text for [text] in answered(result.messages).values()]
    assert [not_run(text, "cancelled", "changed my mind") for text in told] == [True, True]
    for item in checkpoint.pending:
        for answer in (Approve(), Reject(), Respond(content="x")):
            again = partial(desk.resume, checkpoint, decisions={item.id: answer})
            assert unchanged(desk, again, CheckpointAlreadyResumed).progress == "ended"
    for _ in range(2):
        assert desk.recover(checkpoint).status == "cancelled"
        unchanged(desk, partial(desk.cancel, checkpoint), CheckpointAlreadyResumed)
    assert (desk.invoke("hi", thread_id="t").output, desk.done) == ("hello", [])


def test_a_message_while_something_waits_has_a_rule(desk: Desk) -> None:
    """It is refused with what waits, or supersedes it; it is not lost, and the thread does not go silent. field failure 76"""
    look = desk.tool("look", requires_approval=False)
    desk.script([[*pays(1), call("look", {"order": 2})], "hello", "bye"], desk.tool("pay"), look)
    checkpoint = desk.invoke("pay", thread_id="t").checkpoint
    error = unchanged(desk, partial(desk.invoke, "hi", thread_id="t"), ThreadBusy)
    assert (error.run_id, error.pending_ids) == (checkpoint.run_id, (checkpoint.pending[0].id,))
    assert checkpoint.id in str(error)

    result = desk.invoke("hi", thread_id="t", on_pending="supersede")

    assert (result.status, result.output, desk.pending()) == ("completed", "hello", [])
    assert [message.text for message in result.messages if message.role == "user"] == ["pay", "hi"]
    [[paid], [looked]] = answered(result.messages).values()
    assert not_run(paid, "superseded")
    assert looked == "completed: look 2 is done"
    ended = desk.recover(checkpoint)
    assert (ended.status, ended.run_id) == ("superseded", checkpoint.run_id)
    unchanged(desk, partial(desk.approve, checkpoint), CheckpointAlreadyResumed)
    assert desk.invoke("thanks", thread_id="t").output == "bye"
    assert desk.done == ["look 2 10"]


# What a decision means


@pytest.mark.parametrize("then", ["continue", "block"])
def test_rejecting_one_call_leaves_its_siblings_alone(desk: Desk, then: Any) -> None:
    """Calls settle each for itself: what ran stays run, what waits can still be approved. field failure 80"""
    look = desk.tool("look", requires_approval=False)
    desk.script(
        [[call("look", {"order": 1}), *pays(2, 3, 4), call("look", {"order": 5})], "end"], desk.tool("pay"), look
    )
    checkpoint = desk.invoke().checkpoint
    assert sorted(desk.done) == ["look 1 10", "look 5 10"]

    checkpoint = desk.decide(checkpoint, 0, Reject(then=then)).checkpoint
    assert [item.args["order"] for item in checkpoint.pending] == [3, 4]
    first, second = (item.id for item in checkpoint.pending)
    result = desk.resume(checkpoint, decisions={second: Reject(then=then), first: Approve()})

    assert (result.status, desk.done[2:]) == ("completed", ["pay 3 10"])
    settled = [text.split(":")[0] for [text] in answered(result.messages).values()]
    assert settled == ["completed", "rejected", "completed", "rejected", "completed"]


def test_a_call_is_asked_about_for_itself_alone(desk: Desk) -> None:
    """The gate is per call: nobody is asked about one because of its sibling, nor spared because of it. field failure 81"""
    asked: list[int] = []

    def over_100(args: Any) -> bool:
        asked.append(args["amount"])
        return bool(args["amount"] > 100)

    look = desk.tool("look", requires_approval=False)
    amounts = (5, 500, 7, 900, 100, 101)
    calls = [call("pay", {"order": 1, "amount": amount}) for amount in amounts]
    desk.script([[*calls, call("look", {"order": 2})], "end"], desk.tool("pay", requires_approval=over_100), look)

    result = desk.invoke()

    assert asked == list(amounts)
    assert sorted(desk.done) == ["look 2 10", "pay 1 100", "pay 1 5", "pay 1 7"]
    assert [item.args["amount"] for item in result.checkpoint.pending] == [500, 900, 101]
    result = desk.resume(result.checkpoint, decisions={item.id: Reject() for item in result.checkpoint.pending})
    assert (result.status, len(desk.done)) == ("completed", 4)


def interrupted(desk: Desk, result: Result[Any], answer: Any) -> Result[Any]:
    """The run after its first request was answered so, the worker was lost in the call, and the run recovered."""
    with pytest.raises(KeyboardInterrupt):
        desk.decide(result.checkpoint, 0, answer)
    return desk.recover(result.checkpoint)


EDIT = Approve(args={"order": 2})
EDITED = '{"order":2,"amount":10}'


@pytest.mark.parametrize(
    "end", ["returns", "raises", "fallback", "unknown-responded", "unknown-rejected", "failed-rejected"]
)
def test_the_model_is_told_that_a_human_changed_its_call(desk: Desk, end: str) -> None:
    """However the edited call ends, its result says what was run instead of what was asked for. field failure 82"""
    fault = KeyboardInterrupt() if end.startswith("unknown") else ValueError("no such order")
    options: dict[str, Any] = {"on_failure": "human"} if end == "failed-rejected" else {}
    if end == "fallback":
        options["fallback"] = [desk.tool("standby", requires_approval=False)]
    desk.script([*pays(1), "end"], desk.tool("pay", *([] if end == "returns" else [fault]), **options))
    result = desk.invoke()
    asked = result.messages[1]
    result = interrupted(desk, result, EDIT) if end.startswith("unknown") else desk.decide(result.checkpoint, 0, EDIT)
    if end == "unknown-responded":
        result = desk.decide(result.checkpoint, 0, Respond(content="it was done"))
    elif end.endswith("rejected"):
        result = desk.decide(result.checkpoint, 0, Reject())

    assert (result.status, desk.done[0]) == ("completed", "pay 2 10")
    [[told]] = answered(result.messages).values()
    assert EDITED in told
    what = {
        "returns": "pay 2 is done",
        "raises": "no such order",
        "fallback": "standby 2 is done",
        "unknown-responded": "it was done",
        "unknown-rejected": "Nobody knows",
        "failed-rejected": "no such order",
    }
    assert what[end] in told
    assert result.messages[1] == asked
    assert asked.tool_calls[0].arguments == '{"order": 1}'


def test_the_model_is_not_told_of_a_change_where_there_was_none(desk: Desk) -> None:
    """A form that sends back the arguments it was given has edited nothing. field failure 82"""
    desk.script([*pays(1), "end"], desk.tool("pay"))
    checkpoint = desk.invoke().checkpoint
    same = {"amount": 10, "order": 1}
    result = desk.decide(checkpoint, 0, Approve(args=same))
    assert (result.messages[2].text, desk.done) == ("pay 1 is done", ["pay 1 10"])


@pytest.mark.parametrize(
    ("answer", "status", "settlement"),
    [
        (Approve(), "completed", "completed"),
        (Approve(args={"order": 2}), "completed", "completed"),
        (Reject(), "completed", "rejected"),
        (Reject(then="block"), "completed", "rejected"),
        (Reject(then="end"), "rejected", "rejected"),
        (Respond(content=None), "completed", "responded"),
        ("cancel", "cancelled", "cancelled"),
        ("supersede", "superseded", "superseded"),
    ],
)
def test_every_answer_brings_the_run_to_its_end(desk: Desk, answer: Any, status: str, settlement: str) -> None:
    """Whatever is decided, the call is settled for good, and the run goes on or ends by itself. field failure 83"""
    desk.script([*pays(1), "end", "end"], desk.tool("pay"))
    checkpoint = desk.invoke(thread_id="t").checkpoint
    if answer == "cancel":
        desk.cancel(checkpoint)
    elif answer == "supersede":
        desk.invoke("no", thread_id="t", on_pending="supersede")
    else:
        desk.decide(checkpoint, 0, answer)

    ended = desk.recover(checkpoint)

    assert (ended.status, ended.checkpoint.ended, ended.checkpoint.calls) == (status, status, ())
    assert ended.output == ("end" if status == "completed" else None)
    assert [text.split(":")[0] for [text] in answered(ended.messages).values()] == [settlement]
    assert desk.pending() == []
    assert desk.store().branches(thread_id="t")[0].status == status
    unchanged(desk, partial(desk.approve, checkpoint), CheckpointAlreadyResumed)


def test_a_decision_is_no_result(desk: Desk) -> None:
    """What was decided is in the record; what the model reads is what came of it, and that is honest. field failure 84"""
    look = desk.tool("look", requires_approval=False)
    desk.script([[*pays(1, 2, 3, 4), call("look", {"order": 5})], "end"], desk.tool("pay"), look)
    checkpoint = desk.invoke().checkpoint
    ids = [item.id for item in checkpoint.pending]
    result = desk.resume(checkpoint, decisions={ids[0]: Approve(), ids[1]: Respond(content={"approved": True})})
    assert [item.id for item in result.checkpoint.pending] == ids[2:]
    assert result.messages == checkpoint.messages

    result = desk.resume(checkpoint, decisions={ids[2]: Reject(reason="too much", then="end")})

    assert (result.status, desk.done) == ("rejected", ["look 5 10", "pay 1 10"])
    assert [decision.kind for decision in result.checkpoint.decisions] == ["approve", "respond", "reject"]
    paid, responded, rejected, left, looked = [text for [text] in answered(result.messages).values()]
    assert (paid, looked) == ("completed: pay 1 is done", "completed: look 5 is done")
    assert responded == 'responded: {"approved":true}'
    assert not_run(rejected, "rejected", "too much")
    assert not_run(left, "cancelled")


@pytest.mark.parametrize("how", ["unknown", "failed"])
@pytest.mark.parametrize(
    "end", [Reject(reason="leave it"), Reject(then="end"), "cancel", "supersede", "sibling"], ids=repr
)
def test_nobody_is_told_that_a_call_was_not_run_when_it_was(desk: Desk, how: str, end: Any) -> None:
    """A call that was under way and is then given up, by whatever decision, is not said to be undone. field failure 84"""
    fault = KeyboardInterrupt() if how == "unknown" else ValueError("no such order")
    desk.script([pays(1, 2), "end", "end"], desk.tool("pay", fault, on_failure="human"))
    result = desk.invoke(thread_id="t")
    first = result.checkpoint
    result = interrupted(desk, result, Approve()) if how == "unknown" else desk.decide(first, 0, Approve())
    assert desk.done == ["pay 1 10"]
    places = {item.args["order"]: place for place, item in enumerate(result.checkpoint.pending)}

    if end == "cancel":
        desk.cancel(first)
    elif end == "supersede":
        desk.invoke("no", thread_id="t", on_pending="supersede")
    elif end == "sibling":
        desk.decide(result.checkpoint, places[2], Reject(then="end"))
    else:
        result = desk.decide(result.checkpoint, places[1], end)
        if result.suspended:
            desk.decide(result.checkpoint, 0, Reject())

    ended = desk.recover(first)
    [[told], [other]] = answered(ended.messages).values()
    assert ("Nobody knows whether this call took effect" if how == "unknown" else "no such order") in told
    assert "was not run" not in told
    assert "was not run" in other
    assert desk.done == ["pay 1 10"]


def test_no_client_writes_the_result_of_a_gated_call(desk: Desk) -> None:
    """A result comes from the tool, or from a human's recorded `Respond`; one that is written in is refused. field failure 85"""
    desk.script([*pays(1), "end"], desk.tool("pay"))
    checkpoint = desk.invoke().checkpoint
    [item], [asked] = checkpoint.pending, checkpoint.calls
    made_up = CallResult(kind="completed", content="paid")
    message = Message(role="tool", content="paid", tool_call_id=asked.call_id, settlement="completed")
    forgeries: list[dict[str, Any]] = [
        {"calls": (asked.model_copy(update={"status": "settled", "result": made_up}),)},
        {"calls": (), "messages": (*checkpoint.messages, message)},
        {"messages": (*checkpoint.messages, message)},
        {"messages": (*checkpoint.messages[:1], Message(role="assistant", content="I paid."))},
        {"ended": "completed", "output": JsonText('"paid"')},
    ]
    for fields in forgeries:
        forged = checkpoint.model_copy(update=fields)
        for given in (forged, posted(forged)):
            unchanged(desk, partial(desk.resume, given), CheckpointEdited)
            unchanged(desk, partial(desk.resume, given, decisions={item.id: Approve()}), CheckpointEdited)
            unchanged(desk, partial(desk.step, given), CheckpointEdited)
    claimed = Message(role="assistant", tool_calls=(ToolCall(id="x", name="pay", arguments="{}"),))
    unchanged(desk, partial(desk.invoke, messages=[claimed, message]), ConfigurationError)

    result = desk.resume(checkpoint, decisions={item.id: Respond(content="paid by hand")}, by="ann")

    assert answered(result.messages) == {asked.call_id: ["responded: paid by hand"]}
    [decision] = result.checkpoint.decisions
    assert (decision.kind, decision.content, decision.by and decision.by.id) == ("respond", "paid by hand", "ann")
    assert desk.done == []


def test_after_a_rejection_the_caller_says_what_follows(desk: Desk) -> None:
    """Go on and be asked again; go on and have the equal call rejected unasked; or end. field failure 86"""
    equal = ['{"order": 1}', '{"amount": 10, "order": 1}', ' {"order":1 , "amount":10} ', '{"order": "1"}']
    other = call("pay", {"order": 1, "amount": 11})
    desk.script(
        [
            *pays(1),
            *pays(1),
            *[call("pay", text) for text in equal],
            [call("pay", equal[0]), other, call("wire", {"order": 1})],
            *pays(1),
            "end",
        ],
        desk.tool("pay"),
        desk.tool("wire"),
    )
    first = desk.invoke().checkpoint
    second = desk.decide(first, 0, Reject()).checkpoint
    assert [item.args for item in second.pending] == [item.args for item in first.pending]

    third = desk.decide(second, 0, Reject(reason="never", then="block")).checkpoint

    assert [(item.tool_name, item.args["amount"]) for item in third.pending] == [("pay", 11), ("wire", 10)]
    assert len(desk.model.requests) == 7
    told = [text for [text] in answered(third.messages[:-1]).values()]
    assert told[1].endswith("Reason: never")
    assert all(text.startswith("rejected: ") and "rejected before" in text for text in told[2:])
    assert len(told) == 6
    assert [decision.then for decision in third.decisions] == ["continue", "block"]
    kept = desk.decide(posted(third), 0, Approve()).checkpoint
    fork = desk.fork(kept)

    result = desk.decide(kept, 0, Reject(then="end"))

    assert (result.status, result.output, desk.done) == ("rejected", None, ["pay 1 11"])
    assert len(desk.model.requests) == 7
    result = desk.decide(fork, 0, Reject())
    assert (result.status, desk.done) == ("completed", ["pay 1 11"])
    assert answered(result.messages[-3:-1])[result.messages[-3].tool_calls[0].id][0].startswith(
        "rejected: This exact call"
    )


def for_ever(request: ModelRequest) -> Any:
    """A provider that never has enough (but does not go on for ever)."""
    return pays(len(request.messages)) if len(request.messages) < 40 else "enough"


def test_a_limit_belongs_to_the_logical_run(desk: Desk) -> None:
    """`Limits.turns` counts over resumes, processes, steps and forks; going on past it asks no model. field failure 87"""

    desk.script(for_ever, desk.tool("pay"), limits=Limits(turns=3))
    result = desk.invoke(thread_id="t")
    for _ in range(2):
        result = desk.approve(posted(result.checkpoint))
        assert result.suspended
    fork = desk.fork(result.checkpoint)
    for checkpoint in (result.checkpoint, fork):
        with pytest.raises(LimitExceeded) as reached:
            desk.approve(checkpoint)
        assert (reached.value.limit, reached.value.maximum) == ("turns", 3)
        last = reached.value.checkpoint
        assert last is not None
        assert last.messages[-1].role == "tool"
        for go_on in (desk.resume, desk.recover, desk.step):
            with pytest.raises(LimitExceeded):
                go_on(last)
    assert len(desk.model.requests) == 3
    assert result.checkpoint.usage.requests == 3

    desk.options["limits"] = Limits(turns=4)
    result = desk.resume(last)
    assert (result.status, len(desk.model.requests)) == ("suspended", 4)
    with pytest.raises(LimitExceeded):
        desk.approve(result.checkpoint)
    assert len(desk.model.requests) == 4


def test_a_handler_that_approves_everything_is_bounded(desk: Desk) -> None:
    """An automatic approval is no way around the limit. field failure 87"""
    desk.script(
        for_ever,
        desk.tool("pay"),
        limits=Limits(turns=5),
        on_approval_required=desk.driver.function(lambda name, args: True),
    )
    with pytest.raises(LimitExceeded) as reached:
        desk.invoke()
    assert reached.value.checkpoint is not None
    for _ in range(3):
        with pytest.raises(LimitExceeded):
            desk.resume(reached.value.checkpoint)
    assert (len(desk.model.requests), len(desk.done)) == (5, 5)


def test_a_decision_set_with_nothing_new_is_refused(desk: Desk) -> None:
    """The same message sent again and again changes nothing and asks no model; nor does one with old parts. field failure 88"""
    desk.script([pays(1, 2), *pays(3), "end"], desk.tool("pay"))
    checkpoint = desk.invoke().checkpoint
    one, two = (item.id for item in checkpoint.pending)
    unchanged(desk, partial(desk.resume, checkpoint), NothingDecided)
    unchanged(desk, partial(desk.resume, checkpoint, decisions={}), NothingDecided)
    first = desk.resume(checkpoint, decisions={one: Approve()})
    for _ in range(5):
        unchanged(desk, partial(desk.resume, checkpoint, decisions={one: Approve()}), CheckpointAlreadyResumed)
    unchanged(
        desk, partial(desk.resume, checkpoint, decisions={one: Approve(), two: Approve()}), CheckpointAlreadyResumed
    )
    unchanged(desk, partial(desk.resume, first.checkpoint, decisions={one: Approve()}), UnknownPending)

    second = desk.resume(checkpoint, decisions={two: Approve()})

    for _ in range(5):
        both = partial(desk.resume, checkpoint, decisions={one: Approve(), two: Approve()})
        assert unchanged(desk, both, CheckpointAlreadyResumed).progress == "suspended"
        unchanged(desk, partial(desk.resume, checkpoint), NothingDecided)
    desk.approve(second.checkpoint)
    for _ in range(5):
        assert unchanged(desk, both, CheckpointAlreadyResumed).progress == "ended"
    assert (desk.done, len(desk.model.requests)) == (["pay 1 10", "pay 2 10", "pay 3 10"], 3)


# Listing, pausing, parity


def test_what_was_decided_is_not_shown_again(desk: Desk) -> None:
    """After each decision a reload shows what is left, all of it, and the record says what became of the rest. field failure 89"""
    desk.script([pays(0, 1, 2, 3), *pays(4), "end"], desk.tool("pay"))
    checkpoint = desk.invoke().checkpoint
    ids = [item.id for item in checkpoint.pending]
    decided: list[str] = []
    for place, answer in ((2, Approve()), (0, Reject()), (3, Respond(content="x"))):
        result = desk.resume(checkpoint, decisions={ids[place]: answer}, by="ann", channel="chat")
        decided.append(ids[place])
        left = [pending_id for pending_id in ids if pending_id not in decided]
        assert desk.pending() == left == [item.id for item in result.checkpoint.pending]
        assert [item.approval.id for item in desk.store().pending(run_id=checkpoint.run_id)] == left
        assert {item.checkpoint_id for item in desk.store().pending()} == {result.checkpoint.id}
        assert [decision.pending_id for decision in result.checkpoint.decisions] == decided
    result = desk.resume(checkpoint, decisions={ids[1]: Approve()})
    assert desk.pending() == [result.checkpoint.pending[0].id]
    assert result.checkpoint.pending[0].id not in ids
    assert [decision.channel for decision in result.checkpoint.decisions] == ["chat", "chat", "chat", None]
    times = [decision.at for decision in result.checkpoint.decisions]
    assert times == sorted(times)
    desk.approve(result.checkpoint)
    assert desk.pending() == []


def test_a_pause_is_a_normal_end_that_holds_nothing(desk: Desk) -> None:
    """A run that waits is returned, and held by nobody: anybody goes on at once, no lease to wait for. field failure 90"""
    desk.script([*pays(1), *pays(2), "end"], desk.tool("pay"))
    result = desk.invoke(thread_id="t")
    for _ in range(2):
        assert isinstance(result, Result)
        assert (result.status, result.suspended, result.output) == ("suspended", True, None)
        [branch] = desk.store().branches(thread_id="t")
        assert (branch.status, branch.owner) == ("suspended", None)
        assert desk.recover(result.checkpoint).checkpoint == result.checkpoint
        result = desk.approve(result.checkpoint)
    [branch] = desk.store().branches(thread_id="t")
    assert (result.status, branch.status, branch.owner) == ("completed", "completed", None)


SCRIPT = [
    say("Let me look.", call("look", {"order": 1}), *pays(2, 3)),
    [*pays(4), call("pay", "not json"), call("nothing", {})],
    ModelError("down"),
    call("look", {"order": 5}),
    "end",
]


def transcript(
    folder: Path, drivers: list[Driver], *, stepping: bool = False
) -> tuple[list[str], list[Any], list[str]]:
    """One story, each of its acts by the next of the drivers: what was said, each checkpoint, and what was done."""
    folder.mkdir()
    desk = Desk(SYNC, folder)
    turns = iter(drivers * 100)
    look = desk.tool("look", requires_approval=False)
    desk.script(SCRIPT, desk.tool("pay"), look)

    def act(method: str, *args: Any, **options: Any) -> Result[Any]:
        try:
            result: Result[Any] = next(turns).call(desk.agent(), method, *args, **options)
        except ModelError as error:
            assert error.checkpoint is not None
            return act("resume", error.checkpoint)
        while stepping and result.status == "running":
            result = act("step", result.checkpoint)
        return result

    method = "step" if stepping else "resume"
    result = act("step" if stepping else "invoke", "go")
    first = result.checkpoint
    act(method, first, decisions={first.pending[1].id: Reject(reason="no")})
    result = act(method, first, decisions={first.pending[0].id: Approve(args={"order": 7})})
    result = act(method, posted(result.checkpoint), approved=True)
    assert (result.status, result.output) == ("completed", "end")
    history = desk.store().history(result.checkpoint.id)
    shapes = [(each.status, each.step, len(each.messages), [item.status for item in each.calls]) for each in history]
    desk.close()
    return outline(result), shapes, desk.done


def test_sync_and_async_are_one_engine(tmp_path: Path) -> None:
    """The same story in each, and handed from one to the other at every stop, gives the same record. field failure 91"""
    wanted = transcript(tmp_path / "sync", [SYNC])
    assert wanted[2] == ["look 1 10", "pay 7 10", "pay 4 10", "look 5 10"]
    assert transcript(tmp_path / "async", [ASYNC]) == wanted
    assert transcript(tmp_path / "sync-first", [SYNC, ASYNC]) == wanted
    assert transcript(tmp_path / "async-first", [ASYNC, SYNC]) == wanted


@pytest.mark.parametrize("drivers", [[SYNC], [ASYNC], [SYNC, ASYNC]], ids=str)
def test_a_run_in_steps_is_the_same_run(tmp_path: Path, drivers: list[Driver]) -> None:
    """Left at each boundary and taken up again, a run says and does what it does in one go. field failure 91"""
    said, _, done = transcript(tmp_path / "whole", [SYNC])
    stepped = transcript(tmp_path / "steps", drivers, stepping=True)
    assert (stepped[0], sorted(stepped[2])) == (said, sorted(done)), "calls of one reply run side by side"


def test_a_call_that_was_approved_in_a_step_runs_though_another_waits(driver: Driver, store: Store) -> None:
    """A step records the decision and runs nothing; a resume without one then has something to do, once."""
    done: list[int] = []

    @tool(requires_approval=True)
    def pay(n: int) -> str:
        done.append(n)
        return "paid"

    model = ScriptedModel.by_turn([say("", call("pay", {"n": 1}, id="a"), call("pay", {"n": 2}, id="b")), "Done."])
    agent = Agent(model=model, tools=[pay], store=store)
    asked = driver.invoke(agent, "Pay.").checkpoint
    first, second = asked.pending
    stepped = driver.step(agent, asked, decisions={first.id: Approve()})
    assert done == []
    result = driver.resume(agent, stepped.checkpoint)
    assert (result.status, done, [item.id for item in result.checkpoint.pending]) == ("suspended", [1], [second.id])
    with pytest.raises(NothingDecided):
        driver.resume(agent, result.checkpoint)
    assert driver.resume(agent, result.checkpoint, decisions={second.id: Approve()}).status == "completed"
    assert done == [1, 2]


def test_a_resumed_run_loses_nothing_of_what_it_was_given(desk: Desk) -> None:
    """Instructions, metadata, usage and earlier results are there after each stop. field failure 91"""
    rendered: list[Any] = []

    def instructions(given: Any) -> str:
        rendered.append(given)
        return f"You serve {given['customer']}."

    desk.script([say(None, *pays(1)), *pays(2), "end"], desk.tool("pay"), instructions=instructions)
    result = desk.invoke({"customer": "Ann", "text": "pay"}, metadata={"tenant": 7})
    while result.suspended:
        assert result.checkpoint.metadata == {"tenant": 7}
        result = desk.approve(result.checkpoint)
    assert {request.system for request in desk.model.requests} == {"You serve Ann."}
    assert rendered == [{"customer": "Ann", "text": "pay"}] * 3
    assert (result.usage.requests, result.checkpoint.metadata) == (3, {"tenant": 7})
    assert [message.text for message in result.messages if message.role == "tool"] == ["pay 1 is done", "pay 2 is done"]
