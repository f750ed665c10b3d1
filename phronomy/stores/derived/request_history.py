"""The history of the requests for a decision in a log: each was asked, was decided, and came to something.

`Store.request` says how one of them stands, announcements tell each change of each. Both read it here, so that they cannot disagree.

- A request is *asked* once a checkpoint of the outermost run lists it, also one of a run inside a call. Before that nobody can find it.
  What is answered at once, by a handler, a grant or an event that came early, is never listed. Nothing is told of it; but a history of
  that one request follows it from its decision on.
- Somebody *voted* on it where the journal or a checkpoint first has a vote that does not decide it. Votes that a request is asked with
  were cast on the one before it.
- It is *decided* where the journal or a checkpoint first has its decision. One that is checked later is the same decision.
- What becomes of its call stands in the log under the path of its run. The log of a run inside a call may end before that: what is
  around it has settled the call by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Literal, TypeAlias

from phronomy.foundation.dataclasses import dataclass
from phronomy.records.approvers import Vote
from phronomy.records.calls import (
    Call,
    CallFailed,
    CallResult,
    CallSettled,
    CallStarted,
    CallUnknown,
    CallWaits,
    Decided,
    Outcome,
    Reminded,
    Voted,
    Withdrawn,
    path_inside,
)
from phronomy.records.checkpoint import Checkpoint, pending_of
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.records.messages import Settlement
from phronomy.rules.texts_for_model import passed_over

RequestFact: TypeAlias = Literal[
    "asked",
    "voted",
    "reminded",
    "escalated",
    "decided",
    "expired",
    "withdrawn",
    "carried_out",
    "failed",
]
"""What happens to a request: it is asked; it is voted on, reminded of and escalated as often as it takes; then it is decided or expired
or withdrawn; what was decided is carried out, fails, or is withdrawn with its run."""

CourseStatus: TypeAlias = Literal["pending", "decided", "running", "settled", "asked_again"]
"""As `RequestStatus`, without what only a clock can say."""


@dataclass(slots=True, kw_only=True)
class Course:
    """A request, with the votes that did not decide it, and what has become of it as far as the log was read.

    `call` is its call as it was when it was asked; of a question, the call whose body asks. `begun` says that the call has begun since
    the decision. `told` says that the last fact about the request is known: only the result of its call may follow.
    """

    approval: PendingApproval
    checkpoint_id: str
    call: Call | None
    status: CourseStatus = "pending"
    decision: Decision | None = None
    result: CallResult | None = field(default=None, repr=False)
    asked_again: str | None = None
    begun: bool = False
    told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestChange:
    """What happened to a request. `vote` is the vote, if it was one. `kind` is how its call ended, if it has."""

    what: RequestFact
    approval: PendingApproval
    checkpoint_id: str
    decision: Decision | None
    asked_again: str | None
    kind: Settlement | None
    vote: Vote | None


class RequestHistory:
    """Reads a log from its beginning, in order, and knows the requests in it. An entry costs what is open, and not what was."""

    def __init__(self, of: str | None = None) -> None:
        """`of` is the id of a request that is followed even if no checkpoint lists it."""
        self.requests: dict[str, Course] = {}
        self._of_one = of
        self._unlisted: Course | None = None  # that one, as it was when it was asked
        self._open: dict[str, Course] = {}  # of the run and branch that are read now
        self._rows: dict[str, Checkpoint] = {}  # the last of each path
        self._place = ("", "")
        self._found: list[RequestChange] = []

    def read(self, path: str, item: Checkpoint | Outcome) -> list[RequestChange]:
        """Take note of the next entry of the log, and give what it changes."""
        self._found = []
        if self._of_one is not None and self._unlisted is None:
            self._unlisted = self._asked_at(path, item, self._of_one)
        if isinstance(item, Checkpoint):
            self._checkpoint(item)
        elif self._open or self._unlisted is not None:
            self._outcome(path, item)
        return self._found

    def _asked_at(self, path: str, item: Checkpoint | Outcome, id: str) -> Course | None:
        """The request of this id, if it is asked in this entry of the log."""
        if isinstance(item, CallWaits):
            row = self._rows.get(path)
            call = next((each for each in row.calls if each.id == item.id), None) if row is not None else None
            shown = next((each for each in item.pending if each.id == id), None)
            at = row.id if row is not None else ""
            return Course(approval=shown, checkpoint_id=at, call=call, told=True) if shown is not None else None
        if not isinstance(item, Checkpoint):
            return None
        for call in item.calls:
            if call.pending_id == id:
                approval = pending_of(call, item.path, item.speaker, item.requester)
                return Course(approval=approval, checkpoint_id=item.id, call=call, told=True)
        return None

    # Entries

    def _outcome(self, path: str, outcome: Outcome) -> None:
        match outcome:
            case Decided() | Voted() | Reminded():
                self._answered(outcome)
            case CallStarted():
                for each in self._of(path, outcome.id):
                    if each.decision is not None and not each.told:
                        each.begun, each.status = True, "running"
            case Withdrawn():
                for id in outcome.ids:
                    for each in self._of(path, id):
                        each.begun = False
                        each.status = "decided" if each.status == "running" else each.status
            case CallUnknown() | CallFailed() if outcome.pending_id is not None:
                # It is asked once a checkpoint says so. The run may end before that, and then nobody is asked.
                for each in self._of(path, outcome.id):
                    each.status, each.asked_again = "asked_again", outcome.pending_id
            case CallFailed() if outcome.next == "model":
                self._result(path, outcome.id, CallResult(kind="failed", content=outcome.error))
            case CallSettled():
                self._result(path, outcome.id, outcome.result)
            case _:
                pass

    def _checkpoint(self, now: Checkpoint) -> None:
        place = (now.run_id, now.branch_id)
        if place != self._place:
            # The thread's next run, or a fork: what was open before is decided elsewhere, and a fork asks anew, under other ids.
            self._open = {}
            self._rows = self._rows if now.run_id == self._place[0] else {}
            self._place = place
        before, self._rows[now.path] = self._rows.get(now.path), now
        if self._open or self._unlisted is not None:
            self._decisions(before, now)
            if before is None or before.calls is not now.calls:
                self._calls(now)
        if now.path:
            return
        if before is None or before.calls is not now.calls:
            self._listed(now)
        if now.ended is not None:
            for each in [*self._open.values()]:
                self._left(each)

    def _decisions(self, before: Checkpoint | None, now: Checkpoint) -> None:
        known = before.decisions if before is not None else ()
        # One that was checked since has moved to the end: then all of them are looked at.
        follows = now.decisions[: len(known)] == known
        for decision in now.decisions[len(known) if follows else 0 :]:
            self._decided(decision)

    def _calls(self, now: Checkpoint) -> None:
        """Look at the call of each request that is open, and at the calls around it."""
        begins = now.path != "" and now.parent_id is None  # the call is run again, with a new run inside
        for each in [*self._open.values()]:
            path = each.approval.path
            if begins and each.decision is not None and f"{path}/".startswith(f"{now.path}/"):
                self._left(each)
            elif path == now.path:
                self._follow(each, now)
            elif not now.path or path.startswith(f"{now.path}/"):
                inside = path.removeprefix(now.path).lstrip("/")
                around = (call for call in now.calls if f"{inside}/".startswith(f"{call.id}/"))
                if all(call.result is not None for call in around):
                    self._left(each)

    def _listed(self, now: Checkpoint) -> None:
        """Take note of what waits at a checkpoint of the outermost run."""
        pending = {item.id: item for item in now.pending}
        for each in [*self._open.values()]:
            if each.decision is None and each.approval.id not in pending:
                self._left(each)
        for id, item in pending.items():
            if id not in self.requests:
                call = next(self._asking(item), None)
                asked = Course(approval=item, checkpoint_id=now.id, call=call)
                self.requests[id] = self._open[id] = asked
                self._tell(asked, "asked")
                continue
            # A decision that did not follow in the log: it does not count, and the request waits on.
            if (course := self._open.get(id)) is not None and course.decision is not None:
                course.decision, course.status, course.told, course.begun = None, "pending", False, False
                course.approval = item
            self._voted(id, item.votes)

    def _asking(self, item: PendingApproval) -> Iterator[Call]:
        """The call that a request is about."""
        row = self._rows.get(item.path)
        for call in row.calls if row is not None else ():
            if call.pending_id == item.id or call.question(item.id, item.path) is not None:
                yield call

    # Requests

    def _of(self, path: str, id: str) -> list[Course]:
        """The open requests about a call."""
        return [
            each
            for each in self._open.values()
            if each.approval.path == path and each.call is not None and each.call.id == id
        ]

    def _answered(self, outcome: Decided | Voted | Reminded) -> None:
        if isinstance(outcome, Reminded):
            if (each := self._open.get(outcome.pending_id)) is not None:
                each.approval = each.approval.evolve(reminded=outcome.step + 1)
                self._tell(each, outcome.what)
            return
        decision = outcome.decision
        # A vote that puts a new request in place of the old one is the decision on the old one.
        if isinstance(outcome, Decided) or outcome.request is not None:
            self._decided(decision)
        else:
            self._voted(decision.pending_id, decision.votes)

    def _voted(self, pending_id: str, votes: Sequence[Vote]) -> None:
        each = self._open.get(pending_id)
        if each is None or each.decision is not None:
            return
        for count in range(len(each.approval.votes) + 1, len(votes) + 1):
            each.approval = each.approval.evolve(votes=tuple(votes[:count]))
            self._tell(each, "voted", vote=votes[count - 1])

    def _decided(self, decision: Decision) -> None:
        self._voted(decision.pending_id, decision.votes[:-1])  # those that the log has nowhere else
        each = self._open.get(decision.pending_id) or self._at_once(decision.pending_id)
        if each is None:
            return
        first, each.decision = each.decision is None, decision
        if first and decision.kind == "supersede":  # another trigger of its wait was first
            self._left(each)
        elif first:
            each.status = "decided"
            self._tell(each, "expired" if decision.kind == "expire" else "decided")
            each.told = decision.kind in ("expire", "reject", "skip")

    def _at_once(self, pending_id: str) -> Course | None:
        """The request that was decided before a checkpoint listed it; None unless it is the one that is followed all the same."""
        if self._unlisted is None or pending_id != self._of_one or pending_id in self.requests:
            return None
        self.requests[pending_id] = self._open[pending_id] = self._unlisted
        return self._unlisted

    def _result(self, path: str, id: str, result: CallResult) -> None:
        """A call has its result: so have the requests about it, and those inside it are over."""
        for each in self._of(path, id):
            self._settled(each, result)
        inside = path_inside(path, id)
        for each in [*self._open.values()]:
            if f"{each.approval.path}/".startswith(f"{inside}/"):
                self._left(each)

    def _follow(self, each: Course, now: Checkpoint) -> None:
        """See how the call of a request stands at a checkpoint of its run."""
        if each.call is None:
            return
        stop = each.approval.between_steps  # the next stop of its kind may have its id
        call = next((one for one in now.calls if one.id == each.call.id), None)
        if call is None or (stop and call.pending_id != each.approval.id):
            self._gone(each, now)
        elif call.result is not None:
            self._settled(each, call.result)
        elif call.status == "pending" and call.pending_id != each.approval.id:
            # One that was let go on at a breakpoint is to be approved next, and a vote goes on to the others. In any other case the
            # answer has come to nothing.
            passed = each.approval.why == "breakpoint" and call.why == "approval"
            went_on = passed and not each.begun
            each.status, each.asked_again = "asked_again", call.pending_id
            put_on = bool(call.votes) and not each.begun  # an edit of one is for the others to decide
            self._over(each, "carried_out" if went_on else "withdrawn" if put_on else "failed")

    def _gone(self, each: Course, now: Checkpoint) -> None:
        """The turn of the call is closed: the conversation has its result, unless it never runs or is the node of a graph."""
        assert each.call is not None
        kind = each.decision.kind if each.decision is not None else None
        if each.approval.between_steps:
            each.status = "settled"
            self._over(each, "carried_out" if kind == "approve" else "withdrawn")
            return
        call_id = each.call.call_id
        said = next((message for message in reversed(now.messages) if message.tool_call_id == call_id), None)
        if said is not None and said.settlement is not None:
            self._settled(each, CallResult(kind=said.settlement, content=said.text))
        elif kind == "respond" and each.approval.why != "question":
            each.status = "settled"
            self._over(each, "carried_out", "responded")
        else:
            self._left(each)

    def _settled(self, each: Course, result: CallResult) -> None:
        each.result, each.status, each.asked_again = result, "settled", None
        if each.decision is None or (result.kind in ("cancelled", "superseded") and not each.begun):
            self._over(each, "withdrawn")
        else:
            self._over(each, "carried_out" if result.kind in ("completed", "responded") else "failed")

    def _left(self, each: Course) -> None:
        """The run goes on, or has ended, without what was asked: the log says no more of it."""
        each.status, each.asked_again = "settled", None
        if each.decision is not None and each.call is not None and not each.approval.between_steps:
            each.result = passed_over(each.call, each.decision, begun=each.begun)
        self._over(each, "failed" if each.begun else "withdrawn")

    def _over(self, each: Course, what: RequestFact, kind: Settlement | None = None) -> None:
        del self._open[each.approval.id]
        if not each.told:
            each.told = True
            self._tell(each, what, kind)

    def _tell(self, each: Course, what: RequestFact, kind: Settlement | None = None, vote: Vote | None = None) -> None:
        self._found.append(
            RequestChange(
                what=what,
                approval=each.approval,
                checkpoint_id=each.checkpoint_id,
                decision=each.decision,
                asked_again=each.asked_again,
                kind=each.result.kind if each.result is not None else kind,
                vote=vote,
            )
        )
