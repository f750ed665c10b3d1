"""Asking a human from inside a node or a tool: the body stops there, and runs again, from its beginning, with the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from dataclasses import field
from functools import lru_cache
from typing import Any, Final, TypeVar, overload

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import to_jsonable_python

from phronomy.concurrency.leaving import Left, Overran
from phronomy.errors import ConfigurationError, InvalidDecision, Portable
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, JsonError, JsonText, JsonValue, canonical, clean, object_of
from phronomy.foundation.quoting import quoted_name
from phronomy.records.calls import Call
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Decision
from phronomy.records.record import digest_of, reader_of
from phronomy.records.triggers import Trigger
from phronomy.tools.context import BODY
from phronomy.tools.tool import Tool

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a body asks: a question, or a trigger of a wait.

    `args` are what whoever answers is shown: the key, the payload, and the schema of the answer. A `trigger` of a time that
    is due `after` so many seconds gets its time where the request is made.
    """

    id: str
    args: JsonText = field(repr=False)
    title: str | None = None
    trigger: Trigger | None = None
    after: float | None = None


class Interrupt(Portable, BaseException):
    """A body asks something that has no answer yet: a question, or all triggers of a wait.

    It is not an `Exception`, so that `except Exception` does not catch it.
    """

    def __init__(self, key: str, asked: tuple[Asked, ...], note: JsonText | None = None) -> None:
        super().__init__(key)
        self.key = key
        self.asked = asked
        self.note = note  # what the body leaves for its next run, and nobody is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """The earlier stop of a body that runs again because of a question or a wait.

    `state` is the value that the body kept with its last question or wait (None: nothing), `asked` are the keys of its
    questions and waits so far, and `answers` has the answers that there are, by key: JSON values, True for an `Approve`.
    The answer of a wait is a dict: the value of each trigger that has fired, by its name.
    """

    state: Any = field(default=None, repr=False)
    asked: tuple[str, ...]
    answers: dict[str, Any] = field(repr=False)


@overload
def interrupt(payload: object = None, *, key: str | None = None, answer: type[T], state: object = None) -> T: ...


@overload
def interrupt(
    payload: object = None, *, key: str | None = None, answer: object = None, state: object = None
) -> Any: ...


def interrupt(payload: object = None, *, key: str | None = None, answer: object = None, state: object = None) -> Any:
    """Ask a human a question from inside the body of a node or a tool, and return the answer.

    The run is suspended. The person who answers is shown `payload` (any value that pydantic can turn into JSON), in the
    arguments of a pending approval with `why="question"`. When the run is resumed, the body runs again from its
    beginning, and this call returns the answer: the content of a `Respond`, or True for an `Approve`. A `Reject`
    settles the node or tool as rejected, and the body does not run again.

    `key` identifies a question of the body; without keys, the order of the questions identifies them. An answered
    question is not asked again, even if its payload has changed. `answer` is the type of the answer, such as `bool`, a
    `Literal` or a pydantic model. A decision that does not fit the JSON Schema of this type is an `InvalidDecision`,
    and the question stays pending.

    `state` is a value that the body keeps for its next run: `interruption().state` returns it there. Like the payload,
    it can be any value that pydantic can turn into JSON. Nobody is shown it.

    Raises `ConfigurationError` outside of a node or tool that phronomy runs, for a repeated key, for a payload or a
    state that is not JSON, and for a type that has no JSON Schema. Raises `InvalidDecision` in the body if an answer fits the JSON
    Schema, but the type refuses it.
    """
    asker = _ASKER.get()
    if asker is None:
        raise ConfigurationError(
            "interrupt() asks from inside a node or a tool that phronomy runs, and this is outside"
        )
    return asker.ask(payload, key, answer, state=state)


def interruption() -> Interruption | None:
    """Say whether the body of a node or tool that runs here was stopped before by a question or a wait, and with what.

    Returns None in its first run, and if its arguments have changed since. Raises `ConfigurationError` outside of a
    node or tool that phronomy runs.
    """
    asker = _ASKER.get()
    if asker is None:
        raise ConfigurationError(
            "interruption() is for the body of a node or a tool that phronomy runs, and this is outside"
        )
    return asker.interruption


def asker_here() -> Asker | None:
    """The asker of the body that runs here; None outside of one."""
    return _ASKER.get()


class Asker:
    """Asks questions for the body of one call, and knows the answers that there are."""

    __slots__ = ("_call", "_keys", "_state", "gates", "over", "unanswered")

    def __init__(self, state: Checkpoint, call: Call, gates: Callable[[Tool], bool]) -> None:
        self._state = state
        self._call = call
        # It says if an approval policy over the run may ask about calls of a tool.
        self.gates: Callable[[Tool], bool] = gates
        self._keys: set[str] = set()
        self.unanswered: list[Interrupt] = []
        self.over: bool = False  # nobody waits for the body any more

    @property
    def note(self) -> JsonDict | None:
        """The note that the body left when it last asked; None if there is none, or if it is for another tool or other arguments."""
        return object_of(self._kept.get("note")) or None

    @property
    def interruption(self) -> Interruption | None:
        """What the body may know of its earlier stop; None if there was none."""
        asked = tuple([key for key in self._asked if isinstance(key, str)])
        if not asked:
            return None
        waits = self._waits
        found = {key: self._answer(self.id_of(key)) if key not in waits else self._fired(key) for key in asked}
        answers = {key: answer[0] for key, answer in found.items() if answer is not None}
        return Interruption(state=self._kept.get("state"), asked=asked, answers=answers)

    def _answer(self, id: str) -> tuple[JsonValue] | None:
        """The answer to what was asked under this id, which may be None; None if there is none."""
        if (decision := self.decision_on(id)) is None:
            return None
        return (True if decision.kind == "approve" else decision.content,)

    def _fired(self, key: str) -> tuple[JsonValue] | None:
        """The values of the triggers of a wait that have fired, by name; None if none has."""
        found = {name: self._answer(self.id_of(key, name)) for name in self._waits[key]}
        fired: JsonDict = {name: answer[0] for name, answer in found.items() if answer is not None}
        return (fired,) if fired else None

    @property
    def _kept(self) -> JsonDict:
        kept = object_of(self._call.note)
        return kept if kept.get("digest") == self._call.digest else {}

    @property
    def _asked(self) -> list[JsonValue]:
        asked = self._kept.get("asked")
        return asked if isinstance(asked, list) else []

    @property
    def _waits(self) -> dict[str, list[str]]:
        """The names of the triggers of each wait so far, by its key."""
        waits = object_of(self._kept.get("waits"))
        return {key: [str(name) for name in names] for key, names in waits.items() if isinstance(names, list)}

    def ask(
        self, payload: object, key: str | None, answer: object, note: JsonDict | None = None, state: object = None
    ) -> object:
        """The answer to a question, as `interrupt` gives it. Without one, `note` and `state` are there when the body runs again."""
        key = self.key_of(key)
        expected = Expected(key, answer)
        id = self.id_of(key)
        if (decision := self.decision_on(id)) is not None:
            return expected.read(decision)
        asked = Asked(id=id, args=expected.args(payload))
        raise self.noted(Interrupt(key, (asked,), self.left(key, state, note=note)))

    def left(
        self, key: str, state: object, *, note: JsonDict | None = None, triggers: Sequence[str] | None = None
    ) -> JsonText:
        """The note of the body for its next run, as it stops at a question, or at a wait for triggers of these names."""
        left: dict[str, object] = {
            "digest": self._call.digest,
            "asked": [*(each for each in self._asked if each != key), key],
        }
        if waits := self._waits | ({} if triggers is None else {key: [*triggers]}):
            left["waits"] = waits
        if note is not None:
            left["note"] = note
        if state is None:
            return canonical(left)
        try:
            return canonical({**left, "state": to_jsonable_python(state)})
        except (JsonError, ValueError, TypeError, RecursionError):
            what = "question" if triggers is None else "wait"
            raise ConfigurationError(
                f"the state that is kept with {what} {key!r} cannot be made JSON of, so it could not be stored"
            ) from None

    def key_of(self, key: str | None) -> str:
        """The key by which a question, or a wait, is known in the body. Raises `ConfigurationError` if it is none, or is used."""
        self.check_heard()
        key = str(len(self._keys)) if key is None else key
        if not isinstance(key, str) or not key or clean(key) in self._keys:
            raise ConfigurationError(
                f"the key of a question is text that no other question of the body has, not {quoted_name(key)}"
            )
        key = clean(key)
        self._keys.add(key)
        return key

    def id_of(self, key: str, *names: str) -> str:
        """The pending id of a question, or of a trigger of a wait: `names` has its name in that."""
        return question_id(self._state, self._call, key, *names)

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The ids that name the run of the body: that of the run, and that of its branch."""
        return self._state.run_id, self._state.branch_id

    def noted(self, asked: Interrupt) -> Interrupt:
        """The interrupt, to be raised in the body: it counts even if the body swallows it."""
        self.unanswered.append(asked)
        self.check_heard()  # it may have ended meanwhile, and then looked for questions before there was this one
        return asked

    def is_answered(self, key: str) -> bool:
        """Whether the question of this key is answered, so that to ask it stops nothing."""
        return self.decision_on(self.id_of(key)) is not None

    def decision_on(self, id: str) -> Decision | None:
        """The decision that answers what was asked under this id; None if there is none."""
        told = (each for each in self._state.decisions if each.kind in ("approve", "respond"))
        return next((each for each in told if each.pending_id == id), None)

    def is_of(self, state: Checkpoint, call: Call) -> bool:
        """True if it asks for the body of this call, in the run of this state."""
        return (self._state.run_id, self._state.path, self._call.id) == (state.run_id, state.path, call.id)

    def check_heard(self) -> None:
        """Refuse questions and calls when nobody waits for the body any more. Raises `ConfigurationError`."""
        if self.over:
            raise ConfigurationError(
                f"the body of {quoted_name(self._call.name)} has ended or was left, so it can ask and call nothing more: do that"
                " before it returns, and wait in it for its tasks and threads"
            )


