"""Nodes that are generators: their pieces come live, and what is stored, seen and resumed is the whole, once."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ForwardRef, Literal, NewType, NotRequired

import pytest
from drivers import ASYNC, PATIENCE, SYNC, Driver
from pydantic import BaseModel, JsonValue, create_model
from test_stream import take, take_until, types
from typing_extensions import TypeAliasType, TypedDict

from phronomy import (
    AsyncRequired,
    GraphError,
    InvalidUpdate,
    MemoryStore,
    Message,
    NodeFailed,
    RegistrationError,
    Respond,
    Result,
    SQLiteStore,
)
from phronomy.engine import run_tools
from phronomy.foundation.json_text import MAX_DEPTH
from phronomy.graph import (
    END,
    START,
    Abort,
    Continue,
    Graph,
    Pause,
    Replan,
    StateGraph,
    append,
    interrupt,
    merge,
    register_concat,
)
from phronomy.graph.state.streams import Unmergeable, kind_of_pieces, merged
from phronomy.observability.events import NodePiece, event_from, replay
from phronomy.records.messages import ToolCall
from phronomy.stores.base import Store

HOUR = 3600.0

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Talk(BaseModel):
    answer: str = ""
    notes: Annotated[list[str], append]
    facts: Annotated[dict[str, Any], merge]
    score: int = 0
    seen: Annotated[list[str], append]


def kind(driver: Driver, body: Callable[..., Generator[Any, Any, Any]]) -> Callable[..., Any]:
    """A generator function as this driver's kind."""
    if not driver.is_async:
        return body

    @wraps(body)
    async def twin(state: Any) -> AsyncGenerator[Any]:
        pieces = body(state)
        try:
            for piece in pieces:
                yield piece
                await asyncio.sleep(0)
        finally:
            pieces.close()

    return twin


def reads(state: Talk) -> dict[str, Any]:
    """The consumer: notes what it sees."""
    return {"seen": [state.answer]}


def talk(store: Store, body: Callable[..., Any], *, compiled: Mapping[str, Any] | None = None, **options: Any) -> Graph:
    """A graph of a node that gives `answer` in pieces, and one that reads it."""
    options = {"streams": ("answer",), **options}
    builder = StateGraph(Talk, name="talk").add_node("write", body, **options).add_node("read", reads)
    builder.add_edge(START, "write").add_edge("write", "read").add_edge("read", END)
    return builder.compile(store=store, **(compiled or {}))


def abc(state: Talk) -> Iterator[dict[str, Any]]:
    for piece in "abc":
        yield {"answer": piece}


def told(events: Sequence[Any]) -> list[Any]:
    """The pieces among the events, in order."""
    return [event.update for event in events if event.type == "node_piece"]


# The whole


def test_ein_a17_pieces_pending_at_a_pause_are_seen_as_abc_exactly_once_on_resume(driver: Driver, store: Store) -> None:
    calls: list[str] = []

    def body(state: Talk) -> Iterator[Any]:
        calls.append("write")
        yield {"answer": "a"}
        yield {"answer": "b"}
        yield Pause({"answer": "c"}, reason="look at it")

    graph = talk(store, kind(driver, body))
    stopped = driver.invoke(graph, {})
    assert (stopped.status, calls) == ("suspended", ["write"])
    assert graph.state_of(stopped.checkpoint).answer == "abc"
    assert graph.state_of(store.load(stopped.checkpoint.id)).answer == "abc"

    done = driver.resume(graph, stopped.checkpoint)
    assert (done.status, done.output.seen, calls) == ("completed", ["abc"], ["write"])


@pytest.mark.parametrize("stop", ["interrupt_after", "interrupt_before"])
def test_ein_a17_a_stream_before_a_breakpoint_is_one_value_after_it(driver: Driver, store: Store, stop: str) -> None:
    graph = talk(store, kind(driver, abc), compiled={stop: ["write" if stop == "interrupt_after" else "read"]})
    for ahead in (take(driver, graph, {})[1], driver.invoke(graph, {})):  # stopped streaming or not, resumed either way
        assert (ahead.status, graph.state_of(ahead.checkpoint).answer) == ("suspended", "abc")
        fork = driver.fork(graph, ahead.checkpoint)
        assert driver.resume(graph, ahead.checkpoint).output.seen == ["abc"]
        events, result = take(driver, graph, fork)
        assert (told(events), result.output.seen) == ([], ["abc"])


def test_no_checkpoint_and_no_journal_entry_ever_holds_a_piece(driver: Driver, store: Store) -> None:
    def body(state: Talk) -> Iterator[Any]:
        yield {"answer": "first-"}
        text.append(kept(store))
        yield {"answer": "second"}

    text: list[str] = []
    assert driver.invoke(talk(store, kind(driver, body)), {}).output.seen == ["first-second"]
    assert "first-" not in text[0]
    assert kept(store).count("first-") == kept(store).count("first-second") > 0


def kept(store: Store) -> str:
    """All that is stored of the run, as text."""
    return "\n".join(str(entry.body) for entry in store.lineage(branch_id=store.branches()[0].id).entries)


def test_channels_in_streams_come_in_many_pieces_and_others_once(driver: Driver, store: Store) -> None:
    def body(state: Talk) -> Iterator[Any]:
        yield {"answer": "a", "score": 3, "notes": ["one"]}
        yield None
        yield Talk.model_construct({"answer", "notes"}, answer="b", notes=["two", "three"])
        yield {"facts": {"k": "x", "n": 1}}
        yield {"facts": {"k": "y", "n": 2}, "answer": "c"}

    done = driver.invoke(talk(store, kind(driver, body), streams=["answer", "notes", "facts"]), {}).output
    assert (done.answer, done.score, done.notes, done.facts) == ("abc", 3, ["one", "two", "three"], {"k": "xy", "n": 2})


