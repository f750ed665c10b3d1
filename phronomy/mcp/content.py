"""What a tool of an MCP server gives back, as a model reads it: texts, images, and notes of all else."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Final

import mcp_types

from phronomy.foundation.json_text import object_of
from phronomy.tools.images import MAX_BYTES, MAX_IMAGES, MAX_TOTAL, Image

_LONGEST: Final = (MAX_BYTES + 2) // 3 * 4
"""Characters of base64 that are decoded."""

_SHORT: Final = 64  # characters of base64: no longer ones may stand in a text by chance
_ALIASES: Final = {"image/jpg": "image/jpeg"}


def text_of(result: mcp_types.CallToolResult) -> str:
    """A result as text: its texts, what has structure as JSON, and a note in place of all else."""
    return "\n".join([*map(_told, result.content), *_structure(result)])


def failure_of(result: mcp_types.CallToolResult) -> str:
    """A failed result as text. One without words would read as an empty success, so it says that it failed."""
    told = text_of(result)
    if any(isinstance(block, mcp_types.TextContent) and block.text.strip() for block in result.content):
        return told
    return "\n".join(["The tool failed, and its server does not say why.", *filter(None, [told.strip()])])


def value_of(result: mcp_types.CallToolResult) -> str | list[str | Image]:
    """A result as a tool gives one: as `text_of`, with the images that models take, as many as a result may have."""
    value: list[str | Image] = []
    count = size = 0
    for block in result.content:
        image = _image(block)
        if image is None or count == MAX_IMAGES or size + len(image.data) > MAX_TOTAL:
            value.append(_told(block))
            continue
        if not isinstance(block, mcp_types.ImageContent):  # its address is in the note
            value.append(_told(block))
        value.append(image)
        count, size = count + 1, size + len(image.data)
    return [*value, *_structure(result)] if count else text_of(result)


def _structure(result: mcp_types.CallToolResult) -> list[str]:
    """The structured result as JSON, unless a text says it. Data that stand in a block of their own are replaced by their sizes."""
    structured = result.structured_content
    texts = (block.text for block in result.content if isinstance(block, mcp_types.TextContent))
    if structured is None or any(_says(text, structured) for text in texts):
        return []
    told = _json(structured)
    for block in result.content:
        if isinstance(block, mcp_types.ImageContent | mcp_types.AudioContent) and len(block.data) > _SHORT:
            told = told.replace(block.data, f"{_size(block.data)} bytes")
    return [told]


def _image(block: object) -> Image | None:
    """The image in the block; None where there is none, or none that models take: then it is noted."""
    match block:
        case mcp_types.ImageContent():
            data, media_type = block.data, block.mime_type
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as found):
            data, media_type = found.blob, found.mime_type or ""
        case _:
            return None
    media_type = media_type.partition(";")[0].strip().lower()
    if not media_type.startswith("image/") or len(data) > _LONGEST:
        return None
    try:
        return Image(b64decode(data, validate=True), _ALIASES.get(media_type, media_type))
    except ValueError:  # broken base64, or an `InvalidField`
        return None


def _told(block: object) -> str:
    return block.text if isinstance(block, mcp_types.TextContent) else _note(block)


def _says(text: str, structured: object) -> bool:
    """Whether a text is what has structure, written out: servers give both, for those who read only one."""
    if isinstance(structured, dict) and [*structured.values()] == [text]:  # whatever its one field is called
        return True
    wrapped = object_of(structured).get("result") if object_of(structured).keys() == {"result"} else None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(_json(value) in (_json(structured), _json(wrapped)))


def _note(block: object) -> str:
    """A note of a block that is no text: data that a model cannot read would only fill the record."""
    about: dict[str, object]
    match block:
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            return _json({"type": block.type, "mime_type": block.mime_type, "bytes": _size(block.data)})
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as found):
            about = {"type": "resource", "uri": str(found.uri), "mime_type": found.mime_type, "text": found.text}
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as found):
            size = _size(found.blob)
            about = {"type": "resource", "uri": str(found.uri), "mime_type": found.mime_type, "bytes": size}
        case mcp_types.ResourceLink():
            about = {"type": "resource_link", "uri": str(block.uri), "name": block.name, "mime_type": block.mime_type}
        case _:
            about = {"type": str(getattr(block, "type", "unknown"))}
    return _json({name: value for name, value in about.items() if value is not None})


def _size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
