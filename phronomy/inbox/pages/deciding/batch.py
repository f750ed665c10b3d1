"""Deciding several requests at once: each is shown in full on one page, and none of them is risky."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from phronomy.errors import PhronomyError
from phronomy.foundation.dataclasses import dataclass
from phronomy.inbox.pages.deciding.decisions import CHANNEL
from phronomy.inbox.pages.deciding.given import Given, answer_in, new_key
from phronomy.inbox.pages.deciding.requests import request_parts
from phronomy.inbox.pages.deciding.states import said_of, state_of
from phronomy.inbox.pages.view import aside, render
from phronomy.inbox.pages.waiting import path_of
from phronomy.inbox.pages.words import WHY_NOT, heading
from phronomy.inbox.problems import TYPES, Problem, problem_of
from phronomy.inbox.routes import Route
from phronomy.inbox.service import Shown, goes_together, is_risky, named, show
from phronomy.stores.derived.batches import Answered

if TYPE_CHECKING:
    from phronomy.inbox.visit import Form, Visit

MOST: Final = 50
"""Requests of a batch: as many as a page of the list has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A request that was ticked and is not decided with the others, and why."""

    heading: str
    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one of the requests: what was recorded, or why nothing was."""

    heading: str
    path: str
    ok: bool
    text: str


async def batch(visit: Visit) -> Response:
    """Show the ticked requests in full, or decide those that were shown."""
    form = visit.form()
    ids = list(dict.fromkeys(form.getlist("id")))
    if len(ids) > MOST:
        raise Problem("bad-request", f"A batch has at most {MOST} requests.")
    if form.get("answer") is None:
        return await _review(visit, ids, {}, "")
    return await _decide(visit, form, ids)


async def _review(visit: Visit, ids: list[str], errors: dict[str, str], reason: str) -> Response:
    found = [await _looked_up(visit, id) for id in ids]
    ready = [each for each in found if isinstance(each, Shown)]
    size = sum(len(each.request.approval.json_text("args")) for each in ready)
    return await aside(
        size,
        render,
        visit,
        "batch.html",
        ready=await aside(size, _parts, visit, ready),
        left_out=[each for each in found if isinstance(each, LeftOut)],
        key=new_key(),
        errors=errors,
        reason=reason,
        status=422 if errors else 200,
    )


def _parts(visit: Visit, ready: list[Shown]) -> list[dict[str, object]]:
    return [{**request_parts(visit, each.request.approval), "path": _path(each)} for each in ready]


async def _looked_up(visit: Visit, id: str, *, now: bool = True) -> Shown | LeftOut:
    """A request that can be decided with others, or why it cannot; with `now`, also why this person cannot decide it at this moment."""
    try:
        found = await show(visit.store, visit.identity, id)
    except PhronomyError as error:
        return LeftOut(heading=id, path=path_of(id), why=f"{TYPES[problem_of(error).type].title}.")
    item = found.request.approval
    if is_risky(item):
        why = "It is of high risk, and is decided by itself."
    elif not goes_together(item):
        why = "It asks for more than a yes or a no."
    elif now and found.request.status != "pending":
        why = f"{state_of(visit, found).title}."
    elif now and not {"approve", "reject"} & set(found.standing.answers):
        why = found.standing.said or WHY_NOT[found.standing.why_not or "not_offered"]
    else:
        return found
    return LeftOut(heading=heading(item), path=path_of(id), why=why)


def _path(found: Shown) -> str:
    return path_of(found.request.approval.id)


async def _decide(visit: Visit, form: Form, ids: list[str]) -> Response:
    digests = form.getlist("digest")
    if len(digests) != len(ids) or not ids:
        raise Problem("bad-request", "The form does not name each request with its digest.")
    # Whether each still waits is judged where it is decided: what is sent twice is as good as sent once.
    found = {id: await _looked_up(visit, id, now=False) for id in ids}
    outcomes: dict[str, Outcome] = {}
    answers: list[Answered] = []
    for id, digest in zip(ids, digests, strict=True):
        each = found[id]
        if isinstance(each, LeftOut):
            outcomes[id] = Outcome(heading=each.heading, path=each.path, ok=False, text=each.why)
            continue
        if digest != each.request.approval.digest:
            why = f"{TYPES['digest-mismatch'].title}."
            outcomes[id] = Outcome(heading=heading(each.request.approval), path=_path(each), ok=False, text=why)
            continue
        given = _answer(form, each)
        if given.answer is None:
            return await _review(visit, ids, dict(given.errors), form.get("reason") or "")
        answers.append(Answered(pending_id=id, digest=digest, answer=given.answer, key=f"{form.needed('key')}:{id}"))
    if answers:
        await visit.confirm("decide")
        visit.inbox.limits.decision(visit.identity, len(answers))
    visit.about += [each.pending_id for each in answers]
    by = visit.identity.principal
    for one in await visit.store.adecide_all(answers, by=by, channel=CHANNEL) if answers else ():
        outcomes[one.pending_id] = await _outcome(visit, one.pending_id, one.error)
    return render(visit, "batch_done.html", outcomes=[outcomes[id] for id in ids])


def _answer(form: Form, found: Shown) -> Given:
    given = answer_in(form, found.request)
    if given.way not in ("approve", "reject"):
        raise Problem("bad-request", "Several requests are approved or rejected, and nothing else.")
    return given


async def _outcome(visit: Visit, id: str, error: PhronomyError | None) -> Outcome:
    found = await show(visit.store, visit.identity, id)
    item, said = found.request.approval, said_of(visit, found)
    if error is not None:
        text = TYPES[problem_of(error).type].title
        if said is not None and said.decision.by is not None:
            text = f"{said.what} by {named(said.decision.by)} before you"
    else:
        text = f"{said.what} by you" if said is not None else state_of(visit, found).title
    return Outcome(heading=heading(item), path=path_of(id), ok=error is None, text=f"{text}.")


BATCH: Final = (Route(method="POST", path="/batch", handler=batch, scope=("decide", "read"), page=True, acts=True),)
