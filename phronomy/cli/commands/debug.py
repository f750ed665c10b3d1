"""`phronomy debug`: a run taken from stop to stop, by commands at a terminal or in a pipe.

Every stop is a checkpoint in the store: whoever leaves, however, loses nothing, and picks the run up with `--run`. In a pipe
each command is printed behind the prompt, so that what comes out reads as the session at a terminal would.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Any, Final, NamedTuple, get_args

import typer

from phronomy.cli.apps import Place, find, open_place
from phronomy.cli.graphs import heading
from phronomy.cli.options import Accept, By, Here, Reveal, Scopes, command
from phronomy.cli.screen import Screen
from phronomy.cli.views import Mask, cut, names_of, show_args, show_graph, show_message, show_tail
from phronomy.cli.votes import rows_of
from phronomy.cli.words import DONE, INTERRUPTED, PENDING, WrongUsage, explained, login_name
from phronomy.debugger.debugger import Debugger, Watched
from phronomy.debugger.stepping import LABEL, Pace
from phronomy.engine.nested import takes_value
from phronomy.errors import AsyncRequired, PhronomyError, UnknownPending
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import JsonError, parse
from phronomy.foundation.quoting import HIDDEN
from phronomy.foundation.suspicious_letters import escaped
from phronomy.records.checkpoint import Checkpoint
from phronomy.records.decisions import PendingApproval
from phronomy.stops.breakpoints import Breakpoint, BreakpointHit
from phronomy.stores.memory import MemoryStore

PROMPT: Final = "(debug) "

WHERE: Final = {
    "pre_input_guardrails": "before the input guardrails",
    "pre_agent_run": "before the run begins",
    "pre_model_call": "before the model is asked",
    "pre_tool_call": "before tool {}",
    "pre_handoff": "before handoff {}",
    "post_tool_call": "after tool {}",
    "pre_node": "before node {}",
    "post_node": "after node {}",
    "pre_pattern_step": "before step {}",
    "pre_output_guardrails": "before the output guardrails",
    "post_run": "before the end of the run",
}
"""Where a run is stopped at a breakpoint of each point, in words."""


@command
def debug(
    screen: Screen,
    input: Annotated[
        str | None, typer.Argument(help="What to ask the agent; for a graph, JSON.", metavar="[INPUT]")
    ] = None,
    *,
    run: Annotated[
        str | None, typer.Option(help="Go on with this run: a run, branch, checkpoint or pending id.", metavar="ID")
    ] = None,
    here: Here,
    scope: Scopes = None,
    by: By = None,
    reveal: Reveal = False,
    accept_changes: Accept = False,
) -> int:
    """Step through a run: stop it, look, change something, go on, go back.

    With INPUT a run begins, and stops before anything has happened. Commands are read line by line, in a pipe too; `help`
    lists them. Leave at any time: the run waits where it stands, and --run picks it up.
    """
    if input is not None and run is not None:
        raise WrongUsage("INPUT begins a run, and --run goes on with one: give one of them")
    if scope and run is not None:
        raise WrongUsage("--scope goes with a run that begins: one that --run goes on with has its own")
    with open_place(screen, here, makes=run is None) as place:
        given: dict[str, Any] = {"scopes": scope} if scope else {}
        given |= {"deps": place.deps, "by": by or login_name(), "accept_changes": accept_changes}
        debugger = Debugger(place.worker, **given)
        session = Session(screen, place, Mask(place.agent, reveal=reveal), debugger)
        return session.run(input, run)


class Command(NamedTuple):
    """A command: its name and its short one, what is written after it, what it does, and what does it."""

    name: str
    short: str
    usage: str
    does: str
    act: Callable[[Session, str], None]


@dataclass
class Session:
    """One sitting at the debugger."""

    screen: Screen
    place: Place
    mask: Mask
    debugger: Debugger[Any, object]
    told: dict[str, int] = field(default_factory=dict)
    """How many messages of the run at each path were shown."""
    states: dict[str, Mapping[str, object]] = field(default_factory=dict)
    numbers: dict[int, Breakpoint] = field(default_factory=dict)
    left: bool = False

    def run(self, input: str | None, run: str | None) -> int:
        """Read commands until there are no more. The exit status."""
        for each in self.debugger.breakpoints:
            self._number(each)
        if isinstance(self.place.store, MemoryStore):
            self.screen.complain("This run is kept in memory and ends with this process: --store URL keeps it.")
        try:
            if run is not None:
                with self.screen.reading():
                    branch = find(self.place.store, run).branch
                self._call("attach", branch.id)
                show_tail(self.screen, self._part(), self.mask)
                self._catch_up()
                self._show()
            elif input is not None:
                self.begin(input)
            while not self.left and (line := self._read()) is not None:
                self._obey(line)
            return self._quit()
        except KeyboardInterrupt:
            self._quit()
            return INTERRUPTED

    def _read(self) -> str | None:
        """The next command; None when there is none."""
        try:
            line = self.screen.ask(PROMPT if self.screen.interactive else "")
        except EOFError:
            return None
        if line and not self.screen.interactive:
            self.screen.verbatim(f"{PROMPT}{escaped(line)}")
        return line

    def _obey(self, line: str) -> None:
        """Obey one line. An error is printed, and the run stays where it was, or where the command has left it."""
        word, _, rest = line.partition(" ")
        if not word or word.startswith("#"):
            return
        command = next((each for each in COMMANDS if word in (each.name, each.short)), None)
        if command is None:
            self.screen.say(f"There is no command {word}: help lists them.", style="yellow")
            return
        before = self._checkpoint_id()
        try:
            command.act(self, rest.strip())
        except WrongUsage as error:
            self.screen.say(f"{error}: {command.name} {command.usage}".rstrip(), style="yellow")
        except PhronomyError as error:
            self.screen.say(f"error: {explained(error, 'debug')}", style="yellow")
            if self._checkpoint_id() != before:
                self._show()
        except KeyboardInterrupt:
            if before is None:
                raise
            self.screen.say("Interrupted: the run stands where it was last stored.", style="yellow")
            self._obey("again")

    def _call(self, method: str, *args: object, **options: object) -> object:
        """Call a method of the debugger. An agent with anything async in it runs in an event loop."""
        with self.screen.working("The run goes on"):
            try:
                return getattr(self.debugger, method)(*args, **options)
            except AsyncRequired:
                return asyncio.run(getattr(self.debugger, f"a{method}")(*args, **options))

    def _quit(self) -> int:
        """Say how to pick the run up. The exit status."""
        if self._checkpoint_id() is None or self.debugger.checkpoint.ended is not None:
            return DONE
        if isinstance(self.place.store, MemoryStore):
            self.screen.say("The run was kept in memory, and is gone: --store URL keeps it.")
        else:
            self.screen.say("The run waits where it stands. To pick it up:")
            self.screen.place("", self.place.command("debug", "--run", self.debugger.checkpoint.branch_id))
        return PENDING

    # Moving and deciding

    def begin(self, text: str) -> None:
        """Begin a run, and stop before anything has happened."""
        if not text:
            raise WrongUsage("Give an input")
        self.told, self.states = {}, {}
        spec = self.place.worker.spec
        self._call("start", text if spec.flow is None or takes_value(spec) else _object(text))
        self._show()

    def move(self, method: str, rest: str) -> None:
        """Go on to another stop."""
        if rest:
            raise WrongUsage("It takes nothing")
        if self._checkpoint_id() is not None and self.debugger.checkpoint.ended is not None:
            self.screen.say("The run has ended: back goes back in it, and run begins another.")
            return
        self._call(method)
        self._show()

    def until(self, rest: str) -> None:
        """Go on to a breakpoint that is there for this once."""
        self._call("run_to", _breakpoint(rest, "until"))
        self._show()

    def back(self, rest: str) -> None:
        """Go back, on a branch of its own."""
        words = rest.split()
        rerun = "rerun" in words
        numbers = [word for word in words if word != "rerun"]
        if len(numbers) > 1 or not all(map(_is_number, numbers)):
            raise WrongUsage("Give a number of boundaries")
        self._call("back", int(numbers[0]) if numbers else 1, rerun=rerun)
        self._catch_up()
        self.screen.say("On a branch of its own; the old one stays as it is.")
        self._show()

    def again(self, rest: str) -> None:
        """Read the run again from the store."""
        self._call("attach", self.debugger.checkpoint.branch_id)
        self._show()

    def approve(self, rest: str) -> None:
        """Run what waits, with what was set."""
        id, rest = _id(rest)
        if rest and rest not in _PACES:
            raise WrongUsage(f"It goes on {', '.join(_PACES)}; or give a pending id")
        self._call("approve", id, go_on=_PACES.get(rest, "over"))
        self._show()

    def reject(self, rest: str) -> None:
        """Do not run what waits."""
        id, reason = _id(rest)
        self._call("reject", id, reason=reason or None)
        self._show()

    def respond(self, rest: str) -> None:
        """Give the result of what waits."""
        id, content = _id(rest)
        if not content:
            raise WrongUsage("Give the result")
        self._call("respond", _value(content), id)
        self._show()

    def skip(self, rest: str) -> None:
        """Leave out what comes next."""
        id, rest = _id(rest)
        if rest:
            raise WrongUsage("It takes a pending id, or nothing")
        self._call("skip", id)
        self._show()

    def select(self, rest: str) -> None:
        """Make something else that waits the current stop."""
        items = self.debugger.checkpoint.pending
        if _is_number(rest) and not 0 < int(rest) <= len(items):
            raise UnknownPending(f"there is no {rest} among what waits: info lists it", pending_id=rest)
        self.debugger.select(items[int(rest) - 1].id if _is_number(rest) else rest)
        self._show()

    def set(self, rest: str) -> None:
        """Change what the run goes on with."""
        name, _, text = rest.partition(" ")
        kind, _, key = name.partition(".")
        text = text.strip()
        if not text or (kind == "input") == bool(key) or kind not in ("input", "args", "state"):
            raise WrongUsage("Give what is to be set, and its value")
        value = _value(text)
        if kind == "input":
            self.debugger.set(input=value if isinstance(value, dict | list) else text)
        elif kind == "args":
            self.debugger.set(args={key: value})
        else:
            self.debugger.set(state={key: value})
        self._show_edits()

    def unset(self, rest: str) -> None:
        """Forget what was set."""
        self.debugger.unset()

    # Breakpoints and watches

    def stop_at(self, rest: str) -> None:
        """Stop there from now on."""
        made = _breakpoint(rest, f"breakpoint {max(self.numbers, default=0) + 1}")
        self.debugger.breakpoints.add(made)
        self.screen.row(f"break {self._number(made)}", _describe(made))

    def delete(self, rest: str) -> None:
        """Stop there no more."""
        if not _is_number(rest) or int(rest) not in self.numbers:
            raise WrongUsage("Give the number of a breakpoint")
        self.debugger.breakpoints.remove(self.numbers.pop(int(rest)))

    def watch(self, rest: str) -> None:
        """Work an expression out at each stop."""
        self._show_value("watch", self.debugger.watch(rest))

    def unwatch(self, rest: str) -> None:
        """Watch it no more."""
        self.debugger.unwatch(rest)

    def print(self, rest: str) -> None:
        """The value of an expression."""
        self._show_value("print", self.debugger.evaluate(rest))

    def _number(self, made: Breakpoint) -> int:
        number = max(self.numbers, default=0) + 1
        self.numbers[number] = made
        return number

    # Looking

    def info(self, rest: str) -> None:
        """Print the breakpoints, the watches, the pending approvals and the changes that were set."""
        for number, each in self.numbers.items():
            self.screen.row(f"break {number}", _describe(each))
        for watched in self.debugger.watches:
            self._show_value("watch", watched)
        if not self.numbers and not self.debugger.watches:
            self.screen.say("No breakpoints, and nothing is watched.")
        if self._checkpoint_id() is None:
            return
        current = self.debugger.pending
        for number, item in enumerate(self.debugger.checkpoint.pending, 1):
            here = " (the current stop)" if current is not None and item.id == current.id else ""
            self.screen.row(f"waits {number}", f"{item.point or item.why} {_name(item)}{here}")
            self.screen.place("", item.id)
        self._show_edits()

    def where(self, rest: str) -> None:
        """The call stack, innermost last."""
        for depth, frame in enumerate(self.debugger.where()):
            self.screen.row(str(depth), f"{frame.agent}: {frame.at}" + (f" ({frame.path})" if frame.path else ""))

    def messages(self, rest: str) -> None:
        """The conversation of the run that the current stop is in, or the state of the graph."""
        part = self._part()
        names = names_of(part)
        for message in part.messages:
            show_message(self.screen, message, names, self.mask)
        show_graph(self.screen, part, self.mask)

    def help(self, rest: str) -> None:
        """List the commands."""
        for each in COMMANDS:
            short = f", {each.short}" if each.short else ""
            self.screen.say(f"  {f'{each.name}{short} {each.usage}':<39} {each.does}")

    def leave(self, rest: str) -> None:
        """Leave the run at its current stop."""
        self.left = True

    # Showing

    def _checkpoint_id(self) -> str | None:
        try:
            return self.debugger.checkpoint.id
        except PhronomyError:
            return None

    def _part(self) -> Checkpoint:
        """The run that the current stop is in."""
        checkpoint, path = self.debugger.checkpoint, self.debugger.where()[-1].path
        return next((part for part in checkpoint.nested if part.path == path), checkpoint)

    def _catch_up(self) -> None:
        """Take what there is as shown."""
        for part in (self.debugger.checkpoint, *self.debugger.checkpoint.nested):
            self.told[part.path] = len(part.messages)
            self.states[part.path] = self.mask.state(part) or {}

    def _show(self) -> None:
        """Print the news of the run and its current stop."""
        self._show_news()
        item, hit = self.debugger.pending, self.debugger.hit
        if item is not None:
            self._show_stop(item, hit)
        elif self.debugger.checkpoint.ended is not None:
            self.screen.say(f"The run is {self.debugger.status}.", style="bold green")
        else:
            self.screen.say("The run stands between two stops.", style="bold yellow")
        for watched in self.debugger.watches:
            self._show_value("watch", watched)

    def _show_news(self) -> None:
        part = self._part()
        names = names_of(part)
        for message in part.messages[self.told.get(part.path, 0) :]:
            show_message(self.screen, message, names, self.mask)
        state = self.mask.state(part) or {}
        before = self.states.get(part.path, {})
        changed = {name: value for name, value in state.items() if name not in before or before[name] != value}
        if changed:
            show_args(self.screen, changed, {name for name, value in changed.items() if value == HIDDEN})
        self.told[part.path], self.states[part.path] = len(part.messages), state

    def _show_stop(self, item: PendingApproval, hit: BreakpointHit | None) -> None:
        stack = " > ".join(frame.agent for frame in self.debugger.where())
        label = item.label if item.label not in (None, LABEL) else None
        line = f"{heading(item)}, in {stack}"
        if hit is not None and hit.type in WHERE:
            where = WHERE[hit.type].format(hit.tool or hit.node)
            if hit.type == "pre_agent_run" and (way := self.debugger.context.handoff) is not None:
                where = f"after the handoff from {way[0]}"
            line = f"Stopped {where}, in {stack} ({hit.type})"
        self.screen.say(f"{label}: {line}" if label else line, style="bold yellow")
        if item.tool.source == "breakpoint":
            if hit is not None and hit.result is not None:
                self.screen.row("result", cut(self.mask.result(hit.tool or "", hit.result)))
        elif hit is None or hit.node is None or "arg" in item.args:  # what a node is shown otherwise is the state
            show_args(self.screen, item.args, self.mask.masked_in(item))
        if hit is None:
            if item.reason:
                self.screen.row("why", item.reason)
            for label, text in rows_of(item, self.place.store.clock()):
                self.screen.row(label, text)
            self.screen.say("No move passes this: approve, reject or respond.")
        if more := len(self.debugger.checkpoint.pending) - 1:
            self.screen.say(f"({more} more {'wait' if more > 1 else 'waits'}: info lists all, select takes another)")

    def _show_edits(self) -> None:
        for kind, value in self.debugger.edits.items():
            named = {f"{kind}.{name}": each for name, each in value.items()} if kind != "input" else {kind: value}
            for name, each in named.items():
                self.screen.row("set", f"{name} = {json.dumps(each, ensure_ascii=False)}, with the move that goes on")

    def _show_value(self, label: str, watched: Watched) -> None:
        value = json.dumps(watched.value, ensure_ascii=False, default=repr)
        said = f"({watched.error})" if watched.error is not None else value
        self.screen.row(label, f"{watched.expression} = {said}")


# Reading what was typed

_PACES: Final[Mapping[str, Pace]] = {
    **{pace: pace for pace in get_args(Pace)},
    "next": "over",
    "continue": "go",
}

_STOP: Final = re.compile(r"(\S+)((?: +(?:agents|tools|nodes|patterns)=\S+)*)(?: +when +(.+))?")


def _breakpoint(text: str, label: str) -> Breakpoint:
    """The breakpoint in `TYPE tools=a,b when EXPR`. Raises `WrongUsage`, `ConfigurationError`."""
    found = _STOP.fullmatch(text)
    if found is None:
        raise WrongUsage("Say where")
    names: dict[str, Any] = {}
    for each in found[2].split():
        option, _, given = each.partition("=")
        names[option] = [name for name in given.split(",") if name]
    type: Any = found[1]
    return Breakpoint(type, found[3], label, **names)


def _describe(made: Breakpoint) -> str:
    """A breakpoint as it is typed."""
    parts = [made.type]
    for name in ("agents", "tools", "nodes", "patterns"):
        if (given := getattr(made, name)) is not None:
            parts.append(f"{name}={','.join(sorted(given))}")
    if made.when is not None:
        parts.append(f"when {made.when}" if isinstance(made.when, str) else "when a function says so")
    return " ".join(parts)


def _name(item: PendingApproval) -> str:
    """Names the tool or node of an item; empty if its point says that."""
    return (
        str(item.args.get("tool") or item.args.get("node") or "")
        if item.tool.source == "breakpoint"
        else item.tool_name
    )


def _id(text: str) -> tuple[str | None, str]:
    """The pending id that a text begins with, if it does, and the rest."""
    word, _, rest = text.partition(" ")
    return (word, rest.strip()) if word.startswith("pend_") else (None, text)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 10


def _value(text: str) -> object:
    """JSON, or the text itself."""
    try:
        return parse(text)
    except JsonError:
        return text


def _object(text: str) -> dict[str, object]:
    """The input of a graph. Raises `WrongUsage`."""
    value = _value(text)
    if not isinstance(value, dict):
        raise WrongUsage('A graph begins with its state as JSON, such as {"topic": "lamps"}')
    return value


COMMANDS: Final = (
    Command("run", "", "INPUT", "begin a run, and stop at its beginning", Session.begin),
    Command("step", "s", "", "go one boundary on in this run", lambda self, rest: self.move("step", rest)),
    Command("next", "n", "", "to the next point of this run", lambda self, rest: self.move("over", rest)),
    Command("into", "i", "", "to the next point, in a run inside too", lambda self, rest: self.move("into", rest)),
    Command("out", "o", "", "until this run is through", lambda self, rest: self.move("out", rest)),
    Command("continue", "c", "", "to a breakpoint, or the end", lambda self, rest: self.move("go", rest)),
    Command("until", "u", "TYPE [tools=A,B] [when EXPR]", "to a breakpoint for this once", Session.until),
    Command("back", "", "[N] [rerun]", "N boundaries back, on its own branch", Session.back),
    Command("approve", "a", "[ID] [into|next|...]", "run what waits, and go on", Session.approve),
    Command("reject", "r", "[ID] [REASON]", "do not run it, and go on", Session.reject),
    Command("respond", "", "[ID] RESULT", "be the tool yourself, and go on", Session.respond),
    Command("skip", "", "[ID]", "leave out what comes next", Session.skip),
    Command("select", "", "N|ID", "look at something else that waits", Session.select),
    Command("set", "", "input|args.NAME|state.KEY VALUE", "change what it goes on with", Session.set),
    Command("unset", "", "", "forget what was set", Session.unset),
    Command("break", "b", "TYPE [tools=A,B] [when EXPR]", "stop there from now on", Session.stop_at),
    Command("delete", "d", "N", "stop there no more", Session.delete),
    Command("watch", "", "EXPR", "show its value at each stop", Session.watch),
    Command("unwatch", "", "EXPR", "show it no more", Session.unwatch),
    Command("print", "p", "EXPR", "show its value", Session.print),
    Command("info", "", "", "breakpoints, watches, what waits", Session.info),
    Command("where", "w", "", "the call stack", Session.where),
    Command("list", "l", "", "the conversation, or the state", Session.messages),
    Command("again", "", "", "read the run anew from the store", Session.again),
    Command("help", "h", "", "this list", Session.help),
    Command("quit", "q", "", "leave the run where it stands", Session.leave),
)
