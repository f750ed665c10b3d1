"""Multiples of numbers, by the decimals that people read: to a float, 19.99 is no multiple of 0.01."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from jsonschema import ValidationError


def is_multiple(value: float, step: float) -> bool:
    """Say whether the value is a multiple of the step. Each is read as the shortest decimal that stands for it."""
    return (_exact(value) / _exact(step)).denominator == 1


def multiple_of(__: object, step: float, instance: object, _: object) -> Iterator[ValidationError]:
    """The keyword `multipleOf`."""
    if isinstance(instance, int | float) and not isinstance(instance, bool) and not is_multiple(instance, step):
        yield ValidationError(f"{instance!r} is no multiple of {step!r}")


def _exact(number: float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))
