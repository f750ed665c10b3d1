"""The look of a company in the inbox: its title, its logo and its colour, from the inbox itself alone."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from inbox_scenes import Visitor, inbox_of
from tables import each

from phronomy import ConfigurationError
from phronomy.inbox.look.contrast import contrast
from phronomy.inbox.look.looks import GROUNDS, LEAST, MAX_LOGO

PNG = b"\x89PNG\r\n\x1a\n" + b"a picture"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><script>alert(1)</script><rect width="8" height="8"/></svg>'
SHEET = (files("phronomy.inbox.pages") / "static" / "inbox.css").read_text()


def linked(text: str) -> list[str]:
    return re.findall(r'<(?:link|img|script)[^>]*(?:href|src)="([^"]+)"', text)


@each(
    ("content", "end", "media"),
    [
        (PNG, "png", "image/png"),
        (SVG, "svg", "image/svg+xml"),
        (
            b'\xef\xbb\xbf<?xml version="1.0"?>\n<!-- Made by hand -->\n<!DOCTYPE svg PUBLIC "x" "y">\n' + SVG,
            "svg",
            "image/svg+xml",
        ),
    ],
)
def test_the_logo_is_a_file_of_the_inbox(content: bytes, end: str, media: str) -> None:
    inbox = inbox_of(title="Example & Co.", logo=content)
    visitor = Visitor(inbox, None)
    page = visitor.get("/login")
    assert "<title>Sign in · Example &amp; Co.</title>" in page.text
    brand = re.search(r'<a class="brand".*?</a>', page.text)
    assert brand is not None and "Example &amp; Co." in brand[0]
    path = re.search(rf'<img class="logo" src="(/static/logo-[0-9a-f]{{16}}\.{end})" alt="">', brand[0])
    assert path is not None
    got = visitor.get(path[1])
    assert (got.status_code, got.headers["content-type"], got.content) == (200, media, content)
    # Opened by itself it is a picture, and a script in it does not run.
    policy = got.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'nonce-") and "unsafe" not in policy
    assert (got.headers["x-content-type-options"], got.headers["cross-origin-resource-policy"]) == (
        "nosniff",
        "same-origin",
    )
    assert "<script>alert" not in page.text
    assert all(each.startswith("/static/") for each in linked(page.text))


def test_the_logo_may_be_the_path_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(PNG)
    for given in (tmp_path / "logo.png", str(tmp_path / "logo.png")):
        assert "/static/logo-" in Visitor(inbox_of(logo=given), None).get("/login").text
    assert "/static/logo-" not in Visitor(inbox_of(), None).get("/login").text


@each(
    ("logo", "why"),
    [
        (b"GIF89a", "neither a PNG nor an SVG"),
        (b"<html><svg></svg></html>", "neither a PNG nor an SVG"),
        (b'<!DOCTYPE svg [<!ENTITY a "b">]>' + SVG, "neither a PNG nor an SVG"),
        (b"", "neither a PNG nor an SVG"),
        (PNG + b"\0" * MAX_LOGO, "262,1.. bytes, and at most 262,144"),
        ("/nowhere/logo.png", "cannot be read: No such file"),
        (7, "the path or the bytes"),
    ],
)
def test_what_is_no_logo_is_refused_when_the_inbox_is_made(logo: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Inbox: logo .*{why}"):
        inbox_of(logo=logo)


@each("color", ["#0d5c63", "#7A1FA2", "#b00020", "#000000", "#00008b", "#5a5a5a", "#1b6e1b", "#8a3c00"])
def test_a_colour_can_be_read_in_light_and_in_dark(color: str) -> None:
    """Text on it, and text in it on each ground: the contrast is as for any text."""
    visitor = Visitor(inbox_of(color=color), None)
    page = visitor.get("/login")
    (path,) = [each for each in linked(page.text) if each.startswith("/static/look-")]
    assert re.search(rf'<link rel="stylesheet" href="{path}" nonce="[^"]+">', page.text)
    got = visitor.get(path)
    assert (got.status_code, got.headers["content-type"].partition(";")[0]) == (200, "text/css")
    found = re.findall(r"--accent:(\S{7});--on-accent:(\S{7});--accent-soft:(\S{7})", got.text)
    assert found[0][0] == color.lower() and len(found) == 2
    for (accent, on, soft), scheme in zip(found, GROUNDS, strict=True):
        assert min(contrast(accent, each) for each in (on, soft, *GROUNDS[scheme])) >= LEAST
        texts = re.findall(r"--(?:ink|soft): (#[0-9a-f]{6})", SHEET)
        ink, muted = texts[:2] if scheme == "light" else texts[2:]
        assert min(contrast(ink, soft), contrast(muted, soft)) >= LEAST
    icon = next(each for each in linked(page.text) if "/icon-" in each)
    assert color.lower() in visitor.get(icon).text


def test_the_grounds_are_those_of_the_style_sheet() -> None:
    named = re.findall(r"--ground: (\S+); --raised: (\S+); --sunken: (\S+);", SHEET)[:2]
    assert [(raised, ground, sunken) for ground, raised, sunken in named] == [*GROUNDS.values()]


@each(
    ("one", "other", "ratio"),
    [
        ("#000000", "#ffffff", 21.0),
        ("#ffffff", "#ffffff", 1.0),
        ("#767676", "#ffffff", 4.54),
        ("#ff0000", "#ffffff", 4.0),
    ],
)
def test_the_contrast_is_that_of_wcag(one: str, other: str, ratio: float) -> None:
    assert contrast(one, other) == contrast(other, one) == pytest.approx(ratio, abs=0.005)


@each(
    ("color", "why"),
    [
        (
            "#ffcc00",
            r"#ffcc00 has a contrast of 1\.\d\d to what it stands on, and a text needs 4.5: #[0-9a-f]{6} has it",
        ),
        ("#808080", r"contrast of 3\.\d\d"),
        ("#ffffff", r"contrast of 1\.00"),
        ("red", "such as '#0d5c63'"),
        ("#abc", "such as '#0d5c63'"),
        ("#0d5c63;}body{", "such as '#0d5c63'"),
        ("#0d5c63\n", "such as '#0d5c63'"),
        (7, "such as '#0d5c63'"),
    ],
)
def test_a_colour_that_cannot_be_read_is_refused_with_its_contrast(color: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Inbox: color .*{why}") as refused:
        inbox_of(color=color)
    if found := re.search(r"4\.5: (#\w+) has it", str(refused.value)):
        inbox_of(color=found[1])
