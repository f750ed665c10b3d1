"""API tokens of the inbox: shown once, kept as a hash, and all that is wrong with one is answered alike."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import logging
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from inbox_scenes import OTTO, RITA, ByHeader, Visitor, asked, inbox_of, run
from places import Place
from starlette.requests import Request
from test_cli_runs import STORE, place, said
from test_inbox_sessions import Clock

import phronomy.inbox
from phronomy import Approval, ConfigurationError, MemoryStore, Principal, SQLiteStore, StoreError, cli
from phronomy.inbox import Identity, Problem
from phronomy.inbox.auth.api_tokens import KIND, ApiTokens, IssuedToken
from phronomy.inbox.auth.limits import Failures
from phronomy.inbox.auth.sessions import Sessions
from phronomy.people import Person, StoreDirectory
from phronomy.stores import Document, Store

__all__ = ["said"]  # a fixture

BOT = Principal(id="bot", kind="service", roles=("clerk",))
cli_place = place


class Desk:
    """A store of each kind, its clock, and tokens over it."""

    def __init__(self, place: Place) -> None:
        self.place, self.clock = place, Clock()
        self.store = self.open()
        self.tokens = ApiTokens(self.store)

    def open(self) -> Store:
        return self.place.open(clock=self.clock)

    def issue(self, who: Principal = BOT, **options: Any) -> IssuedToken:
        given: dict[str, Any] = {"scopes": ["read"], "seconds": 86_400.0, **options}
        issued: IssuedToken = run(self.tokens.issue("robot", who, **given))
        return issued

    def who(self, *given: str, tokens: ApiTokens | None = None) -> Identity | None:
        return run((tokens or self.tokens).identify(request_with(*given)))

    def refused(self, text: str) -> tuple[Any, ...]:
        """All that somebody is told whose token does not count."""
        with pytest.raises(Problem) as caught:
            self.who(f"Bearer {text}")
        found = caught.value
        return found.type, found.status, found.detail, str(found), dict(found.headers), dict(found.members)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def desk(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    from places import place_of

    with place_of(request.param, tmp_path) as found:
        yield Desk(found)


def request_with(*given: str) -> Request:
    headers = [(b"authorization", each.encode("latin-1")) for each in given]
    return Request({"type": "http", "headers": headers, "client": ("192.0.2.7", 5000)})


def test_a_token_is_known_and_no_store_has_it(desk: Desk) -> None:
    issued = desk.issue(scopes=["decide", "read"], tenant="acme")
    assert re.fullmatch(r"phr_[0-9a-z]{12}_[A-Za-z0-9_-]{43}", issued.secret)
    found = desk.who(f"Bearer {issued.secret}")
    assert found == Identity(principal=BOT, tenant="acme", scopes=frozenset({"decide", "read"}), via="token")
    for each in (f"bearer {issued.secret}", f"BEARER  {issued.secret} "):
        assert desk.who(each) == found
    assert desk.who() is None and desk.who("Basic cml0YTpy", "Negotiate x") is None
    last = issued.secret.rpartition(issued.token.id)[2]
    assert last not in desk.place.text()
    assert last not in repr((issued, desk.tokens, found, run(desk.tokens.list())))


def test_all_that_is_wrong_with_a_token_is_answered_alike(desk: Desk) -> None:
    good, revoked, over, other = (desk.issue(seconds=each) for each in (None, None, 60.0, None))
    assert run(desk.tokens.revoke(revoked.token.id))
    desk.clock.now += 60
    text = good.secret
    (row,) = [each for each in desk.store.select_documents(KIND) if each.key == good.token.id]
    wrong = {
        "revoked": revoked.secret,
        "expired": over.secret,
        "unknown": "phr_" + "0" * 12 + "_" + "A" * 43,
        "one letter": text[:-1] + ("A" if text[-1] != "A" else "B"),
        "the end of another": text[:17] + other.secret[17:],
        "its hash": json.loads(row.text)["hash"],
        "the hash as secret": text[:17] + json.loads(row.text)["hash"][:43],
        "longer": text + "A",
        "in capitals": text.upper(),
        "empty": "",
        "no ASCII": "phr_" + "é" * 12 + "_" + "A" * 43,
        "two": f"{text}, {text}",
    }
    told = {how: desk.refused(each) for how, each in wrong.items()}
    challenge = 'Bearer realm="phronomy", error="invalid_token"'
    assert {each[0] for each in told.values()} == {"not-signed-in"}
    assert len({repr(each) for each in told.values()}) == 1
    assert told["expired"][4] == {"WWW-Authenticate": challenge}
    with pytest.raises(Problem, match="Nobody is signed in"):
        desk.who(f"Bearer {text}", f"Bearer {text}")
    assert desk.who(f"Bearer {text}") is not None


def test_a_token_that_outlives_its_row_s_time_does_not_count(desk: Desk) -> None:
    issued = desk.issue(seconds=60.0)
    (row,) = desk.store.select_documents(KIND)
    desk.store.put_document(replace(row, expires_at=None))
    desk.clock.now += 60
    assert desk.refused(issued.secret)[0] == "not-signed-in"
    assert run(desk.tokens.list()) == ()


def test_revoking_counts_at_once_in_another_process(desk: Desk) -> None:
    issued, there = desk.issue(), ApiTokens(desk.open())
    assert desk.who(f"Bearer {issued.secret}", tokens=there) is not None
    assert run(desk.tokens.revoke(issued.token.id)) and not run(there.revoke(issued.token.id))
    with pytest.raises(Problem):
        desk.who(f"Bearer {issued.secret}", tokens=there)
    for wrong in ("", "x", "\0", issued.secret, None):
        assert not run(desk.tokens.revoke(wrong))  # type: ignore[arg-type]


def test_the_last_use_is_noted_once_an_hour(desk: Desk) -> None:
    issued = desk.issue()
    versions, hours = set(), []
    for _ in range(6):
        assert desk.who(f"Bearer {issued.secret}") is not None
        (row,), (token,) = desk.store.select_documents(KIND), run(desk.tokens.list())
        assert token.used_at is not None
        versions.add(row.version)
        hours.append(token.used_at.timestamp())
        desk.clock.now += 1200
    assert len(versions) == len({*hours}) == 3 and all(each % 3600 == 0 for each in hours)


def test_a_token_that_is_revoked_while_it_is_used_is_not_brought_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued, elsewhere, put = desk.issue(), desk.open(), desk.store.put_document

    def late(document: Document) -> Document:
        monkeypatch.undo()
        elsewhere.delete_document(KIND, document.key)
        return put(document)

    monkeypatch.setattr(desk.store, "put_document", late)
    assert desk.refused(issued.secret)[0] == "not-signed-in"
    assert desk.store.select_documents(KIND) == []


def test_programs_that_use_a_token_at_once_all_get_in(desk: Desk) -> None:
    issued = desk.issue()
    there = [ApiTokens(desk.open()) for _ in range(6)]

    async def at_once() -> list[Identity | None]:
        return await asyncio.gather(*(each.identify(request_with(f"Bearer {issued.secret}")) for each in there))

    assert None not in run(at_once())


def test_the_roles_are_those_that_the_directory_has_now(desk: Desk) -> None:
    StoreDirectory(desk.open()).add(Person(id="bot", kind="service", roles=("lead",)))
    issued = desk.issue()

    def roles() -> tuple[str, ...]:
        found = desk.who(f"Bearer {issued.secret}")
        assert found is not None
        return found.principal.roles

    assert roles() == ("lead",)
    StoreDirectory(desk.open()).add(Person(id="bot", kind="service"), replace=True)
    assert roles() == ()
    StoreDirectory(desk.open()).remove("bot")
    assert desk.refused(issued.secret)[0] == "not-signed-in"


@pytest.mark.parametrize("id", ["zoe", "ci:7"])
def test_a_token_from_before_somebody_was_listed_counts_no_more_without_them(desk: Desk, id: str) -> None:
    """Once the directory was found to know them, under their id or an alias, the roles of the token do not come back."""
    directory = StoreDirectory(desk.open())
    issued = desk.issue(Principal(id=id, roles=("lead",)))

    def roles() -> tuple[str, ...]:
        found = desk.who(f"Bearer {issued.secret}")
        assert found is not None
        return found.principal.roles

    assert roles() == ("lead",)
    directory.add(Person(id="zoe", roles=("clerk",), aliases=() if id == "zoe" else (id,)))
    assert roles() == ("clerk",)
    noted = desk.store.get_document(KIND, issued.token.id)
    assert roles() == ("clerk",) and desk.store.get_document(KIND, issued.token.id) == noted, "it was noted once"
    directory.remove("zoe")
    assert desk.refused(issued.secret)[0] == "not-signed-in"
    assert desk.store.get_document(KIND, issued.token.id) == noted


def test_a_token_does_not_follow_an_alias_to_another_person(desk: Desk) -> None:
    directory = StoreDirectory(desk.open())
    before = desk.issue(Principal(id="ci:7"))
    directory.add(Person(id="mallory", aliases=("ci:7",)))
    since = desk.issue(Principal(id="ci:7"))
    for issued in (before, since):
        found = desk.who(f"Bearer {issued.secret}")
        assert found is not None and found.principal.id == "mallory"
    directory.remove("mallory")
    directory.add(Person(id="rita", roles=("lead",), aliases=("ci:7",)))
    for issued in (before, since):
        assert desk.refused(issued.secret)[0] == "not-signed-in"
    now = desk.who(f"Bearer {desk.issue(Principal(id='ci:7')).secret}")
    assert now is not None and now.principal.id == "rita"


def test_a_removed_person_decides_nothing_with_an_old_token() -> None:
    """The token says lead, the directory said clerk, and then nothing: no POST counts as a lead's."""
    store = MemoryStore()
    item = asked(store, gate=Approval(by="lead"))
    zoe = Principal(id="zoe", roles=("lead",))
    issued = run(ApiTokens(store).issue("zoe", zoe, scopes=["read", "decide"], seconds=60.0))
    visitor = Visitor(inbox_of(store), None, authorization=f"Bearer {issued.secret}")
    StoreDirectory(store).add(Person(id="zoe", roles=("clerk",)))
    path, body = f"/api/v1/requests/{item.id}/decision", {"answer": "approve", "digest": item.digest}

    def posted(key: str) -> int:
        return visitor.post(path, json=body, headers={"idempotency-key": key}).status_code

    assert posted("first-key-of-zoe") == 403
    StoreDirectory(store).remove("zoe")
    assert posted("second-key-of-zoe") == 401
    assert store.request(item.id).decision is None


