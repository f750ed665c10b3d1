"""What must hold of all that was told of requests: in order, nothing twice, and no other than what the store says."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from phronomy.errors import UnknownPending
from phronomy.events import RequestChanged
from phronomy.stores.base import Store

COURSE = re.compile(r"asked( voted)*( decided( carried_out| failed| withdrawn)?| expired| withdrawn)?")
"""What may be told of one request, in this order."""


def courses(events: Iterable[RequestChanged]) -> dict[str, list[RequestChanged]]:
    """What was told of each request, in order, without what was told again under the same key."""
    told: dict[str, RequestChanged] = {}
    for event in events:
        assert told.setdefault(event.key, event) == event, f"{event.key} is of two facts"
    found: dict[str, list[RequestChanged]] = {}
    for event in told.values():
        found.setdefault(event.request.id, []).append(event)
    return found


def check_told(store: Store, events: Iterable[RequestChanged]) -> dict[str, list[RequestChanged]]:
    """Check all that was told of the requests in a store, once nothing is left to be told."""
    told = courses(events)
    waiting = {row.pending_id for row in store.pending_rows()}
    for pending_id, course in told.items():
        whats = " ".join(event.what for event in course)
        assert COURSE.fullmatch(whats), whats
        assert (course[-1].what in ("asked", "voted")) == (pending_id in waiting), (whats, pending_id)
        check_last(store, course[-1], told.keys() | waiting)
    assert waiting <= told.keys(), "somebody can decide, and nobody was told"
    return told


def check_last(store: Store, last: RequestChanged, asked: Collection[str]) -> None:
    """What was last told of a request agrees with what the store says; `asked` are all requests that there are."""
    try:
        found = store.request(last.request.id)
    except UnknownPending:
        assert (last.what, last.decision) == ("withdrawn", None), last
        return
    kind = found.result.kind if found.result is not None else None
    says = found.decision.kind if found.decision is not None else None
    state = (last.what, says, found.status, kind, last.asked_again)
    # Of a call that failed a moment ago, the store names the request that is to come. Told it is once that one is asked.
    assert found.asked_again == last.asked_again or (last.what == "decided" and found.asked_again not in asked), state
    match last.what:
        case "asked" | "voted":
            assert found.status in ("pending", "expired") and says is None, state
        case "expired":
            assert (found.status, says) == ("settled", "expire"), state
        case "decided" if says in ("reject", "skip"):
            pass
        case "decided":
            assert found.status in ("decided", "running", "asked_again"), state
        case "withdrawn":
            assert found.status == "settled" and kind in ("cancelled", "superseded", None), state
        case "carried_out" if last.asked_again is not None:
            assert last.asked_again in asked and last.request.why == "breakpoint", state
        case "carried_out":
            assert found.status == "settled" and kind in ("completed", "responded", None), state
            assert says in ("approve", "respond"), state
        case "failed" if last.asked_again is not None:
            assert found.status == "asked_again" and last.asked_again in asked, state
        case "failed":
            assert found.status == "settled" and kind not in ("completed", "responded"), state
