"""`phronomy watch`: says in the terminal when something waits, and decides it in place.

A request is decided as it was shown: by its checkpoint where the app runs here, else by its digest. So one that somebody else decides
while the question stands is not decided twice; the store is looked into meanwhile, and the question is taken back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final

import typer

from phronomy.cli.apps import Place, find_pending, open_place
from phronomy.cli.commands.asking import ask_answer
from phronomy.cli.commands.decide import (
    Manner,
    Request,
    check_seen,
    how_it_stands,
    record,
    report,
    report_recorded,
    settle,
)
from phronomy.cli.commands.driving import telling
from phronomy.cli.notices import Notice, program, sequence_of, show
from phronomy.cli.options import Accept, By, Here, Json, OfAgent, Reveal, Thread, command
from phronomy.cli.screen import POLL, Overtaken, Screen
from phronomy.cli.views import Mask, decision_view, pending_view, show_tail
from phronomy.cli.words import DONE, PENDING, WrongUsage, explained, login_name, who_decided
from phronomy.errors import PhronomyError, StoreError, UnknownPending, UnreadableRow
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Answer, PendingApproval
from phronomy.stores import Waiting
from phronomy.stores.memory import MemoryStore

_MOST: Final = 200
"""The most requests that are looked at: the newest ones."""


class Watch:
    """Looks at what waits, and asks about it. `asks` is false where nobody is asked, and `machine` where a program reads.

    `wanted` are the filters of `Store.pending`, and `poll` the seconds between two looks.
    """

    def __init__(
        self,
        screen: Screen,
        place: Place,
        manner: Manner,
        *,
        wanted: Mapping[str, Any],
        poll: float,
        notice: Notice,
        asks: bool,
    ) -> None:
        self._screen = screen
        self._place = place
        self._manner = manner
        self._wanted = wanted
        self._poll = poll
        self._notice = notice
        self._desktop = program() if notice is Notice.DESKTOP else None
        self._asks = asks
        self._by = manner.by or login_name()
        self._known: dict[str, Waiting] = {}
        self._unread: set[str] = set()  # the requests that cannot be read, as far as that was told
        self._told: set[str] = set()
        self._rung: set[str] = set()
        self._later: dict[str, tuple[int, int]] = {}
        self._unrecorded: set[str] = set()
        self._at_work: Request | None = None
        self._is_asking = False
        self._failing = False

    def run(self, *, once: bool) -> int:
        """Watch until somebody leaves, or look once. The exit status."""
        try:
            while True:
                self._unrecorded.clear()
                self._look(once=once)
                while (item := self._next()) is not None:
                    self._decide(item)
                    self._look(once=once)
                if once:
                    return self._end()
                time.sleep(self._poll)
        except KeyboardInterrupt as error:
            if (request := self._at_work) is not None:
                state = how_it_stands(self._place, request.checkpoint.run_id, request.pending.id)
                return self._screen.complain_of_end(error, state)
            if self._screen.interactive and not self._is_asking:
                self._say("")  # the terminal has shown the key
            self._say("Stopped.")
            return DONE
        except EOFError as error:
            return self._screen.complain_of_end(error, f"This shows what waits: {self._place.command('pending')}")

    def _end(self) -> int:
        if not self._known:
            self._say("Nothing waits for a decision.")
        return PENDING if self._known else DONE

    # Looking

    def _look(self, *, once: bool = False) -> None:
        """Tell what is new, and what does not wait any more. A store that cannot be read is told of, and read again later."""
        try:
            page = self._place.store.pending(**self._wanted, newest=True, limit=_MOST)
            now = {item.approval.id: item for item in reversed(page)}
            gone = [id for id in self._known if id not in now and self._is_over(id)]
        except StoreError as error:
            if once:
                raise
            if not self._failing:
                self._screen.complain(f"The store cannot be read: {explained(error, 'watch')}. It is tried again.")
            self._failing = True
            return
        self._failing = False
        for row in page.unreadable:
            if row.id not in self._unread:
                self._unread.add(row.id)
                self._screen.complain(f"Not listed: {row}")
        for id in gone:
            self._known.pop(id)
        new = [item for id, item in now.items() if id not in self._known]
        self._known |= now
        for item in new:
            self._tell(item)
        self._ring(now)

    def _is_over(self, id: str) -> bool:
        """Whether a request does not wait any more; it is told what has become of it. Raises `StoreError`."""
        try:
            found = self._place.store.request(id)
        except UnknownPending:
            said, decision = "is withdrawn: its run has ended", None
        except UnreadableRow:  # it waits, and nobody can decide it
            return False
        else:
            if found.status == "pending":
                return False
            decision = found.decision
            said = "has lapsed" if decision is None else f"was {who_decided(decision)}"
            if decision is not None and decision.kind == "expire":
                said = who_decided(decision)
        if id not in self._told:
            self._told.add(id)
            if self._manner.json:
                taken = decision_view(decision) if decision is not None else None
                self._screen.line({"event": "over", "pending_id": id, "decision": taken})
            else:
                self._screen.place(id, f" {said}")
        return True

    def _tell(self, item: Waiting) -> None:
        """Tell that a request waits, where it is not shown to be decided anyway."""
        if self._manner.json:
            mask = Mask(self._place.agent, reveal=self._manner.reveal)
            view = pending_view(item.approval, item, mask, self._place.store.clock())
            self._screen.line({"event": "waits", **view, "label": item.label})
        elif not self._asks:
            self._screen.place(item.approval.id, f" {_waits(item)}")

    def _ring(self, now: Mapping[str, Waiting]) -> None:
        """Give one notice of all that is new."""
        new = [item for id, item in now.items() if id not in self._rung]
        self._rung = {*now}
        if not new or self._manner.json:
            return
        text = _waits(new[0]) if len(new) == 1 else f"{len(new)} requests wait"
        if self._desktop is not None:
            show(self._desktop, text)
        else:
            self._screen.signal(sequence_of(self._notice, text, os.environ))

    def _say(self, text: str) -> None:
        if not self._manner.json:
            self._screen.say(text, style="bold")

    # Deciding

    def _next(self) -> PendingApproval | None:
        """The oldest request that is to be asked about now."""
        if not self._asks or self._failing:
            return None
        for id, item in self._known.items():
            has_voted = any(self._by in vote.ids for vote in item.approval.votes)
            is_put_off = id in self._unrecorded or self._later.get(id) == _mark(item.approval)
            if id not in self._told and not has_voted and not is_put_off:
                return item.approval
        return None

    def _decide(self, item: PendingApproval) -> None:
        """Show a request, ask, and decide it. What cannot be decided now is put off."""
        screen, manner = self._screen, self._manner
        self._later[item.id] = _mark(item)
        try:
            with screen.reading():
                checkpoint, pending = find_pending(self._place.store, item.id)
            place = self._place_of(checkpoint)
            mask = Mask(place.agent, reveal=manner.reveal)
            request = Request(screen=screen, place=place, mask=mask, checkpoint=checkpoint, pending=pending)
            screen.say()
            show_tail(screen, checkpoint, mask)
            is_cut = screen.brief(request.draw)
            self._is_asking = True
            answer = ask_answer(request, is_cut, until=partial(self._is_overtaken, item.id), every=self._poll)
            self._is_asking = False
            if answer is None:
                screen.say(
                    "Left for later. It comes again if others vote, or if people are reminded of it.", style="bold"
                )
                return
            check_seen(request, answer, manner)
            self._at_work = request
            self._carry_out(request, answer)
        except Overtaken:
            self._is_asking = False  # the next look tells what has become of it
        except StoreError as error:
            # Nobody has put it off: it is asked about again, after the next look that succeeds.
            self._at_work, self._is_asking = None, False
            self._later.pop(item.id, None)
            self._unrecorded.add(item.id)
            screen.complain(f"phronomy: error: {explained(error, 'watch')}")
        except (PhronomyError, WrongUsage) as error:
            self._at_work, self._is_asking = None, False
            screen.complain(f"phronomy: error: {explained(error, 'watch')}")

    def _carry_out(self, request: Request, answer: Answer) -> None:
        manner = self._manner
        if request.place.agent is None:
            recorded = record(request, answer, by=self._by)
            self._mine(request)
            report_recorded(request, recorded, manner)
            return
        with telling(self._screen, request.mask, machine=False) as hear:
            result = settle(request, answer, hear, by=self._by, accept_changes=manner.accept_changes)
        self._mine(request)
        report(request, result, manner)

    def _mine(self, request: Request) -> None:
        """A decision of our own is made, and is no news."""
        self._at_work = None
        id, run_id = request.pending.id, request.checkpoint.run_id
        if not any(row.pending_id == id for row in self._place.store.pending_rows(run_id=run_id)):
            self._told.add(id)

    def _is_overtaken(self, id: str) -> bool:
        """Whether a request is over while the question stands; new ones ring meanwhile."""
        try:
            page = self._place.store.pending(**self._wanted, newest=True, limit=_MOST)
            self._ring({item.approval.id: item for item in reversed(page)})
            is_there = any(item.approval.id == id for item in page)
            return not is_there and self._place.store.request(id).status != "pending"
        except UnknownPending:
            return True
        except StoreError:
            return False  # the answer shows it

    def _place_of(self, checkpoint: Checkpoint) -> Place:
        """Where a run is carried on: here, if it is of the app's agent, else by a worker of its own."""
        agent = self._place.agent
        is_ours = agent is not None and agent.spec.name == checkpoint.agent.name
        return self._place if is_ours else replace(self._place, agent=None)


