"""The journal of a path, as texts: an entry leaves out what the entries before it say.

Calls begin in the write of their row, and mostly at its time: then the beginning leaves out its time. The end of a call has the
idempotency key of its beginning: an end leaves its key out, where the last beginning of the call has it. The result of a call that
completed leaves out that it did. An entry that says any of this is read as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from phronomy.stores.rows import Entry

# An id that is written with an escape does not match: its entries leave out nothing.
_STARTED: Final = re.compile(
    r'(\{"type":"started","id":"([^"\\]*)"(?:,"attempt":\d+)?)(,"at":"[^"\\]*")?((?:,"key":"([^"\\]*)")?\})'
)
_SETTLED: Final = re.compile(
    r'(\{"type":"settled","id":"([^"\\]*)","call_id":"(?:[^"\\]|\\.)*")(,"key":"[^"\\]*")?,"result":\{("kind":"[a-z]+",)?'
)
_RESULT: Final = ',"result":{'
_COMPLETED: Final = '"kind":"completed",'
_MADE: Final = re.compile(r'"created_at":("[^"\\]*")')


class Journal:
    """What the entries of a path say so far: the time of the last row, and the key of each call that has begun, by its id."""

    def __init__(self, keys: Mapping[str, str] | None = None, row: str = "") -> None:
        self.keys: dict[str, str] = dict(keys or {})
        self._row = row
        self._time: str | None = None

    def begin(self, row: str, keys: dict[str, str] | None = None) -> None:
        """The next entry is this row. Of the calls before it, those with these keys count still."""
        self.keys = {} if keys is None else keys
        self._row, self._time = row, None

    def short(self, text: str) -> str:
        """The text of the next entry, without what is known."""
        if (begun := _STARTED.fullmatch(text)) is not None:
            text = begun[1] + begun[4] if begun[3] == self._at() else text
            self._note(begun)
        elif (ended := _SETTLED.match(text)) is not None:
            key, kind = ended.group(3, 4)
            key, kind = "" if key == self._key(ended[2]) else key, "" if kind == _COMPLETED else kind
            text = f"{ended[1]}{key or ''}{_RESULT}{kind or ''}{text[ended.end() :]}"
        return text

    def whole(self, text: str) -> str:
        """The text of the next entry, with what it leaves out; without that, where it is not known."""
        if (begun := _STARTED.fullmatch(text)) is not None:
            text = begun[1] + self._at() + begun[4] if begun[3] is None else text
            self._note(begun)
        elif (ended := _SETTLED.match(text)) is not None and None in ended.group(3, 4):
            key, kind = ended[3] or self._key(ended[2]), ended[4] or _COMPLETED
            text = f"{ended[1]}{key}{_RESULT}{kind}{text[ended.end() :]}"
        return text

    def _note(self, begun: re.Match[str]) -> None:
        self.keys[begun[2]] = begun[5] or ""

    def _at(self) -> str:
        if self._time is None:  # a thousand calls may begin after one row
            made = _MADE.search(self._row)
            self._time = f',"at":{made[1]}' if made is not None else ""
        return self._time

    def _key(self, id: str) -> str:
        key = self.keys.get(id)
        return f',"key":"{key}"' if key else ""


def whole_texts(entries: Iterable[Entry]) -> Iterator[tuple[Entry, str]]:
    """The entries of a log, each with its text, which leaves out nothing where the entry is of a journal."""
    journals: dict[str, Journal] = {}
    for entry in entries:
        text = entry.body
        journal = journals.get(entry.path)
        if journal is None:
            journal = journals[entry.path] = Journal()
        if type(text) is not str:  # damage, of which whoever reads the entry says so
            yield entry, text
        elif entry.checkpoint_id is not None:
            # A worker writes no key that stands behind a row. One whose write was cut off does not know of its last row.
            journal.begin(text, journal.keys)
            yield entry, text
        else:
            yield entry, journal.whole(text)


def whole_journal(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries of a log, where those of a journal leave out nothing."""
    for entry, text in whole_texts(entries):
        yield entry if text is entry.body else replace(entry, body=text)
