"""What a tool has given, as its model reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from phronomy.foundation import json_text
from phronomy.foundation.json_text import JsonDict, JsonError, canonical, clean, encoded, object_of, text_of
from phronomy.records.calls import CallResult
from phronomy.records.messages import told_text
from phronomy.tools.images import MAX_IMAGES, MAX_TOTAL, Image, part_of


def rendered(value: Any, limit: int) -> CallResult:
    """The result as the model reads it: text as it is, images as images, anything else as JSON; of texts, so many characters.

    An image stands alone, or in a list whose other items are told as text. A result that is no JSON, or that no record can hold,
    settles the call as failed, with the note that it did run.
    """
    try:
        if type(value) is Image:  # the type is asked, not the value, which may be anything
            return _in_parts([value], limit)
        if type(value) in (list, tuple) and any(type(each) is Image for each in value):
            return _in_parts(value, limit)
        return _in_text(_text_of(value), limit)
    except _Unfit as error:
        return CallResult(kind="failed", content=f"The tool ran, but its result {error}")


def with_answer(result: CallResult, value: Any, *, exact: bool) -> CallResult:
    """The result with the whole value as the answer of the run. If no record can hold that, the call settles as failed.

    `exact`: as the JSON that is read back as this value, without what its type computes of it. Images are told as text.
    """
    if result.kind != "completed":
        return result
    try:
        if result.has_parts or issubclass(type(value), str):
            return result.evolve(answer=canonical(result.content if result.has_parts else str.__str__(value)))
        return result.evolve(answer=canonical(to_jsonable_python(value, round_trip=exact)))
    except Exception as error:
        told = (
            f"The tool ran, but its result cannot be the answer ({type(error).__name__}). Its effect may have happened."
        )
        return CallResult(kind="failed", content=told)


def cut(text: str, limit: int) -> str:
    """The text, if it is not too long; else so much of it, and how much more there was."""
    more = len(text) - limit
    return text if more <= 0 else f"{text[:limit]}\n[{more} more characters were left out]"


class _Unfit(Exception):
    """The result cannot be told to a model. The message says what of it."""


def _text_of(value: Any) -> str:
    if issubclass(type(value), str):
        return str.__str__(value)
    try:
        return encoded(to_jsonable_python(value))
    except Exception as error:
        raise _Unfit(
            f"of type {type(value).__name__} cannot be turned into JSON ({type(error).__name__}). Its effect may have happened."
        ) from None


def _in_text(text: str, limit: int) -> CallResult:
    text = cut(text, limit)
    try:
        if len(text) > json_text.MAX_BYTES // 6 - 2:  # a character takes six at most
            canonical(text)
    except JsonError:
        raise _Unfit(f"of {len(text)} characters is more than a record can hold.") from None
    return CallResult(kind="completed", content=text)


def _in_parts(values: Sequence[object], limit: int) -> CallResult:
    """Images and texts in their order. Texts that stand side by side are one part, and empty ones are none: providers refuse those."""
    parts: list[JsonDict] = []
    texts: list[str] = []
    images = [each for each in values if type(each) is Image]
    size = sum(len(each.data) for each in images)
    if len(images) > MAX_IMAGES or size > MAX_TOTAL:
        raise _Unfit(
            f"has {len(images)} images of {size:,} bytes together, and at most {MAX_IMAGES} of {MAX_TOTAL:,} are taken."
            " Its effect may have happened."
        )
    for each in values:
        if type(each) is not Image:
            texts.append(clean(_text_of(each)))
            continue
        limit = _say(parts, texts, limit)
        parts.append(part_of(each))
        texts = []
    _say(parts, texts, limit)
    length = sum(len(text_of(one.get("text") or object_of(one["image_url"])["url"])) for one in parts)
    if length > json_text.MAX_BYTES // 2:  # what a human changed in the call may be told before it
        raise _Unfit(f"of {length:,} characters is more than a record can hold. Its effect may have happened.")
    return CallResult(kind="completed", content=told_text(parts), parts=parts)


def _say(parts: list[JsonDict], texts: list[str], limit: int) -> int:
    """Add the texts as one part, and say how many characters are left."""
    text = "\n".join(texts)
    if not text.strip():
        return limit
    parts.append({"type": "text", "text": cut(text, limit)})
    return max(limit - len(text), 0)
