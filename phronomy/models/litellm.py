"""`LiteLLMModel`: any provider that litellm knows, under litellm's name for it, such as `"openai/gpt-4o-mini"`.

litellm takes seconds to import, so it is loaded by the first call and not before.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import importlib
import json
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from phronomy._json import JsonValue
from phronomy.errors import ConfigurationError, ModelError
from phronomy.models._chat import reply_from, request_messages, request_options
from phronomy.models.base import ModelReply, ModelRequest, ModelSettings

if TYPE_CHECKING:
    from tenacity import RetryCallState

MAX_WAIT = 60.0
"""Seconds. The longest pause before a retry. A provider that asks for more gets none: the run can go on later."""

_RETRIED = (408, 409, 429)  # and 5xx; anything else fails the same way again


class LiteLLMModel:
    """A model reached through litellm.

    `model`, `api_key` and `base_url` are litellm's; without a key litellm reads the provider's environment variable.
    `settings` are the defaults of every call. Timeouts, connection faults and the statuses 408, 409, 429 and 5xx are
    tried up to `max_attempts` times in all, after a pause that starts at `retry_wait` seconds, doubles, is shortened at
    random, and is at least what the provider asks for in `Retry-After`. Every failure is raised as `ModelError`.
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
        if not model:
            raise ConfigurationError('a model needs a name, such as "openai/gpt-4o-mini"')
        if max_attempts < 1 or retry_wait < 0:
            raise ConfigurationError("max_attempts is at least 1, and retry_wait at least 0 seconds")
        self._name = model
        self._api_key = api_key
        self._base_url = base_url
        self._settings = settings or ModelSettings()
        self._max_attempts = max_attempts
        self._retry_wait = retry_wait

    @property
    def name(self) -> str:
        """The name of the model, as litellm knows it."""
        return self._name

    def __repr__(self) -> str:
        return f"LiteLLMModel({self._name!r})"

    def complete(self, request: ModelRequest) -> ModelReply:
        """Ask the model and wait for its reply.

        Raises `ModelError`, with the status where there was one, once retrying is over or pointless.
        """
        litellm = _load()
        tenacity, policy = self._retrying()
        try:
            reply: ModelReply = tenacity.Retrying(**policy, sleep=time.sleep)(self._ask, litellm, request)
        except Exception as error:
            raise self._failure(error) from self._told(error)
        return reply

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """Ask the model without blocking the event loop. Raises as `complete` does."""
        if not _load.cache_info().currsize:
            await asyncio.to_thread(_load)  # the import takes seconds, in which other tasks go on
        litellm = _load()
        tenacity, policy = self._retrying()
        try:
            reply: ModelReply = await tenacity.AsyncRetrying(**policy, sleep=asyncio.sleep)(
                self._aask, litellm, request
            )
        except Exception as error:
            raise self._failure(error) from self._told(error)
        return reply

    def _ask(self, litellm: Any, request: ModelRequest) -> ModelReply:
        answer = _Answer()
        return answer.reply(litellm.completion(**self._arguments(request), logger_fn=answer.note))

    async def _aask(self, litellm: Any, request: ModelRequest) -> ModelReply:
        answer = _Answer()
        return answer.reply(await litellm.acompletion(**self._arguments(request), logger_fn=answer.note))

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
        settings = self._settings.merged(request.settings)
        reach = {"api_key": self._api_key, "base_url": self._base_url, "timeout": settings.timeout}
        return {
            **request_options(settings, tools=copy.deepcopy(request.tools)),  # litellm edits schemas in place
            **{name: value for name, value in reach.items() if value is not None},
            "model": self._name,
            "messages": request_messages(request),
            "stream": False,
            # One layer of retries, ours: the provider client and litellm would each multiply it.
            "num_retries": 0,
            "max_retries": 0,
            # Else litellm imports its MCP gateway for any call with tools, and fails where its mcp extra is missing.
            "_skip_mcp_handler": True,
        }

    def _retrying(self) -> tuple[Any, dict[str, Any]]:
        """tenacity, and what its two retriers are to do."""
        import tenacity  # noqa: PLC0415  # needed by calls alone

        backoff = tenacity.wait_random_exponential(multiplier=self._retry_wait, max=MAX_WAIT)

        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            return max(backoff(state), _retry_after(error) or 0.0)

        return tenacity, {
            "stop": tenacity.stop_after_attempt(self._max_attempts),
            "retry": tenacity.retry_if_exception(_may_pass),
            "wait": wait,
            "reraise": True,
        }

    def _failure(self, error: Exception) -> ModelError:
        """The error to raise. It names what happened and no more: the provider's words may quote the request."""
        if isinstance(error, ModelError):
            return ModelError(f"{self._name}: {error}")
        status = _status(error)
        what = type(error).__name__ + (f", status {status}" if status else "")
        return ModelError(f"{self._name} gave no answer: {what}", status_code=status)

    def _told(self, error: Exception) -> Exception | None:
        """The error as the cause to show, or None where it quotes the API key, which logs of causes would spread."""
        key = self._api_key or ""
        tells = len(key) >= 8 and any(key in f"{behind} {behind!r}" for behind in _chain(error))  # shorter: a dummy
        return None if tells else error


