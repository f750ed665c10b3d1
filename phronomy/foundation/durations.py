"""Durations in words, for people."""


def duration(seconds: float) -> str:
    """So many seconds in the largest unit that fits; nothing below a minute."""
    for name, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return ""


def ago(seconds: float) -> str:
    """An age, in the largest unit that fits."""
    return f"{told} ago" if (told := duration(seconds)) else "just now"
