"""A run on a web page while it happens: server-sent events that stop where a human must decide, and can be read again.

    pip install fastapi uvicorn
    DESK_TOKENS='{"a-long-random-token": ["ada", "approver"], "another": ["carl", "customer"]}' \\
        OPENAI_API_KEY=... python examples/sse.py

Each event has the id of its place in the store. A page that lost its connection sends the id of its last event
(`Last-Event-ID`), and gets the events after it. If no worker drives the run, this request continues it. A page sees only the
runs of its own user, because the events contain the whole conversation.

Whoever decides here also watches, so the request with the decision drives the run. If nobody watches, record the decision with
`store.decide` and have a worker carry it out, as in `fastapi_app.py`.

`EventSource` in a browser sends no `Authorization` header; read the stream with `fetch`, or sign people in by a cookie. The
notes on tokens and TLS in `fastapi_app.py` hold here too. A real service would also have its list of pending approvals.
`PHRONOMY_MODEL` names another model, `PHRONOMY_STORE` another store, `PORT` a port (8000).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, StrictBool

from phronomy import (
    Agent,
    Approve,
    AsyncStream,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    ConfigurationError,
    Event,
    Reject,
    RunBusy,
    RunFailed,
    UnknownPending,
    open_store,
    to_wire,
    tool,
)
from phronomy.events import replay

TOKENS: dict[str, tuple[str, str]] = json.loads(os.environ.get("DESK_TOKENS", "{}"))


@tool(requires_approval=True)
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


agent = Agent(
    name="desk",
    model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
    instructions="You work at a refund desk. Refund what is asked for.",
    tools=[refund],
    store=open_store(os.environ.get("PHRONOMY_STORE", "sqlite:///desk.db")),
)
app = FastAPI(title="Refund desk, as it happens")


class Ask(BaseModel):
    model_config = ConfigDict(extra="forbid")
    message: str


class Decide(BaseModel):
    model_config = ConfigDict(extra="forbid")
    digest: str
    approve: StrictBool
    reason: str | None = None


def known(sent: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> tuple[str, str]:
    """Who sends this, and their role: 401 unless the token is one of ours."""
    given = sent.credentials.encode()
    found = [who for token, who in TOKENS.items() if secrets.compare_digest(token.encode(), given)]
    if not found:
        raise HTTPException(401, "this token is not known", {"WWW-Authenticate": "Bearer"})
    return found[0]


Who = Annotated[tuple[str, str], Depends(known)]


def as_sent(event: Event) -> str:
    """One server-sent event. The data is one line: JSON has no bare line breaks."""
    return f"id: {event.id}\nevent: {event.type}\ndata: {json.dumps(to_wire(event))}\n\n"


async def sent(stream: AsyncStream) -> StreamingResponse:
    """The stream as a response. It waits for the first event before it sends headers, so a refusal gets a status."""
    first = await anext(stream, None)

    async def lines() -> AsyncIterator[str]:
        async with stream:  # a page that goes away leaves the run where it is stored
            if first is not None:
                yield as_sent(first)
            try:
                async for event in stream:
                    yield as_sent(event)
            except RunFailed:
                return  # the last event said so

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@app.post("/runs")
async def ask(body: Ask, who: Who) -> StreamingResponse:
    """Ask the desk. Yields the events until the run has answered, or waits."""
    return await sent(agent.astream(body.message, metadata={"customer": who[0]}))


@app.post("/checkpoints/{checkpoint_id}/pending/{pending_id}")
async def decide(checkpoint_id: str, pending_id: str, body: Decide, who: Who) -> StreamingResponse:
    """Decide one pending call, exactly as it was shown. Yields the events after the decision."""
    name, role = who
    if role != "approver":
        raise HTTPException(403, f"{name} may not decide")
    checkpoint = await run_in_threadpool(agent.store.load, checkpoint_id)
    waits = {each.id: each.digest for each in checkpoint.pending}
    if pending_id in waits and body.digest != waits[pending_id]:
        raise HTTPException(422, "the digest is not that of this call: load what waits again")
    answer = Approve() if body.approve else Reject(reason=body.reason)
    return await sent(agent.astream(checkpoint, decisions={pending_id: answer}, by=name, channel="sse"))


def seen_by(run_id: str, name: str) -> Checkpoint:
    """The state of a run, for the user who started it. Others get 404."""
    head = agent.store.head(run_id)[1]
    if head.metadata.get("customer") != name:
        raise HTTPException(404, "there is no such run")
    return head


@app.get("/runs/{run_id}/events")
async def again(run_id: str, who: Who, last_event_id: Annotated[str | None, Header()] = None) -> StreamingResponse:
    """The events after the last one seen. If the run was left in the middle, it is continued, with its further events."""
    head = await run_in_threadpool(seen_by, run_id, who[0])
    stored = await run_in_threadpool(lambda: list(replay(agent.store, run_id, after=last_event_id)))
    further = None
    if head.status == "running":
        with suppress(RunBusy):  # somebody carries it on: the page asks again
            further = await sent(agent.astream(head))

    async def lines() -> AsyncIterator[str]:
        for event in stored:
            yield as_sent(event)
        if further is not None:
            async for line in further.body_iterator:
                yield str(line)

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@app.exception_handler(CheckpointNotFound)
@app.exception_handler(UnknownPending)
def not_found(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 404)


@app.exception_handler(CheckpointAlreadyResumed)
@app.exception_handler(RunBusy)
def too_late(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 409)


@app.exception_handler(ConfigurationError)
def malformed(request: Request, error: Exception) -> JSONResponse:
    """An invalid `Last-Event-ID`."""
    return JSONResponse({"error": str(error)}, 422)


@app.exception_handler(RunFailed)
def failed(request: Request, error: RunFailed) -> JSONResponse:
    return JSONResponse({"error": "the run stopped on a failure", "run_id": error.run_id}, 502)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), log_level="info")
