"""What people have written to the bot, kept in the store: a small document for each message, and a note for each that is not over.

The key of a message is made of its delivery, so a message that a platform sends twice is one document, and has one run, whose id is
made of the same key. A note stands in the queue of its thread until nothing more is to be begun or said. It says when to look again.

A message is written first, then its note. If a process dies between the two, the platform has had no answer, and sends the message
again. A message that is over loses its text, and is known for some days more: so late repetitions do nothing.

Documents of messages, one sentence a version: 1. The first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import field, replace
from typing import Any, Final

from phronomy.errors import StoreError
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, parse
from phronomy.records.principals import Principal
from phronomy.stores.base import Store
from phronomy.stores.rows import Behind, Document

MESSAGE: Final = "chat-message"
QUEUE: Final = "chat-queue"
"""The kinds of document: of a message, and of a note in the queue of a thread."""

_VERSION: Final = 1
_KEPT: Final = 400 * 86_400.0
_OVER: Final = 14 * 86_400.0
"""Seconds for which a message is known since its last change, and since it is over."""
_PAGE: Final = 500
_TRIES: Final = 200
_PREFIX: Final = "run_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What somebody has written to the bot, and how far it has come.

    `who` is the requester of its run. `begun` says that there is a run, and `over` that nothing more is to be done. `said` counts the
    parts of the answer that were posted, and `told` names what else was. `owner` posts something now, until the time `until`.
    """

    channel: str
    alias: str
    delivery: str
    thread: str
    to: str
    at: float
    who: str = field(repr=False)
    text: str = field(repr=False)
    begun: bool = False
    over: bool = False
    said: int = 0
    told: tuple[str, ...] = ()
    owner: str = ""
    until: float = 0.0
    tries: int = 0

    @property
    def key(self) -> str:
        """The key of its document."""
        return hashlib.sha256(f"{self.channel}\n{self.delivery}".encode("utf-8", "surrogatepass")).hexdigest()[:24]

    @property
    def run_id(self) -> str:
        """The id of its run."""
        return _PREFIX + self.key

    @property
    def thread_id(self) -> str:
        """The thread of its run."""
        return f"{self.channel}:{self.thread}"

    @property
    def place(self) -> str:
        """Where the answer goes, as `ChatApprovals` names places."""
        return f"{self.channel}:{self.to}"

    @property
    def requester(self) -> Principal:
        """Who has written it."""
        return Principal.model_validate_json(self.who)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note that a message is not over. It is looked at again at the time `due`, or later."""

    document: Document
    due: float

    @property
    def message(self) -> str:
        """The key of the message."""
        return self.document.key.rpartition("-")[2]


class Messages:
    """The messages of a store, and the queues in which they wait."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def get(self, key: str) -> Message | None:
        """A message; None if there is none. One that cannot be read is as good as none."""
        found = self.store.get_document(MESSAGE, key)
        return _read(found.text) if found is not None else None

    def of_run(self, run_id: str) -> Message | None:
        """The message that a run was begun for; None if the run is none of a bot."""
        return self.get(run_id.removeprefix(_PREFIX)) if run_id.startswith(_PREFIX) else None

    def add(self, message: Message) -> None:
        """Write a message, and its note, unless it is there; that of a message which is over is not written again."""
        try:
            self.store.put_document(self._document(message, ""))
        except Behind:
            found = self.get(message.key)
            if found is None or found.over:
                return
            message = found  # the time in the key of its note is that of the first delivery
        now = self.store.clock()
        note = Document(kind=QUEUE, key=_note_key(message), text="0.0", expires_at=now + _KEPT)
        try:
            self.store.put_document(note)
        except Behind:
            return

    def change(self, key: str, how: Callable[[Message], Message | None]) -> Message | None:
        """Change a message by compare-and-set, and return it. If `how` returns None, nothing is written; so it is if there is none."""
        for _ in range(_TRIES):
            found = self.store.get_document(MESSAGE, key)
            before = _read(found.text) if found is not None else None
            after = how(before) if before is not None else None
            if found is None or after is None:
                return None
            if after == before:
                return after
            try:
                self.store.put_document(self._document(after, found.version))
            except Behind:
                continue
            return after
        raise StoreError(f"the document of message {key[:100]} changes all the time")

    def queues(self) -> list[list[Note]]:
        """The notes of each thread, oldest first."""
        found: dict[str, list[Note]] = {}
        after: str | None = None
        while True:
            page = self.store.select_documents(QUEUE, after=after, limit=_PAGE)
            for document in page:
                found.setdefault(document.key.partition("/")[0], []).append(_note(document))
            if len(page) < _PAGE:
                return [*found.values()]
            after = page[-1].key

    def queue(self, thread_id: str) -> list[Note]:
        """The notes of one thread, oldest first."""
        lane = _lane_of(thread_id)
        found = self.store.select_documents(QUEUE, after=f"{lane}/", limit=_PAGE)
        return [_note(document) for document in found if document.key.startswith(f"{lane}/")]

    def put_off(self, note: Note, due: float) -> None:
        """Look at a message again at that time. Somebody who has called for a look meanwhile goes before."""
        if note.due == due:
            return
        try:
            self.store.put_document(replace(note.document, text=repr(due)))
        except Behind:
            return

    def finish(self, note: Note) -> None:
        """Take a note away."""
        self.store.delete_document(QUEUE, note.document.key)

    def call_for(self, run_id: str) -> bool:
        """Have the message of a run looked at now; returns whether the run is one of a bot."""
        message = self.of_run(run_id)
        if message is None:
            return False
        for _ in range(_TRIES):
            found = self.store.get_document(QUEUE, _note_key(message))
            if found is None:  # it is over
                return True
            try:
                self.store.put_document(replace(found, text="0.0"))
            except Behind:
                continue
            return True
        raise StoreError(f"the note of message {message.key} changes all the time")

    def _document(self, message: Message, version: str) -> Document:
        row = {name: getattr(message, name) for name in Message.__dataclass_fields__}
        text = json.dumps({"version": _VERSION, **row}, ensure_ascii=False)
        kept = _OVER if message.over else _KEPT
        return Document(kind=MESSAGE, key=message.key, text=text, version=version, expires_at=self.store.clock() + kept)


def _lane_of(thread_id: str) -> str:
    return hashlib.sha256(thread_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _note_key(message: Message) -> str:
    # By thread, then in the order in which they came, and no two alike.
    return f"{_lane_of(message.thread_id)}/{message.at:017.6f}-{message.key}"


def _note(document: Document) -> Note:
    try:
        return Note(document=document, due=float(document.text))
    except ValueError:
        return Note(document=document, due=0.0)


def _read(text: str) -> Message | None:
    """The message that a document says; None if it says none, as one of a later release may."""
    try:
        row: Any = parse(text)
        if not isinstance(row, dict) or row.pop("version", None) != _VERSION:
            return None
        row["told"] = tuple(str(each) for each in row["told"])
        return Message(**row)
    except (JsonError, TypeError, KeyError):
        return None
