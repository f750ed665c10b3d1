"""A call in a row. One that nobody has to decide leaves out what the row says elsewhere.

Its ids and its arguments mostly follow from the reply in the same row, and its digest is that of its tool and its arguments. Each is
left out where it is so, and a row that has it is read as well. A call whose tool has a gate leaves out nothing, whether somebody was
asked about it or not: the digest of what the gate has seen, or a decision is bound to, is stored, and compared with what is stored
of the call.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Self

from pydantic import model_validator
from pydantic_core import from_json

from phronomy.errors import CheckpointError
from phronomy.foundation.json_text import MAX_DEPTH, JsonText, encoded
from phronomy.foundation.quoting import quoted_id
from phronomy.records.calls import NEW_CALL, Call
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import call_digest
from phronomy.records.messages import Message, ToolCall
from phronomy.records.record import Text

_LEFT_OUT: Final = ("id", "call_id", "args", "digest")
_BOUND: Final = ("tool", "args", "digest")
_LONG: Final = 2000  # characters


class Reply(NamedTuple):
    """What a row says of the calls that the model asked for: the turn, and the calls in the last message."""

    turn: object
    asked: tuple[ToolCall, ...]

    @classmethod
    def of(cls, turn: object, messages: Sequence[object]) -> "Reply":
        """The reply in a row with these messages; `turn` is no number where the row has none."""
        last = messages[-1] if messages else None
        return cls(turn, last.tool_calls) if isinstance(last, Message) and isinstance(turn, int) else NO_REPLY


NO_REPLY: Final = Reply(None, ())


class RowCall(Call):
    """A call as it stands in a row: what was left out is None."""

    id: str | None = None  # type: ignore[assignment]
    call_id: Text | None = None  # type: ignore[assignment]

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        return self  # `whole` looks, once it has what was left out

    def whole(self, place: int, reply: Reply) -> Call:
        """The call at this place of its row. Raises `ValueError` if it is not valid, or not all of it is known."""
        has = self.__dict__
        if _is_undecided(self) and (left := [name for name in _LEFT_OUT if has[name] is None]):
            implied = _implied(self, place, reply)
            has = {**has, **{name: implied[name] for name in left if name in implied}}
            if has["digest"] is None and has["tool"] is not None and has["args"] is not None:
                has["digest"] = call_digest(has["tool"], has["args"])
        if has["id"] is None or has["call_id"] is None:
            raise ValueError("the id of a call is missing")
        call = NEW_CALL.evolve(**has)
        _judge(call)
        return call


# As any call is judged that is read: what was left out is in it by now.
_judge: Final[Callable[[Call], Call]] = vars(Call)["_is_whole"]
_THIN: Final = RowCall.model_construct(name="")


def check_readable(parent: Checkpoint | None, child: Checkpoint) -> None:
    """Refuse to write a call that nobody could read back: it is judged as a reader judges it. Raises `CheckpointError`."""
    before = parent.calls if parent is not None else ()
    for place, call in enumerate(child.calls if child.calls is not before else ()):
        old = before[place].__dict__ if place < len(before) else {}
        # A call that has kept its arguments was judged when it got them. A digest of long ones takes its time.
        if all(old.get(name) is call.__dict__[name] for name in _BOUND):
            continue
        try:
            _judge(call)
        except ValueError as error:
            # Written, it would cost the whole run: no reader gets past a row that it cannot read.
            raise CheckpointError(
                f"checkpoint {child.id} could not be read back, so it was not written: call {quoted_id(call.call_id)}: {error}"
            ) from None


def thin(call: Call, place: int, reply: Reply) -> RowCall:
    """The call as it stands at this place of a row."""
    has = call.__dict__
    if not _is_undecided(call):
        return _THIN.evolve(**has)
    follows = {name: None for name, value in _implied(call, place, reply).items() if has[name] == value}
    # The digest of a call is always that of its tool and its arguments. Of long ones it is not worth making it once more.
    if has["args"] is not None and len(has["args"]) < _LONG:
        follows["digest"] = None
    return _THIN.evolve(**has | follows)


def whole_calls(calls: Sequence[RowCall], reply: Reply) -> tuple[Call, ...]:
    """The calls of a row. Raises `ValueError` as `RowCall.whole`, and if what one leaves out is that of another."""
    whole = tuple([call.whole(place, reply) for place, call in enumerate(calls)])
    if len(whole) > 1 and len({call.id for call in whole}) != len(whole) and any(call.id is None for call in calls):
        raise ValueError("two calls have one id")
    return whole


def _is_undecided(call: Call) -> bool:
    """Whether the call may run whatever its arguments are: its tool has no gate, and nobody was asked about it."""
    is_free = call.tool is not None and call.tool.gate == "never"
    return is_free and call.status == "ready" and call.pending_id is None and call.approved is None


def _implied(call: Call, place: int, reply: Reply) -> dict[str, Any]:
    """The ids and the arguments that follow from the reply."""
    if place >= len(reply.asked) or reply.asked[place].name != call.name:
        return {}
    asked = reply.asked[place]
    return {"id": f"{reply.turn}.{place}", "call_id": asked.id, "args": _canonical(asked.arguments)}


def _canonical(arguments: str) -> JsonText | None:
    """The canonical text of an object, of what the model wrote; None if it is none, or not seen at a glance to be one."""
    if arguments[:1] != "{" or arguments.count("[") + arguments.count("{") > MAX_DEPTH:
        return None
    try:
        return JsonText(encoded(from_json(arguments)))
    except (ValueError, TypeError, RecursionError):  # a lone surrogate is a TypeError
        return None
