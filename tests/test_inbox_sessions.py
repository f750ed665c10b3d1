"""Sessions of the inbox: they begin with a new secret, and end by the clock, by signing out, or with the person; in every store."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from inbox_scenes import OTTO, RITA, Visitor, inbox_of, run
from places import Place
from starlette.requests import Request
from starlette.responses import Response

from phronomy import ConfigurationError, MemoryStore, Principal, StoreError
from phronomy.inbox import Identity
from phronomy.inbox.auth import keys, sessions
from phronomy.inbox.auth.identity import SCOPES
from phronomy.inbox.auth.keys import derived, server_key
from phronomy.inbox.auth.sessions import KIND, NOTE, Sessions
from phronomy.people import Person, StoreDirectory
from phronomy.stores import Document, Store

NAME = "__Host-phronomy"


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """A store of each kind, the clock of all its processes, and sessions as one of them has them."""

    def __init__(self, place: Place) -> None:
        self.place, self.clock = place, Clock()
        self.store = self.open()
        self.sessions = Sessions(self.store)

    def open(self) -> Store:
        return self.place.open(clock=self.clock)

    def rows(self) -> list[Document]:
        return self.store.select_documents(KIND)

    def version(self, secret: str) -> str:
        """The version of a session's document: each write changes it."""
        found = self.store.get_document(KIND, key_of(secret))
        assert found is not None
        return found.version

    def begin(self, principal: Principal = RITA, **options: Any) -> str:
        return run(self.sessions.begin(principal, **options))

    def who(self, *secrets: str, sessions: Sessions | None = None) -> Identity | None:
        return run((sessions or self.sessions).identify(request_with(*secrets)))


@pytest.fixture
def desk(place: Place) -> Desk:
    return Desk(place)


def request_with(*secrets: str, name: str = NAME) -> Request:
    headers = [(b"cookie", "; ".join(f"{name}={each}" for each in secrets).encode())] if secrets else []
    return Request({"type": "http", "headers": headers})


def key_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def test_a_session_is_known_by_the_secret_that_no_store_has(desk: Desk) -> None:
    secret = desk.begin(RITA.evolve(claims={"id_token": "eyJ"}), scopes={"read", "start"}, tenant=None)
    found = desk.who(secret)
    assert found is not None and found.signed_in_at is not None
    assert (found.principal, found.tenant, found.via, found.session) == (RITA, None, "session", key_of(secret))
    assert found.scopes == {"read", "start"} and found.signed_in_at.timestamp() == desk.clock.now
    assert secret not in desk.place.text() and "eyJ" not in desk.place.text()
    assert secret not in repr((desk.sessions, found, run(desk.sessions.of("rita"))))


def test_the_key_of_a_session_and_what_no_server_made_are_nobody(desk: Desk) -> None:
    """A cookie that the client chose is never accepted, whatever it looks like, and makes no session."""
    secret = desk.begin()
    before = desk.rows()
    for wrong in ("", "A" * 43, "A" * 42, key_of(secret), secret[:-1], secret + "A", f'"{secret}"', "ä" * 43):
        assert desk.who(wrong) is None, wrong
    assert desk.who() is None and run(desk.sessions.identify(request_with(secret, name="phronomy"))) is None
    assert desk.rows() == before


def test_of_two_cookies_that_differ_neither_counts(desk: Desk) -> None:
    """Another server of the host may have set one, to have somebody act in a session of its own."""
    mine, other = desk.begin(), desk.begin(OTTO)
    assert desk.who(mine, other) is None and desk.who(other, mine) is None
    assert desk.who(mine, "x") is None
    assert desk.who(mine, mine) is not None
    twice = [(b"cookie", f"{NAME}={each}".encode()) for each in (mine, other)]
    assert run(desk.sessions.identify(Request({"type": "http", "headers": twice}))) is None


def test_each_login_has_a_new_secret_and_ends_the_session_before(desk: Desk) -> None:
    first = desk.begin()
    second = desk.begin(replaces=key_of(first))
    assert second != first and desk.who(first) is None and desk.who(second) is not None
    assert [each.key for each in desk.rows()] == [key_of(second)]


