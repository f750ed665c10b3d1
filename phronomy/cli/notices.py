"""Notices: a bell or a sequence for the terminal, or a program of the desktop, for somebody who looks elsewhere.

A notice moves nothing on the screen. Its text is ASCII in which nothing is acted on: the name of a tool may come from a server.
"""

from __future__ import annotations

import html
import shutil
import subprocess
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from phronomy.foundation.suspicious_letters import escaped

_TITLE: Final = "phronomy"
_LONGEST: Final = 100
_PATIENCE: Final = 5
"""Seconds that a program has to show a notice."""


class Notice(StrEnum):
    """How somebody is told that something waits."""

    AUTO = "auto"
    BELL = "bell"
    OSC9 = "osc9"
    OSC777 = "osc777"
    DESKTOP = "desktop"
    NONE = "none"


def sequence_of(notice: Notice, text: str, environ: Mapping[str, str]) -> str:
    """What the terminal is sent for a notice; nothing where it is not the terminal that shows it.

    OSC 9 is of iTerm2, OSC 777 of rxvt: https://iterm2.com/documentation-escape-codes.html,
    https://codeberg.org/dnkl/foot#supported-oscs. `auto` takes what the environment says that the terminal knows, or the bell.
    """
    said = plain(text)
    match _known(environ) if notice is Notice.AUTO else notice:
        case Notice.OSC9:
            return f"\x1b]9;{_TITLE}: {said}\x07"
        case Notice.OSC777:
            return f"\x1b]777;notify;{_TITLE};{said.replace(';', ',')}\x07"
        case Notice.BELL:
            return "\x07"
        case _:
            return ""


def plain(text: str) -> str:
    """The text in ASCII that can be seen, and not too long."""
    found = escaped(text).encode("ascii", "backslashreplace").decode()
    return found if len(found) <= _LONGEST else f"{found[: _LONGEST - 3]}..."


def program() -> list[str] | None:
    """The program of this desktop that shows notices; None if there is none."""
    if sys.platform == "darwin" and (found := shutil.which("osascript")) is not None:
        # The text is an argument of the script, and no part of it.
        said = f'display notification (item 1 of argv) with title "{_TITLE}"'
        return [found, "-e", "on run argv", "-e", said, "-e", "end run"]
    if (found := shutil.which("notify-send")) is not None:
        return [found, f"--app-name={_TITLE}", "--", _TITLE]
    return None


def show(command: list[str], text: str) -> None:
    """Show a notice on the desktop. What fails is no reason to stop: it is on the screen as well."""
    # Some servers read markup in the text.
    said = html.escape(plain(text), quote=False) if command[0].endswith("notify-send") else plain(text)
    try:
        subprocess.run(  # noqa: S603  # a program of the desktop, found by its name
            [*command, said],
            check=False,
            timeout=_PATIENCE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return


def _known(environ: Mapping[str, str]) -> Notice:
    """What the terminal knows, by what it says of itself. One inside another, such as tmux, passes only the bell on."""
    term = environ.get("TERM", "")
    if "TMUX" in environ or term.startswith(("screen", "tmux")):
        return Notice.BELL
    if environ.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm", "ghostty") or "KITTY_WINDOW_ID" in environ:
        return Notice.OSC9
    return Notice.OSC777 if term.startswith(("foot", "rxvt-unicode")) else Notice.BELL
