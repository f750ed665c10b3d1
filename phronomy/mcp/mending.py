"""Answers of a server that break the protocol. A broken tool or block costs itself alone.

The protocol's package takes or refuses an answer as a whole. So broken tools are taken out of a page first, and broken blocks of a
result are replaced by notes.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.json_text import clean

Result: TypeAlias = dict[str, Any]

MOST_ENTRIES: Final = 10_000
"""Tools of a server, and blocks in a result. With more, the whole is refused, and nobody looks for what is wrong with each of them."""

LIST: Final = "tools/list"
CALL: Final = "tools/call"


@dataclass(frozen=True, slots=True)
class Malformed:
    """A broken tool in the list of a server: its name, or else its place in the list, and its fault."""

    name: str
    why: str


def usable(version: str, result: Result) -> tuple[Result, list[Malformed]]:
    """A page of tools without the broken ones, and the broken ones."""
    listed = result.get("tools")
    if isinstance(listed, list) and len(listed) > MOST_ENTRIES:  # enough to see that there are too many
        listed = listed[: MOST_ENTRIES + 1]
        result = {**result, "tools": listed}
    if not isinstance(listed, list) or _fault(LIST, version, result) is None:
        return result, []
    if _fault(LIST, version, {**result, "tools": []}) is not None:  # the fault is elsewhere
        return result, []
    faults = [_fault(LIST, version, {**result, "tools": [each]}) for each in listed]
    kept = [each for each, why in zip(listed, faults, strict=True) if why is None]
    return {**result, "tools": kept}, [
        Malformed(_name(each, place), why)
        for place, (each, why) in enumerate(zip(listed, faults, strict=True), 1)
        if why is not None
    ]


def readable(version: str, result: Result) -> Result:
    """A result of a tool with the blocks that the protocol knows, and notes in place of the others.

    An answer of another kind, such as a question or a task, stays as it is: mended, it would be an empty result.
    """
    blocks = result.get("content")
    if isinstance(blocks, list) and len(blocks) > MOST_ENTRIES:
        return {**result, "content": None}
    if _fault(CALL, version, result) is None:
        return result
    if blocks is None:
        blocks = []
    if not isinstance(blocks, list) or "task" in result or result.get("resultType", "complete") != "complete":
        return result
    made = {**result, "content": []}
    rest = []
    structure = result.get("structuredContent")
    if structure is not None and not isinstance(structure, dict):
        rest = [_text(_json(made.pop("structuredContent")))]
    kept = [each if _fault(CALL, version, {**made, "content": [each]}) is None else _note(each) for each in blocks]
    mended = {**made, "content": kept + rest}
    return mended if _fault(CALL, version, mended) is None else result


def _fault(method: str, version: str, result: Result) -> str | None:
    """The first fault, by its place and its kind, without values; None if there is none, or if the version is not known."""
    try:
        parse_server_result(method, version, result)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = [str(part)[:80] for part in first["loc"] if part not in ("tools", 0)]
        return clean(f"{'.'.join(place) or 'it'} is not as the protocol has it ({first['type']})")
    except Exception:  # a version that the package does not know
        return None
    return None


def _name(tool: object, place: int) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) else f"number {place}"


def _note(block: object) -> Result:
    """A block that the protocol does not know: its text if it has one, else its type."""
    known = block if isinstance(block, dict) else {}
    if known.get("type") == "text" and isinstance(known.get("text"), str):
        return _text(known["text"])
    return _text(_json({"type": str(known.get("type", "unknown"))[:80]}))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(text: str) -> Result:
    return {"type": "text", "text": text}
