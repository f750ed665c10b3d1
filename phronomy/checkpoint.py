"""The checkpoint: a run, stopped at a boundary, as an immutable record that can be resumed anywhere.

Schema history, one sentence a version; an example of each is frozen under `tests/corpus/`:

1. The first: messages, calls of the open turn, decisions, journal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from pydantic import (
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    create_model,
    model_serializer,
    model_validator,
)
from pydantic_core import to_json
from typing_extensions import TypedDict

from phronomy._json import JsonError, JsonText, canonical, parse
from phronomy._patch import folded, patch, patched
from phronomy._record import EMPTY, NULL, Json, JsonObject, Record, Text, digest_of
from phronomy.approvals import Decision, PendingApproval
from phronomy.errors import CheckpointError
from phronomy.messages import Message, Settlement, Usage
from phronomy.types import AnyOutcome, Call, CallResult, CallSettled, End, Ending, Outcome, Refusal, Status, Unguarded

if TYPE_CHECKING:
    from typing import Self

VERSION: Final = 1
"""The schema version that this release writes."""

DERIVED: Final = ("status", "pending", "digest")
"""Keys of a dump that are computed from the rest, and must agree with it when they are read back."""


class AgentRef(Record):
    """The agent that made the checkpoint: its name, and what drift is judged by."""

    name: Text
    fingerprint: JsonObject = Field(default=EMPTY, repr=False)


class _Fields(Record):
    """The fields of a checkpoint. They are apart so that a text can be read strictly, without the derived keys."""

    version: Literal[1] = VERSION
    id: str = Field(min_length=1)
    parent_id: str | None = None
    branch_id: str
    run_id: str
    thread_id: Text | None = None
    kind: str = "agent"
    path: str = ""
    step: int = 0
    created_at: datetime
    label: Text | None = None
    metadata: JsonObject = Field(default=EMPTY, repr=False)
    agent: AgentRef
    original_input: Json = Field(repr=False)
    new_input: Json | None = Field(default=None, repr=False)
    messages: tuple[Message, ...] = Field(default=(), repr=False)
    turn: int = 0
    called: int = 0
    refused: int = 0
    calls: tuple[Call, ...] = ()
    decisions: tuple[Decision, ...] = ()
    blocked: tuple[str, ...] = ()
    ending: Ending | None = None
    rejecting: bool = False
    skipping: bool = False
    passed: tuple[str, ...] = ()
    unguarded: Unguarded | None = None
    refusal: Refusal | None = None
    ended: End | None = None
    output: Json = Field(default=NULL, repr=False)
    usage: Usage = Usage()
    elapsed: int = 0
    salt: str = ""
    state: Json = Field(default=NULL, repr=False)
    journal: tuple[AnyOutcome, ...] = Field(default=(), repr=False)
    nested: tuple[Checkpoint, ...] = Field(default=(), repr=False)


class Checkpoint(_Fields):
    """A run stopped at a boundary: everything that is needed to go on, and nothing that can change.

    `messages` are all messages of the conversation, `calls` the calls of the open turn, `decisions` those taken in this run,
    `turn`, `called` and `refused` count model calls, the calls they asked for, and answers that were not of the output type;
    `blocked` the digests of calls rejected for good. `new_input` is the input where a guardrail or a human changed it,
    `unguarded` what guardrails have yet to let through, `refusal` what they did not; `passed` are the breakpoints behind it.
    `journal` holds what has happened since the boundary, up to when this copy was read. `elapsed` is the active time of the run in
    milliseconds; waiting for a human is not in it. `nested` are the stopped runs inside this one. `state` belongs to the kind of
    run: None for an agent.

    `model_dump_json()` is the form to keep anywhere; `Checkpoint.model_validate_json(text)` reads it back, and raises
    `CheckpointError` for whatever is not exactly such a text. The dump holds the whole conversation in the clear.
    """

    @property
    def status(self) -> Status:
        """Where the run stands: an end, `suspended` while approvals are pending, else `running`."""
        return self.ended or ("suspended" if self.pending else "running")

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The approvals that wait for a human, those of nested runs included, in the order of the calls."""
        found: list[PendingApproval] = []
        for call in self.calls:
            if call.status == "pending":
                found.append(pending_of(call, self.path))
            elif call.status != "settled":
                found.extend(call.waiting)
        return tuple(found)

    @property
    def input(self) -> Any:
        """What the run is asked: the original input, unless a guardrail or a human changed it."""
        return self.original_input if self.__dict__["new_input"] is None else self.new_input

    @property
    def digest(self) -> str:
        """The SHA-256 over everything in the checkpoint. It shows damage and careless edits; it is no signature."""
        digest: str = self.model_dump(mode="json")["digest"]
        return digest

    @property
    def pending_tool_name(self) -> str | None:
        """The name of the first tool that waits, None if none does."""
        return self.pending[0].tool_name if self.pending else None

    @property
    def pending_tool_args(self) -> dict[str, Any] | None:
        """The validated arguments of the first tool that waits, None if none does."""
        return self.pending[0].args if self.pending else None

    @property
    def pending_tool_call_id(self) -> str | None:
        """The provider's id of the first call that waits, None if none does."""
        return self.pending[0].call_id if self.pending else None

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        if info.include is None and info.exclude is None:
            digest = _digest(data) if info.mode == "json" else self.digest
            pending = [item.model_dump(mode=info.mode) for item in self.pending]
            data |= {"status": self.status, "pending": pending, "digest": digest}
        return data

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if isinstance(data, dict) and (info.mode == "json" or "digest" in data):
            try:
                record: Self = cls._from_dump(json.loads(to_json(data)))
            except (ValueError, CheckpointError) as error:
                raise ValueError(explain(error)) from None
            return record
        return handler(data)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_: Any) -> Self:
        """The checkpoint in this text, read strictly. Raises `CheckpointError` for anything else."""
        try:
            record: Self = cls._from_dump(parse(json_data))
        except (ValidationError, JsonError) as error:
            raise CheckpointError(explain(error)) from None
        return record

    @classmethod
    def model_validate(cls, obj: Any, **_: Any) -> Self:
        """The checkpoint in this mapping. Raises `CheckpointError` for anything else."""
        try:
            return super().model_validate(obj)
        except (ValidationError, JsonError) as error:
            raise CheckpointError(explain(error)) from None

    @classmethod
    def _from_dump(cls, data: Any) -> Any:
        _check_version(data)
        text = canonical({key: value for key, value in data.items() if key not in DERIVED})
        record = cls.model_construct(**_Fields.model_validate_json(text).__dict__)
        again = record.model_dump(mode="json")
        wrong = [key for key in (*DERIVED, *again) if key not in data or _sorted(data[key]) != _sorted(again[key])]
        if wrong:
            raise CheckpointError(f"{wrong[0]!r} does not agree with the rest: the checkpoint was edited or damaged")
        return record


