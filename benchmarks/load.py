"""What measurements over HTTP share: a client that keeps its connections and costs little beside the servers."""

from __future__ import annotations

import asyncio
import socket
import time


def wait_for(port: int) -> None:
    """Wait until a server listens."""
    while True:
        with socket.socket() as found:
            if found.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)


class Connections:
    """Connections to servers on this machine. No library of HTTP: one would take as long for a request as the server."""

    def __init__(self) -> None:
        self._kept: dict[int, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = {}

    async def post(self, port: int, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer to a request."""
        kept = self._kept.setdefault(port, [])
        reader, writer = kept.pop() if kept else await asyncio.open_connection("127.0.0.1", port)
        whole = {"host": "127.0.0.1", **headers, "content-length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in whole.items())
        writer.write(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.partition(b"content-length:")[2].partition(b"\r\n")[0])
        found = await reader.readexactly(length)
        kept.append((reader, writer))
        return int(answer.split(b" ", 2)[1]), found

    def close(self) -> None:
        """Close all connections."""
        for _, writer in (each for kept in self._kept.values() for each in kept):
            writer.close()
        self._kept.clear()
