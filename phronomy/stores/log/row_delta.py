"""What a row of a store holds of a checkpoint: what is new in it since its parent.

Lists that only grow are stored by their tail, a state by what is other in it, and a tool message whose result stands in the
journal as a reference to it, so every result is on disk once. So are the images of a call that has settled before its turn is over.
"""

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NotRequired, TypeAlias, cast

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model
from typing_extensions import TypedDict

from phronomy.errors import CheckpointError
from phronomy.foundation.json_text import JsonError, JsonText, canonical
from phronomy.records.calls import AnyOutcome, Call, CallResult, CallSettled, HandedOver, Outcome
from phronomy.records.checkpoint import VERSION, Checkpoint, Fields, content_of, result_message, tool_message
from phronomy.records.decisions import Decision
from phronomy.records.messages import Message, Settlement
from phronomy.records.record import NULL, Json, Record, explain, reader_of
from phronomy.stores.log.shown_state import MARK, filled, thinned
from phronomy.stores.log.text_patch import folded, patch, patched


class ResultRef(Record):
    """Stands in a row for the tool message of a call whose result is in the journal before the row."""

    ref: str


_LOGS: Final = ("messages", "decisions", "handoffs")
_APART: Final = ("version", "id", "parent_id", "path", "journal", "nested", *_LOGS)
_PLAIN: Final = tuple(name for name in Fields.model_fields if name not in _APART)
_LATER: Final = frozenset(name for name in _PLAIN if Fields.model_fields[name].exclude_if is not None)
"""Fields that the first rows of this version did not have: one that says nothing is left out of the first row, too."""

_REQUIRED: Final = frozenset(name for name in _PLAIN if Fields.model_fields[name].is_required())


class _Unchanged(Enum):
    """The default of a field in a row: it is as in the parent."""

    TOKEN = 0


class _Delta(Record):
    """The body of a row: fields that changed, and the tails of the lists. `cut` says where a list was not just added to.

    `patch` stands for a `state` that is an object as the parent's is: see `text_patch.py`; `shown` for the state that its
    calls were shown: see `shown_state.py`; `held` are the ids of calls whose results, with their images, are in the parent or
    the journal.
    """

    version: Literal[1] = VERSION
    cut: dict[str, int] = Field(default_factory=dict)
    patch: str | None = Field(default=None, repr=False)
    shown: dict[str, dict[str, str]] = Field(default_factory=dict, repr=False)
    held: tuple[str, ...] = ()
    messages: tuple[Message | ResultRef, ...] = ()
    decisions: tuple[Decision, ...] = ()
    handoffs: tuple[HandedOver, ...] = ()


if TYPE_CHECKING:
    Delta = _Delta
else:
    Delta = create_model(
        "Delta",
        __base__=_Delta,
        **{name: (Fields.model_fields[name].rebuild_annotation(), _Unchanged.TOKEN) for name in _PLAIN},
    )


_EMPTY: Final = Delta.model_construct()


def row_text(parent: Checkpoint | None, child: Checkpoint, settled: Mapping[str, CallSettled]) -> str:
    """The body of the row for `child`: what is new since `parent`.

    `settled` are the results in the journal between the two, by call id.
    """
    new = child.__dict__
    old = parent.__dict__ if parent is not None else {}
    fields: dict[str, Any] = {}
    for name in _PLAIN:
        if name not in old and name in _LATER and not new[name]:
            continue
        if name not in old or (new[name] is not old[name] and new[name] != old[name]):
            fields[name] = new[name]
    fields["created_at"] = new["created_at"]  # lists read it off the row alone
    if "state" in fields and old and not (change := patch(old["state"], new["state"])).startswith('{"whole":'):
        fields["patch"] = change
        del fields["state"]
    if "calls" in fields and child.kind == "graph":
        fields["calls"], left = thinned(fields["calls"], new["state"])
        fields |= {"shown": left} if left else {}
    for name in _LOGS:
        before, after = old.get(name, ()), new[name]
        count = len(before)
        if count and (len(after) < count or (after[count - 1] is not before[-1] and after[:count] != before)):
            fields["cut"] = {**fields.get("cut", {}), name: 0}
            count = 0
        if len(after) > count:
            fields[name] = after[count:]
    known = _known(parent, settled) if parent is not None and parent.run_id == child.run_id else _known(None, settled)
    if known and "messages" in fields:
        by_call = {call_id: (id, result) for id, (call_id, result) in known.items()}
        fields["messages"] = tuple(_as_ref(message, by_call) for message in fields["messages"])
    if known and "calls" in fields:
        fields["calls"], held = _without_images(fields["calls"], known)
        fields |= {"held": held} if held else {}
    delta = _EMPTY.evolve(**fields)
    object.__setattr__(delta, "__pydantic_fields_set__", set(fields))  # the others are as in the parent
    return delta.model_dump_json(exclude_unset=True, exclude_defaults=True)


