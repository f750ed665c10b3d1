"""Approvals in chat apps: requests are posted where people are, and a click decides.

Nothing is remembered in the process. What was asked and decided is in the runs, what is to be posted is in the outbox, and who may
decide is in the request. So any process can answer any click, today's or last month's.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self

from phronomy.chat.cards import card_of, shows_whole, title_of, withdrawn_card
from phronomy.chat.channel import (
    APPROVING,
    FORMS,
    LETTERS,
    REMIND,
    Action,
    Button,
    Card,
    Channel,
    ChannelError,
    Click,
    LeadsToPage,
    Listener,
    PersonalChannel,
    ReachesPeople,
    Received,
    Said,
    ShowsCards,
    Submitted,
    Viewed,
    moment,
)
from phronomy.chat.contexts import Started
from phronomy.chat.deciding import (
    WAYS,
    Verdict,
    decide,
    may_begin,
    person_behind,
    plain_answer,
    refuse_stranger,
)
from phronomy.chat.forms import form_for, read_form
from phronomy.chat.hiding import Hiding
from phronomy.chat.hints import Hints
from phronomy.chat.http import LONGEST, HttpRequest, Refused, Response, text_response
from phronomy.chat.messages import Messages
from phronomy.chat.outbox import Outbox
from phronomy.chat.posts import Post, Posts, Todo, post_key
from phronomy.chat.routes import APPROVERS, Route, check_route, places_in
from phronomy.chat.turns import MOST, is_turn_of, mentions_in, no_place_of, place_of, turn_of
from phronomy.errors import (
    CheckpointError,
    ConfigurationError,
    TokenExpired,
    TokenInvalid,
    UnknownPending,
    UnreadableRow,
)
from phronomy.foundation.checks import is_count, is_number, is_series
from phronomy.foundation.quoting import quoted
from phronomy.observability.announcements import Announcements
from phronomy.records.decisions import PendingApproval
from phronomy.stores.derived.standing import counting_of, offered_by, standing_of, tallies_of, who_may
from phronomy.tokens import Tokens

if TYPE_CHECKING:
    from phronomy.observability.events import Ended, RequestChanged, Suspended
    from phronomy.people import Directory
    from phronomy.records.principals import Principal
    from phronomy.stores.base import Store
    from phronomy.stores.derived.requests import Request
    from phronomy.tokens import Token

_log = logging.getLogger("phronomy")

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


class Hearing(Protocol):
    """Who takes what people write: a `ChatBot`."""

    def hear(self, channel: Channel, said: Said) -> Response:
        """Store a message, and acknowledge it."""
        ...

    def wake(self) -> None:
        """Look at once what is to be done."""
        ...


REMINDED: Final = 3_600.0
"""Seconds between two reminders of one request that people ask for."""
_NOTHING_LEFT: Final = "There is nothing left for you to do here."
_UNREADABLE: Final = "This request or run cannot be read: a stored row is damaged. Whoever runs this has to restore it."


class ChatApprovals(Announcements, Started):
    """Posts requests to chat apps, and decides them when somebody clicks. It needs no public state: any process can have one.

    `store` is the store of the runs. `channels` are the chat apps, such as `phronomy.chat.slack.Slack`. `directory` says who is behind
    an id of a chat: nobody else can decide. `route` says where a request is posted: a place such as `"slack:C0123456789"`, a list
    of places, or a function that gets the `RequestChanged` and returns them. `"approvers"` among them tells the people whose turn it
    is. None to post only what runs of a bot ask for, each into the thread of its run. `keys` and `current` are
    those of `Tokens`; with one key, `current` may be left out. Use the same in all processes.

    `inbox_url` is the address of an inbox, for what does not fit into a chat: `{inbox_url}/requests/{id}` is linked. With it, a place
    that is to get more than `digest_above` new messages at once gets one that says how many (None: never). `hide` are names of
    parameters, of members inside them, and of channels of a graph (`payment.iban` is one inside `payment` alone), whose values are
    never shown in a chat. Where a message does not show all other arguments whole, nobody can approve or edit there, unless
    `approve_unseen` is True. Buttons count for `lifetime` seconds, and at least as long as the request.
    `listeners` get each message to the bot, one after the other, until one returns a response; then a `ChatBot` gets it.

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
        approve_unseen: bool = False,
        listeners: Iterable[Listener] = (),
    ) -> None:
        given = tuple(channels) if is_series(channels) else ()
        self._channels: dict[str, Channel] = {each.name: each for each in given}
        if not given or len(self._channels) < len(given):
            raise ConfigurationError("channels is a list of channels, at least one, and each has another name")
        _check_keys(keys, current)
        if not callable(getattr(directory, "resolve", None)):
            raise ConfigurationError(
                f"directory is a Directory, such as StoreDirectory(store), not {quoted(directory)}"
            )
        if digest_above is not None and (not is_count(digest_above) or digest_above < 1):
            raise ConfigurationError(f"digest_above is a whole number from 1, or None, not {quoted(digest_above)}")
        if not is_number(lifetime) or lifetime <= 0:
            raise ConfigurationError(f"lifetime is a number of seconds above 0, not {quoted(lifetime)}")
        if isinstance(hide, str):
            raise ConfigurationError("hide is a list of names of parameters, and no text")
        if inbox_url is not None and not inbox_url.startswith(("https://", "http://")):
            raise ConfigurationError("inbox_url is the address of an inbox, such as https://example.org/inbox")
        check_route(route, self._channels)
        self._store = store
        self._directory = directory
        self._tokens = Tokens(store, keys=keys, current=current if current is not None else next(iter(keys)))
        self._route = route
        self._inbox = inbox_url.rstrip("/") if inbox_url is not None else None
        self._hiding = Hiding(hide)
        self._lifetime = lifetime
        self._unseen = approve_unseen
        self._listeners = tuple(listeners)
        self._posts = Posts(store)
        self._hints = Hints(store.clock)
        self._messages = Messages(store)
        self.bot: Hearing | None = None
        self.outbox: Outbox = Outbox(
            self._posts,
            self._channels,
            self._card,
            digest_above=digest_above,
            inbox_url=self._inbox,
            reach=self._reach,
        )

    def __repr__(self) -> str:
        return f"ChatApprovals({self._store!r}, channels={sorted(self._channels)})"

    # What others share with it: a bot, and the pages that mails lead to

    @property
    def store(self) -> Store:
        """The store of the runs."""
        return self._store

    @property
    def channels(self) -> Mapping[str, Channel]:
        """The chat apps, by their names."""
        return MappingProxyType(self._channels)

    @property
    def directory(self) -> Directory:
        """Who is behind an id of a chat."""
        return self._directory

    @property
    def posts(self) -> Posts:
        """What is posted, and how fast each platform takes it."""
        return self._posts

    @property
    def inbox_url(self) -> str | None:
        """The address of an inbox, without a slash at its end."""
        return self._inbox

    @property
    def tokens(self) -> Tokens:
        """What makes and verifies the tokens of buttons, each for the purpose `chat:` and the name of its channel."""
        return self._tokens

    @property
    def hide(self) -> frozenset[str]:
        """The names of parameters whose values are shown in no chat."""
        return self._hiding.names

    def hides(self, item: PendingApproval) -> bool:
        """True if something of a request is shown in no chat."""
        return self._hiding.is_hidden(item)

    # Posting

    def on_request(self, event: RequestChanged) -> None:
        """Note what is to be posted and edited: an agent calls this. Raises `StoreError`, and then it is called again."""
        item = event.request
        if event.what in _OPEN and item.asks_human:  # nobody in a chat makes a time come, or an event arrive
            self._check_store(event)
            named = self._places(event)
            places = [at for at in named if at != APPROVERS]
            asks = APPROVERS in named
            for at in places:
                is_asked = asks and isinstance(self._channels.get(at.partition(":")[0]), ReachesPeople)
                self._add(item, at, self._person_at(at), "mention" if is_asked else "")
            if asks:
                self._tell(item, places)
        remind = item.reminded if event.what in ("reminded", "escalated") else 0
        if event.what != "asked":
            self._change_posts(item.id, remind=remind)
        self.outbox.wake()

    def _add(self, item: PendingApproval, at: str, person: str, asks: Literal["", "mention", "alone"]) -> None:
        """Note that a request is to be posted to a place, if it is not there."""
        key = post_key(item.id, at)
        told = item.reminded  # what is new needs no reminder at once
        title = title_of(item, self._hiding)
        post = Post(pending_id=item.id, at=at, title=title, person=person, asks=asks, remind=told, reminded=told)
        # Noted also if the post is there: this call may be the repetition of one that came no further.
        if not self._posts.add(key, post) and asks == "mention":  # the route may have named the approvers only now
            self._posts.change(key, lambda now: now if now.asks == asks else replace(now, asks=asks))
        self._posts.note(key, post)

    def _tell(self, item: PendingApproval, places: Collection[str]) -> None:
        """Note that the people whose turn it is are to be told: alone, unless a message in one of the places mentions them."""
        turn = turn_of(self._store, item)
        mentioning = [self._channels[name] for name in {at.partition(":")[0] for at in places} & self._channels.keys()]
        for person in turn.people:
            if not any(mentions_in(channel, [person]) for channel in mentioning):
                at = place_of(self._channels, person) or f"{APPROVERS}:{person.id}"
                if at not in places:
                    self._add(item, at, person.id, "alone")
        if turn.more:
            _log.warning("%s people beyond the %s who are told may decide %s", turn.more, MOST, item.id)
        if not turn.people and (turn.asks or not places):
            self._add(item, f"{APPROVERS}:", "", "alone")

    def _reach(self, post: Post) -> str:
        """Note that somebody is to be told who could not be found; why they still cannot, if so."""
        request = self._request(post.pending_id)
        if request is None or request.status != "pending":
            return ""
        turn = turn_of(self._store, request.approval)
        if not post.person:
            if not turn.people:
                return "nobody in the directory is named to decide it, or all who are have voted"
            self._tell(request.approval, ())
            return ""
        person = next((each for each in turn.people if each.id == post.person), None)
        if person is None:  # it is not their turn any more
            return ""
        if (at := place_of(self._channels, person)) is None:
            return no_place_of(self._channels, person)
        self._add(request.approval, at, person.id, "alone")
        return ""

    def on_suspended(self, event: Suspended) -> None:
        """Have a bot look at its run. Raises `StoreError`, and then it is called again."""
        self._call_bot(event.run_id)

    def on_completed(self, event: Ended) -> None:
        """As `on_suspended`."""
        self._call_bot(event.run_id)

    def on_rejected(self, event: Ended) -> None:
        """As `on_suspended`."""
        self._call_bot(event.run_id)

    def on_cancelled(self, event: Ended) -> None:
        """As `on_suspended`."""
        self._call_bot(event.run_id)

    def on_superseded(self, event: Ended) -> None:
        """As `on_suspended`."""
        self._call_bot(event.run_id)

    def on_skipped(self, event: Ended) -> None:
        """As `on_suspended`."""
        self._call_bot(event.run_id)

    def conversation(self, run_id: str) -> str | None:
        """Where the person is who began this run by writing to a bot: a place, for a `route`. None for other runs."""
        message = self._messages.of_run(run_id)
        return message.place if message is not None else None

    def _call_bot(self, run_id: str) -> None:
        # Also in a process without a bot: the note is in the store, and a bot elsewhere looks at it.
        if self._messages.call_for(run_id) and self.bot is not None:
            self.bot.wake()

    def start(self, *, poll: float = 1.0) -> Self:
        """Send what is to be posted, in a thread of its own, until `stop`. Also `with approvals:`."""
        self.outbox.start(poll=poll)
        return self

    def stop(self) -> None:
        """Stop the thread that `start` has started. What is not sent stays in the outbox."""
        self.outbox.stop()

    # What comes in

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Answer a request of a platform. The last part of `path` is the name of the channel, such as `/chat/slack`.

        Whatever comes, this returns a response: of status 4xx for all that does not come from the platform, and of 503 if
        the store fails. Call `Response.after` once the response is sent, if there is one.
        """
        channel = self._channels.get(path.rstrip("/").rpartition("/")[2])
        if channel is None:
            self._hints.no_channel(self._channels)
            return text_response(
                404, f"no channel has this path: it ends with one of {', '.join(sorted(self._channels))}"
            )
        if method.upper() != "POST":
            return text_response(405, "a platform sends POST")
        if len(body) > LONGEST:
            return text_response(413, "too long")
        try:
            small = {str(name).lower(): str(value) for name, value in headers.items()}
            request = HttpRequest(method="POST", path=path, headers=small, body=bytes(body))
            received = channel.receive(request, now=self._store.clock())
        except Refused as error:
            self._hints.refused(channel.name, error)
            return text_response(error.status if 400 <= error.status < 500 else 400, str(error))
        except Exception as error:
            # Verifiers and parsers of others raise anything on hostile bytes.
            _log.warning("a request to %s could not be read: %s", channel.name, type(error).__name__)
            return text_response(400, "not understood")
        return received if isinstance(received, Response) else self.answer(channel.name, received)

    def answer(self, channel: str, received: Received | Viewed) -> Response:
        """Answer a click or a form that is proven to come from the platform of a channel: for connections without HTTP requests.

        As `handle`, this returns a response, whatever comes.
        """
        try:
            return self._answer(self._channels[channel], received)
        except (UnreadableRow, CheckpointError) as error:
            # Not as below: a platform that sends it again comes to the same. These errors name the row, and quote nothing of it.
            _log.error("a click in %s could not be handled: %s", channel, error)
            if isinstance(received, Viewed):
                return text_response(503, _UNREADABLE)
            return self._channels[channel].acknowledge(received, _UNREADABLE)
        except Exception as error:
            _log.error("a click in %s could not be handled: %s", channel, type(error).__name__)
            return text_response(503, "not now: nothing was lost, try again")

    def _answer(self, channel: Channel, received: Received | Viewed) -> Response:
        if isinstance(received, Said):
            answers = (listener(channel, received) for listener in self._listeners)
            if (found := next((each for each in answers if each is not None), None)) is not None:
                return found
            if self.bot is not None:
                return self.bot.hear(channel, received)
            self._hints.no_bot(channel.name)
            return channel.acknowledge(received, None)
        if isinstance(received, Viewed):
            return self._viewed(channel, received)
        action = ACTIONS.get(received.data[:1])
        reminds = received.data[:1] == REMIND
        if (action is None and not reminds) or len(received.data) != _DATA:
            return channel.acknowledge(received, None)  # a button of another program that shares the app
        try:
            token = self._tokens.verify(received.data[1:], purpose=f"chat:{channel.name}")
        except TokenExpired as error:
            return channel.acknowledge(received, f"This button is too old. {self._see(error.pending_id)}".strip())
        except TokenInvalid:
            return channel.acknowledge(received, "This button is not known here, or not any more. Nothing was decided.")
        person = person_behind(self._directory, received.alias)
        if action is None:
            return self._reminded(channel, received, token, person)
        return self._pressed(channel, received, token, action, person)

    def _pressed(
        self,
        channel: Channel,
        received: Click | Submitted,
        token: Token,
        action: Action,
        person: Principal | None,
    ) -> Response:
        """Answer a button or a form that decides."""
        if person is None:
            said = refuse_stranger(self._store, token, action, received.alias, channel.name)
            return channel.acknowledge(received, said)
        if action in APPROVING and self._is_unseen(channel, token):
            return self._decided(channel, received, token, Verdict(notice=self._no_approval(token)), person)
        if isinstance(received, Submitted):
            if action not in FORMS:  # no form of ours: what a button carries decides only as that button
                return channel.acknowledge(received, "This is no form. Nothing was decided.")
            return self._submitted(channel, received, token, action, person)
        if action in FORMS:
            return self._open(channel, received, token, action, person)
        return self._decided(
            channel, received, token, decide(self._store, token, plain_answer(action), person, channel.name), person
        )

    def _viewed(self, channel: Channel, viewed: Viewed) -> Response:
        """Show a message to one person. Nothing is changed by that, not even in the outbox: platforms ask after each edit."""
        assert isinstance(channel, ShowsCards), "a channel whose messages are viewed shows them"
        try:
            token = self._tokens.verify(viewed.data[1:], purpose=f"chat:{channel.name}")
        except (TokenExpired, TokenInvalid):
            return channel.show(viewed, None)
        return channel.show(viewed, self._card_for(viewed, token, person_behind(self._directory, viewed.alias)))

    def _card_for(self, received: Click | Viewed, token: Token, person: Principal | None) -> Card | None:
        """A message as a person is to see it: with the buttons that count for them. None for a message that is not known here."""
        found = self._posts.get(post_key(token.pending_id, token.by))
        if found is None or found[0].count:
            return None
        request = self._request(token.pending_id)
        # With the token that the message has already: whoever looks, and however often, makes no row in the store.
        card = self._card_of(request, found[0], (token.digest, received.data[1:]))
        if request is None or not card.buttons:
            return card
        answers = standing_of(self._store, request.approval, person).answers if person is not None else ()
        kept = (each for each in card.buttons if each.action == "remind" or WAYS[each.action] in answers)
        return replace(card, buttons=tuple(kept))

    def _open(self, channel: Channel, click: Click, token: Token, action: Action, person: Principal) -> Response:
        """Open a form. That is the one thing which cannot wait in the outbox: platforms take it within seconds alone."""
        request = may_begin(self._store, token, action, person, channel.name)
        if isinstance(request, str):
            return self._decided(channel, click, token, Verdict(notice=request), person)
        form = form_for(action, request, click.data, channel.form_limits, self._hiding)
        if form is None:
            return channel.acknowledge(click, self._no_form(token))
        try:
            return channel.open_form(click, form)
        except ChannelError as error:
            _log.warning("%s could not open a form: %s", channel.name, error)
            return channel.acknowledge(click, "The form could not be opened in time. Press the button again.")

    def _submitted(
        self, channel: Channel, submitted: Submitted, token: Token, action: Action, person: Principal
    ) -> Response:
        request = self._request(token.pending_id)
        if request is None:
            return channel.acknowledge(submitted, "This request is over: its run has ended, or was deleted.")
        if action == "edit" and self.hides(request.approval):
            # There is no such form: some channels take values without having shown one.
            return channel.acknowledge(submitted, self._no_form(token))
        answer, errors = read_form(action, request, submitted)
        if answer is None:
            return channel.show_errors(submitted, errors)
        verdict = decide(self._store, token, answer, person, channel.name)
        if verdict.wrong:
            first = next(iter(submitted.values), "")
            return channel.show_errors(submitted, {first: verdict.notice or ""})
        return self._decided(channel, submitted, token, verdict, person)

    def _decided(
        self, channel: Channel, received: Click | Submitted, token: Token, verdict: Verdict, person: Principal
    ) -> Response:
        """Acknowledge, and have all messages about the request say what is so now: this one too, if it was not known."""
        todos = self._change_posts(token.pending_id, seen=(token.by, received.ref))
        if verdict.notice is None and isinstance(received, Click) and isinstance(channel, ShowsCards):
            response = channel.show(received, self._card_for(received, token, person))
        else:
            response = channel.acknowledge(received, verdict.notice)
        return self._sending(response, todos)

    def _reminded(
        self, channel: Channel, received: Click | Submitted, token: Token, person: Principal | None
    ) -> Response:
        """Have the people whose turn it is be reminded, since somebody has asked for that who is known here."""
        if person is None:
            return channel.acknowledge(
                received, "Nobody was reminded: you are not known here. Ask whoever runs this to add you."
            )
        request = self._request(token.pending_id)
        if request is None or request.status != "pending" or request.approval.digest != token.digest:
            return channel.acknowledge(received, "Nobody was reminded: this does not wait any more.")
        # In the store, for all processes: of several who press at once, one has it.
        if free := self._posts.take_turn(f"remind/{token.pending_id}", REMINDED):
            at = moment(datetime.fromtimestamp(free, UTC))
            return channel.acknowledge(received, f"They were reminded already. You can remind them again at {at}.")
        _log.info("%s has asked to remind people of %s", person.id, token.pending_id)
        todos = self._change_posts(token.pending_id, asks=True)
        return self._sending(channel.acknowledge(received, "The people whose turn it is are reminded."), todos)

    # Pieces

    def _sending(self, response: Response, todos: list[Todo]) -> Response:
        """The response, with messages that are sent once it is given."""
        first = response.after

        def after() -> None:
            if first is not None:
                first()
            self.outbox.send(todos)

        return replace(response, after=after)

    def _change_posts(
        self, pending_id: str, *, remind: int = 0, asks: bool = False, seen: tuple[str, str | None] | None = None
    ) -> list[Todo]:
        """Have each post about a request sent anew; `seen` is a message, with its place. `asks`: somebody has asked for a reminder."""
        todos: list[Todo] = []
        for key, post in [*self._posts.of(pending_id)]:
            ref = seen[1] if seen is not None and seen[0] == post.at else None

            def changed(now: Post, ref: str | None = ref) -> Post:
                # The reminders that the record counts, and those that somebody has asked for besides.
                due = remind + now.asked if remind else 0
                if asks and now.asks:
                    now, due = replace(now, asked=now.asked + 1), now.remind + 1
                now = replace(now, wanted=now.wanted + 1, remind=max(now.remind, due))
                if ref is None or ref in now.refs or len(now.refs) >= 10:
                    return now
                # A message that nobody has noted: its process died, or the platform gave no answer. Whoever still owns the post
                # finds that it does not any more, and edits once more.
                return replace(now, refs=(*now.refs, ref), shown="", owner="", until=0.0)

            after = self._posts.change(key, changed)
            if after is not None and not after.is_done:
                todos.append(self._posts.note(key, after))
        return todos

    def _request(self, pending_id: str) -> Request | None:
        """A request; None if its run has ended without it, or was deleted."""
        try:
            return self._store.request(pending_id)
        except UnknownPending:
            return None

    def _card(self, post: Post) -> Card:
        """The message of a post, as the store has it now."""
        return self._card_of(self._request(post.pending_id), post)

    def _card_of(self, request: Request | None, post: Post, token: tuple[str, str] | None = None) -> Card:
        """The message of a post about a request. A `token` that is there already has the digest for which it was made."""
        if request is None:
            return withdrawn_card(post.title, post.pending_id)
        item = request.approval
        waits = request.status == "pending"
        self._hiding.note(request)
        card = card_of(
            request,
            channel=post.channel,
            tallies=tallies_of(self._store, item) if waits else (),
            counting=counting_of(self._store, item) if waits else (),
            who=who_may(self._store, item) if waits else (),
            link=self._link(item.id),
            hiding=self._hiding,
            buttons=self._buttons(request, post, token) if waits else (),
            approves_unseen=self._approves_unseen(self._channels[post.channel]),
        )
        return self._asking(card, item, post) if waits and post.asks else card

    def _asking(self, card: Card, item: PendingApproval, post: Post) -> Card:
        """The message with the people whose turn it is; without buttons, where it is for somebody whose turn it is not any more."""
        if post.asks == "alone":
            is_theirs = is_turn_of(self._store, item, post.person)
            return card if is_theirs else replace(card, notes=(_NOTHING_LEFT, *card.notes), buttons=(), quiet=True)
        turn = turn_of(self._store, item)
        more = (f"{turn.more} more people may decide, and are not told here.",) if turn.more else ()
        mentions = mentions_in(self._channels[post.channel], turn.people)
        buttons = card.buttons
        if turn.people and buttons:
            buttons = (*buttons, Button(action="remind", label="Remind", data=REMIND + buttons[0].data[1:]))
        return replace(card, mentions=mentions, notes=(*more, *card.notes), buttons=buttons)

    def _approves_unseen(self, channel: Channel) -> bool:
        """True if a message need not show all that it approves: it leads to a page that does, or that was asked for."""
        return self._unseen or isinstance(channel, LeadsToPage)

    def _buttons(self, request: Request, post: Post, known: tuple[str, str] | None) -> tuple[Button, ...]:
        item = request.approval
        offered = offered_by(item)
        limits = self._channels[post.channel].form_limits
        wanted: list[Action] = [each for each in ("approve", "edit", "respond", "reject", "skip") if each in offered]
        if limits is None:
            wanted = [each for each in wanted if each not in FORMS]
        else:
            wanted = [each for each in wanted if each != "edit" or limits.begins]
            if "reject" in wanted:
                wanted.insert(wanted.index("reject") + 1, "reason")
        if not wanted:
            return ()
        if known is not None and known[0] == item.digest:
            token = known[1]
        else:
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

    def _check_store(self, event: RequestChanged) -> None:
        """Refuse to post what this store does not have: nothing that is posted about it could say more than that it is over."""
        if self._store.branches(run_id=event.run_id):
            return
        told = f"the agent of {event.run_id} has another store than these ChatApprovals, so nothing is posted: give both the same"
        _log.error("%s", told)
        raise ConfigurationError(told)

    def _places(self, event: RequestChanged) -> list[str]:
        if self._route is None:
            return places_in(self.conversation(event.run_id))
        if not callable(self._route):
            return places_in(self._route)
        # Here, since what announces does not know whether the text of an error may be shown.
        try:
            return places_in(self._route(event))
        except ConfigurationError as error:
            _log.error("the route gives no place for %s: %s", event.request.id, error)
            raise
        except Exception as error:
            _log.error("the route has raised %s for %s", type(error).__name__, event.request.id)
            raise

    def _is_unseen(self, channel: Channel, token: Token) -> bool:
        """True if a request waits that no message here shows whole: an older message may have a button all the same."""
        if self._approves_unseen(channel) or (request := self._request(token.pending_id)) is None:
            return False
        return request.status == "pending" and not shows_whole(request, self._hiding)

    def _no_approval(self, token: Token) -> str:
        return f"Nothing was decided: not all of it can be shown here. {self._see(token.pending_id)}"

    def _no_form(self, token: Token) -> str:
        return f"This does not fit into a form here. {self._see(token.pending_id)}"

    def _person_at(self, at: str) -> str:
        """The id of the person whose place this is; empty where a place is nobody's own, or the directory knows nobody."""
        channel = self._channels.get(at.partition(":")[0])
        if not isinstance(channel, PersonalChannel):
            return ""
        person = person_behind(self._directory, channel.alias_at(at.partition(":")[2]))
        return person.id if person is not None else ""

    def is_still_theirs(self, token: Token, person: Principal) -> bool:
        """Whether the message of a button was for this person, and not for somebody who had their address before."""
        found = self._posts.get(post_key(token.pending_id, token.by))
        # A post is forgotten some days after its request is over: then nothing can be decided by it.
        return found is None or found[0].person in ("", person.id)

    def _link(self, pending_id: str) -> str | None:
        return f"{self._inbox}/requests/{pending_id}" if self._inbox is not None else None

    def _see(self, pending_id: str | None) -> str:
        link = self._link(pending_id) if pending_id else None
        return f"Decide it in the inbox: {link}" if link else f"Decide it with `phronomy show {pending_id}`."


def _check_keys(keys: object, current: str | None) -> None:
    """Refuse keys of which it is not known which one signs. `Tokens` checks the rest. Raises `ConfigurationError`."""
    if not isinstance(keys, Mapping) or not keys:
        raise ConfigurationError('keys is a mapping of ids to secrets, such as {"2026-11": secret}')
    if current is None and len(keys) > 1:
        raise ConfigurationError("there are several keys, so current says which of them signs")