_Fields.model_rebuild()


def encode(checkpoint: Checkpoint) -> str:
    """The text of a checkpoint, to keep anywhere."""
    return checkpoint.model_dump_json()


def decode(text: str | bytes | bytearray) -> Checkpoint:
    """The checkpoint in a text. Raises `CheckpointError` for anything else."""
    return Checkpoint.model_validate_json(text)


_REQUEST: Final[PendingApproval] = cast("Any", PendingApproval).model_construct(
    **dict.fromkeys(PendingApproval.model_fields)
)


def pending_of(call: Call, path: str) -> PendingApproval:
    """The request for approval that a pending call stands for."""
    assert call.pending_id and call.tool and call.digest and call.requested_at
    return _REQUEST.evolve(  # every value is that of a valid call
        id=call.pending_id,
        call_id=call.call_id,
        tool=call.tool,
        args=call.__dict__["args"],
        digest=call.digest,
        path=path,
        why=call.why or "approval",
        reason=call.reason,
        point=call.point,
        label=call.label,
        requested_at=call.requested_at,
        expires_at=call.expires_at,
        on_expiry=call.on_expiry,
    )


def result_message(call_id: str, result: CallResult) -> Message:
    """The message that tells the model how its call ended."""
    return _result(call_id, result.content, result.kind)


_RESULT: Final = Message(role="tool", tool_call_id="")


def _result(call_id: str, content: str, kind: Settlement) -> Message:
    return _RESULT.evolve(content=canonical(content), tool_call_id=call_id, settlement=kind)