@pytest.mark.parametrize(
    ("idle", "absolute", "pause", "steps"),
    [(3600.0, 43_200.0, 1800.0, 24), (40.0, 400.0, 20.0, 20), (3600.0, 100.0, 10.0, 10)],
)
def test_whoever_is_active_is_signed_in_until_the_absolute_end(
    desk: Desk, idle: float, absolute: float, pause: float, steps: int
) -> None:
    """By the clock of the store. Also where the idle time is shorter than the time between two notes."""
    desk.sessions = Sessions(desk.store, idle=idle, absolute=absolute)
    secret = desk.begin()
    for _ in range(steps - 1):
        desk.clock.now += pause
        assert desk.who(secret) is not None
    desk.clock.now += pause
    assert desk.who(secret) is None and desk.rows() == []


def test_whoever_is_idle_is_signed_out(desk: Desk) -> None:
    secret = desk.begin()
    desk.clock.now += 3599
    assert desk.who(secret) is not None
    desk.clock.now += 3600
    assert desk.who(secret) is None and run(desk.sessions.of("rita")) == ()


def test_a_row_that_outlives_its_time_does_not_count(desk: Desk) -> None:
    """A copy of a database may have lost the times of its documents. The text has them, too."""
    secret = desk.begin()
    (row,) = desk.rows()
    desk.store.put_document(replace(row, expires_at=None))
    desk.clock.now += 3600
    assert len(desk.rows()) == 1 and run(desk.sessions.of("rita")) == ()
    assert desk.who(secret) is None and desk.rows() == []


def test_a_visit_is_noted_once_a_minute(desk: Desk) -> None:
    secret = desk.begin()
    versions = []
    for _ in range(4):
        desk.clock.now += 30
        assert desk.who(secret) is not None
        versions.append(desk.rows()[0].version)
    assert len({*versions}) == 3  # begun; noted at 60 s and at 120 s
    (info,) = run(desk.sessions.of("rita"))
    assert info.seen_at.timestamp() - info.began_at.timestamp() == 120


def test_signing_out_counts_at_once_in_another_process(desk: Desk) -> None:
    secret, kept = desk.begin(), desk.begin()
    there = Sessions(desk.open())
    assert desk.who(secret, sessions=there) is not None
    run(desk.sessions.end(key_of(secret)))
    assert desk.who(secret, sessions=there) is None
    run(desk.sessions.end(key_of(secret)))  # once more is nothing
    assert desk.who(kept, sessions=there) is not None


def test_somebody_is_signed_out_everywhere_and_nobody_else_is(desk: Desk) -> None:
    mine = [desk.begin(), desk.begin(Principal(id="slack:U1"))]
    others = [desk.begin(OTTO), desk.begin(RITA, tenant="acme")]
    StoreDirectory(desk.store).add(Person(id="rita", aliases=("slack:U1",)))
    assert [each.key for each in run(desk.sessions.of("rita"))] != []
    assert {each.key for each in run(desk.sessions.of("slack:U1"))} == {key_of(each) for each in mine}
    assert run(desk.sessions.end_all("rita")) == 2
    assert [desk.who(each) is None for each in (*mine, *others)] == [True, True, False, False]
    assert run(desk.sessions.end_all("rita", tenant="acme")) == 1
    assert run(desk.sessions.end_all("rita", tenant="acme")) == 0


def test_the_roles_are_those_that_the_directory_has_now(desk: Desk) -> None:
    """A removed role counts at once, and so does a removed person: the roles of an old login do not come back."""
    directory = StoreDirectory(desk.open())
    before = desk.begin(Principal(id="rita", name="R.", roles=("lead", "root")))
    assert roles_of(desk.who(before)) == ("lead", "root")  # nobody knows them here, so the login's word counts
    directory.add(Person(id="rita", name="Rita", roles=("lead", "refunds")))
    secret = desk.begin(Principal(id="rita", roles=("root",)))
    for each in (before, secret):
        assert roles_of(desk.who(each)) == ("lead", "refunds")
    directory.add(Person(id="rita", roles=("refunds",)), replace=True)
    assert roles_of(desk.who(secret)) == ("refunds",)
    directory.remove("rita")
    assert desk.who(secret) is None
    directory.add(Person(id="rita", roles=("refunds",)))
    assert desk.who(secret) is None, "the session has ended"


