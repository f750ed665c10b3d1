"""Delivery of webhooks: which statuses count, when it is tried again and when no more, and which addresses are never talked to."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from chat_scenes import RITA, approvals_of, asked, desk, emptied, with_people
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from phronomy import Approve, MemoryStore
from phronomy.chat import Card, ChannelError, ChannelRefused, RateLimited, Undelivered
from phronomy.chat.webhooks import Endpoint, Webhooks
from phronomy.chat.webhooks.addresses import may_reach
from phronomy.chat.webhooks.webhooks import RETRIES
from phronomy.testing.chat import Clock, FakeReceiver
from phronomy.testing.chat.webhooks import SECRET

CARD = Card(title="t", state="waits", status="s", pending_id="p", version=1)


def webhooks(url: str, *internal: str, **options: Any) -> Webhooks:
    return Webhooks(endpoints={"erp": Endpoint(url=url, secrets=[SECRET])}, internal_hosts=internal, **options)


# Statuses


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_only_2xx_is_success(status: int) -> None:
    with FakeReceiver() as receiver:
        receiver.script((status, {}))
        assert receiver.channel.post("erp", CARD, key="k") == "erp/k"


@pytest.mark.parametrize("status", [300, 301, 302, 304, 307, 308, 400, 401, 404, 418, 500, 501, 505])
def test_anything_else_fails_and_no_redirect_is_followed(status: int) -> None:
    with FakeReceiver() as receiver:
        receiver.script((status, {"Location": receiver.url}))
        with pytest.raises(ChannelError, match=f"status {status}") as error:
            receiver.channel.post("erp", CARD, key="k")
        assert type(error.value) is ChannelError and len(receiver.got) == 1


def test_410_is_the_end() -> None:
    with FakeReceiver() as receiver:
        receiver.script((410, {}))
        with pytest.raises(ChannelRefused) as error:
            receiver.channel.post("erp", CARD, key="k")
        assert error.value.final and error.value.gone


@pytest.mark.parametrize("status", [429, 502, 503, 504])
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 5),
        ("7", 7),
        ("0", 0),
        ("-3", 0),
        ("soon", 5),
        ("nan", 5),
        ("1e300", 86_400),
        ("in 90 s", 90),
        ("in -90 s", 0),
    ],
)
def test_some_ask_to_slow_down_in_seconds_or_until_a_date(status: int, text: str | None, seconds: float) -> None:
    with FakeReceiver() as receiver:
        if text is not None and text.startswith("in "):
            at = datetime.fromtimestamp(receiver.clock.now, UTC) + timedelta(seconds=int(text.split()[1]))
            text = format_datetime(at, usegmt=True)
        receiver.script((status, {"Retry-After": text} if text is not None else {}))
        with pytest.raises(RateLimited) as error:
            receiver.channel.update("erp/k", CARD)
        assert error.value.seconds == seconds


def test_what_answers_nothing_is_left_in_time() -> None:
    with FakeReceiver() as receiver:
        receiver.script("slow", "dropped")
        channel = webhooks(receiver.url, "127.0.0.1", timeout=0.2, clock=receiver.clock)
        for _ in range(2):
            with pytest.raises(ChannelError, match="no answer"):
                channel.post("erp", CARD, key="k")
        assert channel.post("erp", CARD, key="k") == "erp/k"


@contextmanager
def dripping(tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that sends a byte of its answer now and then, and never comes to an end."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            try:
                if tls is None:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not over.wait(0.02):
                    connection.sendall(b"\x16" if tls is not None else b"x")
            except OSError:
                pass
            finally:
                connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"{'https' if tls is not None else 'http'}://127.0.0.1:{server.getsockname()[1]}/"
        over.set()
        thread.join(10)


@pytest.mark.parametrize("tls", [None, ssl.create_default_context()])
def test_a_server_that_drips_is_left_in_time_too(tls: ssl.SSLContext | None) -> None:
    before = threading.active_count()
    with dripping(tls) as url, pytest.raises(ChannelError):
        webhooks(url, "127.0.0.1", timeout=0.3).post("erp", CARD, key="k")
    assert threading.active_count() <= before


# Addresses


@pytest.mark.parametrize(
    ("address", "public", "internal"),
    [
        ("8.8.8.8", True, True),
        ("2606:4700:4700::1111", True, True),
        ("64:ff9b::808:808", True, True),
        ("10.0.0.1", False, True),
        ("172.16.0.1", False, True),
        ("192.168.1.1", False, True),
        ("100.64.0.1", False, True),
        ("127.0.0.1", False, True),
        ("198.18.0.1", False, True),
        ("192.0.2.1", False, True),
        ("::1", False, True),
        ("fc00::1", False, True),
        ("fec0::1", False, True),
        ("2001:db8::1", False, True),
        ("::ffff:127.0.0.1", False, True),
        ("::127.0.0.1", False, True),
        ("2002:7f00:1::", False, True),
        ("64:ff9b::7f00:1", False, True),
        ("64:ff9b:1::808:808", False, True),
        # The servers that tell a machine its secrets are never reached.
        ("169.254.169.254", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("64:ff9b::a9fe:a9fe", False, False),
        ("fe80::a9fe:a9fe", False, False),
        ("64:ff9b:1::a9fe:a9fe", False, False),
        ("fd00:ec2::254", False, False),
        ("fd00:ec2::23", False, False),
        ("fd20:ce::254", False, False),
        ("fd00:42::42", False, False),
        ("100.100.100.200", False, False),
        ("::ffff:100.100.100.200", False, False),
        ("192.0.0.192", False, False),
        ("168.63.129.16", False, False),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("224.0.0.1", False, False),
        ("ff02::1", False, False),
        ("erp.example", False, False),
        ("", False, False),
    ],
)
def test_only_public_addresses_are_talked_to(address: str, public: bool, internal: bool) -> None:
    assert (may_reach(address, internal=False), may_reach(address, internal=True)) == (public, internal)


def resolved(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Have each look-up of a name answered by the next of these; returns the names that were looked up."""
    left, asked_for, real = list(answers), [], socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            ip_address(host)
        except ValueError:
            asked_for.append(host)
            given = left.pop(0)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in given]
        return real(host, port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked_for


@pytest.mark.parametrize("url", ["https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest/meta-data"])
def test_an_address_in_the_url_is_checked_too(url: str) -> None:
    with pytest.raises(ChannelRefused, match="not public"):
        webhooks(url).post("erp", CARD, key="k")


def test_a_name_with_one_address_inside_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved(monkeypatch, ["8.8.8.8", "10.0.0.1"], [])
    for _ in range(2):
        with pytest.raises(ChannelRefused, match="not public"):
            webhooks("https://erp.example/").post("erp", CARD, key="k")


def test_a_name_that_is_not_known_may_be_known_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: Any, **kwargs: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ChannelError, match="has no address") as error:
        webhooks("https://erp.example/").post("erp", CARD, key="k")
    assert type(error.value) is ChannelError


