"""What the pages and the API refuse alike: batches, scopes, limits, tokens on pages, and answers that go on for too long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from inbox_api_scenes import API, ByToken, api_of, bearer, problem
from inbox_scenes import OTTO, RITA, ByHeader, Visitor, asked, inbox_of, run
from page_reader import read
from page_scenes import Pages
from starlette.requests import Request
from test_inbox_api import calm

from phronomy import (
    Approval,
    Breakpoint,
    MemoryStore,
    OutcomeUnknown,
    PendingApproval,
    Principal,
    Reject,
    interrupt,
    tool,
)
from phronomy.inbox import Identity, Inbox, service, serving
from phronomy.inbox.api import audit
from phronomy.inbox.auth.identity import SCOPES
from phronomy.inbox.auth.limits import Limits
from phronomy.inbox.oidc import attempts
from phronomy.inbox.pages.table import PAGES
from phronomy.inbox.routes import Route
from phronomy.inbox.security import check_csrf, csrf_token
from phronomy.inbox.visit import Problem
from phronomy.stores.rows import Append, Branch, BranchFilter

DAY = 86_400.0


def path_for(route: Route, item: PendingApproval) -> str:
    return route.path.replace("{id}", item.id).replace("{name}", "x").replace("{secret}", "x")


# Batches


def again(pages: Pages, body: Any, **options: Any) -> PendingApproval:
    """The request in the place of one whose call has failed, or of which nobody knows what it did."""
    item = pages.asked(**options)
    pages.decided(item, "approve")
    pages.body = body
    pages.carry_out()
    (found,) = pages.store.pending()
    return found.approval


def failed(pages: Pages) -> PendingApproval:
    def fail() -> None:
        raise ValueError("the bank is closed")

    return again(pages, fail, on_failure="human")


def unknown(pages: Pages) -> PendingApproval:
    def lose() -> None:
        raise OutcomeUnknown("the line went dead")

    return again(pages, lose)


def question(pages: Pages) -> PendingApproval:
    @tool
    def ask(order: int) -> str:
        """Ask."""
        return str(interrupt("Which way shall the money go?"))

    return pages.waits(pages.of(ask, {"order": 1}))


def stopped(pages: Pages) -> PendingApproval:
    @tool
    def pay(order: int) -> str:
        """Pay."""
        return "paid"

    return pages.waits(pages.of(pay, {"order": 1}, breakpoints=[Breakpoint("tool", tools=["pay"])]))


def risky(pages: Pages) -> PendingApproval:
    return pages.waits(pages.agent(risk="extreme"))


@pytest.mark.parametrize("made", [failed, unknown, question, stopped, risky], ids=lambda made: str(made.__name__))
@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_a_batch_takes_nothing_that_needs_a_look_of_its_own(made: Any, answer: str) -> None:
    pages = Pages()
    item = made(pages)
    before = list(pages.store.audit())
    one = {"id": item.id, "digest": item.digest}
    body = {"answer": answer, "reason": "no", "requests": [one]}
    api = api_of(pages.store)
    (result,) = api.send("/decisions:batch", body).json()["results"]
    assert result["problem"]["type"] == "/problems/refused" and result["decision"] is None
    assert problem(api.send("/decisions:batch", {**body, "atomic": True})) == (409, "refused")
    csrf = pages.visitor().get(f"{API}/me").json()["csrf"]
    form = {**one, "answer": answer, "reason": "no", "key": "k", "csrf": csrf}
    page = pages.visitor().post("/batch", data=form)
    assert (page.status_code == 200 and "by itself" in page.text) or "more than a yes or a no" in page.text
    assert pages.store.request(item.id).status == "pending" and list(pages.store.audit()) == before


# Scopes


PRIVATE = [each for each in PAGES if each.scopes]


@pytest.mark.parametrize(
    ("route", "scope"),
    [(each, scope) for each in PRIVATE for scope in each.scopes],
    ids=lambda each: f"{each.method} {each.path}" if isinstance(each, Route) else each,
)
def test_no_page_answers_without_its_scope(route: Route, scope: Any) -> None:
    store = MemoryStore()
    item = asked(store, 10421042)
    visitor = Visitor(inbox_of(store, auth=ByHeader(RITA, scopes=frozenset(SCOPES) - {scope})))
    csrf = visitor.get(f"{API}/me").json()["csrf"]
    body = {"data": {"csrf": csrf, "digest": item.digest, "answer": "approve"}} if route.method == "POST" else {}
    answer = visitor.request(route.method, path_for(route, item), **body)
    # A page of one's own steps needs less, and there are none of one's own here.
    assert answer.status_code == (200 if route.own else 403)
    assert item.digest not in answer.text and "10421042" not in answer.text
    assert store.request(item.id).status == "pending"


def test_whoever_may_not_read_is_shown_no_request_by_any_way_to_decide_grant_or_operate() -> None:
    reads = {
        "/requests/{id}/review",
        "/requests/{id}/edit",
        "/requests/{id}/decision",
        "/requests/{id}/grant",
        "/batch",
        "/chat",
        "/chat/{thread}",
        "/chat/{thread}/talk",
        "/runs/{id}/cancel",
        "/runs/{id}/pause",
        "/runs/{id}/step",
        "/runs/{id}/checkpoints/{checkpoint}/fork",
        "/runs/{id}/checkpoints/{checkpoint}/restore",
    }
    assert {each.path for each in PAGES if "read" in each.scopes and each.scope != "read"} == reads


@pytest.mark.parametrize("scopes", [("decide", "grant"), ("decide", "grant", "read")])
def test_the_digest_that_counts_now_is_told_to_those_who_may_read(scopes: tuple[str, ...]) -> None:
    store = MemoryStore()
    item, plain = asked(store), calm(store, 1)
    api = api_of(store, tokens=ByToken(scopes=scopes))
    answers = [
        api.decide(item, "approve", digest="x"),
        api.decide(item, "edit", digest="x", args='{"order": 1}'),
        api.send("/grants", {"request": item.id, "digest": "x"}),
        api.send(
            "/decisions:batch", {"answer": "approve", "requests": [{"id": plain.id, "digest": "x"}], "atomic": True}
        ),
    ]
    assert [problem(each) for each in answers] == [(409, "digest-mismatch")] * 4
    told = [each.json().get("digest") for each in answers]
    assert told == ([item.digest] * 3 + [plain.digest] if "read" in scopes else [None] * 4)
    assert "digest" in answers[0].json()["detail"] or answers[0].json()["pending_id"] == item.id


# Limits


def test_the_pages_and_the_api_count_as_one_and_a_batch_counts_each_of_its_requests() -> None:
    store = MemoryStore()
    items = [calm(store, number) for number in range(6)]
    inbox = inbox_of(store, limits=Limits(store, decisions=4))
    visitor = Visitor(inbox)
    csrf = visitor.get(f"{API}/me").json()["csrf"]

    def page(path: str, *given: PendingApproval) -> int:
        form = {"csrf": csrf, "answer": "approve", "key": "k", "digest": [each.digest for each in given]}
        answer = visitor.post(path, data={**form, **({"id": [each.id for each in given]} if path == "/batch" else {})})
        return int(answer.status_code)

    def api(*given: PendingApproval) -> tuple[int, str]:
        body = {"answer": "approve", "requests": [{"id": each.id, "digest": each.digest} for each in given]}
        answer = visitor.post(
            f"{API}/decisions:batch", json=body, headers={"x-csrf-token": csrf, "idempotency-key": given[0].id}
        )
        return problem(answer) if answer.status_code >= 400 else (200, "")

    assert page("/batch", *items[:2]) == 200
    assert page(f"/requests/{items[2].id}/decision", items[2]) == 303
    assert page("/batch", *items[3:5]) == 429 and api(*items[3:5]) == (429, "slow-down")
    assert api(items[3]) == (200, "")
    assert page(f"/requests/{items[4].id}/decision", items[4]) == 429 and api(items[4]) == (429, "slow-down")
    assert api(*items[:5]) == (422, "invalid")  # there would never be room for so many
    assert [store.request(each.id).status == "pending" for each in items] == [False] * 4 + [True] * 2


def test_what_somebody_tries_who_may_not_decide_is_counted() -> None:
    store = MemoryStore()
    item = asked(store, gate=Approval(by="nobody"))
    visitor = Visitor(inbox_of(store, limits=Limits(store, decisions=2)))
    form: dict[str, Any] = {"csrf": visitor.get(f"{API}/me").json()["csrf"], "answer": "approve", "digest": item.digest}
    review = visitor.post(f"/requests/{item.id}/review", data=form).text
    sent = read(review).one("form", action=f"/requests/{item.id}/decision").filled()
    answers = [visitor.post(f"/requests/{item.id}/decision", data=sent).status_code for _ in range(4)]
    assert answers == [403, 403, 429, 429] and len(list(store.audit())) == 2


def test_looks_at_an_answer_and_grants_are_counted() -> None:
    store = MemoryStore()
    item = asked(store, gate=Approval(standing=True))
    inbox = inbox_of(store, limits=Limits(store, checks=2, grants=2))
    visitor = Visitor(inbox)
    csrf = visitor.get(f"{API}/me").json()["csrf"]
    headers = {"x-csrf-token": csrf, "idempotency-key": "k"}
    form = {"csrf": csrf, "answer": "approve", "digest": item.digest}
    check = {"digest": item.digest, "args": "{}"}
    assert visitor.post(f"/requests/{item.id}/review", data=form).status_code == 200
    assert visitor.post(f"{API}/requests/{item.id}/check", json=check, headers=headers).status_code == 200
    assert visitor.post(f"/requests/{item.id}/review", data=form).status_code == 429
    assert visitor.post(f"/requests/{item.id}/edit", data=form).status_code == 429
    assert problem(visitor.post(f"{API}/requests/{item.id}/check", json=check, headers=headers)) == (429, "slow-down")
    like = {"request": item.id, "digest": item.digest}
    made = visitor.post(f"{API}/grants", json=like, headers=headers)
    assert made.status_code == 201
    path = f"/grants/{made.json()['id']}"
    assert visitor.post(f"{path}/revoke", data={"csrf": csrf}).status_code == 303
    tag = {**headers, "if-match": made.json()["etag"]}
    assert problem(visitor.request("DELETE", API + path, headers=tag)) == (429, "slow-down")
    assert problem(visitor.post(f"{API}/grants", json=like, headers=headers)) == (429, "slow-down")
    assert visitor.post(f"/requests/{item.id}/grant", data=form).status_code == 429


# Who uses which way


@pytest.mark.parametrize("route", PAGES, ids=lambda route: f"{route.method} {route.path}")
def test_a_token_is_for_the_api_and_for_no_page(route: Route) -> None:
    store = MemoryStore()
    item = calm(store, 1)
    api = api_of(store)
    form = {"digest": item.digest, "answer": "approve", "key": "k", "id": item.id}
    body = {"data": form} if route.method == "POST" else {}
    answer = Visitor(api.inbox, None, **bearer("rita")).request(route.method, path_for(route, item), **body)
    if route.path in {"/static/{name}", "/problems/{name}"}:
        assert answer.status_code == 404  # there is none of this name
    else:
        assert answer.status_code == 403 and "A token is for the API" in answer.text
    assert store.request(item.id).status == "pending" and not list(store.audit())


def test_the_bearer_of_another_issuer_may_use_the_pages_if_an_auth_of_the_application_knows_it() -> None:
    class Ours:
        async def identify(self, request: Request) -> Identity | None:
            known = request.headers.get("authorization") == "Bearer ours"
            return Identity(principal=RITA, via="ours") if known else None

    inbox = inbox_of(auth=Ours())
    assert Visitor(inbox, None, authorization="Bearer ours").get("/").status_code == 200


# Forms


KEY = b"k" * 32


def test_the_token_of_a_form_is_of_one_person() -> None:
    people = [
        Identity(principal=Principal(id=id, kind=kind), tenant=tenant, via=via)
        for id, tenant, via, kind in (
            ("x", None, "a/b", "human"),
            ("/x", "b", "a", "human"),
            ("b/x", None, "a", "human"),
            ("x", "b", "a", "human"),
            ("x", "b", "a", "service"),
        )
    ]  # fmt: skip
    assert len({csrf_token(KEY, each, 0.0) for each in people}) == len(people)
    session = Identity(principal=RITA, via="session", session="s")
    assert csrf_token(KEY, session, 0.0) == csrf_token(KEY, session, 5 * DAY)


def test_the_token_of_somebody_without_a_session_counts_today_and_the_day_after() -> None:
    who = Identity(principal=RITA, via="proxy")
    given = csrf_token(KEY, who, 100 * DAY + 5)
    for now in (100 * DAY + 5, 101 * DAY - 1, 102 * DAY - 1):
        check_csrf(KEY, who, given, now)
    for now in (100 * DAY - 1, 102 * DAY):
        with pytest.raises(Problem):
            check_csrf(KEY, who, given, now)
    with pytest.raises(Problem):
        check_csrf(KEY, Identity(principal=OTTO, via="proxy"), given, 100 * DAY + 5)


@pytest.mark.parametrize("rest", ["a[b]", "a b@", "a/b", "\u00e9", "0" * 31 + ":"])
def test_a_cookie_whose_name_is_none_of_ours_is_left_alone(rest: str) -> None:
    cookies = f"p-{rest}=1; p-{'0' * 32}=1"
    request = Request({"type": "http", "headers": [(b"cookie", cookies.encode("latin-1"))]})
    assert attempts.superfluous(request, "p-", KEY, 0.0) == ["p-" + "0" * 32]


# What is sent


async def answered(
    inbox: Inbox, path: str, *, method: str = "GET", on: Any = None, **headers: str
) -> tuple[int, list[Any]]:
    """The status and the messages of an answer, each of which `on` gets to see."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False} if method == "POST" else await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)
        if on is not None:
            await on(sent)

    given = {"host": "inbox.example", "sec-fetch-site": "same-origin", **headers}
    address, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1", "method": method,
        "scheme": "https", "path": address, "raw_path": address.encode(), "root_path": "", "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("192.0.2.7", 5000), "server": ("inbox.example", 443),
    }  # fmt: skip
    await inbox(scope, receive, send)
    return sent[0]["status"], sent


