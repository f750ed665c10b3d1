"""An end for a connection, whatever the other side does: a timeout of a socket begins anew with each byte that arrives."""

from __future__ import annotations

import socket
import threading


class Deadline:
    """Ends the connections that it watches after so many seconds. Use it as a context."""

    def __init__(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._twins: list[socket.socket] = []
        self._over = False

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        self._timer.join()
        with self._lock:
            for twin in self._twins:
                twin.close()
            self._twins.clear()

    def watch(self, connection: socket.socket) -> None:
        """End this connection too once the time is over; at once if it is."""
        # A twin, since the socket itself is out of reach while TLS begins.
        twin = connection.dup()
        with self._lock:
            self._twins.append(twin)
            if self._over:
                _shut(twin)

    def _end(self) -> None:
        with self._lock:
            self._over = True
            for twin in self._twins:
                _shut(twin)


def _shut(twin: socket.socket) -> None:
    try:
        twin.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the other side was first
