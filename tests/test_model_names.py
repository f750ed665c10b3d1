"""Names of models: what each becomes, with litellm and without, where it goes and with which key."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import respx

from phronomy import Agent, AuthenticationError, ConfigurationError, LiteLLMModel, Message, ModelRequest
from phronomy.models import ChatCompletionsModel, MessagesModel, as_model, by_name
from phronomy.models import litellm as litellm_model
from phronomy.models.providers import ANTHROPIC, PROVIDERS, Provider
from phronomy.testing import ChatServer

REQUEST = ModelRequest(messages=(Message(role="user", content="Hi"),))
ANSWER = {"choices": [{"message": {"content": "Hello."}}]}
EVENTS = 'data: {"choices": [{"delta": {"content": "Hello."}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
VARIABLES = {
    variable
    for each in (ANTHROPIC, *PROVIDERS.values())
    for variable in (*each.keys, each.address)
    if variable is not None
}

DIRECT = {
    "deepseek": "https://api.deepseek.com/beta",  # litellm asks the beta endpoints always
    "ollama": "http://localhost:11434",  # litellm speaks Ollama's own protocol
    "ollama_chat": None,
    "anthropic": None,
    "openai": None,  # these are left to whoever makes the request
    "openrouter": None,
}
"""Where litellm has another address than the one for chat completions, or says none at this point."""


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (*VARIABLES, "PHRONOMY_MODEL_BACKEND"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def without_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it is not installed."""
    for module in (by_name, litellm_model):
        monkeypatch.setattr(module, "has_litellm", lambda: False)


def asked(model: ChatCompletionsModel, *, stream: bool = False) -> httpx.Request:
    """The request of a call."""
    streamed = httpx.Response(200, headers={"content-type": "text/event-stream"}, text=EVENTS)
    with respx.mock(using="httpcore2") as router, model:
        route = router.post().mock(return_value=streamed if stream else httpx.Response(200, json=ANSWER))
        list(model.stream(REQUEST)) if stream else model.complete(REQUEST)
        request: httpx.Request = route.calls.last.request
        return request


def test_the_environment_chooses_what_a_name_becomes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(as_model("openai/gpt-4o"), LiteLLMModel)
    monkeypatch.setenv("PHRONOMY_MODEL_BACKEND", "litellm")
    assert isinstance(as_model("openai/gpt-4o"), LiteLLMModel)
    monkeypatch.setenv("PHRONOMY_MODEL_BACKEND", "chat_completions")
    model = as_model("groq/llama-3.3-70b-versatile")
    assert isinstance(model, ChatCompletionsModel) and model.name == "groq/llama-3.3-70b-versatile"
    monkeypatch.setenv("PHRONOMY_MODEL_BACKEND", "litelm")
    with pytest.raises(ConfigurationError, match="litellm, direct, chat_completions or responses, not 'litelm'"):
        as_model("openai/gpt-4o")


DIRECT_KINDS = [
    ("anthropic/claude-opus-5", MessagesModel, "https://api.anthropic.com/v1/messages"),
    ("claude-sonnet-4-6", MessagesModel, "https://api.anthropic.com/v1/messages"),
    ("openai/gpt-4o", ChatCompletionsModel, "https://api.openai.com/v1/chat/completions"),
    ("groq/llama", ChatCompletionsModel, "https://api.groq.com/openai/v1/chat/completions"),
]


@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize(("name", "kind", "address"), DIRECT_KINDS)
def test_a_name_goes_to_its_provider_in_the_protocol_of_that(
    name: str, kind: Any, address: str, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed:
        assert isinstance(as_model(name), LiteLLMModel)
        monkeypatch.setenv("PHRONOMY_MODEL_BACKEND", "direct")
    else:
        for module in (by_name, litellm_model):
            monkeypatch.setattr(module, "has_litellm", lambda: False)
    model: Any = as_model(name)
    assert (type(model), model.name, model._url) == (kind, name, address)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway.test/v1")
    moved = address.replace("https://api.openai.com", "http://gateway.test")
    assert cast(Any, as_model(name))._url == moved


def test_a_model_of_anthropic_speaks_no_chat_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHRONOMY_MODEL_BACKEND", "chat_completions")
    for make in (as_model, ChatCompletionsModel.from_name):
        with pytest.raises(ConfigurationError, match="use a MessagesModel, or set PHRONOMY_MODEL_BACKEND=direct"):
            make("anthropic/claude-opus-5")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway.test/v1")  # of one that does
    assert isinstance(as_model("anthropic/claude-opus-5"), ChatCompletionsModel)


@pytest.mark.parametrize("name", [None, 5, b"openai/gpt-4o", ["openai/gpt-4o"]])
def test_what_is_no_text_names_no_model(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="a model is named by text"):
        ChatCompletionsModel.from_name(name)


def test_behind_a_gateway_every_name_goes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHRONOMY_MODEL_BACKEND", "chat_completions")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway.test/v1")
    monkeypatch.setenv("GROQ_API_KEY", "not-for-the-gateway")
    for name, sent in (("openai/gpt-4o", "gpt-4o"), ("groq/llama", "groq/llama"), ("house-model", "house-model")):
        model = as_model(name)
        assert isinstance(model, ChatCompletionsModel)
        request = asked(model)
        assert str(request.url) == "http://gateway.test/v1/chat/completions"
        assert json.loads(request.content)["model"] == sent and "authorization" not in request.headers


