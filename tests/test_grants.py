"""Standing grants in a store: how they are given, signed, listed, used up, revoked and kept apart."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from drivers import Around, Driver
from hypothesis import given
from hypothesis import strategies as st
from places import Place

from phronomy import (
    Agent,
    Approve,
    Grant,
    GrantRefused,
    InvalidDecision,
    InvalidField,
    MemoryStore,
    PendingApproval,
    Principal,
    Reject,
    RequestExpired,
    StoreError,
    UnknownPending,
    tool,
)
from phronomy.records.decisions import ToolIdentity
from phronomy.records.grants import NEEDED, Given, Revoked, covers, is_spent
from phronomy.stores import Behind, Document, Store
from phronomy.stores.derived.grants import _BATCH, KEPT, KIND, agrants_for, grants_for, key_of
from phronomy.testing import ScriptedModel, call
from phronomy.testing.store_contract.base import race

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
ANY = Grant(agent="desk", tool="pay", scope="tenant", until=NOW + DAY)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = NOW.timestamp()

    def __call__(self) -> float:
        return self.now


class Counter:
    """A store of each kind, with the clock that it follows."""

    def __init__(self, place: Place, driver: Driver) -> None:
        self.place, self.driver, self.clock = place, driver, Clock()
        self.store = self.open()

    def open(self, tenant: str = "") -> Store:
        return self.place.open(tenant=tenant, clock=self.clock)

    def call(self, method: str, *args: Any, tenant: str = "", **options: Any) -> Any:
        store = self.store if tenant == "" else self.open(tenant)
        return self.driver.call(store, method, *args, **options)  # type: ignore[arg-type]

    def asked(self, **options: Any) -> tuple[PendingApproval, str]:
        """A request that waits, and its run."""
        agent = Agent(
            name="desk",
            model=ScriptedModel.by_turn([[call("pay", {"order": 1})], "Done."]),
            tools=[pay],
            store=self.store,
        )
        checkpoint = agent.invoke("Pay", **options).checkpoint
        return checkpoint.pending[0], checkpoint.run_id


@tool(requires_approval=True)
def pay(order: int, note: str = "") -> str:
    """Pay an order."""
    return "paid"


@pytest.fixture
def counter(place: Place, driver: Driver) -> Counter:
    return Counter(place, driver)


# The record


def texts() -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@st.composite
def grants(draw: st.DrawFn) -> Grant:
    scope = draw(st.sampled_from(["run", "thread", "principal", "tenant"]))
    which = draw(st.sampled_from(["args", "condition", "neither"]))
    uses = draw(st.none() | st.integers(1, 1_000))
    used = draw(st.lists(texts(), unique=True, max_size=min(uses, 5))) if uses is not None else []
    until = draw(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
    who = Principal(id=draw(texts()), roles=("lead",), claims={"token": "s3cret"})
    return Grant(
        agent=draw(texts()),
        tool=draw(texts()),
        endpoint=draw(st.none() | texts()),
        args={draw(texts()): draw(st.integers())} if which == "args" else None,
        condition="small" if which == "condition" else None,
        scope=scope,
        until=until if uses is None and scope != "run" else draw(st.none() | st.just(until)),
        uses=uses,
        used=tuple(used),
        count=len(used) if uses is not None else draw(st.integers(0, 10**9)),
        givers=(Given(principal=who, at=until, channel=draw(st.none() | texts())),),
        revoked=draw(st.none() | st.just(Revoked(principal=who, at=until, reason="wrong"))),
        **({NEEDED[scope]: draw(texts())} if scope in NEEDED else {}),
    )


@given(grants())
def test_a_grant_is_read_as_it_was_written(grant: Grant) -> None:
    text = grant.model_dump_json()
    assert Grant.model_validate_json(text) == grant and "s3cret" not in text
    assert grant.uses_left == (None if grant.uses is None else grant.uses - len(grant.used))
    assert is_spent(grant) == (grant.uses_left == 0)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"until": None}, "tenant ends: give until, uses or both"),
        ({"scope": "thread", "thread_id": "chat", "until": None}, "thread ends"),
        ({"scope": "run"}, "the scope run has run_id and no other id"),
        ({"scope": "run", "thread_id": "chat"}, "the scope run has run_id"),
        ({"scope": "thread", "thread_id": "chat", "run_id": "r"}, "the scope thread has thread_id"),
        ({"scope": "principal", "thread_id": "chat"}, "the scope principal has requester"),
        ({"requester": "max"}, "the scope tenant has no run_id, thread_id or requester"),
        ({"scope": "all"}, "scope: "),
        ({"args": {}, "condition": "small"}, "args or a condition, not both"),
        ({"args": [1]}, "args: "),
        ({"uses": 0}, "uses: "),
        ({"uses": 1_001}, "uses: "),
        ({"uses": True}, "uses: "),
        ({"until": datetime(2030, 1, 1)}, "until: "),  # noqa: DTZ001
        ({"agent": ""}, "agent: "),
        ({"tool": ""}, "tool: "),
        ({"condition": ""}, "condition: "),
        ({"uses": 2, "used": ("a", "a"), "count": 2}, "names each request"),
        ({"uses": 2, "used": ("a",), "count": 2}, "names each request"),
        ({"used": ("a",), "count": 1}, "names each request"),
        ({"uses": 1, "used": ("a", "b"), "count": 2}, "not used more often"),
        ({"version": 2}, "version: "),
    ],
)
def test_what_a_grant_is_made_of_is_checked(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidField, match=r"^Grant: ") as caught:
        Grant(**{"agent": "desk", "tool": "pay", "scope": "tenant", "until": NOW, **wrong})
    assert why in str(caught.value)


def test_a_grant_for_a_run_needs_no_other_end() -> None:
    grant = Grant(agent="desk", tool="pay", scope="run", run_id="r", args={"token": "s3cret"})
    assert (grant.uses_left, is_spent(grant)) == (None, False)
    assert "s3cret" not in repr(grant) + str(grant)


LOCAL = ToolIdentity(name="pay", schema_hash="5c4e", gate="always")
CALL: dict[str, Any] = {
    "agent": "desk",
    "tool": LOCAL,
    "args_text": '{"order":1}',
    "run_id": "r",
    "thread_id": "chat",
    "requester_id": "max",
}


@pytest.mark.parametrize(
    ("terms", "other"),
    [
        ({}, {"agent": "clerk"}),
        ({}, {"tool": LOCAL.evolve(name="refund")}),
        ({}, {"tool": LOCAL.evolve(source="mcp:bank", endpoint="https://bank.example.org")}),
        ({}, {"tool": LOCAL.evolve(source="mcp:bank")}),
        ({}, {"tool": LOCAL.evolve(endpoint="https://bank.example.org")}),
        ({"schema_hash": "5c4e"}, {"tool": LOCAL.evolve(schema_hash="5c4f")}),
        ({"args": {"order": 1}}, {"args_text": '{"order":2}'}),
        ({"args": {"order": 1}}, {"args_text": '{"order":1,"note":""}'}),
        ({"args": {"order": 1}}, {"args_text": '{"order":1.0}'}),
        ({"scope": "run", "run_id": "r"}, {"run_id": "r2"}),
        ({"scope": "thread", "thread_id": "chat"}, {"thread_id": "chat2"}),
        ({"scope": "thread", "thread_id": "chat"}, {"thread_id": None}),
        ({"scope": "principal", "requester": "max"}, {"requester_id": "Max"}),
        ({"scope": "principal", "requester": "max"}, {"requester_id": None}),
    ],
)
def test_a_grant_covers_what_it_says_and_nothing_else(terms: dict[str, Any], other: dict[str, Any]) -> None:
    grant = Grant(**{"agent": "desk", "tool": "pay", "scope": "tenant", "until": NOW, **terms})
    assert covers(grant, **CALL)
    assert not covers(grant, **{**CALL, **other})
    assert not covers(grant.evolve(revoked=Revoked(principal=Principal(id="rita"), at=NOW)), **CALL)


def test_a_grant_for_a_tool_of_a_server_does_not_cover_a_local_one() -> None:
    grant = ANY.evolve(source="mcp:bank", endpoint="https://bank.example.org")
    assert covers(grant, **{**CALL, "tool": LOCAL.evolve(source="mcp:bank", endpoint="https://bank.example.org")})
    assert not covers(grant, **CALL)
    assert not covers(grant, **{**CALL, "tool": LOCAL.evolve(source="mcp:bank", endpoint="https://other.example.org")})


# Giving, signing, listing and revoking


def test_a_grant_is_given_signed_listed_and_revoked(counter: Counter) -> None:
    rita = Principal(id="rita", roles=("lead",), claims={"token": "s3cret"})
    one = counter.call("grant", ANY.evolve(reason="month end"), by=rita, channel="web")
    assert one.id.startswith("grant_")
    assert one == ANY.evolve(
        id=one.id, givers=(Given(principal=rita, at=NOW, channel="web"),), at=NOW, reason="month end"
    )
    counter.clock.now += 1
    two = counter.call(
        "grant", Grant(agent="desk", tool="refund", scope="run", run_id="r", args={"order": 1}), by="otto"
    )
    three = counter.call("grant", Grant(agent="clerk", tool="pay", scope="thread", thread_id="t", uses=2), by="otto")
    assert {each.id for each in counter.call("grants")} == {one.id, two.id, three.id}
    assert counter.call("grants")[0] == one
    assert counter.call("grants", agent="desk") == (one, two)
    assert set(counter.call("grants", tool="pay")) == {one, three}
    assert counter.call("grants", agent="desk", tool="pay") == (one,)
    assert counter.call("grants", agent="desk", tool="p") == ()

    signed = counter.call("sign_grant", one.id, by="otto", channel="chat")
    later = NOW + timedelta(seconds=1)
    assert signed.givers == (*one.givers, Given(principal=Principal(id="otto"), at=later, channel="chat"))
    assert counter.call("grants", agent="desk", tool="pay") == (signed,)
    for who in ("rita", Principal(id="otto", name="Otto")):
        with pytest.raises(GrantRefused, match=r"has given grant grant_\w+ already") as caught:
            counter.call("sign_grant", one.id, by=who)
        assert caught.value.id == one.id

    assert counter.call("revoke", one.id, by="rita", reason="fraud") is True
    assert counter.call("revoke", one.id, by="otto") is False
    assert counter.call("grants", agent="desk", tool="pay") == ()
    (kept,) = counter.call("grants", agent="desk", tool="pay", all=True)
    end = Revoked(principal=Principal(id="rita"), at=later, reason="fraud")
    assert kept == signed.evolve(revoked=end)
    assert counter.call("use_grant", one.id, "pend_1") is None
    for id in (one.id, "grant_0", "", "\x00", "x" * 2_000):
        with pytest.raises(GrantRefused, match=r"no grant .* that still counts"):
            counter.call("sign_grant", id, by="ann")
    assert counter.call("revoke", "grant_0", by="otto") is False
    assert "s3cret" not in counter.place.text() + repr(kept)
    counter.clock.now += KEPT
    assert {each.id for each in counter.call("grants", all=True)} == {two.id, three.id}


def test_the_store_says_who_gave_a_grant_and_how_often_it_was_used(counter: Counter) -> None:
    """Whatever the record says."""
    forged = ANY.evolve(
        id="grant_1", uses=2, used=("a", "b"), count=2, at=NOW - DAY,
        givers=(Given(principal=Principal(id="ceo"), at=NOW),), revoked=Revoked(principal=Principal(id="x"), at=NOW),
    )  # fmt: skip
    made = counter.call("grant", forged, by="rita")
    given = Given(principal=Principal(id="rita"), at=NOW)
    assert made == ANY.evolve(id=made.id, uses=2, at=NOW, givers=(given,)) and made.id != "grant_1"
    assert counter.call("grants") == (made,)


def test_a_grant_that_cannot_be_given_is_not_stored(counter: Counter) -> None:
    for wrong, error in (
        ((ANY.evolve(until=NOW), "rita"), GrantRefused),
        ((Grant(agent="d", tool="t", scope="tenant", uses=1, args={"a": "x" * 95_000}), "rita"), GrantRefused),
        ((Grant(agent="d", tool="t", scope="tenant", uses=1_000, args={"a": "x" * 30_000}), "rita"), GrantRefused),
        (("desk", "rita"), GrantRefused),
        ((ANY, ""), InvalidDecision),
        ((ANY, None), InvalidDecision),
        ((ANY, 7), InvalidDecision),
    ):
        with pytest.raises(error):
            counter.call("grant", wrong[0], by=wrong[1])
    with pytest.raises(InvalidField):
        counter.call("grant", ANY, by="rita", channel=7)
    assert counter.call("grants", all=True) == ()


def test_a_grant_for_somebody_is_no_second_voice_of_theirs() -> None:
    """Whom a giver stood in for has given it."""
    store = MemoryStore(clock=Clock())
    made = store.grant(ANY, by="rita")
    found = store.get_document(KIND, key_of(made))
    assert found is not None
    both = made.evolve(givers=(Given(principal=Principal(id="rita"), at=NOW, behalf_of=Principal(id="ceo")),))
    store.put_document(replace(found, text=both.model_dump_json()))
    with pytest.raises(GrantRefused, match="ceo has given"):
        store.sign_grant(made.id, by="ceo")
    error = pickle.loads(pickle.dumps(GrantRefused("no", id="grant_1")))
    assert (str(error), error.id) == ("no", "grant_1")


# Like a request


def test_a_grant_like_a_request_is_for_the_rest_of_its_run(counter: Counter) -> None:
    item, run_id = counter.asked(thread_id="chat", requester=Principal(id="max"))
    made = counter.call("grant_like", item.id, digest=item.digest, by="rita")
    wanted = Grant(
        agent="desk", tool="pay", schema_hash=item.tool.schema_hash, args={"order": 1, "note": ""}, scope="run", run_id=run_id,
        id=made.id, at=NOW, givers=(Given(principal=Principal(id="rita"), at=NOW),),
    )  # fmt: skip
    assert made == wanted
    asked: dict[str, Any] = {"agent": "desk", "tool": item.tool, "args_text": item.json_text("args"), "run_id": run_id}
    assert covers(made, **asked, thread_id="chat", requester_id="max")
    assert not covers(made, **{**asked, "args_text": '{"order":2,"note":""}'}, thread_id="chat", requester_id="max")
    assert counter.store.request(item.id).status == "pending"

    wider = counter.call("grant_like", item.id, digest=item.digest, by="rita", scope="thread", exactly=False, uses=5)
    assert (wider.thread_id, wider.run_id, wider.json_text("args"), wider.uses) == ("chat", None, None, 5)
    mine = counter.call(
        "grant_like", item.id, digest=item.digest, by="rita", scope="principal", exactly=False, condition="small",
        until=NOW + DAY, channel="web", reason="often",
    )  # fmt: skip
    assert (mine.requester, mine.condition, mine.until, mine.reason) == ("max", "small", NOW + DAY, "often")
    assert mine.givers[0].channel == "web"
    all_runs = counter.call("grant_like", item.id, digest=item.digest, by="rita", scope="tenant", uses=1)
    assert (all_runs.scope, all_runs.run_id, all_runs.thread_id, all_runs.requester) == ("tenant", None, None, None)

    counter.store.decide(item.id, Approve(), by="rita", digest=item.digest)
    assert counter.call("grant_like", item.id, digest=item.digest, by="rita").run_id == run_id


def test_what_is_like_no_request_is_not_granted(counter: Counter) -> None:
    item, _ = counter.asked()
    digest = item.digest
    for options, error, why in (
        ({"digest": "0" * 64}, InvalidDecision, "has the digest"),
        ({"digest": None}, InvalidDecision, "the digest is text"),
        ({"by": ""}, InvalidDecision, "by is a Principal"),
        ({"by": None}, InvalidDecision, "by says who"),
        ({"exactly": 1}, GrantRefused, "exactly is True or False"),
        ({"condition": "small"}, GrantRefused, "pass exactly=False"),
        ({"scope": "thread", "uses": 1}, GrantRefused, "has no thread_id"),
        ({"scope": "principal", "uses": 1}, GrantRefused, "has no requester"),
        ({"scope": "tenant"}, InvalidField, "give until, uses or both"),
        ({"scope": "all"}, InvalidField, "scope"),
        ({"until": NOW}, GrantRefused, "is over"),
    ):
        with pytest.raises(error, match=why):
            counter.call("grant_like", item.id, **{"digest": digest, "by": "rita", **options})
    with pytest.raises(UnknownPending):
        counter.call("grant_like", "pend_0", digest=digest, by="rita")
    counter.store.decide(item.id, Reject(), by="otto", digest=digest)
    with pytest.raises(GrantRefused, match="was rejected: what is not approved is not granted"):
        counter.call("grant_like", item.id, digest=digest, by="rita")
    assert counter.call("grants", all=True) == ()


def test_a_request_that_lapsed_or_that_asks_something_else_is_not_granted() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)

    @tool(requires_approval=True, approval_timeout=60)
    def pay(order: int) -> str:
        """Pay an order."""
        return "paid"

    @tool(external=True)
    def locate() -> str:
        """Ask the phone where it is."""
        raise NotImplementedError

    model = ScriptedModel([[call("pay", {"order": 1}), call("locate")]])
    late, other = Agent(name="desk", model=model, tools=[pay, locate], store=store).invoke("Pay").checkpoint.pending
    with pytest.raises(GrantRefused, match="no request to approve a call that runs here"):
        store.grant_like(other.id, digest=other.digest, by="rita")
    assert late.expires_at is not None
    clock.now = late.expires_at.timestamp()
    with pytest.raises(RequestExpired):
        store.grant_like(late.id, digest=late.digest, by="rita")
    assert store.grants(all=True) == ()


# Which there are for a tool


def test_the_grants_for_a_tool_are_found_by_the_tool_and_the_run(counter: Counter) -> None:
    run_1 = counter.call("grant", Grant(agent="desk", tool="pay", scope="run", run_id="r1"), by="rita")
    run_2 = counter.call("grant", Grant(agent="desk", tool="pay", scope="run", run_id="r2"), by="rita")
    tenant = counter.call("grant", ANY, by="rita")
    for agent, name in (("desk", "pays"), ("desk2", "pay"), ("deskpay", "x"), ("d", "eskpay")):
        counter.call("grant", ANY.evolve(agent=agent, tool=name), by="rita")

    def found(**options: Any) -> set[Grant]:
        if not counter.driver.is_async:
            return set(grants_for(counter.store, "desk", "pay", **options))
        return set(counter.driver.call(Asked(counter.store), "grants", **options))  # type: ignore[arg-type]

    assert found() == {run_1, run_2, tenant}
    assert (found(run_id="r1"), found(run_id="r2"), found(run_id="r")) == ({run_1, tenant}, {run_2, tenant}, {tenant})
    counter.call("revoke", run_1.id, by="rita")
    counter.clock.now += DAY.total_seconds()
    assert found() == {run_2}
    assert grants_for(counter.store, "desk", "nothing") == ()


class Asked:
    """As a store, for the async twin of a function."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def agrants(self, **options: Any) -> tuple[Grant, ...]:
        return await agrants_for(self.store, "desk", "pay", **options)