# A row holds what is new in a checkpoint since its parent. Lists that only grow are stored by their tail, a state by what is
# other in it, and a tool message whose result stands in the journal as a reference to it, so every result is on disk once.


class ResultRef(Record):
    """Stands in a row for the tool message of a call whose result is in the journal before the row."""

    ref: str


_LOGS: Final = ("messages", "decisions")
_APART: Final = ("version", "id", "parent_id", "path", "journal", "nested", *_LOGS)
_PLAIN: Final = tuple(name for name in _Fields.model_fields if name not in _APART)
_REQUIRED: Final = frozenset(name for name in _PLAIN if _Fields.model_fields[name].is_required())


class _Unchanged(Enum):
    """The default of a field in a row: it is as in the parent."""

    TOKEN = 0


class _Delta(Record):
    """The body of a row: fields that changed, and the tails of the lists. `cut` says where a list was not just added to.

    `patch` stands for a `state` that is an object as the parent's is: see `phronomy._patch`.
    """

    version: Literal[1] = VERSION
    cut: dict[str, int] = Field(default_factory=dict)
    patch: str | None = Field(default=None, repr=False)
    messages: tuple[Message | ResultRef, ...] = ()
    decisions: tuple[Decision, ...] = ()


if TYPE_CHECKING:
    Delta = _Delta
else:
    Delta = create_model(
        "Delta",
        __base__=_Delta,
        **{name: (_Fields.model_fields[name].rebuild_annotation(), _Unchanged.TOKEN) for name in _PLAIN},
    )


_EMPTY: Final = Delta()


def row_text(parent: Checkpoint | None, child: Checkpoint, settled: Mapping[str, CallSettled]) -> str:
    """The body of the row for `child`: what is new since `parent`.

    `settled` are the results in the journal between the two, by call id.
    """
    new = child.__dict__
    old = parent.__dict__ if parent is not None else {}
    fields: dict[str, Any] = {}
    for name in _PLAIN:
        if name not in old or (new[name] is not old[name] and new[name] != old[name]):
            fields[name] = new[name]
    fields["created_at"] = new["created_at"]  # lists read it off the row alone
    if "state" in fields and old and not (change := patch(old["state"], new["state"])).startswith('{"whole":'):
        fields["patch"] = change
        del fields["state"]
    for name in _LOGS:
        before, after = old.get(name, ()), new[name]
        count = len(before)
        if count and (len(after) < count or (after[count - 1] is not before[-1] and after[:count] != before)):
            fields["cut"] = {**fields.get("cut", {}), name: 0}
            count = 0
        if len(after) > count:
            fields[name] = after[count:]
    if settled and "messages" in fields:
        by_call = {outcome.call_id: outcome for outcome in settled.values()}
        fields["messages"] = tuple(_as_ref(message, by_call) for message in fields["messages"])
    delta = _EMPTY.evolve(**fields)
    object.__setattr__(delta, "__pydantic_fields_set__", set(fields))  # the others are as in the parent
    return delta.model_dump_json(exclude_unset=True, exclude_defaults=True)


def row_checkpoint(
    parent: Checkpoint | None, body: str, settled: Mapping[str, CallSettled], **columns: Any
) -> Checkpoint:
    """The checkpoint of a row: its parent with what the row adds. Raises `CheckpointError` for a body that is no row.

    `columns` are its id, path, and parent id; the last may be None for one that goes on from `parent` in the same branch.
    """
    delta = _read_strictly(Delta, body)
    begins = "run_id" in delta.model_fields_set
    if begins and columns["path"]:
        parent = None  # a run inside a call goes on from no other, whatever was at its path before
    if not begins and parent is not None and columns["parent_id"] is None:
        columns["parent_id"] = parent.id
    fields = {name: delta.__dict__[name] for name in delta.model_fields_set if name in _PLAIN}
    if delta.patch is not None:
        fields["state"] = _patched(parent, fields, delta.patch, columns["id"])
    for name in _LOGS:
        before = getattr(parent, name)[: delta.cut.get(name)] if parent is not None else ()
        fields[name] = before + tuple(_from_ref(item, settled) for item in getattr(delta, name))
    if parent is None:
        if not fields.keys() >= _REQUIRED:
            raise CheckpointError(
                f"the row of checkpoint {columns['id']} says what changed, and what it goes on from is missing"
            )
        return Checkpoint.model_construct(**columns, **fields)
    return parent.evolve(**fields, **columns, journal=(), nested=())


