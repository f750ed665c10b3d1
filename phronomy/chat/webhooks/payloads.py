"""What is sent in both directions, as types, and their JSON schemas.

An event has the form that Standard Webhooks recommends: a type, a time, and data. It stays below 20 KB, and leads to the inbox for the
rest.
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#payload-structure
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from phronomy.chat.channel import LETTERS, Action, Card, Form
from phronomy.chat.http import Refused, Response
from phronomy.foundation.json_text import JsonDict, JsonError, parse, plain_object

EventType: TypeAlias = Literal["request.asked", "request.changed", "request.reminded"]
"""What an event tells: a request is new here, it has changed, or it still waits."""

LARGEST: Final = 20_000
"""Bytes that the body of an event stays below."""

LONGEST: Final = 10_000
"""Characters of the longest value of a form."""

_TOLD: Final = ConfigDict(use_attribute_docstrings=True)
_STRICT: Final = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


@with_config(_TOLD)
class LineShown(TypedDict):
    """One fact of a request, such as an argument. Both are plain text, and may have been written by users and models."""

    name: str
    value: str


@with_config(_TOLD)
class RequestShown(TypedDict):
    """A request as it is now."""

    pending_id: str
    """The id of the request."""
    digest: str
    """The SHA-256 of what would run; an edit asks anew, with another digest. Empty if the run is gone."""
    version: int
    """Higher is newer: events may arrive in another order than they were sent in."""
    state: Literal["waits", "goes on", "over"]
    """Whether the request waits for a decision, was decided and its run goes on, or nothing follows any more."""
    status: str
    """How it stands, for people."""
    title: str
    lines: list[LineShown]
    notes: list[str]
    link: str | None
    """The request in the inbox."""
    answers: dict[Action, str]
    """The `data` of each answer that the request takes now; none if it takes none, or if this endpoint does not answer."""
    metadata: NotRequired[dict[str, Any]]
    """The data that an application gave with the decision, if it gave some. Left out where they make the body too large."""


@with_config(_TOLD)
class Event(TypedDict):
    """What is sent to an endpoint."""

    type: EventType
    timestamp: str
    """The time at which this was so: ISO 8601 in UTC."""
    data: RequestShown


@with_config(_STRICT)
class AnswerSent(TypedDict):
    """What an endpoint sends to answer a request. `values` are the fields of the form, for answers that have one."""

    data: Annotated[str, Field(pattern=f"^[{''.join(LETTERS.values())}][A-Za-z0-9_-]{{44}}$")]
    """The data of an answer, as an event had it."""
    by: Annotated[str, Field(min_length=1, max_length=200)]
    """Who answers: the stable id of a person at the endpoint's side. `webhook:ENDPOINT:BY` is their alias in the directory."""
    values: NotRequired[dict[str, str]]
    """A text for each field. Numbers and lists are written as JSON. An argument that is left out stays as it is."""


@with_config(_TOLD)
class FieldShown(TypedDict):
    """A field of a form."""

    name: str
    label: str
    value: str
    """What it begins with."""
    kind: Literal["text", "lines", "choice"]
    choices: list[str]
    required: bool
    hint: str


@with_config(_TOLD)
class FormShown(TypedDict):
    """A form: to be sent back as `values`, with the same `data`."""

    title: str
    submit: str
    intro: str
    data: str
    fields: list[FieldShown]
    longest: int
    """The most characters of a value."""


@with_config(_TOLD)
class Reply(TypedDict, total=False):
    """What an answer comes to: one of these."""

    notice: str | None
    """None if the answer counts, or counted before. Else what the person is to be told."""
    form: FormShown
    """The form that is to be filled in, for an answer that was sent without values."""
    errors: dict[str, str]
    """What is wrong with each field. Nothing was decided."""


_ANSWER: Final = TypeAdapter(AnswerSent)
_TYPES: Final[Mapping[str, TypeAdapter[Any]]] = {
    "event": TypeAdapter(Event),
    "answer": _ANSWER,
    "reply": TypeAdapter(Reply),
}

SCHEMAS: Final[Mapping[str, JsonDict]] = {
    name: {"$schema": "https://json-schema.org/draft/2020-12/schema", **adapter.json_schema()}
    for name, adapter in _TYPES.items()
}
"""The JSON schemas of an `event`, of an `answer` to it, and of the `reply` that the answer gets."""


def event_body(kind: EventType, card: Card, at: float, *, answers: bool) -> bytes:
    """An event, as it is sent; `answers` says whether the endpoint can answer. What makes it too large is told by its size."""
    lines: list[LineShown] = [{"name": each.name, "value": each.value} for each in card.lines]
    data: RequestShown = {
        "pending_id": card.pending_id,
        "digest": card.digest,
        "version": card.version,
        "state": card.state,
        "status": card.status,
        "title": card.title,
        "lines": lines,
        "notes": list(card.notes),
        "link": card.link,
        "answers": _answers(card) if answers else {},
    }
    if metadata := plain_object(card.metadata):
        data["metadata"] = metadata
    event: Event = {"type": kind, "timestamp": f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}", "data": data}
    body, kept = _bytes(event), len(lines)
    while len(body) >= LARGEST and kept:
        kept -= 1
        data["lines"] = [*lines[:kept], _rest(lines[kept:], card.link)]
        data["answers"] = _answers(card.without_approval()) if answers else {}
        body = _bytes(event)
    if len(body) >= LARGEST:
        data["notes"] = [_size(_bytes(list(card.notes)), card.link)]
        body = _bytes(event)
    if len(body) >= LARGEST and "metadata" in data:
        del data["metadata"]
        body = _bytes(event)
    return body


def read_answer(body: bytes) -> AnswerSent:
    """The answer in a body. Raises `Refused`, which says what is wrong with each field, and does not quote it."""
    try:
        return _ANSWER.validate_python(parse(body.decode()))
    except (UnicodeDecodeError, JsonError):
        raise Refused(400, "no JSON in UTF-8") from None
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        said = [f"{each['loc'][0] if each['loc'] else 'the body'}: {each['msg']}" for each in found]
        known = [each for each in said if each.partition(":")[0] in ("the body", "data", "by", "values")]
        raise Refused(400, "; ".join(dict.fromkeys(known)) or "a field that is not known") from None


def reply_with(reply: Reply, *, status: int = 200) -> Response:
    """The response to an answer."""
    return Response(status=status, headers={"content-type": "application/json; charset=utf-8"}, body=_bytes(reply))


def form_shown(form: Form) -> FormShown:
    """A form, as it is sent."""
    fields: list[FieldShown] = [
        {
            "name": each.name,
            "label": each.label,
            "value": each.value,
            "kind": each.kind,
            "choices": list(each.choices),
            "required": each.required,
            "hint": each.hint,
        }
        for each in form.fields
    ]
    return {
        "title": form.title,
        "submit": form.submit,
        "intro": form.intro,
        "data": form.data,
        "fields": fields,
        "longest": LONGEST,
    }


def _answers(card: Card) -> dict[Action, str]:
    return {each.action: each.data for each in card.buttons if each.action != "remind"}


def _rest(lines: list[LineShown], link: str | None) -> LineShown:
    return {"name": f"and {len(lines)} more", "value": _size(_bytes(lines), link)}


def _size(whole: bytes, link: str | None) -> str:
    where = "see the inbox" if link else "see `phronomy show`"
    return f"{len(whole):,} bytes, SHA-256 {hashlib.sha256(whole).hexdigest()[:16]}..., {where}"


def _bytes(value: object) -> bytes:
    # Half of a surrogate pair becomes its escape, which is JSON too.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
