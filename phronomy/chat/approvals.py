"""Approvals in chat apps: requests are posted where people are, and a click decides.

Nothing is remembered in the process. What was asked and decided is in the runs, what is to be posted is in the outbox, and who may
decide is in the request. So any process can answer any click, today's or last month's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from phronomy.chat.cards import card_of, title_of, withdrawn_card
from phronomy.chat.channel import (
    FORMS,
    LETTERS,
    Action,
    Button,
    Card,
    Channel,
    ChannelError,
    Click,
    Received,
    Submitted,
)
from phronomy.chat.deciding import (
    Verdict,
    decide,
    may_begin,
    person_behind,
    plain_answer,
    refuse_stranger,
)
from phronomy.chat.forms import as_json, form_for, read_form
from phronomy.chat.http import LONGEST, HttpRequest, Refused, Response, text_response
from phronomy.chat.outbox import Outbox
from phronomy.chat.posts import Post, Posts, Todo, post_key
from phronomy.errors import ConfigurationError, TokenExpired, TokenInvalid, UnknownPending
from phronomy.foundation.checks import is_count, is_number
from phronomy.foundation.quoting import quoted
from phronomy.observability.announcements import Announcements
from phronomy.records.decisions import PendingApproval, Respond
from phronomy.stores.derived.standing import offered_by, tallies_of, who_may
from phronomy.tokens import Tokens

if TYPE_CHECKING:
    from phronomy.observability.events import RequestChanged
    from phronomy.people import Directory
    from phronomy.records.principals import Principal
    from phronomy.stores.base import Store
    from phronomy.stores.derived.requests import Request
    from phronomy.tokens import Token

_log = logging.getLogger("phronomy")

Route: TypeAlias = "str | Sequence[str] | Callable[[RequestChanged], str | Iterable[str] | None]"
"""Who is asked where: places such as `"slack:C0123456789"`, or a function of the event that names them."""

ACTIONS: Final[Mapping[str, Action]] = {letter: action for action, letter in LETTERS.items()}
"""The action of each first character of what a button carries."""

_LABELS: Final[Mapping[Action, str]] = {
    "approve": "Approve",
    "edit": "Edit...",
    "respond": "Answer...",
    "reject": "Reject",
    "reason": "Reject with a reason...",
    "skip": "Skip",
}
_DATA: Final = 45
_DAY: Final = 86_400.0
_OPEN: Final = ("asked", "voted", "reminded", "escalated")


class ChatApprovals(Announcements):
    """Posts requests to chat apps, and decides them when somebody clicks. It needs no public state: any process can have one.

    `store` is the store of the runs. `channels` are the chat apps, such as `phronomy.chat.slack.Slack`. `directory` says who is behind
    an id of a chat: nobody else can decide. `route` says where a request is posted: a place such as `"slack:C0123456789"`, a list
    of places, or a function that gets the `RequestChanged` and returns them; None to post nothing here. `keys` and `current` are
    those of `Tokens`; with one key, `current` may be left out. Use the same in all processes.

    `inbox_url` is the address of an inbox, for what does not fit into a chat: `{inbox_url}/requests/{id}` is linked. With it, a place
    that is to get more than `digest_above` new messages at once gets one that says how many (None: never). `hide` are names of
    parameters whose values are never shown in a chat. Buttons count for `lifetime` seconds, and at least as long as the request.

    Pass it to the agents: `Agent(announcements=[approvals])`. Mount `asgi`, `wsgi` or `aws_lambda` of `phronomy.chat`, or call
    `handle`. Have one process or several send what is posted: `start()`, or `outbox.run`. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        store: Store,
        *,
        channels: Iterable[Channel],
        directory: Directory,
        keys: Mapping[str, bytes | str],
        current: str | None = None,
        route: Route | None = None,
        inbox_url: str | None = None,
        digest_above: int | None = 20,
        hide: Collection[str] = (),
        lifetime: float = 30 * _DAY,
    ) -> None:
        given = tuple(channels)
        self._channels: dict[str, Channel] = {each.name: each for each in given}
        if not given or len(self._channels) < len(given):
            raise ConfigurationError("channels is a list of channels, at least one, and each has another name")
        if current is None and len(keys) != 1:
            raise ConfigurationError("there are several keys, so current says which of them signs")
        if digest_above is not None and (not is_count(digest_above) or digest_above < 1):
            raise ConfigurationError(f"digest_above is a whole number from 1, or None, not {quoted(digest_above)}")
        if not is_number(lifetime) or lifetime <= 0:
            raise ConfigurationError(f"lifetime is a number of seconds above 0, not {quoted(lifetime)}")
        if isinstance(hide, str):
            raise ConfigurationError("hide is a list of names of parameters, and no text")
        if inbox_url is not None and not inbox_url.startswith(("https://", "http://")):
            raise ConfigurationError("inbox_url is the address of an inbox, such as https://example.org/inbox")
        self._store = store
        self._directory = directory
        self._tokens = Tokens(store, keys=keys, current=current if current is not None else next(iter(keys)))
        self._route = route
        self._inbox = inbox_url.rstrip("/") if inbox_url is not None else None
        self._hide = frozenset(hide)
        self._lifetime = lifetime
        self._posts = Posts(store)
        self.outbox: Outbox = Outbox(
            self._posts, self._channels, self._card, digest_above=digest_above, inbox_url=self._inbox
        )
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def __repr__(self) -> str:
        return f"ChatApprovals({self._store!r}, channels={sorted(self._channels)})"

    # Posting

    def on_request(self, event: RequestChanged) -> None:
        """Note what is to be posted and edited: an agent calls this. Raises `StoreError`, and then it is called again."""
        item = event.request
        if event.what in _OPEN:
            for at in self._places(event):
                key = post_key(item.id, at)
                # What is new needs no reminder at once.
                told = item.reminded
                post = Post(pending_id=item.id, at=at, title=title_of(item), remind=told, reminded=told)
                # Noted also if the post is there: this call may be the repetition of one that came no further.
                self._posts.add(key, post)
                self._posts.note(key, post)
        remind = item.reminded if event.what in ("reminded", "escalated") else 0
        if event.what != "asked":
            self._change_posts(item.id, remind=remind)
        self.outbox.wake()

    def start(self, *, poll: float = 1.0) -> Self:
        """Send what is to be posted, in a thread of its own, until `stop`. Also `with approvals:`."""
        if self._thread is None or not self._thread.is_alive():
            self._stop = threading.Event()
            run: Callable[..., Any] = self.outbox.run
            self._thread = threading.Thread(
                target=run, args=(self._stop,), kwargs={"poll": poll}, name="phronomy-chat", daemon=True
            )
            self._thread.start()
        return self

    def stop(self) -> None:
        """Stop the thread that `start` has started. What is not sent stays in the outbox."""
        self._stop.set()
        self.outbox.wake()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # What comes in

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Answer a request of a platform. The last part of `path` is the name of the channel, such as `/chat/slack`.

        Whatever comes, this returns a response: of status 4xx for all that does not come from the platform, and of 503 if
        the store fails. Call `Response.after` once the response is sent, if there is one.
        """
        channel = self._channels.get(path.rstrip("/").rpartition("/")[2])
        if channel is None:
            return text_response(404, "no channel has this path")
        if method.upper() != "POST":
            return text_response(405, "a platform sends POST")
        if len(body) > LONGEST:
            return text_response(413, "too long")
        try:
            small = {str(name).lower(): str(value) for name, value in headers.items()}
            request = HttpRequest(method="POST", path=path, headers=small, body=bytes(body))
            received = channel.receive(request, now=self._store.clock())
        except Refused as error:
            return text_response(error.status if 400 <= error.status < 500 else 400, str(error))
        except Exception as error:
            # Verifiers and parsers of others raise anything on hostile bytes.
            _log.warning("a request to %s could not be read: %s", channel.name, type(error).__name__)
            return text_response(400, "not understood")
        return received if isinstance(received, Response) else self.answer(channel.name, received)

    def answer(self, channel: str, received: Received) -> Response:
        """Answer a click or a form that is proven to come from the platform of a channel: for connections without HTTP requests.

        As `handle`, this returns a response, whatever comes.
        """
        try:
            return self._answer(self._channels[channel], received)
        except Exception as error:
            _log.error("a click in %s could not be handled: %s", channel, type(error).__name__)
            return text_response(503, "not now: nothing was lost, try again")

    def _answer(self, channel: Channel, received: Received) -> Response:
        action = ACTIONS.get(received.data[:1])
        if action is None or len(received.data) != _DATA:
            return channel.acknowledge(received, None)  # a button of another program that shares the app
        try:
            token = self._tokens.verify(received.data[1:], purpose=f"chat:{channel.name}")
        except TokenExpired as error:
            return channel.acknowledge(received, f"This button is too old. {self._see(error.pending_id)}".strip())
        except TokenInvalid:
            return channel.acknowledge(received, "This button is not known here, or not any more. Nothing was decided.")
        person = person_behind(self._directory, received.alias)
        if person is None:
            said = refuse_stranger(self._store, token, action, received.alias, channel.name)
            return channel.acknowledge(received, said)
        if isinstance(received, Submitted):
            return self._submitted(channel, received, token, action, person)
        if action in FORMS:
            return self._open(channel, received, token, action, person)
        return self._decided(
            channel, received, token, decide(self._store, token, plain_answer(action), person, channel.name)
        )

    def _open(self, channel: Channel, click: Click, token: Token, action: Action, person: Principal) -> Response:
        """Open a form. That is the one thing which cannot wait in the outbox: platforms take it within seconds alone."""
        why_not = may_begin(self._store, token, action, person, channel.name)
        if why_not is not None:
            return self._decided(channel, click, token, Verdict(notice=why_not))
        request = self._store.request(token.pending_id)
        form = form_for(action, request, click.data, channel.form_limits, self._hide)
        if form is None:
            return channel.acknowledge(click, f"This does not fit into a form here. {self._see(token.pending_id)}")
        try:
            return channel.open_form(click, form)
        except ChannelError as error:
            _log.warning("%s could not open a form: %s", channel.name, error)
            return channel.acknowledge(click, "The form could not be opened in time. Press the button again.")

    def _submitted(
        self, channel: Channel, submitted: Submitted, token: Token, action: Action, person: Principal
    ) -> Response:
        try:
            request = self._store.request(token.pending_id)
        except UnknownPending:
            return channel.acknowledge(submitted, "This request is over: its run has ended, or was deleted.")
        answer, errors = read_form(action, request, submitted.values)
        if answer is None:
            return channel.show_errors(submitted, errors)
        verdict = decide(self._store, token, answer, person, channel.name)
        if verdict.wrong and isinstance(answer, Respond) and (other := as_json(answer)) is not None:
            verdict = decide(self._store, token, other, person, channel.name)
        if verdict.wrong:
            first = next(iter(submitted.values), "")
            return channel.show_errors(submitted, {first: verdict.notice or ""})
        return self._decided(channel, submitted, token, verdict)

    def _decided(self, channel: Channel, received: Received, token: Token, verdict: Verdict) -> Response:
        """Acknowledge, and have all messages about the request say what is so now: this one too, if it was not known."""
        todos = self._change_posts(token.pending_id, seen=(token.by, received.ref))
        response = channel.acknowledge(received, verdict.notice)
        first = response.after

        def after() -> None:
            if first is not None:
                first()
            self.outbox.send(todos)

        return replace(response, after=after)

    # Pieces

    def _change_posts(
        self, pending_id: str, *, remind: int = 0, seen: tuple[str, str | None] | None = None
    ) -> list[Todo]:
        """Have each post about a request sent anew; `seen` is a message, with its place."""
        todos: list[Todo] = []
        for key, post in [*self._posts.of(pending_id)]:
            ref = seen[1] if seen is not None and seen[0] == post.at else None

            def changed(now: Post, ref: str | None = ref) -> Post:
                now = replace(now, wanted=now.wanted + 1, remind=max(now.remind, remind))
                if ref is None or ref in now.refs or len(now.refs) >= 10:
                    return now
                # A message that nobody has noted: its process died, or the platform gave no answer. Whoever still owns the post
                # finds that it does not any more, and edits once more.
                return replace(now, refs=(*now.refs, ref), shown="", owner="", until=0.0)

            after = self._posts.change(key, changed)
            if after is not None and not after.is_done:
                todos.append(self._posts.note(key, after))
        return todos

    def _card(self, post: Post) -> Card:
        """The message of a post, as the store has it now."""
        try:
            request = self._store.request(post.pending_id)
        except UnknownPending:
            return withdrawn_card(post.title, post.pending_id)
        item = request.approval
        waits = request.status == "pending"
        return card_of(
            request,
            channel=post.channel,
            tallies=tallies_of(self._store, item) if waits else (),
            who=who_may(self._store, item) if waits else (),
            link=self._link(item.id),
            hide=self._hide,
            buttons=self._buttons(request, post) if waits else (),
        )

    def _buttons(self, request: Request, post: Post) -> tuple[Button, ...]:
        item = request.approval
        offered = offered_by(item)
        limits = self._channels[post.channel].form_limits
        wanted: list[Action] = [each for each in ("approve", "edit", "respond", "reject", "skip") if each in offered]
        if limits is None:
            wanted = [each for each in wanted if each not in FORMS]
        elif "reject" in wanted:
            wanted.insert(wanted.index("reject") + 1, "reason")
        if not wanted:
            return ()
        token = self._tokens.issue(
            f"chat:{post.channel}",
            pending_id=item.id,
            digest=item.digest,
            by=post.at,
            seconds=self._seconds(item),
            once=False,
        )
        return tuple(Button(action=each, label=_LABELS[each], data=LETTERS[each] + token) for each in wanted)

    def _seconds(self, item: PendingApproval) -> float:
        """How long buttons count: a late click on a request that is over is to hear of that, and not of its button."""
        left = item.expires_at.timestamp() - self._store.clock() if item.expires_at is not None else 0.0
        return max(self._lifetime, left + _DAY)

    def _places(self, event: RequestChanged) -> list[str]:
        named = self._route(event) if callable(self._route) else self._route
        found = [named] if isinstance(named, str) else list(named or ())
        for at in found:
            channel, colon, to = at.partition(":") if isinstance(at, str) else ("", "", "")
            if not channel or not colon or not 0 < len(to) <= 300:
                raise ConfigurationError(
                    f"a place is a channel, a colon and an id, such as slack:C0123456789, not {quoted(at)}"
                )
        return list(dict.fromkeys(found))

    def _link(self, pending_id: str) -> str | None:
        return f"{self._inbox}/requests/{pending_id}" if self._inbox is not None else None

    def _see(self, pending_id: str | None) -> str:
        link = self._link(pending_id) if pending_id else None
        return f"Decide it in the inbox: {link}" if link else f"Decide it with `phronomy show {pending_id}`."