@pytest.mark.parametrize(
    "change",
    [
        {"hash": ""},
        {"hash": None},
        {"expires": float("nan")},
        {"expires": "never"},
        {"scopes": "read"},
        {"principal": {}},
        {"version": 2},
        {"listed": None},
        {"tenant": 1},
        {"tenant": "a\n"},
        {"created": 1e300},
    ],
)
def test_a_damaged_token_counts_for_nobody(
    desk: Desk, change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    issued, other = desk.issue(), desk.issue()
    (row,) = [each for each in desk.store.select_documents(KIND) if each.key == issued.token.id]
    desk.store.put_document(replace(row, text=json.dumps(json.loads(row.text) | change)))
    with caplog.at_level(logging.INFO):
        assert desk.refused(issued.secret)[0] == "not-signed-in"
    assert f"API token {issued.token.id} cannot be read" in caplog.text
    assert [each.id for each in run(desk.tokens.list())] == [other.token.id]
    assert run(desk.tokens.revoke(issued.token.id))


def test_too_many_wrong_tokens_of_an_address_and_a_right_one_still_counts(desk: Desk) -> None:
    """Or a stranger could lock out the programs behind the same proxy."""
    desk.tokens = ApiTokens(desk.store, Failures(desk.open(), most=3))
    issued = desk.issue()
    assert [desk.refused("phr_x")[0] for _ in range(5)] == ["not-signed-in"] * 3 + ["slow-down"] * 2
    assert desk.who(f"Bearer {issued.secret}") is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"scopes": []},
        {"scopes": ["admin"]},
        {"scopes": "read"},
        {"seconds": 0},
        {"seconds": float("inf")},
        {"seconds": True},
        {"seconds": 1e12},
    ],
)
def test_a_token_that_says_too_little_is_not_issued(wrong: dict[str, Any]) -> None:
    tokens = ApiTokens(store := MemoryStore())
    given: dict[str, Any] = {"scopes": ["read"], "seconds": 60.0} | wrong
    with pytest.raises(ConfigurationError, match="token"):
        run(tokens.issue("robot", BOT, **given))
    for name in ("", " ", "a\nb", "a" * 201):
        with pytest.raises(ConfigurationError, match="name of a token"):
            run(tokens.issue(name, BOT, scopes=["read"], seconds=60.0))
    with pytest.raises(StoreError, match="tenant"):
        run(tokens.issue("robot", BOT, scopes=["read"], seconds=60.0, tenant="a\nb"))
    assert store.select_documents(KIND) == []


