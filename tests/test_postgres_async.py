"""PostgreSQL from event loops: the same transactions without a thread, and a loop that is gone takes its connections along."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from drivers import PATIENCE
from postgres_scenes import PASSWORD, Proxy, asking, end_others, everything, handed, opened
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from servers import Postgres, postgres, postgres_schema, postgres_url
from store_scenes import MINE, asked, begin, bodies, note, row

import phronomy.stores
from phronomy import Agent, tool
from phronomy.concurrency.workers import whole
from phronomy.engine.ledger import Ledger
from phronomy.errors import CheckpointNotFound, LeaseLost, StoreError
from phronomy.records.checkpoint import AgentRef, Checkpoint
from phronomy.stores import (
    Append,
    AuditRow,
    Behind,
    Branch,
    BranchStatus,
    Claim,
    Lineage,
    Occupied,
    PostgresStore,
    Store,
)
from phronomy.stores.base import AsyncPrimitives
from phronomy.stores.native import InThreads, on_loop
from phronomy.stores.sql import postgres_async
from phronomy.stores.sql.store import Native, SQLStore
from phronomy.testing import ScriptedModel, StoreContract, call
from phronomy.testing.scene import Fuse, Witness, mine

T = TypeVar("T")


@pytest.fixture
def schema() -> Iterator[str]:
    with postgres_schema() as name:
        yield name


@pytest.fixture
def store(schema: str) -> Iterator[PostgresStore]:
    with opened(schema) as store:
        yield store


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


@asynccontextmanager
async def lent(**options: Any) -> AsyncIterator[AsyncConnectionPool[Any]]:
    """A pool as a program has it: its connections begin transactions by themselves."""
    given = {"conninfo": postgres_url(), "min_size": 1, "max_size": 4, "open": False, **options}
    async with AsyncConnectionPool(**given) as pool:
        await pool.wait()
        yield pool


def native(store: Store) -> AsyncPrimitives:
    """What a run in this loop uses of the store; it is the store's own."""
    found = on_loop(store)
    assert isinstance(found, Native)
    return found


def append(seq: int, body: str, **change: Any) -> Append:
    right = {} if change.keys() & {"take", "claim"} else {"take": "w", "release": True}
    return Append(**{"branch_id": "b1", "seq": seq, "entries": (note(body),), **right, **change})


async def outcomes(work: Callable[[int], Awaitable[Any]], count: int) -> list[str]:
    """What each of several tasks came to that did the same at once: "won", or the name of an error."""
    found = await asyncio.gather(*(work(number) for number in range(count)), return_exceptions=True)
    return sorted(type(each).__name__ if isinstance(each, Exception) else "won" for each in found)


def named(name: str, **more: Any) -> str:
    """The server, and what connections to it are to be known by."""
    return psycopg.conninfo.make_conninfo(postgres_url(), application_name=name, **more)


def connected(name: str, most: int) -> int:
    """How many connections of this name are left, once it is `most` at most: a server is not at once rid of one that is closed."""
    until = time.monotonic() + PATIENCE
    while True:
        ((count,),) = asking("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", name)
        if count <= most or time.monotonic() > until:
            return int(count)


@tool
async def look(at: int) -> str:
    """Look at something."""
    return f"seen {at}"


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount}"


def clerk(store: Store) -> Agent[Any, str]:
    """Looks twice, and is done."""
    model = ScriptedModel.by_turn([call("look", {"at": 1}), call("look", {"at": 2}), "Done."])
    return Agent(name="clerk", model=model, tools=[look], store=store)


# What a run uses


