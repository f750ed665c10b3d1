"""Deciding what waits: showing exactly what would run, asking, and carrying the run on with the decision.

What was shown is what is decided on: a request as it is listed is compared with the checkpoint that it waits at, and that goes into
`stream` with the decision, where it is compared with the stored one. If anything differs, or has changed in between, that is an error,
and nothing has happened.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from phronomy.approvals.answers import misfit_of
from phronomy.cli.apps import Place, find_pending, open_place
from phronomy.cli.commands.driving import Hear, drive, telling
from phronomy.cli.options import Accept, By, Digest, Here, Id, Json, Reveal, Yes, command
from phronomy.cli.screen import WIDEST, Screen, json_text, kind_of
from phronomy.cli.views import (
    Mask,
    cut,
    decision_view,
    pending_view,
    show_args,
    show_graph,
    show_request,
    show_tail,
)
from phronomy.cli.votes import approvers_view, rows_of, vote_view
from phronomy.cli.words import DONE, PENDING, VOTED, WrongUsage, login_name, who_decided
from phronomy.errors import ConfigurationError, InvalidDecision, RunFailed, UnknownPending
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, JsonText, canonical, parse_exactly, plain, plain_object
from phronomy.foundation.quoting import HIDDEN
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import Answer, Approve, PendingApproval, Respond
from phronomy.records.principals import Principal
from phronomy.records.result import Result
from phronomy.stores.derived.requests import Request as Recorded
from phronomy.stores.derived.requests import result_schema_of
from phronomy.tools.context import InvalidArguments
from phronomy.tools.json_schema.typed import Mistyped, member_shape, read_typed, typed_answer
from phronomy.tools.tool import Tool

CHANNEL = "cli"
SHORTEST_DIGEST = 12
VIEW = ("v", "view")
VIEW_FIRST = "Not all of it is in sight: view it all before you approve it."


@dataclass(frozen=True, kw_only=True)
class Manner:
    """The options of a decision: by whom, and whether anybody is asked."""

    by: By = None
    digest: Digest = None
    yes: Yes = False
    json: Json = False
    reveal: Reveal = False
    accept_changes: Accept = False

    def __post_init__(self) -> None:
        if self.by == "":
            raise WrongUsage("--by names somebody")


@dataclass(frozen=True, kw_only=True)
class Request:
    """A pending approval, as it was read and shown."""

    screen: Screen
    place: Place
    mask: Mask
    checkpoint: Checkpoint
    pending: PendingApproval
    machine: bool = False

    def draw(self, screen: Screen) -> None:
        """Print what waits: the state of a graph, what is asked, and who asks."""
        show_graph(screen, self.checkpoint, self.mask)
        screen.say()
        show_request(screen, self.pending, self.checkpoint, self.mask, self.place.store.clock())


Draw: TypeAlias = Callable[[Screen], None]
"""Prints something on a screen."""


@dataclass(frozen=True)
class Typed:
    """A result that somebody has typed, which is read as the request wants it."""

    text: str


Make: TypeAlias = Callable[[Request], Answer | None]
"""Makes the answer to a request, once that has been shown. None: nothing is decided."""


def decide(screen: Screen, place: Place, id: str, given: Answer | Typed | Make, question: str, manner: Manner) -> int:
    """Show what an id means, ask, and decide it. The exit status."""
    if manner.json and not manner.yes:
        raise WrongUsage("--json asks nobody, so it goes with --yes")
    with screen.reading(machine=manner.json):
        checkpoint, pending = find_pending(place.store, id)
    check_shown(id, checkpoint, pending, manner)
    check_here(place, pending, given)
    mask = Mask(place.agent, reveal=manner.reveal)
    request = Request(
        screen=screen, place=place, mask=mask, checkpoint=checkpoint, pending=pending, machine=manner.json
    )
    given = typed_result(request, given.text) if isinstance(given, Typed) else given
    try:
        if not callable(given):
            check_seen(request, given, manner)
        draw = request.draw
        is_cut = False
        if not manner.json:
            show_tail(screen, checkpoint, mask)
            is_cut = _show_request(request, draw, manner)
            screen.say()
        if callable(given):
            answer = given(request)
            check_seen(request, answer, manner)
            if isinstance(answer, Approve) and answer.args is not None and not manner.json:
                draw = partial(show_edited, pending=pending, mask=mask, args=answer.args)
                is_cut = _show_request(request, draw, manner)
        else:
            answer = given
        if answer is None or not (
            manner.yes or confirm(screen, question, draw if is_cut else None, view_first=isinstance(answer, Approve))
        ):
            how = (
                ""
                if answer is None or sys.stdin.isatty()
                else " Only a terminal is asked: give --yes to decide without."
            )
            if manner.json:
                screen.complain(f"Nothing was decided: {pending.id} still waits.{how}")
            else:
                screen.say(f"Nothing was decided: {pending.id} still waits.{how}", style="bold")
            return PENDING
        if place.agent is None:
            return report_recorded(request, record(request, answer, by=manner.by or login_name()), manner)
        with telling(screen, mask, machine=manner.json) as hear:
            result = settle(request, answer, hear, by=manner.by or login_name(), accept_changes=manner.accept_changes)
    except (KeyboardInterrupt, EOFError) as error:
        return screen.complain_of_end(error, how_it_stands(place, checkpoint.run_id, pending.id))
    except BrokenPipeError:
        screen.complain(f"Nobody reads the output any more. {how_it_stands(place, checkpoint.run_id, pending.id)}")
        raise
    return report(request, result, manner)


def check_shown(id: str, checkpoint: Checkpoint, pending: PendingApproval, manner: Manner) -> None:
    """Refuse to decide what nobody was shown. Raises `WrongUsage`, `InvalidDecision`."""
    if manner.digest is not None:
        if len(manner.digest) < SHORTEST_DIGEST:
            raise WrongUsage(f"--digest takes {SHORTEST_DIGEST} characters of the digest, or more")
        if not pending.digest.startswith(manner.digest.lower()):
            raise InvalidDecision(
                f"pending {pending.id} has the digest {pending.digest}, and not the one that was shown; nothing was decided",
                pending_id=pending.id,
            )
    elif manner.yes and id not in (pending.id, checkpoint.id):
        raise WrongUsage(f"--yes shows nothing first, and a run may ask for something else by now: name {pending.id}")


def check_here(place: Place, pending: PendingApproval, given: Answer | Typed | Make) -> None:
    """Refuse to run, with other arguments too, what is carried out elsewhere. Raises `InvalidDecision`."""
    if pending.external and (callable(given) or isinstance(given, Approve)):
        raise InvalidDecision(
            f"{pending.tool_name} of {pending.id} is carried out elsewhere, so nothing here can run it; give what came of it:"
            f" {place.command('respond', pending.id)}",
            pending_id=pending.id,
        )


def check_seen(request: Request, answer: Answer | None, manner: Manner) -> None:
    """Refuse to run what is masked, and so is seen by nobody, with nobody asked, or without the app. Raises `WrongUsage`."""
    # With the app, a human is shown which arguments are secret, and everything else. Without it, all of them are masked.
    blind = request.place.agent is None
    if not (manner.yes or blind) or not isinstance(answer, Approve):
        return
    pending, was = request.pending, request.pending.args
    args = was if answer.args is None else answer.args
    masked = request.mask.masked_in(pending)
    unseen = sorted(name for name in masked if name in args and args[name] == was[name])
    if unseen:
        masked_here = f"{', '.join(unseen)} of {pending.id} {'is' if len(unseen) == 1 else 'are'} masked"
        if blind and not manner.yes:
            raise WrongUsage(
                f"{masked_here}, since without --app it is not known which arguments are secret: --reveal shows them"
            )
        raise WrongUsage(
            f"{masked_here}, and --yes runs it with nobody asked: --reveal shows what is masked, and goes with --yes"
        )


def settle(request: Request, answer: Answer, hear: Hear, *, by: str, accept_changes: bool = False) -> Result[object]:
    """Decide what was shown, and go on. Raises as `stream` does."""
    try:
        return drive(
            request.place,
            request.checkpoint,
            hear,
            decisions={request.pending.id: answer},
            by=Principal(id=by),
            channel=CHANNEL,
            accept_changes=accept_changes,
        )
    except RunFailed as error:
        error.add_note(how_it_stands(request.place, request.checkpoint.run_id, request.pending.id))
        raise


def record(request: Request, answer: Answer, *, by: str) -> Recorded:
    """Record a decision on what was shown, for a worker to carry out. Raises as `Store.decide` does."""
    item = request.pending
    return request.place.store.decide(item.id, answer, by=Principal(id=by), digest=item.digest, channel=CHANNEL)


def report_recorded(request: Request, found: Recorded, manner: Manner) -> int:
    """Say that a decision or a vote was recorded, and who carries it out. The exit status."""
    decision, screen = found.decision, request.screen
    item = found.approval if decision is None else None
    if manner.json:
        where = {"run_id": found.run_id, "branch_id": found.branch_id, "thread_id": found.thread_id}
        taken = decision_view(decision) if decision is not None else None
        made = {"checkpoint_id": found.checkpoint_id, "status": found.status, "decision": taken}
        screen.document({**where, "agent": found.agent, **made, **_vote_view(request, item)})
        return DONE if item is None else VOTED
    if decision is None:
        return report_vote(request, found.approval)
    screen.say(f"It was {who_decided(decision)}.", style="bold")
    screen.say("A worker of the app carries it out. To be one:")
    screen.place("work", request.place.command("work", "--app MODULE:AGENT"))
    return DONE


def _show_request(request: Request, draw: Draw, manner: Manner) -> bool:
    """Print what is to be decided on: whole, unless a human is asked. Whether something of it is not in sight."""
    if manner.yes:
        draw(request.screen)
        return False
    return request.screen.brief(draw)


def confirm(screen: Screen, question: str, draw: Draw | None = None, *, view_first: bool = False) -> bool:
    """True if the human says so. Without one, nobody does. With `view_first`, the text that `draw` prints has to be viewed first."""
    if not screen.interactive:
        return False
    keys = "y/N" if draw is None else "y/N, or v to view it all"
    viewed = draw is None or not view_first
    while True:
        typed = screen.ask(f"{question} [{keys}] ", afresh=True).lower()
        if draw is not None and typed in VIEW:
            screen.page(draw)
            viewed = True
        elif viewed or typed not in ("y", "yes"):
            return typed in ("y", "yes")
        else:
            screen.say(VIEW_FIRST, style="yellow")


def how_it_stands(place: Place, run_id: str, pending_id: str) -> str:
    """Describes the state of a decision that was interrupted, and how to go on."""
    if any(row.pending_id == pending_id for row in place.store.pending_rows(run_id=run_id)):
        return f"Nothing was decided: {pending_id} still waits."
    return f"The decision is recorded and nothing is lost; go on with: {place.command('recover', run_id)}"


def report(request: Request, result: Result[object], manner: Manner) -> int:
    """Say what the decision has led to. The exit status."""
    checkpoint, screen = result.checkpoint, request.screen
    mine = next((each for each in checkpoint.decisions if each.pending_id == request.pending.id), None)
    waits = checkpoint.pending if result.suspended else ()
    item = voted_on(request, result)
    if manner.json:
        document = result_view(result, request.mask, request.place)
        taken = decision_view(mine) if mine is not None else None
        screen.document({**document, "decision": taken, **_vote_view(request, item)})
    elif item is not None:
        return report_vote(request, item)
    else:
        screen.say(f"It was {who_decided(mine)}." if mine is not None else "The decision is recorded.", style="bold")
        show_end(screen, result, request.place)
    if item is not None:
        return VOTED
    return PENDING if waits else DONE


def voted_on(request: Request, result: Result[object]) -> PendingApproval | None:
    """The request as it waits on, if the answer was a vote and it takes more of them: that of the edited arguments, after an edit."""
    asked, waits = request.pending, result.checkpoint.pending
    if result.status == "running":  # a worker elsewhere has the run, and folds the vote into it
        with suppress(UnknownPending):
            found = request.place.store.request(asked.id)
            waits = (found.approval,) if found.status == "pending" else ()
    decisions = [each for each in result.checkpoint.decisions if each.pending_id == asked.id]
    for item in waits:
        if item.id == asked.id and len(item.votes) > len(asked.votes):
            return item
        # An edit voids the votes before it, and begins the votes on what it came to.
        is_same_call = (item.path, item.call_id) == (asked.path, asked.call_id)
        if is_same_call and any(item.votes == each.votes[-len(item.votes) :] for each in decisions if item.votes):
            return item
    return None


def report_vote(request: Request, item: PendingApproval) -> int:
    """Say that a vote was recorded, and how many more it takes. The exit status."""
    screen, now = request.screen, request.place.store.clock()
    screen.say("The vote is recorded. The request waits for others:", style="bold yellow")
    for label, text in rows_of(item, now):
        screen.row(label, text)
    screen.place("pending", item.id)
    return VOTED


def _vote_view(request: Request, item: PendingApproval | None) -> dict[str, object]:
    """The member of a document that says that the answer was a vote, and how the request waits on."""
    if item is None:
        return {}
    view = {**vote_view(item.votes[-1]), "pending_id": item.id}
    return {"vote": {**view, "approvers": approvers_view(item, request.place.store.clock())}}


def result_view(result: Result[object], mask: Mask, place: Place) -> dict[str, object]:
    """Gives the result of a run as a document for machines."""
    checkpoint, now = result.checkpoint, place.store.clock()
    waits = checkpoint.pending if result.suspended else ()
    return {
        "run_id": result.run_id,
        "branch_id": checkpoint.branch_id,
        "thread_id": result.thread_id,
        "agent": checkpoint.agent.name,
        "checkpoint_id": checkpoint.id,
        "status": result.status,
        "output": checkpoint.output if result.status == "completed" else None,
        "pending": [pending_view(item, checkpoint, mask, now) for item in waits],
    }


def show_end(screen: Screen, result: Result[object], place: Place) -> None:
    """Prints the result of a run, and the commands that go on with it."""
    if result.status == "running":
        screen.say("A worker elsewhere holds the run, and carries it on.", style="bold")
        return
    if not result.suspended:
        screen.say(f"The run is {result.status}.", style="bold green")
        return
    screen.say(f"The run waits for {len(result.checkpoint.pending)} more:", style="bold yellow")
    for item in result.checkpoint.pending:
        screen.place(item.tool_name, place.command("respond" if item.external else "approve", item.id))


# Edited arguments


def _edited(request: Request, given: str | None) -> Answer | None:
    """An approval with other arguments, once they are valid: those given, or what comes back from the editor."""
    name, mask, screen = request.pending.tool_name, request.mask, request.screen
    very = mask.tool(request.pending)
    tool = very or mask.named(name)
    if tool is None:
        raise ConfigurationError(
            f"the app has no tool {name}, so edited arguments cannot be checked; nothing was decided"
        )
    was = request.pending.args
    # Also where values are revealed: the text may be a copy of one in which they were not.
    kept = {each: was[each] for each in Mask(request.place.agent, reveal=False).masked(was, very)}
    text = given if given is not None else in_editor(json_text(mask.args(was, very)))
    args: dict[str, object] | None = None
    while args is None:
        try:
            args = _read(tool.given_again(was), text, kept)
        except (JsonError, InvalidArguments) as error:
            if given is not None or not screen.interactive:
                raise InvalidDecision(f"{error}; nothing was decided", pending_id=request.pending.id) from None
            screen.say(str(error), style="yellow")
            if not confirm(screen, "Edit again?"):
                return None
            text = in_editor(text)
    if args == was:
        if not request.machine:
            screen.say("The arguments are as they were.")
        return None
    return Approve(args=args)


def show_edited(screen: Screen, pending: PendingApproval, mask: Mask, args: Mapping[str, object]) -> None:
    """Edited arguments, as the tool would get them, beside what the model asked for."""
    very, was = mask.tool(pending), pending.args
    screen.say(f"To be run: {pending.tool_name}", style="bold yellow")
    show_args(screen, args, mask.masked(args, very), was)
    screen.say()


def _read(tool: Tool, text: str, kept: Mapping[str, object]) -> dict[str, object]:
    """Validates the arguments in a text, where a mask stands for a value to keep. Raises `JsonError`, `InvalidArguments`."""
    wanted = parse_exactly(text)
    if not isinstance(wanted, dict):
        raise InvalidArguments("the arguments must be a JSON object")
    meant = {name: kept[name] if value == HIDDEN and name in kept else value for name, value in wanted.items()}
    args: dict[str, object] = json.loads(tool.read(json.dumps(meant)))
    return args


def in_editor(text: str) -> str:
    """Lets the human edit a text in the editor of `VISUAL` or `EDITOR`. Raises `WrongUsage`, `ConfigurationError`."""
    try:
        editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    except ValueError as error:
        raise WrongUsage(f"the command in VISUAL or EDITOR cannot be read: {error}") from None
    if not editor:
        raise WrongUsage("set EDITOR, or give the arguments with --args JSON")
    with tempfile.TemporaryDirectory(prefix="phronomy-") as directory:  # for its owner alone
        path = Path(directory) / "arguments.json"
        path.write_text(f"{text}\n", encoding="utf-8")
        try:
            done = subprocess.run([*editor, str(path)], check=False)  # noqa: S603  # the user's own editor
        except OSError as error:
            raise ConfigurationError(
                f"the editor {editor[0]} cannot be started: {error.strerror}; nothing was decided"
            ) from error
        if done.returncode != 0:
            raise ConfigurationError(f"the editor {editor[0]} ended with status {done.returncode}; nothing was decided")
        return path.read_text(encoding="utf-8")


def edit_in_place(screen: Screen, tool: Tool, args: dict[str, Any], masked: Set[str] = frozenset()) -> dict[str, Any]:
    """The arguments as the human wants them, asked for one by one beside what they are, each valid for the tool."""
    screen.say('Enter keeps the value in brackets, and "" is empty text.')
    for name, value in args.items():
        present = "not shown" if name in masked else cut(json.dumps(value, ensure_ascii=False), WIDEST // 2)
        while typed := screen.ask(f"  {name} ({kind_of(value)}) [{present}]: "):
            try:
                args = json.loads(tool.read(json.dumps({**args, name: _typed(tool, name, typed, value)})))
                break
            except (InvalidArguments, Mistyped) as error:
                screen.say(str(error))
    return args


def _typed(tool: Tool, name: str, typed: str, before: object) -> object:
    """The value that was typed for a parameter. Raises `Mistyped`."""
    shape = member_shape(tool.parameters, name)
    # Enter keeps the value, so an empty text has a word of its own.
    is_empty = typed == '""' and "string" in shape.kinds
    return plain(read_typed("" if is_empty else typed, shape, JsonText('""') if is_empty else canonical(before)))


@command
def respond(
    screen: Screen,
    id: Id,
    content: Annotated[
        str | None, typer.Argument(help="The result as text; - reads it from standard input.", metavar="[TEXT|-]")
    ] = None,
    *,
    here: Here,
    json_content: Annotated[
        str | None, typer.Option(help="The result as JSON; - reads it from standard input.", metavar="JSON")
    ] = None,
    manner: Manner,
) -> int:
    """Give the result of what waits yourself.

    It is not run: the text, or JSON, is what the model reads as its result. Then the run is carried on; without --app
    by a worker of the app: see `phronomy work`.
    """
    if (content is None) == (json_content is None):
        raise WrongUsage("give the result, either as TEXT or with --json-content")
    text = content if content is not None else json_content or ""
    text = sys.stdin.read() if text == "-" else text
    with open_place(None if manner.json else screen, here, decides=True) as place:
        if json_content is not None:
            given: Answer | Typed = Respond(content=_json(text, "--json-content"))
        else:
            given = Typed(text)
        return decide(screen, place, id, given, "Give this result?", manner)


def typed_result(request: Request, typed: str) -> Respond:
    """The answer that somebody has typed, of the type that the request wants. Raises `InvalidDecision`."""
    item = request.pending
    returns = result_schema_of(request.place.store, item)
    tool = request.mask.tool(item)
    if returns is None and tool is not None and tool.result_schema_text is not None:
        returns = plain_object(tool.result_schema_text)
    try:
        return Respond(content=typed_answer(item, typed, returns))
    except Mistyped as error:
        wrong = f" Wrong is: {found}" if (found := _misfit(item, tool, typed)) is not None else ""
        told = f"{error} Nothing was decided: {item.id} still waits.{wrong}"
        raise InvalidDecision(told, pending_id=item.id) from None


def _misfit(item: PendingApproval, tool: Tool | None, typed: str) -> str | None:
    """The reason why the request does not take the text itself; None if it gives none."""
    if item.why == "question":
        return misfit_of(item, typed)
    try:
        if tool is not None:
            tool.check_response(typed)
    except InvalidArguments as error:
        return str(error)
    return None


@command
def edit(
    screen: Screen,
    id: Id,
    *,
    here: Here,
    args: Annotated[
        str | None, typer.Option(help="All the arguments, as JSON. Without it, EDITOR is opened.", metavar="JSON")
    ] = None,
    manner: Manner,
) -> int:
    """Run what waits with other arguments.

    They are validated and shown before anybody is asked. Arguments that are not valid change nothing.
    """
    with open_place(None if manner.json else screen, here) as place:
        make = partial(_edited, given=args)
        return decide(screen, place, id, make, "Approve it with these arguments?", manner)


def _json(text: str, option: str) -> object:
    try:
        return parse_exactly(text)
    except JsonError as error:
        raise WrongUsage(f"{option} is no JSON: {error}") from None
