"""Signing in and out with a browser: the sign-in page, one-time links, and the page of one's own sessions."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from dataclasses import replace
from html import unescape
from http.cookies import SimpleCookie
from typing import Any

import pytest
from inbox_scenes import ORIGIN, OTTO, RITA, ByHeader, Visitor, asked, inbox_of, run
from places import Place
from starlette.responses import Response
from test_inbox_sessions import Clock

from phronomy import ConfigurationError, MemoryStore, Principal, StoreError
from phronomy.inbox import Inbox
from phronomy.inbox.auth import limits, one_time_link
from phronomy.inbox.auth.limits import Failures, Limits
from phronomy.inbox.auth.one_time_link import KIND, OneTimeLink
from phronomy.inbox.auth.returning import return_path
from phronomy.inbox.auth.sessions import KIND as SESSION
from phronomy.inbox.auth.sessions import Sessions
from phronomy.inbox.routes import Route
from phronomy.people import Person, StoreDirectory
from phronomy.stores import Document

NAME = "__Host-phronomy"


class Browser(Visitor):
    """Somebody whose client keeps the cookies that it is given, and forgets those that it is to forget."""

    def request(self, method: str, path: str, **options: Any) -> Any:
        kept = self.cookies
        self.cookies = {}
        headers = {"cookie": "; ".join(f"{name}={value}" for name, value in kept.items())} if kept else {}
        answer = super().request(method, path, headers={**headers, **options.pop("headers", {})}, **options)
        self.cookies = kept
        for each in answer.headers.get_list("set-cookie"):
            for name, cookie in SimpleCookie(each).items():
                kept[name] = cookie.value
                if cookie["max-age"] == "0":
                    del kept[name]
        return answer


class ByButton(ByHeader):
    """A way to sign in that is offered on the sign-in page."""

    label = "Example & Co."
    start = "/auth/example/start"

    def routes(self) -> list[Route]:
        async def begin(visit: Any) -> Response:
            return Response("begun")

        return [Route(method="GET", path=self.start, handler=begin, public=True, page=True)]


class Desk:
    """An inbox on one's own machine, over a store of each kind, and what it has printed."""

    def __init__(self, place: Place, **options: Any) -> None:
        self.place, self.clock = place, Clock()
        self.printed: list[str] = []
        self.store = self.open()
        self.link = OneTimeLink(self.store, RITA, announce=self.printed.append)
        self.inbox = inbox_of(self.store, auth=self.link, **options)

    def open(self) -> Any:
        return self.place.open(clock=self.clock)

    def issue(self) -> str:
        return run(self.link.issue()).removeprefix("/start/")

    def secret(self) -> str:
        """That of the link that was printed last."""
        return self.printed[-1].removeprefix("/start/").partition("?")[0]

    def visitor(self, **headers: str) -> Visitor:
        return Browser(self.inbox, None, accept="text/html", **headers)

    def sessions(self) -> int:
        return len(self.store.select_documents(SESSION))

    def signed_in(self) -> Visitor:
        visitor = self.visitor()
        assert visitor.post("/start", data={"secret": self.issue()}).status_code == 303
        self.clock.now += 1
        return visitor


@pytest.fixture
def desk(place: Place) -> Desk:
    return Desk(place)


