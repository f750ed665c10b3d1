"""`LiteLLMModel`: any provider that litellm knows, under litellm's name for it, such as `"openai/gpt-4o-mini"`.

litellm takes seconds to import, so it is loaded by the first call and not before; `LiteLLMModel.prepare` begins sooner.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import logging
import os
import re
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

from phronomy.concurrency.aclosing import aclosing
from phronomy.errors import AuthenticationError, ConfigurationError, ModelConnectionError, ModelError
from phronomy.foundation.cached_property import cached
from phronomy.foundation.json_text import JsonDict, JsonValue, list_of, object_of
from phronomy.models.base import Delta, ModelReply, ModelRequest, tool_names
from phronomy.models.formats.answer import (
    Answered,
    aread_whole,
    check_no_error,
    is_stream,
    read_answer,
    read_whole,
    refused,
    seconds_of,
)
from phronomy.models.formats.chat_completion_chunks import Assembler
from phronomy.models.formats.chat_completions import read_completion, request_options
from phronomy.models.formats.native_ends import ended, native_end
from phronomy.models.formats.part_order import ANTHROPIC, GEMINI, Parts, wire_messages
from phronomy.models.http.openai_client import lean_client
from phronomy.models.http.sse import adata_lines, apieces, data_lines, pieces
from phronomy.models.patience import still
from phronomy.models.providers import has_litellm
from phronomy.models.retry import Background, Failure, RetriedModel, chain, of_exception, of_status
from phronomy.models.settings import ModelSettings

_KINDS = {  # litellm's names for what the provider said, as words that the policy of retries knows
    "ContentPolicyViolationError": "content_policy",
    "ContextWindowExceededError": "context_length",
}
_UNREADABLE = "Empty or invalid response"  # litellm gives it the status 500; no answer of the provider has it
_NO_KEY = re.compile(
    r"\bmissing (?:[\w ]+ )?(?:api[ _-]?key|credentials)", re.IGNORECASE
)  # nothing was sent: the status is made up
_SET_KEY = (
    "there is no key for the provider: set its environment variable (OPENAI_API_KEY for OpenAI), or give an api_key"
)
_GEMINI_SEES = re.compile(r"gemini-(?:[3-9]|\d\d)")  # older ones take no images in the result of a function
_TRANSLATED = ("litellm.llms.anthropic.", "litellm.llms.vertex_ai.gemini.")  # whose readers are looked on at
_CHAT_READERS = {"OpenAIChatCompletionStreamingHandler", "OpenRouterChatCompletionStreamingHandler"}
_NO_PROVIDER = "LLM Provider NOT provided"

_SECRET = ("_API_KEY", "_ACCESS_KEY", "_TOKEN")
# Who hears how a call went, beside its caller. Where nobody does, litellm prices each call once more for nobody, in a thread.
_HEARERS = (
    "_async_failure_callback",
    "_async_success_callback",
    "callbacks",
    "failure_callback",
    "service_callback",
    "success_callback",
    "max_budget",
)
_LOADING = threading.Lock()  # one at a time: what one thread's import left is not taken away from under another's
_FIRST_CALL = ("httpx2", "openai.resources.chat", "litellm.proxy.openai_files_endpoints.common_utils")


class LiteLLMModel(RetriedModel):
    """A model that is reached through litellm.

    `model`, `api_key` and `base_url` are those of litellm. Without a key, litellm reads the provider's variable in the
    environment. `settings` are the defaults of every call.

    After a timeout, a connection fault, or the status 408, 409, 429 or 5xx, the call is tried again, up to
    `max_attempts` attempts in all. The first pause is `retry_wait` seconds, and each later one is twice as long. Pauses
    are shortened at random, but are at least as long as the provider asks for in `Retry-After`. Every failure is a
    `ModelError` or one of its subclasses.

    Raises `ConfigurationError` if litellm is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        settings: ModelSettings | None = None,
        max_attempts: int = 3,
        retry_wait: float = 1.0,
    ) -> None:
        if not has_litellm():
            raise ConfigurationError(
                "a LiteLLMModel needs litellm: pip install 'phronomy[litellm]'. A ChatCompletionsModel needs nothing else"
            )
        super().__init__(
            model,
            settings=settings,
            max_attempts=max_attempts,
            retry_wait=retry_wait,
            key=api_key,
            base_url=base_url,
        )
        self._base_url = base_url

    @staticmethod
    def prepare() -> None:
        """Start to import litellm in a background thread, and return at once.

        Call it if a model call will follow. The import takes seconds, and your program can work meanwhile. A second
        call does nothing. If the import fails, the next model call raises.
        """
        _SOON.begin()

    # One attempt

    def _load(self) -> None:
        _SOON.wait()
        _load()

    async def _aload(self) -> None:
        if _SOON.runs or not _load.cache_info().currsize:
            await asyncio.to_thread(self._load)  # the import takes seconds, in which other tasks go on

    def _ask(self, request: ModelRequest) -> ModelReply:
        answer = _Answer()
        arguments = self._arguments(request, awaited=False)
        with _unheard(arguments):
            try:
                response = _load().completion(**arguments, stream=False, logger_fn=answer.note)
            except Exception as error:
                return answer.misread(error)
            return answer.reply(response)

    async def _aask(self, request: ModelRequest) -> ModelReply:
        answer = _Answer()
        arguments = self._arguments(request, awaited=True)
        with _unheard(arguments):
            try:
                response = await _load().acompletion(**arguments, stream=False, logger_fn=answer.note)
            except Exception as error:
                return answer.misread(error)
            return answer.reply(response)

    def _pieces(self, request: ModelRequest) -> Generator[Delta | ModelReply]:
        stream = _Stream(_load().completion(**self._streamed(request, awaited=False)), tool_names(request))
        with closing(stream):
            if stream.is_whole():
                yield stream.read(read_whole(still(stream.response.iter_bytes(), request.patience)))
                return
            if (data := stream.data()) is not None:
                for piece in pieces(still(data, request.patience), stream.assembler):
                    yield stream.priced(piece) if isinstance(piece, ModelReply) else piece
                return
            for chunk in still(stream.chunks, request.patience):
                yield from stream.take(chunk)
            yield stream.reply()

    async def _apieces(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply]:
        stream = _Stream(await _load().acompletion(**self._streamed(request, awaited=True)), tool_names(request))
        async with contextlib.aclosing(stream):
            if stream.is_whole():
                yield stream.read(await aread_whole(stream.response.aiter_bytes()))
                return
            if (data := stream.adata()) is not None:
                async with aclosing(apieces(data, stream.assembler)) as found:
                    async for piece in found:
                        yield stream.priced(piece) if isinstance(piece, ModelReply) else piece
                return
            async for chunk in stream.chunks:
                for delta in stream.take(chunk):
                    yield delta
            yield stream.reply()

    def _streamed(self, request: ModelRequest, *, awaited: bool) -> dict[str, object]:
        arguments = self._arguments(request, awaited=awaited)
        return {"stream_options": {"include_usage": True}, **arguments, "stream": True}

    def _arguments(self, request: ModelRequest, *, awaited: bool) -> dict[str, object]:
        settings = self._settings.merged(request.settings)
        client = lean_client(
            _load(), self._name, key=self._api_key, url=self._base_url, extra=settings.extra, awaited=awaited
        )
        reach = {"api_key": self._api_key, "base_url": self._base_url, "timeout": settings.timeout, "client": client}
        tools = tuple(object_of(_copied(tool)) for tool in request.tools)  # litellm edits schemas in place
        return {
            **request_options(settings, tools),
            **{name: value for name, value in reach.items() if value is not None},
            "model": self._name,
            "messages": wire_messages(request, self._protocol, whole_results=self._takes_results()),
            # One layer of retries, ours: the provider client and litellm would each multiply it.
            "num_retries": 0,
            "max_retries": 0,
            # Else litellm imports its MCP gateway for any call with tools, and fails where its mcp extra is missing.
            "_skip_mcp_handler": True,
        }

    @cached
    def _protocol(self) -> str:
        """The protocol that litellm translates to for this model, if the order of a reply is kept for it."""
        with suppress(Exception):  # litellm knows no such provider: the call says so
            provider = _load().get_llm_provider(self._name, api_base=self._base_url)[1]
            vertex = provider in ("vertex_ai", "vertex_ai_beta")
            if provider == "anthropic" or (vertex and "claude" in self._name):
                return ANTHROPIC
            if provider == "gemini" or (vertex and "gemini" in self._name):
                return GEMINI
        return ""

    def _takes_results(self) -> bool:
        """Whether the provider takes images in the results of tools, and litellm puts them there.

        https://docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use, https://ai.google.dev/gemini-api/docs/function-calling
        """
        return self._protocol == ANTHROPIC or (self._protocol == GEMINI and _GEMINI_SEES.search(self._name) is not None)

    def _keys(self) -> Iterator[str]:
        yield from super()._keys()
        # Without a key of its own litellm reads one of these.
        yield from (value for name, value in os.environ.items() if name.endswith(_SECRET))

    def _failure(self, error: Exception) -> Failure:
        # What we raised inside litellm is behind its own error.
        said = next((one for one in chain(error) if isinstance(one, (Answered, ModelError))), error)
        if (found := of_exception(said) or _answered(error)) is not None:
            return found
        status = getattr(error, "status_code", None)
        status = status if isinstance(status, int) else None
        if status == 200 or _UNREADABLE in str(error):
            return Failure(error=ModelError("the answer cannot be read", status_code=200))
        if status in (None, 401, 500) and _NO_KEY.search(str(error)):
            return Failure(error=AuthenticationError(_SET_KEY))
        if _NO_PROVIDER in str(error):
            return Failure(
                error=ModelError(
                    "litellm knows no provider of this name: write provider/model, as in openai/gpt-4o-mini"
                )
            )
        names = {kind.__name__ for kind in type(error).__mro__}
        kind = next((word for name, word in _KINDS.items() if name in names), "")
        if any(type(one).__name__ == "APIConnectionError" for one in chain(error)):
            status = None  # nothing came: litellm makes one up
        what = type(error).__name__ + (f", status {status}" if status else "")
        return of_status(status, f"{kind} {error}", retry_after=_retry_after(error), what=what)


