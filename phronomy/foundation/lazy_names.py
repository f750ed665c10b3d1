"""Names of a package that load their module when they are first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module


def load(package: str, name: str, places: Mapping[str, str]) -> object:
    """Import the module that has a name of the package, and return the object; a leading dot means a module of the package.

    Raises `AttributeError` for a name that stands in no place.
    """
    if name not in places:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(import_module(places[name], package), name)