def row_checkpoint(
    parent: Checkpoint | None, body: str, settled: Mapping[str, CallSettled], **columns: Any
) -> Checkpoint:
    """The checkpoint of a row: its parent with what the row adds. Raises `CheckpointError` for a body that is no row.

    `columns` are its id, path, and parent id; the last may be None for one that goes on from `parent` in the same branch.
    """
    if isinstance(body, str) and MARK in body:
        body = _filled(parent, body, columns["id"])
    delta = _read_strictly(Delta, body)
    begins = "run_id" in delta.model_fields_set
    if begins and columns["path"]:
        parent = None  # a run inside a call goes on from no other, whatever was at its path before
    if not begins and parent is not None and columns["parent_id"] is None:
        columns["parent_id"] = parent.id
    fields = {name: delta.__dict__[name] for name in delta.model_fields_set if name in _PLAIN}
    if delta.patch is not None:
        fields["state"] = _patched(parent, fields, delta.patch, columns["id"])
    known = _known(parent, settled)
    if delta.held:
        fields["calls"] = tuple(_with_images(call, delta.held, known) for call in fields.get("calls", ()))
    for name in _LOGS:
        before = getattr(parent, name)[: delta.cut.get(name)] if parent is not None else ()
        fields[name] = before + tuple(_from_ref(item, known) for item in getattr(delta, name))
    if parent is None:
        if not fields.keys() >= _REQUIRED:
            raise CheckpointError(
                f"the row of checkpoint {columns['id']} says what changed, and what it goes on from is missing"
            )
        return Checkpoint.model_construct(**columns, **fields)
    return parent.evolve(**fields, **columns, journal=(), nested=())


def _filled(parent: Checkpoint | None, body: str, id: str) -> str:
    try:
        return filled(body, _state_in(body, parent.json_text("state") if parent is not None else "null", ()))
    except ValueError as error:
        raise CheckpointError(f"the calls of checkpoint {id} cannot be put together: {error}") from None


def _state_in(body: str, before: str, patches: Sequence[str]) -> str:
    """The state as of a row: its own, or the one before it with these patches, and with its own."""
    row = json.loads(body)
    if isinstance(row, dict) and isinstance(row.get("state"), str):
        return str(row["state"])
    own = row.get("patch") if isinstance(row, dict) else None
    return folded(JsonText(before), [*patches, own] if isinstance(own, str) else patches)


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
    handoffs: list[HandedOver]
    calls: list[_Unread]


class _Kept(TypedDict):
    kind: Settlement
    content: str
    parts: NotRequired[Json]


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

_ONWARD: Final = frozenset(("version", "cut", "patch", "shown", "held", *_LOGS))
_BLANK: Final[Checkpoint] = cast("Any", Checkpoint).model_construct(**dict.fromkeys(("id", *_REQUIRED)))


def last_checkpoint(  # noqa: PLR0912  # one pass over the rows
    bodies: Sequence[str], journals: Sequence[Sequence[str]], **columns: Any
) -> Checkpoint:
    """The checkpoint that the rows of one path lead to. Raises `ValueError` for rows that are better read one after another.

    `journals` are the texts of the journal entries before each row, after the row before it. `columns` are the id and path of the
    last row, and its parent's id; `follows` is the id of the row before it, which is its parent where none is given.
    """
    said: list[_Said] = reader_of(list[_Said]).validate_json(f"[{','.join(bodies)}]")
    if len(said) != len(bodies):
        raise ValueError("a row is no JSON object")
    results = _results_of(bodies, journals)
    latest: dict[str, int] = {}  # which row has the last word on a field
    logs: dict[str, list[Any]] = {name: [] for name in _LOGS}
    changes: list[str] = []  # of the state, since it was last written whole
    seen = 0  # of them, in the row that has the last word on calls
    nested = columns["path"] != ""
    for place, row in enumerate(said):
        if nested and "run_id" in row:  # a run inside a call goes on from no other at its path
            latest, logs, changes = {}, {name: [] for name in _LOGS}, []
        latest |= dict.fromkeys(row, place)
        if "state" in row:
            changes = []
        if "patch" in row:
            if "state" in row:
                raise ValueError("a state is there, and what changed in it")
            changes.append(row["patch"])
        if "calls" in row:
            seen = len(changes)
        given: Mapping[str, Any] = row
        for name, log in logs.items():
            if "cut" in row:
                del log[row["cut"].get(name, len(log)) :]
            if (more := given.get(name)) is not None:
                log += [_referred(results, place, item["ref"]) if isinstance(item, dict) else item for item in more]
    if not latest.keys() >= _REQUIRED:
        raise ValueError("what the rows go on from is missing")
    if "held" in latest and latest["held"] == latest.get("calls"):
        raise ValueError("results of its calls are in other rows")
    if "shown" in latest and latest["shown"] == latest.get("calls"):
        bodies = _with_shown(bodies, latest, changes[:seen])
    read: dict[int, Mapping[str, Any]] = {}
    fields: dict[str, Any] = {name: tuple(log) for name, log in logs.items()}
    for name, place in latest.items():
        if name not in _ONWARD:
            if place not in read:
                read[place] = _Rest.model_validate_json(bodies[place]).__dict__
            fields[name] = read[place][name]
    if changes:
        fields["state"] = folded(fields.get("state", NULL), changes)
    follows = columns.pop("follows")
    if columns["parent_id"] is None and latest["run_id"] < len(bodies) - 1:
        columns["parent_id"] = follows
    return _BLANK.evolve(**columns, **fields)


