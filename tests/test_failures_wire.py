"""What went wrong in other systems, on the way to a provider and back: whose request it is, and what is sent once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drivers import DRIVERS, STREAMED, Driver
from test_failures_authority import Desk, posted

from phronomy import Approve, LiteLLMModel, ModelError, Reject, Respond, ToolContext, tool
from phronomy.records.decisions import call_digest
from phronomy.testing import call
from phronomy.testing.server import ChatServer, Fault

pytestmark = pytest.mark.unmeasured


@pytest.fixture(params=(*DRIVERS, *STREAMED), ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def desk(driver: Driver, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(driver, tmp_path)
    yield desk
    desk.close()


def litellm_at(server: ChatServer, **options: Any) -> LiteLLMModel:
    return LiteLLMModel("openai/gpt-4o-mini", base_url=server.base_url, api_key="none", retry_wait=0, **options)


def pay(order: int, **more: Any) -> Any:
    return call("pay", {"order": order}, **more)


@pytest.mark.sweep
@pytest.mark.parametrize("answer", [Approve(), Approve(args={"order": 9}), Reject(), Respond(content="x")], ids=repr)
def test_a_request_says_where_its_tool_comes_from_and_stays_ours(desk: Desk, answer: Any) -> None:
    """The origin is stored with the request and is part of what is approved; an approval is never sent to a provider,
    as whatever sort of item: it gets calls, and a result for each. field failure 69
    """
    origins = {"pay": "local", "read": "mcp:files", "wire": "mcp:bank"}
    with ChatServer([[call(name, {"order": 1}) for name in origins], "end"]) as server:
        tools = [desk.tool(name, source=source) for name, source in origins.items()]
        desk.script([], *tools, model=litellm_at(server))

        checkpoint = posted(desk.invoke().checkpoint)

        listed = [item.approval for item in desk.store().pending()]
        assert listed == list(checkpoint.pending)
        assert {item.tool_name: item.tool.source for item in listed} == origins
        for item in listed:
            moved = item.tool.model_copy(update={"source": "elsewhere"})
            assert (
                item.digest
                == call_digest(item.tool, item.json_text("args"))
                != call_digest(moved, item.json_text("args"))
            )
        result = desk.resume(checkpoint, decisions={item.id: answer for item in listed})

    assert result.status == "completed"
    assert [decision.digest for decision in result.checkpoint.decisions] == [item.digest for item in listed]
    first, second = server.requests
    assert [message["role"] for message in first["messages"]] == ["user"]
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "tool", "tool", "tool"]
    _, asked, *told = second["messages"]
    assert {made["type"] for made in asked["tool_calls"]} == {"function"}
    assert [message["tool_call_id"] for message in told] == [made["id"] for made in asked["tool_calls"]]
    assert all(set(message) <= {"role", "tool_call_id", "content"} for message in told)
    sent = json.dumps(server.requests)
    for item in listed:
        assert item.id not in sent
        assert item.digest not in sent
        assert item.tool.source == "local" or item.tool.source not in sent


@pytest.mark.parametrize("status", [400, 422])
def test_a_request_that_was_refused_is_not_sent_again_by_itself(desk: Desk, status: int) -> None:
    """One refusal, one request on the wire, whatever retries the client and the model have; the caller says when it is
    made again, and then it is the same one. field failure 73
    """
    fault = Fault(status=status)
    with ChatServer([pay(1), fault, fault, fault, "end"]) as server:
        desk.script([], desk.tool("pay"), model=litellm_at(server, max_attempts=6))
        checkpoint = desk.invoke(thread_id="t").checkpoint
        for count, act in enumerate((desk.approve, desk.resume, desk.recover), 2):
            with pytest.raises(ModelError) as failed:
                act(checkpoint)
            assert (failed.value.status_code, len(server.requests), desk.done) == (status, count, ["pay 1 10"])
            assert failed.value.checkpoint is not None
            checkpoint = failed.value.checkpoint

        result = desk.recover(checkpoint)

    assert (result.output, desk.done, len(server.requests)) == ("end", ["pay 1 10"], 5)
    wire = ("stream", "stream_options")  # how the answer is to come, which is not part of what is asked
    asked = [{name: value for name, value in body.items() if name not in wire} for body in server.requests]
    assert asked[1] == asked[2] == asked[3] == asked[4]


@pytest.mark.parametrize("moment", ["in-the-tool", "while-it-waits"])
def test_a_lost_result_is_repaired_with_a_typed_one_before_anything_is_sent(desk: Desk, moment: str) -> None:
    """The worker died in a call, or somebody spoke while one waited: what the provider gets has a result for each call,
    and that says what is known. The server refuses any other history with status 400. field failure 73
    """

    def body(order: int, ctx: ToolContext[Any]) -> str:
        """Pay."""
        desk.done.append(f"pay {order}")
        raise KeyboardInterrupt

    gated = tool(name="pay", requires_approval=True)(desk.driver.function(body))
    with ChatServer([[pay(1), pay(2)], "hello", "end"]) as server:
        desk.script([], gated, model=litellm_at(server))
        checkpoint = desk.invoke(thread_id="t").checkpoint
        if moment == "in-the-tool":
            with pytest.raises(KeyboardInterrupt):
                desk.decide(checkpoint, 0, Approve())
            assert len(server.requests) == 1
            desk.recover(checkpoint)
        assert len(server.requests) == 1

        result = desk.invoke("never mind", thread_id="t", on_pending="supersede")

    assert (result.output, len(server.requests)) == ("hello", 2)
    roles = [message["role"] for message in server.requests[1]["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user"]
    first, second = (message["content"] for message in server.requests[1]["messages"][2:4])
    assert ("Nobody knows whether this call took effect" in first) == (moment == "in-the-tool")
    assert ("was not run" in first) == (moment != "in-the-tool")
    assert "was not run" in second
    settled = [message.settlement for message in result.messages if message.role == "tool"]
    assert settled == ["superseded", "superseded"]
    assert desk.done == ["pay 1"] * (moment == "in-the-tool")


def test_each_effect_has_a_key_of_its_own_that_outlives_its_worker(desk: Desk) -> None:
    """The tool gets a key: the same over retries, crashes, processes and forks, and another one for each other call,
    however equal, and in each other run. field failure 36
    """
    keys: list[tuple[str, str, int]] = []
    faults: list[BaseException] = [OSError("down"), KeyboardInterrupt(), OSError("down"), KeyboardInterrupt()]

    def body(order: int, ctx: ToolContext[Any]) -> str:
        """Pay."""
        keys.append((ctx.run_id, ctx.idempotency_key, ctx.attempt))
        if faults:
            raise faults.pop(0)
        return "paid"

    paying = tool(name="pay", requires_approval=True, idempotent=True, retries=9, retry_wait=0)(
        desk.driver.function(body)
    )
    same = pay(1, id="x")
    desk.script([same, [same, same], "end", same, "end"], paying)
    first = desk.invoke(thread_id="t").checkpoint
    with pytest.raises(KeyboardInterrupt):
        desk.approve(first)
    with pytest.raises(KeyboardInterrupt):
        desk.recover(first)
    result = desk.recover(first)
    assert len({key for _, key, _ in keys}) == 1
    assert [attempt for _, _, attempt in keys] == [1, 2, 3, 4, 5]

    result = desk.resume(result.checkpoint, decisions={item.id: Approve() for item in result.checkpoint.pending})
    assert (result.output, len(keys)) == ("end", 7)
    assert len({key for _, key, _ in keys}) == 3
    another = desk.approve(desk.invoke("again", thread_id="t").checkpoint)
    assert (another.output, len(keys)) == ("end", 8)
    assert len({run for run, _, _ in keys}) == 2
    assert len({key for _, key, _ in keys}) == 4
    assert all(len(key) >= 32 for _, key, _ in keys)
