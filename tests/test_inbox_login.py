"""The login of an application that the inbox is mounted into: who is sent there, and how they come back."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import httpx2
import pytest
from inbox_scenes import RITA, Visitor, asked, inbox_of, run
from ports import HeldPort
from starlette.applications import Starlette
from starlette.routing import Mount
from tables import each
from test_inbox_sign_in import ByButton, plain

from phronomy import ConfigurationError, MemoryStore, SQLiteStore
from phronomy.inbox import Inbox, OneTimeLink, Sessions

LOGIN = "/accounts/login/?next={to}"
PROGRAMS = dict(
    re.findall(
        r'^## (\w+)\n.*?^```python title="desk.py"\n(.*?)^```$',
        (Path(__file__).parents[1] / "docs" / "inbox-login.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
)


def led(answer: httpx2.Response) -> str:
    """Where somebody is sent, who comes back to the page that it names."""
    assert answer.status_code == 303 and answer.headers["cache-control"] == "no-store"
    return answer.headers["location"]


@each(
    ("public", "mounted_at", "login", "path", "to"),
    [
        (None, "", LOGIN, "/", "/accounts/login/?next=%2F"),
        (None, "", LOGIN, "/runs?state=failed", "/accounts/login/?next=%2Fruns%3Fstate%3Dfailed"),
        (None, "/approvals", LOGIN, "/runs", "/accounts/login/?next=%2Fapprovals%2Fruns"),
        ("https://example.org/tools/approvals", "", LOGIN, "/", "/accounts/login/?next=%2Ftools%2Fapprovals%2F"),
        ("https://example.org/x/approvals", "/approvals", LOGIN, "/", "/accounts/login/?next=%2Fx%2Fapprovals%2F"),
        (None, "/approvals", "/login", "/runs", "/login"),
        (None, "", "https://id.example.org/in?a=1&to={to}#{to}", "/", "https://id.example.org/in?a=1&to=%2F#%2F"),
    ],
)
def test_who_is_not_signed_in_is_led_to_the_login_and_back(
    public: str | None, mounted_at: str, login: str, path: str, to: str
) -> None:
    inbox = inbox_of(public_url=public, login_url=login)
    app = Starlette(routes=[Mount(mounted_at, app=inbox)]) if mounted_at else inbox
    stranger = Visitor(app, None)
    assert led(stranger.get(mounted_at + path)) == to
    assert led(stranger.request("HEAD", mounted_at + path)) == to
    # A link "sign in and come back here" of a page leads by the sign-in page, which leads on.
    assert led(stranger.get(f"{mounted_at}/login?to={quote(path)}")) == to


def test_the_api_says_that_nobody_is_signed_in() -> None:
    answer = Visitor(inbox_of(login_url=LOGIN), None).get("/api/v1/requests", headers={"accept": "text/html"})
    assert (answer.status_code, answer.json()["type"]) == (401, "/problems/not-signed-in")


@each(
    "to", ["//evil.example", "/\\evil.example", "https://evil.example", "/../admin", "/%2e%2e/admin", "/a\tb", "x", ""]
)
def test_nobody_is_led_away_from_the_inbox(to: str) -> None:
    app = Starlette(routes=[Mount("/approvals", app=inbox_of(public_url=None, login_url=LOGIN))])
    there = led(Visitor(app, None).get(f"/approvals/login?to={quote(to, safe='')}"))
    assert there == "/accounts/login/?next=%2Fapprovals%2F"


@each("path", ["/%2F/evil.example", "/%5Cevil.example", "//evil.example/x", "/..%2F..%2Fadmin", "/runs%0A"])
def test_a_path_that_is_asked_for_leads_nowhere_else(path: str) -> None:
    answer = Visitor(inbox_of(login_url=LOGIN), None).get(path)
    if answer.status_code == 303:
        (_, to) = parse_qsl(urlsplit(answer.headers["location"]).query)[0]
        assert re.fullmatch(r"/(?![/\\])[ -~]*", to) and ".." not in to


def test_a_form_after_the_end_of_a_session_keeps_what_was_typed() -> None:
    store = MemoryStore()
    item = asked(store)
    sent = {"digest": item.digest, "key": "k", "answer": "reject", "reason": "It is too much."}
    answer = Visitor(inbox_of(store, login_url=LOGIN), None).post(f"/requests/{item.id}/review", data=sent)
    assert answer.status_code == 401 and "It is too much." in answer.text
    back = re.search(r'href="(/login\?to=[^"]*)">Sign in and come back', answer.text)
    assert back is not None
    assert led(Visitor(inbox_of(store, login_url=LOGIN), None).get(back[1])) == (
        f"/accounts/login/?next=%2Frequests%2F{item.id}"
    )


def test_other_ways_to_sign_in_are_offered_beside_it() -> None:
    store = MemoryStore()
    link = OneTimeLink(store, next(iter(ByButton().people.values())))
    inbox = inbox_of(store, auth=[ByButton(), link], login_url=LOGIN)
    page = Visitor(inbox, None).get("/login?to=/runs")
    assert page.status_code == 200 and 'href="/accounts/login/?next=%2Fruns">Sign in</a>' in page.text
    assert "Sign in with Example" in page.text and "terminal" in page.text
    assert led(Visitor(inbox, None).get("/runs")) == "/accounts/login/?next=%2Fruns"


def test_who_has_signed_out_is_not_signed_in_again_at_once() -> None:
    store = MemoryStore()
    inbox = inbox_of(store, login_url=LOGIN, sessions=Sessions(store))
    left = Visitor(inbox, None).post("/logout")
    assert led(left) == "/login?said=out"
    page = Visitor(inbox, None).get("/login?said=out")
    assert page.status_code == 200 and "You are signed out." in plain(page.text)
    assert 'href="/accounts/login/?next=%2F">Sign in</a>' in page.text
    assert Visitor(inbox).get("/login").status_code == 200  # somebody who is signed in stays


def test_who_was_signed_in_by_the_application_can_sign_out_there() -> None:
    there = "/accounts/logout/?next=%2Flogin%3Fsaid%3Dout"
    inbox = inbox_of(logout_url="/accounts/logout/?next={to}", scopes=lambda who: {"read"} if who.id == "rita" else ())
    link = f'href="{there}">Sign out</a>'
    for path in ("/", "/me", "/login"):
        assert link in Visitor(inbox).get(path).text
    assert link not in Visitor(inbox, None).get("/login?said=out").text
    # Somebody without scopes is led to no page that refuses them once more.
    page = Visitor(inbox, "otto").get("/", headers={"accept": "text/html"})
    main = page.text.partition("<main")[2]
    assert page.status_code == 403 and link in main and 'href="/"' not in main and 'href="/me"' in main
    assert Visitor(inbox, "otto").get("/me").text.count(link) == 2
    # A session of the inbox ends here, by a form.
    store = MemoryStore()
    both = inbox_of(store, logout_url="/accounts/logout/", sessions=Sessions(store))
    signed_in = Visitor(both, None)
    signed_in.cookies = {both.site.sessions.cookie: run(both.site.sessions.begin(RITA))}
    assert "/accounts/logout/" not in signed_in.get("/me").text and 'action="/logout"' in signed_in.get("/me").text


def test_an_address_that_is_no_logout_is_refused_when_the_inbox_is_made() -> None:
    for url in ("javascript:alert(1)", "//evil.example/", "/out?next={next}"):
        with pytest.raises(
            ConfigurationError, match=r"Inbox: logout_url .* signs people out, such as '/accounts/logout/'"
        ):
            inbox_of(logout_url=url)


# Without HTTPS, browsers send no Sec-Fetch-Site


PLAIN_HTTP = "http://desk.corp:8000"


def form_at(inbox: Inbox, **headers: str) -> httpx2.Response:
    """The answer to the form that signs out, sent by a browser that says no more than its origin."""

    async def send() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=inbox)
        async with httpx2.AsyncClient(transport=transport, base_url=PLAIN_HTTP) as client:
            return await client.post("/logout", data={}, headers=headers)

    return run(send())


@each(
    ("options", "headers", "status", "said"),
    [
        ({"public_url": PLAIN_HTTP}, {"origin": PLAIN_HTTP}, 303, None),
        ({"trusted_hosts": ["desk.corp:8000"]}, {"origin": PLAIN_HTTP}, 303, None),
        (
            {"trusted_hosts": ["desk.corp:8000"]},
            {"origin": "https://desk.corp:8000"},
            403,
            'set Inbox(public_url="https:',
        ),
        ({"trusted_hosts": ["desk.corp:8000", "b.corp"]}, {"origin": "http://b.corp"}, 403, None),
        ({"trusted_hosts": ["desk.corp:8000"]}, {"origin": "null"}, 403, None),
        ({}, {"origin": PLAIN_HTTP}, 403, 'set Inbox(public_url="http://desk.corp:8000")'),
        ({}, {"origin": "http://evil.example"}, 403, None),
        ({}, {"origin": "http://evil.example<b>", "host": "evil.example<b>"}, 403, None),
        ({}, {"origin": PLAIN_HTTP, "sec-fetch-site": "cross-site"}, 403, None),
        (
            {"public_url": "https://desk.corp", "trusted_hosts": ["desk.corp:8000"]},
            {"origin": PLAIN_HTTP},
            403,
            "knows itself as https://desk.corp, and the form was sent to http://desk.corp:8000",
        ),
    ],
)
def test_a_form_without_https_counts_where_somebody_has_vouched_for_the_address(
    options: dict[str, Any], headers: dict[str, str], status: int, said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    answer = form_at(inbox_of(**{"public_url": None, **options}), **headers)
    assert answer.status_code == status
    logged = [line.getMessage() for line in caplog.records if line.name == "phronomy"]
    assert [said in line for line in logged] == [True] if said is not None else not logged
    assert said is None or said in html.unescape(plain(answer.text))
    assert "<b>" not in answer.text


def test_a_form_that_does_not_say_where_it_is_from_is_told_what_to_send() -> None:
    answer = form_at(inbox_of(public_url=PLAIN_HTTP))
    assert answer.status_code == 403 and "a test of a form sends Sec-Fetch-Site: same-origin" in plain(answer.text)


@each(
    ("url", "why"),
    [
        ("javascript:alert(1)", "slash"),
        ("data:text/html,x", "slash"),
        ("ftp://example.org/", "slash"),
        ("//evil.example/{to}", "slash"),
        ("accounts/login", "slash"),
        ("?next={to}", "slash"),
        ("https://", "slash"),
        ("https:///login", "slash"),
        ("https://a:b@example.org/", "slash"),
        ("https://[::1/", "slash"),
        ("/\\evil.example", "signs of ASCII"),
        ("/log in", "signs of ASCII"),
        ("/lögin", "signs of ASCII"),
        ("/login\n", "signs of ASCII"),
        ("", "signs of ASCII"),
        (7, "signs of ASCII"),
        ("/" + "a" * 2_000, "signs of ASCII"),
        ("/login?next={next}", "no other braces"),
        ("/login?next={to", "no other braces"),
        ("/login?next={{to}}", "no other braces"),
        ("/login/{to}", "behind the"),
        ("https://{to}/", "behind the"),
    ],
)
def test_an_address_that_is_no_login_is_refused_when_the_inbox_is_made(url: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"Inbox: login_url .*{why}.*'/accounts/login/\?next=\{{to\}}'"):
        inbox_of(login_url=url)


# The programs of the documentation


@contextmanager
def running(program: str, folder: Path) -> Iterator[httpx2.Client]:
    """A client of a program that uvicorn serves, in a process of its own."""
    (folder / "desk.py").write_text(program)
    with HeldPort() as port:
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "desk:application",
            "--port",
            str(port.number),
            "--log-level",
            "error",
        ]
        process = subprocess.Popen(command, cwd=folder)
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port.number}") as client:
                end = time.monotonic() + 60
                while not _answers(client):
                    assert process.poll() is None and time.monotonic() < end, "it does not start"
                    time.sleep(0.02)
                yield client
        finally:
            process.terminate()
            process.wait(20)


def _answers(client: httpx2.Client) -> bool:
    try:
        return client.get("/approvals/healthz").status_code == 200
    except httpx2.TransportError:
        return False


def test_there_is_a_program_for_each_framework() -> None:
    assert [*PROGRAMS] == ["Django", "Flask", "FastAPI"]


@pytest.mark.parametrize("framework", PROGRAMS)
def test_the_program_of_the_page_lets_people_in_by_its_login(framework: str, tmp_path: Path) -> None:
    with running(PROGRAMS[framework], tmp_path) as client, SQLiteStore(tmp_path / "runs.db") as store:
        item = asked(store)
        wanted = f"/approvals/requests/{item.id}"
        assert client.get("/approvals/api/v1/requests").status_code == 401
        answer = client.get(wanted)
        login = led(answer)
        assert login.endswith(f"?next={quote(wanted, safe='')}")

        def sign_in(login: str, password: str) -> httpx2.Response:
            form = client.get(login).text
            token = dict(re.findall(r'name="(csrfmiddlewaretoken)" value="([^"]*)"', form))
            return client.post(login, data={"username": "rita", "password": password, **token})

        sign_in(login, "wrong")
        assert client.get(wanted).status_code == 303
        back = sign_in(login, "rita's")
        assert (back.status_code, back.headers["location"]) == (302 if framework != "FastAPI" else 303, wanted)
        page = client.get(wanted)
        assert page.status_code == 200 and "rita" in page.text.lower()
        assert client.get("/approvals/api/v1/me").json()["principal"]["roles"] == ["finance"]
        for elsewhere in ("https://evil.example/approvals/", "//evil.example/approvals/"):
            away = sign_in(f"{login.partition('?')[0]}?next={quote(elsewhere, safe='')}", "rita's")
            assert "evil" not in away.headers["location"]
        hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page.text))
        sent = {**hidden, "answer": "reject", "reason": "Not this one.", "then": "continue"}
        decided = client.post(f"{wanted}/review", data=sent, headers={"sec-fetch-site": "same-origin"})
        assert decided.status_code == 200 and "Last look before it counts" in decided.text
        forged = client.post(f"{wanted}/review", data=sent, headers={"sec-fetch-site": "cross-site"})
        assert forged.status_code == 403