def field(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None, page
    return found[1]


def plain(page: str) -> str:
    """The words of a page."""
    return " ".join(re.sub(r"<[^>]*>", " ", re.sub(r"</?bdi>", "", page)).split())


# One-time links


def test_a_link_is_opened_and_spent_by_its_button(desk: Desk) -> None:
    path = run(desk.link.issue())
    secret = path.removeprefix("/start/")
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", secret) and secret not in desk.place.text()
    visitor = desk.visitor()
    before = desk.store.select_documents(KIND)
    for method in ("GET", "HEAD", "GET"):  # previews and scanners spend nothing
        page = visitor.request(method, path)
        assert (page.status_code, page.headers["referrer-policy"]) == (200, "strict-origin")
        assert page.headers["cache-control"] == "no-store" and "set-cookie" not in page.headers
    assert desk.store.select_documents(KIND) == before and desk.sessions() == 0
    page = visitor.get(path)
    assert "You sign in to Approvals on this machine as Rita ( rita ) ." in plain(page.text)
    answer = visitor.post("/start", data={"secret": field(page.text, "secret")})
    assert (answer.status_code, answer.headers["location"], desk.sessions()) == (303, "/", 1)
    assert visitor.cookies[NAME] not in desk.place.text()
    found = visitor.get("/me")
    assert found.status_code == 200 and "Rita" in found.text and "decide requests, let calls pass" in found.text


@pytest.mark.parametrize("at", ["GET", "POST"])
def test_a_link_that_does_not_count_says_why(desk: Desk, at: str) -> None:
    used, late, other = desk.issue(), desk.issue(), run(OneTimeLink(desk.open(), OTTO).issue())
    assert run(desk.link.spend(used)) == "fresh"
    visitor = desk.visitor()

    def told(secret: str) -> tuple[int, str]:
        by = {"GET": (f"/start/{secret}", None), "POST": ("/start", {"secret": secret})}[at]
        answer = visitor.request(at, by[0], data=by[1])
        head = re.search(r"<h1>(.*)</h1>", answer.text)
        assert head is not None and 'name="secret"' not in answer.text
        return answer.status_code, head[1]

    desk.clock.now += 300
    assert told(used) == (410, "This link was used before")
    assert told(late) == (410, "The time of this link is over")
    wrong = (404, "This is no link of this server")
    assert told(other.removeprefix("/start/")) == told("A" * 43) == told("x") == told(late[:-1]) == wrong
    desk.clock.now += one_time_link.KEPT
    assert told(late) == wrong
    assert "Perhaps it is too old" in visitor.get(f"/start/{late}").text
    assert desk.sessions() == 0 and NAME not in visitor.cookies


def test_a_link_counts_until_its_time_is_over(desk: Desk) -> None:
    secret = desk.issue()
    desk.clock.now += 299.9
    assert run(desk.link.state(secret)) == "fresh" == run(desk.link.spend(secret))
    assert run(desk.link.state(secret)) == run(desk.link.spend(secret)) == "used"


def test_of_two_who_spend_a_link_at_once_one_gets_in(desk: Desk) -> None:
    """Also in several processes."""
    secret = desk.issue()
    there = [OneTimeLink(desk.open(), RITA) for _ in range(8)]

    async def at_once() -> list[str]:
        return await asyncio.gather(*(each.spend(secret) for each in there))

    assert sorted(run(at_once())) == ["fresh"] + ["used"] * 7


def test_of_two_posts_at_once_one_has_a_session(desk: Desk) -> None:
    import httpx2

    secret = desk.issue()
    inboxes = [inbox_of(store := desk.open(), auth=OneTimeLink(store, RITA)) for _ in range(4)]

    async def post(inbox: Inbox) -> tuple[int, bool]:
        transport = httpx2.ASGITransport(app=inbox)
        async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN) as client:
            answer = await client.post(
                "/start", data={"secret": secret}, headers={"sec-fetch-site": "same-origin", "accept": "text/html"}
            )
            return answer.status_code, "set-cookie" in answer.headers

    async def at_once() -> list[tuple[int, bool]]:
        return await asyncio.gather(*map(post, inboxes))

    assert sorted(run(at_once())) == [(303, True)] + [(410, False)] * 3
    assert desk.sessions() == 1


def test_another_site_spends_no_link(desk: Desk) -> None:
    secret = desk.issue()
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "", "origin": ORIGIN},
    ):
        visitor = desk.visitor(**headers)
        assert visitor.post("/start", data={"secret": secret}).status_code == 403
        assert visitor.post("/start/new", data={}).status_code == 403
    assert run(desk.link.state(secret)) == "fresh" and desk.sessions() == 0 and desk.printed == []