def test_an_empty_stream_is_an_empty_update(driver: Driver, store: Store) -> None:
    """E29."""

    def body(state: Talk) -> Iterator[Any]:
        yield from ()

    events, done = take(driver, talk(store, kind(driver, body)), {"answer": "as it was"})
    assert (done.output.answer, done.output.seen, told(events)) == ("as it was", ["as it was"], [])


def test_the_last_piece_may_be_a_signal_with_its_update(driver: Driver, store: Store) -> None:
    def giving(last: Any) -> Callable[..., Any]:
        def body(state: Talk) -> Iterator[Any]:
            yield {"answer": "a"}
            yield Continue({"answer": "!"}) if len(state.answer) > 3 else last

        return kind(driver, body)

    done = driver.invoke(talk(store, giving(Continue({"answer": "b"}))), {})
    assert done.output.seen == ["ab"]
    ended = driver.invoke(talk(store, giving(Abort({"answer": "b"}, reason="enough"))), {})
    assert (ended.status, ended.checkpoint.ending.reason) == ("cancelled", "enough")
    again = driver.invoke(talk(store, giving(Replan({"answer": "b"}, to="read")), destinations=["read"]), {})
    assert again.output.seen == ["ab"]
    paused = driver.invoke(talk(store, giving(Pause())), {})
    assert (paused.status, driver.resume(talk(store, giving(None)), paused.checkpoint).output.seen) == (
        "suspended",
        ["a"],
    )


def test_what_the_node_does_afterwards_to_a_list_that_it_gave_changes_nothing(driver: Driver, store: Store) -> None:
    def body(state: Talk) -> Iterator[Any]:
        notes, facts = ["one"], {"k": ["x"]}
        yield {"notes": notes, "facts": facts}
        notes.append("never")
        facts["k"].append("never")
        yield {"notes": ["two"]}

    done = driver.invoke(talk(store, kind(driver, body), streams=["notes"]), {}).output
    assert (done.notes, done.facts) == (["one", "two"], {"k": ["x"]})


def test_a_fallback_may_give_its_update_in_pieces_too_and_nothing_of_the_failed_node_is_kept(
    driver: Driver, store: Store
) -> None:
    def body(state: Talk) -> Iterator[Any]:
        yield {"answer": "lost "}
        raise ConnectionError("gone")

    whole = talk(store, kind(driver, body), fallback=lambda state: {"answer": "whole"})
    assert driver.invoke(whole, {}).output.seen == ["whole"]
    events, done = take(driver, talk(store, kind(driver, body), fallback=kind(driver, abc)), {})
    assert done.output.seen == ["abc"]
    assert [(event.node, event.update["answer"]) for event in events if event.type == "node_piece"] == [
        ("write", "lost "),
        ("write", "a"),
        ("write", "b"),
        ("write", "c"),
    ]


# What is refused


class Colour(StrEnum):
    RED = "red"


@dataclass
class Point:
    x: int


class Delta(TypedDict):
    role: str
    parts: NotRequired[list[str]]


class Dated(TypedDict):
    at: datetime
    colour: Colour


class Tree(TypedDict):
    text: str
    below: NotRequired[dict[str, Tree]]


Name = NewType("Name", str)

Json = TypeAliasType("Json", "Annotated[dict[str, Annotated[Json, []]] | list[Json] | str | float | None, []]")


def graph_of(hint: Any, **options: Any) -> StateGraph[Any]:
    def body(state: Any) -> Iterator[Any]:
        yield {"value": None}

    options = {"streams": ["value"], **options}
    return StateGraph(create_model("State", value=(hint, ...))).add_node("write", body, **options)


@pytest.mark.parametrize(
    ("hint", "why"),
    [
        (int, "no concat is registered for int"),
        (Any, "its type is Any"),
        (str | list[str], "a union of several types"),
        (Point, "no concat is registered for Point"),
        (Colour, "no concat is registered for Colour"),
        (Literal["a", "b"], "no concat is registered for"),
        (datetime | None, "no concat is registered for datetime"),
        (Counter[str], "no concat is registered for Counter"),
        (OrderedDict[str, int], "no concat is registered for OrderedDict"),
        (dict[str, Point], "no concat is registered for Point"),
        (dict[str, dict[str, str | Colour]], "no concat is registered for Colour"),
        (Dated, "no concat is registered for Colour"),
    ],
    ids=str,
)
def test_ein_a18_a_type_that_cannot_be_merged_is_refused_when_the_graph_is_built(hint: Any, why: str) -> None:
    with pytest.raises(GraphError, match=why) as caught:
        graph_of(hint)
    assert "node 'write': pieces of the channel 'value'" in str(caught.value)
    assert "register_concat" in str(caught.value)


@pytest.mark.parametrize(
    "hint",
    [
        str, bytes, list[int], list[Message], dict[str, Any], Mapping[str, int | None], Message, Sequence[str], Name, Delta,
        str | None, Annotated[str, "a mark"] | None, list[int] | list[str], dict[str, str | list[Point]],
        dict[str, dict[str, Message | datetime | bool]],
    ],
    ids=str,
)  # fmt: skip
def test_types_that_can_be_merged_are_taken(hint: Any) -> None:
    graph_of(hint).add_edge(START, "write").add_edge("write", END).compile()


@pytest.mark.parametrize(
    "hint", [Tree, dict[str, Json], dict[Name, Name | None], dict[str, JsonValue], dict[str, ForwardRef("Later")], dict]
)
def test_types_that_hold_themselves_and_types_that_say_nothing_are_taken(hint: Any) -> None:
    assert kind_of_pieces(hint) is dict
    with pytest.raises(Unmergeable, match="no concat is registered for Point"):
        kind_of_pieces(dict[str, hint | Point])


