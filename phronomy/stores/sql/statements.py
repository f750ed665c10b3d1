"""The SQL of every SQL store: its dialects and its statements. The tables are in `schema.py`.

A database is described by a `Dialect`; nothing else in here knows one from another. Statements are made once, so that
drivers can cache what they prepare. The tables hold text and numbers only; a body is kept as the text that was given.

`n` numbers the rows of a table; in SQLite it is the row id. That of a log entry says where it stands, branch and place in one
number, so that the table itself is the index that finds it. (An index beside the table was measured: a page more to write in
each commit. A clustered text key: a third slower still, and two and a half times the size for bodies of 1,000 bytes.)

The facets of pending approvals (run, thread, label, tool, risk, agent) have a table of their own, with a row for each value. Any list
of approvals is then a range of its key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import cleandoc
from typing import Any, Final, TypeAlias, TypeVar

from phronomy.foundation.dataclasses import dataclass
from phronomy.stores.rows import (
    ENDED,
    FACETS,
    OPEN,
    SIZE,
    AuditRow,
    Branch,
    CheckpointRow,
    PendingRow,
)
from phronomy.stores.sql.schema import BRANCH, COUNTS, ENTRY, MIGRATIONS, SQLITE_MIGRATIONS, TABLES

R = TypeVar("R", Branch, PendingRow, CheckpointRow, AuditRow)

Values: TypeAlias = tuple[object, ...]
"""The values of a statement, in the order of its marks."""
Row: TypeAlias = tuple[Any, ...]
"""A row of the database: what its columns hold is known to the statement alone, and checked where a record is made of it."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The differences between databases.

    `mark` stands for a value; `key` (numbered by the database), `place` (numbered by us), `real` and `text` (compared by its
    bytes) are types. `keyed` ends a table that is its primary key, `numbered` an index whose rows are wanted in the order of
    `n`. `among` says that a column is one of some texts, which `listed` makes one value of. `array` is JSON text of all of a
    branch but its times, of which each is a `member`. `unindexed` stands before a column whose index is not to be used, where
    the database knows too little to see that by itself. `between` finds the log entries after one number up to another. `begin`
    begins a writing transaction; `lock` ends a select whose row is about to be changed, `share` one whose row must stay.
    `whole` says that one statement can write to several tables, which is worth it where each is a journey. `over` says that a
    branch has ended, word for word as the index has it. `counts` says that the number of all requests that wait is kept.
    `migrations` are as in `schema.py`.
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
    member: str
    unindexed: str
    later: str
    between: str
    begin: str
    lock: str
    share: str
    whole: bool
    over: str
    counts: bool
    migrations: Sequence[Sequence[str]]


SQLITE: Final = Dialect(
    mark="?",
    key="INTEGER PRIMARY KEY",
    place="INTEGER PRIMARY KEY",
    real="REAL",
    text="TEXT",
    keyed=" WITHOUT ROWID",
    numbered="",
    # One value, however many texts: a mark for each would make another statement of every count, and SQLite has a limit
    # of marks.
    among="IN (SELECT value FROM json_each(?))",
    listed=json.dumps,
    # JSON has no blobs. A column that holds one is damaged, and an object is of no column.
    array="json_array(<timeless>)",
    member="iif(typeof({0}) = 'blob', json('{{}}'), {0})",
    # SQLite takes the index of an equality over the order of the table, and would then sort what it found.
    unindexed="+",
    later="MAX",
    between="entry.n > {after} AND entry.n <= {upto}",
    # The lock for writing is taken at the beginning. A transaction that reads first and asks for it later is refused at
    # once if another wrote in between (its snapshot is old, and waiting would not mend that); and a compare-and-set is
    # exactly a read and then a write.
    begin="BEGIN IMMEDIATE",
    lock="",
    share="",
    whole=False,
    # A branch that is not open has ended.
    over=" AND ".join(f"status <> '{status}'" for status in OPEN),
    counts=True,
    migrations=SQLITE_MIGRATIONS,
)

