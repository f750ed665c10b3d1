"""The command line: its commands, what they print and ask, and what they exit with.

An error is one line on standard error, and a traceback only with `--debug`. Exit status: 0 done; 1 an error; 2 wrong
usage; 3 a decision is still pending; 130 interrupted by Ctrl-C.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text
from typer.main import get_command

from phronomy import __version__
from phronomy.approvals import Approve, Decision, Reject
from phronomy.errors import CheckpointAlreadyResumed, PhronomyError

DONE: Final = 0
FAILED: Final = 1
MISUSED: Final = 2
PENDING: Final = 3
INTERRUPTED: Final = 130

WIDEST: Final = 100
"""Columns. Longer lines are hard to read, however wide the terminal is."""


# What is printed, and what is asked


class Screen:
    """A terminal, or what stands in for one.

    Whatever it is given may come from a model or a customer: it is printed escaped, without any markup, and never cut.
    """

    def __init__(self) -> None:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # what an old terminal cannot show is no reason to fail
                stream.reconfigure(errors="replace" if stream is sys.stdin else "backslashreplace")
        self._out = Console(highlight=False, markup=False, emoji=False)
        self._err = Console(highlight=False, markup=False, emoji=False, stderr=True)
        self._width = max(20, min(self._out.width, WIDEST))

    @property
    def interactive(self) -> bool:
        """Whether a human can see what is printed, and answer."""
        return _is_terminal(sys.stdin) and _is_terminal(sys.stdout)

    def say(self, text: str = "", *, style: str = "") -> None:
        """Print a paragraph, wrapped between words."""
        for line in _wrapped(escaped(text), self._width):
            self._print(self._out, (line, style))

    def row(self, label: str, text: str, *, style: str = "") -> None:
        """Print text beside its label. Lines after the first are set in, so that no text can pass for another's label."""
        label = f"  {escaped(label):<10}"
        room = max(self._width - len(label), 10)
        for line in text.split("\n"):
            for part in _wrapped(escaped(line), room):
                self._print(self._out, (label, style), (part, ""))
                label = " " * len(label)

    def value(self, label: str, value: Any, *, columns: int, note: str = "") -> None:
        """Print a JSON value with its type, beside its label: every character of it, folded where the line ends."""
        text, kind = escaped(json.dumps(value, ensure_ascii=False)), kind_of(value)
        if isinstance(value, str) and len(value) > WIDEST:
            note = f"{note} ({len(value):,} characters, all of them shown)".lstrip()
        label = f"  {escaped(label):<{columns}}  {kind:<10}"
        for part in _folded(text, max(self._width - len(label), 10)):
            self._print(self._out, (label, "bold"), (part, ""))
            label = " " * len(label)
        if note:
            self._print(self._out, (label, ""), (escaped(note), "yellow"))

    def place(self, label: str, path: object) -> None:
        """Print a path or a command beside its label, in one line however long it is, so that it can be copied."""
        self._print(self._out, (f"  {escaped(label):<10}", "dim"), (escaped(str(path)), ""))

    def complain(self, text: str) -> None:
        """Print one line on standard error, however long it is."""
        self._print(self._err, (escaped(text), ""))

    def ask(self, question: str, *, afresh: bool = False) -> str:
        """What the human types in answer. With `afresh`, nothing counts that was typed before the question was there.

        Raises `EOFError` when the input has ended, `KeyboardInterrupt` on Ctrl-C.
        """
        self._out.file.flush()
        if afresh:
            _discard_input()
        try:
            # No line editor: a process killed at this prompt must leave the terminal as it was.
            typed = input(escaped(question))
        except (EOFError, KeyboardInterrupt):
            self.say()
            raise
        return "".join(char for char in typed if char.isprintable()).strip()

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show that something goes on, for as long as it does, where a terminal can show it."""
        if not _is_terminal(sys.stderr):
            yield
        elif self._err.is_dumb_terminal:
            self.complain(f"{what} ...")
            yield
        else:
            with self._err.status(Text(escaped(what)), spinner="line"):
                yield

    def _print(self, to: Console, *parts: tuple[str, str]) -> None:
        """Print a line of pieces with their styles, as they are: rich wraps text by itself, and some releases garble it."""
        segments = [Segment(text, to.get_style(style) if style else None) for text, style in parts if text]
        to.print(Segments([*segments, Segment.line()]), soft_wrap=True, end="")


_BLANK: Final = frozenset(
    [0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10)]
) | frozenset(range(0xE0100, 0xE01F0))
"""Characters that count as printable and show as nothing: fillers, and selectors of variants."""


def escaped(text: str) -> str:
    """The text with everything written out that a terminal would act on or not show: controls, direction marks, blanks."""
    return "".join(char if char.isprintable() and ord(char) not in _BLANK else _written_out(char) for char in text)


def _written_out(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _wrapped(text: str, room: int) -> Iterator[str]:
    """The text in lines of at most that many columns, wrapped between words, or within one that is wider."""
    line: str | None = None
    for word in text.split(" "):
        if line is not None and cell_len(line) + 1 + cell_len(word) > room:
            yield line.rstrip()
            line = None
        *full, line = _folded(word if line is None else f"{line} {word}", room)
        yield from full
    yield (line or "").rstrip()


def _folded(text: str, room: int) -> Iterator[str]:
    """The text in pieces of at most that many columns."""
    start, used = 0, 0
    for end, char in enumerate(text):
        wide = cell_len(char)
        if used + wide > room:
            yield text[start:end]
            start, used = end, 0
        used += wide
    yield text[start:]


def kind_of(value: Any) -> str:
    """What sort of JSON value this is, for people."""
    kinds = {bool: "yes or no", int: "integer", float: "number", str: "text", list: "list", dict: "object"}
    return kinds.get(type(value), "nothing")


def _is_terminal(stream: Any) -> bool:
    try:
        return stream is not None and bool(stream.isatty())
    except ValueError:  # it was closed
        return False


def _discard_input() -> None:
    """Drop what was typed and not read."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415

        while msvcrt.kbhit():
            msvcrt.getwch()
    else:
        import termios  # noqa: PLC0415

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


