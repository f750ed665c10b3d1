"""What went wrong in other systems, 103 to 117, where runs are kept for long: connections, set-up, scopes, lists, rounds."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import psycopg_pool
import pytest
from drivers import PATIENCE, Driver, outline
from places import KINDS, Place, place_of
from servers import postgres_url
from test_failures_authority import posted, unchanged
from test_failures_once import at_once, pays
from test_failures_stores import Shop

import phronomy
from phronomy import (
    AgentChanged,
    Approve,
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    InstructionsError,
    ModelError,
    PostgresStore,
    Reject,
    Respond,
    StoreError,
    tool,
)
from phronomy.testing import ScriptedModel, call, say

pytestmark = pytest.mark.unmeasured


@pytest.fixture
def desk(driver: Driver, place: Place) -> Shop:
    return Shop(driver, place)


@pytest.fixture
def postgres(driver: Driver, tmp_path: Path) -> Iterator[Shop]:
    """A desk over PostgreSQL."""
    with place_of("postgres", tmp_path) as found:
        yield Shop(driver, found)


# Connections


def cut_connections() -> int:
    """End every connection to the database but ours, as a restart of it or of a pooler does; how many there were."""
    with psycopg.connect(postgres_url(), autocommit=True) as db:
        ended = db.execute(
            "SELECT pid, pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND datname = current_database()"
        ).fetchall()
        # Those, and not whoever connects meanwhile: pools make their connections anew by themselves.
        while db.execute("SELECT 1 FROM pg_stat_activity WHERE pid = ANY(%s)", ([pid for pid, _ in ended],)).fetchone():
            pass
        return len(ended)


def test_a_run_goes_on_when_its_connections_went_stale(driver: Driver, postgres: Shop) -> None:
    """While it waits, while the model thinks, and while a tool runs: each ends every connection. field failure 103"""
    cuts: list[int] = []

    def pay(order: int) -> str:
        """Pay."""
        cuts.append(cut_connections())
        postgres.done.append(f"pay {order}")
        return "paid"

    def reply(request: Any) -> Any:
        cuts.append(cut_connections())
        return "end" if request.messages[-1].role == "tool" else call("pay", {"order": 1})

    postgres.script(reply, tool(requires_approval=True)(driver.function(pay)))
    agent = postgres.worker()
    checkpoint = driver.invoke(agent, "go", thread_id="t").checkpoint
    cuts.append(cut_connections())

    result = driver.resume(agent, checkpoint, approved=True)

    assert (result.status, postgres.done) == ("completed", ["pay 1"])
    assert len(cuts) == 4
    assert cuts[0] and cuts[2] and cuts[3], cuts  # while nothing runs, there need be no connection to cut
    assert agent.store.head(checkpoint.branch_id)[1] == result.checkpoint


def test_nothing_is_prepared_and_nothing_is_held_while_others_work(driver: Driver, postgres: Shop) -> None:
    """Over a model call and a tool each connection is back in the pool, in no transaction, with no statement. field failure 103"""
    looks: list[Any] = []
    # The pool prepares what it can at once: whatever is not told otherwise is prepared.
    options = {"prepare_threshold": 0, "autocommit": True}
    with psycopg_pool.ConnectionPool(postgres_url(), min_size=1, max_size=2, kwargs=options, open=True) as pool:

        def look() -> None:
            stats = pool.get_stats()
            with psycopg.connect(postgres_url()) as db:
                states = db.execute("SELECT state FROM pg_stat_activity WHERE pid = ANY(%s)", ([*pids],)).fetchall()
                locks = db.execute("SELECT count(*) FROM pg_locks WHERE pid = ANY(%s)", ([*pids],)).fetchall()
            looks.append((stats["pool_available"] == stats["pool_size"], states, locks))

        def pay(order: int) -> str:
            """Pay."""
            look()
            return "paid"

        def reply(request: Any) -> Any:
            look()
            return "end" if request.messages[-1].role == "tool" else call("pay", {"order": 1})

        pool.wait()
        with pool.connection() as connection:
            pids = [connection.info.backend_pid]
            connection.execute("SELECT 1 AS ours")  # what the check below would find
        store = PostgresStore(pool=pool, schema=postgres.place.where)
        postgres.script(reply, tool(requires_approval=True)(driver.function(pay)), store=store)
        agent = postgres.agent()
        checkpoint = driver.invoke(agent, "go", thread_id="t").checkpoint
        assert driver.resume(agent, checkpoint, approved=True).status == "completed"
        assert store.pending(limit=3) == []

        assert looks == [(True, [("idle",)], [(0,)])] * 3
        with pool.connection() as connection:
            assert connection.info.backend_pid in pids
            prepared = connection.execute("SELECT statement FROM pg_prepared_statements").fetchall()
    assert {text for (text,) in prepared} <= {"SELECT 1 AS ours", "SELECT statement FROM pg_prepared_statements"}
    assert ("SELECT 1 AS ours",) in prepared


def test_others_write_while_the_model_thinks_and_a_tool_runs(desk: Shop) -> None:
    """No transaction, lock or place in the store is held over either. field failure 103"""
    wrote: list[str] = []

    def beside() -> None:
        """Somebody else's run, whole, in the middle of ours."""
        other = desk.worker(model=ScriptedModel(["hello"]), name="other")
        done = threading.Thread(target=lambda: wrote.append(desk.driver.invoke(other, "hi", thread_id="u").status))
        done.start()
        done.join(PATIENCE)

    def pay(order: int) -> str:
        """Pay."""
        beside()
        return "paid"

    def reply(request: Any) -> Any:
        beside()
        return "end" if request.messages[-1].role == "tool" else call("pay", {"order": 1})

    desk.script(reply, tool(requires_approval=True)(desk.driver.function(pay)))
    agent = desk.worker()
    checkpoint = desk.driver.invoke(agent, "go", thread_id="t").checkpoint
    assert desk.driver.resume(agent, checkpoint, approved=True).status == "completed"
    assert wrote == ["completed"] * 3


