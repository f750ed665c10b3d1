"""How filters become SQL: fixed texts put together, and every value bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from phronomy.stores.rows import FACETS, SIZE, AuditFilter, BranchFilter, CheckpointFilter, PendingFilter
from phronomy.stores.sql.statements import Statements, Values

_PENDING: Final = """
    p.pending_id, b.id, b.run_id, b.thread_id, p.agent, p.tool_name, p.label, p.risk, COALESCE(b.head, ''), <row>.requested_at,
    p.expires_at, p.body, p.n
"""
# No EXISTS: PostgreSQL would make a join of it, and read all of both facets before it gives the first row.
_OTHER: Final = """
    (
        SELECT 1 FROM <facets> o WHERE o.tenant = ? AND o.facet = ? AND o.value = ?
            AND o.requested_at = <row>.requested_at AND o.n = <row>.n
    ) IS NOT NULL
"""
# The branch that has the id of its run, and the others: each by an index of its own.
_OF_RUN: Final = """
    (b.tenant = ? AND b.id = ? AND b.run_id = b.id OR b.tenant = ? AND b.run_id = ? AND b.run_id <> b.id)
"""
_CHECKPOINT: Final = "entry.checkpoint_id, b.id, b.run_id, b.thread_id, b.agent, entry.label, entry.body, entry.n"
_AUDIT: Final = "a.at, a.run_id, a.thread_id, a.pending_id, a.body, a.n"


class Select:
    """A select that grows: what it is from, what must hold, and the values in their order."""

    def __init__(self, what: str, source: str, *values: object) -> None:
        self._what = what
        self._source = source
        self._where: list[str] = []
        self._values: list[object] = [*values]
        self._end = ""

    def where(self, condition: str, *values: object) -> None:
        """Require this. A condition whose only value is None is not wanted."""
        # A filter that was not given has the value None, and adds nothing. No caller needs an `if` for each of its
        # filters.
        if values != (None,):
            self._where.append(condition)
            self._values += values

    def order(self, order: str, limit: int | None = None) -> None:
        """The order of the rows, and how many at most."""
        self._end = f" ORDER BY {order}"
        if limit is not None:
            self._end += " LIMIT ?"
            self._values.append(limit)

    def made(self, sql: Statements) -> tuple[str, Values]:
        """The statement and its values."""
        text = f"SELECT {self._what} FROM {self._source} WHERE {' AND '.join(self._where)}{self._end}"  # noqa: S608  # fixed texts
        return sql.sql(text), tuple(self._values)


_BEFORE: Final = "b.n < (SELECT a.n FROM <branches> a WHERE a.tenant = ? AND a.id = ?)"
_BEHIND: Final = "b.n > (SELECT a.n FROM <branches> a WHERE a.tenant = ? AND a.id = ?)"


def branches(sql: Statements, tenant: str, wanted: BranchFilter) -> tuple[str, Values]:
    """The statement for branches, and its values."""
    select = Select("<branch>", "<branches> b")
    if wanted == BranchFilter(newest=True, after=wanted.after, limit=wanted.limit):
        select.where("(b.tenant || '') = ?", tenant)  # as its index says it
    else:
        _of_run_or_thread(select, tenant, wanted.run_id, wanted.thread_id)
    if wanted.parents is not None:
        select.where("b.parent_branch <among>", sql.listed(wanted.parents))
    # Written as the partial index says it, word by word: the planner uses such an index only where it sees that the
    # condition implies it.
    if wanted.abandoned_at is not None:
        select.where("b.status = 'running'")
        select.where("(b.owner IS NULL OR b.lease_until <= ?)", wanted.abandoned_at)
    if wanted.ended_before is not None:
        select.where("<over>")
        select.where("b.changed_at < ?", wanted.ended_before)
    if wanted.unannounced:
        # NULL is below nothing, so branches that nobody is to hear of are out.
        select.where("b.announced < b.seq")
    if wanted.handed:
        select.where("b.handed IS NOT NULL")
    if wanted.after is not None:
        select.where(_BEFORE if wanted.newest else _BEHIND, tenant, wanted.after)
    select.order("b.n DESC" if wanted.newest else "b.n", wanted.limit)
    return select.made(sql)


def _of_run_or_thread(select: Select, tenant: str, run_id: str | None, thread_id: str | None) -> None:
    """Require that branches are of this tenant, run and thread."""
    if run_id is None:
        select.where("b.tenant = ?", tenant)
    else:
        select.where(_OF_RUN, *(tenant, run_id) * 2)
    select.where("b.thread_id = ?", thread_id)


def pending(sql: Statements, tenant: str, wanted: PendingFilter) -> tuple[str, Values]:
    """The statement for pending approvals, and its values."""
    select, at, n = _pending(tenant, wanted, _PENDING, " JOIN <branches> b ON b.n = p.branch")
    # A comparison of rows: the walk of the index begins at this very place.
    if wanted.after is not None:
        select.where(f"({at}, {n}) {'<' if wanted.newest else '>'} (?, ?)", *wanted.after)
    if wanted.expired_at is not None or wanted.pending_id is not None:
        at = f"+{at}"  # these are few: they are found, then put in order
    select.order(f"{at} DESC, {n} DESC" if wanted.newest else f"{at}, {n}", wanted.limit)
    return select.made(sql)


def waiting(sql: Statements, tenant: str, pending_id: str) -> tuple[str, Values]:
    """The statement for the pending approvals under an id, each with its branch behind it, and its values."""
    wanted = PendingFilter(pending_id=pending_id)
    select, at, n = _pending(tenant, wanted, f"{_PENDING}, <branch>", " JOIN <branches> b ON b.n = p.branch")
    select.order(f"+{at}, {n}")
    return select.made(sql)


def pending_count(sql: Statements, tenant: str, wanted: PendingFilter, *, anew: bool = False) -> tuple[str, Values]:
    """The statement that counts pending approvals, and its values. `anew` says that no number is to be trusted that is kept."""
    limits = wanted.pending_id, wanted.since, wanted.until, wanted.expired_at
    if sql.counts and not anew and not wanted.facets and limits == (None,) * 4:
        return sql.sql("SELECT waiting FROM <counts> WHERE tenant = ?"), (tenant,)
    # Without the branch: a count reads the keys of the facets and nothing else.
    return _pending(tenant, wanted, "count(*)", "")[0].made(sql)


def _pending(tenant: str, wanted: PendingFilter, what: str, also: str) -> tuple[Select, str, str]:
    """The select of pending approvals, and the columns that say in which order they are.

    It walks the range of one facet, the one that leaves fewest; that the others hold as well is looked up by their whole key.
    """
    facets = dict(wanted.facets)
    if wanted.pending_id is not None or wanted.expired_at is not None:
        # These have indexes of their own, which leave fewer than any facet.
        select, row = Select(what.replace("<row>", "p"), f"<pending> p{also}"), "p"
        select.where("p.tenant = ?", tenant)
        select.where("p.pending_id = ?", wanted.pending_id)
        select.where("p.expires_at <= ?", wanted.expired_at)
    else:
        # Without any facet the list of all, which is the one under the empty name: also then the order is that of a
        # key.
        by = next((name for name in FACETS if name in facets), "")
        joined = f" JOIN <pending> p ON p.n = f.n{also}" if also else ""
        # The time by which the rows are in order: that of a page's last row leads to the next page.
        select, row = Select(what.replace("<row>", "f"), f"<facets> f{joined}"), "f"
        select.where("f.tenant = ? AND f.facet = ? AND f.value = ?", tenant, by, facets.pop(by, ""))
    for facet, value in facets.items():
        select.where(_OTHER.replace("<row>", row), tenant, facet, value)
    select.where(f"{row}.requested_at >= ?", wanted.since)
    select.where(f"{row}.requested_at <= ?", wanted.until)
    return select, f"{row}.requested_at", f"{row}.n"


def checkpoints(sql: Statements, tenant: str, wanted: CheckpointFilter) -> tuple[str, Values]:
    """The statement for root checkpoints, and its values."""
    if wanted.run_id is not None or wanted.thread_id is not None:
        # From the branches to their rows: a run has few branches, and the rows of each lie together.
        source = "<branches> b JOIN <log> entry ON <branch entries>"
        select = Select(_CHECKPOINT, source)
        _of_run_or_thread(select, tenant, wanted.run_id, wanted.thread_id)
        # Whole branches before the cursor are not entered.
        select.where("b.n >= ?", None if wanted.after is None else wanted.after // SIZE)
    else:
        select = Select(_CHECKPOINT, "<log> entry JOIN <branches> b ON b.n = entry.n / <size>")
        # Most often there is no other tenant: the log itself is walked then, in its order, and not the index of one tenant's.
        alone = not tenant and wanted.label is None and not wanted.labeled
        select.where("<unindexed>entry.tenant = ?" if alone else "entry.tenant = ?", tenant)
    select.where("entry.path = '' AND entry.checkpoint_id IS NOT NULL")
    # This line and the one below are the conditions of partial indexes of the log; both stand there without an OR, or
    # the indexes would not be used.
    select.where("entry.label = ?", wanted.label)
    if wanted.labeled:
        select.where("entry.label IS NOT NULL")
    select.where("b.agent = ?", wanted.agent)
    select.where("entry.n > ?", wanted.after)
    select.order("entry.n", wanted.limit)
    return select.made(sql)


def first(sql: Statements, tenant: str, branch_ids: Sequence[str], longest: int) -> tuple[str, Values]:
    """The statement for the root checkpoints among the first entries of these branches, and its values."""
    # By their numbers: of no log more is read. An SQL NULL would be damage, and an empty body says nothing.
    body = "CASE WHEN length(entry.body) <= ? THEN entry.body ELSE '' END"
    select = Select(
        _CHECKPOINT.replace("entry.body", body), "<branches> b JOIN <log> entry ON <first entries>", longest
    )
    select.where("b.tenant = ?", tenant)
    select.where("b.id <among>", sql.listed(branch_ids))
    select.where("entry.path = '' AND entry.checkpoint_id IS NOT NULL")
    select.order("entry.n")
    return select.made(sql)


def audit(sql: Statements, tenant: str, wanted: AuditFilter) -> tuple[str, Values]:
    """The statement for the audit trail, and its values."""
    select = Select(_AUDIT, "<audit> a")
    # A trail that is read a batch at a time is read once as a whole, if it is walked in its order.
    alone = wanted.run_id is None and wanted.pending_id is None
    select.where("<unindexed>a.tenant = ?" if alone else "a.tenant = ?", tenant)
    select.where("a.run_id = ?", wanted.run_id)
    select.where("a.thread_id = ?", wanted.thread_id)
    select.where("a.pending_id = ?", wanted.pending_id)
    select.where("a.at >= ?", wanted.since)
    select.where("a.at <= ?", wanted.until)
    select.where("a.n > ?", wanted.after)
    select.order("a.n", wanted.limit)
    return select.made(sql)
