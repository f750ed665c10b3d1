"""One policy for every model over HTTP: what a failed attempt means, which are tried again, and when.

An attempt is tried again after a timeout, a fault of the connection, and the statuses 408, 409, 429 and 5xx; never after
400, 401, 403, a context overflow or a refusal by content policy, and never once a piece of a stream was given out. Each has the
`timeout` of the settings for all of it; all of them, and the pauses between, have the patience of the request.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import closing, suppress
from copy import copy
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from phronomy.concurrency.aclosing import aclosing
from phronomy.concurrency.leaving import Left, Overran, Patience
from phronomy.errors import (
    AuthenticationError,
    ConfigurationError,
    ContentFilterError,
    ContextLengthError,
    ModelConnectionError,
    ModelError,
    PhronomyError,
    RateLimitError,
)
from phronomy.foundation.checks import is_count, is_number
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, object_of
from phronomy.models.base import Delta, ModelReply, ModelRequest
from phronomy.models.formats.answer import Answered
from phronomy.models.patience import ain_time, apause, apieces_in_time, in_time, pause, pieces_in_time
from phronomy.models.settings import ModelSettings

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")

MAX_WAIT = 60.0
"""Seconds. The longest pause before a retry. A provider that asks for more gets none: the run can go on later."""

_SECRET = 8
"""Characters that a key has at least."""

_RETRIED = (408, 409, 429)  # and 5xx; anything else fails the same way again

_TOO_LONG = (
    "context length",
    "context_length",
    "context size",
    "context window",
    "contextwindow",
    "exceed context limit",
    "exceeds the maximum number of tokens",
    "input is too long",
    "prompt is too long",
    "reduce the length of the messages",
)
_FILTERED = (
    "content management policy",
    "bio_policy",
    "content policy",
    "content_filter",
    "content_policy",
    "contentpolicy",
    "moderation_blocked",
    "requires moderation",
    "responsibleaipolicy",
    "usage policy",
)
_STATUS_OF = {  # what an error inside a stream is called, where it has no status
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 402,
    "insufficient_quota": 429,
    "invalid_api_key": 401,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "request_too_large": 413,
    "server_error": 500,
    "server_is_overloaded": 503,
    "slow_down": 503,
    "timeout_error": 504,
    "too_many_requests": 429,
    "vector_store_timeout": 504,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A failed attempt: the error to raise for it, whether the next one may succeed, and the pause it was told to make."""

    error: ModelError
    may_pass: bool = False
    retry_after: float | None = None
    words: str = ""
    """The words of the provider. They may quote the request, so only a developer who asks for them sees them."""


def of_answer(answer: Answered) -> Failure:
    """The failure that an answer with an error means, by its status and its error object."""
    said = _error_object(answer.body)
    codes = [said.get("code"), said.get("type"), object_of(said.get("innererror")).get("code")]
    status = answer.status or next((found for code in codes if (found := _status_named(code)) is not None), None)
    words = " ".join(str(word) for word in (*codes, said.get("message")) if word is not None)
    failure = of_status(status, words, content_type=answer.content_type, retry_after=answer.retry_after)
    return replace(failure, words=words)


def of_status(
    status: int | None, words: str, *, content_type: str = "", retry_after: float | None = None, what: str = ""
) -> Failure:
    """The failure that a status and the words beside it mean. The words are looked through, not repeated."""
    words = words.lower()
    page = f", {content_type}" if content_type and "json" not in content_type else ""
    seen = what or (f"status {status}" if status else "an error of the provider") + page
    refusable = status is None or 400 <= status < 500
    wait = 0.0 if retry_after is None else retry_after
    if refusable and status not in (401, 429) and any(sign in words for sign in _FILTERED):
        error: ModelError = ContentFilterError(f"refused by the provider's content policy: {seen}", status_code=status)
    elif refusable and status not in (401, 403, 429) and any(sign in words for sign in _TOO_LONG):
        error = ContextLengthError(f"the conversation is longer than the model can read: {seen}", status_code=status)
    elif status in (401, 403):
        error = AuthenticationError(
            f"the provider does not accept the key, or not for this: {seen}", status_code=status
        )
    elif status in (402, 429) or (status == 413 and "rate_limit" in words):
        text = f"the provider asks for fewer requests, or the quota is used up: {seen}; resume the run later"
        return Failure(
            error=RateLimitError(text, status_code=status, retry_after=retry_after),
            may_pass=status == 429 and wait <= MAX_WAIT,
            retry_after=retry_after,
        )
    else:
        passing = status is not None and (status in _RETRIED or status >= 500) and wait <= MAX_WAIT
        error = ModelError(f"gave no answer: {seen}", status_code=status)
        return Failure(error=error, may_pass=passing, retry_after=retry_after)
    return Failure(error=error)


def of_connection(error: BaseException) -> Failure:
    """The failure that a fault of the connection means."""
    return Failure(error=ModelConnectionError(f"gave no answer: {type(error).__name__}"), may_pass=True)


