"""The SQL of every SQL store: schema, statements, and how rows become records.

A database is described by a `Dialect`; nothing else in here knows one from another. Statements are made once, so that
drivers can cache what they prepare. The tables hold text and numbers only; a body is kept as the text that was given.

`n` numbers the rows of a table; in SQLite it is the row id. That of a log entry says where it stands, branch and place in one
number, so that the table itself is the index that finds it. (An index beside the table was measured: a page more to write in
each commit. A clustered text key: a third slower still, and two and a half times the size for bodies of 1,000 bytes.)

What a pending approval can be looked for by stands in a table of its own, a row for each: any list of them is a range of its key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar

from phronomy.errors import StoreError
from phronomy.stores.derived.changes import check_room
from phronomy.stores.rows import (
    ENDED,
    FACETS,
    SIZE,
    Append,
    AuditRow,
    Branch,
    CheckpointRow,
    Entry,
    Lineage,
    PendingRow,
)

R = TypeVar("R", Branch, PendingRow, CheckpointRow, AuditRow)

Values: TypeAlias = tuple[object, ...]
"""The values of a statement, in the order of its marks."""
Row: TypeAlias = tuple[Any, ...]
"""A row of the database: what its columns hold is known to the statement alone, and checked where a record is made of it."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """What differs between databases.

    `mark` stands for a value; `key` (numbered by the database), `place` (numbered by us), `real` and `text` (compared by its bytes)
    are types. `keyed` ends a table that is its primary key, `numbered` an index whose rows are wanted in the order of `n`. `among`
    says that a column is one of some texts, which `listed` makes one value of. `array` makes JSON text of values. `unindexed` stands
    before a column whose index is not to be used, where the database knows too little to see that by itself. `between` finds the
    log entries after one number up to another. `begin` begins a writing transaction; `lock` ends a select whose row is about to be
    changed, `share` one whose row must stay.
    """

    mark: str
    key: str
    place: str
    real: str
    text: str
    keyed: str
    numbered: str
    among: str
    listed: Callable[[Sequence[str]], object]
    array: str
    unindexed: str
    later: str
    between: str
    begin: str
    lock: str
    share: str


SQLITE: Final = Dialect(
    mark="?",
    key="INTEGER PRIMARY KEY",
    place="INTEGER PRIMARY KEY",
    real="REAL",
    text="TEXT",
    keyed=" WITHOUT ROWID",
    numbered="",
    among="IN (SELECT value FROM json_each(?))",
    listed=json.dumps,
    array="json_array",
    unindexed="+",
    later="MAX",
    between="entry.n > {after} AND entry.n <= {upto}",
    begin="BEGIN IMMEDIATE",
    lock="",
    share="",
)

POSTGRES: Final = Dialect(
    mark="%s",
    key="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    place="BIGINT PRIMARY KEY",
    real="DOUBLE PRECISION",
    text='TEXT COLLATE "C"',
    keyed="",
    numbered=", n",
    among="= ANY(?)",
    listed=list,
    array="json_build_array",
    unindexed="",
    later="GREATEST",
    # Of a range whose ends are in another table it thinks that it is a ninth of the log, and compiles a program to read it.
    between="entry.n = ANY (ARRAY(SELECT generate_series({after} + 1, {upto})))",
    begin="BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
    lock="FOR UPDATE",
    share="FOR KEY SHARE",
)

TABLES: Final = ("schema", "branches", "log", "pending", "facets", "audit")

MIGRATIONS: Final = (
    # 1. The first: branches, their logs, what is pending in them, and the audit trail.
    (
        """CREATE TABLE <branches> (
            n <key>,
            tenant <text> NOT NULL,
            id <text> NOT NULL,
            run_id <text> NOT NULL,
            thread_id <text>,
            agent <text> NOT NULL,
            label <text>,
            parent_branch <text>,
            parent_seq BIGINT NOT NULL,
            seq BIGINT NOT NULL,
            head <text>,
            status <text> NOT NULL,
            owner <text>,
            fence BIGINT NOT NULL,
            lease_until <real> NOT NULL,
            created_at <real> NOT NULL,
            changed_at <real> NOT NULL,
            announced BIGINT
        )""",
        "CREATE UNIQUE INDEX phronomy_branches_id ON <branches> (tenant, id)",
        "CREATE INDEX phronomy_branches_run ON <branches> (tenant, run_id<numbered>)",
        """CREATE INDEX phronomy_branches_thread ON <branches> (tenant, thread_id<numbered>)
            WHERE thread_id IS NOT NULL""",
        """CREATE INDEX phronomy_branches_parent ON <branches> (tenant, parent_branch<numbered>)
            WHERE parent_branch IS NOT NULL""",
        "CREATE INDEX phronomy_branches_running ON <branches> (tenant<numbered>) WHERE status = 'running'",
        "CREATE INDEX phronomy_branches_ended ON <branches> (tenant, changed_at) WHERE status IN (<ended>)",
        "CREATE INDEX phronomy_branches_unannounced ON <branches> (tenant<numbered>) WHERE announced < seq",
        """CREATE TABLE <log> (
            n <place>,
            tenant <text> NOT NULL,
            path <text> NOT NULL,
            checkpoint_id <text>,
            parent_id <text>,
            label <text>,
            body TEXT NOT NULL
        )""",
        # Only root rows are looked up by id: a nested one may stand in two logs, of a branch and of its saved copy.
        """CREATE UNIQUE INDEX phronomy_log_checkpoint ON <log> (tenant, checkpoint_id)
            WHERE path = '' AND checkpoint_id IS NOT NULL""",
        """CREATE INDEX phronomy_log_parent ON <log> (tenant, parent_id<numbered>)
            WHERE path = '' AND parent_id IS NOT NULL""",
        "CREATE INDEX phronomy_log_label ON <log> (tenant, label<numbered>) WHERE path = '' AND label IS NOT NULL",
        """CREATE TABLE <pending> (
            n <key>,
            tenant <text> NOT NULL,
            branch BIGINT NOT NULL,
            pending_id <text> NOT NULL,
            agent <text> NOT NULL,
            tool_name <text> NOT NULL,
            label <text>,
            risk <text>,
            requested_at <real> NOT NULL,
            expires_at <real>,
            body TEXT NOT NULL
        )""",
        "CREATE UNIQUE INDEX phronomy_pending_id ON <pending> (tenant, pending_id, branch)",
        "CREATE INDEX phronomy_pending_expiry ON <pending> (tenant, expires_at) WHERE expires_at IS NOT NULL",
        """CREATE TABLE <facets> (
            tenant <text> NOT NULL,
            facet <text> NOT NULL,
            value <text> NOT NULL,
            requested_at <real> NOT NULL,
            n BIGINT NOT NULL,
            PRIMARY KEY (tenant, facet, value, requested_at, n)
        )<keyed>""",
        """CREATE TABLE <audit> (
            n <key>,
            tenant <text> NOT NULL,
            at <real> NOT NULL,
            run_id <text> NOT NULL,
            thread_id <text>,
            pending_id <text>,
            body TEXT NOT NULL
        )""",
        "CREATE INDEX phronomy_audit_run ON <audit> (tenant, run_id<numbered>)",
        "CREATE INDEX phronomy_audit_pending ON <audit> (tenant, pending_id<numbered>) WHERE pending_id IS NOT NULL",
    ),
    # 2. What was left for a worker that then let go: before, such runs looked as if they waited, with journal after their head.
    (
        "ALTER TABLE <branches> ADD COLUMN handed BIGINT",
        """UPDATE <branches> SET handed = seq WHERE status = 'suspended' AND EXISTS (
            SELECT 1 FROM <log> entry WHERE entry.n = <branches>.n * <size> + <branches>.seq AND entry.checkpoint_id IS NULL
        )""",
        "CREATE INDEX phronomy_branches_handed ON <branches> (tenant<numbered>) WHERE handed IS NOT NULL",
    ),
)
"""The schema, as what each version adds to the one before. Only ever appended to."""

_BRANCH: Final = (
    *("id", "run_id", "thread_id", "agent", "label", "parent_branch", "parent_seq", "seq", "head", "status"),
    *("owner", "fence", "lease_until", "created_at", "changed_at", "announced", "handed"),
)
_ENTRY: Final = ("path", "checkpoint_id", "parent_id", "label", "body")
_TIMES: Final = ("lease_until", "created_at", "changed_at")

_GO_ON: Final = """
    UPDATE <branches> SET seq = ?, head = COALESCE(?, head), lease_until = COALESCE(?, lease_until),
        changed_at = <later>(changed_at, ?)<also>
    WHERE tenant = ? AND id = ? AND seq = ? AND owner = ? AND fence = ? AND handed IS NULL<if> RETURNING <columns>, n