def test_many_grants_are_read_in_batches() -> None:
    store = MemoryStore(clock=Clock())
    made = {store.grant(ANY, by="rita").id for _ in range(2 * _BATCH + 1)}
    store.grant(ANY.evolve(tool="refund"), by="rita")
    assert {each.id for each in grants_for(store, "desk", "pay", run_id="r")} == made
    assert len(store.grants()) == 2 * _BATCH + 2


def test_grants_of_tenants_are_apart(counter: Counter) -> None:
    made = counter.call("grant", ANY, by="rita")
    assert (counter.call("grants", tenant="globex"), counter.call("use_grant", made, "p", tenant="globex")) == (
        (),
        None,
    )
    assert counter.call("revoke", made.id, by="rita", tenant="globex") is False
    with pytest.raises(GrantRefused):
        counter.call("sign_grant", made.id, by="otto", tenant="globex")
    assert counter.call("grants") == (made,)


# Using them


def test_a_grant_is_used_as_often_as_it_says(counter: Counter) -> None:
    """A request that uses it again has used it once."""
    made = counter.call("grant", ANY.evolve(uses=2), by="rita")
    one = counter.call("use_grant", made, "pend_1")
    assert (one.used, one.count, one.uses_left) == (("pend_1",), 1, 1)
    assert counter.call("use_grant", made.id, "pend_1") == one
    two = counter.call("use_grant", made.id, "pend_2")
    assert (two.used, two.uses_left, is_spent(two)) == (("pend_1", "pend_2"), 0, True)
    assert (counter.call("use_grant", made, "pend_3"), counter.call("use_grant", made, "pend_2")) == (None, two)
    assert (counter.call("grants"), counter.call("grants", all=True)) == ((), (two,))
    assert grants_for(counter.store, "desk", "pay") == ()
    with pytest.raises(GrantRefused):
        counter.call("sign_grant", made.id, by="otto")
    counter.clock.now += KEPT
    assert (counter.call("use_grant", made, "pend_2"), counter.call("grants", all=True)) == (None, ())


