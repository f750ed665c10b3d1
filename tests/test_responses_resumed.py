"""Reasoning of the Responses API survives a stop for a human: another process sends back what came, byte for byte.

python test_responses_resumed.py WAY STORE PROVIDER CHECKPOINT: approve what waits at the checkpoint, and print what has come of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from drivers import DRIVERS, PATIENCE, STREAMED, Driver

from phronomy import Agent, Approve, ModelError, ModelSettings, ResponsesModel, SQLiteStore, tool
from phronomy.testing import ChatServer

WAYS = {str(each): each for each in (*DRIVERS, *STREAMED)}


def reply(number: int, *more: dict[str, Any]) -> list[dict[str, Any]]:
    """The items of a reply that calls for a refund: reasoning before its text, and reasoning before its call."""
    return [
        {
            "id": f"rs_{number}a",
            "type": "reasoning",
            "encrypted_content": f"gAAAAAB{number}a+/é==",
            "summary": [{"type": "summary_text", "text": "I …"}],
        },
        {
            "type": "message",
            "status": "completed",
            "id": f"msg_{number}",
            "role": "assistant",
            "content": [{"text": "Let me see.", "type": "output_text", "logprobs": [], "annotations": []}],
            "weight": 5.0,
        },
        {"id": f"rs_{number}b", "type": "reasoning", "summary": [], "encrypted_content": f"gAAAAAB{number}b+/=="},
        {
            "id": f"fc_{number}",
            "arguments": f'{{ "order" :{number} }}',
            "name": "refund",
            "call_id": f"call_{number}",
            "type": "function_call",
            "status": "completed",
        },
        *more,
    ]


SAID = [reply(1, {"zeta": [1e3, None, "\u2028"], "type": "not_known_yet", "alpha": {"b": 1, "a": 2}}), reply(2)]


def agent_of(way: Driver, store: SQLiteStore, provider: str) -> Agent[Any, str]:
    def refund(order: int) -> str:
        """Refund an order."""
        return f"refunded {order}"

    model = ResponsesModel("gpt-5", base_url=provider, api_key="none-is-needed", retry_wait=0)
    gated = tool(requires_approval=True)(way.function(refund))
    return Agent(name="desk", model=model, tools=[gated], store=store)


def main(way: str, file: str, provider: str, at: str) -> None:
    with SQLiteStore(file) as store:
        agent = agent_of(WAYS[way], store, provider)
        [waits] = store.load(at).pending
        done = WAYS[way].resume(agent, at, decisions={waits.id: Approve()}, by="ann")
        print(json.dumps([done.checkpoint.id, done.status, done.output]))


@pytest.mark.unmeasured
@pytest.mark.few(1)
@pytest.mark.parametrize("way", WAYS)
def test_another_process_sends_back_what_came_byte_for_byte(way: str, tmp_path: Path) -> None:
    file = str(tmp_path / "runs.db")
    with ChatServer([{"output": SAID[0]}, {"output": SAID[1]}, "Both are refunded."]) as server:
        with SQLiteStore(file) as store:
            stopped = WAYS[way].invoke(agent_of(WAYS[way], store, server.base_url), "Refund both")
        checkpoint = stopped.checkpoint.id
        for status in ("suspended", "completed"):
            line = [sys.executable, __file__, way, file, server.base_url, checkpoint]
            done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE)
            assert done.returncode == 0, done.stderr
            checkpoint, is_now, output = json.loads(done.stdout)
            assert is_now == status
    assert output == "Both are refunded."
    sent = [body["input"] for body in server.requests]
    asked, first, second = {"role": "user", "content": "Refund both"}, result(1), result(2)
    assert exact(sent) == exact([[asked], [asked, *SAID[0], first], [asked, *SAID[0], first, *SAID[1], second]])
    assert {(body["store"], *body["include"]) for body in server.requests} == {(False, "reasoning.encrypted_content")}
    assert not any("previous_response_id" in body or "conversation" in body for body in server.requests)


def result(number: int) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": f"refunded {number}"}


def exact(value: Any) -> str:
    """The value as text: an order of keys that has changed, or a 5.0 that is a 5, is another text."""
    return json.dumps(value, ensure_ascii=False)


def test_a_setting_that_cannot_be_sent_is_told_to_whoever_runs_the_agent(driver: Driver) -> None:
    settings = ModelSettings(seed=1)
    with (
        ChatServer([]) as server,
        ResponsesModel("gpt-5", base_url=server.base_url, api_key="") as model,
        pytest.raises(
            ModelError, match=r"raised ConfigurationError: the Responses API has no `seed`: leave it out"
        ) as told,
    ):
        driver.invoke(Agent(model=model, settings=settings), "Hi")
    assert told.value.checkpoint is not None


if __name__ == "__main__":
    main(*sys.argv[1:])