"""
# What a statement sets it writes to each index of it, changed or not: a status that is expected to be there is not set anew.
_STATUS: Final = {"kept": ("", ""), "running": ("", " AND status = 'running'"), "new": (", status = ?", "")}

# The branch comes as the row numbered 0, in the place of a body, apart from times, which JSON would round: each column of its own
# would be one more of every entry, and a long run has thousands. Numbers grow along a lineage, so the reader can put the rows in order.
# <place> selects the branch where the lineage ends, and the last number.
_LINEAGE: Final = """
    WITH RECURSIVE line (n, id, parent_branch, parent_seq, depth, upto) AS (
        <place>
        UNION ALL
        SELECT b.n, b.id, b.parent_branch, b.parent_seq, line.depth + 1,
            CASE WHEN line.parent_seq < line.upto THEN line.parent_seq ELSE line.upto END
        FROM line JOIN <branches> b ON b.tenant = ? AND b.id = line.parent_branch
    )
    SELECT entry.n - line.n * <size>, line.id, <own entry>, <no times>
    FROM line JOIN <log> entry ON <line entries>
    UNION ALL
    SELECT 0, b.id, NULL, NULL, NULL, NULL, CAST(<array>(<timeless>) AS TEXT), <own times>
    FROM line JOIN <branches> b ON b.n = line.n WHERE line.depth = 0
