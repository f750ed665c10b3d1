"""The outlook of a run: the effect that an approval, or a decision that waits for a worker, would have now. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from phronomy.engine.ledger import Ledger
from phronomy.engine.run import Runner
from phronomy.engine.spec import Spec
from phronomy.errors import CheckpointError
from phronomy.foundation.dataclasses import dataclass
from phronomy.records.decisions import Answer
from phronomy.runs.finding.drift import changes_in
from phronomy.runs.finding.lookup import open_runners
from phronomy.stores.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The effect of a decision: it is refused, asked for again with other arguments, or carried out. `why` has the reasons."""

    verdict: Literal["breaks", "asked_again", "goes_on"]
    why: tuple[str, ...] = ()


def outlook(store: Store, spec: Spec, branch_id: str, answers: Mapping[str, Answer]) -> Outlook:
    """The outlook of a branch with these answers, by pending id, and with what was decided there and waits for a worker.

    Raises `CheckpointError` if its run cannot be read.
    """
    branch, head = store.head(branch_id)
    if head.kind != spec.kind:
        return Outlook(verdict="breaks", why=(f"the {head.kind} is a {spec.kind} now",))
    runners = open_runners(Runner(spec, Ledger(store, branch, head), head, deps=None))
    # Of these requests alone: what waits beside them has an outlook of its own.
    try:
        found = changes_in(head, spec, runners, answers, "rests")
    except CheckpointError as error:
        return Outlook(verdict="breaks", why=(str(error),))
    if found.changed:
        return Outlook(verdict="breaks", why=tuple(dict.fromkeys(found.changed)))
    if found.again:
        return Outlook(verdict="asked_again", why=tuple(dict.fromkeys(found.again)))
    return Outlook(verdict="goes_on")
