"""What an MCP server asks in the middle of a call: a question that suspends, answered whenever, wherever, and for what was shown alone.

`ASKS` is a server of the older versions, which asks by requests of its own; what a call of it asks is in the arguments of the call. The
desk of `mcp_server.py` is one of the newest, which ends the call to ask.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from drivers import SYNC, Driver, until
from test_mcp import TOKEN, Place

from phronomy import (
    Agent,
    Checkpoint,
    ConfigurationError,
    InvalidDecision,
    MCPServer,
    MemoryStore,
    Reject,
    Respond,
)
from phronomy.mcp.elicitation import MOST
from phronomy.records.decisions import PendingApproval
from phronomy.runs.wire import to_wire
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.tools.json_schema.bounded import BoundedSchema

pytestmark = pytest.mark.unmeasured

ASKS = """
import json, sys
number, capable = 1000, None
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def note(**what):
    with open(sys.argv[1], "a") as log:
        log.write(json.dumps(what) + "\\n")
def read():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit()
def ask(params):
    global number
    number += 1
    send(id=number, method="elicitation/create", params=params)
    while (told := read()).get("id") != number or "method" in told:
        if "method" in told:
            note(heard=told["method"])
    note(**({"said": told["result"]} if "result" in told else {"refused": told["error"]["message"]}))
    return told.get("result")