def test_a_new_login_has_a_new_session_and_ends_the_one_before(desk: Desk) -> None:
    """Whatever cookie the browser brings: one that somebody has set is never taken."""
    visitor = desk.visitor()
    visitor.cookies = {NAME: "A" * 43}
    assert visitor.post("/start", data={"secret": desk.issue()}).status_code == 303
    first = visitor.cookies[NAME]
    assert first != "A" * 43
    secret = desk.issue()
    assert visitor.post("/start", data={"secret": secret}).status_code == 403, "the form of the page has a token"
    page = visitor.get(f"/start/{secret}")
    form = {"secret": field(page.text, "secret"), "csrf": field(page.text, "csrf")}
    assert visitor.post("/start", data=form).status_code == 303
    assert visitor.cookies[NAME] != first and desk.sessions() == 1
    visitor.cookies = {NAME: first}
    assert visitor.get("/me").status_code == 303


def test_a_new_link_is_printed_for_whoever_asks_and_the_answer_has_nothing_of_it(desk: Desk) -> None:
    visitor = desk.visitor()
    page = visitor.get("/login")
    assert "Open the link that was printed in the terminal" in plain(page.text)
    answer = visitor.post("/start/new", data={})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?said=printed")
    (path,) = desk.printed
    assert path.removeprefix("/start/") not in answer.text + str(answer.headers)
    assert "A new link was printed in the terminal" in plain(visitor.get("/login?said=printed").text)
    assert visitor.get(path).status_code == 200
    for _ in range(9):
        desk.clock.now += 5
        assert visitor.post("/start/new", data={}).status_code == 303
    desk.clock.now += 5
    assert visitor.post("/start/new", data={}).status_code == 429
    assert len(set(desk.printed)) == 10


def test_a_button_that_is_pressed_twice_prints_one_link(desk: Desk) -> None:
    """And another one once the first is used, late, or asked for with another way on."""

    async def at_once() -> None:
        await asyncio.gather(*(desk.link.announce_new() for _ in range(3)))

    visitor = desk.visitor()
    run(at_once())
    assert visitor.post("/start/new", data={"to": "/"}).headers["location"] == "/login?said=printed"
    assert len(desk.printed) == 1
    assert visitor.post("/start/new", data={"to": "/runs"}).status_code == 303
    assert len(desk.printed) == 2
    assert desk.visitor().post("/start", data={"secret": desk.secret()}).status_code == 303
    assert visitor.post("/start/new", data={"to": "/runs"}).status_code == 303
    desk.clock.now += 5
    assert visitor.post("/start/new", data={"to": "/runs"}).status_code == 303
    assert len(set(desk.printed)) == 4


def test_a_link_that_cannot_be_kept_is_not_taken_for_printed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails() -> str:
        raise StoreError("no")

    with monkeypatch.context() as broken:
        broken.setattr(desk.link, "issue", fails)
        with pytest.raises(StoreError):
            run(desk.link.announce_new())
    run(desk.link.announce_new())
    assert len(desk.printed) == 1


def test_a_new_link_leads_to_the_page_that_was_wanted(desk: Desk) -> None:
    visitor = desk.visitor()
    wanted = visitor.get("/requests/x?list=view%3Dall&b=%20c")
    page = visitor.get(wanted.headers["location"])
    to = unescape(field(page.text, "to"))
    assert to == "/requests/x?list=view%3Dall&b=%20c"
    again = visitor.get(visitor.post("/start/new", data={"to": to}).headers["location"])
    assert "A new link was printed" in plain(again.text) and unescape(field(again.text, "to")) == to
    start = visitor.get(desk.printed[0]).text
    form = {name: unescape(field(start, name)) for name in ("secret", "to")}
    done = visitor.post("/start", data=form)
    assert (done.status_code, done.headers["location"]) == (303, to)


@pytest.mark.parametrize("to", ["https://evil.example/", "//evil.example", "/\\evil.example", "/a\nb", "/\x1b[2J"])
def test_a_new_link_leads_to_no_other_site_and_writes_nothing_into_the_terminal(desk: Desk, to: str) -> None:
    visitor = desk.visitor()
    assert visitor.post("/start/new", data={"to": to}).headers["location"] == "/login?said=printed"
    assert "?" not in desk.printed[0] and desk.printed[0].isprintable()
    done = visitor.post("/start", data={"secret": desk.secret(), "to": to})
    assert done.headers["location"] == "/"


