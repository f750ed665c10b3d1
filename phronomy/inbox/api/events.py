"""Server-sent events: a stream that says "look again at this request", and nothing that was asked or answered.

The id of an event is a position in the store: the number of the last record of the audit trail, and the time of the newest request.
Both grow in every store, and every process reads the same ones, so a browser may come back to another process.

What the stream covers is what these two lists tell. A request that begins to wait; each vote and decision, also by expiry; the check
of a decision by a worker; and the end of a run by a human: each is told at least once, some twice. It does not tell how a call that was
approved goes on and ends, nor reminders: for that, whoever has decided looks at the request until it is settled. Not told is a
request that is written more than a minute late, by a clock that is behind the others. One that is asked and decided between two looks
is told by its decision alone.

One task for each process and tenant looks at the store, once a second, and serves all streams: a stream costs no query. It ends with
the last of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from starlette.responses import Response, StreamingResponse

from phronomy.foundation.dataclasses import dataclass
from phronomy.inbox.api import inputs
from phronomy.inbox.api.requests import BASE
from phronomy.inbox.routes import Route
from phronomy.records.audit import AuditRecord
from phronomy.stores.native import apart
from phronomy.stores.rows import AuditFilter, PendingFilter, PendingRow

if TYPE_CHECKING:
    from phronomy.inbox.site import Site
    from phronomy.inbox.visit import Visit
    from phronomy.stores.base import Store
    from phronomy.stores.rows import AuditRow

MEDIA: Final = "text/event-stream"

IN_ALL: Final = 5_000
"""Streams of a process."""

_KEPT: Final = 2_000
"""Events that are kept, for whoever comes back."""

_AGAIN: Final = 100
"""Numbers that are read once more at each look: a database may make a number visible after a higher one."""

_TRAIL: Final = 500
_NEWEST: Final = 200
"""Records of the trail, and requests, that are read at a time."""

_LATE: Final = 60_000_000
"""Microseconds that requests may be late to be seen, by clocks that do not agree."""

_LONGEST_PAUSE: Final = 30.0
_POSITION: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")

Kind: TypeAlias = Literal["asked", "voted", "decided", "expired", "checked", "ended"]
"""What has happened: to a request, or (`ended`) to a run."""

_log = logging.getLogger("phronomy.inbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often something is done, in seconds: looking at the store, sending a comment, and asking whether the session still counts."""

    look: float = 1.0
    comment: float = 15.0
    identify: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One event. `index` is its place in this process; `audit` and `time` are the position in the store that is reached with it."""

    index: int
    audit: int
    time: int
    subject: str
    kind: Kind
    version: int

    @property
    def position(self) -> str:
        """The id of the event."""
        return f"{self.audit}-{self.time}"

    def text(self) -> str:
        """The event as it is sent."""
        data = json.dumps({"id": self.subject, "kind": self.kind, "version": self.version})
        return f"id: {self.position}\ndata: {data}\n\n"


class Watching:
    """The streams of an inbox in this process: how many there are, and what looks at the store for them."""

    def __init__(self, site: Site) -> None:
        self._watchers: dict[str, Watcher] = {}
        self.streams: int = 0
        self.pace: Pace = Pace()
        self.closed: bool = False

    def of(self, store: Store) -> Watcher:
        """What looks at this store."""
        found = self._watchers.get(store.tenant)
        if found is None:
            found = self._watchers[store.tenant] = Watcher(store, self.pace)
        return found

    @property
    def has_room(self) -> bool:
        """Whether one more stream is served."""
        return not self.closed and self.streams < IN_ALL

    def close(self) -> None:
        """End all streams, and take no more: a server that shuts down would wait for them otherwise."""
        self.closed = True
        for each in self._watchers.values():
            each.wake()


class Watcher:
    """Looks at one store for all streams of its tenant."""

    def __init__(self, store: Store, pace: Pace) -> None:
        self._store = store
        self._pace = pace
        self._kept: deque[Happened] = deque()
        self._index = 0
        self._audit = 0
        self._time = 0
        self._floor = (2**62, 2**62)  # what has happened before this position is not known here
        self._numbers: set[int] = set()
        self._asked: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._joined = 0
        self.news: asyncio.Event = asyncio.Event()
        self._ready = asyncio.Event()

    @property
    def index(self) -> int:
        """The place of the last event."""
        return self._index

    @property
    def position(self) -> str:
        """The position in the store that is reached."""
        return f"{self._audit}-{self._time}"

    async def join(self) -> None:
        """Have the store be looked at as long as somebody is here. Returns once it was looked at."""
        self._joined += 1
        if self._task is None or self._task.done():
            self.news, self._ready = asyncio.Event(), asyncio.Event()
            self._task = asyncio.create_task(self._look_on())
        await self._ready.wait()

    def leave(self) -> None:
        """Somebody is here no longer. The last one ends the looking."""
        self._joined -= 1
        if self._joined <= 0 and self._task is not None:
            self._joined = 0
            self._task.cancel()
            self._task = None

    def wake(self) -> None:
        """Have all streams look at what there is for them."""
        before = self.news
        self.news = asyncio.Event()
        before.set()

    def after(self, index: int) -> list[Happened] | None:
        """The events after this place; None if some of them are gone."""
        if self._kept and index < self._kept[0].index - 1:
            return None
        return [each for each in self._kept if each.index > index]

    def place_of(self, position: str) -> list[Happened] | None:
        """The events after a position; None if it cannot be read, or is too old to know them all."""
        for each in reversed(self._kept):
            if each.position == position:  # exactly here: the order in this process is known
                return self.after(each.index)
        read = _POSITION.fullmatch(position)
        if read is None:
            return None
        audit, time = int(read[1]), int(read[2])
        if audit < self._floor[0] or time < self._floor[1]:
            return None
        # From another process. Something may have become visible late, so that a little is told again.
        return [
            each
            for each in self._kept
            if (each.version > audit - _AGAIN if each.kind != "asked" else each.time > time - _LATE)
        ]

    # Looking

    async def _look_on(self) -> None:
        pause = self._pace.look
        begun = False
        while True:
            try:
                await (self._look() if begun else self._begin())
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # Streams stay open, and are told what has happened once the store answers again.
                _log.warning("the events of the inbox cannot be read: %s", type(error).__name__)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                begun, pause = True, self._pace.look
            self._ready.set()
            await asyncio.sleep(pause)

    async def _begin(self) -> None:
        """Read what has happened last, so that whoever was at another process is told what they have missed."""
        store = self._store
        end = await self._end_of_trail()
        first = max(0, end - _TRAIL)
        trail = await apart(store, store.select_audit, AuditFilter(after=first))
        newest = await apart(store, store.select_pending, PendingFilter(newest=True, limit=_NEWEST))
        oldest = micros(newest[-1].requested_at) if len(newest) == _NEWEST else 0
        self._kept.clear()
        self._numbers.clear()
        self._asked.clear()
        self._audit, self._time, self._floor = first, oldest, (first, oldest)
        self._take(trail, list(reversed(newest)))
        self.wake()

    async def _end_of_trail(self) -> int:
        """A number behind which the trail has nothing, found by halving: no store says it, and a long trail is not read for it."""
        low, high = 0, 1
        while await self._has_more(high):
            low, high = high, high * 4
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if await self._has_more(middle) else (low, middle)
        return low

    async def _has_more(self, number: int) -> bool:
        return bool(await apart(self._store, self._store.select_audit, AuditFilter(after=number, limit=1)))

    async def _look(self) -> None:
        store = self._store
        after = max(self._floor[0], self._audit - _AGAIN)
        trail: list[AuditRow] = []
        while True:
            rows = await apart(store, store.select_audit, AuditFilter(after=after, limit=_TRAIL))
            trail += [each for each in rows if each.n not in self._numbers]
            if len(rows) < _TRAIL:
                break
            after = rows[-1].n
        asked: list[PendingRow] = []
        place: tuple[float, int] | None = None
        while True:
            page = await apart(store, store.select_pending, PendingFilter(newest=True, after=place, limit=_NEWEST))
            fresh = [each for each in page if self._is_fresh(each)]
            asked += fresh
            if len(fresh) < len(page) or len(page) < _NEWEST:
                break
            place = (page[-1].requested_at, page[-1].n)
        if trail or asked:
            self._take(trail, list(reversed(asked)))
            self.wake()

    def _is_fresh(self, row: PendingRow) -> bool:
        """Whether a request was not there at the last look."""
        # Those far below the newest one have waited before; where others were decided above them, they are read again.
        return row.pending_id not in self._asked and micros(row.requested_at) > self._time - _LATE

    def _take(self, trail: list[AuditRow], asked: list[PendingRow]) -> None:
        """Make events of what was read, in the order of its times."""
        found: list[tuple[float, AuditRow | PendingRow]] = [(each.at, each) for each in trail]
        found += [(each.requested_at, each) for each in asked]
        for _, row in sorted(found, key=lambda each: each[0]):
            if isinstance(row, PendingRow):
                self._asked[row.pending_id] = row.requested_at
                self._time = max(self._time, micros(row.requested_at))
                self._add(row.pending_id, "asked", self._audit)
            else:
                self._numbers.add(row.n)
                self._audit = max(self._audit, row.n)
                if (told := _told(row)) is not None:
                    self._add(*told, row.n)
        self._numbers = {each for each in self._numbers if each > self._audit - 2 * _AGAIN}
        # By their time, as `_is_fresh` judges: one that was forgotten too early would be told again at each look.
        self._asked = {id: at for id, at in self._asked.items() if micros(at) > self._time - _LATE}

    def _add(self, subject: str, kind: Kind, version: int) -> None:
        self._index += 1
        self._kept.append(
            Happened(index=self._index, audit=self._audit, time=self._time, subject=subject, kind=kind, version=version)
        )
        if len(self._kept) > _KEPT:
            gone = self._kept.popleft()
            self._floor = (gone.audit, gone.time)


def micros(at: float) -> int:
    """A time in microseconds, as positions have it."""
    return max(0, round(at * 1e6))


def _told(row: AuditRow) -> tuple[str, Kind] | None:
    """What a record of the trail tells; None for what concerns nobody who looks at a list."""
    try:
        record = AuditRecord.model_validate_json(row.body)
    except ValueError:  # it is damaged: reading the trail says so
        return None
    if record.refused and not record.checked:
        return None
    # Nobody was asked about a call that scopes refused, and a new branch tells what it asks.
    if record.pending_id is None:
        return (record.run_id, "ended") if record.kind in ("cancel", "supersede") else None
    if record.vote:
        return record.pending_id, "voted"
    if record.checked:
        return record.pending_id, "checked"
    return record.pending_id, "expired" if record.kind == "expire" else "decided"


async def events(visit: Visit) -> Response:
    """The stream of what happens."""
    query = visit.query(inputs.EventsQuery)
    # A browser sends the header by itself, and only when it connects again.
    position = visit.request.headers.get("last-event-id") or query.after
    headers = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
    if visit.request.method == "HEAD":
        return Response(media_type=MEDIA, headers=headers)
    return StreamingResponse(_stream(visit, position), media_type=MEDIA, headers=headers)


async def _stream(visit: Visit, position: str | None) -> AsyncIterator[str]:
    watching = visit.inbox.kept(Watching)
    with visit.inbox.limits.stream(visit.identity) as room:  # the pages of a browser share one
        if not room or not watching.has_room:
            yield "retry: 30000\n\n"  # an answer other than 200 would have a browser give up for good
            return
        yield "retry: 3000\n\n"
        watcher = watching.of(visit.store)
        watching.streams += 1
        try:
            await watcher.join()
            async for text in _texts(visit, watching, watcher, position):
                yield text
        finally:
            watching.streams -= 1
            watcher.leave()


async def _texts(visit: Visit, watching: Watching, watcher: Watcher, position: str | None) -> AsyncIterator[str]:
    clock, pace = asyncio.get_running_loop().time, watching.pace
    found = watcher.place_of(position) if position is not None else []
    index = watcher.index  # before anything is sent, which takes as long as the reader does
    if found is None:
        yield _reset(watcher)
    elif position is None:
        yield f"id: {watcher.position}\n\n"  # so that whoever is cut off at once knows where they were
    commented = identified = clock()
    while not watching.closed:
        for each in found or ():
            yield each.text()
        if found:
            index, commented = max(index, found[-1].index), clock()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(commented + pace.comment, identified + pace.identify)):
                if not watcher.after(index):
                    await watcher.news.wait()
        if clock() >= identified + pace.identify:
            if not await visit.is_still("read"):
                return
            identified = clock()
        if clock() >= commented + pace.comment:
            yield ":\n\n"
            commented = clock()
        found = watcher.after(index)
        if found is None:  # somebody who reads slowly has lost some
            index = watcher.index
            yield _reset(watcher)


def _reset(watcher: Watcher) -> str:
    """What says: you may have missed something, so look at everything again."""
    return f"event: reset\nid: {watcher.position}\ndata: {{}}\n\n"


EVENTS: Final = (
    Route(
        method="GET",
        path=f"{BASE}/events",
        handler=events,
        scope="read",
        summary="A stream of server-sent events that says what to look at again",
        query=inputs.EventsQuery,
        media=MEDIA,
    ),
)