POSTGRES: Final = Dialect(
    mark="%s",
    key="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    place="BIGINT PRIMARY KEY",
    real="DOUBLE PRECISION",
    # Compared byte by byte, as SQLite and Redis do. The rules of a language's collation change with the libraries of
    # the server, and every index over text that was built by the old ones is then broken.
    text='TEXT COLLATE "C"',
    keyed="",
    numbered=", n",
    among="= ANY(?)",
    listed=list,
    array="CAST(json_build_array(<timeless>) AS TEXT)",
    member="{0}",
    unindexed="",
    later="GREATEST",
    # Of a range whose ends are in another table it thinks that it is a ninth of the log, and compiles a program to read it.
    between="entry.n = ANY (ARRAY(SELECT generate_series({after} + 1, {upto})))",
    # Said in full, as the database may have another default. READ COMMITTED, because each statement must see the last
    # commit: the one that waited for a row judges it as it is now. A stricter level would fail such a statement
    # instead, and everything would be done twice. What must not change between two statements is locked.
    begin="BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
    # Two who read the same row, judge it and then write it take turns here, or both would find the log at the same
    # length.
    lock="FOR UPDATE",
    # The weakest lock that keeps a row from being deleted. The parent may go on growing while a fork of it is made.
    share="FOR KEY SHARE",
    whole=True,
    over="status IN (<ended>)",
    counts=False,
    migrations=MIGRATIONS,
)

# Kept as numbers of their own where all else of a branch travels as JSON.
_TIMES: Final = ("lease_until", "created_at", "changed_at")

# The whole of an ordinary step's compare-and-set in one statement: length, owner and fence are in its WHERE. If another
# writer holds the row, PostgreSQL waits and then judges the row as that one left it, and nothing matches any more. A
# change for which it finds no row is judged in the long way, which says why.
_GO_ON: Final = """
    UPDATE <branches> SET seq = ?, head = COALESCE(?, head), changed_at = <later>(changed_at, ?), <claim><also>
    WHERE tenant = ? AND id = ? AND seq = ? AND <whose> AND handed IS NULL<if> RETURNING <columns>, n
"""
# What a step does with the claim, and whose the branch has to be. One that is taken is judged as in `grown`.
_CLAIM: Final = {
    "keeps": ("lease_until = COALESCE(?, lease_until)", "owner = ? AND fence = ?"),
    "releases": ("lease_until = 0, owner = NULL", "owner = ? AND fence = ?"),
    "takes": ("lease_until = ?, owner = ?, fence = fence + 1", "(owner IS NULL OR lease_until <= ?)"),
}
# What a statement sets it writes to each index of it, changed or not: a status that is expected to be there is not set anew.
_STATUS: Final = {"kept": ("", ""), "running": ("", " AND status = 'running'"), "new": (", status = ?", "")}

# The same for a note that is left for the worker which holds the branch, or for nobody: whose it is is in the WHERE too.
_LEAVE: Final = """
    UPDATE <branches> SET seq = ?, handed = COALESCE(handed, ?), changed_at = <later>(changed_at, ?)
    WHERE tenant = ? AND id = ? AND seq = ? AND fence = ? AND <held> RETURNING <columns>, n
"""
_HELD: Final = {True: "owner = ? AND lease_until > ?", False: "(owner IS NULL OR lease_until <= ?)"}

# A decision is a note, its line of the trail, and a request that waits no more: all in one journey. Every part begins with
# the row that the first one has changed, so where that finds none, nothing is written. The facets are found by their whole
# keys, as in `drop_facets`: each value by a query of its own, since in a join the planner may use a part of the key alone, and
# read all requests of a tool.
_LEAVE_DECISION: Final = """
    WITH left_in AS (<leave>),
    entry AS (INSERT INTO <log> (n, tenant, <entry>) SELECT left_in.n * <size> + ?, ?, ?, ?, ?, ?, ? FROM left_in),
    line AS (INSERT INTO <audit> (tenant, at, run_id, thread_id, pending_id, body) SELECT ?, ?, ?, ?, ?, ? FROM left_in),
    gone AS (
        DELETE FROM <pending> p USING left_in WHERE p.tenant = ? AND p.pending_id = ? AND p.branch = left_in.n
        RETURNING p.tenant, p.requested_at, p.n, '' AS of_all, <gone>
    ),
    lists AS (DELETE FROM <facets> WHERE <lists>)
    SELECT <columns>, n FROM left_in
"""
# Where the value of each facet is found: with the branch, or with the request.
_FACETS: Final = {
    **{"run": "left_in.run_id", "thread": "left_in.thread_id", "label": "p.label"},
    **{"tool": "p.tool_name", "risk": "p.risk", "agent": "p.agent"},
}

_FACET_KEY: Final = (
    "(facet, value, tenant, requested_at, n) = ('{facet}', (SELECT {value} FROM gone), (SELECT tenant FROM gone),"
    " (SELECT requested_at FROM gone), (SELECT n FROM gone))"
)

