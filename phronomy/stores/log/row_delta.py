"""The body of a row: the difference between a checkpoint and its parent.

A checkpoint holds the whole conversation. If each row did, a run of n turns would take space in n squared. So a row holds

- of a list that grows (messages, decisions, handoffs) the new items,
- of a graph's state a patch (`text_patch.py`),
- of the calls of a turn those that changed, where most did not,
- of any other field its new value, if it has one,
- in place of a tool's message or images a reference, where the result is in the journal before the row: each result is stored once,
- of a call that nobody has to decide what its message does not say (`row_call.py`).

The first row of a log holds every field that is required, and the others that say something. What it says twice it says once: the
branch that has the id of its run, the original input that is the first message. A row that goes on from something missing cannot be
read, and says so: it never gives a checkpoint with a part left out. A log in which a row was changed by hand may
give another checkpoint; a reader who holds the digest of the old one sees that.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NotRequired, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, ValidationError, create_model
from typing_extensions import TypedDict

from phronomy.errors import CheckpointError
from phronomy.foundation.json_text import JsonError, JsonText, canonical
from phronomy.records.calls import AnyOutcome, Call, CallResult, CallSettled, HandedOver, Outcome
from phronomy.records.checkpoint import BLANK, VERSION, Checkpoint, Fields, content_of, result_message, tool_message
from phronomy.records.decisions import Decision
from phronomy.records.messages import Message, Settlement
from phronomy.records.principals import Principal, is_recorded_alike
from phronomy.records.record import NULL, Json, Record, explain, reader_of
from phronomy.stores.log.kept_members import Texts, with_members
from phronomy.stores.log.row_call import NO_REPLY, Reply, RowCall, thin, whole_calls
from phronomy.stores.log.shown_state import MARK, filled, thinned
from phronomy.stores.log.text_patch import folded, patch, patched

T = TypeVar("T")


class Columns(TypedDict):
    """The columns of a row beside its body. `parent_id` is None if the parent is the row before it."""

    id: str
    parent_id: str | None
    path: str


class ResultRef(Record):
    """Stands in a row for the tool message of a call whose result is in the journal before the row."""

    ref: str


# Lists that only grow, but for rare cuts. Each has a tail in the row and no place in the comparison of fields: to
# compare the whole conversation at each turn would cost what the deltas save.
_LOGS: Final = ("messages", "decisions", "handoffs")
# Never in a body: the columns of the row say its id, parent and path, the journal and nested runs are rows of their
# own.
_APART: Final = ("version", "id", "parent_id", "path", "journal", "nested", *_LOGS)
# Derived from the record, not listed: a field that is added to a checkpoint is in the rows from then on, and cannot be
# forgotten here.
_PLAIN: Final = tuple(name for name in Fields.model_fields if name not in _APART)
_IN_ROW: Final = {"calls": tuple[RowCall, ...]}  # otherwise than in a checkpoint
_REQUIRED: Final = frozenset(name for name in _PLAIN if Fields.model_fields[name].is_required())


# Not None: a field may have become None, and that is a change.
class _Unchanged(Enum):
    """The default of a field in a row: it is as in the parent."""

    TOKEN = 0


class _Delta(Record):
    """The body of a row: fields that changed, and the tails of the lists. `cut` says where a list was not just added to.

    `patch` stands for a `state` that is an object as the parent's is: see `text_patch.py`; `changed` for the `calls` of the
    parent with these in place of those that have their ids; `shown` for the state that its calls were shown: see
    `shown_state.py`; `held` are the ids of calls whose results, with their images, are in the parent or the journal.
    """

    # A row of a later release fails here, by name, and is not read as something else.
    version: Literal[1] = VERSION
    cut: dict[str, int] = Field(default_factory=dict)
    # Text inside of text, quoted: a patch is read by the code that made it, and the parser of rows need not know what
    # is in a user's state.
    patch: str | None = Field(default=None, repr=False)
    changed: tuple[RowCall, ...] = ()
    shown: dict[str, dict[str, str]] = Field(default_factory=dict, repr=False)
    # A screenshot that a tool returned is a megabyte. Its call stands in several rows before the turn is over, its
    # image in one of them.
    held: tuple[str, ...] = ()
    messages: tuple[Message | ResultRef, ...] = ()
    decisions: tuple[Decision, ...] = ()
    handoffs: tuple[HandedOver, ...] = ()


if TYPE_CHECKING:
    # What pydantic makes at run time has no type that a checker could see; the base class says all that the code uses.
    Delta = _Delta
else:
    Delta = create_model(
        "Delta",
        __base__=_Delta,
        **{
            name: (_IN_ROW.get(name) or Fields.model_fields[name].rebuild_annotation(), _Unchanged.TOKEN)
            for name in _PLAIN
        },
    )


_EMPTY: Final = Delta.model_construct()


def row_text(parent: Checkpoint | None, child: Checkpoint, settled: Mapping[str, CallSettled]) -> str:
    """The body of the row for `child`: what is new since `parent`.

    `settled` are the results in the journal between the two, by call id.
    """
    # Past the attributes, which hand out copies: what is compared here are the texts themselves, and most are the very
    # objects of the parent.
    new = child.__dict__
    old = parent.__dict__ if parent is not None else {}
    # A first row is what is new since a run of which nothing is known: whoever reads it puts the defaults in.
    before = old or BLANK.__dict__
    # Identity first: a state or a schema that was carried over is not compared character by character.
    fields = {name: new[name] for name in _PLAIN if new[name] is not before[name] and _differs(new[name], before[name])}
    fields["created_at"] = new["created_at"]  # lists read it off the row alone
    if parent is None:
        _leave_implied(fields, new["messages"])
    elif "run_id" not in fields:
        # Each row is a step further than the one before it. What is left out of a row is otherwise as it was.
        fields["step"] = new["step"]
        if new["step"] == old["step"] + 1:
            del fields["step"]
    # A patch only where it is shorter. A state that was replaced as a whole is written as a whole, which also gives
    # readers a place to begin from.
    if "state" in fields and old and not (change := patch(old["state"], new["state"])).startswith('{"whole":'):
        fields["patch"] = change
        del fields["state"]
    calls: Sequence[Call] = child.calls
    # A gated node is judged by the whole state, so its call holds a copy of it; without this each wave would write the
    # state once more for each of its nodes.
    if "calls" in fields and child.kind == "graph":
        calls, left = thinned(calls, new["state"])
        fields |= {"calls": calls, "shown": left} if left else {}
    elif "calls" in fields and (changed := _changed(old.get("calls", ()), calls)):
        # Fifty agents that are asked at once stop one after the other. Each of these rows would hold all fifty calls.
        calls = fields["changed"] = changed
        del fields["calls"]
    cut: dict[str, int] = {}
    tails: dict[str, tuple[Any, ...]] = {}
    for name in _LOGS:
        had, after = old.get(name, ()), new[name]
        # A list that was cut or changed before its end (guardrails took a refused input out again) is written anew from
        # its beginning. That is rare, and the row stays true on its own.
        count = len(had)
        if count and (len(after) < count or (after[count - 1] is not had[-1] and after[:count] != had)):
            cut[name] = count = 0
        if len(after) > count:
            tails[name] = after[count:]
    # Results of another run of the thread are not referred to: that run may be deleted, and this one has to stay whole.
    known = _known(parent if parent is not None and parent.run_id == child.run_id else None, settled)
    # The result is in the journal, written the moment it settled. The message made of it says the same again, so the
    # row refers to it, and every result is on the disk once.
    if known and "messages" in tails:
        by_call = {call_id: (id, result) for id, (call_id, result) in known.items()}
        tails["messages"] = tuple(_as_ref(message, by_call) for message in tails["messages"])
    written = "changed" if "changed" in fields else "calls"
    if known and written in fields:
        calls, held = _without_images(calls, known)
        fields |= {written: calls, "held": held} if held else {}
    if fields.get(written):
        # What calls were shown of a state is put into the row as a text, so they have to be there.
        is_reply = written == "calls" and "shown" not in fields
        reply = Reply.of(fields.get("turn"), tails.get("messages", ())) if is_reply else NO_REPLY
        fields[written] = tuple([thin(call, place, reply) for place, call in enumerate(fields[written])])
    fields |= {**tails, **({"cut": cut} if cut else {})}
    delta = _EMPTY.evolve(**fields)
    # Not every field was validated again: they come from a record that is valid. What is set says what is written, an
    # empty list that became empty included.
    object.__setattr__(delta, "__pydantic_fields_set__", set(fields))  # the others are as in the parent
    return delta.model_dump_json(exclude_unset=True, exclude_defaults=True)


def row_checkpoint(
    parent: Checkpoint | None, body: str, settled: Mapping[str, CallSettled], columns: Columns
) -> Checkpoint:
    """The checkpoint of a row: its parent with what the row adds. Raises `CheckpointError` for a body that is no row."""
    # Before anything is validated: with the parts put back in, a row is a row like any other, and one set of rules
    # judges it.
    if isinstance(body, str) and MARK in body:
        body = _filled(parent, body, columns["id"])
    delta = _read_strictly(Delta.model_validate_json, body)
    # Only the first row of a run names it. Whatever else it leaves out is not there, rather than unchanged.
    begins = "run_id" in delta.model_fields_set
    if begins and columns["path"]:
        parent = None  # a run inside a call goes on from no other, whatever was at its path before
    # A column that is empty means the row before it. The first row of a run with an empty column has no parent at all.
    if not begins and parent is not None and columns["parent_id"] is None:
        columns["parent_id"] = parent.id
    fields = {name: delta.__dict__[name] for name in delta.model_fields_set if name in _PLAIN}
    if parent is not None and not begins:
        fields.setdefault("step", parent.step + 1)
    if "calls" in fields:
        reply = Reply.of(fields.get("turn"), delta.messages)
        fields["calls"] = _whole(fields["calls"], reply, columns["id"])
    if delta.patch is not None:
        fields["state"] = _patched(parent, fields, delta.patch, columns["id"])
    if delta.changed:
        changed = _whole(delta.changed, NO_REPLY, columns["id"])
        fields["calls"] = _with_changed(parent, fields, changed, columns["id"])
    known = _known(parent, settled)
    # From the parent or the journal, by the id of the call. A reference to neither is a log that somebody has cut, and
    # fails.
    if delta.held:
        fields["calls"] = tuple(_with_images(call, delta.held, known) for call in fields.get("calls", ()))
    for name in _LOGS:
        # A tail on nothing would look like a shorter conversation. It is caught below: the first row of a log has all
        # required fields, or the row fails.
        before = getattr(parent, name)[: delta.cut.get(name)] if parent is not None else ()
        fields[name] = before + tuple(_from_ref(item, known) for item in getattr(delta, name))
    if parent is None:
        fields = {**_implied(fields, fields["messages"]), **fields}
        if not fields.keys() >= _REQUIRED:
            raise CheckpointError(
                f"the row of checkpoint {columns['id']} says what changed, and what it goes on from is missing"
            )
        # Each field was validated with the row. The whole is not validated a second time: rows were written by this
        # code from a valid record, and rows that anybody could forge are out of scope here, as `docs/guarantees.md`
        # says of trust.
        return Checkpoint.model_construct(**columns, **fields)
    return parent.evolve(**fields, **columns, journal=(), nested=())


def _differs(new: object, old: object) -> bool:
    """True if a field is written anew. Equal principals may differ in the words of the directory, which a run begins with."""
    if isinstance(new, Principal) and isinstance(old, Principal):
        return not is_recorded_alike(new, old)
    return new != old


def _leave_implied(fields: dict[str, Any], messages: Sequence[Message]) -> None:
    """Take out of the first row of a log what `_implied` gives back."""
    for name, value in _implied(fields, messages).items():
        if fields.get(name) == value:
            del fields[name]


def _implied(fields: Mapping[str, Any], messages: Sequence[object]) -> dict[str, Any]:
    """What the first row of a log says without saying it: the branch is the run's own, and the run began with the first message."""
    # Of a row that names no run nothing follows: what it goes on from is missing, and it must not look whole.
    implied: dict[str, Any] = {"branch_id": run_id} if isinstance(run_id := fields.get("run_id"), str) else {}
    if implied and messages and isinstance(first := messages[0], Message) and first.role == "user":
        implied["original_input"] = first.__dict__["content"]
    return implied


