"""What a provider signed goes back to it as it came: after a stop for a human, from another process, streamed or not.

The providers are those of `providers.py`, as strict as the real ones. That of the Responses API is in `test_responses_resumed.py`.

python test_reasoning_resumed.py WAY [[CASE, STORE, PROVIDER, CHECKPOINT], ...]: approve what waits at each, print what has come of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from string import ascii_letters, digits
from typing import Any

import pytest
from drivers import DRIVERS, PATIENCE, STREAMED, Driver
from providers import Anthropic, Chat, Cut, DeepSeek, Gemini, OpenRouter, Provider, exact

from phronomy import Agent, Approve, LiteLLMModel, ModelConnectionError, ModelError, ModelSettings, SQLiteStore, tool
from phronomy.models import ChatCompletionsModel, MessagesModel, Model

pytestmark = [  # what litellm looks at in a chunk of a stream is deprecated in pydantic
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:pydantic.warnings.PydanticDeprecatedSince211")
]

WAYS = {str(each): each for each in (*DRIVERS, *STREAMED)}
ODD = 'a  b\t\n\u2028\u2029\u0085\x7f\ufeff "quoted" \\u00e9 é \\n 🙂 [DONE] data: {}'
"""Blanks, separators of lines, escapes and what looks like them: all of this may be in a text."""
SIGNED = f"{ascii_letters}{digits}+/=="
LONG = SIGNED[:-2] * 300 + "=="


def calls(*given: tuple[str, str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        for id, name, args in given
    ]


# Anthropic


def thinks(thinking: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": thinking, "signature": signature}


def uses(id: str, name: str, **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


BLOCKS: list[Any] = [
    [
        thinks(ODD, SIGNED),
        {"type": "redacted_thinking", "data": f"R{LONG}"},
        {"type": "text", "text": f"Let me see. {ODD}"},
        thinks("", f"E{LONG}"),
        {"type": "text", "text": "I look."},
        uses("toolu_1", "look", order=1042),
        thinks("And then?", "EqoB+/=="),
        uses("toolu_2", "refund", order=1042, note=ODD),
    ],
    [
        thinks("Both.", "EqoC+/=="),
        uses("toolu_3", "refund", order=5, note=""),
        uses("toolu_4", "refund", order=5, note=""),
    ],
    [thinks(ODD, "EqoD+/=="), {"type": "text", "text": "All three are refunded."}],
    [{"type": "text", "text": "You are welcome."}],
]


THINKS = ModelSettings(max_tokens=4096, extra={"thinking": {"type": "enabled", "budget_tokens": 1024}})


def claude(url: str) -> Model:
    return MessagesModel("claude-sonnet-4-5", base_url=url, api_key="none", retry_wait=0, settings=THINKS)


def claude_by_litellm(url: str) -> Model:
    return LiteLLMModel("anthropic/claude-sonnet-4-5", base_url=url, api_key="none", retry_wait=0, settings=THINKS)


def blocks_in(body: dict[str, Any]) -> list[Any]:
    return [each["content"] for each in body["messages"] if each["role"] == "assistant"]


# Gemini


def asks(signature: str | None, id: str, name: str, **args: Any) -> dict[str, Any]:
    signed = {} if signature is None else {"thoughtSignature": signature}
    return {"functionCall": {"name": name, "args": args, "id": id}, **signed}


PARTS: list[Any] = [
    [
        [{"thought": True, "text": f"They want it back. {ODD}"}],
        [{"text": f"Let me {ODD}"}],
        [{"text": "see."}],
        [{"text": " I look.", "thoughtSignature": f"T{SIGNED}"}],
        [asks(f"C{LONG}", "fc_1", "look", order=1042)],
        [asks(None, "fc_2", "refund", order=1042, note=ODD)],
    ],
    [
        [{"thought": True, "text": "Both."}, {"text": "Both: "}],
        [asks("CiQ+/==", "fc_3", "refund", order=5, note=""), asks(None, "fc_4", "refund", order=5, note="")],
    ],
    [[{"text": "All three are "}], [{"text": "refunded."}], [{"text": "", "thoughtSignature": f"F{SIGNED}"}]],
    [[{"text": "You are welcome."}]],
]


def gemini(url: str) -> Model:
    return LiteLLMModel("gemini/gemini-3-pro-preview", base_url=url, api_key="none", retry_wait=0)


def parts_in(body: dict[str, Any]) -> list[Any]:
    return [[Gemini.camel(part) for part in each["parts"]] for each in body["contents"] if each["role"] == "model"]


def joined(reply: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The parts of a reply, with the pieces of an unsigned text as one."""
    found: list[dict[str, Any]] = []
    for part in (part for parts in reply for part in parts):
        last = found[-1] if found else {}
        if {*part} in ({"text"}, {"thought", "text"}) and {*last} == {*part}:
            found[-1] = {**last, "text": last["text"] + part["text"]}
        else:
            found.append(part)
    return found


