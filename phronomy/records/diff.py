"""What is different between two checkpoints: of one run, of its forks, or of runs that have nothing to do with each other."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar

from pydantic import Field

from phronomy.errors import ConfigurationError
from phronomy.foundation.json_text import canonical, pointer_part
from phronomy.records.approvers import Vote
from phronomy.records.calls import Call, CallStatus, Status
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.records.messages import Message, Usage
from phronomy.records.record import NULL, Json, Record, Text

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

Change: TypeAlias = Literal["added", "removed", "changed"]
"""What happened to a thing on the way from the first checkpoint to the second."""

PLACE: Final = ("version", "id", "parent_id", "branch_id", "run_id", "thread_id", "path", "created_at", "salt")
"""Fields that say where a checkpoint stands, not what is in it: they are not compared."""


class MessageChange(Record):
    """A message that differs, or that only one checkpoint has, at position `at` (from 0)."""

    change: Change
    at: int
    before: Message | None = Field(default=None, repr=False)
    after: Message | None = Field(default=None, repr=False)


class ValueChange(Record):
    """A changed value inside a JSON field.

    `path` is its JSON Pointer (RFC 6901), such as `/order/id`; it is empty for the whole field. `before` is None if the
    value was added, and `after` is None if it was removed.
    """

    change: Change
    path: Text = Field(repr=False)
    before: Json = Field(default=NULL, repr=False)
    after: Json = Field(default=NULL, repr=False)


class CallChange(Record):
    """A changed call of the open turn, with its status before and after (None: it is not in the open turn).

    `id` is phronomy's own id of the call. `tool_name` is None if it is not known yet which tool the call means.
    """

    change: Change
    id: str
    call_id: Text
    tool_name: Text | None = None
    before: CallStatus | None = None
    after: CallStatus | None = None


class PendingChange(Record):
    """A request that only the second checkpoint has (`added`), only the first (`removed`), or that has `changed`, by a vote.

    `path` is the path of the nested run that asks.
    """

    change: Change
    id: str
    tool_name: Text
    path: str = ""


class VoteChange(Record):
    """A vote on the request `pending_id` that only the second checkpoint has (`added`), or only the first (`removed`).

    The last vote is that of the decision.
    """

    change: Change
    pending_id: str
    vote: Vote = Field(repr=False)


class DecisionChange(Record):
    """A decision that only the second checkpoint has (`added`), or only the first (`removed`)."""

    change: Change
    decision: Decision = Field(repr=False)


class UsageDiff(Record):
    """The difference in usage between two checkpoints. A number is negative if the second checkpoint has used less.

    `cost` is in US dollars. It is None if the cost of either checkpoint is not known.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None

    @property
    def total_tokens(self) -> int:
        """The input and output tokens together."""
        return self.input_tokens + self.output_tokens


class NestedDiff(Record):
    """A nested run, by its path: either only one of the two checkpoints has it, or it differs as `diff` says."""

    change: Change
    path: str
    diff: "CheckpointDiff | None" = None


class CheckpointDiff(Record):
    """The differences between the checkpoint `before_id` and the checkpoint `after_id`. It is true if they differ.

    `differs` names each field that differs, except fields that only say where a checkpoint is (ids, parent, thread,
    time). The other fields show how: `messages` by position, `state` and `metadata` by path, then calls of the open
    turn, pending requests, votes, decisions and nested runs. `usage`, `steps`, `turns` and `elapsed` (active milliseconds) say
    how much more the second checkpoint has.

    `str()` and `lines()` contain only counts, ids and names of tools. The fields and `model_dump_json` contain the
    values.
    """

    before_id: str
    after_id: str
    differs: tuple[str, ...] = ()
    status: tuple[Status, Status]
    messages: tuple[MessageChange, ...] = ()
    state: tuple[ValueChange, ...] = ()
    metadata: tuple[ValueChange, ...] = ()
    calls: tuple[CallChange, ...] = ()
    pending: tuple[PendingChange, ...] = ()
    votes: tuple[VoteChange, ...] = ()
    decisions: tuple[DecisionChange, ...] = ()
    nested: tuple[NestedDiff, ...] = ()
    usage: UsageDiff = UsageDiff.model_construct()
    steps: int = 0
    turns: int = 0
    elapsed: int = 0

    def __bool__(self) -> bool:
        return bool(self.differs)

    def __str__(self) -> str:
        return f"{_shown(self.before_id)} -> {_shown(self.after_id)}: {', '.join(self._counts()) or 'no difference'}"

    def __repr__(self) -> str:
        return f"<CheckpointDiff {self}>"

    def lines(self) -> list[str]:
        """The differences as lines for a terminal: a heading, and a line for each change, without any content."""
        return [str(self), *(f"  {line}" for line in self._details())]

    def _counts(self) -> Iterator[str]:
        before, after = self.status
        if before != after:
            yield f"{before} -> {after}"
        for noun in _COUNTED:
            for change in ("added", "removed", "changed"):
                if count := sum(item.change == change for item in getattr(self, noun)):
                    yield f"{count} {_COUNTED[noun][count > 1]} {change}"
        for noun, number in self._numbers():
            if number:
                yield f"{number:+,} {noun}{'s' if abs(number) > 1 else ''}"
        if self.elapsed:
            yield f"{self.elapsed:+,} ms"
        if self.usage.cost:
            yield f"{self.usage.cost:+.4f} USD"
        told = [*_TOLD, "usage"] if self.usage != UsageDiff(cost=self.usage.cost) or self.usage.cost else _TOLD
        if others := [name for name in self.differs if name not in told]:
            yield f"also differs: {', '.join(others)}"

    def _numbers(self) -> tuple[tuple[str, int], ...]:
        return (
            ("step", self.steps),
            ("turn", self.turns),
            ("request", self.usage.requests),
            ("input token", self.usage.input_tokens),
            ("output token", self.usage.output_tokens),
        )

    def _details(self) -> Iterator[str]:
        for said in self.messages:
            roles = dict.fromkeys(each.role for each in (said.before, said.after) if each is not None)
            yield f"message {said.at} {said.change} ({' -> '.join(roles)})"
        for call in self.calls:
            yield f"call {_shown(call.id)}{_of(call.tool_name)}: {call.before or 'none'} -> {call.after or 'none'}"
        for item in self.pending:
            yield f"pending {_shown(item.id)}{_of(item.tool_name)} {item.change}"
        for cast in self.votes:
            yield f"vote on {_shown(cast.pending_id)} {cast.change}: {cast.vote.kind}"
        for taken in self.decisions:
            yield f"decision on {_shown(taken.decision.pending_id)} {taken.change}: {taken.decision.kind}"
        for part in self.nested:
            yield f"nested run {_shown(part.path)} {part.change}"
            yield from (f"  {line}" for line in (part.diff.lines() if part.diff is not None else ()))


