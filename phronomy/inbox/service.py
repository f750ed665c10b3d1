"""What the pages and the API of the inbox have in common: listing, showing, checking an edit and deciding, without any HTTP.

Who may decide, and whether a decision counts, is judged in the store alone. Here it is asked for, and put into words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from phronomy.errors import CheckpointNotFound, GrantRefused, InvalidDecision, UnreadableRow
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonDict, JsonError, JsonValue, canonical, parse, parse_exactly, pointer_part
from phronomy.inbox.problems import Problem
from phronomy.records.approvers import Vote
from phronomy.records.decisions import Answer, PendingApproval, call_digest
from phronomy.records.principals import Principal
from phronomy.rules.votes import LevelTally
from phronomy.stores.base import Store
from phronomy.stores.derived.listing import Page, Waiting, Wanted, count_pending
from phronomy.stores.derived.requests import Request
from phronomy.stores.derived.standing import Standing, standing_of, tallies_of, who_may
from phronomy.stores.derived.voters import people_of
from phronomy.stores.native import apart, in_store
from phronomy.stores.rows import Branch, BranchFilter
from phronomy.tools.context import InvalidArguments
from phronomy.tools.json_schema.answers import misfits

if TYPE_CHECKING:
    from phronomy.inbox.auth.identity import Identity
    from phronomy.tools.tool import Tool

COUNTED: Final = 1_000
"""Counts stop here, and are told as "1000+": nobody needs the exact number of more, and to count costs time."""

_SCANNED: Final = 5_000
"""So many requests are looked through for those of one person, before the page ends where it is."""


_BRANCHES: Final = 200
"""Runs that are read at once."""

_LONGEST_ID: Final = 100
"""Characters of an id in the place of a page."""

_CALM: Final = frozenset({"", "low", "medium", "moderate", "none"})


ToolOf: TypeAlias = "Callable[[PendingApproval], Tool | None]"
"""Finds the tool that a request is about, such as `Site.tool_of`."""

NO_GRANTS: Final = "the tool, or a policy that asks about it, allows none, so people are asked each time"
"""Why there is nothing to grant, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFilter:
    """Which waiting requests are wanted. `mine`: those that this person may decide. `text` is looked for in what is shown.

    With `triggers`, also those that no person answers: they wait for an event, a time or the end of another run.

    `state` tells those that can be decided (`"pending"`) from those whose time is over (`"expired"`) and that wait to be settled.

    The other fields are those of `Store.pending`; `requester` is the id of who asked for the run.
    """

    state: Literal["pending", "expired"] | None = None
    run_id: str | None = None
    thread_id: str | None = None
    agent: str | None = None
    tool: str | None = None
    risk: str | None = None
    label: str | None = None
    requester: str | None = None
    older_than: float | None = None
    newer_than: float | None = None
    expires_within: float | None = None
    mine: bool = False
    text: str | None = None
    newest: bool = False
    triggers: bool = False

    def in_store(self) -> Wanted:
        """The part that the store looks up."""
        return Wanted(
            run_id=self.run_id,
            thread_id=self.thread_id,
            agent=self.agent,
            tool=self.tool,
            risk=self.risk,
            label=self.label,
            older_than=self.older_than,
            newer_than=self.newer_than,
            asks_human=None if self.triggers else True,
        )

    @property
    def looks_closer(self) -> bool:
        """Whether each request has to be looked at to tell whether it is wanted."""
        return self.mine or any(
            each is not None for each in (self.state, self.requester, self.expires_within, self.text)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A request that waits, and what this person may do about it."""

    waiting: Waiting
    standing: Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPage:
    """A page of requests that wait. `next` is the place of the page after it, in the store's form; None at the end.

    `unreadable` are the rows there that cannot be read: nobody can decide them.
    """

    rows: tuple[Row, ...]
    next: str | None
    unreadable: tuple[UnreadableRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many requests wait, at most `COUNTED`; `more` says that there are more."""

    count: int
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A request with what this person may do about it, how its votes stand at each level, and who may decide, in words."""

    request: Request
    standing: Standing
    tallies: tuple[LevelTally, ...] = ()
    who: tuple[str, ...] = ()

    @property
    def votes(self) -> tuple[Vote, ...]:
        """The votes that were cast: with that of the decision, if there is one."""
        return _votes_of(self.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """A place in edited arguments (a JSON Pointer, RFC 6901), and what is wrong there."""

    pointer: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A place in the arguments that an edit changes: the canonical text before and after; None where there is nothing."""

    pointer: str
    before: str | None = field(repr=False)
    after: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditCheck:
    """What an edit comes to: the canonical text of the new arguments, their digest, what changes, or what is wrong.

    `by_tool` says that the tool itself has read the arguments; otherwise the schema alone was asked, and a worker checks once more.
    """

    text: str = field(repr=False)
    digest: str
    changes: tuple[Change, ...] = field(repr=False)
    errors: tuple[FieldError, ...] = ()
    by_tool: bool = False


def is_risky(item: PendingApproval) -> bool:
    """Whether a decision is shown once more before it counts, and is made for this request alone.

    Risks are words of the agent's code: one that is not known to be low counts as high.
    """
    return (item.tool.risk or "").casefold() not in _CALM


def goes_together(item: PendingApproval) -> bool:
    """Whether a request is decided together with others: one that is not risky, and asks for a yes or a no to a call and no more.

    A call that failed, or of which nobody knows what it did, a question and a breakpoint need a look of their own.
    """
    return item.why == "approval" and not is_risky(item)


def named(who: Principal) -> str:
    """A person by name and id: the name is one's own choice."""
    return f"{who.name} ({who.id})" if who.name and who.name != who.id else who.id


async def list_waiting(
    store: Store, identity: Identity, wanted: WaitingFilter, *, limit: int, after: str | None = None
) -> WaitingPage:
    """A page of the requests that wait, oldest first, with what this person may do about each. Raises `StoreError`."""
    return await apart(store, _list_waiting, store, identity.principal, wanted, limit, after)


def _list_waiting(store: Store, by: Principal, wanted: WaitingFilter, limit: int, after: str | None) -> WaitingPage:
    given = partial(store.pending, newest=wanted.newest, **wanted.in_store())
    people = cache(partial(people_of, store, by))
    rows: list[Row] = []
    unreadable: list[UnreadableRow] = []
    scanned = 0
    while True:
        page = given(limit=limit, after=after)
        for place, waiting in enumerate(page):
            if not _is_wanted(store, waiting, wanted):
                continue
            standing = standing_of(store, waiting.approval, by, people=people)
            if wanted.mine and not standing.answers:
                continue
            rows.append(Row(waiting=waiting, standing=standing))
            if len(rows) == limit and place < len(page) - 1:
                # The page ends in the middle of what was read: the next one begins after this request.
                again = _up_to(given, place + 1, after, len(page.unreadable))
                return WaitingPage(rows=tuple(rows), next=again.next, unreadable=(*unreadable, *again.unreadable))
        unreadable += page.unreadable
        scanned += len(page) + len(page.unreadable)
        after = page.next
        if after is None or len(rows) >= limit or scanned >= _SCANNED:
            return WaitingPage(rows=tuple(rows), next=after, unreadable=tuple(unreadable))


def _up_to(given: Callable[..., Page[Waiting]], count: int, after: str | None, unreadable: int) -> Page[Waiting]:
    """The beginning of a page with so many requests, and those among these rows that cannot be read."""
    again = given(limit=count, after=after)
    for more in range(1, unreadable + 1):
        if len(again) >= count:
            break
        again = given(limit=count + more, after=after)
    return again


def _is_wanted(store: Store, waiting: Waiting, wanted: WaitingFilter) -> bool:
    """Whether a request matches what no index knows."""
    item = waiting.approval
    lapsed = item.has_lapsed(datetime.fromtimestamp(store.clock(), UTC))
    if wanted.state is not None and lapsed != (wanted.state == "expired"):
        return False
    if wanted.requester is not None and (item.requester is None or item.requester.id != wanted.requester):
        return False
    if wanted.expires_within is not None and (
        item.expires_at is None or item.expires_at.timestamp() - store.clock() > wanted.expires_within
    ):
        return False
    if wanted.text is not None:
        words = wanted.text.casefold().split()
        shown = " ".join((item.tool_name, item.title or "", item.context or "", item.json_text("args"))).casefold()
        return all(word in shown for word in words)
    return True


async def list_branches(
    store: Store, holds: Callable[[Branch], bool], *, limit: int, after: str | None = None, thread_id: str | None = None
) -> tuple[list[Branch], str | None]:
    """A page of the runs and forks for which this holds, newest first, and the place of the page after it; None at the end.

    Raises `StoreError`.
    """
    return await apart(store, _list_branches, store, holds, limit, after, thread_id)


def _list_branches(
    store: Store, holds: Callable[[Branch], bool], limit: int, place: str | None, thread_id: str | None
) -> tuple[list[Branch], str | None]:
    found: list[Branch] = []
    before, _, last = (place or "").partition(" ")
    # The id in a damaged row may be empty: that is a place, too.
    after = last if place is not None else None
    wanted = BranchFilter(thread_id=thread_id, newest=True, after=after, limit=min(_BRANCHES, limit + 1))
    rows = store.select_branches(wanted)
    if place is not None and not rows:
        # No run has that id: it was deleted since, or its row is damaged. Its time says where it was.
        wanted = replace(wanted, after=None, limit=_BRANCHES)
        rows = [each for each in _walk(store, wanted) if each.created_at < float(before)]
        wanted = replace(wanted, limit=len(rows) + 1)
    scanned = 0
    while True:
        for each in rows:
            if holds(each):
                if len(found) == limit:
                    return found, _place_of(found[-1])
                found.append(each)
            wanted = replace(wanted, after=each.id)
        scanned += len(rows)
        if wanted.limit is not None and len(rows) < wanted.limit:
            return found, None
        if scanned >= _SCANNED:
            return found, _place_of(rows[-1])
        wanted = replace(wanted, limit=_BRANCHES)
        rows = store.select_branches(wanted)


def _walk(store: Store, wanted: BranchFilter) -> Iterator[Branch]:
    while rows := store.select_branches(wanted):
        yield from rows
        wanted = replace(wanted, after=rows[-1].id)


def _place_of(branch: Branch) -> str:
    # A place goes into an address. An id that is too long for one is damaged, and the time leads on, as after a deleted run.
    return f"{branch.created_at!r} {branch.id[:_LONGEST_ID]}"


async def count_waiting(store: Store, identity: Identity, wanted: WaitingFilter, *, most: int = COUNTED) -> Count:
    """How many requests wait, up to `most`. Raises `StoreError`."""
    if not wanted.looks_closer:
        found = await apart(store, partial(count_pending, store, wanted.in_store(), most=most + 1))
        return Count(count=min(found, most), more=found > most)
    page = await list_waiting(store, identity, wanted, limit=most)
    return Count(count=len(page.rows), more=page.next is not None)


async def show(store: Store, identity: Identity, pending_id: str) -> Shown:
    """A request, with what this person may do about it. Raises `UnknownPending`, `StoreError`."""
    return await apart(store, _show, store, identity.principal, pending_id)


def _show(store: Store, by: Principal, pending_id: str) -> Shown:
    return _shown(store, by, store.request(pending_id))


def _shown(store: Store, by: Principal, found: Request) -> Shown:
    item = found.approval
    standing = standing_of(store, item, by) if found.status in ("pending", "expired") else Standing()
    return Shown(
        request=found,
        standing=standing,
        tallies=tuple(tallies_of(store, item, None if found.status == "pending" else _votes_of(found))),
        who=who_may(store, item),
    )


def _votes_of(found: Request) -> tuple[Vote, ...]:
    # A decision keeps its votes, and the request only those before it. What was cancelled or expired has none but those.
    return (found.decision.votes if found.decision is not None else ()) or found.approval.votes


async def decide(
    store: Store,
    identity: Identity,
    pending_id: str,
    answer: Answer,
    *,
    digest: str,
    key: str,
    channel: str,
) -> Shown:
    """Decide a request in the name of whoever is signed in, and return it as it is then. Raises as `Store.decide` does.

    Raises `Problem` for the digest of something else.
    """
    by = identity.principal

    def decided() -> Shown:
        return _shown(store, by, store.decide(pending_id, answer, by=by, digest=digest, channel=channel, key=key))

    try:
        # In one step, since a hop into a thread costs as much as a read.
        return await in_store(store, decided)
    except InvalidDecision:
        # Looked at only now: most decisions are about what waits, and it costs a read.
        await check_digest(store, identity, pending_id, digest)
        raise


async def check_digest(store: Store, identity: Identity, pending_id: str, digest: str) -> None:
    """Refuse a decision about something else than what waits under this id. Raises `Problem`, `UnknownPending`."""
    item = (await store.arequest(pending_id)).approval
    if digest != item.digest:
        raise mismatch(identity, item)


async def check_grant(store: Store, identity: Identity, pending_id: str, digest: str) -> None:
    """Refuse a grant for something else than what was shown, or for calls of which people are asked each time all the same.

    Raises `Problem`, `UnknownPending`, `GrantRefused`.
    """
    await check_digest(store, identity, pending_id, digest)
    found = await store.arequest(pending_id)
    if is_approval(found.approval) and not await allows_grants(store, found):
        raise GrantRefused(f"pending {pending_id} is of a call for which grants do not count: {NO_GRANTS}")


async def allows_grants(store: Store, found: Request) -> bool:
    """Whether all who ask about a call allow grants: the tool, and each policy. Nobody knows it of a run that was deleted."""
    try:
        root = await store.aload(found.checkpoint_id)
    except CheckpointNotFound:
        return False
    item = found.approval
    part = next((each for each in (root, *root.nested) if each.path == item.path), None)
    calls = part.calls if part is not None else ()
    brief = next((call.brief for call in calls if call.pending_id == item.id), None)
    return is_approval(item) and brief is not None and brief.standing


def is_approval(item: PendingApproval) -> bool:
    """Whether it is a request to approve a call that runs here: of others, nothing can be granted."""
    return item.why == "approval" and not (item.external or item.between_steps)


def mismatch(identity: Identity, item: PendingApproval) -> Problem:
    """The problem of somebody who was shown something else. The digest that counts now is told to those alone who may read it."""
    if "read" in identity.scopes:
        return Problem("digest-mismatch", pending_id=item.id, digest=item.digest)
    return Problem("digest-mismatch", pending_id=item.id)


def _no_tool(item: PendingApproval) -> None:
    return None


async def check_edit(
    store: Store, identity: Identity, pending_id: str, *, digest: str, text: str, tool_of: ToolOf = _no_tool
) -> EditCheck:
    """What edited arguments come to; nothing is changed. Where `tool_of` finds the tool itself, they are read as it reads them.

    Raises `Problem` for a digest that is not that of the request, and for text that is no JSON object.
    """
    found = await store.arequest(pending_id)
    item = found.approval
    if item.digest != digest:
        raise mismatch(identity, item)
    try:
        given = parse_exactly(text)
    except JsonError as error:
        raise Problem("invalid-edit", "The arguments are no JSON.", errors=[_error("", str(error))]) from None
    if not isinstance(given, dict):
        raise Problem("invalid-edit", "The arguments are no JSON object.", errors=[_error("", "not an object")])
    before = item.json_text("args")
    errors, read = _errors_of(item, found.schema, given), None
    if not errors and (tool := tool_of(item)) is not None:
        try:
            read = tool.given_again(item.args).read(canonical(given))
        except InvalidArguments as error:
            places = error.places or (("", str(error)),)
            errors = [FieldError(pointer=pointer, detail=detail) for pointer, detail in places]
    after = canonical(given) if read is None else read
    return EditCheck(
        text=after,
        digest=call_digest(item.tool, after),
        changes=tuple(changes_between(parse(before), parse(after))),
        errors=tuple(errors),
        by_tool=read is not None,
    )


def _error(pointer: str, detail: str) -> JsonValue:
    return {"pointer": pointer, "detail": detail}


def _errors_of(item: PendingApproval, schema: JsonDict | None, given: JsonDict) -> list[FieldError]:
    """Where the arguments do not fit the schema that the store keeps."""
    # The schema of a server may be made so that a check of it takes for ever. The worker has what stops that.
    if schema is None or item.tool.source.startswith("mcp:"):
        return []
    return [FieldError(pointer=pointer, detail=detail) for pointer, detail in misfits(given, schema)]


def changes_between(before: JsonValue, after: JsonValue, at: str = "") -> list[Change]:
    """Each place where two JSON values differ, as deep as can be said: members one by one, lists and values as a whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        found: list[Change] = []
        for key in [*before, *(key for key in after if key not in before)]:
            place = f"{at}/{pointer_part(key)}"
            if key not in after:
                found.append(Change(pointer=place, before=canonical(before[key]), after=None))
            elif key not in before:
                found.append(Change(pointer=place, before=None, after=canonical(after[key])))
            else:
                found += changes_between(before[key], after[key], place)
        return found
    # By their text: 5 and 5.0 are equal to Python, and are two texts with two digests.
    first, second = canonical(before), canonical(after)
    return [] if first == second else [Change(pointer=at, before=first, after=second)]
