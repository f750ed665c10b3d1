"""One PostgreSQL database, many machines: what is certain is done, what is not is said, and nothing is done twice."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import psycopg_pool
import pytest
from drivers import PATIENCE, until
from postgres_scenes import PASSWORD, Proxy, asking, end_others, everything, handed, opened
from psycopg.rows import dict_row
from servers import Postgres, postgres, postgres_schema, postgres_url
from store_scenes import MINE, asked, begin, bodies, note

import phronomy.stores
from phronomy import Agent, Approve, tool
from phronomy.errors import CheckpointNotFound, LeaseLost, StoreError
from phronomy.stores import (
    Append,
    AuditFilter,
    AuditRow,
    Behind,
    Branch,
    BranchFilter,
    CheckpointFilter,
    Document,
    Entry,
    Occupied,
    PendingFilter,
    PostgresStore,
    open_store,
)
from phronomy.stores.sql import postgres_connections, records, select, statements
from phronomy.stores.sql import schema as schema_of
from phronomy.testing import ScriptedModel, call


@tool(requires_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


@pytest.fixture
def schema() -> Iterator[str]:
    with postgres_schema() as name:
        yield name


@pytest.fixture
def store(schema: str) -> Iterator[PostgresStore]:
    with opened(schema) as store:
        yield store


def outcomes(work: Callable[[int], Any], count: int) -> list[str]:
    """What each of several threads came to that did the same at the same moment: "won", or the name of an error."""
    gate = threading.Barrier(count)

    def one(number: int) -> str:
        gate.wait(PATIENCE)
        try:
            work(number)
        except Exception as error:
            return type(error).__name__
        return "won"

    with ThreadPoolExecutor(count) as threads:
        return sorted(threads.map(one, range(count)))


# Races


def test_of_64_that_append_after_the_same_entry_one_wins(schema: str) -> None:
    with opened(schema, max_size=8) as one, opened(schema, max_size=8) as two:
        begin(one)
        for turn in range(3):
            change = Append(branch_id="b1", seq=1 + turn, take="w", release=True, entries=(note(f"{turn}"),))
            assert outcomes(lambda n, c=change: (one, two)[n % 2].append(c), 64) == ["Behind"] * 63 + ["won"]
        assert bodies(two) == ["0", "1", "2"]


def test_of_64_that_take_an_expired_claim_over_one_wins(schema: str) -> None:
    with opened(schema, max_size=8) as store, opened(schema, clock=lambda: 2000.0, max_size=8) as later:
        begin(store, take="me", lease=5.0)
        found = outcomes(lambda n: later.append(Append(branch_id="b1", seq=1, take=f"w{n}", lease=5.0)), 64)
        assert found == ["Held"] * 63 + ["won"]
        branch = store.lineage(branch_id="b1").branch
        assert (branch.fence, branch.lease_until, branch.seq) == (2, 2005.0, 1)
        with pytest.raises(LeaseLost):
            store.append(Append(branch_id="b1", seq=1, entries=(note("late"),), claim=MINE))


def test_of_several_that_begin_a_run_in_a_thread_one_does(schema: str) -> None:
    with opened(schema) as one, opened(schema) as two:
        for turn in range(5):
            found = outcomes(lambda n, t=turn: begin((one, two)[n % 2], f"{t}-{n}", thread=f"t{t}", exclusive=True), 12)
            assert found == ["Occupied"] * 11 + ["won"]
        assert len(one.branches()) == 5


def test_of_several_that_make_a_branch_of_one_id_one_does(store: PostgresStore) -> None:
    for turn in range(5):
        assert outcomes(lambda n, t=turn: begin(store, f"b{t}"), 8) == ["StoreError"] * 7 + ["won"]


def test_a_fork_and_the_removal_of_what_it_goes_on_from_exclude_each_other(store: PostgresStore) -> None:
    for turn in range(15):
        parent, child = f"p{turn}", f"c{turn}"
        begin(store, parent, status="completed")
        branch = Branch(id=child, run_id=child, thread_id=None, agent="a", parent_branch=parent, parent_seq=1, seq=1)
        change = Append(branch_id=child, seq=1, take="w", release=True, entries=(note("on"),))
        works = [
            lambda p=parent: store.remove({p: 1}, {}),
            lambda b=branch, c=change: store.create(b, c, exclusive=False),
        ]
        found = outcomes(lambda n, w=works, t=turn: w[(n + t) % 2](), 2)
        ids = [branch.id for branch in store.branches()]
        if parent in ids:
            assert found == ["Behind", "won"] and child in ids
            assert [entry.body for entry in store.lineage(branch_id=child).entries] == ["{}", "on"]
        else:
            assert found == ["CheckpointNotFound", "won"] and child not in ids


def test_two_that_remove_each_others_runs_do_not_wait_for_ever(store: PostgresStore) -> None:
    for turn in range(5):
        ids = [f"{turn}-{n}" for n in range(6)]
        for id in ids:
            begin(store, id, status="completed")
        orders = (ids, ids[::-1])
        found = outcomes(lambda n, o=orders: store.remove(dict.fromkeys(o[n % 2], 1), {}), 4)
        assert found == ["Behind"] * 3 + ["won"]
    assert store.branches() == []


def test_threads_do_not_wait_for_each_other_and_a_call_within_a_call_is_refused(schema: str) -> None:
    with opened(schema) as store:
        begin(store)
        begin(store, "b2")
        inside, refused = [], []

        def clock() -> float:
            if not inside:
                inside.append(1)
                with pytest.raises(StoreError) as error:
                    store.branches()
                refused.append(str(error.value))
                with ThreadPoolExecutor(1) as threads:  # another branch, in the middle of this write
                    threads.submit(
                        store.append, Append(branch_id="b2", seq=1, take="w", release=True, entries=(note("other"),))
                    ).result(PATIENCE)
            return 1000.0

        store.clock = clock
        store.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note("this"),)))
        assert "in the middle of another call" in refused[0]
        assert (bodies(store), bodies(store, "b2")) == (["this"], ["other"])


# Setting up


def apart(name: str, *args: str) -> None:
    """Run the function of this name, of this module, in a fresh interpreter with no threads, which may fork."""
    here = Path(__file__).parent
    program = f"import {Path(__file__).stem} as tests; tests.{name}(*{args!r})"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(phronomy.stores.__file__).parents[2]), str(here)])}
    subprocess.run([sys.executable, "-W", "error", "-c", program], env=env, check=True, timeout=PATIENCE)


def forked(work: Callable[[], str]) -> Callable[[], str]:
    """A child that does the work; the answer waits for what it gives."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, work().encode())
        except BaseException as error:
            os.write(write, f"child: {error!r}".encode())
        finally:
            os._exit(0)
    os.close(write)

    def answer() -> str:
        with os.fdopen(read) as pipe:
            text = pipe.read()
        os.waitpid(pid, 0)
        return text

    return answer


