"""A fake Microsoft Teams: the Bot Connector over HTTP on the loopback interface, and people who click in clients.

It is written from Microsoft's public documentation: tokens with their endorsements, limits of size and of rates, universal actions with
refresh for each person after each edit, dialogs. It fails a test in which a refresh leads to an edit: that would go on without end.
https://learn.microsoft.com/en-us/microsoftteams/platform/bots, https://learn.microsoft.com/en-us/azure/bot-service/rest-api
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from phronomy.chat.channel import FORMS, Action, Channel
from phronomy.chat.http import Response
from phronomy.testing.chat.loopback import Loopback
from phronomy.testing.chat.platform import Answering, Clock, Sent, Shown, Trouble, Written, delivered
from phronomy.testing.chat.teams import client
from phronomy.testing.chat.teams.service import APP_ID, APP_PASSWORD, TENANT, Service
from phronomy.testing.chat.teams.signing import Way, published, token_of

Client: TypeAlias = Literal["new", "old"]
"""Whether a client knows universal actions, or sends a message in their place."""

_ISSUER: Final = "https://api.botframework.com"
_HOUR: Final = 3_600.0
_MINUTE: Final = 60.0


class FakeTeams:
    """A tenant of Teams with one bot and one channel. Use it as a context, or call `close`.

    With `rates`, it takes as many messages as Teams does, by its `clock`, and says no number of seconds. `conversation_type` is
    `"channel"`, where each message begins a thread, or `"groupChat"`. `calls` are the requests that the bot has sent, each with its
    method, its path and its body; `keys_read` is how often its keys were read, and `tokens_given` how many tokens it has given.
    """

    signs: Final = "origin"
    forms_are_answers: Final = True

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        rates: bool = False,
        conversation_type: Literal["channel", "groupChat"] = "channel",
    ) -> None:
        self.clock: Clock = clock if clock is not None else Clock()
        kind = "thread.tacv2" if conversation_type == "channel" else "thread.v2"
        self.conversation_id: str = f"19:0123456789abcdef@{kind}"
        self.place: str = f"teams:{self.conversation_id}"
        self.conversation_type: str = conversation_type
        self.endorsements: list[str] = ["msteams", "webchat"]
        self.keys_read: int = 0
        self.keys_are_down: bool = False
        self.is_large: bool = False
        self._service = Service(self.clock, self.conversation_id, rates=rates)
        self._key = 0
        self._told: list[tuple[str, str]] = []
        self._dialogs: dict[str, tuple[dict[str, Any], str]] = {}
        self._views: dict[tuple[str, str], dict[str, Any]] = {}
        self._fresh: dict[tuple[str, str], tuple[int, float]] = {}
        self._people: dict[str, None] = {}
        self._handler: Answering | None = None
        self._count = 0
        self._channel: Channel | None = None
        self._lock = threading.Lock()
        self._server = Loopback(self._answer)

    # As `Platform`

    @property
    def base_url(self) -> str:
        """The address of all of it."""
        return self._server.url

    @property
    def service_url(self) -> str:
        """The address of the service of Teams."""
        return f"{self._server.url}/teams/"

    @property
    def metadata_url(self) -> str:
        """The address of the metadata of the connector."""
        return f"{self._server.url}/v1/.well-known/openidconfiguration"

    @property
    def channel(self) -> Channel:
        """A `Teams` that talks to this fake."""
        if self._channel is None:
            from phronomy.chat.teams import Cloud, Teams  # noqa: PLC0415  # they need more than the fake does

            cloud = Cloud(login_url=self._server.url, metadata_url=self.metadata_url)
            self._channel = Teams(
                app_id=APP_ID, app_password=APP_PASSWORD, tenant_id=TENANT, service_url=self.service_url, cloud=cloud
            )
        return self._channel

    def __enter__(self) -> FakeTeams:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut the server down."""
        self._server.close()

    def connect(self, handler: Answering) -> None:
        """Have clicks sent to this handler."""
        self._handler = handler

    def person(self, by: str) -> str:
        """The object id of a person in Entra ID. Whoever was asked for looks at the messages from then on."""
        self._people.setdefault(by)
        return str(uuid.uuid5(uuid.NAMESPACE_URL, by))

    def alias(self, by: str) -> str:
        """The alias by which a directory knows a person."""
        return f"teams:{TENANT}:{self.person(by)}"

    def messages(self) -> list[Shown]:
        """The messages of the place as all see them, oldest first, once each client has asked for that of its person."""
        self.look()
        here = self.place.partition(":")[2]
        found = (ref for ref in self._service.messages if ref.rpartition("/")[0] == here)
        return [shown for ref in found if not (shown := self._shown(ref)).text.startswith("Still waiting")]

    def alone(self, by: str) -> list[Shown]:
        """The messages of the bot to one person alone, oldest first."""
        return self.conversation(Service.chat_with(self._member(by)))

    def conversation(self, thread: str) -> list[Shown]:
        """What the bot has posted in a thread or a chat, such as `19:...@thread.tacv2;messageid=1`, oldest first: texts and cards."""
        self.look()
        sent = [*self._service.messages, *self._service.texts]
        here = [ref for ref in sent if ref.rpartition("/")[0] == thread]
        return [self._shown(ref) for ref in sorted(here, key=lambda ref: int(ref.rpartition("/")[2]))]

    def view(self, by: str, shown: Shown) -> Shown:
        """A message as one person sees it."""
        self.person(by)
        self.look()
        card = self._card(by, shown.ref)
        return Shown(ref=shown.ref, text=client.seen(card), buttons=client.buttons(card), link=client.link(card))

    def reminders(self) -> list[str]:
        """The texts of reminders."""
        cards = (client.seen(card) for each in self._service.messages.values() if (card := client.card_in(each)))
        return [text for text in (*(text for _, text in self.texts()), *cards) if text.startswith("Still waiting")]

    def texts(self) -> list[tuple[str, str]]:
        """The plain texts that the bot has sent, each with its conversation."""
        return [(ref.rpartition("/")[0], text["text"]) for ref, text in [*self._service.texts.items()]]

    def told(self, by: str) -> list[str]:
        """What a person alone was told: in the answer to a click, or in their chat with the bot."""
        chat = Service.chat_with(self._member(by))
        return [text for who, text in self._told if who == by] + [text for where, text in self.texts() if where == chat]

    def pings(self) -> list[str]:
        """Mentions, links and markup that Teams would act on."""
        cards = [*self._views.values(), *(card for card, _ in self._dialogs.values())]
        sent = [*self._service.messages.values(), *self._service.texts.values()]
        found = [each for activity in sent for each in client.acted_on(activity)]
        return found + [each for card in cards for each in client.acted_on_in(card)]

    def fail(self, *troubles: Trouble | Literal["silent"] | int) -> None:
        """What goes wrong with the next calls of the bot. `"silent"`: too many, and no number of seconds. A number: that status."""
        self._service.troubles += troubles

    @property
    def calls(self) -> list[tuple[str, str, dict[str, Any]]]:
        """The requests of the bot, but for those that ask for tokens and keys."""
        return self._service.calls

    @property
    def hides_ids(self) -> bool:
        """Whether the answer to a post does not say which message it is."""
        return self._service.hides_ids

    @hides_ids.setter
    def hides_ids(self, hides: bool) -> None:
        self._service.hides_ids = hides

    @property
    def tokens_given(self) -> int:
        """How many tokens the bot got."""
        return len(self._service.tokens)

    @property
    def largest(self) -> int:
        """Bytes of the largest message, in UTF-16."""
        return self._service.largest

    @largest.setter
    def largest(self, bytes: int) -> None:
        self._service.largest = bytes

    def withdraw_tokens(self) -> None:
        """Have the tokens that were given count no more."""
        self._service.tokens = dict.fromkeys(self._service.tokens, 0.0)

    def rotate(self) -> None:
        """Sign with another key from now on, and publish this one alone."""
        self._key += 1

    # What people do

    def sign(self, shown: Shown, action: Action, by: str) -> Sent:
        """The request that a click makes, signed now."""
        data = {"phronomy": shown.buttons[action]}
        if action in FORMS:
            value = {"data": {"type": "task/fetch", **data}, "context": {"theme": "default"}}
            return self.signed(self.activity("invoke", by, shown, name="task/fetch", value=value))
        return self.signed(self.action(shown, by, f"phronomy:{action}", data))

    def action(self, shown: Shown, by: str, verb: str, data: Any, trigger: str = "manual") -> dict[str, Any]:
        """The activity of a universal action."""
        value = {"action": {"type": "Action.Execute", "id": "", "verb": verb, "data": data}, "trigger": trigger}
        return self.activity("invoke", by, shown, name="adaptiveCard/action", value=value)

    def sign_as_message(self, shown: Shown, action: Action, by: str) -> Sent:
        """The request that a click makes in a client which knows no universal actions: a message with a value."""
        return self.signed(self.activity("message", by, shown, value={"phronomy": shown.buttons[action]}))

    def say(self, text: str, by: str, *, mention: bool = True) -> Sent:
        """The request that a message to the bot makes, by default with a mention of it."""
        activity = self.activity("message", by)
        bot = {"id": f"28:{APP_ID}", "name": "Approvals"}
        entity = {"type": "mention", "text": "<at>Approvals</at>", "mentioned": bot}
        more = {"text": f"<at>Approvals</at> {text}\n", "entities": [entity]} if mention else {"text": text}
        return self.signed({**activity, "textFormat": "plain", **more})

    def write(self, by: str, text: str, *, thread: str | None = None) -> Written:
        """A message that mentions the bot: in a thread of the channel, or without one in a new thread. A group chat is one thread."""
        activity = json.loads(self.say(text, by).body)
        if self.conversation_type == "channel":
            # Whoever begins a thread writes a message whose id names it.
            thread = (
                thread
                if thread is not None
                else f"{self.conversation_id};messageid={int(self.clock.now)}{self._count:06d}"
            )
            activity["conversation"]["id"] = thread
        return Written(sent=self.signed(activity), thread=activity["conversation"]["id"])

    def install(self, by: str) -> Sent:
        """The request that is made when somebody adds the bot to the place."""
        added = [{"id": f"28:{APP_ID}"}]
        return self.signed({**self.activity("conversationUpdate", by), "membersAdded": added})

    def activity(self, kind: str, by: str, shown: Shown | None = None, **more: Any) -> dict[str, Any]:
        """An activity as the connector sends it. `shown` is the message to which it belongs."""
        self._count += 1
        conversation = {"id": self.conversation_id, "conversationType": self.conversation_type, "tenantId": TENANT}
        reply = {}
        if shown is not None:
            where, _, message = shown.ref.partition("/")
            in_channel = self.conversation_type == "channel" and ";messageid=" not in where
            conversation["id"] = f"{where};messageid={message}" if in_channel else where
            reply = {"replyToId": message}
        return {
            "type": kind,
            "id": f"f:{self._count:08d}",
            "timestamp": "2027-01-15T08:00:00.000Z",
            "channelId": "msteams",
            "serviceUrl": self.service_url,
            "from": {"id": self._member(by), "name": f"Somebody {by}", "aadObjectId": self.person(by)},
            "conversation": conversation,
            "recipient": {"id": f"28:{APP_ID}", "name": "Approvals"},
            "channelData": {"tenant": {"id": TENANT}, "source": {"name": "message"}},
            "locale": "en-GB",
            **reply,
            **more,
        }

    def signed(
        self,
        activity: Mapping[str, Any] | bytes,
        *,
        claims: Mapping[str, Any] | None = None,
        header: Mapping[str, Any] | None = None,
        way: Way = "RS256",
        key: int | None = None,
    ) -> Sent:
        """A request with any body, with a token by default as the connector makes it. A claim that is None is left out."""
        number = self._key if key is None else key
        now = self.clock.now
        whole = {
            "serviceurl": self.service_url,
            "nbf": int(now - 60),
            "exp": int(now + _HOUR),
            "iss": _ISSUER,
            "aud": APP_ID,
            **(claims or {}),
        }
        token = token_of(number, {"kid": f"key-{self._key}", **(header or {})}, _present(whole), way)
        body = activity if isinstance(activity, bytes) else json.dumps(activity).encode()
        return Sent(
            path="/chat/teams",
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json; charset=utf-8"},
            body=body,
        )

    def deliver(self, sent: Sent) -> Response:
        """Send a request to the handler, and let it finish."""
        return delivered(self._handler, sent)

    def click(self, shown: Shown, action: Action, by: str, *, client: Client = "new") -> Response:
        """Press a button."""
        sent = self.sign(shown, action, by) if client == "new" else self.sign_as_message(shown, action, by)
        response = self.deliver(sent)
        self._note(by, shown.ref, response)
        return response

    def form(self, by: str) -> dict[str, str] | None:
        """The fields of the dialog that is open for a person; None if none is."""
        return client.fields(self._dialogs[by][0]) if by in self._dialogs else None

    def submit(self, by: str, values: Mapping[str, str]) -> dict[str, str]:
        """Submit the open dialog; returns what is wrong with each field. What must be filled in is seen by the client."""
        card, _ = self._dialogs[by]
        whole = {**client.fields(card), **values}
        wrong = client.missing(card, whole)
        return wrong or self.submit_anyway(by, whole)

    def submit_anyway(self, by: str, values: Mapping[str, str]) -> dict[str, str]:
        """Submit the open dialog, even if the client would not. A field without a text is left out."""
        card, ref = self._dialogs.pop(by)
        [submit] = card["actions"]
        data = {**submit["data"], **{name: each for name, each in values.items() if each}}
        shown = Shown(ref=ref, text="")
        sent = self.signed(self.activity("invoke", by, shown, name="task/submit", value={"data": data}))
        self._note(by, ref, self.deliver(sent))
        return client.errors(self._dialogs[by][0]) if by in self._dialogs else {}

    def look(self) -> None:
        """Have each client ask for the card of its person, where the message is new, was edited since, or was asked for a minute ago.

        If the chat `is_large`, no client does.
        """
        if self._handler is None:
            return
        for ref in [*self._service.messages]:
            for by in [*self._people]:
                edits, now = self._service.edits.get(ref, 0), self.clock.now
                seen, at = self._fresh.get((by, ref), (-1, 0.0))
                if seen == edits and now - at <= _MINUTE:
                    continue
                self._fresh[by, ref] = (edits, now)
                if seen != edits:
                    self._views.pop((by, ref), None)
                if not self.is_large and "refresh" in self._card(by, ref):
                    self.refresh(by, Shown(ref=ref, text=""))

    def refresh(self, by: str, shown: Shown) -> Response:
        """Have a client ask for the card of its person by itself. Fails if that leads to a call of the bot."""
        wanted = self._card(by, shown.ref)["refresh"]["action"]
        before = len(self.calls)
        response = self.deliver(self.signed(self.action(shown, by, wanted["verb"], wanted["data"], "automatic")))
        assert len(self.calls) == before, (
            "a refresh loop: what a client asks by itself edits a message, so clients ask again"
        )
        if response.status == 200:
            answer = json.loads(response.body)
            assert answer["type"] != "application/vnd.microsoft.activity.message", "a refresh is answered with a card"
            if answer["statusCode"] == 200:
                client.check_card(answer["value"])
                self._views[by, shown.ref] = answer["value"]
        return response

    # Pieces

    def _shown(self, ref: str) -> Shown:
        if ref in self._service.texts:
            return Shown(ref=ref, text=self._service.texts[ref]["text"])
        card = client.card_in(self._service.messages[ref])
        assert card is not None, "this message has no card"
        edits = self._service.edits.get(ref, 0)
        return Shown(ref=ref, text=client.seen(card), buttons=client.buttons(card), link=client.link(card), edits=edits)

    def _note(self, by: str, ref: str, response: Response) -> None:
        """Show a person what the answer to a click says."""
        if response.status != 200:
            return
        answer = json.loads(response.body) if response.body else {}
        task = answer.get("task")
        if task is not None:
            if task["type"] == "message":
                self._told.append((by, task["value"]))
                return
            card = task["value"]["card"]["content"]
            client.check_card(card)
            assert len(card["actions"]) == 1 and task["value"]["title"], "a dialog has a title, and a button"
            self._dialogs[by] = (card, ref)
        elif answer.get("type") == "application/vnd.microsoft.card.adaptive":
            client.check_card(answer["value"])
            self._fresh.setdefault((by, ref), (0, self.clock.now))
            if self._fresh[by, ref][0] == self._service.edits.get(ref, 0):  # no edit has come after it
                self._views[by, ref] = answer["value"]
        elif "value" in answer:
            value = answer["value"]
            self._told.append((by, value["message"] if isinstance(value, dict) else value))

    def _card(self, by: str, ref: str) -> dict[str, Any]:
        card = self._views.get((by, ref)) or client.card_in(self._service.messages[ref])
        assert card is not None, "this message has no card"
        return card

    def _member(self, by: str) -> str:
        return f"29:1{self.person(by).replace('-', '')}"

    def _answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], Any] | None:
        with self._lock:
            if path.startswith("/v1/.well-known/"):
                if self.keys_are_down:
                    return 503, {}, {}
                if path.endswith("/openidconfiguration"):
                    return 200, {}, {"issuer": _ISSUER, "jwks_uri": f"{self._server.url}/v1/.well-known/keys"}
                self.keys_read += 1
                return 200, {}, {"keys": [published(self._key, f"key-{self._key}", self.endorsements)]}
            return self._service.answer(method, path, headers, body)


def _present(claims: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in claims.items() if value is not None}
