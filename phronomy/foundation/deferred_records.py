"""Around pydantic's core: it builds the classes of records when they are first used, and makes errors of what ends a process."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pydantic_core import SchemaError

_lock: Final = threading.RLock()

# pydantic has a lock of its own: forked while a thread holds it, a child waits for good.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

_LEAVING: Final = re.compile(r"(KeyboardInterrupt|SystemExit): ?(.*)\Z", re.DOTALL)


@contextmanager
def building() -> Iterator[None]:
    """A class is built here: by one thread at a time, and at no moment of a fork."""
    with _lock:
        try:
            yield
        except SchemaError as error:
            leave_if_told(error)
            raise


def leave_if_told(error: Exception) -> None:
    """Raise the Ctrl-C, or the `SystemExit` of a signal's handler, that this error of pydantic's core was made of: its text tells."""
    if (told := _LEAVING.search(str(error))) is None:
        return
    if told[1] == "KeyboardInterrupt":
        raise KeyboardInterrupt from None
    raise SystemExit(int(told[2]) if told[2].isdecimal() else told[2] or None) from None