def test_wrong_links_are_counted_and_a_right_one_still_counts(place: Place) -> None:
    store = place.open()
    desk = Desk(place, limits=Limits(store, failures=Failures(store, most=3)))
    visitor = desk.visitor()
    statuses = [visitor.post("/start", data={"secret": "A" * 43}).status_code for _ in range(5)]
    assert statuses == [404, 404, 404, 429, 429]
    assert len(store.select_documents(limits.KIND)) == 1
    assert visitor.post("/start", data={"secret": desk.issue()}).status_code == 303


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"used": None}, {"used": "no"}, {"until": "later"}, {"until": None}, {"for": "x"}]
)
def test_a_damaged_link_lets_nobody_in(desk: Desk, change: dict[str, Any]) -> None:
    secret = desk.issue()
    (row,) = desk.store.select_documents(KIND)
    for text in ("", "[]", json.dumps(json.loads(row.text) | change)):
        row = desk.store.put_document(replace(row, text=text))
        assert run(desk.link.spend(secret)) != "fresh"


def test_a_link_of_the_first_version_still_counts(desk: Desk) -> None:
    whom = hashlib.sha256(json.dumps([None, RITA.model_dump_json()]).encode()).hexdigest()
    text = f'{{"version": 1, "for": "{whom}", "until": 1000300.0, "used": false}}'
    key = hashlib.sha256(b"A" * 43).hexdigest()
    desk.store.put_document(Document(kind=KIND, key=key, text=text, expires_at=1_086_700.0))
    assert run(desk.link.spend("A" * 43)) == "fresh" and run(desk.link.spend("A" * 43)) == "used"


@pytest.mark.parametrize("when", ["after it was printed", "before it was printed"])
def test_a_link_of_somebody_who_was_removed_signs_nobody_in(desk: Desk, when: str) -> None:
    people = StoreDirectory(desk.store)
    people.add(Person(id="rita", roles=("lead",)))
    secret = desk.issue()
    people.remove("rita")
    if when == "before it was printed":
        secret = desk.issue()
    visitor = desk.visitor()
    assert visitor.get(f"/start/{secret}").status_code == 404
    assert visitor.post("/start", data={"secret": secret}).status_code == 404
    assert desk.store.select_documents(SESSION) == []
    people.add(Person(id="rita", roles=("lead",)))
    assert run(desk.link.spend(secret)) == "fresh"


def test_without_a_link_there_is_nothing_under_start() -> None:
    visitor = Visitor(inbox_of(), None, accept="text/html")
    assert visitor.get("/start/" + "A" * 43).status_code == 404
    assert visitor.post("/start", data={"secret": "A" * 43}).status_code == 404
    assert visitor.post("/start/new", data={}).status_code == 404
    quiet = Visitor(inbox_of(store := MemoryStore(), auth=OneTimeLink(store, RITA)), None, accept="text/html")
    assert quiet.post("/start/new", data={}).status_code == 404
    assert "Print a new link" not in quiet.get("/login").text


@pytest.mark.parametrize("wrong", [{"principal": "rita"}, {"seconds": 0}, {"seconds": "5m"}])
def test_a_link_for_nobody_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="OneTimeLink"):
        OneTimeLink(MemoryStore(), **{"principal": RITA, **wrong})


