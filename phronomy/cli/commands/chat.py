"""`phronomy chat`: a conversation in the terminal, with the approvals in it.

A conversation is a thread. Whatever stopped it, the next `chat` on the thread goes on from there: what waits is asked first.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from phronomy.agents.agent import Agent
from phronomy.cli.apps import Place, new_name, open_place
from phronomy.cli.commands.asking import ask_answer
from phronomy.cli.commands.decide import Request, report_vote, settle, voted_on
from phronomy.cli.commands.driving import Hear, drive, telling
from phronomy.cli.commands.recover import carry_on
from phronomy.cli.options import By, Here, Reveal, Scopes, command
from phronomy.cli.screen import Screen
from phronomy.cli.views import Mask, show_tail
from phronomy.cli.words import DONE, FAILED, INTERRUPTED, PENDING, WrongUsage, explained, login_name, who_decided
from phronomy.engine.nested import takes_value
from phronomy.errors import (
    ApprovalExpired,
    CheckpointAlreadyResumed,
    DecisionError,
    GuardrailRefused,
    RunFailed,
    ThreadBusy,
)
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import canonical, clean
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Answer, PendingApproval
from phronomy.records.result import Result
from phronomy.stores.memory import MemoryStore
from phronomy.stores.rows import ENDED, Branch

PATIENCE = 60.0
POLL = 0.2
"""Seconds to wait for a worker that holds the thread's run, and between two looks at it."""

LEAVE = ("/quit", "/exit")


class Stopped(Exception):
    """A run has failed, and nobody wants to try it again now."""


@dataclass(frozen=True, kw_only=True)
class Chat:
    """One sitting at a thread."""

    screen: Screen
    place: Place
    mask: Mask
    thread_id: str
    by: str
    scopes: Sequence[str]
    again: str

    def run(self) -> int:
        """Talk until somebody leaves. The exit status."""
        screen = self.screen
        if screen.interactive:
            screen.say(f"Thread {self.thread_id}. Ctrl-D or /quit leaves; to go on:", style="bold")
            screen.place("", self.again)
        if isinstance(self.place.store, MemoryStore):
            screen.complain("This conversation is kept in memory and ends with this process: --store URL keeps it.")
        try:
            return self._talk()
        except KeyboardInterrupt:
            screen.complain(f"Interrupted. {self._kept()}")
            return INTERRUPTED
        except BrokenPipeError:
            screen.complain(f"Nobody reads the output any more. {self._kept()}")
            raise
        except Stopped:
            screen.complain(f"The run has stopped on a failure. {self._kept()}")
            return FAILED
        except RunFailed as error:
            error.add_note(f"go on with: {self.again}")
            raise

    def _kept(self) -> str:
        if isinstance(self.place.store, MemoryStore):
            return "It was kept in memory, and is gone: --store URL keeps it."
        return f"Nothing is lost; go on with: {self.again}"

    def _talk(self) -> int:
        result = self._picked_up()
        while True:
            while result is not None and result.suspended:
                try:
                    decided = self._decided(result.checkpoint)
                except EOFError:
                    decided = None
                if decided is None:
                    self.screen.complain(f"A decision is still pending. {self._kept()}")
                    return PENDING
                result = decided
            if result is not None and result.status == "running":
                result = self._picked_up()
                continue
            try:
                said = self.screen.ask("you> " if self.screen.interactive else "")
            except EOFError:
                return DONE
            if said in LEAVE:
                return DONE
            if said:
                result = self._said(said)

    # Runs

    def _picked_up(self) -> Result[object] | None:
        """The run of the thread that has not ended, carried on to where it rests. None if all have ended."""
        branch = self._open_branch()
        if branch is None:
            return None
        checkpoint = self.place.store.head(branch.id)[1]
        self.screen.say("Picked up where it was left.", style="bold")
        show_tail(self.screen, checkpoint, self.mask)
        return self._going(partial(self._go_on, checkpoint))

    def _open_branch(self) -> Branch | None:
        """The branch of the thread that has not ended, once nobody else holds it, or for too long."""
        until = time.monotonic() + PATIENCE
        with self.screen.reading():
            branch = self._last_branch()
        if branch is None or not self._is_held(branch):
            return branch
        with self.screen.working("Another worker holds this run, or was killed at it a moment ago"):
            while branch is not None and self._is_held(branch) and time.monotonic() < until:
                time.sleep(POLL)
                branch = self._last_branch()
        return branch

    def _is_held(self, branch: Branch) -> bool:
        return branch.is_held(self.place.store.clock())

    def _last_branch(self) -> Branch | None:
        branches = self.place.store.branches(thread_id=self.thread_id)
        return next((each for each in reversed(branches) if each.status not in ENDED), None)

    def _said(self, text: str) -> Result[object] | None:
        """Sends a message, and gives the result of the run."""
        try:
            begun: dict[str, Any] = {"thread_id": self.thread_id, "requester": self.by, "scopes": self.scopes}
            return self._going(lambda hear: drive(self.place, text, hear, **begun))
        except ThreadBusy:
            self.screen.complain("Somebody else has gone on with this thread: your message was not sent.")
            return self._picked_up()

    def _going(self, act: Callable[[Hear], Result[object]]) -> Result[object]:
        """A run, tried again for as long as it fails and the human says so. Raises `RunFailed`."""
        while True:
            try:
                with telling(self.screen, self.mask, machine=False) as hear:
                    result = act(hear)
            except GuardrailRefused as error:
                self.screen.say(error.user_message)
                result = error.result
            except RunFailed as error:
                if error.checkpoint is None or not self.screen.interactive:
                    raise
                self.screen.complain(f"phronomy: error: {explained(error, 'chat')}")
                if not self._try_again():
                    raise Stopped from error
                act = partial(self._go_on, error.checkpoint)
                continue
            if result.status == "completed" and self.place.worker.spec.flow is not None:
                said = result.checkpoint.output
                self.screen.row("answer", said if isinstance(said, str) else str(canonical(said)), style="cyan")
            if result.status not in ("completed", "suspended", "running"):
                self.screen.say(f"The run is {result.status}.", style="bold")
            return result

    def _go_on(self, checkpoint: Checkpoint, hear: Hear) -> Result[object]:
        return carry_on(self.place, checkpoint, hear)

    def _try_again(self) -> bool:
        try:
            return self.screen.ask("Try again? [y/N] ", afresh=True).lower() in ("y", "yes")
        except EOFError:
            return False

    # Decisions

    def _decided(self, checkpoint: Checkpoint) -> Result[object] | None:
        """The run after a decision on the first thing that waits for this human. None: later."""
        screen = self.screen
        pending = next((item for item in checkpoint.pending if not self._has_voted(item)), None)
        if pending is None:
            screen.say("You have voted on all that waits. It takes the votes of others.", style="bold")
            return None
        request = Request(screen=screen, place=self.place, mask=self.mask, checkpoint=checkpoint, pending=pending)
        is_cut = screen.brief(request.draw)
        if not screen.interactive:
            return None
        answer = ask_answer(request, is_cut)
        if answer is None:
            return None
        try:
            result = self._settled(request, answer)
        except CheckpointAlreadyResumed as error:
            screen.complain(f"phronomy: error: {explained(error, 'chat')}")
            return self._picked_up() or error.result
        except ApprovalExpired as error:
            screen.complain(f"phronomy: error: {explained(error, 'chat')}")
            return error.result
        except DecisionError as error:
            screen.complain(f"phronomy: error: {error}")
            return Result(status="suspended", checkpoint=checkpoint)
        if (item := voted_on(request, result)) is not None:
            report_vote(request, item)
        else:
            self._say_who(result, pending)
        return result

    def _has_voted(self, item: PendingApproval) -> bool:
        return any(self.by in vote.ids for vote in item.votes)

    def _settled(self, request: Request, answer: Answer) -> Result[object]:
        """The run after this answer. Raises as `stream` does."""
        return self._going(lambda hear: settle(request, answer, hear, by=self.by))

    def _say_who(self, result: Result[object], pending: PendingApproval) -> None:
        mine = next((each for each in result.checkpoint.decisions if each.pending_id == pending.id), None)
        if mine is not None:
            self.screen.say(f"({who_decided(mine)})", style="dim")