# In the inbox


def test_a_token_and_a_cookie_together_are_refused_and_a_basic_password_is_no_token() -> None:
    store = MemoryStore()
    issued = run(ApiTokens(store).issue("robot", BOT, scopes=["read"], seconds=60.0))
    session = run(Sessions(store).begin(RITA))
    inbox = inbox_of(store)
    bearer = {"authorization": f"Bearer {issued.secret}"}

    def status(headers: dict[str, str], cookie: str | None = None, who: str | None = None) -> int:
        visitor = Visitor(inbox, who)
        visitor.cookies = {"__Host-phronomy": cookie} if cookie else {}
        return visitor.get("/healthz", headers=headers).status_code

    assert status(bearer) == status({}, session) == 200
    assert status(bearer, session) == status(bearer, "x") == 400
    assert status({"authorization": "Basic cml0YTpy"}, session) == 200
    assert status({"authorization": "Bearer phr_wrong"}) == 401
    assert status({"authorization": "Bearer phr_wrong"}, who="rita") == 401, "a wrong token is never passed by"
    assert status({"authorization": "Bearer of-another-issuer"}) == 401
    assert status({"authorization": "Bearer of-another-issuer"}, who="rita") == 200


def test_a_token_has_no_more_scopes_than_its_principal() -> None:
    store = MemoryStore()
    issued = run(ApiTokens(store).issue("robot", BOT, scopes=["read", "start", "cancel"], seconds=60.0))
    inbox = inbox_of(store, scopes=lambda who: {"read", "start"} if "clerk" in who.roles else set())
    found = run(inbox.identify(request_with(f"Bearer {issued.secret}")))
    assert found is not None and found.scopes == {"read", "start"}
    other = run(ApiTokens(store).issue("robot", OTTO.evolve(roles=()), scopes=["read"], seconds=60.0))
    found = run(inbox.identify(request_with(f"Bearer {other.secret}")))
    assert found is not None and found.scopes == set()