def test_a_grant_without_a_number_of_uses_counts_them(counter: Counter) -> None:
    made = counter.call("grant", ANY, by="rita")
    for number in range(3):
        used = counter.call("use_grant", made, f"pend_{number}")
        assert (used.count, used.used, used.uses_left) == (number + 1, (), None)
    counter.clock.now = (NOW + DAY).timestamp() - 0.001
    assert counter.call("use_grant", made, "pend_9").count == 4
    counter.clock.now += 0.001
    assert (counter.call("use_grant", made, "pend_10"), counter.call("grants", all=True)) == (None, ())


def test_the_time_of_a_grant_is_judged_by_the_row_as_well() -> None:
    """A store that has not deleted a document yet lets nothing through by it."""
    store = MemoryStore(clock=(clock := Clock()))
    made = store.grant(ANY, by="rita")
    found = store.get_document(KIND, key_of(made))
    assert found is not None and found.expires_at == (NOW + DAY).timestamp()
    store.put_document(replace(found, expires_at=None))
    clock.now = (NOW + DAY).timestamp()
    assert (store.use_grant(made, "pend_1"), store.grants(), grants_for(store, "desk", "pay")) == (None, (), ())


@pytest.mark.product
def test_of_those_who_use_a_grant_at_once_as_many_pass_as_it_has_uses(place: Place) -> None:
    stores = [place.open() for _ in range(8)]
    until = datetime.fromtimestamp(stores[0].clock() + 3600, UTC)
    for _ in range(3):
        made = stores[0].grant(ANY.evolve(uses=3, until=until), by="rita")
        found = race([partial(store.use_grant, made, f"pend_{number}") for number, store in enumerate(stores)])
        assert not [each for each in found if isinstance(each, Exception)], found
        passed = {f"pend_{number}" for number, each in enumerate(found) if each is not None}
        (kept,) = [each for each in stores[0].grants(all=True) if each.id == made.id]
        assert (len(passed), set(kept.used), is_spent(kept)) == (3, passed, True)
        again = race([partial(store.use_grant, made, kept.used[0]) for store in stores])
        assert again == [kept] * len(stores)


