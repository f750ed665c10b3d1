"""Limits: what one logical run may use, over all its resumes, with no human's time in it.

How many handoffs there may be in a run is a rule of its own, in `agents/handoffs.py`.
"""

import json

from pydantic import Field

from phronomy.foundation.json_text import JsonError, parse
from phronomy.records.calls import is_nothing
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.messages import Usage
from phronomy.records.moves import Fail
from phronomy.records.record import Record


class Limits(Record):
    """The limits of a run, over all its resumes. None: no limit. At a limit the run fails with `LimitExceeded`.

    `turns` limits model calls, `tool_calls` the calls that the model asks for, `equal_calls` the same call with the
    same arguments in direct succession, and `tokens` the input and output tokens together. `cost` is in US dollars; if
    the cost of a reply is not known, the limit counts as reached. `seconds` is the time in which the model and tools
    work, without the time of humans. Limits are checked before a model call and before calls run, so the last step can
    go over a limit. `seconds` also limits each model call.
    """

    turns: int | None = Field(default=100, gt=0)
    tool_calls: int | None = Field(default=None, ge=0)
    equal_calls: int | None = Field(default=None, gt=0)
    tokens: int | None = Field(default=None, gt=0)
    cost: float | None = Field(default=None, ge=0)
    seconds: float | None = Field(default=None, gt=0)


def before_asking(state: Checkpoint, limits: Limits, output_retries: int | None) -> Fail | None:
    """The limit, if there is one, that keeps the model from being asked."""
    # Before the turns: a model that answers in the wrong form again and again is told of in these words, not as a run that took too
    # long.
    if output_retries is not None and state.refused > output_retries:
        return Fail(limit="output_retries", maximum=output_retries, used=state.refused)
    if limits.turns is not None and state.turn >= limits.turns:
        return Fail(limit="turns", maximum=limits.turns, used=state.turn)
    return used_up(limits, state.usage, state.elapsed, asks=True)


def before_acting(state: Checkpoint, limits: Limits) -> Fail | None:
    """The limit, if there is one, that keeps open calls from being judged or run. Those that wait, or run, are left alone."""
    # Most runs bound their turns alone, which are looked at where the model is asked.
    if limits.tool_calls is limits.equal_calls is limits.seconds is None:
        return None
    statuses = {call.status for call in state.calls}
    new = "new" in statuses
    # Only for calls that are new. Those which were judged count already; a limit that was lowered since must not strand what a
    # human has approved.
    if new and limits.tool_calls is not None and state.called > limits.tool_calls:
        return Fail(limit="tool_calls", maximum=limits.tool_calls, used=state.called)
    if new and limits.equal_calls is not None and (used := _equal_calls(state)) > limits.equal_calls:
        return Fail(limit="equal_calls", maximum=limits.equal_calls, used=used)
    if limits.seconds is not None and (new or "ready" in statuses):
        return used_up(limits, state.usage, state.elapsed, asks=False)
    return None


def used_up(limits: Limits, usage: Usage, elapsed: int, *, asks: bool) -> Fail | None:
    """The limit of tokens, cost or seconds that is reached; of the first two nothing is said where no model is to be asked."""
    if asks and limits.tokens is not None and usage.total_tokens >= limits.tokens:
        return Fail(limit="tokens", maximum=limits.tokens, used=usage.total_tokens)
    # A reply whose cost nobody knows might have cost anything. A limit that ignored it would hold for providers with a price list
    # alone, so it counts as reached.
    if asks and limits.cost is not None and not is_nothing(usage) and (usage.cost is None or usage.cost >= limits.cost):
        return Fail(limit="cost", maximum=limits.cost, used=usage.cost)
    if limits.seconds is not None and elapsed >= limits.seconds * 1000:
        return Fail(limit="seconds", maximum=limits.seconds, used=elapsed / 1000)
    return None


def is_bounding(limits: Limits) -> bool:
    """Whether they bound what the runs inside use as well: each run counts its turns and calls by itself."""
    return (limits.tokens, limits.cost, limits.seconds) != (None, None, None)


def _equal_calls(state: Checkpoint) -> int:
    """The longest row of calls of this run, one after the other, that have one name and the same arguments."""
    # Only the turns of this run: the thread before it has had limits of its own.
    turns = [message.tool_calls for message in state.messages if message.role == "assistant"][-state.turn :]
    longest, row, before = 0, 0, None
    for call in (call for calls in turns for call in calls):
        # A model that is stuck in a loop may still change spaces, or the order of keys. What the arguments mean is compared.
        this = (call.name, _meant(call.arguments))
        row = row + 1 if this == before else 1
        longest, before = max(longest, row), this
    return longest


def _meant(arguments: str) -> str:
    """The arguments in one way of writing them, as far as they can be read."""
    try:
        return json.dumps(parse("{}" if arguments.strip() in ("", "null") else arguments), sort_keys=True)
    except JsonError:
        return arguments