@contextmanager
def _unheard(arguments: Mapping[str, object]) -> Iterator[None]:
    """A call of which litellm need tell nobody, if that is so: the arguments hold its client then, and no callbacks of theirs."""
    litellm = _load()
    internal: Any = None
    with suppress(ImportError, AttributeError):  # another release of litellm: it tells then
        internal = import_module("litellm._internal_context").is_internal_call
    heard = "client" not in arguments or any(getattr(litellm, name, True) for name in _HEARERS)
    if internal is None or heard or litellm.verbose_logger.isEnabledFor(logging.DEBUG):
        yield
        return
    before = internal.set(True)
    try:
        yield
    finally:
        internal.reset(before)


class _Answer:
    """One whole answer: litellm's reading of it, and the text of the provider as litellm hands it to a logger."""

    def __init__(self) -> None:
        self._raw: str | None = None
        self._sent = False

    def note(self, details: Mapping[str, object]) -> None:
        """Keep the first text that litellm tells of: the next is its complaint, and what comes before may be a coroutine."""
        said = details.get("original_response")
        kind = details.get("log_event_type")
        self._sent = self._sent or kind == "pre_api_call" or (kind == "post_api_call" and isinstance(said, str))
        if kind == "post_api_call" and self._raw is None and isinstance(said, str):
            self._raw = said

    def misread(self, error: Exception) -> ModelReply:
        """The reply in a chat completion that litellm could not read, as any other model of ours reads it; else what it raised.

        litellm gives what it cannot read the status 500, as if the provider had sent that.
        """
        if of_exception(error) is not None or _answered(error) is not None:
            raise error
        body = self._body()
        if isinstance(body, dict):
            check_no_error(body)
        if isinstance(body, dict) and "choices" in body:
            message = _raw_message(body) or {}
            for name in [name for name, value in message.items() if value is None]:
                del message[name]  # in litellm's text of it, what was not sent is null
            return read_completion(body)
        unread = json.JSONDecodeError | UnicodeDecodeError | RecursionError
        if _UNREADABLE in str(error) or any(isinstance(one, unread) for one in chain(error)):
            if not self._sent:
                cause = next((one for one in chain(error) if isinstance(one, unread)), None)
                raise ModelError("the request could not be made, so nothing was sent") from cause
            raise ModelError("the answer cannot be read", status_code=200) from None
        raise error

    def reply(self, response: Any) -> ModelReply:
        body, parts = self._body(), Parts()
        parts.read(body)
        choice = _raw_choice(body)
        if choice.get("error"):  # litellm leaves it out
            raise Answered(None, {"error": choice["error"]})
        reply = parts.keep(ended(_reply(response, _raw_message(body)), native_end(response, choice, body)))
        hidden = getattr(response, "_hidden_params", None)
        return _with_cost(reply, hidden.get("response_cost") if isinstance(hidden, dict) else None)

    def _body(self) -> JsonValue:
        with suppress(ValueError, RecursionError):
            body: JsonValue = json.loads(self._raw or "null")
            return body
        return None