"""

_BRANCH_PLACE: Final = """
    SELECT b.n, b.id, b.parent_branch, b.parent_seq, 0, b.seq FROM <branches> b WHERE b.tenant = ? AND b.id = ?
"""

_CHECKPOINT_PLACE: Final = """
    SELECT b.n, b.id, b.parent_branch, b.parent_seq, 0, COALESCE(
        (
            SELECT entry.n - b.n * <size> - 1 FROM <log> entry
            WHERE entry.n > place.n AND entry.n < (b.n + 1) * <size> AND entry.path = '' AND entry.checkpoint_id IS NOT NULL
            ORDER BY entry.n LIMIT 1
        ),
        b.seq
    )
    FROM <log> place JOIN <branches> b ON b.n = place.n / <size>
    WHERE place.tenant = ? AND place.checkpoint_id = ? AND place.path = ''
"""

_CHILDREN: Final = """
    SELECT n, checkpoint_id FROM <log>
    WHERE tenant = ? AND parent_id = ? AND path = '' AND checkpoint_id IS NOT NULL
    UNION ALL
    SELECT entry.n, entry.checkpoint_id FROM <log> place JOIN <log> entry ON entry.n = (
        SELECT after.n FROM <log> after
        WHERE after.n > place.n AND after.n < (place.n / <size> + 1) * <size>
            AND after.path = '' AND after.checkpoint_id IS NOT NULL
        ORDER BY after.n LIMIT 1
    )
    WHERE place.tenant = ? AND place.checkpoint_id = ? AND place.path = '' AND entry.parent_id IS NULL
    ORDER BY 1
