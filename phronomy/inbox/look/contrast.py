"""Colours such as `#0d5c63`: how they are mixed, and how far they stand apart."""

from __future__ import annotations


def mixed(color: str, other: str, part: float) -> str:
    """A colour with a part of another one, from 0 to 1."""
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(_rgb(color), _rgb(other), strict=True))


def contrast(one: str, other: str) -> float:
    """How far two colours stand apart, from 1 to 21 (WCAG 2.2, contrast ratio)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _luminance(color: str) -> float:
    parts = (each / 255 for each in _rgb(color))
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
