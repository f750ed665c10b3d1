"""Standing grants in a store: making, signing, revoking and using them.

A grant is one small document, so each change of it is one compare-and-set: of any number of calls that use a grant at once, as many
pass as it has uses. The key begins with the SHA-256 over agent and tool, so the grants for one tool are read together. Those for one
run come after that of the run: a tool may have one for each of many runs, and a call reads those of its own run alone.

An id alone says nothing of the key. Whoever has no more than the id (a person who signs or revokes) has the kind scanned. A second
document that leads from the id to the key would be one more that a crash can leave behind, and the engine has the whole grant.

A grant that is revoked or spent stays for some days: people see what became of it, and a request that used it finds its use again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from phronomy.approvals.answers import check_digest
from phronomy.errors import GrantRefused, InvalidDecision, RequestExpired, StoreError, UnreadableRow
from phronomy.foundation.ids import new_id
from phronomy.foundation.json_text import clean
from phronomy.foundation.quoting import kept_id, quoted, quoted_id
from phronomy.foundation.unreadable import unreadable_row
from phronomy.records.decisions import PAST
from phronomy.records.grants import NEEDED, Given, Grant, GrantScope, Revoked, is_spent
from phronomy.records.principals import Principal, as_principal, id_of_person
from phronomy.records.record import digest_of
from phronomy.stores.derived.documents import MOST, documents_under
from phronomy.stores.derived.listing import Listing, read_each
from phronomy.stores.derived.people import as_known, person_known_as
from phronomy.stores.derived.requests import Request, request
from phronomy.stores.documents import keeps_documents
from phronomy.stores.native import apart
from phronomy.stores.rows import Behind, Document

if TYPE_CHECKING:
    from phronomy.stores.base import Store

KIND: Final = "grant"
"""The kind of document that grants are kept as."""

KEPT: Final = 7 * 86_400.0
"""Seconds for which a grant that is revoked or spent is kept."""

_BATCH: Final = 200
"""Documents that are read at a time."""

_LONGEST_PENDING: Final = 64
"""Characters of the id of a request that a grant counts: ours have 29."""

_ROOM: Final = 10_000
"""Bytes of a document that are left for those who sign the grant later, and for who revokes it."""


# Reading


def grants_for(
    store: Store, agent: str, tool: str, *, run_id: str | None = None, pending_id: str | None = None
) -> tuple[Grant, ...]:
    """The grants for a tool of an agent that are not revoked, spent or over, oldest first.

    With `run_id`, those that are for other runs alone are left out, and are not read. With `pending_id`, those that this request
    has used come first, and are there though they are spent. A store that keeps no documents has none.
    A grant whose row cannot be read permits nothing, so it is left out.
    """
    # What is asked at each call must not fail in a store that was written before there were documents.
    if not keeps_documents(store):
        return ()
    place = digest_of(clean(agent), clean(tool)) + "/"
    places = [place] if run_id is None else [f"{place}/", f"{place}{digest_of(clean(run_id))}/"]
    now = store.clock()
    rows = (each for prefix in places for each in documents_under(store, KIND, prefix, batch=_BATCH))
    found, _ = read_each(rows, read)
    # The names are compared once more: what stands under a key is what its row says it is.
    wanted = [
        each
        for each in found
        if (is_live(each, now) or (pending_id in each.used and each.revoked is None and _is_in_time(each, now)))
        and (each.agent, each.tool) == (clean(agent), clean(tool))
    ]
    # A process may have died after the use. Its request has the use that it had: of no other grant, and also if it was the last.
    # Of several, the oldest is used, and not the one whose random id happens to come first.
    return tuple(sorted(wanted, key=lambda each: (pending_id not in each.used, _made_at(each), each.id)))


async def agrants_for(
    store: Store, agent: str, tool: str, *, run_id: str | None = None, pending_id: str | None = None
) -> tuple[Grant, ...]:
    """The async twin of `grants_for`."""
    return await apart(store, grants_for, store, agent, tool, run_id=run_id, pending_id=pending_id)


def select(store: Store, agent: str | None, tool: str | None, *, over: bool) -> Listing[Grant]:
    """The grants of the tenant, oldest first; with `over`, also those that are revoked or spent. Raises `StoreError`."""
    of_tool = digest_of(clean(agent), clean(tool)) + "/" if agent is not None and tool is not None else ""
    rows = documents_under(store, KIND, of_tool, batch=_BATCH)
    now = store.clock()
    found, unreadable = read_each(rows, read)
    wanted = [
        each
        for each in found
        if agent in (None, each.agent) and tool in (None, each.tool) and (over or is_live(each, now))
    ]
    return Listing(sorted(wanted, key=lambda each: (_made_at(each), each.id)), unreadable)


def key_of(grant: Grant) -> str:
    """The key of a grant's document: the tool, then the run if it is for one run, then its id."""
    run = digest_of(grant.run_id) if grant.run_id is not None else ""
    return f"{digest_of(grant.agent, grant.tool)}/{run}/{grant.id}"


