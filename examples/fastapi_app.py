"""A desk over HTTP: customers ask, and approvers list and decide pending approvals, in any number of server processes.

    pip install fastapi uvicorn
    DESK_TOKENS='{"a-long-random-token": ["ada", "approver"], "another": ["carl", "customer"]}' \\
        OPENAI_API_KEY=... python examples/fastapi_app.py

The token (`Authorization: Bearer ...`) says who somebody is, never the body of the request. Clients get ids and requests, never
a checkpoint. A decision names the checkpoint, the pending id and the digest of the shown request. A page that is out of date
gets 409 with the decision that counts, and decides nothing.

Put TLS in front of the server. Tokens in an environment variable are good enough only for an example: use your site's own
sign-in. `PHRONOMY_MODEL` names another model, `PHRONOMY_STORE` another store, `PORT` a port (8000).
"""

from __future__ import annotations

import json
import os
import secrets
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
    PendingApproval,
    Principal,
    Reject,
    Result,
    RunBusy,
    RunFailed,
    UnknownPending,
    open_store,
    to_wire,
    tool,
)

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
app = FastAPI(title="Refund desk")


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


def shown(checkpoint_id: str, pending: PendingApproval) -> dict[str, Any]:
    """The request for an approver. The tool runs with `args`: show all of them, escaped, and cut nothing.

    For whole numbers that a browser would round, `exact` has the digits: show these.
    """
    return {"checkpoint_id": checkpoint_id, "pending_id": pending.id, **to_wire(pending)}


def told(result: Result) -> dict[str, Any]:
    """The data of a run for a client."""
    return {"run_id": result.run_id, "status": result.status, "output": result.output}


@app.post("/runs", status_code=201)
def ask(body: Ask, who: Annotated[tuple[str, str], Depends(known)]) -> dict[str, Any]:
    """Ask the desk. If a call needs approval, the run waits."""
    return told(agent.invoke(body.message, metadata={"customer": who[0]}))


@app.get("/runs/{run_id}")
def look(run_id: str, who: Annotated[tuple[str, str], Depends(known)]) -> dict[str, Any]:
    """The state of a run, for the customer who asked. Others get 404."""
    head = agent.store.head(run_id)[1]
    if head.metadata.get("customer") != who[0]:
        raise HTTPException(404, "there is no such run")
    return {"run_id": run_id, "status": head.status, "output": head.output}


@app.get("/pending")
def pending(who: Annotated[Principal, Depends(approver)]) -> list[dict[str, Any]]:
    """The pending approvals, oldest first."""
    return [shown(waiting.checkpoint_id, waiting.approval) for waiting in agent.store.pending()]


@app.post("/checkpoints/{checkpoint_id}/pending/{pending_id}")
def decide(
    checkpoint_id: str, pending_id: str, body: Decide, who: Annotated[Principal, Depends(approver)]
) -> dict[str, Any]:
    """Decide one pending call: 404 if it is unknown, 409 if it was decided before, 422 if it differs from the shown call."""
    waits = {each.id: each.digest for each in agent.store.load(checkpoint_id).pending}
    if pending_id in waits and body.digest != waits[pending_id]:
        raise HTTPException(422, "the digest is not that of this call: load what waits again")
    answer = Approve() if body.approve else Reject(reason=body.reason)
    return told(agent.resume(checkpoint_id, decisions={pending_id: answer}, by=who, channel="http"))


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


@app.exception_handler(RunBusy)
def busy(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 409, {"Retry-After": "5"})


@app.exception_handler(InvalidDecision)
def invalid(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 422)


@app.exception_handler(RunFailed)
def failed(request: Request, error: RunFailed) -> JSONResponse:
    """For example, the provider cannot be reached. The run keeps its last checkpoint. The client gets no details."""
    return JSONResponse({"error": "the run stopped on a failure", "run_id": error.run_id}, 502)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), log_level="info")
