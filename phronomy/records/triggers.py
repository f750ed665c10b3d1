"""Triggers: what lets a run go on that waits: the answer of a human, an event from outside, a time, the end of another run."""

from operator import not_
from typing import Literal, TypeAlias

from pydantic import Field

from phronomy.records.approvers import Approvers
from phronomy.records.principals import Recorded
from phronomy.records.record import NULL, Json, Record, Text, Time

TriggerKind: TypeAlias = Literal["answer", "event", "time", "run"]
"""What fires a trigger: a human answers, an event arrives, a time has come, another run has ended."""

WaitFor: TypeAlias = Literal["all", "first"]
"""Whether a wait is over once all of its triggers have fired, or with the first of them."""


class Trigger(Record):
    """What a request waits for, if it is one of the triggers of a wait.

    `wait` is the id of the wait, which all of its triggers share, and `name` is the name that the body gave the trigger. An
    event has the name of the event and its `senders`, a time is `due_at`, and `run_id` is the run whose end is waited for.
    """

    kind: TriggerKind
    wait: str
    wait_for: WaitFor
    name: Text
    event: Text | None = Field(default=None, exclude_if=not_)
    senders: Approvers | None = Field(default=None, exclude_if=not_)
    due_at: Time | None = Field(default=None, exclude_if=not_)
    run_id: str | None = Field(default=None, exclude_if=not_)


class KeptEvent(Record):
    """An event that arrived before anything waited for it: its name, its payload in `content`, and who sent it when."""

    id: str
    name: Text
    content: Json = Field(default=NULL, repr=False)
    by: Recorded
    channel: Text | None = Field(default=None, exclude_if=not_)
    key: Text | None = Field(default=None, exclude_if=not_)
    at: Time