def _mark(item: PendingApproval) -> tuple[int, int]:
    """What changes when a request is to be asked about again: people are reminded of it, or others have voted."""
    return item.reminded, len(item.votes)


def _waits(item: Waiting) -> str:
    why = {"approval": "approval", "question": "an answer"}.get(item.approval.why, "a decision")
    return f"{item.approval.tool_name} of {item.approval.agent or item.agent} waits for {why}"


@command
def watch(
    screen: Screen,
    *,
    here: Here,
    thread: Thread = None,
    agent: OfAgent = None,
    tool: Annotated[str | None, typer.Option(help="Only of this tool.", metavar="NAME")] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, ask about what waits now, and end.")] = False,
    notify_only: Annotated[bool, typer.Option("--notify-only", help="Say what waits, and ask nobody.")] = False,
    notice: Annotated[
        Notice,
        typer.Option(help="How you are told: by the terminal, by a program of the desktop, or not at all."),
    ] = Notice.AUTO,
    poll: Annotated[
        float, typer.Option(help="Seconds between two looks into the store.", metavar="SECONDS", min=0.01, max=86_400)
    ] = POLL,
    by: By = None,
    reveal: Reveal = False,
    json: Json = False,
    accept_changes: Accept = False,
) -> int:
    """Say when something waits for a human, and decide it in place, until Ctrl-C.

    Without --app the decisions are recorded, and a worker of the app carries them out: see `phronomy work`. With --json, or
    without a terminal, nobody is asked.
    """
    if notice is Notice.DESKTOP and program() is None:
        raise WrongUsage("no program here shows notices on the desktop: there is neither notify-send nor osascript")
    manner = Manner(by=by, json=json, reveal=reveal, accept_changes=accept_changes)
    wanted = {"thread_id": thread, "agent": agent, "tool": tool}
    with open_place(None if json else screen, here, decides=True) as place:
        if isinstance(place.store, MemoryStore):
            raise WrongUsage("what is in memory no other process sees, so nothing waits here: give --store URL")
        asks = screen.interactive and not (notify_only or json)
        if not (once or json):
            screen.say(f"Watching what waits{'' if asks else ', and asking nobody'}. Ctrl-C stops it.", style="bold")
        watch = Watch(screen, place, manner, wanted=wanted, poll=poll, notice=notice, asks=asks)
        return watch.run(once=once)