while True:
    asked = read()
    method, id, params = asked["method"], asked.get("id"), asked.get("params") or {}
    if method == "initialize":
        note(capabilities=params["capabilities"])
        about = {"name": "asks", "version": "1"}
        send(id=id, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about})
    elif method == "tools/list":
        if "early" in sys.argv:
            ask({"message": "Now?", "requestedSchema": {"type": "object", "properties": {}}})
        send(id=id, result={"tools": [{"name": "order", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        args = params["arguments"]
        note(begun=args.get("goods"))
        if args.get("flood"):
            for each in range(args["flood"]):
                send(id=5000 + each, method="elicitation/create", params={**args["ask"][0], "message": f"{each}?"})
        said = [ask(each) for each in args["ask"]]
        while args.get("more") and said[-1]:
            said.append(ask({**args["ask"][0], "message": f"{len(said)}?"}))
        note(done=args.get("goods"))
        send(id=id, result={"content": [{"type": "text", "text": json.dumps(said)}]})
    elif id is not None:
        send(id=id, error={"code": -32601, "message": "what?"})
"""


def form(message: str, /, required: Any = None, **fields: Any) -> dict[str, Any]:
    """A question, as the protocol has it."""
    schema = {"type": "object", "properties": fields, "required": [*fields] if required is None else required}
    return {"message": message, "requestedSchema": schema}


DAYS = form("How many days?", days={"type": "integer", "minimum": 1})
TRAIN = form("By train?", train={"type": "boolean", "title": "Rail"})


class Desk:
    """A server of the older kind and its log; `agent` makes server and agent anew, as another process does."""

    def __init__(self, folder: Path, driver: Driver, **options: Any) -> None:
        self.log = folder / "asks.log"
        self.log.touch()
        self.driver = driver
        self.program = folder / "asks.py"
        self.program.write_text(ASKS)
        self.command = [sys.executable, "-S", "-E", str(self.program), str(self.log)]
        self.options = {"elicitation": True, "requires_approval": False} | options
        self.made: list[MCPServer] = []
        self.store: Store = MemoryStore()

    def agent(self, *calls: Any) -> Agent[Any, str]:
        for made in self.made:
            made.close()
        server = MCPServer("travel", command=self.command, **self.options)
        self.made.append(server)
        model = ScriptedModel.by_turn([[*calls], "bye"])
        return Agent(name="clerk", model=model, tools=server.tools(), store=self.store)

    def asked(self, *calls: Any) -> Checkpoint:
        """The checkpoint at which the calls wait."""
        return self.driver.invoke(self.agent(*calls), "go").checkpoint

    def answer(self, at: Checkpoint, *calls: Any, **content: Any) -> Any:
        """Answer the first question, in a process of its own."""
        decisions = {at.pending[0].id: Respond(content=content)}
        return self.driver.resume(self.agent(*calls), at, decisions=decisions)

    def noted(self, *kinds: str) -> list[Any]:
        """What the server noted, without its starts."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        found = [item for line in lines for item in line.items() if item[0] != "capabilities"]
        return [value for kind, value in found if kind in kinds] if kinds else found


@pytest.fixture
def desk(tmp_path: Path, driver: Driver) -> Iterator[Desk]:
    """A server that asks by requests of its own."""
    with desk_at(tmp_path, driver) as made:
        yield made


@contextmanager
def desk_at(folder: Path, driver: Driver, **options: Any) -> Iterator[Desk]:
    made = Desk(folder, driver, **options)
    try:
        yield made
    finally:
        for server in made.made:
            server.close()


def order(*questions: Any, **more: Any) -> Any:
    return call("order", {"ask": [*questions], **more})


def told(result: Any) -> list[tuple[str | None, Any]]:
    """What became of the calls, in order."""
    return [(message.settlement, message.text) for message in result.messages if message.role == "tool"]


def shown(item: PendingApproval) -> str:
    """The words of a question."""
    words: str = item.args["payload"]["message"]
    return words


# By requests of its own


def test_a_server_asks_in_the_middle_of_a_call_and_has_the_answer_when_the_call_is_sent_again(desk: Desk) -> None:
    waiting = desk.asked(order(DAYS, goods="a trip"))
    [item] = waiting.pending
    assert (item.why, item.tool_name, item.tool.source) == ("question", "order", "mcp:travel")
    assert item.args["payload"] == {"mcp_server": "travel", "message": "How many days?"}
    assert item.args["key"].startswith("mcp:")
    assert item.args["answer"]["properties"]["content"]["properties"] == {"days": {"type": "integer", "minimum": 1}}
    until(lambda: len(desk.noted()) == 4)
    assert desk.noted() == [
        ("begun", "a trip"),
        ("heard", "notifications/cancelled"),
        ("refused", "a human is asked, and the call is sent again with the answer"),
        ("done", "a trip"),
    ], "a server that does not mind what it is told goes on, and nobody listens"

    waiting = Checkpoint.model_validate_json(waiting.model_dump_json())
    result = desk.answer(waiting, order(DAYS, goods="a trip"), action="accept", content={"days": 3})
    assert told(result) == [("completed", '[{"action": "accept", "content": {"days": 3}}]')]
    assert (result.output, desk.noted("begun", "said")) == (
        "bye",
        ["a trip", "a trip", {"action": "accept", "content": {"days": 3}}],
    ), "what the server did before it asked was done twice"


@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("content", [None, {"days": 3}])
def test_a_human_declines_or_cancels_and_fills_nothing_in(desk: Desk, action: str, content: Any) -> None:
    waiting = desk.asked(order(DAYS))
    given = {"action": action} | ({} if content is None else {"content": content})
    assert told(desk.answer(waiting, order(DAYS), **given)) == [("completed", json.dumps([{"action": action}]))]


def test_a_call_that_is_rejected_while_it_asks_is_not_sent_again(desk: Desk) -> None:
    waiting = desk.asked(order(DAYS))
    again = desk.agent(order(DAYS))
    result = desk.driver.resume(again, waiting, decisions={waiting.pending[0].id: Reject(reason="no")})
    assert [settlement for settlement, _ in told(result)] == ["rejected"]
    assert desk.noted("begun") == [None]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"action": "accept", "content": {"days": "three"}}, "content.days does not fit 'type': integer is wanted"),
        ({"action": "accept", "content": {"days": 0}}, "content.days does not fit 'minimum': 1 is wanted"),
        ({"action": "accept", "content": {}}, "content does not fit 'required': 'days' is missing"),
        ({"action": "accept", "content": {"days": 3, "more": 1}}, "content does not fit 'additionalProperties'"),
        ({"action": "accept"}, "the answer does not fit 'required': 'content' is missing"),
        ({"action": "approve", "content": {"days": 3}}, "action does not fit 'enum'"),
        ({"days": 3}, "the answer does not fit"),
        ("accept", "object is wanted"),
        (None, "object is wanted"),
    ],
)
def test_an_answer_that_is_none_is_refused_and_nothing_is_consumed(desk: Desk, content: Any, why: str) -> None:
    waiting = desk.asked(order(DAYS))
    agent = desk.agent(order(DAYS))
    with pytest.raises(InvalidDecision, match=why):
        desk.driver.resume(agent, waiting, decisions={waiting.pending[0].id: Respond(content=content)})
    with pytest.raises(InvalidDecision, match="object is wanted"):
        desk.driver.resume(agent, waiting, approved=True)
    assert desk.noted("begun") == [None]
    result = desk.answer(waiting, order(DAYS), action="accept", content={"days": 1})
    assert told(result)[0][0] == "completed"


