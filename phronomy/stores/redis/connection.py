"""The connection of a Redis store: a script is called, and its answer is its own, or what went wrong is said without a secret."""

from __future__ import annotations

import inspect
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from redis.backoff import NoBackoff
from redis.client import Pipeline, Redis
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    MaxConnectionsError,
    NoScriptError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

from phronomy.errors import StoreError
from phronomy.foundation.quoting import quoted_place
from phronomy.stores.redis.lua import Script

_log = logging.getLogger("phronomy")

# Written once by the first store to come, and read by all: a release that keeps its keys in another way must find out
# before it touches one.
FORMAT: Final = b"2"
"""The version of what the keys hold. 1: the first. 2: rows leave out what follows from others, which a release of 1 cannot read."""

_BEFORE: Final = b"1"
"""The version that becomes this one when it is opened: all of its rows are read as they are."""

_UPGRADE: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end"

_URL: Final = r"unix://.+|rediss?://[^/?]*(/\d*)?(\?.*)?"
"""The form of a URL, checked before redis-py reads it: redis-py takes a number that it cannot read for database 0."""

_FAULTS: Final = (RedisError, RedisClusterException, OSError)
_FINAL: Final = (AuthenticationError, BusyLoadingError, MaxConnectionsError)
"""Lost connections that asking again at once does not mend."""

# By the code that begins the message. The rest of the message may name keys, and so ids of runs and names of tenants.
_REMEDIES: Final = {
    "BUSY": "it is busy with another script",
    "CLUSTERDOWN": "the cluster is down",
    "CROSSSLOT": "the keys are of different slots",
    "LOADING": "it is still loading its data: try again when it is up",
    "MISCONF": "it cannot write to its disk, and takes no writes until it can",
    "MOVED": "it is a node of a cluster: hand a redis.RedisCluster in as `client`",
    "NOAUTH": "it wants a user or a password",
    "NOPERM": "this user may not do that: it needs EVALSHA, EVAL, SET and GET, what the scripts call, and the keys of the prefix,"
    " which begin with a brace: ~{phronomy:* by default",
    "OOM": "it is out of memory (maxmemory)",
    "READONLY": "it is a replica, which takes no writes: connect to its primary",
    "WRONGPASS": "it does not accept the user and the password",
    "WRONGTYPE": "a key of this prefix was written by something else: give the store a prefix of its own",
}


_CODES: Final = {
    # redis-py takes the code off the message of what it has a class for.
    "AuthenticationError": "WRONGPASS",
    "BusyLoadingError": "LOADING",
    "ClusterCrossSlotError": "CROSSSLOT",
    "ClusterDownError": "CLUSTERDOWN",
    "MovedError": "MOVED",
    "NoPermissionError": "NOPERM",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
}

_BELOW: Final = {
    # Their numbers are not the operating system's.
    "gaierror": "its host is not known",
    "SSLError": "TLS failed",
    "SSLCertVerificationError": "its TLS certificate is not trusted",
    "SSLEOFError": "TLS failed",
}


