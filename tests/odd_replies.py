"""Replies of odd providers: valid ones with small changes, and what must hold however a reply is changed.

    python tests/odd_replies.py --count 20000 --seed 1

Each reply goes over HTTP to a model and through a run. Then these hold:

- a tool runs only with arguments that the provider sent for a call of that tool, and only if the reply ended as a whole one;
- no call of a reply that was taken is lost;
- half a text, or a reply with an item that waits for an answer, is never a completed run;
- every later request is valid for the protocol that it goes over, by the strict readers below;
- every failure is an error of phronomy.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from phronomy import Agent, LiteLLMModel, MemoryStore, RunFailed, tool
from phronomy.models import ChatCompletionsModel, MessagesModel, ResponsesModel
from phronomy.testing import ChatServer, Fault
from phronomy.testing.message_protocol import MessageAnswer
from phronomy.testing.scripted import history_problem

WAYS = (
    *("chat", "chat streamed", "responses", "responses streamed"),
    *("messages", "messages streamed", "litellm", "litellm streamed"),
)
NAMES = ("read", "delete", "note")
WHOLE = ("stop", "tool_calls", "end_turn", "tool_use")
ENDS = ("length", "error", "tired", "max_tokens", "pause_turn", "incomplete")
WAITS = ("mcp_approval_request", "computer_call", "custom_tool_call", "shell_call", "later_call")
ODD: tuple[Any, ...] = (
    None,
    "",
    0,
    -1,
    7,
    True,
    [],
    {},
    "x",
    "null",
    "[1]",
    '{"a',
    [None],
    {"a": 1},
    "é" * 70,
    "a.b",
    "\ud800",
)
LAST = ("message_stop", "response.completed", "response.incomplete", "response.failed")
TEXT = "It is on its way."
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Broken(AssertionError):
    """Something does not hold that must hold."""


@dataclass
class Said:
    """A call as the provider says it: its name, and the text of its arguments, with a tag that no other call has."""

    name: str
    arguments: str
    id: str


@dataclass
class Odd:
    """A changed reply, what is known of it, and what was changed."""

    body: Any
    streamed: bool
    calls: list[Said]
    text: str
    changes: list[str] = field(default_factory=list)
    whole: bool = True
    waits: bool = False


# Replies


def calls_of(rng: random.Random) -> list[Said]:
    """Up to three calls. A call without arguments is usual for tools that need none."""
    found = []
    for number in range(rng.choice((0, 1, 1, 2, 2, 3))):
        name = rng.choice(NAMES)
        empty = name != "read" and rng.random() < 0.3
        arguments = rng.choice(("", "{}")) if empty else json.dumps({"value": f"T{number}-{rng.randrange(10**6):06}"})
        found.append(Said(name, arguments, f"call_{number}"))
    return found


def reply_of(rng: random.Random, way: str) -> Odd:
    """A reply as the protocol has it."""
    calls = calls_of(rng)
    text = TEXT if not calls else ""
    streamed = way.endswith("streamed")
    kinds = {"responses": _response, "messages": _message}
    make = kinds.get(way.partition(" ")[0], _completion)
    return Odd(body=make(rng, calls, text, streamed), streamed=streamed, calls=calls, text=text)


def _completion(rng: random.Random, calls: list[Said], text: str, streamed: bool) -> Any:
    end = "tool_calls" if calls else "stop"
    if not streamed:
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [
                {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
                for one in calls
            ]
        return {"id": "c", "object": "chat.completion", "created": 1, "model": "m"} | {
            "choices": [{"index": 0, "message": message, "finish_reason": end}]
        }
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": part} for part in _cut(rng, text)] if text else []
    for index, one in enumerate(calls):
        head = {"index": index, "id": one.id, "type": "function", "function": {"name": one.name, "arguments": ""}}
        deltas.append({"tool_calls": [head]})
        parts = _cut(rng, one.arguments)
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in parts]
    return [*(_chunk(delta) for delta in deltas), _chunk({}, end), "[DONE]"]


def _chunk(delta: dict[str, Any], end: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": end}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def _response(rng: random.Random, calls: list[Said], text: str, streamed: bool) -> Any:
    items: list[dict[str, Any]] = []
    if text:
        part = {"type": "output_text", "text": text, "annotations": []}
        items.append({"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]})
    for one in calls:
        said = {"call_id": one.id, "name": one.name, "arguments": one.arguments, "status": "completed"}
        items.append({"id": f"f_{one.id}", "type": "function_call", **said})
    whole = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": items}
    if not streamed:
        return whole
    events: list[Any] = []
    for place, item in enumerate(items):
        events.append({"type": "response.output_item.added", "output_index": place, "item": item})
        kind = "function_call_arguments" if item["type"] == "function_call" else "output_text"
        said = item["arguments"] if item["type"] == "function_call" else text
        events += [{"type": f"response.{kind}.delta", "output_index": place, "delta": part} for part in _cut(rng, said)]
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    kept = whole if rng.random() < 0.6 else {**whole, "output": []}  # some gateways leave the items out
    return [*events, {"type": "response.completed", "response": kept}]


def _message(rng: random.Random, calls: list[Said], text: str, streamed: bool) -> Any:
    texts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    uses = [
        {"type": "tool_use", "id": one.id, "name": one.name, "input": json.loads(one.arguments or "{}")}
        for one in calls
    ]
    end = {"stop_reason": "tool_use" if calls else "end_turn"}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m"}
    if not streamed:
        return {**head, "content": [*texts, *uses], **end}
    events: list[Any] = [{"type": "message_start", "message": {**head, "content": [], "stop_reason": None}}]
    pieces = [("text_delta", "text", text)] * len(texts) + [
        ("input_json_delta", "partial_json", one.arguments) for one in calls
    ]
    for index, (block, (kind, key, said)) in enumerate(zip([*texts, *uses], pieces, strict=True)):
        begun = {**block, **({"text": ""} if kind == "text_delta" else {"input": {}})}
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        for part in _cut(rng, said):
            delta = {"type": kind, key: part}
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    return [*events, {"type": "message_delta", "delta": end}, {"type": "message_stop"}]


def _cut(rng: random.Random, text: str) -> list[str]:
    size = rng.choice((3, 8, 100))
    return [text[start : start + size] for start in range(0, len(text), size)]


# Changes


def change(rng: random.Random, odd: Odd) -> None:
    """Make one small change."""
    changes: list[Callable[[random.Random, Odd], str]] = [_end, _field, _field, _drop_key, _wait]
    if odd.streamed:
        changes += [_drop, _twice, _swap, _cut_off, _no_index, _no_ids]
    odd.changes.append(rng.choice(changes)(rng, odd))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def _field(rng: random.Random, odd: Odd) -> str:
    places = [place for place in _places(odd.body) if isinstance(place[-1], str)]
    if not places:
        return "nothing"
    *path, key = rng.choice(places)
    inner = odd.body
    for step in path:
        inner = inner[step]
    others = [other for place in places if place[-1] == key and (other := _at(odd.body, place)) != inner[key]]
    inner[key] = deepcopy(rng.choice(others)) if others and rng.random() < 0.5 else deepcopy(rng.choice(ODD))
    return f"{'.'.join(map(str, (*path, key)))} = {inner[key]!r:.40}"


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _drop_key(rng: random.Random, odd: Odd) -> str:
    places = [place for place in _places(odd.body) if isinstance(place[-1], str)]
    if not places:
        return "nothing"
    *path, key = rng.choice(places)
    del _at(odd.body, tuple(path))[key]
    return f"without {'.'.join(map(str, (*path, key)))}"


def _end(rng: random.Random, odd: Odd) -> str:
    reason = rng.choice(ENDS)
    for place in _places(odd.body):
        if place[-1] in ("finish_reason", "status", "stop_reason") and _at(odd.body, place) in (*WHOLE, "completed"):
            _at(odd.body, place[:-1])[place[-1]] = "incomplete" if place[-1] == "status" else reason
    return f"ended with {reason}"


def _wait(rng: random.Random, odd: Odd) -> str:
    item = {"id": "w", "type": rng.choice(WAITS), "call_id": "w", "name": "read", "arguments": "{}"}
    lists = [
        found
        for place in _places(odd.body)
        if place[-1] == "output" and isinstance(found := _at(odd.body, place), list)
    ]
    if not lists:
        return "nothing"
    rng.choice(lists).append(item)
    return f"with {item['type']}"


def _drop(rng: random.Random, odd: Odd) -> str:
    place = rng.randrange(len(odd.body)) if odd.body else 0
    del odd.body[place : place + 1]
    return f"without event {place}"


def _twice(rng: random.Random, odd: Odd) -> str:
    place = rng.randrange(len(odd.body)) if odd.body else 0
    odd.body[place:place] = deepcopy(odd.body[place : place + 1])
    return f"event {place} twice"


def _swap(rng: random.Random, odd: Odd) -> str:
    if len(odd.body) < 2:
        return "nothing"
    place = rng.randrange(len(odd.body) - 1)
    odd.body[place], odd.body[place + 1] = odd.body[place + 1], odd.body[place]
    return f"events {place} and {place + 1} swapped"


def _cut_off(rng: random.Random, odd: Odd) -> str:
    place = rng.randrange(len(odd.body) + 1)
    del odd.body[place:]
    return f"cut off at {place}"


def _no_index(rng: random.Random, odd: Odd) -> str:
    to: Any = rng.choice((None, 0))
    for call in _fragments(odd):
        call["index"] = to
    return f"each index is {to}"


def _no_ids(rng: random.Random, odd: Odd) -> str:
    for call in _fragments(odd):
        call.pop("id", None)
    return "no ids"


def _fragments(odd: Odd) -> list[dict[str, Any]]:
    places = [place for place in _places(odd.body) if len(place) > 1 and place[-2] == "tool_calls"]
    found = [_at(odd.body, place) for place in places]
    blocks = [
        one
        for event in odd.body
        if isinstance(event, dict) and "index" in event
        for one in (event, event.get("content_block"))
    ]
    return [one for one in (*found, *blocks) if isinstance(one, dict)]


# The sent history, read as loosely as can be


def strings(value: Any) -> Iterator[str]:
    """All texts in a value."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(inner)


