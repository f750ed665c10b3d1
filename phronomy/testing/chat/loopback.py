"""The server of a fake platform: HTTP on the loopback interface, in a thread."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias

Answer: TypeAlias = tuple[int, Mapping[str, str], object]
"""A status, headers and a body: JSON, or a text as it is, or None for none."""

Answers: TypeAlias = Callable[[str, str, Mapping[str, str], bytes], Answer | None]
"""Answers a method, a path, headers with names in small letters, and a body; None if the connection is to be lost."""


class Loopback:
    """Serves until it is closed."""

    def __init__(self, answer: Answers) -> None:
        self._server = _Server(("127.0.0.1", 0), _web(answer))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address, without a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def secure(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def close(self) -> None:
        """Shut the server down."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that have gone away."""


def _web(answer: Answers) -> type[BaseHTTPRequestHandler]:
    class Web(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # head and body in one packet

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found = answer(self.command, self.path, headers, body)
            if found is None:  # the connection is lost after the work is done
                self.close_connection = True
                return
            status, more, value = found
            kind, text = "application/json", b""
            if isinstance(value, str):
                kind, text = "text/plain", value.encode()
            elif value is not None:
                text = json.dumps(value).encode()
            self.send_response(status)
            for name, each in {**more, **({"content-type": kind} if text else {})}.items():
                self.send_header(name, each)
            if status != 204:
                self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Web
