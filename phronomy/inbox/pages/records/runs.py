"""The pages of runs: which there are and how each stands, and one of them with its conversation and what happened in it.

The conversation is read from the last checkpoint, its end first, and what a tool marks as secret is hidden: all arguments and results
are, where the agent's code is not in this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote, urlencode

from pydantic import BaseModel, Field
from starlette.responses import Response

from phronomy.errors import CheckpointNotFound, ConfigurationError
from phronomy.foundation.dataclasses import dataclass
from phronomy.inbox.api.runs import about_runs, agent_of, names_in, said_in, waiting_in
from phronomy.inbox.api.versions import offered_to
from phronomy.inbox.cursors import Cursors
from phronomy.inbox.pages.records.listed import ROWS, Listed
from phronomy.inbox.pages.records.told import ENDS, told
from phronomy.inbox.pages.view import render
from phronomy.inbox.pages.waiting import path_of
from phronomy.inbox.pages.words import heading
from phronomy.inbox.problems import Problem
from phronomy.inbox.routes import Route
from phronomy.inbox.service import list_branches
from phronomy.observability.about import About
from phronomy.observability.masking import Masking
from phronomy.observability.timeline import recent
from phronomy.records.decisions import PendingApproval
from phronomy.stores.derived.listing import damage_of
from phronomy.stores.native import apart
from phronomy.stores.rows import ENDED, Branch, BranchFilter

if TYPE_CHECKING:
    from phronomy.inbox.visit import Visit

MESSAGES: Final = 30
"""Messages of a page of a conversation."""

ENTRIES: Final = 200
"""Entries of a timeline that are shown, the newest."""

State = Literal["running", "waiting", "failed", "ended", "set_aside"]

STATES: Final[Mapping[State, tuple[str, tuple[str, ...]]]] = {
    "running": ("Running", ("running",)),
    "waiting": ("Waiting", ("suspended",)),
    "failed": ("Failed", ("failed",)),
    "ended": ("Ended", ("completed", "rejected", "skipped")),
    "set_aside": ("Cancelled", ("cancelled", "superseded")),
}
"""How runs can stand, as the tabs of the list say it: the word, and the states of the store that it covers."""

STANDS: Final[Mapping[str, str]] = {
    "running": "Running",
    "suspended": "Waits for a person",
    "failed": "Stopped by a failure",
    **ENDS,
}
"""How one run stands, in words."""


SAID: Final[Mapping[tuple[str | None, str], str]] = {
    ("pause", "running"): "The worker that has it pauses it as soon as what is under way has ended.",
    ("pause", "suspended"): "The run is paused. It goes on when somebody lets it go on.",
    ("cancel", "running"): "The worker that has it ends it as soon as what is under way has ended.",
    ("cancel", "cancelled"): "The run is ended.",
    ("step", "running"): "It goes on to the next stop. This page does not change by itself: load it again.",
    ("step", "suspended"): "It went on to the next stop.",
}
"""What is said of an operation that was done, by what has become of the run."""

SAID_ANYHOW: Final[Mapping[str, str]] = {
    "pause": "The run was to be paused, and has gone on since.",
    "cancel": "The run was to be ended.",
    "fork": "This is the fork. The run that it comes from has not changed.",
    "restore": "The conversation goes on from here. What came after stays as it was, on a branch of its own.",
    "step": "It went on.",
}
"""What is said of an operation otherwise."""


class RunsQuery(Listed):
    """Which runs are wanted."""

    state: State | None = None
    agent: str | None = Field(default=None, max_length=200)
    thread: str | None = Field(default=None, max_length=200)
    after: str | None = Field(default=None, max_length=2_000)


class RunQuery(BaseModel):
    """Which part of the conversation is wanted: the messages before this one."""

    before: int | None = Field(default=None, ge=0, le=10_000_000)
    said: Literal["pause", "cancel", "fork", "restore", "step"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShown:
    """A run as its row shows it.

    `lost` says that its worker has not come back, so that another one will take over. `idle` says that nobody has driven it yet, as
    a new fork: no worker takes it by itself. `again` says that it has failed in the hands of a worker, and is tried again: a run
    that failed for whoever began or resumed it is left to them.
    """

    branch: Branch
    path: str
    stands: str
    began: datetime
    changed: datetime
    waits: int = 0
    about: About = About()
    lost: bool = False
    idle: bool = False
    again: bool = False

    @property
    def heading(self) -> str | None:
        """The label of the run, or else the first request that waits in it; None if there is neither."""
        return self.branch.label or (heading(self.about.item) if self.about.item is not None else None)

    @property
    def is_fork(self) -> bool:
        """Whether it is a fork of a run, and not the run itself."""
        return self.branch.parent_branch is not None


def run_shown(branch: Branch, now: float, waits: int = 0, about: About | None = None) -> RunShown:
    """A run as it is shown."""
    left = branch.status == "running" and not branch.is_held(now)
    # As recovery sees it: a worker that is gone is still written down, and what was left for one is numbered.
    idle = left and branch.owner is None and branch.handed is None
    return RunShown(
        branch=branch,
        path=run_path(branch.id),
        stands=STANDS[branch.status],
        began=datetime.fromtimestamp(branch.created_at, UTC),
        changed=datetime.fromtimestamp(branch.changed_at, UTC),
        waits=waits,
        about=about or About(),
        lost=left and not idle,
        idle=idle,
        again=branch.status == "failed" and branch.handed is not None,
    )


def run_path(id: str, end: str = "") -> str:
    """The path of the page of a run."""
    return f"/runs/{quote(id, safe='')}{end}"


def step_path(branch_id: str, pending_id: str) -> str:
    """The path of the page of a step from a breakpoint."""
    return f"{run_path(branch_id, '/step')}?{urlencode({'request': pending_id})}"


_COUNTED = 500
"""Runs that are counted, the newest first."""


async def runs(visit: Visit) -> Response:
    """The list of runs, newest first."""
    query = visit.query(RunsQuery)
    cursors = Cursors(visit, "runs-page", dict(query.filters))
    statuses = STATES[query.state][1] if query.state is not None else None
    kept, place = await list_branches(
        visit.store,
        lambda each: query.agent in (None, each.agent) and (statuses is None or each.status in statuses),
        limit=ROWS,
        after=cursors.read(query.after),
        thread_id=query.thread,
    )
    following = cursors.made(place)
    # The newest alone are counted: nobody needs the exact number of more, and to count costs time.
    counted = BranchFilter(thread_id=query.thread, newest=True, limit=_COUNTED + 1)
    newest = await apart(visit.store, visit.store.select_branches, counted)
    is_all = query.thread is None or kept
    every = (
        newest if is_all else await apart(visit.store, visit.store.select_branches, replace(counted, thread_id=None))
    )
    waits = await waiting_in(visit, {each.run_id for each in kept if each.status == "suspended"})
    about, now = await about_runs(visit, kept, waits), visit.store.clock()
    return render(
        visit,
        "runs.html",
        here="/runs",
        query=query,
        rows=[run_shown(each, now, len(waits.get(each.id, ())), about[each.id]) for each in kept],
        damaged=await apart(visit.store, damage_of, visit.store, kept),
        everywhere=len(every),
        tabs=_tabs(query, newest),
        without=query.without("/runs"),
        next=query.address("/runs", after=following) if following is not None else None,
        first=query.address("/runs") if query.after is not None else None,
    )


def _tabs(query: RunsQuery, newest: list[Branch]) -> list[tuple[str, str, str, bool]]:
    """The tabs: word, number, address, and whether it is the one that is shown."""
    more = "+" if len(newest) > _COUNTED else ""
    found = [each for each in newest[:_COUNTED] if query.agent in (None, each.agent)]
    counts = {name: sum(each.status in statuses for each in found) for name, (_, statuses) in STATES.items()}
    every = ("All", f"{len(found):,}{more}", query.address("/runs", state=None), query.state is None)
    return [
        every,
        *(
            (word, f"{counts[name]:,}{more}", query.address("/runs", state=name), query.state == name)
            for name, (word, _) in STATES.items()
        ),
    ]


async def run(visit: Visit) -> Response:
    """One run."""
    query = visit.query(RunQuery)
    try:
        branch, checkpoint = await visit.store.ahead(visit.params["id"])
    except (CheckpointNotFound, ConfigurationError):  # none, or text that no id can be
        raise Problem("not-found") from None
    store, now = visit.store, visit.store.clock()
    agent = agent_of(visit, branch.agent)
    # Without the agent's code it is not known which parameters are secret, so all arguments of calls are hidden.
    mask = Masking(agent.spec if agent is not None else None)
    part = said_in(checkpoint, mask, before=query.before, limit=MESSAGES)
    begin, end = part.before or 0, (part.before or 0) + len(part.items)
    story, more = await apart(store, partial(recent, store, branch.id, most=ENTRIES))
    page = await store.apending(run_id=branch.run_id)
    waits = [row.approval for row in page if row.branch_id == branch.id]
    about = await about_runs(visit, [branch], await waiting_in(visit, {branch.run_id}))
    others = [each for each in await store.abranches(run_id=branch.run_id) if each.id != branch.id]
    # To look what could be done is one more read of the run: for those alone who may do it.
    operations = await offered_to(visit) if visit.may("operate") or visit.may("cancel") else []
    steps = {each.item.id for each in operations if each.item is not None and not each.why_not}
    return render(
        visit,
        "run.html",
        here="/runs",
        row=run_shown(branch, now, len(waits), about[branch.id]),
        checkpoint=checkpoint,
        ended=branch.status in ENDED,
        said=_said(query.said, branch),
        waits=[
            (heading(item), request_path(item), item, step_path(branch.id, item.id) if item.id in steps else None)
            for item in waits
        ],
        unreadable=[each for each in page.unreadable if each.branch_id == branch.id],
        operations=[
            (each.what, run_path(branch.id, f"/{each.what}"))
            for each in operations
            if each.item is None and not each.why_not
        ],
        versions_path=run_path(branch.id, "/versions"),
        others=[run_shown(each, now) for each in others],
        messages=part.items,
        names=names_in(checkpoint),
        hidden_all=agent is None,
        total=part.total,
        begin=begin,
        end=end,
        earlier=f"{run_path(branch.id)}?before={begin}#said" if begin else None,
        later=f"{run_path(branch.id)}#said" if end < part.total else None,
        story=[(each, words) for each in story if (words := told(each)) is not None],
        more=more,
    )


def _said(what: str | None, branch: Branch) -> str | None:
    """What is said of an operation that was done. A link may say of one that it was: of a run, no page says that it is a fork."""
    if what is None or (what in ("fork", "restore") and branch.parent_branch is None):
        return None
    return SAID.get((what, branch.status)) or SAID_ANYHOW[what]


def request_path(item: PendingApproval) -> str:
    """The path of the page of a request."""
    return path_of(item.id)


RUNS: Final = (
    Route(method="GET", path="/runs", handler=runs, scope="read", page=True, summary="Runs", query=RunsQuery),
    Route(method="GET", path="/runs/{id}", handler=run, scope="read", page=True, summary="A run", query=RunQuery),
)