# Set-up


def test_ten_set_a_store_up_at_once_and_all_can_work(desk: Shop) -> None:
    """The first use of an empty database, by ten at the same moment. field failure 104"""
    desk.script([], desk.tool("pay"))
    desk.model = ScriptedModel.by_turn([*pays(1), "end"])

    def begin(number: int) -> Any:
        agent = desk.worker()
        first = desk.driver.invoke(agent, "go", thread_id=f"t{number}")
        return desk.driver.resume(agent, first.checkpoint, approved=True)

    found = at_once([partial(begin, number) for number in range(10)])

    assert [getattr(each, "status", each) for each in found] == ["completed"] * 10
    assert len(desk.store().branches()) == len(desk.done) == 10


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled-back"])
def test_a_set_up_is_part_of_the_transaction_that_it_is_made_in(driver: Driver, postgres: Shop, commits: bool) -> None:
    """It needs no connection of its own and no commit in between, and is also text to be run. field failure 104"""
    schema = postgres.place.where
    with psycopg.connect(postgres_url()) as connection:
        connection.execute("SELECT 1")
        with PostgresStore(postgres_url(), schema=schema, setup=False) as store:
            store.setup(connection)
            store.setup(connection)
        if not commits:
            connection.rollback()
    postgres.script([*pays(1), "end"], postgres.tool("pay"))
    with PostgresStore(postgres_url(), schema=schema, setup=False) as store:
        agent = postgres.agent(store=store)
        if not commits:
            with pytest.raises(StoreError, match="setup"):
                driver.invoke(agent, "go")
            with psycopg.connect(postgres_url(), autocommit=True) as connection:
                connection.execute(PostgresStore.setup_sql(schema).encode())
            postgres.model = ScriptedModel([*pays(1), "end"])
            agent = postgres.agent(store=store)
        checkpoint = driver.invoke(agent, "go").checkpoint
        assert driver.resume(agent, checkpoint, approved=True).status == "completed"


