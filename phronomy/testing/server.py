"""`ChatServer`: a provider on the loopback interface that follows a script: chat completions, the Responses API, the Messages API.

It is as strict as the providers are: a history in which a call has no result, or a result no call, gets status 400.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from typing import Any, Final, Self, cast

from phronomy.foundation.dataclasses import dataclass
from phronomy.models.formats.chat_completions import wire_message
from phronomy.testing.message_protocol import MessageAnswer
from phronomy.testing.protocols import Answer, Completion, Response
from phronomy.testing.scripted import Script, ScriptExhausted, history_problem, reply_of

_SPOKEN: Final[dict[str, type[Answer]]] = {
    "/v1/chat/completions": Completion,
    "/v1/messages": MessageAnswer,
    "/v1/responses": Response,
}
"""The protocol of each path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """An answer that is not a reply: a status, headers, and a body (text or bytes unchanged, any other value as JSON).

    Without a body, the server sends an error object as providers do. With status 200, you can send any body as the
    answer. `delay` is the number of seconds before the answer.
    """

    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    delay: float = 0
    resets: bool = False
    events: Iterable[Any] | None = None
    ends: bool = True
    reply: Any = None
    after: int = 0

    @classmethod
    def reset(cls) -> Fault:
        """Reset the connection before any answer."""
        return cls(resets=True)

    @classmethod
    def stream(cls, *events: object, ends: bool = True) -> Fault:
        """Send a stream of exactly these events: text unchanged, any other value as JSON.

        With `ends=False`, the connection then breaks off.
        """
        return cls(status=200, events=events, ends=ends)

    @classmethod
    def cut(cls, reply: object, *, after: int = 2) -> Fault:
        """Break a reply off: a stream after this many events, a plain answer in the middle."""
        return cls(status=200, reply=reply, after=after, ends=False)


class ChatServer:
    """A server of chat completions, the Responses API and Anthropic's Messages API on this machine, for tests and demos.

    Use it as a context manager, or call `start` and `close`. `script` is a list of replies, as for `ScriptedModel`,
    which can also contain `Fault`s; or a function of the parsed body of the request that returns one. A mapping is sent
    unchanged, as the assistant message. Over the Responses API, a mapping with `output` has the fields of the whole
    response; over the Messages API, `content` may be a list of content blocks. For any other reply, the server sends its
    text, calls, `refusal` and `reasoning_content`. `requests` has the parsed bodies, in the order of arrival.
    """

    def __init__(self, script: Sequence[object] | Callable[[dict[str, Any]], object]) -> None:
        self.requests: list[dict[str, Any]] = []
        self._script = Script(script)
        self._server: _Server | None = None

    @classmethod
    def by_turn(cls, replies: Sequence[object]) -> ChatServer:
        """Make a server that does not remember its place in the script. Each user message starts the script again."""
        server = cls(replies)
        server._script = Script(replies, by_turn=True)
        return server

    @property
    def base_url(self) -> str:
        """The URL of the server for a client, up to and including `/v1`."""
        if self._server is None:
            raise RuntimeError("the server is not running: use it in a `with` block, or call start()")
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def start(self) -> Self:
        """Start to listen on a free port, in a daemon thread."""
        self.close()
        self._server = _Server(self._answer)
        threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="phronomy-chat-server", daemon=True
        ).start()
        return self

    def close(self) -> None:
        """Stop the server, and close its connections. You can call it more than once."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _answer(self, body: dict[str, Any], spoken: type[Answer]) -> Fault | Answer:
        """Gives the answer to the body of a request in the protocol."""
        self.requests.append(body)
        try:
            turns = spoken.turns(body)
        except ValueError as error:
            return _refusal(str(error))
        if (problem := history_problem(turns)) is not None:
            return _refusal(problem)
        cut_after: int | None = None
        try:
            item = self._script.take([role for role, _, _ in turns], f"{json.dumps(body[spoken.history][-1]):.200}")
            while callable(item) and not isinstance(item, type):
                item = item(body)
            if isinstance(item, Fault):
                if item.reply is None:
                    return item
                cut_after, item = item.after, item.reply
            if isinstance(item, Mapping):
                return spoken(
                    cut_after=cut_after,
                    message=dict(item),
                    finish_reason="tool_calls" if item.get("tool_calls") else "stop",
                )
            reply = reply_of(item, used=(call_id for _, made, _ in turns for call_id in made))
        except ScriptExhausted as error:
            return _refusal(str(error))  # a status that no client tries again
        except Exception as error:
            return Fault(status=500, body=_error(f"the script raised {error!r}", "server_error"))
        return spoken(
            cut_after=cut_after,
            message=wire_message(reply.message),
            usage=reply.usage,
            finish_reason=reply.finish_reason or "stop",
        )


def _refusal(message: str) -> Fault:
    return Fault(status=400, body=_error(message, "invalid_request_error"))


def _error(message: str, kind: str) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # the default of 5 turns a burst of clients away

    def __init__(self, answer: Callable[[dict[str, Any], type[Answer]], Fault | Answer]) -> None:
        self.answer = answer
        self.open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        for connection in list(self.open):  # a client's idle connections would keep their threads
            with suppress(OSError):  # the client was faster
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no news, and a test's output is not the place for it."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one packet

    def setup(self) -> None:
        super().setup()
        self._owner.open.add(self.connection)

    def finish(self) -> None:
        self._owner.open.discard(self.connection)
        super().finish()

    @property
    def _owner(self) -> _Server:
        return cast(_Server, self.server)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        if self.path.rstrip("/") != "/v1/models":
            self._send(Fault(status=404))
        else:
            self._send(Fault(status=200, body={"object": "list", "data": [{"id": "scripted", "object": "model"}]}))

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(data)
        except ValueError:
            body = None
        if (spoken := _SPOKEN.get(self.path.rstrip("/"))) is None:
            self._send(Fault(status=404))
        elif not isinstance(body, dict):
            self._send(_refusal("the body is not a JSON object"))
        else:
            self._reply(body, self._owner.answer(body, spoken))

    def _reply(self, body: dict[str, Any], answer: Fault | Answer) -> None:
        if isinstance(answer, Fault):
            time.sleep(answer.delay)
            if answer.events is None:
                self._send(answer)
                return
            try:
                self._stream(answer.events, ends=answer.ends)
            finally:
                if callable(close := getattr(answer.events, "close", None)):  # a generator hears that the client left
                    close()
            return
        cut = answer.cut_after
        if body.get("stream"):
            self._stream(islice(answer.events(body), cut), ends=cut is None)
        else:
            self._send(Fault(status=200, body=answer.whole(body), ends=cut is None))

    def _send(self, answer: Fault) -> None:
        if answer.resets:
            # Closing with a linger of zero seconds sends a reset where an ordinary close sends an end of stream.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return
        body = _error(f"status {answer.status}", "error") if answer.body is None else answer.body
        text = body if isinstance(body, (str, bytes)) else json.dumps(body)
        data = text if isinstance(text, bytes) else text.encode()
        self.send_response(answer.status)
        for name, value in {
            "Content-Type": "application/json",
            **answer.headers,
            "Content-Length": str(len(data)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data if answer.ends else data[: len(data) // 2])
        self.close_connection = self.close_connection or not answer.ends

    def _stream(self, events: Iterable[object], *, ends: bool) -> None:
        """Server-sent events in chunked transfer coding, each flushed; without its end the connection is closed."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            text = event if isinstance(event, str) else json.dumps(event)
            kind = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
            data = f"{kind}data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        if ends:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = self.close_connection or not ends
