"""PostgreSQL as a store meets it: with pools of others, and with connections that are cut where it hurts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import psycopg
import psycopg_pool
from drivers import PATIENCE
from servers import postgres, postgres_url

from phronomy.stores import AuditFilter, PostgresStore

PASSWORD = "hunter2"


def opened(schema: str, conninfo: str | None = None, **options: Any) -> PostgresStore:
    if "pool" not in options:
        conninfo = conninfo or postgres_url()
    return PostgresStore(conninfo, **{"schema": schema, "clock": lambda: 1000.0, "timeout": 20.0, **options})


@contextmanager
def handed(**options: Any) -> Iterator[psycopg_pool.ConnectionPool[Any]]:
    """A pool as a program has it: its connections begin transactions by themselves."""
    given = {"conninfo": postgres_url(), "min_size": 1, "max_size": 4, "open": True, **options}
    with psycopg_pool.ConnectionPool(**given) as pool:
        pool.wait()
        yield pool


def asking(sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """What the server answers to somebody else."""
    with psycopg.connect(postgres_url(), autocommit=True) as connection:
        return connection.execute(sql, values or None).fetchall()


def end_others(condition: str) -> None:
    """Have the server end the connections of all others for which this holds, and wait until they are gone."""
    asking(
        "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity"
        f" WHERE pid <> pg_backend_pid() AND datname = current_database() AND {condition}"
    )


def everything(store: PostgresStore) -> Any:
    branches = store.branches()
    audit = [row.body for row in store.select_audit(AuditFilter())]
    documents = [replace(each, version="") for each in store.select_documents("person")]
    return branches, [store.lineage(branch_id=branch.id).entries for branch in branches], audit, documents


class Proxy:
    """Stands between the store and the server, and may cut a connection off where COMMIT passes: `before` it, `after` it was done
    and before its answer, or `unseen` by the server, which waits for it. `refuses` lets nobody in any more once that was done.
    Or it `holds` a COMMIT until it is `released`."""

    def __init__(self) -> None:
        self.cuts: str | None = None
        self.refuses = False
        self.cut = 0
        self.holds = False
        self.held, self.released = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, **more: str) -> str:
        return psycopg.conninfo.make_conninfo(
            "", host="127.0.0.1", port=self.port, user="postgres", dbname=postgres().database, **more
        )

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuses and self.cut:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(postgres().socket)
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        """Questions and answers take turns, so that one thread can pass both on."""
        answers = threading.Thread(target=self._pass, args=(server, client), daemon=True)
        answers.start()
        with suppress(OSError):
            while data := client.recv(65536):
                if self.cuts is not None and b"COMMIT\0" in data:
                    how, self.cuts, self.cut = self.cuts, None, self.cut + 1
                    if how != "before":
                        client.shutdown(socket.SHUT_RDWR)
                        if how == "after":
                            server.sendall(data)
                        answers.join()
                    break
                if self.holds and b"COMMIT\0" in data:
                    self.holds = False
                    self.held.set()
                    assert self.released.wait(PATIENCE)
                server.sendall(data)
        for end in (client, server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _pass(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):  # a server that ends a connection with a COMMIT on its way resets it
            while data := server.recv(65536):
                client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._closed = True
        self._listener.close()
