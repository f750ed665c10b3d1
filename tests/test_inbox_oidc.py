"""Signing in with OpenID Connect: the good path, and what a hostile provider, a hostile browser and another site try.

The inbox talks to providers over real HTTP. Where it refuses somebody it says so on a page, and nobody is signed in.
"""

from __future__ import annotations

import asyncio
import html
import http.client
import json
import logging
import re
import warnings
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit

import hostile_oidc as hostile
import httpx2
import pytest
from hostile_oidc import ACCESS, CLIENT, MARK, NOW, SECRET, Clock, HostileProvider
from inbox_scenes import ORIGIN, ByHeader, Visitor, run
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from starlette.responses import JSONResponse, Response

from phronomy import ConfigurationError, MemoryStore, Principal, StoreError
from phronomy.inbox import OIDC, Inbox, Problem
from phronomy.inbox.auth import sessions
from phronomy.inbox.auth.limits import Failures, Limits
from phronomy.inbox.oidc import attempts
from phronomy.inbox.oidc.provider import is_safe_url
from phronomy.inbox.oidc.tokens import keys_in
from phronomy.inbox.routes import Route
from phronomy.inbox.visit import Visit
from phronomy.people import Person, StoreDirectory
from phronomy.stores.base import Store

SUBJECT = "248289761001"


@pytest.fixture(scope="module")
def served() -> Iterator[HostileProvider]:
    provider = HostileProvider("")
    with hostile.serving(provider.app()) as issuer:
        provider.issuer = issuer
        yield provider


@pytest.fixture
def provider(served: HostileProvider, clock: Clock) -> HostileProvider:
    served.reset()
    served.clock = clock
    return served


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return MemoryStore(clock=clock)


class Who:
    """A page that says who is signed in."""

    label = "nothing"
    start = "/who"

    async def identify(self, request: Any) -> None:
        return None

    def routes(self) -> tuple[Route, ...]:
        return (Route(method="GET", path="/who", handler=self.who),)

    async def who(self, visit: Visit) -> Response:
        principal = visit.identity.principal
        return JSONResponse(
            {
                "id": principal.id,
                "name": principal.name,
                "roles": list(principal.roles),
                "tenant": visit.identity.tenant,
                "scopes": sorted(visit.identity.scopes),
            }
        )


def oidc(provider: HostileProvider, **options: Any) -> OIDC:
    given: dict[str, Any] = {"issuer": provider.issuer, "client_id": CLIENT, "client_secret": SECRET, **options}
    return OIDC(**given)


def inbox_with(store: Store, *auth: Any, **options: Any) -> Inbox:
    limits = Limits(store, logins=1_000)
    return Inbox(store, auth=[*auth, Who()], **{"public_url": ORIGIN, "limits": limits, **options})


class Browser(Visitor):
    """A browser with an inbox and a provider. It follows redirects where it is told to, and keeps its cookies."""

    def __init__(self, inbox: Any, **options: Any) -> None:
        super().__init__(inbox, None, **options)
        self.jar = httpx2.Cookies()

    def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """The answer to one request. What an answer has a browser forget is forgotten."""

        async def send() -> httpx2.Response:
            transport = httpx2.ASGITransport(app=self.inbox, root_path=self.prefix)
            headers = {**self.headers, **options.pop("headers", {})}
            async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN, cookies=self.jar) as client:
                answer = await client.request(method, self.prefix + path, headers=headers, **options)
                self.jar = client.cookies
                return answer

        return run(send())

    def plant(self, cookies: dict[str, str]) -> None:
        """Have these cookies, and no others."""
        self.jar = httpx2.Cookies()
        for name, value in cookies.items():
            self.jar.set(name, value, domain="inbox.example", path="/")

    def kept(self) -> dict[str, str]:
        """The cookies that it has."""
        return {cookie.name: str(cookie.value) for cookie in self.jar.jar}

    def begin(self, start: str = "/auth/oidc/start", **query: Any) -> httpx2.Response:
        """Go to the sign-in, and come as far as the way to the provider."""
        return self.get(f"{start}?{urlencode(query)}")

    def there(self, **query: Any) -> str:
        """Begin, sign in at the provider, and stop on the way back: the path and the query that lead back."""
        answer = self.begin(**query)
        assert answer.status_code == 303, answer.text
        back = visited(answer.headers["location"])
        assert back.startswith(f"{ORIGIN}{self.prefix}/")
        return back.removeprefix(ORIGIN + self.prefix)

    def sign_in(self, **query: Any) -> httpx2.Response:
        """Go all the way: the answer of the inbox when the browser has come back."""
        return self.get(self.there(**query))

    def who(self) -> Any:
        """Who the inbox says is signed in; None for nobody."""
        answer = self.get("/who")
        return answer.json() if answer.status_code == 200 else None

    @property
    def attempts(self) -> list[str]:
        """The names of the cookies of attempts."""
        return [name for name in self.kept() if "phronomy-login-" in name]


def visited(url: str) -> str:
    """Where the provider sends a browser that comes to this address."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}")
        answer = connection.getresponse()
        assert answer.status == 302, answer.read()
        return str(answer.headers["location"])
    finally:
        connection.close()


def sessions_in(store: Store) -> int:
    return len(store.select_documents(sessions.KIND))


def changed(path: str, **changes: str | None) -> str:
    """The path with other parameters; None takes one away."""
    parts = urlsplit(path)
    query = {**dict(parse_qsl(parts.query)), **changes}
    return f"{parts.path}?{urlencode({name: value for name, value in query.items() if value is not None})}"


def refused(answer: httpx2.Response, status: int, says: str, browser: Browser) -> None:
    """It is a page with this status and reason, nobody is signed in, and nothing of the provider's is on it."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8"), answer.text
    assert says in answer.text, answer.text
    assert "alert(" not in answer.text and "evil.example" not in answer.text
    assert "__Host-phronomy" not in browser.kept() and browser.who() is None
    assert sessions_in(browser.inbox.site.store) == 0


# The good path


def test_somebody_signs_in_and_comes_back_to_the_page_that_they_wanted(
    provider: HostileProvider, store: MemoryStore
) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    begun = browser.begin(to="/requests/r1?tab=values")
    there = urlsplit(begun.headers["location"])
    asked = {name: values[0] for name, values in parse_qs(there.query).items()}
    assert f"{there.scheme}://{there.netloc}{there.path}" == f"{provider.issuer}/authorize"
    assert asked == {
        "response_type": "code",
        "client_id": CLIENT,
        "redirect_uri": "https://inbox.example/auth/oidc/callback",
        "scope": "openid profile email",
        "state": asked["state"],
        "nonce": asked["nonce"],
        "code_challenge": asked["code_challenge"],
        "code_challenge_method": "S256",
    }
    # 256 bits are 43 characters.
    assert [len(asked[each]) for each in ("state", "nonce", "code_challenge")] == [43, 43, 43]

    back = visited(begun.headers["location"]).removeprefix(ORIGIN)
    done = browser.get(back)
    assert (done.status_code, done.headers["location"]) == (303, "/requests/r1?tab=values")
    assert done.headers["referrer-policy"] == "no-referrer" and done.headers["cache-control"] == "no-store"
    assert browser.attempts == [] and sessions_in(store) == 1
    assert browser.who() == {
        "id": f"oidc:{provider.issuer}#{SUBJECT}",
        "name": "Rita Ray",
        "roles": [],
        "tenant": None,
        "scopes": ["decide", "read"],
    }
    form, headers = provider.sent("token")
    assert hostile.challenge_of(form["code_verifier"]) == asked["code_challenge"] and len(form["code_verifier"]) == 43
    assert "client_secret" not in form and headers["authorization"].startswith("Basic ")
    assert headers["accept-encoding"] == "identity"


def test_whoever_is_not_signed_in_is_led_to_the_provider_and_back(
    provider: HostileProvider, store: MemoryStore
) -> None:
    browser = Browser(inbox_with(store, oidc(provider, label="Example <Inc>"), public_url=f"{ORIGIN}/in"), prefix="/in")
    turned_away = browser.get("/me?a=b%26c")
    assert turned_away.status_code == 303
    page = browser.get(turned_away.headers["location"].removeprefix("/in")).text
    [link] = re.findall(r'<a [^>]*href="([^"]+)">Sign in with Example &lt;Inc&gt;</a>', page)
    begun = browser.get(html.unescape(link).removeprefix("/in"))
    done = browser.get(visited(begun.headers["location"]).removeprefix(f"{ORIGIN}/in"))
    assert done.headers["location"] == "/in/me?a=b%26c"
    me = browser.get("/me?a=b%26c")
    assert me.status_code == 200 and "Rita Ray" in me.text


