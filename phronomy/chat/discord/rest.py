"""Calls of Discord's API: what it answers as the errors of channels, and the times at which it takes no more.

Discord says with each answer how many calls a bucket still takes, and blocks whoever goes on all the same: after 10,000 refused calls
in ten minutes it answers that address no more. So its limits are kept in mind here, and a call that it would refuse is not made.
https://docs.discord.com/developers/topics/rate-limits
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from typing import Final

import httpx2

from phronomy.chat.channel import ChannelError, ChannelRefused, RateLimited
from phronomy.chat.http import limited
from phronomy.foundation.json_text import JsonDict, JsonError, parse
from phronomy.foundation.version import VERSION

_SENDING: Final = 10.0
"""Seconds that the outbox waits for Discord: well below the time for which it owns what it sends."""
_GONE: Final = frozenset({10003, 10008})
"""Unknown channel, unknown message."""
_NO_EDIT: Final = frozenset({30046, 50083})
"""Too many edits of messages older than an hour; the thread is archived."""
_LARGEST: Final = 4 * 1_024 * 1_024
"""Bytes of the largest answer that is read."""
_LONGEST: Final = 86_400.0
_EVERYTHING: Final = ""
_MOST: Final = 10_000


class NoEdit(ChannelError):
    """Discord does not take this edit now, and may take a reply."""


class Rest:
    """Calls Discord's API with the token of a bot. `clock` are seconds from anywhere."""

    def __init__(self, bot_token: str, base_url: str, clock: Callable[[], float]) -> None:
        # Without connections that are kept there is nothing that two processes could share after a fork.
        limits = httpx2.Limits(max_keepalive_connections=0)
        headers = {
            "authorization": f"Bot {bot_token}",
            # Discord's proxy may refuse all others: https://docs.discord.com/developers/reference#user-agent
            "user-agent": f"DiscordBot (https://pypi.org/project/phronomy, {VERSION})",
            "content-type": "application/json",
            # A few bytes could become more than there is memory for.
            "accept-encoding": "identity",
        }
        self._client = httpx2.Client(base_url=base_url, headers=headers, timeout=_SENDING, limits=limits)
        self._clock = clock
        self._free: dict[str, float] = {}
        self._lock = threading.Lock()

    def call(self, method: str, path: str, body: JsonDict | None = None, *, bucket: str) -> JsonDict:
        """Call a method, and return what it answers. `bucket` is what counts together. Raises `ChannelError`.

        No error quotes what was sent, nor the words of the answer, which may quote it.
        """
        what = f"{method} {bucket}"
        self._check(what)
        # In ASCII, so that there is nothing that cannot be encoded.
        content = json.dumps(body).encode() if body is not None else None
        try:
            with self._client.stream(method, path, content=content) as response:
                answer = limited(response.iter_raw(), most=_LARGEST, seconds=_SENDING)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
            raise ChannelError(f"{what}: {type(error).__name__}") from None
        found = _object(answer)
        self._note(what, response)
        if 200 <= response.status_code < 300:
            if found is None:
                raise ChannelError(f"{what}: status {response.status_code} without JSON")
            return found
        raise self._error(what, response, found or {})

    def _check(self, what: str) -> None:
        now = self._clock()
        with self._lock:
            free = max(self._free.get(what, 0.0), self._free.get(_EVERYTHING, 0.0))
        if free > now:
            raise RateLimited(f"{what}: Discord asks to wait", seconds=free - now)

    def _note(self, what: str, response: httpx2.Response) -> None:
        """Note how long a bucket takes nothing more, if it is used up."""
        if response.headers.get("x-ratelimit-remaining") == "0":
            self._hold(what, _seconds(response.headers.get("x-ratelimit-reset-after")))

    def _hold(self, what: str, seconds: float) -> None:
        now = self._clock()
        with self._lock:
            if len(self._free) > _MOST:
                self._free = {each: until for each, until in self._free.items() if until > now}
            self._free[what] = max(self._free.get(what, 0.0), now + seconds)

    def _error(self, what: str, response: httpx2.Response, found: JsonDict) -> ChannelError:
        status, code = response.status_code, found.get("code")
        said = f"{what}: status {status}" + (f", code {code}" if isinstance(code, int) else "")
        if code in _NO_EDIT:  # the first comes with status 429 and no time to wait for
            return NoEdit(said)
        if status == 429:
            # The header has whole seconds, and all that there is if the answer comes from Discord's proxy.
            seconds = max(
                _seconds(found.get("retry_after")) or _seconds(response.headers.get("retry-after")) or 1.0, 0.05
            )
            self._hold(_EVERYTHING if found.get("global") is True else what, seconds)
            return RateLimited(f"{what}: Discord asks to wait", seconds=seconds)
        if status >= 500 or status == 408:
            return ChannelError(said)
        if status == 401:
            return ChannelRefused(f"{said}: is this the token of the bot?")
        if code == 50035:
            return ChannelRefused(f"{said}: Discord does not take such a message")
        return ChannelRefused(said, gone=code in _GONE)


def _seconds(value: object) -> float:
    """A number of seconds that Discord has sent; 0 if it is none."""
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(found, _LONGEST) if math.isfinite(found) and found > 0 else 0.0


def _object(text: bytes) -> JsonDict | None:
    try:
        found = parse(text)
    except JsonError:
        return None
    return found if isinstance(found, dict) else None
