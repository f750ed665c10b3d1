"""A bot: what people write to it begins runs, and what comes of the runs is said in the same thread.

A message is stored before its platform gets an answer. Then its run is begun, under an id that is made of the message: so each message
has one run, however often it comes, and whoever is killed meanwhile. A worker drives the run. What is to be said is read from the runs
in the store at the moment in which it is said, by any process that has a bot: nothing hangs on the process that took the message.

In a thread one message is looked after at a time, the oldest. The next one begins a run when the run before has ended, or has failed
and the people have been told so. Until then it waits, as phronomy has it: a request that somebody thinks about is not lost because
somebody else writes once more.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard

from phronomy.chat.approvals import ChatApprovals
from phronomy.chat.background import Background, Pass
from phronomy.chat.bot.speech import FAILED, QUEUED, answer_of, in_parts, waits_for
from phronomy.chat.channel import Channel, ChannelRefused, RateLimited, Said, TalkingChannel
from phronomy.chat.deciding import person_behind
from phronomy.chat.http import Response
from phronomy.chat.messages import Message, Messages, Note
from phronomy.chat.posts import post_key
from phronomy.errors import ConfigurationError, ThreadBusy, UnknownPerson
from phronomy.foundation.checks import is_count, is_number
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import clean
from phronomy.foundation.quoting import quoted
from phronomy.foundation.suspicious_letters import escaped
from phronomy.records.principals import Principal
from phronomy.records.scopes import NEEDED, scopes_in
from phronomy.runs.begun import begin_once
from phronomy.runs.runs import Runs
from phronomy.stores.rows import ENDED

if TYPE_CHECKING:
    from phronomy.records.checkpoint import Checkpoint
    from phronomy.stores.rows import Branch

_log = logging.getLogger("phronomy")

AgentOf: TypeAlias = "Runs[Any, Any] | Callable[[Said], Runs[Any, Any]]"
"""Whose runs are begun: an agent, or a function of a message that returns one."""

ScopesOf: TypeAlias = "Iterable[str] | Callable[[Principal], Iterable[str]]"
"""The scopes of the runs: their names, or a function of the requester that returns them."""

_OWNED: Final = 60.0
"""Seconds for which a process owns what it says. No channel may wait that long for its platform."""
_LONGEST: Final = 300.0
"""Seconds between two looks, and between two tries, at most."""
_LOOK: Final = 5.0
"""Seconds between two looks at a run that is driven. Its end is announced, so this is for what is not: failures."""
_GRACE: Final = 3.0
"""Seconds for which a run waits before that is said: somebody may decide at once, and its request is posted first."""
_TRIES: Final = 100
_TEXT: Final = 12_000
"""Characters of a message that is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Speech:
    """Something to be said: `name` tells it from the rest, and `part` is the number of a part of the answer."""

    name: str
    text: str
    part: int | None = None