def run_setups(url: str, schema: str) -> None:
    gate, release = os.pipe()

    def work(name: str) -> str:
        os.read(gate, 1)
        with opened(schema, url) as store:
            begin(store, name)
        return "made"

    children = [forked(lambda n=n: work(f"w{n}")) for n in range(10)]
    os.write(release, b"x" * 10)
    assert [answer() for answer in children] == ["made"] * 10


def test_ten_processes_can_set_the_store_up_at_once(schema: str) -> None:
    apart("run_setups", postgres_url(), schema)
    with opened(schema, setup=False) as store:
        assert sorted(branch.id for branch in store.branches()) == sorted(f"w{n}" for n in range(10))


def test_the_tables_are_made_when_the_store_is_first_used_unless_that_is_off(schema: str) -> None:
    found = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r'"
    with opened(schema, setup=False) as store:
        with pytest.raises(StoreError, match=r"run `setup\(\)`, or the SQL that `PostgresStore.setup_sql\(\)` gives"):
            store.branches()
        assert asking(found, f'"{schema}"') == [(0,)]
        store.setup()
        store.setup()
        assert asking(found, f'"{schema}"') == [(len(schema_of.TABLES),)]
        assert store.branches() == []


@pytest.mark.parametrize("options", [(), ("-1",)], ids=["by itself", "in a transaction"])
def test_the_sql_of_the_set_up_runs_in_psql_and_again(schema: str, options: tuple[str, ...]) -> None:
    for _ in range(2):
        postgres().psql(PostgresStore.setup_sql(schema), *options)
    with opened(schema, setup=False) as store:
        begin(store)
        postgres().psql(PostgresStore.setup_sql(schema), *options)
        assert len(store.branches()) == 1


def test_the_set_up_can_be_part_of_a_transaction_of_the_programs(schema: str) -> None:
    with opened(schema, setup=False) as store, psycopg.connect(postgres_url()) as connection:
        store.setup(connection)
        connection.rollback()
        with pytest.raises(StoreError, match="are missing"):
            store.branches()
        store.setup(connection)
        connection.commit()
        assert store.branches() == []
        connection.execute("SET TRANSACTION READ ONLY")
        connection.execute(f'SELECT 1 FROM "{schema}".phronomy_log')
        store.setup(connection)  # nothing to do
        connection.execute(f'SELECT 1 FROM "{schema}".phronomy_log')


def test_a_set_up_that_the_server_refuses_is_a_store_error(schema: str) -> None:
    with opened(schema, setup=False) as store, psycopg.connect(postgres_url()) as connection:
        connection.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(StoreError, match=r"the server takes no writes: .* \(25006\)") as refused:
            store.setup(connection)
        assert refused.value.__cause__ is refused.value.__context__ is None


@pytest.mark.parametrize("name", ['a"b', "100%", "q?%s", "it's", "$phronomy$", "Grüße ☃", "drop table x; --"])
def test_a_schema_may_have_any_printable_name(name: str) -> None:
    try:
        with opened(name) as store:
            begin(store, opened=(asked("p"),))
            store.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note("j"),), closed=("p",)))
            assert bodies(store) == ["j"]
            assert store.select_branches(BranchFilter(parents=("b1",))) == []
    finally:
        with psycopg.connect(postgres_url()) as connection:
            connection.execute(psycopg.sql.SQL("DROP SCHEMA {} CASCADE").format(psycopg.sql.Identifier(name)))


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 64, "\ud800", 7])
def test_what_cannot_be_a_schema_is_refused(name: Any) -> None:
    with pytest.raises(StoreError, match="name of a schema"):
        PostgresStore("", schema=name)


def test_without_a_schema_the_search_path_says_where(schema: str) -> None:
    postgres().psql(f'CREATE SCHEMA "{schema}";')
    url = psycopg.conninfo.make_conninfo(postgres_url(), options='-c search_path="' + schema.replace(" ", r"\ ") + '"')
    with PostgresStore(url) as store:
        begin(store)
    with opened(schema, setup=False) as store:
        assert len(store.branches()) == 1