def test_a_name_is_looked_up_once_and_connected_to_as_it_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeReceiver() as receiver:
        url = receiver.url.replace("127.0.0.1", "erp.example")
        channel = webhooks(url, "ERP.example", clock=receiver.clock)
        names = resolved(monkeypatch, ["127.0.0.1"], ["169.254.169.254"])
        channel.post("erp", CARD, key="k")
        assert names == ["erp.example"] and receiver.got[0].headers["host"] == url.split("/")[2]
        with pytest.raises(ChannelRefused):
            channel.post("erp", CARD, key="k")


def test_the_next_address_is_tried_where_one_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeReceiver() as receiver:
        resolved(monkeypatch, ["127.0.0.2", "127.0.0.1"], ["127.0.0.2"])
        channel = webhooks(receiver.url.replace("127.0.0.1", "erp.example"), "erp.example", clock=receiver.clock)
        channel.post("erp", CARD, key="k")
        with pytest.raises(ChannelError, match="could not be reached"):
            channel.post("erp", CARD, key="k")
        assert len(receiver.got) == 1


def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with FakeReceiver() as receiver:
        receiver.channel.post("erp", CARD, key="k")


def certificate(folder: Path, name: str) -> Path:
    """A certificate for a name, with its key, that proves itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / f"{name}.pem"
    path.write_bytes(private + built.public_bytes(serialization.Encoding.PEM))
    return path


def test_the_certificate_is_that_of_the_name_though_the_address_is_connected_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = certificate(tmp_path, "erp.example")
    with FakeReceiver() as receiver:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        receiver._server.secure(context)
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        resolved(monkeypatch, ["127.0.0.1"], ["127.0.0.1"])
        url = receiver.url.replace("http://127.0.0.1", "https://{}.example")
        channel = webhooks(url.format("erp"), "erp.example", clock=receiver.clock)
        channel.post("erp", CARD, key="k")
        assert [got.is_proven for got in receiver.got] == [True]
        other = webhooks(url.format("crm"), "crm.example", clock=receiver.clock)
        with pytest.raises(ChannelError, match="could not be reached"):
            other.post("erp", CARD, key="k")
        assert len(receiver.got) == 1


# Trying again, and giving up


class Scene:
    """A request that is not posted yet."""

    def __init__(self, receiver: FakeReceiver) -> None:
        self.receiver, self.clock = receiver, receiver.clock
        self.store = with_people(MemoryStore(clock=self.clock), receiver)
        self.approvals = approvals_of(self.store, receiver)
        self.item = asked(self.approvals, self.store)

    def empty(self) -> None:
        """Have all be sent, however long it takes."""
        emptied(self.approvals, self.clock)

    def failed(self) -> list[Undelivered]:
        return self.approvals.outbox.failed()


def test_it_is_tried_by_the_schedule_and_then_no_more() -> None:
    with FakeReceiver(Clock()) as receiver:
        scene = Scene(receiver)
        begun = scene.clock.now
        receiver.script(*[(500, {})] * 12)
        scene.empty()
        times = [int(got.headers["webhook-timestamp"]) for got in receiver.got]
        assert len(times) == 1 + len(RETRIES) == 12
        for earlier, later, wanted in zip(times, times[1:], RETRIES, strict=False):
            assert wanted - 1 <= later - earlier <= wanted * 1.1 + 2
        [dead] = scene.failed()
        assert (dead.pending_id, dead.at, dead.tries, dead.why) == (scene.item.id, "webhook:erp", 12, "status 500")
        assert dead.failed_at.timestamp() == pytest.approx(scene.clock.now, abs=5)
        assert 3 * 86_400 < scene.clock.now - begun < 4 * 86_400
        # What comes later is not sent either: the receiver never heard of the request.
        scene.store.decide(scene.item.id, Approve(), by="ann", digest=scene.item.digest)
        desk(scene.approvals, scene.store).recover_all()
        scene.empty()
        assert len(receiver.got) == 12 and scene.approvals.outbox.failed("slack") == []


def test_what_has_failed_for_good_is_put_back() -> None:
    with FakeReceiver(Clock()) as receiver:
        scene = Scene(receiver)
        receiver.script((410, {}), (500, {}))
        scene.empty()
        [dead] = scene.failed()
        assert dead.why.startswith("status 410") and dead.tries == 1
        assert scene.approvals.outbox.retry(dead) and not scene.approvals.outbox.retry(dead)
        assert scene.failed() == []
        scene.empty()
        assert [shown.text[:6] for shown in receiver.messages()] == ["refund"] and len(receiver.got) == 3
        assert len({got.id for got in receiver.got}) == 1
        # An update, too.
        receiver.script((410, {}))
        receiver.click(receiver.messages()[0], "approve", RITA)
        scene.empty()
        [dead] = scene.failed()
        assert scene.approvals.outbox.retry(dead)
        scene.empty()
        assert receiver.messages()[0].buttons == {}
        assert not scene.approvals.outbox.retry(dead)


def test_a_wait_that_is_asked_for_counts_as_a_try_and_is_heeded() -> None:
    with FakeReceiver(Clock()) as receiver:
        scene = Scene(receiver)
        receiver.script((429, {"Retry-After": "3600"}), *[(503, {})] * 11)
        done = scene.approvals.outbox.run_once()
        assert done.due is not None and done.due == pytest.approx(scene.clock.now + 3_600, abs=1)
        scene.clock.move(3_590)
        assert scene.approvals.outbox.run_once().sent == 0 and len(receiver.got) == 1
        scene.empty()
        [dead] = scene.failed()
        assert (dead.tries, dead.why) == (12, "status 503")


def test_one_endpoint_that_is_down_holds_up_no_other() -> None:
    clock = Clock()
    with FakeReceiver(clock) as receiver, FakeReceiver(clock) as other:
        scene = Scene(receiver)
        crm = Endpoint(url=other.url, secrets=[SECRET])
        both = Webhooks(endpoints={"erp": receiver.endpoint, "crm": crm}, internal_hosts=["127.0.0.1"], clock=clock)
        scene.receiver._channel = both
        approvals = approvals_of(scene.store, receiver, route=["webhook:erp", "webhook:crm", "webhook:gone"])
        asked(approvals, scene.store, 8)
        receiver.script(*[(503, {"Retry-After": "60"})] * 2)
        approvals.outbox.run_once()
        assert [len(other.messages()), len(receiver.messages())] == [1, 0]
        emptied(approvals, clock)
        assert len(receiver.messages()) == 2
        [dead] = approvals.outbox.failed()
        assert (dead.at, dead.why) == ("webhook:gone", "no endpoint has this name")
