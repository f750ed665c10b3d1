"""E-mail as a channel: the mails, the addresses, the mail server and its certificate, and when a mail is sent at all."""

from __future__ import annotations

import email
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email import policy
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from mail_scenes import RITA, MailDesk
from ports import HeldPort

from phronomy import Approval, Approve, ConfigurationError
from phronomy.chat import (
    Button,
    Card,
    ChannelError,
    ChannelRefused,
    Click,
    HttpRequest,
    Line,
    RateLimited,
    Refused,
    Submitted,
)
from phronomy.chat.email import Email, alias_of
from phronomy.chat.email.addresses import address_of
from phronomy.chat.email.mails import Letter, mail_of
from phronomy.testing.chat import FakeMail
from phronomy.testing.chat.mail.reading import acted_on, links_of, text_of
from phronomy.testing.chat.platform import Trouble

URL = "https://inbox.example"
BUTTONS = (
    Button(action="approve", label="Approve", data="a" * 45),
    Button(action="reject", label="Reject", data="r" * 45),
)
HEADERS = [
    *("From", "To", "Subject", "Message-ID", "Date", "Auto-Submitted", "X-Auto-Response-Suppress", "MIME-Version"),
    "Content-Type",
]


def card(**changes: Any) -> Card:
    return Card(
        **{
            "title": "refund",
            "state": "waits",
            "status": "waits for approval",
            "buttons": BUTTONS,
            "link": URL,
            **changes,
        }
    )


def email_of(**options: Any) -> Email:
    return Email(**{"sender": "Desk <desk@example.org>", "inbox_url": URL, "host": "smtp.example.org", **options})


def letter(**changes: Any) -> Letter:
    given = {
        "sender": address_of("desk@example.org"),
        "name": "Desk",
        "to": address_of("rita@example.org"),
        "id": "<1@x>",
    }
    return Letter(**{**given, "url": URL, **changes})


@pytest.fixture
def mail() -> Iterator[FakeMail]:
    with FakeMail(web=lambda approvals: None) as made:
        yield made


# Mails


def test_a_mail_has_a_text_part_then_html_and_loads_nothing() -> None:
    made = mail_of(card(lines=(Line(name="to", value="ACME"),), notes=("Asked by desk",)), letter())
    assert [part.get_content_type() for part in made.walk()] == ["multipart/alternative", "text/plain", "text/html"]
    assert made.keys() == HEADERS
    assert (made["From"], made["To"], made["Subject"]) == ("Desk <desk@example.org>", "rita@example.org", "refund")
    assert made["Auto-Submitted"] == "auto-generated"
    lines = text_of(made).splitlines()
    assert lines[:4] == ["refund", "waits for approval", "", "    to: ACME"]
    assert f"Approve: {URL}/mail/{'a' * 45}" in lines and f"Reject: {URL}/mail/{'r' * 45}" in lines
    assert "rita@example.org alone" in text_of(made) and "Do not forward" in text_of(made)
    assert links_of(made) == [f"{URL}/mail/{'a' * 45}", f"{URL}/mail/{'r' * 45}", URL]
    assert list(acted_on(made, (URL,))) == []


def test_words_of_a_model_cannot_pass_for_lines_of_the_mail() -> None:
    lie = f"fine\n\nApprove: https://evil.example/mail/{'a' * 45}"
    made = mail_of(card(lines=(Line(name="note", value=lie),), notes=(lie,)), letter())
    at_the_margin = [line for line in text_of(made).splitlines() if line[:1] not in ("", " ")]
    assert not any("evil" in line for line in at_the_margin)
    assert not any("evil" in link for link in links_of(made)) and list(acted_on(made, (URL,))) == []