def _filled(parent: Checkpoint | None, body: str, id: str) -> str:
    try:
        return filled(body, _state_in(body, parent.json_text("state") if parent is not None else "null", ()))
    except ValueError as error:
        raise CheckpointError(f"the calls of checkpoint {id} cannot be put together: {error}") from None


# Read by plain `json`, as a row may be looked at that will turn out to be damaged: what is wrong with it is for the
# validation to say.
def _state_in(body: str, before: str, patches: Sequence[str]) -> str:
    """The state as of a row: its own, or the one before it with these patches, and with its own."""
    row = json.loads(body)
    if isinstance(row, dict) and isinstance(row.get("state"), str):
        return str(row["state"])
    own = row.get("patch") if isinstance(row, dict) else None
    return folded(JsonText(before), [*patches, own] if isinstance(own, str) else patches)


def _patched(parent: Checkpoint | None, fields: Mapping[str, object], change: str, id: str) -> JsonText:
    # A forged or damaged row may say both, a state and what changed in it. No order of the two would be right.
    if parent is None or "state" in fields:
        raise CheckpointError(f"the row of checkpoint {id} says what changed in a state that is not there")
    try:
        return patched(parent.__dict__["state"], JsonText(change))
    except JsonError as error:
        raise CheckpointError(f"the state of checkpoint {id} cannot be put together: {error}") from None


