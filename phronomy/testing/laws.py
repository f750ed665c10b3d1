"""The laws that hold after a crash, whatever was killed when: judged from the store, and from the witness outside of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from phronomy.records.audit import AuditRecord
from phronomy.records.calls import (
    CallFailed,
    CallSettled,
    CallStarted,
    CallUnknown,
    CallWaits,
    Decided,
    Ending,
    Withdrawn,
)
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision, PendingApproval, ToolIdentity, call_digest
from phronomy.stores.base import Store
from phronomy.stores.derived.kept_texts import kept_by
from phronomy.stores.log.log import replay
from phronomy.stores.log.row_delta import outcome_from
from phronomy.stores.rows import ENDED, Branch
from phronomy.testing.scene import Entered, Witness
from phronomy.testing.scripted import check_history

_OVER = (CallSettled, CallFailed, CallUnknown, CallWaits)


class Found:
    """The content of a store: the branches, their checkpoints, their pending approvals and decisions, and the calls that were begun."""

    def __init__(self, store: Store) -> None:
        self.branches: dict[str, Branch] = {branch.id: branch for branch in store.branches()}
        self.heads: dict[str, Checkpoint] = {}
        self.checkpoints: set[str] = set()
        self.asked: dict[str, dict[str, PendingApproval]] = {}
        self.decisions: dict[str, list[Decision]] = {}
        self.paths: dict[str, str] = {}  # of the runs in which calls were begun, by idempotency key
        self.salts: dict[str, set[str]] = defaultdict(set)
        self.trail: list[AuditRecord] = list(store.audit())
        self.waiting: list[str] = [row.pending_id for row in store.pending_rows()]
        for branch in self.branches.values():
            entries = store.lineage(branch_id=branch.id).entries
            journal = [(entry.path, outcome_from(entry.body)) for entry in entries if entry.checkpoint_id is None]
            self.paths |= {outcome.key: path for path, outcome in journal if isinstance(outcome, CallStarted)}
            history = [each for each in replay(entries, kept_by(store)) if each.run_id == branch.run_id]
            self.heads[branch.id] = head = history[-1]
            self.checkpoints |= {each.id for each in history}
            self.salts[branch.run_id].add(head.salt)
            own = [each for each in history if each.branch_id == branch.id]  # a fork asks anew
            self.asked[branch.id] = {item.id: item for each in own for item in each.pending}
            late = [outcome.decision for outcome in head.journal if isinstance(outcome, Decided)]
            self.decisions[branch.id] = [*head.decisions, *late]

    @property
    def unknown(self) -> int:
        """The number of calls that a human was asked about because their outcome is unknown."""
        return len({id for asked in self.asked.values() for id, item in asked.items() if item.why == "outcome_unknown"})

    def approval(self, pending_id: str) -> Decision | None:
        """The approval that was recorded under this pending id."""
        for decisions in self.decisions.values():
            for decision in decisions:
                if decision.pending_id == pending_id and decision.kind == "approve":
                    return decision
        return None

    def begun(self) -> set[tuple[str, str]]:
        """The calls, by branch and call id, that were begun and have no outcome, of tools that may not be called twice."""
        found = set()
        for branch_id, head in self.heads.items():
            for part in (head, *head.nested):
                going = {call.id for call in part.calls if call.status == "started"}
                for outcome in part.journal:
                    if isinstance(outcome, CallStarted):
                        going.add(outcome.id)
                    elif isinstance(outcome, _OVER):
                        going.discard(outcome.id)
                    elif isinstance(outcome, Withdrawn):
                        going -= set(outcome.ids)
                found |= {(branch_id, call.call_id) for call in part.calls if call.id in going and not call.repeatable}
        return found


def at_the_crash(found: Found, witness: Witness) -> Iterator[str]:
    """Gives the laws that are broken when a worker has just died, and nobody has recovered anything yet."""
    yield from _kept(found, witness)
    for each in witness.entered():
        if each.run_id in _removed(witness) or each.run_id not in {item.run_id for item in found.branches.values()}:
            continue
        if each.key not in found.paths:
            yield f"{each.tool} was entered, and that it would be was not stored before (key {each.key})"
        yield from _approved(found, each)


def at_the_end(before: Found, found: Found, witness: Witness) -> Iterator[str]:
    """Gives the laws that are broken when everything was recovered; `before` is the content of the store at the crash."""
    yield from _kept(found, witness)
    yield from _ended(found, witness)
    yield from _entered_once(found, witness)
    yield from _asked_once(found)
    gone = _removed(witness)
    for branch_id, call_id in sorted(before.begun()):
        if branch_id in gone or found.heads[branch_id].ending is not None:
            continue
        asked = found.asked[branch_id].values()
        if not any(item.call_id == call_id and item.why == "outcome_unknown" for item in asked):
            yield f"call {call_id} of branch {branch_id} was under way, and no human was asked what became of it"


def _removed(witness: Witness) -> set[str]:
    return {id for line in witness.lines("removing") for id in line["branches"]}


def _kept(found: Found, witness: Witness) -> Iterator[str]:
    """Nothing that was stored is lost: no entry, no checkpoint, no decision."""
    gone = _removed(witness)
    trail = {(record.pending_id, record.kind) for record in found.trail}
    for line in witness.lines("wrote"):
        for pending_id, kind in line["decided"]:
            if (pending_id, kind) not in trail:
                yield f"the audit trail lost a decision ({kind} on {pending_id})"
        branch_id = line["branch"]
        if branch_id in gone:
            continue
        branch = found.branches.get(branch_id)
        if branch is None:
            yield f"branch {branch_id} was stored, and is gone"
            continue
        if branch.seq < line["seq"]:
            yield f"branch {branch_id} had {line['seq']} entries, and has {branch.seq}"
        if line["head"] is not None and line["head"] not in found.checkpoints:
            yield f"checkpoint {line['head']} was stored, and is gone"
        head = found.heads[branch_id]
        ends = head.ending is not None or any(isinstance(outcome, Ending) for outcome in head.journal)
        taken = {decision.pending_id for decision in found.decisions[branch_id]}
        for pending_id, kind in line["decided"]:
            # A record without a request is of a branch that somebody started, or of a call that a scope refused.
            if pending_id is not None and pending_id not in taken and not ends:
                yield f"a decision ({kind} on {pending_id}) was stored, and its branch {branch_id} lost it"


def _approved(found: Found, entered: Entered) -> Iterator[str]:
    """Checks that each call that needed approval was approved, exactly as it was entered."""
    what = f"{entered.tool} was entered (key {entered.key})"
    if entered.pending_id is None:
        if entered.gate == "always":
            yield f"{what} without an approval"
        return
    decision = found.approval(entered.pending_id)
    if decision is None:
        yield f"{what} under {entered.pending_id}, and no approval of that is stored"
    elif decision.args is not None:
        if str(decision.json_text("args")) != entered.text:
            yield f"{what} with other arguments than {entered.pending_id} was approved with"
    else:
        identity = ToolIdentity(
            path=decision.path,
            source=entered.source,
            name=entered.tool,
            schema_hash=entered.schema_hash,
            gate="always",
        )
        if call_digest(identity, entered.text) != decision.digest:
            yield f"{what} with another tool or other arguments than {entered.pending_id} was approved for"


def _ended(found: Found, witness: Witness) -> Iterator[str]:
    """Every run has ended, with one result for each call, and nothing waits."""
    if found.waiting:
        yield f"{', '.join(found.waiting)} still waits for a decision"
    for branch in found.branches.values():
        if branch.status not in ENDED:
            yield f"branch {branch.id} has not ended: it is {branch.status}"
        try:
            check_history(found.heads[branch.id].messages)
        except AssertionError as error:
            yield f"branch {branch.id}: {error}"
    gone = _removed(witness)
    for each in witness.entered():
        if each.run_id not in gone:
            yield from _approved(found, each)


def _entered_once(found: Found, witness: Witness) -> Iterator[str]:
    """No body was entered twice, but that of an idempotent tool, with the same key; a human may have a call run again."""
    entered = [each for each in witness.entered() if not each.raised]
    reruns = Counter(
        item.call_id
        for asked in found.asked.values()
        for item in asked.values()
        if item.why != "approval" and found.approval(item.id) is not None
    )
    keys: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for each in entered:
        path = found.paths.get(each.key, "")  # two runs inside one may have calls of one id
        keys[each.run_id, path, each.call_id, each.tool, each.text].add(each.key)
    for (run_id, _, call_id, tool, _), used in keys.items():
        if len(used) > max(1, len(found.salts[run_id])):
            yield f"{tool} was entered for call {call_id} of run {run_id} with {len(used)} idempotency keys"
    times = Counter((each.tool, each.key, each.call_id) for each in entered if not each.idempotent)
    for (tool, key, call_id), count in times.items():
        if count > 1 + reruns[call_id]:
            yield f"{tool} was entered {count} times (key {key})"


def _asked_once(found: Found) -> Iterator[str]:
    """Nobody is asked twice to approve the same, and nothing is decided twice."""
    for branch_id, asked in found.asked.items():
        items = [item for item in asked.values() if item.why == "approval"]
        times: dict[Any, int] = Counter((item.path, item.call_id, item.digest) for item in items)
        for (_, call_id, _), count in times.items():
            if count > 1:
                yield f"approval of call {call_id} of branch {branch_id} was asked for {count} times"
        for pending_id, count in Counter(each.pending_id for each in found.decisions[branch_id]).items():
            if count > 1:
                yield f"{pending_id} was decided {count} times"