def look(odd: Odd) -> None:
    """Find out whether the reply says that it is whole, and whether an item of it waits for an answer."""
    body = _read(odd.body) if odd.streamed else odd.body
    found: dict[str, list[Any]] = {"finish_reason": [], "status": [], "stop_reason": []}
    for place in _places(body):
        if place[-1] in found:
            found[place[-1]].append(_at(body, place))
    told = [reason for reasons in found.values() for reason in reasons if reason in ENDS]
    odd.whole = not told
    if odd.streamed and not ("[DONE]" in body or any(isinstance(event, dict) and _is_end(event) for event in body)):
        odd.whole = False
    outputs = [_at(body, place) for place in _places(body) if place[-1] == "output"]
    items = [item for output in outputs if isinstance(output, list) for item in output if isinstance(item, dict)]
    odd.waits = any(item.get("type") in WAITS for item in items)


def _read(events: list[Any]) -> list[Any]:
    """The events up to the one that ends the stream: what comes after is not read."""
    ends = (
        place
        for place, event in enumerate(events)
        if event == "[DONE]" or (isinstance(event, dict) and str(event.get("type")) in LAST)
    )
    return events[: next(ends, len(events)) + 1]


def _is_end(event: dict[str, Any]) -> bool:
    if str(event.get("type")).startswith(("response.", "message_")):
        return event["type"] in LAST
    choices = event.get("choices")
    return isinstance(choices, list) and any(isinstance(one, dict) and one.get("finish_reason") for one in choices)


