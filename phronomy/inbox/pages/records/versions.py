"""The pages of a run's versions: its tree as a picture and as a list, one checkpoint, and what two of them differ in.

The picture says no more than the list below it. Of a long run, both show a part, with a link to the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from markupsafe import Markup
from pydantic import BaseModel, Field
from starlette.responses import Response

from phronomy.foundation.dataclasses import dataclass
from phronomy.inbox.api.run_schemas import DifferenceKind, DifferenceOf
from phronomy.inbox.api.runs import names_in
from phronomy.inbox.api.versions import (
    SAID,
    checkpoint_view,
    differences,
    found_in,
    offered_at,
    seen,
)
from phronomy.inbox.pages.letters import coded
from phronomy.inbox.pages.records.runs import STANDS, run_path
from phronomy.inbox.pages.values import values_of
from phronomy.inbox.pages.view import render
from phronomy.inbox.pages.words import DECIDED
from phronomy.inbox.routes import Route
from phronomy.inbox.versions import SHOWN, Fork, Version, Versions, read_versions
from phronomy.observability.drawings.drawing import checkpoint_box
from phronomy.observability.drawings.picture import Arrow, Box, Kind, Picture
from phronomy.observability.drawings.svg import svg
from phronomy.records.calls import CallStatus
from phronomy.stores.native import apart

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit
    from phronomy.records.checkpoint import Checkpoint
    from phronomy.stores.rows import Branch

DIFFERENCES: Final = 50
"""Differences of a page."""

DECISIONS: Final = 50
"""Decisions of a checkpoint that its page shows, the newest. The others are got by the API."""

LONGEST: Final = 200_000
"""Characters of the state of a graph, and of a side of a difference, that a page shows. A longer one is got by the API."""

KINDS: Final[Mapping[DifferenceKind, str]] = {
    "number": "How it stands",
    "call": "Calls of the open turn",
    "request": "What waits for a person",
    "vote": "Votes",
    "decision": "Decisions",
    "nested": "Nested runs",
    "state": "State",
    "metadata": "Notes of the application",
    "message": "What was said",
}
"""The headings of the differences."""

CALLS: Final[Mapping[CallStatus, str]] = {
    "new": "to be checked",
    "asking": "a handler is asked",
    "pending": "waits for a person",
    "answered": "answered",
    "ready": "to be run",
    "started": "under way",
    "nested": "waits for what is inside it",
    "failed": "failed",
    "settled": "ended",
}
"""How a call of the open turn stands, in words."""


class VersionsQuery(BaseModel):
    """Which part of the versions is wanted: those before this number. There is none before the first."""

    before: int | None = Field(default=None, ge=1, le=10_000_000)


class CheckpointQuery(BaseModel):
    """Which part of the conversation is wanted: the messages before this one."""

    before: int | None = Field(default=None, ge=0, le=10_000_000)


class CompareQuery(BaseModel):
    """Which two checkpoints are compared, and from which difference on."""

    before: str = Field(max_length=200)
    after: str = Field(max_length=200)
    first: int = Field(default=0, ge=0, le=10_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionShown:
    """A checkpoint as its row shows it: what happened, and what else there is to say. `stands` is set for the last of a branch."""

    checkpoint: Checkpoint
    path: str
    title: str
    lines: tuple[str, ...]
    at: datetime
    stands: str
    fork: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkShown:
    """A branch that is not shown whole."""

    branch: Branch
    path: str
    stands: str
    began: datetime
    goes_on: bool


def checkpoint_path(id: str, checkpoint_id: str, end: str = "") -> str:
    """The path of the page of a checkpoint, below that of its run."""
    return run_path(id, f"/checkpoints/{quote(checkpoint_id, safe='')}{end}")


def compare_path(id: str, before: str, after: str, first: int = 0) -> str:
    """The path of the page of what two checkpoints differ in."""
    query = {"before": before, "after": after, **({"first": str(first)} if first else {})}
    return f"{run_path(id, '/compare')}?{urlencode(query)}"


def version_shown(version: Version) -> VersionShown:
    """A checkpoint as it is shown."""
    now = version.checkpoint
    title, *lines = checkpoint_box(now, version.parent, None).lines
    return VersionShown(
        checkpoint=now,
        path=checkpoint_path(now.branch_id, now.id),
        title=title,
        lines=tuple(lines[:-1]),
        at=now.created_at,
        stands=STANDS[version.head_of.status] if version.head_of is not None else "",
        fork=version.parent is not None and version.parent.branch_id != now.branch_id,
    )


def fork_shown(fork: Fork) -> ForkShown:
    """A branch as it is shown."""
    return ForkShown(
        branch=fork.branch,
        path=run_path(fork.branch.id, "/versions"),
        stands=STANDS[fork.branch.status],
        began=datetime.fromtimestamp(fork.branch.created_at, UTC),
        goes_on=fork.goes_on,
    )


async def versions(visit: Visit) -> Response:
    """The versions of a run."""
    query = visit.query(VersionsQuery)
    found = await apart(visit.store, read_versions, visit.store, visit.params["id"], before=query.before)
    rows = [version_shown(each) for each in (*found.chain, *found.beside)]
    rows.sort(key=lambda each: (each.at, each.checkpoint.step), reverse=True)
    earlier, later = _around(found)
    return render(
        visit,
        "versions.html",
        here="/runs",
        branch=found.branch,
        run_path=run_path(found.branch.id),
        picture=Markup(svg(_picture(visit, found))),  # noqa: S704  # all text in it is escaped, and ASCII
        rows=rows,
        forks=[fork_shown(each) for each in found.forks],
        found=found,
        earlier=earlier,
        later=later,
        compare_path=run_path(found.branch.id, "/compare"),
        newest=found.chain[-1].checkpoint.id if found.chain else None,
    )


def _around(found: Versions) -> tuple[str | None, str | None]:
    """The paths of the parts before and after."""
    path = run_path(found.branch.id, "/versions")
    earlier = f"{path}?before={found.begin}" if found.begin else None
    end = found.end + SHOWN
    later = None if found.end >= found.total else path if end >= found.total else f"{path}?before={end}"
    return earlier, later


def _picture(visit: Visit, found: Versions) -> Picture:
    """The tree as a picture, whose boxes lead to the pages of what they stand for."""
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    places: dict[str, int] = {}
    earlier, later = _around(found)
    if earlier is not None:
        boxes.append(_link(visit, (f"{found.begin:,} earlier",), earlier))
    for each in (*found.chain, *found.beside):
        box = checkpoint_box(each.checkpoint, each.parent, each.head_of)
        href = visit.url(checkpoint_path(each.checkpoint.branch_id, each.checkpoint.id))
        lines = tuple(coded(line) for line in box.lines)
        places[each.checkpoint.id] = len(boxes)
        boxes.append(Box(lines=lines, kind=box.kind, here=box.here, title=coded(box.title), href=href))
        above = places.get(each.parent.id) if each.parent is not None else None
        if above is None and earlier is not None and not each.aside:
            above = 0
        if above is not None and each.parent is not None:
            dashed = each.parent.branch_id != each.checkpoint.branch_id
            arrows.append(Arrow(source=above, target=places[each.checkpoint.id], dashed=dashed))
    if later is not None:
        arrows.append(Arrow(source=places[found.chain[-1].checkpoint.id], target=len(boxes)))
        boxes.append(_link(visit, (f"{found.total - found.end:,} later",), later))
    for fork in found.forks:
        if fork.at is not None:
            arrows.append(Arrow(source=places[fork.at], target=len(boxes), dashed=not fork.goes_on))
            shown = fork_shown(fork)
            name = "the branch goes on" if fork.goes_on else f"fork: {fork.branch.label or fork.branch.id[:15]}"
            kind: Kind = "failed" if fork.branch.status == "failed" else "over"
            boxes.append(_link(visit, (name, shown.stands), shown.path, kind=kind))
    return Picture(title=f"Versions of run {found.branch.run_id}", boxes=tuple(boxes), arrows=tuple(arrows))


def _link(visit: Visit, lines: tuple[str, ...], path: str, *, kind: Kind = "over") -> Box:
    return Box(lines=tuple(coded(line) for line in lines), kind=kind, href=visit.url(path))


async def checkpoint(visit: Visit) -> Response:
    """A checkpoint of a run."""
    query = visit.query(CheckpointQuery)
    found = await found_in(visit, visit.params["checkpoint"])
    now, own = found.checkpoint, found.branch
    view = await asyncio.to_thread(partial(checkpoint_view, visit, found, before=query.before, limit=SAID))
    said = view["conversation"]
    begin, end = said.before or 0, (said.before or 0) + len(said.items)
    path = checkpoint_path(own.id, now.id)
    state = view["state"]
    return render(
        visit,
        "checkpoint.html",
        here="/runs",
        row=version_shown(seen(found)),
        branch=own,
        view=view,
        calls=CALLS,
        decided=DECIDED,
        stands=STANDS,
        decisions=now.decisions[-DECISIONS:],
        left_out=max(0, len(now.decisions) - DECISIONS),
        state=values_of(state) if state is not None and len(state) <= LONGEST else None,
        too_long=len(state) if state is not None and len(state) > LONGEST else 0,
        run_path=run_path(own.id),
        versions_path=run_path(own.id, "/versions"),
        api_path=f"/api/v1{path}",
        before_path=compare_path(own.id, found.parent.id, now.id) if found.parent is not None else None,
        end_path=compare_path(own.id, now.id, own.head) if own.head not in (None, now.id) else None,
        parent_path=checkpoint_path(found.parent.branch_id, found.parent.id) if found.parent is not None else None,
        operations=[
            (each, checkpoint_path(own.id, now.id, f"/{each.what}")) for each in await offered_at(visit, own.id, now.id)
        ],
        messages=said.items,
        names=names_in(now),
        hidden_all=visit.inbox.agent_of(visit.store, now.agent.name) is None,
        total=said.total,
        begin=begin,
        earlier=f"{path}?before={begin}#said" if begin else None,
        later=f"{path}#said" if end < said.total else None,
    )


async def compare(visit: Visit) -> Response:
    """What two checkpoints of a run differ in."""
    query = visit.query(CompareQuery)
    before, after = await found_in(visit, query.before), await found_in(visit, query.after)
    every = await asyncio.to_thread(differences, visit, before.checkpoint, after.checkpoint)
    end = query.first + DIFFERENCES
    id = visit.params["id"]

    def at(first: int) -> str:
        return compare_path(id, before.checkpoint.id, after.checkpoint.id, first)

    return render(
        visit,
        "compare.html",
        here="/runs",
        before=version_shown(seen(before)),
        after=version_shown(seen(after)),
        groups=_grouped(every[query.first : end]),
        kinds=KINDS,
        calls=CALLS,
        stands=STANDS,
        longest=LONGEST,
        api_path=f"/api/v1{run_path(id, '/diff')}?{at(query.first).partition('?')[2]}",
        total=len(every),
        begin=query.first,
        end=min(end, len(every)),
        swapped=compare_path(id, after.checkpoint.id, before.checkpoint.id),
        versions_path=run_path(after.branch.id, "/versions"),
        first=at(0) if query.first else None,
        next=at(end) if end < len(every) else None,
    )


def _grouped(items: list[DifferenceOf]) -> list[tuple[DifferenceKind, list[DifferenceOf]]]:
    groups: list[list[DifferenceOf]] = [[*those] for _, those in groupby(items, key=lambda each: each.kind)]
    return [(those[0].kind, those) for those in groups]


VERSIONS: Final = (
    Route(method="GET", path="/runs/{id}/versions", handler=versions, scope="read", page=True, query=VersionsQuery),
    Route(method="GET", path="/runs/{id}/compare", handler=compare, scope="read", page=True, query=CompareQuery),
    Route(
        method="GET",
        path="/runs/{id}/checkpoints/{checkpoint}",
        handler=checkpoint,
        scope="read",
        page=True,
        query=CheckpointQuery,
    ),
)
