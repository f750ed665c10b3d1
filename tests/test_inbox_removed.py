"""People who stop counting while their request is on its way: over a real line, with a late body; and behind every other door."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import uvicorn
from drivers import DRIVERS, Driver
from inbox_scenes import ByHeader, Visitor
from starlette.requests import Request
from tables import each

from phronomy import (
    Agent,
    Approval,
    Approve,
    GrantRefused,
    MemoryStore,
    NotAnApprover,
    PendingApproval,
    Principal,
    UnknownPerson,
    tool,
)
from phronomy.chat.deciding import decide, may_begin
from phronomy.inbox import ApiTokens, Identity, Inbox, Problem, Sessions, TrustedProxy
from phronomy.inbox.api.events import Pace, Watching
from phronomy.inbox.auth.identity import SCOPES
from phronomy.inbox.routes import Route
from phronomy.inbox.security import csrf_token
from phronomy.people import Person, StoreDirectory
from phronomy.records.grants import Given, Grant
from phronomy.stores.batches import Answered
from phronomy.stores.derived.standing import standing_of
from phronomy.testing import ScriptedModel, call
from phronomy.tokens import Token

SECRET = "s" * 32
RITA = Person(id="rita", roles=("finance",), aliases=("slack:U0RITA",))


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """A desk whose payments finance approves, rita of finance, and an inbox on a real line."""

    def __init__(self, gate: Any = None) -> None:
        self.clock = Clock()
        self.store = MemoryStore(clock=self.clock)
        self.people = StoreDirectory(self.store)
        self.people.add(RITA)
        self.paid: list[int] = []
        self.agent = self.agent_of(gate or Approval(by="finance", standing=True))
        self.agent.invoke("go", thread_id="t1", requester="ann")
        self.item: PendingApproval = self.store.pending()[0].approval
        self.scopes: set[str] = {*SCOPES}
        self.auth: Any = ByHeader(RITA.principal.evolve(listed=False))
        self.inbox = Inbox(self.store, self.agent, auth=[self.auth, proxy()], scopes=lambda _: self.scopes)  # type: ignore[arg-type,return-value]

    def agent_of(self, gate: Any) -> Agent[Any, str]:
        @tool(requires_approval=gate)
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return "paid"

        model = ScriptedModel.by_turn([call("pay", {"amount": 5}), "Done."])
        return Agent(name="desk", model=model, tools=[pay], store=self.store)

    def text(self) -> str:
        """All that counts: the runs, what waits, the grants."""
        head = self.store.branches()
        return repr(
            (head, self.store.pending(), self.store.grants(all=True), self.store.select_documents("inbox-sent"))
        )

    @property
    def rita(self) -> Principal:
        """Rita, as the directory has resolved her."""
        found = self.people.resolve("slack:U0RITA")
        assert found is not None
        return found


def proxy() -> TrustedProxy:
    return TrustedProxy(peers=["127.0.0.1"], secret=SECRET)


class Line:
    """A real server, of one inbox after the other."""

    inbox: Inbox
    port: int

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.inbox(scope, receive, send)


@pytest.fixture(scope="module")
def line() -> Iterator[Line]:
    line = Line()
    server = uvicorn.Server(uvicorn.Config(line, port=0, log_level="error", lifespan="off", proxy_headers=False))
    started, startup = threading.Event(), server.startup

    async def told(*args: Any, **options: Any) -> None:
        await startup(*args, **options)
        started.set()

    server.startup = told  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run)
    thread.start()
    assert started.wait(20)
    line.port = server.servers[0].sockets[0].getsockname()[1]
    yield line
    server.should_exit = True
    thread.join(20)


def late(port: int, method: str, path: str, headers: dict[str, str], body: bytes, between: Callable[[], Any]) -> int:
    """The status of a request whose body comes once the server waits for it, and something has happened."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", "Expect: 100-continue"]
    lines += ["Connection: close", *(f"{name}: {value}" for name, value in headers.items())]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
        line.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        # The server asks for the body when it reads it: by then it has seen who sends it.
        assert line.recv(4096).startswith(b"HTTP/1.1 100"), "the server waits for the body"
        between()
        line.sendall(body)
        answer = b""
        while part := line.recv(65536):
            answer += part
    return int(answer.split()[1])


JSON = {"Content-Type": "application/json", "Idempotency-Key": "k"}


def by_token(desk: Desk, **options: Any) -> tuple[dict[str, str], Any]:
    given: dict[str, Any] = {"scopes": list(SCOPES), "seconds": 60, **options}
    issued = asyncio.run(ApiTokens(desk.store).issue("t", Principal(id="rita", roles=("finance",)), **given))
    return {**JSON, "Authorization": f"Bearer {issued.secret}"}, issued.token


