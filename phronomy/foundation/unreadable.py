"""The error for a stored row that cannot be read, made in one place."""

from __future__ import annotations

from phronomy.errors import UnreadableRow
from phronomy.foundation.quoting import kept_id, quoted_id


def unreadable_row(
    kind: str,
    *id: str,
    called: str | None = None,
    so: str = "",
    then: str = "",
    run_id: str | None = None,
    branch_id: str | None = None,
) -> UnreadableRow:
    """The error for the row of this id, or of the two that are its key. People know its kind as what it is `called`.

    `so` says what follows from it, and `then` what can be done.
    """
    # Each of the two is as long as an id may be that is quoted; together they are longer.
    which = f"{called or kind} {'/'.join(map(quoted_id, id))}"
    of = f" of branch {quoted_id(branch_id)}" if branch_id is not None else ""
    return UnreadableRow(
        f"{which}{of} cannot be read{so}: the row is damaged, or was written by a later release{then}",
        kind=kind,
        id="/".join(map(kept_id, id)),
        run_id=None if run_id is None else kept_id(run_id),
        branch_id=None if branch_id is None else kept_id(branch_id),
    )