@pytest.mark.usefixtures("without_litellm")
def test_without_litellm_the_address_of_openai_is_that_of_its_own_names_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what is said to another provider would go there, and any name that is misspelt."""
    monkeypatch.delenv("PHRONOMY_MODEL_BACKEND", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway.test/v1")
    hosts = {}
    for name in ("openai/gpt-4o", "gpt-4o", "groq/llama"):
        model = as_model(name)
        assert isinstance(model, ChatCompletionsModel)
        hosts[name] = asked(model).url.host
    assert hosts == {"openai/gpt-4o": "gateway.test", "gpt-4o": "gateway.test", "groq/llama": "api.groq.com"}
    for name in ("Groq/llama", "gemini/gemini-3-pro"):
        with pytest.raises(ConfigurationError, match="PHRONOMY_MODEL_BACKEND=chat_completions has every name go to"):
            as_model(name)


@pytest.mark.usefixtures("without_litellm")
def test_without_litellm_a_name_goes_straight_to_its_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk-1")
    model = Agent(name="desk", model="groq/meta/llama-4").spec.model
    assert isinstance(model, ChatCompletionsModel) and model.name == "groq/meta/llama-4"
    request = asked(model)
    assert str(request.url) == "https://api.groq.com/openai/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer gsk-1"
    assert json.loads(request.content)["model"] == "meta/llama-4"


@pytest.mark.usefixtures("without_litellm")
@pytest.mark.parametrize("name", ["gpt-5-mini", "chatgpt-5-latest", "o3", "o4-mini"])
def test_openais_own_names_need_no_provider_before_them(name: str) -> None:
    model = as_model(name)
    assert isinstance(model, ChatCompletionsModel) and model.name == name
    request = asked(model)
    assert request.url.host == "api.openai.com" and json.loads(request.content)["model"] == name


@pytest.mark.usefixtures("without_litellm")
@pytest.mark.parametrize(
    "name",
    ["anthropic/", "Claude-x", "gemini/gemini-3-pro", "llama", "o", "gpt-/x", "groq/", "/x", "Groq/x", "gpt-4 o"],
)
def test_without_litellm_another_name_says_what_to_install(name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"pip install 'phronomy\[litellm\]'.* anthropic, .* groq, .*ChatCompletionsModel"
    ):
        _ = Agent(name="desk", model=name).spec


@pytest.mark.usefixtures("without_litellm")
def test_whoever_demands_litellm_where_there_is_none_hears_of_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHRONOMY_MODEL_BACKEND", "litellm")
    for make in (as_model, LiteLLMModel):
        with pytest.raises(ConfigurationError, match=r"needs litellm: pip install 'phronomy\[litellm\]'"):
            make("openai/gpt-4o")


def test_each_address_and_key_is_that_of_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    litellm: Any = litellm_model._load()
    wrong = []
    for name, provider in {**PROVIDERS, "anthropic": ANTHROPIC}.items():
        found = [litellm.get_llm_provider(f"{name}/m")[3]]
        ours: list[str | None] = [DIRECT.get(name, provider.url)]
        if name not in DIRECT:
            if provider.address is not None:
                monkeypatch.setenv(provider.address, "https://elsewhere.test/v1")
            for key in provider.keys:
                monkeypatch.setenv(key, f"key-in-{key}")
                _, _, used, address = litellm.get_llm_provider(f"{name}/m")
                found += [used, address]
                ours += [f"key-in-{key}", provider.base_url(f"{name}/m")]
                assert provider.key() == f"key-in-{key}"
                monkeypatch.delenv(key)
        wrong += [(name, found, ours)] if found != ours else []
    assert wrong == []


def test_a_variable_names_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_API_BASE", "http://gpu.test:11434/")
    assert str(asked(ChatCompletionsModel.from_name("ollama/llama4")).url).startswith("http://gpu.test:11434/v1/chat/")
    monkeypatch.setenv("OLLAMA_API_BASE", "http://gpu.test:11434/v1")
    assert str(asked(ChatCompletionsModel.from_name("ollama/llama4")).url).startswith("http://gpu.test:11434/v1/chat/")
    with pytest.raises(ConfigurationError, match=r"where 'hosted_vllm/m' is: set HOSTED_VLLM_API_BASE, or .* base_url"):
        ChatCompletionsModel.from_name("hosted_vllm/m")
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", "http://gpu.test:8000/v1")
    assert str(asked(ChatCompletionsModel.from_name("hosted_vllm/m")).url) == "http://gpu.test:8000/v1/chat/completions"


def test_a_key_that_is_given_wins_and_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XAI_API_KEY", "of-the-environment")
    model = ChatCompletionsModel.from_name("xai/grok-5", api_key="of-my-own")
    assert asked(model).headers["authorization"] == "Bearer of-my-own"
    assert "own" not in repr(model)


def test_a_provider_that_refuses_for_want_of_a_key_says_which_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = httpx.Response(401, json={"error": {"message": "no key"}})
    with (
        respx.mock(using="httpcore2") as router,
        ChatCompletionsModel.from_name("mistral/mistral-large-latest") as model,
    ):
        router.post("https://api.mistral.ai/v1/chat/completions").mock(return_value=refusal)
        with pytest.raises(AuthenticationError, match=r"No key was sent: set MISTRAL_API_KEY, or give an api_key"):
            model.complete(REQUEST)
        monkeypatch.setenv("MISTRAL_API_KEY", "wrong-key-1")
        with (
            ChatCompletionsModel.from_name("mistral/mistral-large-latest") as keyed,
            pytest.raises(AuthenticationError) as caught,
        ):
            keyed.complete(REQUEST)
    assert "No key" not in str(caught.value) and caught.value.status_code == 401


def test_an_address_that_is_none_is_told_by_its_variable_and_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, variable in (("openai/m", "OPENAI_BASE_URL"), ("hosted_vllm/m", "HOSTED_VLLM_API_BASE")):
        monkeypatch.setenv(variable, "user:pa55@localhost:8000/v1")
        with pytest.raises(ConfigurationError, match=f"{variable} is an address that begins with http") as caught:
            ChatCompletionsModel.from_name(name)
        assert "pa55" not in str(caught.value)


def test_mistral_is_not_asked_for_what_it_refuses() -> None:
    """It answers 422 to `stream_options`, and counts the tokens of a stream unasked."""
    for name, options in (("mistral/m", None), ("groq/m", {"include_usage": True})):
        body = json.loads(asked(ChatCompletionsModel.from_name(name), stream=True).content)
        assert (body["stream"], body.get("stream_options")) == (True, options)


def test_a_run_goes_on_where_litellm_is_not_installed(monkeypatch: pytest.MonkeyPatch, without_litellm: None) -> None:
    with ChatServer(["Hello.", "Hello again."]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none-is-needed")
        agent = Agent(name="desk", model="openai/gpt-4o")
        assert agent.invoke("Hi").output == "Hello."
        assert server.requests[0]["model"] == "gpt-4o"


def test_the_page_has_the_table_as_it_is() -> None:
    page = (Path(__file__).parents[1] / "docs" / "models.md").read_text()
    rows = {}
    for names, url, address, keys in re.findall(
        r"^\| (`[\w`/, ]+/`) \| (.*?) ?\| (.*?) ?\| (.*?) \|$", page, re.MULTILINE
    ):
        words = [re.findall(r"`([^`]+)`", cell) for cell in (url, address, keys)]
        for name in re.findall(r"`(\w+)/`", names):
            rows[name] = words
    told: dict[str, list[list[str]]] = {
        name: [[each.url] if each.url else [], [each.address] if each.address else [], list(each.keys)]
        for name, each in {**PROVIDERS, "anthropic": ANTHROPIC}.items()
    }
    assert rows == told


def test_the_table_holds_addresses_over_tls_or_of_this_machine() -> None:
    for each in (ANTHROPIC, *PROVIDERS.values()):
        assert isinstance(each, Provider)
        assert each.url is None or re.match(r"https://[\w.-]+(/[\w/]+)?$|http://localhost:\d+/v1$", each.url)
