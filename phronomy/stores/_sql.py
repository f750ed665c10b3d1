"""The SQL of every SQL store: schema, statements, and how rows become records.

A database is described by a `Dialect`; nothing else in here knows one from another. Statements are made once, so that
drivers can cache what they prepare. The tables hold text and numbers only; a body is kept as the text that was given.

`n` numbers the rows of a table; in SQLite it is the row id. That of a log entry says where it stands, branch and place in one
number, so that the table itself is the index that finds it. (An index beside the table was measured: a page more to write in
each commit. A clustered text key: a third slower still, and two and a half times the size for bodies of 1,000 bytes.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, TypeAlias

from phronomy.errors import StoreError
from phronomy.stores.base import Append, Branch, Entry, Lineage, PendingRow

SIZE: Final = 2**32
"""Numbers that each branch has for its log: entry `seq` of branch `n` has the number `n * SIZE + seq`."""

Values: TypeAlias = tuple[Any, ...]
"""A row of the database, or the values of a statement."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """What differs between databases.

    `mark` stands for a value; `key` (numbered by the database), `place` (numbered by us) and `real` are types; `begin` begins a
    writing transaction, `lock` ends a select whose row is about to be changed, and `has_schema` selects a row if there is a
    version table.
    """

    mark: str
    key: str
    place: str
    real: str
    begin: str
    lock: str
    has_schema: str


SQLITE: Final = Dialect(
    mark="?",
    key="INTEGER PRIMARY KEY",
    place="INTEGER PRIMARY KEY",
    real="REAL",
    begin="BEGIN IMMEDIATE",
    lock="",
    has_schema="SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'phronomy_schema'",
)

MIGRATIONS: Final = (
    # 1. The first: branches, their logs, and what is pending in them.
    (
        """CREATE TABLE phronomy_branches (
            n {key},
            id TEXT NOT NULL UNIQUE,
            run_id TEXT NOT NULL,
            thread_id TEXT,
            agent TEXT NOT NULL,
            parent_branch TEXT,
            parent_seq BIGINT NOT NULL,
            seq BIGINT NOT NULL,
            head TEXT,
            status TEXT NOT NULL,
            owner TEXT,
            fence BIGINT NOT NULL,
            lease_until {real} NOT NULL,
            changed_at {real} NOT NULL
        )""",
        "CREATE INDEX phronomy_branches_run ON phronomy_branches (run_id)",
        "CREATE INDEX phronomy_branches_thread ON phronomy_branches (thread_id) WHERE thread_id IS NOT NULL",
        """CREATE TABLE phronomy_log (
            n {place},
            path TEXT NOT NULL,
            checkpoint_id TEXT,
            parent_id TEXT,
            body TEXT NOT NULL
        )""",
        # Only root rows are looked up by id: a nested one may stand in two logs, of a branch and of its saved copy.
        """CREATE UNIQUE INDEX phronomy_log_checkpoint ON phronomy_log (checkpoint_id)
            WHERE path = '' AND checkpoint_id IS NOT NULL""",
        "CREATE INDEX phronomy_log_parent ON phronomy_log (parent_id) WHERE path = '' AND parent_id IS NOT NULL",
        """CREATE TABLE phronomy_pending (
            n {key},
            branch BIGINT NOT NULL,
            pending_id TEXT NOT NULL,
            agent TEXT NOT NULL,
            tool_name TEXT NOT NULL,
            requested_at {real} NOT NULL,
            body TEXT NOT NULL
        )""",
        "CREATE UNIQUE INDEX phronomy_pending_id ON phronomy_pending (branch, pending_id)",
        "CREATE INDEX phronomy_pending_order ON phronomy_pending (requested_at)",
    ),
)
"""The schema, as what each version adds to the one before. Only ever appended to."""

_BRANCH: Final = (
    *("id", "run_id", "thread_id", "agent", "parent_branch", "parent_seq"),
    *("seq", "head", "status", "owner", "fence", "lease_until", "changed_at"),
)
_COLUMNS: Final = ", ".join(_BRANCH)
_MARKS: Final = ", ".join("?" * len(_BRANCH))

# The branch comes as the row numbered 0. Numbers grow along a lineage, so the reader can put the rows in order.
# <place> selects the branch where the lineage ends, and the last number.
_LINEAGE: Final = """
    WITH RECURSIVE line (n, id, parent_branch, parent_seq, depth, upto) AS (
        <place>
        UNION ALL
        SELECT b.n, b.id, b.parent_branch, b.parent_seq, line.depth + 1,
            CASE WHEN line.parent_seq < line.upto THEN line.parent_seq ELSE line.upto END
        FROM line JOIN phronomy_branches b ON b.id = line.parent_branch
    )
    SELECT entry.n - line.n * <size>, line.id, entry.path, entry.checkpoint_id, entry.parent_id, entry.body, <nothing>
    FROM line JOIN phronomy_log entry ON entry.n > line.n * <size> AND entry.n <= line.n * <size> + line.upto
    UNION ALL
    SELECT 0, b.id, NULL, NULL, NULL, NULL, <branch>
    FROM line JOIN phronomy_branches b ON b.n = line.n WHERE line.depth = 0