def test_the_cookie_of_an_attempt_is_bound_to_the_host_and_sealed(
    provider: HostileProvider, store: MemoryStore
) -> None:
    begun = Browser(inbox_with(store, oidc(provider))).begin(to="/history")
    cookie = begun.headers["set-cookie"]
    asked = dict(parse_qsl(urlsplit(begun.headers["location"]).query))
    assert cookie.startswith(f"__Host-phronomy-login-{attempts.key_of(asked['state'])[:32]}=")
    for each in ("Secure", "HttpOnly", "SameSite=lax", "Path=/", "Max-Age=600"):
        assert f"; {each}" in cookie
    for each in (asked["state"], asked["nonce"], "history", "Domain"):
        assert each not in cookie


def test_two_attempts_of_one_browser_do_not_disturb_each_other(provider: HostileProvider, store: MemoryStore) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    first, second = browser.there(to="/history"), browser.there(to="/grants")
    assert browser.get(second).headers["location"] == "/grants"
    assert browser.get(first).headers["location"] == "/history"
    assert sessions_in(store) == 1  # the second has replaced the first


def test_under_a_prefix_the_way_back_is_that_of_the_public_url(provider: HostileProvider, store: MemoryStore) -> None:
    inbox = inbox_with(store, oidc(provider), public_url=f"{ORIGIN}/admin/inbox/")
    browser = Browser(inbox, prefix="/admin/inbox")
    done = browser.sign_in(to="/history")
    assert (done.status_code, done.headers["location"]) == (303, "/admin/inbox/history")
    assert provider.sent("token")[0]["redirect_uri"] == "https://inbox.example/admin/inbox/auth/oidc/callback"


@pytest.mark.parametrize(
    ("secret", "methods", "sent"),
    [
        (None, None, {"client_id": CLIENT}),
        (SECRET, ["client_secret_post"], {"client_id": CLIENT, "client_secret": SECRET}),
        (SECRET, ["client_secret_post", "client_secret_basic"], {}),
    ],
)
def test_a_client_is_known_as_the_provider_wants_it(
    provider: HostileProvider, store: MemoryStore, secret: str | None, methods: Any, sent: dict[str, str]
) -> None:
    provider.secret, provider.metadata = secret, {"token_endpoint_auth_methods_supported": methods}
    browser = Browser(inbox_with(store, oidc(provider, client_secret=secret)))
    assert browser.sign_in().status_code == 303
    form = provider.sent("token")[0]
    assert {name: form[name] for name in form if name.startswith("client_")} == sent


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("PS256", hostile.rsa("first")),
        ("ES256", ECKey.generate_key("P-256", {"kid": "e"})),
        ("ES384", ECKey.generate_key("P-384", {"kid": "e"})),
        ("Ed25519", OKPKey.generate_key("Ed25519", {"kid": "e"})),
    ],
)
def test_other_algorithms_count_where_they_are_allowed(
    provider: HostileProvider, store: MemoryStore, algorithm: str, key: Any
) -> None:
    provider.key, provider.header = key, {"alg": algorithm}
    provider.published = [hostile.public(key, alg=algorithm)]
    allowed = Browser(inbox_with(store, oidc(provider, algorithms=[algorithm])))
    assert allowed.sign_in().status_code == 303
    others = MemoryStore(clock=provider.clock)
    other = Browser(inbox_with(others, oidc(provider, algorithms=["RS256"])))
    refused(other.sign_in(), 400, "not signed with an algorithm that is allowed", other)


def test_two_providers_have_a_name_and_a_way_back_each(provider: HostileProvider, store: MemoryStore) -> None:
    inbox = inbox_with(store, oidc(provider), oidc(provider, name="partners", label="Partners"))
    assert [each.label for each in inbox.site.sign_ins][:2] == ["single sign-on", "Partners"]
    browser = Browser(inbox)
    back = visited(browser.begin("/auth/partners/start").headers["location"])
    assert back.startswith(f"{ORIGIN}/auth/partners/callback?")
    assert browser.get(back.removeprefix(ORIGIN)).status_code == 303
    with pytest.raises(ConfigurationError, match="two routes answer GET /auth/oidc/start"):
        inbox_with(store, oidc(provider), oidc(provider))


# Who somebody is


def test_roles_are_those_of_the_claim_that_is_named(provider: HostileProvider, store: MemoryStore) -> None:
    browser = Browser(inbox_with(store, oidc(provider, roles="groups")))
    browser.sign_in()
    assert browser.who()["roles"] == ["lead", "refunds"]


@pytest.mark.parametrize(("claim", "roles"), [(None, []), ("lead", ["lead"]), ([], [])])
def test_a_claim_of_roles_may_be_missing_or_one_text(
    provider: HostileProvider, store: MemoryStore, claim: Any, roles: list[str]
) -> None:
    provider.claims = {"groups": claim}
    browser = Browser(inbox_with(store, oidc(provider, roles="groups")))
    browser.sign_in()
    assert browser.who()["roles"] == roles


@pytest.mark.parametrize("claim", [7, True, {"lead": True}, ["lead", 7], ["lead", ""], [["lead"]], "", ["r"] * 501])
def test_a_claim_of_roles_that_cannot_be_read_gives_none(
    provider: HostileProvider, store: MemoryStore, claim: Any
) -> None:
    provider.claims = {"groups": claim}
    browser = Browser(inbox_with(store, oidc(provider, roles="groups")))
    refused(browser.sign_in(), 400, "names your roles in a way", browser)


def test_more_roles_than_the_store_keeps_are_a_page(provider: HostileProvider, store: MemoryStore) -> None:
    provider.claims, provider.told = {"groups": None}, {"groups": [f"{n}" + "r" * 300 for n in range(400)]}
    browser = Browser(inbox_with(store, oidc(provider, roles="groups", userinfo=True)))
    refused(browser.sign_in(), 503, "The store cannot be reached", browser)


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"name": None, "preferred_username": "rita"}, "rita"),
        ({"name": "", "preferred_username": 7}, "rita@example.org"),
        ({"name": None, "email": None}, None),
        ({"name": "R" * 5_000}, "R" * 200),
        ({"name": "Ri\ud800ta"}, "Ri\ufffdta"),
        ({"name": "R\x00i"}, "R\x00i"),
        ({"name": MARK}, MARK),
    ],
)
def test_names_are_for_people_and_of_a_bounded_length(
    provider: HostileProvider, store: MemoryStore, claims: dict[str, Any], name: str | None
) -> None:
    provider.claims = claims
    browser = Browser(inbox_with(store, oidc(provider)))
    browser.sign_in()
    assert browser.who()["name"] == name


def test_the_same_subject_of_another_issuer_is_another_person(provider: HostileProvider, store: MemoryStore) -> None:
    ours = oidc(provider)._by_default({"sub": SUBJECT, "email": "rita@example.org"})
    theirs = oidc(provider, issuer="https://other.example")._by_default({"sub": SUBJECT, "email": "rita@example.org"})
    assert ours.id != theirs.id == f"oidc:https://other.example#{SUBJECT}"


def test_a_function_makes_the_person_and_the_tenant(provider: HostileProvider, store: MemoryStore) -> None:
    async def person(claims: Any) -> Principal:
        return Principal(id=claims["email"], roles=("boss",), claims=dict(claims))

    browser = Browser(inbox_with(store, oidc(provider, principal=person, tenant=lambda claims: "acme")))
    browser.sign_in()
    assert browser.who() | {"scopes": []} == {
        "id": "rita@example.org",
        "name": None,
        "roles": ["boss"],
        "tenant": "acme",
        "scopes": [],
    }
    kept = "".join(
        document.text for kind in ("inbox-session", attempts.KIND) for document in store.select_documents(kind)
    )
    assert "groups" not in kept and SUBJECT not in kept  # claims are kept nowhere


def test_a_person_of_the_directory_is_known_by_the_id_of_the_provider(
    provider: HostileProvider, store: MemoryStore
) -> None:
    people = StoreDirectory(store)
    people.add(Person(id="rita", roles=("lead",), aliases=(f"oidc:{provider.issuer}#{SUBJECT}",)))
    browser = Browser(inbox_with(store, oidc(provider, roles="groups")))
    browser.sign_in()
    assert (browser.who()["id"], browser.who()["roles"]) == ("rita", ["lead"])
    provider.claims = {"sub": "rita"}  # the id of a person of ours is none of the provider's
    other = Browser(browser.inbox)
    other.sign_in()
    assert other.who()["id"] == f"oidc:{provider.issuer}#rita"


def test_a_login_from_before_somebody_was_listed_ends_with_the_person(
    provider: HostileProvider, store: MemoryStore
) -> None:
    """And they may sign in again, with the roles of the claim: to keep them out is for `principal`."""
    people = StoreDirectory(store)
    browser = Browser(inbox_with(store, oidc(provider, roles="groups")))
    browser.sign_in()
    assert browser.who()["roles"] == ["lead", "refunds"]
    people.add(Person(id="zoe", roles=("clerk",), aliases=(f"oidc:{provider.issuer}#{SUBJECT}",)))
    assert (browser.who()["id"], browser.who()["roles"]) == ("zoe", ["clerk"])
    people.remove("zoe")
    assert browser.get("/who").status_code in (303, 401) and sessions_in(store) == 0
    browser.sign_in()
    assert browser.who()["roles"] == ["lead", "refunds"]


