"""Forms for edits, answers and reasons: made from a request and the schema of its tool, and read back.

A value that nobody has touched stays what it was, to the last byte: what comes back is compared with what the form began with. Of an
answer that is partial, so does one that does not come back. A worker checks an edit once more, with the code of the tool.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from phronomy.chat.cards import title_of
from phronomy.chat.channel import Action, Field, Form, FormLimits, Submitted
from phronomy.foundation.json_text import JsonDict, JsonError, JsonValue, canonical, parse
from phronomy.foundation.suspicious_letters import escaped
from phronomy.records.decisions import Answer, Approve, PendingApproval, Reject, Respond
from phronomy.stores.derived.requests import Request
from phronomy.tools.json_schema.answers import misfits

REASON: Final = "reason"
CONTENT: Final = "content"
"""The names of the only field of the other two forms."""

_PREFIX: Final = "arg:"


def form_for(
    action: Action, request: Request, data: str, limits: FormLimits | None, hide: Collection[str]
) -> Form | None:
    """The form that an action opens; None if it does not fit the platform."""
    item = request.approval
    if limits is None:
        return None
    if action == "reason":
        fields: tuple[Field, ...] = (Field(name=REASON, label="Reason", kind="lines", required=True),)
        return Form(title="Reject", submit="Reject", fields=fields, data=data, intro=title_of(item))
    if action == "respond":
        fields = (Field(name=CONTENT, label="Result", kind="lines", required=True),)
        return Form(title="Answer", submit="Send", fields=fields, data=data, intro=title_of(item))
    if not limits.begins or (hide and not {*hide}.isdisjoint(item.args)):
        return None
    fields = tuple(_fields(item, request.schema))
    if not fields or len(fields) > limits.fields or any(not _fits(each, limits) for each in fields):
        return None
    return Form(title="Edit and approve", submit="Approve", fields=fields, data=data, intro=title_of(item))


def read_form(action: Action, request: Request, submitted: Submitted) -> tuple[Answer | None, dict[str, str]]:
    """The answer that a form comes to, or what is wrong with it, by the names of its fields."""
    if action == "reason":
        reason = submitted.values.get(REASON, "").strip()
        return (Reject(reason=reason), {}) if reason else (None, {REASON: "Say why."})
    if action == "respond":
        content = submitted.values.get(CONTENT, "")
        return (Respond(content=content), {}) if content else (None, {CONTENT: "Write the result."})
    return _read_edit(request, submitted)


def as_json(answer: Respond) -> Respond | None:
    """The same answer with its text read as JSON, for a question that wants no text; None if it is none."""
    content = answer.content
    try:
        return Respond(content=parse(content)) if isinstance(content, str) else None
    except JsonError:
        return None


def _fields(item: PendingApproval, schema: JsonDict | None) -> list[Field]:
    return [_field(name, value, _schema_of(schema, name)) for name, value in item.args.items()]


def _schema_of(schema: JsonDict | None, name: str) -> JsonDict:
    properties = (schema or {}).get("properties")
    found = properties.get(name) if isinstance(properties, dict) else None
    return found if isinstance(found, dict) else {}


def _field(name: str, value: JsonValue, schema: JsonDict) -> Field:
    shown = _shown(value)
    hint = f"Asked: {escaped(shown)}" if shown and len(shown) <= 200 else ""
    label = escaped(name)[:200]
    choices = _choices(schema)
    if choices and shown in choices:
        return Field(
            name=_PREFIX + name, label=label, value=shown, kind="choice", choices=choices, required=True, hint=hint
        )
    long = "\n" in shown or len(shown) > 80 or isinstance(value, dict | list)
    return Field(name=_PREFIX + name, label=label, value=shown, kind="lines" if long else "text", hint=hint)


def _shown(value: JsonValue) -> str:
    """A value as it is edited: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else canonical(value)


def _choices(schema: JsonDict) -> tuple[str, ...]:
    if schema.get("type") == "boolean":
        return ("true", "false")
    named = schema.get("enum")
    if not isinstance(named, list) or not all(isinstance(each, str) and each for each in named):
        return ()
    return tuple(str(each) for each in named)


def _fits(field: Field, limits: FormLimits) -> bool:
    sized = all(len(each) <= 75 for each in field.choices) and len(field.choices) <= limits.choices
    # A platform may give characters back otherwise than it got them.
    plain = "\r" not in field.value and "\0" not in field.value
    return len(field.value) <= limits.value and plain and sized and len(field.name) <= 200


def _read_edit(request: Request, submitted: Submitted) -> tuple[Answer | None, dict[str, str]]:
    item, schema = request.approval, request.schema
    args: JsonDict = {}
    errors: dict[str, str] = {}
    for name in submitted.values:
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX) not in item.args:
            errors[name] = "There is no such argument."
    for name, before in item.args.items():
        given = submitted.values.get(_PREFIX + name, None if submitted.partial else "")
        if given is None or given == _shown(before):
            args[name] = before
            continue
        try:
            args[name] = _read(given, _types(_schema_of(schema, name)), before)
        except JsonError:
            errors[_PREFIX + name] = "This is not valid JSON, or not a number."
    if errors:
        return None, errors
    # The schema of a server may be made so that a check of it takes for ever. The worker has what stops that.
    if schema is not None and not item.tool.source.startswith("mcp:"):
        for pointer, wrong in misfits(args, schema):
            name = pointer[1:].partition("/")[0].replace("~1", "/").replace("~0", "~")
            at = name if name in item.args else next(iter(item.args), "")
            errors.setdefault(_PREFIX + at, f"This does not fit: {wrong[:100]}")
    return (None, errors) if errors else (Approve(args=args), {})


def _types(schema: JsonDict) -> set[str]:
    """The types of JSON that a schema names; none if it does not say."""
    named = schema.get("type")
    found = {each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str)}
    several = schema.get("anyOf")
    for each in several if isinstance(several, list) else ():
        if isinstance(each, dict):
            found |= _types(each)
    return found


def _read(text: str, types: set[str], before: JsonValue) -> JsonValue:
    """The value that somebody has written. Raises `JsonError`."""
    if not text and "null" in types:
        return None
    if types - {"null"} == {"string"} or (not types and isinstance(before, str)):
        return text
    try:
        return parse(text.strip())
    except JsonError:
        if "string" in types:
            return text
        raise