def test_several_questions_come_one_after_another_and_the_same_words_twice_are_two(desk: Desk) -> None:
    asks = order(DAYS, TRAIN, DAYS)
    waiting = desk.asked(asks)
    seen = []
    for content in ({"days": 3}, {"train": True}, {"days": 4}):
        seen += [(shown(item), item.args["key"]) for item in waiting.pending]
        result = desk.answer(waiting, asks, action="accept", content=content)
        waiting = result.checkpoint
    assert [words for words, _ in seen] == ["How many days?", "By train?", "How many days?"]
    assert len({key for _, key in seen}) == 3
    [(settlement, text)] = told(result)
    assert settlement == "completed"
    assert [each["content"] for each in json.loads(text)] == [{"days": 3}, {"train": True}, {"days": 4}]


@pytest.mark.parametrize(
    "other",
    [
        form("How many nights?", **DAYS["requestedSchema"]["properties"]),
        form(DAYS["message"], days={"type": "integer"}),
    ],
)
def test_an_answer_goes_to_the_question_that_was_shown_and_to_no_other(
    tmp_path: Path, driver: Driver, other: Any
) -> None:
    """The server asks something else by the time that the call is sent again."""
    with desk_at(tmp_path, driver) as desk:
        waiting = desk.asked(order(DAYS))
        instead = f"for each in [json.loads({json.dumps(other)!r})]"
        desk.program.write_text(ASKS.replace('for each in args["ask"]', instead))
        result = desk.answer(waiting, order(DAYS), action="accept", content={"days": 3})
        [item] = result.checkpoint.pending
        assert (result.status, shown(item)) == ("suspended", other["message"])
        assert item.id != waiting.pending[0].id and desk.noted("said") == []


def test_calls_side_by_side_ask_one_at_a_time_and_each_has_its_own_answer(desk: Desk) -> None:
    calls = [order(DAYS, goods="one"), order(DAYS, goods="two")]
    waiting = desk.asked(*calls)
    assert len(waiting.pending) == 2
    agent = desk.agent(*calls)
    decisions = {
        item.id: Respond(content={"action": "accept", "content": {"days": days}})
        for days, item in enumerate(waiting.pending, 1)
    }
    result = desk.driver.resume(agent, waiting, decisions=decisions)
    assert [json.loads(text)[0]["content"]["days"] for _, text in told(result)] == [1, 2]
    kinds = [kind for kind, _ in desk.noted() if kind in ("begun", "done")]
    assert kinds == ["begun", "done"] * 4


def test_a_call_that_has_so_much_time_asks_without_using_it_up(tmp_path: Path, driver: Driver) -> None:
    with desk_at(tmp_path, driver, timeout=60) as desk:
        waiting = desk.asked(order(DAYS))
        result = desk.answer(waiting, order(DAYS), action="accept", content={"days": 3})
        assert told(result)[0][0] == "completed"