def test_a_function_lets_people_of_the_directory_in_and_nobody_else(
    provider: HostileProvider, store: MemoryStore
) -> None:
    people = StoreDirectory(store)

    async def listed(claims: Any) -> Principal | None:
        return await people.aresolve(f"oidc:{claims['iss']}#{claims['sub']}")

    browser = Browser(inbox_with(store, oidc(provider, principal=listed)))
    refused(browser.sign_in(), 403, "you have no access", browser)
    people.add(Person(id="zoe", roles=("clerk",), aliases=(f"oidc:{provider.issuer}#{SUBJECT}",)))
    browser.sign_in()
    assert (browser.who()["id"], browser.who()["roles"]) == ("zoe", ["clerk"])
    people.remove("zoe")
    assert browser.get("/who").status_code in (303, 401)
    other = Browser(browser.inbox)
    refused(other.sign_in(), 403, "you have no access", other)


@pytest.mark.parametrize(
    "options",
    [
        {"principal": lambda claims: None},
        {"tenant": lambda claims: None},
        {"tenant": lambda claims: claims.get("org", "")},
    ],
)
def test_whoever_has_no_place_here_is_told_so(
    provider: HostileProvider, store: MemoryStore, options: dict[str, Any]
) -> None:
    browser = Browser(inbox_with(store, oidc(provider, **options)))
    refused(browser.sign_in(), 403, "you have no access to this server", browser)


def fails(claims: Any) -> Any:
    raise KeyError(claims["email"])


@pytest.mark.parametrize(
    "options",
    [
        {"principal": fails},
        {"principal": lambda claims: "rita"},
        {"tenant": fails},
        {"tenant": lambda claims: 7},
        {"tenant": lambda claims: "acme\x00"},
        {"tenant": lambda claims: "x" * 201},
    ],
)
def test_a_function_that_fails_signs_nobody_in_and_logs_no_claims(
    provider: HostileProvider, store: MemoryStore, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    browser = Browser(inbox_with(store, oidc(provider, **options)))
    refused(browser.sign_in(), 400, "its log has more", browser)
    assert f"the function {next(iter(options))} of OIDC(" in caplog.text and "rita@example.org" not in caplog.text


def test_scopes_are_those_that_the_inbox_gives(provider: HostileProvider, store: MemoryStore) -> None:
    browser = Browser(inbox_with(store, oidc(provider), scopes=lambda principal: {"read", "cancel"}))
    browser.sign_in()
    assert browser.who()["scopes"] == ["cancel", "read"]


def test_the_userinfo_endpoint_adds_claims_and_changes_none(provider: HostileProvider, store: MemoryStore) -> None:
    seen: dict[str, Any] = {}

    def person(claims: Any) -> Principal:
        seen.update(claims)
        return Principal(id=claims["sub"])

    assert Browser(inbox_with(store, oidc(provider, principal=person, userinfo=True))).sign_in().status_code == 303
    assert (seen["department"], seen["name"]) == ("refunds", "Rita Ray")


@pytest.mark.parametrize(
    ("told", "metadata", "says"),
    [
        ({"sub": "somebody else"}, {}, "its answers are about two people"),
        ({"sub": None}, {}, "its answers are about two people"),
        ({}, {"userinfo_endpoint": None}, "it has no UserInfo endpoint"),
    ],
)
def test_a_userinfo_endpoint_that_tells_of_somebody_else_counts_for_nothing(
    provider: HostileProvider, store: MemoryStore, told: dict[str, Any], metadata: dict[str, Any], says: str
) -> None:
    provider.told, provider.metadata = told, metadata
    browser = Browser(inbox_with(store, oidc(provider, userinfo=True)))
    refused(browser.sign_in(), 502, says, browser)


# What the provider says of itself


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"issuer": "https://evil.example"}, "another issuer"),
        ({"issuer": None}, "another issuer"),
        ({"issuer": "HTTP://127.0.0.1"}, "another issuer"),
        ({"issuer": ["https://evil.example"]}, "another issuer"),
        ({"authorization_endpoint": None}, "authorization_endpoint is no https address"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "authorization_endpoint is no https address"),
        ({"authorization_endpoint": "http://evil.example/a"}, "authorization_endpoint is no https address"),
        ({"authorization_endpoint": "https://evil.example/a#b"}, "authorization_endpoint is no https address"),
        ({"authorization_endpoint": "https://evil.example/a\r\nSet-Cookie: a=b"}, "is no https address"),
        ({"token_endpoint": "http://169.254.169.254/latest"}, "token_endpoint is no https address"),
        ({"token_endpoint": "file:///etc/passwd"}, "token_endpoint is no https address"),
        ({"token_endpoint": "https://user:pass@evil.example/"}, "token_endpoint is no https address"),
        ({"token_endpoint": 7}, "token_endpoint is no https address"),
        ({"jwks_uri": "https:///keys"}, "jwks_uri is no https address"),
        ({"jwks_uri": "https://evil.example:99999/"}, "jwks_uri is no https address"),
        ({"userinfo_endpoint": "ftp://evil.example/"}, "userinfo_endpoint is no https address"),
    ],
)
def test_a_provider_that_describes_itself_wrongly_is_not_used(
    provider: HostileProvider, store: MemoryStore, metadata: dict[str, Any], says: str
) -> None:
    provider.metadata = metadata
    browser = Browser(inbox_with(store, oidc(provider)))
    refused(browser.begin(), 502, says, browser)
    assert browser.attempts == []


@pytest.mark.parametrize("endpoint", ["discovery", "keys", "token", "userinfo"])
@pytest.mark.parametrize("bad", hostile.BAD_ANSWERS, ids=lambda bad: bad.__name__)
def test_an_answer_that_is_none_is_a_page(
    provider: HostileProvider, store: MemoryStore, endpoint: str, bad: Any, caplog: pytest.LogCaptureFixture
) -> None:
    provider.instead[endpoint] = bad
    browser = Browser(inbox_with(store, oidc(provider, userinfo=True)))
    answer = browser.begin() if endpoint == "discovery" else browser.sign_in()
    refused(answer, 502, "The provider cannot be asked who you are", browser)
    assert hostile.BAD_ANSWERS[bad] in answer.text
    assert MARK not in caplog.text and provider.asked("evil") == 0


@pytest.mark.parametrize("endpoint", ["discovery", "token"])
@pytest.mark.parametrize("slow", hostile.SLOW, ids=lambda slow: slow.__name__)
def test_nobody_waits_for_a_provider_that_is_slow(
    provider: HostileProvider, store: MemoryStore, endpoint: str, slow: Any
) -> None:
    auth = oidc(provider)
    browser = Browser(inbox_with(store, auth))
    back = browser.there() if endpoint == "token" else "/auth/oidc/start"
    provider.instead[endpoint] = slow
    auth._provider._timeout = 0.2  # from now on it is asked for nothing else
    refused(browser.get(back), 502, "it did not answer within 0.2 seconds", browser)


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"x" * 1_000,
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n \r\n"
        + b"1\r\n \r\n" * 100,
    ],
)
def test_a_provider_that_speaks_no_http_is_a_page(store: MemoryStore, text: bytes) -> None:
    with hostile.sending(text) as issuer:
        browser = Browser(inbox_with(store, OIDC(issuer=issuer, client_id=CLIENT, timeout=0.5)))
        refused(browser.begin(), 502, "The provider cannot be asked who you are", browser)


def test_a_provider_that_is_down_is_a_page(store: MemoryStore) -> None:
    browser = Browser(inbox_with(store, OIDC(issuer="http://127.0.0.1:9", client_id=CLIENT)))
    refused(browser.begin(), 502, "there is no connection to it", browser)


def test_a_provider_that_fails_is_not_asked_again_at_once(
    provider: HostileProvider, store: MemoryStore, clock: Clock
) -> None:
    provider.instead["discovery"] = hostile.fails
    browser = Browser(inbox_with(store, oidc(provider)))
    for _ in range(5):
        refused(browser.begin(), 502, "The provider cannot be asked", browser)
    assert provider.asked("discovery") == 1
    del provider.instead["discovery"]
    clock.now += 5
    assert browser.sign_in().status_code == 303
    assert provider.asked("discovery") == 2


def test_many_who_wait_for_a_provider_that_is_slow_do_not_wait_one_after_the_other(
    provider: HostileProvider, store: MemoryStore
) -> None:
    provider.instead["discovery"] = hostile.never
    inbox = inbox_with(store, oidc(provider, timeout=0.5))

    async def all_of_them() -> list[int]:
        transport = httpx2.ASGITransport(app=inbox)
        async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN) as client:
            answers = await asyncio.gather(*(client.get("/auth/oidc/start") for _ in range(30)))
        return [each.status_code for each in answers]

    assert run(all_of_them()) == [502] * 30
    assert provider.asked("discovery") <= 1  # none, if the machine is so slow that the time was over before


