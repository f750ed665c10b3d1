"""Idempotency keys and cursors by themselves: what happens twice, at once, half, and after a crash."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx2
import pytest
from inbox_api_scenes import API, RITA, api_of, bearer, problem
from inbox_scenes import OTTO, asked, run
from places import Place

from phronomy import MemoryStore, StoreError
from phronomy.inbox import Identity, Problem, idempotency
from phronomy.inbox.idempotency import KEPT, UNFINISHED, begun_once, remembered, scoped, sent_under


def test_a_key_is_of_one_person_one_route_and_one_thing() -> None:
    rita, otto = Identity(principal=RITA, via="token"), Identity(principal=OTTO, via="token")
    robot = Identity(principal=RITA.evolve(kind="service"), via="token")
    keys = {
        scoped(who, route, key, of)
        for who in (rita, otto, robot)
        for route in ("a", "b")
        for key in ("k", "l")
        for of in ("", "x")
    }
    assert len(keys) == 24 and scoped(rita, "a", "k") == scoped(Identity(principal=RITA, via="session"), "a", "k")
    assert all("k" not in each.removeprefix("inbox-") for each in keys)


def test_the_same_decision_sent_twice_at_once_is_made_once(place: Place) -> None:
    store = place.open()
    item = asked(store)
    api = api_of(store)
    body = {"answer": "approve", "digest": item.digest}

    async def scene() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(app=api.inbox)
        async with httpx2.AsyncClient(transport=transport, base_url="https://inbox.example") as client:
            headers = {**bearer("rita"), "idempotency-key": "k"}
            path = f"{API}/requests/{item.id}/decision"
            return await asyncio.gather(*(client.post(path, json=body, headers=headers) for _ in range(8)))

    answers = run(scene())
    assert {each.status_code for each in answers} == {200} and len({each.text for each in answers}) == 1
    assert len(list(store.audit())) == 1


def test_of_two_answers_under_one_key_at_once_one_counts(place: Place) -> None:
    store = place.open()
    item = asked(store)
    api = api_of(store)

    async def scene() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(app=api.inbox)
        async with httpx2.AsyncClient(transport=transport, base_url="https://inbox.example") as client:
            headers = {**bearer("rita"), "idempotency-key": "k"}
            path = f"{API}/requests/{item.id}/decision"
            bodies = [{"answer": each, "digest": item.digest} for each in ("approve", "reject")]
            return await asyncio.gather(*(client.post(path, json=body, headers=headers) for body in bodies))

    answers = run(scene())
    assert sorted(each.status_code for each in answers) == [200, 422]
    assert [problem(each) for each in answers if each.status_code == 422] == [(422, "key-reused")]
    assert len(list(store.audit())) == 1


def test_what_is_begun_once_is_under_way_for_whoever_comes_meanwhile(place: Place) -> None:
    store = place.open()
    now = [1_000.0]
    store.clock = lambda: now[0]

    async def again(body: str = "b") -> str | None:
        async with begun_once(store, "k", body=body) as once:
            return once.made

    async def scene() -> None:
        async with begun_once(store, "k", body="b") as once:
            assert once.made is None
            with pytest.raises(Problem) as error:
                await again()
            assert error.value.type == "in-progress" and error.value.headers["Retry-After"] == "1"
            with pytest.raises(Problem) as error:
                await again("other")
            assert error.value.type == "key-reused"
            once.made = "run_1"
        assert await again() == "run_1"
        now[0] += UNFINISHED + 1
        assert await again() == "run_1"
        now[0] += KEPT
        assert await again() is None  # forgotten

    run(scene())


def test_what_was_refused_frees_its_key_and_what_failed_does_not(place: Place) -> None:
    store = place.open()
    now = [1_000.0]
    store.clock = lambda: now[0]

    async def scene(way: Any) -> None:
        for error, left in ((Problem("expired"), False), (StoreError("gone"), True)):
            key = f"{way.__name__}-{left}"
            with pytest.raises(type(error)):
                async with way(store, key, body="b"):
                    raise error
            sent = await sent_under(store, key)
            assert (sent is not None) == left
        # A process that died has left it so: after a minute something that is begun once is free again.
        now[0] += UNFINISHED + 1
        assert (await sent_under(store, key) is None) == (way is begun_once)

    run(scene(remembered))
    run(scene(begun_once))


def test_a_decision_that_was_lost_half_way_is_found_by_its_key() -> None:
    store = MemoryStore()
    item = asked(store)
    api = api_of(store)
    decide = store.decide

    def broken(*args: Any, **options: Any) -> Any:
        raise StoreError("the line broke")

    store.decide = broken  # type: ignore[method-assign]
    assert problem(api.decide(item, "approve", key="k")) == (503, "unavailable")
    by_key = f"/requests/{item.id}/decision/by-key/k"
    assert api.read(by_key) == {"recorded": False, "decision": None}
    store.decide = decide  # type: ignore[method-assign]
    assert api.decide(item, "approve", key="k").status_code == 200
    assert problem(api.decide(item, "reject", key="k")) == (422, "key-reused")
    assert api.read(by_key)["recorded"] is True
    store.delete(store.request(item.id).run_id, force=True)
    assert api.read(by_key) == {"recorded": True, "decision": None}


def test_the_log_names_what_was_decided_and_no_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "phronomy.inbox")
    store = MemoryStore()
    item = asked(store)
    api_of(store).decide(item, "approve", key="my-own-key")
    assert item.id in caplog.text and "my-own-key" not in caplog.text
    assert idempotency.KIND == "inbox-sent"
