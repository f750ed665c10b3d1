"""What all workers of one run of the tests share: a directory, and the servers that are started in it.

The process that began the run makes the directory, and names it to its workers by the environment. When that process ends,
however it ends, what was started is killed and the directory is gone.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = "PHRONOMY_TESTS_SHARED"
_WATCH = """
while kill -0 "$0" 2>/dev/null && [ -d "$1" ]; do sleep 0.2; done
kill -9 $(cat "$1"/*.pid 2>/dev/null) 2>/dev/null
rm -rf "$1"
"""

_watching: list[subprocess.Popen[bytes]] = []


def folder() -> Path:
    """The directory, made when it is first asked for."""
    if _NAME not in os.environ:
        begin()
    return Path(os.environ[_NAME])


def begin() -> None:
    """Make the directory of a run of tests that this process has begun."""
    place = tempfile.mkdtemp(prefix="phronomy-tests-")
    os.chmod(place, 0o711)  # a server that runs as another user finds its files in it
    os.environ[_NAME] = place
    # A client of HTTP reads the authorities of the whole web when it is made, which takes 50 ms. No test speaks to the web, and those
    # that use TLS say whom they trust; the key of this one authority is gone.
    os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("authority.pem"))
    quiet = subprocess.DEVNULL
    _watching.append(
        subprocess.Popen(
            ["sh", "-c", _WATCH, str(os.getpid()), place],
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
        )
    )


@contextmanager
def alone(name: str) -> Iterator[None]:
    """One worker at a time is in here."""
    with (folder() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def at_the_end(name: str, process: int) -> None:
    """Have the process killed when the run ends, unless the same name is given to a later one."""
    (folder() / f"{name}.pid").write_text(f"{process}\n")


def wait_for_all(name: str, number: int, seconds: float = 60.0) -> None:
    """Return when so many processes have come here, or when one of them must have been lost on the way."""
    place, until = folder() / name, time.monotonic() + seconds
    place.mkdir(exist_ok=True)
    (place / str(os.getpid())).touch()
    while len(os.listdir(place)) < number and time.monotonic() < until:
        time.sleep(0.01)