def of_exception(error: Exception) -> Failure | None:
    """The failure that an exception means, if it is one that any model over HTTP may meet; else None."""
    if isinstance(error, ModelError):
        return Failure(error=error, may_pass=isinstance(error, ModelConnectionError))
    if isinstance(error, Answered):
        return of_answer(error)
    if isinstance(error, Overran | Left):
        return Failure(error=ModelConnectionError("gave no whole answer before the timeout"), may_pass=True)
    lost = next((behind for behind in chain(error) if is_of_the_way(behind)), None)
    return None if lost is None else of_connection(lost)


def is_of_the_way(error: BaseException) -> bool:
    """Whether the error is one of the connection, and no answer."""
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    aiohttp = sys.modules.get("aiohttp")  # what is not loaded has raised nothing
    if aiohttp is not None and isinstance(error, aiohttp.ClientError):
        return not isinstance(error, aiohttp.InvalidURL)
    for client in filter(None, map(sys.modules.get, ("httpx2", "httpx"))):  # the second is that of providers' libraries
        if isinstance(error, client.TransportError):
            return not isinstance(error, (client.LocalProtocolError, client.UnsupportedProtocol))
    return False


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what is behind it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _error_object(body: object) -> JsonDict:
    """The error in the body of an answer: `{"error": {...}}`, `{"error": "..."}`, bare, or the first of a list."""
    if isinstance(body, list) and body:
        body = body[0]
    said = object_of(body).get("error", body)
    return {"message": said} if isinstance(said, str) else object_of(said)


def _status_named(code: object) -> int | None:
    if isinstance(code, int) and 400 <= code < 600:
        return code
    if isinstance(code, str):
        return int(code) if code.isascii() and code.isdigit() and 400 <= int(code[:9]) < 600 else _STATUS_OF.get(code)
    return None


def _tells() -> bool:
    """Say whether errors repeat the words of the provider, for development."""
    return os.environ.get("PHRONOMY_PROVIDER_ERRORS") == "1"