"""

_BRANCH_PLACE: Final = """
    SELECT b.n, b.id, b.parent_branch, b.parent_seq, 0, b.seq FROM phronomy_branches b WHERE b.id = ?
"""

_CHECKPOINT_PLACE: Final = """
    SELECT b.n, b.id, b.parent_branch, b.parent_seq, 0, COALESCE(
        (
            SELECT entry.n - b.n * <size> - 1 FROM phronomy_log entry
            WHERE entry.n > place.n AND entry.n < (b.n + 1) * <size> AND entry.path = '' AND entry.checkpoint_id IS NOT NULL
            ORDER BY entry.n LIMIT 1
        ),
        b.seq
    )
    FROM phronomy_log place JOIN phronomy_branches b ON b.n = place.n / <size>
    WHERE place.checkpoint_id = ? AND place.path = ''
"""

_CHILDREN: Final = """
    SELECT n, checkpoint_id FROM phronomy_log WHERE parent_id = ? AND path = '' AND checkpoint_id IS NOT NULL
    UNION ALL
    SELECT entry.n, entry.checkpoint_id FROM phronomy_log place JOIN phronomy_log entry ON entry.n = (
        SELECT after.n FROM phronomy_log after
        WHERE after.n > place.n AND after.n < (place.n / <size> + 1) * <size>
            AND after.path = '' AND after.checkpoint_id IS NOT NULL
        ORDER BY after.n LIMIT 1
    )
    WHERE place.checkpoint_id = ? AND place.path = '' AND entry.parent_id IS NULL
    ORDER BY 1
"""

_PENDING: Final = """
    SELECT p.pending_id, b.id, b.run_id, b.thread_id, p.agent, p.tool_name, COALESCE(b.head, ''), p.requested_at, p.body
    FROM phronomy_pending p JOIN phronomy_branches b ON b.n = p.branch
