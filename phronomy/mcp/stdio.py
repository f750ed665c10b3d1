"""A server that is started here, over its standard input and output.

As the transport of the protocol's package, which puts a long line together piece by piece, each time from its start, and ends unseen at
a byte that is no UTF-8. Here a line is put together once and has a bound, and what cannot be read is noise, which is skipped.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TextIO

import anyio
from mcp.client import stdio as package
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.os.win32.utilities import ServerProcess

_GONE: Final = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)
_FLUSHED: Final = 0.5
"""Seconds within which what was handed over before the end is written."""


class TooLong(Exception):
    """A line of the server has more bytes than are read."""


@asynccontextmanager
async def started(
    command: tuple[str, ...],
    *,
    env: dict[str, str],
    cwd: str | None,
    errlog: TextIO,
    longest: int,
    heard: Callable[[], None],
    failed: Callable[[TooLong], None],
) -> AsyncGenerator[TransportStreams]:
    """Start the server, and end it. `heard` is called for all that it writes, and `failed` where that is too long."""
    program, *args = command
    process = await package._create_platform_compatible_process(
        await package._get_executable_command(program),
        args,
        package.get_default_environment() | env,
        errlog,
        cwd,
    )
    come, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, gone = anyio.create_memory_object_stream[SessionMessage](0)
    flushed = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, process, come, longest, heard, failed)
        tasks.start_soon(_write, process, gone, come, flushed)
        try:
            yield read, write
        finally:
            with anyio.CancelScope(shield=True):  # or the server would be left behind
                read.close()
                write.close()
                with anyio.move_on_after(_FLUSHED):
                    await flushed.wait()
                await package._stop_server_process(process)
                for stream in (read, write, come, gone):
                    await stream.aclose()
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


async def _read(
    process: ServerProcess,
    to: MemoryObjectSendStream[SessionMessage | Exception],
    longest: int,
    heard: Callable[[], None],
    failed: Callable[[TooLong], None],
) -> None:
    assert process.stdout is not None
    try:
        async with to:
            async for line in _lines(process.stdout, longest, heard):
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    continue
                await to.send(SessionMessage(message))
    except TooLong as error:
        failed(error)
    except _GONE:  # the server, or the session
        pass
    # A server that is stuck with its output does not see that its input is closed.
    with anyio.CancelScope(shield=True), contextlib.suppress(anyio.EndOfStream, *_GONE):
        while True:
            await process.stdout.receive()


async def _lines(stream: ByteReceiveStream, longest: int, heard: Callable[[], None]) -> AsyncIterator[str]:
    """The lines that come, each put together once. Raises `TooLong`."""
    parts: list[bytes] = []
    size = 0
    async for chunk in stream:
        heard()
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            if size + len(end) > longest:
                raise TooLong
            yield b"".join([*parts, end]).decode("utf-8", "replace").removeprefix("\ufeff")
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > longest:
            raise TooLong


async def _write(
    process: ServerProcess,
    what: MemoryObjectReceiveStream[SessionMessage],
    to_close: MemoryObjectSendStream[SessionMessage | Exception],
    flushed: anyio.Event,
) -> None:
    assert process.stdin is not None
    try:
        async with what:
            async for each in what:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(text.encode("utf-8", "replace") + b"\n")
    except _GONE:
        await to_close.aclose()  # nothing that is asked is answered any more
    finally:
        flushed.set()