@pytest.mark.parametrize("id", ["zoe", "oidc:https://login.example.org#7"])
def test_a_session_from_before_somebody_was_listed_ends_with_the_person(desk: Desk, id: str) -> None:
    """Once the directory was found to know them, under their id or an alias, the roles of the old login do not come back."""
    directory = StoreDirectory(desk.open())
    used, unused = (desk.begin(Principal(id=id, roles=("lead",))) for _ in range(2))
    assert roles_of(desk.who(used)) == roles_of(desk.who(unused)) == ("lead",)
    directory.add(Person(id="zoe", roles=("clerk",), aliases=() if id == "zoe" else (id,)))
    assert roles_of(desk.who(used, sessions=Sessions(desk.open()))) == ("clerk",)
    version = desk.version(used)
    assert roles_of(desk.who(used)) == ("clerk",) and desk.version(used) == version, "it was noted once"
    directory.remove("zoe")
    assert desk.who(used) is None
    assert [each.key for each in desk.rows()] == [key_of(unused)]


def test_an_alias_that_somebody_loses_ends_their_session(desk: Desk) -> None:
    directory = StoreDirectory(desk.open())
    secret = desk.begin(Principal(id="oidc:7", roles=("lead",)))
    directory.add(Person(id="zoe", roles=("clerk",), aliases=("oidc:7",)))
    assert roles_of(desk.who(secret)) == ("clerk",)
    directory.add(Person(id="zoe", roles=("clerk",)), replace=True)
    assert desk.who(secret) is None


def test_a_session_does_not_follow_an_alias_to_another_person(desk: Desk) -> None:
    directory = StoreDirectory(desk.open())
    before = desk.begin(Principal(id="oidc:7"))
    directory.add(Person(id="mallory", roles=("clerk",), aliases=("oidc:7",)))
    since = desk.begin(Principal(id="oidc:7"))
    assert roles_of(desk.who(before)) == roles_of(desk.who(since)) == ("clerk",)
    directory.add(Person(id="mallory", roles=("clerk",)), replace=True)
    directory.add(Person(id="rita", roles=("lead",), aliases=("oidc:7",)))
    assert (desk.who(before), desk.who(since)) == (None, None)
    assert roles_of(desk.who(desk.begin(Principal(id="oidc:7")))) == ("lead",)


def test_what_one_request_notes_another_does_not_undo(desk: Desk) -> None:
    """A request that has read the session before somebody was listed writes nothing over the note that they are."""
    secret = desk.begin(Principal(id="zoe", roles=("lead",)))
    desk.clock.now += 61.0
    slow = desk.open()
    put, times = slow.aput_document, []

    async def put_late(document: Document) -> Document:
        """The slow request writes after the quick one."""
        if not times:
            times.append(1)
            await asyncio.to_thread(StoreDirectory(desk.open()).add, Person(id="zoe", roles=("clerk",)))
            assert await Sessions(desk.open()).identify(request_with(secret)) is not None
        return await put(document)

    slow.aput_document = put_late  # type: ignore[method-assign]
    assert roles_of(desk.who(secret, sessions=Sessions(slow))) == ("clerk",), "it has looked anew"
    StoreDirectory(desk.open()).remove("zoe")
    assert desk.who(secret) is None


def test_somebody_who_signs_in_by_an_alias_is_the_person(desk: Desk) -> None:
    StoreDirectory(desk.open()).add(Person(id="rita", roles=("lead",), aliases=("oidc:7",)))
    found = desk.who(desk.begin(Principal(id="oidc:7", roles=("root",))))
    assert found is not None and (found.principal.id, found.principal.roles) == ("rita", ("lead",))


def test_each_tenant_has_its_own_people(desk: Desk) -> None:
    StoreDirectory(desk.open()).for_tenant("acme").add(Person(id="rita", roles=("acme-lead",)))
    assert roles_of(desk.who(desk.begin(RITA, tenant="acme"))) == ("acme-lead",)
    assert roles_of(desk.who(desk.begin(RITA))) == ("lead",)


def roles_of(found: Identity | None) -> tuple[str, ...]:
    assert found is not None
    return found.principal.roles