class Expected:
    """The type that an answer must have. Without one it is any JSON value."""

    __slots__ = ("_adapter", "_key", "schema")

    def __init__(self, key: str, answer: Any) -> None:
        self._key = key
        self._adapter: TypeAdapter[Any]
        self.schema: dict[str, Any] | None
        made = _made_once if isinstance(answer, type) and type(answer).__hash__ is type.__hash__ else _made
        try:
            self._adapter, self.schema = made(answer)
        except PydanticUserError as error:
            raise ConfigurationError(
                f"the answer of question {key!r} has a type that no JSON Schema can be made of"
            ) from error

    def args(self, payload: object) -> JsonText:
        """What whoever answers is shown. Raises `ConfigurationError` if it cannot be made JSON of."""
        try:
            return canonical({"key": self._key, "payload": to_jsonable_python(payload), "answer": self.schema})
        except (JsonError, ValueError, TypeError, RecursionError):
            raise ConfigurationError(
                f"the payload of question {self._key!r} cannot be made JSON of, so nobody could be shown it"
            ) from None

    def read(self, decision: Decision) -> object:
        """The answer in a decision. What the type has of checks that no schema tells is found here alone."""
        text, id = "true" if decision.kind == "approve" else decision.json_text("content"), decision.pending_id
        try:
            return self._adapter.validate_json(text)
        except ValidationError:  # it may quote the answer
            raise InvalidDecision(
                f"the answer to question {self._key!r} (pending {id}) is refused by the type that it must have",
                pending_id=id,
            ) from None