def test_nothing_is_asked_unless_it_is_allowed(tmp_path: Path, driver: Driver) -> None:
    with desk_at(tmp_path, driver, elicitation=False) as desk:
        result = desk.driver.invoke(desk.agent(order(DAYS)), "go")
        assert (result.status, desk.noted("refused")) == ("completed", ["Elicitation not supported"])
        capable = json.loads(desk.log.read_text().splitlines()[0])["capabilities"]
        assert "elicitation" not in capable


def test_a_server_is_told_that_forms_are_shown_and_no_addresses(tmp_path: Path) -> None:
    with desk_at(tmp_path, SYNC) as desk:
        desk.agent()
        assert json.loads(desk.log.read_text().splitlines()[0])["capabilities"]["elicitation"] == {"form": {}}


@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_the_option_is_true_or_false(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="elicitation is exactly True or exactly False"):
        MCPServer("travel", command=["true"], elicitation=value)


# A server that means harm


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"anyOf": [schema]}
    return schema | {"type": "string"}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an address": ({"mode": "url", "message": "Log in", "url": "https://x/", "elicitationId": "1"}, ""),
    "a long message": (form("x" * 4001, days={"type": "integer"}), "a message has at most"),
    "a long schema": (form("?", days={"type": "string", "description": "x" * 20_000}), "a schema has at most"),
    "objects in objects": (form("?", days={"type": "object", "properties": {}}), "none of the protocol's"),
    "a reference": (form("?", days={"$ref": "#"}), "none of the protocol's"),
    "no form": (
        {"message": "?", "requestedSchema": {"type": "object", "properties": {}, "allOf": []}},
        "none of the protocol's forms",
    ),
    "no fields": (
        {"message": "?", "requestedSchema": {"type": "object", "properties": {"x": True}}},
        "a field of the schema",
    ),
    "a list of lists": (form("?", days={"type": "array", "items": {"type": "array"}}), "something else than text"),
    "a field that is not there": (form("?", required=["x"]), "what it does not describe"),
    "a choice that is not to be seen": (
        form("?", days={"type": "string", "enum": ["yes", "yes\u202e"]}),
        "not to be seen",
    ),
    "a name that is not to be seen": (form("?", **{"da\u200bys": {"type": "string"}}), "not to be seen"),
    "no schema": (form("?", days={"type": "integer", "minimum": "x"}), "cannot be used"),
    "names that are none": (form("?", x={"type": "string", "enum": ["a"], "enumNames": [{"a": 1}]}), "cannot be used"),
    "a title that is none": (form("?", x={"type": "string", "title": {"a": "\u202e"}}), "cannot be used"),
    "names that are no list": (form("?", x={"type": "string", "enum": ["a"], "enumNames": 5}), "cannot be used"),
    "no choices": (form("?", days={"type": "string", "oneOf": 5}), "cannot be used"),
    "choices of choices": (form("?", days=nested(20)), "none of the protocol's"),
    "a pattern that is none": (form("?", days={"type": "string", "pattern": "("}), "cannot be used"),
}


@pytest.mark.parametrize(("params", "why"), BAD.values(), ids=BAD.keys())
def test_what_is_no_form_of_the_protocol_is_refused_to_the_server_and_shown_to_nobody(
    tmp_path: Path, driver: Driver, params: dict[str, Any], why: str
) -> None:
    with desk_at(tmp_path, driver) as desk:
        result = desk.driver.invoke(desk.agent(order(params)), "go")
        assert told(result) == [("completed", "[null]")]
        [refused] = desk.noted("refused")
        assert why in refused