@given(st.text(max_size=300), st.text(max_size=100))
def test_no_text_makes_a_header_or_an_element(title: str, value: str) -> None:
    hostile = card(title=title, status=value, lines=(Line(name=value, value=title),), notes=(value,), link=None)
    made = mail_of(hostile, letter(name="".join(each for each in value if each.isprintable())))
    read = email.message_from_bytes(made.as_bytes(), policy=policy.default)
    assert read.keys() == HEADERS and len(read.defects) == 0
    assert list(acted_on(read, (URL,))) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "title",
    [
        "a\r\nBcc: eve@example.org",
        "a\nTo: eve@example.org\n\nbody",
        "a\x85b\u2028c",
        "\r\n" * 3,
        "é\r\nBcc: x",
        # Encoded words: RFC 2047.
        "=?utf-8?q?a=0D=0ABcc:_eve=40example.org?=",
        "refund: =?utf-8?b?DQpCY2M6IGV2ZUBleGFtcGxlLm9yZw0KDQpib2R5?=",
        "==??utf-8?q?a=0ABcc:_x?=",
    ],
)
def test_a_title_stays_in_its_header(title: str) -> None:
    whole = mail_of(card(title=title), letter()).as_bytes()
    made = email.message_from_bytes(whole, policy=policy.default)
    assert made.keys() == HEADERS and made["Bcc"] is None and made["To"] == "rita@example.org"
    assert b"\nBcc" not in whole.partition(b"\r\n\r\n")[0] and "\n" not in made["Subject"]


def test_a_title_is_read_as_it_is_written_and_never_decoded() -> None:
    made = mail_of(card(title="=?utf-8?q?Approved_by_Rita?="), letter())
    assert made["Subject"] == "= ?utf-8?q?Approved_by_Rita?="


# Addresses


@pytest.mark.parametrize(
    ("text", "local", "domain", "wire"),
    [
        ("rita@example.org", "rita", "example.org", "example.org"),
        ("Rita.O'Kafor+x@EXAMPLE.Org", "Rita.O'Kafor+x", "example.org", "example.org"),
        ("a/b=c{d}|e~f@x-1.example", "a/b=c{d}|e~f", "x-1.example", "x-1.example"),
        ("rita@Bücher.example", "rita", "bücher.example", "xn--bcher-kva.example"),
        ("jürgen@example.org", "jürgen", "example.org", "example.org"),
        ("root@localhost", "root", "localhost", "localhost"),
    ],
)
def test_an_address(text: str, local: str, domain: str, wire: str) -> None:
    found = address_of(text)
    assert (found.local, found.domain, found.ascii_domain) == (local, domain, wire)
    assert alias_of(f"email:{text}") == f"email:{local}@{domain}"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "rita",
            "@example.org",
            "rita@",
            "rita@@example.org",
            "ri ta@example.org",
            "rita@exam ple.org",
            "rita@-x.org",
        ),
        *("<rita@example.org>", "rita@example.org>", "Rita <rita@example.org>", "rita@example.org,eve@example.org"),
        *("rita@example.org\r\nRCPT TO:<eve@example.org>", "rita\n@example.org", "rita\x00@example.org", ".rita@x.org"),
        *("ri..ta@example.org", '"rita ok"@example.org', "rita@[127.0.0.1]", "rita@example..org", "rita@example.org."),
        *("ri\u202eta@example.org", "ri\u00a0ta@example.org", "r" * 65 + "@example.org", "rita@" + "e" * 64 + ".org"),
        # Python would have these mails go to fass.example, example.org and fi.example.
        *("rita@fa\N{LATIN SMALL LETTER SHARP S}.example", "rita@example\u3002org", "rita@\ufb01.example"),
        *("rita@\uff45xample.org", "rita@exa\u200bmple.org", "rita@\u03c2.example"),
        *("eve@example.org;rita@example.org", "rita@exa_mple.org", "rita%example.org", "ri\udcffta@example.org"),
    ],
)
def test_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"address"):
        address_of(text)
    with pytest.raises(ChannelRefused) as caught:
        email_of().post(text, card(), key="k")
    assert caught.value.gone and (len(text) < 5 or text not in str(caught.value))


@given(st.text())
def test_any_text_is_an_address_or_none(text: str) -> None:
    try:
        found = address_of(text)
    except ValueError:
        return
    assert mail_of(card(), letter(to=found)).as_bytes().count(b"\nTo: ") == 1
    assert found.on_the_wire.isprintable() and " " not in found.on_the_wire and found.on_the_wire.count("@") == 1


