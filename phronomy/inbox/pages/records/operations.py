"""The pages of what can be done to a run: each says what it would do, and asks once more; the form has the digest of what it says."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, get_args

from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from phronomy.debugger.stepping import Pace
from phronomy.inbox.idempotency import read_key, scoped
from phronomy.inbox.operating import SCOPES_OF, Offered, Terms, What, offered_in, operate_once, touched
from phronomy.inbox.pages.deciding.given import new_key
from phronomy.inbox.pages.deciding.requests import request_parts
from phronomy.inbox.pages.records.runs import STANDS, run_path
from phronomy.inbox.pages.records.versions import checkpoint_path, version_shown
from phronomy.inbox.pages.view import render
from phronomy.inbox.pages.waiting import path_of
from phronomy.inbox.pages.words import heading
from phronomy.inbox.problems import TYPES, Problem
from phronomy.inbox.routes import Handler, Route
from phronomy.inbox.versions import Version
from phronomy.records.chain import is_asked_anew

if TYPE_CHECKING:
    from phronomy.inbox.visit import Form, Visit

WORDS: Final[Mapping[What, tuple[str, str]]] = {
    "pause": ("Pause this run", "Pause it"),
    "cancel": ("End this run", "End it"),
    "fork": ("Fork the run here", "Fork it"),
    "restore": ("Go back to this checkpoint", "Go back"),
    "step": ("Step from here", "Let it go on to the next stop"),
}
"""What an operation is called: on top of its page, and on the button."""

PACES: Final[Mapping[Pace, str]] = {
    "step": "at the next boundary: after a reply of the model, or after all calls of it",
    "over": "at the next point of this run, or of one around it",
    "into": "at the next point, also inside a nested run",
    "out": "at the next point of a run around this one",
}
"""Where a step stops, in words."""

_RETOLD: Final = frozenset({"stale", "refused"})
"""The problems after which the page is shown anew, with what was typed."""

_MOST: Final = 10_000


class StepQuery(BaseModel):
    """From which request a step is made."""

    request: str = Field(max_length=200)


async def operation(visit: Visit, what: What) -> Response:
    """The page of an operation."""
    pending_id = visit.query(StepQuery).request if what == "step" else None
    return _page(visit, await _offered(visit, what, pending_id), {}, new_key())


async def done(visit: Visit, what: What) -> Response:
    """Do what the form of an operation says, once."""
    visit.inbox.limits.operation(visit.identity)
    form = visit.form()
    key, pending_id = form.needed("key"), form.needed("request") if what == "step" else None
    try:
        made = await operate_once(
            visit.inbox,
            visit.store,
            visit.identity,
            what,
            visit.params["id"],
            checkpoint_id=visit.params.get("checkpoint"),
            pending_id=pending_id,
            digest=form.needed("digest"),
            terms=_terms(form),
            key=scoped(visit.identity, f"page-runs/{what}", read_key(key)),
        )
    except Problem as problem:
        if problem.type not in _RETOLD:
            raise
        offered = await _offered(visit, what, pending_id)
        return _page(visit, offered, dict(form.pairs), new_key(), problem)
    visit.about += touched(visit.params["id"], made, pending_id)
    return RedirectResponse(visit.url(f"{run_path(made)}?said={what}#state"), status_code=HTTPStatus.SEE_OTHER)


def _terms(form: Form) -> Terms:
    """What the form says beside the digest. Raises `Problem`."""
    reason, label = (_line(form, name) for name in ("reason", "label"))
    pace = form.get("pace") or "step"
    if pace not in PACES:
        raise Problem("bad-request", "The form has no pace that is known.")
    found: Pace = next(each for each in get_args(Pace) if each == pace)
    return Terms(
        reason=reason,
        label=label,
        rerun=form.get("rerun") is not None,
        accept_changes=form.get("accept") is not None,
        pace=found,
    )


def _line(form: Form, name: str) -> str | None:
    text = (form.get(name) or "").replace("\r\n", "\n").strip()
    if len(text) > _MOST:
        raise Problem("invalid", f"The field {name} takes {_MOST:,} characters at most.")
    return text or None


async def _offered(visit: Visit, what: What, pending_id: str | None) -> Offered:
    return await offered_in(
        visit.inbox,
        visit.store,
        visit.identity,
        what,
        visit.params["id"],
        checkpoint_id=visit.params.get("checkpoint"),
        pending_id=pending_id,
    )


def _page(
    visit: Visit, offered: Offered, typed: Mapping[str, str], key: str, problem: Problem | None = None
) -> Response:
    what, branch, checkpoint = offered.what, offered.branch, offered.checkpoint
    title, button = WORDS[what]
    at_checkpoint = what in ("fork", "restore")
    path = checkpoint_path(branch.id, checkpoint.id, f"/{what}") if at_checkpoint else run_path(branch.id, f"/{what}")
    item = offered.item
    return render(
        visit,
        "operation.html",
        request_parts(visit, item) if item is not None else {"item": None},
        status=problem.status if problem is not None else HTTPStatus.OK,
        here="/runs",
        offered=offered,
        branch=branch,
        stands=STANDS[branch.status],
        row=version_shown(Version(checkpoint=checkpoint, parent=offered.parent, head_of=None)),
        waits=[(heading(each), path_of(each.id)) for each in checkpoint.pending],
        asks=any(is_asked_anew(call) for part in (checkpoint, *checkpoint.nested) for call in part.calls),
        title=title,
        button=button,
        paces=PACES,
        problem=problem,
        lead=TYPES[problem.type].on_page if problem is not None and problem.type == "stale" else "",
        typed=typed,
        key=key,
        action=path,
        back=checkpoint_path(branch.id, checkpoint.id) if at_checkpoint else run_path(branch.id),
    )


def _handlers(what: What) -> tuple[Handler, Handler]:
    async def show(visit: Visit) -> Response:
        return await operation(visit, what)

    async def do(visit: Visit) -> Response:
        return await done(visit, what)

    return show, do


def _routes(what: What, path: str, query: type[BaseModel] | None = None) -> tuple[Route, Route]:
    show, do = _handlers(what)
    return (
        Route(method="GET", path=path, handler=show, scope=SCOPES_OF[what], page=True, query=query),
        Route(method="POST", path=path, handler=do, scope=SCOPES_OF[what], page=True, acts=True),
    )


OPERATIONS: Final = (
    *_routes("pause", "/runs/{id}/pause"),
    *_routes("cancel", "/runs/{id}/cancel"),
    *_routes("step", "/runs/{id}/step", StepQuery),
    *_routes("fork", "/runs/{id}/checkpoints/{checkpoint}/fork"),
    *_routes("restore", "/runs/{id}/checkpoints/{checkpoint}/restore"),
)
