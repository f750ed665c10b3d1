"""A fake mail platform: a mail server that collects what is sent, and people who open links in a browser.

The server is aiosmtpd, on the loopback interface: `smtplib` talks to it. The web application with the links is called in this process.
It is a parameter, since it is above this room: `FakeMail(web=lambda approvals: Inbox(store, auth=..., links=MailLinks(approvals)))`.
"""

from __future__ import annotations

import asyncio
import email
import socket
from collections.abc import Callable, Mapping
from email import policy
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from phronomy.chat.approvals import ACTIONS, ChatApprovals
from phronomy.chat.channel import Action
from phronomy.chat.email import Email
from phronomy.chat.http import Response
from phronomy.testing.chat.mail.reading import Page, PageForm, acted_on, links_of, text_of
from phronomy.testing.chat.platform import Answering, Clock, Sent, Shown, Trouble

if TYPE_CHECKING:
    from ssl import SSLContext

ORIGIN: Final = "https://inbox.example"
"""Where the inbox of tests is."""

_ENDED: Final = (404, 410)
_REPLIES: Final[Mapping[Trouble, tuple[str, str]]] = {
    "limited": ("MAIL", "421 4.7.0 too many mails, try again later"),
    "refused": ("MAIL", "554 5.7.1 not from you"),
    "gone": ("RCPT", "550 5.1.1 no such mailbox"),
    "down": ("DATA", "451 4.3.0 try again later"),
}


