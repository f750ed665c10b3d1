"""A model reached over HTTP without a provider's library: what the protocols that phronomy speaks itself have in common.

The clients, the keys, one attempt sync and async, streamed and not. A protocol says where requests go, what is in them, and how what
comes back is read.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Self
from urllib.parse import unquote

from phronomy.concurrency.aclosing import aclosing
from phronomy.errors import AuthenticationError, ConfigurationError
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, clean
from phronomy.models.base import Delta, ModelReply, ModelRequest, tool_names
from phronomy.models.formats.answer import StreamedReply, aread_whole, is_stream, read_answer, read_whole
from phronomy.models.formats.chat_completions import wire_json
from phronomy.models.http.clients import CONNECT_SECONDS, READ_SECONDS, Clients
from phronomy.models.http.sse import apieces, pieces
from phronomy.models.patience import still
from phronomy.models.providers import OPENAI, Provider
from phronomy.models.retry import Background, Failure, RetriedModel
from phronomy.models.settings import ModelSettings

if TYPE_CHECKING:
    import aiohttp
    import httpx2


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFormat:
    """The format of a protocol: how the body of a request is made, and how an answer is read."""

    path: str
    """Where requests go, under the base address."""

    options: Callable[[ModelSettings, tuple[JsonDict, ...]], JsonDict]
    """The options in the body of a request, those of `extra` among them."""

    conversation: Callable[[ModelRequest], dict[str, str]]
    """The conversation in the body of a request: the JSON text of each field of it, by name."""

    read: Callable[[JsonDict], ModelReply]
    """The reply in the body of a whole answer."""

    assembler: Callable[[Iterable[str]], StreamedReply]
    """Makes the object that puts a streamed reply together again. It knows the names of the tools that were offered."""


class DirectModel(RetriedModel):
    """The base of models that are reached directly over HTTP. A subclass adds the protocol."""

    _FORMAT: ClassVar[WireFormat]
    _PROVIDER: ClassVar[Provider] = OPENAI
    """Whose address and key count where none is given."""
    _PREFIX: ClassVar[str] = ""
    """The prefix that may stand before the provider's own name of a model, and is not sent."""

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
            model,
            settings=settings,
            max_attempts=max_attempts,
            retry_wait=retry_wait,
            key=_checked_key(api_key) if isinstance(api_key, str) else api_key,
            base_url=base_url,
        )
        self._provider = self._PROVIDER
        self._asked_for = model.removeprefix(self._PREFIX)
        address, self._basic = _address(self._PROVIDER.whole(base_url) if base_url else self._PROVIDER.base_url(model))
        self._url = address + self._FORMAT.path
        self._clients = Clients(self._url)

    @staticmethod
    def prepare() -> None:
        """Start to load what the first call needs, in a background thread, and return at once."""
        _SOON.begin()

    def close(self) -> None:
        """Leave the connections of sync calls, which models share, and close them if no other model uses them.

        You can call it more than once; a later model call opens connections again.
        """
        self._clients.close()

    async def aclose(self) -> None:
        """Leave the connections of sync calls, as `close` does, and close those of the running event loop."""
        await self._clients.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    def _options(self, settings: ModelSettings, tools: tuple[JsonDict, ...]) -> JsonDict:
        """The options in the body of a request for this model."""
        return self._FORMAT.options(settings, tools)

    def _streamed(self, body: JsonDict) -> JsonDict:
        """The body of a request for a stream."""
        return {**body, "stream": True}

    def _credentials(self) -> dict[str, str]:
        """The headers that say by which right it is asked."""
        return {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}

    def _keys(self) -> Iterator[str]:
        yield from super()._keys()
        yield self._basic

    # One attempt

    def _failure(self, error: Exception) -> Failure:
        found = super()._failure(error)
        if not isinstance(found.error, AuthenticationError) or self._api_key or self._basic:
            return found
        text = f"{found.error}. No key was sent: set {self._provider.keys[0]}, or give an api_key"
        return replace(found, error=AuthenticationError(text, status_code=found.error.status_code))

    def _load(self) -> None:
        _SOON.wait()
        if self._api_key is None:
            self._api_key = _checked_key(self._provider.key())

    def _ask(self, request: ModelRequest) -> ModelReply:
        with self._sent(request, stream=False) as answer:
            data = still(answer.iter_bytes(), request.patience)
            return read_answer(answer.status_code, answer.headers, read_whole(data), self._FORMAT.read)

    async def _aask(self, request: ModelRequest) -> ModelReply:
        async with await self._asent(request, stream=False) as answer:
            return read_answer(
                answer.status, answer.headers, await aread_whole(answer.content.iter_any()), self._FORMAT.read
            )

    def _pieces(self, request: ModelRequest) -> Generator[Delta | ModelReply]:
        with self._sent(request, stream=True) as answer:
            data = still(answer.iter_bytes(), request.patience)
            if is_stream(answer.status_code, answer.headers):
                yield from pieces(data, self._FORMAT.assembler(tool_names(request)))
            else:
                yield read_answer(answer.status_code, answer.headers, read_whole(data), self._FORMAT.read)

    async def _apieces(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply]:
        async with await self._asent(request, stream=True) as answer:
            if is_stream(answer.status, answer.headers):
                async with aclosing(
                    apieces(answer.content.iter_any(), self._FORMAT.assembler(tool_names(request)))
                ) as stream:
                    async for piece in stream:
                        yield piece
            else:
                yield read_answer(
                    answer.status, answer.headers, await aread_whole(answer.content.iter_any()), self._FORMAT.read
                )

    def _sent(self, request: ModelRequest, *, stream: bool) -> AbstractContextManager[httpx2.Response]:
        import httpx2  # noqa: PLC0415  # loads on the first call

        body, headers, seconds = self._request(request, stream=stream)
        timeout = httpx2.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))
        return self._clients.client().post(self._url, body, headers, timeout)

    async def _asent(
        self, request: ModelRequest, *, stream: bool
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        import aiohttp  # noqa: PLC0415  # loads on the first call

        body, headers, seconds = self._request(request, stream=stream)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=min(seconds, CONNECT_SECONDS), sock_read=seconds)
        session = await self._clients.session()
        return session.post(self._url, data=body, headers=headers, timeout=timeout, allow_redirects=False)

    def _request(self, request: ModelRequest, *, stream: bool) -> tuple[bytes, dict[str, str], float]:
        """The body, the headers, and the seconds that the provider has for each piece of its answer."""
        settings = self._settings.merged(request.settings)
        options = self._options(settings, request.tools)
        more, more_headers = (options.pop(name, None) or {} for name in ("extra_body", "extra_headers"))
        if not isinstance(more, dict) or not isinstance(more_headers, dict):
            raise ConfigurationError("extra_headers and extra_body in the settings are objects")
        said = self._FORMAT.conversation(request)
        body: JsonDict = {**more, **options, "model": self._asked_for, **said}
        if stream:
            body = self._streamed(body)
        fields = [
            f"{wire_json(name)}:{said[name]}" if name in said else wire_json({name: value})[1:-1]
            for name, value in body.items()
        ]
        text = clean(f"{{{','.join(fields)}}}")
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream" if stream else "application/json"}
        headers |= self._credentials()
        if self._basic:
            headers["Authorization"] = f"Basic {self._basic}"
        named = {str(name): str(value) for name, value in more_headers.items()}
        theirs = {name.lower() for name in named}  # names of headers have no case: ours would be sent beside it
        headers = {name: value for name, value in headers.items() if name.lower() not in theirs}
        return text.encode(), {**headers, **named}, settings.timeout or READ_SECONDS


def _address(base_url: str) -> tuple[str, str]:
    """The address up to the protocol's path, and what stood before its host as `user:password@`, in the form of the header."""
    scheme, _, rest = base_url.partition("://")
    if scheme not in ("http", "https"):
        raise ConfigurationError("base_url is an address that begins with http:// or https://")
    host, slash, path = rest.partition("/")
    credentials, _, host = host.rpartition("@")
    if not host:
        raise ConfigurationError("base_url is an address with a host, as in http://localhost:8000/v1")
    user, _, password = credentials.partition(":")
    both = f"{unquote(user)}:{unquote(password)}".encode() if credentials else b""
    return f"{scheme}://{host}{slash}{path}".rstrip("/"), b64encode(both).decode()


def _checked_key(key: str | None) -> str | None:
    """The key without the blanks around it. An HTTP library's error about any other would quote it."""
    key = None if key is None else key.strip()
    if key and not (key.isascii() and key.isprintable()):
        raise ConfigurationError("the API key holds characters that no header can hold")
    return key


def _load() -> None:
    import httpx2  # noqa: PLC0415

    _ = httpx2


_SOON = Background(_load)