def _made(answer: Any) -> tuple[TypeAdapter[Any], dict[str, Any] | None]:
    """What reads answers of this type, and its JSON Schema; both of any JSON, if it is None."""
    if answer is None:
        return reader_of(Any), None
    adapter: TypeAdapter[Any] = TypeAdapter(answer)
    return adapter, adapter.json_schema()


_made_once: Final = lru_cache(maxsize=64)(_made)
"""As `_made`, for a class: the schema takes a millisecond, and a body asks again each time that it runs."""


_ASKER: Final[ContextVar[Asker | None]] = BODY


@contextmanager
def asking(state: Checkpoint, call: Call, gates: Callable[[Tool], bool]) -> Iterator[None]:
    """Run the body of this call, which may ask questions. `gates` says which tools an approval policy may ask about.

    A question counts even if the body returns or raises something else. `gather(return_exceptions=True)`, or a
    `finally` that returns, would otherwise hide the question from the engine.
    """
    asker = Asker(state, call, gates)
    try:
        with _Asking(asker):
            try:
                yield
            finally:  # over first, then what was asked: of a question in that moment, the run or who asks it knows
                asker.over = True
        if asker.unanswered:
            raise asker.unanswered[0]
    except (Overran, Left):  # it is under way still
        raise
    except Exception:
        if asker.unanswered:
            raise asker.unanswered[0] from None
        raise
    except BaseExceptionGroup as group:  # a body that asks in tasks of a group: one question at a time
        asked: BaseException | None = group.subgroup(Interrupt)
        while isinstance(asked, BaseExceptionGroup):
            asked = asked.exceptions[0]
        if asked is None:
            raise
        raise asked from None


def nobody_asks() -> AbstractContextManager[None]:
    """A run is driven: what it calls may not ask in the name of the body that drives it. Bodies of its own ask for themselves."""
    return _Asking(None)


# No generator: that would take four times as long, and each drive and each body is in such a block.
class _Asking(AbstractContextManager[None]):
    """A block in which this asker asks, or nobody."""

    __slots__ = ("_asker", "_before")

    _before: Token[Asker | None]

    def __init__(self, asker: Asker | None) -> None:
        self._asker = asker

    def __enter__(self) -> None:
        self._before = _ASKER.set(self._asker)

    def __exit__(self, *raised: object) -> None:
        try:  # noqa: SIM105  # `suppress` would take as long as all the rest of it
            _ASKER.reset(self._before)
        except ValueError:  # closed by the garbage collector, in a context that knows nothing of it
            pass


def question_id(state: Checkpoint, call: Call, key: str, *names: str) -> str:
    """The pending id of a question: the same however often the body asks it, and another in each branch.

    A fallback asks for itself, as a body does that runs with other arguments.
    """
    return f"pend_{digest_of(state.branch_id, state.path, call.id, call.digest or '', key, *names)[:24]}"
