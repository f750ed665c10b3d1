"""The table of scopes and routes: what each scope lets somebody do, and that none of them reads by a side door."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from inbox_api_scenes import API, Api, ByToken, api_of, problem
from inbox_scenes import OTTO, RITA, ByHeader, Visitor, asked, desk, inbox_of
from starlette.requests import Request
from tables import each

from phronomy import Agent, Approval, ConfigurationError, MemoryStore, PendingApproval, Principal, Reject, tool
from phronomy.inbox import ApiTokens, Identity, Inbox, Sessions, TrustedProxy
from phronomy.inbox.api.table import API as TABLE
from phronomy.inbox.auth.identity import SCOPES
from phronomy.inbox.auth.limits import Failures
from phronomy.inbox.pages.table import PAGES
from phronomy.inbox.routes import Route
from phronomy.people import Person, StoreDirectory
from phronomy.testing import ScriptedModel, call

SECRET = "the-account-is-DE89"
ROUTES = [route for route in (*TABLE, *PAGES) if route.scopes]


def filled(route: Route, item: PendingApproval, run_id: str, checkpoint: str) -> str:
    """The path of a route, about what there is."""
    id = run_id if route.path.startswith((f"{API}/runs", "/runs")) else item.id
    return (
        route.path.replace("{id}", id).replace("{checkpoint}", checkpoint).replace("{key}", "k").replace("{name}", "x")
    )


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_needs_each_of_its_scopes(route: Route) -> None:
    """Somebody with all scopes but one of them is refused before anything is looked at; of their own, some may see less."""
    store = MemoryStore()
    item = asked(store)
    branch = store.branches()[0]
    path = filled(route, item, branch.id, branch.head or "x")
    before = repr((store.pending(), store.branches()))
    for missing in route.scopes:
        scopes: Any = frozenset(SCOPES) - {missing, *route.own}
        inbox = inbox_of(store, auth=ByHeader(scopes=scopes), scopes=lambda _: SCOPES)
        answer = Visitor(inbox).request(route.method, path, headers={"accept": "application/json"})
        assert answer.status_code == 403, (missing, answer.text)
    assert repr((store.pending(), store.branches())) == before


def secretive(store: MemoryStore) -> Agent[Any, str]:
    """An agent that says again what was said, with a tool that tells as much."""

    @tool(requires_approval=True)
    def look(order: int) -> str:
        """Look."""
        return SECRET

    def reply(request: Any) -> Any:
        said = [message.text for message in request.messages]
        return call("look", {"order": 1}) if said[-1] == "look" else " ".join(said)

    return Agent(name="desk", model=ScriptedModel(reply), tools=[look], store=store)


def only(store: MemoryStore, *scopes: Any, who: Principal = RITA, **options: Any) -> Api:
    """Somebody whose token has these scopes alone."""
    return api_of(store, who.id, tokens=ByToken(who, scopes=scopes), agents=secretive(store), **options)


def begin(api: Api, input: str, key: str, thread: str | None = None) -> httpx2.Response:
    """The answer to a start, once the run is driven to its end: and the same again."""
    body = {"agent": "desk", "input": input} | ({} if thread is None else {"thread": thread})
    return api.send("/runs", body, key=key)


def test_who_may_start_alone_reads_nothing_by_it() -> None:
    """Neither at once, nor from the same start sent again, which is answered with the run as it is then."""
    store = MemoryStore()
    api = only(store, "start")
    begin(api, f"say {SECRET}", "k")
    (branch,) = store.branches()
    secretive(store).recover(branch.id)  # the loop of the request has ended, and its run with it
    again = begin(api, f"say {SECRET}", "k")
    assert (again.status_code, again.json()["status"]) == (202, "completed")
    assert again.json()["output"] is None and again.json()["requester"] is None and SECRET not in again.text
    assert begin(only(store, "start", "read"), f"say {SECRET}", "k").json()["output"] == f"say {SECRET}"
    assert api.get(f"{API}/runs/{branch.id}").status_code == 403


def test_who_may_decide_alone_reads_nothing_by_it() -> None:
    """Not what came of it, nor what others have edited and why, in any answer: of one, of several, by the key."""
    store = MemoryStore()
    agent = secretive(store)
    checkpoint = agent.invoke("look", requester="ann").checkpoint
    item = checkpoint.pending[0]
    api = only(store, "decide")
    first = api.decide(item, "approve", key="k")
    assert first.status_code == 200
    agent.recover_all()
    assert store.request(item.id).result is not None
    answers = [
        api.decide(item, "approve", key="k"),
        api.get(f"{API}/requests/{item.id}/decision/by-key/k"),
        api.send("/decisions:batch", {"answer": "approve", "requests": [{"id": item.id, "digest": item.digest}]}),
    ]
    assert [each.status_code for each in answers] == [200, 200, 200]
    assert not [each.text for each in answers if SECRET in each.text]
    assert answers[0].json()["outcome"] == {"kind": "completed", "text": None}
    reader = only(store, "decide", "read")
    assert reader.decide(item, "approve", key="k").json()["outcome"]["text"] == SECRET


def test_what_others_have_said_with_a_decision_is_for_readers() -> None:
    store = MemoryStore()
    item = secretive(store).invoke("look", requester="ann").checkpoint.pending[0]
    assert only(store, "decide", "read").decide(item, "reject", reason=SECRET, key="k").status_code == 200
    blind = only(store, "decide").decide(item, "reject", reason=SECRET, key="k")
    assert blind.status_code == 200 and blind.json()["decision"]["reason"] is None and SECRET not in blind.text


def test_who_may_grant_alone_reads_nothing_by_it() -> None:
    """Not from the grant that they give, nor from any other answer about it: the arguments are there for readers."""
    store = MemoryStore()

    @tool(requires_approval=Approval(standing=True), redact={"iban"})
    def pay(iban: str) -> str:
        """Pay."""
        return "paid"

    agent = Agent(name="desk", model=ScriptedModel([call("pay", {"iban": SECRET})]), tools=[pay], store=store)
    item = agent.invoke("go", requester="ann").checkpoint.pending[0]
    sent = {"request": item.id, "digest": item.digest, "uses": 3, "reason": SECRET}
    blind, reader = only(store, "grant"), only(store, "grant", "read")
    made = blind.send("/grants", sent, key="k")
    path = f"{API}/grants/{made.json()['id']}"
    readers = reader.get(path)
    assert (readers.json()["args"], readers.json()["reason"]) == (item.json_text("args"), SECRET)
    shown = blind.get(path)
    answers = [made, blind.send("/grants", sent, key="k"), shown, blind.get(f"{API}/grants")]
    assert [each.status_code for each in answers] == [201, 201, 200, 200]
    headers = {"if-match": shown.headers["etag"], "idempotency-key": "s"}
    otto = api_of(store, OTTO.id, tokens=ByToken(OTTO, scopes=("grant",)))
    answers += [otto.post(f"{path}/signatures", headers=headers)]
    answers += [blind.request("DELETE", path, headers={"if-match": answers[-1].headers["etag"]})]
    assert [each.status_code for each in answers[4:]] == [200, 200]
    assert all(SECRET not in each.text for each in answers)
    # A tag of what is hidden would let its reader try values out.
    assert shown.headers["etag"] != readers.headers["etag"]


# Threads


@each("requester", ["ann", None])
@each("scopes", [("start",), ("start", "read")])
def test_nobody_starts_in_the_thread_of_somebody_else(requester: Any, scopes: tuple[Any, ...]) -> None:
    """Not of somebody of whom nobody knows, either: what was said there goes to the model."""
    store = MemoryStore()
    secretive(store).invoke(SECRET, thread_id="t", requester=requester)
    answer = begin(only(store, *scopes), "repeat all", "k", thread="t")
    assert problem(answer) == (409, "refused") and SECRET not in answer.text
    assert len(store.branches()) == 1
    anywhere = only(store, "start", "read", threads="any")
    assert begin(anywhere, "repeat all", "k2", thread="t").status_code == 202


def test_somebody_goes_on_in_a_thread_of_their_own() -> None:
    """Also in one that they have begun under an alias."""
    store = MemoryStore()
    StoreDirectory(store).add(Person(id="rita", roles=("lead",), aliases=("slack:T1/U0RITA",)))
    secretive(store).invoke("a", thread_id="t", requester="slack:T1/U0RITA")
    api = only(store, "start", "read", who=Principal(id="rita", roles=("lead",)))
    assert begin(api, "b", "k", thread="t").status_code == 202
    assert begin(api, "b", "k", thread="t").status_code == 202  # the same again


def test_threads_is_one_of_two_words() -> None:
    with pytest.raises(ConfigurationError, match="threads"):
        inbox_of(threads="all")


# Failures to sign in


class Wrong:
    """An `Auth` that says of a request that it came with a session."""

    async def identify(self, request: Request) -> Identity | None:
        return Identity(principal=OTTO, via="session")


def test_what_signs_nobody_in_says_so_when_the_inbox_is_made() -> None:
    store = MemoryStore()
    for auth in (Sessions(store), [ByHeader(), Sessions(store)]):
        with pytest.raises(ConfigurationError, match="Sessions sign nobody in"):
            Inbox(store, auth=auth)
    with pytest.raises(ConfigurationError, match="another store"):
        Inbox(store, auth=ApiTokens(MemoryStore()))
    with pytest.raises(ConfigurationError, match=r"Limits\(store, failures=\.\.\.\)"):
        Inbox(store, auth=ApiTokens(store, Failures(store, most=3)))


def test_an_inbox_of_programs_alone_has_api_tokens() -> None:
    store = MemoryStore()
    tokens = ApiTokens(store)
    item = asked(store)
    inbox = Inbox(store, desk(store), auth=tokens)
    issued = asyncio.run(tokens.issue("t", Principal(id="bot"), scopes=["read"], seconds=60))
    answer = Visitor(inbox, None, authorization=f"Bearer {issued.secret}").get(f"{API}/requests/{item.id}")
    assert (answer.status_code, answer.json()["id"]) == (200, item.id)
    assert Visitor(inbox, None).get(f"{API}/requests").status_code == 401
    assert Visitor(inbox, None).get("/login").status_code == 200


def test_what_is_configured_wrongly_is_the_server_s_fault(caplog: pytest.LogCaptureFixture) -> None:
    """For people: that it has failed, with an id. In the log: what is wrong, and the remedy."""
    inbox = inbox_of(auth=[Wrong(), TrustedProxy(peers=["10.0.0.5"], secret="s" * 32)])
    page = Visitor(inbox).get("/", headers={"accept": "text/html"})
    told = Visitor(inbox).get(f"{API}/requests")
    sent = Visitor(inbox).post(f"{API}/decisions:batch", json={})
    assert [each.status_code for each in (page, told, sent)] == [500, 500, 500]
    assert "ConfigurationError" not in page.text + told.text and "via is a name" not in page.text + told.text
    assert "via is a name of its own, not 'session'" in caplog.text


# The history of oneself


def decided_by_both(store: MemoryStore) -> None:
    """Three decisions: the first and the last of Rita's, and one of Otto's."""
    for order, who in ((1, RITA), (2, OTTO), (3, RITA)):
        item = asked(store, order)
        store.decide(item.id, Reject(reason=f"no {order}"), by=who, digest=item.digest)


@each(
    ("scopes", "who", "page", "found"),
    [
        (("read", "decide"), RITA, 200, ["no 1", "no 3"]),
        (("read", "decide"), OTTO, 200, ["no 2"]),
        (("decide",), RITA, 403, ["no 1", "no 3"]),
        (("read", "audit"), OTTO, 200, ["no 1", "no 2", "no 3"]),
        (("read", "decide", "audit"), OTTO, 200, ["no 1", "no 2", "no 3"]),
        (("read",), RITA, 403, None),
    ],
)
def test_who_may_decide_reads_their_own_history(
    scopes: Any, who: Principal, page: int, found: list[str] | None
) -> None:
    """In the page and in the API, in each form and from page to page. To read what others decided needs the scope `audit`."""
    store = MemoryStore()
    decided_by_both(store)
    inbox = inbox_of(store, auth=ByHeader(scopes=scopes), scopes=lambda _: SCOPES)
    visitor = Visitor(inbox, who.id)
    shown = visitor.get("/history")
    assert shown.status_code == page
    if page == 200:
        assert [each for each in ("no 1", "no 2", "no 3") if each in shown.text] == found
        assert ("Export" in shown.text, "Id of who decided" in shown.text) == (("audit" in scopes,) * 2)
        assert ("Otto" in shown.text) == (who is OTTO)
    read: list[str] = []
    path: str | None = f"{API}/audit?limit=1"
    while path is not None:
        answer = visitor.get(path)
        if found is None:
            assert problem(answer) == (403, "forbidden")
            return
        read += [each["reason"] for each in answer.json()["items"]]
        path = answer.links["next"]["url"] if "next" in answer.links else None
    assert read == found
    lines = visitor.get(f"{API}/audit?format=ndjson").text.splitlines()
    assert [json.loads(line)["reason"] for line in lines] == found
    assert (visitor.get("/audit").status_code, visitor.get("/audit.csv").status_code) == (
        (200,) * 2 if "audit" in scopes else (403,) * 2
    )


def test_a_page_without_the_right_says_so_in_words() -> None:
    inbox = inbox_of(auth=ByHeader(scopes=("read",)), scopes=lambda _: SCOPES)
    text = Visitor(inbox).get("/history").text
    assert "You are not allowed to see what other people decided." in text and "scope" not in text
    assert "Ask whoever runs this server" in text
    assert "see requests and runs" in Visitor(inbox).get("/me").text
    assert Visitor(inbox).get(f"{API}/audit").json()["detail"] == "You need the scope audit."
    assert 'href="/history"' not in text
