"""The part of every store by which events are sent to the runs that wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from phronomy.records.principals import Principal
from phronomy.stores.derived import triggering
from phronomy.stores.derived.triggering import Early, EventSent
from phronomy.stores.native import in_store

if TYPE_CHECKING:
    from phronomy.stores.base import Store


class Triggering:
    """The part of every store by which events are sent to the runs that wait for them."""

    blocking: bool = True

    def send_event(
        self,
        run_id: str,
        name: str,
        payload: object = None,
        *,
        by: str | Principal,
        channel: str | None = None,
        key: str | None = None,
        early: Early = "first",
    ) -> EventSent:
        """Send an event to a run: the trigger that waits longest for an event of this name fires. Nothing is run.

        `run_id` is the id of a run, or of the branch of a fork. `payload` is any JSON value. `by` says who sends it; it is
        not checked who that is, so take it from your login or from the signature of a webhook. Only a sender fires a
        trigger whom it names, by id or by role. Whoever drives the run carries on: the worker that has it, or the next one.

        If nothing waits for the event yet, the run keeps it, and the first trigger fires that names the sender and whose
        type it fits. `early` says when: `"first"`, as long as no trigger for such an event was there before; `"always"`,
        also after that; `"never"`. With an idempotency `key`, an event that its sender sends twice is recorded once.

        Raises with nothing sent: `CheckpointNotFound` for an unknown run, `NotASender`, `InvalidDecision` for a payload or a
        `by` that does not fit, `NotWaiting` if the run has ended or `early` forbids to keep the event, `TriggerFired` if
        such an event has arrived before, `TriggerSuperseded` if the wait was over before, and `TooManyEvents` if the run
        keeps 100 events already, or they would have more than 1,000,000 characters as JSON.
        """
        return triggering.send_event(
            cast("Store", self), run_id, name, payload, by=by, channel=channel, key=key, early=early
        )

    async def asend_event(
        self,
        run_id: str,
        name: str,
        payload: object = None,
        *,
        by: str | Principal,
        channel: str | None = None,
        key: str | None = None,
        early: Early = "first",
    ) -> EventSent:
        """The async twin of `send_event`."""
        return await in_store(
            self, self.send_event, run_id, name, payload, by=by, channel=channel, key=key, early=early
        )
