"""`phronomy serve`: the inbox in a browser of this machine, as a real process over real HTTP."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from drivers import PATIENCE, until
from inbox_scenes import run as in_loop
from test_cli_runs import STORE, begin, place, refunds, run, said, told

import phronomy.inbox
from phronomy import Principal, SQLiteStore, cli
from phronomy.inbox.auth.api_tokens import ApiTokens
from phronomy.inbox.auth.sessions import KIND as SESSION

__all__ = ["place", "said", "told"]  # fixtures

pytestmark = pytest.mark.unmeasured  # it starts processes

GATE = """
from starlette.requests import Request

from phronomy import Principal, SQLiteStore
from phronomy.inbox import Identity, Inbox, OneTimeLink, TrustedProxy

print("gate is loaded")


class ByHeader:
    async def identify(self, request: Request):
        user = request.headers.get("x-user")
        return Identity(principal=Principal(id=user), via="header") if user else None


def make(store):
    return Inbox(store, auth=ByHeader(), title="Ours")


def proxied(store):
    return Inbox(store, auth=TrustedProxy(peers=["10.0.0.5"], secret="s" * 40))


def local(store):
    return Inbox(store, auth=OneTimeLink(store, Principal(id="rita")))


def wrong(store):
    return "an inbox"


async def later(store):
    return make(store)


def none():
    return None


def named(store):
    url = "http://approvals.example/in/"
    return Inbox(store, auth=ByHeader(), public_url=url, trusted_hosts=["approvals.example"])


number = 7
if __name__ == "gate":
    from pathlib import Path

    ready = make(SQLiteStore("runs.db")) if Path("runs.db").exists() else None