@pytest.mark.product
def test_none_uses_a_grant_after_it_was_revoked(place: Place) -> None:
    """Uses, signatures and a revocation at once: each is there as a whole, and nothing passes after the last."""
    stores = [place.open() for _ in range(6)]
    until = datetime.fromtimestamp(stores[0].clock() + 3600, UTC)
    made = stores[0].grant(ANY.evolve(until=until), by="rita")
    found = race(
        [
            *(partial(store.use_grant, made, f"pend_{number}") for number, store in enumerate(stores[:3])),
            partial(stores[3].sign_grant, made.id, by="otto"),
            partial(stores[4].revoke, made.id, by="otto"),
            partial(stores[5].revoke, made.id, by="ann"),
        ]
    )
    assert sorted(found[4:], key=str) == [False, True]
    (kept,) = stores[0].grants(all=True)
    assert kept.revoked is not None and kept.count == sum(isinstance(each, Grant) for each in found[:3])
    assert len(kept.givers) == (2 if isinstance(found[3], Grant) else 1)
    assert stores[0].use_grant(made, "pend_9") is None


@pytest.mark.parametrize("pending_id", ["", None, 7, "x" * 65, "é"])
def test_a_use_names_a_request(pending_id: Any) -> None:
    store = MemoryStore(clock=Clock())
    made = store.grant(ANY.evolve(uses=1), by="rita")
    with pytest.raises(InvalidDecision, match="by the id of a request"):
        store.use_grant(made, pending_id)
    with pytest.raises(GrantRefused, match="named by its id"):
        store.use_grant(7, "pend_1")  # type: ignore[arg-type]
    assert store.grants() == (made,)