# Chat completions

DETAILS: list[dict[str, Any]] = [
    {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0, "text": ODD, "signature": SIGNED},
    {"type": "reasoning.encrypted", "format": "google-gemini-v1", "index": 1, "id": "call_1", "data": f"E{LONG}"},
    {"type": "reasoning.encrypted", "format": "google-gemini-v1", "index": 1, "id": "call_2", "data": f"E{SIGNED}"},
    {"type": "reasoning.summary", "format": "openai-responses-v1", "index": 2, "summary": f"So: {ODD}"},
]
FIRST = calls(("call_1", "look", {"order": 1042}), ("call_2", "refund", {"order": 1042, "note": ODD}))
SECOND = calls(("call_3", "refund", {"order": 5, "note": ""}), ("call_4", "refund", {"order": 5, "note": ""}))


def details(*found: dict[str, Any]) -> dict[str, Any]:
    text = "".join(each.get("text") or each.get("summary") or "" for each in found)
    return {"reasoning": text, "reasoning_details": [*found]} if text else {"reasoning_details": [*found]}


ROUTED: list[Any] = [
    {"role": "assistant", "content": f"Let me see. {ODD}", "tool_calls": FIRST, **details(*DETAILS)},
    {"role": "assistant", "content": None, "tool_calls": SECOND, **details(DETAILS[1])},
    {"role": "assistant", "content": "All three are refunded.", **details(DETAILS[0])},
    {"role": "assistant", "content": "You are welcome."},
]
REASONED: list[Any] = [
    {"role": "assistant", "content": f"Let me see. {ODD}", "tool_calls": FIRST, "reasoning_content": ODD * 40},
    {"role": "assistant", "content": None, "tool_calls": SECOND, "reasoning_content": "Both."},
    {"role": "assistant", "content": "All three are refunded.", "reasoning_content": "So."},
    {"role": "assistant", "content": "You are welcome.", "reasoning_content": "Hm."},
]


def messages_in(body: dict[str, Any]) -> list[Any]:
    """The model's messages in a request. Where there is no content, litellm leaves it out."""
    none = {"role": "assistant", "content": None}
    return [{**none, **each} for each in body["messages"] if each["role"] == "assistant"]


def direct(url: str) -> Model:
    return ChatCompletionsModel("m", base_url=url, api_key="none", retry_wait=0)


def by_litellm(name: str) -> Callable[[str], Model]:
    return lambda url: LiteLLMModel(name, base_url=url, api_key="none", retry_wait=0)


@dataclass(frozen=True)
class Case:
    """A provider with what it says, the model that reaches it, and what of that is in a request."""

    provider: type[Provider]
    replies: list[Any]
    model: Callable[[str], Model]
    said_in: Callable[[dict[str, Any]], list[Any]] = messages_in
    sent: Callable[[Any], Any] = lambda reply: reply


CASES = {
    "anthropic": Case(Anthropic, BLOCKS, claude, blocks_in),
    "anthropic by litellm": Case(Anthropic, BLOCKS, claude_by_litellm, blocks_in),
    "gemini": Case(Gemini, PARTS, gemini, parts_in, joined),
    "openrouter": Case(OpenRouter, ROUTED, direct),
    "deepseek": Case(DeepSeek, REASONED, direct),
    "openrouter by litellm": Case(OpenRouter, ROUTED, by_litellm("openrouter/anthropic/claude-sonnet-4.5")),
    "deepseek by litellm": Case(DeepSeek, REASONED, by_litellm("deepseek/deepseek-reasoner")),
    "any other by litellm": Case(OpenRouter, ROUTED, by_litellm("openai/m")),
}


def agent_of(case: Case, way: Driver, store: SQLiteStore, provider: str) -> Agent[Any, str]:
    def refund(order: int, note: str) -> str:
        """Refund an order."""
        return f"refunded {order} {note}"

    def look(order: int) -> str:
        """Look an order up."""
        return f"{order} was paid"

    gated, free = tool(requires_approval=True)(way.function(refund)), tool(way.function(look))
    return Agent(name="desk", model=case.model(provider), tools=[gated, free], store=store)