# The commands


@dataclass
class Invocation:
    """What holds for a whole command line."""

    debug: bool = False


class WrongUsage(Exception):
    """The command line contradicts itself."""


app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.callback(invoke_without_command=True)
def phronomy(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    debug: Debug = False,
) -> int:
    """Agents that stop for a human, and resume exactly once."""
    context.obj.debug |= debug
    if version:
        typer.echo(f"phronomy {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        typer.echo("\nStart with: phronomy demo")
    return DONE


@app.command(
    epilog="Exit status: 0 decided and done (a rejection too); 1 error; 2 wrong usage; 3 still pending; 130 Ctrl-C."
)
def demo(
    context: typer.Context,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Approve what is asked, without a prompt.")] = False,
    no: Annotated[bool, typer.Option("--no", help="Reject what is asked, without a prompt.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why, for the model. Goes with --no.", metavar="TEXT")] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="The SQLite file to keep the run in. By default one in your data directory.", metavar="PATH"),
    ] = None,
    debug: Debug = False,
) -> int:
    """A refund desk in this terminal, without any key.

    An agent looks up an order by itself, and asks before it refunds. A server on the loopback interface stands in for
    the model. Leave at the prompt, or be killed there: the next `phronomy demo` goes on from the same place.
    """
    context.obj.debug |= debug
    if yes and no:
        raise WrongUsage("--yes and --no exclude each other")
    if reason is not None and not no:
        raise WrongUsage("--reason goes with --no")
    from phronomy.demo import run_demo  # noqa: PLC0415  # stands on this module

    return run_demo(Screen(), Approve() if yes else Reject(reason=reason) if no else None, store)


def main() -> NoReturn:
    """The console script."""
    status = run(sys.argv[1:])
    if status == INTERRUPTED:
        # CPython notes an interrupt inside any exec(), as imports make them, and lets `python -m` die of it at the end,
        # caught or not; the next exec() clears the note.
        exec("")  # noqa: S102
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Run a command line, and return its exit status."""
    invocation = Invocation()
    try:
        status: int | None = get_command(app).main(
            list(arguments), prog_name="phronomy", standalone_mode=False, obj=invocation
        )
        if sys.stdout is not None:
            sys.stdout.flush()
        return status or DONE
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:  # whoever read the output has had enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    except Exception as error:
        if invocation.debug:
            raise
        Screen().complain(f"phronomy: error: {explained(error)}")
        return MISUSED if isinstance(error, WrongUsage) or getattr(error, "exit_code", None) == MISUSED else FAILED


def explained(error: Exception) -> str:
    """The error in one sentence."""
    if isinstance(error, CheckpointAlreadyResumed) and error.decision is not None:
        return f"this was decided before: {who_decided(error.decision)}; {_PROGRESS[error.progress]}"
    if isinstance(error, WrongUsage):
        return f"{error} (phronomy demo --help tells more)"
    if (
        message := getattr(error, "format_message", None)
    ) is not None:  # the class is typer's or click's, by the release
        return f"{message()} (--help tells more)"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, PhronomyError):
        return f"{error}" + "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error} (--debug shows where)"


def who_decided(decision: Decision) -> str:
    """What was decided, by whom, and when."""
    by = f" by {decision.by.name or decision.by.id}" if decision.by is not None else ""
    channel = f" ({decision.channel})" if decision.channel else ""
    edited = ", with edited arguments," if decision.args is not None else ""
    return f"{_DECIDED[decision.kind]}{edited}{by}{channel} at {decision.at:%H:%M:%S} UTC"


_DECIDED: Final = {
    "approve": "approved",
    "reject": "rejected",
    "respond": "answered",
    "cancel": "cancelled",
    "expire": "expired",
    "supersede": "superseded",
}

_PROGRESS: Final = {
    "running": "the run goes on",
    "suspended": "the run waits for another decision",
    "ended": "the run has ended",
    "failed": "the run has stopped on a failure",
    "unknown": "the run was interrupted since",
}