def test_a_generator_says_which_channels_it_gives_in_pieces(store: Store) -> None:
    builder = StateGraph(Talk, name="talk")
    with pytest.raises(GraphError, match=r"'write' is a generator: .*streams=\('answer',\)"):
        builder.add_node("write", abc)
    with pytest.raises(GraphError, match=r"'write' is a generator: .*streams=\('answer',\)"):
        builder.add_node("write", kind(ASYNC, abc), streams=())
    with pytest.raises(GraphError, match="streams names 'reply'; the channels are answer, notes"):
        builder.add_node("write", abc, streams=["reply"])
    for wrong in ("answer", [1]):
        with pytest.raises(GraphError, match="streams is a list of channels"):
            builder.add_node("write", abc, streams=wrong)
    with pytest.raises(GraphError, match="'read' has streams, but its function returns its update"):
        builder.add_node("read", reads, streams=["answer"])
    with pytest.raises(GraphError, match="streams is for functions"):
        builder.add_node("inner", talk(store, abc), streams=["answer"])
    with pytest.raises(GraphError, match="'abc' is a generator"):
        builder.add_node("read", reads, fallback=abc)
    with pytest.raises(GraphError, match="is a generator"):
        builder.add_conditional_edges(START, abc)
    assert builder._nodes == {}


def test_an_async_generator_is_refused_by_sync_calls_before_anything_is_stored(store: Store) -> None:
    with pytest.raises(AsyncRequired, match="'write'"):
        talk(store, kind(ASYNC, abc)).invoke({})
    assert store.branches() == []


def test_a_sync_generator_runs_in_async_calls_and_holds_up_no_loop(store: Store) -> None:
    heard = threading.Event()

    def body(state: Talk) -> Iterator[Any]:
        yield {"answer": "a"}
        assert heard.wait(PATIENCE)
        yield {"answer": "b"}

    async def main() -> Any:
        async with talk(store, body).astream({}) as stream:
            async for event in stream:
                if event.type == "node_piece":
                    heard.set()
        return stream.result

    assert asyncio.run(main(), debug=True).output.seen == ["ab"]  # which refuses to be touched by another thread


def one(*pieces: Any) -> Callable[[Any], Iterator[Any]]:
    def body(state: Talk) -> Iterator[Any]:
        yield from pieces

    return body


def returning(state: Talk) -> Generator[Any, None, Any]:
    yield {"answer": "a"}
    return {"answer": "b"}


def giving_its_state(state: Talk) -> Iterator[Any]:
    state.answer = "changed"
    yield state


@pytest.mark.parametrize(
    ("body", "why", "channel"),
    [
        (one({"score": 1}, {"answer": "a"}, {"score": 1}), "gave the channel 'score' a second time", "score"),
        (one({"answer": "a"}, {"answer": ["b"]}), "gave a list as a piece of 'answer', which is a str", "answer"),
        (one({"answer": "a"}, {"reply": "b"}), "wrote to 'reply', which is no channel", "reply"),
        (one({"answer": "a"}, "b"), "gave a str, which is no update", None),
        (one(Pause({"answer": "a"}), {"answer": "b"}), "gave a piece after Pause, which is the last", None),
        (one(Continue(), None), "gave a piece after Continue", None),
        (giving_its_state, "gave the state that it was given as a piece", None),
        (one({"facts": {"k": {"d": "x"}}}, {"facts": {"k": {"d": 1}}}), "at facts.k.d: a str and a int", "facts"),
        (one({"facts": {"k": {1}}}, {"facts": {"k": {2}}}), "at facts.k: no concat is registered for set", "facts"),
        (one({"notes": ["a"]}, {"notes": [1]}), "is no value of the channel 'notes'", "notes"),
    ],
)  # fmt: skip
def test_pieces_that_are_no_update_fail_the_node_and_name_it_and_its_channel(
    driver: Driver, store: Store, body: Any, why: str, channel: str | None
) -> None:
    ended: list[str] = []

    def watched(state: Talk) -> Iterator[Any]:
        try:
            yield from body(state)
        finally:
            ended.append("closed")

    graph = talk(store, kind(driver, watched), streams=["answer", "facts", "notes"])
    with pytest.raises(NodeFailed, match="'write'") as caught:
        driver.invoke(graph, {})
    cause = caught.value.__cause__
    assert isinstance(cause, InvalidUpdate) and why in str(cause)
    assert (cause.node, cause.channel, ended) == ("write", channel, ["closed"])
    assert graph.state_of(caught.value.checkpoint) == Talk.model_validate({"notes": [], "facts": {}, "seen": []})


def test_a_value_that_a_generator_returns_is_refused_and_not_lost(store: Store) -> None:
    with pytest.raises(NodeFailed) as caught:
        talk(store, returning).invoke({})
    assert "returned a value, which nobody would see" in str(caught.value.__cause__)


# How pieces become one


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (["a", "", "b"], "ab"),
        ([None, "a", None], "a"),
        ([None, None], None),
        ([b"\xc3", b"\xa9"], "é".encode()),
        ([[1], [], ["b"]], [1, "b"]),
        ([{"a": "x"}, {"b": "y"}, {"a": "z"}], {"a": "xz", "b": "y"}),
        ([{"a": {"b": [1]}}, {"a": {"b": [2], "c": None}}], {"a": {"b": [1, 2], "c": None}}),
        ([{"n": 1}, {"n": 2.5}, {"n": Decimal(3)}], {"n": Decimal(3)}),
        ([{"n": 1}, {"n": None}], {"n": None}),
        ([{"on": True}, {"on": False}], {"on": False}),
        ([{"a": None}, {"a": "x"}], {"a": "x"}),
        ([{"at": NOON}, {"at": NOON.replace(hour=13)}], {"at": NOON.replace(hour=13)}),
        ([{"colour": Colour.RED}], {"colour": Colour.RED}),
    ],
    ids=repr,
)  # fmt: skip
def test_pieces_become_one_value(pieces: list[Any], whole: Any) -> None:
    """E29."""
    assert merged(pieces) == whole


