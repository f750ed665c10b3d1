"""A refund desk with two sides: a chat page for the customer, and the inbox for the person who approves.

    pip install 'phronomy[inbox]'
    python examples/refund_desk/main.py

Open the two links side by side, in two browsers. Ask for a refund in the chat, approve it in the inbox, and see the chat go on. No key
is needed. The runs are kept in `refund_desk.db` (`PHRONOMY_STORE`); `PORT` is the port (8000).

Anybody who reaches the chat page is a customer here. Put your site's own sign-in there, and one of the inbox's ways to sign in
in place of the one-time link.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import uvicorn
from desk import make_agent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from phronomy import CheckpointNotFound, Principal, RunFailed, ThreadBusy, open_store
from phronomy.inbox import Inbox, OneTimeLink, Sessions
from phronomy.workers import Worker

PORT = int(os.environ.get("PORT", "8000"))
HERE = Path(__file__).parent

store = open_store(os.environ.get("PHRONOMY_STORE", "sqlite:///refund_desk.db"))
agent = make_agent(store)
rita = Principal(id="rita", name="Rita", roles=("lead",))


def announce(path: str) -> None:
    """Print the link to the inbox, for the person who approves."""
    print(f"Approver:  http://127.0.0.1:{PORT}/approvals{path}", flush=True)


link = OneTimeLink(store, rita, announce=announce)
inbox = Inbox(
    store,
    agents=agent,
    auth=link,
    title="Refund desk",
    scopes=lambda _: {"read", "decide", "grant", "audit"},  # Rita approves here, and nobody else signs in
    public_url=f"http://127.0.0.1:{PORT}/approvals",
    trusted_hosts=[f"127.0.0.1:{PORT}", f"localhost:{PORT}"],
    sessions=Sessions(store, cookie=f"phronomy-{PORT}", secure=False, same_site="strict"),
)


def thread_of(request: Request) -> str:
    """The conversation of this browser."""
    known = request.cookies.get("chat", "")
    return known if re.fullmatch(r"[0-9a-f]{32}", known) else secrets.token_hex(16)


async def page(request: Request) -> Response:
    """The chat page."""
    response = FileResponse(HERE / "chat.html")
    response.set_cookie("chat", thread_of(request), httponly=True, samesite="strict")
    return response


async def messages(request: Request) -> Response:
    """What was said so far, and whether somebody has to decide first."""
    try:
        found = await store.acurrent(thread_of(request))
    except CheckpointNotFound:
        return JSONResponse({"messages": [], "waits": False})
    said = [
        {"role": message.role, "text": message.text}
        for message in found.messages
        if message.role in ("user", "assistant") and message.text
    ]
    return JSONResponse({"messages": said, "waits": bool(found.pending)})


async def say(request: Request) -> Response:
    """A message of the customer. While a decision is open, the next one has to wait."""
    try:
        body = await request.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return JSONResponse({"error": "Send a JSON object with a text."}, 400)
    text = str(body.get("text", ""))[:2_000].strip()
    if not text:
        return JSONResponse({"error": "Write something first."}, 400)
    try:
        await agent.ainvoke(text, thread_id=thread_of(request), requester="customer")
    except ThreadBusy:
        return JSONResponse({"error": "A colleague is looking at your last message."}, 409)
    except RunFailed:
        return JSONResponse({"error": "Something went wrong. Please try again."}, 502)
    return await messages(request)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Carry out what is decided in the inbox, and print the two links."""
    worker = Worker(agent, poll=0.2)
    working = asyncio.create_task(worker.arun())
    print(f"Customer:  http://127.0.0.1:{PORT}/")
    announce(await link.issue())
    yield
    worker.stop()
    await working


app = Starlette(
    routes=[
        Route("/", page),
        Route("/messages", messages),
        Route("/say", say, methods=["POST"]),
        Mount("/approvals", inbox),
    ],
    lifespan=lifespan,
)


class Server(uvicorn.Server):
    """The server, which ends the event streams of the inbox first: they are open as long as a browser shows the inbox."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        inbox.end_streams()
        await super().shutdown(sockets)


def main() -> None:
    """Serve until Ctrl-C."""
    try:
        listening = socket.create_server(("127.0.0.1", PORT))
    except OSError as error:
        why = (error.strerror or "").partition(" (")[0]  # Python adds the address
        sys.exit(f"Nobody can listen on port {PORT}: {why}. Set PORT to another one.")
    config = uvicorn.Config(
        app,
        log_level="warning",
        proxy_headers=False,
        timeout_graceful_shutdown=5,  # seconds that a request has to be answered after Ctrl-C
    )
    with listening, suppress(KeyboardInterrupt):
        Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
