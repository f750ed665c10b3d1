"""What of the conversation an agent shows to the person who decides on its calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import close_unawaited, is_async, is_count, is_series
from phronomy.foundation.quoting import HIDDEN, quoted
from phronomy.records.decisions import ShownMessage
from phronomy.records.messages import Message
from phronomy.tools.toolbox import Toolbox, toolboxes_in

ReviewMessages: TypeAlias = int | Callable[[Sequence[Message]], Sequence[Message]]
"""How many of the last messages are shown, or a function that selects them from all messages of the conversation."""

MOST: Final = 50
"""How many messages are shown at most: they are stored with each request."""

LONGEST: Final = 2_000
"""How many characters of a message are shown."""

_log = logging.getLogger("phronomy")


def check_review_messages(of: str, given: object) -> None:
    """Refuse what selects no messages. Raises `ConfigurationError`."""
    counts = is_count(given) and isinstance(given, int) and given <= MOST
    if counts or (callable(given) and not is_async(given)):
        return
    raise ConfigurationError(
        f"agent {of!r}: review_messages is a number of messages, 0 to {MOST}, or a plain function of the messages that returns those"
        f" to show, not {quoted(given)}"
    )


def shown_messages(given: ReviewMessages, messages: Sequence[Message], box: Toolbox) -> tuple[ShownMessage, ...]:
    """The messages that a person who decides is shown, without arguments of calls, and without results of tools that redact."""
    if given == 0:
        return ()
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return tuple(_shown(_selected(given, messages), names, _redacting(box)))


def _selected(given: ReviewMessages, messages: Sequence[Message]) -> Sequence[Message]:
    """The messages that are shown; none if the function cannot say which."""
    if isinstance(given, int):
        return messages[-given:]
    # It is no gate: whoever decides sees the call all the same, so the request is not held up for it.
    try:
        found: object = given(tuple(messages))
    except Exception as error:
        _log.warning("review_messages raised %s, so no messages are shown with the request", type(error).__name__)
        return ()
    chosen = tuple(found) if is_series(found) else (None,)
    kept = [each for each in chosen if isinstance(each, Message)]
    if len(kept) != len(chosen):
        close_unawaited(found)
        _log.warning("review_messages returned %s, so no messages are shown with the request", type(found).__name__)
        return ()
    return kept[-MOST:]


def _shown(
    messages: Iterable[Message], names: Mapping[str, str], redacting: Mapping[str, bool]
) -> Iterator[ShownMessage]:
    for message in messages:
        tools = tuple(call.name for call in message.tool_calls)
        text = message.text
        if message.role == "tool":
            name = names.get(message.tool_call_id or "", "")
            tools = (name,)
            # Of a tool that is not known, nobody can say what it would redact.
            text = HIDDEN if redacting.get(name, True) else text
        yield ShownMessage(role=message.role, text=_cut(text), tools=tools)


def _redacting(box: Toolbox) -> dict[str, bool]:
    """The names of all tools that runs of this spec may call, each with whether any tool of that name redacts parameters."""
    found: dict[str, bool] = {}
    for each in toolboxes_in(box):
        for asked in each.tools.values():
            for tool in (asked, *asked.fallback):
                for name in (asked.name, tool.name):
                    found[name] = found.get(name, False) or bool(tool.redact)
    return found


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