def test_no_token_is_in_a_log(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    issued = run(ApiTokens(store).issue("robot", BOT, scopes=["read"], seconds=60.0))
    visitor = Visitor(inbox_of(store, auth=ByHeader()), None)
    with caplog.at_level(logging.DEBUG):
        for each in (issued.secret, issued.secret[:-1] + "!", "phr_secretsecret"):
            visitor.get("/healthz", headers={"authorization": f"Bearer {each}"})
    assert "bot by token" in caplog.text
    shown = [each.getMessage() + repr(each.__dict__) for each in caplog.records]
    assert not [each for each in shown if issued.secret[17:50] in each or "secretsecret" in each]


@pytest.mark.parametrize("via", ["token", "session"])
def test_an_auth_of_the_application_does_not_pass_for_a_token(via: str, caplog: pytest.LogCaptureFixture) -> None:
    """Or what another site has its visitors send would be taken."""

    class Wrong(ByHeader):
        async def identify(self, request: Request) -> Identity | None:
            found = await super().identify(request)
            return None if found is None else replace(found, via=via)

    visitor = Visitor(inbox_of(auth=Wrong()), "rita", **{"sec-fetch-site": "cross-site"})
    # The server is configured wrongly, and nobody who sends a request can correct that: the reason is in the log alone.
    answer = visitor.get("/healthz")
    assert answer.status_code == 500 and "via is a name" not in answer.text
    assert f"Wrong: via is a name of its own, not '{via}'" in caplog.text


FROZEN = (
    '{"version": 1, "hash": "%s", "name": "robot", "tenant": "acme", "created": 1000000.0, "expires": 9000000.0,'
    ' "used": 1000800.0, "listed": false, "principal": {"id": "bot", "name": null, "kind": "service", "roles": ["clerk"]},'
    ' "scopes": ["decide", "read"]}'
)


def test_a_token_of_the_first_version_still_counts(desk: Desk) -> None:
    secret = "phr_0123456789ab_" + "A" * 43
    text = FROZEN % hashlib.sha256(secret.encode()).hexdigest()
    desk.store.put_document(Document(kind=KIND, key="0123456789ab", text=text, expires_at=9_000_000.0))
    found = desk.who(f"Bearer {secret}")
    assert found == Identity(principal=BOT, tenant="acme", scopes=frozenset({"decide", "read"}), via="token")
    (token,) = run(desk.tokens.list())
    assert (token.name, token.created_at.timestamp()) == ("robot", 1_000_000.0)


# At a terminal


@pytest.mark.usefixtures("cli_place")
def test_tokens_are_issued_listed_and_revoked_at_a_terminal(
    said: Callable[[], str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    SQLiteStore("runs.db").close()

    def token(*line: str) -> int:
        return cli.run(["token", line[0], "--store", STORE, *line[1:]])

    assert token("list") == cli.DONE
    assert said() == "There are no tokens.\n"
    assert token("issue", "month end", "--as", "reports") == cli.DONE
    head, row, _, note, secret = said().splitlines()
    assert head.split() == ["TOKEN", "NAME", "PRINCIPAL", "TENANT", "SCOPES", "UNTIL", "LAST", "USED"]
    assert row.split()[1:6] == ["month", "end", "reports", "-", "read"] and row.endswith("never")
    assert "shown this once" in note
    with SQLiteStore("runs.db") as store:
        found = run(ApiTokens(store).identify(request_with(f"Bearer {secret}")))
    assert found is not None and (found.principal.kind, found.tenant) == ("service", None)
    line = ("--scope", "decide", "--role", "clerk", "--human", "--for-tenant", "acme", "--until", "revoked", "--json")
    assert token("issue", "robot", "--as", "rita", *line) == cli.DONE
    made = json.loads(said())
    assert token("list") == cli.DONE
    assert "decide  until it is revoked" in said()
    assert made.pop("secret").startswith(f"phr_{made['id']}_")
    assert isinstance(made.pop("created_at"), str) and made == {
        "id": made["id"], "name": "robot", "principal": "rita", "kind": "human", "roles": ["clerk"], "tenant": "acme",
        "scopes": ["decide"], "expires_at": None, "used_at": None,
    }  # fmt: skip
    assert token("list", "--json") == cli.DONE
    items = json.loads(said())["items"]
    assert [(each["name"], each["used_at"] is None) for each in items] == [("month end", False), ("robot", True)]
    assert token("list") == cli.DONE
    assert len(lines := said().splitlines()) == 3 and secret not in "".join(lines)
    assert re.search(r"  \d{4}-\d\d-\d\d \d\d:00 to \d\d:00 UTC$", lines[1])
    assert token("revoke", made["id"]) == cli.DONE
    assert said() == "The token was revoked.\n"
    assert token("revoke", made["id"]) == cli.MISUSED
    assert capsys.readouterr().err.startswith(f"phronomy: error: there is no token '{made['id']}' ")
    assert token("revoke", items[0]["id"], "--json") == cli.DONE
    assert json.loads(said()) == {"id": items[0]["id"], "revoked": True}
    assert cli.run(["token"]) == cli.DONE
    assert "issue" in said()


@pytest.mark.usefixtures("cli_place")
@pytest.mark.parametrize(
    ("line", "why"),
    [
        (("x",), "--as"),
        (("x", "--as", ""), "--as is empty: give the id"),
        (("", "--as", "bot"), "the name of a token"),
        (("x", "--as", "bot", "--scope", "admin"), "the scopes of a token are some of read, decide"),
        (("x", "--as", "bot", "--until", "soon"), "or a time from now such as 2h"),
        (("x", "--as", "bot", "--until", "2020-01-01"), "is over already"),
        (("x", "--as", "bot", "--until", "0s"), "is over already"),
    ],
)
def test_a_command_that_says_too_little_issues_nothing(
    line: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    SQLiteStore("runs.db").close()
    assert cli.run(["token", "issue", "--store", STORE, *line]) == cli.MISUSED
    assert why in capsys.readouterr().err
    with SQLiteStore("runs.db") as store:
        assert store.select_documents(KIND) == []


@pytest.fixture
def without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """No web framework is there, and nothing that needs one was imported."""
    monkeypatch.setattr(phronomy, "inbox", phronomy.inbox)  # an import sets it, and it is to be this one afterwards
    for each in [each for each in sys.modules if each.startswith(("phronomy.inbox", "starlette"))]:
        monkeypatch.delitem(sys.modules, each)
    monkeypatch.setitem(sys.modules, "starlette", None)


@pytest.mark.usefixtures("cli_place", "without_the_extra")
def test_tokens_are_managed_where_no_web_framework_is(capsys: pytest.CaptureFixture[str]) -> None:
    SQLiteStore("runs.db").close()
    assert cli.run(["token", "list", "--store", STORE]) == cli.DONE
    assert capsys.readouterr().out == "There are no tokens.\n"
    assert cli.run(["token", "issue", "robot", "--as", "bot", "--store", STORE]) == cli.DONE
    assert "\nphr_" in capsys.readouterr().out


@pytest.mark.usefixtures("without_the_extra")
@pytest.mark.parametrize("name", ["Inbox", "OIDC", "mounted"])
def test_an_inbox_without_the_extra_says_what_to_install(name: str) -> None:
    inbox = importlib.import_module("phronomy.inbox")
    assert inbox.ApiTokens.__name__ == "ApiTokens"
    with pytest.raises(ImportError, match=rf"^{name} needs starlette: pip install 'phronomy\[inbox\]'$"):
        getattr(inbox, name)
