"""Both models over HTTP keep the contract that is published for models."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from phronomy.models import ChatCompletionsModel, LiteLLMModel, StreamingModel
from phronomy.testing import ModelContract


class TestChatCompletionsModel(ModelContract):
    def make_model(self, base_url: str) -> ChatCompletionsModel:
        return ChatCompletionsModel("gpt-4o-mini", base_url=base_url, api_key=self.key, retry_wait=0)


def close_clients_of_litellm() -> None:
    """litellm keeps a client for each of two hundred addresses, and drops the next ones unclosed."""
    import litellm

    kept = litellm.in_memory_llm_clients_cache
    for client in kept.cache_dict.values():
        if not inspect.iscoroutinefunction(client.close):
            client.close()
    kept.flush_cache()  # type: ignore[no-untyped-call]


class TestLiteLLMModel(ModelContract):
    @pytest.fixture(autouse=True)
    def litellm_leaves_nothing_open(self) -> Iterator[None]:
        asyncio.set_event_loop(None)  # else litellm makes a loop, and leaves it open
        yield
        close_clients_of_litellm()

    def make_model(self, base_url: str) -> LiteLLMModel:
        return LiteLLMModel("openai/gpt-4o-mini", base_url=base_url, api_key=self.key, retry_wait=0)

    async def let_go(self, model: StreamingModel) -> None:
        import litellm

        await litellm.close_litellm_async_clients()  # type: ignore[attr-defined,no-untyped-call]


def test_the_contract_asks_for_a_model() -> None:
    with pytest.raises(NotImplementedError):
        ModelContract().make_model("http://127.0.0.1/v1")