class _Stream:
    """One streamed answer: the bytes of a provider that speaks chat completions, or the chunks that litellm makes."""

    def __init__(self, wrapper: Any, tools: Iterable[str]) -> None:
        self.chunks = wrapper
        self.assembler = Assembler(tools)
        self._inner = getattr(wrapper, "completion_stream", None)
        self.response: Any = getattr(self._inner, "response", None)
        self._taken: list[Any] = []
        self._parts: Parts | None = None  # what the provider said of the order and the end, where litellm does not tell
        self._behind: Any = None
        if callable(make := getattr(wrapper, "make_call", None)):
            wrapper.make_call = self._followed(make)
        if not _CHAT_READERS.isdisjoint(kind.__name__ for kind in type(self._inner).__mro__):
            # litellm's own reader of chat completions takes `[DONE]` in a text for the end, and drops fields.
            self.response = self._behind = _behind(self._inner)
        else:
            self._follow(self._inner)

    def is_whole(self) -> bool:
        """Whether the provider sent no stream of events but, as far as it can be seen, one whole answer."""
        headers = getattr(self.response, "headers", None)
        return headers is not None and not is_stream(200, headers)

    def read(self, data: bytes) -> ModelReply:
        """The reply in such an answer."""
        return self.priced(read_answer(200, self.response.headers, data, read_completion))

    def data(self) -> Iterable[bytes] | None:
        """The bytes as they came, where they can be had: litellm's chunks hide whether the stream came to its end."""
        return self.response.iter_bytes() if hasattr(self.response, "iter_bytes") else None

    def adata(self) -> AsyncIterable[bytes] | None:
        """As `data`, for a stream that is awaited."""
        return self.response.aiter_bytes() if hasattr(self.response, "aiter_bytes") else None

    def _followed(self, make: Callable[..., object]) -> Callable[..., object]:
        """The function that sends the request, wrapped so that the reader of the answer that it returns is followed."""

        def made(*given: object, **options: object) -> object:
            found = make(*given, **options)
            return awaited(found) if inspect.isawaitable(found) else self._follow(found)

        async def awaited(found: Awaitable[object]) -> object:
            return self._follow(await found)

        return made

    def _follow(self, reader: Any) -> object:
        """Look on at what litellm reads of Anthropic or Gemini, and have it read the events as they were sent."""
        parse = getattr(reader, "chunk_parser", None)
        if parse is None or not type(reader).__module__.startswith(_TRANSLATED):
            return reader
        parts = self._parts = Parts()

        def parsed(chunk: object) -> object:
            parts.add(chunk)
            found: object = parse(chunk)
            return found

        reader.chunk_parser = parsed
        if (behind := _behind(reader)) is not None:
            self._behind, awaited = behind, hasattr(reader.streaming_response, "__aiter__")
            lines = adata_lines(behind.aiter_bytes()) if awaited else data_lines(behind.iter_bytes())
            reader.streaming_response = reader.response_iterator = lines
        return reader

    def take(self, chunk: Any) -> Generator[Delta]:
        """The deltas of a chunk that litellm made."""
        self._taken.append(chunk)
        yield from self.assembler.add(chunk.model_dump(exclude_none=True, warnings=False))

    def reply(self) -> ModelReply:
        """The reply of the chunks that litellm made, put together by litellm, as it does it for a whole answer."""
        told = getattr(self.chunks, "received_finish_reason", None) is not None
        if not (told if self._parts is None else self._parts.ended):  # litellm's last chunk says "stop" all the same
            raise ModelConnectionError("the stream was cut off before its end")
        made = _load().stream_chunk_builder(self._taken)
        self.assembler.usage = made.usage.model_dump(exclude_none=True, warnings=False)
        reply = ended(_reply(made, None), self.assembler.finish_reason)
        return self.priced(reply if self._parts is None else self._parts.keep(reply))

    def priced(self, reply: ModelReply) -> ModelReply:
        """The reply with what litellm's price list says it cost."""
        litellm, usage = _load(), self.assembler.usage
        if not isinstance(usage, dict):
            return reply
        try:
            cost = litellm.completion_cost(
                completion_response=litellm.ModelResponse(model=self.assembler.model, usage=litellm.Usage(**usage)),
                custom_llm_provider=getattr(self.chunks, "custom_llm_provider", None),
            )
        except Exception:  # a model that is in no price list
            return reply
        return _with_cost(reply, cost)

    def close(self) -> None:
        """Let go of the connection."""
        for stream in (self._inner, self._behind, self.chunks):
            if callable(close := getattr(stream, "close", None)):
                close()
                return

    async def aclose(self) -> None:
        """As `close`."""
        for stream in (self._inner, self._behind, self.chunks):
            for name in ("aclose", "close"):
                if callable(close := getattr(stream, name, None)):
                    if inspect.isawaitable(waits := close()):
                        await waits
                    return


