"""What a server asks in the middle of a call, put to a human by the mechanism that there is: `interrupt`.

A server asks in one of two ways, by the version of the protocol. In the older one it sends a request of its own while it works on the
call. Nobody holds that open until a human has time: the call is cancelled, and is sent again from its start when the answer is there.
In the newer one (2026-07-28) it ends the call by saying what it needs, with a state that is its own. The state is kept in the log with
the question, and goes back with the answer, so that nothing is done twice.

All of it is a stranger's: texts are bounded and cleaned, a schema is read as the protocol's forms allow, and an answer is for what was
shown and nothing else, since the key of a question holds a digest of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import mcp_types
from pydantic import ValidationError, WithJsonSchema

from phronomy.errors import ConfigurationError
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, JsonValue, canonical, clean, object_of, text_of
from phronomy.records.record import digest_of
from phronomy.stops.interrupts import Asker, Interrupt
from phronomy.tools.json_schema.bounded import BoundedSchema

MOST: Final = 20
"""Questions that one call may ask, and rounds in which it may."""

_LONGEST: Final = 4_000
"""Characters of a message."""

_LARGEST: Final = 20_000
"""Characters of a schema."""

_KEPT: Final = 100_000
"""Characters of what is kept in the log until there is an answer."""

_FORM: Final = frozenset({"$schema", "type", "title", "description", "properties", "required", "additionalProperties"})
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_TEXTS: Final = ("title", "description", "format", "pattern", "minLength", "maxLength")
_CHOICES: Final = ("const", "enum", "enumNames", "oneOf", "anyOf", "items", "minItems", "maxItems", "uniqueItems")
_FIELD: Final = frozenset({"type", "default", "examples", *_TEXTS, *_NUMBERS, *_CHOICES})
_KINDS: Final = ("string", "number", "integer", "boolean", "array")
_ACTIONS: Final = ("accept", "decline", "cancel")


_Wash = Callable[[object], str]
T = TypeVar("T")


class Unaskable(Exception):
    """Why nobody is asked. Nothing of the server's stands in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question that a human is shown: the words of the server, and the form that it wants to have filled in."""

    message: str
    form: JsonDict

    @property
    def digest(self) -> str:
        """Of all that the answer is to."""
        return digest_of(self.message, canonical(self.form))[:24]

    @property
    def answer(self) -> object:
        """The type of an answer, which is MCP's own: what to do, and the fields of the form where they are handed over."""
        schema: JsonDict = {
            "type": "object",
            "properties": {"action": {"enum": [*_ACTIONS]}, "content": self.form},
            "required": ["action"],
            "additionalProperties": False,
            "if": {"properties": {"action": {"const": "accept"}}},
            "then": {"required": ["content"]},
        }
        return Annotated[dict[str, Any], WithJsonSchema(schema)]


def question_of(params: object, scrubbed: Callable[[str], str]) -> Question:
    """The question of a server, made fit to be shown. Raises `Unaskable`.

    What is for people alone is washed. The rest of a form goes back to the server as it is, so nothing is replaced in it.
    """

    def wash(text: object) -> str:
        if not isinstance(text, str):
            raise Unaskable("the schema cannot be used")
        return _legible(scrubbed(text))

    if not isinstance(params, mcp_types.ElicitRequestFormParams):
        raise Unaskable("only forms are shown, and no addresses")
    if len(params.message) > _LONGEST:
        raise Unaskable(f"a message has at most {_LONGEST} characters")
    try:
        if len(canonical(params.requested_schema)) > _LARGEST:
            raise Unaskable(f"a schema has at most {_LARGEST} characters")
        form = _form(params.requested_schema, wash)
        BoundedSchema(form)
    except Unaskable:
        raise
    except Exception:
        raise Unaskable("the schema cannot be used") from None
    return Question(message=wash(params.message), form=form)


def _form(schema: JsonDict, wash: _Wash) -> JsonDict:
    """A form as the protocol has it: an object whose fields are text, numbers, truth, or a choice. Nothing in it points anywhere."""
    described = schema.get("properties")
    if schema.keys() - _FORM or schema.get("type") != "object" or not isinstance(described, dict):
        raise Unaskable("the schema is none of the protocol's forms")
    fields: JsonDict = {_exact(name): _field(value, wash) for name, value in described.items()}
    if any(each not in fields for each in _list(schema.get("required", []))):
        raise Unaskable("the schema requires what it does not describe")
    rest: JsonDict = {name: wash(schema[name]) for name in ("title", "description") if name in schema}
    wanted = {"required": schema["required"]} if "required" in schema else {}
    return {"type": "object", **rest, "properties": fields, **wanted, "additionalProperties": False}


def _field(schema: JsonValue, wash: _Wash, depth: int = 0) -> JsonDict:
    """A field, or within one a choice: a list of choices holds those one deeper."""
    if not isinstance(schema, dict) or schema.keys() - _FIELD or depth > 2:
        raise Unaskable("a field of the schema is none of the protocol's")
    if depth == 0 and schema.get("type") not in _KINDS:
        raise Unaskable("a field of the schema is none of the protocol's")
    made: JsonDict = {}
    for name, value in schema.items():
        if name in ("oneOf", "anyOf"):
            made[name] = [_field(each, wash, depth + 1) for each in _list(value)]
        elif name == "items":
            made[name] = entry = _field(value, wash, depth + 1)
            if entry.get("type", "string") != "string":
                raise Unaskable("a list in the schema is of something else than text")
        elif name == "enumNames":
            made[name] = [wash(each) for each in _list(value)]
        else:
            made[name] = wash(value) if name in ("title", "description") else _exact(value)
    return made