class FakeMail:
    """A mail server, and people with mailboxes. Use it as a context, or call `close`. It needs `pip install aiosmtpd`.

    `web` makes the web application that answers the links, of the handler that is connected: an `Inbox` with `MailLinks`. `person` is
    whose mails `messages` has. `tls` has the server offer STARTTLS; with `users`, it asks for a name and its password. `scans` has a
    scanner open each link as soon as it is there: HEAD once, and GET twice.
    """

    signs: Final = "origin"
    forms_are_answers: Final = False

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        web: Callable[[ChatApprovals], Any],
        person: str = "U0000000RITA",
        tls: SSLContext | None = None,
        users: Mapping[str, str] | None = None,
        scans: bool = False,
    ) -> None:
        self.clock: Clock = clock if clock is not None else Clock()
        self.mails: list[EmailMessage] = []
        self.scanned: list[int] = []
        self.place: str = self.alias(person)
        self._web = web
        self._scans = scans
        self._app: Any = None
        self._troubles: list[Trouble] = []
        self._told: list[tuple[str, str]] = []
        self._opened: dict[str, PageForm] = {}
        self._controller = _server(self, tls, users)
        self.channel: Email = Email(
            sender="Refund desk <desk@example.org>",
            inbox_url=ORIGIN,
            host="127.0.0.1",
            port=self.port,
            security="none",
            seconds=0.001,
        )

    @property
    def port(self) -> int:
        """Where the mail server listens."""
        return int(self._controller.port)

    def __enter__(self) -> FakeMail:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Shut the server down."""
        self._controller.stop()

    # What people do and see

    def connect(self, handler: Answering) -> None:
        """Have links answered by the web application over this handler, a `ChatApprovals`."""
        assert isinstance(handler, ChatApprovals)
        self._app = self._web(handler)

    def alias(self, by: str) -> str:
        """The alias by which a directory knows a person, which is also the place where they are asked."""
        return f"email:{by}@example.org"

    def messages(self) -> list[Shown]:
        """The threads in the mailbox of `person`, oldest first, as the newest mail in each of them says it, without reminders.

        Everybody opens the links of a new mail once, and keeps the pages open.
        """
        self._open_new()
        return [self._shown(mails) for mails in self._threads(self.place).values()]

    def alone(self, by: str) -> list[Shown]:
        """The threads in the mailbox of a person, oldest first, as the newest mail in each of them says it, without reminders."""
        self._open_new()
        return [self._shown(mails) for mails in self._threads(self.alias(by)).values()]

    def mailbox(self, by: str) -> list[EmailMessage]:
        """The mails of a person, oldest first. Of mails with one Message-ID there is the first."""
        found: dict[str, EmailMessage] = {}
        for mail in [*self.mails]:
            if mail["To"] == self.alias(by).removeprefix("email:"):
                found.setdefault(str(mail["Message-ID"]), mail)
        return list(found.values())

    def reminders(self) -> list[str]:
        """The texts of reminders in the mailbox of `person`."""
        return [text_of(mail) for mail in self._of(self.place) if _is_reminder(mail)]

    def told(self, by: str) -> list[str]:
        """What a page has told a person."""
        return [text for who, text in self._told if who == by]

    def pings(self) -> list[str]:
        """Links, elements and texts that a mail program would act on, but those that lead to the inbox."""
        known = (f"{ORIGIN}/",)
        return [each for mail in [*self.mails] for each in acted_on(mail, known)]

    def fail(self, *troubles: Trouble) -> None:
        """What goes wrong with the next mails that are handed over."""
        self._troubles += troubles

    def sign(self, shown: Shown, action: Action, by: str) -> Sent:
        """What a browser sends when a person presses the button on the page of their link."""
        form = self._form(self._data(shown, action, by), action)
        return _posted(form)

    def deliver(self, sent: Sent) -> Response:
        """Send a request to the web application, go where it leads, and return the status and the text of the page."""
        status, page = self.page("POST", sent.path, sent.headers, sent.body)
        return Response(status=status, body=" ".join(page.main.split()).encode())

    def click(self, shown: Shown, action: Action, by: str) -> Response:
        """Open the link that is in the mailbox of this person, and press the button there.

        If the page has no button now, that of the page as it was first opened is pressed. If there was none either, the form is made by
        hand, as somebody may who does not keep to the page.
        """
        data = self._data(shown, action, by)
        status, page = self.page("GET", f"/mail/{data}")
        if status not in _ENDED:
            sent = _posted(page.form(action) or self._form(data, action))
            status, page = self.page("POST", sent.path, sent.headers, sent.body)
        if page.notice:
            self._told.append((by, " ".join(page.notice.split())))
        return Response(status=status, body=" ".join(page.main.split()).encode())

    def form(self, by: str) -> dict[str, str] | None:
        """No form: there is one on the page alone."""
        return None

    def submit(self, by: str, values: Mapping[str, str]) -> dict[str, str]:
        """There is no form to submit."""
        raise AssertionError("mails have no forms")

    # The browser

    def page(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> tuple[int, Page]:
        """Open a page and go where it leads: its status and what it says."""
        status, given, text = self.request(method, path, headers, body)
        if status == 303:
            status, given, text = self.request("GET", given["location"].partition("#")[0])
        assert given.get("content-type", "").startswith("text/html"), f"{method} is answered with a page"
        return status, Page(text)

    def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> tuple[int, dict[str, str], str]:
        """The status, the headers and the text of an answer of the web application."""
        assert self._app is not None, "connect the platform first"
        return asyncio.run(_called(self._app, method, path, headers or {"Sec-Fetch-Site": "none"}, body))

    # Pieces

    def _of(self, place: str) -> list[EmailMessage]:
        name = place.removeprefix("email:").partition("@")[0]
        return self.mailbox(name)

    def _threads(self, place: str) -> dict[str, list[EmailMessage]]:
        """The mails of a mailbox by the first of their thread, without reminders."""
        found: dict[str, list[EmailMessage]] = {}
        for mail in self._of(place):
            if not _is_reminder(mail):
                found.setdefault(str(mail["In-Reply-To"] or mail["Message-ID"]), []).append(mail)
        return found

    def _shown(self, mails: list[EmailMessage]) -> Shown:
        last, links = mails[-1], links_of(mails[-1])
        found = [link.removeprefix(f"{ORIGIN}/mail/") for link in links if link.startswith(f"{ORIGIN}/mail/")]
        return Shown(
            ref=str(mails[0]["Message-ID"]),
            text="\n".join(line.strip() for line in text_of(last).splitlines()),
            buttons={ACTIONS[data[0]]: data for data in found},
            link=next((each for each in links if "/mail/" not in each), None),
            edits=len(mails) - 1,
        )

    def _data(self, shown: Shown, action: Action, by: str) -> str:
        """What the same button carries in the mail that this person got about the same."""
        place = self.alias(by)
        if place == self.place or shown.ref in self._threads(place):
            return shown.buttons[action]
        threads = list(self._threads(self.place))
        # All mails about a request are sent one after the other, so the threads of all mailboxes are in the same order.
        theirs = list(self._threads(place).values())[threads.index(shown.ref)]
        return next(
            found.buttons[action] for mail in reversed(theirs) if action in (found := self._shown([mail])).buttons
        )

    def _form(self, data: str, action: Action) -> PageForm:
        kept = self._opened.get(action + data[1:])
        return kept if kept is not None else PageForm(action=f"/mail/{data}", fields={"answer": action})

    def _open_new(self) -> None:
        if self._app is None:
            return
        for mail in [*self.mails]:
            for link in links_of(mail):
                data = urlsplit(link).path.removeprefix("/mail/")
                if "/mail/" not in link or ACTIONS[data[0]] + data[1:] in self._opened:
                    continue
                if self._scans:
                    self.scanned += [self.request(each, f"/mail/{data}")[0] for each in ("HEAD", "GET", "GET")]
                action = ACTIONS[data[0]]
                if (form := self.page("GET", f"/mail/{data}")[1].form(action)) is not None:
                    self._opened[action + data[1:]] = form

    # The server

    def answer_to(self, step: str) -> str | None:
        """What the server says to a step instead of yes; None: yes."""
        trouble = self._troubles[0] if self._troubles else None
        if trouble is None or trouble == "dropped":
            return None
        at, said = _REPLIES[trouble]
        if at != step:
            return None
        del self._troubles[0]
        return said

    def take(self, content: bytes) -> bool:
        """Keep a mail; whether the connection is to be lost before anybody hears of it."""
        mail = email.message_from_bytes(content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        is_lost = bool(self._troubles) and self._troubles[0] == "dropped"
        if is_lost:
            del self._troubles[0]
        return is_lost


def _is_reminder(mail: EmailMessage) -> bool:
    return text_of(mail).startswith("Still waiting")


def _posted(form: PageForm) -> Sent:
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    return Sent(path=form.action, headers=headers, body=urlencode(form.fields).encode())


async def _called(
    app: Any, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> tuple[int, dict[str, str], str]:
    """Call an ASGI application. Headers are sent as they are, whatever is in them."""
    raw = [(name.lower().encode(), value.encode("utf-8", "surrogatepass")) for name, value in headers.items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "https",
        "path": path.partition("?")[0],
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", urlsplit(ORIGIN).netloc.encode()), *raw],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 443),
    }
    sent: list[Any] = []
    bodies = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        return bodies.pop() if bodies else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = next(each for each in sent if each["type"] == "http.response.start")
    text = b"".join(each.get("body", b"") for each in sent if each["type"] == "http.response.body")
    found = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
    return start["status"], found, text.decode()


def _server(outer: FakeMail, tls: SSLContext | None, users: Mapping[str, str] | None) -> Any:
    """The mail server, which listens already."""
    try:
        from aiosmtpd.controller import Controller  # noqa: PLC0415  # for this fake alone
        from aiosmtpd.smtp import AuthResult, LoginPassword  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ImportError("FakeMail needs aiosmtpd: pip install aiosmtpd", name="aiosmtpd") from None

    class Handler:
        async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
            if (said := outer.answer_to("MAIL")) is not None:
                return said
            envelope.mail_from = address
            envelope.mail_options.extend(options)
            return "250 OK"

        async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
            if (said := outer.answer_to("RCPT")) is not None:
                return said
            envelope.rcpt_tos.append(address)
            return "250 OK"

        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            if (said := outer.answer_to("DATA")) is not None:
                return said
            if outer.take(envelope.content):
                server.transport.abort()
            return "250 OK"

    listening = socket.create_server(("127.0.0.1", 0))

    class Server(Controller):  # it cannot be asked to take any port that is free
        def _create_server(self) -> Any:
            return self.loop.create_server(self._factory_invoker, sock=listening)

    def login(*given: Any) -> Any:  # the server, the session, the envelope, the mechanism, and what was sent
        data, known = given[-1], users or {}
        right = isinstance(data, LoginPassword) and known.get(data.login.decode()) == data.password.decode()
        return AuthResult(success=right, handled=False)

    options: dict[str, Any] = {"enable_SMTPUTF8": True}
    if tls is not None:
        options |= {"tls_context": tls, "require_starttls": True}
    if users is not None:
        options |= {"authenticator": login, "auth_required": True, "auth_require_tls": tls is not None}
    port = listening.getsockname()[1]
    controller = Server(Handler(), hostname="127.0.0.1", port=port, server_hostname="mail.example", **options)
    controller.start()
    return controller