def _with_shown(bodies: Sequence[str], latest: Mapping[str, int], changes: Sequence[str]) -> list[str]:
    """The rows, with what was left out in the one that has the last word on calls. `changes` of the state are those up to it."""
    place = latest["calls"]
    if latest["state"] > place:
        raise ValueError("a state was written whole since")
    whole = JsonText(json.loads(bodies[latest["state"]])["state"])
    return [*bodies[:place], filled(bodies[place], folded(whole, changes)), *bodies[place + 1 :]]


def _results_of(bodies: Sequence[str], journals: Sequence[Sequence[str]]) -> dict[tuple[int, str], Message]:
    """The messages for the results that rows refer to, by the place of the row and the id of the call."""
    places: list[int] = []
    texts: list[str] = []
    for place, journal in enumerate(journals):
        if journal and ('{"ref":' in bodies[place] or any('"parts":' in text for text in journal)):
            found = [text for text in journal if text.startswith('{"type":"settled"')]
            places += [place] * len(found)
            texts += found
    if not texts:
        return {}
    told: list[_Told] = reader_of(list[_Told]).validate_json(f"[{','.join(texts)}]")
    return {
        (place, one["id"]): tool_message(one["call_id"], _content_of(one["result"]), one["result"]["kind"])
        for place, one in zip(places, told, strict=True)
    }


def _content_of(kept: _Kept) -> JsonText:
    return content_of(CallResult(**kept)) if "parts" in kept else canonical(kept["content"])


def _referred(results: Mapping[tuple[int, str], Message], place: int, ref: str) -> Message:
    found = next((at for at in range(place, -1, -1) if (at, ref) in results), None)
    if found is None:
        raise ValueError("a result is not where it should be")
    return results[found, ref]


def outcome_text(outcome: Outcome) -> str:
    """The text of a journal entry."""
    rest = outcome.model_dump_json(exclude_defaults=True)[1:]
    return f'{{"type":"{outcome.type}"' + ("," if len(rest) > 1 else "") + rest


def outcome_from(text: str) -> Outcome:
    """The outcome in a journal entry. Raises `CheckpointError` for a text that is none."""
    outcome: Outcome = _read_strictly(reader_of(AnyOutcome), text)
    return outcome


def _read_strictly(target: Any, text: str) -> Any:
    read = target.validate_json if isinstance(target, TypeAdapter) else target.model_validate_json
    try:
        return read(text)
    except ValidationError as error:
        raise CheckpointError(f"a stored row cannot be read: {explain(error)}") from None


Known: TypeAlias = Mapping[str, tuple[str, CallResult]]
"""Results that a row may refer to, by the id of the call, with the provider's id of it."""


def _known(parent: Checkpoint | None, settled: Mapping[str, CallSettled]) -> Known:
    """The results in the journal before a row, and those with images that the calls of its parent have."""
    known: dict[str, tuple[str, CallResult]] = {}
    for call in parent.calls if parent is not None else ():
        if call.result is not None and call.result.has_parts:
            known[call.id] = (call.call_id, call.result)
    for id, outcome in settled.items():
        known[id] = (outcome.call_id, outcome.result)
    return known


def _as_ref(message: Message, by_call: Known) -> Message | ResultRef:
    id, result = by_call.get(message.tool_call_id or "", ("", None))
    if result is None or message.settlement != result.kind or message.json_text("content") != content_of(result):
        return message
    return ResultRef(ref=id)


def _from_ref(item: Any, known: Known) -> Any:
    return result_message(*_result(item.ref, known)) if isinstance(item, ResultRef) else item


def _without_images(calls: Sequence[Call], known: Known) -> tuple[tuple[Call, ...], tuple[str, ...]]:
    """The calls without the images in their results that are in the parent or the journal, and the ids of those calls."""
    held = [
        call.id
        for call in calls
        if call.result is not None and call.result.has_parts and known.get(call.id) == (call.call_id, call.result)
    ]
    kept = (
        call.evolve(result=call.result.evolve(parts=None)) if call.id in held and call.result else call
        for call in calls
    )
    return tuple(kept), tuple(held)


def _with_images(call: Call, held: Sequence[str], known: Known) -> Call:
    return call.evolve(result=_result(call.id, known)[1]) if call.id in held else call


def _result(id: str, known: Known) -> tuple[str, CallResult]:
    if id not in known:
        raise CheckpointError(f"a stored row refers to the result of call {id}, which is not in the journal")
    return known[id]