def test_a_grant_with_all_uses_and_the_longest_arguments_can_be_used_up() -> None:
    """What is accepted fits into its document until the last use."""
    store = MemoryStore(clock=Clock())
    made = store.grant(ANY.evolve(uses=1_000), by="rita")
    found = store.get_document(KIND, key_of(made))
    assert found is not None
    used = tuple(f"pend_{number:059}" for number in range(999))
    store.put_document(replace(found, text=made.evolve(used=used, count=999).model_dump_json()))
    assert store.sign_grant(made.id, by="otto").uses_left == 1
    last = store.use_grant(made.id, "pend_1")
    assert last is not None and is_spent(last) and store.revoke(made.id, by="rita")


# What deletes runs


def test_grants_for_a_run_are_deleted_with_it(counter: Counter) -> None:
    item, run_id = counter.asked()
    counter.store.grant_like(item.id, digest=item.digest, by="rita")
    other = counter.store.grant(Grant(agent="desk", tool="pay", scope="run", run_id="other"), by="rita")
    tenant = counter.store.grant(ANY, by="rita")
    assert counter.store.prune(keep_labeled=False) == 0
    assert len(counter.store.grants()) == 3
    assert counter.store.delete(run_id, force=True)
    assert set(counter.store.grants(all=True)) == {other, tenant}

    agent = Agent(name="desk", model=ScriptedModel(["Done."]), store=counter.store)
    ended = agent.invoke("Hello").checkpoint.run_id
    counter.store.grant(Grant(agent="desk", tool="pay", scope="run", run_id=ended), by="rita")
    assert len(counter.store.grants()) == 3
    assert counter.store.prune() > 0
    assert set(counter.store.grants(all=True)) == {other, tenant}