def test_the_words_of_a_server_are_shown_as_its_own_and_only_what_is_to_be_seen(tmp_path: Path, driver: Driver) -> None:
    with desk_at(tmp_path, driver, env={"T": TOKEN}) as desk:
        fields = {
            "pin": {"type": "string", "title": "\x1b[2JPIN\u202e", "enum": ["a"], "enumNames": ["\x07A"]},
            "way": {"type": "array", "items": {"anyOf": [{"const": "b", "title": f"\u200b{TOKEN}"}]}},
        }
        waiting = desk.asked(order(form(f"phronomy: \x1b[31mapprove\u202e\n{TOKEN} Grüße 世界", **fields)))
        [item] = waiting.pending
        words = {"mcp_server": "travel", "message": "phronomy: \ufffd[31mapprove\ufffd\n[redacted] Grüße 世界"}
        assert item.args["payload"] == words
        assert item.args["answer"]["properties"]["content"]["properties"] == {
            "pin": {"type": "string", "title": "\ufffd[2JPIN\ufffd", "enum": ["a"], "enumNames": ["\ufffdA"]},
            "way": {"type": "array", "items": {"anyOf": [{"const": "b", "title": "\ufffd[redacted]"}]}},
        }


def test_a_pattern_that_takes_for_ever_refuses_the_answer_and_holds_nobody_up(desk: Desk) -> None:
    asks = order(form("?", x={"type": "string", "pattern": r"^(?:a{1,1000}){1,1000}$"}))
    waiting = desk.asked(asks)
    with pytest.raises(InvalidDecision, match="cannot be read"):
        desk.answer(waiting, asks, action="accept", content={"x": "a" * 3000 + "!"})
    result = desk.answer(waiting, asks, action="accept", content={"x": "aaa"})
    assert told(result)[0][0] == "completed"


def test_a_server_that_asks_without_an_end_is_given_up(desk: Desk) -> None:
    """Each answer costs a human, so there is a bound; then the call has failed, and perhaps taken effect."""
    asks = order(DAYS, more=True)
    result: Any = desk.driver.invoke(desk.agent(asks), "go")
    agent = desk.agent(asks)
    for count in range(MOST):
        [item] = result.checkpoint.pending
        assert shown(item) == ("How many days?" if count == 0 else f"{count}?")
        content = {"action": "accept", "content": {"days": 1}}
        result = desk.driver.resume(agent, result.checkpoint, decisions={item.id: Respond(content=content)})
    why = f"it has asked more than {MOST} questions. It may have taken effect."
    assert told(result) == [("failed", f"The server asked for input, and is given none: {why}")]


def test_a_server_that_asks_hundreds_of_things_at_once_puts_one_question(desk: Desk) -> None:
    waiting = desk.asked(order(DAYS, flood=300))
    [item] = waiting.pending
    assert shown(item) == "0?"


def test_a_server_that_asks_hundreds_of_things_that_are_none_is_given_up(desk: Desk) -> None:
    bad = BAD["a reference"][0]
    result = desk.driver.invoke(desk.agent(order(bad, flood=300)), "go")
    assert [settlement for settlement, _ in told(result)] == ["failed"]


def test_what_is_asked_outside_of_a_call_is_refused(tmp_path: Path) -> None:
    with desk_at(tmp_path, SYNC) as desk:
        desk.command.append("early")
        desk.agent()
        assert set(desk.noted("refused")) == {"input is asked for in the middle of a call, and there is none"}


# By ending the call


@contextmanager
def booking(folder: Path, **env: str) -> Iterator[tuple[Place, Any]]:
    """A desk that ends a call to ask, and what makes server and agent anew."""
    place = Place(folder)
    store = MemoryStore()

    def agent(*calls: Any) -> Agent[Any, str]:
        options: dict[str, Any] = {"env": {"DESK_TOKEN": TOKEN, **env}, "elicitation": True, "requires_approval": False}
        return place.agent([*calls], store=store, **options)

    try:
        yield place, agent
    finally:
        place.close()


KEY = "k" * 32


def answers(item: PendingApproval, **content: Any) -> dict[str, Respond]:
    return {item.id: Respond(content={"action": "accept", "content": content})}