"""


class Process:
    """`phronomy serve` as a process of its own, once it has said where it is. Everything that it prints is kept."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "phronomy", "serve", "--port", "0", *options]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, **pipes)
        assert self.process.stdout is not None and self.process.stderr is not None
        self.lines: list[str] = []
        self.complaints: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=given)
            for given in ((self.process.stdout, self.lines), (self.process.stderr, self.complaints))
        ]
        for each in self._readers:
            each.start()
        linked = "--inbox" not in options
        (first,) = until(lambda: self._ended() or [each for each in self.lines if "The inbox is at" in each])
        found = re.search(r"(http://[^ ]+)/\. Ctrl-C stops it\.", first)
        assert found is not None, "".join([*self.lines, *self.complaints])
        self.url = found[1]
        until(lambda: self._ended() or len(self.lines) >= (4 if linked else 2))

    def _read(self, stream: Any, to: list[str]) -> None:
        for line in stream:
            to.append(line)
        stream.close()

    def _ended(self) -> list[str]:
        return ["it has ended"] if self.process.poll() is not None else []

    def links(self) -> list[str]:
        return [each.strip() for each in self.lines if "/start/" in each]

    def stop(self, sent: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
        """The exit status and what was printed in all, once a signal has ended it."""
        if self.process.poll() is None:
            self.process.send_signal(sent)
        status = self.process.wait(PATIENCE)
        for each in self._readers:
            each.join()
        return status, "".join(self.lines), "".join(self.complaints)


class Browser(httpx2.Client):
    """A browser over real HTTP: it says that its requests come from the pages of the server."""

    def __init__(self, url: str, **headers: str) -> None:
        given = {"accept": "text/html", "sec-fetch-site": "same-origin", **headers}
        alone = httpx2.Limits(max_keepalive_connections=0)  # no connection is left open
        super().__init__(base_url=url, headers=given, trust_env=False, timeout=PATIENCE, limits=alone)


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Starts servers, which are gone after the test."""
    with ExitStack() as stack:

        def started(*options: str) -> Process:
            found = Process(*options)
            stack.callback(found.stop, signal.SIGKILL)
            return found

        yield started


def sign_in(server: Process) -> Browser:
    browser = Browser(server.url)
    page = browser.get(server.links()[-1])
    assert page.status_code == 200
    assert browser.post("/start", data={"secret": field(page.text, "secret")}).status_code == 303
    return browser


def field(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None
    return found[1]


def sessions() -> int:
    with SQLiteStore("runs.db") as store:
        return len(store.select_documents(SESSION))


def test_a_link_of_the_terminal_signs_in_once_and_what_is_decided_is_carried_out(
    place: Path, start: Callable[..., Process]
) -> None:
    (item,) = begin().pending
    server = start("--app", "desk:make", "--store", STORE, "--role", "lead")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", server.url)
    port = server.url.rpartition(":")[2]
    (link,) = server.links()
    assert link.startswith(f"{server.url}/start/")
    assert "What is decided is carried out here.\n" in server.lines
    assert "To sign in as rita, open this in a browser within 5 minutes. It works once:\n" in server.lines

    browser = Browser(server.url)
    assert browser.get("/me").headers["location"] == "/login?to=/me"
    page = browser.get(link)
    assert page.status_code == 200 and "server" not in page.headers and sessions() == 0
    answer = browser.post("/start", data={"secret": field(page.text, "secret")})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert re.fullmatch(rf"phronomy-{port}=[A-Za-z0-9_-]{{43}}; HttpOnly; Path=/; SameSite=strict", cookie)
    me = browser.get("/me")
    assert me.status_code == 200 and "rita" in me.text and "lead" in me.text
    assert browser.get("/").status_code in (200, 404)  # the page of what waits is another's

    other = Browser(server.url)
    assert other.get(link).status_code == 410
    assert other.post("/start", data={"secret": link.rpartition("/")[2]}).status_code == 410
    assert not other.cookies and sessions() == 1

    decided = browser.post(
        f"/api/v1/requests/{item.id}/decision",
        json={"answer": "approve", "digest": item.digest},
        headers={"idempotency-key": "k1", "x-csrf-token": field(me.text, "csrf")},
    )
    assert decided.status_code == 200, decided.text
    told = f": completed after {item.id} was approved\n"
    until(lambda: [each for each in server.lines if each.endswith(told)])
    assert refunds() == ["1042 49.9 s3cret"]

    status, out, complaints = server.stop()
    assert (status, complaints) == (cli.DONE, "desk is loaded\n")
    assert out.endswith("Stopping. Once more leaves what is still open.\nStopped.\n")
    assert browser.cookies[f"phronomy-{port}"] not in out + complaints and out.count("/start/") == 1


def test_a_link_to_the_chat_with_the_agent(place: Path, start: Callable[..., Process]) -> None:
    begin()
    server = start("--app", "desk:make", "--store", STORE, "--chat")
    (link,) = server.links()
    browser = Browser(server.url)
    page = browser.get(link)
    form = {name: field(page.text, name) for name in ("secret", "to")}
    answer = browser.post("/start", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/chat")
    page = browser.get("/chat")
    said = {name: field(page.text, name) for name in ("csrf", "key", "agent")}
    answer = browser.post("/chat", data={**said, "text": "Refund order 1042"})
    assert answer.status_code == 303
    until(lambda: "Nothing runs until you have decided" in browser.get(answer.headers["location"]).text)


def test_only_names_of_this_machine_are_answered(place: Path, start: Callable[..., Process]) -> None:
    """Another site could have its name lead here, and read what is here with the browser of whoever looks at it."""
    begin()
    server = start("--store", STORE)
    port = server.url.rpartition(":")[2]
    browser = Browser(server.url)
    for host, status in (
        (f"127.0.0.1:{port}", 200),
        (f"localhost:{port}", 200),
        (f"LOCALHOST:{port}", 200),
        (f"[::1]:{port}", 200),
        ("127.0.0.1", 421),
        ("localhost", 421),
        (f"evil.example:{port}", 421),
        (f"localhost.evil.example:{port}", 421),
        (f"127.0.0.1:{int(port) + 1}", 421),
        ("", 421),
    ):
        for path in ("/healthz", server.links()[0], "/login"):
            assert browser.get(path, headers={"host": host}).status_code == status, host
    for site in ("cross-site", "same-site", "none"):
        answer = browser.post("/start/new", data={}, headers={"sec-fetch-site": site})
        assert answer.status_code == 403
    # A header of who asks is nobody's word here.
    forged = {"x-forwarded-for": "10.0.0.5", "x-forwarded-host": "evil.example", "x-forwarded-proto": "https"}
    assert browser.get("/me", headers=forged).headers["location"] == "/login?to=/me"
    assert "carried out by `phronomy work`" in "".join(server.lines)
    assert server.stop(signal.SIGTERM)[0] == cli.DONE


def test_somebody_whose_link_is_used_has_another_printed(place: Path, start: Callable[..., Process]) -> None:
    begin()
    server = start("--app", "desk:make", "--store", STORE, "--no-work", "--as", "otto")
    first = sign_in(server)
    browser = Browser(server.url)
    answer = browser.post("/start/new", data={})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?said=printed")
    until(lambda: len(server.links()) == 2)
    assert server.links()[1] not in answer.text
    second = sign_in(server)
    page = first.get("/me").text
    assert "otto" in page and sessions() == 2
    assert first.post("/me/sign-out", data={"csrf": field(page, "csrf"), "everywhere": "yes"}).status_code == 303
    assert second.get("/me").status_code == 303 and sessions() == 0
    assert "carried out by `phronomy work`" in "".join(server.lines)


def test_the_access_log_is_printed_where_it_is_asked_for(place: Path, start: Callable[..., Process]) -> None:
    begin("Refund 7")
    for options in (("--log",), ()):
        process = start("--store", STORE, *options)
        with Browser(process.url, accept="application/json") as browser:
            answer = browser.get("/api/v1/nothing")
        status, _, complaints = process.stop()
        wanted = rf"^\S+ \S+ GET \(no route\) 404 \(not-found, id {answer.json()['instance']}\), nobody, \d+ ms$"
        assert status == 0 and bool(re.search(wanted, complaints, re.MULTILINE)) == bool(options), complaints


def test_streams_are_told_that_the_server_stops(place: Path, start: Callable[..., Process]) -> None:
    """Or a page that is open would keep it from ending."""
    begin()
    server = start("--store", STORE)
    browser = sign_in(server)
    with browser.stream("GET", "/api/v1/events", headers={"accept": "text/event-stream"}) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "retry: 3000"
        status, out, complaints = server.stop()
        for _ in lines:
            pass  # to its end: one that is cut off would raise an error, and be complained of
    assert (status, complaints) == (cli.DONE, "") and out.endswith("Stopped.\n")


def test_a_second_signal_leaves_what_still_runs(place: Path, start: Callable[..., Process]) -> None:
    checkpoint = begin()
    (place / "hang").touch()
    server = start("--app", "desk:make", "--store", STORE)
    assert run("approve", checkpoint.pending[0].id, "--yes", "--reveal", app=None) == cli.DONE
    until((place / "hanging").exists)
    server.process.send_signal(signal.SIGTERM)
    until(lambda: [each for each in server.lines if each.startswith("Stopping.")])
    status, out, complaints = server.stop(signal.SIGTERM)
    assert status == cli.DONE and out.endswith("Stopped.\n")
    assert "runs left in the middle of what they do: 1; the next worker recovers them" in complaints


def test_an_inbox_of_one_s_own_listens_anywhere(place: Path, start: Callable[..., Process]) -> None:
    (place / "gate.py").write_text(GATE)
    begin()
    for named in (["gate:make", "--store", STORE], ["gate:ready"]):
        server = start("--host", "0.0.0.0", "--inbox", *named)
        assert not server.links() and server.url.startswith("http://0.0.0.0:")
        here = server.url.replace("0.0.0.0", "127.0.0.1")
        assert "Ours" in Browser(here).get("/me", headers={"x-user": "ann"}).text
        assert Browser(here).get("/start/x").status_code == 404
        status, _, complaints = server.stop()
        loaded, warned = complaints.splitlines()
        assert (status, loaded) == (cli.DONE, "gate is loaded")
        assert "answers to any host name: give the Inbox trusted_hosts" in warned


def test_an_inbox_of_one_s_own_is_shown_by_its_own_address(place: Path, start: Callable[..., Process]) -> None:
    (place / "gate.py").write_text(GATE)
    begin()
    server = start("--host", "0.0.0.0", "--inbox", "gate:named", "--store", STORE)
    assert server.url == "http://approvals.example/in"
    assert server.stop()[2] == "gate is loaded\n", "it answers to its own name alone"


def test_the_peer_of_the_socket_counts_and_no_header(place: Path, start: Callable[..., Process]) -> None:
    """uvicorn believes X-Forwarded-For of a peer on the loopback interface, unless it is told not to."""
    (place / "gate.py").write_text(GATE)
    begin()
    server = start("--inbox", "gate:proxied", "--store", STORE)
    forged = {"x-proxy-secret": "s" * 40, "x-forwarded-user": "root", "x-forwarded-for": "10.0.0.5:4711"}
    assert Browser(server.url).get("/me", headers=forged).status_code == 400
    _, out, complaints = server.stop()
    assert "refused a request from 127.0.0.1: headers of the proxy come from another address" in complaints
    assert "s" * 40 not in out + complaints and "root" not in out + complaints


def test_a_token_is_answered_over_http_and_is_in_no_output(place: Path, start: Callable[..., Process]) -> None:
    begin()
    with SQLiteStore("runs.db") as store:
        bot = Principal(id="bot", kind="service")
        secret = in_loop(ApiTokens(store).issue("robot", bot, scopes=["read"], seconds=60)).secret
    server = start("--store", STORE)
    client = Browser(server.url, authorization=f"Bearer {secret}")
    assert client.get("/api/v1/requests").status_code == 200
    assert client.get("/api/v1/requests", headers={"authorization": f"Bearer {secret}x"}).status_code == 401
    _, out, complaints = server.stop()
    assert secret not in out + complaints


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--store sqlite:///runs.db --host 0.0.0.0", "to listen on 0.0.0.0, give --inbox with a login of your own"),
        ("--store sqlite:///runs.db --host 192.0.2.7", "give --inbox with a login of your own"),
        ("--store sqlite:///runs.db --host 127.0.0.2", "give --inbox with a login of your own"),
        ("--store sqlite:///runs.db --port 65536", "--port"),
        ("--store sqlite:///runs.db --chat", "--chat is for the agent of --app module:agent"),
        ("--store sqlite:///runs.db --as=", "--as is empty: give the id of whom the link signs in"),
        ("--store sqlite:///runs.db --deps desk:make", "--deps is for the tools of an app"),
        ("--app desk:make", "keeps its runs in memory, where no other process sees them: give --store URL"),
        ("--app desk:make --store memory://", "so there is nothing to show: give --store URL, the store of the runs"),
        ("--store memory://", "what is in memory no other process sees, so there is nothing to show"),
        ("", "give --store URL or --app module:agent"),
        ("--inbox gate:make --store memory://", "what is in memory no other process sees"),
        ("--inbox gate:make", "give --store URL"),
        ("--inbox gate:ready --store sqlite:///runs.db", "gate:ready is an Inbox, with a store and agents of its own"),
        ("--inbox gate:ready --app desk:make", "gate:ready is an Inbox, with a store and agents of its own"),
        ("--inbox gate:number", "gate:number is a int: an Inbox is needed"),
        ("--inbox gate:gone", "module gate has no 'gone'"),
        ("--inbox gate", "--inbox is module:inbox, not 'gate'"),
        ("--inbox nowhere:make", "there is no module nowhere"),
        ("--inbox gate:none --store sqlite:///runs.db", "gate:none needs other arguments"),
        ("--inbox gate:wrong --store sqlite:///runs.db", "gate:wrong gives a str, and no Inbox"),
        ("--inbox gate:later --store sqlite:///runs.db", "gate:later gives a coroutine, and no Inbox"),
        ("--inbox gate:make --store sqlite:///runs.db --as rita", "--inbox has a login of its own"),
        ("--inbox gate:make --store sqlite:///runs.db --role lead", "--inbox has a login of its own"),
        ("--inbox gate:local --store sqlite:///runs.db --host 0.0.0.0", "a one-time link is for one's own machine"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_line(
    place: Path, capsys: pytest.CaptureFixture[str], line: str, why: str
) -> None:
    (place / "gate.py").write_text(GATE)
    sys.modules.pop("gate", None)
    begin()
    capsys.readouterr()
    assert cli.run(["serve", "--port", "0", *line.split()]) == cli.MISUSED
    found = capsys.readouterr()
    (complaint,) = [each for each in found.err.splitlines() if not each.endswith("is loaded")]
    assert why in complaint and found.out == ""


def test_a_file_that_is_not_there_and_a_port_that_is_taken(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["serve", "--store", "sqlite:///gone.db"]) == cli.FAILED
    assert capsys.readouterr().err == (
        "phronomy: error: there is no file gone.db: the first run makes it, such as one of"
        " `phronomy chat --app module:agent --store sqlite:///gone.db`\n"
    )
    begin()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        capsys.readouterr()
        assert cli.run(["serve", "--store", STORE, "--port", port]) == cli.MISUSED
    assert capsys.readouterr().err == (
        f"phronomy: error: nobody can listen on 127.0.0.1:{port}: Address already in use. Give another --port"
        " (phronomy serve --help tells more)\n"
    )


def test_without_the_extra_it_says_what_to_install(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin()
    capsys.readouterr()
    monkeypatch.delitem(sys.modules, "phronomy.inbox.serving", raising=False)
    monkeypatch.delattr(phronomy.inbox, "serving", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli.run(["serve", "--store", STORE]) == cli.MISUSED
    assert capsys.readouterr().err == (
        "phronomy: error: this needs uvicorn: pip install 'phronomy[inbox]' (phronomy serve --help tells more)\n"
    )


def test_an_app_with_a_store_of_its_own_needs_no_other(place: Path, start: Callable[..., Process]) -> None:
    begin()
    (place / "own.py").write_text(
        "from desk import make\nfrom phronomy import SQLiteStore\n\nagent = make()\nagent.store = SQLiteStore('runs.db')\n"
    )
    server = start("--app", "own:agent")
    assert sign_in(server).get("/runs").status_code == 200
    assert server.stop()[0] == cli.DONE


@pytest.mark.parametrize("app", [None, "desk:make"])
def test_the_one_person_may_do_all_that_can_be_done(
    place: Path, start: Callable[..., Process], app: str | None
) -> None:
    begin()
    server = start("--store", STORE, *(["--app", app] if app else []))
    found = sign_in(server).get("/api/v1/me", headers={"accept": "application/json"}).json()
    four = ["read", "decide", "grant", "audit"]
    assert found["scopes"] == [*four, *([] if app is None else ["start", "cancel", "operate"]), "send"]