# The branch comes as the row numbered 0, in the place of a body, apart from times, which JSON would round: each column
# of its own would be one more of every entry, and a long run has thousands. Numbers grow along a lineage, so the reader
# can put the rows in order. <place> is the branch where the lineage ends, <upto> its last number. The place is looked up twice, and
# the line of parents used once: SQLite compiles that line each time that it is named, which took a new connection a third longer.
# A parent was made before its fork: by its number, no damaged row can make the line endless.
_LINEAGE: Final = """
    WITH RECURSIVE line (n, id, parent_branch, parent_seq, upto) AS (
        SELECT b.n, b.id, b.parent_branch, b.parent_seq, <upto> FROM <place>
        UNION ALL
        SELECT b.n, b.id, b.parent_branch, b.parent_seq,
            CASE WHEN line.parent_seq < line.upto THEN line.parent_seq ELSE line.upto END
        FROM line JOIN <branches> b ON b.tenant = ? AND b.id = line.parent_branch AND b.n < line.n
    )
    SELECT entry.n - line.n * <size>, line.id, <own entry>, <no times>
    FROM line JOIN <log> entry ON <line entries>
    UNION ALL
    SELECT 0, b.id, NULL, NULL, NULL, NULL, <array>, <own times> FROM <place>
"""

_BRANCH_PLACE: Final = "<branches> b WHERE b.tenant = ? AND b.id = ?"
_CHECKPOINT_PLACE: Final = """
    <log> place JOIN <branches> b ON b.n = place.n / <size>
    WHERE place.tenant = ? AND place.checkpoint_id = ? AND place.path = ''
"""
# Up to the row before the next root row: the journal behind a checkpoint is part of where it stands. The subquery reads
# one row past it in the order of the key.
_CHECKPOINT_UPTO: Final = """
    COALESCE(
        (
            SELECT entry.n - b.n * <size> - 1 FROM <log> entry
            WHERE entry.n > place.n AND entry.n < (b.n + 1) * <size> AND entry.path = '' AND entry.checkpoint_id IS NOT NULL
            ORDER BY entry.n LIMIT 1
        ),
        b.seq
    )
"""

# Two kinds of children: rows that name their parent, which the index finds, and the one that follows in the same log
# and names none, which its place finds.
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

# A document whose time is over is as good as none: whoever must find none may write over it.
_ADD_DOCUMENT: Final = """
    INSERT INTO <documents> AS old (tenant, kind, key, version, expires_at, body) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, kind, key) DO UPDATE
    SET version = excluded.version, expires_at = excluded.expires_at, body = excluded.body WHERE old.expires_at <= ?
"""


class Many:
    """A statement for rows of values: what it begins with, what stands for one row, what joins rows, and what it ends with.

    A driver that is fast at running a prepared statement often runs it once for each row; where each is a journey, one for all.
    """

    def __init__(self, head: str, row: str, joint: str, end: str) -> None:
        self._parts = head, row, joint, end
        self.one: Final = head + row + end

    def of(self, count: int) -> str:
        """The statement for this many rows."""
        head, row, joint, end = self._parts
        return head + joint.join([row] * count) + end


def _words(dialect: Dialect) -> dict[str, str]:
    """The text for each word in pointed brackets, except the names of tables."""

    def between(after: str, upto: str) -> str:
        return dialect.between.format(after=after, upto=upto).replace("<size>", str(SIZE))

    mark, ended = dialect.mark, ", ".join(f"'{status}'" for status in ENDED)
    timeless = ", ".join(dialect.member.format(f"b.{column}") for column in BRANCH if column not in _TIMES)
    return {
        **vars(dialect),
        "among": dialect.among.replace("?", mark),
        "line entries": between("line.n * <size> + line.parent_seq", "line.n * <size> + line.upto"),
        "branch entries": between("b.n * <size> + b.parent_seq", "b.n * <size> + b.seq"),
        "first entries": between("b.n * <size> + b.parent_seq", "b.n * <size> + b.parent_seq + 3"),
        "size": str(SIZE),
        "known": str(len(dialect.migrations)),
        "ended": ended,
        "over": dialect.over.replace("<ended>", ended),
        "columns": ", ".join(BRANCH),
        "marks": ", ".join([mark] * len(BRANCH)),
        "branch": ", ".join(f"b.{column}" for column in BRANCH),
        "array": dialect.array.replace("<timeless>", timeless),
        "own times": ", ".join(f"b.{column}" for column in _TIMES),
        "no times": ", ".join(["NULL"] * len(_TIMES)),
        "entry": ", ".join(ENTRY),
        "live document": f"tenant = {mark} AND kind = {mark} AND key = {mark} AND (expires_at IS NULL OR expires_at > {mark})",
        "own entry": ", ".join(f"entry.{column}" for column in ENTRY),
        "gone": ", ".join(f"{_FACETS[facet]} AS of_{facet}" for facet in FACETS),
        "lists": " OR ".join(_FACET_KEY.format(facet=facet, value=f"of_{facet or 'all'}") for facet in ("", *FACETS)),
    }


