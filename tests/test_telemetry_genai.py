"""Telemetry by the conventions for generative AI: names, how a model is asked, what it says of its reply, and what was said."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from drivers import DRIVERS, STREAMED, Driver
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.schemas import Schemas
from pydantic import BaseModel
from spans import Desk, everything, facts

import phronomy
from phronomy import (
    END,
    START,
    Agent,
    Approve,
    ConfigurationError,
    Hooks,
    Message,
    ModelError,
    ModelSettings,
    StateGraph,
    Telemetry,
    ToolCall,
    Usage,
    tool,
)
from phronomy.foundation.quoting import HIDDEN
from phronomy.models import ChatCompletionsModel, LiteLLMModel, MessagesModel, ModelReply, ModelRequest, ResponsesModel
from phronomy.observability.genai import conversation, settings_of
from phronomy.observability.masking import Masking
from phronomy.testing import ChatServer, ScriptedModel, call, say

NAMES = {
    value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_") and isinstance(value, str)
}
REPLACED = {
    text.split('"')[1]
    for text in inspect.getsource(gen_ai_attributes).split("\nGEN_AI_")[1:]
    if "Deprecated: Replaced" in text or "Deprecated: Removed" in text
}

SETTINGS = ModelSettings(
    temperature=0.5,
    top_p=1,
    max_tokens=70,
    stop=("END", "STOP"),
    seed=3,
    extra={"top_k": 40, "presence_penalty": 1, "n": 2, "response_format": {"type": "json_object"}},
)
ASKED = {
    "gen_ai.request.temperature": 0.5,
    "gen_ai.request.top_p": 1.0,
    "gen_ai.request.max_tokens": 70,
    "gen_ai.request.stop_sequences": ("END", "STOP"),
    "gen_ai.request.seed": 3,
    "gen_ai.request.top_k": 40.0,
    "gen_ai.request.presence_penalty": 1.0,
    "gen_ai.request.choice.count": 2,
    "gen_ai.output.type": "json",
}


@pytest.fixture(params=(*DRIVERS, *STREAMED), ids=str)
def each(request: pytest.FixtureRequest) -> Driver:
    """Each driver, streamed and not."""
    found: Driver = request.param
    return found


@pytest.fixture
def desk() -> Desk:
    return Desk()


def secrets(each: Driver, desk: Desk, **options: Any) -> str:
    """All that is exported of a run with a secret in everything that is said, and one more in what a tool redacts."""

    @tool(requires_approval=True, redact=["card"])
    def pay(card: str, to: str) -> str:
        """Pay, canary-tool."""
        return f"canary-result for {to}"

    asks = call("pay", {"card": "hidden-asked", "to": "canary-to"})
    used = Usage(requests=1, input_tokens=30, output_tokens=9, cached_tokens=20, reasoning_tokens=4)
    agent = Agent(
        name="clerk",
        model=ScriptedModel([say(None, asks, usage=used), "canary-answer"], name="acme/clerk-1"),
        tools=[pay],
        instructions="canary-instructions",
        settings=SETTINGS,
        hooks=[desk.telemetry(**options)],
    )
    waiting = each.invoke(agent, "canary-input", thread_id="t-1").checkpoint
    edited = Approve(args={"card": "hidden-edited", "to": "canary-edited"})
    each.resume(agent, waiting, decisions={waiting.pending[0].id: edited})
    return everything(desk)


# Names


@pytest.mark.parametrize("content", [False, True])
def test_every_name_is_one_of_the_conventions_and_none_was_replaced(each: Driver, desk: Desk, content: bool) -> None:
    secrets(each, desk, content=content)
    found = {name for span in desk.spans() for name in facts(span) if name.startswith("gen_ai.")}
    assert found <= NAMES - REPLACED
    said = {"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions"}
    said |= {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"}
    assert found & said == (said if content else set())
    assert "gen_ai.system" in REPLACED  # so that the list is not an empty one


def test_spans_and_metrics_are_of_this_version_by_a_schema_that_is_released(desk: Desk) -> None:
    secrets(DRIVERS[0], desk)
    scopes = {span.instrumentation_scope for span in desk.spans()}
    data = desk.reader.get_metrics_data()
    assert data is not None
    scopes |= {each.scope for each in data.resource_metrics[0].scope_metrics}
    assert {(scope.name, scope.version) for scope in scopes if scope} == {("phronomy", phronomy.__version__)}
    (schema,) = {scope.schema_url for scope in scopes if scope}
    assert schema in {each.value for each in Schemas}


# How a model is asked, and what it says of its reply


def test_a_reply_says_how_the_model_was_asked_and_what_it_used(each: Driver, desk: Desk) -> None:
    secrets(each, desk)
    first, second = desk.spans("chat")
    assert {name: facts(first)[name] for name in ASKED} == ASKED == {name: facts(second)[name] for name in ASKED}
    used = {name: value for name, value in facts(first).items() if name.startswith("gen_ai.usage.")}
    assert used == {
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 9,
        "gen_ai.usage.cache_read.input_tokens": 20,
        "gen_ai.usage.reasoning.output_tokens": 4,
    }
    drive = desk.spans("invoke_agent")[0]
    assert {name: value for name, value in facts(drive).items() if name.startswith("gen_ai.usage.")} == used
    assert [facts(span)["gen_ai.response.finish_reasons"] for span in (first, second)] == [("tool_calls",), ("stop",)]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ChatCompletionsModel, "gpt-4o"),
        (ResponsesModel, "gpt-4o"),
        (MessagesModel, "anthropic/claude"),
        (LiteLLMModel, "openai/gpt-4o"),
    ],
)
def test_what_a_provider_says_of_its_reply_is_on_its_span(each: Driver, desk: Desk, kind: Any, name: str) -> None:
    used = Usage(requests=1, input_tokens=30, output_tokens=9, cached_tokens=20, reasoning_tokens=4)
    with ChatServer([say("Hello.", usage=used, finish_reason="length")]) as server:
        own = ModelSettings(temperature=0.5, max_tokens=7, accept_incomplete=True)
        model = kind(name, base_url=server.base_url, api_key="k", settings=own)
        agent = Agent(name="clerk", model=model, settings=ModelSettings(max_tokens=70), hooks=[desk.telemetry()])
        result = each.invoke(agent, "go")
    usage = result.checkpoint.usage
    assert (usage.cached_tokens, usage.reasoning_tokens) == (20, 4)
    (chat,) = desk.spans("chat")
    told = facts(chat)
    assert told["gen_ai.response.finish_reasons"] == ("length",)
    assert told["gen_ai.response.id"].endswith("scripted")
    assert told["gen_ai.response.model"] == server.requests[0]["model"]
    assert (told["gen_ai.request.temperature"], told["gen_ai.request.max_tokens"]) == (0.5, 70)
    assert told["gen_ai.usage.cache_read.input_tokens"] == 20
    assert told["gen_ai.usage.reasoning.output_tokens"] == 4


@pytest.mark.parametrize("odd", [True, "7", 2**63, 10**400, [], {}])
def test_an_option_that_no_attribute_can_hold_is_left_out(odd: Any) -> None:
    options = {"n": odd, "top_k": odd, "seed": odd, "response_format": odd}
    assert settings_of(ModelSettings(extra=options)) == {}


def test_a_model_that_fails_says_how_it_was_asked(each: Driver, desk: Desk) -> None:
    agent = Agent(model=ScriptedModel([ModelError("away")]), settings=SETTINGS, hooks=[desk.telemetry()])
    with pytest.raises(ModelError):
        each.invoke(agent, "go")
    (chat,) = desk.spans("chat")
    assert {name: facts(chat)[name] for name in ASKED} == ASKED
    assert "gen_ai.response.finish_reasons" not in facts(chat)


# What was said


def test_without_content_nothing_that_was_said_is_in_any_span(each: Driver, desk: Desk) -> None:
    told = secrets(each, desk)
    assert "canary" not in told and "hidden" not in told


def test_with_content_all_is_there_but_what_a_tool_redacts(each: Driver, desk: Desk) -> None:
    told = secrets(each, desk, content=True)
    for word in ("input", "instructions", "tool", "to", "edited", "result", "answer"):
        assert f"canary-{word}" in told
    assert "hidden" not in told

    _, first, _, paid, second = desk.spans()
    assert json.loads(facts(first)["gen_ai.system_instructions"]) == [
        {"type": "text", "content": "canary-instructions"}
    ]
    (defined,) = json.loads(facts(first)["gen_ai.tool.definitions"])
    assert (defined["type"], defined["name"], defined["description"]) == ("function", "pay", "Pay, canary-tool.")
    assert set(defined["parameters"]["properties"]) == {"card", "to"}
    assert json.loads(facts(paid)["gen_ai.tool.call.arguments"]) == {"card": HIDDEN, "to": "canary-edited"}
    asked, called, settled = json.loads(facts(second)["gen_ai.input.messages"])
    assert asked == {"role": "user", "parts": [{"type": "text", "content": "canary-input"}]}
    arguments = {"card": HIDDEN, "to": "canary-to"}
    part = {"type": "tool_call", "id": "call_1", "name": "pay", "arguments": arguments}
    assert called == {"role": "assistant", "parts": [part]}
    assert settled["parts"][0]["type"] == "tool_call_response"
    assert f'"card": "{HIDDEN}"' in settled["parts"][0]["response"]
    said = json.loads(facts(first)["gen_ai.output.messages"])
    assert said == [{"role": "assistant", "parts": [part], "finish_reason": "tool_call"}]


def test_what_tools_inside_redact_is_hidden_all_around_them(each: Driver, desk: Desk) -> None:
    @tool(redact=["card"])
    def pay(card: str) -> str:
        """Pay."""
        return "paid"

    inner = Agent(name="inner", model=ScriptedModel([call("pay", {"card": "hidden-1"}), "canary"]), tools=[pay])
    built = StateGraph(Left, name="house").add_node("one", inner, input=lambda state: "go", output="left")
    graph = built.add_edge(START, "one").add_edge("one", END).compile(hooks=[desk.telemetry(content=True)])
    assert each.invoke(graph, {}).output == Left(left="canary")
    assert "hidden" not in everything(desk)
    assert len(desk.spans("chat")) == 2 and "canary" in everything(desk)


class Left(BaseModel):
    """What comes of a clerk."""

    left: str = ""


def test_parts_of_a_message_have_the_form_of_the_conventions() -> None:
    content = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "text"},
        "odd",
    ]
    odd = ToolCall(id="c1", name="gone", arguments="{")
    said = (Message(role="user", content=content), Message(role="assistant", content=None, tool_calls=(odd,)))
    assert conversation(said, Masking(None)) == [
        {
            "role": "user",
            "parts": [
                {"type": "text", "content": "Look:"},
                {"type": "uri", "modality": "image", "uri": "https://example.com/a.png"},
                content[2],
                {"type": "text"},
                {"type": "unknown", "content": "odd"},
            ],
        },
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "gone", "arguments": HIDDEN}]},
    ]


def test_redact_changes_a_copy(desk: Desk) -> None:
    def spoils(name: str, value: Any) -> Any:
        if name == "gen_ai.tool.definitions":
            value[0]["parameters"].clear()
        return value

    @tool
    def look(order: int) -> str:
        """Look an order up."""
        return "found"

    model = ScriptedModel(["first", "second"])
    agent = Agent(model=model, tools=[look], hooks=[desk.telemetry(content=True, redact=spoils)])
    agent.invoke("go")
    agent.invoke("go")
    schema = look.definition()["function"]["parameters"]
    assert [request.tools[0]["function"]["parameters"] for request in model.requests] == [schema, schema]


# One trace for a run


def test_a_run_that_was_suspended_goes_on_in_the_same_trace(driver: Driver, desk: Desk, place: Any) -> None:
    def clerk() -> Agent[Any, Any]:
        @tool(requires_approval=True)
        def refund(order: int) -> str:
            """Refund."""
            return "done"

        model = ScriptedModel.by_turn([call("refund", {"order": 1}), call("refund", {"order": 2}), "done"])
        hooks = [desk.telemetry(traces="run")]
        return Agent(name="clerk", model=model, tools=[refund], store=place.open(), hooks=hooks)

    waiting = driver.invoke(clerk(), "go", thread_id="t-1", metadata={"desk": 4}).checkpoint
    for _ in range(2):  # each as another process
        later = clerk()
        waiting = driver.resume(later, later.store.load(waiting.id), approved=True).checkpoint
    assert desk.tree() == [
        "invoke_agent clerk",
        "  chat scripted",
        "  invoke_agent clerk",
        "    execute_tool refund",
        "    chat scripted",
        "  invoke_agent clerk",
        "    execute_tool refund",
        "    chat scripted",
    ]
    assert len({span.context.trace_id for span in desk.spans()}) == 1
    first = desk.spans()[0].context
    told = f"00-{first.trace_id:032x}-{first.span_id:016x}-{first.trace_flags:02x}"
    assert waiting.metadata == {"desk": 4, "traceparent": told}

    driver.invoke(clerk(), "and now?", thread_id="t-1")  # another run of the same thread
    assert len({span.context.trace_id for span in desk.spans()}) == 2


def test_whoever_resumes_within_a_span_of_their_own_is_linked_to(driver: Driver, desk: Desk) -> None:
    @tool(requires_approval=True)
    def refund() -> str:
        """Refund."""
        return "done"

    agent = Agent(
        name="clerk",
        model=ScriptedModel([call("refund"), "done"]),
        tools=[refund],
        hooks=[desk.telemetry(traces="run")],
    )
    waiting = driver.invoke(agent, "go").checkpoint
    with desk.traces.get_tracer("web").start_as_current_span("POST /decide"):
        driver.resume(agent, waiting, approved=True)
    assert desk.tree() == [
        "invoke_agent clerk",
        "  chat scripted",
        "  invoke_agent clerk -> 2",
        "    execute_tool refund",
        "    chat scripted",
        "POST /decide",
    ]


def test_a_run_has_one_trace_or_one_for_each_drive() -> None:
    wrong: Any = "thread"
    with pytest.raises(ConfigurationError, match="traces is 'drive'"):
        Telemetry(traces=wrong)


# The hook


def test_a_hook_hears_what_a_model_is_asked_and_what_it_replied(each: Driver) -> None:
    heard: list[tuple[str, str]] = []

    class Ear(Hooks):
        def exchanged(self, branch_id: str, path: str, said: ModelRequest | ModelReply) -> None:
            heard.append((branch_id, said.message.text if isinstance(said, ModelReply) else said.messages[0].text))

    result = each.invoke(Agent(model=ScriptedModel(["Hello."]), hooks=[Ear()]), "Hi")
    assert heard == [(result.checkpoint.branch_id, "Hi"), (result.checkpoint.branch_id, "Hello.")]


def test_settings_of_a_model_that_cannot_be_read_change_nothing(each: Driver, desk: Desk) -> None:
    class Shy(ScriptedModel):
        @property
        def settings(self) -> Any:
            raise ValueError("canary-secret")

    agent = Agent(name="clerk", model=Shy(["Hello."]), hooks=[desk.telemetry()])
    assert each.invoke(agent, "Hi").output == "Hello."
    assert [span.name for span in desk.spans()] == ["invoke_agent clerk", "chat scripted"]


def test_a_hook_that_raises_on_an_exchange_changes_nothing(each: Driver, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Hooks):
        def exchanged(self, branch_id: str, path: str, said: ModelRequest | ModelReply) -> None:
            raise ValueError("canary-secret")

    assert each.invoke(Agent(model=ScriptedModel(["Hello."]), hooks=[Broken()]), "Hi").output == "Hello."
    assert caplog.text.count("hook Broken raised ValueError on an exchange") == 2
    assert "canary" not in caplog.text
