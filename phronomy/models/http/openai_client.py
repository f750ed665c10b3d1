"""The OpenAI client that litellm makes, spared work that a request and an answer in plain JSON do not need.

openai's client walks each request along its types, and makes records of each answer that litellm takes apart again:
together a quarter of the CPU of a call through litellm. Here the same client sends the same bytes: what it would walk
goes by its own `extra_body`, and litellm is given the answer as it was read. In all else the client is litellm's: made,
kept and closed by it, one for each event loop. Whatever is out of the ordinary goes the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from phronomy.foundation.json_text import JsonDict, JsonValue

# Options that only end in the body or the headers of the request. Any other may send the call elsewhere.
_PLAIN = frozenset(
    {
        "extra_body",
        "extra_headers",
        "frequency_penalty",
        "max_completion_tokens",
        "presence_penalty",
        "reasoning_effort",
        "response_format",
        "service_tier",
        "stream_options",
        "user",
        "verbosity",
    }
)
# What in litellm may give the call, and the client with it, to another provider.
_ELSEWHERE = (
    "callbacks",
    "model_alias_map",
    "model_fallbacks",
    "route_all_chat_openai_to_responses",
    "use_litellm_proxy",
)
_BESIDE_THE_BODY = ("extra_headers", "extra_query", "extra_body")


def lean_client(
    litellm: Any, model: str, *, key: str | None, url: str | None, extra: Iterable[str], awaited: bool
) -> LeanClient | None:
    """The client for a call with these extra options, or None where it is not certain that litellm would use such a one."""
    provider, _, name = model.partition("/")
    if not (key and url) or provider != "openai" or name.startswith("responses/") or not _PLAIN.issuperset(extra):
        return None
    if any(getattr(litellm, setting, None) for setting in _ELSEWHERE):
        return None

    def made(organization: str | None) -> Any:
        return litellm.main.openai_chat_completions.get_openai_client(
            is_async=awaited, api_key=key, api_base=url, max_retries=0, organization=organization
        )

    try:
        return LeanClient(made, awaited=awaited)
    except Exception:  # another release of litellm, or a setting that it refuses: the ordinary way says so
        return None


class LeanClient:
    """What litellm uses of an OpenAI client, for one call. All but asking for a chat completion is the client's own."""

    max_retries = 0

    def __init__(self, made: Callable[[str | None], Any], *, awaited: bool) -> None:
        self._made = made
        self._client = made(None)
        self._awaited = awaited

    def __getattr__(self, name: str) -> object:
        if name == "_client":  # in a copy that is not whole yet
            raise AttributeError(name)
        found: object = getattr(self._client, name)
        return found

    @property
    def organization(self) -> str | None:
        """The organization that the requests are for."""
        organization: str | None = self._client.organization
        return organization

    @organization.setter
    def organization(self, organization: str | None) -> None:
        self._client = self._made(organization)  # what litellm's settings name; it keeps a client for each

    # litellm calls `client.chat.completions.with_raw_response.create`.

    @property
    def chat(self) -> LeanClient:
        """The chat resource."""
        return self

    @property
    def completions(self) -> LeanClient:
        """The completions of it."""
        return self

    @property
    def with_raw_response(self) -> LeanClient:
        """The same, with the headers of the answer."""
        return self

    @property
    def create(self) -> Callable[..., object]:
        """Ask for a chat completion."""
        return self._acreate if self._awaited else self._create

    def _create(self, **arguments: JsonValue) -> object:
        raw = self._client.chat.completions.with_raw_response.create(**_unwalked(arguments))
        return raw if arguments.get("stream") else _read(raw)

    async def _acreate(self, **arguments: JsonValue) -> object:
        raw = await self._client.chat.completions.with_raw_response.create(**_unwalked(arguments))
        return raw if arguments.get("stream") else _read(raw)


def _unwalked(arguments: JsonDict) -> JsonDict:
    """The arguments with what is deep in `extra_body`. An empty one stays in its place, and so the order of the keys."""
    extra = arguments.get("extra_body") or {}
    if not isinstance(extra, dict):
        return arguments
    deep = {
        name: value
        for name, value in arguments.items()
        if isinstance(value, (dict, list)) and name not in _BESIDE_THE_BODY
    }
    empty: JsonDict = {name: type(value)() for name, value in deep.items()}
    return {**arguments, **empty, "extra_body": {**deep, **extra}}


def _read(raw: Any) -> object:
    """The answer as litellm reads it: as openai's client would, unless it is just as the protocol has it."""
    from openai.types.chat import ChatCompletion  # noqa: PLC0415  # litellm has loaded it

    try:
        return _Answer(raw.headers, ChatCompletion.model_validate(raw.http_response.json(), strict=True).model_dump())
    except Exception:  # no JSON, or of another form: what it means then is for openai and litellm to say
        return raw


class _Answer:
    """A whole answer that is read already: what litellm asks an answer for, and what it asks its contents for."""

    def __init__(self, headers: Mapping[str, str], body: JsonDict) -> None:
        self.headers = headers
        self._body = body

    def parse(self) -> _Answer:
        """The contents."""
        return self

    def model_dump(self) -> JsonDict:
        """The contents as plain values."""
        return self._body
