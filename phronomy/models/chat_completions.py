"""`ChatCompletionsModel`: any endpoint that speaks the chat-completions protocol, without a provider's library.

It loads in a tenth of a second where litellm takes two, so a process that is started to resume one run answers sooner.
The protocol: https://platform.openai.com/docs/api-reference/chat.
"""

from __future__ import annotations

import re
from typing import Final, Self

from phronomy.foundation.json_text import JsonDict
from phronomy.models.formats.chat_completion_chunks import Assembler
from phronomy.models.formats.chat_completions import read_completion, request_conversation, request_options
from phronomy.models.http.direct import DirectModel, WireFormat
from phronomy.models.providers import provider_of
from phronomy.models.settings import ModelSettings

_NEWER: Final = re.compile(r"(?:o\d|gpt-(?:[5-9]|[12]\d))(?:[.-].*)?")
"""Models that refuse `max_tokens`: https://platform.openai.com/docs/api-reference/chat/create#chat-create-max_tokens

Azure calls GPT-3.5, which takes it, gpt-35."""


class ChatCompletionsModel(DirectModel):
    """A model at any endpoint that speaks the chat-completions protocol. It needs no litellm.

    `model` is the provider's own name of the model. `base_url` is the address, up to and including `/v1`; by default
    that in `OPENAI_BASE_URL`, else OpenAI's. `api_key` is by default read from `OPENAI_API_KEY` at the first call. With
    `""`, or if neither is set, no key is sent. `settings` are the defaults of every call; `extra_headers` and
    `extra_body` in their `extra` are sent as headers, and in the body. `max_attempts` and `retry_wait` are as for
    `LiteLLMModel`.

    The first call makes an HTTP client, and later calls use it again. All threads share one client. Each event loop has
    a client of its own, which is closed with the loop. To close clients earlier, use the model as a context manager, or
    call `close` or `aclose`.

    Raises `ConfigurationError` for an invalid address or key.
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
        """Make a model from a name, such as `"groq/llama-3.3-70b-versatile"`.

        The name is a provider, a slash, and the provider's own name of the model. The address and the key are read from
        the provider's variables in the environment; `api_key` overrides the key. The names are the same as for
        `LiteLLMModel`. Raises `ConfigurationError` for an unknown provider.
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

    def _options(self, settings: ModelSettings, tools: tuple[JsonDict, ...]) -> JsonDict:
        options = super()._options(settings, tools)
        if "max_completion_tokens" in options:  # in `extra`; OpenAI refuses both
            options.pop("max_tokens", None)
        elif "max_tokens" in options and _NEWER.fullmatch(self._asked_for.rpartition("/")[2]):
            options["max_completion_tokens"] = options.pop("max_tokens")
        return options

    def _streamed(self, body: JsonDict) -> JsonDict:
        asked: JsonDict | None = {"include_usage": True} if self._provider.counts_streams else None
        body = super()._streamed({"stream_options": asked, **body})
        if body["stream_options"] is None:  # for an endpoint that refuses it
            del body["stream_options"]
        return body
