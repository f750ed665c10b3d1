"""A desk over HTTP: customers ask, and approvers list and decide pending approvals, in any number of server processes.

    pip install fastapi uvicorn
    DESK_TOKENS='{"a-long-random-token": ["ada", "approver"], "another": ["carl", "customer"]}' \\
        OPENAI_API_KEY=... python examples/fastapi_app.py

The token (`Authorization: Bearer ...`) says who somebody is, never the body of the request. Clients get ids and requests, never
a checkpoint. A decision names the pending id and the digest of the shown request. It is recorded and answered within
milliseconds; a worker in this process, or in another one, carries it out. A page that is out of date gets 409 with the decision
that counts, and decides nothing.

Put TLS in front of the server. Tokens in an environment variable are good enough only for an example: use your site's own
sign-in. `PHRONOMY_MODEL` names another model, `PHRONOMY_STORE` another store, `PORT` a port (8000).
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
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, StrictBool

from phronomy import (
    Agent,
    Approve,
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    InvalidDecision,
    Principal,
    Reject,
    RequestExpired,
    RunFailed,
    UnknownPending,
    open_store,
    to_wire,
    tool,
)
from phronomy.workers import Worker

TOKENS: dict[str, tuple[str, str]] = json.loads(os.environ.get("DESK_TOKENS", "{}"))


@tool(requires_approval=True)
def refund(order_id: int, amount: float) -> str:
    """Refund an order, in euros."""
    return f"{amount:.2f} euros for order {order_id} are on their way"


store = open_store(os.environ.get("PHRONOMY_STORE", "sqlite:///desk.db"))
agent = Agent(
    name="desk",
    model=os.environ.get("PHRONOMY_MODEL", "openai/gpt-4o-mini"),
    instructions="You work at a refund desk. Refund what is asked for.",
    tools=[refund],
    store=store,
)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Carry out what is decided, and recover what killed processes left. Without this, run `phronomy work` beside the server."""
    worker = Worker(agent)
    working = asyncio.create_task(worker.arun())
    yield
    worker.stop()
    await working


app = FastAPI(title="Refund desk", lifespan=lifespan)


class Ask(BaseModel):
    model_config = ConfigDict(extra="forbid")
    message: str


class Decide(BaseModel):
    """`approve` is strict: the text "false", or 1, is refused rather than read as a yes."""

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


def approver(who: Annotated[tuple[str, str], Depends(known)]) -> Principal:
    """Who decides: 403 unless they may. Your program must make this check: phronomy only records the name."""
    name, role = who
    if role != "approver":
        raise HTTPException(403, f"{name} may not decide")
    return Principal(id=name)


@app.post("/runs", status_code=201)
def ask(body: Ask, who: Annotated[tuple[str, str], Depends(known)]) -> dict[str, Any]:
    """Ask the desk. If a call needs approval, the run waits."""
    result = agent.invoke(body.message, metadata={"customer": who[0]})
    return {"run_id": result.run_id, "status": result.status, "output": result.output}


@app.get("/runs/{run_id}")
def look(run_id: str, who: Annotated[tuple[str, str], Depends(known)]) -> dict[str, Any]:
    """The state of a run, for the customer who asked. Others get 404."""
    head = store.head(run_id)[1]
    if head.metadata.get("customer") != who[0]:
        raise HTTPException(404, "there is no such run")
    return {"run_id": run_id, "status": head.status, "output": head.output}


@app.get("/requests")
def requests(who: Annotated[Principal, Depends(approver)]) -> list[dict[str, Any]]:
    """The requests that wait, oldest first.

    The tool runs with `args`: show all of them, escaped, and cut nothing. For whole numbers that a browser would round, `exact` has
    the digits: show these.
    """
    return [to_wire(waiting.approval) for waiting in store.pending()]


@app.get("/requests/{pending_id}")
def request(pending_id: str, who: Annotated[Principal, Depends(approver)]) -> dict[str, Any]:
    """One request, and what has become of it: the page asks again until its status is `settled`."""
    return to_wire(store.request(pending_id))


@app.post("/requests/{pending_id}", status_code=202)
def decide(
    pending_id: str,
    body: Decide,
    who: Annotated[Principal, Depends(approver)],
    idempotency_key: Annotated[str | None, Header()] = None,
) -> dict[str, Any]:
    """Record a decision: 404 if the request is unknown, 409 if it was decided before, 410 if it has expired, 422 if it is another.

    A request that is sent twice with the same `Idempotency-Key` is recorded once.
    """
    answer = Approve() if body.approve else Reject(reason=body.reason)
    decided = store.decide(pending_id, answer, by=who, digest=body.digest, channel="http", key=idempotency_key)
    return {"run_id": decided.run_id, "status": decided.status}


@app.exception_handler(CheckpointNotFound)
@app.exception_handler(UnknownPending)
def not_found(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 404)


@app.exception_handler(CheckpointAlreadyResumed)
def decided_before(request: Request, error: CheckpointAlreadyResumed) -> JSONResponse:
    """The second click gets the first decision and the progress of the run."""
    decision = error.decision
    first = {"kind": decision.kind, "by": decision.by.id if decision.by else None} if decision else None
    return JSONResponse({"error": str(error), "decision": first, "progress": error.progress}, 409)


@app.exception_handler(RequestExpired)
def too_late(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 410)


@app.exception_handler(InvalidDecision)
def invalid(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 422)


@app.exception_handler(RunFailed)
def failed(request: Request, error: RunFailed) -> JSONResponse:
    """For example, the provider cannot be reached. The run keeps its last checkpoint. The client gets no details."""
    return JSONResponse({"error": "the run stopped on a failure", "run_id": error.run_id}, 502)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), log_level="info")
