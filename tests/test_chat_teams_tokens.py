"""The proof of the Bot Connector: which tokens count, and how often keys are asked for."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from chat_scenes import OTTO, RITA, approvals_of, asked, emptied, with_people
from hypothesis import given, settings
from hypothesis import strategies as st

from phronomy import MemoryStore
from phronomy.chat import ChatApprovals, Response
from phronomy.chat.teams.tokens import Keys, service_of
from phronomy.testing.chat import Clock, FakeTeams, Sent
from phronomy.testing.chat.teams import APP_ID, TENANT

OTHER = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def teams() -> Iterator[FakeTeams]:
    with FakeTeams(Clock()) as fake:
        yield fake


@pytest.fixture
def approvals(teams: FakeTeams) -> ChatApprovals:
    return approvals_of(MemoryStore(clock=teams.clock), teams)


def answered(approvals: ChatApprovals, sent: Sent, body: bytes | None = None) -> Response:
    return approvals.handle("POST", sent.path, sent.headers, sent.body if body is None else body)


def typing(teams: FakeTeams, **changes: Any) -> dict[str, Any]:
    """An activity that means nothing for us, so that an answer of 200 says that it was let in."""
    return {**teams.activity("typing", RITA), **changes}


WRONG_TOKENS: dict[str, dict[str, Any]] = {
    "for another app": {"claims": {"aud": OTHER}},
    "for several apps": {"claims": {"aud": [APP_ID, OTHER]}},
    "of another issuer": {"claims": {"iss": "https://sts.windows.net/"}},
    "without an issuer": {"claims": {"iss": None}},
    "expired": {"claims": {"exp": 1_800_000_000 - 301}},
    "without an end": {"claims": {"exp": None}},
    "that ends at no time": {"claims": {"exp": "9999999999"}},
    "that ends beyond all times": {"claims": {"exp": 10**400}},
    "of the future": {"claims": {"nbf": 1_800_000_000 + 301}},
    "without a service": {"claims": {"serviceurl": None}},
    "that is not signed": {"way": "none"},
    "signed with the public key as a secret": {"way": "HS256"},
    "signed by another key under the same id": {"key": 7},
    "of a key that is not published": {"header": {"kid": "other"}},
    "that names no key": {"header": {"kid": None}},
    "of another kind": {"header": {"typ": "at+jwt"}},
    "of an algorithm that is not ours": {"header": {"alg": "PS256"}},
    "that demands an extension": {"header": {"crit": ["b64"], "b64": True}},
}


@pytest.mark.parametrize("how", WRONG_TOKENS)
def test_a_wrong_token_is_refused(teams: FakeTeams, approvals: ChatApprovals, how: str) -> None:
    activity = typing(teams)
    assert answered(approvals, teams.signed(activity)).status == 200
    found = answered(approvals, teams.signed(activity, **WRONG_TOKENS[how]))
    assert found.status == 401 and b"not from Teams" in found.body


@pytest.mark.parametrize("moved", [-59, 3_600 + 299])
def test_clocks_may_differ_by_five_minutes(teams: FakeTeams, approvals: ChatApprovals, moved: float) -> None:
    sent = teams.signed(typing(teams))
    teams.clock.move(moved)
    assert answered(approvals, sent).status == 200
    teams.clock.move(-302 if moved < 0 else 1)
    assert answered(approvals, sent).status == 401


WRONG_ACTIVITIES: dict[str, dict[str, Any]] = {
    "of another service than its token": {"serviceUrl": "https://smba.trafficmanager.net/emea/"},
    "without a service": {"serviceUrl": None},
    "with an empty service": {"serviceUrl": ""},
    "of another channel": {"channelId": "webchat"},
    "without a channel": {"channelId": None},
    "of another tenant": {"channelData": {"tenant": {"id": OTHER}}},
    "with a person of another tenant": {"from": {"id": "29:1", "aadObjectId": OTHER, "tenantId": OTHER}},
    "without a tenant": {"channelData": {}, "conversation": {"id": "a:1"}},
    "whose tenant is no text": {"conversation": {"id": "a:1", "tenantId": [TENANT]}},
}


@pytest.mark.parametrize("how", WRONG_ACTIVITIES)
def test_an_activity_that_does_not_fit_its_token_or_this_app_is_refused(
    teams: FakeTeams, approvals: ChatApprovals, how: str
) -> None:
    activity = {name: value for name, value in typing(teams, **WRONG_ACTIVITIES[how]).items() if value is not None}
    assert answered(approvals, teams.signed(activity)).status == 403


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/teams/",
        "https://evil.trafficmanager.net/teams/",
        "https://smba.trafficmanager.net.evil.example/",
        "https://smba.trafficmanager.net@evil.example/",
        "https://smba.trafficmanager.net:444/teams/",
        "http://smba.trafficmanager.net/teams/",
        "smba.trafficmanager.net",
        "https://smba.trafficmanager.net\\@evil.example/",
        "https://[/",
    ],
)
def test_a_service_of_another_host_is_refused_even_if_its_token_is_right(url: str) -> None:
    """Whatever the token says: nothing is sent there."""
    with FakeTeams(Clock()) as fake:
        from phronomy.chat.teams import Cloud, Teams

        cloud = Cloud(metadata_url=fake.metadata_url)
        channel = Teams(app_id=APP_ID, app_password="p", tenant_id=TENANT, cloud=cloud)
        store = MemoryStore(clock=fake.clock)
        approvals = approvals_of(store, _Only(channel))
        right = "https://smba.trafficmanager.net/emea/"
        for address, status in ((right, 200), (url, 403)):
            sent = fake.signed(typing(fake, serviceUrl=address), claims={"serviceurl": address})
            assert answered(approvals, sent).status == status


class _Only:
    """A platform that is its channel alone."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.place = "teams:19:1"

    def connect(self, handler: object) -> None:
        pass