class RetriedModel(ABC):
    """The base of models that retry. A subclass adds one attempt.

    After the first piece of a stream there is no retry.
    """

    keeps_time = True

    def __init__(
        self,
        model: str,
        *,
        settings: ModelSettings | None,
        max_attempts: int,
        retry_wait: float,
        key: str | None,
        base_url: str | None,
    ) -> None:
        if not isinstance(model, str) or not model:
            raise ConfigurationError('a model needs a name, such as "openai/gpt-4o-mini"')
        if not is_count(max_attempts) or max_attempts < 1 or not is_number(retry_wait) or retry_wait < 0:
            raise ConfigurationError(
                "max_attempts is a whole number of at least 1, and retry_wait a number of at least 0 seconds"
            )
        if not isinstance(settings, ModelSettings | None):
            raise ConfigurationError(f"settings is a ModelSettings or None, not {type(settings).__name__}")
        for option, text in (("api_key", key), ("base_url", base_url)):
            if not isinstance(text, str | None):
                raise ConfigurationError(f"{option} is text or None, not {type(text).__name__}")
        self._name = model
        self._settings = settings or ModelSettings()
        self._max_attempts = max_attempts
        self._retry_wait = retry_wait
        self._api_key = key

    @property
    def name(self) -> str:
        """The name of the model, as it was given."""
        return self._name

    @property
    def settings(self) -> ModelSettings:
        """The settings that every call has by default."""
        return self._settings

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    def complete(self, request: ModelRequest) -> ModelReply:
        """Ask the model, and wait for its reply.

        Raises `ModelError` or a subclass after the last attempt, or at once if a retry does not help.
        """
        self._load()
        attempt = partial(in_time, self._ask, request, self._timeout(request))
        try:
            return self._retried(attempt, request.patience)
        except Exception as error:
            raise self._raised(error) from self._told(error)

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """The async twin of `complete`."""
        await self._aload()
        attempt = partial(ain_time, self._aask, request, self._timeout(request))
        try:
            return await self._aretried(attempt, request.patience)
        except Exception as error:
            raise self._raised(error) from self._told(error)

    def stream(self, request: ModelRequest) -> Generator[Delta | ModelReply]:
        """Ask the provider for a stream, and yield each piece as it arrives. The last item is the whole reply.

        Raises what `complete` raises. After the first piece there is no retry: if the stream breaks off, that is a
        `ModelConnectionError`, and the pieces are not a reply. If you close the generator, the connection is closed.
        """
        self._load()
        try:
            first, rest = self._retried(partial(self._begin, request), request.patience)
            with closing(rest):
                yield first
                yield from rest
        except Exception as error:
            raise self._raised(error) from self._told(error)

    async def astream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply]:
        """The async twin of `stream`."""
        await self._aload()
        try:
            first, rest = await self._aretried(partial(self._abegin, request), request.patience)
            async with aclosing(rest):
                yield first
                async for piece in rest:
                    yield piece
        except Exception as error:
            raise self._raised(error) from self._told(error)

    # What one attempt is

    @abstractmethod
    def _load(self) -> None:
        """Import what the calls need, if it is not there yet."""

    async def _aload(self) -> None:
        self._load()

    @abstractmethod
    def _ask(self, request: ModelRequest) -> ModelReply:
        """One attempt at a whole reply."""

    @abstractmethod
    async def _aask(self, request: ModelRequest) -> ModelReply:
        """As `_ask`."""

    @abstractmethod
    def _pieces(self, request: ModelRequest) -> Generator[Delta | ModelReply]:
        """One attempt at a stream: pieces, then the reply. It raises where it cannot end in one."""

    @abstractmethod
    def _apieces(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply]:
        """As `_pieces`."""

    def _failure(self, error: Exception) -> Failure:
        """The failure that the exception of an attempt means."""
        return of_exception(error) or Failure(error=ModelError(f"gave no answer: {type(error).__name__}"))

    # How often, and what is raised in the end

    def _begin(self, request: ModelRequest) -> tuple[Delta | ModelReply, Generator[Delta | ModelReply]]:
        pieces = pieces_in_time(self._pieces, request, self._timeout(request))
        return next(pieces), pieces

    async def _abegin(self, request: ModelRequest) -> tuple[Delta | ModelReply, AsyncGenerator[Delta | ModelReply]]:
        pieces = apieces_in_time(self._apieces, request, self._timeout(request))
        return await anext(pieces), pieces

    def _timeout(self, request: ModelRequest) -> float | None:
        return self._settings.merged(request.settings).timeout

    def _retried(self, attempt: Callable[[], T], patience: Patience) -> T:
        """The result of the first attempt that has one. Where the first of all has it, tenacity is not even loaded."""
        try:
            return attempt()
        except Exception as error:
            failed = [error]

        def once_more() -> T:
            if failed:
                raise failed.pop()  # the first attempt counts
            return attempt()

        tenacity, policy = self._retrying()
        found: T = tenacity.Retrying(**policy, sleep=partial(pause, patience))(once_more)
        return found

    async def _aretried(self, attempt: Callable[[], Awaitable[T]], patience: Patience) -> T:
        """As `_retried`."""
        try:
            return await attempt()
        except Exception as error:
            failed = [error]

        async def once_more() -> T:
            if failed:
                raise failed.pop()
            return await attempt()

        tenacity, policy = self._retrying()
        found: T = await tenacity.AsyncRetrying(**policy, sleep=partial(apause, patience))(once_more)
        return found

    def _retrying(self) -> tuple[ModuleType, dict[str, object]]:
        """tenacity, and what its two retriers are to do."""
        import tenacity  # noqa: PLC0415  # needed where an attempt has failed

        backoff = tenacity.wait_random_exponential(multiplier=self._retry_wait, max=MAX_WAIT)

        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked = self._failure(error).retry_after if isinstance(error, Exception) else None
            return max(backoff(state), asked or 0.0)

        return tenacity, {
            "stop": tenacity.stop_after_attempt(self._max_attempts),
            "retry": tenacity.retry_if_exception(
                lambda error: isinstance(error, Exception) and self._failure(error).may_pass
            ),
            "wait": wait,
            "reraise": True,
        }

    def _raised(self, error: Exception) -> ModelError | ConfigurationError:
        """The error to raise. It names the model and what happened, and no more: other words may quote the request."""
        if isinstance(error, ConfigurationError):
            return error
        found = self._failure(error)
        raised = copy(found.error)  # with all that it says beside its text
        said = f"; the provider says: {self._without_keys(found.words)}" if found.words and _tells() else ""
        raised.args = (f"{self._name}: {found.error}{said}",)
        return raised

    def _without_keys(self, words: str) -> str:
        for key in filter(None, self._keys()):
            words = words.replace(key, "***")
        return "".join(each if each.isprintable() else " " for each in words)[:500]

    def _told(self, error: Exception) -> BaseException | None:
        """The cause to show: never the provider's answer, nor what quotes the key, which logs of causes would spread."""
        cause = error.__cause__ if isinstance(error, PhronomyError) else error
        if cause is None or isinstance(cause, Answered):
            return None
        keys = [key for key in self._keys() if len(key) >= _SECRET]  # shorter: a dummy
        texts = [f"{behind} {behind!r}" for behind in chain(cause)]
        return None if any(key in text for key in keys for text in texts) else cause

    def _keys(self) -> Iterator[str]:
        """The keys that the provider, or a library's error, may quote: the API key, and those in headers of the settings."""
        yield self._api_key or ""
        headers = object_of(self._settings.extra.get("extra_headers")).values()
        yield from (word for value in headers for word in str(value).split() if len(word) >= _SECRET)


class Background:
    """Something to load in a daemon thread, once in a process.

    Whoever needs it waits for it, as do a fork and the end of the process: a thread that ends inside an import keeps the
    lock of that module for ever. What the loading raises is raised again by the import of whoever needs it.
    """

    def __init__(self, load: Callable[[], object]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin, unless it was begun before, and return at once."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._quietly, name="phronomy-load", daemon=True)
                self._thread.start()
                atexit.register(self.wait)
                os.register_at_fork(before=self.wait)

    def wait(self) -> None:
        """Wait for the end of it, if it was begun."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def runs(self) -> bool:
        """Whether it was begun and has not ended."""
        return self._thread is not None and self._thread.is_alive()

    def _quietly(self) -> None:
        with suppress(Exception):
            self._load()
