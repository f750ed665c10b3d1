"""The look of a company: its logo and its colour. Both are checked when the inbox is made, and are files of the inbox itself.

A text has a contrast of at least 4.5 to what it stands on (WCAG 2.2, 1.4.3), in light and in dark. One colour cannot be read on
both, so for dark it is mixed with white until it can.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import field
from importlib.resources import files
from pathlib import Path
from typing import Final

from phronomy.errors import ConfigurationError
from phronomy.foundation.dataclasses import dataclass
from phronomy.foundation.quoting import quoted
from phronomy.inbox.look.contrast import contrast, mixed

MAX_LOGO: Final = 262_144
"""The largest logo, in bytes."""

LEAST: Final = 4.5
"""The contrast that a text has at least."""

GROUNDS: Final = {"light": ("#ffffff", "#f8f7f4", "#f0eee9"), "dark": ("#1c1b19", "#141312", "#242220")}
"""The grounds on which texts in the colour stand, as the style sheet has it: raised, ground, sunken."""

_ON_DARK: Final = "#141312"
_SOFT: Final = 0.12
_COLOUR: Final = re.compile("#[0-9a-f]{6}")
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_SVG: Final = re.compile(
    rb"\A(\xef\xbb\xbf)?\s*(<\?xml[^>]*\?>\s*)?(<!--.*?-->\s*)*(<!DOCTYPE svg[^>\[]*>\s*)?<svg[\s>]", re.DOTALL
)
_MARK: Final = b"#0d5c63"
"""The colour of the icon."""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages refer to: the name in its address, its type and its bytes."""

    name: str
    media: str
    content: bytes = field(repr=False)


def asset(name: str, media: str, content: bytes) -> Asset:
    """A file under a name with a hash of its content, so that it is kept for ever."""
    stem, _, end = name.rpartition(".")
    return Asset(f"{stem}-{hashlib.sha256(content).hexdigest()[:16]}.{end}", media, content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The files of a company's look: its logo, the style sheet of its colour and the icon in it, each None where there is none."""

    logo: Asset | None = None
    colours: Asset | None = None
    icon: Asset | None = None

    @property
    def files(self) -> tuple[Asset, ...]:
        """All files that there are."""
        return tuple(each for each in (self.logo, self.colours, self.icon) if each is not None)


def look_of(logo: str | Path | bytes | None, color: str | None) -> Look:
    """The look of an inbox. Raises `ConfigurationError`."""
    if color is None:
        return Look(logo=_logo(logo))
    sheet, light = _sheet(color)
    icon = (files("phronomy.inbox.pages") / "static" / "icon.svg").read_bytes().replace(_MARK, light.encode())
    return Look(
        logo=_logo(logo),
        colours=asset("look.css", "text/css", sheet.encode()),
        icon=asset("icon.svg", "image/svg+xml", icon),
    )


def _logo(given: str | Path | bytes | None) -> Asset | None:
    if given is None:
        return None
    if not isinstance(given, str | Path | bytes):
        raise ConfigurationError(f"Inbox: logo is the path or the bytes of a PNG or an SVG, not {quoted(given)}")
    try:
        content = given if isinstance(given, bytes) else Path(given).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"Inbox: logo {quoted(str(given))} cannot be read: {error.strerror}") from error
    if len(content) > MAX_LOGO:
        raise ConfigurationError(f"Inbox: logo has {len(content):,} bytes, and at most {MAX_LOGO:,}: make it smaller")
    # A picture is never part of a page, and its own policy keeps scripts in it from running where it is opened by itself.
    if content.startswith(_PNG):
        return asset("logo.png", "image/png", content)
    if _SVG.match(content):
        return asset("logo.svg", "image/svg+xml", content)
    raise ConfigurationError("Inbox: logo is neither a PNG nor an SVG")


def _sheet(color: object) -> tuple[str, str]:
    """The style sheet of a colour, and the colour in lower case."""
    light = color.lower() if isinstance(color, str) else ""
    if not _COLOUR.fullmatch(light):
        raise ConfigurationError(f"Inbox: color is a colour such as '#0d5c63', not {quoted(color)}")
    if (found := _least(light, "light")) < LEAST:
        darker = _mixed_until(light, "#000000", "light")
        raise ConfigurationError(
            f"Inbox: color {light} has a contrast of {found:.2f} to what it stands on, and a text needs {LEAST}: {darker} has it"
        )
    dark = _mixed_until(light, "#ffffff", "dark")
    rules = (
        f":root{{--accent:{light};--on-accent:#ffffff;--accent-soft:{_soft(light, 'light')}}}",
        f"@media (prefers-color-scheme:dark){{:root{{--accent:{dark};--on-accent:{_ON_DARK};--accent-soft:{_soft(dark, 'dark')}}}}}",
    )
    return "\n".join(rules), light


def _mixed_until(color: str, other: str, scheme: str) -> str:
    """The colour with as little of the other one as makes it readable."""
    return next(each for part in range(101) if _least(each := mixed(color, other, part / 100), scheme) >= LEAST)


def _least(color: str, scheme: str) -> float:
    """The least contrast that a text in the colour has, or one on it."""
    on = "#ffffff" if scheme == "light" else _ON_DARK
    return min(contrast(color, each) for each in (on, _soft(color, scheme), *GROUNDS[scheme]))


def _soft(color: str, scheme: str) -> str:
    """The ground of a note: the raised one with some of the colour."""
    return mixed(GROUNDS[scheme][0], color, _SOFT)