WRITER = """
import sys
from drivers import ASYNC, SYNC, decide_first
from phronomy import Agent, open_store, tool
from phronomy.testing import ScriptedModel, call

url, driver, name = sys.argv[1], {"sync": SYNC, "async": ASYNC}[sys.argv[2]], sys.argv[3]

def pay(order: int) -> str:
    "Pay."
    return f"paid {order}"

with open_store(url) as store:
    pay = tool(requires_approval=True)(driver.function(pay))
    model = ScriptedModel.by_turn([[call("pay", {"order": 1}), call("pay", {"order": 2})], "end"])
    agent = Agent(name="clerk", model=model, tools=[pay], store=store)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(12):
        result = driver.invoke(agent, "go", thread_id=f"{name}-{number}")
        while result.suspended:
            result = driver.resume(agent, result.checkpoint, decisions=decide_first(result.checkpoint))
        assert result.status == "completed"
print("done")
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("place", KINDS[1:], indirect=True)  # memory has no second process
def test_two_processes_that_write_at_once_wait_for_each_other(desk: Shop) -> None:
    """None is told that the database is locked, and all that each has written is there. field failure 105"""
    desk.store().branches()
    paths = os.pathsep.join([str(Path(phronomy.__file__).parents[1]), str(Path(__file__).parent)])
    command = [sys.executable, "-c", WRITER, desk.place.url, str(desk.driver)]
    pipe: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    writers = [
        subprocess.Popen([*command, name], env={**os.environ, "PYTHONPATH": paths}, **pipe) for name in ("a", "b")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n", writer.communicate()
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    told = [writer.communicate(timeout=PATIENCE) for writer in writers]
    assert told == [("done\n", "")] * 2
    branches = desk.store().branches()
    assert sorted(branch.thread_id or "" for branch in branches) == sorted(f"{w}-{n}" for w in "ab" for n in range(12))
    assert {branch.status for branch in branches} == {"completed"}


# What a failure leaves


def test_a_failure_leaves_a_run_that_can_go_on(desk: Shop) -> None:
    """Claimed, and then the model, the instructions or the process fail: it is nobody's, and goes on. field failure 109 U8."""
    down: list[Any] = [KeyboardInterrupt(), ModelError("down"), ValueError("down")]

    def instructions(input: Any) -> str:
        raise LookupError("no template")

    def reply(request: Any) -> Any:
        if request.messages[-1].role == "tool" and down:
            raise down.pop()
        return "end" if request.messages[-1].role == "tool" else call("pay", {"order": 1})

    desk.script(reply, desk.tool("pay"))
    checkpoint = desk.invoke(thread_id="t").checkpoint
    other = desk.agent(desk.tool("other"))
    with pytest.raises(AgentChanged):
        desk.driver.resume(other, checkpoint, approved=True)
    assert [item.checkpoint_id for item in desk.store().pending()] == [checkpoint.id]

    statuses = []
    go_on: Callable[[], Any] = partial(desk.approve, checkpoint)
    for expected in (ModelError, InstructionsError, ModelError, KeyboardInterrupt):
        desk.options = {"instructions": instructions} if expected is InstructionsError else {}
        with pytest.raises(expected):
            go_on()
        branch, last = desk.store().head(checkpoint.branch_id)
        statuses.append((branch.status, branch.owner, branch.is_held(0.0)))
        go_on = partial(desk.recover, last)
    assert statuses[:3] == [("failed", None, False)] * 3
    assert statuses[3][1:] == (None, False)
    result = go_on()
    assert (result.status, desk.done) == ("completed", ["pay 1 10"])
    unchanged(desk, partial(desk.approve, checkpoint), CheckpointAlreadyResumed)


# One list, and whose it is


def test_what_waits_is_one_stored_list(desk: Shop) -> None:
    """The checkpoint, the list, the count and the run agree, with ids; what a restarted process lists it can answer. field failure 110

    Also field failure 111: nothing of it is derived anywhere else.
    """
    desk.script([], desk.tool("pay", risk="high"), desk.tool("look", requires_approval=False))
    desk.model = ScriptedModel.by_turn([[*pays(1, 2), call("look", {"order": 3})], "end"])
    firsts = [desk.invoke(thread_id=name).checkpoint for name in ("a", "b", "c")]
    fork = desk.fork(firsts[0])

    def agree() -> list[str]:
        store = desk.store()
        listed = store.pending()
        by_head = [
            item.id for branch in store.branches() for item in (store.head(branch.id)[1].pending if branch.head else ())
        ]
        assert sorted(item.approval.id for item in listed) == sorted(by_head)
        assert store.count() == len(listed)
        for item in listed:
            loaded = store.load(item.checkpoint_id)
            assert item.approval in loaded.pending
            assert item.approval.call_id in {each.id for message in loaded.messages for each in message.tool_calls}
            assert (item.run_id, item.thread_id, item.branch_id) == (loaded.run_id, loaded.thread_id, loaded.branch_id)
            for name, value in (("run_id", item.run_id), ("thread_id", item.thread_id), ("risk", "high")):
                assert item in store.pending(**{name: value})
        return [item.approval.id for item in listed]

    assert len(agree()) == 8
    assert len(fork.pending) == 2
    for count in range(7, -1, -1):
        item = desk.store().pending(newest=count % 2 == 0)[0]
        answer = [Approve(), Reject(), Respond(content="x")][count % 3]
        desk.resume(item.checkpoint_id, decisions={item.approval.id: answer})
        assert len(agree()) == count
    assert {branch.status for branch in desk.store().branches()} == {"completed"}