def damaged(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    def of(text: str) -> str:
        row = json.loads(text)
        return json.dumps(change(row))

    return of


DAMAGED = {
    "no JSON": lambda text: text[:-1],
    "no object": damaged(lambda row: [row]),
    "another version": damaged(lambda row: row | {"version": 2}),
    "never over": damaged(lambda row: row | {"began": float("nan"), "seen": float("nan")}),
    "an unknown time": damaged(lambda row: row | {"began": 1e300}),
    "times as text": damaged(lambda row: row | {"seen": str(row["seen"])}),
    "scopes as text": damaged(lambda row: row | {"scopes": "read decide"}),
    "nobody": damaged(lambda row: row | {"principal": {"id": ""}}),
    "no tenant": damaged(lambda row: {name: value for name, value in row.items() if name != "tenant"}),
    "a tenant that cannot be": damaged(lambda row: row | {"tenant": "a\n"}),
    "a key twice": lambda text: text[:-1] + ', "tenant": "acme"}',
}


@pytest.mark.parametrize("how", [*DAMAGED])
def test_a_damaged_session_is_nobodys_and_keeps_nobody_out(
    desk: Desk, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    secret, other = desk.begin(), desk.begin()
    row = next(each for each in desk.rows() if each.key == key_of(secret))
    desk.store.put_document(replace(row, text=DAMAGED[how](row.text)))
    with caplog.at_level(logging.INFO):
        assert desk.who(secret) is None
    assert caplog.messages == [
        f"session {row.key[:12]} cannot be read, and counts for nobody: it is damaged, or of a later release"
    ]
    assert secret not in caplog.text and "Rita" not in caplog.text
    assert desk.who(other) is not None
    assert run(desk.sessions.end_all("rita")) == 1


def test_a_scope_that_is_no_longer_known_is_left_out(desk: Desk) -> None:
    secret = desk.begin(scopes=SCOPES)
    (row,) = desk.rows()
    desk.store.put_document(replace(row, text=row.text.replace('"start"', '"destroy"')))
    found = desk.who(secret)
    assert found is not None and found.scopes == {*SCOPES} - {"start"}


def test_many_requests_at_once_note_one_visit_and_lose_nobody(desk: Desk) -> None:
    secret = desk.begin()
    desk.clock.now += 600
    there = [desk.sessions, Sessions(desk.open()), Sessions(desk.open())]

    async def at_once() -> list[Identity | None]:
        return await asyncio.gather(*(each.identify(request_with(secret)) for each in there * 4))

    assert None not in run(at_once())
    (info,) = run(desk.sessions.of("rita"))
    assert info.seen_at.timestamp() == desk.clock.now


def test_whoever_signs_out_while_a_visit_is_noted_stays_signed_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write of the visit comes after that of the sign-out, and brings nothing back."""
    secret = desk.begin()
    desk.clock.now += 600
    put = desk.store.put_document
    elsewhere = desk.open()

    def late(document: Document) -> Document:
        monkeypatch.undo()
        elsewhere.delete_document(KIND, document.key)
        return put(document)

    monkeypatch.setattr(desk.store, "put_document", late)
    assert desk.who(secret) is None and desk.rows() == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"idle": 0}, "idle"),
        ({"idle": float("nan")}, "idle"),
        ({"absolute": True}, "absolute"),
        ({"cookie": "a b"}, "cookie"),
        ({"cookie": ""}, "cookie"),
        ({"secure": False}, "drop a cookie"),
        ({"cookie": "__secure-x", "secure": False}, "drop a cookie"),
        ({"same_site": "none"}, "same_site"),
    ],
)
def test_sessions_that_no_browser_would_keep_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Sessions(MemoryStore(), **given)


def test_the_cookie_is_for_this_server_and_no_script() -> None:
    answer = Response()
    Sessions(MemoryStore()).set_cookie(answer, "s" * 43)
    Sessions(MemoryStore(), cookie="phronomy-8080", secure=False, same_site="strict").set_cookie(answer, "s" * 43)
    Sessions(MemoryStore()).clear_cookie(answer)
    kept, local, gone = answer.headers.getlist("set-cookie")
    assert kept == f"__Host-phronomy={'s' * 43}; HttpOnly; Path=/; SameSite=lax; Secure"
    assert local == f"phronomy-8080={'s' * 43}; HttpOnly; Path=/; SameSite=strict"
    assert "Max-Age=0" in gone and gone.startswith('__Host-phronomy="";') and "Secure" in gone


def test_a_session_opens_the_inbox_and_its_secret_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    secret = run(Sessions(store).begin(RITA))
    visitor = Visitor(inbox_of(store), None)
    visitor.cookies = {NAME: secret}
    with caplog.at_level(logging.DEBUG):
        assert visitor.get("/healthz").status_code == 200
    assert "rita by session" in caplog.text
    assert not [each for each in caplog.records if secret in each.getMessage() or key_of(secret) in each.getMessage()]


FROZEN = (
    '{"version": 1, "principal": {"id": "rita", "name": "Rita", "kind": "human", "roles": ["lead"]}, "tenant": "acme",'
    ' "scopes": ["audit", "read"], "began": 1000000.0, "seen": 1000000.0, "listed": false}'
)


def test_a_session_of_the_first_version_still_counts(desk: Desk) -> None:
    secret = "A" * 43
    desk.store.put_document(Document(kind=KIND, key=key_of(secret), text=FROZEN, expires_at=1_003_600.0))
    found = desk.who(secret)
    assert found is not None and (found.principal, found.tenant, found.scopes) == (RITA, "acme", {"audit", "read"})
    run(desk.sessions.end(key_of(secret)))
    desk.store.put_document(Document(kind=KIND, key=key_of(secret), text=FROZEN))
    whom = hashlib.sha256(b'["acme", "rita"]').hexdigest()
    desk.store.put_document(
        Document(kind=NOTE, key=f"{whom}/{key_of(secret)}", text='{"version": 1, "began": 1000000.0}')
    )
    assert [each.key for each in run(desk.sessions.of("rita", tenant="acme"))] == [key_of(secret)]


def test_the_sessions_of_others_are_not_read_for_those_of_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        desk.begin(Principal(id=f"p{number}"))
    mine = [key_of(desk.begin()) for _ in range(3)]
    read: list[str] = []
    get = desk.store.aget_document

    async def counted(kind: str, key: str) -> Document | None:
        read.append(key)
        return await get(kind, key)

    monkeypatch.setattr(desk.store, "aget_document", counted)
    assert {each.key for each in run(desk.sessions.of("rita"))} == {*mine}
    assert {*mine} == {each for each in read if len(each) == 64 and "/" not in each}


def test_somebody_has_so_many_sessions_and_the_oldest_ends(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST", 3)
    monkeypatch.setattr(sessions, "_BATCH", 2)
    found = []
    for _ in range(5):
        desk.clock.now += 1
        found.append(desk.begin())
    other = desk.begin(OTTO)
    assert [desk.who(each) is not None for each in found] == [False, False, True, True, True]
    assert len(run(desk.sessions.of("rita"))) == 3 and desk.who(other) is not None


def test_a_note_outlives_its_session_for_a_minute_at_most(desk: Desk) -> None:
    run(desk.sessions.end(key_of(desk.begin())))
    assert run(desk.sessions.of("rita")) == () and len(desk.store.select_documents(NOTE)) == 1
    desk.clock.now += 60
    assert run(desk.sessions.of("rita")) == () and desk.store.select_documents(NOTE) == []


# The key that the processes share


def test_all_processes_have_one_key(desk: Desk) -> None:
    stores = [desk.open() for _ in range(6)]

    async def at_once() -> list[bytes]:
        return await asyncio.gather(*map(server_key, stores))

    found = run(at_once())
    assert len({*found}) == 1 and len(found[0]) == 32
    assert run(server_key(desk.store)) == found[0]


def test_what_is_signed_for_one_purpose_is_nothing_for_another() -> None:
    key = b"k" * 32
    assert len({derived(key, "csrf"), derived(key, "cursor"), derived(b"l" * 32, "csrf"), key}) == 4
    assert derived(key, "csrf") == derived(key, "csrf")


@pytest.mark.parametrize("text", ["", "00", "g" * 64])
def test_a_damaged_key_is_no_key(text: str) -> None:
    """An empty one would sign for everybody."""
    store = MemoryStore()
    store.put_document(Document(kind=keys.KIND, key="1", text=text))
    with pytest.raises(StoreError, match="the secret of the inbox"):
        run(server_key(store))