def by_session(desk: Desk) -> dict[str, str]:
    sessions = desk.inbox.site.sessions
    secret = asyncio.run(sessions.begin(Principal(id="rita", roles=("finance",))))
    who = asyncio.run(sessions.identify(Request({"type": "http", "headers": [cookie(secret)]})))
    assert who is not None
    return {**JSON, **same(desk, who), "Cookie": cookie(secret)[1].decode()}


def cookie(secret: str) -> tuple[bytes, bytes]:
    return b"cookie", f"__Host-phronomy={secret}".encode()


def same(desk: Desk, who: Identity) -> dict[str, str]:
    key = asyncio.run(desk.inbox.site.key())
    return {"Sec-Fetch-Site": "same-origin", "X-CSRF-Token": csrf_token(key, who, desk.clock.now)}


def by_auth(desk: Desk, via: str = "header", **headers: str) -> dict[str, str]:
    who = Identity(principal=desk.rita, via=via)
    return {**JSON, **same(desk, who), **(headers or {"X-User": "rita"})}


def approving(desk: Desk) -> tuple[str, bytes]:
    body = {"answer": "approve", "digest": desk.item.digest}
    return f"/api/v1/requests/{desk.item.id}/decision", json.dumps(body).encode()


def remove(desk: Desk) -> None:
    assert desk.people.remove("rita")


def revoked(desk: Desk) -> tuple[dict[str, str], Callable[[], Any]]:
    headers, token = by_token(desk)
    return headers, lambda: asyncio.run(ApiTokens(desk.store).revoke(token.id))


def later(desk: Desk, seconds: float) -> None:
    desk.clock.now += seconds


def signed_out(desk: Desk) -> None:
    assert asyncio.run(desk.inbox.site.sessions.end_all("rita")) == 1


def somebody_else(desk: Desk) -> None:
    desk.auth.people["rita"] = Principal(id="otto", roles=("finance",))


def proxied(desk: Desk) -> tuple[dict[str, str], Callable[[], Any]]:
    desk.people.add(RITA.evolve(aliases=(*RITA.aliases, "proxy:rita")), replace=True)
    headers = {"X-Forwarded-User": "rita", "X-Proxy-Secret": SECRET}
    return by_auth(desk, "proxy", **headers), lambda: remove(desk)


WAYS: list[tuple[str, Callable[[Desk], tuple[dict[str, str], Callable[[], Any]]], int]] = [
    ("token, removed", lambda desk: (by_token(desk)[0], lambda: remove(desk)), 401),
    ("token, revoked", revoked, 401),
    ("token, over", lambda desk: (by_token(desk)[0], lambda: later(desk, 61)), 401),
    ("token, scope lost", lambda desk: (by_token(desk)[0], lambda: desk.scopes.discard("decide")), 403),
    ("session, removed", lambda desk: (by_session(desk), lambda: remove(desk)), 401),
    ("session, signed out", lambda desk: (by_session(desk), lambda: signed_out(desk)), 401),
    ("session, idle", lambda desk: (by_session(desk), lambda: later(desk, 3_601)), 401),
    ("session, role lost", lambda desk: (by_session(desk), lambda: desk.people.add(Person(id="rita"), replace=True)), 403),
    ("application, removed", lambda desk: (by_auth(desk), lambda: remove(desk)), 401),
    ("application, gone", lambda desk: (by_auth(desk), desk.auth.people.clear), 401),
    ("application, somebody else", lambda desk: (by_auth(desk), lambda: somebody_else(desk)), 401),
    ("proxy, removed", proxied, 401),
]  # fmt: skip


@each(("name", "way", "status"), WAYS)
def test_who_sends_a_body_is_asked_once_it_is_there(
    name: str, way: Callable[[Desk], tuple[dict[str, str], Callable[[], Any]]], status: int, line: Line
) -> None:
    desk = Desk()
    headers, between = way(desk)
    line.inbox = desk.inbox
    assert late(line.port, "POST", approving(desk)[0], headers, approving(desk)[1], between) == status
    assert desk.store.request(desk.item.id).status == "pending" and desk.paid == []


def test_somebody_who_still_counts_decides_by_a_body_that_comes_late(line: Line) -> None:
    desk = Desk()
    line.inbox = desk.inbox
    path, body = approving(desk)
    assert late(line.port, "POST", path, by_token(desk)[0], body, lambda: None) == 200
    assert desk.store.request(desk.item.id).status == "decided"


def acting(desk: Desk) -> list[Route]:
    return [each for each in desk.inbox.routes if each.method != "GET" and not each.public]


