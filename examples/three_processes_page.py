"""The page of the three processes: people list, look at and decide requests. It has the store alone, and no agent.

    DESK_PASSWORDS='{"rita": "a-long-password"}' python three_processes_page.py

`three_processes_desk.py` says what the other two are. The store is opened by `PHRONOMY_STORE`, as there. `PORT` is a port (8000).

The sign-in says who decides, never a field of the form. The form has the digest of the request that this person saw: if
something else waits by now, nothing is decided. It also has a key: sent twice, it counts once. Nobody can make another person's
browser send such a form, since they do not know the digest. Put TLS in front of the page, and use your site's own sign-in.
"""

from __future__ import annotations

import json
import os
import secrets
from html import escape
from typing import Annotated
from urllib.parse import parse_qs

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.security import HTTPBasic, HTTPBasicCredentials

from phronomy import (
    Approve,
    CheckpointAlreadyResumed,
    InvalidDecision,
    Principal,
    Reject,
    RequestExpired,
    UnknownPending,
    open_store,
)
from phronomy.stores import Request as Asked

PASSWORDS: dict[str, str] = json.loads(os.environ.get("DESK_PASSWORDS", "{}"))

store = open_store(os.environ.get("PHRONOMY_STORE", "sqlite:///three.db"))
app = FastAPI(title="Requests")


def signed_in(sent: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())]) -> Principal:
    """Who sits at the browser: 401 unless the password is theirs."""
    known = PASSWORDS.get(sent.username)
    if known is None or not secrets.compare_digest(known.encode(), sent.password.encode()):
        raise HTTPException(401, "who are you?", {"WWW-Authenticate": "Basic"})
    return Principal(id=sent.username)


Who = Annotated[Principal, Depends(signed_in)]


def page(body: str, status: int = 200, *, again: bool = False) -> HTMLResponse:
    """A page, which the browser loads again each second if there is more to come."""
    head = '<meta charset="utf-8"><title>Requests</title>' + (
        '<meta http-equiv="refresh" content="1">' if again else ""
    )
    return HTMLResponse(f"<!doctype html>{head}{body}", status, {"Cache-Control": "no-store"})


def shown(request: Asked) -> str:
    """What a human decides on: all arguments, escaped, and nothing cut."""
    args = json.dumps(request.approval.args, indent=2)
    return f"<h1>{escape(request.agent)} wants {escape(request.approval.tool_name)}</h1><pre>{escape(args)}</pre>"


FORM = """<form method="post"><input type="hidden" name="digest" value="{digest}"><input type="hidden" name="key" value="{key}">
<input name="reason" placeholder="why not?"><button name="answer" value="yes">Approve</button>
<button name="answer" value="no">Reject</button></form>"""


@app.get("/")
def listed(who: Who) -> HTMLResponse:
    """All requests that wait, oldest first."""
    lines = [
        f'<li><a href="/requests/{each.approval.id}">{escape(each.agent)}: {escape(each.approval.tool_name)}</a></li>'
        for each in store.pending(limit=100)
    ]
    return page(f"<h1>Requests for {escape(who.id)}</h1><ul>{''.join(lines) or 'Nothing waits.'}</ul>")


@app.get("/requests/{pending_id}")
def look(pending_id: str, who: Who) -> HTMLResponse:
    """One request: a form while it waits, and then what has become of it."""
    request = store.request(pending_id)
    if request.status == "pending":
        return page(shown(request) + FORM.format(digest=request.approval.digest, key=secrets.token_hex(8)))
    decision, result = request.decision, request.result
    by = f"{decision.kind}, says {decision.by.id}. " if decision is not None and decision.by is not None else ""
    told = f"{by}The request is {request.status}." + (f" {result.content}" if result is not None else "")
    # A run that has failed goes on once somebody has mended what is wrong: a worker says what.
    failed = request.run_status == "failed"
    told += " The run has failed." if failed else ""
    again = request.status in ("decided", "running") and not failed
    return page(f"{shown(request)}<p>{escape(told)}</p>", again=again)


@app.post("/requests/{pending_id}")
async def decide(pending_id: str, sent: Request, who: Who) -> RedirectResponse:
    """Record the decision. That takes milliseconds: the worker carries it out."""
    form = {name: values[0] for name, values in parse_qs((await sent.body()).decode()).items()}
    answers: dict[str, Approve | Reject] = {"yes": Approve(), "no": Reject(reason=form.get("reason"))}
    if (answer := answers.get(form.get("answer", ""))) is None:
        raise HTTPException(422, "the answer is yes or no")
    digest, key = form.get("digest", ""), form.get("key")
    await store.adecide(pending_id, answer, by=who, digest=digest, channel="page", key=key)
    return RedirectResponse(f"/requests/{pending_id}", 303)


@app.exception_handler(CheckpointAlreadyResumed)
@app.exception_handler(InvalidDecision)
@app.exception_handler(RequestExpired)
@app.exception_handler(UnknownPending)
def refused(sent: Request, error: Exception) -> HTMLResponse:
    """Nothing was decided, and the page says why."""
    statuses: dict[type[Exception], int] = {UnknownPending: 404, CheckpointAlreadyResumed: 409, RequestExpired: 410}
    return page(f'<p>{escape(str(error))}</p><a href="/">All requests</a>', statuses.get(type(error), 422))


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), log_level="info")
