"""A proxy that signs people in: believed at its own address and with its secret, and nobody else is."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from inbox_scenes import RITA, Visitor, inbox_of, run
from starlette.requests import Request
from tables import each
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from phronomy import ConfigurationError, MemoryStore, Principal, StoreError
from phronomy.inbox import Identity, Problem, TrustedProxy
from phronomy.inbox.auth.identity import SCOPES
from phronomy.inbox.auth.sessions import Sessions
from phronomy.people import Person, StoreDirectory

SECRET, NEXT = "s3cret" * 8, "an0ther" * 8
HERE = ("10.0.0.5", 41_000)
UDS: tuple[str, None] = ("/run/inbox.sock", None)


def proxy(**options: Any) -> TrustedProxy:
    return TrustedProxy(
        **{
            "peers": ["10.0.0.5", "2001:db8::/120"],
            "secret": SECRET,
            "name_header": "X-Name",
            "roles_header": "X-Roles",
            **options,
        }
    )


def request(*pairs: tuple[str, str], peer: Any = HERE, server: Any = ("10.0.0.9", 80)) -> Request:
    headers = [(name.encode(), value.encode()) for name, value in pairs]
    return Request({"type": "http", "headers": headers, "client": peer, "server": server})


PROOF = ("x-proxy-secret", SECRET)
USER = ("x-forwarded-user", "rita")
GOOD = (PROOF, USER, ("x-name", "Rita Müller"), ("x-roles", "lead, refunds ,lead,"))


def who(given: TrustedProxy, *pairs: tuple[str, str], **options: Any) -> Identity | None:
    return run(given.identify(request(*pairs, **options)))


def refused(given: TrustedProxy, *pairs: tuple[str, str], **options: Any) -> None:
    with pytest.raises(Problem) as caught:
        who(given, *pairs, **options)
    assert (caught.value.type, caught.value.status) == ("bad-request", 400)


@pytest.mark.parametrize("peer", [HERE, ("::ffff:10.0.0.5", 1), ("2001:db8::7", 41_000)])
def test_the_proxy_says_who_somebody_is(peer: tuple[str, int]) -> None:
    found = who(proxy(), *GOOD, peer=peer)
    principal = Principal(id="proxy:rita", name="Rita Müller", roles=("lead", "refunds"))
    assert found == Identity(principal=principal, via="proxy", scopes=frozenset(SCOPES))
    assert who(proxy(), PROOF, USER) == Identity(
        principal=Principal(id="proxy:rita"), via="proxy", scopes=frozenset(SCOPES)
    )


@pytest.mark.parametrize(
    "peer",
    [
        ("10.0.0.6", 1),
        ("127.0.0.1", 1),
        ("2001:db8::1:7", 1),
        ("testclient", 1),
        ("", 1),
        None,
        ("10.0.0.5", 0),
        ("::1", 1),
    ],
)
def test_nobody_else_is_believed_even_with_the_secret(peer: Any, caplog: pytest.LogCaptureFixture) -> None:
    refused(proxy(), *GOOD, peer=peer)
    refused(proxy(), USER, peer=peer)
    refused(proxy(), PROOF, peer=peer)
    refused(proxy(), ("x-roles", "lead"), peer=peer)
    assert len(caplog.messages) == 4 and "headers of the proxy come from another address" in caplog.text
    assert SECRET not in caplog.text and "rita" not in caplog.text
    assert who(proxy(), ("x-other", "rita"), peer=peer) is None


@pytest.mark.parametrize(
    "pairs",
    [
        [USER],
        [USER, ("x-proxy-secret", "")],
        [USER, ("x-proxy-secret", SECRET[:-1])],
        [USER, ("x-proxy-secret", SECRET + "x")],
        [USER, ("x-proxy-secret", NEXT)],
        [USER, ("x-proxy-secret", "ü" * 40)],
        [PROOF, PROOF, USER],
        [PROOF, USER, USER],
        [PROOF, USER, ("X-Forwarded-User", "root")],
        [PROOF, USER, ("x-roles", "lead"), ("x-roles", "root")],
        [PROOF, ("x_forwarded_user", "root")],
        [PROOF, USER, ("x_forwarded-user", "root")],
        [PROOF, USER, ("x_roles", "root")],
        [PROOF, USER, ("X_Proxy_Secret", SECRET)],
        [PROOF, ("x-roles", "lead")],
        [PROOF, ("x-forwarded-user", "  "), ("x-name", "Rita")],
    ],
)
def test_what_the_proxy_would_not_send_is_refused_and_noted(
    pairs: Sequence[tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    refused(proxy(), *pairs)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "refused a request from 10.0.0.5: " in caplog.text
    assert not [each for each in (SECRET, SECRET[:-1], NEXT, "rita", "root", "lead") if each in caplog.text]


def test_what_is_no_text_is_refused() -> None:
    raw = Request(
        {
            "type": "http",
            "headers": [(b"x-proxy-secret", SECRET.encode()), (b"x-forwarded-user", b"\xff")],
            "client": HERE,
        }
    )
    with pytest.raises(Problem):
        run(proxy().identify(raw))


def test_an_empty_user_is_nobody() -> None:
    for pairs in ([PROOF], [PROOF, ("x-forwarded-user", "")], [PROOF, ("x-forwarded-user", " "), ("x-roles", "")]):
        assert who(proxy(), *pairs) is None
    assert who(proxy()) is None


def test_a_socket_is_a_peer_only_if_it_is_named() -> None:
    assert who(proxy(peers=["unix"]), *GOOD, peer=None, server=UDS) is not None
    refused(proxy(), *GOOD, peer=None, server=UDS)
    refused(proxy(peers=["unix"]), *GOOD)
    refused(proxy(peers=["unix"]), *GOOD, peer=None)  # an address, whose other end is not known
    refused(proxy(peers=["unix"]), *GOOD, peer=None, server=None)


def test_the_secret_can_be_changed_and_all_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    given = proxy(secret=[SECRET, NEXT])
    assert who(given, *GOOD) is not None and who(given, ("x-proxy-secret", NEXT), USER) is not None
    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(a) or a == b)
    assert who(given, *GOOD) is not None and len(compared) == 2
    assert SECRET not in repr(given) and NEXT not in repr(given) and "10.0.0.5/32" in repr(given)


def test_the_tenant_is_the_proxy_s_word_and_never_missing() -> None:
    given = proxy(tenant_header="X-Tenant")
    found = who(given, *GOOD, ("x-tenant", "acme"))
    assert found is not None and found.tenant == "acme"
    refused(given, *GOOD)
    refused(given, *GOOD, ("x-tenant", " "))
    refused(given, *GOOD, ("x-tenant", "a\u202eb"))
    with pytest.raises(StoreError, match="tenant"):
        proxy(tenant="a\n")
    refused(given, *GOOD, ("x-tenant", "acme"), ("x-tenant", "other"))
    found = who(proxy(tenant="acme", scopes=["read"]), *GOOD)
    assert found is not None and (found.tenant, found.scopes) == ("acme", {"read"})


@pytest.mark.parametrize("separator", [",", ";", " "])
def test_roles_are_separated_as_the_proxy_does(separator: str) -> None:
    found = who(proxy(separator=separator), PROOF, USER, ("x-roles", f"a{separator}b"))
    assert found is not None and found.principal.roles == ("a", "b")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"peers": []}, "peers are"),
        ({"peers": "10.0.0.5"}, "peers are"),
        ({"peers": ["proxy.example"]}, "a peer is"),
        ({"peers": ["10.0.0.5/8"]}, "a peer is"),
        ({"peers": ["0.0.0.0/0"]}, "all addresses"),
        ({"peers": ["::/0"]}, "all addresses"),
        ({"peers": ["*"]}, "a peer is"),
        ({"secret": ""}, "at least 32"),
        ({"secret": "short"}, "at least 32"),
        ({"secret": []}, "at least 32"),
        ({"secret": [SECRET, "short"]}, "at least 32"),
        ({"secret": f" {SECRET}"}, "at least 32"),
        ({"secret": None}, "at least 32"),
        ({"user_header": "X_User"}, "user_header"),
        ({"user_header": ""}, "user_header"),
        ({"roles_header": "Authorization"}, "another meaning"),
        ({"roles_header": "x-forwarded-user"}, "same name"),
        ({"tenant": "acme", "tenant_header": "X-Tenant"}, "not both"),
        ({"separator": ""}, "separator"),
    ],
)
def test_a_proxy_that_anybody_could_be_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        proxy(**wrong)
    assert "short" not in str(caught.value)


# In the inbox


async def status(inbox: Any, headers: Sequence[tuple[str, str]], peer: Any = HERE, server: Any = ("h", 80)) -> int:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    given = [("host", "inbox.example"), ("accept", "text/html"), *headers]
    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "path": "/me", "raw_path": b"/me", "root_path": "",
        "query_string": b"", "scheme": "http", "client": peer, "server": server,
        "headers": [(name.encode(), value.encode()) for name, value in given],
    }  # fmt: skip
    await inbox(scope, receive, send)
    found: int = sent[0]["status"]
    return found


def test_a_forged_header_is_refused_even_beside_a_session_or_a_token(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    inbox = inbox_of(store, auth=proxy())
    cookie = ("cookie", f"__Host-phronomy={run(Sessions(store).begin(RITA))}")
    assert run(status(inbox, [cookie], ("192.0.2.9", 1))) == 200
    assert run(status(inbox, [cookie, USER], ("192.0.2.9", 1))) == 400
    assert run(status(inbox, GOOD)) == 200
    token = run(inbox.site.tokens.issue("t", RITA, scopes=["read"], seconds=60)).secret
    for bearer in (token, "phr_wrong", "of-another-issuer"):
        with caplog.at_level(logging.WARNING):
            assert run(status(inbox, [("authorization", f"Bearer {bearer}"), USER], ("192.0.2.9", 1))) == 400
        assert "headers of the proxy come from another address" in caplog.text
        caplog.clear()
    assert run(status(inbox, GOOD, ("192.0.2.9", 1))) == 400
    assert run(status(inbox, [PROOF])) == 303


def test_a_server_that_rewrites_the_peer_lets_nobody_in() -> None:
    """By default uvicorn takes the address from a header if the peer is on the loopback interface, so that any client can choose it."""
    inbox = inbox_of(auth=proxy())
    behind = ProxyHeadersMiddleware(inbox)  # type: ignore[arg-type]
    forged = [*GOOD, ("x-forwarded-for", "10.0.0.5")]
    assert run(status(behind, forged, ("127.0.0.1", 5000))) == 400
    assert run(status(inbox, forged, ("127.0.0.1", 5000))) == 400
    # With a port it looks like a peer: then the secret alone is between them and us.
    chosen = [USER, ("x-forwarded-for", "10.0.0.5:41000")]
    for proof in ([], [("x-proxy-secret", NEXT)]):
        assert run(status(behind, [*chosen, *proof], ("127.0.0.1", 5000))) == 400
    assert run(status(behind, GOOD)) == 200


def test_the_directory_s_roles_win_over_the_proxy_s() -> None:
    store = MemoryStore()
    StoreDirectory(store).add(Person(id="rita", roles=("clerk",), aliases=("proxy:rita", "proxy:rita@example.org")))
    seen: list[Principal] = []
    inbox = inbox_of(store, auth=proxy(), scopes=lambda by: (seen.append(by), ["read"])[1])
    found = run(inbox.identify(request(*GOOD)))
    assert found is not None and (found.principal.roles, found.scopes) == (("clerk",), {"read"})
    found = run(inbox.identify(request(PROOF, ("x-forwarded-user", "rita@example.org"))))
    assert found is not None and found.principal.id == "rita"
    assert [each.roles for each in seen] == [("clerk",), ("clerk",)]


@each(
    "name", ["slack:T1/U0RITA", "email:rita@example.org", "oidc:https://login.example#7", "proxy:rita", "ada", "rita"]
)
def test_nobody_becomes_somebody_else_by_the_name_that_they_choose_at_the_proxy(name: str) -> None:
    """No name there is an id or an alias of another way, however it is spelled."""
    store = MemoryStore()
    aliases = ("slack:T1/U0RITA", "email:rita@example.org", "oidc:https://login.example#7", "proxy:proxy-rita")
    StoreDirectory(store).add(Person(id="rita", roles=("finance",), aliases=aliases))
    StoreDirectory(store).add(Person(id="ada", roles=("finance",)))
    inbox = inbox_of(store, auth=proxy())
    found = run(inbox.identify(request(PROOF, ("x-forwarded-user", name))))
    assert found is not None and (found.principal.id, found.principal.roles) == (f"proxy:{name}", ())
    bare = inbox_of(store, auth=proxy(prefix=""))
    if ":" in name:
        with pytest.raises(Problem):
            run(bare.identify(request(PROOF, ("x-forwarded-user", name))))
    else:  # without a prefix, the names there are the ids of the directory
        found = run(bare.identify(request(PROOF, ("x-forwarded-user", name))))
        assert found is not None and (found.principal.id, found.principal.roles) == (name, ("finance",))


@each(
    "prefix",
    ["slack:", "email:", "oidc:", "telegram:", "teams:", "discord:", "webhook:", "gate", ":", "Gate:", "a:b:", 7, None],
)
def test_the_prefix_is_of_no_other_way(prefix: Any) -> None:
    with pytest.raises(ConfigurationError, match="prefix"):
        proxy(prefix=prefix)


def test_the_secret_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    inbox = inbox_of(auth=proxy())
    visitor = Visitor(inbox, None)
    with caplog.at_level(logging.DEBUG):
        visitor.get("/me", headers={"x-proxy-secret": SECRET, "x-forwarded-user": "rita"})
        asyncio.run(status(inbox, GOOD))
    assert "GET /me 200, proxy:rita by proxy" in caplog.text
    assert not [each for each in caplog.records if SECRET in each.getMessage() + repr(each.__dict__)]
