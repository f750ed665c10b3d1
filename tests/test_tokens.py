"""Tokens for links and buttons: each says who was shown which request and for what, and counts as long and as often as it may."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import jwt
import pytest
from drivers import Around, Driver, run
from hypothesis import example, given, settings
from hypothesis import strategies as st
from places import Place

from phronomy import (
    Agent,
    Approve,
    CheckpointAlreadyResumed,
    ConfigurationError,
    MemoryStore,
    Principal,
    StoreError,
    TokenError,
    TokenExpired,
    TokenInvalid,
    TokenUsed,
    tool,
)
from phronomy.stores import Behind, Document, Store
from phronomy.testing import ScriptedModel, call
from phronomy.tokens import Token, Tokens
from phronomy.tokens.tokens import KEPT, KIND, USED

pytestmark = pytest.mark.worlds(2)

OLD, NEW = b"o" * 32, "n" * 40
SHOWN: dict[str, Any] = {"pending_id": "pend_1", "digest": "d" * 64, "by": "rita"}
FORMS = ("short", "long")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """A store of each kind, tokens over it, and a clock that is moved by hand."""

    def __init__(self, place: Place, driver: Driver) -> None:
        self.place, self.driver, self.clock = place, driver, Clock()
        self.store = place.open(clock=self.clock)

    def tokens(self, store: Store | None = None, **given: Any) -> Tokens:
        options = {"keys": {"old": OLD, "new": NEW}, "current": "new", **given}
        return Tokens(store or self.store, **options)

    def call(self, method: str, *args: Any, tokens: Tokens | None = None, **given: Any) -> Any:
        return self.driver.call(tokens or self.tokens(), method, *args, **given)

    def issue(
        self, purpose: str = "approve", *, seconds: float = 60, tokens: Tokens | None = None, **given: Any
    ) -> str:
        text: str = self.call("issue", purpose, tokens=tokens, **{**SHOWN, "seconds": seconds, **given})
        return text

    def refused(self, kind: type[TokenError], text: Any, *, purpose: str = "approve", **given: Any) -> TokenError:
        """By both ways of using it; and nothing is changed."""
        before = self.rows()
        for method in ("verify", "redeem"):
            if method == "verify" and kind is TokenUsed:
                continue
            with pytest.raises(TokenError) as caught:
                self.call(method, text, purpose=purpose, **(given if method == "redeem" else {}))
            assert type(caught.value) is kind
            assert len(str(text)) < 40 or str(text) not in str(caught.value)
        assert self.rows() == before
        return caught.value

    def rows(self) -> list[Document]:
        return [*self.store.select_documents(KIND), *self.store.select_documents(USED)]


@pytest.fixture
def desk(place: Place, driver: Driver) -> Desk:
    return Desk(place, driver)


@pytest.fixture(params=FORMS)
def form(request: Any) -> str:
    found: str = request.param
    return found


# What it is


def test_a_token_says_who_was_shown_what_and_for_what(desk: Desk, form: str) -> None:
    text = desk.issue(form=form, by=Principal(id="rita", claims={"secret": "x"}), seconds=59.25)
    token = desk.call("verify", text, purpose="approve")
    assert (token.purpose, token.pending_id, token.digest, token.by) == ("approve", *SHOWN.values())
    assert (token.once, token.expires_at.timestamp()) == (True, 1_000_060)
    assert desk.call("redeem", text, purpose="approve") == token
    assert len(text) == 44 if form == "short" else 300 < len(text) < 500
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" + "." * (form == "long"))
    assert "secret" not in text + "".join(row.text for row in desk.rows())


def test_a_long_token_stands_alone(desk: Desk) -> None:
    """It is verified without the store. To note that one was used, a store is needed."""
    once, often = desk.issue(form="long"), desk.issue(form="long", once=False)
    alone = Tokens(keys={"new": NEW}, current="new", clock=desk.clock, tenant=desk.store.tenant)
    assert desk.rows() == []
    assert desk.call("verify", once, purpose="approve", tokens=alone).by == "rita"
    assert desk.call("redeem", often, purpose="approve", tokens=alone).by == "rita"
    with pytest.raises(ConfigurationError, match="counts once is noted in the store: give Tokens a store"):
        desk.call("redeem", once, purpose="approve", tokens=alone)
    with pytest.raises(ConfigurationError, match="a short token is looked up in the store"):
        desk.call("verify", desk.issue(), purpose="approve", tokens=alone)
    with pytest.raises(ConfigurationError, match="a short token is kept in the store"):
        desk.issue(tokens=alone)
    assert len(desk.issue(tokens=alone, form="long")) > 300


def test_no_two_tokens_are_alike(desk: Desk, form: str) -> None:
    texts = {desk.issue(form=form) for _ in range(20)}
    assert len(texts) == 20
    assert len({desk.call("verify", text, purpose="approve").id for text in texts}) == 20


# What does not count


def test_a_token_for_one_purpose_is_none_for_another(desk: Desk, form: str) -> None:
    text = desk.issue("view", form=form)
    for purpose in ("approve", "", "View", "view ", "vie"):
        desk.refused(TokenInvalid, text, purpose=purpose)
    assert desk.call("redeem", text, purpose="view").purpose == "view"


def test_a_token_that_was_tampered_with_does_not_count(desk: Desk, form: str) -> None:
    """Any character of it, and any that is added or left out."""
    text = desk.issue(form=form)
    step = 1 if form == "short" else 13
    for at in range(0, len(text), step):
        other = "A" if text[at] != "A" else "B"
        for wrong in (text[:at] + other + text[at + 1 :], text[:at] + text[at + 1 :], text[:at]):
            with pytest.raises(TokenInvalid):
                desk.call("verify", wrong, purpose="approve")
    for wrong in (
        text + "=",
        text + "A",
        "A" + text,
        f" {text}",
        f"{text}\n",
        text.replace("A", "%41") + "!",
        text.upper(),
    ):
        desk.refused(TokenInvalid, wrong)
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    same_bytes = [text[:-1] + letter for letter in last if letter != text[-1]]
    for wrong in same_bytes:  # with the bits that base64 leaves over
        with pytest.raises(TokenInvalid):
            desk.call("verify", wrong, purpose="approve")
    assert desk.call("verify", text, purpose="approve")


def test_a_token_has_one_text_only(desk: Desk, form: str) -> None:
    """Not that of another alphabet of base64, which has the same bytes."""
    texts = [desk.issue(form=form, once=False) for _ in range(8)]
    for text in texts:
        for wrong in {text.replace("-", "+"), text.replace("_", "/")} - {text}:
            desk.refused(TokenInvalid, wrong)
    assert any({"-", "_"} & set(text) for text in texts)


def test_a_token_counts_until_its_time_is_over(desk: Desk, form: str) -> None:
    """From that very moment on it does not, whether or not it was used; and whoever comes much later hears that it is not known."""
    used, text = desk.issue(form=form, seconds=60), desk.issue(form=form, seconds=60)
    desk.clock.now += 59.999
    desk.call("redeem", used, purpose="approve", use="a")
    desk.call("verify", text, purpose="approve")
    desk.clock.now = 1_000_060.0
    for each in (used, text):
        error = desk.refused(TokenExpired, each, use="a")
        assert isinstance(error, TokenExpired) and error.pending_id == "pend_1"
        desk.refused(TokenInvalid, each, purpose="view")
    desk.clock.now += KEPT
    desk.store.expire_documents()
    assert desk.rows() == []
    desk.refused(TokenInvalid if form == "short" else TokenExpired, text)


def test_a_use_is_not_forgotten_before_the_token_is_over(desk: Desk, form: str) -> None:
    """Not even in the moment between the look at its time and the write."""
    text = desk.issue(form=form, seconds=60)
    desk.call("redeem", text, purpose="approve", use="a")
    desk.clock.now = 1_000_059.5
    tokens = desk.tokens()
    times = iter([1_000_059.5])
    tokens._clock = lambda: next(times)  # the store looks at another clock: by that, the time is over
    desk.clock.now = 1_000_061.0
    desk.store.expire_documents()
    with pytest.raises(TokenUsed):
        tokens.redeem(text, purpose="approve", use="b")


def test_a_token_of_another_tenant_does_not_count(desk: Desk, form: str) -> None:
    """Not even where somebody has copied its row."""
    text = desk.issue(form=form)
    other = desk.place.open(clock=desk.clock, tenant="globex")
    with pytest.raises(TokenInvalid):
        desk.call("verify", text, purpose="approve", tokens=desk.tokens(other))
    for row in desk.rows():
        other.put_document(replace(row, version=""))
        forged = json.loads(row.text) | {"tenant": "globex"}
        other.put_document(replace(other.get_document(row.kind, row.key) or row, text=json.dumps(forged)))
    for method in ("verify", "redeem"):
        with pytest.raises(TokenInvalid):
            desk.call(method, text, purpose="approve", tokens=desk.tokens(other))
    assert desk.call("verify", text, purpose="approve")


def test_keys_are_rotated(desk: Desk, form: str) -> None:
    """What an earlier key has signed counts until that key is taken out."""
    before = desk.issue(form=form, tokens=desk.tokens(keys={"old": OLD}, current="old"))
    after = desk.issue(form=form)
    for text in (before, after):
        assert desk.call("verify", text, purpose="approve").by == "rita"
    without = desk.tokens(keys={"new": NEW})
    assert desk.call("redeem", after, purpose="approve", tokens=without)
    swapped = desk.tokens(keys={"old": NEW, "new": OLD})
    for text, tokens in ((before, without), (before, swapped), (after, swapped)):
        for method in ("verify", "redeem"):
            with pytest.raises(TokenInvalid):
                desk.call(method, text, purpose="approve", tokens=tokens)


NONSENSE: list[Any] = [
    *("", " ", "a", "A" * 44, "AQ" + "A" * 42, "é" * 44, "\ud800" * 44, "\x00" * 44, "=" * 44, "A" * 43, "A" * 45),
    *("..", "a.b.c", "A.A." + "A" * 43, "[" * 9000, "e30.e30." + "A" * 43, None, 7, b"A" * 44, ["A" * 44], {}),
    "x." * 5000,
]


def test_what_is_no_token_is_refused_as_such(desk: Desk) -> None:
    for wrong in NONSENSE:
        desk.refused(TokenInvalid, wrong)


LIKE_TOKENS = st.text(alphabet="ABCabc019-_.=", max_size=60)
OF_BYTES = st.binary(max_size=80).map(lambda data: base64.urlsafe_b64encode(data).decode().rstrip("="))


@settings(max_examples=300)
@given(st.text() | LIKE_TOKENS | OF_BYTES)
@example("eyJhbGciOiJIUzI1NiIsImtpZCI6Im5ldyIsInR5cCI6InBocm9ub215LXRva2VuK2p3dCJ9." + "e30." + "A" * 43)
def test_any_text_at_all_gives_a_typed_error(text: str) -> None:
    tokens = Tokens(MemoryStore(), keys={"new": NEW}, current="new")
    for use in (tokens.verify, tokens.redeem):
        with pytest.raises(TokenInvalid):
            use(text, purpose="approve")


@settings(max_examples=200)
@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=4), st.sampled_from(FORMS))
def test_bytes_that_are_put_into_a_token_make_it_invalid(at: int, data: bytes, form: Any) -> None:
    tokens = Tokens(MemoryStore(clock=Clock()), keys={"new": NEW}, current="new")
    text = tokens.issue("approve", **SHOWN, seconds=60, form=form).encode()
    at %= len(text)
    wrong = text[:at] + data + text[at + len(data) :]
    if wrong != text:
        with pytest.raises(TokenInvalid):
            tokens.redeem(wrong.decode("latin-1"), purpose="approve")


# Forgeries of the long form


def forged(claims: dict[str, Any], key: bytes | str = NEW, **header: Any) -> str:
    """A JWT that somebody has made by hand, with a good signature by this key."""
    head = {"alg": "HS256", "kid": "new", "typ": "phronomy-token+jwt"} | header
    return signed(
        json.dumps({name: value for name, value in head.items() if value is not ...}), json.dumps(claims), key
    )


def signed(header: str, body: str, key: bytes | str = NEW) -> str:
    parts = [base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in (header, body)]
    secret = key.encode() if isinstance(key, str) else key
    mac = hmac.new(secret, ".".join(parts).encode(), "sha256").digest()
    return ".".join([*parts, base64.urlsafe_b64encode(mac).rstrip(b"=").decode()])


def claims_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = jwt.decode(text, options={"verify_signature": False})
    return found


def test_a_long_token_is_read_in_one_way_only(desk: Desk) -> None:
    """No algorithm, key or type but its own, and no header that says how it is to be read."""
    claims = claims_of(desk.issue(form="long"))
    assert desk.call("verify", forged(claims), purpose="approve").by == "rita"
    none = jwt.encode(claims, None, algorithm="none", headers={"kid": "new", "typ": "phronomy-token+jwt"})
    nobody = b"x" * 32
    for wrong in (
        none,
        none + "A" * 43,
        forged(claims, alg="none"),
        forged(claims, alg="HS512"),
        forged(claims, alg="hs256"),
        forged(claims, alg=...),
        forged(claims, key=nobody),
        forged(claims, key=OLD),
        forged(claims, key=OLD, kid="old "),
        forged(claims, kid="other"),
        forged(claims, kid="../new"),
        forged(claims, kid=...),
        forged(claims, kid=["new"]),
        forged(claims, kid={"new": 1}),
        forged(claims, kid=None),
        forged(claims, typ="JWT"),
        forged(claims, typ=...),
        forged(claims, crit=["exp"]),
        forged(claims, b64=False),
        forged(claims, jwk={"kty": "oct", "k": "eHh4"}),
        forged(claims, zip="DEF"),
        jwt.encode(claims, NEW, headers={"kid": "new"}),
        signed('{"alg":"none","alg":"HS256","kid":"new","typ":"phronomy-token+jwt","x":1}', json.dumps(claims)),
        signed("[" * 2000, json.dumps(claims)),
        signed("1" * 5000, json.dumps(claims)),
    ):
        desk.refused(TokenInvalid, wrong)


def test_what_a_key_has_signed_is_not_yet_a_token(desk: Desk) -> None:
    """Every claim must be there, and of its type."""
    claims = claims_of(desk.issue(form="long"))
    for name in claims:
        for value in (None, [], {}, 1.5, -1, "2"):
            if name not in ("sub", "pending_id", "digest") or not isinstance(value, str):
                desk.refused(TokenInvalid, forged({**claims, name: value}))
    for name in claims:
        desk.refused(TokenInvalid, forged({key: value for key, value in claims.items() if key != name}))
    for body in ("[]", "1", '"x"', "null", "{", "[" * 3000, '{"a":NaN}', ""):
        desk.refused(TokenInvalid, signed('{"alg":"HS256","kid":"new","typ":"phronomy-token+jwt"}', body))
    for exp in (10**30, 253_370_764_801, 0, True, "1000060"):
        desk.refused(TokenInvalid, forged({**claims, "exp": exp}))


# Forgeries of the short form


def test_whoever_can_write_to_the_store_cannot_have_a_token_say_something_else(desk: Desk) -> None:
    """All that it says is covered by its signature; what is not there, or is of another token, does not count."""
    text, other = desk.issue(), desk.issue("reject", by="otto", pending_id="pend_2")
    mine, theirs = sorted(desk.rows(), key=lambda row: json.loads(row.text)["sub"] != "rita")
    good = json.loads(mine.text)
    changes: list[Any] = [
        *({**good, "sub": who} for who in ("otto", "", None, 7)),
        *({**good, "pending_id": id} for id in ("pend_2", None)),
        {**good, "digest": "e" * 64},
        {**good, "purpose": "reject"},
        *({**good, "exp": good["exp"] + more} for more in (1, 10**6, 0.5)),
        {**good, "once": False},
        *({**good, "key": id} for id in ("old", "other", None, [])),
        {**good, "tenant": "globex"},
        {**good, "version": 2},
        *({key: value for key, value in good.items() if key != name} for name in good if name != "use"),
        json.loads(theirs.text),
        {**json.loads(theirs.text), "jti": good["jti"]},
        *([], {}, "x", None, 7),
    ]
    for changed in changes:
        now = desk.store.get_document(KIND, mine.key)
        assert now is not None
        desk.store.put_document(replace(now, text=json.dumps(changed)))
        for purpose in ("approve", "reject"):
            with contextlib.suppress(TokenInvalid):
                desk.call("redeem", text, purpose=purpose)
                raise AssertionError(changed)
    for damaged in ("", "{", "[" * 3000, '{"a":1,"a":2}'):
        now = desk.store.get_document(KIND, mine.key)
        assert now is not None
        desk.store.put_document(replace(now, text=damaged))
        desk.refused(TokenInvalid, text)
    desk.store.delete_document(KIND, mine.key)
    desk.refused(TokenInvalid, text)
    assert desk.call("redeem", other, purpose="reject").by == "otto"


def test_rows_that_are_swapped_are_rows_of_no_token(desk: Desk) -> None:
    texts = {who: desk.issue(by=who) for who in ("rita", "otto")}
    one, two = desk.rows()
    desk.store.put_document(replace(one, text=two.text))
    desk.store.put_document(replace(two, text=one.text))
    for text in texts.values():
        desk.refused(TokenInvalid, text)


def test_a_copy_of_a_row_is_no_second_use_of_its_token(desk: Desk) -> None:
    """Somebody who has the token and can write to the store puts the row under another id, to use it once more."""
    text = desk.issue()
    desk.call("redeem", text, purpose="approve", use="a")
    (row,) = desk.rows()
    fresh = json.dumps(json.loads(row.text) | {"use": None})
    desk.store.put_document(replace(row, key="B" * 21 + "A", version="", text=fresh))
    id = base64.urlsafe_b64decode("B" * 21 + "A==")
    copied = base64.urlsafe_b64encode(b"\1" + id + base64.urlsafe_b64decode(text)[17:]).decode()
    desk.refused(TokenInvalid, copied, use="b")


def test_the_two_forms_are_not_taken_for_each_other(desk: Desk) -> None:
    long = desk.issue(form="long")
    desk.call("redeem", long, purpose="approve", use="a")
    (row,) = desk.rows()
    wrong = base64.urlsafe_b64encode(b"\1" + base64.urlsafe_b64decode(row.key + "==") + b"\0" * 16).decode()
    desk.store.put_document(replace(row, kind=KIND, version="", text=json.dumps(claims_of(long) | {"key": "new"})))
    desk.refused(TokenInvalid, wrong)


# Once, or any number of times


def test_a_token_that_counts_once_is_bound_to_its_first_use(desk: Desk, form: str) -> None:
    """The same use again is the same, so that whoever was interrupted can try again."""
    text = desk.issue(form=form)
    token = desk.call("redeem", text, purpose="approve", use="yes")
    for _ in range(2):
        assert desk.call("redeem", text, purpose="approve", use="yes") == token
    for other in ("no", "", "yes ", "\ud800"):
        error = desk.refused(TokenUsed, text, use=other)
        assert isinstance(error, TokenUsed) and error.pending_id == "pend_1"
    assert desk.call("verify", text, purpose="approve") == token
    assert "yes" not in "".join(row.text for row in desk.rows())
    plain = desk.issue(form=form)
    desk.call("redeem", plain, purpose="approve")
    desk.refused(TokenUsed, plain, use="yes")


def test_a_token_that_counts_any_number_of_times_is_bound_to_no_use(desk: Desk, form: str) -> None:
    text = desk.issue(form=form, once=False)
    before = desk.rows()
    assert {desk.call("redeem", text, purpose="approve", use=use) for use in "abc"} == {
        desk.call("verify", text, purpose="approve")
    }
    assert desk.rows() == before


def test_of_those_that_redeem_a_token_at_once_one_does(desk: Desk, form: str) -> None:
    """In threads, and in tasks of one loop; all of one use are one."""
    for shared in (False, True):
        text, count = desk.issue(form=form), 6
        start = Barrier(count)

        def work(number: int, text: str = text, start: Barrier = start, shared: bool = shared) -> Token | TokenUsed:
            start.wait()
            try:
                return desk.tokens().redeem(text, purpose="approve", use="same" if shared else f"{number}")
            except TokenUsed as error:
                return error

        with ThreadPoolExecutor(count) as pool:
            found = list(pool.map(work, range(count)))
        assert sum(isinstance(each, Token) for each in found) == (count if shared else 1)

    text = desk.issue(form=form)

    async def together() -> list[Any]:
        tokens = desk.tokens()
        redeemed = [tokens.aredeem(text, purpose="approve", use=f"{number}") for number in range(4)]
        return await asyncio.gather(*redeemed, return_exceptions=True)

    found = run(together())
    assert sorted(type(each).__name__ for each in found) == ["Token", "TokenUsed", "TokenUsed", "TokenUsed"]


@pytest.mark.parametrize("used", [False, True])
def test_a_store_that_contradicts_itself_is_not_asked_for_ever(used: bool, form: Any) -> None:
    """It says that somebody was first, though nobody was."""
    store = MemoryStore()

    class Stuck(Around):
        def put_document(self, document: Document) -> Document:
            if used:
                self.inner.put_document(document)
            raise Behind(document.key)

    text = Tokens(store, keys={"new": NEW}, current="new").issue("approve", **SHOWN, seconds=60, form=form)
    tokens = Tokens(Stuck(store), keys={"new": NEW}, current="new")
    if used:  # the write was made, and its answer was lost
        assert tokens.redeem(text, purpose="approve", use="a").by == "rita"
    else:
        with pytest.raises(StoreError if form == "short" else TokenInvalid):
            tokens.redeem(text, purpose="approve", use="a")


# With a decision


def test_a_redeemed_token_decides_what_was_shown(desk: Desk) -> None:
    """The digest in the token goes into the decision; a click that is sent twice is one decision."""

    @tool(requires_approval=True)
    def refund(order_id: int) -> str:
        """Refund an order."""
        return "on its way"

    agent = Agent(name="desk", model=ScriptedModel([call("refund", {"order_id": 1})]), tools=[refund], store=desk.store)
    agent.invoke("Refund 1")
    item = desk.store.pending()[0].approval
    texts = {purpose: desk.issue(purpose, pending_id=item.id, digest=item.digest) for purpose in ("approve", "reject")}
    for _ in range(2):
        token = desk.call("redeem", texts["approve"], purpose="approve", use="approve")
        answer = {"by": token.by, "digest": token.digest, "channel": "mail", "key": token.id}
        decided = desk.driver.call(desk.store, "decide", token.pending_id, Approve(), **answer)
        assert (decided.status, decided.decision.by.id, decided.decision.channel) == ("decided", "rita", "mail")
    late = desk.call("redeem", texts["reject"], purpose="reject")
    with pytest.raises(CheckpointAlreadyResumed):
        desk.store.decide(late.pending_id, Approve(), by=late.by, digest=late.digest)


# What is given wrong, and what nobody may see


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"keys": {}}, "keys is a mapping"),
        ({"keys": None}, "keys is a mapping"),
        ({"keys": {"new": "s3cret" * 5}}, "at least 32 random bytes"),
        ({"keys": {"new": b"s3cret"}}, "at least 32 random bytes"),
        ({"keys": {"new": 7}}, "at least 32 random bytes"),
        ({"keys": {"a b": NEW}}, "the id of a key"),
        ({"keys": {"": NEW}}, "the id of a key"),
        ({"current": "other"}, "one of keys"),
        ({"current": None}, "one of keys"),
        ({"store": "x"}, "store is a store"),
        ({"tenant": "x"}, "those of the store"),
        ({"clock": Clock()}, "those of the store"),
    ],
)
def test_what_tokens_are_made_with_is_checked(given: dict[str, Any], says: str) -> None:
    options = {"store": MemoryStore(), "keys": {"new": NEW}, "current": "new", **given}
    with pytest.raises(ConfigurationError, match=says) as caught:
        Tokens(**options)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        *({"seconds": seconds} for seconds in (0, -1, float("nan"), float("inf"), None, True, "60", 10**12)),
        *({name: text} for name in SHOWN for text in ("", None, 7, "\ud800", "x" * 1501)),
        {"form": "medium"},
        {"once": 1},
        {"purpose": ""},
    ],
)
def test_what_a_token_is_made_of_is_checked(given: dict[str, Any]) -> None:
    store = MemoryStore()
    options = {"purpose": "approve", **SHOWN, "seconds": 60, **given}
    with pytest.raises(ConfigurationError):
        Tokens(store, keys={"new": NEW}, current="new").issue(**options)
    assert store.select_documents(KIND) == []


def test_no_key_and_no_token_is_shown_or_stored(desk: Desk, form: str, caplog: pytest.LogCaptureFixture) -> None:
    tokens = desk.tokens()
    text = desk.issue(form=form)
    desk.call("redeem", text, purpose="approve")
    shown = repr(tokens) + "".join(row.text + row.key for row in desk.rows()) + caplog.text
    shown += repr(desk.call("verify", text, purpose="approve"))
    assert NEW not in shown and OLD.decode() not in shown and text not in shown
    assert "current='new'" in repr(tokens)


def test_a_key_of_a_key_pair_is_no_secret() -> None:
    pair = "-----BEGIN PUBLIC KEY-----\n" + "A" * 64 + "\n-----END PUBLIC KEY-----\n"
    tokens = Tokens(keys={"new": pair}, current="new")
    with pytest.raises(ConfigurationError, match="no key of a key pair"):
        tokens.issue("approve", **SHOWN, seconds=60, form="long")


def test_errors_of_tokens_keep_what_they_say_in_another_process() -> None:
    for error in (TokenInvalid("x"), TokenExpired("x", pending_id="p"), TokenUsed("x", pending_id="p")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), vars(again), str(again)) == (type(error), vars(error), "x")


def test_the_library_is_loaded_for_long_tokens_alone() -> None:
    program = """
