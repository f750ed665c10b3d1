"""`ChatCompletionsModel`: any endpoint that speaks the chat-completions protocol, without a provider's library.

It loads in a tenth of a second where litellm takes two, so a process that is started to resume one run answers sooner.
The protocol: https://platform.openai.com/docs/api-reference/chat.
"""

from __future__ import annotations

from typing import Self

from phronomy.foundation.json_text import JsonDict
from phronomy.models.base import ModelSettings
from phronomy.models.formats.chat import read_completion, request_conversation, request_options
from phronomy.models.formats.chunks import Assembler
from phronomy.models.http.direct import DirectModel, WireFormat
from phronomy.models.providers import provider_of


class ChatCompletionsModel(DirectModel):
    """A model reached directly, at any endpoint that speaks the chat-completions protocol.

    `model` is the provider's own name for it. `base_url` is the address up to and with `/v1`; by default that in
    `OPENAI_BASE_URL`, else OpenAI's. `api_key` is by default read from `OPENAI_API_KEY` when it is first needed; with
    `""`, or where neither is set, none is sent. `settings` are the defaults of every call; `extra_headers` and
    `extra_body` in their `extra` go where their names say. `max_attempts` and `retry_wait` are as for `LiteLLMModel`.

    The clients are made by the first call and kept: threads share one, each event loop has its own, which ends with it.
    Use the model as a context manager, or call `close` or `aclose`, to let go of them sooner.

    Raises `ConfigurationError` for an address or a key that cannot be used.
    """

    _FORMAT = WireFormat(
        path="/chat/completions",
        options=request_options,
        conversation=request_conversation,
        read=read_completion,
        assembler=Assembler,
    )

    @classmethod
    def from_name(
        cls,
        name: str,
        *,
        api_key: str | None = None,
        settings: ModelSettings | None = None,
        max_attempts: int = 3,
        retry_wait: float = 1.0,
    ) -> Self:
        """The model of a name such as `"groq/llama-3.3-70b-versatile"`: the provider, and the provider's own name for the model.

        Its address and its key are the provider's, each from its variable of the environment; `api_key` is another key. The
        name means the same to `LiteLLMModel`. Raises `ConfigurationError` for a provider that it does not know.
        """
        provider, model = provider_of(name)
        base_url = provider.base_url(name)
        made = cls(
            model,
            base_url=base_url,
            api_key=api_key,
            settings=settings,
            max_attempts=max_attempts,
            retry_wait=retry_wait,
        )
        made._name, made._provider = name, provider
        return made

    def _streamed(self, body: JsonDict) -> JsonDict:
        asked: JsonDict | None = {"include_usage": True} if self._provider.counts_streams else None
        body = super()._streamed({"stream_options": asked, **body})
        if body["stream_options"] is None:  # for an endpoint that refuses it
            del body["stream_options"]
        return body