def test_every_route_that_changes_something_asks_once_the_body_is_there(line: Line) -> None:
    """All of them, by the table: deciding, batches, grants, starting, ending, events, operations; on pages and in the API."""
    desk = Desk()
    before, tried = desk.text(), 0
    line.inbox = desk.inbox
    for route in acting(desk):
        path = route.path.replace("{id}", desk.item.id).replace("{checkpoint}", "x").replace("{name}", "x")
        desk.people.add(RITA, replace=True)
        form = {"Content-Type": "application/x-www-form-urlencoded"} if route.page else {}
        headers = {**by_auth(desk), **form}
        assert late(line.port, route.method, path, headers, b"{}", lambda: remove(desk)) == 401, route.path
        tried += 1
    assert tried > 20 and desk.text() == before


def test_a_batch_asks_once_more_when_all_of_it_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    headers, token = by_token(desk)
    look = desk.store.arequest

    async def look_and_revoke(pending_id: str) -> Any:
        await ApiTokens(desk.store).revoke(token.id)
        return await look(pending_id)

    monkeypatch.setattr(desk.store, "arequest", look_and_revoke)
    body = {"answer": "approve", "requests": [{"id": desk.item.id, "digest": desk.item.digest}]}
    sent = Visitor(desk.inbox).post("/api/v1/decisions:batch", json=body, headers=headers)
    assert (sent.status_code, desk.store.request(desk.item.id).status) == (401, "pending")


def test_the_stream_of_somebody_who_was_removed_ends(line: Line) -> None:
    """Also where an application, or a proxy, names them still."""
    desk = Desk()
    line.inbox = desk.inbox
    desk.inbox.site.kept(Watching).pace = Pace(look=0.01, comment=0.01, identify=0.01)
    with socket.create_connection(("127.0.0.1", line.port), timeout=20) as reader:
        reader.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\nX-User: rita\r\nConnection: close\r\n\r\n")
        text = b""
        while text.count(b":\n\n") < 3:  # they are asked for again and again, and it goes on
            text += reader.recv(4096)
        remove(desk)
        while part := reader.recv(4096):
            text += part
    assert text.endswith(b"0\r\n\r\n")


# Between the look and the write


def grant_of(desk: Desk) -> Grant:
    return Grant(agent="desk", tool="pay", scope="tenant", uses=3)


def of_run(desk: Desk) -> str:
    return desk.store.branches()[0].id


def of(known: object) -> Any:
    """A driver calls the methods of other objects as those of agents."""
    return known


def answered(desk: Desk) -> Answered:
    return Answered(pending_id=desk.item.id, digest=desk.item.digest, answer=Approve())


DOORS: list[tuple[str, type[Exception], Callable[[Desk, Driver, Principal], Any]]] = [
    ("decide", NotAnApprover, lambda d, on, by: on.call(of(d.store), "decide", d.item.id, Approve(), by=by, digest=d.item.digest)),
    ("all or none", NotAnApprover, lambda d, on, by: on.call(of(d.store), "decide_all", [answered(d)], by=by, all_or_none=True)),
    ("agent.decide", NotAnApprover, lambda d, on, by: on.call(d.agent, "decide", d.item.id, Approve(), digest=d.item.digest, by=by)),
    ("resume", NotAnApprover, lambda d, on, by: on.call(d.agent, "resume", d.store.head(of_run(d))[1], approved=True, by=by)),
    ("grant", GrantRefused, lambda d, on, by: on.call(of(d.store), "grant", grant_of(d), by=by)),
    ("grant_like", GrantRefused, lambda d, on, by: on.call(of(d.store), "grant_like", d.item.id, digest=d.item.digest, by=by)),
    ("sign_grant", GrantRefused, lambda d, on, by: on.call(of(d.store), "sign_grant", d.store.grants()[0].id, by=by)),
    ("revoke", GrantRefused, lambda d, on, by: on.call(of(d.store), "revoke", d.store.grants()[0].id, by=by)),
    ("send_event", UnknownPerson, lambda d, on, by: on.call(of(d.store), "send_event", of_run(d), "paid", by=by)),
    ("send", UnknownPerson, lambda d, on, by: on.call(d.agent, "send", of_run(d), "go", by=by)),
    ("store.send", UnknownPerson, lambda d, on, by: on.call(of(d.store), "send", of_run(d), "go", by=by)),
    ("fork", UnknownPerson, lambda d, on, by: on.call(d.agent, "fork", d.store.head(of_run(d))[1].id, by=by)),
    ("cancel", UnknownPerson, lambda d, on, by: on.call(d.agent, "cancel", of_run(d), by=by)),
    ("pause", UnknownPerson, lambda d, on, by: on.call(d.agent, "pause", of_run(d), by=by)),
    ("restore", UnknownPerson, lambda d, on, by: on.call(d.agent, "restore", d.store.head(of_run(d))[1].id, by=by)),
    ("invoke", UnknownPerson, lambda d, on, by: on.call(d.agent, "invoke", "go", requester=by)),
    ("deputy", UnknownPerson, lambda d, on, by: on.call(of(d.people), "name_deputy", "ann", "otto", by=by)),
]  # fmt: skip