def _patched(parent: Checkpoint | None, fields: Mapping[str, Any], change: str, id: str) -> JsonText:
    if parent is None or "state" in fields:
        raise CheckpointError(f"the row of checkpoint {id} says what changed in a state that is not there")
    try:
        return patched(parent.__dict__["state"], JsonText(change))
    except JsonError as error:
        raise CheckpointError(f"the state of checkpoint {id} cannot be put together: {error}") from None


# The last checkpoint of a log, without those on the way to it: what rows say is put together, and what a later row replaces is
# not looked at. Every load and every resume begins so, and it costs what the conversation costs to read.


class _Unread(TypedDict):
    """An object that is there, whatever it holds."""

    __pydantic_config__ = ConfigDict(extra="ignore", strict=True)  # type: ignore[misc]


class _Ref(TypedDict):
    """As a `ResultRef`."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]

    ref: str


class _Said(TypedDict, total=False):
    """What of a row counts whatever follows it; of its other fields, that they are there."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    version: Literal[1]
    cut: dict[str, int]
    patch: str
    messages: list[Annotated[Message | _Ref, Field(union_mode="left_to_right")]]
    decisions: list[Decision]
    calls: list[_Unread]


class _Kept(TypedDict):
    kind: Settlement
    content: str


class _Told(TypedDict):
    """What of a result in the journal a row refers to."""

    __pydantic_config__ = ConfigDict(extra="ignore", strict=True)  # type: ignore[misc]

    type: Literal["settled"]
    id: str
    call_id: str
    result: _Kept


if TYPE_CHECKING:
    _Rest = _Delta
else:
    _Rest = create_model("_Rest", __base__=Delta, **dict.fromkeys(_LOGS, (Any, ())))

_SAID: Final = TypeAdapter(list[_Said])
_TOLD: Final = TypeAdapter(list[_Told])
_ONWARD: Final = frozenset(("version", "cut", "patch", *_LOGS))
_BLANK: Final[Checkpoint] = cast("Any", Checkpoint).model_construct(**dict.fromkeys(("id", *_REQUIRED)))


def last_checkpoint(bodies: Sequence[str], journals: Sequence[Sequence[str]], **columns: Any) -> Checkpoint:
    """The checkpoint that the rows of one path lead to. Raises `ValueError` for rows that are better read one after another.

    `journals` are the texts of the journal entries before each row, after the row before it. `columns` are the id and path of the
    last row, and its parent's id; `follows` is the id of the row before it, which is its parent where none is given.
    """
    said = _SAID.validate_json(f"[{','.join(bodies)}]")
    if len(said) != len(bodies):
        raise ValueError("a row is no JSON object")
    results = _results_of(bodies, journals)
    latest: dict[str, int] = {}  # which row has the last word on a field
    messages: list[Message] = []
    decisions: list[Decision] = []
    changes: list[str] = []  # of the state, since it was last written whole
    nested = columns["path"] != ""
    for place, row in enumerate(said):
        if nested and "run_id" in row:  # a run inside a call goes on from no other at its path
            latest, messages, decisions, changes = {}, [], [], []
        latest |= dict.fromkeys(row, place)
        if "state" in row:
            changes = []
        if "patch" in row:
            if "state" in row:
                raise ValueError("a state is there, and what changed in it")
            changes.append(row["patch"])
        if "cut" in row:
            del messages[row["cut"].get("messages", len(messages)) :]
            del decisions[row["cut"].get("decisions", len(decisions)) :]
        for item in row.get("messages", ()):
            messages.append(_referred(results, place, item["ref"]) if isinstance(item, dict) else item)
        if "decisions" in row:
            decisions += row["decisions"]
    if not latest.keys() >= _REQUIRED:
        raise ValueError("what the rows go on from is missing")
    rest = {name: place for name, place in latest.items() if name not in _ONWARD}
    read = {place: _Rest.model_validate_json(bodies[place]).__dict__ for place in set(rest.values())}
    fields = {name: read[place][name] for name, place in rest.items()}
    if changes:
        fields["state"] = folded(fields.get("state", NULL), changes)
    follows = columns.pop("follows")
    if columns["parent_id"] is None and latest["run_id"] < len(bodies) - 1:
        columns["parent_id"] = follows
    return _BLANK.evolve(**columns, messages=tuple(messages), decisions=tuple(decisions), **fields)


