"""Expressions in text: Python's own notation for values and comparisons, evaluated by simpleeval, which has no way out of its names.

What can change a value, or make a large one of a small one, is left out: it is for looking at things.
"""

from __future__ import annotations

import ast
import math
import threading
from collections.abc import Callable, Collection, Mapping

from phronomy.errors import ConfigurationError

_LARGEST = 10_000  # bits of a power, and digits to round to


def _power(base: float, exponent: float) -> object:
    if abs(exponent) * max(math.log2(abs(base) or 1), 1) > _LARGEST:
        raise OverflowError("the power is too large")
    return base**exponent


def _remainder(left: float | str | bytes, right: float) -> float:
    if isinstance(left, str | bytes):
        raise TypeError("% is for numbers")
    return left % right


def _round(number: float, digits: int = 0) -> float:
    if abs(digits) > _LARGEST:
        raise OverflowError("these are too many digits")
    return round(number, digits) if digits else round(number)


_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "abs": abs,
    "all": all,
    "any": any,
    "bool": bool,
    "float": float,
    "int": int,
    "len": len,
    "max": max,
    "min": min,
    "round": _round,
    "sorted": sorted,
    "str": str,
    "sum": sum,
}
_TESTS = "endswith isalnum isalpha isascii isdecimal isdigit islower isnumeric isspace istitle isupper startswith"
_CUTS = (
    "casefold lower lstrip partition removeprefix removesuffix rpartition rsplit rstrip split splitlines strip upper"
)
_METHODS: Mapping[type, set[str]] = {
    str: {*_TESTS.split(), *_CUTS.split(), "count", "find", "index", "rfind", "rindex"},
    dict: {"get", "items", "keys", "values"},
    list: {"count", "index"},
    tuple: {"count", "index"},
    float: {"is_integer"},
}
_LEFT_OUT = (ast.JoinedStr, ast.Starred)
_LONGEST = 1_000  # characters


class Expression:
    """A value to be worked out from names: `tool == 'refund' and args['amount'] > 100`.

    Comparisons, arithmetic, `and`, `or`, `not`, `in`, `if ... else`, subscripts, comprehensions, methods of texts and containers
    that change nothing, and `len`, `min`, `max`, `sum`, `any`, `all`, `sorted`, `abs`, `round`, `int`, `float`, `str`, `bool`.
    Nothing else can be reached. Raises `ConfigurationError` for what is no such expression, and for a name that is not among `names`.
    """

    def __init__(self, text: str, names: Collection[str]) -> None:
        if not isinstance(text, str) or not 0 < len(text.strip()) <= _LONGEST:
            raise ConfigurationError(f"an expression is text of 1 to {_LONGEST} characters")
        self.text: str = text.strip()
        try:
            tree = ast.parse(self.text, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            why = error.msg if isinstance(error, SyntaxError) else type(error).__name__
            raise ConfigurationError(f"{self.text[:80]!r} is no expression: {why}") from None
        from simpleeval import (  # type: ignore[import-untyped]  # noqa: PLC0415  # most runs have none
            DEFAULT_OPERATORS,
            EvalWithCompoundTypes,
        )

        operators = {**DEFAULT_OPERATORS, ast.Pow: _power, ast.Mod: _remainder}
        self._evaluator = EvalWithCompoundTypes(operators, dict(_FUNCTIONS), allowed_attrs=dict(_METHODS))
        self._parsed = self._evaluator.parse(self.text)
        self._check(tree, {*names, *_FUNCTIONS})
        self._lock = threading.Lock()

    def _check(self, tree: ast.AST, known: set[str]) -> None:
        """Refuse, now and not when it would count, what can never be worked out."""
        for node in ast.walk(tree):
            if isinstance(node, ast.expr) and (
                type(node) not in (self._evaluator.nodes or {}) or isinstance(node, _LEFT_OUT)
            ):
                raise ConfigurationError(f"{self.text[:80]!r}: an expression has no {type(node).__name__.lower()}")
            if isinstance(node, ast.Attribute) and not any(node.attr in names for names in _METHODS.values()):
                raise ConfigurationError(
                    f"{self.text[:80]!r}: there is no method {node.attr}; write ['{node.attr}'] for a value"
                )
            if isinstance(node, ast.Call) and not (
                isinstance(node.func, ast.Attribute) or getattr(node.func, "id", None) in _FUNCTIONS
            ):
                raise ConfigurationError(f"{self.text[:80]!r}: {ast.unparse(node.func)} is no function")
        found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        bound = {node.id for node in found if isinstance(node.ctx, ast.Store)}
        if unknown := sorted({node.id for node in found} - bound - known):
            raise ConfigurationError(
                f"{self.text[:80]!r}: there is no {', '.join(unknown)}; the names are {', '.join(sorted(known))}"
            )

    def value(self, names: Mapping[str, object]) -> object:
        """The value for these names. Raises whatever comes of it: an unknown name, a missing key, a wrong type."""
        with self._lock:
            self._evaluator.names = {**names, "True": True, "False": False, "None": None}
            found: object = self._evaluator.eval(self.text, previously_parsed=self._parsed)
            return found

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"