def test_a_key_speaks_only_for_the_channels_that_it_is_endorsed_for(teams: FakeTeams, approvals: ChatApprovals) -> None:
    teams.endorsements = ["webchat"]
    assert answered(approvals, teams.signed(typing(teams))).status == 401


def test_a_token_counts_only_as_it_was_written(teams: FakeTeams, approvals: ChatApprovals) -> None:
    """The last letter of a signature has bits that stand for nothing: the same bytes have one text."""
    sent = teams.signed(typing(teams))
    token = sent.headers["Authorization"].removeprefix("Bearer ")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    others = [token[:-1] + each for each in letters if each != token[-1]]
    same = [each for each in others if decoded(each) == decoded(token)]
    assert len(same) == 15
    for text in (*same, token + "=", token + "\n", f"{token}.{token}", token[: token.rindex(".")]):
        headers = {**sent.headers, "Authorization": f"Bearer {text}"}
        assert approvals.handle("POST", sent.path, headers, sent.body).status == 401
    for header in ("Basic " + token, token, "Bearer", "Bearer ", "Bearer " + "a" * 9_000):
        assert approvals.handle("POST", sent.path, {"Authorization": header}, sent.body).status == 401


def decoded(token: str) -> bytes:
    text = token.rpartition(".")[2]
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# Keys


def test_a_new_key_is_looked_for_once_and_forged_ids_do_not_have_us_ask_again(
    teams: FakeTeams, approvals: ChatApprovals
) -> None:
    old = teams.signed(typing(teams))
    assert answered(approvals, old).status == 200 and teams.keys_read == 1
    for number in range(50):
        assert answered(approvals, teams.signed(typing(teams), header={"kid": f"k{number}"})).status == 401
    assert teams.keys_read == 1
    teams.rotate()
    assert answered(approvals, teams.signed(typing(teams))).status == 401 and teams.keys_read == 1
    teams.clock.move(61)
    assert answered(approvals, teams.signed(typing(teams))).status == 200 and teams.keys_read == 2
    # The old key is not published any more.
    assert answered(approvals, old).status == 401


def test_what_is_not_for_us_has_us_ask_for_no_keys(teams: FakeTeams, approvals: ChatApprovals) -> None:
    for claims in ({"aud": OTHER}, {"iss": "x"}, {"exp": 0}):
        assert answered(approvals, teams.signed(typing(teams), claims=claims)).status == 401
    assert teams.keys_read == 0


def test_keys_are_kept_while_nobody_answers_and_not_for_ever(teams: FakeTeams, approvals: ChatApprovals) -> None:
    assert answered(approvals, teams.signed(typing(teams))).status == 200
    teams.keys_are_down = True
    teams.clock.move(3_601)
    assert answered(approvals, teams.signed(typing(teams))).status == 200
    teams.clock.move(86_400)
    assert answered(approvals, teams.signed(typing(teams))).status == 503
    teams.keys_are_down = False
    teams.clock.move(61)
    assert answered(approvals, teams.signed(typing(teams))).status == 200


def test_without_keys_nothing_is_let_in(teams: FakeTeams, approvals: ChatApprovals) -> None:
    teams.keys_are_down = True
    assert answered(approvals, teams.signed(typing(teams))).status == 503
    teams.keys_are_down = False
    assert answered(approvals, teams.signed(typing(teams))).status == 503  # it was asked for a moment ago
    teams.clock.move(6)
    assert answered(approvals, teams.signed(typing(teams))).status == 200


