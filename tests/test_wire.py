"""The wire form: plain JSON of whatever is shown to somebody outside, with nothing lost and nothing as text inside it."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from drivers import Driver
from graph_scenes import Job
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from phronomy import (
    Agent,
    Approve,
    Checkpoint,
    CheckpointError,
    ConfigurationError,
    MemoryStore,
    Message,
    ModelError,
    Result,
    RunFailed,
    ToolCall,
    Usage,
    to_wire,
    tool,
)
from phronomy.graph import END, START, StateGraph, interrupt
from phronomy.observability import events as all_events
from phronomy.observability.events import Ended, NodePiece, RunStarted, ToolCallPiece, ToolCallSettled, replay
from phronomy.observability.timeline import timeline
from phronomy.records.diff import diff
from phronomy.records.record import Record
from phronomy.runs.wire import EXACT, VERSION
from phronomy.testing import ScriptedModel, call

PLACE: dict[str, Any] = {"run_id": "run_1", "branch_id": "run_1", "seq": 3, "part": 1}
SECRET = "DE00 1234"


def sent(value: Any, **options: Any) -> Any:
    """What arrives, after a trip as text."""
    return json.loads(json.dumps(to_wire(value, **options)))


def started(input: Any) -> RunStarted:
    return RunStarted(**PLACE, agent="desk", input=input)


# Values


texts = st.text(st.characters(codec="utf-8"))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(EXACT - 3, EXACT + 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda some: st.lists(some, max_size=4) | st.dictionaries(texts, some, max_size=4),
    max_leaves=12,
)


def typed(value: Any) -> Any:
    """The value, in which 1, 1.0 and True are three, as 0.0 and -0.0 are two."""
    if isinstance(value, dict):
        return {key: typed(each) for key, each in value.items()}
    return [typed(each) for each in value] if isinstance(value, list) else (type(value), repr(value))


def in_a_browser(text: str) -> Any:
    """What JavaScript makes of it: every number is a double."""
    return json.loads(text, parse_int=lambda digits: int(float(digits)))


def mended(value: Any, exact: dict[str, str]) -> Any:
    """The value, with the whole numbers that `exact` tells put in by their JSON Pointers."""
    whole = {"": value}
    for pointer, digits in exact.items():
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in ["", *pointer.split("/")[1:]]]
        here: Any = whole
        for part in way:
            here = here[int(part) if isinstance(here, list) else part]
        here[int(last) if isinstance(here, list) else last] = int(digits)
    return whole[""]


@given(value=json_values)
def test_any_value_arrives_as_it_is(value: Any) -> None:
    event = started(value)
    assert typed(sent(event)["input"]) == typed(event.input) == typed(value)


@given(value=json_values)
def test_a_browser_can_tell_every_whole_number(value: Any) -> None:
    text = json.dumps(to_wire(started(value)))
    read = in_a_browser(text)
    found = mended(read, read["exact"])
    assert found["input"] == value
    assert all(abs(int(digits)) > EXACT for digits in read["exact"].values())


@each(
    ("value", "exact"),
    [
        ({"order": 9007199254740993}, {"/input/order": "9007199254740993"}),
        ([EXACT, -EXACT], {}),
        ([EXACT + 1, -EXACT - 1], {"/input/0": "9007199254740992", "/input/1": "-9007199254740992"}),
        ({"a/b": {"~": 2**64}}, {"/input/a~1b/~0": "18446744073709551616"}),
        ({"": [[10**30]]}, {"/input//0/0": "1" + "0" * 30}),
        ([1e300, 5.0, -0.0, True, "9007199254740993", "10.00"], {}),
        (2**53, {"/input": "9007199254740992"}),
    ],
)
def test_numbers_that_a_browser_would_round_are_told(value: Any, exact: dict[str, str]) -> None:
    assert sent(started(value))["exact"] == exact


# Records


@tool(requires_approval=True, redact={"iban"})
def refund(order: int, iban: str) -> str:
    """Refund an order."""
    return f"order {order} is refunded"


def desk(store: Any = None, *, tools: Any = (refund,)) -> Any:
    script = ScriptedModel.by_turn([call("refund", {"order": 1042, "iban": SECRET}), "Done."])
    return Agent(name="desk", model=script, tools=list(tools), store=store or MemoryStore())


def records(kind: type[Record] = Record) -> Iterator[type[Record]]:
    """Every class of records."""
    yield kind
    for inner in kind.__subclasses__():
        yield from records(inner)


def all_text(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from all_text(inner)
    elif isinstance(value, str):
        yield value


def test_nothing_of_a_run_is_json_as_text_inside_json(place: Any, driver: Driver) -> None:
    store = place.open()
    agent = desk(store)
    asked = driver.invoke(agent, {"please": ["refund", 1042]}, metadata={"desk": {"no": 3}})
    edited = {asked.checkpoint.pending[0].id: Approve(args={"order": 7, "iban": "x"})}
    ended = driver.resume(agent, asked.checkpoint, decisions=edited, by="ada")
    everything = [
        *(sent(event) for event in replay(store, asked.run_id)),
        *(sent(each) for each in store.history(ended.checkpoint.id)),
        *(sent(each) for each in store.audit()),
        *(sent(each) for each in timeline(store, asked.run_id)),
        sent(timeline(store, asked.run_id)),
        sent(asked),
        sent(ended),
        sent(diff(asked.checkpoint, ended.checkpoint)),
        sent(asked.checkpoint.pending[0]),
    ]
    assert {each["version"] for each in everything} == {VERSION} and {
        json.dumps(each["exact"]) for each in everything
    } == {"{}"}
    written = {'{"order": 1042, "iban": "DE00 1234"}', '{"please":["refund",1042]}'}
    assert {text for one in everything for text in all_text(one) if text[:1] in "{[" and text} <= written, (
        "what a model wrote, or read"
    )
    first = everything[0]
    assert (first["type"], first["id"], first["input"]) == ("run_started", "1.0", {"please": ["refund", 1042]})
    assert sent(asked)["checkpoint"]["metadata"] == {"desk": {"no": 3}}
    assert sent(asked)["checkpoint"]["pending"][0]["args"] == {"order": 1042, "iban": SECRET}
    assert (sent(asked)["output"], sent(ended)["output"], sent(ended)["status"]) == (None, "Done.", "completed")
    assert sent(ended)["checkpoint"]["decisions"][0]["args"] == {"order": 7, "iban": "x"}


def test_every_field_of_every_record_is_sent_but_versions_the_salt_and_notes() -> None:
    """A class that is added later is sent by its fields, with nothing to be done for it."""
    omitted = {(kind.__name__, name) for kind in records() for name in kind.wire_omits if name in kind.model_fields}
    assert {name for _, name in omitted} == {"version", "salt", "note", "listed", "person", "alias", "claims", "scopes"}
    assert {kind for kind, name in omitted if name == "salt"} <= {"Checkpoint"}
    assert {kind for kind, name in omitted if name == "alias"} == {"Vote"}  # the address of a person in a channel
    assert {kind for kind, name in omitted if name in ("claims", "scopes")} == {"Principal"}  # of this process alone
    assert {kind for kind, name in omitted if name == "note"} == {
        "Call",
        "CallWaits",
        "RowCall",
    }  # a tool's own, for its next run
    event = NodePiece(**PLACE, call_id="n-1", node="write", attempt=1, update={"draft": ["Dear all"]})
    assert sent(event) == {
        "version": 1,
        "run_id": "run_1",
        "branch_id": "run_1",
        "thread_id": None,
        "path": "",
        "seq": 3,
        "part": 1,
        "type": "node_piece",
        "call_id": "n-1",
        "node": "write",
        "attempt": 1,
        "update": {"draft": ["Dear all"]},
        "id": "3.1",
        "exact": {},
    }


def test_the_stored_form_is_what_it_was() -> None:
    asked = desk().invoke("Refund it").checkpoint
    stored = json.loads(asked.model_dump_json())
    assert stored["calls"][0]["args"] == '{"order":1042,"iban":"DE00 1234"}' and stored["version"] == 1
    assert "exact" not in stored and Checkpoint.model_validate_json(asked.model_dump_json()) == asked


def test_what_was_sent_cannot_be_resumed() -> None:
    agent = desk()
    wire = to_wire(agent.invoke("Refund it").checkpoint)
    for read in (Checkpoint.model_validate, lambda given: Checkpoint.model_validate_json(json.dumps(given))):
        with pytest.raises(CheckpointError):
            read(wire)
    assert "salt" not in wire


def test_a_change_of_what_was_sent_changes_no_record() -> None:
    event = started({"a": [1]})
    to_wire(event)["input"]["a"].append(2)
    assert event.input == {"a": [1]}


def test_a_failed_run_and_a_list_of_what_waits_are_sent(driver: Driver) -> None:
    agent = desk()
    driver.invoke(agent, "Refund it", thread_id="chat-7")
    (waiting,) = agent.store.pending()
    found = sent(waiting)
    assert (found["approval"]["tool_name"], found["thread_id"], found["agent"]) == ("refund", "chat-7", "desk")
    failing = Agent(model=ScriptedModel([ConnectionError("no")]))
    with pytest.raises(ModelError) as caught:
        driver.invoke(failing, "Hello")
    assert isinstance(caught.value, RunFailed) and sent(caught.value.checkpoint)["status"] == "running"


def test_the_output_of_a_type_is_sent_as_it_is_stored() -> None:
    @dataclasses.dataclass
    class Answer:
        at: datetime

    agent = Agent(model=ScriptedModel(['{"at":"2026-11-21T09:00:00Z"}']), output_type=Answer)
    result = agent.invoke("When?")
    assert result.output == Answer(at=datetime(2026, 11, 21, 9, tzinfo=UTC))
    assert sent(result)["output"] == {"at": "2026-11-21T09:00:00Z"}


@each("value", [None, {"a": 1}, [], "text", 5, RunStarted, Result, object()])
def test_what_is_no_record_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="a record of phronomy's"):
        to_wire(value)
    with pytest.raises(ConfigurationError, match="redact is an agent or a graph"):
        to_wire(started(None), redact=cast("Any", 5 if value is None else value))


# Redaction


def test_what_a_tool_redacts_is_hidden_wherever_it_stands(driver: Driver) -> None:
    store = MemoryStore()
    agent = desk(store)
    asked = driver.invoke(agent, "Refund it").checkpoint
    half = store.load(asked.id)
    edited = {asked.pending[0].id: Approve(args={"order": 7, "iban": f"{SECRET} edited"})}
    ended = driver.resume(agent, asked, decisions=edited, by="ada")
    assert SECRET in ended.checkpoint.model_dump_json()
    for value in (
        *replay(store, asked.run_id),
        *store.history(ended.checkpoint.id),
        half,
        asked.pending[0],
        *asked.calls,
        ended,
        ToolCallPiece(**PLACE, index=0, call_id="c", tool_name="refund", arguments=f'"{SECRET}'),
        ToolCallPiece(**PLACE, index=0, call_id="c", tool_name="", arguments=f'"{SECRET}'),
        ToolCallSettled(
            **PLACE, call_id="c", tool_name="refund", kind="completed", content=ended.checkpoint.messages[-2].text
        ),
        Message(
            role="assistant", tool_calls=(ToolCall(id="c", name="refund", arguments=SECRET),), provider={"x": SECRET}
        ),
    ):
        for redact in (agent, desk(tools=())):
            assert SECRET not in json.dumps(to_wire(value, redact=redact)), type(value)
    assert sent(asked.pending[0], redact=agent)["args"] == {"order": 1042, "iban": "[redacted]"}
    assert sent(asked.pending[0], redact=desk(tools=()))["args"] == {"order": "[redacted]", "iban": "[redacted]"}
    assert sent(ended, redact=agent)["output"] == "Done."


def test_the_state_of_a_graph_is_hidden_from_others(driver: Driver) -> None:
    def ask(state: Job) -> dict[str, Any]:
        return {"plan": interrupt({"secret": SECRET})}

    def draw(name: str, node: str = "ask") -> Any:
        store = MemoryStore()
        return (
            StateGraph(Job, name=name)
            .add_node(node, ask)
            .add_edge(START, node)
            .add_edge(node, END)
            .compile(store=store)
        )

    graph = draw("works")
    stop = driver.invoke(graph, {"plan": SECRET}).checkpoint
    assert SECRET in json.dumps(sent(stop)["state"])
    assert SECRET in json.dumps(sent(stop, redact=graph)["state"])
    other = sent(stop, redact=draw("other", "b"))
    assert other["state"] == "[redacted]" and other["output"] == "[redacted]"
    assert SECRET not in json.dumps(other["calls"])
    piece = NodePiece(**PLACE, call_id="n", node="ask", attempt=1, update={"plan": SECRET})
    assert sent(piece, redact=graph)["update"] == {"plan": "[redacted]"}
    for event in replay(graph.store, stop.run_id):
        text = json.dumps(to_wire(event, redact=draw("other", "b")))
        assert SECRET not in text or event.type == "run_started"


def test_an_end_is_sent_whole() -> None:
    ended = Ended(**PLACE, type="completed", checkpoint_id="c", output={"a": [1, None]}, usage=Usage(requests=1))
    assert (sent(ended)["output"], sent(ended)["usage"]["requests"]) == ({"a": [1, None]}, 1)


def test_every_event_has_its_id() -> None:
    kinds = [kind for kind in vars(all_events).values() if inspect.isclass(kind) and issubclass(kind, Record)]
    assert len([kind for kind in kinds if kind.wire_adds == ("id",)]) == 1 + 20
