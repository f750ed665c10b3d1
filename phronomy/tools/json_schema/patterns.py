"""Patterns of a JSON Schema, matched by the engine that pydantic has: it never backtracks.

The engine of Python takes twice as long for each further letter of a text that nearly fits `^(a+)+$`, and no other thread runs
meanwhile.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

MOST_STEPS: Final = 100_000_000
"""Steps of the engine: the length of a pattern, with what it repeats written out, times that of the text. More are not done."""

_COUNTS: Final = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
_KEPT: Final = 64
"""Patterns that are kept compiled. One takes up to some megabytes."""


def matches_or_unjudged(pattern: str, text: str) -> bool | None:
    """Whether the pattern is found in the text; None if the engine does not know it, or would take too long.

    Raises `re.error` for what is a pattern to neither engine.
    """
    if _steps(pattern) * len(text) > MOST_STEPS:
        return None
    if (engine := _engine(pattern)) is None:
        re.compile(pattern)
        return None
    return engine.isinstance_python(text)


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern of one's own code is found in the text. Python's engine has those that pydantic's does not know."""
    engine = _engine(pattern)
    return engine.isinstance_python(text) if engine is not None else re.search(pattern, text) is not None


@lru_cache(_KEPT)
def _engine(pattern: str) -> SchemaValidator | None:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


def _steps(pattern: str) -> int:
    return len(pattern) * math.prod(max(int(least), int(most or 0), 1) for least, most in _COUNTS.findall(pattern))