def booked(driver: Driver, agent: Any) -> tuple[Any, list[str]]:
    """Book a trip, and answer whatever is asked, each time with a server and an agent made anew."""
    graz = call("book", {"city": "Graz"})
    result: Any = driver.invoke(agent(graz), "go")
    asked = []
    for content in ({"days": 3}, {"train": True}, {"days": 4}):
        [item] = result.checkpoint.pending
        asked.append(shown(item))
        result = driver.resume(agent(graz), result.checkpoint, decisions=answers(item, **content))
    return result, asked


def test_a_server_that_ends_the_call_to_ask_goes_on_from_there_and_does_nothing_twice(
    tmp_path: Path, driver: Driver
) -> None:
    with booking(tmp_path, DESK_KEY=KEY) as (place, agent):
        result, asked = booked(driver, agent)
        assert asked == ["How many days?", "By train?", "How many days?"]
        assert told(result) == [("completed", '{"days": ["accept", {"days": 4}]}')]
        assert [each["tool"] for each in place.did("book", "booked")] == ["book", "booked", "booked"]
        first, second = place.did("booked")
        assert first["said"] == {"days": ["accept", {"days": 3}], "way": ["accept", {"train": True}]}
        assert second["state"] == "booking Graz, once more"


def test_a_server_that_does_not_know_its_own_state_any_more_is_sent_the_call_from_its_start(
    tmp_path: Path, driver: Driver
) -> None:
    """Its state was sealed with a key that ended with the process. What was answered is not asked again."""
    with booking(tmp_path) as (place, agent):
        result, asked = booked(driver, agent)
        assert asked == ["How many days?", "By train?", "How many days?"]
        assert told(result) == [("completed", '{"days": ["accept", {"days": 4}]}')]
        assert [each["tool"] for each in place.did("book", "booked")] == [
            "book",
            "book",
            "booked",
            "book",
            "booked",
            "booked",
        ]


def test_what_a_server_leaves_with_its_question_is_kept_and_shown_to_nobody(tmp_path: Path, driver: Driver) -> None:
    with booking(tmp_path, DESK_KEY=KEY) as (_, agent):
        waiting = driver.invoke(agent(call("book", {"city": "Graz"})), "go").checkpoint
        state = waiting.calls[0].note["note"]["round"]["state"]
        assert len(state) > 50 and state in waiting.model_dump_json()
        assert state not in json.dumps(to_wire(waiting)) and state not in repr(waiting)
        assert state not in json.dumps(waiting.pending[0].args)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("a state", "what it wants to have kept until there is an answer is too large"),
        ("a page", "only forms are shown, and no addresses"),
        ("a model", "it asks for what is not offered to it"),
        ("all at once", f"it asks for more than {MOST} things at once"),
        ("for ever", f"it did so more than {MOST} times"),
    ],
)
def test_what_is_not_to_be_had_ends_the_call(tmp_path: Path, driver: Driver, how: str, why: str) -> None:
    with booking(tmp_path) as (_, agent):
        [(settlement, text)] = told(driver.invoke(agent(call("pester", {"how": how})), "go"))
        assert (settlement, text) == (
            "failed",
            f"The server asked for input, and is given none: {why}. It may have taken effect.",
        )


def test_a_server_that_asks_for_patience_alone_has_it(tmp_path: Path, driver: Driver) -> None:
    with booking(tmp_path) as (place, agent):
        assert told(driver.invoke(agent(call("pester", {"how": "later"})), "go")) == [("completed", "at last")]
        assert len(place.did("pester")) == 6


# What a tool gives back


def test_the_schema_of_what_a_tool_gives_back_is_made_ready_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    before = BoundedSchema.__init__

    def counted(self: BoundedSchema, schema: Any) -> None:
        made.append(schema)
        before(self, schema)

    place = Place(tmp_path)
    turns = [call("look_up", {"order_id": n}) for n in range(3)]  # calls of one turn may be the first at the same time
    agent = place.agent(*turns, requires_approval=False)
    monkeypatch.setattr(BoundedSchema, "__init__", counted)
    assert [settlement for settlement, _ in told(agent.invoke("go"))] == ["completed"] * 3
    place.close()
    assert len(made) == 1