@pytest.mark.parametrize(
    ("pieces", "path"),
    [
        ([{"a": "x"}, {"a": ["x"]}], ".a"),
        ([{"a": 1}, {"a": "x"}], ".a"),
        ([{"a": 1}, {"a": True}], ".a"),
        ([{"a": {"b c": 1}}, {"a": {"b c": {}}}], ".a['b c']"),
        ([{"a": Colour.RED}, {"a": Colour.RED}], ".a"),
        ([{"a": Point(1)}, {"a": Point(2)}], ".a"),
        (["a", b"a"], ""),
    ],
    ids=repr,
)
def test_pieces_of_different_types_are_refused_with_their_path(pieces: list[Any], path: str) -> None:
    """E29."""
    with pytest.raises(Unmergeable) as caught:
        merged(pieces)
    assert caught.value.path == path


def test_messages_are_joined_by_their_text_and_their_calls() -> None:
    """E29."""
    first = Message(role="assistant", content="On ", tool_calls=(ToolCall(id="1", name="pay", arguments='{"a"'),))
    second = Message(
        role="assistant",
        tool_calls=(ToolCall(id="1", name="", arguments=":1}"), ToolCall(id="2", name="f", arguments="")),
    )
    third = Message(role="assistant", content="it.", provider={"thinking": "hm"})
    assert merged([first, second, third]) == Message(
        role="assistant",
        content="On it.",
        tool_calls=(ToolCall(id="1", name="pay", arguments='{"a":1}'), ToolCall(id="2", name="f", arguments="")),
        provider={"thinking": "hm"},
    )
    parts = Message(role="assistant", content=[{"type": "text", "text": "!"}])
    assert merged([third, parts]).text == "it.!"
    for other in (Message(role="user", content="x"), Message(role="assistant", content="x", provider={"thinking": 1})):
        with pytest.raises(Unmergeable):
            merged([third, other])
    with pytest.raises(Unmergeable, match="differ in its name"):
        merged([first, first.evolve(tool_calls=(ToolCall(id="1", name="ship", arguments=""),))])


class Said(TypedDict):
    message: Message
    log: Annotated[list[Message], append]


def test_messages_and_lists_of_messages_are_channels_that_stream(driver: Driver, store: Store) -> None:
    def body(state: Said) -> Iterator[Any]:
        for text in ("On ", "it."):
            message = Message(role="assistant", content=text)
            yield {"message": message, "log": [message]}

    builder = StateGraph(Said).add_node("write", kind(driver, body), streams=["message", "log"])
    done = driver.invoke(builder.add_edge(START, "write").add_edge("write", END).compile(store=store), {}).output
    assert (done["message"].text, [each.text for each in done["log"]]) == ("On it.", ["On ", "it."])


class Votes(BaseModel):
    """A test derives classes of its own from it: what is registered stays so."""

    votes: dict[str, int]


def test_a_class_of_ones_own_is_merged_by_what_was_registered_for_it_and_so_are_its_subclasses(driver: Driver) -> None:
    Tally = create_model("Tally", __base__=Votes)
    Ballot = create_model("Ballot", __base__=Tally, place=(str, "here"))
    Sealed = create_model("Sealed", __base__=Tally)
    with pytest.raises(GraphError, match="no concat is registered for Tally"):
        graph_of(Tally)
    given: list[list[Votes]] = []

    def count(pieces: list[Votes]) -> Votes:
        given.append(pieces)
        votes: Counter[str] = Counter()
        for piece in pieces:
            votes.update(piece.votes)
        return pieces[0].model_copy(update={"votes": dict(votes)})

    register_concat(Tally, count)
    register_concat(Sealed, lambda pieces: pieces[-1])

    def write(*pieces: Votes) -> Any:
        builder = StateGraph(create_model("State", value=(type(pieces[0]) | None, None)))
        builder.add_node("write", kind(driver, one(*({"value": piece} for piece in pieces))), streams=["value"])
        return driver.invoke(builder.add_edge(START, "write").add_edge("write", END).compile(), {}).output.value

    assert write(Tally(votes={"x": 1}), Tally(votes={"x": 2, "y": 1})) == Tally(votes={"x": 3, "y": 1})
    assert write(Ballot(votes={"x": 1}, place="there"), Ballot(votes={"x": 1})) == Ballot(votes={"x": 2}, place="there")
    assert write(Sealed(votes={"x": 1}), Sealed(votes={"y": 2})) == Sealed(votes={"y": 2})
    assert len(given) == 2
    assert write(Tally(votes={"x": 1})) == Tally(votes={"x": 1})
    assert len(given) == 2  # what came in one piece is what it is


def test_registrations_that_make_no_sense_are_refused_with_typed_errors() -> None:
    class Fresh:
        pass

    for cls in ("Fresh", list[int], None, object, type(None)):
        with pytest.raises(RegistrationError, match="registered for a class of its own"):
            register_concat(cls, lambda pieces: pieces[0])  # type: ignore[arg-type]
    for cls in (str, bytes, list, dict, Message):
        with pytest.raises(RegistrationError, match=f"{cls.__name__} has a concat already"):
            register_concat(cls, lambda pieces: pieces[0])

    async def slowly(pieces: list[Fresh]) -> Fresh:
        return pieces[0]

    wrong: list[Any] = ["join", slowly, lambda: None, lambda pieces, more: None, abc]
    for function in wrong:
        with pytest.raises(RegistrationError, match=r"the concat of .*Fresh"):
            register_concat(Fresh, function)
    register_concat(Fresh, max)  # written in C: it does not tell what it takes
    with pytest.raises(RegistrationError, match="has a concat already"):
        register_concat(Fresh, lambda pieces: pieces[0])


def test_of_many_threads_that_register_one_class_one_does_and_none_of_the_others_is_lost() -> None:
    classes = [type(f"Made{number}", (), {}) for number in range(40)]
    together = threading.Barrier(4)
    refused: list[str] = []

    def register() -> None:
        together.wait(PATIENCE)
        for cls in classes:
            try:
                register_concat(cls, lambda pieces: pieces[-1])
            except RegistrationError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=register) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(refused) == 3 * len(classes)
    for cls in classes:
        values = [cls(), cls()]
        assert merged(values) is values[1]