def _behind(reader: object) -> Any:
    """The answer that a reader of litellm reads by lines: httpx would end a line at a separator within a text, too."""
    lines = getattr(reader, "streaming_response", None)
    frame = getattr(lines, "gi_frame", None) or getattr(lines, "ag_frame", None)
    kept = [getattr(reader, name, None) for name in ("response", "http_response")]
    answers = [*kept, *([] if frame is None else [frame.f_locals.get("self")])]  # not every reader keeps it
    return next((each for each in answers if hasattr(each, "iter_bytes") and hasattr(each, "aiter_bytes")), None)


def _copied(value: JsonValue) -> JsonValue:
    """A JSON value all anew."""
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, (list, tuple)) else value


def _reply(response: Any, raw: JsonDict | None) -> ModelReply:
    """The reply in litellm's answer, with the fields of the provider's own message where there is one."""
    choices = getattr(response, "choices", None)
    if not choices:
        raise ModelError("the model's answer holds no message")
    usage = getattr(response, "usage", None)
    return read_completion(
        {
            "choices": [
                {
                    "message": _as_sent(choices[0].message.model_dump(warnings=False), raw),
                    "finish_reason": choices[0].finish_reason,
                }
            ],
            "usage": None if usage is None else usage.model_dump(warnings=False),
            "id": getattr(response, "id", None),
            "model": getattr(response, "model", None),
        }
    )


