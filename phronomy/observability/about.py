"""The subjects of runs, for lists and headings: the request that waits, or else the first words of the user, and who asked.

Of a page of runs no log is read: the requests are listed anyway, and what a run began with is in its first rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Final

from phronomy.errors import UnreadableRow
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.in_brief import in_brief, one_line
from phronomy.foundation.json_text import JsonValue, canonical
from phronomy.observability.masking import Masking
from phronomy.records.decisions import PendingApproval
from phronomy.records.messages import told_text
from phronomy.records.principals import Principal
from phronomy.stores.base import Store
from phronomy.stores.derived.beginnings import Beginning, beginnings
from phronomy.stores.derived.kept_texts import kept_by
from phronomy.stores.derived.listing import Waiting
from phronomy.stores.rows import Branch, PendingRow

WORDS: Final = 100
"""Characters of the first words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The subject of a run. `item` is the first request that waits in it, and `args` its arguments in brief, if they may be seen.

    `words` are the first words of its input, which are the user's own.
    """

    item: PendingApproval | None = None
    args: str = field(default="", repr=False)
    words: str | None = field(default=None, repr=False)
    requester: Principal | None = None


def abouts(
    store: Store,
    branches: Sequence[Branch],
    waits: Mapping[str, Sequence[PendingRow]],
    mask_of: Callable[[str], Masking],
) -> dict[str, About]:
    """The subjects of these branches. `waits` are the requests in them, and `mask_of` says what of an agent's may be seen."""
    began, masks = beginnings(store, branches), dict[str, Masking]()
    found: dict[str, About] = {}
    for branch in branches:
        mask = masks[branch.agent] if branch.agent in masks else masks.setdefault(branch.agent, mask_of(branch.agent))
        beginning = began.get(branch.run_id, Beginning())
        item = _first(store, waits.get(branch.id, ()))
        found[branch.id] = About(
            item=item,
            args=args_in_brief(item, mask) if item is not None else "",
            words=words_of(beginning.input, mask, branch.agent),
            requester=item.requester if item is not None and item.requester is not None else beginning.requester,
        )
    return found


def args_in_brief(item: PendingApproval, mask: Masking) -> str:
    """The arguments of a request in a line; nothing where none of them may be seen, or where it is a question."""
    hidden = mask.masked_in(item)
    return "" if item.why == "question" or not item.args.keys() - hidden else in_brief(item.json_text("args"), hidden)


def words_of(input: JsonValue, mask: Masking, agent: str) -> str | None:
    """The beginning of an input in one line; of a state of a graph, if that may be seen, its values in brief."""
    if isinstance(input, dict):
        return (in_brief(canonical(input)) or None) if mask.has_state_of(agent) else None
    return one_line(told_text(input), WORDS) or None if isinstance(input, str | list) else None


def _first(store: Store, rows: Sequence[PendingRow]) -> PendingApproval | None:
    """The first request that can be read."""
    for row in rows:
        try:
            return Waiting.of(row, kept_by(store)).approval
        except (TypeError, UnreadableRow):
            continue
    return None