def test_an_address_in_another_script_goes_where_the_server_takes_it(mail: FakeMail) -> None:
    mail.channel.post("jürgen@bücher.example", card(title="Überweisung"), key="k")
    [sent] = mail.mails
    assert sent["To"] == "jürgen@xn--bcher-kva.example" and sent["Subject"] == "Überweisung"


# Threads


def test_a_mail_that_is_sent_again_has_the_same_id(mail: FakeMail) -> None:
    mail.fail("dropped")
    with pytest.raises(ChannelError):
        mail.channel.post("rita@example.org", card(), key="0123")
    ref = mail.channel.post("rita@example.org", card(), key="0123")
    assert ref == "0123/rita@example.org"
    assert [each["Message-ID"] for each in mail.mails] == ["<phronomy.0123@example.org>"] * 2
    for _ in range(2):
        mail.channel.update(ref, card(state="over", status="done", buttons=()))
    mail.channel.update(ref, card(state="over", status="failed", buttons=()))
    ids = [each["Message-ID"] for each in mail.mails[2:]]
    assert ids[0] == ids[1] != ids[2]


def test_what_follows_is_in_the_thread_and_two_reminders_are_two_mails(mail: FakeMail) -> None:
    ref = mail.channel.post("rita@example.org", card(), key="0123")
    mail.channel.remind(ref, card())
    mail.channel.remind(ref, card())
    mail.channel.update(ref, card(state="goes on", status="approved", buttons=()))
    first, *others = mail.mails
    assert first["In-Reply-To"] is None
    for each in others:
        assert each["In-Reply-To"] == each["References"] == first["Message-ID"] and each["Subject"] == "Re: refund"
    assert len({each["Message-ID"] for each in mail.mails}) == 4
    assert links_of(others[0])[0] == f"{URL}/mail/{'a' * 45}" and links_of(others[2]) == [URL]


def test_people_hear_of_votes_and_ends_and_of_nothing_else() -> None:
    gate = Approval(needed=2, remind=[60])
    with MailDesk() as desk:
        item = desk.asked(gate)
        assert len(desk.mail.mails) == 1
        desk.clock.move(61)
        desk.carried_out(gate)
        assert [text_of(each).splitlines()[0] for each in desk.mail.mails] == ["refund", "Still waiting"]
        desk.press(desk.form(desk.link()))
        desk.send()
        assert "1 of 2: Rita approved" in text_of(desk.mail.mails[2]) and len(links_of(desk.mail.mails[2])) == 3
        desk.store.decide(item.id, Approve(), by="ann", digest=item.digest, channel="inbox")
        desk.carried_out(gate)
        assert [text_of(each).splitlines()[1] for each in desk.mail.mails[3:]] == [
            "approved by Rita and ann, in inbox, 2027-01-15 08:01 UTC; done"
        ]


def test_an_escalation_is_no_news_to_who_was_asked(mail: FakeMail) -> None:
    ref = mail.channel.post("rita@example.org", card(), key="0123")
    mail.channel.update(ref, card(notes=("Who may decide: head",)))
    assert len(mail.mails) == 1


# The mail server


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [("limited", RateLimited), ("down", ChannelError), ("refused", ChannelRefused), ("gone", ChannelRefused)],
)
def test_what_the_server_says(mail: FakeMail, trouble: Trouble, kind: type[ChannelError]) -> None:
    ref = mail.channel.post("rita@example.org", card(), key="1")
    mail.fail(trouble, trouble)
    for send in (
        lambda: mail.channel.post("otto@example.org", card(), key="2"),
        lambda: mail.channel.remind(ref, card()),
    ):
        with pytest.raises(ChannelError) as caught:
            send()
        assert type(caught.value) is kind and "example" not in str(caught.value)
    if isinstance(caught.value, ChannelRefused):
        assert caught.value.gone is (trouble == "gone")
    assert len(mail.mails) == 1


def test_nobody_listens_or_says_anything() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ChannelError, match="could not connect: SMTPServerDisconnected"):
            email_of(host="127.0.0.1", port=port, timeout=0.1).post("rita@example.org", card(), key="k")
    with HeldPort() as port, pytest.raises(ChannelError, match="could not connect"):
        email_of(host="127.0.0.1", port=port.number).post("rita@example.org", card(), key="k")


