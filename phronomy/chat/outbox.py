"""The outbox: sends what is to be posted and edited, at least once, as fast as each platform takes it.

Any number of processes may send at the same time. Whoever sends a post owns it until a time, in the post's own document. What a process
has not recorded as sent when it dies is sent again by another, once that time is over: a post can then be there twice, and both lead to
one request. Each message says what is in the store when it is sent.

Most platforms are tried again without end, and a channel can have a schedule of its own (`Pace.retries`). What has failed for good
stays in its post, with the reason: `Outbox.failed` lists it, and `Outbox.retry` has it be tried again.

If a process is held up for so long that it no longer owns a post, it may have sent something older than another process did meanwhile.
It notices that when it records what it has sent, and asks for one more edit. So what stays is the newest.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Final

from phronomy.chat.background import Background, Pass
from phronomy.chat.cards import digest_card, shown_hash
from phronomy.chat.channel import Card, Channel, ChannelError, ChannelRefused, Pace, RateLimited, Work
from phronomy.chat.posts import Post, Posts, Todo
from phronomy.chat.routes import APPROVERS
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import quoted_id

_log = logging.getLogger("phronomy")

_OWNED: Final = 60.0
"""Seconds for which a process owns what it sends. No channel may wait that long for its platform."""
_LONGEST: Final = 300.0
"""Seconds between two tries at most."""
_TRIES: Final = 100
"""So often is tried what the platform refuses: for some eight hours."""
_SPREAD: Final = 0.1
"""The part by which a time of a schedule is lengthened at most, so that not all is tried at once that has failed at once."""
_MOST_REFS: Final = 10
_MOST_LEFT: Final = 100
"""Channels about which is warned that they are not here."""
_BATCH: Final = "batch-"
_ALL: Final = 2_000
"""The most requests for which one message stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """A message that is not tried any more: about the request `pending_id`, in the place `at`, with `title`. `key` is its own.

    It has failed for good at the time `failed_at`, after so many `tries`, and `why` is the last reason.
    """

    key: str
    pending_id: str
    at: str
    title: str = field(repr=False)
    failed_at: datetime
    tries: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delayed:
    """A message that could not be sent yet: `why` not at the last of so many `tries`, and the next one is at `next_at`.

    The other fields are those of `Undelivered`.
    """

    key: str
    pending_id: str
    at: str
    next_at: datetime
    tries: int
    why: str


def delayed(posts: Posts, channel: str | None = None) -> list[Delayed]:
    """What could not be sent yet, by the time of the next try; in one channel, if it is named."""
    found = sorted(posts.delayed(channel), key=lambda each: (each[1].next_at, each[0]))
    return [
        Delayed(
            key=key,
            pending_id=post.pending_id,
            at=post.at,
            next_at=datetime.fromtimestamp(post.next_at, UTC),
            tries=post.tries,
            why=post.why,
        )
        for key, post in found
    ]


def undelivered(posts: Posts, channel: str | None = None) -> list[Undelivered]:
    """What has failed for good, oldest first; in one channel, if it is named."""
    found = sorted(posts.failed(channel), key=lambda each: (each[1].failed_at, each[0]))
    return [
        Undelivered(
            key=key,
            pending_id=post.pending_id,
            at=post.at,
            title=post.title,
            failed_at=datetime.fromtimestamp(post.failed_at, UTC),
            tries=post.tries,
            why=post.failed,
        )
        for key, post in found
    ]


