"""A JSON Schema from somebody who may mean harm, applied within a budget.

A short schema can take for ever: references that double at each level, defaults in defaults, a pattern that backtracks. So each step
of the validator looks at a clock, and patterns are matched by an engine that can be stopped. The clock is of the processor's time in
this thread, so that a machine which is busy elsewhere makes no difference. Nothing is fetched.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.validators import validator_for
from referencing import Registry

from phronomy.errors import ConfigurationError
from phronomy.foundation.cached_property import cached
from phronomy.foundation.json_text import JsonDict, JsonText, JsonValue, canonical, list_of, object_of, plain
from phronomy.tools.arguments import Unfit
from phronomy.tools.json_schema.keywords import Errors, extended, keywords
from phronomy.tools.json_schema.undeclared import DECLARING, undeclared

_SECONDS: Final = {"arguments": 0.1, "schema": 1.0}
_FOR_EACH: Final = 1e-5
"""Seconds that each character of what is validated adds."""

_LARGEST: Final = 200_000
"""Characters that a schema may have."""

_LONGEST: Final = 5_000
"""Characters that a pattern may have."""

_REPEATED: Final = 100_000
"""How often what stands in a pattern may be written out, since it is when it is compiled."""

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA: Final = ("default", "const", "enum", "examples")

# What JSON Schema's own dialect of patterns knows; the engine has more (recursion, fuzzy matches, flags).
_PLAIN: Final = re.compile(r"(?:\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?!\?)|\(\?(?:[:=!]|P?<[^>])|[^\\(\[])*", re.DOTALL)
_COUNTS: Final = re.compile(r"\{(\d+)")

_end: ContextVar[tuple[float, str]] = ContextVar("phronomy_schema_budget", default=(math.inf, ""))


class Unusable(Exception):
    """Why a schema cannot be used."""


@contextmanager
def budget(text: str, of: str = "arguments") -> Iterator[None]:
    """A time within which the block is done with schemas and this text, or raises `Unfit`."""
    seconds = _SECONDS[of] + _FOR_EACH * len(text)
    before = _end.set((time.thread_time() + seconds, of))
    try:
        yield
    finally:
        _end.reset(before)


def spend() -> float:
    """Seconds that are left. Raises `Unfit` if none are."""
    end, of = _end.get()
    left = end - time.thread_time()
    if left <= 0:
        more = "to apply to them " if of == "arguments" else ""
        raise Unfit(f"the schema of the tool takes more time {more}than it is given, so they were not validated")
    return left


class BoundedSchema:
    """A schema that can be applied within a `budget`.

    Raises `Unusable`, `JsonError`, `Unfit` or jsonschema's `SchemaError` for what is none that can be used.
    """

    def __init__(self, schema: object) -> None:
        self.text: JsonText = canonical(schema)
        if len(self.text) > _LARGEST:
            raise Unusable(f"it has {len(self.text)} characters, and more than {_LARGEST} are not read")
        root = plain(self.text)
        if not isinstance(root, dict):
            raise Unusable("it describes no object")
        self.root: JsonDict = root
        unknown: Any = None
        known = validator_for(self.root, default=unknown if "$schema" in self.root else Draft202012Validator)
        if known is None:
            raise Unusable("its '$schema' names no draft that is known")
        kind = extended(known, _KEYWORDS, step=spend)
        nowhere: Registry[Any] = Registry()
        with budget(self.text, of="schema"):
            for error in kind(kind.META_SCHEMA, registry=nowhere).iter_errors(self.root):
                raise SchemaError.create_from(error)
            self._check()
        self.validator: Any = kind(self.root, registry=nowhere)

    def errors(self, value: object) -> Errors:
        """Where the value does not fit. Within a `budget`; raises `Unfit`."""
        found: Errors = self.validator.iter_errors(value)
        return found

    def undeclared(self, value: JsonValue) -> Errors:
        """Where a value that fits has names that are not declared. Within a `budget`; raises `Unfit`."""
        return undeclared(self.validator, value, matches_in_time) if self._declares else iter(())

    def at(self, reference: str) -> JsonValue:
        """The part of the schema that a reference points at; None for a reference by an anchor."""
        found: JsonValue = self.root
        if reference != "#" and not reference.startswith("#/"):
            return None
        for part in reference[2:].split("/") if len(reference) > 1 else []:
            key = part.replace("%25", "%").replace("~1", "/").replace("~0", "~")
            found = list_of(found)[int(key)] if isinstance(found, list) else object_of(found)[key]
        return found

    def _check(self) -> None:
        names: set[str] = set()
        todo: list[JsonValue] = [self.root]
        while todo:
            spend()
            item = todo.pop()
            if isinstance(item, list):
                todo.extend(item)
            if not isinstance(item, dict):
                continue
            names |= item.keys()
            todo.extend(value for name, value in item.items() if name not in _DATA)
            for name in _REFERENCES:
                if isinstance(reference := item.get(name), str):
                    self._check_reference(reference)
            patterns = item.get("patternProperties")
            for pattern in (item.get("pattern"), *(patterns if isinstance(patterns, dict) else ())):
                if isinstance(pattern, str):
                    _check_pattern(pattern)
        self._declares = not names.isdisjoint(DECLARING)
        if "patternProperties" in names and any(name.startswith("unevaluated") for name in names):
            raise Unusable("it has both 'patternProperties' and what is unevaluated, which is not supported")

    def _check_reference(self, reference: str) -> None:
        if not reference.startswith("#"):
            raise Unusable(f"it points elsewhere, to {reference[:80]!r}, and nothing is fetched")
        try:
            self.at(reference)
        except (LookupError, TypeError, ValueError):
            raise Unusable(f"{reference[:80]!r} is not in it") from None


class ResultSchema:
    """The schema of a tool's structured results: compiled when the first result is checked, and then kept."""

    def __init__(self, schema: object) -> None:
        self._schema = schema

    @cached
    def _bounded(self) -> BoundedSchema:
        return BoundedSchema(self._schema)

    def check(self, value: object) -> None:
        """Refuse a structured result that does not fit, or not in time. Raises `Unfit`, or as a schema does."""
        bounded = self._bounded
        with budget(canonical(value)):
            for _ in bounded.errors(value):
                raise Unfit("the result does not fit its schema")


