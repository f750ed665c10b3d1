"""The inbox inside other web applications, under a prefix."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from inbox_scenes import RITA, Visitor, asked, desk, inbox_of
from loopback import loopback
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from tables import each
from test_inbox_client import served

from phronomy import ConfigurationError, MemoryStore
from phronomy.inbox import ApiTokens, Inbox, OneTimeLink, Sessions, mounted
from phronomy.inbox.auth.identity import SCOPES
from phronomy.inbox.visit import Visit


def in_fastapi() -> Any:
    app = FastAPI()
    app.mount("/admin/approvals", inbox_of())

    @app.get("/hello")
    def hello() -> str:
        return "hello"

    return app


def in_starlette() -> Any:
    async def hello(request: Any) -> PlainTextResponse:
        return PlainTextResponse("hello")

    return Starlette(routes=[Route("/hello", hello), Mount("/admin/approvals", inbox_of())])


def in_django() -> Any:
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="of a test")
        django.setup()
    from django.core.asgi import get_asgi_application

    return mounted(inbox_of(), "/admin/approvals", get_asgi_application())


def hello_of_django(request: Any) -> Any:
    from django.http import HttpResponse

    return HttpResponse("hello")


def __getattr__(name: str) -> Any:
    if name != "urlpatterns":  # what Django looks for here, once it is set up
        raise AttributeError(name)
    from django.urls import path

    return [path("hello", hello_of_django)]


@pytest.mark.parametrize("make", [in_fastapi, in_starlette, in_django])
def test_it_lives_under_a_prefix_of_another_application(make: Any) -> None:
    app = make()
    outside = Visitor(app)
    assert "hello" in outside.get("/hello").text
    inside = Visitor(app)
    answer = inside.get("/admin/approvals/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    nothing = inside.get("/admin/approvals/api/v1/nothing")
    assert (nothing.status_code, nothing.json()["type"]) == (404, "/admin/approvals/problems/not-found")
    assert inside.get("/admin/approvals" + "/problems/expired").status_code == 200


def test_the_prefix_alone_is_its_first_page() -> None:
    seen = []

    async def inbox(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["path"], scope["root_path"]))
        await PlainTextResponse("in")(scope, receive, send)

    async def other(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("out")(scope, receive, send)

    visitor = Visitor(mounted(inbox, "/approvals", other))
    assert [visitor.get(path).text for path in ("/approvals", "/approvals/a", "/approvals2", "/")] == [
        "in",
        "in",
        "out",
        "out",
    ]
    assert seen == [("/approvals/", "/approvals"), ("/approvals/a", "/approvals")]


@pytest.mark.parametrize("at", ["", "/", "approvals", "/approvals/", "//evil.example"])
def test_a_prefix_is_a_path(at: str) -> None:
    with pytest.raises(ConfigurationError, match="at is a path"):
        mounted(inbox_of(), at, inbox_of())


# Behind a proxy that takes a prefix away


class Stripping(BaseHTTPRequestHandler):
    """A proxy, as nginx with `location /approvals/ { proxy_pass http://inbox/; }`: only what is under its prefix is passed on."""

    def do_GET(self) -> None:
        server: Any = self.server
        if not self.path.startswith("/approvals/"):
            self.send_error(404, "nothing else is here")
            return
        line = HTTPConnection("127.0.0.1", server.inbox_port, timeout=20)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        line.request(self.command, self.path.removeprefix("/approvals"), body, dict(self.headers.items()))
        answer = line.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        self.send_header("connection", "close")
        self.end_headers()
        # Of a stream its beginning: what is read tells that it is one.
        is_stream = answer.getheader("content-type", "").startswith("text/event-stream")
        self.wfile.write(answer.read1() if is_stream else answer.read())
        line.close()

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


class Browser:
    """A browser at the proxy. Every path of an answer is one that the proxy knows, or it fails."""

    def __init__(self, origin: str) -> None:
        self.client = httpx2.Client(base_url=origin, headers={"sec-fetch-site": "same-origin", "accept": "text/html"})
        self.seen: set[str] = set()

    def open(self, path: str, **form: str) -> str:
        answer = self.client.post(path, data=form) if form else self.client.get(path)
        if answer.status_code == 303:
            to = answer.headers["location"]
            assert to.startswith("/approvals/"), to
            return self.open(to)
        assert answer.status_code == 200, (path, answer.status_code)
        paths = re.findall(r'(?:href|src|action|data-events|data-help|data-back)="(/[^"]*)"', answer.text)
        assert paths and all(place.startswith("/approvals/") for place in paths), (path, paths)
        self.seen |= {html.unescape(place) for place in paths}
        return answer.text


@pytest.fixture
def behind() -> Iterator[tuple[Browser, MemoryStore, OneTimeLink]]:
    """A browser at a proxy before a real server of an inbox."""
    with loopback(Stripping) as (proxy, origin):
        store = MemoryStore()
        link = OneTimeLink(store, RITA)
        sessions = Sessions(store, cookie="phronomy", secure=False)
        everything: Any = lambda _: SCOPES  # noqa: E731
        public = f"{origin}/approvals/"
        inbox = Inbox(store, desk(store), auth=link, public_url=public, sessions=sessions, scopes=everything)
        with served(inbox) as url:
            proxy.inbox_port = int(url.rpartition(":")[2])  # type: ignore[attr-defined]
            yield Browser(origin), store, link


def test_all_paths_begin_with_that_of_the_public_address(
    behind: tuple[Browser, MemoryStore, OneTimeLink],
) -> None:
    """Signing in, deciding, looking around: links, files, forms, events, redirects, cookies."""
    browser, store, link = behind
    item = asked(store)
    assert "sign in" in browser.open("/approvals/").lower()  # by way of the sign-in page
    path = asyncio.run(link.issue())
    text = browser.open(f"/approvals{path}")
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', text))
    browser.open("/approvals/start", **fields)
    assert [cookie.path for cookie in browser.client.cookies.jar if cookie.name == "phronomy"] == ["/"]
    text = browser.open(f"/approvals/requests/{item.id}")
    forms = re.search(r'<form method="post" action="([^"]*decision[^"]*|[^"]*review[^"]*)".*?</form>', text, re.DOTALL)
    assert forms is not None and forms[1].startswith("/approvals/requests/")
    browser.open(f"/approvals/runs/{item.path or store.branches()[0].id}")
    done: set[str] = set()
    for _ in range(2):
        for place in sorted(browser.seen - done):
            done.add(place)
            answer = browser.client.get(place)
            assert answer.status_code not in (404, 502), place
            if "html" in answer.headers["content-type"] and answer.status_code == 200:
                browser.open(place)
    assert "/approvals/api/v1/events" in done and any(place.endswith(".css") for place in done)


def test_the_answers_of_the_api_have_the_prefix(behind: tuple[Browser, MemoryStore, OneTimeLink]) -> None:
    browser, store, _ = behind
    for order in range(3):
        asked(store, order)
    scopes: list[Any] = [*SCOPES]
    issued = asyncio.run(ApiTokens(store).issue("t", RITA, scopes=scopes, seconds=60))
    headers = {"authorization": f"Bearer {issued.secret}", "accept": "application/json"}
    api = "/approvals/api/v1"
    page = browser.client.get(f"{api}/requests?limit=1", headers=headers)
    assert page.headers["link"].startswith("</approvals/api/v1/requests?")
    wrong = browser.client.get(f"{api}/nothing", headers=headers).json()
    assert wrong["type"] == "/approvals/problems/not-found"
    assert browser.client.get(wrong["type"]).status_code == 200
    described = browser.client.get("/approvals/openapi.json", headers=headers).json()
    assert described["servers"] == [{"url": "/approvals"}]
    key = {"idempotency-key": "k"}
    begun = browser.client.post(f"{api}/runs", json={"agent": "desk", "input": "order 7"}, headers={**headers, **key})
    assert begun.headers["location"].startswith("/approvals/api/v1/runs/")


@each(
    ("mounted_at", "public", "path"),
    [
        ("", None, "/x"),
        ("", "https://example.org", "/x"),
        ("", "https://example.org/a/b/", "/a/b/x"),
        ("/approvals", None, "/approvals/x"),
        ("/approvals", "https://example.org", "/approvals/x"),
        ("/approvals", "https://example.org/approvals", "/approvals/x"),
        (
            "/approvals/",
            "https://example.org/tools/approvals",
            "/tools/approvals/x",
        ),  # in an application behind such a proxy
        (
            "/approvals",
            "https://example.org/elsewhere",
            "/approvals/x",
        ),  # reached by another way: what the server knows counts
    ],
)
def test_what_paths_begin_with(mounted_at: str, public: str | None, path: str) -> None:
    inbox = inbox_of(public_url=public)
    request = Request({"type": "http", "root_path": mounted_at, "headers": []})
    assert Visit(request, inbox.site, None).url("/x") == path


@each("path", ["/a b", "/../b", "/a//b", '/a"', "/a<b", "/a;b", "//b", "/ä"])
def test_a_public_address_has_a_plain_path(path: str) -> None:
    with pytest.raises(ConfigurationError, match="public_url"):
        inbox_of(public_url=f"https://example.org{path}")