"""


class Many:
    """A statement for rows of values: what it begins with, what stands for one row, and what joins rows.

    A driver that is fast at running a prepared statement often runs it once for each row; where each is a journey, one for all.
    """

    def __init__(self, head: str, row: str, joint: str) -> None:
        self._parts = head, row, joint
        self.one: Final = head + row

    def of(self, count: int) -> str:
        """The statement for this many rows."""
        head, row, joint = self._parts
        return head + joint.join([row] * count)


def _words(dialect: Dialect) -> dict[str, str]:
    """What stands for the words in pointed brackets, but for the tables."""

    def between(after: str, upto: str) -> str:
        return dialect.between.format(after=after, upto=upto).replace("<size>", str(SIZE))

    return {
        "key": dialect.key,
        "place": dialect.place,
        "real": dialect.real,
        "text": dialect.text,
        "keyed": dialect.keyed,
        "numbered": dialect.numbered,
        "among": dialect.among.replace("?", dialect.mark),
        "unindexed": dialect.unindexed,
        "later": dialect.later,
        "line entries": between("line.n * <size> + line.parent_seq", "line.n * <size> + line.upto"),
        "branch entries": between("b.n * <size> + b.parent_seq", "b.n * <size> + b.seq"),
        "lock": dialect.lock,
        "share": dialect.share,
        "size": str(SIZE),
        "known": str(len(MIGRATIONS)),
        "ended": ", ".join(f"'{status}'" for status in ENDED),
        "columns": ", ".join(_BRANCH),
        "marks": ", ".join([dialect.mark] * len(_BRANCH)),
        "branch": ", ".join(f"b.{column}" for column in _BRANCH),
        "array": dialect.array,
        "timeless": ", ".join(f"b.{column}" for column in _BRANCH if column not in _TIMES),
        "own times": ", ".join(f"b.{column}" for column in _TIMES),
        "no times": ", ".join(["NULL"] * len(_TIMES)),
        "entry": ", ".join(_ENTRY),
        "own entry": ", ".join(f"entry.{column}" for column in _ENTRY),
    }


class Texts:
    """Makes SQL of the texts of this package. `schema` is the quoted name of the schema of the tables, with its dot, or empty."""

    def __init__(self, dialect: Dialect, schema: str) -> None:
        words, tables = _words(dialect), {table: f"{schema}phronomy_{table}" for table in TABLES}
        percent = "%%" if dialect.mark == "%s" else "%"  # the driver takes one for the begin of a mark
        self._mark, self._percent = dialect.mark, percent
        self._bare = words | tables
        self._words = words | {table: name.replace("%", percent) for table, name in tables.items()}
        self._known: dict[str, str] = {}

    def sql(self, text: str) -> str:
        """The statement for a text with `?` for each value."""
        known = self._known.get(text)
        if known is None:
            marked = " ".join(text.split()).replace("%", self._percent).replace("?", self._mark)
            known = self._known[text] = _filled(marked, self._words)
        return known

    def bare(self, text: str) -> str:
        """The statement for a text without values, as it can be printed."""
        return _filled(cleandoc(text), self._bare)

    def rows(self, head: str, row: str, joint: str = ", ") -> Many:
        """The statement for rows of values."""
        return Many(self.sql(head) + " ", self.sql(row), joint)


def _filled(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"<([a-z][a-z ]*)>", lambda found: words[found[1]], text)


class Statements(Texts):
    """The statements of a dialect. `schema` is the quoted name of the schema that the tables are in, with its dot, or empty."""

    def __init__(self, dialect: Dialect, schema: str = "") -> None:
        super().__init__(dialect, schema)
        sql, bare, rows = self.sql, self.bare, self.rows
        self.listed: Final = dialect.listed
        self.begin: Final = dialect.begin
        self.schema: Final = bare("CREATE TABLE <schema> (version INTEGER NOT NULL)")
        self.first_version: Final = bare("INSERT INTO <schema> (version) VALUES (0)")
        self.version: Final = bare("SELECT version FROM <schema>")
        self.new_version: Final = bare("UPDATE <schema> SET version = <known>")
        self.migrations: Final = tuple(tuple(bare(text) for text in migration) for migration in MIGRATIONS)
        self.branch: Final = sql("SELECT <columns>, n FROM <branches> WHERE tenant = ? AND id = ? <lock>")
        self.parent: Final = sql("SELECT <columns> FROM <branches> WHERE tenant = ? AND id = ? <share>")
        self.add_branch: Final = sql(
            "INSERT INTO <branches> (tenant, <columns>) VALUES (?, <marks>) RETURNING n",
        )
        self.change_branch: Final = sql(
            """UPDATE <branches> SET seq = ?, head = ?, status = ?, owner = ?, fence = ?, lease_until = ?, changed_at = ?,
            announced = ?, handed = ? WHERE n = ?"""
        )
        announce = ", announced = COALESCE(announced, ?)"
        self.go_on: Final = {
            (status, announces): sql(_GO_ON.replace("<also>", also + announce * announces).replace("<if>", condition))
            for status, (also, condition) in _STATUS.items()
            for announces in (False, True)
        }
        self.renew: Final = sql(
            """UPDATE <branches> SET lease_until = ? WHERE tenant = ? AND id = ? AND owner = ? AND fence = ?
            RETURNING <columns>"""
        )
        self.release: Final = sql(
            """UPDATE <branches> SET owner = NULL, lease_until = 0, status = COALESCE(?, status)
            WHERE tenant = ? AND id = ? AND owner = ? AND fence = ?"""
        )
        self.announced: Final = sql(
            "UPDATE <branches> SET announced = ? WHERE tenant = ? AND id = ? AND announced < ?",
        )
        self.detach: Final = sql("UPDATE <branches> SET parent_branch = NULL WHERE n = ?")
        self.drop_branch: Final = sql("DELETE FROM <branches> WHERE n = ?")
        self.add_entries: Final = rows("INSERT INTO <log> (n, tenant, <entry>) VALUES", "(?, ?, ?, ?, ?, ?, ?)")
        self.change_entry: Final = sql(
            "UPDATE <log> SET path = ?, checkpoint_id = ?, parent_id = ?, label = ?, body = ? WHERE n = ?"
        )
        self.drop_entries: Final = sql("DELETE FROM <log> WHERE n > ? AND n < ?")
        self.add_pending: Final = sql(
            """INSERT INTO <pending>
            (tenant, branch, pending_id, agent, tool_name, label, risk, requested_at, expires_at, body)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING n"""
        )
        self.drop_pending: Final = sql(
            """DELETE FROM <pending> WHERE tenant = ? AND pending_id = ? AND branch = ?
            RETURNING requested_at, n, label, tool_name, risk, agent"""
        )
        self.add_facets: Final = rows(
            "INSERT INTO <facets> (tenant, facet, value, requested_at, n) VALUES", "(?, ?, ?, ?, ?)"
        )
        self.drop_facets: Final = rows(
            "DELETE FROM <facets> WHERE", "(tenant, facet, value, requested_at, n) = (?, ?, ?, ?, ?)", " OR "
        )
        self.pending_of_branch: Final = sql(
            """SELECT p.pending_id FROM <facets> f JOIN <pending> p ON p.n = f.n
            WHERE f.tenant = ? AND f.facet = 'run' AND f.value = ? AND p.branch = ?"""
        )
        self.add_audit: Final = rows(
            "INSERT INTO <audit> (tenant, at, run_id, thread_id, pending_id, body) VALUES", "(?, ?, ?, ?, ?, ?)"
        )
        self.children: Final = sql(_CHILDREN)
        self.checkpoint_lineage: Final = sql(_LINEAGE.replace("<place>", _CHECKPOINT_PLACE))
        self.branch_lineage: Final = sql(_LINEAGE.replace("<place>", _BRANCH_PLACE))


# Records from rows, and rows from records


def _record_of(kind: type[R], row: Row) -> R:
    """The record in a row. The statements name the columns in the order of the fields; what a row has beyond is left."""
    return kind(**dict(zip(kind.__dataclass_fields__, row, strict=False)))


def branch_of(row: Row) -> Branch:
    """The branch in a row."""
    return _record_of(Branch, row)


def pending_of(row: Row) -> PendingRow:
    """The pending approval in a row."""
    return _record_of(PendingRow, row)


def checkpoint_of(row: Row) -> CheckpointRow:
    """The checkpoint in a row."""
    return _record_of(CheckpointRow, row)


def audit_of(row: Row) -> AuditRow:
    """The line of the audit trail in a row."""
    return _record_of(AuditRow, row)


def branch_values(tenant: str, branch: Branch) -> Values:
    """The values of `add_branch`."""
    return tenant, *(getattr(branch, column) for column in _BRANCH)


def changed_values(branch: Branch, n: int) -> Values:
    """The values of `change_branch`."""
    place = branch.seq, branch.head, branch.status
    return *place, branch.owner, branch.fence, branch.lease_until, branch.changed_at, branch.announced, branch.handed, n


def going_on(sql: Statements, tenant: str, change: Append, now: float) -> tuple[str, Values] | None:
    """The statement `go_on` for a change, and its values; None for a change that it is not for."""
    claim = change.claim
    if claim is None or change.release or claim.branch_id != change.branch_id or not 0 <= change.seq < SIZE:
        return None
    until = now + change.lease if change.lease else None
    values: list[object] = [change.seq + len(change.entries), change.head, until, now]
    status = "kept"
    if change.status is not None:
        status = "running" if change.status == "running" else "new"
    if status == "new":
        values.append(change.status)
    if change.announce:
        values.append(change.seq)
    values += (tenant, claim.branch_id, change.seq, claim.owner, claim.fence)
    return sql.go_on[status, change.announce], tuple(values)


def entry_values(tenant: str, change: Append, n: int) -> list[Values]:
    """The values of the entries that a change adds to branch number `n`. Raises `StoreError` for a log that is full."""
    check_room(change)
    return [
        (place, tenant, entry.path, entry.checkpoint_id, entry.parent_id, entry.label, entry.body)
        for place, entry in enumerate(change.entries, n * SIZE + change.seq + 1)
    ]


def changed_entry(entry: Entry, n: int) -> Values:
    """The values of `change_entry` for an entry of branch number `n`."""
    return entry.path, entry.checkpoint_id, entry.parent_id, entry.label, entry.body, n * SIZE + entry.seq


def pending_values(tenant: str, row: PendingRow, n: int) -> Values:
    """The values of a new pending approval in branch number `n`."""
    what = row.pending_id, row.agent, row.tool_name, row.label, row.risk
    return tenant, n, *what, row.requested_at, row.expires_at, row.body


def facet_values(tenant: str, branch: Branch, found: Row) -> list[Values]:
    """The values of the facets of a pending approval of a branch, from what `drop_pending` gives of it; all have the last one."""
    at, n, *rest = found
    return [
        (tenant, facet, value, at, n)
        for facet, value in zip((*FACETS, ""), (branch.run_id, branch.thread_id, *rest, ""), strict=True)
        if value is not None
    ]


def audit_values(tenant: str, row: AuditRow) -> Values:
    """The values of a new line of the audit trail."""
    return tenant, row.at, row.run_id, row.thread_id, row.pending_id, row.body


def lineage_of(rows: Iterable[Row]) -> Lineage | None:
    """The lineage in the rows of one statement, None if there are none."""
    ordered = sorted(rows, key=itemgetter(0))
    if not ordered:
        return None
    *_, body, lease_until, created_at, changed_at = ordered[0]
    *own, announced, handed = json.loads(body)
    branch = branch_of((*own, lease_until, created_at, changed_at, announced, handed))
    return Lineage(branch=branch, entries=entries_of(ordered[1:]))


_PUT: Final = tuple(getattr(Entry, column).__set__ for column in ("seq", "branch_id", *_ENTRY))


def entries_of(rows: Sequence[Row]) -> tuple[Entry, ...]:
    """The entries that rows begin with, made column by column: a frozen record takes a call for each value, and these are many."""
    entries = [object.__new__(Entry) for _ in rows]
    for put, values in zip(_PUT, zip(*rows, strict=True), strict=False):
        deque(map(put, entries, values), 0)
    return tuple(entries)


def missing(version: int, statements: Statements, where: str) -> list[str]:
    """The statements that bring a schema of this version up to date. Raises `StoreError` for a newer one."""
    known = len(statements.migrations)
    if version > known:
        raise StoreError(
            f"{where} has schema version {version}, and this release reads up to {known}: upgrade phronomy"
        )
    return [statement for migration in statements.migrations[version:] for statement in migration]


def lock_number(*names: str) -> int:
    """The number of the lock for these names: two that share one by chance wait for each other, and no more."""
    text = "\0".join(("phronomy", *names))
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big", signed=True)
