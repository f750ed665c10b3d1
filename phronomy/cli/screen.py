"""The screen: what is printed and asked, and that nothing in it is acted on by the terminal or hidden by it."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from threading import Timer, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text

from phronomy.cli.pager import paged
from phronomy.cli.words import INTERRUPTED, PENDING
from phronomy.foundation.suspicious_letters import (
    as_json,
    escaped,
    mixes_directions,
    plain_scripts,
    with_visible_letters,
    written_out,
)

if TYPE_CHECKING:
    from rich.status import Status

WIDEST: Final = 100
"""Columns. Longer lines are hard to read, however wide the terminal is."""
NARROW: Final = 24
"""Columns. A value that has fewer beside its label stands below it."""
LOW: Final = 20
"""Lines. In a terminal that has fewer, what is asked leaves no room for what is only good to know."""
POLL: Final = 1.0
"""Seconds between two looks at whether a question is still open."""
MOMENT: Final = 0.2
"""Seconds. What takes no longer is not announced."""


class Overtaken(Exception):
    """A question is answered elsewhere while it stands here."""


class _Console(Console):
    """A console that says when nobody reads it any more: rich would end the process, whatever is under way in it."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Screen:
    """A terminal, or a pipe in its place.

    Whatever it is given may come from a model or a customer: it is printed escaped, without any markup, and never cut, but
    for what is `brief`.
    """

    def __init__(self) -> None:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            errors = "replace" if stream is sys.stdin else "backslashreplace"
            if isinstance(stream, io.TextIOWrapper) and stream.errors != errors:
                with suppress(
                    io.UnsupportedOperation
                ):  # what an old terminal cannot show, or was read, is no reason to fail
                    stream.reconfigure(errors=errors)
        self._out = _Console(highlight=False, markup=False, emoji=False)
        self._err = _Console(highlight=False, markup=False, emoji=False, stderr=True)
        self._width = max(20, min(self._out.width, WIDEST))
        self._most: int | None = None
        self._printed = 0
        self._is_cut = False

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

    def value(self, label: str, value: object, *, columns: int, note: str = "") -> None:
        """Print a JSON value with its type, beside its label: every character of it, folded where the line ends."""
        text = json.dumps(value, ensure_ascii=False)
        left = self._label(label, kind_of(value), columns, text)
        room = self._width - len(left)
        notes = [*(self._head(note, room) or _wrapped(escaped(note), room))] if note else []
        parts = self._head(text, room)
        if parts is not None:
            whole = value if isinstance(value, str) else text
            digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
            notes = [*_wrapped(f"... {len(whole):,} characters in all, sha256 {digest}", room), *notes]
        elif isinstance(value, str) and len(value) > WIDEST:
            notes += _wrapped(f"({len(value):,} characters, all of them shown)", room)
        first, *rest = parts or _folded(escaped(text), room)
        blank = " " * len(left)
        lines = [((left, "bold"), (first, "")), *(((blank, ""), (part, "")) for part in rest)]
        lines += [((blank, ""), (part, "yellow")) for part in notes]
        self._print_all(self._out, lines)

    def hidden(self, label: str, *, columns: int, note: str = "") -> None:
        """Print that there is a value, beside its label, and not which one."""
        told = "not shown" + (f"; {note}" if note else "")
        self._print(self._out, (self._label(label, "secret", columns, told), "bold"), (told, "yellow"))

    def _label(self, label: str, kind: str, columns: int, text: str) -> str:
        """Formats the label before a text: on a line of its own where there is little room, with the text set in."""
        left = f"  {escaped(label):<{columns}}  {kind:<10}"
        room = self._width - len(left)
        if room >= NARROW or 0 < len(text) <= room:
            return left
        for part in _folded(left.rstrip(), self._width):
            self._print(self._out, (part, "bold"))
        return "    "

    def _head(self, text: str, room: int) -> list[str] | None:
        """The first lines of a text that is to be cut; None for one that is to be printed as it is."""
        if self._most is None:
            return None
        parts = list(_folded(escaped(text[: (self._most + 1) * room]), room))
        if len(parts) <= self._most:
            return None
        self._is_cut = True
        return parts[: self._most]

    def brief(self, draw: Callable[[Screen], None]) -> bool:
        """Print what `draw` prints above a question, cutting what is long. Whether it is cut, or not all of it is in sight then."""
        if not self.interactive:
            draw(self)
            return False
        height = self._out.height
        self._most, self._printed, self._is_cut = max(height // 6, 2), 0, False
        try:
            draw(self)
        finally:
            self._most = None
        return self._is_cut or self._printed > height - 3

    def page(self, draw: Callable[[Screen], None]) -> None:
        """Show all that `draw` prints in the pager of `PAGER`, or another that is there."""
        other, text = copy.copy(self), io.StringIO()
        other._out = _Console(file=text, width=self._out.width, color_system=None, highlight=False, markup=False)
        draw(other)
        if not paged(text.getvalue()):
            self.verbatim(text.getvalue())

    def place(self, label: str, path: object) -> None:
        """Print a path or a command beside its label, in one line however long it is, so that it can be copied."""
        self._print(self._out, (f"  {escaped(label):<10}", "dim"), (escaped(str(path)), ""))

    def aside(self, label: str, text: str) -> None:
        """As `place`, where there is room for what only few want to know: above a question in a low terminal there is not."""
        if self._most is not None and self._out.height < LOW:
            self._is_cut = True
        else:
            self.place(label, text)

    def complain(self, text: str) -> None:
        """Print one line on standard error, however long it is."""
        self._print(self._err, (escaped(text), ""))

    def complain_of_end(self, error: KeyboardInterrupt | EOFError, state: str) -> int:
        """Print on standard error that nobody answers any more, and the state that this leaves. The exit status."""
        interrupted = isinstance(error, KeyboardInterrupt)
        self.complain(f"{'Interrupted' if interrupted else 'The input has ended'}. {state}")
        return INTERRUPTED if interrupted else PENDING

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under their heads, a line each. In a terminal that is too narrow for that, long cells are cut.

        Ids and times never are, nor is the first column. Where that is not enough, ids and then the last columns are left out,
        and it is said which. A narrow terminal gets the cells whole, one under the other. A pipe gets all of it.
        """
        cells = [tuple(map(escaped, row)) for row in rows]
        columns = [_Column(head, [row[at] for row in cells]) for at, head in enumerate(heads)]
        shown = _fitted(columns, self._out.width) if _is_terminal(sys.stdout) else columns
        if shown is None:
            for row in cells:
                for head, cell in zip(heads, row, strict=True):
                    self.place(head.lower(), cell)
                self.say()
            return
        for at in range(-1, len(cells)):
            line = "  ".join(each.line(at) for each in shown).rstrip()
            self._print(self._out, (line, "bold" if at < 0 else ""))
        if gone := [each.head for each in columns if each not in shown]:
            self._print(self._out, (f"(no room for {', '.join(gone)})", "dim"))

    def document(self, value: object) -> None:
        """Print a value as JSON, in ASCII alone, on standard output."""
        text = json.dumps(value, indent=2)
        self._print(self._out, (text, ""))

    def line(self, value: object) -> None:
        """Print a value as one line of JSON, in ASCII alone, on standard output."""
        self._print(self._out, (json.dumps(value, separators=(",", ":")), ""))

    def verbatim(self, text: str) -> None:
        """Print lines of ASCII as they are, on standard output."""
        self._print(self._out, (text.removesuffix("\n"), ""))

    def signal(self, sequence: str) -> None:
        """Have the terminal ring or show a notice: a sequence that moves nothing on the screen. A pipe gets none."""
        if _is_terminal(sys.stdout):
            self._out.file.flush()
            sys.stdout.write(sequence)
            sys.stdout.flush()

    def flowing(self, label: str, *, style: str = "") -> Flow:
        """Text to be printed beside its label piece by piece, as it comes."""
        return Flow(self._put, label, self._width, style)

    def spinner(self) -> Spinner:
        """The sign that work goes on, until something is printed."""
        shown = _is_terminal(sys.stderr) and not self._err.is_dumb_terminal
        return Spinner(self._err if shown else None)

    def ask(
        self,
        question: str,
        *,
        afresh: bool = False,
        until: Callable[[], bool] | None = None,
        every: float = POLL,
    ) -> str:
        """Asks the human for a line. With `afresh`, nothing counts that was typed before the question was there.

        `until` is asked every so many seconds whether the question is answered elsewhere, where the system can wait for both.
        Raises `EOFError` when the input has ended, `KeyboardInterrupt` on Ctrl-C, and `Overtaken` when `until` says so.
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
                _await_input(until, every)
            # No line editor: a process killed at this prompt must leave the terminal as it was.
            typed = input(prompt)
        except Overtaken:
            _discard_input()  # it was typed for a question that is gone
            self.say()  # the line that it stands on is not ended
            raise
        except (EOFError, KeyboardInterrupt):
            if question:
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
        self._print_all(to, [parts])

    def _print_all(self, to: Console, lines: Iterable[Sequence[tuple[str, str]]]) -> None:
        """Print lines, each as `_print` does, at once: rich takes its time for each call."""
        width = max(to.width, 1)
        segments = []
        for parts in lines:
            self._printed += max(1, -(-sum(cell_len(text) for text, _ in parts) // width))
            segments += [Segment(text, to.get_style(style) if style else None) for text, style in parts if text]
            segments.append(Segment.line())
        to.print(Segments(segments), soft_wrap=True, end="")


_WHOLE: Final = re.compile(r"[a-z]+_[0-9a-f]{20,}|\d{4}-\d\d-\d\d[ T][0-9:.]+( UTC)?|\d\d:\d\d:\d\d")
"""A cell that is of no use without its end: an id, or a time."""
_ROWS: Final = 70
"""Columns. A terminal that has so many gets rows, whatever has to be left out."""
_LEAST: Final = 8
"""Columns. So much is left of a cell that is cut."""


class _Column:
    """A column of a table: its head, its cells, and how wide it is."""

    def __init__(self, head: str, cells: Sequence[str]) -> None:
        self.head, self.cells = head, cells
        self.width = max(map(cell_len, (head, *cells)))
        said = [cell for cell in cells if cell != "-"]
        self.is_whole = bool(said) and all(map(_WHOLE.fullmatch, said))
        self.is_id = self.is_whole and "_" in said[0]
        self.least = self.width if self.is_whole else min(self.width, max(_LEAST, cell_len(head)))

    def line(self, at: int) -> str:
        """The cell in a row, as wide as the column; -1 is the head."""
        cell = self.cells[at] if at >= 0 else self.head
        if cell_len(cell) > self.width:
            cell = f"{set_cell_size(cell, self.width - 1)}…"
        return cell + " " * (self.width - cell_len(cell))


def _fitted(columns: Sequence[_Column], room: int) -> list[_Column] | None:
    """The columns of a table that has no more room than this, cut where they have to be; None if it cannot be had in rows."""
    first, *others = columns
    first.least = first.width
    shown = [first, *others]
    while sum(each.least + 2 for each in shown) - 2 > room:
        gone = next((each for each in reversed(shown[1:]) if each.is_id), shown[-1])
        if gone is first or not (gone.is_id or room >= _ROWS):
            return None
        shown.remove(gone)
    while sum(each.width + 2 for each in shown) - 2 > room:
        max((each for each in shown if each.width > each.least), key=lambda each: each.width).width -= 1
    return shown


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
        self._known: frozenset[str] = frozenset()

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
                self._word += char

    def end(self) -> None:
        """Print the rest, and end the line."""
        if self._begun:
            self._flush()
            self._put("\n", "")

    def _flush(self) -> None:
        if not self._word:
            return
        self._known |= plain_scripts(self._word)
        self._word = with_visible_letters(self._word, written_out, known=self._known)
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
    if text and text.isascii():
        yield from (text[start : start + room] for start in range(0, len(text), room))
        return
    start, used = 0, 0
    for end, char in enumerate(text):
        wide = cell_len(char)
        if used + wide > room:
            yield text[start:end]
            start, used = end, 0
        used += wide
    yield text[start:]


def kind_of(value: object) -> str:
    """Names the type of a JSON value, for people."""
    kinds = {bool: "yes or no", int: "integer", float: "number", str: "text", list: "list", dict: "object"}
    return kinds.get(type(value), "nothing")


def _is_terminal(stream: Any) -> bool:
    try:
        return stream is not None and bool(stream.isatty())
    except ValueError:  # it was closed
        return False


def _await_input(until: Callable[[], bool] | None, every: float) -> None:
    """Wait until something is typed. `input` alone is deaf to a Ctrl-C in the moment between its prompt and its reading.

    Raises `Overtaken` as soon as `until` is true, which is asked every so many seconds.
    """
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
            while sys.stdin not in (ready := select.select([sys.stdin, hears], [], [], every if until else None)[0]):
                if hears in ready:
                    os.read(hears, 64)  # a signal whose handler has raised nothing
                if until is not None and until():
                    raise Overtaken
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


def json_text(value: object) -> str:
    """A value as JSON for people to read and edit: on lines of its own, without a character that would not be seen for what it is."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    known, turned = plain_scripts(text), mixes_directions(text)
    return "\n".join(with_visible_letters(line, as_json, known=known, turned=turned) for line in text.split("\n"))