def test_an_inbox_on_several_event_loops_at_once(provider: HostileProvider, store: MemoryStore) -> None:
    """A lock of one loop cannot be waited for in another."""
    inbox = inbox_with(store, oidc(provider))

    async def start() -> list[int]:
        transport = httpx2.ASGITransport(app=inbox)
        async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN) as client:
            answers = await asyncio.gather(*(client.get("/auth/oidc/start") for _ in range(4)))
        return [each.status_code for each in answers]

    for _ in range(3):
        provider.clock.now += 600  # type: ignore[attr-defined]
        assert run(start()) == [303] * 4


def test_what_the_authorization_endpoint_has_in_its_address_stays(
    provider: HostileProvider, store: MemoryStore
) -> None:
    provider.metadata = {"authorization_endpoint": f"{provider.issuer}/authorize?policy=a%20b"}
    location = Browser(inbox_with(store, oidc(provider))).begin().headers["location"]
    assert location.startswith(f"{provider.issuer}/authorize?policy=a%20b&response_type=code&")


def test_the_issuer_is_compared_letter_by_letter(provider: HostileProvider, store: MemoryStore) -> None:
    browser = Browser(inbox_with(store, oidc(provider, issuer=f"{provider.issuer}/")))
    refused(browser.begin(), 502, "calls itself by another issuer", browser)
    assert provider.asked("discovery") == 1  # at the same address: a slash at the end is left out there


def test_what_a_provider_says_of_itself_is_read_again_after_some_minutes(
    provider: HostileProvider, store: MemoryStore, clock: Clock
) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    browser.sign_in()
    browser.sign_in()
    assert (provider.asked("discovery"), provider.asked("keys")) == (1, 1)
    clock.now += 600
    browser.sign_in()
    assert (provider.asked("discovery"), provider.asked("keys")) == (2, 2)
    clock.now -= 300  # a clock that was set back makes nothing last longer
    browser.sign_in()
    assert (provider.asked("discovery"), provider.asked("keys")) == (3, 3)


# What the provider says in its answer


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("access_denied", "did not let you in"),
        ("login_required", "wants you to sign in there first"),
        ("temporarily_unavailable", "is overloaded"),
        (MARK, "did not sign you in"),
        ("", "did not sign you in"),
    ],
)
def test_an_error_of_the_provider_is_told_in_our_words(
    provider: HostileProvider, store: MemoryStore, error: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider.answer = {"error": error, "error_description": MARK, "error_uri": "https://evil.example", "code": None}
    browser = Browser(inbox_with(store, oidc(provider)))
    refused(browser.sign_in(), 400, says, browser)
    assert browser.attempts == [] and provider.asked("token") == 0
    assert not [each for each in caplog.records if each.name.startswith("phronomy") and "alert(" in each.getMessage()]


@pytest.mark.parametrize(
    ("answer", "announced", "says"),
    [
        ({"iss": "https://evil.example"}, True, "not come from the provider that was asked"),
        ({"iss": None}, True, "not come from the provider that was asked"),
        ({"iss": ""}, True, "not come from the provider that was asked"),
        ({"iss": "https://evil.example"}, None, "not come from the provider that was asked"),
        ({"iss": "https://evil.example", "error": "access_denied"}, True, "not come from the provider that was asked"),
        ({"iss": None}, "yes", "not come from the provider that was asked"),
        ({"code": None}, True, "gave no code"),
        ({"code": ""}, True, "gave no code"),
    ],
)
def test_an_answer_of_another_provider_is_not_believed(
    provider: HostileProvider, store: MemoryStore, answer: dict[str, Any], announced: Any, says: str
) -> None:
    """The mix-up attack: the code would be given to whoever has sent the browser here."""
    provider.answer = answer
    provider.metadata = {"authorization_response_iss_parameter_supported": announced}
    browser = Browser(inbox_with(store, oidc(provider)))
    refused(browser.sign_in(), 400, says, browser)
    assert provider.asked("token") == 0


@pytest.mark.parametrize("announced", [None, False])
def test_a_provider_that_announces_no_iss_need_not_send_it(
    provider: HostileProvider, store: MemoryStore, announced: Any
) -> None:
    provider.metadata = {"authorization_response_iss_parameter_supported": announced}
    provider.answer = {"iss": None}
    assert Browser(inbox_with(store, oidc(provider))).sign_in().status_code == 303


@pytest.mark.parametrize("checks", [True, False], ids=["checked", "not checked"])
def test_a_stolen_code_is_of_no_use_in_another_attempt(
    provider: HostileProvider, store: MemoryStore, checks: bool
) -> None:
    """The code of a victim, put into an attempt of the attacker's own. A provider that checks no verifier is caught by the nonce."""
    provider.checks_verifier = checks
    inbox = inbox_with(store, oidc(provider))
    stolen = dict(parse_qsl(urlsplit(Browser(inbox).there()).query))["code"]
    attacker = Browser(inbox)
    answer = attacker.get(changed(attacker.there(), code=stolen))
    refused(answer, 400, "does not take its code" if checks else "not the answer to this attempt", attacker)


@pytest.mark.parametrize("methods", [["private_key_jwt"], [], "client_secret_basic", [7]])
def test_a_secret_is_not_sent_in_a_way_that_the_provider_does_not_take(
    provider: HostileProvider, store: MemoryStore, methods: Any
) -> None:
    provider.metadata = {"token_endpoint_auth_methods_supported": methods}
    browser = Browser(inbox_with(store, oidc(provider)))
    refused(browser.sign_in(), 502, "it takes no client secret", browser)
    assert provider.asked("token") == 0


@pytest.mark.parametrize(
    ("secret", "status", "says"),
    [
        ("wrong", 502, "the client id or the client secret is wrong"),
        (None, 502, "the client id or the client secret is wrong"),
    ],
)
def test_a_wrong_secret_is_told_to_whoever_reads_the_log(
    provider: HostileProvider, store: MemoryStore, secret: str | None, status: int, says: str
) -> None:
    browser = Browser(inbox_with(store, oidc(provider, client_secret=secret)))
    refused(browser.sign_in(), status, says, browser)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({}, "it gave no ID token"),
        ({"id_token": 7}, "it gave no ID token"),
        ({"id_token": None}, "it gave no ID token"),
    ],
)
def test_without_an_id_token_nobody_is_known(
    provider: HostileProvider, store: MemoryStore, answer: dict[str, Any], says: str
) -> None:
    async def token(request: Any) -> Response:
        return JSONResponse({"access_token": ACCESS, **answer})

    provider.instead["token"] = token
    browser = Browser(inbox_with(store, oidc(provider)))
    refused(browser.sign_in(), 502, says, browser)


# What the ID token says


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"iss": "https://evil.example"}, "from another issuer"),
        ({"iss": None}, "from another issuer"),
        ({"aud": "another-app"}, "meant for another application"),
        ({"aud": None}, "meant for another application"),
        ({"aud": ["another-app"]}, "meant for another application"),
        ({"aud": {CLIENT: True}}, "meant for another application"),
        ({"aud": [CLIENT, "another-app"]}, "given to another application"),
        ({"aud": [CLIENT, "another-app"], "azp": "another-app"}, "given to another application"),
        ({"azp": "another-app"}, "given to another application"),
        ({"nonce": "another"}, "not the answer to this attempt"),
        ({"nonce": None}, "not the answer to this attempt"),
        ({"nonce": 7}, "not the answer to this attempt"),
        ({"nonce": "\ud800"}, "not the answer to this attempt"),
        ({"sub": None}, "does not say who you are"),
        ({"sub": ""}, "does not say who you are"),
        ({"sub": 7}, "does not say who you are"),
        ({"sub": "x" * 256}, "does not say who you are"),
        ({"sub": "rita\n"}, "does not say who you are"),
        ({"sub": "r\u0456ta"}, "does not say who you are"),
        ({"exp": NOW - 61}, "out of date"),
        ({"exp": None}, "the time exp is missing"),
        ({"exp": str(NOW + 300)}, "the time exp is missing"),
        ({"exp": True}, "the time exp is missing"),
        ({"exp": 10**400}, "the time exp is missing"),
        ({"iat": NOW + 600}, "from the future"),
        ({"iat": None}, "the time iat is missing"),
        ({"nbf": NOW + 600}, "from the future"),
        ({"nbf": "soon"}, "the time nbf is missing"),
    ],
)
def test_what_an_id_token_must_say(
    provider: HostileProvider, store: MemoryStore, clock: Clock, claims: dict[str, Any], says: str
) -> None:
    provider.claims = claims
    browser = Browser(inbox_with(store, oidc(provider)))
    refused(browser.sign_in(), 400, says, browser)
    assert browser.attempts == []


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": [CLIENT]},
        {"aud": [CLIENT, "another-app"], "azp": CLIENT},
        {"exp": NOW - 59},
        {"iat": NOW + 60},
        {"nbf": NOW},
        {"exp": NOW + 0.5},
        {"sub": "auth0|7 x"},
    ],
)
def test_what_an_id_token_may_say(
    provider: HostileProvider, store: MemoryStore, clock: Clock, claims: dict[str, Any]
) -> None:
    provider.claims = claims
    assert Browser(inbox_with(store, oidc(provider))).sign_in().status_code == 303


