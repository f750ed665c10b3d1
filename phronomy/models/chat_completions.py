"""`ChatCompletionsModel`: any endpoint that speaks the chat-completions protocol, without a provider's library.

It loads in a tenth of a second where litellm takes two, so a process that is started to resume one run answers sooner.
The protocol: https://platform.openai.com/docs/api-reference/chat.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Generator
from types import TracebackType
from typing import Any, Self

from phronomy._aclosing import aclosing
from phronomy._json import clean
from phronomy.errors import ConfigurationError
from phronomy.models._answer import awhole, is_stream, read_answer, whole
from phronomy.models._chat import request_messages, request_options
from phronomy.models._http import CONNECT_SECONDS, READ_SECONDS, Clients
from phronomy.models._retry import Background, RetriedModel
from phronomy.models._sse import apieces, pieces
from phronomy.models.base import Delta, ModelReply, ModelRequest, ModelSettings

_DEFAULT_URL = "https://api.openai.com/v1"


class ChatCompletionsModel(RetriedModel):
    """A model reached directly, at any endpoint that speaks the chat-completions protocol.

    `model` is the provider's own name for it. `base_url` is the address up to and with `/v1`; by default that in
    `OPENAI_BASE_URL`, else OpenAI's. `api_key` is by default read from `OPENAI_API_KEY` when it is first needed; with
    `""`, or where neither is set, none is sent. `settings` are the defaults of every call; `extra_headers` and
    `extra_body` in their `extra` go where their names say. `max_attempts` and `retry_wait` are as for `LiteLLMModel`.

    The clients are made by the first call and kept: threads share one, each event loop has its own, which ends with it.
    Use the model as a context manager, or call `close` or `aclose`, to let go of them sooner.

    Raises `ConfigurationError` for an address or a key that cannot be used.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: ModelSettings | None = None,
        max_attempts: int = 3,
        retry_wait: float = 1.0,
    ) -> None:
        super().__init__(
            model, settings=settings, max_attempts=max_attempts, retry_wait=retry_wait, key=_checked_key(api_key)
        )
        self._url = _checked_url(base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_URL)
        self._clients = Clients(self._url)

    @staticmethod
    def prepare() -> None:
        """Begin to load what the first call needs, in a background thread, and return at once."""
        _SOON.begin()

    def close(self) -> None:
        """Close the connections of sync calls. Closing twice does nothing; a later call opens new ones."""
        self._clients.close()

    async def aclose(self) -> None:
        """Close the connections of sync calls, and those of the running event loop."""
        await self._clients.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # One attempt

    def _load(self) -> None:
        _SOON.wait()
        if self._api_key is None:
            self._api_key = _checked_key(os.environ.get("OPENAI_API_KEY") or "")

    def _ask(self, request: ModelRequest) -> ModelReply:
        with self._clients.client().stream("POST", self._url, **self._call(request, stream=False)) as answer:
            return read_answer(answer.status_code, answer.headers, whole(answer.iter_bytes()))

    async def _aask(self, request: ModelRequest) -> ModelReply:
        session = await self._clients.session()
        async with session.post(self._url, **self._acall(request, stream=False)) as answer:
            return read_answer(answer.status, answer.headers, await awhole(answer.content.iter_any()))

    def _pieces(self, request: ModelRequest) -> Generator[Delta | ModelReply]:
        with self._clients.client().stream("POST", self._url, **self._call(request, stream=True)) as answer:
            if is_stream(answer.status_code, answer.headers):
                yield from pieces(answer.iter_bytes())
            else:
                yield read_answer(answer.status_code, answer.headers, whole(answer.iter_bytes()))

    async def _apieces(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply]:
        session = await self._clients.session()
        async with session.post(self._url, **self._acall(request, stream=True)) as answer:
            if is_stream(answer.status, answer.headers):
                async with aclosing(apieces(answer.content.iter_any())) as stream:
                    async for piece in stream:
                        yield piece
            else:
                yield read_answer(answer.status, answer.headers, await awhole(answer.content.iter_any()))

    def _call(self, request: ModelRequest, *, stream: bool) -> dict[str, Any]:
        import httpx  # noqa: PLC0415  # loads on the first call

        body, headers, seconds = self._request(request, stream=stream)
        timeout = httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))
        return {"content": body, "headers": headers, "timeout": timeout}

    def _acall(self, request: ModelRequest, *, stream: bool) -> dict[str, Any]:
        import aiohttp  # noqa: PLC0415  # loads on the first call

        body, headers, seconds = self._request(request, stream=stream)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=min(seconds, CONNECT_SECONDS), sock_read=seconds)
        return {"data": body, "headers": headers, "timeout": timeout, "allow_redirects": False}

    def _request(self, request: ModelRequest, *, stream: bool) -> tuple[bytes, dict[str, str], float]:
        """The body, the headers, and the seconds that the provider has for each piece of its answer."""
        settings = self._settings.merged(request.settings)
        options = request_options(settings, tools=request.tools)
        more = {name: options.pop(name, None) or {} for name in ("extra_headers", "extra_body")}
        if not all(isinstance(part, dict) for part in more.values()):
            raise ConfigurationError("extra_headers and extra_body in the settings are objects")
        body: dict[str, Any] = {**more["extra_body"], **options, "model": self._name}
        body["messages"] = request_messages(request)
        if stream:
            body = {"stream_options": {"include_usage": True}, **body, "stream": True}
            if body["stream_options"] is None:  # for an endpoint that refuses it
                del body["stream_options"]
        text = clean(json.dumps(body, ensure_ascii=False, separators=(",", ":")))
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream" if stream else "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        named = {str(name): str(value) for name, value in more["extra_headers"].items()}
        return text.encode(), {**headers, **named}, settings.timeout or READ_SECONDS


def _checked_url(base_url: str) -> str:
    if not base_url.startswith(("http://", "https://")):
        raise ConfigurationError("base_url is an address that begins with http:// or https://")
    return base_url.rstrip("/") + "/chat/completions"


def _checked_key(key: str | None) -> str | None:
    """The key without the blanks around it. An HTTP library's error about any other would quote it."""
    key = None if key is None else key.strip()
    if key and not (key.isascii() and key.isprintable()):
        raise ConfigurationError("the API key holds characters that no header can hold")
    return key


def _load() -> None:
    import httpx_sse  # noqa: PLC0415  # and httpx with it
    import tenacity  # noqa: PLC0415

    _ = httpx_sse, tenacity


_SOON = Background(_load)
