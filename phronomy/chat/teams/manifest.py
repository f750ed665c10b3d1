"""The app package of Teams: its manifest, and its icons. `phronomy teams manifest` makes it.

https://learn.microsoft.com/en-us/microsoftteams/platform/resources/schema/manifest-schema
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from typing import Final

from phronomy.foundation.json_text import JsonDict

_SCHEMA: Final = "https://developer.microsoft.com/en-us/json-schemas/teams/v1.17/MicrosoftTeams.schema.json"
_BLUE: Final = (36, 84, 148, 255)
_WHITE: Final = (255, 255, 255, 255)
_CLEAR: Final = (255, 255, 255, 0)


def manifest(*, app_id: str, website: str, name: str = "Approvals", version: str = "1.0.0") -> JsonDict:
    """The manifest of an app that posts requests and takes clicks in chats and channels.

    `app_id` is the id of the bot in Entra ID, a UUID. `website` is an address of yours with https, which Teams shows for the developer,
    the privacy statement and the terms of use. `name` has at most 30 characters. Raise `version` whenever you upload the app again.
    """
    return {
        "$schema": _SCHEMA,
        "manifestVersion": "1.17",
        "version": version,
        "id": app_id,
        "developer": {"name": name, "websiteUrl": website, "privacyUrl": website, "termsOfUseUrl": website},
        "name": {"short": name, "full": name},
        "description": {"short": "Asks people before an agent acts", "full": "Asks people before an agent acts."},
        "icons": {"color": "color.png", "outline": "outline.png"},
        "accentColor": "#245494",
        "bots": [{"botId": app_id, "scopes": ["personal", "team", "groupChat"], "isNotificationOnly": False}],
        "validDomains": [],
    }


def package(manifest: JsonDict) -> bytes:
    """The app package: a ZIP file of a manifest and two plain icons. The same manifest makes the same bytes."""
    files = {
        "manifest.json": json.dumps(manifest, indent=2, ensure_ascii=False).encode(),
        "color.png": _icon(192, _BLUE),
        "outline.png": _icon(32, _CLEAR),
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return made.getvalue()


def _icon(size: int, ground: tuple[int, int, int, int]) -> bytes:
    """A PNG image with a white tick. https://www.w3.org/TR/png"""
    rows = [
        b"\0" + b"".join(bytes(_WHITE if _is_tick(x / size, y / size) else ground) for x in range(size))
        for y in range(size)
    ]
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 6, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"".join(rows), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


def _is_tick(x: float, y: float) -> bool:
    """Whether a point of the unit square is on the tick: on one of two strokes."""
    short = 0.25 <= x <= 0.435 and abs(y - (x + 0.25)) < 0.08
    long = 0.435 <= x <= 0.78 and abs(y - (1.12 - x)) < 0.08
    return short or long