def _results_of(bodies: Sequence[str], journals: Sequence[Sequence[str]]) -> dict[tuple[int, str], Message]:
    """The messages for the results that rows refer to, by the place of the row and the id of the call."""
    places: list[int] = []
    texts: list[str] = []
    for place, journal in enumerate(journals):
        if journal and '{"ref":' in bodies[place]:
            found = [text for text in journal if text.startswith('{"type":"settled"')]
            places += [place] * len(found)
            texts += found
    told = _TOLD.validate_json(f"[{','.join(texts)}]")
    return {
        (place, one["id"]): _result(one["call_id"], one["result"]["content"], one["result"]["kind"])
        for place, one in zip(places, told, strict=True)
    }


def _referred(results: Mapping[tuple[int, str], Message], place: int, ref: str) -> Message:
    if (place, ref) not in results:
        raise ValueError("a result is not where it should be")
    return results[place, ref]


def outcome_text(outcome: Outcome) -> str:
    """The text of a journal entry."""
    rest = outcome.model_dump_json(exclude_defaults=True)[1:]
    return f'{{"type":"{outcome.type}"' + ("," if len(rest) > 1 else "") + rest


def outcome_from(text: str) -> Outcome:
    """The outcome in a journal entry. Raises `CheckpointError` for a text that is none."""
    outcome: Outcome = _read_strictly(_ANY_OUTCOME, text)
    return outcome


_ANY_OUTCOME: Final[TypeAdapter[Outcome]] = TypeAdapter(AnyOutcome)


def _read_strictly(target: Any, text: str) -> Any:
    read = target.validate_json if isinstance(target, TypeAdapter) else target.model_validate_json
    try:
        return read(text)
    except ValidationError as error:
        raise CheckpointError(f"a stored row cannot be read: {explain(error)}") from None


def _as_ref(message: Message, settled: Mapping[str, CallSettled]) -> Message | ResultRef:
    outcome = settled.get(message.tool_call_id or "")
    if (
        outcome is None
        or message.settlement != outcome.result.kind
        or message.json_text("content") != canonical(outcome.result.content)
    ):
        return message
    return ResultRef(ref=outcome.id)


def _from_ref(item: Any, settled: Mapping[str, CallSettled]) -> Any:
    if not isinstance(item, ResultRef):
        return item
    try:
        outcome = settled[item.ref]
    except KeyError:
        raise CheckpointError(
            f"a stored row refers to the result of call {item.ref}, which is not in the journal"
        ) from None
    return result_message(outcome.call_id, outcome.result)


def _digest(data: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in data.items() if key not in DERIVED}
    return digest_of(_sorted(kept))


def _sorted(data: Any) -> str:
    """The text of a value, the same in whatever order its keys stand: other tools may have rewritten the document."""
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _check_version(data: Any) -> None:
    if not isinstance(data, dict):
        raise CheckpointError("this is no checkpoint: a JSON object is needed")
    version = data.get("version")
    if type(version) is not int:
        raise CheckpointError("this is no checkpoint: it has no version")
    if version > VERSION:
        raise CheckpointError(
            f"the checkpoint is of a newer schema version, and this release reads up to {VERSION}: upgrade phronomy"
        )


def explain(error: Exception) -> str:
    """What is wrong and where, without any value: a checkpoint's content does not belong in an error."""
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = []
    for item in found[:3]:
        where = ".".join(str(part)[:80] for part in item["loc"]) or "checkpoint"
        tag = item["type"] == "union_tag_invalid"  # the text of that one quotes the value
        told.append(f"{where}: {'this is of an unknown type' if tag else item['msg']}")
    return "; ".join(told) + (f" (and {len(found) - 3} more)" if len(found) > 3 else "")
