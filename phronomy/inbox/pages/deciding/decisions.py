"""Deciding a request: an answer comes in a form, is shown once more if it is risky, and counts, or is told why it does not."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse, Response

from phronomy.errors import PhronomyError, UnknownPending
from phronomy.foundation.json_text import JsonError, parse
from phronomy.foundation.json_tree import read_tree
from phronomy.inbox.pages.deciding.given import Given, answer_form, answer_in, is_reviewed, new_key, seal_of, way_of
from phronomy.inbox.pages.deciding.requests import (
    Kept,
    gone,
    listed_of,
    request_page,
    request_parts,
    request_shown,
    state_fragment,
    state_parts,
)
from phronomy.inbox.pages.forms.fields import Field, form_of
from phronomy.inbox.pages.forms.filled import moved, read_form, refilled, why_no_json
from phronomy.inbox.pages.values import values_of
from phronomy.inbox.pages.view import aside, render
from phronomy.inbox.pages.waiting import path_of, votes_of
from phronomy.inbox.pages.words import DECIDED, THEN, heading, on_no, on_yes, sure, verb
from phronomy.inbox.problems import TYPES, Problem, problem_of
from phronomy.inbox.routes import Route
from phronomy.inbox.service import EditCheck, Shown, check_edit, decide, show
from phronomy.records.decisions import Reject, Respond

if TYPE_CHECKING:
    from phronomy.inbox.visit import Form, Visit

CHANNEL: Final = "inbox"

LOST: Final = frozenset(
    {"already-decided", "already-voted", "expired", "withdrawn", "not-an-approver", "digest-mismatch", "not-found"}
)
"""The problems after which somebody is shown how things are now, with what they had typed."""


async def review(visit: Visit) -> Response:
    """Show a decision once more, before it counts."""
    visit.inbox.limits.check(visit.identity)
    form, found = visit.form(), await _shown(visit)
    if found is None:
        return gone(visit, _typed_in(form))
    if form.get("back") is not None:
        return await _again(visit, found, form, {}, "")
    checked = await _checked(visit, found, form)
    if isinstance(checked, Response):
        return checked
    given, edit = checked
    return await aside(_size(found, form), _review_page, visit, found, form, given, edit)


async def decision(visit: Visit) -> Response:
    """Decide a request; what has to be reviewed first, and was not, is shown once more."""
    visit.inbox.limits.decision(visit.identity)
    form, found = visit.form(), await _shown(visit)
    if found is None:
        return gone(visit, _typed_in(form))
    checked = await _checked(visit, found, form)
    if isinstance(checked, Response):
        return checked
    given, edit = checked
    assert given.answer is not None
    item = found.request.approval
    if is_reviewed(item, given.way) and form.get("confirmed") != seal_of(given.answer, item):
        return await aside(_size(found, form), _review_page, visit, found, form, given, edit)
    visit.about.append(item.id)
    try:
        await decide(
            visit.store,
            visit.identity,
            item.id,
            given.answer,
            digest=form.needed("digest"),
            key=form.needed("key"),
            channel=CHANNEL,
        )
    except PhronomyError as error:
        problem = problem_of(error)
        if problem.type in LOST:
            return await _lost(visit, problem, given)
        if problem.type == "invalid":
            return await _again(visit, found, form, {}, str(error))
        raise
    there = visit.url(path_of(item.id, listed_of(visit)))
    return RedirectResponse(f"{there}#result", status_code=HTTPStatus.SEE_OTHER)


async def edit(visit: Visit) -> Response:
    """Check changed values: show what is wrong at its field, or the decision once more with all that it changes."""
    return await review(visit)


async def _shown(visit: Visit) -> Shown | None:
    try:
        return await show(visit.store, visit.identity, visit.params["id"])
    except UnknownPending:
        return None


def _typed_in(form: Form) -> list[str]:
    """What somebody wrote into a form, where nothing tells any more what it was for."""
    return [text for name in ("reason", "content", "args") if (text := form.get(name) or "").strip()]


async def _checked(visit: Visit, found: Shown, form: Form) -> tuple[Given, EditCheck | None] | Response:
    """The answer of a form, and what its edit comes to; or the page that says what is wrong."""
    item = found.request.approval
    if form.needed("digest") != item.digest:
        return await _lost(visit, Problem("digest-mismatch", digest=item.digest), answer_in(form, found.request))
    if way_of(form) == "edit":
        return await _checked_edit(visit, found, form)
    given = answer_in(form, found.request)
    if given.answer is None:
        return await _again(visit, found, form, given.errors, "")
    return given, None


async def _checked_edit(visit: Visit, found: Shown, form: Form) -> tuple[Given, EditCheck] | Response:
    item = found.request.approval
    text = form.get("args")
    errors = {}
    if text is None:
        drawn = _edit_form(found)
        filled = read_form(drawn, form)
        text, errors = filled.text or "{}", {f"f{at}": told for at, told in filled.errors.items()}
    if errors:
        return await _again(visit, found, form, errors, "")
    try:
        check = await check_edit(
            visit.store, visit.identity, item.id, digest=item.digest, text=text, tool_of=visit.inbox.tool_of
        )
    except Problem as problem:
        if problem.type == "digest-mismatch":
            return await _lost(visit, problem, answer_in(form, found.request))
        if problem.type != "invalid-edit":
            raise
        return await _again(visit, found, form, {"args": _why(text)}, "")
    if check.errors:
        fields = {f"f{each.pointer}": each.detail for each in check.errors}
        return await _again(visit, found, form, fields, "")
    if not check.changes:
        return await _again(visit, found, form, {}, "Nothing is changed. Approve it as it is, or change a value.")
    return answer_in(form, found.request, check.text), check


def _why(text: str) -> str:
    try:
        parse(text)
    except JsonError as error:
        return f"This is no JSON: {why_no_json(error)}."
    return "The values are an object: names and values in braces."


def _edit_form(found: Shown) -> Field:
    return form_of(found.request.schema, read_tree(found.request.approval.json_text("args")))


async def _again(visit: Visit, found: Shown, form: Form, errors: Mapping[str, str], problem: str) -> Response:
    """The page of the request with the form as it came back, and what is wrong."""
    told = dict(errors)
    way = way_of(form)
    drawn = answered = None
    text = form.get("args") if way == "edit" else None
    if text is not None and form.get("back") is not None and (drawn := _moved(found, text)) is not None:
        text = None
    elif way == "edit" and text is None:
        drawn, told = _placed(_edit_form(found), form, told)
    elif way == "edit":
        told = (
            {"args": "; ".join(f"{at[1:] or 'all'}: {why}" if at != "args" else why for at, why in told.items())}
            if told
            else {}
        )
    elif way == "respond" and (asked := answer_form(found.request)) is not None:
        answered, told = _placed(asked, form, told)
    kept = Kept(
        given=answer_in(form, found.request),
        way=way,
        edit=drawn,
        edit_text=text,
        answer=answered,
        errors=told,
        problem=problem,
    )
    back = form.get("back") is not None
    status = HTTPStatus.OK if back else HTTPStatus.UNPROCESSABLE_ENTITY
    return await request_shown(visit, found, listed_of(visit), status=status, kept=kept)


def _moved(found: Shown, text: str) -> Field | None:
    """The form with the values of this text, where it has the fields for all of them."""
    try:
        return moved(_edit_form(found), form_of(found.request.schema, read_tree(text)))
    except JsonError:
        return None


def _placed(field: Field, form: Form, errors: dict[str, str]) -> tuple[Field, dict[str, str]]:
    """The form as it came back, and each error at the field that is nearest to its place: with the id of that for a link."""
    by_pointer = {each.pointer: each for each in field.all()}
    at_fields: dict[str, str] = {}
    summary: dict[str, str] = {}
    for name, why in errors.items():
        pointer = name[1:]
        while pointer not in by_pointer:
            pointer = pointer.rpartition("/")[0]
        where = by_pointer[pointer]
        rest = name[1:].removeprefix(pointer).strip("/")
        detail = f"{rest}: {why}" if rest else why
        at_fields[pointer] = f"{at_fields[pointer]} {detail}" if pointer in at_fields else detail
        summary[where.id] = f"{where.label}: {at_fields[pointer]}" if where.label else at_fields[pointer]
    return refilled(field, form, at_fields), summary


def _size(found: Shown, form: Form) -> int:
    return len(found.request.approval.json_text("args")) + sum(len(text) for _, text in form.pairs)


def _review_page(visit: Visit, found: Shown, form: Form, given: Given, edit: EditCheck | None) -> Response:
    item = found.request.approval
    answer = given.answer
    assert answer is not None
    tool = visit.inbox.tool_of(item)
    sent = {**given.typed, **({"args": edit.text} if edit is not None else {})}
    return render(
        visit,
        "review.html",
        request_parts(visit, item),
        given=given,
        verb=verb(item, given.way),
        sure=sure(item, given.way),
        then=THEN[answer.then] if isinstance(answer, Reject) and not item.between_steps else "",
        follows=_follows(found, given),
        content=values_of(answer.json_text("content")) if isinstance(answer, Respond) else None,
        changes=edit.changes if edit is not None else None,
        new_args=values_of(edit.text, tool.redact if tool is not None else ()) if edit is not None else None,
        by_tool=edit.by_tool if edit is not None else True,
        new_digest=edit.digest if edit is not None else None,
        sent=sent,
        seal=seal_of(answer, item),
        key=form.get("key") or new_key(),
        confirm_path=path_of(item.id, listed_of(visit), "/decision"),
        review_path=path_of(item.id, listed_of(visit), "/review"),
        back_path=path_of(item.id, listed_of(visit)),
    )


def _follows(found: Shown, given: Given) -> str:
    """What happens on this answer, in a sentence."""
    item, votes = found.request.approval, given.way in found.standing.partial
    if isinstance(given.answer, Reject):
        return on_no(item, given.answer.then, a_vote=votes)
    if given.way in ("approve", "edit"):
        return on_yes(item, votes_of(item, edited=given.way == "edit") if votes else "")
    return "Nothing runs."


async def _lost(visit: Visit, problem: Problem, given: Given) -> Response:
    """The page for somebody whose answer did not count: how things are now, and what they had typed."""
    found = await _shown(visit)
    if found is None:  # taken away between two reads
        return gone(visit, given.typed.values())
    decided = found.request.decision
    return render(
        visit,
        "lost.html",
        {**await state_parts(visit, found, listed_of(visit)), "heading": heading(found.request.approval)},
        status=problem.status,
        problem=problem,
        why=found.standing.said or TYPES["not-an-approver"].advice,
        typed=[text for name, text in given.typed.items() if name != "then" and text.strip()],
        was=DECIDED[decided.kind].lower() if decided is not None else None,
    )


REQUESTS: Final = (
    Route(method="GET", path="/requests/{id}", handler=request_page, scope="read", page=True),
    Route(method="GET", path="/requests/{id}/state", handler=state_fragment, scope="read", page=True),
    Route(method="POST", path="/requests/{id}/review", handler=review, scope=("decide", "read"), page=True),
    Route(method="POST", path="/requests/{id}/edit", handler=edit, scope=("decide", "read"), page=True),
    Route(
        method="POST", path="/requests/{id}/decision", handler=decision, scope=("decide", "read"), page=True, acts=True
    ),
)