@cache
def _engine() -> Any:
    """The engine of regular expressions that can be stopped. It comes with the extra for MCP, as nothing else of phronomy needs it."""
    try:
        import regex  # type: ignore[import-untyped]  # noqa: PLC0415  # it comes without types
    except ModuleNotFoundError:
        raise ConfigurationError("patterns in schemas need regex: pip install 'phronomy[mcp]'") from None
    return regex


def _check_pattern(pattern: str) -> None:
    written_out = math.prod(int(count[:9]) or 1 for count in _COUNTS.findall(pattern))
    if len(pattern) > _LONGEST or written_out > _REPEATED:
        raise Unusable(f"its pattern {pattern[:80]!r} is too large")
    regex = _engine()
    try:
        if _PLAIN.fullmatch(pattern) is None:
            raise ValueError
        regex.compile(pattern)
    except Exception:
        raise Unusable(f"its pattern {pattern[:80]!r} is none that can be used") from None


def matches_in_time(pattern: str, text: str) -> bool:
    """True if a pattern is found in a text. Within a `budget`; raises `Unfit`."""
    try:
        return _engine().search(pattern, text, timeout=spend(), concurrent=True) is not None
    except TimeoutError:
        raise Unfit(
            f"the pattern {pattern[:80]!r} in the schema of the tool takes more time to match than it is given,"
            " so they were not validated"
        ) from None


_KEYWORDS: Final = keywords(matches_in_time)