@pytest.mark.parametrize("version", range(1, len(schema_of.MIGRATIONS)))
def test_tables_of_an_earlier_schema_are_brought_up_to_date_with_what_is_in_them(schema: str, version: int) -> None:
    """They are then as new ones are, and what that version could not keep is kept from here on."""
    with postgres_schema() as new, opened(new) as other:
        other.setup()
        sql = statements.Statements(statements.POSTGRES, f'"{schema}".')
        made = [f'CREATE SCHEMA "{schema}"', sql.schema, sql.first_version, *itertools.chain(*sql.migrations[:version])]
        rows = [
            f"""INSERT INTO "{schema}".phronomy_branches (tenant, id, run_id, agent, parent_seq, seq, head, status, fence,
                lease_until, created_at, changed_at) VALUES ('', 'b1', 'b1', 'clerk', 0, 2, 'c1', 'suspended', 1, 0, 1, 1)""",
            f"""INSERT INTO "{schema}".phronomy_log (n, tenant, path, checkpoint_id, body)
                VALUES ({statements.SIZE} + 1, '', '', 'c1', '{{}}'), ({statements.SIZE} + 2, '', '', NULL, 'decided')""",
        ]
        postgres().psql(";".join([*made, f'UPDATE "{schema}".phronomy_schema SET version = {version}', *rows, ""]))
        with opened(schema, setup=False) as store, pytest.raises(StoreError, match="of an earlier release"):
            store.branches()
        with opened(schema) as store:
            branch = store.lineage(branch_id="b1").branch
            assert (branch.status, branch.seq, branch.handed) == ("suspended", 2, 2 if version < 2 else None)
            assert bodies(store) == ["decided"]
            store.append(Append(branch_id="b1", seq=2, take="w", release=True, texts=("{}",)))
            assert store.kept_text(hashlib.sha256(b"{}").hexdigest()) == "{}"
            put = store.put_document(Document(kind="person", key="ann", text="{}", expires_at=1e12))
            assert (store.get_document("person", "ann"), store.select_documents("person")) == (put, [put])
        columns = """SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns
            WHERE table_schema = %s ORDER BY table_name, ordinal_position"""
        indexes = "SELECT indexname, replace(indexdef, %s, '') FROM pg_indexes WHERE schemaname = %s ORDER BY indexname"
        assert asking(columns, schema) == asking(columns, new)
        assert asking(indexes, schema, schema) == asking(indexes, new, new)
        assert asking(f'SELECT version FROM "{schema}".phronomy_schema') == [(len(schema_of.MIGRATIONS),)]


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "UPDATE phronomy_schema SET version = 99",
            f"version 99, and this release reads up to {len(schema_of.MIGRATIONS)}",
        ),
        ("DELETE FROM phronomy_schema", "the version of its tables cannot be read"),
    ],
)
def test_tables_of_another_release_are_refused(schema: str, statement: str, says: str) -> None:
    postgres().psql(PostgresStore.setup_sql(schema) + statement.replace("phronomy", f'"{schema}".phronomy') + ";")
    with opened(schema) as store, pytest.raises(StoreError, match=says):
        store.branches()


# Somebody else's pool


def test_a_pool_is_left_open_and_its_connections_as_they_were(schema: str) -> None:
    with handed(max_size=1, kwargs={"row_factory": dict_row, "prepare_threshold": 0}) as pool:
        with pool.connection() as connection:
            connection.execute("SET lock_timeout = '7s'")
        with opened(schema, pool=pool) as store:
            assert repr(store) == f"PostgresStore(schema={schema!r})"
            begin(store, opened=(asked("p"),))
            with pytest.raises(Behind):
                store.append(Append(branch_id="b1", seq=7, take="w", release=True, entries=(note("j"),)))
            assert (len(store.branches()), store.pending_rows()[0].pending_id) == (1, "p")
        with pytest.raises(StoreError, match="is closed"):
            store.branches()
        with pool.connection() as connection:
            assert connection.autocommit is False
            assert connection.execute("SHOW lock_timeout").fetchone() == {"lock_timeout": "7s"}
            assert connection.execute(
                "SELECT count(*) AS n FROM pg_prepared_statements WHERE statement LIKE '%phronomy%'"
            ).fetchone() == {"n": 1}  # this one


