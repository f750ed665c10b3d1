"""Asking a human at a terminal what is to be done about a request, once they have seen it: for `chat` and `watch`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from phronomy.cli.commands.decide import VIEW_FIRST, Request, edit_in_place, show_edited, typed_result
from phronomy.cli.screen import POLL
from phronomy.errors import InvalidDecision
from phronomy.records.decisions import Answer, Approve, Reject, Skip
from phronomy.stores.derived.standing import Way, offered_by

KEYS: Final[dict[Way, tuple[str, str]]] = {
    "approve": ("a", "[a]pprove"),
    "reject": ("r", "[r]eject"),
    "edit": ("e", "[e]dit"),
    "respond": ("s", "re[s]pond"),
    "skip": ("k", "s[k]ip"),
}
"""What a human types to decide, and how it is offered."""


def ask_answer(
    request: Request, is_cut: bool, *, until: Callable[[], bool] | None = None, every: float = POLL
) -> Answer | None:
    """Ask the human until there is an answer. None: later.

    `until` is asked every so many seconds whether the question is still open. Raises `Overtaken` once it is not.
    """
    screen, pending, afresh = request.screen, request.pending, True
    ask = screen.ask if until is None else partial(screen.ask, until=until, every=every)
    args, draw = pending.args, request.draw
    can, unseen = offered_by(pending), is_cut
    while True:
        view = ["[v]iew all"] if is_cut else []
        ways = ", ".join([*(KEYS[way][1] for way in KEYS if way in can), *view])
        choice = ask(f"{ways} or [l]ater? ", afresh=afresh).lower()
        afresh = False
        match choice:
            case "a" | "approve" if unseen and ("approve" in can or args != pending.args):
                screen.say(VIEW_FIRST, style="yellow")
            case "a" | "approve" if "approve" in can or args != pending.args:
                return Approve(args=args) if args != pending.args else Approve()
            case "r" | "reject" if "reject" in can:
                return Reject(reason=ask("Why? The model will read it (Enter for no reason): ") or None)
            case "s" | "respond" if "respond" in can:
                if (answer := _result(request, ask("The result, which the model will read: "))) is not None:
                    return answer
            case "k" | "skip" if "skip" in can:
                return Skip()
            case "e" | "edit" if "edit" in can:
                if (edited := _edited(request, args)) is not None:
                    args = edited
                    draw = partial(show_edited, pending=pending, mask=request.mask, args=args)
                    is_cut = screen.brief(draw)  # what was not seen before is what they have typed
            case "v" | "view" if is_cut:
                screen.page(draw)
                unseen = False
            case "l" | "later":
                return None
            case _:
                keys = [*(KEYS[way][0] for way in KEYS if way in can), *("v" for _ in view)]
                screen.say(f"Please answer {', '.join(keys)} or l.")


def _result(request: Request, typed: str) -> Answer | None:
    """The result that somebody has typed. None: nothing, or what is no result."""
    try:
        return typed_result(request, typed) if typed else None
    except InvalidDecision as error:
        request.screen.say(str(error), style="yellow")
        return None


def _edited(request: Request, args: dict[str, Any]) -> dict[str, object] | None:
    """The arguments as the human wants them. None: they cannot be edited here."""
    screen, pending, mask = request.screen, request.pending, request.mask
    very = mask.tool(pending)
    tool = very or mask.named(pending.tool_name)
    if tool is None:
        screen.say(f"The app has no tool {pending.tool_name}, so edited arguments cannot be checked.")
        return None
    return edit_in_place(screen, tool, args, mask.masked(args, very))