class Texts:
    """Makes SQL of the texts of this package. `schema` is the quoted name of the schema of the tables, with its dot, or empty."""

    def __init__(self, dialect: Dialect, schema: str) -> None:
        words, tables = _words(dialect), {table: f"{schema}phronomy_{table}" for table in (*TABLES, COUNTS)}
        tables["in schema"] = schema
        percent = "%%" if dialect.mark == "%s" else "%"  # the driver takes one for the begin of a mark
        self._mark, self._percent = dialect.mark, percent
        self._bare = words | tables
        self._words = words | {table: name.replace("%", percent) for table, name in tables.items()}
        # A statement is made once, from a fixed set of texts: the drivers then recognise it as the same one.
        self._known: dict[str, str] = {}

    def sql(self, text: str) -> str:
        """The statement for a text with `?` for each value."""
        known = self._known.get(text)
        if known is None:
            # Names of schemas are put in last, and with their own percent signs doubled: what a user called a schema is
            # never read as a mark.
            marked = " ".join(text.split()).replace("%", self._percent).replace("?", self._mark)
            known = self._known[text] = _filled(marked, self._words)
        return known

    def bare(self, text: str) -> str:
        """The statement for a text without values, as it can be printed."""
        return _filled(cleandoc(text), self._bare)

    def rows(self, head: str, row: str, joint: str = ", ", end: str = "") -> Many:
        """The statement for rows of values."""
        return Many(self.sql(head) + " ", self.sql(row), joint, end)


def _filled(text: str, words: Mapping[str, str]) -> str:
    # Fixed words alone. No value is ever put into a text, here or elsewhere: each goes to the driver beside the
    # statement.
    return re.sub(r"<([a-z][a-z ]*)>", lambda found: words[found[1]], text)


class DocumentStatements(Texts):
    """The statements for small documents."""

    def __init__(self, dialect: Dialect, schema: str) -> None:
        super().__init__(dialect, schema)
        sql = self.sql
        # Each judges and writes in one statement: of two who write a document at once, the second finds the row as the
        # first has left it, and changes nothing.
        self.add_document: Final = sql(_ADD_DOCUMENT)
        self.change_document: Final = sql(
            "UPDATE <documents> SET version = ?, expires_at = ?, body = ? WHERE <live document> AND version = ?"
        )
        self.drop_document: Final = sql("DELETE FROM <documents> WHERE <live document>")
        self.drop_version: Final = sql("DELETE FROM <documents> WHERE <live document> AND version = ?")
        self.expire_documents: Final = sql("DELETE FROM <documents> WHERE tenant = ? AND expires_at <= ?")
        self.document: Final = sql("SELECT kind, key, version, expires_at, body FROM <documents> WHERE <live document>")
        self.documents: Final = sql(
            """SELECT kind, key, version, expires_at, body FROM <documents>
            WHERE tenant = ? AND kind = ? AND key > ? AND (expires_at IS NULL OR expires_at > ?) ORDER BY key LIMIT ?"""
        )


class LeaveStatements(DocumentStatements):
    """The statements that leave something for the worker which holds a branch, or for nobody, by whether somebody holds it.

    `leave_decision` writes all of a decision; None where the database cannot do that in one.
    """

    def __init__(self, dialect: Dialect, schema: str) -> None:
        super().__init__(dialect, schema)
        leave = {held: _LEAVE.replace("<held>", condition) for held, condition in _HELD.items()}
        decision = {held: self.sql(_LEAVE_DECISION.replace("<leave>", text)) for held, text in leave.items()}
        self.leave: dict[bool, str] = {held: self.sql(text) for held, text in leave.items()}
        self.leave_decision: dict[bool, str] | None = decision if dialect.whole else None


