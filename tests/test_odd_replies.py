"""A share of the replies of odd providers, which `python tests/odd_replies.py` makes by the thousand; and its oracle."""

from __future__ import annotations

from typing import Any

import pytest
from odd_replies import Broken, Odd, Said, check_request, explore, look
from selection import scaled
from tables import each


def test_whatever_is_changed_in_a_reply_nothing_wrong_runs_and_no_half_reply_counts() -> None:
    ends, broken = explore(scaled(90, sweep=900), seed=20)
    assert broken == []
    assert ends["completed"] > 0
    assert len(ends) > 3


CALL: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
SAID: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOLD: dict[str, Any] = {"role": "tool", "tool_call_id": "c", "content": "read"}
ITEM: dict[str, Any] = {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "c", "output": "read"}


def called(**function: Any) -> list[dict[str, Any]]:
    return [{**SAID, "tool_calls": [{**CALL, "function": {**CALL["function"], **function}}]}, TOLD]


@each(
    "body",
    [
        {"messages": [SAID]},
        {"messages": [TOLD]},
        {"messages": [SAID, TOLD, SAID, TOLD]},
        {"messages": [{**SAID, "role": ""}, TOLD]},
        {"messages": [{**SAID, "content": []}, TOLD]},
        {"messages": [{"role": "assistant", "content": None}]},
        {"messages": called(arguments="")},
        {"messages": called(arguments="[1]")},
        {"messages": called(arguments='{"a": NaN}')},
        {"messages": called(name="a.b")},
        {"messages": called(name="a" * 65)},
        {"input": [ITEM]},
        {"input": [OUTPUT]},
        {"input": [{**ITEM, "arguments": "null"}, OUTPUT]},
        {"input": [{"type": "mcp_approval_request", "id": "m"}]},
    ],
)
def test_the_strict_readers_refuse_what_a_provider_refuses(body: dict[str, Any]) -> None:
    with pytest.raises(Broken):
        check_request(body)


def test_the_strict_readers_take_what_a_provider_takes() -> None:
    check_request({"messages": [{"role": "user", "content": "Go"}, SAID, TOLD, {"role": "assistant", "content": ""}]})
    check_request({"input": [{"role": "user", "content": "Go"}, ITEM, OUTPUT]})


def test_what_comes_after_the_end_of_a_stream_is_not_looked_at() -> None:
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    for body, whole in ((["[DONE]", end], True), ([end, "[DONE]"], False), ([], False)):
        odd = Odd(body=body, streamed=True, calls=[Said("read", "", "c")], text="")
        look(odd)
        assert odd.whole == whole
