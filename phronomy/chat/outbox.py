"""The outbox: sends what is to be posted and edited, at least once, as fast as each platform takes it.

Any number of processes may send at the same time. Whoever sends a post owns it until a time, in the post's own document. What a process
has not recorded as sent when it dies is sent again by another, once that time is over: a post can then be there twice, and both lead to
one request. Each message says what is in the store when it is sent.

If a process is held up for so long that it no longer owns a post, it may have sent something older than another process did meanwhile.
It notices that when it records what it has sent, and asks for one more edit. So what stays is the newest.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Final

from phronomy.chat.cards import digest_card, shown_hash
from phronomy.chat.channel import Card, Channel, ChannelRefused, Pace, RateLimited, Work
from phronomy.chat.posts import Post, Posts, Todo
from phronomy.foundation.dataclasses import dataclass

_log = logging.getLogger("phronomy")

_OWNED: Final = 60.0
"""Seconds for which a process owns what it sends. No channel may wait that long for its platform."""
_LONGEST: Final = 300.0
"""Seconds between two tries at most."""
_TRIES: Final = 100
"""So often is tried what the platform refuses: for some eight hours."""
_MOST_REFS: Final = 10
_BATCH: Final = "batch-"
_ALL: Final = 2_000
"""The most requests for which one message stands."""


@dataclass(slots=True, kw_only=True)
class Pass:
    """What came of one look into the outbox: messages `sent`, things that are `left`, and when the next of them is due.

    `blocked` are the lanes that take nothing more now. What is left there is not counted one by one.
    """

    sent: int = 0
    left: int = 0
    due: float | None = None
    blocked: set[str] = field(default_factory=set)

    def leave(self, due: float) -> None:
        """Something stays to be done, at this time at the earliest."""
        self.left += 1
        self.due = due if self.due is None else min(self.due, due)


class Outbox:
    """Sends what is to be posted and edited. `ChatApprovals.outbox` is one; have a worker call `run`, or a timer `run_once`."""

    def __init__(
        self,
        posts: Posts,
        channels: Mapping[str, Channel],
        card: Callable[[Post], Card],
        *,
        digest_above: int | None = None,
        inbox_url: str | None = None,
    ) -> None:
        self._posts = posts
        self._channels = channels
        self._card = card
        self._above = digest_above if inbox_url is not None else None
        self._inbox = inbox_url or ""
        self._bell = threading.Event()

    def wake(self) -> None:
        """Have `run` look at once. Safe to call from any thread."""
        self._bell.set()

    def run(self, stop: threading.Event, *, poll: float = 1.0) -> None:
        """Send until `stop` is set, and look every `poll` seconds. A store that fails is logged, and looked into again."""
        while not stop.is_set():
            self._bell.clear()
            due: float | None = None
            try:
                due = self.run_once().due
            except Exception as error:
                _log.error("the outbox of the chat could not be read: %s", type(error).__name__)
            wait = poll if due is None else min(max(due - self._posts.store.clock(), 0.01), poll)
            self._bell.wait(wait)

    def run_once(self) -> Pass:
        """Send what is due now and what the platforms take now. Raises `StoreError`; what was not sent stays."""
        if self._above is not None:
            self._batch(self._above)
        done = Pass()
        for todo in self._posts.todos(done.blocked.__contains__):
            self._try(todo, done)
        return done

    def send(self, todos: Iterable[Todo]) -> Pass:
        """Send some of what is to be done. Raises `StoreError`."""
        done = Pass()
        for todo in todos:
            self._try(todo, done)
        return done

    # One thing to do

    def _try(self, todo: Todo, done: Pass) -> None:
        if todo.due > self._posts.store.clock():
            done.leave(todo.due)
        else:
            self._do(todo, done)

    def _do(self, todo: Todo, done: Pass) -> None:
        while True:
            found = self._posts.get(todo.post)
            if found is None or found[0].is_done:
                self._posts.finish(todo)
                return
            post = found[0]
            now = self._posts.store.clock()
            if post.owner and post.until > now:
                done.leave(post.until)
                return
            channel = self._channels.get(post.channel)
            if channel is None:  # another process has it
                done.leave(now + _OWNED)
                return
            work: Work = "remind" if post.sent >= post.wanted else "update" if post.refs else "post"
            card = self._card_of(post)
            # Nobody needs to hear of what is decided already; an edit that changes nothing is none.
            is_late = work == "post" and card.state != "waits" and not post.count
            if is_late or (work == "update" and shown_hash(card) == post.shown and not post.tries):
                self._posts.change(todo.post, lambda now, seen=post.wanted: replace(now, sent=max(now.sent, seen)))  # type: ignore[misc]
                continue
            pace = channel.pace(work, post.to)
            free = self._posts.take_turn(f"{post.channel}/{pace.lane}", pace.seconds)
            if free:
                done.blocked.add(todo.lane)
                done.leave(free)
                return
            if not self._work(todo, post, work, card, channel, pace, done):
                return

    def _work(self, todo: Todo, post: Post, work: Work, card: Card, channel: Channel, pace: Pace, done: Pass) -> bool:
        """Send one message; whether to go on with this post."""
        owner = secrets.token_hex(8)
        mine = self._posts.change(todo.post, lambda now: self._claimed(now, post, owner))
        if mine is None:  # somebody else has just begun
            done.leave(self._posts.store.clock() + 1)
            return False
        key = hashlib.sha256(f"{todo.post}:{post.at}".encode()).hexdigest()[:24]
        try:
            new = self._perform(channel, work, post, card, key)
        except RateLimited as error:
            self._posts.hold_lane(f"{post.channel}/{pace.lane}", error.seconds)
            self._posts.change(todo.post, lambda now: _let_go(now, owner))
            done.blocked.add(todo.lane)
            done.leave(self._posts.store.clock() + error.seconds)
            return False
        except ChannelRefused as error:
            _log.error("%s refuses to %s about %s: %s", channel.name, work, post.pending_id, error)
            if (error.gone and work != "post") or mine.tries >= _TRIES:
                # A message that somebody has deleted is not posted anew: they wanted it away.
                said = str(error)[:200]
                self._posts.change(todo.post, lambda now: replace(_let_go(now, owner), failed=said))
                return True
            # The bot may be invited into the channel meanwhile, or get another token.
            self._later(todo, mine, done, _LONGEST)
            return False
        except Exception as error:
            _log.warning("%s could not %s about %s: %s", channel.name, work, post.pending_id, type(error).__name__)
            self._later(todo, mine, done, min(2.0 ** min(mine.tries, 10), _LONGEST))
            return False
        self._recorded(todo, mine, work, new, card)
        done.sent += 1
        return True

    def _perform(self, channel: Channel, work: Work, post: Post, card: Card, key: str) -> str | None:
        if work == "post":
            return channel.post(post.to, card, key=key)
        if work == "remind":
            channel.remind(post.refs[0], card)
            return None
        gone = 0
        for ref in post.refs:
            try:
                channel.update(ref, card)
            except ChannelRefused as error:
                gone += 1
                if not error.gone or gone == len(post.refs):
                    raise
        return None

    def _claimed(self, now: Post, seen: Post, owner: str) -> Post | None:
        """The post as it is owned from now on; None if it is not any more as it was seen."""
        time = self._posts.store.clock()
        as_seen = (now.refs, now.sent, now.reminded) == (seen.refs, seen.sent, seen.reminded)
        if (now.owner and now.until > time) or now.is_done or not as_seen:
            return None
        return replace(now, owner=owner, until=time + _OWNED)

    def _later(self, todo: Todo, mine: Post, done: Pass, seconds: float) -> None:
        """Leave a post that could not be sent for a while."""
        due = self._posts.store.clock() + seconds
        self._posts.change(todo.post, lambda now: replace(_let_go(now, mine.owner), tries=now.tries + 1))
        self._posts.put_off(todo, due)
        done.leave(due)

    def _recorded(self, todo: Todo, mine: Post, work: Work, ref: str | None, card: Card) -> None:
        """Note what was sent."""

        def sent(now: Post) -> Post:
            refs = (*now.refs, ref)[:_MOST_REFS] if ref is not None and ref not in now.refs else now.refs
            if now.owner != mine.owner:
                # Too late: somebody else has sent since, perhaps something newer than this. One more edit puts it right.
                return replace(now, refs=refs, wanted=now.wanted + 1, shown="")
            now = replace(_let_go(now, mine.owner), refs=refs, tries=0)
            if work == "remind":
                return replace(now, reminded=max(now.reminded, mine.remind))
            seen = mine.remind if work == "post" else now.reminded  # a new message needs no reminder at once
            return replace(
                now,
                sent=mine.wanted,
                shown=shown_hash(card),
                over=card.state == "over",
                reminded=max(seen, now.reminded),
            )

        changed = self._posts.change(todo.post, sent)
        if changed is not None and not changed.is_done:
            self._posts.note(todo.post, changed)

    def _card_of(self, post: Post) -> Card:
        if post.count:
            return digest_card(post.count, self._inbox, datetime.fromtimestamp(self._posts.store.clock(), UTC))
        return self._card(post)

    # Many things to do

    def _batch(self, most: int) -> None:
        """Have one message stand for all first messages of a place, if it is to get more of them at once than that."""
        for lane in [*self._posts.lanes()]:
            if len(self._posts.in_lane(lane, most + 1)) <= most:
                continue
            posts: dict[str, list[Todo]] = {}
            for todo in self._posts.in_lane(lane, _ALL):
                if todo.first and not todo.post.startswith(_BATCH):
                    posts.setdefault(todo.post, []).append(todo)
            at = next((todos[0].at for todos in posts.values()), "")
            if len(posts) > most and at.partition(":")[0] in self._channels:
                self._put_together(posts, at)

    def _put_together(self, posts: dict[str, list[Todo]], at: str) -> None:
        # Named by the oldest, which is marked last: if this process dies between, the next one goes on with the same batch.
        batch = _BATCH + hashlib.sha256(next(iter(posts)).encode()).hexdigest()[:32]
        post = Post(pending_id=batch, at=at, title="requests wait", count=len(posts))
        self._posts.add(batch, post)
        self._posts.note(batch, post)
        for key, todos in reversed(posts.items()):
            self._posts.change(key, lambda now: now if now.refs or now.owner else replace(now, batch=batch))
            found = self._posts.get(key)
            if found is None or found[0].is_done:
                for todo in todos:
                    self._posts.finish(todo)


def _let_go(now: Post, owner: str) -> Post:
    return replace(now, owner="", until=0.0) if now.owner == owner else now
