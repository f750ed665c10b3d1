"""Tenants kept apart by the database itself, as the page on stores shows it, on a real server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from drivers import DRIVERS, Driver
from servers import postgres, postgres_url
from tables import each

from phronomy import Agent, Announcements, Approve, PostgresStore, StoreError, tool
from phronomy.stores import Append, Document
from phronomy.stores.sql import schema as schema_of
from phronomy.stores.sql import statements
from phronomy.testing import ScriptedModel, call

pytestmark = pytest.mark.unmeasured

PAGE = Path(__file__).parent.parent / "docs" / "stores.md"
FOUND = re.search(r"```text\n(DO \$\$\n.*?)```\n.*?```text\n(CREATE ROLE acme.*?)```", PAGE.read_text(), re.DOTALL)


class Database:
    """The tables in a schema, of an owner that is no superuser, and two tenants. Roles are the whole server's: these have names of
    this process."""

    def __init__(self) -> None:
        assert FOUND is not None
        self.rules, self.one_more = FOUND.groups()
        self.mark = postgres().database.rpartition(" ")[2]
        self.owner, self.acme, self.globex = (self.role(name) for name in ("owner", "acme", "globex"))
        self.all_of_them = self.role("agents_tenants")
        self.stores: list[PostgresStore] = []

    def role(self, name: str) -> str:
        return f"{name}_{self.mark}"

    def begin(self) -> None:
        grant = f'GRANT CREATE ON DATABASE "{postgres().database}" TO {self.owner}'
        postgres().psql(f"CREATE ROLE {self.owner} LOGIN CREATEROLE; {grant}")
        self.sql(self.owner, PostgresStore.setup_sql("agents"))
        self.rule()
        for role in (self.acme, self.globex):
            self.sql(self.owner, self.one_more.replace("acme", role).replace("agents_tenants", self.all_of_them))

    def rule(self) -> None:
        """Run the page's rules, as the owner of the tables."""
        self.sql(self.owner, self.rules.replace("agents_tenants", self.all_of_them))

    def end(self) -> None:
        for store in self.stores:
            store.close()
        roles = (self.acme, self.globex, self.all_of_them, self.owner)
        postgres().psql("".join(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role};" for role in roles))

    def url(self, role: str) -> str:
        return postgres_url().replace("postgres@", f"{role}@")

    def sql(self, role: str, text: str) -> list[tuple[Any, ...]]:
        """What the server answers to this role."""
        with psycopg.connect(self.url(role), autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def number(self, table: str, tenant: str) -> int:
        """The number of a row of this tenant's."""
        [(found,)] = self.sql(self.owner, f"SELECT max(n) FROM agents.phronomy_{table} WHERE tenant = '{tenant}'")
        return int(found)

    def keep_a_text(self, role: str) -> None:
        """Have the store of this tenant keep a text, with a change that leaves its run as it was."""
        store = self.store(role)
        branch = store.branches()[0]
        store.append(Append(branch_id=branch.id, seq=branch.seq, take="texts", release=True, texts=(role,)))
        assert store.kept_text(hashlib.sha256(role.encode()).hexdigest()) == role

    def keep_a_document(self, role: str) -> None:
        """Have the store of this tenant write a document, change it, delete another and what is over."""
        store = self.store(role)
        for key in ("ann", "bob"):
            store.delete_document("person", key)
            store.put_document(Document(kind="person", key=key, text="{}"))
        found = store.get_document("person", "ann")
        assert found is not None
        store.put_document(replace(found, text=role))
        store.delete_document("person", "bob")
        store.expire_documents()
        assert [each.text for each in store.select_documents("person")] == [role]

    def store(self, role: str, tenant: str | None = None, **options: Any) -> PostgresStore:
        given = {"schema": "agents", "setup": False, "tenant": role if tenant is None else tenant, "min_size": 0}
        self.stores.append(PostgresStore(self.url(role), **{**given, **options}))
        return self.stores[-1]


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    found = Database()
    try:
        found.begin()
        for role in (found.acme, found.globex):
            agent = desk(DRIVERS[0], found.store(role))
            for thread in ("a", "b"):
                agent.invoke("go", thread_id=thread)
            found.keep_a_text(role)
            found.keep_a_document(role)
            agent.decide(found.store(role).pending()[0].approval.id, Approve())
        yield found
    finally:
        found.end()


def desk(driver: Driver, store: PostgresStore, **options: Any) -> Agent[Any, str]:
    def refund(order_id: int) -> str:
        """Refund an order."""
        return "on its way"

    gated = tool(requires_approval=True)(driver.function(refund))
    model = ScriptedModel.by_turn([[call("refund", {"order_id": number}) for number in (1, 2)], "Done."])
    return Agent(name="desk", model=model, tools=[gated], store=store, **options)


def everything(database: Database, *, but: Sequence[str] = ()) -> list[Any]:
    """All rows of all tables, but for those that are not there."""
    return [
        database.sql(database.owner, f"SELECT t::text FROM agents.phronomy_{name} t ORDER BY 1")
        for name in schema_of.TABLES
        if name not in but
    ]


FORBIDDEN = {
    "the version is changed": "UPDATE agents.phronomy_schema SET version = 99",
    "the version is deleted": "DELETE FROM agents.phronomy_schema",
    "a version is added": "INSERT INTO agents.phronomy_schema VALUES (1)",
    "a table is emptied": "TRUNCATE agents.phronomy_schema",
    "a table is dropped": "DROP TABLE agents.phronomy_audit",
    "a table is altered": "ALTER TABLE agents.phronomy_audit DROP COLUMN body",
    "a table is made": "CREATE TABLE agents.more (n integer)",
    "the audit is changed": "UPDATE agents.phronomy_audit SET body = '{{}}'",
    "the audit is deleted": "DELETE FROM agents.phronomy_audit",
    "the audit is deleted, where it holds nothing": "DELETE FROM agents.phronomy_audit WHERE false",
    "the audit is emptied": "TRUNCATE agents.phronomy_audit",
    "the log is changed": "UPDATE agents.phronomy_log SET body = '{{}}'",
    "the log is deleted": "DELETE FROM agents.phronomy_log",
    "a run is deleted": "DELETE FROM agents.phronomy_branches",
    "a kept text is changed": "UPDATE agents.phronomy_texts SET body = 'x'",
    "a kept text is replaced": """INSERT INTO agents.phronomy_texts (tenant, digest, body)
        SELECT tenant, digest, 'x' FROM agents.phronomy_texts ON CONFLICT (tenant, digest) DO UPDATE SET body = 'x'""",
    "a kept text is deleted": "DELETE FROM agents.phronomy_texts",
    "a text among another's": """INSERT INTO agents.phronomy_texts (tenant, digest, body)
        VALUES ('{globex}', 'x', 'x')""",
    "a document is given away": "UPDATE agents.phronomy_documents SET tenant = '{globex}'",
    "a document gets another key": "UPDATE agents.phronomy_documents SET key = 'x'",
    "a document among another's": """INSERT INTO agents.phronomy_documents (tenant, kind, key, version, body)
        VALUES ('{globex}', 'person', 'x', 'x', 'x')""",
    "a request is changed": "UPDATE agents.phronomy_pending SET tool_name = 'x'",
    "a run is given away": "UPDATE agents.phronomy_branches SET tenant = '{globex}'",
    "a run gets another number": "UPDATE agents.phronomy_branches SET n = DEFAULT",
    "a line of another's audit": """INSERT INTO agents.phronomy_audit (tenant, at, run_id, body)
        VALUES ('{globex}', 0, 'x', 'x')""",
    "another's run": """INSERT INTO agents.phronomy_branches
        (tenant, id, run_id, agent, parent_seq, seq, status, fence, lease_until, created_at, changed_at)
        VALUES ('{globex}', 'x', 'x', 'x', 0, 1, 'running', 1, 0, 0, 0)""",
    "a run under a number to come": """INSERT INTO agents.phronomy_branches
        (n, tenant, id, run_id, agent, parent_seq, seq, status, fence, lease_until, created_at, changed_at)
        OVERRIDING SYSTEM VALUE VALUES (99, '{acme}', 'x', 'x', 'x', 0, 1, 'running', 1, 0, 0, 0)""",
    "an entry in another's log": """INSERT INTO agents.phronomy_log (n, tenant, path, body)
        VALUES ({globex_run} * 4294967296 + 50, '{acme}', '', 'x')""",
    "an entry of another's in their log": """INSERT INTO agents.phronomy_log (n, tenant, path, body)
        VALUES ({globex_run} * 4294967296 + 50, '{globex}', '', 'x')""",
    "an entry in the log of a run to come": """INSERT INTO agents.phronomy_log (n, tenant, path, body)
        VALUES (99 * 4294967296 + 1, '{acme}', '', 'x')""",
    "a request in another's run": """INSERT INTO agents.phronomy_pending
        (tenant, branch, pending_id, agent, tool_name, requested_at, body)
        VALUES ('{acme}', {globex_run}, 'x', 'x', 'x', 0, 'x')""",
    "another's request in a list of one's own": """INSERT INTO agents.phronomy_facets (tenant, facet, value, requested_at, n)
        VALUES ('{acme}', '', '', 0, {globex_request})""",
    "the policies are switched off": "ALTER TABLE agents.phronomy_log DISABLE ROW LEVEL SECURITY",
    "a policy is dropped": "DROP POLICY own_rows ON agents.phronomy_log",
    "a policy is added": "CREATE POLICY all_rows ON agents.phronomy_log USING (true)",
    "the policies are passed by": "SET row_security = off; SELECT * FROM agents.phronomy_log",
    "the owner's part is taken": "SET ROLE {owner}",
    "another tenant's part is taken": "SET ROLE {globex}",
    "numbers are taken": "SELECT nextval('agents.phronomy_branches_n_seq')",
    "numbers are set": "SELECT setval('agents.phronomy_branches_n_seq', 1)",
}


@each("statement", FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_a_tenant_may_not_do_fails_and_changes_nothing(database: Database, statement: str) -> None:
    places = {
        "globex_run": database.number("branches", database.globex),
        "globex_request": database.number("pending", database.globex),
    }
    names = {"acme": database.acme, "globex": database.globex, "owner": database.owner}
    before = everything(database)
    with psycopg.connect(database.url(database.acme)) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.format(**places, **names).encode())
        connection.rollback()
    assert everything(database) == before


@each("table", [table for table in schema_of.TABLES if table != "schema"])
def test_a_tenant_sees_its_own_rows_and_reaches_no_others(database: Database, table: str) -> None:
    """C13."""
    tenants = {tenant for (tenant,) in database.sql(database.owner, f"SELECT tenant FROM agents.phronomy_{table}")}
    assert tenants == {database.acme, database.globex}
    seen = {tenant for (tenant,) in database.sql(database.acme, f"SELECT tenant FROM agents.phronomy_{table}")}
    assert seen == {database.acme}


def test_a_change_of_all_rows_is_one_of_the_tenants_own(database: Database) -> None:
    changes = {
        "branches": "UPDATE agents.phronomy_branches SET status = 'failed'",
        "facets": "DELETE FROM agents.phronomy_facets",
        "pending": "DELETE FROM agents.phronomy_pending",
        "documents": "UPDATE agents.phronomy_documents SET body = 'x'",
    }
    with psycopg.connect(database.url(database.acme)) as connection:
        for table, change in changes.items():
            [(own,)] = database.sql(database.acme, f"SELECT count(*) FROM agents.phronomy_{table}")
            assert connection.execute(change.encode()).rowcount == own > 0
        connection.rollback()


class Board(Announcements):
    def __init__(self) -> None:
        self.told: list[str] = []

    def on_suspended(self, event: Any) -> None:
        self.told.append(event.type)

    def on_completed(self, event: Any) -> None:
        self.told.append(event.type)


def test_a_tenants_role_does_all_that_a_worker_does(database: Database, driver: Driver) -> None:
    now = [1_000_000.0]
    store = database.store(database.acme, clock=lambda: now[0])
    board = Board()
    agent = desk(driver, store, approval_timeout=60.0, announcements=[board])
    asked = driver.invoke(agent, "go", thread_id=f"{driver}").checkpoint
    first, second = asked.pending
    assert driver.resume(agent, asked.id, decisions={first.id: Approve()}).suspended
    assert driver.resume(agent, asked.id, decisions={second.id: Approve()}).output == "Done."
    assert board.told == ["suspended", "suspended", "completed"]
    again = driver.call(agent, "fork", asked)
    assert driver.call(agent, "cancel", again.branch_id).status == "cancelled"
    late = driver.invoke(agent, "go", thread_id=f"{driver}").checkpoint
    now[0] += 61.0
    (settled,) = driver.call(agent, "recover_all")
    assert (settled.run_id, settled.result.output) == (late.run_id, "Done.")
    assert [record.kind for record in store.audit(run_id=late.run_id)] == ["expire", "expire"]
    assert store.count() == database.store(database.acme).count()


def test_of_another_tenant_it_finds_nothing_and_writes_nothing(database: Database) -> None:
    others = database.store(database.acme, database.globex)
    assert (others.count(), others.branches(), list(others.audit())) == (0, [], [])
    before = everything(database)
    with pytest.raises(StoreError, match="lacks a right"):
        desk(DRIVERS[0], others).invoke("go")
    assert everything(database) == before


def test_the_owner_prunes_and_deletes_for_a_tenant_whose_role_may_not(database: Database) -> None:
    own = database.store(database.globex)
    result = desk(DRIVERS[0], own).invoke("go")
    ended = desk(DRIVERS[0], own).cancel(result.checkpoint)
    trail = list(own.audit())
    before = everything(database)
    for attempt in (own.prune, own.clear, lambda: own.delete(ended.run_id)):
        with pytest.raises(StoreError, match="lacks a right"):
            attempt()
    assert everything(database) == before
    waits = own.count()
    assert database.store(database.owner, "").for_tenant(database.globex).prune() > 0
    assert own.branches(run_id=ended.run_id) == []
    assert (own.count(), list(own.audit())) == (waits, trail)


def test_the_owner_brings_the_tables_up_to_date_and_a_tenants_role_may_not(database: Database) -> None:
    sql = statements.Statements(statements.POSTGRES, "agents.")
    database.sql(database.owner, "DROP TABLE agents.phronomy_texts, agents.phronomy_documents")
    database.sql(database.owner, "ALTER TABLE agents.phronomy_branches DROP COLUMN handed")
    database.sql(database.owner, "DROP INDEX agents.phronomy_branches_made")
    database.sql(database.owner, "UPDATE agents.phronomy_schema SET version = 1")
    before = everything(database, but=("texts", "documents"))
    for setup, says in ((False, "of an earlier release"), (True, "lacks a right")):
        with pytest.raises(StoreError, match=says):
            database.store(database.acme, setup=setup).branches()
    assert everything(database, but=("texts", "documents")) == before

    database.store(database.owner, "").setup()
    assert database.sql(database.acme, sql.version) == [(len(schema_of.MIGRATIONS),)]
    with pytest.raises(StoreError, match="lacks a right"):
        desk(DRIVERS[0], database.store(database.acme)).invoke("go")
    with pytest.raises(StoreError, match="lacks a right"):
        database.keep_a_text(database.acme)
    with pytest.raises(StoreError, match="lacks a right"):
        database.keep_a_document(database.acme)
    database.rule()
    for role in (database.acme, database.globex):
        database.keep_a_text(role)
        database.keep_a_document(role)
    assert desk(DRIVERS[0], database.store(database.acme, setup=True)).invoke("go").suspended