def _with_cost(reply: ModelReply, cost: object) -> ModelReply:
    known = reply.usage.cost is not None or not reply.usage.total_tokens
    if known or not isinstance(cost, (int, float)) or cost < 0:
        return reply
    return replace(reply, usage=reply.usage.evolve(cost=float(cost)))


def _raw_message(body: JsonValue) -> JsonDict | None:
    """The message in the provider's own answer, if the provider speaks chat completions."""
    message = _raw_choice(body).get("message")
    return message if isinstance(message, dict) else None


def _raw_choice(body: JsonValue) -> JsonDict:
    """The first choice in the provider's own answer; empty if there is none."""
    return object_of(next(iter(list_of(object_of(body).get("choices"))), None))


def _as_sent(message: JsonDict, raw: JsonDict | None) -> JsonDict:
    """litellm's message with the provider's own fields where the provider had them.

    litellm moves fields it does not know into `provider_specific_fields`, in no order, and drops those inside a call's
    function. Sent back like that, some providers refuse the message and others lose their thread. Where litellm
    translates between protocols there is no raw message; it reads `provider_specific_fields` then, so that stays.
    """
    made: JsonDict = {key: value for key, value in message.items() if value is not None}
    if raw is None:
        return made
    moved = object_of(made.pop("provider_specific_fields", {}))
    left: JsonDict = {key: value for key, value in moved.items() if key not in raw and value is not None}
    if "reasoning" in raw and "reasoning_content" not in raw:
        made.pop("reasoning_content", None)  # litellm's copy of it
    known = {key: made.get(key) for key in ("role", "content", "tool_calls")}
    if _names(raw) == _names(message):
        known["tool_calls"] = raw.get("tool_calls")
    theirs = {key: value for key, value in raw.items() if key not in known and value is not None}
    rest = {key: value for key, value in made.items() if key not in known and key not in theirs}
    if left and "provider_specific_fields" not in theirs:
        rest["provider_specific_fields"] = left
    return {**known, **theirs, **rest}