class Client(Protocol):
    """The methods of a redis-py client that are used here."""

    # The one way through which clients of one server and of a cluster, made in any way, can be used alike.
    def execute_command(self, *args: object, **options: bool) -> object:
        """Send a command, and return its answer."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


class Link:
    """A client, and what is known of the server behind it. Stores of several tenants share one.

    redis-py repeats a command whose answer was lost, if the client is so made. That does no harm: a change notes the number that it
    was called with, and is not made twice.
    """

    def __init__(self, client: Client, *, owned: bool, prefix: str, strict: bool, where: str) -> None:
        self._client = client
        self._where = where
        self._owned = owned
        self._prefix = prefix
        self._strict = strict
        self._checked = False
        self._closed = False

    def call(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes], beginning: bytes) -> list[Any]:
        """Run a script, and return its answer. Every key of the tenant begins with `beginning`. Raises `StoreError`."""
        if self._closed:
            raise StoreError("this Redis store is closed")
        if not self._checked:
            self._check()
        # It comes back as the first thing in the answer. A connection in which an interrupt left an answer unread gives
        # each caller the answer of the one before, and a decision would be read off somebody else's. The same number
        # marks the change in the branch, so that a call which is sent twice counts once.
        number = os.urandom(12)
        values: tuple[bytes | int, ...] = (len(keys), *keys, beginning, number, *args)
        problem: BaseException | None = None
        # Twice: a connection that stood idle may have been closed on the other side, and that shows only when it is
        # used.
        for _ in range(2):
            try:
                answer = self._eval(script, values)
            except _FAULTS as error:
                problem = error
                # What Redis itself has answered is no question of the connection, and would be answered in the same way
                # again.
                if isinstance(error, _FINAL) or not isinstance(error, ConnectionError | TimeoutError):
                    break
                continue
            if isinstance(answer, list) and answer[:1] == [number]:
                return answer[1:]
            # An interrupt had left the answer of another call in the connection, and this was it. Every connection,
            # since which of them is out of step is not known from here.
            self._disconnect()
            problem = ConnectionError()
        # From None: the driver's error holds the address, and what was sent.
        raise explained(problem, script, where=self._where) from None

    def close(self) -> None:
        """Close the client, if it is the store's own."""
        if not self._closed:
            self._closed = True
            if self._owned:
                self._client.close()

    def _eval(self, script: Script, values: tuple[bytes | int, ...]) -> object:
        try:
            # In one command, and decoded by nobody: bodies are text that has to come back byte by byte.
            return self._client.execute_command("EVALSHA", script.sha, *values, NEVER_DECODE=True)
        except NoScriptError:  # a server that was started anew, or its scripts were flushed
            return self._client.execute_command("EVAL", script.text, *values, NEVER_DECODE=True)

    def _disconnect(self) -> None:
        """Let go of the connections, so that the next call is made on a fresh one."""
        # A client of one connection, one with a pool, and one of a cluster each have their own way of letting go.
        client: Any = self._client
        if (connection := getattr(client, "connection", None)) is not None:
            connection.disconnect()
        if hasattr(client, "connection_pool"):
            client.connection_pool.disconnect(inuse_connections=False)
        else:
            client.disconnect_connection_pools()

    # What is behind it

    def _check(self) -> None:
        """Look at the version of the keys, and at whether the server keeps what it is given. Raises `StoreError`."""
        key = f"{{{self._prefix}}}:version".encode()
        try:
            # NX: of any number that come first at once, one writes.
            self._client.execute_command("SET", key, FORMAT, "NX")
            version = self._client.execute_command("GET", key, NEVER_DECODE=True)
            if version == _BEFORE:
                # Compared in the server: what a still later release has written in between stays.
                self._client.execute_command("EVAL", _UPGRADE, 1, key, _BEFORE, FORMAT)
                version = self._client.execute_command("GET", key, NEVER_DECODE=True)
        except _FAULTS as error:
            raise explained(error, where=self._where) from None
        # Also if it is earlier: there is none yet, and what else stands there was not written by us.
        if version != FORMAT:
            raise StoreError("what this Redis holds was written by a later release: upgrade phronomy")
        found = self._settings()
        risks = risks_of(found)
        # Managed servers do not let their settings be read. Whether they keep what they are given is then for the user
        # to know, unless the store was told not to take that on trust.
        if self._strict and not found:
            raise StoreError("Redis does not say how it keeps its data, and require_persistence is on")
        if self._strict and risks:
            raise StoreError(f"this Redis may lose decisions: {'; '.join(risks)}")
        if risks and not self._checked:
            _log.warning("This Redis may lose decisions: %s.", "; ".join(risks))
        self._checked = True

    def _settings(self) -> dict[str, str]:
        """How the server keeps its data, as far as it says so."""
        found: dict[str, str] = {}
        # CONFIG first, as it says most; INFO where that is forbidden.
        for name in ("maxmemory-policy", "appendonly", "appendfsync"):
            found |= self._ask("CONFIG GET", name)
        if "appendonly" not in found:
            enabled = self._ask("INFO", "persistence").get("aof_enabled")
            found |= {"appendonly": "yes" if enabled == "1" else "no"} if enabled is not None else {}
        if "maxmemory-policy" not in found:
            policy = self._ask("INFO", "memory").get("maxmemory_policy")
            found |= {"maxmemory-policy": policy} if policy is not None else {}
        return found

    def _ask(self, command: str, what: str) -> dict[str, str]:
        """Facts the server states about itself; none if it refuses, as managed ones do. Raises `StoreError` if it is away."""
        try:
            answer = self._client.execute_command(command, what)
        # A refusal is an answer: it does not say. Only a server that is away is an error here.
        except ResponseError:
            return {}
        except _FAULTS as error:
            raise explained(error, where=self._where) from None
        return {_text(name): _text(value) for name, value in answer.items()} if isinstance(answer, Mapping) else {}