@pytest.mark.parametrize("length", ["9" * 5_000, "9" * 19, "-1", "1e3", "\u00b2", ""])
def test_a_length_that_cannot_be_is_refused(length: str) -> None:
    headers = {"content-length": length, "content-type": "application/x-www-form-urlencoded"}
    status, _ = run(answered(inbox_of(), "/start", method="POST", **headers))
    assert status == 400


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_an_export_is_cut_off_when_the_session_ends(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_BATCH", 2)
    store = MemoryStore()
    for number in range(7):
        item = asked(store, number)
        store.decide(item.id, Reject(), by="rita", digest=item.digest)
    inbox = inbox_of(store)
    sessions = inbox.site.sessions

    async def work(*, ends: bool) -> list[Any]:
        secret = await sessions.begin(RITA)

        async def on(sent: list[Any]) -> None:
            if ends and sum(each["type"] == "http.response.body" for each in sent) == 2:
                await sessions.end_all("rita")

        _, sent = await answered(inbox, f"{API}/audit?format={form}", on=on, cookie=f"{sessions.cookie}={secret}")
        return sent

    whole, cut = run(work(ends=False)), run(work(ends=True))
    assert whole[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert len(cut) == 3 and cut[1:] == whole[1:3]
    assert cut[-1]["more_body"]  # it has no end, so that nobody takes it for the whole trail


def test_half_a_request_does_not_keep_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEADERS", 0.05)

    async def work() -> list[bytes]:
        listening = serving.listen("127.0.0.1", 0)
        server = serving.Server(inbox_of())
        task = asyncio.ensure_future(server.serve(sockets=[listening]))
        port = listening.getsockname()[1]
        line = b"GET /healthz HTTP/1.1\r\nHost: a\r\n"
        found = []
        for begun in (b"", line + b"X-A: ", line + b"\r\n" + line):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(begun)
            found.append(await asyncio.wait_for(reader.read(), 30))  # until it is closed
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(line + b"X-A: " + b"a" * 2 * serving.HEADER_BYTES + b"\r\n\r\n")
        found.append(await asyncio.wait_for(reader.readline(), 30))
        writer.close()
        server.stop()
        await task
        return found

    nothing, half, answered_once, large = run(work())
    assert nothing == half == b"" and answered_once.count(b"HTTP/1.1 200") == 1 and b"400" in large


# Reading


class Counting(MemoryStore):
    """A store that counts the branches that it gives."""

    given = 0

    def select_branches(self, wanted: BranchFilter) -> list[Branch]:
        found = super().select_branches(wanted)
        self.given += len(found)
        return found


def many_runs(count: int) -> Counting:
    store = Counting()
    for number in range(count):
        branch = Branch(id=f"r{number}", run_id=f"r{number}", thread_id=None, agent="desk" if number % 2 else "rare")
        store.create(branch, Append(branch_id=branch.id, seq=0, status="failed"), exclusive=False)
    return store


def test_a_page_of_runs_reads_no_more_than_it_shows() -> None:
    """However many there are: in the API some rows more, and on the page as many as are counted."""
    store = many_runs(1_000)
    api = api_of(store)
    store.given = 0
    page = api.read("/runs", limit=5)
    assert [each["id"] for each in page["items"]] == [f"r{number}" for number in range(999, 994, -1)]
    again = api.read("/runs", limit=5, cursor=page["next"])
    assert [each["id"] for each in again["items"]] == [f"r{number}" for number in range(994, 989, -1)]
    assert store.given <= 20
    shown = Visitor(inbox_of(store)).get("/runs")
    assert "500+" in shown.text and "r999" in shown.text and store.given <= 1_000


def test_every_run_is_on_one_page_whatever_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where few are wanted, so that a page ends before it is full, and where the run is deleted at which a page ended."""
    monkeypatch.setattr(service, "_BRANCHES", 10)
    monkeypatch.setattr(service, "_SCANNED", 40)
    store = many_runs(401)
    for limit in (3, 50, 200):
        found = api_of(store).pages("/runs", agent="rare", limit=limit)
        assert [each["id"] for each in found] == [f"r{number}" for number in range(400, -1, -2)]
    assert api_of(store).pages("/runs", agent="none") == [] and api_of(store).pages("/runs", status="running") == []
    store = many_runs(30)
    api = api_of(store)
    first = api.read("/runs", limit=10)
    store.remove({"r20": 0}, {})
    rest = api.read("/runs", limit=100, cursor=first["next"])
    assert [each["id"] for each in rest["items"]] == [f"r{number}" for number in range(19, -1, -1)] and rest[
        "next"
    ] is None


def test_somebody_who_looks_too_often_waits() -> None:
    """Each person by themself, and pages and the API as one. What changes something has limits of its own."""
    store = MemoryStore()
    inbox = inbox_of(store, limits=Limits(store, reads=3))
    item = asked(store)
    rita, otto = Visitor(inbox), Visitor(inbox, "otto")
    assert [rita.get(path).status_code for path in ("/", "/runs", f"{API}/requests", "/", f"{API}/me")] == [
        200,
        200,
        200,
        429,
        429,
    ]
    assert problem(rita.get(f"{API}/requests"))[1] == "slow-down"
    assert otto.get("/").status_code == 200 and rita.get("/healthz").status_code == 200
    assert rita.post(f"/requests/{item.id}/decision", data={"x": "y"}).status_code == 403  # no form of a page
