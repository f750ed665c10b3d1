"""How often somebody may try: failures are counted by all processes together, all else by each for itself."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from inbox_scenes import OTTO, RITA, run
from places import Place
from starlette.requests import Request
from test_inbox_sessions import Clock

from phronomy import ConfigurationError, MemoryStore
from phronomy.inbox import Identity, Problem
from phronomy.inbox.auth import limits
from phronomy.inbox.auth.limits import KIND, AtOnce, Failures, Limits, Rate, network_of

HERE = "192.0.2.7"


def waits(work: Any) -> int:
    """The seconds that somebody is told to wait."""
    with pytest.raises(Problem) as caught:
        work() if callable(work) else run(work)
    assert (caught.value.type, caught.value.status) == ("slow-down", 429)
    return int(caught.value.headers["Retry-After"])


def test_failures_are_counted_by_all_processes_until_their_time_is_over(place: Place) -> None:
    clock = Clock()
    here, there = (Failures(place.open(clock=clock), most=4, seconds=60) for _ in range(2))
    for each in (here, there, here, there):
        run(each.check("token", HERE))
        run(each.count("token", HERE))
        clock.now += 5
    assert waits(here.count("token", HERE)) == waits(there.check("token", HERE)) == 40
    run(here.count("link", HERE))  # each way by itself, and each address
    run(here.count("token", "192.0.2.8"))
    clock.now += 39
    assert waits(there.count("token", HERE)) == 1
    clock.now += 1
    run(there.check("token", HERE))
    run(there.count("token", HERE))
    assert HERE not in place.text()


def test_of_many_failures_at_once_none_is_lost(place: Place) -> None:
    counted = [Failures(place.open(), most=3) for _ in range(8)]

    async def at_once() -> list[BaseException | None]:
        return await asyncio.gather(*(each.count("link", HERE) for each in counted), return_exceptions=True)

    refused = [each for each in run(at_once()) if each is not None]
    assert all(isinstance(each, Problem) and each.type == "slow-down" for each in refused)
    (row,) = counted[0]._store.select_documents(KIND)
    assert json.loads(row.text)["count"] == 8 - len(refused) <= 3


def test_too_many_failures_write_nothing_more() -> None:
    store = MemoryStore()
    failures = Failures(store, most=1)
    run(failures.count("token", HERE))
    (row,) = store.select_documents(KIND)
    assert waits(failures.count("token", HERE)) == 600
    assert store.select_documents(KIND) == [row] and row.expires_at is not None


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"version":1,"count":-1,"until":1e12}', '{"version":1,"count":99,"until":1e12}', '{"version":2}'],
)
def test_a_damaged_count_locks_nobody_out_and_begins_anew(text: str) -> None:
    store = MemoryStore()
    failures = Failures(store, most=2)
    run(failures.count("token", HERE))
    (row,) = store.select_documents(KIND)
    store.put_document(replace(row, text=text))
    run(failures.check("token", HERE))
    run(failures.count("token", HERE))
    (row,) = store.select_documents(KIND)
    assert json.loads(row.text)["count"] == 1


def test_a_rate_slides() -> None:
    clock = Clock()
    rate = Rate(3, 60, clock=clock)
    for _ in range(3):
        rate.take("rita")
        clock.now += 10
    assert waits(lambda: rate.take("rita")) == 30
    rate.take("otto")
    clock.now += 30
    rate.take("rita")
    assert waits(lambda: rate.take("rita")) == 10  # what was refused does not count


def test_a_process_remembers_no_more_than_it_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_KEPT", 3)
    rate = Rate(1, 60)
    for each in ("a", "b", "c", "d"):
        rate.take(each)
    rate.take("a")  # forgotten
    assert waits(lambda: rate.take("d")) == 60


def test_streams_are_counted_while_they_are_open() -> None:
    streams = AtOnce(2)
    with streams.one("rita") as first, streams.one("rita") as second, streams.one("rita") as third:
        assert (first, second, third) == (True, True, False)
        with streams.one("otto") as other:
            assert other
    with streams.one("rita") as again:
        assert again
    with pytest.raises(ZeroDivisionError), streams.one("rita"):
        raise ZeroDivisionError
    assert streams._open == {}


def test_the_limits_of_an_inbox_are_by_address_and_by_person() -> None:
    found = Limits(MemoryStore(), logins=1, decisions=1, streams=1)
    rita, otto, other = (
        Identity(principal=who, tenant=tenant, via="token")
        for who, tenant in ((RITA, None), (OTTO, None), (RITA, "acme"))
    )
    for each in (rita, otto, other):
        found.decision(each)
        with found.stream(each) as room:
            assert room
    assert waits(lambda: found.decision(rita)) == 60
    with found.stream(rita) as first, found.stream(rita) as second:
        assert (first, second) == (True, False)

    def start(address: str | None) -> None:
        found.login(Request({"type": "http", "headers": [], "client": address and (address, 5000)}))

    start(HERE)
    start(None)  # a Unix socket
    start("2001:db8::1")
    for again in (HERE, f"::ffff:{HERE}", None, "2001:db8::2"):
        assert waits(partial(start, again)) == 60
    start("2001:db8:0:1::2")


def test_an_identity_may_name_the_tenant_of_the_inbox_or_not() -> None:
    store = MemoryStore()
    found = Limits(store, decisions=2, checks=1, grants=1)
    for count in (found.decision, found.check, found.grant):
        count(Identity(principal=RITA, via="token"))
    named = Identity(principal=RITA, tenant=store.tenant, via="session")
    found.decision(named)
    for count in (found.decision, found.check, found.grant):
        assert waits(partial(count, named)) == 60
        count(Identity(principal=OTTO, via="token"))


def test_several_at_once_are_counted_each_and_all_or_none() -> None:
    clock = Clock()
    rate = Rate(4, 60, clock=clock)
    rate.take("rita", 2)
    clock.now += 10
    assert waits(lambda: rate.take("rita", 3)) == 50
    rate.take("rita", 2)
    assert waits(lambda: rate.take("rita", 3)) == 60
    clock.now += 60
    rate.take("rita", 4)
    with pytest.raises(Problem, match="at most 4") as caught:
        rate.take("otto", 5)
    assert caught.value.type == "invalid"


@pytest.mark.parametrize(
    ("address", "one"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_what_one_address_is(address: str, one: str) -> None:
    assert network_of(address) == one


@pytest.mark.parametrize("given", [{"most": 0}, {"most": True}, {"seconds": 0}, {"seconds": float("inf")}])
def test_limits_that_are_none_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="limit"):
        Failures(MemoryStore(), **given)
