"""The timeline: what happened in a run, read off its chain of checkpoints, or told while it happens.

It is no second record of a run. `timeline` reads the chain whenever it is asked; `TimelineRecorder` tells the same entries, under
the same ids, of runs that are driven here. A timeline says who, what and when, and nothing that was said: no input, no arguments,
no results, no reasons. The metadata of a decision are told: they are an application's, for whoever reads its records.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from phronomy.errors import CheckpointNotFound, ConfigurationError
from phronomy.foundation.checks import is_async, is_count, is_number, is_series
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, clean, parse
from phronomy.foundation.quoting import kept_id, quoted, quoted_id, quoted_word
from phronomy.observability.events import (
    ApprovalRequested,
    CheckpointSaved,
    Decided,
    Ended,
    Event,
    Failed,
    HandedOver,
    MessageAdded,
    ModelReplied,
    Reader,
    RunStarted,
    Suspended,
    ToolCallFailed,
    ToolCallSettled,
    ToolCallStarted,
    Voted,
)
from phronomy.observability.hooks import Hooks
from phronomy.observability.timeline_entries import TYPES, EntryType, Narrator, TimelineEntry
from phronomy.records.calls import CallFailed, CallSettled, CallStarted, Outcome
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.record import explain, later
from phronomy.stores.base import Store
from phronomy.stores.derived.changes import not_found
from phronomy.stores.derived.kept_texts import whole_lineage
from phronomy.stores.log.log import items_of, last_of, whole_entries
from phronomy.stores.rows import Entry, Lineage

VERSION: Final = 1
"""The version of an export. 1: the first."""

NEWEST: Final = 2_000
"""How many entries a timeline keeps, unless it is told otherwise."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)

