"""Calls of tools whose scopes the run has not: what the audit trail says of them."""

from __future__ import annotations

from collections.abc import Collection

from phronomy.engine.ledger import now
from phronomy.engine.spec import Spec
from phronomy.records.audit import AuditRecord, scope_refusal
from phronomy.records.calls import CallFailed, Judged, place_of
from phronomy.records.checkpoint import Checkpoint
from phronomy.stores.base import Store


def refused_calls(
    spec: Spec, scopes: Collection[str], state: Checkpoint, outcome: Judged | CallFailed, store: Store
) -> list[AuditRecord]:
    """What the trail says of the calls that this outcome refuses because a run in this state, with these scopes, lacks one."""
    # A call that fails for want of a scope was let through when the run had more.
    refused = (
        [each for each in outcome.judgements if each.verdict == "invalid"] if isinstance(outcome, Judged) else [outcome]
    )
    found: list[AuditRecord] = []
    for each in refused:
        place = place_of(state.calls, each.id)
        tool = spec.tool(state.calls[place]) if place is not None else None
        missing = tool.scopes.difference(scopes) if tool is not None else None
        if tool is not None and missing:
            found.append(scope_refusal(state, tool.name, sorted(missing), now(store)))
    return found
