"""A server on the loopback interface, for the tests that need one of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def loopback(handler: type[BaseHTTPRequestHandler]) -> Iterator[tuple[ThreadingHTTPServer, str]]:
    """The server, and its address without a path."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        # By default the end of a server is looked for twice a second only.
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