def test_no_secret_is_in_a_log_or_a_repr(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    link = OneTimeLink(store, RITA)
    inbox = inbox_of(store, auth=link)
    visitor = Browser(inbox, None, accept="text/html")
    with caplog.at_level(logging.DEBUG):
        path = run(link.issue())
        visitor.get(path)
        visitor.get(path + "/")
        visitor.get("/elsewhere" + path)
        visitor.post("/start", data={"secret": path.removeprefix("/start/")})
        visitor.post("/start", data={"secret": path.removeprefix("/start/")})
        visitor.get("/me")
    assert "/start/{secret}" in caplog.text and "rita by session" in caplog.text
    secrets = (path.removeprefix("/start/"), visitor.cookies[NAME])
    ours = [each for each in caplog.records if each.name.startswith("phronomy")]  # and not those of the test's client
    shown = [each.getMessage() + repr(each.__dict__) for each in ours] + [repr(link), repr(inbox)]
    assert not [text for text in shown if any(each in text for each in secrets)]


# The sign-in page


def test_whoever_is_not_signed_in_comes_back_to_the_page_that_they_wanted() -> None:
    store = MemoryStore()
    visitor = Visitor(inbox_of(store, auth=ByButton()), None, accept="text/html", prefix="/admin")
    sent = visitor.get("/me?x=1&y=%2F")
    assert sent.status_code == 303 and sent.headers["location"].startswith("/admin/login?to=/me")
    page = visitor.get(sent.headers["location"].removeprefix("/admin"))
    assert page.status_code == 200
    found = re.search(r'href="([^"]*)">Sign in with Example &amp; Co\.</a>', page.text)
    assert found is not None and found[1] == "/admin/auth/example/start?to=/me%3Fx%3D1%26y%3D%252F"
    signed_in = Visitor(inbox_of(store, auth=ByButton()), "rita", accept="text/html")
    page = signed_in.get("/login?to=/requests/1")
    assert (
        "You are signed in to Approvals as Rita ( rita ) ." in plain(page.text)
        and 'href="/requests/1">Go on</a>' in page.text
    )
    assert "Sign out" not in page.text  # theirs is no session of ours


def test_where_others_sign_people_in_the_page_says_so() -> None:
    page = Visitor(inbox_of(), None, accept="text/html").get("/login")
    assert page.status_code == 200 and "You sign in elsewhere, before you come here" in plain(page.text)


GOOD = ("/", "/requests/1", "/requests/1?next=//x", "/a#b", "/?to=http://x", "/..a/b", "/a/...", "/a?b=../c", "/%2F")
BAD = (
    None, "", "x", "//evil.example", "/\\evil.example", "\\\\evil", "http://evil.example", "https:/x", "javascript:alert(1)",
    "/\t/evil.example", "/\n/evil", " /x", "/x y", "/\x00", "/é", "/a\\b", "///x", "/" + "a" * 2000, "/..", "/../x", "/a/../../x",
    "/%2e%2e/x", "/a/%2E./x", "/./x",
)  # fmt: skip


@pytest.mark.parametrize("path", GOOD)
def test_a_path_of_the_inbox_is_come_back_to(path: str) -> None:
    assert return_path(path) == path


@pytest.mark.parametrize("path", BAD)
def test_nothing_else_is_come_back_to(path: str | None) -> None:
    assert return_path(path) == "/"
    if path is not None:
        page = Visitor(inbox_of(), "rita", accept="text/html").get("/login", params={"to": path})
        assert 'href="/">Go on</a>' in page.text


# One's own sessions


def test_signing_out_ends_the_session_and_asks_for_the_form_of_a_page(desk: Desk) -> None:
    visitor = desk.signed_in()
    kept = dict(visitor.cookies)
    for form in ({}, {"csrf": "x"}):
        assert visitor.post("/logout", data=form).status_code == 403
    assert visitor.get("/logout").status_code == 405 and desk.sessions() == 1
    assert "Sign out" in plain(visitor.get("/").text) and "Log out" not in visitor.get("/").text  # one word for it
    token = field(visitor.get("/login").text, "csrf")
    answer = visitor.post("/logout", data={"csrf": token})
    assert (answer.status_code, answer.headers["location"], desk.sessions()) == (303, "/login?said=out", 0)
    assert NAME not in visitor.cookies and "You are signed out." in visitor.get("/login?said=out").text
    visitor.cookies = kept  # whoever has kept the cookie
    assert visitor.get("/me").status_code == 303
    assert visitor.post("/logout", data={}).status_code == 303  # once more is nothing


def keys_of(page: str) -> list[str]:
    """The sessions on the page, oldest first."""
    return re.findall(r'name="session" value="([^"]*)"', page)


def test_somebody_sees_their_sessions_and_signs_out_everywhere(desk: Desk) -> None:
    here, there, phone = desk.signed_in(), desk.signed_in(), desk.signed_in()
    run(desk.inbox.site.sessions.begin(OTTO))
    rows = {json.loads(each.text)["principal"]["id"]: each.key for each in desk.store.select_documents(SESSION)}
    page = here.get("/me").text
    keys, csrf = keys_of(page), field(page, "csrf")
    assert len(keys) == 3 and rows["otto"] not in keys
    assert re.findall(r"\(this browser\)|<li>", page) == ["<li>", "(this browser)", "<li>", "<li>"]
    for form, status in (
        ({"csrf": csrf, "session": rows["otto"]}, 404),  # another's session is nothing, whether there is one or not
        ({"csrf": csrf, "session": "x"}, 404),
        ({"csrf": csrf}, 400),
        ({"csrf": csrf, "session": keys}, 400),
        ({"session": keys[0]}, 403),
    ):
        assert here.post("/me/sign-out", data=form).status_code == status
    assert desk.sessions() == 4
    answer = here.post("/me/sign-out", data={"csrf": csrf, "everywhere": "yes"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?said=out")
    assert [each.get("/me").status_code for each in (here, there, phone)] == [303, 303, 303]
    assert [each.key for each in desk.store.select_documents(SESSION)] == [rows["otto"]]


def test_somebody_signs_out_of_another_browser_and_of_this_one(desk: Desk) -> None:
    here, there = desk.signed_in(), desk.signed_in()
    page = there.get("/me").text
    form = {"csrf": field(page, "csrf"), "session": keys_of(page)[0]}
    answer = there.post("/me/sign-out", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/me")
    assert there.post("/me/sign-out", data=form).status_code == 404
    assert (here.get("/me").status_code, there.get("/me").status_code) == (303, 200)
    answer = there.post("/me/sign-out", data={**form, "session": keys_of(page)[1]})
    assert answer.headers["location"] == "/login?said=out" and there.get("/me").status_code == 303
    assert desk.sessions() == 0


@pytest.mark.parametrize(
    ("scopes", "roles", "said"),
    [
        ((), ("lead",), "You are signed in, but you may not do anything here."),
        (("read",), (), "You have no role here."),
        (("read",), ("lead",), ""),
    ],
)
def test_somebody_without_a_role_is_told_so(scopes: tuple[str, ...], roles: tuple[str, ...], said: str) -> None:
    inbox = inbox_of(auth=ByHeader(Principal(id="rita", roles=roles), tenant="acme"), scopes=lambda who: scopes)
    visitor = Visitor(inbox, "rita", accept="text/html")
    page = visitor.get("/me")
    assert page.status_code == 200
    found = [each for each in ("You are signed in, but", "You have no role here.") if each in page.text]
    assert [each for each in found if not said.startswith(each)] == [] and said in page.text
    assert "Sign out where you have signed in" in page.text and "acme" in page.text
    csrf = {"x-csrf-token": "x"}
    assert visitor.post("/me/sign-out", data={"everywhere": "yes"}, headers=csrf).status_code == 403


def test_what_somebody_is_called_is_escaped() -> None:
    name = '<script>alert(1)</script>"\u202e'
    inbox = inbox_of(auth=ByHeader(Principal(id="rita", name=name, roles=("<b>",))), title="<i>A</i>")
    visitor = Visitor(inbox, "rita", accept="text/html")
    for path in ("/me", "/login", "/login?to=/%22%3E%3Cscript%3E"):
        page = visitor.get(path).text
        assert "<script>" not in page and "<b>" not in page and "<i>" not in page


def test_a_proxy_s_person_has_no_session_to_end() -> None:
    inbox = inbox_of()
    visitor = Visitor(inbox, "rita", accept="text/html")
    run_key = run(inbox.site.key())
    from phronomy.inbox.auth.identity import Identity
    from phronomy.inbox.security import csrf_token

    token = csrf_token(run_key, Identity(principal=RITA, via="header"), inbox.site.store.clock())
    assert visitor.post("/me/sign-out", data={"csrf": token, "everywhere": "yes"}).status_code == 409


def test_a_session_is_for_the_store_that_it_is_in() -> None:
    """The cookie of one inbox is nothing in another, also on the same machine."""
    mine, other = MemoryStore(), MemoryStore()
    visitor = Visitor(inbox_of(other), None, accept="text/html")
    visitor.cookies = {NAME: run(Sessions(mine).begin(RITA))}
    assert visitor.get("/me").status_code == 303


def test_whoever_comes_with_a_session_that_is_over_is_told_so(desk: Desk) -> None:
    visitor = desk.signed_in()
    desk.clock.now += 3_600
    sent = visitor.get("/runs?agent=desk")
    assert sent.headers["location"] == "/login?to=/runs%3Fagent%3Ddesk&said=ended"
    assert "Your session has ended. Sign in again" in visitor.get(sent.headers["location"]).text
    # Who signs out says so by themselves, and who was never here had no session.
    assert "Your session has ended" not in visitor.get("/login?said=out").text
    assert desk.visitor().get("/runs").headers["location"] == "/login?to=/runs"


# A form whose session has ended


def sent_too_late(desk: Desk, path: str, form: dict[str, Any], **headers: str) -> Any:
    """The answer to a form of somebody who has signed out in another tab."""
    visitor = desk.signed_in()
    csrf = field(visitor.get("/me").text, "csrf")
    run(desk.inbox.site.sessions.end_all("rita"))
    return visitor.post(path, data={"csrf": csrf, "digest": "d", "key": "k", **form}, headers=headers)


@pytest.mark.parametrize(
    ("path", "back"),
    [
        ("/requests/pend_1/decision?list=tool%3Dpay", "/requests/pend_1%3Flist%3Dtool%253Dpay"),
        ("/requests/pend_1/review", "/requests/pend_1"),
        ("/requests/pend_1/grant", "/requests/pend_1/grant"),
        ("/requests/pend%3F1%23/review", "/requests/pend%253F1%2523"),
        ("/batch", "/"),
        ("/grants/grant_1/revoke", "/grants"),
        ("/me/sign-out", "/me"),
    ],
)
def test_what_was_typed_is_shown_again_and_the_way_leads_back(desk: Desk, path: str, back: str) -> None:
    answer = sent_too_late(desk, path, {"answer": "reject", "reason": "the <b>order</b> & all"})
    assert answer.status_code == 401
    assert "the &lt;b&gt;order&lt;/b&gt; &amp; all</textarea>" in answer.text and "<b>order" not in answer.text
    assert f'href="/login?to={back}">Sign in and come back</a>' in answer.text
    assert "Bearer" not in answer.text and "token" not in plain(answer.text)


def test_an_edit_is_shown_again_field_by_field(desk: Desk) -> None:
    answer = sent_too_late(desk, "/requests/pend_1/edit", {"f/amount": "12", "f/note": "for\nACME", "other": "hidden"})
    assert (
        "/amount: 12\n/note: for\nACME</textarea>" in unescape(answer.text) and "hidden</textarea>" not in answer.text
    )


@pytest.mark.parametrize("letters", [60_000, 70_000])
def test_a_text_that_is_too_long_is_left_out_with_a_note(desk: Desk, letters: int) -> None:
    answer = sent_too_late(desk, "/requests/pend_1/decision", {"reason": "x" * letters})
    assert answer.status_code == 401 and "Sign in and come back" in answer.text
    shown = (f">\n{'x' * letters}</textarea>" in answer.text, "is too long to be shown here" in answer.text)
    assert shown == (letters < 65_536, letters > 65_536)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_what_another_site_sends_is_not_shown(desk: Desk, site: str) -> None:
    answer = sent_too_late(desk, "/requests/pend_1/decision", {"reason": "call my sister"}, **{"sec-fetch-site": site})
    assert answer.status_code == 401 and "sister" not in answer.text


def test_a_form_of_the_session_before_is_shown_again_and_decides_nothing(desk: Desk) -> None:
    pending = asked(desk.store)
    before, now = desk.signed_in(), desk.signed_in()
    form = {
        "csrf": field(before.get("/me").text, "csrf"),
        "answer": "reject",
        "reason": "no receipt",
        "digest": pending.digest,
        "key": "k" * 32,
    }
    answer = now.post(f"/requests/{pending.id}/decision", data=form)
    assert answer.status_code == 403 and "no receipt</textarea>" in answer.text
    assert f'href="/requests/{pending.id}">Back to the page of the form</a>' in answer.text
    assert desk.store.request(pending.id).decision is None
