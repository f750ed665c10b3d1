"""`ScriptedModel`: a model that says what it is told to say, and refuses a history that a provider would refuse."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, TypeAlias, TypeGuard

from phronomy.errors import ConfigurationError
from phronomy.foundation.dataclasses import dataclass
from phronomy.models.base import Delta, ModelReply, ModelRequest, ReasoningDelta, TextDelta, ToolCallDelta
from phronomy.models.patience import ain_time, in_time
from phronomy.records.messages import Message, ToolCall, Usage

_PIECE = 8  # characters of text or arguments in one delta


class ScriptExhausted(AssertionError):
    """The model was asked again, and its script has no reply left."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptedCall:
    """A tool call in a script. If `id` is None, it gets the next free one of `call_1`, `call_2`, ..."""

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptedMessage:
    """A whole reply in a script: text, calls, and the other fields of a provider."""

    text: str | None
    calls: tuple[ScriptedCall, ...] = ()
    provider: dict[str, Any] = field(default_factory=dict)
    usage: Usage = field(default_factory=lambda: Usage(requests=1))
    finish_reason: str | None = None
    cut: BaseException | None = None


Reply: TypeAlias = (
    str
    | ScriptedCall
    | ScriptedMessage
    | Sequence[ScriptedCall]
    | Message
    | ModelReply
    | BaseException
    | type[BaseException]
    | Callable[[ModelRequest], Any]
)
"""A reply in a script: text, one or several calls, a message, an exception to raise, or a function of the request.

The function returns any of these. It may be async if the model is asked by `acomplete`.
"""


def call(name: str, args: Mapping[str, object] | str | None = None, *, id: str | None = None) -> ScriptedCall:
    """A tool call for a script. `args` is a mapping, or the exact text that the model writes."""
    # No canonical text here: a script may also say what no record could hold, such as NaN.
    text = args if isinstance(args, str) else json.dumps(args or {}, ensure_ascii=False)
    return ScriptedCall(name=name, arguments=text, id=id)


def say(
    text: str | None,
    *calls: ScriptedCall,
    provider: dict[str, Any] | None = None,
    usage: Usage | None = None,
    finish_reason: str | None = None,
    cut: BaseException | None = None,
) -> ScriptedMessage:
    """A reply for a script, with text and calls, a provider's own fields, a usage, or a finish reason.

    `cut` is an exception that is raised at the end of the reply: after the pieces of a stream, or in place of a whole
    reply.
    """
    return ScriptedMessage(
        cut=cut,
        text=text,
        calls=calls,
        provider=provider or {},
        usage=usage or Usage(requests=1),
        finish_reason=finish_reason,
    )


class ScriptedModel:
    """A model that gives the replies of a script in order, or calls one function for each reply.

    It records every request in `requests`. It raises `AssertionError` for a history that `check_history` refuses, and
    `ScriptExhausted` if the script has no reply left. Threads and tasks can share it. It answers at once, unless a
    function makes the reply.
    """

    keeps_time = True

    def __init__(self, replies: Sequence[Reply] | Callable[[ModelRequest], object], *, name: str = "scripted") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._script = Script(replies)

    @classmethod
    def by_turn(cls, replies: Sequence[Reply], *, name: str = "scripted") -> ScriptedModel:
        """Make a model that does not remember its place in the script. Each user message starts the script again.

        The number of assistant messages since the last user message selects the reply. So a model in another process
        continues the same script.
        """
        model = cls(replies, name=name)
        model._script = Script(replies, by_turn=True)
        return model

    def __repr__(self) -> str:
        return f"ScriptedModel({self.name!r}, {self._script})"

    def complete(self, request: ModelRequest) -> ModelReply:
        """Return the next reply."""
        return _uncut(*self._next(request))

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """Return the next reply, after one turn of the event loop."""
        return _uncut(*await self._anext(request))

    def stream(self, request: ModelRequest) -> Generator[Delta | ModelReply]:
        """Yield the next reply in pieces: reasoning, text, and calls with their arguments.

        The last item is the whole reply.
        """
        reply, cut = self._next(request)
        yield from deltas(reply)
        yield _uncut(reply, cut)

    async def astream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply]:
        """The async twin of `stream`, with one turn of the event loop before each piece."""
        reply, cut = await self._anext(request)
        for delta in deltas(reply):
            yield delta
            await asyncio.sleep(0)
        yield _uncut(reply, cut)

    def _next(self, request: ModelRequest) -> tuple[ModelReply, BaseException | None]:
        item = self._take(request)
        while _is_function(item):
            item = in_time(item, request, request.settings.timeout)
        if inspect.isawaitable(item):
            _close(item)
            raise ConfigurationError(
                "a scripted reply is async, and the model was asked by complete(); use acomplete()"
            )
        return self._give(item, request)

    async def _anext(self, request: ModelRequest) -> tuple[ModelReply, BaseException | None]:
        await asyncio.sleep(0)
        item = self._take(request)
        while _is_function(item):
            item = await ain_time(partial(_called, item), request, request.settings.timeout)
        return self._give(item, request)

    def _take(self, request: ModelRequest) -> object:
        self.requests.append(request)
        check_history(request.messages)
        return self._script.take([message.role for message in request.messages], _last(request.messages))

    def _give(self, item: object, request: ModelRequest) -> tuple[ModelReply, BaseException | None]:
        reply = reply_of(item, used=(call.id for message in request.messages for call in message.tool_calls))
        return reply, item.cut if isinstance(item, ScriptedMessage) else None