def test_a_decision_takes_few_journeys_to_the_server(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list, the log that it is compared with, what both name, each read once, and a transaction that begins, writes and commits."""
    sent: list[str] = []
    execute = psycopg.Cursor.execute

    def counted(self: Any, query: Any, *given: Any, **options: Any) -> Any:
        sent.append(query.decode() if isinstance(query, bytes) else query)
        return execute(self, query, *given, **options)

    with opened(schema) as store:
        agent = Agent(
            name="desk",
            model=ScriptedModel.by_turn([[call("pay", {}), call("pay", {})], "Done."]),
            tools=[pay],
            store=store,
        )
        items = agent.invoke("Pay").checkpoint.pending
        with opened(schema) as other:
            other.branches()
            monkeypatch.setattr(psycopg.Cursor, "execute", counted)
            for item, most in zip(items, (8, 6), strict=True):  # the second row names its tool
                sent.clear()
                other.decide(item.id, Approve(), by="rita", digest=item.digest)
                assert len(sent) == most, sent
            sent.clear()
            other.decided()
            assert len(sent) == 1
            monkeypatch.undo()
        assert [each.result.status for each in agent.recover_all() if each.result] == ["completed"]


def test_what_transactions_are_by_default_elsewhere_does_not_matter(schema: str) -> None:
    """A transaction that sees the past would see a thread as free that another has taken since."""
    settings = "-c default_transaction_isolation=repeatable\\ read -c default_transaction_read_only=on"
    with handed(min_size=4, max_size=8, kwargs={"options": settings}) as pool, opened(schema) as other:
        other.setup()
        with opened(schema, pool=pool) as store:
            for turn in range(5):
                found = outcomes(lambda n, t=turn: begin(store, f"{t}-{n}", thread=f"t{t}", exclusive=True), 8)
                assert found == ["Occupied"] * 7 + ["won"]


class OneEach(psycopg_pool.ConnectionPool[Any]):
    """Gives each transaction another connection, which remembers nothing of the last: as a pooler in between does."""

    def getconn(self, timeout: float | None = None) -> Any:
        connections = [super(OneEach, self).getconn(timeout) for _ in range(self.max_size)]
        taken = connections.pop(self.turn % self.max_size)
        self.turn += 1
        for connection in connections:
            super().putconn(connection)
        return taken

    def putconn(self, conn: Any) -> None:
        if not conn.closed:
            conn.autocommit = True
            conn.execute("DISCARD ALL", prepare=False)
            conn.autocommit = False
        super().putconn(conn)

    turn = 0


def test_each_transaction_may_have_another_connection(schema: str) -> None:
    with OneEach(postgres_url(), min_size=3, max_size=3, open=True) as pool, opened(schema, pool=pool) as store:
        pool.wait()
        begin(store, take="me", thread="t", exclusive=True)
        for seq in range(1, 12):
            store.append(Append(branch_id="b1", seq=seq, entries=(note(str(seq)),), claim=MINE))
            store.renew(MINE)
        with pytest.raises(Occupied):
            begin(store, "b2", thread="t", exclusive=True)
        store.release(MINE)
        assert bodies(store) == [str(seq) for seq in range(1, 12)]
        assert pool.turn > 25
        here = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"  # others test beside this
        assert asking(f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND {here}") == [(0,)]


def test_a_pool_that_is_too_small_or_closed_is_said_so(schema: str) -> None:
    with opened(schema) as store:
        store.setup()
    with handed(max_size=1) as pool, opened(schema, pool=pool, timeout=0.05) as store:
        with pool.connection(), pytest.raises(StoreError, match=r"no connection could be had in 0\.05 seconds"):
            store.branches()
        store.branches()
        with pool.connection(), pytest.raises(StoreError, match=r"no connection could be had in 0\.05 seconds"):
            store.branches()
        pool.close()
        with pytest.raises(StoreError, match="the pool of connections is closed"):
            store.branches()


@pytest.mark.parametrize("options", [{}, {"pool": 1, "conninfo": ""}, {"conninfo": "", "min_size": 3, "max_size": 2}])
def test_a_store_needs_one_way_to_its_server(options: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match=r"one of the two|max_size"):
        PostgresStore(**options)
    with pytest.raises(StoreError, match="timeout"):
        PostgresStore("", timeout=0)
    with pytest.raises(StoreError, match="not async"):
        PostgresStore(pool=object())  # type: ignore[arg-type]


# Servers that go away


@pytest.mark.parametrize("own", [True, False], ids=["its own pool", "somebody else's"])
def test_the_store_goes_on_when_its_server_was_killed_and_started_again(
    own_postgres: Postgres, schema: str, own: bool
) -> None:
    with handed(min_size=4) as pool, opened(schema, **({"min_size": 4} if own else {"pool": pool})) as store:
        begin(store, take="me")
        assert outcomes(lambda n: store.branches(), 4) == ["won"] * 4  # all connections have been used
        for turn in range(2):
            own_postgres.kill()
            own_postgres.start()
            store.append(Append(branch_id="b1", seq=1 + turn, entries=(note(f"{turn}"),), claim=MINE))
            assert bodies(store) == ["0", "1"][: turn + 1]
        own_postgres.kill()
        own_postgres.start()
        assert bodies(store) == ["0", "1"]


def test_a_server_that_is_down_is_a_store_error_and_comes_back(own_postgres: Postgres, schema: str) -> None:
    with opened(schema) as store:
        begin(store)
    with handed() as pool, opened(schema, pool=pool, timeout=0.3) as store:
        own_postgres.kill()
        try:
            for work in (
                store.branches,
                lambda: store.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note("j"),))),
            ):
                with pytest.raises(StoreError, match=f"PostgreSQL at {postgres().data}:5432: "):
                    work()
            with opened(schema, timeout=0.3) as fresh, pytest.raises(StoreError, match="no connection"):
                fresh.branches()
        finally:
            own_postgres.start()
    with opened(schema) as store:
        store.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note("j"),)))
        assert bodies(store) == ["j"]


def test_connections_that_the_server_ended_are_replaced(schema: str) -> None:
    with opened(schema, min_size=3) as store:
        begin(store)
        outcomes(lambda n: store.branches(), 3)
        for seq in range(1, 4):
            end_others("backend_type = 'client backend'")
            store.append(Append(branch_id="b1", seq=seq, take="w", release=True, entries=(note(str(seq)),)))
        assert bodies(store) == ["1", "2", "3"]


def test_a_connection_that_ends_in_the_middle_of_a_write_is_replaced_and_the_write_done_once(schema: str) -> None:
    with opened(schema) as store:
        begin(store)
        ends = [True]

        def clock() -> float:
            if ends and ends.pop():
                end_others("state = 'idle in transaction'")
            return 1000.0

        store.clock = clock
        store.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note("j"),)))
        assert (bodies(store), ends) == (["j"], [])

        def always() -> float:
            end_others("state = 'idle in transaction'")
            return 1000.0

        store.clock = always
        with pytest.raises(StoreError, match="lost twice, nothing was written"):
            store.append(Append(branch_id="b1", seq=2, take="w", release=True, entries=(note("k"),)))
        assert bodies(store) == ["j"]


def test_whoever_waited_while_another_made_the_tables_finds_them(schema: str) -> None:
    """A session remembers that there was no such table, and hears of new ones only when it takes a lock on a table."""
    with psycopg.connect(postgres_url()) as first, psycopg.connect(postgres_url(), autocommit=True) as second:
        first.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        first.commit()
        for each in (first, second):
            each.execute(f'SET search_path TO "{schema}"')
        assert second.execute("SELECT to_regclass('phronomy_schema')").fetchone() == (None,)
        first.execute(PostgresStore.setup_sql())
        with ThreadPoolExecutor(1) as pool, psycopg.connect(postgres_url(), autocommit=True) as looker:
            waits = pool.submit(second.execute, PostgresStore.setup_sql())
            blocked = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
            until(lambda: looker.execute(blocked, (second.info.backend_pid,)).fetchone())
            first.commit()
            waits.result(PATIENCE)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


WRITES: dict[str, Callable[[PostgresStore], Any]] = {
    "append": lambda store: store.append(
        Append(
            branch_id="b1",
            seq=1,
            take="w",
            release=True,
            entries=(note("j"),),
            audit=(AuditRow(at=1.0, run_id="b1", thread_id=None, pending_id=None, body="a"),),
        )
    ),
    "take": lambda store: store.append(Append(branch_id="b1", seq=1, entries=(note("j"),), take="me")),
    "create": lambda store: begin(store, "b2"),
    "renew": lambda store: store.renew(MINE),
    "release": lambda store: store.release(MINE, "failed"),
    "announced": lambda store: store.announced("b1", 1),
    "remove": lambda store: store.remove({"b0": 1}, {}),
    "put": lambda store: store.put_document(replace(ANN, text="two")),
    "change": lambda store: store.put_document(replace(found(store, "bob"), text="two")),
    "delete": lambda store: store.delete_document("person", "bob"),
    "delete this": lambda store: store.delete_document("person", "bob", version=found(store, "bob").version),
}

ANN = Document(kind="person", key="ann", text="one")
BOB = replace(ANN, key="bob")


def found(store: PostgresStore, key: str) -> Document:
    document = store.get_document("person", key)
    assert document is not None
    return document


def ensure_done_once(proxy: Proxy, cuts: str, name: str) -> None:
    """The store holds the same, whether the connection is cut off at the commit of this write or not."""
    states = []
    for cut in (None, cuts):
        with postgres_schema() as schema, opened(schema, proxy.url()) as store:
            begin(store, "b0", status="completed")
            begin(store, **({"take": "me"} if name in ("renew", "release") else {}), announce=True)
            store.put_document(BOB)
            proxy.cuts = cut
            WRITES[name](store)
            states.append(everything(store))
    assert proxy.cut == 1 and proxy.cuts is None
    assert states[0] == states[1]


@pytest.mark.parametrize("cuts", ["before", "after"])
@pytest.mark.parametrize("name", WRITES)
def test_a_commit_whose_answer_is_lost_is_done_once(proxy: Proxy, cuts: str, name: str) -> None:
    """R18."""
    ensure_done_once(proxy, cuts, name)


@pytest.mark.parametrize("name", sorted({*WRITES} - {"renew", "release", "announced"}))
def test_a_commit_that_is_taken_for_another_with_its_number_is_made_all_the_same(
    proxy: Proxy, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that crashed may give the number of a transaction that it has lost to the next one, and say that it was committed."""
    monkeypatch.setattr(postgres_connections, "BECAME", "SELECT 'committed' WHERE %s <> ''")
    ensure_done_once(proxy, "before", name)


def test_of_two_who_decide_the_one_whose_commit_was_lost_hears_of_the_other(
    schema: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(schema) as other, opened(schema, proxy.url()) as store:
        begin(other)

        def meanwhile(*_: object) -> bool:
            other.append(Append(branch_id="b1", seq=1, entries=(note("other"),), take="w", release=True))
            return True

        monkeypatch.setattr(store._server, "_was_committed", meanwhile)
        store.branches()
        proxy.cuts = "before"
        with pytest.raises(Behind):
            WRITES["append"](store)
        assert bodies(other) == ["other"]


def test_a_commit_that_got_lost_on_the_way_is_made_again_once_the_server_has_given_up(
    schema: str, proxy: Proxy
) -> None:
    """The network is cut, and the server does not notice: it keeps the branch locked for half as long as others wait for it."""
    with opened(schema, timeout=4.0) as other, opened(schema, proxy.url(), timeout=4.0) as store:
        begin(other)
        store.branches()
        proxy.cuts = "unseen"
        WRITES["append"](store)
        assert (proxy.cut, bodies(other)) == (1, ["j"])


def test_a_commit_of_which_nobody_can_say_whether_it_was_done_is_not_done_again(schema: str, proxy: Proxy) -> None:
    with (
        opened(schema) as direct,
        handed(conninfo=proxy.url(), max_size=1) as pool,
        opened(schema, pool=pool, timeout=0.5) as store,
    ):
        begin(direct)
        store.branches()
        proxy.cuts, proxy.refuses = "after", True
        with pytest.raises(StoreError, match="does not say whether it was done: load the run") as unknown:
            WRITES["append"](store)
        assert f"127.0.0.1:{proxy.port}: " in str(unknown.value)
        assert bodies(direct) == ["j"]


# Errors, and what they do not say


def test_no_message_and_no_repr_holds_a_password_or_a_value(schema: str, caplog: pytest.LogCaptureFixture) -> None:
    place = f"host={postgres().data} user=nobody{PASSWORD} password={PASSWORD}"
    store = PostgresStore(place, timeout=1.0)
    assert PASSWORD not in repr(store) + str(vars(store))
    said = []
    with pytest.raises(StoreError) as refused:
        store.branches()
    said.append(refused)
    for wrong in (f"host=x passw={PASSWORD}", f"postgresql://u:{PASSWORD}@[h/db", f"password={PASSWORD}\0"):
        with pytest.raises(StoreError) as refused:
            PostgresStore(wrong)
        said.append(refused)
    with opened(schema) as store:
        begin(store, thread="t", opened=(asked("p"),))
        bad: list[Callable[[], Any]] = [
            lambda: begin(store, "b2", status={PASSWORD: 1}),
            lambda: store.append(
                Append(branch_id="b1", seq=1, take="me", entries=(Entry(path="", body=PASSWORD, checkpoint_id="b1-0"),))
            ),
            lambda: store.append(Append(branch_id="b1", seq=1, take="me", opened=(asked("p", body=PASSWORD),))),
            lambda: store.append(Append(branch_id="b1", seq=1, take="me", opened=(asked(PASSWORD, requested_at="x"),))),
            lambda: store.select_branches(BranchFilter(run_id={PASSWORD: 1})),  # type: ignore[arg-type]
            lambda: store.announced(PASSWORD + "\0", 1),
        ]
        for work in bad:
            with pytest.raises(StoreError) as refused:
                work()
            said.append(refused)
        assert (bodies(store), len(store.branches())) == ([], 1)
    assert f"PostgreSQL at {postgres().data}:5432: no connection" in str(said[0].value)
    for refused in said:
        error: BaseException | None = refused.value
        while error is not None:
            assert PASSWORD not in str(error), error
            assert str(postgres().data) not in str(error) or refused is said[0], error
            assert not isinstance(error, psycopg.Error)
            error = error.__cause__ or error.__context__
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize(("text", "says"), [("a\0b", "a NUL character"), ("a\ud800b", "a lone surrogate")])
def test_text_that_the_server_cannot_keep_is_refused_and_finds_nothing(
    store: PostgresStore, text: str, says: str
) -> None:
    begin(store)
    before = everything(store)
    writes = [
        lambda: begin(store, "b2", thread=text),
        lambda: begin(store, "b2", thread=text, exclusive=True),
        lambda: begin(store, text),
        lambda: store.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note(text),))),
        lambda: store.append(Append(branch_id="b1", seq=1, take="me", opened=(asked("p", label=text),))),
    ]
    for write in writes:
        with pytest.raises(StoreError, match=says):
            write()
        assert everything(store) == before
    assert store.branches(thread_id=text) == store.branches(run_id=text) == []
    assert store.pending_rows(run_id=text) == [] and store.count(label=text) == 0
    assert store.select_branches(BranchFilter(parents=(text,))) == []
    with pytest.raises(CheckpointNotFound):
        store.lineage(branch_id=text)