class _Answer:
    """One answer: litellm's reading of it, and the text of the provider as litellm hands it to a logger."""

    def __init__(self) -> None:
        self._raw: Any = None

    def note(self, details: dict[str, Any]) -> None:
        if details.get("log_event_type") == "post_api_call":
            self._raw = details.get("original_response")

    def reply(self, response: Any) -> ModelReply:
        choices = getattr(response, "choices", None)
        if not choices:
            raise ModelError("the model's answer holds no message")
        usage = getattr(response, "usage", None)
        return reply_from(
            _as_sent(choices[0].message.model_dump(warnings=False), _raw_message(self._raw)),
            None if usage is None else usage.model_dump(warnings=False),
            choices[0].finish_reason,
        )


def _raw_message(text: Any) -> dict[str, Any] | None:
    """The message in the provider's own text, if the provider speaks chat completions."""
    try:
        message = json.loads(text)["choices"][0]["message"]
    except (TypeError, ValueError, LookupError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _as_sent(message: dict[str, Any], raw: dict[str, Any] | None) -> dict[str, Any]:
    """litellm's message with the provider's own fields where the provider had them.

    litellm moves fields it does not know into `provider_specific_fields`, in no order, and drops those inside a call's
    function. Sent back like that, some providers refuse the message and others lose their thread. Where litellm
    translates between protocols there is no raw message; it reads `provider_specific_fields` then, so that stays.
    """
    made = {key: value for key, value in message.items() if value is not None}
    if raw is None:
        return made
    moved = made.pop("provider_specific_fields", {})
    left = {key: value for key, value in moved.items() if key not in raw and value is not None}
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


def _names(message: dict[str, Any]) -> list[JsonValue]:
    calls = message.get("tool_calls") or []
    return [call["function"].get("name") for call in calls if isinstance(call.get("function"), dict)]


def _may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed a little later."""
    if not isinstance(error, Exception) or (_retry_after(error) or 0.0) > MAX_WAIT:
        return False
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return status in _RETRIED or status >= 500
    return isinstance(error, (ConnectionError, TimeoutError))


def _status(error: Exception) -> int | None:
    """The status that the provider answered with, if it did: litellm gives faults of the way a status of its own."""
    from httpx import TransportError  # noqa: PLC0415  # litellm has loaded it

    if any(isinstance(behind, (TransportError, ConnectionError, TimeoutError)) for behind in _chain(error)):
        return None
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _retry_after(error: BaseException | None) -> float | None:
    """The seconds that the provider asks to wait, from `Retry-After` as a number or a date (RFC 9110, 10.2.3)."""
    headers = getattr(error, "litellm_response_headers", None) or getattr(
        getattr(error, "response", None), "headers", None
    )
    text = headers.get("retry-after") if headers is not None else None
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime  # noqa: PLC0415  # rare, and half of the email package

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


@functools.cache
def _load() -> Any:
    """litellm, set up to keep to itself: no fetch of its price list, no hints on standard output."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True
    return litellm
