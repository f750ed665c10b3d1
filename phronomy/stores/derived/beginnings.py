"""How runs began, for lists: the input, and who asked. Of a page of runs the first rows are read, in one statement where a store can.

The whole log of a run says it too, and may be megabytes. What is not in the first rows, or cannot be read, is left out.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonValue, list_of, object_of
from phronomy.records.principals import Principal
from phronomy.stores.native import stands_for
from phronomy.stores.rows import Branch, CheckpointFilter, CheckpointRow

if TYPE_CHECKING:
    from phronomy.stores.base import Store

LONGEST: Final = 100_000
"""Characters of a row. Of a longer one nothing is read."""

_PRIMITIVES: Final = ("select_checkpoints",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """How a run began. `input` is what the model may see of it: None where guardrails have not let it pass, or where nobody knows."""

    input: JsonValue = field(default=None, repr=False)
    requester: Principal | None = None


class SelectsFirst(Protocol):
    """A store that can read at once what takes a read for each run otherwise."""

    def select_first(self, branch_ids: Sequence[str]) -> list[CheckpointRow]:
        """The root checkpoints among the first three entries of each of these branches, in the order of `n`.

        The body of one of more than `LONGEST` characters is empty.
        """
        ...


def beginnings(store: Store, branches: Sequence[Branch]) -> dict[str, Beginning]:
    """How the runs of these branches began, by the ids of the runs."""
    ids = dict.fromkeys(branch.run_id for branch in branches)
    rows = _first(store, ids)
    before = {each.id: each.parent_branch for each in branches if each.parent_branch is not None}
    # A run that goes on in a thread says who asks for it only where that is somebody else than before.
    silent = {before[id]: None for id in ids if id in before and id in rows and not _says_who(rows[id][0])}
    known = {**_first(store, silent.keys() - rows.keys()), **rows}
    found: dict[str, Beginning] = {}
    for id in rows:
        at: str | None = id
        while at in known and not _says_who(known[at][0]):
            at = before.get(at)
        who = known[at][0].get("requester") if at in known else None
        found[id] = Beginning(input=_input(known[id]), requester=_principal(who))
    return found


def _says_who(row: Mapping[str, Any]) -> bool:
    """True if the first row of a run says who asked for it: a run that goes on from another may leave it out."""
    return "requester" in row or "branch_id" not in row


def _input(rows: Sequence[Mapping[str, Any]]) -> JsonValue:
    """The input of a run as its first rows have it, if guardrails have let it pass."""
    row = rows[0]
    text = row.get("original_input")
    if text is None:
        said = next(iter(list_of(row.get("messages"))), None)
        text = object_of(said).get("content") if object_of(said).get("role") == "user" else None
    if row.get("unguarded") is not None:
        after = rows[1] if len(rows) > 1 else {}
        if after.get("unguarded", "") is not None or after.get("refusal") is not None:
            return None
        text = after.get("new_input", None if "cut" in after else text)
    try:
        found: JsonValue = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return found


def _principal(given: object) -> Principal | None:
    try:
        return None if given is None else Principal.model_validate(given)
    except ValueError:
        return None


def _first(store: Store, ids: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """The first root rows of branches."""
    if stands_for(store, "select_first", _PRIMITIVES):
        rows = cast("SelectsFirst", store).select_first([*ids]) if ids else []
    else:
        rows = [row for id in ids for row in store.select_checkpoints(CheckpointFilter(run_id=id, limit=2))]
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        # A row that is long or damaged is an empty one, which says nothing: it must not be taken for the next one.
        if row.branch_id in ids:
            found.setdefault(row.branch_id, []).append(_members(row.body))
    return found


def _members(body: str) -> dict[str, Any]:
    try:
        return object_of(json.loads(body)) if len(body) <= LONGEST else {}
    except (ValueError, RecursionError):
        return {}