def test_equal_ids_in_two_tenants_are_two_runs(desk: Shop) -> None:
    """The same checkpoint in two tenants: what happens to one does not to the other, wherever it is looked for. field failure 112"""
    desk.script([], desk.tool("pay"))
    desk.model = ScriptedModel.by_turn([*pays(1), "end"])
    checkpoint = desk.driver.invoke(desk.agent(store=desk.store(tenant="a")), "go", thread_id="t", label="l").checkpoint
    b = desk.store(tenant="b")
    b.save(posted(checkpoint))
    assert b.load(checkpoint.id) == checkpoint
    with pytest.raises(CheckpointNotFound):
        desk.store().load(checkpoint.id)

    def asked(tenant: str) -> Any:
        store = desk.store(tenant=tenant)
        return (
            [item.checkpoint_id for item in store.pending(run_id=checkpoint.run_id, thread_id="t")],
            [branch.status for branch in store.branches(run_id=checkpoint.run_id)],
            len(store.list(label="l")),
            len(list(store.audit())),
            store.latest("t") is not None,
        )

    waits = ([checkpoint.id], ["suspended"])
    assert asked("a")[:2] == asked("b")[:2] == waits
    result = desk.driver.resume(desk.agent(store=desk.store(tenant="a")), checkpoint, approved=True)
    assert result.status == "completed"
    assert (asked("a")[:2], asked("a")[3:]) == (([], ["completed"]), (1, True))
    assert (asked("b")[:2], asked("b")[3:]) == (waits, (0, False))
    assert desk.store(tenant="a").delete(checkpoint.run_id) is True
    assert (asked("b")[:2], asked("b")[3:]) == (waits, (0, False))
    assert asked("") == asked("c") == ([], [], 0, 0, False)
    rejected = desk.driver.resume(desk.agent(store=desk.store(tenant="b")), checkpoint, approved=False)
    assert (rejected.messages[2].settlement, desk.done) == ("rejected", ["pay 1 10"])


def test_two_runs_of_one_tenant_are_told_apart(desk: Shop) -> None:
    """By run and by thread, in every list; the filter of one shows nothing of the other. field failure 112"""
    desk.script([], desk.tool("pay"))
    desk.model = ScriptedModel.by_turn([*pays(1), "end"])
    one, two = (desk.invoke(thread_id=name, label=name).checkpoint for name in ("one", "two"))
    desk.approve(one)
    store = desk.store()
    for mine, other, count in ((one, two, 0), (two, one, 1)):
        for scope in ({"run_id": mine.run_id}, {"thread_id": mine.thread_id}, {"label": mine.thread_id}):
            assert {item.run_id for item in store.pending(**scope)} == ({mine.run_id} if count else set())
            assert store.count(**scope) == count
            listed = {info.id for info in store.list(**scope)}
            assert listed and not listed & {info.id for info in store.list(run_id=other.run_id)}
        assert {line.run_id for line in store.audit(run_id=mine.run_id)} == ({mine.run_id} if not count else set())
        assert {each.run_id for each in store.history(mine.id)} == {mine.run_id}
        assert store.pending(run_id=mine.run_id, thread_id=other.thread_id) == []
        assert store.list(run_id=mine.run_id, thread_id=other.thread_id) == []


BY_NUMBER = r"\b(n|(entry|place|after)\.n|f\.n|p\.branch|line\.n|b\.n|o\.n) (=|>|>=|<) "
"""A row that was found by its number: the number was read off a row of the tenant's."""


def scoped(statement: str) -> bool:
    """Whether a statement that reads or changes rows says whose they are."""
    if not re.search(r"phronomy_(branches|log|pending|facets|audit)", statement):
        return True
    if statement.startswith(("CREATE", "ALTER")):
        return True
    if statement.startswith("INSERT"):
        return "tenant" in statement
    return "tenant = " in statement or re.search(r"\(tenant, [a-z_, ]+\) = \(", statement) is not None


def test_every_statement_says_whose_rows_it_means(driver: Driver, tmp_path: Path) -> None:
    """All that a life of runs asks of SQL names the tenant, or a row of theirs by its number. field failure 112"""
    seen: set[str] = set()
    with place_of("sqlite", tmp_path) as place:
        desk = Shop(driver, place)
        desk.script([], desk.tool("pay"), desk.tool("look", requires_approval=False))
        desk.model = ScriptedModel.by_turn([[*pays(1, 2), call("look", {"order": 3})], "end"])
        store: Any = desk.store(tenant="a", ttl=1.0)
        store._file.ready().set_trace_callback(seen.add)
        agent = desk.agent(store=store)
        first = driver.invoke(agent, "go", thread_id="t", label="l").checkpoint
        fork = driver.fork(agent, first)
        for checkpoint in (first, fork):
            result = driver.resume(agent, checkpoint, decisions={item.id: Approve() for item in checkpoint.pending})
        driver.cancel(agent, driver.invoke(agent, "go", thread_id="t").checkpoint)
        driver.call(agent, "recover_all")
        store.pending(run_id="r", thread_id="t", agent="a", tool="x", label="l", risk="r", newest=True, limit=2)
        for kept in ({"label": "l"}, {"labeled": True}, {"run_id": "r"}, {}):
            store.list(**kept)
        for said in ({"run_id": "r"}, {"pending_id": "p"}, {}):
            list(store.audit(**said))
        store.children(first.id)
        store.delete(result.run_id)
        store.clear()
    statements = {text for text in seen if "phronomy_" in text}
    assert len(statements) > 30
    assert not scoped("SELECT * FROM phronomy_branches WHERE run_id = 'r'")
    assert not scoped("DELETE FROM phronomy_pending WHERE pending_id = 'p'")
    loose = [text for text in statements if not scoped(text) and not re.search(BY_NUMBER, text)]
    assert loose == []