def test_what_is_canonical_json_of_ours_can_be_kept_whatever_it_holds(store: PostgresStore) -> None:
    body = phronomy.stores.AuditRecord.__name__ + '{"a":"\\u0000\\ud800","b":5.0,"c":1e400}\n\t☃🂡'
    begin(store, audit=(AuditRow(at=0.1 + 0.2, run_id="b1", thread_id=None, pending_id=None, body=body),))
    store.append(
        Append(
            branch_id="b1", seq=1, take="me", opened=(asked("p", requested_at=1795272323.611193, expires_at=5e-324),)
        )
    )
    assert store.select_audit(AuditFilter())[0].body == body
    assert store.select_audit(AuditFilter())[0].at == 0.1 + 0.2
    row = store.pending_rows()[0]
    assert (row.requested_at, row.expires_at) == (1795272323.611193, 5e-324)


def test_ids_are_compared_by_their_bytes(store: PostgresStore) -> None:
    for id in ("a", "A", "ä", "a\u0308", "B", "a "):
        begin(store, id)
    assert len(store.branches()) == 6
    assert asking(
        "SELECT count(*) FROM information_schema.columns WHERE table_name LIKE 'phronomy%%' AND data_type = 'text'"
        " AND column_name <> 'body' AND collation_name IS DISTINCT FROM 'C'"
    ) == [(0,)]