def _list(value: JsonValue) -> list[JsonValue]:
    """The value, if it is a list. Raises `Unaskable`: the form that is shown would be another than the server's."""
    if not isinstance(value, list):
        raise Unaskable("the schema cannot be used")
    return value


def _exact(value: T) -> T:
    """The value, if all text in it is visible: it goes back to the server as it is. Raises `Unaskable`."""
    todo: list[object] = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str) and _legible(item) != item:
            raise Unaskable("the schema holds characters that are not to be seen")
        if isinstance(item, dict):
            todo += item.keys()
        todo += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return value


def _legible(text: str) -> str:
    """The text without what is not to be seen, or would change how the rest of it is shown."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in clean(text))


class Asking:
    """Asks, in one run of a call's body, in the name of its server. Made in the caller's thread, and used in that of the session.

    `unanswered` is the question for which it has stopped, `exhausted` says that the server has asked too much.
    """

    def __init__(self, server: str, asker: Asker, scrubbed: Callable[[str], str]) -> None:
        self._server, self._asker, self._scrubbed = server, asker, scrubbed
        note = asker.note or {}
        stops, round = note.get("stops"), note.get("round")
        self._stops = stops if isinstance(stops, int) else 0
        self._round = round if isinstance(round, dict) else None
        self._answers: dict[str, mcp_types.ElicitResult] = {}
        self._times: dict[str, int] = {}
        self._refused = 0
        self.unanswered: Interrupt | None = None
        self.exhausted: bool = False

    def begin(self) -> None:
        """The call is sent from its start: what it asks is counted anew."""
        self._times = {}

    def check(self) -> None:
        """Raise `Interrupt` if it has stopped for a question, and `Unaskable` if the server has asked too much."""
        if self.unanswered is not None:
            raise self.unanswered
        if self.exhausted:
            raise Unaskable(f"it has asked more than {MOST} questions")

    def answer(self, params: object) -> mcp_types.ElicitResult:
        """The answer to a request of the server. Raises `Interrupt` where nobody has answered yet, and `Unaskable`."""
        try:
            if self.unanswered is not None or self.exhausted:
                raise Unaskable("the call is over")
            return self._asked(question_of(params, self._scrubbed), None)
        except Unaskable:
            self._refused += 1
            self.exhausted = self.exhausted or self._refused > MOST
            raise

    def resumed(self) -> tuple[dict[str, mcp_types.ElicitResult] | None, str | None]:
        """The answers with which a call goes on, and the state that its server left; None if it is sent from its start.

        Raises `Interrupt` where one of several questions is still to be answered, and `Unaskable`.
        """
        self.begin()
        if self._round is None:
            return None, None
        state = self._round.get("state")
        return self._answered(self._round), state if isinstance(state, str) else None

    def answers(self, wanted: mcp_types.InputRequiredResult) -> dict[str, mcp_types.ElicitResult]:
        """The answers to all that a server needs before the call can go on, by name. Raises `Interrupt` and `Unaskable`."""
        requests = wanted.input_requests or {}
        if len(requests) > MOST:
            raise Unaskable(f"it asks for more than {MOST} things at once")
        questions: JsonDict = {}
        for name, request in requests.items():
            if not isinstance(request, mcp_types.ElicitRequest):
                raise Unaskable("it asks for what is not offered to it")
            asked = question_of(request.params, self._scrubbed)
            questions[name] = {"message": asked.message, "form": asked.form}
        return self._answered({"state": wanted.request_state, "questions": questions, "times": {**self._times}})

    def _answered(self, round: JsonDict) -> dict[str, mcp_types.ElicitResult]:
        counted = object_of(round.get("times"))
        self._times = {digest: times for digest, times in counted.items() if isinstance(times, int)}
        if len(canonical(round)) > _KEPT:
            raise Unaskable("what it wants to have kept until there is an answer is too large")
        asked = {name: object_of(each) for name, each in object_of(round.get("questions")).items()}
        return {
            name: self._asked(Question(message=text_of(each.get("message")), form=object_of(each.get("form"))), round)
            for name, each in asked.items()
        }

    def _asked(self, question: Question, round: JsonDict | None) -> mcp_types.ElicitResult:
        """The answer to a question. One that is asked again in the same words has an answer of its own."""
        digest = question.digest
        times = self._times[digest] = self._times.get(digest, 0) + 1
        key = f"mcp:{digest}:{times}"
        if key not in self._answers:
            self.exhausted = self._stops >= MOST and not self._asker.is_answered(key)
            if self.exhausted:
                raise Unaskable(f"it has asked more than {MOST} questions")
            note: JsonDict = {"stops": self._stops + 1, **({} if round is None else {"round": round})}
            shown = {"mcp_server": self._server, "message": question.message}
            try:
                self._answers[key] = _result(self._asker.ask(shown, key, question.answer, note))
            except Interrupt as unanswered:
                self.unanswered = unanswered
                raise
            except ConfigurationError:
                raise Unaskable("the call is over") from None
        return self._answers[key]


def _result(said: object) -> mcp_types.ElicitResult:
    """The answer as the server has it: a form that is not handed over stays here."""
    given = object_of(said)
    action = given.get("action")
    try:
        return mcp_types.ElicitResult.model_validate(
            {"action": action, "content": given.get("content") if action == "accept" else None}
        )
    except ValidationError:
        raise Unaskable("the answer is none that can be sent") from None
