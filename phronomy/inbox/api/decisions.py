"""Deciding in the API: one request, several in one call, a look at an edit beforehand, and a look-up by the idempotency key.

Whether a decision counts is judged in the store alone. What is lost on the way back is asked for again under the same key.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, assert_never

from starlette.responses import Response

from phronomy.errors import CheckpointAlreadyResumed, PhronomyError, UnknownPending
from phronomy.foundation.json_text import JsonDict, JsonValue, object_of, parse, parse_exactly
from phronomy.inbox import service
from phronomy.inbox.api import inputs, schemas
from phronomy.inbox.api.requests import BASE, answer, as_json, decision_view, person_of
from phronomy.inbox.idempotency import body_digest, key_of, read_key, remembered, scoped
from phronomy.inbox.problems import Problem, problem_of
from phronomy.inbox.routes import Route
from phronomy.records.decisions import SAID, Answer, Approve, Reject, Respond, Skip
from phronomy.stores.derived.batches import Answered

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit

CHANNEL: Final = "api"
"""What the audit trail says of how these decisions came in."""

_ONE: Final = "decision"
_SEVERAL: Final = "decisions:batch"


async def decide(visit: Visit) -> Response:
    """Decide a request, or vote on it."""
    visit.inbox.limits.decision(visit.identity)
    body = visit.json(inputs.DecisionBody, read=parse_exactly)
    pending_id = visit.params["id"]
    # The store keeps the key with the decision, in one write, and so tells a repetition from a second answer.
    key = _key_of_one(visit, pending_id, key_of(visit))
    given = await _answer_of(visit, pending_id, body)
    try:
        shown = await service.decide(
            visit.store, visit.identity, pending_id, given, digest=body.digest, key=key, channel=CHANNEL
        )
    except CheckpointAlreadyResumed as error:
        if error.decision is not None and error.decision.key == key:
            raise Problem("key-reused") from None
        raise await already_decided(visit, pending_id, error) from None
    visit.about.append(pending_id)
    return answer(decision_view(visit, shown))


async def check(visit: Visit) -> Response:
    """What an edit comes to. Nothing is changed."""
    visit.inbox.limits.check(visit.identity)
    body = visit.json(inputs.CheckBody)
    pending_id = visit.params["id"]
    found = await _check_edit(visit, pending_id, body.digest, body.args)
    return answer(
        schemas.Checked(
            valid=not found.errors,
            args=found.text,
            digest=found.digest,
            changes=tuple(
                schemas.ChangeOf(pointer=each.pointer, before=each.before, after=each.after) for each in found.changes
            ),
            errors=tuple(schemas.FieldErrorOf(pointer=each.pointer, detail=each.detail) for each in found.errors),
            by_tool=found.by_tool,
        )
    )


async def decide_several(visit: Visit) -> Response:
    """Give one answer to several requests."""
    body = visit.json(inputs.BatchBody)
    visit.inbox.limits.decision(visit.identity, len(body.requests))
    key = key_of(visit)
    whole = scoped(visit.identity, _SEVERAL, key)
    # Without the metadata: as with one decision, the same with other metadata is the same.
    said = body.model_dump(mode="json", exclude={"metadata"})
    async with remembered(visit.store, whole, body=body_digest(said)):
        given = _answer_to_all(body)
        refused: dict[str, Problem] = {}
        for each in body.requests:
            try:
                await _check_for_batch(visit, each)
            except PhronomyError as error:
                if body.atomic:
                    raise
                refused[each.id] = _named(problem_of(error), each.id)
        answers = [
            Answered(
                pending_id=each.id,
                digest=each.digest,
                answer=given,
                key=scoped(visit.identity, _SEVERAL, key, each.id),
            )
            for each in body.requests
            if each.id not in refused
        ]
        if answers:
            await visit.confirm("decide")
        try:
            done = await visit.store.adecide_all(
                answers, by=visit.identity.principal, channel=CHANNEL, all_or_none=body.atomic
            )
        except CheckpointAlreadyResumed as error:
            raise await already_decided(visit, error.pending_id or "", error) from None
        for one in done:
            if isinstance(one.error, CheckpointAlreadyResumed):
                refused[one.pending_id] = await already_decided(visit, one.pending_id, one.error)
            elif one.error is not None:
                refused[one.pending_id] = _named(problem_of(one.error), one.pending_id)
    visit.about += [each.id for each in body.requests if each.id not in refused]
    results = [await _result(visit, each.id, refused.get(each.id)) for each in body.requests]
    return answer(schemas.BatchView(results=tuple(results)))


async def decision_by_key(visit: Visit) -> Response:
    """Whether a decision was recorded under this key, and what became of it."""
    store, pending_id = visit.store, visit.params["id"]
    key = _key_of_one(visit, pending_id, read_key(visit.params["key"]))
    recorded = False
    async for record in store.aaudit(pending_id=pending_id):
        recorded = recorded or record.key == key
    decision = None
    if recorded:
        with suppress(UnknownPending):  # its run is deleted since
            decision = decision_view(visit, await service.show(store, visit.identity, pending_id))
    return answer(schemas.KeyView(recorded=recorded, decision=decision))


# Pieces


def _key_of_one(visit: Visit, pending_id: str, key: str) -> str:
    return scoped(visit.identity, _ONE, key, pending_id)


async def _answer_of(visit: Visit, pending_id: str, body: inputs.DecisionBody) -> Answer:
    """The answer of a body. Raises `Problem` for members that do not go with it, and for an edit that does not fit."""
    belongs = {
        "approve": {"metadata"},
        "edit": {"args", "metadata"},
        "reject": {"reason", "then", "metadata"},
        "respond": {"content", "metadata"},
    }.get(body.answer, set())
    errors: list[JsonValue] = [
        {"pointer": f"/{name}", "detail": f"does not go with the answer {body.answer}"}
        for name in sorted(body.model_fields_set - belongs - {"answer", "digest"})
    ]
    needed = {"edit": "args", "respond": "content"}.get(body.answer)
    if needed is not None and needed not in body.model_fields_set:
        errors.append({"pointer": f"/{needed}", "detail": f"is needed for the answer {body.answer}"})
    if errors:
        raise Problem("invalid", "The body is not valid.", errors=errors)
    match body.answer:
        case "approve":
            return Approve(metadata=body.metadata)
        case "edit":
            return await _edit_of(visit, pending_id, body)
        case "reject":
            return Reject(reason=body.reason, then=body.then, metadata=body.metadata)
        case "respond":
            return Respond(content=body.content, metadata=body.metadata)
        case "skip":
            return Skip()
        case unknown:
            assert_never(unknown)


def _answer_to_all(body: inputs.BatchBody) -> Answer:
    if body.answer == "approve":
        return Approve(metadata=body.metadata)
    return Reject(reason=body.reason, then=body.then, metadata=body.metadata)


async def _edit_of(visit: Visit, pending_id: str, body: inputs.DecisionBody) -> Approve:
    text = body.args or ""
    found = await _check_edit(visit, pending_id, body.digest, text)
    if found.errors:
        raise Problem(
            "invalid-edit",
            errors=[{"pointer": each.pointer, "detail": each.detail} for each in found.errors],
            pending_id=pending_id,
        )
    # As it was given, and not as this tool here has read it: a process without the agent's code takes the same body
    # under the same key, and must come to the same answer. The worker reads it once more.
    return Approve(args=object_of(parse(text)), metadata=body.metadata)


async def _check_edit(visit: Visit, pending_id: str, digest: str, text: str) -> service.EditCheck:
    return await service.check_edit(
        visit.store, visit.identity, pending_id, digest=digest, text=text, tool_of=visit.inbox.tool_of
    )


async def already_decided(visit: Visit, pending_id: str, error: CheckpointAlreadyResumed) -> Problem:
    """The problem that somebody was first: who, when, what, and what became of it."""
    problem = problem_of(error)
    if error.decision is None:
        return problem
    members: JsonDict = dict(problem.members)
    if error.decision.by is not None:
        members["by"] = as_json(person_of(error.decision.by))
    try:
        result = (await visit.store.arequest(pending_id)).result
    except UnknownPending:
        result = None
    members["outcome"] = None if result is None else result.kind
    by = error.decision.by
    mine = by is not None and (by.kind, by.id) == (visit.identity.principal.kind, visit.identity.principal.id)
    detail = f"You have decided it before: it was {SAID[error.decision.kind]}. This answer was not recorded."
    return Problem(problem.type, detail if mine else problem.detail, headers=problem.headers, **members)


async def _check_for_batch(visit: Visit, given: inputs.BatchItem) -> None:
    """Refuse what is not decided with others. Raises `Problem`, `UnknownPending`."""
    found = await visit.store.arequest(given.id)
    if service.is_risky(found.approval):
        risk = found.approval.tool.risk
        raise Problem("refused", "A tool of this risk is decided by itself.", pending_id=given.id, risk=risk)
    if not service.goes_together(found.approval):
        why = "It asks for more than a yes or a no to a call, and is decided by itself."
        raise Problem("refused", why, pending_id=given.id)
    if found.approval.digest != given.digest:
        raise service.mismatch(visit.identity, found.approval)


def _named(problem: Problem, pending_id: str) -> Problem:
    """The problem, with the request that it is about."""
    members: JsonDict = {**problem.members, "pending_id": pending_id}
    return Problem(problem.type, problem.detail, headers=problem.headers, **members)


async def _result(visit: Visit, pending_id: str, problem: Problem | None) -> schemas.BatchResult:
    if problem is not None:
        said = visit.told(problem)
        return schemas.BatchResult(id=pending_id, problem=schemas.ProblemOf.model_validate(said))
    shown = await service.show(visit.store, visit.identity, pending_id)
    return schemas.BatchResult(id=pending_id, decision=decision_view(visit, shown))


_REFUSALS: Final = (
    "key-missing",
    "key-reused",
    "digest-mismatch",
    "already-decided",
    "already-voted",
    "expired",
    "withdrawn",
    "not-an-approver",
    "in-progress",
    "refused",
    "invalid",
)

DECISIONS: Final = (
    Route(
        method="POST",
        path=f"{BASE}/requests/{{id}}/decision",
        handler=decide,
        scope="decide",
        acts=True,
        summary="Decide a request, or vote on it",
        body=inputs.DecisionBody,
        answer=schemas.DecisionView,
        problems=(*_REFUSALS, "invalid-edit"),
    ),
    Route(
        method="POST",
        path=f"{BASE}/requests/{{id}}/check",
        handler=check,
        scope=("decide", "read"),
        summary="What edited arguments come to; nothing is changed",
        body=inputs.CheckBody,
        answer=schemas.Checked,
        problems=("digest-mismatch", "invalid-edit", "invalid"),
    ),
    Route(
        method="POST",
        path=f"{BASE}/decisions:batch",
        handler=decide_several,
        scope="decide",
        acts=True,
        summary="Give one answer to several requests that are not risky",
        body=inputs.BatchBody,
        answer=schemas.BatchView,
        problems=_REFUSALS,
    ),
    Route(
        method="GET",
        path=f"{BASE}/requests/{{id}}/decision/by-key/{{key:path}}",
        handler=decision_by_key,
        scope="decide",
        summary="Whether a decision was recorded under an idempotency key, and what became of it",
        answer=schemas.KeyView,
        problems=("invalid",),
    ),
)