def _whole(calls: Sequence[RowCall], reply: Reply, id: str) -> tuple[Call, ...]:
    try:
        return whole_calls(calls, reply)
    except ValueError as error:
        raise CheckpointError(f"a stored row cannot be read: the calls of checkpoint {id}: {error}") from None


def _with_changed(
    parent: Checkpoint | None, fields: Mapping[str, object], changed: Sequence[Call], id: str
) -> tuple[Call, ...]:
    if parent is None or "calls" in fields:
        raise CheckpointError(f"the row of checkpoint {id} says what changed in calls that are not there")
    try:
        return _put_in(parent.calls, changed)
    except ValueError as error:
        raise CheckpointError(f"the calls of checkpoint {id} cannot be put together: {error}") from None


# The last checkpoint of a log, without those on the way to it: what rows say is put together, and what a later row
# replaces is not looked at. Every load and every resume begins so, and it costs what the conversation costs to read.


# Calls are validated once, in the row that has the last word on them. Of the others it only counts that something is
# there.
class _Unread(TypedDict):
    """An object that is there, whatever it holds."""

    __pydantic_config__ = ConfigDict(extra="ignore", strict=True)  # type: ignore[misc]


class _Ref(TypedDict):
    """As a `ResultRef`."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]

    ref: str


class _Said(TypedDict, total=False):
    """The parts of a row that count whatever rows follow. Of its other fields only their presence is noted."""

    # Extra fields are allowed, and not ignored: which fields a row has is what decides whose word is the last.
    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    version: Literal[1]
    cut: dict[str, int]
    patch: str
    messages: list[Annotated[Message | _Ref, Field(union_mode="left_to_right")]]
    decisions: list[Decision]
    handoffs: list[HandedOver]
    calls: list[_Unread]
    changed: list[_Unread]
    usage: _Unread


class _Kept(TypedDict):
    kind: NotRequired[Settlement]  # there is none where the call completed
    content: str
    parts: NotRequired[Json]


class _Told(TypedDict):
    """The parts of a result in the journal that a row may refer to."""

    __pydantic_config__ = ConfigDict(extra="ignore", strict=True)  # type: ignore[misc]

    type: Literal["settled"]
    id: str
    call_id: str
    result: _Kept


if TYPE_CHECKING:
    # The three lists are taken from `_Said`, where each tail was validated. Here they are not looked at a second time.
    _Rest = _Delta
else:
    _Rest = create_model("_Rest", __base__=Delta, **dict.fromkeys(_LOGS, (Any, ())))

_ONWARD: Final = frozenset(("version", "cut", "patch", "changed", "shown", "held", *_LOGS))


def last_checkpoint(  # noqa: PLR0912  # one pass over the rows
    bodies: Sequence[str], journals: Mapping[int, Sequence[str]], columns: Columns, follows: str | None, kept: Texts
) -> Checkpoint:
    """The checkpoint that the rows of one path lead to. Raises `ValueError` for rows that are better read one after another.

    `journals` are the texts of the journal entries before a row, after the row before it, by its place. `columns` are those of the
    last row; `follows` is the id of the row before it. `kept` gives the texts that rows name.
    """
    # All rows as one JSON text: one call of the validator costs a fraction of one call for each row.
    said: list[_Said] = reader_of(list[_Said]).validate_json(f"[{','.join(bodies)}]")
    # A body `1},{2` would make two rows of one: then the count is off, and it is read the slow way, which refuses it.
    if len(said) != len(bodies):
        raise ValueError("a row is no JSON object")
    # By the place of the row as well as by the id of the call: the thread's next run, in the same log, counts its calls
    # from the beginning, so an id alone may stand for several results.
    results = _results_of(bodies, journals)
    latest: dict[str, int] = {}  # which row has the last word on a field
    logs: dict[str, list[Any]] = {name: [] for name in _LOGS}
    changes: list[str] = []  # of the state, since it was last written whole
    seen = 0  # of them, in the row that has the last word on calls
    changed: list[int] = []  # the rows that put other calls in place of some, since they were last written whole
    begins = 0  # the first row of the run
    steps = 0  # since a row that says at which step it is
    nested = columns["path"] != ""
    for place, row in enumerate(said):
        # An agent that is called twice in one place has two runs one after the other at one path.
        if nested and "run_id" in row:  # a run inside a call goes on from no other at its path
            latest, logs, changes, changed, begins, steps = {}, {name: [] for name in _LOGS}, [], [], place, 0
        steps = 0 if "step" in row else steps + ("run_id" not in row)
        latest |= dict.fromkeys(row, place)
        if "state" in row:
            changes = []
        if "patch" in row:
            if "state" in row:
                raise ValueError("a state is there, and what changed in it")
            changes.append(row["patch"])
        if "calls" in row:
            # The calls were shown the state as of this row. Changes that came later must not be laid over what they
            # were shown.
            seen, changed = len(changes), []
        if "changed" in row:
            if "calls" in row or "calls" not in latest:
                raise ValueError("calls are there, and what changed in them; or they are not there")
            changed.append(place)
        if "cut" in row:
            # Cuts come before the tail of the same row, as they were made.
            for name, log in logs.items():
                del log[row["cut"].get(name, len(log)) :]
        for item in row.get("messages", ()):
            logs["messages"].append(_referred(results, place, item["ref"]) if isinstance(item, dict) else item)
        logs["decisions"] += row.get("decisions", ())
        logs["handoffs"] += row.get("handoffs", ())
    # From here on nothing is guessed. Whatever does not fit is left to the reader of single rows, which either makes
    # sense of it or says which row is damaged.
    implied = _implied(said[begins], said[begins].get("messages", ()))
    if not latest.keys() | implied.keys() >= _REQUIRED:
        raise ValueError("what the rows go on from is missing")
    if "held" in latest and latest["held"] >= latest.get("calls", 0):
        raise ValueError("results of its calls are in other rows")
    # Mostly two or three rows hold the last word on everything: the first, the latest, and the one in which the turn
    # began. Only those are validated as a whole.
    if "shown" in latest and latest["shown"] == latest.get("calls"):
        bodies = _with_shown(bodies, latest, changes[:seen])
    fields = {
        **implied,
        **{name: tuple(log) for name, log in logs.items()},
        **_fields(bodies, said, latest, changed, kept),
    }
    fields["step"] = fields.get("step", 0) + steps
    if changes:
        fields["state"] = folded(fields.get("state", NULL), changes)
    # A row that begins a run and names no parent has none. Any other follows the row before it.
    if columns["parent_id"] is None and latest["run_id"] < len(bodies) - 1:
        columns["parent_id"] = follows
    return BLANK.evolve(**columns, **fields)


def _fields(
    bodies: Sequence[str], said: Sequence[_Said], latest: Mapping[str, int], changed: Sequence[int], kept: Texts
) -> dict[str, Any]:
    """What the rows say that have the last word on a field, with the calls that changed later."""
    read: dict[int, Mapping[str, Any]] = {}
    fields: dict[str, Any] = {}
    for name, place in latest.items():
        if name not in _ONWARD:
            if place not in read:
                read[place] = _Rest.model_validate_json(with_members(bodies[place], kept)).__dict__
            fields[name] = read[place][name]

    if "calls" in fields:
        place = latest["calls"]
        fields["calls"] = whole_calls(fields["calls"], Reply.of(read[place]["turn"], said[place].get("messages", ())))
    if changed:
        late = [
            call for place in changed for call in _Rest.model_validate_json(with_members(bodies[place], kept)).changed
        ]
        fields["calls"] = _put_in(fields["calls"], whole_calls(late, NO_REPLY))
    return fields


def _with_shown(bodies: Sequence[str], latest: Mapping[str, int], changes: Sequence[str]) -> list[str]:
    """The rows, with what was left out in the one that has the last word on calls. `changes` of the state are those up to it."""
    place = latest["calls"]
    # Then what the calls were shown hangs on a state that was overwritten. The slow way passes through it.
    if latest["state"] > place:
        raise ValueError("a state was written whole since")
    whole = JsonText(json.loads(bodies[latest["state"]])["state"])
    return [*bodies[:place], filled(bodies[place], folded(whole, changes)), *bodies[place + 1 :]]


def _results_of(bodies: Sequence[str], journals: Mapping[int, Sequence[str]]) -> dict[tuple[int, str], Message]:
    """The messages for the results that rows refer to, by the place of the row and the id of the call."""
    places: list[int] = []
    texts: list[str] = []
    for place, journal in journals.items():
        # Most journals are between rows that refer to nothing in them. They are not parsed at all.
        if '{"ref":' in bodies[place] or any('"parts":' in text for text in journal):
            found = [text for text in journal if text.startswith('{"type":"settled"')]
            places += [place] * len(found)
            texts += found
    if not texts:
        return {}
    told: list[_Told] = reader_of(list[_Told]).validate_json(f"[{','.join(texts)}]")
    return {
        (place, one["id"]): tool_message(
            one["call_id"], _content_of(one["result"]), one["result"].get("kind", "completed")
        )
        for place, one in zip(places, told, strict=True)
    }


def _content_of(kept: _Kept) -> JsonText:
    return content_of(CallResult(**kept)) if "parts" in kept else canonical(kept["content"])


def _referred(results: Mapping[tuple[int, str], Message], place: int, ref: str) -> Message:
    # Backwards and not in the row's own journal alone: a result with images may be referred to by several rows, and
    # stands in the journal before the first.
    for at in range(place, -1, -1):
        if (found := results.get((at, ref))) is not None:
            return found
    raise ValueError("a result is not where it should be")


def outcome_text(outcome: Outcome) -> str:
    """The text of a journal entry."""
    # The type comes first, so that a reader tells a result from other outcomes by the first characters. Defaults are
    # left out: a journal entry is written at every step.
    rest = outcome.model_dump_json(exclude_defaults=True)[1:]
    return f'{{"type":"{outcome.type}"' + ("," if len(rest) > 1 else "") + rest


def outcome_from(text: str) -> Outcome:
    """The outcome in a journal entry. Raises `CheckpointError` for a text that is none."""
    outcome: Outcome = _read_strictly(reader_of(AnyOutcome).validate_json, text)
    return outcome


def _read_strictly(read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    # The error of pydantic quotes its input, which is a conversation. `explain` says where and what kind, without a
    # value; `from None` keeps the rest out of tracebacks.
    except ValidationError as error:
        raise CheckpointError(f"a stored row cannot be read: {explain(error)}") from None


Known: TypeAlias = Mapping[str, tuple[str, CallResult]]
"""Results that a row may refer to, by the id of the call, with the provider's id of it."""