def read(found: Document) -> Grant:
    """The grant in a document. Raises `UnreadableRow` if it cannot be read, or is not the one of this key."""
    try:
        grant = Grant.model_validate_json(found.text)
        if key_of(grant) == found.key and grant.at is not None and grant.givers:
            return grant
        raise ValueError("the row of another one")
    except (ValueError, TypeError):
        failure = unreadable_row(KIND, _id_of(found), then="; store.revoke(id) deletes it")
    # Outside of the except block: the error above may quote what is in the row.
    raise failure


def is_live(grant: Grant, now: float) -> bool:
    """Whether calls can use the grant at this time."""
    return grant.revoked is None and not is_spent(grant) and _is_in_time(grant, now)


def _is_in_time(grant: Grant, now: float) -> bool:
    return grant.until is None or now < grant.until.timestamp()


def _made_at(grant: Grant) -> float:
    return grant.at.timestamp() if grant.at is not None else 0.0


def _id_of(found: Document) -> str:
    return found.key.rpartition("/")[2]


def _find(store: Store, id: str) -> Document | None:
    """The document of the grant with this id, None if there is none."""
    return next((each for each in documents_under(store, KIND, "", batch=_BATCH) if _id_of(each) == id), None)


# Giving


def give(store: Store, grant: Grant, by: str | Principal, channel: str | None) -> Grant:
    """As `Store.grant`."""
    if not isinstance(grant, Grant):
        raise GrantRefused(f"a Grant is given, not {quoted(grant)}")
    giver = _giver(store, by, channel)
    if not _is_in_time(grant, store.clock()):
        raise GrantRefused("the time until which the grant would count is over: give a later one")
    # Whatever the record says of these, it says it of another grant, or of none.
    made = grant.evolve(
        id=new_id(KIND),
        givers=(giver,),
        requester=_requester(store, grant.requester),
        used=(),
        count=0,
        at=giver.at,
        revoked=None,
    )
    text = made.model_dump_json()
    # Looked at now, with all that is to come: a grant that is used must not grow until it cannot be written.
    if len(text.encode()) + (made.uses or 0) * (_LONGEST_PENDING + 3) + _ROOM > MOST:
        raise GrantRefused(
            "the arguments of the grant are too long to be kept: grant them by a condition, or the tool as a whole"
        )
    _put(store, Document(kind=KIND, key=key_of(made), text=text), made)
    return made


def give_like(
    store: Store,
    pending_id: str,
    *,
    digest: str,
    by: str | Principal,
    scope: GrantScope,
    exactly: bool,
    condition: str | None,
    until: datetime | None,
    uses: int | None,
    channel: str | None,
    reason: str | None,
) -> Grant:
    """As `Store.grant_like`."""
    if not isinstance(digest, str):
        raise InvalidDecision(f"the digest is text, not {type(digest).__name__}", pending_id=kept_id(pending_id))
    if not isinstance(exactly, bool):
        raise GrantRefused(f"exactly is True or False, not {type(exactly).__name__}")
    if exactly and condition is not None:
        raise GrantRefused("a grant is for exactly these arguments, or for a condition: pass exactly=False with it")
    found = request(store, pending_id)
    item = found.approval
    check_digest(item, digest)
    _check_request(found)
    # Those that the scope does not name are left out; where its own is missing, the run has none.
    ids = {
        "run_id": found.run_id,
        "thread_id": found.thread_id,
        "requester": id_of_person(item.requester) if item.requester is not None else None,
    }
    needed = NEEDED.get(scope)
    if needed is not None and ids[needed] is None:
        raise GrantRefused(f"the run of pending {item.id} has no {needed}: grant it for another scope")
    terms: dict[str, Any] = {
        "agent": item.agent or found.agent,
        "tool": item.tool_name,
        "source": item.tool.source,
        "endpoint": item.tool.endpoint,
        "schema_hash": item.tool.schema_hash,
        "args": item.__dict__["args"] if exactly else None,
        "condition": condition,
        **{name: id for name, id in ids.items() if name == needed},
    }
    return give(store, Grant(**terms, scope=scope, until=until, uses=uses, reason=reason), by, channel)


def _check_request(found: Request) -> None:
    """Refuse a request whose like cannot be granted. Raises `GrantRefused`, `RequestExpired`."""
    item = found.approval
    if item.why != "approval" or item.between_steps or item.external:
        raise GrantRefused(
            f"pending {item.id} is no request to approve a call that runs here, so there is nothing to grant: answer it"
        )
    if found.status == "expired":
        raise RequestExpired(f"pending {item.id} had lapsed before the grant was given", pending_id=item.id)
    if found.decision is not None and found.decision.kind != "approve":
        raise GrantRefused(f"pending {item.id} was {PAST[found.decision.kind]}: what is not approved is not granted")


