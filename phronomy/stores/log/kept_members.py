"""Members that are the same in many rows: their text is kept once in the store, and a row names it.

What a row says of the agent (its fingerprint holds the hashes of all of its tools), and what a call says of its tool, are the same in
every run. In an object of a row, `"kept":"<name>"` stands for the members of the object whose text the store keeps; the name is the
SHA-256 of that text, in base64url. Nothing else in a row looks so: what people or models wrote is quoted, and has its quotes escaped.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Final, TypeAlias

from phronomy.errors import CheckpointError
from phronomy.records.decisions import PendingApproval
from phronomy.stores.log.reading import read_entry
from phronomy.stores.rows import Entry, PendingRow

Texts: TypeAlias = Callable[[str], str]
"""Gives the text of an object that is kept under this SHA-256, in hexadecimal. Raises `CheckpointError` if there is none."""
MayName: TypeAlias = Callable[[str], bool]
"""Whether the text of an object is, or will be, kept by the store, so that a row can name it."""

MARK: Final = '"kept":"'
"""The text by which a row is known that names something."""

_NAMED: Final = re.compile(MARK + '([A-Za-z0-9_-]{43})"')
_TEXT: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
# A tool of an agent inside a call has the place of that call in its identity, so it is seldom the same twice.
_TOOL: Final = r'"tool":\{(?:"source":"[^"\\]*",)?"name":"[^"\\]*"[^{}\\]*\}'
_IN_REQUEST: Final = re.compile(_TOOL)
_AGENT: Final = rf'"name":"[^"\\]*","fingerprint":{_TEXT}'
# What a human is told of the tool belongs to it, where nothing else is told of the call. What stands between is the call's own.
_CALL: Final = rf'"name":"[^"\\]*","status":"[a-z]+",{_TOOL}'
_TOLD: Final = rf'((?:,"[a-z_]+":{_TEXT})*)(,"brief":\{{"description_hash":"[0-9a-f]{{64}}"\}})'
_IN_ROW: Final = re.compile(rf"({_AGENT}|{_CALL})(?:{_TOLD})?")
_SHORT: Final = 80  # characters: below, a name is hardly shorter


def nothing_kept(digest: str) -> str:
    """The `Texts` of rows that are read without a store."""
    raise CheckpointError(f"a stored row refers to the text {digest}, and is read without the store that keeps it")


@lru_cache(maxsize=256)  # each row of a run names the same two or three
def digest_of_text(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=256)
def _name_of(text: str) -> str:
    """The member that stands for the members of an object of this text."""
    return f'{MARK}{urlsafe_b64encode(bytes.fromhex(digest_of_text(text))).decode().rstrip("=")}"'


@lru_cache(maxsize=256)
def _digest_in(name: str) -> str:
    """The digest in a name, in hexadecimal."""
    return urlsafe_b64decode(name + "=").hex()


def digests_in(bodies: Iterable[str]) -> set[str]:
    """The digests that rows name."""
    return {_digest_in(name) for body in bodies if MARK in body for name in _NAMED.findall(body)}


def with_members(body: str, kept: Texts) -> str:
    """The text of a row with all that it names. Raises `CheckpointError` if something is not kept."""
    # Most rows name one thing or nothing: a third of the time of `sub`.
    place = body.find(MARK)
    while place >= 0:
        members = MARK
        if (found := _NAMED.match(body, place)) is not None:
            members = kept(_digest_in(found[1]))[1:-1]
            body = f"{body[:place]}{members}{body[found.end() :]}"
        place = body.find(MARK, place + len(members))
    return body


def with_all(entry: Entry, kept: Texts) -> Entry:
    """The entry with all that it names. Raises `CheckpointError` if something is not kept."""
    # A body that is no text is damage, and whoever reads it says so.
    if MARK not in str(entry.body):
        return entry
    return replace(entry, body=read_entry(entry, with_members, entry.body, kept))


def named(body: str, may_name: MayName) -> str:
    """The text of a row, with names in place of what the store keeps."""

    def name(found: re.Match[str]) -> str:
        members, between, told = found.groups("")
        text = f"{{{members}{told}}}"
        return _name_of(text) + between if len(text) > _SHORT and may_name(text) else found[0]

    # Most rows of a run have neither: their text is not gone through.
    return _IN_ROW.sub(name, body) if '"tool":{' in body or '"fingerprint":' in body else body


def named_request(body: str, item: PendingApproval, agent: str, may_name: MayName) -> str:
    """The text of a request, with a name in place of what the store keeps, and without what stands in the columns of its row.

    `agent` is the agent in that row.
    """
    hash = item.description_hash
    place = f'{{"id":{encode_basestring(item.id)},', f',"agent":{encode_basestring(agent)}'
    if item.agent == agent and body.startswith(place[0]) and body.count(place[1]) == 1:
        body = "{" + body[len(place[0]) :].replace(place[1], "")
    if (tool := _IN_REQUEST.search(body)) is not None:
        told = f',"description_hash":"{hash}"' if hash else ""
        rest = body[: tool.start()], body[tool.end() :]
        once = bool(told) and (rest[0] + rest[1]).count(told) == 1
        text = f"{{{tool[0]}{told if once else ''}}}"
        if may_name(text):
            body = _name_of(text).join(part.replace(told, "") if once else part for part in rest)
    return body


def whole_request(row: PendingRow, kept: Texts) -> str:
    """The text of the request in a row, with all that was left out of it. Raises `CheckpointError` if something is not kept."""
    body = with_members(row.body, kept)
    if not body.startswith('{"call_id":'):  # the id stands before it
        return body
    return f'{{"id":{encode_basestring(row.pending_id)},"agent":{encode_basestring(row.agent)},{body[1:]}'