class ChatBot(Background):
    """Has people talk with an agent in a chat app: `ChatBot(approvals, agent)`. It needs no public state: any process can have one.

    `agent` is an agent or a graph, or a function of a message (`Said`) that returns one. Its store is that of the `approvals`, and the
    approvals are among its announcements. Have a `Worker` drive its runs. A message begins a run whose `thread_id` is the channel, a
    colon and the thread, such as `slack:T1/C1/1700000000.000100`, and whose requester is the person whom the directory of the
    approvals knows. Nobody else begins anything, unless `guests` says so: then the alias is the id of the requester.

    What a run asks for is posted into its thread, if the approvals have no `route`. `queue` is how many messages may wait in a thread.
    `patience` is how many seconds a run has to have failed before people are told: a worker tries it again meanwhile. `scopes` are
    those of the runs, or a function of the requester that returns them; by default there are none.

    Have one process or several talk: `start()`, `run`, or `run_once`. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        approvals: ChatApprovals,
        agent: AgentOf,
        *,
        guests: bool = False,
        queue: int = 20,
        patience: float = 20.0,
        scopes: ScopesOf = (),
    ) -> None:
        if not isinstance(approvals, ChatApprovals):
            raise ConfigurationError(
                "a bot belongs to a ChatApprovals, which takes the messages: write ChatBot(approvals, agent)"
            )
        if not isinstance(agent, Runs) and not callable(agent):
            raise ConfigurationError("agent is an agent or a graph, or a function of a message that returns one")
        if not is_count(queue) or queue < 1:
            raise ConfigurationError(f"queue is a whole number from 1, not {quoted(queue)}")
        if not is_number(patience) or patience < 0:
            raise ConfigurationError(f"patience is a number of seconds, not {quoted(patience)}")
        if not callable(scopes) and (scopes := scopes_in(scopes)) is None:  # type: ignore[assignment]
            raise ConfigurationError(f"scopes is {NEEDED}, or a function of the requester that returns them")
        self._channels: dict[str, TalkingChannel] = {
            name: channel for name, channel in approvals.channels.items() if _talks(channel)
        }
        if not self._channels:
            raise ConfigurationError("no channel of these approvals has the method `say`, so no bot can talk over them")
        super().__init__("phronomy-bot", "the messages of the chat", approvals.store)
        self.approvals: ChatApprovals = approvals
        self._agent = agent
        self._guests = guests
        self._most = queue
        self._patience = patience
        self._scopes = scopes
        self._messages = Messages(self._store)
        self._posts = approvals.posts
        if isinstance(agent, Runs):
            self._check(agent)
        approvals.bot = self

    def __repr__(self) -> str:
        return f"ChatBot({self.approvals!r})"

    # What comes in

    def hear(self, channel: Channel, said: Said) -> Response:
        """Store a message, and acknowledge it. The rest follows in `Response.after`. Raises `StoreError`, with nothing begun."""
        text = clean(said.text).strip()
        if channel.name not in self._channels or not text:
            return channel.acknowledge(said, None)
        person = person_behind(self.approvals.directory, said.alias)
        if person is None and not self._guests:
            who = escaped(said.alias[:100])
            return channel.acknowledge(said, f"Nobody is known here as {who}. Ask whoever runs this to add you.")
        if len(text) > _TEXT:
            return channel.acknowledge(said, f"Your message was not read: it has more than {_TEXT:,} characters.")
        requester = (person or Principal(id=clean(said.alias)[:500])).without_claims()
        message = Message(
            channel=channel.name,
            alias=clean(said.alias)[:500],
            delivery=clean(said.delivery),
            thread=clean(said.thread),
            to=clean(said.to),
            at=self._store.clock(),
            who=requester.model_dump_json(),
            text=text,
        )
        if self._messages.get(message.key) is None and len(self._messages.queue(message.thread_id)) >= self._most:
            return channel.acknowledge(said, "Your message was not read: too many wait in this thread.")
        self._messages.add(message)
        response = channel.acknowledge(said, None)
        first = response.after

        def after() -> None:
            if first is not None:
                first()
            self._look_at(self._messages.queue(message.thread_id), Pass(), called=True)
            self.wake()

        return replace(response, after=after)

    # What goes out

    def run_once(self) -> Pass:
        """Begin and say what is due now: for timers and serverless functions.

        Returns how much was `sent`, how many threads are `left`, and when the next of them is `due`. Raises `StoreError`.
        """
        done = Pass()
        for queue in self._messages.queues():
            self._look_at(queue, done)
        return done

    # One thread of a chat

    def _look_at(self, queue: list[Note], done: Pass, *, called: bool = False) -> None:
        """Look after the messages of a thread, the oldest first. With `called`, also if the next look is due later."""
        if queue and queue[0].due > self._store.clock() and not called:
            done.leave(queue[0].due)
            return
        before: Message | None = None
        left: list[tuple[Note, float]] = []
        for note in queue:
            message = self._messages.get(note.message)
            due = None if message is None or message.over else self._go_on(message, before, done)
            if due is None:
                self._messages.finish(note)
                continue
            left.append((note, due))
            before = self._messages.get(note.message)
        if left:  # the oldest note says when the thread is looked at
            due = min(due for _, due in left)
            self._messages.put_off(left[0][0], due)
            done.leave(due)

    def _go_on(self, message: Message, before: Message | None, done: Pass) -> float | None:
        """Do what is to be done about a message; returns when to look again, None if it is over.

        `before` is the message before it in its thread, if that is not over.
        """
        while True:
            now = self._store.clock()
            channel = self._channels.get(message.channel)
            if channel is None:  # another process has it
                return now + _OWNED
            if not message.begun:
                # If people were told that the run before has failed, this one supersedes it, unless a worker tries that once more.
                if before is not None and "failed" not in before.told:
                    speech = self._queued(message, before)
                    if speech is None:
                        return now + _LONGEST
                else:
                    due = self._begin(message)
                    if due is not None:
                        return due
                    speech = None
            else:
                found = self._next(message)
                if found is None:
                    self._messages.change(message.key, _over)
                    return None
                if isinstance(found, float | int):
                    return found
                speech = found
            due = self._say(message, speech, channel, done) if speech is not None else None
            if due is not None:
                return due
            again = self._messages.get(message.key)
            if again is None or again.over:
                return None
            message = again

    def _begin(self, message: Message) -> float | None:
        """Begin the run of a message, unless it has begun; returns when to try again, None if it has begun."""
        try:
            agent = self._agent if isinstance(self._agent, Runs) else self._agent(_said(message))
            self._check(agent)
            asks = message.requester
            begin_once(
                agent,
                message.text,
                run_id=message.run_id,
                thread_id=message.thread_id,
                requester=asks,
                scopes=self._scopes(asks) if callable(self._scopes) else self._scopes,
            )
        except ThreadBusy:
            return self._store.clock() + _LOOK
        except UnknownPerson:  # removed since they wrote: nothing is begun in their name
            _log.warning(
                "a message in %s is of somebody who was removed from the directory: it begins no run", message.channel
            )
            self._messages.change(message.key, _over)
            return None
        except Exception as error:
            _log.error("a message in %s could not begin a run: %s", message.channel, type(error).__name__)
            return self._later(message)
        self._messages.change(message.key, lambda now: replace(now, begun=True, tries=0))
        return None

    def _check(self, agent: object) -> None:
        if not isinstance(agent, Runs) or agent.store is not self._store:
            raise ConfigurationError("the agent of a bot has the store of its approvals: pass it store=")
        # Not of its spec, if that can be: to read it fixes the configuration, and who has loaded the agent may still set its store.
        given = getattr(agent, "announcements", None)
        announcements = given if isinstance(given, Collection) else agent.spec.announcements
        if not any(each is self.approvals for each in announcements):
            raise ConfigurationError(
                "the agent of a bot has its approvals among its announcements: announcements=[approvals]"
            )

    def _queued(self, message: Message, before: Message) -> _Speech | None:
        """That a message waits behind a run that waits for somebody; None if that is not so, or was said."""
        if "queued" in message.told:
            return None
        branch = self._branch(before) if before.begun else None
        is_waiting = branch is not None and branch.status == "suspended"
        return _Speech(name="queued", text=QUEUED) if is_waiting else None

    def _next(self, message: Message) -> _Speech | float | None:
        """What is to be said about a run, or when to look again; None if nothing more is to be done."""
        branch = self._branch(message)
        if branch is None:  # it was deleted
            return None
        now = self._store.clock()
        if branch.status in ENDED:
            return self._answer(message, branch)
        if branch.status == "failed":
            told = branch.changed_at + self._patience
            if "failed" in message.told:
                return now + _LONGEST
            return _Speech(name="failed", text=FAILED) if told <= now else told
        if branch.status != "suspended":
            return now + _LOOK
        return self._waits(message, branch, now)

    def _answer(self, message: Message, branch: Branch) -> _Speech | None:
        text = answer_of(branch.status, self._store.head(branch.id)[1])
        link = self.approvals.inbox_url
        rest = f"{link}/runs/{message.run_id}" if link is not None else f"phronomy show {message.run_id}"
        parts = in_parts(text, self._channels[message.channel].say_limit, rest)
        if message.said >= len(parts):
            return None
        return _Speech(name=f"answer:{message.said}", text=parts[message.said], part=message.said)

    def _waits(self, message: Message, branch: Branch, now: float) -> _Speech | float:
        """That a run waits, unless its requests are posted in the thread: those say so."""
        since = branch.changed_at + _GRACE
        if since > now:
            return since
        checkpoint: Checkpoint = self._store.head(branch.id)[1]
        ids = sorted(each.id for each in checkpoint.pending)
        name = "waits:" + hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]
        is_posted = any(self._posts.get(post_key(each, message.place)) is not None for each in ids)
        if not ids or is_posted or name in message.told:
            return now + _LONGEST
        return _Speech(name=name, text=waits_for(checkpoint))

    def _branch(self, message: Message) -> Branch | None:
        found = self._store.branches(run_id=message.run_id)
        return next((each for each in found if each.id == message.run_id), None)

    # Saying

    def _say(self, message: Message, speech: _Speech, channel: TalkingChannel, done: Pass) -> float | None:
        """Say something, and note that; returns when to try again, None if it was said."""
        now = self._store.clock()
        if message.owner and message.until > now:
            return message.until
        pace = channel.pace("post", message.to)
        lane = f"{channel.name}/{pace.lane}"
        if free := self._posts.take_turn(lane, pace.seconds):
            return free
        owner = secrets.token_hex(8)
        if self._messages.change(message.key, lambda now: self._claimed(now, message, owner)) is None:
            return self._store.clock() + 1  # somebody else has just begun
        key = hashlib.sha256(f"{message.key}:{speech.name}".encode()).hexdigest()[:24]
        try:
            channel.say(message.to, speech.text, key=key)
        except RateLimited as error:
            self._posts.hold_lane(lane, error.seconds)
            self._messages.change(message.key, lambda now: _let_go(now, owner))
            return self._store.clock() + error.seconds
        except Exception as error:
            refused = isinstance(error, ChannelRefused)
            _log.warning("%s could not say something: %s", channel.name, error if refused else type(error).__name__)
            self._messages.change(message.key, lambda now: _let_go(now, owner))
            return self._later(message, _LONGEST if refused else None)
        self._messages.change(message.key, lambda now: _noted(_let_go(now, owner), speech))
        done.sent += 1
        return None

    def _claimed(self, now: Message, seen: Message, owner: str) -> Message | None:
        """The message as it is owned from now on; None if it is not any more as it was seen."""
        time = self._store.clock()
        if (now.owner and now.until > time) or now.over or (now.said, now.told) != (seen.said, seen.told):
            return None
        return replace(now, owner=owner, until=time + _OWNED)

    def _later(self, message: Message, seconds: float | None = None) -> float | None:
        """When to try again what has failed. What fails for good is let go after hours, and the log has it."""
        after = self._messages.change(message.key, lambda now: replace(now, tries=now.tries + 1))
        if after is None or after.tries <= _TRIES:
            tries = after.tries if after is not None else 1
            return self._store.clock() + (seconds or min(2.0 ** min(tries - 1, 10), _LONGEST))
        _log.error("a message in %s is given up: it failed %d times", message.channel, _TRIES)
        self._messages.change(message.key, lambda now: replace(now, over=True, text=""))
        return None


def _talks(channel: Channel) -> TypeGuard[TalkingChannel]:
    return callable(getattr(channel, "say", None)) and is_count(getattr(channel, "say_limit", None))


def _said(message: Message) -> Said:
    return Said(alias=message.alias, delivery=message.delivery, text=message.text, thread=message.thread, to=message.to)


def _noted(now: Message, speech: _Speech) -> Message:
    if speech.part is None:
        return replace(now, told=(*now.told, speech.name)[-50:], tries=0)
    return replace(now, said=max(now.said, speech.part + 1), tries=0)


def _let_go(now: Message, owner: str) -> Message:
    return replace(now, owner="", until=0.0) if now.owner == owner else now


def _over(message: Message) -> Message:
    """A message with which nothing more is to be done."""
    return replace(message, over=True, text="", owner="", until=0.0)
