"""E-mail as a channel: mails by SMTP with links, each of which opens a page of the inbox (`MailLinks`).

A mail cannot be edited. What would be an edit elsewhere is a short mail in the same thread, and only for what people want to hear of.
No server tells a mail that is sent twice from two: each mail has a Message-ID of its own, which a repetition has too, and many mail
programs show one of the two. Nothing comes in by HTTP here. RFC 5321, 5322, 3834, 8314.
"""

from __future__ import annotations

import hashlib
import secrets
import smtplib
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from email.utils import parseaddr
from ipaddress import ip_address
from typing import Final, Literal, TypeAlias

from phronomy.chat.channel import (
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
)
from phronomy.chat.deadline import Deadline
from phronomy.chat.email.addresses import PREFIX, Address, address_of, alias_of
from phronomy.chat.email.connection import Connection, TlsConnection
from phronomy.chat.email.mails import Letter, mail_of
from phronomy.chat.http import HttpRequest, Refused, Response, text_response
from phronomy.errors import ConfigurationError
from phronomy.foundation.checks import is_count, is_number
from phronomy.foundation.quoting import quoted

Security: TypeAlias = Literal["starttls", "tls", "none"]
"""How the connection to the mail server is protected."""

_PORTS: Final[Mapping[Security, int]] = {"starttls": 587, "tls": 465, "none": 25}
_STEP: Final = 10.0
"""Seconds for one answer of the server."""
_BUSY: Final = 30.0
"""Seconds for which nothing is sent once a server has said that it is busy: SMTP has no number for that."""
_LONGEST: Final = 45.0
"""The most seconds for one mail: well below the time for which the outbox owns what it sends."""


