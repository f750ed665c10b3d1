"""Starting threads, with a Ctrl-C that comes meanwhile."""

from __future__ import annotations

import threading


def start(thread: threading.Thread) -> None:
    """Start the thread. Raises what a signal handler raises meanwhile, such as `KeyboardInterrupt`, as it is.

    `Thread.start` waits until the thread has begun. An interrupt in the moment after `Condition.wait` has let its lock go, and before
    it is ready to take it back, ends as "RuntimeError: release unlocked lock". That would be taken for a failure of the work.
    """
    try:
        thread.start()
    except RuntimeError as error:
        if error.__context__ is None or isinstance(error.__context__, Exception):
            raise
        raise error.__context__ from None
