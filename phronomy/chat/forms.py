"""Forms for edits, answers and reasons: made from a request and the schema of its tool, and read back.

A value that nobody has touched stays what it was, to the last byte: what comes back is compared with what the form began with. Of an
answer that is partial, so does one that does not come back. A worker checks an edit once more, with the code of the tool.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from phronomy.chat.cards import title_of
from phronomy.chat.channel import Action, Field, Form, FormLimits, Submitted
from phronomy.chat.hiding import Hiding
from phronomy.foundation.json_text import JsonDict, canonical, plain
from phronomy.foundation.suspicious_letters import escaped
from phronomy.records.decisions import Answer, Approve, PendingApproval, Reject, Respond
from phronomy.stores.derived.requests import Request
from phronomy.tools.json_schema.answers import misfits
from phronomy.tools.json_schema.typed import (
    Mistyped,
    Shape,
    answer_shape,
    as_typed,
    labels_of,
    member_shape,
    read_typed,
    typed_answer,
)

REASON: Final = "reason"
CONTENT: Final = "content"
"""The names of the only field of the other two forms."""

_PREFIX: Final = "arg:"
_LABEL: Final = 75
"""Characters of a choice that each platform shows."""


def form_for(action: Action, request: Request, data: str, limits: FormLimits | None, hiding: Hiding) -> Form | None:
    """The form that an action opens; None if it does not fit the platform."""
    item = request.approval
    if limits is None:
        return None
    if action == "reason":
        fields: tuple[Field, ...] = (Field(name=REASON, label="Reason", kind="lines", required=True),)
        return Form(title="Reject", submit="Reject", fields=fields, data=data, intro=title_of(item, hiding))
    if action == "respond":
        shape = answer_shape(item, request.result_schema)
        fields = (replace(_field(CONTENT, "Result", None, shape, limits), required=True),)
        return Form(title="Answer", submit="Send", fields=fields, data=data, intro=title_of(item, hiding))
    if not limits.begins or hiding.is_hidden(item):
        return None
    fields = tuple(_fields(item, request.schema, limits))
    if not fields or len(fields) > limits.fields or any(not _fits(each, limits) for each in fields):
        return None
    return Form(title="Edit and approve", submit="Approve", fields=fields, data=data, intro=title_of(item, hiding))


def read_form(action: Action, request: Request, submitted: Submitted) -> tuple[Answer | None, dict[str, str]]:
    """The answer that a form comes to, or what is wrong with it, by the names of its fields."""
    if action == "reason":
        reason = submitted.values.get(REASON, "").strip()
        return (Reject(reason=reason), {}) if reason else (None, {REASON: "Say why."})
    if action == "respond":
        return _read_answer(request, submitted.values.get(CONTENT, ""))
    return _read_edit(request, submitted)


def _fields(item: PendingApproval, schema: JsonDict | None, limits: FormLimits) -> list[Field]:
    return [
        _field(_PREFIX + name, escaped(name) or "(no name)", canonical(value), member_shape(schema, name), limits)
        for name, value in item.args.items()
    ]


def _field(name: str, label: str, text: str | None, shape: Shape, limits: FormLimits) -> Field:
    """The field for a value that is this JSON text now; for one that is not there yet, it is empty."""
    shown = as_typed(text) if text is not None else ""
    hint = f"Asked: {escaped(shown)}" if shown and len(shown) <= 200 else ""
    choices = _choices(shape, text, limits)
    if choices:
        value = next((label for label, token in choices.items() if token == text), "")
        labels = tuple(choices)
        return Field(name=name, label=label[:200], value=value, kind="choice", choices=labels, required=True, hint=hint)
    long = text is None or "\n" in shown or len(shown) > 80 or text[:1] in "[{"
    return Field(name=name, label=label[:200], value=shown, kind="lines" if long else "text", hint=hint)


def _choices(shape: Shape, text: str | None, limits: FormLimits) -> dict[str, str]:
    """The choices by their labels; none where there are others, or more or longer ones than the platform offers."""
    found = labels_of(shape.choices or ())
    fits = len(found) <= limits.choices and all(len(each) <= _LABEL and escaped(each) == each for each in found)
    return found if fits and (text is None or text in found.values()) else {}


def _fits(field: Field, limits: FormLimits) -> bool:
    # A platform may give characters back otherwise than it got them.
    plain = "\r" not in field.value and "\0" not in field.value
    return len(field.value) <= limits.value and plain and len(field.name) <= 200


def _read_answer(request: Request, content: str) -> tuple[Answer | None, dict[str, str]]:
    if not content:
        return None, {CONTENT: "Write the result."}
    try:
        return Respond(content=typed_answer(request.approval, content, request.result_schema)), {}
    except Mistyped as error:
        return None, {CONTENT: str(error)}


def _read_edit(request: Request, submitted: Submitted) -> tuple[Answer | None, dict[str, str]]:
    item, schema = request.approval, request.schema
    args: JsonDict = {}
    errors: dict[str, str] = {}
    for name in submitted.values:
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX) not in item.args:
            errors[name] = "There is no such argument."
    for name, before in item.args.items():
        given = submitted.values.get(_PREFIX + name, None if submitted.partial else "")
        if given is None:
            args[name] = before
            continue
        try:
            args[name] = plain(read_typed(given, member_shape(schema, name), canonical(before)))
        except Mistyped as error:
            errors[_PREFIX + name] = str(error)
    if errors:
        return None, errors
    # The schema of a server may be made so that a check of it takes for ever. The worker has what stops that.
    if schema is not None and not item.tool.source.startswith("mcp:"):
        for pointer, wrong in misfits(args, schema):
            name = pointer[1:].partition("/")[0].replace("~1", "/").replace("~0", "~")
            at = name if name in item.args else next(iter(item.args), "")
            errors.setdefault(_PREFIX + at, f"This does not fit: {wrong[:100]}")
    return (None, errors) if errors else (Approve(args=args), {})