def test_a_row_that_is_damaged_is_a_store_error(store: PostgresStore, schema: str) -> None:
    begin(store)
    with pytest.raises(StoreError, match="a row in it is not of this schema"):
        store._made(records.lineage_of, store._read("SELECT 0, 'x' UNION ALL SELECT 1, 'y'", ()))
    postgres().psql(f'DROP TABLE "{schema}".phronomy_log;')
    with pytest.raises(StoreError, match=r"a table of the store is missing: run `setup\(\)`"):
        bodies(store)


def test_a_row_that_others_keep_locked_is_a_store_error(schema: str) -> None:
    with opened(schema) as store:
        begin(store)
    with (
        handed(max_size=1) as pool,
        opened(schema, pool=pool, timeout=0.2) as store,
        psycopg.connect(postgres_url()) as other,
    ):
        other.execute(f'SELECT 1 FROM "{schema}".phronomy_branches FOR UPDATE')
        with pytest.raises(StoreError, match="another transaction kept a row locked"):
            store.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note("j"),)))
        other.rollback()
        store.append(Append(branch_id="b1", seq=1, take="w", release=True, entries=(note("j"),)))
        assert bodies(store) == ["j"]


# Processes, programs and URLs


def run_forks(url: str, schema: str) -> None:
    with opened(schema, url, max_size=1) as store, psycopg_pool.ConnectionPool(url, min_size=1, open=True) as pool:
        begin(store)
        other = opened(schema, pool=pool)
        other.branches()
        backend = "SELECT pg_backend_pid()"
        mine = {store._server.read(backend, ())[0][0] for _ in range(4)}

        def work() -> str:
            for seq in range(1, 6):
                store.append(Append(branch_id="b1", seq=seq, take="w", release=True, entries=(note(str(seq)),)))
            theirs = {store._server.read(backend, ())[0][0] for _ in range(4)}
            try:
                other.branches()
            except StoreError as error:
                refused = str(error)
            store.close()
            return f"{len(mine & theirs)} {'give a new store a new pool' in refused}"

        children = [forked(work)]
        assert children[0]() == "0 True"
        assert bodies(store) == ["1", "2", "3", "4", "5"]
        assert {store._server.read(backend, ())[0][0] for _ in range(4)} <= mine
        assert other.branches() == store.branches()


def test_a_forked_child_leaves_the_connections_of_its_parent_alone(schema: str) -> None:
    apart("run_forks", postgres_url(), schema)


