"""A provider on the loopback interface that answers so slowly that it never ends: by a blank, a comment or a piece at a time."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Self

from drivers import PATIENCE


def chunk(text: str) -> bytes:
    """A piece of a body in chunked transfer coding."""
    return b"%x\r\n%s\r\n" % (len(text.encode()), text.encode())


def delta(**said: Any) -> bytes:
    """An event of a stream, with a piece of a reply in it."""
    return chunk(f"data: {json.dumps({'choices': [{'index': 0, 'delta': said, 'finish_reason': None}]})}\n\n")


_WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 30000000\r\n\r\n"
_ERROR = _WHOLE.replace(b"200 OK", b"500 Oh")
_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

DRIPS: dict[str, tuple[bytes, bytes]] = {
    "nothing": (b"", b""),
    "head": (b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x"),
    "body": (_WHOLE, b" "),
    "error": (_ERROR, b" "),
    "comments": (_STREAM, chunk(": still here\n\n")),
    "blanks": (_STREAM, chunk("\n")),
    "empty": (_STREAM, delta(content="")),
    "pieces": (_STREAM, delta(content="la ")),
}
"""What each kind sends at first, and then again and again. `nothing` waits until the client has gone."""


class Dripping:
    """The provider. `asked` counts requests; `came` is released for each client that came, `gone` for each that has gone."""

    def __init__(self, kind: str, *, pause: float = 0.01) -> None:
        self.asked = 0
        self.came = threading.Semaphore(0)
        self.gone = threading.Semaphore(0)
        self._first, self._drop = DRIPS[kind]
        self._pause = pause
        self._listens = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.base_url = f"http://127.0.0.1:{self._listens.getsockname()[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        for each in (self._listens, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def all_gone(self) -> bool:
        """Wait until every client that came has gone."""
        return all(self.gone.acquire(timeout=PATIENCE) for _ in range(self.asked))

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listens.accept()
                self._open.append(client)
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            heard = client.recv(65536)
            self.asked += 1
            self.came.release()
            with suppress(OSError):
                client.sendall(self._first)
                while heard if not self._drop else True:
                    if self._drop:
                        client.sendall(self._drop)
                        time.sleep(self._pause)
                    else:
                        heard = client.recv(65536)
            self.gone.release()
