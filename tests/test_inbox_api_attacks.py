"""Attacks on the API: on its cursors, its tenants, its bodies, its headers, and on every route by whoever may not."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from inbox_api_scenes import API, Api, ByToken, api_of, bearer, inbox_by_token, problem
from inbox_scenes import OTTO, RITA, Visitor, asked, desk, inbox_of, run
from places import Place

from phronomy import MemoryStore, Principal
from phronomy.inbox import visit
from phronomy.inbox.api.events import Watching
from phronomy.inbox.api.table import API as TABLE
from phronomy.inbox.auth.identity import SCOPES
from phronomy.inbox.auth.limits import Limits
from phronomy.inbox.routes import Route

# Cursors


def test_a_cursor_counts_for_one_list_one_person_and_its_filters_alone() -> None:
    store = MemoryStore()
    for number in range(4):
        asked(store, number)
        asked(store.for_tenant("acme"), number)
    eve = Principal(id="eve", roles=("lead",))
    acme = Principal(id="rita", kind="service")
    api = api_of(store, tokens=ByToken(RITA, eve, acme, tenants={"eve": "acme"}))
    rita = api.as_("rita")
    cursor = rita.read("/requests", limit=1)["next"]
    assert len(rita.read("/requests", limit=2, cursor=cursor)["items"]) == 2  # the limit may change
    crossed: list[tuple[Api, str, dict[str, Any]]] = [
        (rita, "/requests", {"tool": "refund"}),
        (rita, "/requests", {"order": "newest"}),
        (rita, "/audit", {}),
        (rita, "/runs", {}),
        (api.as_("eve"), "/requests", {}),
    ]
    for who, path, params in crossed:
        answer = who.get(API + path, params={**params, "cursor": cursor})
        assert problem(answer) == (400, "bad-cursor"), (path, params)


def test_a_changed_cursor_is_refused() -> None:
    store = MemoryStore()
    for number in range(3):
        asked(store, number)
    api = api_of(store)
    cursor = api.read("/requests", limit=1)["next"]
    raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    flipped = [raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :] for place in range(len(raw))]
    texts = [
        base64.urlsafe_b64encode(each).decode().rstrip("=") for each in [*flipped, raw[:16], raw[:5], b"", raw + b"x"]
    ]
    # Other texts of the same value: padded, in the other alphabet, with bits that do not count.
    for text in [*texts, cursor + "=", cursor + "\n", "", "a", "é", cursor[:-1] + "\x00", "..", cursor * 20]:
        answer = api.get(f"{API}/requests", params={"cursor": text})
        assert answer.status_code in (400, 422) and problem(answer)[1] in ("bad-cursor", "invalid"), text
    assert api.get(f"{API}/requests", params=[("cursor", cursor), ("cursor", cursor)]).status_code == 400


# Tenants


def test_what_is_of_another_tenant_is_not_found(place: Place) -> None:
    store, other = place.open(), place.open(tenant="acme")
    item = asked(other, 1)
    run_id = other.request(item.id).run_id
    decided = asked(other, 2)
    grant = other.grant_like(item.id, digest=item.digest, by="eve", scope="tenant", uses=2)
    eve = Principal(id="eve", roles=("lead",))
    agent = desk(other)
    api = api_of(store, tokens=ByToken(RITA, eve, tenants={"eve": "acme"}), agents=agent)
    assert api.as_("eve").decide(decided, "approve", key="k").status_code == 200
    there = [f"/requests/{item.id}", f"/requests/{item.id}/decision", f"/requests/{decided.id}", f"/grants/{grant.id}"]
    there += [f"/runs/{run_id}", f"/runs/{run_id}/timeline", f"/runs/{run_id}/messages"]
    for path in there:
        assert api.as_("eve").get(API + path).status_code == 200, path
        mine, nobodys = api.get(API + path), api.get(API + path.replace("_", "_x", 1))
        assert problem(mine) == problem(nobodys) == (404, "not-found"), path
        # Nothing tells the one from the other: not the text either.
        assert {**mine.json(), "instance": ""} == {**nobodys.json(), "instance": ""}
    by_key = f"/requests/{decided.id}/decision/by-key/k"
    assert api.as_("eve").read(by_key)["recorded"] is True
    assert api.read(by_key) == {"recorded": False, "decision": None}
    for path in ("/requests", "/audit", "/runs", "/grants"):
        assert api.read(path)["items"] == []
    assert api.get(f"{API}/audit?format=ndjson").text == "" and api.read("/requests/count")["count"] == 0
    check = {"digest": item.digest, "args": "{}"}
    like = {"request": item.id, "digest": item.digest}
    assert problem(api.decide(item, "approve")) == (404, "not-found")
    assert problem(api.send(f"/requests/{item.id}/check", check)) == (404, "not-found")
    assert problem(api.send("/grants", like)) == (404, "not-found")
    assert problem(api.request("DELETE", f"{API}/grants/{grant.id}", headers={"if-match": "x"})) == (404, "not-found")
    assert problem(api.send(f"/runs/{run_id}/cancel", {})) == (404, "not-found")
    assert problem(api.send(f"/runs/{run_id}/messages", {"text": "Refund it."})) == (404, "not-found")
    assert problem(api.send("/runs", {"agent": "desk", "input": "Refund order 1"})) == (422, "invalid")
    several = {"answer": "approve", "requests": [{"id": item.id, "digest": item.digest}]}
    assert problem(api.send("/decisions:batch", {**several, "atomic": True})) == (404, "not-found")
    results = api.send("/decisions:batch", several).json()["results"]
    assert [each["problem"]["status"] for each in results] == [404]
    assert other.request(item.id).status == "pending" and other.grants()[0].revoked is None
    assert len(list(other.audit())) == 1 and not list(store.audit()) and not store.branches()


# Bodies


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"answer":"approve","answer":"reject","digest":"x"}', (400, "bad-request")),
        (b'{"answer":"respond","digest":"x","content":NaN}', (400, "bad-request")),
        (b'{"answer":"respond","digest":"x","content":Infinity}', (400, "bad-request")),
        (b'{"answer":"respond","digest":"x","content":1e999}', (400, "bad-request")),
        (b'{"answer":"respond","digest":"x","content":' + b"[" * 100 + b"]" * 100 + b"}", (400, "bad-request")),
        (b"\xff\xfe{}", (400, "bad-request")),
        (b"", (400, "bad-request")),
        (b"[]", (422, "invalid")),
        (b"null", (422, "invalid")),
        (b'{"answer":"approve","digest":5}', (422, "invalid")),
        (b'{"answer":"approve","digest":"x","__proto__":{}}', (422, "invalid")),
        (b'{"answer":"edit","digest":"x","args":{"order":1}}', (422, "invalid")),
    ],
)
def test_a_body_is_read_strictly(body: bytes, expected: tuple[int, str]) -> None:
    store = MemoryStore()
    item = asked(store)
    headers = {"content-type": "application/json", "idempotency-key": "k"}
    answer = api_of(store).post(f"{API}/requests/{item.id}/decision", content=body, headers=headers)
    assert problem(answer) == expected
    assert store.request(item.id).status == "pending"


@pytest.mark.parametrize("args", ['{"order":1,"order":2}', '{"order":NaN}', "{", "[" * 90, '{"order":1}}', ""])
def test_edited_arguments_are_read_strictly(args: str) -> None:
    store = MemoryStore()
    item = asked(store)
    answer = api_of(store).decide(item, "edit", args=args)
    assert problem(answer) == (422, "invalid-edit") and answer.json()["errors"]
    assert store.request(item.id).status == "pending"


def test_a_body_of_another_type_is_refused() -> None:
    store = MemoryStore()
    item = asked(store)
    body = json.dumps({"answer": "approve", "digest": item.digest}).encode()
    for media in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        headers = {"content-type": media, "idempotency-key": "k"}
        answer = api_of(store).post(f"{API}/requests/{item.id}/decision", content=body, headers=headers)
        assert problem(answer) == (415, "wrong-type"), media
    headers = {"content-type": "application/json; charset=utf-8", "idempotency-key": "k"}
    assert api_of(store).post(f"{API}/requests/{item.id}/decision", content=body, headers=headers).status_code == 200


def test_a_body_that_is_too_large_is_not_read() -> None:
    store = MemoryStore()
    item = asked(store)
    api = api_of(store, max_body=1000)
    sent = {"answer": "respond", "digest": item.digest, "content": "x" * 2000}
    assert problem(api.send(f"/requests/{item.id}/decision", sent)) == (413, "too-large")

    async def pieces() -> Any:  # without a length
        for _ in range(20):
            yield b" " * 100

    headers = {"content-type": "application/json", "idempotency-key": "k"}
    answer = api.post(f"{API}/requests/{item.id}/decision", content=pieces(), headers=headers)
    assert problem(answer) == (413, "too-large")


def test_a_body_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visit, "SECONDS", 0.01)
    store = MemoryStore()
    item = asked(store)
    api = api_of(store)

    async def slow() -> Any:
        yield b"{"
        await asyncio.Event().wait()

    headers = {"content-type": "application/json", "idempotency-key": "k"}
    answer = api.post(f"{API}/requests/{item.id}/decision", content=slow(), headers=headers)
    assert problem(answer) == (408, "timed-out") and answer.headers["connection"] == "close"


# Headers


def test_keys_that_are_none_are_refused() -> None:
    store = MemoryStore()
    item = asked(store)
    api = api_of(store)
    for key in ("k" * 256, 'a"b', "a\\b", '"', '""', "é".encode()):
        assert problem(api.decide(item, "approve", key=key))[0] == 400, key  # type: ignore[arg-type]
    assert problem(api.decide(item, "approve", key=" ")) == (400, "key-missing")
    several = [("idempotency-key", "a"), ("idempotency-key", "b")]
    body = {"answer": "approve", "digest": item.digest}

    async def twice() -> Any:
        import httpx2

        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=api.inbox), base_url="https://x") as client:
            headers = httpx2.Headers([*bearer("rita").items(), *several])
            return await client.post(f"{API}/requests/{item.id}/decision", json=body, headers=headers)

    assert problem(run(twice())) == (400, "bad-request")
    assert api.decide(item, "approve", key="k" * 255).status_code == 200


def test_a_page_needs_to_show_that_it_is_ours() -> None:
    store = MemoryStore()
    item = asked(store)
    body = {"answer": "approve", "digest": item.digest}
    headers = {"idempotency-key": "k"}
    browser = Visitor(inbox_of(store))
    path = f"{API}/requests/{item.id}/decision"
    assert problem(browser.post(path, json=body, headers=headers)) == (403, "cross-site")  # no X-CSRF-Token
    others = Visitor(browser.inbox, "otto").get(f"{API}/me").json()["csrf"]
    assert problem(browser.post(path, json=body, headers={**headers, "x-csrf-token": others})) == (403, "cross-site")
    mine = {**headers, "x-csrf-token": browser.get(f"{API}/me").json()["csrf"]}
    for site in ("cross-site", "same-site", "none"):
        answer = browser.post(path, json=body, headers={**mine, "sec-fetch-site": site})
        assert problem(answer) == (403, "cross-site"), site
    del browser.headers["sec-fetch-site"]
    assert problem(browser.post(path, json=body, headers=mine)) == (403, "cross-site")  # neither header
    for origin in ("null", "https://evil.example", "http://inbox.example"):
        assert problem(browser.post(path, json=body, headers={**mine, "origin": origin})) == (403, "cross-site")
    assert store.request(item.id).status == "pending"
    assert browser.post(path, json=body, headers={**mine, "origin": "https://inbox.example"}).status_code == 200


def test_a_token_and_a_cookie_together_are_refused() -> None:
    inbox = inbox_of(MemoryStore())
    cookie = inbox.site.sessions.cookie
    headers = {"authorization": "Bearer phr_x_y", "cookie": f"{cookie}=z"}
    assert problem(Visitor(inbox).get(f"{API}/me", headers=headers)) == (400, "bad-request")
    # A token that is none of ours does not let the other ways in.
    assert problem(Visitor(inbox).get(f"{API}/me", headers={"authorization": "Bearer phr_x"})) == (401, "not-signed-in")


def test_a_link_to_the_next_page_never_names_the_host_of_the_client() -> None:
    store = MemoryStore()
    asked(store, 1), asked(store, 2)
    for host in ("evil.example", "evil.example/a?b=", "[", "a:b:c"):
        answer = api_of(store).get(f"{API}/requests?limit=1&text=refund%20%3E", headers={"host": host})
        assert answer.status_code == 200 and "link" not in answer.headers
        link = api_of(store).get(f"{API}/requests?limit=1&text=refund%20", headers={"host": host}).headers["link"]
        assert link.startswith(f"<{API}/requests?limit=1&text=refund+&cursor=") and "evil" not in link


def test_somebody_who_decides_all_the_time_is_asked_for_patience() -> None:
    store = MemoryStore()
    item = asked(store)
    api = api_of(store, limits=Limits(store, decisions=2))
    for _ in range(2):
        assert problem(api.decide(item, "approve", digest="x")) == (409, "digest-mismatch")
    busy = api.decide(item, "approve")
    assert problem(busy) == (429, "slow-down") and int(busy.headers["retry-after"]) > 0
    assert store.request(item.id).status == "pending"
    assert api.as_("otto").decide(item, "approve").status_code == 200


# Every route


def address(route: Route) -> str:
    """An address of a route."""
    return route.path.replace("{key:path}", "k").replace("{id}", "id_1")


def call(who: Api, route: Route) -> Any:
    body = {"json": {}} if route.method == "POST" else {}
    return who.request(route.method, address(route), headers={"idempotency-key": "k", "if-match": "x"}, **body)


PRIVATE = [each for each in TABLE if not each.public]


@pytest.mark.parametrize("route", PRIVATE, ids=lambda route: f"{route.method} {route.path}")
def test_no_route_answers_without_a_login(route: Route) -> None:
    answer = call(api_of(MemoryStore()).as_(None), route)
    assert problem(answer) == (401, "not-signed-in") and answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("route", "scope"),
    [(each, scope) for each in PRIVATE for scope in each.scopes],
    ids=lambda each: f"{each.method} {each.path}" if isinstance(each, Route) else each,
)
def test_no_route_answers_without_its_scope(route: Route, scope: str) -> None:
    others = frozenset(SCOPES) - {scope}
    # Whether the way to sign in leaves the scope out, or the inbox does not give it to this person.
    for tokens, given in ((ByToken(scopes=others), SCOPES), (ByToken(), others)):
        inbox = inbox_by_token(MemoryStore(), tokens, scopes=lambda _, given=given: given)
        answer = call(Api(inbox), route)
        if route.own:  # what is one's own needs less, and there is nothing of one's own here
            assert (answer.status_code, answer.json()["items"]) == (200, [])
        else:
            assert problem(answer) == (403, "forbidden") and answer.json()["scope"] == scope


@pytest.mark.parametrize("route", PRIVATE, ids=lambda route: f"{route.method} {route.path}")
def test_no_route_shows_another_tenant_anything(route: Route) -> None:
    store = MemoryStore()
    item = asked(store, 1)
    store.decide(asked(store, 2).id, _approve(), by="rita", digest=store.pending()[1].approval.digest)
    run_id = store.request(item.id).run_id
    grant = store.grant_like(item.id, digest=item.digest, by="rita", uses=3, scope="tenant")
    api = api_of(store, tokens=ByToken(OTTO, tenants={"otto": "acme"}), agents=desk(store)).as_("otto")
    api.inbox.site.kept(Watching).close()  # a stream would not end
    for id in (item.id, run_id, grant.id):
        path = address(route).replace("id_1", id)
        body = {"json": {"digest": item.digest, "answer": "approve", "args": "{}"}} if route.method == "POST" else {}
        answer = api.request(route.method, path, headers={"idempotency-key": "k", "if-match": "x"}, **body)
        known = (item.id, run_id, grant.id, item.digest)
        assert not any(each in answer.text.replace(path, "") for each in known), answer.text
    assert store.request(item.id).status == "pending" and store.grants()[0].revoked is None


def _approve() -> Any:
    from phronomy import Approve

    return Approve()


@pytest.mark.parametrize("route", TABLE, ids=lambda route: f"{route.method} {route.path}")
def test_every_path_refuses_other_methods(route: Route) -> None:
    api = api_of(MemoryStore())
    allowed = {each.method for each in TABLE if each.path == route.path}
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - allowed:
        answer = Visitor(api.inbox).request(method, address(route))
        assert answer.status_code == 405 and set(answer.headers["allow"].split(", ")) >= allowed, method