def test_a_process_that_was_forked_unseen_is_told_so(store: PostgresStore) -> None:
    store.branches()
    store._server._pid += 1
    with pytest.raises(StoreError, match=r"forked by other means than os\.fork"):
        store.branches()
    store._server._pid -= 1


def test_a_url_opens_the_store_and_what_libpq_knows_stays_in_it(schema: str) -> None:
    place = f"{postgres_url()}&application_name=desk&schema={schema.replace(' ', '%20')}&lease=7&ttl=60&tenant=acme&max_size=2"
    for url in (place, place.replace("postgresql://", "postgres://", 1)):
        with open_store(url) as store:
            assert isinstance(store, PostgresStore)
            assert (store.lease, store.ttl, store.tenant) == (7.0, 60.0, "acme")
            assert store._server.read("SHOW application_name", ()) == [("desk",)]
            assert repr(store) == f"PostgresStore(schema={schema!r}, tenant='acme')"
    for wrong in ("postgresql://h/d?max_size=x", "postgresql://h/d?setup=1", "postgresql://h/d?passw=hunter2"):
        with pytest.raises(StoreError) as refused:
            open_store(wrong)
        assert PASSWORD not in str(refused.value)


def test_the_driver_is_loaded_for_this_store_alone_and_its_absence_says_what_to_install() -> None:
    program = (
        "import sys, phronomy, phronomy.stores\n"
        "assert not [name for name in sys.modules if name.startswith('psycopg')]\n"
        "sys.modules['psycopg'] = None\n"
        "from phronomy import PostgresStore\n"
        "from phronomy.stores import *\n"
        "try:\n    phronomy.stores.open_store('postgresql://u:hunter2@h/d')\n"
        "except phronomy.StoreError as error:\n    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert "pip install 'phronomy[postgres]'" in said
    assert PASSWORD not in said


def test_a_closed_store_says_so_and_closes_all_tenants(store: PostgresStore) -> None:
    other = store.for_tenant("acme")
    begin(store)
    begin(other)
    assert (len(store.branches()), len(other.branches())) == (1, 1)
    other.close()
    other.close()
    for closed in (store, other):
        with pytest.raises(StoreError, match="is closed"):
            closed.branches()
        with pytest.raises(StoreError, match="is closed"):
            closed.setup()


# Statements


def test_a_load_is_one_statement_and_an_append_few(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(store, take="me")
    seen: list[str] = []
    execute = psycopg.Cursor.execute

    def noted(self: Any, query: bytes, *args: Any, **options: Any) -> Any:
        seen.append((query if isinstance(query, str) else query.decode()).split()[0])
        return execute(self, query, *args, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    store.lineage(checkpoint_id="b1-0")
    store.lineage(branch_id="b1")
    assert seen == ["WITH", "WITH"]
    seen.clear()
    store.append(Append(branch_id="b1", seq=1, entries=(note("a"), note("b"), note("c")), claim=MINE))
    assert seen == ["BEGIN", "UPDATE", "INSERT", "COMMIT"]
    seen.clear()
    store.append(Append(branch_id="b1", seq=4, entries=(note("d"),), claim=MINE, texts=("{}", "[]")))
    assert seen == ["BEGIN", "UPDATE", "INSERT", "INSERT", "COMMIT"]


def test_of_two_who_add_the_same_texts_one_waits_for_the_other_and_not_both(store: PostgresStore, schema: str) -> None:
    """Whatever order a change has them in, they are added in that of their digests."""
    begin(store, take="me")
    texts = sorted((hashlib.sha256(text.encode()).hexdigest(), text) for text in ("{}", "[]"))
    add = f"""INSERT INTO "{schema}".phronomy_texts (tenant, digest, body) VALUES ('', %s, %s)"""
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND strpos(query, %s) > 0"
    with psycopg.connect(postgres_url()) as other, ThreadPoolExecutor(1) as pool:
        other.execute(add.encode(), texts[0])
        change = Append(branch_id="b1", seq=1, claim=MINE, texts=(texts[1][1], texts[0][1]))
        appended = pool.submit(store.append, change)
        until(lambda: asking(waits, f'"{schema}".phronomy_texts'))
        other.execute(add.encode(), texts[1])
        other.commit()
        assert appended.result(PATIENCE).seq == 1
    assert [store.kept_text(digest) for digest, _ in texts] == [text for _, text in texts]


MANY = 4000
FILL = f"""
INSERT INTO <branches> (tenant, id, run_id, thread_id, agent, parent_branch, parent_seq, seq, status, fence, lease_until,
    created_at, changed_at, announced)
SELECT '', 'b' || i, 'r' || i, 't' || i % 500, 'a' || i % 4, 'b' || i - 1, 1, 2,
    CASE i % 100 WHEN 0 THEN 'running' WHEN 1 THEN 'completed' ELSE 'suspended' END, 1, 0, i, i, CASE i % 100 WHEN 2 THEN 1 END
FROM generate_series(1, {MANY}) i;
INSERT INTO <log> (n, tenant, path, checkpoint_id, label, parent_id, body)
SELECT n * {statements.SIZE} + 1, '', '', 'c' || n, CASE n % 100 WHEN 3 THEN 'l' || n % 7 END, 'c' || n - 1, '{{}}' FROM <branches>;
INSERT INTO <log> (n, tenant, path, body) SELECT n * {statements.SIZE} + 2, '', '', '{{}}' FROM <branches>;
INSERT INTO <pending> (tenant, branch, pending_id, agent, tool_name, label, risk, requested_at, expires_at, body)
SELECT '', n, 'p' || n, agent, 'x' || n % 9, 'l' || n % 50, 'high', n, CASE n % 100 WHEN 0 THEN n END, '{{}}' FROM <branches>;
INSERT INTO <facets> (tenant, facet, value, requested_at, n)
SELECT p.tenant, f.facet, f.value, p.requested_at, p.n FROM <pending> p JOIN <branches> b ON b.n = p.branch,
LATERAL (VALUES ('run', b.run_id), ('thread', b.thread_id), ('label', p.label), ('tool', p.tool_name), ('risk', p.risk),
    ('agent', p.agent), ('', '')) f (facet, value);
INSERT INTO <audit> (tenant, at, run_id, thread_id, pending_id, body)
SELECT '', n, run_id, thread_id, 'p' || n, '{{}}' FROM <branches>;
INSERT INTO <texts> (tenant, digest, body) SELECT '', 'd' || n, '{{}}' FROM <branches>;
INSERT INTO <documents> (tenant, kind, key, version, expires_at, body)
    SELECT '', 'k' || n % 3, 'k' || n, 'v', CASE WHEN n % 2 = 0 THEN n END, '{{}}' FROM <branches>;
"""
LOOKED_FOR: list[tuple[Any, str]] = [
    (PendingFilter(limit=20), "phronomy_facets_pkey"),
    (PendingFilter(newest=True, since=1.0, after=(1.5, 3), limit=20), "phronomy_facets_pkey"),
    (PendingFilter(pending_id="p7"), "phronomy_pending_id"),
    (PendingFilter(expired_at=500.0), "phronomy_pending_expiry"),
    *[
        (PendingFilter(facets={name: value}, limit=20), "phronomy_facets_pkey")
        for name, value in {
            "run": "r7",
            "thread": "t7",
            "label": "l7",
            "tool": "x7",
            "risk": "high",
            "agent": "a1",
        }.items()
    ],
    (PendingFilter(facets={"tool": "x3", "agent": "a1"}, limit=20), "phronomy_facets_pkey"),
    (BranchFilter(run_id="r7"), "phronomy_branches_run"),
    (
        BranchFilter(newest=True, limit=10),
        "phronomy_branches_pkey",
    ),  # of a tenant with half of the rows; of another, by its own
    (BranchFilter(newest=True, after="b7", limit=10), "phronomy_branches_"),
    (BranchFilter(thread_id="t7"), "phronomy_branches_thread"),
    (BranchFilter(parents=("b7", "b8")), "phronomy_branches_parent"),
    (BranchFilter(abandoned_at=5.0), "phronomy_branches_running"),
    (BranchFilter(ended_before=50.0), "phronomy_branches_ended"),
    (BranchFilter(unannounced=True), "phronomy_branches_unannounced"),
    (CheckpointFilter(run_id="r7"), "phronomy_branches_run"),
    (CheckpointFilter(thread_id="t7", limit=3), "phronomy_branches_thread"),
    (CheckpointFilter(label="l3"), "phronomy_log_label"),
    (CheckpointFilter(labeled=True), "phronomy_log_label"),
    (CheckpointFilter(after=9 * statements.SIZE, limit=3), "phronomy_log_pkey"),
    (AuditFilter(run_id="r7"), "phronomy_audit_run"),
    (AuditFilter(pending_id="p7"), "phronomy_audit_pending"),
    (AuditFilter(after=5, limit=50), "phronomy_audit_pkey"),
]
SELECTS: dict[type, Any] = {
    PendingFilter: select.pending,
    BranchFilter: select.branches,
    CheckpointFilter: select.checkpoints,
    AuditFilter: select.audit,
}


def test_what_is_looked_for_is_found_by_an_index_among_thousands(store: PostgresStore, schema: str) -> None:
    store.setup()
    sql = store._statements
    fill = FILL
    for table in schema_of.TABLES:
        fill = fill.replace(f"<{table}>", f'"{schema}".phronomy_{table}')
    postgres().psql(fill + "ANALYZE;")

    def plan(statement: str, values: Any) -> str:
        return "\n".join(row[0] for row in store._server.read(f"EXPLAIN {statement}", values))

    for wanted, index in LOOKED_FOR:
        steps = plan(*SELECTS[type(wanted)](sql, "", wanted))
        assert index in steps and "Seq Scan" not in steps, (wanted, steps)
        if isinstance(wanted, PendingFilter):
            counted = plan(*select.pending_count(sql, "", wanted))
            assert "Seq Scan on phronomy_pending" not in counted, (wanted, counted)
    for statement, values in (
        (sql.branch_lineage, ("", "b7", "", "", "b7")),
        (sql.checkpoint_lineage, ("", "c7", "", "", "c7")),
        (sql.children, ("", "c7", "", "c7")),
        (sql.kept_text, ("", "d7")),
        (sql.document, ("", "k1", "k7", 5.0)),
        (sql.documents, ("", "k1", "k7", 5.0, 20)),
        (sql.change_document, ("w", None, "{}", "", "k1", "k7", 5.0, "v")),
        (sql.drop_version, ("", "k1", "k7", 5.0, "v")),
        (sql.drop_document, ("", "k1", "k7", 5.0)),
        (sql.expire_documents, ("", 5.0)),
        (sql.pending_of_branch, ("", "r7", 7)),
        (sql.drop_pending, ("", "p7", 7)),
        (sql.drop_facets.of(2), ("", "run", "r7", 7.0, 7, "", "agent", "a3", 7.0, 7)),
        (sql.drop_entries, (statements.SIZE, 2 * statements.SIZE)),
    ):
        steps = plan(statement, values)
        assert "Seq Scan" not in steps, (statement, steps)


def test_a_lock_is_known_by_a_number_of_64_bits() -> None:
    numbers = {
        postgres_connections.lock_number("thread", tenant, name)
        for tenant in ("", "a", "b")
        for name in ("a", "b", "\ud800", "")
    }
    assert len(numbers) == 12
    assert all(-(2**63) <= number < 2**63 for number in numbers)
