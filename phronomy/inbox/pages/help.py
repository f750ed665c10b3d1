"""The page of help: what the inbox is for, what happens to an answer, and the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from phronomy.inbox.pages.view import render
from phronomy.inbox.routes import Route

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit

KEYS: Final = (
    (("j", "k"), "the next or the last request of the list"),
    (("Enter",), "open it"),
    (("u",), "back to the list"),
    (("n",), "the next request, after a decision"),
    (("/",), "search"),
    (("a",), "go to Approve, without approving"),
    (("r",), "open Reject, at the reason"),
    (("e",), "open the values, to change them"),
    (("d",), "open the answer or result that you give yourself"),
    (("Ctrl+Enter",), "send the form that you are in"),
    (("?",), "this page"),
)
"""What each key does. No single key decides anything."""


async def help_page(visit: Visit) -> Response:
    """The page of help."""
    return render(visit, "help.html", here="/help", keys=KEYS)


HELP: Final = (Route(method="GET", path="/help", handler=help_page, public=True, page=True),)