class Email:
    """E-mail as a channel of `ChatApprovals`: places are addresses of people, such as `email:rita@example.org`.

    `sender` is whom the mails come from, such as `"Refund desk <desk@example.org>"`. `inbox_url` is the address of the inbox that has
    `MailLinks`: the links lead there. `host` and `port` are the mail server; without `port` it is 587, 465 with `"tls"` and 25 with
    `"none"`. `security` is `"starttls"`, `"tls"`, or `"none"`, which is for a server on the loopback interface alone; left out, it is
    `"none"` there and `"starttls"` elsewhere. The certificate is checked, by `tls` if you give a context of your own, for a private
    authority say. `user` and `password` sign in. `timeout` are the seconds for one mail, `seconds` those between two mails.

    Each address is that of one person. A list of several would have all of them decide as one. Raises `ConfigurationError`.
    """

    name: Final = "email"

    def __init__(
        self,
        *,
        sender: str,
        inbox_url: str,
        host: str = "localhost",
        port: int | None = None,
        security: Security | None = None,
        user: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        seconds: float = 0.2,
    ) -> None:
        is_local = _is_loopback(host)
        security = security if security is not None else "none" if is_local else "starttls"
        if security not in _PORTS:
            raise ConfigurationError(f"security is 'starttls', 'tls' or 'none', not {quoted(security)}")
        if security == "none" and not is_local:
            raise ConfigurationError("security 'none' is for a mail server on this machine: use 'starttls' or 'tls'")
        if tls is not None and not (tls.check_hostname and tls.verify_mode is ssl.CERT_REQUIRED):
            raise ConfigurationError("tls is a context that checks certificates and host names")
        if port is not None and (not is_count(port) or not 0 < port < 65_536):
            raise ConfigurationError(f"port is a number from 1 to 65535, not {quoted(port)}")
        if not is_number(timeout) or not 0 < timeout <= _LONGEST:
            raise ConfigurationError(f"timeout is a number of seconds, at most {_LONGEST:.0f}, not {quoted(timeout)}")
        if not is_number(seconds) or seconds <= 0:
            raise ConfigurationError(f"seconds is a number above 0, not {quoted(seconds)}")
        if (user is None) != (password is None):
            raise ConfigurationError("user and password are given together")
        if not inbox_url.startswith(("https://", "http://")) or not inbox_url.isprintable() or " " in inbox_url:
            raise ConfigurationError("inbox_url is the address of an inbox, such as https://example.org/inbox")
        self._name, self._sender = _sender(sender)
        self._url = inbox_url.rstrip("/")
        self._host = host
        self._port = port if port is not None else _PORTS[security]
        self._security: Security = security
        self._login = (user, password) if user is not None and password is not None else None
        self._tls = tls
        self._timeout = timeout
        self._seconds = seconds

    def __repr__(self) -> str:
        return f"Email(sender={self._sender.shown!r}, host={self._host!r}, security={self._security!r})"

    @property
    def opens_page(self) -> Literal[True]:
        """A button of a mail opens the page of the request, and is pressed there."""
        return True

    @property
    def form_limits(self) -> FormLimits | None:
        """Mails have no forms."""
        return None

    # What comes in: nothing, but what the page of the inbox hands over

    def receive(self, request: HttpRequest, *, now: float) -> Received | Response:
        """Refuse whatever comes. Raises `Refused`."""
        raise Refused(404, "nothing comes in here: links in mails lead to a page of the inbox")

    def acknowledge(self, received: Received, notice: str | None) -> Response:
        """Answer the page: its text is what the person is told; it is empty if there is nothing to tell."""
        return text_response(200, notice or "")

    def open_form(self, click: Click, form: Form) -> Response:
        """Mails have no forms. Raises `ChannelError`."""
        raise ChannelError("mails have no forms")

    def show_errors(self, submitted: Submitted, errors: Mapping[str, str]) -> Response:
        """Answer the page: the answer itself is to be mended."""
        return text_response(422, " ".join(errors.values()))

    def place_of(self, alias: str) -> str | None:
        """As `ReachesPeople.place_of`: the address."""
        address = alias.removeprefix(PREFIX)
        try:
            address_of(address)
        except ValueError:
            return None
        return address

    def mention_of(self, alias: str) -> str | None:
        """None: a mail is to one person."""
        return None

    # What the outbox sends

    def alias_at(self, to: str) -> str:
        """As `PersonalChannel.alias_at`."""
        return alias_of(f"{PREFIX}{to}")

    def post(self, to: str, card: Card, *, key: str) -> str:
        """Send the first mail to an address. Raises `ChannelError`."""
        address = self._address(to)
        letter = self._letter(address, self._id(key))
        if card.pending_id and card.state != "waits":
            # Perhaps the first mail is there, and nobody knows: with the same Message-ID this one would be taken for it.
            letter = self._letter(address, self._id(f"{key}.{_mark(card)}"), thread=self._id(key))
        self._send(mail_of(card, letter), address)
        return f"{key}/{to}"

    def update(self, ref: str, card: Card) -> None:
        """Tell in the thread of the first mail that somebody has voted, that it is decided, or that it is over. Raises `ChannelError`.

        Nothing is sent for any other change of a request that waits: what is new is on the page.
        """
        if card.state == "waits" and not card.votes:
            return
        key, _, to = ref.partition("/")
        address = self._address(to)
        letter = self._letter(address, self._id(f"{key}.{_mark(card)}"), thread=self._id(key))
        self._send(mail_of(card, letter), address, follows=True)

    def remind(self, ref: str, card: Card) -> None:
        """Send a reminder in the thread of the first mail. Raises `ChannelError`."""
        key, _, to = ref.partition("/")
        address = self._address(to)
        # Two reminders say the same. With one Message-ID for both, nobody would see the second.
        id = self._id(f"{key}.{secrets.token_hex(6)}")
        self._send(
            mail_of(card, self._letter(address, id, thread=self._id(key), said="Still waiting")), address, follows=True
        )

    def pace(self, work: Work, to: str) -> Pace:
        """One mail in so many seconds, whoever gets it."""
        return Pace(lane="all", seconds=self._seconds)

    def _letter(self, to: Address, id: str, *, thread: str | None = None, said: str = "") -> Letter:
        return Letter(sender=self._sender, name=self._name, to=to, id=id, url=self._url, thread=thread, said=said)

    def _id(self, key: str) -> str:
        """A Message-ID: the same whenever the same mail is sent again."""
        return f"<phronomy.{key}@{self._sender.ascii_domain}>"

    def _address(self, to: str) -> Address:
        try:
            return address_of(to)
        except ValueError as error:
            raise ChannelRefused(str(error), gone=True) from None

    # SMTP

    def _send(self, mail: EmailMessage, to: Address, *, follows: bool = False) -> None:
        """Hand a mail to the server. Raises `ChannelError`, which quotes nothing that was sent or said."""
        step = "connect"
        try:
            with Deadline(self._timeout) as deadline, self._session(deadline) as smtp:
                step = "hand over a mail"
                options = ["SMTPUTF8"] if to.needs_utf8 else []
                if options and not smtp.has_extn("smtputf8"):
                    raise ChannelRefused("the mail server takes no such address: it has no SMTPUTF8", gone=follows)
                smtp.sendmail(self._sender.on_the_wire, [to.on_the_wire], mail.as_bytes(), options)
        except smtplib.SMTPRecipientsRefused as error:
            code = next((answer[0] for answer in error.recipients.values()), 0)
            raise _told(step, code, gone=follows) from None
        except smtplib.SMTPResponseException as error:
            raise _told(step, error.smtp_code) from None
        except smtplib.SMTPNotSupportedError:
            raise ChannelRefused(
                "the mail server does not offer what is needed, STARTTLS or a way to sign in"
            ) from None
        except ssl.SSLCertVerificationError:
            raise ChannelRefused("the certificate of the mail server is not good") from None
        except (smtplib.SMTPException, OSError, ValueError) as error:
            # After the mail was handed over, too: then it may be there. It is sent again, with the same Message-ID.
            # A ValueError is what is no base64 while somebody signs in.
            raise ChannelError(f"could not {step}: {type(error).__name__}") from None

    @contextmanager
    def _session(self, deadline: Deadline) -> Iterator[Connection]:
        """A connection that is protected and signed in."""
        context = self._tls if self._tls is not None else ssl.create_default_context()
        name = self._sender.ascii_domain  # to look up a name of this machine may take seconds
        step = min(_STEP, self._timeout)
        if self._security == "tls":
            smtp: Connection = TlsConnection(
                deadline, self._host, self._port, local_hostname=name, timeout=step, context=context
            )
        else:
            smtp = Connection(deadline, self._host, self._port, local_hostname=name, timeout=step)
        try:
            if self._security == "starttls":
                smtp.starttls(context=context)
            smtp.ehlo_or_helo_if_needed()
            if self._login is not None:
                smtp.login(*self._login)
            yield smtp
            # It was taken. However the server says good-bye, the mail is on its way.
            with suppress(smtplib.SMTPException, OSError):
                smtp.quit()
        finally:
            smtp.close()


def _told(step: str, code: int, *, gone: bool = False) -> ChannelError:
    said = f"could not {step}: the mail server says {code}"
    if code == 421:
        return RateLimited(said, seconds=_BUSY)
    if 500 <= code < 600:
        return ChannelRefused(said, gone=gone)
    return ChannelError(said)


def _sender(text: str) -> tuple[str, Address]:
    name, given = parseaddr(text) if text.isprintable() else ("", "")
    try:
        address = address_of(given)
    except ValueError:
        raise ConfigurationError("sender is an address of mail, such as Refund desk <desk@example.org>") from None
    if address.needs_utf8:
        raise ConfigurationError("sender is an address in ASCII: not every server takes another")
    return name, address


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _mark(card: Card) -> str:
    """What tells the mails about one request apart, and is the same when one is tried again."""
    return hashlib.sha256(f"{card.state}\0{card.status}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
