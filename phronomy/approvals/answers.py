"""Whether an answer fits the request that it is given to, as far as the request itself tells: no agent's code is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final, get_args

from phronomy.errors import InvalidDecision
from phronomy.foundation.json_text import JsonDict, JsonValue, clean
from phronomy.records.audit import AuditRecord
from phronomy.records.decisions import Answer, Approve, PendingApproval, Permitted, Reject, Respond, Skip
from phronomy.records.principals import Principal
from phronomy.records.record import digest_of

ANSWERS: Final[Set[type]] = {Approve, Reject, Respond, Skip}
"""The types of answers. A subclass is none: it could carry anything."""

ENDS: Final = (None, "post_tool_call", "post_node")
"""Points between two steps behind which nothing is left to skip."""


def check_key(key: object, name: str = "key") -> None:
    """Refuse what is no idempotency key, which `name` says where it was given. Raises `InvalidDecision`."""
    if key is not None and (not isinstance(key, str) or not key):
        raise InvalidDecision(f"{name} is text that is not empty, or None")
    # It would be stored with U+FFFD in their place, and so two different keys as one.
    if key is not None and clean(key) != key:
        raise InvalidDecision(f"{name} has a lone surrogate, which no Unicode text has: give another")


def answer_digest(answer: Answer, digest: str, said: str = "") -> str:
    """What tells an answer to the request of this digest from another one, exactly as it was given, with what was said beside it."""
    # The kind is a part of its own: earlier releases wrote answers without it, and their keys still match. The metadata decide
    # nothing, so the same answer with other metadata is the same decision.
    given = answer.model_dump_json(exclude={"kind", "metadata"})
    return digest_of(answer.kind, digest, given, *([said] if said else ()))


def is_same_answer(
    record: AuditRecord, answer: Answer, digest: str, by: Principal | None, key: str | None, said: str = ""
) -> bool:
    """Whether this is the very decision that the trail has: of the same person, under the same key, with the same answer."""
    # By the trail, which has what was given: the decision in the log holds arguments as the tool reads them, 40 as 40.0.
    if key is None or type(answer) not in ANSWERS:
        return False
    first = (record.by.id, record.by.kind) if record.by is not None else None
    second = (by.id, by.kind) if by is not None else None
    return (record.key, first, record.answer_digest) == (clean(key), second, answer_digest(answer, digest, said))


def has_words(answer: Answer) -> bool:
    """True if the answer has words of its author that the model reads: a result, other arguments or a reason."""
    if isinstance(answer, Approve):
        return answer.__dict__["args"] is not None
    return isinstance(answer, Respond) or (isinstance(answer, Reject) and bool(answer.reason))


def check_answer(item: PendingApproval, answer: Answer) -> None:
    """Refuse an answer that does not fit the request, whatever the agent says. Raises `InvalidDecision`."""
    check_permitted(item, answer)
    check_skip(item, answer)
    if item.why == "question":
        check_reply(item, answer)
    elif isinstance(answer, Approve) and item.external:
        raise run_elsewhere(item.id, item.tool_name)


def answers_to(item: PendingApproval) -> tuple[Permitted, ...]:
    """The kinds of decisions that a request takes."""
    every: tuple[Permitted, ...] = get_args(Permitted)
    never = ("approve", "edit") if item.external else ()
    return tuple(kind for kind in item.answers or every if kind not in never)


def check_permitted(item: PendingApproval, answer: Answer) -> None:
    """Refuse a decision of a kind that the request does not allow. Raises `InvalidDecision`."""
    # To skip a call, at a breakpoint, runs nothing and gives no result: nobody needs leave for that. Nor for letting it go on as it
    # is: that approves of nothing.
    edits = isinstance(answer, Approve) and answer.__dict__["args"] not in (None, item.__dict__["args"])
    goes_on = item.why == "breakpoint" and isinstance(answer, Approve) and not edits
    if not item.answers or isinstance(answer, Skip) or goes_on:
        return
    if edits:
        check_editable(item.id, item.tool_name, item.answers)
    elif (kind := answer.kind) not in item.answers:
        raise _not_allowed(item.id, item.tool_name, f"{kind!r} is not allowed", item.answers)


def check_editable(pending_id: str | None, tool_name: str, answers: tuple[Permitted, ...]) -> None:
    """Refuse edited arguments where these answers, if there are any, have no edit. Raises `InvalidDecision`."""
    if answers and "edit" not in answers:
        raise _not_allowed(pending_id, tool_name, "the arguments cannot be edited", answers)


def _not_allowed(pending_id: str | None, tool_name: str, what: str, answers: tuple[Permitted, ...]) -> InvalidDecision:
    return InvalidDecision(
        f"pending {pending_id} of {tool_name[:80]}: {what}. Nothing was decided: it takes {', '.join(answers)}",
        pending_id=pending_id,
    )


def run_elsewhere(pending_id: str | None, tool_name: str) -> InvalidDecision:
    """The refusal to approve a call of an external tool."""
    return InvalidDecision(
        f"pending {pending_id}: {tool_name[:80]} is an external tool, which nothing here can run: give what came of the call"
        " with Respond(content=...), or Reject it",
        pending_id=pending_id,
    )


def check_digest(item: PendingApproval, digest: str) -> None:
    """Refuse an answer to what somebody saw under the same id, and what does not wait there now. Raises `InvalidDecision`."""
    # What somebody was shown decides, and nothing else (law 2): they may have a page before them that is an hour old.
    if digest != item.digest:
        raise InvalidDecision(
            f"pending {item.id} has the digest {item.digest}, and not the one that the decision was given for: nothing was decided."
            " Look at what waits there, and decide that",
            pending_id=item.id,
        )


def check_shown(shown: Mapping[str, str], runs: Iterable[PendingApproval], checkpoint_id: str) -> None:
    """Refuse a request that runs something else at this checkpoint than was shown. Raises `InvalidDecision`.

    `shown` has the digests of what was shown, by pending id. What is not in it was not shown.
    """
    for item in runs:
        if shown.get(item.id, item.digest) != item.digest:
            raise shows_something_else(item.id, checkpoint_id)


def check_listed(listed: Iterable[PendingApproval], runs: Iterable[PendingApproval], checkpoint_id: str) -> None:
    """Refuse a request that is listed otherwise than it waits at this checkpoint. Raises `InvalidDecision`."""
    # The list and the log are written together, so they differ only if somebody has changed one of them in the store: the arguments,
    # or what kind of request it is. Others may vote on it meanwhile, be reminded of it, or write to the agent.
    known = {item.id: item for item in listed}
    for item in runs:
        shown = known.get(item.id, item)
        if shown is not item and _unwritten(shown).evolve(votes=item.votes, reminded=item.reminded) != _unwritten(item):
            raise shows_something_else(item.id, checkpoint_id)


def _unwritten(item: PendingApproval) -> PendingApproval:
    """The request without those who have written in its conversation."""
    return item.evolve(approvers=tuple([level.evolve(authors=(), known=()) for level in item.approvers]))


def shows_something_else(pending_id: str, checkpoint_id: str) -> InvalidDecision:
    """The refusal of a request that is listed otherwise than it waits."""
    return InvalidDecision(
        f"pending {pending_id} does not show what would run at checkpoint {checkpoint_id}, so somebody has changed the store."
        " Nothing was decided, and it still waits: look at that checkpoint, and decide by its id, or cancel the run",
        pending_id=pending_id,
    )


def check_skip(item: PendingApproval, answer: Answer) -> None:
    """Refuse what cannot be answered at a breakpoint, and a skip of what is none. Raises `InvalidDecision`."""
    # A stop between two steps has no tool: what is decided there is whether the run goes on.
    between = item.between_steps
    can_skip = not between or item.point not in ENDS
    wrong = None
    if isinstance(answer, Skip) and item.why != "breakpoint":
        wrong = "is no breakpoint: reject it"
    elif isinstance(answer, Skip) and not can_skip:
        wrong = "stands where nothing is left to skip: let it go on, or reject it to end the run"
    elif isinstance(answer, Respond) and between:
        ways = "approve it, skip it or reject it" if can_skip else "approve it or reject it"
        wrong = f"stands between two steps, where there is nothing to answer: {ways}"
    if wrong is not None:
        raise InvalidDecision(f"pending {item.id} {wrong}", pending_id=item.id)


def check_reply(item: PendingApproval, answer: Answer) -> None:
    """Refuse an answer that is not of the type which the body asked for. Raises `InvalidDecision`."""
    # The body is not entered to find this out. A wrong answer would come back to it as an error, long after the human has left.
    if isinstance(answer, Approve) and answer.args is not None:
        raise InvalidDecision(
            f"pending {item.id} is a question, and has no arguments to edit: answer it with Respond", pending_id=item.id
        )
    if isinstance(answer, Reject | Skip):
        return
    value = True if isinstance(answer, Approve) else answer.content
    if (wrong := misfit_of(item, value, declared=True)) is not None:
        raise InvalidDecision(
            f"the answer to question {item.args.get('key')!r} (pending {item.id}) is not of the type that was asked for: {wrong}",
            pending_id=item.id,
        )


_PLAIN: Final[Mapping[type[object], JsonDict]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    str: {"type": "string"},
}
"""Types whose schema says nothing else than the type."""


def misfit_of(item: PendingApproval, value: JsonValue, *, declared: bool = False) -> str | None:
    """Where a value does not fit the type that the body asked for; None if it fits, or if any value will do.

    With `declared`, it has no names but those of the type. The payload of an event may have more: it is made for many readers.
    """
    schema = item.args.get("answer")
    # Most questions are of these types, and the answers fit: a validator for each takes 0.15 ms, and the first loads jsonschema.
    if schema is None or any(type(value) is kind and schema == plain for kind, plain in _PLAIN.items()):
        return None
    from phronomy.tools.json_schema.answers import misfit  # noqa: PLC0415  # it loads jsonschema, and most runs ask nothing

    return misfit(value, schema, bounded=item.tool.source.startswith("mcp:"), declared=declared)