def _names(message: JsonDict) -> list[JsonValue]:
    functions = [object_of(call).get("function") for call in list_of(message.get("tool_calls"))]
    return [function.get("name") for function in functions if isinstance(function, dict)]


def _answered(error: Exception) -> Failure | None:
    """The failure that the provider's own answer means, where that answer is behind litellm's error; else None."""
    clients = filter(None, map(sys.modules.get, ("httpx", "httpx2")))  # litellm has loaded the one that it asks with
    kinds = tuple(client.HTTPStatusError for client in clients)
    behind = list(chain(error))
    failed: Any = next((one for one in behind if isinstance(one, kinds)), None)
    if failed is None:
        return None
    answer = failed.response
    bodies = (getattr(one, "body", None) for one in behind)
    body = next((body for body in bodies if isinstance(body, dict)), None)
    if body is None:
        with suppress(Exception):  # not read, not JSON
            body = answer.json()
    names = {kind.__name__ for kind in type(error).__mro__}
    if (kind := next((word for name, word in _KINDS.items() if name in names), "")) and not isinstance(body, dict):
        body = {"code": kind}
    return of_exception(refused(answer.status_code, answer.headers, body))


def _retry_after(error: BaseException) -> float | None:
    headers = getattr(error, "litellm_response_headers", None)
    return seconds_of(headers.get("retry-after")) if headers is not None else None


@functools.cache
def _load() -> Any:
    """litellm, set up to keep to itself: no fetch of its price list, no hints on standard output, no tokenizer of a public hub.

    Where a stream counts no tokens, litellm does: roughly, unless somebody has set `litellm.disable_hf_tokenizer_download` to False.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    with _LOADING:
        try:
            litellm: Any = import_module("litellm")
        except BaseException:  # Ctrl-C too, in the seconds it takes
            _forget_parts()
            raise
    litellm.suppress_debug_info = True
    if getattr(litellm, "disable_hf_tokenizer_download", None) is None:
        litellm.disable_hf_tokenizer_download = True
    return litellm


def _forget_parts() -> None:
    """Let the next import of litellm begin from nothing.

    Python forgets a package whose import failed and keeps the modules of it that were whole; with those around, litellm
    cannot be imported again in this process.
    """
    if "litellm" not in sys.modules:
        for name in [name for name in sys.modules if name.startswith("litellm.")]:
            del sys.modules[name]


def _load_all() -> None:
    """Import all that the first call would import beside litellm itself: measured, half a second of it."""
    _load()
    for name in _FIRST_CALL:
        with suppress(ImportError):  # another release of litellm need not have it
            import_module(name)


_SOON = Background(_load_all)