def stranger(header: Any, claims: Any) -> str:
    """A token of somebody who has a key of their own, and says that it is the provider's."""
    return hostile.signed_by(hostile.rsa("stranger"), header, claims)


def other_payload(header: Any, claims: Any) -> str:
    """A token whose claims were changed after it was signed."""
    first, _, last = hostile.signed_by(hostile.rsa("first"), header, claims).split(".")
    return f"{first}.{hostile.encoded(json.dumps({**claims, 'sub': 'boss'}).encode())}.{last}"


def own_key(header: Any, claims: Any) -> str:
    """A token that brings the key along, which it is to be checked with."""
    key = hostile.rsa("stranger")
    return hostile.signed_by(key, {**header, "jwk": hostile.public(key), "jku": "https://evil.example/keys"}, claims)


def claims_twice(header: Any, claims: Any) -> str:
    """A token in which two readers see two persons."""
    text = json.dumps(claims)[:-1] + ', "sub": "boss"}'
    return hostile.jws.serialize_compact(header, text, hostile.rsa("first"), algorithms=["RS256"])


def no_claims(header: Any, claims: Any) -> str:
    """A token of something that is no object."""
    return hostile.jws.serialize_compact(header, '["boss"]', hostile.rsa("first"), algorithms=["RS256"])


def raw_header(text: bytes) -> Any:
    """Tokens with a header that is written by hand."""
    return lambda header, claims: f"{hostile.encoded(text)}.{hostile.encoded(json.dumps(claims).encode())}.AAAA"


PEM = hostile.rsa("first").as_pem(private=False)


@pytest.mark.parametrize(
    ("token", "says"),
    [
        (hostile.unsigned, "not signed with an algorithm that is allowed"),
        (lambda header, claims: hostile.unsigned(header, claims).replace("none", "NONE"), "not signed with"),
        (hostile.with_shared_secret(PEM), "not signed with an algorithm that is allowed"),
        (hostile.with_shared_secret(json.dumps(hostile.public(hostile.rsa("first"))).encode()), "not signed with"),
        (hostile.with_shared_secret(SECRET.encode()), "not signed with an algorithm that is allowed"),
        (stranger, "the signature of its token is wrong"),
        (other_payload, "the signature of its token is wrong"),
        (own_key, "the signature of its token is wrong"),
        (claims_twice, "the signature of its token is wrong"),
        (no_claims, "its token has no claims"),
        (lambda header, claims: hostile.parts_of(header, claims) + ".", "the signature of its token is wrong"),
        (hostile.parts_of, "the signature of its token is wrong"),
        (lambda header, claims: "", "its token cannot be read"),
        (lambda header, claims: MARK, "its token cannot be read"),
        (lambda header, claims: "\u00e9.\u00e9.\u00e9", "its token cannot be read"),
        (lambda header, claims: "a.b.c.d.e", "its token cannot be read"),
        (raw_header(b"[]"), "its token cannot be read"),
        (raw_header(b"{}"), "not signed with an algorithm that is allowed"),
        (raw_header(b'{"alg": ["RS256"]}'), "not signed with an algorithm that is allowed"),
        (raw_header(b'{"alg": "none", "alg": "RS256"}'), "its token cannot be read"),
        (raw_header(b"[" * 3_000), "its token cannot be read"),
        (raw_header(b" " * 9_000), "its token cannot be read"),
    ],
)
def test_a_token_that_the_provider_has_not_signed_counts_for_nothing(
    provider: HostileProvider, store: MemoryStore, token: Any, says: str
) -> None:
    provider.token = token
    browser = Browser(inbox_with(store, oidc(provider, algorithms=["RS256", "ES256"])))
    refused(browser.sign_in(), 400, says, browser)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ({"crit": ["exp"]}, "demands what is not known"),
        ({"crit": []}, "demands what is not known"),
        ({"b64": True}, "demands what is not known"),
        ({"typ": "at+jwt"}, "of another kind"),
        ({"typ": "logout+jwt"}, "of another kind"),
        ({"typ": 7}, "of another kind"),
        ({"alg": "RS384"}, "not signed with an algorithm that is allowed"),
        ({"kid": "unknown"}, "a key that is not known"),
        ({"kid": 7}, "a key that is not known"),
        ({"kid": "../../keys"}, "a key that is not known"),
    ],
)
def test_a_header_chooses_among_what_is_allowed_alone(
    provider: HostileProvider, store: MemoryStore, header: dict[str, Any], says: str
) -> None:
    def made(given: Any, claims: Any) -> str:
        signature = hostile.signed_by(hostile.rsa("first"), {"alg": "RS256"}, claims).rpartition(".")[2]
        return f"{hostile.parts_of(given, claims)}.{signature}"

    provider.header, provider.token = header, made
    browser = Browser(inbox_with(store, oidc(provider)))
    refused(browser.sign_in(), 400, says, browser)


def test_a_token_that_is_too_long_counts_for_nothing(provider: HostileProvider, store: MemoryStore) -> None:
    provider.claims = {"picture": "x" * 150_000}
    browser = Browser(inbox_with(store, oidc(provider)))
    refused(browser.sign_in(), 400, "the signature of its token is wrong", browser)


def test_a_header_may_say_what_nobody_asked_for(provider: HostileProvider, store: MemoryStore) -> None:
    provider.header = {"typ": None, "signer": "x", "x5t": "abc"}
    assert Browser(inbox_with(store, oidc(provider))).sign_in().status_code == 303


# Keys


def test_a_new_key_is_found_and_asked_for_once_a_minute_at_most(
    provider: HostileProvider, store: MemoryStore, clock: Clock
) -> None:
    inbox = inbox_with(store, oidc(provider))
    assert Browser(inbox).sign_in().status_code == 303
    clock.now += 1
    provider.key = hostile.rsa("second")  # rotated, and nobody was told
    assert Browser(inbox).sign_in().status_code == 303
    assert provider.asked("keys") == 2

    provider.header = {"kid": "invented"}
    for _ in range(5):
        clock.now += 10
        assert "a key that is not known" in Browser(inbox).sign_in().text
    assert provider.asked("keys") == 2
    clock.now += 10
    assert "a key that is not known" in Browser(inbox).sign_in().text
    assert provider.asked("keys") == 3


def test_a_key_that_is_withdrawn_counts_no_longer_than_some_minutes(
    provider: HostileProvider, store: MemoryStore, clock: Clock
) -> None:
    inbox = inbox_with(store, oidc(provider))
    assert Browser(inbox).sign_in().status_code == 303
    provider.published = [hostile.public(hostile.rsa("second"))]
    clock.now += 600
    assert "a key that is not known" in Browser(inbox).sign_in().text


def test_a_provider_that_fails_when_a_new_key_is_wanted_is_not_asked_again_at_once(
    provider: HostileProvider, store: MemoryStore, clock: Clock
) -> None:
    inbox = inbox_with(store, oidc(provider))
    assert Browser(inbox).sign_in().status_code == 303
    provider.key, provider.instead["keys"] = hostile.rsa("second"), hostile.fails
    clock.now += 1
    assert Browser(inbox).sign_in().status_code == 502
    assert "a key that is not known" in Browser(inbox).sign_in().text
    assert provider.asked("keys") == 2


@pytest.mark.parametrize(
    ("published", "says"),
    [
        ([], "a key that is not known"),
        ([7, None, "key", {}, {"kty": "EC"}, {"kty": ["RSA"]}], "a key that is not known"),
        ([hostile.public(hostile.rsa("first"), use="enc")], "a key that is not known"),
        ([hostile.public(hostile.rsa("first"), alg="PS256")], "a key that is not known"),
        ([hostile.public(hostile.rsa("first"), key_ops=["encrypt"])], "a key that is not known"),
        ([hostile.public(hostile.rsa("second"), kid="first")], "the signature of its token is wrong"),
        ([{"kty": "oct", "kid": "first", "k": "AAAA", "alg": "RS256"}], "a key that is not known"),
        ([hostile.public(ECKey.generate_key("P-256"), kid="first")], "a key that is not known"),
        ([hostile.public(hostile.rsa("first"))] * 2, "does not say which of its keys"),
    ],
)
def test_keys_that_are_not_for_this_check_nothing(
    provider: HostileProvider, store: MemoryStore, published: list[Any], says: str
) -> None:
    provider.published = published
    browser = Browser(inbox_with(store, oidc(provider)))
    refused(browser.sign_in(), 400, says, browser)


