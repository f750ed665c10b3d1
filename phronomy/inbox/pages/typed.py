"""What somebody had typed into a form that is refused before it is read: the page of the refusal shows it, and leads back.

Nothing is done with it, and nothing of it is kept. Of a form that another site had a browser send, nothing is shown: whoever looks
has not typed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect

from phronomy.foundation.dataclasses import dataclass
from phronomy.inbox import security
from phronomy.inbox.pages.deciding.requests import listed_of
from phronomy.inbox.pages.records.runs import run_path
from phronomy.inbox.pages.waiting import path_of
from phronomy.inbox.problems import Problem
from phronomy.inbox.visit import body_of

if TYPE_CHECKING:
    from phronomy.inbox.routes import Route
    from phronomy.inbox.visit import Form, Visit

MOST: Final = 65_536
"""Bytes of a form that is shown again. Whoever sends it may be anybody: what is longer is not read."""

SHOWN_AGAIN: Final = frozenset({"not-signed-in", "cross-site", "forbidden", "slow-down"})
"""The problems after which it is shown: nothing was done by then."""

_NAMES: Final = ("reason", "content", "args", "condition", "uses", "until", "label")


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """What was `typed`, whether it was `too_long` to be shown, and the path of the page that the form was on; None: no form."""

    typed: tuple[str, ...] = ()
    too_long: bool = False
    back: str | None = None


NOTHING: Final = Typed()


async def typed_before(visit: Visit, route: Route | None, problem: Problem) -> Typed:
    """What somebody had typed who is told of this problem, if it was a form of a page of ours."""
    if route is None or route.method != "POST" or not route.page or route.public or problem.type not in SHOWN_AGAIN:
        return NOTHING
    back = _page_of(visit)
    try:
        security.check_same_origin(visit.request, visit.inbox.origin, visit.inbox.trusted_hosts)
    except Problem:
        return NOTHING
    try:
        visit.body = visit.body or await body_of(visit.request, MOST)
        if len(visit.body) > MOST:
            return Typed(too_long=True, back=back)
        return Typed(typed=_texts(visit.form()), back=back)
    except (Problem, ClientDisconnect) as error:
        return Typed(too_long=isinstance(error, Problem) and error.type == "too-large", back=back)


def _texts(form: Form) -> tuple[str, ...]:
    """The texts that somebody has typed, and the fields of an edit, a line each."""
    texts = [text for name in _NAMES for text in form.getlist(name) if text.strip()]
    fields = [f"{name[1:]}: {text}" for name, text in form.pairs if name.startswith("f/")]
    return (*texts, *(["\n".join(fields)] if fields else []))


def _page_of(visit: Visit) -> str:
    """The path of the page with the form: a form is sent to a path below it, or beside it."""
    place = visit.place or ""
    if place.startswith("/requests/{id}/"):
        end = "/grant" if place.endswith("/grant") else ""
        return path_of(visit.params["id"], listed_of(visit), end)
    if place.startswith("/runs/{id}/"):
        return run_path(visit.params["id"])
    return next((each for each in ("/grants", "/me") if place.startswith(f"{each}/")), "/")