# What goes wrong


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version":2}', '{"x":"s3cret"}', "of another", "of nobody"])
def test_a_row_that_cannot_be_read_lets_nothing_through(text: str) -> None:
    store = MemoryStore(clock=Clock())
    made, other = store.grant(ANY, by="rita"), store.grant(ANY, by="otto")
    found = store.get_document(KIND, key_of(made))
    assert found is not None
    rows = {"of another": other.model_dump_json(), "of nobody": made.evolve(givers=()).model_dump_json()}
    store.put_document(replace(found, text=rows.get(text, text)))
    listed = store.grants()
    assert listed == (other,) and [(each.kind, each.id) for each in listed.unreadable] == [("grant", made.id)]
    assert grants_for(store, "desk", "pay", run_id="r") == (other,)
    for ask in (
        lambda: store.use_grant(made, "pend_1"),
        lambda: store.sign_grant(made.id, by="otto"),
    ):
        with pytest.raises(StoreError, match=rf"grant {made.id} cannot be read") as caught:
            ask()
        assert "s3cret" not in str(caught.value) and caught.value.__context__ is None
    assert store.revoke(made.id, by="rita") is True
    assert (store.grants(), store.revoke(made.id, by="rita")) == ((other,), False)


def test_a_grant_that_an_earlier_release_has_written_is_read() -> None:
    store = MemoryStore(clock=Clock())
    row = (
        '{"version":1,"id":"grant_1","agent":"desk","tool":"pay","source":"local","endpoint":null,"schema_hash":null,'
        '"args":"{\\"order\\":1}","condition":null,"scope":"run","run_id":"r","thread_id":null,"requester":null,'
        '"until":null,"uses":2,"givers":[{"principal":{"id":"rita","name":null,"kind":"human"},'
        '"at":"2027-03-01T12:00:00Z","channel":null,"behalf_of":null}],"used":["pend_1"],"count":1,'
        '"at":"2027-03-01T12:00:00Z","reason":null}'
    )
    key = (
        "7095f46a689014a52c44e7faff13029fdd629134293d171eb9f813597137f1de/"
        "c3622f6478c47bac403bcf6c9be92663acc017f929d3be625645a384136eb154/grant_1"
    )
    store.put_document(Document(kind="grant", key=key, text=row))
    (found,) = store.grants()
    assert found.model_dump_json() == row and store.use_grant(found, "pend_2") is not None


