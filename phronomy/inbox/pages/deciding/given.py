"""An answer that came in a form: which one, of what, and what is wrong with it."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from phronomy.approvals.answers import answer_digest
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import parse
from phronomy.inbox.pages.forms.fields import Field, form_of
from phronomy.inbox.pages.forms.filled import read_form
from phronomy.inbox.pages.words import THEN, answer_schema
from phronomy.inbox.problems import Problem
from phronomy.inbox.service import is_risky
from phronomy.records.decisions import Answer, Approve, PendingApproval, Reject, Respond, Skip, Then
from phronomy.stores.derived.requests import Request
from phronomy.stores.derived.standing import WAYS, Way
from phronomy.tools.json_schema.typed import TEXT, Mistyped, answer_shape, typed_answer

if TYPE_CHECKING:
    from phronomy.inbox.visit import Form

MOST_WORDS: Final = 10_000
"""Characters of a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An answer as somebody gave it: the `way`, and the `answer`, unless `errors` say what is wrong, each by the name of its control.

    `typed` are the texts that they wrote, by the names of their controls: what is kept if the answer does not count.
    """

    way: Way
    answer: Answer | None
    errors: Mapping[str, str]
    typed: Mapping[str, str]


def way_of(form: Form) -> Way:
    """Which way to answer a form takes. Raises `Problem`."""
    given = form.needed("answer")
    for way in WAYS:
        if given == way:
            return way
    raise Problem("bad-request", "The form has no answer that is known.")


def answer_in(form: Form, request: Request, args: str | None = None) -> Given:
    """The answer of a form; `args` are edited arguments, which were checked. Raises `Problem` for a form that is none of ours."""
    way = way_of(form)
    answer: Answer | None = None
    errors: dict[str, str] = {}
    typed: dict[str, str] = {}
    match way:
        case "approve":
            answer = Approve()
        case "skip":
            answer = Skip()
        case "edit":
            answer = Approve(args=parse(args)) if args is not None else None  # type: ignore[arg-type]
        case "reject":
            typed["reason"] = reason = _lines(form.get("reason") or "")
            then = _then(form.get("then") or "continue")
            typed["then"] = then
            answer = _reject(reason, then, errors)
        case "respond":
            answer = _respond(form, request, errors, typed)
    return Given(way=way, answer=answer, errors=errors, typed=typed)


def _then(given: str) -> Then:
    """What is to follow a rejection. Raises `Problem`."""
    for each in THEN:
        if given == each:
            return each
    raise Problem("bad-request", "The form has no such consequence.")


def _reject(reason: str, then: Then, errors: dict[str, str]) -> Reject | None:
    if not reason.strip():
        errors["reason"] = "Say why: the agent reads it, and so does whoever looks later."
        return None
    if len(reason) > MOST_WORDS:
        errors["reason"] = f"A reason has at most {MOST_WORDS:,} characters."
        return None
    return Reject(reason=reason.strip(), then=then)


def _respond(form: Form, request: Request, errors: dict[str, str], typed: dict[str, str]) -> Respond | None:
    field = answer_form(request)
    if field is not None and form.get("content") is None:
        typed |= {name: _lines(value) for name, value in form.pairs if name[:1] in "fn" and name[1:2] in ("", "/")}
        found = read_form(field, form)
        if found.errors or found.text is None:
            errors.update({f"f{pointer}": told for pointer, told in found.errors.items()})
            return None
        return Respond(content=parse(found.text))
    typed["content"] = content = _lines(form.get("content") or "")
    if not content.strip():
        errors["content"] = "Write what the agent is to get as the result."
        return None
    try:
        return Respond(content=typed_answer(request.approval, content, request.result_schema))
    except Mistyped as wrong:
        errors["content"] = str(wrong)
        return None


def answer_form(request: Request) -> Field | None:
    """The form for the answer to a question: of its type, or a text where it takes anything. For the result of an external tool
    too, if it says of which type that is; None for other results, which are texts."""
    item, returns = request.approval, request.result_schema
    if item.why == "question":
        schema = answer_schema(item)
        return form_of(schema if schema is not None else {"type": "string"}, None, "Your answer")
    if returns is None or answer_shape(item, returns) == TEXT:
        return None
    return form_of(returns, None, "The result")


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_reviewed(item: PendingApproval, way: Way) -> bool:
    """Whether an answer is shown once more before it counts."""
    return way == "edit" or is_risky(item)


def seal_of(given: Answer, item: PendingApproval) -> str:
    """What a review page sends back to say that exactly this was reviewed."""
    return hashlib.sha256(answer_digest(given, item.digest).encode()).hexdigest()


def new_key() -> str:
    """A key for one decision, made when its form is made: sent twice, it counts once."""
    return secrets.token_urlsafe(18)