def test_the_steps_of_a_run_in_a_loop_hold_no_thread(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("called in a thread")

    model = ScriptedModel.by_turn([call("look", {"at": 1}), call("pay", {"amount": 5}), "Paid."])
    agent = Agent(name="clerk", model=model, tools=[look, pay], store=store)

    async def main() -> Any:
        with monkeypatch.context() as patched:
            for name in ("append", "release"):
                patched.setattr(SQLStore, name, refused)
            asked = await agent.ainvoke("Pay")
            assert asked.suspended
            assert (await agent.aresume(asked.checkpoint, approved=True)).output == "Paid."
            with pytest.raises(AssertionError, match="called in a thread"):
                store.append(append(1, "j"))
        return asked.run_id

    run = asyncio.run(main())
    branch = store.lineage(branch_id=run).branch
    assert (branch.status, branch.owner) == ("completed", None)


def test_there_is_nothing_native_outside_of_a_loop_nor_for_a_pool_that_is_not_async(
    store: PostgresStore, schema: str
) -> None:
    assert store.native is None

    async def main() -> None:
        assert isinstance(native(store), Native)
        with handed() as pool, opened(schema, pool=pool) as shared:
            assert isinstance(on_loop(shared), InThreads)
            assert (await clerk(shared).ainvoke("go")).output == "Done."

    asyncio.run(main())


def test_a_primitive_that_somebody_overrides_is_called_and_not_passed_by(schema: str) -> None:
    seen = []

    class Watched(PostgresStore):
        def append(self, change: Append) -> Branch:
            seen.append(threading.current_thread())
            return super().append(change)

    async def main() -> None:
        assert (await clerk(store).ainvoke("go")).output == "Done."
        assert len(seen) == 5 and threading.main_thread() not in seen
        assert isinstance(on_loop(plain), Native)
        vars(plain)["append"] = plain.append
        assert isinstance(on_loop(plain), InThreads)

    with Watched(postgres_url(), schema=schema) as store, opened(schema) as plain:
        asyncio.run(main())


def test_what_a_store_without_any_does_in_a_thread_is_the_same(schema: str) -> None:
    async def main() -> None:
        with opened(schema) as store:
            begin(store, take="me")
            for primitives in (native(store), InThreads(store)):
                seq = store.lineage(branch_id="b1").branch.seq
                branch = await primitives.append(append(seq, "j", claim=MINE))
                assert branch == (await primitives.lineage(branch_id="b1")).branch
                assert await primitives.lineage(checkpoint_id="b1-0") == store.lineage(checkpoint_id="b1-0")
                with pytest.raises(Behind):
                    await primitives.append(append(seq, "k", claim=MINE))
                with pytest.raises(CheckpointNotFound):
                    await primitives.lineage(branch_id="b2")
                with pytest.raises(StoreError, match="give one of the two"):
                    await primitives.lineage()
            await InThreads(store).release(Claim(branch_id="b1", run_id="b1", owner="you", fence=1), "failed")
            assert store.lineage(branch_id="b1").branch.owner == "me"
            await native(store).release(MINE, "failed")
            after = store.lineage(branch_id="b1").branch
            assert (after.owner, after.status, bodies(store)) == (None, "failed", ["j", "j"])
            with pytest.raises(LeaseLost):
                await native(store).append(append(3, "k", claim=MINE))

    asyncio.run(main())


def test_what_any_primitive_does_can_be_done_in_a_loop(store: PostgresStore) -> None:
    def new(id: str) -> tuple[Branch, Append]:
        branch = Branch(id=id, run_id=id, thread_id="t", agent="clerk")
        return branch, Append(branch_id=id, seq=0, entries=(row(f"{id}-0"),), head=f"{id}-0", take="me", announce=True)

    async def main() -> None:
        server = store._aserver
        assert server is not None
        await server.write(lambda: store._create(*new("b1"), True), False)
        with pytest.raises(Occupied):
            await server.write(lambda: store._create(*new("b2"), True), False)
        renewed = await server.write(lambda: store._renew(MINE), True)
        assert renewed == store.lineage(branch_id="b1").branch
        await server.write(lambda: store._announced("b1", 1), True)
        with pytest.raises(Behind):
            await server.write(lambda: store._remove({"b1": 1}, {}), False)
        await server.write(lambda: store._release(MINE, "completed"), True)
        await server.write(lambda: store._remove({"b1": 1}, {}), False)

    asyncio.run(main())
    assert store.branches() == []


def test_a_sweep_counts_and_is_told_what_is_written_natively(
    schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("called in a thread")

    witness = Witness(str(tmp_path / "told"))
    fuse = Fuse(None, witness)
    with opened(schema, clock=time.time) as store:
        mine(store, fuse, witness)
        monkeypatch.setattr(SQLStore, "append", refused)
        result = asyncio.run(clerk(store).ainvoke("go"))
        written = witness.lines("wrote")
        assert [line["seq"] for line in written] == [1, 3, 5, 7, 9, 10]
        assert written[-1]["head"] == result.checkpoint.id
        assert fuse.passed == 2 * len(written)


class Through(PostgresStore):
    """Its primitives are the native ones, in a loop in a thread beside."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def do(self, work: Callable[[AsyncPrimitives], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            found = self.native
            assert found is not None
            return await work(found)

        return asyncio.run_coroutine_threadsafe(main(), self.loop).result()

    def append(self, change: Append) -> Branch:
        return self.do(lambda native: native.append(change))  # type: ignore[arg-type, return-value]

    def release(self, claim: Claim, status: BranchStatus | None = None) -> None:
        self.do(lambda native: native.release(claim, status))  # type: ignore[arg-type, return-value]

    def lineage(self, **place: Any) -> Lineage:
        return self.do(lambda native: native.lineage(**place))  # type: ignore[arg-type, return-value]

    def close(self) -> None:
        super().close()
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


@pytest.mark.sweep
class TestThroughALoop(StoreContract):
    """The native primitives keep the contract of those that block, with statements that are prepared."""

    @pytest.fixture(autouse=True)
    def database(self) -> Iterator[None]:
        with postgres_schema() as self.schema:
            yield
            self.close_stores()

    def make_store(self, **options: Any) -> Through:
        return Through(postgres_url(), schema=self.schema, prepare_statements=True, **options)


# Many at once


def test_of_64_tasks_that_append_after_the_same_entry_one_wins(schema: str) -> None:
    async def main() -> None:
        for turn in range(3):
            change = append(1 + turn, f"{turn}")
            found = await outcomes(lambda n, c=change: native((one, two)[n % 2]).append(c), 64)
            assert found == ["Behind"] * 63 + ["won"]

    with opened(schema, max_size=8) as one, opened(schema, max_size=8) as two:
        begin(one)
        asyncio.run(main())
        assert bodies(two) == ["0", "1", "2"]


def test_200_runs_at_once_share_five_connections(schema: str) -> None:
    most = 0

    async def main() -> None:
        nonlocal most
        results = await asyncio.gather(*(clerk(store).ainvoke("go", thread_id=f"t{n}") for n in range(200)))
        assert [each.output for each in results] == ["Done."] * 200
        ((most,),) = asking("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'many'")

    with opened(schema, named("many"), max_size=5, clock=time.time) as store:
        asyncio.run(main())
        assert {(branch.status, branch.owner) for branch in store.branches()} == {("completed", None)}
        assert len(store.branches()) == 200
    assert 6 <= most <= 10, "five for the loop, and up to five for what runs begin and are kept with in threads"


def test_two_loops_in_two_threads_use_one_store_at_once(schema: str) -> None:
    gate = threading.Barrier(2)

    async def main() -> list[Any]:
        gate.wait(PATIENCE)
        return await asyncio.gather(*(clerk(store).ainvoke("go") for _ in range(20)))

    with opened(schema, named("two"), clock=time.time) as store:
        with ThreadPoolExecutor(2) as threads:
            found = list(threads.map(lambda _: asyncio.run(main()), range(2)))
        assert [each.output for results in found for each in results] == ["Done."] * 40
        assert {branch.status for branch in store.branches()} == {"completed"}
    assert connected("two", 0) == 0


# Loops that end


def test_ten_loops_in_a_row_leave_no_connection_behind(schema: str) -> None:
    with opened(schema, named("ten"), max_size=1, clock=time.time) as store:
        for _ in range(10):
            result = asyncio.run(clerk(store).ainvoke("go"))
            assert result.output == "Done."
            assert connected("ten", 1) == 1  # that of the pool for threads
    assert connected("ten", 0) == 0
    gc.collect()


def test_a_loop_that_is_closed_by_hand_loses_its_connections_when_another_comes_or_the_store_is_closed(
    schema: str,
) -> None:
    with opened(schema, named("hand"), clock=time.time) as store:
        for _ in range(4):
            loop = asyncio.new_event_loop()
            assert loop.run_until_complete(clerk(store).ainvoke("go")).output == "Done."
            loop.close()
            assert (
                connected("hand", 3) <= 3
            )  # the pool's for threads, which has grown by one perhaps, and the last loop's
    assert connected("hand", 0) == 0
    gc.collect()


@pytest.mark.parametrize("events", [1, 4, 7])
def test_a_stream_that_is_left_at_the_end_of_its_loop_lets_its_run_go_and_leaves_no_connection(
    schema: str, events: int
) -> None:
    streams = []

    async def main() -> str:
        stream = clerk(store).astream("go")
        streams.append(stream)  # nobody closes it: the loop does, with all generators at once
        return [await anext(aiter(stream)) for _ in range(events)][-1].run_id

    with opened(schema, named("left"), max_size=1, clock=time.time) as store:
        run = asyncio.run(main())
        streams.clear()
        gc.collect()
        branch = store.lineage(branch_id=run).branch
        assert (branch.owner, branch.status) == (None, "failed")
        assert connected("left", 1) == 1
        assert store.head(run)[1].id
    assert connected("left", 0) == 0


def test_a_store_that_nobody_closes_leaves_nothing_to_complain_of(schema: str) -> None:
    async def main() -> None:
        store = opened(schema, named("forgotten"))
        begin(store)
        await native(store).append(append(1, "j"))

    asyncio.run(main())
    gc.collect()
    assert connected("forgotten", 0) == 0


def test_a_loop_closed_under_a_statement_leaves_no_connection_to_complain_of(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever order the collector comes to the task and to the connection, which is the older of the two."""
    unheard: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda found: unheard.append(repr(found.exc_value)))
    monkeypatch.setattr(logging.getLogger("asyncio"), "disabled", True)  # asyncio itself says that tasks were destroyed
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'under' AND wait_event_type = 'Lock'"

    async def read() -> Lineage:
        return await native(store).lineage(branch_id="b1")

    with opened(schema, named("under")) as store, psycopg.connect(postgres_url()) as other:
        begin(store)
        for _ in range(3):
            loop = asyncio.new_event_loop()
            loop.run_until_complete(read())
            gc.collect()  # the connection is old
            other.execute(f'LOCK TABLE "{schema}".phronomy_branches')
            task = loop.create_task(read())
            while asking(waiting) == [(0,)]:
                loop.run_until_complete(asyncio.sleep(0))
            loop.close()
            del task
            gc.collect()
            other.rollback()
        assert unheard == []
        assert connected("under", 2) <= 2  # those of the threads
    assert connected("under", 0) == 0


def test_connections_that_nobody_wants_are_closed_after_a_while(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(most: int) -> int:
        await asyncio.gather(*(native(store).lineage(branch_id="b1") for _ in range(4)))
        return await asyncio.to_thread(connected, "idle", most)

    with opened(schema, named("idle")) as store:
        begin(store)
        assert asyncio.run(main(100)) >= 5  # four of the loop, and one or two for threads
        monkeypatch.setattr(postgres_async, "_IDLE", 0.0)
        assert asyncio.run(main(2)) <= 2


def test_a_closed_store_says_so_in_a_loop_and_closes_its_connections(schema: str) -> None:
    async def main() -> None:
        store = opened(schema, named("closed"))
        other = store.for_tenant("acme")
        begin(store)
        begin(other)
        await native(store).append(append(1, "mine"))
        await native(other).append(append(1, "theirs"))
        assert (bodies(store), bodies(other)) == (["mine"], ["theirs"])
        await asyncio.to_thread(other.close)
        other.close()
        assert connected("closed", 0) == 0
        for closed in (store, other):
            with pytest.raises(StoreError, match="is closed"):
                await native(closed).append(append(2, "late"))
            with pytest.raises(StoreError, match="is closed"):
                await native(closed).lineage(branch_id="b1")

    asyncio.run(main())


# Servers that go away


@pytest.mark.parametrize("own", [True, False], ids=["its own connections", "somebody else's"])
def test_a_run_goes_on_when_its_server_was_killed_and_started_again(
    own_postgres: Postgres, schema: str, own: bool
) -> None:
    async def main() -> None:
        async with lent(min_size=4) as pool:
            with opened(schema, **({} if own else {"async_pool": pool})) as store:
                begin(store, take="me")
                await asyncio.gather(*(native(store).lineage(branch_id="b1") for _ in range(4)))
                for turn in range(2):
                    own_postgres.kill()
                    own_postgres.start()
                    await native(store).append(append(1 + turn, f"{turn}", claim=MINE))
                    lineage = await native(store).lineage(branch_id="b1")
                    assert [entry.body for entry in lineage.entries][1:] == ["0", "1"][: turn + 1]
                own_postgres.kill()
                own_postgres.start()
                assert (await native(store).lineage(branch_id="b1")).branch.seq == 3

    asyncio.run(main())


def test_a_server_that_is_down_is_a_store_error_and_comes_back(own_postgres: Postgres, schema: str) -> None:
    async def main() -> None:
        with opened(schema, timeout=1.0) as store:
            begin(store)
            await native(store).append(append(1, "j"))
            own_postgres.kill()
            try:
                with pytest.raises(StoreError, match=r"no connection could be had in 1 seconds") as refused:
                    await native(store).append(append(2, "k"))
                assert refused.value.__cause__ is refused.value.__context__ is None
                with pytest.raises(StoreError, match="no connection could be had"):
                    await native(store).lineage(branch_id="b1")
            finally:
                own_postgres.start()
            await native(store).append(append(2, "k"))
            assert bodies(store) == ["j", "k"]

    asyncio.run(main())


def test_a_connection_that_ends_in_the_middle_of_a_write_is_replaced_and_the_write_done_once(schema: str) -> None:
    ends = [True]

    def once() -> float:
        if ends and ends.pop():
            end_others("state = 'idle in transaction'")
        return 1000.0

    def always() -> float:
        end_others("state = 'idle in transaction'")
        return 1000.0

    async def main() -> None:
        store.clock = once
        await native(store).append(append(1, "j"))
        assert (bodies(store), ends) == (["j"], [])
        store.clock = always
        with pytest.raises(StoreError, match="lost twice, nothing was written"):
            await native(store).append(append(2, "k"))

    with opened(schema) as store:
        begin(store)
        asyncio.run(main())
        assert bodies(store) == ["j"]


LINE = AuditRow(at=1.0, run_id="b1", thread_id=None, pending_id=None, body="a")
WRITES: dict[str, Callable[[AsyncPrimitives], Awaitable[Any]]] = {
    "append": lambda store: store.append(append(1, "j", audit=(LINE,))),
    "go on": lambda store: store.append(append(1, "j", claim=MINE, opened=(asked("p"),))),
    "take": lambda store: store.append(append(1, "j", take="you")),
    "release": lambda store: store.release(MINE, "failed"),
}


def ensure_done_once(proxy: Proxy, cuts: str, name: str, own: bool) -> None:
    """The store holds the same, whether the connection is cut off at the commit of this write or not."""
    states = []

    async def main(cut: str | None) -> None:
        async with lent(conninfo=proxy.url()) as pool:
            with (
                postgres_schema() as schema,
                opened(schema, proxy.url(), **({} if own else {"async_pool": pool})) as store,
            ):
                begin(store, take="me" if name in ("go on", "release") else None)
                await native(store).lineage(branch_id="b1")
                proxy.cuts = cut
                await WRITES[name](native(store))
                states.append((everything(store), [each.pending_id for each in store.pending_rows()]))

    for cut in (None, cuts):
        asyncio.run(main(cut))
    assert proxy.cut == 1 and proxy.cuts is None
    assert states[0] == states[1]


@pytest.mark.few(8)
@pytest.mark.parametrize("cuts", ["before", "after"])
@pytest.mark.parametrize("own", [True, False], ids=["own", "lent"])
@pytest.mark.parametrize("name", WRITES)
def test_a_commit_whose_answer_is_lost_is_done_once(proxy: Proxy, cuts: str, own: bool, name: str) -> None:
    ensure_done_once(proxy, cuts, name, own)


@pytest.mark.parametrize("name", ["append", "go on", "take"])
def test_a_commit_that_is_taken_for_another_with_its_number_is_made_all_the_same(
    proxy: Proxy, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_async, "BECAME", "SELECT 'committed' WHERE %s <> ''")
    ensure_done_once(proxy, "before", name, own=True)


def test_a_commit_that_got_lost_on_the_way_is_made_again_once_the_server_has_given_up(
    schema: str, proxy: Proxy
) -> None:
    async def main() -> None:
        await native(store).lineage(branch_id="b1")
        proxy.cuts = "unseen"
        await native(store).append(append(1, "j"))
        assert (proxy.cut, bodies(other)) == (1, ["j"])

    with opened(schema, timeout=4.0) as other, opened(schema, proxy.url(), timeout=4.0) as store:
        begin(other)
        asyncio.run(main())


def test_a_commit_of_which_nobody_can_say_whether_it_was_done_is_not_done_again(schema: str, proxy: Proxy) -> None:
    async def main() -> None:
        await native(store).lineage(branch_id="b1")
        proxy.cuts, proxy.refuses = "after", True
        with pytest.raises(StoreError, match="does not say whether it was done: load the run") as unknown:
            await native(store).append(append(1, "j"))
        assert f"127.0.0.1:{proxy.port}: " in str(unknown.value)
        assert bodies(direct) == ["j"]

    with opened(schema) as direct, opened(schema, proxy.url(), timeout=1.0) as store:
        begin(direct)
        asyncio.run(main())


# Cancellation


def held_run(store: PostgresStore) -> Ledger:
    """A worker's hold on a run that was begun."""
    at = datetime(2026, 3, 1, tzinfo=UTC)
    head = Checkpoint(
        id="b1-0", run_id="b1", branch_id="b1", created_at=at, agent=AgentRef(name="clerk"), original_input="hi"
    )
    return Ledger(store, store.lineage(branch_id="b1").branch, head)


def test_a_task_that_is_cancelled_during_its_commit_hears_of_it_once_it_is_known_what_became_of_the_write(
    schema: str, proxy: Proxy
) -> None:
    async def main() -> None:
        ledger = held_run(store)
        await native(store).lineage(branch_id="b1")
        proxy.holds = True
        written = ledger.awrite(lambda: ledger.change([note("j")]), lambda: None)
        task = asyncio.ensure_future(whole(written))  # as a run calls it
        assert await asyncio.to_thread(proxy.held.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        proxy.released.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (ledger.seq, bodies(store)) == (2, ["j"])
        assert ledger.claim is not None
        ledger.drop()

    with opened(schema, proxy.url()) as store:
        begin(store)
        asyncio.run(main())


def test_a_commit_that_is_itself_cancelled_as_a_loop_does_that_ends_is_seen_through(schema: str, proxy: Proxy) -> None:
    async def main() -> None:
        await native(store).lineage(branch_id="b1")
        proxy.holds = True
        task = asyncio.ensure_future(native(store).append(append(1, "j")))
        assert await asyncio.to_thread(proxy.held.wait, 60)
        task.cancel()
        proxy.released.set()
        branch = await task
        assert (branch.seq, bodies(store)) == (2, ["j"])
        await native(store).append(append(2, "k"))

    with opened(schema, proxy.url()) as store:
        begin(store)
        asyncio.run(main())
        assert bodies(store) == ["j", "k"]


def test_a_write_that_is_cancelled_before_its_commit_is_undone_and_its_connection_serves_on(schema: str) -> None:
    async def main() -> None:
        await native(store).lineage(branch_id="b1")
        async with await psycopg.AsyncConnection.connect(postgres_url()) as other:
            await other.execute(f'SELECT 1 FROM "{schema}".phronomy_branches FOR UPDATE')
            task = asyncio.ensure_future(native(store).append(append(1, "j")))
            waits = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'undone' AND wait_event_type = 'Lock'"
            while not await asyncio.to_thread(asking, waits):
                assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await other.rollback()
        await native(store).append(append(1, "k"))
        shielded = asyncio.ensure_future(whole(native(store).append(append(2, "l"))))
        await asyncio.sleep(0)
        shielded.cancel()
        with pytest.raises(asyncio.CancelledError):
            await shielded

    with opened(schema, named("undone"), max_size=1) as store:
        begin(store)
        asyncio.run(main())
        assert bodies(store) == ["k", "l"]
        assert connected("undone", 1) == 1


def test_a_sync_call_in_a_loop_does_not_wait_for_ever_for_what_only_the_loop_can_let_go_of(
    schema: str, proxy: Proxy
) -> None:
    """The server ends a transaction that nobody goes on with, and the write is judged anew."""

    async def main() -> None:
        await native(store).lineage(branch_id="b1")
        proxy.holds = True
        task = asyncio.ensure_future(native(store).append(append(1, "mine")))
        assert await asyncio.to_thread(proxy.held.wait, 60)
        direct.append(append(1, "theirs"))  # the loop stands still meanwhile
        proxy.released.set()
        with pytest.raises(Behind):
            await task

    with opened(schema) as direct, opened(schema, proxy.url(), timeout=2.0) as store:
        begin(direct)
        asyncio.run(main())
        assert bodies(direct) == ["theirs"]


# Pools of others


def test_a_pool_is_left_open_and_its_connections_as_they_were(schema: str) -> None:
    async def main() -> None:
        async with lent(max_size=1, kwargs={"row_factory": dict_row, "prepare_threshold": 0}) as pool:
            async with pool.connection() as connection:
                await connection.execute("SET lock_timeout = '7s'")
            with opened(schema, async_pool=pool) as store:
                begin(store, take="me")
                before = pool.get_stats()["requests_num"]
                await native(store).append(append(1, "j", claim=MINE))
                with pytest.raises(Behind):
                    await native(store).append(append(1, "k", claim=MINE))
                assert pool.get_stats()["requests_num"] == before + 2
                assert (await clerk(store).ainvoke("go")).output == "Done."
            with pytest.raises(StoreError, match="is closed"):
                await native(store).lineage(branch_id="b1")
            async with pool.connection() as connection:
                assert connection.autocommit is False
                shown = await (await connection.execute("SHOW lock_timeout")).fetchone()
                assert shown == {"lock_timeout": "7s"}
                prepared = "SELECT count(*) AS n FROM pg_prepared_statements WHERE statement LIKE '%phronomy%'"
                assert await (await connection.execute(prepared)).fetchone() == {"n": 1}  # this one

    asyncio.run(main())


def test_a_pool_beside_a_pool_serves_its_own_loop_and_others_go_through_threads(schema: str) -> None:
    async def main() -> None:
        async with lent() as pool:
            with handed() as plain, opened(schema, pool=plain, async_pool=pool, clock=time.time) as store:
                assert (await clerk(store).ainvoke("go")).output == "Done."
                assert isinstance(on_loop(store), Native)

                async def elsewhere() -> str:
                    assert isinstance(on_loop(store), InThreads)
                    return str((await clerk(store).ainvoke("go")).output)

                assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == "Done."

    asyncio.run(main())


def test_each_transaction_may_have_another_connection(schema: str) -> None:
    """As with a pooler in between: connections take turns, and remember nothing."""

    async def forget(connection: Any) -> None:
        await connection.set_autocommit(True)
        await connection.execute("DISCARD ALL", prepare=False)
        await connection.set_autocommit(False)

    async def main() -> None:
        async with lent(min_size=3, max_size=3, reset=forget) as pool:
            with opened(schema, async_pool=pool) as store:
                begin(store, take="me")
                for seq in range(1, 8):
                    await native(store).append(append(seq, str(seq), claim=MINE))
                await native(store).release(MINE)
                assert bodies(store) == [str(seq) for seq in range(1, 8)]

    asyncio.run(main())


def test_a_pool_that_is_too_small_or_closed_is_said_so(schema: str) -> None:
    async def main() -> None:
        async with lent(max_size=1) as pool:
            with opened(schema, async_pool=pool, timeout=1.0) as store:
                begin(store)
                async with pool.connection():
                    with pytest.raises(StoreError, match=r"no connection could be had in 1 seconds"):
                        await native(store).lineage(branch_id="b1")
                await native(store).lineage(branch_id="b1")
                await pool.close()
                with pytest.raises(StoreError, match="the pool of connections is closed"):
                    await native(store).lineage(branch_id="b1")
        with opened(schema, timeout=1.0, max_size=1) as store, psycopg.connect(postgres_url()) as other:
            other.execute(f'LOCK TABLE "{schema}".phronomy_branches')
            first = asyncio.ensure_future(native(store).lineage(branch_id="b1"))
            await asyncio.sleep(0)
            with pytest.raises(StoreError, match=r"no connection could be had in 1 seconds"):
                await native(store).lineage(branch_id="b1")
            other.rollback()
            assert (await first).branch.id == "b1"

    asyncio.run(main())


def test_an_async_pool_alone_is_not_enough_and_must_be_one() -> None:
    with pytest.raises(StoreError, match="beside its async_pool: runs are begun, listed and kept alive in threads"):
        PostgresStore(async_pool=object())  # type: ignore[arg-type]
    with handed() as pool, pytest.raises(StoreError, match=r"is a psycopg_pool\.AsyncConnectionPool"):
        PostgresStore(pool=pool, async_pool=pool)  # type: ignore[arg-type]


# Errors, and what they do not say


def test_no_message_holds_a_password_or_a_value(schema: str, caplog: pytest.LogCaptureFixture) -> None:
    said = []

    async def main() -> None:
        stranger = PostgresStore(f"host={postgres().data} user=nobody{PASSWORD} password={PASSWORD}", timeout=1.0)
        bad: list[Callable[[], Awaitable[Any]]] = [
            lambda: native(stranger).append(append(1, "j")),
            lambda: native(stranger).lineage(branch_id="b1"),
            lambda: native(store).append(
                Append(branch_id="b1", seq=1, take="me", entries=(row("b1-0", body=PASSWORD),))
            ),
            lambda: native(store).append(append(1, "j", take="me", opened=(asked("p", body=PASSWORD),))),
            lambda: native(store).append(append(1, PASSWORD + "\0", take="me")),
            lambda: native(store).append(append(1, PASSWORD + "\ud800", take="me")),
        ]
        for work in bad:
            with pytest.raises(StoreError) as refused:
                await work()
            said.append(refused)
        assert (await native(store).lineage(branch_id="b1")).branch.seq == 1
        for unknown in ("\0", "\ud800"):
            with pytest.raises(CheckpointNotFound):
                await native(store).lineage(branch_id=unknown)

    with opened(schema) as store:
        begin(store, opened=(asked("p"),))
        asyncio.run(main())
    assert len(said) == 6
    for refused in said:
        error: BaseException | None = refused.value
        while error is not None:
            assert PASSWORD not in str(error), error
            assert (str(postgres().data) in str(error)) == (refused in said[:2]), error
            assert not isinstance(error, psycopg.Error)
            error = error.__cause__ or error.__context__
    assert PASSWORD not in caplog.text


def test_a_row_that_others_keep_locked_is_a_store_error(schema: str) -> None:
    async def main() -> None:
        with psycopg.connect(postgres_url()) as other:
            other.execute(f'SELECT 1 FROM "{schema}".phronomy_branches FOR UPDATE')
            with pytest.raises(StoreError, match="another transaction kept a row locked"):
                await native(store).append(append(1, "j"))
            other.rollback()
        await native(store).append(append(1, "j"))

    with opened(schema, timeout=1.0) as store:
        begin(store)
        asyncio.run(main())
        assert bodies(store) == ["j"]


# Processes


def run_forks(url: str, schema: str) -> None:
    async def main() -> None:
        with opened(schema, url) as store:
            begin(store)
            await native(store).append(append(1, "parent"))
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    asyncio.run(_append(store, append(2, "child")))
                    os.write(write, b"written")
                finally:
                    os._exit(0)
            os.close(write)
            with os.fdopen(read) as pipe:
                assert pipe.read() == "written"
            os.waitpid(pid, 0)  # noqa: ASYNC222  # it has written its last
            await native(store).append(append(3, "parent"))
            assert bodies(store) == ["parent", "child", "parent"]

    asyncio.run(main())


async def _append(store: Store, change: Append) -> None:
    await native(store).append(change)


def test_a_forked_child_leaves_the_connections_of_its_parent_alone(schema: str) -> None:
    here = Path(__file__).parent
    program = f"import {Path(__file__).stem} as tests; tests.run_forks(*{(postgres_url(), schema)!r})"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(phronomy.stores.__file__).parents[2]), str(here)])}
    subprocess.run([sys.executable, "-W", "error", "-c", program], env=env, check=True, timeout=PATIENCE)
