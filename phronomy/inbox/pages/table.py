"""The routes of the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from phronomy.inbox.pages.api import API_PAGE
from phronomy.inbox.pages.assets import STATIC
from phronomy.inbox.pages.chat import CHAT
from phronomy.inbox.pages.deciding.batch import BATCH
from phronomy.inbox.pages.deciding.decisions import REQUESTS
from phronomy.inbox.pages.help import HELP
from phronomy.inbox.pages.records.grants import GRANTS
from phronomy.inbox.pages.records.history import HISTORY
from phronomy.inbox.pages.records.operations import OPERATIONS
from phronomy.inbox.pages.records.runs import RUNS
from phronomy.inbox.pages.records.versions import VERSIONS
from phronomy.inbox.pages.sign_in import SIGN_IN
from phronomy.inbox.pages.typed import typed_before
from phronomy.inbox.pages.view import render
from phronomy.inbox.pages.waiting import WAITING
from phronomy.inbox.pages.words import MAY
from phronomy.inbox.problems import TYPES, Problem
from phronomy.inbox.routes import Route

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit


async def problem_page(visit: Visit, route: Route | None, problem: Problem, log_id: str) -> Response:
    """The page about a problem, with what somebody had typed into the form that met it."""
    kind = TYPES[problem.type]
    given = await typed_before(visit, route, problem)
    lead = kind.on_page if problem.detail == kind.advice else problem.detail
    if (scope := problem.members.get("scope")) in MAY:
        lead = f"You are not allowed to {MAY[str(scope)]}."
    return render(
        visit,
        "problem.html",
        problem=problem,
        kind=kind,
        lead=lead,
        typed=given.typed,
        too_long=given.too_long,
        back=given.back,
        log_id=log_id,
        status=problem.status,
    )


async def problem_type(visit: Visit) -> Response:
    """The page that the type of a problem leads to."""
    kind = TYPES.get(visit.params["name"])
    if kind is None:
        raise Problem("not-found")
    return render(visit, "problem_type.html", name=visit.params["name"], kind=kind)


PAGES: Final[tuple[Route, ...]] = (
    Route(method="GET", path="/problems/{name}", handler=problem_type, public=True, page=True),
    *STATIC,
    *WAITING,
    *REQUESTS,
    *BATCH,
    *RUNS,
    *CHAT,
    *VERSIONS,
    *OPERATIONS,
    *HISTORY,
    *GRANTS,
    *HELP,
    *SIGN_IN,
    *API_PAGE,
)
