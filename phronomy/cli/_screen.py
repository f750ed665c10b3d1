"""The screen: what is printed and asked, and that nothing in it is acted on by the terminal or hidden by it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from threading import Timer, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text

if TYPE_CHECKING:
    from rich.status import Status

WIDEST: Final = 100
"""Columns. Longer lines are hard to read, however wide the terminal is."""
MOMENT: Final = 0.2
"""Seconds. What takes no longer is not announced."""


class Screen:
    """A terminal, or what stands in for one.

    Whatever it is given may come from a model or a customer: it is printed escaped, without any markup, and never cut.
    """

    def __init__(self) -> None:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            errors = "replace" if stream is sys.stdin else "backslashreplace"
            if isinstance(stream, io.TextIOWrapper) and stream.errors != errors:
                with suppress(
                    io.UnsupportedOperation
                ):  # what an old terminal cannot show, or was read, is no reason to fail
                    stream.reconfigure(errors=errors)
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

    def hidden(self, label: str, *, columns: int, note: str = "") -> None:
        """Print that there is a value, beside its label, and not which one."""
        told = "not shown" + (f"; {note}" if note else "")
        self._print(self._out, (f"  {escaped(label):<{columns}}  {'secret':<10}", "bold"), (told, "yellow"))

    def place(self, label: str, path: object) -> None:
        """Print a path or a command beside its label, in one line however long it is, so that it can be copied."""
        self._print(self._out, (f"  {escaped(label):<10}", "dim"), (escaped(str(path)), ""))

    def complain(self, text: str) -> None:
        """Print one line on standard error, however long it is."""
        self._print(self._err, (escaped(text), ""))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under their heads, a line each; one under the other where the terminal is too narrow for that."""
        cells = [tuple(map(escaped, row)) for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
        if _is_terminal(sys.stdout) and sum(widths) + 2 * len(widths) - 2 > self._out.width:
            for row in cells:
                for head, cell in zip(heads, row, strict=True):
                    self.place(head.lower(), cell)
                self.say()
            return
        for row in (tuple(heads), *cells):
            line = "  ".join(
                cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)
            ).rstrip()
            self._print(self._out, (line, "" if row in cells else "bold"))

    def document(self, value: Any) -> None:
        """Print a value as JSON, in ASCII alone, on standard output."""
        text = json.dumps(value, indent=2)
        self._print(self._out, (text, ""))

    def line(self, value: Any) -> None:
        """Print a value as one line of JSON, in ASCII alone, on standard output."""
        self._print(self._out, (json.dumps(value, separators=(",", ":")), ""))

    def verbatim(self, text: str) -> None:
        """Print lines of ASCII as they are, on standard output."""
        self._print(self._out, (text.removesuffix("\n"), ""))

    def flowing(self, label: str, *, style: str = "") -> Flow:
        """Text to be printed beside its label piece by piece, as it comes."""
        return Flow(self._put, label, self._width, style)

    def spinner(self) -> Spinner:
        """What shows that something goes on, until something is printed."""
        shown = _is_terminal(sys.stderr) and not self._err.is_dumb_terminal
        return Spinner(self._err if shown else None)

    def ask(self, question: str, *, afresh: bool = False) -> str:
        """What the human types in answer. With `afresh`, nothing counts that was typed before the question was there.

        Raises `EOFError` when the input has ended, `KeyboardInterrupt` on Ctrl-C.
        """
        self._out.file.flush()
        if afresh:
            _discard_input()
        prompt = escaped(question)
        try:
            if self.interactive:
                sys.stdout.write(prompt)
                sys.stdout.flush()
                prompt = ""
                _await_input()
            # No line editor: a process killed at this prompt must leave the terminal as it was.
            typed = input(prompt)
        except (EOFError, KeyboardInterrupt):
            if question:  # the line that it stands on is not ended
                self.say()
            raise
        return "".join(char for char in typed if char.isprintable()).strip()

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show that something goes on, where a terminal can show it, once it has gone on for a moment."""
        if not _is_terminal(sys.stderr):
            yield
            return
        status = None if self._err.is_dumb_terminal else self._err.status(Text(escaped(what)), spinner="line")
        show = partial(self.complain, f"{what} ...") if status is None else status.start
        soon = Timer(MOMENT, show)
        soon.daemon = True
        soon.start()
        try:
            yield
        finally:
            soon.cancel()
            soon.join()
            if status is not None:
                status.stop()

    def reading(self, *, machine: bool = False) -> AbstractContextManager[None]:
        """As `working`, for reading from the store. For a machine nothing is shown."""
        return nullcontext() if machine else self.working("Reading the store")

    def _put(self, text: str, style: str) -> None:
        """Print a piece of a line."""
        self._out.print(
            Segments([Segment(text, self._out.get_style(style) if style else None)]), soft_wrap=True, end=""
        )
        self._out.file.flush()

    def _print(self, to: Console, *parts: tuple[str, str]) -> None:
        """Print a line of pieces with their styles, as they are: rich wraps text by itself, and some releases garble it."""
        segments = [Segment(text, to.get_style(style) if style else None) for text, style in parts if text]
        to.print(Segments([*segments, Segment.line()]), soft_wrap=True, end="")


class Spinner:
    """Shows that something goes on: `start` it whenever there is waiting to be done, and `stop` it before anything is printed."""

    def __init__(self, on: Console | None) -> None:
        self._on = on
        self._shown: Status | None = None

    def start(self, what: str) -> None:
        """Show what goes on, instead of what was shown before."""
        self.stop()
        if self._on is not None:
            shown = self._on.status(Text(escaped(what)), spinner="line")
            shown.start()
            self._shown = shown

    def stop(self) -> None:
        """Show nothing."""
        if self._shown is not None:
            self._shown.stop()
            self._shown = None


class Flow:
    """Text that comes in pieces, beside its label: wrapped by us, so that no line of it can pass for another's label."""

    def __init__(self, put: Callable[[str, str], None], label: str, width: int, style: str) -> None:
        self._put = put
        self._label, self._style = f"  {escaped(label):<10}", style
        self._room = max(width - len(self._label), 10)
        self._begun = False
        self._column = 0
        self._gap = 0
        self._word = ""

    def write(self, piece: str) -> None:
        """Print the words that are whole; the last one waits for what follows it."""
        if not self._begun:
            self._put(self._label, self._style)
            self._begun = True
        for char in piece:
            if char in " \n":
                self._flush()
                if char == " ":
                    self._gap += 1
                else:
                    self._next_line()
            else:
                self._word += escaped(char)

    def end(self) -> None:
        """Print the rest, and end the line."""
        if self._begun:
            self._flush()
            self._put("\n", "")

    def _flush(self) -> None:
        if not self._word:
            return
        if self._column + self._gap + cell_len(self._word) > self._room:
            if self._column:
                self._next_line()
            self._gap = 0
        *full, last = _folded(self._word, self._room)
        self._put(" " * self._gap, "")
        for part in full:
            self._put(part, "")
            self._next_line()
        self._put(last, "")
        self._column += self._gap + cell_len(last)
        self._word, self._gap = "", 0

    def _next_line(self) -> None:
        self._put("\n" + " " * len(self._label), "")
        self._column = self._gap = 0


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


def _await_input() -> None:
    """Wait until something is typed. `input` alone is deaf to a Ctrl-C in the moment between its prompt and its reading."""
    if sys.platform == "win32" or current_thread() is not main_thread():
        return
    import os  # noqa: PLC0415
    import select  # noqa: PLC0415
    import signal  # noqa: PLC0415

    hears, tells = os.pipe()
    try:
        os.set_blocking(tells, False)
        before = signal.set_wakeup_fd(tells, warn_on_full_buffer=False)
        try:
            while sys.stdin not in select.select([sys.stdin, hears], [], [])[0]:
                os.read(hears, 64)  # a signal whose handler has raised nothing
        finally:
            signal.set_wakeup_fd(before)
    finally:
        os.close(hears)
        os.close(tells)


def _discard_input() -> None:
    """Drop what was typed and not read."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415

        while msvcrt.kbhit():
            msvcrt.getwch()
    else:
        import termios  # noqa: PLC0415

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def json_text(value: Any) -> str:
    """A value as JSON for people to read and edit: on lines of its own, without a character that would not show."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(char if char == "\n" or escaped(char) == char else json.dumps(char)[1:-1] for char in text)
