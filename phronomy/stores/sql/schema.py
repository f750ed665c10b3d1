"""The tables of every SQL store, and how a database of an earlier version is brought up to date.

Words in pointed brackets are filled in by `statements.py`: names of tables, and what differs between databases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from phronomy.errors import StoreError

TABLES: Final = ("schema", "branches", "log", "pending", "facets", "audit", "texts", "documents")
COUNTS: Final = "counts"
"""A table that SQLite alone has."""

# Names of indexes are not in a schema of their own in SQLite, so all begin with the name of the product. Each index
# here is for one question, which is said beside it; one more is a page more to write in every commit.
_MIGRATIONS: Final = (
    # 1. The first: branches, their logs, what is pending in them, and the audit trail.
    (
        # A row for each branch, with all that changes while a run goes on: a step updates this row and inserts into the
        # log, and touches nothing else.
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
        # The way to a branch for every write, and what keeps two from having one id when two processes save the same
        # checkpoint at once. The tenant comes first in each index: no query goes without it.
        "CREATE UNIQUE INDEX phronomy_branches_id ON <branches> (tenant, id)",
        # The branches of a run, and those of a thread, in the order they were made. Where the number of a row is not in
        # its index by itself, it is added, so that they come in order without being sorted.
        "CREATE INDEX phronomy_branches_run ON <branches> (tenant, run_id<numbered>)",
        """CREATE INDEX phronomy_branches_thread ON <branches> (tenant, thread_id<numbered>)
            WHERE thread_id IS NOT NULL""",
        # Who goes on from a branch that is to be removed. Partial, as most branches go on from none.
        """CREATE INDEX phronomy_branches_parent ON <branches> (tenant, parent_branch<numbered>)
            WHERE parent_branch IS NOT NULL""",
        # These three are what `recover_all` and `prune` ask again and again, over all that there ever was. A partial
        # index holds the few for which it is so, and a run that ends leaves it.
        "CREATE INDEX phronomy_branches_running ON <branches> (tenant<numbered>) WHERE status = 'running'",
        "CREATE INDEX phronomy_branches_ended ON <branches> (tenant, changed_at) WHERE status IN (<ended>)",
        "CREATE INDEX phronomy_branches_unannounced ON <branches> (tenant<numbered>) WHERE announced < seq",
        # Append-only, under a number that says branch and place. The rows of a log lie side by side in the order they
        # are read. A journal entry, of which there are most, is in no index but the key.
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
        # For lists by label. Few checkpoints have one.
        "CREATE INDEX phronomy_log_label ON <log> (tenant, label<numbered>) WHERE path = '' AND label IS NOT NULL",
        # What waits now. Rows go when they are decided, so however long the store lives this is as long as the queue of
        # its humans.
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
        # A request is closed by its id, within its branch: a fork of it waits under another id, and a saved copy may
        # have the same one.
        "CREATE UNIQUE INDEX phronomy_pending_id ON <pending> (tenant, pending_id, branch)",
        # For what has expired. Most requests never do, and are not in it.
        "CREATE INDEX phronomy_pending_expiry ON <pending> (tenant, expires_at) WHERE expires_at IS NOT NULL",
        # A key of all columns and nothing else. An index for each column of `pending` could find the rows of an agent,
        # but not in the order of their times, or not both together: a page of a hundred out of a million would sort a
        # million.
        """CREATE TABLE <facets> (
            tenant <text> NOT NULL,
            facet <text> NOT NULL,
            value <text> NOT NULL,
            requested_at <real> NOT NULL,
            n BIGINT NOT NULL,
            PRIMARY KEY (tenant, facet, value, requested_at, n)
        )<keyed>""",
        # No key to the branch: the trail stays when that goes.
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
        # Journal after the head of a branch that waits can only be a decision that was left for a worker. It is marked,
        # so that the next `recover_all` finds what an earlier release would have left lying.
        """UPDATE <branches> SET handed = seq WHERE status = 'suspended' AND EXISTS (
            SELECT 1 FROM <log> entry WHERE entry.n = <branches>.n * <size> + <branches>.seq AND entry.checkpoint_id IS NULL
        )""",
        "CREATE INDEX phronomy_branches_handed ON <branches> (tenant<numbered>) WHERE handed IS NOT NULL",
    ),
    # 3. Texts that are kept once: before, there were none.
    (
        # Found by the whole key and by nothing else. No key to a branch, and no count of those that name a text: all
        # runs of a tenant share the few that there are, and none takes one away. Not `<keyed>`: in SQLite a body of
        # some pages would lie in the index that is searched.
        """CREATE TABLE <texts> (
            tenant <text> NOT NULL,
            digest <text> NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, digest)
        )""",
    ),
    # 4. Small documents beside the runs, such as people: before, there were none.
    (
        # Listed in the order of this key, and changed row by row. No key to a run: none of them owns a document.
        """CREATE TABLE <documents> (
            tenant <text> NOT NULL,
            kind <text> NOT NULL,
            key <text> NOT NULL,
            version <text> NOT NULL,
            expires_at <real>,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, kind, key)
        )""",
        # For those whose time is over, and are to be deleted. What is kept for ever is not in it.
        "CREATE INDEX phronomy_documents_expiry ON <documents> (tenant, expires_at) WHERE expires_at IS NOT NULL",
    ),
)

_OTHER_BRANCHES: Final = (
    # The branch that has the id of its run, which most runs have alone, is found by that id. What is left are forks: the index of
    # all of them is a page less to write when a run begins.
    "DROP INDEX <in schema>phronomy_branches_run",
    "CREATE INDEX phronomy_branches_run ON <branches> (tenant, run_id<numbered>) WHERE run_id <> id",
)

_NEWEST_BRANCHES: Final = (
    # All branches from the last one that was made: a page of a list of runs. It is written when a run begins, and by no step of it.
    # Of an expression, so that it answers this question alone: it has the order of every other, and SQLite, which knows nothing of
    # how many rows there are, would take it in place of the partial ones.
    "CREATE INDEX phronomy_branches_made ON <branches> ((tenant || '')<numbered>)",
)

MIGRATIONS: Final = (
    *_MIGRATIONS,
    # 5. The index of the branches of a run has forks alone: before, it had all branches.
    _OTHER_BRANCHES,
    # 6. Nothing in the tables. Rows of the log are written in a shorter form, which an earlier release cannot read.
    (),
    # 7. The branches of a tenant in the order they were made: before, the newest were found by sorting all.
    _NEWEST_BRANCHES,
)
"""The schema, as what each version adds to the one before. Only ever appended to."""

SQLITE_MIGRATIONS: Final = (
    *_MIGRATIONS,
    # 5. How many requests wait: before, each count walked all of them. In PostgreSQL all who open and close requests would
    # meet at such a row, and each would wait for the commit of the one before.
    (
        "CREATE TABLE <counts> (tenant TEXT NOT NULL PRIMARY KEY, waiting INTEGER NOT NULL) WITHOUT ROWID",
        "INSERT INTO <counts> SELECT tenant, count(*) FROM <facets> WHERE facet = '' GROUP BY tenant",
        # By triggers, in the transaction that opens or closes a request, whoever does that: a process of an earlier release
        # that still has the file open changes the count too.
        """CREATE TRIGGER phronomy_counts_opened AFTER INSERT ON <facets> WHEN new.facet = '' BEGIN
            INSERT INTO <counts> VALUES (new.tenant, 1) ON CONFLICT (tenant) DO UPDATE SET waiting = waiting + 1;
        END""",
        """CREATE TRIGGER phronomy_counts_closed AFTER DELETE ON <facets> WHEN old.facet = '' BEGIN
            UPDATE <counts> SET waiting = waiting - 1 WHERE tenant = old.tenant;
        END""",
        # The same index with another condition. Each step of each run sets the time, and has SQLite look at it; for an IN of
        # five texts that makes a table of them, twice: 60 us for the update in place of 220.
        "DROP INDEX phronomy_branches_ended",
        """CREATE INDEX phronomy_branches_ended ON <branches> (tenant, changed_at) WHERE (status = 'completed'
            OR status = 'rejected' OR status = 'cancelled' OR status = 'superseded' OR status = 'skipped')""",
    ),
    # 6. As 5. elsewhere.
    _OTHER_BRANCHES,
    # 7. Rows of the log are written in a shorter form, which an earlier release cannot read.
    (
        # The same once more: three comparisons take less than five. Each connection compiles them into each update of a branch, and
        # each step of a run evaluates them twice.
        "DROP INDEX phronomy_branches_ended",
        "CREATE INDEX phronomy_branches_ended ON <branches> (tenant, changed_at) WHERE <over>",
        # Documents lie in the order of their key, which before was an index beside them: a page less in each file.
        "CREATE TABLE phronomy_documents_before AS SELECT * FROM <documents>",
        "DROP TABLE <documents>",
        """CREATE TABLE <documents> (
            tenant TEXT NOT NULL,
            kind TEXT NOT NULL,
            key TEXT NOT NULL,
            version TEXT NOT NULL,
            expires_at REAL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, kind, key)
        ) WITHOUT ROWID""",
        """INSERT INTO <documents> (tenant, kind, key, version, expires_at, body)
            SELECT tenant, kind, key, version, expires_at, body FROM phronomy_documents_before""",
        "DROP TABLE phronomy_documents_before",
        "CREATE INDEX phronomy_documents_expiry ON <documents> (tenant, expires_at) WHERE expires_at IS NOT NULL",
    ),
    # 8. As 7. elsewhere.
    _NEWEST_BRANCHES,
)
"""The schema in SQLite, which has a version of its own."""

BRANCH: Final = (
    *("id", "run_id", "thread_id", "agent", "label", "parent_branch", "parent_seq", "seq", "head", "status"),
    *("owner", "fence", "lease_until", "created_at", "changed_at", "announced", "handed"),
)
ENTRY: Final = ("path", "checkpoint_id", "parent_id", "label", "body")


def missing(version: int, migrations: Sequence[Sequence[str]], where: str) -> Sequence[Sequence[str]]:
    """The migrations that bring a schema of this version up to date. Raises `StoreError` for a newer one."""
    known = len(migrations)
    # An older release must not write into tables whose rules it does not know. A newer one brings them up to date
    # itself.
    if version > known:
        raise StoreError(
            f"{where} has schema version {version}, and this release reads up to {known}: upgrade phronomy"
        )
    return migrations[version:]
