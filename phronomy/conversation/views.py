"""Views of a conversation that a provider accepts: what belongs together in it, and what is left of one that was cut. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phronomy.foundation.json_text import canonical, object_of
from phronomy.models.formats.chat_completions import RESERVED
from phronomy.records.messages import Message


def units(messages: Iterable[Message]) -> list[tuple[Message, ...]]:
    """The messages in pieces that stay together: an assistant's message with the tool messages right after it; any other alone."""
    found: list[tuple[Message, ...]] = []
    for message in messages:
        if message.role == "tool" and found and found[-1][0].role == "assistant":
            found[-1] += (message,)
        else:
            found.append((message,))
    return found


def whole(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages without calls that have no result and results that have no call; each call then has exactly one, right after it.

    An assistant's message in which nothing else stands goes with its calls. Messages that need nothing are given as they are.
    """
    kept: list[Message] = []
    for first, *rest in units(messages):
        if first.role == "assistant":
            kept += _answered(first, rest)
        elif first.role != "tool":
            kept.append(first)
    return tuple(kept)


def _answered(said: Message, results: Sequence[Message]) -> list[Message]:
    """The message with those of its calls that have a result, and these results; nothing if nothing is left of it."""
    waiting = [call.id for call in said.tool_calls]
    taken: list[Message] = []
    for result in results:
        if result.tool_call_id in waiting:
            waiting.remove(result.tool_call_id)
            taken.append(result)
    if waiting:
        places = []
        found = [result.tool_call_id for result in taken]
        for place, call in enumerate(said.tool_calls):
            if call.id in found:
                found.remove(call.id)  # of two calls of one id, the first has the result
                places.append(place)
        said = _with_calls(said, places)
    return [said, *taken] if said.tool_calls or said.json_text("content") not in ("null", '""', "[]") else []


def _with_calls(said: Message, places: Sequence[int]) -> Message:
    """The message with the calls at these places alone. What its provider put beside each goes along."""
    calls = tuple(said.tool_calls[place] for place in places)
    provider = said.provider
    ours = object_of(provider.get(RESERVED))
    beside = ours.get("calls")
    if not isinstance(beside, dict):
        return said.evolve(tool_calls=calls)
    moved = {str(new): beside[str(old)] for new, old in enumerate(places) if str(old) in beside}
    ours = {**{key: value for key, value in ours.items() if key != "calls"}, **({"calls": moved} if moved else {})}
    provider = {key: (ours if key == RESERVED else value) for key, value in provider.items() if key != RESERVED or ours}
    return said.evolve(tool_calls=calls, provider=canonical(provider))