def sign(store: Store, id: str, by: str | Principal, channel: str | None) -> Grant:
    """As `Store.sign_grant`."""
    giver = _giver(store, by, channel)
    for document in _versions(store, id):
        grant = read(document)
        if not is_live(grant, store.clock()):
            break
        if giver.principal.id in _people(grant):
            raise GrantRefused(
                f"{quoted_id(giver.principal.id)} has given grant {grant.id} already: each person counts once",
                id=grant.id,
            )
        if (signed := _change(store, document, grant.evolve(givers=(*grant.givers, giver)))) is not None:
            return signed
    raise GrantRefused(
        f"there is no grant {quoted_id(id)} that still counts: store.grants(all=True) lists what is kept",
        id=kept_id(id),
    )


def revoke(store: Store, id: str, by: str | Principal, reason: str | None) -> bool:
    """As `Store.revoke`."""
    giver = _giver(store, by, None)
    end = Revoked(principal=giver.principal, at=giver.at, reason=reason)
    for document in _versions(store, id):
        try:
            grant = read(document)
        except UnreadableRow:
            # It counts for nobody, and stands in the way of each call of its tool: what is asked for is that it goes.
            store.delete_document(KIND, document.key)
            return True
        if grant.revoked is not None:
            return False
        if _change(store, document, grant.evolve(revoked=end)) is not None:
            return True
    return False


def use(store: Store, grant: Grant | str, pending_id: str) -> Grant | None:
    """As `Store.use_grant`."""
    if not isinstance(pending_id, str) or not 0 < len(pending_id) <= _LONGEST_PENDING or not pending_id.isascii():
        raise InvalidDecision(f"a grant is used by the id of a request, not {quoted(pending_id)}")
    for document in _versions(store, grant):
        found = read(document)
        now = store.clock()
        if found.revoked is not None or not _is_in_time(found, now):
            return None
        if pending_id in found.used:
            return found
        if is_spent(found):
            return None
        used = (*found.used, pending_id) if found.uses is not None else ()
        if (after := _change(store, document, found.evolve(used=used, count=found.count + 1))) is not None:
            return after
    return None


def keys_by_run(store: Store) -> Mapping[str, Sequence[str]]:
    """The keys of the grants that are for one run alone, by the digest of the run's id. A store that keeps no documents has none."""
    found: dict[str, list[str]] = {}
    if keeps_documents(store):
        for document in documents_under(store, KIND, "", batch=_BATCH):
            if run := document.key.partition("/")[2].partition("/")[0]:
                found.setdefault(run, []).append(document.key)
    return found


def forget_run(store: Store, run_id: str, keys: Mapping[str, Sequence[str]]) -> None:
    """Delete the grants that are for this run alone, of those in `keys_by_run`: a run that is deleted leaves no arguments behind."""
    for key in keys.get(digest_of(run_id), ()):
        store.delete_document(KIND, key)


def _giver(store: Store, by: str | Principal, channel: str | None) -> Given:
    who = as_principal(by)
    if who is None:
        raise InvalidDecision("by says who does it: a Principal, or its id as text that is not empty")
    known = as_known(store, who) if keeps_documents(store) else who
    if known is None:
        raise GrantRefused(
            f"{quoted_id(who.id)} was removed from the directory: nothing was granted, signed or revoked"
        )
    # Under the id that they gave, and with the roles of then: the directory is asked anew at each use. By then, an alias may be
    # somebody else's, so the person is kept beside it.
    giver = who.evolve(listed=known.listed, person=known.id if known.id != who.id else None)
    return Given(principal=giver, at=datetime.fromtimestamp(store.clock(), UTC), channel=channel, listed=known.listed)


def _requester(store: Store, id: str | None) -> str | None:
    """The id of the person for whose runs a grant is: an alias may be somebody else's when it is used."""
    person = person_known_as(store, id) if id is not None else None
    return person.id if person is not None else id


def _people(grant: Grant) -> set[str]:
    """The ids of those who gave it, and of those for whom somebody did: of each one voice."""
    return {who.id for each in grant.givers for who in (each.principal, each.behalf_of) if who is not None}


# Writing


def _versions(store: Store, grant: Grant | str) -> Iterator[Document]:
    """The document of a grant as it stands, again and again as long as somebody else changes it; nothing if it is gone."""
    if not isinstance(grant, Grant | str):
        raise GrantRefused(f"a grant is named by its id, not {quoted(grant)}")
    document = store.get_document(KIND, key_of(grant)) if isinstance(grant, Grant) else _find(store, grant)
    seen: set[str] = set()
    while document is not None:
        # A store that says that it has changed though it has not contradicts itself, and would do so for ever.
        if document.version in seen:
            raise StoreError(
                f"grant {quoted_id(_id_of(document))} is the same as before, and the store says that it has changed"
            )
        seen.add(document.version)
        yield document
        document = store.get_document(KIND, document.key)


def _change(store: Store, document: Document, after: Grant) -> Grant | None:
    """Write what a grant is now; None if somebody else has changed it since the document was read."""
    try:
        _put(store, replace(document, text=after.model_dump_json()), after)
    except Behind:
        return None
    return after


def _put(store: Store, document: Document, grant: Grant) -> None:
    over = grant.revoked is not None or is_spent(grant)
    until = grant.until.timestamp() if grant.until is not None else None
    store.put_document(replace(document, expires_at=store.clock() + KEPT if over else until))
