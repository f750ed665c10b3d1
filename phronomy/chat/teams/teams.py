"""Microsoft Teams as a channel: Adaptive Cards with universal actions, dialogs, and the Bot Connector as client and as proof of origin.

The buttons are on the message for all, and each client asks for the card of its own person (`Viewed`): there, only the buttons are that
count for them. The message has them too since not every client asks: none does in a chat of more than 60 people, and old ones never do.
Who presses a button that is not for them is refused in private.

Forms are dialogs. A card with inputs in place of the message would be private as well, but each edit of the message takes it away with
what somebody has typed: another vote would do.

Teams has no key by which it would recognise a message that is posted twice. A message that is there twice leads to one request, and is
edited too from its first click on.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

from phronomy.chat.channel import (
    Card,
    ChannelError,
    ChannelRefused,
    Click,
    Form,
    FormLimits,
    Pace,
    Received,
    Submitted,
    Viewed,
    Work,
    check_name,
)
from phronomy.chat.http import HttpRequest, Refused, Response, text_response
from phronomy.chat.teams.activities import (
    Place,
    is_conversation,
    is_uuid,
    read_activity,
    reference,
    thread_of,
)
from phronomy.chat.teams.adaptive_cards import (
    LARGEST,
    card_of,
    dialog_of,
    dialog_told,
    form_in,
    message_of,
    not_known,
    reminder_of,
    short_message_of,
    shown,
    text_message,
    told,
)
from phronomy.chat.teams.connector import Cloud, Connector, TooLarge, document_at
from phronomy.chat.teams.tokens import CHANNEL, Keys, NoKeys, service_of
from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import is_series
from phronomy.foundation.json_text import JsonDict, JsonError, object_of, parse, text_of
from phronomy.foundation.quoting import quoted

_log = logging.getLogger("phronomy")

_SERVICE: Final = "https://smba.trafficmanager.net/teams/"
_PACE: Final = 2.0
"""Seconds between two messages in a conversation, edits too: 1,800 an hour, and less than all limits for shorter times.
https://learn.microsoft.com/en-us/microsoftteams/platform/bots/how-to/rate-limit"""
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class Teams:
    """Microsoft Teams as a channel of `ChatApprovals`. It needs `pip install 'phronomy[teams]'`.

    `app_id` and `app_password` are those of the bot in Entra ID: the "Application (client) ID", and the value of a client secret.
    `tenant_id` is the "Directory (tenant) ID" of the bot and of your people. People of `other_tenants`, who may be in shared channels,
    can decide too if the directory knows them; those of all others are refused. The alias of a person is `teams:TENANT:OBJECT`, with
    their object id in Entra ID, both in small letters.

    Teams sends to the path that ends with `name`. A place is the id of a conversation. `service_url` is where messages are sent:
    the worldwide address, unless your region needs its own. Requests that name a service of another host are refused. `cloud` has the
    other addresses of Microsoft. Raises `ConfigurationError`.
    """

    form_limits: FormLimits = FormLimits(fields=20, value=1_000, choices=50)
    say_limit: int = (
        LARGEST // 5
    )  # a character has at most four bytes, in UTF-8 and in UTF-16; the rest is for what is around it

    def __init__(
        self,
        *,
        app_id: str,
        app_password: str,
        tenant_id: str,
        other_tenants: Collection[str] = (),
        name: str = "teams",
        service_url: str = _SERVICE,
        cloud: Cloud | None = None,
    ) -> None:
        if not isinstance(app_password, str) or not app_password:
            raise ConfigurationError("app_password is text that is not empty: the value of a client secret of the app")
        if not is_series(other_tenants):
            raise ConfigurationError("other_tenants is a list of ids of tenants, and no text")
        given = [app_id, tenant_id, *other_tenants]
        ids = [each.lower() if isinstance(each, str) else "" for each in given]
        for id, was in zip(ids, given, strict=True):
            if not is_uuid(id):
                raise ConfigurationError(
                    f"app_id and the ids of tenants are UUIDs, as Entra ID shows them, not {quoted(was)}"
                )
        check_name(name)
        origin = _origin(service_url)
        if origin is None:
            raise ConfigurationError(f"service_url is an address with https, not {quoted(service_url)}")
        given_cloud = cloud if cloud is not None else Cloud()
        if _origin(given_cloud.login_url) is None or _origin(given_cloud.metadata_url) is None:
            raise ConfigurationError("the addresses of a cloud have https: the app sends its secret to one of them")
        self.name = name
        self._app_id = ids[0]
        self._tenants = frozenset(ids[1:])
        self._origin = origin
        self._service = service_url.rstrip("/")
        self._cloud = given_cloud
        self._keys = Keys(self._cloud.metadata_url, document_at)
        self._connector = Connector(
            app_id=self._app_id,
            app_password=app_password,
            tenant_id=ids[1],
            service_url=f"{self._service}/",
            cloud=self._cloud,
        )

    def __repr__(self) -> str:
        return f"Teams(name={self.name!r}, app_id={self._app_id!r})"

    # What comes in

    def receive(self, request: HttpRequest, *, now: float) -> Received | Viewed | Response:
        """As `Channel.receive`."""
        header = request.headers.get("authorization", "")
        try:
            service = service_of(header, self._keys, app_id=self._app_id, issuer=self._cloud.issuer, now=now)
        except NoKeys:
            return text_response(503, "not now: the keys of Microsoft cannot be read")
        try:
            activity = object_of(parse(request.body))
            self._check_service(activity, service)
            found = read_activity(activity, name=self.name, tenants=self._tenants)
        except JsonError:
            raise Refused(400, "no activity") from None
        if isinstance(found, Place):
            return Response(after=lambda: self._tell_place(found.conversation, service))
        if found is not None:
            return found
        return not_known() if activity.get("name") == "adaptiveCard/action" else Response()

    def _check_service(self, activity: JsonDict, service: str) -> None:
        """The token is for the service and the channel that an activity names, and the service is that of this app."""
        named = text_of(activity.get("serviceUrl")).rstrip("/")
        if not named or named != service:
            raise Refused(403, "of another service than its token")
        if _origin(named) != self._origin:
            raise Refused(403, "of a service that is not allowed here")
        if activity.get("channelId") != CHANNEL:
            raise Refused(403, "of another channel")

    def _tell_place(self, conversation: str, service: str) -> None:
        said = f"Approvals can be asked for here. This place is {self.name}:{conversation}"
        if service != self._service:
            said += f"\n\nThe service_url for it is {service}/"
        try:
            self._connector.post(conversation, text_message(said))
        except ChannelError as error:
            _log.warning("%s could not say which place a conversation is: %s", self.name, error)

    def place_of(self, alias: str) -> str | None:
        """As `ReachesPeople.place_of`: the chat of the bot with a person, `TENANT:OBJECT`. The app must be installed for them."""
        tenant, _, person = alias.removeprefix(f"{self.name}:").partition(":")
        return f"{tenant}:{person}" if tenant in self._tenants and is_uuid(person) else None

    def mention_of(self, alias: str) -> str | None:
        """As `ReachesPeople.mention_of`: the object id, which a mention takes as it takes the ids of members."""
        to = self.place_of(alias)
        return to.partition(":")[2] if to is not None else None

    # What goes out at once

    def acknowledge(self, received: Received, notice: str | None) -> Response:
        """As `Channel.acknowledge`."""
        kind = received.reply.get("kind")
        if kind == "dialog":
            return dialog_told(notice) if notice is not None else Response()
        if kind == "card":
            return told(notice) if notice is not None else not_known()
        if notice is None:
            return Response()
        return Response(after=lambda: self._tell(received, notice))

    def show(self, received: Click | Viewed, card: Card | None) -> Response:
        """As `ShowsCards.show`. It edits nothing: clients ask again after each edit, so one would follow the other without end."""
        if isinstance(received, Click) and received.reply.get("kind") != "card":
            return Response()  # it came as a message, to which nothing can be answered; the message changes for all
        if card is None:
            return (
                told("Recorded. This message does not change any more.") if isinstance(received, Click) else not_known()
            )
        return shown(card_of(card, received.data if card.state == "waits" else None))

    def open_form(self, click: Click, form: Form) -> Response:
        """Open a dialog. It is in the answer itself, so nothing can fail that is not here."""
        if click.reply.get("kind") != "dialog":
            return self.acknowledge(click, "This version of Teams shows no forms. Use a newer one, or the inbox.")
        return dialog_of(form, {})

    def show_errors(self, submitted: Submitted, errors: Mapping[str, str]) -> Response:
        """As `Channel.show_errors`: the dialog stays, with what is in its fields."""
        form = form_in(object_of(parse(submitted.reply.get("form", "{}"))))
        return dialog_of(form, errors) if form is not None else dialog_told("\n".join(errors.values()))

    # What goes out later

    def post(self, to: str, card: Card, *, key: str) -> str:
        """Post to a conversation, such as `19:...@thread.tacv2`, or to a person, `TENANT:OBJECT`. Raises `ChannelError`."""
        tenant, _, person = to.partition(":")
        if is_uuid(tenant) and is_uuid(person):
            to = self._connector.conversation_with(person, tenant)
        try:
            return self._post(to, message_of(card))
        except TooLarge:
            return self._post(to, short_message_of(card))

    def update(self, ref: str, card: Card) -> None:
        """As `Channel.update`."""
        conversation, _, message = ref.partition("/")
        try:
            self._connector.put(conversation, message, message_of(card))
        except TooLarge:
            self._connector.put(conversation, message, short_message_of(card))

    def remind(self, ref: str, card: Card) -> None:
        """Write below a message: in its thread, or in the same chat. Raises `ChannelError`."""
        self._send(thread_of(ref), reminder_of(card))

    def say(self, to: str, text: str, *, key: str) -> str:
        """As `TalkingChannel.say`, to a conversation. In the thread of a channel, this is the conversation with `;messageid=` after it.

        Teams reads no markup in it. It does not use `key`, as it recognises no repetition. Raises `ChannelError`.
        """
        return self._post(to, text_message(text))

    def pace(self, work: Work, to: str) -> Pace:
        """One message in two seconds in a conversation, posts and edits together."""
        return Pace(lane=to.partition(";")[0], seconds=_PACE)

    def _send(self, to: str, activity: JsonDict) -> str:
        if not is_conversation(to):
            raise ChannelRefused("a place of Teams is the id of a conversation, such as 19:...@thread.tacv2")
        return self._connector.post(to, activity)

    def _post(self, to: str, activity: JsonDict) -> str:
        ref = reference(to, self._send(to, activity))
        if ref is None:
            # It is there, so it must not be sent again. Once somebody clicks on it, it is known.
            _log.warning("%s has not said which message it has posted", self.name)
            return f"{to}/unknown"
        return ref

    def _tell(self, received: Received, notice: str) -> None:
        """Tell somebody alone something, where an answer cannot: in their own chat with the bot."""
        reply = received.reply
        try:
            chat = reply.get("conversation") or self._connector.conversation_with(reply["member"], reply["tenant"])
            self._send(chat, text_message(notice))
        except ChannelError as error:
            # They see that nothing has happened, and click again.
            _log.warning("%s could not tell somebody what came of a click: %s", self.name, error)


def _origin(url: object) -> tuple[str, str, int | None] | None:
    """The scheme, host and port of an address with TLS, or of this machine; None for any other."""
    if not isinstance(url, str) or not (url.isascii() and url.isprintable()) or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # a port that is none
        return None
    plain = parts.scheme == "http" and parts.hostname in _LOOPBACK
    bare = parts.username is None and parts.password is None and not parts.fragment and not parts.query
    if not bare or not parts.hostname or not (parts.scheme == "https" or plain):
        return None
    return parts.scheme, parts.hostname, port if plain else port or 443
