"""Webhooks as a channel: signed events to your own programs, and signed answers back, by Standard Webhooks 1.0.0.

An event has the same id on each try, made of the post, its version and what it says, and a new time. So a receiver that has seen an id
need not look at it again, and a receiver that gets events in another order keeps the one of the highest version.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from phronomy.chat.cards import shown_hash
from phronomy.chat.channel import (
    FORMS,
    LETTERS,
    Action,
    Card,
    ChannelError,
    ChannelRefused,
    Click,
    Form,
    FormLimits,
    Pace,
    RateLimited,
    Received,
    Submitted,
    Work,
    check_name,
)
from phronomy.chat.forms import CONTENT, REASON
from phronomy.chat.http import HttpRequest, Refused, Response
from phronomy.chat.webhooks.delivery import Target, deliver, target_of
from phronomy.chat.webhooks.payloads import LONGEST, EventType, event_body, form_shown, read_answer, reply_with
from phronomy.chat.webhooks.signature import ID, key_of, sign, verify
from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import is_number, texts_in
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import quoted
from phronomy.models.formats.answer import seconds_of

if TYPE_CHECKING:
    from ssl import SSLContext

_BY: Final = re.compile(r"[!-~]{1,200}")
_HOUR: Final = 3_600.0
RETRIES: Final = (5.0, 20.0, 120.0, 600.0, 1_800.0, *(hours * _HOUR for hours in (2, 5, 10, 14, 20, 24)))
"""The seconds before each further try of an event that has failed: in all for some three days."""

_SLOW_DOWN: Final = frozenset({429, 502, 503, 504})
_A_WHILE: Final = 5.0
"""Seconds for which nothing is sent to an endpoint that asks for that without saying for how long."""
_OWNED: Final = 40.0
"""The longest timeout: well below the time for which the outbox owns what it sends."""
_KINDS: Final[Mapping[Work, EventType]] = {
    "post": "request.asked",
    "update": "request.changed",
    "remind": "request.reminded",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Somebody who gets events, and may answer.

    Events are posted to `url`, an `https` address, and are signed with each of `secrets`: `whsec_` and 24 to 64 bytes in base64. To
    change a secret, give both until the other side knows the new one. Answers are signed by the other side with one of
    `answer_secrets`; without any, it cannot answer, and its events offer no answers. Events follow each other after `seconds` at the
    soonest.
    """

    url: str = field(repr=False)
    secrets: Sequence[str] = field(repr=False)
    answer_secrets: Sequence[str] = field(default=(), repr=False)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """An endpoint, as it was read."""

    target: Target
    keys: tuple[bytes, ...] = field(repr=False)
    answer_keys: tuple[bytes, ...] = field(repr=False)
    seconds: float