@pytest.mark.parametrize(
    "said", [b"", b"\xff\xfe\r\n", b"220", b"220 \r\n250\r\n" * 3, b"HTTP/1.1 200 OK\r\n", b"a" * 9_000]
)
def test_whatever_a_server_says_is_an_error(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answers() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1000):
                    pass

        thread = threading.Thread(target=answers, daemon=True)
        thread.start()
        with pytest.raises(ChannelError):
            email_of(host="127.0.0.1", port=server.getsockname()[1], timeout=5).post(
                "rita@example.org", card(), key="k"
            )
        thread.join(5)


@contextmanager
def speaking(*replies: bytes, then: bytes) -> Iterator[int]:
    """A server that says one reply after the other, and then a piece of another now and then, without an end."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                for reply in replies:
                    connection.sendall(reply)
                    connection.recv(10_000)
                while not over.wait(0.02 if len(then) < 100 else 0):
                    connection.sendall(then)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        over.set()
        thread.join(10)


HELLO = (b"220 hi\r\n", b"250 hi\r\n")


@pytest.mark.parametrize("then", [b"2", b"250-x\r\n"])
@pytest.mark.parametrize("replies", [(), HELLO, (*HELLO, b"250 \r\n", b"250 \r\n", b"354 \r\n")])
def test_a_server_that_drips_is_left_in_time(replies: tuple[bytes, ...], then: bytes) -> None:
    before = threading.active_count()
    with speaking(*replies, then=then) as port, pytest.raises(ChannelError):
        email_of(host="127.0.0.1", port=port, timeout=0.3).post("rita@example.org", card(), key="k")
    assert threading.active_count() <= before


def test_a_server_that_drips_before_tls_is_left_in_time(tmp_path: Path) -> None:
    given: dict[str, Any] = {"host": "127.0.0.1", "timeout": 0.3, "tls": Certified(tmp_path).trusting}
    for security, then in (("tls", b"\x16"), ("starttls", b"2")):
        with speaking(then=then) as port, pytest.raises(ChannelError):
            email_of(port=port, security=security, **given).post("rita@example.org", card(), key="k")


def test_a_server_that_says_too_much_is_left_at_once() -> None:
    # Long before the time is over: what it says is kept until its reply ends.
    with speaking(then=b"220-" + b"x" * 1_000 + b"\r\n") as port, pytest.raises(ChannelError, match="Disconnected"):
        email_of(host="127.0.0.1", port=port, timeout=45).post("rita@example.org", card(), key="k")


def test_a_server_that_is_odd_while_one_signs_in_is_an_error_of_the_channel() -> None:
    replies = (b"220 hi\r\n", b"250-hi\r\n250 AUTH CRAM-MD5\r\n", b"334 !!!\r\n")
    with speaking(*replies, then=b"") as port, pytest.raises(ChannelError, match="could not connect"):
        email_of(host="127.0.0.1", port=port, timeout=5, user="desk", password="secret").post(
            "rita@example.org", card(), key="k"
        )


# TLS


class Certified:
    """An authority and a server with a certificate of it for `127.0.0.1`."""

    def __init__(self, folder: Path, name: str = "127.0.0.1") -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(who)
            .issuer_name(who)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(name))]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self.file = folder / "server.pem"
        self.file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))

    @property
    def serving(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file)
        return context

    @property
    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.file)


def test_starttls_with_a_checked_certificate_and_a_password(tmp_path: Path) -> None:
    certified = Certified(tmp_path)
    with FakeMail(web=lambda approvals: None, tls=certified.serving, users={"desk": "pass word"}) as mail:
        given: dict[str, Any] = {"host": "127.0.0.1", "port": mail.port, "security": "starttls", "user": "desk"}

        def post(password: str = "pass word", **options: Any) -> None:
            made = email_of(**{**given, "password": password, "tls": certified.trusting, **options})
            assert password not in repr(made)
            made.post("rita@example.org", card(), key="k")

        post()
        assert len(mail.mails) == 1
        with pytest.raises(ChannelRefused, match="certificate"):
            post(tls=None)
        (tmp_path / "other").mkdir()
        with pytest.raises(ChannelRefused, match="certificate"):
            post(tls=Certified(tmp_path / "other").trusting)
        with pytest.raises(ChannelRefused, match="could not connect: the mail server says 535") as caught:
            post(password="wrong words")
        assert "wrong words" not in str(caught.value)
        with pytest.raises(ChannelRefused):  # the server wants TLS first
            post(security="none")
        assert len(mail.mails) == 1


def test_a_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    certified = Certified(tmp_path, "127.0.0.2")
    with FakeMail(web=lambda approvals: None, tls=certified.serving) as mail:
        made = email_of(host="127.0.0.1", port=mail.port, security="starttls", tls=certified.trusting)
        with pytest.raises(ChannelRefused, match="certificate"):
            made.post("rita@example.org", card(), key="k")


def test_a_server_without_starttls_gets_no_mail(mail: FakeMail) -> None:
    made = email_of(host="127.0.0.1", port=mail.port, security="starttls")
    with pytest.raises(ChannelRefused, match="does not offer"):
        made.post("rita@example.org", card(), key="k")
    made = email_of(host="127.0.0.1", port=mail.port, security="tls")
    with pytest.raises(ChannelError, match="could not connect"):
        made.post("rita@example.org", card(), key="k")
    assert mail.mails == []


# What comes in, and settings


def test_nothing_comes_in_by_http() -> None:
    made = email_of()
    with pytest.raises(Refused) as caught:
        made.receive(HttpRequest(method="POST", path="/email", headers={}, body=b"{}"), now=0.0)
    assert caught.value.status == 404
    assert made.form_limits is None
    click = Click(alias="email:rita@example.org", delivery="d", data="a" * 45)
    assert (made.acknowledge(click, None).body, made.acknowledge(click, "no").body) == (b"", b"no")
    form = Submitted(alias="email:rita@example.org", delivery="d", data="n" * 45, values={})
    assert (made.show_errors(form, {"reason": "Say why."}).status, made.form_limits) == (422, None)
    with pytest.raises(ChannelError, match="no forms"):
        made.open_form(click, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"security": "none"}, "on this machine"),
        ({"security": "ssl"}, "'starttls', 'tls' or 'none'"),
        ({"sender": "desk"}, "sender is an address"),
        ({"sender": "desk@example.org\r\nBcc: eve@example.org"}, "sender is an address"),
        ({"sender": "jürgen@example.org"}, "in ASCII"),
        ({"inbox_url": "inbox.example"}, "inbox_url is the address"),
        ({"inbox_url": "https://inbox.example/\nBcc:"}, "inbox_url is the address"),
        ({"port": 0}, "port is a number"),
        ({"timeout": 60}, "at most 45"),
        ({"seconds": 0}, "seconds is a number"),
        ({"user": "desk"}, "given together"),
        ({"tls": ssl._create_unverified_context()}, "checks certificates"),
    ],
)
def test_settings_that_are_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        email_of(**wrong)


def test_settings_by_default() -> None:
    for host, security, port in (
        ("smtp.example.org", "starttls", 587),
        ("localhost", "none", 25),
        ("127.0.0.5", "none", 25),
        ("::1", "none", 25),
    ):
        made = email_of(host=host)
        assert (made._security, made._port) == (security, port)
    assert email_of(security="tls")._port == 465
    assert repr(email_of(user="desk", password="secret")) == (
        "Email(sender='desk@example.org', host='smtp.example.org', security='starttls')"
    )


def test_people_are_asked_at_their_own_addresses() -> None:
    with MailDesk(route=["email:U0000000RITA@example.org", "email:otto@EXAMPLE.org"]) as desk:
        desk.asked()
        assert [each["To"] for each in desk.mail.mails] == [f"{RITA}@example.org", "otto@example.org"]
        first, second = (links_of(each)[0] for each in desk.mail.mails)
        assert first != second


def test_a_fake_without_its_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiosmtpd.controller", None)
    with pytest.raises(ImportError, match="pip install aiosmtpd"):
        FakeMail(web=lambda approvals: None)
