"""A port that a test chooses for a server which it starts, and maybe starts again."""

from __future__ import annotations

import socket


class HeldPort:
    """A free port of this machine, kept for the servers of one test until `close`.

    A socket has the port, and does not listen: as long as no server of the test does, a connection is refused. Linux gives the port to
    nobody who asks for any, and lets a server listen at it that asks for this very one (with `SO_REUSEADDR`, as all servers do).
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def __enter__(self) -> HeldPort:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Keep it no longer."""
        self._socket.close()