def named(odd: Odd) -> dict[str, set[str]]:
    """The names that the provider may mean for each tag: the name of its call, and any that a change put there."""
    texts = [*strings(odd.body)]
    changed = {text for text in texts if text in NAMES} if any(".name = " in each for each in odd.changes) else set()
    return {tag_in(one.arguments): {one.name, *changed} for one in odd.calls if tag_in(one.arguments)}


def tag_in(text: str) -> str:
    """The tag in a text; empty without one."""
    found = re.search(r"T\d-", text)
    return found[0] if found else ""


# Requests, read as strictly as can be


def check_request(body: dict[str, Any]) -> None:
    """Refuse a request that a strict provider would refuse. Raises `Broken`."""
    if "input" in body:
        _check_items(body["input"])
    elif "max_tokens" in body:  # the server of the tests is as strict as the provider is
        problem = history_problem(MessageAnswer.turns(body))
        _need(problem is None, "a history", problem)
    else:
        _check_messages(body["messages"])


def _need(holds: object, why: str, value: object) -> None:
    if not holds:
        raise Broken(f"{why}: {value!r:.300}")


def _check_messages(messages: list[dict[str, Any]]) -> None:
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        role, content = message.get("role"), message.get("content")
        _need(role in ("system", "user", "assistant", "tool"), "a role", message)
        if role == "tool":
            _need(message.get("tool_call_id") in waiting, "a result without a call", message)
            waiting.remove(message["tool_call_id"])
            _need(isinstance(content, str), "the content of a result", message)
            continue
        _need(not waiting, "a call without a result", waiting)
        calls = message.get("tool_calls")
        if calls is None:
            _need(isinstance(content, str) or (isinstance(content, list) and content), "a content", message)
            continue
        _need(isinstance(calls, list) and calls and role == "assistant", "the calls", message)
        _need(
            content is None or isinstance(content, str) or (isinstance(content, list) and content), "a content", message
        )
        for call in calls:
            _need(
                isinstance(call.get("id"), str) and 0 < len(call["id"]) <= 40 and call["id"] not in seen, "an id", call
            )
            _need(call.get("type") == "function" or isinstance(call.get("type"), str), "a type", call)
            _check_call(call["function"])
            seen.add(call["id"])
            waiting.append(call["id"])
    _need(not waiting, "a call without a result", waiting)