import sys
from phronomy import MemoryStore
from phronomy.tokens import Tokens
tokens = Tokens(MemoryStore(), keys={"a": "k" * 32}, current="a")
shown = {"pending_id": "p", "digest": "d", "by": "rita", "seconds": 60}
tokens.redeem(tokens.issue("view", **shown), purpose="view")
assert "jwt" not in sys.modules
sys.modules["jwt"] = None
try:
    tokens.issue("view", **shown, form="long")
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "long tokens need PyJWT: pip install 'phronomy[tokens]'\n"


# Stored rows of earlier releases


FIRST_ROW = (
    '{"version": 1, "jti": "AAAAAAAAAAAAAAAAAAAAAA", "sub": "rita", "exp": 1000060, "tenant": "", "purpose": "approve", '
    '"pending_id": "pend_1", "digest": "d", "once": true, "key": "new", "use": null}'
)
FIRST_SHORT = "AQAAAAAAAAAAAAAAAAAAAADrrUOkg3bDSb1-ciXSxii3"
FIRST_LONG = (
    "eyJhbGciOiJIUzI1NiIsImtpZCI6Im5ldyIsInR5cCI6InBocm9ub215LXRva2VuK2p3dCJ9."
    "eyJ2ZXJzaW9uIjoxLCJqdGkiOiJBQUFBQUFBQUFBQUFBQUFBQUFBQUFBIiwic3ViIjoicml0YSIsImV4cCI6MTAwMDA2MCwidGVu"
    "YW50IjoiIiwicHVycG9zZSI6ImFwcHJvdmUiLCJwZW5kaW5nX2lkIjoicGVuZF8xIiwiZGlnZXN0IjoiZCIsIm9uY2UiOnRydWV9."
    "3MTVSPV5f_ep9tKRGI0RpkJMeTjK8UbuaPvew2O10m0"
)


def test_tokens_that_an_earlier_release_has_made_still_count() -> None:
    store = MemoryStore(clock=Clock())
    store.put_document(Document(kind="token", key="A" * 22, text=FIRST_ROW))
    tokens = Tokens(store, keys={"new": NEW}, current="new")
    for text in (FIRST_SHORT, FIRST_LONG):
        token = tokens.redeem(text, purpose="approve")
        assert (token.id, token.by, token.digest, token.pending_id) == ("A" * 22, "rita", "d", "pend_1")
