"""A provider on the loopback interface, which speaks just enough HTTP and chat completions. Its time counts for no side.

It runs in a process of its own, prints its address, and ends when its input does. It knows the turn by the results of tools that
the request holds, and the number of look-ups by the name of the model.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from work import reply


def answer(body: bytes) -> bytes:
    """The body of the answer to a request."""
    asked: dict[str, Any] = json.loads(body)
    turn = sum(message["role"] == "tool" for message in asked["messages"])
    message = reply(turn, int(asked["model"].rpartition("-")[2]))
    finish = "tool_calls" if "tool_calls" in message else "stop"
    return json.dumps(
        {
            "id": f"chatcmpl-{turn}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": asked["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        }
    ).encode()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection, kept as long as its client wants."""
    try:
        while head := (await reader.readuntil(b"\r\n\r\n")).lower():
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            body = answer(await reader.readexactly(length))
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    """Serve until the input ends."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**24, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


@contextmanager
def provider() -> Iterator[str]:
    """The address of a provider in a process of its own."""
    with Popen([sys.executable, __file__], stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


if __name__ == "__main__":
    asyncio.run(main())