def test_what_a_registered_function_does_wrong_fails_the_node_in_its_own_call(driver: Driver, store: Store) -> None:
    answers: list[Any] = [ZeroDivisionError("secret"), "no Odd"]

    def wrong(pieces: list[Any]) -> Any:
        if isinstance(answer := answers[0], Exception):
            raise answer
        return answer

    cls = create_model("Odd", x=(int, 0))
    register_concat(cls, wrong)
    graph = StateGraph(create_model("State", value=(cls | None, None)))
    graph.add_node("write", kind(driver, one({"value": cls(x=1)}, {"value": cls(x=2)})), streams=["value"])
    graph.add_edge(START, "write").add_edge("write", END)
    for why in ("whose concat raised ZeroDivisionError", "the concat of Odd gave a str"):
        with pytest.raises(NodeFailed) as caught:
            driver.invoke(graph.compile(store=store), {})
        assert why in str(caught.value.__cause__) and "secret" not in str(caught.value)
        answers.pop(0)


# Live


def test_each_piece_comes_before_the_next_is_made_between_the_start_and_the_end_of_its_node(
    driver: Driver, store: Store
) -> None:
    heard = {"a": threading.Event(), "b": threading.Event()}

    def body(state: Talk) -> Iterator[Any]:
        yield {"answer": "a"}
        assert heard["a"].wait(PATIENCE)  # whoever watches has the first piece before there is a second
        yield {"answer": "b"}
        assert heard["b"].wait(PATIENCE)
        yield {"answer": "c", "score": 1}

    def listen(event: Any) -> bool:
        if event.type == "node_piece" and event.update["answer"] in heard:
            heard[event.update["answer"]].set()
        return False

    graph = talk(store, body) if driver is SYNC else talk(store, threaded(body))
    events = take_until(driver, graph, {}, listen)
    assert types(events) == [
        "run_started", "checkpoint",
        "checkpoint", "tool_call_started", "node_piece", "node_piece", "node_piece", "tool_call_settled",
        "checkpoint", "tool_call_started", "tool_call_settled",
        "checkpoint", "completed",
    ]  # fmt: skip
    assert told(events) == [{"answer": "a"}, {"answer": "b"}, {"answer": "c", "score": 1}]
    started = next(event for event in events if event.type == "tool_call_started")
    pieces = [event for event in events if event.type == "node_piece"]
    assert {(piece.node, piece.path, piece.call_id, piece.attempt) for piece in pieces} == {
        ("write", "", started.call_id, 1)
    }
    assert events[-1].output["seen"] == ["abc"]


def threaded(body: Callable[[Any], Iterator[Any]]) -> Callable[..., Any]:
    """A sync generator as an async one that waits in threads, so that it holds up no loop."""

    async def twin(state: Talk) -> AsyncGenerator[Any]:
        pieces, end = body(state), object()
        try:
            while (piece := await asyncio.to_thread(next, pieces, end)) is not end:
                yield piece
        finally:
            pieces.close()

    return twin


def test_pieces_of_nodes_side_by_side_come_interleaved_each_in_its_own_order(driver: Driver, store: Store) -> None:
    turn = {name: threading.Event() for name in ("left 1", "right 1", "left 2")}

    def node(name: str, waits: Mapping[int, str]) -> Callable[..., Any]:
        def body(state: Talk) -> Iterator[Any]:
            for number in (1, 2, 3):
                if number in waits:
                    assert turn[waits[number]].wait(PATIENCE)
                yield {"notes": [f"{name} {number}"]}

        return body if driver is SYNC else threaded(body)

    builder = StateGraph(Talk).add_node("left", node("left", {2: "right 1"}), streams=["notes"])
    builder.add_node("right", node("right", {1: "left 1", 2: "left 2"}), streams=["notes"])
    for name in ("left", "right"):
        builder.add_edge(START, name).add_edge(name, END)

    def listen(event: Any) -> bool:
        if event.type == "node_piece" and event.update["notes"][0] in turn:
            turn[event.update["notes"][0]].set()
        return False

    events = take_until(driver, builder.compile(store=store), {}, listen)
    pieces = [update["notes"][0] for update in told(events)]
    assert pieces[:3] == ["left 1", "right 1", "left 2"]
    for name in ("left", "right"):
        assert [piece for piece in pieces if piece.startswith(name)] == [f"{name} {number}" for number in (1, 2, 3)]
        mine = [event.type for event in events if getattr(event, "node", getattr(event, "tool_name", "")) == name]
        assert mine == ["tool_call_started", *["node_piece"] * 3, "tool_call_settled"]
    assert events[-1].output["notes"] == [f"{name} {number}" for name in ("left", "right") for number in (1, 2, 3)]


