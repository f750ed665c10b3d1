"""What a caller decides: whether it is well formed, and which pending approvals of a checkpoint it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from phronomy.approvals.answers import ANSWERS, answer_digest, check_key
from phronomy.conversation.input import read_input
from phronomy.errors import InvalidDecision, NothingDecided, UnknownPending
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import clean
from phronomy.foundation.quoting import kept_id, quoted_id
from phronomy.records.calls import Decided, Input, Voted
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Answer, Approve, PendingApproval, Reject
from phronomy.records.messages import Message, ToolCall
from phronomy.records.principals import Principal


@dataclass(frozen=True)
class Choice:
    """The choice of a caller of `resume` or `step`. `listed` is the one request, as the list of waiting requests shows it.

    `unseen` are the requests of the branch at `write_to` that do not wait at the checkpoint that it starts from.
    """

    approved: bool | None
    reason: str | None
    decisions: Mapping[str, Answer] | None
    by: Principal | None
    channel: str | None
    accept_changes: bool
    input: Input | None = field(default=None, repr=False)
    key: str | None = None
    write_to: str | None = None
    listed: PendingApproval | None = None
    unseen: frozenset[str] = frozenset()

    @property
    def decides(self) -> bool:
        """Whether there is any decision in it."""
        return self.approved is not None or bool(self.decisions)

    @property
    def message(self) -> Message | None:
        """What is said to the agent beside the decisions. Raises `ConfigurationError` for what is no input."""
        return read_input(self.input)[1] if self.input is not None else None

    @property
    def said(self) -> str:
        """What is said, as canonical text; empty if nothing is."""
        message = self.message
        return message.json_text("content") if message is not None else ""


def check_repeatable(choice: Choice) -> None:
    """Refuse an idempotency key of nobody: two people who say no names would pass for one. Raises `InvalidDecision`."""
    if choice.key is not None and choice.by is None:
        raise InvalidDecision("key goes with by: the same decision is one of the same person")


def check_choice(choice: Choice) -> None:
    """Refuse a choice that is malformed, whatever it is made on. Raises `InvalidDecision`."""
    approved, decisions, reason = choice.approved, choice.decisions, choice.reason
    if decisions is not None and not isinstance(decisions, Mapping):
        raise InvalidDecision(f"decisions is a mapping from ids to answers, not {type(decisions).__name__}")
    check_key(choice.key)
    for name, text in (("reason", reason), ("channel", choice.channel)):
        if text is not None and not isinstance(text, str):
            raise InvalidDecision(f"{name} is text, not {type(text).__name__}")
    if approved is None:
        if reason is not None:
            raise InvalidDecision("reason goes with approved; a decision by id carries its own")
    elif decisions is not None:
        raise InvalidDecision("give either approved or decisions, not both")
    # Neither 1 nor "yes": whatever is not exactly True approves nothing (law 1).
    elif type(approved) is not bool:
        raise InvalidDecision(f"approved takes True or False, not {type(approved).__name__}")
    elif approved and reason is not None:
        raise InvalidDecision("reason says why a call is rejected; an approval has none")


def with_key(outcome: Decided | Voted, answer: Answer, choice: Choice) -> Decided | Voted:
    """The outcome with the idempotency key that it was given under, and what was given, exactly."""
    if choice.key is None:
        return outcome
    decision = outcome.decision
    given = answer_digest(answer, decision.digest, choice.said)
    return outcome.evolve(decision=decision.evolve(key=clean(choice.key), answer_digest=given))


def check_undecided(choice: Choice) -> None:
    """Refuse what is for a resume, such as a decision, where an input is given: it begins a run. Raises `InvalidDecision`."""
    given = (choice.approved, choice.decisions, choice.input, choice.write_to)
    if given.count(None) < len(given):
        raise InvalidDecision(
            "a decision, input= or write_to= goes with a checkpoint, and this was given an input: of an id,"
            " agent.store.load(id) gives the checkpoint"
        )


def answers(given: Checkpoint, choice: Choice) -> dict[str, Answer]:
    """The answers by pending id. Raises `InvalidDecision`, `UnknownPending`."""
    check_choice(choice)
    if choice.approved is not None:
        item = the_only(given.pending, given.id)
        return {item.id: Approve() if choice.approved else Reject(reason=choice.reason)}
    # A breakpoint asks for nothing but to go on. An approval is never given by leaving it out (law 1).
    if not choice.decisions:  # to go on is all that a breakpoint waits for
        return {item.id: Approve() for item in given.pending if item.why == "breakpoint"}
    found: dict[str, Answer] = {}
    known = {item.id: item for item in given.pending}
    # Most ids are pending ids that no model gave to a call as well, and mean that request.
    named = {item.call_id for item in known.values()}.union(*[(call.id, call.original_id) for _, call in _calls(given)])
    for id, answer in choice.decisions.items():
        # A subclass could carry anything. A decision is stored, and read by whoever comes later, so it is one of four.
        if type(answer) not in ANSWERS:  # the type is asked, not the value, which may be anything
            raise InvalidDecision(
                f"the decision on {quoted_id(id)} is {type(answer).__name__}; it must be Approve, Reject, Respond or Skip",
                pending_id=kept_id(id) if isinstance(id, str) else None,
            )
        # Two ids may name one call: its pending id, and the id that the provider gave. Two answers to one call would contradict
        # each other in silence.
        item = known[id] if id in known and id not in named else meant_by(given, id)
        if item.id in found:
            raise InvalidDecision(
                f"pending {item.id} and call {quoted_id(item.call_id)} are one call, and both are decided: give one of the ids",
                pending_id=item.id,
            )
        found[item.id] = answer
    return found


def the_only(waiting: Sequence[PendingApproval], checkpoint_id: str) -> PendingApproval:
    """The request that `approved=` decides: the only one here that people answer. Raises `UnknownPending`, `NothingDecided`."""
    if not waiting:
        raise UnknownPending(f"nothing is pending at checkpoint {checkpoint_id}", pending_id="")
    # To say yes once is not to say yes to all that the model asked for at the same time, nor to the first of them.
    asked = _for_people(waiting)
    if len(asked) > 1:
        ids = [item.id for item in asked]
        raise NothingDecided(
            f"approved= decides one request, and {len(ids)} wait at checkpoint {checkpoint_id}: {', '.join(ids)}. Nothing was decided:"
            f" give {ways_to_decide(waiting)}",
            pending_ids=ids,
        )
    return asked[0]


def ways_to_decide(waiting: Sequence[PendingApproval]) -> str:
    """The arguments with which a caller can decide these requests."""
    asked = _for_people(waiting)
    if elsewhere := [item.id for item in asked if item.external]:
        return f"decisions={{pending_id: ...}}, with Respond(content=...) for what is external ({', '.join(elsewhere)})"
    if not asked[0].asks_human:
        return "decisions={pending_id: Reject()} to give up what is waited for, or send the event or wait for the time"
    if len(asked) > 1:
        return "decisions={pending_id: Approve()} or Reject() for each of them that you decide, or use approve_all for all approvals"
    return "approved=True or False, or decisions={pending_id: Approve()}"


def _for_people(waiting: Sequence[PendingApproval]) -> Sequence[PendingApproval]:
    """The requests among these that people answer; all, if they wait for events, times and runs alone."""
    return [item for item in waiting if item.asks_human] or waiting


def meant_by(given: Checkpoint, id: str) -> PendingApproval:
    """What waits at a checkpoint under this id: a pending id, or the id of a call where that names this call alone.

    The model chooses the ids of calls, and may choose one that is already there. So the id of a call counts only if no other call,
    of the run or of one inside it, has it or was renamed from it, and nothing else waits under it. A pending id means its request
    also where a call was renamed from it. Raises `UnknownPending`, `InvalidDecision`.
    """
    waiting = given.pending
    # A model could choose the id of its call so that it looks like the pending id of another. Both readings are tried, and only one
    # that is left without any doubt counts.
    own = [item for item in waiting if item.id == id]
    shown = [item for item in waiting if item.call_id == id]
    called = [each for each in _calls(given) if id in (each[1].id, each[1].original_id)]
    if (
        own
        and all(item in own for item in shown)
        and all(_is_of(own[0], *each, id) for each in called if each[1].id == id)
    ):
        return own[0]
    if not own and len(called) == len(shown) == 1 and _is_of(shown[0], *called[0], id):
        return shown[0]
    places = [(path, call.id) for path, call in called]
    meant = [item for item in waiting if item in own or item in shown or (item.path, item.call_id) in places]
    if not id or not meant:
        raise UnknownPending(
            f"nothing waits under {quoted_id(id)} at checkpoint {given.id}; pending there:"
            f" {', '.join(item.id for item in waiting) or 'nothing'}",
            pending_id=kept_id(id),
        )
    told = ", ".join(f"{item.id} (call {quoted_id(item.call_id)} of {item.tool_name})" for item in meant)
    raise InvalidDecision(
        f"{quoted_id(id)} does not name one call alone at checkpoint {given.id}: nothing was decided. What it may mean waits under"
        f" {told}: decide by these ids, or if that cannot be, on a fork, where they are others",
        pending_id=kept_id(id),
    )


def _calls(given: Checkpoint) -> list[tuple[str, ToolCall]]:
    """The calls that models have made, each with the path of its run: in the whole conversation, and in those of the runs inside."""
    runs = (given, *given.nested)
    return [(run.path, call) for run in runs for message in run.messages for call in message.tool_calls]


def _is_of(item: PendingApproval, path: str, call: ToolCall, id: str) -> bool:
    """Whether it is this call that waits there, and the id is the one that it goes by."""
    return (item.path, item.call_id) == (path, call.id) and call.id == id