def _steps() -> Iterator[tuple[tuple[str, str, bool], str]]:
    """The texts of a step, by what it does with the claim, the status that the branch had, and whether it is to be announced."""
    # The first time counts: from where on a branch is to be announced is said once.
    announce = ", announced = COALESCE(announced, ?)"
    for does, (claim, whose) in _CLAIM.items():
        for status, (also, condition) in _STATUS.items():
            text = _GO_ON.replace("<claim>", claim).replace("<whose>", whose).replace("<if>", condition)
            yield (does, status, False), text.replace("<also>", also)
            yield (does, status, True), text.replace("<also>", also + announce)


class Statements(LeaveStatements):
    """The statements of a dialect. `schema` is the quoted name of the schema that the tables are in, with its dot, or empty."""

    def __init__(self, dialect: Dialect, schema: str = "") -> None:
        super().__init__(dialect, schema)
        sql, bare, rows = self.sql, self.bare, self.rows
        self.listed: Final = dialect.listed
        self.counts: Final = dialect.counts
        self.begin: Final = dialect.begin
        self.schema: Final = bare("CREATE TABLE <schema> (version INTEGER NOT NULL)")
        self.first_version: Final = bare("INSERT INTO <schema> (version) VALUES (0)")
        self.version: Final = bare("SELECT version FROM <schema>")
        self.new_version: Final = bare("UPDATE <schema> SET version = <known>")
        self.migrations: Final = tuple(tuple(bare(text) for text in migration) for migration in dialect.migrations)
        self.branch: Final = sql("SELECT <columns>, n FROM <branches> WHERE tenant = ? AND id = ? <lock>")
        self.parent: Final = sql("SELECT <columns> FROM <branches> WHERE tenant = ? AND id = ? <share>")
        # An id that is taken gives no row. Ids of runs are random: to look first would be in vain each time.
        self.add_branch: Final = sql(
            """INSERT INTO <branches> (tenant, <columns>) VALUES (?, <marks>) ON CONFLICT (tenant, id) DO NOTHING
            RETURNING n"""
        )
        self.change_branch: Final = sql(
            """UPDATE <branches> SET seq = ?, head = ?, status = ?, owner = ?, fence = ?, lease_until = ?, changed_at = ?,
            announced = ?, handed = ? WHERE n = ?"""
        )
        self.go_on: Final = {key: sql(text) for key, text in _steps()}
        # Owner and fence in the condition, expiry not: a worker that is late but was not replaced goes on.
        self.renew: Final = sql(
            """UPDATE <branches> SET lease_until = ? WHERE tenant = ? AND id = ? AND owner = ? AND fence = ?
            RETURNING <columns>"""
        )
        self.release: Final = sql(
            """UPDATE <branches> SET owner = NULL, lease_until = 0, status = COALESCE(?, status)
            WHERE tenant = ? AND id = ? AND owner = ? AND fence = ?"""
        )
        # Only upwards. NULL (nobody is to hear of this branch) is below nothing, so such a branch stays as it is.
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
        # Gives back what the facets were made of, so that they can be deleted by their keys, without a search for them.
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
        # By way of the facet of the run, since `pending` has no index by branch: a run has few requests.
        self.pending_of_branch: Final = sql(
            """SELECT p.pending_id FROM <facets> f JOIN <pending> p ON p.n = f.n
            WHERE f.tenant = ? AND f.facet = 'run' AND f.value = ? AND p.branch = ?"""
        )
        self.add_audit: Final = rows(
            "INSERT INTO <audit> (tenant, at, run_id, thread_id, pending_id, body) VALUES", "(?, ?, ?, ?, ?, ?)"
        )
        # Most texts are there already: then nothing is written, and no row is locked. Where another transaction is
        # adding the same one, this waits until it has, or has failed to.
        self.add_texts: Final = rows(
            "INSERT INTO <texts> (tenant, digest, body) VALUES", "(?, ?, ?)", end=" ON CONFLICT DO NOTHING"
        )
        self.kept_text: Final = sql("SELECT body FROM <texts> WHERE tenant = ? AND digest = ?")
        self.children: Final = sql(_CHILDREN)
        self.checkpoint_lineage: Final = sql(
            _LINEAGE.replace("<place>", _CHECKPOINT_PLACE).replace("<upto>", _CHECKPOINT_UPTO)
        )
        self.branch_lineage: Final = sql(_LINEAGE.replace("<place>", _BRANCH_PLACE).replace("<upto>", "b.seq"))


def lock_number(*names: str) -> int:
    """The number of the lock for these names: two that share one by chance wait for each other, and no more."""
    text = "\0".join(("phronomy", *names))
    # Advisory locks have numbers and no names. A hash of 64 bits, since `hash()` differs from process to process.
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big", signed=True)