@each(("name", "error", "act"), DOORS)
@each("gate", [Approval(by="finance", standing=True), Approval(standing=True)])
@each("on", DRIVERS)
def test_somebody_who_was_resolved_and_removed_does_nothing(
    name: str, error: type[Exception], act: Callable[[Desk, Driver, Principal], Any], gate: Approval, on: Driver
) -> None:
    """The approval may ask for people or not: the directory has known them, so no caller's word takes its place."""
    desk = Desk(gate)
    desk.people.add(Person(id="ann"))
    desk.people.add(Person(id="otto"))
    desk.store.grant(Grant(agent="desk", tool="other", scope="tenant", uses=3), by="ann")
    rita = desk.rita
    remove(desk)
    before = desk.text()
    with pytest.raises(error, match="removed from the directory"):
        act(desk, on, rita)
    assert desk.text() == before and desk.paid == []


def test_each_of_several_decisions_of_somebody_who_was_removed_is_refused() -> None:
    desk = Desk()
    rita = desk.rita
    remove(desk)
    (one,) = desk.store.decide_all([answered(desk)], by=rita)
    assert isinstance(one.error, NotAnApprover) and desk.store.request(desk.item.id).status == "pending"


def test_somebody_who_was_removed_is_shown_no_button() -> None:
    desk = Desk()
    rita = desk.rita
    remove(desk)
    standing = standing_of(desk.store, desk.item, rita)
    assert (standing.answers, standing.why_not) == ((), "not_an_approver")
    assert standing.said == "You are not in the directory of people any more."


class Late(StoreDirectory):
    """A directory in which people are removed right after they were looked up."""

    def resolve(self, alias: str) -> Principal | None:
        found = super().resolve(alias)
        if found is not None:
            self.remove(found.id)
        return found


def test_a_click_does_not_outlive_its_person() -> None:
    desk = Desk()
    rita = Late(desk.store).resolve("slack:U0RITA")
    assert rita is not None
    # The door of chats and of the links of mails: a form is begun, or a button decides.
    facts: dict[str, Any] = {"pending_id": desk.item.id, "digest": desk.item.digest, "by": "slack:U0RITA"}
    token = Token(id="t", purpose="chat:slack", expires_at=datetime.now(UTC), once=False, **facts)
    told = decide(desk.store, token, Approve(), rita, "slack").notice or ""
    assert "not in the directory of people any more" in told
    said = may_begin(desk.store, token, "approve", rita, "slack")
    assert isinstance(said, str) and said.startswith("You may not decide")


@each(
    "gate",
    [Approval(by="finance", standing=True), Approval(standing=True), Approval(not_requester=True, standing=True)],
)
@each("old", [False, True])
def test_a_grant_ends_with_the_last_of_its_givers(gate: Approval, old: bool, driver: Driver) -> None:
    desk = Desk(gate)
    grant = desk.store.grant(grant_of(desk), by=Principal(id="slack:U0RITA", roles=("finance",)))
    assert grant.givers[0].listed and grant.givers[0].principal.listed
    if old:  # as an earlier release has written it
        (document,) = desk.store.select_documents("grant")
        text = document.text.replace(',"listed":true}', "}", 1)
        assert text.count('"listed":true') == 1
        desk.store.put_document(replace(document, text=text))
    assert driver.invoke(desk.agent, "again", requester="ann").status == "completed"
    remove(desk)
    assert driver.invoke(desk.agent, "again", requester="ann").status == "suspended"


def test_sessions_and_tokens_of_somebody_who_was_removed_begin_dead() -> None:
    desk = Desk()
    rita = desk.rita
    remove(desk)
    sessions = Sessions(desk.store)
    secret = asyncio.run(sessions.begin(rita))
    assert asyncio.run(sessions.identify(Request({"type": "http", "headers": [cookie(secret)]}))) is None
    issued = asyncio.run(ApiTokens(desk.store).issue("t", rita, scopes=["read"], seconds=60))
    headers = [(b"authorization", f"Bearer {issued.secret}".encode())]
    with pytest.raises(Problem) as refused:
        asyncio.run(ApiTokens(desk.store).identify(Request({"type": "http", "headers": headers})))
    assert refused.value.type == "not-signed-in"


def test_whether_the_directory_was_asked_is_no_difference_between_two_people() -> None:
    desk = Desk()
    assert desk.rita == RITA.principal.evolve(listed=False) and desk.rita.listed
    assert "listed" not in Principal(id="rita").model_dump_json()
    assert Principal.model_validate_json(desk.rita.model_dump_json()).listed
    given = Given(principal=desk.rita, at=datetime.now(UTC) + timedelta(days=1))
    assert given.principal.listed