class Outbox(Background):
    """Sends what is to be posted and edited. `ChatApprovals.outbox` is one; have a worker call `run`, or a timer `run_once`."""

    def __init__(
        self,
        posts: Posts,
        channels: Mapping[str, Channel],
        card: Callable[[Post], Card],
        *,
        digest_above: int | None = None,
        inbox_url: str | None = None,
        reach: Callable[[Post], str],
    ) -> None:
        super().__init__("phronomy-chat", "the outbox of the chat", posts.store)
        self._posts = posts
        self._channels = channels
        self._card = card
        self._above = digest_above if inbox_url is not None else None
        self._inbox = inbox_url or ""
        self._reach = reach
        self._left: set[str] = set()

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

    def failed(self, channel: str | None = None) -> list[Undelivered]:
        """What has failed for good, oldest first; in one channel, if it is named. Raises `StoreError`."""
        return undelivered(self._posts, channel)

    def retry(self, message: Undelivered) -> bool:
        """Have something that has failed for good be tried again, by its whole schedule; returns whether it was still there.

        What is sent says what is so by then. Raises `StoreError`.
        """
        found = self._posts.retry(message.key)
        self.wake()
        return found

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
            if post.channel == APPROVERS:
                self._find(todo, post, done)
                continue
            channel = self._channels.get(post.channel)
            if channel is None:  # another process has it
                self._say_left(post.channel)
                done.leave(now + _OWNED)
                return
            work: Work = "remind" if post.sent >= post.wanted else "update" if post.refs else "post"
            try:
                card = self._card_of(post)
            except Exception as error:
                # One request that cannot be read must not keep all others from being posted. If the store fails, so does the next line.
                _log.error("the message about %s could not be made: %s", post.pending_id, type(error).__name__)
                self._later(todo, post, done, min(2.0 ** min(post.tries, 10), _LONGEST), error)
                return
            # Nobody needs to hear of what is decided already, unless it may have been posted; an edit that changes nothing is none.
            is_late = work == "post" and (card.state != "waits" or card.quiet) and not post.count and not post.doubtful
            if is_late or (work == "update" and shown_hash(card) == post.shown and not post.tries):
                self._posts.change(todo.post, lambda now, seen=post.wanted: replace(now, sent=max(now.sent, seen)))  # type: ignore[misc]
                continue
            if work == "remind" and card.quiet:
                self._posts.change(todo.post, lambda now: replace(now, reminded=now.remind))
                continue
            pace = channel.pace(work, post.to)
            free = self._posts.take_turn(f"{post.channel}/{pace.lane}", pace.seconds)
            if free:
                done.blocked.add(todo.lane)
                done.leave(free)
                return
            if not self._work(todo, post, work, card, channel, pace, done):
                return

    def _find(self, todo: Todo, post: Post, done: Pass) -> None:
        """Look once more for a place of somebody who had none. What has failed is listed as what a platform refuses for good."""
        why, at = self._reach(post), self._posts.store.clock()
        if why:
            _log.warning("nobody is told that they have to decide %s: %s", post.pending_id, why)
        else:
            done.leave(at)  # there may be more to do now

        def looked(now: Post) -> Post:
            if why:
                return replace(now, failed=why, failed_at=at, tries=1)
            return replace(now, sent=now.wanted, reminded=now.remind)

        self._posts.change(todo.post, looked)

    def _say_left(self, channel: str) -> None:
        """Warn, once, that a channel is none of this process: if no other one has it either, nothing is ever posted there."""
        if channel in self._left or len(self._left) >= _MOST_LEFT:
            return
        self._left.add(channel)
        _log.warning(
            "no channel %s here: a message to it is left to a process that has this channel; the channels here are %s",
            quoted_id(channel),
            ", ".join(sorted(self._channels)),
        )

    def _work(self, todo: Todo, post: Post, work: Work, card: Card, channel: Channel, pace: Pace, done: Pass) -> bool:
        """Send one message; whether to go on with this post."""
        owner = secrets.token_hex(8)
        mine = self._posts.change(todo.post, lambda now: self._claimed(now, post, owner, work))
        if mine is None:  # somebody else has just begun
            done.leave(self._posts.store.clock() + 1)
            return False
        key, at = hashlib.sha256(f"{todo.post}:{post.at}".encode()).hexdigest()[:24], quoted_id(post.at)
        try:
            version = mine.remind if work == "remind" else mine.wanted
            new = self._perform(channel, work, post, replace(card, version=version), key)
        except RateLimited as error:
            self._undoubted(todo, post, mine)
            self._posts.hold_lane(f"{post.channel}/{pace.lane}", error.seconds)
            if pace.retries:
                done.blocked.add(todo.lane)
                return self._by_schedule(todo, mine, pace, done, error)
            self._release(todo, mine, tries=0)
            done.blocked.add(todo.lane)
            done.leave(self._posts.store.clock() + error.seconds)
            return False
        except ChannelRefused as error:
            _log.error("%s refuses to %s about %s in %s: %s", channel.name, work, post.pending_id, at, _said(error))
            self._undoubted(todo, post, mine)
            if work == "remind" and not pace.retries and (error.final or error.gone or mine.tries >= _TRIES):
                # The message itself may still be edited, and has to say what was decided.
                self._posts.change(todo.post, lambda now: _not_reminded(now, mine))
                return True
            if error.final or (error.gone and work != "post") or (mine.tries >= _TRIES and not pace.retries):
                # A message that somebody has deleted is not posted anew: they wanted it away.
                self._give_up(todo, mine, error)
                return True
            if pace.retries:
                return self._by_schedule(todo, mine, pace, done, error)
            # The bot may be invited into the channel meanwhile, or get another token.
            self._later(todo, mine, done, _LONGEST, error)
            return False
        except Exception as error:
            _log.warning("%s could not %s about %s in %s: %s", channel.name, work, post.pending_id, at, _said(error))
            if pace.retries:
                return self._by_schedule(todo, mine, pace, done, error)
            self._later(todo, mine, done, min(2.0 ** min(mine.tries, 10), _LONGEST), error)
            return False
        self._recorded(todo, post, mine, work, new, card)
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

    def _claimed(self, now: Post, seen: Post, owner: str, work: Work) -> Post | None:
        """The post as it is owned from now on; None if it is not any more as it was seen."""
        time = self._posts.store.clock()
        as_seen = (now.refs, now.sent, now.reminded) == (seen.refs, seen.sent, seen.reminded)
        if (now.owner and now.until > time) or now.is_done or not as_seen:
            return None
        # If this process dies, nobody knows whether the edit has arrived.
        shown = "" if work == "update" else now.shown
        return replace(now, owner=owner, until=time + _OWNED, shown=shown, doubtful=now.doubtful or work == "post")

    def _undoubted(self, todo: Todo, before: Post, mine: Post) -> None:
        """Note that this try has posted nothing: the platform has said so."""
        if mine.doubtful != before.doubtful:
            self._posts.change(
                todo.post, lambda now: replace(now, doubtful=before.doubtful) if now.owner == mine.owner else now
            )

    def _by_schedule(self, todo: Todo, mine: Post, pace: Pace, done: Pass, error: Exception) -> bool:
        """Leave a post until the next time of the channel's schedule, or for good after the last; whether to go on with it."""
        if mine.tries >= len(pace.retries):
            _log.error("%s has failed for good about %s: %s", mine.channel, mine.pending_id, _said(error))
            self._give_up(todo, mine, error)
            return True
        # By the post and the try, so that it needs no chance.
        part = hashlib.sha256(f"{todo.post}:{mine.tries}".encode("utf-8", "surrogatepass")).digest()[0] / 255
        seconds = pace.retries[mine.tries] * (1 + _SPREAD * part)
        self._later(todo, mine, done, max(seconds, error.seconds if isinstance(error, RateLimited) else 0.0), error)
        return False

    def _give_up(self, todo: Todo, mine: Post, error: Exception) -> None:
        """Leave a post for good."""
        said, at = _said(error), self._posts.store.clock()

        def given_up(now: Post) -> Post:
            if now.owner != mine.owner:  # somebody else tries by now
                return now
            return replace(_let_go(now, mine.owner), failed=said, failed_at=at, tries=mine.tries + 1)

        self._posts.change(todo.post, given_up)

    def _later(self, todo: Todo, mine: Post, done: Pass, seconds: float, error: Exception) -> None:
        """Leave a post that could not be sent for a while."""
        due = self._posts.store.clock() + seconds
        self._release(todo, mine, tries=1, why=_said(error), next_at=due)
        self._posts.put_off(todo, due)
        done.leave(due)

    def _release(self, todo: Todo, mine: Post, *, tries: int, why: str = "", next_at: float = 0.0) -> None:
        """Own a post no longer that could not be sent, after so many more tries, and until when it is left."""
        late: list[bool] = []

        def released(now: Post) -> Post:
            late.append(now.owner != mine.owner)
            if late[-1]:
                # Somebody else has sent since, and what got no answer may have come after that, over something newer.
                return replace(now, wanted=now.wanted + 1, shown="", tries=now.tries + tries)
            return replace(_let_go(now, mine.owner), tries=now.tries + tries, why=why, next_at=next_at)

        changed = self._posts.change(todo.post, released)
        if changed is not None and late[-1] and not changed.is_done:
            self._posts.note(todo.post, changed)

    def _recorded(self, todo: Todo, seen: Post, mine: Post, work: Work, ref: str | None, card: Card) -> None:
        """Note what was sent. `seen` is the post as it was when the message was made, and `mine` as it was claimed."""

        def sent(now: Post) -> Post:
            refs = (*now.refs, ref)[:_MOST_REFS] if ref is not None and ref not in now.refs else now.refs
            if now.owner != mine.owner:
                # Too late: somebody else has sent since, perhaps something newer than this. One more edit puts it right.
                return replace(now, refs=refs, wanted=now.wanted + 1, shown="")
            now = replace(_let_go(now, mine.owner), refs=refs, tries=0, why="", next_at=0.0)
            if work == "remind":
                return replace(now, reminded=max(now.reminded, seen.remind))
            told = seen.remind if work == "post" else now.reminded  # a new message needs no reminder at once
            return replace(
                now,
                # Not what was wanted at the claim: something may have changed since the message was made.
                sent=seen.wanted,
                shown=shown_hash(card),
                over=card.state == "over",
                reminded=max(told, now.reminded),
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
            channel, _, to = at.partition(":")
            if len(posts) > most and channel in self._channels and self._channels[channel].pace("post", to).batches:
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


def _said(error: Exception) -> str:
    """What went wrong: errors of channels quote nothing that was sent, others might."""
    return str(error)[:200] if isinstance(error, ChannelError) else type(error).__name__


def _not_reminded(now: Post, mine: Post) -> Post:
    """The post without the reminder that the platform refuses."""
    return replace(_let_go(now, mine.owner), reminded=max(now.reminded, mine.remind), tries=0)


def _let_go(now: Post, owner: str) -> Post:
    return replace(now, owner="", until=0.0) if now.owner == owner else now