def _check_call(call: dict[str, Any]) -> None:
    _need(isinstance(call.get("name"), str) and _NAME.fullmatch(call["name"]), "a name", call)
    try:
        arguments = json.loads(call["arguments"], parse_constant=lambda _: 1 / 0)
    except Exception:
        raise Broken(f"arguments: {call!r:.300}") from None
    _need(isinstance(arguments, dict), "arguments", call)
    json.dumps(arguments, ensure_ascii=False).encode()


def _check_items(items: list[dict[str, Any]]) -> None:
    waiting: list[str] = []
    seen: set[str] = set()
    for item in items:
        kind = item.get("type", "message")
        _need(kind not in WAITS, "an item that waits", item)
        if kind == "function_call":
            _need(0 < len(item["call_id"]) <= 64 and item["call_id"] not in seen, "an id", item)
            _check_call(item)
            seen.add(item["call_id"])
            waiting.append(item["call_id"])
        elif kind == "function_call_output":
            _need(item["call_id"] in waiting, "a result without a call", item)
            waiting.remove(item["call_id"])
        elif kind == "message" and "role" in item:
            _need(item["role"] in ("user", "assistant"), "a role", item)
    _need(not waiting, "a call without a result", waiting)


# A run


class Endpoint:
    """A provider that gives one odd reply, and is then content. The models of each way ask it."""

    def __init__(self) -> None:
        self.reply: Odd | None = None
        self.later: list[dict[str, Any]] = []
        self.server = ChatServer(self._answer)

    def _answer(self, body: dict[str, Any]) -> Any:
        if (odd := self.reply) is None:
            self.later.append(body)
            return "Done."
        self.reply = None
        return Fault.stream(*odd.body) if odd.streamed else Fault(status=200, body=odd.body)

    def models(self) -> dict[str, Any]:
        """The model of each way, without the word for a stream."""
        url = self.server.base_url
        given: dict[str, Any] = {"base_url": url, "api_key": "k", "max_attempts": 1}
        return {
            "chat": ChatCompletionsModel("m", **given),
            "responses": ResponsesModel("m", **given),
            "messages": MessagesModel("m", **given),
            "litellm": LiteLLMModel("openai/m", **given),
        }