"""


class Statements:
    """The statements of a dialect."""

    def __init__(self, dialect: Dialect) -> None:
        def sql(text: str) -> str:
            text = text.replace("<columns>", _COLUMNS).replace("<marks>", _MARKS).replace("<lock>", dialect.lock)
            return " ".join(text.split()).replace("<size>", str(SIZE)).replace("?", dialect.mark)

        def lineage(place: str) -> str:
            others = _BRANCH[1:]
            text = _LINEAGE.replace("<branch>", ", ".join(f"b.{column}" for column in others))
            return sql(text.replace("<nothing>", ", ".join(["NULL"] * len(others))).replace("<place>", place))

        self.begin: Final = dialect.begin
        self.has_schema: Final = dialect.has_schema
        self.schema: Final = "CREATE TABLE phronomy_schema (version INTEGER NOT NULL)"
        self.first_version: Final = "INSERT INTO phronomy_schema (version) VALUES (0)"
        self.version: Final = "SELECT version FROM phronomy_schema"
        self.new_version: Final = sql("UPDATE phronomy_schema SET version = ?")
        self.migrations: Final = tuple(
            tuple(statement.format(key=dialect.key, place=dialect.place, real=dialect.real) for statement in migration)
            for migration in MIGRATIONS
        )
        self.branch: Final = sql("SELECT <columns>, n FROM phronomy_branches WHERE id = ? <lock>")
        self.add_branch: Final = sql("INSERT INTO phronomy_branches (<columns>) VALUES (<marks>)")
        self.change_branch: Final = sql(
            """UPDATE phronomy_branches
            SET seq = ?, head = ?, status = ?, owner = ?, fence = ?, lease_until = ?, changed_at = ? WHERE n = ?"""
        )
        self.go_on: Final = sql(
            """UPDATE phronomy_branches
            SET seq = ?, head = COALESCE(?, head), status = COALESCE(?, status), lease_until = COALESCE(?, lease_until), changed_at = ?
            WHERE id = ? AND seq = ? AND owner = ? AND fence = ? RETURNING <columns>, n"""
        )
        self.renew: Final = sql("UPDATE phronomy_branches SET lease_until = ? WHERE id = ? AND owner = ? AND fence = ?")
        self.release: Final = sql(
            """UPDATE phronomy_branches SET owner = NULL, lease_until = 0, status = COALESCE(?, status)
            WHERE id = ? AND owner = ? AND fence = ?"""
        )
        self.add_entry: Final = sql(
            "INSERT INTO phronomy_log (n, path, checkpoint_id, parent_id, body) VALUES (?, ?, ?, ?, ?)"
        )
        self.add_pending: Final = sql(
            """INSERT INTO phronomy_pending (branch, pending_id, agent, tool_name, requested_at, body)
            VALUES (?, ?, ?, ?, ?, ?)"""
        )
        self.drop_pending: Final = sql("DELETE FROM phronomy_pending WHERE branch = ? AND pending_id = ?")
        self.children: Final = sql(_CHILDREN)
        self.checkpoint_lineage: Final = lineage(_CHECKPOINT_PLACE)
        self.branch_lineage: Final = lineage(_BRANCH_PLACE)
        self._branches: Final = sql("SELECT <columns> FROM phronomy_branches b")
        self._pending: Final = sql(_PENDING)
        self._filters: Final = (sql("b.run_id = ?"), sql("b.thread_id = ?"))

    def branches(self, *, run_id: str | None, thread_id: str | None) -> tuple[str, Values]:
        """The statement and its values for the branches of a run, a thread, both, or all."""
        where, values = self._where(run_id, thread_id)
        return self._branches + where + " ORDER BY b.n", values

    def pending(self, *, run_id: str | None, thread_id: str | None) -> tuple[str, Values]:
        """The statement and its values for what is pending in a run, a thread, both, or everywhere."""
        where, values = self._where(run_id, thread_id)
        return self._pending + where + " ORDER BY p.requested_at, p.n", values

    def _where(self, *wanted: str | None) -> tuple[str, Values]:
        given = [(text, value) for text, value in zip(self._filters, wanted, strict=True) if value is not None]
        where = " WHERE " + " AND ".join(text for text, _ in given) if given else ""
        return where, tuple(value for _, value in given)


# Records from rows, and rows from records


def branch_of(row: Sequence[Any]) -> Branch:
    """The branch in a row."""
    return Branch(
        id=row[0],
        run_id=row[1],
        thread_id=row[2],
        agent=row[3],
        parent_branch=row[4],
        parent_seq=row[5],
        seq=row[6],
        head=row[7],
        status=row[8],
        owner=row[9],
        fence=row[10],
        lease_until=row[11],
        changed_at=row[12],
    )


def branch_values(branch: Branch) -> Values:
    """The values of a new branch."""
    return tuple(getattr(branch, column) for column in _BRANCH)


def changed_values(branch: Branch, n: int) -> Values:
    """The values of `change_branch`."""
    return branch.seq, branch.head, branch.status, branch.owner, branch.fence, branch.lease_until, branch.changed_at, n


def going_on(change: Append, now: float) -> Values | None:
    """The values of `go_on`; None for a change that it is not for."""
    claim = change.claim
    if claim is None or change.release or claim.branch_id != change.branch_id or not 0 <= change.seq < SIZE:
        return None
    until = now + change.lease if change.lease else None
    after = change.seq + len(change.entries)
    return after, change.head, change.status, until, now, claim.branch_id, change.seq, claim.owner, claim.fence


def entry_values(change: Append, n: int) -> list[Values]:
    """The values of the entries that a change adds to branch number `n`. Raises `StoreError` for a log that is full."""
    if change.seq + len(change.entries) >= SIZE:
        raise StoreError(f"the log of branch {change.branch_id} is full: it holds {SIZE - 1} entries at most")
    return [
        (place, entry.path, entry.checkpoint_id, entry.parent_id, entry.body)
        for place, entry in enumerate(change.entries, n * SIZE + change.seq + 1)
    ]


def pending_values(change: Append, n: int) -> list[Values]:
    """The values of what a change makes pending in branch number `n`."""
    return [(n, row.pending_id, row.agent, row.tool_name, row.requested_at, row.body) for row in change.opened]


def pending_of(row: Sequence[Any]) -> PendingRow:
    """The pending approval in a row."""
    return PendingRow(
        pending_id=row[0],
        branch_id=row[1],
        run_id=row[2],
        thread_id=row[3],
        agent=row[4],
        tool_name=row[5],
        checkpoint_id=row[6],
        requested_at=row[7],
        body=row[8],
    )


def lineage_of(rows: Iterable[Sequence[Any]]) -> Lineage | None:
    """The lineage in the rows of one statement, None if there are none."""
    ordered = sorted(rows, key=itemgetter(0))
    if not ordered:
        return None
    first = ordered[0]
    return Lineage(
        branch=branch_of((first[1], *first[6:])),
        entries=tuple(
            [
                Entry(seq=seq, branch_id=branch, path=path, checkpoint_id=id, parent_id=parent, body=body)
                for seq, branch, path, id, parent, body, *_ in ordered[1:]
            ]
        ),
    )


def missing(version: int, statements: Statements, where: str) -> list[str]:
    """The statements that bring a schema of this version up to date. Raises `StoreError` for a newer one."""
    known = len(statements.migrations)
    if version > known:
        raise StoreError(
            f"{where} has schema version {version}, and this release reads up to {known}: upgrade phronomy"
        )
    return [statement for migration in statements.migrations[version:] for statement in migration]