@pytest.mark.parametrize("curve", ["X25519", "Ed448", "X448"])
def test_a_key_of_another_curve_is_no_failure(provider: HostileProvider, store: MemoryStore, curve: Any) -> None:
    provider.header = {"alg": "Ed25519"}
    provider.token = lambda header, claims: hostile.parts_of(header, claims) + "." + hostile.encoded(b"s" * 64)
    provider.published = [hostile.public(OKPKey.generate_key(curve, {"kid": "first"}))]
    browser = Browser(inbox_with(store, oidc(provider, algorithms=["Ed25519"])))
    refused(browser.sign_in(), 400, "the signature of its token is wrong", browser)


@pytest.mark.parametrize("curve", ["P-384", "P-521", "secp256k1"])
def test_a_key_of_another_elliptic_curve_is_no_failure(
    provider: HostileProvider, store: MemoryStore, curve: Any
) -> None:
    provider.header = {"alg": "ES256"}
    provider.token = lambda header, claims: hostile.parts_of(header, claims) + "." + hostile.encoded(b"s" * 64)
    provider.published = [hostile.public(ECKey.generate_key(curve, {"kid": "first"}))]
    browser = Browser(inbox_with(store, oidc(provider)))
    refused(browser.sign_in(), 400, "the signature of its token is wrong", browser)


def test_a_key_that_fits_is_found_among_others(provider: HostileProvider, store: MemoryStore) -> None:
    provider.published = [
        {"kty": "AKP", "kid": "first", "alg": "ML-DSA-44", "pub": "AAAA"},
        hostile.public(hostile.rsa("second")),
        hostile.public(hostile.rsa("first"), use="enc"),
        hostile.public(ECKey.generate_key("P-256"), kid="first"),
        hostile.public(hostile.rsa("first")),
    ]
    assert Browser(inbox_with(store, oidc(provider))).sign_in().status_code == 303


def test_a_token_without_a_key_id_counts_where_one_key_alone_fits(
    provider: HostileProvider, store: MemoryStore, clock: Clock
) -> None:
    provider.header = {"kid": None}
    provider.published = [hostile.public(hostile.rsa("first")), hostile.public(ECKey.generate_key("P-256"))]
    assert Browser(inbox_with(store, oidc(provider))).sign_in().status_code == 303
    provider.published = [hostile.public(hostile.rsa("first")), hostile.public(hostile.rsa("second"))]
    others = MemoryStore(clock=clock)
    browser = Browser(inbox_with(others, oidc(provider)))
    refused(browser.sign_in(), 400, "does not say which of its keys", browser)


def test_small_keys_and_private_parts_are_not_read() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # joserfc warns of it as well
        small = RSAKey.generate_key(1024, {"kid": "small"})
    private = hostile.rsa("first").as_dict(private=True)
    weak = {**hostile.public(hostile.rsa("first")), "e": "AQ"}  # with the exponent 1 every text signs itself
    odd = {**hostile.public(hostile.rsa("first")), "n": "!!"}
    long = {**hostile.public(hostile.rsa("first")), "n": "_" * 50_000}
    beside = {**hostile.public(ECKey.generate_key("P-256")), "y": "A" * 43}  # a point that is not on the curve
    found = keys_in({"keys": [hostile.public(small), private, weak, odd, long, beside]})
    assert [each.id for each in found] == ["first"] and not found[0].key.is_private
    assert keys_in({"keys": {"first": private}}) == keys_in({}) == ()
    assert len(keys_in({"keys": [hostile.public(hostile.rsa("first"))] * 1_000})) == 100
    assert keys_in({"keys": [OctKey.import_key("k" * 64).as_dict(private=True)]}) == ()


# What browsers and other sites try


def test_a_callback_of_another_browser_signs_nobody_in(provider: HostileProvider, store: MemoryStore) -> None:
    """Login CSRF: the attacker signs in, and has the victim's browser come back in their place."""
    inbox = inbox_with(store, oidc(provider))
    back = Browser(inbox).there()
    victim = Browser(inbox)
    refused(victim.get(back), 400, "This browser has not begun this sign-in", victim)
    victim.there()  # nor with an attempt of their own
    refused(victim.get(back), 400, "This browser has not begun this sign-in", victim)
    assert provider.asked("token") == 0


def test_an_answer_with_another_state_is_for_no_attempt(provider: HostileProvider, store: MemoryStore) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    provider.answer = {"state": "s" * 43}
    refused(browser.sign_in(), 400, "This browser has not begun this sign-in", browser)
    provider.answer = {"state": None}
    refused(browser.sign_in(), 400, "This browser has not begun this sign-in", browser)


def test_a_callback_counts_once(provider: HostileProvider, store: MemoryStore) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    back = browser.there()
    kept = browser.kept()
    assert browser.get(back).status_code == 303
    for cookies in ({}, kept):  # as a browser does, and with the cookie that it was told to forget
        again = Browser(browser.inbox)
        again.plant(cookies)
        assert again.get(back).status_code == 400 and again.who() is None
    assert sessions_in(store) == 1 and provider.asked("token") == 1
    assert browser.who() is not None


def test_a_callback_that_comes_twice_at_once_counts_once(provider: HostileProvider, store: MemoryStore) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    back = browser.there()

    async def both() -> list[int]:
        transport = httpx2.ASGITransport(app=browser.inbox)
        async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN, cookies=browser.jar) as client:
            answers = await asyncio.gather(*(client.get(back) for _ in range(8)))
        return sorted(each.status_code for each in answers)

    assert run(both()) == [303, *[400] * 7]
    assert sessions_in(store) == 1 and provider.asked("token") == 1


def test_two_processes_count_a_callback_once(provider: HostileProvider, store: MemoryStore) -> None:
    first, second = inbox_with(store, oidc(provider)), inbox_with(store, oidc(provider))
    browser = Browser(first)
    back = browser.there()
    other = Browser(second)
    other.plant(browser.kept())
    assert other.get(back).status_code == 303  # begun in one, finished in the other
    assert browser.get(back).status_code == 400


def test_an_attempt_is_over_after_ten_minutes(provider: HostileProvider, store: MemoryStore, clock: Clock) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    back = browser.there()
    clock.now += 599
    assert browser.get(back).status_code == 303
    late = browser.there()
    kept = browser.kept()
    clock.now += 600
    browser.plant(kept)
    answer = browser.get(late)
    assert answer.status_code == 400 and "more than ten minutes" in answer.text


def test_the_note_of_a_used_attempt_outlives_the_attempt(
    provider: HostileProvider, store: MemoryStore, clock: Clock
) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    browser.sign_in()
    [note] = store.select_documents(attempts.KIND)
    assert note.expires_at == clock.now + 660
    clock.now += 660
    store.expire_documents()
    assert store.select_documents(attempts.KIND) == []


@pytest.mark.parametrize(
    "tampered",
    [
        lambda text: text[:-2] + ("AA" if not text.endswith("AA") else "BB"),
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "x" * 3_000,
        lambda text: "a.b.c.d.e",
        lambda text: "\u00e9",
        lambda text: ".".join([hostile.encoded(b'{"alg":"none","enc":"A256GCM"}'), *text.split(".")[1:]]),
        lambda text: ".".join([hostile.encoded(b'{"alg":"dir","enc":"A128GCM"}'), *text.split(".")[1:]]),
        lambda text: ".".join([hostile.encoded(b"[" * 700), *text.split(".")[1:]]),
        lambda text: ".".join([hostile.encoded(b"7"), *text.split(".")[1:]]),
    ],
)
def test_a_cookie_that_was_changed_is_none(provider: HostileProvider, store: MemoryStore, tampered: Any) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    back = browser.there()
    [name] = browser.attempts
    text = tampered(browser.kept()[name])
    browser.plant({})
    answer = browser.get(back, headers={"cookie": f"{name}={quote(text)}"})
    refused(answer, 400, "This browser has not begun this sign-in", browser)
    assert provider.asked("token") == 0


def test_an_attempt_does_not_count_for_another_state_provider_client_or_server(
    provider: HostileProvider, store: MemoryStore, clock: Clock
) -> None:
    browser = Browser(inbox_with(store, oidc(provider), oidc(provider, name="partners", client_id="partners")))
    back = browser.there()
    [name] = browser.attempts
    sealed = browser.kept()[name]

    # Under the name of another state.
    other = "s" * 43
    renamed = f"__Host-phronomy-login-{attempts.key_of(other)[:32]}"
    thief = Browser(browser.inbox)
    thief.plant({renamed: sealed})
    refused(thief.get(changed(back, state=other)), 400, "This browser has not begun", thief)
    # At the way back of another provider.
    answer = browser.get(back.replace("/oidc/", "/partners/"))
    refused(answer, 400, "This browser has not begun", browser)
    # At another way in, with the same provider and client.
    twins = Browser(inbox_with(store, oidc(provider), oidc(provider, name="admins")))
    back = twins.there()
    refused(twins.get(back.replace("/oidc/", "/admins/")), 400, "This browser has not begun", twins)
    # At a server with another secret.
    stranger = Browser(inbox_with(MemoryStore(clock=clock), oidc(provider)))
    stranger.plant({name: sealed})
    refused(stranger.get(back), 400, "This browser has not begun", stranger)
    assert provider.asked("token") == 0


