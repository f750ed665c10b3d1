"""A property that is computed once for each object, and holds no lock meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from functools import cached_property

    cached = cached_property
else:

    class cached:  # that of Python 3.11 has a lock for all objects: a child that is forked meanwhile waits for good
        """As `functools.cached_property`. Threads that are first at once may each compute it."""

        def __init__(self, compute: Callable[[object], object]) -> None:
            self._compute = compute
            self._name = compute.__name__
            self.__doc__ = compute.__doc__

        def __get__(self, instance: object, owner: type | None = None) -> object:
            if instance is None:
                return self
            return instance.__dict__.setdefault(self._name, self._compute(instance))
