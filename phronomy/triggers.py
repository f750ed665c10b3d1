"""Triggers: what a tool or a node may wait for, and what it gets once that has fired."""

from __future__ import annotations

from phronomy.records.triggers import KeptEvent, Trigger, TriggerKind, WaitFor
from phronomy.stops.triggers import (
    Awaited,
    ExternalEvent,
    Fired,
    Question,
    RunEnd,
    RunEnded,
    Timer,
    wait_for_all,
    wait_for_first,
)
from phronomy.stores.derived.triggering import Early, EventSent

__all__ = [
    "Awaited",
    "Early",
    "EventSent",
    "ExternalEvent",
    "Fired",
    "KeptEvent",
    "Question",
    "RunEnd",
    "RunEnded",
    "Timer",
    "Trigger",
    "TriggerKind",
    "WaitFor",
    "wait_for_all",
    "wait_for_first",
]