_COUNTED: Final[Mapping[str, tuple[str, str]]] = {
    "messages": ("message", "messages"),
    "state": ("value of the state", "values of the state"),
    "metadata": ("value of the metadata", "values of the metadata"),
    "calls": ("call", "calls"),
    "pending": ("pending approval", "pending approvals"),
    "votes": ("vote", "votes"),
    "decisions": ("decision", "decisions"),
    "nested": ("nested run", "nested runs"),
}
_TOLD: Final = (*_COUNTED, "step", "turn", "elapsed", "ended")


def diff(before: Checkpoint, after: Checkpoint) -> CheckpointDiff:
    """Compare two checkpoints, of one run, its forks, or different runs, in either order.

    Messages are compared by position. A call has the same id in every branch of a run; calls of different runs are
    different calls. Raises `ConfigurationError` if an argument is not a checkpoint.
    """
    if not (isinstance(before, Checkpoint) and isinstance(after, Checkpoint)):
        raise ConfigurationError("two checkpoints are compared: load them by their ids first, with store.load")
    state, metadata = _values(before, after, "state"), _values(before, after, "metadata")
    nested = tuple(_nested(before, after))
    messages = tuple(_messages(before.messages, after.messages))
    found: dict[str, Any] = {"messages": messages, "state": state, "metadata": metadata, "nested": nested}
    return CheckpointDiff(
        before_id=before.id,
        after_id=after.id,
        differs=tuple(name for name in _COMPARED if (found[name] if name in found else _differs(before, after, name))),
        status=(before.status, after.status),
        messages=messages,
        state=state,
        metadata=metadata,
        calls=tuple(_calls(before, after)),
        pending=tuple(_pending(before, after)),
        votes=tuple(_votes(before, after)),
        decisions=tuple(_decisions(before.decisions, after.decisions)),
        nested=nested,
        usage=_usage(before.usage, after.usage),
        steps=after.step - before.step,
        turns=after.turn - before.turn,
        elapsed=after.elapsed - before.elapsed,
    )


_COMPARED: Final = tuple(name for name in Checkpoint.model_fields if name not in PLACE)
_JSON: Final = ("original_input", "output")


def _differs(before: Checkpoint, after: Checkpoint, name: str) -> bool:
    one, other = before.__dict__[name], after.__dict__[name]
    if one is other or one == other:
        return False
    return name not in _JSON or bool(_values(before, after, name))  # keys may stand in another order


def _messages(before: tuple[Message, ...], after: tuple[Message, ...]) -> Iterator[MessageChange]:
    """The messages that differ, by position: one walk, and messages that both share are the same object as a rule."""
    both = min(len(before), len(after))
    for at in range(both):
        one, other = before[at], after[at]
        if one is not other and one != other:
            yield MessageChange(change="changed", at=at, before=one, after=other)
    for at in range(both, len(before)):
        yield MessageChange(change="removed", at=at, before=before[at])
    for at in range(both, len(after)):
        yield MessageChange(change="added", at=at, after=after[at])


