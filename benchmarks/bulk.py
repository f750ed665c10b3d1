"""Many runs that wait, put into a SQL store at once, as ballast: to write them one by one takes a millisecond and more each.

One run is written by the store itself, and copied by the database: a branch with the first and the last row of its log, one request
with all of its facets. Ids differ, texts are those of the first; nobody loads them.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from stores import Template

from phronomy import Store
from phronomy.stores import Append

_SIZE: Final = 2**32
_SERIES: Final = "(WITH RECURSIVE s (g) AS (SELECT 2 UNION ALL SELECT g + 1 FROM s WHERE g < {runs}) SELECT g FROM s)"

_BRANCHES: Final = """
    INSERT INTO phronomy_branches (n, tenant, id, run_id, thread_id, agent, parent_seq, seq, head, status, fence, lease_until,
        created_at, changed_at){overriding}
    SELECT g, tenant, 'run_' || g, 'run_' || g, 'thread-' || g, agent, 0, 2, 'ckpt_' || g, status, fence, 0, created_at, changed_at
    FROM {series}, phronomy_branches WHERE n = 1
"""
_LOG: Final = """
    INSERT INTO phronomy_log (n, tenant, path, checkpoint_id, body)
    SELECT g * {size} + entry.n % {size}, tenant, '', CASE WHEN entry.n % {size} = 2 THEN 'ckpt_' || g ELSE 'first_' || g END, body
    FROM {series}, phronomy_log entry WHERE entry.n / {size} = 1
"""
_PENDING: Final = """
    INSERT INTO phronomy_pending (n, tenant, branch, pending_id, agent, tool_name, label, risk, requested_at, body){overriding}
    SELECT g, tenant, g, 'pend_' || g, agent, tool_name, label, risk, 1700000000.0 + g, body
    FROM {series}, phronomy_pending WHERE n = 1
"""
_FACETS: Final = """
    INSERT INTO phronomy_facets (tenant, facet, value, requested_at, n)
    SELECT tenant, facet, CASE facet WHEN 'run' THEN 'run_' || g WHEN 'thread' THEN 'thread-' || g ELSE value END,
        1700000000.0 + g, g
    FROM {series}, phronomy_facets WHERE phronomy_facets.n = 1
"""


def fill(store: Store, template: Template, runs: int) -> None:
    """Put so many runs that wait into an empty SQL store."""
    branch, change = template.copy(0)
    rows = [entry for entry in change.entries if entry.checkpoint_id is not None]
    first = Append(branch_id=branch.id, seq=0, entries=(rows[0], rows[-1]), head=change.head, status="suspended")
    store.create(branch, replace(first, opened=change.opened), exclusive=False)
    inner: Any = store
    if hasattr(inner, "_file"):
        with closing(sqlite3.connect(inner._file.path, isolation_level=None)) as db:
            series = _SERIES.format(runs=runs)
            db.execute("PRAGMA synchronous = OFF")
            db.execute("BEGIN")
            for text in (_BRANCHES, _LOG, _PENDING, _FACETS):
                db.execute(text.format(series=series, size=_SIZE, overriding=""))
            db.execute("COMMIT")
        return
    import psycopg  # noqa: PLC0415  # needs the extra
    from servers import postgres_url  # noqa: PLC0415

    with psycopg.connect(postgres_url(), autocommit=True) as db:
        db.execute(f'SET search_path = "{inner._schema}"'.encode())
        series, overriding = f"generate_series(2::bigint, {runs}) AS s (g)", " OVERRIDING SYSTEM VALUE"
        for text in (_BRANCHES, _LOG, _PENDING, _FACETS):
            db.execute(text.format(series=series, size=_SIZE, overriding=overriding).replace("%", "%%").encode(), ())
        for table in ("branches", "pending"):
            db.execute(f"SELECT setval(pg_get_serial_sequence('phronomy_{table}', 'n'), {runs})".encode())
        db.execute("ANALYZE")
