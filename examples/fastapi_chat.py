"""A chat over HTTP: each user has several threads, approves calls in the chat, and loses nothing in outages and restarts.

    pip install fastapi uvicorn
    CHAT_TOKENS='{"a-long-random-token": "carl", "another": "ada"}' OPENAI_API_KEY=... python examples/fastapi_chat.py

The token (`Authorization: Bearer ...`) says who somebody is. For the thread of another user, they get 404. The function `say`
decides what the next message does: while the run waits or runs, the message gets 409 with the reason; after a failure of the
provider, it starts a new run with the whole conversation. `again` tries the failed run once more, without another message. A
decision is recorded and answered at once; the worker in this process carries it out, and the page asks for the thread again.

Put TLS in front of the server, and use your site's own sign-in. Keep the list of a user's threads in your own table.
`PHRONOMY_MODEL` names another model, `PHRONOMY_STORE` another store, which any number of processes share, `PORT` a port (8000).
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, StrictBool

from phronomy import (
    Agent,
    Approve,
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    InvalidDecision,
    Reject,
    RunBusy,
    RunFailed,
    ThreadBusy,
    UnknownPending,
    open_store,
    to_wire,
    tool,
)
from phronomy.workers import Worker

TOKENS: dict[str, str] = json.loads(os.environ.get("CHAT_TOKENS", "{}"))


@tool(requires_approval=True)
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


store = open_store(os.environ.get("PHRONOMY_STORE", "sqlite:///chat.db"))
agent = Agent(
    name="assistant",
    model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
    instructions="You help somebody who works at a refund desk. Refund what they ask for.",
    tools=[refund],
    store=store,
)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Carry out what is decided, and recover the runs of killed processes. Runs that wait for a human are not changed."""
    worker = Worker(agent)
    working = asyncio.create_task(worker.arun())
    yield
    worker.stop()
    await working


app = FastAPI(title="Refund chat", lifespan=lifespan)


class Said(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str


class Decided(BaseModel):
    """`approve` is strict: the text "false", or 1, is refused rather than read as a yes. Sent twice with one `key`, it counts once."""

    model_config = ConfigDict(extra="forbid")
    digest: str
    approve: StrictBool
    reason: str | None = None
    key: str | None = None


def user(sent: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> str:
    """Who sends this: 401 unless the token is one of ours."""
    given = sent.credentials.encode()
    found = [name for token, name in TOKENS.items() if secrets.compare_digest(token.encode(), given)]
    if not found:
        raise HTTPException(401, "this token is not known", {"WWW-Authenticate": "Bearer"})
    return found[0]


User = Annotated[str, Depends(user)]


def thread_of(thread: str, who: User) -> str:
    """The thread id for this user and name. A name in a path has no slash, so it cannot be the thread of another user."""
    return f"{who}/{thread}"


Thread = Annotated[str, Depends(thread_of)]


def shown(thread_id: str) -> dict[str, Any]:
    """The state of a thread: its messages and pending approvals. The tool runs with `args`: show all of them, escaped."""
    branches = store.branches(thread_id=thread_id)
    if not branches:
        raise HTTPException(404, "there is no such thread")
    last, waits = branches[-1], [to_wire(each.approval) for each in store.pending(thread_id=thread_id)]
    messages = store.head(last.id)[1].messages
    said = [(each.role, each.text) for each in messages if each.role in ("user", "assistant") and each.text]
    # Decided, and not carried out yet: to the user, the desk is at work.
    status = "running" if last.status == "suspended" and not waits else last.status
    return {"status": status, "said": said, "pending": waits}


@app.get("/threads/{thread}")
def look(thread_id: Thread) -> dict[str, Any]:
    return shown(thread_id)


@app.post("/threads/{thread}/messages", status_code=201)
def say(body: Said, thread_id: Thread) -> dict[str, Any]:
    """Send a message. It supersedes a failed run, whose messages stay, but not a run that waits or runs."""
    agent.invoke(body.text, thread_id=thread_id, on_pending="supersede_failed")
    return shown(thread_id)


@app.post("/threads/{thread}/again")
def again(thread_id: Thread) -> dict[str, Any]:
    """Try a failed run once more, from its last checkpoint. If no run has failed, nothing happens."""
    agent.recover(store.current(thread_id))
    return shown(thread_id)


@app.post("/threads/{thread}/requests/{pending_id}", status_code=202)
def decide(pending_id: str, body: Decided, thread_id: Thread, who: User) -> dict[str, Any]:
    """Decide one request: 404 if it is not in this thread, 409 if it was decided before, 422 if it differs from the shown call."""
    if store.request(pending_id).thread_id != thread_id:
        raise HTTPException(404, "there is no such thread or request")
    answer = Approve() if body.approve else Reject(reason=body.reason)
    store.decide(pending_id, answer, by=who, digest=body.digest, channel="chat", key=body.key)
    return shown(thread_id)


@app.exception_handler(CheckpointNotFound)
@app.exception_handler(UnknownPending)
def not_found(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": "there is no such thread or request"}, 404)


@app.exception_handler(ThreadBusy)
@app.exception_handler(RunBusy)
def busy(request: Request, error: ThreadBusy | RunBusy) -> JSONResponse:
    """The message was not taken: an approval is pending, or a run is not finished yet."""
    thread_id = store.head(error.run_id)[1].thread_id or ""
    return JSONResponse({"error": "this thread is not done with what was said before", **shown(thread_id)}, 409)


@app.exception_handler(CheckpointAlreadyResumed)
def decided_before(request: Request, error: CheckpointAlreadyResumed) -> JSONResponse:
    """The second click gets the first decision and the progress of the run."""
    decision = error.decision
    first = {"kind": decision.kind, "by": decision.by.id if decision.by else None} if decision else None
    return JSONResponse({"error": "this was decided before", "decision": first, "progress": error.progress}, 409)


@app.exception_handler(InvalidDecision)
def invalid(request: Request, error: Exception) -> JSONResponse:
    """For example, another call waits by now: load the thread again."""
    return JSONResponse({"error": str(error)}, 422)


@app.exception_handler(RunFailed)
def failed(request: Request, error: RunFailed) -> JSONResponse:
    """For example, the provider cannot be reached. Nothing is lost: send the next message, or call `again`."""
    return JSONResponse({"error": "no answer came: try again, or say something else", "run_id": error.run_id}, 502)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), log_level="info")