class Without(Around):
    """A store that was written before there were documents."""

    get_document = Store.get_document
    select_documents = Store.select_documents
    put_document = Store.put_document
    delete_document = Store.delete_document


def test_a_store_without_documents_has_no_grants(driver: Driver) -> None:
    store = Without(MemoryStore(clock=Clock()))
    assert grants_for(store, "desk", "pay") == ()
    for method, args, options in (
        ("grant", (ANY,), {"by": "rita"}),
        ("grants", (), {}),
        ("sign_grant", ("grant_1",), {"by": "rita"}),
        ("revoke", ("grant_1",), {"by": "rita"}),
        ("use_grant", ("grant_1", "pend_1"), {}),
    ):
        with pytest.raises(StoreError, match="Without keeps no small documents"):
            driver.call(store, method, *args, **options)  # type: ignore[arg-type]
    agent = Agent(name="desk", model=ScriptedModel(["Done."]), store=store)
    run_id = agent.invoke("Hello").checkpoint.run_id
    assert store.delete(run_id) and store.prune() == 0


def test_a_store_that_contradicts_itself_is_not_asked_for_ever() -> None:
    store = MemoryStore(clock=Clock())
    made = store.grant(ANY, by="rita")

    class Stuck(Around):
        def put_document(self, document: Document) -> Document:
            raise Behind(document.key)

    for act in (
        lambda stuck: stuck.use_grant(made, "pend_1"),
        lambda stuck: stuck.sign_grant(made.id, by="otto"),
        lambda stuck: stuck.revoke(made.id, by="otto"),
    ):
        with pytest.raises(StoreError, match="is the same as before"):
            act(Stuck(store))
    assert store.grants() == (made,)


def test_a_grant_that_is_gone_in_the_middle_of_a_use_is_not_used() -> None:
    store = MemoryStore(clock=(clock := Clock()))
    made = store.grant(ANY, by="rita")

    class Late(Around):
        def put_document(self, document: Document) -> Document:
            clock.now = (NOW + DAY).timestamp()
            return self.inner.put_document(document)

    assert Late(store).use_grant(made, "pend_1") is None


def test_each_method_has_an_async_twin_of_the_same_signature() -> None:
    names = ("grant", "grant_like", "sign_grant", "revoke", "grants", "use_grant")
    for name in names:
        method, twin = getattr(Store, name), getattr(Store, f"a{name}")
        assert inspect.signature(twin) == inspect.signature(method) and inspect.iscoroutinefunction(twin)
        assert f"`{name}`" in (twin.__doc__ or "")
