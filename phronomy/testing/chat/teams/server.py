"""A server of HTTP on the loopback interface, in a thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Answer: TypeAlias = Callable[[str, str, Mapping[str, str], bytes], tuple[int, dict[str, str], Any] | None]
"""Answers a method, a path, headers and a body with a status, headers and JSON; None if the answer gets lost."""


class Server:
    """Serves until it is closed."""

    def __init__(self, answer: Answer) -> None:
        class Web(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                headers = {name.lower(): value for name, value in self.headers.items()}
                found = answer(self.command, self.path, headers, body)
                if found is None:  # the connection is lost after the work is done
                    self.close_connection = True
                    return
                status, more, value = found
                text = json.dumps(value).encode()
                self.send_response(status)
                for name, each in {
                    **more,
                    "content-type": "application/json",
                    "content-length": str(len(text)),
                }.items():
                    self.send_header(name, each)
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = _serve

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address, without a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Shut the server down."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
