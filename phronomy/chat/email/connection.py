"""The connection to a mail server: it ends after so many seconds in all, and reads only so much, whatever the server does.

Whoever is on the way can play the server until TLS has begun.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
from typing import IO, Any, Final

from phronomy.chat.deadline import Deadline

_MOST: Final = 65_536
"""Bytes of all replies before TLS, and of all after it. Those to one mail have a few hundred."""


class Connection(smtplib.SMTP):
    """A connection of `smtplib`, watched by a deadline. It is made by the constructor, as there."""

    file: Any | None

    def __init__(self, deadline: Deadline, host: str, port: int, **options: Any) -> None:
        self._deadline = deadline
        super().__init__(host, port, **options)

    def getreply(self) -> tuple[int, bytes]:
        """As `smtplib.SMTP.getreply`; a server that says too much counts as one that has gone."""
        if self.file is None and self.sock is not None:
            self.file = _Replies(self.sock.makefile("rb"))
        return super().getreply()

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        made: socket.socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]  # where smtplib connects
        self._deadline.watch(made)
        return made


class TlsConnection(smtplib.SMTP_SSL, Connection):
    """The same for a server with which TLS begins at once."""

    def __init__(self, deadline: Deadline, host: str, port: int, *, context: ssl.SSLContext, **options: Any) -> None:
        self._deadline = deadline
        smtplib.SMTP_SSL.__init__(self, host, port, context=context, **options)


class _Replies:
    """The lines that a server says, until they are too many."""

    def __init__(self, lines: IO[bytes]) -> None:
        self._lines = lines
        self._left = _MOST

    def readline(self, size: int) -> bytes:
        """As of a file; nothing, as at its end, once it was too much, and for a line whose end did not arrive."""
        found = self._lines.readline(size) if self._left > 0 else b""
        self._left -= len(found)
        return found if found.endswith(b"\n") else b""

    def close(self) -> None:
        """As of a file."""
        self._lines.close()