def approved(case: Case, way: Driver, store: SQLiteStore, provider: str, at: str) -> Any:
    agent = agent_of(case, way, store, provider)
    decisions = {waits.id: Approve() for waits in store.load(at).pending}
    return way.resume(agent, at, decisions=decisions, by="ann")


def main(way: str, work: str) -> None:
    done = []
    for name, file, provider, at in json.loads(work):
        with SQLiteStore(file) as store:
            result = approved(CASES[name], WAYS[way], store, provider, at)
            done.append([result.checkpoint.id, result.status])
    print(json.dumps(done))


@pytest.mark.unmeasured
@pytest.mark.few(1)
@pytest.mark.parametrize("way", WAYS)
def test_what_was_signed_goes_back_as_it_came_from_any_process(way: str, tmp_path: Path) -> None:
    driver = WAYS[way]
    with ExitStack() as stack:
        served = {name: stack.enter_context(case.provider(*case.replies)) for name, case in CASES.items()}
        stores = {name: stack.enter_context(SQLiteStore(tmp_path / f"{name}.db")) for name in CASES}
        agents = {name: agent_of(case, driver, stores[name], served[name].base_url) for name, case in CASES.items()}
        work = []
        for name, agent in agents.items():
            stopped = driver.invoke(agent, "Refund all", thread_id="t").checkpoint
            assert [waits.tool_name for waits in stopped.pending] == ["refund"]
            work.append([name, str(tmp_path / f"{name}.db"), served[name].base_url, stopped.id])

        line = [sys.executable, __file__, way, json.dumps(work)]
        other = subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert other.returncode == 0, other.stderr

        for (name, case), (at, status) in zip(CASES.items(), json.loads(other.stdout), strict=True):
            assert (name, status) == (name, "suspended")
            ended = approved(case, driver, stores[name], served[name].base_url, at)
            assert (ended.status, ended.output) == ("completed", "All three are refunded.")
            thanked = driver.invoke(agents[name], "Thank you", thread_id="t")
            assert (thanked.output, served[name].refused) == ("You are welcome.", [])
            expected = [case.sent(reply) for reply in case.replies]
            assert [exact(case.said_in(body)) for body in served[name].requests] == [
                exact(expected[:number]) for number in range(4)
            ], name


@pytest.mark.parametrize("first", [claude, claude_by_litellm])
def test_a_conversation_with_anthropic_goes_on_with_litellm_and_without(
    driver: Driver, first: Callable[[str], Model], tmp_path: Path
) -> None:
    ways = [first, claude, claude_by_litellm, claude]
    cases = [Case(Anthropic, BLOCKS, way) for way in ways]
    with Anthropic(*BLOCKS) as provider, SQLiteStore(tmp_path / "runs.db") as store:
        stopped = driver.invoke(agent_of(cases[0], driver, store, provider.base_url), "Refund all", thread_id="t")
        for case in cases[1:3]:
            stopped = approved(case, driver, store, provider.base_url, stopped.checkpoint.id)
        thanked = driver.invoke(agent_of(cases[3], driver, store, provider.base_url), "Thank you", thread_id="t")
    assert (thanked.output, provider.refused) == ("You are welcome.", [])
    assert [exact(blocks_in(body)) for body in provider.requests] == [exact(BLOCKS[:number]) for number in range(4)]


# Streams that are cut

HALVES = {
    "after nothing": (0, False),
    "in the first piece": (3, True),
    "in a later piece": (8, True),
    "before the end": (-2, False),
    "in the event that ends it": (-2, True),
    "before the last event": (-1, False),
    "in the last event": (-1, True),
}


def said_its_end(case: Case, cut: str, ends: bool) -> bool:
    """Chat completions say why a reply ends, and then `[DONE]`. Not every endpoint sends that: a body that ends before it is whole."""
    return issubclass(case.provider, Chat) and "last event" in cut and ends


CUTS = [
    pytest.param(name, cut, ends, id=f"{name}, {cut}, {'ended' if ends else 'closed'}")
    for name, case in CASES.items()
    for cut in HALVES
    for ends in (True, False)
    if not said_its_end(case, cut, ends)
]