class Webhooks:
    """Webhooks as a channel of `ChatApprovals`: `Webhooks(endpoints={"erp": Endpoint(url=..., secrets=[...])})`.

    The place of an endpoint is `webhook:erp`. Its answers are posted to the path that ends with `name`, and the alias of its person 17
    is `webhook:erp:17`. Events are sent to `https` and to public addresses alone; `internal_hosts` are hosts of your own network that
    may have any address but those of metadata services, and may have `http`. `timeout` is in seconds, for a try. `retries` are the
    seconds before each further try; after the last, the event has failed for good. `clock` gives the time of signatures, in seconds
    since the epoch. Raises `ConfigurationError`.

    Certificates are checked against those that Python trusts, or `SSL_CERT_FILE`. No proxy is used.
    """

    form_limits: FormLimits = FormLimits(fields=100, value=LONGEST, choices=100)

    def __init__(
        self,
        *,
        endpoints: Mapping[str, Endpoint],
        name: str = "webhook",
        internal_hosts: Iterable[str] = (),
        timeout: float = 15.0,
        retries: Sequence[float] = RETRIES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_name(name)
        if not is_number(timeout) or not 0 < timeout <= _OWNED:
            raise ConfigurationError(f"timeout is a number of seconds, {_OWNED:.0f} at most, not {quoted(timeout)}")
        if not retries or not all(is_number(each) and each > 0 for each in retries):
            raise ConfigurationError("retries are numbers of seconds above 0, at least one")
        hosts = texts_in(internal_hosts)
        if hosts is None:
            raise ConfigurationError("internal_hosts is a list of names of hosts")
        self.name = name
        self._internal = frozenset(host.lower().strip("[]") for host in hosts)
        self._timeout = timeout
        self._retries = tuple(retries)
        self._clock = clock
        self._sides = {id: self._side(id, endpoint) for id, endpoint in endpoints.items()}
        self._check_keys()

    def __repr__(self) -> str:
        return f"Webhooks(name={self.name!r}, endpoints={sorted(self._sides)})"

    # What comes in

    def receive(self, request: HttpRequest, *, now: float) -> Received | Response:
        """As `Channel.receive`."""
        keys = {id: side.answer_keys for id, side in self._sides.items()}
        endpoint = verify(keys, request.headers, request.body, now=now)
        answer = read_answer(request.body)
        if not _BY.fullmatch(answer["by"]):
            raise Refused(400, "by: an id is ASCII that can be seen, without blanks")
        alias, delivery = f"{self.name}:{endpoint}:{answer['by']}", request.headers[ID]
        action = _ACTIONS[answer["data"][0]]
        if "values" not in answer:
            return Click(alias=alias, delivery=delivery, data=answer["data"])
        values = answer["values"]
        unknown = {name: "There is no such field." for name in values if not _is_field(action, name)}
        unknown |= {name: f"{LONGEST:,} characters at most." for name in values if len(values[name]) > LONGEST}
        if unknown:
            return reply_with({"errors": unknown}, status=422)
        if action not in FORMS:  # no values, as they can only be
            return Click(alias=alias, delivery=delivery, data=answer["data"])
        return Submitted(alias=alias, delivery=delivery, data=answer["data"], values=values, partial=True)

    def acknowledge(self, received: Received, notice: str | None) -> Response:
        """As `Channel.acknowledge`."""
        return reply_with({"notice": notice})

    def open_form(self, click: Click, form: Form) -> Response:
        """As `Channel.open_form`: the form is the answer."""
        return reply_with({"form": form_shown(form)})

    def show_errors(self, submitted: Submitted, errors: Mapping[str, str]) -> Response:
        """As `Channel.show_errors`."""
        return reply_with({"errors": dict(errors)}, status=422)

    # What the outbox sends

    def post(self, to: str, card: Card, *, key: str) -> str:
        """Send `request.asked` to an endpoint. Raises `ChannelError`."""
        ref = f"{to}/{key}"
        self._send("post", ref, card)
        return ref

    def update(self, ref: str, card: Card) -> None:
        """Send `request.changed`. Raises `ChannelError`."""
        self._send("update", ref, card)

    def remind(self, ref: str, card: Card) -> None:
        """Send `request.reminded`. Raises `ChannelError`."""
        self._send("remind", ref, card)

    def pace(self, work: Work, to: str) -> Pace:
        """As fast as the endpoint is set to take events; each request has its own."""
        side = self._sides.get(to)
        return Pace(lane=to, seconds=side.seconds if side is not None else 1.0, retries=self._retries, batches=False)

    def _send(self, work: Work, ref: str, card: Card) -> None:
        to = ref.partition("/")[0]
        side = self._sides.get(to)
        if side is None:
            raise ChannelRefused("no endpoint has this name")
        now = self._clock()
        body = event_body(_KINDS[work], card, now, answers=bool(side.answer_keys))
        headers = sign(side.keys, _event_id(work, ref, card), int(now), body)
        internal = side.target.host in self._internal
        answer = deliver(side.target, headers, body, internal=internal, timeout=self._timeout, trust=self._trust)
        if 200 <= answer.status < 300:
            return
        told = f"status {answer.status}"
        if answer.status == 410:
            raise ChannelRefused(f"{told}: the endpoint takes this no more", gone=True, final=True)
        if answer.status in _SLOW_DOWN:
            asked = seconds_of(answer.retry_after, now=now)
            raise RateLimited(told, seconds=_A_WHILE if asked is None else asked)
        if answer.status < 400:
            raise ChannelError(f"{told}: a webhook follows no redirect")
        raise ChannelError(told)

    @cached_property
    def _trust(self) -> SSLContext:
        from httpx2 import create_ssl_context  # noqa: PLC0415  # it reads the certificates, which takes a while

        return create_ssl_context()

    # Settings

    def _side(self, id: str, endpoint: Endpoint) -> _Side:
        check_name(id, "an endpoint")
        if not is_number(endpoint.seconds) or endpoint.seconds < 0:
            raise ConfigurationError(f"endpoint {id}: seconds is a number from 0")
        secrets, answer_secrets = texts_in(endpoint.secrets), texts_in(endpoint.answer_secrets)
        if not secrets or answer_secrets is None:
            raise ConfigurationError(f"endpoint {id}: secrets is a list of secrets, at least one")
        try:
            target = target_of(endpoint.url)
            keys, answer_keys = tuple(map(key_of, secrets)), tuple(map(key_of, answer_secrets))
        except (ValueError, AttributeError) as error:
            raise ConfigurationError(f"endpoint {id}: {error}") from None
        if target.scheme != "https" and target.host not in self._internal:
            raise ConfigurationError(f"endpoint {id}: only a host of internal_hosts may have http")
        return _Side(target=target, keys=keys, answer_keys=answer_keys, seconds=endpoint.seconds)

    def _check_keys(self) -> None:
        """A secret proves who has signed, and in which direction: no two endpoints have the same, nor has one for both."""
        if not self._sides:
            raise ConfigurationError("endpoints is a mapping of names to endpoints, at least one")
        events = {key for side in self._sides.values() for key in side.keys}
        known: set[bytes] = set()
        for id, side in self._sides.items():
            mine = set(side.answer_keys)
            if mine & known or mine & events:
                raise ConfigurationError(
                    f"endpoint {id}: each endpoint signs its answers with a secret that nothing else is signed with"
                )
            known |= mine


_ACTIONS: Final[Mapping[str, Action]] = {letter: action for action, letter in LETTERS.items()}


def _is_field(action: Action, name: str) -> bool:
    return name == {"reason": REASON, "respond": CONTENT}.get(action) or (action == "edit" and name.startswith("arg:"))


def _event_id(work: Work, ref: str, card: Card) -> str:
    """The id of an event: the same on each try, and another one if anything else is said."""
    whole = f"{work}\n{ref}\n{card.version}\n{shown_hash(card)}"
    return "msg_" + hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:32]
