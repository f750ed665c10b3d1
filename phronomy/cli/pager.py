"""The pager: another program, in which a long text is read page by page."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread

USUAL = ("less", "more")


def paged(text: str) -> bool:
    """Show a text in the pager of `PAGER`, or else in one that is usual. Whether there was one."""
    command = _command()
    if command is None:
        return False
    encoding = sys.stdout.encoding or "utf-8"
    environ = {**os.environ}
    if encoding.lower().replace("-", "") == "utf8":
        environ.setdefault("LESSCHARSET", "utf-8")
    with _ctrl_c_is_the_pagers(), suppress(OSError):  # that it was closed before the end, or is no program
        subprocess.run(command, input=text.encode(encoding, "backslashreplace"), env=environ, check=False)  # noqa: S603  # the user's own
        return True
    return False


def _command() -> list[str] | None:
    """Gives the command that starts the pager, None if there is none."""
    commands = [[name] for name in USUAL]
    with suppress(ValueError):  # it has an open quotation
        commands.insert(0, shlex.split(os.environ.get("PAGER", "")))
    return next((each for each in commands if each and shutil.which(each[0])), None)


@contextmanager
def _ctrl_c_is_the_pagers() -> Iterator[None]:
    """Leave it to the pager what a Ctrl-C means: killed by us, it would leave the terminal as it had made it."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)  # no SIG_IGN: the pager would inherit that
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