@pytest.mark.few(42)
@pytest.mark.parametrize(("name", "cut", "ends"), CUTS)
@pytest.mark.parametrize("driver", STREAMED, ids=str)
def test_a_stream_that_was_cut_is_no_reply(driver: Driver, name: str, cut: str, ends: bool, tmp_path: Path) -> None:
    case = CASES[name]
    at, half = HALVES[cut]
    if issubclass(case.provider, Gemini):
        at = min(at, 4)  # its events are few
    reply = Cut(case.replies[0], at, half=half, ends=ends)
    with case.provider(reply, reply, reply, case.replies[3]) as provider, SQLiteStore(tmp_path / "runs.db") as store:
        agent = agent_of(case, driver, store, provider.base_url)
        with pytest.raises(ModelError) as caught:
            driver.invoke(agent, "Refund all")
        assert isinstance(caught.value, ModelConnectionError)
        checkpoint = caught.value.checkpoint
        assert checkpoint is not None
        assert [message.role for message in checkpoint.messages] == ["user"]
        tries = len(provider.requests)
        assert tries in (1, 3)
        assert provider.script[3 - tries :] == [case.replies[3]]
        provider.script[:] = [case.replies[3]]
        assert driver.resume(agent, checkpoint).output == "You are welcome."


@pytest.mark.parametrize("name", CASES)
def test_a_whole_answer_that_was_cut_is_no_reply(driver: Driver, name: str, tmp_path: Path) -> None:
    case = CASES[name]
    cut = [Cut(case.replies[0], 0)] * 3
    with case.provider(*cut) as provider, SQLiteStore(tmp_path / "runs.db") as store:
        with pytest.raises(ModelConnectionError):
            driver.invoke(agent_of(case, driver, store, provider.base_url), "Refund all")
        assert len(provider.requests) == 3


def test_each_provider_refuses_what_was_altered() -> None:
    """The servers of these tests are as strict as they say: a history that lost or changed what was signed is refused."""
    import httpx

    heads = {"x-api-key": "k", "anthropic-version": "2023-06-01", "x-goog-api-key": "k"}
    results = [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": "ok"} for n in (1, 2)]
    answers = [{"functionResponse": {"name": name, "response": {}}} for name in ("look", "refund")]
    tools = [{"role": "tool", "tool_call_id": f"call_{n}", "content": "ok"} for n in (1, 2)]
    blocks, parts = BLOCKS[0], joined(PARTS[0])
    moved, changed = [blocks[2], *blocks[:2], *blocks[3:]], [thinks(ODD, SIGNED[:-1]), *blocks[1:]]

    def messages(content: Any) -> dict[str, Any]:
        turns = [("user", [{"type": "text", "text": "hi"}]), ("assistant", content), ("user", results)]
        return {"max_tokens": 9, "messages": [{"role": role, "content": said} for role, said in turns]}

    def contents(said: Any) -> dict[str, Any]:
        turns = [("user", [{"text": "hi"}]), ("model", said), ("user", answers)]
        return {"contents": [{"role": role, "parts": parts} for role, parts in turns]}

    def chat(message: Any) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": "hi"}, message, *tools]}

    unsigned = [{key: value for key, value in part.items() if key != "thoughtSignature"} for part in parts]
    swapped = [
        *parts[:2],
        *({**part, "thoughtSignature": "C2=="} if "functionCall" in part else part for part in parts[2:]),
    ]
    table: list[tuple[type[Provider], str, Any, list[Any], list[Any]]] = [
        (
            Anthropic,
            "/v1/messages",
            BLOCKS,
            [messages(blocks)],
            [messages(bad) for bad in (moved, changed, blocks[1:], blocks[:-1])],
        ),
        (
            Gemini,
            "/m:generateContent",
            PARTS,
            [contents(parts)],
            [contents(bad) for bad in (unsigned, swapped, parts[:-1])],
        ),
        (OpenRouter, Chat.path, ROUTED, [chat(ROUTED[0])], [chat({**ROUTED[0], "reasoning_details": DETAILS[:2]})]),
        (DeepSeek, Chat.path, REASONED, [chat(REASONED[0])], [chat({**REASONED[0], "reasoning_content": ODD})]),
    ]
    for kind, path, replies, good, bad in table:
        with kind(*replies[:2]) as provider:
            provider.said.append(provider.script.pop(0))
            statuses = [
                httpx.post(provider.base_url + path, json=body, headers=heads).status_code for body in (*bad, *good)
            ]
        assert statuses == [400] * len(bad) + [200] * len(good), (kind, provider.refused)


if __name__ == "__main__":
    main(*sys.argv[1:])