def test_a_slow_consumer_holds_up_no_node_and_its_waiting_is_no_work_of_the_node(
    driver: Driver, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock jumps by an hour while the consumer has the first piece, and the node has settled by then."""
    clock, settled = Clock(), threading.Event()
    monkeypatch.setattr("phronomy.engine.clock.time", clock)
    real = run_tools.settled

    def noticed(*given: Any) -> Any:
        outcome = real(*given)
        settled.set()
        return outcome

    monkeypatch.setattr(run_tools, "settled", noticed)

    def listen(event: Any) -> None:
        if event.type == "node_piece" and event.update == {"answer": "a"}:
            assert settled.wait(PATIENCE)
            clock.now += HOUR

    events = attended(driver, talk(store, abc), listen)
    assert (told(events), clock.now) == ([{"answer": piece} for piece in "abc"], HOUR)
    assert store.load(events[-1].checkpoint_id).elapsed < HOUR * 1000


def attended(driver: Driver, graph: Graph, listen: Callable[[Any], None]) -> list[Any]:
    """The events of a run, each of which is listened to before the next is asked for."""
    events: list[Any] = []
    if driver is SYNC:
        for event in graph.stream({}):
            events.append(event)
            listen(event)
        return events

    async def main() -> None:
        async for event in graph.astream({}):
            events.append(event)
            await asyncio.to_thread(listen, event)

    asyncio.run(main())
    return events


class Clock:
    """Stands in for `time` where work is measured."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_consumer_that_leaves_at_a_piece_loses_pieces_and_no_state(driver: Driver, store: Store) -> None:
    calls: list[str] = []

    def body(state: Talk) -> Iterator[Any]:
        calls.append("write")
        yield from abc(state)

    graph = talk(store, kind(driver, body))
    events = take_until(driver, graph, {}, lambda event: event.type == "node_piece", thread_id="t")
    assert (told(events), calls) == ([{"answer": "a"}], ["write"])
    (branch,) = store.branches()
    assert "abc" in kept(store) and not branch.is_held(store.clock())

    done = driver.resume(graph, store.head(branch.id)[1])
    assert (done.status, done.output.seen, calls) == ("completed", ["abc"], ["write"])


def test_leaving_while_one_node_has_settled_and_another_still_gives_pieces_waits_for_both(
    driver: Driver, store: Store
) -> None:
    through = threading.Event()
    calls: list[str] = []

    def quick(state: Talk) -> dict[str, Any]:
        calls.append("quick")
        return {"notes": ["quick"]}

    def slow(state: Talk) -> Iterator[Any]:
        calls.append("slow")
        yield {"answer": "a"}
        assert through.wait(PATIENCE)
        yield {"answer": "b"}
        yield {"answer": "c"}

    builder = StateGraph(Talk).add_node("quick", quick).add_node("slow", slow, streams=["answer"])
    for name in ("quick", "slow"):
        builder.add_edge(START, name).add_edge(name, END)
    graph = builder.compile(store=store)

    def enough(event: Any) -> bool:
        if event.type == "tool_call_settled":
            through.set()
            return True
        return False

    events = take_until(driver, graph, {}, enough)
    assert events[-1].tool_name == "quick"
    done = driver.resume(graph, store.head(store.branches()[0].id)[1])
    assert (done.output.answer, done.output.notes, sorted(calls)) == ("abc", ["quick"], ["quick", "slow"])


def test_leaving_at_a_piece_of_a_node_that_then_fails_leaves_it_to_be_resumed(driver: Driver, store: Store) -> None:
    fails = [True]

    def body(state: Talk) -> Iterator[Any]:
        yield {"answer": "a"}
        if fails:
            raise ConnectionError("gone")
        yield {"answer": "b"}

    graph = talk(store, kind(driver, body))
    take_until(driver, graph, {}, lambda event: event.type == "node_piece")
    fails.clear()
    done = driver.resume(graph, store.head(store.branches()[0].id)[1])
    assert done.output.seen == ["ab"]


def test_pieces_are_live_alone_json_both_ways_and_in_no_log(driver: Driver, store: Store) -> None:
    graph = talk(store, kind(driver, abc))
    events, result = take(driver, graph, {})
    pieces = [event for event in events if event.type == "node_piece"]
    assert [event_from(piece.model_dump_json()) for piece in pieces] == pieces
    assert all(isinstance(piece, NodePiece) and "answer" not in repr(piece) for piece in pieces)
    places = [(event.seq, event.part) for event in events]
    assert places == sorted(set(places))
    assert "node_piece" not in types(list(replay(store, result.checkpoint.branch_id)))


def test_a_piece_without_a_json_form_is_told_as_null_and_one_that_is_too_deep_not_at_all(
    driver: Driver, store: Store
) -> None:
    def body(state: Any) -> Iterator[Any]:
        yield {"raw": b"\xc3", "found": {"s": object}}
        yield {"raw": b"\xa9", "found": {"s": None}}
        deep: Any = None
        for _ in range(MAX_DEPTH):
            deep = [deep]
        yield {"found": {"t": deep}}

    builder = StateGraph(create_model("State", raw=(bytes, b""), found=(dict[str, Any], {})))
    builder.add_node("write", kind(driver, body), streams=["raw", "found"])
    graph = builder.add_edge(START, "write").add_edge("write", END).compile(store=store)
    heard: list[Any] = []

    def listen(event: Any) -> bool:
        heard.extend(told([event]))
        return False

    with pytest.raises(NodeFailed):  # a class is nothing that a state can hold
        take_until(driver, graph, {}, listen)
    assert heard == [{"raw": "ww==", "found": {"s": None}}, {"raw": "qQ==", "found": {"s": None}}]


def test_pieces_of_graphs_inside_come_live_with_their_path(driver: Driver, store: Store) -> None:
    heard = threading.Event()

    def body(state: Talk) -> Iterator[Any]:
        yield {"answer": "a"}
        assert heard.wait(PATIENCE)
        yield {"answer": "b"}

    inner = talk(store, body if driver is SYNC else threaded(body))
    middle = StateGraph(Talk).add_node("inner", inner).add_edge(START, "inner").add_edge("inner", END).compile()
    outer = StateGraph(Talk).add_node("middle", middle).add_edge(START, "middle").add_edge("middle", END)

    def listen(event: Any) -> bool:
        if event.type == "node_piece":
            heard.set()
        return False

    events = take_until(driver, outer.compile(store=store), {}, listen)
    pieces = [event for event in events if event.type == "node_piece"]
    assert [(piece.path, piece.node, piece.update) for piece in pieces] == [
        ("1.0/1.0", "write", {"answer": "a"}),
        ("1.0/1.0", "write", {"answer": "b"}),
    ]
    assert events[-1].output["seen"] == ["ab"]


def test_a_graph_that_a_node_invokes_by_itself_tells_nothing_to_whoever_watches_this_one(
    driver: Driver, store: Store
) -> None:
    own = talk(MemoryStore(), abc)

    def body(state: Talk) -> Iterator[Any]:
        yield {"answer": "<"}
        yield {"answer": own.invoke({}).output.answer.upper()}
        yield {"answer": ">"}

    events, result = take(driver, talk(store, body), {})
    assert told(events) == [{"answer": "<"}, {"answer": "ABC"}, {"answer": ">"}]
    assert result.output.seen == ["<ABC>"]


# Left, failed, killed


class Opened:
    """A body that notes when it was begun and closed, and stops at its second piece until it may go on."""

    def __init__(self, driver: Driver) -> None:
        self.is_async = driver.is_async
        self.begun: list[int] = []
        self.given: list[str] = []
        self.closed: list[int] = []
        self.drawn, self.may_go, self.gone = threading.Event(), threading.Event(), threading.Event()

    @property
    def body(self) -> Callable[..., Any]:
        return self.arun if self.is_async else self.run

    def run(self, state: Talk) -> Iterator[Any]:
        self.begun.append(number := len(self.begun) + 1)
        try:
            for piece in "abc":
                self.given.append(f"{piece}{number}")
                yield {"answer": piece}
                if (number, piece) == (1, "a"):
                    self.drawn.set()
                    assert self.may_go.wait(PATIENCE)
        finally:
            self.closed.append(number)
            self.gone.set()

    async def arun(self, state: Talk) -> AsyncGenerator[Any]:
        self.begun.append(number := len(self.begun) + 1)
        try:
            yield {"answer": "a"}
            if number == 1:
                self.drawn.set()
                await asyncio.Event().wait()  # until it is cancelled
            yield {"answer": "b"}
            yield {"answer": "c"}
        finally:
            self.closed.append(number)
            self.gone.set()


def stopped_while_it_drains(driver: Driver, store: Store, opened: Opened, **options: Any) -> tuple[Graph, Any]:
    graph = talk(store, opened.body, **options)
    box: list[Result[Any]] = []
    thread = threading.Thread(target=lambda: box.append(driver.invoke(graph, {})))
    thread.start()
    assert opened.drawn.wait(PATIENCE)
    graph.pause(store.branches()[0].id, grace=0, reason="enough for today")
    thread.join(PATIENCE)
    opened.may_go.set()
    assert opened.gone.wait(PATIENCE)
    return graph, box[0]


def test_a_pause_with_no_grace_closes_the_generator_and_keeps_nothing_of_it(driver: Driver, store: Store) -> None:
    opened = Opened(driver)
    graph, result = stopped_while_it_drains(driver, store, opened, idempotent=True)
    assert (result.status, opened.begun, opened.closed) == ("suspended", [1], [1])
    assert graph.state_of(result.checkpoint).answer == ""
    done = driver.resume(graph, result.checkpoint)
    assert (done.output.seen, opened.begun, opened.closed) == (["abc"], [1, 2], [1, 2])


def test_a_pause_with_no_grace_asks_about_a_generator_that_may_not_run_again(driver: Driver, store: Store) -> None:
    opened = Opened(driver)
    graph, result = stopped_while_it_drains(driver, store, opened)
    assert opened.closed == [1]
    asked = {item.why: item.id for item in result.checkpoint.pending}
    assert asked.keys() == {"breakpoint", "outcome_unknown"}
    given = Respond(content={"answer": "by hand"})
    again = driver.resume(graph, result.checkpoint, decisions={asked["outcome_unknown"]: given})
    done = again if again.status == "completed" else driver.resume(graph, again.checkpoint)
    assert (done.output.seen, opened.begun) == (["by hand"], [1])


def test_a_generator_that_overran_is_closed_and_the_next_attempt_gives_the_whole(driver: Driver, store: Store) -> None:
    opened = Opened(driver)
    graph = talk(store, opened.body, idempotent=True, timeout=0.5, retry_wait=0)
    events, result = take(driver, graph, {})
    opened.may_go.set()
    assert opened.gone.wait(PATIENCE)
    assert (result.output.seen, opened.begun) == (["abc"], [1, 2])
    pieces = [(event.attempt, event.update["answer"]) for event in events if event.type == "node_piece"]
    assert pieces == [(1, "a"), (2, "a"), (2, "b"), (2, "c")]
    assert wait_for(lambda: sorted(opened.closed) == [1, 2])


def wait_for(condition: Callable[[], bool]) -> bool:
    """Whether it comes to be true: a thread that was left closes its generator when it notices."""
    tick = threading.Event()
    return any(condition() or tick.wait(0.01) for _ in range(int(PATIENCE * 100)))


def test_a_node_that_is_left_is_closed_at_its_next_piece_and_told_no_more(driver: Driver, store: Store) -> None:
    """A thread cannot be stopped: its generator is closed as soon as it gives anything."""
    opened = Opened(SYNC)
    graph = talk(store, opened.run, idempotent=True, timeout=0.5, retry_wait=0)
    events, result = take(driver, graph, {})
    assert (result.output.seen, opened.closed) == (["abc"], [2])
    opened.may_go.set()
    assert wait_for(lambda: opened.closed == [2, 1])
    assert opened.given == ["a1", "a2", "b2", "c2", "b1"]
    assert [(event.attempt) for event in events if event.type == "node_piece"] == [1, 2, 2, 2]


def test_a_piece_of_an_attempt_that_was_left_never_comes_between_those_of_the_next(
    driver: Driver, store: Store
) -> None:
    """In a graph inside, where nothing else of the node is told, and the attempts are heard in one place."""
    opened = Opened(SYNC)

    def body(state: Talk) -> Iterator[Any]:
        for place, piece in enumerate(opened.run(state)):
            yield piece
            if opened.begun == [1, 2] and place == 0 and not opened.may_go.is_set():
                opened.may_go.set()
                assert wait_for(lambda: opened.closed == [1])

    inner = talk(MemoryStore(), body, idempotent=True, timeout=0.5, retry_wait=0)
    outer = StateGraph(Talk).add_node("inner", inner).add_edge(START, "inner").add_edge("inner", END)
    events, result = take(driver, outer.compile(store=store), {})
    assert (result.output.seen, opened.closed) == (["abc"], [1, 2])
    pieces = [(event.attempt, event.update["answer"]) for event in events if event.type == "node_piece"]
    assert pieces == [(1, "a"), (2, "a"), (2, "b"), (2, "c")]
    assert opened.given == ["a1", "a2", "b1", "b2", "c2"]


def test_a_run_that_is_cancelled_closes_the_generator_at_its_next_piece(driver: Driver, store: Store) -> None:
    opened = Opened(SYNC)
    graph = talk(store, opened.run if driver is SYNC else threaded(opened.run))
    box: list[Result[Any]] = []
    thread = threading.Thread(target=lambda: box.append(driver.invoke(graph, {})))
    thread.start()
    assert opened.drawn.wait(PATIENCE)
    graph.cancel(store.branches()[0].id, reason="no longer wanted")
    opened.may_go.set()
    thread.join(PATIENCE)
    assert (box[0].status, opened.given, opened.closed) == ("cancelled", ["a1", "b1"], [1])
    assert graph.state_of(box[0].checkpoint).answer == ""


def test_a_generator_whose_piece_is_refused_is_closed_before_anything_is_made_of_the_failure(
    driver: Driver, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    real = run_tools.failed

    def noted(*given: Any) -> Any:
        happened.append("failed")
        return real(*given)

    monkeypatch.setattr(run_tools, "failed", noted)

    def body(state: Talk) -> Iterator[Any]:
        try:
            yield {"answer": "a"}
            yield {"answer": 1}
        finally:
            happened.append("closed")

    with pytest.raises(NodeFailed):
        driver.invoke(talk(store, kind(driver, body)), {})
    assert happened == ["closed", "failed"]


def test_a_question_inside_a_generator_stops_it_and_its_whole_is_seen_once_with_the_answer(
    driver: Driver, store: Store
) -> None:
    closed: list[str] = []

    def body(state: Talk) -> Iterator[Any]:
        try:
            yield {"answer": "Dear "}
            name = interrupt("Whom?", key="name", answer=str)
            yield {"answer": name}
        finally:
            closed.append("closed")

    graph = talk(store, kind(driver, body))
    events, result = take(driver, graph, {})
    (item,) = result.checkpoint.pending
    assert (result.status, item.why, told(events), closed) == (
        "suspended",
        "question",
        [{"answer": "Dear "}],
        ["closed"],
    )
    assert graph.state_of(result.checkpoint).answer == ""

    events, result = take(driver, graph, result.checkpoint, decisions={item.id: Respond(content="Ann")})
    assert told(events) == [{"answer": "Dear "}, {"answer": "Ann"}]
    assert (result.output.seen, closed) == (["Dear Ann"], ["closed", "closed"])


def test_a_generator_that_fails_half_way_is_closed_and_nothing_of_it_is_kept(driver: Driver, store: Store) -> None:
    made: list[Any] = []

    def body(state: Talk) -> Iterator[Any]:
        yield {"answer": f"{len(made)}a"}
        if len(made) == 1:
            raise ConnectionError("gone")
        yield {"answer": "b"}

    function = kind(driver, body)

    def kept(state: Talk) -> Any:
        made.append(function(state))
        return made[-1]

    graph = talk(store, generator_like(function, kept), idempotent=True, retry_wait=0)
    assert driver.invoke(graph, {}).output.seen == ["2ab"]
    for each in made:
        assert each.ag_frame is None if driver.is_async else inspect.getgeneratorstate(each) == inspect.GEN_CLOSED
    gc.collect()  # a generator that was leaked would warn here, which is an error


def generator_like(function: Callable[..., Any], made: Callable[[Any], Any]) -> Callable[..., Any]:
    """A generator function, by how it is written, that gives what another one made."""
    if inspect.isasyncgenfunction(function):

        class AsyncBody:
            async def __call__(self, state: Talk) -> AsyncGenerator[Any]:
                inner = made(state)
                try:
                    async for piece in inner:
                        yield piece
                finally:
                    await inner.aclose()

        return AsyncBody()

    class Body:
        def __call__(self, state: Talk) -> Iterator[Any]:
            yield from made(state)

    return Body()


@pytest.mark.parametrize("is_idempotent", [True, False], ids=["idempotent", "not"])
def test_killed_while_draining_a_node_runs_again_or_is_asked_about_and_is_seen_once(
    driver: Driver, tmp_path: Path, is_idempotent: bool
) -> None:
    command = [sys.executable, __file__, str(tmp_path), driver.name, str(int(is_idempotent))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    killed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / "given").read_text() == "ab"

    # An hour later: the lease of who was killed has lapsed.
    with SQLiteStore(tmp_path / "runs.db", clock=lambda: time.time() + HOUR) as store:
        graph = talk(store, kind(driver, abc), idempotent=is_idempotent)
        (branch,) = store.branches()
        assert graph.state_of(store.head(branch.id)[1]).answer == ""
        result = driver.recover(graph, branch.id)
        if is_idempotent:
            assert (result.status, result.output.seen) == ("completed", ["abc"])
            return
        (item,) = result.checkpoint.pending
        assert (result.status, item.why) == ("suspended", "outcome_unknown")
        assert driver.resume(graph, result.checkpoint, approved=True).output.seen == ["abc"]


def die(folder: Path, driver: Driver, is_idempotent: bool) -> None:
    """Be killed with the second piece given, and the third to come."""

    def body(state: Talk) -> Iterator[Any]:
        for piece in "ab":
            with (folder / "given").open("a") as file:
                file.write(piece)
            yield {"answer": piece}
        os.kill(os.getpid(), signal.SIGKILL)
        yield {"answer": "c"}

    with SQLiteStore(folder / "runs.db") as store:
        take(driver, talk(store, kind(driver, body), idempotent=is_idempotent), {})


if __name__ == "__main__":
    die(Path(sys.argv[1]), ASYNC if sys.argv[2] == "async" else SYNC, sys.argv[3] == "1")
