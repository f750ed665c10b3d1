"""Standing grants in the API. One is given for calls like that of a request which somebody was shown, and is revoked with the tag of
what they have seen of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from phronomy.inbox.api import inputs, schemas
from phronomy.inbox.api.decisions import CHANNEL
from phronomy.inbox.api.requests import BASE, answer, maybe, person_of, tag_of, tagged, unread
from phronomy.inbox.idempotency import begun_once, body_digest, key_of, scoped
from phronomy.inbox.problems import Problem
from phronomy.inbox.routes import Route
from phronomy.inbox.service import check_grant

if TYPE_CHECKING:
    from phronomy.inbox.auth.identity import Identity
    from phronomy.inbox.visit import Visit
    from phronomy.records.grants import Grant

_ROUTE: Final = "grants"
_SIGNATURES: Final = "grants/signatures"


async def list_grants(visit: Visit) -> Response:
    """The standing grants."""
    query = visit.query(inputs.GrantsQuery)
    found = await visit.store.agrants(agent=query.agent, tool=query.tool, all=query.all)
    return answer(
        schemas.GrantsView(
            items=tuple(view_of(each, visit.identity) for each in found), unreadable=unread(found.unreadable)
        )
    )


async def show_grant(visit: Visit) -> Response:
    """One grant."""
    view = view_of(await _grant(visit, visit.params["id"]), visit.identity)
    return tagged(visit, view, view.etag)


async def give_grant(visit: Visit) -> Response:
    """Give a grant for calls like the one that a request shows."""
    visit.inbox.limits.grant(visit.identity)
    body = visit.json(inputs.GrantBody)
    if body.until is not None and body.until.utcoffset() is None:
        raise Problem("invalid", "A time has a time zone.", errors=[{"pointer": "/until", "detail": "no zone"}])
    key = scoped(visit.identity, _ROUTE, key_of(visit))
    sent = body_digest(body.model_dump(mode="json"))
    async with begun_once(visit.store, key, body=sent) as once:
        if once.made is None:
            await check_grant(visit.store, visit.identity, body.request, body.digest)
            given = await visit.store.agrant_like(
                body.request,
                digest=body.digest,
                by=visit.identity.principal,
                scope=body.scope,
                exactly=body.exactly,
                condition=body.condition,
                until=body.until,
                uses=body.uses,
                channel=CHANNEL,
                reason=body.reason,
            )
            once.made = given.id
        made = once.made
    view = view_of(await _grant(visit, made), visit.identity)
    response = answer(view, 201)
    response.headers["Location"] = visit.url(f"{BASE}/grants/{made}")
    response.headers["ETag"] = view.etag
    return response


async def revoke_grant(visit: Visit) -> Response:
    """Revoke a grant: from now on, no call uses it."""
    grant = await _as_seen(visit)
    await visit.store.arevoke(grant.id, by=visit.identity.principal)
    return await _changed(visit, grant.id)


async def sign_grant(visit: Visit) -> Response:
    """Sign a grant, as one more of those who give it."""
    id = visit.params["id"]
    key = scoped(visit.identity, _SIGNATURES, key_of(visit))
    async with begun_once(visit.store, key, body=body_digest(id)) as once:
        # Signed under this key before, the grant has another tag than the one that was seen.
        if once.made is None:
            await _as_seen(visit)
            await visit.store.asign_grant(id, by=visit.identity.principal, channel=CHANNEL)
            once.made = id
    return await _changed(visit, id)


async def _as_seen(visit: Visit) -> Grant:
    """The grant, if it is as it was when its tag was read. Raises `Problem`."""
    given = visit.request.headers.get("if-match")
    if given is None:
        raise Problem("precondition-needed")
    if "*" in {each.strip() for each in given.split(",")}:
        raise Problem("precondition-needed", "If-Match: * counts for what nobody has seen: send the ETag of the grant.")
    visit.inbox.limits.grant(visit.identity)
    grant = await _grant(visit, visit.params["id"])
    # Weak tags are compared here on purpose: they cover all that is shown, and nothing but our own answers makes them.
    if view_of(grant, visit.identity).etag not in {each.strip() for each in given.split(",")}:
        raise Problem("stale")
    return grant


async def _changed(visit: Visit, id: str) -> Response:
    """The grant as it is now, with its new tag."""
    view = view_of(await _grant(visit, id), visit.identity)
    response = answer(view)
    response.headers["ETag"] = view.etag
    return response


async def _grant(visit: Visit, id: str) -> Grant:
    """The grant with this id, also one that is over. Raises `Problem`."""
    for each in await visit.store.agrants(all=True):
        if each.id == id:
            return each
    raise Problem("not-found")


def view_of(grant: Grant, identity: Identity) -> schemas.GrantView:
    """A grant, as the API shows it: its arguments and its reasons, and a tag made of them, to those alone who may read."""
    end = grant.revoked
    reads = "read" in identity.scopes
    view = schemas.GrantView(
        id=grant.id,
        agent=grant.agent,
        tool=grant.tool,
        source=grant.source,
        endpoint=grant.endpoint,
        args=grant.__dict__["args"] if reads else None,
        condition=grant.condition,
        scope=grant.scope,
        run_id=grant.run_id,
        thread_id=grant.thread_id,
        requester=grant.requester,
        until=grant.until,
        uses=grant.uses,
        uses_left=grant.uses_left,
        count=grant.count,
        givers=tuple(
            schemas.Giver(person=person_of(each.principal), at=each.at, channel=each.channel) for each in grant.givers
        ),
        giver_count=len(grant.givers),
        at=grant.at,
        reason=grant.reason if reads else None,
        revoked_by=maybe(end.principal) if end is not None else None,
        revoked_at=end.at if end is not None else None,
        revoked_reason=end.reason if end is not None and reads else None,
    )
    return view.model_copy(update={"etag": tag_of(view)})


GRANTS: Final = (
    Route(
        method="GET",
        path=f"{BASE}/grants",
        handler=list_grants,
        scope="grant",
        summary="The standing grants, oldest first",
        query=inputs.GrantsQuery,
        answer=schemas.GrantsView,
        problems=("invalid",),
    ),
    Route(
        method="POST",
        path=f"{BASE}/grants",
        handler=give_grant,
        scope="grant",
        acts=True,
        summary="Give a standing grant for calls like the one of a request",
        body=inputs.GrantBody,
        answer=schemas.GrantView,
        status=201,
        problems=("key-missing", "key-reused", "digest-mismatch", "expired", "in-progress", "refused", "invalid"),
    ),
    Route(
        method="GET",
        path=f"{BASE}/grants/{{id}}",
        handler=show_grant,
        scope="grant",
        summary="A standing grant",
        answer=schemas.GrantView,
    ),
    Route(
        method="DELETE",
        path=f"{BASE}/grants/{{id}}",
        handler=revoke_grant,
        scope="grant",
        summary="Revoke a standing grant; needs If-Match",
        answer=schemas.GrantView,
        problems=("precondition-needed", "stale"),
    ),
    Route(
        method="POST",
        path=f"{BASE}/grants/{{id}}/signatures",
        handler=sign_grant,
        scope="grant",
        acts=True,
        summary="Sign a standing grant, as one more of those who give it; needs If-Match",
        answer=schemas.GrantView,
        problems=("precondition-needed", "stale", "key-missing", "key-reused", "in-progress", "refused", "invalid"),
    ),
)