def _known(parent: Checkpoint | None, settled: Mapping[str, CallSettled]) -> Known:
    """The results in the journal before a row, and those with images that the calls of its parent have."""
    calls = parent.calls if parent is not None else ()
    # Results without images are too short to be worth a reference across rows.
    held = {call.id: (call.call_id, call.result) for call in calls if call.result and call.result.has_parts}
    return {**held, **{id: (outcome.call_id, outcome.result) for id, outcome in settled.items()}}


def _as_ref(message: Message, by_call: Known) -> Message | ResultRef:
    id, result = by_call.get(message.tool_call_id or "", ("", None))
    # Compared, not assumed: a guardrail or an input filter may have changed the message since, and then it is written
    # as it is.
    if result is None or message.settlement != result.kind or message.json_text("content") != content_of(result):
        return message
    return ResultRef(ref=id)


def _from_ref(item: T | ResultRef, known: Known) -> T | Message:
    return result_message(*_result(item.ref, known)) if isinstance(item, ResultRef) else item


def _changed(before: Sequence[Call], after: Sequence[Call]) -> tuple[Call, ...] | None:
    """The calls that are not as they were, where the calls are the same ones and at least half of them did not change."""
    if len(before) != len(after) or [call.id for call in before] != [call.id for call in after]:
        return None
    changed = tuple(new for old, new in zip(before, after, strict=True) if new is not old and new != old)
    return changed if 2 * len(changed) <= len(after) else None


def _put_in(calls: Sequence[Call], changed: Sequence[Call]) -> tuple[Call, ...]:
    """The calls, with those that changed in place of those that have their ids. Raises `ValueError` for one that is not there."""
    by_id = {call.id: call for call in changed}
    if not by_id.keys() <= {call.id for call in calls}:
        raise ValueError("a call that changed is not there")
    return tuple(by_id.get(call.id, call) for call in calls)


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
