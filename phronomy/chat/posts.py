"""What is to be posted and edited, kept in the store: one small document for each post, and one for each thing that is to be done.

A post says what is **wanted** and what was **sent**, as two numbers, and holds no text. What a message says is read from the store at
the moment in which it is sent. So of many changes only the newest is sent, and nothing old can be sent late.

A change is written to the post first, and then noted as something to do, under a key of its own. Whoever sends reads the note, then the
post. A note without a change costs a read. A change without a note happens only if a process dies between the two writes; the process
had not reported the change as announced, so it is announced once more.

Documents of posts, one sentence a version: 1. The first.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any, Final, Literal

from phronomy.errors import StoreError
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, parse
from phronomy.stores.base import Store
from phronomy.stores.rows import Behind, Document

POST: Final = "chat-post"
TODO: Final = "chat-todo"
LANE: Final = "chat-lane"
"""The kinds of document: of a post, of something to do, and of when a platform takes the next message."""

_VERSION: Final = 1
_KEPT: Final = 400 * 86_400.0
_OVER: Final = 14 * 86_400.0
"""Seconds for which a post is known since its last change, and since the change that is the last one."""
_PAGE: Final = 50
_END: Final = "/~"
"""What comes after all keys of a lane."""
_TRIES: Final = 200
_MOST: Final = 2_000
"""The notes of a lane among which that of one post is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A message about a request in one place of a channel.

    `person` is the id of whoever it was for when it was noted, in a channel whose places are of one person each.
    `asks` says that it tells people that it is their turn: those in the place by a mention, or `person` alone.
    `refs` are the messages: one, or more if a platform has posted twice. `remind` and `reminded` count the reminders,
    and `asked` those of them that somebody has asked for by a button.
    `batch` is the post that stands for it and others. `owner` sends it now, until the time `until`. `tries` are those that have failed
    since something was sent, the last one because of `why`; the next one is at `next_at`. `doubtful`: somebody has begun to post it,
    and nobody knows whether it is there. `failed` says why it is not tried any more, since the time `failed_at`.
    """

    pending_id: str
    at: str
    title: str = ""
    person: str = ""
    asks: Literal["", "mention", "alone"] = ""
    wanted: int = 1
    sent: int = 0
    refs: tuple[str, ...] = ()
    shown: str = ""
    remind: int = 0
    reminded: int = 0
    asked: int = 0
    batch: str = ""
    count: int = 0
    failed: str = ""
    failed_at: float = 0.0
    owner: str = ""
    until: float = 0.0
    tries: int = 0
    doubtful: bool = False
    why: str = ""
    next_at: float = 0.0
    over: bool = False

    @property
    def channel(self) -> str:
        """The name of the channel."""
        return self.at.partition(":")[0]

    @property
    def to(self) -> str:
        """The place in the channel."""
        return self.at.partition(":")[2]

    @property
    def is_done(self) -> bool:
        """Whether nothing is to be sent."""
        return bool(self.batch or self.failed) or (self.sent >= self.wanted and self.reminded >= self.remind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Todo:
    """A note that something is to be done about a post, not before the time `due`."""

    key: str
    post: str
    at: str
    first: bool
    due: float

    @property
    def lane(self) -> str:
        """What is sent one after the other: the first messages in one place, or the edits there."""
        return self.key.partition("/")[0]


class Posts:
    """The posts of a store, and what is to be done about them."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def get(self, key: str) -> tuple[Post, Document] | None:
        """A post and its document, None if there is none. One that cannot be read is as good as none."""
        found = self.store.get_document(POST, key)
        post = _read(found.text) if found is not None else None
        return (post, found) if post is not None and found is not None else None

    def of(self, pending_id: str) -> Iterator[tuple[str, Post]]:
        """The posts about a request, in all channels."""
        after = start = f"{pending_id}/"
        while page := self.store.select_documents(POST, after=after, limit=_PAGE):
            for document in page:
                after = document.key
                if not after.startswith(start):
                    return
                if (post := _read(document.text)) is not None:
                    yield after, post

    def failed(self, channel: str | None = None) -> Iterator[tuple[str, Post]]:
        """The posts that have failed for good, in the order of their keys; of one channel, if it is named."""
        return (each for each in self._in(channel) if each[1].failed)

    def delayed(self, channel: str | None = None) -> Iterator[tuple[str, Post]]:
        """The posts that could not be sent yet, and are tried again, in the order of their keys; of one channel, if it is named."""
        return (each for each in self._in(channel) if each[1].tries and not each[1].is_done)

    def _in(self, channel: str | None) -> Iterator[tuple[str, Post]]:
        after: str | None = None
        while page := self.store.select_documents(POST, after=after, limit=_PAGE):
            for document in page:
                after = document.key
                post = _read(document.text)
                if post is not None and channel in (None, post.channel):
                    yield after, post

    def hasten(self, key: str) -> bool:
        """Have a post that could not be sent yet be tried at once; returns whether there is such a post."""
        had: list[bool] = []

        def anew(now: Post) -> Post:
            had.append(bool(now.tries) and not now.is_done)
            return replace(now, tries=0, next_at=0.0) if had[-1] else now

        changed = self.change(key, anew)
        if changed is None or not had[-1]:
            return False
        # The note that is there is brought forward: a second one would be tried beside it from now on.
        lanes = [_lane_of(changed.at, first=first) for first in (True, False)]
        if found := [todo for lane in lanes for todo in self.in_lane(lane, _MOST) if todo.post == key]:
            for todo in found:
                self.put_off(todo, 0.0)
        else:
            self.note(key, changed)
        return True

    def retry(self, key: str) -> bool:
        """Have a post that has failed for good be tried again; returns whether it had."""
        had: list[bool] = []

        def anew(now: Post) -> Post:
            had.append(bool(now.failed))
            # What was shown is forgotten: the last try may have arrived or not.
            return replace(now, failed="", failed_at=0.0, tries=0, shown="") if now.failed else now

        changed = self.change(key, anew)
        if changed is None or not had[-1]:
            return False
        if not changed.is_done:
            self.note(key, changed)
        return True

    def add(self, key: str, post: Post) -> bool:
        """Write a post that is not there yet; returns whether it was not."""
        try:
            self.store.put_document(self._document(key, post, ""))
        except Behind:
            return False
        return True

    def change(self, key: str, how: Callable[[Post], Post | None]) -> Post | None:
        """Change a post by compare-and-set, and return it. If `how` returns None, nothing is written; so it is if there is no post."""
        for _ in range(_TRIES):
            found = self.get(key)
            changed = how(found[0]) if found is not None else None
            if found is None or changed is None:
                return None
            if changed == found[0]:
                return changed
            try:
                self.store.put_document(self._document(key, changed, found[1].version))
            except Behind:
                continue
            return changed
        raise StoreError(f"the document of post {key[:100]} changes all the time")

    def note(self, key: str, post: Post, *, due: float = 0.0) -> Todo:
        """Note that something is to be done about a post."""
        now = self.store.clock()
        lane = _lane_of(post.at, first=not post.refs)
        # By lane, then in the order of the times, and no two alike.
        todo = Todo(
            key=f"{lane}/{now:017.6f}-{secrets.token_hex(6)}", post=key, at=post.at, first=not post.refs, due=due
        )
        self.store.put_document(Document(kind=TODO, key=todo.key, text=_todo_text(todo), expires_at=now + _KEPT))
        return todo

    def todos(self, is_blocked: Callable[[str], bool]) -> Iterator[Todo]:
        """What is to be done: lane by lane, in each in the order in which it was noted. The rest of a blocked lane is left out."""
        after: str | None = None
        while True:
            page = self.store.select_documents(TODO, after=after, limit=_PAGE)
            for document in page:
                after = document.key
                if is_blocked(lane := after.partition("/")[0]):
                    after = lane + _END
                    break
                if (todo := _read_todo(document)) is not None:
                    yield todo
            else:
                if len(page) < _PAGE:
                    return

    def lanes(self) -> Iterator[str]:
        """The lanes in which something is to be done."""
        after: str | None = None
        while page := self.store.select_documents(TODO, after=after, limit=1):
            lane = page[0].key.partition("/")[0]
            yield lane
            after = lane + _END

    def in_lane(self, lane: str, limit: int) -> list[Todo]:
        """The first things to do in a lane."""
        found: list[Todo] = []
        for document in self.store.select_documents(TODO, after=f"{lane}/", limit=limit):
            if not document.key.startswith(f"{lane}/"):
                break
            if (todo := _read_todo(document)) is not None:
                found.append(todo)
        return found

    def put_off(self, todo: Todo, due: float) -> None:
        """Have something done no sooner than that."""
        if (found := self.store.get_document(TODO, todo.key)) is None:
            return
        try:
            self.store.put_document(replace(found, text=_todo_text(replace(todo, due=due))))
        except Behind:
            return  # somebody else has just done so

    def finish(self, todo: Todo) -> None:
        """Take a note away. One that was written since is another, and stays."""
        self.store.delete_document(TODO, todo.key)

    def take_turn(self, lane: str, seconds: float) -> float:
        """Take the next turn of a lane: 0 if it is now, else the time at which there may be one."""
        now = self.store.clock()
        key = hashlib.sha256(lane.encode("utf-8", "surrogatepass")).hexdigest()
        found = self.store.get_document(LANE, key)
        free = _number(found.text) if found is not None else 0.0
        if free > now:
            return free
        if self._set_lane(key, found, now + seconds):
            return 0.0
        return now + seconds

    def hold_lane(self, lane: str, seconds: float) -> None:
        """Send nothing in a lane for so long: the platform has asked for that."""
        until = self.store.clock() + seconds
        key = hashlib.sha256(lane.encode("utf-8", "surrogatepass")).hexdigest()
        for _ in range(_TRIES):
            found = self.store.get_document(LANE, key)
            if found is not None and _number(found.text) >= until:
                return
            if self._set_lane(key, found, until):
                return

    def _set_lane(self, key: str, found: Document | None, free: float) -> bool:
        version = found.version if found is not None else ""
        document = Document(kind=LANE, key=key, text=repr(free), version=version, expires_at=free + 86_400.0)
        try:
            self.store.put_document(document)
        except Behind:
            return False
        return True

    def _document(self, key: str, post: Post, version: str) -> Document:
        kept = _OVER if post.over and post.is_done else _KEPT
        text = json.dumps({"version": _VERSION, **asdict(post)}, ensure_ascii=False)
        return Document(kind=POST, key=key, text=text, version=version, expires_at=self.store.clock() + kept)


def post_key(pending_id: str, at: str) -> str:
    """The key of the post about a request in one place."""
    return f"{pending_id}/{at}"


def _lane_of(at: str, *, first: bool) -> str:
    return hashlib.sha256(f"{at}/{first}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _read(text: str) -> Post | None:
    """The post that a document says; None if it says none, as one of a later release may."""
    try:
        row: Any = parse(text)
        if not isinstance(row, dict) or row.pop("version", None) != _VERSION:
            return None
        row["refs"] = tuple(str(each) for each in row["refs"])
        return Post(**row)
    except (JsonError, TypeError, KeyError):
        return None


def _todo_text(todo: Todo) -> str:
    row = {"version": _VERSION, "post": todo.post, "at": todo.at, "first": todo.first, "due": todo.due}
    return json.dumps(row, ensure_ascii=False)


def _read_todo(document: Document) -> Todo | None:
    try:
        row: Any = parse(document.text)
        if row["version"] != _VERSION:
            return None
        return Todo(key=document.key, post=row["post"], at=row["at"], first=bool(row["first"]), due=float(row["due"]))
    except (JsonError, TypeError, KeyError, ValueError):
        return None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