@pytest.mark.parametrize(
    "change",
    [
        {"kty": "EC"},
        {"use": "enc"},
        {"alg": "RS512"},
        {"kid": ""},
        {"kid": 7},
        {"n": "AQAB"},
        {"n": "!"},
        {"e": ""},
        {"endorsements": "msteams"},
        {"endorsements": None},
    ],
)
def test_a_key_that_is_none_proves_nothing(teams: FakeTeams, change: dict[str, Any]) -> None:
    from phronomy.chat import Refused
    from phronomy.testing.chat.teams.signing import published

    documents: list[dict[str, Any]] = []

    def ask(url: str) -> dict[str, Any]:
        if url.endswith("/m"):
            return {"jwks_uri": "https://x/keys"}
        return documents[-1]

    header = teams.signed(typing(teams)).headers["Authorization"]
    for each in ({}, change):
        documents.append({"keys": [{**published(0, "key-0", ["msteams"]), **each}]})
        found = Keys("https://x/m", ask)
        if each:
            with pytest.raises(Refused):
                service_of(header, found, app_id=APP_ID, issuer="https://api.botframework.com", now=teams.clock.now)
        else:
            service_of(header, found, app_id=APP_ID, issuer="https://api.botframework.com", now=teams.clock.now)


def test_keys_are_read_with_https_alone(teams: FakeTeams) -> None:
    from phronomy.chat.teams.tokens import NoKeys

    asked_for: list[str] = []

    def ask(url: str) -> dict[str, Any]:
        asked_for.append(url)
        return {"jwks_uri": "http://evil.example/keys"}

    with pytest.raises(NoKeys):
        Keys("https://x/m", ask).find("key-0", 1.0)
    assert asked_for == ["https://x/m"]


# Any bytes at all

json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "name",
                    "from",
                    "id",
                    "aadObjectId",
                    "value",
                    "action",
                    "data",
                    "phronomy",
                    "phronomy-form",
                    "fields",
                ]
            )
            | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)

NAMES = "type name value from conversation channelData recipient entities text id replyToId serviceUrl membersAdded"

changes = st.dictionaries(
    st.sampled_from(NAMES.split()),
    json_values | st.sampled_from(["invoke", "message", "task/fetch", "task/submit", "adaptiveCard/action", "place"]),
)

FUZZED = FakeTeams(Clock())
"""One for all examples: it is closed with the process."""


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=200) | json_values | changes.map(lambda each: {"changes": each}), sealed=st.booleans())
def test_any_body_gets_an_answer_and_never_a_500(body: Any, sealed: bool) -> None:
    approvals = approvals_of(MemoryStore(clock=FUZZED.clock), FUZZED)
    if isinstance(body, dict) and isinstance(body.get("changes"), dict):
        body = {**FUZZED.activity("invoke", RITA, name="adaptiveCard/action"), **body["changes"]}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = FUZZED.signed(raw, way="RS256" if sealed else "none")
    response = answered(approvals, sent)
    assert response.status < 500
    if not sealed:
        assert response.status == 401


@settings(max_examples=200, deadline=None)
@given(header=st.text(max_size=80) | st.text(alphabet="Bearer .abcAB-_=\n", max_size=80).map("Bearer ".__add__))
def test_any_header_is_refused(header: str) -> None:
    approvals = approvals_of(MemoryStore(clock=FUZZED.clock), FUZZED)
    assert approvals.handle("POST", "/teams", {"Authorization": header}, b"{}").status == 401


# Replays


def test_a_token_that_is_replayed_with_another_body_decides_nothing_without_a_button(teams: FakeTeams) -> None:
    """The body is not signed. A button is, for one request: and it is the person of the body who clicks."""
    store = with_people(MemoryStore(clock=teams.clock), teams)
    approvals = approvals_of(store, teams)
    item = asked(approvals, store)
    emptied(approvals, teams.clock)
    [shown] = teams.messages()
    sent = teams.sign(shown, "approve", RITA)
    forged = json.loads(sent.body)
    forged["value"]["action"]["data"]["phronomy"] = "a" + "A" * 44
    assert b"not known" in answered(approvals, sent, json.dumps(forged).encode()).body
    assert list(store.audit(pending_id=item.id)) == []
    first, again = teams.deliver(sent), teams.deliver(sent)
    assert first == again
    teams.click(shown, "reject", OTTO)
    assert [(each.by and each.by.id, each.kind) for each in store.audit(pending_id=item.id)] == [("rita", "approve")]