# Cancelling, and rounds


def test_a_cancelled_turn_is_kept_and_the_next_message_goes_on_from_it(desk: Shop) -> None:
    """Cancelled while it waits, or left in the middle of a stream: nothing is lost, and there is one line. field failure 116 E18."""
    look = desk.tool("look", requires_approval=False)
    desk.script([], desk.tool("pay"), look)
    desk.model = ScriptedModel.by_turn([say("Let me see.", call("look", {"order": 1}), *pays(2)), "end"])
    first = desk.invoke("one", thread_id="t").checkpoint
    cancelled = desk.cancel(first, reason="never mind")
    assert outline(cancelled)[:3] == [
        "user: one",
        "assistant: Let me see. [look] [pay]",
        "tool (completed): look 1 is done",
    ]
    assert [message.settlement for message in cancelled.messages[2:]] == ["completed", "cancelled"]

    desk.tools = (look,)
    desk.model = ScriptedModel.by_turn([[call("look", {"order": 5})], "end"])
    agent = desk.agent()
    if desk.driver.is_async:

        async def leave() -> None:
            stream = agent.astream("two", thread_id="t")
            async for event in stream:
                if event.type == "tool_call_settled":
                    break
            await stream.aclose()

        asyncio.run(leave())
    else:
        stream = agent.stream("two", thread_id="t")
        for event in stream:
            if event.type == "tool_call_settled":
                break
        stream.close()
    [*_, left] = desk.store().branches(thread_id="t")
    assert left.owner is None
    second = desk.recover(left.id)
    assert (second.status, second.output) == ("completed", "end")
    third = desk.invoke("three", thread_id="t")

    lines = outline(third)
    assert lines[:4] == outline(cancelled)
    assert lines[: len(second.messages)] == outline(second)
    assert desk.done == ["look 1 10", "look 5 10", "look 5 10"]
    branches = desk.store().branches(thread_id="t")
    assert [branch.status for branch in branches] == ["cancelled", "completed", "completed"]
    assert [branch.parent_branch for branch in branches] == [None, branches[0].id, branches[1].id]
    calls = [each.id for message in third.messages for each in message.tool_calls]
    assert sorted(calls) == sorted(message.tool_call_id or "" for message in third.messages if message.role == "tool")


def test_every_round_asks_for_its_own_and_does_what_was_said(desk: Shop) -> None:
    """Five rounds of two, each answered by another process: nothing is empty, and no answer is turned round. field failure 117"""
    desk.script([], desk.tool("pay"))
    desk.model = ScriptedModel.by_turn([*[pays(2 * n, 2 * n + 1) for n in range(5)], "end"])
    result = desk.invoke(thread_id="t")
    ids: list[str] = []
    for n in range(5):
        assert [item.approval.args["order"] for item in desk.store().pending()] == [2 * n, 2 * n + 1]
        first, second = result.checkpoint.pending
        ids += [first.id, second.id]
        yes, no = (first, second) if n % 2 else (second, first)
        result = desk.resume(posted(result.checkpoint), decisions={no.id: Reject(reason=f"no {n}")})
        assert [item.id for item in result.checkpoint.pending] == [yes.id]
        result = desk.resume(result.checkpoint.id, approved=True)
        assert desk.done[n:] == [f"pay {yes.args['order']} 10"]
    assert (result.status, result.output, len(set(ids))) == ("completed", "end", 10)
    settled = [message.settlement for message in result.messages if message.role == "tool"]
    assert settled == [*["rejected", "completed", "completed", "rejected"] * 2, "rejected", "completed"]
    assert [line.kind for line in desk.store().audit(run_id=result.run_id)] == ["reject", "approve"] * 5
