"""Streamed chunks put together again: however a reply is cut in pieces, the whole is the same record."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selection import scaled

from phronomy.errors import ModelConnectionError, ModelError
from phronomy.models import ModelReply, ReasoningDelta, TextDelta, ToolCallDelta
from phronomy.models.formats.answer import Answered
from phronomy.models.formats.chat_completion_chunks import Assembler
from phronomy.models.formats.chat_completions import read_completion, wire_message
from phronomy.models.http.sse import pieces


def chunk(finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def assembled(*chunks: Any) -> tuple[list[Any], ModelReply]:
    assembler = Assembler()
    deltas = [delta for one in chunks for delta in assembler.add(one)]
    return deltas, assembler.reply()


def whole(message: dict[str, Any], finish_reason: str, usage: Any = None) -> ModelReply:
    return read_completion({"choices": [{"message": message, "finish_reason": finish_reason}], "usage": usage})


def parts_of(text: str, cuts: list[int]) -> list[str]:
    """The text cut at these places, wherever they are."""
    places = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(places)] or [""]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
cuts = st.lists(st.integers(0, 100), max_size=5)
calls = st.lists(st.tuples(st.text("abc", min_size=1, max_size=3), texts), max_size=3)


@given(content=texts, reasoning=texts, calls=calls, cuts=cuts, order=st.randoms())
def test_a_reply_in_any_pieces_is_the_reply(
    content: str, reasoning: str, calls: list[tuple[str, str]], cuts: list[int], order: Any
) -> None:
    wire = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}, "sig": {"n": n}}
        for n, (name, arguments) in enumerate(calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": content, "reasoning_content": reasoning}
    if wire:
        message["tool_calls"] = wire
    chunks = [chunk(role="assistant", content="")]
    chunks += [chunk(reasoning_content=part) for part in parts_of(reasoning, cuts)]
    chunks += [chunk(content=part) for part in parts_of(content, cuts)]
    heads = [{"index": n, **one, "function": {**one["function"], "arguments": ""}} for n, one in enumerate(wire)]
    chunks += [chunk(tool_calls=[head]) for head in heads]
    queues = [
        [chunk(tool_calls=[{"index": n, "function": {"arguments": part}}]) for part in parts_of(arguments, cuts)]
        for n, (_, arguments) in enumerate(calls)
    ]
    while queues := [queue for queue in queues if queue]:
        chunks.append(order.choice(queues).pop(0))
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    deltas, reply = assembled(*chunks, chunk("stop"), {"choices": [], "usage": usage})
    assert reply == whole(message, "stop", usage)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == content
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == reasoning
    said = dict.fromkeys(range(len(calls)), ("", ""))
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            name, arguments = said[delta.index]
            said[delta.index] = (name + delta.name, arguments + delta.arguments)
    assert list(said.values()) == calls


@given(data=st.binary(max_size=200), events=st.lists(st.text(max_size=30), max_size=5))
def test_bytes_of_any_kind_end_in_a_model_error_or_an_error_of_the_provider(data: bytes, events: list[str]) -> None:
    sent = "".join(f"data: {event}\n\n" for event in events).encode("utf-8", "replace") + data
    with pytest.raises((ModelError, Answered)):
        list(pieces([sent[:7], sent[7:]], Assembler()))


KEYS = [
    "choices",
    "delta",
    "index",
    "content",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "id",
    "usage",
    "error",
    "type",
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=12,
)


@given(chunks=st.lists(json_values | st.builds(lambda delta: chunk("stop", x=delta), json_values), max_size=4))
def test_chunks_of_any_shape_end_in_a_reply_or_an_error_that_is_known(chunks: list[Any]) -> None:
    with suppress(ModelError, Answered):
        assembled(*chunks)


@given(delta=st.dictionaries(st.sampled_from([*KEYS, "thinking_blocks"]), json_values, max_size=4))
def test_deltas_of_any_shape_end_in_a_reply_or_an_error_that_is_known(delta: dict[str, Any]) -> None:
    with suppress(ModelError, Answered):
        assembled(chunk(**delta), chunk(**delta), chunk("stop"))


def test_details_of_reasoning_are_told_apart_by_index_type_and_id() -> None:
    """Two encrypted ones may have one index, each for its call; a text comes in pieces, with an index or without one."""

    def details(*found: dict[str, Any]) -> dict[str, Any]:
        return chunk(reasoning_details=[*found])

    secret = [{"type": "reasoning.encrypted", "index": 0, "id": id, "data": f"E{id}"} for id in ("a", "b")]
    plain = {"type": "reasoning.text", "id": None}
    pieces_ = [{**plain, "text": "I "}, {**plain, "text": "think", "signature": None}, {**plain, "signature": "S1"}]
    indexed = [{**each, "index": 1} for each in pieces_]
    _, reply = assembled(*map(details, (*secret, *pieces_, {**plain, "text": "More"}, *indexed)), chunk("stop"))
    assert reply.message.provider["reasoning_details"] == [
        *secret,
        {**plain, "text": "I think", "signature": "S1"},
        {**plain, "text": "More"},
        {**plain, "text": "I think", "index": 1, "signature": "S1"},
    ]


def test_many_entries_of_a_list_take_no_longer_each() -> None:
    found = [{"type": "reasoning.text", "text": "a", "index": number} for number in range(scaled(2_000, sweep=20_000))]
    _, reply = assembled(*(chunk(reasoning_details=[each]) for each in found), chunk("stop", content="x"))
    assert reply.message.provider["reasoning_details"] == found


def test_thinking_in_pieces_becomes_the_blocks_that_were_signed() -> None:
    def thinking(text: str, signature: str = "") -> dict[str, Any]:
        return chunk(thinking_blocks=[{"type": "thinking", "thinking": text, "signature": signature}])

    _, reply = assembled(thinking("I "), thinking("think"), thinking("", "S1"), thinking("More", "S2"), chunk("stop"))
    assert reply.message.provider == {
        "thinking_blocks": [
            {"type": "thinking", "thinking": "I think", "signature": "S1"},
            {"type": "thinking", "thinking": "More", "signature": "S2"},
        ]
    }


def test_reasoning_details_are_told_apart_by_their_index() -> None:
    def detail(index: int, kind: str, **more: Any) -> dict[str, Any]:
        return chunk(reasoning_details=[{"type": kind, "format": "f1", "index": index, **more}])

    _, reply = assembled(
        detail(0, "reasoning.text", text="I ", signature=None),
        detail(0, "reasoning.text", text="think", signature="S1"),
        detail(1, "reasoning.encrypted", data="b64", id="r1"),
        detail(1, "reasoning.encrypted", data="==", id="r1"),
        chunk("stop"),
    )
    assert reply.message.provider["reasoning_details"] == [
        {"type": "reasoning.text", "format": "f1", "index": 0, "text": "I think", "signature": "S1"},
        {"type": "reasoning.encrypted", "format": "f1", "index": 1, "data": "b64==", "id": "r1"},
    ]


def test_only_the_first_choice_counts_and_nulls_replace_nothing() -> None:
    other = {"index": 1, "delta": {"content": "other"}, "finish_reason": "length"}
    first = chunk(content="mine", reasoning_content=None, zeta="a")
    first["choices"].append(other)
    deltas, reply = assembled(first, chunk(content=None, zeta=None), {"choices": None, "usage": None}, chunk("stop"))
    assert deltas == [TextDelta(text="mine")]
    assert wire_message(reply.message) == {
        "role": "assistant",
        "content": "mine",
        "reasoning_content": None,
        "zeta": "a",
    }


def test_content_in_parts_stays_in_parts() -> None:
    def part(text: str) -> dict[str, Any]:
        return {"type": "text", "text": text}

    deltas, reply = assembled(chunk(content=[part("a")]), chunk(content="b"), chunk(content=""), chunk("stop"))
    assert (reply.message.content, [delta.text for delta in deltas]) == ([part("a"), part("b")], ["a", "b"])
    _, reply = assembled(chunk(content=""), chunk(content="a"), chunk(content=[part("b")]), chunk("stop"))
    assert reply.message.content == [part("a"), part("b")]


def test_the_text_of_a_part_of_another_type_is_not_streamed_as_the_answer() -> None:
    """It is kept with the message, whose `text` leaves it out as well."""
    parts = [{"type": "text", "text": "It is on its way."}, {"type": "aside", "text": "I had to look it up."}]
    deltas, reply = assembled(*(chunk(content=[part]) for part in parts), chunk("stop"))
    assert [delta.text for delta in deltas] == ["It is on its way."] == [reply.message.text]
    assert reply.message.content == parts


def test_calls_without_an_index_are_told_apart_by_their_id() -> None:
    def call(id: str | None, **function: Any) -> dict[str, Any]:
        return {**({"id": id} if id else {}), "function": function}

    chunks = [
        call("a", name="one", arguments='{"x"'),
        call(None, arguments=": 1}"),
        call("b", name="two", arguments={}),
    ]
    _, reply = assembled(*(chunk(tool_calls=[one]) for one in chunks), chunk("tool_calls"))
    found = [(one.id, one.name, one.arguments) for one in reply.message.tool_calls]
    assert found == [("a", "one", '{"x": 1}'), ("b", "two", "{}")]


def events(*lines: str) -> Iterable[bytes]:
    return [line.encode() for line in lines]


def test_the_end_of_a_stream_is_what_the_provider_says() -> None:
    half, end = json.dumps(chunk(content="Hello")), json.dumps(chunk("stop"))
    for told in (
        [f"data: {half}\n\ndata: {end}\n\n"],  # no [DONE]
        [f"data: {half}\r\n\r\n", "data: [DONE]\r\n\r\n", "data: what comes after does not count\n\n"],
        [f": a comment\n\ndata:{half}\n\n", "data: \n\n", "event: ping\ndata: [DONE]\n\n"],
    ):
        *deltas, reply = pieces(events(*told), Assembler())
        assert (deltas, isinstance(reply, ModelReply) and reply.message.text) == ([TextDelta(text="Hello")], "Hello")
    with pytest.raises(ModelConnectionError):
        list(pieces(events(f"data: {half}\n\n", "data: [DONE"), Assembler()))


def test_done_alone_ends_no_message_without_words_and_none_beside_a_choice_that_has_an_end() -> None:
    empty, half = json.dumps(chunk(role="assistant", content="")), json.dumps(chunk(content="Half"))
    other = json.dumps({"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]})
    with pytest.raises(ModelError, match="holds no message"):
        list(pieces(events(f"data: {empty}\n\n", "data: [DONE]\n\n", f"data: {half}\n\n"), Assembler()))
    with pytest.raises(ModelConnectionError):
        list(pieces(events(f"data: {half}\n\n", f"data: {other}\n\n", "data: [DONE]\n\n"), Assembler()))
