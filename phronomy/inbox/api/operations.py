"""Operating runs in the API: pausing one, forking it, going back in it, and a step from a breakpoint. Ending one is beside the runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from phronomy.inbox.api import inputs, schemas
from phronomy.inbox.api.requests import BASE, answer
from phronomy.inbox.api.runs import full
from phronomy.inbox.idempotency import key_of, scoped
from phronomy.inbox.operating import SCOPES_OF, Terms, What, operate_once, touched
from phronomy.inbox.routes import Route

if TYPE_CHECKING:
    from starlette.responses import Response

    from phronomy.inbox.visit import Visit

_PROBLEMS: Final = (
    *("key-missing", "key-reused", "in-progress", "refused", "stale", "invalid"),
    *("already-decided", "withdrawn", "expired", "not-an-approver", "already-voted"),
)


async def pause_run(visit: Visit) -> Response:
    """Pause a run."""
    body = visit.json(inputs.PauseBody)
    return await _done(visit, "pause", body.digest, Terms(reason=body.reason))


async def fork_run(visit: Visit) -> Response:
    """Fork a run at a checkpoint."""
    body = visit.json(inputs.ForkBody)
    return await _done(visit, "fork", body.digest, Terms(label=body.label, rerun=body.rerun), status=201)


async def restore_run(visit: Visit) -> Response:
    """Go back to a checkpoint of a run."""
    body = visit.json(inputs.RestoreBody)
    return await _done(visit, "restore", body.digest, Terms(accept_changes=body.accept_changes), status=201)


async def step_run(visit: Visit) -> Response:
    """Let a breakpoint go on, to the next stop."""
    body = visit.json(inputs.StepBody)
    return await _done(visit, "step", body.digest, Terms(pace=body.pace), request=body.request, status=202)


async def _done(
    visit: Visit, what: What, digest: str, terms: Terms, *, request: str | None = None, status: int = 200
) -> Response:
    visit.inbox.limits.operation(visit.identity)
    made = await operate_once(
        visit.inbox,
        visit.store,
        visit.identity,
        what,
        visit.params["id"],
        checkpoint_id=visit.params.get("checkpoint"),
        pending_id=request,
        digest=digest,
        terms=terms,
        key=scoped(visit.identity, f"runs/{what}", key_of(visit)),
    )
    visit.about += touched(visit.params["id"], made, request)
    response = answer(await full(visit, made), status)
    if status != 200:
        response.headers["Location"] = visit.url(f"{BASE}/runs/{made}")
    return response


OPERATIONS: Final = (
    Route(
        method="POST",
        path=f"{BASE}/runs/{{id}}/pause",
        handler=pause_run,
        scope=SCOPES_OF["pause"],
        acts=True,
        summary="Pause a run, so that somebody can let it go on later",
        body=inputs.PauseBody,
        answer=schemas.RunFull,
        problems=_PROBLEMS,
    ),
    Route(
        method="POST",
        path=f"{BASE}/runs/{{id}}/checkpoints/{{checkpoint}}/fork",
        handler=fork_run,
        scope=SCOPES_OF["fork"],
        acts=True,
        summary="Fork a run at a checkpoint",
        body=inputs.ForkBody,
        answer=schemas.RunFull,
        status=201,
        problems=_PROBLEMS,
    ),
    Route(
        method="POST",
        path=f"{BASE}/runs/{{id}}/checkpoints/{{checkpoint}}/restore",
        handler=restore_run,
        scope=SCOPES_OF["restore"],
        acts=True,
        summary="Go back to a checkpoint: the conversation goes on from there",
        body=inputs.RestoreBody,
        answer=schemas.RunFull,
        status=201,
        problems=_PROBLEMS,
    ),
    Route(
        method="POST",
        path=f"{BASE}/runs/{{id}}/step",
        handler=step_run,
        scope=SCOPES_OF["step"],
        acts=True,
        summary="Let a breakpoint go on, and stop at the next point",
        body=inputs.StepBody,
        answer=schemas.RunFull,
        status=202,
        problems=_PROBLEMS,
    ),
)