class Script:
    """The replies of a script and the place in them, whatever they are replies to."""

    def __init__(self, replies: Sequence[object] | Callable[[Any], object], *, by_turn: bool = False) -> None:
        if isinstance(replies, str) or not (callable(replies) or isinstance(replies, Sequence)):
            raise ConfigurationError("a script is a list of replies, or one function that gives each")
        self._replies = replies if callable(replies) else tuple(replies)
        self._by_turn = by_turn
        self._given = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "a function" if callable(self._replies) else f"{len(self._replies)} replies"

    def take(self, roles: Sequence[str], last: str) -> object:
        """The next reply, given the roles of the history; `last` says what the last message was, for the error."""
        if callable(self._replies):
            return self._replies
        if self._by_turn:
            place = _since_user(roles)
        else:
            with self._lock:
                place, self._given = self._given, self._given + 1
        if place >= len(self._replies):
            raise ScriptExhausted(
                f"the script has {len(self._replies)} replies and was asked for one more, after {last}"
            )
        return self._replies[place]


def reply_of(item: object, *, used: Iterable[str]) -> ModelReply:
    """Makes the reply of an item of a script; `used` are the call ids that the history holds."""
    if isinstance(item, BaseException) or (isinstance(item, type) and issubclass(item, BaseException)):
        raise item
    if isinstance(item, ModelReply):
        return item
    if isinstance(item, Message):
        return ModelReply(message=item, finish_reason="tool_calls" if item.tool_calls else "stop")
    if isinstance(item, str):
        item = say(item)
    elif isinstance(item, ScriptedCall):
        item = say(None, item)
    elif isinstance(item, Sequence) and all(isinstance(part, ScriptedCall) for part in item):
        item = say(None, *item)
    if not isinstance(item, ScriptedMessage):
        raise ConfigurationError(f"a script cannot hold a {type(item).__name__} as a reply")
    free = _free_ids({*used, *(one.id for one in item.calls if one.id)})
    calls = tuple(
        ToolCall(id=next(free) if one.id is None else one.id, name=one.name, arguments=one.arguments)
        for one in item.calls
    )
    content: object = item.text if calls else item.text or ""
    return ModelReply(
        message=Message(role="assistant", content=content, tool_calls=calls, provider=item.provider),
        usage=item.usage,
        finish_reason=item.finish_reason or ("tool_calls" if calls else "stop"),
    )


def deltas(reply: ModelReply) -> Iterator[Delta]:
    """The reply in pieces, as a provider streams it."""
    reasoning = reply.message.provider.get("reasoning_content")
    if isinstance(reasoning, str):
        yield from (ReasoningDelta(text=piece) for piece in pieces(reasoning))
    yield from (TextDelta(text=piece) for piece in pieces(reply.message.text))
    for index, one in enumerate(reply.message.tool_calls):
        yield ToolCallDelta(index=index, id=one.id, name=one.name)
        yield from (ToolCallDelta(index=index, arguments=piece) for piece in pieces(one.arguments))


def pieces(text: str) -> list[str]:
    """The text in pieces of a few characters."""
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def check_history(messages: Sequence[Message]) -> None:
    """Refuse a history that a provider would refuse. Raises `AssertionError` with the problem.

    Each call must have exactly one tool message, after the message with the call, in any order among the results of
    that message. Every tool message must answer a call. No call id may be empty or occur twice.
    """
    problem = history_problem(
        (message.role, [call.id for call in message.tool_calls], message.tool_call_id) for message in messages
    )
    if problem is not None:
        raise AssertionError(problem)


def history_problem(turns: Iterable[tuple[str, Sequence[str], str | None]]) -> str | None:
    """Describes the error in a history, or gives None. A turn: its role, the ids of calls made, the id of the call answered."""
    seen: set[str] = set()
    waiting: list[str] = []
    for number, (role, made, answered) in enumerate(turns):
        where = f"message {number} ({role})"
        if role == "tool":
            if answered not in waiting:
                return f"{where} answers the call {answered!r}, which does not wait for a result there"
            waiting.remove(answered)
            continue
        if waiting:
            return f"{where} comes before the results of the calls {', '.join(map(repr, waiting))}"
        for call_id in made:
            if not call_id or call_id in seen:
                return f"{where} makes a call with the id {call_id!r}, which is empty or was used before"
            seen.add(call_id)
        waiting = list(made)
    return f"the history ends before the results of the calls {', '.join(map(repr, waiting))}" if waiting else None


def _uncut(reply: ModelReply, cut: BaseException | None) -> ModelReply:
    if cut is not None:
        raise cut
    return reply


async def _called(function: Callable[[ModelRequest], object], request: ModelRequest) -> object:
    item = function(request)
    return await item if inspect.isawaitable(item) else item


def _is_function(item: object) -> TypeGuard[Callable[[ModelRequest], object]]:
    return callable(item) and not isinstance(item, type)


def _close(item: Awaitable[object]) -> None:
    if inspect.iscoroutine(item):
        item.close()


def _free_ids(used: set[str]) -> Iterator[str]:
    return (name for number in itertools.count(1) if (name := f"call_{number}") not in used)


def _since_user(roles: Sequence[str]) -> int:
    count = 0
    for role in reversed(roles):
        if role == "user":
            break
        count += role == "assistant"
    return count


def _last(messages: Sequence[Message]) -> str:
    if not messages:
        return "an empty history"
    return f"a {messages[-1].role} message: {messages[-1].text[:200]!r}"
