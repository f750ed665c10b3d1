"""Server-sent events: what is told, from where, to whom, for how long, and at what cost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from inbox_api_scenes import API, ByToken, bearer, inbox_by_token
from inbox_scenes import OTTO, RITA, asked, desk, run
from places import Place
from starlette.requests import Request

from phronomy import Approval, Approve, MemoryStore, NotAnApprover, Principal, Reject
from phronomy.inbox import Identity, Inbox, Problem
from phronomy.inbox.api import events
from phronomy.inbox.api.events import Pace, Watcher, Watching
from phronomy.stores.base import Store
from phronomy.stores.rows import AuditFilter, AuditRow

FAST = Pace(look=0.002, comment=1000.0, identify=1000.0)


class Connection:
    """A connection to the stream of events, as a server has it: what was sent so far, and whether it has ended."""

    def __init__(
        self, inbox: Inbox, who: str = "rita", *, query: str = "", method: str = "GET", **headers: str
    ) -> None:
        given = {"host": "inbox.example", **bearer(who), **{k.replace("_", "-"): v for k, v in headers.items()}}
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "https",
            "path": f"{API}/events",
            "raw_path": f"{API}/events".encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 1),
            "server": ("inbox.example", 443),
        }
        self.reads = asyncio.Event()  # what is sent waits for it
        self.reads.set()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.text = ""
        self._gone = asyncio.Event()
        self._news = asyncio.Event()
        self.task = asyncio.create_task(self._serve(inbox))

    async def _serve(self, inbox: Inbox) -> None:
        await inbox(self.scope, self._receive, self._send)
        self._news.set()

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.text += message.get("body", b"").decode()
        self._news.set()
        await self.reads.wait()

    async def until(self, holds: Callable[[Connection], bool]) -> Connection:
        """Wait until something holds of what was sent."""
        async with asyncio.timeout(20):
            while not holds(self):
                assert not self.task.done(), self.text
                self._news.clear()
                await self._news.wait()
        return self

    async def ended(self) -> None:
        """Wait until the server has ended it."""
        async with asyncio.timeout(20):
            await self.task

    async def close(self) -> None:
        """Go away."""
        self._gone.set()
        await self.ended()

    @property
    def told(self) -> list[dict[str, Any]]:
        """What was told, in its order."""
        blocks = [dict(_field(line) for line in block.splitlines()) for block in self.text.split("\n\n") if block]
        return [json.loads(each["data"]) | {"event": each.get("event", "message")} for each in blocks if "data" in each]

    @property
    def last_id(self) -> str:
        """The id that a browser would send when it connects again."""
        return [line[4:] for line in self.text.splitlines() if line.startswith("id: ")][-1]


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name, value.removeprefix(" ")


def kinds(connection: Connection) -> list[str]:
    return [f"{each['event'] if each['event'] != 'message' else ''}{each.get('kind', '')}" for each in connection.told]


def streaming(store: Store, pace: Pace = FAST, tokens: Any = None, **options: Any) -> Inbox:
    """An inbox whose streams go fast."""
    inbox = inbox_by_token(store, tokens, **options)
    inbox.site.kept(Watching).pace = pace
    return inbox


async def begun(inbox: Inbox, who: str = "rita", **options: Any) -> Connection:
    """A connection that has been told where it is."""
    return await Connection(inbox, who, **options).until(lambda one: "id: " in one.text or "event: reset" in one.text)


def in_thread(work: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
    return asyncio.to_thread(work)


def test_the_stream_tells_what_to_look_at_again_and_nothing_else(place: Place) -> None:
    store, desks = place.open(), place.open()

    async def scene() -> tuple[Connection, list[str]]:
        stream = await begun(streaming(store))
        first = await in_thread(lambda: asked(desks, 47110815, gate=Approval(needed=2)))
        await stream.until(lambda one: kinds(one) == ["asked"])
        for name in ("rita", "otto"):
            await in_thread(lambda name=name: desks.decide(first.id, Approve(), by=name, digest=first.digest))
        await stream.until(lambda one: len(one.told) == 3)
        agent = desk(desks)
        second = await in_thread(lambda: agent.invoke("Refund order 2").checkpoint)
        fork = await in_thread(lambda: agent.fork(second, by="rita"))  # which is in the trail, and ends nothing
        await in_thread(lambda: agent.cancel(second.run_id, by="rita"))
        await stream.until(lambda one: "ended" in kinds(one))
        await stream.close()
        return stream, [first.id, second.pending[0].id, second.run_id, fork.pending[0].id]

    stream, known = run(scene())
    assert stream.status == 200 and stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.headers["x-accel-buffering"] == "no" and stream.headers["cache-control"] == "no-store"
    assert stream.text.startswith("retry: 3000\n\n")
    assert kinds(stream)[:3] == ["asked", "voted", "decided"] and kinds(stream)[-1] == "ended"
    assert kinds(stream).count("ended") == 1 and stream.told[-1]["id"] == known[2]
    assert {each["id"] for each in stream.told} <= set(known)
    assert all(set(each) == {"id", "kind", "version", "event"} for each in stream.told)
    assert "47110815" not in stream.text and "refund" not in stream.text
    numbers = [each["version"] for each in stream.told if each["kind"] != "asked"]
    assert numbers == sorted(numbers)


def test_whoever_comes_back_is_told_what_they_have_missed_by_any_process(place: Place) -> None:
    store, desks = place.open(), place.open()
    old = asked(desks, 1)

    async def scene() -> tuple[list[str], list[str], str]:
        here = streaming(store)
        stream = await begun(here)
        assert stream.told == []  # what was there before is no news
        item = await in_thread(lambda: asked(desks, 2))
        await stream.until(lambda one: len(one.told) == 1)
        await stream.close()
        position = stream.last_id
        await in_thread(lambda: desks.decide(item.id, Reject(), by="otto", digest=item.digest))
        # This process has stopped looking meanwhile, and the other one never has looked.
        again = await begun(here, last_event_id=position)
        other = await begun(streaming(place.open()), query=f"after={position}")
        for one in (again, other):
            await one.until(lambda one: "decided" in kinds(one))
            await one.close()
        return kinds(again), kinds(other), position

    again, other, _ = run(scene())
    assert set(again) == set(other) == {"asked", "decided"} or set(again) == {"decided"}
    assert again[-1] == other[-1] == "decided" and "reset" not in again + other
    assert old.id


def test_a_position_in_this_process_is_exact() -> None:
    store = MemoryStore()

    async def scene() -> list[str]:
        inbox = streaming(store)
        keeper = await begun(inbox)
        items = [asked(store, number) for number in range(3)]
        await keeper.until(lambda one: len(one.told) == 3)
        middle = [line[4:] for line in keeper.text.splitlines() if line.startswith("id: ")][2]  # of the second
        again = await begun(inbox, last_event_id=middle)
        await again.until(lambda one: len(one.told) >= 1)
        assert [each["id"] for each in again.told] == [items[2].id]
        # The header goes before the query, which a script has once and for all in the address.
        both = await begun(inbox, last_event_id=middle, query="after=0-0")
        assert [each["id"] for each in both.told] == [items[2].id]
        for one in (keeper, again, both):
            await one.close()
        return kinds(again)

    assert run(scene()) == ["asked"]


@pytest.mark.parametrize("position", ["x", "-1", "1-", "1.5-3", "9" * 40 + "-1", "\u0661-\u0661", "0-0-0"])
def test_a_position_that_cannot_be_read_is_a_reset(position: str) -> None:
    store = MemoryStore()

    async def scene() -> Connection:
        stream = await begun(streaming(store), query="after=" + _quoted(position))
        item = asked(store, 1)
        await stream.until(lambda one: len(one.told) == 2)
        await stream.close()
        assert stream.told[1]["id"] == item.id
        return stream

    stream = run(scene())
    assert kinds(stream) == ["reset", "asked"]


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text)


def test_a_position_that_is_too_old_is_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_KEPT", 3)
    store = MemoryStore()

    async def scene() -> list[str]:
        inbox = streaming(store)
        keeper = await begun(inbox)
        place = keeper.last_id
        for number in range(6):
            asked(store, number)
            await keeper.until(lambda one, number=number: len(one.told) == number + 1)
        stream = await begun(inbox, last_event_id=place)
        for one in (keeper, stream):
            await one.close()
        return kinds(stream)

    assert run(scene()) == ["reset"]


def test_many_requests_at_once_are_each_told_once() -> None:
    store = MemoryStore()

    async def scene() -> list[str]:
        stream = await begun(streaming(store))
        items = [asked(store, number) for number in range(2 * events._NEWEST + 50)]
        await stream.until(lambda one: one.text.count("data: ") >= len(items))
        more = asked(store, 0)
        await stream.until(lambda one: more.id in one.text)
        await stream.close()
        assert [each["id"] for each in stream.told] == [item.id for item in [*items, more]]
        return kinds(stream)

    assert set(run(scene())) == {"asked"}


def test_a_long_trail_between_two_looks_is_told_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_TRAIL", 4)
    store = MemoryStore()

    async def scene() -> list[str]:
        stream = await begun(streaming(store))
        items = [asked(store, number) for number in range(11)]
        for item in items:
            store.decide(item.id, Reject(), by="otto", digest=item.digest)
        await stream.until(lambda one: one.text.count("decided") == 11)
        await stream.close()
        return [each["id"] for each in stream.told if each["kind"] == "decided"] + [item.id for item in items]

    told = run(scene())
    assert told[:11] == told[11:]


def test_the_check_of_a_worker_is_told_and_the_attempt_of_a_stranger_is_not() -> None:
    store = MemoryStore()
    agent = desk(store, gate=Approval(by="lead"))

    async def scene() -> list[str]:
        stream = await begun(streaming(store))
        item = agent.invoke("Refund order 1").checkpoint.pending[0]
        with pytest.raises(NotAnApprover):
            store.decide(item.id, Approve(), by=OTTO, digest=item.digest)
        edited = Approve(args={"order": 1, "amount": 5.0, "note": ""})
        store.decide(item.id, edited, by=RITA, digest=item.digest)
        await asyncio.to_thread(agent.recover_all)
        await stream.until(lambda one: "checked" in kinds(one))
        await stream.close()
        return kinds(stream)

    assert [each for each in run(scene()) if each != "asked"] == ["decided", "checked"]


def test_a_record_that_cannot_be_read_is_told_by_nobody() -> None:
    row = AuditRow(at=1.0, run_id="r", thread_id=None, pending_id="pend_1", body="{}", n=1)
    assert events._told(row) is None


def test_somebody_who_reads_slowly_is_told_to_look_at_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_KEPT", 2)
    store = MemoryStore()

    async def scene() -> list[str]:
        stream = await begun(streaming(store))
        for number in range(6):  # in one look
            asked(store, number)
        await stream.until(lambda one: "event: reset" in one.text)
        item = asked(store, 9)
        await stream.until(lambda one: item.id in one.text)
        await stream.close()
        return kinds(stream)

    assert run(scene()) == ["reset", "asked"]


@pytest.mark.parametrize("query", ["", "after=nonsense"], ids=["says where it is", "resets"])
def test_what_happens_while_the_beginning_is_read_slowly_is_told(query: str) -> None:
    store = MemoryStore()

    async def scene() -> list[str]:
        inbox = streaming(store)
        keeper = await begun(inbox)
        slow = Connection(inbox, query=query)
        slow.reads.clear()
        await slow.until(lambda one: one.status == 200)
        async with asyncio.timeout(20):
            while "id: " not in slow.text:  # one piece after the other is let through
                slow.reads.set()
                slow.reads.clear()
                await asyncio.sleep(0)
        asked(store, 1)
        await keeper.until(lambda one: kinds(one) == ["asked"])
        slow.reads.set()
        await slow.until(lambda one: "asked" in kinds(one))
        for one in (keeper, slow):
            await one.close()
        return kinds(slow)

    assert run(scene()) == (["reset", "asked"] if query else ["asked"])


def test_the_end_of_a_long_trail_is_found_by_halving() -> None:
    store = MemoryStore()
    numbers: list[int] = []

    def select(wanted: AuditFilter) -> list[AuditRow]:
        assert wanted.limit is not None or (wanted.after or 0) >= 1_000_000 - 500
        numbers.append(wanted.after or 0)
        row = AuditRow(at=1.0, run_id="r", thread_id=None, pending_id=None, body="{}", n=1_000_000)
        return [row] if (wanted.after or 0) < 1_000_000 else []

    store.select_audit = select  # type: ignore[method-assign]
    watcher = Watcher(store, FAST)
    assert run(watcher._end_of_trail()) == 1_000_000
    assert len(numbers) < 50


def test_the_stream_is_of_one_tenant() -> None:
    store = MemoryStore()

    async def scene() -> list[list[str]]:
        inbox = streaming(store, tokens=ByToken(RITA, OTTO, tenants={"otto": "acme"}))
        mine, others = await begun(inbox), await begun(inbox, "otto")
        first, second = asked(store, 1), asked(store.for_tenant("acme"), 2)
        await mine.until(lambda one: bool(one.told))
        await others.until(lambda one: bool(one.told))
        for one in (mine, others):
            await one.close()
        assert [each["id"] for each in mine.told] == [first.id]
        assert [each["id"] for each in others.told] == [second.id]
        return [kinds(mine), kinds(others)]

    assert run(scene()) == [["asked"], ["asked"]]


def test_one_person_has_five_streams_and_is_told_to_wait() -> None:
    async def scene() -> None:
        inbox = streaming(MemoryStore())
        streams = [await begun(inbox) for _ in range(5)]
        sixth = Connection(inbox)
        await sixth.ended()
        assert (sixth.status, sixth.text) == (200, "retry: 30000\n\n")
        other = await begun(inbox, "otto")
        await streams[0].close()
        again = await begun(inbox)
        for one in (*streams[1:], other, again):
            await one.close()
        assert not inbox.site.kept(Watching).streams

    run(scene())


def test_a_comment_keeps_the_connection_open() -> None:
    async def scene() -> str:
        stream = await begun(streaming(MemoryStore(), Pace(look=1000.0, comment=0.01, identify=1000.0)))
        await stream.until(lambda one: one.text.count(":\n\n") >= 2)
        await stream.close()
        return stream.text

    assert "data" not in run(scene())


class Changing(ByToken):
    """Tokens whose answer changes from the second time on."""

    def __init__(self, change: Callable[[Identity], Identity | None]) -> None:
        super().__init__()
        self.change = change
        self.asked: Counter[str] = Counter()

    async def identify(self, request: Request) -> Identity | None:
        found = await super().identify(request)
        self.asked[request.headers["authorization"]] += 1
        if found is None or self.asked[request.headers["authorization"]] == 1:
            return found
        return self.change(found)


def _refuse() -> Identity:
    raise Problem("not-signed-in")


def _as(found: Identity, **changes: Any) -> Identity:
    given = {"principal": found.principal, "tenant": found.tenant, "scopes": found.scopes, "via": found.via}
    return Identity(**{**given, **changes})


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda found: None, id="signed out"),
        pytest.param(lambda found: _refuse(), id="refused"),
        pytest.param(lambda found: _as(found, scopes=frozenset({"decide"})), id="may not read"),
        pytest.param(lambda found: _as(found, tenant="acme"), id="another tenant"),
        pytest.param(lambda found: _as(found, principal=Principal(id="rita", roles=())), id="other roles"),
    ],
)
def test_the_stream_ends_when_the_session_does(change: Callable[[Identity], Identity | None]) -> None:
    async def scene() -> None:
        pace = Pace(look=1000.0, comment=1000.0, identify=0.01)
        stream = await begun(streaming(MemoryStore(), pace, tokens=Changing(change)))
        await stream.ended()

    run(scene())


def test_the_stream_goes_on_as_long_as_the_session_does() -> None:
    async def scene() -> int:
        auth = Changing(lambda found: found)
        stream = await begun(streaming(MemoryStore(), Pace(look=1000.0, comment=0.02, identify=0.005), tokens=auth))
        await stream.until(lambda one: ":\n\n" in one.text)
        await stream.close()
        return auth.asked["Bearer phr_rita"]

    assert run(scene()) > 1


def test_a_server_that_shuts_down_ends_the_streams() -> None:
    async def scene() -> str:
        inbox = streaming(MemoryStore())
        stream = await begun(inbox)
        inbox.site.kept(Watching).close()
        await stream.ended()
        late = Connection(inbox)
        await late.ended()
        return late.text

    assert run(scene()) == "retry: 30000\n\n"


def test_a_store_that_fails_for_a_while_ends_no_stream(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    select = store.select_audit
    failing = [True]
    failed = asyncio.Event()

    def faulty(wanted: AuditFilter) -> list[AuditRow]:
        if failing[0]:
            failed.set()
            raise OSError("secret address")
        return select(wanted)

    async def scene() -> list[str]:
        inbox = streaming(store)
        stream = await begun(inbox)
        store.select_audit = faulty  # type: ignore[method-assign]
        await failed.wait()
        item = asked(store, 1)
        failing[0] = False
        await stream.until(lambda one: bool(one.told))
        await stream.close()
        assert stream.told[0]["id"] == item.id
        return kinds(stream)

    assert run(scene()) == ["asked"]
    assert "cannot be read: OSError" in caplog.text and "secret" not in caplog.text


def test_a_head_request_ends_at_once() -> None:
    async def scene() -> Connection:
        connection = Connection(streaming(MemoryStore()), method="HEAD")
        await connection.ended()
        return connection

    found = run(scene())
    assert (found.status, found.text) == (200, "") and found.headers["content-type"].startswith("text/event-stream")


def test_a_thousand_streams_cost_the_queries_of_one() -> None:
    store = MemoryStore()
    people = [Principal(id=f"p{number}") for number in range(200)]
    looks = Counter[str]()
    select = store.select_audit

    def counted(wanted: AuditFilter) -> list[AuditRow]:
        looks["audit"] += 1
        return select(wanted)

    store.select_audit = counted  # type: ignore[method-assign]

    async def scene() -> tuple[int, int]:
        inbox = streaming(store, Pace(look=0.05, comment=1000.0, identify=1000.0), tokens=ByToken(*people))
        streams = [Connection(inbox, person.id) for person in people for _ in range(5)]
        for one in streams:
            await one.until(lambda one: "id: " in one.text)
        assert inbox.site.kept(Watching).streams == 1_000
        before = looks["audit"]
        loop = asyncio.get_running_loop()
        begin = loop.time()
        item = asked(store, 1)
        for one in streams:
            await one.until(lambda one: bool(one.told))
        spent = loop.time() - begin
        # By the time that went by, and not by the number of streams.
        made = looks["audit"] - before
        assert made <= spent / 0.05 + 3
        assert all([each["id"] for each in one.told] == [item.id] for one in streams)
        for one in streams:
            one._gone.set()
        await asyncio.gather(*(one.task for one in streams))
        assert not inbox.site.kept(Watching).streams
        return made, len(streams)

    made, streams = run(scene())
    assert streams == 1_000 and made < 100