@command
def chat(
    screen: Screen,
    *,
    here: Here,
    thread: Annotated[
        str | None, typer.Option(help="The thread to go on with. By default a new one.", metavar="ID")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Talk to this model, without tools and without an app.", metavar="NAME")
    ] = None,
    scope: Scopes = None,
    by: By = None,
    reveal: Reveal = False,
) -> int:
    """Talk to the agent, and decide in place whatever it asks for.

    Leave whenever you like, with Ctrl-C too: the next `phronomy chat` with the same --thread goes on from there. With
    --model the conversation is kept in your data directory, unless --store names another place.
    """
    if here.app is not None and model is not None:
        raise WrongUsage("--app and --model exclude each other")
    if here.deps is not None and model is not None:
        raise WrongUsage("--deps goes with an app, and --model talks without one")
    if thread == "":
        raise WrongUsage("--thread names a thread")
    agent: Agent[Any] | None = None
    given = [] if model is None else [f"--model {shlex.quote(model)}"]
    if model is not None:
        agent = Agent(name="chat", model=model)
    with open_place(screen, here, makes=True, agent=agent) as place:
        thread_id = clean(thread) if thread else new_name("chat")
        given += [f"--scope {shlex.quote(each)}" for each in scope or ()]
        again = " ".join(["phronomy chat", *given, *place.options, f"--thread {shlex.quote(thread_id)}"])
        if place.worker.spec.flow is not None and not takes_value(place.worker.spec):
            raise WrongUsage(
                f"chat talks to agents, and {place.worker!r} is a graph: begin its runs in your app, and decide here with"
                " pending, show, approve, reject, respond and edit"
            )
        mask = Mask(place.agent, reveal=reveal)
        sitting = Chat(
            screen=screen,
            place=place,
            mask=mask,
            thread_id=thread_id,
            by=by or login_name(),
            scopes=scope or (),
            again=again,
        )
        return sitting.run()