def _calls(before: Checkpoint, after: Checkpoint) -> Iterator[CallChange]:
    def by_id(checkpoint: Checkpoint) -> dict[tuple[str, str], Call]:
        return {(checkpoint.run_id, call.id): call for call in checkpoint.calls}

    for change, one, other in _paired(by_id(before), by_id(after)):
        call = other or one
        assert call is not None
        yield CallChange(
            change=change,
            id=call.id,
            call_id=call.call_id,
            tool_name=call.tool.name if call.tool is not None else None,
            before=one.status if one is not None else None,
            after=other.status if other is not None else None,
        )


def _pending(before: Checkpoint, after: Checkpoint) -> Iterator[PendingChange]:
    def by_id(items: Iterable[PendingApproval]) -> dict[str, PendingApproval]:
        return {item.id: item for item in items}

    for change, one, other in _paired(by_id(before.pending), by_id(after.pending)):
        item = other or one
        assert item is not None
        yield PendingChange(change=change, id=item.id, tool_name=item.tool_name, path=item.path)


def _votes(before: Checkpoint, after: Checkpoint) -> Iterator[VoteChange]:
    def of(checkpoint: Checkpoint) -> dict[tuple[str, Vote], None]:
        waiting = ((item.id, vote) for item in checkpoint.pending for vote in item.votes)
        decided = ((taken.pending_id, vote) for taken in checkpoint.decisions for vote in taken.votes)
        return dict.fromkeys([*decided, *waiting])

    one, other = of(before), of(after)
    yield from (VoteChange(change="removed", pending_id=id, vote=vote) for id, vote in one if (id, vote) not in other)
    yield from (VoteChange(change="added", pending_id=id, vote=vote) for id, vote in other if (id, vote) not in one)


def _decisions(before: Iterable[Decision], after: Iterable[Decision]) -> Iterator[DecisionChange]:
    one, other = dict.fromkeys(before), dict.fromkeys(after)
    yield from (DecisionChange(change="removed", decision=each) for each in one if each not in other)
    yield from (DecisionChange(change="added", decision=each) for each in other if each not in one)


def _nested(before: Checkpoint, after: Checkpoint) -> Iterator[NestedDiff]:
    def by_path(checkpoint: Checkpoint) -> dict[tuple[str, str], Checkpoint]:
        return {(checkpoint.run_id, part.path): part for part in checkpoint.nested}

    one, other = by_path(before), by_path(after)
    for place in {**one, **other}:
        if place not in other:
            yield NestedDiff(change="removed", path=place[1])
        elif place not in one:
            yield NestedDiff(change="added", path=place[1])
        elif found := diff(one[place], other[place]):
            yield NestedDiff(change="changed", path=place[1], diff=found)


def _usage(before: Usage, after: Usage) -> UsageDiff:
    # A run that has asked for nothing has cost nothing, whatever its provider would have said.
    one, other = (0.0 if used.requests == 0 else used.cost for used in (before, after))
    return UsageDiff(
        requests=after.requests - before.requests,
        input_tokens=after.input_tokens - before.input_tokens,
        output_tokens=after.output_tokens - before.output_tokens,
        cost=None if one is None or other is None else other - one,
    )


def _paired(before: Mapping[K, T], after: Mapping[K, T]) -> Iterator[tuple[Change, T | None, T | None]]:
    """What is under one key only, or another under it: first those of `before`, then those that are new."""
    for key, one in before.items():
        if key not in after:
            yield "removed", one, None
        elif one is not after[key] and one != after[key]:
            yield "changed", one, after[key]
    for key, other in after.items():
        if key not in before:
            yield "added", None, other


def _values(before: Checkpoint, after: Checkpoint, field: str) -> tuple[ValueChange, ...]:
    """The values in a JSON field that differ; only texts that differ are read."""
    if before.json_text(field) == after.json_text(field):
        return ()
    return tuple(_inside(getattr(before, field), getattr(after, field), ""))


def _inside(before: Any, after: Any, path: str) -> Iterator[ValueChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        places = [(key, key in before, key in after) for key in {**before, **after}]
    elif isinstance(before, list) and isinstance(after, list):
        places = [(at, at < len(before), at < len(after)) for at in range(max(len(before), len(after)))]
    else:
        if canonical(before) != canonical(after):  # True is not 1, and 5.0 is not 5
            yield ValueChange(change="changed", path=path, before=before, after=after)
        return
    for key, was, now in places:
        inner = f"{path}/{pointer_part(key)}"
        if was and now:
            yield from _inside(before[key], after[key], inner)
        elif was:
            yield ValueChange(change="removed", path=inner, before=before[key])
        else:
            yield ValueChange(change="added", path=inner, after=after[key])


def _of(tool_name: str | None) -> str:
    return f" ({_shown(tool_name)})" if tool_name is not None else ""


def _shown(name: str) -> str:
    """An id or a name as it can stand in a terminal, whoever chose it."""
    short = name if len(name) <= 80 else name[:80] + "..."
    return short if short.isprintable() else short.encode("unicode_escape").decode()
