"""How an error quotes what somebody gave: by mistake that may be a key, a password, or a whole checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import FunctionType
from typing import Final

_ID: Final = re.compile(r"[\w.:/@+~=#%-]{1,80}")
"""What an id looks like. Ids of phronomy's are shorter, and those of others are seldom anything else."""

_WORD: Final = re.compile(r"[a-zA-Z][a-zA-Z_-]{,29}")
"""What the options look like of which one is to be named."""

_HOST: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*|/[\w./-]*")
"""What a host looks like, or the path of a socket."""

_IPV6: Final = re.compile(r"[0-9a-fA-F:.]*:[0-9a-fA-F:.]*")

HIDDEN: Final = "[redacted]"
"""What stands in place of a secret."""

_LONGEST: Final = 80

_HARMLESS: Final = 3
"""Characters that are too few to be a secret."""

_HINTS: Final = ("types", "typing", "typing_extensions")


def quoted_id(id: object) -> str:
    """An id, if it looks like one; else how much text stands in its place, and what to do where that is a checkpoint."""
    if not isinstance(id, str):
        return f"(no id, but {type(id).__name__})"
    if _ID.fullmatch(id):
        return id
    dump = "; Checkpoint.model_validate_json reads that of a checkpoint" if id.lstrip()[:1] == "{" else ""
    return f"(no id, but text of length {len(id)}{dump})"


def kept_id(id: object) -> str:
    """An id as an error has it in an attribute: as it was given, unless that is too long to be one."""
    return id if isinstance(id, str) and len(id) <= _LONGEST else quoted_id(id)


def quoted(value: object) -> str:
    """A value: truth, numbers, a few characters, and what the code names as they are; anything else by its type."""
    if value is None or type(value) in (bool, float) or (type(value) is int and abs(value) < 2**63):
        return repr(value)
    if isinstance(value, type | FunctionType):
        return f"{'the class' if isinstance(value, type) else 'the function'} {value.__name__[:_LONGEST]}"
    kind = type(value)
    if kind.__module__ in _HINTS:
        return repr(value)[:_LONGEST]
    if isinstance(value, str):
        return repr(value) if len(value) <= _HARMLESS else f"text of length {len(value)}"
    return str(kind.__name__)


def quoted_word(value: object) -> str:
    """A value given in place of one of several words: the word itself, or as `quoted`."""
    return repr(value) if isinstance(value, str) and _WORD.fullmatch(value) else quoted(value)


def quoted_name(value: object) -> str:
    """A value given as a name, which is meant to be read: the beginning of a text, or as `quoted`."""
    return repr(value[:_LONGEST]) if isinstance(value, str) else quoted(value)


def without(text: str, secrets: Iterable[str]) -> str:
    """The text with these hidden wherever they stand, also where they overlap. What is hidden already stays as it is.

    If one stands where a mark and what is beside it meet, nobody can tell what it is a part of, and all of the text is hidden.
    """
    longest = sorted({*secrets, HIDDEN}, key=len, reverse=True)
    starts = re.compile(f"(?=({'|'.join(map(re.escape, longest))}))")  # it finds one in another as well

    def once(text: str) -> str:
        return hidden(text, (match.span(1) for match in starts.finditer(text)), HIDDEN)

    found = once(text)
    return found if once(found) == found else HIDDEN


def hidden(text: str, spans: Iterable[tuple[int, int]], mark: str) -> str:
    """The text with a mark in place of each span that is not empty. Those that overlap have one, and marks that stand there stay."""
    marks = (match.span() for match in re.finditer(re.escape(mark), text))
    kept, end = list[str](), 0
    for first, last in _merged((*spans, *marks)):
        kept += [text[end:first], mark]
        end = last
    return "".join([*kept, text[end:]])


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans that are not empty, in order, with those that overlap as one."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(span for span in spans if span[0] < span[1]):
        if merged and first < merged[-1][1]:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged


def quoted_place(hosts: str, ports: str) -> str:
    """Where the servers behind a connection are, as in " at db.example.com:5432"; empty if one of these is no host or no port.

    Each is one, or several joined by commas; one port may be that of several hosts.
    """
    places = []
    for number, host in enumerate(each := hosts.split(",")):
        port = (known := ports.split(","))[number if len(known) == len(each) else 0]
        if not port.isdecimal() or not port.isascii():
            return ""
        if _IPV6.fullmatch(host):
            host = f"[{host}]"
        elif not _HOST.fullmatch(host):
            return ""
        places.append(f"{host}:{port}")
    return f" at {', '.join(places)}"