_log = logging.getLogger("phronomy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What happened in a run, along one branch of it: the newest `max_events` entries, oldest first.

    `branch_id` is the branch. Entries from before a fork belong to the parent branch. A timeline never changes. Raises
    `ConfigurationError` if the entries do not follow one another, or if `max_events` is below 1.
    """

    run_id: str
    branch_id: str
    entries: tuple[TimelineEntry, ...] = ()
    max_events: int = NEWEST

    def __post_init__(self) -> None:
        _checked_bound(self.max_events)
        if not is_series(self.entries) or not all(isinstance(each, TimelineEntry) for each in tuple(self.entries)):
            raise ConfigurationError("the entries of a timeline are a list of TimelineEntry")
        ids = [entry.id for entry in self.entries]
        if ids and ids != list(range(ids[0], ids[0] + len(ids))):
            raise ConfigurationError(
                f"the entries of a timeline of run {self.run_id} do not follow one another by their ids"
            )
        if any(entry.run_id != self.run_id for entry in self.entries):
            raise ConfigurationError(f"an entry of a timeline of run {self.run_id} is of another run")
        object.__setattr__(self, "entries", tuple(self.entries)[-self.max_events :])

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[TimelineEntry]:
        return iter(self.entries)

    @property
    def dropped(self) -> int:
        """The number of entries before the oldest one here."""
        return self.entries[0].id if self.entries else 0

    def query(
        self,
        type: EntryType | Collection[EntryType] | None = None,
        *,
        agent: str | None = None,
        checkpoint: Checkpoint | str | None = None,
        path: str | None = None,
        since: datetime | float | None = None,
        until: datetime | float | None = None,
    ) -> tuple[TimelineEntry, ...]:
        """The entries that match all given filters, oldest first.

        `type` is one type or several. `agent` is the name of an agent or graph. `checkpoint` is a checkpoint or its id.
        `path` is the path of a nested run; `""` is the outermost run. `since` and `until` are datetimes with a time
        zone, or seconds since the epoch; both ends are included. Raises `ConfigurationError` for an invalid type, time
        or text.
        """
        types = _types(type)
        agent, path = _text("agent", agent), _text("path", path)
        first, last = _moment("since", since, -math.inf), _moment("until", until, math.inf)
        id = checkpoint.id if isinstance(checkpoint, Checkpoint) else checkpoint
        return tuple(
            entry
            for entry in self.entries
            if (types is None or entry.type in types)
            and (agent is None or entry.agent == agent)
            and (id is None or entry.checkpoint_id == id)
            and (path is None or entry.path == path)
            and first <= entry.at.timestamp() <= last
        )

    def fork_at(self, checkpoint: Checkpoint | str) -> Timeline:
        """The timeline up to and including a checkpoint. A fork at that checkpoint starts with the same entries.

        Raises `CheckpointNotFound` if the checkpoint is not in the timeline.
        """
        id = checkpoint.id if isinstance(checkpoint, Checkpoint) else checkpoint
        for entry in self.entries:
            if entry.type == "checkpoint" and entry.checkpoint_id == id:
                kept = tuple(each for each in self.entries if each.id <= entry.id or _same_row(each, entry))
                return replace(self, entries=kept)
        gone = f" The {self.dropped} oldest entries are not kept." if self.dropped else ""
        raise CheckpointNotFound(
            f"checkpoint {quoted_id(id)} is not in this timeline of branch {self.branch_id}: read that of its own branch.{gone}",
            id=kept_id(id),
        )

    def export(self) -> str:
        """The timeline as JSON text, to keep anywhere. `Timeline.load` reads it."""
        return json.dumps(
            {
                "version": VERSION,
                "run_id": self.run_id,
                "branch_id": self.branch_id,
                "max_events": self.max_events,
                "entries": [entry.model_dump(mode="json") for entry in self.entries],
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )

    @classmethod
    def load(cls, text: str | bytes) -> Timeline:
        """Read a timeline from the text of an export, with the same ids.

        Raises `ConfigurationError` for any other text: text that is not JSON, another version, an unknown type, an
        invalid entry, or a repeated, missing or unknown key.
        """
        try:
            data = parse(text)
        except JsonError as error:
            raise ConfigurationError(f"this is no timeline: {error}") from None
        if not isinstance(data, dict) or type(data.get("version")) is not int:
            raise ConfigurationError("this is no timeline: an object with a version is needed")
        if data["version"] != VERSION:
            raise ConfigurationError(
                f"the timeline is of version {data['version']}, and this release reads {VERSION}: upgrade phronomy"
            )
        if wrong := sorted(data.keys() ^ {"version", *cls.__dataclass_fields__}):
            raise ConfigurationError(f"this is no timeline: {wrong[0][:80]!r} is missing, or unknown")
        for name in ("run_id", "branch_id"):
            if not isinstance(data[name], str):
                raise ConfigurationError(f"this is no timeline: {name} is no text")
        if not isinstance(data["entries"], list):
            raise ConfigurationError("this is no timeline: its entries are no list")
        entries = tuple(_entry(place, each) for place, each in enumerate(data["entries"]))
        ids, most = (str(data["run_id"]), str(data["branch_id"])), _checked_bound(data["max_events"])
        made = cls(run_id=ids[0], branch_id=ids[1], entries=entries, max_events=most)
        if len(made) != len(entries):
            raise ConfigurationError(
                f"this is no timeline: it has {len(entries)} entries, and max_events is below that"
            )
        return made


def timeline(store: Store, run: Checkpoint | str, *, max_events: int = NEWEST) -> Timeline:
    """Read the timeline of a stored run, by run id, branch id, checkpoint, or checkpoint id.

    A run id means the run's main branch. With a checkpoint, the timeline ends there. The timeline of a fork starts with
    the entries of its parent up to the fork. The newest `max_events` entries are returned. Raises `CheckpointNotFound`,
    and `ConfigurationError` if `max_events` is below 1.
    """
    _checked_bound(max_events)
    lineage = _lineage(store, run.id if isinstance(run, Checkpoint) else run)
    kept = tuple(deque(_entries_of(lineage), maxlen=max_events))
    return Timeline(run_id=lineage.branch.run_id, branch_id=lineage.branch.id, entries=kept, max_events=max_events)


def recent(store: Store, branch_id: str, *, most: int) -> tuple[tuple[TimelineEntry, ...], bool]:
    """The newest entries of the timeline of a branch, up to `most`, and whether there are others before them.

    Of a long run only the end is read, so the ids of the entries count from there. Raises `CheckpointNotFound`.
    """
    lineage = _lineage(store, branch_id)
    place = _checkpoint_before(lineage.entries, most)
    if place is None:
        told = tuple(_entries_of(lineage))
        return told[-most:], len(told) > most
    # To put one checkpoint together takes a fiftieth of what it takes to tell what has led to it: of 10,000, 0.04 s, and not 2 s.
    begin, checkpoint = lineage.entries[place], last_of(lineage.entries[: place + 1])
    # All of it stands at the place of the row of this checkpoint.
    whole = [replace(each, branch_id=begin.branch_id, seq=begin.seq) for each in whole_entries(checkpoint)]
    ending = (*whole, *lineage.entries[place + 1 :])
    told = tuple(_entries_of(replace(lineage, entries=ending)))
    told = tuple(each for each in told if (each.branch_id, each.seq) != (begin.branch_id, begin.seq))
    # The log may begin with an earlier run of the thread, of which a timeline says nothing.
    return told[-most:], len(told) > most or checkpoint.run_id == lineage.branch.run_id


def _checkpoint_before(entries: Sequence[Entry], most: int) -> int | None:
    """The place of the last root checkpoint before the newest `most` entries of a log; None if there are hardly more than these."""
    for place in range(len(entries) - most - 1, most, -1):
        if entries[place].path == "" and entries[place].checkpoint_id is not None:
            return place
    return None


class TimelineRecorder(Hooks):
    """A hook that keeps the timeline of every run that an agent or graph drives: pass it to `Agent(hooks=[...])`.

    Each of `listeners` is called with each entry, after the event of the entry is stored. An exception in a listener is
    logged, and changes nothing. The newest `max_events` entries of all runs together are kept. With `store`, the store
    of the runs, the recorder has the same entries as `timeline`, with the same ids, also those from other processes and
    from nested runs. Without `store`, it has only the entries of its own agent, with ids from 0. `onto` is a timeline
    to continue, for example from `Timeline.load`.

    Only a recorder has entries of failures. Each of them takes an id. The time of an entry is the time of its event, or
    else the time when the recorder was called. Raises `ConfigurationError` if `max_events` is below 1, or if a listener
    is async or cannot be called.
    """

    def __init__(
        self,
        *,
        max_events: int = NEWEST,
        listeners: Iterable[Callable[[TimelineEntry], object]] = (),
        store: Store | None = None,
        onto: Timeline | None = None,
    ) -> None:
        _checked_bound(max_events)
        self._max_events = max_events
        if not is_series(listeners):
            raise ConfigurationError(f"listeners is a list of functions, not {type(listeners).__name__}")
        for name, given, kind in (("store", store, Store), ("onto", onto, Timeline)):
            if given is not None and not isinstance(given, kind):
                raise ConfigurationError(f"{name} is a {kind.__name__} or None, not {type(given).__name__}")
        self._listeners = tuple(listeners)
        for listener in self._listeners:
            if not callable(listener) or is_async(listener):
                raise ConfigurationError(
                    f"a listener of a timeline is a sync function of an entry, which {quoted(listener)} is not"
                )
        self._store = store
        self._clock = time.time if store is None else store.clock
        self._kept: deque[tuple[str, TimelineEntry]] = deque()
        self._counts: Counter[str] = Counter()
        self._lines: dict[str, _Line] = {}
        self._lock = threading.Lock()
        if onto is not None:
            self._lines[onto.branch_id] = self._line(onto.branch_id, onto.entries)

    @property
    def entries(self) -> tuple[TimelineEntry, ...]:
        """All kept entries of all runs, in the order in which they were recorded."""
        with self._lock:
            return tuple(entry for _, entry in self._kept)

    def timeline(self, branch_id: str) -> Timeline:
        """The timeline of a branch, from the kept entries. A run id means the run's main branch.

        Raises `CheckpointNotFound` if no entry of the branch is kept.
        """
        with self._lock:
            entries = tuple(entry for id, entry in self._kept if id == branch_id)
        if not entries:
            raise CheckpointNotFound(f"nothing is kept of branch {quoted_id(branch_id)}", id=kept_id(branch_id))
        run_id = entries[0].run_id
        return Timeline(run_id=run_id, branch_id=branch_id, entries=entries, max_events=self._max_events)

    def on_event(self, event: Event) -> None:
        """Record an event, and call the listeners with its entries."""
        with self._lock:
            at = datetime.fromtimestamp(self._clock(), UTC)
            line = self._lines.get(event.branch_id)
            found: list[TimelineEntry] = []
            if line is None:
                line = self._lines[event.branch_id] = self._line(event.branch_id, self._unheard(event, -1))
            elif event.seq > line.seq + 1:  # runs inside this one were written meanwhile, or others wrote
                found += line.miss(self._unheard(event, line.seq), at)
            found += line.hear(event, at)
            self._keep(event.branch_id, found)
        for entry in found:
            for listener in self._listeners:
                try:
                    listener(entry)
                except Exception as error:  # whoever looks on must not change what happens
                    name = getattr(listener, "__name__", type(listener).__name__)
                    _log.error("listener %s raised %s on %s", name, type(error).__name__, entry.type)

    def _unheard(self, event: Event, last: int) -> tuple[TimelineEntry, ...]:
        """Reads from the store the entries of the branch between place `last` of its log and the event."""
        if self._store is None:
            return ()
        found = timeline(self._store, event.branch_id, max_events=self._max_events)
        return tuple(entry for entry in found if last < entry.seq < event.seq)

    def _line(self, branch_id: str, told: Sequence[TimelineEntry]) -> _Line:
        line = _Line(branch_id, told)
        self._keep(branch_id, told)
        return line

    def _keep(self, branch_id: str, entries: Sequence[TimelineEntry]) -> None:
        self._kept.extend((branch_id, entry) for entry in entries)
        self._counts[branch_id] += len(entries)
        while len(self._kept) > self._max_events:
            gone, _ = self._kept.popleft()
            self._counts[gone] -= 1
            if not self._counts[gone]:  # so what is known of branches is bounded, too
                del self._counts[gone]
                self._lines.pop(gone, None)


class _Line:
    """A branch as it is heard. What a checkpoint records is told before the checkpoint, and waits here until that is named."""

    def __init__(self, branch_id: str, told: Sequence[TimelineEntry]) -> None:
        self._branch_id = branch_id
        self._narrator = Narrator(told)
        self.seq = self._first = told[-1].seq if told else -1
        self._held: list[Event] = []
        self._running: set[tuple[str, str]] = set()

    def miss(self, entries: Iterable[TimelineEntry], at: datetime) -> list[TimelineEntry]:
        """The entries that can be told before the next event, which others than those that are heard have made."""
        return self._release(None, at) + [self._narrator.take(entry) for entry in entries]

    def hear(self, event: Event, at: datetime) -> list[TimelineEntry]:
        """The entries that can be told now."""
        if event.seq <= self._first:
            return []
        self.seq = max(event.seq, self.seq)
        found: list[TimelineEntry] = []
        if self._held and event.seq != self._held[0].seq:  # no checkpoint came: they are of the journal
            found += self._release(None, at)
        self._held.append(event)
        match event:
            case (
                RunStarted()
                | ModelReplied()
                | MessageAdded()
                | Voted()
                | Decided()
                | HandedOver()
                | ApprovalRequested()
            ):
                return found
            case ToolCallSettled() if not self._ran(event):
                return found  # it may have settled without being run
            case ToolCallStarted():
                self._running.add((event.path, event.call_id))
            case ToolCallSettled() | ToolCallFailed():
                self._running.discard((event.path, event.call_id))
            case CheckpointSaved() | Suspended() | Ended() | Failed():
                return found + self._release(event.checkpoint_id, at)
            case _:
                pass
        return found + self._release(None, at)

    def _ran(self, event: ToolCallSettled) -> bool:
        return (event.path, event.call_id) in self._running and event.kind in ("completed", "failed")

    def _release(self, checkpoint_id: str | None, at: datetime) -> list[TimelineEntry]:
        held, self._held = self._held, []
        found: list[TimelineEntry] = []
        for event in held:
            id = checkpoint_id or self._narrator.tip(event.path)
            found += self._narrator.tell(event, at=at, checkpoint_id=id, branch_id=self._branch_id)
        return found


# Reading the chain


def _lineage(store: Store, id: str) -> Lineage:
    if not isinstance(id, str):
        raise ConfigurationError(f"a timeline is of a checkpoint, or of an id as text, not of {type(id).__name__}")
    id = clean(id)
    try:
        return whole_lineage(store, branch_id=id)
    except CheckpointNotFound:
        try:
            return whole_lineage(store, checkpoint_id=id)
        except CheckpointNotFound:
            raise not_found("run, branch or checkpoint", id) from None


def _entries_of(lineage: Lineage) -> Iterator[TimelineEntry]:
    """Gives the entries of a branch and of its parents, as far as they are of the same run."""
    branch = lineage.branch
    reader, narrator, times = Reader(branch.id), Narrator(), _Times()
    here: str | None = None  # the branch of the entry before, if that was of the run
    handed: dict[str, int] = {}  # how many handoffs of each path were told
    for place, (entry, item) in enumerate(items_of(lineage.entries)):
        row = item if isinstance(item, Checkpoint) else None
        if here is None and (row is None or row.run_id != branch.run_id):
            continue  # an earlier run of the thread
        if row is not None and entry.branch_id != here and (here is not None or row.step > 0 or row.path):
            yield _branched(narrator, lineage.entries[place:], row)
        here = entry.branch_id
        id: str | None
        if isinstance(item, Checkpoint):
            new = item.handoffs[handed.get(item.path, len(item.handoffs)) :]
            narrator.named(item.path, new[0].source if new else item.speaker)
            handed[item.path] = len(item.handoffs)
            at, id = times.sealed(item), item.id
        else:
            at, id = times.journaled(entry.path, item), narrator.tip(entry.path)
        for event in reader.read(entry.seq, entry.path, item):
            if not (event.type == "run_started" and row is not None and row.step > 0):  # then it goes on from elsewhere
                yield from narrator.tell(event, at=at, checkpoint_id=id, branch_id=entry.branch_id, label=entry.label)
    if here is not None and branch.status == "failed" and narrator.tip("") == branch.head:
        at = later(_EPOCH, seconds=branch.changed_at)
        place_of = {"event": f"{branch.seq}.0", "branch_id": branch.id, "run_id": branch.run_id}
        yield narrator.add("failed", path="", facts={}, at=at, checkpoint_id=branch.head, **place_of)


def _branched(narrator: Narrator, ahead: Sequence[Entry], row: Checkpoint) -> TimelineEntry:
    """Tells that a branch begins here, at the first entry of `ahead`, whose checkpoint is `row`."""
    first = next((entry for entry in ahead if entry.path == "" and entry.checkpoint_id is not None), ahead[0])
    return narrator.add(
        "branched",
        path="",
        facts={"from": first.parent_id, "label": first.label},
        at=row.created_at.astimezone(UTC),
        run_id=row.run_id,
        branch_id=first.branch_id,
        checkpoint_id=first.checkpoint_id,
        event=f"{ahead[0].seq}.0",
    )


class _Times:
    """When things happened that do not say so: of a checkpoint, when it was made; of a call, its beginning and how long it took."""

    def __init__(self) -> None:
        self._last = _EPOCH
        self._begun: dict[tuple[str, str], datetime] = {}

    def sealed(self, row: Checkpoint) -> datetime:
        self._last = row.created_at.astimezone(UTC)
        return self._last

    def journaled(self, path: str, outcome: Outcome) -> datetime:
        match outcome:
            case CallStarted():
                self._last = self._begun[path, outcome.id] = (outcome.at or self._last).astimezone(UTC)
            case CallSettled() | CallFailed():
                begun = self._begun.pop((path, outcome.id), self._last)
                self._last = max(self._last, later(begun, milliseconds=outcome.elapsed))
            case _:
                pass
        return self._last


# What is given


def _checked_bound(max_events: object) -> int:
    if not is_count(max_events) or max_events == 0:
        raise ConfigurationError(f"max_events is a number of entries, 1 or more, not {quoted(max_events)}")
    return max_events


def _types(given: Any) -> frozenset[str] | None:
    if given is None:
        return None
    types = [given] if isinstance(given, str) else given
    if not is_series(types):
        raise ConfigurationError(f"the type of an entry is text, or several of them, not {type(given).__name__}")
    for each in types:
        if each not in TYPES:
            raise ConfigurationError(f"no entry is of type {quoted_word(each)}: there are {', '.join(TYPES)}")
    return frozenset(types)


def _text(name: str, given: str | None) -> str | None:
    """The text, cleaned as what it is looked for in."""
    if given is None:
        return None
    if not isinstance(given, str):
        raise ConfigurationError(f"{name} is text, or None, not {type(given).__name__}")
    return clean(given)


def _moment(name: str, given: datetime | float | None, otherwise: float) -> float:
    if given is None:
        return otherwise
    if isinstance(given, datetime):
        if given.utcoffset() is not None:
            return given.timestamp()
    elif is_number(given):
        return float(given)
    raise ConfigurationError(f"{name} is a datetime with a time zone, or seconds since the epoch, not {quoted(given)}")


def _entry(place: int, given: object) -> TimelineEntry:
    try:
        return TimelineEntry.model_validate_json(json.dumps(given))
    except ValueError as error:
        raise ConfigurationError(f"entry {place} of the timeline is malformed: {explain(error)}") from None


def _same_row(one: TimelineEntry, other: TimelineEntry) -> bool:
    return (one.branch_id, one.seq, one.checkpoint_id) == (other.branch_id, other.seq, other.checkpoint_id)