def test_a_sealed_attempt_of_another_release_is_none() -> None:
    made = attempts.begin("/start", "https://a.example", "me", to="/", max_age=None, now=0.0)
    key = b"k" * 32
    assert attempts.unseal(attempts.seal(made, key), key) == made
    for change in ({"until": "soon"}, {"max_age": -1}, {"to": 7}, {"until": None}):
        other = {**{name: getattr(made, name) for name in made.__dataclass_fields__}, **change}
        text = attempts.jwe.encrypt_compact({"alg": "dir", "enc": "A256GCM"}, json.dumps(other), attempts._key(key))
        assert attempts.unseal(text, key) is None
    for text in ("[]", "{}", "7", "no JSON"):
        sealed = attempts.jwe.encrypt_compact({"alg": "dir", "enc": "A256GCM"}, text, attempts._key(key))
        assert attempts.unseal(sealed, key) is None


@pytest.mark.parametrize("query", ["", "?state=", "?code=a", "?state=%00&code=a", "?error=access_denied", "?iss=x"])
def test_a_callback_without_an_attempt_is_a_page(provider: HostileProvider, store: MemoryStore, query: str) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    refused(browser.get(f"/auth/oidc/callback{query}"), 400, "This browser has not begun this sign-in", browser)
    assert provider.seen == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("state=a&state=b", 400),
        ("code=a&code=b&state=c", 400),
        ("iss=a&iss=b", 400),
        (f"state={'x' * 201}", 422),
        (f"code={'x' * 8_001}", 422),
        ("state=%ff", 400),
        ("&".join(f"a{n}=b" for n in range(201)), 400),
    ],
)
def test_a_callback_that_cannot_be_read_is_a_page(
    provider: HostileProvider, store: MemoryStore, query: str, status: int
) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    answer = browser.get(f"/auth/oidc/callback?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert provider.seen == []


def test_a_session_that_was_there_before_ends_and_its_secret_is_not_kept(
    provider: HostileProvider, store: MemoryStore
) -> None:
    """Session fixation: the attacker knows the secret of the session that the victim signs in with."""
    inbox = inbox_with(store, oidc(provider))
    attacker = Browser(inbox)
    provider.claims = {"sub": "attacker"}
    attacker.sign_in()
    planted = attacker.kept()["__Host-phronomy"]
    provider.claims = {}
    victim = Browser(inbox)
    victim.plant({"__Host-phronomy": planted})
    victim.sign_in()
    assert victim.kept()["__Host-phronomy"] != planted and victim.who()["id"].endswith(f"#{SUBJECT}")
    assert attacker.who() is None and sessions_in(store) == 1


def test_a_sign_in_that_fails_leaves_the_session_that_was_there(provider: HostileProvider, store: MemoryStore) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    browser.sign_in()
    provider.claims = {"nonce": "another"}
    assert browser.sign_in().status_code == 400
    assert browser.who() is not None and sessions_in(store) == 1


def test_a_session_is_ended_also_where_another_auth_knows_the_person(
    provider: HostileProvider, store: MemoryStore
) -> None:
    browser = Browser(inbox_with(store, ByHeader(), oidc(provider)))
    browser.sign_in()
    browser.headers["x-user"] = "rita"
    browser.sign_in()
    assert sessions_in(store) == 1


ELSEWHERE = [
    "https://evil.example",
    "//evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "/\t/evil.example",
    "/\n/evil.example",
    "\t//evil.example",
    " //evil.example",
    "evil.example",
    "javascript:alert(1)",
    "",
    "/\x00",
    "/a\r\nSet-Cookie: a=b",
    "/requests\\..\\..",
    "///evil.example",
    "/" + "x" * 1_000,
    "/../evil",
    "/%2e%2e/evil",
    "/" + '"' * 600,
    "/\x7f",
]


@pytest.mark.parametrize("to", ELSEWHERE)
def test_the_way_back_leads_to_the_inbox_alone(provider: HostileProvider, store: MemoryStore, to: str) -> None:
    done = Browser(inbox_with(store, oidc(provider))).sign_in(to=to)
    assert (done.status_code, done.headers["location"]) == (303, "/")


@pytest.mark.parametrize(
    ("to", "location"),
    [
        ("/", "/"),
        ("/requests/1?a=b&c=%2F", "/requests/1?a=b&c=%2F"),
        ("/requests/%C3%BC", "/requests/%C3%BC"),
        ("/a//b", "/a//b"),
        ("/@evil.example", "/@evil.example"),
        ("/history#last", "/history#last"),
    ],
)
def test_the_way_back_is_the_page_that_was_asked_for(
    provider: HostileProvider, store: MemoryStore, to: str, location: str
) -> None:
    assert Browser(inbox_with(store, oidc(provider))).sign_in(to=to).headers["location"] == location


def test_no_path_leads_out_of_an_inbox_under_a_prefix(provider: HostileProvider, store: MemoryStore) -> None:
    inbox = inbox_with(store, oidc(provider), public_url=f"{ORIGIN}/inbox")
    for to in ELSEWHERE:
        assert Browser(inbox, prefix="/inbox").sign_in(to=to).headers["location"] == "/inbox/"


def test_the_longest_path_fits_into_a_cookie(provider: HostileProvider, store: MemoryStore) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    for to in ("/" + "x" * 990, "/" + "a" * 990, "/" + '"' * 490):
        browser.begin(to=to)
    kept = browser.kept()
    assert len(browser.attempts) == 3 and max(len(kept[name]) for name in browser.attempts) < 2_600


def test_another_site_cannot_fill_a_browser_with_attempts(
    provider: HostileProvider, store: MemoryStore, clock: Clock
) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    back = []
    for n in range(20):
        clock.now += 1
        back.append(browser.there(to=f"/{n}"))
    browser.jar.set("__Host-phronomy-login-junk", "x", domain="inbox.example", path="/")
    browser.begin()
    assert len(browser.attempts) == 3 and "__Host-phronomy-login-junk" not in browser.attempts
    assert browser.get(back[-1]).headers["location"] == "/19"
    assert browser.get(back[0]).status_code == 400


def test_a_host_that_somebody_else_names_changes_nothing(provider: HostileProvider, store: MemoryStore) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    headers = {"host": "evil.example", "x-forwarded-host": "evil.example", "forwarded": "host=evil.example"}
    begun = browser.get("/auth/oidc/start", headers=headers)
    assert dict(parse_qsl(urlsplit(begun.headers["location"]).query))["redirect_uri"] == f"{ORIGIN}/auth/oidc/callback"


def test_a_store_that_fails_signs_nobody_in(
    provider: HostileProvider, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the note that an attempt is used, the answer could come again."""
    browser = Browser(inbox_with(store, oidc(provider)))
    back = browser.there()

    async def broken(document: Any) -> Any:
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "aput_document", broken)
        answer = browser.get(back)
    refused(answer, 503, "The store cannot be reached", browser)
    assert provider.asked("token") == 0


def test_attempts_are_begun_so_often_a_minute_and_address_alone(provider: HostileProvider, store: MemoryStore) -> None:
    browser = Browser(inbox_with(store, oidc(provider), limits=Limits(store, logins=3)))
    assert [browser.begin().status_code for _ in range(5)] == [303, 303, 303, 429, 429]


def test_failed_attempts_are_counted_and_good_ones_are_not_refused_for_them(
    provider: HostileProvider, store: MemoryStore
) -> None:
    browser = Browser(inbox_with(store, oidc(provider), limits=Limits(store, failures=Failures(store, most=2))))
    strange = [browser.get("/auth/oidc/callback?state=x&code=y").status_code for _ in range(4)]
    assert strange == [400, 400, 429, 429]
    assert browser.sign_in().status_code == 303


# Step-up


@pytest.mark.parametrize(
    ("setting", "asked", "sent"),
    [(None, 300, "300"), (600, 300, "300"), (300, 600, "300"), (300, None, "300"), (0, 5, "0")],
)
def test_the_shorter_max_age_counts(
    provider: HostileProvider, store: MemoryStore, setting: Any, asked: Any, sent: str
) -> None:
    browser = Browser(inbox_with(store, oidc(provider, max_age=setting)))
    begun = browser.begin(**({} if asked is None else {"max_age": asked}))
    assert dict(parse_qsl(urlsplit(begun.headers["location"]).query))["max_age"] == sent


@pytest.mark.parametrize(
    ("auth_time", "says"),
    [
        (NOW - 361, "typed your password too long ago"),
        (NOW + 61, "typed your password too long ago"),
        (None, "the time auth_time is missing"),
        ("now", "the time auth_time is missing"),
    ],
)
def test_a_password_that_was_typed_too_long_ago_does_not_count(
    provider: HostileProvider, store: MemoryStore, clock: Clock, auth_time: Any, says: str
) -> None:
    provider.claims = {"auth_time": auth_time}
    browser = Browser(inbox_with(store, oidc(provider)))
    back = browser.there(max_age=300)
    refused(browser.get(back), 400, says, browser)
    provider.claims = {"auth_time": NOW - 360}
    assert browser.sign_in(max_age=300).status_code == 303


@pytest.mark.parametrize("max_age", ["-1", "soon", "1.5", "99999999999"])
def test_a_max_age_that_is_none_is_refused(provider: HostileProvider, store: MemoryStore, max_age: str) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    assert browser.begin(max_age=max_age).status_code == 422


# Secrets


def test_no_secret_is_in_a_log_a_page_or_a_repr(
    provider: HostileProvider, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    auth = oidc(provider, userinfo=True)
    inbox = inbox_with(store, auth)
    pages = [Browser(inbox).sign_in()]
    for fault in ({"nonce": "another"}, {"exp": 0}):
        provider.claims = fault
        pages.append(Browser(inbox).sign_in())
    provider.claims = {}
    for endpoint in ("userinfo", "token", "keys"):
        provider.instead = {endpoint: hostile.fails_in_json}
        provider.clock.now += 600  # type: ignore[attr-defined]
        pages.append(Browser(inbox).sign_in())
    # What the browser of the test has logged itself is not the inbox's.
    logged = "\n".join(each for each in caplog.text.splitlines() if ORIGIN not in each)
    assert "a sign-in at" in logged and "has signed in at" in logged and "HTTP Request: POST" in logged
    told = logged + "".join(page.text for page in pages) + repr(auth) + repr(auth._provider)
    spoken = {*provider.secrets, SECRET, quote(SECRET, safe=""), provider.sent("token")[1]["authorization"]}
    assert len(spoken) > 20
    assert [each for each in spoken if each in told] == []
    made = attempts.begin("/start", "https://a.example", "me", to="/", max_age=None, now=0.0)
    assert made.state not in repr(made) and made.verifier not in repr(made) and made.nonce not in repr(made)


# Settings


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"issuer": "http://login.example.org"}, "issuer"),
        ({"issuer": "login.example.org"}, "issuer"),
        ({"issuer": "https://login.example.org?tenant=a"}, "issuer"),
        ({"issuer": "https://user:password@login.example.org"}, "issuer"),
        ({"issuer": None}, "issuer"),
        ({"issuer": "https://login.microsoftonline.com/common/v2.0"}, "common stands for many companies"),
        ({"issuer": "https://login.microsoftonline.com/organizations/v2.0"}, "organizations stands for many"),
        ({"issuer": "https://LOGIN.microsoftonline.us:443/Consumers"}, "Consumers stands for many companies"),
        ({"client_id": ""}, "client_id"),
        ({"client_secret": ""}, "client_secret"),
        ({"client_secret": b"bytes"}, "client_secret"),
        ({"scopes": ["profile"]}, "scopes"),
        ({"scopes": "openid"}, "scopes"),
        ({"scopes": ["openid", "a b"]}, "scopes"),
        ({"algorithms": ["RS256", "none"]}, "algorithms"),
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": []}, "algorithms"),
        ({"algorithms": "RS256"}, "algorithms"),
        ({"principal": "rita"}, "principal and tenant"),
        ({"tenant": "acme"}, "principal and tenant"),
        ({"roles": 7}, "roles is the name"),
        ({"roles": "groups", "principal": lambda claims: None}, "roles would count for nothing"),
        ({"label": ""}, "label"),
        ({"name": "A/B"}, "name"),
        ({"max_age": -1}, "max_age"),
        ({"max_age": True}, "max_age"),
        ({"leeway": 601}, "leeway"),
        ({"leeway": float("nan")}, "leeway"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any], says: str) -> None:
    given = {"issuer": "https://login.example.org", "client_id": "inbox", "client_secret": "hidden-secret", **options}
    with pytest.raises(ConfigurationError, match=says) as raised:
        OIDC(**given)
    assert "hidden-secret" not in str(raised.value) and "password@" not in str(raised.value)


@pytest.mark.parametrize("url", [None, "http://inbox.example", "http://10.0.0.1:8000"])
def test_an_inbox_needs_an_address_with_tls(url: str | None) -> None:
    auth = OIDC(issuer="https://login.example.org", client_id="inbox")
    with pytest.raises(ConfigurationError, match="public_url"):
        Inbox(MemoryStore(), auth=auth, public_url=url)


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("http://localhost:8000", {}, 'sign in at http://localhost:8000: .*cookie="phronomy", secure=False'),
        ("http://localhost:8000", {"cookie": "phronomy"}, "secure=False"),
        (ORIGIN, {"same_site": "strict"}, "'lax'"),
        ("http://127.0.0.1:1", {"cookie": "phronomy", "secure": False, "same_site": "strict"}, "'lax'"),
    ],
)
def test_sessions_that_do_not_come_back_from_the_provider_are_refused(
    url: str, options: dict[str, Any], says: str
) -> None:
    store = MemoryStore()
    auth = OIDC(issuer="https://login.example.org", client_id="inbox")
    with pytest.raises(ConfigurationError, match=says):
        Inbox(store, auth=auth, public_url=url, sessions=sessions.Sessions(store, **options))


def test_whoever_begins_under_another_name_is_told_the_right_one(provider: HostileProvider, store: MemoryStore) -> None:
    browser = Browser(inbox_with(store, oidc(provider)))
    back = browser.there()
    browser.plant({})  # those of the other name are not sent here
    refused(browser.get(back), 400, f"This browser has not begun this sign-in at {ORIGIN}, or", browser)


def test_which_addresses_are_safe() -> None:
    for url in (
        "https://a.example",
        "https://a.example:8443/x?y=z",
        "http://127.0.0.1:1",
        "http://[::1]:1/",
        "http://localhost",
    ):
        assert is_safe_url(url, loopback=True), url
        assert is_safe_url(url, loopback=False) == url.startswith("https"), url
    for url in (
        "https://",
        "https://a.example:0",
        "https://a b",
        "https://\u00e9.example",
        "https://a\\b",
        "http://127.0.0.1.evil.example",
    ):
        assert not is_safe_url(url, loopback=True), url


def test_on_ones_own_machine_the_cookies_need_no_tls(provider: HostileProvider, store: MemoryStore) -> None:
    inbox = Inbox(
        store,
        auth=[oidc(provider), Who()],
        public_url="http://127.0.0.1:8123",
        sessions=sessions.Sessions(store, cookie="phronomy", secure=False),
    )
    begun = Browser(inbox).begin()
    assert begun.headers["set-cookie"].startswith("phronomy-login-") and "Secure" not in begun.headers["set-cookie"]


def test_an_oidc_is_nobody_by_itself(provider: HostileProvider) -> None:
    assert run(oidc(provider).identify(None)) is None  # type: ignore[arg-type]
    assert isinstance(Problem("sign-in-failed"), Problem) and Problem("provider-unavailable").status == 502


# A provider that others have written, and a browser over real HTTP


def test_somebody_signs_in_at_an_independent_provider() -> None:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("ignore")
        # It uses a module of authlib's that is deprecated.
        import oidc_provider_mock

        with oidc_provider_mock.run_server_in_thread() as server:
            issuer = f"http://localhost:{server.server_port}"
            _sign_in_there(issuer)


def _sign_in_there(issuer: str) -> None:
    listening = hostile.socket.create_server(("127.0.0.1", 0))
    origin = f"http://127.0.0.1:{listening.getsockname()[1]}"
    store = MemoryStore()
    inbox = Inbox(
        store,
        auth=[OIDC(issuer=issuer, client_id=CLIENT, client_secret=SECRET), Who()],
        public_url=origin,
        sessions=sessions.Sessions(store, cookie="phronomy", secure=False),
    )
    with hostile.serving(inbox, listening), httpx2.Client() as browser:
        begun = browser.get(f"{origin}/auth/oidc/start", params={"to": "/who"})
        assert begun.status_code == 303
        form = browser.get(begun.headers["location"])
        assert form.status_code == 200 and "<form" in form.text
        back = browser.post(begun.headers["location"], data={"sub": "rita@example.org"})
        assert back.status_code == 302
        done = browser.get(back.headers["location"])
        assert (done.status_code, done.headers["location"]) == (303, "/who")
        who = browser.get(f"{origin}/who").json()
        assert who["id"] == f"oidc:{issuer}#rita@example.org"
        again = browser.get(back.headers["location"])
        assert again.status_code == 400
