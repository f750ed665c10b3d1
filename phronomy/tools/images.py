"""Images that tools give back, for the model to see."""

from __future__ import annotations

from base64 import b64encode
from typing import Final, final

from phronomy.errors import InvalidField
from phronomy.foundation.json_text import JsonDict
from phronomy.foundation.quoting import quoted_word

MEDIA_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""What models take."""

MAX_BYTES: Final = 5 * 2**20 * 3 // 4
"""Bytes of one image. In base64 they are 5 MiB, the least that a provider takes: https://docs.claude.com/en/docs/build-with-claude/vision."""

MAX_IMAGES: Final = 20
"""Images of one result."""

MAX_TOTAL: Final = 3 * MAX_BYTES
"""Bytes of all images of one result. In base64 they are less than half of what a record holds."""


@final
class Image:
    """An image in the result of a tool, for the model to see: PNG, JPEG, GIF or WebP.

        @tool
        def chart(year: int) -> list[str | Image]:
            return [f"Sales of {year}:", Image(plot(year))]

    `data` are the bytes of the image file, at most 3,932,160 of them (5 MiB in base64). You need not give a
    `media_type`: it is read from the data. Raises `InvalidField` for other data, and if the data is of another type
    than `media_type`.
    """

    __slots__ = ("_data", "_media_type")

    def __init__(self, data: bytes, media_type: str | None = None) -> None:
        if not isinstance(data, bytes):
            raise InvalidField(f"Image: data are the bytes of an image, not {quoted_word(data)}")
        if media_type is not None and media_type not in MEDIA_TYPES:
            raise InvalidField(
                f"Image: {quoted_word(media_type)} is no media type that models take; there are {', '.join(MEDIA_TYPES)}"
            )
        if len(data) > MAX_BYTES:
            raise InvalidField(
                f"Image: {len(data):,} bytes are more than the {MAX_BYTES:,} that models take: make it smaller, or less exact"
            )
        found = _media_type(data)
        if found is None:
            raise InvalidField(
                f"Image: the data does not begin as an image of a type that models take: {', '.join(MEDIA_TYPES)}"
            )
        if media_type not in (None, found):
            raise InvalidField(f"Image: the data is {found}, and not {media_type}")
        self._data = data
        self._media_type = found

    @property
    def data(self) -> bytes:
        """The bytes of the image file."""
        return self._data

    @property
    def media_type(self) -> str:
        """The media type of the image, such as `image/png`."""
        return self._media_type

    def __eq__(self, other: object) -> bool:
        return self._data == other._data if isinstance(other, Image) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._data)

    def __repr__(self) -> str:
        return f"<Image {self._media_type}, {len(self._data):,} bytes>"


def part_of(image: Image) -> JsonDict:
    """The image as a content part, in the form of chat completions."""
    url = f"data:{image.media_type};base64,{b64encode(image.data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def _media_type(data: bytes) -> str | None:
    """The type that the first bytes say; None if it is none that models take."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None