def open_link(url: str | None, client: Any, *, prefix: str, timeout: float, strict: bool) -> Link:
    """The link of a URL, or of a client that was handed in. Raises `StoreError` for neither, both, or a wrong one."""
    if (url is None) == (client is None):
        raise StoreError("a Redis store is given a URL or a `client` of redis-py: one of the two")
    if url is None:
        if isinstance(client, Pipeline) or not hasattr(client, "execute_command"):
            raise StoreError("`client` is a redis.Redis or a redis.RedisCluster")
        if inspect.iscoroutinefunction(client.execute_command):
            raise StoreError("`client` is a sync client of redis-py, not one of redis.asyncio")
        return Link(client, owned=False, prefix=prefix, strict=strict, where=_place_of(client))
    # A call takes a connection for as long as it lasts: as many as threads. The driver's own bound of 100 is soon reached.
    options = {"socket_timeout": timeout, "socket_connect_timeout": timeout, "max_connections": 1000}
    if url.startswith("unix:"):
        del options["socket_connect_timeout"]
    try:
        if not re.fullmatch(_URL, url):
            raise ValueError("no such URL")
        # Without retries of the driver's own: how often and when is decided in `call`, which knows what may be sent
        # twice.
        made = Redis.from_url(url, retry=Retry(NoBackoff(), 0), **options)
        # A connection is only an object as yet. A wrong option in the URL shows here rather than in the first call.
        made.connection_pool.connection_class(**made.connection_pool.connection_kwargs)
    except Exception:  # its text may quote the URL
        raise StoreError(
            "the URL of a Redis store is redis://, rediss:// or unix://, as redis-py reads them: this one cannot be read"
        ) from None
    # With a password that is not percent-encoded, what is taken for the host may be the user.
    plain = url.startswith("unix:") or "@" not in "".join(re.split("[/?#]", url.partition("://")[2])[1:])
    return Link(made, owned=True, prefix=prefix, strict=strict, where=_place_of(made) if plain else "")


def _place_of(client: Any) -> str:
    """Where the server of a client is, as messages say it; empty if that is not plain."""
    try:
        if not hasattr(client, "connection_pool"):  # a cluster has a pool for each of its nodes
            node = client.get_default_node()
            return quoted_place(str(node.host), str(node.port))
        known = client.connection_pool.connection_kwargs
        if "path" in known:
            return f" at {known['path']}"
        return quoted_place(str(known.get("host", "localhost")), str(known.get("port", 6379)))
    except Exception:  # a client may be made in many ways
        return ""


def risks_of(settings: Mapping[str, str]) -> list[str]:
    """The settings under which Redis may lose data, each with its remedy. A setting that is not known is not a risk."""
    risks = []
    # Keys with a time to live only are no danger: no key of ours has one.
    policy = settings.get("maxmemory-policy", "")
    if policy.startswith("allkeys-"):
        risks.append(f"maxmemory-policy is {policy}, which takes keys away when memory is short: set noeviction")
    # A snapshot now and then is not enough: an approval that was given since the last is gone after a restart, its tool
    # has run, and the human is asked once more.
    if settings.get("appendonly") == "no":
        risks.append("it keeps no append-only file, so a restart loses what was not saved: set appendonly yes")
    elif settings.get("appendfsync", "always") != "always":
        risks.append(
            f"appendfsync is {settings['appendfsync']}, so a crash loses the last writes: set appendfsync always"
        )
    return risks


def explained(error: BaseException | None, script: Script | None = None, *, where: str = "") -> StoreError:
    """The error as a `StoreError`. What redis-py says of it is left out: it may hold parts of the URL, or of the keys.

    `where` says where the server is.
    """
    name = type(error).__name__
    if isinstance(error, (ResponseError, RedisClusterException, AuthenticationError, BusyLoadingError)):
        words = set(re.findall(r"\b[A-Z]{3,}\b", str(error)))
        code = _CODES.get(name) or next((code for code in _REMEDIES if code in words), "")
        if "DB index" in str(error):
            return StoreError("Redis refused: it has no database of that number")
        return StoreError(f"Redis refused: {_REMEDIES.get(code, f'{name}: the server log may say more')}")
    if isinstance(error, MaxConnectionsError):
        return StoreError("every connection of the Redis client is in use: raise its max_connections")
    # A change that was sent may have been made with its answer lost. To say that it failed would be a lie that somebody
    # acts on.
    unknown = " Whether the change was made is not known: load the run to see." if script and script.writes else ""
    what = "did not answer in time" if isinstance(error, TimeoutError) else f"cannot be reached ({_reason(error)})"
    return StoreError(f"Redis{where} {what}.{unknown}")


def _reason(error: BaseException | None) -> str:
    """Why there is no connection, in words of the operating system, or the name of the error."""
    # The driver wraps what the operating system says in an error of its own, whose text holds the address.
    below = error
    while below is not None:
        if (name := type(below).__name__) in _BELOW:
            return _BELOW[name]
        if isinstance(below, OSError) and below.errno is not None:
            return os.strerror(below.errno).lower()
        below = below.__cause__ or below.__context__
    return "the connection was lost"


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