def run(endpoint: Endpoint, model: Any, odd: Odd) -> str:
    """Run an agent over the reply, check what must hold, and give how it ended. Raises `Broken`."""
    done: list[tuple[str, str]] = []

    @tool(name="read")
    def look_at(value: str) -> str:
        """Read a file."""
        done.append(("read", value))
        return "read"

    @tool
    def delete(value: str = "default") -> str:
        """Delete a file."""
        done.append(("delete", value))
        return "deleted"

    @tool
    def note(value: str = "default") -> str:
        """Note."""
        done.append(("note", value))
        return "noted"

    look(odd)
    endpoint.reply, endpoint.later = odd, []
    agent = Agent(name="a", model=model, tools=[look_at, delete, note], store=MemoryStore())
    try:
        if odd.streamed:
            with agent.stream("Go") as stream:
                list(stream)
            result = stream.result
        else:
            result = agent.invoke("Go")
    except RunFailed as error:
        ended = type(error).__name__
    else:
        ended = "completed"
        _need(odd.whole or result.output != odd.text or not odd.text, "half a text is an answer", result.output)
        _need(not odd.waits, "an item that waits was swallowed", result.messages)
        _check_none_lost(odd, len(result.messages[1].tool_calls))
    _check_done(odd, done)
    for body in endpoint.later:
        check_request(body)
    return ended


def _check_done(odd: Odd, done: list[tuple[str, str]]) -> None:
    _need(odd.whole or not done, "a call of half a reply ran", done)
    _need(not (odd.waits and done), "a call beside an item that waits ran", done)
    if _mixed(odd.changes):
        return
    allowed = named(odd)
    empty = {one.name for one in odd.calls if not tag_in(one.arguments)}
    for name, value in done:
        if tag := tag_in(value):
            _need(name in allowed.get(tag, ()), "a call ran with the arguments of another", (name, value))
        elif value == "default":
            _need(name in empty or "name = " in "".join(odd.changes), "a call ran without its arguments", (name, value))


_MOVES = (
    "arguments",
    "input",
    "value",
    "partial_json",
    "content_block",
    "delta",
    "function",
    "item",
    "output",
    "tool_calls",
    "message",
    "response",
    "index",
    "choices",
    "type",
)


def _mixed(changes: list[str]) -> bool:
    """True if the provider itself now says other arguments for a call, or leaves out which call they are for."""
    fields = [change.partition(" = ")[0].rpartition(".")[2] for change in changes if " = " in change]
    gone = [change.rpartition(".")[2] for change in changes if change.startswith("without ")]
    moved = any(change.startswith(("event", "without event")) for change in changes)
    loose = any(change.startswith(("each index", "no ids")) for change in changes)
    lost = any(change.startswith("without event") for change in changes)
    late = moved and any(change.startswith("cut off") for change in changes)  # its end was said before all of it
    return lost or late or (moved and loose) or any(each in _MOVES for each in (*fields, *gone))


def _check_none_lost(odd: Odd, count: int) -> None:
    """Of a reply that was taken, each call whose name was sent is there, if only the order or the ids of calls were changed."""
    quiet = ("each index", "no ids", "nothing", "events")
    if all(change.startswith(quiet) for change in odd.changes):
        _need(count >= len(odd.calls), "a call was lost", count)


def explore(count: int, seed: int, ways: tuple[str, ...] = WAYS) -> tuple[Counter[str], list[str]]:
    """Run so many replies. Gives how often each end came, and what did not hold, with the seed and the reply."""
    ends: Counter[str] = Counter()
    broken: list[str] = []
    endpoint = Endpoint()
    with endpoint.server:
        models = endpoint.models()
        for number in range(count):
            rng = random.Random(f"{seed}:{number}")
            way = ways[number % len(ways)]
            odd = reply_of(rng, way)
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                change(rng, odd)
            try:
                ends[run(endpoint, models[way.partition(" ")[0]], odd)] += 1
            except Exception as error:
                body = json.dumps(odd.body)[:3_000]
                broken.append(
                    f"{type(error).__name__}: {error}\nseed {seed}, reply {number} ({way}): {odd.changes}\n{body}"
                )
    return ends, broken


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=20_000, help="how many replies")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of pydantic, which litellm asks about odd values
    started = time.monotonic()
    ends, broken = explore(given.count, given.seed)
    took = time.monotonic() - started
    sys.stdout.write(
        "\n\n".join([*broken, f"{given.count} replies, seed {given.seed}, {took:.0f} s: {dict(ends.most_common())}\n"])
    )
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
